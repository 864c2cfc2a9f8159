/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the Domain Name System, as a box and as a name server might send them. A query that is accepted is answered with a message that its
 * own question matches; an answer that is accepted, written for a box and read again, says the same.
 */
#include <stdlib.h>
#include <string.h>

#include "net/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint8_t out[65535];

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void as_name(const uint8_t *data, size_t n)
{
	struct dns_name name, again;
	char text[DNS_TEXT_MAX];
	size_t at = n > DNS_HEAD ? DNS_HEAD : 0;
	struct ip ip;

	if (dns_name_read(data, n, &at, &name) < 0)
		return;
	must(at <= n && name.n >= 1 && name.b[name.n - 1] == 0 && dns_name_same(&name, &name));
	(void)dns_name_reverse(&name, &ip);
	if (dns_name_text(&name, text) < 0)
		return;
	must(strlen(text) == name.n - 2u && dns_name_of_text(text, &again) == 0 && dns_name_same(&name, &again));
}

static bool keep(void *arg, const struct ip *addr)
{
	unsigned *n = arg;

	(void)addr;
	++*n;
	return true;
}

static void as_query(const uint8_t *data, size_t n)
{
	struct dns_reply r = { .rcode = DNS_NXDOMAIN, .ede = DNS_EDE_BLOCKED, .ede_text = "why" };
	struct dns_query q;
	uint16_t flags;
	size_t len;
	int c = dns_query_read(data, n, &q);

	if (c < 0)
		return;
	if (c > 0)
		r.rcode = (uint16_t)c;
	len = dns_reply_write(out, 512, &q, &r);
	must(len >= DNS_HEAD && len <= 512 && (out[3] & DNS_RCODE) == (r.rcode & DNS_RCODE));
	if (c == 0 && q.klass == DNS_CLASS_IN)
		must(dns_reply_match(out, len, q.id, &q.name, q.type, &flags) == 0);
}

static void as_answer(const uint8_t *data, size_t n)
{
	struct dns_query q = { .flags = DNS_RD, .klass = DNS_CLASS_IN, .udp_size = 512, .edns = true };
	struct dns_answer *a = NULL, *b = NULL;
	struct dns_reply r = { .ttl = 7, .keep = keep };
	unsigned addrs = 0;
	size_t at = DNS_HEAD, len;
	uint16_t flags;

	if (n < DNS_HEAD + 5 || dns_name_read(data, n, &at, &q.name) < 0 || n - at < 4)
		return;
	q.type = (uint16_t)(data[at] << 8 | data[at + 1]);
	(void)dns_reply_match(data, n, (uint16_t)(data[0] << 8 | data[1]), &q.name, q.type, &flags);
	if (dns_answer_read(data, n, &q.name, q.type, &a) < 0)
		return;
	must(a->soa <= a->len && a->count <= DNS_KEEP_MAX + DNS_CHAIN_MAX + 1);
	r.answer = a;
	r.rcode = a->rcode;
	r.arg = &addrs;
	len = dns_reply_write(out, 512, &q, &r);
	must(len <= 512 && dns_answer_read(out, len, &q.name, q.type, &b) == 0 && b->count <= a->count);
	dns_answer_unref(b);
	b = NULL;
	len = dns_reply_write(out, sizeof(out), &q, &r);
	must(dns_answer_read(out, len, &q.name, q.type, &b) == 0);
	if (!(out[2] & DNS_TC >> 8))
		must(b->count == a->count && b->rcode == a->rcode && b->soa == a->soa && b->len == a->len &&
		     memcmp(b->data, a->data, a->len) == 0);
	must(addrs <= 2 * a->count);
	dns_answer_unref(b);
	dns_answer_unref(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	as_name(data, n);
	as_query(data, n);
	as_answer(data, n);
	return 0;
}
