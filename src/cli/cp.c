/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/call.h"
#include "chan/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "cli/cli.h"
#include "cli/verbs.h"

/* One of the two arguments. */
struct place {
	char box[NAME_MAX_LEN + 1];	/* "": here */
	const char *path;
};

/*
 * BOX:PATH. Whatever has a '/' before its first ':' is a path here, so that "./a:b" can be said. A path may be empty: the
 * box's working directory.
 */
static struct place place_of(const char *s)
{
	struct place p = { .path = s };
	size_t n = strcspn(s, ":/");

	if (s[n] != ':' || n > NAME_MAX_LEN)
		return p;
	memcpy(p.box, s, n);
	p.box[n] = '\0';
	if (name_ok(p.box))
		p.path = s + n + 1;
	else
		p.box[0] = '\0';
	return p;
}

/* The first ones are named, and the rest counted: a tree can hold any number of sockets. */
#define NAMED_MAX 10

struct notes {
	struct cli *c;
	uint64_t n;
};

static void skipped(const char *path, const char *why, void *arg)
{
	struct notes *notes = arg;

	if (notes->n++ < NAMED_MAX)
		say_note(notes->c, "not copied: %s: %s", path[0] ? path : "the file itself", why);
}

static int open_box(struct cli *c, const char *box, struct answer *ret, struct err *e)
{
	OWN_QUESTION q = { 0 };
	int r;

	question_begin(&q, "open");
	put_box(c, &q, box);
	r = ask(c, &q, NULL, 0, ret, e);
	if (r < 0)
		return r;
	if (ret->fds[0] < 0 || ret->fds[1] >= 0)
		return err_why(e, WHY_HOSTILE, -EBADMSG, "the daemon sent no connection to box '%s'", box);
	return 0;
}

/*
 * Where the commands of this user begin: only the box knows its users' homes. What it says is believed as a path inside
 * of it, which is all it can be.
 */
static int ask_home(struct cli *c, const char *box, const char *user, char *ret, size_t n, struct err *e)
{
	static const char *const argv[] = { "/bin/sh", "-c", "printf %s \"$PWD\"", NULL };
	struct box_exec x = { .argv = (char *const *)argv, .user = user, .umask = 022, .timeout_ms = 10000 };
	struct call_io io = { .in = FD_NONE, .err = FD_NONE };
	struct box_exit end = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_FD from = FD_NONE, to = FD_NONE;
	int pipe_fds[2], r;
	ssize_t k;

	r = open_box(c, box, &a, e);
	if (r < 0)
		return r;
	if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_set(e, -errno, "cannot ask box '%s' for its home directory", box);
	from = pipe_fds[0];
	to = pipe_fds[1];
	io.out = to;
	r = call_run(a.fds[0], &x, &io, &end, e);
	if (r < 0)
		return r;
	fd_close(&to);
	k = fd_read_small(from, ret, n);
	if (k <= 0 || ret[0] != '/' || end.kind != BOX_EXITED || end.status != 0)
		return err_why(e, WHY_NOT_FOUND, -ENOENT, "box '%s' can't tell its home directory: name an absolute path", box);
	return 0;
}

/* Absolute in the box; relative paths start where its commands do. */
static int path_in_box(struct cli *c, const struct answer *a, const char *box, const char *user, const char *path,
		       struct buf *to, struct err *e)
{
	const char *dir = json_str(a->doc.root, "workdir", NULL);
	char home[BOX_PATH_MAX + 1];
	int r;

	if (path[0] == '/') {
		r = buf_puts(to, path);
	} else {
		r = dir && dir[0] == '/' ? 0 : ask_home(c, box, user, home, sizeof(home), e);
		if (r < 0)
			return r;
		r = buf_printf(to, "%s/%s", dir && dir[0] == '/' ? dir : home, path);
	}
	return r < 0 ? err_set(e, r, "the path in the box is too long") : 0;
}

/* The directory that holds the destination, and its name there; "." when the destination itself is meant as one. */
static int open_destination(const char *path, int *ret_dir, char ret_name[BOX_NAME_MAX + 1], struct err *e)
{
	char parent[4096];
	const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;

	if (strlen(path) >= sizeof(parent) || strlen(last) > BOX_NAME_MAX)
		return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "the destination's path is too long");
	if (path[0] == '\0')
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "the destination is empty");
	if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
		memcpy(parent, path, strlen(path) + 1);
		memcpy(ret_name, ".", 2);
	} else {
		size_t n = slash ? (size_t)(slash - path) : 0;

		if (n > 0)
			memcpy(parent, path, n);
		else
			parent[n++] = slash ? '/' : '.';
		parent[n] = '\0';
		memcpy(ret_name, last, strlen(last) + 1);
	}
	*ret_dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return err_set(e, -errno, "cannot open the directory '%s'", parent);
	return 0;
}

static int conclude(struct cli *c, const struct notes *notes, const struct copy_result *res)
{
	struct json_out o;

	if (notes->n > NAMED_MAX)
		say_note(c, "not copied: %llu more", (unsigned long long)(notes->n - NAMED_MAX));

	if (c->json) {
		json_out_init(&o, &c->out);
		json_put_obj(&o, NULL);
		json_put_int(&o, "files", (int64_t)res->files);
		json_put_int(&o, "dirs", (int64_t)res->dirs);
		json_put_int(&o, "links", (int64_t)res->links);
		json_put_int(&o, "bytes", (int64_t)res->bytes);
		json_put_int(&o, "skipped", (int64_t)res->skipped);
		json_put_int(&o, "unreadable", (int64_t)res->unreadable);
		json_end_obj(&o);
		(void)buf_putc(&c->out, '\n');
	}
	return res->unreadable > 0 ? EXIT_FAILED : EXIT_OK;
}

int cmd_cp(struct cli *c)
{
	struct place src = place_of(c->args.names[0]), dst = place_of(c->args.names[1]);
	const char *box = src.box[0] ? src.box : dst.box;
	struct notes notes = { .c = c };
	struct copy_opts opts = { .user = c->args.val[OPT_USER], .note = skipped, .arg = &notes };
	struct copy_result res = { 0 };
	char name[BOX_NAME_MAX + 1];
	OWN_ANSWER a = ANSWER_INIT;
	OWN_BUF inside = BUF_INIT(BOX_PATH_MAX);
	OWN_FD dir = FD_NONE;
	struct err e = ERR_INIT;
	int r;

	if ((src.box[0] != '\0') == (dst.box[0] != '\0')) {
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "%s: cubby cp BOX:PATH PATH, or cubby cp PATH BOX:PATH",
			      src.box[0] ? "one of the two has to be a path here" : "one of the two has to be a path in a box");
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (src.box[0] && open_destination(dst.path, &dir, name, &e) < 0)
		return say_failed(c, &e);
	if (open_box(c, box, &a, &e) < 0)
		return say_failed(c, &e);
	if (!opts.user)
		opts.user = json_str(a.doc.root, "user", NULL);
	if (path_in_box(c, &a, box, opts.user, src.box[0] ? src.path : dst.path, &inside, &e) < 0)
		return say_failed(c, &e);
	if (src.box[0])
		r = copy_out(a.fds[0], inside.data, dir, name, &opts, &res, &e);
	else
		r = copy_in(a.fds[0], AT_FDCWD, src.path, inside.data, &opts, &res, &e);
	if (r < 0)
		return say_failed(c, &e);
	return conclude(c, &notes, &res);
}
