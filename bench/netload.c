/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netload: what a network is measured with. Static, so that it also runs in a box with nothing else in it. IPv4.
 *
 *	netload serve ADDR		port 7001 reads and drops, 7002 sends back what comes, 7003 accepts and closes, 7004 keeps open
 *	netload send ADDR SECONDS N	N streams to 7001 at once; prints MB/s (10^6 bytes), as sent within the time
 *	netload echo ADDR COUNT		one byte there and back on one connection; prints the median in microseconds
 *	netload connect ADDR SECONDS N	N at once: connect to 7003, wait for the end, again; prints connections per second
 *	netload reach ADDR		connects to 7002, one byte there and back; status 0 when it came
 *	netload hold ADDR N		N connections to 7004, prints "ready", waits for the end of standard input
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char bytes[1 << 20];

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static struct sockaddr_in address(const char *s, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	if (inet_pton(AF_INET, s, &a.sin_addr) != 1) {
		(void)fprintf(stderr, "netload: '%s' is no IPv4 address\n", s);
		exit(2);
	}
	return a;
}

static void many_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* ---------------------------------------------------------------- the far end */

static void serve_ready(int ep, int fd, uint16_t port, bool listens)
{
	ssize_t n;

	if (listens) {
		int c = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
		struct epoll_event ev = { .events = EPOLLIN, .data.u64 = (uint64_t)port << 32 | (uint32_t)c };

		if (c < 0)
			return;
		(void)setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (port == 7003)
			(void)close(c);
		else if (epoll_ctl(ep, EPOLL_CTL_ADD, c, &ev) < 0)
			die("epoll_ctl");
		return;
	}
	n = recv(fd, bytes, sizeof(bytes), 0);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0 && port == 7002 && send(fd, bytes, (size_t)n, MSG_NOSIGNAL) != n)
		n = 0;
	if (n <= 0)
		(void)close(fd);
}

static int serve(const char *addr)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), one = 1;

	for (uint16_t port = 7001; port <= 7004; port++) {
		struct sockaddr_in a = address(addr, port);
		int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 1ull << 63 | (uint64_t)port << 32 | (uint32_t)s };

		(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 4096) < 0 ||
		    epoll_ctl(ep, EPOLL_CTL_ADD, s, &ev) < 0)
			die("netload serve");
	}
	(void)printf("ready\n");
	(void)fflush(stdout);
	for (;;) {
		struct epoll_event ev[64];
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++)
			serve_ready(ep, (int)(uint32_t)ev[i].data.u64, (uint16_t)(ev[i].data.u64 >> 32 & 0x7fff), ev[i].data.u64 >> 63);
	}
}

/* ---------------------------------------------------------------- this end */

static int dial(const char *addr, uint16_t port)
{
	struct sockaddr_in a = address(addr, port);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("netload: connect");
	(void)setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return s;
}

static int send_all(const char *addr, unsigned seconds, unsigned n)
{
	uint64_t begin, end, sent = 0, took;
	struct pollfd p[64];

	if (n > 64)
		return 2;
	for (unsigned i = 0; i < n; i++) {
		p[i] = (struct pollfd){ .fd = dial(addr, 7001), .events = POLLOUT };
		(void)fcntl(p[i].fd, F_SETFL, O_NONBLOCK);
	}
	begin = now_us();
	end = begin + seconds * 1000000ull;
	while (now_us() < end) {
		if (poll(p, n, 100) < 0)
			die("poll");
		for (unsigned i = 0; i < n; i++) {
			ssize_t r = p[i].revents ? send(p[i].fd, bytes, 256 << 10, MSG_NOSIGNAL) : 0;

			if (r < 0 && errno != EAGAIN)
				die("netload: send");
			sent += r > 0 ? (uint64_t)r : 0;
		}
	}
	took = now_us() - begin;
	(void)printf("%.1f\n", (double)sent / (double)took);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int echo(const char *addr, unsigned count)
{
	uint64_t *t = calloc(count + 1, sizeof(*t));
	int s = dial(addr, 7002);

	for (unsigned i = 0; t && i < count + count / 10; i++) {
		uint64_t begin = now_us();

		if (send(s, "x", 1, MSG_NOSIGNAL) != 1 || recv(s, bytes, 1, 0) != 1)
			die("netload: echo");
		if (i >= count / 10)	/* the first ones warm up */
			t[i - count / 10] = now_us() - begin;
	}
	if (!t)
		return 1;
	qsort(t, count, sizeof(*t), by_value);
	(void)printf("%llu\n", (unsigned long long)t[count / 2]);
	free(t);
	return 0;
}

static int connects(const char *addr, unsigned seconds, unsigned n)
{
	struct sockaddr_in a = address(addr, 7003);
	int ep = epoll_create1(EPOLL_CLOEXEC);
	uint64_t begin = now_us(), end = begin + seconds * 1000000ull, done = 0;

	for (unsigned i = 0; i < n || now_us() < end;) {
		struct epoll_event ev[64];
		int r = 0;

		if (i < n) {	/* one more at work */
			i++;
			r = 1;
			ev[0].data.fd = -1;
		} else {
			r = epoll_wait(ep, ev, 64, 100);
		}
		for (int k = 0; k < r; k++) {
			struct epoll_event add = { .events = EPOLLIN };

			if (ev[k].data.fd >= 0) {
				if (recv(ev[k].data.fd, bytes, 1, 0) != 0)
					die("netload: connect");
				(void)close(ev[k].data.fd);
				done++;
			}
			add.data.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
			if (add.data.fd < 0 || (connect(add.data.fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno != EINPROGRESS) ||
			    epoll_ctl(ep, EPOLL_CTL_ADD, add.data.fd, &add) < 0)
				die("netload: connect");
		}
	}
	(void)printf("%.1f\n", (double)done * 1e6 / (double)(now_us() - begin));
	return 0;
}

static int hold(const char *addr, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		(void)dial(addr, 7004);
	(void)printf("ready\n");
	(void)fflush(stdout);
	while (read(0, bytes, sizeof(bytes)) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	unsigned a = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 0, b = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 1;

	many_files();
	if (strcmp(what, "serve") == 0)
		return serve(argv[2]);
	if (strcmp(what, "send") == 0 && a)
		return send_all(argv[2], a, b);
	if (strcmp(what, "echo") == 0 && a)
		return echo(argv[2], a);
	if (strcmp(what, "connect") == 0 && a)
		return connects(argv[2], a, b);
	if (strcmp(what, "hold") == 0 && a)
		return hold(argv[2], a);
	if (strcmp(what, "reach") == 0) {
		int s = dial(argv[2], 7002);

		return send(s, "x", 1, MSG_NOSIGNAL) == 1 && recv(s, bytes, 1, 0) == 1 ? 0 : 1;
	}
	(void)fprintf(stderr, "usage: netload serve|send|echo|connect|reach|hold ADDR …\n");
	return 2;
}
