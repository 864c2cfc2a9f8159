/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/impl.h"
#include "engine/native/netns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "engine/native/netns.h"
#include "net/world.h"
#include "sys/path.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U	/* since kernel 6.3 */
#endif

struct native native = { .init_fd = FD_NONE, .gateway_ns = FD_NONE, .cg = { .v2 = FD_NONE } };

/* ---- setup ---- */

/*
 * A copy of cubby-init that nobody can change, however the box reaches it: /proc/1/exe of a box is this file. It is opened
 * again for reading, since a file that is open for writing can't be executed.
 */
static int load_init(const char *path, int *ret_fd, struct err *e)
{
	OWN_FD in = open(path, O_RDONLY | O_CLOEXEC), mem = FD_NONE;
	char link[32];
	struct stat st;
	off_t at = 0;
	int fd;

	if (in < 0 || fstat(in, &st) < 0)
		return err_set(e, -errno, "cannot open '%s'", path);
	if (!S_ISREG(st.st_mode) || st.st_size < 64 || st.st_size > (64 << 20))
		return err_why(e, WHY_INTERNAL, -ENOEXEC, "'%s' is no program", path);
	mem = memfd_create("cubby-init", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (mem < 0 && errno == EINVAL)
		mem = memfd_create("cubby-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mem < 0)
		return err_set(e, -errno, "cannot make a memory file for cubby-init");
	while (at < st.st_size) {
		char buf[16384];
		ssize_t n = pread(in, buf, sizeof(buf), at);
		int r;

		if (n <= 0)
			return err_set(e, n < 0 ? -errno : -EIO, "cannot read '%s'", path);
		r = fd_write_all(mem, buf, (size_t)n);
		if (r < 0)
			return err_set(e, r, "cannot copy '%s'", path);
		at += n;
	}
	if (fchmod(mem, 0555) < 0 || fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return err_set(e, -errno, "cannot seal the copy of cubby-init");
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", mem);
	fd = open(link, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "cannot open the copy of cubby-init");
	*ret_fd = fd;
	return 0;
}

static bool tag_ok(const char *tag)
{
	size_t n = strlen(tag);

	return n >= 1 && n <= 32 && strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* What holds a directory, up to the root. */
static int note_holders(const char *path, struct place *ret_own, struct err *e)
{
	OWN_FD at = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0)
		return err_set(e, -errno, "cannot open '%s'", path);
	*ret_own = (struct place){ st.st_dev, st.st_ino };
	while (native.nholders < HOLDERS_MAX) {
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		ino_t before = st.st_ino;
		dev_t dev = st.st_dev;

		if (up < 0)
			return err_set(e, -errno, "cannot look above '%s'", path);
		fd_close(&at);
		at = up;
		if (fstat(at, &st) < 0)
			return err_set(e, -errno, "cannot look above '%s'", path);
		if (st.st_ino == before && st.st_dev == dev)
			return 0;
		native.holders[native.nholders++] = (struct place){ st.st_dev, st.st_ino };
	}
	return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "'%s' is too deep for a directory of cubby: choose a shorter path", path);
}

unsigned native_own_ids(const char *map)
{
	char text[4096];
	unsigned long long next = 0;

	if (file_read_small(AT_FDCWD, map, text, sizeof(text)) < 0)
		return 1;
	for (const char *p = text; *p;) {
		unsigned long long in, out, n;
		const char *end = strchrnul(p, '\n');

		if (sscanf(p, "%llu %llu %llu", &in, &out, &n) != 3 || in != next)
			break;
		next += n;
		p = *end ? end + 1 : end;
	}
	return next > UINT32_MAX ? UINT32_MAX : next ? (unsigned)next : 1;
}

int native_setup(const struct native_config *c, struct err *e)
{
	struct stat net;
	OWN_FD run = FD_NONE;
	int r;

	if (native.ready)
		return err_why(e, WHY_INTERNAL, -EALREADY, "the native engine is set up already");
	if (!tag_ok(c->tag))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is no tag: 1-32 lower-case letters, digits and '-'", c->tag);
	native = (struct native){ .init_fd = FD_NONE, .gateway_ns = FD_NONE, .cg = { .v2 = FD_NONE }, .rootless = c->rootless };
	native.gateway_ns = c->gateway_ns;
	native.state_dir = strdup(c->state_dir);
	native.run_dir = strdup(c->run_dir);
	r = native.state_dir && native.run_dir ? 0 : err_set(e, -ENOMEM, "cannot set up the native engine");
	if (r == 0)
		r = note_holders(c->state_dir, &native.own[0], e);
	if (r == 0)
		r = note_holders(c->run_dir, &native.own[1], e);
	if (r == 0)
		r = load_init(c->init_path, &native.init_fd, e);
	if (r == 0) {
		run = open(c->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = run < 0 ? err_set(e, -errno, "cannot open '%s'", c->run_dir) : 0;
	}
	if (r == 0 && mkdirat(run, "boxes", 0700) < 0 && errno != EEXIST)
		r = err_set(e, -errno, "cannot make '%s/boxes'", c->run_dir);
	if (r == 0)
		r = cgroups_open(&native.cg, c->tag, run, c->rootless, e);
	native.ready = r == 0;
	native.ids = native_own_ids("/proc/self/uid_map");
	native.time_ns = access("/proc/self/ns/time", F_OK) == 0;
	if (stat("/proc/self/ns/net", &net) == 0)
		native.home_net = (struct place){ net.st_dev, net.st_ino };
	if (r < 0)
		native_done();
	return r;
}

void native_done(void)
{
	cgroups_close(&native.cg, true);
	fd_close(&native.init_fd);
	free(native.state_dir);
	free(native.run_dir);
	native = (struct native){ .init_fd = FD_NONE, .gateway_ns = FD_NONE, .cg = { .v2 = FD_NONE } };
}

void native_in_builder(unsigned k)
{
	netns_range(k);
	native.builder = true;
}

void native_fail_at(unsigned n)
{
	native.fail_at = n;
}

int native_ready(struct err *e)
{
	return native.ready ? 0 : err_why(e, WHY_INTERNAL, -EINVAL, "the native engine is not set up");
}

void native_limits(const struct limits *l, struct cg_limits *ret)
{
	*ret = (struct cg_limits){
		.memory = l->memory, .swap = l->swap, .pids = l->pids, .cpu_milli = l->cpu_milli, .cpu_weight = l->cpu_weight,
		.io_read = l->io_read, .io_write = l->io_write, .io_dev = native.own[0].dev,
	};
}

/* ---- what a later daemon must know ---- */

static const char *box_group(const char *id, char *buf, size_t n)
{
	static const int order[] = { CG_COUNT, CG_PIDS, CG_MEMORY };

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		const char *where = native.cg.where[order[i]];

		if (where[0] && (size_t)snprintf(buf, n, "%s/%s", where, id) < n && access(buf, F_OK) == 0)
			return buf;
	}
	return NULL;
}

/* v2 has attributes of users since kernel 5.7, v1 only trusted ones. */
#define MARK_USER "user.cubby.marks"
#define MARK_TRUSTED "trusted.cubby.marks"

void native_mark(const char *id, unsigned marks)
{
	char path[PATH_MAX], c = (char)('@' + marks);

	if (box_group(id, path, sizeof(path)) && setxattr(path, MARK_USER, &c, 1, 0) < 0)
		(void)setxattr(path, MARK_TRUSTED, &c, 1, 0);
}

unsigned native_marks(const char *id)
{
	char path[PATH_MAX], c = '@';

	if (box_group(id, path, sizeof(path)) && getxattr(path, MARK_USER, &c, 1) != 1 && getxattr(path, MARK_TRUSTED, &c, 1) != 1)
		return 0;
	return (unsigned)(c - '@');
}

/*
 * Without any cgroup (a user's own daemon on a host that delegates none), a box is known by a note in its run directory, which
 * is ours alone: the pid, when it was started, and its pid namespace.
 */
static bool no_groups(void)
{
	if (native.cg.v2 >= 0)
		return false;
	for (int c = 0; c < CG_COUNT; c++)
		if (native.cg.v1[c] >= 0)
			return false;
	return true;
}

static int pid_facts(pid_t pid, unsigned long long *ret_start, unsigned long long *ret_ns)
{
	char path[64], text[1024];
	const char *p;
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -ESRCH;
	/* The name may hold anything: fields are counted after its last parenthesis; the start is the 22nd of all. */
	p = strrchr(text, ')');
	for (int i = 0; p && i < 20; i++)
		p = strchr(p + 1, ' ');
	if (!p)
		return -ESRCH;
	*ret_start = strtoull(p + 1, NULL, 10);
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	if (stat(path, &st) < 0)
		return -ESRCH;
	*ret_ns = st.st_ino;
	return 0;
}

static int note_path(const char *run_dir, const char *id, char *buf, size_t n)
{
	return (size_t)snprintf(buf, n, "%s/boxes/%s/init.pid", run_dir, id) < n ? 0 : -ENAMETOOLONG;
}

static int note_write(const char *id, pid_t pid)
{
	char path[PATH_MAX], text[96];
	unsigned long long start, ns;
	OWN_FD fd = FD_NONE;
	int r = pid_facts(pid, &start, &ns);

	if (r == 0)
		r = note_path(native.run_dir, id, path, sizeof(path));
	if (r < 0)
		return r;
	(void)snprintf(text, sizeof(text), "%d %llu %llu\n", (int)pid, start, ns);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

int native_note_read(const char *run_dir, const char *id, struct box_run *ret)
{
	char path[PATH_MAX], text[96];
	unsigned long long start, ns, start_now, ns_now;
	OWN_FD pidfd = FD_NONE;
	int pid;

	if (note_path(run_dir, id, path, sizeof(path)) < 0 || file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0 ||
	    sscanf(text, "%d %llu %llu", &pid, &start, &ns) != 3 || pid <= 1)
		return -ESRCH;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0 || pid_facts(pid, &start_now, &ns_now) < 0 || start != start_now || ns != ns_now)
		return -ESRCH;
	ret->pid = pid;
	ret->pidfd = fd_take(&pidfd);
	return 0;
}

static int note_find(const char *id, struct box_run *ret)
{
	return native_note_read(native.run_dir, id, ret);
}

bool native_noted(const char *id)
{
	struct box_run run;

	if (!no_groups() || note_find(id, &run) < 0)
		return false;
	fd_close(&run.pidfd);
	return true;
}

/* ---- the engine ---- */

static int id_check(const char *id, struct err *e)
{
	int r = native_ready(e);

	if (r == 0 && !id_ok(id))
		r = err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is not the id of a box", id);
	return r;
}

/* PID 1 of a namespace that is a child of ours: "NSpid: 4711 1". A nested one has three numbers. */
static bool is_box_init(pid_t pid)
{
	char path[64], text[8192];
	const char *p;
	int here, there, more;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	p = strstr(text, "\nNSpid:");
	return p && sscanf(p + 7, "%d %d %d", &here, &there, &more) == 2 && here == pid && there == 1;
}

static bool lives(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

static int find_in_groups(const char *id, struct box_run *ret)
{
	pid_t pids[1024];
	int n = cgroup_pids(&native.cg, id, pids, 1024);

	for (int i = 0; i < n; i++) {
		OWN_FD fd = (int)syscall(SYS_pidfd_open, pids[i], 0);

		/* The descriptor first: what is read afterwards is about this process if it lives at the end. */
		if (fd < 0 || !is_box_init(pids[i]) || !cgroup_holds(&native.cg, id, pids[i]) || !lives(fd))
			continue;
		ret->pid = pids[i];
		ret->pidfd = fd_take(&fd);
		return 0;
	}
	return -ESRCH;
}

static int native_find(const char *id, struct box_run *ret_run, struct err *e)
{
	int r = id_check(id, e);

	if (r < 0)
		return r;
	r = no_groups() ? note_find(id, ret_run) : find_in_groups(id, ret_run);
	/* Its interface went with the gateway namespace of the daemon that made it. */
	if (r == 0) {
		ret_run->net_index = 0;
		ret_run->net_if = 0;
	}
	return r < 0 ? err_why(e, WHY_WRONG_STATE, r, "the box does not run") : 0;
}

static int start_and_note(const struct box_spec *spec, struct box_run *ret_run, struct err *e)
{
	struct box_run run;
	int r = native_start(spec, &run, e);

	if (r < 0)
		return r;
	if (no_groups() || native.rootless) {
		r = note_write(spec->id, run.pid);
		if (r < 0) {
			(void)syscall(SYS_pidfd_send_signal, run.pidfd, SIGKILL, NULL, 0);
			fd_close(&run.pidfd);
			return err_set(e, r, "cannot note where the box runs");
		}
	}
	*ret_run = run;
	return 0;
}

static int native_set_limits(const char *id, const struct limits *limits, struct err *e)
{
	struct cg_limits l;
	int r = id_check(id, e);

	if (r < 0)
		return r;
	native_limits(limits, &l);
	return cgroup_set_limits(&native.cg, id, &l, e);
}

static int native_freeze(const char *id, bool on, struct err *e)
{
	int r = id_check(id, e);

	return r < 0 ? r : cgroup_freeze(&native.cg, id, on, e);
}

static int native_usage(const char *id, struct usage *ret, struct err *e)
{
	struct cg_usage u;
	int r = id_check(id, e);

	if (r == 0 && no_groups()) {
		*ret = (struct usage){ 0 };
		return 0;
	}
	if (r == 0)
		r = cgroup_usage(&native.cg, id, &u, e);
	if (r < 0)
		return r;
	*ret = (struct usage){
		.memory = u.memory, .memory_peak = u.memory_peak, .swap = u.swap, .pids = u.pids, .cpu_us = u.cpu_us,
		.io_read = u.io_read, .io_write = u.io_write, .oom_kills = u.oom_kills, .pids_denied = u.pids_denied,
	};
	return 0;
}

static int native_kill(const char *id, struct err *e)
{
	struct box_run run;
	int r = id_check(id, e);

	if (r < 0)
		return r;
	if (no_groups()) {
		struct pollfd p;

		if (note_find(id, &run) < 0)
			return 0;
		p = (struct pollfd){ .fd = run.pidfd, .events = POLLIN };
		/* The end of PID 1 is the end of its namespace: its zombie appears when all others are gone (pid_namespaces(7)). */
		(void)syscall(SYS_pidfd_send_signal, run.pidfd, SIGKILL, NULL, 0);
		r = poll(&p, 1, 10000) == 1 ? 0 : err_why(e, WHY_TIMEOUT, -ETIMEDOUT, "a process of the box does not end although killed");
		fd_close(&run.pidfd);
		return r;
	}
	return cgroup_kill(&native.cg, id, e);
}

static int native_forget(const char *id, struct err *e)
{
	static const char *const files[] = { "init.sock", "init.pid" };
	char path[PATH_MAX];
	int r = id_check(id, e);

	if (r < 0)
		return r;
	r = cgroup_remove(&native.cg, id, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if ((size_t)snprintf(path, sizeof(path), "%s/boxes/%s/%s", native.run_dir, id, files[i]) < sizeof(path) &&
		    unlink(path) < 0 && errno != ENOENT)
			return err_set(e, -errno, "cannot remove '%s'", path);
	(void)snprintf(path, sizeof(path), "%s/boxes/%s", native.run_dir, id);
	/* Others may keep files of theirs there. */
	if (rmdir(path) < 0 && errno != ENOENT && errno != ENOTEMPTY)
		return err_set(e, -errno, "cannot remove '%s'", path);
	return 0;
}

static int native_each(void (*found)(const char *id, void *arg), void *arg, struct err *e)
{
	int r = native_ready(e);
	char path[PATH_MAX];
	struct dirent *d;
	DIR *dir;

	if (r < 0 || !no_groups())
		return r < 0 ? r : cgroup_each(&native.cg, found, arg, e);
	if ((size_t)snprintf(path, sizeof(path), "%s/boxes", native.run_dir) >= sizeof(path))
		return err_set(e, -ENAMETOOLONG, "'%s'", native.run_dir);
	dir = opendir(path);
	if (!dir)
		return err_set(e, -errno, "cannot look through '%s'", path);
	while ((d = readdir(dir)))
		if (id_ok(d->d_name))
			found(d->d_name, arg);
	(void)closedir(dir);
	return 0;
}

int native_net_of(const struct box_run *run)
{
	char path[64];
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)run->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	/* It is the box's if the process of that number lives still. */
	return lives(run->pidfd) ? fd_take(&fd) : -ESRCH;
}

static int native_plug(const char *id, struct box_run *run, bool on, struct err *e)
{
	OWN_FD ns = FD_NONE;
	unsigned index = 0;
	int net_if = 0, r = id_check(id, e);

	if (r < 0)
		return r;
	if (on && native.gateway_ns < 0)
		return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, NO_NETWORK);
	ns = native_net_of(run);
	if (ns < 0)
		return ns == -ESRCH ? err_why(e, WHY_WRONG_STATE, ns, "the box does not run") :
				      err_set(e, ns, "cannot open the box's network namespace");
	/* By the gateway's end, which the box can't hide; an unknown one by the box's. */
	if (run->net_index && native.gateway_ns >= 0)
		r = plug_pull(native.gateway_ns, run->net_index, e);
	else if (!on)
		r = plug_clear(ns, e);
	if (r == 0 && on)
		r = netns_plug(native.gateway_ns, ns, native.rootless ? native.ids : UINT_MAX, &index, &net_if, e);
	if (r < 0)
		return r;
	run->net_index = index;
	run->net_if = net_if;
	return 0;
}

static bool prepare(void)
{
	return native.builder && !native.rootless && netns_prepare(native.gateway_ns);
}

const struct engine engine_native = {
	.name = "native",
	.probe = native_probe,
	.start = start_and_note,
	.find = native_find,
	.set_limits = native_set_limits,
	.freeze = native_freeze,
	.usage = native_usage,
	.grade = native_grade,
	.kill = native_kill,
	.forget = native_forget,
	.plug = native_plug,
	.prepare = prepare,
	.each = native_each,
};
