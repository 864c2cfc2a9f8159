/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A PID 1 for the tests of the native engine: seals the box, says that it is ready, and then does small deeds inside,
 * one for each connection: a word, a blank, an argument; the answer is "ERRNO TEXT".
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>

#include "base/parse.h"
#include "guest/seal.h"

static char out[8192];
static size_t out_len;

static void say(const char *s)
{
	size_t n = strlen(s);

	if (n > sizeof(out) - 1 - out_len)
		n = sizeof(out) - 1 - out_len;
	memcpy(out + out_len, s, n);
	out_len += n;
	out[out_len] = '\0';
}

static int do_read(const char *path)
{
	char buf[4096];
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return errno;
	n = read(fd, buf, sizeof(buf) - 1);
	if (n < 0)
		return errno;
	buf[n] = '\0';
	say(buf);
	(void)close(fd);
	return 0;
}

static int do_ls(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return errno;
	while ((e = readdir(d)))
		if (e->d_name[0] != '.') {
			say(e->d_name);
			say(" ");
		}
	(void)closedir(d);
	return 0;
}

static int as_user(const char *arg)
{
	/* UID PATH: make a file as that user. */
	char *end;
	unsigned long uid = strtoul(arg, &end, 10);
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		int fd;

		if (setgid((gid_t)uid) < 0 || setuid((uid_t)uid) < 0)
			_exit(errno);
		fd = open(end + 1, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
		_exit(fd < 0 ? errno : 0);
	}
	return waitpid(pid, &st, 0) == pid && WIFEXITED(st) ? WEXITSTATUS(st) : ECHILD;
}

static int forks(const char *arg)
{
	unsigned long n = strtoul(arg, NULL, 10), i;
	int r = 0;

	for (i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			r = errno;
			break;
		}
		if (pid == 0)
			for (;;)
				(void)pause();
	}
	return r;
}

/* Touch MiB of memory in a child: 0 or the signal that ended it. */
static int eat(const char *arg)
{
	size_t n = strtoul(arg, NULL, 10) << 20;
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		volatile char *p = malloc(n);

		for (size_t i = 0; p && i < n; i += 4096)
			p[i] = 1;
		_exit(p ? 0 : ENOMEM);
	}
	if (waitpid(pid, &st, 0) != pid)
		return ECHILD;
	return WIFSIGNALED(st) ? WTERMSIG(st) : WEXITSTATUS(st);
}

static int deed(const char *word, const char *arg)
{
	struct stat st;
	char text[128];
	int fd;

	if (strcmp(word, "read") == 0)
		return do_read(arg);
	if (strcmp(word, "ls") == 0)
		return do_ls(arg);
	if (strcmp(word, "write") == 0) {
		fd = open(arg, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
		return fd < 0 ? errno : (close(fd), 0);
	}
	if (strcmp(word, "make") == 0) {
		fd = open(arg, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		return fd < 0 ? errno : (close(fd), 0);
	}
	if (strcmp(word, "link") == 0) {	/* TARGET\nNAME */
		char *nl = strchr(arg, '|');

		*nl = '\0';
		return symlink(arg, nl + 1) < 0 ? errno : 0;
	}
	if (strcmp(word, "rm") == 0)
		return unlink(arg) < 0 && rmdir(arg) < 0 ? errno : 0;
	if (strcmp(word, "mkdir") == 0)
		return mkdir(arg, 0755) < 0 ? errno : 0;
	if (strcmp(word, "rename") == 0) {
		char *bar = strchr(arg, '|');

		*bar = '\0';
		return rename(arg, bar + 1) < 0 ? errno : 0;
	}
	if (strcmp(word, "stat") == 0) {
		if (lstat(arg, &st) < 0)
			return errno;
		(void)snprintf(text, sizeof(text), "%o %u %u", st.st_mode, (unsigned)st.st_uid, (unsigned)st.st_gid);
		say(text);
		return 0;
	}
	if (strcmp(word, "setid") == 0)
		return chmod(arg, 04755) < 0 ? errno : 0;
	if (strcmp(word, "as") == 0)
		return as_user(arg);
	if (strcmp(word, "userns") == 0) {
		/* Without the filter's eyes: clone3() with the flag in memory. */
		unsigned long long a[11] = { CLONE_NEWUSER };
		long pid = syscall(435, a, sizeof(a));

		if (pid == 0)
			_exit(0);
		if (pid < 0)
			return errno;
		(void)waitpid((pid_t)pid, NULL, __WALL);
		return 0;
	}
	if (strcmp(word, "remount") == 0)
		return mount(NULL, arg, NULL, MS_REMOUNT | MS_BIND, NULL) < 0 ? errno : 0;
	if (strcmp(word, "fork") == 0)
		return forks(arg);
	if (strcmp(word, "eat") == 0)
		return eat(arg);
	if (strcmp(word, "exit") == 0)
		_exit((int)(strtoul(arg, NULL, 10) & 0xff));
	return ENOTSUP;
}

int main(int argc, char **argv)
{
	bool nesting = false, no_setid = false;
	uint64_t listener = 0, ready = 0;
	struct err e = ERR_INIT;

	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--listen=", 9) == 0)
			(void)parse_u64(argv[i] + 9, 1 << 20, &listener);
		else if (strncmp(argv[i], "--ready=", 8) == 0)
			(void)parse_u64(argv[i] + 8, 1 << 20, &ready);
		nesting |= strcmp(argv[i], "--nesting") == 0;
		no_setid |= strcmp(argv[i], "--no-setid") == 0;
	}
	if (seal_box(nesting, no_setid, 0, &e) < 0 || seal_final(&e) < 0)
		return 1;
	if (write((int)ready, "r", 1) != 1 || close((int)ready) < 0)
		return 2;
	(void)signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int c = accept((int)listener, NULL, NULL);
		char buf[512], code[16], *arg;
		ssize_t n;

		if (c < 0)
			return 3;
		n = read(c, buf, sizeof(buf) - 1);
		if (n > 0) {
			buf[n] = '\0';
			arg = strchr(buf, ' ');
			if (arg)
				*arg++ = '\0';
			out_len = 0;
			out[0] = '\0';
			(void)snprintf(code, sizeof(code), "%d ", deed(buf, arg ? arg : buf + n));
			if (write(c, code, strlen(code)) < 0 || write(c, out, out_len) < 0)
				(void)close(c);
		}
		(void)close(c);
	}
}
