/* SPDX-License-Identifier: Apache-2.0 */
/* Looking around. These exit 0 with a report, except where they search for something that should not be there. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "drill/probe.h"

static int copy_file(const char *path)
{
	FILE *f = fopen(path, "re");
	char buf[4096];
	size_t n;

	if (!f)
		return refused(errno, "%s", path);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		fwrite(buf, 1, n, stdout);
	fclose(f);
	return THROUGH;
}

/* Lines of `path` that begin with one of the words, "Word:\tvalue" as "word value". */
static void status_words(const char *path, const char *const *words, const char *prefix)
{
	FILE *f = fopen(path, "re");
	char line[4096];

	while (f && fgets(line, sizeof(line), f)) {
		for (size_t i = 0; words[i]; i++) {
			size_t n = strlen(words[i]);

			if (strncmp(line, words[i], n) == 0 && line[n] == ':')
				printf("%s%s %s", prefix, words[i], line + n + 1 + strspn(line + n + 1, " \t"));
		}
	}
	if (f)
		fclose(f);
}

static int caps(int argc, char **argv)
{
	static const char *const words[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", NULL };

	(void)argc;
	(void)argv;
	status_words("/proc/self/status", words, "");
	return THROUGH;
}

static bool is_number(const char *s)
{
	for (const char *p = s; *p; p++) {
		if (!isdigit((unsigned char)*p))
			return false;
	}
	return *s != '\0';
}

/* Calls fn(path, arg) for every entry of `dir` that is a number. */
static void each_number(const char *dir, void (*fn)(const char *path, void *arg), void *arg)
{
	DIR *d = opendir(dir);
	const struct dirent *ent;

	while (d && (ent = readdir(d))) {
		char path[512];

		if (!is_number(ent->d_name) || snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name) >= (int)sizeof(path))
			continue;
		fn(path, arg);
	}
	if (d)
		closedir(d);
}

static void thread_mode(const char *path, void *arg)
{
	static const char *const words[] = { "Seccomp", "Seccomp_filters", "NoNewPrivs", NULL };
	char file[600], prefix[600];

	(void)arg;
	snprintf(file, sizeof(file), "%s/status", path);
	snprintf(prefix, sizeof(prefix), "%s ", path + strlen("/proc/"));
	status_words(file, words, prefix);
}

static void process_mode(const char *path, void *arg)
{
	char tasks[600];

	snprintf(tasks, sizeof(tasks), "%s/task", path);
	each_number(tasks, thread_mode, arg);
}

/* "PID/task/TID Seccomp 2", every thread of every process. */
static int seccomp_mode(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	each_number("/proc", process_mode, NULL);
	return THROUGH;
}

static void process_line(const char *path, void *arg)
{
	char file[600], cmd[256];
	ssize_t n;
	int fd;
	(void)arg;

	snprintf(file, sizeof(file), "%s/cmdline", path);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, cmd, sizeof(cmd) - 1);
	if (fd >= 0)
		close(fd);
	for (ssize_t i = 0; i < n; i++)
		cmd[i] = isprint((unsigned char)cmd[i]) ? cmd[i] : ' ';
	cmd[n < 0 ? 0 : n] = '\0';
	/* A process without a command line is a kernel thread or a zombie. */
	printf("%s %s\n", path + strlen("/proc/"), n > 0 ? cmd : "[none]");
}

static int pids(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	each_number("/proc", process_line, NULL);
	return THROUGH;
}

static int nsids(int argc, char **argv)
{
	static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[64], target[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%s/ns/%s", argc > 0 ? argv[0] : "self", names[i]);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0) {
			printf("%s none %s\n", names[i], errno_name(errno));
			continue;
		}
		target[n] = '\0';
		printf("%s %s\n", names[i], target);
	}
	return THROUGH;
}

static void fd_line(const char *path, void *arg)
{
	char target[512];
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	const int *skip = arg;

	if (n < 0 || (int)strtol(strrchr(path, '/') + 1, NULL, 10) == *skip)
		return;
	target[n] = '\0';
	printf("%s %s\n", strrchr(path, '/') + 1, target);
}

/* "FD TARGET": of this process, or of PID. */
static int fds(int argc, char **argv)
{
	char dir[64];
	DIR *d;
	const struct dirent *ent;

	snprintf(dir, sizeof(dir), "/proc/%s/fd", argc > 0 ? argv[0] : "self");
	d = opendir(dir);
	if (!d)
		return refused(errno, "%s", dir);
	while ((ent = readdir(d))) {
		int own = argc > 0 ? -1 : dirfd(d);
		char path[512];

		if (!is_number(ent->d_name) || snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name) >= (int)sizeof(path))
			continue;
		fd_line(path, &own);
	}
	closedir(d);
	return THROUGH;
}

static int ids(int argc, char **argv)
{
	static const char *const words[] = { "Uid", "Gid", "Groups", NULL };
	static const char *const maps[] = { "uid_map", "gid_map" };

	(void)argc;
	(void)argv;
	status_words("/proc/self/status", words, "");
	for (int i = 0; i < 2; i++) {
		char path[64], line[256];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/%s", maps[i]);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			printf("%s %s", maps[i], line);
		if (f)
			fclose(f);
	}
	return copy_file("/proc/self/setgroups");
}

/* "@NAME" of every abstract socket in sight. Refused when there is none. */
static int abstract_sockets(int argc, char **argv)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[512];
	unsigned n = 0;

	(void)argc;
	(void)argv;
	while (f && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, " @");

		if (!at)
			continue;
		fputs(at + 1, stdout);
		n++;
	}
	if (f)
		fclose(f);
	return n ? through("%u abstract sockets", n) : refused(ENOENT, "no abstract socket in sight");
}

static int abstract_socket(const char *name, bool listens)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t n = strlen(name);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len;

	if (n >= sizeof(addr.sun_path))
		n = sizeof(addr.sun_path) - 1;
	memcpy(addr.sun_path + 1, name, n);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	if (s < 0)
		return -1;
	if (listens)
		return bind(s, (struct sockaddr *)&addr, len) < 0 ? -1 : listen(s, 1);
	return connect(s, (struct sockaddr *)&addr, len);
}

static int abstract_listen(int argc, char **argv)
{
	int r = verdict(abstract_socket(argv[0], true), argv[0]);

	fflush(stdout);
	if (r == THROUGH && argc > 1)
		sleep((unsigned)number(argv[1]));
	return r;
}

static int abstract_connect(int argc, char **argv)
{
	(void)argc;
	return verdict(abstract_socket(argv[0], false), argv[0]);
}

static int path_socket(const char *path, bool listens)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || strlen(path) >= sizeof(addr.sun_path))
		return -1;
	memcpy(addr.sun_path, path, strlen(path));
	if (listens)
		return bind(s, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -1 : listen(s, 1);
	return connect(s, (struct sockaddr *)&addr, sizeof(addr));
}

static int unix_listen(int argc, char **argv)
{
	int r = verdict(path_socket(argv[0], true), argv[0]);

	fflush(stdout);
	if (r == THROUGH && argc > 1)
		sleep((unsigned)number(argv[1]));
	return r;
}

static int unix_connect(int argc, char **argv)
{
	(void)argc;
	return verdict(path_socket(argv[0], false), argv[0]);
}

static void dev_walk(const char *dir, unsigned depth)
{
	DIR *d = opendir(dir);
	const struct dirent *ent;

	while (d && (ent = readdir(d))) {
		char path[512];
		struct stat st;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
		    snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name) >= (int)sizeof(path) || lstat(path, &st) < 0)
			continue;
		if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
			printf("%c %s %u:%u\n", S_ISCHR(st.st_mode) ? 'c' : 'b', path, (unsigned)(st.st_rdev >> 8 & 0xfff),
			       (unsigned)(st.st_rdev & 0xff));
		else if (S_ISDIR(st.st_mode) && depth < 4)
			dev_walk(path, depth + 1);
	}
	if (d)
		closedir(d);
}

static int dev_list(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	dev_walk("/dev", 0);
	return THROUGH;
}

/* "shared:N", "master:N" of any mount: through when there is one. */
static int propagation(int argc, char **argv)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	unsigned n = 0;

	(void)argc;
	(void)argv;
	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, " shared:") && !strstr(line, " master:"))
			continue;
		fputs(line, stdout);
		n++;
	}
	if (f)
		fclose(f);
	return n ? through("%u mounts with peers", n) : refused(ENOENT, "no mount has peers");
}

static int mounts(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return copy_file("/proc/self/mountinfo");
}

/* ---- the search for a marker */

struct search {
	uint8_t marker[256];
	size_t n;
	unsigned long files, bytes, found;
	unsigned long files_max;
	dev_t root_dev;
	ino_t root_ino;
};

static bool search_fd(struct search *s, int fd)
{
	static uint8_t buf[65536 + 256];
	size_t have = 0;
	unsigned long total = 0;
	ssize_t r;

	while ((r = read(fd, buf + have, sizeof(buf) - have)) > 0) {
		have += (size_t)r;
		s->bytes += (unsigned long)r;
		total += (unsigned long)r;
		if (memmem(buf, have, s->marker, s->n))
			return true;
		if (have >= s->n) {
			memmove(buf, buf + have - (s->n - 1), s->n - 1);
			have = s->n - 1;
		}
		if (total > 64ul << 20)
			break;
	}
	return false;
}

static void search_file(struct search *s, int dir, const char *name, const char *path)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return;
	s->files++;
	if (search_fd(s, fd)) {
		printf("found in %s\n", path);
		s->found++;
	}
	close(fd);
}

static void search_dir(struct search *s, int dir_fd, const char *path, unsigned depth)
{
	DIR *d;
	const struct dirent *ent;

	d = fdopendir(dir_fd);
	if (!d) {
		close(dir_fd);
		return;
	}
	while (s->files < s->files_max && (ent = readdir(d))) {
		char sub[4096];
		struct stat st;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
		    snprintf(sub, sizeof(sub), "%s/%s", path, ent->d_name) >= (int)sizeof(sub) ||
		    fstatat(dirfd(d), ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode)) {
			search_file(s, dirfd(d), ent->d_name, sub);
		} else if (S_ISLNK(st.st_mode)) {
			char target[512];
			ssize_t n = readlinkat(dirfd(d), ent->d_name, target, sizeof(target));

			if (n > 0 && memmem(target, (size_t)n, s->marker, s->n)) {
				printf("found in the link %s\n", sub);
				s->found++;
			}
		} else if (S_ISDIR(st.st_mode) && depth < 64) {
			int fd;

			/* Names tell as well. /proc is looked at below, /sys has no files of anybody. */
			if (strcmp(sub, "/proc") == 0 || strcmp(sub, "/sys") == 0)
				continue;
			fd = openat(dirfd(d), ent->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
			if (fd >= 0)
				search_dir(s, fd, sub, depth + 1);
		}
		if (memmem(ent->d_name, strlen(ent->d_name), s->marker, s->n)) {
			printf("found as the name %s\n", sub);
			s->found++;
		}
	}
	closedir(d);
}

static void search_process(const char *path, void *arg)
{
	static const char *const files[] = { "environ", "cmdline", "mountinfo", "maps", "cgroup" };
	static const char *const dirs[] = { "root", "cwd" };
	struct search *s = arg;
	char sub[600];
	struct stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(sub, sizeof(sub), "%s/%s", path, files[i]);
		search_file(s, AT_FDCWD, sub, sub);
	}
	for (size_t i = 0; i < 2; i++) {
		int fd;

		snprintf(sub, sizeof(sub), "%s/%s", path, dirs[i]);
		/* Our own root was walked already. */
		if (stat(sub, &st) < 0 || (st.st_dev == s->root_dev && st.st_ino == s->root_ino))
			continue;
		fd = open(sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0)
			search_dir(s, fd, sub, 0);
	}
	snprintf(sub, sizeof(sub), "%s/fd", path);
	{
		int fd = open(sub, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			search_dir(s, fd, sub, 63);
	}
}

/*
 * The marker comes as hexadecimal digits, so that our own command line isn't a hit. Everything that can be read: files,
 * names, links, and of each process in sight the root, the working directory, environment and command line.
 */
static int find_marker(int argc, char **argv)
{
	struct search s = { .files_max = 2000000 };
	const char *start = argc > 1 ? argv[1] : "/";
	size_t len = strlen(argv[0]);
	struct stat st;
	int fd;

	if (len < 8 || len % 2 || len / 2 > sizeof(s.marker)) {
		fprintf(stderr, "probe: the marker is 4 to 256 bytes as hexadecimal digits\n");
		return USAGE;
	}
	for (size_t i = 0; i < len; i += 2) {
		char two[3] = { argv[0][i], argv[0][i + 1], '\0' }, *end;

		s.marker[i / 2] = (uint8_t)strtoul(two, &end, 16);
		if (*end)
			return USAGE;
	}
	s.n = len / 2;
	if (stat("/", &st) == 0) {
		s.root_dev = st.st_dev;
		s.root_ino = st.st_ino;
	}
	fd = open(start, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		search_dir(&s, fd, strcmp(start, "/") == 0 ? "" : start, 0);
	if (strcmp(start, "/") == 0)
		each_number("/proc", search_process, &s);
	if (s.found)
		return through("%lu times in %lu files", s.found, s.files);
	return refused(ENOENT, "nowhere in %lu files, %lu bytes", s.files, s.bytes);
}

/* A helper of the host must have no host object behind its links. "PID exe TARGET". */
static void exe_line(const char *path, void *arg)
{
	static const char *const links[] = { "exe", "cwd", "root" };

	(void)arg;
	for (size_t i = 0; i < 3; i++) {
		char sub[600], target[512];
		ssize_t n;

		snprintf(sub, sizeof(sub), "%s/%s", path, links[i]);
		n = readlink(sub, target, sizeof(target) - 1);
		if (n < 0)
			snprintf(target, sizeof(target), "(%s)", errno_name(errno));
		else
			target[n] = '\0';
		printf("%s %s %s\n", path + strlen("/proc/"), links[i], target);
	}
}

static int links(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	each_number("/proc", exe_line, NULL);
	return THROUGH;
}

static int arguments(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		for (const char *p = argv[i]; *p; p++) {
			if (isprint((unsigned char)*p) && *p != '\\')
				putchar(*p);
			else
				printf("\\x%02x", (unsigned char)*p);
		}
		putchar('\n');
	}
	return THROUGH;
}

static int environment(int argc, char **argv)
{
	extern char **environ;

	(void)argc;
	(void)argv;
	for (char **e = environ; *e; e++)
		printf("%s\n", *e);
	return THROUGH;
}

static int terminal(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	for (int fd = 0; fd < 3; fd++) {
		struct stat st;
		const char *kind = "closed";

		if (fstat(fd, &st) == 0)
			kind = isatty(fd) ? "tty" : S_ISFIFO(st.st_mode) ? "pipe" : S_ISSOCK(st.st_mode) ? "socket" :
			       S_ISREG(st.st_mode) ? "file" : S_ISCHR(st.st_mode) ? "char" : "other";
		printf("%d %s\n", fd, kind);
	}
	printf("session %d leader %d\n", (int)getsid(0), getsid(0) == getpid());
	return THROUGH;
}

const struct verb verbs_look[] = {
	{ "caps", "", 0, 0, caps },
	{ "seccomp-mode", "", 0, 0, seccomp_mode },
	{ "pids", "", 0, 0, pids },
	{ "nsids", "[PID]", 0, 1, nsids },
	{ "fds", "[PID]", 0, 1, fds },
	{ "ids", "", 0, 0, ids },
	{ "abstract-sockets", "", 0, 0, abstract_sockets },
	{ "abstract-listen", "NAME [SECONDS]", 1, 2, abstract_listen },
	{ "abstract-connect", "NAME", 1, 1, abstract_connect },
	{ "unix-listen", "PATH [SECONDS]", 1, 2, unix_listen },
	{ "unix-connect", "PATH", 1, 1, unix_connect },
	{ "dev-list", "", 0, 0, dev_list },
	{ "propagation", "", 0, 0, propagation },
	{ "mounts", "", 0, 0, mounts },
	{ "find-marker", "HEX [DIR]", 1, 2, find_marker },
	{ "links", "", 0, 0, links },
	{ "args", "[ARG]...", 0, 1000, arguments },
	{ "env", "", 0, 0, environment },
	{ "terminal", "", 0, 0, terminal },
	{ 0 },
};
