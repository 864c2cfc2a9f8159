/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/verbs.h"

/*
 * What is a file or directory of the caller is opened here, with the rights of the caller. Of an image in a directory ("oci:DIR:NAME")
 * a ':' ends the path, as skopeo has it.
 */
static int open_source(const char *source, int *ret_fd, struct err *e)
{
	static const struct { const char *kind; bool dir, image; } kinds[] = {
		{ "dir:", true, false }, { "tar:", false, false }, { "oci:", true, true }, { "oci-archive:", false, true },
	};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t n = strlen(kinds[i].kind), len;

		if (strncmp(source, kinds[i].kind, n) != 0)
			continue;
		len = kinds[i].image ? strcspn(source + n, ":") : strlen(source + n);
		if (len >= sizeof(path))
			return err_set(e, -ENAMETOOLONG, "cannot open '%.100s…'", source + n);
		memcpy(path, source + n, len);
		path[len] = '\0';
		*ret_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (kinds[i].dir ? O_DIRECTORY : 0));
		if (*ret_fd < 0)
			return err_set(e, -errno, "cannot open '%s'", path);
	}
	return 0;
}

/*
 * The daemon cancels a build when whoever waits for it goes away, so all that is left to do is to say so; only what a
 * handler may do, and then end as the signal wants it.
 */
static void interrupted(int sig)
{
	static const char text[] = "\ncubby: the build is cancelled (--no-wait would let it go on by itself)\n";
	ssize_t k = write(2, text, sizeof(text) - 1);

	(void)k;
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

int cmd_template_create(struct cli *c)
{
	struct sigaction sa = { .sa_handler = interrupted, .sa_flags = (int)SA_RESTART }, was;
	const char *name = c->args.names[0], *from = c->args.val[OPT_FROM], *source = c->args.nnames > 1 ? c->args.names[1] : from ? from : name;
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_FD fd = FD_NONE;
	struct err e = ERR_INIT;
	uint64_t limit = 0;
	bool handled;
	int r;

	if (from && c->args.nnames > 1) {
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "the source is named twice: '%s' and --from '%s'", source, from);
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	question_begin(&q, "template-create");
	json_put_str(&q.json, "name", name);
	json_put_str(&q.json, "source", source);
	if (c->args.val[OPT_TIME_LIMIT]) {
		if (opt_duration(&c->args, OPT_TIME_LIMIT, &limit, &e) < 0) {
			say_error(c, &e);
			return EXIT_ASKED_WRONG;
		}
		json_put_int(&q.json, "limit_ms", (int64_t)limit);
	}
	json_put_bool(&q.json, "wait", !args_has(&c->args, O(NO_WAIT)));
	if (open_source(source, &fd, &e) < 0)
		return say_failed(c, &e);
	handled = !args_has(&c->args, O(NO_WAIT)) && sigaction(SIGINT, NULL, &was) == 0 && was.sa_handler != SIG_IGN;
	if (handled)
		(void)sigaction(SIGINT, &sa, NULL);
	r = ask(c, &q, &fd, fd >= 0 ? 1 : 0, &a, &e);
	if (handled)
		(void)sigaction(SIGINT, &was, NULL);
	if (r < 0)
		return say_failed(c, &e);
	if (c->json) {
		say_json(c, json_get(a.doc.root, "template"));
	} else {
		put_text(&c->out, name);
		(void)buf_putc(&c->out, '\n');
	}
	return EXIT_OK;
}

static void template_row(struct table *t, const struct json *v)
{
	OWN_BUF size = BUF_INIT(64), made = BUF_INIT(64);
	int64_t bytes = json_int(v, "bytes", -1);

	table_cell(t, json_str(v, "name", NULL));
	table_cell(t, json_str(v, "state", NULL));
	table_cell(t, json_str(v, "source", NULL));
	if (bytes >= 0)
		put_size(&size, (uint64_t)bytes);
	table_ready(t, &size);
	put_ago(&made, json_int(v, "created", 0));
	table_ready(t, &made);
	table_cell(t, json_str(v, "error", NULL));
}

int cmd_template_ls(struct cli *c)
{
	static const char *const head[] = { "NAME", "STATE", "SOURCE", "SIZE", "MADE", "ERROR" };
	bool names = args_has(&c->args, O(NAMES) | O(QUIET));
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *list;

	table_init(&t, sizeof(head) / sizeof(head[0]));
	question_begin(&q, "template-ls");
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "templates");
	if (c->json) {
		say_json(c, list);
		return EXIT_OK;
	}
	for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
		table_cell(&t, head[i]);
	for (const struct json *v = list ? list->child : NULL; v; v = v->next) {
		if (names) {
			put_text(&c->out, json_str(v, "name", NULL));
			(void)buf_putc(&c->out, '\n');
		} else {
			template_row(&t, v);
		}
	}
	if (!names && list && list->count == 0)
		say_note(c, "there is no template; make one with: cubby template create host");
	else if (!names)
		table_print(&t, &c->out);
	return EXIT_OK;
}

static int about(struct cli *c, const char *op, struct answer *ret)
{
	OWN_QUESTION q = { 0 };
	struct err e = ERR_INIT;

	question_begin(&q, op);
	json_put_str(&q.json, "name", c->args.names[0]);
	return ask(c, &q, NULL, 0, ret, &e) < 0 ? say_failed(c, &e) : EXIT_OK;
}

/* A word as a shell would read it again. */
static void put_word(struct buf *to, const char *word)
{
	if (*word && strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-") == strlen(word)) {
		put_text(to, word);
		return;
	}
	(void)buf_putc(to, '\'');
	for (const char *p = word; *p; p += strcspn(p, "'")) {
		if (*p == '\'') {
			(void)buf_puts(to, "'\\''");
			p++;
		}
		text_escape(to, p, strcspn(p, "'"));
	}
	(void)buf_putc(to, '\'');
}

static void info_rows(struct table *t, const struct json *of)
{
	for (const struct json *m = of ? of->child : NULL; m; m = m->next) {
		OWN_BUF text = BUF_INIT(1u << 20);

		if (m->type == JSON_OBJECT) {
			info_rows(t, m);
		} else if (m->type == JSON_STRING && *m->str) {
			table_cell(t, m->key);
			table_cell(t, m->str);
		} else if (m->type == JSON_INT && m->num >= 0) {
			table_cell(t, m->key);
			if (strcmp(m->key, "bytes") == 0) {
				put_size(&text, (uint64_t)m->num);
			} else if (strcmp(m->key, "created") == 0) {
				put_ago(&text, m->num);
			} else {
				(void)buf_printf(&text, "%lld", (long long)m->num);
			}
			table_ready(t, &text);
		} else if (m->type == JSON_ARRAY && m->count > 0) {
			table_cell(t, m->key);
			for (const struct json *w = m->child; w; w = w->next) {
				if (w != m->child)
					(void)buf_putc(&text, ' ');
				put_word(&text, w->type == JSON_STRING ? w->str : "");
			}
			table_ready(t, &text);
		}
	}
}

int cmd_template_info(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	const struct json *v;
	int r = about(c, "template-info", &a);

	if (r != EXIT_OK)
		return r;
	v = json_get(a.doc.root, "template");
	if (c->json) {
		say_json(c, v);
		return EXIT_OK;
	}
	table_init(&t, 2);
	info_rows(&t, v);
	table_print(&t, &c->out);
	return EXIT_OK;
}

/* A log keeps its lines, but what package scripts print must not steer a terminal. */
int cmd_template_log(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	const char *s, *nl;
	int r = about(c, "template-log", &a);

	if (r != EXIT_OK)
		return r;
	if (c->json) {
		say_json(c, json_get(a.doc.root, "log"));
		return EXIT_OK;
	}
	for (s = json_str(a.doc.root, "log", ""); *s; s = nl ? nl + 1 : s + strlen(s)) {
		nl = strchr(s, '\n');
		text_escape(&c->out, s, nl ? (size_t)(nl - s) : strlen(s));
		(void)buf_putc(&c->out, '\n');
	}
	return EXIT_OK;
}

int cmd_template_cancel(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	int r = about(c, "template-cancel", &a);

	if (r != EXIT_OK)
		return r;
	if (c->json) {
		struct json_out o;

		json_out_init(&o, &c->out);
		json_put_obj(&o, NULL);
		json_put_str(&o, "name", c->args.names[0]);
		json_end_obj(&o);
	} else {
		put_text(&c->out, c->args.names[0]);
	}
	(void)buf_putc(&c->out, '\n');
	return EXIT_OK;
}
