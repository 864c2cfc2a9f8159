/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_WORLD_H
#define NET_WORLD_H

/*
 * The gateway namespace: a network namespace without uplink, without forwarding, without a route that leads anywhere. It holds one end of
 * each box's veth pair and a loop pair (go0, go1) for first packets that were judged. Everything that a box sends is
 * addressed to this namespace itself (a local default route), and meets one static nft table:
 *
 *	table inet cubby, chain prerouting (priority mangle, policy drop)
 *	  lo				accept
 *	  go1, TCP			tproxy to the TCP listener, accept	(put back by the gateway after its verdict)
 *	  b*, TCP, SYN without ACK	drop					(a packet socket has seen it: the gateway judges it)
 *	  b*, TCP			accept					(belongs to a connection, or gets a reset)
 *	  b*, UDP			tproxy to the UDP socket, accept
 *	chain forward (policy drop)
 *
 * Source addresses are checked (rp_filter = 1 for IPv4, a rule for IPv6): a box can't send with another box's address. There is no ARP and
 * no neighbour discovery: all interfaces are NOARP and have the same hardware address. The IPv6 twins are there where the kernel has IPv6.
 */

#include <stdbool.h>

#include "base/err.h"

#define WORLD_MTU 65535		/* ETH_MAX_MTU: no box needs fragments, and one TCP segment carries what a pipe holds */
#define WORLD_BOX_IF "eth0"	/* in the box */
#define WORLD_PORT 7000		/* of the two listeners, on the loopback of the gateway namespace; a box can't address it */

/* Make the namespace, closed from the first moment (forwarding off before any interface exists). A descriptor (nsfs), or a negative errno. */
int world_new(struct err *e);

/* What cubby-gateway holds of it; all non-blocking, close-on-exec. FD_NONE where the kernel has no IPv6. */
struct world {
	int tcp4, tcp6;		/* listening, transparent */
	int udp4, udp6;		/* transparent; IP_RECVORIGDSTADDR, IP_PKTINFO and their IPv6 kin are on */
	int syn4, syn6;		/* AF_PACKET SOCK_DGRAM, filtered: first packets of TCP connections, and ICMP echo requests, of every b* interface */
	int out;		/* AF_PACKET SOCK_DGRAM, receives nothing: for answers to boxes, and to put packets back through go0 */
	int go;			/* interface index of go0, where packets are put back */
	int link;		/* NETLINK_ROUTE, told of links that go (RTNLGRP_LINK) */
};
/*
 * Load the rules, make the loop pair and the sockets; the calling thread enters the namespace and comes back. Idempotent: rules and pair of an earlier
 * gateway are replaced. On failure nothing is in `ret`.
 */
int world_enter(int ns_fd, struct world *ret, struct err *e);
void world_done(struct world *w);	/* closes the descriptors */

/*
 * A box's interface. Called in a builder. The calling thread must be in the box's network namespace (box_ns < 0), or the
 * thread enters box_ns and comes back (a box that runs gets an interface: only the network namespace is entered, by a thread that has
 * no other business). `index`: net/addr.h. Makes the pair, addresses, routes, both ends up. -EEXIST: the index is in use.
 * *ret_if: interface index in the gateway namespace. The pair goes when either namespace goes, or by plug_pull().
 */
int plug_make(int gateway_ns, int box_ns, unsigned index, int *ret_if, struct err *e);
int plug_pull(int gateway_ns, unsigned index, struct err *e);	/* 0 also when there is none */

#endif
