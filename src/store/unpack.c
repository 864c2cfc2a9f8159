/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An archive of the client as a template. Its bytes are read by libarchive in a child that has nothing to lose:
 *
 *	own mount, network and ipc namespaces	no network, no socket of the host
 *	root changed to root/			no path, and no link, leads anywhere else
 *	capabilities: over files only		no mount, no device, no module
 *	no_new_privs, a system call filter	no exec, no socket, no process, no ptrace
 *	limits					memory, open files, bytes, files, depth, free disk space
 *
 * And it doesn't rely on that: every name is taken apart here, parents are opened without following links, an entry
 * that wants to go through a link, upwards or over something of another kind ends the build.
 */
#include "store/build.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "store/tree.h"
#include "store/unpack.h"

#define MEMORY_MAX (1ull << 30)
#define NOTES_MAX 50		/* lines of the log about things left out */

void unpack_begin(struct unpack *u, struct build *b, int root_fd, const char *what, const char *doing, struct err *e)
{
	*u = (struct unpack){ .b = b, .root_fd = root_fd, .what = what, .doing = doing, .e = e,
			      .max_bytes = unpack_limits.bytes ? unpack_limits.bytes : UNPACK_BYTES_MAX,
			      .max_files = unpack_limits.files ? unpack_limits.files : UNPACK_FILES_MAX,
			      .max_depth = unpack_limits.depth ? unpack_limits.depth : UNPACK_DEPTH_MAX };
}

static void shown(const char *name, char *ret, size_t n)
{
	OWN_BUF b = BUF_INIT(65536);

	text_escape(&b, name, strnlen(name, 300));
	(void)snprintf(ret, n, "%s", b.data ? b.data : "");
}

int unpack_refuse(struct unpack *u, const char *name, const char *why)
{
	char text[320];

	shown(name, text, sizeof(text));
	return err_why(u->e, WHY_BAD_REQUEST, -EBADMSG, "%s is refused: '%s' %s", u->what, text, why);
}

void unpack_note(struct unpack *u, const char *name, const char *why)
{
	if (u->left_out++ < NOTES_MAX)
		build_log(u->b, "left out: %s (%s)", name, why);
}

int unpack_path(struct unpack *u, const char *raw, char *ret, size_t n)
{
	size_t len = 0;
	unsigned depth = 0;
	const char *p = raw;

	if (*p == '/')
		return unpack_refuse(u, raw, "is an absolute name");
	while (*p) {
		size_t k = strcspn(p, "/");

		if (k == 2 && p[0] == '.' && p[1] == '.')
			return unpack_refuse(u, raw, "leads upwards");
		if (k > NAME_MAX)
			return unpack_refuse(u, raw, "is longer than a name may be");
		if (k > 0 && !(k == 1 && p[0] == '.')) {
			if (++depth > u->max_depth)
				return unpack_refuse(u, raw, "lies deeper than a template may be");
			if (len + k + 2 > n)
				return unpack_refuse(u, raw, "is longer than a path may be");
			if (len)
				ret[len++] = '/';
			memcpy(ret + len, p, k);
			len += k;
		}
		p += k;
		while (*p == '/')
			p++;
	}
	ret[len] = '\0';
	return depth > 0;
}

/* Open the directory that `path` is in, making it where it is missing, never through a link. */
static int parent_open(struct unpack *u, const char *path, const char **last, int *ret)
{
	OWN_FD at = fcntl(u->root_fd, F_DUPFD_CLOEXEC, 0);
	const char *p = path, *slash;

	if (at < 0)
		return err_set(u->e, -errno, "cannot unpack");
	while ((slash = strchr(p, '/')) != NULL) {
		char name[NAME_MAX + 1];
		int next;

		(void)snprintf(name, sizeof(name), "%.*s", (int)(slash - p), p);
		next = tree_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		if (next == -ENOENT) {
			int r = place_dir(u->b, at, name, 0755, 0, 0);

			if (r < 0)
				return err_set(u->e, r, "cannot unpack a directory");
			if (++u->files > u->max_files)
				return err_why(u->e, WHY_LIMIT, -E2BIG, "%s has more than %llu files", u->what,
					       (unsigned long long)u->max_files);
			next = tree_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		}
		if (next == -ELOOP || next == -ENOTDIR)
			return unpack_refuse(u, path, "goes through a link or a file");
		if (next < 0)
			return err_set(u->e, next, "cannot unpack");
		fd_close(&at);
		at = next;
		p = slash + 1;
	}
	*last = p;
	*ret = fd_take(&at);
	return 0;
}

int unpack_space(struct unpack *u, uint64_t more)
{
	u->bytes += more;
	u->since_check += more;
	if (u->bytes > u->max_bytes)
		return err_why(u->e, WHY_LIMIT, -E2BIG, "%s holds more than %llu MiB", u->what,
			       (unsigned long long)(u->max_bytes >> 20));
	if (u->since_check < (16u << 20))
		return 0;
	u->since_check = 0;
	build_at(u->b, "%s, %llu files, %llu MiB", u->doing, (unsigned long long)u->files, (unsigned long long)(u->bytes >> 20));
	return place_space(u->root_fd, u->e);
}

int unpack_data(struct unpack *u, struct archive *a, struct archive_entry *ae, int fd, const char *path)
{
	int64_t size = archive_entry_size(ae);
	const void *block;
	size_t n;
	la_int64_t at;
	int r;

	/* What it says it is counts, holes included: reading a sparse giant is as bad as storing one. */
	if (size < 0 || (uint64_t)size > u->max_bytes)
		return err_why(u->e, WHY_LIMIT, -E2BIG, "%s holds a file of more than %llu MiB", u->what,
			       (unsigned long long)(u->max_bytes >> 20));
	for (;;) {
		int k = archive_read_data_block(a, &block, &n, &at);

		if (k == ARCHIVE_EOF)
			break;
		if (k < ARCHIVE_WARN)
			return unpack_refuse(u, path, "is damaged");
		if (n == 0)
			continue;
		if (at < 0 || at > size || (uint64_t)n > (uint64_t)(size - at))
			return unpack_refuse(u, path, "holds more than it says");
		r = unpack_space(u, n);
		if (r < 0)
			return r;
		while (n > 0) {
			ssize_t w = pwrite(fd, block, n, at);

			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0)
				return err_set(u->e, -errno, "cannot unpack '%.200s'", path);
			block = (const char *)block + w;
			n -= (size_t)w;
			at += w;
		}
	}
	return ftruncate(fd, size) < 0 ? err_set(u->e, -errno, "cannot unpack '%.200s'", path) : 0;
}

uint32_t unpack_id(int64_t id)
{
	return id >= 0 && id < (int64_t)BOX_IDS ? (uint32_t)id : 65534;
}

/* What is there already may only be replaced by its like. */
static int make_room(struct unpack *u, int at, const char *last, const char *path, mode_t type)
{
	struct stat st;

	if (fstatat(at, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_set(u->e, -errno, "cannot unpack '%.200s'", path);
	if ((st.st_mode & S_IFMT) != type)
		return unpack_refuse(u, path, "comes twice, as different things");
	if (type == S_IFDIR)
		return 0;
	return unlinkat(at, last, 0) < 0 ? err_set(u->e, -errno, "cannot unpack '%.200s'", path) : 0;
}

static int unpack_hardlink(struct unpack *u, const char *raw, int at, const char *last, const char *path)
{
	char target[PATH_MAX];
	const char *target_last;
	OWN_FD parent = FD_NONE;
	struct stat st, mine;
	int r = unpack_path(u, raw, target, sizeof(target));

	if (r < 0)
		return r;
	if (r == 0)
		return unpack_refuse(u, path, "is a hard link to the root");
	r = parent_open(u, target, &target_last, &parent);
	if (r < 0)
		return r;
	if (fstatat(parent, target_last, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return unpack_refuse(u, path, "is a hard link to something that isn't there");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return unpack_refuse(u, path, "is a hard link to something that isn't a file");
	if (fstatat(at, last, &mine, AT_SYMLINK_NOFOLLOW) == 0) {
		if (mine.st_ino == st.st_ino && mine.st_dev == st.st_dev)
			return 0;
		r = make_room(u, at, last, path, st.st_mode & S_IFMT);
		if (r < 0)
			return r;
	}
	return linkat(parent, target_last, at, last, 0) < 0 ? err_set(u->e, -errno, "cannot unpack '%.200s'", path) : 0;
}

static int unpack_file(struct unpack *u, struct archive *a, struct archive_entry *ae, int at, const char *last, const char *path)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = archive_entry_mtime(ae) } };
	OWN_FD fd = openat(at, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return err_set(u->e, -errno, "cannot unpack '%.200s'", path);
	r = unpack_data(u, a, ae, fd, path);
	if (r < 0)
		return r;
	r = place_owner(u->b, fd, "", unpack_id(archive_entry_uid(ae)), unpack_id(archive_entry_gid(ae)));
	if (r == 0 && fchmod(fd, archive_entry_perm(ae) & 07777) < 0)
		r = -errno;
	(void)futimens(fd, times);
	return r < 0 ? err_set(u->e, r, "cannot unpack '%.200s'", path) : 0;
}

static int unpack_one(struct unpack *u, struct archive *a, struct archive_entry *ae)
{
	const char *raw = archive_entry_pathname(ae), *hard = archive_entry_hardlink(ae), *last = NULL, *target;
	uint32_t uid = unpack_id(archive_entry_uid(ae)), gid = unpack_id(archive_entry_gid(ae));
	mode_t type = archive_entry_filetype(ae);
	unsigned mode = archive_entry_perm(ae) & 07777;
	char path[PATH_MAX];
	OWN_FD at = FD_NONE;
	int r;

	if (!raw || !*raw)
		return unpack_refuse(u, "", "has no name that can be used");
	if (++u->files > u->max_files)
		return err_why(u->e, WHY_LIMIT, -E2BIG, "%s has more than %llu files", u->what,
			       (unsigned long long)u->max_files);
	if (u->files % 1024 == 0)
		build_at(u->b, "%s, %llu files, %llu MiB", u->doing, (unsigned long long)u->files, (unsigned long long)(u->bytes >> 20));
	r = unpack_path(u, raw, path, sizeof(path));
	if (r < 0)
		return r;
	if (r == 0)	/* the root itself: it is ours */
		return type == S_IFDIR ? 0 : unpack_refuse(u, raw, "wants to be the root");
	if (!u->noted_attrs && (archive_entry_xattr_count(ae) > 0 || archive_entry_acl_types(ae) != 0)) {
		u->noted_attrs = true;
		build_log(u->b, "extended attributes and access lists are left out");
	}
	if (!hard && type != S_IFREG && type != S_IFDIR && type != S_IFLNK && type != S_IFIFO) {
		unpack_note(u, path, type == S_IFCHR || type == S_IFBLK ? "a device" : "neither file, directory nor link");
		return 0;
	}
	r = parent_open(u, path, &last, &at);
	if (r < 0)
		return r;
	if (hard)
		return unpack_hardlink(u, hard, at, last, path);
	r = make_room(u, at, last, path, type);
	if (r < 0)
		return r;
	switch (type) {
	case S_IFREG:
		return unpack_file(u, a, ae, at, last, path);
	case S_IFDIR:
		r = place_dir(u->b, at, last, mode, uid, gid);
		break;
	case S_IFLNK:
		target = archive_entry_symlink(ae);
		if (!target || !*target)
			return unpack_refuse(u, path, "is a link to nowhere");
		r = place_link(u->b, at, last, target, uid, gid);
		break;
	default:
		r = mknodat(at, last, S_IFIFO | (mode & 0777), 0) < 0 ? -errno : place_owner(u->b, at, last, uid, gid);
	}
	return r < 0 ? err_set(u->e, r, "cannot unpack '%.200s'", path) : 0;
}

static int unpack_all(struct unpack *u)
{
	struct archive *a = archive_read_new();
	struct archive_entry *ae;
	int r = 0;

	if (!a)
		return err_set(u->e, -ENOMEM, "cannot unpack");
	/* One by one: support for "all" would run programs for what the library can't do itself. */
	if (archive_read_support_format_tar(a) != ARCHIVE_OK || archive_read_support_format_empty(a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(a) != ARCHIVE_OK || archive_read_support_filter_xz(a) != ARCHIVE_OK ||
	    archive_read_support_filter_bzip2(a) != ARCHIVE_OK || archive_read_support_filter_zstd(a) != ARCHIVE_OK) {
		r = err_why(u->e, WHY_UNSUPPORTED, -ENOTSUP, "libarchive was built without the usual compressions");
	} else if (archive_read_open_fd(a, u->b->from_fd, 1 << 16) != ARCHIVE_OK) {
		r = err_why(u->e, WHY_BAD_REQUEST, -EBADMSG, "%s is no archive that can be read: %s", u->b->source + 4,
			    archive_error_string(a) ? archive_error_string(a) : "unknown format");
	}
	while (r == 0) {
		int k = archive_read_next_header(a, &ae);

		if (k == ARCHIVE_EOF)
			break;
		if (k < ARCHIVE_WARN)
			r = err_why(u->e, WHY_BAD_REQUEST, -EBADMSG, "%s can't be read to its end: %s", u->b->source + 4,
				    archive_error_string(a) ? archive_error_string(a) : "it is damaged");
		else
			r = unpack_one(u, a, ae);
	}
	if (r == 0 && u->files == 0)
		r = err_why(u->e, WHY_BAD_REQUEST, -ENODATA, "%s is empty", u->b->source + 4);
	if (r == 0)
		build_log(u->b, "unpacked %llu files, %llu bytes; %llu left out", (unsigned long long)u->files,
			  (unsigned long long)u->bytes, (unsigned long long)u->left_out);
	(void)archive_read_free(a);
	return r;
}

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call filter of the unpacker needs the name of this architecture"
#endif

/* Everything that starts, joins, watches or talks to something else. Files and memory are what is left. */
static int filter_load(void)
{
	static const unsigned refused[] = {
		SYS_execve, SYS_execveat, SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_clone, SYS_clone3, SYS_unshare, SYS_setns,
		SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_bpf,
		SYS_perf_event_open, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_io_uring_setup, SYS_userfaultfd, SYS_kill,
		SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_open_by_handle_at,
		SYS_fsopen, SYS_open_tree, SYS_move_mount, SYS_init_module, SYS_finit_module, SYS_kexec_load, SYS_reboot,
	};
	enum { N = sizeof(refused) / sizeof(refused[0]) };
	struct sock_filter code[N + 8];
	struct sock_fprog prog = { .filter = code };
	unsigned short n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, N + 1, 0);	/* x32 */
#endif
	for (unsigned i = 0; i < N; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], (unsigned char)(N - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	prog.len = n;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0 ? -errno : 0;
}

#if defined(__SANITIZE_ADDRESS__)
#define HUGE_ADDRESS_SPACE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HUGE_ADDRESS_SPACE 1
#endif
#endif

static int limit_set(int what, rlim_t n)
{
	struct rlimit l;

	if (getrlimit(what, &l) < 0)
		return -errno;
	l.rlim_max = l.rlim_max < n ? l.rlim_max : n;
	l.rlim_cur = l.rlim_max;
	return setrlimit(what, &l) < 0 ? -errno : 0;
}

static int caps_keep(uint64_t keep)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	for (int cap = 0; cap < 64; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
			return -errno;
	for (unsigned i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(keep >> (32 * i));
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int unpack_confine(struct unpack *u, uint64_t caps)
{
	int r;

	/* Names in archives are UTF-8. Now, while the files of the locale could still be found. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_FS) < 0)
		return err_set(u->e, -errno, "cannot separate the unpacking (it needs root, or user namespaces)");
	if (fchdir(u->root_fd) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_set(u->e, -errno, "cannot confine the unpacking");
	r = limit_set(RLIMIT_CORE, 0);
	if (r == 0)
		r = limit_set(RLIMIT_NOFILE, 64);
	if (r == 0)
		r = limit_set(RLIMIT_FSIZE, u->max_bytes);
#ifndef HUGE_ADDRESS_SPACE
	if (r == 0)
		r = limit_set(RLIMIT_AS, MEMORY_MAX);
#endif
	if (r == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	if (r == 0)
		r = caps_keep(caps);
	if (r == 0)
		r = filter_load();
	return r < 0 ? err_set(u->e, r, "cannot confine the unpacking") : 0;
}

static _Noreturn void unpack_child(struct build *b, int report_fd)
{
	struct err e = ERR_INIT;
	struct unpack u;
	int r;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "cubby-unpack");
	(void)signal(SIGXFSZ, SIG_IGN);
	fd_close(&b->host_fd);
	fd_close(&b->dir_fd);
	unpack_begin(&u, b, b->root_fd, "the archive", "unpacking", &e);
	r = unpack_confine(&u, UNPACK_CAPS);
	if (r == 0)
		r = unpack_all(&u);
	if (r < 0)
		(void)fd_write_all(report_fd, &e, sizeof(e));
	_exit(r < 0 ? 1 : 0);
}

int unpack_build(struct build *b, struct err *e)
{
	struct err report = ERR_INIT;
	int pipe_fds[2], status, r;
	struct stat st;
	pid_t pid;

	if (fstat(b->from_fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s is neither a file nor a pipe", b->source + 4);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot unpack %s", b->source + 4);
	build_at(b, "unpacking");
	pid = fork();
	if (pid == 0) {
		(void)close(pipe_fds[0]);
		unpack_child(b, pipe_fds[1]);
	}
	(void)close(pipe_fds[1]);
	if (pid < 0) {
		(void)close(pipe_fds[0]);
		return err_set(e, -errno, "cannot unpack %s", b->source + 4);
	}
	/* The child's word is a stranger's: whole or nothing, and terminated by us. */
	r = fd_read_exact(pipe_fds[0], &report, sizeof(report));
	report.text[sizeof(report.text) - 1] = '\0';
	(void)close(pipe_fds[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return root_finish(b, false, e);
	if (r == 0 && report.code < 0 && report.code > -4096 && report.why < WHY_COUNT)
		return err_why(e, report.why, report.code, "%s", report.text);
	return err_why(e, WHY_HOSTILE, -EBADMSG, "the archive %s made the unpacking crash, or needed too much memory; it is refused",
		       b->source + 4);
}
