/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_PACKET_H
#define NET_PACKET_H

/*
 * The few packets that the gateway reads and writes itself: first packets of TCP connections, echo requests, and the answers to boxes
 * (resets, ICMP errors, UDP, echo replies). All begin with the IP header, as packet sockets of type SOCK_DGRAM have them (packet(7)).
 * What comes from a box is hostile: everything is checked against the bytes that are there. Nothing here makes system calls.
 *
 * Formats: RFC 791, 792, 768, 9293, 8200, 4443.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

#define PKT_SYN_MAX 120u	/* IPv6 header, TCP header with all its options */
#define PKT_ERROR_MAX 1280u	/* an ICMP error, its headers included */
#define PKT_HEAD_MAX 48u	/* IPv6 and UDP headers */
#define PKT_MAX 65535u

/* A first packet of a TCP connection. */
struct pkt_syn {
	struct ip src, dst;
	uint16_t sport, dport;
	uint8_t ip_len, tcp_len;	/* of the headers */
};

/*
 * A SYN, and nothing else: no other of FIN, RST, ACK, no fragment, no IP options or extension headers (nobody needs them, and they
 * lead packets astray), with lengths that fit. -EBADMSG.
 */
int pkt_read_syn(const void *pkt, size_t n, struct pkt_syn *ret);
/* The same packet without data, checksums right. Returns its length, at most PKT_SYN_MAX. */
size_t pkt_clean_syn(const void *pkt, const struct pkt_syn *s, uint8_t ret[PKT_SYN_MAX]);
/* The reset that answers a (clean) SYN: connect(2) then says ECONNREFUSED. Returns its length. */
size_t pkt_reset(const uint8_t *syn, const struct pkt_syn *s, uint8_t ret[PKT_SYN_MAX]);

/* Why a packet can't go on, as ICMP tells it. What connect(2) or send(2) then say in the box: */
enum pkt_no {
	PKT_NO_PORT,	/* ECONNREFUSED */
	PKT_NO_HOST,	/* EHOSTUNREACH */
	PKT_NO_NET,	/* ENETUNREACH */
	PKT_NO_ADMIN,	/* EHOSTUNREACH over IPv4, EACCES over IPv6 */
};
/*
 * An ICMP error about `about` (a whole packet or its beginning, at least the IP header and 8 bytes), to its sender, from `from`
 * (the same family). Returns its length, at most PKT_ERROR_MAX; 0 when `about` is too short.
 */
size_t pkt_error(const struct ip *from, enum pkt_no no, const void *about, size_t n, uint8_t ret[PKT_ERROR_MAX]);

/*
 * Headers for n bytes of UDP from src to dst; the data follows them. Over IPv6 the checksum has to be there, so the data is
 * read. Returns the length of the headers, or 0 when it can't be one packet.
 */
size_t pkt_udp(const struct ip *src, uint16_t sport, const struct ip *dst, uint16_t dport, const void *data, size_t n,
	       uint8_t ret[PKT_HEAD_MAX]);

/* An echo request (ping): code 0, no fragment, no options. `body`: the ICMP message, from its type on. */
struct pkt_echo {
	struct ip src, dst;
	uint16_t id;
	const uint8_t *body;
	size_t len;
};
int pkt_read_echo(const void *pkt, size_t n, struct pkt_echo *ret);
/*
 * The headers of an echo reply from src to dst; body: an ICMP message of n bytes (at least 8), whose type, checksum and id are set in
 * place. Returns the length of the IP header that has to go before it, or 0 when it can't be one packet.
 */
size_t pkt_echo_reply(const struct ip *src, const struct ip *dst, uint16_t id, uint8_t *body, size_t n, uint8_t ret[PKT_HEAD_MAX]);

/* The checksum of RFC 1071 over n bytes, added to `sum`; pkt_sum_end() folds it. */
uint32_t pkt_sum(uint32_t sum, const void *data, size_t n);
uint16_t pkt_sum_end(uint32_t sum);	/* as it is written: put with memcpy */

#endif
