/* SPDX-License-Identifier: Apache-2.0 */
/* Packets that the gateway reads and writes, checked against the RFCs by a second, plain implementation of their checksums. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/leak.h"
#include "net/packet.h"

/* RFC 1071, word by word. */
static uint16_t plain_sum(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (n & 1)
		sum += (uint32_t)p[n - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Of a correct packet it is 0xffff. */
static uint16_t transport_sum(const uint8_t *pkt, size_t n)
{
	const bool four = pkt[0] >> 4 == 4;
	size_t head = four ? 20 : 40, len = n - head;
	uint8_t proto = four ? pkt[9] : pkt[6];
	uint32_t sum = plain_sum(four ? pkt + 12 : pkt + 8, four ? 8 : 32, 0) + proto + (uint32_t)len;

	if (four && proto == 1)
		sum = 0;
	return plain_sum(pkt + head, len, sum);
}

static size_t syn4(uint8_t *p)
{
	static const uint8_t pkt[] = {
		0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 1, 0, 203, 0, 113, 10,
		0x9c, 0x40, 0x01, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0xde, 0xad, 0, 0, 2, 4, 0xff, 0xd7,
	};

	memcpy(p, pkt, sizeof(pkt));
	return sizeof(pkt);
}

static size_t syn6(uint8_t *p)
{
	uint8_t four[64];
	size_t n = syn4(four);

	memset(p, 0, 40);
	p[0] = 0x60;
	p[5] = (uint8_t)(n - 20);
	p[6] = 6;
	p[7] = 64;
	memcpy(p + 8, (const uint8_t[]){ 0xfd, 0x63, 0x75, 0x62, 0x62, 0x79, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 16);
	memcpy(p + 24, (const uint8_t[]){ 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10 }, 16);
	memcpy(p + 40, four + 20, n - 20);
	return 40 + n - 20;
}

static void a_first_packet_is_put_right(void **state)
{
	uint8_t in[PKT_ERROR_MAX], out[PKT_SYN_MAX], rst[PKT_SYN_MAX];
	struct pkt_syn s;

	(void)state;
	for (unsigned six = 0; six < 2; six++) {
		size_t n = six ? syn6(in) : syn4(in), head = six ? 40 : 20, k;

		/* Behind the packet is something that isn't its. */
		memset(in + n, 0xee, sizeof(in) - n);
		assert_int_equal(pkt_read_syn(in, n + 20, &s), 0);
		assert_int_equal(s.sport, 40000);
		assert_int_equal(s.dport, 443);
		k = pkt_clean_syn(in, &s, out);
		assert_int_equal(k, n);
		assert_int_equal(transport_sum(out, k), 0xffff);
		if (!six)
			assert_int_equal(plain_sum(out, 20, 0), 0xffff);
		/* Nothing else was touched. */
		assert_memory_equal(out + head, in + head, 16);
		assert_memory_equal(out + head + 18, in + head + 18, n - head - 18);
		k = pkt_reset(out, &s, rst);
		assert_int_equal(k, head + 20);
		assert_int_equal(transport_sum(rst, k), 0xffff);
		assert_memory_equal(rst + head, out + head + 2, 2);
		assert_int_equal(rst[head + 13], 0x14);
		assert_memory_equal(rst + head + 8, "\1\2\3\5", 4);	/* acknowledges the SYN */
		k = pkt_error(&s.dst, PKT_NO_HOST, out, n, in);
		assert_int_equal(transport_sum(in, k), 0xffff);
		assert_int_equal(in[head], six ? 1 : 3);
		assert_memory_equal(in + head + 8, out, n);
	}
}

static void what_is_no_plain_first_packet_is_not_read(void **state)
{
	static const struct {
		size_t at;
		uint8_t v;
	} four[] = {
		{ 0, 0x46 },	/* options */
		{ 0, 0x44 },	/* a header too short */
		{ 0, 0x35 },	/* another version */
		{ 3, 60 },	/* longer than it is */
		{ 3, 39 },	/* shorter than its TCP header */
		{ 3, 19 },
		{ 6, 0x20 },	/* more fragments */
		{ 7, 1 },	/* a later fragment */
		{ 9, 17 },
		{ 32, 0x40 },	/* TCP header too short, */
		{ 32, 0xf0 },	/* too long */
		{ 33, 0x12 },	/* SYN and ACK, RST, FIN; nothing */
		{ 33, 0x06 },
		{ 33, 0x03 },
		{ 33, 0x00 },
	};
	uint8_t p[256];
	struct pkt_syn s;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(four) / sizeof(four[0]); i++) {
		n = syn4(p);
		assert_int_equal(pkt_read_syn(p, n, &s), 0);
		p[four[i].at] = four[i].v;
		assert_int_equal(pkt_read_syn(p, n, &s), -EBADMSG);
	}
	n = syn4(p);
	for (size_t k = 0; k < n; k++)
		assert_int_equal(pkt_read_syn(p, k, &s), -EBADMSG);
	n = syn6(p);
	assert_int_equal(pkt_read_syn(p, n, &s), 0);
	for (size_t k = 0; k < n; k++)
		assert_int_equal(pkt_read_syn(p, k, &s), -EBADMSG);
	p[6] = 0;	/* an extension header */
	assert_int_equal(pkt_read_syn(p, n, &s), -EBADMSG);
	n = syn6(p);	/* an IPv4 address in IPv6 clothes */
	memset(p + 24, 0, 16);
	p[34] = p[35] = 0xff;
	p[36] = 10;
	assert_int_equal(pkt_read_syn(p, n, &s), -EBADMSG);
}

/* Any bytes at all: nothing is read past their end (the sanitizers watch), and what is taken for a SYN stays one. */
static void noise_is_no_harm(void **state)
{
	uint32_t seed = 7;

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		uint8_t base[128], out[PKT_SYN_MAX];
		size_t n = i & 1 ? syn4(base) : syn6(base), k;
		struct pkt_syn s, again;
		struct pkt_echo e;
		uint8_t *p;

		for (unsigned j = 0; j < 3; j++) {
			seed = seed * 1664525u + 1013904223u;
			base[(seed >> 16) % n] = (uint8_t)(seed >> 8);
		}
		seed = seed * 1664525u + 1013904223u;
		k = (seed >> 20) % 3 ? n : (seed >> 16) % (n + 1);
		p = malloc(k ? k : 1);
		assert_non_null(p);
		memcpy(p, base, k);
		if (pkt_read_syn(p, k, &s) == 0) {
			size_t m = pkt_clean_syn(p, &s, out);

			assert_int_equal(pkt_read_syn(out, m, &again), 0);
			assert_int_equal(transport_sum(out, m), 0xffff);
			assert_int_equal(again.dport, s.dport);
		}
		(void)pkt_read_echo(p, k, &e);
		free(p);
	}
}

static void answers_are_whole(void **state)
{
	static uint8_t data[65536], pkt[PKT_HEAD_MAX + 65536];
	struct ip a4, b4, a6, b6;

	(void)state;
	assert_int_equal(ip_parse("203.0.113.10", &a4), 0);
	assert_int_equal(ip_parse("198.18.1.0", &b4), 0);
	assert_int_equal(ip_parse("2001:db8::10", &a6), 0);
	assert_int_equal(ip_parse("fd63:7562:6279::100", &b6), 0);
	for (size_t n = 0; n < sizeof(data); n = n * 3 + 1) {
		size_t head;

		memset(data, (int)n, sizeof(data));
		head = pkt_udp(&a6, 53, &b6, 4000, data, n, pkt);
		assert_int_equal(head, n + 48 <= 65535 ? 48 : 0);
		if (!head)
			continue;
		memcpy(pkt + head, data, n);
		assert_int_equal(transport_sum(pkt, head + n), 0xffff);
		head = pkt_udp(&a4, 53, &b4, 4000, data, n, pkt);
		assert_int_equal(head, 28);
		assert_int_equal(plain_sum(pkt, 20, 0), 0xffff);
		assert_int_equal(pkt[24] << 8 | pkt[25], n + 8);
	}
	assert_int_equal(pkt_udp(&a4, 53, &b4, 4000, data, 65507, pkt), 28);
	assert_int_equal(pkt_udp(&a4, 53, &b4, 4000, data, 65508, pkt), 0);
	assert_int_equal(pkt_udp(&a4, 53, &b6, 4000, data, 1, pkt), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)
		T(a_first_packet_is_put_right),
		T(what_is_no_plain_first_packet_is_not_read),
		T(noise_is_no_harm),
		T(answers_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
