/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step [-f] N -- COMMAND [ARG]...	run it, and kill it at the entry of its N-th system call
 * step [-f] N PID...			the same with processes that run: counted together, the one that gets there is killed
 *
 * -f: what they fork belongs to them. Prints "ready" when it watches, and "killed PID at call NUMBER" when it did it
 * (status 0). Status 3, with "calls COUNT": they ended, or TERM came, before that. N = 0 only counts.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

static volatile sig_atomic_t over;

static void told(int sig)
{
	(void)sig;
	over = 1;
}

static int usage(void)
{
	fprintf(stderr, "usage: step [-f] N (PID... | -- COMMAND [ARG]...)\n");
	return 2;
}

static bool seize(pid_t pid, bool follow)
{
	uintptr_t opts = PTRACE_O_TRACESYSGOOD;

	if (follow)
		opts |= PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
	if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)opts) < 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0) {
		fprintf(stderr, "step: cannot watch %d: %s\n", (int)pid, strerror(errno));
		return false;
	}
	return true;
}

/* Is it at the entry of a call, not at its exit? And of which. */
static bool entering(pid_t pid, unsigned long long *ret_nr)
{
	struct ptrace_syscall_info info = { 0 };

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return false;
	*ret_nr = info.entry.nr;
	return true;
}

static int watch(unsigned long n)
{
	unsigned long calls = 0;
	unsigned long long nr;

	while (!over) {
		int status, sig = 0;
		pid_t pid = waitpid(-1, &status, __WALL);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			break;
		if (!WIFSTOPPED(status))
			continue;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (entering(pid, &nr) && ++calls == n) {
				(void)kill(pid, SIGKILL);
				printf("killed %d at call %llu\n", (int)pid, nr);
				return 0;
			}
		} else if (status >> 16 == PTRACE_EVENT_STOP) {
			int stop = WSTOPSIG(status);

			/* A real stop stays one; everything else is ours, or of a new process. */
			if (stop == SIGSTOP || stop == SIGTSTP || stop == SIGTTIN || stop == SIGTTOU) {
				(void)ptrace(PTRACE_LISTEN, pid, NULL, NULL);
				continue;
			}
		} else if (status >> 16 == 0) {
			sig = WSTOPSIG(status);
		}
		(void)ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(intptr_t)sig);
	}
	printf("calls %lu\n", calls);
	return 3;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = told };
	bool follow = argc > 1 && strcmp(argv[1], "-f") == 0;
	int at = follow ? 2 : 1;
	unsigned long n;
	char *end;

	if (argc < at + 2)
		return usage();
	n = strtoul(argv[at], &end, 10);
	if (*end)
		return usage();
	(void)sigaction(SIGTERM, &sa, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	at++;
	if (strcmp(argv[at], "--") == 0) {
		int go[2];
		pid_t pid;
		char c = 0;

		if (at + 1 >= argc || pipe(go) < 0)
			return usage();
		pid = fork();
		if (pid == 0) {
			close(go[1]);
			(void)!read(go[0], &c, 1);
			close(go[0]);
			execvp(argv[at + 1], argv + at + 1);
			_exit(127);
		}
		if (pid < 0 || !seize(pid, follow))
			return 2;
		(void)!write(go[1], &c, 1);
		close(go[0]);
		close(go[1]);
	} else {
		for (; at < argc; at++)
			if (!seize((pid_t)strtol(argv[at], NULL, 10), follow))
				return 2;
	}
	printf("ready\n");
	return watch(n);
}
