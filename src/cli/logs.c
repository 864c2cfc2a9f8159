/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/verbs.h"

#define FOLLOW_LINES 1000	/* how far back a look reaches; more than that many between two looks are lost */

/* How far we have shown: everything before `time`, and `seen` of the events with that very time. */
struct place {
	double time;
	size_t seen;
};

static void put_event(struct cli *c, const struct json *ev)
{
	char when[40] = "?";
	time_t t = (time_t)json_int(ev, "time", 0);
	struct tm tm;

	if (c->json) {
		say_json(c, ev);
		return;
	}
	if (localtime_r(&t, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	(void)buf_printf(&c->out, "%s  ", when);
	put_text(&c->out, json_str(ev, "box", NULL));
	(void)buf_puts(&c->out, "  ");
	put_text(&c->out, json_str(ev, "event", NULL));
	if (*json_str(ev, "text", "")) {
		(void)buf_puts(&c->out, "  ");
		put_text(&c->out, json_str(ev, "text", NULL));
	}
	(void)buf_putc(&c->out, '\n');
}

static double event_time(const struct json *ev)
{
	const struct json *t = json_get(ev, "time");

	return t && (t->type == JSON_INT || t->type == JSON_REAL) ? t->real : 0;
}

static int events(struct cli *c, uint64_t lines, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };

	question_begin(&q, "logs");
	if (c->args.nnames > 0)
		json_put_str(&q.json, "box", c->args.names[0]);
	json_put_int(&q.json, "lines", (int64_t)lines);
	return ask(c, &q, NULL, 0, ret, e);
}

static void show_new(struct cli *c, const struct json *list, struct place *p)
{
	size_t same = 0;
	double at = p->time;

	for (const struct json *ev = list ? list->child : NULL; ev; ev = ev->next) {
		double t = event_time(ev);

		if (t < at)
			continue;
		if (t == at && same++ < p->seen)
			continue;
		put_event(c, ev);
		if (t > p->time) {
			p->time = t;
			p->seen = 0;
		}
		if (t == p->time)
			p->seen++;
	}
}

static void remember(const struct json *list, struct place *p)
{
	for (const struct json *ev = list ? list->child : NULL; ev; ev = ev->next) {
		double t = event_time(ev);

		if (t > p->time) {
			p->time = t;
			p->seen = 0;
		}
		if (t == p->time)
			p->seen++;
	}
}

/*
 * The events at the place's time may be more than the first look showed: what is not shown counts as seen all the
 * same, because --lines asked for no more.
 */
static int follow(struct cli *c, struct place *p, struct err *e)
{
	struct timespec pause = { .tv_nsec = 300000000 };

	for (;;) {
		OWN_ANSWER a = ANSWER_INIT;
		int r;

		(void)nanosleep(&pause, NULL);
		r = events(c, FOLLOW_LINES, &a, e);
		if (r < 0)
			return r;
		show_new(c, json_get(a.doc.root, "events"), p);
		if (say_out(c) != EXIT_OK)
			return 0;
	}
}

int cmd_logs(struct cli *c)
{
	bool more = args_has(&c->args, O(FOLLOW));
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	struct place p = { 0 };
	uint64_t lines = 100;
	const struct json *list, *from;
	size_t skip;

	if ((c->args.nnames > 0 && box_word(c->args.names[0], &e) < 0) ||
	    (c->args.val[OPT_LINES] && opt_count(&c->args, OPT_LINES, 0, 1000000, &lines, &e) < 0)) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (events(c, more && lines < FOLLOW_LINES ? FOLLOW_LINES : lines, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "events");
	if (c->json && !more) {
		say_json(c, list);
		return EXIT_OK;
	}
	from = list ? list->child : NULL;
	skip = list && list->count > lines ? list->count - (size_t)lines : 0;
	for (; from && skip > 0; skip--)
		from = from->next;
	for (; from; from = from->next)
		put_event(c, from);
	if (!more)
		return EXIT_OK;
	remember(list, &p);
	if (say_out(c) != EXIT_OK)
		return EXIT_FAILED;
	if (follow(c, &p, &e) < 0)
		return say_failed(c, &e);
	return EXIT_OK;
}
