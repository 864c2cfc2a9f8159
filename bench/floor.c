/* SPDX-License-Identifier: Apache-2.0 */
/*
 * floor: the kernel objects of a box and nothing else, made by one bare C program: the least that any box of this
 * shape costs. No checks, no identity, no protocol, no daemon, no way to use it.
 *
 *	floor once ROOT SCRATCH			one such box that runs /bin/true and is taken down; for timing
 *	floor idle N ROOT SCRATCH		N that run /bin/tiny-pause; prints "ready", ends them when stdin ends
 *
 * ROOT is a tiny root file system (bench/tiny-root); SCRATCH an empty directory on a file system that has idmapped mounts.
 * The objects: user, mount, pid, ipc, uts, network, cgroup and time namespaces with an id range; a group in v2 and in v1's
 * memory and pids; an overlay over an idmapped layer; /proc with masks, /sys, /dev (tmpfs with seven nodes, devpts, shm,
 * mqueue), /run; a listening unix socket; reduced capabilities and the system call filter of boxes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
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
#include <unistd.h>

#include "base/err.h"
#include "guest/seal.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define INTO_CGROUP 0x200000000ull
#define IDS 65536

struct box {
	pid_t pid;
	char dir[300];
	int fds[4];		/* what a daemon would hold: pidfd, socket */
};

static char v2_dir[300], memory_dir[300], pids_dir[300];
static const char *root;
static int report = -1;		/* in a child: a byte here says that no box came of it */

static _Noreturn void die(const char *what)
{
	if (report >= 0)
		(void)!write(report, "x", 1);
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void must(bool ok, const char *what)
{
	if (!ok)
		die(what);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(fd);
}

static void find_groups(void)
{
	FILE *f = fopen("/proc/self/mounts", "re");
	char line[1024], at[256], type[64], options[512];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %255s %63s %511s", at, type, options) != 3)
			continue;
		if (strcmp(type, "cgroup2") == 0)
			snprintf(v2_dir, sizeof(v2_dir), "%s", at);
		if (strcmp(type, "cgroup") == 0 && strstr(options, "memory"))
			snprintf(memory_dir, sizeof(memory_dir), "%s", at);
		if (strcmp(type, "cgroup") == 0 && strstr(options, "pids"))
			snprintf(pids_dir, sizeof(pids_dir), "%s", at);
	}
	if (f)
		fclose(f);
}

static int group_make(const char *dir, unsigned n, const char *file, const char *limit, char *ret, size_t size)
{
	char path[600];

	if (!dir[0]) {
		ret[0] = '\0';
		return -1;
	}
	snprintf(ret, size, "%s/floor-%ld-%u", dir, (long)getpid(), n);
	must(mkdir(ret, 0755) == 0, ret);
	if (file) {
		snprintf(path, sizeof(path), "%s/%s", ret, file);
		write_text(path, limit);
	}
	return open(ret, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int copy_shifted(const char *path, int userns)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
	struct {
		uint64_t set, clear, propagation, userns_fd;
	} a = { .set = 0x100000 /* MOUNT_ATTR_IDMAP */, .userns_fd = (uint64_t)userns };

	must(fd >= 0 && syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &a, sizeof(a)) == 0, "an idmapped mount");
	return fd;
}

static void config_fd(int fs, const char *key, int dir, const char *sub)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d%s", dir, sub);
	must(syscall(SYS_fsconfig, fs, 1 /* FSCONFIG_SET_STRING */, key, path, 0) == 0, key);
}

static int overlay(int lower, int box, bool keep_nothing)
{
	int fs = (int)syscall(SYS_fsopen, "overlay", 1), mnt;

	must(fs >= 0, "overlay");
	config_fd(fs, "lowerdir", lower, "");
	config_fd(fs, "upperdir", box, "/upper");
	config_fd(fs, "workdir", box, "/work");
	if (keep_nothing)
		(void)syscall(SYS_fsconfig, fs, 0 /* FSCONFIG_SET_FLAG */, "volatile", NULL, 0);
	must(syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0) == 0, "making the overlay");
	mnt = (int)syscall(SYS_fsmount, fs, 1, 4 /* MOUNT_ATTR_NODEV */);
	must(mnt >= 0, "mounting the overlay");
	close(fs);
	return mnt;
}

static int pass_fd(int sock, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = { 0 }, c = 'f';
	struct iovec iov = { &c, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

	if (fd >= 0) {
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
		return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
	}
	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1 || !(h = CMSG_FIRSTHDR(&msg)))
		return -1;
	memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd;
}

static void node(const char *name)
{
	char from[64], to[64];

	snprintf(from, sizeof(from), "/dev/%s", name);
	snprintf(to, sizeof(to), "new/dev/%s", name);
	must(mknod(to, S_IFREG | 0666, 0) == 0 && mount(from, to, NULL, MS_BIND, NULL) == 0, name);
}

static _Noreturn void child(int sock, int listener, const char *scratch, const char *program)
{
	static const char *const files[] = { "kcore", "keys", "timer_list", "kmsg", "sysrq-trigger", "kallsyms", "kpagecount",
					     "kpageflags" };
	static const char *const dirs[] = { "new/proc/scsi", "new/proc/acpi", "new/sys/firmware", "new/sys/kernel/debug",
					    "new/sys/kernel/tracing", "new/sys/kernel/security", "new/sys/fs/cgroup" };
	static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
	char *const argv[] = { (char *)program, NULL }, *const env[] = { NULL };
	char path[128];
	struct err e = ERR_INIT;
	char c;
	int fd, fs;

	report = sock;
	must(chdir(scratch) == 0, scratch);	/* while the host's root still is what we are */
	must(read(sock, &c, 1) == 1, "the maps");
	must(setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "becoming root");
	must(unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP) == 0, "namespaces");
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private mounts");
	/* On a tmpfs of its own in front of the scratch directory. */
	fs = (int)syscall(SYS_fsopen, "tmpfs", 1);
	must(fs >= 0 && syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0) == 0, "tmpfs");
	fd = (int)syscall(SYS_fsmount, fs, 1, 0);
	must(fd >= 0 && syscall(SYS_move_mount, fd, "", AT_FDCWD, ".", 4 /* F_EMPTY_PATH */) == 0 && fchdir(fd) == 0 &&
	     mkdir("new", 0755) == 0, scratch);
	close(fd);
	close(fs);
	fd = pass_fd(sock, -1);
	must(fd >= 0 && syscall(SYS_move_mount, fd, "", AT_FDCWD, "new", 4 /* F_EMPTY_PATH */) == 0, "the root");
	close(fd);
	must(mount("proc", "new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "/proc");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "new/proc/%s", files[i]);
		(void)mount("/dev/null", path, NULL, MS_BIND, NULL);
	}
	must(mount("new/proc/sys", "new/proc/sys", NULL, MS_BIND, NULL) == 0 &&
	     mount(NULL, "new/proc/sys", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0,
	     "/proc/sys");
	must(mount("sysfs", "new/sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "/sys");
	must(mkdir("none", 0555) == 0, "an empty directory");
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		(void)mount("none", dirs[i], NULL, MS_BIND, NULL);
	must(mount("tmpfs", "new/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=512") == 0, "/dev");
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		node(nodes[i]);
	must(mkdir("new/dev/pts", 0755) == 0 && mkdir("new/dev/shm", 01777) == 0 && mkdir("new/dev/mqueue", 0755) == 0, "/dev");
	must(mount("devpts", "new/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620") == 0, "devpts");
	must(mount("tmpfs", "new/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0, "shm");
	must(mount("mqueue", "new/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "mqueue");
	must(mount("tmpfs", "new/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") == 0, "/run");
	must(chdir("new") == 0 && syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0,
	     "pivot_root");
	must(sethostname("floor", 5) == 0, "host name");
	must(seal_box(false, false, 0, &e) == 0 && seal_final(&e) == 0, e.text);
	/* Everybody's first three, the socket, and nothing else. */
	for (int i = 0; i < 3; i++) {
		fd = open("/dev/null", O_RDWR);
		must(fd >= 0 && dup2(fd, i) == i, "/dev/null");
		if (fd > 2)
			close(fd);
	}
	must(dup2(listener, 3) == 3, "the socket");
	execve(program, argv, env);
	die(program);
}

static void join(const char *dir, pid_t pid)
{
	char path[600], text[32];

	if (!dir[0])
		return;
	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	snprintf(text, sizeof(text), "%ld", (long)pid);
	write_text(path, text);
}

static void start(struct box *b, unsigned n, const char *scratch, const char *program, bool keep_nothing)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
	} a = { .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWTIME | CLONE_PIDFD, .exit_signal = SIGCHLD };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char group2[400], group_m[400], group_p[400], path[600], map[64];
	int g2, gm, gp, sv[2], listener, pidfd = -1, userns, lower, box, dir;

	snprintf(b->dir, sizeof(b->dir), "%s/%u", scratch, n);
	must(mkdir(b->dir, 0755) == 0, b->dir);
	snprintf(path, sizeof(path), "%s/upper", b->dir);
	must(mkdir(path, 0755) == 0, path);
	snprintf(path, sizeof(path), "%s/work", b->dir);
	must(mkdir(path, 0755) == 0, path);
	snprintf(path, sizeof(path), "%s/stage", b->dir);
	must(mkdir(path, 0755) == 0, path);
	dir = open(b->dir, O_PATH | O_CLOEXEC);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/sock", dir);
	must(listener >= 0 && bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(listener, 16) == 0, "socket");
	close(dir);

	g2 = group_make(v2_dir, n, NULL, NULL, group2, sizeof(group2));
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) == 0, "socket pair");
	if (g2 >= 0) {
		a.flags |= INTO_CGROUP;
		a.cgroup = (uint64_t)g2;
	}
	a.pidfd = (uint64_t)(uintptr_t)&pidfd;
	b->pid = (pid_t)syscall(SYS_clone3, &a, sizeof(a));
	must(b->pid >= 0, "clone3");
	if (b->pid == 0) {
		close(sv[0]);
		child(sv[1], listener, path, program);
	}
	close(sv[1]);
	gm = group_make(memory_dir, n, "memory.limit_in_bytes", "8589934592", group_m, sizeof(group_m));
	gp = group_make(pids_dir, n, "pids.max", "2048", group_p, sizeof(group_p));
	join(group_m, b->pid);
	join(group_p, b->pid);
	snprintf(map, sizeof(map), "0 %u %u\n", 1000000000u + n * IDS, IDS);
	snprintf(path, sizeof(path), "/proc/%ld/uid_map", (long)b->pid);
	write_text(path, map);
	snprintf(path, sizeof(path), "/proc/%ld/gid_map", (long)b->pid);
	write_text(path, map);
	must(write(sv[0], "m", 1) == 1, "the maps");
	snprintf(path, sizeof(path), "/proc/%ld/ns/user", (long)b->pid);
	userns = open(path, O_RDONLY | O_CLOEXEC);
	lower = copy_shifted(root, userns);
	box = copy_shifted(b->dir, userns);
	dir = overlay(lower, box, keep_nothing);
	must(pass_fd(sv[0], dir) == 0, "passing the root");
	close(dir);
	close(lower);
	close(box);
	close(userns);
	/* The end of the other side: the program runs, unless a byte comes first. */
	must(read(sv[0], map, 1) == 0, "a box");
	close(sv[0]);
	close(listener);
	close(g2);
	close(gm);
	close(gp);
	b->fds[0] = pidfd;
}

static void end(struct box *b, unsigned n, bool kill_it)
{
	const char *const dirs[] = { v2_dir, memory_dir, pids_dir };
	int status;

	if (kill_it)
		kill(b->pid, SIGKILL);
	must(waitpid(b->pid, &status, 0) == b->pid && (kill_it || status == 0), "the box's command");
	close(b->fds[0]);
	for (size_t i = 0; i < 3; i++) {
		char path[600];

		if (!dirs[i][0])
			continue;
		snprintf(path, sizeof(path), "%s/floor-%ld-%u", dirs[i], (long)getpid(), n);
		for (int tries = 0; rmdir(path) < 0 && errno == EBUSY && tries < 1000; tries++)
			usleep(1000);
	}
}

/* "work" holds a directory of the kernel's. */
static void clear(const struct box *b)
{
	static const char *const below[] = { "work/work/incompat/volatile", "work/work/incompat", "work/work", "work/index", "work",
					     "upper", "stage", "sock", "" };

	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		char path[600];

		snprintf(path, sizeof(path), "%s/%s", b->dir, below[i]);
		if (rmdir(path) < 0 && errno == ENOTDIR)
			(void)unlink(path);
	}
}

int main(int argc, char **argv)
{
	unsigned n = 1;
	struct box *boxes;
	char c;

	if (argc == 4 && strcmp(argv[1], "once") == 0) {
		struct box b = { 0 };
		char scratch[300];

		find_groups();
		root = argv[2];
		snprintf(scratch, sizeof(scratch), "%s/%ld", argv[3], (long)getpid());
		must(mkdir(scratch, 0755) == 0, scratch);
		start(&b, 1, scratch, "/bin/true", true);
		end(&b, 1, false);
		clear(&b);
		return rmdir(scratch) != 0;
	}
	if (argc != 5 || strcmp(argv[1], "idle") != 0) {
		fprintf(stderr, "usage: floor once ROOT SCRATCH | floor idle N ROOT SCRATCH\n");
		return 2;
	}
	n = (unsigned)strtoul(argv[2], NULL, 10);
	root = argv[3];
	boxes = calloc(n, sizeof(*boxes));
	must(boxes && n, "memory");
	find_groups();
	for (unsigned i = 0; i < n; i++)
		start(&boxes[i], i, argv[4], "/bin/tiny-pause", false);
	puts("ready");
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	for (unsigned i = 0; i < n; i++)
		end(&boxes[i], i, true);
	for (unsigned i = 0; i < n; i++)
		clear(&boxes[i]);
	free(boxes);
	return 0;
}
