/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "store/tree.h"

static int top_open(void)
{
	const char *dir = leak_dir();
	int fd;

	assert_non_null(dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void put_file(int dir_fd, const char *name, const char *text)
{
	OWN_FD fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static bool there(int dir_fd, const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A chain of n directories below dir_fd, each called `name`; the deepest one holds a file. */
static void make_chain(int dir_fd, const char *name, unsigned n)
{
	int at = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);

	for (unsigned i = 0; i < n; i++) {
		int next;

		assert_int_equal(mkdirat(at, name, 0755), 0);
		next = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(at);
		at = next;
	}
	put_file(at, "deepest", "x");
	(void)close(at);
}

static void nothing_to_remove_is_no_error(void **state)
{
	OWN_FD top = top_open();
	struct err e = ERR_INIT;

	assert_int_equal(tree_remove(top, "absent", &e), 0);
	assert_int_equal(e.code, 0);
}

static void only_one_name_is_accepted(void **state)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "/", "a/" };
	OWN_FD top = top_open();

	assert_int_equal(mkdirat(top, "a", 0755), 0);
	assert_int_equal(mkdirat(top, "a/b", 0755), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(tree_remove(top, bad[i], &e), -EINVAL);
		assert_string_not_equal(e.text, "");
	}
	assert_true(there(top, "a/b"));
	assert_int_equal(tree_remove(top, "a", NULL), 0);
	assert_false(there(top, "a"));
}

static void links_are_removed_not_followed(void **state)
{
	OWN_FD top = top_open();

	assert_int_equal(mkdirat(top, "keep", 0755), 0);
	put_file(top, "keep/marker", "kept");
	assert_int_equal(mkdirat(top, "t", 0755), 0);
	assert_int_equal(mkdirat(top, "t/full", 0755), 0);
	assert_int_equal(symlinkat("../../keep", top, "t/full/out"), 0);
	assert_int_equal(symlinkat("/proc/self/root", top, "t/full/root"), 0);
	assert_int_equal(linkat(top, "keep/marker", top, "t/full/hard", 0), 0);
	assert_int_equal(symlinkat("keep", top, "link"), 0);

	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_int_equal(tree_remove(top, "link", NULL), 0);
	assert_false(there(top, "t"));
	assert_false(there(top, "link"));
	assert_true(there(top, "keep/marker"));
	assert_int_equal(tree_remove(top, "keep", NULL), 0);
}

static void any_name_and_any_type(void **state)
{
	char longest[256];
	OWN_FD top = top_open();
	OWN_FD t = FD_NONE;
	OWN_FD sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	const char *const names[] = { "new\nline", "\x1b[31m", "-rf", "\xff\xfe", " ", "...", longest };

	memset(longest, 'n', 255);
	longest[255] = '\0';
	assert_int_equal(mkdirat(top, "t", 0755), 0);
	t = openat(top, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		OWN_FD sub = FD_NONE;

		assert_int_equal(mkdirat(t, names[i], 0755), 0);
		sub = openat(t, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			put_file(sub, names[k], "x");
	}
	assert_int_equal(mkfifoat(t, "fifo", 0), 0);
	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "/proc/self/fd/%d/sock", t);
	assert_int_equal(bind(sock, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_false(there(top, "t"));
}

static void ten_thousand_levels(void **state)
{
	struct tree_size size;
	OWN_FD top = top_open();

	assert_int_equal(mkdirat(top, "t", 0755), 0);
	{
		OWN_FD t = openat(top, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		make_chain(t, "d", 10000);
		/* A name that the removal itself would choose for what it moves. */
		put_file(t, ".0000000000000000", "x");
	}
	assert_int_equal(tree_measure(top, "t", 0, &size, NULL), 0);
	assert_int_equal(size.files, 10003);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_false(there(top, "t"));
}

static void wide_and_deep(void **state)
{
	OWN_FD top = top_open();
	struct tree_size size;

	assert_int_equal(mkdirat(top, "t", 0755), 0);
	for (unsigned i = 0; i < 300; i++) {
		char name[32];
		OWN_FD sub = FD_NONE;

		(void)snprintf(name, sizeof(name), "t/dir%u", i);
		assert_int_equal(mkdirat(top, name, 0755), 0);
		sub = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		for (unsigned k = 0; k < 10; k++) {
			char file[300];

			(void)snprintf(file, sizeof(file), "%0200u", k);
			put_file(sub, file, "");
		}
		make_chain(sub, "c", i % 50);
	}
	assert_int_equal(tree_measure(top, "t", 0, &size, NULL), 0);
	/* t, 300 directories with 10 files and one "deepest" each, and the chains: 6 times 0 + 1 + … + 49. */
	assert_int_equal(size.files, 1 + 300 * 12 + 6 * 1225);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_false(there(top, "t"));
}

static void modes_do_not_matter(void **state)
{
	OWN_FD top = top_open();
	pid_t pid;
	int status;

	/* Root is stopped by no mode, so somebody else makes the attempt. */
	assert_int_equal(fchmod(top, 0777), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(10);
		if (mkdirat(top, "t", 0755) < 0 || mkdirat(top, "t/a", 0755) < 0 || mkdirat(top, "t/a/b", 0755) < 0)
			_exit(11);
		if (fchmodat(top, "t/a/b", 0, 0) < 0 || fchmodat(top, "t/a", 0, 0) < 0)
			_exit(12);
		if (faccessat(top, "t/a/b", F_OK, 0) == 0)
			_exit(13);	/* nothing would be proven */
		if (tree_remove(top, "t", NULL) < 0)
			_exit(14);
		_exit(there(top, "t") ? 15 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void immutable_files_are_removed(void **state)
{
	OWN_FD top = top_open();
	static const char *const names[] = { "t/d/file", "t/d" };
	int flags;

	assert_int_equal(mkdirat(top, "t", 0755), 0);
	assert_int_equal(mkdirat(top, "t/d", 0755), 0);
	put_file(top, "t/d/file", "x");
	for (size_t i = 0; i < 2; i++) {
		OWN_FD fd = openat(top, names[i], O_RDONLY | O_CLOEXEC);

		flags = i == 0 ? FS_IMMUTABLE_FL : FS_APPEND_FL;
		if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0) {
			int why = errno;

			fd_close(&fd);
			flags = 0;
			(void)leak_dir_clear();
			fd_close(&top);
			skip_because("this file system or user can't set the immutable flag: %s", strerror(why));
		}
	}
	/* The flags are in force ... */
	assert_int_equal(unlinkat(top, "t/d/file", 0), -1);
	assert_int_equal(errno, EPERM);
	/* ... and no obstacle. */
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_false(there(top, "t"));
}

/* Runs `what` in a child with a mount namespace of its own; the exit status, or 77 without the right to have one. */
static int in_mount_ns(int (*what)(int top), int top)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		/* Descriptors stay with the mounts of the old namespace; the working directory moves along. */
		if (fchdir(top) < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(77);
		_exit(what(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int mounted_child(int top)
{
	struct err e = ERR_INIT;
	struct tree_size size;

	if (mount("none", "t/a/m", "tmpfs", 0, NULL) < 0)
		return 77;
	put_file(top, "t/a/m/inside", "kept");
	if (tree_measure(top, "t", 0, &size, &e) < 0 || size.files != 3)
		return 1;
	if (tree_remove(top, "t", &e) != -EBUSY || e.why != WHY_BUSY)
		return 2;
	if (!strstr(e.text, "t/a/m"))
		return 3;
	if (!there(top, "t/a/m/inside"))
		return 4;
	if (umount("t/a/m") < 0)
		return 5;
	return 0;
}

static void mounts_are_not_crossed(void **state)
{
	OWN_FD top = top_open();
	int r;

	assert_int_equal(mkdirat(top, "t", 0755), 0);
	assert_int_equal(mkdirat(top, "t/a", 0755), 0);
	assert_int_equal(mkdirat(top, "t/a/m", 0755), 0);
	put_file(top, "t/z", "x");
	r = in_mount_ns(mounted_child, top);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	if (r == 77) {
		fd_close(&top);
		skip_because("no mount namespace can be made by this user");
	}
	assert_int_equal(r, 0);
}

struct stir {
	int top;
	atomic_bool stop;
};

/* Swaps a directory for a link to outside and back, as fast as it goes. */
static void *stirring(void *arg)
{
	struct stir *s = arg;

	while (!atomic_load(&s->stop)) {
		(void)renameat(s->top, "t/a/x", s->top, "aside");
		(void)symlinkat("../../keep", s->top, "t/a/x");
		(void)unlinkat(s->top, "t/a/x", 0);
		(void)renameat(s->top, "aside", s->top, "t/a/x");
	}
	return NULL;
}

static void a_race_leads_nowhere(void **state)
{
	OWN_FD top = top_open();
	struct stir s = { .top = top };
	pthread_t thread;

	assert_int_equal(mkdirat(top, "keep", 0755), 0);
	put_file(top, "keep/marker", "kept");
	assert_int_equal(pthread_create(&thread, NULL, stirring, &s), 0);
	for (unsigned i = 0; i < 300; i++) {
		struct tree_size size;

		(void)mkdirat(top, "t", 0755);
		(void)mkdirat(top, "t/a", 0755);
		(void)mkdirat(top, "t/a/x", 0755);
		(void)mkdirat(top, "t/a/x/y", 0755);
		(void)tree_measure(top, "t", 0, &size, NULL);
		(void)tree_remove(top, "t", NULL);	/* may lose against the stirring; what counts is below */
		assert_true(there(top, "keep/marker"));
	}
	atomic_store(&s.stop, true);
	(void)pthread_join(thread, NULL);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
	assert_int_equal(tree_remove(top, "aside", NULL), 0);
	assert_true(there(top, "keep/marker"));
	assert_int_equal(tree_remove(top, "keep", NULL), 0);
}

static void hard_links_count_once(void **state)
{
	OWN_FD top = top_open();
	struct tree_size one, two;
	char data[100000];

	memset(data, 'd', sizeof(data) - 1);
	data[sizeof(data) - 1] = '\0';
	assert_int_equal(mkdirat(top, "t", 0755), 0);
	put_file(top, "t/a", data);
	assert_int_equal(tree_measure(top, "t", 0, &one, NULL), 0);
	assert_true(one.bytes >= sizeof(data) - 1);
	assert_int_equal(one.files, 2);
	for (unsigned i = 0; i < 600; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "t/l%u", i);
		assert_int_equal(linkat(top, "t/a", top, name, 0), 0);
	}
	assert_int_equal(tree_measure(top, "t", 0, &two, NULL), 0);
	assert_int_equal(two.files, 2);
	assert_true(two.bytes < 2 * one.bytes);
	put_file(top, "t/b", data);
	assert_int_equal(tree_measure(top, "t", 0, &two, NULL), 0);
	assert_int_equal(two.files, 3);
	assert_int_equal(tree_measure(top, "absent", 0, &two, NULL), 0);
	assert_int_equal(two.files, 0);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
}

static int slow_entry(const struct tree_entry *t, void *arg)
{
	return usleep(1000);
}

static void a_walk_has_a_time_limit(void **state)
{
	OWN_FD top = top_open();
	struct tree_visit v = { .entry = slow_entry, .max_ms = 50 };

	assert_int_equal(mkdirat(top, "t", 0755), 0);
	for (unsigned i = 0; i < 500; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "t/f%u", i);
		put_file(top, name, "");
	}
	assert_int_equal(tree_walk(top, "t", &v, NULL), -ETIMEDOUT);
	v.max_ms = 0;
	assert_int_equal(tree_walk(top, "t", &v, NULL), 0);
	assert_int_equal(tree_remove(top, "t", NULL), 0);
}

static int stop_at_depth(const struct tree_entry *t, void *arg)
{
	return t->depth == *(unsigned *)arg ? -EINTR : 0;
}

static void a_stopped_walk_leaves_nothing_open(void **state)
{
	OWN_FD top = top_open();

	make_chain(top, "d", 100);
	for (unsigned depth = 0; depth < 100; depth += 3) {
		struct tree_visit v = { .entry = stop_at_depth, .arg = &depth };

		/* leak_check() finds what it leaves. */
		assert_int_equal(tree_walk(top, "d", &v, NULL), -EINTR);
	}
	assert_int_equal(tree_remove(top, "d", NULL), 0);
}

/* What a box that wrote nothing leaves: upper/N and work/N/work for each part. */
static void an_empty_box_goes_quickly(void **state)
{
	OWN_FD top = top_open();
	uint64_t best = UINT64_MAX;

	for (unsigned round = 0; round < 50; round++) {
		struct timespec a, b;
		uint64_t ns;

		assert_int_equal(mkdirat(top, "t", 0755), 0);
		assert_int_equal(mkdirat(top, "t/upper", 0755), 0);
		assert_int_equal(mkdirat(top, "t/upper/0", 0755), 0);
		assert_int_equal(mkdirat(top, "t/upper/1", 0755), 0);
		assert_int_equal(mkdirat(top, "t/work", 0755), 0);
		assert_int_equal(mkdirat(top, "t/work/0", 0755), 0);
		assert_int_equal(mkdirat(top, "t/work/0/work", 0), 0);
		assert_int_equal(mkdirat(top, "t/work/1", 0755), 0);
		assert_int_equal(mkdirat(top, "t/work/1/work", 0), 0);
		(void)clock_gettime(CLOCK_MONOTONIC, &a);
		assert_int_equal(tree_remove(top, "t", NULL), 0);
		(void)clock_gettime(CLOCK_MONOTONIC, &b);
		ns = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
		best = ns < best ? ns : best;
	}
	print_message("# removing an empty box: %llu us (acceptable: 200)\n", (unsigned long long)best / 1000);
	assert_true(best < 200000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nothing_to_remove_is_no_error),
		T(only_one_name_is_accepted),
		T(links_are_removed_not_followed),
		T(any_name_and_any_type),
		T(ten_thousand_levels),
		T(wide_and_deep),
		T(modes_do_not_matter),
		T(immutable_files_are_removed),
		T(mounts_are_not_crossed),
		T(a_race_leads_nowhere),
		T(hard_links_count_once),
		T(a_walk_has_a_time_limit),
		T(a_stopped_walk_leaves_nothing_open),
		T(an_empty_box_goes_quickly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
