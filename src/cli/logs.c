/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/verbs.h"

#define FOLLOW_LINES 10000	/* of one look; more than that many between two looks are lost */

static double event_time(const struct json *ev)
{
	const struct json *t = json_get(ev, "time");

	return t && (t->type == JSON_INT || t->type == JSON_REAL) ? t->real : 0;
}

static void put_event(struct cli *c, const struct json *ev)
{
	char when[40] = "?";
	double at = event_time(ev);
	time_t t = at > 0 && at < 1e11 ? (time_t)at : 0;
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

/* after: the number of the last event that is known; 0: none is. */
static int events(struct cli *c, uint64_t lines, int64_t after, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };

	question_begin(&q, "logs");
	if (c->args.nnames > 0)
		put_box(c, &q, c->args.names[0]);
	else if (args_has(&c->args, O(ALL)))
		json_put_bool(&q.json, "all", true);
	json_put_int(&q.json, "lines", (int64_t)lines);
	if (after > 0)
		json_put_int(&q.json, "after", after);
	return ask(c, &q, NULL, 0, ret, e);
}

/* Returns the number of the newest event. */
static int64_t show(struct cli *c, const struct json *list, int64_t after)
{
	for (const struct json *ev = list ? list->child : NULL; ev; ev = ev->next) {
		int64_t n = json_int(ev, "n", 0);

		put_event(c, ev);
		if (n > after)
			after = n;
	}
	return after;
}

static int follow(struct cli *c, int64_t after, struct err *e)
{
	struct timespec pause = { .tv_nsec = 300000000 };

	for (;;) {
		OWN_ANSWER a = ANSWER_INIT;
		int r;

		if (say_out(c) != EXIT_OK)
			return 0;
		(void)nanosleep(&pause, NULL);
		r = events(c, FOLLOW_LINES, after, &a, e);
		if (r < 0)
			return r;
		after = show(c, json_get(a.doc.root, "events"), after);
	}
}

int cmd_logs(struct cli *c)
{
	bool more = args_has(&c->args, O(FOLLOW));
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	uint64_t lines = 100;
	int64_t after;

	if ((c->args.nnames > 0 && box_word(c->args.names[0], &e) < 0) ||
	    (c->args.val[OPT_LINES] && opt_count(&c->args, OPT_LINES, 0, 100000, &lines, &e) < 0)) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	/* Following needs the number of the last event also when none is to be shown. */
	if (events(c, more && lines == 0 ? 1 : lines, 0, &a, &e) < 0)
		return say_failed(c, &e);
	if (c->json && !more) {
		say_json(c, json_get(a.doc.root, "events"));
		return EXIT_OK;
	}
	after = show(c, json_get(a.doc.root, "events"), 0);
	if (more && lines == 0)
		buf_reset(&c->out);
	if (!more)
		return EXIT_OK;
	return follow(c, after, &e) < 0 ? say_failed(c, &e) : EXIT_OK;
}
