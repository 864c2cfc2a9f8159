/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/verbs.h"

static int simple(struct cli *c, const char *op, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };

	question_begin(&q, op);
	return ask(c, &q, NULL, 0, ret, e);
}

/* A layer that is off is one that a box isn't started without, unless its maker says so. */
static bool weaker_only(const struct json *rows)
{
	for (const struct json *m = rows ? rows->child : NULL; m; m = m->next)
		if (strcmp(json_str(m, "level", ""), "off") == 0)
			return true;
	return false;
}

int cmd_doctor(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	bool usable;

	if (simple(c, "doctor", &a, &e) < 0) {
		/* No daemon, no box: that is the finding. */
		if (!c->json)
			(void)buf_puts(&c->out, "No box can be had here: the daemon can't be asked.\n");
		return say_failed(c, &e);
	}
	usable = json_bool(a.doc.root, "usable", false);
	if (c->json) {
		struct json_out o;

		json_out_init(&o, &c->out);
		json_put_obj(&o, NULL);
		json_put_bool(&o, "usable", usable);
		if (json_get(a.doc.root, "rows"))
			json_put_value(&o, "rows", json_get(a.doc.root, "rows"));
		if (json_get(a.doc.root, "drill"))
			json_put_value(&o, "drill", json_get(a.doc.root, "drill"));
		if (json_get(a.doc.root, "reason"))
			json_put_value(&o, "reason", json_get(a.doc.root, "reason"));
		json_end_obj(&o);
		(void)buf_putc(&c->out, '\n');
	} else {
		put_grade(&c->out, json_get(a.doc.root, "rows"));
		if (usable && weaker_only(json_get(a.doc.root, "rows")))
			(void)buf_puts(&c->out, "Boxes can be had here with --allow-weaker only: what is off above is missing.\n");
		else
			(void)buf_puts(&c->out, usable ? "Boxes can be had here.\n" : "No box can be had here");
		if (!usable && json_str(a.doc.root, "reason", NULL)) {
			(void)buf_puts(&c->out, ": ");
			put_text(&c->out, json_str(a.doc.root, "reason", NULL));
		}
		if (!usable)
			(void)buf_puts(&c->out, ".\n");
		(void)buf_puts(&c->out, "Last drill: ");
		if (json_get(a.doc.root, "drill"))
			put_drill(&c->out, json_get(a.doc.root, "drill"));
		else
			(void)buf_puts(&c->out, "none; `cubby drill` tries what is claimed of boxes");
		(void)buf_puts(&c->out, ".\n");
	}
	return usable ? EXIT_OK : EXIT_FAILED;
}

/* A setting is {"value":…,"source":…}; anything else is shown as it is. */
static void setting_row(struct table *t, const struct json *m)
{
	const struct json *value = m->type == JSON_OBJECT ? json_get(m, "value") : m;
	OWN_BUF text = BUF_INIT(4096);

	table_cell(t, m->key ? m->key : json_str(m, "key", NULL));
	if (!value)
		(void)buf_putc(&text, '-');
	else if (value->type == JSON_STRING)
		put_text(&text, value->str);
	else if (value->type == JSON_BOOL)
		(void)buf_puts(&text, value->num ? "yes" : "no");
	else if (value->type == JSON_INT)
		(void)buf_printf(&text, "%lld", (long long)value->num);
	table_ready(t, &text);
	table_cell(t, m->type == JSON_OBJECT ? json_str(m, "source", NULL) : NULL);
}

/* Nobody who only wants it gone wants it started first. */
static int stop_daemon(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	bool running;

	c->args.set |= O(NO_START);
	running = simple(c, "shutdown", &a, &e) == 0;
	if (!running && e.why != WHY_UNREACHABLE)
		return say_failed(c, &e);
	if (c->json)
		(void)buf_printf(&c->out, "{\"stopped\":%s}\n", running ? "true" : "false");
	else if (!running)
		say_note(c, "no daemon runs");
	else if (json_int(a.doc.root, "networks", 0) > 0)
		say_note(c, "%lld running box%s without network until the next cubby command", (long long)json_int(a.doc.root, "networks", 0),
			 json_int(a.doc.root, "networks", 0) == 1 ? " is" : "es are");
	return EXIT_OK;
}

int cmd_config(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *config;

	if (args_has(&c->args, O(STOP_DAEMON)))
		return stop_daemon(c);
	if (simple(c, "config", &a, &e) < 0)
		return say_failed(c, &e);
	config = json_get(a.doc.root, "config");
	if (c->json) {
		say_json(c, config);
		return EXIT_OK;
	}
	table_init(&t, 3);
	table_cell(&t, "SETTING");
	table_cell(&t, "VALUE");
	table_cell(&t, "FROM");
	for (const struct json *m = config ? config->child : NULL; m; m = m->next)
		setting_row(&t, m);
	table_print(&t, &c->out);
	return EXIT_OK;
}

/* The version of a daemon that runs; none is started to be asked. */
int cmd_version(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	const char *version = NULL;

	c->args.set |= O(NO_START);
	if (simple(c, "hello", &a, &e) == 0)
		version = json_str(a.doc.root, "version", NULL);
	if (c->json) {
		struct json_out o;

		json_out_init(&o, &c->out);
		json_put_obj(&o, NULL);
		json_put_str(&o, "version", CUBBY_VERSION);
		json_put_str(&o, "daemon", version);
		json_end_obj(&o);
		(void)buf_putc(&c->out, '\n');
		return EXIT_OK;
	}
	(void)buf_puts(&c->out, "cubby " CUBBY_VERSION "\n");
	if (version) {
		(void)buf_puts(&c->out, "cubbyd ");
		put_text(&c->out, version);
		(void)buf_puts(&c->out, " (running)\n");
	}
	return EXIT_OK;
}
