/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Using things up. Each takes as much as it is told to and no more, and reports how much it got: "through" when all of it,
 * "refused" with the errno and the count otherwise. Run them in a box, or in a group with limits.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drill/probe.h"

/* 1 MiB at a time, touched, so that the kill comes when the limit is reached. */
static int alloc(int argc, char **argv)
{
	long long want = number(argv[0]), got = 0, hold = argc > 1 ? number(argv[1]) : 0;
	const size_t step = 1 << 20;

	while (got < want) {
		char *p = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return refused(errno, "after %lld bytes", got);
		for (size_t i = 0; i < step; i += 4096)
			p[i] = 1;
		got += (long long)step;
	}
	through("%lld bytes", got);
	fflush(stdout);
	if (hold)
		sleep((unsigned)hold);
	return THROUGH;
}

static int fill(int argc, char **argv)
{
	static char block[1 << 20];
	long long want = number(argv[1]), got = 0;
	int fd = strcmp(argv[0], "memfd") == 0 ? memfd_create("probe", MFD_CLOEXEC) :
						 open(argv[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	(void)argc;
	memset(block, 'x', sizeof(block));
	if (fd < 0)
		return refused(errno, "%s", argv[0]);
	while (got < want) {
		size_t n = want - got < (long long)sizeof(block) ? (size_t)(want - got) : sizeof(block);
		ssize_t r = write(fd, block, n);

		if (r < 0)
			return refused(errno, "after %lld bytes", got);
		got += r;
	}
	return through("%lld bytes", got);
}

/* N children that only wait; ended before we end. */
static int do_fork(int argc, char **argv)
{
	long long want = number(argv[0]), got = 0, hold = argc > 1 ? number(argv[1]) : 0;
	pid_t group = 0;
	int e = 0;

	for (; got < want; got++) {
		pid_t pid = fork();

		if (pid < 0) {
			e = errno;
			break;
		}
		if (pid == 0) {
			pause();
			_exit(0);
		}
		if (group == 0)
			group = pid;
		setpgid(pid, group);
	}
	if (hold) {
		printf("%lld children\n", got);
		fflush(stdout);
		sleep((unsigned)hold);
	}
	if (group)
		kill(-group, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	return got == want ? through("%lld children", got) : refused(e, "after %lld children", got);
}

/* A fork bomb: every process makes more of them until told by the limit; ends by itself after SECONDS. */
static int bomb(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 0 ? number(argv[0]) : 5);
	bool hit = false;

	while (time(NULL) < end) {
		if (fork() < 0) {
			hit = true;
			usleep(1000);
		}
	}
	return hit ? refused(EAGAIN, "fork") : through("no limit met");
}

static int hold_open(int argc, char **argv)
{
	long long want = number(argv[0]), got = 0;

	for (; got < want; got++) {
		if (open("/", O_PATH | O_CLOEXEC) < 0)
			break;
	}
	if (got < want)
		return refused(errno, "after %lld descriptors", got);
	through("%lld descriptors", got);
	fflush(stdout);
	if (argc > 1)
		sleep((unsigned)number(argv[1]));
	return THROUGH;
}

/* Orphans that end at once: PID 1 has to reap them. */
static int zombies(int argc, char **argv)
{
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return refused(errno, "after %lld", i);
		if (pid == 0) {
			/* The grandchild outlives us and becomes init's. */
			if (fork() == 0)
				usleep(1000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return through("%lld orphans", want);
}

static int files(int argc, char **argv)
{
	long long want = number(argv[1]);
	int dir = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)argc;
	if (dir < 0)
		return refused(errno, "%s", argv[0]);
	for (long long i = 0; i < want; i++) {
		char name[32];
		int fd;

		snprintf(name, sizeof(name), "f%lld", i);
		fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return refused(errno, "after %lld files", i);
		close(fd);
	}
	return through("%lld files", want);
}

static int inotify(int argc, char **argv)
{
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		if (inotify_init1(IN_CLOEXEC) < 0)
			return refused(errno, "after %lld instances", i);
	}
	return through("%lld instances", want);
}

/* Full socket buffers: kernel memory. */
static int sockets(int argc, char **argv)
{
	static char block[65536];
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		int sv[2], size = 1 << 20;

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) < 0)
			return refused(errno, "after %lld pairs", i);
		setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		while (write(sv[0], block, sizeof(block)) > 0)
			;
	}
	return through("%lld pairs", want);
}

/* Sparse touches: many page tables for few pages. */
static int pagetables(int argc, char **argv)
{
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		char *p = mmap(NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return refused(errno, "after %lld tables", i);
		(void)*(volatile char *)p;
	}
	return through("%lld tables", want);
}

static int sysv(int argc, char **argv)
{
	long long want = argc > 1 ? number(argv[1]) : 1;

	for (long long i = 0; i < want; i++) {
		int r = strcmp(argv[0], "msg") == 0 ? msgget(IPC_PRIVATE, IPC_CREAT | 0600) :
						      shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);

		if (r < 0)
			return refused(errno, "after %lld objects", i);
	}
	return through("%lld objects", want);
}

static int mounts(int argc, char **argv)
{
	long long want = number(argv[1]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		if (mount(argv[0], argv[0], NULL, MS_BIND, NULL) < 0)
			return refused(errno, "after %lld mounts", i);
	}
	return through("%lld mounts", want);
}

/* Nested: each level makes one more and goes in. */
static int namespaces(int argc, char **argv)
{
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		if (unshare(CLONE_NEWUSER) < 0)
			return refused(errno, "after %lld namespaces", i);
	}
	return through("%lld namespaces", want);
}

static int cgroups(int argc, char **argv)
{
	long long want = number(argv[1]);
	int dir = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		int next = dir < 0 ? -1 : mkdirat(dir, "probe", 0755) < 0 ? -1 : openat(dir, "probe", O_RDONLY | O_DIRECTORY);

		if (next < 0)
			return refused(errno, "after %lld groups", i);
		close(dir);
		dir = next;
	}
	return through("%lld groups", want);
}

static int busy(int argc, char **argv)
{
	long long workers = number(argv[0]);
	time_t end = time(NULL) + number(argv[1]);
	volatile uint64_t n = 0;

	(void)argc;
	for (long long i = 1; i < workers; i++) {
		if (fork() == 0)
			break;
	}
	while (time(NULL) < end)
		n = n + 1;
	return THROUGH;
}

/* fork and wait as fast as it goes: N process ids used. */
static int wrap_pids(int argc, char **argv)
{
	long long want = number(argv[0]);

	(void)argc;
	for (long long i = 0; i < want; i++) {
		pid_t pid = (pid_t)syscall(SYS_fork);

		if (pid == 0)
			_exit(0);
		if (pid < 0)
			return refused(errno, "after %lld", i);
		waitpid(pid, NULL, 0);
	}
	return through("%lld process ids", want);
}

static int lock(int argc, char **argv)
{
	int fd = open(argv[0], O_RDWR | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return refused(errno, "%s", argv[0]);
	through("%s", argv[0]);
	fflush(stdout);
	if (argc > 1)
		sleep((unsigned)number(argv[1]));
	return THROUGH;
}

static int signal_flood(int argc, char **argv)
{
	pid_t pid = (pid_t)number(argv[0]);
	long long want = number(argv[1]);

	(void)argc;
	signal(SIGTERM, SIG_IGN);
	for (long long i = 0; i < want; i++) {
		for (int sig = 1; sig < 65; sig++)
			(void)kill(pid, sig);
	}
	return through("%lld rounds", want);
}

/* Writes BYTES to stdout, in blocks. */
static int pour(int argc, char **argv)
{
	static char block[65536];
	long long left = number(argv[0]);

	(void)argc;
	memset(block, 'x', sizeof(block));
	while (left > 0) {
		ssize_t n = write(1, block, left < (long long)sizeof(block) ? (size_t)left : sizeof(block));

		if (n < 0)
			return REFUSED;
		left -= n;
	}
	return THROUGH;
}

/* Reads stdin to its end; prints how many bytes. */
static int drink(int argc, char **argv)
{
	static char block[65536];
	unsigned long long total = 0;
	ssize_t n;

	(void)argc;
	(void)argv;
	while ((n = read(0, block, sizeof(block))) > 0)
		total += (unsigned long long)n;
	printf("%llu\n", total);
	return n < 0 ? REFUSED : THROUGH;
}

static _Noreturn int wait_forever(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (;;)
		pause();
}

/* Ignores what asks it to end; a second process leaves the group and the session. */
static _Noreturn int stubborn(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_IGN);
	if (fork() == 0) {
		setsid();
		if (fork() != 0)
			_exit(0);
	}
	printf("ready\n");
	fflush(stdout);
	for (;;)
		sleep(1000);
}

static int end_by(int argc, char **argv)
{
	(void)argc;
	signal((int)number(argv[0]), SIG_DFL);
	raise((int)number(argv[0]));
	return USAGE;
}

const struct verb verbs_load[] = {
	{ "alloc", "BYTES [SECONDS]", 1, 2, alloc },
	{ "fill", "FILE|memfd BYTES", 2, 2, fill },
	{ "fork", "N [SECONDS]", 1, 2, do_fork },
	{ "bomb", "[SECONDS]", 0, 1, bomb },
	{ "hold-open", "N [SECONDS]", 1, 2, hold_open },
	{ "zombies", "N", 1, 1, zombies },
	{ "files", "DIR N", 2, 2, files },
	{ "inotify", "N", 1, 1, inotify },
	{ "socket-buffers", "N", 1, 1, sockets },
	{ "page-tables", "N", 1, 1, pagetables },
	{ "sysv", "msg|shm [N]", 1, 2, sysv },
	{ "many-mounts", "DIR N", 2, 2, mounts },
	{ "many-userns", "N", 1, 1, namespaces },
	{ "many-cgroups", "DIR N", 2, 2, cgroups },
	{ "busy", "WORKERS SECONDS", 2, 2, busy },
	{ "wrap-pids", "N", 1, 1, wrap_pids },
	{ "lock", "FILE [SECONDS]", 1, 2, lock },
	{ "signal-flood", "PID ROUNDS", 2, 2, signal_flood },
	{ "pour", "BYTES", 1, 1, pour },
	{ "drink", "", 0, 0, drink },
	{ "wait", "", 0, 0, wait_forever },
	{ "stubborn", "", 0, 0, stubborn },
	{ "end-by", "SIGNAL", 1, 1, end_by },
	{ 0 },
};
