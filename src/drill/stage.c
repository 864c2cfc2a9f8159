/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a box must not reach, made for the drill on the host's side: a file, sockets, a segment of shared memory, and this process
 * itself, which has the text among its arguments. Told on stdout as "NAME VALUE" lines, "ready" being the last; all of it goes
 * when stdin ends, which it does however the drill ends.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "drill/probe.h"

static char dir[256];
static int shm = -1;

static void make_file(const char *name, const char *text)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	/* For everybody on purpose: nothing but the box's own walls keeps the box from it. */
	(void)fchmod(fd, 0644);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		printf("note %s is not whole\n", path);
	close(fd);
}

static void make_sockets(const char *text)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/socket", dir);
	if (s >= 0 && bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 && chmod(a.sun_path, 0666) == 0 &&
	    listen(s, 64) == 0)
		printf("socket %s\n", a.sun_path);
	memset(a.sun_path, 0, sizeof(a.sun_path));
	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "cubby-drill-%.60s", text);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s >= 0 &&
	    bind(s, (struct sockaddr *)&a,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1))) == 0 &&
	    listen(s, 64) == 0)
		printf("abstract %s\n", a.sun_path + 1);
}

/* ---- services of the host, found or not found: on the loopback only, and on every address */

#define SERVICES_MAX 8
static struct pollfd services[SERVICES_MAX];
static unsigned nservices;

/* One more; port 0 takes a free one. Returns the port, or 0. */
static int service(int family, bool loopback, int type, int port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port),
				  .sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port),
				   .sin6_addr = IN6ADDR_ANY_INIT };
	int s = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	struct sockaddr_in6 at;
	socklen_t len = sizeof(at);

	if (s < 0)
		return 0;
	if (loopback)
		v6.sin6_addr = in6addr_loopback;
	if (family == AF_INET6)
		(void)setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(s, family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
		 family == AF_INET ? sizeof(v4) : sizeof(v6)) < 0 ||
	    (type == SOCK_STREAM && listen(s, 64) < 0) || getsockname(s, (struct sockaddr *)&at, &len) < 0 ||
	    nservices == SERVICES_MAX) {
		close(s);
		return 0;
	}
	services[nservices++] = (struct pollfd){ .fd = s, .events = POLLIN };
	return ntohs(at.sin6_port); /* at the same place in both */
}

static void make_services(void)
{
	static const struct {
		const char *name;
		bool loopback;
		int type;
	} rows[] = { { "lport", true, SOCK_STREAM },
		     { "wport", false, SOCK_STREAM },
		     { "luport", true, SOCK_DGRAM },
		     { "wuport", false, SOCK_DGRAM } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int port = service(AF_INET, rows[i].loopback, rows[i].type, 0);

		if (port)
			printf("%s %d\n", rows[i].name, port);
		if (port)
			(void)service(AF_INET6, rows[i].loopback, rows[i].type, port);
	}
}

/* Of all interfaces but loopback, also what is of a link alone where it has no zone. */
static void tell_addresses(void)
{
	struct ifaddrs *all = NULL;
	unsigned n = 0;

	if (getifaddrs(&all) < 0)
		return;
	for (struct ifaddrs *i = all; i && n < 30; i = i->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";

		if (i->ifa_addr && !(i->ifa_flags & IFF_LOOPBACK) && probe_address(i->ifa_addr, text, sizeof(text)))
			printf("%s%s", n++ ? "\t" : "hostaddrs ", text);
	}
	if (n)
		printf("\n");
	freeifaddrs(all);
}

/* A connection is taken and ended; a datagram goes back. */
static void serve(const struct pollfd *p)
{
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char buf[64];
	ssize_t n;
	int fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return;
	}
	n = recvfrom(p->fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
	if (n > 0)
		(void)!sendto(p->fd, buf, (size_t)n, 0, (struct sockaddr *)&from, len);
}

/* Until the end of input. */
static void serve_all(void)
{
	struct pollfd p[SERVICES_MAX + 1];
	char c;

	for (;;) {
		memcpy(p, services, sizeof(services));
		p[nservices] = (struct pollfd){ .fd = 0, .events = POLLIN };
		if (poll(p, nservices + 1, -1) < 0)
			continue;
		for (unsigned i = 0; i < nservices; i++)
			if (p[i].revents)
				serve(&p[i]);
		if (p[nservices].revents && read(0, &c, 1) <= 0)
			return;
	}
}

static void tell_file(const char *name, const char *path)
{
	struct stat st;

	/* Looked at, not opened. */
	if (stat(path, &st) == 0)
		printf("%s %s\t%lld\t%lld\t%ld\n", name, path, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		       st.st_mtim.tv_nsec);
}

static void remove_all(void)
{
	static const char *const names[] = { "marker", "lease", "socket" };
	char path[300];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)unlink(path);
	}
	(void)rmdir(dir);
	if (shm >= 0)
		(void)shmctl(shm, IPC_RMID, NULL);
}

int probe_stage(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR"), *home = getenv("HOME"), *text = argv[0];
	key_t key = (key_t)number(argv[1]);
	struct utsname u;
	char path[4096];

	(void)argc;
	/* A terminal's signals are the drill's business: it ends, and then we do. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	snprintf(dir, sizeof(dir), "%.80s/cubby-drill-XXXXXX", tmp && tmp[0] == '/' && strlen(tmp) < 60 ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return refused(errno, "%s", dir);
	(void)chmod(dir, 0755);
	make_file("marker", text);
	make_file("lease", "");
	printf("marker %s/marker\nleasefile %s/lease\nstage %s\n", dir, dir, dir);
	make_sockets(text);
	shm = shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0666);
	if (shm >= 0)
		printf("key %d\n", (int)key);
	printf("pid %d\n", (int)getpid());
	if (uname(&u) == 0)
		printf("hostname %s\n", u.nodename);
	tell_file("shadow", "/etc/shadow");
	if (home && home[0] == '/' && strcmp(home, "/") != 0 && strlen(home) < 1000 && !strpbrk(home, " \n\t")) {
		tell_file("home", home);
		snprintf(path, sizeof(path), "%s/.ssh", home);
		tell_file("sshdir", path);
	}
	make_services();
	tell_addresses();
	printf("ready 1\n");
	fflush(stdout);
	serve_all();
	remove_all();
	return THROUGH;
}
