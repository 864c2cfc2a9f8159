/* SPDX-License-Identifier: Apache-2.0 */
#include "store/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/utf8.h"

#define BATCH 8192		/* bytes of directory entries read at once */
#define AGAIN_MAX 256		/* how often content that appears behind us is fought */
#define SHOWN_MAX 400		/* bytes of a path in an error */

struct linux_dirent {
	uint64_t d_ino;
	int64_t d_off;
	unsigned short d_reclen;
	unsigned char d_type;
	char d_name[];
};

static int open_how(int dir_fd, const char *name, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NOCTTY), .resolve = resolve };
	int fd;

	if (flags & O_PATH)
		how.flags &= ~(uint64_t)O_NOCTTY;
	/* EAGAIN: a rename anywhere made the kernel unsure that ".." stayed below. It says: try again. */
	for (unsigned i = 0; i < 64; i++) {
		fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EINTR)
			break;
	}
	return -errno;
}

int tree_open(int dir_fd, const char *name, int flags)
{
	return open_how(dir_fd, name, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);
}

int tree_open_any(int dir_fd, const char *name, int flags)
{
	return open_how(dir_fd, name, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/*
 * Removing. A stack of at most TREE_OPEN_MAX open directories; a directory that lies deeper is moved to the top of the
 * tree being removed, where a later pass finds it. So depth costs neither descriptors nor memory, and no step
 * depends on "..", which a process that still lives in the tree could make lead elsewhere.
 */
struct level {
	int fd;
	char name[NAME_MAX + 1];
};

struct removal {
	struct level levels[TREE_OPEN_MAX];
	unsigned n;		/* levels in use */
	uint64_t moved;		/* directories moved to the top so far; their new names count on */
	uint64_t moved_seen;	/* `moved` when the top was last begun */
	unsigned again;
	char batch[BATCH] __attribute__((aligned(8)));
};

static void shown_path(const struct removal *r, const char *last, char *ret, size_t n)
{
	OWN_BUF b = BUF_INIT(SHOWN_MAX * 8);

	for (unsigned i = 0; i < r->n; i++) {
		if (i)
			(void)buf_putc(&b, '/');
		text_escape(&b, r->levels[i].name, strlen(r->levels[i].name));
	}
	if (last) {
		if (r->n)
			(void)buf_putc(&b, '/');
		text_escape(&b, last, strlen(last));
	}
	if (b.len >= n)
		(void)snprintf(ret, n, "…%s", b.data + (b.len - n + 8));
	else
		(void)snprintf(ret, n, "%s", b.data ? b.data : "");
}

static int remove_failed(const struct removal *r, const char *name, int code, struct err *e)
{
	char path[SHOWN_MAX];

	shown_path(r, name, path, sizeof(path));
	if (code == -EBUSY || code == -EXDEV)
		return err_why(e, WHY_BUSY, -EBUSY, "cannot remove '%s': something is mounted there; unmount it first", path);
	return err_set(e, code, "cannot remove '%s'", path);
}

/* Clear what keeps root from changing a file: immutable, append-only. */
static bool flags_clear(int fd)
{
	int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || !(flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)))
		return false;
	flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

/*
 * An unlink was refused with `code`. Make it possible where we may: the flags of the thing, the flags and the mode of
 * the directory it is in. True when something changed, so that trying again makes sense.
 */
static bool unlock(int dir_fd, const char *name)
{
	OWN_FD path_fd = tree_open(dir_fd, name, O_PATH | O_NOFOLLOW);
	struct stat st;
	bool changed = flags_clear(dir_fd);

	if (fstat(dir_fd, &st) == 0 && (st.st_mode & 0700) != 0700 && fchmod(dir_fd, 0700) == 0)
		changed = true;
	/* Only files and directories have flags, and only those can be opened without a side effect. */
	if (path_fd >= 0 && fstat(path_fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
		char self[40];
		OWN_FD fd = FD_NONE;

		(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
		fd = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0 && errno == EACCES && chmod(self, 0700) == 0) {
			changed = true;
			fd = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		}
		if (fd >= 0 && flags_clear(fd))
			changed = true;
	}
	return changed;
}

static int unlink_hard(int dir_fd, const char *name, int flags)
{
	if (unlinkat(dir_fd, name, flags) == 0)
		return 0;
	if ((errno == EPERM || errno == EACCES) && unlock(dir_fd, name) && unlinkat(dir_fd, name, flags) == 0)
		return 0;
	return -errno;
}

static int open_dir_hard(int dir_fd, const char *name)
{
	int fd = tree_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

	if (fd == -EACCES && unlock(dir_fd, name))
		fd = tree_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	return fd;
}

/* The directory is gone (0), is not empty (1), isn't a directory (2), or failed. */
static int try_rmdir(int dir_fd, const char *name)
{
	int r = unlink_hard(dir_fd, name, AT_REMOVEDIR);

	if (r == 0 || r == -ENOENT)
		return 0;
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 1;
	return r == -ENOTDIR ? 2 : r;
}

/* As above; 1 here means: it is a directory. */
static int try_unlink(int dir_fd, const char *name)
{
	int r = unlink_hard(dir_fd, name, 0);

	if (r == 0 || r == -ENOENT)
		return 0;
	return r == -EISDIR ? 1 : r;
}

static int level_push(struct removal *r, int dir_fd, const char *name, struct err *e)
{
	struct level *l;
	int fd;

	fd = open_dir_hard(dir_fd, name);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return ++r->again > AGAIN_MAX ? remove_failed(r, name, fd, e) : 0;	/* changed meanwhile; it is met again */
	if (fd < 0)
		return remove_failed(r, name, fd, e);
	l = &r->levels[r->n++];
	l->fd = fd;
	(void)snprintf(l->name, sizeof(l->name), "%s", name);
	return 0;
}

/* A directory below the last level that may be open: move it to the top, to be met there later. */
static int move_to_top(struct removal *r, int dir_fd, const char *name, struct err *e)
{
	char to[32];

	for (unsigned tries = 0; tries < 1000000; tries++) {
		(void)snprintf(to, sizeof(to), ".%016llx", (unsigned long long)r->moved++);
		if (renameat2(dir_fd, name, r->levels[0].fd, to, RENAME_NOREPLACE) == 0 || errno == ENOENT)
			return 0;
		if ((errno == EPERM || errno == EACCES) && unlock(dir_fd, name))
			continue;
		if (errno != EEXIST)
			return remove_failed(r, name, -errno, e);
	}
	return remove_failed(r, name, -EEXIST, e);
}

/* One batch of entries of the topmost level. 1: all entries were dealt with and the directory looks empty. */
static int empty_level(struct removal *r, struct err *e)
{
	int fd = r->levels[r->n - 1].fd;
	long got = syscall(SYS_getdents64, fd, r->batch, sizeof(r->batch));

	if (got < 0)
		return remove_failed(r, NULL, -errno, e);
	if (got == 0)
		return 1;
	for (long at = 0; at < got;) {
		const struct linux_dirent *d = (const void *)(r->batch + at);
		const char *name = d->d_name;
		int k;

		at += d->d_reclen;
		if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
			continue;
		k = d->d_type == DT_DIR ? try_rmdir(fd, name) : try_unlink(fd, name);
		if (k == 2)
			k = try_unlink(fd, name);
		if (k < 0)
			return remove_failed(r, name, k, e);
		if (k == 0)
			continue;
		if (r->n == TREE_OPEN_MAX) {
			k = move_to_top(r, fd, name, e);
			if (k < 0)
				return k;
			continue;
		}
		/* The rest of this batch is read again when we are back: what was removed is not in it any more. */
		if (lseek(fd, 0, SEEK_SET) < 0)
			return remove_failed(r, NULL, -errno, e);
		return level_push(r, fd, name, e);
	}
	return 0;
}

static int removal_run(struct removal *r, int dir_fd, const char *name, struct err *e)
{
	int k = level_push(r, dir_fd, name, e);

	while (k == 0 && r->n > 0) {
		struct level *l = &r->levels[r->n - 1];
		int above;

		k = empty_level(r, e);
		if (k <= 0)
			continue;
		above = r->n > 1 ? r->levels[r->n - 2].fd : dir_fd;
		k = try_rmdir(above, l->name);
		if (k < 0) {
			r->n--;
			fd_close(&l->fd);
			return remove_failed(r, l->name, k, e);
		}
		if (k == 1) {
			/* Things were moved here by us, or by somebody else. */
			bool ours = r->n == 1 && r->moved != r->moved_seen;

			r->moved_seen = r->n == 1 ? r->moved : r->moved_seen;
			if (!ours && ++r->again > AGAIN_MAX)
				return remove_failed(r, NULL, -ENOTEMPTY, e);
			k = lseek(l->fd, 0, SEEK_SET) < 0 ? remove_failed(r, NULL, -errno, e) : 0;
			continue;
		}
		/* 0: gone. 2: no longer a directory of this name, which the level above meets again. */
		k = 0;
		fd_close(&l->fd);
		r->n--;
	}
	return k;
}

/* Out of line: its stack is only paid for by a tree that needs it. */
static __attribute__((noinline)) int remove_full(int dir_fd, const char *name, struct err *e)
{
	struct removal r;
	int k;

	r.n = 0;
	r.moved = r.moved_seen = 0;
	r.again = 0;
	k = removal_run(&r, dir_fd, name, e);
	while (r.n > 0)
		fd_close(&r.levels[--r.n].fd);
	return k;
}

int tree_remove(int dir_fd, const char *name, struct err *e)
{
	static const struct removal none = { .n = 0 };

	if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) > NAME_MAX)
		return err_why(e, WHY_INTERNAL, -EINVAL, "'%s' is not one name, so nothing is removed", name);
	for (unsigned tries = 0; tries < AGAIN_MAX; tries++) {
		int k = try_rmdir(dir_fd, name);

		if (k == 2)
			k = try_unlink(dir_fd, name);
		if (k == 1) {
			k = remove_full(dir_fd, name, e);
			if (k < 0)
				return k;
			continue;	/* gone, or changed into something else: the next round tells */
		}
		if (k < 0)
			return remove_failed(&none, name, k, e);
		return 0;
	}
	return remove_failed(&none, name, -ENOTEMPTY, e);
}

/*
 * Walking without changing anything. The first TREE_OPEN_MAX levels stay open. Below them only the directory we are in
 * is open, and the way back is "..", believed only when it leads to the very inode we came from: otherwise the
 * part was moved away, and the walk goes on at the deepest level that is still open.
 */
struct step {
	int fd;			/* FD_NONE: not kept open */
	uint64_t ino;
	uint32_t major, minor;
	int64_t resume;		/* where its entries go on (getdents64(2) d_off) */
};

struct walk {
	const struct tree_visit *v;
	struct step *steps;
	unsigned n, room;
	int fd;			/* of the last step */
	uint64_t end_ms;
	unsigned since_clock;
};

static int step_push(struct walk *w, int fd, const struct statx *st)
{
	struct step *s;

	if (w->n >= TREE_DEPTH_MAX)
		return -ELOOP;
	if (w->n == w->room) {
		unsigned room = w->room ? w->room * 2 : 64;
		struct step *bigger = realloc(w->steps, room * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		w->steps = bigger;
		w->room = room;
	}
	s = &w->steps[w->n++];
	*s = (struct step){ .fd = FD_NONE, .ino = st->stx_ino, .major = st->stx_dev_major, .minor = st->stx_dev_minor };
	if (w->n <= TREE_OPEN_MAX)
		s->fd = fd;
	w->fd = fd;
	return 0;
}

static bool step_is(const struct step *s, int fd)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 && st.stx_ino == s->ino &&
	       st.stx_dev_major == s->major && st.stx_dev_minor == s->minor;
}

/* Leave the last directory. The walk is then in the one above, at the place where it left it. */
static int step_pop(struct walk *w)
{
	bool lost = false;

	do {
		struct step *s = &w->steps[--w->n];
		struct step *up = w->n ? &w->steps[w->n - 1] : NULL;
		int below = w->fd;

		if (w->v->leave) {
			int k = w->v->leave(w->n, w->v->arg);

			if (k < 0) {
				w->n++;
				return k;
			}
		}
		if (up && up->fd == FD_NONE && !lost) {
			w->fd = openat(below, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
			lost = w->fd < 0 || !step_is(up, w->fd);
			if (lost)
				fd_close(&w->fd);
		} else {
			w->fd = up ? up->fd : FD_NONE;
			lost = lost && up && up->fd == FD_NONE;
		}
		if (s->fd != FD_NONE)
			fd_close(&s->fd);
		else if (below != FD_NONE)
			(void)close(below);
	} while (lost && w->n > 0);
	return 0;
}

static bool clock_over(struct walk *w)
{
	return w->end_ms && ++w->since_clock % 64 == 0 && now_ms() >= w->end_ms;
}

/* Visit one thing; enter it when it is a directory. 1: entered, so the rest of a batch is no longer ours. */
static int visit(struct walk *w, int dir_fd, const char *name, struct err *e)
{
	struct statx st;
	struct tree_entry t = { .dir_fd = dir_fd, .name = name, .st = &st, .depth = w->n };
	int k, fd;

	if (clock_over(w))
		return -ETIMEDOUT;
	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) < 0) {
		if (errno == ENOENT && w->n > 0)
			return 0;	/* gone since it was listed */
		return err_set(e, -errno, "cannot look at '%s'", name);
	}
	t.mount = (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) && w->n > 0;
	k = w->v->entry(&t, w->v->arg);
	if (k < 0)
		return k;
	if (k > 0 || !S_ISDIR(st.stx_mode) || t.mount)
		return 0;
	fd = w->n == 0 ? tree_open_any(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) :
			 tree_open(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0) {
		k = w->v->closed ? w->v->closed(&t, fd, w->v->arg) : 0;
		if (k == 0 && w->v->leave)
			k = w->v->leave(w->n, w->v->arg);
		return k;
	}
	k = step_push(w, fd, &st);
	if (k < 0) {
		(void)close(fd);
		return err_set(e, k, "cannot go deeper than %u directories", w->n);
	}
	return 1;
}

static int walk_batch(struct walk *w, struct err *e)
{
	char batch[BATCH] __attribute__((aligned(8)));
	struct step *s = &w->steps[w->n - 1];
	int fd = w->fd;
	long got = syscall(SYS_getdents64, fd, batch, sizeof(batch));

	if (got < 0 && errno != ENOENT)
		return err_set(e, -errno, "cannot list a directory");
	if (got <= 0)
		return step_pop(w);
	for (long at = 0; at < got;) {
		const struct linux_dirent *d = (const void *)(batch + at);
		const char *name = d->d_name;
		int k;

		at += d->d_reclen;
		if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
			continue;
		s->resume = d->d_off;
		k = visit(w, fd, name, e);
		if (k < 0)
			return k;
		if (k > 0) {
			/* Only the last level is open below the kept ones. */
			s = &w->steps[w->n - 2];
			if (s->fd == FD_NONE)
				(void)close(fd);
			return 0;
		}
	}
	return 0;
}

int tree_walk(int dir_fd, const char *name, const struct tree_visit *v, struct err *e)
{
	struct walk w = { .v = v, .fd = FD_NONE, .end_ms = v->max_ms ? now_ms() + v->max_ms : 0 };
	int k = visit(&w, dir_fd, name, e);

	if (k > 0)
		k = 0;
	while (k == 0 && w.n > 0) {
		unsigned before = w.n;

		k = walk_batch(&w, e);
		if (k == 0 && w.n > 0 && w.n < before)
			k = lseek(w.fd, w.steps[w.n - 1].resume, SEEK_SET) < 0 ? -errno : 0;
	}
	/* After a stop: whatever is still open. */
	if (w.n > 0 && w.steps[w.n - 1].fd == FD_NONE)
		fd_close(&w.fd);
	while (w.n > 0)
		fd_close(&w.steps[--w.n].fd);
	free(w.steps);
	return k;
}

/* Inodes with several names, seen so far: an open-addressing table of (inode, device). */
struct seen {
	struct { uint64_t ino, dev; } *slots;
	size_t n, room;		/* room: a power of two */
};

static int seen_grow(struct seen *s);

/* 1: it was there; 0: it is now. */
static int seen_add(struct seen *s, uint64_t ino, uint64_t dev)
{
	size_t i;

	if (s->n * 2 >= s->room) {
		int k = seen_grow(s);

		if (k < 0)
			return k;
	}
	i = (size_t)((ino ^ (dev << 17)) * 0x9e3779b97f4a7c15u >> 20) & (s->room - 1);
	for (; s->slots[i].ino; i = (i + 1) & (s->room - 1))
		if (s->slots[i].ino == ino && s->slots[i].dev == dev)
			return 1;
	s->slots[i].ino = ino;
	s->slots[i].dev = dev;
	s->n++;
	return 0;
}

static int seen_grow(struct seen *s)
{
	struct seen bigger = { .room = s->room ? s->room * 2 : 256 };

	bigger.slots = calloc(bigger.room, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->room; i++)
		if (s->slots[i].ino)
			(void)seen_add(&bigger, s->slots[i].ino, s->slots[i].dev);
	free(s->slots);
	*s = bigger;
	return 0;
}

struct measure {
	struct tree_size size;
	struct seen seen;
};

static int measure_entry(const struct tree_entry *t, void *arg)
{
	struct measure *m = arg;
	const struct statx *st = t->st;

	if (t->mount)
		return 1;
	if (!S_ISDIR(st->stx_mode) && st->stx_nlink > 1) {
		int k = seen_add(&m->seen, st->stx_ino, (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor);

		if (k != 0)
			return k < 0 ? k : 0;
	}
	m->size.files++;
	m->size.bytes += st->stx_blocks * 512;
	return 0;
}

int tree_measure(int dir_fd, const char *name, uint64_t max_ms, struct tree_size *ret, struct err *e)
{
	struct measure m = { 0 };
	struct tree_visit v = { .entry = measure_entry, .arg = &m, .max_ms = max_ms };
	struct err mine = ERR_INIT;
	int k = tree_walk(dir_fd, name, &v, &mine);

	free(m.seen.slots);
	if (k == -ENOENT)
		k = 0;
	if (k == 0 || k == -ETIMEDOUT)
		*ret = m.size;
	if (k == -ETIMEDOUT)
		return err_why(e, WHY_TIMEOUT, k, "measuring '%s' took longer than %llu ms", name, (unsigned long long)max_ms);
	if (k < 0 && mine.code)
		return err_why(e, mine.why, k, "%s", mine.text);
	return k < 0 ? err_set(e, k, "cannot measure '%s'", name) : 0;
}
