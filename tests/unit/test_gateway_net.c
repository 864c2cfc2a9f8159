/* SPDX-License-Identifier: Apache-2.0 */
#include "test_gateway_net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <net/if.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"
#include "chan/msg.h"
#include "lib/leak.h"
#include "net/addr.h"
#include "net/ctl.h"
#include "net/world.h"
#include "sys/inside.h"
#include "sys/rtnl.h"

#include <linux/rtnetlink.h>

#define IDS "qwertyuiopasdfgh12"

/* ---- namespaces */

static int lo_up(void)
{
	struct ifreq r = { .ifr_name = "lo" };
	OWN_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(fd, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

static int open_ns(void *arg, struct err *e)
{
	int *ret = arg, r = lo_up();

	(void)e;
	if (r < 0)
		return r;
	*ret = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

static int new_ns(void)
{
	struct err e = ERR_INIT;
	int fd = FD_NONE;

	if (inside_net(FD_NONE, open_ns, &fd, &e) < 0)
		fail_msg("%s", e.text);
	return fd;
}

struct wanted {
	int family, type, proto, fd;
};

static int make_socket(void *arg, struct err *e)
{
	struct wanted *w = arg;

	(void)e;
	w->fd = socket(w->family, w->type | SOCK_CLOEXEC, w->proto);
	return w->fd < 0 ? -errno : 0;
}

int net_socket(int ns, int family, int type, int proto)
{
	struct wanted w = { family, type, proto, FD_NONE };
	struct err e = ERR_INIT;
	int r = ns < 0 ? make_socket(&w, &e) : inside_net(ns, make_socket, &w, &e);

	return r < 0 ? r : w.fd;
}

static void put4(struct nl *b, int at, const char *s)
{
	struct ip a;

	assert_int_equal(ip_parse(s, &a), 0);
	if (ip_is4(&a))
		rtnl_put_addr(b, AF_INET, at, a.b + 12);
	else
		rtnl_put_addr(b, AF_INET6, at, a.b);
}

static void route(struct nl *b, int at, int family, unsigned char type, const char *dst)
{
	struct ip a;
	struct rtnl_route r = { .family = family, .type = type, .table = RT_TABLE_MAIN, .index = at };

	if (dst) {
		assert_int_equal(ip_parse(dst, &a), 0);
		r.dst = family == AF_INET ? a.b + 12 : a.b;
		r.bits = family == AF_INET ? 32 : 128;
	}
	rtnl_put_route(b, &r);
}

static int inet_side(void *arg, struct err *e)
{
	static const char *const addrs[] = { "203.0.113.10", "203.0.113.11", "203.0.113.53", "10.77.0.2", "2001:db8::10" };
	OWN_FD nl = nl_open(NETLINK_ROUTE);
	struct nl b = { .len = 0 };
	int at = rtnl_index(nl, "in0");

	(void)arg;
	(void)e;
	if (at < 0)
		return at;
	/* Unreachable is told by who forwards. */
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "1");
	rtnl_put_up(&b, at);
	for (size_t i = 0; i < sizeof(addrs) / sizeof(addrs[0]); i++)
		put4(&b, at, addrs[i]);
	route(&b, at, AF_INET, RTN_UNICAST, NULL);
	route(&b, at, AF_INET6, RTN_UNICAST, NULL);
	route(&b, 0, AF_INET, RTN_BLACKHOLE, "203.0.113.66");
	route(&b, 0, AF_INET, RTN_UNREACHABLE, "203.0.113.99");
	return nl_talk(nl, &b);
}

static void host_side(int inet)
{
	OWN_FD nl = nl_open(NETLINK_ROUTE);
	struct nl b = { .len = 0 };
	struct err e = ERR_INIT;
	int at;

	rtnl_put_pair(&b, "up0", "in0", inet, WORLD_MAC, 1500);
	assert_int_equal(nl_talk(nl, &b), 0);
	at = rtnl_index(nl, "up0");
	assert_true(at > 0);
	put4(&b, at, "192.0.2.2");
	put4(&b, at, "2001:db8:1::2");
	route(&b, at, AF_INET, RTN_UNICAST, NULL);
	route(&b, at, AF_INET6, RTN_UNICAST, NULL);
	assert_int_equal(nl_talk(nl, &b), 0);
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
	assert_int_equal(inside_net(inet, inet_side, NULL, &e), 0);
}


/* ---- the gateway */

static void start_gateway(struct test_net *n)
{
	char self[4096], *slash;
	int ctl[2];
	ssize_t k = readlink("/proc/self/exe", self, sizeof(self) - 64);
	const struct timeval tv = { .tv_sec = 5 };

	assert_true(k > 0);
	self[k] = '\0';
	/* build/tests/unit/NAME: the program is in build/src/prog. */
	for (int i = 0; i < 3; i++) {
		slash = strrchr(self, '/');
		assert_non_null(slash);
		*slash = '\0';
	}
	k = (ssize_t)strlen(self);
	(void)snprintf(self + k, sizeof(self) - (size_t)k, "/src/prog/cubby-gateway");
	assert_int_equal(fd_socketpair(SOCK_STREAM, ctl), 0);
	n->pid = fork();
	assert_true(n->pid >= 0);
	if (n->pid == 0) {
		char *const argv[] = { self, (char *)"--uid", (char *)"64123", (char *)"--gid", (char *)"64123", NULL };
		char *const env[] = { NULL };
		/* Away from 3 and 4 first: one of them may be the other. */
		int c = fcntl(ctl[1], F_DUPFD, 20), g = fcntl(n->gateway, F_DUPFD, 20);

		if (dup2(c, GATEWAY_CTL_FD) < 0 || dup2(g, GATEWAY_NS_FD) < 0)
			_exit(120);
		(void)execve(self, argv, env);
		_exit(121);
	}
	(void)close(ctl[1]);
	n->ctl = ctl[0];
	assert_int_equal(setsockopt(n->ctl, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
}

static void make_box(struct test_net *n, unsigned i)
{
	struct err e = ERR_INIT;
	struct test_box *b = &n->box[i];

	b->index = NET_INDEX_MIN + 7 + i;
	(void)snprintf(b->id, sizeof(b->id), "%c%s%c", 'a' + (int)i, IDS, 'z');
	b->ns = new_ns();
	if (plug_make(n->gateway, b->ns, b->index, &b->at, &e) < 0)
		fail_msg("%s", e.text);
}

void net_up(struct test_net *n)
{
	struct json_doc doc = { 0 };
	struct err e = ERR_INIT;
	char path[4200];

	*n = (struct test_net){ .host_before = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC) };
	if (unshare(CLONE_NEWNET) < 0)
		skip_because("no network namespaces: %s", strerror(errno));
	assert_int_equal(lo_up(), 0);
	n->inet = new_ns();
	host_side(n->inet);
	n->gateway = world_new(&e);
	if (n->gateway < 0)
		fail_msg("%s", e.text);
	start_gateway(n);
	(void)net_event(n, "ready", &doc);
	json_doc_done(&doc);
	net_config(n, "");
	(void)snprintf(path, sizeof(path), "%s/log", leak_dir());
	n->log = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	assert_true(n->log >= 0);
	net_send(n, "{\"op\":\"log\"}", n->log);
	make_box(n, 0);
	make_box(n, 1);
	net_box(n, 0, "internet", "");
	net_box(n, 1, "internet", "");
	net_settled(n);
}

void net_down(struct test_net *n)
{
	int status = 0;
	uint64_t until = clock_ms() + 5000;

	fd_close(&n->ctl);
	/* It ends when nobody is at the other end. */
	while (n->pid > 0 && waitpid(n->pid, &status, WNOHANG) == 0) {
		if (clock_ms() > until) {
			(void)kill(n->pid, SIGKILL);
			(void)waitpid(n->pid, &status, 0);
			fail_msg("the gateway goes on without a daemon");
		}
		(void)poll(NULL, 0, 5);
	}
	if (n->pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		fail_msg("the gateway ended with status %#x", (unsigned)status);
	plug_done();
	fd_close(&n->log);
	for (unsigned i = 0; i < 2; i++)
		fd_close(&n->box[i].ns);
	fd_close(&n->gateway);
	fd_close(&n->inet);
	assert_int_equal(setns(n->host_before, CLONE_NEWNET), 0);
	fd_close(&n->host_before);
	(void)leak_dir_clear();
}

void net_send(struct test_net *n, const char *json, int fd)
{
	assert_int_equal(msg_send(n->ctl, json, strlen(json), &fd, fd >= 0), 0);
}

void net_config(struct test_net *n, const char *proxy)
{
	char text[1024];

	(void)snprintf(text, sizeof(text),
		       "{\"op\":\"config\",\"resolv\":\"nameserver 203.0.113.53\\noptions timeout:1 attempts:2\",\"ipv6\":true,"
		       "\"lab_public\":[\"203.0.113.0/24\",\"2001:db8::/64\"],\"proxy\":\"%s\",\"presets\":\"\",\"ask_ms\":1500}",
		       proxy);
	net_send(n, text, FD_NONE);
}

void net_box(struct test_net *n, unsigned i, const char *policy, const char *more)
{
	const struct test_box *b = &n->box[i];
	struct ip v4 = net_box4(b->index), v6 = net_box6(b->index);
	char text[2048], a[IP_TEXT_MAX], c[IP_TEXT_MAX];

	(void)snprintf(text, sizeof(text),
		       "{\"op\":\"box\",\"id\":\"%s\",\"name\":\"box%u\",\"if\":%d,\"v4\":\"%s\",\"v6\":\"%s\",\"policy\":\"%s\"%s}", b->id, i,
		       b->at, ip_text(&v4, a), ip_text(&v6, c), policy, more);
	net_send(n, text, FD_NONE);
}

const struct json *net_event(struct test_net *n, const char *ev, struct json_doc *doc)
{
	for (unsigned i = 0; i < 1000; i++) {
		size_t nfds = 0;
		struct err e = ERR_INIT;
		int r = msg_recv(n->ctl, doc, NULL, 0, &nfds, &e);

		if (r <= 0)
			fail_msg("no event '%s': %d %s", ev, r, e.text);
		if (strcmp(json_str(doc->root, "ev", ""), ev) == 0)
			return doc->root;
		json_doc_done(doc);
	}
	fail_msg("no event '%s'", ev);
	return NULL;
}

void net_settled(struct test_net *n)
{
	struct json_doc doc = { 0 };

	net_send(n, "{\"op\":\"show\",\"n\":77,\"id\":\"\"}", FD_NONE);
	while (json_int(net_event(n, "show", &doc), "n", 0) != 77)
		json_doc_done(&doc);
	json_doc_done(&doc);
}

bool net_logged(struct test_net *n, const char *a, const char *b)
{
	uint64_t until = clock_ms() + 3000;
	static char text[1 << 20];

	do {
		ssize_t k = pread(n->log, text, sizeof(text) - 1, 0);
		char *save = NULL;

		assert_true(k >= 0);
		text[k] = '\0';
		for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
			if (strstr(l, a) && (!b || strstr(l, b)))
				return true;
		(void)poll(NULL, 0, 20);
	} while (clock_ms() < until);
	return false;
}

/* ---- sockets */

socklen_t net_addr(const char *ip, uint16_t port, struct sockaddr_storage *ret)
{
	struct ip a;

	assert_int_equal(ip_parse(ip, &a), 0);
	return ip_sockaddr(&a, port, ret);
}

static int bound(int ns, const char *ip, uint16_t port, int type)
{
	struct sockaddr_storage ss;
	socklen_t len = net_addr(ip, port, &ss);
	int fd = net_socket(ns, ss.ss_family, type, 0);
	const int on = 1;

	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

int net_listen(int ns, const char *ip, uint16_t port)
{
	int fd = bound(ns, ip, port, SOCK_STREAM);

	assert_int_equal(listen(fd, 1024), 0);
	return fd;
}

int net_udp(int ns, const char *ip, uint16_t port)
{
	return bound(ns, ip, port, SOCK_DGRAM);
}

bool net_wait(int fd, short events, int ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, ms) == 1;
}

int net_connect(int ns, const char *ip, uint16_t port, int ms, int *ret_fd)
{
	struct sockaddr_storage ss;
	socklen_t len = net_addr(ip, port, &ss), clen = sizeof(int);
	OWN_FD fd = net_socket(ns, ss.ss_family, SOCK_STREAM, 0);
	int code = 0;

	assert_true(fd >= 0);
	(void)fd_set_nonblock(fd, true);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		if (!net_wait(fd, POLLOUT, ms))
			return -EINPROGRESS;
		assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &clen), 0);
		if (code)
			return -code;
	}
	(void)fd_set_nonblock(fd, false);
	*ret_fd = fd_take(&fd);
	return 0;
}

int net_accept(int fd)
{
	if (!net_wait(fd, POLLIN, 3000))
		return FD_NONE;
	return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
}

ssize_t net_read(int fd, void *buf, size_t n)
{
	size_t have = 0;

	while (have < n) {
		ssize_t k;

		if (!net_wait(fd, POLLIN, 5000))
			return have ? (ssize_t)have : -ETIMEDOUT;
		k = recv(fd, (char *)buf + have, n - have, 0);
		if (k < 0)
			return have ? (ssize_t)have : -errno;
		if (k == 0)
			break;
		have += (size_t)k;
	}
	return (ssize_t)have;
}
