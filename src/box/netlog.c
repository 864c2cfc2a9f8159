/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "net/ctl.h"

/*
 * STATE/net/log, log.1, log.2: lines that the gateway writes (net/ctl.h). STATE/net/owners, owners.1: whose box an id was, written by
 * the daemon alone; without it nobody but root could be shown the lines of a box that is gone.
 *
 * A log is read a block at a time, from its end, so that the loop serves others meanwhile.
 */
#define OWNERS_BYTES (1u << 20)
#define BLOCK 131072u
#define LINE_MAX_BYTES 65536u
#define ANSWER_BYTES (4u << 20)
#define FILES 3
#define FLUSH_MS 1000	/* for the gateway to write what it holds */
#define LINES_MOST 100000

static void path_of(const struct daemon *d, const char *name, char *ret, size_t n)
{
	(void)snprintf(ret, n, "%s/net/%s", d->state_dir, name);
}

static int open_log(struct net *n, struct err *e)
{
	char path[1200];
	int fd;

	path_of(n->d, "", path, sizeof(path));
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(e, -errno, "cannot make '%s'", path);
	path_of(n->d, "log", path, sizeof(path));
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	return fd >= 0 ? fd : err_set(e, -errno, "connections can't be logged in '%s'", path);
}

int netlog_open(struct net *n, struct err *e)
{
	int fd = open_log(n, e);

	if (fd < 0)
		return fd;
	n->log_fd = fd;
	return 0;
}

static void move(const struct daemon *d, const char *from, const char *to)
{
	char a[1200], b[1200];

	path_of(d, from, a, sizeof(a));
	path_of(d, to, b, sizeof(b));
	(void)rename(a, b);
}

void netlog_rotate(struct net *n)
{
	struct buf text = BUF_INIT(64);
	struct stat st;
	int fd;

	/* At its word alone it could make us throw away what it wrote before. */
	if (n->log_fd < 0 || fstat(n->log_fd, &st) < 0 || st.st_size < LOG_ROTATE_BYTES / 2)
		return;
	move(n->d, "log.1", "log.2");
	move(n->d, "log", "log.1");
	fd = open_log(n, NULL);
	if (fd < 0)
		return;
	fd_close(&n->log_fd);
	n->log_fd = fd;
	(void)buf_puts(&text, "{\"op\":\"log\"}");
	gateway_send(n, &text, fd);
}

/* ---------------------------------------------------------------- whose lines */

static void put_owner(int fd, const struct box *b)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%s %u\n", b->id, b->owner);

	if (write(fd, line, (size_t)n) < 0)
		return;	/* a full disk: then root alone is shown them once the box is gone */
}

static int open_owners(const struct daemon *d)
{
	char path[1200];

	path_of(d, "owners", path, sizeof(path));
	return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
}

void netlog_owner(struct box *b)
{
	OWN_FD fd = open_owners(b->d);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > OWNERS_BYTES) {
		move(b->d, "owners", "owners.1");
		fd_close(&fd);
		fd = open_owners(b->d);
		for (const struct box *k = b->d->boxes; k && fd >= 0; k = k->next)
			if (k->net_on && k != b)
				put_owner(fd, k);
	}
	if (fd >= 0)
		put_owner(fd, b);
}

typedef char id_text[ID_LEN + 1];

struct ids {
	id_text *all;
	size_t n, room;
};

static bool ids_add(struct ids *s, const char *id)
{
	if (s->n == s->room) {
		size_t room = s->room ? s->room * 2 : 64;
		id_text *more = reallocarray(s->all, room, sizeof(*more));

		if (!more)
			return false;
		s->all = more;
		s->room = room;
	}
	memcpy(s->all[s->n], id, ID_LEN);
	s->all[s->n++][ID_LEN] = '\0';
	return true;
}

static int id_order(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool ids_has(const struct ids *s, const char *id)
{
	return s->n > 0 && bsearch(id, s->all, s->n, sizeof(*s->all), id_order);
}

static void ids_of_file(struct ids *s, const struct daemon *d, const char *name, uid_t uid)
{
	char path[1200], line[128], id[ID_LEN + 1];
	unsigned owner;
	FILE *f;

	path_of(d, name, path, sizeof(path));
	f = fopen(path, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%20s %u", id, &owner) == 2 && owner == uid && id_ok(id))
			(void)ids_add(s, id);
	(void)fclose(f);
}

static void ids_of_user(struct ids *s, const struct daemon *d, uid_t uid)
{
	for (const struct box *b = d->boxes; b; b = b->next)
		if (b->owner == uid && !b->pooled)
			(void)ids_add(s, b->id);
	ids_of_file(s, d, "owners.1", uid);
	ids_of_file(s, d, "owners", uid);
	if (s->n > 0)
		qsort(s->all, s->n, sizeof(*s->all), id_order);
}

/* ---------------------------------------------------------------- reading */

struct reading {
	struct req *q;
	struct ids ids;
	bool all;
	char since[40];
	char gone[128];		/* the name of boxes that are gone: of the lines in `ids` only theirs */
	int64_t lines;

	int fds[FILES];
	unsigned at;
	off_t pos;		/* backward: where the part that was read begins. Forward: where it ends */
	bool forward;
	struct buf tail;	/* backward: the beginning of what was read, which is the end of a line. Forward: a line's beginning */
	char cursor[64];

	char **taken;
	size_t ntaken, room, bytes;
	struct loop_timer turn;
	struct reading *next;	/* of those that wait for the gateway to have written what it holds */
};

static void reading_free(struct reading *r)
{
	for (size_t i = 0; i < r->ntaken; i++)
		free(r->taken[i]);
	for (unsigned i = 0; i < FILES; i++)
		fd_close(&r->fds[i]);
	free(r->taken);
	free(r->ids.all);
	buf_done(&r->tail);
	free(r);
}

static void answer(struct reading *r)
{
	struct buf text = BUF_INIT(MSG_MAX);
	struct json_out o;

	answer_begin(&o, &text);
	json_put_arr(&o, "lines");
	for (size_t i = 0; i < r->ntaken; i++) {
		const char *line = r->taken[r->forward ? i : r->ntaken - 1 - i];
		OWN_JSON doc = { 0 };

		/* Parsed and written anew: what a client gets is what it says it is, whoever wrote the file. */
		if (json_parse(line, strlen(line), &doc, NULL) == 0)
			json_put_value(&o, NULL, doc.root);
	}
	json_end_arr(&o);
	json_put_str(&o, "cursor", r->cursor);
	json_end_obj(&o);
	/* No box and no line: the request fails as any that names none. */
	if (r->gone[0] && r->ntaken == 0 && !r->forward && !op_box(r->q, false)) {
		buf_done(&text);
	} else {
		req_ok(r->q, &text, NULL, 0);
	}
	reading_free(r);
}

/* A line of a box of this name? Written by the gateway, so that a box's own texts can't stand in for it: "name" follows "box". */
static bool is_named(const char *line, size_t n, const char *at, const char *name)
{
	char key[256];
	int k = snprintf(key, sizeof(key), "\",\"name\":\"%s\"", name);

	return k > 0 && (size_t)k < sizeof(key) && (size_t)(line + n - at) >= (size_t)k && memcmp(at, key, (size_t)k) == 0;
}

/* Is it a line for the one who asks? Cheap: most lines are others'. */
static bool wanted(const struct reading *r, const char *line, size_t n)
{
	static const char key[] = "\"box\":\"", when[] = "\"time\":\"";
	const char *at = memmem(line, n, key, sizeof(key) - 1), *t;
	char id[ID_LEN + 1];

	if (!at || (size_t)(line + n - at) < sizeof(key) + ID_LEN)
		return false;
	memcpy(id, at + sizeof(key) - 1, ID_LEN);
	id[ID_LEN] = '\0';
	if (!r->all && !ids_has(&r->ids, id))
		return false;
	if (r->gone[0] && !is_named(line, n, at + sizeof(key) - 1 + ID_LEN, r->gone))
		return false;
	if (!r->since[0])
		return true;
	t = memmem(line, n, when, sizeof(when) - 1);
	/* Times are of one length, in UTC: their order is that of the text. */
	return t && (size_t)(line + n - t) > sizeof(when) + 24 && memcmp(t + sizeof(when) - 1, r->since, 23) >= 0;
}

static bool full(const struct reading *r)
{
	return (int64_t)r->ntaken >= r->lines || r->bytes >= ANSWER_BYTES;
}

static void take(struct reading *r, const char *line, size_t n)
{
	char *copy;

	if (n == 0 || n > LINE_MAX_BYTES || full(r) || !wanted(r, line, n))
		return;
	if (r->ntaken == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		char **more = reallocarray(r->taken, room, sizeof(*more));

		if (!more)
			return;
		r->taken = more;
		r->room = room;
	}
	copy = strndup(line, n);
	if (!copy)
		return;
	r->taken[r->ntaken++] = copy;
	r->bytes += n;
}

/* One block nearer to the beginning. False when the file is done. */
static bool back(struct reading *r)
{
	OWN_BUF text = BUF_INIT(BLOCK + LINE_MAX_BYTES + 2);
	size_t want = r->pos > (off_t)BLOCK ? BLOCK : (size_t)r->pos, end;
	off_t from = r->pos - (off_t)want;
	ssize_t k;

	if (want == 0 || buf_reserve(&text, want + r->tail.len) < 0)
		return false;
	k = pread(r->fds[r->at], text.data, want, from);
	if (k != (ssize_t)want)
		return false;
	text.len = want;
	(void)buf_put(&text, r->tail.data ? r->tail.data : "", r->tail.len);
	r->pos = from;
	for (end = text.len; end > 0 && !full(r);) {
		const char *nl = memrchr(text.data, '\n', end);
		size_t begin = nl ? (size_t)(nl - text.data) + 1 : 0;

		if (!nl && from > 0)
			break;
		take(r, text.data + begin, end - begin);
		end = nl ? begin - 1 : 0;
	}
	buf_reset(&r->tail);
	/* One without an end within reason is nobody's line. */
	if (end <= LINE_MAX_BYTES)
		(void)buf_put(&r->tail, text.data, end);
	return from > 0;
}

static bool ahead(struct reading *r)
{
	OWN_BUF text = BUF_INIT(BLOCK + LINE_MAX_BYTES + 2);
	size_t at = 0;
	ssize_t k;

	if (buf_put(&text, r->tail.data ? r->tail.data : "", r->tail.len) < 0 || buf_reserve(&text, BLOCK) < 0)
		return false;
	k = pread(r->fds[r->at], text.data + text.len, BLOCK, r->pos);
	if (k <= 0)
		return false;
	text.len += (size_t)k;
	r->pos += k;
	while (at < text.len) {
		const char *nl = memchr(text.data + at, '\n', text.len - at);

		if (!nl)
			break;
		take(r, text.data + at, (size_t)(nl - text.data) - at);
		at = (size_t)(nl - text.data) + 1;
	}
	buf_reset(&r->tail);
	if (text.len - at <= LINE_MAX_BYTES)
		(void)buf_put(&r->tail, text.data + at, text.len - at);
	return true;
}

static void set_cursor(struct reading *r, int fd, off_t at)
{
	struct stat st;

	if (fstat(fd, &st) == 0)
		(void)snprintf(r->cursor, sizeof(r->cursor), "%" PRIu64 ":%" PRId64, (uint64_t)st.st_ino, (int64_t)at);
}

static void turn(void *arg)
{
	struct reading *r = arg;

	if (!r->q->conn) {
		answer(r);
		return;
	}
	if (r->at < FILES && r->fds[r->at] >= 0 && !full(r)) {
		if (r->forward && !ahead(r)) {
			/* What has no end yet is looked at again. */
			set_cursor(r, r->fds[r->at], r->pos - (off_t)r->tail.len);
			buf_reset(&r->tail);
			r->pos = 0;
			r->at = r->at > 0 ? r->at - 1 : FILES;
		} else if (!r->forward && !back(r)) {
			buf_reset(&r->tail);
			r->at++;
			r->pos = r->at < FILES && r->fds[r->at] >= 0 ? lseek(r->fds[r->at], 0, SEEK_END) : 0;
		}
		loop_timer_set(r->q->d->loop, &r->turn, 0, turn, r);
		return;
	}
	if (r->forward && r->at < FILES && r->fds[r->at] >= 0)
		set_cursor(r, r->fds[r->at], r->pos - (off_t)r->tail.len);
	answer(r);
}

/* Where a reader that follows was. Its file may have been moved on meanwhile. */
static void go_on_after(struct reading *r, const char *after)
{
	uint64_t ino = 0;
	int64_t at = 0;

	r->forward = true;
	r->at = 0;
	if (sscanf(after, "%" SCNu64 ":%" SCNd64, &ino, &at) != 2 || at < 0)
		return;
	for (unsigned i = 0; i < FILES; i++) {
		struct stat st;

		if (r->fds[i] < 0 || fstat(r->fds[i], &st) < 0 || st.st_ino != ino)
			continue;
		r->at = i;
		r->pos = at <= st.st_size ? at : st.st_size;
	}
}

static void begin(struct reading *r, const char *after)
{
	static const char *const names[FILES] = { "log", "log.1", "log.2" };
	char path[1200];

	for (unsigned i = 0; i < FILES; i++) {
		path_of(r->q->d, names[i], path, sizeof(path));
		r->fds[i] = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	}
	if (r->fds[0] >= 0) {
		r->pos = lseek(r->fds[0], 0, SEEK_END);
		set_cursor(r, r->fds[0], r->pos);
	}
	if (after)
		go_on_after(r, after);
	turn(r);
}

/* The gateway has written everything, or doesn't say so in time. */
static void begin_late(void *arg)
{
	struct reading *r = arg;

	for (struct reading **p = &r->q->d->net->readings; *p; p = &(*p)->next)
		if (*p == r) {
			*p = r->next;
			break;
		}
	begin(r, NULL);
}

void op_net_log(struct req *q)
{
	const char *name = json_str(q->doc.root, "box", NULL), *after = json_str(q->doc.root, "cursor", NULL);
	int64_t lines = json_int(q->doc.root, "lines", 100), since = json_int(q->doc.root, "since_ms", 0);
	struct reading *r = calloc(1, sizeof(*r));
	struct buf flush = BUF_INIT(64);

	if (!r) {
		op_fail(q, WHY_LIMIT, -ENOMEM, "no memory for the answer");
		return;
	}
	r->q = q;
	r->tail.max = LINE_MAX_BYTES + 1;
	for (unsigned i = 0; i < FILES; i++)
		r->fds[i] = FD_NONE;
	r->all = q->uid == 0 && json_bool(q->doc.root, "all", false) && !name;
	if (!r->all)
		ids_of_user(&r->ids, q->d, q->uid);
	if (name) {
		/* The id of one that is gone names its lines still. */
		bool gone = id_ok(name) && ids_has(&r->ids, name) && !box_find(q->d, q->uid, false, name);
		bool named = !gone && !id_ok(name) && strlen(name) < sizeof(r->gone) && !strpbrk(name, "\"\\") &&
			     !box_find(q->d, q->uid, q->uid == 0 && json_bool(q->doc.root, "all", false), name);
		struct box *b = gone || named ? NULL : op_box(q, false);

		if (!gone && !named && !b) {
			reading_free(r);
			return;
		}
		if (named) {
			(void)snprintf(r->gone, sizeof(r->gone), "%s", name);
		} else {
			r->ids.n = 0;
			if (!ids_add(&r->ids, b ? b->id : name)) {
				reading_free(r);
				op_fail(q, WHY_LIMIT, -ENOMEM, "no memory for the answer");
				return;
			}
		}
	}
	r->lines = lines < 0 || lines > LINES_MOST ? LINES_MOST : lines;
	if (since > 0) {
		time_t t = time(NULL) - (time_t)(since / 1000);
		struct tm tm;

		if (gmtime_r(&t, &tm))
			(void)strftime(r->since, sizeof(r->since), "%Y-%m-%dT%H:%M:%S.000Z", &tm);
	}
	if (after || !q->d->net->ready) {
		begin(r, after);
		return;
	}
	/* A refusal is held for a second, for others of its kind: who reads wants to see it now. */
	(void)buf_puts(&flush, "{\"op\":\"flush\"}");
	gateway_send(q->d->net, &flush, FD_NONE);
	r->next = q->d->net->readings;
	q->d->net->readings = r;
	loop_timer_set(q->d->loop, &r->turn, FLUSH_MS, begin_late, r);
}

void netlog_flushed(struct net *n)
{
	while (n->readings) {
		struct reading *r = n->readings;

		n->readings = r->next;
		loop_timer_set(n->d->loop, &r->turn, 0, begin_late, r);
	}
}
