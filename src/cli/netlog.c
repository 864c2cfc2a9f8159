/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of boxes, as they were: cubby net log and net learn. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/verbs.h"

#define LEARN_MAX 4096	/* names and addresses of one proposal */
#define LEARN_LINES 100000

static int lines_of(struct cli *c, uint64_t lines, uint64_t since_ms, const char *after, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };

	question_begin(&q, "net-log");
	if (c->args.nnames > 0)
		put_box(c, &q, c->args.names[0]);
	else if (args_has(&c->args, O(ALL)))
		json_put_bool(&q.json, "all", true);
	json_put_int(&q.json, "lines", (int64_t)lines);
	if (since_ms > 0)
		json_put_int(&q.json, "since_ms", (int64_t)since_ms);
	if (after)
		json_put_str(&q.json, "cursor", after);
	return ask(c, &q, NULL, 0, ret, e);
}

static void put_line(struct cli *c, const struct json *m)
{
	const char *host = json_str(m, "host", ""), *addr = json_str(m, "addr", ""), *rule = json_str(m, "rule", "");
	const char *why = json_str(m, "why", ""), *end = json_str(m, "end", ""), *process = json_str(m, "process", "");
	const char *time_text = json_str(m, "time", "?");
	bool refused = strcmp(json_str(m, "verdict", ""), "allowed") != 0;
	int64_t port = json_int(m, "port", 0), count = json_int(m, "count", 1);

	if (c->json) {
		say_json(c, m);
		return;
	}
	put_text(&c->out, time_text);
	(void)buf_puts(&c->out, "  ");
	put_text(&c->out, json_str(m, "name", NULL));
	if (*process) {
		(void)buf_putc(&c->out, ' ');
		put_text(&c->out, process);
	}
	(void)buf_puts(&c->out, refused ? "  refused  " : "  allowed  ");
	put_text(&c->out, json_str(m, "proto", NULL));
	(void)buf_putc(&c->out, ' ');
	if (*host)
		put_text(&c->out, host);
	if (*addr) {
		(void)buf_puts(&c->out, *host ? " (" : "");
		put_text(&c->out, addr);
		(void)buf_puts(&c->out, *host ? ")" : "");
	}
	if (port > 0)
		(void)buf_printf(&c->out, " port %lld", (long long)port);
	if (refused) {
		(void)buf_puts(&c->out, ": ");
		put_text(&c->out, why);
	} else {
		(void)buf_puts(&c->out, "  up ");
		put_size(&c->out, (uint64_t)json_int(m, "up", 0));
		(void)buf_puts(&c->out, ", down ");
		put_size(&c->out, (uint64_t)json_int(m, "down", 0));
		(void)buf_puts(&c->out, ", ");
		put_duration(&c->out, (uint64_t)json_int(m, "ms", 0));
		if (*end && strcmp(end, "closed") != 0) {
			(void)buf_puts(&c->out, ", ");
			put_text(&c->out, end);
		}
		if (*why) {
			(void)buf_puts(&c->out, ": ");
			put_text(&c->out, why);
		}
	}
	if (*rule) {
		(void)buf_puts(&c->out, "  [");
		put_text(&c->out, rule);
		(void)buf_putc(&c->out, ']');
	}
	if (count > 1)
		(void)buf_printf(&c->out, "  %lld times", (long long)count);
	(void)buf_putc(&c->out, '\n');
}

static int follow(struct cli *c, const char *first, struct err *e)
{
	struct timespec pause = { .tv_nsec = 300000000 };
	char after[64];

	(void)snprintf(after, sizeof(after), "%.60s", first);
	for (;;) {
		OWN_ANSWER a = ANSWER_INIT;
		const struct json *list;
		int r;

		if (say_out(c) != EXIT_OK)
			return 0;
		(void)nanosleep(&pause, NULL);
		r = lines_of(c, LEARN_LINES, 0, after, &a, e);
		if (r < 0)
			return r;
		list = json_get(a.doc.root, "lines");
		for (const struct json *m = list ? list->child : NULL; m; m = m->next)
			put_line(c, m);
		(void)snprintf(after, sizeof(after), "%.60s", json_str(a.doc.root, "cursor", ""));
	}
}

static int options_ok(struct cli *c, uint64_t *ret_lines, uint64_t *ret_since, struct err *e)
{
	int r = c->args.nnames > 0 ? box_word(c->args.names[0], e) : 0;

	if (r >= 0 && c->args.val[OPT_SINCE])
		r = opt_duration(&c->args, OPT_SINCE, ret_since, e);
	if (r >= 0 && c->args.val[OPT_LINES])
		r = opt_count(&c->args, OPT_LINES, 0, LEARN_LINES, ret_lines, e);
	return r;
}

int cmd_net_log(struct cli *c)
{
	bool more = args_has(&c->args, O(FOLLOW));
	uint64_t lines = c->args.val[OPT_SINCE] ? LEARN_LINES : 100, since = 0;
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	const struct json *list;

	if (options_ok(c, &lines, &since, &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (lines_of(c, lines, since, NULL, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "lines");
	if (c->json && !more) {
		say_json(c, list);
		return EXIT_OK;
	}
	for (const struct json *m = list ? list->child : NULL; m; m = m->next)
		put_line(c, m);
	if (!more)
		return EXIT_OK;
	return follow(c, json_str(a.doc.root, "cursor", ""), &e) < 0 ? say_failed(c, &e) : EXIT_OK;
}

/* ---------------------------------------------------------------- learn */

struct learnt {
	const char *host;	/* name, or address */
	int64_t port;
	int64_t times;
	bool refused;
};

static int by_host(const void *a, const void *b)
{
	const struct learnt *x = a, *y = b;
	int r = strcmp(x->host, y->host);

	return r ? r : (x->port > y->port) - (x->port < y->port);
}

/* Names that a policy can hold: nothing that a box said is put into one unseen. */
static bool plain(const char *s)
{
	return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-_:") == strlen(s);
}

int cmd_net_learn(struct cli *c)
{
	uint64_t lines = LEARN_LINES, since = 0;
	OWN_ANSWER a = ANSWER_INIT;
	OWN_MEM struct learnt *all = calloc(LEARN_MAX, sizeof(*all));
	OWN_BUF json = BUF_INIT(4u << 20);
	struct json_out o;
	struct err e = ERR_INIT;
	const struct json *list;
	size_t n = 0, allowed = 0;

	if (!all || options_ok(c, &lines, &since, &e) < 0) {
		if (!all)
			(void)err_set(&e, -ENOMEM, "cannot make a proposal");
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (lines_of(c, lines, since, NULL, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "lines");
	for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
		const char *host = json_str(m, "host", "");
		int64_t port = json_int(m, "port", 0);
		bool refused = strcmp(json_str(m, "verdict", ""), "allowed") != 0;
		size_t i = 0;

		if (!*host)
			host = json_str(m, "addr", "");
		/* A name that was refused when it was looked up has no port yet. */
		if (refused && strcmp(json_str(m, "proto", ""), "dns") == 0)
			port = 0;
		else if (port < 1 || port > 65535 || strcmp(json_str(m, "proto", ""), "dns") == 0)
			continue;
		if (!plain(host))
			continue;
		while (i < n && !(strcmp(all[i].host, host) == 0 && all[i].port == port && all[i].refused == refused))
			i++;
		if (i == LEARN_MAX)
			continue;
		if (i == n)
			all[n++] = (struct learnt){ .host = host, .port = port, .refused = refused };
		all[i].times += json_int(m, "count", 1);
	}
	qsort(all, n, sizeof(*all), by_host);
	json_out_init(&o, &json);
	json_put_arr(&o, NULL);
	for (size_t i = 0; i < n; i++) {
		bool six = strchr(all[i].host, ':');
		char item[320], port[24] = "";

		if (all[i].port > 0)
			(void)snprintf(port, sizeof(port), ":%lld", (long long)all[i].port);
		(void)snprintf(item, sizeof(item), "%s%.253s%s%s", six && *port ? "[" : "", all[i].host, six && *port ? "]" : "", port);
		allowed += !all[i].refused;
		json_put_obj(&o, NULL);
		json_put_str(&o, "item", item);
		json_put_int(&o, "times", all[i].times);
		json_put_str(&o, "verdict", all[i].refused ? "refused" : "allowed");
		json_end_obj(&o);
		if (c->json)
			continue;
		/* What was refused is shown, and is for a person to uncomment. */
		(void)buf_printf(&c->out, "%s%s\n", all[i].refused ? "# refused so far: " : "", item);
	}
	json_end_arr(&o);
	if (c->json) {
		(void)buf_put(&c->out, json.data, buf_error(&json) ? 0 : json.len);
		(void)buf_putc(&c->out, '\n');
	} else if (n == 0) {
		say_note(c, "the log holds no connection of '%s'", c->args.names[0]);
	} else if (allowed == 0) {
		say_note(c, "the log holds only what was refused to '%s': nothing to propose", c->args.names[0]);
	} else {
		say_note(c, "to allow just these: cubby net set %s $(cubby net learn %s | grep -v '^#')", c->args.names[0],
			 c->args.names[0]);
	}
	return EXIT_OK;
}
