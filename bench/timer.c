/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timer: time whole processes, from before the spawn until they are reaped, with as little noise of its own as can be.
 *
 *	timer turns RUNS NAME CMD [ARG]... [:: NAME CMD [ARG]...]...
 *		one process at a time, the commands in turns, so that whatever drifts on the machine hits all of them
 *	timer crowd TOTAL AT-ONCE ROUNDS NAME CMD [ARG]... [:: …]...
 *		AT-ONCE processes at a time until TOTAL have run, in ROUNDS shares, the commands in turns
 *
 * "%n" in an argument becomes a number that no other run has. stdin is /dev/null, stdout too; stderr of failures is left as it is.
 * One line for each command, times in microseconds:
 *	NAME median M p10 A p90 B p99 C runs N failed F [rate R]		R: processes per second
 * Exit status 1 when anything failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMANDS_MAX 8
#define ARGS_MAX 64
#define AT_ONCE_MAX 512

struct command {
	const char *name;
	char **argv;
	double *us;
	unsigned runs, failed;
	double busy_us;		/* wall time of its shares of a crowd */
};

static struct command commands[COMMANDS_MAX];
static unsigned ncommands;
static posix_spawn_file_actions_t actions;
static posix_spawnattr_t attr;
static unsigned long number;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "timer: %s: %s\n", what, strerror(errno));
	exit(2);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static pid_t start(const struct command *c)
{
	extern char **environ;
	static char texts[ARGS_MAX][256];
	char *argv[ARGS_MAX + 1];
	pid_t pid;
	int i, r;

	number++;
	for (i = 0; c->argv[i] && i < ARGS_MAX; i++) {
		const char *mark = strstr(c->argv[i], "%n");

		argv[i] = c->argv[i];
		if (mark) {
			snprintf(texts[i], sizeof(texts[i]), "%.*s%d-%lu%s", (int)(mark - c->argv[i]), c->argv[i],
				 (int)getpid(), number, mark + 2);
			argv[i] = texts[i];
		}
	}
	argv[i] = NULL;
	r = posix_spawnp(&pid, argv[0], &actions, &attr, argv, environ);
	if (r) {
		errno = r;
		die(argv[0]);
	}
	return pid;
}

static bool good(int status)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void turns(unsigned runs)
{
	/* The first of each warms caches and daemons, and is not counted. */
	for (unsigned i = 0; i <= runs; i++) {
		for (unsigned k = 0; k < ncommands; k++) {
			struct command *c = &commands[k];
			double t = now_us();
			pid_t pid = start(c);
			int status;

			if (waitpid(pid, &status, 0) < 0)
				die("wait");
			t = now_us() - t;
			if (i == 0 && good(status))
				continue;
			c->failed += !good(status);
			if (i > 0)
				c->us[c->runs++] = t;
		}
	}
}

static void crowd(struct command *c, unsigned total, unsigned at_once)
{
	static struct {
		pid_t pid;
		double t;
	} slots[AT_ONCE_MAX];
	unsigned started = 0, running = 0;
	double began = now_us();

	while (started < total || running) {
		int status;
		pid_t pid;

		while (running < at_once && started < total) {
			slots[running].t = now_us();
			slots[running].pid = start(c);
			running++;
			started++;
		}
		pid = waitpid(-1, &status, 0);
		if (pid < 0)
			die("wait");
		for (unsigned i = 0; i < running; i++) {
			if (slots[i].pid != pid)
				continue;
			c->us[c->runs++] = now_us() - slots[i].t;
			c->failed += !good(status);
			slots[i] = slots[--running];
			break;
		}
	}
	c->busy_us += now_us() - began;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static unsigned parse(const char *text, unsigned least, unsigned most)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (end == text || *end || v < least || v > most) {
		fprintf(stderr, "timer: '%s' is not a number from %u to %u\n", text, least, most);
		exit(2);
	}
	return (unsigned)v;
}

int main(int argc, char **argv)
{
	bool in_turns = argc > 1 && strcmp(argv[1], "turns") == 0;
	unsigned runs, at_once = 1, rounds = 1, failed = 0;
	int at = in_turns ? 3 : 5;

	if (argc < at + 2 || (!in_turns && strcmp(argv[1], "crowd") != 0)) {
		fprintf(stderr, "usage: timer turns RUNS NAME CMD... [:: NAME CMD...]...\n"
				"       timer crowd TOTAL AT-ONCE ROUNDS NAME CMD... [:: NAME CMD...]...\n");
		return 2;
	}
	runs = parse(argv[2], 1, 1000000);
	if (!in_turns) {
		at_once = parse(argv[3], 1, AT_ONCE_MAX);
		rounds = parse(argv[4], 1, 1000);
	}
	while (at < argc) {
		struct command *c = &commands[ncommands];

		if (ncommands == COMMANDS_MAX || at + 1 >= argc)
			return 2;
		ncommands++;
		c->name = argv[at++];
		c->argv = argv + at;
		c->us = calloc(runs + rounds, sizeof(*c->us));
		if (!c->us)
			die("memory");
		while (at < argc && strcmp(argv[at], "::") != 0)
			at++;
		if (at < argc)
			argv[at++] = NULL;
	}
	if (posix_spawn_file_actions_init(&actions) || posix_spawnattr_init(&attr) ||
	    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) ||
	    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0))
		die("spawn attributes");

	if (in_turns) {
		turns(runs);
	} else {
		for (unsigned r = 0; r < rounds; r++) {
			for (unsigned k = 0; k < ncommands; k++)
				crowd(&commands[k], runs / rounds, at_once);
		}
	}
	for (unsigned k = 0; k < ncommands; k++) {
		struct command *c = &commands[k];
		unsigned n = c->runs;

		qsort(c->us, n, sizeof(*c->us), by_size);
		printf("%s median %.0f p10 %.0f p90 %.0f p99 %.0f runs %u failed %u", c->name, c->us[n / 2], c->us[n / 10],
		       c->us[n * 9 / 10], c->us[n * 99 / 100], n, c->failed);
		if (c->busy_us > 0)
			printf(" rate %.1f", n / c->busy_us * 1e6);
		printf("\n");
		failed += c->failed;
	}
	return failed != 0;
}
