/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_RELAY_H
#define CHAN_RELAY_H

/*
 * Moving bytes from one descriptor to another without ever waiting: the one that is ours (a pipe or a terminal that was
 * made for a call) is non-blocking; the other one is the caller's, whose flags are shared with other processes and
 * stay as they are.
 *
 * Much at once goes by splice(2), where both ends allow it. Little is copied: a piece of two bytes that is spliced takes
 * one of the 16 places of the caller's pipe, as a whole page does, and a caller that reads later would find its
 * pipe full after 32 bytes.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_BUF 65536

struct relay {
	int from, to;		/* borrowed; from < 0: it is over */
	int reopened;		/* owned: the caller's terminal once more, non-blocking; or FD_NONE */
	enum { RELAY_SPLICE, RELAY_COPY } how; /* RELAY_SPLICE: where it pays */
	enum { RELAY_FILE, RELAY_PIPE, RELAY_SOCKET, RELAY_TTY } from_is, to_is;
	bool stream;		/* it is much: splice */
	bool to_full;		/* wait for `to`, not for `from` */
	bool grown;		/* the pipe that is ours has its large size */
	bool ours_from;		/* which end is ours */
	bool capped;
	uint64_t left;		/* capped: bytes still to be moved */
	char *buf;		/* allocated when copying */
	size_t at, have;
	int error;		/* RELAY_FAILED: the negative errno */
};

enum relay_end {
	RELAY_GOES_ON,
	RELAY_OVER,	/* end of input, or the cap is reached: everything was written */
	RELAY_BROKEN,	/* nobody reads `to` */
	RELAY_FAILED,	/* `error` tells */
};

/* ours_from: `from` is the pipe of the call; else `to` is. */
void relay_init(struct relay *r, int from, int to, bool ours_from);
void relay_done(struct relay *r);	/* does not close from and to */
/* What to wait for: fills at most 2 entries and returns how many; 0 when it is over. */
unsigned relay_poll(const struct relay *r, struct pollfd *p);
/* Move what can be moved, at most about a MiB. readable: poll(2) saw something to read. */
enum relay_end relay_step(struct relay *r, bool readable);
/*
 * The writers that count have ended: stop after what is in the pipe now, although others may go on writing.
 * relay_step() then ends with RELAY_OVER.
 */
void relay_cap(struct relay *r);

#endif
