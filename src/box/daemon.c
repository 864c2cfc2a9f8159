/* SPDX-License-Identifier: Apache-2.0 */
#include "box/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/parse.h"
#include "box/daemon.h"
#include "box/net.h"
#include "store/tree.h"

/* A daemon that leaves waits so long for a box that is just being made. */
#define LEAVE_MS 15000
/* And one that starts so long for the builders of the one before. */
#define LOCK_MS 20000
/* Twice after so long it looks again for builds of the one before that were still dying. */
#define SWEEP_MS 1000

static bool nothing_left(const struct daemon *d)
{
	if (d->nconns > 0 || d->builds)
		return false;
	for (const struct box *b = d->boxes; b; b = b->next)
		if (!b->pooled && (b->state != BOX_STOPPED || b->busy || b->expires))
			return false;
	return true;
}

static void idle_exit(void *arg)
{
	struct daemon *d = arg;

	if (!nothing_left(d))
		return;
	loop_quit(d->loop);
}

void daemon_touch(struct daemon *d)
{
	uint64_t ms = conf_num(&d->conf, CONF_IDLE_EXIT);

	if (ms == 0 || d->leaving)
		return;
	if (nothing_left(d))
		loop_timer_set(d->loop, &d->idle_exit, ms, idle_exit, d);
	else
		loop_timer_stop(d->loop, &d->idle_exit);
}

/* ---------------------------------------------------------------- signals */

static void reap(struct daemon *d)
{
	/* Boxes and template builds are reaped by who watches their pidfd: here only builders, and children of dead ones. */
	for (int i = 0; i < 64; i++) {
		siginfo_t si = { 0 };
		bool known = false;

		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0)
			return;
		if (builders_reap(d->builders, si.si_pid))
			continue;
		known = gateway_reap(d->net, si.si_pid);
		for (const struct box *b = d->boxes; b && !known; b = b->next)
			known = b->run.pid == si.si_pid;
		for (const struct build *b = d->builds; b && !known; b = b->next)
			known = b->b.pid == si.si_pid;
		if (known)
			return;	/* its watcher is next in the loop */
		(void)waitpid(si.si_pid, NULL, WNOHANG);
	}
}

static void signalled(void *arg, uint32_t events)
{
	struct daemon *d = arg;
	struct signalfd_siginfo si;

	(void)events;
	while (read(d->signal_fd, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD) {
			reap(d);
			continue;
		}
		d->leaving = true;
		loop_quit(d->loop);
	}
}

static int watch_signals(struct daemon *d, struct err *e)
{
	sigset_t set;
	int r;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);	/* a full disk by another name: an error, not an end */
	(void)signal(SIGHUP, SIG_IGN);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signal_fd < 0)
		return err_set(e, -errno, "cannot watch signals");
	r = loop_add(d->loop, &d->signal_io, d->signal_fd, EPOLLIN, signalled, d);
	return r < 0 ? err_set(e, r, "cannot watch signals") : 0;
}

/* ---------------------------------------------------------------- directories and the lock */

/* A directory of our own: made when missing, refused when it is somebody else's or others may write to it. */
static int own_dir(const char *path, mode_t mode, struct err *e)
{
	OWN_FD fd = FD_NONE;
	struct stat st;

	if (mkdir(path, mode) < 0 && errno != EEXIST) {
		if (errno == ENOENT) {
			char up[1100];
			char *slash;
			int r;

			(void)snprintf(up, sizeof(up), "%s", path);
			slash = strrchr(up, '/');
			if (!slash || slash == up)
				return err_set(e, -ENOENT, "cannot make '%s'", path);
			*slash = '\0';
			r = own_dir(up, 0755, e);
			if (r < 0)
				return r;
			if (mkdir(path, mode) < 0 && errno != EEXIST)
				return err_set(e, -errno, "cannot make '%s'", path);
		} else {
			return err_set(e, -errno, "cannot make '%s': set CUBBY_STATE_DIR and CUBBY_RUN_DIR to directories that "
				       "can be written", path);
		}
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, -errno, "cannot use '%s'", path);
	if (st.st_uid != geteuid() && !(mode == 0755 && st.st_uid == 0))
		return err_why(e, WHY_DENIED, -EPERM,
			       "'%s' belongs to user %u, not to %u who runs this: use a directory of your own "
			       "(CUBBY_STATE_DIR, CUBBY_RUN_DIR)", path, st.st_uid, geteuid());
	/* Whatever umask the first user had. */
	if (st.st_uid == geteuid() && (st.st_mode & 022) && !(st.st_mode & S_ISVTX) && fchmod(fd, mode) < 0)
		return err_set(e, -errno, "cannot close '%s' to others", path);
	if (mode == 0700 && (st.st_mode & 077) && fchmod(fd, 0700) < 0)
		return err_set(e, -errno, "cannot close '%s' to others", path);
	return 0;
}

static int own_dir_below(const char *dir, const char *name, mode_t mode, struct err *e)
{
	char path[1100];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return own_dir(path, mode, e);
}

static bool somebody_listens(const char *run_dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	OWN_FD dir = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	OWN_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (dir < 0 || fd < 0)
		return false;
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/cubbyd.sock", dir);
	return connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
}

/*
 * One daemon per pair of directories. The locks are held by the open files, which builders inherit: a daemon
 * that follows a killed one waits until the last builder of that one has finished what it was at.
 * Returns 0 with the lock, 1 when another daemon listens.
 */
static int take_lock(const char *dir, const char *run_dir, int *ret_fd, struct err *e)
{
	char path[1100];
	uint64_t deadline = clock_ms() + LOCK_MS;
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "%s/cubbyd.lock", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_set(e, -errno, "cannot open '%s'", path);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		struct timespec pause = { .tv_nsec = 5000000 };

		if (errno != EWOULDBLOCK)
			return err_set(e, -errno, "cannot lock '%s'", path);
		if (somebody_listens(run_dir))
			return 1;
		if (clock_ms() > deadline)
			return err_why(e, WHY_BUSY, -EBUSY,
				       "another cubbyd uses '%s', but doesn't listen in '%s': use the same CUBBY_RUN_DIR, or "
				       "another CUBBY_STATE_DIR", dir, run_dir);
		(void)nanosleep(&pause, NULL);
	}
	*ret_fd = fd_take(&fd);
	return 0;
}

/* ---------------------------------------------------------------- from start to end */

static void raise_limits(void)
{
	struct rlimit r;

	static const int others[] = { RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS, RLIMIT_DATA };

	/* What the shell of the first user was limited to is nothing for a daemon that serves others, nor for its boxes. */
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		r = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
		if (setrlimit((__rlimit_resource_t)others[i], &r) == 0 || getrlimit((__rlimit_resource_t)others[i], &r) < 0)
			continue;
		r.rlim_cur = r.rlim_max;
		(void)setrlimit((__rlimit_resource_t)others[i], &r);
	}
	/* Each running box costs a descriptor, each client two. */
	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
}

static uint32_t hash(const char *s, uint32_t h)
{
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

static int ids(struct daemon *d, const struct daemon_options *o, struct err *e)
{
	uint32_t count = 0;
	int r;

	d->rootless = o->rootless;
	d->ids = o->ids;
	if (d->rootless)
		return 0;
	r = conf_ids(&d->conf, NULL, "root", 0, &d->id_base, &count, e);
	if (r < 0)
		return r;
	if (d->id_base == 0 || count < BOX_IDS)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "the range of ids for boxes has to begin above 0 and hold 65536 or more");
	d->id_slots = count / BOX_IDS;
	if (d->id_slots > BOXES_MAX)
		d->id_slots = BOXES_MAX;
	d->slots = calloc(d->id_slots, 1);
	return d->slots ? 0 : err_set(e, -ENOMEM, "cannot keep track of ids");
}

/*
 * One more than the highest descriptor that is open. Gaps below it are filled: what came to lie in one later would be
 * kept by every builder.
 */
static int above_all(void)
{
	DIR *dp = opendir("/proc/self/fd");
	struct dirent *de;
	int most = 2;

	if (!dp)
		return -errno;
	while ((de = readdir(dp))) {
		uint64_t fd;

		if (parse_u64(de->d_name, INT32_MAX - 1, &fd) == 0 && (int)fd > most && (int)fd != dirfd(dp))
			most = (int)fd;
	}
	(void)closedir(dp);
	for (;;) {
		int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (fd < 0)
			return -errno;
		if (fd <= most)
			continue;
		(void)close(fd);
		return most + 1;
	}
}

/*
 * A build dies with its daemon, but not in the same moment: one that the sweep at the start saw alive is swept now. Never
 * while a build of our own is under way, which between its end and its finish looks like a dead one.
 */
static void sweep(void *arg)
{
	struct daemon *d = arg;

	if (!d->builds) {
		(void)template_sweep(d->templates, NULL);
		d->sweeps--;
	}
	if (d->sweeps > 0)
		loop_timer_set(d->loop, &d->sweep, SWEEP_MS, sweep, d);
}

static void discarded(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	struct daemon *d = arg;

	(void)answer;
	(void)fd;
	if (r < 0)
		db_event(d->db, NULL, NULL, 0, "template-left", e->text);	/* the next daemon sweeps it */
}

/* A template takes seconds to remove, which nobody is to wait for. */
static int discard(const char *parent, const char *name, void *arg)
{
	struct daemon *d = arg;

	return builders_remove(d->builders, parent, name, discarded, d, NULL);
}

static int open_all(struct daemon *d, const struct daemon_options *o, struct err *e)
{
	char path[1200];
	uint32_t store_ids = !d->rootless ? TEMPLATE_IDS_CANONICAL : d->ids > 1 ? TEMPLATE_IDS_ROOTLESS : TEMPLATE_IDS_ONE;
	int keep, r;

	/* What the engine opened so far is for the builders as well; nothing that comes later is. */
	keep = above_all();
	if (keep < 0)
		return err_set(e, keep, "cannot start");
	r = loop_new(&d->loop);
	if (r < 0)
		return err_set(e, r, "cannot start");
	r = watch_signals(d, e);
	if (r == 0)
		r = builders_new(d->loop, d->engine, conf_builders(&d->conf), keep, o->in_builder, &d->builders, e);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/boxes", d->run_dir);
	d->run_boxes_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->run_boxes_fd < 0)
		return err_set(e, -errno, "cannot open '%s'", path);
	(void)snprintf(path, sizeof(path), "%s/cubby.db", d->state_dir);
	r = db_open(path, &d->db, e);
	if (r < 0)
		return r;
	db_events_keep(d->db, conf_num(&d->conf, CONF_LOG_KEEP) ? (int64_t)conf_num(&d->conf, CONF_LOG_KEEP) : INT64_MAX);
	r = template_store_open(d->state_dir, store_ids, &d->templates, e);
	if (r == 0)
		template_store_discard(d->templates, discard, d);
	if (r == 0)
		r = template_sweep(d->templates, e) < 0 ? e->code : 0;
	if (r == 0)
		r = net_new(d, o->net, e);
	if (r == 0)
		r = recover(d, e);
	if (r == 0)
		r = server_listen(d, e);
	d->sweeps = 2;
	loop_timer_set(d->loop, &d->sweep, SWEEP_MS, sweep, d);
	return r;
}

/* What is nobody's goes with the daemon; boxes that people made live on. */
static void close_all(struct daemon *d)
{
	struct box *next;

	if (d->listen_fd >= 0)
		server_close(d);
	while (d->builds)
		(void)build_cancel(d->builds, NULL);
	builders_free(d->builders, LEAVE_MS);
	d->builders = NULL;
	for (struct box *b = d->boxes; b; b = next) {
		char parent[1100];

		next = b->next;
		if (b->throw_away && d->engine->kill(b->id, NULL) == 0 && d->engine->forget(b->id, NULL) == 0) {
			OWN_FD dir = open(box_parent_dir(b, parent, sizeof(parent)), O_PATH | O_DIRECTORY | O_CLOEXEC);

			if (dir >= 0)
				(void)tree_remove(dir, b->id, NULL);
		}
		box_free(b);
	}
	net_free(d->net);
	template_defaults_done(&d->said);
	template_store_free(d->templates);
	db_close(d->db);
	loop_del(d->loop, &d->signal_io);
	fd_close(&d->signal_fd);
	fd_close(&d->run_boxes_fd);
	loop_free(d->loop);
	free(d->slots);
}

int daemon_dirs(const char *state_dir, const char *run_dir, struct err *e)
{
	int r = own_dir(state_dir, 0700, e);

	if (r == 0)
		r = own_dir(run_dir, geteuid() == 0 ? 0755 : 0700, e);
	if (r == 0)
		r = own_dir_below(state_dir, "boxes", 0700, e);
	if (r == 0)
		r = own_dir_below(state_dir, "run", 0700, e);
	if (r == 0)
		r = own_dir_below(run_dir, "boxes", 0700, e);
	return r;
}

void daemon_tag(const char *state_dir, const char *run_dir, char *ret, size_t n)
{
	(void)snprintf(ret, n, "%08x", hash(run_dir, hash(state_dir, 2166136261u)));
}

int daemon_lock(const char *state_dir, const char *run_dir, int ret_fds[2], struct err *e)
{
	int r;

	ret_fds[0] = ret_fds[1] = FD_NONE;
	r = take_lock(run_dir, run_dir, &ret_fds[0], e);
	if (r == 0)
		r = take_lock(state_dir, run_dir, &ret_fds[1], e);
	return r;
}

int daemon_run(const struct daemon_options *o, struct err *e)
{
	struct daemon *d = calloc(1, sizeof(*d));
	char path[1200];
	int r;

	if (!d)
		return err_set(e, -ENOMEM, "cannot start");
	d->engine = o->engine;
	d->conf = *o->conf;
	d->run_boxes_fd = d->listen_fd = d->spare_fd = d->signal_fd = FD_NONE;
	(void)snprintf(d->state_dir, sizeof(d->state_dir), "%s", o->state_dir);
	(void)snprintf(d->run_dir, sizeof(d->run_dir), "%s", o->run_dir);
	raise_limits();
	r = ids(d, o, e);
	if (r == 0)
		r = open_all(d, o, e);
	if (r == 0) {
		if (o->ready)
			o->ready(o->ready_arg);
		daemon_touch(d);
		r = loop_run(d->loop);
		if (r < 0)
			(void)err_set(e, r, "the event loop failed");
		/* Nobody connects any more to what will not answer. */
		(void)snprintf(path, sizeof(path), "%s/cubbyd.sock", d->run_dir);
		(void)unlink(path);
	}
	d->leaving = true;
	if (d->loop)
		close_all(d);
	free(d);
	return r;
}
