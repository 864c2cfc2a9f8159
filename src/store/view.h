/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_VIEW_H
#define STORE_VIEW_H

/*
 * What a box changed in a directory of the host that it sees copied on write (":cow"). It is kept as overlayfs keeps it
 * (Documentation/filesystems/overlayfs.rst) in BOX_DIR/upper/view-K, and perhaps in earlier uppers below it (layers). The
 * lowest layer, the host's directory, is the caller's business: nothing here ever looks at it.
 *
 * BOX_DIR/view-K beside it is a text file: when the view was made, and one line for each file that has been brought to the
 * host since (view_note()).
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Say that the view begins now, when nothing says it yet. A negative errno. */
int view_began(int box_dir, unsigned k);
void view_forget(int box_dir, unsigned k);

#endif
