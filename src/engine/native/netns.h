/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NATIVE_NETNS_H
#define ENGINE_NATIVE_NETNS_H

/*
 * Network namespaces of boxes. They are made by the builder and belong to the initial user namespace, so that root of a
 * box has no power over its network stack at all: no raw sockets, no addresses, no sysctls. What programs expect
 * without such power is allowed for everybody in them: ports below 1024 and ping (ip(7), icmp(7)).
 *
 * Making one is a good part of what a start takes. So a builder with nothing else to do makes some in advance. Each serves one
 * box: what a box leaves behind in one can't be told for certain (a socket may have been passed on and live).
 */

#include <stdbool.h>

#include "base/err.h"

/* Put the calling thread into a network namespace that no box ever had. Returns a descriptor of it, owned, or a negative errno. */
int netns_enter(struct err *e);
/* Make one more in advance; false when there are enough, or none can be had. */
bool netns_prepare(void);

#endif
