/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder's side of a start. The child (child.c) makes its namespaces and everything that needs no disk at the same
 * time; so the order here is: birth, ids (the child waits for them first), disk, limits, and one message with all of it.
 */
#include "engine/native/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/native/netns.h"
#include "sys/mnt.h"
#include "sys/path.h"
#include "sys/userns.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define CLONE_CGROUP 0x200000000ULL	/* CLONE_INTO_CGROUP, which <sched.h> lacks */

#define READY_MS 10000

struct bringup {
	const struct box_spec *spec;
	struct box_run *ret;
	int box_dir, run_dir, cgroup;
	int listener, sock, child_sock, report, child_report;
	int pidfd;
	pid_t pid;
	int userns;
	struct netns net;
	int sys, stage;
	struct clone3_args args;
	struct child_plan plan;
	int tid;
	long born;
	int disk;		/* box_dir with the box's ids; FD_NONE: as it is */
	int parts[ENGINE_PARTS_MAX], mounts[ENGINE_MOUNTS_MAX], groups[CG_COUNT];
	unsigned nparts, nmounts, ngroups;
	unsigned char is_dir[ENGINE_MOUNTS_MAX];
	unsigned made_upper;	/* bit N: upper/N was made by this start */
	bool made_run, made_socket, made_cgroups, no_setid;
};

struct step {
	const char *doing;
	int (*apply)(struct bringup *b, struct err *e);
	void (*undo)(struct bringup *b);
};

/* ---- the box's directories ---- */

/* The first id of the box on the host: the host's own root's only in a box that is made without ids of its own. */
static uint32_t ids_from(const struct box_spec *s)
{
	return s->weaken & WEAKEN_IDS ? 0 : s->id_base;
}

static int open_dirs(struct bringup *b, struct err *e)
{
	const struct box_spec *s = b->spec;

	b->box_dir = open(s->box_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->box_dir < 0)
		return err_set(e, -errno, "cannot open '%s'", s->box_dir);
	if (mkdir(s->run_dir, 0700) == 0)
		b->made_run = true;
	else if (errno != EEXIST)
		return err_set(e, -errno, "cannot make '%s'", s->run_dir);
	b->run_dir = open(s->run_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return b->run_dir < 0 ? err_set(e, -errno, "cannot open '%s'", s->run_dir) : 0;
}

static void drop_uppers(struct bringup *b);

static void close_dirs(struct bringup *b)
{
	/* Here, when the first process is gone for certain: it may have the disk mounted. */
	drop_uppers(b);
	fd_close(&b->run_dir);
	fd_close(&b->box_dir);
	if (b->made_run)
		(void)rmdir(b->spec->run_dir);
}

/* The id on disk of what the box sees as its root's. */
static uid_t disk_root(void)
{
	return native.rootless && native.ids > 1000 ? 1 : 0;
}

static int make_dir_at(int dir, const char *name, bool *ret_made)
{
	*ret_made = mkdirat(dir, name, 0700) == 0;
	return *ret_made || errno == EEXIST ? 0 : -errno;
}

static void drop_volatile(int box_dir, unsigned i)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "work/%u/work/incompat/volatile/dirty", i);
	(void)unlinkat(box_dir, name, 0);
	(void)snprintf(name, sizeof(name), "work/%u/work/incompat/volatile", i);
	(void)unlinkat(box_dir, name, AT_REMOVEDIR);
}

/*
 * upper/N takes the mode and owner of the topmost layer's root: it is what the box sees. A box can't give these two back,
 * so they are set once, by the start that makes the directory.
 */
static int make_upper(struct bringup *b, unsigned i, struct err *e)
{
	const struct root_part *part = &b->spec->parts[i];
	char upper[32], work[32];
	uid_t uid = disk_root();
	struct stat st = { .st_mode = 0755 };
	bool made;
	int r;

	(void)snprintf(upper, sizeof(upper), "upper/%u", i);
	(void)snprintf(work, sizeof(work), "work/%u", i);
	r = make_dir_at(b->box_dir, work, &made);
	if (r == 0)
		r = make_dir_at(b->box_dir, upper, &made);
	if (r < 0)
		return err_set(e, r, "cannot make the writable part of '%s'", part->at);
	if (!made) {
		/* A volatile overlay that ended leaves this mark, so that nobody trusts it: whoever throws it away may. */
		if (b->spec->throw_away)
			drop_volatile(b->box_dir, i);
		return 0;
	}
	b->made_upper |= 1u << i;
	if (part->nlayers && stat(part->layers[0], &st) < 0)
		return err_set(e, -errno, "cannot look at the layer '%s'", part->layers[0]);
	if (part->nlayers && part->idmap && !native.rootless)
		uid = st.st_uid;
	if ((uid && fchownat(b->box_dir, upper, uid, uid ? st.st_gid : 0, AT_SYMLINK_NOFOLLOW) < 0) ||
	    fchmodat(b->box_dir, upper, st.st_mode & 07777, 0) < 0)
		return err_set(e, -errno, "cannot prepare the writable part of '%s'", part->at);
	if (native.rootless && disk_root() && fchownat(b->box_dir, work, disk_root(), disk_root(), AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(e, -errno, "cannot prepare the writable part of '%s'", part->at);
	return 0;
}

static int make_uppers(struct bringup *b, struct err *e)
{
	const char *path;
	unsigned etc = identity_part(b->spec, &path);
	bool made;
	int r = make_dir_at(b->box_dir, "upper", &made);

	if (r == 0)
		r = make_dir_at(b->box_dir, "work", &made);
	if (r < 0)
		return err_set(e, r, "cannot make the writable part of the box's disk");
	for (unsigned i = 0; i < b->spec->nparts && r == 0; i++)
		r = make_upper(b, i, e);
	return r < 0 ? r : identity_write(b->spec, b->box_dir, b->made_upper & (1u << etc), disk_root(), e);
}

/* Only what this start made, and only with what this start wrote: a box's own files are never touched. */
static void drop_uppers(struct bringup *b)
{
	static const char *const own[] = { "hostname", "hosts", "machine-id", "resolv.conf", "localtime" };
	const char *path;
	unsigned etc = identity_part(b->spec, &path);
	char name[64];

	for (unsigned i = 0; i < b->spec->nparts; i++) {
		if (!(b->made_upper & (1u << i)))
			continue;
		for (size_t k = 0; i == etc && k < sizeof(own) / sizeof(own[0]); k++) {
			(void)snprintf(name, sizeof(name), "upper/%u/%s%s%s", i, path, *path ? "/" : "", own[k]);
			(void)unlinkat(b->box_dir, name, 0);
		}
		if (i == etc && *path) {
			(void)snprintf(name, sizeof(name), "upper/%u/%s", i, path);
			(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		}
		/* Mount points are the other thing that a start leaves in a fresh upper. */
		for (unsigned m = 0; i == 0 && m < 4; m++) {
			static const char *const points[] = { "proc", "sys", "dev", "run" };

			(void)snprintf(name, sizeof(name), "upper/0/%s", points[m]);
			(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		}
		(void)snprintf(name, sizeof(name), "upper/%u", i);
		(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		drop_volatile(b->box_dir, i);
		(void)snprintf(name, sizeof(name), "work/%u/work/incompat", i);
		(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		(void)snprintf(name, sizeof(name), "work/%u/work", i);
		(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		(void)snprintf(name, sizeof(name), "work/%u/index", i);
		(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
		(void)snprintf(name, sizeof(name), "work/%u", i);
		(void)unlinkat(b->box_dir, name, AT_REMOVEDIR);
	}
	mounts_undo(b->spec, b->box_dir);
	(void)unlinkat(b->box_dir, "upper", AT_REMOVEDIR);
	(void)unlinkat(b->box_dir, "work", AT_REMOVEDIR);
}

static int make_socket(struct bringup *b, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	b->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (b->listener < 0)
		return err_set(e, -errno, "cannot make the box's socket");
	/* A socket's name has 107 bytes; by the descriptor, the directory's length doesn't count. */
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/init.sock", b->run_dir);
	/* Of an earlier life of the box: nobody listens there, since its groups are gone. */
	(void)unlinkat(b->run_dir, "init.sock", 0);
	if (bind(b->listener, (struct sockaddr *)&a, sizeof(a)) < 0)
		return err_set(e, -errno, "cannot make the box's socket in '%s'", b->spec->run_dir);
	b->made_socket = true;
	if (fchmodat(b->run_dir, "init.sock", 0600, 0) < 0 || listen(b->listener, 1024) < 0)
		return err_set(e, -errno, "cannot listen on the box's socket");
	return 0;
}

static void drop_socket(struct bringup *b)
{
	fd_close(&b->listener);
	if (b->made_socket)
		(void)unlinkat(b->run_dir, "init.sock", 0);
}

/* ---- birth ---- */

static int make_group(struct bringup *b, struct err *e)
{
	int r;

	/* Groups of this id in any hierarchy: the box runs, or died without being forgotten. */
	if (cgroup_exists(&native.cg, b->spec->id) || native_noted(b->spec->id))
		return err_why(e, WHY_BUSY, -EBUSY, "something of the box '%s' still runs: stop it first", b->spec->id);
	b->made_cgroups = true;
	r = cgroup_make_v2(&native.cg, b->spec->id, &b->cgroup, e);
	if (r < 0)
		b->made_cgroups = r != -EEXIST && b->made_cgroups;
	return r;
}

static void drop_groups(struct bringup *b)
{
	fd_close(&b->cgroup);
	if (b->made_cgroups)
		(void)cgroup_remove(&native.cg, b->spec->id, NULL);
}

static int make_pipes(struct bringup *b, struct err *e)
{
	int s[2], p[2], r;

	r = fd_socketpair(SOCK_SEQPACKET, s);
	if (r < 0)
		return err_set(e, r, "cannot make a socket");
	b->sock = s[0];
	b->child_sock = s[1];
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot make a pipe");
	b->report = p[0];
	b->child_report = p[1];
	return 0;
}

static void drop_pipes(struct bringup *b)
{
	fd_close(&b->sock);
	fd_close(&b->child_sock);
	fd_close(&b->report);
	fd_close(&b->child_report);
}

static unsigned child_fail_at(void);

/*
 * A box that may make user namespaces needs power over its network stack for those; without root we can't give it
 * anything else. These make their own.
 */
static bool own_netns(const struct box_spec *s)
{
	return s->nesting || native.rootless || !native.builder;
}

static int make_net(struct bringup *b, struct err *e)
{
	OWN_FD fs = FD_NONE;
	int r;

	if (own_netns(b->spec))
		return 0;
	if (b->spec->weaken & WEAKEN_NET)
		r = b->net.fd = netns_home(e);
	else
		r = netns_enter(b->spec->net ? native.gateway_ns : FD_NONE, &b->net, e);
	if (r < 0)
		return r;
	fs = fsopen("sysfs", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_set(e, -errno, "cannot make /sys");
	b->sys = fsmount(fs, FSMOUNT_CLOEXEC, (b->spec->weaken & WEAKEN_PROC ? 0 : MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NOSUID |
						 MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return b->sys < 0 ? err_set(e, -errno, "cannot make /sys") : 0;
}

static void drop_net(struct bringup *b)
{
	fd_close(&b->sys);
	fd_close(&b->net.fd);
}

/*
 * One tmpfs for all that a box has in memory: /dev, /dev/shm, /run. Its device nodes are its own, so a box that changes
 * one changes nothing of the host's; a user namespace can't make any, which is why it is made here.
 * The size keeps a box without a memory limit from filling the host; what is in it counts as memory of the box in any case.
 */
static int make_stage(struct bringup *b, struct err *e)
{
	static const struct {
		const char *name;
		mode_t mode;
	} dirs[] = {
		{ "dev", 0755 },	 { "run", 0755 }, { "dev/pts", 0755 }, { "dev/shm", 01777 },
		{ "dev/mqueue", 01777 }, { "root", 0700 }, { "proc", 0555 },	{ "sys", 0555 }, { "none", 0 },
	};
	static const struct {
		const char *name;
		unsigned char major, minor;
	} nodes[] = {
		{ "dev/null", 1, 3 },	{ "dev/zero", 1, 5 },	 { "dev/full", 1, 7 },
		{ "dev/random", 1, 8 }, { "dev/urandom", 1, 9 }, { "dev/tty", 5, 0 },
	};
	static const char *const links[][2] = {
		{ "pts/ptmx", "dev/ptmx" }, { "/proc/self/fd", "dev/fd" }, { "/proc/self/fd/0", "dev/stdin" },
		{ "/proc/self/fd/1", "dev/stdout" }, { "/proc/self/fd/2", "dev/stderr" },
	};
	uint64_t memory = b->spec->limits.memory;
	uid_t root = ids_from(b->spec);
	OWN_FD fs = FD_NONE;
	char size[32], owner[16];
	bool ok;

	if (native.rootless)
		return 0;
	if (memory)
		(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)memory / 2);
	else
		(void)snprintf(size, sizeof(size), "25%%");
	(void)snprintf(owner, sizeof(owner), "%u", root);
	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "uid", owner, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "gid", owner, 0) < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_set(e, -errno, "cannot make a tmpfs");
	b->stage = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID);
	ok = b->stage >= 0;
	for (size_t i = 0; ok && i < sizeof(dirs) / sizeof(dirs[0]); i++)
		ok = mkdirat(b->stage, dirs[i].name, 0700) == 0 && fchmodat(b->stage, dirs[i].name, dirs[i].mode, 0) == 0 &&
		     fchownat(b->stage, dirs[i].name, root, root, 0) == 0;
	for (size_t i = 0; ok && i < sizeof(nodes) / sizeof(nodes[0]); i++)
		ok = mknodat(b->stage, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0 &&
		     fchmodat(b->stage, nodes[i].name, 0666, 0) == 0 &&
		     fchownat(b->stage, nodes[i].name, root, root, 0) == 0;
	for (size_t i = 0; ok && i < sizeof(links) / sizeof(links[0]); i++)
		ok = symlinkat(links[i][0], b->stage, links[i][1]) == 0 &&
		     fchownat(b->stage, links[i][1], root, root, AT_SYMLINK_NOFOLLOW) == 0;
	if (ok && (b->spec->weaken & WEAKEN_DEV))
		ok = mknodat(b->stage, "dev/kmsg", S_IFCHR | 0666, makedev(1, 11)) == 0 && fchmodat(b->stage, "dev/kmsg", 0666, 0) == 0;
	return ok ? 0 : err_set(e, -errno, "cannot make the devices of the box");
}

static void drop_stage(struct bringup *b)
{
	fd_close(&b->stage);
}

/*
 * Birth. Copying even a small process for a child that runs another program soon costs more than most of what the child
 * does. So it shares our memory until then, as after vfork(2). vfork stops the caller, but we have work to do meanwhile: so
 * a thread of ours is the caller, on whose stack the child runs. What this asks of the child: no libc call that
 * concerns all threads (the set*id family), nothing written but its stack and its errno.
 */
static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	bool lives;
	struct bringup *job;
} midwife = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER };

#if defined(__SANITIZE_ADDRESS__)
#define SHARES_MEMORY false	/* the sanitizer's shadow of that stack would be the child's */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHARES_MEMORY false
#endif
#endif
#ifndef SHARES_MEMORY
#if defined(__x86_64__) || defined(__aarch64__)
#define SHARES_MEMORY true
#else
#define SHARES_MEMORY false
#endif
#endif

static _Noreturn void born(const struct child_plan *p)
{
	(void)close(p->leave[0]);
	(void)close(p->leave[1]);
	if (p->says_hello && write(p->sock, "h", 1) != 1)
		_exit(126);
	child_main(p);
}

/*
 * The system call is made here and not in a function of libc: the child's first return would take away the stack frame
 * that the parent returns through later.
 */
static __attribute__((noinline)) long birth(struct clone3_args *a, const struct child_plan *p)
{
#if defined(__x86_64__)
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"((long)SYS_clone3), "D"(a), "S"(sizeof(*a))
			 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long nr __asm__("x8") = SYS_clone3;
	register long r __asm__("x0") = (long)a;
	register long n __asm__("x1") = sizeof(*a);

	__asm__ volatile("svc 0" : "+r"(r) : "r"(nr), "r"(n) : "memory");
#else
	long r = clone3(a);
#endif
	if (r == 0)
		born(p);
	return r;
}

/*
 * The kernel counts what a box uses of inotify, message queues, signals and the like also against whoever made its user
 * namespace (create_user_ns(), ucounts). That must not be the host's root, whom all boxes would share: so it is made in the name
 * of the box's own root. Of this thread alone: the set*id calls of libc would change all of them. The file system id stays.
 */
static int take_name(uid_t root)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &head, caps) < 0 || syscall(SYS_setresuid, -1, root, -1) < 0)
		return -errno;
	(void)syscall(SYS_setfsuid, 0);
	/* Changing the effective id away from 0 took the effective capabilities (capabilities(7)). */
	return syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
}

static long birth_named(struct bringup *b)
{
	long r = 0;

	if (!native.rootless)
		r = take_name(ids_from(b->spec));
	if (r == 0)
		r = birth(&b->args, &b->plan);
	if (!native.rootless)
		(void)syscall(SYS_setresuid, -1, 0, -1);
	return r;
}

static void *midwife_main(void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&midwife.lock);
	for (;;) {
		struct bringup *b;

		while (!midwife.job)
			(void)pthread_cond_wait(&midwife.change, &midwife.lock);
		b = midwife.job;
		(void)pthread_mutex_unlock(&midwife.lock);
		/* A network namespace is a thread's (setns(2)). */
		b->born = b->net.fd >= 0 && setns(b->net.fd, CLONE_NEWNET) < 0 ? -errno : birth_named(b);
		if (b->born < 0)
			(void)!write(b->plan.sock, "e", 1);
		(void)pthread_mutex_lock(&midwife.lock);
		midwife.job = NULL;
		(void)pthread_cond_signal(&midwife.change);
	}
	return NULL;
}

/* The thread is free again: the child has its own memory, or is gone. */
static void birth_over(void)
{
	(void)pthread_mutex_lock(&midwife.lock);
	while (midwife.job)
		(void)pthread_cond_wait(&midwife.change, &midwife.lock);
	(void)pthread_mutex_unlock(&midwife.lock);
}

static int birth_shared(struct bringup *b)
{
	struct pollfd p = { .fd = b->sock, .events = POLLIN };
	char said;
	int r;

	if (!midwife.lives) {
		pthread_attr_t attr;

		(void)pthread_attr_init(&attr);
		(void)pthread_attr_setstacksize(&attr, 256 << 10);
		r = pthread_create(&midwife.thread, &attr, midwife_main, NULL);
		(void)pthread_attr_destroy(&attr);
		if (r != 0)
			return -r;
		midwife.lives = true;
	}
	b->args.flags |= CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID;
	b->args.parent_tid = (uint64_t)(uintptr_t)&b->tid;
	b->plan.says_hello = true;
	(void)pthread_mutex_lock(&midwife.lock);
	midwife.job = b;
	(void)pthread_cond_signal(&midwife.change);
	(void)pthread_mutex_unlock(&midwife.lock);
	/* A child that was killed before it said anything has told nobody. */
	if (poll(&p, 1, READY_MS) == 1 && read(b->sock, &said, 1) == 1 && said == 'h')
		return b->tid;
	if (b->pidfd >= 0)
		(void)syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	birth_over();
	return b->born < 0 ? (int)b->born : -ECHILD;
}

static int give_birth(struct bringup *b, struct err *e)
{
	struct clone3_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_PIDFD | (native.time_ns ? CLONE_NEWTIME : 0),
		.pidfd = (uint64_t)(uintptr_t)&b->pidfd,
		.exit_signal = SIGCHLD,
	};
	struct child_plan plan = {
		.spec = b->spec,
		.leave = { b->sock, b->report },
		.sock = b->child_sock,
		.report = b->child_report,
		.listener = b->listener,
		.init_fd = native.init_fd,
		.sys = b->sys,
		.stage = b->stage,
		.no_setid = b->no_setid,
		.fail_at = child_fail_at(),
	};
	pid_t pid;

	if (native.builder) {
		a.flags |= CLONE_PARENT;	/* takes the builder's own exit signal */
		a.exit_signal = 0;
	}
	if (b->cgroup >= 0) {
		a.flags |= CLONE_CGROUP;
		a.cgroup = (uint64_t)b->cgroup;
	}
	b->args = a;
	b->plan = plan;
	/* Rootless, the memory's owner would change with the child's ids, and we could not write its id maps any more. */
	pid = SHARES_MEMORY && native.builder && !native.rootless ? birth_shared(b) : (pid_t)birth_named(b);
	if (pid < 0)
		return native_userns_err(pid, e);
	b->pid = pid;
	/* Now an end of file says that the child is gone. */
	fd_close(&b->child_sock);
	fd_close(&b->child_report);
	return 0;
}

static void bury(struct bringup *b)
{
	struct pollfd p = { .fd = b->pidfd, .events = POLLIN };

	if (b->pid <= 0)
		return;
	(void)syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0);
	(void)cgroup_kill(&native.cg, b->spec->id, NULL);
	(void)poll(&p, 1, READY_MS);
	birth_over();
	if (!native.builder)
		while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
			;
	fd_close(&b->pidfd);
}

static int give_ids(struct bringup *b, struct err *e)
{
	char uids[128];
	int r;

	if (!native.rootless)
		(void)snprintf(uids, sizeof(uids), "0 %u %u\n", ids_from(b->spec), BOX_IDS);
	else if (native.ids > 1001)
		(void)snprintf(uids, sizeof(uids), "0 1 1000\n1000 0 1\n1001 1001 %u\n",
			       (native.ids < BOX_IDS ? native.ids : BOX_IDS) - 1001);
	else
		(void)snprintf(uids, sizeof(uids), "0 0 1\n");
	r = userns_map(b->pid, uids, uids);
	if (r < 0)
		return err_set(e, r, "cannot give the box its ids");
	return write(b->sock, "m", 1) == 1 ? 0 : err_set(e, -errno, "cannot talk to the box's first process");
}

/* ---- disk ---- */

static int make_part(struct bringup *b, unsigned i, int box, struct err *e)
{
	const struct root_part *part = &b->spec->parts[i];
	int lower[ENGINE_LAYERS_MAX];
	struct overlay o = {
		.lower = lower, .throw_away = b->spec->throw_away, .in_userns = native.rootless,
		.as = native.rootless ? 0 : ids_from(b->spec), .upper = FD_NONE, .work = FD_NONE,
	};
	char name[32];
	int r = 0;

	for (; o.nlower < part->nlayers; o.nlower++) {
		const char *path = part->layers[o.nlower];
		int fd = mnt_copy(AT_FDCWD, path, 0, part->idmap && !native.rootless ? b->userns : FD_NONE);

		/* What is mounted below, and locked there, can't be left out of a copy; then the box sees the path in its mounts. */
		if (fd == -EINVAL && !(part->idmap && !native.rootless)) {
			fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
			fd = fd < 0 ? -errno : fd;
		}
		if (fd < 0) {
			r = fd;
			r = r == -EINVAL ? err_why(e, WHY_UNSUPPORTED, r,
						   "the file system of '%s' has no idmapped mounts: keep the state directory "
						   "on ext4, xfs, btrfs or tmpfs (kernel 6.1 or newer)", path) :
					   err_set(e, r, "cannot use the layer '%s'", path);
			break;
		}
		lower[o.nlower] = fd;
	}
	if (r == 0) {
		(void)snprintf(name, sizeof(name), "upper/%u", i);
		o.upper = openat(box, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		(void)snprintf(name, sizeof(name), "work/%u", i);
		o.work = o.upper < 0 ? -1 : openat(box, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = o.work < 0 ? err_set(e, -errno, "cannot open the writable part of '%s'", part->at) : overlay_make(&o, e);
	}
	for (unsigned k = 0; k < o.nlower; k++)
		(void)close(lower[k]);
	fd_close(&o.upper);
	fd_close(&o.work);
	if (r < 0)
		return err_while(e, r, "for '%s'", part->at);
	b->parts[b->nparts++] = r;
	return 0;
}

static int make_disk(struct bringup *b, struct err *e)
{
	char path[64];
	int box;

	if (!native.rootless) {
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)b->pid);
		b->userns = open(path, O_RDONLY | O_CLOEXEC);
		if (b->userns < 0)
			return err_set(e, -errno, "cannot open the box's user namespace");
		/* One copy for upper and work: overlayfs wants them on one mount. */
		box = mnt_copy(b->box_dir, "", 0, b->userns);
		if (box == -EINVAL)
			return err_why(e, WHY_UNSUPPORTED, box,
				       "the file system of '%s' has no idmapped mounts: keep the state directory on ext4, xfs, "
				       "btrfs or tmpfs (kernel 6.1 or newer)", b->spec->box_dir);
		if (box < 0)
			return err_set(e, box, "cannot shift the ids of the box's disk");
	} else {
		/* A copy is a mount of its own, so that the paths in the box's /proc/self/mountinfo begin there. */
		box = mnt_copy(b->box_dir, "", 0, FD_NONE);
		if (box < 0 && box != -EINVAL)
			return err_set(e, box, "cannot use '%s'", b->spec->box_dir);
	}
	b->disk = box < 0 ? FD_NONE : box;
	for (unsigned i = 0; i < b->spec->nparts; i++) {
		int r = make_part(b, i, box < 0 ? b->box_dir : box, e);

		if (r < 0)
			return r;
	}
	return 0;
}

static void drop_disk(struct bringup *b)
{
	while (b->nparts > 0)
		fd_close(&b->parts[--b->nparts]);
	fd_close(&b->disk);
	fd_close(&b->userns);
}

static int make_mounts(struct bringup *b, struct err *e)
{
	int r = mounts_make(b->spec, b->box_dir, b->disk < 0 ? b->box_dir : b->disk, b->userns, b->mounts, b->is_dir, e);

	if (r == 0)
		b->nmounts = b->spec->nmounts;
	return r;
}

static void drop_mounts(struct bringup *b)
{
	while (b->nmounts > 0)
		fd_close(&b->mounts[--b->nmounts]);
}

static int make_limits(struct bringup *b, struct err *e)
{
	struct cg_limits l;
	struct stat st;
	int r;

	native_limits(&b->spec->limits, &l);
	if (b->spec->weaken & WEAKEN_MEMORY)
		l.memory = l.swap = 0;
	if (b->spec->weaken & WEAKEN_PIDS)
		l.pids = 0;
	if (b->spec->weaken & WEAKEN_CPU)
		l.cpu_milli = 0;
	if (fstat(b->box_dir, &st) == 0)
		l.io_dev = st.st_dev;
	b->made_cgroups = true;
	r = cgroup_make_v1(&native.cg, b->spec->id, &l, b->groups, &b->ngroups, e);
	if (r == 0)
		native_mark(b->spec->id, (b->spec->nesting ? MARK_NESTING : 0) | (b->no_setid ? MARK_NO_SETID : 0) |
						 (native.time_ns ? MARK_TIME_NS : 0) | (b->spec->allow_weaker ? MARK_WEAKER : 0) |
						 (b->spec->weaken ? MARK_WEAKENED : 0));
	return r;
}

static void drop_limits(struct bringup *b)
{
	while (b->ngroups > 0)
		fd_close(&b->groups[--b->ngroups]);
}

static int send_fds(int sock, const void *data, size_t n, const int *fds, size_t nfds)
{
	ssize_t k = fd_send(sock, data, n, fds, nfds, 0);

	return k < 0 ? (int)k : (size_t)k == n ? 0 : -EIO;
}

static int hand_over(struct bringup *b, struct err *e)
{
	struct child_orders o = { .parts = b->nparts, .mounts = b->nmounts, .groups = b->ngroups };
	int r;

	memcpy(o.is_dir, b->is_dir, sizeof(o.is_dir));
	r = send_fds(b->sock, &o, sizeof(o), NULL, 0);
	if (r == 0)
		r = send_fds(b->sock, "p", 1, b->parts, b->nparts);
	if (r == 0 && b->nmounts)
		r = send_fds(b->sock, "v", 1, b->mounts, b->nmounts);
	if (r == 0 && b->ngroups)
		r = send_fds(b->sock, "g", 1, b->groups, b->ngroups);
	/* A child that is gone has said why: read that instead. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	return r < 0 ? err_set(e, r, "cannot hand over the box's disk") : 0;
}

/* A byte: cubby-init listens. A whole report: a step of the child failed. The end: it died. */
static int wait_ready(struct bringup *b, struct err *e)
{
	struct child_report rep;
	struct pollfd p = { .fd = b->report, .events = POLLIN };
	struct timespec t;
	int64_t end, now;
	ssize_t n;
	int r;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	end = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000 + READY_MS;
	do {
		(void)clock_gettime(CLOCK_MONOTONIC, &t);
		now = t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
		r = now >= end ? 0 : poll(&p, 1, (int)(end - now));
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		return err_why(e, WHY_TIMEOUT, -ETIMEDOUT, "the box's init did not answer within %d s", READY_MS / 1000);
	n = read(b->report, &rep, sizeof(rep));
	if (n == 1)
		return 0;
	if (n == (ssize_t)sizeof(rep)) {
		rep.doing[sizeof(rep.doing) - 1] = '\0';
		if (rep.code >= 0 || rep.code < -4095)
			rep.code = -EPROTO;
		if (rep.code == -ELOOP)
			return err_why(e, WHY_DENIED, rep.code, "%s: a part of that path is a link in the box, which is never followed: "
								"remove the link or choose another place", rep.doing);
		if (strncmp(rep.doing, "entering namespaces", 19) == 0 && rep.code != -EIO)
			return native_userns_err(rep.code, e);
		if (rep.code == -ECANCELED)
			return err_why(e, WHY_CANCELLED, rep.code, "%s: the builder is gone", rep.doing);
		return err_set(e, rep.code, "%s", rep.doing);
	}
	return err_why(e, WHY_INTERNAL, -ECHILD, "the box's first process ended before it was ready");
}

/* A namespace that the child made gets its interface when it is there for certain, and before anybody can use the box. */
static int plug_net(struct bringup *b, struct err *e)
{
	const struct box_run run = { .pid = b->pid, .pidfd = b->pidfd };
	OWN_FD ns = FD_NONE;

	if (!b->spec->net || !own_netns(b->spec) || (b->spec->weaken & WEAKEN_NET))
		return 0;
	ns = native_net_of(&run);
	if (ns < 0)
		return err_set(e, ns, "cannot open the box's network namespace");
	return netns_plug(native.gateway_ns, ns, native.rootless ? native.ids : UINT_MAX, &b->net.index, &b->net.net_if, e);
}

static const struct step steps[] = {
	{ "opening the box's directories", open_dirs, close_dirs },
	/* First of what can be taken: a box that runs must not lose its socket to a second start. */
	{ "making the box's cgroup", make_group, drop_groups },
	{ "making the box's socket", make_socket, drop_socket },
	{ "making pipes", make_pipes, drop_pipes },
	{ "making the box's network stack", make_net, drop_net },
	{ "making the box's devices", make_stage, drop_stage },
	{ "starting the box's first process", give_birth, bury },
	{ "giving the box its ids", give_ids, NULL },
	{ "preparing the box's disk", make_uppers, NULL },
	{ "mounting the box's disk", make_disk, drop_disk },
	{ "mounting directories of the host", make_mounts, drop_mounts },
	{ "setting the box's limits", make_limits, drop_limits },
	{ "handing over the disk", hand_over, NULL },
	{ "starting the box", wait_ready, NULL },
	{ "giving the box its interface", plug_net, NULL },
};
#define NSTEPS (sizeof(steps) / sizeof(steps[0]))

static unsigned child_fail_at(void)
{
	return native.fail_at > NSTEPS ? native.fail_at - (unsigned)NSTEPS : 0;
}

static int steps_run(struct bringup *b, struct err *e)
{
	for (size_t i = 0; i < NSTEPS; i++) {
		int r = steps[i].apply(b, e);

		/* The test's failure comes after the step, which leaves the most behind. */
		if (r == 0 && native.fail_at == i + 1)
			r = err_why(e, WHY_INTERNAL, -EIO, "failed on request");
		if (r == 0)
			continue;
		(void)err_while(e, r, "%s", steps[i].doing);
		/* The failed step may be half done, so it is undone as well. */
		for (size_t k = i + 1; k-- > 0;)
			if (steps[k].undo)
				steps[k].undo(b);
		return r;
	}
	return 0;
}

static int spec_ok(const struct box_spec *s, struct err *e)
{
	if (!id_ok(s->id))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is not the id of a box", s->id);
	if (!name_ok(s->host_name))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is not a name for a box (%s)", s->host_name, NAME_RULE);
	if (!s->box_dir || s->box_dir[0] != '/' || !s->run_dir || s->run_dir[0] != '/')
		return err_why(e, WHY_INTERNAL, -EINVAL, "a box needs absolute directories");
	if (s->nparts < 1 || s->nparts > ENGINE_PARTS_MAX || strcmp(s->parts[0].at, "/") != 0 || s->nmounts > ENGINE_MOUNTS_MAX)
		return err_why(e, WHY_INTERNAL, -EINVAL, "a box needs a root file system");
	for (unsigned i = 0; i < s->nparts; i++) {
		if (s->parts[i].nlayers < 1 || s->parts[i].nlayers > ENGINE_LAYERS_MAX)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' of the box has %u layers; 1 to %d can be had", s->parts[i].at,
				       s->parts[i].nlayers, ENGINE_LAYERS_MAX);
		if (i > 0 && (!path_plain(s->parts[i].at) || strcmp(s->parts[i].at, "/") == 0))
			return err_why(e, WHY_INTERNAL, -EINVAL, "'%s' is no place for a part of the disk", s->parts[i].at);
	}
	if (s->net && native.gateway_ns < 0)
		return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, NO_NETWORK);
	if (s->weaken && !s->throw_away)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "only a throw-away box is made without a defence");
	if ((s->weaken & WEAKEN_IDS) && native.rootless)
		return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, "without root there are no other ids to give to a box");
	/* Root of the host must be nobody in a box, and so must the ids that would wrap. */
	if (!native.rootless && (s->id_base < 1 || s->id_base > UINT32_MAX - BOX_IDS))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "ids from %u on can't be a box's", s->id_base);
	return 0;
}

int native_start(const struct box_spec *spec, struct box_run *ret_run, struct err *e)
{
	struct bringup b = {
		.spec = spec, .box_dir = FD_NONE, .run_dir = FD_NONE, .cgroup = FD_NONE, .listener = FD_NONE, .sock = FD_NONE,
		.child_sock = FD_NONE, .report = FD_NONE, .child_report = FD_NONE, .pidfd = FD_NONE, .userns = FD_NONE,
		.disk = FD_NONE, .net = { .fd = FD_NONE }, .sys = FD_NONE, .stage = FD_NONE,
	};
	int r = native_ready(e);

	if (r == 0)
		r = spec_ok(spec, e);
	if (r == 0 && !spec->allow_weaker)
		r = native_missing(spec, e);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < spec->nmounts; i++)
		b.no_setid |= !spec->mounts[i].read_only && !spec->mounts[i].cow;
	r = steps_run(&b, e);
	if (r < 0)
		return r;
	birth_over();
	ret_run->pid = b.pid;
	ret_run->pidfd = fd_take(&b.pidfd);
	ret_run->net_index = b.net.index;
	ret_run->net_if = b.net.net_if;
	/* The box has its own copies of all of this. */
	drop_limits(&b);
	drop_mounts(&b);
	drop_disk(&b);
	drop_net(&b);
	drop_stage(&b);
	drop_pipes(&b);
	fd_close(&b.cgroup);
	fd_close(&b.listener);
	fd_close(&b.run_dir);
	fd_close(&b.box_dir);
	return 0;
}
