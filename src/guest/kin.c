/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/kin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"

#define KIN_MAX 131072u	/* processes looked at in one pass */

struct proc {
	uint32_t pid, parent;
	enum { UNKNOWN, KIN, OTHER } is;
};

struct procs {
	struct proc *p;
	size_t n, room;
};

/*
 * "PID (name) S PPID …" of proc_pid_stat(5). The name may hold anything, parentheses and newlines included, so the
 * parent is looked for after the last ')'. 0 when it can't be read: the process is gone.
 */
static uint32_t parent_of(const char *pid)
{
	char path[32], text[512], *at, *end;
	uint64_t v;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%.10s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	at = strrchr(text, ')');
	if (!at || strlen(at) < 5)
		return 0;
	at += 4;
	end = strchr(at, ' ');
	if (!end)
		return 0;
	*end = '\0';
	return parse_u64(at, UINT32_MAX, &v) < 0 ? 0 : (uint32_t)v;
}

static int add(struct procs *ps, uint32_t pid, uint32_t parent)
{
	if (ps->n == ps->room) {
		size_t room = ps->room ? ps->room * 2 : 256;
		struct proc *p = room > KIN_MAX ? NULL : realloc(ps->p, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		ps->p = p;
		ps->room = room;
	}
	ps->p[ps->n++] = (struct proc){ .pid = pid, .parent = parent };
	return 0;
}

static int list(struct procs *ps)
{
	DIR *d = opendir("/proc");
	struct dirent *de;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (de = readdir(d))) {
		uint64_t pid;
		uint32_t parent;

		if (parse_u64(de->d_name, INT32_MAX, &pid) < 0)
			continue;
		parent = parent_of(de->d_name);
		if (parent)
			r = add(ps, (uint32_t)pid, parent);
	}
	(void)closedir(d);
	return r;
}

static int by_pid(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Climb until somebody known; a loop (the list is no snapshot) ends after as many steps as there are processes. */
static bool is_kin(struct procs *ps, struct proc *p, uint32_t self)
{
	struct proc *q = p;
	int is = UNKNOWN;

	for (size_t steps = 0; is == UNKNOWN && steps <= ps->n; steps++) {
		struct proc key = { .pid = q->parent };

		if (q->parent == self) {
			is = KIN;
		} else {
			q = bsearch(&key, ps->p, ps->n, sizeof(key), by_pid);
			is = q ? (int)q->is : OTHER;
		}
	}
	if (is == UNKNOWN)
		is = OTHER;
	/* Everybody on the way is the same, so the whole list costs one step each. */
	for (q = p; q && q->is == UNKNOWN;) {
		struct proc key = { .pid = q->parent };

		q->is = is;
		q = q->parent == self ? NULL : bsearch(&key, ps->p, ps->n, sizeof(key), by_pid);
	}
	return is == KIN;
}

/*
 * The list is old by now and a pid may belong to somebody else. A pidfd names one process for good, and that it is
 * still kin is looked up again after it was opened.
 */
static bool signal_one(const struct proc *p, uint32_t self, int sig)
{
	OWN_FD fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
	char pid[16];
	uint32_t parent;

	if (fd < 0)
		return false;
	(void)snprintf(pid, sizeof(pid), "%u", p->pid);
	parent = parent_of(pid);
	if (parent != p->parent && parent != self)
		return false;
	return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

int kin_signal(int sig)
{
	struct procs ps = { 0 };
	uint32_t self = (uint32_t)getpid();
	int r, sent = 0;

	r = list(&ps);
	/* What was seen of a list that ran over is signalled all the same. */
	if (ps.n > 0)
		qsort(ps.p, ps.n, sizeof(*ps.p), by_pid);
	for (size_t i = 0; i < ps.n; i++)
		if (is_kin(&ps, &ps.p[i], self) && signal_one(&ps.p[i], self, sig))
			sent++;
	free(ps.p);
	return r < 0 && sent == 0 ? r : sent;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int kin_kill(uint64_t max_ms)
{
	uint64_t end = now_ms() + max_ms;

	for (;;) {
		pid_t pid;

		(void)kin_signal(SIGKILL);
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			;
		if (pid < 0 && errno == ECHILD)
			return 0;
		if (now_ms() >= end)
			return -ETIMEDOUT;
		/* The killed need a moment to die. Short, since those that fork go on meanwhile. */
		(void)poll(NULL, 0, 1);
	}
}
