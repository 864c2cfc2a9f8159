/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands in boxes. The path of `run` and `exec` is short on purpose: connect, one question, one call. Nothing else is
 * read, asked or allocated before the command runs.
 */
#include "chan/call.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/verbs.h"

/* One call, from the daemon's answer on. */
struct call {
	const char *box;	/* as the person named it, or its real name */
	const char *user, *workdir;
	char **box_env;		/* NULL-terminated or NULL; owned, the strings aren't */
	int64_t mark;
	char *const *argv;
	struct env given;	/* --env and --env-file, read before anything is asked */
	uint32_t pid;		/* of the command, as the box counts; known of one that detaches */
};

/* Cubby failed before or beside the command. */
static int no_box(struct cli *c, const struct err *e)
{
	bool json = args_has(&c->args, O(JSON));

	say_error(c, e);
	if (json) {
		OWN_BUF text = BUF_INIT(16384);
		struct json_out o;

		json_out_init(&o, &text);
		json_put_obj(&o, NULL);
		json_put_null(&o, "exit");
		json_put_str(&o, "error", e->text);
		json_put_str(&o, "why", why_word(e->why));
		json_end_obj(&o);
		(void)buf_putc(&text, '\n');
		if (!buf_error(&text))
			(void)fd_write_all(2, text.data, text.len);
	}
	return EXIT_NO_BOX;
}

static bool wants_terminal(const struct args *a)
{
	if (args_has(a, O(TTY)))
		return true;
	if (args_has(a, O(NO_TTY) | O(NO_STDIN) | O(DETACH)))
		return false;
	return isatty(0) && isatty(1);
}

static int from_answer(const struct json *root, struct call *call, struct err *e)
{
	const struct json *env = json_get(root, "env");
	size_t n = 0;

	call->mark = json_int(root, "mark", 0);
	call->user = json_str(root, "user", call->user);
	call->workdir = json_str(root, "workdir", call->workdir);
	if (!env || env->type != JSON_ARRAY || env->count == 0)
		return 0;
	call->box_env = calloc(env->count + 1, sizeof(char *));
	if (!call->box_env)
		return err_set(e, -ENOMEM, "cannot make the environment");
	for (const struct json *m = env->child; m; m = m->next)
		if (m->type == JSON_STRING)
			call->box_env[n++] = (char *)m->str;
	return 0;
}

/* What the daemon saw happen to the box since the call began; false when it knows nothing. */
static bool ask_why(struct cli *c, const struct call *call, struct answer *ret)
{
	OWN_QUESTION q = { 0 };
	struct err e = ERR_INIT;

	question_begin(&q, "why");
	put_box(c, &q, call->box);
	json_put_int(&q.json, "mark", call->mark);
	return ask(c, &q, NULL, 0, ret, &e) == 0 && json_str(ret->doc.root, "end", NULL);
}

/*
 * A process lets go of its connections before its parent can see that it ended, so the daemon may know a moment later than
 * we do. Not for long: an init that only hung up is alive, and nothing will come.
 */
static bool ask_why_lost(struct cli *c, const struct call *call, struct answer *ret)
{
	const struct timespec pause = { .tv_nsec = 10000000 };

	for (int i = 0; i < 100; i++) {
		if (ask_why(c, call, ret))
			return true;
		answer_done(ret);
		*ret = (struct answer)ANSWER_INIT;
		(void)nanosleep(&pause, NULL);
	}
	return false;
}

/* Signals that mean that the program is broken or was broken; the others are somebody's wish. */
static const char *crash(uint32_t sig)
{
	switch (sig) {
	case SIGKILL:
		return "killed (signal KILL)";
	case SIGSEGV:
		return "crashed (signal SEGV)";
	case SIGBUS:
		return "crashed (signal BUS)";
	case SIGABRT:
		return "aborted (signal ABRT)";
	case SIGILL:
		return "crashed (signal ILL)";
	case SIGFPE:
		return "crashed (signal FPE)";
	case SIGSYS:
		return "used a system call that boxes don't have (signal SYS)";
	case SIGXCPU:
		return "used up its processor time (signal XCPU)";
	case SIGXFSZ:
		return "made too large a file (signal XFSZ)";
	default:
		return NULL;
	}
}

static const char *plain_end(const struct box_exit *x)
{
	switch (x->kind) {
	case BOX_EXITED:
		return "exited";
	case BOX_SIGNALED:
		return "signaled";
	case BOX_TIMED_OUT:
		return "timed-out";
	case BOX_NOT_STARTED:
		return "not-started";
	}
	return "signaled";
}

static void json_end(int status, const struct box_exit *x, const char *end, const char *why, uint32_t pid)
{
	OWN_BUF text = BUF_INIT(16384);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	if (x->kind == BOX_EXITED && pid == 0)
		json_put_int(&o, "exit", x->status);
	else
		json_put_null(&o, "exit");
	if (x->kind == BOX_SIGNALED)
		json_put_int(&o, "signal", x->status);
	else
		json_put_null(&o, "signal");
	json_put_str(&o, "end", end);
	json_put_str(&o, "text", why);
	if (pid > 0)
		json_put_int(&o, "pid", pid);
	json_put_int(&o, "status", status);
	json_put_int(&o, "wall_ms", (int64_t)(x->wall_us / 1000));
	json_put_int(&o, "cpu_ms", (int64_t)(x->cpu_us / 1000));
	json_put_int(&o, "max_rss", (int64_t)x->max_rss_kib * 1024);
	json_end_obj(&o);
	(void)buf_putc(&text, '\n');
	if (!buf_error(&text))
		(void)fd_write_all(2, text.data, text.len);
}

static int status_of(const struct box_exit *x)
{
	switch (x->kind) {
	case BOX_EXITED:
		return (int)(x->status & 0xff);
	case BOX_SIGNALED:
		return 128 + (int)(x->status & 0x7f);
	case BOX_TIMED_OUT:
		return EXIT_TIMED_OUT;
	case BOX_NOT_STARTED:
		if (x->status == ENOENT || x->status == ENOTDIR)
			return EXIT_NOT_THERE;
		/* No room for one more process is the box's trouble, not the program's. */
		if (x->status == EAGAIN || x->status == ENOMEM)
			return EXIT_NO_BOX;
		return EXIT_NOT_RUNNABLE;
	}
	return EXIT_NO_BOX;
}

/* Say what ended the command, where that is more than its own status, and turn it into ours. */
static int conclude(struct cli *c, const struct call *call, const struct box_exit *x)
{
	int status = status_of(x);
	OWN_ANSWER a = ANSWER_INIT;
	const char *end = plain_end(x), *text = NULL;
	char own[400] = "";

	if (call->pid > 0) {
		if (args_has(&c->args, O(JSON)))
			json_end(status, x, "started", NULL, call->pid);
		else
			say_note(c, "box '%s': started as process %u", call->box, call->pid);
		return status;
	}

	if (status != 0 && x->kind != BOX_TIMED_OUT && ask_why(c, call, &a)) {
		end = json_str(a.doc.root, "end", end);
		text = json_str(a.doc.root, "text", end);
	} else if (x->kind == BOX_TIMED_OUT) {
		(void)snprintf(own, sizeof(own), "'%.100s' was ended after %.20s%s%s", call->argv[0],
			       c->args.val[OPT_TIMEOUT] ? c->args.val[OPT_TIMEOUT] : "its time", x->text[0] ? "; " : "", x->text);
	} else if (x->kind == BOX_NOT_STARTED) {
		if (x->text[0])
			(void)snprintf(own, sizeof(own), "%s", x->text);
		else
			(void)snprintf(own, sizeof(own), "cannot run '%.100s': %s", call->argv[0], strerror((int)x->status));
	} else if (x->kind == BOX_SIGNALED && crash(x->status)) {
		(void)snprintf(own, sizeof(own), "'%.100s' %s", call->argv[0], crash(x->status));
	}
	if (!text && own[0])
		text = own;
	if (text)
		say_note(c, "box '%s': %s", call->box, text);
	if (args_has(&c->args, O(JSON)))
		json_end(status, x, end, text, 0);
	return status;
}

/* The connection to the box broke: the box is gone, or its init is. */
static int conclude_lost(struct cli *c, const struct call *call, const struct err *e)
{
	struct box_exit x = { .kind = BOX_SIGNALED, .status = SIGKILL };
	OWN_ANSWER a = ANSWER_INIT;

	/* Nothing ran, for want of room in the box: the daemon knows which limit that was, and how to raise it. */
	if (e->why == WHY_LIMIT && ask_why(c, call, &a)) {
		struct err said = ERR_INIT;

		(void)err_why(&said, WHY_LIMIT, e->code, "box '%s': %s", call->box, json_str(a.doc.root, "text", e->text));
		return no_box(c, &said);
	}
	if (e->code != -ECONNRESET || !ask_why_lost(c, call, &a))
		return no_box(c, e);
	say_note(c, "box '%s': %s", call->box, json_str(a.doc.root, "text", json_str(a.doc.root, "end", "ended")));
	if (args_has(&c->args, O(JSON)))
		json_end(128 + SIGKILL, &x, json_str(a.doc.root, "end", "removed"), json_str(a.doc.root, "text", NULL), 0);
	return 128 + SIGKILL;
}

static void runs(uint32_t pid, void *arg)
{
	struct call *call = arg;

	call->pid = pid;
}

/* The box says what is wrong, not which of our words it was, nor what would do. */
static void name_option(const struct args *a, struct err *e)
{
	struct err said = *e;

	if (a->val[OPT_USER] && strstr(said.text, " user '"))
		(void)err_why(e, said.why, said.code, "--user: %s; a UID needs no entry there", said.text);
	else if (a->val[OPT_WORKDIR] && strstr(said.text, "working directory"))
		(void)err_why(e, said.why, said.code, "--workdir: %s; it has to be a directory of the box that the command's user may enter",
			      said.text);
}

static int run_call(struct cli *c, struct call *call, int sock)
{
	const struct args *a = &c->args;
	bool tty = wants_terminal(a), detach = args_has(a, O(DETACH));
	struct call_io io = {
		.in = detach || args_has(a, O(NO_STDIN)) ? FD_NONE : 0, .out = detach ? FD_NONE : 1, .err = detach ? FD_NONE : 2,
	};
	struct box_exec x = {
		.argv = call->argv, .user = a->val[OPT_USER] ? a->val[OPT_USER] : call->user,
		.cwd = a->val[OPT_WORKDIR] ? a->val[OPT_WORKDIR] : call->workdir, .umask = 022, .detach = detach,
		.in = tty ? BOX_STDIO_TTY : BOX_STDIO_PIPE,
	};
	struct box_exit end = { 0 };
	struct err e = ERR_INIT;
	struct env env;
	int r = 0;

	if (a->val[OPT_TIMEOUT])
		r = opt_duration(a, OPT_TIMEOUT, &x.timeout_ms, &e);
	if (r < 0)
		return no_box(c, &e);
	if (detach) {
		io.started = runs;
		io.arg = call;
	}
	r = env_make(call->box_env, &call->given, &env, &e);
	if (r == 0) {
		x.env = env.vars;
		r = call_run(sock, &x, &io, &end, &e);
		if (r < 0)
			name_option(a, &e);
		r = r < 0 ? conclude_lost(c, call, &e) : conclude(c, call, &end);
	} else {
		r = no_box(c, &e);
	}
	env_done(&env);
	return r;
}

/* What is wrong in itself is found before a box is made. */
static int check(struct cli *c, struct call *call)
{
	const struct args *a = &c->args;
	struct err e = ERR_INIT;
	uint64_t ms;
	int r = 0;

	if (args_has(a, O(TTY)) && args_has(a, O(NO_TTY)))
		r = err_why(&e, WHY_BAD_REQUEST, -EINVAL, "--tty and --no-tty contradict each other");
	else if (args_has(a, O(TTY)) && args_has(a, O(DETACH)))
		r = err_why(&e, WHY_BAD_REQUEST, -EINVAL, "--detach leaves no terminal to pass: it goes without --tty");
	else if (args_has(a, O(STDIN)) && args_has(a, O(NO_STDIN)))
		r = err_why(&e, WHY_BAD_REQUEST, -EINVAL, "--interactive and --no-stdin contradict each other");
	else if (a->val[OPT_TIMEOUT] && opt_duration(a, OPT_TIMEOUT, &ms, &e) < 0)
		r = -EINVAL;
	else if (a->val[OPT_WORKDIR] && a->val[OPT_WORKDIR][0] != '/')
		r = err_why(&e, WHY_BAD_REQUEST, -EINVAL, "--workdir: '%s' is not an absolute path of the box", a->val[OPT_WORKDIR]);
	else if (a->nnames > 0)
		r = box_word(a->names[0], &e);
	if (r == 0 && a->val[OPT_NAME])
		r = box_word(a->val[OPT_NAME], &e);
	if (r == 0)
		r = env_given(a, &call->given, &e);
	if (r == 0)
		return 0;
	env_done(&call->given);
	say_error(c, &e);
	return EXIT_ASKED_WRONG;
}

static int in_box(struct cli *c, struct call *call)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	int r;

	question_begin(&q, "open");
	put_box(c, &q, call->box);
	if (ask(c, &q, NULL, 0, &a, &e) < 0)
		return no_box(c, &e);
	if (a.fds[0] < 0 || a.fds[1] >= 0) {
		(void)err_why(&e, WHY_HOSTILE, -EBADMSG, "the daemon sent no connection to box '%s'", call->box);
		return no_box(c, &e);
	}
	r = from_answer(a.doc.root, call, &e) < 0 ? no_box(c, &e) : run_call(c, call, a.fds[0]);
	free(call->box_env);
	return r;
}

int cmd_exec(struct cli *c)
{
	struct call call = { .box = c->args.names[0], .argv = c->args.tail };
	int r = check(c, &call);

	if (r == 0)
		r = in_box(c, &call);
	env_done(&call.given);
	return r;
}

/*
 * The box knows its user's shell: cubby-init sets SHELL from the box's passwd. The small detour through sh keeps an
 * account whose shell is missing usable.
 */
static const char *const login_shell[] = {
	"/bin/sh", "-c", "[ -x \"$SHELL\" ] || SHELL=/bin/sh; exec \"$SHELL\" -l", NULL,
};

int cmd_shell(struct cli *c)
{
	struct call call = { .box = c->args.names[0], .argv = (char *const *)login_shell };
	int r = check(c, &call);

	if (r == 0)
		r = in_box(c, &call);
	env_done(&call.given);
	return r;
}

/* Ask for the box of `run`; with `keep` one that stays, and the call goes in by its name afterwards. */
static int ask_box(struct cli *c, const struct env *keep, struct answer *ret, bool *ret_asked, struct err *e)
{
	OWN_QUESTION q = { 0 };
	int fds[FD_PASS_MAX], r;
	size_t nfds = 0;

	question_begin(&q, "new");
	if (!keep)
		json_put_bool(&q.json, "run", true);
	if (c->args.val[OPT_NAME])
		json_put_str(&q.json, "name", c->args.val[OPT_NAME]);
	r = put_spec(&c->args, &q.json, fds, &nfds, e);
	if (r == 0 && keep && keep->n > 0) {
		json_put_arr(&q.json, "env");
		for (size_t i = 0; i < keep->n; i++)
			json_put_str(&q.json, NULL, keep->vars[i]);
		json_end_arr(&q.json);
	}
	*ret_asked = r == 0;
	if (r == 0)
		r = ask(c, &q, fds, nfds, ret, e);
	for (size_t i = 0; i < nfds; i++)
		fd_close(&fds[i]);
	return r;
}

static int in_new_box(struct cli *c, struct call *call)
{
	bool keep = args_has(&c->args, O(KEEP)), asked = false;
	OWN_ANSWER a = ANSWER_INIT;
	struct err e = ERR_INIT;
	const struct json *box;
	int r;

	if (ask_box(c, keep ? &call->given : NULL, &a, &asked, &e) < 0) {
		r = no_box(c, &e);
		return !asked && (e.why == WHY_BAD_REQUEST || e.why == WHY_UNSUPPORTED) ? EXIT_ASKED_WRONG : r;
	}
	box = json_get(a.doc.root, "box");
	call->box = json_str(box, "name", "?");
	note_weak(c, box);
	if (keep) {
		say_note(c, "the box is kept: %s", call->box);
		return in_box(c, call);
	}
	if (a.fds[0] < 0 || a.fds[1] >= 0) {
		(void)err_why(&e, WHY_HOSTILE, -EBADMSG, "the daemon sent no connection to the box");
		return no_box(c, &e);
	}
	call->user = json_str(box, "user", NULL);
	call->workdir = json_str(box, "workdir", NULL);
	r = from_answer(a.doc.root, call, &e) < 0 ? no_box(c, &e) : run_call(c, call, a.fds[0]);
	free(call->box_env);
	return r;
}

int cmd_run(struct cli *c)
{
	struct call call = { .argv = c->args.tail };
	int r = check(c, &call);

	if (r == 0)
		r = in_new_box(c, &call);
	env_done(&call.given);
	return r;
}
