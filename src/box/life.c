/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "box/net.h"
#include "chan/box.h"

/* What a command gets to end itself when the time of its box is over. */
#define TTL_GRACE_MS 2000
/* How much longer than its grace a stop may take before the engine ends the box. */
#define STOP_EXTRA_MS 2000
/* Counters older than this are read again before a command begins. */
#define LOOK_FRESH_MS 250

const char *const box_state_words[BOX_STATES] = {
	[BOX_CREATING] = "creating", [BOX_RUNNING] = "running",	  [BOX_PAUSED] = "paused",
	[BOX_STOPPED] = "stopped",   [BOX_REMOVING] = "removing", [BOX_BROKEN] = "broken",
};

int64_t now_s(void)
{
	return (int64_t)time(NULL);
}

/* ---------------------------------------------------------------- the list */

struct box *box_add(struct daemon *d, const char *id, const char *name, uid_t owner, struct err *e)
{
	struct box *b;

	if (d->nboxes >= BOXES_MAX) {
		(void)err_why(e, WHY_LIMIT, -EAGAIN, "there are %u boxes already: remove some", d->nboxes);
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		(void)err_set(e, -ENOMEM, "cannot hold another box");
		return NULL;
	}
	b->d = d;
	memccpy(b->id, id, '\0', sizeof(b->id));
	memccpy(b->name, name, '\0', sizeof(b->name));
	b->owner = owner;
	b->state = BOX_CREATING;
	b->created = now_s();
	b->slot = -1;
	b->run.pidfd = b->ping_fd = b->stop_fd = FD_NONE;
	b->waiting_tail = &b->waiting;
	b->next = d->boxes;
	if (b->next)
		b->next->link = &b->next;
	b->link = &d->boxes;
	d->boxes = b;
	d->nboxes++;
	return b;
}

static void slot_free(struct box *b)
{
	if (b->slot >= 0)
		b->d->slots[b->slot] = 0;
	b->slot = -1;
}

static void unwatch(struct box *b)
{
	net_box_off(b, false);
	b->run.net_index = 0;
	b->run.net_if = 0;
	b->net_problem[0] = '\0';
	while (b->nnever > 0)
		free(b->never[--b->nnever]);
	free(b->never);
	b->never = NULL;
	loop_del(b->d->loop, &b->exit_io);
	fd_close(&b->run.pidfd);
	b->run.pid = 0;
	loop_del(b->d->loop, &b->ping_io);
	fd_close(&b->ping_fd);
	fd_close(&b->stop_fd);
	loop_timer_stop(b->d->loop, &b->idle);
	loop_timer_stop(b->d->loop, &b->stop);
}

/* What hundreds of boxes needed is given back to the system, not kept for the next ones. */
static void trim(void *arg)
{
	struct daemon *d = arg;

	db_trim(d->db);
	(void)malloc_trim(0);
}

void box_free(struct box *b)
{
	struct daemon *d = b->d;
	struct req *q = b->waiting;

	unwatch(b);
	slot_free(b);
	loop_timer_stop(d->loop, &b->ttl);
	if (b->holder)
		b->holder->holds = NULL;
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
	d->nboxes--;
	spec_done(&b->spec);
	free(b);
	loop_timer_set(d->loop, &d->trim, 200, trim, d);
	/* They find out that it is gone. */
	while (q) {
		struct req *next = q->next;

		q->next = NULL;
		dispatch(q);
		q = next;
	}
	daemon_touch(d);
}

struct box *box_find(struct daemon *d, uid_t uid, bool all, const char *name)
{
	struct box *by_id = NULL, *others = NULL;

	for (struct box *b = d->boxes; b; b = b->next) {
		bool own = b->owner == uid;

		if (b->pooled || (!own && !(all && uid == 0)))
			continue;
		if (strcmp(b->name, name) == 0) {
			if (own)
				return b;
			others = b;
		}
		if (strcmp(b->id, name) == 0)
			by_id = b;
	}
	return by_id ? by_id : others;
}

int box_save(struct box *b, bool durable, struct err *e)
{
	OWN_BUF text = BUF_INIT(SPEC_TEXT_MAX);
	struct json_out o;
	struct box_row row = {
		.id = b->id,
		.name = b->name,
		.owner = b->owner,
		.state = box_state_words[b->state],
		.why = b->why[0] ? b->why : NULL,
		.created = b->created,
		.started = b->started,
		.expires = b->expires,
	};

	if (b->throw_away || b->unread)
		return 0;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	spec_write(&b->spec, &o);
	json_put_int(&o, "owner_gid", b->owner_gid);
	json_end_obj(&o);
	if (buf_error(&text))
		return err_set(e, buf_error(&text), "cannot record the box");
	row.spec = text.data;
	return db_box_put(b->d->db, &row, durable, e);
}

void box_event(struct box *b, const char *event, const char *text)
{
	if (!b->throw_away)
		db_event(b->d->db, b->id, b->name, b->owner, event, text);
}

void box_write(const struct box *b, struct json_out *o, const char *key, bool open)
{
	json_put_obj(o, key);
	json_put_str(o, "id", b->id);
	json_put_str(o, "name", b->name);
	json_put_str(o, "state", box_state_words[b->state]);
	if (b->why[0])
		json_put_str(o, "why", b->why);
	json_put_int(o, "owner", b->owner);
	json_put_str(o, "engine", b->d->engine->name);
	json_put_int(o, "created", b->created);
	if (b->started)
		json_put_int(o, "started", b->started);
	spec_write(&b->spec, o);
	net_write(b, o);
	if (b->expires)
		json_put_int(o, "expires", b->expires);
	if (b->throw_away)
		json_put_bool(o, "throw_away", true);
	if (b->run.pid > 0)
		json_put_int(o, "pid", b->run.pid);
	if (b->busy)
		json_put_str(o, "busy", b->busy);
	if (!open)
		json_end_obj(o);
}

const char *box_parent_dir(const struct box *b, char *buf, size_t n)
{
	(void)snprintf(buf, n, "%s/%s", b->d->state_dir, b->throw_away ? "run" : "boxes");
	return buf;
}

void box_release(struct box *b)
{
	struct req *q = b->waiting;

	b->busy = NULL;
	b->waiting = NULL;
	b->waiting_tail = &b->waiting;
	b->nwaiting = 0;
	/* Its client went away meanwhile. Those who wait will find that the box is going, and then that it is gone. */
	if (b->throw_away && !b->holder && !b->pooled)
		box_discard(b);
	while (q) {
		struct req *next = q->next;

		q->next = NULL;
		dispatch(q);
		q = next;
	}
}

/* ---------------------------------------------------------------- the end of a box */

static void end_done(struct box *b, int r, struct err *e, void *arg)
{
	struct daemon *d = b->d;

	(void)arg;
	if (r < 0) {
		b->state = BOX_BROKEN;
		(void)snprintf(b->why, sizeof(b->why), "%.200s", e->text);
	}
	(void)box_save(b, false, NULL);
	box_release(b);
	daemon_touch(d);
}

/* What killed cubby-init, while its groups can still be asked. */
static void blame(struct box *b)
{
	struct usage u;

	if (b->d->engine->usage(b->id, &u, NULL) == 0 && u.oom_kills > b->oom_seen)
		(void)snprintf(b->why, sizeof(b->why), "out of memory");
	else
		(void)snprintf(b->why, sizeof(b->why), "crashed: its first process ended");
}

static void exited(void *arg, uint32_t events)
{
	struct box *b = arg;
	siginfo_t si = { 0 };

	(void)events;
	loop_del(b->d->loop, &b->exit_io);
	/* Ours unless an earlier daemon made it. */
	(void)waitid(P_PIDFD, (id_t)b->run.pidfd, &si, WEXITED | WNOHANG);
	if (b->stop_fd >= 0) {
		void (*then)(struct box *, int, struct err *, void *) = b->then;

		b->then = NULL;
		box_down(b, BUILD_NOW, false, then, b->then_arg);
		return;
	}
	net_box_off(b, false);
	if (b->busy)	/* being taken down: the builder knows */
		return;
	blame(b);
	if (b->throw_away && !b->holder) {
		box_discard(b);
		return;
	}
	b->state = BOX_STOPPED;
	box_event(b, "ended", b->why);
	if (b->throw_away)	/* its caller may still ask why; it goes with the connection */
		return;
	b->busy = "being cleared away";
	box_down(b, BUILD_NOW, false, end_done, NULL);
}

int box_adopt(struct box *b, const struct box_run *run, struct err *e)
{
	int r;

	b->run = *run;
	r = loop_add(b->d->loop, &b->exit_io, run->pidfd, EPOLLIN, exited, b);
	if (r < 0)
		return err_set(e, r, "cannot watch box '%s'", b->name);
	return 0;
}

/* ---------------------------------------------------------------- up */

struct bringup {
	struct box *b;
	void (*then)(struct box *, int, struct err *, void *);
	void *arg;
};

static int slot_take(struct box *b, struct err *e)
{
	struct daemon *d = b->d;

	if (d->rootless) {
		b->slot = -1;
		return 0;
	}
	for (uint32_t i = 0; i < d->id_slots; i++) {
		if (d->slots[i])
			continue;
		d->slots[i] = 1;
		b->slot = (int)i;
		return 0;
	}
	return err_why(e, WHY_LIMIT, -EAGAIN, "all %u id ranges are in use: stop some boxes, or raise id_count in cubby.conf",
		       d->id_slots);
}

static void up_failed(struct box *b, int r, struct err *e, void *arg)
{
	struct bringup *u = arg;
	struct err kept = *e;

	(void)r;
	slot_free(b);
	u->then(b, kept.code ? kept.code : -EIO, &kept, u->arg);
	free(u);
}

struct failure {
	struct bringup *u;
	struct err e;
};

static void up_undone(struct box *b, int r, struct err *e, void *arg)
{
	struct failure *f = arg;

	(void)r;
	(void)e;
	up_failed(b, f->e.code, &f->e, f->u);
	free(f);
}

static void up_ok(struct bringup *u)
{
	struct box *b = u->b;

	b->state = BOX_RUNNING;
	b->why[0] = '\0';
	b->started = now_s();
	b->oom_seen = b->pids_seen = 0;
	b->seen_at = clock_ms();
	/* A pooled one is nobody's yet: the gateway learns of it when it is somebody's, and until then nothing leaves it. */
	if (!b->pooled)
		net_box_on(b);
	box_timers(b);
	u->then(b, 0, NULL, u->arg);
	free(u);
}

/* The engine left nothing, unless its builder was killed: make sure. */
static void up_undo(struct bringup *u, int r, struct err *e)
{
	struct failure *f = calloc(1, sizeof(*f));

	if (!f) {
		up_failed(u->b, r, e, u);
		return;
	}
	f->u = u;
	f->e = *e;
	box_down(u->b, BUILD_NOW, false, up_undone, f);
}

/* The box runs, and what it sends is carried, or never will be. */
static void up_net(void *arg, int r, const struct err *e)
{
	struct bringup *u = arg;
	struct err mine = ERR_INIT;

	if (r < 0)
		mine = *e;
	else if (!u->b->exit_io.on)
		r = err_why(&mine, WHY_INTERNAL, -EIO, "the first process of box '%s' ended at once", u->b->name);
	if (r == 0)
		up_ok(u);
	else
		up_undo(u, r, &mine);
}

static void up_done(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct bringup *u = arg;
	struct box *b = u->b;
	struct box_run run = {
		.pid = (pid_t)json_int(answer, "pid", 0), .pidfd = *fd, .net_index = (unsigned)json_int(answer, "net_index", 0),
		.net_if = (int)json_int(answer, "net_if", 0),
	};
	struct err mine = ERR_INIT;

	if (r == 0 && (run.pid <= 1 || *fd < 0 || (b->spec.net && (run.net_index < NET_INDEX_MIN || run.net_if <= 0))))
		r = err_why(&mine, WHY_INTERNAL, -EIO, "the builder's answer makes no sense");
	else if (r < 0)
		mine = *e;
	if (r == 0) {
		*fd = FD_NONE;
		r = box_adopt(b, &run, &mine);
	}
	if (r < 0)
		up_undo(u, r, &mine);
	else if (b->spec.net)
		gateway_want(b->d->net, up_net, u);
	else
		up_ok(u);
}

static int fill(struct box *b, struct box_spec *s, char **sources, const int *fds, char *box_dir, char *run_dir, size_t n,
		struct err *e)
{
	struct daemon *d = b->d;
	char parent[1100];
	int r;

	memccpy(s->id, b->id, '\0', sizeof(s->id));
	memccpy(s->host_name, b->name, '\0', sizeof(s->host_name));
	memccpy(s->tz, b->spec.tz, '\0', sizeof(s->tz));
	(void)snprintf(box_dir, n, "%s/%s", box_parent_dir(b, parent, sizeof(parent)), b->id);
	(void)snprintf(run_dir, n, "%s/boxes/%s", d->run_dir, b->id);
	s->box_dir = box_dir;
	s->run_dir = run_dir;
	s->limits = b->spec.limits;
	s->nesting = b->spec.nesting;
	s->allow_weaker = b->spec.allow_weaker;
	s->weaken = b->spec.weaken;
	s->throw_away = b->throw_away;
	s->net = b->spec.net != NULL;
	r = slot_take(b, e);
	if (r < 0)
		return r;
	s->id_base = b->slot >= 0 ? d->id_base + (uint32_t)b->slot * BOX_IDS : 0;
	for (unsigned i = 0; i < b->spec.nviews; i++) {
		struct view *v = &b->spec.views[i];
		struct box_mount *m = &s->mounts[s->nmounts++];

		m->at = v->at;
		m->fd = fds ? fds[i] : FD_NONE;
		sources[i] = v->source;
		m->read_only = v->read_only;
		m->cow = v->cow;
		m->host_uid = b->owner;
		m->host_gid = b->owner_gid;
		m->box_uid = v->ids_given ? v->uid : strcmp(b->spec.user, "root") == 0 ? 0 : 1000;
		m->box_gid = v->ids_given ? v->gid : m->box_uid;
	}
	return template_parts(d->templates, b->spec.template, s->parts, &s->nparts, e);
}

void box_up(struct box *b, enum builder_queue q, const int *fds, size_t nfds,
	    void (*then)(struct box *, int, struct err *, void *), void *arg)
{
	struct bringup *u = calloc(1, sizeof(*u));
	struct box_spec *s = calloc(1, sizeof(*s));
	char *sources[ENGINE_MOUNTS_MAX] = { NULL };
	char box_dir[1200], run_dir[1200];
	struct err e = ERR_INIT;
	int r = 0;

	if (!u || !s)
		r = err_set(&e, -ENOMEM, "cannot start box '%s'", b->name);
	if (r == 0) {
		u->b = b;
		u->then = then;
		u->arg = arg;
		r = fill(b, s, sources, nfds > 0 ? fds : NULL, box_dir, run_dir, sizeof(box_dir), &e);
	}
	/* Started side by side with the box. */
	if (r == 0 && b->spec.net)
		gateway_start(b->d->net);
	if (r == 0)
		r = builders_start_box(b->d->builders, q, s, sources, b->owner, up_done, u, &e);
	if (s)
		template_parts_done(s->parts, s->nparts);
	free(s);
	if (r < 0) {
		slot_free(b);
		free(u);
		then(b, r, &e, arg);
	}
}

/* ---------------------------------------------------------------- down */

static void down_done(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct box *b = arg;
	void (*then)(struct box *, int, struct err *, void *) = b->then;
	struct err copy = ERR_INIT;

	(void)answer;
	(void)fd;
	if (r < 0)
		copy = *e;
	if (r == 0) {
		if (b->run.pidfd >= 0) {
			siginfo_t si = { 0 };

			(void)waitid(P_PIDFD, (id_t)b->run.pidfd, &si, WEXITED | WNOHANG);
		}
		unwatch(b);
		slot_free(b);
		if (b->state == BOX_RUNNING || b->state == BOX_PAUSED)
			b->state = BOX_STOPPED;
	}
	b->then = NULL;
	host_prune(b->d);
	then(b, r, &copy, b->then_arg);
}

void box_down(struct box *b, enum builder_queue q, bool remove,
	      void (*then)(struct box *, int, struct err *, void *), void *arg)
{
	char parent[1100];
	struct err e = ERR_INIT;
	int r;

	loop_timer_stop(b->d->loop, &b->stop);
	fd_close(&b->stop_fd);
	b->then = then;
	b->then_arg = arg;
	r = builders_end_box(b->d->builders, q, b->id, remove ? box_parent_dir(b, parent, sizeof(parent)) : NULL, down_done, b,
			     &e);
	if (r < 0) {
		b->then = NULL;
		then(b, r, &e, arg);
	}
}

static void stop_late(void *arg)
{
	struct box *b = arg;
	void (*then)(struct box *, int, struct err *, void *) = b->then;

	box_down(b, BUILD_NOW, false, then, b->then_arg);
}

void box_stop(struct box *b, uint64_t grace_ms, void (*then)(struct box *, int, struct err *, void *), void *arg)
{
	uint8_t frame[BOX_HEAD + 4] = { BOX_STOP, 0, 0, 0, 4 };
	int fd = FD_NONE;

	if (grace_ms > 3600000)
		grace_ms = 3600000;
	if (b->state == BOX_PAUSED)
		(void)b->d->engine->freeze(b->id, false, NULL);
	if (grace_ms > 0)
		fd = box_connect(b, NULL);
	for (int i = 0; i < 4; i++)
		frame[BOX_HEAD + i] = (uint8_t)(grace_ms >> (8 * i));
	if (fd < 0 || fd_send(fd, frame, sizeof(frame), NULL, 0, MSG_DONTWAIT) != sizeof(frame)) {
		fd_close(&fd);
		box_down(b, BUILD_NOW, false, then, arg);
		return;
	}
	b->stop_fd = fd;
	b->then = then;
	b->then_arg = arg;
	loop_timer_set(b->d->loop, &b->stop, grace_ms + STOP_EXTRA_MS, stop_late, b);
}

static void discarded(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	if (r < 0)
		db_event(b->d->db, b->id, b->name, b->owner, "leftover", e->text);
	box_free(b);
}

void box_discard(struct box *b)
{
	if (b->busy)
		return;
	b->busy = "being removed";
	b->state = BOX_REMOVING;
	box_down(b, BUILD_LATER, true, discarded, NULL);
}

/* ---------------------------------------------------------------- while it runs */

int box_connect(struct box *b, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval wait = { .tv_usec = 200000 };

	if (fd < 0)
		return err_set(e, -errno, "cannot reach box '%s'", b->name);
	/* A run directory may be deeper than the 107 bytes of a socket's path. */
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/init.sock", b->d->run_boxes_fd, b->id);
	/* connect(2) waits while the backlog is full, which a box can bring about: not for long. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
		int r = -errno;

		(void)close(fd);
		return err_set(e, r, "cannot reach box '%s': its first process doesn't answer", b->name);
	}
	wait.tv_usec = 0;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	return fd;
}

void box_look(struct box *b)
{
	struct usage u;
	uint64_t now = clock_ms();

	if (b->state != BOX_RUNNING || now - b->seen_at < LOOK_FRESH_MS)
		return;
	b->seen_at = now;
	if (b->d->engine->usage(b->id, &u, NULL) == 0) {
		b->oom_seen = u.oom_kills;
		b->pids_seen = u.pids_denied;
	}
}

static void ping_over(struct box *b, bool busy, uint64_t idle_ms)
{
	void (*answer)(struct box *, bool, uint64_t) = b->ping_answer;

	loop_del(b->d->loop, &b->ping_io);
	fd_close(&b->ping_fd);
	b->ping_answer = NULL;
	if (answer)
		answer(b, busy, idle_ms);
}

static void ping_ready(void *arg, uint32_t events)
{
	struct box *b = arg;
	uint8_t m[BOX_HEAD + 12];
	bool busy = true;
	uint64_t idle = 0;

	(void)events;
	if (recv(b->ping_fd, m, sizeof(m), MSG_DONTWAIT) == (ssize_t)sizeof(m) && m[0] == BOX_OK && m[4] == 12) {
		busy = m[8] || m[9] || m[10] || m[11];
		for (int i = 7; i >= 0; i--)
			idle = idle << 8 | m[BOX_HEAD + 4 + i];
	}
	ping_over(b, busy, idle);
}

void box_ping(struct box *b, void (*answer)(struct box *b, bool busy, uint64_t idle_ms))
{
	static const uint8_t frame[BOX_HEAD] = { BOX_PING };

	/* One that is still under way got no answer since: that is "busy", never "idle". */
	if (b->ping_fd >= 0)
		ping_over(b, true, 0);
	b->ping_answer = answer;
	b->ping_fd = box_connect(b, NULL);
	if (b->ping_fd < 0 || fd_send(b->ping_fd, frame, sizeof(frame), NULL, 0, MSG_DONTWAIT) != sizeof(frame) ||
	    loop_add(b->d->loop, &b->ping_io, b->ping_fd, EPOLLIN, ping_ready, b) < 0)
		ping_over(b, true, 0);
}

/* ---------------------------------------------------------------- time to live, idleness */

static void expired_gone(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	if (r < 0) {
		b->state = BOX_BROKEN;
		(void)snprintf(b->why, sizeof(b->why), "%.200s", e->text);
		(void)box_save(b, false, NULL);
		box_release(b);
		return;
	}
	if (db_box_drop(b->d->db, b->id, true, NULL) < 0) {
		box_release(b);
		return;
	}
	box_free(b);
}

static void ttl_ended(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	b->state = BOX_STOPPED;
	if (r < 0)
		(void)snprintf(b->why, sizeof(b->why), "%.250s", e->text);
	box_release(b);
}

static void ttl_over(void *arg)
{
	struct box *b = arg;

	if (b->busy) {
		loop_timer_set(b->d->loop, &b->ttl, 1000, ttl_over, b);
		return;
	}
	if (b->throw_away && !b->holder) {
		box_discard(b);
		return;
	}
	if (b->throw_away) {
		/* Its client learns why, and takes it along. */
		b->busy = "being ended: its time to live is over";
		(void)snprintf(b->why, sizeof(b->why), "its time to live is over");
		box_stop(b, TTL_GRACE_MS, ttl_ended, NULL);
		return;
	}
	box_event(b, "expired", "its time to live is over");
	b->busy = "being removed: its time to live is over";
	b->state = BOX_REMOVING;
	(void)box_save(b, true, NULL);
	box_down(b, BUILD_NOW, true, expired_gone, NULL);
}

static void idle_stopped(struct box *b, int r, struct err *e, void *arg)
{
	if (r == 0)
		(void)snprintf(b->why, sizeof(b->why), "stopped: it was idle");
	end_done(b, r, e, arg);
}

static void idle_over(void *arg);

static void idle_answer(struct box *b, bool busy, uint64_t idle_ms)
{
	if (b->state != BOX_RUNNING || !b->spec.idle_ms)
		return;
	if (busy || b->busy || idle_ms < b->spec.idle_ms) {
		uint64_t in = busy || idle_ms >= b->spec.idle_ms ? b->spec.idle_ms : b->spec.idle_ms - idle_ms;

		loop_timer_set(b->d->loop, &b->idle, in < 200 ? 200 : in, idle_over, b);
		return;
	}
	box_event(b, "idle", "stopped after a time without a command");
	b->busy = "being stopped: it was idle";
	box_stop(b, 10000, idle_stopped, NULL);
}

static void idle_over(void *arg)
{
	struct box *b = arg;

	if (b->state == BOX_RUNNING)
		box_ping(b, idle_answer);
}

void box_timers(struct box *b)
{
	struct loop *l = b->d->loop;

	loop_timer_stop(l, &b->idle);
	if (b->expires == 0)
		loop_timer_stop(l, &b->ttl);
	/* One that runs goes on: a wall clock that jumps meanwhile must not make an end of all boxes at once. */
	if (b->expires > 0 && (b->expires != b->ttl_for || !b->ttl.link)) {
		int64_t left = b->expires - now_s();
		uint64_t ms = left <= 0 ? 0 : (uint64_t)left * 1000;

		/* A wall clock that was set back must not let a box live longer than it was made for. */
		if (b->spec.ttl_ms && ms > b->spec.ttl_ms)
			ms = b->spec.ttl_ms;
		loop_timer_set(l, &b->ttl, ms, ttl_over, b);
		b->ttl_for = b->expires;
	}
	if (b->spec.idle_ms && b->state == BOX_RUNNING)
		loop_timer_set(l, &b->idle, b->spec.idle_ms, idle_over, b);
}
