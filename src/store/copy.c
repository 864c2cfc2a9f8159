/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A directory of the client as a template. Everything below it is opened with the client's file system ids (setfsuid(2)),
 * which also drops the capabilities over files while they last: naming a directory makes nobody root.
 */
#include "store/build.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "store/tree.h"

struct unpack_limits unpack_limits;

#define COPY_DEPTH 512
#define LINKS_MAX 65536

struct link_seen {
	uint64_t ino;
	char *path;
};

struct copy {
	struct build *b;
	int to[COPY_DEPTH + 1];
	size_t ends[COPY_DEPTH + 1];
	char path[PATH_MAX];
	struct link_seen *links;	/* files with several names: an open-addressing table */
	size_t nlinks;
	uint64_t files, bytes, shown, skipped;
	struct err *e;
};

static void as_client(const struct build *b)
{
	if (!b->who)
		return;
	(void)setfsgid(b->who->gid);
	(void)setfsuid(b->who->uid);
}

static void as_self(const struct build *b)
{
	if (!b->who)
		return;
	(void)setfsuid(geteuid());
	(void)setfsgid(getegid());
}

static uint32_t owner_of(const struct copy *c, uint32_t id, uint32_t own)
{
	/* Somebody who keeps a root file system as themselves means root's files by their own. */
	if (c->b->who && own != 0 && id == own)
		return 0;
	return id < BOX_IDS ? id : 65534;
}

static int copy_failed(struct copy *c, int r)
{
	OWN_BUF shown = BUF_INIT(PATH_MAX * 8);

	if (r >= 0)
		return r;
	text_escape(&shown, c->path, strlen(c->path));
	if (r == -EACCES || r == -EPERM)
		return err_why(c->e, WHY_DENIED, r, "you may not read '%.300s' below %s; make it readable, or use an archive (tar:FILE)",
			       shown.data ? shown.data : "", c->b->source + 4);
	return err_set(c->e, r, "cannot copy '%.300s' of %s", shown.data ? shown.data : "", c->b->source + 4);
}

static bool path_set(struct copy *c, unsigned depth, const char *name)
{
	size_t at, n = strlen(name);

	if (depth == 0) {
		c->path[0] = '\0';
		c->ends[0] = 0;
		return true;
	}
	if (depth > COPY_DEPTH)
		return false;
	at = c->ends[depth - 1];
	if (at + n + 2 > sizeof(c->path))
		return false;
	if (at)
		c->path[at++] = '/';
	memcpy(c->path + at, name, n + 1);
	c->ends[depth] = at + n;
	return true;
}

/* The first path of an inode, or NULL after noting this one. */
static const char *link_find(struct copy *c, uint64_t ino)
{
	size_t i;

	if (!c->links)
		c->links = calloc(LINKS_MAX * 2, sizeof(*c->links));
	if (!c->links || c->nlinks >= LINKS_MAX)
		return NULL;	/* then it is copied once more */
	for (i = ino * 0x9e3779b97f4a7c15u >> 40; ; i++) {
		i &= LINKS_MAX * 2 - 1;
		if (!c->links[i].path)
			break;
		if (c->links[i].ino == ino)
			return c->links[i].path;
	}
	c->links[i].path = strdup(c->path);
	c->links[i].ino = ino;
	c->nlinks += c->links[i].path != NULL;
	return NULL;
}

static int copy_file(struct copy *c, const struct tree_entry *t, int to, uint32_t uid, uint32_t gid)
{
	const char *first = t->st->stx_nlink > 1 ? link_find(c, t->st->stx_ino) : NULL;
	OWN_FD in = FD_NONE, out = FD_NONE;
	struct stat st;
	int64_t k;

	if (first) {
		as_self(c->b);
		return linkat(c->b->root_fd, first, to, t->name, 0) < 0 ? -errno : 0;
	}
	in = tree_open(t->dir_fd, t->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (in < 0)
		return in;
	if (fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EAGAIN;	/* swapped under our eyes */
	as_self(c->b);
	out = openat(to, t->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	k = place_copy(in, out);
	if (k < 0)
		return (int)k;
	c->bytes += (uint64_t)st.st_blocks * 512;
	k = place_owner(c->b, out, "", uid, gid);
	if (k == 0 && fchmod(out, st.st_mode & 07777) < 0)
		k = -errno;
	if (k == 0) {
		struct timespec times[2] = { st.st_atim, st.st_mtim };

		(void)futimens(out, times);
	}
	return (int)k;
}

static int copy_link(struct copy *c, const struct tree_entry *t, int to, uint32_t uid, uint32_t gid)
{
	char target[PATH_MAX];
	ssize_t k = readlinkat(t->dir_fd, t->name, target, sizeof(target) - 1);

	if (k < 0)
		return -errno;
	target[k] = '\0';
	as_self(c->b);
	return place_link(c->b, to, t->name, target, uid, gid);
}

static int copy_one(struct copy *c, const struct tree_entry *t, int to)
{
	uint32_t uid = owner_of(c, t->st->stx_uid, c->b->who ? c->b->who->uid : 0);
	uint32_t gid = owner_of(c, t->st->stx_gid, c->b->who ? c->b->who->gid : 0);
	unsigned mode = t->st->stx_mode;
	int r;

	switch (mode & S_IFMT) {
	case S_IFDIR:
		as_self(c->b);
		r = t->depth ? place_dir(c->b, to, t->name, mode & 07777, uid, gid) : 0;
		if (r == 0 && t->depth) {
			c->to[t->depth] = tree_open(to, t->name, O_RDONLY | O_DIRECTORY);
			r = c->to[t->depth] < 0 ? c->to[t->depth] : 0;
		}
		break;
	case S_IFREG:
		r = copy_file(c, t, to, uid, gid);
		break;
	case S_IFLNK:
		r = copy_link(c, t, to, uid, gid);
		break;
	case S_IFIFO:
		as_self(c->b);
		r = mknodat(to, t->name, S_IFIFO | (mode & 0777), 0) < 0 ? -errno : place_owner(c->b, to, t->name, uid, gid);
		break;
	default:
		/* Devices belong to the engine, sockets to processes that are not in the box. */
		build_log(c->b, "left out: %s (a device or a socket)", c->path);
		c->skipped++;
		r = 0;
	}
	return r;
}

static int copy_entry(const struct tree_entry *t, void *arg)
{
	struct copy *c = arg;
	int r;

	if (!path_set(c, t->depth, t->name))
		return err_why(c->e, WHY_LIMIT, -ELOOP, "%s is deeper than %d directories or has a path longer than %d bytes",
			       c->b->source + 4, COPY_DEPTH, PATH_MAX);
	if (t->mount) {
		build_log(c->b, "left out: %s (something is mounted on it)", c->path);
		if (S_ISDIR(t->st->stx_mode)) {
			as_self(c->b);
			r = place_dir(c->b, c->to[t->depth - 1], t->name, 0755, 0, 0);
			as_client(c->b);
			return r < 0 ? copy_failed(c, r) : 1;
		}
		return 1;
	}
	if (++c->files % 2048 == 0 || c->bytes - c->shown > (64u << 20)) {
		c->shown = c->bytes;
		build_at(c->b, "copying, %llu files, %llu MiB", (unsigned long long)c->files, (unsigned long long)(c->bytes >> 20));
		r = place_space(c->b->root_fd, c->e);
		if (r < 0)
			return r;
	}
	if (unpack_limits.files && c->files > unpack_limits.files)
		return err_why(c->e, WHY_LIMIT, -E2BIG, "%s has more than %llu files", c->b->source + 4,
			       (unsigned long long)unpack_limits.files);
	r = copy_one(c, t, t->depth ? c->to[t->depth - 1] : c->to[0]);
	as_client(c->b);
	return copy_failed(c, r);
}

static int copy_leave(unsigned depth, void *arg)
{
	struct copy *c = arg;

	if (depth > 0)
		fd_close(&c->to[depth]);
	return 0;
}

static int copy_closed(const struct tree_entry *t, int code, void *arg)
{
	return copy_failed(arg, code);
}

/* What every root needs as real directories: a link or file there would send mounts elsewhere. */
static int root_dirs(struct build *b, struct err *e)
{
	static const struct { const char *name; unsigned mode; } dirs[] = {
		{ "proc", 0555 }, { "sys", 0555 }, { "dev", 0755 }, { "run", 0755 }, { "tmp", 01777 }, { "etc", 0755 },
	};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		struct stat st;
		int r;

		if (fstatat(b->root_fd, dirs[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
			if (!S_ISDIR(st.st_mode))
				return err_why(e, WHY_BAD_REQUEST, -ENOTDIR, "/%s of this root file system is not a directory; make it one",
					       dirs[i].name);
			continue;
		}
		r = place_dir(b, b->root_fd, dirs[i].name, dirs[i].mode, 0, 0);
		if (r < 0)
			return err_set(e, r, "cannot make /%s of the template", dirs[i].name);
	}
	return 0;
}

int root_finish(struct build *b, bool want_sudo, struct err *e)
{
	int r = root_dirs(b, e);

	return r < 0 ? r : users_add_agent(b, want_sudo, e);
}

int copy_build(struct build *b, struct err *e)
{
	struct copy *c = calloc(1, sizeof(*c));
	struct tree_visit v = { .entry = copy_entry, .leave = copy_leave, .closed = copy_closed, .arg = c };
	struct err mine = ERR_INIT;
	struct stat st;
	int r;

	if (!c)
		return err_set(e, -ENOMEM, "cannot copy %s", b->source + 4);
	c->b = b;
	c->e = &mine;
	for (unsigned i = 0; i <= COPY_DEPTH; i++)
		c->to[i] = FD_NONE;
	c->to[0] = b->root_fd;
	if (fstat(b->from_fd, &st) < 0 || !S_ISDIR(st.st_mode)) {
		free(c);
		return err_why(e, WHY_BAD_REQUEST, -ENOTDIR, "%s is not a directory", b->source + 4);
	}
	build_at(b, "copying");
	if (b->who && setgroups(0, NULL) < 0 && b->ids == TEMPLATE_IDS_CANONICAL) {
		free(c);
		return err_set(e, -errno, "cannot give up the groups of the daemon to read %s as you", b->source + 4);
	}
	as_client(b);
	r = tree_walk(b->from_fd, ".", &v, &mine);
	as_self(b);
	for (unsigned i = 1; i <= COPY_DEPTH; i++)
		fd_close(&c->to[i]);
	for (size_t i = 0; c->links && i < LINKS_MAX * 2; i++)
		free(c->links[i].path);
	free(c->links);
	if (r < 0)
		r = mine.code ? err_why(e, mine.why, r, "%s", mine.text) : err_set(e, r, "cannot copy %s", b->source + 4);
	else
		build_log(b, "copied %llu files, %llu bytes; %llu left out", (unsigned long long)c->files, (unsigned long long)c->bytes,
			  (unsigned long long)c->skipped);
	free(c);
	return r < 0 ? r : root_finish(b, false, e);
}
