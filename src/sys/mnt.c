/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

int mnt_copy(int dir_fd, const char *path, unsigned long long attrs, int userns_fd)
{
	OWN_FD fd = open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (*path ? 0 : AT_EMPTY_PATH));
	struct mount_attr a = { .attr_set = attrs };

	if (fd < 0)
		return -errno;
	if (userns_fd >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns_fd;
	}
	if (a.attr_set && mount_setattr(fd, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0)
		return -errno;
	return fd_take(&fd);
}

/* Layers by descriptor since kernel 6.13, else by their names in /proc. Returns -EINVAL when the kernel knows no such way. */
static int set_layer(int fs, const char *key, int fd)
{
	char path[32];

	if (fsconfig(fs, FSCONFIG_SET_FD, key, NULL, fd) == 0)
		return 0;
	if (errno != EINVAL && errno != EBADF)
		return -errno;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, path, 0) < 0 ? -errno : 0;
}

/* Kernels before 6.5 take all lower layers as one text of at most 255 characters. */
static int set_lowers_old(int fs, const struct overlay *o)
{
	OWN_BUF b = BUF_INIT(255);

	for (unsigned i = 0; i < o->nlower; i++)
		(void)buf_printf(&b, "%s/proc/self/fd/%d", i ? ":" : "", o->lower[i]);
	if (buf_error(&b))
		return buf_error(&b);
	return fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", b.data, 0) < 0 ? -errno : 0;
}

/* What the kernel itself says about a failure: "e overlay: …". */
static int overlay_err(int fs, int r, const char *what, struct err *e)
{
	char text[256];
	ssize_t n = read(fs, text, sizeof(text) - 1);

	if (n > 2 && text[0] == 'e') {
		text[n] = '\0';
		return err_set(e, r, "cannot %s of the box's disk (%s)", what, text + 2);
	}
	return err_set(e, r, "cannot %s of the box's disk", what);
}

/*
 * overlayfs works with the credentials of whoever mounts it, for good. They shall be root's capabilities with another
 * file system id; changing that id drops capabilities from the effective set (capabilities(7)), so raise them again.
 */
static int create_as(int fs, uid_t as)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	int r = 0;

	if (as && (syscall(SYS_capget, &head, caps) < 0))
		return -errno;
	if (as) {
		(void)syscall(SYS_setfsgid, as);
		(void)syscall(SYS_setfsuid, as);
		r = syscall(SYS_capset, &head, caps) < 0 ? -errno : 0;
	}
	if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	if (as) {
		(void)syscall(SYS_setfsuid, geteuid());
		(void)syscall(SYS_setfsgid, getegid());
	}
	return r;
}

int overlay_make(const struct overlay *o, struct err *e)
{
	OWN_FD fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int r = 0, m;

	if (fs < 0 && errno == ENODEV)
		return err_why(e, WHY_UNSUPPORTED, -ENODEV,
			       "this kernel has no overlay file system: run `modprobe overlay`, or use a kernel with CONFIG_OVERLAY_FS");
	if (fs < 0)
		return err_set(e, -errno, "cannot make the box's disk");
	for (unsigned i = 0; i < o->nlower && r == 0; i++) {
		r = set_layer(fs, "lowerdir+", o->lower[i]);
		if (r == -EINVAL && i == 0) {
			r = set_lowers_old(fs, o);
			break;
		}
	}
	if (r < 0)
		return overlay_err(fs, r, "set the layers", e);
	r = set_layer(fs, "upperdir", o->upper);
	if (r == 0)
		r = set_layer(fs, "workdir", o->work);
	if (r < 0)
		return overlay_err(fs, r, "set the writable part", e);
	if (o->in_userns)
		r = fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0);
	else if (fsconfig(fs, FSCONFIG_SET_STRING, "redirect_dir", o->whole ? "nofollow" : "on", 0) < 0 ||
		 fsconfig(fs, FSCONFIG_SET_STRING, "metacopy", o->whole || o->live ? "off" : "on", 0) < 0)
		r = -1;
	if (r == 0 && o->live &&
	    (fsconfig(fs, FSCONFIG_SET_STRING, "xino", "on", 0) < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "index", "off", 0) < 0))
		r = -1;
	if (r == 0 && o->throw_away)
		r = fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
	if (r < 0)
		return overlay_err(fs, -errno, "set the options", e);
	r = create_as(fs, o->as);
	if (r < 0)
		return overlay_err(fs, r, "put together the layers", e);
	m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | (o->live ? MOUNT_ATTR_NOSUID : 0));
	return m < 0 ? overlay_err(fs, -errno, "mount the layers", e) : m;
}
