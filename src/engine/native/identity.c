/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "net/addr.h"
#include "sys/path.h"

unsigned identity_part(const struct box_spec *s, const char **ret_path)
{
	*ret_path = "etc";
	for (unsigned i = 1; i < s->nparts; i++)
		if (strcmp(s->parts[i].at, "/etc") == 0) {
			*ret_path = "";
			return i;
		}
	return 0;
}

/* The /etc that the box sees in its layers: the topmost that has the name, and then it must be a directory. */
static bool lower_etc(const struct root_part *part, const char *path, struct stat *ret)
{
	for (unsigned i = 0; i < part->nlayers; i++) {
		OWN_FD layer = open(part->layers[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		OWN_FD etc = layer < 0 ? -1 : open_beneath(layer, *path ? path : ".", O_PATH | O_NOFOLLOW);

		if (etc < 0)
			continue;
		return fstat(etc, ret) == 0 && S_ISDIR(ret->st_mode);
	}
	return false;
}

/*
 * A file of our own. What the box put there before goes, whatever it is, but for a directory: then that is how the box
 * wants it. The directory is the box's: nothing is followed.
 */
static int put(int etc, const char *name, const char *text, mode_t mode, uid_t root_uid)
{
	OWN_FD fd = FD_NONE;

	if (unlinkat(etc, name, 0) < 0 && errno != ENOENT)
		return errno == EISDIR || errno == EPERM ? 0 : -errno;
	fd = openat(etc, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	if (fchmod(fd, mode) < 0 || (root_uid != 0 && fchown(fd, root_uid, root_uid) < 0))
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

static bool zone_ok(const char *tz)
{
	if (!tz[0] || tz[0] == '/' || strstr(tz, "..") || strlen(tz) > 63)
		return false;
	for (const char *p = tz; *p; p++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/", *p))
			return false;
	return true;
}

static int put_zone(int etc, const char *tz)
{
	char target[128];

	if (!zone_ok(tz))
		return 0;
	(void)snprintf(target, sizeof(target), "/usr/share/zoneinfo/%s", tz);
	if (unlinkat(etc, "localtime", 0) < 0 && errno != ENOENT)
		return 0;
	return symlinkat(target, etc, "localtime") < 0 ? -errno : 0;
}

static bool is_text(int etc, const char *file, const char *want)
{
	char text[256];
	OWN_FD fd = open_beneath(etc, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fd_read_small(fd, text, sizeof(text)) >= 0 &&
	       strcmp(text, want) == 0;
}

int identity_write(const struct box_spec *s, int box_dir, bool fresh, uid_t root_uid, struct err *e)
{
	const char *path;
	unsigned part = identity_part(s, &path);
	/* Also in a box without a network, which may get one while it runs: until then asking fails at once. */
	static const char resolv[] = "nameserver " NET_GATEWAY4 "\n";
	char rel[32], text[512], name[NAME_MAX_LEN + 2];
	OWN_FD upper = FD_NONE, etc = FD_NONE;
	struct stat st;
	int r;

	if (!lower_etc(&s->parts[part], path, &st) && !(s->parts[part].nlayers == 0 && !*path))
		return 0;
	(void)snprintf(rel, sizeof(rel), "upper/%u", part);
	upper = open_beneath(box_dir, rel, O_RDONLY | O_DIRECTORY);
	if (upper < 0)
		return err_set(e, upper, "cannot open the box's disk");
	if (*path && mkdirat(upper, path, 0755) == 0) {
		/* As the layers have it: the merged directory shows what is on top. */
		uid_t uid = s->parts[part].idmap && !native.rootless ? st.st_uid : root_uid;

		if (fchmodat(upper, path, st.st_mode & 07777, 0) < 0 || (uid && fchownat(upper, path, uid, uid, AT_SYMLINK_NOFOLLOW) < 0))
			return err_set(e, -errno, "cannot prepare the box's /etc");
	}
	etc = open_beneath_same(upper, *path ? path : ".", O_RDONLY | O_DIRECTORY);
	if (etc < 0)
		return etc == -ELOOP || etc == -ENOTDIR ? 0 : err_set(e, etc, "cannot open the box's /etc");

	(void)snprintf(name, sizeof(name), "%s\n", s->host_name);
	r = 0;
	if (fresh || !is_text(etc, "hostname", name)) {
		r = put(etc, "hostname", name, 0644, root_uid);
		(void)snprintf(text, sizeof(text),
			       "127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n", s->host_name);
		if (r == 0)
			r = put(etc, "hosts", text, 0644, root_uid);
	}
	if (fresh && r == 0) {
		unsigned char rnd[16];

		if (getrandom(rnd, sizeof(rnd), 0) != sizeof(rnd))
			return err_set(e, -errno, "cannot make the box's machine-id");
		for (unsigned i = 0; i < 16; i++)
			(void)snprintf(text + 2 * i, 3, "%02x", rnd[i]);
		(void)snprintf(text + 32, 2, "\n");
		r = put(etc, "machine-id", text, 0444, root_uid);
		if (r == 0)
			r = put(etc, "resolv.conf", resolv, 0644, root_uid);
		if (r == 0)
			r = put_zone(etc, s->tz);
	}
	return r < 0 ? err_set(e, r, "cannot write the box's own files in /etc") : 0;
}
