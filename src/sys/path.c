/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

static int open_how(int dir_fd, const char *path, int flags, unsigned long long resolve)
{
	struct open_how how = { .flags = (unsigned)flags | O_CLOEXEC, .resolve = resolve };
	long r = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));

	return r < 0 ? -errno : (int)r;
}

#define INSIDE (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

int open_beneath(int dir_fd, const char *path, int flags)
{
	return open_how(dir_fd, path, flags, INSIDE);
}

int open_beneath_same(int dir_fd, const char *path, int flags)
{
	return open_how(dir_fd, path, flags, INSIDE | RESOLVE_NO_XDEV);
}

static int one_part(int at, const char *name, bool directory)
{
	struct stat st;
	int fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		if (directory) {
			if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
				return -errno;
		} else {
			fd = openat(at, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
			if (fd < 0 && errno != EEXIST)
				return -errno;
			fd_close(&fd);
		}
		fd = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode) != directory) {
		fd_close(&fd);
		return S_ISLNK(st.st_mode) ? -ELOOP : directory ? -ENOTDIR : -EISDIR;
	}
	return fd;
}

int mount_point(int dir_fd, const char *path, bool directory)
{
	OWN_FD at = FD_NONE;
	char name[NAME_MAX + 1];

	while (*path == '/')
		path++;
	if (!*path)
		return -EINVAL;
	for (;;) {
		const char *end = strchrnul(path, '/');
		const char *next = end;
		int fd;

		while (*next == '/')
			next++;
		if ((size_t)(end - path) > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, (size_t)(end - path));
		name[end - path] = '\0';
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			return -EINVAL;
		fd = one_part(at < 0 ? dir_fd : at, name, *next || directory);
		if (fd < 0)
			return fd;
		fd_close(&at);
		at = fd;
		if (!*next)
			return fd_take(&at);
		path = next;
	}
}

bool path_plain(const char *path)
{
	if (path[0] != '/' || strlen(path) >= PATH_MAX)
		return false;
	for (const char *p = path + 1; path[1];) {
		const char *end = strchrnul(p, '/');
		size_t n = (size_t)(end - p);

		if (n == 0 || n > NAME_MAX || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		if (!*end)
			break;
		p = end + 1;
	}
	return true;
}

bool path_within(const char *path, const char *top)
{
	size_t n = strlen(top);

	if (strcmp(top, "/") == 0)
		return path[0] == '/';
	return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}
