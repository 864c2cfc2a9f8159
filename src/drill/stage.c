/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a box must not reach, made for the drill on the host's side: a file, sockets, a segment of shared memory, and this process
 * itself, which has the text among its arguments. Told on stdout as "NAME VALUE" lines, "ready" being the last; all of it goes
 * when stdin ends, which it does however the drill ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
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
	if (s >= 0 && bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 && chmod(a.sun_path, 0666) == 0 && listen(s, 64) == 0)
		printf("socket %s\n", a.sun_path);
	memset(a.sun_path, 0, sizeof(a.sun_path));
	snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "cubby-drill-%.60s", text);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s >= 0 && bind(s, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1))) == 0 &&
	    listen(s, 64) == 0)
		printf("abstract %s\n", a.sun_path + 1);
}

static void tell_file(const char *name, const char *path)
{
	struct stat st;

	/* Looked at, not opened. */
	if (stat(path, &st) == 0)
		printf("%s %s\t%lld\t%lld\t%ld\n", name, path, (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
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
	char path[4096], c;
	ssize_t n;

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
	printf("ready 1\n");
	fflush(stdout);
	do
		n = read(0, &c, 1);
	while (n > 0 || (n < 0 && errno == EINTR));
	remove_all();
	return THROUGH;
}
