/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NATIVE_NETNS_H
#define ENGINE_NATIVE_NETNS_H

/*
 * Network namespaces of boxes. They are made by the builder and belong to the initial user namespace, so that root of a
 * box has no power over its network stack at all: no raw sockets, no addresses, no sysctls. What programs expect
 * without such power is allowed for everybody in them: ports below 1024 and ping (ip(7), icmp(7)).
 *
 * Making and clearing away one costs a quarter of all a box costs. So one in which nothing has ever been sent serves
 * another box: nothing in it could be changed, its counters are zero, its sockets are closed. That is checked, by
 * the kernel's own counters, each time.
 */

#include "base/err.h"

/* Put the calling process into a network namespace that no box uses. Returns a descriptor of it, owned, or a negative errno. */
int netns_enter(struct err *e);
/* The box is gone for certain: keep its namespace for another one if it is as new. Takes the descriptor. */
void netns_give_back(int fd);

#endif
