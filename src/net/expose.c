/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports of a box on the host's loopback. The daemon made the listener; for each connection it is asked for a socket to the box's cubby-init,
 * which then connects to the port inside. There is no path in for packets.
 */
#include "net/gateway.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "chan/box.h"

enum { EXPOSES_MAX = 4096, ACCEPT_BATCH = 32, DIALED_MS = 30000 };

struct expose {
	struct link all;
	struct gbox *box;
	uint32_t key;
	uint16_t port;
	int fd;
	struct loop_io io;
};

struct expose_dial {
	struct link all;	/* gw.dials */
	struct conn *c;
	uint32_t n;
	uint16_t port;
};

static void expose_free(struct expose *x)
{
	loop_del(x->box->g->loop, &x->io);
	fd_close(&x->fd);
	link_del(&x->all);
	free(x);
}

void expose_dial_free(struct conn *c)
{
	link_del(&c->in->all);
	free(c->in);
	c->in = NULL;
}

static void somebody(struct expose *x, int fd)
{
	struct gbox *b = x->box;
	struct gw *g = b->g;
	OWN_BUF text = BUF_INIT(1024);
	static const struct ip none;
	const int on = 1;
	struct json_out o;
	struct conn *c;

	gw_read_all(g);
	c = fds_left(g, 2 * b->nconns + b->nflows, 2) ? conn_new(b, CONN_IN) : NULL;
	if (c)
		c->in = calloc(1, sizeof(*c->in));
	if (!c || !c->in) {
		reset_fd(&fd);
		if (c)
			conn_end(c, NULL, "");
		return;
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	tale_init(&c->t, b, PROTO_TCP, &none, x->port, 0);
	if (++g->next_n == 0)
		g->next_n = 1;
	*c->in = (struct expose_dial){ .c = c, .n = g->next_n, .port = x->port };
	link_add(&g->dials, &c->in->all);
	c->state = CONN_DIAL;
	c->until = clock_ms() + DIALED_MS;
	link_add(&g->waiting, &c->waits);
	gw_tick(g);
	if (conn_take(c, 1, fd) < 0) {
		conn_end(c, NULL, "");
		return;
	}
	talk_begin(g, &o, &text, "dial");
	json_put_int(&o, "n", c->in->n);
	json_put_str(&o, "id", b->id);
	json_put_int(&o, "key", x->key);
	talk_end(g, &o, &text);
}

static void expose_ready(void *arg, uint32_t ev)
{
	struct expose *x = arg;
	struct gw *g = x->box->g;
	uint32_t key = x->key;

	(void)ev;
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(x->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		bool there = false;

		if (fd < 0)
			return;
		somebody(x, fd);
		/* The daemon may have said meanwhile that it is over. */
		LINK_EACH(l, tmp, &g->exposes)
			there = there || LINK_OF(l, struct expose, all)->key == key;
		if (!there)
			return;
	}
}

void expose_add(struct gw *g, uint32_t key, struct gbox *b, uint16_t port, int fd)
{
	struct expose *x;

	expose_del(g, key);
	x = fd < 0 ? NULL : calloc(1, sizeof(*x));
	if (!x) {
		fd_close(&fd);
		return;
	}
	*x = (struct expose){ .box = b, .key = key, .port = port, .fd = fd };
	(void)fd_set_nonblock(fd, true);
	link_add(&g->exposes, &x->all);
	if (loop_add(g->loop, &x->io, fd, EPOLLIN, expose_ready, x) < 0)
		expose_free(x);
}

void expose_del(struct gw *g, uint32_t key)
{
	LINK_EACH(l, tmp, &g->exposes) {
		struct expose *x = LINK_OF(l, struct expose, all);

		if (x->key == key)
			expose_free(x);
	}
}

void expose_forget(struct gw *g, struct gbox *b)
{
	LINK_EACH(l, tmp, &g->exposes) {
		struct expose *x = LINK_OF(l, struct expose, all);

		if (x->box == b)
			expose_free(x);
	}
}

void expose_done(struct gw *g)
{
	LINK_EACH(l, tmp, &g->exposes)
		expose_free(LINK_OF(l, struct expose, all));
}

void expose_dialed(struct gw *g, uint32_t n, int fd, const char *error)
{
	OWN_BUF out = BUF_INIT(64);

	(void)error;	/* the client sees a reset; the daemon knows why */
	LINK_EACH(l, tmp, &g->dials) {
		struct expose_dial *d = LINK_OF(l, struct expose_dial, all);
		struct conn *c = d->c;

		if (d->n != n || c->fd[0] >= 0)
			continue;
		if (fd < 0 || fd_set_nonblock(fd, true) < 0) {
			fd_close(&fd);
			conn_end(c, "reset", "");
			return;
		}
		if (box_put_u32(&out, BOX_DIAL, d->port) < 0 ||
		    send(fd, out.data, out.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)out.len) {
			fd_close(&fd);
			conn_end(c, "reset", "");
			return;
		}
		if (conn_take(c, 0, fd) < 0)
			conn_end(c, "reset", "");
		return;
	}
	fd_close(&fd);
}

void expose_step(struct conn *c)
{
	uint8_t head[BOX_HEAD];
	struct box_frame f;
	ssize_t n;

	if (c->fd[0] < 0 || !c->readable[0])
		return;
	n = recv(c->fd[0], head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && n < (ssize_t)sizeof(head) && !c->ended[0])
		return;
	/* Whatever isn't an empty BOX_OK is a no. */
	if (n != (ssize_t)sizeof(head) || box_peek(head, sizeof(head), &f, NULL) != (ssize_t)sizeof(head) || f.kind != BOX_OK) {
		conn_end(c, "reset", "");
		return;
	}
	(void)!recv(c->fd[0], head, sizeof(head), MSG_DONTWAIT);
	expose_dial_free(c);
	link_del(&c->waits);
	c->until = 0;
	c->state = CONN_OPEN;
	conn_open(c);
}
