/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

/*
 * The child shares our memory until it has exec'd (CLONE_VM), while we sleep (CLONE_VFORK): nothing is copied, which
 * is what makes starting a command cheap, and it tells its failure by writing it here. So between the two it may
 * only make system calls: no allocation, no libc function that keeps state. setresuid() and friends of libc also
 * have to tell other threads, hence the bare calls.
 */
enum step {
	STEP_NONE, STEP_SESSION, STEP_NULL, STEP_STDIO, STEP_TTY, STEP_GROUPS, STEP_IDS, STEP_CWD, STEP_CLOSE, STEP_EXEC,
};

struct child {
	const struct spawn *s;
	const char *path;	/* of env, or NULL */
	volatile enum step failed;
	volatile int code;	/* positive errno */
	char file[4096 + 256];
	char stack[32768] __attribute__((aligned(64)));
};

static int give_up(struct child *c, enum step step)
{
	c->code = errno;
	c->failed = step;
	return -1;
}

static int null_device(void)
{
	struct stat st;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		errno = ENODEV;
		return -1;
	}
	return fd;
}

static int set_stdio(struct child *c)
{
	const struct spawn *s = c->s;
	int null = -1;

	for (int i = 0; i < 3; i++) {
		int fd = s->stdio[i];

		if (fd < 0) {
			if (null < 0)
				null = null_device();
			if (null < 0)
				return give_up(c, STEP_NULL);
			fd = null;
		}
		if (dup2(fd, i) < 0)
			return give_up(c, STEP_STDIO);
	}
	if (s->tty && ioctl(0, TIOCSCTTY, 0) < 0)
		return give_up(c, STEP_TTY);
	return 0;
}

static int set_ids(struct child *c)
{
	const struct user *u = c->s->user;

	/*
	 * In a user namespace with one id only, setgroups(2) is denied (user_namespaces(7)) and root is all there is:
	 * what groups PID 1 has are then those of the host's user who made the box, and stay.
	 */
	if (syscall(SYS_setgroups, (size_t)u->ngroups, u->groups) < 0 && (errno != EPERM || u->uid || u->gid))
		return give_up(c, STEP_GROUPS);
	if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 || syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return give_up(c, STEP_IDS);
	return 0;
}

int open_dir(const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_DIRECTORY | O_CLOEXEC), .resolve = RESOLVE_NO_MAGICLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

	/*
	 * A box that must not make set-id files has no openat2(): its filter can't see the mode. What a handler has open are
	 * sockets and pipes of its own, so a link of /proc/self/fd leads to no directory; those of others are named here.
	 */
	if (fd < 0 && errno == ENOSYS) {
		if (strncmp(path, "/proc/", 6) == 0)
			return -ELOOP;
		fd = open(path, flags | O_DIRECTORY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

static int enter(const char *path)
{
	int fd = open_dir(path, O_PATH);
	int r;

	if (fd < 0) {
		errno = -fd;
		return -1;
	}
	r = fchdir(fd);
	(void)close(fd);
	return r;
}

static int set_cwd(struct child *c)
{
	if (enter(c->s->cwd) == 0)
		return 0;
	if (c->s->cwd_home && enter("/") == 0)
		return 0;
	return give_up(c, STEP_CWD);
}

/* As execvp(3): a name without '/' is looked for in PATH, what can't be executed is passed over but remembered. */
static void run(struct child *c)
{
	char *const *argv = c->s->argv;
	const char *name = argv[0], *p = c->path;
	size_t n = strlen(name);
	int seen = ENOENT;

	if (strchr(name, '/') || !n || !p) {
		(void)execve(name, argv, c->s->env);
		return;
	}
	for (;;) {
		const char *end = strchrnul(p, ':');
		size_t dir = (size_t)(end - p);

		if (dir + 1 + n < sizeof(c->file)) {
			memcpy(c->file, p, dir);
			if (dir)
				c->file[dir++] = '/';
			memcpy(c->file + dir, name, n + 1);
			(void)execve(c->file, argv, c->s->env);
			if (errno == EACCES)
				seen = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ENAMETOOLONG)
				return;
		}
		if (!*end)
			break;
		p = end + 1;
	}
	errno = seen;
}

static int child_main(void *arg)
{
	struct child *c = arg;
	sigset_t none;

	if (setsid() < 0)
		return give_up(c, STEP_SESSION);
	if (set_stdio(c) < 0)
		return -1;
	/* With no right of root to lose yet: the bounding set and the filter are PID 1's, and inherited. */
	if (set_ids(c) < 0 || set_cwd(c) < 0)
		return -1;
	(void)umask((mode_t)c->s->umask);
	if (syscall(SYS_close_range, 3u, ~0u, 0u) < 0)
		return give_up(c, STEP_CLOSE);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	run(c);
	return give_up(c, STEP_EXEC);
}

static const char *path_of(char *const *env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return NULL;
}

static int tell(const struct child *c, bool *ret_not_run, struct err *e)
{
	const struct spawn *s = c->s;
	int code = -c->code;

	*ret_not_run = c->failed == STEP_EXEC;
	switch (c->failed) {
	case STEP_NULL:
		if (c->code == ENODEV)
			return err_why(e, WHY_HOSTILE, code, "the box's /dev/null is not the null device");
		return err_set(e, code, "cannot open the box's /dev/null");
	case STEP_TTY:
		return err_set(e, code, "cannot make the terminal the command's own");
	case STEP_GROUPS:
	case STEP_IDS:
		return err_set(e, code, "cannot become user %u, group %u of the box%s", s->user->uid, s->user->gid,
			       c->code == EINVAL ? " (it has no such id)" :
			       c->code == EPERM ? " (it may have one user only, 0: see 'cubby doctor')" : "");
	case STEP_CWD:
		return err_set(e, code, "cannot enter the working directory '%.200s'%s", s->cwd,
			       c->code == ELOOP ? " (it may not lead through a link of /proc)" : "");
	case STEP_EXEC:
		if (c->code == ENOENT && strchr(s->argv[0], '/') && faccessat(AT_FDCWD, s->argv[0], F_OK, 0) == 0)
			return err_why(e, WHY_NOT_FOUND, code, "cannot run '%.150s': its interpreter does not exist",
				       s->argv[0]);
		if (c->code == ENOENT)
			return err_why(e, WHY_NOT_FOUND, code, "cannot run '%.150s': %s", s->argv[0],
				       strchr(s->argv[0], '/') ? "no such file" : "not found in PATH");
		return err_set(e, code, "cannot run '%.150s'", s->argv[0]);
	default:
		return err_set(e, code, "cannot prepare the command's process");
	}
}

pid_t spawn(const struct spawn *s, bool *ret_not_run, struct err *e)
{
	static struct child c;
	pid_t pid;

	*ret_not_run = false;
	c.s = s;
	c.path = path_of(s->env);
	c.failed = STEP_NONE;
	pid = clone(child_main, c.stack + sizeof(c.stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
	if (pid < 0)
		return err_set(e, -errno, "the box cannot make another process");
	if (c.failed != STEP_NONE) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		return tell(&c, ret_not_run, e);
	}
	return pid;
}
