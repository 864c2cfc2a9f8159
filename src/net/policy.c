/* SPDX-License-Identifier: Apache-2.0 */
#include "net/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

/*
 * All items lie in one array in the order of the text, presets expanded in place. What is looked up (names, name suffixes,
 * ranges) is found through one hash table whose size follows the number of items, so a decision costs one probe for each label
 * of a name or each prefix length in use, however long the list is.
 */

#define ITEMS_MAX 200000u
#define PORTS_MAX 16u
#define NEST_MAX 8u
#define USES_MAX 10000u	/* of presets in one policy: lists of lists of lists take time also when they are empty */

enum kind { ITEM_INTERNET, ITEM_ASK, ITEM_NAME, ITEM_BELOW, ITEM_RANGE, ITEM_LAN, ITEM_HOST_PORT };

struct ports {
	uint8_t n;	/* 0: every port */
	struct {
		uint16_t low, high;
	} r[PORTS_MAX];
};

struct item {
	enum kind kind;
	struct ports ports;
	struct cidr range;
	uint32_t name;		/* offset in `text`: of the name, or of the name below "*." */
	uint32_t rule;		/* offset in `text`: the item for people */
	uint32_t hash;
	uint32_t next;		/* of the same slot, index + 1; 0: none */
};

struct policy {
	unsigned refs;
	bool none, internet, ask, names, wider;
	struct item *items;
	uint32_t nitems, room;
	struct buf text;	/* strings of the items */
	struct buf canon;
	uint32_t *slots;	/* index + 1 */
	uint32_t nslots;	/* a power of two */
	uint64_t lens[2][3];	/* prefix lengths in use: of ITEM_RANGE, of ITEM_LAN */
};

/* ---------------------------------------------------------------- small things */

/* FNV-1a, with a finish: the tables are made from the user's own lists, no stranger chooses the keys. */
static uint32_t hash_of(enum kind kind, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint32_t h = 2166136261u ^ (uint32_t)kind * 0x9e3779b1u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 16777619u;
	h ^= h >> 15;
	return h * 0x85ebca6bu;
}

static uint32_t hash_range(enum kind kind, const struct cidr *c)
{
	uint8_t key[17];

	memcpy(key, c->ip.b, 16);
	key[16] = c->bits;
	return hash_of(kind, key, sizeof(key));
}

static bool port_in(const struct ports *p, uint16_t port)
{
	if (p->n == 0 || port == 0)
		return true;
	for (unsigned i = 0; i < p->n; i++)
		if (port >= p->r[i].low && port <= p->r[i].high)
			return true;
	return false;
}

int host_name_parse(const char *s, size_t n, char ret[HOST_NAME_MAX_LEN + 1])
{
	size_t label = 0;

	if (n == 0 || n > HOST_NAME_MAX_LEN)
		return -EINVAL;
	for (size_t i = 0; i <= n; i++) {
		char c = i < n ? s[i] : '.';

		if (c == '.') {
			if (label == 0 || label > 63 || s[i - 1] == '-')
				return -EINVAL;
			label = 0;
			continue;
		}
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
		      (c == '-' && label > 0)))
			return -EINVAL;
		label++;
	}
	for (size_t i = 0; i < n; i++)
		ret[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i];
	ret[n] = '\0';
	return 0;
}

/* ---------------------------------------------------------------- reading */

struct reading {
	struct policy *p;
	const struct presets *presets;
	struct err *e;
	const char *from;	/* the preset that the item comes from, or NULL */
	size_t at;		/* of the item, in the text that the person gave; from 1 */
	const char *stack[NEST_MAX];
	unsigned depth, uses;
	bool words;		/* any item at all */
};

static int bad(struct reading *r, const char *item, const char *text)
{
	if (r->from)
		return err_why(r->e, WHY_BAD_REQUEST, -EINVAL, "network policy, character %zu: in preset @%s: '%.80s' %s", r->at,
			       r->from, item, text);
	return err_why(r->e, WHY_BAD_REQUEST, -EINVAL, "network policy, character %zu: '%.80s' %s", r->at, item, text);
}

static int one_port(const char *s, size_t n, uint16_t *ret)
{
	char word[8];
	uint64_t v;

	if (n == 0 || n >= sizeof(word))
		return -EINVAL;
	memcpy(word, s, n);
	word[n] = '\0';
	if (parse_u64(word, 65535, &v) < 0 || v == 0)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

static int one_span(const char *s, size_t n, struct ports *ret)
{
	const char *dash = memchr(s, '-', n);
	uint16_t low, high;

	if (ret->n == PORTS_MAX)
		return -EINVAL;
	if (!dash) {
		if (one_port(s, n, &low) < 0)
			return -EINVAL;
		high = low;
	} else if (one_port(s, (size_t)(dash - s), &low) < 0 || one_port(dash + 1, n - (size_t)(dash + 1 - s), &high) < 0 ||
		   low > high) {
		return -EINVAL;
	}
	ret->r[ret->n].low = low;
	ret->r[ret->n++].high = high;
	return 0;
}

static int ports_parse(const char *s, struct ports *ret)
{
	size_t n = strlen(s);

	*ret = (struct ports){ 0 };
	if (s[0] != '{')
		return one_span(s, n, ret);
	if (n < 3 || s[n - 1] != '}')
		return -EINVAL;
	for (const char *p = s + 1; p < s + n;) {
		size_t len = strcspn(p, ",}");

		if (one_span(p, len, ret) < 0)
			return -EINVAL;
		p += len + 1;
	}
	return 0;
}

static int put_string(struct policy *p, const char *s, uint32_t *ret)
{
	*ret = (uint32_t)p->text.len;
	return buf_put(&p->text, s, strlen(s) + 1);
}

static int add(struct reading *r, struct item *it, const char *word)
{
	struct policy *p = r->p;
	char rule[512];

	if (p->nitems == ITEMS_MAX)
		return err_why(r->e, WHY_LIMIT, -E2BIG, "the network policy has more than %u items", ITEMS_MAX);
	if (r->from)
		(void)snprintf(rule, sizeof(rule), "%.300s (@%.100s)", word, r->from);
	else
		(void)snprintf(rule, sizeof(rule), "%.400s", word);
	if (put_string(p, rule, &it->rule) < 0)
		return err_set(r->e, -ENOMEM, "cannot read the network policy");
	if (p->nitems == p->room) {
		uint32_t room = p->room ? 2 * p->room : 16;
		struct item *more = reallocarray(p->items, room, sizeof(*more));

		if (!more)
			return err_set(r->e, -ENOMEM, "cannot read the network policy");
		p->items = more;
		p->room = room;
	}
	p->items[p->nitems++] = *it;
	return 0;
}

static int add_name(struct reading *r, const char *word, const char *host, struct item *it)
{
	char name[HOST_NAME_MAX_LEN + 1];
	const char *dot;
	uint64_t v;

	it->kind = ITEM_NAME;
	if (host[0] == '*' && host[1] == '.') {
		it->kind = ITEM_BELOW;
		host += 2;
	}
	if (strchr(host, '*'))
		return bad(r, word, "has a '*' that is not its first part: write *.example.org");
	if (host_name_parse(host, strlen(host), name) < 0)
		return bad(r, word, "is neither a host name (ASCII, no final dot), *.NAME, an address or range, @PRESET, "
				    "lan=CIDR, host-port=PORT, nor one of none, internet, ask");
	dot = strrchr(name, '.');
	/* 300.1.1.1, 1.2.3: nobody's name ends in a number (RFC 3696, 2). */
	if (parse_u64(dot ? dot + 1 : name, UINT64_MAX, &v) == 0)
		return bad(r, word, "is not a whole address: four numbers up to 255 with dots between, or IPv6");
	if (!dot && it->kind == ITEM_NAME)
		return bad(r, word, "is a name without a dot, which no resolver outside knows; is it a preset? (@NAME)");
	if (put_string(r->p, name, &it->name) < 0)
		return err_set(r->e, -ENOMEM, "cannot read the network policy");
	it->hash = hash_of(it->kind, name, strlen(name));
	return add(r, it, word);
}

static int add_range(struct reading *r, const char *word, const char *range, bool lan, struct item *it)
{
	const char *kind;
	char text[256];
	int c = cidr_parse(range, &it->range);

	if (c == -EDOM)
		return bad(r, word, "has bits set behind its prefix: is a smaller prefix meant, or one address without '/'?");
	if (c < 0)
		return bad(r, word, lan ? "needs an address or range: lan=192.168.1.0/24 or lan=192.168.1.5:80" :
					  "is not an address or range");
	kind = ip_forbidden(&it->range.ip);
	it->kind = lan ? ITEM_LAN : ITEM_RANGE;
	if (lan && (!kind || it->range.bits == 0 || (ip_is4(&it->range.ip) && it->range.bits == 96)))
		return bad(r, word, "is not a local range: public addresses are written without lan=");
	if (lan && ip_never(&it->range.ip)) {
		(void)snprintf(text, sizeof(text), "is %s: no policy lets a box there%s", kind,
			       strstr(kind, "loopback") ? " (a service of the host: host-port=PORT)" : "");
		return bad(r, word, text);
	}
	/* What is reserved for documentation is nobody's, and stands for public addresses where a network is rehearsed. */
	if (!lan && kind && !strstr(kind, "documentation") && it->range.bits >= (ip_is4(&it->range.ip) ? 96 + 8 : 3)) {
		(void)snprintf(text, sizeof(text), "is %s: to allow it say lan=%.60s", kind, word);
		return bad(r, word, text);
	}
	it->hash = hash_range(it->kind, &it->range);
	r->p->lens[lan][it->range.bits >> 6] |= 1ull << (it->range.bits & 63);
	return add(r, it, word);
}

/* Cuts ":PORT" off `s`. An IPv6 address with a port is in brackets, which go. */
static int cut_ports(struct reading *r, const char *word, char *s, struct ports *ret)
{
	char *colon = strrchr(s, ':'), *end = strrchr(s, ']');

	*ret = (struct ports){ 0 };
	if (s[0] == '[') {
		if (!end || (end[1] && end[1] != ':'))
			return bad(r, word, "has a '[' without its ']': write [2001:db8::/32]:443");
		colon = end[1] == ':' ? end + 1 : NULL;
	} else if (colon && memchr(s, ':', (size_t)(colon - s))) {
		colon = NULL;	/* IPv6 without brackets has no port */
	}
	if (colon) {
		if (ports_parse(colon + 1, ret) < 0)
			return bad(r, word, "has a port that is not a number from 1 to 65535, a range A-B, or a list {80,443}");
		*colon = '\0';
	}
	if (s[0] == '[') {
		*end = '\0';
		memmove(s, s + 1, strlen(s));
	}
	return 0;
}

static int read_items(struct reading *r, const char *text, bool outer);

static const char *preset_find(const struct presets *ps, const char *name);

static int add_preset(struct reading *r, const char *word)
{
	const char *items = preset_find(r->presets, word + 1), *was = r->from;
	int c;

	if (!items && strchr(word, ':'))
		return bad(r, word, "has a port, which a preset can't have: its items name their own");
	if (!items)
		return bad(r, word, "is not a preset: 'cubby net presets' lists them");
	for (unsigned i = 0; i < r->depth; i++)
		if (strcmp(r->stack[i], word + 1) == 0)
			return bad(r, word, "contains itself");
	if (r->depth == NEST_MAX)
		return bad(r, word, "is nested too deeply");
	if (r->uses++ == USES_MAX)
		return err_why(r->e, WHY_LIMIT, -E2BIG, "the network policy uses presets more than %u times", USES_MAX);
	r->stack[r->depth++] = word + 1;
	r->from = word + 1;
	c = read_items(r, items, false);
	r->from = was;
	r->depth--;
	return c;
}

static int read_item(struct reading *r, char *word)
{
	struct policy *p = r->p;
	struct item it = { 0 };
	char rest[640];
	int c;

	if (strlen(word) >= sizeof(rest) - 1)
		return bad(r, word, "is too long");
	if (p->none)
		return bad(r, word, "stands beside 'none', which stands alone");
	if (strcmp(word, "none") == 0) {
		if (r->words)
			return bad(r, word, "stands alone, or not at all");
		p->none = r->words = true;
		return 0;
	}
	if (strcasecmp(word, "none") == 0 || strcasecmp(word, "internet") == 0 || strcasecmp(word, "ask") == 0) {
		for (const char *s = word; *s; s++)
			if (*s >= 'A' && *s <= 'Z')
				return bad(r, word, "is written in lower case: none, internet, ask");
	}
	r->words = true;
	if (strcmp(word, "internet") == 0 || strcmp(word, "ask") == 0) {
		if (r->from)
			return bad(r, word, "can't be part of a preset");
		it.kind = word[0] == 'i' ? ITEM_INTERNET : ITEM_ASK;
		*(word[0] == 'i' ? &p->internet : &p->ask) = true;
		return add(r, &it, word);
	}
	if (word[0] == '@')
		return add_preset(r, word);
	if (strncmp(word, "host-port=", 10) == 0) {
		if (r->from)
			return bad(r, word, "can't be part of a preset");
		if (ports_parse(word + 10, &it.ports) < 0)
			return bad(r, word, "needs a port: host-port=5432, host-port=8000-8010 or host-port={80,443}");
		it.kind = ITEM_HOST_PORT;
		p->wider = true;
		return add(r, &it, word);
	}
	if (strncmp(word, "lan=", 4) == 0) {
		if (r->from)
			return bad(r, word, "can't be part of a preset");
		(void)snprintf(rest, sizeof(rest), "%.630s", word + 4);
		c = cut_ports(r, word, rest, &it.ports);
		p->wider = true;
		return c < 0 ? c : add_range(r, word, rest, true, &it);
	}
	(void)snprintf(rest, sizeof(rest), "%.630s", word);
	c = cut_ports(r, word, rest, &it.ports);
	if (c < 0)
		return c;
	if (strchr(rest, '/') || strchr(rest, ':') || ip_parse(rest, &it.range.ip) == 0)
		return add_range(r, word, rest, false, &it);
	return add_name(r, word, rest, &it);
}

/* Items end at blanks and commas, but not at commas in braces. */
static int read_items(struct reading *r, const char *text, bool outer)
{
	const char *s = text;

	while (*s) {
		char word[640];
		size_t n = 0;
		bool braces = false;
		int c;

		if (strchr(", \t\n", *s)) {
			s++;
			continue;
		}
		for (; s[n] && (braces || !strchr(", \t\n", s[n])); n++)
			braces = s[n] == '{' || (braces && s[n] != '}');
		if (outer)
			r->at = (size_t)(s - text) + 1;
		if (n >= sizeof(word))
			return bad(r, s, "is too long");
		memcpy(word, s, n);
		word[n] = '\0';
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)word[i] < 0x21 || (unsigned char)word[i] > 0x7e)
				return err_why(r->e, WHY_BAD_REQUEST, -EINVAL,
					       "network policy, character %zu: only printable ASCII is allowed; names with other letters "
					       "are written in their ASCII form (xn--…)",
					       r->at + i);
		c = read_item(r, word);
		if (c < 0)
			return c;
		if (outer && (buf_puts(&r->p->canon, r->p->canon.len ? "," : "") < 0 || buf_puts(&r->p->canon, word) < 0))
			return err_set(r->e, -ENOMEM, "cannot read the network policy");
		s += n;
	}
	return 0;
}

static int index_items(struct policy *p)
{
	uint32_t n = 16;

	while (n < 2 * p->nitems)
		n *= 2;
	p->slots = calloc(n, sizeof(*p->slots));
	if (!p->slots)
		return -ENOMEM;
	p->nslots = n;
	/* From the last to the first: of equal items the first one is found. */
	for (uint32_t i = p->nitems; i-- > 0;) {
		struct item *it = &p->items[i];

		if (it->kind < ITEM_NAME || it->kind > ITEM_LAN)
			continue;
		it->next = p->slots[it->hash & (n - 1)];
		p->slots[it->hash & (n - 1)] = i + 1;
		if (it->kind == ITEM_NAME || it->kind == ITEM_BELOW)
			p->names = true;
	}
	return 0;
}

int policy_parse(const char *text, const struct presets *presets, struct policy **ret, struct err *e)
{
	struct policy *p = calloc(1, sizeof(*p));
	struct reading r = { .p = p, .presets = presets, .e = e };
	int c;

	if (!p)
		return err_set(e, -ENOMEM, "cannot read the network policy");
	p->refs = 1;
	p->text.max = 64u << 20;
	p->canon.max = POLICY_TEXT_MAX + 1;
	if (strlen(text) > POLICY_TEXT_MAX)
		c = err_why(e, WHY_LIMIT, -E2BIG, "the network policy is longer than %u bytes", POLICY_TEXT_MAX);
	else
		c = read_items(&r, text, true);
	if (c == 0 && !r.words)
		c = err_why(e, WHY_BAD_REQUEST, -EINVAL,
			    "the network policy is empty: say none, internet, or what the box may reach (github.com,@npm)");
	if (c == 0 && index_items(p) < 0)
		c = err_set(e, -ENOMEM, "cannot read the network policy");
	if (c < 0) {
		policy_unref(p);
		return c;
	}
	*ret = p;
	return 0;
}

struct policy *policy_ref(struct policy *p)
{
	p->refs++;
	return p;
}

void policy_unref(struct policy *p)
{
	if (!p || --p->refs > 0)
		return;
	free(p->items);
	free(p->slots);
	buf_done(&p->text);
	buf_done(&p->canon);
	free(p);
}

const char *policy_text(const struct policy *p)
{
	return p->canon.data ? p->canon.data : "";
}

bool policy_is_none(const struct policy *p)
{
	return p->none;
}

bool policy_is_internet(const struct policy *p)
{
	return p->internet;
}

bool policy_asks(const struct policy *p)
{
	return p->ask;
}

bool policy_has_names(const struct policy *p)
{
	return !p->internet && (p->names || p->ask);
}

bool policy_is_wider(const struct policy *p)
{
	return p->wider;
}

/* ---------------------------------------------------------------- judging */

static const char *rule_of(const struct policy *p, const struct item *it)
{
	return p->text.data + it->rule;
}

static const struct item *find_name(const struct policy *p, enum kind kind, const char *name, uint16_t port)
{
	size_t n = strlen(name);
	uint32_t h = hash_of(kind, name, n);

	for (uint32_t i = p->slots[h & (p->nslots - 1)]; i; i = p->items[i - 1].next) {
		const struct item *it = &p->items[i - 1];

		if (it->kind == kind && it->hash == h && strcmp(p->text.data + it->name, name) == 0 && port_in(&it->ports, port))
			return it;
	}
	return NULL;
}

static const struct item *match_name(const struct policy *p, const char *name, uint16_t port)
{
	const struct item *it = p->names ? find_name(p, ITEM_NAME, name, port) : NULL;

	for (const char *s = p->names && !it ? strchr(name, '.') : NULL; s && !it; s = strchr(s + 1, '.'))
		it = find_name(p, ITEM_BELOW, s + 1, port);
	return it;
}

static const struct item *match_range(const struct policy *p, enum kind kind, const struct ip *a, uint16_t port)
{
	const uint64_t *lens = p->lens[kind == ITEM_LAN];

	for (unsigned bits = 129; bits-- > 0;) {
		struct cidr c = { .bits = (uint8_t)bits, .ip = *a };
		uint32_t h;

		if (!(lens[bits >> 6] >> (bits & 63) & 1))
			continue;
		for (unsigned i = 0; i < 16; i++) {
			unsigned keep = bits > 8 * i ? bits - 8 * i : 0;

			if (keep < 8)
				c.ip.b[i] &= (uint8_t)(0xff00u >> keep);
		}
		h = hash_range(kind, &c);
		for (uint32_t i = p->slots[h & (p->nslots - 1)]; i; i = p->items[i - 1].next) {
			const struct item *it = &p->items[i - 1];

			if (it->kind == kind && it->range.bits == bits && ip_same(&it->range.ip, &c.ip) && port_in(&it->ports, port))
				return it;
		}
	}
	return NULL;
}

static void refuse(struct decision *d, const char *why)
{
	d->verdict = VERDICT_REFUSE;
	d->rule = "";
	(void)snprintf(d->why, sizeof(d->why), "%s", why);
}

static void allow(struct decision *d, const char *rule)
{
	d->verdict = VERDICT_ALLOW;
	d->rule = rule;
}

void policy_judge_name(const struct policy *p, const char *name, uint16_t port, struct decision *ret)
{
	struct decision d = { .rule = "" };
	char low[HOST_NAME_MAX_LEN + 1];
	const struct item *it;

	if (host_name_parse(name, strlen(name), low) < 0) {
		refuse(&d, "it is not a host name");
	} else if ((it = match_name(p, low, port))) {
		allow(&d, rule_of(p, it));
		d.by_name = true;
	} else if (p->internet) {
		allow(&d, "internet");
	} else if (p->ask) {
		d.verdict = VERDICT_ASK;
	} else {
		refuse(&d, p->none ? "the box has no network" :
			   port && match_name(p, low, 0) ? "the policy names it for other ports" :
							   "the policy does not name it");
	}
	*ret = d;
}

static bool is_gateway(const struct ip *a)
{
	struct ip g;

	return (ip_parse(NET_GATEWAY4, &g) == 0 && ip_same(a, &g)) || (ip_parse(NET_GATEWAY6, &g) == 0 && ip_same(a, &g));
}

static bool lab_public(const struct own_addrs *own, const struct ip *a)
{
	for (size_t i = 0; own && i < own->nlab_public; i++)
		if (cidr_has(&own->lab_public[i], a))
			return true;
	return false;
}

static void judge_host_port(const struct policy *p, uint16_t port, struct decision *d)
{
	for (uint32_t i = 0; i < p->nitems; i++) {
		if (p->items[i].kind != ITEM_HOST_PORT || !port_in(&p->items[i].ports, port))
			continue;
		allow(d, rule_of(p, &p->items[i]));
		d->to_host = true;
		return;
	}
	refuse(d, "it is the gateway's own address; a service of the host takes host-port=PORT");
}

bool policy_judge_special(const struct policy *p, const char *name, uint16_t port, struct decision *ret)
{
	struct decision d = { .rule = "" };

	if (strcmp(name, NET_HOST_NAME) == 0) {
		judge_host_port(p, port, &d);
	} else if (strcmp(name, "localhost") == 0) {
		allow(&d, "");
		(void)snprintf(d.why, sizeof(d.why), "it is the box's own loopback, which no policy restricts");
	} else {
		return false;
	}
	*ret = d;
	return true;
}

/* Whether the address is out of bounds for a policy of public addresses. lan= may lift that, within its own bounds. */
static bool judge_forbidden(const struct policy *p, const struct own_addrs *own, const struct ip *a, uint16_t port,
			    struct decision *d)
{
	const char *kind = ip_forbidden(a);
	const struct item *it;
	char why[160];
	bool never;

	if (!kind)
		return false;
	never = ip_never(a);
	if (!never && lab_public(own, a))
		return false;
	it = p->wider && !never ? match_range(p, ITEM_LAN, a, port) : NULL;
	if (it) {
		allow(d, rule_of(p, it));
		d->lan = true;
		return true;
	}
	(void)snprintf(why, sizeof(why), "the address is %s", kind);
	refuse(d, why);
	return true;
}

void policy_judge(const struct policy *p, const struct own_addrs *own, const struct ip *addr, uint16_t port,
		  const char *const *names, size_t nnames, struct decision *ret)
{
	struct decision d = { .rule = "" };
	const struct item *it = NULL;

	*ret = d;
	if (p->none)
		return refuse(ret, "the box has no network");
	if (is_gateway(addr))
		return judge_host_port(p, port, ret);
	if (own && own->has && own->has(addr, own->arg))
		return refuse(ret, "it is an address of the host");
	if (judge_forbidden(p, own, addr, port, ret))
		return;
	it = match_range(p, ITEM_RANGE, addr, port);
	if (it)
		return allow(ret, rule_of(p, it));
	for (size_t i = 0; i < nnames && !it; i++)
		it = match_name(p, names[i], port);
	if (it) {
		allow(ret, rule_of(p, it));
		ret->by_name = !p->internet;
	} else if (p->internet) {
		allow(ret, "internet");
	} else if (p->ask) {
		ret->verdict = VERDICT_ASK;
	} else {
		bool other = false;

		for (size_t i = 0; i < nnames; i++)
			other = other || match_name(p, names[i], 0);
		other = other || match_range(p, ITEM_RANGE, addr, 0);
		refuse(ret, other ? "the policy allows it on other ports" :
			    nnames ? "the policy does not name it" :
				     "the policy does not name it, and no allowed name was resolved to it");
	}
}

/* ---------------------------------------------------------------- presets */

struct preset {
	char *name, *items;
};

struct presets {
	struct preset *list;	/* in order of their names */
	size_t n;
};

static struct preset *preset_slot(const struct presets *ps, const char *name)
{
	for (size_t i = 0; ps && i < ps->n; i++)
		if (strcmp(ps->list[i].name, name) == 0)
			return &ps->list[i];
	return NULL;
}

static const char *preset_find(const struct presets *ps, const char *name)
{
	const struct preset *s = preset_slot(ps, name);

	return s ? s->items : NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct preset *)a)->name, ((const struct preset *)b)->name);
}

/* One preset more, or a line more of the one under way (name NULL). */
static int preset_put(struct presets *ps, const char *name, const char *items, size_t *under_way)
{
	struct preset *s = name ? preset_slot(ps, name) : &ps->list[*under_way];
	char *text;

	if (!s) {
		struct preset *more = reallocarray(ps->list, ps->n + 1, sizeof(*more));

		if (!more)
			return -ENOMEM;
		ps->list = more;
		s = &ps->list[ps->n];
		*s = (struct preset){ .name = strdup(name), .items = strdup("") };
		if (!s->name || !s->items) {
			free(s->name);
			free(s->items);
			return -ENOMEM;
		}
		ps->n++;
	} else if (name) {
		s->items[0] = '\0';	/* the later file replaces */
	}
	*under_way = (size_t)(s - ps->list);
	text = malloc(strlen(s->items) + strlen(items) + 2);
	if (!text)
		return -ENOMEM;
	(void)snprintf(text, strlen(s->items) + strlen(items) + 2, "%s%s%s", s->items, s->items[0] && items[0] ? " " : "", items);
	free(s->items);
	s->items = text;
	return 0;
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\r");
	for (n = strlen(s); n > 0 && strchr(" \t\r", s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

static int presets_read(struct presets *ps, const char *text, struct err *e)
{
	OWN_MEM char *copy = strdup(text);
	size_t under_way = SIZE_MAX;
	unsigned line = 0;
	int r;

	if (!copy)
		return err_set(e, -ENOMEM, "cannot read the presets");
	for (char *s = copy, *next; s; s = next) {
		bool more = *s == ' ' || *s == '\t';
		char *colon, *word;

		line++;
		next = strchr(s, '\n');
		if (next)
			*next++ = '\0';
		s[strcspn(s, "#")] = '\0';
		word = trim(s);
		if (!*word)
			continue;
		if (more && under_way == SIZE_MAX)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "presets, line %u: continues nothing: a preset begins with NAME:", line);
		if (more) {
			r = preset_put(ps, NULL, word, &under_way);
		} else {
			colon = strchr(word, ':');
			if (colon)
				*colon = '\0';
			if (!colon || !name_ok(word))
				return err_why(e, WHY_BAD_REQUEST, -EINVAL, "presets, line %u: a preset begins with NAME: (%s)", line,
					       NAME_RULE);
			r = preset_put(ps, word, trim(colon + 1), &under_way);
		}
		if (r < 0)
			return err_set(e, r, "cannot read the presets");
	}
	qsort(ps->list, ps->n, sizeof(*ps->list), by_name);
	return 0;
}

int presets_new(const char *text, struct presets **ret, struct err *e)
{
	struct presets *ps = calloc(1, sizeof(*ps));
	struct err why = ERR_INIT;
	int r;

	if (!ps)
		return err_set(e, -ENOMEM, "cannot read the presets");
	r = presets_read(ps, presets_builtin, e);
	if (r == 0 && text)
		r = presets_read(ps, text, e);
	/* Each has to be good on its own: a bad one is found now, and not when a box wants it. */
	for (size_t i = 0; r == 0 && i < ps->n; i++) {
		struct policy *p = NULL;
		char word[NAME_MAX_LEN + 2];

		(void)snprintf(word, sizeof(word), "@%s", ps->list[i].name);
		r = policy_parse(word, ps, &p, &why);
		if (r < 0)
			r = err_why(e, why.why, r, "preset @%s: %.700s", ps->list[i].name, why.text);
		policy_unref(p);
	}
	if (r < 0) {
		presets_free(ps);
		return r;
	}
	*ret = ps;
	return 0;
}

void presets_free(struct presets *ps)
{
	for (size_t i = 0; ps && i < ps->n; i++) {
		free(ps->list[i].name);
		free(ps->list[i].items);
	}
	if (ps)
		free(ps->list);
	free(ps);
}

const char *presets_each(const struct presets *ps, size_t i, const char **ret_items)
{
	if (i >= ps->n)
		return NULL;
	*ret_items = ps->list[i].items;
	return ps->list[i].name;
}
