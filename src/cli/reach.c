/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way to the daemon. Nobody starts it by hand: the first command that finds nobody listening does. Two commands
 * that start it at once are no problem: the daemon takes a lock, the loser leaves, and both connect to the winner.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SYSTEM_RUN_DIR "/run/cubby"
#define START_MS 20000	/* a daemon that reconciles many boxes takes its time */
#define READY_FD 3

extern char **environ;

static const char *setting(const struct args *a, enum opt opt, const char *variable)
{
	const char *s = a->val[opt];

	if (!s)
		s = getenv(variable);
	return s && *s ? s : NULL;
}

/*
 * The user's own run directory. It may be in /tmp, where anybody could have made it first; so it is made here, with the
 * mode that is asked for afterwards.
 */
static int own_run_dir(bool make, char *ret, size_t n, struct err *e)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	mode_t mask;
	int k, r;

	if (base && base[0] == '/')
		k = snprintf(ret, n, "%s/cubby", base);
	else
		k = snprintf(ret, n, "/tmp/cubby-%u", (unsigned)geteuid());
	if (k < 0 || (size_t)k >= n)
		return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "XDG_RUNTIME_DIR is too long");
	mask = umask(077);
	r = make && mkdir(ret, 0700) < 0 && errno != EEXIST ? -errno : 0;
	(void)umask(mask);
	if (r < 0)
		return err_set(e, r, "cannot make the run directory %s", ret);
	if (lstat(ret, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, -errno, "cannot look at %s", ret);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return err_why(e, WHY_DENIED, -EPERM,
			       "%s is not a directory of yours that only you can enter: remove it, or set CUBBY_RUN_DIR", ret);
	return 0;
}

/* Returns 0, -ENOENT or -ECONNREFUSED when nobody listens there, or another negative errno. */
static int connect_in(const char *run_dir, int *ret_fd, struct err *e)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	OWN_FD fd = FD_NONE;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int n = snprintf(to.sun_path, sizeof(to.sun_path), "%s/cubbyd.sock", run_dir);

	if (n < 0 || (size_t)n >= sizeof(to.sun_path))
		return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "the run directory's path is too long (most: %zu bytes): %s",
			       sizeof(to.sun_path) - sizeof("/cubbyd.sock"), run_dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, -errno, "cannot make a socket");
	while (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		if (errno != EINTR)
			return err_set(e, -errno, "cannot reach the daemon at %s", to.sun_path);
	}
	/* Whoever listens gets descriptors of ours. */
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return err_set(e, -errno, "cannot tell who listens at %s", to.sun_path);
	if (peer.uid != 0 && peer.uid != geteuid())
		return err_why(e, WHY_DENIED, -EPERM, "the daemon at %s belongs to user %u, neither root nor you", to.sun_path,
			       (unsigned)peer.uid);
	*ret_fd = fd_take(&fd);
	return 0;
}

static bool nobody_there(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED || r == -ENOTDIR;
}

/* The program beside this one, else where the build put it. */
static int find_daemon(char *ret, size_t n, struct err *e)
{
	char self[4096];
	ssize_t k = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (k > 0) {
		self[k] = '\0';
		slash = strrchr(self, '/');
		if (slash) {
			*slash = '\0';
			if (snprintf(ret, n, "%s/cubbyd", self) < (int)n && access(ret, X_OK) == 0)
				return 0;
		}
	}
	(void)snprintf(ret, n, "%s/cubbyd", CUBBY_LIBEXEC);
	if (access(ret, X_OK) == 0)
		return 0;
	return err_why(e, WHY_UNREACHABLE, -ENOENT, "no daemon runs, and the program cubbyd is neither beside this one nor in %s",
		       CUBBY_LIBEXEC);
}

/*
 * The daemon outlives the caller and belongs to nobody's session: of the caller's environment it gets what names
 * directories and the way out to package servers, no keys. Strings are borrowed.
 */
static size_t daemon_environ(char **ret, size_t room)
{
	static const char *const kept[] = {
		"HOME=", "USER=", "LOGNAME=", "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "XDG_RUNTIME_DIR=", "CUBBY_", "TMPDIR=",
		"http_proxy=", "https_proxy=", "no_proxy=", "HTTP_PROXY=", "HTTPS_PROXY=", "NO_PROXY=",
		"all_proxy=", "ALL_PROXY=", "SSL_CERT_FILE=",
		"ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=",
	};
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	size_t n = 0;

	ret[n++] = path;
	for (char **v = environ; v && *v && n + 1 < room; v++)
		for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
			if (strncmp(*v, kept[i], strlen(kept[i])) == 0) {
				ret[n++] = *v;
				break;
			}
	ret[n] = NULL;
	return n;
}

/* In the grandchild. ready and complain are the writing ends; both may have any number. */
_Noreturn static void become_daemon(const char *path, char **argv, char **envp, int ready, int complain)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	for (int s = 1; s < 32; s++)
		(void)signal(s, SIG_DFL);
	(void)umask(022);
	/* Above the four first, so that putting them in place overwrites none of them. */
	ready = fcntl(ready, F_DUPFD_CLOEXEC, 10);
	complain = fcntl(complain, F_DUPFD_CLOEXEC, 10);
	if (null < 0 || ready < 0 || complain < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(complain, 2) < 0 ||
	    dup2(ready, READY_FD) < 0 || chdir("/") < 0)
		_exit(127);
	/* No descriptor of the caller's goes along. */
	if (syscall(SYS_close_range, READY_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		_exit(127);
	(void)execve(path, argv, envp);
	dprintf(2, "cannot run %s: %s\n", path, strerror(errno));
	_exit(127);
}

static int spawn(const char *path, char **argv, char **envp, int ready, int complain, struct err *e)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return err_set(e, -errno, "cannot start the daemon");
	if (pid == 0) {
		(void)setsid();
		/* Twice, so that it is never a child of the caller, who may live long and not wait for it. */
		pid = fork();
		if (pid == 0)
			become_daemon(path, argv, envp, ready, complain);
		_exit(pid < 0 ? 1 : 0);
	}
	while (waitpid(pid, &status, 0) < 0) {
		if (errno == EINTR)
			continue;
		/* Our caller ignores SIGCHLD, and we with it: how the child ended is lost, and the pipe tells the rest (wait(2)). */
		if (errno == ECHILD)
			return 0;
		return err_set(e, -errno, "cannot start the daemon");
	}
	if (status != 0)
		return err_why(e, WHY_LIMIT, -EAGAIN, "cannot start the daemon: no process could be made");
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/*
 * Wait until the daemon says that it listens (one byte), or leaves (end of file). What it complains about is kept: it is
 * the only explanation. Returns 1, 0 when it left, or a negative errno.
 */
static int wait_ready(int ready, int complain, int64_t deadline, struct buf *said, struct err *e)
{
	struct pollfd p[2] = { { .fd = ready, .events = POLLIN }, { .fd = complain, .events = POLLIN } };
	char chunk[512];

	for (;;) {
		int64_t left = deadline - now_ms();
		ssize_t n;
		int r;

		if (left <= 0)
			return err_why(e, WHY_TIMEOUT, -ETIMEDOUT, "the daemon was started but is not ready after %d s%s%s",
				       START_MS / 1000, said->len ? "; it says: " : "", said->len ? said->data : "");
		r = poll(p, 2, (int)left);
		if (r < 0 && errno != EINTR)
			return err_set(e, -errno, "cannot wait for the daemon");
		if (r <= 0)
			continue;
		if (p[1].revents) {
			n = read(complain, chunk, sizeof(chunk));
			if (n > 0)
				(void)buf_put(said, chunk, (size_t)n);
			else if (n == 0 || errno != EINTR)
				p[1].fd = -1;
			continue;	/* everything said before the end is read before the end is seen */
		}
		if (p[0].revents) {
			n = read(ready, chunk, 1);
			if (n < 0 && errno == EINTR)
				continue;
			return n > 0;
		}
	}
}

/* "cubbyd: cannot …\n" becomes one line for a message. */
static const char *first_words(struct buf *said)
{
	size_t n = said->len;
	char *s = said->data;

	while (n > 0 && (s[n - 1] == '\n' || s[n - 1] == ' '))
		s[--n] = '\0';
	if (n > 600)
		s[600] = '\0';
	for (size_t i = 0; s && s[i]; i++)
		if (s[i] == '\n')
			s[i] = ' ';
	if (s && strncmp(s, "cubbyd: ", 8) == 0)
		s += 8;
	return s ? s : "";
}

static int start_daemon(const struct args *a, const char *run_dir, int *ret_fd, struct err *e)
{
	char path[4200], ready_text[16], *argv[12], *envp[128];
	const char *state = setting(a, OPT_STATE_DIR, "CUBBY_STATE_DIR");
	const char *config = setting(a, OPT_CONFIG, "CUBBY_CONFIG");
	OWN_BUF said = BUF_INIT(4096);
	int64_t deadline = now_ms() + START_MS;
	int ready[2], complain[2], n = 0, r;

	/* A file that is only where one might be need not exist; one that somebody names must. */
	if (a->val[OPT_CONFIG] && access(a->val[OPT_CONFIG], R_OK) < 0)
		return err_set(e, -errno, "--config: cannot read '%s'", a->val[OPT_CONFIG]);
	r = find_daemon(path, sizeof(path), e);
	if (r < 0)
		return r;
	(void)snprintf(ready_text, sizeof(ready_text), "%d", READY_FD);
	argv[n++] = path;
	argv[n++] = (char *)"--run-dir";
	argv[n++] = (char *)run_dir;
	if (state) {
		argv[n++] = (char *)"--state-dir";
		argv[n++] = (char *)state;
	}
	if (config) {
		argv[n++] = (char *)"--config";
		argv[n++] = (char *)config;
	}
	argv[n++] = (char *)"--ready-fd";
	argv[n++] = ready_text;
	argv[n] = NULL;
	(void)daemon_environ(envp, sizeof(envp) / sizeof(envp[0]));

	if (pipe2(ready, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot start the daemon");
	if (pipe2(complain, O_CLOEXEC) < 0) {
		fd_close(&ready[0]);
		fd_close(&ready[1]);
		return err_set(e, -errno, "cannot start the daemon");
	}
	r = spawn(path, argv, envp, ready[1], complain[1], e);
	fd_close(&ready[1]);
	fd_close(&complain[1]);
	if (r == 0)
		r = wait_ready(ready[0], complain[0], deadline, &said, e);
	fd_close(&ready[0]);
	fd_close(&complain[0]);
	if (r < 0)
		return r;
	/* It left: somebody else's daemon holds the lock and will listen in a moment, or it said why it can't. */
	for (;;) {
		struct timespec pause = { .tv_nsec = 2000000 };
		int gone = r == 0 && said.len > 0;

		if (connect_in(run_dir, ret_fd, e) == 0)
			return 0;
		if (!nobody_there(e->code))
			return e->code;
		if (gone || now_ms() > deadline)
			break;
		(void)nanosleep(&pause, NULL);
	}
	if (said.len > 0)
		return err_why(e, WHY_UNREACHABLE, -ECONNREFUSED, "the daemon does not start: %s", first_words(&said));
	return err_why(e, WHY_UNREACHABLE, -ECONNREFUSED, "the daemon was started, left without a word, and nobody listens in %s",
		       run_dir);
}

static int connect_or_start(struct cli *c, const char *run_dir, bool may_start, struct err *e)
{
	int r = connect_in(run_dir, &c->daemon, e);

	if (r == 0 || !nobody_there(r) || !may_start)
		return r;
	if (args_has(&c->args, O(NO_START)))
		return err_why(e, WHY_UNREACHABLE, -ECONNREFUSED, "no daemon runs in %s, and --no-start forbids to start one", run_dir);
	r = start_daemon(&c->args, run_dir, &c->daemon, e);
	/* One that was just started looks after what it was told to. */
	c->asked_dirs = c->asked_dirs || r == 0;
	return r;
}

/* A path from the command line goes to a daemon that stands in "/": make it absolute. */
static int absolute(const char *what, const char *s, char *ret, size_t n, struct err *e)
{
	char cwd[4096];
	int k;

	if (s[0] == '/')
		k = snprintf(ret, n, "%s", s);
	else if (getcwd(cwd, sizeof(cwd)))
		k = snprintf(ret, n, "%s/%s", cwd, s);
	else
		return err_set(e, -errno, "%s is relative, and the current directory can't be told", what);
	return k >= 0 && (size_t)k < n ? 0 : err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "%s is too long", what);
}

static int absolute_options(struct args *a, struct err *e)
{
	static char state[4096], config[4096];

	if (a->val[OPT_STATE_DIR] && a->val[OPT_STATE_DIR][0] != '/') {
		int r = absolute("--state-dir", a->val[OPT_STATE_DIR], state, sizeof(state), e);

		if (r < 0)
			return r;
		a->val[OPT_STATE_DIR] = state;
	}
	if (a->val[OPT_CONFIG] && a->val[OPT_CONFIG][0] != '/') {
		int r = absolute("--config", a->val[OPT_CONFIG], config, sizeof(config), e);

		if (r < 0)
			return r;
		a->val[OPT_CONFIG] = config;
	}
	return 0;
}

int reach(struct cli *c, struct err *e)
{
	char run_dir[4096];
	const char *said;
	int r;

	if (c->daemon >= 0)
		return 0;
	r = absolute_options(&c->args, e);
	if (r < 0)
		return r;
	said = setting(&c->args, OPT_RUN_DIR, "CUBBY_RUN_DIR");
	if (said) {
		r = absolute("--run-dir", said, run_dir, sizeof(run_dir), e);
		return r < 0 ? r : connect_or_start(c, run_dir, true, e);
	}
	if (geteuid() == 0)
		return connect_or_start(c, SYSTEM_RUN_DIR, true, e);
	if (!c->own) {
		r = connect_or_start(c, SYSTEM_RUN_DIR, false, e);
		if (r == 0)
			return 0;
		c->own = true;
	}
	r = own_run_dir(!args_has(&c->args, O(NO_START)), run_dir, sizeof(run_dir), e);
	return r < 0 ? r : connect_or_start(c, run_dir, true, e);
}
