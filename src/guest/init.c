/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/weaken.h"
#include "guest/seal.h"
#include "guest/serve.h"

/*
 * What PID 1 knows of its handlers. A handler's row is found by its pid, which stays its own until PID 1 has waited
 * for it. The shared page is for the answer to BOX_PING and for BOX_STOP; PID 1 itself believes nothing in it that
 * could harm it.
 */
static pid_t handlers[INIT_HANDLERS_MAX];
static struct guest_shared *shared;
static unsigned rows_used;	/* rows above have never been used, so their memory hasn't either */

/*
 * While there is work, one handler waits for the next connection in advance, since the fork is a good part of what a
 * short command costs. It takes the connection itself and says so through note_fd; PID 1, which doesn't listen
 * meanwhile, makes the next one. After SPARE_MS without work it is gone, and with it its memory. A box of one command
 * has its handler from the start, and no second one in advance.
 */
#define SPARE_MS 2000
static pid_t spare;
static int note_fd;

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Keep 0-2 and the two that were given. Descriptors above could be of the host. */
static void close_others(int a, int b)
{
	unsigned lo = (unsigned)(a < b ? a : b), hi = (unsigned)(a < b ? b : a);

	if (lo > 3)
		(void)syscall(SYS_close_range, 3u, lo - 1, 0u);
	if (hi > lo + 1)
		(void)syscall(SYS_close_range, lo + 1, hi - 1, 0u);
	(void)syscall(SYS_close_range, hi + 1, ~0u, 0u);
}

/* 0-2 are whatever the engine had there: a process in the box could reopen them through /proc/1/fd. */
static int own_stdio(struct err *e)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return err_set(e, -errno, "cannot open the box's /dev/null");
	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)) {
		(void)close(fd);
		return err_why(e, WHY_HOSTILE, -ENODEV, "the box's /dev/null is not the null device");
	}
	for (int i = 0; i < 3; i++)
		if (fd != i && dup3(fd, i, O_CLOEXEC) < 0)
			return err_set(e, -errno, "cannot set descriptor %d", i);
	if (fd > 2)
		(void)close(fd);
	return 0;
}

static int start(const struct init_opts *o, struct guest *g, struct err *e)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t set;
	int r;

	if (fcntl(o->listen_fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(o->ready_fd, F_SETFD, FD_CLOEXEC) < 0)
		return err_set(e, -errno, "the listening or the ready descriptor is not open");
	close_others(o->listen_fd, o->ready_fd);
	(void)umask(022);
	if (chdir("/") < 0)
		return err_set(e, -errno, "cannot enter the box's root directory");
	r = own_stdio(e);
	if (r < 0)
		return r;

	/* Ignored signals would be inherited by every command of the box. */
	for (int i = 1; i < 65; i++)
		(void)sigaction(i, &dfl, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return err_set(e, -errno, "cannot block SIGCHLD");
	g->sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (g->sig_fd < 0)
		return err_set(e, -errno, "cannot make a signal descriptor");

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return err_set(e, -errno, "cannot map the table of handlers");
	shared->last_end_ms = now_ms();
	note_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (note_fd < 0)
		return err_set(e, -errno, "cannot make an event descriptor");
	r = fd_set_nonblock(o->listen_fd, true);
	if (r < 0)
		return err_set(e, r, "cannot set the listening socket");

	(void)prctl(PR_SET_NAME, "cubby-init");
	/* No process of the box attaches to init or reads its memory, and it leaves no core file. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	/* The kernel's own limit, before the filter answers in its place. */
	if (o->no_userns && (unshare(CLONE_NEWUSER) == 0 || (errno != ENOSPC && errno != EUSERS)))
		return err_why(e, WHY_UNSUPPORTED, -EPERM, "the box could make user namespaces of its own");
	r = seal_box(o->nesting, o->no_setid, o->weaken, e);
	if (r == 0 && !(o->weaken & WEAKEN_CAPS))
		r = seal_final(e);
	return r;
}

static int row_of(pid_t pid)
{
	for (unsigned i = 0; i < rows_used; i++)
		if (handlers[i] == pid)
			return (int)i;
	return -1;
}

static int row_free(void)
{
	int r = row_of(0);

	if (r >= 0)
		return r;
	if (rows_used == INIT_HANDLERS_MAX)
		return -1;
	shared->rows = ++rows_used;
	return (int)rows_used - 1;
}

/* How a handler ended: its row is free again. -1 for any other process of the box. */
static int handler_ended(pid_t pid, int status)
{
	int row = row_of(pid);

	if (row < 0)
		return -1;
	if (pid == spare)
		spare = 0;
	handlers[row] = 0;
	if (shared->busy[row]) {
		shared->busy[row] = 0;
		shared->last_end_ms = now_ms();
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : SERVE_DONE;
}

/* false: the box was stopped. */
static bool reap(void)
{
	bool go_on = true;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (handler_ended(pid, status) == SERVE_STOP)
			go_on = false;
	return go_on;
}

static void refuse(int conn, int code, const char *text)
{
	/* Without waiting: whoever doesn't read it finds the connection closed. */
	uint8_t frame[128] = { BOX_FAIL };
	size_t n = strlen(text);

	frame[4] = (uint8_t)(n + 4);
	frame[8] = (uint8_t)-code;
	memcpy(frame + 12, text, n);
	(void)send(conn, frame, n + 12, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Returns the handler's pid, or a negative errno; the connection has been answered then. */
static pid_t hand_over(struct guest *g, int listen_fd, int conn)
{
	int row = row_free();
	pid_t pid;

	if (row < 0) {
		refuse(conn, -EAGAIN, "the box is serving as many connections as it can; try again");
		return -EAGAIN;
	}
	pid = fork();
	if (pid == 0) {
		g->row = (unsigned)row;
		(void)close(listen_fd);
		_exit(serve(g, conn));
	}
	if (pid < 0) {
		int r = -errno;

		refuse(conn, r, "the box cannot make another process");
		return r;
	}
	handlers[row] = pid;
	return pid;
}

static int wait_for_one(const struct guest *g, int listen_fd)
{
	struct pollfd p = { .fd = listen_fd, .events = POLLIN };
	uint64_t one = 1;
	int conn;

	if (shared->stopping || poll(&p, 1, g->once ? -1 : SPARE_MS) <= 0)
		return -1;
	conn = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (conn >= 0 && write(note_fd, &one, sizeof(one)) < 0)
		return -1;
	return conn;
}

static void make_spare(struct guest *g, int listen_fd)
{
	int row = shared->stopping ? -1 : row_free();
	pid_t pid;

	/* Without one PID 1 listens, and says why nobody can be served. */
	if (row < 0)
		return;
	pid = fork();
	if (pid == 0) {
		int conn = wait_for_one(g, listen_fd);

		g->row = (unsigned)row;
		(void)close(listen_fd);
		_exit(conn < 0 ? SERVE_DONE : serve(g, conn));
	}
	if (pid > 0)
		spare = handlers[row] = pid;
}

static void take_one(struct guest *g, int listen_fd)
{
	int conn = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (conn < 0)
		return;
	(void)hand_over(g, listen_fd, conn);
	(void)close(conn);
	if (!g->once && !spare)
		make_spare(g, listen_fd);
}

static int loop(struct guest *g, int listen_fd)
{
	struct pollfd p[] = {
		{ .fd = listen_fd, .events = POLLIN },
		{ .fd = g->sig_fd, .events = POLLIN },
		{ .fd = note_fd, .events = POLLIN },
	};

	for (;;) {
		p[0].fd = spare ? -1 : listen_fd;
		p[0].revents = 0;
		if (poll(p, 3, -1) < 0)
			continue;
		if (p[2].revents) {
			uint64_t n;

			(void)!read(note_fd, &n, sizeof(n));
			if (g->once)
				spare = 0;
			else
				make_spare(g, listen_fd);
		}
		if (p[0].revents)
			take_one(g, listen_fd);
		if (p[1].revents) {
			struct signalfd_siginfo si[4];

			while (read(g->sig_fd, si, sizeof(si)) > 0)
				;
			if (!reap())
				return 0;
		}
	}
}

int init_main(const struct init_opts *opts)
{
	struct guest g = { .once = opts->once };
	struct err e = ERR_INIT;

	if (start(opts, &g, &e) < 0) {
		(void)fd_write_all(opts->ready_fd, e.text, strlen(e.text));
		return 1;
	}
	if (fd_write_all(opts->ready_fd, "R", 1) < 0)
		return 1;
	(void)close(opts->ready_fd);
	g.shared = shared;
	if (g.once)
		make_spare(&g, opts->listen_fd);
	return loop(&g, opts->listen_fd);
}
