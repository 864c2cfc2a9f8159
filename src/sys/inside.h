/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_INSIDE_H
#define SYS_INSIDE_H

/*
 * Do something in another network namespace. A network namespace is a thread's (setns(2)), and a socket stays in the one it
 * was made in; so a short-lived thread enters it, works, and ends, and the caller never has to come back: without root over its own
 * namespace (a user's daemon) it could not.
 */

#include "base/err.h"

/*
 * ns_fd: the namespace, or FD_NONE: a new one. Nothing but the network namespace is entered. Returns what `work` returned, or a negative
 * errno; -EPERM and the like when the namespace can't be entered or made.
 */
int inside_net(int ns_fd, int (*work)(void *arg, struct err *e), void *arg, struct err *e);

#endif
