/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a live box: both ends of BOX_EXEC together. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "test_box_live.h"

static struct live box;

static int box_up(void **state)
{
	int r = leak_mark(state);

	live_start(&box, NULL);
	return r;
}

static int box_down(void **state)
{
	int status = live_stop(&box, false);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		print_error("init ended with %x\n", (unsigned)status);
		return -1;
	}
	return leak_check(state);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void ok(const struct live_run *run)
{
	if (run->r < 0)
		fail_msg("%s", run->e.text);
}

static void ends_with_the_commands_status(void **state)
{
	static const struct {
		const char *script;
		enum box_exit_kind kind;
		uint32_t status;
	} t[] = {
		{ "exit 0", BOX_EXITED, 0 },	   { "exit 7", BOX_EXITED, 7 },	     { "exit 255", BOX_EXITED, 255 },
		{ "kill -9 $$", BOX_SIGNALED, 9 }, { "kill -15 $$", BOX_SIGNALED, 15 }, { "kill -1 $$", BOX_SIGNALED, 1 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct live_run run = { 0 };

		live_sh(&box, &run, t[i].script);
		ok(&run);
		assert_int_equal(run.exit.kind, t[i].kind);
		assert_int_equal(run.exit.status, t[i].status);
		assert_true(run.exit.wall_us > 0 && run.exit.wall_us < 5000000);
	}
}

static void order_and_input_are_kept(void **state)
{
	struct live_run run = { .input = "one\ntwo\n" };

	live_sh(&box, &run, "cat; echo three; echo four >&2");
	ok(&run);
	assert_string_equal(run.out, "one\ntwo\nthree\n");
	assert_string_equal(run.err, "four\n");
}


/* Run it and compare what it wrote; as root, so that it works where there is one id. */
static void says(const char *script, const char *expect)
{
	struct live_run run = { .x.user = "0" };

	live_sh(&box, &run, script);
	ok(&run);
	assert_string_equal(run.out, expect);
}

/* Wait until the script prints this, or fail after a while. */
static void becomes(const char *script, const char *expect)
{
	uint64_t end = now_ms() + 5000;
	struct live_run run;

	do {
		memset(&run, 0, sizeof(run));
		run.x.user = "0";
		live_sh(&box, &run, script);
		ok(&run);
		if (strcmp(run.out, expect) == 0)
			return;
		(void)usleep(20000);
	} while (now_ms() < end);
	assert_string_equal(run.out, expect);
}

#define COUNT(name) "n=0; for p in /proc/[0-9]*; do read c 2>/dev/null <$p/comm && [ \"$c\" = " name " ] && n=$((n+1)); done; echo $n"

static void what_cannot_run_says_why(void **state)
{
	static const struct {
		const char *cmd;
		uint32_t code;
		const char *part;
	} t[] = {
		{ "nosuchcommand", ENOENT, "not found in PATH" },  { "/no/such/file", ENOENT, "no such file" },
		{ "/etc/passwd", EACCES, "Permission denied" },	   { "/tmp", EACCES, "Permission denied" },
		{ "/tmp/lost", ENOENT, "interpreter" },		   { "/tmp/junk", ENOEXEC, "/tmp/junk" },
		{ "", ENOENT, "cannot run" },			   { "/etc/passwd/x", ENOTDIR, "/etc/passwd/x" },
	};

	says("printf '#!/no/such/interpreter\\n' >/tmp/lost; printf 'junk' >/tmp/junk; chmod 755 /tmp/lost /tmp/junk", "");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct live_run run = { .x.user = "0" };
		char *argv[] = { (char *)t[i].cmd, NULL };

		live_argv(&box, &run, argv);
		ok(&run);
		assert_int_equal(run.exit.kind, BOX_NOT_STARTED);
		assert_int_equal(run.exit.status, t[i].code);
		if (!strstr(run.exit.text, t[i].part))
			fail_msg("'%s' lacks '%s'", run.exit.text, t[i].part);
	}
	/* PATH is the command's: what can't be executed is passed over. */
	{
		struct live_run run = { .x.user = "0", .x.env = (char *[]){ (char *)"PATH=/no:/tmp/p:/usr/bin", NULL } };
		char *argv[] = { (char *)"echo", (char *)"x", NULL };

		says("mkdir /tmp/p; echo junk >/tmp/p/echo", "");
		live_argv(&box, &run, argv);
		ok(&run);
		assert_string_equal(run.out, "x\n");
	}
}

static void users_are_who_they_were_named(void **state)
{
	static const struct {
		const char *user, *ids;	/* NULL: refused */
	} t[] = {
		{ "root", "0:0 0" },	      { "0", "0:0 0" },	       { "agent", "1000:1000 1000 1100 1101" },
		{ "1000", "1000:1000 1000 1100 1101" }, { "1000:5", "1000:5 5" }, { "0:0", "0:0 0" },
		{ "4242", "4242:4242 4242" }, { "4242:7", "4242:7 7" }, { NULL, "1000:1000 1000 1100 1101" },
		/* A name made of digits is a number. */
		{ "2000", "2000:2000 2000" },
		{ "0x0", NULL }, { "+0", NULL }, { "-1", NULL }, { "1000:", NULL }, { ":0", NULL }, { "00", NULL },
		{ "4294967296", NULL }, { "4294967295", NULL }, { "65536", NULL }, { " 0", NULL }, { "0 ", NULL },
		{ "nobody", NULL }, { "root:root", NULL }, { "agent:0", NULL }, { "1000:x", NULL }, { "0x1", NULL },
		{ "agent\n", NULL }, { "1000:1000:1000", NULL }, { "18446744073709551616", NULL }, { "1e3", NULL },
	};

	if (!box.ids)
		skip_because("there is one id only: no CAP_SETUID");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct live_run run = { .x.user = t[i].user };

		live_sh(&box, &run, "echo $(id -u):$(id -g) $(id -G); grep -E '^Cap(Inh|Amb)' /proc/self/status | tr -d '\\n\\t'");
		if (!t[i].ids) {
			if (run.r == 0)
				fail_msg("user '%s' was taken: %s", t[i].user, run.out);
			assert_true(run.e.text[0]);
			continue;
		}
		ok(&run);
		assert_memory_equal(run.out, t[i].ids, strlen(t[i].ids));
		assert_string_equal(run.out + strlen(t[i].ids), "\nCapInh:0000000000000000CapAmb:0000000000000000");
	}
}

static void environment_directory_umask_and_signals_are_fresh(void **state)
{
	struct live_run run = {
		.x.user = "agent", .x.umask = 027,
		.x.env = (char *[]){ (char *)"A=1", (char *)"A=2", (char *)"HOME=/tmp", (char *)"E=", (char *)"N=a\nb", NULL },
	};
	static const char script[] =
		"echo $A,$HOME,$USER,$LOGNAME,$SHELL,$E,$N,$PATH; pwd; umask; "
		"grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t'; ls /proc/self/fd | wc -l; "
		"read a b c d pgrp sid rest </proc/self/stat; [ $pgrp = $sid ] && echo leader";

	if (!box.ids)
		run.x.user = "0";
	live_sh(&box, &run, script);
	ok(&run);
	if (box.ids)
		assert_string_equal(run.out,
				    "2,/tmp,agent,agent,/bin/sh,,a b,/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
				    "/home/agent\n0027\nSigBlk:0000000000000000\nSigIgn:0000000000000000\n"
				    "4\nleader\n");	/* descriptors: 0, 1, 2 and that of ls itself */
}

static void directories_are_entered_or_refused(void **state)
{
	static const struct {
		const char *cwd, *user, *pwd;	/* NULL: refused */
	} t[] = {
		{ "/tmp", "0", "/tmp" }, { "/usr/../tmp/.", "0", "/tmp" }, { "/tmp/link", "0", "/usr" },
		{ NULL, "0", "/root" }, { NULL, "nohome", "/" }, { "/no/such", "0", NULL }, { "/etc/passwd", "0", NULL },
		{ "/proc/self/fd/3", "0", NULL }, { "/proc/self/cwd", "0", NULL }, { "/proc/1/root", "0", NULL },
		{ "/proc/self/fd/10/../..", "0", NULL }, { "/tmp/shut", "agent", NULL }, { "/tmp/shut", "0", "/tmp/shut" },
		{ "/proc/self", "0", "/proc/PID" },
	};

	says("mkdir -m 700 /tmp/shut; ln -s /usr /tmp/link", "");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct live_run run = { .x.user = t[i].user, .x.cwd = t[i].cwd };

		if (!box.ids && strcmp(t[i].user, "0") != 0)
			continue;
		live_sh(&box, &run, "pwd -P | sed 's,/[0-9][0-9]*,/PID,'");
		if (!t[i].pwd) {
			if (run.r == 0)
				fail_msg("'%s' was entered: %s", t[i].cwd, run.out);
			assert_non_null(strstr(run.e.text, "directory"));
			continue;
		}
		ok(&run);
		assert_memory_equal(run.out, t[i].pwd, strlen(t[i].pwd));
	}
}

static void the_order_of_output_and_errors_is_kept(void **state)
{
	struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c",
			      (char *)"i=0; while [ $i -lt 500 ]; do echo $i; echo $i >&2; i=$((i+1)); done", NULL }, .umask = 022 };
	static char text[16384];
	char *at = text;
	struct err e = ERR_INIT;
	struct box_exit ex;
	int p[2], sock = live_connect(&box);
	ssize_t n;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	{
		struct call_io io = { .in = FD_NONE, .out = p[1], .err = p[1] };

		assert_int_equal(call_run(sock, &x, &io, &ex, &e), 0);
	}
	(void)close(sock);
	(void)close(p[1]);
	n = fd_read_small(p[0], text, sizeof(text));
	(void)close(p[0]);
	if (ex.kind != BOX_EXITED || ex.status)
		fail_msg("ended as %d with %u, after %zd bytes", ex.kind, ex.status, n);
	assert_int_equal(n, 2 * (10 * 2 + 90 * 3 + 400 * 4));
	for (int i = 0; i < 1000; i++) {
		char want[16];
		int k = snprintf(want, sizeof(want), "%d\n", i / 2);

		assert_memory_equal(at, want, (size_t)k);
		at += k;
	}
}

/* Files that the caller opened to append, and its working descriptors, stay outside. */
static void no_descriptor_enters(void **state)
{
	struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c",
			      (char *)"for i in 0 1 2; do readlink /proc/self/fd/$i; done; echo again >/dev/stdout", NULL },
			      .umask = 022 };
	struct call_io io = { .in = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	char path[160], text[512];
	struct err e = ERR_INIT;
	struct box_exit ex;
	int sock = live_connect(&box), r;
	unsigned long a, b;

	(void)snprintf(path, sizeof(path), "%s/log", box.dir);
	io.out = io.err = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	(void)fd_write_all(io.out, "before\n", 7);
	r = call_run(sock, &x, &io, &ex, &e);
	(void)close(sock);
	(void)close(io.in);
	(void)close(io.out);
	if (r < 0)
		fail_msg("%s", e.text);
	assert_true(file_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	(void)unlink(path);
	assert_int_equal(ex.status, 0);
	assert_int_equal(sscanf(text, "before\npipe:[%*u]\npipe:[%lu]\npipe:[%lu]\nagain\n", &a, &b), 2);
	assert_true(a == b);	/* stdout and stderr were one file */
	assert_non_null(strstr(text, "again\n"));
}

static void a_background_child_does_not_hold_the_call(void **state)
{
	static const char *const scripts[] = {
		"sleep 600 & echo started", "nohup sleep 600 >/dev/null & echo started", "(exec >&-; exec sleep 600) & echo started",
		"setsid sleep 600 & echo started", "(while :; do echo flood; sleep 0.01; done) & echo started",
	};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct live_run run = { .x.user = "0" };
		uint64_t t = now_ms();

		live_sh(&box, &run, scripts[i]);
		ok(&run);
		assert_true(now_ms() - t < 3000);
		assert_int_equal(run.exit.status, 0);
		assert_non_null(strstr(run.out, "started\n"));
	}
	becomes(COUNT("sleep") " | sed 's/[4-5]/many/'", "many\n");
}

static void a_timeout_ends_everything_of_the_call(void **state)
{
	static const char *const scripts[] = {
		"setsid sh -c 'while :; do :; done' & sleep 100",
		"trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & while :; do sleep 1; done",
		"(setsid sleep 100 &) ; (setsid setsid sleep 100 & ) & kill -STOP $$",
		"ulimit -p 60 && exec perl -e '$SIG{TERM} = \"IGNORE\"; fork while 1'",
		"ulimit -p 60 && exec perl -e 'use POSIX; $SIG{TERM} = \"IGNORE\"; while (1) { setsid() if !fork; exit if rand() < 0.3 && $$ != '$$' }'",
	};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct live_run run = { .x.user = box.ids ? "agent" : "0", .x.timeout_ms = 300 };
		uint64_t t = now_ms();

		if (!box.ids && i >= 3)
			continue;	/* without a user of its own there is no limit for it */
		live_sh(&box, &run, scripts[i]);
		ok(&run);
		t = now_ms() - t;
		if (run.exit.kind != BOX_TIMED_OUT || run.exit.text[0])
			fail_msg("case %zu ended as %d with %u, '%s' %s", i, run.exit.kind, run.exit.status, run.exit.text, run.err);
		if (t < 300 || t > 4000)
			fail_msg("case %zu took %llu ms", i, (unsigned long long)t);
		becomes(COUNT("sleep"), "0\n");
		says(COUNT("sh"), "1\n");
		says(COUNT("perl"), "0\n");
	}
	/* In time: nothing of it. */
	{
		struct live_run run = { .x.timeout_ms = 5000, .x.user = "0" };

		live_sh(&box, &run, "echo done");
		ok(&run);
		assert_int_equal(run.exit.kind, BOX_EXITED);
	}
}

/* A client process that is killed while its command runs. */
static pid_t client(const struct box_exec *x)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct call_io io = { .in = FD_NONE, .out = FD_NONE, .err = FD_NONE };
		struct box_exit ex;
		struct err e;
		int sock = live_connect(&box);

		_exit(call_run(sock, x, &io, &ex, &e) < 0 ? 100 : ex.kind == BOX_SIGNALED ? 128 + (int)ex.status : (int)ex.status);
	}
	return pid;
}

static void a_killed_client_takes_its_command_along(void **state)
{
	const struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c",
				    (char *)"trap '' HUP; setsid sleep 77 & sleep 77; sleep 77", NULL },
				    .user = "0", .umask = 022 };
	struct box_exec kept = x;
	int status;
	pid_t pid = client(&x);

	becomes(COUNT("sleep"), "2\n");
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	becomes(COUNT("sleep"), "0\n");

	/* Detached it goes on: the client returns, and the command lives. */
	kept.detach = true;
	pid = client(&kept);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	becomes(COUNT("sleep"), "2\n");
}

static void signals_are_forwarded(void **state)
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	const struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c", (char *)"sleep 55", NULL },
				    .user = "0", .umask = 022 };

	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		int status;
		pid_t pid = client(&x);

		becomes(COUNT("sleep"), "1\n");
		(void)kill(pid, sigs[i]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 128 + sigs[i]);
		becomes(COUNT("sleep"), "0\n");
	}
}

static void a_reader_that_leaves_ends_the_command(void **state)
{
	const struct box_exec x = { .argv = (char *[]){ (char *)"yes", NULL }, .user = "0", .umask = 022 };
	struct call_io io = { .in = FD_NONE, .err = FD_NONE };
	struct box_exit ex;
	struct err e = ERR_INIT;
	char c[4];
	int p[2], sock = live_connect(&box), status;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	io.out = p[1];
	pid = fork();
	if (pid == 0) {
		(void)close(p[1]);
		_exit(read(p[0], c, 4) == 4 && memcmp(c, "y\ny\n", 4) == 0 ? 0 : 1);
	}
	(void)close(p[0]);
	assert_int_equal(call_run(sock, &x, &io, &ex, &e), 0);
	(void)close(sock);
	(void)close(p[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(ex.kind, BOX_SIGNALED);
	assert_int_equal(ex.status, SIGPIPE);
	becomes(COUNT("yes"), "0\n");
}

/* 1 GiB through call_run() and through a plain pipe: prints the rates, and holds that the relay isn't the bottleneck. */
static double mib_per_s(bool boxed, uint64_t mib)
{
	char count[32], buf[1 << 16];
	char *argv[] = { (char *)"head", (char *)"-c", count, (char *)"/dev/zero", NULL };
	uint64_t want = mib << 20, t;
	ssize_t k;
	pid_t pid;
	int p[2];

	(void)snprintf(count, sizeof(count), "%llu", (unsigned long long)want);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	t = now_ms();
	pid = fork();
	if (pid == 0) {
		struct box_exec x = { .argv = argv, .user = "0", .umask = 022 };
		struct call_io io = { .in = FD_NONE, .out = p[1], .err = FD_NONE };
		struct box_exit ex;
		struct err e;

		if (boxed)
			_exit(call_run(live_connect(&box), &x, &io, &ex, &e) == 0 ? (int)ex.status : 1);
		(void)dup2(p[1], 1);
		(void)execvp("head", argv);
		_exit(1);
	}
	(void)close(p[1]);
	while ((k = read(p[0], buf, sizeof(buf))) > 0)
		want -= (uint64_t)k;
	(void)close(p[0]);
	(void)waitpid(pid, NULL, 0);
	assert_int_equal(want, 0);
	t = now_ms() - t;
	return (double)mib * 1000 / (double)(t ? t : 1);
}

static void much_output_arrives_whole(void **state)
{
	double plain = mib_per_s(false, 1024), boxed = mib_per_s(true, 1024);

	print_message("1 GiB: pipe %.0f MiB/s, box %.0f MiB/s\n", plain, boxed);
	assert_true(boxed > plain * 0.15);	/* loose: other work shares the cores; the benchmarks hold the bar */
}

static void much_input_arrives_whole(void **state)
{
	struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c", (char *)"wc -c; echo", NULL }, .user = "0", .umask = 022 };
	struct call_io io = { .err = FD_NONE };
	char path[160], text[64] = "";
	struct box_exit ex;
	struct err e = ERR_INIT;
	int sock = live_connect(&box), p[2];

	(void)snprintf(path, sizeof(path), "%s/zero", box.dir);
	io.in = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(io.in, 100 << 20), 0);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	io.out = p[1];
	assert_int_equal(call_run(sock, &x, &io, &ex, &e), 0);
	(void)close(p[1]);
	assert_true(fd_read_small(p[0], text, sizeof(text)) > 0);
	(void)close(p[0]);
	(void)close(io.in);
	(void)close(sock);
	(void)unlink(path);
	assert_string_equal(text, "104857600\n\n");

	/* A command that doesn't read its input ends all the same, and nothing more is taken. */
	x.argv = (char *[]){ (char *)"sh", (char *)"-c", (char *)"exec <&-; sleep 0.1", NULL };
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	io.in = p[0];
	io.out = FD_NONE;
	sock = live_connect(&box);
	assert_int_equal(call_run(sock, &x, &io, &ex, &e), 0);
	(void)close(sock);
	assert_int_equal(fd_write_all(p[1], "later", 5), 0);
	assert_int_equal(read(p[0], text, sizeof(text)), 5);
	(void)close(p[0]);
	(void)close(p[1]);
}

enum { PARALLEL = 500 };

static void parallel_calls_lose_no_status(void **state)
{
	static pid_t pids[PARALLEL];
	unsigned wrong = 0;

	for (int i = 0; i < PARALLEL; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			char script[32];
			struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c", script, NULL }, .user = "0", .umask = 022 };
			struct call_io io = { .in = FD_NONE, .out = FD_NONE, .err = FD_NONE };
			struct box_exit ex;
			struct err e;

			(void)snprintf(script, sizeof(script), "exit %d", i % 200);
			_exit(call_run(live_connect(&box), &x, &io, &ex, &e) == 0 && ex.kind == BOX_EXITED ? (int)ex.status : 255);
		}
		assert_true(pids[i] > 0);
	}
	for (int i = 0; i < PARALLEL; i++) {
		int status = 0;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		wrong += !WIFEXITED(status) || WEXITSTATUS(status) != i % 200;
	}
	assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
#define LIVE(f) cmocka_unit_test_setup_teardown(f, box_up, box_down)
	const struct CMUnitTest tests[] = {
		LIVE(ends_with_the_commands_status),
		LIVE(order_and_input_are_kept),
		LIVE(what_cannot_run_says_why),
		LIVE(users_are_who_they_were_named),
		LIVE(environment_directory_umask_and_signals_are_fresh),
		LIVE(directories_are_entered_or_refused),
		LIVE(the_order_of_output_and_errors_is_kept),
		LIVE(no_descriptor_enters),
		LIVE(a_background_child_does_not_hold_the_call),
		LIVE(a_timeout_ends_everything_of_the_call),
		LIVE(a_killed_client_takes_its_command_along),
		LIVE(signals_are_forwarded),
		LIVE(a_reader_that_leaves_ends_the_command),
		LIVE(much_output_arrives_whole),
		LIVE(much_input_arrives_whole),
		LIVE(parallel_calls_lose_no_status),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
