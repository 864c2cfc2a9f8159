/* SPDX-License-Identifier: Apache-2.0 */
/* Copying between a live box and the host, and what a hostile sender can't do to the host. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "chan/copy.h"
#include "lib/leak.h"
#include "test_box_live.h"

static struct live box;
static int dir = FD_NONE;	/* the test's directory on the host */

static int up(void **state)
{
	int r = leak_mark(state);

	live_start(&box, NULL);
	dir = open(leak_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : r;
}

static int down(void **state)
{
	(void)live_stop(&box, true);
	fd_close(&dir);
	(void)leak_dir_clear();
	return leak_check(state);
}

static int up_alone(void **state)
{
	int r = leak_mark(state);

	dir = open(leak_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : r;
}

static int down_alone(void **state)
{
	fd_close(&dir);
	(void)leak_dir_clear();
	return leak_check(state);
}

/* In the box, as root, so that it works with one id too. */
static void sh(const char *script, const char *expect)
{
	struct live_run run = { .x.user = "0" };

	live_sh(&box, &run, script);
	if (run.r < 0)
		fail_msg("%s", run.e.text);
	if (run.exit.kind != BOX_EXITED || run.exit.status != 0)
		fail_msg("'%s' failed: %s%s", script, run.err, run.exit.text);
	if (expect)
		assert_string_equal(run.out, expect);
}

static struct copy_result res;
static struct err last;

static int out(const char *from, const char *name)
{
	const struct copy_opts o = { .user = "0" };
	int sock = live_connect(&box), r;

	memset(&last, 0, sizeof(last));
	r = copy_out(sock, from, dir, name, &o, &res, &last);
	(void)close(sock);
	return r;
}

static int in(const char *from, const char *to)
{
	const struct copy_opts o = { .user = "0" };
	int sock = live_connect(&box), r;

	memset(&last, 0, sizeof(last));
	r = copy_in(sock, dir, from, to, &o, &res, &last);
	(void)close(sock);
	return r;
}

static void good(int r)
{
	if (r < 0)
		fail_msg("%s", last.text);
}

static void write_file(const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static void has(const char *name, const char *text)
{
	char buf[4096];
	ssize_t n = file_read_small(dir, name, buf, sizeof(buf));

	if (n < 0)
		fail_msg("%s: %s", name, strerror((int)-n));
	assert_string_equal(buf, text);
}

static bool exists(const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Is there a temporary file, or anything but what is expected? */
static unsigned entries(const char *name)
{
	char cmd[64], text[16384];
	unsigned n = 0;
	int p[2], status;
	pid_t pid;
	ssize_t k;

	(void)snprintf(cmd, sizeof(cmd), "/proc/%d/fd/%d/%s", (int)getpid(), dir, name);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)dup2(p[1], 1);
		execl("/bin/ls", "ls", "-A1", cmd, (char *)NULL);
		_exit(1);
	}
	(void)close(p[1]);
	k = fd_read_small(p[0], text, sizeof(text));
	(void)close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (ssize_t i = 0; i < k; i++)
		n += text[i] == '\n';
	return n;
}

static void a_tree_survives_both_ways(void **state)
{
	struct stat st;

	sh("umask 022; mkdir -p /tmp/t/d/e /tmp/t/empty; echo hello >/tmp/t/d/f; chmod 640 /tmp/t/d/f;"
	   "echo run >/tmp/t/x; chmod 4755 /tmp/t/x; ln -s ../nowhere /tmp/t/d/l; chmod 500 /tmp/t/d/e;"
	   "touch -d '2001-02-03 04:05:06 UTC' /tmp/t/d/f /tmp/t/d; head -c 300000 /dev/zero | tr '\\0' x >/tmp/t/big", NULL);
	good(out("/tmp/t", "t"));
	assert_int_equal(res.files, 3);
	assert_int_equal(res.dirs, 4);
	assert_int_equal(res.links, 1);
	assert_int_equal(res.skipped + res.unreadable, 0);
	has("t/d/f", "hello\n");
	assert_int_equal(fstatat(dir, "t/d/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_mtime, 981173106);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(fstatat(dir, "t/d", &st, 0), 0);
	assert_int_equal(st.st_mtime, 981173106);
	assert_int_equal(fstatat(dir, "t/x", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(fstatat(dir, "t/d/e", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0500);
	assert_int_equal(fstatat(dir, "t/d/l", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(fstatat(dir, "t/big", &st, 0), 0);
	assert_int_equal(st.st_size, 300000);

	good(in("t", "/tmp/back"));
	sh("chmod u-s /tmp/t/x; diff -r --no-dereference /tmp/t /tmp/back && stat -c '%a %Y' /tmp/back/d/f /tmp/back/x | head -1 && "
	   "readlink /tmp/back/d/l", "640 981173106\n../nowhere\n");
}

static void an_existing_directory_takes_it_in(void **state)
{
	sh("mkdir -p /tmp/a/b /tmp/to; echo 1 >/tmp/a/b/f; echo 2 >/tmp/file", NULL);
	assert_int_equal(mkdirat(dir, "have", 0755), 0);
	good(out("/tmp/a/b/", "have"));
	has("have/b/f", "1\n");
	good(out("/tmp/file", "have"));
	has("have/file", "2\n");
	good(out("/tmp/a/.", "have"));	/* merges into the same b */
	has("have/b/f", "1\n");
	good(out("/tmp/file", "new"));
	has("new", "2\n");
	good(out("/tmp/file", "new"));	/* replaces */

	good(in("have", "/tmp/to"));
	good(in("have/.", "/tmp/to"));
	good(in("new", "/tmp/to/"));
	good(in("new", "/tmp/other"));
	sh("cat /tmp/to/have/b/f /tmp/to/b/f /tmp/to/new /tmp/other", "1\n1\n2\n2\n");

	/* A directory doesn't take the place of a file, nor a file that of a directory. */
	assert_int_equal(out("/tmp/a", "new"), -ENOTDIR);
	assert_int_equal(mkdirat(dir, "have/file2", 0755), 0);
	sh("mkdir /tmp/z; echo 3 >/tmp/z/b", NULL);
	assert_int_equal(out("/tmp/z/.", "have"), -EISDIR);
	assert_non_null(strstr(last.text, "'b'"));
	assert_int_equal(in("have/b", "/tmp/other"), -ENOTDIR);
	assert_int_equal(in("new", "/tmp/no/such"), -ENOENT);
	assert_int_equal(out("/tmp/no/such", "x"), -ENOENT);
	assert_int_equal(in("nothing", "/tmp"), -ENOENT);
	assert_false(exists("x"));
}

static unsigned notes;
static void count_note(const char *path, const char *why, void *arg)
{
	assert_true(path[0] && why[0]);
	notes++;
}

static void odd_files_neither_hang_nor_pass(void **state)
{
	const struct copy_opts o = { .user = "0", .note = count_note };
	int sock;

	sh("mkdir /tmp/t; mkfifo /tmp/t/fifo; echo x >/tmp/t/f; truncate -s 1T /tmp/t/sparse; "
	   "printf y | dd of=/tmp/t/sparse bs=1 seek=1000000000 conv=notrunc 2>/dev/null", NULL);
	notes = 0;
	sock = live_connect(&box);
	good(copy_out(sock, "/tmp/t", dir, "t", &o, &res, &last));
	(void)close(sock);
	assert_int_equal(notes, 1);
	assert_int_equal(res.skipped, 1);
	assert_int_equal(res.files, 2);
	assert_true(res.bytes < 1 << 20);
	assert_false(exists("t/fifo"));
	{
		struct stat st;
		char c = 0;
		int fd = openat(dir, "t/sparse", O_RDONLY | O_CLOEXEC);

		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, (off_t)1 << 40);
		assert_true(st.st_blocks < 4096);
		assert_int_equal(pread(fd, &c, 1, 1000000000), 1);
		assert_int_equal(c, 'y');
		(void)close(fd);
	}
	assert_int_equal(out("/tmp/t/fifo", "x"), -EINVAL);

	/* On the host: a FIFO in a tree that is sent, and one where a file goes. */
	assert_int_equal(mkfifoat(dir, "t/pipe", 0600), 0);
	assert_int_equal(mkfifoat(dir, "t/g", 0600), 0);
	sh("echo g >/tmp/g", NULL);
	good(in("t/.", "/tmp/in"));
	assert_int_equal(res.skipped, 2);
	sh("test ! -e /tmp/in/pipe; stat -c %s /tmp/in/sparse; test $(du -sk /tmp/in | cut -f1) -lt 2000", "1099511627776\n");
	good(out("/tmp/g", "t"));
	has("t/g", "g\n");
}

/* The paths are longer than any call takes, which rm(1) knows how to handle. */
static void remove_deep(const char *name)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (fchdir(dir) == 0)
			execl("/bin/rm", "rm", "-rf", name, (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void odd_names_and_depth_work(void **state)
{
	sh("mkdir '/tmp/t'; cd /tmp/t; printf 1 >\"$(printf 'a\\nb')\"; printf 2 >\"$(printf '\\377\\033[31m')\"; printf 3 >-rf;"
	   "printf 4 >\"$(printf '%0255d' 0)\"; printf 5 >'...'; printf 6 >' '", NULL);
	good(out("/tmp/t", "t"));
	assert_int_equal(res.files, 6);
	has("t/a\nb", "1");
	has("t/\377\033[31m", "2");
	has("t/-rf", "3");
	has("t/...", "5");
	has("t/ ", "6");

	sh("perl -e 'mkdir \"/tmp/deep\"; chdir \"/tmp/deep\"; for (1..10000) { mkdir \"d\"; chdir \"d\" or die } open F, \">f\" or die'",
	   NULL);
	good(out("/tmp/deep", "deep"));
	assert_int_equal(res.dirs, 10001);
	assert_int_equal(res.files, 1);
	good(in("deep", "/tmp/again"));
	assert_int_equal(res.dirs, 10001);
	remove_deep("deep");
}

static void links_lead_nowhere(void **state)
{
	struct stat st;

	write_file("precious", "keep");
	assert_int_equal(symlinkat("precious", dir, "trap"), 0);
	assert_int_equal(symlinkat(".", dir, "dirtrap"), 0);
	sh("mkdir /tmp/t; echo evil >/tmp/t/trap; echo evil >/tmp/f; ln -s /etc/passwd /tmp/link", NULL);

	/* Named: refused. */
	assert_int_equal(out("/tmp/f", "trap"), -ELOOP);
	assert_int_equal(out("/tmp/f", "dirtrap"), -ELOOP);
	has("precious", "keep");
	/* Inside: replaced, not followed. */
	good(out("/tmp/t/.", "."));
	has("precious", "keep");
	has("trap", "evil\n");
	/* A link of the box comes as a link; with follow as the box's own file. */
	good(out("/tmp/link", "link"));
	assert_int_equal(fstatat(dir, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
	{
		const struct copy_opts o = { .user = "0", .follow = true };
		char text[4096];
		int sock = live_connect(&box);

		good(copy_out(sock, "/tmp/link", dir, "followed", &o, &res, &last));
		(void)close(sock);
		assert_true(file_read_small(dir, "followed", text, sizeof(text)) > 0);
		assert_non_null(strstr(text, "nohome:x:1001"));	/* of the box's /etc/passwd, not the host's */
	}
	/* A place that some process of the box has open is no place in the box. */
	assert_int_equal(out("/proc/self/root/etc/passwd", "p"), -ELOOP);
	assert_int_equal(in("precious", "/proc/self/cwd/x"), -ELOOP);
	good(in("link", "/tmp/sent"));
	sh("readlink /tmp/sent", "/etc/passwd\n");
}

static void limits_and_rights_hold(void **state)
{
	struct copy_opts o = { .user = "0", .max_bytes = 1000 };
	int sock;

	sh("mkdir /tmp/t; head -c 1000 /dev/zero >/tmp/t/a; chmod 600 /tmp/t/a", NULL);
	sock = live_connect(&box);
	good(copy_out(sock, "/tmp/t", dir, "t", &o, &res, &last));
	(void)close(sock);
	sh("head -c 1 /dev/zero >>/tmp/t/b", NULL);
	sock = live_connect(&box);
	assert_int_equal(copy_out(sock, "/tmp/t", dir, "u", &o, &res, &last), -EFBIG);
	(void)close(sock);
	assert_int_equal(entries("u"), 1);	/* the one that was complete, and no temporary file */
	sock = live_connect(&box);
	o.max_bytes = 100;
	assert_int_equal(copy_in(sock, dir, "t", "/tmp/v", &o, &res, &last), -EFBIG);
	(void)close(sock);
	sh("test ! -e /tmp/v || ls -A /tmp/v", "");

	if (!box.ids)
		return;
	/* As a user of the box: it reads what the user may, and what comes in is the user's. */
	o = (struct copy_opts){ .user = "agent" };
	sock = live_connect(&box);
	assert_int_equal(copy_out(sock, "/tmp/t/a", dir, "w", &o, &res, &last), -EACCES);
	(void)close(sock);
	sock = live_connect(&box);
	good(copy_in(sock, dir, "t/a", "/home/agent/a", &o, &res, &last));
	(void)close(sock);
	sh("stat -c '%u %g' /home/agent/a", "1000 1000\n");
	sock = live_connect(&box);
	assert_int_equal(copy_in(sock, dir, "t/a", "/root/a", &o, &res, &last), -EACCES);
	(void)close(sock);
	sh("chmod 644 /tmp/t/b", NULL);
	sock = live_connect(&box);
	good(copy_out(sock, "/tmp/t", dir, "part", &o, &res, &last));
	(void)close(sock);
	assert_int_equal(res.unreadable, 1);
	assert_int_equal(res.files, 1);
}

/* A box that sends what it likes. */

static void entry(struct buf *b, enum box_entry_type type, uint32_t mode, const char *name, const char *target)
{
	const struct box_entry x = { .type = type, .mode = mode, .name = name, .target = target };

	assert_int_equal(box_put_entry(b, &x), 0);
}

static void data(struct buf *b, const char *text)
{
	assert_int_equal(box_put(b, BOX_DATA, text, strlen(text)), 0);
}

/* Returns what copy_out() made of the frames. */
static int fed(const struct buf *b, const char *name)
{
	const struct copy_opts o = { 0 };
	int s[2], r;
	char drop[8192];
	pid_t pid;

	assert_int_equal(fd_socketpair(SOCK_STREAM, s), 0);
	pid = fork();
	if (pid == 0) {
		(void)close(s[0]);
		(void)!read(s[1], drop, sizeof(drop));
		(void)fd_write_all(s[1], b->data, b->len);
		_exit(0);
	}
	(void)close(s[1]);
	memset(&last, 0, sizeof(last));
	r = copy_out(s[0], "/x", dir, name, &o, &res, &last);
	(void)close(s[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return r;
}

/* A name that box_put_entry() refuses to write, put in by hand over one of the same length. */
static void forge(struct buf *b, const char *was, const char *is)
{
	char *at = memmem(b->data, b->len, was, strlen(was));

	assert_non_null(at);
	memcpy(at, is, strlen(is));
}

static void a_hostile_sender_gets_nowhere(void **state)
{
	OWN_BUF b = BUF_INIT(1 << 20);
	static const char *const names[] = { "..", "./", "/a", "a/", ".." };

	assert_int_equal(mkdirat(dir, "to", 0755), 0);

	/* The control: the same frames, with nothing wrong, make the file. */
	entry(&b, BOX_ENTRY_DIR, 0755, "x", "");
	entry(&b, BOX_ENTRY_FILE, 06777, "ok", "");
	data(&b, "content");
	data(&b, "");
	entry(&b, BOX_ENTRY_UP, 0, "", "");
	(void)box_put(&b, BOX_OK, NULL, 0);
	good(fed(&b, "to"));
	has("to/x/ok", "content");

	/* Names that lead elsewhere. */
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		buf_reset(&b);
		entry(&b, BOX_ENTRY_DIR, 0755, "x", "");
		entry(&b, i == 4 ? BOX_ENTRY_DIR : BOX_ENTRY_FILE, 0777, "QQ", "");
		forge(&b, "QQ", names[i]);
		data(&b, "content");
		data(&b, "");
		entry(&b, BOX_ENTRY_UP, 0, "", "");
		(void)box_put(&b, BOX_OK, NULL, 0);
		assert_int_equal(fed(&b, "to"), -EBADMSG);
	}

	/* A link, and then something through it. */
	buf_reset(&b);
	entry(&b, BOX_ENTRY_DIR, 0755, "x", "");
	entry(&b, BOX_ENTRY_LINK, 0777, "l", "..");
	entry(&b, BOX_ENTRY_DIR, 0755, "l", "");
	entry(&b, BOX_ENTRY_FILE, 0644, "escaped", "");
	data(&b, "");
	assert_int_equal(fed(&b, "to"), -ENOTDIR);
	assert_false(exists("to/escaped"));

	/* Up more often than down. */
	buf_reset(&b);
	entry(&b, BOX_ENTRY_DIR, 0755, "x", "");
	entry(&b, BOX_ENTRY_UP, 0, "", "");
	entry(&b, BOX_ENTRY_UP, 0, "", "");
	assert_int_equal(fed(&b, "to"), -EBADMSG);
	buf_reset(&b);
	entry(&b, BOX_ENTRY_UP, 0, "", "");
	assert_int_equal(fed(&b, "to"), -EBADMSG);

	/* The end in the middle of a file; bytes of no file; a second thing. */
	buf_reset(&b);
	entry(&b, BOX_ENTRY_FILE, 0644, "x", "");
	data(&b, "half");
	assert_int_equal(fed(&b, "half"), -ECONNRESET);
	assert_false(exists("half"));
	buf_reset(&b);
	data(&b, "half");
	assert_int_equal(fed(&b, "half"), -EBADMSG);
	buf_reset(&b);
	entry(&b, BOX_ENTRY_LINK, 0777, "x", "y");
	entry(&b, BOX_ENTRY_LINK, 0777, "z", "y");
	assert_int_equal(fed(&b, "second"), -EBADMSG);
	/* A hole beyond every file. */
	buf_reset(&b);
	entry(&b, BOX_ENTRY_FILE, 0644, "x", "");
	assert_int_equal(box_put_hole(&b, INT64_MAX), 0);
	assert_int_equal(box_put_hole(&b, INT64_MAX), 0);
	data(&b, "");
	assert_true(fed(&b, "hole") < 0);
	assert_false(exists("hole"));

	assert_int_equal(entries("to/x"), 2);	/* ok and l: no temporary file */
	assert_int_equal(entries("."), 2);	/* to and second */
}

/* The directory that is being filled is moved to where ".." is another place. */
static void a_moved_directory_is_noticed(void **state)
{
	OWN_BUF b = BUF_INIT(1 << 16);
	const struct copy_opts o = { 0 };
	int s[2], r, go[2];
	char drop[8192];
	pid_t pid;

	assert_int_equal(mkdirat(dir, "in", 0755), 0);
	assert_int_equal(mkdirat(dir, "in/deeper", 0755), 0);
	assert_int_equal(fd_socketpair(SOCK_STREAM, s), 0);
	assert_int_equal(fd_socketpair(SOCK_STREAM, go), 0);
	pid = fork();
	if (pid == 0) {
		(void)close(s[0]);
		(void)!read(s[1], drop, sizeof(drop));
		entry(&b, BOX_ENTRY_DIR, 0755, "x", "");
		entry(&b, BOX_ENTRY_DIR, 0755, "sub", "");
		(void)fd_write_all(s[1], b.data, b.len);
		for (int i = 0; i < 2000 && faccessat(dir, "in/deeper/x/sub", F_OK, 0) < 0; i++)
			(void)usleep(1000);
		(void)usleep(50000);	/* it is entered right after it was made */
		if (renameat(dir, "in/deeper/x/sub", dir, "sub") < 0)
			_exit(1);
		buf_reset(&b);
		entry(&b, BOX_ENTRY_UP, 0, "", "");
		entry(&b, BOX_ENTRY_FILE, 0644, "escaped", "");
		data(&b, "");
		entry(&b, BOX_ENTRY_UP, 0, "", "");
		(void)box_put(&b, BOX_OK, NULL, 0);
		(void)fd_write_all(s[1], b.data, b.len);
		_exit(0);
	}
	(void)close(s[1]);
	{
		int to = openat(dir, "in/deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		r = copy_out(s[0], "/x", to, ".", &o, &res, &last);
		(void)close(to);
	}
	(void)close(s[0]);
	(void)close(go[0]);
	(void)close(go[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(r, -EXDEV);
	assert_false(exists("escaped"));
	assert_false(exists("in/deeper/x/escaped"));
}

static void a_signal_leaves_no_half_file(void **state)
{
	const struct copy_opts o = { 0 };
	OWN_BUF b = BUF_INIT(1 << 16);
	int s[2], r;
	pid_t parent = getpid(), pid;

	assert_int_equal(fd_socketpair(SOCK_STREAM, s), 0);
	entry(&b, BOX_ENTRY_FILE, 0644, "x", "");
	data(&b, "half");
	assert_int_equal(fd_write_all(s[1], b.data, b.len), 0);
	pid = fork();
	if (pid == 0) {
		(void)usleep(100000);
		(void)kill(parent, SIGINT);
		_exit(0);
	}
	r = copy_out(s[0], "/x", dir, "x", &o, &res, &last);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	(void)close(s[0]);
	(void)close(s[1]);
	assert_int_equal(r, -EINTR);
	assert_int_equal(last.why, WHY_CANCELLED);
	assert_int_equal(entries("."), 0);
}

#define LIVE(f) cmocka_unit_test_setup_teardown(f, up, down)
#define ALONE(f) cmocka_unit_test_setup_teardown(f, up_alone, down_alone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIVE(a_tree_survives_both_ways),      LIVE(an_existing_directory_takes_it_in),
		LIVE(odd_files_neither_hang_nor_pass), LIVE(odd_names_and_depth_work),
		LIVE(links_lead_nowhere),	      LIVE(limits_and_rights_hold),
		ALONE(a_hostile_sender_gets_nowhere), ALONE(a_moved_directory_is_noticed),
		ALONE(a_signal_leaves_no_half_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
