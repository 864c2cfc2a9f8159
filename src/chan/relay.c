/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#define PIPE_LARGE (512 << 10)	/* both sides of a stream; the usual 64 KiB halve its speed */
#define STEP_MAX (1u << 20)
#define STREAM_ON 4096		/* bytes in one read: from now on by splice(2); a page fills its place */
#define STREAM_OFF 4096		/* bytes in one splice: no longer */
#define TTY_SAFE 256		/* a terminal that polls writable takes as much without waiting (n_tty(4), WAKEUP_CHARS) */

static int kind_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return RELAY_FILE;
	if (S_ISFIFO(st.st_mode))
		return RELAY_PIPE;
	if (S_ISSOCK(st.st_mode))
		return RELAY_SOCKET;
	return S_ISCHR(st.st_mode) && isatty(fd) ? RELAY_TTY : RELAY_FILE;
}

/*
 * O_NONBLOCK belongs to the open file, which the caller shares with its shell. Opened once more by its descriptor, a
 * terminal gives us an open file of our own.
 */
static int reopen_tty(int fd)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void relay_init(struct relay *r, int from, int to, bool ours_from)
{
	memset(r, 0, sizeof(*r));
	r->from = from;
	r->to = to;
	r->reopened = FD_NONE;
	r->ours_from = ours_from;
	r->from_is = kind_of(from);
	r->to_is = kind_of(to);
	if (r->from_is == RELAY_TTY || r->to_is == RELAY_TTY || r->from_is == RELAY_SOCKET || r->to_is == RELAY_SOCKET)
		r->how = RELAY_COPY;
	if (ours_from && r->to_is == RELAY_TTY)
		r->reopened = reopen_tty(to);
}

void relay_done(struct relay *r)
{
	fd_close(&r->reopened);
	free(r->buf);
	r->buf = NULL;
	r->from = FD_NONE;
}

unsigned relay_poll(const struct relay *r, struct pollfd *p)
{
	if (r->from < 0)
		return 0;
	if (r->to_full) {
		p[0] = (struct pollfd){ .fd = r->to, .events = POLLOUT };
		return 1;
	}
	p[0] = (struct pollfd){ .fd = r->from, .events = POLLIN };
	if (r->ours_from)
		return 1;
	/* Nothing is taken from the caller once the command has closed its input: poll(2) tells that unasked. */
	p[1] = (struct pollfd){ .fd = r->to };
	return 2;
}

void relay_cap(struct relay *r)
{
	int n = 0;

	if (r->from < 0 || r->capped)
		return;
	r->capped = true;
	/* A terminal's bytes may still be on their way to where FIONREAD counts; they end by EAGAIN or EIO. */
	if (r->from_is == RELAY_TTY)
		r->left = STEP_MAX;
	else
		r->left = ioctl(r->from, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
	r->left += r->have;
}

static ssize_t write_some(struct relay *r)
{
	const char *p = r->buf + r->at;
	size_t n = r->have;

	if (!r->ours_from)
		return write(r->to, p, n);
	if (r->to_is == RELAY_SOCKET)
		return send(r->to, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r->to_is == RELAY_TTY && r->reopened >= 0)
		return write(r->reopened, p, n);
	if (r->to_is == RELAY_TTY || r->to_is == RELAY_PIPE) {
		struct pollfd w = { .fd = r->to, .events = POLLOUT };

		size_t safe = r->to_is == RELAY_TTY ? TTY_SAFE : PIPE_BUF;

		if (poll(&w, 1, 0) <= 0) {
			errno = EAGAIN;
			return -1;
		}
		return write(r->to, p, n < safe ? n : safe);
	}
	return write(r->to, p, n);
}

/* 1: written; 0: `to` is full; or negative. */
static int flush(struct relay *r)
{
	while (r->have > 0) {
		ssize_t k = write_some(r);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN) {
			r->to_full = true;
			return 0;
		}
		if (k < 0)
			return -1;
		r->at += (size_t)k;
		r->have -= (size_t)k;
		if (r->capped)
			r->left -= (uint64_t)k < r->left ? (uint64_t)k : r->left;
	}
	return 1;
}

static enum relay_end ended(struct relay *r)
{
	r->error = -errno;
	return errno == EPIPE || errno == ECONNRESET ? RELAY_BROKEN : RELAY_FAILED;
}

static size_t want(const struct relay *r, size_t n)
{
	return r->capped && r->left < n ? (size_t)r->left : n;
}

static ssize_t read_some(struct relay *r)
{
	size_t n = want(r, RELAY_BUF);

	/* Of a terminal no more than asked for, and of nobody anything after the end. */
	if (r->from_is == RELAY_SOCKET)
		return recv(r->from, r->buf, n, MSG_DONTWAIT);
	return read(r->from, r->buf, n);
}

static enum relay_end step_copy(struct relay *r, bool readable)
{
	int f;

	if (!r->buf) {
		r->buf = malloc(RELAY_BUF);
		if (!r->buf)
			return RELAY_FAILED;
	}
	for (size_t moved = 0; moved < STEP_MAX;) {
		ssize_t k;

		f = flush(r);
		if (f < 0)
			return ended(r);
		if (f == 0)
			return RELAY_GOES_ON;
		r->to_full = false;
		if (r->capped && r->left == 0)
			return RELAY_OVER;
		/* The caller's descriptor may block, so it is read once for each time that it said it has something. */
		if (!r->ours_from && !readable)
			return RELAY_GOES_ON;
		k = read_some(r);
		readable = false;
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN)
			return r->capped ? RELAY_OVER : RELAY_GOES_ON;
		/* The master of a terminal nobody has open any more reads EIO; so does one whose caller is gone. */
		if (k == 0 || (k < 0 && errno == EIO))
			return RELAY_OVER;
		if (k < 0)
			return RELAY_FAILED;
		r->at = 0;
		r->have = (size_t)k;
		moved += (size_t)k;
		r->stream = r->how == RELAY_SPLICE && k >= STREAM_ON;
	}
	return RELAY_GOES_ON;
}

static int waiting(int fd)
{
	int n = 0;

	return ioctl(fd, FIONREAD, &n) == 0 ? n : STREAM_OFF;
}

/*
 * A relay that wakes up for every piece takes the processor from the one who writes. SCHED_BATCH (sched(7)) keeps our share
 * of time, but lets others finish their turn: more moves at once. musl's sched_setscheduler() is none.
 */
static void batch(void)
{
	struct sched_param none = { 0 };

	(void)syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none);
}

static enum relay_end step_splice(struct relay *r, bool readable)
{
	for (size_t moved = 0; moved < STEP_MAX;) {
		ssize_t k;

		if (r->capped && r->left == 0)
			return RELAY_OVER;
		if (!r->stream)
			return RELAY_GOES_ON;
		k = splice(r->from, NULL, r->to, NULL, want(r, STEP_MAX), SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
		if (k > 0) {
			r->to_full = false;
			moved += (size_t)k;
			if (r->capped)
				r->left -= (uint64_t)k;
			/* A small piece may mean that the other pipe has little room; what is waiting here tells. */
			r->stream = k >= STREAM_OFF || waiting(r->from) >= STREAM_OFF;
			if (!r->grown) {
				/* Only for those who move much: a large pipe costs memory and a call. */
				(void)fcntl(r->from, F_SETPIPE_SZ, PIPE_LARGE);
				(void)fcntl(r->to, F_SETPIPE_SZ, PIPE_LARGE);
				batch();
				r->grown = true;
			}
			readable = false;
			continue;
		}
		if (k == 0)
			return RELAY_OVER;
		if (errno == EINTR)
			continue;
		if (errno == EAGAIN) {
			/* Something is there to read, and yet nothing moved: it is the other end. */
			if (readable || r->capped)
				r->to_full = true;
			else if (moved)
				r->to_full = false;
			return RELAY_GOES_ON;
		}
		if (errno == EINVAL) {
			r->how = RELAY_COPY;	/* O_APPEND, odd devices */
			r->stream = false;
			return step_copy(r, true);
		}
		return ended(r);
	}
	return RELAY_GOES_ON;
}

enum relay_end relay_step(struct relay *r, bool readable)
{
	return r->stream && !r->have ? step_splice(r, readable) : step_copy(r, readable);
}
