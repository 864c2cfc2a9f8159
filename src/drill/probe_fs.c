/* SPDX-License-Identifier: Apache-2.0 */
/* Files and mounts. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <linux/loop.h>

#include "drill/probe.h"

static int open_write(int argc, char **argv)
{
	(void)argc;
	return verdict(open(argv[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), argv[0]);
}

/* One byte, because some kernel files open for everybody and refuse the read. No byte is no way through. */
static int open_read(int argc, char **argv)
{
	int fd = open(argv[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char c;
	ssize_t n;

	(void)argc;
	if (fd < 0)
		return refused(errno, "%s", argv[0]);
	n = read(fd, &c, 1);
	if (n < 0)
		return refused(errno, "reading %s", argv[0]);
	return n == 0 ? refused(ENODATA, "%s is empty", argv[0]) : through("%s", argv[0]);
}

/* For files that open for everybody and judge the write. The text is written, in one piece. */
static int write_text(int argc, char **argv)
{
	int fd = open(argv[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	(void)argc;
	return verdict(fd < 0 ? -1 : write(fd, argv[1], strlen(argv[1])), argv[0]);
}

/* Of other people's files too: needs no more than the right to write. */
static int touch(int argc, char **argv)
{
	(void)argc;
	return verdict(utimensat(AT_FDCWD, argv[0], NULL, 0), argv[0]);
}

static unsigned opened, tried;

static int try_write(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	int fd;

	(void)at;
	if (kind != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	tried++;
	fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
	if (fd < 0)
		return 0;
	close(fd);
	if (++opened <= 20)
		printf("opens %s\n", path);
	return 0;
}

/* Every plain file below DIR on its file system: does any open for writing? Nothing is written. */
static int any_writable(int argc, char **argv)
{
	(void)argc;
	if (nftw(argv[0], try_write, 32, FTW_PHYS | FTW_MOUNT) < 0)
		return refused(errno, "%s", argv[0]);
	return opened ? through("%u of %u files", opened, tried) : refused(EACCES, "none of %u files", tried);
}

static int create(int argc, char **argv)
{
	(void)argc;
	return verdict(open(argv[0], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), argv[0]);
}

static int list(int argc, char **argv)
{
	DIR *d = opendir(argv[0]);

	(void)argc;
	if (!d)
		return refused(errno, "%s", argv[0]);
	/* Some directories of /proc open for everybody and refuse to be read. */
	errno = 0;
	if (!readdir(d) && errno) {
		int e = errno;

		closedir(d);
		return refused(e, "reading %s", argv[0]);
	}
	closedir(d);
	return through("%s", argv[0]);
}

static int do_mount(int argc, char **argv)
{
	const char *source = argc > 3 ? argv[3] : "none", *options = argc > 2 ? argv[2] : NULL;

	return verdict(mount(source, argv[1], argv[0], 0, options), argv[0]);
}

/* The new mount API is a second door to the same room. */
static int do_fsopen(int argc, char **argv)
{
	(void)argc;
	return verdict(syscall(SYS_fsopen, argv[0], 1), argv[0]);
}

static int do_bind(int argc, char **argv)
{
	(void)argc;
	return verdict(mount(argv[0], argv[1], NULL, MS_BIND | MS_REC, NULL), argv[0]);
}

static int do_umount(int argc, char **argv)
{
	(void)argc;
	return verdict(umount2(argv[0], MNT_DETACH | UMOUNT_NOFOLLOW), argv[0]);
}

static unsigned long kept_flags(const char *path)
{
	static const struct {
		unsigned long seen, set;
	} flags[] = { { ST_NOSUID, MS_NOSUID }, { ST_NODEV, MS_NODEV }, { ST_NOEXEC, MS_NOEXEC }, { ST_NOATIME, MS_NOATIME },
		      { ST_NODIRATIME, MS_NODIRATIME } };
	struct statvfs st;
	unsigned long ret = 0;

	if (statvfs(path, &st) < 0)
		return 0;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		ret |= st.f_flag & flags[i].seen ? flags[i].set : 0;
	return ret;
}

/* Of the mount alone, keeping the flags that are locked, as an attacker would; then the same through mount_setattr(). */
static int remount_rw(int argc, char **argv)
{
	struct {
		uint64_t set, clear, propagation, userns_fd;
	} attr = { .clear = 1 /* MOUNT_ATTR_RDONLY */ };

	(void)argc;
	if (mount(NULL, argv[0], NULL, MS_REMOUNT | MS_BIND | kept_flags(argv[0]), NULL) == 0)
		return through("%s by mount()", argv[0]);
	return verdict(syscall(SYS_mount_setattr, AT_FDCWD, argv[0], 0, &attr, sizeof(attr)), argv[0]);
}

/* Of the whole file system (the superblock), not of the mount. */
static int remount_sb(int argc, char **argv)
{
	(void)argc;
	return verdict(mount(NULL, argv[0], NULL, MS_REMOUNT | kept_flags(argv[0]), NULL), argv[0]);
}

static int set_propagation(int argc, char **argv)
{
	(void)argc;
	return verdict(mount(NULL, argv[0], NULL, MS_SHARED | MS_REC, NULL), argv[0]);
}

static int do_mknod(int argc, char **argv)
{
	mode_t type = argc > 3 && argv[3][0] == 'b' ? S_IFBLK : S_IFCHR;

	return verdict(mknod(argv[0], type | 0666, makedev((unsigned)number(argv[1]), (unsigned)number(argv[2]))), argv[0]);
}

static int make_fifo(int argc, char **argv)
{
	(void)argc;
	return verdict(mkfifo(argv[0], 0666), argv[0]);
}

static int hardlink(int argc, char **argv)
{
	(void)argc;
	return verdict(link(argv[0], argv[1]), argv[0]);
}

static int set_xattr(int argc, char **argv)
{
	(void)argc;
	return verdict(lsetxattr(argv[0], argv[1], argv[2], strlen(argv[2]), 0), argv[1]);
}

/* Does the bit stay? */
static int setuid_bit(int argc, char **argv)
{
	struct stat st;

	(void)argc;
	if (chmod(argv[0], 06755) < 0 || stat(argv[0], &st) < 0)
		return refused(errno, "%s", argv[0]);
	return st.st_mode & S_ISUID ? through("%s is setuid, owner %u", argv[0], (unsigned)st.st_uid) :
				      refused(EPERM, "%s lost the bit", argv[0]);
}

/* A write lease on a file of our own: who opens it then waits for us. */
static int lease(int argc, char **argv)
{
	int fd = open(argv[0], O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	(void)argc;
	if (fd < 0)
		return refused(errno, "%s", argv[0]);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		int code = errno;

		(void)close(fd);
		return refused(code, "%s", argv[0]);
	}
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	(void)close(fd);
	return through("a lease on %s", argv[0]);
}

/*
 * The classic: chroot() into a directory below, keep the working directory above, climb. Through when "/" is then another
 * directory than before. For the control, run it in a plain chroot.
 */
static int chroot_escape(int argc, char **argv)
{
	const char *sub = argc > 0 ? argv[0] : "/tmp/probe-chroot";
	struct stat before, after;

	if (stat("/", &before) < 0 || (mkdir(sub, 0700) < 0 && errno != EEXIST))
		return refused(errno, "%s", sub);
	if (chdir("/") < 0 || chroot(sub) < 0) {
		int e = errno;

		(void)rmdir(sub);
		return refused(e, "chroot");
	}
	for (int i = 0; i < 100; i++) {
		if (chdir("..") < 0)
			return refused(errno, "climbing");
	}
	if (chroot(".") < 0 || stat("/", &after) < 0)
		return refused(errno, "chroot");
	if (before.st_dev == after.st_dev && before.st_ino == after.st_ino)
		return refused(EXDEV, "the root is where it was");
	return through("another root: device %llu inode %llu", (unsigned long long)after.st_dev,
		       (unsigned long long)after.st_ino);
}

/* A file handle opens what no path leads to: needs CAP_DAC_READ_SEARCH over the file system. */
static int by_handle(int argc, char **argv)
{
	union {
		struct file_handle h;
		char space[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	} u = { .h.handle_bytes = MAX_HANDLE_SZ };
	int mount_id, dir;

	(void)argc;
	if (name_to_handle_at(AT_FDCWD, argv[0], &u.h, &mount_id, 0) < 0) {
		/* No handle to be had (as on overlay without its option): a made-up one asks the same permission. */
		u.h.handle_bytes = 8;
		u.h.handle_type = 1;
	}
	dir = open(argv[0], O_RDONLY | O_CLOEXEC);
	if (dir < 0)
		return refused(errno, "%s", argv[0]);
	return verdict_after_check(open_by_handle_at(dir, &u.h, O_RDONLY | O_CLOEXEC), argv[0]);
}

static int loop_device(int argc, char **argv)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	(void)argc;
	(void)argv;
	if (ctl < 0)
		return refused(errno, "/dev/loop-control");
	return verdict(ioctl(ctl, LOOP_CTL_GET_FREE), "a free loop device");
}

/* Every file must be reachable, the path of a deep one too: steps with openat(), one level at a time. */
static int deep_tree(int argc, char **argv)
{
	long long levels = number(argv[1]);
	int dir = open(argv[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)argc;
	for (long long i = 0; dir >= 0 && i < levels; i++) {
		int next;

		if (mkdirat(dir, "d", 0755) < 0)
			return refused(errno, "level %lld", i);
		next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir);
		dir = next;
	}
	return verdict(dir, argv[0]);
}

/* A sparse file of that size. */
static int sparse(int argc, char **argv)
{
	int fd = open(argv[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	(void)argc;
	return verdict(fd < 0 ? -1 : ftruncate(fd, number(argv[1])), argv[0]);
}

const struct verb verbs_fs[] = {
	{ "open-write", "PATH", 1, 1, open_write },
	{ "open-read", "PATH", 1, 1, open_read },
	{ "write-text", "PATH TEXT", 2, 2, write_text },
	{ "touch", "PATH", 1, 1, touch },
	{ "any-writable", "DIR", 1, 1, any_writable },
	{ "create", "PATH", 1, 1, create },
	{ "list", "DIR", 1, 1, list },
	{ "mount", "FSTYPE TARGET [OPTIONS [SOURCE]]", 2, 4, do_mount },
	{ "fsopen", "FSTYPE", 1, 1, do_fsopen },
	{ "bind", "SOURCE TARGET", 2, 2, do_bind },
	{ "umount", "PATH", 1, 1, do_umount },
	{ "remount-rw", "PATH", 1, 1, remount_rw },
	{ "remount-sb", "PATH", 1, 1, remount_sb },
	{ "make-shared", "PATH", 1, 1, set_propagation },
	{ "mknod", "PATH MAJOR MINOR [c|b]", 3, 4, do_mknod },
	{ "fifo", "PATH", 1, 1, make_fifo },
	{ "hardlink", "FROM TO", 2, 2, hardlink },
	{ "setxattr", "PATH NAME VALUE", 3, 3, set_xattr },
	{ "setuid-bit", "FILE", 1, 1, setuid_bit },
	{ "lease", "FILE", 1, 1, lease },
	{ "chroot-escape", "[DIR]", 0, 1, chroot_escape },
	{ "by-handle", "PATH", 1, 1, by_handle },
	{ "loop-device", "", 0, 0, loop_device },
	{ "deep-tree", "DIR LEVELS", 2, 2, deep_tree },
	{ "sparse", "FILE BYTES", 2, 2, sparse },
	{ 0 },
};
