/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

/*
 * BOX_DIAL: a port of the box for somebody outside. No packet comes in: the handler, which is a process of the box, connects on
 * the box's loopback and moves bytes until both directions have ended.
 */

/* Loopback answers at once; a server whose queue is full may take a little longer. */
#define DIAL_MS 10000
#define PIPE_BYTES (256 << 10)
#define MOVE_BYTES (1u << 20)

/* One direction: from -> pipe -> to. */
struct flow {
	int from, to;
	int pipe[2];
	size_t held;	/* bytes in the pipe */
	bool ended;	/* `from` has ended */
	bool over;	/* and everything has been passed on, or nobody takes it any more */
};

static int dial(const struct sockaddr *a, socklen_t len)
{
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code = 0;
	socklen_t n = sizeof(code);
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	if (fd < 0)
		return -errno;
	if (connect(fd, a, len) == 0)
		return fd;
	if (errno == EINPROGRESS && poll(&p, 1, DIAL_MS) == 1 &&
	    getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &n) == 0 && code == 0)
		return fd;
	code = code ? code : errno == EINPROGRESS ? ETIMEDOUT : errno;
	(void)close(fd);
	return -code;
}

static int dial_port(uint16_t port)
{
	struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = dial((const struct sockaddr *)&four, sizeof(four)), again;

	if (fd >= 0)
		return fd;
	again = dial((const struct sockaddr *)&six, sizeof(six));
	return again >= 0 ? again : fd;
}

static bool would_wait(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* Passes on what can be passed on now. false: the connection is broken, in both directions. */
static bool step(struct flow *f)
{
	for (unsigned i = 0; i < 16; i++) {
		ssize_t k;

		if (!f->ended && f->held < PIPE_BYTES / 2) {
			k = splice(f->from, NULL, f->pipe[1], NULL, MOVE_BYTES, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
			if (k == 0)
				f->ended = true;
			else if (k > 0)
				f->held += (size_t)k;
			else if (!would_wait())
				return false;
			else if (f->held == 0)
				return true;
		}
		if (f->held > 0) {
			k = splice(f->pipe[0], NULL, f->to, NULL, f->held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
			if (k < 0)
				return would_wait();
			f->held -= (size_t)k;
		}
		if (f->ended && f->held == 0) {
			f->over = true;
			(void)shutdown(f->to, SHUT_WR);
			return true;
		}
	}
	return true;
}

static int flow_open(struct flow *f, int from, int to)
{
	*f = (struct flow){ .from = from, .to = to };
	if (pipe2(f->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	/* A user's share of such pipes may be used up (pipe(7)): the usual size does. */
	(void)fcntl(f->pipe[0], F_SETPIPE_SZ, PIPE_BYTES);
	return 0;
}

/* What to wait for: room where bytes wait for it, else bytes. */
static void wish(const struct flow *f, struct pollfd *from, struct pollfd *to)
{
	if (f->over)
		return;
	if (f->held > 0)
		to->events |= POLLOUT;
	if (!f->ended && f->held < PIPE_BYTES / 2)
		from->events |= POLLIN;
}

/* true: both ends were reached in good order. */
static bool relay(int conn, int port)
{
	struct flow in, out;

	if (flow_open(&in, conn, port) < 0 || flow_open(&out, port, conn) < 0)
		return false;
	while (!in.over || !out.over) {
		struct pollfd p[2] = { { .fd = conn }, { .fd = port } };

		wish(&in, &p[0], &p[1]);
		wish(&out, &p[1], &p[0]);
		/*
		 * An end that has said all it had to say, and then goes altogether: what the other one still sends is for nobody. Else
		 * a hang-up is found by reading, and not waited for, which would wake us for ever.
		 */
		if (p[0].events == 0 && !in.over)
			p[0].fd = -1;
		if (p[1].events == 0 && !out.over)
			p[1].fd = -1;
		if (poll(p, 2, -1) < 0) {
			if (errno != EINTR)
				return false;
			continue;
		}
		if ((in.over && (p[0].revents & (POLLHUP | POLLERR))) || (out.over && (p[1].revents & (POLLHUP | POLLERR))))
			return false;
		if ((!in.over && !step(&in)) || (!out.over && !step(&out)))
			return false;
	}
	return true;
}

enum serve_end dial_serve(struct guest *g, int conn, const struct serve_in *in)
{
	OWN_BUF b = BUF_INIT(64);
	uint32_t port;
	OWN_FD fd = FD_NONE;
	int one = 1;

	if (box_get_u32(&in->f, &port) < 0) {
		serve_fail(conn, -EBADMSG, "a malformed request");
		return SERVE_DONE;
	}
	fd = dial_port((uint16_t)port);
	if (fd < 0) {
		char text[64];

		(void)snprintf(text, sizeof(text), "nothing in the box answers at port %u", port);
		serve_fail(conn, fd, text);
		return SERVE_DONE;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (fd_set_nonblock(conn, true) == 0 && box_put(&b, BOX_OK, NULL, 0) == 0 && serve_send(conn, &b, NULL, 0) &&
	    !relay(conn, fd)) {
		struct linger now = { .l_onoff = 1 };

		/* Cut at one end is cut at the other. */
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	}
	serve_idle(g);
	return SERVE_DONE;
}
