/* SPDX-License-Identifier: Apache-2.0 */
/* net/dns: what is well-formed is read, and nothing else; what is written can be read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "dns_msg.h"
#include "lib/leak.h"
#include "net/dns.h"

static struct msg m;

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_of_text(text, &n), 0);
	return n;
}

/* A copy of exactly its size, so that a sanitizer sees one byte too far. */
static int read_answer(const struct msg *from, const char *name, uint16_t type, struct dns_answer **ret)
{
	struct dns_name n = name_of(name);
	uint8_t *copy = malloc(from->n);
	int r;

	assert_non_null(copy);
	memcpy(copy, from->b, from->n);
	r = dns_answer_read(copy, from->n, &n, type, ret);
	free(copy);
	return r;
}

static int read_query(const struct msg *from, struct dns_query *ret)
{
	uint8_t *copy = malloc(from->n ? from->n : 1);
	int r;

	assert_non_null(copy);
	memcpy(copy, from->b, from->n);
	r = dns_query_read(copy, from->n, ret);
	free(copy);
	return r;
}

static uint32_t addr4(const uint8_t *p)
{
	return (uint32_t)at16(p) << 16 | at16(p + 2);
}

/* ---- names */

static void names_and_text_are_the_same_thing(void **state)
{
	struct dns_name a, b;
	char text[DNS_TEXT_MAX], longest[300];

	(void)state;
	a = name_of("Www.Example.org");
	assert_int_equal(a.n, 17);
	assert_memory_equal(a.b, "\3Www\7Example\3org\0", 17);
	b = name_of("wWW.eXAMPLE.oRG");
	assert_true(dns_name_same(&a, &b));
	assert_int_equal(dns_name_text(&a, text), 0);
	assert_string_equal(text, "www.example.org");
	b = name_of("www.example.com");
	assert_false(dns_name_same(&a, &b));

	for (const char *const *bad =
		     (const char *const[]){ "", ".", "a..b", ".a", "a.", "a b", "a/b", "a\xc3\xa9", NULL };
	     *bad; bad++)
		assert_int_equal(dns_name_of_text(*bad, &a), -EINVAL);
	/* 63 in a label and 253 in all may be, one more may not. */
	memset(longest, 'a', sizeof(longest));
	longest[63] = longest[127] = longest[191] = '.';
	longest[253] = '\0';
	assert_int_equal(dns_name_of_text(longest, &a), 0);
	assert_int_equal(a.n, 255);
	assert_int_equal(dns_name_text(&a, text), 0);
	assert_string_equal(text, longest);
	longest[253] = 'a';
	longest[254] = '\0';
	assert_int_equal(dns_name_of_text(longest, &a), -EINVAL);
	longest[63] = 'a';
	longest[64] = '\0';
	assert_int_equal(dns_name_of_text(longest, &a), -EINVAL);
	longest[63] = '\0';
	assert_int_equal(dns_name_of_text(longest, &a), 0);
}

static void a_name_with_other_bytes_has_no_text(void **state)
{
	static const uint8_t dot[] = { 3, 'a', '.', 'b', 0 }, nul[] = { 2, 'a', 0, 1, 'b', 0 },
			     plain[] = { 3, 'a', '-', 'b', 0 };
	char text[DNS_TEXT_MAX] = "untouched";
	struct dns_name n = { 0 };
	size_t at = 0;

	(void)state;
	assert_int_equal(dns_name_read(dot, sizeof(dot), &at, &n), 0);
	assert_int_equal(dns_name_text(&n, text), -EINVAL);
	at = 0;
	assert_int_equal(dns_name_read(nul, sizeof(nul), &at, &n), 0);
	assert_int_equal(dns_name_text(&n, text), -EINVAL);
	assert_string_equal(text, "untouched");
	at = 0;
	assert_int_equal(dns_name_read(plain, sizeof(plain), &at, &n), 0);
	assert_int_equal(dns_name_text(&n, text), 0);
	assert_string_equal(text, "a-b");
	assert_int_equal(dns_name_text(&(struct dns_name){ .n = 1 }, text), -EINVAL);
}

static void pointers_lead_backwards_or_nowhere(void **state)
{
	struct dns_name n;
	char text[DNS_TEXT_MAX];
	size_t at;

	(void)state;
	/* 12: "b.c", 17: "a" and a pointer to 12 */
	put_head(&m, 1, 0, 0, 0, 0, 0);
	put_name(&m, "b.c");
	put(&m, "\1a\xc0\x0c", 4);
	at = 17;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), 0);
	assert_int_equal(at, 21);
	assert_int_equal(dns_name_text(&n, text), 0);
	assert_string_equal(text, "a.b.c");

	/* The same with a pointer to itself, to what it ends, forwards, into the head, and cut in the middle. */
	set16(&m, 19, 0xc013);
	at = 17;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	set16(&m, 19, 0xc011);
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	set16(&m, 19, 0xc0ff);
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	set16(&m, 19, 0xc000);
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	set16(&m, 19, 0xc00c);
	assert_int_equal(dns_name_read(m.b, m.n - 1, &at, &n), -EBADMSG);
	assert_int_equal(at, 17);
	/* Label kinds that nobody defines any more. */
	m.b[17] = 0x41;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	m.b[17] = 0x81;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);

	/* Two that point at each other. */
	put_head(&m, 1, 0, 0, 0, 0, 0);
	put(&m, "\1a\xc0\x10\1b\xc0\x0c", 8);
	at = 16;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
	/* A chain of nothing but pointers is given up. */
	put_head(&m, 1, 0, 0, 0, 0, 0);
	put_name(&m, "x");
	for (unsigned i = 0, to = 12; i < 1000; i++) {
		size_t here = m.n;

		put16(&m, 0xc000 | to);
		to = (unsigned)here;
	}
	at = 15 + 2 * 100;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), 0);
	at = 15 + 2 * 900;
	assert_int_equal(dns_name_read(m.b, m.n, &at, &n), -EBADMSG);
}

static void a_name_ends_at_255_bytes(void **state)
{
	char label[64] = { 0 };
	struct dns_name n;
	size_t at;

	(void)state;
	memset(label, 'x', 63);
	for (unsigned last = 61; last <= 62; last++) {
		m.n = 0;
		for (int i = 0; i < 3; i++) {
			put8(&m, 63);
			put(&m, label, 63);
		}
		put8(&m, last);
		put(&m, label, last);
		put8(&m, 0);
		at = 0;
		assert_int_equal(dns_name_read(m.b, m.n, &at, &n), last == 61 ? 0 : -EBADMSG);
	}
}

static void reverse_names_are_addresses(void **state)
{
	struct dns_name n = name_of("4.3.2.1.in-addr.arpa");
	struct ip ip;

	(void)state;
	assert_int_equal(dns_name_reverse(&n, &ip), 0);
	assert_true(ip_is4(&ip));
	assert_memory_equal(ip.b + 12, "\1\2\3\4", 4);
	n = name_of("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.B.d.0.1.0.0.2.ip6.arpa");
	assert_int_equal(dns_name_reverse(&n, &ip), 0);
	assert_memory_equal(ip.b, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	for (const char *const *bad =
		     (const char *const[]){ "3.2.1.in-addr.arpa", "256.3.2.1.in-addr.arpa", "5.4.3.2.1.in-addr.arpa",
					    "in-addr.arpa", "x.3.2.1.in-addr.arpa", "0.0.ip6.arpa",
					    "4.3.2.1.in-addr.arpa.org", "0004.3.2.1.in-addr.arpa", NULL };
	     *bad; bad++) {
		n = name_of(*bad);
		assert_int_equal(dns_name_reverse(&n, &ip), -EINVAL);
	}
}

/* ---- queries */

static void a_query_is_one_question(void **state)
{
	static const uint8_t subnet[] = { 0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2 };
	struct dns_query q;

	(void)state;
	put_head(&m, 0x1234, 0x0120, 1, 0, 0, 0);
	put_question(&m, "ExAmple.org", 28);
	assert_int_equal(read_query(&m, &q), 0);
	assert_int_equal(q.id, 0x1234);
	assert_int_equal(q.type, 28);
	assert_int_equal(q.udp_size, 512);
	assert_false(q.edns);
	assert_memory_equal(q.name.b, "\7ExAmple\3org\0", 13);

	/* With EDNS; what options it has (a client subnet here) is not kept, but read over. */
	put_opt(&m, 1400, 0x8000, subnet, sizeof(subnet));
	set16(&m, 10, 1);
	assert_int_equal(read_query(&m, &q), 0);
	assert_true(q.edns);
	assert_int_equal(q.udp_size, 1400);

	/* Each of the counts, and one byte more or less. */
	for (unsigned i = 4; i <= 10; i += 2) {
		unsigned was = at16(m.b + i);

		set16(&m, i, was + 1);
		assert_int_equal(read_query(&m, &q), DNS_FORMERR);
		set16(&m, i, was);
	}
	put8(&m, 0);
	assert_int_equal(read_query(&m, &q), DNS_FORMERR);
	m.n -= 2;
	assert_int_equal(read_query(&m, &q), DNS_FORMERR);
	assert_true(q.name.n > 0);
	m.n++;
	assert_int_equal(read_query(&m, &q), 0);
	/* Twice EDNS, a later version of it, something else there. */
	put_opt(&m, 1400, 0, "", 0);
	set16(&m, 10, 2);
	assert_int_equal(read_query(&m, &q), DNS_FORMERR);
	put_head(&m, 1, 0, 1, 0, 0, 1);
	put_question(&m, "example.org", 1);
	put_opt(&m, 1400, 0x00010000, "", 0);
	assert_int_equal(read_query(&m, &q), DNS_BADVERS);
	put_head(&m, 1, 0, 1, 0, 0, 1);
	put_question(&m, "example.org", 1);
	put_a(&m, "example.org", 1, 1);
	assert_int_equal(read_query(&m, &q), DNS_FORMERR);
	/* An answer, and a piece of one, are not worth a word; another operation gets one. */
	put_head(&m, 1, 0x8000, 1, 0, 0, 0);
	put_question(&m, "example.org", 1);
	assert_int_equal(read_query(&m, &q), -EBADMSG);
	set16(&m, 2, 0x2800);
	assert_int_equal(read_query(&m, &q), DNS_NOTIMP);
	m.n = 11;
	assert_int_equal(read_query(&m, &q), -EBADMSG);
	m.n = 0;
	assert_int_equal(read_query(&m, &q), -EBADMSG);
}

static void a_question_can_be_read(void **state)
{
	struct dns_name name = name_of("eXample.org");
	uint8_t out[DNS_QUESTION_MAX];
	struct dns_query q;

	(void)state;
	for (unsigned edns = 0; edns <= 1232; edns += 1232) {
		m.n = dns_question_write(out, 77, &name, DNS_MX, (uint16_t)edns);
		memcpy(m.b, out, m.n);
		assert_int_equal(read_query(&m, &q), 0);
		assert_int_equal(q.id, 77);
		assert_int_equal(q.type, DNS_MX);
		assert_int_equal(q.flags, DNS_RD);
		assert_int_equal(q.edns, edns != 0);
		assert_int_equal(q.udp_size, edns ? edns : 512);
		assert_memory_equal(q.name.b, name.b, name.n);
	}
}

/* ---- answers */

static void only_the_answer_to_the_question_matches(void **state)
{
	struct dns_name name = name_of("eXample.org");
	uint16_t flags;

	(void)state;
	put_head(&m, 77, 0x8180, 1, 0, 0, 0);
	put_question(&m, "eXample.org", 1);
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), 0);
	assert_int_equal(flags, 0x8180);
	assert_int_equal(dns_reply_match(m.b, m.n, 78, &name, 1, &flags), -ESTALE);
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 28, &flags), -ESTALE);
	set16(&m, 2, 0x0180);
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), -EBADMSG);
	set16(&m, 2, 0x8180);
	set16(&m, 4, 0);
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), -EBADMSG);
	set16(&m, 4, 1);
	m.b[13] ^= 0x20;
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), -EILSEQ);
	m.b[13] = 'f';
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), -ESTALE);
	m.b[13] = 'e';
	set16(&m, m.n - 2, 3);
	assert_int_equal(dns_reply_match(m.b, m.n, 77, &name, 1, &flags), -ESTALE);
}

static void only_what_the_question_leads_to_is_kept(void **state)
{
	struct dns_answer *a;
	const uint8_t *rdata;
	size_t at = 0, len;
	uint16_t type;

	(void)state;
	/* Out of order, with a stranger in each section. */
	put_head(&m, 1, 0x8180, 1, 5, 1, 1);
	put_question(&m, "www.example.org", 1);
	put_a(&m, "bank.example.net", 300, 0x0a0a0a0a);
	put_a(&m, "host.cdn.example", 300, 0x01020304);
	put_cname(&m, "alias.example.org", 60, "HOST.cdn.example");
	put_a(&m, "host.cdn.example", 200, 0x01020305);
	put_cname(&m, "WWW.example.org", 100, "alias.example.org");
	put_a(&m, "bank.example.net", 300, 0x0a0a0a0b);
	put_a(&m, "www.example.org", 300, 0x0a0a0a0c);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	assert_int_equal(a->count, 4);
	assert_int_equal(a->ttl, 60);
	assert_int_equal(a->rcode, 0);
	assert_true(dns_answer_each(a, &at, &type, &rdata, &len));
	assert_int_equal(type, DNS_CNAME);
	assert_memory_equal(rdata, "\5alias\7example\3org\0", 19);
	assert_true(dns_answer_each(a, &at, &type, &rdata, &len));
	assert_int_equal(type, DNS_CNAME);
	assert_true(dns_answer_each(a, &at, &type, &rdata, &len));
	assert_int_equal(type, DNS_A);
	assert_int_equal(addr4(rdata), 0x01020304);
	assert_true(dns_answer_each(a, &at, &type, &rdata, &len));
	assert_int_equal(addr4(rdata), 0x01020305);
	assert_false(dns_answer_each(a, &at, &type, &rdata, &len));
	dns_answer_unref(a);

	/* The other name's records are found by its own question. */
	put_head(&m, 1, 0x8180, 1, 1, 0, 0);
	put_question(&m, "bank.example.net", 1);
	put_a(&m, "bank.example.net", 300, 0x0a0a0a0a);
	assert_int_equal(read_answer(&m, "bank.example.net", 1, &a), 0);
	assert_int_equal(a->count, 1);
	dns_answer_unref(a);
}

static void aliases_end(void **state)
{
	struct dns_answer *a;
	char from[40], to[40];

	(void)state;
	put_head(&m, 1, 0x8180, 1, 2, 0, 0);
	put_question(&m, "a.example", 1);
	put_cname(&m, "a.example", 60, "b.example");
	put_cname(&m, "b.example", 60, "a.example");
	assert_int_equal(read_answer(&m, "a.example", 1, &a), -ELOOP);
	put_head(&m, 1, 0x8180, 1, 1, 0, 0);
	put_question(&m, "a.example", 1);
	put_cname(&m, "a.example", 60, "a.example");
	assert_int_equal(read_answer(&m, "a.example", 1, &a), -ELOOP);
	/* As long as the longest, and one longer. */
	for (unsigned n = DNS_CHAIN_MAX; n <= DNS_CHAIN_MAX + 1; n++) {
		put_head(&m, 1, 0x8180, 1, n + 1, 0, 0);
		put_question(&m, "h0.example", 1);
		for (unsigned i = 0; i < n; i++) {
			(void)snprintf(from, sizeof(from), "h%u.example", i);
			(void)snprintf(to, sizeof(to), "h%u.example", i + 1);
			put_cname(&m, from, 60, to);
		}
		put_a(&m, to, 60, 0x01020304);
		if (n > DNS_CHAIN_MAX) {
			assert_int_equal(read_answer(&m, "h0.example", 1, &a), -ELOOP);
			break;
		}
		assert_int_equal(read_answer(&m, "h0.example", 1, &a), 0);
		assert_int_equal(a->count, n + 1);
		dns_answer_unref(a);
	}
	/* Asked for the alias itself. */
	put_head(&m, 1, 0x8180, 1, 1, 0, 0);
	put_question(&m, "a.example", 5);
	put_cname(&m, "a.example", 60, "a.example");
	assert_int_equal(read_answer(&m, "a.example", 5, &a), 0);
	assert_int_equal(a->count, 1);
	dns_answer_unref(a);
}

static void nothing_is_kept_as_long_as_its_zone_says(void **state)
{
	struct dns_answer *a;

	(void)state;
	put_head(&m, 1, 0x8183, 1, 0, 1, 0);
	put_question(&m, "no.example.org", 1);
	put_soa(&m, "Example.org", 900, 300);
	assert_int_equal(read_answer(&m, "no.example.org", 1, &a), 0);
	assert_int_equal(a->rcode, DNS_NXDOMAIN);
	assert_int_equal(a->count, 0);
	assert_int_equal(a->ttl, 300);
	assert_true(a->soa < a->len);
	dns_answer_unref(a);
	/* The SOA of a zone that the name isn't in, also one that only ends in the same letters; and none. */
	put_head(&m, 1, 0x8183, 1, 0, 1, 0);
	put_question(&m, "no.example.org", 1);
	put_soa(&m, "ample.org", 900, 300);
	assert_int_equal(read_answer(&m, "no.example.org", 1, &a), 0);
	assert_int_equal(a->ttl, 0);
	assert_int_equal(a->soa, a->len);
	dns_answer_unref(a);
	put_head(&m, 1, 0x8180, 1, 0, 0, 0);
	put_question(&m, "no.example.org", 1);
	assert_int_equal(read_answer(&m, "no.example.org", 1, &a), 0);
	assert_int_equal(a->ttl, 0);
	dns_answer_unref(a);
	/* An alias of nothing. */
	put_head(&m, 1, 0x8183, 1, 1, 1, 0);
	put_question(&m, "www.example.org", 1);
	put_cname(&m, "www.example.org", 20, "gone.example.net");
	put_soa(&m, "example.net", 900, 300);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	assert_int_equal(a->count, 1);
	assert_int_equal(a->ttl, 20);
	assert_int_equal(a->rcode, DNS_NXDOMAIN);
	dns_answer_unref(a);
	/* Nothing that has addresses. */
	put_head(&m, 1, 0x8183, 1, 1, 0, 0);
	put_question(&m, "www.example.org", 1);
	put_a(&m, "www.example.org", 60, 1);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), -EBADMSG);
}

struct shape {
	uint16_t type;
	const char *rdata;
	size_t n;
	int r;
};

static void the_form_of_each_type_is_checked(void **state)
{
	static const struct shape shapes[] = {
		{ 1, "\1\2\3\4", 4, 0 },
		{ 1, "\1\2\3", 3, -EBADMSG },
		{ 1, "\1\2\3\4\5", 5, -EBADMSG },
		{ 28, "0123456789abcdef", 16, 0 },
		{ 28, "0123456789abcde", 15, -EBADMSG },
		{ 2, "\2ns\0", 4, 0 },
		{ 2, "\2ns\0x", 5, -EBADMSG },
		{ 2, "\3ns\0", 4, -EBADMSG },
		{ 2, "\xc0\x0c", 2, 0 },
		{ 2, "\xc0", 1, -EBADMSG },
		{ 2, "", 0, -EBADMSG },
		{ 15, "\0\12\2mx\0", 6, 0 },
		{ 15, "\0", 1, -EBADMSG },
		{ 15, "\0\12", 2, -EBADMSG },
		{ 33, "\0\1\0\2\0\3\1a\0", 9, 0 },
		{ 33, "\0\1\0\2\0\1a\0", 8, -EBADMSG },
		{ 16, "\3abc\0", 5, 0 },
		{ 16, "\3abc\1", 5, -EBADMSG },
		{ 16, "", 0, -EBADMSG },
		{ 257, "\0\5issuex", 8, 0 },
		{ 257, "\0\6issue", 7, -EBADMSG },
		{ 257, "\0\0x", 3, -EBADMSG },
		{ 6,
		  "\0\0"
		  "0123456789abcdefghij",
		  22, 0 },
		{ 6,
		  "\0\0"
		  "0123456789abcdefghi",
		  21, -EBADMSG },
		{ 6,
		  "\0\0"
		  "0123456789abcdefghijk",
		  23, -EBADMSG },
		{ 99, "x", 1, -EBADMSG },
	};
	struct dns_answer *a;

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		int r;

		put_head(&m, 1, 0x8180, 1, 1, 0, 0);
		put_question(&m, "x.example", shapes[i].type);
		put(&m, "\xc0\x0c", 2);
		put_rr(&m, shapes[i].type, 60, shapes[i].rdata, shapes[i].n);
		r = read_answer(&m, "x.example", shapes[i].type, &a);
		if (r != shapes[i].r)
			fail_msg("shape %zu (type %u): %d", i, shapes[i].type, r);
		if (r == 0)
			dns_answer_unref(a);
	}
}

static void a_message_ends_where_its_records_end(void **state)
{
	struct dns_answer *a;
	size_t whole;

	(void)state;
	put_head(&m, 1, 0x8180, 1, 1, 1, 1);
	put_question(&m, "www.example.org", 1);
	put_a(&m, "www.example.org", 60, 0x01020304);
	put_soa(&m, "example.org", 60, 60);
	put_opt(&m, 1232, 0, "", 0);
	whole = m.n;
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	dns_answer_unref(a);
	for (m.n = 0; m.n < whole; m.n++)
		assert_int_equal(read_answer(&m, "www.example.org", 1, &a), -EBADMSG);
	m.n = whole + 1;
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), -EBADMSG);
	m.n = whole;
	for (unsigned at = 6; at <= 10; at += 2) {
		set16(&m, at, 2);
		assert_int_equal(read_answer(&m, "www.example.org", 1, &a), -EBADMSG);
		set16(&m, at, 0xffff);
		assert_int_equal(read_answer(&m, "www.example.org", 1, &a), -EBADMSG);
		set16(&m, at, 1);
	}
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	dns_answer_unref(a);
}

static void large_answers_cost_little(void **state)
{
	struct dns_answer *a;
	struct timespec from, to;
	char name[2 * 126 + 2];
	unsigned n = 0;
	double ms;

	(void)state;
	put_head(&m, 1, 0x8180, 1, 0, 0, 0);
	put_question(&m, "www.example.org", 1);
	while (m.n + 16 <= 65535) {
		put(&m, "\xc0\x0c", 2);
		put_rr(&m, 1, 60, "\1\2\3\4", 4);
		n++;
	}
	set16(&m, 6, n);
	assert_true(n > 4000);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	assert_int_equal(a->count, DNS_KEEP_MAX);
	dns_answer_unref(a);

	/* The worst that 64 KB can do: long names through many pointers, and an alias at each step. */
	for (size_t i = 0; i < sizeof(name) - 1; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[sizeof(name) - 1] = '\0';
	put_head(&m, 1, 0x8180, 1, 0, 0, 0);
	put_question(&m, name, 1);
	for (n = 0; m.n + 14 <= 65535; n++) {
		put(&m, "\xc0\x0c", 2);
		put_rr(&m, 5, 60, "\xc0\x0c", 2);
	}
	set16(&m, 6, n);
	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(read_answer(&m, name, 1, &a), -ELOOP);
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
	print_message("# the worst message takes %.2f ms\n", ms);
	assert_true(ms < 500);
}

/* ---- replies */

static bool not_the_last_byte_9(void *arg, const struct ip *ip)
{
	unsigned *asked = arg;

	(*asked)++;
	return ip->b[15] != 9;
}

static void a_reply_says_what_the_answer_says(void **state)
{
	struct dns_answer *a, *again;
	struct dns_query q = { .id = 0x4321, .flags = DNS_RD, .type = 1, .klass = 1, .udp_size = 512 };
	struct dns_reply r = { 0 };
	unsigned asked = 0;

	(void)state;
	put_head(&m, 1, 0x8180, 1, 4, 0, 0);
	put_question(&m, "www.example.org", 1);
	put_cname(&m, "www.example.org", 60, "host.cdn.example");
	put_a(&m, "host.cdn.example", 60, 0x01020309);
	put_a(&m, "host.cdn.example", 60, 0x01020307);
	put_a(&m, "host.cdn.example", 60, 0x01020306);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	q.name = name_of("wWw.example.org");
	r.answer = a;
	r.ttl = 17;
	r.keep = not_the_last_byte_9;
	r.arg = &asked;
	m.n = dns_reply_write(m.b, 512, &q, &r);
	assert_int_equal(asked, 3);
	assert_int_equal(at16(m.b), 0x4321);
	assert_int_equal(at16(m.b + 2), 0x8180);
	assert_int_equal(at16(m.b + 6), 3);
	assert_int_equal(at16(m.b + 10), 0);
	assert_memory_equal(m.b + 12, "\3wWw\7example\3org\0", 17);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &again), 0);
	assert_int_equal(again->count, 3);
	assert_int_equal(again->ttl, 17);
	assert_int_equal(addr4(again->data + again->len - 4), 0x01020306);
	dns_answer_unref(again);
	dns_answer_unref(a);
}

static void what_does_not_fit_is_cut_and_said(void **state)
{
	struct dns_answer *a, *again;
	struct dns_query q = { .id = 1, .flags = DNS_RD, .type = 1, .klass = 1, .udp_size = 512, .edns = true };
	struct dns_reply r = { .ttl = 60, .ede = DNS_EDE_BLOCKED, .ede_text = "why" };

	(void)state;
	put_head(&m, 1, 0x8180, 1, 200, 0, 0);
	put_question(&m, "www.example.org", 1);
	for (uint32_t i = 0; i < 200; i++)
		put_a(&m, "www.example.org", 60, i);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &a), 0);
	q.name = name_of("www.example.org");
	r.answer = a;
	m.n = dns_reply_write(m.b, 512, &q, &r);
	assert_true(m.n <= 512 && m.n > 480);
	assert_true(at16(m.b + 2) & DNS_TC);
	assert_int_equal(at16(m.b + 10), 1);
	assert_int_equal(read_answer(&m, "www.example.org", 1, &again), 0);
	assert_int_equal(again->count, at16(m.b + 6));
	assert_in_range(again->count, 25, 30);
	dns_answer_unref(again);
	/* OPT with the extended error stands at the end. */
	assert_memory_equal(m.b + m.n - 9, "\0\17\0\5\0\17why", 9);
	m.n = dns_reply_write(m.b, 65535, &q, &r);
	assert_false(at16(m.b + 2) & DNS_TC);
	assert_int_equal(at16(m.b + 6), 200);
	dns_answer_unref(a);
}

static void a_negative_reply_carries_its_soa(void **state)
{
	struct dns_answer *a, *again;
	struct dns_query q = { .id = 1, .type = 1, .klass = 1, .udp_size = 512 };
	struct dns_reply r = { .rcode = DNS_NXDOMAIN, .ttl = 44 };

	(void)state;
	put_head(&m, 1, 0x8183, 1, 0, 1, 0);
	put_question(&m, "no.example.org", 1);
	put_soa(&m, "example.org", 900, 300);
	assert_int_equal(read_answer(&m, "no.example.org", 1, &a), 0);
	q.name = name_of("no.example.org");
	r.answer = a;
	m.n = dns_reply_write(m.b, 512, &q, &r);
	assert_int_equal(at16(m.b + 8), 1);
	assert_int_equal(read_answer(&m, "no.example.org", 1, &again), 0);
	assert_int_equal(again->rcode, DNS_NXDOMAIN);
	assert_int_equal(again->ttl, 44);
	dns_answer_unref(again);
	dns_answer_unref(a);
}

static void own_answers_are_like_others(void **state)
{
	struct ip addrs[2] = { { .b = { [10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18, [15] = 1 } },
			       { .b = { 0xfd, [15] = 1 } } };
	struct dns_query q = { .id = 1, .type = 28, .klass = 1, .udp_size = 512 };
	struct dns_answer *a = dns_answer_addrs(28, addrs, 2, 60), *again;
	struct dns_reply r = { .answer = a, .ttl = 60 };
	struct dns_name target = name_of("host.cubby.internal");

	(void)state;
	q.name = name_of("host.cubby.internal");
	m.n = dns_reply_write(m.b, 512, &q, &r);
	assert_int_equal(read_answer(&m, "host.cubby.internal", 28, &again), 0);
	assert_int_equal(again->count, 1);
	assert_memory_equal(again->data + 4, addrs[1].b, 16);
	dns_answer_unref(again);
	dns_answer_unref(a);
	r.answer = a = dns_answer_ptr(&target, 60);
	q.type = DNS_PTR;
	q.name = name_of("1.0.18.198.in-addr.arpa");
	m.n = dns_reply_write(m.b, 512, &q, &r);
	assert_int_equal(read_answer(&m, "1.0.18.198.in-addr.arpa", DNS_PTR, &again), 0);
	assert_memory_equal(again->data + 4, target.b, target.n);
	dns_answer_unref(again);
	dns_answer_unref(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_and_text_are_the_same_thing, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_name_with_other_bytes_has_no_text, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(pointers_lead_backwards_or_nowhere, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_name_ends_at_255_bytes, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(reverse_names_are_addresses, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_query_is_one_question, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_question_can_be_read, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(only_the_answer_to_the_question_matches, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(only_what_the_question_leads_to_is_kept, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(aliases_end, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(nothing_is_kept_as_long_as_its_zone_says, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(the_form_of_each_type_is_checked, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_message_ends_where_its_records_end, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(large_answers_cost_little, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_reply_says_what_the_answer_says, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(what_does_not_fit_is_cut_and_said, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_negative_reply_carries_its_soa, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(own_answers_are_like_others, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
