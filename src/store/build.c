/* SPDX-License-Identifier: Apache-2.0 */
#include "store/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "store/oci.h"
#include "store/tree.h"

#define PROGRESS_MAX 160
#define FIRST_FD 3	/* of those that the builder keeps */

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void build_log(struct build *b, const char *fmt, ...)
{
	OWN_BUF raw = BUF_INIT(65536);
	OWN_BUF line = BUF_INIT(65536 * 8);
	va_list ap;

	va_start(ap, fmt);
	(void)buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	(void)buf_printf(&line, "%6.1f  ", (double)(now_ms() - b->started_ms) / 1000);
	text_escape(&line, raw.data ? raw.data : "", raw.len);
	(void)buf_putc(&line, '\n');
	/* A log that can't be written doesn't stop a build; a full disk stops it elsewhere. */
	if (line.data && b->log_fd >= 0)
		(void)fd_write_all(b->log_fd, line.data, line.len);
}

void build_at(struct build *b, const char *fmt, ...)
{
	char line[PROGRESS_MAX] = "";
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	/* Always the whole record, padded with zeroes: a reader never sees the tail of an earlier one. */
	if (b->progress_fd >= 0 && pwrite(b->progress_fd, line, sizeof(line), 0) < 0)
		return;
}

void template_build_progress(struct template_store *s, const struct template_build *b, char *ret, size_t n)
{
	char path[NAME_MAX + 16], line[PROGRESS_MAX + 1] = "";
	const char *entry = strrchr(b->dir, '/');
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "%s/progress", entry ? entry + 1 : b->dir);
	fd = tree_open(s->building_fd, path, O_RDONLY | O_NOFOLLOW);
	if (fd < 0 || pread(fd, line, PROGRESS_MAX, 0) < 0)
		line[0] = '\0';
	(void)snprintf(ret, n, "%s", line);
}

/* state.json: what a list shows while there is no meta.json. */
static int state_write(int dir_fd, const char *source, const struct err *failed)
{
	OWN_BUF text = BUF_INIT(65536);
	OWN_FD fd = FD_NONE;
	struct json_out o;

	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_int(&o, "v", 1);
	json_put_str(&o, "source", source);
	json_put_int(&o, "created", (int64_t)time(NULL));
	if (failed) {
		json_put_str(&o, "error", failed->text);
		json_put_str(&o, "why", why_word(failed->why));
		json_put_int(&o, "code", failed->code);
	}
	json_end_obj(&o);
	if (buf_error(&text))
		return buf_error(&text);
	fd = openat(dir_fd, "state.json", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd_write_all(fd, text.data, text.len);
}

static int meta_write(struct build *b, const struct tree_size *size)
{
	OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
	struct json_out o;
	char stamp[24];

	if (buf_error(&b->parts) || buf_error(&b->layers) || buf_error(&b->image))
		return -E2BIG;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_int(&o, "v", 1);
	json_put_str(&o, "source", b->source);
	json_put_int(&o, "created", (int64_t)time(NULL));
	json_put_int(&o, "bytes", (int64_t)size->bytes);
	json_put_int(&o, "files", (int64_t)size->files);
	json_put_int(&o, "ids", b->ids);
	if (b->stamp) {
		(void)snprintf(stamp, sizeof(stamp), "%016" PRIx64, b->stamp);
		json_put_str(&o, "stamp", stamp);
	}
	if (b->image.len)
		json_put_raw(&o, "image", b->image.data, b->image.len);
	(void)buf_puts(&text, ",\"parts\":[{\"at\":\"/\",\"idmap\":true,\"layers\":[\"root\"");
	(void)buf_put(&text, b->layers.data ? b->layers.data : "", b->layers.len);
	(void)buf_puts(&text, "]}");
	(void)buf_put(&text, b->parts.data ? b->parts.data : "", b->parts.len);
	(void)buf_puts(&text, "]}\n");
	if (buf_error(&text))
		return buf_error(&text);
	return place_file(&(struct build){ .ids = TEMPLATE_IDS_ONE }, b->dir_fd, "meta.json", 0600, 0, 0, text.data, text.len);
}

static int build_run(struct build *b, struct err *e)
{
	struct tree_size size = { 0 };
	int r;

	if (strcmp(b->source, "host") == 0)
		r = host_build(b, e);
	else if (strcmp(b->source, "debian") == 0)
		r = debian_build(b, "", e);
	else if (strncmp(b->source, "debian:", 7) == 0)
		r = debian_build(b, b->source + 7, e);
	else if (strncmp(b->source, "dir:", 4) == 0)
		r = copy_build(b, e);
	else if (strncmp(b->source, "tar:", 4) == 0)
		r = unpack_build(b, e);
	else
		r = image_build(b, e);
	if (r < 0)
		return r;
	build_at(b, "measuring");
	r = tree_measure(b->dir_fd, "root", 0, &size, e);
	if (r < 0)
		return r;
	size.bytes += b->more_bytes;
	size.files += b->more_files;
	r = meta_write(b, &size);
	if (r < 0)
		return err_set(e, r, "cannot write the description of the template");
	/* Complete is complete after a power cut, too. The host's skeleton is made again in a second. */
	if (strcmp(b->source, "host") != 0) {
		build_at(b, "writing to disk");
		if (syncfs(b->dir_fd) < 0)
			return err_set(e, -errno, "cannot write the template to disk");
	}
	r = image_publish(b, e);
	if (r < 0)
		return r;
	build_log(b, "done: %llu files, %llu bytes", (unsigned long long)size.files, (unsigned long long)size.bytes);
	return 0;
}

/* Descriptors to numbers from FIRST_FD on, in order; everything else is closed. */
static int keep_fds(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i] == FD_NONE)
			continue;
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 100);
		if (fds[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < n; i++) {
		if (fds[i] == FD_NONE) {
			(void)close(FIRST_FD + (int)i);
			continue;
		}
		if (dup3(fds[i], FIRST_FD + (int)i, O_CLOEXEC) < 0)
			return -errno;
		fds[i] = FIRST_FD + (int)i;
	}
	return close_range((unsigned)(FIRST_FD + n), ~0u, 0) < 0 ? -errno : 0;
}

static _Noreturn void child_main(struct build *b, int lock_fd, int parent_fd)
{
	enum { DIR_FD, LOCK, FROM, HOST, LOG, PROGRESS, ROOT, LAYERS, FDS };
	struct err e = ERR_INIT;
	sigset_t none;
	int r, null_fd;
	int fds[FDS] = { b->dir_fd, lock_fd, b->from_fd, b->host_fd, b->log_fd, b->progress_fd, b->root_fd, b->layers_fd };
	struct pollfd alive = { .fd = parent_fd, .events = POLLIN };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before the line above. */
	if (poll(&alive, 1, 0) != 0)
		_exit(1);
	(void)prctl(PR_SET_NAME, "cubby-build");
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setsid();
	(void)umask(0);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(b->log_fd, 1) < 0 || dup2(b->log_fd, 2) < 0 || chdir("/") < 0)
		_exit(1);
	r = keep_fds(fds, FDS);
	if (r < 0)
		_exit(1);
	b->dir_fd = fds[DIR_FD];
	b->from_fd = fds[FROM];
	b->host_fd = fds[HOST];
	b->log_fd = fds[LOG];
	b->progress_fd = fds[PROGRESS];
	b->root_fd = fds[ROOT];
	b->layers_fd = fds[LAYERS];
	if (b->contained && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		r = err_set(&e, -errno, "cannot separate the mounts of the build");
	if (r == 0)
		r = build_run(b, &e);
	if (r < 0) {
		build_log(b, "failed: %s", e.text);
		(void)state_write(b->dir_fd, b->source, &e);
		_exit(2);
	}
	_exit(0);
}

static pid_t start_child(bool *contained, int *ret_pidfd)
{
	struct clone_args args = { .flags = CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS, .exit_signal = SIGCHLD };
	int pidfd = FD_NONE;
	pid_t pid;

	args.pidfd = (uint64_t)(uintptr_t)&pidfd;
	*contained = true;
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0 && errno == EPERM) {
		*contained = false;
		args.flags = CLONE_PIDFD;
		pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	}
	*ret_pidfd = pidfd;
	return pid < 0 ? -errno : pid;
}

static int source_check(const char *source, int from_fd, struct err *e)
{
	static const char *const kinds[] = { "host", "debian", "dir:", "tar:", "oci:" };
	const char *near;

	if (strcmp(source, "host") == 0 || strcmp(source, "debian") == 0)
		return 0;
	if (strncmp(source, "debian:", 7) == 0) {
		if (!debian_suite_ok(source + 7))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is not the name of a Debian suite; \"debian:bookworm\" would be one",
				       source + 7);
		return 0;
	}
	if (strncmp(source, "oci:", 4) == 0) {
		const char *ref;

		if (oci_path_split(source + 4, &ref) == 0 || (ref && !oci_ref_ok(ref)))
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' names no image; \"oci:DIR\" or \"oci:DIR:NAME\" would", source);
	}
	if ((strncmp(source, "dir:", 4) == 0 || strncmp(source, "tar:", 4) == 0 || strncmp(source, "oci:", 4) == 0) && source[4]) {
		if (from_fd < 0)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s has to be opened by the client", source);
		return 0;
	}
	near = nearest_word(source, kinds, sizeof(kinds) / sizeof(kinds[0]));
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is no source of a template: it is host, debian[:SUITE], dir:PATH, tar:FILE or "
		       "oci:DIR[:NAME]%s%s%s",
		       source, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Nothing else of this name may be there or be coming. Removes what dead and failed builds of it left. */
static int name_claim(struct template_store *s, const char *name, bool replace, struct err *e)
{
	int fd = openat(s->building_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	size_t n = strlen(name);
	struct dirent *de;

	if (!d) {
		fd_close(&fd);
		return err_set(e, -errno, "cannot list the builds");
	}
	if (!replace && template_exists(s, name)) {
		(void)closedir(d);
		return err_why(e, WHY_EXISTS, -EEXIST, "there is a template '%s' already; remove it first with: cubby template rm %s", name,
			       name);
	}
	while (r == 0 && (de = readdir(d)) != NULL) {
		char lock[NAME_MAX + 16];
		OWN_FD lock_fd = FD_NONE;

		if (strncmp(de->d_name, name, n) != 0 || de->d_name[n] != '.')
			continue;
		(void)snprintf(lock, sizeof(lock), "%s/lock", de->d_name);
		lock_fd = tree_open(s->building_fd, lock, O_RDONLY | O_NOFOLLOW);
		if (lock_fd >= 0 && flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
			r = err_why(e, WHY_EXISTS, -EEXIST, "the template '%s' is being built already; cubby template cancel %s ends that",
				    name, name);
		else
			r = tree_remove(s->building_fd, de->d_name, e);
	}
	(void)closedir(d);
	return r;
}

/* building/NAME.XXXXXXXX with lock, log, progress, root/. */
static int dir_make(struct template_store *s, const char *name, const char *source, struct template_build *ret, struct build *b,
		    int *ret_lock, struct err *e)
{
	OWN_FD dir_fd = FD_NONE;
	char entry[NAME_MAX_LEN + 16];
	uint32_t rnd;
	int r;

	if (getrandom(&rnd, sizeof(rnd), 0) != (ssize_t)sizeof(rnd))
		return err_set(e, -EIO, "cannot choose a name for the build");
	(void)snprintf(entry, sizeof(entry), "%s.%08x", name, rnd);
	r = snprintf(ret->dir, sizeof(ret->dir), "%s/building/%s", s->dir, entry);
	if (r < 0 || (size_t)r >= sizeof(ret->dir))
		return err_set(e, -ENAMETOOLONG, "the path of the state directory is too long for a build: %s", s->dir);
	if (mkdirat(s->building_fd, entry, 0700) < 0)
		return err_set(e, -errno, "cannot make %s", ret->dir);
	dir_fd = tree_open(s->building_fd, entry, O_RDONLY | O_DIRECTORY);
	if (dir_fd < 0)
		return err_set(e, dir_fd, "cannot open %s", ret->dir);
	b->dir_fd = fd_take(&dir_fd);
	/* In the order of trust: whoever finds the directory without a locked file takes it for dead. */
	*ret_lock = openat(b->dir_fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (*ret_lock < 0 || flock(*ret_lock, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, -errno, "cannot lock %s", ret->dir);
	b->log_fd = openat(b->dir_fd, "log", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	b->progress_fd = openat(b->dir_fd, "progress", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (b->log_fd < 0 || b->progress_fd < 0)
		return err_set(e, -errno, "cannot make the log in %s", ret->dir);
	r = state_write(b->dir_fd, source, NULL);
	if (r == 0)
		r = place_dir(b, b->dir_fd, "root", 0755, 0, 0);
	if (r == 0) {
		b->root_fd = tree_open(b->dir_fd, "root", O_RDONLY | O_DIRECTORY);
		r = b->root_fd < 0 ? b->root_fd : 0;
	}
	return r < 0 ? err_set(e, r, "cannot prepare %s", ret->dir) : 0;
}

static void build_close(struct build *b)
{
	fd_close(&b->dir_fd);
	fd_close(&b->root_fd);
	fd_close(&b->log_fd);
	fd_close(&b->progress_fd);
	fd_close(&b->host_fd);
}

static int build_start(struct template_store *s, const char *name, const char *source, int from_fd, const struct template_who *who,
		       uint64_t limit_ms, bool replace, struct template_build *ret, struct err *e)
{
	struct build b = { .ids = s->ids, .dir_fd = FD_NONE, .root_fd = FD_NONE, .log_fd = FD_NONE, .progress_fd = FD_NONE,
			   .from_fd = from_fd, .host_fd = FD_NONE, .host_root = s->host_root, .source = source, .who = who,
			   .layers_fd = s->layers_fd,
			   .parts = BUF_INIT(TEMPLATE_META_MAX / 4), .layers = BUF_INIT(65536), .image = BUF_INIT(TEMPLATE_META_MAX / 2),
			   .started_ms = now_ms() };
	struct template_build made = { .pidfd = FD_NONE, .replace = replace };
	OWN_FD lock_fd = FD_NONE, self_fd = FD_NONE;
	int r;

	if (!name_ok(name))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' can't be the name of a template: " NAME_RULE, name);
	r = source_check(source, from_fd, e);
	if (r == 0)
		r = name_claim(s, name, replace, e);
	if (r < 0)
		return r;
	(void)snprintf(made.name, sizeof(made.name), "%s", name);
	r = dir_make(s, name, source, &made, &b, &lock_fd, e);
	if (r == 0) {
		b.host_fd = open(*s->host_root ? s->host_root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (b.host_fd < 0)
			r = err_set(e, -errno, "cannot open %s", *s->host_root ? s->host_root : "/");
	}
	if (r == 0) {
		self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
		if (self_fd < 0)
			r = err_set(e, -errno, "cannot start the build of '%s'", name);
	}
	if (r == 0) {
		pid_t pid = start_child(&b.contained, &made.pidfd);

		if (pid == 0)
			child_main(&b, lock_fd, self_fd);
		made.pid = pid;
		if (pid < 0)
			r = err_set(e, (int)pid, "cannot start the build of '%s'", name);
	}
	build_close(&b);
	if (r < 0) {
		const char *entry = strrchr(made.dir, '/');

		if (entry)
			(void)tree_remove(s->building_fd, entry + 1, NULL);
		return r;
	}
	made.deadline_ms = limit_ms ? b.started_ms + limit_ms : 0;
	*ret = made;
	return 0;
}

int template_build_start(struct template_store *s, const char *name, const char *source, int from_fd,
			 const struct template_who *who, uint64_t limit_ms, struct template_build *ret, struct err *e)
{
	return build_start(s, name, source, from_fd, who, limit_ms, false, ret, e);
}

int template_host_rebuild(struct template_store *s, uint64_t limit_ms, struct template_build *ret, struct err *e)
{
	return build_start(s, "host", "host", FD_NONE, NULL, limit_ms, true, ret, e);
}

static const char *entry_of(const struct template_build *b)
{
	const char *slash = strrchr(b->dir, '/');

	return slash ? slash + 1 : b->dir;
}

/* What is left of a build that came to nothing: state.json and log, as building/NAME.failed. */
static void keep_log(struct template_store *s, struct template_build *b, const struct err *why)
{
	OWN_FD dir_fd = tree_open(s->building_fd, entry_of(b), O_RDONLY | O_DIRECTORY);
	OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
	OWN_JSON doc = { 0 };
	char failed[NAME_MAX_LEN + 16];

	if (dir_fd >= 0) {
		(void)store_discard(s, dir_fd, "root", NULL);
		(void)store_discard(s, dir_fd, "mask", NULL);
		(void)store_discard(s, dir_fd, "oci", NULL);
		(void)unlinkat(dir_fd, "meta.json", 0);
		(void)unlinkat(dir_fd, "progress", 0);
		if (place_read(dir_fd, "state.json", &text) == 0)
			(void)json_parse(text.data ? text.data : "", text.len, &doc, NULL);
		(void)state_write(dir_fd, json_str(doc.root, "source", ""), why);
		(void)unlinkat(dir_fd, "lock", 0);
		(void)snprintf(failed, sizeof(failed), "%s.failed", b->name);
		(void)tree_remove(s->building_fd, failed, NULL);
		if (renameat(s->building_fd, entry_of(b), s->building_fd, failed) == 0)
			return;
	}
	(void)store_discard(s, s->building_fd, entry_of(b), NULL);
}

/* The error that the builder itself has written, if it has. */
static int read_error(struct template_store *s, struct template_build *b, int dflt, struct err *e)
{
	OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
	OWN_JSON doc = { 0 };
	char path[NAME_MAX + 16];
	int64_t code;

	(void)snprintf(path, sizeof(path), "%s/state.json", entry_of(b));
	if (place_read(s->building_fd, path, &text) < 0 || json_parse(text.data ? text.data : "", text.len, &doc, NULL) < 0 ||
	    !json_str(doc.root, "error", NULL))
		return dflt;
	code = json_int(doc.root, "code", -EIO);
	return err_why(e, why_parse(json_str(doc.root, "why", "internal")), code < 0 && code > -4096 ? (int)code : -EIO, "%s",
		       json_str(doc.root, "error", ""));
}

/* End it with everything it started, and wait for that. */
static int reap(struct template_build *b, bool end, siginfo_t *ret)
{
	if (end && syscall(SYS_pidfd_send_signal, b->pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		return -errno;
	/* The init of a pid namespace is not reaped before all of its processes are gone. */
	for (;;) {
		memset(ret, 0, sizeof(*ret));
		if (waitid(P_PIDFD, (id_t)b->pidfd, ret, WEXITED) == 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

static int ended_badly(struct template_store *s, struct template_build *b, const siginfo_t *si, struct err *e)
{
	if (si->si_code == CLD_EXITED && si->si_status == 2)
		return read_error(s, b, err_why(e, WHY_INTERNAL, -EIO, "the build of '%s' failed", b->name), e);
	if (si->si_code == CLD_EXITED)
		return err_why(e, WHY_INTERNAL, -EIO, "the build of '%s' ended without a reason (status %d)", b->name, si->si_status);
	return err_why(e, WHY_INTERNAL, -EIO, "the build of '%s' was killed by signal %d (%s); the host may be short of memory", b->name,
		       si->si_status, strsignal(si->si_status));
}

/* From building/ to templates/, in one step. */
static int publish(struct template_store *s, struct template_build *b, struct err *e)
{
	OWN_FD dir_fd = tree_open(s->building_fd, entry_of(b), O_RDONLY | O_DIRECTORY);

	if (dir_fd < 0)
		return err_set(e, dir_fd, "cannot publish the template '%s'", b->name);
	(void)unlinkat(dir_fd, "progress", 0);
	(void)unlinkat(dir_fd, "state.json", 0);
	(void)unlinkat(dir_fd, "lock", 0);
	if (!template_exists(s, b->name)) {
		/* What a removal that was cut short left. A complete one stops the rename. */
		(void)tree_remove(s->templates_fd, b->name, NULL);
	} else if (b->replace) {
		/*
		 * Exchanged, so that there is one at every moment. The old one then gets the name of the build, which a sweep
		 * leaves alone: boxes that run on it still look things up there.
		 */
		if (renameat2(s->building_fd, entry_of(b), s->templates_fd, b->name, RENAME_EXCHANGE) < 0 ||
		    renameat2(s->building_fd, entry_of(b), s->templates_fd, entry_of(b), RENAME_NOREPLACE) < 0)
			return err_set(e, -errno, "cannot publish the template '%s'", b->name);
		return 0;
	}
	if (renameat2(s->building_fd, entry_of(b), s->templates_fd, b->name, RENAME_NOREPLACE) < 0)
		return err_set(e, -errno, "cannot publish the template '%s'", b->name);
	return 0;
}

int template_build_finish(struct template_store *s, struct template_build *b, struct err *e)
{
	struct err mine = ERR_INIT;
	struct pollfd p = { .fd = b->pidfd, .events = POLLIN };
	bool late;
	siginfo_t si;
	int r;

	late = poll(&p, 1, 0) == 0 && b->deadline_ms && now_ms() >= b->deadline_ms;
	r = reap(b, late, &si);
	fd_close(&b->pidfd);
	if (r < 0)
		(void)err_set(&mine, r, "cannot wait for the build of '%s'", b->name);
	else if (late)
		r = err_why(&mine, WHY_TIMEOUT, -ETIMEDOUT, "the build of '%s' took longer than its time limit; allow more with --time-limit",
			    b->name);
	else if (si.si_code != CLD_EXITED || si.si_status != 0)
		r = ended_badly(s, b, &si, &mine);
	if (r == 0)
		r = publish(s, b, &mine);
	if (r < 0)
		keep_log(s, b, &mine);
	/* What was removed while it ran may have left layers. */
	(void)layers_prune(s, NULL);
	return r < 0 ? err_why(e, mine.why, r, "%s", mine.text) : 0;
}

int template_build_cancel(struct template_store *s, struct template_build *b, struct err *e)
{
	struct err why = ERR_INIT;
	siginfo_t si;
	int r = reap(b, true, &si);

	fd_close(&b->pidfd);
	if (r < 0)
		return err_set(e, r, "cannot end the build of '%s'", b->name);
	(void)err_why(&why, WHY_CANCELLED, -ECANCELED, "the build was cancelled");
	keep_log(s, b, &why);
	(void)layers_prune(s, NULL);
	return 0;
}
