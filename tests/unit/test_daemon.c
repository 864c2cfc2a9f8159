/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cubbyd as its clients see it: every operation of doc/protocol.md, good and bad, over an engine that only pretends. The
 * daemon is a process of its own (daemon_run() in a child), so that what it opens, leaks or dies of can be seen.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "box/run.h"
#include "chan/box.h"
#include "chan/msg.h"
#include "lib/leak.h"

#define WAIT_MS 10000

static char top[200], state_dir[300], run_dir[300];
static pid_t daemon_pid;

/* ---- an engine that pretends: a box is a process that listens on its socket ---- */

static void box_path(char *buf, size_t n, const char *id, const char *file)
{
	(void)snprintf(buf, n, "%s/boxes/%s%s%s", run_dir, id, file[0] ? "/" : "", file);
}

/* A wish of the test to the engine: a file of that name, used up when it is met. */
static bool wished(const char *what)
{
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/wish-%s", top, what);
	return unlink(path) == 0;
}

static void wish(const char *what)
{
	char path[400];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/wish-%s", top, what);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static _Noreturn void pretend_init(int listener)
{
	for (int fd = 0; fd < 64; fd++)
		if (fd != listener)
			(void)close(fd);
	for (;;) {
		uint8_t m[64] = { 0 };
		int c = accept(listener, NULL, NULL);

		if (c < 0)
			_exit(1);
		if (recv(c, m, sizeof(m), MSG_DONTWAIT) >= BOX_HEAD && m[0] == BOX_STOP)
			_exit(0);
		(void)close(c);
	}
}

static int fake_start(const struct box_spec *s, struct box_run *ret, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char path[400], text[32];
	int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	if (wished("start-fails")) {
		(void)close(l);
		return err_why(e, WHY_LIMIT, -EAGAIN, "no room, as wished");
	}
	if (wished("start-dies"))
		_exit(9);
	box_path(path, sizeof(path), s->id, "");
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(e, -errno, "cannot make '%s'", path);
	box_path(path, sizeof(path), s->id, "init.sock");
	(void)unlink(path);
	if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= sizeof(a.sun_path))
		return err_set(e, -ENAMETOOLONG, "cannot listen at '%s'", path);
	if (bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l, 16) < 0)
		return err_set(e, -errno, "cannot listen at '%s'", path);
	if (wished("start-slow")) {
		const struct timespec t = { .tv_nsec = 400000000 };

		(void)nanosleep(&t, NULL);
	}
	pid = fork();
	if (pid == 0)
		pretend_init(l);
	(void)close(l);
	box_path(path, sizeof(path), s->id, "pid");
	(void)snprintf(text, sizeof(text), "%d", (int)pid);
	{
		OWN_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
			return err_set(e, -EIO, "cannot note the pid");
	}
	*ret = (struct box_run){ .pid = pid, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0) };
	if (wished("start-dies-late"))
		_exit(9);
	return 0;
}

static int fake_find(const char *id, struct box_run *ret, struct err *e)
{
	char path[400], text[32];
	int pid, fd;

	box_path(path, sizeof(path), id, "pid");
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0 || sscanf(text, "%d", &pid) != 1)
		return err_set(e, -ESRCH, "not there");
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return err_set(e, -ESRCH, "not there");
	*ret = (struct box_run){ .pid = pid, .pidfd = fd };
	return 0;
}

static int fake_kill(const char *id, struct err *e)
{
	struct box_run run;
	struct pollfd p;

	if (wished("end-dies"))
		_exit(9);
	if (fake_find(id, &run, e) < 0)
		return 0;
	(void)syscall(SYS_pidfd_send_signal, run.pidfd, SIGKILL, NULL, 0);
	p = (struct pollfd){ .fd = run.pidfd, .events = POLLIN };
	(void)poll(&p, 1, WAIT_MS);
	(void)waitpid(run.pid, NULL, WNOHANG);
	(void)close(run.pidfd);
	return 0;
}

static int fake_forget(const char *id, struct err *e)
{
	static const char *const files[] = { "init.sock", "pid" };
	char path[400];

	for (size_t i = 0; i < 2; i++) {
		box_path(path, sizeof(path), id, files[i]);
		(void)unlink(path);
	}
	box_path(path, sizeof(path), id, "");
	return rmdir(path) < 0 && errno != ENOENT ? err_set(e, -errno, "cannot remove '%s'", path) : 0;
}

static int fake_limits(const char *id, const struct limits *l, struct err *e)
{
	(void)id;
	return l->pids == 4444 ? err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP, "no such limit here") : 0;
}

static int fake_freeze(const char *id, bool on, struct err *e)
{
	(void)id;
	(void)on;
	return wished("freeze-fails") ? err_set(e, -EIO, "cannot pause, as wished") : 0;
}

static int fake_usage(const char *id, struct usage *ret, struct err *e)
{
	(void)id;
	(void)e;
	*ret = (struct usage){ .memory = 4096, .pids = 1 };
	return 0;
}

static int fake_grade(const char *id, const struct box_run *run, grade_fn *row, void *arg, struct err *e)
{
	const struct grade_row rows[] = { { "pretended", GRADE_WEAK, "Nothing is isolated.", NULL },
					  { "other", GRADE_ON, "As it should be.", NULL } };

	(void)id;
	(void)run;
	(void)e;
	for (size_t i = 0; i < 2; i++)
		row(&rows[i], arg);
	return 0;
}

static int fake_probe(grade_fn *row, void *arg, struct err *e)
{
	return fake_grade("", NULL, row, arg, e);
}

static int fake_each(void (*found)(const char *id, void *arg), void *arg, struct err *e)
{
	(void)found;
	(void)arg;
	(void)e;
	return 0;
}

static const struct engine fake = {
	.name = "pretend", .probe = fake_probe, .start = fake_start, .find = fake_find, .set_limits = fake_limits,
	.freeze = fake_freeze, .usage = fake_usage, .grade = fake_grade, .kill = fake_kill, .forget = fake_forget,
	.each = fake_each,
};

/* ---- the daemon, and talking to it ---- */

static void say_ready(void *arg)
{
	(void)!write(*(int *)arg, "R", 1);
	(void)close(*(int *)arg);
}

static _Noreturn void daemon_child(int ready)
{
	static struct conf conf;
	struct err e = ERR_INIT;
	int locks[2], r;
	struct daemon_options o = { .engine = &fake, .conf = &conf, .state_dir = state_dir, .run_dir = run_dir,
				    .ready = say_ready, .ready_arg = &ready };
	char path[400];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/cubby.conf", top);
	f = fopen(path, "we");
	if (!f || fprintf(f, "pool_size = 0\nnet = none\n") < 0 || fclose(f) != 0)
		_exit(2);
	r = conf_load(path, &conf, &e);
	if (r == 0)
		r = daemon_dirs(state_dir, run_dir, &e);
	if (r == 0)
		r = daemon_lock(state_dir, run_dir, locks, &e);
	if (r == 0)
		r = daemon_run(&o, &e);
	if (r < 0)
		fprintf(stderr, "daemon: %s\n", e.text);
	_exit(r < 0);
}

static void daemon_up(void)
{
	int ready[2];
	char c = 0;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	daemon_pid = fork();
	assert_true(daemon_pid >= 0);
	if (daemon_pid == 0) {
		(void)close(ready[0]);
		daemon_child(ready[1]);
	}
	(void)close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	(void)close(ready[0]);
}

static int reach(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval t = { .tv_sec = WAIT_MS / 1000 };

	assert_true(fd >= 0);
	assert_true((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s/cubbyd.sock", run_dir) < sizeof(a.sun_path));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	return fd;
}

/* The next answer that is no progress; *ret_fd: the descriptor with it, if somebody wants it. */
static void answer(int fd, struct json_doc *doc, int *ret_fd)
{
	for (;;) {
		int fds[2] = { FD_NONE, FD_NONE };
		size_t n = 0;
		struct err e = ERR_INIT;
		int r = msg_recv(fd, doc, fds, 2, &n, &e);

		if (r != 1)
			fail_msg("no answer: %d %s", r, e.text);
		if (ret_fd)
			*ret_fd = fds[0];
		else
			fd_close(&fds[0]);
		fd_close(&fds[1]);
		if (!json_get(doc->root, "progress"))
			return;
		json_doc_done(doc);
	}
}

static void send_text(int fd, const char *text, const int *fds, size_t nfds)
{
	assert_int_equal(msg_send(fd, text, strlen(text), fds, nfds), 0);
}

/* Ask on a connection that stays. NULL: it went well; else the word of the refusal (valid until the next call). */
static const char *ask_on(int fd, const char *text)
{
	static char word[40];
	OWN_JSON doc = { 0 };

	send_text(fd, text, NULL, 0);
	answer(fd, &doc, NULL);
	if (json_bool(doc.root, "ok", false))
		return NULL;
	assert_non_null(json_get(doc.root, "error"));
	assert_true(json_str(doc.root, "error", "")[0] != '\0');
	(void)snprintf(word, sizeof(word), "%s", json_str(doc.root, "why", "?"));
	return word;
}

static const char *ask(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *ask(const char *fmt, ...)
{
	OWN_FD fd = reach();
	char text[4096];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ask_on(fd, text);
}
#define OK(...) assert_null(ask(__VA_ARGS__))
#define REFUSED(word, ...)                          \
	do {                                        \
		const char *got_ = ask(__VA_ARGS__); \
		assert_non_null(got_);              \
		assert_string_equal(got_, word);    \
	} while (0)

static void state_is(const char *name, const char *want)
{
	char text[200];
	OWN_FD fd = reach();
	OWN_JSON doc = { 0 };

	(void)snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"info\",\"box\":\"%s\"}", name);
	send_text(fd, text, NULL, 0);
	answer(fd, &doc, NULL);
	assert_string_equal(json_str(json_get(doc.root, "box"), "state", "none"), want);
}

static int64_t boxes_now(void)
{
	OWN_FD fd = reach();
	OWN_JSON doc = { 0 };

	send_text(fd, "{\"v\":1,\"op\":\"ls\"}", NULL, 0);
	answer(fd, &doc, NULL);
	return (int64_t)json_get(doc.root, "boxes")->count;
}

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static unsigned daemon_fds(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)daemon_pid);
	return entries(path);
}

#define SOON(cond)                                                              \
	do {                                                                    \
		const struct timespec nap_ = { .tv_nsec = 5000000 };            \
		int left_ = WAIT_MS / 5;                                        \
		while (!(cond) && left_-- > 0)                                  \
			(void)nanosleep(&nap_, NULL);                           \
		if (left_ < 0)                                                  \
			fail_msg("not within the time: %s", #cond);             \
	} while (0)

/* The daemon, and one template "t" that says who its users are. */
static int up(void **state)
{
	const char *dir;
	OWN_FD src = FD_NONE, conn = FD_NONE;
	OWN_JSON doc = { 0 };
	char path[400];

	if (geteuid() != 0)
		skip_because("a daemon of root's is tested: this needs root");
	assert_int_equal(leak_mark(state), 0);
	/* What a builder that died leaves is ours to wait for. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	dir = leak_dir();
	assert_non_null(dir);
	(void)snprintf(top, sizeof(top), "%s", dir);
	(void)snprintf(state_dir, sizeof(state_dir), "%s/s", dir);
	(void)snprintf(run_dir, sizeof(run_dir), "%s/r", dir);
	(void)snprintf(path, sizeof(path), "%s/src", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	src = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(path, sizeof(path), "%s/src/file", dir);
	assert_int_equal(mknod(path, S_IFREG | 0644, 0), 0);
	daemon_up();
	conn = reach();
	send_text(conn, "{\"v\":1,\"op\":\"template-create\",\"name\":\"t\",\"source\":\"dir:/src\"}", &src, 1);
	answer(conn, &doc, NULL);
	if (!json_bool(doc.root, "ok", false))
		fail_msg("template: %s", json_str(doc.root, "error", "?"));
	return 0;
}

static void daemon_gone(void)
{
	int st = 0;

	for (int i = 0; waitpid(daemon_pid, &st, WNOHANG) == 0; i++) {
		const struct timespec nap = { .tv_nsec = 10000000 };

		if (i > WAIT_MS / 10) {
			(void)kill(daemon_pid, SIGKILL);
			(void)waitpid(daemon_pid, &st, 0);
			fail_msg("the daemon does not end");
		}
		(void)nanosleep(&nap, NULL);
	}
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
	daemon_pid = 0;
}

static int down(void **state)
{
	char path[400];

	if (daemon_pid > 0) {
		OWN_FD fd = reach();
		OWN_JSON doc = { 0 };

		/* Everything goes, so that what is then left is a leak. */
		send_text(fd, "{\"v\":1,\"op\":\"ls\"}", NULL, 0);
		answer(fd, &doc, NULL);
		for (const struct json *b = json_get(doc.root, "boxes")->child; b; b = b->next)
			OK("{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"%s\"}", json_str(b, "id", ""));
		fd_close(&fd);
		SOON(boxes_now() == 0);
		(void)snprintf(path, sizeof(path), "%s/boxes", state_dir);
		assert_int_equal(entries(path), 0);
		(void)snprintf(path, sizeof(path), "%s/run", state_dir);
		SOON(entries(path) == 0);
		(void)snprintf(path, sizeof(path), "%s/boxes", run_dir);
		assert_int_equal(entries(path), 0);
		OK("{\"v\":1,\"op\":\"shutdown\"}");
		daemon_gone();
	}
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	assert_int_equal(leak_dir_clear(), 0);
	return leak_check(state);
}

/* ---- the cases ---- */

static void every_operation_works(void **state)
{
	OWN_FD conn = reach();
	OWN_JSON doc = { 0 };
	int sock = FD_NONE;

	(void)state;
	OK("{\"v\":1,\"op\":\"hello\"}");
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\",\"user\":\"root\",\"env\":[\"A=b\"],\"ttl_ms\":1000000}");
	state_is("a", "running");
	send_text(conn, "{\"v\":1,\"op\":\"open\",\"box\":\"a\"}", NULL, 0);
	answer(conn, &doc, &sock);
	assert_true(json_bool(doc.root, "ok", false));
	assert_true(sock >= 0);
	assert_string_equal(json_str(doc.root, "user", ""), "root");
	assert_string_equal(json_get(doc.root, "env")->child->str, "A=b");
	fd_close(&sock);
	OK("{\"v\":1,\"op\":\"why\",\"box\":\"a\",\"mark\":0}");
	OK("{\"v\":1,\"op\":\"ls\"}");
	OK("{\"v\":1,\"op\":\"ls\",\"all\":true}");
	OK("{\"v\":1,\"op\":\"top\"}");
	OK("{\"v\":1,\"op\":\"rename\",\"box\":\"a\",\"name\":\"b\"}");
	OK("{\"v\":1,\"op\":\"limits\",\"box\":\"b\"}");
	OK("{\"v\":1,\"op\":\"limits\",\"box\":\"b\",\"limits\":{\"pids\":50}}");
	OK("{\"v\":1,\"op\":\"set\",\"box\":\"b\",\"ttl_ms\":0,\"idle_ms\":100000}");
	OK("{\"v\":1,\"op\":\"pause\",\"box\":\"b\"}");
	state_is("b", "paused");
	OK("{\"v\":1,\"op\":\"resume\",\"box\":\"b\"}");
	OK("{\"v\":1,\"op\":\"stop\",\"box\":\"b\",\"grace_ms\":100}");
	state_is("b", "stopped");
	OK("{\"v\":1,\"op\":\"start\",\"box\":\"b\"}");
	OK("{\"v\":1,\"op\":\"stop\",\"box\":\"b\",\"force\":true}");
	OK("{\"v\":1,\"op\":\"logs\"}");
	OK("{\"v\":1,\"op\":\"logs\",\"box\":\"b\",\"lines\":1,\"after\":0}");
	OK("{\"v\":1,\"op\":\"doctor\"}");
	OK("{\"v\":1,\"op\":\"config\"}");
	OK("{\"v\":1,\"op\":\"template-ls\"}");
	OK("{\"v\":1,\"op\":\"template-info\",\"name\":\"t\"}");
	REFUSED("not-found", "{\"v\":1,\"op\":\"template-cancel\",\"name\":\"t\"}");
	REFUSED("busy", "{\"v\":1,\"op\":\"template-rm\",\"name\":\"t\"}");
	OK("{\"v\":1,\"op\":\"rm\",\"box\":\"b\"}");
	OK("{\"v\":1,\"op\":\"template-rm\",\"name\":\"t\"}");
	REFUSED("no-such-template", "{\"v\":1,\"op\":\"new\",\"template\":\"t\"}");
	assert_int_equal(boxes_now(), 0);
}

static void bad_requests_are_refused_and_change_nothing(void **state)
{
	static const char *const bad[] = {
		"{}", "{\"v\":1}", "{\"v\":1,\"op\":\"\"}", "{\"v\":1,\"op\":\"nosuch\"}", "{\"v\":1,\"op\":7}",
		"{\"v\":1,\"op\":\"ls\",\"unknown\":1}", "{\"v\":1,\"op\":\"ls\",\"all\":\"yes\"}", "{\"v\":1,\"op\":\"info\"}",
		"{\"v\":1,\"op\":\"info\",\"box\":7}", "{\"v\":1,\"op\":\"rm\",\"box\":null}", "{\"v\":1,\"op\":\"rm\",\"box\":\"k\",\"force\":1}",
		"{\"v\":1,\"op\":\"stop\",\"box\":\"k\",\"grace_ms\":-1}", "{\"v\":1,\"op\":\"stop\",\"box\":\"k\",\"grace_ms\":\"1\"}",
		"{\"v\":1,\"op\":\"stop\",\"box\":\"k\",\"grace_ms\":1.5}", "{\"v\":1,\"op\":\"rename\",\"box\":\"k\"}",
		"{\"v\":1,\"op\":\"rename\",\"box\":\"k\",\"name\":\"Upper\"}", "{\"v\":1,\"op\":\"rename\",\"box\":\"k\",\"name\":\"../x\"}",
		"{\"v\":1,\"op\":\"rename\",\"box\":\"k\",\"name\":\"\"}", "{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":5}",
		"{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":{\"memory\":-1}}",
		"{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":{\"memory\":1}}",
		"{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":{\"nosuch\":1}}",
		"{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":{\"pids\":99999999999999999999}}",
		"{\"v\":1,\"op\":\"set\",\"box\":\"k\",\"ttl_ms\":-2}", "{\"v\":1,\"op\":\"set\",\"box\":\"k\",\"ttl_ms\":9000000000000000000}",
		"{\"v\":1,\"op\":\"set\",\"box\":\"k\",\"idle_ms\":true}", "{\"v\":1,\"op\":\"new\",\"name\":\"-x\",\"template\":\"t\"}",
		"{\"v\":1,\"op\":\"new\",\"name\":7,\"template\":\"t\"}", "{\"v\":1,\"op\":\"new\",\"template\":7}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"env\":[\"novalue\"]}", "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"env\":[\"=x\"]}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"env\":\"A=b\"}", "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"workdir\":\"here\"}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"tz\":\"../../etc/shadow\"}", "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"tz\":\"/etc\"}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"mounts\":[{\"at\":\"/x\"}]}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"mounts\":[{\"at\":\"x\"}]}", "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"mounts\":[7]}",
		"{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"run\":\"true\"}", "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"nesting\":1}",
		"{\"v\":1,\"op\":\"template-create\"}", "{\"v\":1,\"op\":\"template-create\",\"name\":\"x\",\"source\":\"nosuch\"}",
		"{\"v\":1,\"op\":\"template-create\",\"name\":\"x\",\"source\":\"dir:/src\"}",
		"{\"v\":1,\"op\":\"template-create\",\"name\":\"../x\",\"source\":\"host\"}",
		"{\"v\":1,\"op\":\"template-create\",\"name\":\"x\",\"source\":\"debian:../x\"}",
		"{\"v\":1,\"op\":\"template-create\",\"name\":\"x\",\"source\":\"host\",\"limit_ms\":-1}",
	};
	OWN_FD conn = reach();
	int64_t before;

	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"k\",\"template\":\"t\"}");
	before = boxes_now();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		/* All on one connection: a refusal doesn't end it. */
		const char *word = ask_on(conn, bad[i]);

		if (!word || (strcmp(word, "bad-request") != 0 && i > 1))
			fail_msg("%s: %s", bad[i], word ? word : "accepted");
	}
	assert_string_equal(ask_on(conn, "{\"v\":2,\"op\":\"hello\"}"), "unsupported");
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"new\",\"template\":\"t\",\"net\":\"internet\"}"), "unsupported");
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"new\",\"name\":\"k\",\"template\":\"t\"}"), "exists");
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"new\",\"template\":\"nosuch\"}"), "no-such-template");
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"info\",\"box\":\"nosuch\"}"), "no-such-box");
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"limits\",\"box\":\"k\",\"limits\":{\"pids\":4444}}"), "unsupported");
	assert_int_equal(boxes_now(), before);
	state_is("k", "running");
}

static void states_that_dont_fit_are_refused(void **state)
{
	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"b\",\"template\":\"t\"}");
	REFUSED("exists", "{\"v\":1,\"op\":\"rename\",\"box\":\"a\",\"name\":\"b\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}");
	OK("{\"v\":1,\"op\":\"resume\",\"box\":\"a\"}");
	OK("{\"v\":1,\"op\":\"start\",\"box\":\"a\"}");
	wish("freeze-fails");
	assert_non_null(ask("{\"v\":1,\"op\":\"pause\",\"box\":\"a\"}"));
	state_is("a", "running");
	OK("{\"v\":1,\"op\":\"pause\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"open\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"start\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}");
	OK("{\"v\":1,\"op\":\"stop\",\"box\":\"a\"}");
	OK("{\"v\":1,\"op\":\"stop\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"pause\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"resume\",\"box\":\"a\"}");
	REFUSED("wrong-state", "{\"v\":1,\"op\":\"open\",\"box\":\"a\",\"start\":false}");
	OK("{\"v\":1,\"op\":\"open\",\"box\":\"a\"}");
	state_is("a", "running");
}

static void requests_wait_for_the_one_before_them(void **state)
{
	OWN_FD one = reach(), two = reach(), three = reach(), four = reach();
	OWN_JSON a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };

	(void)state;
	wish("start-slow");
	send_text(one, "{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}", NULL, 0);
	SOON(boxes_now() == 1);
	send_text(two, "{\"v\":1,\"op\":\"stop\",\"box\":\"a\",\"force\":true}", NULL, 0);
	send_text(three, "{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}", NULL, 0);
	send_text(four, "{\"v\":1,\"op\":\"rename\",\"box\":\"a\",\"name\":\"b\"}", NULL, 0);
	/* Looking doesn't wait. */
	state_is("a", "creating");
	answer(one, &a, NULL);
	answer(two, &b, NULL);
	answer(three, &c, NULL);
	answer(four, &d, NULL);
	assert_true(json_bool(a.root, "ok", false));
	assert_true(json_bool(b.root, "ok", false));
	assert_true(json_bool(c.root, "ok", false));
	assert_string_equal(json_str(d.root, "why", ""), "no-such-box");
	/* A name that is on its way out is waited for. */
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	fd_close(&one);
	one = reach();
	send_text(one, "{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"a\"}", NULL, 0);
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
}

static void a_start_that_fails_leaves_nothing(void **state)
{
	static const char *const how[] = { "start-fails", "start-dies", "start-dies-late" };
	char path[400];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		wish(how[i]);
		assert_non_null(ask("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}"));
		assert_int_equal(boxes_now(), 0);
		wish(how[i]);
		assert_non_null(ask("{\"v\":1,\"op\":\"new\",\"run\":true,\"template\":\"t\"}"));
		SOON(boxes_now() == 0);
		(void)snprintf(path, sizeof(path), "%s/boxes", run_dir);
		SOON(entries(path) == 0);
		OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
		OK("{\"v\":1,\"op\":\"stop\",\"force\":true,\"box\":\"a\"}");
		/* A box that there was stays, stopped, and can be started later. */
		wish(how[i]);
		assert_non_null(ask("{\"v\":1,\"op\":\"start\",\"box\":\"a\"}"));
		state_is("a", "stopped");
		OK("{\"v\":1,\"op\":\"start\",\"box\":\"a\"}");
		OK("{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"a\"}");
	}
}

static void an_end_is_finished_by_another_builder(void **state)
{
	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	wish("end-dies");
	OK("{\"v\":1,\"op\":\"stop\",\"force\":true,\"box\":\"a\"}");
	state_is("a", "stopped");
	wish("end-dies");
	OK("{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}");
	assert_int_equal(boxes_now(), 0);
}

static void a_box_that_ends_by_itself_is_seen(void **state)
{
	OWN_FD conn = reach();
	OWN_JSON doc = { 0 };

	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	send_text(conn, "{\"v\":1,\"op\":\"info\",\"box\":\"a\"}", NULL, 0);
	answer(conn, &doc, NULL);
	assert_int_equal(kill((pid_t)json_int(json_get(doc.root, "box"), "pid", -1), SIGKILL), 0);
	SOON(ask("{\"v\":1,\"op\":\"pause\",\"box\":\"a\"}") != NULL);
	state_is("a", "stopped");
}

static void a_client_may_vanish_at_any_byte(void **state)
{
	static const char *const texts[] = {
		"{\"v\":1,\"op\":\"new\",\"run\":true,\"template\":\"t\"}", "{\"v\":1,\"op\":\"new\",\"name\":\"v\",\"template\":\"t\"}",
		"{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"v\"}",
	};
	unsigned before;

	(void)state;
	OK("{\"v\":1,\"op\":\"hello\"}");
	before = daemon_fds();
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		size_t n = strlen(texts[i]);
		char frame[200] = { (char)n, 0, 0, 0 };

		memcpy(frame + 4, texts[i], n);
		for (size_t k = 0; k <= n + 4; k++) {
			int fd = reach();

			if (k > 0)
				assert_int_equal(send(fd, frame, k, MSG_NOSIGNAL), k);
			if (k % 2)
				(void)shutdown(fd, SHUT_WR);
			(void)close(fd);
		}
		/* And right after the whole of it, with its answer under way. */
		for (int k = 0; k < 5; k++) {
			const struct timespec nap = { .tv_nsec = 1000000L * k };
			int fd = reach();

			send_text(fd, texts[i], NULL, 0);
			(void)nanosleep(&nap, NULL);
			(void)close(fd);
		}
	}
	(void)ask("{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"v\"}");
	SOON(boxes_now() == 0);
	SOON(daemon_fds() <= before);
}

static void a_throw_away_box_goes_with_its_connection(void **state)
{
	OWN_FD conn = reach();
	OWN_JSON doc = { 0 };
	int sock = FD_NONE;

	(void)state;
	send_text(conn, "{\"v\":1,\"op\":\"new\",\"run\":true,\"template\":\"t\"}", NULL, 0);
	answer(conn, &doc, &sock);
	assert_true(sock >= 0);
	fd_close(&sock);
	assert_int_equal(boxes_now(), 1);
	/* One connection has one such box. */
	assert_string_equal(ask_on(conn, "{\"v\":1,\"op\":\"new\",\"run\":true,\"template\":\"t\"}"), "wrong-state");
	assert_int_equal(boxes_now(), 1);
	{
		char text[200];

		(void)snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"rm\",\"force\":true,\"box\":\"%s\"}",
			       json_str(json_get(doc.root, "box"), "name", ""));
		assert_string_equal(ask_on(conn, text), "wrong-state");
		(void)snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"stop\",\"force\":true,\"box\":\"%s\"}",
			       json_str(json_get(doc.root, "box"), "name", ""));
		assert_null(ask_on(conn, text));
	}
	fd_close(&conn);
	SOON(boxes_now() == 0);
}

static void requests_in_a_row_are_answered_in_order(void **state)
{
	enum { N = 3000 };
	OWN_FD conn = reach();
	OWN_BUF all = BUF_INIT(8u << 20);

	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	for (int i = 0; i < N; i++) {
		char text[100];
		size_t n = (size_t)snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"nosuch-%d\"}", i);
		const uint8_t head[4] = { (uint8_t)n };

		assert_int_equal(buf_put(&all, head, 4), 0);
		assert_int_equal(buf_put(&all, text, n), 0);
	}
	{
		pid_t writer = fork();

		if (writer == 0)
			_exit(fd_write_all(conn, all.data, all.len) < 0);
		/* Meanwhile others are served. */
		OK("{\"v\":1,\"op\":\"hello\"}");
		for (int i = 0; i < N; i++) {
			OWN_JSON doc = { 0 };
			char want[40];

			answer(conn, &doc, NULL);
			(void)snprintf(want, sizeof(want), "'nosuch-%d'", i);
			assert_non_null(strstr(json_str(doc.root, "error", ""), want));
		}
		assert_int_equal(waitpid(writer, NULL, 0), writer);
	}
	/* Descriptors come with their own answer. */
	send_text(conn, "{\"v\":1,\"op\":\"hello\"}", NULL, 0);
	send_text(conn, "{\"v\":1,\"op\":\"open\",\"box\":\"a\"}", NULL, 0);
	send_text(conn, "{\"v\":1,\"op\":\"hello\"}", NULL, 0);
	for (int i = 0; i < 3; i++) {
		OWN_JSON doc = { 0 };
		OWN_FD sock = FD_NONE;

		answer(conn, &doc, &sock);
		assert_int_equal(sock >= 0, i == 1);
	}
}

static void a_client_that_never_reads_holds_nobody_up(void **state)
{
	static const char frame[] = "\x17\0\0\0{\"v\":1,\"op\":\"config\"}  ";
	OWN_FD conn = reach();
	char path[64], text[8192];
	const char *rss;
	size_t sent = 0;

	(void)state;
	assert_int_equal(fd_set_nonblock(conn, true), 0);
	for (int i = 0; i < 200000; i++) {
		ssize_t k = send(conn, frame, sizeof(frame) - 1, MSG_NOSIGNAL);

		if (k < 0) {
			const struct timespec nap = { .tv_nsec = 1000000 };

			if (errno != EAGAIN || sent > 300)
				break;
			(void)nanosleep(&nap, NULL);
			sent++;
			continue;
		}
		if (k != (ssize_t)sizeof(frame) - 1)
			break;
	}
	OK("{\"v\":1,\"op\":\"hello\"}");
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"a\",\"template\":\"t\"}");
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)daemon_pid);
	assert_true(file_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	rss = strstr(text, "VmRSS:");
	assert_non_null(rss);
#if !defined(__SANITIZE_ADDRESS__)
	assert_true(strtoul(rss + 6, NULL, 10) < 64 * 1024);
#endif
}

/* What is no message ends the connection, after a word where that is possible. */
static void broken(const void *data, size_t n)
{
	OWN_FD fd = reach();
	char buf[1024];
	ssize_t k;

	assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
	while ((k = recv(fd, buf, sizeof(buf), 0)) > 0)
		;
	assert_true(k == 0 || errno == ECONNRESET);
}

static void what_is_no_message_ends_the_connection(void **state)
{
	static const uint8_t zero[] = { 0, 0, 0, 0 }, huge[] = { 0xff, 0xff, 0xff, 0xff }, eight[] = { 0, 0, 0x80, 0, '{' };
	static const char *const texts[] = { "x", "[]", "7", "\"x\"", "{\"a\":1,\"a\":2}", "{", "{}x", "{\"a\":\"\\u0000\"}", "\xff\xfe" };
	OWN_BUF deep = BUF_INIT(1u << 20);

	(void)state;
	broken(zero, sizeof(zero));
	broken(huge, sizeof(huge));
	broken(eight, sizeof(eight));
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint8_t frame[64] = { (uint8_t)strlen(texts[i]) };

		memcpy(frame + 4, texts[i], strlen(texts[i]));
		broken(frame, strlen(texts[i]) + 4);
	}
	{
		const uint8_t head[4] = { 0x40, 0x0d, 0x03, 0 };	/* 200,000 */

		assert_int_equal(buf_put(&deep, head, 4), 0);
		for (int i = 0; i < 200000; i++)
			assert_int_equal(buf_putc(&deep, '['), 0);
		broken(deep.data, deep.len);
	}
	OK("{\"v\":1,\"op\":\"hello\"}");
}

static void descriptors_nobody_asked_for_are_closed(void **state)
{
	int null[FD_PASS_MAX];
	unsigned before;

	(void)state;
	OK("{\"v\":1,\"op\":\"hello\"}");
	before = daemon_fds();
	for (size_t i = 0; i < FD_PASS_MAX; i++)
		null[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (int round = 0; round < 100; round++) {
		OWN_FD fd = reach();
		OWN_JSON doc = { 0 };

		send_text(fd, "{\"v\":1,\"op\":\"hello\"}", null, FD_PASS_MAX);
		answer(fd, &doc, NULL);
		/* Some with a frame that never comes. */
		(void)fd_send(fd, "\x50", 1, null, FD_PASS_MAX, 0);
		if (round % 3 == 0)
			(void)fd_send(fd, "\0", 1, null, FD_PASS_MAX, 0);
	}
	for (size_t i = 0; i < FD_PASS_MAX; i++)
		(void)close(null[i]);
	SOON(daemon_fds() <= before);
	{
		OWN_FD fd = reach();
		OWN_FD dev = open("/dev/null", O_PATH | O_CLOEXEC);
		OWN_JSON doc = { 0 };

		/* More and fewer than the mounts that are named. */
		send_text(fd, "{\"v\":1,\"op\":\"new\",\"template\":\"t\"}", &dev, 1);
		answer(fd, &doc, NULL);
		assert_string_equal(json_str(doc.root, "why", ""), "bad-request");
	}
}

static void the_next_daemon_takes_over(void **state)
{
	OWN_FD conn = FD_NONE;
	OWN_JSON before = { 0 }, after = { 0 };

	(void)state;
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"run\",\"template\":\"t\"}");
	OK("{\"v\":1,\"op\":\"new\",\"name\":\"stop\",\"template\":\"t\"}");
	OK("{\"v\":1,\"op\":\"stop\",\"force\":true,\"box\":\"stop\"}");
	conn = reach();
	send_text(conn, "{\"v\":1,\"op\":\"info\",\"box\":\"run\"}", NULL, 0);
	answer(conn, &before, NULL);
	fd_close(&conn);
	assert_int_equal(kill(daemon_pid, SIGKILL), 0);
	assert_int_equal(waitpid(daemon_pid, NULL, 0), daemon_pid);
	daemon_up();
	state_is("run", "running");
	state_is("stop", "stopped");
	conn = reach();
	send_text(conn, "{\"v\":1,\"op\":\"info\",\"box\":\"run\"}", NULL, 0);
	answer(conn, &after, NULL);
	assert_int_equal(json_int(json_get(after.root, "box"), "pid", -1), json_int(json_get(before.root, "box"), "pid", -2));
	OK("{\"v\":1,\"op\":\"stop\",\"box\":\"run\"}");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_operation_works),
		CASE(bad_requests_are_refused_and_change_nothing),
		CASE(states_that_dont_fit_are_refused),
		CASE(requests_wait_for_the_one_before_them),
		CASE(a_start_that_fails_leaves_nothing),
		CASE(an_end_is_finished_by_another_builder),
		CASE(a_box_that_ends_by_itself_is_seen),
		CASE(a_client_may_vanish_at_any_byte),
		CASE(a_throw_away_box_goes_with_its_connection),
		CASE(requests_in_a_row_are_answered_in_order),
		CASE(a_client_that_never_reads_holds_nobody_up),
		CASE(what_is_no_message_ends_the_connection),
		CASE(descriptors_nobody_asked_for_are_closed),
		CASE(the_next_daemon_takes_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
