/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_TREE_H
#define STORE_TREE_H

/*
 * Walking and removing directory trees whose content a box has made: any depth, any name, any mode, links that
 * lead elsewhere, file systems mounted inside. Nothing here follows a link, recurses on the C stack, crosses a
 * mount or needs a path longer than a name (openat2(2), RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV).
 */

#include <stdint.h>

#include "base/err.h"

/* Remove dir_fd/name and everything below it. 0 also when it isn't there. -EBUSY names what is mounted inside. */
int tree_remove(int dir_fd, const char *name, struct err *e);

/* Bytes on disk (st_blocks), files; hard links counted once. Limited to `max_ms`; -ETIMEDOUT gives what was seen so far. */
struct tree_size {
	uint64_t bytes, files;
};
int tree_measure(int dir_fd, const char *name, uint64_t max_ms, struct tree_size *ret, struct err *e);

#endif
