/* SPDX-License-Identifier: Apache-2.0 */
/* What boxes may reach: cubby net show, set, why, presets, ask; and the options of `new` and `run`. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/verbs.h"

#define POLICY_MAX (2u << 20)

/* PORT or A-B. What the braces of a list hold is the daemon's to judge. */
static bool is_ports(const char *s)
{
	const char *dash = strchr(s, '-');
	char first[8];
	uint64_t a, b;

	if (*s == '{')
		return true;
	if (!dash)
		return parse_u64(s, 65535, &a) == 0 && a > 0;
	if (dash - s >= (ptrdiff_t)sizeof(first))
		return false;
	memcpy(first, s, (size_t)(dash - s));
	first[dash - s] = '\0';
	return parse_u64(first, 65535, &a) == 0 && a > 0 && parse_u64(dash + 1, 65535, &b) == 0 && a <= b;
}

/* One item: the daemon parses it, but its value must not smuggle in others. */
static int add_item(struct buf *to, const char *option, const char *key, const char *val, struct err *e)
{
	if (!*val || strpbrk(val, ", \t\r\n="))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--%s: '%.80s' is not %s", option, val,
			       strcmp(option, "lan") == 0 ? "an address or range, CIDR[:PORT]" : "a port");
	if (strcmp(key, "host-port") == 0 && !is_ports(val))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--%s: '%.80s' is not a port from 1 to 65535, or a range A-B", option, val);
	(void)buf_printf(to, "%s%s=%s", to->len ? "," : "", key, val);
	return 0;
}

/* "-": the policy stands on standard input, where a long list fits; '#' begins a comment. */
static int add_words(struct buf *to, const char *word, bool more, struct err *e)
{
	char chunk[4096];
	bool comment = false;
	ssize_t n;

	(void)buf_puts(to, more ? "," : "");
	if (strcmp(word, "-") != 0) {
		(void)buf_puts(to, word);
		return 0;
	}
	while ((n = read(STDIN_FILENO, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, -errno, "cannot read the policy from standard input");
		for (ssize_t i = 0; i < n; i++) {
			comment = chunk[i] != '\n' && (comment || chunk[i] == '#');
			/* Blanks instead, so that the place of an error is the one in the file. NUL becomes what no policy holds. */
			(void)buf_putc(to, comment ? ' ' : chunk[i] ? chunk[i] : '\x7f');
		}
		if (buf_error(to))
			break;
	}
	return 0;
}

int put_policy(const struct args *a, char *const *words, size_t n, struct json_out *o, struct err *e)
{
	OWN_BUF net = BUF_INIT(POLICY_MAX), more = BUF_INIT(POLICY_MAX);
	bool given = n > 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_words(&net, words[i], i > 0, e);
	for (size_t i = 0; i < a->nlist && r == 0; i++) {
		const struct given *g = &a->list[i];

		if (g->opt == OPT_NET) {
			r = add_words(&net, g->val, given, e);
			given = true;
		} else if (g->opt == OPT_LAN) {
			r = add_item(&more, "lan", "lan", g->val, e);
		} else if (g->opt == OPT_HOST_PORT) {
			r = add_item(&more, "host-port", "host-port", g->val, e);
		}
	}
	if (r == 0 && (buf_error(&net) || buf_error(&more)))
		r = err_set(e, buf_error(&net) ? buf_error(&net) : buf_error(&more), "the policy is too long");
	if (r < 0)
		return r;
	if (given)
		json_put_str(o, "net", net.data ? net.data : "");
	if (more.len > 0)
		json_put_str(o, "net_more", more.data);
	return 0;
}

/* ---------------------------------------------------------------- show */

static void put_port(struct buf *to, const char *name, const char *addr, int64_t port)
{
	bool six = !*name && strchr(addr, ':');

	(void)buf_puts(to, six ? "[" : "");
	put_text(to, *name ? name : addr);
	(void)buf_puts(to, six ? "]" : "");
	if (port > 0)
		(void)buf_printf(to, ":%lld", (long long)port);
}

static void put_conns(struct cli *c, const struct json *conns)
{
	OWN_TABLE t = { 0 };

	if (!conns || conns->count == 0)
		return;
	table_init(&t, 6);
	table_cell(&t, "WITH");
	table_cell(&t, "PROTO");
	table_cell(&t, "UP");
	table_cell(&t, "DOWN");
	table_cell(&t, "FOR");
	table_cell(&t, "PROCESS");
	for (const struct json *m = conns->child; m; m = m->next) {
		OWN_BUF with = BUF_INIT(4096), up = BUF_INIT(64), down = BUF_INIT(64), since = BUF_INIT(64);

		put_port(&with, json_str(m, "name", ""), json_str(m, "addr", ""), json_int(m, "port", 0));
		table_ready(&t, &with);
		table_cell(&t, json_str(m, "proto", NULL));
		put_size(&up, (uint64_t)json_int(m, "up", 0));
		table_ready(&t, &up);
		put_size(&down, (uint64_t)json_int(m, "down", 0));
		table_ready(&t, &down);
		put_duration(&since, (uint64_t)json_int(m, "ms", 0));
		table_ready(&t, &since);
		table_cell(&t, json_str(m, "process", NULL));
	}
	(void)buf_puts(&c->out, "\nopen now:\n");
	table_print(&t, &c->out);
}

static void put_net(struct cli *c, const struct json *net)
{
	static const char *const keys[] = { "connections", "connection_rate", "flows", "bandwidth" };
	const struct json *exposed = json_get(net, "exposed"), *totals = json_get(net, "totals"), *addr = json_get(net, "address");
	OWN_TABLE t = { 0 };
	OWN_BUF limits = BUF_INIT(1024), ports = BUF_INIT(8192), sums = BUF_INIT(1024), both = BUF_INIT(256);
	struct json_out o;

	table_init(&t, 2);
	table_cell(&t, "policy");
	table_cell(&t, json_str(net, "net", NULL));
	if (json_str(net, "problem", NULL)) {
		table_cell(&t, "problem");
		table_cell(&t, json_str(net, "problem", NULL));
	}
	if (addr && addr->count > 0) {
		for (const struct json *m = addr->child; m; m = m->next) {
			put_text(&both, m->str);
			(void)buf_puts(&both, m->next ? "  " : "");
		}
		table_cell(&t, "address");
		table_ready(&t, &both);
	}
	json_out_init(&o, &limits);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		int64_t v = json_int(json_get(net, "limits"), keys[i], 0);
		OWN_BUF text = BUF_INIT(64);

		if (v <= 0)
			(void)buf_puts(&text, "no limit");
		else if (strcmp(keys[i], "bandwidth") == 0)
			put_size(&text, (uint64_t)v);
		else
			(void)buf_printf(&text, "%lld", (long long)v);
		table_cell(&t, strcmp(keys[i], "connection_rate") == 0 ? "connection-rate" : keys[i]);
		table_ready(&t, &text);
	}
	for (const struct json *m = exposed ? exposed->child : NULL; m; m = m->next)
		(void)buf_printf(&ports, "%s%lld at 127.0.0.1:%lld", ports.len ? ", " : "", (long long)json_int(m, "port", 0),
				 (long long)json_int(m, "host_port", 0));
	if (ports.len > 0) {
		table_cell(&t, "exposed");
		table_ready(&t, &ports);
	}
	for (const struct json *m = totals ? totals->child : NULL; m; m = m->next)
		if (m->type == JSON_INT) {
			(void)buf_puts(&sums, sums.len ? ", " : "");
			put_text(&sums, m->key);
			(void)buf_printf(&sums, " %lld", (long long)m->num);
		}
	if (sums.len > 0) {
		table_cell(&t, "so far");
		table_ready(&t, &sums);
	}
	table_print(&t, &c->out);
	put_conns(c, json_get(net, "conns"));
}

/* Every box: its policy in one line. */
static int show_all(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *boxes;

	question_begin(&q, "ls");
	if (args_has(&c->args, O(ALL)))
		json_put_bool(&q.json, "all", true);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	boxes = json_get(a.doc.root, "boxes");
	if (c->json) {
		say_json(c, boxes);
		return EXIT_OK;
	}
	table_init(&t, 3);
	table_cell(&t, "NAME");
	table_cell(&t, "STATE");
	table_cell(&t, "NET");
	for (const struct json *b = boxes ? boxes->child : NULL; b; b = b->next) {
		table_cell(&t, json_str(b, "name", NULL));
		table_cell(&t, json_str(b, "state", NULL));
		table_cell(&t, json_str(b, "net", NULL));
	}
	table_print(&t, &c->out);
	return EXIT_OK;
}

/* A question about one box. Returns 0, or the exit status with the error said, in *status. */
static int about(struct cli *c, struct question *q, const char *op)
{
	struct err e = ERR_INIT;

	question_begin(q, op);
	if (box_word(c->args.names[0], &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	put_box(c, q, c->args.names[0]);
	return EXIT_OK;
}

int cmd_net_show(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	int r;

	if (c->args.nnames == 0)
		return show_all(c);
	r = about(c, &q, "net-show");
	if (r != EXIT_OK)
		return r;
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json)
		say_json(c, json_get(a.doc.root, "net"));
	else
		put_net(c, json_get(a.doc.root, "net"));
	return EXIT_OK;
}

/* ---------------------------------------------------------------- set */

int cmd_net_set(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	int r = about(c, &q, "net-set");

	if (r != EXIT_OK)
		return r;
	if (c->args.nnames == 1 && !args_has(&c->args, O(LAN) | O(HOST_PORT))) {
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "what shall '%s' reach? as in 'cubby net set %s internet', '… none', "
			      "'… @npm registry.example.org:443'", c->args.names[0], c->args.names[0]);
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (put_policy(&c->args, c->args.names + 1, c->args.nnames - 1, &q.json, &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json) {
		say_json(c, json_get(a.doc.root, "box"));
	} else if (!c->quiet) {
		put_text(&c->out, json_str(json_get(a.doc.root, "box"), "net", NULL));
		(void)buf_putc(&c->out, '\n');
	}
	return EXIT_OK;
}

/* ---------------------------------------------------------------- why */

/* An address, or what may be a name: one whose last part is a number is nobody's (RFC 3696, 2). */
static bool is_host(const char *s)
{
	const char *last = strrchr(s, '.');
	struct in6_addr a;

	if (strchr(s, ':'))
		return inet_pton(AF_INET6, s, &a) == 1;
	last = last ? last + 1 : s;
	if (*last && last[strspn(last, "0123456789")] == '\0')
		return inet_pton(AF_INET, s, &a) == 1;
	return *s != '.' && *last && !strstr(s, "..") &&
	       s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")] == '\0';
}

/* HOST[:PORT], [IPv6][:PORT], or an IPv6 address. ret_host has room for 254 bytes. */
static int host_word(const char *s, char *ret_host, uint64_t *ret_port, struct err *e)
{
	const char *end = s + strlen(s), *colon;
	size_t n;

	*ret_port = 0;
	if (*s == '[') {
		colon = strchr(s, ']');
		if (!colon || (colon[1] && colon[1] != ':'))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is not [ADDRESS]:PORT", s);
		n = (size_t)(colon - s) - 1;
		s++;
		colon = colon[1] ? colon + 1 : end;
	} else {
		colon = strchr(s, ':');
		if (!colon || strchr(colon + 1, ':'))
			colon = end;	/* none, or an IPv6 address */
		n = (size_t)(colon - s);
	}
	if (strstr(s, "://") || strchr(s, '/'))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is not HOST[:PORT]: give the host alone, as in example.org:443", s);
	if (n > 1 && s[n - 1] == '.')
		n--;	/* the root's: the same name */
	if (n == 0 || n > 253)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is not a host", s);
	memcpy(ret_host, s, n);
	ret_host[n] = '\0';
	if (!is_host(ret_host))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is neither a host name nor an address", ret_host);
	if (*colon && (parse_u64(colon + 1, 65535, ret_port) < 0 || *ret_port == 0))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.20s' is not a port: 1 to 65535", colon + 1);
	return 0;
}

int cmd_net_why(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	const struct json *net, *addrs;
	const char *verdict, *why, *rule;
	char host[256];
	uint64_t port;
	int r = about(c, &q, "net-why");

	if (r != EXIT_OK)
		return r;
	if (host_word(c->args.names[1], host, &port, &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	json_put_str(&q.json, "host", host);
	json_put_int(&q.json, "port", (int64_t)port);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	net = json_get(a.doc.root, "net");
	if (c->json) {
		say_json(c, net);
		return EXIT_OK;
	}
	verdict = json_str(net, "verdict", "refused");
	why = json_str(net, "why", "");
	rule = json_str(net, "rule", "");
	(void)buf_puts(&c->out, strcmp(verdict, "allowed") == 0 ? "allowed" : strcmp(verdict, "asked") == 0 ? "asked for" : "refused");
	if (*rule) {
		(void)buf_puts(&c->out, " by ");
		put_text(&c->out, rule);
	}
	if (*why) {
		(void)buf_puts(&c->out, *rule && strcmp(verdict, "allowed") == 0 ? ", but " : ": ");
		put_text(&c->out, why);
	}
	(void)buf_putc(&c->out, '\n');
	addrs = json_get(net, "addrs");
	for (const struct json *m = addrs ? addrs->child : NULL; m; m = m->next) {
		const char *v = json_str(m, "verdict", "refused"), *w = json_str(m, "why", "");

		(void)buf_puts(&c->out, "  ");
		put_text(&c->out, json_str(m, "addr", NULL));
		(void)buf_puts(&c->out, strcmp(v, "allowed") == 0 ? "  allowed" : strcmp(v, "asked") == 0 ? "  asked for" : "  refused");
		if (*w) {
			(void)buf_puts(&c->out, ": ");
			put_text(&c->out, w);
		}
		(void)buf_putc(&c->out, '\n');
	}
	return EXIT_OK;
}

/* ---------------------------------------------------------------- presets */

int cmd_net_presets(struct cli *c)
{
	const char *want = c->args.nnames > 0 ? c->args.names[0] : NULL;
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *list;

	if (want && *want == '@')
		want++;
	question_begin(&q, "net-presets");
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "presets");
	table_init(&t, 2);
	for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
		const char *name = json_str(m, "name", "");
		char at[80];

		if (want && strcmp(name, want) == 0) {
			if (c->json) {
				say_json(c, m);
			} else {
				put_text(&c->out, json_str(m, "items", ""));
				(void)buf_putc(&c->out, '\n');
			}
			return EXIT_OK;
		}
		(void)snprintf(at, sizeof(at), "@%.70s", name);
		table_cell(&t, at);
		table_cell(&t, json_str(m, "items", ""));
	}
	if (want) {
		(void)err_why(&e, WHY_NOT_FOUND, -ENOENT, "there is no list '@%.64s': 'cubby net presets' shows the ones there are", want);
		return say_failed(c, &e);
	}
	if (c->json)
		say_json(c, list);
	else
		table_print(&t, &c->out);
	return EXIT_OK;
}

/* ---------------------------------------------------------------- ask */

static int answer_one(struct cli *c, int64_t n, bool allow, const char *always, struct err *e)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;

	question_begin(&q, "net-answer");
	json_put_int(&q.json, "ask", n);
	json_put_bool(&q.json, "allow", allow);
	if (always)
		json_put_bool(&q.json, "always", true);
	if (args_has(&c->args, O(ALL)))
		json_put_bool(&q.json, "all", true);
	return ask(c, &q, NULL, 0, &a, e);
}

/* One word of the terminal. False at its end. */
static bool read_word(char *ret, size_t n)
{
	size_t len = 0;
	char ch;

	for (;;) {
		ssize_t k = read(0, &ch, 1);

		if (k <= 0)
			return false;
		if (ch == '\n')
			break;
		if (len + 1 < n)
			ret[len++] = ch;
	}
	ret[len] = '\0';
	return true;
}

static bool is_answer(const char *word)
{
	static const char *const words[] = { "y", "yes", "n", "no", "a", "always", "v", "never" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

static int ask_person(struct cli *c, const struct json *m, struct err *e)
{
	OWN_BUF text = BUF_INIT(4096);
	char word[16];
	int r;

	(void)buf_puts(&text, "box ");
	put_text(&text, json_str(m, "box", NULL));
	if (*json_str(m, "process", "")) {
		(void)buf_puts(&text, ", ");
		put_text(&text, json_str(m, "process", NULL));
	}
	(void)buf_puts(&text, ": reach ");
	put_port(&text, json_str(m, "name", ""), json_str(m, "addr", ""), json_int(m, "port", 0));
	if (*json_str(m, "name", "") && *json_str(m, "addr", "")) {
		(void)buf_puts(&text, " (");
		put_text(&text, json_str(m, "addr", NULL));
		(void)buf_puts(&text, ")");
	}
	(void)buf_puts(&text, "? [y]es, [n]o, [a]lways, ne[v]er: ");
	/* What isn't an answer must not become one: only the end of the input leaves the question to others. */
	do {
		if (buf_error(&text) || fd_write_all(2, text.data, text.len) < 0 || !read_word(word, sizeof(word)))
			return 1;
		buf_reset(&text);
		(void)buf_puts(&text, "please answer y (once), n (not now), always, or never: ");
	} while (!is_answer(word));
	if (strcmp(word, "y") == 0 || strcmp(word, "yes") == 0)
		r = answer_one(c, json_int(m, "ask", 0), true, NULL, e);
	else if (strcmp(word, "a") == 0 || strcmp(word, "always") == 0)
		r = answer_one(c, json_int(m, "ask", 0), true, "always", e);
	else if (strcmp(word, "v") == 0 || strcmp(word, "never") == 0)
		r = answer_one(c, json_int(m, "ask", 0), false, "always", e);
	else
		r = answer_one(c, json_int(m, "ask", 0), false, NULL, e);
	if (r < 0 && e->why == WHY_NOT_FOUND) {
		say_note(c, "that was too late, and it has been refused");
		r = 0;
	} else if (r == 0) {
		say_note(c, "%s", word[0] == 'y' ? "allowed for 5 minutes" : word[0] == 'a' ? "allowed: it is in the box's policy now" :
			 word[0] == 'v' || strcmp(word, "never") == 0 ? "refused without asking again until the box stops" :
			 "refused for 10 seconds; then it is asked again");
	}
	return r;
}

/*
 * Shows what is held, as it comes, until the input ends. With --json each question is one line, and the answers come as lines
 * "NUMBER y|n|always|never".
 */
static int take_json_answers(struct cli *c, struct buf *in, struct err *e)
{
	char bytes[512], *nl;
	ssize_t k = read(0, bytes, sizeof(bytes));

	if (k <= 0)
		return 1;
	if (buf_put(in, bytes, (size_t)k) < 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "an answer is a line 'NUMBER y|n|always|never'");
	while ((nl = memchr(in->data, '\n', in->len))) {
		char *word = strchr(in->data, ' ');
		struct err mine = ERR_INIT;
		uint64_t n = 0;
		int r = 0;

		*nl = '\0';
		if (word && word < nl)
			*word++ = '\0';
		else
			word = NULL;
		if (!word || !is_answer(word) || parse_u64(in->data, INT64_MAX, &n) < 0)
			r = err_why(&mine, WHY_BAD_REQUEST, -EINVAL, "'%.30s%s%.30s' is not an answer: a line 'NUMBER y|n|always|never' is",
				    in->data, word ? " " : "", word ? word : "");
		else
			r = answer_one(c, (int64_t)n, word[0] == 'y' || word[0] == 'a',
				       word[0] == 'a' || word[0] == 'v' || strcmp(word, "never") == 0 ? "always" : NULL, &mine);
		/* One wrong answer is no reason to leave the others' questions unasked. */
		if (r < 0 && (mine.why == WHY_NOT_FOUND || mine.why == WHY_BAD_REQUEST || mine.why == WHY_LIMIT))
			say_error(c, &mine);
		else if (r < 0) {
			*e = mine;
			return r;
		}
		buf_drop(in, (size_t)(nl - in->data) + 1);
	}
	return 0;
}

int cmd_net_ask(struct cli *c)
{
	OWN_BUF in = BUF_INIT(4096);
	struct err e = ERR_INIT;
	int64_t last = 0;
	bool first = true;

	if (c->args.nnames > 0 && box_word(c->args.names[0], &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (!c->json && !isatty(0)) {
		(void)err_why(&e, WHY_BAD_REQUEST, -ENOTTY, "questions are answered on a terminal; programs use --json");
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	for (;;) {
		OWN_QUESTION q = { 0 };
		OWN_ANSWER a = ANSWER_INIT;
		struct pollfd p = { .fd = 0, .events = c->json ? POLLIN : 0 };
		const struct json *list;
		int r;

		question_begin(&q, "net-ask");
		if (c->args.nnames > 0)
			put_box(c, &q, c->args.names[0]);
		else if (args_has(&c->args, O(ALL)))
			json_put_bool(&q.json, "all", true);
		if (ask(c, &q, NULL, 0, &a, &e) < 0)
			return say_failed(c, &e);
		list = json_get(a.doc.root, "questions");
		if (first && !json_bool(a.doc.root, "asks", true)) {
			if (c->args.nnames > 0) {
				(void)err_why(&e, WHY_WRONG_STATE, -ENOENT, "the policy of box '%s' has no 'ask': nothing of it is held for "
					      "an answer ('cubby net set %s ask')", c->args.names[0], c->args.names[0]);
				return say_failed(c, &e);
			}
			say_note(c, "no box has the policy 'ask' now: this waits until one has");
		}
		first = false;
		for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
			int64_t n = json_int(m, "ask", 0);

			if (n <= last)
				continue;
			last = n;
			if (c->json) {
				say_json(c, m);
				continue;
			}
			r = ask_person(c, m, &e);
			if (r != 0)
				return r < 0 ? say_failed(c, &e) : EXIT_OK;
		}
		if (say_out(c) != EXIT_OK)
			return EXIT_FAILED;
		if (poll(&p, 1, 200) > 0) {
			r = c->json ? take_json_answers(c, &in, &e) : (p.revents & (POLLHUP | POLLERR | POLLNVAL)) ? 1 : 0;
			if (r < 0)
				return say_failed(c, &e);
			if (r == 1)
				return EXIT_OK;
		}
	}
}
