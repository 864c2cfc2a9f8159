/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_BOX_H
#define CHAN_BOX_H

/*
 * The box protocol: what a client and cubby-init (PID 1 of every box) say to each other.
 * One connection, one operation, over a SOCK_STREAM unix socket whose listening end was made outside
 * and inherited by cubby-init. A client gets a connected socket from cubbyd ("open").
 *
 * A frame is 8 bytes, little-endian: u32 kind, u32 length of the body (at most BOX_BODY_MAX); then the body.
 * Both sides treat the other as hostile: the head is judged before a body is waited for, every string
 * and count is checked, anything unexpected ends the connection.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define BOX_HEAD 8
#define BOX_BODY_MAX (4u << 20)

enum box_kind {
	/* client -> init; the first frame names the operation */
	BOX_EXEC = 1,	/* struct box_exec; descriptors of stdio as its modes say */
	BOX_STOP,	/* u32 grace_ms: TERM to everything, wait, then end the box */
	BOX_SETUP,	/* once, on a pooled box: struct box_setup; answered by BOX_OK or BOX_FAIL */
	BOX_GET,	/* copy out: struct box_path; answered by a stream of entries */
	BOX_PUT,	/* copy in: struct box_path; followed by a stream of entries */
	BOX_PING,	/* answered by BOX_OK */
	BOX_PS,		/* answered by BOX_DATA frames: processes of the box */
	/* client -> init, during BOX_EXEC */
	BOX_SIGNAL = 32,/* u32 signal number, to the command's process group */
	BOX_RESIZE,	/* u16 rows, u16 columns */
	BOX_HANGUP,	/* the caller's terminal is gone */
	/* init -> client */
	BOX_STARTED = 64,/* u32 pid in the box; carries the pseudo-terminal's master when one was asked for */
	BOX_EXIT,	/* struct box_exit; the last frame */
	BOX_OK,
	BOX_FAIL,	/* u32 errno, then the text */
	BOX_DATA,	/* bytes of a stream; an empty one ends it */
	BOX_ENTRY,	/* head of one file in a copy */
	BOX_KIND_END,
};

/* How one of the three standard descriptors is made. */
enum box_stdio {
	BOX_STDIO_NULL,	/* the box's own /dev/null */
	BOX_STDIO_PIPE,	/* the next passed descriptor: an end of a pipe that the client made for this call */
	BOX_STDIO_SAME,	/* stderr only: the same as stdout, so that the order is kept */
	BOX_STDIO_TTY,	/* all three: a pseudo-terminal of the box's own devpts */
};

struct box_exec {
	char *const *argv;	/* NULL-terminated, at least one; searched in the PATH of env when it has no '/' */
	char *const *env;	/* NULL-terminated, "NAME=value", added over the box's defaults */
	const char *user;	/* NULL: the box's default. A name of the box's passwd, "UID" or "UID:GID", decimal */
	const char *cwd;	/* NULL: the user's home, "/" when that is missing */
	enum box_stdio in, out, err;
	uint16_t rows, cols;	/* with BOX_STDIO_TTY */
	uint32_t umask;		/* as the command sees it */
	uint64_t timeout_ms;	/* 0: none. When over: everything of this call gets TERM, 2 s later KILL */
	bool detach;		/* the command goes on when the connection ends, and its exit is not waited for */
};

enum box_exit_kind { BOX_EXITED, BOX_SIGNALED, BOX_TIMED_OUT, BOX_NOT_STARTED };

struct box_exit {
	enum box_exit_kind kind;
	uint32_t status;	/* exit status, signal number, or errno of BOX_NOT_STARTED */
	bool core;
	uint64_t wall_us, cpu_us;
	uint64_t max_rss_kib;
	char text[256];		/* BOX_NOT_STARTED: what failed */
};

#endif
