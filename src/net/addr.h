/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_ADDR_H
#define NET_ADDR_H

/*
 * Addresses, and the ranges that no box reaches. One type for both families: an IPv4 address is kept as
 * ::ffff:a.b.c.d (RFC 4291, 2.5.5.2), so that "the same address written otherwise" can't be two addresses.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>

struct ip {
	uint8_t b[16];
};

struct cidr {
	struct ip ip;		/* host bits are zero */
	uint8_t bits;		/* 0–128; of an IPv4 range 96 + its own */
};

#define IP_TEXT_MAX 48		/* with terminator; IPv6 scope ids don't exist here */

bool ip_is4(const struct ip *a);
bool ip_same(const struct ip *a, const struct ip *b);
struct ip ip_of4(uint32_t host_order);
struct ip ip_of_in(const struct in_addr *a);
struct ip ip_of_in6(const struct in6_addr *a);	/* v4-mapped ones become IPv4 */
uint32_t ip_get4(const struct ip *a);		/* host order; only of an IPv4 address */
/* Fills ss for connect(2) and the like, IPv4 as AF_INET. Returns its length. */
socklen_t ip_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *ret);
int ip_of_sockaddr(const struct sockaddr *sa, struct ip *ret, uint16_t *ret_port); /* -EAFNOSUPPORT */

/* Whole string; four decimal parts without leading zeros, or IPv6 as inet_pton(3). -EINVAL. */
int ip_parse(const char *s, struct ip *ret);
const char *ip_text(const struct ip *a, char buf[IP_TEXT_MAX]);	/* returns buf */
/* "A/N" or "A". Host bits that are not zero are refused: -EDOM. -EINVAL. */
int cidr_parse(const char *s, struct cidr *ret);
bool cidr_has(const struct cidr *c, const struct ip *a);
const char *cidr_text(const struct cidr *c, char buf[IP_TEXT_MAX + 4]);

/*
 * Why an address is never dialled for a box whatever its policy says ("private (RFC 1918)", "link-local", …), or NULL for
 * a public one. IPv4 inside IPv6 (mapped, compatible, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, 6to4, Teredo, ISATAP) is
 * judged by the address within, and the transition ranges themselves are refused. Source: the IANA special-purpose
 * address registries (RFC 6890 and its updates).
 */
const char *ip_forbidden(const struct ip *a);
/*
 * Those of them that no exception lifts either: what is the host itself (loopback, and 0.0.0.0 and ::, which connect(2) takes for it), the
 * boxes, multicast and broadcast, metadata services of clouds, and ranges in which an IPv4 address hides (a gateway somewhere would
 * unpack it behind the check).
 */
bool ip_never(const struct ip *a);

/* ---- the addresses of boxes */

#define NET_GATEWAY4 "198.18.0.1"		/* in every box: its gateway, resolver, and "the host" for --host-port */
#define NET_GATEWAY6 "fd63:7562:6279::1"
#define NET_HOST_NAME "host.cubby.internal"	/* resolves to the two in every box */
#define NET_INDEX_MIN 256u
#define NET_INDEX_MAX 131071u
/* The address of box number `index` (198.18.0.0/15 is for benchmarks, RFC 2544: nobody's, so it collides with nothing). */
struct ip net_box4(unsigned index);
struct ip net_box6(unsigned index);

#endif
