/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native engine as root, and as an ordinary user in the last cases. The box's PID 1 is test_native_init, which does
 * one deed for each connection.
 */
#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <grp.h>

#include <cmocka.h>

#include "base/fd.h"
#include "engine/native/impl.h"
#include "lib/leak.h"
#include "net/addr.h"
#include "net/world.h"
#include "sys/inside.h"

#define ID_BASE 3000000u

static char init_path[PATH_MAX];
static char top[256];
static int gateway = FD_NONE;	/* what the engine is told of next time */

struct lab {
	struct box_spec s;
	struct box_run run;
	char box[512], run_dir[512], layer[512];
};

static void dir(const char *name, mode_t mode)
{
	char p[1024];

	(void)snprintf(p, sizeof(p), "%s/%s", top, name);
	assert_int_equal(mkdir(p, mode), 0);
	assert_int_equal(chmod(p, mode), 0);
}

static void file(const char *name, const char *text)
{
	char p[1024];
	int fd;

	(void)snprintf(p, sizeof(p), "%s/%s", top, name);
	fd = open(p, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static void tree(void)
{
	dir("state", 0755);
	dir("state/boxes", 0700);
	dir("run", 0755);
	dir("layer", 0755);
	dir("layer/etc", 0755);
	dir("layer/tmp", 01777);
	dir("layer/home", 0755);
	file("layer/etc/passwd", "root:x:0:0::/:/bin/sh\n");
}

static void config(struct native_config *c, char *state, char *run, char *tag, size_t n)
{
	(void)snprintf(state, n, "%s/state", top);
	(void)snprintf(run, n, "%s/run", top);
	(void)snprintf(tag, n, "t%d", (int)getpid());
	*c = (struct native_config){ .init_path = init_path, .state_dir = state, .run_dir = run, .tag = tag, .gateway_ns = gateway };
}

static void engine_up(bool rootless)
{
	struct native_config c;
	struct err e = ERR_INIT;
	char state[512], run[512], tag[512];

	config(&c, state, run, tag, sizeof(state));
	c.rootless = rootless;
	if (native_setup(&c, &e) < 0)
		fail_msg("%s", e.text);
}

static int setup(void **state)
{
	int r = leak_mark(state);
	const char *d;

	(void)alarm(60);
	if (r != 0)
		return r;
	d = leak_dir();
	if (!d)
		return -1;
	(void)snprintf(top, sizeof(top), "%s", d);
	if (chmod(top, 0755) < 0)
		return -1;
	tree();
	if (geteuid() == 0)
		engine_up(false);
	return 0;
}

static void clear_away(const char *id, void *arg)
{
	(void)engine_native.kill(id, NULL);
	(void)engine_native.forget(id, NULL);
}

static int teardown(void **state)
{
	native_fail_at(0);
	/* Of a case that failed half-way, so that the next one isn't about it. */
	if (native.ready)
		(void)engine_native.each(clear_away, NULL, NULL);
	native_done();
	plug_done();
	fd_close(&gateway);
	(void)leak_dir_clear();
	return leak_check(state);
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip_because("makes boxes of the system's daemon, which takes root");
}

static void lab_init(struct lab *l)
{
	memset(l, 0, sizeof(*l));
	id_make(l->s.id);
	(void)snprintf(l->box, sizeof(l->box), "%s/state/boxes/%s", top, l->s.id);
	(void)snprintf(l->run_dir, sizeof(l->run_dir), "%s/run/boxes/%s", top, l->s.id);
	(void)snprintf(l->layer, sizeof(l->layer), "%s/layer", top);
	assert_int_equal(mkdir(l->box, 0700), 0);
	l->run.pidfd = FD_NONE;
	(void)snprintf(l->s.host_name, sizeof(l->s.host_name), "testbox");
	l->s.box_dir = l->box;
	l->s.run_dir = l->run_dir;
	l->s.parts[0] = (struct root_part){ .at = (char *)"/", .layers = { l->layer }, .nlayers = 1, .idmap = true };
	l->s.nparts = 1;
	l->s.id_base = ID_BASE;
	l->s.throw_away = true;
	l->s.limits = (struct limits){ .memory = 64 << 20, .pids = 40, .cpu_milli = 2000 };
	(void)snprintf(l->s.tz, sizeof(l->s.tz), "Europe/Berlin");
}

static void up(struct lab *l)
{
	struct err e = ERR_INIT;

	if (engine_native.start(&l->s, &l->run, &e) < 0)
		fail_msg("%s", e.text);
}

static void down(struct lab *l)
{
	struct err e = ERR_INIT;

	if (engine_native.kill(l->s.id, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(waitpid(l->run.pid, NULL, 0), l->run.pid);
	fd_close(&l->run.pidfd);
	if (engine_native.forget(l->s.id, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(access(l->run_dir, F_OK), -1);
}

static int dial(const struct lab *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 20 };
	OWN_FD d = open(l->run_dir, O_PATH | O_CLOEXEC), s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/init.sock", d);
	assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof(a)), 0);
	(void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd_take(&s);
}

/* The errno of a deed in the box, and what it says. */
static int ask_text(const struct lab *l, char *ret, size_t n, const char *fmt, va_list ap)
{
	OWN_FD s = dial(l);
	char buf[8192];
	size_t have = 0;
	char *end;
	long code;

	(void)vsnprintf(buf, sizeof(buf), fmt, ap);
	assert_int_equal(fd_write_all(s, buf, strlen(buf)), 0);
	for (;;) {
		ssize_t k = read(s, buf + have, sizeof(buf) - 1 - have);

		if (k <= 0)
			break;
		have += (size_t)k;
	}
	buf[have] = '\0';
	if (have == 0)
		fail_msg("the box does not answer");
	code = strtol(buf, &end, 10);
	if (ret)
		(void)snprintf(ret, n, "%s", *end ? end + 1 : "");
	return (int)code;
}

static int ask(const struct lab *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int ask(const struct lab *l, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = ask_text(l, NULL, 0, fmt, ap);
	va_end(ap);
	return r;
}

static char said[8192];
static int hear(const struct lab *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int hear(const struct lab *l, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = ask_text(l, said, sizeof(said), fmt, ap);
	va_end(ap);
	return r;
}

/* ---- the box ---- */

struct grades {
	unsigned on, weak, off;
	char bad[512];
};

static void count(const struct grade_row *row, void *arg)
{
	struct grades *g = arg;
	size_t n = strlen(g->bad);

	assert_non_null(row->id);
	assert_true(strlen(row->what) > 10);
	if (row->level != GRADE_ON) {
		assert_non_null(row->fix);
		(void)snprintf(g->bad + n, sizeof(g->bad) - n, "%s ", row->id);
	}
	*(row->level == GRADE_ON ? &g->on : row->level == GRADE_WEAK ? &g->weak : &g->off) += 1;
}

static void note_id(const char *id, void *arg)
{
	char *seen = arg;
	size_t n = strlen(seen);

	(void)snprintf(seen + n, 512 - n, "%s ", id);
}

static void lives_and_is_found_until_it_ends(void **state)
{
	struct box_run again = { .pidfd = FD_NONE };
	struct grades g = { 0 };
	struct err e = ERR_INIT;
	char seen[512] = "";
	struct lab l;

	need_root();
	lab_init(&l);
	assert_int_equal(engine_native.find(l.s.id, &again, &e), -ESRCH);
	up(&l);
	assert_int_equal(hear(&l, "ls /"), 0);
	assert_non_null(strstr(said, "etc"));
	assert_int_equal(engine_native.find(l.s.id, &again, &e), 0);
	assert_int_equal(again.pid, l.run.pid);
	fd_close(&again.pidfd);
	assert_int_equal(engine_native.each(note_id, seen, &e), 0);
	assert_non_null(strstr(seen, l.s.id));
	assert_int_equal(engine_native.grade(l.s.id, &l.run, count, &g, &e), 0);
	assert_string_equal(g.bad, "io-limit ");
	assert_int_equal(g.off, 0);
	/* The same id twice would share its groups. */
	assert_int_equal(engine_native.start(&l.s, &again, &e), -EBUSY);
	assert_int_equal(ask(&l, "ls /"), 0);
	down(&l);
	assert_int_equal(engine_native.find(l.s.id, &again, &e), -ESRCH);
	/* Both accept that nothing is there. */
	assert_int_equal(engine_native.kill(l.s.id, &e), 0);
	assert_int_equal(engine_native.forget(l.s.id, &e), 0);
	seen[0] = '\0';
	assert_int_equal(engine_native.each(note_id, seen, &e), 0);
	assert_string_equal(seen, "");
}

static void shows_nothing_of_the_host(void **state)
{
	struct lab l;

	need_root();
	lab_init(&l);
	up(&l);
	assert_int_equal(hear(&l, "read /proc/1/uid_map"), 0);
	assert_non_null(strstr(said, "3000000"));
	assert_int_equal(hear(&l, "read /proc/1/cgroup"), 0);
	assert_null(strstr(said, "cubby"));
	assert_int_equal(hear(&l, "read /proc/1/mountinfo"), 0);
	assert_null(strstr(said, "shared:"));
	assert_int_equal(hear(&l, "ls /proc/1/fd"), 0);
	/* 0-2, the listener, this connection and the directory that is being read: nothing else was left open. */
	assert_true(strlen(said) <= strlen("0 1 2 3 4 5 ") + 6);
	assert_int_equal(hear(&l, "ls /dev"), 0);
	assert_null(strstr(said, "vda"));
	assert_null(strstr(said, "kmsg"));
	assert_non_null(strstr(said, "urandom"));
	assert_int_equal(ask(&l, "write /dev/null"), 0);
	/* Covered, and beside it what isn't. */
	assert_int_equal(hear(&l, "read /proc/kallsyms"), 0);
	assert_string_equal(said, "");
	assert_int_equal(hear(&l, "read /proc/meminfo"), 0);
	assert_non_null(strstr(said, "MemTotal"));
	assert_int_equal(ask(&l, "write /proc/sys/kernel/core_pattern") == 0, 0);
	assert_int_equal(ask(&l, "write /proc/sys/user/max_user_namespaces") == 0, 0);
	assert_int_not_equal(ask(&l, "write /proc/sysrq-trigger"), 0);
	assert_int_equal(ask(&l, "write /proc/1/comm"), 0);
	assert_int_not_equal(ask(&l, "write /sys/kernel/uevent_seqnum"), 0);
	assert_int_equal(ask(&l, "make /sys/x"), EROFS);
	assert_int_equal(ask(&l, "make /etc/x"), 0);
	assert_int_equal(ask(&l, "make /dev/shm/x"), 0);
	assert_int_equal(ask(&l, "make /run/x"), 0);
	assert_int_equal(hear(&l, "stat /etc/x"), 0);
	assert_non_null(strstr(said, " 0 0"));
	assert_int_equal(ask(&l, "remount /"), EPERM);
	down(&l);
}

static void nesting_alone_opens_user_namespaces(void **state)
{
	struct grades g = { 0 };
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	lab_init(&l);
	up(&l);
	assert_int_equal(ask(&l, "userns"), ENOSPC);
	down(&l);
	l.s.nesting = true;
	up(&l);
	assert_int_equal(ask(&l, "userns"), 0);
	assert_int_equal(engine_native.grade(l.s.id, &l.run, count, &g, &e), 0);
	assert_non_null(strstr(g.bad, "no-nested-userns"));
	down(&l);
}

static void keeps_its_disk_and_its_name(void **state)
{
	char id[64], path[1024];
	struct stat st;
	struct lab l;

	need_root();
	lab_init(&l);
	l.s.throw_away = false;
	up(&l);
	assert_int_equal(hear(&l, "read /etc/hostname"), 0);
	assert_string_equal(said, "testbox\n");
	assert_int_equal(hear(&l, "read /etc/hosts"), 0);
	assert_non_null(strstr(said, "\ttestbox\n"));
	assert_int_equal(hear(&l, "read /etc/machine-id"), 0);
	assert_int_equal(strlen(said), 33);
	(void)snprintf(id, sizeof(id), "%.40s", said);
	assert_int_equal(hear(&l, "read /proc/sys/kernel/hostname"), 0);
	assert_string_equal(said, "testbox\n");
	assert_int_equal(hear(&l, "stat /etc"), 0);
	assert_string_equal(said, "40755 0 0");
	assert_int_equal(ask(&l, "as 1000 /tmp/mine"), 0);
	/* The disk holds the box's own numbers. */
	(void)snprintf(path, sizeof(path), "%s/upper/0/tmp/mine", l.box);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 1000);
	assert_int_equal(ask(&l, "rename /home|/house"), 0);	/* redirect_dir: else EXDEV */
	down(&l);
	(void)snprintf(l.s.host_name, sizeof(l.s.host_name), "newname");
	l.s.id_base = ID_BASE + BOX_IDS;	/* other ids next time: nothing is rewritten */
	up(&l);
	assert_int_equal(hear(&l, "stat /tmp/mine"), 0);
	assert_non_null(strstr(said, " 1000 1000"));
	assert_int_equal(hear(&l, "read /etc/machine-id"), 0);
	assert_string_equal(said, id);
	assert_int_equal(hear(&l, "read /etc/hostname"), 0);
	assert_string_equal(said, "newname\n");
	assert_int_equal(hear(&l, "stat /house"), 0);
	down(&l);
}

static void follows_no_link_of_a_template(void **state)
{
	static const char *const names[] = { "proc", "dev", "sys", "run", "etc" };
	char target[1024], layer[1024], link[1100];
	struct err e = ERR_INIT;
	struct stat st;
	struct lab l;

	need_root();
	dir("outside", 0777);
	(void)snprintf(target, sizeof(target), "%s/outside", top);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int r;

		(void)snprintf(link, sizeof(link), "evil%zu", i);
		dir(link, 0755);
		(void)snprintf(layer, sizeof(layer), "%s/evil%zu", top, i);
		(void)snprintf(link, sizeof(link), "%s/%s", layer, names[i]);
		assert_int_equal(symlink(target, link), 0);
		lab_init(&l);
		l.s.parts[0].layers[0] = layer;
		r = engine_native.start(&l.s, &l.run, &e);
		if (strcmp(names[i], "etc") == 0) {	/* no identity then, but a box */
			assert_int_equal(r, 0);
			down(&l);
		} else {
			assert_int_equal(r, -ELOOP);
			assert_non_null(strstr(e.text, names[i]));
			assert_int_equal(access(l.run_dir, F_OK), -1);
		}
		assert_int_equal(rmdir(target), 0);	/* still empty */
		dir("outside", 0777);
		assert_int_equal(stat(target, &st), 0);
	}
}

/* ---- directories of the host ---- */

static void add_mount(struct lab *l, const char *host, const char *at, bool ro)
{
	struct box_mount *m = &l->s.mounts[l->s.nmounts++];
	char p[1024];

	(void)snprintf(p, sizeof(p), "%s%s%s", host[0] == '/' ? "" : top, host[0] == '/' ? "" : "/", host);
	*m = (struct box_mount){ .at = (char *)at, .read_only = ro, .host_uid = 4321, .host_gid = 4322, .box_uid = 1000, .box_gid = 1000 };
	m->fd = open(p, O_PATH | O_CLOEXEC);
	assert_true(m->fd >= 0);
}

static void drop_mounts(struct lab *l)
{
	while (l->s.nmounts > 0)
		fd_close(&l->s.mounts[--l->s.nmounts].fd);
}

static void project_files_belong_to_the_caller(void **state)
{
	char p[1024];
	struct stat st;
	struct lab l;

	need_root();
	dir("proj", 0755);
	(void)snprintf(p, sizeof(p), "%s/proj", top);
	assert_int_equal(chown(p, 4321, 4322), 0);
	file("one", "a file\n");
	lab_init(&l);
	add_mount(&l, "proj", "/home/me/work", false);
	add_mount(&l, "proj", "/ro", true);
	add_mount(&l, "one", "/etc/one", true);
	up(&l);
	assert_int_equal(ask(&l, "as 1000 /home/me/work/new"), 0);
	(void)snprintf(p, sizeof(p), "%s/proj/new", top);
	assert_int_equal(stat(p, &st), 0);
	assert_int_equal(st.st_uid, 4321);
	assert_int_equal(st.st_gid, 4322);
	assert_int_equal(hear(&l, "stat /home/me/work/new"), 0);
	assert_non_null(strstr(said, " 1000 1000"));
	/* Root of the box has no id there. */
	assert_int_not_equal(ask(&l, "make /home/me/work/roots"), 0);
	assert_int_equal(ask(&l, "make /home/me/beside"), 0);
	assert_int_equal(ask(&l, "as 1000 /ro/x"), EROFS);
	assert_int_equal(ask(&l, "remount /ro"), EPERM);
	assert_int_equal(hear(&l, "read /etc/one"), 0);
	assert_string_equal(said, "a file\n");
	/* Set-id bits would be real on the host. */
	assert_int_equal(ask(&l, "setid /home/me/work/new"), EPERM);
	down(&l);
	drop_mounts(&l);
	/* The next life has no such directory: there they are the box's own business. */
	up(&l);
	assert_int_equal(ask(&l, "setid /home/me/beside"), 0);
	down(&l);
}

static void refuses_dangerous_mounts(void **state)
{
	static const struct {
		const char *host, *at;
		int code;
	} rows[] = {
		{ "proj", "/", -EINVAL }, { "proj", "/proc", -EINVAL }, { "proj", "/proc/x", -EINVAL }, { "proj", "/dev/x", -EINVAL },
		{ "proj", "/sys", -EINVAL }, { "proj", "relative", -EINVAL }, { "proj", "/a/../proc", -EINVAL },
		{ "proj", "/a//b", -EINVAL }, { "/", "/host", -EPERM }, { "state", "/s", -EPERM }, { "run", "/r", -EPERM },
		{ "state/boxes", "/s", -EPERM }, { "", "/t", -EPERM }, { "/dev/null", "/n", -EINVAL }, { "proj", "/ok", 0 },
	};
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	dir("proj", 0755);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		lab_init(&l);
		add_mount(&l, rows[i].host, rows[i].at, true);
		assert_int_equal(engine_native.start(&l.s, &l.run, &e), rows[i].code);
		if (rows[i].code == 0)
			down(&l);
		else
			assert_true(strlen(e.text) > 20);
		drop_mounts(&l);
	}
}

static void never_mounts_through_a_planted_link(void **state)
{
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	dir("proj", 0755);
	lab_init(&l);
	l.s.throw_away = false;
	up(&l);
	assert_int_equal(ask(&l, "link /proc|/work"), 0);
	down(&l);
	add_mount(&l, "proj", "/work", false);
	assert_int_equal(engine_native.start(&l.s, &l.run, &e), -ELOOP);
	assert_non_null(strstr(e.text, "/work"));
	drop_mounts(&l);
	up(&l);
	assert_int_equal(ask(&l, "rm /work"), 0);
	down(&l);
	add_mount(&l, "proj", "/work", false);
	up(&l);
	down(&l);
	drop_mounts(&l);
}

/* ---- limits ---- */

static void limits_hold_and_can_be_changed(void **state)
{
	struct limits more = { .memory = 256 << 20, .pids = 200, .cpu_milli = 500, .cpu_weight = 50 };
	struct usage u;
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	lab_init(&l);
	up(&l);
	assert_int_equal(ask(&l, "eat 16"), 0);
	assert_int_equal(engine_native.usage(l.s.id, &u, &e), 0);
	assert_int_equal(u.oom_kills, 0);
	assert_true(u.memory_peak >= 16 << 20);
	assert_int_equal(ask(&l, "eat 120"), SIGKILL);
	assert_int_equal(engine_native.usage(l.s.id, &u, &e), 0);
	assert_true(u.oom_kills >= 1);
	assert_int_equal(engine_native.set_limits(l.s.id, &more, &e), 0);
	assert_int_equal(ask(&l, "eat 120"), 0);

	assert_int_equal(ask(&l, "fork 100"), 0);
	assert_int_equal(engine_native.usage(l.s.id, &u, &e), 0);
	assert_int_equal(u.pids_denied, 0);
	assert_true(u.pids >= 101);
	more.pids = 110;
	assert_int_equal(engine_native.set_limits(l.s.id, &more, &e), 0);
	assert_int_equal(ask(&l, "fork 100"), EAGAIN);
	assert_int_equal(engine_native.usage(l.s.id, &u, &e), 0);
	assert_true(u.pids_denied >= 1);
	assert_true(u.cpu_us > 0);
	down(&l);
	assert_int_equal(engine_native.set_limits(l.s.id, &more, &e), -ESRCH);
}

static void pauses_and_resumes(void **state)
{
	struct err e = ERR_INIT;
	struct lab l;
	char buf[64];
	OWN_FD s = FD_NONE;

	need_root();
	lab_init(&l);
	up(&l);
	for (int i = 0; i < 20; i++) {
		struct timeval soon = { .tv_usec = 30000 }, late = { .tv_sec = 20 };

		assert_int_equal(engine_native.freeze(l.s.id, true, &e), 0);
		s = dial(&l);
		assert_int_equal(fd_write_all(s, "ls /", 4), 0);
		if (i == 0) {
			(void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
			assert_int_equal(read(s, buf, sizeof(buf)), -1);
			(void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &late, sizeof(late));
		}
		assert_int_equal(engine_native.freeze(l.s.id, false, &e), 0);
		assert_true(read(s, buf, sizeof(buf)) > 0);
		fd_close(&s);
	}
	/* Also a paused one ends. */
	assert_int_equal(engine_native.freeze(l.s.id, true, &e), 0);
	down(&l);
}

static void a_missing_layer_is_an_error_unless_allowed(void **state)
{
	struct grades g = { 0 };
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	lab_init(&l);
	fd_close(&native.cg.v1[CG_CPU]);
	native.cg.v2_ctl &= ~(1u << CG_CPU);
	assert_int_equal(engine_native.start(&l.s, &l.run, &e), -EOPNOTSUPP);
	assert_int_equal(e.why, WHY_UNSUPPORTED);
	assert_non_null(strstr(e.text, "cpu"));
	assert_non_null(strstr(e.text, "--allow-weaker"));
	l.s.allow_weaker = true;
	up(&l);
	assert_int_equal(engine_native.grade(l.s.id, &l.run, count, &g, &e), 0);
	assert_non_null(strstr(g.bad, "cpu-limit"));
	assert_int_equal(g.off, 1);
	down(&l);
	(void)rmdir(native.cg.where[CG_CPU]);
}

/* ---- with a gateway ---- */

static void gateway_up(void)
{
	struct err e = ERR_INIT;

	native_done();
	gateway = world_new(&e);
	if (gateway < 0)
		fail_msg("%s", e.text);
	engine_up(false);
}

/* ---- failures ---- */

static unsigned entries(const char *path)
{
	char buf[4096];
	unsigned n = 0;
	OWN_FD d = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t k;

	if (d < 0)
		return 0;
	while ((k = syscall(SYS_getdents64, d, buf, sizeof(buf))) > 0)
		for (ssize_t at = 0; at < k; at += *(unsigned short *)(void *)(buf + at + 16))
			n += buf[at + 19] != '.';
	return n;
}

static void a_failure_at_any_step_leaves_nothing(void **state)
{
	struct err e = ERR_INIT;
	char seen[512] = "", boxes[512];
	unsigned n, failed = 0;
	struct lab l;

	need_root();
	gateway_up();
	dir("proj", 0755);
	(void)snprintf(boxes, sizeof(boxes), "%s/run/boxes", top);
	lab_init(&l);
	l.s.net = true;
	add_mount(&l, "proj", "/work", false);
	for (n = 1; n < 100; n++) {
		struct box_run run = { .pidfd = FD_NONE };

		native_fail_at(n);
		e = (struct err)ERR_INIT;
		if (engine_native.start(&l.s, &run, &e) == 0) {
			l.run = run;
			break;
		}
		failed++;
		assert_true(strlen(e.text) > 10);
		assert_int_equal(waitpid(-1, NULL, __WALL), -1);
		assert_int_equal(errno, ECHILD);
		assert_int_equal(engine_native.each(note_id, seen, &e), 0);
		assert_string_equal(seen, "");
		assert_int_equal(entries(boxes), 0);
		/* With /work in it, which the box itself made there, the upper is not empty. */
		if (entries(l.box) != 0) {
			(void)snprintf(said, sizeof(said), "%s/upper/0/work", l.box);
			assert_int_equal(access(said, F_OK), 0);
		}
	}
	native_fail_at(0);
	/* Every step of the builder and of the child had its turn. */
	assert_true(failed > 30);
	assert_true(n < 100);
	down(&l);
	drop_mounts(&l);
}

static void an_init_that_does_not_come_up_is_cleared_away(void **state)
{
	struct native_config c;
	struct err e = ERR_INIT;
	char st[512], run[512], tag[512], other[1024], seen[512] = "";
	struct lab l;

	need_root();
	native_done();
	config(&c, st, run, tag, sizeof(st));
	/* A file that can't be run. */
	file("noinit", "This is sixty-four bytes of text and more, and certainly no program at all.\n");
	(void)snprintf(other, sizeof(other), "%s/noinit", top);
	c.init_path = other;
	assert_int_equal(native_setup(&c, &e), 0);
	lab_init(&l);
	assert_int_equal(engine_native.start(&l.s, &l.run, &e), -ENOEXEC);
	assert_non_null(strstr(e.text, "cubby-init"));
	assert_int_equal(engine_native.each(note_id, seen, &e), 0);
	assert_string_equal(seen, "");
}

static void a_builders_box_is_its_parents_child(void **state)
{
	struct err e = ERR_INIT;
	struct lab l;
	int p[2], st;
	pid_t pid;

	need_root();
	lab_init(&l);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct box_run run;

		native_in_builder(0);
		if (engine_native.start(&l.s, &run, &e) < 0) {
			print_message("%s\n", e.text);
			_exit(1);
		}
		_exit(write(p[1], &run.pid, sizeof(run.pid)) != sizeof(run.pid));
	}
	(void)close(p[1]);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	assert_int_equal(fd_read_exact(p[0], &l.run.pid, sizeof(l.run.pid)), 0);
	(void)close(p[0]);
	assert_int_equal(engine_native.find(l.s.id, &l.run, &e), 0);
	assert_int_equal(ask(&l, "ls /"), 0);
	down(&l);	/* waits for the box's init as its parent */
}

/* ---- network ---- */

static int send_one(void *arg, struct err *e)
{
	const struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = { htonl(0xcb007105) } };
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)arg;
	return sendto(s, "x", 1, 0, (const struct sockaddr *)&to, sizeof(to)) == 1 ? 0 : err_set(e, -errno, "sendto");
}

/* What the box sends comes in where the engine said. */
static bool is_plugged(const struct box_run *run)
{
	struct world w;
	struct err e = ERR_INIT;
	char data[8], control[128];
	struct sockaddr_in from;
	struct iovec v = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control), .msg_name = &from,
			    .msg_namelen = sizeof(from) };
	const struct ip own = net_box4(run->net_index);
	OWN_FD ns = native_net_of(run);
	bool ok = false;

	assert_true(ns >= 0);
	if (world_enter(gateway, &w, &e) < 0)
		fail_msg("%s", e.text);
	if (inside_net(ns, send_one, NULL, &e) == 0) {
		struct pollfd p = { .fd = w.udp4, .events = POLLIN };

		assert_int_equal(poll(&p, 1, 3000), 1);
		assert_int_equal(recvmsg(w.udp4, &m, 0), 1);
		assert_int_equal(ntohl(from.sin_addr.s_addr), ip_get4(&own));
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
			struct in_pktinfo i;

			if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_PKTINFO)
				continue;
			memcpy(&i, CMSG_DATA(c), sizeof(i));
			ok = i.ipi_ifindex == run->net_if;
		}
	}
	world_done(&w);
	return ok;
}

static void network_row(const struct grade_row *row, void *arg)
{
	if (strcmp(row->id, "network") == 0)
		(void)snprintf(arg, 256, "%d %s", (int)row->level, row->what);
}

static const char *network_grade(const struct lab *l)
{
	static char text[256];
	struct err e = ERR_INIT;

	text[0] = '\0';
	assert_int_equal(engine_native.grade(l->s.id, &l->run, network_row, text, &e), 0);
	return text;
}

#define HAS_GATEWAY "2 No packet of the box leaves: its only interface ends in the gateway, which forwards nothing."
#define HAS_NONE "2 The box has no interface: no packet of it leaves."

static void a_network_is_one_interface(void **state)
{
	struct lab l;

	need_root();
	gateway_up();
	for (int nesting = 0; nesting < 2; nesting++) {
		lab_init(&l);
		l.s.net = true;
		l.s.nesting = nesting;
		up(&l);
		assert_true(l.run.net_index >= NET_INDEX_MIN && l.run.net_index <= NET_INDEX_MAX);
		assert_true(is_plugged(&l.run));
		assert_int_equal(hear(&l, "read /proc/net/dev"), 0);
		assert_non_null(strstr(said, "eth0:"));
		assert_int_equal(hear(&l, "read /etc/resolv.conf"), 0);
		assert_string_equal(said, "nameserver " NET_GATEWAY4 "\n");
		assert_string_equal(network_grade(&l), HAS_GATEWAY);
		down(&l);
	}
}

static void a_network_can_come_and_go(void **state)
{
	struct err e = ERR_INIT;
	struct box_run gone;
	struct lab l;
	unsigned first;

	need_root();
	gateway_up();
	lab_init(&l);
	up(&l);
	assert_int_equal(l.run.net_index, 0);
	assert_int_equal(hear(&l, "read /proc/net/dev"), 0);
	assert_null(strstr(said, "eth0:"));
	assert_string_equal(network_grade(&l), HAS_NONE);
	if (engine_native.plug(l.s.id, &l.run, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(is_plugged(&l.run));
	assert_string_equal(network_grade(&l), HAS_GATEWAY);
	/* A second time is a new one. */
	first = l.run.net_index;
	if (engine_native.plug(l.s.id, &l.run, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_not_equal(l.run.net_index, first);
	assert_true(is_plugged(&l.run));
	/* Another daemon knows nothing of it, takes it over and takes it away. */
	fd_close(&l.run.pidfd);
	l.run.net_index = 7;
	assert_int_equal(engine_native.find(l.s.id, &l.run, &e), 0);
	assert_int_equal(l.run.net_index, 0);
	if (engine_native.plug(l.s.id, &l.run, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(is_plugged(&l.run));
	if (engine_native.plug(l.s.id, &l.run, false, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(l.run.net_index, 0);
	assert_int_equal(hear(&l, "read /proc/net/dev"), 0);
	assert_null(strstr(said, "eth0:"));
	assert_int_equal(engine_native.plug(l.s.id, &l.run, false, &e), 0);
	gone = l.run;
	gone.pidfd = fcntl(l.run.pidfd, F_DUPFD_CLOEXEC, 0);
	down(&l);
	assert_int_equal(engine_native.plug(l.s.id, &gone, true, &e), -ESRCH);
	fd_close(&gone.pidfd);
}

static void without_a_gateway_there_is_no_network(void **state)
{
	struct err e = ERR_INIT;
	struct lab l;

	need_root();
	lab_init(&l);
	l.s.net = true;
	assert_int_equal(engine_native.start(&l.s, &l.run, &e), -EOPNOTSUPP);
	assert_int_equal(e.why, WHY_UNSUPPORTED);
	l.s.net = false;
	up(&l);
	assert_int_equal(engine_native.plug(l.s.id, &l.run, true, &e), -EOPNOTSUPP);
	assert_int_equal(engine_native.plug(l.s.id, &l.run, false, &e), 0);
	down(&l);
}

/* An interface that leads elsewhere is seen, whatever it is called. */
static void an_interface_to_elsewhere_is_no_network(void **state)
{
	struct err e = ERR_INIT;
	OWN_FD other = FD_NONE, ns = FD_NONE;
	int net_if;
	struct lab l;

	need_root();
	gateway_up();
	other = world_new(&e);
	assert_true(other >= 0);
	lab_init(&l);
	up(&l);
	ns = native_net_of(&l.run);
	assert_true(ns >= 0);
	assert_int_equal(plug_make(other, ns, 5000, &net_if, &e), 0);
	assert_string_equal(network_grade(&l), "0 The box's interface does not end in the gateway.");
	assert_int_equal(engine_native.plug(l.s.id, &l.run, true, &e), 0);
	assert_string_equal(network_grade(&l), HAS_GATEWAY);
	down(&l);
}

static void builders_have_numbers_of_their_own(void **state)
{
	enum { BOXES = 4 };
	const unsigned span = (NET_INDEX_MAX + 1 - NET_INDEX_MIN) / 16;
	struct err e = ERR_INIT;
	struct lab l[BOXES];
	int p[2], st;
	pid_t pid;

	need_root();
	gateway_up();
	for (int i = 0; i < BOXES; i++) {
		lab_init(&l[i]);
		l[i].s.net = true;
		l[i].s.id_base += (unsigned)i * BOX_IDS;
	}
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		native_in_builder(15);
		for (int i = 0; i < BOXES; i++) {
			struct box_run run;

			/* The first is made from nothing, the others have one ready. */
			for (int n = 0; i == 1 && n < 100 && engine_native.prepare(); n++)
				;
			if (engine_native.start(&l[i].s, &run, &e) < 0) {
				print_message("%s\n", e.text);
				_exit(1);
			}
			if (write(p[1], &run, sizeof(run)) != sizeof(run))
				_exit(2);
		}
		_exit(0);
	}
	(void)close(p[1]);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	for (int i = 0; i < BOXES; i++) {
		struct box_run run, found;

		assert_int_equal(fd_read_exact(p[0], &run, sizeof(run)), 0);
		assert_int_equal(engine_native.find(l[i].s.id, &found, &e), 0);
		assert_int_equal(found.pid, run.pid);
		run.pidfd = found.pidfd;
		l[i].run = run;
		assert_true(run.net_index >= NET_INDEX_MIN + 15 * span && run.net_index <= NET_INDEX_MAX);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(run.net_index, l[k].run.net_index);
		assert_true(is_plugged(&run));
		/* Root of the box has no power over it. */
		assert_int_equal(hear(&l[i], "read /proc/net/dev"), 0);
		assert_non_null(strstr(said, "eth0:"));
	}
	(void)close(p[0]);
	assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
	for (int i = 0; i < BOXES; i++)
		down(&l[i]);
}

static void a_trial_tells_what_this_host_can_do(void **state)
{
	struct grades g = { 0 };
	struct err e = ERR_INIT;
	char st[512];

	need_root();
	gateway_up();
	if (engine_native.probe(count, &g, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(g.off, 0);
	assert_true(g.on >= 19);
	(void)snprintf(st, sizeof(st), "%s/state", top);
	assert_int_equal(entries(st), 1);
}

/* ---- without root ---- */

/* Runs `body` as an ordinary user in a mount namespace where /etc/subuid and subgid say `range`; its result is the exit status. */
static int as_user(const char *range, int (*body)(void))
{
	int st;
	pid_t pid;

	native_done();
	file("sub", range);
	file("passwd", "root:x:0:0::/:/bin/sh\nboxer:x:64000:64000::/:/bin/sh\n");
	pid = fork();
	if (pid == 0) {
		char sub[1024], passwd[1024];

		(void)snprintf(sub, sizeof(sub), "%s/sub", top);
		(void)snprintf(passwd, sizeof(passwd), "%s/passwd", top);
		if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount(sub, "/etc/subuid", NULL, MS_BIND, NULL) < 0 || mount(sub, "/etc/subgid", NULL, MS_BIND, NULL) < 0 ||
		    mount(passwd, "/etc/passwd", NULL, MS_BIND, NULL) < 0 || setgroups(0, NULL) < 0 || setresgid(64000, 64000, 64000) < 0 ||
		    setresuid(64000, 64000, 64000) < 0 ||
		    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)	/* as after an exec */
			_exit(90);
		_exit(body());
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	return WEXITSTATUS(st);
}

static unsigned want_ids;

static int rootless_life(void)
{
	struct native_config c;
	struct grades g = { 0 };
	struct err e = ERR_INIT;
	struct lab l = { 0 };
	char st[512], run[512], tag[512];
	unsigned ids;
	int bad = 0;

	if (rootless_enter(&ids, &e) < 0) {
		print_message("%s\n", e.text);
		return e.why == WHY_UNSUPPORTED ? 77 : 1;
	}
	if (ids != want_ids)
		return 2;
	gateway = world_new(&e);
	if (gateway < 0) {
		print_message("%s\n", e.text);
		return 10;
	}
	config(&c, st, run, tag, sizeof(st));
	c.rootless = true;
	if (native_setup(&c, &e) < 0) {
		print_message("%s\n", e.text);
		return 3;
	}
	lab_init(&l);
	l.s.limits.cpu_milli = 0;
	l.s.net = true;
	/* Limits that nobody delegated: an error, not silence. */
	if (engine_native.start(&l.s, &l.run, &e) != -EOPNOTSUPP || e.why != WHY_UNSUPPORTED)
		return 4;
	l.s.limits = (struct limits){ 0 };
	if (engine_native.start(&l.s, &l.run, &e) < 0) {
		print_message("%s\n", e.text);
		return 5;
	}
	bad |= ask(&l, "ls /") != 0;
	bad |= !is_plugged(&l.run);
	bad |= strcmp(network_grade(&l), HAS_GATEWAY) != 0;
	bad |= ask(&l, "make /tmp/x") != 0;
	bad |= ask(&l, "userns") != ENOSPC;
	bad |= hear(&l, "read /proc/1/uid_map") != 0;
	bad |= (ids > 1 ? ask(&l, "as 1000 /tmp/y") != 0 : ask(&l, "as 1000 /tmp/y") == 0);
	bad |= engine_native.grade(l.s.id, &l.run, count, &g, &e) != 0;
	bad |= !strstr(g.bad, "separate-ids") || !strstr(g.bad, "memory-limit") || strstr(g.bad, "seccomp") != NULL;
	if (bad)
		print_message("deeds or grade: %s\n", g.bad);
	(void)close(l.run.pidfd);
	if (engine_native.find(l.s.id, &l.run, &e) < 0)
		return 6;
	if (engine_native.kill(l.s.id, &e) < 0 || waitpid(l.run.pid, NULL, 0) != l.run.pid || engine_native.forget(l.s.id, &e) < 0)
		return 7;
	if (engine_native.find(l.s.id, &l.run, &e) != -ESRCH)
		return 8;
	native_done();
	return bad ? 9 : 0;
}

static void user_tree(void)
{
	static const char *const owned[] = { "state", "state/boxes", "run", "run/boxes",
					     "layer", "layer/etc", "layer/tmp", "layer/home" };
	char p[1024];

	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++) {
		(void)snprintf(p, sizeof(p), "%s/%s", top, owned[i]);
		assert_int_equal(chown(p, 64000, 64000), 0);
	}
}

static void an_ordinary_user_has_boxes_with_a_range(void **state)
{
	int r;

	need_root();
	if (access("/usr/bin/newuidmap", X_OK) < 0)
		skip_because("no newuidmap: apt-get install uidmap");
	user_tree();
	want_ids = 65537;
	r = as_user("boxer:5000000:65536\n", rootless_life);
	if (r == 77)
		skip_because("this host forbids user namespaces to ordinary users");
	assert_int_equal(r, 0);
}

static void an_ordinary_user_has_boxes_with_one_id(void **state)
{
	int r;

	need_root();
	user_tree();
	want_ids = 1;
	r = as_user("other:5000000:65536\n", rootless_life);
	if (r == 77)
		skip_because("this host forbids user namespaces to ordinary users");
	assert_int_equal(r, 0);
}

/* In a namespace that allows no further ones. */
static int forbidden(void)
{
	struct native_config c;
	struct err e = ERR_INIT;
	struct lab l = { 0 };
	char st[512], run[512], tag[512];
	unsigned ids;

	if (rootless_enter(&ids, &e) < 0)
		return 77;
	config(&c, st, run, tag, sizeof(st));
	c.rootless = true;
	if (native_setup(&c, &e) < 0)
		return 3;
	lab_init(&l);
	l.s.limits = (struct limits){ 0 };
	if (file_write(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0") < 0)
		return 4;
	if (engine_native.start(&l.s, &l.run, &e) >= 0)
		return 5;
	if (e.why != WHY_UNSUPPORTED || !strstr(e.text, "user.max_user_namespaces") || !strstr(e.text, "sysctl -w")) {
		print_message("%s\n", e.text);
		return 6;
	}
	if (file_write(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "100") < 0 || engine_native.start(&l.s, &l.run, &e) < 0)
		return 7;
	if (engine_native.kill(l.s.id, &e) < 0 || waitpid(l.run.pid, NULL, 0) != l.run.pid || engine_native.forget(l.s.id, &e) < 0)
		return 8;
	native_done();
	return 0;
}

static void a_host_that_forbids_user_namespaces_is_named(void **state)
{
	int r;

	need_root();
	user_tree();
	r = as_user("other:5000000:65536\n", forbidden);
	if (r == 77)
		skip_because("this host forbids user namespaces to ordinary users");
	assert_int_equal(r, 0);
}

int main(int argc, char **argv)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(lives_and_is_found_until_it_ends),
		CASE(shows_nothing_of_the_host),
		CASE(nesting_alone_opens_user_namespaces),
		CASE(keeps_its_disk_and_its_name),
		CASE(follows_no_link_of_a_template),
		CASE(project_files_belong_to_the_caller),
		CASE(refuses_dangerous_mounts),
		CASE(never_mounts_through_a_planted_link),
		CASE(limits_hold_and_can_be_changed),
		CASE(pauses_and_resumes),
		CASE(a_missing_layer_is_an_error_unless_allowed),
		CASE(a_failure_at_any_step_leaves_nothing),
		CASE(an_init_that_does_not_come_up_is_cleared_away),
		CASE(a_builders_box_is_its_parents_child),
		CASE(a_network_is_one_interface),
		CASE(a_network_can_come_and_go),
		CASE(without_a_gateway_there_is_no_network),
		CASE(an_interface_to_elsewhere_is_no_network),
		CASE(builders_have_numbers_of_their_own),
		CASE(a_trial_tells_what_this_host_can_do),
		CASE(an_ordinary_user_has_boxes_with_a_range),
		CASE(an_ordinary_user_has_boxes_with_one_id),
		CASE(a_host_that_forbids_user_namespaces_is_named),
	};
	ssize_t n = readlink("/proc/self/exe", init_path, sizeof(init_path) - 32);
	char *slash;

	if (n <= 0)
		return 1;
	init_path[n] = '\0';
	slash = strrchr(init_path, '/');
	(void)snprintf(slash + 1, 32, "test_native_init");
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
