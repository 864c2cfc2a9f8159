/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/names: the resolver of boxes, against a name server in the same loop that misbehaves as the first label of the name
 * that it is asked for says. Everything stays on 127.0.0.1; the addresses in the answers are only text here.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "dns_msg.h"
#include "lib/leak.h"
#include "net/cache.h"
#include "net/dns.h"
#include "net/names.h"
#include "net/upstream.h"

#define GOOD    0x14000001u /* 20.0.0.1 */
#define GOOD2   0x14000002u
#define EVIL    0x42424242u
#define PRIVATE 0x0a000001u /* 10.0.0.1 */
#define HOSTS   0x14090909u /* 20.9.9.9, an address of the host */

/* ---- the name server */

struct server {
	struct loop *loop;
	int udp, tcp;
	unsigned port;
	struct loop_io io, tcp_io, conn_io;
	int conn;
	struct msg in; /* of the connection */
	unsigned asked, asked_tcp, asked_rebind;
	unsigned ids[4], ports[4]; /* of the first questions */
	char cases[4][64];
	bool mute;
	struct loop_timer later;
	struct sockaddr_in later_to;
	struct msg later_msg;
	bool saw_options; /* in EDNS */
};

struct asked {
	const uint8_t *msg;
	size_t n, question_end;
	char name[256]; /* lower-case */
	char label[64];
	unsigned type;
	bool edns, tcp;
	struct sockaddr_in from;
};

static void parse(struct server *s, const uint8_t *msg, size_t n, struct asked *q)
{
	size_t at = 12, len = 0;

	q->msg = msg;
	q->n = n;
	while (at < n && msg[at] && len + msg[at] + 1 < sizeof(q->name)) {
		for (unsigned i = 1; i <= msg[at]; i++)
			q->name[len++] = (char)(msg[at + i] | (msg[at + i] >= 'A' && msg[at + i] <= 'Z' ? 0x20 : 0));
		q->name[len++] = '.';
		at += 1u + msg[at];
	}
	q->name[len ? len - 1 : 0] = '\0';
	(void)snprintf(q->label, sizeof(q->label), "%.*s", (int)strcspn(q->name, "."), q->name);
	q->type = at16(msg + at + 1);
	q->question_end = at + 5;
	q->edns = at16(msg + 10) == 1;
	if (q->edns && at16(msg + q->question_end + 9) != 0)
		s->saw_options = true;
}

static void begin(struct msg *m, const struct asked *q, unsigned flags, unsigned an, unsigned ns, unsigned ar)
{
	put_head(m, at16(q->msg), 0x8180 | flags, 1, an, ns, ar);
	put(m, q->msg + 12, q->question_end - 12);
}

static void put_owned_a(struct msg *m, uint32_t ttl, uint32_t addr)
{
	uint8_t b[4] = { (uint8_t)(addr >> 24), (uint8_t)(addr >> 16), (uint8_t)(addr >> 8), (uint8_t)addr };

	put16(m, 0xc00c);
	put_rr(m, 1, ttl, b, 4);
}

static void simple(struct msg *m, const struct asked *q, uint32_t ttl, uint32_t addr)
{
	begin(m, q, 0, 1, 0, 0);
	put_owned_a(m, ttl, addr);
}

static void send_udp(struct server *s, const struct asked *q, const struct msg *m)
{
	(void)!sendto(s->udp, m->b, m->n, 0, (const struct sockaddr *)&q->from, sizeof(q->from));
}

static void send_later(void *arg)
{
	struct server *s = arg;

	(void)!sendto(s->udp, s->later_msg.b, s->later_msg.n, 0, (const struct sockaddr *)&s->later_to,
		      sizeof(s->later_to));
}

/* Write the (last) answer into m; an empty one is not sent. */
static void script(struct server *s, struct asked *q, struct msg *m)
{
	const char *l = q->label;

	m->n = 0;
	if (strcmp(l, "silent") == 0 || s->mute)
		return;
	if (strcmp(l, "wrongid") == 0 || strcmp(l, "onlywrongid") == 0) {
		for (unsigned i = 1; i <= 3; i++) {
			simple(m, q, 300, EVIL);
			set16(m, 0, at16(m->b) + i);
			send_udp(s, q, m);
		}
		m->n = 0;
		if (l[0] == 'o')
			return;
	} else if (strcmp(l, "wrongname") == 0) {
		put_head(m, at16(q->msg), 0x8180, 1, 1, 0, 0);
		put_question(m, "good.example", 1);
		put_owned_a(m, 300, EVIL);
		send_udp(s, q, m);
		/* And a question where an answer should be. */
		simple(m, q, 300, EVIL);
		m->b[2] &= 0x7f;
		send_udp(s, q, m);
	} else if (strcmp(l, "storm") == 0 && !q->tcp) {
		for (unsigned i = 1; i <= UPSTREAM_STRANGERS + 6; i++) {
			simple(m, q, 300, EVIL);
			set16(m, 0, at16(m->b) + i);
			send_udp(s, q, m);
		}
		m->n = 0;
		return;
	} else if (strcmp(l, "loop") == 0) {
		begin(m, q, 0, 2, 0, 0);
		put_cname(m, q->name, 300, "round.example");
		put_cname(m, "round.example", 300, q->name);
		return;
	} else if (strcmp(l, "pointer") == 0) {
		begin(m, q, 0, 1, 0, 0);
		put16(m, 0xc000 | (unsigned)m->n);
		put_rr(m, 1, 300, "\1\2\3\4", 4);
		return;
	} else if (strcmp(l, "garbage") == 0) {
		for (unsigned i = 0; i < 300; i++)
			put8(m, i * 197 ^ (i >> 3));
		return;
	} else if (strcmp(l, "short") == 0) {
		begin(m, q, 0, 1, 0, 0);
		return;
	} else if (strcmp(l, "servfail") == 0 || strcmp(l, "refused") == 0) {
		begin(m, q, l[0] == 's' ? 2 : 5, 0, 0, 0);
		return;
	} else if (strcmp(l, "nx") == 0 || strcmp(l, "empty") == 0) {
		begin(m, q, l[0] == 'n' ? 3 : 0, 0, 1, 0);
		put_soa(m, "example", 900, 300);
		return;
	} else if (strcmp(l, "noedns") == 0 && q->edns) {
		begin(m, q, 1, 0, 0, 0);
		return;
	} else if (strcmp(l, "oldest") == 0 && q->edns) {
		put_head(m, at16(q->msg), 0x8181, 0, 0, 0, 0);
		return;
	} else if (strcmp(l, "tc") == 0 && !q->tcp) {
		simple(m, q, 300, EVIL);
		set16(m, 2, 0x8380);
		return;
	} else if (strcmp(l, "big") == 0 || strcmp(l, "thousand") == 0) {
		unsigned n = 0, max = l[0] == 'b' ? 4000 : 1000;

		if (!q->tcp) {
			begin(m, q, 0x0200, 0, 0, 0);
			return;
		}
		begin(m, q, 0, max, 0, 0);
		for (; n < max; n++)
			put_owned_a(m, 300, GOOD + n);
		return;
	} else if (strcmp(l, "lowercase") == 0 || strcmp(l, "forgetful") == 0) {
		simple(m, q, 300, q->tcp ? GOOD : EVIL);
		for (size_t i = 12; i < q->question_end; i++)
			m->b[i] |= m->b[i] >= 'A' && m->b[i] <= 'Z' ? 0x20 : 0;
		return;
	} else if (strcmp(l, "alias") == 0) {
		begin(m, q, 0, 2, 0, 0);
		put_cname(m, q->name, 300, "elsewhere.cdn.example");
		put_a(m, "elsewhere.cdn.example", 300, GOOD2);
		return;
	} else if (strcmp(l, "poison") == 0) {
		begin(m, q, 0, 3, 1, 2);
		put_a(m, "bank.example", 86400, EVIL);
		put_owned_a(m, 300, GOOD);
		put_cname(m, "bank.example", 86400, q->name);
		put_soa(m, "bank.example", 86400, 86400);
		put_a(m, "bank.example", 86400, EVIL);
		put_a(m, "ns.bank.example", 86400, EVIL);
		return;
	} else if (strcmp(l, "bank") == 0) {
		simple(m, q, 300, GOOD2);
		return;
	} else if (strcmp(l, "rebind") == 0) {
		simple(m, q, 0, s->asked_rebind++ ? PRIVATE : GOOD);
		return;
	} else if (strcmp(l, "mixed") == 0) {
		begin(m, q, 0, 4, 0, 0);
		put_owned_a(m, 300, PRIVATE);
		put_owned_a(m, 300, GOOD);
		put_owned_a(m, 300, HOSTS);
		put_owned_a(m, 300, 0xc6120001u);
		return;
	} else if (strcmp(l, "private") == 0) {
		simple(m, q, 300, PRIVATE);
		return;
	} else if (strcmp(l, "twice") == 0) {
		simple(m, q, 300, GOOD);
		send_udp(s, q, m);
		return;
	} else if (strcmp(l, "slow") == 0) {
		simple(&s->later_msg, q, 300, GOOD);
		s->later_to = q->from;
		loop_timer_set(s->loop, &s->later, 300, send_later, s);
		return;
	}
	if (q->type == 1) {
		simple(m, q, 300, GOOD);
	} else if (q->type == 28) {
		begin(m, q, 0, 1, 0, 0);
		put16(m, 0xc00c);
		put_rr(m, 28, 300, "\x2a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	} else if (q->type == 12) {
		begin(m, q, 0, 1, 0, 0);
		put16(m, 0xc00c);
		put_rr(m, 12, 300, "\3ptr\7example\0", 13);
	} else if (q->type == 16) {
		begin(m, q, 0, 1, 0, 0);
		put16(m, 0xc00c);
		put_rr(m, 16, 300, "\4text", 5);
	} else {
		begin(m, q, 0, 0, 1, 0);
		put_soa(m, "example", 900, 300);
	}
}

static void note(struct server *s, const struct asked *q)
{
	if (s->asked < 4) {
		s->ids[s->asked] = at16(q->msg);
		s->ports[s->asked] = ntohs(q->from.sin_port);
		(void)snprintf(s->cases[s->asked], sizeof(s->cases[0]), "%.*s", (int)q->msg[12],
			       (const char *)q->msg + 13);
	}
	s->asked++;
	s->asked_tcp += q->tcp;
}

static struct msg out;

static void server_udp(void *arg, uint32_t events)
{
	struct server *s = arg;
	static uint8_t in[4096];

	(void)events;
	for (int i = 0; i < 64; i++) {
		struct asked q = { 0 };
		socklen_t len = sizeof(q.from);
		ssize_t n = recvfrom(s->udp, in, sizeof(in), MSG_DONTWAIT, (struct sockaddr *)&q.from, &len);

		if (n < 16)
			return;
		parse(s, in, (size_t)n, &q);
		note(s, &q);
		script(s, &q, &out);
		if (out.n > 0)
			send_udp(s, &q, &out);
	}
}

static void conn_close(struct server *s)
{
	loop_del(s->loop, &s->conn_io);
	if (s->conn >= 0)
		(void)close(s->conn);
	s->conn = -1;
	s->in.n = 0;
}

static void conn_ready(void *arg, uint32_t events)
{
	struct server *s = arg;
	ssize_t n = recv(s->conn, s->in.b + s->in.n, sizeof(s->in.b) - s->in.n, MSG_DONTWAIT);
	struct asked q = { .tcp = true };
	uint8_t head[2];

	(void)events;
	if (n <= 0) {
		conn_close(s);
		return;
	}
	s->in.n += (size_t)n;
	if (s->in.n < 2 || s->in.n < 2 + at16(s->in.b))
		return;
	parse(s, s->in.b + 2, s->in.n - 2, &q);
	note(s, &q);
	script(s, &q, &out);
	head[0] = (uint8_t)(out.n >> 8);
	head[1] = (uint8_t)out.n;
	s->in.n = 0;
	if (out.n > 0 && send(s->conn, head, 2, MSG_NOSIGNAL) == 2)
		/* In two parts, so that the reader has to put them together; what doesn't fit at once is small. */
		for (size_t at = 0; at < out.n;) {
			ssize_t k = send(s->conn, out.b + at, out.n - at > 30000 ? 30000 : out.n - at, MSG_NOSIGNAL);

			if (k <= 0)
				break;
			at += (size_t)k;
		}
}

static void server_accept(void *arg, uint32_t events)
{
	struct server *s = arg;

	(void)events;
	conn_close(s);
	s->conn = accept4(s->tcp, NULL, NULL, SOCK_CLOEXEC);
	if (s->conn >= 0)
		assert_int_equal(loop_add(s->loop, &s->conn_io, s->conn, EPOLLIN, conn_ready, s), 0);
}

static void server_start(struct server *s, struct loop *loop)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);

	memset(s, 0, sizeof(*s));
	s->loop = loop;
	s->conn = -1;
	/* One port for both: somebody else may have the other one. */
	for (int i = 0; s->port == 0; i++) {
		sin.sin_port = 0;
		s->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		s->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(s->tcp, (struct sockaddr *)&sin, sizeof(sin)), 0);
		assert_int_equal(getsockname(s->tcp, (struct sockaddr *)&sin, &len), 0);
		if (bind(s->udp, (struct sockaddr *)&sin, sizeof(sin)) == 0) {
			s->port = ntohs(sin.sin_port);
			break;
		}
		assert_true(i < 100);
		(void)close(s->tcp);
		(void)close(s->udp);
	}
	assert_int_equal(listen(s->tcp, 16), 0);
	assert_int_equal(loop_add(loop, &s->io, s->udp, EPOLLIN, server_udp, s), 0);
	assert_int_equal(loop_add(loop, &s->tcp_io, s->tcp, EPOLLIN, server_accept, s), 0);
}

static void server_stop(struct server *s)
{
	loop_timer_stop(s->loop, &s->later);
	conn_close(s);
	loop_del(s->loop, &s->io);
	loop_del(s->loop, &s->tcp_io);
	(void)close(s->udp);
	(void)close(s->tcp);
}

/* ---- the other side: boxes */

struct box {
	struct names_box *names;
	struct policy *policy;
	const char *name; /* NULL: unknown */
};

struct seen_event {
	enum names_event ev;
	char name[256];
	char addr[IP_TEXT_MAX];
	char why[200];
};

struct world {
	struct loop *loop;
	struct server s, second;
	struct names *names;
	struct box box;
	struct own_addrs own;
	struct seen_event events[8];
	unsigned nevents;
	unsigned asks;
	void *token;
	bool no_asking;
	struct loop_timer deadline;
	unsigned left; /* answers to come */
	bool late, running;
};

static struct world w;

static const struct policy *policy_of(void *box)
{
	return ((struct box *)box)->policy;
}

static bool own_has(const struct ip *a, void *arg)
{
	struct ip ip = ip_of4(HOSTS);

	(void)arg;
	return ip_same(a, &ip);
}

static void event(void *box, enum names_event ev, const char *name, const struct ip *addr, const char *why)
{
	struct seen_event *e = &w.events[w.nevents % 8];

	(void)box;
	w.nevents++;
	e->ev = ev;
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	(void)snprintf(e->why, sizeof(e->why), "%s", why);
	e->addr[0] = '\0';
	if (addr)
		(void)ip_text(addr, e->addr);
}

static bool ask_person(void *box, const char *name, void *token)
{
	(void)box;
	(void)name;
	w.asks++;
	w.token = token;
	return !w.no_asking;
}

static bool who(void *box, const char **ret_name, struct ip *v4, struct ip *v6)
{
	const struct box *b = box;

	*ret_name = b->name;
	*v4 = net_box4(300);
	*v6 = net_box6(300);
	return b->name != NULL;
}

static void policy_set(struct box *b, const char *text)
{
	struct err e = ERR_INIT;

	policy_unref(b->policy);
	b->policy = NULL;
	if (policy_parse(text, NULL, &b->policy, &e) < 0)
		fail_msg("%s", e.text);
}

static void box_start(struct box *b, const char *policy)
{
	*b = (struct box){ 0 };
	policy_set(b, policy);
	b->names = names_box_new(w.names, b);
	assert_non_null(b->names);
}

static void box_stop(struct box *b)
{
	names_box_free(b->names);
	policy_unref(b->policy);
	*b = (struct box){ 0 };
}

static void servers_set(const char *options, bool have6)
{
	char conf[300];

	(void)snprintf(conf, sizeof(conf), "# the host's\nsearch corp.example\nnameserver [127.0.0.1]:%u\n%s\n",
		       w.s.port, options);
	names_upstreams(w.names, conf, have6);
}

static void too_late(void *arg)
{
	(void)arg;
	w.late = true;
	loop_quit(w.loop);
}

static int world_up(void **state)
{
	struct names_calls calls = {
		.policy = policy_of, .own = &w.own, .event = event, .ask = ask_person, .who = who
	};
	struct err e = ERR_INIT;

	leak_mark(state);
	memset(&w, 0, sizeof(w));
	w.own.has = own_has;
	assert_int_equal(loop_new(&w.loop), 0);
	server_start(&w.s, w.loop);
	assert_int_equal(names_new(w.loop, &calls, &w.names, &e), 0);
	servers_set("options timeout:1 attempts:1", true);
	box_start(&w.box, "internet");
	return 0;
}

static int world_down(void **state)
{
	box_stop(&w.box);
	names_free(w.names);
	server_stop(&w.s);
	loop_timer_stop(w.loop, &w.deadline);
	loop_free(w.loop);
	return leak_check(state);
}

/* Until `left` answers have come. */
static void run(void)
{
	if (w.left == 0)
		return;
	loop_timer_set(w.loop, &w.deadline, 60000, too_late, NULL);
	w.running = true;
	assert_int_equal(loop_run(w.loop), 0);
	w.running = false;
	loop_timer_stop(w.loop, &w.deadline);
	assert_false(w.late);
}

static void one_came(void)
{
	if (--w.left == 0 && w.running)
		loop_quit(w.loop);
}

struct reply {
	bool came;
	struct msg m;
};

static void answered(void *arg, const void *msg, size_t n)
{
	struct reply *r = arg;

	assert_false(r->came);
	r->came = true;
	r->m.n = 0;
	put(&r->m, msg ? msg : "", n);
	one_came();
}

static struct reply reply, reply2, reply3;

static void start_full(struct box *b, const char *name, unsigned type, unsigned edns, size_t room, struct reply *r)
{
	static struct msg m;

	put_head(&m, 0x5aa5, 0x0100, 1, 0, 0, edns ? 1 : 0);
	put_question(&m, name, type);
	/* With a client subnet and a cookie, which are nobody's business. */
	if (edns)
		put_opt(&m, edns, 0, "\0\10\0\7\0\1\30\0\300\0\2\0\12\0\10abcdefgh", 23);
	r->came = false;
	w.left++;
	names_query(b->names, m.b, m.n, room, answered, r);
}

static void start(struct box *b, const char *name, unsigned type, struct reply *r)
{
	start_full(b, name, type, 1232, NAMES_UDP_MAX, r);
}

/* Returns the code of the answer. */
static unsigned ask(const char *name, unsigned type)
{
	start(&w.box, name, type, &reply);
	run();
	assert_true(reply.came);
	assert_true(reply.m.n >= 12);
	assert_int_equal(at16(reply.m.b), 0x5aa5);
	assert_int_equal(at16(reply.m.b + 2) & 0xf900, 0x8100);
	return at16(reply.m.b + 2) & 15;
}

/* How many records the answer has; those of `type` that are addresses go into `addrs`. */
static unsigned records(const char *name, uint16_t type, uint32_t *addrs, size_t max, uint32_t *ret_ttl)
{
	struct dns_answer *a = NULL;
	struct dns_name n;
	const uint8_t *rdata;
	size_t at = 0, len, found = 0;
	uint16_t t;
	unsigned count;

	assert_int_equal(dns_name_of_text(name, &n), 0);
	assert_int_equal(dns_answer_read(reply.m.b, reply.m.n, &n, type, &a), 0);
	while (dns_answer_each(a, &at, &t, &rdata, &len))
		if (t == 1 && found < max)
			addrs[found++] = (uint32_t)at16(rdata) << 16 | at16(rdata + 2);
	count = a->count;
	if (ret_ttl)
		*ret_ttl = a->ttl;
	dns_answer_unref(a);
	return count;
}

/* The one address that a name of these tests has for the box, 0 for none. */
static uint32_t address(const char *name)
{
	uint32_t addr = 0;

	if (ask(name, 1) != 0)
		return 0;
	(void)records(name, 1, &addr, 1, NULL);
	return addr;
}

static bool has_ede(unsigned code)
{
	uint8_t want[4] = { 0, 15, (uint8_t)(code >> 8), (uint8_t)code };

	/* OPT is the last record. */
	for (size_t i = 12; i + 6 <= reply.m.n; i++)
		if (memcmp(reply.m.b + i, want, 2) == 0 && memcmp(reply.m.b + i + 4, want + 2, 2) == 0)
			return true;
	return false;
}

static unsigned names_at(const struct box *b, uint32_t addr, const char **ret, size_t max)
{
	struct ip ip = ip_of4(addr);

	return (unsigned)names_of(b->names, &ip, ret, max);
}

/* ---- the ordinary ways */

static void a_name_is_asked_once_and_remembered(void **state)
{
	const char *names[4];
	uint32_t ttl;

	(void)state;
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 0);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(records("good.example", 1, NULL, 0, &ttl), 1);
	assert_in_range(ttl, 299, 300);
	assert_int_equal(address("GOOD.example"), GOOD);
	assert_int_equal(w.s.asked, 1);
	assert_false(w.s.saw_options);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 1);
	assert_string_equal(names[0], "good.example");
	assert_int_equal(names_at(&w.box, GOOD2, names, 4), 0);
	/* Another type of it is another question; the newest name comes first. */
	assert_int_equal(ask("good.example", 28), 0);
	assert_int_equal(w.s.asked, 2);
	assert_int_equal(address("other.example"), GOOD);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 2);
	assert_string_equal(names[0], "other.example");
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 2);
	assert_string_equal(names[0], "good.example");
	assert_int_equal(w.nevents, 0);
}

static void one_address_has_so_many_names(void **state)
{
	const char *names[40];
	char name[40];

	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		(void)snprintf(name, sizeof(name), "n%u.example", i);
		assert_int_equal(address(name), GOOD);
	}
	assert_int_equal(names_at(&w.box, GOOD, names, 40), NAMES_PER_ADDR);
	assert_string_equal(names[0], "n29.example");
	assert_string_equal(names[NAMES_PER_ADDR - 1], "n14.example");
}

static void what_one_box_knows_the_other_does_not(void **state)
{
	const char *names[4];
	struct box other;

	(void)state;
	box_start(&other, "internet");
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 1);
	assert_int_equal(names_at(&other, GOOD, names, 4), 0);
	/* It is in the cache for both, and known when it was asked for. */
	start(&other, "good.example", 1, &reply);
	run();
	assert_int_equal(w.s.asked, 1);
	assert_int_equal(names_at(&other, GOOD, names, 4), 1);
	box_stop(&other);
}

static void the_same_question_is_asked_once(void **state)
{
	static struct reply many[20];
	struct box other;

	(void)state;
	box_start(&other, "internet");
	for (unsigned i = 0; i < 20; i++)
		start(i % 2 ? &other : &w.box, "slow.example", 1, &many[i]);
	run();
	assert_int_equal(w.s.asked, 1);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(at16(many[i].m.b + 6), 1);
	box_stop(&other);
}

static void questions_are_hard_to_guess(void **state)
{
	bool mixed = false;

	(void)state;
	assert_int_equal(address("abcdefghijklmnopqrstuvwxyz.example"), GOOD);
	assert_int_equal(address("abcdefghijklmnopqrstuvwxyzz.example"), GOOD);
	assert_int_equal(address("abcdefghijklmnopqrstuvwxyzzz.example"), GOOD);
	assert_int_equal(address("abcdefghijklmnopqrstuvwxyzzzz.example"), GOOD);
	assert_int_equal(w.s.asked, 4);
	for (unsigned i = 0; i < 4; i++) {
		const char *upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", *lower = "abcdefghijklmnopqrstuvwxyz";

		mixed = strpbrk(w.s.cases[i], upper) && strpbrk(w.s.cases[i], lower);
		assert_true(mixed);
		for (unsigned k = 0; k < i; k++) {
			/* 1 in 65,536, and 1 in 28,000, that equal ones come by chance: both at once don't. */
			assert_false(w.s.ids[i] == w.s.ids[k] && w.s.ports[i] == w.s.ports[k]);
			assert_true(strncmp(w.s.cases[i], w.s.cases[k], 26) != 0);
		}
	}
}

static void nothing_is_remembered_too(void **state)
{
	(void)state;
	assert_int_equal(ask("nx.example", 1), DNS_NXDOMAIN);
	assert_int_equal(at16(reply.m.b + 8), 1);
	assert_int_equal(ask("nx.example", 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 1);
	assert_int_equal(ask("empty.example", 1), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 0);
	assert_int_equal(ask("empty.example", 1), DNS_NOERROR);
	assert_int_equal(w.s.asked, 2);
	/* Not what the server couldn't say. */
	assert_int_equal(ask("servfail.example", 1), DNS_SERVFAIL);
	assert_true(has_ede(DNS_EDE_NETWORK));
	assert_int_equal(w.nevents, 1);
	assert_int_equal(w.events[0].ev, NAMES_FAILED);
	assert_string_equal(w.events[0].name, "servfail.example");
	assert_non_null(strstr(w.events[0].why, "SERVFAIL"));
	/* The host's servers are not the box's business. */
	assert_null(memmem(reply.m.b, reply.m.n, "127.0.0.1", 9));
	assert_int_equal(ask("refused.example", 1), DNS_SERVFAIL);
}

static void without_a_way_there_are_no_ipv6_addresses(void **state)
{
	(void)state;
	servers_set("options timeout:1 attempts:1", false);
	assert_int_equal(ask("good.example", 28), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 0);
	assert_int_equal(w.s.asked, 0);
	servers_set("options no-aaaa", true);
	assert_int_equal(ask("good.example", 28), DNS_NOERROR);
	assert_int_equal(w.s.asked, 0);
	servers_set("", true);
	assert_int_equal(ask("good.example", 28), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 1);
	assert_int_equal(w.s.asked, 1);
}

static void a_new_network_begins_with_an_empty_memory(void **state)
{
	(void)state;
	assert_int_equal(address("good.example"), GOOD);
	servers_set("options timeout:1", true);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(w.s.asked, 2);
}

/* ---- servers that misbehave */

static void forged_answers_are_passed_over(void **state)
{
	const char *names[4];

	(void)state;
	assert_int_equal(address("wrongid.example"), GOOD);
	assert_int_equal(address("wrongname.example"), GOOD);
	assert_int_equal(address("onlywrongid.example"), 0);
	/* After too many of them TCP is asked, where nobody can forge. */
	assert_int_equal(w.s.asked_tcp, 0);
	assert_int_equal(address("storm.example"), GOOD);
	assert_int_equal(w.s.asked_tcp, 1);
	assert_int_equal(names_at(&w.box, EVIL, names, 4), 0);
	/* good.example, in whose name one lied, isn't known. */
	assert_int_equal(address("good.example"), GOOD);
}

static void an_answer_without_the_case_is_asked_over_tcp(void **state)
{
	(void)state;
	assert_int_equal(address("lowercase.example"), GOOD);
	assert_int_equal(w.s.asked_tcp, 1);
}

static void other_names_in_an_answer_count_for_nothing(void **state)
{
	const char *names[4];

	(void)state;
	assert_int_equal(address("poison.example"), GOOD);
	assert_int_equal(records("poison.example", 1, NULL, 0, NULL), 1);
	assert_int_equal(names_at(&w.box, EVIL, names, 4), 0);
	assert_int_equal(w.s.asked, 1);
	assert_int_equal(address("bank.example"), GOOD2);
	assert_int_equal(w.s.asked, 2);
}

static void answers_that_cannot_be_read_are_none(void **state)
{
	static const char *const bad[] = { "loop.example", "pointer.example", "garbage.example", "short.example" };

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(ask(bad[i], 1), DNS_SERVFAIL);
		assert_int_equal(at16(reply.m.b + 6), 0);
	}
	assert_int_equal(w.nevents, 4);
	assert_non_null(strstr(w.events[0].why, "aliases"));
	assert_int_equal(address("good.example"), GOOD);
}

static void long_answers_come_over_tcp(void **state)
{
	uint32_t addrs[2];
	const char *names[2];

	(void)state;
	assert_int_equal(address("tc.example"), GOOD);
	assert_int_equal(w.s.asked_tcp, 1);
	assert_int_equal(names_at(&w.box, EVIL, names, 2), 0);
	/* To the box they go cut, and whole over TCP, as far as they are kept. */
	assert_int_equal(ask("thousand.example", 1), DNS_NOERROR);
	assert_true(at16(reply.m.b + 2) & DNS_TC);
	assert_true(reply.m.n <= 1232);
	start_full(&w.box, "thousand.example", 1, 0, NAMES_UDP_MAX, &reply);
	run();
	assert_true(at16(reply.m.b + 2) & DNS_TC);
	assert_true(reply.m.n <= 512);
	assert_int_equal(at16(reply.m.b + 10), 0);
	start_full(&w.box, "thousand.example", 1, 0, NAMES_MSG_MAX, &reply);
	run();
	assert_false(at16(reply.m.b + 2) & DNS_TC);
	assert_int_equal(records("thousand.example", 1, addrs, 2, NULL), DNS_KEEP_MAX);
	assert_int_equal(addrs[1], GOOD + 1);
	assert_int_equal(w.s.asked_tcp, 2);
	start_full(&w.box, "big.example", 1, 0, NAMES_MSG_MAX, &reply);
	run();
	assert_int_equal(records("big.example", 1, NULL, 0, NULL), DNS_KEEP_MAX);
	assert_int_equal(w.s.asked_tcp, 3);
}

static void old_servers_are_asked_without_edns(void **state)
{
	(void)state;
	assert_int_equal(address("noedns.example"), GOOD);
	assert_int_equal(w.s.asked, 2);
	assert_int_equal(address("oldest.example"), GOOD);
	assert_int_equal(w.s.asked, 4);
}

static void answers_that_come_twice_or_late_are_one(void **state)
{
	(void)state;
	assert_int_equal(address("twice.example"), GOOD);
	assert_int_equal(address("slow.example"), GOOD);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(w.s.asked, 3);
}

static void silence_ends(void **state)
{
	uint64_t from = clock_ms();

	(void)state;
	assert_int_equal(ask("silent.example", 1), DNS_SERVFAIL);
	assert_in_range(clock_ms() - from, 900, 3000);
	assert_int_equal(w.nevents, 1);
	assert_non_null(strstr(w.events[0].why, "no answer in time"));
	/* For a second it isn't tried again. */
	assert_int_equal(ask("silent.example", 1), DNS_SERVFAIL);
	assert_in_range(clock_ms() - from, 900, 3500);
	assert_int_equal(w.s.asked, 1);
}

static void the_second_server_takes_over(void **state)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	char conf[300];
	uint64_t from;
	int closed = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	server_start(&w.second, w.loop);
	/* One that says nothing. */
	w.s.mute = true;
	(void)snprintf(conf, sizeof(conf),
		       "nameserver [127.0.0.1]:%u\nnameserver [127.0.0.1]:%u\noptions timeout:1 attempts:1\n", w.s.port,
		       w.second.port);
	names_upstreams(w.names, conf, true);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(w.s.asked, 1);
	assert_int_equal(w.second.asked, 1);
	/* From now on it is asked last. */
	from = clock_ms();
	assert_int_equal(address("other.example"), GOOD);
	assert_true(clock_ms() - from < 900);
	assert_int_equal(w.s.asked, 1);
	assert_int_equal(w.second.asked, 2);
	/* One where nothing listens any more. */
	assert_int_equal(bind(closed, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(getsockname(closed, (struct sockaddr *)&sin, &len), 0);
	(void)close(closed);
	(void)snprintf(conf, sizeof(conf), "nameserver [127.0.0.1]:%u\nnameserver [127.0.0.1]:%u\n",
		       ntohs(sin.sin_port), w.second.port);
	names_upstreams(w.names, conf, true);
	from = clock_ms();
	assert_int_equal(address("good.example"), GOOD);
	assert_true(clock_ms() - from < 900);
	assert_int_equal(w.second.asked, 3);
	server_stop(&w.second);
}

static void options_of_resolv_conf_are_followed(void **state)
{
	char conf[300];

	(void)state;
	server_start(&w.second, w.loop);
	(void)snprintf(
		conf, sizeof(conf),
		"; both\n nameserver [127.0.0.1]:1\nnameserver\t[127.0.0.1]:%u \nnameserver nonsense\nnameserver 1.2.3\n"
		"nameserver [127.0.0.1]:%u\noptions ndots:2 rotate\nfrobnicate yes\n",
		w.s.port, w.second.port);
	names_upstreams(w.names, conf, true);
	for (unsigned i = 0; i < 10; i++) {
		char name[40];

		(void)snprintf(name, sizeof(name), "n%u.example", i);
		assert_int_equal(address(name), GOOD);
	}
	assert_int_equal(w.s.asked, 5);
	assert_int_equal(w.second.asked, 5);
	server_stop(&w.second);
	servers_set("options use-vc", true);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(w.s.asked_tcp, 1);
	/* On an interface only; one that isn't there can't be asked. */
	(void)snprintf(conf, sizeof(conf), "nameserver [127.0.0.1%%lo]:%u\n", w.s.port);
	names_upstreams(w.names, conf, true);
	assert_int_equal(address("good.example"), GOOD);
	(void)snprintf(conf, sizeof(conf), "nameserver [127.0.0.1%%nosuch0]:%u\n", w.s.port);
	names_upstreams(w.names, conf, true);
	assert_int_equal(address("good.example"), 0);
	/* attempts: as often, when there is only one. */
	w.s.mute = true;
	w.s.asked = 0;
	servers_set("options timeout:1 attempts:3", true);
	assert_int_equal(address("other.example"), 0);
	assert_int_equal(w.s.asked, 3);
}

/* ---- what a box may know */

static void forbidden_addresses_are_removed(void **state)
{
	const char *names[4];
	uint32_t addrs[4];

	(void)state;
	assert_int_equal(ask("mixed.example", 1), DNS_NOERROR);
	assert_int_equal(records("mixed.example", 1, addrs, 4, NULL), 1);
	assert_int_equal(addrs[0], GOOD);
	assert_int_equal(w.nevents, 3);
	assert_int_equal(w.events[0].ev, NAMES_FORBIDDEN);
	assert_string_equal(w.events[0].addr, "10.0.0.1");
	assert_string_equal(w.events[1].addr, "20.9.9.9");
	assert_string_equal(w.events[2].addr, "198.18.0.1");
	assert_int_equal(names_at(&w.box, PRIVATE, names, 4), 0);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 1);

	assert_int_equal(ask("private.example", 1), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 0);
	assert_true(has_ede(DNS_EDE_BLOCKED));
	/* lan= lets it through, from the same cache; and only what it names. */
	policy_set(&w.box, "internet,lan=10.0.0.0/24:80");
	assert_int_equal(address("private.example"), PRIVATE);
	assert_int_equal(names_at(&w.box, PRIVATE, names, 4), 1);
	policy_set(&w.box, "internet,lan=10.0.1.0/24");
	assert_int_equal(address("private.example"), 0);
	/* A service of the host's is reached by its own name, not by what others call its address. */
	policy_set(&w.box, "internet,host-port=80");
	assert_int_equal(ask("mixed.example", 1), DNS_NOERROR);
	assert_int_equal(records("mixed.example", 1, addrs, 4, NULL), 1);
	assert_int_equal(addrs[0], GOOD);
	assert_int_equal(w.s.asked, 2);
}

static void a_name_that_turns_private_does_not_come_through(void **state)
{
	const char *names[4];

	(void)state;
	assert_int_equal(address("rebind.example"), GOOD);
	/* Known for a minute at least, though its TTL is 0; not answered from the cache. */
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 1);
	assert_int_equal(address("rebind.example"), 0);
	assert_int_equal(w.s.asked, 2);
	assert_int_equal(names_at(&w.box, PRIVATE, names, 4), 0);
	assert_string_equal(w.events[0].addr, "10.0.0.1");
}

static void names_are_judged_by_the_first_of_the_chain(void **state)
{
	const char *names[4];

	(void)state;
	policy_set(&w.box, "alias.example,*.sub.example:443");
	assert_int_equal(address("alias.example"), GOOD2);
	assert_int_equal(records("alias.example", 1, NULL, 0, NULL), 2);
	assert_int_equal(names_at(&w.box, GOOD2, names, 4), 1);
	assert_string_equal(names[0], "alias.example");
	assert_int_equal(address("a.sub.example"), GOOD);
	assert_int_equal(w.nevents, 0);
	assert_int_equal(w.s.asked, 2);
	/* Not named: doesn't exist, at once, and nobody is asked. */
	assert_int_equal(ask("elsewhere.cdn.example", 1), DNS_NXDOMAIN);
	assert_true(has_ede(DNS_EDE_BLOCKED));
	assert_int_equal(ask("sub.example", 1), DNS_NXDOMAIN);
	assert_int_equal(ask("alias.example.org", 28), DNS_NXDOMAIN);
	assert_int_equal(ask("xalias.example", 16), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 2);
	assert_int_equal(w.nevents, 4);
	assert_int_equal(w.events[0].ev, NAMES_REFUSED);
	assert_string_equal(w.events[0].name, "elsewhere.cdn.example");
	/* No EDNS, no extended error. */
	start_full(&w.box, "sub.example", 1, 0, NAMES_UDP_MAX, &reply);
	run();
	assert_int_equal(at16(reply.m.b + 10), 0);
	assert_int_equal(at16(reply.m.b + 2) & 15, DNS_NXDOMAIN);
	policy_set(&w.box, "internet");
	assert_int_equal(address("sub.example"), GOOD);
}

static void only_some_types_are_answered(void **state)
{
	(void)state;
	assert_int_equal(ask("good.example", 16), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 1);
	assert_int_equal(w.s.asked, 1);
	/* Any, zone transfers, mail boxes, a meta type. */
	for (const unsigned *t = (const unsigned[]){ 255, 252, 251, 253, 254, 249, 41, 0 }; *t; t++)
		assert_int_equal(ask("good.example", *t), DNS_REFUSED);
	assert_int_equal(ask("good.example", 0), DNS_REFUSED);
	/* HTTPS, SVCB, NULL, DNSKEY: no records. */
	for (const unsigned *t = (const unsigned[]){ 65, 64, 10, 48, 0 }; *t; t++) {
		assert_int_equal(ask("good.example", *t), DNS_NOERROR);
		assert_int_equal(at16(reply.m.b + 6), 0);
	}
	assert_int_equal(w.s.asked, 1);
}

static void names_of_this_place_stay_here(void **state)
{
	static const char *const near[] = { "printer",
					    "nas.local",
					    "db.internal",
					    "vpn.corp",
					    "router.lan",
					    "x.home.arpa",
					    "metadata.google.internal" };
	static const char *const never[] = { "abc.onion", "x.invalid", "other.cubby.internal", "_dns.resolver.arpa",
					     "use-application-dns.net" };

	(void)state;
	for (unsigned i = 0; i < sizeof(near) / sizeof(near[0]); i++)
		assert_int_equal(ask(near[i], 1), DNS_NXDOMAIN);
	for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		assert_int_equal(ask(never[i], 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 0);
	assert_int_equal(w.nevents, sizeof(near) / sizeof(near[0]) + sizeof(never) / sizeof(never[0]));
	/* With lan= they are asked for: addresses only. */
	policy_set(&w.box, "internet,lan=10.0.0.0/8");
	assert_int_equal(address("nas.local"), GOOD);
	assert_int_equal(address("printer"), GOOD);
	assert_int_equal(ask("nas.local", 16), DNS_NXDOMAIN);
	for (unsigned i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		assert_int_equal(ask(never[i], 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 2);
}

static void the_host_and_the_box_have_names(void **state)
{
	uint32_t addr = 0;
	struct ip mine = net_box4(300);

	(void)state;
	policy_set(&w.box, "alias.example");
	assert_int_equal(address(NET_HOST_NAME), 0xc6120001u);
	assert_int_equal(ask(NET_HOST_NAME, 28), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 1);
	assert_int_equal(ask(NET_HOST_NAME, 16), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 0);
	assert_int_equal(ask("localhost", 1), DNS_NOERROR);
	(void)records("localhost", 1, &addr, 1, NULL);
	assert_int_equal(addr, 0x7f000001);
	assert_int_equal(ask("1.0.18.198.in-addr.arpa", 12), DNS_NOERROR);
	assert_non_null(memmem(reply.m.b, reply.m.n, "\4host\5cubby\10internal", 20));
	/* Its own, when it is known. */
	assert_int_equal(ask("mybox", 1), DNS_NXDOMAIN);
	w.box.name = "mybox";
	assert_int_equal(address("mybox"), ip_get4(&mine));
	assert_int_equal(ask("44.1.18.198.in-addr.arpa", 12),
			 ip_get4(&mine) == 0xc612012cu ? DNS_NOERROR : DNS_NXDOMAIN);
	assert_int_equal(ask("other", 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 0);
}

static void addresses_have_names_when_they_may_be_reached(void **state)
{
	(void)state;
	assert_int_equal(ask("1.0.0.20.in-addr.arpa", 12), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 1);
	assert_int_equal(w.s.asked, 1);
	/* Private, another box, the host's, a zone, a part of an address. */
	assert_int_equal(ask("1.0.0.10.in-addr.arpa", 12), DNS_NXDOMAIN);
	assert_int_equal(ask("9.1.18.198.in-addr.arpa", 12), DNS_NXDOMAIN);
	assert_int_equal(ask("9.9.9.20.in-addr.arpa", 12), DNS_NXDOMAIN);
	assert_int_equal(ask("1.0.0.20.in-addr.arpa", 6), DNS_NXDOMAIN);
	assert_int_equal(ask("0.0.20.in-addr.arpa", 12), DNS_NXDOMAIN);
	assert_int_equal(ask("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa", 12),
			 DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 1);
	policy_set(&w.box, "internet,lan=10.0.0.0/8");
	assert_int_equal(ask("1.0.0.10.in-addr.arpa", 12), DNS_NOERROR);
	assert_int_equal(w.s.asked, 2);
	/* With a list: those that it knows by an allowed name. */
	policy_set(&w.box, "good.example");
	assert_int_equal(ask("1.0.0.20.in-addr.arpa", 12), DNS_NXDOMAIN);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(ask("1.0.0.20.in-addr.arpa", 12), DNS_NOERROR);
	assert_int_equal(at16(reply.m.b + 6), 1);
}

/* ---- bad queries, and too many */

static void queries_that_are_none_get_what_they_deserve(void **state)
{
	static struct msg m;

	(void)state;
	reply.came = false;
	w.left = 1;
	names_query(w.box.names, "abc", 3, NAMES_UDP_MAX, answered, &reply);
	assert_true(reply.came);
	assert_int_equal(reply.m.n, 0);
	put_head(&m, 0x5aa5, 0x0100, 2, 0, 0, 0);
	put_question(&m, "good.example", 1);
	reply.came = false;
	w.left = 1;
	names_query(w.box.names, m.b, m.n, NAMES_UDP_MAX, answered, &reply);
	assert_true(reply.came);
	assert_int_equal(at16(reply.m.b + 2) & 15, DNS_FORMERR);
	assert_int_equal(reply.m.n, 12);
	/* A class that only servers talk about themselves in. */
	put_head(&m, 0x5aa5, 0x0100, 1, 0, 0, 0);
	put_name(&m, "version.bind");
	put16(&m, 16);
	put16(&m, 3);
	reply.came = false;
	w.left = 1;
	names_query(w.box.names, m.b, m.n, NAMES_UDP_MAX, answered, &reply);
	assert_int_equal(at16(reply.m.b + 2) & 15, DNS_REFUSED);
	/* A dot, a slash, a blank inside a label; the root. */
	for (const char *const *bad = (const char *const[]){ "a/b.example", "a b.example", "", NULL }; *bad; bad++)
		assert_int_equal(ask(*bad, 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 0);
	assert_int_equal(ask("a-b_c.example", 1), DNS_NOERROR);
	assert_int_equal(w.s.asked, 1);
}

static void the_case_of_the_question_comes_back(void **state)
{
	(void)state;
	assert_int_equal(ask("GoOd.ExAmPlE", 1), DNS_NOERROR);
	assert_memory_equal(reply.m.b + 12, "\4GoOd\7ExAmPlE\0", 14);
	assert_int_equal(ask("gOoD.eXaMpLe", 1), DNS_NOERROR);
	assert_memory_equal(reply.m.b + 12, "\4gOoD\7eXaMpLe\0", 14);
	assert_int_equal(w.s.asked, 1);
}

static void one_box_has_so_many_under_way(void **state)
{
	static struct reply many[NAMES_UNDER_WAY + 3];
	struct box other;
	unsigned refused = 0, good = 0;

	(void)state;
	box_start(&other, "internet");
	for (unsigned i = 0; i < NAMES_UNDER_WAY + 3; i++) {
		char name[40];

		(void)snprintf(name, sizeof(name), "many%u.example", i);
		start(&w.box, name, 1, &many[i]);
	}
	for (unsigned i = 0; i < NAMES_UNDER_WAY + 3; i++)
		refused += many[i].came && (at16(many[i].m.b + 2) & 15) == DNS_SERVFAIL;
	assert_int_equal(refused, 3);
	assert_int_equal(w.nevents, 3);
	start(&other, "other.example", 1, &reply);
	run();
	assert_int_equal(at16(reply.m.b + 6), 1);
	for (unsigned i = 0; i < NAMES_UNDER_WAY + 3; i++)
		good += at16(many[i].m.b + 6) == 1;
	assert_int_equal(good, NAMES_UNDER_WAY);
	/* There is room again. */
	assert_int_equal(address("good.example"), GOOD);
	box_stop(&other);
}

static void a_tunnel_of_names_is_a_trickle(void **state)
{
	unsigned good = 0, total = 0;
	struct box other;
	uint64_t from = clock_ms(), took;
	char name[200];

	(void)state;
	box_start(&other, "internet");
	for (unsigned i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name),
			       "%04u-0123456789012345678901234567890123456789012345678901234.t.example", i);
		good += ask(name, 16) == DNS_NOERROR;
		total++;
	}
	took = clock_ms() - from;
	assert_int_equal(w.s.asked, good);
	assert_in_range(good, NAMES_BURST, NAMES_BURST + NAMES_RATE * (took / 1000 + 1));
	assert_true(good < total);
	assert_true(w.nevents > 0);
	assert_non_null(strstr(w.events[0].why, "new names a second"));
	/* What is in the cache costs nothing, and the neighbour has a budget of its own. */
	(void)snprintf(name, sizeof(name), "%04u-0123456789012345678901234567890123456789012345678901234.t.example", 0);
	assert_int_equal(ask(name, 16), DNS_NOERROR);
	start(&other, "good.example", 1, &reply);
	run();
	assert_int_equal(at16(reply.m.b + 6), 1);
	box_stop(&other);
}

#define CROWD 500
#define EACH  20

struct crowd_reply {
	unsigned came, code, an;
};

static void crowd_answer(void *arg, const void *msg, size_t n)
{
	struct crowd_reply *r = arg;

	r->came++;
	r->code = n >= 12 ? at16((const uint8_t *)msg + 2) & 15 : 99;
	r->an = n >= 12 ? at16((const uint8_t *)msg + 6) : 99;
	one_came();
}

static void a_crowd_resolves_without_loss(void **state)
{
	struct box *boxes = calloc(CROWD, sizeof(*boxes));
	uint64_t from = clock_ms();
	unsigned bad = 0;
	struct crowd_reply *replies = calloc((size_t)CROWD * EACH, sizeof(*replies));

	(void)state;
	assert_non_null(boxes);
	assert_non_null(replies);
	servers_set("options timeout:10 attempts:3", true);
	for (unsigned i = 0; i < CROWD; i++)
		box_start(&boxes[i], i % 2 ? "internet" : "*.example");
	for (unsigned k = 0; k < EACH; k++)
		for (unsigned i = 0; i < CROWD; i++) {
			static struct msg m;
			char name[60];

			/* Half of the names are the box's own, half are everybody's. */
			if (k % 2)
				(void)snprintf(name, sizeof(name), "b%u-%u.example", i, k);
			else
				(void)snprintf(name, sizeof(name), "all-%u.example", k);
			put_head(&m, k, 0x0100, 1, 0, 0, 0);
			put_question(&m, name, k % 4 == 3 ? 28 : 1);
			w.left++;
			names_query(boxes[i].names, m.b, m.n, NAMES_UDP_MAX, crowd_answer, &replies[i * EACH + k]);
		}
	run();
	for (unsigned i = 0; i < CROWD * EACH; i++)
		bad += replies[i].came != 1 || replies[i].code != 0 || replies[i].an != 1;
	print_message("# %u boxes, %u answers in %u ms, %u questions\n", CROWD, CROWD * EACH,
		      (unsigned)(clock_ms() - from), w.s.asked);
	for (unsigned i = 0; i < w.nevents && i < 8; i++)
		print_message("# %s: %s\n", w.events[i].name, w.events[i].why);
	assert_int_equal(bad, 0);
	assert_int_equal(w.nevents, 0);
	for (unsigned i = 0; i < CROWD; i++)
		box_stop(&boxes[i]);
	free(boxes);
	free(replies);
}

static void nobody_cares(void *arg, const void *msg, size_t n)
{
	(void)arg;
	(void)msg;
	(void)n;
}

static void silent_names_of_some_do_not_stop_the_others(void **state)
{
	struct box boxes[40];
	static struct msg m;
	uint64_t from;

	(void)state;
	servers_set("options timeout:5 attempts:2", true);
	for (unsigned i = 0; i < 40; i++)
		box_start(&boxes[i], "internet");
	for (unsigned i = 0; i < 40 * NAMES_UNDER_WAY; i++) {
		char name[60];

		(void)snprintf(name, sizeof(name), "silent.n%u.example", i);
		put_head(&m, i & 0xffff, 0x0100, 1, 0, 0, 0);
		put_question(&m, name, 1);
		names_query(boxes[i % 40].names, m.b, m.n, NAMES_UDP_MAX, nobody_cares, NULL);
	}
	from = clock_ms();
	assert_int_equal(address("good.example"), GOOD);
	print_message("# behind %u silent questions an answer takes %u ms\n", 40 * NAMES_UNDER_WAY,
		      (unsigned)(clock_ms() - from));
	assert_true(clock_ms() - from < 4500);
	for (unsigned i = 0; i < 40; i++)
		box_stop(&boxes[i]);
}

/* ---- held, forgotten, looked up */

static void a_person_is_asked_once_for_a_name(void **state)
{
	const char *names[4];
	void *first;

	(void)state;
	policy_set(&w.box, "alias.example,ask");
	assert_int_equal(address("alias.example"), GOOD2);
	assert_int_equal(w.asks, 0);
	start(&w.box, "good.example", 1, &reply);
	start(&w.box, "good.example", 28, &reply2);
	assert_int_equal(w.asks, 1);
	assert_false(reply.came);
	assert_int_equal(w.s.asked, 1);
	first = w.token;
	names_asked(w.names, (void *)(uintptr_t)999, true);
	assert_false(reply.came);
	names_asked(w.names, first, true);
	run();
	assert_int_equal(at16(reply.m.b + 6), 1);
	assert_int_equal(at16(reply2.m.b + 6), 1);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 1);
	/* Refused; and a token that is over. */
	start(&w.box, "bad.example", 1, &reply);
	names_asked(w.names, first, true);
	assert_false(reply.came);
	names_asked(w.names, w.token, false);
	assert_true(reply.came);
	assert_int_equal(at16(reply.m.b + 2) & 15, DNS_NXDOMAIN);
	assert_string_equal(w.events[0].name, "bad.example");
	/* Nobody there to be asked. */
	w.no_asking = true;
	assert_int_equal(ask("bad.example", 1), DNS_NXDOMAIN);
	assert_int_equal(w.s.asked, 3);
}

static void forgotten_queries_are_not_answered(void **state)
{
	struct box other;

	(void)state;
	box_start(&other, "internet");
	start(&w.box, "slow.example", 1, &reply);
	start(&other, "slow.example", 1, &reply2);
	names_forget(w.box.names, &reply);
	w.left--;
	run();
	assert_false(reply.came);
	assert_true(reply2.came);
	/* A box that goes, with a question nobody else waits for, and a held one. */
	policy_set(&other, "slow.example,silent.example,ask");
	start(&other, "silent.example", 1, &reply2);
	start(&other, "unknown.example", 1, &reply3);
	box_stop(&other);
	w.left = 0;
	names_asked(w.names, w.token, true);
	assert_int_equal(address("good.example"), GOOD);
	assert_false(reply2.came);
	assert_false(reply3.came);
}

struct looked {
	unsigned calls;
	size_t n;
	struct ip first;
};

static void looked_up(void *arg, const struct ip *addrs, size_t n)
{
	struct looked *l = arg;

	l->calls++;
	l->n = n;
	if (n > 0)
		l->first = addrs[0];
	one_came();
}

static void a_look_up_tells_the_box_nothing(void **state)
{
	struct looked l = { 0 };
	const char *names[4];

	(void)state;
	policy_set(&w.box, "mixed.example,good.example");
	w.left = 1;
	names_lookup(w.box.names, "Mixed.example", looked_up, &l);
	run();
	/* Four of the one family, and an AAAA of the other question is none here: the server answers both alike. */
	assert_int_equal(l.calls, 1);
	assert_int_equal(l.n, 4);
	assert_int_equal(ip_get4(&l.first), PRIVATE);
	assert_int_equal(w.nevents, 0);
	assert_int_equal(names_at(&w.box, GOOD, names, 4), 0);
	w.left = 1;
	names_lookup(w.box.names, "refused.example", looked_up, &l);
	assert_int_equal(l.calls, 2);
	assert_int_equal(l.n, 0);
	w.left = 1;
	names_lookup(w.box.names, "not a name", looked_up, &l);
	assert_int_equal(l.calls, 3);
	w.left = 1;
	names_lookup(w.box.names, NET_HOST_NAME, looked_up, &l);
	assert_int_equal(l.calls, 4);
	assert_int_equal(l.n, 2);
	/* Given up. */
	names_lookup(w.box.names, "good.example", looked_up, &l);
	names_forget(w.box.names, &l);
	assert_int_equal(address("good.example"), GOOD);
	assert_int_equal(l.calls, 4);
}

struct chain {
	unsigned left;
	struct reply *last;
};

/* The next query comes from within the answer. */
static void ask_on(void *arg, const void *msg, size_t n)
{
	struct chain *c = arg;
	static struct msg m;
	char name[40];

	(void)msg;
	assert_true(n > 12);
	if (c->left-- == 0) {
		one_came();
		return;
	}
	(void)snprintf(name, sizeof(name), "chain%u.example", c->left / 2);
	put_head(&m, 1, 0x0100, 1, 0, 0, 0);
	put_question(&m, name, 1);
	names_query(w.box.names, m.b, m.n, NAMES_UDP_MAX, ask_on, c);
}

static struct box leaving;

static void leave(void *arg, const void *msg, size_t n)
{
	(void)arg;
	(void)msg;
	(void)n;
	box_stop(&leaving);
	one_came();
}

static void answers_may_bring_queries_and_ends(void **state)
{
	struct chain c = { .left = 40 };
	static struct msg m;

	(void)state;
	w.left = 1;
	ask_on(&c, "", 13);
	run();
	assert_int_equal(w.s.asked, 20);
	box_start(&leaving, "internet");
	put_head(&m, 1, 0x0100, 1, 0, 0, 0);
	put_question(&m, "slow.example", 1);
	w.left = 1;
	/* The first answer ends the box of the second: there is none. */
	names_query(leaving.names, m.b, m.n, NAMES_UDP_MAX, leave, &c);
	names_query(leaving.names, m.b, m.n, NAMES_UDP_MAX, leave, &c);
	run();
	assert_null(leaving.names);
}

/* ---- the cache itself */

static void the_cache_is_bounded(void **state)
{
	struct ip ip = ip_of4(GOOD);
	struct cache *c;
	size_t entries;
	uint32_t ttl;
	struct dns_name first = { 0 }, name;

	(void)state;
	assert_int_equal(cache_new(&c), 0);
	for (unsigned i = 0; i < CACHE_ENTRIES + 5000; i++) {
		struct dns_answer *a = dns_answer_addrs(1, &ip, 1, 300);
		char text[40];

		assert_non_null(a);
		(void)snprintf(text, sizeof(text), "n%u.example", i);
		assert_int_equal(dns_name_of_text(text, &name), 0);
		if (i == 0)
			first = name;
		cache_put(c, &name, 1, a, 1000);
		dns_answer_unref(a);
		/* What is asked for stays. */
		assert_non_null(cache_get(c, &first, 1, 1000, &ttl));
		assert_true(cache_bytes(c, &entries) <= CACHE_BYTES);
		assert_true(entries <= CACHE_ENTRIES);
	}
	assert_int_equal(entries, CACHE_ENTRIES);
	assert_non_null(cache_get(c, &name, 1, 1000, &ttl));
	assert_null(cache_get(c, &name, 28, 1000, &ttl));
	assert_int_equal(dns_name_of_text("n1.example", &name), 0);
	assert_null(cache_get(c, &name, 1, 1000, &ttl));
	/* And ends in time. */
	assert_non_null(cache_get(c, &first, 1, 1000 + 299999, &ttl));
	assert_int_equal(ttl, 1);
	assert_null(cache_get(c, &first, 1, 1000 + 300000, &ttl));
	/* Large ones by their bytes. */
	for (unsigned i = 0; i < 600; i++) {
		struct dns_answer *a = calloc(1, sizeof(*a) + 60000);
		char text[40];

		assert_non_null(a);
		a->refs = 1;
		a->ttl = 10;
		a->len = a->soa = 60000;
		(void)snprintf(text, sizeof(text), "big%u.example", i);
		assert_int_equal(dns_name_of_text(text, &name), 0);
		cache_put(c, &name, 16, a, 1000);
		dns_answer_unref(a);
		assert_true(cache_bytes(c, &entries) <= CACHE_BYTES);
	}
	assert_true(entries < 200);
	cache_free(c);
}

int main(void)
{
	struct rlimit files;
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_up, world_down)
	const struct CMUnitTest tests[] = {
		CASE(a_name_is_asked_once_and_remembered),
		CASE(one_address_has_so_many_names),
		CASE(what_one_box_knows_the_other_does_not),
		CASE(the_same_question_is_asked_once),
		CASE(questions_are_hard_to_guess),
		CASE(nothing_is_remembered_too),
		CASE(without_a_way_there_are_no_ipv6_addresses),
		CASE(a_new_network_begins_with_an_empty_memory),
		CASE(forged_answers_are_passed_over),
		CASE(an_answer_without_the_case_is_asked_over_tcp),
		CASE(other_names_in_an_answer_count_for_nothing),
		CASE(answers_that_cannot_be_read_are_none),
		CASE(long_answers_come_over_tcp),
		CASE(old_servers_are_asked_without_edns),
		CASE(answers_that_come_twice_or_late_are_one),
		CASE(silence_ends),
		CASE(the_second_server_takes_over),
		CASE(options_of_resolv_conf_are_followed),
		CASE(forbidden_addresses_are_removed),
		CASE(a_name_that_turns_private_does_not_come_through),
		CASE(names_are_judged_by_the_first_of_the_chain),
		CASE(only_some_types_are_answered),
		CASE(names_of_this_place_stay_here),
		CASE(the_host_and_the_box_have_names),
		CASE(addresses_have_names_when_they_may_be_reached),
		CASE(queries_that_are_none_get_what_they_deserve),
		CASE(the_case_of_the_question_comes_back),
		CASE(one_box_has_so_many_under_way),
		CASE(a_tunnel_of_names_is_a_trickle),
		CASE(a_crowd_resolves_without_loss),
		CASE(silent_names_of_some_do_not_stop_the_others),
		CASE(a_person_is_asked_once_for_a_name),
		CASE(forgotten_queries_are_not_answered),
		CASE(a_look_up_tells_the_box_nothing),
		CASE(answers_may_bring_queries_and_ends),
		cmocka_unit_test_setup_teardown(the_cache_is_bounded, leak_mark, leak_check),
	};

	/* As the gateway does. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
