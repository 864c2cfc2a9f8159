/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/serve.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

bool serve_send(int conn, const struct buf *b, const int *fds, size_t nfds)
{
	size_t at = 0;

	if (b->failed)
		return false;
	while (at < b->len) {
		ssize_t k = fd_send(conn, b->data + at, b->len - at, fds, nfds, 0);

		if (k < 0)
			return false;
		nfds = 0;
		at += (size_t)k;
	}
	return true;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void serve_idle(struct guest *g)
{
	g->shared->last_end_ms = now_ms();
	g->shared->busy[g->row] = 0;
}

void serve_fail(int conn, int code, const char *text)
{
	OWN_BUF b = BUF_INIT(BOX_HEAD + 4 + ERR_TEXT_MAX);

	if (box_put_fail(&b, code, text) == 0)
		(void)serve_send(conn, &b, NULL, 0);
}

/*
 * The first frame, with all its descriptors. One recvmsg() takes an ordinary one whole. Returns 1, 0 when the client
 * left or took too long, or a negative errno.
 */
static int first_frame(int conn, struct serve_in *in)
{
	static uint8_t small[8192];
	uint8_t *buf = small;
	size_t have = 0, room = sizeof(small), need;

	for (;;) {
		struct pollfd p = { .fd = conn, .events = POLLIN };
		int fds[FD_PASS_MAX];
		size_t n = 0;
		ssize_t k;

		k = fd_recv(conn, buf + have, room - have, fds, &n, MSG_DONTWAIT);
		if (k == -EAGAIN) {
			/* Each piece anew: a big frame of a slow client is fine, silence is not. */
			if (poll(&p, 1, SERVE_FIRST_MS) <= 0)
				return 0;
			continue;
		}
		if (k < 0)
			return (int)k;
		for (size_t i = 0; i < n; i++) {
			if (in->nfds < sizeof(in->fds) / sizeof(in->fds[0]))
				in->fds[in->nfds++] = fds[i];
			else
				return -EBADMSG;	/* the process ends, and with it the rest of them */
		}
		if (k == 0)
			return 0;
		have += (size_t)k;
		k = box_peek(buf, have, &in->f, &need);
		if (k < 0)
			return (int)k;
		if (k > 0) {
			in->rest = buf + k;
			in->nrest = have - (size_t)k;
			return 1;
		}
		if (need > room) {
			uint8_t *big = malloc(need);

			if (!big)
				return -ENOMEM;
			memcpy(big, buf, have);
			buf = big;
			room = need;
		}
	}
}

static void answer(int conn, const struct box_idle *idle)
{
	OWN_BUF b = BUF_INIT(256);

	if ((idle ? box_put_idle(&b, idle) : box_put(&b, BOX_OK, NULL, 0)) == 0)
		(void)serve_send(conn, &b, NULL, 0);
}

static void ping(const struct guest *g, int conn)
{
	struct box_idle idle = { 0 };
	uint64_t now = now_ms();

	for (unsigned i = 0; i < g->shared->rows && i < sizeof(g->shared->busy); i++)
		idle.active += g->shared->busy[i] != 0;
	if (!idle.active && now > g->shared->last_end_ms)
		idle.idle_ms = now - g->shared->last_end_ms;
	answer(conn, &idle);
}

/*
 * kill(2) with -1 reaches everything in the pid namespace but PID 1 and ourselves. Handlers of calls have their
 * signals blocked and end with their commands; the others die.
 */
static enum serve_end stop(struct guest *g, int conn, uint32_t grace_ms)
{
	uint64_t waited = 0;

	g->shared->stopping = 1;
	(void)kill(-1, SIGTERM);
	(void)kill(-1, SIGCONT);
	for (int step = 1; waited < grace_ms; step = step < 20 ? step * 2 : 20) {
		if (kill(-1, 0) < 0)
			break;
		(void)poll(NULL, 0, step);
		waited += (uint64_t)step;
	}
	answer(conn, NULL);
	return SERVE_STOP;
}

enum serve_end serve(struct guest *g, int conn)
{
	struct serve_in in = { .nfds = 0 };
	uint32_t grace;
	int r;

	r = first_frame(conn, &in);
	if (r == 0)
		return SERVE_DONE;
	/* Only a command has descriptors, and is followed by more before it is answered. */
	if (r > 0 && in.f.kind != BOX_EXEC && (in.nfds > 0 || in.nrest > 0))
		r = -EBADMSG;
	if (r < 0) {
		serve_fail(conn, r, r == -EBADMSG ? "not a frame of the box protocol" : "cannot receive the request");
		return SERVE_DONE;
	}

	switch (in.f.kind) {
	case BOX_EXEC:
		g->shared->busy[g->row] = 1;
		return call_serve(g, conn, &in);
	case BOX_GET:
	case BOX_PUT:
		g->shared->busy[g->row] = 1;
		return file_serve(g, conn, &in);
	case BOX_DIAL:
		g->shared->busy[g->row] = 1;
		return dial_serve(g, conn, &in);
	case BOX_STOP:
		if (box_get_u32(&in.f, &grace) == 0)
			return stop(g, conn, grace);
		break;
	case BOX_PING:
		if (in.f.len == 0) {
			ping(g, conn);
			return SERVE_DONE;
		}
		break;
	default:
		break;
	}
	serve_fail(conn, -EBADMSG, "a malformed request");
	return SERVE_DONE;
}
