/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_RTNL_H
#define SYS_RTNL_H

/*
 * Netlink (netlink(7)): messages put together in a buffer of fixed size, sent as one batch, and the kernel's answers; and
 * the few requests of rtnetlink(7) that make a pair of interfaces and what belongs to it.
 *
 * A batch is worked on in its order. A message that fails does not stop the ones behind it: the error returned is the first.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NL_BATCH_MAX 8192

struct nl {
	_Alignas(8) unsigned char data[NL_BATCH_MAX];
	size_t len;
	size_t at;		/* of the message that is being written */
	uint32_t seq;		/* number of the last message */
	unsigned acks;		/* answers that the kernel owes */
	bool full;		/* something did not fit: nl_talk() says -ENOBUFS */
};

void nl_reset(struct nl *b);
/* A message: its type and flags (NLM_F_REQUEST is added), and the fixed head of its family. */
void nl_begin(struct nl *b, uint16_t type, uint16_t flags, const void *head, size_t n);
void nl_put(struct nl *b, uint16_t attr, const void *data, size_t n);
void nl_put_str(struct nl *b, uint16_t attr, const char *s);	/* with its terminator */
void nl_put_u8(struct nl *b, uint16_t attr, uint8_t v);
void nl_put_u32(struct nl *b, uint16_t attr, uint32_t v);	/* host order, as rtnetlink wants it */
void nl_put_be32(struct nl *b, uint16_t attr, uint32_t v);	/* network order, as nfnetlink wants it */
/* Bytes without an attribute's head: a fixed head inside a nest. */
void nl_put_raw(struct nl *b, const void *data, size_t n);
size_t nl_nest(struct nl *b, uint16_t attr);			/* returns what nl_unnest() takes */
void nl_unnest(struct nl *b, size_t nest);

/* A socket of this family in the network namespace of the calling thread. Negative errno. */
int nl_open(int protocol);
/* Send the batch and read the answers of the messages with NLM_F_ACK. 0, or the first failure. The batch is empty afterwards. */
int nl_talk(int fd, struct nl *b);

/* ---- interfaces. `fd` is a socket of nl_open(NETLINK_ROUTE); everything happens in its namespace. */

int rtnl_index(int fd, const char *name);	/* -ENODEV */
int rtnl_delete_link(int fd, int index);	/* takes ten milliseconds and more */

#define RTNL_NAME_MAX 16
struct rtnl_link {
	char name[RTNL_NAME_MAX];
	int peer;		/* index of the interface at the other end, in its own namespace; 0: it has none */
	bool up;		/* it and its peer are, and the kernel knows (operational state, RFC 2863) */
	int peer_ns;		/* number of that namespace here (rtnl_ns_number()), or -1: the same one, or nobody knows */
};
int rtnl_get_link(int fd, int index, struct rtnl_link *ret);
/* What the namespace of `fd` calls the namespace ns_fd (ip-netns(8), "list-id"); -1 when it has no name for it. Or another negative errno. */
int rtnl_ns_number(int fd, int ns_fd, int *ret);

/*
 * A veth pair without ARP and neighbour discovery, both ends with the same hardware address `mac` (6 bytes), one queue each. `name` is up,
 * the peer is to be brought up by the caller, in its own namespace: it is made in `peer_ns`, or in the same one with FD_NONE.
 */
void rtnl_put_pair(struct nl *b, const char *name, const char *peer, int peer_ns, const unsigned char *mac, unsigned mtu);
void rtnl_put_up(struct nl *b, int index);
/*
 * Wait until an interface sends: the end of a pair that was up first learns of the other from a work queue of the kernel (linkwatch), and
 * until then drops what it should send. Takes up to 5 ms; gives up after a second, which costs a packet or two at worst.
 */
void rtnl_wait_ready(int fd, int index);
/* family: AF_INET or AF_INET6; addr in network order. The prefix is the whole address; no duplicate detection. */
void rtnl_put_addr(struct nl *b, int family, int index, const void *addr);

struct rtnl_route {
	int family;
	unsigned char type;		/* RTN_UNICAST, RTN_LOCAL, RTN_UNREACHABLE */
	unsigned char table;		/* RT_TABLE_MAIN or a number below 253 */
	const void *dst;		/* NULL: the default route */
	unsigned bits;
	const void *via;		/* or NULL */
	const void *src;		/* preferred source, or NULL */
	int index;
	unsigned metric;		/* 0: the kernel's */
	bool replace;			/* of an equal one that is there */
};
void rtnl_put_route(struct nl *b, const struct rtnl_route *r);
/* Look into `table` for the way; own: of what leaves from this host itself (iif lo), not of what comes in. Lower priorities first. */
void rtnl_put_rule(struct nl *b, int family, unsigned char table, unsigned priority, bool own);
void rtnl_put_no_rule(struct nl *b, int family, unsigned char table, unsigned priority);
/* A neighbour that never ages and isn't counted against the table that all namespaces of the host share. */
void rtnl_put_neighbour(struct nl *b, int family, int index, const void *addr, const unsigned char *mac);

#endif
