/* SPDX-License-Identifier: Apache-2.0 */
#include "box/builder.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chan/msg.h"
#include "store/tree.h"

/* Making a box takes milliseconds, taking one down at most a few seconds. */
#define JOB_DEADLINE_MS 60000
/* So many waiting jobs of the second queue are enough to let one of them go first. */
#define LATER_PATIENCE 32
/* Ending a box can be begun anew at any point: only that may be, and not for ever. */
#define END_AGAIN 3
#define SPARE 30
#define HELD_MAX 256

struct job {
	struct job *next;
	char *text;
	size_t len;
	int fds[FD_PASS_MAX];
	size_t nfds;
	builder_done *done;
	void *arg;
	unsigned again;	/* how often another builder may do it anew when one dies at it */
};

struct queue {
	struct job *head, **tail;
	unsigned n;
};

struct builder {
	struct builders *all;
	pid_t pid;
	int sock;
	struct loop_io io;
	struct loop_timer deadline;
	struct job *job;
};

/* Which file a descriptor was when the builders were first made; ino 0: closed. */
struct held {
	dev_t dev;
	ino_t ino;
};

struct builders {
	struct loop *loop;
	const struct engine *engine;
	int keep_below;
	struct held held[HELD_MAX];
	void (*in_builder)(unsigned k);
	unsigned count, turns;
	struct queue now, later;
	struct builder each[16];
};

/* ---------------------------------------------------------------- in the builder */

struct work {
	const struct engine *engine;
	int sock;
};

static int reply(const struct work *w, struct buf *text, const int *fds, size_t nfds)
{
	if (buf_error(text))
		return buf_error(text);
	return msg_send(w->sock, text->data, text->len, fds, nfds);
}

/* Borrowed strings: the spec lives as long as the message it was read from. */
static int read_parts(const struct json *arr, struct box_spec *s)
{
	for (const struct json *p = arr ? arr->child : NULL; p; p = p->next) {
		struct root_part *part = &s->parts[s->nparts++];
		const struct json *layers = json_get(p, "layers");

		part->at = (char *)json_str(p, "at", "/");
		part->idmap = json_bool(p, "idmap", true);
		for (const struct json *l = layers ? layers->child : NULL; l; l = l->next)
			part->layers[part->nlayers++] = (char *)l->str;
	}
	return s->nparts > 0 ? 0 : -EINVAL;
}

static void read_limits(const struct json *o, struct limits *l)
{
	l->memory = (uint64_t)json_int(o, "memory", 0);
	l->swap = (uint64_t)json_int(o, "swap", 0);
	l->pids = (uint64_t)json_int(o, "pids", 0);
	l->cpu_milli = (uint32_t)json_int(o, "cpu_milli", 0);
	l->cpu_weight = (uint32_t)json_int(o, "cpu_weight", 0);
	l->io_read = (uint64_t)json_int(o, "io_read", 0);
	l->io_write = (uint64_t)json_int(o, "io_write", 0);
}

/*
 * Open a path with the rights of a user: groups and file-system ids of this process are theirs for the moment of the
 * call. Changing the file-system id away from 0 takes the capabilities that override permissions (capabilities(7)).
 */
static int open_as(uid_t uid, const char *path, struct err *e)
{
	gid_t groups[NGROUPS_MAX > 1024 ? 1024 : NGROUPS_MAX], saved[1024];
	int n = (int)(sizeof(groups) / sizeof(groups[0])), nsaved, fd, r = 0;
	struct passwd *pw;

	if (uid == 0) {
		fd = open(path, O_PATH | O_CLOEXEC | O_NOCTTY);
		return fd >= 0 ? fd : err_set(e, -errno, "cannot open '%s' for the box", path);
	}
	pw = getpwuid(uid);
	if (!pw)
		return err_why(e, WHY_DENIED, -EACCES, "the box's owner, user %u, doesn't exist any more", uid);
	if (getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
		n = 0;
	nsaved = getgroups((int)(sizeof(saved) / sizeof(saved[0])), saved);
	if (nsaved < 0 || setgroups((size_t)n, groups) < 0)
		return err_set(e, -errno, "cannot take the groups of user %u", uid);
	(void)setfsgid(pw->pw_gid);
	(void)setfsuid(uid);
	if ((uid_t)setfsuid((uid_t)-1) != uid || (gid_t)setfsgid((gid_t)-1) != pw->pw_gid) {
		fd = -1;
		r = err_set(e, -EPERM, "cannot take the rights of user %u", uid);
	} else {
		fd = open(path, O_PATH | O_CLOEXEC | O_NOCTTY);
		if (fd < 0)
			r = err_set(e, -errno, "cannot open '%s' with the rights of its owner", path);
	}
	(void)setfsuid(0);
	(void)setfsgid(0);
	(void)setgroups((size_t)nsaved, saved);
	return r < 0 ? r : fd;
}

static void put_net(struct json_out *o, const struct box_run *run)
{
	if (!run->net_index)
		return;
	json_put_int(o, "net_index", run->net_index);
	json_put_int(o, "net_if", run->net_if);
}

static struct box_run read_run(const struct json *m, int pidfd)
{
	return (struct box_run){
		.pid = (pid_t)json_int(m, "pid", 0), .pidfd = pidfd, .net_index = (unsigned)json_int(m, "net_index", 0),
		.net_if = (int)json_int(m, "net_if", 0),
	};
}

static int work_start(const struct work *w, const struct json *m, int *fds, size_t nfds, struct buf *out, int *ret_fd,
		      struct err *e)
{
	struct box_spec *s;
	OWN_MEM void *mem = NULL;
	struct box_run run = { .pidfd = FD_NONE };
	int opened[ENGINE_MOUNTS_MAX];
	unsigned nopened = 0;
	const struct json *arr;
	size_t at = 0;
	struct json_out o;
	int r;

	mem = s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, -ENOMEM, "cannot hold the description of the box");
	memccpy(s->id, json_str(m, "id", ""), '\0', sizeof(s->id));
	memccpy(s->host_name, json_str(m, "host_name", ""), '\0', sizeof(s->host_name));
	memccpy(s->tz, json_str(m, "tz", ""), '\0', sizeof(s->tz));
	s->box_dir = (char *)json_str(m, "box_dir", "");
	s->run_dir = (char *)json_str(m, "run_dir", "");
	s->id_base = (uint32_t)json_int(m, "id_base", 0);
	s->net = json_bool(m, "net", false);
	s->nesting = json_bool(m, "nesting", false);
	s->throw_away = json_bool(m, "throw_away", false);
	s->allow_weaker = json_bool(m, "allow_weaker", false);
	s->weaken = (unsigned)json_int(m, "weaken", 0) & WEAKEN_ALL;
	read_limits(json_get(m, "limits"), &s->limits);
	r = read_parts(json_get(m, "parts"), s);
	if (r < 0)
		return err_set(e, r, "the template has no root");
	arr = json_get(m, "mounts");
	for (const struct json *v = arr ? arr->child : NULL; v && r == 0; v = v->next) {
		struct box_mount *bm = &s->mounts[s->nmounts++];

		bm->at = (char *)json_str(v, "at", "");
		bm->read_only = json_bool(v, "ro", false);
		bm->cow = json_bool(v, "cow", false);
		for (const struct json *l = json_get(v, "layers") ? json_get(v, "layers")->child : NULL;
		     l && bm->nlayers < ENGINE_LAYERS_MAX; l = l->next)
			bm->layers[bm->nlayers++] = (char *)l->str;
		bm->host_uid = (uint32_t)json_int(v, "host_uid", 0);
		bm->host_gid = (uint32_t)json_int(v, "host_gid", 0);
		bm->box_uid = (uint32_t)json_int(v, "box_uid", 0);
		bm->box_gid = (uint32_t)json_int(v, "box_gid", 0);
		if (json_bool(v, "passed", false)) {
			if (at >= nfds)
				return err_set(e, -EBADMSG, "a mount lacks its descriptor");
			bm->fd = fds[at++];
			continue;
		}
		bm->fd = open_as((uid_t)json_int(m, "owner", 0), json_str(v, "source", ""), e);
		if (bm->fd < 0)
			r = bm->fd;
		else
			opened[nopened++] = bm->fd;
	}
	if (r == 0 && mkdir(s->box_dir, 0700) < 0 && errno != EEXIST)
		r = err_set(e, -errno, "cannot make '%s'", s->box_dir);
	if (r == 0)
		r = w->engine->start(s, &run, e);
	for (unsigned i = 0; i < nopened; i++)
		fd_close(&opened[i]);
	if (r < 0)
		return r;
	json_out_init(&o, out);
	json_put_obj(&o, NULL);
	json_put_bool(&o, "ok", true);
	json_put_int(&o, "pid", run.pid);
	put_net(&o, &run);
	json_end_obj(&o);
	*ret_fd = run.pidfd;
	return 0;
}

static int work_end(const struct work *w, const struct json *m, struct buf *out, struct err *e)
{
	const char *id = json_str(m, "id", ""), *parent = json_str(m, "parent", NULL);
	int r = w->engine->kill(id, e);

	if (r == 0)
		r = w->engine->forget(id, e);
	if (r == 0 && parent) {
		OWN_FD dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (dir >= 0)
			r = tree_remove(dir, id, e);
		else if (errno != ENOENT)
			r = err_set(e, -errno, "cannot open '%s'", parent);
	}
	return r < 0 ? r : buf_puts(out, "{\"ok\":true}");
}

static int work_remove(const struct json *m, struct buf *out, struct err *e)
{
	const char *parent = json_str(m, "parent", "");
	OWN_FD dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dir < 0)
		return err_set(e, -errno, "cannot open '%s'", parent);
	r = tree_remove(dir, json_str(m, "name", ""), e);
	return r < 0 ? r : buf_puts(out, "{\"ok\":true}");
}

static int work_plug(const struct work *w, const struct json *m, int *fds, size_t nfds, struct buf *out, struct err *e)
{
	struct box_run run = read_run(m, nfds == 1 ? fds[0] : FD_NONE);
	struct json_out o;
	int r;

	if (nfds != 1)
		return err_set(e, -EBADMSG, "a box lacks its descriptor");
	if (!w->engine->plug)
		return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, "the engine '%s' can't change a box's network while it runs", w->engine->name);
	r = w->engine->plug(json_str(m, "id", ""), &run, json_bool(m, "on", false), e);
	if (r < 0)
		return r;
	json_out_init(&o, out);
	json_put_obj(&o, NULL);
	json_put_bool(&o, "ok", true);
	put_net(&o, &run);
	json_end_obj(&o);
	return 0;
}

static void put_row(const struct grade_row *row, void *arg)
{
	static const char *const levels[] = { [GRADE_OFF] = "off", [GRADE_WEAK] = "weak", [GRADE_ON] = "on" };
	struct json_out *o = arg;

	json_put_obj(o, NULL);
	json_put_str(o, "id", row->id);
	json_put_str(o, "level", levels[row->level]);
	json_put_str(o, "what", row->what);
	if (row->fix)
		json_put_str(o, "fix", row->fix);
	json_end_obj(o);
}

static int work_grade(const struct work *w, const struct json *m, int *fds, size_t nfds, struct buf *out, struct err *e)
{
	struct json_out o;
	int r;

	json_out_init(&o, out);
	json_put_obj(&o, NULL);
	json_put_arr(&o, "rows");
	if (nfds == 1) {
		struct box_run run = read_run(m, fds[0]);

		r = w->engine->grade(json_str(m, "id", ""), &run, put_row, &o, e);
	} else {
		r = w->engine->probe(put_row, &o, e);
	}
	json_end_arr(&o);
	if (nfds == 0) {
		/* That no box can be had is an answer, not a failure of asking. */
		json_put_bool(&o, "usable", r >= 0);
		if (r < 0)
			json_put_str(&o, "reason", e->text);
		r = 0;
	}
	json_put_bool(&o, "ok", true);
	json_end_obj(&o);
	return r;
}

/* Nobody waits: make something that the next box needs. */
static void ahead(const struct work *w)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };

	while (w->engine->prepare && poll(&p, 1, 0) == 0 && w->engine->prepare())
		;
}

static _Noreturn void builder_main(const struct work *w)
{
	(void)prctl(PR_SET_NAME, "cubbyd-builder");
	for (;;) {
		OWN_JSON doc = { 0 };
		OWN_BUF out = BUF_INIT(MSG_MAX);
		struct err e = ERR_INIT;
		int fds[FD_PASS_MAX], ret_fd = FD_NONE, r;
		size_t nfds = 0;
		const char *op;

		ahead(w);
		r = msg_recv(w->sock, &doc, fds, FD_PASS_MAX, &nfds, &e);
		if (r <= 0)
			_exit(r == 0 ? 0 : 1);
		op = json_str(doc.root, "op", "");
		if (strcmp(op, "start") == 0)
			r = work_start(w, doc.root, fds, nfds, &out, &ret_fd, &e);
		else if (strcmp(op, "end") == 0)
			r = work_end(w, doc.root, &out, &e);
		else if (strcmp(op, "remove") == 0)
			r = work_remove(doc.root, &out, &e);
		else if (strcmp(op, "plug") == 0)
			r = work_plug(w, doc.root, fds, nfds, &out, &e);
		else
			r = work_grade(w, doc.root, fds, nfds, &out, &e);
		if (r < 0) {
			if (!e.code)
				(void)err_set(&e, r, "a builder failed");
			msg_put_error(&out, &e);
		}
		r = reply(w, &out, &ret_fd, ret_fd < 0 ? 0 : 1);
		fd_close(&ret_fd);
		for (size_t i = 0; i < nfds; i++)
			fd_close(&fds[i]);
		if (r < 0)
			_exit(1);
	}
}

/* ---------------------------------------------------------------- in the daemon */

static void builder_ready(void *arg, uint32_t events);
static void builder_late(void *arg);

static struct held held_now(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return (struct held){ 0 };
	return (struct held){ .dev = st.st_dev, .ino = st.st_ino };
}

/*
 * A number below keep_below that was closed since and opened again is something of the daemon's now, perhaps its end of our
 * own socket: kept open here, we would never see the daemon die, and hold its lock for ever.
 */
static void close_new(const struct builders *all)
{
	for (int fd = 3; fd < all->keep_below; fd++) {
		struct held now = held_now(fd);

		if (fd >= HELD_MAX || now.dev != all->held[fd].dev || now.ino != all->held[fd].ino)
			(void)close(fd);
	}
}

static int spawn(struct builder *b)
{
	int pair[2], r = fd_socketpair(SOCK_STREAM, pair);
	pid_t pid;

	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0) {
		r = -errno;
		fd_close(&pair[0]);
		fd_close(&pair[1]);
		return r;
	}
	if (pid == 0) {
		struct work w = { .engine = b->all->engine, .sock = pair[1] };
		sigset_t none;

		/* What the daemon holds must not live on here: a client would never see its connection end. */
		if (w.sock != b->all->keep_below) {
			(void)dup3(w.sock, b->all->keep_below, O_CLOEXEC);
			w.sock = b->all->keep_below;
		}
		close_new(b->all);
		(void)syscall(SYS_close_range, w.sock + 1, ~0U, 0);
		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		if (b->all->in_builder)
			b->all->in_builder((unsigned)(b - b->all->each));
		builder_main(&w);
	}
	fd_close(&pair[1]);
	b->pid = pid;
	b->sock = pair[0];
	return loop_add(b->all->loop, &b->io, b->sock, EPOLLIN, builder_ready, b);
}

static struct job *queue_take(struct queue *q)
{
	struct job *j = q->head;

	if (!j)
		return NULL;
	q->head = j->next;
	if (!q->head)
		q->tail = &q->head;
	q->n--;
	return j;
}

static struct job *next_job(struct builders *all)
{
	/* What somebody waits for goes first, but the other queue must not grow for ever. */
	if (all->later.n > LATER_PATIENCE && ++all->turns % 2 == 0)
		return queue_take(&all->later);
	return all->now.head ? queue_take(&all->now) : queue_take(&all->later);
}

static void job_free(struct job *j)
{
	for (size_t i = 0; i < j->nfds; i++)
		fd_close(&j->fds[i]);
	free(j->text);
	free(j);
}

static void job_fail(struct job *j, int code, const char *text)
{
	struct err e = ERR_INIT;
	int none = FD_NONE;

	(void)err_set(&e, code, "%s", text);
	j->done(j->arg, code, NULL, &none, &e);
	job_free(j);
}

static void queue_front(struct queue *q, struct job *j)
{
	j->next = q->head;
	if (!q->head)
		q->tail = &j->next;
	q->head = j;
	q->n++;
}

/* A builder died, or has to: another takes its place, and its job fails unless it may be done anew. */
static void replace(struct builder *b, bool again, const char *text)
{
	struct job *j = b->job;

	b->job = NULL;
	loop_timer_stop(b->all->loop, &b->deadline);
	loop_del(b->all->loop, &b->io);
	fd_close(&b->sock);
	if (b->pid > 0) {
		(void)kill(b->pid, SIGKILL);
		(void)waitpid(b->pid, NULL, 0);
		b->pid = 0;
	}
	(void)spawn(b);
	if (j && again && j->again > 0) {
		j->again--;
		queue_front(&b->all->now, j);
	} else if (j) {
		job_fail(j, -EIO, text);
	}
}

static void feed(struct builders *all)
{
	struct job *j;

	for (unsigned i = 0; i < all->count; i++) {
		struct builder *b = &all->each[i];

		if (b->job)
			continue;
		if (b->sock < 0 && spawn(b) < 0)
			continue;
		j = next_job(all);
		if (!j)
			return;
		b->job = j;
		loop_timer_set(all->loop, &b->deadline, JOB_DEADLINE_MS, builder_late, b);
		if (msg_send(b->sock, j->text, j->len, j->fds, j->nfds) < 0)
			replace(b, true, "a builder died");
	}
	/* With none that works, and none that can be had, nobody would ever take them. */
	for (unsigned i = 0; i < all->count; i++)
		if (all->each[i].sock >= 0)
			return;
	while ((j = next_job(all)))
		job_fail(j, -EAGAIN, "no process can be started to work on it");
}

static void builder_ready(void *arg, uint32_t events)
{
	struct builder *b = arg;
	OWN_JSON doc = { 0 };
	struct err e = ERR_INIT;
	int fd = FD_NONE, r;
	size_t nfds = 0;
	struct job *j;

	(void)events;
	r = msg_recv(b->sock, &doc, &fd, 1, &nfds, &e);
	if (r <= 0 || !b->job) {
		replace(b, true, "a builder died; see 'cubby doctor'");
		feed(b->all);
		return;
	}
	j = b->job;
	b->job = NULL;
	loop_timer_stop(b->all->loop, &b->deadline);
	/* The next job starts while this one's result is worked on. */
	feed(b->all);
	r = msg_error(doc.root, &e);
	j->done(j->arg, r, r < 0 ? NULL : doc.root, &fd, r < 0 ? &e : NULL);
	fd_close(&fd);
	job_free(j);
}

static void builder_late(void *arg)
{
	struct builder *b = arg;

	replace(b, false, "a builder hung for a minute and was ended");
	feed(b->all);
}

int builders_new(struct loop *loop, const struct engine *engine, unsigned count, int keep_below,
		 void (*in_builder)(unsigned k), struct builders **ret, struct err *e)
{
	struct builders *all = calloc(1, sizeof(*all));

	if (!all)
		return err_set(e, -ENOMEM, "cannot start builders");
	all->loop = loop;
	all->engine = engine;
	all->keep_below = keep_below;
	for (int fd = 0; fd < keep_below && fd < HELD_MAX; fd++)
		all->held[fd] = held_now(fd);
	all->in_builder = in_builder;
	all->now.tail = &all->now.head;
	all->later.tail = &all->later.head;
	all->count = count < 1 ? 1 : count > 16 ? 16 : count;
	for (unsigned i = 0; i < all->count; i++) {
		int r;

		all->each[i].all = all;
		all->each[i].sock = FD_NONE;
		r = spawn(&all->each[i]);
		if (r < 0) {
			builders_free(all, 0);
			return err_set(e, r, "cannot start builders");
		}
	}
	*ret = all;
	return 0;
}

void builders_free(struct builders *all, unsigned ms)
{
	struct job *j;

	if (!all)
		return;
	for (unsigned i = 0; i < all->count; i++) {
		struct builder *b = &all->each[i];
		struct pollfd p = { .fd = b->sock, .events = POLLIN };

		if (b->pid <= 0)
			continue;
		loop_del(all->loop, &b->io);
		loop_timer_stop(all->loop, &b->deadline);
		/* A job is finished rather than cut: what it made is found by the next daemon, but whole is better. */
		if (b->job)
			(void)poll(&p, 1, (int)ms);
		fd_close(&b->sock);
		(void)waitpid(b->pid, NULL, 0);
		if (b->job)
			job_free(b->job);
	}
	while ((j = queue_take(&all->now)))
		job_free(j);
	while ((j = queue_take(&all->later)))
		job_free(j);
	free(all);
}

static int submit(struct builders *all, enum builder_queue which, struct buf *text, const int *fds, size_t nfds,
		  unsigned again, builder_done *done, void *arg, struct err *e)
{
	struct queue *q = which == BUILD_NOW ? &all->now : &all->later;
	struct job *j;

	if (buf_error(text))
		return err_set(e, buf_error(text), "cannot describe the job");
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(e, -ENOMEM, "cannot hold the job");
	for (; j->nfds < nfds; j->nfds++) {
		j->fds[j->nfds] = fcntl(fds[j->nfds], F_DUPFD_CLOEXEC, SPARE);
		if (j->fds[j->nfds] < 0) {
			int r = -errno;

			job_free(j);
			return err_set(e, r, "cannot hold the job's descriptors");
		}
	}
	j->text = text->data;
	j->len = text->len;
	memset(text, 0, sizeof(*text));
	j->done = done;
	j->arg = arg;
	j->again = again;
	*q->tail = j;
	q->tail = &j->next;
	q->n++;
	feed(all);
	return 0;
}

int builders_start_box(struct builders *b, enum builder_queue q, const struct box_spec *s, char *const *sources,
		       uid_t owner, builder_done *done, void *arg, struct err *e)
{
	OWN_BUF text = BUF_INIT(MSG_MAX);
	int fds[ENGINE_MOUNTS_MAX];
	size_t nfds = 0;
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "start");
	json_put_str(&o, "id", s->id);
	json_put_str(&o, "host_name", s->host_name);
	json_put_str(&o, "tz", s->tz);
	json_put_str(&o, "box_dir", s->box_dir);
	json_put_str(&o, "run_dir", s->run_dir);
	json_put_int(&o, "id_base", s->id_base);
	json_put_int(&o, "owner", owner);
	json_put_bool(&o, "net", s->net);
	json_put_bool(&o, "nesting", s->nesting);
	json_put_bool(&o, "throw_away", s->throw_away);
	json_put_bool(&o, "allow_weaker", s->allow_weaker);
	json_put_int(&o, "weaken", s->weaken);
	json_put_obj(&o, "limits");
	json_put_int(&o, "memory", (int64_t)s->limits.memory);
	json_put_int(&o, "swap", (int64_t)s->limits.swap);
	json_put_int(&o, "pids", (int64_t)s->limits.pids);
	json_put_int(&o, "cpu_milli", s->limits.cpu_milli);
	json_put_int(&o, "cpu_weight", s->limits.cpu_weight);
	json_put_int(&o, "io_read", (int64_t)s->limits.io_read);
	json_put_int(&o, "io_write", (int64_t)s->limits.io_write);
	json_end_obj(&o);
	json_put_arr(&o, "parts");
	for (unsigned i = 0; i < s->nparts; i++) {
		json_put_obj(&o, NULL);
		json_put_str(&o, "at", s->parts[i].at);
		json_put_bool(&o, "idmap", s->parts[i].idmap);
		json_put_arr(&o, "layers");
		for (unsigned k = 0; k < s->parts[i].nlayers; k++)
			json_put_str(&o, NULL, s->parts[i].layers[k]);
		json_end_arr(&o);
		json_end_obj(&o);
	}
	json_end_arr(&o);
	json_put_arr(&o, "mounts");
	for (unsigned i = 0; i < s->nmounts; i++) {
		const struct box_mount *m = &s->mounts[i];

		json_put_obj(&o, NULL);
		json_put_str(&o, "at", m->at);
		json_put_bool(&o, "ro", m->read_only);
		json_put_bool(&o, "cow", m->cow);
		json_put_arr(&o, "layers");
		for (unsigned k = 0; k < m->nlayers; k++)
			json_put_str(&o, NULL, m->layers[k]);
		json_end_arr(&o);
		json_put_int(&o, "host_uid", m->host_uid);
		json_put_int(&o, "host_gid", m->host_gid);
		json_put_int(&o, "box_uid", m->box_uid);
		json_put_int(&o, "box_gid", m->box_gid);
		json_put_bool(&o, "passed", m->fd >= 0);
		if (m->fd >= 0)
			fds[nfds++] = m->fd;
		else
			json_put_str(&o, "source", sources ? sources[i] : NULL);
		json_end_obj(&o);
	}
	json_end_arr(&o);
	json_end_obj(&o);
	return submit(b, q, &text, fds, nfds, 0, done, arg, e);
}

int builders_end_box(struct builders *b, enum builder_queue q, const char *id, const char *parent_dir,
		     builder_done *done, void *arg, struct err *e)
{
	OWN_BUF text = BUF_INIT(MSG_MAX);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "end");
	json_put_str(&o, "id", id);
	if (parent_dir)
		json_put_str(&o, "parent", parent_dir);
	json_end_obj(&o);
	return submit(b, q, &text, NULL, 0, END_AGAIN, done, arg, e);
}

int builders_remove(struct builders *b, const char *parent_dir, const char *name, builder_done *done, void *arg, struct err *e)
{
	OWN_BUF text = BUF_INIT(MSG_MAX);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "remove");
	json_put_str(&o, "parent", parent_dir);
	json_put_str(&o, "name", name);
	json_end_obj(&o);
	return submit(b, BUILD_LATER, &text, NULL, 0, END_AGAIN, done, arg, e);
}

static void put_run(struct json_out *o, const char *id, const struct box_run *run)
{
	json_put_str(o, "id", id);
	json_put_int(o, "pid", run->pid);
	put_net(o, run);
}

int builders_plug(struct builders *b, enum builder_queue q, const char *id, const struct box_run *run, bool on,
		  builder_done *done, void *arg, struct err *e)
{
	OWN_BUF text = BUF_INIT(MSG_MAX);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "plug");
	json_put_bool(&o, "on", on);
	put_run(&o, id, run);
	json_end_obj(&o);
	return submit(b, q, &text, &run->pidfd, 1, 0, done, arg, e);
}

int builders_grade(struct builders *b, const char *id, const struct box_run *run, builder_done *done, void *arg,
		   struct err *e)
{
	OWN_BUF text = BUF_INIT(MSG_MAX);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "grade");
	if (run)
		put_run(&o, id, run);
	json_end_obj(&o);
	return submit(b, BUILD_NOW, &text, run ? &run->pidfd : NULL, run ? 1 : 0, 0, done, arg, e);
}

bool builders_reap(struct builders *all, pid_t pid)
{
	for (unsigned i = 0; i < all->count; i++) {
		struct builder *b = &all->each[i];

		if (b->pid != pid)
			continue;
		(void)waitpid(pid, NULL, 0);
		b->pid = 0;
		replace(b, true, "a builder died");
		feed(all);
		return true;
	}
	return false;
}
