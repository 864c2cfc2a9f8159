/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_TREE_H
#define STORE_TREE_H

/*
 * Walking and removing directory trees whose content a box has made: any depth, any name, any mode, links that
 * lead elsewhere, file systems mounted inside. Nothing here follows a link, recurses on the C stack, crosses a
 * mount or needs a path longer than a name (openat2(2), RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV).
 * The number of open descriptors is bounded, whatever the depth.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

/* Levels that are kept open during a walk; deeper ones are found again. */
#define TREE_OPEN_MAX 32
/* A walk goes no deeper than this; what lies below is -ELOOP. Removing has no such limit. */
#define TREE_DEPTH_MAX (1u << 20)

/*
 * Remove dir_fd/name and everything below it. 0 also when it isn't there. A link is removed, not followed.
 * Modes and the immutable and append-only flags (ioctl_iflags(2)) don't stop it where the caller may change them.
 * Stops at the first thing that can't be removed, and names it; -EBUSY (WHY_BUSY) for what is mounted inside.
 * Content that a live process keeps adding is fought for a while, then -ENOTEMPTY.
 */
int tree_remove(int dir_fd, const char *name, struct err *e);

/*
 * Bytes on disk (st_blocks), and files of every type, directories included; hard links counted once.
 * max_ms 0: no limit. -ETIMEDOUT gives what was seen so far. 0 bytes when dir_fd/name isn't there. What can't be
 * opened is counted but not entered. It is a measure, not an audit: what changes meanwhile may be missed.
 */
struct tree_size {
	uint64_t bytes, files;
};
int tree_measure(int dir_fd, const char *name, uint64_t max_ms, struct tree_size *ret, struct err *e);

/* One thing met on a walk. Everything is borrowed until the callback returns. */
struct tree_entry {
	int dir_fd;		/* the directory it is in ... */
	const char *name;	/* ... and its name there; of the start of the walk: as given to tree_walk() */
	const struct statx *st;	/* of the thing itself, never of a link's target */
	unsigned depth;		/* 0: the start */
	bool mount;		/* something is mounted on it (STATX_ATTR_MOUNT_ROOT); it is not entered */
};

struct tree_visit {
	/* 0: go on, a directory is entered; 1: go on, don't enter; negative: stop, the walk returns it. */
	int (*entry)(const struct tree_entry *t, void *arg);
	/* A directory for which `entry` said 0 is done (not for a mount). May be NULL. Negative: stop. */
	int (*leave)(unsigned depth, void *arg);
	/* A directory that should have been entered can't be opened. NULL or 0: go on; negative: stop. */
	int (*closed)(const struct tree_entry *t, int code, void *arg);
	void *arg;
	uint64_t max_ms;	/* 0: no limit; else -ETIMEDOUT */
};

/*
 * Visit dir_fd/name and everything below it, a directory before its content. A directory that is moved away while its
 * content is visited ends the visit of that part (its `leave` calls are still made). -ENOENT when the start isn't there.
 * The texts of errors from callbacks are the callbacks' own business; the walk's own errors name the place.
 */
int tree_walk(int dir_fd, const char *name, const struct tree_visit *v, struct err *e);

/* openat2(2) of one name or path strictly below dir_fd: no link, no mount, no way out. The descriptor or a negative errno. */
int tree_open(int dir_fd, const char *name, int flags);
/* As tree_open(), but other mounts may be crossed. */
int tree_open_any(int dir_fd, const char *name, int flags);

#endif
