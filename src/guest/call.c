/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest/kin.h"
#include "guest/serve.h"
#include "guest/spawn.h"
#include "guest/user.h"

/*
 * One command. The handler is a child subreaper, so whatever the command starts stays below it, and "everything of
 * this call" can be found and ended, until the command itself has ended in the ordinary way: then its background
 * processes are PID 1's, and the handler is gone.
 */

#define GRACE_MS 2000	/* between asking (TERM, or HUP at a hang-up) and KILL */
#define KILL_MS 10000	/* how long processes that fork all the time are chased */

static const char default_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct call {
	int conn;		/* FD_NONE after the client left */
	int sig_fd;
	int slave;		/* the terminal's, for BOX_RESIZE; or FD_NONE */
	pid_t pid;
	bool detach;
	bool ended;		/* the command itself */
	int status;
	bool childless;
	enum { RUNNING, HUNG_UP, TIMED_OUT } phase;
	uint64_t start_us, timeout_us, kill_us; /* the latter two absolute, 0: none */
	struct rusage usage;
	uint8_t in[64];		/* frames during a call are at most 12 bytes */
	size_t nin;
};

static uint64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Everything of this call, or its group where /proc can't be read. */
static void signal_all(const struct call *c, int sig)
{
	if (kin_signal(sig) < 0)
		(void)kill(-c->pid, sig);
}

static void hang_up(struct call *c)
{
	fd_close(&c->conn);
	if (c->detach || c->phase != RUNNING)
		return;
	c->phase = HUNG_UP;
	(void)kill(-c->pid, SIGHUP);
	(void)kill(-c->pid, SIGCONT);
	c->kill_us = now_us() + GRACE_MS * 1000;
}

static void time_out(struct call *c)
{
	c->phase = TIMED_OUT;
	c->timeout_us = 0;
	signal_all(c, SIGTERM);
	signal_all(c, SIGCONT);	/* a stopped process would not see it */
	c->kill_us = now_us() + GRACE_MS * 1000;
}

/* false: the peer broke the protocol. */
static bool one_frame(struct call *c, const struct box_frame *f)
{
	struct winsize ws = { 0 };
	uint32_t sig;

	switch (f->kind) {
	case BOX_SIGNAL:
		if (box_get_u32(f, &sig) < 0)
			return false;
		if (!c->ended)
			(void)kill(-c->pid, (int)sig);
		return true;
	case BOX_RESIZE:
		if (box_get_resize(f, &ws.ws_row, &ws.ws_col) < 0)
			return false;
		if (c->slave >= 0)
			(void)ioctl(c->slave, TIOCSWINSZ, &ws);
		return true;
	case BOX_HANGUP:
		return false;	/* the same as leaving */
	default:
		return false;
	}
}

static bool frames(struct call *c)
{
	struct box_frame f;
	ssize_t k;

	while ((k = box_peek(c->in, c->nin, &f, NULL)) > 0) {
		if (!one_frame(c, &f))
			return false;
		c->nin -= (size_t)k;
		memmove(c->in, c->in + k, c->nin);
	}
	/* A frame that is longer than the room is none that belongs here. */
	return k == 0 && c->nin < sizeof(c->in);
}

static void from_client(struct call *c)
{
	size_t nfds;
	ssize_t k;

	/* Descriptors have no business here: fd_recv() without room closes them and refuses. */
	k = fd_recv(c->conn, c->in + c->nin, sizeof(c->in) - c->nin, NULL, &nfds, MSG_DONTWAIT);
	if (k == -EAGAIN)
		return;
	if (k <= 0) {
		hang_up(c);
		return;
	}
	c->nin += (size_t)k;
	if (!frames(c))
		hang_up(c);
}

static void reap(struct call *c)
{
	struct signalfd_siginfo si[4];
	int status;
	pid_t pid;

	while (read(c->sig_fd, si, sizeof(si)) > 0)
		;
	for (;;) {
		struct rusage ru;

		pid = wait4(-1, &status, WNOHANG, &ru);
		if (pid <= 0)
			break;
		if (pid == c->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
			c->ended = true;
			c->status = status;
			c->usage = ru;
		}
	}
	c->childless = pid < 0 && errno == ECHILD;
}

static uint64_t us_of(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void send_exit(struct call *c, bool all_gone)
{
	OWN_BUF b = BUF_INIT(1024);
	struct box_exit x = { 0 };

	if (c->conn < 0)
		return;
	if (c->phase == TIMED_OUT) {
		x.kind = BOX_TIMED_OUT;
		if (!all_gone)
			memcpy(x.text, BOX_TIMED_LEFT, sizeof(BOX_TIMED_LEFT));
		(void)getrusage(RUSAGE_CHILDREN, &c->usage);
	} else if (WIFSIGNALED(c->status)) {
		x.kind = BOX_SIGNALED;
		x.status = (uint32_t)WTERMSIG(c->status);
		x.core = WCOREDUMP(c->status);
	} else {
		x.kind = BOX_EXITED;
		x.status = (uint32_t)WEXITSTATUS(c->status);
	}
	x.wall_us = now_us() - c->start_us;
	x.cpu_us = us_of(&c->usage.ru_utime) + us_of(&c->usage.ru_stime);
	x.max_rss_kib = (uint64_t)c->usage.ru_maxrss;
	if (box_put_exit(&b, &x) == 0)
		(void)serve_send(c->conn, &b, NULL, 0);
}

static int wait_ms(const struct call *c)
{
	uint64_t at = c->kill_us ? c->kill_us : c->timeout_us, now;

	if (!at)
		return -1;
	now = now_us();
	if (now >= at)
		return 0;
	at = (at - now + 999) / 1000;
	return at > 3600000 ? 3600000 : (int)at;
}

/* An ordinary end is the command's; after a time-out or a hang-up it is that of everything of the call. */
static bool over(const struct call *c)
{
	return c->phase == RUNNING ? c->ended : c->childless;
}

static void watch(struct guest *g, struct call *c)
{
	bool all_gone = true;

	while (!over(c)) {
		struct pollfd p[] = {
			{ .fd = c->sig_fd, .events = POLLIN },
			{ .fd = c->conn, .events = POLLIN },
		};

		if (poll(p, 2, wait_ms(c)) < 0)
			continue;
		if (p[0].revents)
			reap(c);
		if (over(c))
			break;
		if (p[1].revents)
			from_client(c);
		if (c->phase == RUNNING && c->timeout_us && now_us() >= c->timeout_us)
			time_out(c);
		if (c->kill_us && now_us() >= c->kill_us) {
			all_gone = kin_kill(KILL_MS) == 0;
			break;
		}
	}
	serve_idle(g);
	send_exit(c, all_gone);
}

/* A pseudo-terminal of the box's devpts. TIOCGPTPEER needs no path, so nothing planted in /dev/pts can be met. */
static int open_tty(const struct box_exec *x, const struct user *u, int *ret_master, int *ret_slave, struct err *e)
{
	struct winsize ws = { .ws_row = x->rows, .ws_col = x->cols };
	OWN_FD master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	OWN_FD slave = FD_NONE;
	int unlock = 0;

	if (master < 0)
		return err_set(e, -errno, "cannot open /dev/ptmx of the box");
	if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
		return err_set(e, -errno, "cannot unlock a terminal of the box");
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return err_set(e, -errno, "cannot open a terminal of the box");
	/* The user opens it again by its name (/dev/tty aside), as with a login. */
	if (u->uid && fchown(slave, u->uid, (gid_t)-1) < 0)
		return err_set(e, -errno, "cannot give the terminal to user %u", u->uid);
	(void)ioctl(slave, TIOCSWINSZ, &ws);
	*ret_master = fd_take(&master);
	*ret_slave = fd_take(&slave);
	return 0;
}

/* The length of "NAME=". */
static size_t key_len(const char *var)
{
	return (size_t)(strchr(var, '=') - var) + 1;
}

static bool has_key(char *const *env, const char *var, size_t n)
{
	for (; *env; env++)
		if (strncmp(*env, var, n) == 0)
			return true;
	return false;
}

static char *joined(const char *key, const char *value)
{
	size_t a = strlen(key), b = strlen(value);
	char *s = malloc(a + b + 1);

	if (s) {
		memcpy(s, key, a);
		memcpy(s + a, value, b + 1);
	}
	return s;
}

/* The box's defaults, and what was given over them; lives as long as the process. NULL when memory is gone. */
static char **environment(const struct box_exec *x, const struct user *u)
{
	char *dflt[] = {
		(char *)default_path, joined("HOME=", u->home), joined("USER=", u->name), joined("LOGNAME=", u->name),
		joined("SHELL=", u->shell), (char *)"TERM=xterm",
	};
	size_t ndflt = sizeof(dflt) / sizeof(dflt[0]) - (x->in != BOX_STDIO_TTY), n = 0, given = 0;
	char **env;

	while (x->env[given])
		given++;
	env = calloc(given + ndflt + 1, sizeof(*env));
	if (!env)
		return NULL;
	for (size_t i = 0; i < given; i++)
		/* Most programs take the first of a name, so only the last one that was given stays. */
		if (!has_key(x->env + i + 1, x->env[i], key_len(x->env[i])))
			env[n++] = x->env[i];
	for (size_t i = 0; i < ndflt; i++) {
		if (!dflt[i])
			return NULL;
		if (!has_key(x->env, dflt[i], key_len(dflt[i])))
			env[n++] = dflt[i];
	}
	return env;
}

static void not_run(int conn, int code, const struct err *e)
{
	OWN_BUF b = BUF_INIT(1024);
	struct box_exit x = { .kind = BOX_NOT_STARTED, .status = (uint32_t)-code };

	(void)memccpy(x.text, e->text, '\0', BOX_TEXT_MAX);
	if (box_put_exit(&b, &x) == 0)
		(void)serve_send(conn, &b, NULL, 0);
}

static void announce(struct call *c, int master)
{
	OWN_BUF b = BUF_INIT(64);

	if (box_put_u32(&b, BOX_STARTED, (uint32_t)c->pid) == 0)
		(void)serve_send(c->conn, &b, &master, master >= 0);
}

static int start(struct call *c, const struct box_exec *x, const struct serve_in *in, struct err *e,
		 bool *ret_not_run)
{
	static struct user u;
	struct spawn s = {
		.argv = x->argv, .user = &u, .cwd = x->cwd, .umask = x->umask,
		.stdio = { FD_NONE, FD_NONE, FD_NONE },
	};
	OWN_FD master = FD_NONE;
	size_t next = 0;
	int r;

	r = user_find(x->user, &u, e);
	if (r < 0)
		return r;
	s.env = environment(x, &u);
	if (!s.env)
		return err_set(e, -ENOMEM, "cannot prepare the environment");
	if (!s.cwd) {
		s.cwd = u.home;
		s.cwd_home = true;
	}
	if (x->in == BOX_STDIO_TTY) {
		r = open_tty(x, &u, &master, &c->slave, e);
		if (r < 0)
			return r;
		s.tty = true;
		s.stdio[0] = s.stdio[1] = s.stdio[2] = c->slave;
	} else {
		const enum box_stdio how[3] = { x->in, x->out, x->err };

		for (int i = 0; i < 3; i++) {
			if (how[i] == BOX_STDIO_PIPE)
				s.stdio[i] = in->fds[next++];
			else if (how[i] == BOX_STDIO_SAME)
				s.stdio[i] = s.stdio[1];
		}
	}

	c->start_us = now_us();
	c->pid = spawn(&s, ret_not_run, e);
	if (c->pid < 0)
		return c->pid;
	/* The command has them; as long as we did too, nobody would see it close them. */
	for (size_t i = 0; i < in->nfds; i++)
		(void)close(in->fds[i]);
	if (x->timeout_ms)
		c->timeout_us = c->start_us + x->timeout_ms * 1000;
	if (x->in == BOX_STDIO_TTY || x->detach || x->announce)
		announce(c, master);
	return 0;
}

enum serve_end call_serve(struct guest *g, int conn, struct serve_in *in)
{
	static struct call c;
	struct box_exec x;
	struct err e = ERR_INIT;
	bool command = false;
	sigset_t all;
	void *mem;
	int r;

	c = (struct call){ .conn = conn, .sig_fd = g->sig_fd, .slave = FD_NONE };
	r = box_get_exec(&in->f, &x, &mem);
	if (r == 0 && (in->nfds != box_exec_fds(&x) || in->nrest >= sizeof(c.in)))
		r = -EBADMSG;
	if (r < 0) {
		serve_idle(g);
		serve_fail(conn, r, r == -EBADMSG ? "a malformed request" : "the box has no memory left");
		return SERVE_DONE;
	}
	c.detach = x.detach;
	/* Nothing that a process of the box sends may end us: the command's end would be lost. */
	sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);

	r = start(&c, &x, in, &e, &command);
	if (r < 0) {
		serve_idle(g);
		if (command)
			not_run(conn, r, &e);
		else
			serve_fail(conn, r, e.text);
		return SERVE_DONE;
	}
	if (in->nrest) {
		memcpy(c.in, in->rest, in->nrest);
		c.nin = in->nrest;
		if (!frames(&c))
			hang_up(&c);
	}
	watch(g, &c);
	return SERVE_DONE;
}
