/* SPDX-License-Identifier: Apache-2.0 */
/* The words of net/ctl.h. The daemon is trusted: what isn't understood ends the gateway, as half a configuration is worse than none. */
#include "net/ctl.h"
#include "net/gateway.h"

#include "base/weaken.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENT_MAX = MSG_MAX, FDS_MAX = 64, LAB_MAX = 256 };

/* ---- out */

void talk_begin(struct gw *g, struct json_out *o, struct buf *text, const char *ev)
{
	(void)g;
	json_out_init(o, text);
	json_put_obj(o, NULL);
	json_put_str(o, "ev", ev);
}

void talk_flush(struct gw *g)
{
	while (g->out.len) {
		ssize_t n = send(g->ctl, g->out.data, g->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			buf_drop(&g->out, (size_t)n);
		} else if (n < 0 && errno == EAGAIN) {
			break;
		} else if (!(n < 0 && errno == EINTR)) {
			loop_quit(g->loop);
			return;
		}
	}
	(void)loop_change(g->loop, &g->ctl_io, g->out.len ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void talk_end(struct gw *g, struct json_out *o, struct buf *text)
{
	uint8_t head[MSG_HEAD];
	const bool idle = g->out.len == 0;

	json_end_obj(o);
	if (buf_error(text) || text->len > MSG_MAX)
		return;
	for (unsigned i = 0; i < MSG_HEAD; i++)
		head[i] = (uint8_t)(text->len >> (8 * i));
	(void)buf_put(&g->out, head, sizeof(head));
	(void)buf_put(&g->out, text->data, text->len);
	if (buf_error(&g->out))
		loop_quit(g->loop);	/* the daemon doesn't read any more */
	else if (idle)
		talk_flush(g);
}

/* ---- questions to a person */

static void asked(struct gw *g, const struct ask *a, const char *how)
{
	OWN_BUF text = BUF_INIT(1024);
	struct json_out o;

	talk_begin(g, &o, &text, "asked");
	json_put_int(&o, "ask", a->n);
	json_put_str(&o, "how", how);
	talk_end(g, &o, &text);
}

static const char *subject(const struct ask *a, char buf[IP_TEXT_MAX])
{
	return a->name[0] ? a->name : ip_text(&a->addr, buf);
}

static struct ask *ask_of(struct gbox *b, enum proto proto, const char *name, const struct ip *addr, uint16_t port)
{
	static const struct ip none;
	struct gw *g = b->g;
	OWN_BUF text = BUF_INIT(4096);
	char ip[IP_TEXT_MAX];
	struct json_out o;
	unsigned mine = 0;
	struct ask *a;

	LINK_EACH(l, tmp, &g->asks) {
		a = LINK_OF(l, struct ask, all);
		mine += a->box == b;
		if (a->box == b && a->port == port && strcmp(a->name, name) == 0 && (*name || ip_same(&a->addr, addr)))
			return a;
	}
	a = g->nasks < ASKS_MAX && mine < ASKS_BOX_MAX ? calloc(1, sizeof(*a)) : NULL;
	if (!a)
		return NULL;
	a->box = b;
	a->port = port;
	a->addr = addr ? *addr : none;
	(void)snprintf(a->name, sizeof(a->name), "%s", name);
	link_init(&a->held);
	link_add(&g->asks, &a->all);
	g->nasks++;
	if (++g->next_n == 0)
		g->next_n = 1;
	a->n = g->next_n;
	a->until = clock_ms() + g->ask_ms;
	talk_begin(g, &o, &text, "ask");
	json_put_int(&o, "ask", a->n);
	json_put_str(&o, "id", b->id);
	json_put_str(&o, "name", a->name);
	json_put_str(&o, "addr", addr ? ip_text(addr, ip) : "");
	json_put_int(&o, "port", port);
	json_put_str(&o, "proto", proto == PROTO_DNS ? "dns" : proto == PROTO_UDP ? "udp" : "tcp");
	talk_end(g, &o, &text);
	gw_tick(g);
	return a;
}

bool ask_conn(struct conn *c, const char *name)
{
	struct ask *a = ask_of(c->t.box, PROTO_TCP, name, &c->t.addr, c->t.port);

	if (!a || a->nheld == ASK_HELD_MAX)
		return false;
	a->nheld++;
	link_add(&a->held, &c->held);
	return true;
}

void ask_flow(const struct tale *t, const char *name)
{
	(void)ask_of(t->box, PROTO_UDP, name, &t->addr, t->port);
}

bool ask_name(void *box, const char *name, void *token)
{
	struct gbox *b = box;
	bool allow;
	struct ask *a;

	/* What was answered a moment ago isn't asked again. */
	if (grant_find(b, name, 0, &allow)) {
		if (allow)
			names_asked(b->g->names, token, true);
		return allow;
	}
	a = ask_of(b, PROTO_DNS, name, NULL, 0);
	if (!a || a->ntokens == ASK_HELD_MAX)
		return false;
	a->tokens[a->ntokens++] = token;
	return true;
}

static void remember(struct gbox *b, const struct ask *a, bool allow, bool late)
{
	char ip[IP_TEXT_MAX];
	struct grant *t;
	unsigned at = 0;

	if (!b->grants)
		b->grants = calloc(GRANTS_MAX, sizeof(*b->grants));
	if (!b->grants)
		return;
	if (b->ngrants < GRANTS_MAX) {
		at = b->ngrants++;
	} else {
		for (unsigned i = 1; i < GRANTS_MAX; i++)
			if (b->grants[i].until < b->grants[at].until)
				at = i;
	}
	t = &b->grants[at];
	(void)snprintf(t->name, sizeof(t->name), "%s", subject(a, ip));
	t->port = a->port;
	t->allow = allow;
	t->late = late;
	t->until = clock_ms() + (allow ? GRANT_MS : DENIED_MS);
}

/* The end of a question: by an answer, or by its deadline, or with its box (which isn't remembered). */
static void ask_end(struct gw *g, struct ask *a, bool allow, bool keep, const char *how)
{
	link_del(&a->all);
	g->nasks--;
	if (keep)
		remember(a->box, a, allow, strcmp(how, "late") == 0);
	asked(g, a, how);
	while (!link_none(&a->held)) {
		struct conn *c = LINK_OF(a->held.next, struct conn, held);

		link_del(&c->held);
		if (keep)
			syn_answered(c, allow);
		else
			conn_end(c, NULL, "");
	}
	if (keep)
		for (unsigned i = 0; i < a->ntokens; i++)
			names_asked(g->names, a->tokens[i], allow);
	free(a);
}

void ask_sweep(struct gw *g, uint64_t now)
{
	bool again;

	/* What happens at the end of one may add or end others. */
	do {
		again = false;
		LINK_EACH(l, tmp, &g->asks) {
			struct ask *a = LINK_OF(l, struct ask, all);

			if (a->until > now)
				continue;
			ask_end(g, a, false, true, "late");
			again = true;
			break;
		}
	} while (again);
}

void ask_forget_conn(struct conn *c)
{
	/* The question stays: its answer counts for the next try. */
	link_del(&c->held);
}

void ask_forget_box(struct gbox *b)
{
	LINK_EACH(l, tmp, &b->g->asks) {
		struct ask *a = LINK_OF(l, struct ask, all);

		if (a->box == b)
			ask_end(b->g, a, false, false, "gone");
	}
}

/* ---- in */

static int bad(struct gw *g, const char *what)
{
	static const char pre[] = "cubby-gateway: not understood: ";

	/* The daemon's log has its standard error. */
	(void)!write(2, pre, sizeof(pre) - 1);
	(void)!write(2, what, strlen(what));
	(void)!write(2, "\n", 1);
	loop_quit(g->loop);
	return -EBADMSG;
}

static bool same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static int set_presets(struct gw *g, const char *text)
{
	struct presets *p;
	char *copy;

	if (same_text(g->presets_text, text))
		return 0;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	if (presets_new(*text ? text : NULL, &p, NULL) < 0) {
		free(copy);
		return -EINVAL;
	}
	presets_free(g->presets);
	free(g->presets_text);
	g->presets = p;
	g->presets_text = copy;
	/* A policy names its presets, and means what they are now. */
	LINK_EACH(l, tmp, &g->boxes) {
		struct gbox *b = LINK_OF(l, struct gbox, all);
		struct policy *n;

		if (policy_parse(policy_text(b->policy), g->presets, &n, NULL) == 0) {
			policy_unref(b->policy);
			b->policy = n;
		}
	}
	return 0;
}

static int do_config(struct gw *g, const struct json *q)
{
	const struct json *lab = json_get(q, "lab_public"), *six = json_get(q, "ipv6");
	const char *resolv = json_str(q, "resolv", "");
	struct proxy proxy = { .kind = PROXY_NONE };
	struct cidr *nets = NULL;
	size_t n = 0;

	/* Without it nothing may go out another way. */
	if (proxy_parse(json_str(q, "proxy", ""), &proxy) < 0)
		proxy.kind = PROXY_BAD;
	if (lab && lab->type == JSON_ARRAY && lab->count) {
		if (lab->count > LAB_MAX)
			return bad(g, "lab_public");
		nets = calloc(lab->count, sizeof(*nets));
		if (!nets)
			return bad(g, "lab_public");
		for (const struct json *m = lab->child; m; m = m->next) {
			if (m->type != JSON_STRING || cidr_parse(m->str, &nets[n]) < 0) {
				free(nets);
				return bad(g, "lab_public");
			}
			n++;
		}
	}
	free(g->lab);
	g->lab = nets;
	g->nlab = n;
	g->own_addrs.lab_public = nets;
	g->own_addrs.nlab_public = n;
	g->proxy = proxy;
	g->ipv6 = six && six->type == JSON_BOOL ? six->num != 0 : -1;
	g->ask_ms = (uint64_t)json_int(q, "ask_ms", (int64_t)g->ask_ms);
	if (!same_text(g->resolv, resolv)) {
		free(g->resolv);
		g->resolv = strdup(resolv);
	}
	gw_apply_resolv(g);
	if (set_presets(g, json_str(q, "presets", "")) < 0)
		return bad(g, "the presets");
	LINK_EACH(l, tmp, &g->boxes)
		box_rejudge(LINK_OF(l, struct gbox, all));
	return 0;
}

static uint64_t limit(const struct json *q, const char *key)
{
	int64_t v = json_int(q, key, 0);

	return v < 0 ? 0 : (uint64_t)v;
}

static bool weakened(const struct json *q, unsigned bit)
{
	const struct json *arr = json_get(q, "weaken");

	for (const struct json *m = arr && arr->type == JSON_ARRAY ? arr->child : NULL; m; m = m->next)
		if (m->type == JSON_STRING && weaken_bit(m->str) == bit)
			return true;
	return false;
}

static int do_box(struct gw *g, const struct json *q)
{
	const char *id = json_str(q, "id", ""), *name = json_str(q, "name", ""), *text = json_str(q, "policy", "none");
	int64_t at = json_int(q, "if", 0);
	struct gbox *b, *other;
	struct policy *p;
	struct ip v4, v6;
	const bool has6 = *json_str(q, "v6", "");

	if (!id_ok(id) || strlen(name) > NAME_MAX_LEN || at <= 1 || at > INT32_MAX || ip_parse(json_str(q, "v4", ""), &v4) < 0 ||
	    (has6 && ip_parse(json_str(q, "v6", ""), &v6) < 0))
		return bad(g, "a box");
	/* The daemon has parsed it before. Should they disagree, the box has nothing. */
	if (policy_parse(text, g->presets, &p, NULL) < 0 && policy_parse("none", g->presets, &p, NULL) < 0)
		return bad(g, "a policy");
	other = box_by_if(g, (int)at);
	b = box_by_id(g, id);
	if (other && other != b)
		box_free(other, "the box is gone");
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (b) {
			b->g = g;
			(void)snprintf(b->id, sizeof(b->id), "%s", id);
			link_init(&b->conns);
			link_init(&b->flows);
			link_init(&b->dnsqs);
			b->names = names_box_new(g->names, b);
		}
		if (!b || !b->names) {
			free(b);
			policy_unref(p);
			return bad(g, "a box, for want of memory");
		}
		link_add(&g->boxes, &b->all);
	}
	(void)snprintf(b->name, sizeof(b->name), "%s", name);
	link_del(&b->at_if);
	b->ifindex = (int)at;
	link_add(&g->by_if[(unsigned)b->ifindex % IF_BUCKETS], &b->at_if);
	b->v4 = v4;
	b->has6 = has6;
	b->v6 = has6 ? v6 : (struct ip){ { 0 } };
	policy_unref(b->policy);
	b->policy = p;
	b->any_address = weakened(q, WEAKEN_ADDRESSES);
	b->conns_max = limit(q, "conns");
	b->rate = limit(q, "rate");
	b->flows_max = limit(q, "flows");
	b->bandwidth = limit(q, "bandwidth");
	if (b->rate > 1000000)
		b->rate = 0;
	b->tokens_milli = b->rate * 1000;
	b->tokens_at = clock_ms();
	box_rejudge(b);
	return 0;
}

static void do_answer(struct gw *g, const struct json *q)
{
	int64_t n = json_int(q, "ask", 0);
	bool allow = json_bool(q, "allow", false);

	LINK_EACH(l, tmp, &g->asks) {
		struct ask *a = LINK_OF(l, struct ask, all);

		if (a->n == n) {
			ask_end(g, a, allow, true, allow ? "allowed" : "refused");
			return;
		}
	}
}

static const char *const verdict_words[] = { [VERDICT_REFUSE] = "refused", [VERDICT_ALLOW] = "allowed", [VERDICT_ASK] = "asked" };

/* `net why`: what was asked, while the resolver works. It may outlive its box. */
struct looking {
	struct gw *g;
	int64_t n;
	char id[ID_LEN + 1], host[HOST_NAME_MAX_LEN + 1];
	uint16_t port;
};

static void why_answer(struct gw *g, int64_t n, const struct decision *d, struct gbox *b, const char *host, uint16_t port,
		       const struct ip *addrs, size_t naddrs)
{
	OWN_BUF text = BUF_INIT(EVENT_MAX);
	struct json_out o;

	talk_begin(g, &o, &text, "why");
	json_put_int(&o, "n", n);
	json_put_str(&o, "verdict", verdict_words[d->verdict]);
	json_put_str(&o, "rule", d->rule ? d->rule : "");
	json_put_str(&o, "why", d->why);
	json_put_arr(&o, "addrs");
	for (size_t i = 0; b && i < naddrs; i++) {
		char ip[IP_TEXT_MAX];
		struct decision a;

		policy_judge(b->policy, &g->own_addrs, &addrs[i], port, host ? &host : NULL, host ? 1 : 0, &a);
		json_put_obj(&o, NULL);
		json_put_str(&o, "addr", ip_text(&addrs[i], ip));
		json_put_str(&o, "verdict", verdict_words[a.verdict]);
		json_put_str(&o, "rule", a.rule ? a.rule : "");
		json_put_str(&o, "why", a.verdict == VERDICT_REFUSE ? a.why : "");
		json_end_obj(&o);
	}
	json_end_arr(&o);
	talk_end(g, &o, &text);
}

/* Of an allowed name: what its addresses make of that. */
static void why_addresses(struct gw *g, const struct gbox *b, const char *host, uint16_t port, const struct ip *addrs, size_t n,
			  struct decision *d)
{
	struct decision first = { .verdict = VERDICT_REFUSE, .rule = "" };
	size_t refused = 0;

	for (size_t i = 0; i < n; i++) {
		struct decision a;

		policy_judge(b->policy, &g->own_addrs, &addrs[i], port, &host, 1, &a);
		if (a.verdict == VERDICT_REFUSE && refused++ == 0)
			first = a;
	}
	d->why[0] = '\0';
	if (n == 0)
		(void)snprintf(d->why, sizeof(d->why), "it does not resolve: no resolver gave an address for it");
	else if (refused == n)
		*d = first;
	else if (refused > 0)
		(void)snprintf(d->why, sizeof(d->why), "not all of its addresses are");
}

static void why_looked_up(void *arg, const struct ip *addrs, size_t n)
{
	struct looking *w = arg;
	struct gbox *b = box_by_id(w->g, w->id);
	struct decision d = { .verdict = VERDICT_REFUSE, .rule = "", .why = "the box is gone" };

	if (b)
		policy_judge_name(b->policy, w->host, w->port, &d);
	if (b && d.verdict == VERDICT_ALLOW)
		why_addresses(w->g, b, w->host, w->port, addrs, n, &d);
	why_answer(w->g, w->n, &d, b, w->host, w->port, addrs, n);
	free(w);
}

static void do_why(struct gw *g, const struct json *q)
{
	struct decision d = { .verdict = VERDICT_REFUSE, .rule = "" };
	const char *host = json_str(q, "host", "");
	struct gbox *b = box_by_id(g, json_str(q, "id", ""));
	int64_t port = json_int(q, "port", 0), n = json_int(q, "n", 0);
	char name[HOST_NAME_MAX_LEN + 1];
	struct looking *w;
	char why[GRANT_WHY_MAX];
	bool allow;
	struct ip a;

	if (!b || port < 0 || port > 65535) {
		(void)snprintf(d.why, sizeof(d.why), "%s", b ? "not a port" : "the box has no network now");
		why_answer(g, n, &d, NULL, NULL, 0, NULL, 0);
		return;
	}
	if (ip_parse(host, &a) == 0) {
		box_judge(b, &a, (uint16_t)port, &d, name);
		if (d.verdict != VERDICT_REFUSE)
			d.why[0] = '\0';
		why_answer(g, n, &d, b, name[0] ? name : NULL, (uint16_t)port, &a, 1);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w || host_name_parse(host, strlen(host), w->host) < 0) {
		(void)snprintf(d.why, sizeof(d.why), "%s", w ? "neither a host name nor an address" : "the gateway is out of memory");
		why_answer(g, n, &d, NULL, NULL, 0, NULL, 0);
		free(w);
		return;
	}
	if (policy_judge_special(b->policy, w->host, (uint16_t)port, &d)) {
		why_answer(g, n, &d, NULL, NULL, 0, NULL, 0);
		free(w);
		return;
	}
	policy_judge_name(b->policy, w->host, (uint16_t)port, &d);
	if (d.verdict == VERDICT_ASK && grant_find(b, w->host, (uint16_t)port, &allow)) {
		d.verdict = allow ? VERDICT_ALLOW : VERDICT_REFUSE;
		d.rule = "asked";
		if (!allow)
			(void)snprintf(d.why, sizeof(d.why), "%s", grant_why(b, w->host, (uint16_t)port, why));
		why_answer(g, n, &d, NULL, NULL, 0, NULL, 0);
		free(w);
		return;
	}
	if (d.verdict != VERDICT_ALLOW) {
		why_answer(g, n, &d, NULL, NULL, 0, NULL, 0);
		free(w);
		return;
	}
	w->g = g;
	w->n = n;
	w->port = (uint16_t)port;
	(void)snprintf(w->id, sizeof(w->id), "%s", b->id);
	names_lookup(b->names, w->host, why_looked_up, w);
}

static void show_tale(struct json_out *o, const struct tale *t)
{
	char ip[IP_TEXT_MAX];
	static const char *const words[] = { "tcp", "udp", "icmp", "dns" };

	json_put_obj(o, NULL);
	json_put_str(o, "proto", words[t->proto]);
	json_put_int(o, "src_port", t->sport);
	json_put_str(o, "addr", ip_text(&t->addr, ip));
	json_put_int(o, "port", t->port);
	json_put_str(o, "name", t->host ? t->host : "");
	json_put_str(o, "rule", t->rule ? t->rule : "");
	json_put_int(o, "up", (int64_t)t->up);
	json_put_int(o, "down", (int64_t)t->down);
	json_put_int(o, "ms", (int64_t)(clock_ms() - t->began));
	json_put_str(o, "process", t->process ? t->process : "");
	json_end_obj(o);
}

static void do_flush(struct gw *g)
{
	OWN_BUF text = BUF_INIT(256);
	struct json_out o;

	(void)log_sweep(g, clock_ms(), true);
	talk_begin(g, &o, &text, "flushed");
	talk_end(g, &o, &text);
}

enum { SHOW_MAX = 10000 };

static void do_show(struct gw *g, const struct json *q)
{
	struct gbox *b = box_by_id(g, json_str(q, "id", ""));
	OWN_BUF text = BUF_INIT(EVENT_MAX);
	struct json_out o;
	unsigned n = 0;

	talk_begin(g, &o, &text, "show");
	json_put_int(&o, "n", json_int(q, "n", 0));
	json_put_arr(&o, "conns");
	if (b) {
		LINK_EACH(l, tmp, &b->conns) {
			const struct conn *c = LINK_OF(l, struct conn, mine);

			if (c->kind == CONN_OUT && c->state != CONN_FAILED && n++ < SHOW_MAX)
				show_tale(&o, &c->t);
		}
		LINK_EACH(l, tmp, &b->flows)
			if (n++ < SHOW_MAX)
				show_tale(&o, &LINK_OF(l, struct flow, mine)->t);
	}
	json_end_arr(&o);
	json_put_obj(&o, "totals");
	json_put_int(&o, "allowed", b ? (int64_t)b->totals.allowed : 0);
	json_put_int(&o, "refused", b ? (int64_t)b->totals.refused : 0);
	json_put_int(&o, "up", b ? (int64_t)b->totals.up : 0);
	json_put_int(&o, "down", b ? (int64_t)b->totals.down : 0);
	json_end_obj(&o);
	talk_end(g, &o, &text);
}

/* Descriptors that came, in their order: several frames may be read at once, and only some have one. */
struct came {
	int fd[FDS_MAX];
	size_t n;
};

static int take_fd(struct came *f)
{
	int fd;

	if (!f->n)
		return FD_NONE;
	fd = f->fd[0];
	memmove(f->fd, f->fd + 1, --f->n * sizeof(f->fd[0]));
	return fd;
}

static int do_op(struct gw *g, const struct json *q, struct came *fds)
{
	const char *op = json_str(q, "op", "");
	struct gbox *b;

	if (strcmp(op, "config") == 0)
		return do_config(g, q);
	if (strcmp(op, "box") == 0)
		return do_box(g, q);
	if (strcmp(op, "gone") == 0) {
		b = box_by_id(g, json_str(q, "id", ""));
		if (b)
			box_free(b, json_bool(q, "taken", false) ? "the network was taken from the box" : "the box is gone");
	} else if (strcmp(op, "log") == 0) {
		log_file(g, take_fd(fds));
	} else if (strcmp(op, "answer") == 0) {
		do_answer(g, q);
	} else if (strcmp(op, "who") == 0) {
		who_answer(g, (uint32_t)json_int(q, "n", 0), json_str(q, "process", ""));
	} else if (strcmp(op, "why") == 0) {
		do_why(g, q);
	} else if (strcmp(op, "flush") == 0) {
		do_flush(g);
	} else if (strcmp(op, "show") == 0) {
		do_show(g, q);
	} else if (strcmp(op, "expose") == 0) {
		int fd = take_fd(fds);

		b = box_by_id(g, json_str(q, "id", ""));
		if (b)
			expose_add(g, (uint32_t)json_int(q, "key", 0), b, (uint16_t)json_int(q, "port", 0), fd);
		else
			fd_close(&fd);
	} else if (strcmp(op, "unexpose") == 0) {
		expose_del(g, (uint32_t)json_int(q, "key", 0));
	} else if (strcmp(op, "dialed") == 0) {
		const char *error = json_str(q, "error", NULL);

		expose_dialed(g, (uint32_t)json_int(q, "n", 0), error ? FD_NONE : take_fd(fds), error);
	} else {
		return bad(g, op);
	}
	return 0;
}

static int take_all(struct gw *g, struct came *fds)
{
	for (;;) {
		OWN_JSON doc = { 0 };
		int got[FD_PASS_MAX], r;
		size_t n = 0;

		r = msg_in_take(&g->in, &doc, got, FD_PASS_MAX, &n);
		if (r <= 0)
			return r;
		for (size_t i = 0; i < n; i++) {
			if (fds->n < FDS_MAX)
				fds->fd[fds->n++] = got[i];
			else
				(void)close(got[i]);
		}
		r = do_op(g, doc.root, fds);
		if (r < 0)
			return r;
	}
}

void talk_drain(struct gw *g)
{
	struct came fds = { .n = 0 };
	int r;

	if (g->draining)
		return;
	g->draining = true;
	for (;;) {
		r = msg_in_read(&g->in, g->ctl);
		if (r == -EINTR)
			continue;
		if (r < 0 || g->in.ended)
			break;
		r = take_all(g, &fds);
		if (r < 0)
			break;
	}
	while (fds.n)
		(void)close(take_fd(&fds));
	if (g->in.ended || (r < 0 && r != -EAGAIN))
		loop_quit(g->loop);
	g->draining = false;
}

void talk_ready(void *arg, uint32_t events)
{
	struct gw *g = arg;

	if (events & EPOLLOUT)
		talk_flush(g);
	talk_drain(g);
}
