/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

pid_t clone3(struct clone3_args *a)
{
	long r = syscall(SYS_clone3, a, sizeof(*a));

	return r < 0 ? -errno : (pid_t)r;
}

int userns_map(pid_t pid, const char *uid_map, const char *gid_map)
{
	char path[64];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	r = file_write(AT_FDCWD, path, uid_map);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	return file_write(AT_FDCWD, path, gid_map);
}

int userns_for_mount(const char *uid_map, const char *gid_map, int *ret_fd, struct err *e)
{
	OWN_FD rd = FD_NONE;
	struct clone3_args a = { .flags = CLONE_NEWUSER };
	int p[2], fd = -1, r;
	char path[64];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot make a user namespace for a mount");
	rd = p[0];
	/* No exit signal: the process is nobody's business but this function's. */
	pid = clone3(&a);
	if (pid == 0) {
		char c;

		(void)close(p[1]);
		_exit(read(rd, &c, 1) < 0);
	}
	if (pid < 0) {
		(void)close(p[1]);
		return err_set(e, pid, "cannot make a user namespace for a mount");
	}
	r = userns_map(pid, uid_map, gid_map);
	if (r == 0) {
		(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
	}
	(void)close(p[1]);
	while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	if (r < 0)
		return err_set(e, r, "cannot make a user namespace for a mount");
	*ret_fd = fd;
	return 0;
}
