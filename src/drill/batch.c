/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "drill/probe.h"

#define LINE_MAX_LEN 4096
#define ARGS_MAX     40
#define VERB_MS      12000
#define KEPT_MAX     16

static bool apart;
static pid_t kept[KEPT_MAX];
static unsigned nkept;

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

struct child {
	pid_t pid;
	int out;
	char text[400];
	size_t n;
};

/* A child that runs the verb, with its output in a pipe. A process group of its own: what it leaves is ended with it. */
static bool start(struct child *c, int argc, char **argv)
{
	int p[2];

	c->n = 0;
	if (pipe2(p, O_CLOEXEC) < 0)
		return false;
	fflush(stdout);
	c->pid = fork();
	if (c->pid == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC), r;

		setpgid(0, 0);
		/* What one mounts, the next must not see. */
		if (apart)
			(void)unshare(CLONE_NEWNS);
		if (null >= 0)
			dup2(null, 0);
		dup2(p[1], 1);
		dup2(p[1], 2);
		r = probe_verb(argc, argv);
		exit(r);
	}
	close(p[1]);
	if (c->pid < 0) {
		close(p[0]);
		return false;
	}
	setpgid(c->pid, c->pid);
	c->out = p[0];
	return true;
}

/* Keep the last whole line. */
static void take(struct child *c, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (c->n > 0 && c->text[c->n - 1] == '\n')
			c->n = 0;
		if (c->n < sizeof(c->text) - 1)
			c->text[c->n++] = data[i] == '\t' || (data[i] != '\n' && (unsigned char)data[i] < ' ')
						  ? ' '
						  : data[i];
	}
}

/* True: it said something and still runs, or said all. False: the time is over. */
static bool collect(struct child *c, uint64_t end, bool first_line)
{
	for (;;) {
		struct pollfd p = { .fd = c->out, .events = POLLIN };
		uint64_t now = now_us();
		char buf[512];
		ssize_t n;

		if (now >= end || poll(&p, 1, (int)((end - now) / 1000) + 1) == 0)
			return false;
		n = read(c->out, buf, sizeof(buf));
		if (n <= 0)
			return true;
		take(c, buf, (size_t)n);
		if (first_line && c->n > 0 && c->text[c->n - 1] == '\n')
			return true;
	}
}

static void answer(const char *number_of, const char *status, uint64_t us, struct child *c)
{
	if (c->n > 0 && c->text[c->n - 1] == '\n')
		c->n--;
	printf("%s %s %llu %.*s\n", number_of, status, (unsigned long long)us / 1000, (int)c->n, c->text);
	fflush(stdout);
}

static void run_line(const char *number_of, int argc, char **argv, bool keep)
{
	struct child c = { 0 };
	uint64_t begun = now_us(), us;
	char word[16];
	int status = 0;
	bool in_time;

	if (!start(&c, argc, argv)) {
		c.n = (size_t)snprintf(c.text, sizeof(c.text), "%s", errno_name(errno));
		answer(number_of, "none", 0, &c);
		return;
	}
	in_time = collect(&c, begun + VERB_MS * 1000ull, keep);
	us = now_us() - begun;
	if (keep && in_time && waitpid(c.pid, &status, WNOHANG) == 0) {
		if (nkept < KEPT_MAX)
			kept[nkept++] = c.pid;
		answer(number_of, "0", us, &c);
		return; /* its pipe stays open as long as we live */
	}
	/* Who left the group closed the pipe too, or goes with the call. */
	if (!in_time)
		kill(-c.pid, SIGKILL);
	while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR)
		;
	kill(-c.pid, SIGKILL);
	close(c.out);
	if (!in_time)
		snprintf(word, sizeof(word), "late");
	else if (WIFSIGNALED(status))
		snprintf(word, sizeof(word), WTERMSIG(status) == SIGKILL ? "kill" : "signal");
	else
		snprintf(word, sizeof(word), "%d", WEXITSTATUS(status));
	answer(number_of, word, us, &c);
}

int probe_batch(void)
{
	static char line[LINE_MAX_LEN];

	/* As the box's or the caller's limits are; but a killed helper must not end us. */
	signal(SIGPIPE, SIG_IGN);
	while (fgets(line, sizeof(line), stdin)) {
		char *argv[ARGS_MAX + 2], *at = line, *word;
		bool keep = line[0] == '&';
		int argc = 0;

		line[strcspn(line, "\n")] = '\0';
		at += keep;
		while (argc < ARGS_MAX && (word = strsep(&at, "\t")))
			argv[argc++] = word;
		argv[argc] = NULL;
		if (argc < 2)
			continue;
		run_line(argv[0], argc - 1, argv + 1, keep);
	}
	for (unsigned i = 0; i < nkept; i++)
		kill(-kept[i], SIGKILL);
	return 0;
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

int probe_isolate(void)
{
	int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	pid_t pid;

	if (unshare(flags) < 0) {
		if (unshare(flags | CLONE_NEWUSER) < 0)
			return refused(errno, "namespaces for the comparison");
		(void)write_text("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		if (!write_text("/proc/self/uid_map", map))
			return refused(errno, "a user map for the comparison");
		snprintf(map, sizeof(map), "0 %u 1", gid);
		(void)write_text("/proc/self/gid_map", map);
	}
	pid = fork();
	if (pid < 0)
		return refused(errno, "fork");
	if (pid > 0) {
		int status;

		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : REFUSED);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	apart = true;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return refused(errno, "mounts for the comparison");
	return 0;
}
