/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_WORLD_H
#define NET_WORLD_H

/*
 * The gateway namespace: a network namespace without uplink, without forwarding, without a route that leads anywhere. It holds one end of
 * each box's veth pair and a loop pair (go0, go1) for first packets that were judged. Everything that a box sends is
 * addressed to this namespace itself (a local default route; the routes to the boxes are seen by what leaves from here only), and
 * meets one static nft table:
 *
 *	table inet cubby, chain early (before fragments are put together)
 *	  fragments			drop	(the MTU is the largest that there is: nobody needs any)
 *	chain prerouting (priority mangle, policy drop)
 *	  lo				accept
 *	  b*, no way back to the source	drop
 *	  to a group or to all		drop
 *	  go1, TCP			tproxy to the TCP listener, accept	(put back by the gateway after its verdict)
 *	  b*, TCP, SYN without ACK	drop					(a packet socket has seen it: the gateway judges it)
 *	  b*, TCP			accept					(belongs to a connection, or gets a reset)
 *	  b*, UDP			tproxy to the UDP socket, accept
 *	chain forward (policy drop)
 *
 * Source addresses are checked twice (that rule, and rp_filter = 1): a box can't send with another box's address, but for what
 * the packet sockets see, which is before: there the gateway checks. There is no ARP and no neighbour discovery: all interfaces are
 * NOARP and have the same hardware address. The IPv6 twins are there where the kernel has IPv6.
 */

#include <linux/if_packet.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define WORLD_MTU 65535		/* ETH_MAX_MTU: no box needs fragments, and one TCP segment carries what a pipe holds */
#define WORLD_BOX_IF "eth0"	/* in the box */
#define WORLD_PORT 7000		/* of the two listeners, on the loopback of the gateway namespace; a box can't address it */
#define WORLD_TABLE 99		/* of routes: the boxes */
/* All interfaces have this hardware address: a local one, as every address of a virtual interface should be. */
#define WORLD_MAC ((const unsigned char[6]){ 0x02, 0x63, 0x75, 0x62, 0x62, 0x79 })

/* Make the namespace, closed from the first moment (forwarding off before any interface exists). A descriptor (nsfs), or a negative errno. */
int world_new(struct err *e);

/* What cubby-gateway holds of it; all non-blocking, close-on-exec. FD_NONE where the kernel has no IPv6. */
struct world {
	int tcp4, tcp6;		/* listening, transparent */
	int udp4, udp6;		/* transparent; IP_RECVORIGDSTADDR, IP_PKTINFO and their IPv6 kin are on */
	/*
	 * AF_PACKET SOCK_DGRAM, filtered: first packets of TCP connections (SYN without ACK, whatever else), and ICMP echo requests, of
	 * every b* interface, that are no fragments and, over IPv6, have no extension headers. recvfrom() tells the interface. Sources aren't
	 * checked. The checksum of a packet may be unfinished: PACKET_AUXDATA is on and says so (TP_STATUS_CSUMNOTREADY).
	 */
	int syn4, syn6;
	int out;		/* AF_PACKET SOCK_DGRAM, receives nothing: for answers to boxes, and to put packets back through go0 */
	int go;			/* interface index of go0, where packets are put back */
	int link;		/* NETLINK_ROUTE, told of links that go (RTNLGRP_LINK) */
};
/*
 * Load the rules, make the loop pair and the sockets; the calling thread enters the namespace and comes back. Idempotent:
 * rules and pair of an earlier
 * gateway are replaced. On failure nothing is in `ret`.
 */
int world_enter(int ns_fd, struct world *ret, struct err *e);
void world_done(struct world *w);	/* closes the descriptors */
/* Where a packet goes that is sent through `out`: to an interface of a box, or go. protocol: ETH_P_IP or ETH_P_IPV6. */
struct sockaddr_ll world_to(int index, uint16_t protocol);

/*
 * A box's interface. Called in a builder. The calling thread must be in the box's network namespace (box_ns < 0), or another
 * thread enters box_ns (a box that runs gets an interface: only its network namespace is entered). `index`: net/addr.h. Makes the
 * pair, addresses, routes, both ends up. -EEXIST: the index is in use, take another. -ENOTUNIQ: the box has an interface eth0 already.
 * *ret_if: interface index in the gateway namespace. The pair goes when either namespace goes, or by plug_pull(). The first call
 * opens a socket in the gateway namespace, which stays open until plug_done() or a call with another namespace.
 */
int plug_make(int gateway_ns, int box_ns, unsigned index, int *ret_if, struct err *e);
/* Remove eth0 of a box that runs, by its own end: one that an earlier gateway left. 0 also when there is none. */
int plug_clear(int box_ns, struct err *e);
/*
 * By looking at both ends: is eth0 of the box one end of a pair whose other end, b*, is in the gateway namespace, and does that forward nothing?
 * 1, 0, or a negative errno; -ENODEV when the box has no eth0.
 */
int plug_leads(int gateway_ns, int box_ns, struct err *e);
int plug_pull(int gateway_ns, unsigned index, struct err *e);	/* 0 also when there is none */
void plug_done(void);

#endif
