/* SPDX-License-Identifier: Apache-2.0 */
#include "net/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

bool ip_is4(const struct ip *a)
{
	return memcmp(a->b, mapped, sizeof(mapped)) == 0;
}

bool ip_same(const struct ip *a, const struct ip *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

struct ip ip_of4(uint32_t v)
{
	struct ip a;

	memcpy(a.b, mapped, sizeof(mapped));
	a.b[12] = (uint8_t)(v >> 24);
	a.b[13] = (uint8_t)(v >> 16);
	a.b[14] = (uint8_t)(v >> 8);
	a.b[15] = (uint8_t)v;
	return a;
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

uint32_t ip_get4(const struct ip *a)
{
	return get32(a->b + 12);
}

struct ip ip_of_in(const struct in_addr *a)
{
	return ip_of4(ntohl(a->s_addr));
}

struct ip ip_of_in6(const struct in6_addr *a)
{
	struct ip r;

	memcpy(r.b, a->s6_addr, sizeof(r.b));
	return r;
}

socklen_t ip_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (ip_is4(a)) {
		struct sockaddr_in *s = (struct sockaddr_in *)ret;

		s->sin_family = AF_INET;
		s->sin_port = htons(port);
		s->sin_addr.s_addr = htonl(ip_get4(a));
		return sizeof(*s);
	}
	struct sockaddr_in6 *s = (struct sockaddr_in6 *)ret;

	s->sin6_family = AF_INET6;
	s->sin6_port = htons(port);
	memcpy(s->sin6_addr.s6_addr, a->b, sizeof(a->b));
	return sizeof(*s);
}

int ip_of_sockaddr(const struct sockaddr *sa, struct ip *ret, uint16_t *ret_port)
{
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *s = (const void *)sa;

		*ret = ip_of_in(&s->sin_addr);
		*ret_port = ntohs(s->sin_port);
		return 0;
	}
	if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const void *)sa;

		*ret = ip_of_in6(&s->sin6_addr);
		*ret_port = ntohs(s->sin6_port);
		return 0;
	}
	return -EAFNOSUPPORT;
}

int ip_parse(const char *s, struct ip *ret)
{
	struct in6_addr a6;
	struct in_addr a4;

	/* Of the many ways to write IPv4, inet_pton(3) takes the one with four decimal parts; musl lets leading zeros through. */
	if (inet_pton(AF_INET, s, &a4) == 1) {
		for (const char *p = s; *p; p++)
			if (p[0] == '0' && (p == s || p[-1] == '.') && p[1] >= '0' && p[1] <= '9')
				return -EINVAL;
		*ret = ip_of_in(&a4);
		return 0;
	}
	if (inet_pton(AF_INET6, s, &a6) == 1) {
		*ret = ip_of_in6(&a6);
		return 0;
	}
	return -EINVAL;
}

const char *ip_text(const struct ip *a, char buf[IP_TEXT_MAX])
{
	if (ip_is4(a))
		(void)snprintf(buf, IP_TEXT_MAX, "%u.%u.%u.%u", a->b[12], a->b[13], a->b[14], a->b[15]);
	else
		(void)inet_ntop(AF_INET6, a->b, buf, IP_TEXT_MAX);
	return buf;
}

static struct ip masked(const struct ip *a, unsigned bits)
{
	struct ip r = *a;

	for (unsigned i = 0; i < 16; i++) {
		unsigned keep = bits > 8 * i ? bits - 8 * i : 0;

		if (keep < 8)
			r.b[i] &= (uint8_t)(0xff00u >> keep);
	}
	return r;
}

int cidr_parse(const char *s, struct cidr *ret)
{
	const char *slash = strchr(s, '/');
	char addr[IP_TEXT_MAX];
	struct cidr c = { .bits = 128 };
	size_t n = slash ? (size_t)(slash - s) : strlen(s);
	struct ip m;
	int r;

	if (n >= sizeof(addr))
		return -EINVAL;
	memcpy(addr, s, n);
	addr[n] = '\0';
	r = ip_parse(addr, &c.ip);
	if (r < 0)
		return r;
	if (slash) {
		/* A written IPv4 address counts 32 bits; one written as ::ffff:a.b.c.d counts 128. */
		unsigned most = strchr(addr, ':') ? 128 : 32, bits = 0;
		const char *p = slash + 1;

		if (!*p || (p[0] == '0' && p[1]))
			return -EINVAL;
		for (; *p; p++) {
			if (*p < '0' || *p > '9' || bits > 128)
				return -EINVAL;
			bits = 10 * bits + (unsigned)(*p - '0');
		}
		if (bits > most)
			return -EINVAL;
		c.bits = (uint8_t)(bits + 128 - most);
	}
	m = masked(&c.ip, c.bits);
	if (!ip_same(&m, &c.ip))
		return -EDOM;
	*ret = c;
	return 0;
}

bool cidr_has(const struct cidr *c, const struct ip *a)
{
	struct ip m = masked(a, c->bits);

	return ip_same(&m, &c->ip);
}

const char *cidr_text(const struct cidr *c, char buf[IP_TEXT_MAX + 4])
{
	char a[IP_TEXT_MAX];
	/* A range wider than 96 bits can't begin with ::ffff:0:0, since its host bits are zero. */
	bool four = ip_is4(&c->ip);

	(void)ip_text(&c->ip, a);
	if (c->bits == 128)
		(void)snprintf(buf, IP_TEXT_MAX + 4, "%s", a);
	else
		(void)snprintf(buf, IP_TEXT_MAX + 4, "%s/%u", a, c->bits - (four ? 96u : 0u));
	return buf;
}

/*
 * The IANA IPv4 and IPv6 special-purpose address registries, as of RFC 9637. What they call globally reachable (192.0.0.9, 192.0.0.10,
 * 192.88.99.0/24, anycast of protocols that no box speaks) is refused with its neighbourhood.
 */
static const struct range4 {
	uint32_t ip;
	uint8_t bits;
	bool never;
	const char *what;
} ranges4[] = {
	{ 0x00000000, 8, true, "this network (RFC 791)" },
	{ 0x0a000000, 8, false, "private (RFC 1918)" },
	{ 0x646464c8, 32, true, "a cloud's metadata service (100.100.100.200)" },
	{ 0x64400000, 10, false, "shared by carriers (RFC 6598)" },
	{ 0x7f000000, 8, true, "loopback (RFC 1122)" },
	/* A public address, but on a machine of Azure it is the host that answers: configuration, keys of extensions. */
	{ 0xa83f8110, 32, true, "a cloud's metadata service (168.63.129.16)" },
	{ 0xa9fea9fe, 32, true, "a cloud's metadata service (169.254.169.254)" },
	{ 0xa9feaa02, 32, true, "a cloud's metadata service (169.254.170.2)" },
	{ 0xa9feaa17, 32, true, "a cloud's metadata service (169.254.170.23)" },
	{ 0xa9fe0000, 16, false, "link-local (RFC 3927)" },
	{ 0xac100000, 12, false, "private (RFC 1918)" },
	{ 0xc00000c0, 32, true, "a cloud's metadata service (192.0.0.192)" },
	{ 0xc0000000, 24, false, "reserved for protocols (RFC 6890)" },
	{ 0xc0000200, 24, false, "documentation (RFC 5737)" },
	{ 0xc01fc400, 24, false, "reserved (AS112, RFC 7535)" },
	{ 0xc034c100, 24, false, "reserved (AMT, RFC 7450)" },
	{ 0xc0586300, 24, true, "6to4 relays (RFC 7526)" },
	{ 0xc0a80000, 16, false, "private (RFC 1918)" },
	{ 0xc0af3000, 24, false, "reserved (AS112, RFC 7534)" },
	{ 0xc6120000, 15, true, "benchmarks (RFC 2544), where the boxes are" },
	{ 0xc6336400, 24, false, "documentation (RFC 5737)" },
	{ 0xcb007100, 24, false, "documentation (RFC 5737)" },
	{ 0xe0000000, 4, true, "multicast (RFC 5771)" },
	{ 0xffffffff, 32, true, "broadcast (RFC 919)" },
	{ 0xf0000000, 4, false, "reserved (RFC 1112)" },
};

static const struct range6 {
	uint8_t ip[16];
	uint8_t bits;
	bool never;
	const char *what;
} ranges6[] = {
	{ { [15] = 1 }, 128, true, "loopback (RFC 4291)" },
	{ { 0 }, 128, true, "unspecified (RFC 4291)" },
	{ { 0 }, 96, true, "IPv4-compatible (RFC 4291)" },
	{ { [8] = 0xff, 0xff }, 96, true, "IPv4-translated (RFC 2765)" },
	{ { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, 48, true, "NAT64 (RFC 8215)" },
	{ { 0x00, 0x64, 0xff, 0x9b }, 96, true, "NAT64 (RFC 6052)" },
	{ { 0x01 }, 64, false, "discard only (RFC 6666)" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, true, "Teredo (RFC 4380)" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 23, false, "reserved for protocols (RFC 2928)" },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, false, "documentation (RFC 3849)" },
	{ { 0x20, 0x02 }, 16, true, "6to4 (RFC 3056)" },
	{ { 0x26, 0x20, 0x00, 0x4f, 0x80 }, 48, false, "reserved (AS112, RFC 7534)" },
	{ { 0x3f, 0xff }, 20, false, "documentation (RFC 9637)" },
	{ { 0x5f }, 16, false, "segment routing (RFC 9602)" },
	{ { 0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe }, 128, true, "a cloud's metadata service (fd00:c1::a9fe:a9fe)" },
	{ { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23 }, 128, true, "a cloud's metadata service (fd00:ec2::23)" },
	{ { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, 0x54 }, 128, true, "a cloud's metadata service (fd00:ec2::254)" },
	{ { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, 0x54 }, 128, true, "a cloud's metadata service (fd20:ce::254)" },
	{ { 0xfd, 0x63, 0x75, 0x62, 0x62, 0x79 }, 48, true, "private (RFC 4193), where the boxes are" },
	{ { 0xfc }, 7, false, "private (RFC 4193)" },
	{ { 0xfe, 0x80 }, 10, false, "link-local (RFC 4291)" },
	{ { 0xfe, 0xc0 }, 10, false, "site-local (RFC 3879)" },
	{ { 0xff }, 8, true, "multicast (RFC 4291)" },
};

static const char *forbidden4(uint32_t v, bool *ret_never)
{
	for (size_t i = 0; i < sizeof(ranges4) / sizeof(ranges4[0]); i++) {
		if ((v ^ ranges4[i].ip) >> (32 - ranges4[i].bits) == 0) {
			*ret_never = ranges4[i].never;
			return ranges4[i].what;
		}
	}
	*ret_never = false;
	return NULL;
}

static const char *forbidden6(const struct ip *a, bool *ret_never)
{
	/* ISATAP (RFC 5214): the last 64 bits are 0000:5efe or 0200:5efe and an IPv4 address. */
	bool isatap = (a->b[8] & 0xfd) == 0 && a->b[9] == 0 && a->b[10] == 0x5e && a->b[11] == 0xfe, never = false;
	const char *inside = isatap ? forbidden4(get32(a->b + 12), &never) : NULL;

	*ret_never = never;
	for (size_t i = 0; i < sizeof(ranges6) / sizeof(ranges6[0]); i++) {
		struct cidr c = { .bits = ranges6[i].bits };

		memcpy(c.ip.b, ranges6[i].ip, sizeof(c.ip.b));
		if (cidr_has(&c, a)) {
			*ret_never = never || ranges6[i].never;
			return ranges6[i].what;
		}
	}
	/* Only 2000::/3 has been given out (RFC 4291, 2.4; IANA's registry of the address space). */
	if (a->b[0] >> 5 != 1)
		return "not assigned (RFC 4291)";
	return inside ? "ISATAP to a forbidden address (RFC 5214)" : NULL;
}

static const char *forbidden(const struct ip *a, bool *ret_never)
{
	return ip_is4(a) ? forbidden4(ip_get4(a), ret_never) : forbidden6(a, ret_never);
}

const char *ip_forbidden(const struct ip *a)
{
	bool never;

	return forbidden(a, &never);
}

bool ip_never(const struct ip *a)
{
	bool never;

	return forbidden(a, &never) && never;
}

struct ip net_box4(unsigned index)
{
	return ip_of4(0xc6120000u + index);
}

struct ip net_box6(unsigned index)
{
	struct ip a = { { 0xfd, 0x63, 0x75, 0x62, 0x62, 0x79 } };

	a.b[12] = (uint8_t)(index >> 24);
	a.b[13] = (uint8_t)(index >> 16);
	a.b[14] = (uint8_t)(index >> 8);
	a.b[15] = (uint8_t)index;
	return a;
}
