/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_SEAL_H
#define GUEST_SEAL_H

/*
 * What cubby-init gives up before it runs anything of the box. Thin: no library, no allocation.
 * PID 1 calls this while it has one thread; what it starts later inherits all of it.
 */

#include <stdbool.h>

#include "base/err.h"

/*
 * Reduce the bounding set to a container's, empty the inheritable and ambient sets, keep that set and
 * CAP_SYS_ADMIN (for sethostname(2), and to load the filter without no_new_privs, so that sudo works in a box), and load
 * the system call filter. nesting: the box may make namespaces. no_setid: set-id bits can't be set (a directory of the
 * host is mounted writable, where such a file would be real). -EPERM or -ENOSYS when a step is refused: the box must not run then.
 * weaken: WEAKEN_FILTER, WEAKEN_CAPS (base/weaken.h): without the filter, with all capabilities.
 */
int seal_box(bool nesting, bool no_setid, unsigned weaken, struct err *e);

/* Give up CAP_SYS_ADMIN as well. After the host name is set and before the first command; before that nothing else may run. */
int seal_final(struct err *e);

#endif
