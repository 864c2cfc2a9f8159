/* SPDX-License-Identifier: Apache-2.0 */
#include "test_box_live.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "lib/leak.h"

static const char passwd[] =
	"root:x:0:0:root:/root:/bin/sh\n"
	"0x0:x:0:0:a number as a name:/root:/bin/sh\n"
	"2000:x:0:0:a number as a name:/root:/bin/sh\n"
	"agent:x:1000:1000:Agent:/home/agent:/bin/sh\n"
	"nohome:x:1001:1001::/no/such/place:/bin/sh\n";
static const char group[] = "root:x:0:\nagent:x:1000:\nextra:x:1100:agent,other\nmore:x:1101:other,agent\nnot:x:1102:xagent\n";

static void put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		_exit(100);
	(void)close(fd);
}

static void must(bool ok, int n)
{
	if (!ok) {
		perror("box of the test");
		_exit(n);
	}
}

static void bind_dev(const char *name)
{
	char from[64], to[64];

	(void)snprintf(from, sizeof(from), "/dev/%s", name);
	(void)snprintf(to, sizeof(to), "dev/%s", name);
	(void)close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
	must(mount(from, to, NULL, MS_BIND, NULL) == 0, 101);
}

static void make_root(const char *dir)
{
	static const char *const dirs[] = { "usr", "proc", "dev", "etc", "tmp", "root", "home", "home/agent" };
	static const char *const links[] = { "bin", "lib", "lib64", "sbin" };

	(void)umask(0);
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, 102);
	must(mount("cubby-test", dir, "tmpfs", 0, "mode=755") == 0, 103);
	must(chdir(dir) == 0, 104);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		must(mkdir(dirs[i], i == 4 ? 01777 : 0755) == 0, 105);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		char to[32];

		(void)snprintf(to, sizeof(to), "usr/%s", links[i]);
		must(symlink(to, links[i]) == 0, 106);
	}
	must(mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL) == 0, 107);
	must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, 108);
	bind_dev("null");
	bind_dev("zero");
	bind_dev("full");
	bind_dev("tty");
	must(mkdir("dev/pts", 0755) == 0, 109);
	must(mount("devpts", "dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620") == 0, 110);
	must(symlink("pts/ptmx", "dev/ptmx") == 0 && symlink("/proc/self/fd", "dev/fd") == 0 &&
	     symlink("/proc/self/fd/1", "dev/stdout") == 0, 111);
	put_file("etc/passwd", passwd);
	put_file("etc/group", group);
	(void)chown("home/agent", 1000, 1000);
	must(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0, 112);
}

struct plan {
	const char *dir, *arg;
	int go, init_fd, listen_fd, ready_fd;
};

static int box_main(void *p)
{
	const struct plan *plan = p;
	char a[32], b[32], c;
	char *const argv[] = { (char *)"cubby-init", a, b, (char *)plan->arg, NULL };
	char *const env[] = { (char *)"ASAN_OPTIONS=detect_leaks=0", NULL };

	must(read(plan->go, &c, 1) == 1, 120);
	must(setgid(0) == 0 && setuid(0) == 0, 121);
	/* A test that dies takes its box along. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	make_root(plan->dir);
	(void)snprintf(a, sizeof(a), "--listen=%d", plan->listen_fd);
	(void)snprintf(b, sizeof(b), "--ready=%d", plan->ready_fd);
	(void)fcntl(plan->listen_fd, F_SETFD, 0);
	(void)fcntl(plan->ready_fd, F_SETFD, 0);
	(void)syscall(SYS_execveat, plan->init_fd, "", argv, env, AT_EMPTY_PATH);
	must(false, 122);
	return 0;
}

static bool write_map(pid_t pid, const char *file, const char *text)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return file_write(AT_FDCWD, path, text) == 0;
}

static int open_init(void)
{
	char self[PATH_MAX], path[PATH_MAX + 32];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int fd;

	assert_true(n > 0);
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	(void)snprintf(path, sizeof(path), "%s/../../src/prog/cubby-init", self);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s: %s (build it first)", path, strerror(errno));
	return fd;
}

static int listen_at(const char *dir)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/init.sock", dir);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 4096), 0);
	return fd;
}

void live_start(struct live *l, const char *arg)
{
	static char stack[65536] __attribute__((aligned(64)));
	struct plan plan = { .arg = arg };
	char map[64], answer[1100] = "";
	int go[2], ready[2];
	ssize_t n;

	memset(l, 0, sizeof(*l));
	(void)snprintf(l->dir, sizeof(l->dir), "%s", leak_dir());
	plan.dir = l->dir;
	plan.init_fd = open_init();
	plan.listen_fd = listen_at(l->dir);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	plan.go = go[0];
	plan.ready_fd = ready[1];
	l->pid = clone(box_main, stack + sizeof(stack), CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS |
		       CLONE_NEWIPC | SIGCHLD, &plan);
	(void)close(plan.listen_fd);
	(void)close(plan.init_fd);
	(void)close(go[0]);
	(void)close(ready[1]);
	if (l->pid < 0) {
		(void)close(go[1]);
		(void)close(ready[0]);
		skip_because("no namespaces: %s", strerror(errno));
	}
	/* With the rights for it the box has many users, else one. */
	l->ids = geteuid() == 0 && write_map(l->pid, "uid_map", "0 0 65536\n");
	if (l->ids) {
		assert_true(write_map(l->pid, "gid_map", "0 0 65536\n"));
	} else {
		(void)snprintf(map, sizeof(map), "0 %u 1\n", geteuid());
		assert_true(write_map(l->pid, "uid_map", map));
		assert_true(write_map(l->pid, "setgroups", "deny"));
		(void)snprintf(map, sizeof(map), "0 %u 1\n", getegid());
		assert_true(write_map(l->pid, "gid_map", map));
	}
	assert_int_equal(write(go[1], "g", 1), 1);
	(void)close(go[1]);
	n = fd_read_small(ready[0], answer, sizeof(answer));
	(void)close(ready[0]);
	if (n != 1 || answer[0] != 'R') {
		int status = 0;

		(void)waitpid(l->pid, &status, 0);
		fail_msg("init did not start: '%s' (status %x)", answer, (unsigned)status);
	}
}

int live_connect(const struct live *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/init.sock", l->dir);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

int live_stop(struct live *l, bool force)
{
	struct err e = ERR_INIT;
	char path[160];
	int status = -1, fd;

	if (force) {
		(void)kill(l->pid, SIGKILL);
	} else {
		fd = live_connect(l);
		assert_int_equal(call_stop(fd, 3000, &e), 0);
		(void)close(fd);
	}
	assert_int_equal(waitpid(l->pid, &status, 0), l->pid);
	(void)snprintf(path, sizeof(path), "%s/init.sock", l->dir);
	(void)unlink(path);
	return status;
}

/* A file in memory: no test has to read a pipe while the call runs. */
static int memory(const char *text)
{
	int fd = memfd_create("cubby-test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	if (text) {
		assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	}
	return fd;
}

static void collect(int fd, char *to, size_t room)
{
	ssize_t n = pread(fd, to, room - 1, 0);

	assert_true(n >= 0);
	to[n] = '\0';
	(void)close(fd);
}

void live_argv(const struct live *l, struct live_run *run, char *const *argv)
{
	struct call_io io = { .in = FD_NONE, .out = memory(NULL), .err = memory(NULL) };
	int sock = live_connect(l);

	if (run->input)
		io.in = memory(run->input);
	run->x.argv = argv;
	if (!run->x.umask)
		run->x.umask = 022;
	memset(&run->exit, 0, sizeof(run->exit));
	memset(&run->e, 0, sizeof(run->e));
	run->r = call_run(sock, &run->x, &io, &run->exit, &run->e);
	(void)close(sock);
	if (io.in >= 0)
		(void)close(io.in);
	collect(io.out, run->out, sizeof(run->out));
	collect(io.err, run->err, sizeof(run->err));
}

void live_sh(const struct live *l, struct live_run *run, const char *script)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };

	live_argv(l, run, argv);
}
