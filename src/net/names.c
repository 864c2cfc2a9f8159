/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver: what a box asks goes through here in one direction,
 *
 *	query -> form -> names of this place -> policy -> cache -> question under way -> upstream -> answer
 *
 * and each step may answer it. A query that waits is a `waiter`: of a person's word (held), or of a question. A question is asked
 * once, however many wait for it, of whatever boxes.
 *
 * Callbacks may call back in (an answer may bring the next query, or the end of a waiter), so lists are worked through by
 * taking their first element until there is none, and whatever is called last has let go of its objects before.
 */
#include "net/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/cache.h"
#include "net/chance.h"
#include "net/told.h"
#include "net/upstream.h"

#define LOCAL_TTL         60u
#define TOLD_MIN_S        60u
#define TOLD_MAX_S        86400u
#define TOLD_GRACE_S      600u
#define LOOKUP_ADDRS      64u
#define EVENTS_PER_ANSWER 4u /* removed addresses of one answer that become events */
#define BUCKETS           1024u
#define FAILED_MS         1000u /* RFC 9520: what failed isn't asked again at once */
#define FAILED_MAX        256u

struct list {
	struct list *next, *prev;
};

/* For `net why`: two waiters, one for each family. */
struct finding {
	void (*done)(void *arg, const struct ip *addrs, size_t n);
	unsigned open; /* waiters without an answer */
	size_t n;
	struct ip addrs[LOOKUP_ADDRS];
};

struct waiter {
	struct list of_box, of_cause; /* while it waits. of_cause: of its question, or held */
	struct names_box *box;
	struct question *question; /* NULL: held */
	uintptr_t token;
	struct dns_query query;
	char name[DNS_TEXT_MAX];
	size_t room;
	void (*answer)(void *arg, const void *msg, size_t n);
	void *arg;
	struct finding *finding; /* instead of answer() */
};

struct question {
	struct question *bucket;
	struct dns_name name;
	uint16_t type;
	struct upstream_ask *ask;
	struct list waiters;
	struct names *n;
};

struct names_box {
	struct list of_names;
	struct names *n;
	void *box;
	struct told *told;
	struct list waiters;
	struct upstream_turn turn;
	unsigned under_way; /* queries; those of names_lookup() not counted */
	uint64_t budget_ms; /* when it will have used up no more than its rate */
};

/* Questions that failed a moment ago, by their hash: one that is taken for another fails for a second. */
struct failed {
	uint64_t hash;
	uint64_t until_ms;
};

struct names {
	struct names_calls calls;
	struct hash_key key;
	struct upstream *upstream;
	struct cache *cache;
	bool have6;
	struct ip gateway[2];
	struct list boxes, held;
	uintptr_t last_token, resuming;
	struct question *buckets[BUCKETS];
	struct failed failed[FAILED_MAX];
	unsigned failed_at;
	uint8_t out[NAMES_MSG_MAX];
};

/* ---- lists: a head, and elements in the order in which they came */

static void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static void list_add(struct list *head, struct list *l)
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}

static void list_del(struct list *l)
{
	if (!l->next)
		return;
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = NULL;
}

static bool list_empty(const struct list *l)
{
	return l->next == l;
}

#define LIST_ITEM(l, type, member) ((type *)(void *)((char *)(l)-offsetof(type, member)))

/* ---- waiters */

/* It waits no more. */
static void waiter_unlink(struct waiter *w)
{
	if (!w->of_box.next)
		return;
	list_del(&w->of_box);
	list_del(&w->of_cause);
	w->question = NULL;
	if (!w->finding)
		w->box->under_way--;
}

static void waiter_link(struct waiter *w, struct list *cause, struct question *q)
{
	list_add(&w->box->waiters, &w->of_box);
	list_add(cause, &w->of_cause);
	w->question = q;
	if (!w->finding)
		w->box->under_way++;
}

static void question_unlink(struct question *q);

/* Nobody wants the answer. */
static void waiter_drop(struct waiter *w)
{
	struct question *q = w->question;

	waiter_unlink(w);
	if (w->finding && --w->finding->open == 0)
		free(w->finding);
	free(w);
	/* A question that is being answered has no `ask` any more, and somebody who frees it. */
	if (q && q->ask && list_empty(&q->waiters)) {
		upstream_cancel(q->ask);
		question_unlink(q);
		free(q);
	}
}

static void finding_part(struct finding *f, void *arg, const struct dns_answer *answer)
{
	const uint8_t *rdata;
	size_t at = 0, len;
	uint16_t type;

	while (answer && f->n < LOOKUP_ADDRS && dns_answer_each(answer, &at, &type, &rdata, &len))
		if (type == DNS_A || type == DNS_AAAA)
			f->addrs[f->n++] = dns_addr(type, rdata);
	if (--f->open > 0)
		return;
	f->done(arg, f->addrs, f->n);
	free(f);
}

/* The end of a waiter. Called last: the callback may do what it likes. */
static void give(struct waiter *w, const struct dns_reply *r)
{
	struct names *n = w->box->n;
	size_t room = w->room, len;

	waiter_unlink(w);
	if (w->finding) {
		finding_part(w->finding, w->arg, r->answer);
		free(w);
		return;
	}
	if (room <= NAMES_UDP_MAX && room > w->query.udp_size)
		room = w->query.udp_size;
	len = dns_reply_write(n->out, room, &w->query, r);
	w->answer(w->arg, n->out, len);
	free(w);
}

static void give_code(struct waiter *w, unsigned rcode, unsigned ede, const char *text)
{
	give(w, &(struct dns_reply){ .rcode = (uint16_t)rcode, .ede = ede, .ede_text = text });
}

static void give_answer(struct waiter *w, struct dns_answer *a)
{
	struct dns_reply r = { .answer = a, .ttl = LOCAL_TTL };

	if (!a)
		r.rcode = DNS_SERVFAIL;
	give(w, &r);
	dns_answer_unref(a);
}

static void event(const struct waiter *w, enum names_event ev, const struct ip *addr, const char *why)
{
	if (!w->finding)
		w->box->n->calls.event(w->box->box, ev, w->name, addr, why);
}

/* "No such name" ends a search at once; after REFUSED a box's resolver goes on to try, and says that the name server is broken. */
static void refuse(struct waiter *w, const char *why)
{
	char text[DNS_EDE_TEXT_MAX];

	event(w, NAMES_REFUSED, NULL, why);
	(void)snprintf(text, sizeof(text), "cubby: %.*s", DNS_EDE_TEXT_MAX - 8, why);
	give_code(w, DNS_NXDOMAIN, DNS_EDE_BLOCKED, text);
}

/* ---- addresses that a name must not lead to */

struct cleaning {
	bool keep[DNS_KEEP_MAX];
	unsigned n, kept, asked;
};

/* Reserved, but public by the configuration (net_lab_public). */
static bool in_lab(const struct own_addrs *own, const struct ip *addr)
{
	for (size_t i = 0; own && i < own->nlab_public; i++)
		if (cidr_has(&own->lab_public[i], addr))
			return true;
	return false;
}

/* Is it withheld from this box? Judged as the connection will be: a lan= item lifts it, a host-port doesn't come by other names. */
static bool withheld(const struct names *n, const struct policy *p, const struct ip *addr, struct decision *d)
{
	const struct own_addrs *own = n->calls.own;

	if (!(ip_forbidden(addr) && !in_lab(own, addr)) && !(own && own->has && own->has(addr, own->arg)))
		return false;
	policy_judge(p, own, addr, 0, NULL, 0, d);
	return d->verdict != VERDICT_ALLOW || d->to_host;
}

static void clean(struct cleaning *c, struct waiter *w, const struct dns_answer *a, uint32_t ttl)
{
	struct names_box *b = w->box;
	const struct policy *p = b->n->calls.policy(b->box);
	uint64_t now = clock_ms(), until;
	const uint8_t *rdata;
	size_t at = 0, len;
	uint16_t type;

	ttl = ttl < TOLD_MIN_S ? TOLD_MIN_S : ttl > TOLD_MAX_S ? TOLD_MAX_S : ttl;
	until = now + (ttl + TOLD_GRACE_S) * UINT64_C(1000);
	while (c->n < DNS_KEEP_MAX && dns_answer_each(a, &at, &type, &rdata, &len)) {
		struct decision d = { 0 };
		struct ip ip;

		if (type != DNS_A && type != DNS_AAAA)
			continue;
		ip = dns_addr(type, rdata);
		if (!p || withheld(b->n, p, &ip, &d)) {
			if (c->n - c->kept < EVENTS_PER_ANSWER)
				event(w, NAMES_FORBIDDEN, &ip, d.why);
			c->keep[c->n++] = false;
			continue;
		}
		/* Without memory the name isn't known at connect, where a list of names then refuses. */
		(void)told_add(b->told, &ip, w->name, now, until);
		c->keep[c->n++] = true;
		c->kept++;
	}
}

static bool next_kept(void *arg, const struct ip *addr)
{
	struct cleaning *c = arg;

	(void)addr;
	return c->asked < c->n && c->keep[c->asked++];
}

static void give_upstream(struct waiter *w, struct dns_answer *a, uint32_t ttl)
{
	struct dns_reply r = { .rcode = a->rcode, .answer = a, .ttl = ttl };
	struct cleaning c = { 0 };

	if (!w->finding && (a->type == DNS_A || a->type == DNS_AAAA)) {
		clean(&c, w, a, ttl);
		r.keep = next_kept;
		r.arg = &c;
		if (c.n > 0 && c.kept == 0) {
			r.answer = NULL;
			r.ede = DNS_EDE_BLOCKED;
			r.ede_text = "cubby: the name leads only to addresses that boxes don't reach";
		}
	}
	give(w, &r);
}

/* ---- questions under way */

static uint64_t question_hash(const struct names *n, const struct dns_name *name, uint16_t type)
{
	return hash_bytes(&n->key, name->b, name->n) ^ type * UINT64_C(0x9e3779b97f4a7c15);
}

static struct question **question_find(struct names *n, const struct dns_name *name, uint16_t type)
{
	struct question **link = &n->buckets[question_hash(n, name, type) % BUCKETS];

	while (*link && ((*link)->type != type || !dns_name_same(&(*link)->name, name)))
		link = &(*link)->bucket;
	return link;
}

static void question_unlink(struct question *q)
{
	struct question **link = question_find(q->n, &q->name, q->type);

	if (*link == q)
		*link = q->bucket;
}

static void failed_note(struct names *n, const struct question *q)
{
	n->failed[n->failed_at++ % FAILED_MAX] = (struct failed){
		.hash = question_hash(n, &q->name, q->type),
		.until_ms = clock_ms() + FAILED_MS,
	};
}

static bool failed_lately(const struct names *n, const struct dns_name *name, uint16_t type)
{
	uint64_t hash = question_hash(n, name, type), now = clock_ms();

	for (unsigned i = 0; i < FAILED_MAX; i++)
		if (n->failed[i].hash == hash && n->failed[i].until_ms > now)
			return true;
	return false;
}

static void question_done(void *arg, int r, struct dns_answer *answer, const char *why)
{
	struct question *q = arg;

	question_unlink(q);
	q->ask = NULL;
	if (r == 0)
		cache_put(q->n->cache, &q->name, q->type, answer, clock_ms());
	else
		failed_note(q->n, q);
	while (!list_empty(&q->waiters)) {
		struct waiter *w = LIST_ITEM(q->waiters.next, struct waiter, of_cause);

		waiter_unlink(w);
		if (r == 0) {
			give_upstream(w, answer, answer->ttl < CACHE_TTL_MAX ? answer->ttl : CACHE_TTL_MAX);
		} else {
			event(w, NAMES_FAILED, NULL, why);
			/* Not the cause itself: it names the host's name servers. */
			give_code(w, DNS_SERVFAIL, DNS_EDE_NETWORK, "cubby: no name server answered");
		}
	}
	free(q);
}

static struct question *question_new(struct names_box *b, const struct dns_name *name, uint16_t type)
{
	struct names *n = b->n;
	struct question *q = calloc(1, sizeof(*q)), **link;

	if (!q)
		return NULL;
	q->n = n;
	q->name = *name;
	q->type = type;
	list_init(&q->waiters);
	if (upstream_begin(n->upstream, &b->turn, name, type, question_done, q, &q->ask) < 0) {
		free(q);
		return NULL;
	}
	link = question_find(n, name, type);
	q->bucket = *link;
	*link = q;
	return q;
}

/* Each box may bring so many new names a second to the name servers: a tunnel of long labels stays a trickle. */
static bool within_rate(struct names_box *b)
{
	uint64_t now = clock_ms(), step = 1000 / NAMES_RATE;

	if (b->budget_ms < now)
		b->budget_ms = now;
	if (b->budget_ms - now > (NAMES_BURST - 1) * step)
		return false;
	b->budget_ms += step;
	return true;
}

static bool is_forwarded(uint16_t type)
{
	switch (type) {
	case DNS_A:
	case DNS_AAAA:
	case DNS_CNAME:
	case DNS_MX:
	case DNS_TXT:
	case DNS_SRV:
	case DNS_CAA:
	case DNS_PTR:
	case DNS_NS:
	case DNS_SOA: return true;
	default: return false;
	}
}

/* Allowed: find the answer. */
static void proceed(struct waiter *w)
{
	struct names *n = w->box->n;
	struct dns_name name = w->query.name;
	uint16_t type = w->query.type;
	struct dns_answer *answer;
	struct question *q;
	uint32_t ttl;

	if (!is_forwarded(type) || (type == DNS_AAAA && (!n->have6 || upstream_no_aaaa(n->upstream)))) {
		give_code(w, DNS_NOERROR, 0, NULL);
		return;
	}
	dns_name_lower(&name);
	answer = cache_get(n->cache, &name, type, clock_ms(), &ttl);
	if (answer) {
		dns_answer_ref(answer);
		give_upstream(w, answer, ttl);
		dns_answer_unref(answer);
		return;
	}
	if (failed_lately(n, &name, type)) {
		give_code(w, DNS_SERVFAIL, DNS_EDE_NETWORK, "cubby: it failed a moment ago");
		return;
	}
	if (!w->finding && !within_rate(w->box)) {
		event(w, NAMES_REFUSED, NULL, "more new names a second than one box may ask for");
		give_code(w, DNS_SERVFAIL, DNS_EDE_BLOCKED, "cubby: more new names a second than one box may ask for");
		return;
	}
	q = *question_find(n, &name, type);
	if (!q)
		q = question_new(w->box, &name, type);
	if (!q) {
		give_code(w, DNS_SERVFAIL, 0, NULL);
		return;
	}
	waiter_link(w, &q->waiters, q);
}

/* ---- names that are answered here */

static bool below(const char *name, const char *zone)
{
	size_t n = strlen(name), z = strlen(zone);

	return n >= z && strcmp(name + n - z, zone) == 0 && (n == z || name[n - z - 1] == '.');
}

static void give_addrs(struct waiter *w, const struct ip *addrs, size_t n)
{
	if (w->query.type == DNS_A || w->query.type == DNS_AAAA)
		give_answer(w, dns_answer_addrs(w->query.type, addrs, n, LOCAL_TTL));
	else
		give_code(w, DNS_NOERROR, 0, NULL);
}

static bool who(const struct waiter *w, const char **ret_name, struct ip ret[2])
{
	const struct names *n = w->box->n;

	memset(ret, 0, 2 * sizeof(*ret));
	return n->calls.who && n->calls.who(w->box->box, ret_name, &ret[0], &ret[1]);
}

static void give_ptr(struct waiter *w, const char *name)
{
	struct dns_name target;

	if (dns_name_of_text(name, &target) < 0)
		give_code(w, DNS_SERVFAIL, 0, NULL);
	else
		give_answer(w, dns_answer_ptr(&target, LOCAL_TTL));
}

/* Reverse names are judged by the address that they stand for, since the policy's names say nothing about them. */
static void reverse(struct waiter *w)
{
	struct names_box *b = w->box;
	const struct policy *p = b->n->calls.policy(b->box);
	const char *names[NAMES_PER_ADDR], *me;
	struct decision d = { 0 };
	struct ip ip, mine[2];

	if (w->query.type != DNS_PTR || dns_name_reverse(&w->query.name, &ip) < 0) {
		give_code(w, DNS_NXDOMAIN, 0, NULL);
		return;
	}
	if (ip_same(&ip, &b->n->gateway[0]) || ip_same(&ip, &b->n->gateway[1])) {
		give_ptr(w, NET_HOST_NAME);
		return;
	}
	if (who(w, &me, mine) && (ip_same(&ip, &mine[0]) || ip_same(&ip, &mine[1]))) {
		give_ptr(w, me);
		return;
	}
	if (!p || withheld(b->n, p, &ip, &d)) {
		refuse(w, d.why);
		return;
	}
	policy_judge(p, b->n->calls.own, &ip, 0, names, names_of(b, &ip, names, NAMES_PER_ADDR), &d);
	if (d.verdict == VERDICT_ALLOW)
		proceed(w);
	else
		refuse(w, d.verdict == VERDICT_ASK ? "nobody is asked for the name of an address" : d.why);
}

/* No name server outside knows these (RFC 6761, 7686, 9476, 9462), or they would tell a program to pass the resolver by. */
static const char *const never[] = { "onion",          "invalid",       "alt",
				     "cubby.internal", "resolver.arpa", "use-application-dns.net" };
/* Names of the network that the host is in (RFC 6762 appendix G, RFC 8375, ICANN's list of what is never delegated). */
static const char *const nearby[] = { "local", "internal", "home.arpa",   "lan",      "home",
				      "corp",  "mail",     "localdomain", "intranet", "private" };

static bool in_zones(const char *name, const char *const *zones, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (below(name, zones[i]))
			return true;
	return false;
}

/* Answered without the policy and without asking anybody. true: the waiter is gone. */
static bool local(struct waiter *w)
{
	static const struct ip loopback[2] = {
		{ .b = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } },
		{ .b = { [15] = 1 } },
	};
	struct names_box *b = w->box;
	const struct policy *p = b->n->calls.policy(b->box);
	static const struct ip none;
	const char *me;
	struct ip mine[2];

	if (below(w->name, "localhost")) {
		give_addrs(w, loopback, 2);
	} else if (strcmp(w->name, NET_HOST_NAME) == 0) {
		give_addrs(w, b->n->gateway, 2);
	} else if (who(w, &me, mine) && strcmp(w->name, me) == 0) {
		give_addrs(w, mine, ip_same(&mine[1], &none) ? 1 : 2);
	} else if (below(w->name, "in-addr.arpa") || below(w->name, "ip6.arpa")) {
		reverse(w);
	} else if (in_zones(w->name, never, sizeof(never) / sizeof(never[0]))) {
		refuse(w, "names of this kind are asked of nobody");
	} else if ((!strchr(w->name, '.') || in_zones(w->name, nearby, sizeof(nearby) / sizeof(nearby[0]))) &&
		   !(p && policy_is_wider(p) && (w->query.type == DNS_A || w->query.type == DNS_AAAA))) {
		refuse(w, "names of the host's own network are asked only for a policy with lan=");
	} else {
		return false;
	}
	return true;
}

/* ---- a person's word */

static void hold(struct waiter *w)
{
	struct names *n = w->box->n;
	uintptr_t token = 0;

	for (struct list *l = n->held.next; l != &n->held && !token; l = l->next) {
		const struct waiter *o = LIST_ITEM(l, struct waiter, of_cause);

		/* Both families, and each retry, are one question to a person. */
		if (o->box == w->box && o->token != n->resuming && strcmp(o->name, w->name) == 0)
			token = o->token;
	}
	w->token = token ? token : ++n->last_token;
	waiter_link(w, &n->held, NULL);
	if (token)
		return;
	token = w->token;
	/* Perhaps it is answered at once, and the waiter gone. */
	if (!n->calls.ask(w->box->box, w->name, (void *)token))
		names_asked(n, (void *)token, false);
}

void names_asked(struct names *n, void *token, bool allow)
{
	uintptr_t before = n->resuming;

	n->resuming = (uintptr_t)token;
	for (;;) {
		struct waiter *w = NULL;

		for (struct list *l = n->held.next; l != &n->held && !w; l = l->next) {
			w = LIST_ITEM(l, struct waiter, of_cause);
			if (w->token != (uintptr_t)token)
				w = NULL;
		}
		if (!w)
			break;
		waiter_unlink(w);
		if (allow)
			proceed(w);
		else
			refuse(w, "nobody allowed it");
	}
	n->resuming = before;
}

/* ---- queries */

static void judge(struct waiter *w)
{
	const struct policy *p = w->box->n->calls.policy(w->box->box);
	struct decision d = { 0 };

	if (!p) {
		refuse(w, "the box has no network");
		return;
	}
	policy_judge_name(p, w->name, 0, &d);
	if (d.verdict == VERDICT_ALLOW || (d.verdict == VERDICT_ASK && w->finding))
		proceed(w);
	else if (d.verdict == VERDICT_ASK)
		hold(w);
	else
		refuse(w, d.why);
}

/* Of which types there is nothing to be had, not even "no records": QTYPEs and meta types, RFC 6895 section 3.1. */
static bool is_meta(uint16_t type)
{
	return type == 0 || type == DNS_OPT || (type >= 128 && type <= 255);
}

void names_query(struct names_box *b, const void *query, size_t n, size_t room,
		 void (*answer)(void *arg, const void *msg, size_t n), void *arg)
{
	struct waiter *w = calloc(1, sizeof(*w));
	int r;

	if (!w) {
		answer(arg, NULL, 0);
		return;
	}
	w->box = b;
	w->room = room;
	w->answer = answer;
	w->arg = arg;
	r = dns_query_read(query, n, &w->query);
	if (r < 0) {
		free(w);
		answer(arg, NULL, 0);
	} else if (r > 0) {
		give_code(w, (unsigned)r, 0, NULL);
	} else if (w->query.klass != DNS_CLASS_IN || is_meta(w->query.type)) {
		give_code(w, DNS_REFUSED, 0, NULL);
	} else if (dns_name_text(&w->query.name, w->name) < 0) {
		give_code(w, DNS_NXDOMAIN, DNS_EDE_BLOCKED, "cubby: not the name of a host");
	} else if (b->under_way >= NAMES_UNDER_WAY) {
		event(w, NAMES_REFUSED, NULL, "more questions at once than one box may ask");
		give_code(w, DNS_SERVFAIL, DNS_EDE_BLOCKED, "cubby: more questions at once than one box may ask");
	} else if (!local(w)) {
		judge(w);
	}
}

void names_lookup(struct names_box *b, const char *name, void (*done)(void *arg, const struct ip *addrs, size_t n),
		  void *arg)
{
	struct finding *f = calloc(1, sizeof(*f));
	struct waiter *w[2] = { calloc(1, sizeof(*w[0])), calloc(1, sizeof(*w[1])) };
	struct dns_name wire;

	if (!f || !w[0] || !w[1] || dns_name_of_text(name, &wire) < 0) {
		free(w[0]);
		free(w[1]);
		free(f);
		done(arg, NULL, 0);
		return;
	}
	dns_name_lower(&wire);
	f->done = done;
	f->open = 2;
	for (int i = 0; i < 2; i++) {
		w[i]->box = b;
		w[i]->finding = f;
		w[i]->arg = arg;
		w[i]->query = (struct dns_query){ .type = i ? DNS_AAAA : DNS_A, .klass = DNS_CLASS_IN, .name = wire };
		(void)dns_name_text(&wire, w[i]->name);
	}
	for (int i = 0; i < 2; i++)
		if (!local(w[i]))
			judge(w[i]);
}

size_t names_of(const struct names_box *b, const struct ip *addr, const char **ret, size_t max)
{
	return told_names(b->told, addr, clock_ms(), ret, max);
}

static void drop_waiters(struct names_box *b, bool all, const void *arg)
{
	for (struct list *l = b->waiters.next, *next; l != &b->waiters; l = next) {
		struct waiter *w = LIST_ITEM(l, struct waiter, of_box);

		next = l->next;
		if (all || w->arg == arg)
			waiter_drop(w);
	}
}

void names_forget(struct names_box *b, void *arg)
{
	drop_waiters(b, false, arg);
}

struct names_box *names_box_new(struct names *n, void *box)
{
	struct names_box *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	if (told_new(&b->told) < 0) {
		free(b);
		return NULL;
	}
	b->n = n;
	b->box = box;
	list_init(&b->waiters);
	list_add(&n->boxes, &b->of_names);
	return b;
}

void names_box_free(struct names_box *b)
{
	struct question *q;

	if (!b)
		return;
	drop_waiters(b, true, NULL);
	/* What it asked first, others still want to know. */
	while ((q = upstream_turn_first(&b->turn)))
		upstream_move(q->ask, &LIST_ITEM(q->waiters.next, struct waiter, of_cause)->box->turn);
	list_del(&b->of_names);
	told_free(b->told);
	free(b);
}

void names_upstreams(struct names *n, const char *resolv_conf, bool have6)
{
	upstream_conf(n->upstream, resolv_conf);
	n->have6 = have6;
	/* Another network may know other things under the same name. */
	cache_clear(n->cache);
	memset(n->failed, 0, sizeof(n->failed));
}

int names_new(struct loop *loop, const struct names_calls *calls, struct names **ret, struct err *e)
{
	struct names *n = calloc(1, sizeof(*n));
	int r = n ? 0 : -ENOMEM;

	if (r == 0) {
		n->calls = *calls;
		list_init(&n->boxes);
		list_init(&n->held);
		r = chance(&n->key, sizeof(n->key));
	}
	if (r == 0)
		r = ip_parse(NET_GATEWAY4, &n->gateway[0]);
	if (r == 0)
		r = ip_parse(NET_GATEWAY6, &n->gateway[1]);
	if (r == 0)
		r = upstream_new(loop, &n->upstream);
	if (r == 0)
		r = cache_new(&n->cache);
	if (r < 0) {
		names_free(n);
		return err_set(e, r, "cannot make the resolver of the boxes");
	}
	*ret = n;
	return 0;
}

void names_free(struct names *n)
{
	if (!n)
		return;
	while (n->boxes.next && !list_empty(&n->boxes))
		names_box_free(LIST_ITEM(n->boxes.next, struct names_box, of_names));
	upstream_free(n->upstream);
	cache_free(n->cache);
	free(n);
}
