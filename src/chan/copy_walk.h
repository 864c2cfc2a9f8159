/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_COPY_WALK_H
#define CHAN_COPY_WALK_H

/* What sending and receiving a tree have in common. Internal to chan/copy*.c. */

#include <linux/openat2.h>
#include <sys/types.h>

#include "chan/copy.h"

#define WALK_FLUSH (192u << 10)	/* send when so much has come together */
#define WALK_BELOW (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* The connection failed: fill `e`, return r. */
int walk_lost(struct err *e, int r);
/* What BOX_FAIL says; one that says nothing is an error as well. */
int walk_said(const struct box_frame *f, struct err *e);
/* Count n bytes of content: -EFBIG when they are more than was allowed. */
int walk_count_bytes(struct copy_stream *s, size_t n, struct err *e);

/* A path for people, below the copied thing: grows and shrinks with the walk. Of a very deep one the end is missing. */
#define WALK_TRAIL_MAX 16384
size_t walk_trail_push(struct buf *t, const char *name);	/* what to give to walk_trail_pop() */
void walk_trail_pop(struct buf *t, size_t at);
const char *walk_trail(const struct buf *t);

/* A directory on the way down: what proves that ".." of the next one leads back to it. */
struct walk_place {
	dev_t dev;
	ino_t ino;
};
int walk_place_of(int fd, struct walk_place *ret);
/*
 * Descriptors are few and trees are deep, so only the current directory is open, and going up is "..". Somebody
 * may have moved the directory meanwhile; then ".." is another place, and possibly one outside: -EXDEV.
 */
int walk_open_up(int cur, const struct walk_place *expected, int *ret_fd, struct err *e);
/* openat2(2), close-on-exec; the descriptor or a negative errno. */
int walk_open_below(int dir_fd, const char *name, int flags, uint64_t resolve);

#endif
