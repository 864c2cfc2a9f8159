/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/copy_walk.h"

#include <errno.h>
#include <fcntl.h>
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

int copy_stream_init(struct copy_stream *s, int sock, const struct copy_opts *o, struct copy_result *res)
{
	memset(s, 0, sizeof(*s));
	s->sock = sock;
	s->sig_fd = FD_NONE;
	s->o = o;
	s->res = res;
	s->out.max = WALK_FLUSH + 2 * (BOX_DATA_MAX + BOX_HEAD);
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

int walk_lost(struct err *e, int r)
{
	if (r == -EINTR)
		return err_why(e, WHY_CANCELLED, r, "interrupted");
	if (r == -EBADMSG)
		return err_why(e, WHY_HOSTILE, r, "the other end's answer is not of the box protocol");
	return err_set(e, r, "the connection to the other end is lost");
}

int walk_said(const struct box_frame *f, struct err *e)
{
	struct err own = ERR_INIT;
	int r = box_get_fail(f, &own);

	if (!own.code)
		return walk_lost(e, -EBADMSG);
	return err_why(e, own.why, r, "%s", own.text);
}

static int too_big(const struct copy_stream *s, struct err *e)
{
	return err_why(e, WHY_LIMIT, -EFBIG, "there are more than the %llu bytes that were allowed",
		       (unsigned long long)s->o->max_bytes);
}

int walk_count_bytes(struct copy_stream *s, size_t n, struct err *e)
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

size_t walk_trail_push(struct buf *t, const char *name)
{
	size_t at = t->len;

	if (at + strlen(name) + 2 < WALK_TRAIL_MAX) {
		if (at)
			(void)buf_putc(t, '/');
		(void)buf_puts(t, name);
	}
	return at;
}

void walk_trail_pop(struct buf *t, size_t at)
{
	if (t->data && at <= t->len) {
		t->len = at;
		t->data[at] = '\0';
	}
}

const char *walk_trail(const struct buf *t)
{
	return t->data ? t->data : "";
}

int walk_place_of(int fd, struct walk_place *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	return 0;
}

int walk_open_up(int cur, const struct walk_place *expected, int *ret_fd, struct err *e)
{
	OWN_FD up = openat(cur, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct walk_place p;
	int r;

	if (up < 0)
		return err_set(e, -errno, "cannot go back to the directory above");
	r = walk_place_of(up, &p);
	if (r < 0)
		return err_set(e, r, "cannot look at the directory above");
	if (p.dev != expected->dev || p.ino != expected->ino)
		return err_why(e, WHY_HOSTILE, -EXDEV, "a directory was moved while it was being copied");
	*ret_fd = fd_take(&up);
	return 0;
}

int walk_open_below(int dir_fd, const char *name, int flags, uint64_t resolve)
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
		return walk_lost(e, r == 0 ? -ECONNRESET : r);
	if (f.kind == BOX_FAIL)
		return walk_said(&f, e);
	return f.kind == BOX_OK && f.len == 0 ? 0 : walk_lost(e, -EBADMSG);
}

/*
 * Where something called `base` (NULL: content) goes when the named place is dir_fd/name: an existing directory takes
 * it in. *ret_dir is owned by the caller; *ret_name points to name, to base, or is NULL.
 */
static int destination(int dir_fd, const char *name, const char *base, int *ret_dir, const char **ret_name,
		       struct err *e)
{
	struct stat st;
	int fd;

	if (strcmp(name, ".") != 0) {
		if (!box_name_ok(name))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.200s' is not the name of a file", name);
		if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
			return err_why(e, WHY_HOSTILE, -ELOOP, "'%.200s' is a link: name the place it leads to", name);
	}
	fd = walk_open_below(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS);
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
		return walk_lost(e, r == 0 ? -ECONNRESET : r);
	if (f.kind == BOX_FAIL)
		return walk_said(&f, e);
	if (f.kind != BOX_ENTRY || box_get_entry(&f, &x) < 0)
		return walk_lost(e, -EBADMSG);
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
