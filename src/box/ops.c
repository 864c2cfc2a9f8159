/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "box/net.h"
#include "net/proxyurl.h"
#include "sys/path.h"

/* A disk with less than this left is "full" when a command failed. */
#define DISK_FULL_BYTES (128u << 10)

void op_fail(struct req *q, enum why why, int code, const char *fmt, ...)
{
	struct err e = ERR_INIT;
	char text[ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)err_why(&e, why, code, "%s", text);
	req_fail(q, &e);
}

void op_answer_box(struct req *q, const struct box *b)
{
	struct buf text = BUF_INIT(SPEC_TEXT_MAX + 4096);
	struct json_out o;

	answer_begin(&o, &text);
	box_write(b, &o, "box", false);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* Dispatch it anew when the operation under way is over. */
static void wait_for(struct req *q, struct box *b)
{
	if (b->nwaiting >= WAITERS_MAX) {
		op_fail(q, WHY_BUSY, -EBUSY, "box '%s' is %s, and too many already wait for it", b->name, b->busy);
		return;
	}
	q->waited = true;
	q->next = NULL;
	*b->waiting_tail = q;
	b->waiting_tail = &q->next;
	b->nwaiting++;
}

/*
 * The box that a request names, ready to be changed. NULL: the request has been answered and is gone, or waits for the
 * operation that is under way and is dispatched anew after it. So what it says is read before.
 */
struct box *op_box(struct req *q, bool to_change)
{
	const char *name = json_str(q->doc.root, "box", NULL);
	struct box *b;

	if (!name) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "the request names no box");
		return NULL;
	}
	b = box_find(q->d, q->uid, json_bool(q->doc.root, "all", false), name);
	if (!b) {
		const char *words[256], *near;
		size_t n = 0;

		for (struct box *k = q->d->boxes; k && n < 256; k = k->next)
			if (!k->throw_away && k->owner == q->uid)
				words[n++] = k->name;
		near = nearest_word(name, words, n);
		if (near)
			op_fail(q, WHY_NO_SUCH_BOX, -ENOENT, "there is no box '%.64s': did you mean '%s'?", name, near);
		else
			op_fail(q, WHY_NO_SUCH_BOX, -ENOENT, "there is no box '%.64s': 'cubby ls' shows the ones there are", name);
		return NULL;
	}
	if (b->owner != q->uid && strcmp(b->name, name) == 0) {
		/* Root asked for anybody's. Which of two is meant is not for us to guess. */
		for (const struct box *k = q->d->boxes; k; k = k->next)
			if (k != b && !k->pooled && strcmp(k->name, name) == 0) {
				op_fail(q, WHY_BAD_REQUEST, -EINVAL, "several users have a box '%.64s': name it by its id ('cubby ls "
				     "--all --json' shows it)", name);
				return NULL;
			}
	}
	if (to_change && b->busy) {
		wait_for(q, b);
		return NULL;
	}
	return b;
}

static void set_why(struct box *b, const char *text)
{
	(void)snprintf(b->why, sizeof(b->why), "%.250s", text);
}

/* A change of state was done, or failed: record, answer, let the others go on. */
static void settle(struct box *b, struct req *q, int r, struct err *e)
{
	struct err mine = ERR_INIT;

	if (r == 0)
		r = box_save(b, false, &mine);
	else
		mine = *e;
	/* Before the answer: what was answered isn't taken back by the next daemon. */
	if (!b->throw_away)
		(void)db_journal_end(b->d->db, b->id, NULL);
	if (r == 0)
		op_answer_box(q, b);
	else
		req_fail(q, &mine);
	box_release(b);
}

/* ---------------------------------------------------------------- new */

static const char *configured_user(const struct daemon *d)
{
	return d->rootless && d->ids < BOX_IDS ? "root" : conf_text(&d->conf, CONF_USER);
}

static void defaults(struct daemon *d, struct spec *s)
{
	const struct conf *c = &d->conf;

	memset(s, 0, sizeof(*s));
	memccpy(s->template, conf_text(c, CONF_TEMPLATE), '\0', sizeof(s->template));
	memccpy(s->user, configured_user(d), '\0', sizeof(s->user));
	s->limits.memory = conf_memory(c);
	s->limits.swap = conf_num(c, CONF_SWAP);
	s->limits.pids = conf_num(c, CONF_PIDS);
	s->limits.cpu_milli = (uint32_t)conf_num(c, CONF_CPUS);
	s->limits.io_read = conf_num(c, CONF_IO_READ);
	s->limits.io_write = conf_num(c, CONF_IO_WRITE);
	net_defaults(c, &s->net_limits);
	s->ttl_ms = conf_num(c, CONF_TTL);
	s->idle_ms = conf_num(c, CONF_IDLE);
}

/* Does some line of the template's /etc/passwd begin with "NAME:"? */
static bool template_has_user(struct daemon *d, const char *template, const char *name)
{
	struct root_part parts[ENGINE_PARTS_MAX] = { 0 };
	OWN_BUF text = BUF_INIT(1u << 20);
	size_t len = strlen(name);
	unsigned n = 0;
	bool has = false;

	if (template_parts(d->templates, template, parts, &n, NULL) < 0)
		return true;	/* what is wrong with it is said when the box is made */
	for (unsigned k = 0; n > 0 && k < parts[0].nlayers && !text.data; k++) {
		OWN_FD root = open(parts[0].layers[k], O_PATH | O_DIRECTORY | O_CLOEXEC);
		/* An image's /etc may be a link to anywhere. */
		OWN_FD fd = root < 0 ? -1 : open_beneath(root, "etc/passwd", O_RDONLY | O_NONBLOCK);

		while (fd >= 0 && buf_reserve(&text, 4096) == 0) {
			ssize_t got = read(fd, text.data + text.len, 4096);

			if (got <= 0)
				break;
			text.len += (size_t)got;
			text.data[text.len] = '\0';
		}
	}
	for (const char *line = text.data; line && !has; line = strchr(line, '\n')) {
		line += *line == '\n';
		has = strncmp(line, name, len) == 0 && line[len] == ':';
	}
	template_parts_done(parts, n);
	return has;
}

/* A name that the template doesn't have can't come to be there before the first command. Numbers need no entry. */
static bool user_known(struct daemon *d, const struct spec *s)
{
	if ((s->user[0] >= '0' && s->user[0] <= '9') || strcmp(s->user, "root") == 0 || strchr(s->user, ':'))
		return true;
	return template_has_user(d, s->template, s->user);
}

/* What the template says about its boxes, and whether it has the configured user. */
static void look_at_template(struct daemon *d, const struct spec *s)
{
	struct spec of_image = { 0 };

	if (strcmp(d->user_template, s->template) == 0)
		return;
	template_defaults_done(&d->said);
	/* What is wrong with it is said when the box is made. */
	if (template_defaults(d->templates, s->template, &d->said, NULL) < 0)
		memset(&d->said, 0, sizeof(d->said));
	memccpy(of_image.template, s->template, '\0', sizeof(of_image.template));
	memccpy(of_image.user, d->said.user, '\0', sizeof(of_image.user));
	if (d->said.user[0] && !user_known(d, &of_image))
		d->said.user[0] = '\0';
	d->user_known = template_has_user(d, s->template, configured_user(d));
	memccpy(d->user_template, s->template, '\0', sizeof(d->user_template));
}

/* Where the request says nothing: what the template says; else the configured user, or root where the template doesn't have that one. */
static int from_template(struct daemon *d, const struct json *m, struct spec *s, struct err *e)
{
	bool user = json_get(m, "user");

	look_at_template(d, s);
	if (!user && d->said.user[0])
		memcpy(s->user, d->said.user, sizeof(s->user));
	else if (!user && !d->user_known)
		memccpy(s->user, "root", '\0', sizeof(s->user));
	if (!s->workdir && s->nviews == 0 && d->said.workdir) {
		s->workdir = strdup(d->said.workdir);
		if (!s->workdir)
			return err_set(e, -ENOMEM, "cannot hold the request");
	}
	return spec_env_below(s, d->said.env, e);
}

static void answer_with_socket(struct req *q, struct box *b)
{
	struct buf text = BUF_INIT(SPEC_TEXT_MAX + 4096);
	struct err e = ERR_INIT;
	int fd = box_connect(b, &e);
	struct json_out o;

	if (fd < 0) {
		req_fail(q, &e);
		return;
	}
	answer_begin(&o, &text);
	if (b->throw_away)
		box_write(b, &o, "box", false);
	json_put_str(&o, "user", b->spec.user);
	json_put_str(&o, "workdir", b->spec.workdir);
	json_put_arr(&o, "env");
	for (char **p = b->spec.env; p && *p; p++)
		json_put_str(&o, NULL, *p);
	json_end_arr(&o);
	json_put_int(&o, "mark", (int64_t)(b->oom_seen << 24 | (b->pids_seen & 0xffffff)));
	json_end_obj(&o);
	req_ok(q, &text, &fd, 1);
	fd_close(&fd);
}

/* A throw-away box lives as long as the connection that asked for it. */
static void hand_over(struct req *q, struct box *b)
{
	if (!q->conn) {
		struct err e = ERR_INIT;

		box_discard(b);
		(void)err_set(&e, -EPIPE, "the caller is gone");
		req_fail(q, &e);
		return;
	}
	b->pooled = false;
	b->owner = q->uid;
	b->owner_gid = q->gid;
	b->holder = q->conn;
	q->conn->holds = b;
	answer_with_socket(q, b);
}

static void run_up(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;

	b->busy = NULL;
	if (r < 0) {
		req_fail(q, e);
		box_discard(b);
		return;
	}
	hand_over(q, b);
}

static void new_gone(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;
	struct err said = ERR_INIT;

	(void)err_why(&said, WHY_INTERNAL, -EIO, "%s", b->why);
	said.why = b->end_why;
	if (r < 0) {
		/* It can't be cleared away now: it stays, broken, and `rm` works on it. */
		(void)err_set(&said, r, "%s; and it could not be removed: %s", b->why, e->text);
		b->state = BOX_BROKEN;
		(void)box_save(b, false, NULL);
		req_fail(q, &said);
		box_release(b);
		return;
	}
	(void)db_box_drop(b->d->db, b->id, false, NULL);
	req_fail(q, &said);
	box_free(b);
}

static void new_up(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;
	struct err mine = ERR_INIT;

	if (r == 0) {
		r = box_save(b, true, &mine);
		if (r == 0)
			r = db_journal_end(b->d->db, b->id, &mine);
		e = &mine;
	}
	if (r == 0) {
		box_event(b, "created", b->spec.template);
		b->busy = NULL;
		op_answer_box(q, b);
		box_release(b);
		return;
	}
	set_why(b, e->text);
	b->end_why = e->why;
	box_down(b, BUILD_NOW, true, new_gone, q);
}

/* How long a look at the host counts, before it is compared with its template again. */
#define HOST_FRESH_MS 2000

/*
 * The template is missing: build it when it is one that anybody may have unasked, then go on. So too when the host has
 * changed: its packages, or what others may read of it, are not what boxes would be shown.
 */
static bool template_there(struct req *q, const char *name)
{
	struct daemon *d = q->d;
	bool there = template_exists(d->templates, name);

	if (strcmp(name, "host") != 0)
		return true;	/* if it is missing, box_up() says so */
	if (there && clock_ms() - d->host_looked_at < HOST_FRESH_MS)
		return true;
	if (there && !template_host_stale(d->templates)) {
		d->host_looked_at = clock_ms();
		return true;
	}
	build_for(d, "host", there ? NULL : "host", FD_NONE, 0, q, true, true);
	return false;
}

static void check_views(struct req *q, struct spec *s, struct err *e)
{
	char link[64], path[SPEC_PATH_MAX];

	if (q->nfds != s->nviews) {
		(void)err_why(e, WHY_BAD_REQUEST, -EINVAL, "%u mounts, but %zu descriptors", s->nviews, q->nfds);
		return;
	}
	for (unsigned i = 0; i < s->nviews; i++) {
		ssize_t n;

		/* Where it is, as the kernel says: for the next start, and for people. Never what the caller calls it. */
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", q->fds[i]);
		n = readlink(link, path, sizeof(path) - 1);
		if (n <= 0 || path[0] != '/') {
			(void)err_why(e, WHY_BAD_REQUEST, -EINVAL, "mount %u is not a file or directory", i + 1);
			return;
		}
		path[n] = '\0';
		free(s->views[i].source);
		s->views[i].source = strdup(path);
		if (!s->views[i].source) {
			(void)err_set(e, -ENOMEM, "cannot hold the request");
			return;
		}
	}
}

/* A box without a defence is a drill's: of the daemon's owner, gone with its connection, and soon. */
static int new_weakened(struct req *q, bool run, struct spec *s, struct err *e)
{
	int r = weaken_parse(q->doc.root, &s->weaken, e);

	if (r < 0 || !s->weaken)
		return r;
	if (q->uid != 0 && q->uid != geteuid())
		return err_why(e, WHY_DENIED, -EPERM, "only the daemon's owner can have a box made without a defence");
	if (!run || s->nviews > 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "only a throw-away box without mounts is made without a defence");
	if (!s->ttl_ms || s->ttl_ms > WEAKEN_SECONDS * 1000)
		s->ttl_ms = WEAKEN_SECONDS * 1000;
	return 0;
}

/* What it asks to reach, whole or not at all; and what every box may reach where it says nothing. */
static int judge_net(struct req *q, struct spec *s, struct err *e)
{
	bool said = json_get(q->doc.root, "net");
	char *net = NULL;
	int r = net_policy(q->d, s->net ? s->net : said ? "none" : NULL, json_str(q->doc.root, "net_more", NULL), &net, e);

	if (r < 0)
		return r;
	free(s->net);
	s->net = net;
	return 0;
}

static void op_new(struct req *q)
{
	struct daemon *d = q->d;
	const struct json *m = q->doc.root;
	const char *name = json_str(m, "name", NULL);
	bool run = json_bool(m, "run", false);
	char id[ID_LEN + 1], made[32];
	struct err e = ERR_INIT;
	struct spec s;
	struct box *b;
	int r;

	defaults(d, &s);
	r = spec_parse(m, &s, &e);
	if (r == 0)
		r = new_weakened(q, run, &s, &e);
	if (r == 0)
		r = judge_net(q, &s, &e);
	if (r == 0 && run && q->conn && q->conn->holds)
		(void)err_why(&e, WHY_WRONG_STATE, -EBUSY, "this connection has a throw-away box already: use another one");
	if (r == 0 && e.code == 0)
		check_views(q, &s, &e);
	if (e.code == 0 && name && !name_ok(name))
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "'%.80s' is not a name for a box: " NAME_RULE, name);
	b = e.code == 0 && name ? box_find(d, q->uid, false, name) : NULL;
	if (b && b->busy && b->state == BOX_REMOVING) {
		/* The name is free in a moment. */
		spec_done(&s);
		wait_for(q, b);
		return;
	}
	if (b)
		(void)err_why(&e, WHY_EXISTS, -EEXIST, "there is a box '%s' already: take another name, or remove it "
			      "with 'cubby rm %s'", name, name);
	if (e.code) {
		spec_done(&s);
		req_fail(q, &e);
		return;
	}
	if (!template_there(q, s.template)) {
		spec_done(&s);
		return;
	}
	if (from_template(d, m, &s, &e) < 0) {
		spec_done(&s);
		req_fail(q, &e);
		return;
	}
	if (json_get(m, "user") && !run && !user_known(d, &s)) {
		op_fail(q, WHY_BAD_REQUEST, -ENOENT, "--user: template '%s' has no user '%.64s' (see its /etc/passwd): take one that it "
		     "has, or a UID", s.template, s.user);
		spec_done(&s);
		return;
	}
	/* Who brings a project wants to work in it. */
	if (!s.workdir && s.nviews > 0)
		s.workdir = strdup(s.views[0].at);
	/* With a time of its own it isn't one of many. */
	if (run && !s.weaken && !json_get(m, "ttl_ms")) {
		b = pool_take(d, &s);
		pool_wanted(d, &s);
		if (b) {
			spec_done(&b->spec);
			b->spec = s;
			if (s.ttl_ms)
				b->expires = now_s() + (int64_t)((s.ttl_ms + 999) / 1000);
			box_timers(b);
			b->owner = q->uid;
			net_box_on(b);
			hand_over(q, b);
			return;
		}
	}
	id_make(id);
	if (!name) {
		(void)snprintf(made, sizeof(made), "%s-%.6s", run ? "run" : "box", id);
		name = made;
	}
	b = box_add(d, id, name, q->uid, &e);
	if (!b) {
		spec_done(&s);
		req_fail(q, &e);
		return;
	}
	b->owner_gid = q->gid;
	b->throw_away = run;
	b->spec = s;
	if (s.ttl_ms)
		b->expires = b->created + (int64_t)((s.ttl_ms + 999) / 1000);
	b->busy = "being created";
	if (!run) {
		r = box_save(b, false, &e);
		if (r == 0)
			r = db_journal_begin(d->db, b->id, "new", &e);
		if (r < 0) {
			(void)db_box_drop(d->db, b->id, false, NULL);
			req_fail(q, &e);
			box_free(b);
			return;
		}
	}
	box_up(b, BUILD_NOW, q->fds, q->nfds, run ? run_up : new_up, q);
}

/* ---------------------------------------------------------------- open, start, stop, pause, resume, rm */

static void start_failed(struct box *b, struct req *q, struct err *e)
{
	struct err kept = *e;

	set_why(b, e->text);
	b->state = BOX_STOPPED;
	settle(b, q, kept.code ? kept.code : -EIO, &kept);
}

static void started_for_open(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;

	if (r < 0) {
		start_failed(b, q, e);
		return;
	}
	box_event(b, "started", NULL);
	(void)box_save(b, false, NULL);
	(void)db_journal_end(b->d->db, b->id, NULL);
	answer_with_socket(q, b);
	box_release(b);
}

static void started(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;

	if (r < 0) {
		start_failed(b, q, e);
		return;
	}
	box_event(b, "started", NULL);
	settle(b, q, 0, NULL);
}

static void bring_up(struct box *b, struct req *q, void (*then)(struct box *, int, struct err *, void *))
{
	struct err e = ERR_INIT;

	if (!template_there(q, b->spec.template))
		return;
	if (db_journal_begin(b->d->db, b->id, "start", &e) < 0) {
		req_fail(q, &e);
		return;
	}
	b->busy = "being started";
	box_up(b, BUILD_NOW, NULL, 0, then, q);
}

static void op_open(struct req *q)
{
	struct box *b = op_box(q, true);

	if (!b)
		return;
	switch (b->state) {
	case BOX_RUNNING:
		box_look(b);
		/* Whoever comes now is not idle, even before cubby-init could tell. */
		if (b->spec.idle_ms)
			box_timers(b);
		answer_with_socket(q, b);
		return;
	case BOX_STOPPED:
		if (b->throw_away || !json_bool(q->doc.root, "start", true))
			break;
		bring_up(b, q, started_for_open);
		return;
	case BOX_PAUSED:
		op_fail(q, WHY_WRONG_STATE, -EAGAIN, "box '%s' is paused: 'cubby resume %s' lets it go on", b->name, b->name);
		return;
	case BOX_BROKEN:
		op_fail(q, WHY_WRONG_STATE, -EIO, "box '%s' is broken (%s): 'cubby rm %s' removes it", b->name, b->why, b->name);
		return;
	case BOX_CREATING:
	case BOX_REMOVING:
	case BOX_STATES:
		break;
	}
	op_fail(q, WHY_WRONG_STATE, -EAGAIN, "box '%s' is %s%s%s", b->name, box_state_words[b->state], b->why[0] ? ": " : "",
	     b->why);
}

static void op_start(struct req *q)
{
	struct box *b = op_box(q, true);

	if (!b)
		return;
	if (b->state == BOX_RUNNING)
		op_answer_box(q, b);
	else if (b->state == BOX_STOPPED && !b->throw_away)
		bring_up(b, q, started);
	else
		op_fail(q, WHY_WRONG_STATE, -EAGAIN, "box '%s' is %s: %s", b->name, box_state_words[b->state],
		     b->state == BOX_PAUSED ? "resume it instead" : "'cubby rm' removes it");
}

static void stopped(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;

	if (r == 0) {
		set_why(b, "stopped");
		b->state = BOX_STOPPED;
		box_event(b, "stopped", NULL);
	} else {
		b->state = BOX_BROKEN;
		set_why(b, e->text);
		(void)box_save(b, false, NULL);
	}
	settle(b, q, r, e);
}

/* Of a broken box only the end is left: what is known of it may be wrong, and must not be written over what there is. */
bool op_whole(struct req *q, const struct box *b)
{
	if (b->state != BOX_BROKEN)
		return true;
	op_fail(q, WHY_WRONG_STATE, -EIO, "box '%s' is broken (%s): 'cubby rm %s' removes it", b->name, b->why, b->name);
	return false;
}

static void op_stop(struct req *q)
{
	int64_t grace = json_int(q->doc.root, "grace_ms", 10000);
	struct box *b = op_box(q, true);
	struct err e = ERR_INIT;

	if (!b)
		return;
	if (grace < 0) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "'grace_ms' has to be a number that is not negative");
		return;
	}
	if (b->state == BOX_STOPPED) {
		op_answer_box(q, b);
		return;
	}
	if (!op_whole(q, b))
		return;
	if (!b->throw_away && db_journal_begin(b->d->db, b->id, "stop", &e) < 0) {
		req_fail(q, &e);
		return;
	}
	b->busy = "being stopped";
	box_stop(b, json_bool(q->doc.root, "force", false) ? 0 : (uint64_t)grace, stopped, q);
}

static void freeze(struct req *q, bool on)
{
	struct box *b = op_box(q, true);
	enum box_state from = on ? BOX_RUNNING : BOX_PAUSED, to = on ? BOX_PAUSED : BOX_RUNNING;
	struct err e = ERR_INIT;

	if (!b)
		return;
	if (b->state == to) {
		op_answer_box(q, b);
		return;
	}
	if (b->state != from) {
		op_fail(q, WHY_WRONG_STATE, -EAGAIN, "box '%s' is %s: only a %s one can be %s", b->name,
		     box_state_words[b->state], box_state_words[from], on ? "paused" : "resumed");
		return;
	}
	if (b->d->engine->freeze(b->id, on, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	b->state = to;
	box_event(b, on ? "paused" : "resumed", NULL);
	box_timers(b);
	if (box_save(b, false, &e) < 0)
		req_fail(q, &e);
	else
		op_answer_box(q, b);
}

static void op_pause(struct req *q)
{
	freeze(q, true);
}

static void op_resume(struct req *q)
{
	freeze(q, false);
}

static void removed(struct box *b, int r, struct err *e, void *arg)
{
	struct req *q = arg;
	struct err mine = ERR_INIT;

	if (r == 0)
		r = db_box_drop(b->d->db, b->id, true, &mine);
	else
		mine = *e;
	if (r < 0) {
		b->state = BOX_BROKEN;
		set_why(b, mine.text);
		(void)box_save(b, false, NULL);
		req_fail(q, &mine);
		box_release(b);
		return;
	}
	db_event(b->d->db, b->id, b->name, b->owner, "removed", NULL);
	req_done(q);
	box_free(b);
}

static void op_rm(struct req *q)
{
	struct box *b = op_box(q, true);
	struct err e = ERR_INIT;

	if (!b)
		return;
	if (b->throw_away) {
		op_fail(q, WHY_WRONG_STATE, -EBUSY, "box '%s' goes when its command ends", b->name);
		return;
	}
	if ((b->state == BOX_RUNNING || b->state == BOX_PAUSED) && !json_bool(q->doc.root, "force", false)) {
		op_fail(q, WHY_WRONG_STATE, -EBUSY, "box '%s' is %s: stop it first, or remove it with --force", b->name,
		     box_state_words[b->state]);
		return;
	}
	b->busy = "being removed";
	b->state = BOX_REMOVING;
	/*
	 * From here on it goes, also if the daemon is killed: the row says so. On a full disk it goes without the note, since
	 * it may be what fills it.
	 */
	if ((box_save(b, true, &e) < 0 || db_journal_begin(b->d->db, b->id, "rm", &e) < 0) && e.why != WHY_NO_SPACE) {
		b->state = b->run.pid > 0 ? BOX_RUNNING : BOX_STOPPED;
		req_fail(q, &e);
		box_release(b);
		return;
	}
	box_down(b, BUILD_NOW, true, removed, q);
}

/* ---------------------------------------------------------------- rename, limits, set */

static void op_rename(struct req *q)
{
	const char *name = json_str(q->doc.root, "name", "");
	struct box *b = op_box(q, true);
	char old[NAME_MAX_LEN + 1];
	struct box *other;
	struct err e = ERR_INIT;

	if (!b)
		return;
	if (!name_ok(name)) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "'%.80s' is not a name for a box: " NAME_RULE, name);
		return;
	}
	if (!op_whole(q, b))
		return;
	other = box_find(q->d, b->owner, false, name);
	if (other && other != b) {
		op_fail(q, WHY_EXISTS, -EEXIST, "there is a box '%s' already", name);
		return;
	}
	memccpy(old, b->name, '\0', sizeof(old));
	memccpy(b->name, name, '\0', sizeof(b->name));
	if (box_save(b, true, &e) < 0) {
		memccpy(b->name, old, '\0', sizeof(b->name));
		req_fail(q, &e);
		return;
	}
	box_event(b, "renamed", old);
	op_answer_box(q, b);
}

static void op_limits(struct req *q)
{
	const struct json *want = json_get(q->doc.root, "limits");
	struct box *b = op_box(q, want != NULL);
	struct buf text = BUF_INIT(4096);
	struct err e = ERR_INIT;
	struct net_limits nl;
	struct limits l;
	struct json_out o;

	if (!b || (want && !op_whole(q, b)))
		return;
	l = b->spec.limits;
	nl = b->spec.net_limits;
	if (want) {
		int r = limits_parse(want, &l, &nl, &e);

		if (r == 0 && (b->state == BOX_RUNNING || b->state == BOX_PAUSED))
			r = b->d->engine->set_limits(b->id, &l, &e);
		if (r == 0) {
			b->spec.limits = l;
			b->spec.net_limits = nl;
			net_box_changed(b);
			r = box_save(b, true, &e);
		}
		if (r < 0) {
			req_fail(q, &e);
			return;
		}
		box_event(b, "limits", NULL);
	}
	answer_begin(&o, &text);
	limits_write(&l, &nl, &o, "limits");
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_set(struct req *q)
{
	int64_t ttl = json_int(q->doc.root, "ttl_ms", -1), idle = json_int(q->doc.root, "idle_ms", -1);
	struct box *b = op_box(q, true);
	const int64_t most = INT64_C(1000000000000000);
	struct err e = ERR_INIT;

	if (!b)
		return;
	if (!op_whole(q, b))
		return;
	if (ttl < -1 || idle < -1 || ttl > most || idle > most) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "a duration has to be a number that is not negative and not too large");
		return;
	}
	if (b->spec.weaken) {
		op_fail(q, WHY_DENIED, -EPERM, "box '%s' was made for a drill, and has its time", b->name);
		return;
	}
	if (ttl >= 0) {
		b->spec.ttl_ms = (uint64_t)ttl;
		b->expires = ttl > 0 ? now_s() + (ttl + 999) / 1000 : 0;
	}
	if (idle >= 0)
		b->spec.idle_ms = (uint64_t)idle;
	if (box_save(b, true, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	box_timers(b);
	op_answer_box(q, b);
}

/* ---------------------------------------------------------------- looking */

static bool visible(const struct req *q, const struct box *b)
{
	return !b->pooled && (b->owner == q->uid || (q->uid == 0 && json_bool(q->doc.root, "all", false)));
}

static void put_usage(const struct usage *u, struct json_out *o)
{
	json_put_obj(o, "usage");
	json_put_int(o, "memory", (int64_t)u->memory);
	json_put_int(o, "memory_peak", (int64_t)u->memory_peak);
	json_put_int(o, "swap", (int64_t)u->swap);
	json_put_int(o, "pids", (int64_t)u->pids);
	json_put_int(o, "cpu_us", (int64_t)u->cpu_us);
	json_put_int(o, "io_read", (int64_t)u->io_read);
	json_put_int(o, "io_write", (int64_t)u->io_write);
	json_put_int(o, "oom_kills", (int64_t)u->oom_kills);
	json_put_int(o, "pids_denied", (int64_t)u->pids_denied);
	json_end_obj(o);
}

static void list(struct req *q, bool with_usage)
{
	struct buf text = BUF_INIT(MSG_MAX);
	const struct box *last = NULL;
	struct json_out o;

	answer_begin(&o, &text);
	json_put_arr(&o, "boxes");
	/* The list holds the newest first. */
	for (const struct box *b = q->d->boxes; b; b = b->next)
		last = b;
	for (const struct box *b = last; b;) {
		struct usage u;

		if (visible(q, b)) {
			box_write(b, &o, NULL, true);
			if (with_usage && (b->state == BOX_RUNNING || b->state == BOX_PAUSED) &&
			    b->d->engine->usage(b->id, &u, NULL) == 0)
				put_usage(&u, &o);
			json_end_obj(&o);
		}
		if (b->link == &q->d->boxes)
			break;
		b = (const void *)((const char *)b->link - offsetof(struct box, next));
	}
	json_end_arr(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_ls(struct req *q)
{
	list(q, false);
}

static void op_top(struct req *q)
{
	list(q, true);
}

struct asking {
	struct req *q;
	char id[ID_LEN + 1];
};

static void info_answer(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct asking *a = arg;
	struct req *q = a->q;
	struct box *b = NULL;
	struct buf text = BUF_INIT(SPEC_TEXT_MAX);
	struct json_out o;
	struct usage u;

	(void)fd;
	for (struct box *k = q->d->boxes; k; k = k->next)
		if (strcmp(k->id, a->id) == 0)
			b = k;
	free(a);
	if (!b) {
		op_fail(q, WHY_NO_SUCH_BOX, -ENOENT, "the box was removed meanwhile");
		return;
	}
	answer_begin(&o, &text);
	box_write(b, &o, "box", true);
	if (r == 0) {
		const struct json *rows = json_get(answer, "rows");

		json_put_value(&o, "grade", rows);
		json_put_arr(&o, "weak");
		for (const struct json *m = rows ? rows->child : NULL; m; m = m->next)
			if (strcmp(json_str(m, "level", ""), "on") != 0)
				json_put_str(&o, NULL, json_str(m, "id", ""));
		json_end_arr(&o);
	} else if (e && b->run.pid > 0) {
		json_put_str(&o, "grade_error", e->text);
	}
	drill_put_of(b->d, b, &o);
	if (b->run.pid > 0 && b->d->engine->usage(b->id, &u, NULL) == 0)
		put_usage(&u, &o);
	json_end_obj(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_info(struct req *q)
{
	struct box *b = op_box(q, false);
	struct err e = ERR_INIT;
	struct asking *a;

	if (!b)
		return;
	a = calloc(1, sizeof(*a));
	if (!a) {
		op_fail(q, WHY_LIMIT, -ENOMEM, "no memory for the answer");
		return;
	}
	a->q = q;
	memcpy(a->id, b->id, sizeof(a->id));
	if (b->run.pidfd < 0) {
		info_answer(a, -ESRCH, NULL, NULL, NULL);
		return;
	}
	if (builders_grade(q->d->builders, b->id, &b->run, info_answer, a, &e) < 0) {
		free(a);
		req_fail(q, &e);
	}
}

static void doctor_answer(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct req *q = arg;
	struct buf text = BUF_INIT(MSG_MAX);
	struct statvfs vfs;
	struct json_out o;

	(void)fd;
	if (r < 0) {
		req_fail(q, e);
		return;
	}
	answer_begin(&o, &text);
	json_put_arr(&o, "rows");
	for (const struct json *m = json_get(answer, "rows")->child; m; m = m->next)
		json_put_value(&o, NULL, m);
	if (statvfs(q->d->state_dir, &vfs) == 0) {
		uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
		char what[200];

		(void)snprintf(what, sizeof(what), "the disk of the state directory has %llu MiB left",
			       (unsigned long long)(left >> 20));
		json_put_obj(&o, NULL);
		json_put_str(&o, "id", "state-disk");
		json_put_str(&o, "level", left > (512u << 20) ? "on" : left > DISK_FULL_BYTES ? "weak" : "off");
		json_put_str(&o, "what", what);
		if (left <= (512u << 20))
			json_put_str(&o, "fix", "free some space, or set CUBBY_STATE_DIR to a larger disk");
		json_end_obj(&o);
	}
	net_doctor_rows(q->d->net, &o);
	json_end_arr(&o);
	json_put_value(&o, "usable", json_get(answer, "usable"));
	if (json_get(answer, "reason"))
		json_put_value(&o, "reason", json_get(answer, "reason"));
	drill_put_last(q->d, q->uid, &o);
	json_put_str(&o, "state_dir", q->d->state_dir);
	json_put_str(&o, "run_dir", q->d->run_dir);
	json_put_bool(&o, "rootless", q->d->rootless);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* The gateway is there, or never will be: its rows tell. */
static void doctor_go(void *arg, int r, const struct err *e)
{
	struct req *q = arg;
	struct err mine = ERR_INIT;

	(void)r;
	(void)e;
	if (builders_grade(q->d->builders, NULL, NULL, doctor_answer, q, &mine) < 0)
		req_fail(q, &mine);
}

static void op_doctor(struct req *q)
{
	gateway_want(q->d->net, doctor_go, q);
}

/* Why did a command of this box fail? What the kernel counted since `mark` (of op "open") says it. */
static void op_why(struct req *q)
{
	uint64_t mark = (uint64_t)json_int(q->doc.root, "mark", 0);
	struct box *b = op_box(q, false);
	struct buf text = BUF_INIT(8192);
	const char *end = NULL;
	char say[320] = "", dir[1300], parent[1100];
	struct usage u = { 0 };
	struct statvfs vfs;
	struct json_out o;

	if (!b)
		return;
	(void)b->d->engine->usage(b->id, &u, NULL);
	(void)snprintf(dir, sizeof(dir), "%s/%s", box_parent_dir(b, parent, sizeof(parent)), b->id);
	if (u.oom_kills > mark >> 24) {
		end = "oom";
		(void)snprintf(say, sizeof(say), "out of memory (its limit is %llu MiB): '%s%s --memory SIZE' raises it",
			       (unsigned long long)(b->spec.limits.memory >> 20), b->throw_away ? "cubby run" : "cubby limits ",
			       b->throw_away ? "" : b->name);
	} else if ((u.pids_denied & 0xffffff) > (mark & 0xffffff)) {
		end = "pids";
		(void)snprintf(say, sizeof(say), "too many processes (its limit is %llu): '%s%s --pids N' raises it",
			       (unsigned long long)b->spec.limits.pids, b->throw_away ? "cubby run" : "cubby limits ",
			       b->throw_away ? "" : b->name);
	} else if (b->state == BOX_REMOVING) {
		end = "removed";
		(void)snprintf(say, sizeof(say), "the box is being removed");
	} else if (b->state == BOX_STOPPED || b->busy || b->state == BOX_BROKEN) {
		end = strncmp(b->why, "crashed", 7) == 0 ? "crashed" : strcmp(b->why, "out of memory") == 0 ? "oom" : "stopped";
		(void)snprintf(say, sizeof(say), "the box %s", strcmp(end, "crashed") == 0 ? b->why :
			       strcmp(end, "oom") == 0 ? "ran out of memory" :
			       strncmp(b->why, "its time", 8) == 0 ? "was ended: its time to live is over" : "was stopped");
	} else if (statvfs(dir, &vfs) == 0 && ((uint64_t)vfs.f_bavail * vfs.f_frsize < DISK_FULL_BYTES ||
					       (vfs.f_files > 0 && vfs.f_favail < 8))) {
		end = "disk";
		(void)snprintf(say, sizeof(say), "disk full: the disk of the state directory has no room left");
	}
	b->oom_seen = u.oom_kills;
	b->pids_seen = u.pids_denied;
	/* Also of a throw-away box: the box is gone afterwards, and the log is all that tells. */
	if (end && (strcmp(end, "oom") == 0 || strcmp(end, "pids") == 0))
		db_event(b->d->db, b->id, b->name, b->owner, end, say);
	answer_begin(&o, &text);
	json_put_str(&o, "end", end);
	json_put_str(&o, "text", end ? say : NULL);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_logs(struct req *q)
{
	int64_t lines = json_int(q->doc.root, "lines", 100), after = json_int(q->doc.root, "after", 0);
	bool all = q->uid == 0 && json_bool(q->doc.root, "all", false);
	struct buf text = BUF_INIT(MSG_MAX);
	const char *id = NULL;
	struct err e = ERR_INIT;
	struct json_out o;

	if (json_get(q->doc.root, "box")) {
		struct box *b = op_box(q, false);

		if (!b)
			return;
		id = b->id;
	}
	if (lines < 0 || lines > 100000)
		lines = 100000;
	answer_begin(&o, &text);
	json_put_arr(&o, "events");
	if (db_events(q->d->db, id, all ? -1 : (int64_t)q->uid, lines, after, &o, &e) < 0) {
		buf_done(&text);
		req_fail(q, &e);
		return;
	}
	json_end_arr(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* ---------------------------------------------------------------- the daemon itself */

static void op_hello(struct req *q)
{
	struct buf text = BUF_INIT(8192);
	struct json_out o;

	answer_begin(&o, &text);
	json_put_str(&o, "version", CUBBY_VERSION);
	json_put_int(&o, "pid", getpid());
	json_put_bool(&o, "rootless", q->d->rootless);
	json_put_str(&o, "state_dir", q->d->state_dir);
	json_put_str(&o, "run_dir", q->d->run_dir);
	json_put_int(&o, "uid", q->uid);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void put_setting(const struct conf_key *key, const struct conf_value *value, const char *source, void *arg)
{
	struct json_out *o = arg;
	char shown[CONF_TEXT_MAX + 8];

	proxy_hide(value->text, shown, sizeof(shown));
	json_put_obj(o, key->key);
	json_put_str(o, "value", strcmp(key->key, "proxy") == 0 ? shown : value->text);
	json_put_str(o, "source", source);
	json_put_str(o, "help", key->help);
	json_end_obj(o);
}

static void op_config(struct req *q)
{
	struct buf text = BUF_INIT(MSG_MAX);
	struct json_out o;

	answer_begin(&o, &text);
	json_put_obj(&o, "config");
	conf_each(&q->d->conf, put_setting, &o);
	json_end_obj(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_shutdown(struct req *q)
{
	struct buf text = BUF_INIT(256);
	struct json_out o;
	int64_t n = 0;

	if (q->uid != 0 && q->uid != geteuid()) {
		op_fail(q, WHY_DENIED, -EPERM, "only root ends the system's daemon");
		return;
	}
	for (const struct box *b = q->d->boxes; b; b = b->next)
		n += b->net_on && !b->pooled;
	q->d->leaving = true;
	loop_quit(q->d->loop);
	answer_begin(&o, &text);
	json_put_int(&o, "networks", n);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* ---------------------------------------------------------------- templates */

/* Templates of the system's daemon are read by everybody's boxes and made with root's rights. */
static bool may_make(struct req *q)
{
	if (q->uid == 0 || q->uid == geteuid())
		return true;
	op_fail(q, WHY_DENIED, -EPERM, "templates of the system's daemon are made and removed by root");
	return false;
}

static const char *template_named(struct req *q)
{
	const char *name = json_str(q->doc.root, "name", NULL);

	if (!name || strlen(name) > NAME_MAX_LEN) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "the request names no template");
		return NULL;
	}
	return name;
}

static void op_template_create(struct req *q)
{
	const char *name = template_named(q), *source;
	int64_t limit;

	if (!name || !may_make(q))
		return;
	source = json_str(q->doc.root, "source", name);
	limit = json_int(q->doc.root, "limit_ms", 30 * 60 * 1000);
	if (limit < 0) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "'limit_ms' has to be a number that is not negative");
		return;
	}
	build_for(q->d, name, source, q->nfds > 0 ? q->fds[0] : FD_NONE, (uint64_t)limit, q, false,
		  json_bool(q->doc.root, "wait", true));
}

static void op_template_ls(struct req *q)
{
	struct buf text = BUF_INIT(MSG_MAX);
	struct err e = ERR_INIT;
	struct json_out o;

	answer_begin(&o, &text);
	json_put_arr(&o, "templates");
	if (template_list(q->d->templates, &o, &e) < 0) {
		buf_done(&text);
		req_fail(q, &e);
		return;
	}
	json_end_arr(&o);
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static void op_template_info(struct req *q)
{
	const char *name = template_named(q);

	if (name)
		answer_template(q, name);
}

static void op_template_log(struct req *q)
{
	const char *name = template_named(q);
	struct buf text = BUF_INIT(MSG_MAX), log = BUF_INIT(1u << 20);
	char path[1400];
	struct err e = ERR_INIT;
	struct json_out o;
	OWN_FD fd = FD_NONE;
	off_t size;

	if (!name)
		return;
	if (template_log_path(q->d->templates, name, path, sizeof(path), &e) < 0) {
		req_fail(q, &e);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0) {
		(void)err_set(&e, -errno, "cannot read the log of template '%s'", name);
		req_fail(q, &e);
		return;
	}
	/* The end is what explains a failure. */
	size = lseek(fd, 0, SEEK_END);
	(void)lseek(fd, size > (256 << 10) ? size - (256 << 10) : 0, SEEK_SET);
	while (buf_reserve(&log, 65536) == 0) {
		ssize_t k = read(fd, log.data + log.len, 65536);

		if (k <= 0)
			break;
		log.len += (size_t)k;
		log.data[log.len] = '\0';
	}
	answer_begin(&o, &text);
	json_put_str(&o, "log", log.data ? log.data : "");
	json_end_obj(&o);
	buf_done(&log);
	req_ok(q, &text, NULL, 0);
}

static void op_template_cancel(struct req *q)
{
	const char *name = template_named(q);
	struct err e = ERR_INIT;
	struct build *b;

	if (!name || !may_make(q))
		return;
	b = build_find(q->d, name);
	if (!b) {
		op_fail(q, WHY_NOT_FOUND, -ENOENT, "no build of a template '%s' is under way", name);
		return;
	}
	if (build_cancel(b, &e) < 0)
		req_fail(q, &e);
	else
		req_done(q);
}

static void op_template_rm(struct req *q)
{
	const char *name = template_named(q);
	struct err e = ERR_INIT;
	struct build *build;

	if (!name || !may_make(q))
		return;
	for (struct box *b = q->d->boxes; b; b = b->next) {
		/* A throw-away box that nobody holds any more is on its way out: waited for below. */
		if (b->pooled || (b->throw_away && !b->holder) || strcmp(b->spec.template, name) != 0)
			continue;
		op_fail(q, WHY_BUSY, -EBUSY, "template '%s' is used by box '%s': remove the box first", name, b->name);
		return;
	}
	build = build_find(q->d, name);
	if (build && build_cancel(build, &e) < 0) {
		req_fail(q, &e);
		return;
	}
	if (build && !template_exists(q->d->templates, name)) {
		req_done(q);
		return;
	}
	pool_drop(q->d, name);
	q->d->user_template[0] = '\0';
	for (struct box *b = q->d->boxes; b; b = b->next)
		if (b->throw_away && strcmp(b->spec.template, name) == 0) {
			/* Its pooled boxes are on their way out: the end of the last one lets this go on. */
			q->next = NULL;
			*b->waiting_tail = q;
			b->waiting_tail = &q->next;
			b->nwaiting++;
			return;
		}
	if (template_remove(q->d->templates, name, &e) < 0)
		req_fail(q, &e);
	else
		req_done(q);
}

/* ---------------------------------------------------------------- the table */

struct op {
	const char *name;
	void (*run)(struct req *q);
	const char *fields;	/* that it knows, separated by blanks; "v" and "op" go without saying */
};

static const struct op ops[] = {
	{ "open", op_open, "box start all" },
	{ "new", op_new,
	  "name template limits mounts user env workdir net net_more nesting allow_weaker ttl_ms idle_ms tz run weaken" },
	{ "why", op_why, "box mark all" },
	{ "ls", op_ls, "all" },
	{ "info", op_info, "box all" },
	{ "rename", op_rename, "box name all" },
	{ "start", op_start, "box all" },
	{ "stop", op_stop, "box grace_ms force all" },
	{ "pause", op_pause, "box all" },
	{ "resume", op_resume, "box all" },
	{ "rm", op_rm, "box force all" },
	{ "limits", op_limits, "box limits all" },
	{ "set", op_set, "box ttl_ms idle_ms all" },
	{ "top", op_top, "all" },
	{ "logs", op_logs, "box lines after all" },
	{ "net-set", op_net_set, "box net net_more all" },
	{ "net-show", op_net_show, "box all" },
	{ "net-why", op_net_why, "box host port all" },
	{ "net-presets", op_net_presets, "" },
	{ "net-log", op_net_log, "box lines since_ms cursor all" },
	{ "net-ask", op_net_ask, "box all" },
	{ "net-answer", op_net_answer, "ask allow always all" },
	{ "expose", op_expose, "box port host_port off all" },
	{ "template-create", op_template_create, "name source limit_ms wait" },
	{ "template-ls", op_template_ls, "" },
	{ "template-info", op_template_info, "name" },
	{ "template-log", op_template_log, "name" },
	{ "template-cancel", op_template_cancel, "name" },
	{ "template-rm", op_template_rm, "name" },
	{ "doctor", op_doctor, "" },
	{ "drill-done", op_drill_done, "result" },
	{ "config", op_config, "" },
	{ "hello", op_hello, "" },
	{ "shutdown", op_shutdown, "force" },
};

/* A field of the wrong type is a mistake, not a missing one. What isn't here is judged where it is read. */
static const struct {
	const char *name;
	enum json_type type;
	const char *want;
} field_types[] = {
	{ "box", JSON_STRING, "a text" },	  { "name", JSON_STRING, "a text" },
	{ "source", JSON_STRING, "a text" },	  { "net", JSON_STRING, "a text" },
	{ "net_more", JSON_STRING, "a text" },	  { "host", JSON_STRING, "a text" },
	{ "port", JSON_INT, "a whole number" },	  { "host_port", JSON_INT, "a whole number" },
	{ "off", JSON_BOOL, "true or false" },	  { "allow", JSON_BOOL, "true or false" },
	{ "always", JSON_BOOL, "true or false" }, { "ask", JSON_INT, "a whole number" },
	{ "since_ms", JSON_INT, "a whole number" }, { "cursor", JSON_STRING, "a text" },
	{ "start", JSON_BOOL, "true or false" },  { "all", JSON_BOOL, "true or false" },
	{ "run", JSON_BOOL, "true or false" },	  { "force", JSON_BOOL, "true or false" },
	{ "wait", JSON_BOOL, "true or false" },	  { "mark", JSON_INT, "a whole number" },
	{ "grace_ms", JSON_INT, "a whole number" }, { "lines", JSON_INT, "a whole number" },
	{ "after", JSON_INT, "a whole number" },  { "limit_ms", JSON_INT, "a whole number" },
	{ "ttl_ms", JSON_INT, "a whole number" }, { "idle_ms", JSON_INT, "a whole number" },
	{ "limits", JSON_OBJECT, "an object" },	  { "result", JSON_OBJECT, "an object" },
};

static const char *wrong_type(const struct json *m)
{
	for (size_t i = 0; i < sizeof(field_types) / sizeof(field_types[0]); i++)
		if (strcmp(field_types[i].name, m->key) == 0)
			return m->type == field_types[i].type ? NULL : field_types[i].want;
	return NULL;
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = words; (p = strstr(p, word)); p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
			return true;
	return false;
}

void dispatch(struct req *q)
{
	const char *name = json_str(q->doc.root, "op", "");

	if (q->d->leaving) {
		op_fail(q, WHY_BUSY, -EAGAIN, "the daemon is ending: try again");
		return;
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(name, ops[i].name) != 0)
			continue;
		for (const struct json *m = q->doc.root->child; m; m = m->next) {
			const char *want = wrong_type(m);

			if (strcmp(m->key, "v") == 0 || strcmp(m->key, "op") == 0)
				continue;
			if (want && has_word(ops[i].fields, m->key)) {
				op_fail(q, WHY_BAD_REQUEST, -EINVAL, "'%s' has to be %s", m->key, want);
				return;
			}
			if (has_word(ops[i].fields, m->key))
				continue;
			op_fail(q, WHY_BAD_REQUEST, -EINVAL, "operation '%s' has no field '%.64s': is this cubbyd (%s) older than "
			     "its client?", name, m->key, CUBBY_VERSION);
			return;
		}
		ops[i].run(q);
		return;
	}
	op_fail(q, WHY_BAD_REQUEST, -EINVAL, "there is no operation '%.64s' in this cubbyd (%s)", name, CUBBY_VERSION);
}
