/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_BOX_H
#define CHAN_BOX_H

/*
 * The box protocol: what a client and cubby-init (PID 1 of every box) say to each other.
 * One connection, one operation, over a SOCK_STREAM unix socket whose listening end was made outside
 * and inherited by cubby-init. A client gets a connected socket from cubbyd ("open").
 *
 * A frame is 8 bytes, little-endian: u32 kind, u32 length of the body; then the body. Every kind has its own
 * longest body (BOX_EXEC: BOX_BODY_MAX). Both sides treat the other as hostile: the head is judged before a body
 * is waited for, every string and count is checked, anything unexpected ends the connection.
 *
 * Descriptors travel as SCM_RIGHTS with the first byte of the frame they belong to (unix(7)).
 *
 * There is one way to write each value: what box_get_…() accepts, box_put_…() writes again byte for byte.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/parse.h"

#define BOX_HEAD 8
#define BOX_BODY_MAX (4u << 20)
#define BOX_ARGS_MAX 131072u	/* arguments of one command */
#define BOX_ENV_MAX 4096u	/* variables given with one command */
#define BOX_USER_MAX 128u	/* bytes of a user's name */
#define BOX_PATH_MAX 4095u	/* bytes of a path: PATH_MAX without its terminator */
#define BOX_NAME_MAX 255u	/* bytes of one component: NAME_MAX of Linux */
#define BOX_DATA_MAX (64u << 10) /* bytes of one BOX_DATA */
#define BOX_TEXT_MAX 255u	/* bytes of a text for people */
#define BOX_TIMEOUT_MAX (100ull * 365 * 86400 * 1000) /* milliseconds: a hundred years */
#define BOX_TIMED_LEFT "some processes could not be ended" /* text of BOX_TIMED_OUT when not everything died */

enum box_kind {
	/* client -> init; the first frame names the operation */
	BOX_EXEC = 1,	/* struct box_exec; one descriptor for each BOX_STDIO_PIPE, in the order in, out, err */
	BOX_STOP,	/* u32 grace_ms: TERM to everything, wait, then end the box. BOX_OK just before the end */
	BOX_GET,	/* copy out: struct box_path; answered by a stream of entries, then BOX_OK or BOX_FAIL */
	BOX_PUT,	/*
			 * copy in: struct box_path; answered by BOX_OK (go ahead) or BOX_FAIL; then the client sends a
			 * stream of entries and BOX_OK, and gets BOX_OK or BOX_FAIL
			 */
	BOX_PING,	/* answered by BOX_OK with struct box_idle */
	/*
	 * u32 port, 1-65535: connect to it on the box's own loopback. Answered by BOX_OK, after which the connection carries
	 * that port's bytes in both directions, each until its own end (shutdown(2)); or by BOX_FAIL
	 */
	BOX_DIAL,
	/* client -> init, during BOX_EXEC */
	BOX_SIGNAL = 32,/* u32 signal number, to the command's process group */
	BOX_RESIZE,	/* u16 rows, u16 columns */
	BOX_HANGUP,	/* the caller is gone: HUP and CONT to the group, 2 s later KILL to everything of the call */
	/* init -> client */
	BOX_STARTED = 64,/* u32 pid in the box; carries the pseudo-terminal's master when one was asked for */
	BOX_EXIT,	/* struct box_exit; the last frame */
	BOX_OK,		/* empty, but for BOX_PING */
	BOX_FAIL,	/* u32 errno, then the text; the last frame */
	BOX_DATA,	/* bytes of the file under way; an empty one ends it */
	BOX_ENTRY,	/* struct box_entry: the next file of a copy */
	BOX_HOLE,	/* u64: so many bytes of the file under way are zero and not written */
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
	char *const *env;	/* NULL-terminated or NULL, "NAME=value", over the box's defaults. The last of a name counts */
	/*
	 * A name of the box's passwd, "UID" or "UID:GID", decimal. A name never begins with a digit, so that a number
	 * is always a number. NULL: user 1000 where the box's passwd has one (and the box that id), else root.
	 */
	const char *user;
	const char *cwd;	/* absolute. NULL: the user's home, "/" when that is missing */
	enum box_stdio in, out, err;
	uint16_t rows, cols;	/* with BOX_STDIO_TTY, else 0 */
	uint32_t umask;		/* as the command sees it; at most 0777 */
	uint64_t timeout_ms;	/* 0: none. When over: everything of this call gets TERM, 2 s later KILL */
	bool detach;		/* the command goes on when the connection ends, and its exit is not waited for */
	bool announce;		/* BOX_STARTED is wanted also without terminal or detach, which always send it */
};

enum box_exit_kind { BOX_EXITED, BOX_SIGNALED, BOX_TIMED_OUT, BOX_NOT_STARTED };

struct box_exit {
	enum box_exit_kind kind;
	uint32_t status;	/* exit status, signal number, 0 of BOX_TIMED_OUT, or errno of BOX_NOT_STARTED */
	bool core;		/* BOX_SIGNALED: a core was dumped */
	uint64_t wall_us, cpu_us;
	uint64_t max_rss_kib;
	char text[BOX_TEXT_MAX + 1]; /* BOX_NOT_STARTED: what failed; BOX_TIMED_OUT: BOX_TIMED_LEFT or empty */
};

struct box_idle {
	uint32_t active;	/* calls (EXEC, GET, PUT) under way */
	uint64_t idle_ms;	/* since the last one ended, or since the box's start; 0 while one is under way */
};

enum {
	BOX_PATH_FOLLOW = 1,	/* GET: when the path itself is a link, copy what it leads to */
	BOX_PATH_CONTENTS = 2,	/* PUT: the content of the first entry, a directory, goes into the path */
	BOX_PATH_FLAGS = 3,
};
struct box_path {
	const char *path;	/* absolute, in the box */
	const char *user;	/* whose rights and whose files; as in struct box_exec */
	uint32_t flags;		/* BOX_PATH_… */
	uint64_t max_bytes;	/* of content; 0: no limit */
};

enum box_entry_type {
	BOX_ENTRY_DIR,		/* what follows is inside, up to its BOX_ENTRY_UP */
	BOX_ENTRY_FILE,		/* BOX_DATA and BOX_HOLE follow, up to the empty BOX_DATA */
	BOX_ENTRY_LINK,		/* symbolic, never followed */
	BOX_ENTRY_UP,		/* end of a directory; the other fields are 0 and empty */
	BOX_ENTRY_SKIP,		/* not copied: mode holds the errno of reading it, or 0 for a device, FIFO or socket */
	BOX_ENTRY_TYPES,
};
struct box_entry {
	enum box_entry_type type;
	uint32_t mode;		/* permission bits, at most 07777 */
	int64_t mtime_s;
	uint32_t mtime_ns;
	/* One component. Of the first entry: in BOX_PUT its name inside of a directory that exists; ignored in BOX_GET. */
	const char *name;
	const char *target;	/* BOX_ENTRY_LINK; else "" */
};

struct box_frame {
	enum box_kind kind;
	const uint8_t *body;	/* in the caller's buffer */
	size_t len;
};

/*
 * Look for one frame at the start of buf. Returns the bytes it takes, 0 when more input is needed (*ret_need, if not
 * NULL, is then how many bytes the frame will take, or BOX_HEAD), or -EBADMSG when the peer broke the protocol.
 */
ssize_t box_peek(const void *buf, size_t n, struct box_frame *ret, size_t *ret_need);
/* The longest body of a kind; 0 also for one that doesn't exist. */
size_t box_body_max(uint32_t kind);

/*
 * Append a whole frame to `to`. 0, -EINVAL for a value that the protocol can't carry (nothing is written then),
 * or the buffer's own failure.
 */
int box_put(struct buf *to, enum box_kind kind, const void *body, size_t n);
int box_put_u32(struct buf *to, enum box_kind kind, uint32_t v);	/* STOP, DIAL, SIGNAL, STARTED */
int box_put_exec(struct buf *to, const struct box_exec *x);
int box_put_exit(struct buf *to, const struct box_exit *x);
int box_put_idle(struct buf *to, const struct box_idle *x);	/* as BOX_OK */
int box_put_path(struct buf *to, enum box_kind kind, const struct box_path *x);
int box_put_entry(struct buf *to, const struct box_entry *x);
int box_put_resize(struct buf *to, uint16_t rows, uint16_t cols);
int box_put_hole(struct buf *to, uint64_t n);
/* code: a negative errno. A text that is too long is cut. */
int box_put_fail(struct buf *to, int code, const char *text);

/*
 * Read the body of a frame of the right kind. 0 or -EBADMSG; `ret` is untouched on failure. Strings of the
 * result point into the frame's body and live as long.
 */
int box_get_u32(const struct box_frame *f, uint32_t *ret);
/* *ret_mem holds argv and env and is the caller's to free(). Also -ENOMEM. */
int box_get_exec(const struct box_frame *f, struct box_exec *ret, void **ret_mem);
int box_get_exit(const struct box_frame *f, struct box_exit *ret);
int box_get_idle(const struct box_frame *f, struct box_idle *ret);
int box_get_path(const struct box_frame *f, struct box_path *ret);
int box_get_entry(const struct box_frame *f, struct box_entry *ret);
int box_get_resize(const struct box_frame *f, uint16_t *ret_rows, uint16_t *ret_cols);
int box_get_hole(const struct box_frame *f, uint64_t *ret);
/* Fills e with what the box said, made safe to print, and returns its negative errno; or -EBADMSG. */
int box_get_fail(const struct box_frame *f, struct err *e);

/* A name that leads nowhere but into its directory: not empty, '.', '..', nor with '/'; at most BOX_NAME_MAX bytes. */
bool box_name_ok(const char *s);

/* How many descriptors come with x. */
unsigned box_exec_fds(const struct box_exec *x);

#endif
