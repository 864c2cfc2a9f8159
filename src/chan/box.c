/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bodies. A reader that ran over its end, or met a value that has another spelling, is `bad` and stays so. */
struct reader {
	const uint8_t *p, *end;
	bool bad;
};

static uint64_t take(struct reader *r, unsigned bytes)
{
	uint64_t v = 0;

	if (r->bad || (size_t)(r->end - r->p) < bytes) {
		r->bad = true;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)r->p[i] << (8 * i);
	r->p += bytes;
	return v;
}

/* A number that may be at most `max`. */
static uint64_t take_max(struct reader *r, unsigned bytes, uint64_t max)
{
	uint64_t v = take(r, bytes);

	if (v > max)
		r->bad = true;
	return v;
}

/* A terminated string of at most `max` bytes. */
static const char *take_str(struct reader *r, size_t max)
{
	size_t left = (size_t)(r->end - r->p);
	const char *s = (const char *)r->p;
	const uint8_t *nul = r->bad || left == 0 ? NULL : memchr(r->p, '\0', left);

	if (!nul || (size_t)(nul - r->p) > max) {
		r->bad = true;
		return "";
	}
	r->p = nul + 1;
	return s;
}

static bool at_end(const struct reader *r)
{
	return !r->bad && r->p == r->end;
}

static struct reader reader_of(const struct box_frame *f)
{
	return (struct reader){ .p = f->body, .end = f->body + f->len };
}

static void put_int(struct buf *to, uint64_t v, unsigned bytes)
{
	uint8_t b[8];

	for (unsigned i = 0; i < bytes; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	(void)buf_put(to, b, bytes);
}

static void put_str(struct buf *to, const char *s)
{
	(void)buf_put(to, s, strlen(s) + 1);
}

/* A frame whose body is written piece by piece: the length is filled in at the end, and a failure takes it all back. */
static size_t frame_begin(struct buf *to, enum box_kind kind)
{
	size_t at = to->len;

	put_int(to, kind, 4);
	put_int(to, 0, 4);
	return at;
}

static int frame_end(struct buf *to, size_t at, enum box_kind kind)
{
	size_t n;

	if (to->failed)
		return to->failed;
	n = to->len - at - BOX_HEAD;
	if (n > box_body_max(kind)) {
		to->len = at;
		to->data[at] = '\0';
		return -EINVAL;
	}
	for (unsigned i = 0; i < 4; i++)
		to->data[at + 4 + i] = (char)(uint8_t)(n >> (8 * i));
	return 0;
}

size_t box_body_max(uint32_t kind)
{
	switch (kind) {
	case BOX_EXEC:
		return BOX_BODY_MAX;
	case BOX_GET:
	case BOX_PUT:
		return 12 + BOX_USER_MAX + 1 + BOX_PATH_MAX + 1;
	case BOX_STOP:
	case BOX_DIAL:
	case BOX_SIGNAL:
	case BOX_RESIZE:
	case BOX_STARTED:
		return 4;
	case BOX_EXIT:
		return 32 + BOX_TEXT_MAX;
	case BOX_OK:
		return 12;
	case BOX_FAIL:
		return 4 + ERR_TEXT_MAX - 1;
	case BOX_DATA:
		return BOX_DATA_MAX;
	case BOX_ENTRY:
		return 17 + BOX_NAME_MAX + 1 + BOX_PATH_MAX + 1;
	case BOX_HOLE:
		return 8;
	default:
		return 0;
	}
}

static bool kind_ok(uint32_t kind)
{
	return (kind >= BOX_EXEC && kind <= BOX_DIAL) || (kind >= BOX_SIGNAL && kind <= BOX_HANGUP) ||
	       (kind >= BOX_STARTED && kind < BOX_KIND_END);
}

ssize_t box_peek(const void *buf, size_t n, struct box_frame *ret, size_t *ret_need)
{
	struct reader r = { .p = buf, .end = (const uint8_t *)buf + n };
	uint32_t kind, len;

	if (ret_need)
		*ret_need = BOX_HEAD;
	if (n < BOX_HEAD)
		return 0;
	kind = (uint32_t)take(&r, 4);
	len = (uint32_t)take(&r, 4);
	/* Judged before waiting for a body that may never come. */
	if (!kind_ok(kind) || len > box_body_max(kind))
		return -EBADMSG;
	if (ret_need)
		*ret_need = BOX_HEAD + (size_t)len;
	if (n - BOX_HEAD < len)
		return 0;
	ret->kind = (enum box_kind)kind;
	ret->body = r.p;
	ret->len = len;
	return BOX_HEAD + (ssize_t)len;
}

int box_put(struct buf *to, enum box_kind kind, const void *body, size_t n)
{
	size_t at = frame_begin(to, kind);

	(void)buf_put(to, body, n);
	return frame_end(to, at, kind);
}

int box_put_u32(struct buf *to, enum box_kind kind, uint32_t v)
{
	size_t at = frame_begin(to, kind);

	put_int(to, v, 4);
	return frame_end(to, at, kind);
}

int box_get_u32(const struct box_frame *f, uint32_t *ret)
{
	struct reader r = reader_of(f);
	uint32_t v = (uint32_t)take(&r, 4);

	if (!at_end(&r))
		return -EBADMSG;
	if (f->kind == BOX_SIGNAL && (v < 1 || v > 64))
		return -EBADMSG;
	if (f->kind == BOX_DIAL && (v < 1 || v > 65535))
		return -EBADMSG;
	if (f->kind == BOX_STARTED && (v < 1 || v > INT32_MAX))
		return -EBADMSG;
	*ret = v;
	return 0;
}

/* EXEC: u8 in, out, err, flags; u16 rows, cols; u32 umask, argc, envc; u64 timeout; then the strings. */
enum { EXEC_DETACH = 1, EXEC_ANNOUNCE = 2, EXEC_USER = 4, EXEC_CWD = 8, EXEC_FLAGS = 15 };

static bool env_ok(const char *s)
{
	const char *eq = strchr(s, '=');

	return eq && eq != s;
}

/* What can't be told by one field alone. */
static bool exec_ok(const struct box_exec *x)
{
	bool tty = x->in == BOX_STDIO_TTY;

	if ((unsigned)x->in > BOX_STDIO_TTY || (unsigned)x->out > BOX_STDIO_TTY || (unsigned)x->err > BOX_STDIO_TTY)
		return false;
	if ((x->out == BOX_STDIO_TTY) != tty || (x->err == BOX_STDIO_TTY) != tty)
		return false;
	if (x->in == BOX_STDIO_SAME || x->out == BOX_STDIO_SAME)
		return false;
	if (!tty && (x->rows || x->cols))
		return false;
	if (x->user && (!x->user[0] || strlen(x->user) > BOX_USER_MAX))
		return false;
	if (x->cwd && (x->cwd[0] != '/' || strlen(x->cwd) > BOX_PATH_MAX))
		return false;
	return x->umask <= 0777 && x->timeout_ms <= BOX_TIMEOUT_MAX;
}

unsigned box_exec_fds(const struct box_exec *x)
{
	return (x->in == BOX_STDIO_PIPE) + (x->out == BOX_STDIO_PIPE) + (x->err == BOX_STDIO_PIPE);
}

int box_put_exec(struct buf *to, const struct box_exec *x)
{
	size_t at, argc = 0, envc = 0;

	if (!x->argv || !exec_ok(x))
		return -EINVAL;
	while (x->argv[argc])
		argc++;
	for (; x->env && x->env[envc]; envc++)
		if (!env_ok(x->env[envc]))
			return -EINVAL;
	if (argc < 1 || argc > BOX_ARGS_MAX || envc > BOX_ENV_MAX)
		return -EINVAL;

	at = frame_begin(to, BOX_EXEC);
	put_int(to, x->in, 1);
	put_int(to, x->out, 1);
	put_int(to, x->err, 1);
	put_int(to, (x->detach ? EXEC_DETACH : 0) | (x->announce ? EXEC_ANNOUNCE : 0) | (x->user ? EXEC_USER : 0) |
		(x->cwd ? EXEC_CWD : 0), 1);
	put_int(to, x->rows, 2);
	put_int(to, x->cols, 2);
	put_int(to, x->umask, 4);
	put_int(to, argc, 4);
	put_int(to, envc, 4);
	put_int(to, x->timeout_ms, 8);
	if (x->user)
		put_str(to, x->user);
	if (x->cwd)
		put_str(to, x->cwd);
	for (size_t i = 0; i < argc; i++)
		put_str(to, x->argv[i]);
	for (size_t i = 0; i < envc; i++)
		put_str(to, x->env[i]);
	return frame_end(to, at, BOX_EXEC);
}

int box_get_exec(const struct box_frame *f, struct box_exec *ret, void **ret_mem)
{
	struct reader r = reader_of(f);
	struct box_exec x = { 0 };
	uint32_t flags, argc, envc;
	OWN_MEM char **vec = NULL;

	x.in = (enum box_stdio)take(&r, 1);
	x.out = (enum box_stdio)take(&r, 1);
	x.err = (enum box_stdio)take(&r, 1);
	flags = (uint32_t)take_max(&r, 1, EXEC_FLAGS);
	x.rows = (uint16_t)take(&r, 2);
	x.cols = (uint16_t)take(&r, 2);
	x.umask = (uint32_t)take(&r, 4);
	argc = (uint32_t)take_max(&r, 4, BOX_ARGS_MAX);
	envc = (uint32_t)take_max(&r, 4, BOX_ENV_MAX);
	x.timeout_ms = take(&r, 8);
	x.detach = flags & EXEC_DETACH;
	x.announce = flags & EXEC_ANNOUNCE;
	if (flags & EXEC_USER)
		x.user = take_str(&r, BOX_USER_MAX);
	if (flags & EXEC_CWD)
		x.cwd = take_str(&r, BOX_PATH_MAX);
	/* A string takes at least its terminator, so the counts are bounded by the body before memory is. */
	if (r.bad || argc < 1 || !exec_ok(&x) || (size_t)argc + envc > (size_t)(r.end - r.p))
		return -EBADMSG;

	vec = calloc((size_t)argc + envc + 2, sizeof(*vec));
	if (!vec)
		return -ENOMEM;
	for (uint32_t i = 0; i < argc; i++)
		vec[i] = (char *)take_str(&r, BOX_BODY_MAX);
	for (uint32_t i = 0; i < envc; i++) {
		vec[argc + 1 + i] = (char *)take_str(&r, BOX_BODY_MAX);
		if (!env_ok(vec[argc + 1 + i]))
			r.bad = true;
	}
	if (!at_end(&r))
		return -EBADMSG;
	x.argv = vec;
	x.env = vec + argc + 1;
	*ret = x;
	*ret_mem = vec;
	vec = NULL;
	return 0;
}

/* EXIT: u8 kind, core; u16 0; u32 status; u64 wall, cpu, rss; then the text, not terminated. */
static bool exit_ok(const struct box_exit *x, size_t text)
{
	switch (x->kind) {
	case BOX_EXITED:
		return x->status <= 255 && !x->core && text == 0;
	case BOX_SIGNALED:
		return x->status >= 1 && x->status <= 64 && text == 0;
	case BOX_TIMED_OUT:
		return x->status == 0 && !x->core;
	case BOX_NOT_STARTED:
		return x->status >= 1 && x->status <= 4095 && !x->core;
	}
	return false;
}

int box_put_exit(struct buf *to, const struct box_exit *x)
{
	size_t n = strnlen(x->text, sizeof(x->text)), at;

	if (n == sizeof(x->text) || !exit_ok(x, n))
		return -EINVAL;
	at = frame_begin(to, BOX_EXIT);
	put_int(to, x->kind, 1);
	put_int(to, x->core, 1);
	put_int(to, 0, 2);
	put_int(to, x->status, 4);
	put_int(to, x->wall_us, 8);
	put_int(to, x->cpu_us, 8);
	put_int(to, x->max_rss_kib, 8);
	(void)buf_put(to, x->text, n);
	return frame_end(to, at, BOX_EXIT);
}

int box_get_exit(const struct box_frame *f, struct box_exit *ret)
{
	struct reader r = reader_of(f);
	struct box_exit x = { 0 };
	size_t n;

	x.kind = (enum box_exit_kind)take_max(&r, 1, BOX_NOT_STARTED);
	x.core = take_max(&r, 1, 1);
	(void)take_max(&r, 2, 0);
	x.status = (uint32_t)take(&r, 4);
	x.wall_us = take(&r, 8);
	x.cpu_us = take(&r, 8);
	x.max_rss_kib = take(&r, 8);
	if (r.bad)
		return -EBADMSG;
	n = (size_t)(r.end - r.p);
	if (n > BOX_TEXT_MAX || (n > 0 && memchr(r.p, '\0', n)) || !exit_ok(&x, n))
		return -EBADMSG;
	if (n > 0)
		memcpy(x.text, r.p, n);
	*ret = x;
	return 0;
}

int box_put_idle(struct buf *to, const struct box_idle *x)
{
	size_t at = frame_begin(to, BOX_OK);

	put_int(to, x->active, 4);
	put_int(to, x->idle_ms, 8);
	return frame_end(to, at, BOX_OK);
}

int box_get_idle(const struct box_frame *f, struct box_idle *ret)
{
	struct reader r = reader_of(f);
	struct box_idle x = { 0 };

	x.active = (uint32_t)take(&r, 4);
	x.idle_ms = take(&r, 8);
	if (!at_end(&r))
		return -EBADMSG;
	*ret = x;
	return 0;
}

/* GET, PUT: u32 flags; u64 max_bytes; user (empty: NULL); path. */
int box_put_path(struct buf *to, enum box_kind kind, const struct box_path *x)
{
	size_t at;

	if (x->flags > BOX_PATH_FLAGS || !x->path || x->path[0] != '/' || strlen(x->path) > BOX_PATH_MAX)
		return -EINVAL;
	if (x->user && (!x->user[0] || strlen(x->user) > BOX_USER_MAX))
		return -EINVAL;
	at = frame_begin(to, kind);
	put_int(to, x->flags, 4);
	put_int(to, x->max_bytes, 8);
	put_str(to, x->user ? x->user : "");
	put_str(to, x->path);
	return frame_end(to, at, kind);
}

int box_get_path(const struct box_frame *f, struct box_path *ret)
{
	struct reader r = reader_of(f);
	struct box_path x = { 0 };

	x.flags = (uint32_t)take_max(&r, 4, BOX_PATH_FLAGS);
	x.max_bytes = take(&r, 8);
	x.user = take_str(&r, BOX_USER_MAX);
	x.path = take_str(&r, BOX_PATH_MAX);
	if (!at_end(&r) || x.path[0] != '/')
		return -EBADMSG;
	if (!x.user[0])
		x.user = NULL;
	*ret = x;
	return 0;
}

/* A name that can't lead anywhere but into the directory it is used in. */
bool box_name_ok(const char *s)
{
	return s[0] && strcmp(s, ".") != 0 && strcmp(s, "..") != 0 && !strchr(s, '/') && strlen(s) <= BOX_NAME_MAX;
}

static bool entry_ok(const struct box_entry *x)
{
	if ((unsigned)x->type >= BOX_ENTRY_TYPES || x->mtime_ns > 999999999)
		return false;
	if (x->mode > (x->type == BOX_ENTRY_SKIP ? 4095u : 07777u))
		return false;
	if (x->type == BOX_ENTRY_UP)
		return !x->name[0] && !x->target[0] && !x->mode && !x->mtime_s && !x->mtime_ns;
	if (!box_name_ok(x->name))
		return false;
	return (x->type == BOX_ENTRY_LINK) == (x->target[0] != '\0') && strlen(x->target) <= BOX_PATH_MAX;
}

/* ENTRY: u8 type; u32 mode; i64 seconds; u32 nanoseconds; name; target. */
int box_put_entry(struct buf *to, const struct box_entry *x)
{
	size_t at;

	if (!x->name || !x->target || !entry_ok(x))
		return -EINVAL;
	at = frame_begin(to, BOX_ENTRY);
	put_int(to, x->type, 1);
	put_int(to, x->mode, 4);
	put_int(to, (uint64_t)x->mtime_s, 8);
	put_int(to, x->mtime_ns, 4);
	put_str(to, x->name);
	put_str(to, x->target);
	return frame_end(to, at, BOX_ENTRY);
}

int box_get_entry(const struct box_frame *f, struct box_entry *ret)
{
	struct reader r = reader_of(f);
	struct box_entry x = { 0 };

	x.type = (enum box_entry_type)take_max(&r, 1, BOX_ENTRY_TYPES - 1);
	x.mode = (uint32_t)take(&r, 4);
	x.mtime_s = (int64_t)take(&r, 8);
	x.mtime_ns = (uint32_t)take(&r, 4);
	x.name = take_str(&r, BOX_NAME_MAX);
	x.target = take_str(&r, BOX_PATH_MAX);
	if (!at_end(&r) || !entry_ok(&x))
		return -EBADMSG;
	*ret = x;
	return 0;
}

int box_put_resize(struct buf *to, uint16_t rows, uint16_t cols)
{
	size_t at = frame_begin(to, BOX_RESIZE);

	put_int(to, rows, 2);
	put_int(to, cols, 2);
	return frame_end(to, at, BOX_RESIZE);
}

int box_get_resize(const struct box_frame *f, uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct reader r = reader_of(f);
	uint16_t rows = (uint16_t)take(&r, 2), cols = (uint16_t)take(&r, 2);

	if (!at_end(&r))
		return -EBADMSG;
	*ret_rows = rows;
	*ret_cols = cols;
	return 0;
}

int box_put_hole(struct buf *to, uint64_t n)
{
	size_t at;

	if (n == 0 || n > INT64_MAX)
		return -EINVAL;
	at = frame_begin(to, BOX_HOLE);
	put_int(to, n, 8);
	return frame_end(to, at, BOX_HOLE);
}

int box_get_hole(const struct box_frame *f, uint64_t *ret)
{
	struct reader r = reader_of(f);
	uint64_t n = take_max(&r, 8, INT64_MAX);

	if (!at_end(&r) || n == 0)
		return -EBADMSG;
	*ret = n;
	return 0;
}

int box_put_fail(struct buf *to, int code, const char *text)
{
	size_t n = strnlen(text, ERR_TEXT_MAX - 1), at;

	if (code >= 0 || code < -4095)
		code = -EIO;
	at = frame_begin(to, BOX_FAIL);
	put_int(to, (uint64_t)-code, 4);
	(void)buf_put(to, text, n);
	return frame_end(to, at, BOX_FAIL);
}

int box_get_fail(const struct box_frame *f, struct err *e)
{
	struct reader r = reader_of(f);
	uint32_t code = (uint32_t)take_max(&r, 4, 4095);
	char text[ERR_TEXT_MAX] = "";
	size_t n;

	if (r.bad || code == 0)
		return -EBADMSG;
	n = (size_t)(r.end - r.p);
	if (n >= sizeof(text) || (n > 0 && memchr(r.p, '\0', n)))
		return -EBADMSG;
	if (n > 0)
		memcpy(text, r.p, n);
	/* err_why() takes control characters out; the errno gives the cause its word. */
	(void)err_set(e, -(int)code, "%s", "");
	return err_why(e, e ? e->why : WHY_INTERNAL, -(int)code, "%s", text[0] ? text : "the box gave no reason");
}
