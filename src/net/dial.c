/* SPDX-License-Identifier: Apache-2.0 */
/* The connection on the host's side. The gateway's process lives in the host's network namespace, so an ordinary socket is one there. */
#include "net/gateway.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { KEEP_IDLE_S = 300 };	/* then nine tries, 75 seconds apart, as Linux does (tcp(7)) */

static bool by_proxy(const struct conn *c)
{
	return c->t.box->g->proxy.kind != PROXY_NONE && !c->direct;
}

static int target(const struct conn *c, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	const struct gw *g = c->t.box->g;
	struct ip a = c->t.addr;
	uint16_t port = c->t.port;
	int r = 0;

	if (c->to_host) {
		r = ip_parse(c->host6 ? "::1" : "127.0.0.1", &a);
	} else if (by_proxy(c)) {
		a = g->proxy.addr;
		port = g->proxy.port;
	}
	*ret_len = ip_sockaddr(&a, port, ret);
	return r;
}

static void option(int fd, int level, int name, int v)
{
	/* Comfort only; what can't be had is left out. */
	(void)setsockopt(fd, level, name, &v, sizeof(v));
}

void dial(struct conn *c)
{
	struct sockaddr_storage to;
	socklen_t len;
	int r = target(c, &to, &len), fd;

	if (by_proxy(c) && c->t.box->g->proxy.kind == PROXY_BAD) {
		conn_refuse(c, "the host goes out through a proxy, and its address isn't one (http://ADDRESS:PORT, no name)");
		return;
	}
	if (r < 0) {
		conn_fail(c, r);
		return;
	}
	fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		conn_fail(c, -errno);
		return;
	}
	option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	c->state = CONN_DIAL;
	c->until = clock_ms() + DIAL_MS;
	if (connect(fd, (const struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS) {
		r = -errno;
		(void)close(fd);
		/* An IPv6 address that can't be used, for want of one of our own. */
		if (r == -EADDRNOTAVAIL && to.ss_family == AF_INET6)
			r = -ENETUNREACH;
		conn_fail(c, r);
		return;
	}
	r = conn_take(c, 1, fd);
	if (r < 0)
		conn_fail(c, r);
}

void dial_keep(struct conn *c)
{
	option(c->fd[1], SOL_SOCKET, SO_KEEPALIVE, 1);
	option(c->fd[1], IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
}

/* With itself: to a port of the loopback that nobody listens on, and that was taken as the port of our own end. */
static bool is_itself(int fd)
{
	struct sockaddr_storage a, b;
	socklen_t la = sizeof(a), lb = sizeof(b);
	struct ip ia, ib;
	uint16_t pa, pb;

	return getsockname(fd, (struct sockaddr *)&a, &la) == 0 && getpeername(fd, (struct sockaddr *)&b, &lb) == 0 &&
	       ip_of_sockaddr((struct sockaddr *)&a, &ia, &pa) == 0 && ip_of_sockaddr((struct sockaddr *)&b, &ib, &pb) == 0 &&
	       pa == pb && ip_same(&ia, &ib);
}

void dial_ready(struct conn *c)
{
	int code = 0;
	socklen_t len = sizeof(code);

	if (!c->writable[1])
		return;
	if (getsockopt(c->fd[1], SOL_SOCKET, SO_ERROR, &code, &len) < 0)
		code = errno;
	if (code == 0 && c->to_host && is_itself(c->fd[1]))
		code = ECONNREFUSED;
	if (code == ECONNREFUSED && c->to_host && !c->host6) {
		loop_del(c->t.box->g->loop, &c->io[1]);
		fd_close(&c->fd[1]);
		c->readable[1] = c->writable[1] = c->ended[1] = false;
		c->host6 = true;
		dial(c);
		return;
	}
	if (code) {
		conn_fail(c, by_proxy(c) && code == ECONNREFUSED ? -EHOSTUNREACH : -code);
		return;
	}
	if (by_proxy(c))
		proxy_begin(c);
	else
		conn_go_on(c);
}
