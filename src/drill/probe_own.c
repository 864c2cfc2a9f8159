/* SPDX-License-Identifier: Apache-2.0 */
/* Is something there that is the host's own? What is looked for is told by whoever stands outside and can see it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "drill/probe.h"

/* ---- places from which a path of the host could be reached */

typedef bool place_fn(const char *path, void *arg); /* true: found, stop */

struct places {
	const char *path;
	place_fn *fn;
	void *arg;
	unsigned tried;
};

static bool try_place(struct places *p, const char *prefix)
{
	char full[8192];

	if ((size_t)snprintf(full, sizeof(full), "%s%s", prefix, p->path) >= sizeof(full))
		return false;
	p->tried++;
	return p->fn(full, p->arg);
}

/* Mount points as mountinfo writes them: blanks are \040. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((unsigned)(s[1] - '0') << 6 | (unsigned)(s[2] - '0') << 3 | (unsigned)(s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

static bool below_mounts(struct places *p)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	static char line[16384];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *at = line, *word = NULL;

		for (int i = 0; i < 5; i++)
			word = strsep(&at, " ");
		if (!word || strcmp(word, "/") == 0)
			continue;
		unescape(word);
		found = try_place(p, word);
	}
	if (f)
		fclose(f);
	return found;
}

static bool through_processes(struct places *p)
{
	static const char *const links[] = { "root", "cwd", "cwd/../../../../../../../..", "root/../../.." };
	DIR *d = opendir("/proc");
	const struct dirent *ent;
	bool found = false;
	unsigned n = 0;

	while (d && !found && (ent = readdir(d)) && n < 200) {
		char prefix[300];

		if (ent->d_name[0] < '0' || ent->d_name[0] > '9')
			continue;
		n++;
		for (size_t i = 0; i < sizeof(links) / sizeof(links[0]) && !found; i++) {
			snprintf(prefix, sizeof(prefix), "/proc/%.20s/%s", ent->d_name, links[i]);
			found = try_place(p, prefix);
		}
		for (int fd = 0; fd < 8 && !found; fd++) {
			snprintf(prefix, sizeof(prefix), "/proc/%.20s/fd/%d", ent->d_name, fd);
			found = try_place(p, prefix);
		}
	}
	if (d)
		closedir(d);
	return found;
}

/* As it stands, climbing, below every mount, through every process in sight and what it holds open. */
static bool each_place(struct places *p)
{
	return try_place(p, "") || try_place(p, "/../../../../../../../../../..") || below_mounts(p) ||
	       through_processes(p);
}

static int place_verdict(struct places *p, const char *where)
{
	return each_place(p) ? through("%s", where) : refused(ENOENT, "%s, from %u places", p->path, p->tried);
}

/* ---- files */

struct marker {
	char text[512];
	char where[600];
};

static bool has_marker(const char *path, void *arg)
{
	struct marker *m = arg;
	char buf[512];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	snprintf(m->where, sizeof(m->where), "%.500s", path);
	return strcmp(buf, m->text) == 0;
}

static bool from_hex(const char *hex, char *to, size_t room)
{
	size_t len = strlen(hex);

	if (len < 2 || len % 2 || len / 2 >= room)
		return false;
	for (size_t i = 0; i < len; i += 2) {
		char two[3] = { hex[i], hex[i + 1], '\0' }, *end;

		to[i / 2] = (char)strtoul(two, &end, 16);
		if (*end)
			return false;
	}
	to[len / 2] = '\0';
	return true;
}

/* A file with this text, which nobody but its maker knows. Hexadecimal, so that our own arguments aren't a hit. */
static int host_marker(int argc, char **argv)
{
	struct marker m = { 0 };
	struct places p = { .path = argv[0], .fn = has_marker, .arg = &m };

	(void)argc;
	if (!from_hex(argv[1], m.text, sizeof(m.text)))
		return USAGE;
	return place_verdict(&p, m.where);
}

struct looks {
	long long size, sec, nsec;
	char where[600];
};

static bool is_that_file(const char *path, void *arg)
{
	struct looks *l = arg;
	struct stat st;

	if (stat(path, &st) < 0 || st.st_size != l->size || st.st_mtim.tv_sec != l->sec ||
	    st.st_mtim.tv_nsec != l->nsec)
		return false;
	snprintf(l->where, sizeof(l->where), "%.500s", path);
	return true;
}

/* The very file or directory of the host, told by its size and the time of its last change: it isn't opened. */
static int host_file(int argc, char **argv)
{
	struct looks l = { .size = number(argv[1]), .sec = number(argv[2]), .nsec = number(argv[3]) };
	struct places p = { .path = argv[0], .fn = is_that_file, .arg = &l };

	(void)argc;
	return place_verdict(&p, l.where);
}

static bool connects(const char *path, void *arg)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char *where = arg;
	int s, r;

	if (strlen(path) >= sizeof(a.sun_path))
		return false;
	memcpy(a.sun_path, path, strlen(path));
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return false;
	r = connect(s, (struct sockaddr *)&a, sizeof(a));
	close(s);
	if (r < 0)
		return false;
	snprintf(where, 600, "%.500s", path);
	return true;
}

static int host_socket(int argc, char **argv)
{
	char where[600] = "";
	struct places p = { .path = argv[0], .fn = connects, .arg = where };

	(void)argc;
	return place_verdict(&p, where);
}

/* Through when the directory has entries: an empty one over it hides what is there, whoever may read. */
static int entries(int argc, char **argv)
{
	DIR *d = opendir(argv[0]);
	const struct dirent *ent;
	unsigned n = 0;

	(void)argc;
	if (!d)
		return refused(errno, "%s", argv[0]);
	errno = 0;
	while ((ent = readdir(d)))
		n += strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0;
	if (errno) {
		int e = errno;

		closedir(d);
		return refused(e, "reading %s", argv[0]);
	}
	closedir(d);
	return n ? through("%s has %u entries", argv[0], n) : refused(ENODATA, "%s is empty", argv[0]);
}

static unsigned sockets_seen;

static void walk_sockets(const char *dir, unsigned depth)
{
	DIR *d = opendir(dir);
	const struct dirent *ent;

	while (d && (ent = readdir(d))) {
		char path[4096];
		struct stat st;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
		    snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name) >= (int)sizeof(path) ||
		    lstat(path, &st) < 0)
			continue;
		if (S_ISSOCK(st.st_mode)) {
			sockets_seen++;
			printf("%s\n", path);
		} else if (S_ISDIR(st.st_mode) && depth < 3) {
			walk_sockets(path, depth + 1);
		}
	}
	if (d)
		closedir(d);
}

/* Sockets below directories where programs of a host have theirs. */
static int sockets_in(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		walk_sockets(argv[i], 0);
	return sockets_seen ? through("%u sockets", sockets_seen) : refused(ENOENT, "no socket");
}

/* ---- processes */

/* A process with this text among its arguments. */
static int find_process(int argc, char **argv)
{
	DIR *d = opendir("/proc");
	const struct dirent *ent;
	char text[256];
	unsigned n = 0;

	(void)argc;
	if (!from_hex(argv[0], text, sizeof(text)))
		return USAGE;
	while (d && (ent = readdir(d))) {
		char path[300], cmd[4096];
		ssize_t got;
		int fd;

		if (ent->d_name[0] < '0' || ent->d_name[0] > '9')
			continue;
		n++;
		snprintf(path, sizeof(path), "/proc/%.20s/cmdline", ent->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		got = fd < 0 ? -1 : read(fd, cmd, sizeof(cmd));
		if (fd >= 0)
			close(fd);
		if (got > 0 && memmem(cmd, (size_t)got, text, strlen(text))) {
			int r = through("process %.20s", ent->d_name);

			closedir(d);
			return r;
		}
	}
	if (d)
		closedir(d);
	return refused(ESRCH, "none of %u processes in sight", n);
}

/*
 * Does a process of this number exist? Also when it may not be sent signals. Another one that happens to have the
 * number here doesn't count: it is a child of somebody in sight.
 */
static int alive(int argc, char **argv)
{
	pid_t pid = (pid_t)number(argv[0]);
	char path[64];

	(void)argc;
	if (kill(pid, 0) < 0 && errno != EPERM)
		return refused(errno, "process %d", (int)pid);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (argc > 1 && access(path, F_OK) == 0)
		return refused(EEXIST, "process %d is one of our own", (int)pid);
	return through("process %d", (int)pid);
}

/* A process of our own is traced and read: what tracing needs is there. */
static int trace_own(int argc, char **argv)
{
	char pid[16], name[] = "ptrace", *args[] = { name, pid, NULL };
	pid_t child = fork();
	int r;

	(void)argc;
	(void)argv;
	if (child < 0)
		return refused(errno, "fork");
	if (child == 0) {
		pause();
		_exit(0);
	}
	snprintf(pid, sizeof(pid), "%d", (int)child);
	r = probe_verb(2, args);
	kill(child, SIGKILL);
	while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
		;
	return r;
}

/* ---- names, groups, devices, rights */

static int hostname_is(int argc, char **argv)
{
	struct utsname u;

	(void)argc;
	if (uname(&u) < 0)
		return refused(errno, "uname");
	return strcmp(u.nodename, argv[0]) == 0 ? through("this is %s", u.nodename)
						: refused(ENOENT, "this is %s", u.nodename);
}

/* Through when the place in any hierarchy of control groups shows. */
static int cgroup_path(int argc, char **argv)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[4096];

	(void)argc;
	(void)argv;
	while (f && fgets(line, sizeof(line), f)) {
		const char *path = strchr(line, ':');

		line[strcspn(line, "\n")] = '\0';
		path = path ? strchr(path + 1, ':') : NULL;
		if (path && strcmp(path, ":/") != 0) {
			fclose(f);
			return through("%s", path + 1);
		}
	}
	if (!f)
		return refused(errno, "/proc/self/cgroup");
	fclose(f);
	return refused(ENOENT, "every path is /");
}

static bool plain_node(const char *path, const struct stat *st)
{
	static const struct {
		unsigned major, minor;
	} nodes[] = { { 1, 3 }, { 1, 5 }, { 1, 7 }, { 1, 8 }, { 1, 9 }, { 5, 0 }, { 5, 2 } };
	unsigned major = (unsigned)(st->st_rdev >> 8 & 0xfff), minor = (unsigned)(st->st_rdev & 0xff);

	if (S_ISCHR(st->st_mode) && strncmp(path, "/dev/pts/", 9) == 0 && major >= 136 && major <= 143)
		return true;
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
		if (S_ISCHR(st->st_mode) && nodes[i].major == major && nodes[i].minor == minor)
			return true;
	return false;
}

static bool odd_device(const char *dir, unsigned depth, char *ret, size_t n)
{
	DIR *d = opendir(dir);
	const struct dirent *ent;
	bool odd = false;

	while (d && !odd && (ent = readdir(d))) {
		char path[512];
		struct stat st;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0 ||
		    snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name) >= (int)sizeof(path) ||
		    lstat(path, &st) < 0)
			continue;
		if ((S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) && !plain_node(path, &st)) {
			snprintf(ret, n, "%s", path);
			odd = true;
		} else if (S_ISDIR(st.st_mode) && depth < 4) {
			odd = odd_device(path, depth + 1, ret, n);
		}
	}
	if (d)
		closedir(d);
	return odd;
}

/* Through when /dev has more than null, zero, full, random, urandom, tty and pseudo-terminals. */
static int odd_devices(int argc, char **argv)
{
	char path[512];

	(void)argc;
	(void)argv;
	return odd_device("/dev", 0, path, sizeof(path)) ? through("%s", path) : refused(ENOENT, "only the plain ones");
}

/* Who is root of this user namespace, seen from the one around it? Through when it is ID; "here": when there is a root at all. */
static int root_is(int argc, char **argv)
{
	bool here = strcmp(argv[0], "here") == 0;
	unsigned long long in, out, count, id = here ? 0 : (unsigned long long)number(argv[0]);
	FILE *f = fopen("/proc/self/uid_map", "re");
	char line[128];

	(void)argc;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llu %llu %llu", &in, &out, &count) != 3 || in != 0)
			continue;
		fclose(f);
		return here || out == id ? through("root here is %llu", out) : refused(EPERM, "root here is %llu", out);
	}
	if (f)
		fclose(f);
	return refused(ENOENT, "there is no root here");
}

/* Through when the bounding set holds more than these capabilities (hexadecimal). */
static int caps_beyond(int argc, char **argv)
{
	unsigned long long allowed = strtoull(argv[0], NULL, 16), have = 0;
	FILE *f = fopen("/proc/self/status", "re");
	char line[512];

	(void)argc;
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "CapBnd:", 7) == 0)
			have = strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	return have & ~allowed ? through("%016llx", have) : refused(EPERM, "%016llx", have);
}

/* Propagation where it is allowed: in namespaces of our own. */
static int peers_made(int argc, char **argv)
{
	char verb[] = "propagation", *args[] = { verb, NULL };

	(void)argc;
	(void)argv;
	if (mount("none", "/tmp", "tmpfs", 0, NULL) < 0 || mount(NULL, "/tmp", NULL, MS_SHARED, NULL) < 0)
		return refused(errno, "a shared mount");
	return probe_verb(1, args);
}

/* ---- System V IPC: a segment that is found by its key */

static int sysv_see(int argc, char **argv)
{
	(void)argc;
	return verdict(shmget((key_t)number(argv[0]), 0, 0), "the segment");
}

static int sysv_make(int argc, char **argv)
{
	int id = shmget((key_t)number(argv[0]), 4096, IPC_CREAT | IPC_EXCL | 0666);
	int r = verdict(id, "a segment");

	fflush(stdout);
	if (r == THROUGH && argc > 1) {
		sleep((unsigned)number(argv[1]));
		shmctl(id, IPC_RMID, NULL);
	}
	return r;
}

/*
 * A file in memory, mapped and written to. Mapped, because what is only written to is nobody's in the kernel's eyes when it looks for
 * somebody to end.
 */
static int fill_mapped(int argc, char **argv)
{
	long long n = number(argv[0]);
	int fd = memfd_create("drill", MFD_CLOEXEC);
	char *p;

	(void)argc;
	if (fd < 0 || ftruncate(fd, n) < 0)
		return refused(errno, "a file in memory");
	p = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return refused(errno, "a file in memory");
	for (long long i = 0; i < n; i += 4096)
		p[i] = 1;
	return through("%lld bytes", n);
}

/* ---- the processor */

static long long used_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static long long wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Busy for a while: through when this process alone got more than so many thousandths of a processor. */
static int cpu_share(int argc, char **argv)
{
	long long most = number(argv[0]), ms = number(argv[1]), rounds = argc > 2 ? number(argv[2]) : 1, share = 0;
	volatile uint64_t n = 0;

	/* On a busy machine others take their share too: one round of several is enough. */
	while (rounds-- > 0 && share <= most) {
		long long begun = wall_us(), before = used_us();

		while (wall_us() - begun < ms * 1000)
			for (int i = 0; i < 10000; i++)
				n = n + 1;
		share = (used_us() - before) * 1000 / (wall_us() - begun);
	}
	return share > most ? through("%lld thousandths of a processor", share)
			    : refused(EAGAIN, "%lld thousandths of a processor", share);
}

const struct verb verbs_own[] = {
	{ "stage", "TEXT KEY", 2, 2, probe_stage },
	{ "host-marker", "PATH HEX", 2, 2, host_marker },
	{ "host-file", "PATH SIZE MTIME NANOSECONDS", 4, 4, host_file },
	{ "host-socket", "PATH", 1, 1, host_socket },
	{ "entries", "DIR", 1, 1, entries },
	{ "sockets-in", "DIR...", 1, 16, sockets_in },
	{ "find-process", "HEX", 1, 1, find_process },
	{ "alive", "PID [own]", 1, 2, alive },
	{ "trace-own", "", 0, 0, trace_own },
	{ "hostname-is", "NAME", 1, 1, hostname_is },
	{ "cgroup-path", "", 0, 0, cgroup_path },
	{ "odd-devices", "", 0, 0, odd_devices },
	{ "root-is", "ID|here", 1, 1, root_is },
	{ "caps-beyond", "HEX", 1, 1, caps_beyond },
	{ "peers-made", "", 0, 0, peers_made },
	{ "sysv-see", "KEY", 1, 1, sysv_see },
	{ "sysv-make", "KEY [SECONDS]", 1, 2, sysv_make },
	{ "fill-mapped", "BYTES", 1, 1, fill_mapped },
	{ "cpu-share", "THOUSANDTHS MS [ROUNDS]", 2, 3, cpu_share },
	{ 0 },
};
