/* SPDX-License-Identifier: Apache-2.0 */
#include "net/packet.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

enum { IP4 = 20, IP6 = 40, TTL = 64 };
enum { F_FIN = 0x01, F_SYN = 0x02, F_RST = 0x04, F_ACK = 0x10 };

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

uint32_t pkt_sum(uint32_t sum, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t s = sum;

	/* Words of four bytes in the machine's order: the folded sum is the same in any order (RFC 1071, 2 (B)). */
	for (; n >= 4; p += 4, n -= 4) {
		uint32_t v;

		memcpy(&v, p, 4);
		s += v;
	}
	if (n) {
		uint8_t last[4] = { 0 };
		uint32_t v;

		memcpy(last, p, n);
		memcpy(&v, last, 4);
		s += v;
	}
	while (s >> 32)
		s = (s & 0xffffffff) + (s >> 32);
	return (uint32_t)s;
}

uint16_t pkt_sum_end(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* The pseudo header of TCP, UDP and ICMPv6. */
static uint32_t pseudo(const struct ip *src, const struct ip *dst, uint8_t proto, size_t n)
{
	const bool four = ip_is4(src);
	const uint8_t tail[8] = { (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, proto };
	uint32_t sum = pkt_sum(0, four ? src->b + 12 : src->b, four ? 4 : 16);

	sum = pkt_sum(sum, four ? dst->b + 12 : dst->b, four ? 4 : 16);
	return pkt_sum(sum, tail, sizeof(tail));
}

static void seal(uint8_t *field, uint32_t sum)
{
	uint16_t v = pkt_sum_end(sum);

	memcpy(field, &v, 2);
}

static void seal_ip4(uint8_t *p)
{
	p[10] = p[11] = 0;
	seal(p + 10, pkt_sum(0, p, IP4));
}

/* An IP header for n bytes behind it. Returns its length, 0 when that is too much. */
static size_t put_ip(uint8_t *p, const struct ip *src, const struct ip *dst, uint8_t proto, size_t n)
{
	if (ip_is4(src) != ip_is4(dst))
		return 0;
	if (ip_is4(src)) {
		if (n + IP4 > PKT_MAX)
			return 0;
		memset(p, 0, IP4);
		p[0] = 0x45;
		put16(p + 2, IP4 + n);
		p[6] = 0x40;	/* don't fragment: there is no need for an id then (RFC 6864) */
		p[8] = TTL;
		p[9] = proto;
		memcpy(p + 12, src->b + 12, 4);
		memcpy(p + 16, dst->b + 12, 4);
		seal_ip4(p);
		return IP4;
	}
	if (n + IP6 > PKT_MAX)	/* the interface's MTU counts the header too */
		return 0;
	memset(p, 0, 8);
	p[0] = 0x60;
	put16(p + 4, n);
	p[6] = proto;
	p[7] = TTL;
	memcpy(p + 8, src->b, 16);
	memcpy(p + 24, dst->b, 16);
	return IP6;
}

/* A header without options and fragments, that says `proto` is next. *ret_n: the bytes behind it that are there. Returns its length. */
static int read_ip(const uint8_t *p, size_t n, uint8_t proto4, uint8_t proto6, struct ip *src, struct ip *dst, size_t *ret_n)
{
	if (n >= IP4 && p[0] >> 4 == 4) {
		struct in_addr a, b;
		size_t total = get16(p + 2);

		if ((p[0] & 15) != 5 || total < IP4 || total > n || (get16(p + 6) & 0x3fff) || p[9] != proto4)
			return -EBADMSG;
		memcpy(&a, p + 12, 4);
		memcpy(&b, p + 16, 4);
		*src = ip_of_in(&a);
		*dst = ip_of_in(&b);
		*ret_n = total - IP4;
		return IP4;
	}
	if (n >= IP6 && p[0] >> 4 == 6) {
		size_t body = get16(p + 4);

		if (body > n - IP6 || p[6] != proto6)
			return -EBADMSG;
		memcpy(src->b, p + 8, 16);
		memcpy(dst->b, p + 24, 16);
		/* A mapped address on the wire is nobody's: inside it would be taken for the IPv4 one. */
		if (ip_is4(src) || ip_is4(dst))
			return -EBADMSG;
		*ret_n = body;
		return IP6;
	}
	return -EBADMSG;
}

int pkt_read_syn(const void *pkt, size_t n, struct pkt_syn *ret)
{
	const uint8_t *p = pkt;
	struct pkt_syn s;
	size_t left, len;
	int head = read_ip(p, n, IPPROTO_TCP, IPPROTO_TCP, &s.src, &s.dst, &left);

	if (head < 0)
		return head;
	if (left < 20)
		return -EBADMSG;
	p += head;
	len = (size_t)(p[12] >> 4) * 4;
	if (len < 20 || len > left || (p[13] & (F_FIN | F_SYN | F_RST | F_ACK)) != F_SYN)
		return -EBADMSG;
	s.ip_len = (uint8_t)head;
	s.tcp_len = (uint8_t)len;
	s.sport = get16(p);
	s.dport = get16(p + 2);
	if (s.sport == 0 || s.dport == 0)
		return -EBADMSG;
	*ret = s;
	return 0;
}

size_t pkt_clean_syn(const void *pkt, const struct pkt_syn *s, uint8_t ret[PKT_SYN_MAX])
{
	uint8_t *tcp = ret + s->ip_len;
	size_t n = (size_t)s->ip_len + s->tcp_len;

	memcpy(ret, pkt, n);
	/* Data of a first packet ("fast open") is sent again by who sent it, as it isn't acknowledged. */
	if (s->ip_len == IP4) {
		put16(ret + 2, n);
		seal_ip4(ret);
	} else {
		put16(ret + 4, s->tcp_len);
	}
	tcp[16] = tcp[17] = 0;
	seal(tcp + 16, pkt_sum(pseudo(&s->src, &s->dst, IPPROTO_TCP, s->tcp_len), tcp, s->tcp_len));
	return n;
}

size_t pkt_reset(const uint8_t *syn, const struct pkt_syn *s, uint8_t ret[PKT_SYN_MAX])
{
	size_t head = put_ip(ret, &s->dst, &s->src, IPPROTO_TCP, 20);
	uint8_t *tcp = ret + head;

	memset(tcp, 0, 20);
	put16(tcp, s->dport);
	put16(tcp + 2, s->sport);
	put32(tcp + 8, get32(syn + s->ip_len + 4) + 1);
	tcp[12] = 5 << 4;
	tcp[13] = F_RST | F_ACK;
	seal(tcp + 16, pkt_sum(pseudo(&s->dst, &s->src, IPPROTO_TCP, 20), tcp, 20));
	return head + 20;
}

size_t pkt_error(const struct ip *from, enum pkt_no no, const void *about, size_t n, uint8_t ret[PKT_ERROR_MAX])
{
	static const uint8_t code4[] = { [PKT_NO_PORT] = 3, [PKT_NO_HOST] = 1, [PKT_NO_NET] = 0, [PKT_NO_ADMIN] = 13 };
	static const uint8_t code6[] = { [PKT_NO_PORT] = 4, [PKT_NO_HOST] = 3, [PKT_NO_NET] = 0, [PKT_NO_ADMIN] = 1 };
	const bool four = ip_is4(from);
	const uint8_t *p = about;
	uint8_t *icmp;
	struct ip to;
	size_t head, most = four ? 548 : PKT_ERROR_MAX - IP6 - 8;	/* a whole of 576 (RFC 1812, 4.3.2.3) or 1280 */

	if (n < (size_t)(four ? IP4 : IP6) + 8)
		return 0;
	if (four) {
		struct in_addr a;

		memcpy(&a, p + 12, 4);
		to = ip_of_in(&a);
	} else {
		memcpy(to.b, p + 8, 16);
	}
	if (n > most)
		n = most;
	head = put_ip(ret, from, &to, four ? IPPROTO_ICMP : IPPROTO_ICMPV6, 8 + n);
	if (head == 0)
		return 0;
	icmp = ret + head;
	memset(icmp, 0, 8);
	icmp[0] = four ? 3 : 1;
	icmp[1] = four ? code4[no] : code6[no];
	memcpy(icmp + 8, about, n);
	seal(icmp + 2, pkt_sum(four ? 0 : pseudo(from, &to, IPPROTO_ICMPV6, 8 + n), icmp, 8 + n));
	return head + 8 + n;
}

size_t pkt_udp(const struct ip *src, uint16_t sport, const struct ip *dst, uint16_t dport, const void *data, size_t n,
	       uint8_t ret[PKT_HEAD_MAX])
{
	size_t head = n > PKT_MAX ? 0 : put_ip(ret, src, dst, IPPROTO_UDP, n + 8);
	uint8_t *udp = ret + head;

	if (head == 0)
		return 0;
	put16(udp, sport);
	put16(udp + 2, dport);
	put16(udp + 4, n + 8);
	/* Nothing can change it on its way: over IPv4 it goes without, which 0 says (RFC 768). */
	udp[6] = udp[7] = 0;
	if (head == IP6) {
		uint32_t sum = pkt_sum(pseudo(src, dst, IPPROTO_UDP, n + 8), udp, 8);
		uint16_t v = pkt_sum_end(pkt_sum(sum, data, n));

		if (v == 0)
			v = 0xffff;
		memcpy(udp + 6, &v, 2);
	}
	return head + 8;
}

int pkt_read_echo(const void *pkt, size_t n, struct pkt_echo *ret)
{
	const uint8_t *p = pkt;
	struct pkt_echo e;
	int head = read_ip(p, n, IPPROTO_ICMP, IPPROTO_ICMPV6, &e.src, &e.dst, &e.len);

	if (head < 0)
		return head;
	p += head;
	if (e.len < 8 || p[0] != (head == IP4 ? 8 : 128) || p[1] != 0)
		return -EBADMSG;
	e.id = get16(p + 4);
	e.body = p;
	*ret = e;
	return 0;
}

size_t pkt_echo_reply(const struct ip *src, const struct ip *dst, uint16_t id, uint8_t *body, size_t n, uint8_t ret[PKT_HEAD_MAX])
{
	const bool four = ip_is4(src);
	size_t head = n < 8 || n > PKT_MAX ? 0 : put_ip(ret, src, dst, four ? IPPROTO_ICMP : IPPROTO_ICMPV6, n);

	if (head == 0)
		return 0;
	body[0] = four ? 0 : 129;
	body[1] = body[2] = body[3] = 0;
	put16(body + 4, id);
	seal(body + 2, pkt_sum(four ? 0 : pseudo(src, dst, IPPROTO_ICMPV6, n), body, n));
	return head;
}
