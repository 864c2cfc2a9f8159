/* SPDX-License-Identifier: Apache-2.0 */
/* A port of a box on the host's loopback. */
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/verbs.h"

/* PORT or PORT:HOSTPORT. */
static int ports(const char *s, uint64_t *ret_port, uint64_t *ret_host, struct err *e)
{
	char word[32];
	char *colon;

	if (strlen(s) < sizeof(word)) {
		memccpy(word, s, '\0', sizeof(word));
		colon = strchr(word, ':');
		if (colon)
			*colon++ = '\0';
		if (parse_u64(word, 65535, ret_port) == 0 && *ret_port > 0) {
			*ret_host = *ret_port;
			if (!colon || (parse_u64(colon, 65535, ret_host) == 0 && *ret_host > 0))
				return colon ? 1 : 0;
		}
	}
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.40s' is not PORT or PORT:HOSTPORT, each 1 to 65535", s);
}

int cmd_expose(struct cli *c)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_TABLE t = { 0 };
	struct err e = ERR_INIT;
	const struct json *list;
	uint64_t port, host;
	bool off = args_has(&c->args, O(OFF));
	int r = box_word(c->args.names[0], &e);

	question_begin(&q, "expose");
	put_box(c, &q, c->args.names[0]);
	if (r >= 0 && c->args.nnames > 1) {
		r = ports(c->args.names[1], &port, &host, &e);
		if (r >= 0) {
			json_put_int(&q.json, "port", (int64_t)port);
			if (r == 1)
				json_put_int(&q.json, "host_port", (int64_t)host);
		}
	} else if (r >= 0 && off) {
		r = err_why(&e, WHY_BAD_REQUEST, -EINVAL, "--off needs the port: 'cubby expose %s PORT --off'", c->args.names[0]);
	}
	if (r < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (off)
		json_put_bool(&q.json, "off", true);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return say_failed(c, &e);
	list = json_get(a.doc.root, "exposed");
	if (c->json) {
		say_json(c, list);
		return EXIT_OK;
	}
	table_init(&t, 2);
	for (const struct json *m = list ? list->child : NULL; m; m = m->next) {
		OWN_BUF in = BUF_INIT(64), out = BUF_INIT(512);

		(void)buf_printf(&in, "%lld", (long long)json_int(m, "port", 0));
		(void)buf_printf(&out, "127.0.0.1:%lld", (long long)json_int(m, "host_port", 0));
		if (json_str(m, "problem", NULL)) {
			(void)buf_puts(&out, "  ");
			put_text(&out, json_str(m, "problem", NULL));
		}
		table_ready(&t, &in);
		table_ready(&t, &out);
	}
	if (!list || list->count == 0)
		say_note(c, "no port of '%s' is exposed", c->args.names[0]);
	else if (!c->quiet)
		table_print(&t, &c->out);
	return EXIT_OK;
}
