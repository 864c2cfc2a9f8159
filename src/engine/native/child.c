/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From clone3() to cubby-init: the child makes its own world. No allocation, no stdio, no exit handlers: it is the copy of
 * a process that may hold any lock.
 *
 * Order matters:
 *  1. namespaces, private propagation: nothing that follows is seen outside;
 *  2. while the builder puts the disk together, /proc, /sys, /dev and /run are made on a stage, a tmpfs over the box's run
 *     directory that only this mount namespace sees; the host's own /proc and /sys must still be mounted then, since the
 *     kernel lets a user namespace mount these only where they are fully visible already;
 *  3. with the disk comes membership in the limits, and only then the cgroup namespace, whose root it becomes;
 *  4. the stage moves onto the disk, the caller's directories follow, the host's tree goes;
 *  5. cubby-init, from a sealed memory file. What it gives up itself is in guest/seal.h.
 */
#include "engine/native/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

struct child {
	const struct child_plan *p;
	unsigned at;		/* number of the step */
	int run_dir;
	int stage;		/* the tmpfs everything is put together on */
	int root;		/* the box's root, attached on it */
	int parts[ENGINE_PARTS_MAX], mounts[ENGINE_MOUNTS_MAX], groups[CG_COUNT];
	struct child_orders orders;
};

static _Noreturn void fail(const struct child_plan *p, const char *doing, int code)
{
	struct child_report rep = { .code = code };

	(void)memccpy(rep.doing, doing, '\0', sizeof(rep.doing) - 1);
	if (write(p->report, &rep, sizeof(rep)) < 0)
		_exit(126);
	_exit(127);
}

/* Each step has a name, which is the error text, and a number, at which a test can make it fail. */
static void check(struct child *c, const char *doing, bool ok)
{
	if (++c->at == c->p->fail_at)
		fail(c->p, doing, -EIO);
	if (!ok)
		fail(c->p, doing, errno > 0 ? -errno : -EIO);
}

#define STEP(doing, cond) check(c, (doing), (cond))

/* A defence that a drill wants to see missed. */
static bool without(const struct child *c, unsigned bit)
{
	return c->p->spec->weaken & bit;
}

/* ---- 1 ---- */

static bool lo_up(void)
{
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return s >= 0 && ioctl(s, SIOCSIFFLAGS, &r) == 0;
}

static void signals_plain(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	/* Ignored signals survive exec. */
	for (int s = 1; s < NSIG; s++)
		(void)sigaction(s, &dfl, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool wait_for_ids(const struct child_plan *p)
{
	char m;
	ssize_t n = read(p->sock, &m, 1);

	if (n == 1 && m == 'm')
		return true;
	errno = n < 0 ? errno : ECANCELED;
	return false;
}

/*
 * A v1 group takes a process from somebody who isn't the host's root only if it is his own: the saved id is, while the
 * others are those of the box's root already. join_groups() is the last to need it.
 */
/* Not by libc, which would change all threads of the builder (start.c, "birth"). */
static bool become_root(void)
{
	uid_t saved = native.rootless && native.ids > 1000 ? 1000 : 0;

	return (syscall(SYS_setgroups, 0, NULL) == 0 || native.rootless) && syscall(SYS_setresgid, 0, 0, 0) == 0 &&
	       syscall(SYS_setresuid, 0, 0, saved) == 0;
}

/* ---- 2 ---- */

static bool tmpfs_at(const char *at, unsigned long flags, const char *opts)
{
	return mount("tmpfs", at, "tmpfs", flags, opts) == 0;
}

static bool read_only(const char *path)
{
	if (mount(path, path, NULL, MS_BIND, NULL) < 0)
		return errno == ENOENT;
	return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

/*
 * A device node, borrowed from the host's /dev, for a namespace can't make one. Writing to a device doesn't take a
 * writable mount, but changing the host's inode does: its times, with nothing but the right to write to it.
 */
static bool node(const char *from, const char *to)
{
	struct mount_attr a = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	int fd = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);

	return fd >= 0 && close(fd) == 0 && mount(from, to, NULL, MS_BIND, NULL) == 0 &&
	       mount_setattr(AT_FDCWD, to, 0, &a, sizeof(a)) == 0;
}

/* By descriptor: with the ids of the box nothing can be looked up in the run directory, not even ".". */
static bool stand_on_stage(struct child *c)
{
	return move_mount(c->stage, "", c->run_dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0 &&
	       close(c->run_dir) == 0 && fchdir(c->stage) == 0;
}

static bool make_stage(struct child *c)
{
	OWN_FD fs = FD_NONE;

	c->stage = c->p->stage;
	if (c->stage >= 0)
		return stand_on_stage(c) && read_only("none");
	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return false;
	c->stage = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	return c->stage >= 0 && stand_on_stage(c) &&
	       mkdir("root", 0700) == 0 && mkdir("proc", 0555) == 0 && mkdir("sys", 0555) == 0 && mkdir("dev", 0755) == 0 &&
	       mkdir("run", 0755) == 0 && mkdir("none", 0) == 0 && read_only("none") && node("/dev/null", "null");
}

/* Something that shows nothing over something that shows too much. What this kernel doesn't have needs no mask. */
static bool mask_file(const struct child *c, const char *path)
{
	return mount(c->p->stage >= 0 ? "dev/null" : "null", path, NULL, MS_BIND, NULL) == 0 || errno == ENOENT || errno == ENOTDIR;
}

static bool mask_dir(const char *path)
{
	return mount("none", path, NULL, MS_BIND, NULL) == 0 || errno == ENOENT || errno == ENOTDIR;
}

/* The user namespace's own limit (namespaces(7)): its root has no CAP_SYS_RESOURCE later, and /proc/sys is read-only by then. */
static bool no_more_userns(void)
{
	/* That it works is seen by cubby-init, which tries (--no-userns). */
	return file_write(AT_FDCWD, "proc/sys/user/max_user_namespaces", "0") == 0;
}

static bool proc_mount(const struct child *c)
{
	if (without(c, WEAKEN_SEEN))
		return mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) == 0;
	return mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
}

static bool make_proc(struct child *c)
{
	static const char *const files[] = {
		"proc/kcore", "proc/keys", "proc/key-users", "proc/timer_list", "proc/sched_debug", "proc/latency_stats",
		"proc/timer_stats", "proc/interrupts", "proc/kallsyms", "proc/kmsg",
	};
	static const char *const dirs[] = { "proc/acpi", "proc/scsi", "proc/asound", "proc/bus", "proc/fs" };
	static const char *const fixed[] = { "proc/irq", "proc/sys", "proc/sysrq-trigger", "proc/pressure" };

	if (!proc_mount(c))
		return false;
	if (!c->p->spec->nesting && !without(c, WEAKEN_NESTED) && !no_more_userns())
		return false;
	if (without(c, WEAKEN_PROC))
		return true;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!mask_file(c, files[i]))
			return false;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (!mask_dir(dirs[i]))
			return false;
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (!read_only(fixed[i]))
			return false;
	return true;
}

/*
 * How often each processor was too hot tells what others compute. Where processor 0, which can't be taken away, has no such
 * directory (other makers, virtual machines), none has. mask_dir() passes over one that is offline.
 */
static bool mask_thermal(void)
{
	char path[64] = "sys/devices/system/cpu/cpu0/thermal_throttle";

	if (access(path, F_OK) < 0)
		return errno == ENOENT;
	for (unsigned cpu = 0; cpu < 8192; cpu++) {
		(void)snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%u", cpu);
		if (access(path, F_OK) < 0)
			return errno == ENOENT;
		(void)snprintf(path, sizeof(path), "sys/devices/system/cpu/cpu%u/thermal_throttle", cpu);
		if (!mask_dir(path))
			return false;
	}
	return true;
}

static bool make_sys(const struct child *c)
{
	static const char *const dirs[] = {
		"sys/firmware", "sys/devices/virtual/powercap", "sys/kernel/debug", "sys/kernel/tracing", "sys/kernel/security",
		"sys/kernel/boot_params", "sys/kernel/slab",
	};

	if (c->p->sys >= 0) {
		if (move_mount(c->p->sys, "", AT_FDCWD, "sys", MOVE_MOUNT_F_EMPTY_PATH) < 0)
			return false;
	} else if (without(c, WEAKEN_NET)) {
		/* This one is of a network stack that isn't ours to show. */
		if (mount("/sys", "sys", NULL, MS_BIND | MS_REC, NULL) < 0 ||
		    mount(NULL, "sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
			return false;
	} else if (mount("sysfs", "sys", "sysfs", (without(c, WEAKEN_PROC) ? 0 : MS_RDONLY) | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
		return false;
	}
	if (without(c, WEAKEN_PROC))
		return true;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (!mask_dir(dirs[i]))
			return false;
	/* Where a crash dump finds the kernel, and which build it is. */
	if (!mask_file(c, "sys/kernel/vmcoreinfo") || !mask_file(c, "sys/kernel/notes"))
		return false;
	return mask_thermal();
}

/* Group 5 is tty everywhere; a namespace of a single id has none. */
static bool dev_pts(void)
{
	return mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5") == 0 ||
	       mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") == 0;
}

/* Message queues of the host can't be mounted here. */
static bool mqueue(const struct child *c)
{
	return mount("mqueue", "dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0 || without(c, WEAKEN_IPC);
}

/* What the builder made, or without root what the host lends. */
static bool make_dev(const struct child *c)
{
	static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
	static const char *const links[][2] = {
		{ "pts/ptmx", "dev/ptmx" }, { "/proc/self/fd", "dev/fd" }, { "/proc/self/fd/0", "dev/stdin" },
		{ "/proc/self/fd/1", "dev/stdout" }, { "/proc/self/fd/2", "dev/stderr" },
	};
	uint64_t memory = c->p->spec->limits.memory;
	char shm[64];

	if (c->p->stage >= 0)
		return dev_pts() && mqueue(c);
	if (!tmpfs_at("dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=512"))
		return false;
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		char from[24], to[24];

		(void)snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
		(void)snprintf(to, sizeof(to), "dev/%s", nodes[i]);
		if (!node(from, to))
			return false;
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return false;
	if (mkdir("dev/pts", 0755) < 0 || mkdir("dev/shm", 01777) < 0 || mkdir("dev/mqueue", 01777) < 0)
		return false;
	if (!dev_pts())
		return false;
	/* Counted as memory of the box in any case; the size keeps a box without a limit from filling the host. */
	if (memory)
		(void)snprintf(shm, sizeof(shm), "mode=1777,size=%" PRIu64, memory / 2);
	else
		(void)snprintf(shm, sizeof(shm), "mode=1777,size=25%%");
	if (without(c, WEAKEN_DEV) && !node("/dev/kmsg", "dev/kmsg"))
		return false;
	return tmpfs_at("dev/shm", MS_NOSUID | MS_NODEV, shm) && mqueue(c);
}

static void clamp(int what, rlim_t soft, rlim_t hard)
{
	struct rlimit now, r;

	if (getrlimit((__rlimit_resource_t)what, &now) < 0)
		return;
	r.rlim_max = now.rlim_max < hard ? now.rlim_max : hard;
	r.rlim_cur = soft < r.rlim_max ? soft : r.rlim_max;
	(void)setrlimit((__rlimit_resource_t)what, &r);
}

static void set_rlimits(void)
{
	clamp(RLIMIT_NOFILE, 1024, 524288);
	/*
	 * core_pattern is the host's: nothing of a box may be fed to it. A program it names is started whatever the limit
	 * is, except with 1 (fs/coredump.c), and no file is that short. The filter keeps the box from changing it.
	 */
	clamp(RLIMIT_CORE, 1, 1);
	clamp(RLIMIT_SIGPENDING, 4096, 4096);
	clamp(RLIMIT_RTPRIO, 0, 0);
	clamp(RLIMIT_NICE, 0, 0);
	clamp(RLIMIT_MEMLOCK, 8 << 20, 8 << 20);
	clamp(RLIMIT_MSGQUEUE, 819200, 819200);
}

/* ---- 3 ---- */

static int recv_some(int sock, void *data, size_t n, int *fds, size_t want)
{
	int in[FD_PASS_MAX];
	size_t got = 0;
	ssize_t k = fd_recv(sock, data, n, in, &got, 0);

	if (k < 0) {
		errno = (int)-k;
		return -1;
	}
	if ((size_t)k != n || got != want) {
		errno = k == 0 ? ECANCELED : EPROTO;
		return -1;
	}
	if (want)
		memcpy(fds, in, want * sizeof(int));
	return 0;
}

static bool receive(struct child *c)
{
	char m;

	if (recv_some(c->p->sock, &c->orders, sizeof(c->orders), NULL, 0) < 0)
		return false;
	if (c->orders.parts > ENGINE_PARTS_MAX || c->orders.mounts > ENGINE_MOUNTS_MAX || c->orders.groups > CG_COUNT) {
		errno = EPROTO;
		return false;
	}
	return recv_some(c->p->sock, &m, 1, c->parts, c->orders.parts) == 0 &&
	       (!c->orders.mounts || recv_some(c->p->sock, &m, 1, c->mounts, c->orders.mounts) == 0) &&
	       (!c->orders.groups || recv_some(c->p->sock, &m, 1, c->groups, c->orders.groups) == 0);
}

/* By itself: see cgroup_make_v1(). */
static bool join_groups(const struct child *c)
{
	for (unsigned i = 0; i < c->orders.groups; i++)
		if (write(c->groups[i], "0", 1) != 1)
			return false;
	return true;
}

/* ---- 4 ---- */

static bool attach(int fd, int root, const char *at, bool directory)
{
	OWN_FD point = mount_point(root, at, directory);

	if (point < 0) {
		errno = -point;
		return false;
	}
	return move_mount(fd, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
}

/* A directory of the builder's tmpfs becomes a mount of its own, with what is mounted on it. */
static bool bind_stage(const struct child *c, const char *name, int point, uint64_t attrs)
{
	OWN_FD tree = open_tree(c->stage, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	struct mount_attr a = { .attr_set = attrs };

	return tree >= 0 && mount_setattr(tree, "", AT_EMPTY_PATH, &a, sizeof(a)) == 0 &&
	       move_mount(tree, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) == 0;
}

static bool move_stage(const struct child *c, const char *name)
{
	OWN_FD point = mount_point(c->root, name, true);

	if (point < 0) {
		errno = -point;
		return false;
	}
	if (c->p->stage >= 0 && strcmp(name, "dev") == 0)
		return bind_stage(c, name, point, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (c->p->stage >= 0 && strcmp(name, "run") == 0)
		return bind_stage(c, name, point, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return move_mount(c->stage, name, point, "", MOVE_MOUNT_T_EMPTY_PATH) == 0;
}

static void move_mounts(struct child *c)
{
	const struct box_spec *s = c->p->spec;
	char doing[120];

	for (unsigned i = 0; i < c->orders.mounts; i++) {
		(void)snprintf(doing, sizeof(doing), "mounting at %.80s", s->mounts[i].at);
		STEP(doing, attach(c->mounts[i], c->root, s->mounts[i].at, c->orders.is_dir[i]));
		(void)close(c->mounts[i]);
	}
}

/* The host's whole tree, seen below /run of a box that is made without leaving it. */
static bool keep_host(struct child *c)
{
	OWN_FD tree = open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

	return tree >= 0 && attach(tree, c->root, "/run/host", true);
}

/* ---- 5 ---- */

static bool stdio_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && dup2(fd, 0) == 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2;
}

static void run_init(const struct child_plan *p)
{
	char listen_arg[32], ready_arg[32], weaken_arg[32];
	char *argv[10] = { (char *)"cubby-init", listen_arg, ready_arg };
	char *envp[] = { NULL };
	int n = 3;

	(void)snprintf(listen_arg, sizeof(listen_arg), "--listen=%d", p->listener);
	(void)snprintf(ready_arg, sizeof(ready_arg), "--ready=%d", p->report);
	if (p->spec->nesting)
		argv[n++] = (char *)"--nesting";
	else if (!(p->spec->weaken & WEAKEN_NESTED))
		argv[n++] = (char *)"--no-userns";
	if (p->no_setid)
		argv[n++] = (char *)"--no-setid";
	if (p->spec->throw_away)
		argv[n++] = (char *)"--once";
	if (p->spec->weaken) {
		(void)snprintf(weaken_arg, sizeof(weaken_arg), "--weaken=%u", p->spec->weaken);
		argv[n++] = weaken_arg;
	}
	if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0 || fcntl(p->listener, F_SETFD, 0) < 0 || fcntl(p->report, F_SETFD, 0) < 0)
		return;
	(void)syscall(SYS_execveat, p->init_fd, "", argv, envp, AT_EMPTY_PATH);
}

_Noreturn void child_main(const struct child_plan *plan)
{
	const struct box_spec *s = plan->spec;
	struct child state = { .p = plan }, *c = &state;

	signals_plain();
	(void)umask(022);
	STEP("entering namespaces of its own",
	     unshare(CLONE_NEWNS | (without(c, WEAKEN_IPC) ? 0 : CLONE_NEWIPC) | (without(c, WEAKEN_UTS) ? 0 : CLONE_NEWUTS) |
		     (plan->sys < 0 && !without(c, WEAKEN_NET) ? CLONE_NEWNET : 0)) == 0);
	STEP("keeping its mounts to itself", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	STEP("bringing up the loopback interface", plan->sys >= 0 || without(c, WEAKEN_NET) || lo_up());
	/* In this mount namespace, and while the ids of the builder still open it. */
	c->run_dir = open(s->run_dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	STEP("opening its run directory", c->run_dir >= 0);

	STEP("waiting for its ids", wait_for_ids(plan));
	STEP("becoming root of the box", become_root());
	STEP("making a stage", make_stage(c));
	STEP("making /proc", make_proc(c));
	STEP("making /sys", make_sys(c));
	STEP("making /dev", make_dev(c));
	STEP("making /run", c->stage == plan->stage || tmpfs_at("run", MS_NOSUID | MS_NODEV, "mode=755,size=10%"));
	set_rlimits();

	STEP("receiving its disk", receive(c));
	STEP("joining its limits", join_groups(c) && syscall(SYS_setresuid, 0, 0, 0) == 0);
	STEP("entering a cgroup namespace", without(c, WEAKEN_CGROUP) || unshare(CLONE_NEWCGROUP) == 0);

	STEP("mounting its disk", move_mount(c->parts[0], "", c->stage, "root", MOVE_MOUNT_F_EMPTY_PATH) == 0);
	c->root = c->parts[0];
	for (unsigned i = 1; i < c->orders.parts; i++) {
		STEP("mounting a part of its disk", attach(c->parts[i], c->root, s->parts[i].at, true));
		(void)close(c->parts[i]);
	}
	STEP("mounting /proc", move_stage(c, "proc"));
	STEP("mounting /sys", move_stage(c, "sys"));
	STEP("mounting /dev", move_stage(c, "dev"));
	STEP("mounting /run", move_stage(c, "run"));
	move_mounts(c);
	if (without(c, WEAKEN_ROOT))
		STEP("keeping the host's files", keep_host(c));
	STEP("setting its host name", without(c, WEAKEN_UTS) || sethostname(s->host_name, strlen(s->host_name)) == 0);
	STEP("leaving the host's files", fchdir(c->root) == 0 && syscall(SYS_pivot_root, ".", ".") == 0 &&
						 umount2(".", MNT_DETACH) == 0 && chdir("/") == 0);
	STEP("sharing its mounts", !without(c, WEAKEN_PEERS) || mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) == 0);
	STEP("opening /dev/null", stdio_null());
	STEP("running cubby-init", true);
	run_init(plan);
	fail(plan, "running cubby-init", -errno);
}
