/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/copy_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* The receiving end of a copy: everything that comes is hostile. */

static void note(struct copy_stream *s, struct buf *t, const char *name, const char *why)
{
	size_t at = walk_trail_push(t, name);

	if (s->o->note)
		s->o->note(walk_trail(t), why, s->o->arg);
	walk_trail_pop(t, at);
}

struct made {
	struct walk_place above;	/* where ".." has to lead */
	bool fresh;		/* made by us: gets the mode and the time that were sent */
	uint32_t mode;
	struct timespec mtime;
	size_t trail;
};

struct receiver {
	struct copy_stream *s;
	struct made *stack;
	size_t depth, room;
	int cur;
	struct buf trail;
};

static void temp_name(char name[32])
{
	static const char prefix[] = ".cubby-";
	char id[ID_LEN + 1];

	id_make(id);
	memcpy(name, prefix, sizeof(prefix) - 1);
	memcpy(name + sizeof(prefix) - 1, id, sizeof(id));
}

static void set_times(int fd, int64_t s, uint32_t ns)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = s, .tv_nsec = ns } };

	/* A time that this file system can't hold is no reason to fail. */
	(void)futimens(fd, t);
}

static int write_hole(int fd, uint64_t *at, uint64_t n)
{
	if (__builtin_add_overflow(*at, n, at) || *at > INT64_MAX)
		return -EFBIG;
	return lseek(fd, (off_t)*at, SEEK_SET) < 0 ? -errno : 0;
}

static int receive_content(struct receiver *w, int fd, struct err *e)
{
	uint64_t at = 0;

	for (;;) {
		struct box_frame f;
		uint64_t n;
		int r = copy_next(w->s, &f);

		if (r <= 0)
			return walk_lost(e, r == 0 ? -ECONNRESET : r);
		if (f.kind == BOX_FAIL)
			return walk_said(&f, e);
		if (f.kind == BOX_DATA && f.len == 0)
			return ftruncate(fd, (off_t)at) < 0 ? err_set(e, -errno, "cannot set the size") : 0;
		if (f.kind == BOX_DATA) {
			r = walk_count_bytes(w->s, f.len, e);
			if (r < 0)
				return r;
			r = fd_write_all(fd, f.body, f.len);
			at += f.len;
		} else if (f.kind == BOX_HOLE && box_get_hole(&f, &n) == 0) {
			r = write_hole(fd, &at, n);
		} else {
			return walk_lost(e, -EBADMSG);
		}
		if (r < 0)
			return err_set(e, r, "cannot write");
	}
}

static int receive_file(struct receiver *w, const struct box_entry *x, const char *name, struct err *e)
{
	char temp[32];
	OWN_FD fd = FD_NONE;
	uint32_t mode = x->mode & 0777;
	int64_t s = x->mtime_s;
	uint32_t ns = x->mtime_ns;
	int r;

	temp_name(temp);
	fd = openat(w->cur, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, -errno, "cannot make a file");
	r = receive_content(w, fd, e);	/* x is gone with the next frame */
	if (r == 0 && fchmod(fd, mode) < 0)
		r = err_set(e, -errno, "cannot set the mode");
	if (r == 0) {
		set_times(fd, s, ns);
		if (renameat(w->cur, temp, w->cur, name) < 0)
			r = errno == EISDIR ? err_why(e, WHY_EXISTS, -EISDIR, "there is a directory in its place") :
					      err_set(e, -errno, "cannot put it in place");
	}
	if (r < 0)
		(void)unlinkat(w->cur, temp, 0);
	else
		w->s->res->files++;
	return r;
}

static int receive_link(struct receiver *w, const struct box_entry *x, const char *name, struct err *e)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = x->mtime_s, .tv_nsec = x->mtime_ns } };
	char temp[32];

	temp_name(temp);
	if (symlinkat(x->target, w->cur, temp) < 0)
		return err_set(e, -errno, "cannot make a link");
	(void)utimensat(w->cur, temp, t, AT_SYMLINK_NOFOLLOW);
	if (renameat(w->cur, temp, w->cur, name) < 0) {
		int r = errno == EISDIR ? err_why(e, WHY_EXISTS, -EISDIR, "there is a directory in its place") :
					  err_set(e, -errno, "cannot put it in place");

		(void)unlinkat(w->cur, temp, 0);
		return r;
	}
	w->s->res->links++;
	return 0;
}

static int push(struct receiver *w, const struct box_entry *x, struct made **ret, struct err *e)
{
	if (w->depth == COPY_DEPTH_MAX)
		return err_why(e, WHY_LIMIT, -E2BIG, "more than %u directories inside each other", COPY_DEPTH_MAX);
	if (w->depth == w->room) {
		size_t room = w->room ? w->room * 2 : 64;
		struct made *p = realloc(w->stack, room * sizeof(*p));

		if (!p)
			return err_set(e, -ENOMEM, "cannot keep track of the tree");
		w->stack = p;
		w->room = room;
	}
	*ret = &w->stack[w->depth];
	**ret = (struct made){ .mode = x->mode & 01777, .mtime = { .tv_sec = x->mtime_s, .tv_nsec = x->mtime_ns } };
	return 0;
}

static int receive_dir(struct receiver *w, const struct box_entry *x, const char *name, struct err *e)
{
	struct made *m;
	int fd, r;

	r = push(w, x, &m, e);
	if (r < 0)
		return r;
	r = walk_place_of(w->cur, &m->above);
	if (r < 0)
		return err_set(e, r, "cannot look at the directory above");
	/* Ours alone until it is complete. */
	m->fresh = mkdirat(w->cur, name, 0700) == 0;
	if (!m->fresh && errno != EEXIST)
		return err_set(e, -errno, "cannot make a directory");
	fd = walk_open_below(w->cur, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, WALK_BELOW);
	if (fd == -ENOTDIR || fd == -ELOOP)
		return err_why(e, WHY_EXISTS, -ENOTDIR, "there is something else than a directory in its place");
	if (fd < 0)
		return err_set(e, fd, "cannot enter the directory");
	(void)close(w->cur);
	w->cur = fd;
	m->trail = walk_trail_push(&w->trail, name);
	w->depth++;
	w->s->res->dirs += m->fresh;
	return 0;
}

static int receive_up(struct receiver *w, struct err *e)
{
	struct made *m = &w->stack[--w->depth];
	int up = FD_NONE, r;

	/* First, since the mode may forbid it to us. Above where the copy began nothing has to be done. */
	r = w->depth ? walk_open_up(w->cur, &m->above, &up, e) : 0;
	if (r < 0)
		return r;
	if (m->fresh) {
		if (fchmod(w->cur, m->mode) < 0)
			r = err_set(e, -errno, "cannot set the mode of '%.500s'", walk_trail(&w->trail));
		set_times(w->cur, m->mtime.tv_sec, (uint32_t)m->mtime.tv_nsec);
	}
	walk_trail_pop(&w->trail, m->trail);
	if (up >= 0) {
		(void)close(w->cur);
		w->cur = up;
	}
	return r;
}

static int receive_one(struct receiver *w, const struct box_entry *x, const char *name, struct err *e)
{
	int r;

	switch (x->type) {
	case BOX_ENTRY_DIR:
		r = receive_dir(w, x, name, e);
		break;
	case BOX_ENTRY_FILE:
		r = receive_file(w, x, name, e);
		break;
	case BOX_ENTRY_LINK:
		r = receive_link(w, x, name, e);
		break;
	case BOX_ENTRY_SKIP:
		if (x->mode)
			w->s->res->unreadable++;
		else
			w->s->res->skipped++;
		note(w->s, &w->trail, name, x->mode ? strerror((int)x->mode) : "a device, a FIFO or a socket");
		return 0;
	default:
		return walk_lost(e, -EBADMSG);
	}
	if (r < 0 && e && e->why != WHY_CANCELLED) {
		size_t at = walk_trail_push(&w->trail, name);

		(void)err_while(e, r, "'%.500s'", walk_trail(&w->trail));
		walk_trail_pop(&w->trail, at);
	}
	return r;
}

static int receive_rest(struct receiver *w, struct err *e)
{
	int r = 0;

	while (r == 0 && w->depth) {
		struct box_frame f;
		struct box_entry x;
		char name[BOX_NAME_MAX + 1];

		r = copy_next(w->s, &f);
		if (r <= 0)
			return walk_lost(e, r == 0 ? -ECONNRESET : r);
		if (f.kind == BOX_FAIL)
			return walk_said(&f, e);
		if (f.kind != BOX_ENTRY || box_get_entry(&f, &x) < 0)
			return walk_lost(e, -EBADMSG);
		memcpy(name, x.name, strlen(x.name) + 1);
		r = x.type == BOX_ENTRY_UP ? receive_up(w, e) : receive_one(w, &x, name, e);
	}
	return r;
}

int copy_receive(struct copy_stream *s, const struct box_entry *first, int dir_fd, const char *name, struct err *e)
{
	struct receiver w = { .s = s, .cur = FD_NONE, .trail = BUF_INIT(WALK_TRAIL_MAX) };
	char own[BOX_NAME_MAX + 1];
	struct made *m;
	int r;

	w.cur = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w.cur < 0)
		return err_set(e, -errno, "cannot enter the destination");
	if (name) {
		(void)memccpy(own, name, '\0', sizeof(own));
		r = receive_one(&w, first, own, e);
	} else if (first->type != BOX_ENTRY_DIR) {
		r = err_why(e, WHY_EXISTS, -ENOTDIR, "only the content of a directory can be put there");
	} else {
		r = push(&w, first, &m, e);
		if (r == 0)
			w.depth++;
	}
	if (r == 0)
		r = receive_rest(&w, e);
	free(w.stack);
	fd_close(&w.cur);
	buf_done(&w.trail);
	return r;
}

