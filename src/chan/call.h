/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_CALL_H
#define CHAN_CALL_H

/* The client's end of the box protocol: blocking, one operation on one connected box socket (borrowed). */

#include <stdint.h>

#include "base/err.h"
#include "chan/box.h"

/*
 * The caller's side of a command. None of these descriptors ever enters the box: the command gets /dev/null of its own
 * box for a null device, and a fresh pipe or pseudo-terminal, relayed, for anything else.
 */
struct call_io {
	int in, out, err;	/* borrowed; FD_NONE: the box's /dev/null */
	bool no_signals;	/* leave the calling process' signals alone (callers with several threads) */
	void (*started)(uint32_t pid, void *arg); /* may be NULL; asks for BOX_STARTED */
	void *arg;
};

/*
 * Run a command to its end. x->in, out, err are chosen by what io holds and ignored, with one exception: x->in ==
 * BOX_STDIO_TTY asks for a terminal. Then io->in is put into raw mode if it is a terminal and restored on every way
 * out (SIGKILL aside); io->err isn't used; rows and cols are io->in's or io->out's when 0.
 *
 * Returns 0 with *ret, when the command ended or could not be run (BOX_NOT_STARTED), and everything it wrote until
 * then has been written. Background processes that hold its output open are not waited for. A command that detaches
 * gives BOX_EXITED 0 as soon as it runs. When nobody reads io->out any more the command is hung up and *ret says
 * BOX_SIGNALED SIGPIPE; the same with SIGINT, when the user presses it three times within a second and
 * nothing ends, and SIGHUP when the terminal is gone.
 *
 * Meanwhile INT, TERM, HUP, QUIT, USR1 and USR2 go to the command's process group (BOX_SIGNAL), WINCH to its terminal,
 * and PIPE is ignored; the former mask and action are back afterwards.
 *
 * Errors: -EBADMSG, the box's answer isn't of the protocol; -ECONNRESET, the box ended or its init left; what the box
 * said with BOX_FAIL (no such user, no such directory, …: nothing ran); what write(2) said to the command's output, other than
 * that nobody reads it: the command has been hung up then.
 */
int call_run(int sock, const struct box_exec *x, const struct call_io *io, struct box_exit *ret, struct err *e);

/* End the box. 0 when everything in it ended or the grace was over; PID 1 ends then. Waits for it, grace + 5 s at most. */
int call_stop(int sock, uint32_t grace_ms, struct err *e);
/* Is the box's init there, and what is it doing? Waits at most wait_ms: -ETIMEDOUT. */
int call_ping(int sock, uint32_t wait_ms, struct box_idle *ret, struct err *e);

/* Receive one whole frame into `in`, which holds it until the next call. 1, 0 at the end, or -errno. */
struct call_in {
	uint8_t *buf;
	size_t room, have, used;
};
int call_recv(int sock, struct call_in *in, struct box_frame *ret);
int call_send(int sock, const struct buf *b, const int *fds, size_t nfds);

#endif
