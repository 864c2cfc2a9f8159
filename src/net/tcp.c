/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of TCP connections. Both sockets are watched edge-triggered from their first moment on, so that a connection costs two calls of
 * epoll_ctl(2) in its life and none for waiting. Little is copied (one read, one write); much is spliced through a pipe, which is
 * borrowed while bytes are in it: an idle connection has none.
 */
#include "net/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	PIPE_BYTES = 1 << 20,
	PIPES_FREE_MAX = 64,
	BULK_FROM = 32768,	/* a read of so much: splice from now on */
	BULK_TO = 16384,	/* ... and a splice of less: copy again */
	ROUNDS = 8,		/* then others have their turn */
};

/* ---- pipes */

static void pipe_close(struct pipe *p)
{
	(void)close(p->r);
	(void)close(p->w);
	free(p);
}

static struct pipe *pipe_get(struct gw *g)
{
	static const int sizes[] = { PIPE_BYTES, PIPE_BYTES / 2, PIPE_BYTES / 4 };
	struct pipe *p = g->pipes;
	int fds[2], r;

	if (p) {
		g->pipes = p->next;
		g->npipes--;
		g->pipes_out++;
		return p;
	}
	/* Pipes beyond the reserve have to fit with everything else. */
	if (g->pipes_out * 2 >= FDS_RESERVE / 2 && g->nfds + g->pipes_out * 2 + 2 > g->fds_max)
		return NULL;
	p = malloc(sizeof(*p));
	if (!p)
		return NULL;
	if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0) {
		free(p);
		return NULL;
	}
	*p = (struct pipe){ .r = fds[0], .w = fds[1] };
	/* A user has a budget of pages (pipe(7)): what isn't given isn't needed. */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (fcntl(p->w, F_SETPIPE_SZ, sizes[i]) > 0)
			break;
	r = fcntl(p->w, F_GETPIPE_SZ);
	p->room = r > 0 ? (size_t)r : 4096;
	g->pipes_out++;
	return p;
}

static void pipe_put(struct gw *g, struct pipe *p, bool empty)
{
	g->pipes_out--;
	if (!empty || g->npipes >= PIPES_FREE_MAX) {
		pipe_close(p);
		return;
	}
	p->next = g->pipes;
	g->pipes = p;
	g->npipes++;
}

void pipes_done(struct gw *g)
{
	while (g->pipes) {
		struct pipe *p = g->pipes;

		g->pipes = p->next;
		pipe_close(p);
	}
}

/* ---- beginning and end */

void reset_fd(int *fd)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (*fd >= 0)
		(void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(fd);
}

struct conn *conn_new(struct gbox *b, enum conn_kind kind)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->kind = (uint8_t)kind;
	c->fd[0] = c->fd[1] = FD_NONE;
	c->t.box = b;
	link_add(&b->conns, &c->mine);
	b->nconns++;
	b->ndns += kind == CONN_DNS;
	b->g->nfds += 2;
	return c;
}

void conn_end(struct conn *c, const char *end, const char *why)
{
	struct gbox *b = c->t.box;
	struct gw *g = b->g;
	bool hard = end && strcmp(end, "closed") != 0 && strcmp(end, "idle") != 0;

	if (c->state == CONN_PUT)
		b->nput--;
	if (c->syn && hard && c->kind == CONN_OUT) {
		uint8_t out[PKT_SYN_MAX];

		send_to_box(b, out, pkt_reset(c->syn->pkt, &c->syn->s, out), NULL, 0);
	}
	if (end && c->kind == CONN_OUT)
		log_end(&c->t, why, end);
	ask_forget_conn(c);
	proxy_done(c);
	if (c->dns)
		dns_tcp_done(c);
	if (c->in)
		expose_dial_free(c);
	for (unsigned i = 0; i < 2; i++) {
		loop_del(g->loop, &c->io[i]);
		if (hard)
			reset_fd(&c->fd[i]);
		else
			fd_close(&c->fd[i]);
		if (c->way[i].pipe)
			pipe_put(g, c->way[i].pipe, c->way[i].piped == 0);
	}
	link_del(&c->mine);
	link_del(&c->waits);
	link_del(&c->run);
	link_del(&c->held);
	link_del(&c->bucket);
	b->nconns--;
	b->ndns -= c->kind == CONN_DNS;
	g->nfds -= 2;
	tale_done(&c->t);
	free(c->syn);
	free(c);
}

/* ---- moving */

static void run(void *arg)
{
	struct gw *g = arg;
	struct link now;

	/* Those that are put on the list meanwhile have their turn after the events. */
	link_init(&now);
	if (!link_none(&g->run)) {
		now.next = g->run.next;
		now.prev = g->run.prev;
		now.next->prev = now.prev->next = &now;
		link_init(&g->run);
	}
	while (!link_none(&now)) {
		struct link *l = now.next;

		link_del(l);
		conn_pump(LINK_OF(l, struct conn, run));
	}
}

void conn_run_later(struct conn *c)
{
	struct gw *g = c->t.box->g;

	if (link_in(&c->run))
		return;
	link_add(&g->run, &c->run);
	if (!g->run_timer.link)
		loop_timer_set(g->loop, &g->run_timer, 0, run, g);
}

static void wait_a_tick(struct conn *c)
{
	struct gw *g = c->t.box->g;

	if (link_in(&c->run))
		return;
	link_add(&g->slow, &c->run);
	gw_tick(g);
}

static void moved(struct conn *c, unsigned w, size_t n)
{
	if (w == 0)
		c->t.up += n;
	else
		c->t.down += n;
	box_moved(c->t.box, w, n);
}

/* Empty the pipe. 1: it is empty; 0: the socket takes no more now; or a negative errno. */
static int flush_pipe(struct conn *c, unsigned w)
{
	struct way *x = &c->way[w];

	while (x->piped) {
		ssize_t n;

		if (!c->writable[!w])
			return 0;
		n = splice(x->pipe->r, NULL, c->fd[!w], NULL, x->piped, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno != EAGAIN)
				return -errno;
			c->writable[!w] = false;
			return 0;
		}
		if (n == 0)
			return -EPIPE;
		x->piped -= (uint32_t)n;
		moved(c, w, (size_t)n);
	}
	return 1;
}

/* From the socket into the pipe. The bytes moved, 0 at the end. */
static ssize_t spliced(struct conn *c, unsigned w, size_t room)
{
	struct way *x = &c->way[w];
	ssize_t n = splice(c->fd[w], NULL, x->pipe->w, NULL, room, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

	if (n < 0)
		return -errno;
	x->piped = (uint32_t)n;
	x->bulk = n >= BULK_TO;
	return n;
}

/* From one socket to the other, with what doesn't go into the pipe. */
static ssize_t copied(struct conn *c, unsigned w, size_t room)
{
	struct gw *g = c->t.box->g;
	struct way *x = &c->way[w];
	ssize_t n, m;

	if (room > x->pipe->room)
		room = x->pipe->room;
	if (room > 65536)
		room = 65536;
	n = recv(c->fd[w], g->buf, room, MSG_DONTWAIT);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	/* All that there was: no need to ask once more, unless an end is to be expected. */
	if ((size_t)n < room && !c->ended[w])
		c->readable[w] = false;
	m = send(c->fd[!w], g->buf, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (m < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		m = 0;
	}
	moved(c, w, (size_t)m);
	if (m < n) {
		ssize_t k = write(x->pipe->w, g->buf + m, (size_t)(n - m));

		c->writable[!w] = false;
		if (k != n - m)
			return -ENOBUFS;
		x->piped = (uint32_t)k;
	}
	x->bulk = n >= BULK_FROM;
	return n;
}

/* 0, or the errno that ends the connection. */
static int pump(struct conn *c, unsigned w)
{
	struct gw *g = c->t.box->g;
	struct way *x = &c->way[w];
	unsigned rounds = ROUNDS;
	int r = 0;

	for (;;) {
		ssize_t n;
		size_t room;

		r = x->piped ? flush_pipe(c, w) : 1;
		if (r <= 0)
			break;
		r = 0;
		if (x->eof) {
			/* When it was the last one, what follows is close(2), which says the same. */
			if (!x->shut && !c->way[!w].shut && shutdown(c->fd[!w], SHUT_WR) < 0 && errno != ENOTCONN)
				r = -errno;
			x->shut = true;
			break;
		}
		if (!c->readable[w] || !c->writable[!w] || (w == 0 && c->say))
			break;
		if (rounds-- == 0) {
			conn_run_later(c);
			break;
		}
		room = box_room(c->t.box, w, PIPE_BYTES);
		if (room && !x->pipe)
			x->pipe = pipe_get(g);
		if (!room || !x->pipe) {
			wait_a_tick(c);
			break;
		}
		n = x->bulk ? spliced(c, w, room) : copied(c, w, room);
		if (n == 0) {
			x->eof = true;
		} else if (n == -EAGAIN) {
			c->readable[w] = false;
		} else if (n < 0 && n != -EINTR) {
			r = (int)n;
			break;
		}
	}
	if (x->pipe && !x->piped) {
		pipe_put(g, x->pipe, true);
		x->pipe = NULL;
	}
	return r;
}

void conn_pump(struct conn *c)
{
	int r;

	if (c->state != CONN_OPEN || c->kind == CONN_DNS)
		return;
	r = pump(c, 0);
	if (r == 0)
		r = pump(c, 1);
	if (r < 0)
		conn_end(c, r == -ETIMEDOUT ? "timeout" : "reset", r == -ENOBUFS ? "the gateway is out of buffers" : "");
	else if (c->way[0].shut && c->way[1].shut)
		conn_end(c, "closed", "");
}

static void ready(struct conn *c, unsigned side, uint32_t ev)
{
	if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->readable[side] = true;
	if (ev & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		c->writable[side] = true;
	if (ev & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		c->ended[side] = true;
	switch (c->state) {
	case CONN_DIAL:
		if (c->kind == CONN_IN)
			expose_step(c);
		else
			dial_ready(c);
		return;
	case CONN_PROXY:
		proxy_ready(c);
		return;
	case CONN_OPEN:
		break;
	default:
		return;	/* what was told is remembered until it opens */
	}
	if (c->kind == CONN_DNS) {
		dns_tcp_step(c);
		return;
	}
	if (side == 0 && c->say && (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
		say_look(c);
		return;
	}
	/* An error after the end of its data isn't found by reading. */
	if ((ev & EPOLLERR) && c->way[side].eof) {
		int code = 0;
		socklen_t len = sizeof(code);

		if (getsockopt(c->fd[side], SOL_SOCKET, SO_ERROR, &code, &len) == 0 && code) {
			conn_end(c, code == ETIMEDOUT ? "timeout" : "reset", "");
			return;
		}
	}
	conn_pump(c);
}

static void near_ready(void *arg, uint32_t ev)
{
	ready(arg, 0, ev);
}

static void far_ready(void *arg, uint32_t ev)
{
	ready(arg, 1, ev);
}

int conn_take(struct conn *c, unsigned side, int fd)
{
	struct gw *g = c->t.box->g;
	int r = loop_add(g->loop, &c->io[side], fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, side ? far_ready : near_ready, c);

	if (r < 0) {
		(void)close(fd);
		return r;
	}
	c->fd[side] = fd;
	return 0;
}

void conn_young(struct conn *c)
{
	c->until = clock_ms() + YOUNG_MS;
	link_add(&c->t.box->g->young, &c->waits);
	gw_tick(c->t.box->g);
}

void conn_open(struct conn *c)
{
	c->t.box->totals.allowed++;
	if (c->say)
		say_begin(c);
	else if (c->kind == CONN_OUT)
		conn_young(c);
	/* Its first event tells what the new socket has; the far end may have spoken first. */
	c->writable[0] = true;
	conn_pump(c);
}
