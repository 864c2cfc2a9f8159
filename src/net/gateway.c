/* SPDX-License-Identifier: Apache-2.0 */
#include "net/gateway.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

enum { TICK_MS = 100, OUT_MAX = 64 << 20 };

/* ---- tables */

uint64_t gw_hash(const struct gw *g, const void *a, size_t n, uint64_t more)
{
	const uint8_t *p = a;
	uint64_t h = g->seed ^ more;

	/* Seeded, so that a box can't choose addresses and ports that all fall into one bucket. */
	for (; n >= 8; p += 8, n -= 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		h = (h ^ v) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	for (; n; p++, n--)
		h = (h ^ *p) * 0x100000001b3u;
	h ^= h >> 32;
	return (h * 0x9e3779b97f4a7c15u) >> 20;
}

struct gbox *box_by_if(struct gw *g, int ifindex)
{
	struct link *head = &g->by_if[(unsigned)ifindex % IF_BUCKETS];

	LINK_EACH(l, tmp, head) {
		struct gbox *b = LINK_OF(l, struct gbox, at_if);

		if (b->ifindex == ifindex)
			return b;
	}
	return NULL;
}

struct gbox *box_by_id(struct gw *g, const char *id)
{
	LINK_EACH(l, tmp, &g->boxes) {
		struct gbox *b = LINK_OF(l, struct gbox, all);

		if (strcmp(b->id, id) == 0)
			return b;
	}
	return NULL;
}

bool fds_left(const struct gw *g, unsigned used_by_box, unsigned want)
{
	unsigned left;

	if (g->nfds + want > g->fds_max)
		return false;
	/* At most as many as are free: N greedy boxes share, and the next one still finds a (N+1)th part. The first 64 are not counted. */
	left = g->fds_max - g->nfds;
	return used_by_box + want <= left || used_by_box < 64;
}

bool box_first(struct gbox *b)
{
	uint64_t now = clock_ms() / 100;

	if (now != b->firsts_at) {
		b->firsts_at = now;
		b->firsts = 0;
	}
	if (b->firsts >= FIRSTS) {
		b->totals.refused++;
		return false;
	}
	b->firsts++;
	return true;
}

bool box_token(struct gbox *b)
{
	uint64_t now, more;

	if (!b->rate)
		return true;
	now = clock_ms();
	/* A burst of one second. */
	more = (now - b->tokens_at) * b->rate;
	b->tokens_at = now;
	b->tokens_milli = b->tokens_milli + more > b->rate * 1000 ? b->rate * 1000 : b->tokens_milli + more;
	if (b->tokens_milli < 1000)
		return false;
	b->tokens_milli -= 1000;
	return true;
}

size_t box_room(struct gbox *b, unsigned way, size_t want)
{
	uint64_t now;

	if (!b->bandwidth)
		return want;
	now = clock_ms();
	if (now != b->room_at) {
		/* A burst of a tenth of a second, at least of one full read. */
		int64_t most = (int64_t)(b->bandwidth / 10 < 65536 ? 65536 : b->bandwidth / 10);
		uint64_t ms = now - b->room_at > 1000 ? 1000 : now - b->room_at;

		for (unsigned i = 0; i < 2; i++) {
			b->room[i] += (int64_t)(ms * b->bandwidth / 1000);
			if (b->room[i] > most)
				b->room[i] = most;
		}
		b->room_at = now;
	}
	if (b->room[way] <= 0)
		return 0;
	return want < (size_t)b->room[way] ? want : (size_t)b->room[way];
}

void box_moved(struct gbox *b, unsigned way, size_t n)
{
	if (b->bandwidth)
		b->room[way] -= (int64_t)n;
	if (way == 0)
		b->totals.up += n;
	else
		b->totals.down += n;
}

void send_to_box(struct gbox *b, const void *head, size_t nhead, const void *data, size_t n)
{
	struct sockaddr_ll to = world_to(b->ifindex, *(const uint8_t *)head >> 4 == 4 ? ETH_P_IP : ETH_P_IPV6);
	struct iovec iov[2] = {
		{ .iov_base = (void *)(uintptr_t)head, .iov_len = nhead }, { .iov_base = (void *)(uintptr_t)data, .iov_len = n },
	};
	struct msghdr m = { .msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = iov, .msg_iovlen = n ? 2 : 1 };

	/* A full queue loses it, as any network may. */
	(void)sendmsg(b->g->w.out, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- what a box may */

const char *grant_why(struct gbox *b, const char *what, uint16_t port, char ret[GRANT_WHY_MAX])
{
	uint64_t now = clock_ms();

	for (unsigned i = 0; i < b->ngrants; i++) {
		const struct grant *t = &b->grants[i];

		if (t->until > now && !t->allow && (t->port == 0 || t->port == port) && strcmp(t->name, what) == 0) {
			(void)snprintf(ret, GRANT_WHY_MAX, "%s, for another %u s", t->late ? "nobody answered in time" : "refused by a person",
				       (unsigned)((t->until - now + 999) / 1000));
			return ret;
		}
	}
	return "refused by a person";
}

bool grant_find(struct gbox *b, const char *what, uint16_t port, bool *ret_allow)
{
	uint64_t now;

	if (!b->ngrants || !*what)
		return false;
	now = clock_ms();
	for (unsigned i = 0; i < b->ngrants; i++) {
		const struct grant *t = &b->grants[i];

		if (t->until > now && (t->port == 0 || t->port == port) && strcmp(t->name, what) == 0) {
			*ret_allow = t->allow;
			return true;
		}
	}
	return false;
}

/* Which addresses are out of bounds, whatever the policy says. */
static const struct own_addrs *own_of(const struct gbox *b)
{
	static const struct cidr all = { .bits = 0 };
	static const struct own_addrs nobodys = { .lab_public = &all, .nlab_public = 1 };

	return b->any_address ? &nobodys : &b->g->own_addrs;
}

void box_judge(struct gbox *b, const struct ip *addr, uint16_t port, struct decision *ret, char ret_name[HOST_NAME_MAX_LEN + 1])
{
	const char *names[NAMES_PER_ADDR];
	size_t n = names_of(b->names, addr, names, NAMES_PER_ADDR);
	char text[IP_TEXT_MAX], why[GRANT_WHY_MAX];
	bool allow;

	ret_name[0] = '\0';
	policy_judge(b->policy, own_of(b), addr, port, names, n, ret);
	/* Which name is meant isn't known before the client says it: the newest one that is allowed, else the newest. */
	for (size_t i = 0; i < n; i++) {
		struct decision d;

		if (ret->verdict == VERDICT_ALLOW && ret->by_name) {
			policy_judge_name(b->policy, names[i], port, &d);
			if (d.verdict != VERDICT_ALLOW)
				continue;
		}
		(void)snprintf(ret_name, HOST_NAME_MAX_LEN + 1, "%s", names[i]);
		break;
	}
	if (ret->verdict != VERDICT_ASK)
		return;
	/* A person's answer holds for a while: a name is looked up first and connected to afterwards. */
	for (size_t i = 0; i <= n; i++) {
		const char *what = i < n ? names[i] : ip_text(addr, text);

		if (!grant_find(b, what, port, &allow))
			continue;
		if (i < n)
			(void)snprintf(ret_name, HOST_NAME_MAX_LEN + 1, "%s", what);
		ret->verdict = allow ? VERDICT_ALLOW : VERDICT_REFUSE;
		ret->rule = "asked";
		ret->by_name = allow && i < n;
		if (!allow)
			(void)snprintf(ret->why, sizeof(ret->why), "%s", grant_why(b, what, port, why));
		return;
	}
}

static bool conn_may_stay(struct conn *c)
{
	struct decision d;
	char name[HOST_NAME_MAX_LEN + 1];
	struct gbox *b = c->t.box;

	if (c->kind != CONN_OUT)
		return true;
	box_judge(b, &c->t.addr, c->t.port, &d, name);
	if (d.verdict != VERDICT_ALLOW && c->t.host && !ip_forbidden(&c->t.addr)) {
		/* What the resolver said may be over, while the connection isn't. */
		const char *host = c->t.host;

		policy_judge(b->policy, &b->g->own_addrs, &c->t.addr, c->t.port, &host, 1, &d);
	}
	/* The answer that allowed it is forgotten after a while; it holds for the connection's life. */
	if (d.verdict == VERDICT_ASK && c->asked)
		return true;
	if (d.verdict != VERDICT_ALLOW)
		return false;
	if (c->to_host != d.to_host)
		return false;
	if (!d.by_name || c->state != CONN_OPEN || c->say)
		return true;
	/* Open, and now names count: what the client said must have been read, and be one of them. */
	if (!c->named || !c->t.host)
		return false;
	policy_judge_name(b->policy, c->t.host, c->t.port, &d);
	return d.verdict == VERDICT_ALLOW || c->asked;
}

void box_rejudge(struct gbox *b)
{
	LINK_EACH(l, tmp, &b->conns) {
		struct conn *c = LINK_OF(l, struct conn, mine);

		/* A held one is asked about anew by the next SYN, if the new policy still asks. */
		if (c->state == CONN_FAILED || conn_may_stay(c))
			continue;
		if (c->state == CONN_ASK) {
			struct decision d;
			char name[HOST_NAME_MAX_LEN + 1];

			box_judge(b, &c->t.addr, c->t.port, &d, name);
			if (d.verdict == VERDICT_REFUSE)
				conn_refuse(c, d.why);
			continue;
		}
		conn_end(c, "cut", "the policy was changed");
	}
	LINK_EACH(l, tmp, &b->flows) {
		struct flow *f = LINK_OF(l, struct flow, mine);
		struct decision d;
		char name[HOST_NAME_MAX_LEN + 1];

		box_judge(b, &f->t.addr, f->t.port, &d, name);
		if (d.verdict == VERDICT_ASK && f->asked)
			continue;
		if (d.verdict != VERDICT_ALLOW || d.to_host != f->to_host || (d.by_name && f->t.proto == PROTO_UDP && f->t.port == 443))
			flow_end(f, "cut", "the policy was changed");
	}
}

void box_free(struct gbox *b, const char *why)
{
	struct gw *g = b->g;

	ask_forget_box(b);
	expose_forget(g, b);
	LINK_EACH(l, tmp, &b->conns)
		conn_end(LINK_OF(l, struct conn, mine), "cut", why);
	LINK_EACH(l, tmp, &b->flows)
		flow_end(LINK_OF(l, struct flow, mine), "cut", why);
	log_forget(g, b);
	names_box_free(b->names);
	dns_forget(b);
	policy_unref(b->policy);
	free(b->grants);
	link_del(&b->all);
	link_del(&b->at_if);
	free(b);
}

/* ---- the coarse clock */

static void tick(void *arg)
{
	struct gw *g = arg;
	uint64_t now = clock_ms();
	bool more = false;

	LINK_EACH(l, tmp, &g->waiting) {
		struct conn *c = LINK_OF(l, struct conn, waits);

		if (c->until && c->until <= now)
			syn_expired(c);
	}
	LINK_EACH(l, tmp, &g->saying) {
		struct conn *c = LINK_OF(l, struct conn, waits);

		if (c->until && c->until <= now) {
			if (c->kind == CONN_DNS)
				conn_end(c, "idle", "");
			else
				conn_end(c, "cut", "the client didn't say in time whom it talks to");
		}
	}
	while (!link_none(&g->young)) {
		struct conn *c = LINK_OF(g->young.next, struct conn, waits);

		if (c->until > now)
			break;
		link_del(&c->waits);
		c->until = 0;
		dial_keep(c);
	}
	/* Held back for bandwidth, or for a pipe. */
	LINK_EACH(l, tmp, &g->slow) {
		link_del(l);
		conn_run_later(LINK_OF(l, struct conn, run));
	}
	ask_sweep(g, now);
	flows_sweep(g, now);
	more = log_sweep(g, now, false);
	LINK_EACH(l, tmp, &g->boxes)
		more = more || !link_none(&LINK_OF(l, struct gbox, all)->flows);
	if (more || !link_none(&g->waiting) || !link_none(&g->saying) || !link_none(&g->young) || !link_none(&g->asks) || !link_none(&g->slow))
		gw_tick(g);
}

void gw_tick(struct gw *g)
{
	if (!g->tick.link)
		loop_timer_set(g->loop, &g->tick, TICK_MS, tick, g);
}

void gw_read_all(struct gw *g)
{
	own_drain(g->own);
	talk_drain(g);
}

/* ---- descriptors */

static void tcp4_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	accept_ready(g, g->w.tcp4);
}

static void tcp6_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	accept_ready(g, g->w.tcp6);
}

static void udp4_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	udp_ready(g, g->w.udp4);
}

static void udp6_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	udp_ready(g, g->w.udp6);
}

static void syn4_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	syn_ready(g, g->w.syn4);
}

static void syn6_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;

	(void)ev;
	syn_ready(g, g->w.syn6);
}

/*
 * Interfaces that go. A number may be used again, for another box, so what belongs to it ends now. A lost message does no harm: the daemon
 * says "gone" as well.
 */
static void links_ready(void *arg, uint32_t ev)
{
	struct gw *g = arg;
	_Alignas(8) uint8_t buf[16384];
	ssize_t n;

	(void)ev;
	while ((n = recv(g->w.link, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		const struct nlmsghdr *h = (const void *)buf;

		for (size_t left = (size_t)n; left >= sizeof(*h) && h->nlmsg_len >= sizeof(*h) && h->nlmsg_len <= left;) {
			size_t step = NLMSG_ALIGN(h->nlmsg_len);

			if (h->nlmsg_type == RTM_DELLINK && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ifinfomsg))) {
				const struct ifinfomsg *i = NLMSG_DATA(h);
				struct gbox *b = box_by_if(g, i->ifi_index);

				if (b)
					box_free(b, "the box is gone");
			}
			if (step >= left)
				break;
			left -= step;
			h = (const void *)((const char *)h + step);
		}
	}
}

void gw_apply_resolv(struct gw *g)
{
	names_upstreams(g->names, g->resolv ? g->resolv : "", g->ipv6 < 0 ? own_have6(g->own) : g->ipv6);
}

static const struct policy *policy_of(void *box)
{
	return ((struct gbox *)box)->policy;
}

static bool who_is(void *box, const char **ret_name, struct ip *ret_v4, struct ip *ret_v6)
{
	struct gbox *b = box;

	*ret_name = b->name;
	*ret_v4 = b->v4;
	if (b->has6)
		*ret_v6 = b->v6;
	return true;
}

static void name_event(void *box, enum names_event ev, const char *name, const struct ip *addr, const char *why)
{
	struct gbox *b = box;
	static const struct ip none;
	struct tale t;

	(void)ev;
	tale_init(&t, b, PROTO_DNS, addr ? addr : &none, 53, 0);
	tale_text(&t.host, name);
	log_refused(b->g, &t, why, ev == NAMES_FAILED ? "timeout" : "refused");
	tale_done(&t);
}

static int watch(struct gw *g, struct loop_io *io, int fd, void (*ready)(void *, uint32_t))
{
	return fd < 0 ? 0 : loop_add(g->loop, io, fd, EPOLLIN, ready, g);
}

static int start(struct gw *g, unsigned files, struct err *e)
{
	int r;

	if (getrandom(&g->seed, sizeof(g->seed), 0) != (ssize_t)sizeof(g->seed))
		return err_set(e, -errno, "cannot get random bytes");
	g->fds_max = files > FDS_RESERVE * 2 ? files - FDS_RESERVE : FDS_RESERVE;
	r = loop_new(&g->loop);
	if (r < 0)
		return err_set(e, r, "cannot make an event loop");
	r = presets_new(NULL, &g->presets, e);
	if (r < 0)
		return r;
	r = own_watch(g->own, g);
	if (r < 0)
		return err_set(e, r, "cannot follow the host's addresses");
	/* Accepted sockets inherit it. */
	for (unsigned i = 0; i < 2; i++) {
		const int on = 1;

		(void)setsockopt(i ? g->w.tcp6 : g->w.tcp4, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	g->own_addrs = (struct own_addrs){ .has = own_has, .arg = g->own };
	g->calls = (struct names_calls){ .policy = policy_of, .own = &g->own_addrs, .event = name_event, .ask = ask_name, .who = who_is };
	r = names_new(g->loop, &g->calls, &g->names, e);
	if (r < 0)
		return r;
	r = loop_add(g->loop, &g->ctl_io, g->ctl, EPOLLIN, talk_ready, g);
	if (r == 0)
		r = watch(g, &g->tcp_io[0], g->w.tcp4, tcp4_ready);
	if (r == 0)
		r = watch(g, &g->tcp_io[1], g->w.tcp6, tcp6_ready);
	if (r == 0)
		r = watch(g, &g->udp_io[0], g->w.udp4, udp4_ready);
	if (r == 0)
		r = watch(g, &g->udp_io[1], g->w.udp6, udp6_ready);
	if (r == 0)
		r = watch(g, &g->syn_io[0], g->w.syn4, syn4_ready);
	if (r == 0)
		r = watch(g, &g->syn_io[1], g->w.syn6, syn6_ready);
	if (r == 0)
		r = watch(g, &g->link_io, g->w.link, links_ready);
	return r < 0 ? err_set(e, r, "cannot watch the gateway's sockets") : 0;
}

static void done(struct gw *g)
{
	LINK_EACH(l, tmp, &g->boxes)
		box_free(LINK_OF(l, struct gbox, all), "the daemon ended");
	expose_done(g);
	log_sweep(g, clock_ms(), true);
	log_flush(g);
	log_file(g, FD_NONE);
	free(g->log);
	names_free(g->names);
	own_free(g->own);
	presets_free(g->presets);
	pipes_done(g);
	msg_in_done(&g->in);
	buf_done(&g->out);
	free(g->batch);
	free(g->presets_text);
	free(g->lab);
	free(g->resolv);
	loop_free(g->loop);
	world_done(&g->w);
	fd_close(&g->ctl);
}

int gateway_serve(struct world *w, int ctl, struct own *own, unsigned files, const char *grade, struct err *e)
{
	struct gw *g = calloc(1, sizeof(*g));
	struct json_out o;
	OWN_BUF text = BUF_INIT(65536);
	int r;

	if (!g) {
		world_done(w);
		own_free(own);
		return err_set(e, -ENOMEM, "cannot start the gateway");
	}
	g->w = *w;
	g->ctl = ctl;
	g->own = own;
	g->ipv6 = -1;
	g->ask_ms = 60000;
	g->out.max = OUT_MAX;
	g->to_go4 = world_to(w->go, ETH_P_IP);
	g->to_go6 = world_to(w->go, ETH_P_IPV6);
	msg_in_init(&g->in, MSG_MAX);
	link_init(&g->boxes);
	for (size_t i = 0; i < IF_BUCKETS; i++)
		link_init(&g->by_if[i]);
	for (size_t i = 0; i < FIRST_BUCKETS; i++)
		link_init(&g->first[i]);
	for (size_t i = 0; i < FLOW_BUCKETS; i++)
		link_init(&g->flows[i]);
	struct link *const heads[] = { &g->waiting, &g->saying, &g->young, &g->run, &g->asks, &g->exposes, &g->dials, &g->slow };

	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
		link_init(heads[i]);
	(void)fd_set_nonblock(ctl, true);
	r = start(g, files, e);
	if (r == 0) {
		talk_begin(g, &o, &text, "ready");
		json_put_raw(&o, "grade", grade, strlen(grade));
		talk_end(g, &o, &text);
		/* It never returns for a reason of a box's making: what fails there ends a connection. */
		r = loop_run(g->loop);
		if (r < 0)
			(void)err_set(e, r, "the gateway's loop failed");
	}
	done(g);
	free(g);
	return r;
}
