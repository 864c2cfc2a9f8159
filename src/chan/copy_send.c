/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/copy_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* The sending end of a copy. */

static int flush_if_full(struct copy_stream *s)
{
	return s->out.len >= WALK_FLUSH ? copy_flush(s) : s->out.failed;
}

struct level {
	struct walk_place place;
	char *names;	/* terminated, one after the other */
	size_t n, at;
	size_t trail;
};

struct sender {
	struct copy_stream *s;
	struct level *stack;
	size_t depth, room;
	size_t names;	/* bytes in all levels */
	int cur;
	struct buf trail;
};

static int put_entry(struct copy_stream *s, enum box_entry_type type, const struct stat *st, const char *name,
		     const char *target)
{
	struct box_entry x = {
		.type = type, .name = name, .target = target,
		.mode = st->st_mode & 07777, .mtime_s = st->st_mtim.tv_sec, .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
	};
	int r = box_put_entry(&s->out, &x);

	return r < 0 ? r : flush_if_full(s);
}

static int put_skip(struct copy_stream *s, const char *name, int code)
{
	struct box_entry x = { .type = BOX_ENTRY_SKIP, .name = name, .target = "", .mode = (uint32_t)-code };
	int r = box_put_entry(&s->out, &x);

	return r < 0 ? r : flush_if_full(s);
}

/* At most `want` bytes as one BOX_DATA, read right into the buffer. Returns the bytes, 0 at the end. */
static ssize_t put_data(struct copy_stream *s, int fd, size_t want)
{
	uint8_t *head;
	ssize_t k;
	int r;

	if (want > BOX_DATA_MAX)
		want = BOX_DATA_MAX;
	r = buf_reserve(&s->out, BOX_HEAD + want);
	if (r < 0)
		return r;
	head = (uint8_t *)s->out.data + s->out.len;
	do
		k = read(fd, head + BOX_HEAD, want);
	while (k < 0 && errno == EINTR);
	if (k <= 0)
		return k < 0 ? -errno : 0;
	memset(head, 0, BOX_HEAD);
	head[0] = BOX_DATA;
	for (unsigned i = 0; i < 4; i++)
		head[4 + i] = (uint8_t)((size_t)k >> (8 * i));
	s->out.len += BOX_HEAD + (size_t)k;
	return k;
}

/*
 * No more than the size the file had at first: one that grows as fast as it is read would never end. Files of /proc
 * have no size and are read to their end, within a bound.
 */
static int put_content(struct copy_stream *s, int fd, const struct stat *st, struct err *e)
{
	uint64_t size = st->st_size > 0 ? (uint64_t)st->st_size : 16u << 20, at = 0;
	bool sparse = (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
	int r;

	while (at < size) {
		uint64_t stop = size;
		ssize_t k;

		if (sparse) {
			off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole;

			if (data < 0 && errno == ENXIO)
				data = (off_t)size;
			if (data > (off_t)at) {
				uint64_t n = ((uint64_t)data < size ? (uint64_t)data : size) - at;

				r = box_put_hole(&s->out, n);
				if (r < 0)
					return err_set(e, r, "cannot send");
				at += n;
				continue;
			}
			hole = lseek(fd, (off_t)at, SEEK_HOLE);
			if (hole > (off_t)at && (uint64_t)hole < size)
				stop = (uint64_t)hole;
			(void)lseek(fd, (off_t)at, SEEK_SET);
		}
		while (at < stop) {
			k = put_data(s, fd, (size_t)(stop - at < BOX_DATA_MAX ? stop - at : BOX_DATA_MAX));
			if (k < 0)
				return err_set(e, (int)k, "cannot read");
			if (k == 0)
				break;
			at += (uint64_t)k;
			r = walk_count_bytes(s, (size_t)k, e);
			if (r < 0)
				return r;
			r = flush_if_full(s);
			if (r < 0)
				return walk_lost(e, r);
		}
		if (at < stop)
			break;	/* it shrank */
	}
	r = box_put(&s->out, BOX_DATA, NULL, 0);
	return r < 0 ? err_set(e, r, "cannot send") : 0;
}

static int send_file(struct copy_stream *s, int fd, const struct stat *st, const char *name, struct err *e)
{
	int r = put_entry(s, BOX_ENTRY_FILE, st, name, "");

	if (r < 0)
		return walk_lost(e, r);
	s->res->files++;
	return put_content(s, fd, st, e);
}

struct linux_dirent64 {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* All names of a directory at once, so that no descriptor stays open for it. */
static int read_names(struct sender *w, struct level *l)
{
	size_t room = 0;

	for (;;) {
		uint64_t buf[2048];
		ssize_t k = syscall(SYS_getdents64, w->cur, buf, sizeof(buf));

		if (k <= 0)
			return k < 0 ? -errno : 0;
		for (ssize_t at = 0; at < k;) {
			const struct linux_dirent64 *d = (const void *)((const char *)buf + at);
			size_t n = strlen(d->name) + 1;

			at += d->len;
			if (!box_name_ok(d->name))
				continue;
			if (w->names + n > COPY_NAMES_MAX)
				return -E2BIG;
			if (l->n + n > room) {
				char *p;

				room = room ? room * 2 : 1024;
				p = realloc(l->names, room);
				if (!p)
					return -ENOMEM;
				l->names = p;
			}
			memcpy(l->names + l->n, d->name, n);
			l->n += n;
			w->names += n;
		}
	}
}

/* fd is consumed. */
static int enter(struct sender *w, int fd, const char *name, struct err *e)
{
	struct level *l;
	int r;

	if (w->cur >= 0)
		fd_close(&w->cur);
	w->cur = fd;
	if (w->depth == COPY_DEPTH_MAX)
		return err_why(e, WHY_LIMIT, -E2BIG, "more than %u directories inside each other", COPY_DEPTH_MAX);
	if (w->depth == w->room) {
		size_t room = w->room ? w->room * 2 : 64;
		struct level *p = realloc(w->stack, room * sizeof(*p));

		if (!p)
			return err_set(e, -ENOMEM, "cannot walk the tree");
		w->stack = p;
		w->room = room;
	}
	l = &w->stack[w->depth++];
	memset(l, 0, sizeof(*l));
	l->trail = w->depth > 1 ? walk_trail_push(&w->trail, name) : 0;
	r = walk_place_of(fd, &l->place);
	if (r == 0)
		r = read_names(w, l);
	return r < 0 ? err_set(e, r, "cannot list '%.500s'", walk_trail(&w->trail)) : 0;
}

static int send_link(struct copy_stream *s, int dir_fd, const char *path, const char *name, const struct stat *st)
{
	char target[BOX_PATH_MAX + 2];
	ssize_t n = readlinkat(dir_fd, path, target, sizeof(target) - 1);

	if (n < 0)
		return put_skip(s, name, -errno);
	if (n > BOX_PATH_MAX || n == 0)
		return put_skip(s, name, -ENAMETOOLONG);
	target[n] = '\0';
	s->res->links++;
	return put_entry(s, BOX_ENTRY_LINK, st, name, target);
}

/* Told to the receiver, to whoever asked for the copy, and counted. code 0: nothing that can be copied. */
static int pass_over(struct sender *w, const char *name, int code, struct err *e)
{
	const struct copy_opts *o = w->s->o;
	size_t at;
	int r;

	if (code)
		w->s->res->unreadable++;
	else
		w->s->res->skipped++;
	if (o->note) {
		at = walk_trail_push(&w->trail, name);
		o->note(walk_trail(&w->trail), code ? strerror(-code) : "a device, a FIFO or a socket", o->arg);
		walk_trail_pop(&w->trail, at);
	}
	r = put_skip(w->s, name, code);
	return r < 0 ? walk_lost(e, r) : 0;
}

/* Something of the current directory. What can't be read is told to the receiver and passed over. */
static int send_one(struct sender *w, const char *name, struct err *e)
{
	OWN_FD fd = FD_NONE;
	struct stat st;
	int r;

	if (fstatat(w->cur, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : pass_over(w, name, -errno, e);
	if (S_ISLNK(st.st_mode)) {
		r = send_link(w->s, w->cur, name, name, &st);
		return r < 0 ? walk_lost(e, r) : 0;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return pass_over(w, name, 0, e);
	/* It may have become something else by now: O_NONBLOCK for a FIFO, and a second look. */
	fd = walk_open_below(w->cur, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, WALK_BELOW);
	if (fd >= 0 && fstat(fd, &st) < 0) {
		r = -errno;
		(void)close(fd);
		fd = r;
	}
	if (fd >= 0 && S_ISDIR(st.st_mode)) {
		/* One that can be listed but not searched would not let us out again. */
		r = walk_open_below(fd, ".", O_PATH | O_DIRECTORY, WALK_BELOW);
		(void)close(r < 0 ? fd : r);
		fd = r < 0 ? r : fd;
	}
	if (fd < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
		if (fd == -ENOENT)
			return 0;
		r = pass_over(w, name, fd < 0 ? fd : -EINVAL, e);
		if (fd < 0)
			fd = FD_NONE;
		return r;
	}
	if (S_ISREG(st.st_mode)) {
		r = send_file(w->s, fd, &st, name, e);
		return r < 0 ? err_while(e, r, "'%.500s/%.200s'", walk_trail(&w->trail), name) : 0;
	}
	r = put_entry(w->s, BOX_ENTRY_DIR, &st, name, "");
	if (r < 0)
		return walk_lost(e, r);
	w->s->res->dirs++;
	return enter(w, fd_take(&fd), name, e);
}

static int leave(struct sender *w, struct err *e)
{
	struct level *l = &w->stack[--w->depth];
	struct box_entry up = { .type = BOX_ENTRY_UP, .name = "", .target = "" };
	int up_fd, r;

	w->names -= l->n;
	free(l->names);
	walk_trail_pop(&w->trail, l->trail);
	r = box_put_entry(&w->s->out, &up);
	if (r == 0)
		r = flush_if_full(w->s);
	if (r < 0)
		return walk_lost(e, r);
	if (!w->depth)
		return 0;
	r = walk_open_up(w->cur, &w->stack[w->depth - 1].place, &up_fd, e);
	if (r < 0)
		return r;
	(void)close(w->cur);
	w->cur = up_fd;
	return 0;
}

static int walk(struct sender *w, struct err *e)
{
	int r = 0;

	while (r == 0 && w->depth) {
		struct level *l = &w->stack[w->depth - 1];

		if (l->at == l->n) {
			r = leave(w, e);
		} else {
			char name[BOX_NAME_MAX + 1];
			size_t n = strlen(l->names + l->at) + 1;

			/* The stack moves when it grows. */
			memcpy(name, l->names + l->at, n);
			l->at += n;
			r = send_one(w, name, e);
		}
	}
	return r;
}

int copy_send(struct copy_stream *s, int dir_fd, const char *path, const char *as, bool magic, struct err *e)
{
	struct sender w = { .s = s, .cur = FD_NONE, .trail = BUF_INIT(WALK_TRAIL_MAX) };
	uint64_t resolve = magic ? 0 : RESOLVE_NO_MAGICLINKS;
	int nofollow = s->o->follow ? 0 : O_NOFOLLOW;
	OWN_FD look = walk_open_below(dir_fd, path, O_PATH | nofollow, resolve);
	OWN_FD fd = FD_NONE;
	struct stat st;
	int r;

	if (look < 0)
		return err_set(e, look, "cannot copy '%.500s'", path);
	if (fstat(look, &st) < 0)
		return err_set(e, -errno, "cannot copy '%.500s'", path);
	if (S_ISLNK(st.st_mode)) {
		/* "": the link that O_PATH | O_NOFOLLOW opened (readlinkat(2)). */
		r = send_link(s, look, "", as, &st);
		return r < 0 ? walk_lost(e, r) : 0;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return err_why(e, WHY_UNSUPPORTED, -EINVAL, "'%.500s' is a device, a FIFO or a socket", path);
	fd = walk_open_below(dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | nofollow, resolve);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, fd < 0 ? fd : -errno, "cannot read '%.500s'", path);
	if (S_ISREG(st.st_mode)) {
		r = send_file(s, fd, &st, as, e);
		return r < 0 ? err_while(e, r, "'%.500s'", path) : 0;
	}
	if (!S_ISDIR(st.st_mode))
		return err_why(e, WHY_UNSUPPORTED, -EINVAL, "'%.500s' is a device, a FIFO or a socket", path);
	r = put_entry(s, BOX_ENTRY_DIR, &st, as, "");
	if (r < 0) {
		r = walk_lost(e, r);
	} else {
		char own[BOX_NAME_MAX + 1];

		s->res->dirs++;
		/* As the receiver calls it: a directory whose content is meant has no name of its own. */
		if (copy_last_name(path, own))
			(void)walk_trail_push(&w.trail, as);
		r = enter(&w, fd_take(&fd), "", e);
	}
	if (r == 0)
		r = walk(&w, e);
	while (w.depth)
		free(w.stack[--w.depth].names);
	free(w.stack);
	fd_close(&w.cur);
	buf_done(&w.trail);
	return r;
}

