/* SPDX-License-Identifier: Apache-2.0 */
/* What changes a box as a whole. Commands that take several boxes do all they can and then say what failed. */
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/verbs.h"

/* One box or template of several: done, or why not. */
struct many {
	struct cli *c;
	struct json_out json;
	struct buf text;
	int status;
};

static void many_begin(struct many *m, struct cli *c)
{
	*m = (struct many){ .c = c, .text = BUF_INIT(16u << 20) };
	json_out_init(&m->json, &m->text);
	json_put_arr(&m->json, NULL);
}

static void many_failed(struct many *m, const char *name, const struct err *e)
{
	bool json = m->c->json;

	/* The object of this one goes into the array, not beside it. */
	m->c->json = false;
	say_error(m->c, e);
	m->c->json = json;
	json_put_obj(&m->json, NULL);
	json_put_str(&m->json, "name", name);
	json_put_str(&m->json, "error", e->text);
	json_put_str(&m->json, "why", why_word(e->why));
	json_end_obj(&m->json);
	m->status = EXIT_FAILED;
}

static void many_did(struct many *m, const char *name, const struct json *value)
{
	if (value) {
		json_put_value(&m->json, NULL, value);
	} else {
		json_put_obj(&m->json, NULL);
		json_put_str(&m->json, "name", name);
		json_end_obj(&m->json);
	}
	if (!m->c->json) {
		put_text(&m->c->out, name);
		(void)buf_putc(&m->c->out, '\n');
	}
}

static int many_end(struct many *m)
{
	json_end_arr(&m->json);
	if (m->c->json) {
		(void)buf_put(&m->c->out, m->text.data, buf_error(&m->text) ? 0 : m->text.len);
		(void)buf_putc(&m->c->out, '\n');
	}
	buf_done(&m->text);
	return m->status;
}

/* Every name is judged before anything happens. */
static int names_ok(struct cli *c)
{
	struct err e = ERR_INIT;

	for (size_t i = 0; i < c->args.nnames; i++)
		if (box_word(c->args.names[i], &e) < 0) {
			say_error(c, &e);
			return EXIT_ASKED_WRONG;
		}
	return 0;
}

static int each_box(struct cli *c, const char *op)
{
	uint64_t grace = 0;
	struct err e = ERR_INIT;
	struct many m;
	int r = names_ok(c);

	if (r != 0)
		return r;
	if (c->args.val[OPT_GRACE] && opt_duration(&c->args, OPT_GRACE, &grace, &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	many_begin(&m, c);
	for (size_t i = 0; i < c->args.nnames; i++) {
		OWN_QUESTION q = { 0 };
		OWN_ANSWER a = ANSWER_INIT;

		question_begin(&q, op);
		put_box(c, &q, c->args.names[i]);
		if (c->args.val[OPT_GRACE])
			json_put_int(&q.json, "grace_ms", (int64_t)grace);
		if (args_has(&c->args, O(FORCE)))
			json_put_bool(&q.json, "force", true);
		if (ask(c, &q, NULL, 0, &a, &e) < 0)
			many_failed(&m, c->args.names[i], &e);
		else
			many_did(&m, c->args.names[i], json_get(a.doc.root, "box"));
	}
	return many_end(&m);
}

int cmd_start(struct cli *c)
{
	return each_box(c, "start");
}

int cmd_stop(struct cli *c)
{
	return each_box(c, "stop");
}

int cmd_pause(struct cli *c)
{
	return each_box(c, "pause");
}

int cmd_resume(struct cli *c)
{
	return each_box(c, "resume");
}

static int remove_box(struct cli *c, const char *name, bool force, struct err *e)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;

	question_begin(&q, "rm");
	put_box(c, &q, name);
	if (force)
		json_put_bool(&q.json, "force", true);
	return ask(c, &q, NULL, 0, &a, e);
}

/* "remove the boxes a, b and 3 more, running or not, with their disks" */
static void name_some(struct buf *to, char **names, size_t n)
{
	for (size_t i = 0; i < n && i < 10; i++)
		(void)buf_printf(to, "%s%.63s", i == 0 ? "" : ", ", names[i]);
	if (n > 10)
		(void)buf_printf(to, " and %zu more", n - 10);
}

int cmd_rm(struct cli *c)
{
	bool force = args_has(&c->args, O(FORCE));
	OWN_BUF what = BUF_INIT(4096);
	struct err e = ERR_INIT;
	struct many m;
	int r = names_ok(c);

	if (r != 0)
		return r;
	if (c->args.nnames > 1 && !force) {
		(void)buf_printf(&what, "remove %zu boxes, running or not, with their disks: ", c->args.nnames);
		name_some(&what, c->args.names, c->args.nnames);
		if (!say_sure(c, what.data))
			return EXIT_FAILED;
		force = true;
	}
	many_begin(&m, c);
	for (size_t i = 0; i < c->args.nnames; i++) {
		const char *name = c->args.names[i];

		r = remove_box(c, name, force, &e);
		/* The only box there is to remove, and it runs: that is worth a question. */
		if (r < 0 && e.why == WHY_WRONG_STATE && !force) {
			(void)buf_printf(&what, "end what runs in box '%s' and remove its disk", name);
			if (!say_sure(c, what.data)) {
				buf_done(&m.text);
				return EXIT_FAILED;
			}
			r = remove_box(c, name, true, &e);
		}
		if (r < 0)
			many_failed(&m, name, &e);
		else
			many_did(&m, name, NULL);
	}
	return many_end(&m);
}

int cmd_template_rm(struct cli *c)
{
	OWN_BUF what = BUF_INIT(4096);
	struct err e = ERR_INIT;
	struct many m;

	(void)buf_puts(&what, c->args.nnames == 1 ? "remove the template " : "remove the templates ");
	name_some(&what, c->args.names, c->args.nnames);
	if (!say_sure(c, what.data))
		return EXIT_FAILED;
	many_begin(&m, c);
	for (size_t i = 0; i < c->args.nnames; i++) {
		OWN_QUESTION q = { 0 };
		OWN_ANSWER a = ANSWER_INIT;

		question_begin(&q, "template-rm");
		json_put_str(&q.json, "name", c->args.names[i]);
		if (ask(c, &q, NULL, 0, &a, &e) < 0)
			many_failed(&m, c->args.names[i], &e);
		else
			many_did(&m, c->args.names[i], NULL);
	}
	return many_end(&m);
}

int cmd_rename(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	int r = names_ok(c);

	if (r != 0)
		return r;
	question_begin(&q, "rename");
	put_box(c, &q, c->args.names[0]);
	json_put_str(&q.json, "name", c->args.names[1]);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json) {
		say_json(c, json_get(a.doc.root, "box"));
	} else {
		put_text(&c->out, c->args.names[1]);
		(void)buf_putc(&c->out, '\n');
	}
	/* What runs in it knows it by that name, and nobody may change it under them. */
	if (strcmp(json_str(json_get(a.doc.root, "box"), "state", ""), "running") == 0)
		say_note(c, "it keeps its old host name until it is stopped and started again");
	return EXIT_OK;
}

static void limit_row(struct table *t, const struct json *limits, const char *word, const char *key, const char *none)
{
	int64_t v = json_int(limits, key, -1);
	OWN_BUF text = BUF_INIT(128);

	if (v < 0)
		return;
	if (v == 0 && none)
		(void)buf_puts(&text, none);
	else if (strcmp(key, "pids") == 0 || strcmp(key, "cpu_weight") == 0 || strncmp(key, "conn", 4) == 0 ||
		 strcmp(key, "flows") == 0)
		(void)buf_printf(&text, "%lld", (long long)v);
	else if (strcmp(key, "cpu_milli") == 0)
		put_cpus(&text, (uint64_t)v);
	else
		put_size(&text, (uint64_t)v);
	if (v != 0 && (strncmp(key, "io_", 3) == 0 || strcmp(key, "connection_rate") == 0 || strcmp(key, "bandwidth") == 0))
		(void)buf_puts(&text, " in a second");
	table_cell(t, word);
	table_ready(t, &text);
}

void put_limits_table(struct table *t, const struct json *limits)
{
	limit_row(t, limits, "memory", "memory", "no limit");
	limit_row(t, limits, "swap", "swap", "none");
	limit_row(t, limits, "pids", "pids", "no limit");
	limit_row(t, limits, "cpus", "cpu_milli", "no limit");
	limit_row(t, limits, "cpu-weight", "cpu_weight", "100");
	limit_row(t, limits, "io-read", "io_read", "no limit");
	limit_row(t, limits, "io-write", "io_write", "no limit");
	limit_row(t, limits, "connections", "connections", "no limit");
	limit_row(t, limits, "connection-rate", "connection_rate", "no limit");
	limit_row(t, limits, "flows", "flows", "no limit");
	limit_row(t, limits, "bandwidth", "bandwidth", "no limit");
}

int cmd_limits(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	int r = names_ok(c);

	table_init(&t, 2);
	question_begin(&q, "limits");
	if (r != 0)
		return r;
	put_box(c, &q, c->args.names[0]);
	if (args_has(&c->args, OPTS_LIMITS_GIVEN)) {
		json_put_obj(&q.json, "limits");
		if (put_limits(&c->args, &q.json, &e) < 0) {
			say_error(c, &e);
			return EXIT_ASKED_WRONG;
		}
		json_end_obj(&q.json);
	}
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json) {
		say_json(c, json_get(a.doc.root, "limits"));
		return EXIT_OK;
	}
	put_limits_table(&t, json_get(a.doc.root, "limits"));
	table_print(&t, &c->out);
	return EXIT_OK;
}

static void put_time_left(struct cli *c, const struct json *box)
{
	int64_t expires = json_int(box, "expires", 0), idle = json_int(box, "idle_ms", 0), left = expires - now_seconds();

	(void)buf_puts(&c->out, "removed: ");
	if (expires > 0 && left > 0) {
		(void)buf_puts(&c->out, "in ");
		put_duration(&c->out, (uint64_t)left * 1000);
	} else {
		(void)buf_puts(&c->out, expires > 0 ? "now" : "never");
	}
	(void)buf_puts(&c->out, "\nstopped: ");
	if (idle > 0) {
		(void)buf_puts(&c->out, "when idle for ");
		put_duration(&c->out, (uint64_t)idle);
	} else {
		(void)buf_puts(&c->out, "never");
	}
	(void)buf_putc(&c->out, '\n');
}

int cmd_ttl(struct cli *c)
{
	const char *op = c->args.nnames > 1 || c->args.val[OPT_IDLE] ? "set" : "info";
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	uint64_t ms;
	int r = box_word(c->args.names[0], &e);

	question_begin(&q, op);
	put_box(c, &q, c->args.names[0]);
	if (r == 0 && c->args.nnames > 1) {
		r = duration_word("cubby ttl", c->args.names[1], &ms, &e);
		if (r == 0)
			json_put_int(&q.json, "ttl_ms", (int64_t)ms);
	}
	if (r == 0 && c->args.val[OPT_IDLE]) {
		r = opt_duration(&c->args, OPT_IDLE, &ms, &e);
		if (r == 0)
			json_put_int(&q.json, "idle_ms", (int64_t)ms);
	}
	if (r < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json)
		say_json(c, json_get(a.doc.root, "box"));
	else if (!c->quiet)
		put_time_left(c, json_get(a.doc.root, "box"));
	return EXIT_OK;
}
