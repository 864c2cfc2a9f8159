/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/verbs.h"

/* "5 min ago" */
void put_ago(struct buf *to, int64_t then)
{
	int64_t ago = now_seconds() - then;

	if (then <= 0) {
		(void)buf_putc(to, '-');
		return;
	}
	if (ago <= 0) {
		(void)buf_puts(to, "just now");
		return;
	}
	put_duration(to, (uint64_t)ago * 1000);
	(void)buf_puts(to, " ago");
}

/* What is worth knowing beside the state: why it is broken, when it goes, that it is weak. */
static void put_notes(struct buf *to, const struct json *box)
{
	const char *why = json_str(box, "why", NULL);
	static const char *const problems[] = { "net_problem", "expose_problem" };
	int64_t expires = json_int(box, "expires", 0);
	const struct json *weak = json_get(box, "weak");
	OWN_BUF all = BUF_INIT(8192);

	if (why && *why)
		text_escape(&all, why, strnlen(why, 300));
	for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
		const char *text = json_str(box, problems[i], "");

		if (!*text)
			continue;
		(void)buf_puts(&all, all.len ? "; " : "");
		text_escape(&all, text, strnlen(text, 300));
	}
	if (expires > 0) {
		int64_t left = expires - now_seconds();

		(void)buf_puts(&all, all.len ? "; removed in " : "removed in ");
		put_duration(&all, left > 0 ? (uint64_t)left * 1000 : 0);
	}
	if (weak && weak->count > 0)
		(void)buf_puts(&all, all.len ? "; weaker" : "weaker");
	(void)buf_puts(to, all.len ? all.data : "-");
}

static void box_row(struct table *t, const struct json *box, bool all)
{
	OWN_BUF owner = BUF_INIT(32), age = BUF_INIT(64), notes = BUF_INIT(16384);

	table_cell(t, json_str(box, "name", NULL));
	table_cell(t, json_str(box, "state", NULL));
	table_cell(t, json_str(box, "template", NULL));
	if (all) {
		(void)buf_printf(&owner, "%lld", (long long)json_int(box, "owner", -1));
		table_ready(t, &owner);
	}
	put_ago(&age, json_int(box, "created", 0));
	table_ready(t, &age);
	put_notes(&notes, box);
	table_ready(t, &notes);
}

int cmd_ls(struct cli *c)
{
	bool all = args_has(&c->args, O(ALL)), names = args_has(&c->args, O(NAMES) | O(QUIET));
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *boxes;

	table_init(&t, all ? 6 : 5);
	question_begin(&q, "ls");
	if (all)
		json_put_bool(&q.json, "all", true);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	boxes = json_get(a.doc.root, "boxes");
	if (c->json) {
		say_json(c, boxes);
		return EXIT_OK;
	}
	if (!names) {
		table_cell(&t, "NAME");
		table_cell(&t, "STATE");
		table_cell(&t, "TEMPLATE");
		if (all)
			table_cell(&t, "USER");
		table_cell(&t, "MADE");
		table_cell(&t, "NOTES");
	}
	for (const struct json *b = boxes ? boxes->child : NULL; b; b = b->next) {
		if (names) {
			put_text(&c->out, json_str(b, "name", NULL));
			(void)buf_putc(&c->out, '\n');
		} else {
			box_row(&t, b, all);
		}
	}
	if (!names && boxes && boxes->count == 0)
		say_note(c, "there is no box; make one with: cubby new");
	else
		table_print(&t, &c->out);
	return EXIT_OK;
}

static bool in_colour(void)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");

	return (!no || !*no) && term && strcmp(term, "dumb") != 0 && isatty(1);
}

static const char *level_mark(const char *level)
{
	static const char *const plain[] = { "on  ", "weak", "off " };
	static const char *const coloured[] = { "\033[32mon\033[0m  ", "\033[33mweak\033[0m", "\033[31moff\033[0m " };
	const char *const *marks = in_colour() ? coloured : plain;

	if (strcmp(level, "on") == 0)
		return marks[0];
	return strcmp(level, "weak") == 0 ? marks[1] : marks[2];
}

void put_grade(struct buf *to, const struct json *rows)
{
	for (const struct json *row = rows ? rows->child : NULL; row; row = row->next) {
		const char *fix = json_str(row, "fix", NULL);

		(void)buf_printf(to, "  %s  ", level_mark(json_str(row, "level", "off")));
		put_text(to, json_str(row, "what", json_str(row, "id", NULL)));
		(void)buf_putc(to, '\n');
		if (fix && *fix) {
			(void)buf_puts(to, "        mend it: ");
			put_text(to, fix);
			(void)buf_putc(to, '\n');
		}
	}
}

static void text_row(struct table *t, const char *word, const char *text)
{
	if (!text)
		return;
	table_cell(t, word);
	table_cell(t, text);
}

static void time_row(struct table *t, const char *word, int64_t then)
{
	OWN_BUF text = BUF_INIT(64);

	if (then <= 0)
		return;
	put_ago(&text, then);
	table_cell(t, word);
	table_ready(t, &text);
}

static void usage_row(struct table *t, const struct json *usage, const char *word, const char *key, char kind)
{
	const struct json *v = json_get(usage, key);
	OWN_BUF text = BUF_INIT(64);

	if (!v || v->type != JSON_INT || v->num < 0)
		return;
	if (kind == 's')
		put_size(&text, (uint64_t)v->num);
	else if (kind == 'u')
		put_duration(&text, (uint64_t)v->num / 1000);
	else
		(void)buf_printf(&text, "%lld", (long long)v->num);
	table_cell(t, word);
	table_ready(t, &text);
}

static void put_mount_list(struct buf *to, const struct json *mounts)
{
	if (!mounts || mounts->count == 0)
		return;
	(void)buf_puts(to, "\nmounts:\n");
	for (const struct json *m = mounts->child; m; m = m->next) {
		(void)buf_puts(to, "  ");
		put_text(to, json_str(m, "at", NULL));
		(void)buf_puts(to, json_bool(m, "ro", false) ? " (read-only)" : json_bool(m, "cow", false) ? " (copy on write)" : "");
		if (json_str(m, "source", NULL)) {
			(void)buf_puts(to, " is ");
			put_text(to, json_str(m, "source", NULL));
		}
		(void)buf_putc(to, '\n');
	}
}

static void section(struct buf *to, const char *word, struct table *t)
{
	OWN_BUF rows = BUF_INIT(1u << 20);

	if (t->n == 0)
		return;
	(void)buf_printf(to, "\n%s:\n", word);
	table_print(t, &rows);
	for (char *s = rows.data, *next; s && *s; s = next) {
		next = strchr(s, '\n');
		if (!next)
			break;
		*next++ = '\0';
		(void)buf_printf(to, "  %s\n", s);
	}
}

static void put_info(struct buf *to, const struct json *box)
{
	const struct json *usage = json_get(box, "usage"), *grade = json_get(box, "grade");
	OWN_TABLE head = { 0 }, limits = { 0 }, used = { 0 };
	OWN_BUF pid = BUF_INIT(32), ends = BUF_INIT(64), idle = BUF_INIT(64);

	table_init(&head, 2);
	text_row(&head, "name", json_str(box, "name", NULL));
	text_row(&head, "id", json_str(box, "id", NULL));
	text_row(&head, "state", json_str(box, "state", NULL));
	text_row(&head, "why", json_str(box, "why", NULL));
	text_row(&head, "template", json_str(box, "template", NULL));
	text_row(&head, "engine", json_str(box, "engine", NULL));
	text_row(&head, "user", json_str(box, "user", NULL));
	text_row(&head, "workdir", json_str(box, "workdir", NULL));
	text_row(&head, "network", json_str(box, "net", NULL));
	text_row(&head, "network problem", json_str(box, "net_problem", NULL));
	text_row(&head, "exposed port", json_str(box, "expose_problem", NULL));
	text_row(&head, "also public", json_str(box, "net_lab_public", NULL));
	if (json_bool(box, "nesting", false))
		text_row(&head, "nesting", "allowed");
	time_row(&head, "made", json_int(box, "created", 0));
	time_row(&head, "started", json_int(box, "started", 0));
	if (json_int(box, "expires", 0) > 0) {
		int64_t left = json_int(box, "expires", 0) - now_seconds();

		(void)buf_puts(&ends, "in ");
		put_duration(&ends, left > 0 ? (uint64_t)left * 1000 : 0);
		table_cell(&head, "removed");
		table_ready(&head, &ends);
	}
	if (json_int(box, "idle_ms", 0) > 0) {
		(void)buf_puts(&idle, "when idle for ");
		put_duration(&idle, (uint64_t)json_int(box, "idle_ms", 0));
		table_cell(&head, "stopped");
		table_ready(&head, &idle);
	}
	if (json_int(box, "pid", 0) > 0) {
		(void)buf_printf(&pid, "%lld", (long long)json_int(box, "pid", 0));
		table_cell(&head, "pid");
		table_ready(&head, &pid);
	}
	table_print(&head, to);

	table_init(&limits, 2);
	put_limits_table(&limits, json_get(box, "limits"));
	section(to, "limits", &limits);

	table_init(&used, 2);
	usage_row(&used, usage, "memory", "memory", 's');
	usage_row(&used, usage, "memory, most so far", "memory_peak", 's');
	usage_row(&used, usage, "swap", "swap", 's');
	usage_row(&used, usage, "processes", "pids", 'n');
	usage_row(&used, usage, "processor time", "cpu_us", 'u');
	usage_row(&used, usage, "read", "io_read", 's');
	usage_row(&used, usage, "written", "io_write", 's');
	usage_row(&used, usage, "killed for memory", "oom_kills", 'n');
	usage_row(&used, usage, "forks refused", "pids_denied", 'n');
	section(to, "usage", &used);

	put_mount_list(to, json_get(box, "mounts"));
	if (json_get(box, "drill")) {
		(void)buf_puts(to, "\nlast drill: ");
		put_drill(to, json_get(box, "drill"));
		(void)buf_putc(to, '\n');
	}
	if (grade && grade->count > 0) {
		(void)buf_puts(to, "\nwhat isolates it:\n");
		put_grade(to, grade);
	}
}

int cmd_info(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;

	if (box_word(c->args.names[0], &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	question_begin(&q, "info");
	put_box(c, &q, c->args.names[0]);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json)
		say_json(c, json_get(a.doc.root, "box"));
	else
		put_info(&c->out, json_get(a.doc.root, "box"));
	return EXIT_OK;
}
