/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <pwd.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

/* "NAME:START:COUNT", by name or by number (subuid(5)); the largest range of the user. 0: none. */
static unsigned long sub_range(const char *file, const char *name, uid_t uid, unsigned long *ret_start)
{
	OWN_MEM char *text = malloc(262144);
	unsigned long best = 0;
	char number[16];

	(void)snprintf(number, sizeof(number), "%u", (unsigned)uid);
	if (!text || file_read_small(AT_FDCWD, file, text, 262144) < 0)
		return 0;
	for (const char *p = text; *p;) {
		const char *end = strchrnul(p, '\n'), *colon = memchr(p, ':', (size_t)(end - p));
		unsigned long start, n;

		if (colon && ((name && strlen(name) == (size_t)(colon - p) && strncmp(p, name, (size_t)(colon - p)) == 0) ||
			      (strlen(number) == (size_t)(colon - p) && strncmp(p, number, (size_t)(colon - p)) == 0)) &&
		    sscanf(colon + 1, "%lu:%lu", &start, &n) == 2 && start > 0 && n > best && start + n < UINT32_MAX) {
			best = n;
			*ret_start = start;
		}
		p = *end ? end + 1 : end;
	}
	return best;
}

static int run_mapper(const char *program, pid_t pid, uid_t own, unsigned long start, unsigned long n)
{
	char spid[16], sown[16], sstart[24], sn[24];
	char *argv[] = { (char *)program, spid, (char *)"0", sown, (char *)"1", (char *)"1", sstart, sn, NULL };
	char *envp[] = { (char *)"PATH=/usr/bin:/bin", NULL };
	pid_t child;
	int st;

	(void)snprintf(spid, sizeof(spid), "%d", (int)pid);
	(void)snprintf(sown, sizeof(sown), "%u", (unsigned)own);
	(void)snprintf(sstart, sizeof(sstart), "%lu", start);
	(void)snprintf(sn, sizeof(sn), "%lu", n);
	st = posix_spawnp(&child, program, NULL, NULL, argv, envp);
	if (st != 0)
		return -st;
	while (waitpid(child, &st, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(st) && WEXITSTATUS(st) == 0 ? 0 : -EPERM;
}

/*
 * The maps of a process are written from outside, so a child that stays outside runs the mappers (setuid programs,
 * which may write a range that subuid(5) grants) once the caller is in its namespace.
 */
static bool map_from_outside(pid_t pid, uid_t uid, gid_t gid, unsigned long ustart, unsigned long gstart, unsigned long n)
{
	return run_mapper("newuidmap", pid, uid, ustart, n) == 0 && run_mapper("newgidmap", pid, gid, gstart, n) == 0;
}

bool rootless_is(void)
{
	/* The initial one has all but (uid_t)-1, in one piece. */
	return geteuid() != 0 || native_own_ids("/proc/self/uid_map") < UINT32_MAX;
}

/*
 * Root of a user namespace, as in a container of a system: its file systems belong to somebody outside, so ids can't be
 * shifted when they are mounted, and it is where an ordinary user comes to by
 * making a namespace.
 */
static int root_of_container(unsigned *ret_ids, struct err *e)
{
	unsigned n = native_own_ids("/proc/self/uid_map"), m = native_own_ids("/proc/self/gid_map");

	n = m < n ? m : n;
	if (unshare(CLONE_NEWNS) < 0)
		return native_userns_err(-errno, e);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, -errno, "cannot keep mounts private");
	*ret_ids = n < BOX_IDS ? n : BOX_IDS;
	return 0;
}

/* The namespace that holds the one of this process, if it is a user's own and not the one we are in; or -1. */
static int namespace_above(pid_t pid)
{
	char path[64];
	struct stat here, there;
	uid_t owner;
	OWN_FD in = FD_NONE, up = FD_NONE;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	in = open(path, O_RDONLY | O_CLOEXEC);
	up = in < 0 ? -1 : ioctl(in, NS_GET_PARENT);
	if (up < 0 || ioctl(up, NS_GET_OWNER_UID, &owner) < 0 || owner != geteuid() || fstat(up, &there) < 0 ||
	    stat("/proc/self/ns/user", &here) < 0 || here.st_ino == there.st_ino)
		return -1;
	return fd_take(&up);
}

int rootless_again(const char *run_dir, unsigned *ret_ids, struct err *e)
{
	char path[PATH_MAX];
	OWN_FD ns = FD_NONE;
	struct dirent *de;
	DIR *dp;

	if (geteuid() == 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/boxes", run_dir);
	dp = opendir(path);
	while (dp && ns < 0 && (de = readdir(dp))) {
		struct box_run run;

		if (!id_ok(de->d_name) || native_note_read(run_dir, de->d_name, &run) < 0)
			continue;
		/* The descriptor was there first: is it still the same process, the namespace is its own. */
		ns = namespace_above(run.pid);
		if (ns >= 0 && syscall(SYS_pidfd_send_signal, run.pidfd, 0, NULL, 0) < 0 && errno == ESRCH)
			fd_close(&ns);
		fd_close(&run.pidfd);
	}
	if (dp)
		(void)closedir(dp);
	if (ns < 0)
		return 0;
	if (setns(ns, CLONE_NEWUSER) < 0)
		return err_set(e, -errno, "cannot enter the user namespace of the boxes that run");
	if (unshare(CLONE_NEWNS) < 0)
		return native_userns_err(-errno, e);
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_set(e, -errno, "cannot become root of a user namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, -errno, "cannot keep mounts private");
	*ret_ids = native_own_ids("/proc/self/uid_map");
	return 1;
}

int rootless_enter(unsigned *ret_ids, struct err *e)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	struct passwd *pw = getpwuid(uid);
	unsigned long ustart = 0, gstart = 0, n, m;
	OWN_FD go = FD_NONE, done = FD_NONE;
	int a[2], b[2], r;
	pid_t self = getpid(), helper;
	bool mapped;
	char c = 'x', map[48];

	if (uid == 0)
		return root_of_container(ret_ids, e);
	n = sub_range("/etc/subuid", pw ? pw->pw_name : NULL, uid, &ustart);
	m = sub_range("/etc/subgid", pw ? pw->pw_name : NULL, uid, &gstart);
	n = m < n ? m : n;
	if (n > BOX_IDS)
		n = BOX_IDS;
	if (pipe2(a, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot enter a user namespace");
	go = a[1];
	if (pipe2(b, O_CLOEXEC) < 0) {
		(void)close(a[0]);
		return err_set(e, -errno, "cannot enter a user namespace");
	}
	done = b[0];
	helper = fork();
	if (helper == 0) {
		(void)close(a[1]);
		c = read(a[0], &c, 1) == 1 && n >= 1001 && map_from_outside(self, uid, gid, ustart, gstart, n) ? 'y' : 'n';
		_exit(write(b[1], &c, 1) != 1);
	}
	(void)close(a[0]);
	(void)close(b[1]);
	if (helper < 0)
		return err_set(e, -errno, "cannot enter a user namespace");
	r = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : 0;
	mapped = r == 0 && write(go, &c, 1) == 1 && read(done, &c, 1) == 1 && c == 'y';
	fd_close(&go);
	while (waitpid(helper, NULL, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return native_userns_err(r, e);
	if (!mapped) {
		/* One id, which anybody may map; groups stay what they were (user_namespaces(7)). */
		n = 0;
		(void)snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)uid);
		r = file_write(AT_FDCWD, "/proc/self/uid_map", map);
		if (r == 0)
			r = file_write(AT_FDCWD, "/proc/self/setgroups", "deny");
		(void)snprintf(map, sizeof(map), "0 %u 1\n", (unsigned)gid);
		if (r == 0)
			r = file_write(AT_FDCWD, "/proc/self/gid_map", map);
		if (r < 0)
			return native_userns_err(r == -EPERM ? -EPERM : r, e);
	}
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_set(e, -errno, "cannot become root of a user namespace");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, -errno, "cannot keep mounts private");
	*ret_ids = (unsigned)n + 1;
	return 0;
}
