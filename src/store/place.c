/* SPDX-License-Identifier: Apache-2.0 */
#include "store/build.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/tree.h"

#define FREE_PERCENT 2	/* of a disk that stay free */

int place_space(int dir_fd, struct err *e)
{
	struct statvfs v;

	if (fstatvfs(dir_fd, &v) == 0 && v.f_blocks && v.f_bavail < v.f_blocks / 100 * FREE_PERCENT)
		return err_why(e, WHY_NO_SPACE, -ENOSPC, "the disk of the state directory is full but for %d%%: remove something, or choose "
			       "another state directory", FREE_PERCENT);
	return 0;
}

uint32_t template_disk_id(uint32_t ids, uint32_t canonical)
{
	switch (ids) {
	case TEMPLATE_IDS_ONE:
		return 0;
	case TEMPLATE_IDS_ROOTLESS:
		if (canonical < 1000)
			return canonical + 1;
		return canonical == 1000 ? 0 : canonical;
	default:
		return canonical;
	}
}

int place_owner(const struct build *b, int dir_fd, const char *name, uint32_t uid, uint32_t gid)
{
	uid_t u = template_disk_id(b->ids, uid);
	gid_t g = template_disk_id(b->ids, gid);

	if (b->ids == TEMPLATE_IDS_ONE)
		return 0;	/* whoever makes it has it */
	return fchownat(dir_fd, name, u, g, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)) < 0 ? -errno : 0;
}

/* The directory that `path` is in (dir_fd itself or a new descriptor in *own), and its last name. */
static int parent_of(int dir_fd, const char *path, int *own, const char **last)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	*last = slash ? slash + 1 : path;
	if (!slash)
		return dir_fd;
	if ((size_t)(slash - path) >= sizeof(dir))
		return -ENAMETOOLONG;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	*own = tree_open(dir_fd, dir, O_RDONLY | O_DIRECTORY);
	return *own;
}

int place_dir(const struct build *b, int dir_fd, const char *path, unsigned mode, uint32_t uid, uint32_t gid)
{
	OWN_FD own = FD_NONE, fd = FD_NONE;
	const char *last;
	int at = parent_of(dir_fd, path, &own, &last), r;

	if (at < 0)
		return at;
	if (mkdirat(at, last, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = tree_open(at, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	r = place_owner(b, fd, "", uid, gid);
	if (r < 0)
		return r;
	/* After chown(2), which takes the set-id bits. */
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

int place_file(const struct build *b, int dir_fd, const char *path, unsigned mode, uint32_t uid, uint32_t gid,
	       const void *data, size_t n)
{
	OWN_FD own = FD_NONE, fd = FD_NONE;
	const char *last;
	int at = parent_of(dir_fd, path, &own, &last), r;

	if (at < 0)
		return at;
	fd = openat(at, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, n);
	if (r == 0)
		r = place_owner(b, fd, "", uid, gid);
	if (r == 0 && fchmod(fd, mode) < 0)
		r = -errno;
	return r;
}

int place_link(const struct build *b, int dir_fd, const char *path, const char *target, uint32_t uid, uint32_t gid)
{
	OWN_FD own = FD_NONE;
	const char *last;
	int at = parent_of(dir_fd, path, &own, &last);

	if (at < 0)
		return at;
	if (symlinkat(target, at, last) < 0)
		return -errno;
	return place_owner(b, at, last, uid, gid);
}

int place_read(int dir_fd, const char *path, struct buf *to)
{
	OWN_FD fd = tree_open(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	for (;;) {
		char chunk[16384];
		ssize_t k = read(fd, chunk, sizeof(chunk));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return buf_error(to);
		if (buf_put(to, chunk, (size_t)k) < 0)
			return buf_error(to);
	}
}

static int64_t copy_range(int from, int to, off_t at, off_t n)
{
	char chunk[65536];
	off_t done = 0;

	while (done < n) {
		off_t in = at + done, out = at + done;
		size_t want = n - done > (1 << 30) ? 1u << 30 : (size_t)(n - done);
		ssize_t k = copy_file_range(from, &in, to, &out, want, 0);

		if (k < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
			k = pread(from, chunk, want < sizeof(chunk) ? want : sizeof(chunk), at + done);
			if (k > 0)
				k = pwrite(to, chunk, (size_t)k, at + done);
		}
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		done += k;
	}
	return done;
}

int64_t place_copy(int from, int to)
{
	struct stat st;
	off_t at = 0;

	if (fstat(from, &st) < 0)
		return -errno;
	while (at < st.st_size) {
		off_t data = lseek(from, at, SEEK_DATA), hole;
		int64_t k;

		if (data < 0 && errno == ENXIO)
			break;	/* the rest is a hole */
		if (data < 0)
			data = at;
		hole = lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			hole = st.st_size;
		if (hole <= data)
			break;	/* it shrank */
		k = copy_range(from, to, data, hole - data);
		if (k < 0)
			return k;
		at = hole;
	}
	if (ftruncate(to, st.st_size) < 0)
		return -errno;
	return st.st_size;
}
