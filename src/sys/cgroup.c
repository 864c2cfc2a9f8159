/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

/* Limits are read and written by file name; a v1 value "no limit" is as large as a page counter goes. */
#define V1_UNLIMITED (UINT64_C(1) << 62)

static const char *const ctl_v1[CG_COUNT] = { "memory", "pids", "cpu", "blkio", "freezer" };
static const char *const ctl_v2[CG_COUNT] = { "memory", "pids", "cpu", "io", "" };

#define KILL_MS 10000
#define REMOVE_MS 2000
#define FREEZE_MS 2000

static uint64_t now_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void nap(long us)
{
	struct timespec t = { .tv_nsec = us * 1000 };

	(void)nanosleep(&t, NULL);
}

/* Is `word` one of the words of `list`, which are kept apart by characters of `sep`? */
static bool has_word(const char *list, const char *word, const char *sep)
{
	size_t n = strlen(word);

	for (const char *p = list; n && (p = strstr(p, word)); p += n)
		if ((p == list || strchr(sep, p[-1])) && (p[n] == '\0' || strchr(sep, p[n])))
			return true;
	return false;
}

/* ---- finding the hierarchies ---- */

/* The caller's path in a hierarchy: controller "" is v2. Lines are "id:controllers:path" (cgroups(7)). */
static bool own_path(const char *text, const char *ctl, char *ret, size_t n)
{
	for (const char *line = text; *line;) {
		const char *end = strchrnul(line, '\n');
		const char *list = memchr(line, ':', (size_t)(end - line));
		const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

		if (path) {
			char words[256];

			if ((size_t)snprintf(words, sizeof(words), "%.*s", (int)(path - list - 1), list + 1) < sizeof(words) &&
			    (*ctl ? has_word(words, ctl, ",") : words[0] == '\0'))
				return (size_t)snprintf(ret, n, "%.*s", (int)(end - path - 1), path + 1) < n;
		}
		line = *end ? end + 1 : end;
	}
	return false;
}

/*
 * The last mount of a hierarchy: it may cover an earlier one at the same place. Mount points and roots with a blank or
 * so in them are written with octal escapes: such a mount is passed over.
 */
static bool find_mount(const char *text, const char *type, const char *ctl, char *ret_root, char *ret_at, size_t n)
{
	bool found = false;

	for (const char *line = text; *line;) {
		const char *end = strchrnul(line, '\n');
		char buf[1024], root[512], at[512], fs[64], opts[256];
		const char *tail;

		if ((size_t)(end - line) < sizeof(buf)) {
			memcpy(buf, line, (size_t)(end - line));
			buf[end - line] = '\0';
			tail = strstr(buf, " - ");
			if (tail && sscanf(buf, "%*s %*s %*s %511s %511s", root, at) == 2 &&
			    sscanf(tail, " - %63s %*s %255s", fs, opts) == 2 && strcmp(fs, type) == 0 && !strchr(at, '\\') &&
			    !strchr(root, '\\') && (!*ctl || has_word(opts, ctl, ",")))
				found = (size_t)snprintf(ret_root, n, "%s", root) < n &&
					(size_t)snprintf(ret_at, n, "%s", at) < n;
		}
		line = *end ? end + 1 : end;
	}
	return found;
}

/* Where the caller's group is in the file system, if what is mounted shows it. */
static bool own_dir(const char *mountinfo, const char *groups, const char *type, const char *ctl, bool at_root,
		    char *ret, size_t n)
{
	char root[512], at[512], path[512];
	const char *below;
	size_t k;

	if (!find_mount(mountinfo, type, ctl, root, at, sizeof(root)))
		return false;
	if (at_root)
		return (size_t)snprintf(ret, n, "%s", at) < n;
	if (!own_path(groups, ctl, path, sizeof(path)))
		return false;
	k = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(path, root, k) != 0 || (path[k] != '/' && path[k] != '\0'))
		return false;
	below = strcmp(path + k, "/") == 0 ? "" : path + k;
	return (size_t)snprintf(ret, n, "%s%s", at, below) < n;
}

/* What v2 passes on to the groups of boxes: enabled step by step, since one controller may be busy in v1. */
static unsigned enable_v2(int parent, int dir)
{
	unsigned have = 0;
	char text[512], word[32];

	for (int c = 0; c < CG_FREEZER; c++) {
		(void)snprintf(word, sizeof(word), "+%s", ctl_v2[c]);
		(void)file_write(parent, "cgroup.subtree_control", word);
		(void)file_write(dir, "cgroup.subtree_control", word);
	}
	if (file_read_small(dir, "cgroup.subtree_control", text, sizeof(text)) < 0)
		return 0;
	for (int c = 0; c < CG_FREEZER; c++)
		if (has_word(text, ctl_v2[c], " \n"))
			have |= 1u << c;
	return have;
}

static int open_group(const char *parent, const char *name, int *ret_parent, char *ret_where, size_t n)
{
	OWN_FD p = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int d;

	if (p < 0)
		return -errno;
	if ((size_t)snprintf(ret_where, n, "%s/%s", parent, name) >= n)
		return -ENAMETOOLONG;
	if (mkdirat(p, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	d = openat(p, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d < 0)
		return -errno;
	*ret_parent = fd_take(&p);
	return d;
}

/* "memory /sys/fs/cgroup/memory/x\n": the parent of each group, as found by the first process of this installation. */
static bool recorded(const char *record, const char *key, char *ret, size_t n)
{
	size_t k = strlen(key);

	for (const char *line = record; *line;) {
		const char *end = strchrnul(line, '\n');

		if (strncmp(line, key, k) == 0 && line[k] == ' ' &&
		    (size_t)snprintf(ret, n, "%.*s", (int)(end - line - (long)k - 1), line + k + 1) < n)
			return access(ret, F_OK) == 0;
		line = *end ? end + 1 : end;
	}
	return false;
}

static int record_write(int dir, const struct buf *b)
{
	OWN_FD fd = openat(dir, "cgroups.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, b->data, b->len);
	if (r == 0 && renameat(dir, "cgroups.new", dir, "cgroups") < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir, "cgroups.new", 0);
	return r;
}

int cgroups_open(struct cgroups *cg, const char *tag, int record_dir, bool rootless, struct err *e)
{
	OWN_MEM char *mounts = malloc(65536);
	OWN_BUF out = BUF_INIT(8192);
	char groups[8192], record[8192] = "", parent[512];
	int r;

	*cg = (struct cgroups){ .v2 = FD_NONE };
	for (int c = 0; c < CG_COUNT; c++)
		cg->v1[c] = FD_NONE;
	if ((size_t)snprintf(cg->name, sizeof(cg->name), "cubby-%s", tag) >= sizeof(cg->name))
		return err_set(e, -ENAMETOOLONG, "the tag '%s' of this installation", tag);
	if (!mounts)
		return err_set(e, -ENOMEM, "cannot look for the cgroup hierarchies");
	r = (int)file_read_small(AT_FDCWD, "/proc/self/mountinfo", mounts, 65536);
	if (r < 0)
		return err_set(e, r, "cannot read /proc/self/mountinfo");
	r = (int)file_read_small(AT_FDCWD, "/proc/self/cgroup", groups, sizeof(groups));
	if (r < 0)
		return err_set(e, r, "cannot read /proc/self/cgroup");
	if (file_read_small(record_dir, "cgroups", record, sizeof(record)) < 0)
		record[0] = '\0';

	if (recorded(record, "v2", parent, sizeof(parent)) ||
	    own_dir(mounts, groups, "cgroup2", "", !rootless, parent, sizeof(parent))) {
		OWN_FD p = FD_NONE;

		cg->v2 = open_group(parent, cg->name, &p, cg->where[CG_COUNT], sizeof(cg->where[0]));
		if (cg->v2 >= 0) {
			cg->v2_ctl = enable_v2(p, cg->v2);
			(void)buf_printf(&out, "v2 %s\n", parent);
		} else {
			cg->where[CG_COUNT][0] = '\0';
		}
	}
	for (int c = 0; c < CG_COUNT; c++) {
		OWN_FD p = FD_NONE;

		if ((cg->v2_ctl & (1u << c)) || (c == CG_FREEZER && cg->v2 >= 0))
			continue;
		if (!recorded(record, ctl_v1[c], parent, sizeof(parent)) &&
		    !own_dir(mounts, groups, "cgroup", ctl_v1[c], false, parent, sizeof(parent)))
			continue;
		cg->v1[c] = open_group(parent, cg->name, &p, cg->where[c], sizeof(cg->where[0]));
		if (cg->v1[c] >= 0)
			(void)buf_printf(&out, "%s %s\n", ctl_v1[c], parent);
		else
			cg->where[c][0] = '\0';
	}
	r = buf_error(&out);
	if (r == 0 && out.len > 0 && strcmp(out.data, record) != 0)
		r = record_write(record_dir, &out);
	if (r < 0) {
		cgroups_close(cg, true);
		return err_set(e, r, "cannot write down where the cgroups are");
	}
	return 0;
}

static void close_one(int *fd, char *where, bool remove)
{
	if (*fd >= 0 && remove && where[0])
		(void)rmdir(where);	/* refused while a box is in it */
	fd_close(fd);
	where[0] = '\0';
}

void cgroups_close(struct cgroups *cg, bool remove)
{
	if (!cg->name[0])
		return;
	for (int c = 0; c < CG_COUNT; c++)
		close_one(&cg->v1[c], cg->where[c], remove);
	close_one(&cg->v2, cg->where[CG_COUNT], remove);
	cg->name[0] = '\0';
}

bool cgroups_have(const struct cgroups *cg, enum cg_ctl ctl)
{
	return cg->v1[ctl] >= 0 || (cg->v2_ctl & (1u << ctl)) || (ctl == CG_FREEZER && cg->v2 >= 0);
}

/* ---- one box ---- */

static int group_open(int parent, const char *id)
{
	int d;

	/* No call, no errno: what an earlier one left there could be 0, and that is a descriptor. */
	if (parent < 0)
		return -ENOENT;
	d = openat(parent, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return d < 0 ? -errno : d;
}

static int write_num(int dir, const char *file, uint64_t n)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%" PRIu64, n);
	return file_write(dir, file, text);
}

static int write_max(int dir, const char *file, uint64_t n)
{
	return n ? write_num(dir, file, n) : file_write(dir, file, "max");
}

/* The disk of a partition: throttling is per disk. btrfs and overlay have no disk of their own: -ENODEV. */
static int whole_disk(dev_t dev, unsigned *ret_major, unsigned *ret_minor)
{
	char path[96], text[32];
	unsigned maj, min;

	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(dev), minor(dev));
	if (access(path, F_OK) == 0)
		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../dev", major(dev), minor(dev));
	else
		(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/dev", major(dev), minor(dev));
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0 || sscanf(text, "%u:%u", &maj, &min) != 2)
		return -ENODEV;
	*ret_major = maj;
	*ret_minor = min;
	return 0;
}

/* The limit and the limit with swap must never cross, whichever way both move. */
static int set_memory_v1(int dir, const struct cg_limits *l)
{
	const char *const lim = "memory.limit_in_bytes", *const both = "memory.memsw.limit_in_bytes";
	uint64_t sum = l->memory && l->swap < V1_UNLIMITED - l->memory ? l->memory + l->swap : 0;
	int r;

	if (l->memory) {
		r = write_num(dir, lim, l->memory);
		if (r == -EINVAL) {	/* above the old limit with swap: raise that first */
			(void)write_num(dir, both, sum);
			r = write_num(dir, lim, l->memory);
		}
	} else {
		(void)file_write(dir, both, "-1");
		r = file_write(dir, lim, "-1");
	}
	if (r < 0)
		return r;
	/* Kernels that don't count swap have no such file; there nothing is swapped out at all without swap. */
	r = sum ? write_num(dir, both, sum) : file_write(dir, both, "-1");
	if (r == -ENOENT || r == -EOPNOTSUPP)
		r = l->swap == 0 ? file_write(dir, "memory.swappiness", "0") : 0;
	return r;
}

static int set_ctl_v1(int dir, enum cg_ctl ctl, const struct cg_limits *l)
{
	char text[96];
	unsigned maj, min, w;
	int r;

	switch (ctl) {
	case CG_MEMORY:
		return set_memory_v1(dir, l);
	case CG_PIDS:
		return write_max(dir, "pids.max", l->pids);
	case CG_CPU:
		/* A quota of 100 ms; the kernel takes no quota below 1 ms. */
		if (l->cpu_milli) {
			r = write_num(dir, "cpu.cfs_quota_us", l->cpu_milli < 10 ? 1000 : (uint64_t)l->cpu_milli * 100);
		} else {
			r = file_write(dir, "cpu.cfs_quota_us", "-1");
		}
		if (r < 0)
			return r;
		w = l->cpu_weight ? l->cpu_weight : 100;
		w = w * 1024 / 100;
		return write_num(dir, "cpu.shares", w < 2 ? 2 : w > 262144 ? 262144 : w);
	case CG_IO:
		r = whole_disk(l->io_dev, &maj, &min);
		if (r < 0)
			return l->io_read || l->io_write ? r : 0;
		(void)snprintf(text, sizeof(text), "%u:%u %" PRIu64, maj, min, l->io_read);
		r = file_write(dir, "blkio.throttle.read_bps_device", text);
		(void)snprintf(text, sizeof(text), "%u:%u %" PRIu64, maj, min, l->io_write);
		return r < 0 ? r : file_write(dir, "blkio.throttle.write_bps_device", text);
	default:
		return 0;
	}
}

static int set_ctl_v2(int dir, enum cg_ctl ctl, const struct cg_limits *l)
{
	char text[128], rd[32] = "max", wr[32] = "max";
	unsigned maj, min;
	int r;

	switch (ctl) {
	case CG_MEMORY:
		r = write_max(dir, "memory.max", l->memory);
		if (r < 0)
			return r;
		r = l->memory ? write_num(dir, "memory.swap.max", l->swap) : file_write(dir, "memory.swap.max", "max");
		return r == -ENOENT ? 0 : r;
	case CG_PIDS:
		return write_max(dir, "pids.max", l->pids);
	case CG_CPU:
		if (l->cpu_milli)
			(void)snprintf(text, sizeof(text), "%u 100000", l->cpu_milli < 10 ? 1000 : l->cpu_milli * 100);
		else
			(void)snprintf(text, sizeof(text), "max 100000");
		r = file_write(dir, "cpu.max", text);
		return r < 0 ? r : write_num(dir, "cpu.weight", l->cpu_weight ? l->cpu_weight : 100);
	case CG_IO:
		r = whole_disk(l->io_dev, &maj, &min);
		if (r < 0)
			return l->io_read || l->io_write ? r : 0;
		if (l->io_read)
			(void)snprintf(rd, sizeof(rd), "%" PRIu64, l->io_read);
		if (l->io_write)
			(void)snprintf(wr, sizeof(wr), "%" PRIu64, l->io_write);
		(void)snprintf(text, sizeof(text), "%u:%u rbps=%s wbps=%s", maj, min, rd, wr);
		return file_write(dir, "io.max", text);
	default:
		return 0;
	}
}

/* Does the box need this controller's group? Memory and pids also count. */
static bool wanted(enum cg_ctl ctl, const struct cg_limits *l)
{
	switch (ctl) {
	case CG_MEMORY:
	case CG_PIDS:
		return true;
	case CG_CPU:
		return l->cpu_milli || (l->cpu_weight && l->cpu_weight != 100);
	case CG_IO:
		return l->io_read || l->io_write;
	default:
		return false;
	}
}

static int limit_err(struct err *e, int r, enum cg_ctl ctl)
{
	if (ctl == CG_IO && r == -ENODEV)
		return err_why(e, WHY_UNSUPPORTED, r, "the state directory is on no disk of its own, so its speed can't be "
						      "limited: leave the io limits out, or keep it on ext4 or xfs");
	return err_set(e, r, "cannot set the %s limit of the box", ctl_v1[ctl]);
}

int cgroup_make_v2(const struct cgroups *cg, const char *id, int *ret_fd, struct err *e)
{
	int d;

	if (cg->v2 < 0) {
		*ret_fd = FD_NONE;
		return 0;
	}
	if (mkdirat(cg->v2, id, 0755) < 0)
		return err_set(e, -errno, "cannot make the cgroup %s/%s", cg->where[CG_COUNT], id);
	d = group_open(cg->v2, id);
	if (d < 0) {
		(void)unlinkat(cg->v2, id, AT_REMOVEDIR);
		return err_set(e, d, "cannot open the cgroup %s/%s", cg->where[CG_COUNT], id);
	}
	*ret_fd = d;
	return 0;
}

int cgroup_make_v1(const struct cgroups *cg, const char *id, const struct cg_limits *l, int ret_tasks[CG_COUNT],
		   unsigned *ret_n, struct err *e)
{
	OWN_FD v2 = cg->v2_ctl ? group_open(cg->v2, id) : FD_NONE;
	unsigned n = 0;
	int r = 0;

	for (int c = 0; c < CG_FREEZER && v2 >= 0; c++)
		if ((cg->v2_ctl & (1u << c)) && wanted((enum cg_ctl)c, l)) {
			r = set_ctl_v2(v2, (enum cg_ctl)c, l);
			if (r < 0)
				return limit_err(e, r, (enum cg_ctl)c);
		}
	for (int c = 0; c < CG_COUNT; c++) {
		OWN_FD d = FD_NONE;

		if (cg->v1[c] < 0 || !(wanted((enum cg_ctl)c, l) || c == CG_FREEZER))
			continue;
		if (mkdirat(cg->v1[c], id, 0755) < 0 && errno != EEXIST) {
			r = err_set(e, -errno, "cannot make the cgroup %s/%s", cg->where[c], id);
			break;
		}
		d = group_open(cg->v1[c], id);
		if (d < 0) {
			r = err_set(e, d, "cannot open the cgroup %s/%s", cg->where[c], id);
			break;
		}
		r = set_ctl_v1(d, (enum cg_ctl)c, l);
		if (r < 0) {
			r = limit_err(e, r, (enum cg_ctl)c);
			break;
		}
		ret_tasks[n] = openat(d, "tasks", O_WRONLY | O_CLOEXEC);
		if (ret_tasks[n] < 0) {
			r = err_set(e, -errno, "cannot open the cgroup %s/%s", cg->where[c], id);
			break;
		}
		n++;
	}
	if (r < 0) {
		while (n > 0)
			fd_close(&ret_tasks[--n]);
		return r;
	}
	*ret_n = n;
	return 0;
}

/* The hierarchy that has all processes of a box: v2, else any in v1. */
static int any_group(const struct cgroups *cg, const char *id)
{
	static const enum cg_ctl order[] = { CG_PIDS, CG_MEMORY, CG_FREEZER };
	int d = group_open(cg->v2, id);

	for (size_t i = 0; d < 0 && i < sizeof(order) / sizeof(order[0]); i++)
		d = group_open(cg->v1[order[i]], id);
	return d;
}

static int pids_in(int dir, pid_t *ret, size_t n)
{
	OWN_MEM char *text = malloc(65536);
	OWN_FD fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	ssize_t k;
	size_t found = 0;

	if (fd < 0)
		return -errno;
	if (!text)
		return -ENOMEM;
	/* One read is a page at most, of whole lines: enough for the first processes, the caller comes again. */
	k = read(fd, text, 65535);
	if (k < 0)
		return -errno;
	text[k] = '\0';
	for (char *p = text; *p && found < n;) {
		char *end;
		long pid = strtol(p, &end, 10);

		if (end == p)
			break;
		if (pid > 0)
			ret[found++] = (pid_t)pid;
		p = *end ? end + 1 : end;
	}
	return (int)found;
}

int cgroup_pids(const struct cgroups *cg, const char *id, pid_t *ret, size_t n)
{
	OWN_FD d = any_group(cg, id);

	return d < 0 ? -ESRCH : pids_in(d, ret, n);
}

int cgroup_set_limits(const struct cgroups *cg, const char *id, const struct cg_limits *l, struct err *e)
{
	OWN_FD from = any_group(cg, id), v2 = group_open(cg->v2, id);
	int r;

	/* Without any hierarchy there is no group to be missing: each limit that is wanted says so below. */
	for (int c = 0; from < 0 && c < CG_COUNT; c++)
		if (cgroups_have(cg, (enum cg_ctl)c))
			return err_why(e, WHY_WRONG_STATE, -ESRCH, "the box does not run");
	for (int c = 0; c < CG_FREEZER; c++) {
		OWN_FD d = FD_NONE;
		pid_t pids[256];
		bool fresh;
		int k = 0;

		if (cg->v2_ctl & (1u << c)) {
			r = v2 < 0 ? v2 : set_ctl_v2(v2, (enum cg_ctl)c, l);
			if (r < 0)
				return limit_err(e, r, (enum cg_ctl)c);
			continue;
		}
		d = group_open(cg->v1[c], id);
		if (d < 0 && !wanted((enum cg_ctl)c, l))
			continue;
		if (cg->v1[c] < 0) {
			if ((c == CG_MEMORY && !l->memory) || (c == CG_PIDS && !l->pids))
				continue;
			return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP,
				       "this host has no %s cgroup for boxes: `cubby doctor` says what to do", ctl_v1[c]);
		}
		fresh = d < 0;
		if (fresh) {
			if (mkdirat(cg->v1[c], id, 0755) < 0 && errno != EEXIST)
				return err_set(e, -errno, "cannot make the cgroup %s/%s", cg->where[c], id);
			d = group_open(cg->v1[c], id);
		}
		r = d < 0 ? d : set_ctl_v1(d, (enum cg_ctl)c, l);
		if (r < 0)
			return limit_err(e, r, (enum cg_ctl)c);
		/* Move all: again and again until no process is left outside, since those not moved yet may fork. */
		for (int round = 0; fresh && round < 1000; round++) {
			pid_t in[256];
			int have = pids_in(d, in, 256), moved = 0;

			k = pids_in(from, pids, 256);
			for (int i = 0; i < k; i++) {
				bool there = false;
				char text[16];

				for (int j = 0; j < have && !there; j++)
					there = in[j] == pids[i];
				if (there)
					continue;
				(void)snprintf(text, sizeof(text), "%d", (int)pids[i]);
				moved += file_write(d, "cgroup.procs", text) == 0;
			}
			if (moved == 0)
				break;
		}
	}
	return 0;
}

static bool says(int dir, const char *file, const char *word)
{
	char text[512];

	return file_read_small(dir, file, text, sizeof(text)) >= 0 && strstr(text, word) != NULL;
}

int cgroup_freeze(const struct cgroups *cg, const char *id, bool on, struct err *e)
{
	OWN_FD v2 = group_open(cg->v2, id), v1 = FD_NONE;
	uint64_t end = now_us() + FREEZE_MS * 1000;
	int r;

	if (v2 < 0)
		v1 = group_open(cg->v1[CG_FREEZER], id);
	if (v2 < 0 && v1 < 0)
		return cgroup_exists(cg, id) || !cgroups_have(cg, CG_FREEZER) ?
			       err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, "this host has no cgroup that can pause boxes") :
			       err_why(e, WHY_WRONG_STATE, -ESRCH, "the box does not run");
	r = v2 >= 0 ? file_write(v2, "cgroup.freeze", on ? "1" : "0") :
		      file_write(v1, "freezer.state", on ? "FROZEN" : "THAWED");
	if (r < 0)
		return err_set(e, r, "cannot %s the box", on ? "pause" : "resume");
	for (;;) {
		if (v2 >= 0 ? says(v2, "cgroup.events", on ? "frozen 1" : "frozen 0") :
			      says(v1, "freezer.state", on ? "FROZEN" : "THAWED"))
			return 0;
		if (now_us() > end)
			break;
		nap(50);
	}
	/* Half frozen is neither: undo, so that the caller knows what it has. */
	if (on)
		(void)(v2 >= 0 ? file_write(v2, "cgroup.freeze", "0") : file_write(v1, "freezer.state", "THAWED"));
	return err_why(e, WHY_TIMEOUT, -ETIMEDOUT, "the box could not be %s within %d s: a process of it hangs in the kernel",
		       on ? "paused" : "resumed", FREEZE_MS / 1000);
}

static void num(int dir, const char *file, uint64_t *ret)
{
	char text[64];

	if (dir >= 0 && file_read_small(dir, file, text, sizeof(text)) > 0)
		*ret = strtoull(text, NULL, 10);
}

/* "key value" lines. */
static void keyed(int dir, const char *file, const char *key, uint64_t *ret)
{
	char text[4096];
	size_t n = strlen(key);

	if (dir < 0 || file_read_small(dir, file, text, sizeof(text)) < 0)
		return;
	for (const char *p = text; *p;) {
		const char *end = strchrnul(p, '\n');

		if (strncmp(p, key, n) == 0 && p[n] == ' ')
			*ret = strtoull(p + n + 1, NULL, 10);
		p = *end ? end + 1 : end;
	}
}

/* Sums over devices: "8:0 rbytes=1 wbytes=2 …" (v2), "8:0 Read 1" (v1). */
static void io_sum(int dir, const char *file, const char *key, char sep, uint64_t *ret)
{
	char text[4096];
	size_t n = strlen(key);

	if (dir < 0 || file_read_small(dir, file, text, sizeof(text)) < 0)
		return;
	*ret = 0;
	for (const char *p = text; (p = strstr(p, key)); p += n)
		if (p > text && p[-1] == ' ' && p[n] == sep)
			*ret += strtoull(p + n + 1, NULL, 10);
}

int cgroup_usage(const struct cgroups *cg, const char *id, struct cg_usage *ret, struct err *e)
{
	OWN_FD v2 = group_open(cg->v2, id), mem = group_open(cg->v1[CG_MEMORY], id), pids = group_open(cg->v1[CG_PIDS], id),
	       io = group_open(cg->v1[CG_IO], id);
	struct cg_usage u = { 0 };
	uint64_t both = 0;

	if (v2 < 0 && mem < 0 && pids < 0)
		return err_why(e, WHY_WRONG_STATE, -ESRCH, "the box does not run");
	if (mem >= 0) {
		num(mem, "memory.usage_in_bytes", &u.memory);
		num(mem, "memory.max_usage_in_bytes", &u.memory_peak);
		num(mem, "memory.memsw.usage_in_bytes", &both);
		u.swap = both > u.memory ? both - u.memory : 0;
		keyed(mem, "memory.oom_control", "oom_kill", &u.oom_kills);
	} else {
		num(v2, "memory.current", &u.memory);
		num(v2, "memory.peak", &u.memory_peak);
		num(v2, "memory.swap.current", &u.swap);
		keyed(v2, "memory.events", "oom_kill", &u.oom_kills);
	}
	num(pids >= 0 ? pids : v2, "pids.current", &u.pids);
	keyed(pids >= 0 ? pids : v2, "pids.events", "max", &u.pids_denied);
	keyed(v2, "cpu.stat", "usage_usec", &u.cpu_us);
	if (io >= 0) {
		io_sum(io, "blkio.throttle.io_service_bytes", "Read", ' ', &u.io_read);
		io_sum(io, "blkio.throttle.io_service_bytes", "Write", ' ', &u.io_write);
	} else {
		io_sum(v2, "io.stat", "rbytes", '=', &u.io_read);
		io_sum(v2, "io.stat", "wbytes", '=', &u.io_write);
	}
	*ret = u;
	return 0;
}

/* v1 has no call that kills a group: each process by its pidfd, and only while it is still in the group. */
static int kill_each(const struct cgroups *cg, const char *id, int dir)
{
	pid_t pids[256] = { 0 };
	int n = pids_in(dir, pids, 256);

	for (int i = 0; i < n; i++) {
		OWN_FD p = (int)syscall(SYS_pidfd_open, pids[i], 0);

		if (p >= 0 && cgroup_holds(cg, id, pids[i]))
			(void)syscall(SYS_pidfd_send_signal, p, SIGKILL, NULL, 0);
	}
	return n;
}

int cgroup_kill(const struct cgroups *cg, const char *id, struct err *e)
{
	OWN_FD v2 = group_open(cg->v2, id), v1 = FD_NONE, frz = group_open(cg->v1[CG_FREEZER], id),
	       events = FD_NONE;
	uint64_t end = now_us() + KILL_MS * 1000;
	bool direct = false;
	long wait = 20;

	if (frz >= 0)
		(void)file_write(frz, "freezer.state", "THAWED");
	if (v2 >= 0) {
		direct = file_write(v2, "cgroup.kill", "1") == 0;	/* also what is frozen (cgroup v2 documentation) */
		if (!direct)
			(void)file_write(v2, "cgroup.freeze", "0");
		events = openat(v2, "cgroup.events", O_RDONLY | O_CLOEXEC);
	}
	for (;;) {
		bool empty = true;

		if (v2 >= 0 && direct && events >= 0) {
			char text[128];
			ssize_t k = pread(events, text, sizeof(text) - 1, 0);

			text[k > 0 ? k : 0] = '\0';
			empty = strstr(text, "populated 0") != NULL;
			/* poll() on this file comes up to 10 ms late (CGROUP_FILE_NOTIFY_MIN_INTV in the kernel). */
			if (!empty)
				nap(wait);
			wait = wait < 2000 ? wait + wait / 2 : wait;
		} else {
			if (v2 >= 0)
				empty = kill_each(cg, id, v2) <= 0;
			for (int c = 0; c < CG_COUNT; c++) {
				v1 = group_open(cg->v1[c], id);
				if (v1 >= 0 && kill_each(cg, id, v1) > 0)
					empty = false;
				fd_close(&v1);
			}
			if (!empty)
				nap(200);
		}
		if (empty)
			return 0;
		if (now_us() > end)
			return err_why(e, WHY_TIMEOUT, -ETIMEDOUT,
				       "a process of the box does not end within %d s although killed: it hangs in the kernel",
				       KILL_MS / 1000);
	}
}

static int remove_one(int parent, const char *id, uint64_t end)
{
	if (parent < 0)
		return 0;
	for (long wait = 20;; wait = wait < 2000 ? wait * 2 : wait) {
		if (unlinkat(parent, id, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != EBUSY || now_us() > end)
			return -errno;
		nap(wait);
	}
}

int cgroup_remove(const struct cgroups *cg, const char *id, struct err *e)
{
	uint64_t end = now_us() + REMOVE_MS * 1000;
	int r = 0, k;

	for (int c = 0; c < CG_COUNT; c++) {
		k = remove_one(cg->v1[c], id, end);
		if (k < 0 && r == 0)
			r = err_set(e, k, "cannot remove the cgroup %s/%s", cg->where[c], id);
	}
	/* Last: while any group is left, the box is still found by its id. */
	k = r == 0 ? remove_one(cg->v2, id, end) : 0;
	return k < 0 ? err_set(e, k, "cannot remove the cgroup %s/%s", cg->where[CG_COUNT], id) : r;
}

bool cgroup_exists(const struct cgroups *cg, const char *id)
{
	if (cg->v2 >= 0 && faccessat(cg->v2, id, F_OK, 0) == 0)
		return true;
	for (int c = 0; c < CG_COUNT; c++)
		if (cg->v1[c] >= 0 && faccessat(cg->v1[c], id, F_OK, 0) == 0)
			return true;
	return false;
}

int cgroup_each(const struct cgroups *cg, void (*found)(const char *id, void *arg), void *arg, struct err *e)
{
	for (int c = CG_COUNT; c >= 0; c--) {
		int parent = c == CG_COUNT ? cg->v2 : cg->v1[c];
		int fd = parent < 0 ? -1 : openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct dirent *d;
		DIR *dir;

		if (parent < 0)
			continue;
		dir = fd < 0 ? NULL : fdopendir(fd);
		if (!dir) {
			int r = err_set(e, -errno, "cannot look through %s", cg->where[c]);

			fd_close(&fd);
			return r;
		}
		while ((d = readdir(dir))) {
			bool before = false;

			if (!id_ok(d->d_name))
				continue;
			for (int b = CG_COUNT; b > c && !before; b--) {
				int p = b == CG_COUNT ? cg->v2 : cg->v1[b];

				before = p >= 0 && faccessat(p, d->d_name, F_OK, 0) == 0;
			}
			if (!before)
				found(d->d_name, arg);
		}
		(void)closedir(dir);
	}
	return 0;
}

bool cgroup_holds(const struct cgroups *cg, const char *id, pid_t pid)
{
	char path[64], text[8192], own[512], want[96];
	size_t n;
	bool any = false;

	(void)snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	n = (size_t)snprintf(want, sizeof(want), "/%s/%s", cg->name, id);
	for (int c = 0; c <= CG_COUNT; c++) {
		int parent = c == CG_COUNT ? cg->v2 : cg->v1[c];
		size_t k;

		if (parent < 0 || faccessat(parent, id, F_OK, 0) < 0)
			continue;
		if (!own_path(text, c == CG_COUNT ? "" : ctl_v1[c], own, sizeof(own)))
			return false;
		k = strlen(own);
		if (k < n || strcmp(own + k - n, want) != 0)
			return false;
		any = true;
	}
	return any;
}

int cgroup_read_num(const struct cgroups *cg, const char *id, enum cg_ctl ctl, const char *v2_file,
		    const char *v1_file, uint64_t *ret)
{
	bool in_v1 = cg->v1[ctl] >= 0;
	OWN_FD d = group_open(in_v1 ? cg->v1[ctl] : cg->v2, id);
	char text[64];
	int r;

	if (d < 0)
		return d;
	r = (int)file_read_small(d, in_v1 ? v1_file : v2_file, text, sizeof(text));
	if (r < 0)
		return r;
	if (strncmp(text, "max", 3) == 0 || text[0] == '-') {
		*ret = UINT64_MAX;
		return 0;
	}
	*ret = strtoull(text, NULL, 10);
	return 0;
}
