/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "chan/call.h"

#define OUT_FLUSH (192u << 10)	/* send when so much has come together */

int copy_stream_init(struct copy_stream *s, int sock, const struct copy_opts *o, struct copy_result *res)
{
	memset(s, 0, sizeof(*s));
	s->sock = sock;
	s->sig_fd = FD_NONE;
	s->o = o;
	s->res = res;
	s->out.max = OUT_FLUSH + 2 * (BOX_DATA_MAX + BOX_HEAD);
	s->room = 4 * (BOX_DATA_MAX + BOX_HEAD);
	s->in = malloc(s->room);
	return s->in ? 0 : -ENOMEM;
}

void copy_stream_done(struct copy_stream *s)
{
	buf_done(&s->out);
	free(s->in);
	s->in = NULL;
}

int copy_next(struct copy_stream *s, struct box_frame *ret)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = s->sock, .events = POLLIN },
			{ .fd = s->sig_fd, .events = POLLIN },
		};
		size_t nfds;
		ssize_t k = box_peek(s->in + s->used, s->have - s->used, ret, NULL);

		/* BOX_EXEC is longer than the room, and has no place here. */
		if (k < 0 || (k == 0 && s->have - s->used == s->room))
			return -EBADMSG;
		if (k > 0) {
			s->used += (size_t)k;
			return 1;
		}
		s->have -= s->used;
		memmove(s->in, s->in + s->used, s->have);
		s->used = 0;
		if (s->sig_fd >= 0) {
			if (poll(p, 2, -1) < 0)
				continue;
			if (p[1].revents)
				return -EINTR;
		}
		k = fd_recv(s->sock, s->in + s->have, s->room - s->have, NULL, &nfds, 0);
		if (k < 0)
			return (int)k;
		if (k == 0)
			return s->have ? -EBADMSG : 0;
		s->have += (size_t)k;
	}
}

int copy_flush(struct copy_stream *s)
{
	int r = s->peer_lost ? -EPIPE : call_send(s->sock, &s->out, NULL, 0);

	if (r < 0)
		s->peer_lost = true;
	buf_reset(&s->out);
	return r;
}

static int flush_if_full(struct copy_stream *s)
{
	return s->out.len >= OUT_FLUSH ? copy_flush(s) : s->out.failed;
}

static int lost(struct err *e, int r)
{
	if (r == -EINTR)
		return err_why(e, WHY_CANCELLED, r, "interrupted");
	if (r == -EBADMSG)
		return err_why(e, WHY_HOSTILE, r, "the other end's answer is not of the box protocol");
	return err_set(e, r, "the connection to the other end is lost");
}

/* What BOX_FAIL says; one that says nothing is an error as well. */
static int said(const struct box_frame *f, struct err *e)
{
	struct err own = ERR_INIT;
	int r = box_get_fail(f, &own);

	if (!own.code)
		return lost(e, -EBADMSG);
	return err_why(e, own.why, r, "%s", own.text);
}

static int too_big(const struct copy_stream *s, struct err *e)
{
	return err_why(e, WHY_LIMIT, -EFBIG, "there are more than the %llu bytes that were allowed",
		       (unsigned long long)s->o->max_bytes);
}

static int count_bytes(struct copy_stream *s, size_t n, struct err *e)
{
	s->res->bytes += n;
	return s->o->max_bytes && s->res->bytes > s->o->max_bytes ? too_big(s, e) : 0;
}

bool copy_last_name(const char *path, char *ret)
{
	size_t n = strlen(path), at;

	while (n > 0 && path[n - 1] == '/')
		n--;
	for (at = n; at > 0 && path[at - 1] != '/'; at--)
		;
	if (n - at > BOX_NAME_MAX)
		return false;
	memcpy(ret, path + at, n - at);
	ret[n - at] = '\0';
	return box_name_ok(ret);
}

/* A path for people, below the copied thing: grows and shrinks with the walk. Of a very deep one the end is missing. */
#define TRAIL_MAX 16384

static size_t trail_push(struct buf *t, const char *name)
{
	size_t at = t->len;

	if (at + strlen(name) + 2 < TRAIL_MAX) {
		if (at)
			(void)buf_putc(t, '/');
		(void)buf_puts(t, name);
	}
	return at;
}

static void trail_pop(struct buf *t, size_t at)
{
	if (t->data && at <= t->len) {
		t->len = at;
		t->data[at] = '\0';
	}
}

static const char *trail(const struct buf *t)
{
	return t->data ? t->data : "";
}

static void note(struct copy_stream *s, struct buf *t, const char *name, const char *why)
{
	size_t at = trail_push(t, name);

	if (s->o->note)
		s->o->note(trail(t), why, s->o->arg);
	trail_pop(t, at);
}

/* A directory on the way down: what proves that ".." of the next one leads back to it. */
struct place {
	dev_t dev;
	ino_t ino;
};

static int place_of(int fd, struct place *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	return 0;
}

/*
 * Descriptors are few and trees are deep, so only the current directory is open, and going up is "..". Somebody
 * may have moved the directory meanwhile; then ".." is another place, and possibly one outside.
 */
static int open_up(int cur, const struct place *expected, int *ret_fd, struct err *e)
{
	OWN_FD up = openat(cur, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct place p;
	int r;

	if (up < 0)
		return err_set(e, -errno, "cannot go back to the directory above");
	r = place_of(up, &p);
	if (r < 0)
		return err_set(e, r, "cannot look at the directory above");
	if (p.dev != expected->dev || p.ino != expected->ino)
		return err_why(e, WHY_HOSTILE, -EXDEV, "a directory was moved while it was being copied");
	*ret_fd = fd_take(&up);
	return 0;
}

static int open_below(int dir_fd, const char *name, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags | O_CLOEXEC, .resolve = resolve };
	int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

	/*
	 * In a box that must not make set-id files there is no openat2(). For one component openat() promises the same, and
	 * a path that may lead anywhere in the box does so there; only links of /proc lead to what others have open.
	 */
	if (fd < 0 && errno == ENOSYS) {
		bool one = !strchr(name, '/') && strcmp(name, "..") != 0;
		bool any = !(resolve & ~(uint64_t)RESOLVE_NO_MAGICLINKS);

		if (!one && !(any && strncmp(name, "/proc/", 6) != 0))
			return -ENOSYS;
		fd = openat(dir_fd, name, flags | O_CLOEXEC | (resolve & RESOLVE_NO_SYMLINKS ? O_NOFOLLOW : 0));
	}
	return fd < 0 ? -errno : fd;
}

#define BELOW (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

/* Sending. */

struct level {
	struct place place;
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
			r = count_bytes(s, (size_t)k, e);
			if (r < 0)
				return r;
			r = flush_if_full(s);
			if (r < 0)
				return lost(e, r);
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
		return lost(e, r);
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
	l->trail = w->depth > 1 ? trail_push(&w->trail, name) : 0;
	r = place_of(fd, &l->place);
	if (r == 0)
		r = read_names(w, l);
	return r < 0 ? err_set(e, r, "cannot list '%.500s'", trail(&w->trail)) : 0;
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

/* Something of the current directory. What can't be read is told to the receiver and passed over. */
static int send_one(struct sender *w, const char *name, struct err *e)
{
	OWN_FD fd = FD_NONE;
	struct stat st;
	int r;

	if (fstatat(w->cur, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : put_skip(w->s, name, -errno);
	if (S_ISLNK(st.st_mode)) {
		r = send_link(w->s, w->cur, name, name, &st);
		return r < 0 ? lost(e, r) : 0;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
		r = put_skip(w->s, name, 0);
		w->s->res->skipped++;
		return r < 0 ? lost(e, r) : 0;
	}
	/* It may have become something else by now: O_NONBLOCK for a FIFO, and a second look. */
	fd = open_below(w->cur, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | (S_ISDIR(st.st_mode) ? O_DIRECTORY : 0),
			BELOW);
	if (fd >= 0 && fstat(fd, &st) < 0) {
		r = -errno;
		(void)close(fd);
		fd = r;
	}
	if (fd >= 0 && S_ISDIR(st.st_mode)) {
		/* One that can be listed but not searched would not let us out again. */
		r = open_below(fd, ".", O_PATH | O_DIRECTORY, BELOW);
		(void)close(r < 0 ? fd : r);
		fd = r < 0 ? r : fd;
	}
	if (fd < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
		if (fd == -ENOENT)
			return 0;
		w->s->res->unreadable++;
		r = put_skip(w->s, name, fd < 0 ? fd : -EINVAL);
		if (fd < 0)
			fd = FD_NONE;
		return r < 0 ? lost(e, r) : 0;
	}
	if (S_ISREG(st.st_mode)) {
		r = send_file(w->s, fd, &st, name, e);
		return r < 0 ? err_while(e, r, "'%.500s/%.200s'", trail(&w->trail), name) : 0;
	}
	r = put_entry(w->s, BOX_ENTRY_DIR, &st, name, "");
	if (r < 0)
		return lost(e, r);
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
	trail_pop(&w->trail, l->trail);
	r = box_put_entry(&w->s->out, &up);
	if (r == 0)
		r = flush_if_full(w->s);
	if (r < 0)
		return lost(e, r);
	if (!w->depth)
		return 0;
	r = open_up(w->cur, &w->stack[w->depth - 1].place, &up_fd, e);
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
	struct sender w = { .s = s, .cur = FD_NONE, .trail = BUF_INIT(TRAIL_MAX) };
	uint64_t resolve = magic ? 0 : RESOLVE_NO_MAGICLINKS;
	int nofollow = s->o->follow ? 0 : O_NOFOLLOW;
	OWN_FD look = open_below(dir_fd, path, O_PATH | nofollow, resolve);
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
		return r < 0 ? lost(e, r) : 0;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return err_why(e, WHY_UNSUPPORTED, -EINVAL, "'%.500s' is a device, a FIFO or a socket", path);
	fd = open_below(dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | nofollow, resolve);
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
		r = lost(e, r);
	} else {
		s->res->dirs++;
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

/* Receiving. */

struct made {
	struct place above;	/* where ".." has to lead */
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
			return lost(e, r == 0 ? -ECONNRESET : r);
		if (f.kind == BOX_FAIL)
			return said(&f, e);
		if (f.kind == BOX_DATA && f.len == 0)
			return ftruncate(fd, (off_t)at) < 0 ? err_set(e, -errno, "cannot set the size") : 0;
		if (f.kind == BOX_DATA) {
			r = count_bytes(w->s, f.len, e);
			if (r < 0)
				return r;
			r = fd_write_all(fd, f.body, f.len);
			at += f.len;
		} else if (f.kind == BOX_HOLE && box_get_hole(&f, &n) == 0) {
			r = write_hole(fd, &at, n);
		} else {
			return lost(e, -EBADMSG);
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
	r = place_of(w->cur, &m->above);
	if (r < 0)
		return err_set(e, r, "cannot look at the directory above");
	/* Ours alone until it is complete. */
	m->fresh = mkdirat(w->cur, name, 0700) == 0;
	if (!m->fresh && errno != EEXIST)
		return err_set(e, -errno, "cannot make a directory");
	fd = open_below(w->cur, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, BELOW);
	if (fd == -ENOTDIR || fd == -ELOOP)
		return err_why(e, WHY_EXISTS, -ENOTDIR, "there is something else than a directory in its place");
	if (fd < 0)
		return err_set(e, fd, "cannot enter the directory");
	(void)close(w->cur);
	w->cur = fd;
	m->trail = trail_push(&w->trail, name);
	w->depth++;
	w->s->res->dirs += m->fresh;
	return 0;
}

static int receive_up(struct receiver *w, struct err *e)
{
	struct made *m = &w->stack[--w->depth];
	int up = FD_NONE, r;

	/* First, since the mode may forbid it to us. Above where the copy began nothing has to be done. */
	r = w->depth ? open_up(w->cur, &m->above, &up, e) : 0;
	if (r < 0)
		return r;
	if (m->fresh) {
		if (fchmod(w->cur, m->mode) < 0)
			r = err_set(e, -errno, "cannot set the mode of '%.500s'", trail(&w->trail));
		set_times(w->cur, m->mtime.tv_sec, (uint32_t)m->mtime.tv_nsec);
	}
	trail_pop(&w->trail, m->trail);
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
		return lost(e, -EBADMSG);
	}
	if (r < 0 && e && e->why != WHY_CANCELLED) {
		size_t at = trail_push(&w->trail, name);

		(void)err_while(e, r, "'%.500s'", trail(&w->trail));
		trail_pop(&w->trail, at);
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
			return lost(e, r == 0 ? -ECONNRESET : r);
		if (f.kind == BOX_FAIL)
			return said(&f, e);
		if (f.kind != BOX_ENTRY || box_get_entry(&f, &x) < 0)
			return lost(e, -EBADMSG);
		memcpy(name, x.name, strlen(x.name) + 1);
		r = x.type == BOX_ENTRY_UP ? receive_up(w, e) : receive_one(w, &x, name, e);
	}
	return r;
}

int copy_receive(struct copy_stream *s, const struct box_entry *first, int dir_fd, const char *name, struct err *e)
{
	struct receiver w = { .s = s, .cur = FD_NONE, .trail = BUF_INIT(TRAIL_MAX) };
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

/* The client's two operations. */

static int began(struct err *e, int r, const struct copy_result *res)
{
	return r < 0 ? err_while(e, r, "after %llu files and %llu bytes", (unsigned long long)res->files,
				 (unsigned long long)res->bytes) : r;
}

static int ask(struct copy_stream *s, enum box_kind kind, const struct box_path *p, struct err *e)
{
	int r = box_put_path(&s->out, kind, p);

	if (r < 0)
		return err_why(e, WHY_BAD_REQUEST, r, "'%.200s' is not an absolute path of at most %u bytes", p->path,
			       BOX_PATH_MAX);
	(void)copy_flush(s);	/* init may have answered: read that */
	return 0;
}

/* BOX_OK, or why not. */
static int answered(struct copy_stream *s, struct err *e)
{
	struct box_frame f;
	int r = copy_next(s, &f);

	if (r <= 0)
		return lost(e, r == 0 ? -ECONNRESET : r);
	if (f.kind == BOX_FAIL)
		return said(&f, e);
	return f.kind == BOX_OK && f.len == 0 ? 0 : lost(e, -EBADMSG);
}

/*
 * Where something called `base` (NULL: content) goes when the named place is dir_fd/name: an existing directory takes
 * it in. *ret_dir is owned by the caller; *ret_name points to name, to base, or is NULL.
 */
static int destination(int dir_fd, const char *name, const char *base, int *ret_dir, const char **ret_name, struct err *e)
{
	struct stat st;
	int fd;

	if (strcmp(name, ".") != 0) {
		if (!box_name_ok(name))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.200s' is not the name of a file", name);
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
			return err_why(e, WHY_HOSTILE, -ELOOP, "'%.200s' is a link: name the place it leads to", name);
	}
	fd = open_below(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS);
	if (fd >= 0) {
		*ret_dir = fd;
		*ret_name = base;
		return 0;
	}
	if (fd != -ENOENT && fd != -ENOTDIR)
		return err_set(e, fd, "cannot enter '%.200s'", name);
	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "cannot enter the destination");
	*ret_dir = fd;
	*ret_name = name;
	return 0;
}

static int receive_all(struct copy_stream *s, int dir_fd, const char *name, const char *base, struct err *e)
{
	OWN_FD dir = FD_NONE;
	struct box_frame f;
	struct box_entry x;
	const char *as = NULL;
	int r = copy_next(s, &f);

	if (r <= 0)
		return lost(e, r == 0 ? -ECONNRESET : r);
	if (f.kind == BOX_FAIL)
		return said(&f, e);
	if (f.kind != BOX_ENTRY || box_get_entry(&f, &x) < 0)
		return lost(e, -EBADMSG);
	r = destination(dir_fd, name, base, &dir, &as, e);
	if (r == 0)
		r = copy_receive(s, &x, dir, as, e);
	return r < 0 ? r : answered(s, e);
}

int copy_out(int sock, const char *box_path, int dir_fd, const char *name, const struct copy_opts *o,
	     struct copy_result *ret, struct err *e)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct box_path p = {
		.path = box_path, .user = o->user, .flags = o->follow ? BOX_PATH_FOLLOW : 0, .max_bytes = o->max_bytes,
	};
	char base[BOX_NAME_MAX + 1];
	bool named = copy_last_name(box_path, base);
	struct copy_stream s;
	sigset_t set, old;
	int r;

	memset(ret, 0, sizeof(*ret));
	r = copy_stream_init(&s, sock, o, ret);
	if (r < 0)
		return err_set(e, r, "cannot copy");
	/* A temporary file is removed before a signal may end us. */
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&set, ends[i]);
	(void)sigprocmask(SIG_BLOCK, &set, &old);
	s.sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = ask(&s, BOX_GET, &p, e);
	if (r == 0)
		r = began(e, receive_all(&s, dir_fd, name, named ? base : NULL, e), ret);
	if (r == -EINTR && s.sig_fd >= 0) {
		struct signalfd_siginfo si;

		/* It is told by the result, and must not strike again when it is let through. */
		while (read(s.sig_fd, &si, sizeof(si)) > 0)
			;
	}
	fd_close(&s.sig_fd);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	copy_stream_done(&s);
	return r;
}

int copy_in(int sock, int dir_fd, const char *from, const char *box_path, const struct copy_opts *o,
	    struct copy_result *ret, struct err *e)
{
	struct box_path p = { .path = box_path, .user = o->user, .max_bytes = o->max_bytes };
	char base[BOX_NAME_MAX + 1];
	struct copy_stream s;
	int r, answer;

	memset(ret, 0, sizeof(*ret));
	if (!copy_last_name(from, base)) {
		p.flags = BOX_PATH_CONTENTS;
		memcpy(base, "content", 8);
	}
	r = copy_stream_init(&s, sock, o, ret);
	if (r < 0)
		return err_set(e, r, "cannot copy");
	r = ask(&s, BOX_PUT, &p, e);
	if (r == 0)
		r = answered(&s, e);
	if (r == 0) {
		r = copy_send(&s, dir_fd, from, base, true, e);
		if (r == 0)
			r = box_put(&s.out, BOX_OK, NULL, 0);
		if (r == 0)
			r = copy_flush(&s);
		/* When the box gave up first, its reason is the better one. */
		if (r == 0 || s.peer_lost) {
			answer = answered(&s, e);
			r = answer < 0 ? answer : r;
		}
		r = began(e, r, ret);
	}
	copy_stream_done(&s);
	return r;
}
