/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/verbs.h"

#define REMEMBERED 512	/* boxes whose processor time is kept between refreshes; the others show none */

/* Processor time at the last look, to tell what share was used since. */
struct look {
	struct {
		char id[24];
		int64_t cpu_us;
	} box[REMEMBERED];
	size_t n;
	int64_t at_us;
};

static volatile sig_atomic_t ended;

static void end(int sig)
{
	ended = sig;
}

static int64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t cpu_before(const struct look *l, const char *id)
{
	for (size_t i = 0; i < l->n; i++)
		if (strcmp(l->box[i].id, id) == 0)
			return l->box[i].cpu_us;
	return -1;
}

static void size_cell(struct table *t, int64_t v)
{
	OWN_BUF text = BUF_INIT(64);

	if (v >= 0)
		put_size(&text, (uint64_t)v);
	table_ready(t, &text);
}

static void row(struct table *t, const struct json *box, const struct look *before, struct look *after)
{
	const struct json *u = json_get(box, "usage");
	const char *id = json_str(box, "id", "");
	int64_t cpu = json_int(u, "cpu_us", -1), had = cpu_before(before, id), span = after->at_us - before->at_us;
	OWN_BUF share = BUF_INIT(64), pids = BUF_INIT(64), spent = BUF_INIT(64);

	if (after->n < REMEMBERED && strlen(id) < sizeof(after->box[0].id)) {
		memccpy(after->box[after->n].id, id, '\0', sizeof(after->box[0].id));
		after->box[after->n++].cpu_us = cpu;
	}
	table_cell(t, json_str(box, "name", NULL));
	table_cell(t, json_str(box, "state", NULL));
	if (cpu >= 0 && had >= 0 && cpu >= had && span > 0)
		(void)buf_printf(&share, "%lld%%", (long long)((cpu - had) * 100 / span));
	table_ready(t, &share);
	if (cpu >= 0)
		put_duration(&spent, (uint64_t)cpu / 1000);
	table_ready(t, &spent);
	size_cell(t, json_int(u, "memory", -1));
	size_cell(t, json_int(json_get(box, "limits"), "memory", 0) > 0 ? json_int(json_get(box, "limits"), "memory", -1) : -1);
	if (json_int(u, "pids", -1) >= 0)
		(void)buf_printf(&pids, "%lld", (long long)json_int(u, "pids", -1));
	table_ready(t, &pids);
	size_cell(t, json_int(u, "io_read", -1));
	size_cell(t, json_int(u, "io_write", -1));
}

static int look(struct cli *c, const struct look *before, struct look *after, struct buf *to, struct err *e)
{
	static const char *const head[] = { "NAME", "STATE", "CPU", "TIME", "MEMORY", "OF", "PIDS", "READ", "WRITTEN" };
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	const struct json *boxes;
	int r;

	table_init(&t, sizeof(head) / sizeof(head[0]));
	question_begin(&q, "top");
	if (args_has(&c->args, O(ALL)))
		json_put_bool(&q.json, "all", true);
	r = ask(c, &q, NULL, 0, &a, e);
	if (r < 0)
		return r;
	after->n = 0;
	after->at_us = now_us();
	boxes = json_get(a.doc.root, "boxes");
	if (c->json) {
		say_json(c, boxes);
		return 0;
	}
	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		table_cell(&t, head[i]);
	for (const struct json *b = boxes ? boxes->child : NULL; b; b = b->next)
		row(&t, b, before, after);
	table_print(&t, to);
	return 0;
}

static unsigned screen_rows(void)
{
	struct winsize w;

	return ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_row > 1 ? w.ws_row : 24;
}

/* Show the first rows of the table, each cleared to its end, nothing scrolled. */
static void paint(struct buf *table)
{
	OWN_BUF screen = BUF_INIT(1u << 20);
	unsigned left = screen_rows() - 1;
	char *s = table->data, *nl;

	(void)buf_puts(&screen, "\033[H");
	while (s && left-- > 0 && (nl = strchr(s, '\n'))) {
		(void)buf_put(&screen, s, (size_t)(nl - s));
		(void)buf_puts(&screen, "\033[K\r\n");
		s = nl + 1;
	}
	(void)buf_puts(&screen, "\033[J");
	if (!buf_error(&screen))
		(void)fd_write_all(1, screen.data, screen.len);
}

/* Returns when a key, a signal or the end of the terminal says so, or there is no answer. */
static int refresh(struct cli *c, uint64_t ms, struct err *e)
{
	static struct look a, b;
	struct look *before = &a, *after = &b, *swap;

	while (!ended) {
		OWN_BUF text = BUF_INIT(1u << 20);
		struct pollfd in = { .fd = 0, .events = POLLIN };
		char key[16];
		ssize_t n;
		int r = look(c, before, after, &text, e);

		if (r < 0)
			return r;
		paint(&text);
		swap = before;
		before = after;
		after = swap;
		r = poll(&in, 1, (int)ms);
		if (r <= 0)
			continue;
		n = read(0, key, sizeof(key));
		if (n == 0 || (n < 0 && errno != EINTR))
			break;
		/* Ctrl-C and Ctrl-D arrive as characters: the terminal does not make signals of them now. */
		if (n > 0 && (memchr(key, 'q', (size_t)n) || memchr(key, 3, (size_t)n) || memchr(key, 4, (size_t)n)))
			break;
	}
	return 0;
}

static int on_terminal(struct cli *c, uint64_t ms)
{
	struct sigaction sa = { .sa_handler = end };
	struct termios was, raw;
	struct err e = ERR_INIT;
	int r;

	if (tcgetattr(0, &was) < 0) {
		r = err_set(&e, -errno, "cannot set up the terminal");
		return say_failed(c, &e);
	}
	(void)sigaction(SIGTERM, &sa, NULL);
	(void)sigaction(SIGHUP, &sa, NULL);
	(void)sigaction(SIGINT, &sa, NULL);
	raw = was;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
	(void)tcsetattr(0, TCSANOW, &raw);
	/* The other screen, no cursor, and long lines cut instead of wrapped. */
	(void)fd_write_all(1, "\033[?1049h\033[?25l\033[?7l", 19);
	r = refresh(c, ms, &e);
	(void)fd_write_all(1, "\033[?7h\033[?25h\033[?1049l", 19);
	(void)tcsetattr(0, TCSANOW, &was);
	if (r < 0)
		return say_failed(c, &e);
	return ended ? 128 + (int)ended : EXIT_OK;
}

int cmd_top(struct cli *c)
{
	static struct look first, second;
	struct timespec pause = { .tv_nsec = 200000000 };
	OWN_BUF ignored = BUF_INIT(1u << 20);
	struct err e = ERR_INIT;
	uint64_t ms = 2000;

	if (c->args.val[OPT_INTERVAL] && opt_duration(&c->args, OPT_INTERVAL, &ms, &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (ms < 100 || ms > 3600000)
		ms = ms < 100 ? 100 : 3600000;
	if (!c->json && isatty(0) && isatty(1))
		return on_terminal(c, ms);
	/* A share of a processor is a matter of two moments. */
	if (!c->json) {
		if (look(c, &first, &second, &ignored, &e) < 0)
			return say_failed(c, &e);
		(void)nanosleep(&pause, NULL);
		if (look(c, &second, &first, &c->out, &e) < 0)
			return say_failed(c, &e);
		return EXIT_OK;
	}
	return look(c, &first, &second, &c->out, &e) < 0 ? say_failed(c, &e) : EXIT_OK;
}
