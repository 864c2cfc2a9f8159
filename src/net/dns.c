/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define HOPS_MAX  127 /* more pointers than a name can have labels lead nowhere */
#define POINTER   0xc000u
#define RDATA_MAX 65535u
#define TTL_MAX   0x7fffffffu /* RFC 2181, section 8: above it means 0 */

struct rr {
	struct dns_name owner;
	uint16_t type, klass;
	uint32_t ttl;
	size_t rdata, len; /* where it is in the message */
};

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

static void set16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void set32(uint8_t *p, uint32_t v)
{
	set16(p, v >> 16);
	set16(p + 2, v & 0xffff);
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? (uint8_t)(c | 0x20) : c;
}

/* ---- names */

int dns_name_read(const uint8_t *msg, size_t n, size_t *at, struct dns_name *ret)
{
	size_t pos = *at, part = pos, end = 0;
	struct dns_name name = { 0 };
	unsigned hops = 0;

	for (;;) {
		uint8_t len;

		if (pos >= n)
			return -EBADMSG;
		len = msg[pos];
		if ((len & 0xc0) == 0xc0) {
			size_t to;

			if (pos + 1 >= n || ++hops > HOPS_MAX)
				return -EBADMSG;
			to = get16(msg + pos) & 0x3fff;
			/* Each part begins in front of the one before: so it ends. */
			if (to >= part || to < DNS_HEAD)
				return -EBADMSG;
			if (hops == 1)
				end = pos + 2;
			part = pos = to;
			continue;
		}
		if (len & 0xc0 || pos + 1 + len > n || name.n + 1u + len > DNS_NAME_MAX)
			return -EBADMSG;
		memcpy(name.b + name.n, msg + pos, 1u + len);
		name.n = (uint8_t)(name.n + 1 + len);
		pos += 1u + len;
		if (len == 0)
			break;
		/* Without its end the name is too long already. */
		if (name.n >= DNS_NAME_MAX)
			return -EBADMSG;
	}
	*at = hops ? end : pos;
	*ret = name;
	return 0;
}

/* The bytes of lengths are below 'A': no need to tell them from letters. */
static bool same_bytes(const uint8_t *a, const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (lower(a[i]) != lower(b[i]))
			return false;
	return true;
}

bool dns_name_same(const struct dns_name *a, const struct dns_name *b)
{
	return a->n == b->n && same_bytes(a->b, b->b, a->n);
}

void dns_name_lower(struct dns_name *name)
{
	for (size_t i = 0; i < name->n; i++)
		name->b[i] = lower(name->b[i]);
}

/* Is `name` the zone, or below it? */
static bool name_within(const struct dns_name *name, const struct dns_name *zone)
{
	for (size_t at = 0; at < name->n; at += 1u + name->b[at]) {
		if ((size_t)(name->n - at) == zone->n && same_bytes(name->b + at, zone->b, zone->n))
			return true;
		if (name->b[at] == 0)
			break;
	}
	return false;
}

static bool plain_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

int dns_name_text(const struct dns_name *name, char ret[DNS_TEXT_MAX])
{
	char text[DNS_NAME_MAX];
	size_t n = 0;

	if (name->n < 2)
		return -EINVAL;
	for (size_t at = 0; name->b[at] != 0;) {
		uint8_t len = name->b[at++];

		for (uint8_t i = 0; i < len; i++) {
			uint8_t c = lower(name->b[at++]);

			if (!plain_char(c))
				return -EINVAL;
			text[n++] = (char)c;
		}
		text[n++] = '.';
	}
	/* The last dot gives way to the terminator: 255 bytes on the wire are at most 253 of text. */
	memcpy(ret, text, n - 1);
	ret[n - 1] = '\0';
	return 0;
}

int dns_name_of_text(const char *text, struct dns_name *ret)
{
	struct dns_name name = { .n = 1 };
	size_t start = 0;

	for (;; text++) {
		size_t len = name.n - start - 1u;

		if (*text == '.' || *text == '\0') {
			if (len == 0 || len > 63 || name.n >= DNS_NAME_MAX)
				return -EINVAL;
			name.b[start] = (uint8_t)len;
			start = name.n;
			name.b[name.n++] = 0;
			if (*text == '\0')
				break;
			continue;
		}
		if (!plain_char(lower((uint8_t)*text)) || name.n >= DNS_NAME_MAX)
			return -EINVAL;
		name.b[name.n++] = (uint8_t)*text;
	}
	*ret = name;
	return 0;
}

static int reverse4(const char *text, struct ip *ret)
{
	struct ip ip = { .b = { [10] = 0xff, [11] = 0xff } };

	for (int i = 15; i >= 12; i--) {
		unsigned v = 0, digits = 0;

		for (; *text >= '0' && *text <= '9' && digits < 3; digits++)
			v = v * 10 + (unsigned)(*text++ - '0');
		if (digits == 0 || v > 255 || *text++ != '.')
			return -EINVAL;
		ip.b[i] = (uint8_t)v;
	}
	if (strcmp(text, "in-addr.arpa") != 0)
		return -EINVAL;
	*ret = ip;
	return 0;
}

static int reverse6(const char *text, struct ip *ret)
{
	static const char hex[] = "0123456789abcdef";
	struct ip ip = { 0 };

	for (int i = 31; i >= 0; i--) {
		const char *digit = *text ? strchr(hex, *text) : NULL;

		if (!digit || text[1] != '.')
			return -EINVAL;
		ip.b[i / 2] |= (uint8_t)((digit - hex) << (i % 2 ? 0 : 4));
		text += 2;
	}
	if (strcmp(text, "ip6.arpa") != 0)
		return -EINVAL;
	*ret = ip;
	return 0;
}

int dns_name_reverse(const struct dns_name *name, struct ip *ret)
{
	char text[DNS_TEXT_MAX];

	if (dns_name_text(name, text) < 0)
		return -EINVAL;
	return reverse4(text, ret) == 0 ? 0 : reverse6(text, ret);
}

/* ---- records */

static int rr_read(const uint8_t *msg, size_t n, size_t *at, struct rr *ret)
{
	size_t pos = *at;

	if (dns_name_read(msg, n, &pos, &ret->owner) < 0 || n - pos < 10)
		return -EBADMSG;
	ret->type = get16(msg + pos);
	ret->klass = get16(msg + pos + 2);
	ret->ttl = get32(msg + pos + 4);
	if (ret->ttl > TTL_MAX)
		ret->ttl = 0;
	ret->len = get16(msg + pos + 8);
	ret->rdata = pos + 10;
	if (n - ret->rdata < ret->len)
		return -EBADMSG;
	*at = ret->rdata + ret->len;
	return 0;
}

static bool strings_ok(const uint8_t *p, size_t n)
{
	size_t at = 0;

	while (at < n)
		at += 1u + p[at];
	return n > 0 && at == n;
}

/* Numbers in front of, and behind, the names that the rdata of a type consists of; names < 0: a type with no names, or unknown. */
static bool rdata_shape(uint16_t type, size_t *ret_before, int *ret_names, size_t *ret_after)
{
	*ret_before = *ret_after = 0;
	*ret_names = 1;
	switch (type) {
	case DNS_NS:
	case DNS_CNAME:
	case DNS_PTR: return true;
	case DNS_MX: *ret_before = 2; return true;
	case DNS_SRV: *ret_before = 6; return true;
	case DNS_SOA:
		*ret_names = 2;
		*ret_after = 20;
		return true;
	default: return false;
	}
}

/* The rdata without compression, its form checked. Returns its length or -EBADMSG. out: RDATA_MAX bytes are enough. */
static ssize_t rdata_plain(const uint8_t *msg, size_t n, const struct rr *rr, uint8_t *out)
{
	const uint8_t *p = msg + rr->rdata;
	size_t end = rr->rdata + rr->len, at, before, after, len;
	int names;
	bool ok;

	if (!rdata_shape(rr->type, &before, &names, &after)) {
		switch (rr->type) {
		case DNS_A: ok = rr->len == 4; break;
		case DNS_AAAA: ok = rr->len == 16; break;
		case DNS_TXT: ok = strings_ok(p, rr->len); break;
		case DNS_CAA: ok = rr->len >= 3 && p[1] > 0 && 2u + p[1] <= rr->len; break;
		default: ok = false; break;
		}
		if (!ok)
			return -EBADMSG;
		memcpy(out, p, rr->len);
		return (ssize_t)rr->len;
	}
	if (rr->len < before)
		return -EBADMSG;
	memcpy(out, p, before);
	len = before;
	at = rr->rdata + before;
	while (names-- > 0) {
		struct dns_name name;

		/* A name must not run over the end of its record: the message ends there for it. */
		if (dns_name_read(msg, end < n ? end : n, &at, &name) < 0)
			return -EBADMSG;
		memcpy(out + len, name.b, name.n);
		len += name.n;
	}
	if (end - at != after)
		return -EBADMSG;
	memcpy(out + len, msg + at, after);
	return (ssize_t)(len + after);
}

/* ---- queries */

static int query_opt(const uint8_t *msg, size_t n, size_t at, unsigned records, struct dns_query *q)
{
	int r = 0;

	for (unsigned i = 0; i < records; i++) {
		struct rr rr;

		/* RFC 6891, 6.1.1: one OPT, owned by the root. Nothing else is understood behind a question. */
		if (rr_read(msg, n, &at, &rr) < 0 || rr.type != DNS_OPT || rr.owner.n != 1 || q->edns)
			return DNS_FORMERR;
		q->edns = true;
		q->udp_size = rr.klass < 512 ? 512 : rr.klass;
		if ((get32(msg + rr.rdata - 6) >> 16 & 0xff) != 0)
			r = DNS_BADVERS;
	}
	return at == n ? r : DNS_FORMERR;
}

int dns_query_read(const void *data, size_t n, struct dns_query *ret)
{
	const uint8_t *msg = data;
	struct dns_name name;
	size_t at = DNS_HEAD;

	if (n < DNS_HEAD || get16(msg + 2) & DNS_QR)
		return -EBADMSG;
	*ret = (struct dns_query){ .id = get16(msg), .flags = get16(msg + 2), .udp_size = 512 };
	if (ret->flags & DNS_OPCODE)
		return DNS_NOTIMP;
	if (get16(msg + 4) != 1 || get16(msg + 6) != 0 || get16(msg + 8) != 0 || ret->flags & DNS_TC)
		return DNS_FORMERR;
	if (dns_name_read(msg, n, &at, &name) < 0 || n - at < 4)
		return DNS_FORMERR;
	ret->type = get16(msg + at);
	ret->klass = get16(msg + at + 2);
	ret->name = name;
	return query_opt(msg, n, at + 4, get16(msg + 10), ret);
}

size_t dns_question_write(uint8_t ret[DNS_QUESTION_MAX], uint16_t id, const struct dns_name *name, uint16_t type,
			  uint16_t edns)
{
	size_t at = DNS_HEAD;

	memset(ret, 0, DNS_QUESTION_MAX);
	set16(ret, id);
	set16(ret + 2, DNS_RD);
	set16(ret + 4, 1);
	memcpy(ret + at, name->b, name->n);
	at += name->n;
	set16(ret + at, type);
	set16(ret + at + 2, DNS_CLASS_IN);
	at += 4;
	if (edns) {
		set16(ret + 10, 1);
		set16(ret + at + 1, DNS_OPT);
		set16(ret + at + 3, edns);
		at += 11;
	}
	return at;
}

/* ---- answers of name servers */

int dns_reply_match(const void *data, size_t n, uint16_t id, const struct dns_name *name, uint16_t type,
		    uint16_t *ret_flags)
{
	const uint8_t *msg = data;
	struct dns_name asked;
	size_t at = DNS_HEAD;

	if (n < DNS_HEAD || !(get16(msg + 2) & DNS_QR) || get16(msg + 2) & DNS_OPCODE)
		return -EBADMSG;
	if (get16(msg) != id)
		return -ESTALE;
	if (get16(msg + 4) != 1 || dns_name_read(msg, n, &at, &asked) < 0 || n - at < 4)
		return -EBADMSG;
	if (!dns_name_same(&asked, name) || get16(msg + at) != type || get16(msg + at + 2) != DNS_CLASS_IN)
		return -ESTALE;
	*ret_flags = get16(msg + 2);
	return memcmp(asked.b, name->b, name->n) == 0 ? 0 : -EILSEQ;
}

/* One record of the answer section, so that its owner is read once however long the chain is. */
struct seen {
	uint32_t owner_sum; /* quick no */
	uint32_t at; /* in the message */
	uint16_t type;
};

struct reading {
	const uint8_t *msg;
	size_t n;
	struct seen *seen;
	unsigned nseen;
	size_t after; /* where the authority section begins */
	struct dns_answer *answer;
	size_t room;
	uint8_t plain[RDATA_MAX];
};

static uint32_t name_sum(const struct dns_name *name)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < name->n; i++)
		h = (h ^ lower(name->b[i])) * 16777619u;
	return h;
}

/* Walk through all sections, whatever is in them: a message that is broken at its end is not trusted at its beginning. */
static int read_all(struct reading *rd)
{
	unsigned an = get16(rd->msg + 6), rest = get16(rd->msg + 8) + (unsigned)get16(rd->msg + 10);
	struct dns_name question;
	size_t at = DNS_HEAD;
	struct rr rr;

	if (dns_name_read(rd->msg, rd->n, &at, &question) < 0 || rd->n - at < 4)
		return -EBADMSG;
	at += 4;
	/* A record takes 11 bytes at least. */
	if ((size_t)(an + rest) * 11 > rd->n - at)
		return -EBADMSG;
	rd->seen = calloc(an ? an : 1, sizeof(*rd->seen));
	if (!rd->seen)
		return -ENOMEM;
	for (unsigned i = 0; i < an; i++) {
		size_t begin = at;

		if (rr_read(rd->msg, rd->n, &at, &rr) < 0)
			return -EBADMSG;
		if (rr.klass == DNS_CLASS_IN)
			rd->seen[rd->nseen++] = (struct seen){ name_sum(&rr.owner), (uint32_t)begin, rr.type };
	}
	rd->after = at;
	while (rest-- > 0)
		if (rr_read(rd->msg, rd->n, &at, &rr) < 0)
			return -EBADMSG;
	return at == rd->n ? 0 : -EBADMSG;
}

static int answer_put(struct reading *rd, const void *data, size_t n)
{
	struct dns_answer *a = rd->answer;

	if (rd->room - a->len < n) {
		size_t room = rd->room * 2 + n;

		a = realloc(a, sizeof(*a) + room);
		if (!a)
			return -ENOMEM;
		rd->answer = a;
		rd->room = room;
	}
	memcpy(a->data + a->len, data, n);
	a->len += n;
	return 0;
}

static int answer_add(struct reading *rd, const struct rr *rr)
{
	ssize_t len = rdata_plain(rd->msg, rd->n, rr, rd->plain);
	uint8_t head[4];
	int r;

	if (len < 0)
		return (int)len;
	set16(head, rr->type);
	set16(head + 2, (unsigned)len);
	r = answer_put(rd, head, sizeof(head));
	if (r == 0)
		r = answer_put(rd, rd->plain, (size_t)len);
	if (r < 0)
		return r;
	rd->answer->count++;
	if (rr->ttl < rd->answer->ttl)
		rd->answer->ttl = rr->ttl;
	return 0;
}

/* Take the records of this owner and type. Returns how many, or a negative errno. */
static int take(struct reading *rd, const struct dns_name *owner, uint16_t type, int max)
{
	uint32_t sum = name_sum(owner);
	int found = 0;

	for (unsigned i = 0; i < rd->nseen && found < max; i++) {
		size_t at = rd->seen[i].at;
		struct rr rr;
		int r;

		if (rd->seen[i].type != type || rd->seen[i].owner_sum != sum)
			continue;
		if (rr_read(rd->msg, rd->n, &at, &rr) < 0 || !dns_name_same(&rr.owner, owner))
			continue;
		r = answer_add(rd, &rr);
		if (r < 0)
			return r;
		found++;
	}
	return found;
}

/* RFC 2308, section 5: how long nothing stays nothing. Without a SOA of a zone that the name is in, not at all. */
static int take_soa(struct reading *rd, const struct dns_name *name)
{
	unsigned ns = get16(rd->msg + 8);
	size_t at = rd->after;
	struct rr rr;

	while (ns-- > 0) {
		uint32_t minimum, ttl;
		ssize_t len;
		int r;

		if (rr_read(rd->msg, rd->n, &at, &rr) < 0)
			return -EBADMSG;
		if (rr.type != DNS_SOA || rr.klass != DNS_CLASS_IN || !name_within(name, &rr.owner))
			continue;
		len = rdata_plain(rd->msg, rd->n, &rr, rd->plain);
		if (len < 0)
			return (int)len;
		minimum = get32(rd->plain + len - 4);
		ttl = minimum < rr.ttl ? minimum : rr.ttl;
		if (ttl < rd->answer->ttl)
			rd->answer->ttl = ttl;
		rd->answer->soa = rd->answer->len;
		r = answer_put(rd, rr.owner.b, rr.owner.n);
		return r < 0 ? r : answer_put(rd, rd->plain, (size_t)len);
	}
	rd->answer->ttl = 0;
	rd->answer->soa = rd->answer->len;
	return 0;
}

/* From the question along the CNAMEs to what was asked for. */
static int follow(struct reading *rd, const struct dns_name *name, uint16_t type)
{
	struct dns_name cur = *name;

	for (unsigned step = 0;; step++) {
		int r = take(rd, &cur, type, DNS_KEEP_MAX);
		size_t at = 0;

		if (r < 0)
			return r;
		if (r > 0) {
			rd->answer->soa = rd->answer->len;
			/* Records of a name that doesn't exist. */
			return rd->answer->rcode == DNS_NOERROR ? 0 : -EBADMSG;
		}
		r = type == DNS_CNAME ? 0 : take(rd, &cur, DNS_CNAME, 1);
		if (r < 0)
			return r;
		if (r == 0)
			return take_soa(rd, &cur);
		if (step >= DNS_CHAIN_MAX)
			return -ELOOP;
		/* take() left the target in `plain`. */
		if (dns_name_read(rd->plain, DNS_NAME_MAX, &at, &cur) < 0)
			return -EBADMSG;
	}
}

int dns_answer_read(const void *data, size_t n, const struct dns_name *name, uint16_t type, struct dns_answer **ret)
{
	struct reading *rd;
	int r;

	if (n < DNS_HEAD)
		return -EBADMSG;
	rd = malloc(sizeof(*rd));
	if (!rd)
		return -ENOMEM;
	memset(rd, 0, offsetof(struct reading, plain));
	rd->msg = data;
	rd->n = n;
	rd->room = 128;
	rd->answer = malloc(sizeof(*rd->answer) + rd->room);
	r = rd->answer ? 0 : -ENOMEM;
	if (r == 0) {
		*rd->answer = (struct dns_answer){
			.refs = 1,
			.type = type,
			.rcode = (uint8_t)(get16(rd->msg + 2) & DNS_RCODE),
			.ttl = TTL_MAX,
		};
		if (rd->answer->rcode != DNS_NOERROR && rd->answer->rcode != DNS_NXDOMAIN)
			r = -EBADMSG;
	}
	if (r == 0)
		r = read_all(rd);
	if (r == 0)
		r = follow(rd, name, type);
	if (r == 0) {
		*ret = rd->answer;
		rd->answer = NULL;
	}
	free(rd->answer);
	free(rd->seen);
	free(rd);
	return r;
}

struct dns_answer *dns_answer_ref(struct dns_answer *a)
{
	a->refs++;
	return a;
}

void dns_answer_unref(struct dns_answer *a)
{
	if (a && --a->refs == 0)
		free(a);
}

bool dns_answer_each(const struct dns_answer *a, size_t *at, uint16_t *ret_type, const uint8_t **ret_rdata,
		     size_t *ret_len)
{
	const uint8_t *p = a->data + *at;

	if (*at >= a->soa)
		return false;
	*ret_type = get16(p);
	*ret_len = get16(p + 2);
	*ret_rdata = p + 4;
	*at += 4 + *ret_len;
	return true;
}

struct ip dns_addr(uint16_t type, const uint8_t *rdata)
{
	struct ip ip = { .b = { [10] = 0xff, [11] = 0xff } };

	if (type == DNS_A)
		memcpy(ip.b + 12, rdata, 4);
	else
		memcpy(ip.b, rdata, 16);
	return ip;
}

struct dns_answer *dns_answer_addrs(uint16_t type, const struct ip *addrs, size_t n, uint32_t ttl)
{
	size_t len = type == DNS_A ? 4 : 16;
	struct dns_answer *a = malloc(sizeof(*a) + n * (4 + len));

	if (!a)
		return NULL;
	*a = (struct dns_answer){ .refs = 1, .type = type, .ttl = ttl };
	for (size_t i = 0; i < n; i++) {
		uint8_t *p = a->data + a->len;

		if (ip_is4(&addrs[i]) != (type == DNS_A))
			continue;
		set16(p, type);
		set16(p + 2, (unsigned)len);
		memcpy(p + 4, addrs[i].b + 16 - len, len);
		a->len += 4 + len;
		a->count++;
	}
	a->soa = a->len;
	return a;
}

struct dns_answer *dns_answer_ptr(const struct dns_name *target, uint32_t ttl)
{
	struct dns_answer *a = malloc(sizeof(*a) + 4 + target->n);

	if (!a)
		return NULL;
	*a = (struct dns_answer){ .refs = 1, .type = DNS_PTR, .ttl = ttl, .count = 1, .len = 4u + target->n };
	a->soa = a->len;
	set16(a->data, DNS_PTR);
	set16(a->data + 2, target->n);
	memcpy(a->data + 4, target->b, target->n);
	return a;
}

/* ---- answering */

struct writing {
	uint8_t *buf;
	size_t at, room; /* room: what the OPT record at the end needs is already taken off */
};

static bool rr_write(struct writing *w, const uint8_t *owner, size_t owner_len, uint16_t type, uint32_t ttl,
		     const uint8_t *rdata, size_t len)
{
	uint8_t *p = w->buf + w->at;

	if (w->room - w->at < owner_len + 10 + len)
		return false;
	memcpy(p, owner, owner_len);
	p += owner_len;
	set16(p, type);
	set16(p + 2, DNS_CLASS_IN);
	set32(p + 4, ttl);
	set16(p + 8, (unsigned)len);
	memcpy(p + 10, rdata, len);
	w->at += owner_len + 10 + len;
	return true;
}

static bool address_kept(const struct dns_reply *r, uint16_t type, const uint8_t *rdata)
{
	struct ip ip;

	if (!r->keep || (type != DNS_A && type != DNS_AAAA))
		return true;
	ip = dns_addr(type, rdata);
	return r->keep(r->arg, &ip);
}

/* Returns how many were written; *ret_cut: some didn't fit. */
static unsigned answer_write(struct writing *w, const struct dns_reply *r, bool *ret_cut)
{
	const uint8_t *rdata;
	size_t at = 0, len, owner = DNS_HEAD;
	unsigned count = 0;
	uint16_t type;

	while (dns_answer_each(r->answer, &at, &type, &rdata, &len)) {
		uint8_t pointer[2];

		if (!address_kept(r, type, rdata))
			continue;
		set16(pointer, POINTER | (unsigned)owner);
		if (*ret_cut || !rr_write(w, pointer, 2, type, r->ttl, rdata, len)) {
			/* Go on: each address is shown to keep(). */
			*ret_cut = true;
			continue;
		}
		/* What follows a CNAME belongs to its target, which stands uncompressed where it was just written. */
		if (type == DNS_CNAME && r->answer->type != DNS_CNAME)
			owner = w->at - len;
		count++;
	}
	return count;
}

static bool soa_write(struct writing *w, const struct dns_reply *r)
{
	const struct dns_answer *a = r->answer;
	struct dns_name owner;
	size_t at = a->soa;

	if (a->soa >= a->len || dns_name_read(a->data, a->len, &at, &owner) < 0)
		return false;
	return rr_write(w, owner.b, owner.n, DNS_SOA, r->ttl, a->data + at, a->len - at);
}

static void opt_write(struct writing *w, const struct dns_reply *r, uint16_t size, size_t text_len)
{
	uint8_t *p = w->buf + w->at;

	memset(p, 0, 11);
	set16(p + 1, DNS_OPT);
	set16(p + 3, size);
	p[5] = (uint8_t)(r->rcode >> 4);
	w->at += 11;
	if (r->ede == 0)
		return;
	set16(p + 9, (unsigned)(6 + text_len));
	set16(p + 11, 15); /* RFC 8914, section 2 */
	set16(p + 13, (unsigned)(2 + text_len));
	set16(p + 15, r->ede);
	memcpy(p + 17, r->ede_text, text_len);
	w->at += 6 + text_len;
}

size_t dns_reply_write(uint8_t *buf, size_t room, const struct dns_query *q, const struct dns_reply *r)
{
	size_t text_len = q->edns && r->ede && r->ede_text ? strnlen(r->ede_text, DNS_EDE_TEXT_MAX) : 0;
	struct writing w = { .buf = buf, .at = DNS_HEAD, .room = room - (q->edns ? 17 + text_len : 0) };
	unsigned flags = DNS_QR | DNS_RA | (q->flags & (DNS_OPCODE | DNS_RD)) | (r->rcode & DNS_RCODE);
	unsigned an = 0, ns = 0;
	bool cut = false;

	memset(buf, 0, DNS_HEAD);
	if (q->name.n > 0) {
		memcpy(buf + w.at, q->name.b, q->name.n);
		w.at += q->name.n;
		set16(buf + w.at, q->type);
		set16(buf + w.at + 2, q->klass);
		w.at += 4;
	}
	if (r->answer && q->name.n > 0) {
		an = answer_write(&w, r, &cut);
		if (!cut)
			ns = soa_write(&w, r);
	}
	w.room = room;
	if (q->edns)
		opt_write(&w, r, 4096, text_len);
	set16(buf, q->id);
	set16(buf + 2, flags | (cut ? DNS_TC : 0));
	set16(buf + 4, q->name.n > 0);
	set16(buf + 6, an);
	set16(buf + 8, ns);
	set16(buf + 10, q->edns);
	return w.at;
}
