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
	uint32_t pid, parent, group;
	enum { UNKNOWN, KIN, OTHER } is;
	char state;	/* of proc_pid_stat(5): 'T' stopped, 'Z' zombie, … */
};

struct procs {
	struct proc *p;
	size_t n, room;
};

/* A number and the blank behind it. */
static uint32_t take(char **at)
{
	char *end = strchr(*at, ' ');
	uint64_t v;

	if (!end)
		return 0;
	*end = '\0';
	if (parse_u64(*at, UINT32_MAX, &v) < 0)
		v = 0;
	*at = end + 1;
	return (uint32_t)v;
}

/*
 * "PID (name) S PPID PGRP …" of proc_pid_stat(5). The name may hold anything, parentheses and newlines included, so
 * the rest is looked for after the last ')'. false when it can't be read: the process is gone.
 */
static bool look(uint32_t pid, struct proc *ret)
{
	char path[32], text[512], *at;
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	at = strrchr(text, ')');
	if (!at || strlen(at) < 5)
		return false;
	*ret = (struct proc){ .pid = pid, .state = at[2] };
	at += 4;
	ret->parent = take(&at);
	ret->group = take(&at);
	return ret->parent != 0;
}

static int add(struct procs *ps, const struct proc *p)
{
	if (ps->n == ps->room) {
		size_t room = ps->room ? ps->room * 2 : 256;
		struct proc *q = room > KIN_MAX ? NULL : realloc(ps->p, room * sizeof(*q));

		if (!q)
			return -ENOMEM;
		ps->p = q;
		ps->room = room;
	}
	ps->p[ps->n++] = *p;
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
		struct proc p;

		if (parse_u64(de->d_name, INT32_MAX, &pid) < 0)
			continue;
		if (look((uint32_t)pid, &p))
			r = add(ps, &p);
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
 *
 * by_group: a signal to a process group reaches all of it in one moment, those too that are just being made
 * (fork(2) starts anew when a signal is pending). The session of a call holds nobody else, so neither do its groups.
 */
static bool signal_one(const struct proc *p, uint32_t self, int sig, bool by_group)
{
	OWN_FD fd = (int)syscall(SYS_pidfd_open, (pid_t)p->pid, 0);
	struct proc now;

	if (fd < 0 || !look(p->pid, &now))
		return false;
	if (now.parent != p->parent && now.parent != self)
		return false;
	if (by_group && now.group > 1 && (pid_t)now.group != getpgrp())
		return kill(-(pid_t)now.group, sig) == 0;
	return syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0;
}

/* Groups that got the signal in this pass; a few are enough, since most calls are one group. */
struct groups {
	uint32_t id[16];
	unsigned n;
};

static bool had_it(struct groups *g, uint32_t id)
{
	for (unsigned i = 0; i < g->n && i < 16; i++)
		if (g->id[i] == id)
			return true;
	g->id[g->n++ % 16] = id;
	return false;
}

/* force: by groups, and those that are stopped or dead already are passed over when it is SIGSTOP. */
static int signal_kin(int sig, bool force)
{
	struct procs ps = { 0 };
	struct groups seen = { 0 };
	uint32_t self = (uint32_t)getpid();
	int r, sent = 0;

	r = list(&ps);
	/* What was seen of a list that ran over is signalled all the same. */
	if (ps.n > 0)
		qsort(ps.p, ps.n, sizeof(*ps.p), by_pid);
	for (size_t i = 0; i < ps.n; i++) {
		struct proc *p = &ps.p[i];

		if (sig == SIGSTOP && strchr("TtZX", p->state))
			continue;
		if (!is_kin(&ps, p, self) || (force && had_it(&seen, p->group)))
			continue;
		sent += signal_one(p, self, sig, force);
	}
	free(ps.p);
	return r < 0 && sent == 0 ? r : sent;
}

int kin_signal(int sig)
{
	return signal_kin(sig, false);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * Processes that fork as fast as they are killed would never end: the dead make room for new ones. Stopped ones keep
 * their place and make none, so all are stopped first, until a pass finds nobody moving.
 */
static void stop_all(uint64_t end)
{
	while (now_ms() < end && signal_kin(SIGSTOP, true) > 0)
		;
}

int kin_kill(uint64_t max_ms)
{
	uint64_t begin = now_ms(), end = begin + max_ms;

	for (;;) {
		pid_t pid;

		stop_all(begin + max_ms / 2);
		(void)signal_kin(SIGKILL, true);
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
