/* SPDX-License-Identifier: Apache-2.0 */
#include "drill/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "chan/call.h"

#define BATCH_SECONDS 90
#define OUTPUT_MAX    (256u << 10)

static int64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* The parent's ends are in b; the child's are ret[0] (input) and ret[1] (output). */
static int make_pipes(struct batch *b, int ret[2], struct err *e)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot make a pipe");
	if (pipe2(out, O_CLOEXEC) < 0) {
		int r = -errno;

		(void)close(in[0]);
		(void)close(in[1]);
		return err_set(e, r, "cannot make a pipe");
	}
	*b = (struct batch){ .in = in[1], .out = out[0] };
	ret[0] = in[0];
	ret[1] = out[1];
	return 0;
}

static int forked(struct batch *b, int theirs[2], struct err *e)
{
	int r = b->pid < 0 ? -errno : 0;

	(void)close(theirs[0]);
	(void)close(theirs[1]);
	if (r == 0)
		return 0;
	fd_close(&b->in);
	fd_close(&b->out);
	b->pid = 0;
	return err_set(e, r, "cannot start a process");
}

int batch_outside(struct batch *b, char *const *argv, struct err *e)
{
	int theirs[2] = { FD_NONE, FD_NONE }, r = make_pipes(b, theirs, e);

	if (r < 0)
		return r;
	b->pid = fork();
	if (b->pid == 0) {
		if (dup2(theirs[0], 0) == 0 && dup2(theirs[1], 1) == 1)
			(void)execv(argv[0], argv);
		_exit(127);
	}
	return forked(b, theirs, e);
}

static _Noreturn void child_in_box(int sock, const char *user, int in, int out)
{
	static const char *const argv[] = { DRILL_PROBE_IN_BOX, "batch", NULL };
	struct box_exec x = {
		.argv = (char *const *)argv,
		.user = user,
		.cwd = "/",
		.umask = 022,
		.timeout_ms = BATCH_SECONDS * 1000,
	};
	struct call_io io = { .in = in, .out = out, .err = FD_NONE };
	struct box_exit end = { 0 };
	int r;

	/* A keyboard's interrupt ends the drill, and that ends the box: nothing is passed on. */
	(void)setpgid(0, 0);
	r = call_run(sock, &x, &io, &end, NULL);
	_exit(r < 0 || end.kind != BOX_EXITED ? 1 : (int)(end.status & 0xff));
}

int batch_in_box(struct batch *b, int sock, const char *user, struct err *e)
{
	int theirs[2] = { FD_NONE, FD_NONE }, r = make_pipes(b, theirs, e);

	if (r < 0)
		return r;
	b->pid = fork();
	if (b->pid == 0) {
		(void)close(b->in);
		(void)close(b->out);
		child_in_box(sock, user, theirs[0], theirs[1]);
	}
	return forked(b, theirs, e);
}

int batch_send(struct batch *b, const char *line)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, before;
	int r;

	(void)sigaction(SIGPIPE, &ignore, &before);
	r = fd_write_all(b->in, line, strlen(line));
	if (r == 0)
		r = fd_write_all(b->in, "\n", 1);
	(void)sigaction(SIGPIPE, &before, NULL);
	return r;
}

static int take_line(struct batch *b, char *ret, size_t room)
{
	char *nl = b->len ? memchr(b->text, '\n', b->len) : NULL;
	size_t n;

	if (!nl)
		return 0;
	n = (size_t)(nl - b->text);
	(void)memcpy(ret, b->text, n < room ? n : room - 1);
	ret[n < room ? n : room - 1] = '\0';
	b->len -= n + 1;
	memmove(b->text, nl + 1, b->len);
	return 1;
}

int batch_line(struct batch *b, char *ret, size_t room, int ms)
{
	int64_t end = now_ms() + ms;

	while (take_line(b, ret, room) == 0) {
		struct pollfd p = { .fd = b->out, .events = POLLIN };
		int64_t left = end - now_ms();
		char *more;
		ssize_t n;

		if (b->out < 0 || b->len > OUTPUT_MAX)
			return 0;
		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return -ETIMEDOUT;
		more = realloc(b->text, b->len + 4096);
		if (!more)
			return -ENOMEM;
		b->text = more;
		n = read(b->out, b->text + b->len, 4096);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		b->len += (size_t)n;
	}
	return 1;
}

void batch_end(struct batch *b, int ms)
{
	int64_t end = now_ms() + ms;
	const struct timespec pause = { .tv_nsec = 2000000 };
	pid_t r = 0;

	fd_close(&b->in);
	fd_close(&b->out);
	while (b->pid > 0 && (r = waitpid(b->pid, NULL, WNOHANG)) == 0 && now_ms() < end)
		(void)nanosleep(&pause, NULL);
	if (b->pid > 0 && r == 0) {
		(void)kill(b->pid, SIGKILL);
		while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	free(b->text);
	*b = (struct batch)BATCH_INIT;
}
