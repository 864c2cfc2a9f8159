/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/call.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "chan/relay.h"
#include "chan/term.h"

enum { IN, OUT, ERR, STDIO };

/* What the box may take to end a command whose time is over (guest/call.c chases its processes for 12 s), and some more. */
#define GIVE_UP_MS 15000

struct call {
	int sock;
	const struct call_io *io;
	struct box_exec x;	/* with in, out, err as chosen */
	int ours[STDIO];	/* our ends of the pipes; the terminal's master is ours[IN] alone */
	int theirs[STDIO];	/* the box's ends, closed once sent */
	struct relay relay[STDIO];
	int sig_fd;
	uint8_t in[2048];	/* frames of init: the longest is BOX_FAIL */
	size_t nin;
	bool started, over, broken_out;
	int unwritten;	/* why the command's output can't be written, or 0 */
	int quit;		/* signal as of which the call ended on our side, or 0 */
	uint64_t give_up_ms;	/* when a time limit is long over; 0: there is none */
	uint64_t presses[3];	/* when the user last pressed Ctrl-C, in ms */
	struct box_exit exit;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int call_send(int sock, const struct buf *b, const int *fds, size_t nfds)
{
	size_t at = 0;

	if (b->failed)
		return b->failed;
	while (at < b->len) {
		ssize_t k = fd_send(sock, b->data + at, b->len - at, fds, nfds, 0);

		if (k < 0)
			return (int)k;
		nfds = 0;
		at += (size_t)k;
	}
	return 0;
}

int call_recv(int sock, struct call_in *in, struct box_frame *ret)
{
	if (in->used) {
		in->have -= in->used;
		memmove(in->buf, in->buf + in->used, in->have);
		in->used = 0;
	}
	for (;;) {
		size_t need, nfds;
		ssize_t k = box_peek(in->buf, in->have, ret, &need);

		if (k < 0)
			return (int)k;
		if (k > 0) {
			in->used = (size_t)k;
			return 1;
		}
		if (need > in->room) {
			size_t room = need < 65536 + BOX_HEAD ? 65536 + BOX_HEAD : need;
			uint8_t *p = realloc(in->buf, room);

			if (!p)
				return -ENOMEM;
			in->buf = p;
			in->room = room;
		}
		/* No descriptor is expected; fd_recv() closes any and refuses. */
		k = fd_recv(sock, in->buf + in->have, in->room - in->have, NULL, &nfds, 0);
		if (k < 0)
			return k == -EAGAIN ? -ETIMEDOUT : (int)k;
		if (k == 0)
			return in->have ? -EBADMSG : 0;
		in->have += (size_t)k;
	}
}

/* Which kind of standard descriptor the command gets. */

static bool is_null(int fd, const struct stat *st)
{
	return fd < 0 || (S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3));
}

/* One open file under two numbers, or one terminal: what is written to both has an order that people see. */
static bool same_file(int a, int b, const struct stat *sa, const struct stat *sb)
{
	long r;

	if (sa->st_dev != sb->st_dev || sa->st_ino != sb->st_ino)
		return false;
	if (a == b || !S_ISREG(sa->st_mode))
		return true;
	r = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, (unsigned long)a, (unsigned long)b);
	/* Without kcmp(2): two open files of one regular file have positions of their own, and rarely the same. */
	return r < 0 ? lseek(a, 0, SEEK_CUR) == lseek(b, 0, SEEK_CUR) : r == 0;
}

static int make_pipe(struct call *c, int which, struct err *e)
{
	bool to_box = which == IN;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot make a pipe for the command");
	c->ours[which] = p[to_box ? 1 : 0];
	c->theirs[which] = p[to_box ? 0 : 1];
	/* The command may have another user, and may open /dev/stdin, /dev/stdout or /dev/stderr anew. */
	(void)fchmod(c->theirs[which], 0666);
	return fd_set_nonblock(c->ours[which], true);
}

static int choose(struct call *c, struct err *e)
{
	const int fds[STDIO] = { c->io->in, c->io->out, c->io->err };
	enum box_stdio how[STDIO];
	struct stat st[STDIO] = { 0 };
	int r;

	for (int i = 0; i < STDIO; i++) {
		if (fds[i] >= 0 && fstat(fds[i], &st[i]) < 0)
			return err_set(e, -errno, "cannot use descriptor %d", fds[i]);
		how[i] = is_null(fds[i], &st[i]) ? BOX_STDIO_NULL : BOX_STDIO_PIPE;
	}
	if (how[ERR] == BOX_STDIO_PIPE && how[OUT] == BOX_STDIO_PIPE && same_file(fds[OUT], fds[ERR], &st[OUT], &st[ERR]))
		how[ERR] = BOX_STDIO_SAME;
	for (int i = 0; i < STDIO; i++) {
		if (how[i] != BOX_STDIO_PIPE)
			continue;
		r = make_pipe(c, i, e);
		if (r < 0)
			return r;
		relay_init(&c->relay[i], i == IN ? fds[i] : c->ours[i], i == IN ? c->ours[i] : fds[i], i != IN);
	}
	c->x.in = how[IN];
	c->x.out = how[OUT];
	c->x.err = how[ERR];
	return 0;
}

static int send_exec(struct call *c, struct err *e)
{
	OWN_BUF b = BUF_INIT(BOX_HEAD + BOX_BODY_MAX + 1);
	int fds[STDIO], r;
	size_t n = 0;

	r = box_put_exec(&b, &c->x);
	if (r < 0)
		return err_why(e, r == -EINVAL || r == -E2BIG ? WHY_BAD_REQUEST : WHY_LIMIT, r,
			       r == -E2BIG ? "the command and its environment have more than %u MiB" :
			       r == -EINVAL ? "the command can't be sent: its user, directory (absolute), umask, time limit or a "
					      "variable (NAME=value) is malformed, or it is more than %u MiB" :
					      "no memory for the command (at most %u MiB)",
			       BOX_BODY_MAX >> 20);
	for (int i = 0; i < STDIO; i++)
		if (c->theirs[i] >= 0)
			fds[n++] = c->theirs[i];
	r = call_send(c->sock, &b, fds, n);
	for (int i = 0; i < STDIO; i++)
		fd_close(&c->theirs[i]);
	/* Init may have answered before it left: that is read below. */
	return r < 0 && r != -EPIPE && r != -ECONNRESET ? err_set(e, r, "cannot send the command to the box") : 0;
}

/* A small frame to init, which is dropped when its socket is full: it doesn't listen then. */
static void tell(struct call *c, struct buf *b)
{
	if (!b->failed)
		(void)fd_send(c->sock, b->data, b->len, NULL, 0, MSG_DONTWAIT);
	buf_reset(b);
}

static void hang_up(struct call *c, int as_signal)
{
	OWN_BUF b = BUF_INIT(64);

	if (c->over)
		return;
	(void)box_put(&b, BOX_HANGUP, NULL, 0);
	tell(c, &b);
	c->quit = as_signal;
}

/* Signals. */

static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };

static int signals_begin(struct call *c, sigset_t *ret_mask, struct sigaction *ret_pipe, struct err *e)
{
	struct sigaction ign = { .sa_handler = SIG_IGN };
	sigset_t set;

	if (c->io->no_signals)
		return 0;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(&set, forwarded[i]);
	c->sig_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->sig_fd < 0)
		return err_set(e, -errno, "cannot make a signal descriptor");
	(void)sigprocmask(SIG_BLOCK, &set, ret_mask);
	(void)sigaction(SIGPIPE, &ign, ret_pipe);
	return 0;
}

static void signals_end(struct call *c, const sigset_t *mask, const struct sigaction *pipe)
{
	if (c->sig_fd < 0)
		return;
	fd_close(&c->sig_fd);
	(void)sigaction(SIGPIPE, pipe, NULL);
	(void)sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Three within a second: the way out when nothing in the box answers. */
static bool impatient(struct call *c)
{
	c->presses[2] = c->presses[1];
	c->presses[1] = c->presses[0];
	c->presses[0] = now_ms();
	return c->presses[2] && c->presses[0] - c->presses[2] < 1000;
}

static void one_signal(struct call *c, int sig)
{
	OWN_BUF b = BUF_INIT(64);
	uint16_t rows, cols;

	if (sig == SIGWINCH) {
		if (c->x.in != BOX_STDIO_TTY || !(term_size(c->io->in, &rows, &cols) || term_size(c->io->out, &rows, &cols)))
			return;
		(void)box_put_resize(&b, rows, cols);
		tell(c, &b);
		return;
	}
	/* The command has ended, and what is left is the caller's own slowness. */
	if (c->over) {
		c->quit = sig == SIGUSR1 || sig == SIGUSR2 ? 0 : sig;
		return;
	}
	if ((sig == SIGINT || sig == SIGQUIT) && impatient(c)) {
		hang_up(c, sig);
		return;
	}
	/* The terminal is gone, and with it everything that was run on it. */
	if (sig == SIGHUP && c->x.in == BOX_STDIO_TTY) {
		hang_up(c, sig);
		return;
	}
	(void)box_put_u32(&b, BOX_SIGNAL, (uint32_t)sig);
	tell(c, &b);
}

static void from_signals(struct call *c)
{
	struct signalfd_siginfo si;

	while (read(c->sig_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		one_signal(c, (int)si.ssi_signo);
}

/* Frames of init. */

/* A descriptor that came out of a box is only believed to be the master of a pseudo-terminal when it behaves as one. */
static bool is_master(int fd)
{
	struct stat st;
	unsigned n;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2) && ioctl(fd, TIOCGPTN, &n) == 0;
}

static int take_master(struct call *c, int fd, struct err *e)
{
	int r;

	c->ours[IN] = fd;
	if (!is_master(fd))
		return err_why(e, WHY_HOSTILE, -EBADMSG, "the box sent something else than a terminal");
	r = fd_set_nonblock(fd, true);
	if (r < 0)
		return err_set(e, r, "cannot use the terminal of the box");
	if (c->io->in >= 0)
		relay_init(&c->relay[IN], c->io->in, fd, false);
	if (c->io->out >= 0)
		relay_init(&c->relay[OUT], fd, c->io->out, true);
	r = c->io->in >= 0 ? term_raw(c->io->in) : 0;
	return r < 0 && r != -ENOTTY ? err_set(e, r, "cannot set the terminal to raw mode") : 0;
}

static int nonsense(struct err *e)
{
	return err_why(e, WHY_HOSTILE, -EBADMSG, "the box's answer is not of the box protocol");
}

/* What BOX_FAIL says, or that it says nothing: both are errors. */
static int fail_said(const struct box_frame *f, struct err *e)
{
	int r;

	if (e)
		e->code = 0;
	r = box_get_fail(f, e);
	return e && !e->code ? nonsense(e) : r;
}

static int one_frame(struct call *c, const struct box_frame *f, int *master, struct err *e)
{
	bool tty = c->x.in == BOX_STDIO_TTY;
	uint32_t pid;
	int r;

	switch (f->kind) {
	case BOX_STARTED:
		if (c->started || !(tty || c->x.detach || c->x.announce) || box_get_u32(f, &pid) < 0 ||
		    (*master >= 0) != tty)
			return nonsense(e);
		c->started = true;
		r = tty ? take_master(c, fd_take(master), e) : 0;
		if (r == 0 && c->io->started)
			c->io->started(pid, c->io->arg);
		if (c->x.detach) {
			c->over = true;
			c->exit = (struct box_exit){ .kind = BOX_EXITED };
		}
		return r;
	case BOX_EXIT:
		if (box_get_exit(f, &c->exit) < 0)
			return nonsense(e);
		c->over = true;
		return 0;
	case BOX_FAIL:
		return fail_said(f, e);
	default:
		return nonsense(e);
	}
}

static int from_init(struct call *c, struct err *e)
{
	OWN_FD master = FD_NONE;
	int fds[FD_PASS_MAX];
	size_t nfds = 0;
	ssize_t k;
	int r = 0;

	k = fd_recv(c->sock, c->in + c->nin, sizeof(c->in) - c->nin, fds, &nfds, MSG_DONTWAIT);
	if (k == -EAGAIN)
		return 0;
	if (k > 0 && nfds > 0)
		master = fds[0];
	for (size_t i = 1; i < nfds; i++)
		(void)close(fds[i]);
	if (k == -EBADMSG || nfds > 1)
		return nonsense(e);
	if (k <= 0)
		return err_why(e, WHY_WRONG_STATE, -ECONNRESET, "the box ended while the command ran");
	c->nin += (size_t)k;
	while (r == 0 && !c->over) {
		struct box_frame f;

		k = box_peek(c->in, c->nin, &f, NULL);
		if (k < 0 || (k == 0 && c->nin == sizeof(c->in)))
			return nonsense(e);
		if (k == 0)
			break;
		r = one_frame(c, &f, &master, e);
		c->nin -= (size_t)k;
		memmove(c->in, c->in + k, c->nin);
	}
	/* It belonged to no frame that may have one. */
	return r == 0 && master >= 0 ? nonsense(e) : r;
}

/* Bytes. */

static void relay_close(struct call *c, int which)
{
	relay_done(&c->relay[which]);
	if (c->x.in != BOX_STDIO_TTY)
		fd_close(&c->ours[which]);
}

static void move(struct call *c, int which, bool readable)
{
	bool tty = c->x.in == BOX_STDIO_TTY;

	switch (relay_step(&c->relay[which], readable)) {
	case RELAY_GOES_ON:
		return;
	case RELAY_BROKEN:
		/* Nobody reads what the command writes: the end that a pipe on one machine has. */
		if (which == OUT)
			hang_up(c, SIGPIPE);
		if (which == OUT && c->over)
			c->broken_out = true;
		break;
	case RELAY_OVER:
		if (which == IN && tty) {
			static const char end_of_file = 4; /* Ctrl-D, what a terminal has for it */

			/* As it was at first: a terminal that is gone is none any more for isatty(3). */
			if (c->relay[IN].from_is == RELAY_TTY)
				hang_up(c, SIGHUP);
			else
				(void)!write(c->ours[IN], &end_of_file, 1);
		}
		break;
	case RELAY_FAILED:
		/* A full disk below the caller's output: what is lost there is not to look like the command's own end. */
		if (which != IN && c->unwritten == 0) {
			c->unwritten = c->relay[which].error;
			hang_up(c, SIGPIPE);
		}
		break;
	}
	relay_close(c, which);
}

static bool drained(const struct call *c)
{
	return c->relay[OUT].from < 0 && c->relay[ERR].from < 0;
}

static void finish(struct call *c)
{
	relay_close(c, IN);
	for (int i = OUT; i <= ERR; i++) {
		if (c->relay[i].from < 0)
			continue;
		if (c->x.detach) {
			relay_close(c, i);
			continue;
		}
		relay_cap(&c->relay[i]);
		move(c, i, true);
	}
}

/* Milliseconds until we don't believe any more that the box keeps the time limit; -1: there is none. */
static int time_left(const struct call *c)
{
	uint64_t now;

	if (!c->give_up_ms || c->over)
		return -1;
	now = now_ms();
	if (now >= c->give_up_ms)
		return 0;
	return c->give_up_ms - now > 3600000 ? 3600000 : (int)(c->give_up_ms - now);
}

static int loop(struct call *c, struct err *e)
{
	while (!c->quit && (!c->over || !drained(c))) {
		struct pollfd p[2 + 2 * STDIO] = {
			{ .fd = c->over ? FD_NONE : c->sock, .events = POLLIN },
			{ .fd = c->sig_fd, .events = POLLIN },
		};
		unsigned n = 2, at[STDIO], cnt[STDIO];
		int r;

		for (int i = 0; i < STDIO; i++) {
			at[i] = n;
			cnt[i] = relay_poll(&c->relay[i], p + n);
			n += cnt[i];
		}
		r = poll(p, n, time_left(c));
		if (r < 0)
			continue;
		if (r == 0 && time_left(c) == 0) {
			/* The box was told when to end it. Its root may have stopped who should have. */
			c->exit = (struct box_exit){ .kind = BOX_TIMED_OUT, .text = "the box itself did not end it: stop the box" };
			c->over = true;
			finish(c);
			continue;
		}
		if (p[1].revents)
			from_signals(c);
		for (int i = 0; i < STDIO && !c->quit; i++) {
			const struct pollfd *q = p + at[i];

			if (!cnt[i] || c->relay[i].from < 0)
				continue;
			if (cnt[i] == 2 && q[1].revents & (POLLERR | POLLHUP | POLLNVAL))
				relay_close(c, i);
			else if (q[0].revents)
				move(c, i, q[0].fd == c->relay[i].from);
		}
		if (p[0].revents && !c->quit) {
			r = from_init(c, e);
			if (r < 0)
				return r;
			if (c->over)
				finish(c);
		}
	}
	return 0;
}

int call_run(int sock, const struct box_exec *x, const struct call_io *io, struct box_exit *ret, struct err *e)
{
	struct call c = {
		.sock = sock, .io = io, .x = *x, .sig_fd = FD_NONE,
		.ours = { FD_NONE, FD_NONE, FD_NONE }, .theirs = { FD_NONE, FD_NONE, FD_NONE },
	};
	struct sigaction pipe;
	sigset_t mask;
	int r = 0;

	for (int i = 0; i < STDIO; i++)
		c.relay[i].from = c.relay[i].reopened = FD_NONE;
	if (x->timeout_ms)
		c.give_up_ms = now_ms() + x->timeout_ms + GIVE_UP_MS;
	if (io->started)
		c.x.announce = true;
	if (x->in == BOX_STDIO_TTY) {
		c.x.out = c.x.err = BOX_STDIO_TTY;
		if (!c.x.rows && !c.x.cols && !term_size(io->in, &c.x.rows, &c.x.cols))
			(void)term_size(io->out, &c.x.rows, &c.x.cols);
	} else {
		c.x.rows = c.x.cols = 0;
		r = choose(&c, e);
	}
	if (r == 0)
		r = signals_begin(&c, &mask, &pipe, e);
	if (r == 0)
		r = send_exec(&c, e);
	if (r == 0)
		r = loop(&c, e);
	term_restore();
	signals_end(&c, &mask, &pipe);
	for (int i = 0; i < STDIO; i++) {
		relay_done(&c.relay[i]);
		fd_close(&c.ours[i]);
		fd_close(&c.theirs[i]);
	}
	if (r < 0)
		return r;
	/* A terminal that went away is a hangup, which has been said. */
	if (c.unwritten < 0 && c.x.in != BOX_STDIO_TTY)
		return err_set(e, c.unwritten, "the output of the command can't be written (the command was ended)");
	if (c.quit || c.broken_out)
		c.exit = (struct box_exit){ .kind = BOX_SIGNALED, .status = (uint32_t)(c.quit ? c.quit : SIGPIPE) };
	*ret = c.exit;
	return 0;
}

/* The small operations: one frame there, one back. */

static int ask(int sock, struct buf *b, uint32_t wait_ms, struct box_idle *ret_idle, const char *doing, struct err *e)
{
	struct timeval t = { .tv_sec = wait_ms / 1000, .tv_usec = (wait_ms % 1000) * 1000 + 1 };
	struct call_in in = { 0 };
	struct box_frame f;
	int r;

	(void)setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	(void)setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
	r = call_send(sock, b, NULL, 0);
	if (r == 0 || r == -EPIPE)
		r = call_recv(sock, &in, &f);
	if (r == 1 && f.kind == BOX_FAIL)
		r = fail_said(&f, e);
	else if (r == 1 && f.kind == BOX_OK && !ret_idle && f.len == 0)
		r = 0;
	else if (r == 1 && f.kind == BOX_OK && ret_idle && box_get_idle(&f, ret_idle) == 0)
		r = 0;
	else if (r == 1)
		r = nonsense(e);
	else if (r == 0)
		r = err_why(e, WHY_WRONG_STATE, -ECONNRESET, "the box left without an answer");
	else
		(void)err_set(e, r, "the box does not answer");
	free(in.buf);
	return r < 0 ? err_while(e, r, "%s", doing) : 0;
}

int call_stop(int sock, uint32_t grace_ms, struct err *e)
{
	OWN_BUF b = BUF_INIT(64);
	uint32_t wait = grace_ms > UINT32_MAX - 5000 ? UINT32_MAX : grace_ms + 5000;

	(void)box_put_u32(&b, BOX_STOP, grace_ms);
	return ask(sock, &b, wait, NULL, "while stopping the box", e);
}

int call_ping(int sock, uint32_t wait_ms, struct box_idle *ret, struct err *e)
{
	OWN_BUF b = BUF_INIT(64);

	(void)box_put(&b, BOX_PING, NULL, 0);
	return ask(sock, &b, wait_ms, ret, "while asking the box's init", e);
}
