/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void net_put(const struct box *b, struct json_out *o)
{
	const struct net_limits *l = &b->spec.net_limits;

	json_put_str(o, "box", b->name);
	json_put_str(o, "net", b->spec.net ? b->spec.net : "none");
	if (b->net_problem[0])
		json_put_str(o, "problem", b->net_problem);
	net_write(b, o);
	json_put_obj(o, "limits");
	json_put_int(o, "connections", l->connections);
	json_put_int(o, "connection_rate", l->rate);
	json_put_int(o, "flows", l->flows);
	json_put_int(o, "bandwidth", (int64_t)l->bandwidth);
	json_end_obj(o);
	expose_write(b, o, "exposed");
}

void op_net_show(struct req *q)
{
	struct box *b = op_box(q, false);
	struct buf text = BUF_INIT(SPEC_TEXT_MAX);
	struct json_out o;

	if (!b)
		return;
	if (b->net_on && q->d->net->ready) {
		net_ask_gateway(q, b, true, NULL, 0);
		return;
	}
	answer_begin(&o, &text);
	json_put_obj(&o, "net");
	net_put(b, &o);
	json_end_obj(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* What can be said of a box that has no interface now: from the policy alone, without looking names up. */
static void why_from_policy(struct req *q, const struct box *b, const char *host, uint16_t port)
{
	struct buf text = BUF_INIT(8192);
	struct decision d = { .verdict = VERDICT_REFUSE, .rule = "", .why = "the box has no network" };
	static const char *const words[] = { [VERDICT_REFUSE] = "refused", [VERDICT_ALLOW] = "allowed", [VERDICT_ASK] = "asked" };
	struct own_addrs own = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;
	char name[HOST_NAME_MAX_LEN + 1];
	struct json_out o;
	struct ip ip;

	if (b->spec.net && policy_parse(b->spec.net, q->d->net->presets, &p, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	if (p && ip_parse(host, &ip) == 0) {
		policy_judge(p, &own, &ip, port, NULL, 0, &d);
		if (d.verdict != VERDICT_REFUSE)
			d.why[0] = '\0';
	} else if (p && host_name_parse(host, strlen(host), name) == 0) {
		if (!policy_judge_special(p, name, port, &d))
			policy_judge_name(p, name, port, &d);
	} else if (p) {
		policy_unref(p);
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is neither a host name nor an address", host);
		return;
	}
	answer_begin(&o, &text);
	json_put_obj(&o, "net");
	json_put_str(&o, "verdict", words[d.verdict]);
	json_put_str(&o, "rule", d.rule ? d.rule : "");
	json_put_str(&o, "why", d.why);
	json_end_obj(&o);
	json_end_obj(&o);
	policy_unref(p);
	req_ok(q, &text, NULL, 0);
}

/* What was answered holds only for what the policy still asks for. */
static bool would_ask(const struct req *q, const struct box *b, const char *host, uint16_t port)
{
	struct decision d = { .verdict = VERDICT_REFUSE };
	struct own_addrs own = { 0 };
	char name[HOST_NAME_MAX_LEN + 1];
	struct policy *p = NULL;
	struct ip ip;

	if (!b->spec.net || policy_parse(b->spec.net, q->d->net->presets, &p, NULL) < 0)
		return false;
	if (ip_parse(host, &ip) == 0)
		policy_judge(p, &own, &ip, port, NULL, 0, &d);
	else if (host_name_parse(host, strlen(host), name) == 0)
		policy_judge_name(p, name, port, &d);
	policy_unref(p);
	return d.verdict == VERDICT_ASK;
}

static void refused_for_good(struct req *q)
{
	struct buf text = BUF_INIT(1024);
	struct json_out o;

	answer_begin(&o, &text);
	json_put_obj(&o, "net");
	json_put_str(&o, "verdict", "refused");
	json_put_str(&o, "rule", "asked");
	json_put_str(&o, "why", "refused by a person, until the box stops");
	json_end_obj(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

void op_net_why(struct req *q)
{
	const char *host = json_str(q->doc.root, "host", NULL);
	int64_t port = json_int(q->doc.root, "port", 0);
	struct box *b = op_box(q, false);

	if (!b)
		return;
	if (!host || !*host || strlen(host) > HOST_NAME_MAX_LEN || port < 0 || port > 65535) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "the request names no host, or no port that there is");
		return;
	}
	if (net_never(b, host, (uint16_t)port) && would_ask(q, b, host, (uint16_t)port))
		refused_for_good(q);
	else if (b->net_on && q->d->net->ready)
		net_ask_gateway(q, b, false, host, (uint16_t)port);
	else
		why_from_policy(q, b, host, (uint16_t)port);
}

void op_net_presets(struct req *q)
{
	struct buf text = BUF_INIT(MSG_MAX);
	const char *name, *items;
	struct json_out o;

	answer_begin(&o, &text);
	json_put_arr(&o, "presets");
	for (size_t i = 0; (name = presets_each(q->d->net->presets, i, &items)); i++) {
		json_put_obj(&o, NULL);
		json_put_str(&o, "name", name);
		json_put_str(&o, "items", items);
		json_end_obj(&o);
	}
	json_end_arr(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* ---------------------------------------------------------------- set */

/* The policy is in force: on disk, and for the gateway. */
static int settle(struct box *b, char *want, struct err *e)
{
	free(b->spec.net);
	b->spec.net = want;
	net_box_changed(b);
	box_event(b, "network", want ? want : "none");
	return box_save(b, true, e);
}

struct change {
	struct req *q;
	char *want;
};

static void plugged(struct box *b, int r, struct err *e, void *arg)
{
	struct change *c = arg;
	struct err mine = ERR_INIT;

	if (r == 0) {
		r = settle(b, c->want, &mine);
		net_box_on(b);
	} else {
		mine = *e;
		free(c->want);
		/* It may have one all the same: told again, it is what it was. */
		net_box_on(b);
	}
	if (r == 0)
		op_answer_box(c->q, b);
	else
		req_fail(c->q, &mine);
	free(c);
	box_release(b);
}

void op_net_set(struct req *q)
{
	const char *net = json_str(q->doc.root, "net", NULL), *more = json_str(q->doc.root, "net_more", NULL);
	struct box *b = op_box(q, true);
	struct err e = ERR_INIT;
	struct change *c;
	char *want = NULL;

	if (!b || !op_whole(q, b))
		return;
	/* What is only added comes on top of what it has. */
	if (net_policy(q->d, net ? net : b->spec.net ? b->spec.net : "none", more, &want, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	if (b->run.pid <= 0 || (want != NULL) == b->net_on) {
		if (settle(b, want, &e) < 0)
			req_fail(q, &e);
		else
			op_answer_box(q, b);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		free(want);
		op_fail(q, WHY_LIMIT, -ENOMEM, "cannot change the network of box '%s'", b->name);
		return;
	}
	c->q = q;
	c->want = want;
	b->busy = want ? "getting a network" : "losing its network";
	/* Its connections end before the interface goes. */
	if (!want)
		net_box_off(b, true);
	net_plug(b, want != NULL, plugged, c);
}

/* ---------------------------------------------------------------- doctor */

void net_doctor_rows(struct net *n, struct json_out *o)
{
	OWN_JSON doc = { 0 };

	if (n->ns < 0) {
		json_put_obj(o, NULL);
		json_put_str(o, "id", "gateway");
		json_put_str(o, "level", "off");
		json_put_str(o, "what", n->why);
		json_end_obj(o);
		return;
	}
	if (!n->ready) {
		json_put_obj(o, NULL);
		json_put_str(o, "id", "gateway");
		json_put_str(o, "level", "off");
		json_put_str(o, "what", n->death[0] ? n->death : "the gateway of the boxes' network does not run");
		json_end_obj(o);
		return;
	}
	if (!n->grade || json_parse(n->grade, strlen(n->grade), &doc, NULL) < 0)
		return;
	/* "off" is a layer of defence that is missing, and no box starts without one unasked: not what only doesn't work. */
	for (const struct json *m = doc.root->child; m; m = m->next) {
		if (m->type != JSON_OBJECT)
			continue;
		json_put_obj(o, NULL);
		json_put_str(o, "id", json_str(m, "id", "gateway"));
		json_put_str(o, "level", json_bool(m, "on", false) ? "on" :
			     strcmp(json_str(m, "id", ""), "gateway-ping") == 0 ? "weak" : "off");
		json_put_str(o, "what", json_str(m, "what", ""));
		json_end_obj(o);
	}
	if (n->proxy_problem[0]) {
		json_put_obj(o, NULL);
		json_put_str(o, "id", "net-proxy");
		json_put_str(o, "level", "weak");
		json_put_str(o, "what", n->proxy_problem);
		json_end_obj(o);
	}
	if (*conf_text(&n->d->conf, CONF_NET_LAB_PUBLIC)) {
		json_put_obj(o, NULL);
		json_put_str(o, "id", "net-lab");
		json_put_str(o, "level", "weak");
		json_put_str(o, "what", "Reserved address ranges count as public (net_lab_public): right for a test network only.");
		json_end_obj(o);
	}
}
