/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "leak.h"

#define FDS_MAX 1024

static bool fd_was_open[FDS_MAX];
static char dir[128];
static unsigned mounts_before, cgroups_before;

/* Sets open[n] for every descriptor of this process but the one it reads the list with. */
static void list_fds(bool *open_fds)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *ent;

	memset(open_fds, 0, FDS_MAX * sizeof(*open_fds));
	if (!d)
		return;
	while ((ent = readdir(d))) {
		char *end;
		long fd = strtol(ent->d_name, &end, 10);

		if (end != ent->d_name && *end == '\0' && fd >= 0 && fd < FDS_MAX && fd != dirfd(d))
			open_fds[fd] = true;
	}
	closedir(d);
}

static unsigned count_mounts(bool print)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		/* The daemon's own mounts and those of the test; a mount that another program makes is not ours. */
		if (!strstr(line, "cubby") && !(dir[0] && strstr(line, dir)))
			continue;
		n++;
		if (print)
			fprintf(stderr, "  mount: %s", line);
	}
	if (f)
		fclose(f);
	return n;
}

static char pid_word[32];
static unsigned cgroups_seen;
static bool cgroups_print;

static int see_cgroup(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	if (type == FTW_D && strstr(path, "cubby") && strstr(path, pid_word)) {
		cgroups_seen++;
		if (cgroups_print)
			fprintf(stderr, "  cgroup: %s\n", path);
	}
	return ftw->level > 8 ? -1 : 0;
}

static unsigned count_cgroups(bool print)
{
	snprintf(pid_word, sizeof(pid_word), "%ld", (long)getpid());
	cgroups_seen = 0;
	cgroups_print = print;
	nftw("/sys/fs/cgroup", see_cgroup, 16, FTW_PHYS);
	return cgroups_seen;
}

int leak_mark(void **state)
{
	(void)state;
	dir[0] = '\0';
	mounts_before = count_mounts(false);
	cgroups_before = count_cgroups(false);
	list_fds(fd_was_open);
	return 0;
}

const char *leak_dir(void)
{
	const char *tmp = getenv("TMPDIR");

	if (dir[0])
		return dir;
	snprintf(dir, sizeof(dir), "/dev/shm/cubby-test.XXXXXX");
	if (mkdtemp(dir))
		return dir;
	snprintf(dir, sizeof(dir), "%s/cubby-test.XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
	if (mkdtemp(dir))
		return dir;
	dir[0] = '\0';
	return NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	if (ftw->level > 0 && remove(path) < 0)
		return errno;
	return 0;
}

int leak_dir_clear(void)
{
	int r;

	if (!dir[0])
		return 0;
	r = nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return r < 0 ? -errno : -r;
}

static int say_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	if (ftw->level > 0)
		fprintf(stderr, "  file: %s\n", path);
	return 0;
}

int leak_check(void **state)
{
	bool open_now[FDS_MAX];
	unsigned bad = 0, n;
	int status;
	pid_t pid;

	(void)state;
	list_fds(open_now);
	for (int fd = 0; fd < FDS_MAX; fd++) {
		char link[64], target[256];
		ssize_t len;

		if (!open_now[fd] || fd_was_open[fd])
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, target, sizeof(target) - 1);
		target[len < 0 ? 0 : len] = '\0';
		fprintf(stderr, "the test left descriptor %d open: %s\n", fd, target);
		bad++;
	}

	/* Zombies are reaped, so that the next test starts clean; each one is a fault all the same. */
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		fprintf(stderr, "the test left child %d unreaped (wait status %#x)\n", (int)pid, (unsigned)status);
		bad++;
	}
	if (pid == 0) {
		fprintf(stderr, "the test left a running child\n");
		bad++;
	}

	n = count_mounts(false);
	if (n > mounts_before) {
		fprintf(stderr, "the test left %u mounts; there are:\n", n - mounts_before);
		count_mounts(true);
		bad++;
	}
	n = count_cgroups(false);
	if (n > cgroups_before) {
		fprintf(stderr, "the test left %u cgroups; there are:\n", n - cgroups_before);
		count_cgroups(true);
		bad++;
	}

	if (dir[0]) {
		if (rmdir(dir) < 0) {
			fprintf(stderr, "the test's directory %s can't be removed: %s\n", dir, strerror(errno));
			nftw(dir, say_file, 16, FTW_PHYS | FTW_MOUNT);
			(void)leak_dir_clear();
			(void)rmdir(dir);
			bad++;
		}
		dir[0] = '\0';
	}
	return bad ? -1 : 0;
}

void skip_because(const char *fmt, ...)
{
	const char *must = getenv("CUBBY_MUST_RUN");
	va_list ap;

	va_start(ap, fmt);
	fputs("# skip: ", stdout);
	vfprintf(stdout, fmt, ap);
	fputc('\n', stdout);
	fflush(stdout);
	va_end(ap);
	if (must && strcmp(must, "1") == 0)
		_fail(__FILE__, __LINE__);
	_skip(__FILE__, __LINE__);
	abort(); /* both of them jump */
}
