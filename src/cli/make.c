/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/verbs.h"

static void close_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

/* Who passes --allow-weaker hears each time what that cost. */
void note_weak(struct cli *c, const struct json *box)
{
	const struct json *weak = json_get(box, "weak");
	OWN_BUF list = BUF_INIT(4096);

	for (const struct json *w = weak ? weak->child : NULL; w; w = w->next)
		if (w->type == JSON_STRING)
			(void)buf_printf(&list, "%s%s", list.len ? ", " : "", w->str);
	if (list.len > 0 && !buf_error(&list))
		say_note(c, "box '%s' is weaker than it should be: %s; see `cubby info %s`", json_str(box, "name", "?"), list.data,
			 json_str(box, "name", "?"));
}

static void note_new(struct cli *c, const struct json *box)
{
	const char *name = json_str(box, "name", "?");
	int64_t memory = json_int(json_get(box, "limits"), "memory", 0);
	OWN_BUF size = BUF_INIT(64);

	if (!isatty(2))
		return;
	if (memory > 0)
		put_size(&size, (uint64_t)memory);
	say_note(c, "box '%s' runs (template %s, %s%s, no network); get in with: cubby shell %s", name,
		 json_str(box, "template", "?"), memory > 0 ? size.data : "no limit of", " memory", name);
}

int cmd_new(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	struct env env = { 0 };
	int fds[FD_PASS_MAX];
	size_t nfds = 0;
	const struct json *box;
	int r = 0;

	question_begin(&q, "new");
	if (c->args.nnames > 0) {
		r = box_word(c->args.names[0], &e);
		json_put_str(&q.json, "name", c->args.names[0]);
	}
	if (r == 0)
		r = put_spec(&c->args, &q.json, fds, &nfds, &e);
	if (r == 0)
		r = env_given(&c->args, &env, &e);
	if (r == 0 && env.n > 0) {
		json_put_arr(&q.json, "env");
		for (size_t i = 0; i < env.n; i++)
			json_put_str(&q.json, NULL, env.vars[i]);
		json_end_arr(&q.json);
	}
	if (r < 0) {
		say_error(c, &e);
		r = e.why == WHY_BAD_REQUEST || e.why == WHY_UNSUPPORTED ? EXIT_ASKED_WRONG : EXIT_FAILED;
	} else if (ask(c, &q, fds, nfds, &a, &e) < 0) {
		r = say_failed(c, &e);
	}
	close_fds(fds, nfds);
	env_done(&env);
	if (r != 0)
		return r;
	box = json_get(a.doc.root, "box");
	note_weak(c, box);
	if (c->json) {
		say_json(c, box);
	} else {
		put_text(&c->out, json_str(box, "name", NULL));
		(void)buf_putc(&c->out, '\n');
		note_new(c, box);
	}
	return EXIT_OK;
}
