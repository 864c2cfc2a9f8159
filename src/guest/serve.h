/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_SERVE_H
#define GUEST_SERVE_H

/* One connection, in a process of its own: reads the operation and performs it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "chan/box.h"

/* The end of a handler is its exit status, which PID 1 reads: no other channel leads from what parses to PID 1. */
enum serve_end {
	SERVE_DONE = 0,
	SERVE_STOP = 12,	/* everything in the box has ended: so does PID 1 */
};

/* What PID 1 and the handlers share. */
struct guest_shared {
	volatile uint64_t last_end_ms;	/* CLOCK_MONOTONIC: when the last call ended, or the box began */
	volatile uint32_t rows;		/* of busy that have ever been used */
	volatile uint32_t stopping;	/* no handler is made in advance any more */
	volatile uint8_t busy[4096];	/* a call is under way */
};

/* What a handler knows of the box; a copy of PID 1's at the time of the fork. */
struct guest {
	int sig_fd;		/* signalfd(2) of SIGCHLD, which is blocked; reads the signals of whoever reads it */
	bool once;		/* see init.h */
	unsigned row;		/* of this handler */
	struct guest_shared *shared;
};

#define SERVE_FIRST_MS 30000	/* a client that hasn't said by then what it wants is cut off */

/* conn is the handler's. Returns how it ended; the caller exits with it. */
enum serve_end serve(struct guest *g, int conn);

/* A frame and its descriptors as they came; fds are closed by the one who takes the frame. */
struct serve_in {
	struct box_frame f;
	int fds[3];
	size_t nfds;
	const uint8_t *rest;	/* bytes that came after the frame */
	size_t nrest;
};
/* The call is over: said before the client learns it, so that a BOX_PING that follows is right. */
void serve_idle(struct guest *g);
void serve_fail(int conn, int code, const char *text);
/* Send what is in `b`. false: the client is gone. */
bool serve_send(int conn, const struct buf *b, const int *fds, size_t nfds);

/* The operations. */
enum serve_end call_serve(struct guest *g, int conn, struct serve_in *in);
enum serve_end file_serve(struct guest *g, int conn, const struct serve_in *in);
enum serve_end dial_serve(struct guest *g, int conn, const struct serve_in *in);

#endif
