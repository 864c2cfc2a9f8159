/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NATIVE_NETNS_H
#define ENGINE_NATIVE_NETNS_H

/*
 * Network namespaces of boxes. They are made by the builder and belong to the initial user namespace, so that root of a
 * box has no power over its network stack at all: no raw sockets, no addresses, no sysctls. What programs expect
 * without such power is allowed for everybody in them: ports below 1024 and ping (ip(7), icmp(7)).
 *
 * Making one is a good part of what a start takes, and its interface as much again. So a builder with nothing else to do makes
 * some in advance. Each serves one box: what a box leaves behind in one can't be told for certain (a socket may have been
 * passed on and live).
 *
 * Numbers of boxes (net/addr.h): each builder has a range of its own, and uses all of it before it uses one again.
 */

#include <stdbool.h>

#include "base/err.h"

#define NETNS_RANGES 16u

/* Which range of numbers this process takes, below NETNS_RANGES; 0 without a call. */
void netns_range(unsigned k);

struct netns {
	int fd;			/* owned */
	unsigned index;		/* of the interface, as in struct box_run; 0: it has none */
	int net_if;
};

/*
 * Put the calling thread into a network namespace that no box ever had, with an interface that ends in `gateway_ns`, or with
 * FD_NONE without. *ret is untouched on failure.
 */
int netns_enter(int gateway_ns, struct netns *ret, struct err *e);
/*
 * Give a namespace that there is an interface, and what else the ones made here have. An interface from an earlier gateway is
 * replaced. The thread stays where it is. ids: groups that the caller's user namespace has, UINT_MAX in the initial one.
 */
int netns_plug(int gateway_ns, int ns, unsigned ids, unsigned *ret_index, int *ret_if, struct err *e);
/* Make one more in advance, of the kind that was wanted last; false when there are enough, or none can be had. */
bool netns_prepare(int gateway_ns);
/* The network namespace of the daemon, for a box that is made without one of its own: the thread enters it. A descriptor, or a negative errno. */
int netns_home(struct err *e);

#endif
