/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lab: run a test on a throw-away machine, and say what it left behind.
 *
 *	lab [--as root|user|userns] [--seconds N] [--bind SRC:NAME]... -- COMMAND [ARG]...
 *
 * COMMAND runs below a small init in mount, pid, network (loopback only), ipc, uts and cgroup namespaces of its own; its
 * cgroups are a subtree of each hierarchy, seen as the whole. In its environment LAB is a directory on an empty tmpfs;
 * SRC is visible as LAB/NAME (so that an ordinary user reaches a source tree below a closed home). /run is empty. The users
 * ann (20001) and bob (20002) exist, with ranges of ids in /etc/subuid and a home and a runtime directory in LAB.
 *
 *	--as root	uid 0 of the host
 *	--as user	ann, nothing delegated
 *	--as userns	uid 0 of a user namespace with 200,000 ids, cgroups delegated: an unprivileged system container
 *
 * When COMMAND is over, or after N seconds (120), the processes, mounts, cgroups and the run directory (LAB/run) are looked at. Ends with
 * one line on stdout, "ok - left nothing behind" or "not ok - left something behind", after "# left: …" lines.
 * Exit status: COMMAND's own (128 + signal), 124 when it was ended for its time, 125 when the lab could not be made.
 * Needs root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANN 20001
#define BOB 20002
#define NS_BASE 200000
#define NS_IDS 200000
#define GROUPS_MAX 32
#define BINDS_MAX 8
#define MOUNTS_TEXT (1 << 20)

enum as { AS_ROOT, AS_USER, AS_USERNS };

struct hierarchy {
	char mount[256];	/* where it is mounted */
	char dir[600];		/* our subtree, as seen from outside */
	bool v2;
};

static struct hierarchy groups[GROUPS_MAX];
static unsigned ngroups;
static char lab[64];
static char *mounts_before, *mounts_after;

static _Noreturn void die(const char *doing)
{
	fprintf(stderr, "lab: %s: %s\n", doing, strerror(errno));
	_exit(125);
}

static void must(bool ok, const char *doing)
{
	if (!ok)
		die(doing);
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* This process's path in the v1 hierarchy with `controllers` ("cpu,cpuacct", "name=systemd"); "" when it is the root. */
static void own_group(const char *controllers, char *ret, size_t n)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[1024];

	ret[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		line[strcspn(line, "\n")] = '\0';
		if (!path)
			continue;
		*path++ = '\0';
		if (strcmp(names + 1, controllers) == 0 && strcmp(path, "/") != 0)
			snprintf(ret, n, "%s", path);
	}
	if (f)
		fclose(f);
}

static bool groups_known(const char *mount_point)
{
	for (unsigned i = 0; i < ngroups; i++) {
		if (strcmp(groups[i].mount, mount_point) == 0)
			return true;
	}
	return false;
}

/*
 * A subtree in every hierarchy. In v1 below the group that we are in, so that limits put on us hold; in v2 below the root,
 * because a group that has processes (ours) can't give controllers to its children.
 */
static void groups_make(void)
{
	FILE *f = fopen("/proc/self/mounts", "re");
	char line[2048], at[256], type[64], options[1024];

	must(f, "reading /proc/self/mounts");
	while (fgets(line, sizeof(line), f) && ngroups < GROUPS_MAX) {
		struct hierarchy *h = &groups[ngroups];
		char own[256] = "", *names = options;

		if (sscanf(line, "%*s %255s %63s %1023s", at, type, options) != 3)
			continue;
		h->v2 = strcmp(type, "cgroup2") == 0;
		if (!h->v2 && strcmp(type, "cgroup") != 0)
			continue;
		if (groups_known(at)) /* one on top of the other, as in a lab */
			continue;
		if (!h->v2) {
			/* "rw,relatime,cpu,cpuacct": what follows the general options names the hierarchy. */
			while (strncmp(names, "rw,", 3) == 0 || strncmp(names, "nosuid,", 7) == 0 ||
			       strncmp(names, "nodev,", 6) == 0 || strncmp(names, "noexec,", 7) == 0 ||
			       strncmp(names, "relatime,", 9) == 0 || strncmp(names, "noatime,", 8) == 0 ||
			       strncmp(names, "xattr,", 6) == 0 || strncmp(names, "release_agent=", 14) == 0) {
				names = strchr(names, ',') + 1;
			}
			own_group(names, own, sizeof(own));
		}
		snprintf(h->mount, sizeof(h->mount), "%s", at);
		snprintf(h->dir, sizeof(h->dir), "%s%s/cubby-lab-%ld", at, own, (long)getpid());
		/* One that can't be written (a container's) isn't ours to test with either. */
		if (mkdir(h->dir, 0755) < 0 && errno != EEXIST)
			continue;
		/* cpuset groups of v1 take no process before they are given CPUs and memory. */
		for (unsigned i = 0; !h->v2 && i < 2; i++) {
			static const char *const files[] = { "cpuset.cpus", "cpuset.mems" };
			char from[PATH_MAX], to[PATH_MAX], text[256];
			int fd;
			ssize_t len;

			snprintf(from, sizeof(from), "%s%s/%s", at, own, files[i]);
			snprintf(to, sizeof(to), "%s/%s", h->dir, files[i]);
			fd = open(from, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				continue;
			len = read(fd, text, sizeof(text) - 1);
			text[len < 0 ? 0 : len] = '\0';
			close(fd);
			(void)write_text(to, text);
		}
		ngroups++;
	}
	fclose(f);
}

static void groups_enter(pid_t pid)
{
	char path[PATH_MAX], text[32];

	snprintf(text, sizeof(text), "%ld", (long)pid);
	for (unsigned i = 0; i < ngroups; i++) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", groups[i].dir);
		must(write_text(path, text), path);
	}
}

/* Remove the groups below `dir`, deepest first; `say` names them. Returns how many there were. */
static unsigned groups_below(const char *dir, bool say, bool top)
{
	unsigned n = 0;
	DIR *d = opendir(dir);
	const struct dirent *ent;

	while (d && (ent = readdir(d))) {
		char sub[PATH_MAX];

		if (ent->d_type != DT_DIR || ent->d_name[0] == '.' || (top && strcmp(ent->d_name, "lab-leaf") == 0))
			continue;
		if (snprintf(sub, sizeof(sub), "%s/%s", dir, ent->d_name) >= (int)sizeof(sub))
			continue;
		if (say)
			printf("# left: cgroup %s\n", sub);
		n += 1 + groups_below(sub, say, false);
		(void)rmdir(sub);
	}
	if (d)
		closedir(d);
	return n;
}

static void groups_remove(void)
{
	for (unsigned i = 0; i < ngroups; i++) {
		char leaf[PATH_MAX];

		snprintf(leaf, sizeof(leaf), "%s/lab-leaf", groups[i].dir);
		(void)groups_below(groups[i].dir, false, true);
		(void)rmdir(leaf);
		/* The kernel lets go of the last process a moment after it was reaped. */
		for (int tries = 0; rmdir(groups[i].dir) < 0 && errno == EBUSY && tries < 100; tries++)
			usleep(10000);
	}
}

static void chown_tree(const char *dir, uid_t uid, unsigned depth)
{
	DIR *d = opendir(dir);
	const struct dirent *ent;

	(void)!chown(dir, uid, uid);
	while (d && (ent = readdir(d))) {
		char sub[PATH_MAX];

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (snprintf(sub, sizeof(sub), "%s/%s", dir, ent->d_name) >= (int)sizeof(sub))
			continue;
		if (ent->d_type == DT_DIR && depth < 3)
			chown_tree(sub, uid, depth + 1);
		else
			(void)!chown(sub, uid, uid);
	}
	if (d)
		closedir(d);
}

static char *mounts_text(char *text)
{
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t r;

	must(fd >= 0, "reading the mounts");
	while ((r = read(fd, text + n, MOUNTS_TEXT - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = '\0';
	close(fd);
	return text;
}

static unsigned mounts_left(void)
{
	unsigned left = 0;
	char *save, *line;

	mounts_text(mounts_after);
	for (line = strtok_r(mounts_after, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (!strstr(mounts_before, line)) {
			printf("# left: mount %s\n", line);
			left++;
		}
	}
	return left;
}

static unsigned processes_left(void)
{
	unsigned left = 0;
	DIR *d = opendir("/proc");
	const struct dirent *ent;

	while (d && (ent = readdir(d))) {
		char path[300], text[512];
		ssize_t n;
		int fd;

		if (ent->d_name[0] < '1' || ent->d_name[0] > '9' || strcmp(ent->d_name, "1") == 0)
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", ent->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		for (ssize_t i = 0; i < n; i++)
			text[i] = text[i] < ' ' ? ' ' : text[i];
		text[n < 0 ? 0 : n] = '\0';
		printf("# left: process %s %s\n", ent->d_name, text);
		left++;
	}
	if (d)
		closedir(d);
	return left;
}

static unsigned run_dir_left(void)
{
	char path[128];
	unsigned left = 0;
	DIR *d;
	const struct dirent *ent;

	snprintf(path, sizeof(path), "%s/run/boxes", lab);
	d = opendir(path);
	while (d && (ent = readdir(d))) {
		if (ent->d_name[0] == '.')
			continue;
		printf("# left: %s/%s\n", path, ent->d_name);
		left++;
	}
	if (d)
		closedir(d);
	return left;
}

/* A copy of `file` with `more` at its end, seen instead of it. */
static void amend(const char *file, const char *more)
{
	static unsigned number;
	char copy[128], buf[65536];
	int in = open(file, O_RDONLY | O_CLOEXEC), out;
	ssize_t n;

	if (in < 0)
		return;
	snprintf(copy, sizeof(copy), "%s/etc/%u", lab, number++);
	out = open(copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	must(out >= 0, copy);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		must(write(out, buf, (size_t)n) == n, copy);
	must(write(out, more, strlen(more)) == (ssize_t)strlen(more), copy);
	close(in);
	close(out);
	must(mount(copy, file, NULL, MS_BIND, NULL) == 0, file);
}

static void dir_for(const char *name, uid_t uid, mode_t mode)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", lab, name);
	must(mkdir(path, mode) == 0 && chmod(path, mode) == 0 && chown(path, uid, uid) == 0, path);
}

/* A device of the caller's /dev is not changed; /dev/shm is an own one, so that nothing of a test stays there. */
static void world_make(enum as as, const char *const *binds, unsigned nbinds)
{
	uid_t owner = as == AS_USER ? ANN : as == AS_USERNS ? NS_BASE : 0;
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	char path[PATH_MAX], more[256];
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "making the mounts private");
	must(unshare(CLONE_NEWCGROUP) == 0, "a cgroup namespace");
	for (unsigned i = 0; i < ngroups; i++) {
		/* In the place of the whole, not on top of it: one hierarchy, one mount, as in a container. */
		must(mount(groups[i].dir, lab, NULL, MS_BIND, NULL) == 0 && umount2(groups[i].mount, MNT_DETACH) == 0 &&
		     mount(lab, groups[i].mount, NULL, MS_MOVE, NULL) == 0, groups[i].dir);
		if (groups[i].v2) {
			static const char *const controllers[] = { "+memory", "+pids", "+cpu", "+io" };

			snprintf(path, sizeof(path), "%s/lab-leaf", groups[i].mount);
			must(mkdir(path, 0755) == 0, path);
			snprintf(path, sizeof(path), "%s/lab-leaf/cgroup.procs", groups[i].mount);
			must(write_text(path, "1"), path);
			snprintf(path, sizeof(path), "%s/cgroup.subtree_control", groups[i].mount);
			for (unsigned k = 0; k < 4; k++)
				(void)write_text(path, controllers[k]);
		}
		if (as == AS_USERNS)
			chown_tree(groups[i].mount, NS_BASE, 0);
	}
	must(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0, "mounting /proc");
	must(mount("tmpfs", lab, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4g") == 0, lab);
	must(mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256m") == 0, "mounting /run");
	must(mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0, "mounting /dev/shm");
	must(s >= 0 && ioctl(s, SIOCSIFFLAGS, &lo) == 0, "bringing up the loopback interface");
	close(s);

	dir_for("etc", 0, 0755);
	amend("/etc/passwd", "ann:x:20001:20001:Ann:/nonexistent:/bin/sh\nbob:x:20002:20002:Bob:/nonexistent:/bin/sh\n");
	amend("/etc/group", "ann:x:20001:\nbob:x:20002:\n");
	/* The names of the ranges are the users'; root's line, if any, stays the machine's. */
	snprintf(more, sizeof(more), "ann:600000:65536\nbob:700000:65536\n");
	amend("/etc/subuid", more);
	amend("/etc/subgid", more);
	dir_for("home", owner, 0700);
	dir_for("home-ann", ANN, 0700);
	dir_for("home-bob", BOB, 0700);
	dir_for("xdg", owner, 0700);
	dir_for("xdg-ann", ANN, 0700);
	dir_for("xdg-bob", BOB, 0700);
	dir_for("state", owner, 0700);
	dir_for("run", owner, 0755);
	dir_for("work", owner, 0755);
	dir_for("tmp", 0, 01777);
	for (unsigned i = 0; i < nbinds; i++) {
		char src[PATH_MAX];
		const char *colon = strrchr(binds[i], ':');

		must(colon && (size_t)(colon - binds[i]) < sizeof(src), "reading --bind SRC:NAME");
		memcpy(src, binds[i], (size_t)(colon - binds[i]));
		src[colon - binds[i]] = '\0';
		snprintf(path, sizeof(path), "%s/%s", lab, colon + 1);
		must(mkdir(path, 0755) == 0 && mount(src, path, NULL, MS_BIND, NULL) == 0, path);
	}
}

static void env_set(const char *name, const char *below)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s%s", lab, below[0] ? "/" : "", below);
	must(setenv(name, path, 1) == 0, "setting the environment");
}

/* The test itself. go: readable when the maps of its user namespace are written. */
static _Noreturn void run_command(enum as as, char **argv, int ready_wr, int go_rd)
{
	static const char *const names[] = { "root", "user", "userns" };
	sigset_t none;
	char c = 0;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	must(setpgid(0, 0) == 0, "a process group");
	if (as == AS_USER) {
		must(setgroups(0, NULL) == 0 && setresgid(ANN, ANN, ANN) == 0 && setresuid(ANN, ANN, ANN) == 0,
		     "becoming ann");
	} else if (as == AS_USERNS) {
		must(unshare(CLONE_NEWUSER) == 0, "a user namespace");
		must(write(ready_wr, &c, 1) == 1 && read(go_rd, &c, 1) == 1, "the maps of the user namespace");
		must(setgroups(0, NULL) == 0 && setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0, "becoming its root");
		must(unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) == 0,
		     "namespaces below it");
	}
	/* Changing ids makes a process undumpable, and with it /proc/self root's. */
	prctl(PR_SET_DUMPABLE, 1);
	env_set("LAB", "");
	env_set("HOME", "home");
	env_set("XDG_RUNTIME_DIR", "xdg");
	env_set("TMPDIR", "tmp");
	env_set("CUBBY_STATE_DIR", "state");
	env_set("CUBBY_RUN_DIR", "run");
	env_set("CUBBY_CONFIG", "cubby.conf");
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("XDG_STATE_HOME");
	must(setenv("LAB_AS", names[as], 1) == 0, "setting the environment");
	must(chdir(lab) == 0 && chdir("work") == 0, lab);
	execvp(argv[0], argv);
	die(argv[0]);
}

static void maps_write(pid_t pid)
{
	char path[64], map[64];

	snprintf(map, sizeof(map), "0 %u %u\n", NS_BASE, NS_IDS);
	snprintf(path, sizeof(path), "/proc/%ld/uid_map", (long)pid);
	must(write_text(path, map), path);
	snprintf(path, sizeof(path), "/proc/%ld/gid_map", (long)pid);
	must(write_text(path, map), path);
}

/* Waits for `pid` and reaps everything else meanwhile. Returns the exit status, 124 when the time was over. */
static int reap_until(pid_t pid, uint64_t deadline)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	must(fd >= 0, "signalfd");
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		struct signalfd_siginfo info;
		uint64_t now = now_ms();
		int status;
		pid_t ended;

		while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
			if (ended != pid)
				continue;
			close(fd);
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		if (now >= deadline) {
			close(fd);
			return 124;
		}
		if (poll(&p, 1, (int)(deadline - now)) > 0)
			(void)!read(fd, &info, sizeof(info));
	}
}

static int lab_init(enum as as, unsigned seconds, const char *const *binds, unsigned nbinds, char **argv)
{
	int ready[2], go[2], status;
	unsigned left;
	char c = 0;
	sigset_t set;
	pid_t pid;

	world_make(as, binds, nbinds);
	mounts_text(mounts_before);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	must(pipe2(ready, O_CLOEXEC) == 0 && pipe2(go, O_CLOEXEC) == 0, "pipe");
	pid = fork();
	must(pid >= 0, "fork");
	if (pid == 0)
		run_command(as, argv, ready[1], go[0]);
	close(ready[1]);
	close(go[0]);
	if (as == AS_USERNS && read(ready[0], &c, 1) == 1) {
		maps_write(pid);
		must(write(go[1], &c, 1) == 1, "the maps of the user namespace");
	}
	status = reap_until(pid, now_ms() + seconds * 1000ull);
	if (status == 124) {
		printf("not ok - ends within %u seconds\n", seconds);
		(void)processes_left();
	}
	/* A daemon that was told to end gets a moment for it. Everything else is a leftover. */
	for (int tries = 0; tries < 100; tries++) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (kill(-1, 0) < 0 && errno == ESRCH)
			break;
		usleep(tries < 50 ? 2000 : 20000);
	}
	fflush(stdout);
	left = status == 124 ? 0 : processes_left();
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	left += mounts_left();
	for (unsigned i = 0; i < ngroups; i++)
		left += groups_below(groups[i].mount, status != 124, true);
	left += run_dir_left();
	if (status != 124)
		printf("%s\n", left ? "not ok - left something behind" : "ok - left nothing behind");
	fflush(stdout);
	return status;
}

static volatile pid_t init_pid;

static void pass_on(int sig)
{
	(void)sig;
	if (init_pid > 0)
		kill(init_pid, SIGKILL);
}

int main(int argc, char **argv)
{
	const char *binds[BINDS_MAX];
	enum as as = AS_ROOT;
	unsigned nbinds = 0, seconds = 120;
	int i = 1, status, go[2];
	char c = 0;
	pid_t pid;

	for (; i < argc && strcmp(argv[i], "--") != 0; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "--as") == 0) {
			as = strcmp(value, "user") == 0 ? AS_USER : strcmp(value, "userns") == 0 ? AS_USERNS : AS_ROOT;
		} else if (strcmp(argv[i], "--seconds") == 0) {
			seconds = (unsigned)strtoul(value, NULL, 10);
		} else if (strcmp(argv[i], "--bind") == 0 && nbinds < BINDS_MAX) {
			binds[nbinds++] = value;
		} else {
			fprintf(stderr, "lab: what is '%s'?\n", argv[i]);
			return 125;
		}
	}
	if (i + 1 >= argc) {
		fprintf(stderr, "usage: lab [--as root|user|userns] [--seconds N] [--bind SRC:NAME]... -- COMMAND [ARG]...\n");
		return 125;
	}
	if (geteuid() != 0) {
		fprintf(stderr, "lab: needs root\n");
		return 125;
	}
	snprintf(lab, sizeof(lab), "/tmp/cubby-lab.XXXXXX");
	must(mkdtemp(lab) && chmod(lab, 0755) == 0, lab);
	mounts_before = malloc(MOUNTS_TEXT);
	mounts_after = malloc(MOUNTS_TEXT);
	must(mounts_before && mounts_after, "memory");
	groups_make();

	must(pipe2(go, O_CLOEXEC) == 0, "pipe");
	signal(SIGTERM, pass_on);
	signal(SIGINT, pass_on);
	signal(SIGHUP, pass_on);
	pid = (pid_t)syscall(SYS_clone,
			     CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | SIGCHLD, NULL,
			     NULL, NULL, NULL);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		signal(SIGHUP, SIG_DFL);
		close(go[1]);
		if (read(go[0], &c, 1) != 1)
			_exit(125);
		_exit(lab_init(as, seconds, binds, nbinds, argv + i + 1));
	}
	init_pid = pid;
	if (pid < 0) {
		groups_remove();
		(void)rmdir(lab);
		die("namespaces");
	}
	groups_enter(pid);
	must(write(go[1], &c, 1) == 1, "starting");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	groups_remove();
	(void)rmdir(lab);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
