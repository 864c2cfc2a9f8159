/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the gateway has for an answer: names may have to be looked up. */
#define ANSWER_MS 8000

static struct box *by_id(struct daemon *d, const char *id)
{
	for (struct box *b = d->boxes; b; b = b->next)
		if (strcmp(b->id, id) == 0)
			return b;
	return NULL;
}

/* A text of the gateway's into a fixed field, whatever it is. */
static void take_text(const struct json *m, const char *key, char *ret, size_t n)
{
	(void)snprintf(ret, n, "%s", json_str(m, key, ""));
}

/* ---------------------------------------------------------------- our questions to it */

static void asked_fail(struct asked *a, enum why why, int code, const char *text)
{
	struct err e = ERR_INIT;

	(void)err_why(&e, why, code, "%s", text);
	req_fail(a->q, &e);
	free(a);
}

static void asked_late(void *arg)
{
	struct net *n = arg;
	uint64_t now = clock_ms(), next = 0;

	for (struct asked **p = &n->asked; *p;) {
		struct asked *a = *p;

		if (a->until > now) {
			next = next == 0 || a->until - now < next ? a->until - now : next;
			p = &a->next;
			continue;
		}
		*p = a->next;
		asked_fail(a, WHY_TIMEOUT, -ETIMEDOUT, "the gateway of the boxes' network doesn't answer");
		p = &n->asked;	/* the answer may have changed the list */
	}
	if (next > 0)
		loop_timer_set(n->d->loop, &n->asked_late, next, asked_late, n);
}

void net_asked_gone(struct net *n)
{
	struct asked *a = n->asked;

	n->asked = NULL;
	while (a) {
		struct asked *next = a->next;

		asked_fail(a, WHY_INTERNAL, -EIO, "the gateway of the boxes' network ended just now: try again");
		a = next;
	}
	while (n->questions) {
		struct question *q = n->questions;

		n->questions = q->next;
		free(q);
	}
}

void net_ask_gateway(struct req *q, struct box *b, bool show, const char *host, uint16_t port)
{
	struct net *n = q->d->net;
	struct buf text = BUF_INIT(4096);
	struct asked *a = calloc(1, sizeof(*a));
	struct json_out o;

	if (!a || n->pid <= 0) {
		free(a);
		op_fail(q, WHY_BUSY, -EAGAIN, "the gateway of the boxes' network is not there just now: try again");
		return;
	}
	a->n = ++n->next_n;
	a->q = q;
	a->show = show;
	memcpy(a->id, b->id, sizeof(a->id));
	a->until = clock_ms() + ANSWER_MS;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", show ? "show" : "why");
	json_put_int(&o, "n", a->n);
	json_put_str(&o, "id", b->id);
	if (!show) {
		json_put_str(&o, "host", host);
		json_put_int(&o, "port", port);
	}
	json_end_obj(&o);
	a->next = n->asked;
	n->asked = a;
	if (!n->asked_late.link)
		loop_timer_set(n->d->loop, &n->asked_late, ANSWER_MS, asked_late, n);
	gateway_send(n, &text, FD_NONE);
}

static const struct json *of_type(const struct json *m, const char *key, enum json_type type)
{
	const struct json *v = json_get(m, key);

	return v && v->type == type ? v : NULL;
}

static void heard_answer(struct net *n, const struct json *m, bool show)
{
	static const char *const words[] = { "verdict", "rule", "why" };
	struct asked **p = &n->asked, *a;
	struct buf text = BUF_INIT(MSG_MAX);
	struct json_out o;
	struct box *b;

	while (*p && ((*p)->n != (uint32_t)json_int(m, "n", -1) || (*p)->show != show))
		p = &(*p)->next;
	a = *p;
	if (!a)
		return;
	*p = a->next;
	b = by_id(n->d, a->id);
	if (!b) {
		asked_fail(a, WHY_NO_SUCH_BOX, -ENOENT, "the box was removed meanwhile");
		return;
	}
	answer_begin(&o, &text);
	json_put_obj(&o, "net");
	if (show) {
		net_put(b, &o);
		if (of_type(m, "conns", JSON_ARRAY))
			json_put_value(&o, "conns", json_get(m, "conns"));
		if (of_type(m, "totals", JSON_OBJECT))
			json_put_value(&o, "totals", json_get(m, "totals"));
	} else {
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			json_put_str(&o, words[i], json_str(m, words[i], ""));
		if (of_type(m, "addrs", JSON_ARRAY))
			json_put_value(&o, "addrs", json_get(m, "addrs"));
	}
	json_end_obj(&o);
	json_end_obj(&o);
	req_ok(a->q, &text, NULL, 0);
	free(a);
}

/* ---------------------------------------------------------------- its questions to us */

static void heard_who(struct net *n, const struct json *m)
{
	const char *proto = json_str(m, "proto", "");
	struct box *b = by_id(n->d, json_str(m, "id", ""));
	int64_t port = json_int(m, "src_port", 0);
	struct buf text = BUF_INIT(1024);
	char process[64] = "";
	struct json_out o;

	if (b && b->net_on && b->run.pid > 0 && port > 0 && port <= 65535)
		who_holds(b->run.pid, proto, (uint16_t)port, process, sizeof(process));
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "who");
	json_put_int(&o, "n", json_int(m, "n", 0));
	json_put_str(&o, "process", process);
	json_end_obj(&o);
	gateway_send(n, &text, FD_NONE);
}

static void send_answer(struct net *n, uint32_t ask, bool allow)
{
	struct buf text = BUF_INIT(256);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "answer");
	json_put_int(&o, "ask", ask);
	json_put_bool(&o, "allow", allow);
	json_end_obj(&o);
	gateway_send(n, &text, FD_NONE);
}

/* What a person would write into a policy for it: the name, or the address, with the port. False when it isn't one. */
static bool item_of(const struct question *q, char *ret, size_t n)
{
	struct ip ip;
	char name[HOST_NAME_MAX_LEN + 1];
	int k;

	if (q->name[0]) {
		if (host_name_parse(q->name, strlen(q->name), name) < 0)
			return false;
		k = snprintf(ret, n, "%s", name);
	} else {
		char text[IP_TEXT_MAX];

		if (ip_parse(q->addr, &ip) < 0)
			return false;
		(void)ip_text(&ip, text);
		k = ip_is4(&ip) || q->port == 0 ? snprintf(ret, n, "%s", text) : snprintf(ret, n, "[%s]", text);
	}
	if (k > 0 && (size_t)k < n && q->port > 0)
		k += snprintf(ret + k, n - (size_t)k, ":%u", q->port);
	return k > 0 && (size_t)k < n;
}

static void heard_ask(struct net *n, const struct json *m)
{
	struct box *b = by_id(n->d, json_str(m, "id", ""));
	int64_t ask = json_int(m, "ask", -1), port = json_int(m, "port", 0);
	struct question *q, **p = &n->questions;
	unsigned held = 0;
	char item[320];

	if (!b || !b->net_on || ask < 0 || ask > UINT32_MAX || port < 0 || port > 65535)
		return;
	for (; *p; p = &(*p)->next)
		held++;
	q = held < NET_QUESTIONS_MAX ? calloc(1, sizeof(*q)) : NULL;
	if (!q) {
		send_answer(n, (uint32_t)ask, false);
		return;
	}
	q->ask = (uint32_t)ask;
	q->n = ++n->questions_n;
	memcpy(q->id, b->id, sizeof(q->id));
	take_text(m, "name", q->name, sizeof(q->name));
	take_text(m, "addr", q->addr, sizeof(q->addr));
	take_text(m, "proto", q->proto, sizeof(q->proto));
	q->port = (uint16_t)port;
	q->at = now_s();
	if (!item_of(q, item, sizeof(item))) {
		/* Neither a name nor an address: nothing that a person could judge. */
		free(q);
		send_answer(n, (uint32_t)ask, false);
		return;
	}
	for (unsigned i = 0; i < b->nnever; i++)
		if (strcmp(b->never[i], item) == 0) {
			free(q);
			send_answer(n, (uint32_t)ask, false);
			return;
		}
	*p = q;
}

bool net_never(const struct box *b, const char *host, uint16_t port)
{
	struct question q = { .port = port }, every = { 0 };
	char item[320], all[320];
	struct ip ip;
	bool addr = ip_parse(host, &ip) == 0;

	(void)snprintf(addr ? q.addr : q.name, addr ? sizeof(q.addr) : sizeof(q.name), "%s", host);
	every = q;
	every.port = 0;
	if (!item_of(&q, item, sizeof(item)) || !item_of(&every, all, sizeof(all)))
		return false;
	for (unsigned i = 0; i < b->nnever; i++)
		if (strcmp(b->never[i], item) == 0 || strcmp(b->never[i], all) == 0)
			return true;
	return false;
}

static void drop_question(struct net *n, struct question *gone)
{
	for (struct question **p = &n->questions; *p; p = &(*p)->next)
		if (*p == gone) {
			*p = gone->next;
			free(gone);
			return;
		}
}

static void heard_asked(struct net *n, const struct json *m)
{
	for (struct question *q = n->questions; q; q = q->next)
		if (q->ask == (uint32_t)json_int(m, "ask", -1)) {
			drop_question(n, q);
			return;
		}
}

void net_heard(struct net *n, const char *ev, const struct json *m)
{
	if (strcmp(ev, "who") == 0)
		heard_who(n, m);
	else if (strcmp(ev, "ask") == 0)
		heard_ask(n, m);
	else if (strcmp(ev, "asked") == 0)
		heard_asked(n, m);
	else if (strcmp(ev, "why") == 0)
		heard_answer(n, m, false);
	else if (strcmp(ev, "flushed") == 0)
		netlog_flushed(n);
	else if (strcmp(ev, "show") == 0)
		heard_answer(n, m, true);
}

/* ---------------------------------------------------------------- people */

static bool may_see(const struct req *q, const struct box *b)
{
	return b && (b->owner == q->uid || (q->uid == 0 && json_bool(q->doc.root, "all", false)));
}

/* Is one item of the (canonical) policy the word `ask`? */
static bool holds_ask(const char *policy)
{
	for (const char *p = policy; p && *p;) {
		size_t n = strcspn(p, ",");

		if (n == 3 && memcmp(p, "ask", 3) == 0)
			return true;
		p += n;
		p += *p == ',';
	}
	return false;
}

void op_net_ask(struct req *q)
{
	struct net *n = q->d->net;
	struct buf text = BUF_INIT(MSG_MAX);
	const char *only = NULL;
	bool asks = false;
	struct json_out o;

	if (json_get(q->doc.root, "box")) {
		struct box *b = op_box(q, false);

		if (!b)
			return;
		only = b->id;
	}
	answer_begin(&o, &text);
	json_put_arr(&o, "questions");
	for (const struct question *k = n->questions; k; k = k->next) {
		struct box *b = by_id(q->d, k->id);

		if (!may_see(q, b) || (only && strcmp(only, k->id) != 0))
			continue;
		json_put_obj(&o, NULL);
		json_put_int(&o, "ask", k->n);
		json_put_str(&o, "box", b->name);
		json_put_str(&o, "id", b->id);
		json_put_str(&o, "name", k->name);
		json_put_str(&o, "addr", k->addr);
		json_put_int(&o, "port", k->port);
		json_put_str(&o, "proto", k->proto);
		json_put_int(&o, "since", k->at);
		json_put_int(&o, "until", k->at + (int64_t)conf_num(&q->d->conf, CONF_ASK_SECONDS));
		json_end_obj(&o);
	}
	json_end_arr(&o);
	for (const struct box *b = q->d->boxes; b && !asks; b = b->next)
		asks = may_see(q, b) && (!only || strcmp(only, b->id) == 0) && holds_ask(b->spec.net);
	json_put_bool(&o, "asks", asks);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* For good: allowed in the policy, or refused unasked as long as the box runs. */
static int for_good(struct box *b, const struct question *k, bool allow, struct err *e)
{
	char item[320], *want = NULL;
	int r;

	if (!item_of(k, item, sizeof(item)))
		return err_why(e, WHY_INTERNAL, -EINVAL, "that can't be written into a policy");
	if (!allow) {
		char **more = b->nnever < NET_NEVER_MAX ? reallocarray(b->never, b->nnever + 1, sizeof(*more)) : NULL;

		if (!more)
			return err_why(e, WHY_LIMIT, -ENOSPC, "box '%s' holds %u refusals for good already", b->name, b->nnever);
		b->never = more;
		more[b->nnever] = strdup(item);
		if (!more[b->nnever])
			return err_set(e, -ENOMEM, "cannot hold the refusal");
		b->nnever++;
		return 0;
	}
	r = net_policy(b->d, b->spec.net, item, &want, e);
	if (r < 0)
		return r;
	free(b->spec.net);
	b->spec.net = want;
	r = box_save(b, true, e);
	/* Before the answer: what comes next finds the new policy. */
	net_box_changed(b);
	box_event(b, "network", item);
	return r;
}

void op_net_answer(struct req *q)
{
	struct net *n = q->d->net;
	int64_t which = json_int(q->doc.root, "ask", 0);
	bool allow = json_bool(q->doc.root, "allow", false), always = json_bool(q->doc.root, "always", false);
	struct question *k = n->questions;
	struct err e = ERR_INIT;
	struct box *b;

	while (k && k->n != which)
		k = k->next;
	b = k ? by_id(q->d, k->id) : NULL;
	if (!may_see(q, b)) {
		op_fail(q, WHY_NOT_FOUND, -ENOENT, "question %lld isn't held any more", (long long)which);
		return;
	}
	if (always && for_good(b, k, allow, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	send_answer(n, k->ask, allow);
	drop_question(n, k);
	req_done(q);
}
