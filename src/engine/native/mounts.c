/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/view.h"
#include "sys/mnt.h"
#include "sys/path.h"
#include "sys/userns.h"

static bool same(const struct place *p, const struct stat *st)
{
	return p->dev == st->st_dev && p->ino == st->st_ino;
}

/* Is this directory cubby's own, or in one of its own? Upwards to the root; a directory that is its own parent ends it. */
static int judge_above(int fd, const struct stat *first, const char *at, struct err *e)
{
	OWN_FD up = FD_NONE;
	struct place before = { 0 };
	struct stat st = *first;

	for (unsigned depth = 0; depth < 4096; depth++) {
		int next;

		if (same(&native.own[0], &st) || same(&native.own[1], &st))
			return err_why(e, WHY_DENIED, -EPERM, "'%s' would show cubby's own data: mount something else", at);
		if (before.ino == st.st_ino && before.dev == st.st_dev)
			return 0;
		before = (struct place){ st.st_dev, st.st_ino };
		next = openat(up < 0 ? fd : up, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (next < 0)
			return err_set(e, -errno, "cannot look above what shall be mounted at '%s'", at);
		fd_close(&up);
		up = next;
		if (fstat(up, &st) < 0)
			return err_set(e, -errno, "cannot look above what shall be mounted at '%s'", at);
	}
	return err_why(e, WHY_BAD_REQUEST, -ELOOP, "the directory for '%s' is too deep", at);
}

/* The directory that holds a file, by the path that the kernel knows; -ESTALE when that leads elsewhere now. */
static int open_parent(int fd, const struct stat *file, int *ret)
{
	char link[64], path[PATH_MAX], *slash;
	struct stat st;
	ssize_t n;
	int dir;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || path[0] != '/')
		return -ENOENT;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (stat(path, &st) < 0 || st.st_dev != file->st_dev || st.st_ino != file->st_ino)
		return -ESTALE;
	slash[slash == path] = '\0';
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	*ret = dir;
	return 0;
}

/* Never cubby's own directories, or what is in them, or what holds them; never the root of the host. */
static int judge_source(int fd, const char *at, struct stat *ret, struct err *e)
{
	OWN_FD parent = FD_NONE;
	struct stat st, root;
	int r;

	if (fstat(fd, &st) < 0)
		return err_set(e, -errno, "cannot look at what shall be mounted at '%s'", at);
	*ret = st;
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "only a directory or a plain file can be mounted at '%s'", at);
	if (!S_ISDIR(st.st_mode)) {
		r = open_parent(fd, &st, &parent);
		if (r < 0 || fstat(parent, &st) < 0)
			return err_set(e, r < 0 ? r : -errno, "cannot look at the directory of what shall be mounted at '%s'", at);
		return judge_above(parent, &st, at, e);
	}
	if (stat("/", &root) == 0 && root.st_dev == st.st_dev && root.st_ino == st.st_ino)
		return err_why(e, WHY_DENIED, -EPERM,
			       "the whole root file system of the host can't be mounted at '%s': mount the directory that is needed", at);
	for (unsigned i = 0; i < native.nholders; i++)
		if (same(&native.holders[i], &st))
			return err_why(e, WHY_DENIED, -EPERM,
				       "the directory for '%s' holds cubby's own data (%s): mount one further down", at,
				       native.state_dir);
	return judge_above(fd, &st, at, e);
}

static int judge_place(const char *at, struct err *e)
{
	static const char *const taken[] = { "/proc", "/sys", "/dev" };

	if (!path_plain(at))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is no absolute path without '.' and '..'", at);
	if (strcmp(at, "/") == 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "nothing can be mounted over the root of a box: choose a directory in it");
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		if (path_within(at, taken[i]) && !(path_within(at, "/dev/shm") && strcmp(at, "/dev/shm") != 0))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "nothing can be mounted in %s of a box: choose another place than '%s'",
				       taken[i], at);
	return 0;
}

/* The descriptor of another mount namespace: the same file by its name here, if it is the same. */
static int copy_by_name(int fd, const struct stat *st, unsigned long long attrs, int ns)
{
	char link[32], path[PATH_MAX];
	OWN_FD here = FD_NONE;
	struct stat now;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return -EINVAL;
	path[n] = '\0';
	here = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (here < 0)
		return -errno;
	if (fstat(here, &now) < 0 || now.st_dev != st->st_dev || now.st_ino != st->st_ino)
		return -ESTALE;
	return mnt_copy(here, "", attrs, ns);
}

/* The id on disk of an id of the box: plain, or as rootless.c maps it. */
static uint32_t id_on_disk(uint32_t id)
{
	if (!native.rootless)
		return id;
	if (native.ids <= 1001)
		return 0;
	return id < 1000 ? id + 1 : id == 1000 ? 0 : id;
}

static int view_dir(int box_dir, const char *top, unsigned k, char *name, size_t n)
{
	if (mkdirat(box_dir, top, 0700) < 0 && errno != EEXIST)
		return -errno;
	(void)snprintf(name, n, "%s/view-%u", top, k);
	if (mkdirat(box_dir, name, 0700) == 0)
		return 1;
	return errno == EEXIST ? 0 : -errno;
}

/* upper/view-K has the mode of the directory below it, and the box's user as its owner: it is what the box sees. */
static int view_upper(const struct box_spec *s, int box_dir, unsigned k, const struct stat *below, struct err *e)
{
	const struct box_mount *m = &s->mounts[k];
	uint32_t uid = id_on_disk(m->box_uid), gid = id_on_disk(m->box_gid);
	char work[40], upper[40];
	int r = view_dir(box_dir, "work", k, work, sizeof(work));

	if (r == 1 && native.rootless && fchownat(box_dir, work, id_on_disk(0), id_on_disk(0), AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	/* First: what is older than anything in it can only be too careful. */
	if (r >= 0)
		r = view_began(box_dir, k);
	if (r >= 0)
		r = view_dir(box_dir, "upper", k, upper, sizeof(upper));
	if (r < 0)
		return err_set(e, r, "cannot make the writable part of '%s'", m->at);
	if (r == 0)
		return 0;
	if (fchownat(box_dir, upper, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(box_dir, upper, below->st_mode & 0777, 0) < 0)
		return err_set(e, -errno, "cannot prepare the writable part of '%s'", m->at);
	return 0;
}

void mounts_undo(const struct box_spec *s, int box_dir)
{
	char name[64];

	for (unsigned k = 0; k < s->nmounts; k++) {
		static const char *const left[] = { "upper/view-%u", "work/view-%u/work/incompat/volatile", "work/view-%u/work/incompat",
						    "work/view-%u/work", "work/view-%u" };

		if (!s->mounts[k].cow)
			continue;
		(void)snprintf(name, sizeof(name), "work/view-%u/work/incompat/volatile/dirty", k);
		(void)unlinkat(box_dir, name, 0);
		for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
			(void)snprintf(name, sizeof(name), left[i], k);
			if (unlinkat(box_dir, name, AT_REMOVEDIR) == 0 && i == 0)
				view_forget(box_dir, k);
		}
	}
}

/* The overlay of mount k, over `below`, a mount of the host's directory with the ids of the box. */
static int view_make(const struct box_spec *s, unsigned k, int below, const struct stat *st, int box_dir, int box, int userns,
		     struct err *e)
{
	const struct box_mount *m = &s->mounts[k];
	int lower[ENGINE_LAYERS_MAX + 1];
	struct overlay o = {
		.lower = lower, .throw_away = s->throw_away, .in_userns = native.rootless, .live = true,
		.as = native.rootless ? 0 : s->id_base, .upper = FD_NONE, .work = FD_NONE,
	};
	char name[40];
	int r;

	if (m->nlayers > ENGINE_LAYERS_MAX)
		return err_why(e, WHY_INTERNAL, -EINVAL, "'%s' has too many layers", m->at);
	r = view_upper(s, box_dir, k, st, e);
	for (; r == 0 && o.nlower < m->nlayers; o.nlower++) {
		lower[o.nlower] = mnt_copy(AT_FDCWD, m->layers[o.nlower], 0, userns);
		if (lower[o.nlower] < 0) {
			r = err_set(e, lower[o.nlower], "cannot use the layer '%s'", m->layers[o.nlower]);
			break;
		}
	}
	if (r == 0) {
		lower[o.nlower] = below;
		(void)snprintf(name, sizeof(name), "upper/view-%u", k);
		o.upper = openat(box, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		(void)snprintf(name, sizeof(name), "work/view-%u", k);
		o.work = o.upper < 0 ? -1 : openat(box, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (o.work < 0)
			r = err_set(e, -errno, "cannot open the writable part of '%s'", m->at);
	}
	for (unsigned i = 0; i < o.nlower && r < 0; i++)
		(void)close(lower[i]);
	if (r == 0) {
		unsigned layers = o.nlower++;

		r = overlay_make(&o, e);
		while (layers > 0)
			(void)close(lower[--layers]);
		if (r == -ELOOP)
			r = err_why(e, WHY_DENIED, r, "the directory for '%s' and cubby's own data are inside each other", m->at);
		else if (r < 0)
			r = err_while(e, r, "for '%s'", m->at);
	}
	fd_close(&o.upper);
	fd_close(&o.work);
	return r;
}

int mounts_make(const struct box_spec *s, int box_dir, int box, int userns, int *ret_fds, unsigned char *ret_is_dir,
		struct err *e)
{
	unsigned n;
	int r = 0;

	for (n = 0; n < s->nmounts; n++) {
		const struct box_mount *m = &s->mounts[n];
		unsigned long long attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (m->read_only || m->cow ? MOUNT_ATTR_RDONLY : 0);
		OWN_FD ns = FD_NONE;
		struct stat st;

		r = judge_place(m->at, e);
		if (r == 0)
			r = judge_source(m->fd, m->at, &st, e);
		if (r == 0 && m->cow && !S_ISDIR(st.st_mode))
			r = err_why(e, WHY_BAD_REQUEST, -ENOTDIR, "'%s' is a file: only a directory can be copied on write (:cow)", m->at);
		if (r < 0)
			break;
		if (!native.rootless) {
			char uids[64], gids[64];

			if (m->box_uid >= BOX_IDS || m->box_gid >= BOX_IDS) {
				r = err_why(e, WHY_BAD_REQUEST, -EINVAL, "a box has no user or group above %u", BOX_IDS - 1);
				break;
			}
			(void)snprintf(uids, sizeof(uids), "%u %u 1", m->host_uid, s->id_base + m->box_uid);
			(void)snprintf(gids, sizeof(gids), "%u %u 1", m->host_gid, s->id_base + m->box_gid);
			r = userns_for_mount(uids, gids, &ns, e);
			if (r < 0)
				break;
		}
		ret_fds[n] = mnt_copy(m->fd, "", attrs, ns);
		if (ret_fds[n] == -EINVAL)
			ret_fds[n] = copy_by_name(m->fd, &st, attrs, ns);
		if (ret_fds[n] < 0) {
			r = ret_fds[n] == -EINVAL && ns >= 0 ?
				    err_why(e, WHY_UNSUPPORTED, -EINVAL,
					    "the file system of the directory for '%s' can't show files under other ids (idmapped "
					    "mounts): keep it on ext4, xfs, btrfs or tmpfs", m->at) :
				    err_set(e, ret_fds[n], "cannot mount at '%s'", m->at);
			break;
		}
		if (m->cow) {
			int below = ret_fds[n];

			r = view_make(s, n, below, &st, box_dir, box, userns, e);
			(void)close(below);
			if (r < 0)
				break;
			ret_fds[n] = r;
			r = 0;
		}
		ret_is_dir[n] = S_ISDIR(st.st_mode);
	}
	if (r < 0)
		while (n > 0)
			fd_close(&ret_fds[--n]);
	return r;
}
