/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One layer of an image, applied to a tree. Two confined children (unpack.h) do it, with a pipe between them:
 *
 *	the decoder	reads the blob, unpacks its compression, and holds both against their digests; it has no file system at all
 *	the writer	reads the tar archive that comes out, and changes the tree
 *
 * so that on two processors reading and writing take the time of one, and what reads strange bytes can do little. The tree is seen
 * by nobody before both have said that all is well.
 *
 * The tree is either an ordinary directory or the view through an overlay whose upper directory is the new layer. So "removed by
 * this layer" (".wh.NAME", ".wh..wh..opq") is the removal of what is seen, and the kernel writes down what that means for the
 * layers below, in the way it reads it later.
 */
#include "store/oci_layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/tree.h"
#include "store/unpack.h"

#define CHUNK (256u << 10)
#define PIPE_BYTES (1 << 20)
#define TAIL_MAX (16u << 20)		/* bytes after the end of the archive */
#define TIMES_MAX (64u << 20)		/* bytes of paths whose times are set at the end */
#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"

/* ---------------------------------------------------------------- the decoder */

struct decoder {
	const struct oci_blob *blob;
	int blob_fd, out_fd;
	uint64_t read, written, max;
	struct sha256_ctx stored, plain;
	const char *what;
	struct err *e;
	char chunk[CHUNK];
};

static la_ssize_t blob_next(struct archive *a, void *arg, const void **ret)
{
	struct decoder *d = arg;
	ssize_t n;

	do
		n = read(d->blob_fd, d->chunk, sizeof(d->chunk));
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		archive_set_error(a, errno, "it can't be read");
		return ARCHIVE_FATAL;
	}
	d->read += (uint64_t)n;
	sha256_update(&d->stored, (size_t)n, (const uint8_t *)d->chunk);
	*ret = d->chunk;
	return n;
}

static int decoder_failed(struct decoder *d, const char *why)
{
	return err_why(d->e, WHY_BAD_REQUEST, -EBADMSG, "%s is damaged: %s", d->what, why);
}

static int check(struct decoder *d, struct sha256_ctx *ctx, const struct oci_digest *want, const char *of)
{
	char have_text[OCI_DIGEST_TEXT], want_text[OCI_DIGEST_TEXT];
	struct oci_digest have;

	sha256_digest(ctx, sizeof(have.bytes), have.bytes);
	if (oci_digest_same(&have, want))
		return 0;
	oci_digest_text(&have, have_text);
	oci_digest_text(want, want_text);
	return err_why(d->e, WHY_BAD_REQUEST, -EBADMSG, "%s is refused: the digest of %s is %s, and it should be %s; fetch the image anew",
		       d->what, of, have_text, want_text);
}

static int decode_all(struct decoder *d, struct archive *a, const struct oci_digest *diff_id)
{
	struct archive_entry *ae;
	const void *block;
	bool plain;
	size_t n;
	la_int64_t at;
	int k, r;

	if (archive_read_support_format_raw(a) != ARCHIVE_OK || archive_read_support_format_empty(a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(a) != ARCHIVE_OK || archive_read_support_filter_zstd(a) != ARCHIVE_OK)
		return err_why(d->e, WHY_UNSUPPORTED, -ENOTSUP, "libarchive was built without gzip or zstd");
	if (archive_read_open2(a, d, NULL, blob_next, NULL, NULL) != ARCHIVE_OK)
		return decoder_failed(d, archive_error_string(a) ? archive_error_string(a) : "it can't be opened");
	k = archive_read_next_header(a, &ae);
	/* A compression in a compression is nobody's layer; and each one multiplies what a small blob can become. */
	if (archive_filter_count(a) > 2)
		return decoder_failed(d, "it is compressed twice");
	plain = archive_filter_code(a, 0) == ARCHIVE_FILTER_NONE;
	while (k == ARCHIVE_OK) {
		k = archive_read_data_block(a, &block, &n, &at);
		if (k != ARCHIVE_OK)
			break;
		d->written += n;
		if (d->written > d->max)
			return err_why(d->e, WHY_LIMIT, -E2BIG, "%s is refused: unpacked, it is larger than %llu MiB", d->what,
				       (unsigned long long)(d->max >> 20));
		if (!plain)
			sha256_update(&d->plain, n, block);
		r = fd_write_all(d->out_fd, block, n);
		/* Whoever reads has ended, and says why. */
		if (r < 0)
			return r;
	}
	if (k != ARCHIVE_EOF)
		return decoder_failed(d, archive_error_string(a) ? archive_error_string(a) : "its compression is wrong");
	/* Some builders leave out what would fill up the last block, and other readers don't miss it. */
	if (d->written % 512 != 0) {
		static const char zeros[512];

		r = fd_write_all(d->out_fd, zeros, 512 - d->written % 512);
		if (r < 0)
			return r;
	}
	/* What comes after the end of the compressed data is part of the blob, too. */
	for (;;) {
		la_ssize_t more = blob_next(a, d, &block);

		if (more < 0)
			return decoder_failed(d, "it can't be read");
		if (more == 0 || d->read > d->blob->size)
			break;
	}
	if (d->read != d->blob->size)
		return decoder_failed(d, d->read < d->blob->size ? "it is shorter than the image says" : "it is longer than the image says");
	if (plain) {
		struct sha256_ctx same = d->stored;

		r = check(d, &same, diff_id, "its content");
	} else {
		r = check(d, &d->plain, diff_id, "its content");
	}
	return r < 0 ? r : check(d, &d->stored, &d->blob->digest, "its blob");
}

static _Noreturn void decoder_child(const struct oci_apply *o, const struct oci_digest *diff_id, int empty_fd, int blob_fd, int out_fd,
				    int report_fd, const char *what)
{
	struct err e = ERR_INIT;
	struct decoder *d = calloc(1, sizeof(*d));
	struct archive *a = archive_read_new();
	struct unpack u;
	int r = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "cubby-decode");
	(void)signal(SIGPIPE, SIG_IGN);
	unpack_begin(&u, o->b, empty_fd, what, "decoding", &e);
	if (!d || !a)
		r = err_set(&e, -ENOMEM, "cannot read %s", what);
	if (r == 0)
		r = unpack_confine(&u, 0);
	if (r == 0) {
		d->blob = o->blob;
		d->blob_fd = blob_fd;
		d->out_fd = out_fd;
		d->what = what;
		d->e = &e;
		/* Headers and padding come on top of what the files hold. */
		d->max = u.max_bytes + u.max_files * 4096;
		if (d->max > u.max_bytes * 4 + (1u << 20))
			d->max = u.max_bytes * 4 + (1u << 20);
		sha256_init(&d->stored);
		sha256_init(&d->plain);
		r = decode_all(d, a, diff_id);
	}
	if (r < 0 && e.code)
		(void)fd_write_all(report_fd, &e, sizeof(e));
	_exit(r < 0 ? 1 : 0);
}

/* ---------------------------------------------------------------- the writer */

struct writer {
	struct unpack u;
	int upper_fd;			/* where the layer really is, or FD_NONE: root_fd is it */
	int parent_fd;			/* the directory that the last entry was in ... */
	char parent[PATH_MAX];		/* ... and its path */
	bool parent_old;		/* a directory was removed since: look again */
	uint64_t *made;			/* hashes of the paths that this layer has made: an open-addressing table */
	size_t nmade, made_room;
	uint64_t seed;
	struct buf times;		/* of directories: struct dir_time, then the path with its end */
	bool noted_whiteout;
};

struct dir_time {
	int64_t s;
	int64_t ns;
};
#define TIME_MARK UINT64_C(0x9e3779b97f4a7c15)	/* in the same table: of this directory the time is known */

static uint64_t path_hash(const struct writer *w, const char *path, size_t n)
{
	uint64_t h = w->seed;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)path[i]) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h *= w->seed | 1;
	h ^= h >> 29;
	return h ? h : 1;
}

/* Is it in the table? *ret is where it is, or belongs. */
static bool made_find(const struct writer *w, uint64_t h, size_t *ret)
{
	size_t i = h & (w->made_room - 1);

	while (w->made[i] && w->made[i] != h)
		i = (i + 1) & (w->made_room - 1);
	*ret = i;
	return w->made[i] != 0;
}

/* 1: it wasn't there. */
static int table_add(struct writer *w, uint64_t h)
{
	size_t at;

	if (w->nmade * 2 >= w->made_room) {
		size_t old_room = w->made_room, room = old_room ? old_room * 2 : 4096;
		uint64_t *old = w->made, *bigger = calloc(room, sizeof(*bigger));

		if (!bigger)
			return err_set(w->u.e, -ENOMEM, "cannot unpack %s", w->u.what);
		w->made = bigger;
		w->made_room = room;
		for (size_t i = 0; i < old_room; i++)
			if (old[i]) {
				(void)made_find(w, old[i], &at);
				w->made[at] = old[i];
			}
		free(old);
	}
	if (made_find(w, h, &at))
		return 0;
	w->made[at] = h;
	w->nmade++;
	return 1;
}

static int made_add(struct writer *w, const char *path, size_t n)
{
	return table_add(w, path_hash(w, path, n));
}

static bool made_has(const struct writer *w, const char *path)
{
	size_t at;

	return w->made_room && made_find(w, path_hash(w, path, strlen(path)), &at);
}

/* A directory's time, to be set when nothing changes it any more. The last one that is said counts. */
static void time_put(struct writer *w, const char *path, int64_t s, int64_t ns)
{
	struct dir_time t = { s, ns };

	if (w->times.len + sizeof(t) + PATH_MAX >= TIMES_MAX)
		return;
	(void)buf_put(&w->times, &t, sizeof(t));
	(void)buf_put(&w->times, path, strlen(path) + 1);
}

/* What the layer changes in a directory that it has no entry for doesn't change that directory's time. */
static int time_keep(struct writer *w, const char *path, int fd)
{
	struct stat st;
	int r;

	if (!*path)
		return 0;
	r = table_add(w, path_hash(w, path, strlen(path)) ^ TIME_MARK);
	if (r > 0 && fstat(fd, &st) == 0)
		time_put(w, path, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	return r < 0 ? r : 0;
}

static int failed(struct writer *w, int r, const char *path)
{
	return err_set(w->u.e, r, "cannot unpack '%.200s'", path);
}

/* What a missing directory means. */
enum missing {
	MAKE,
	GONE,		/* -ENOENT; through a link or a file is wrong all the same */
	NOWHERE,	/* -ENOENT also when there is a link or a file: builders of images remove what was in a directory, too, that went */
};

/* All of the path's directories, opened, never through a link. */
static int dir_open(struct writer *w, const char *path, enum missing missing, int *ret)
{
	OWN_FD at = FD_NONE;
	const char *p = path;
	int fd = *path ? tree_open(w->u.root_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) :
			 fcntl(w->u.root_fd, F_DUPFD_CLOEXEC, 0);

	if (fd == -ELOOP || fd == -ENOTDIR)
		return missing == NOWHERE ? -ENOENT : unpack_refuse(&w->u, path, "goes through a link or a file");
	if (fd == -ENOENT && missing != MAKE)
		return fd;
	if (fd >= 0) {
		*ret = fd;
		return 0;
	}
	if (fd != -ENOENT)
		return failed(w, fd, path);
	at = fcntl(w->u.root_fd, F_DUPFD_CLOEXEC, 0);
	while (at >= 0 && *p) {
		size_t n = strcspn(p, "/");
		char name[NAME_MAX + 1];

		(void)snprintf(name, sizeof(name), "%.*s", (int)n, p);
		fd = tree_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		if (fd == -ENOENT) {
			int r = place_dir(w->u.b, at, name, 0755, 0, 0);

			if (r < 0)
				return failed(w, r, path);
			if (++w->u.files > w->u.max_files)
				return err_why(w->u.e, WHY_LIMIT, -E2BIG, "%s has more than %llu files", w->u.what,
					       (unsigned long long)w->u.max_files);
			fd = tree_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		}
		if (fd == -ELOOP || fd == -ENOTDIR)
			return unpack_refuse(&w->u, path, "goes through a link or a file");
		if (fd < 0)
			return failed(w, fd, path);
		fd_close(&at);
		at = fd;
		p += n + (p[n] == '/');
	}
	*ret = fd_take(&at);
	return *ret < 0 ? failed(w, -EMFILE, path) : 0;
}

/* The directory that `path` is in; entries of one directory follow each other. The descriptor stays ours. */
static int parent_get(struct writer *w, const char *path, enum missing missing, const char **last, int *ret)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	int r, fd;

	*last = slash ? slash + 1 : path;
	if (w->parent_fd < 0 || w->parent_old || strlen(w->parent) != n || memcmp(w->parent, path, n) != 0) {
		char dir[PATH_MAX];

		memcpy(dir, path, n);
		dir[n] = '\0';
		r = dir_open(w, dir, missing, &fd);
		if (r < 0)
			return r;
		fd_close(&w->parent_fd);
		w->parent_fd = fd;
		w->parent_old = false;
		memcpy(w->parent, dir, n + 1);
		r = time_keep(w, dir, fd);
		if (r < 0)
			return r;
	}
	/* What holds something that this layer has made is part of it, too. */
	for (size_t i = 1; missing == MAKE && i <= n; i++)
		if (path[i] == '/' && made_add(w, path, i) < 0)
			return w->u.e->code;
	*ret = w->parent_fd;
	return 0;
}

static int gone(struct writer *w, int at, const char *name, const char *path)
{
	struct err e = ERR_INIT;
	int r;

	if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return failed(w, -errno, path);
	w->parent_old = true;
	r = tree_remove(at, name, &e);
	return r < 0 ? err_why(w->u.e, e.why, r, "cannot unpack '%.200s': %.300s", path, e.text) : 0;
}

/* Everything below this directory that isn't of this layer. `path` has room for PATH_MAX. */
static int clear_below(struct writer *w, int dir_fd, char *path, unsigned depth)
{
	size_t n = strlen(path);
	struct dirent *de;
	bool again = true;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		r = failed(w, -errno, path);
		fd_close(&fd);
		return r;
	}
	while (again && r == 0) {
		again = false;
		rewinddir(d);
		while (r == 0 && (de = readdir(d)) != NULL) {
			const char *name = de->d_name;
			struct stat st;

			if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
				continue;
			if (n + strlen(name) + 2 > PATH_MAX) {
				r = unpack_refuse(&w->u, path, "lies deeper than a template may be");
				break;
			}
			(void)snprintf(path + n, PATH_MAX - n, "%s%s", n ? "/" : "", name);
			if (!made_has(w, path)) {
				again = true;
				r = gone(w, dir_fd, name, path);
			} else if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
				OWN_FD sub = tree_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

				if (sub < 0)
					r = failed(w, sub, path);
				else if (depth >= w->u.max_depth)
					r = unpack_refuse(&w->u, path, "lies deeper than a template may be");
				else
					r = clear_below(w, sub, path, depth + 1);
			}
			path[n] = '\0';
		}
	}
	(void)closedir(d);
	return r;
}

static int opaque(struct writer *w, const char *dir)
{
	char path[PATH_MAX];
	OWN_FD fd = FD_NONE;
	int r = dir_open(w, dir, NOWHERE, &fd);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s", dir);
	return clear_below(w, fd, path, 1);
}

/* An entry whose last name begins with ".wh.": what it removes is of the layers below, never of its own, nor through a link. */
static int whiteout(struct writer *w, char *path, char *last)
{
	const char *name = last + strlen(WHITEOUT), *target_last;
	struct stat st;
	int at, r;

	if (strcmp(last, OPAQUE) == 0) {
		*(last > path ? last - 1 : last) = '\0';
		return opaque(w, path);
	}
	if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0) {
		unpack_note(&w->u, path, "a note of another file system");
		return 0;
	}
	if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return unpack_refuse(&w->u, path, "removes what has no name");
	memmove(last, name, strlen(name) + 1);
	r = parent_get(w, path, NOWHERE, &target_last, &at);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (!made_has(w, path))
		return gone(w, at, target_last, path);
	if (fstatat(at, target_last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
		return opaque(w, path);
	return 0;
}

/* The capabilities of a file, as a kernel reads them: version 2. The root that version 3 names is that of another machine. */
static bool capability_judge(const void *value, size_t n, uint8_t ret[20])
{
	const uint8_t *v = value;

	if (!((n == 20 && v[3] == 2) || (n == 24 && v[3] == 3)) || v[1] || v[2] || v[0] > 1)
		return false;
	memcpy(ret, value, 20);
	ret[3] = 2;
	return true;
}

static void attr_note(struct writer *w, const char *path, const char *name, const char *why)
{
	char text[400];

	(void)snprintf(text, sizeof(text), "attribute %.100s: %s", name, why);
	unpack_note(&w->u, path, text);
}

/*
 * Extended attributes: the user's own, and capabilities. trusted.* and user.overlay.* would be words of ours to the overlay; the other
 * names mean something to this host's security modules only.
 */
static int attributes(struct writer *w, struct archive_entry *ae, int fd, const char *path, bool file)
{
	const char *name;
	const void *value;
	size_t n;
	int r;

	(void)archive_entry_xattr_reset(ae);
	while (archive_entry_xattr_next(ae, &name, &value, &n) == ARCHIVE_OK) {
		uint8_t caps[20];

		if (!name)
			continue;
		r = unpack_space(&w->u, strlen(name) + n);
		if (r < 0)
			return r;
		if (strcmp(name, "security.capability") == 0) {
			if (!file || !capability_judge(value, n, caps)) {
				attr_note(w, path, name, "not of a known form");
				continue;
			}
			value = caps;
			n = sizeof(caps);
		} else if (strncmp(name, "user.", 5) != 0 || strncmp(name, "user.overlay.", 13) == 0) {
			attr_note(w, path, name, "not of a kind that a template has");
			continue;
		}
		/* Too large for this file system, or not known to it: the file matters more. */
		if (fsetxattr(fd, name, value, n, 0) < 0) {
			if (errno == EDQUOT)
				return failed(w, -errno, path);
			attr_note(w, path, name, strerror(errno));
		}
	}
	return 0;
}

static int put_file(struct writer *w, struct archive *a, struct archive_entry *ae, int at, const char *last, const char *path)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { archive_entry_mtime(ae), archive_entry_mtime_nsec(ae) } };
	OWN_FD fd = openat(at, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return failed(w, -errno, path);
	r = unpack_data(&w->u, a, ae, fd, path);
	if (r < 0)
		return r;
	r = place_owner(w->u.b, fd, "", unpack_id(archive_entry_uid(ae)), unpack_id(archive_entry_gid(ae)));
	if (r == 0 && fchmod(fd, archive_entry_perm(ae) & 07777) < 0)
		r = -errno;
	if (r < 0)
		return failed(w, r, path);
	/* After chown(2), which takes capabilities away. */
	r = archive_entry_xattr_count(ae) > 0 ? attributes(w, ae, fd, path, true) : 0;
	(void)futimens(fd, times);
	return r;
}

static int put_dir(struct writer *w, struct archive_entry *ae, int at, const char *last, const char *path)
{
	int r = place_dir(w->u.b, at, last, archive_entry_perm(ae) & 07777, unpack_id(archive_entry_uid(ae)),
			  unpack_id(archive_entry_gid(ae)));

	if (r < 0)
		return failed(w, r, path);
	/* What is still to come changes it. */
	r = table_add(w, path_hash(w, path, strlen(path)) ^ TIME_MARK);
	if (r < 0)
		return r;
	time_put(w, path, archive_entry_mtime(ae), archive_entry_mtime_nsec(ae));
	if (archive_entry_xattr_count(ae) > 0) {
		OWN_FD fd = tree_open(at, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

		return fd < 0 ? failed(w, fd, path) : attributes(w, ae, fd, path, false);
	}
	return 0;
}

static int put_link(struct writer *w, struct archive_entry *ae, int at, const char *last, const char *path)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { archive_entry_mtime(ae), archive_entry_mtime_nsec(ae) } };
	const char *target = archive_entry_symlink(ae);
	int r;

	if (!target || !*target)
		return unpack_refuse(&w->u, path, "is a link to nowhere");
	r = place_link(w->u.b, at, last, target, unpack_id(archive_entry_uid(ae)), unpack_id(archive_entry_gid(ae)));
	(void)utimensat(at, last, times, AT_SYMLINK_NOFOLLOW);
	return r < 0 ? failed(w, r, path) : 0;
}

/* Linking to a file of a layer below copies it into this one. */
static int count_copy(struct writer *w, const char *target, const struct stat *st)
{
	OWN_FD here = FD_NONE;

	if (w->upper_fd < 0 || !S_ISREG(st->st_mode))
		return 0;
	here = tree_open(w->upper_fd, target, O_PATH | O_NOFOLLOW);
	return here >= 0 ? 0 : unpack_space(&w->u, (uint64_t)st->st_size);
}

static int put_hardlink(struct writer *w, const char *raw, int at, const char *last, const char *path)
{
	char target[PATH_MAX], dir[PATH_MAX];
	const char *slash, *target_last;
	OWN_FD parent = FD_NONE;
	struct stat st, mine;
	int r = unpack_path(&w->u, raw + strspn(raw, "/"), target, sizeof(target));

	if (r < 0)
		return r;
	if (r == 0)
		return unpack_refuse(&w->u, path, "is a hard link to the root");
	slash = strrchr(target, '/');
	target_last = slash ? slash + 1 : target;
	(void)snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - target) : 0, target);
	r = dir_open(w, dir, GONE, &parent);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r < 0 || fstatat(parent, target_last, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return unpack_refuse(&w->u, path, "is a hard link to something that isn't there");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return unpack_refuse(&w->u, path, "is a hard link to something that isn't a file");
	if (fstatat(at, last, &mine, AT_SYMLINK_NOFOLLOW) == 0) {
		if (mine.st_ino == st.st_ino && mine.st_dev == st.st_dev)
			return 0;
		r = gone(w, at, last, path);
		if (r < 0)
			return r;
	}
	r = count_copy(w, target, &st);
	if (r < 0)
		return r;
	return linkat(parent, target_last, at, last, 0) < 0 ? failed(w, -errno, path) : 0;
}

static int put_one(struct writer *w, struct archive *a, struct archive_entry *ae)
{
	const char *raw = archive_entry_pathname(ae), *hard = archive_entry_hardlink(ae), *last;
	mode_t type = archive_entry_filetype(ae);
	char path[PATH_MAX], *base;
	struct stat st;
	int at, r;

	if (!raw || !*raw)
		return unpack_refuse(&w->u, "", "has no name that can be used");
	if (++w->u.files > w->u.max_files)
		return err_why(w->u.e, WHY_LIMIT, -E2BIG, "%s has more than %llu files", w->u.what, (unsigned long long)w->u.max_files);
	if (w->u.files % 1024 == 0) {
		build_at(w->u.b, "%s, %llu files, %llu MiB", w->u.doing, (unsigned long long)w->u.files,
			 (unsigned long long)(w->u.bytes >> 20));
		/* Names fill a disk, too. */
		r = place_space(w->u.root_fd, w->u.e);
		if (r < 0)
			return r;
	}
	r = unpack_path(&w->u, raw + strspn(raw, "/"), path, sizeof(path));
	if (r < 0)
		return r;
	if (r == 0)	/* the root itself: it is ours */
		return type == S_IFDIR && !hard ? 0 : unpack_refuse(&w->u, raw, "wants to be the root");
	base = strrchr(path, '/');
	base = base ? base + 1 : path;
	if (strncmp(base, WHITEOUT, strlen(WHITEOUT)) == 0)
		return whiteout(w, path, base);
	if (!w->u.noted_attrs && archive_entry_acl_types(ae) != 0) {
		w->u.noted_attrs = true;
		build_log(w->u.b, "access lists are left out");
	}
	if (!hard && type != S_IFREG && type != S_IFDIR && type != S_IFLNK && type != S_IFIFO) {
		unpack_note(&w->u, path, type == S_IFCHR || type == S_IFBLK ? "a device" : "neither file, directory nor link");
		return 0;
	}
	r = parent_get(w, path, MAKE, &last, &at);
	if (r == 0)
		r = made_add(w, path, strlen(path));
	if (r < 0)
		return r;
	if (hard)
		return put_hardlink(w, hard, at, last, path);
	/* What is there gives way; a directory stays for a directory, with what is in it. */
	if (fstatat(at, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && !(S_ISDIR(st.st_mode) && type == S_IFDIR)) {
		r = gone(w, at, last, path);
		if (r < 0)
			return r;
	}
	switch (type) {
	case S_IFREG:
		return put_file(w, a, ae, at, last, path);
	case S_IFDIR:
		return put_dir(w, ae, at, last, path);
	case S_IFLNK:
		return put_link(w, ae, at, last, path);
	default:
		r = mknodat(at, last, S_IFIFO | (archive_entry_perm(ae) & 0777), 0) < 0 ? -errno :
		    place_owner(w->u.b, at, last, unpack_id(archive_entry_uid(ae)), unpack_id(archive_entry_gid(ae)));
		return r < 0 ? failed(w, r, path) : 0;
	}
}

/* The times of directories, when nothing changes them any more. */
static void set_times(struct writer *w)
{
	const char *p = w->times.data, *end = p ? p + w->times.len : NULL;

	while (p && p < end) {
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
		OWN_FD fd = FD_NONE;
		struct dir_time t;

		memcpy(&t, p, sizeof(t));
		p += sizeof(t);
		fd = tree_open(w->u.root_fd, p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		times[1] = (struct timespec){ t.s, t.ns };
		if (fd >= 0)
			(void)futimens(fd, times);
		p += strlen(p) + 1;
	}
}

/* What comes after the end of the archive has to be read, or the decoder would not end. */
static int drain(struct writer *w, int fd)
{
	static char waste[65536];
	uint64_t n = 0;

	for (;;) {
		ssize_t k = read(fd, waste, sizeof(waste));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return err_set(w->u.e, -errno, "cannot read %s", w->u.what);
		if (k == 0)
			return 0;
		n += (uint64_t)k;
		if (n > TAIL_MAX)
			return err_why(w->u.e, WHY_BAD_REQUEST, -EBADMSG, "%s is refused: something follows the end of its archive",
				       w->u.what);
	}
}

static int write_all(struct writer *w, struct archive *a, int from_fd)
{
	struct archive_entry *ae;
	int r;

	if (archive_read_support_format_tar(a) != ARCHIVE_OK || archive_read_support_format_empty(a) != ARCHIVE_OK ||
	    archive_read_open_fd(a, from_fd, CHUNK) != ARCHIVE_OK)
		return err_why(w->u.e, WHY_BAD_REQUEST, -EBADMSG, "%s is no archive that can be read: %s", w->u.what,
			       archive_error_string(a) ? archive_error_string(a) : "unknown format");
	for (;;) {
		int k = archive_read_next_header(a, &ae);

		if (k == ARCHIVE_EOF)
			break;
		if (k < ARCHIVE_WARN)
			return err_why(w->u.e, WHY_BAD_REQUEST, -EBADMSG, "%s can't be read to its end: %s", w->u.what,
				       archive_error_string(a) ? archive_error_string(a) : "it is damaged");
		r = put_one(w, a, ae);
		if (r < 0)
			return r;
	}
	set_times(w);
	return drain(w, from_fd);
}

struct written {
	struct err e;
	uint64_t bytes, files, left_out;
};

static _Noreturn void writer_child(const struct oci_apply *o, int from_fd, int report_fd, const char *what, const char *doing)
{
	struct written said = { .e = ERR_INIT };
	struct writer *w = calloc(1, sizeof(*w));
	struct archive *a = archive_read_new();
	int r = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "cubby-unpack");
	(void)signal(SIGXFSZ, SIG_IGN);
	if (!w || !a)
		_exit(1);
	unpack_begin(&w->u, o->b, o->root_fd, what, doing, &said.e);
	w->u.bytes = o->bytes;
	w->u.files = o->files;
	w->u.left_out = o->left_out;
	w->upper_fd = o->upper_fd;
	w->parent_fd = FD_NONE;
	w->times = (struct buf)BUF_INIT(TIMES_MAX);
	if (getrandom(&w->seed, sizeof(w->seed), 0) != (ssize_t)sizeof(w->seed))
		r = err_set(&said.e, -EIO, "cannot unpack %s", what);
	if (r == 0)
		r = unpack_confine(&w->u, UNPACK_CAPS | 1ull << CAP_SETFCAP);
	if (r == 0)
		r = write_all(w, a, from_fd);
	said.bytes = w->u.bytes;
	said.files = w->u.files;
	said.left_out = w->u.left_out;
	(void)fd_write_all(report_fd, &said, sizeof(said));
	_exit(r < 0 ? 1 : 0);
}

/* ---------------------------------------------------------------- both */

static bool ended_well(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A child's word is a stranger's: whole or nothing, and terminated by us. */
static bool believable(struct err *e)
{
	e->text[sizeof(e->text) - 1] = '\0';
	return e->code < 0 && e->code > -4096 && e->why < WHY_COUNT;
}

int oci_layer_apply(struct oci_apply *o, int blob_fd, const struct oci_digest *diff_id, struct err *e)
{
	int data[2] = { FD_NONE, FD_NONE }, decoded[2] = { FD_NONE, FD_NONE }, wrote[2] = { FD_NONE, FD_NONE };
	struct err trouble = ERR_INIT;
	struct written said = { .e = ERR_INIT };
	char what[64], doing[64];
	pid_t decoder = -1, writer = -1;
	bool told, good;
	int r = 0;

	(void)snprintf(what, sizeof(what), "layer %u of the image", o->number);
	(void)snprintf(doing, sizeof(doing), "unpacking layer %u of %u", o->number, o->of);
	build_at(o->b, "%s", doing);
	if (pipe2(data, O_CLOEXEC) < 0 || pipe2(decoded, O_CLOEXEC) < 0 || pipe2(wrote, O_CLOEXEC) < 0) {
		r = err_set(e, -errno, "cannot unpack %s", what);
	} else {
		(void)fcntl(data[1], F_SETPIPE_SZ, PIPE_BYTES);
		decoder = fork();
		if (decoder == 0) {
			/* Nothing of the tree, nor of the build. */
			(void)close(data[0]);
			(void)close(decoded[0]);
			(void)close(wrote[0]);
			(void)close(wrote[1]);
			(void)close(o->root_fd);
			if (o->upper_fd >= 0)
				(void)close(o->upper_fd);
			fd_close(&o->b->host_fd);
			fd_close(&o->b->dir_fd);
			fd_close(&o->b->from_fd);
			decoder_child(o, diff_id, o->empty_fd, blob_fd, data[1], decoded[1], what);
		}
		writer = decoder < 0 ? -1 : fork();
		if (writer == 0) {
			(void)close(data[1]);
			(void)close(decoded[0]);
			(void)close(decoded[1]);
			(void)close(wrote[0]);
			(void)close(blob_fd);
			fd_close(&o->b->host_fd);
			fd_close(&o->b->dir_fd);
			fd_close(&o->b->from_fd);
			writer_child(o, data[0], wrote[1], what, doing);
		}
		if (writer < 0)
			r = err_set(e, -errno, "cannot unpack %s", what);
	}
	fd_close(&data[0]);
	fd_close(&data[1]);
	fd_close(&decoded[1]);
	fd_close(&wrote[1]);
	told = writer > 0 && fd_read_exact(wrote[0], &said, sizeof(said)) == 0;
	good = writer > 0 && ended_well(writer) && told;
	if (decoder > 0) {
		bool whole = fd_read_exact(decoded[0], &trouble, sizeof(trouble)) == 0;

		good = ended_well(decoder) && good;
		/* When both complain, the writer does so because of what it was given. */
		if (r == 0 && whole && believable(&trouble))
			r = err_why(e, trouble.why, trouble.code, "%s", trouble.text);
	}
	fd_close(&decoded[0]);
	fd_close(&wrote[0]);
	if (r == 0 && told && believable(&said.e))
		r = err_why(e, said.e.why, said.e.code, "%s", said.e.text);
	if (r == 0 && !good)
		r = err_why(e, WHY_HOSTILE, -EBADMSG, "%s made the unpacking crash, or needed too much memory; it is refused", what);
	if (r < 0)
		return r;
	o->bytes = said.bytes;
	o->files = said.files;
	o->left_out = said.left_out;
	return 0;
}
