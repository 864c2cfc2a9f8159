/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/utf8.h"

/* Standard error is best effort: there is nobody left to complain to. */
static void to_stderr(struct buf *line)
{
	if (!buf_error(line))
		(void)fd_write_all(2, line->data, line->len);
}

void say_error(struct cli *c, const struct err *e)
{
	OWN_BUF line = BUF_INIT(4 * ERR_TEXT_MAX + 64);

	say_progress(c, NULL);
	(void)buf_puts(&line, "cubby: ");
	text_escape(&line, e->text, strlen(e->text));
	(void)buf_putc(&line, '\n');
	to_stderr(&line);
	if (c->json) {
		struct json_out o;

		json_out_init(&o, &c->out);
		json_put_obj(&o, NULL);
		json_put_str(&o, "error", e->text);
		json_put_str(&o, "why", why_word(e->why));
		json_end_obj(&o);
		(void)buf_putc(&c->out, '\n');
	}
}

#define NOTE_MAX 8192u

void say_note(struct cli *c, const char *fmt, ...)
{
	OWN_BUF text = BUF_INIT(NOTE_MAX), line = BUF_INIT((size_t)NOTE_MAX * 4);
	va_list ap;

	if (c->quiet)
		return;
	say_progress(c, NULL);
	va_start(ap, fmt);
	(void)buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (buf_error(&text))
		return;
	(void)buf_puts(&line, "cubby: ");
	text_escape(&line, text.data, text.len);
	(void)buf_putc(&line, '\n');
	to_stderr(&line);
}

void say_progress(struct cli *c, const char *text)
{
	OWN_BUF line = BUF_INIT(4096);

	if (!text && !c->progress_shown)
		return;
	if (c->quiet || !isatty(2))
		return;
	(void)buf_puts(&line, "\r\033[K");
	if (text)
		text_escape(&line, text, strnlen(text, 400));
	to_stderr(&line);
	c->progress_shown = text != NULL;
}

int say_failed(struct cli *c, const struct err *e)
{
	say_error(c, e);
	return EXIT_FAILED;
}

bool say_sure(struct cli *c, const char *what)
{
	OWN_BUF line = BUF_INIT(65536);
	char answer[16];
	ssize_t n;

	if (args_has(&c->args, O(FORCE)))
		return true;
	if (!isatty(0) || !isatty(2)) {
		struct err e = ERR_INIT;

		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "this would %s: say --force, there is no terminal to ask on", what);
		say_error(c, &e);
		return false;
	}
	say_progress(c, NULL);
	text_escape(&line, what, strlen(what));
	if (line.len > 0 && line.data[0] >= 'a' && line.data[0] <= 'z')
		line.data[0] = (char)(line.data[0] - 'a' + 'A');
	(void)buf_puts(&line, "? [y/N] ");
	to_stderr(&line);
	do
		n = read(0, answer, sizeof(answer) - 1);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return false;
	answer[n] = '\0';
	return answer[0] == 'y' || answer[0] == 'Y';
}

int say_out(struct cli *c)
{
	struct err e = ERR_INIT;
	int r = buf_error(&c->out);

	if (r == 0 && c->out.len > 0)
		r = fd_write_all(1, c->out.data, c->out.len);
	buf_reset(&c->out);
	if (r == 0)
		return EXIT_OK;
	c->json = false;
	/* A reader that has seen enough (head, less) is no news. */
	if (r != -EPIPE) {
		(void)err_set(&e, r, "cannot write the output");
		say_error(c, &e);
	}
	return EXIT_FAILED;
}

void say_json(struct cli *c, const struct json *value)
{
	struct json_out o;

	json_out_init(&o, &c->out);
	if (value)
		json_put_value(&o, NULL, value);
	else
		json_put_null(&o, NULL);
	(void)buf_putc(&c->out, '\n');
}

void put_text(struct buf *to, const char *s)
{
	if (!s || !*s)
		(void)buf_putc(to, '-');
	else
		text_escape(to, s, strlen(s));
}

void put_size(struct buf *to, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t tenths;
	unsigned u = 0;

	/* Round in tenths of the next unit, so that 1023.99 KiB does not become "1024.0 KiB". */
	while (u + 1 < sizeof(units) / sizeof(units[0]) && bytes >> (10 * (u + 1)) != 0)
		u++;
	tenths = u == 0 ? bytes * 10 : (bytes >> (10 * (u - 1))) * 10 / 1024;
	if (tenths % 10 != 0 && tenths < 1000)
		(void)buf_printf(to, "%llu.%llu %s", (unsigned long long)(tenths / 10), (unsigned long long)(tenths % 10), units[u]);
	else
		(void)buf_printf(to, "%llu %s", (unsigned long long)(tenths / 10), units[u]);
}

void put_duration(struct buf *to, uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		(void)buf_printf(to, "%llu ms", (unsigned long long)ms);
	else if (s < 60)
		(void)buf_printf(to, "%llu s", (unsigned long long)s);
	else if (s < 3600)
		(void)buf_printf(to, "%llu min", (unsigned long long)(s / 60));
	else if (s < 86400 && s / 60 % 60 != 0)
		(void)buf_printf(to, "%llu h %llu min", (unsigned long long)(s / 3600), (unsigned long long)(s / 60 % 60));
	else if (s < 86400)
		(void)buf_printf(to, "%llu h", (unsigned long long)(s / 3600));
	else
		(void)buf_printf(to, "%llu d", (unsigned long long)(s / 86400));
}

void put_cpus(struct buf *to, uint64_t milli)
{
	(void)buf_printf(to, "%llu", (unsigned long long)(milli / 1000));
	milli %= 1000;
	if (milli == 0)
		return;
	if (milli % 100 == 0)
		(void)buf_printf(to, ".%llu", (unsigned long long)(milli / 100));
	else if (milli % 10 == 0)
		(void)buf_printf(to, ".%02llu", (unsigned long long)(milli / 10));
	else
		(void)buf_printf(to, ".%03llu", (unsigned long long)milli);
}

void table_init(struct table *t, unsigned columns)
{
	*t = (struct table){ .cells = BUF_INIT(16u << 20), .columns = columns };
}

void table_done(struct table *t)
{
	buf_done(&t->cells);
}

void table_cell(struct table *t, const char *s)
{
	put_text(&t->cells, s);
	(void)buf_putc(&t->cells, '\0');
	t->n++;
}

void table_ready(struct table *t, const struct buf *made)
{
	(void)buf_puts(&t->cells, made->data && made->len ? made->data : "-");
	(void)buf_putc(&t->cells, '\0');
	t->n++;
}

/* Columns on the screen: one for each character. Marks that combine make a row ragged, nothing worse. */
static size_t width(const char *s)
{
	size_t w = 0;

	for (; *s; s++)
		if (((unsigned char)*s & 0xC0) != 0x80)
			w++;
	return w;
}

#define COLUMNS_MAX 16

void table_print(struct table *t, struct buf *to)
{
	size_t widths[COLUMNS_MAX] = { 0 };
	const char *s = t->cells.data;

	if (buf_error(&t->cells)) {
		to->failed = buf_error(&t->cells);
		return;
	}
	for (unsigned i = 0; i < t->n; i++, s += strlen(s) + 1) {
		size_t w = width(s);

		if (w > widths[i % t->columns])
			widths[i % t->columns] = w;
	}
	s = t->cells.data;
	for (unsigned i = 0; i < t->n; i++, s += strlen(s) + 1) {
		bool last = i % t->columns == t->columns - 1;

		(void)buf_puts(to, s);
		for (size_t w = width(s); !last && w < widths[i % t->columns] + 2; w++)
			(void)buf_putc(to, ' ');
		if (last)
			(void)buf_putc(to, '\n');
	}
}

int64_t now_seconds(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec;
}

int box_word(const char *s, struct err *e)
{
	if (name_ok(s))
		return 0;
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.100s' is not a name of a box: %s", s, NAME_RULE);
}

int duration_word(const char *what, const char *s, uint64_t *ret_ms, struct err *e)
{
	int r;

	if (strcmp(s, "off") == 0) {
		*ret_ms = 0;
		return 0;
	}
	r = parse_duration(s, ret_ms);
	if (r == -ERANGE)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: '%s' is too long", what, s);
	if (r < 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: '%s' is not a duration such as 90s, 10m or 1h30m, or off", what, s);
	return 0;
}

int opt_duration(const struct args *a, enum opt opt, uint64_t *ret_ms, struct err *e)
{
	char what[40];

	(void)snprintf(what, sizeof(what), "--%s", options[opt].word);
	return duration_word(what, a->val[opt], ret_ms, e);
}

int opt_count(const struct args *a, enum opt opt, uint64_t least, uint64_t most, uint64_t *ret, struct err *e)
{
	uint64_t v;
	int r = parse_u64(a->val[opt], UINT64_MAX, &v);

	if (r == 0 && v >= least && v <= most) {
		*ret = v;
		return 0;
	}
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--%s: '%s' is not a number from %llu to %llu", options[opt].word, a->val[opt],
		       (unsigned long long)least, (unsigned long long)most);
}
