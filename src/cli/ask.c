/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chan/msg.h"

void question_begin(struct question *q, const char *op)
{
	q->text = (struct buf)BUF_INIT(MSG_MAX);
	json_out_init(&q->json, &q->text);
	json_put_obj(&q->json, NULL);
	json_put_int(&q->json, "v", MSG_VERSION);
	json_put_str(&q->json, "op", op);
}

void question_done(struct question *q)
{
	buf_done(&q->text);
}

void put_box(struct cli *c, struct question *q, const char *box)
{
	json_put_str(&q->json, "box", box);
	if (args_has(&c->args, O(ALL)))
		json_put_bool(&q->json, "all", true);
}

void answer_done(struct answer *a)
{
	json_doc_done(&a->doc);
	fd_close(&a->fds[0]);
	fd_close(&a->fds[1]);
}

/* Is the daemon gone, as opposed to talking nonsense? */
static bool gone(int r)
{
	return r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN;
}

/* One try. *ret_heard: the daemon said something, so asking again could do a thing twice. */
static int once(struct cli *c, const struct buf *text, const int *fds, size_t nfds, struct answer *ret, bool *ret_heard,
		struct err *e)
{
	int r = msg_send(c->daemon, text->data, text->len, fds, nfds);

	if (r < 0)
		return err_set(e, r, "cannot ask the daemon");
	for (;;) {
		OWN_ANSWER a = ANSWER_INIT;
		size_t n = 0;
		const char *progress;

		r = msg_recv(c->daemon, &a.doc, a.fds, 2, &n, e);
		if (r < 0)
			return gone(r) ? r : err_while(e, r, "the daemon's answer");
		if (r == 0)
			return err_why(e, WHY_UNREACHABLE, -ECONNRESET, "the daemon went away before it answered; try again");
		*ret_heard = true;
		progress = json_str(a.doc.root, "progress", NULL);
		if (progress) {
			say_progress(c, progress);
			continue;
		}
		say_progress(c, NULL);
		r = msg_error(a.doc.root, e);
		if (r < 0)
			return r;
		if (!json_bool(a.doc.root, "ok", false))
			return err_why(e, WHY_HOSTILE, -EBADMSG, "the daemon's answer is neither yes nor no");
		*ret = a;
		memset(&a, 0, sizeof(a));
		a.fds[0] = a.fds[1] = FD_NONE;
		return 0;
	}
}

static int hello(struct cli *c, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };
	bool heard = false;

	question_begin(&q, "hello");
	json_end_obj(&q.json);
	return buf_error(&q.text) ? err_set(e, buf_error(&q.text), "cannot ask the daemon") :
				    once(c, &q.text, NULL, 0, ret, &heard, e);
}

/* Does the system's daemon refuse this user as such, and not only this one wish? */
static bool not_admitted(struct cli *c)
{
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;

	return hello(c, &a, &e) < 0 && e.why == WHY_DENIED;
}

/*
 * A state directory was asked for, but the run directory decides which daemon answers: the two could belong to different
 * installations. Who names both in the environment means both; an option is compared in any case.
 */
static int same_state_dir(struct cli *c, struct err *e)
{
	const char *want = c->args.val[OPT_STATE_DIR], *run = c->args.val[OPT_RUN_DIR], *have;
	OWN_ANSWER a = ANSWER_INIT;
	bool said = want != NULL;
	int r;

	if (!want)
		want = getenv("CUBBY_STATE_DIR");
	if (!run)
		run = getenv("CUBBY_RUN_DIR");
	if (!want || !*want || (run && *run && !said))
		return 0;
	r = hello(c, &a, e);
	if (r < 0)
		return r;
	have = json_str(a.doc.root, "state_dir", "");
	if (strcmp(have, want) == 0)
		return 0;
	return err_why(e, WHY_BUSY, -EBUSY, "the daemon in %s looks after %s, not %s: name another --run-dir as well",
		       json_str(a.doc.root, "run_dir", "its run directory"), have, want);
}

/* A daemon that is about to leave says so; the next one can be started as soon as it is gone. */
static bool leaving(const struct err *e)
{
	return e->why == WHY_BUSY && e->code == -EAGAIN;
}

#define LEAVING_TRIES 100
static const struct timespec leaving_pause = { .tv_nsec = 20000000 };

int ask(struct cli *c, struct question *q, const int *fds, size_t nfds, struct answer *ret, struct err *e)
{
	bool again = false;
	int tries = 0, r;

	json_end_obj(&q->json);
	if (buf_error(&q->text))
		return err_set(e, buf_error(&q->text), "the request is too large");
	for (;;) {
		bool heard = false, fresh = c->daemon < 0;

		r = reach(c, e);
		if (r < 0)
			return r;
		if (!c->asked_dirs) {
			r = same_state_dir(c, e);
			if (gone(r) && !again) {	/* killed as we came: the next one answers */
				again = true;
				fd_close(&c->daemon);
				continue;
			}
			if (r < 0)
				return r;
			c->asked_dirs = true;
		}
		r = once(c, &q->text, fds, nfds, ret, &heard, e);
		if (r == 0)
			return 0;
		say_progress(c, NULL);
		if (heard && e->why == WHY_DENIED && fresh && !c->own && geteuid() != 0 && !c->args.val[OPT_RUN_DIR] &&
		    !getenv("CUBBY_RUN_DIR")) {
			struct err kept = *e;

			if (!not_admitted(c)) {
				*e = kept;
				return r;
			}
			c->own = true;
		} else if (gone(r) && !heard && !again) {
			again = true;
		} else if (heard && leaving(e) && tries++ < LEAVING_TRIES) {
			(void)nanosleep(&leaving_pause, NULL);
		} else {
			/* An answer we could not read leaves the connection in an unknown state. */
			if (gone(r) || r == -EBADMSG)
				fd_close(&c->daemon);
			return r;
		}
		fd_close(&c->daemon);
	}
}
