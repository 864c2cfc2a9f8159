/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/ctl.h"
#include "net/proxyurl.h"

#define PRESETS_MAX (256u << 10)

/* ---------------------------------------------------------------- the configuration */

void net_defaults(const struct conf *c, struct net_limits *l)
{
	l->connections = (uint32_t)conf_num(c, CONF_CONNECTIONS);
	l->rate = (uint32_t)conf_num(c, CONF_CONNECTION_RATE);
	l->flows = (uint32_t)conf_num(c, CONF_FLOWS);
	l->bandwidth = conf_num(c, CONF_BANDWIDTH);
}

/* The file of named lists: the configured one has to be there, the usual one may be missing. */
static int read_presets(struct net *n, struct err *e)
{
	const struct conf *c = &n->d->conf;
	char path[4200];
	const char *slash = strrchr(c->path, '/');
	bool given = !conf_auto(c, CONF_NET_PRESETS);
	ssize_t k;

	if (given)
		(void)snprintf(path, sizeof(path), "%s", conf_text(c, CONF_NET_PRESETS));
	else if (slash)
		(void)snprintf(path, sizeof(path), "%.*s/presets.conf", (int)(slash - c->path), c->path);
	else
		return 0;
	n->presets_text = malloc(PRESETS_MAX);
	if (!n->presets_text)
		return err_set(e, -ENOMEM, "cannot read '%s'", path);
	k = file_read_small(AT_FDCWD, path, n->presets_text, PRESETS_MAX);
	if (k >= 0) {
		int r = presets_new(n->presets_text, &n->presets, e);

		return r < 0 ? err_while(e, r, "cannot read the named lists in '%s'", path) : 0;
	}
	free(n->presets_text);
	n->presets_text = NULL;
	return k == -ENOENT && !given ? 0 : err_set(e, (int)k, "cannot read the named lists in '%s'", path);
}

static int check_lab(const struct conf *c, struct err *e)
{
	char text[CONF_TEXT_MAX], *rest = text, *word;

	(void)snprintf(text, sizeof(text), "%s", conf_text(c, CONF_NET_LAB_PUBLIC));
	while ((word = strsep(&rest, ", \t"))) {
		struct cidr cidr;

		if (*word && cidr_parse(word, &cidr) < 0)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "net_lab_public: '%.80s' is not an address range (CIDR)", word);
	}
	return 0;
}

static int check_proxy(const struct conf *c, struct err *e)
{
	const char *text = conf_text(c, CONF_PROXY);
	char shown[CONF_TEXT_MAX + 8];
	struct proxy p;

	if (strcmp(text, "none") == 0 || strcmp(text, "env") == 0 || proxy_parse(text, &p) == 0)
		return 0;
	proxy_hide(text, shown, sizeof(shown));
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: proxy = %.200s: a proxy is none, env, http://[USER:PASSWORD@]ADDRESS:PORT or "
		       "socks5://ADDRESS:PORT, by its address, not its name", c->path, shown);
}

int net_new(struct daemon *d, const struct net_setup *setup, struct err *e)
{
	struct net *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return err_set(e, -ENOMEM, "cannot start");
	d->net = n;
	n->d = d;
	n->ns = setup ? setup->ns : FD_NONE;
	n->program = setup ? setup->program : NULL;
	if (setup && setup->why)
		(void)snprintf(n->why, sizeof(n->why), "%s", setup->why);
	else if (!setup)
		(void)snprintf(n->why, sizeof(n->why), "this daemon was started without one");
	else if (!n->program)
		(void)snprintf(n->why, sizeof(n->why), "cubby-gateway is not installed beside cubby-init: install cubby anew");
	if (!n->program)
		n->ns = FD_NONE;
	n->pidfd = n->ctl = n->said = n->log_fd = n->watch = FD_NONE;
	n->out_tail = &n->out;
	r = read_presets(n, e);
	if (r == 0 && !n->presets)
		r = presets_new(NULL, &n->presets, e);
	if (r == 0)
		r = check_lab(&d->conf, e);
	if (r == 0)
		r = check_proxy(&d->conf, e);
	if (r == 0) {
		const char *text = conf_text(&d->conf, CONF_NET);
		struct policy *p = NULL;

		r = policy_parse(text, n->presets, &p, e);
		if (r == 0 && !policy_is_none(p)) {
			n->policy = strdup(policy_text(p));
			if (!n->policy)
				r = err_set(e, -ENOMEM, "cannot start");
		}
		policy_unref(p);
		if (r < 0)
			(void)err_while(e, r, "%s: net = %.200s", d->conf.path, text);
	}
	return r;
}

/* ---------------------------------------------------------------- policies */

int net_policy(struct daemon *d, const char *text, const char *more, char **ret, struct err *e)
{
	OWN_BUF whole = BUF_INIT(POLICY_TEXT_MAX);
	struct net *n = d->net;
	struct policy *p = NULL;
	char *copy = NULL;
	int r;

	/* What is named without saying what to reach comes on top of what every box may reach. */
	if (!text)
		text = n->policy ? n->policy : "none";
	if (more && strcmp(text, "none") == 0)
		(void)buf_puts(&whole, more);
	else
		(void)buf_printf(&whole, "%s%s%s", text, more ? "," : "", more ? more : "");
	if (buf_error(&whole))
		return err_set(e, buf_error(&whole), "the policy of the network is too long");
	r = policy_parse(whole.data, n->presets, &p, e);
	if (r < 0)
		return r;
	if (!policy_is_none(p)) {
		copy = strdup(policy_text(p));
		if (!copy)
			r = err_set(e, -ENOMEM, "cannot hold the policy");
		else if (n->ns < 0)
			r = err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, "no box can have a network here: %s (--net none makes one without)", n->why);
	}
	policy_unref(p);
	if (r < 0) {
		free(copy);
		return r;
	}
	*ret = copy;
	return 0;
}

/* ---------------------------------------------------------------- what the gateway is told */

static void send_box(struct box *b)
{
	struct buf text = BUF_INIT(MSG_MAX);
	const struct ip four = net_box4(b->run.net_index), six = net_box6(b->run.net_index);
	char buf[IP_TEXT_MAX];
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "box");
	json_put_str(&o, "id", b->id);
	json_put_str(&o, "name", b->name);
	json_put_int(&o, "if", b->run.net_if);
	json_put_str(&o, "v4", ip_text(&four, buf));
	json_put_str(&o, "v6", ip_text(&six, buf));
	json_put_str(&o, "policy", b->spec.net);
	json_put_int(&o, "conns", b->spec.net_limits.connections);
	json_put_int(&o, "rate", b->spec.net_limits.rate);
	json_put_int(&o, "flows", b->spec.net_limits.flows);
	json_put_int(&o, "bandwidth", (int64_t)b->spec.net_limits.bandwidth);
	if (b->spec.weaken & WEAKEN_ADDRESSES) {
		json_put_arr(&o, "weaken");
		json_put_str(&o, NULL, weaken_word(WEAKEN_ADDRESSES));
		json_end_arr(&o);
	}
	json_end_obj(&o);
	gateway_send(b->d->net, &text, FD_NONE);
}

void net_box_on(struct box *b)
{
	if (!b->spec.net || b->run.net_if <= 0 || b->net_on)
		return;
	b->net_on = true;
	b->net_problem[0] = '\0';
	gateway_start(b->d->net);
	netlog_owner(b);
	send_box(b);
	expose_on(b);
}

void net_box_off(struct box *b, bool taken)
{
	struct buf text = BUF_INIT(256);
	struct json_out o;

	expose_off(b);
	if (!b->net_on)
		return;
	b->net_on = false;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "gone");
	json_put_str(&o, "id", b->id);
	json_put_bool(&o, "taken", taken);
	json_end_obj(&o);
	gateway_send(b->d->net, &text, FD_NONE);
}

void net_box_changed(struct box *b)
{
	if (b->net_on)
		send_box(b);
}

void net_tell_all(struct net *n)
{
	for (struct box *b = n->d->boxes; b; b = b->next) {
		if (!b->net_on)
			continue;
		send_box(b);
		expose_tell(b);
	}
}

bool net_any(const struct net *n)
{
	for (const struct box *b = n->d->boxes; b; b = b->next)
		if (b->net_on)
			return true;
	return false;
}

/* ---------------------------------------------------------------- an interface for a box that runs */

struct plugging {
	struct box *b;
	bool on;
	void (*then)(struct box *, int, struct err *, void *);
	void *arg;
};

static void plug_over(struct plugging *p, int r, const struct err *e)
{
	struct plugging mine = *p;
	struct err copy = ERR_INIT;

	free(p);
	if (r < 0)
		copy = *e;
	mine.then(mine.b, r, &copy, mine.arg);
}

static void plug_ready(void *arg, int r, const struct err *e)
{
	struct plugging *p = arg;

	plug_over(p, r, e);
}

static void plugged(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct plugging *p = arg;
	struct box *b = p->b;
	struct err mine = ERR_INIT;

	(void)fd;
	if (r == 0) {
		b->run.net_index = (unsigned)json_int(answer, "net_index", 0);
		b->run.net_if = (int)json_int(answer, "net_if", 0);
		if (p->on && (b->run.net_index < NET_INDEX_MIN || b->run.net_index > NET_INDEX_MAX || b->run.net_if <= 0))
			r = err_why(&mine, WHY_INTERNAL, -EIO, "the builder's answer makes no sense");
	} else {
		mine = *e;
	}
	if (r == 0 && p->on)
		gateway_want(b->d->net, plug_ready, p);
	else
		plug_over(p, r, &mine);
}

void net_plug(struct box *b, bool on, void (*then)(struct box *, int, struct err *, void *), void *arg)
{
	struct plugging *p = calloc(1, sizeof(*p));
	struct err e = ERR_INIT;
	int r = p ? 0 : err_set(&e, -ENOMEM, "cannot change the network of box '%s'", b->name);

	if (r == 0) {
		*p = (struct plugging){ .b = b, .on = on, .then = then, .arg = arg };
		r = builders_plug(b->d->builders, BUILD_NOW, b->id, &b->run, on, plugged, p, &e);
	}
	if (r < 0) {
		free(p);
		then(b, r, &e, arg);
	}
}

static void recovered(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	if (r < 0) {
		(void)snprintf(b->net_problem, sizeof(b->net_problem), "%.250s", e->text);
		box_event(b, "network", b->net_problem);
	} else {
		net_box_on(b);
		box_event(b, "network", "it got a new interface, because the daemon is a new one");
	}
	box_release(b);
}

void net_recover(struct box *b)
{
	struct err e = ERR_INIT;
	char *same = NULL;

	if (!b->spec.net || b->busy)
		return;
	/* A list may have been taken from the configuration since: then nothing is known of what it may. */
	if (net_policy(b->d, b->spec.net, NULL, &same, &e) < 0) {
		(void)snprintf(b->net_problem, sizeof(b->net_problem), "%.250s", e.text);
		box_event(b, "network", b->net_problem);
		return;
	}
	free(same);
	(void)snprintf(b->net_problem, sizeof(b->net_problem), "it is getting a new interface, because the daemon is a new one");
	b->busy = "getting its network back";
	net_plug(b, true, recovered, NULL);
}

/* ---------------------------------------------------------------- what people see */

void net_write(const struct box *b, struct json_out *o)
{
	const char *lab = conf_text(&b->d->conf, CONF_NET_LAB_PUBLIC);

	if (b->net_problem[0])
		json_put_str(o, "net_problem", b->net_problem);
	for (const struct port *p = b->ports; p; p = p->next) {
		char text[280];

		if (!p->problem[0])
			continue;
		(void)snprintf(text, sizeof(text), "port %u at port %u of the host: %s", p->port, p->host_port, p->problem);
		json_put_str(o, "expose_problem", text);
		break;
	}
	if (b->spec.net && *lab)
		json_put_str(o, "net_lab_public", lab);
	if (b->net_on) {
		const struct ip four = net_box4(b->run.net_index), six = net_box6(b->run.net_index);
		char buf[IP_TEXT_MAX];

		json_put_arr(o, "address");
		json_put_str(o, NULL, ip_text(&four, buf));
		json_put_str(o, NULL, ip_text(&six, buf));
		json_end_arr(o);
	}
}
