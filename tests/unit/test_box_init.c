/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 of a box: what hostile clients and hostile processes of the box can't do to it; terminals; the end. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "test_box_live.h"

static struct live box;

static int up(void **state)
{
	int r = leak_mark(state);

	live_start(&box, NULL);
	return r;
}

static int down(void **state)
{
	(void)live_stop(&box, false);
	return leak_check(state);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void says(const char *script, const char *expect)
{
	struct live_run run = { .x.user = "0" };

	live_sh(&box, &run, script);
	if (run.r < 0)
		fail_msg("%s", run.e.text);
	assert_string_equal(run.out, expect);
}

static struct box_idle ping(void)
{
	struct box_idle idle = { 0 };
	struct err e = ERR_INIT;
	int sock = live_connect(&box);

	if (call_ping(sock, 5000, &idle, &e) < 0)
		fail_msg("%s", e.text);
	(void)close(sock);
	return idle;
}

/* Send bytes and descriptors, and read what comes back as one frame: its kind, or 0 when the connection just ends. */
static uint32_t raw(const void *data, size_t n, const int *fds, size_t nfds)
{
	struct call_in in = { 0 };
	struct box_frame f;
	struct timeval t = { .tv_sec = 5 };
	int sock = live_connect(&box), r;

	(void)setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	assert_true(fd_send(sock, data, n, fds, nfds, 0) >= 0);
	(void)shutdown(sock, SHUT_WR);
	r = call_recv(sock, &in, &f);
	(void)close(sock);
	free(in.buf);
	if (r == -ETIMEDOUT)
		fail_msg("no answer");
	return r == 1 ? (uint32_t)f.kind : 0;
}

static void malformed_requests_are_refused_one_by_one(void **state)
{
	static const struct {
		uint32_t kind;
		const char *body;
		size_t n;
	} t[] = {
		{ 0, "", 0 }, { 7, "", 0 }, { BOX_EXEC, "", 0 }, { BOX_EXEC, "\0\0\0\0\0\0\0\0", 8 },
		{ BOX_STOP, "", 0 }, { BOX_STOP, "\1\0", 2 }, { BOX_DIAL, "", 0 }, { BOX_DIAL, "\0\0\0\0", 4 },
		{ BOX_DIAL, "\0\0\1\0", 4 },
		{ BOX_GET, "", 0 }, { BOX_PUT, "x", 1 }, { BOX_SIGNAL, "\1\0\0\0", 4 }, { BOX_HANGUP, "", 0 },
		{ BOX_STARTED, "\1\0\0\0", 4 }, { BOX_EXIT, "", 0 }, { BOX_OK, "", 0 }, { BOX_FAIL, "\1\0\0\0", 4 },
		{ BOX_DATA, "", 0 }, { BOX_ENTRY, "", 0 }, { 0xffffffff, "", 0 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint8_t b[64];

		for (int k = 0; k < 4; k++) {
			b[k] = (uint8_t)(t[i].kind >> (8 * k));
			b[4 + k] = (uint8_t)(t[i].n >> (8 * k));
		}
		memcpy(b + 8, t[i].body, t[i].n);
		if (raw(b, 8 + t[i].n, NULL, 0) != BOX_FAIL)
			fail_msg("request %zu (kind %u) wasn't refused", i, t[i].kind);
	}
	/* The control: a good one is answered. */
	{
		static const uint8_t good[8] = { BOX_PING };

		assert_int_equal(raw(good, 8, NULL, 0), BOX_OK);
	}
	/* A frame that announces 4 GiB is refused at its head. */
	{
		static const uint8_t big[8] = { BOX_EXEC, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };

		assert_int_equal(raw(big, 8, NULL, 0), BOX_FAIL);
	}
	says("echo alive", "alive\n");
}

static void descriptors_that_do_not_belong_are_refused(void **state)
{
	const struct box_exec x = { .argv = (char *[]){ (char *)"true", NULL }, .in = BOX_STDIO_PIPE, .user = "0", .umask = 022 };
	OWN_BUF b = BUF_INIT(4096);
	int fds[FD_PASS_MAX], p[2];
	static const uint8_t good[8] = { BOX_PING };

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	for (int i = 0; i < FD_PASS_MAX; i++)
		fds[i] = p[0];
	assert_int_equal(box_put_exec(&b, &x), 0);
	assert_int_equal(raw(b.data, b.len, fds, 0), BOX_FAIL);
	assert_int_equal(raw(b.data, b.len, fds, 2), BOX_FAIL);
	assert_int_equal(raw(b.data, b.len, fds, FD_PASS_MAX), BOX_FAIL);
	assert_int_equal(raw(good, 8, fds, 1), BOX_FAIL);
	(void)close(p[0]);
	(void)close(p[1]);
	/* A flood of connections with as many as go; none stays in PID 1. */
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	for (int i = 0; i < FD_PASS_MAX; i++)
		fds[i] = p[1];
	for (int i = 0; i < 50; i++)
		(void)raw(good, 8, fds, FD_PASS_MAX);
	(void)close(p[1]);
	{
		char c;
		struct pollfd q = { .fd = p[0], .events = POLLIN };

		/* Nobody has the writing end any more. */
		assert_int_equal(poll(&q, 1, 5000), 1);
		assert_int_equal(read(p[0], &c, 1), 0);
	}
	(void)close(p[0]);
}

static void half_frames_and_silence_hold_nobody_up(void **state)
{
	const struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c", (char *)"exit 5", NULL }, .user = "0", .umask = 022 };
	OWN_BUF b = BUF_INIT(4096);
	struct call_in in = { 0 };
	struct box_frame f;
	struct box_exit ex;
	uint64_t t = now_ms();
	int silent[20], half[20], sock;

	assert_int_equal(box_put_exec(&b, &x), 0);
	for (int i = 0; i < 20; i++) {
		silent[i] = live_connect(&box);
		half[i] = live_connect(&box);
		assert_int_equal(fd_write_all(half[i], b.data, b.len - 1 - (size_t)i), 0);
	}
	says("echo alive", "alive\n");
	/* Byte by byte is slow, and right. */
	sock = live_connect(&box);
	for (size_t i = 0; i < b.len; i++)
		assert_int_equal(fd_write_all(sock, b.data + i, 1), 0);
	assert_int_equal(call_recv(sock, &in, &f), 1);
	assert_int_equal(box_get_exit(&f, &ex), 0);
	assert_int_equal(ex.status, 5);
	free(in.buf);
	(void)close(sock);
	for (int i = 0; i < 20; i++) {
		(void)close(silent[i]);
		(void)close(half[i]);
	}
	assert_true(now_ms() - t < 10000);
}

static void a_client_that_talks_nonsense_loses_its_command(void **state)
{
	const struct box_exec x = { .argv = (char *[]){ (char *)"sleep", (char *)"66", NULL }, .user = "0", .umask = 022, .announce = true };
	OWN_BUF b = BUF_INIT(4096);
	struct call_in in = { 0 };
	struct box_frame f;
	int sock = live_connect(&box);

	assert_int_equal(box_put_exec(&b, &x), 0);
	assert_int_equal(call_send(sock, &b, NULL, 0), 0);
	assert_int_equal(call_recv(sock, &in, &f), 1);
	assert_int_equal(f.kind, BOX_STARTED);
	assert_int_equal(ping().active, 1);
	assert_int_equal(fd_write_all(sock, "\1\0\0\0\0\0\0\0", 8), 0);	/* another EXEC */
	assert_int_equal(call_recv(sock, &in, &f), 0);
	free(in.buf);
	(void)close(sock);
	for (int i = 0; i < 300 && ping().active; i++)
		(void)usleep(10000);
	assert_int_equal(ping().active, 0);
}

static void ping_tells_how_long_nothing_happened(void **state)
{
	struct box_idle a, b;

	says("true", "");
	a = ping();
	assert_int_equal(a.active, 0);
	(void)usleep(60000);
	b = ping();
	assert_true(b.idle_ms >= a.idle_ms + 50);
	says("true", "");
	assert_true(ping().idle_ms < b.idle_ms);
}

static void zombies_and_orphans_are_reaped(void **state)
{
	/* 10,000 processes whose parent goes before them, a hundred at a time. */
	says("perl -e 'for (1..100) { if (!fork) { for (1..100) { if (!fork) { select undef, undef, undef, 0.01; exit } } exit } } "
	     "1 while wait > 0; print \"done\\n\"'", "done\n");
	for (int i = 0; i < 200; i++) {
		struct live_run run = { .x.user = "0" };

		live_sh(&box, &run, "grep -hc '^State:.Z' /proc/[0-9]*/status 2>/dev/null | grep -c 1");
		if (strcmp(run.out, "0\n") == 0)
			return;
		(void)usleep(20000);
	}
	fail_msg("there are zombies after 4 s");
}

static void the_boxs_root_cannot_end_or_open_init(void **state)
{
	says("for s in 1 2 3 9 10 12 13 14 15 17 19 20 30 34 64; do kill -$s 1; done; echo alive", "alive\n");
	/* init is not dumpable: its descriptors and memory are not to be opened. The control is the shell's own. */
	says("readlink /proc/1/fd/0 /proc/1/fd/3 /proc/1/exe /proc/1/root; head -c 1 /proc/1/mem 2>/dev/null && echo read; "
	     "readlink /proc/$$/fd/0 >/dev/null && echo own", "own\n");
	{
		struct live_run run = { .x.user = "0" };

		/* That ends the handler too: the client is told that something broke, and the box goes on. */
		live_sh(&box, &run, "kill -9 -1; sleep 5");
		assert_int_equal(run.r, -ECONNRESET);
	}
	says("echo alive", "alive\n");
}

static void the_memory_of_an_idle_init_is_small(void **state)
{
	char path[64], text[4096], *at;
	unsigned long anon;

	says("true", "");
	/* The handler made in advance has left by then. */
	for (int i = 0; i < 400; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)box.pid, (int)box.pid);
		if (file_read_small(AT_FDCWD, path, text, sizeof(text)) == 0)
			break;
		(void)usleep(10000);
	}
	assert_string_equal(text, "");
	(void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)box.pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		skip_because("no smaps_rollup in this kernel");
	at = strstr(text, "Anonymous:");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "Anonymous: %lu kB", &anon), 1);
	print_message("init's own memory: %lu KiB\n", anon);
#if !defined(__SANITIZE_ADDRESS__)
	/* The rest is the program itself, which all boxes share. */
	assert_true(anon <= 60);
#endif
}

/* Terminals. */

static void a_terminal_is_the_commands_own(void **state)
{
	struct box_exec x = {
		.argv = (char *[]){ (char *)"sh", (char *)"-c",
			(char *)"tty; stty size; echo $TERM; read x </dev/tty; echo \"got $x\"; test -t 0 -a -t 1 -a -t 2 && echo all;"
				"perl -e 'ioctl(STDIN, 0x5412, my $c = \"!\") or print \"TIOCSTI refused\\n\"'", NULL },
		.user = "0", .umask = 022, .in = BOX_STDIO_TTY, .rows = 33, .cols = 101,
	};
	struct call_io io = { .err = FD_NONE };
	char text[4096];
	struct box_exit ex;
	struct err e = ERR_INIT;
	int in[2], out[2], sock = live_connect(&box);

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(fd_write_all(in[1], "hello\n", 6), 0);
	io.in = in[0];
	io.out = out[1];
	if (call_run(sock, &x, &io, &ex, &e) < 0)
		fail_msg("%s", e.text);
	(void)close(sock);
	(void)close(in[0]);
	(void)close(in[1]);
	(void)close(out[1]);
	assert_true(fd_read_small(out[0], text, sizeof(text)) > 0);
	(void)close(out[0]);
	assert_int_equal(ex.kind, BOX_EXITED);
	assert_int_equal(ex.status, 0);
	/* The echo of the input may come between any two lines. */
	assert_non_null(strstr(text, "/dev/pts/0\r\n"));
	assert_non_null(strstr(text, "33 101\r\n"));
	assert_non_null(strstr(text, "xterm\r\n"));
	assert_non_null(strstr(text, "got hello\r\nall\r\n"));
	/* Bytes pushed back by TIOCSTI would be the box's own terminal's anyway; the filter refuses it at all. */
	assert_non_null(strstr(text, "TIOCSTI refused\r\n"));
}

/* The caller has a terminal of its own, as a person does: a child with a pty as its stdio. */
struct person {
	int master;
	pid_t pid;
};

static void person_runs(struct person *p, const char *script)
{
	int unlock = 0, slave;
	struct winsize ws = { .ws_row = 24, .ws_col = 80 };

	p->master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (p->master < 0)
		skip_because("no /dev/ptmx: %s", strerror(errno));
	assert_int_equal(ioctl(p->master, TIOCSPTLCK, &unlock), 0);
	slave = ioctl(p->master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(slave >= 0);
	(void)ioctl(slave, TIOCSWINSZ, &ws);
	p->pid = fork();
	if (p->pid == 0) {
		struct box_exec x = { .argv = (char *[]){ (char *)"sh", (char *)"-c", (char *)script, NULL },
				      .user = "0", .umask = 022, .in = BOX_STDIO_TTY };
		struct call_io io = { .in = slave, .out = slave, .err = FD_NONE };
		struct box_exit ex;
		struct err e;

		(void)close(p->master);
		(void)setsid();
		(void)ioctl(slave, TIOCSCTTY, 0);
		if (call_run(live_connect(&box), &x, &io, &ex, &e) < 0)
			_exit(100);
		_exit(ex.kind == BOX_SIGNALED ? 128 + (int)ex.status : (int)ex.status);
	}
	(void)close(slave);
}

/* Read until the text appears. */
static void person_sees(struct person *p, const char *what)
{
	char text[8192];
	size_t n = 0;
	uint64_t end = now_ms() + 5000;

	while (now_ms() < end && n < sizeof(text) - 1) {
		struct pollfd q = { .fd = p->master, .events = POLLIN };
		ssize_t k;

		if (poll(&q, 1, 100) <= 0)
			continue;
		k = read(p->master, text + n, sizeof(text) - 1 - n);
		if (k <= 0)
			break;
		n += (size_t)k;
		text[n] = '\0';
		if (strstr(text, what))
			return;
	}
	text[n] = '\0';
	fail_msg("'%s' was not seen in '%s'", what, text);
}

static int person_ends(struct person *p, bool *ret_cooked)
{
	struct termios t;
	int status = -1;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	*ret_cooked = tcgetattr(p->master, &t) == 0 && (t.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG);
	(void)close(p->master);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void keys_sizes_and_ends_reach_the_right_side(void **state)
{
	static const char count[] = "n=0; for p in /proc/[0-9]*; do read c 2>/dev/null <$p/comm && [ \"$c\" = sleep ] &&"
				    " n=$((n+1)); done; echo $n";
	struct person p;
	struct winsize ws = { .ws_row = 50, .ws_col = 132 };
	bool cooked;

	/* Ctrl-C is a key: it interrupts the box's command, not the client. */
	person_runs(&p, "trap 'echo caught' INT; echo ready; until stty size | grep 132; do sleep 0.05; done;"
		" while ! read y; do :; done; exit 3");
	person_sees(&p, "ready");
	assert_int_equal(write(p.master, "\003", 1), 1);
	person_sees(&p, "caught");
	assert_int_equal(ioctl(p.master, TIOCSWINSZ, &ws), 0);
	(void)kill(p.pid, SIGWINCH);
	person_sees(&p, "50 132");
	assert_int_equal(write(p.master, "b\n", 2), 2);
	assert_int_equal(person_ends(&p, &cooked), 3);
	assert_true(cooked);

	/* SIGTERM for the client ends the command and restores the terminal. */
	person_runs(&p, "echo ready; exec sleep 44");
	person_sees(&p, "ready");
	(void)kill(p.pid, SIGTERM);
	assert_int_equal(person_ends(&p, &cooked), 128 + SIGTERM);
	assert_true(cooked);

	/* A client that ignores all of it still has its way out. */
	person_runs(&p, "trap '' INT TERM HUP; echo ready; while :; do sleep 1; done");
	person_sees(&p, "ready");
	for (int i = 0; i < 1000; i++) {
		siginfo_t si = { 0 };

		(void)kill(p.pid, SIGINT);
		(void)usleep(20000);
		if (waitid(P_PID, (id_t)p.pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == p.pid)
			break;
	}
	assert_int_equal(person_ends(&p, &cooked), 128 + SIGINT);
	assert_true(cooked);

	/* The terminal goes away: so does the command, with what left its group. */
	person_runs(&p, "setsid sleep 45 & echo ready; sleep 45");
	person_sees(&p, "ready");
	(void)close(p.master);
	p.master = FD_NONE;
	{
		int status;

		assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
	}
	for (int i = 0; i < 500; i++) {
		struct live_run run = { .x.user = "0" };

		live_sh(&box, &run, count);
		if (run.r >= 0 && strcmp(run.out, "0\n") == 0)
			return;
		(void)usleep(20000);
	}
	says(count, "0\n");
}

static void stopping_asks_first_and_ends_in_time(void **state)
{
	struct err e = ERR_INIT;
	struct live_run run = { .x.user = "0" };
	uint64_t t;
	int sock, status;
	char path[160];

	(void)leak_mark(state);
	live_start(&box, NULL);
	live_sh(&box, &run, "(trap 'echo asked >/proc/1/x; exit' TERM; while :; do sleep 0.05; done) & (trap '' TERM; exec setsid sleep 99) & sleep 0.3");
	assert_int_equal(run.r, 0);
	t = now_ms();
	sock = live_connect(&box);
	assert_int_equal(call_stop(sock, 400, &e), 0);
	(void)close(sock);
	assert_int_equal(waitpid(box.pid, &status, 0), box.pid);
	t = now_ms() - t;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(t >= 400 && t < 3000);	/* one of them ignores it */
	(void)snprintf(path, sizeof(path), "%.90s/init.sock", box.dir);
	(void)unlink(path);

	/* With nothing that resists it is quick, however long the grace. */
	live_start(&box, NULL);
	memset(&run, 0, sizeof(run));
	run.x.user = "0";
	live_sh(&box, &run, "sleep 99 & setsid sleep 99 & echo");
	t = now_ms();
	sock = live_connect(&box);
	assert_int_equal(call_stop(sock, 60000, &e), 0);
	(void)close(sock);
	assert_int_equal(waitpid(box.pid, &status, 0), box.pid);
	assert_true(now_ms() - t < 2000);
	(void)unlink(path);
	assert_int_equal(leak_check(state), 0);
}

static void a_box_of_one_command_takes_more(void **state)
{
	(void)leak_mark(state);
	live_start(&box, "--once");
	assert_int_equal(ping().active, 0);	/* this takes the handler that was made in advance */
	says("echo one", "one\n");
	says("echo two", "two\n");
	(void)live_stop(&box, false);
	live_start(&box, "--once");
	says("echo one", "one\n");
	(void)live_stop(&box, false);
	assert_int_equal(leak_check(state), 0);
}

/* Dial a port of the box. Returns the connection behind its BOX_OK, or a negative errno as BOX_FAIL said it. */
static int dial(uint16_t port)
{
	const uint8_t frame[12] = { BOX_DIAL, 0, 0, 0, 4, 0, 0, 0, (uint8_t)port, (uint8_t)(port >> 8) };
	struct timeval t = { .tv_sec = 10 };
	uint8_t head[BOX_HEAD];
	int sock = live_connect(&box), code = 0;

	(void)setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	assert_int_equal(fd_write_all(sock, frame, sizeof(frame)), 0);
	assert_int_equal(fd_read_exact(sock, head, sizeof(head)), 0);
	if (head[0] == BOX_OK) {
		assert_int_equal(head[4], 0);
		return sock;
	}
	assert_int_equal(head[0], BOX_FAIL);
	assert_int_equal(fd_read_exact(sock, &code, sizeof(code)), 0);
	(void)close(sock);
	return -code;
}

/* Reads to the end, then writes all of it back and ends; ready when it answers. */
static const char mirror[] =
	"use IO::Socket; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 4711) or die; "
	"while (my $c = $s->accept) { local $/; my $t = <$c>; print $c $t; close $c; }";

static void a_dialled_port_carries_both_directions_to_their_ends(void **state)
{
	enum { MANY = 3 << 20 };
	struct live_run run = { .x.user = "0" };
	uint8_t *data = malloc(MANY), *back = malloc(MANY);
	size_t at = 0, got = 0;
	int sock = -ECONNREFUSED;

	assert_true(data && back);
	if (access("/usr/bin/perl", X_OK) < 0)
		skip();
	/* Nobody listens yet. */
	assert_int_equal(dial(4711), -ECONNREFUSED);
	live_argv(&box, &run, (char *[]){ (char *)"sh", (char *)"-c", (char *)"perl -e \"$1\" </dev/null >/dev/null 2>&1 & echo",
					  (char *)"sh", (char *)mirror, NULL });
	for (int i = 0; i < 200 && sock == -ECONNREFUSED; i++) {
		(void)poll(NULL, 0, 20);
		sock = dial(4711);
	}
	assert_true(sock >= 0);
	for (size_t i = 0; i < MANY; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	while (at < MANY) {
		ssize_t k = send(sock, data + at, MANY - at, 0);

		assert_true(k > 0);
		at += (size_t)k;
	}
	/* It answers only when our direction has ended: the end goes through, and the other direction stays open. */
	assert_int_equal(shutdown(sock, SHUT_WR), 0);
	while (got < MANY) {
		ssize_t k = recv(sock, back + got, MANY - got, 0);

		assert_true(k > 0);
		got += (size_t)k;
	}
	assert_int_equal(recv(sock, back, 1, 0), 0);
	(void)close(sock);
	assert_memory_equal(data, back, MANY);
	free(data);
	free(back);
}

static void a_caller_that_leaves_frees_its_dialled_port(void **state)
{
	struct live_run run = { .x.user = "0" };
	int sock = -ECONNREFUSED;

	if (access("/usr/bin/perl", X_OK) < 0)
		skip();
	live_argv(&box, &run, (char *[]){ (char *)"sh", (char *)"-c", (char *)"perl -e \"$1\" </dev/null >/dev/null 2>&1 & echo",
					  (char *)"sh", (char *)
		"use IO::Socket; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 4712) or die; "
		"while (my $c = $s->accept) { push @c, $c; }", NULL });
	for (int i = 0; i < 200 && sock == -ECONNREFUSED; i++) {
		(void)poll(NULL, 0, 20);
		sock = dial(4712);
	}
	assert_true(sock >= 0);
	assert_int_equal(ping().active, 1);
	/* The server never says a word and never reads: the call ends with its caller all the same. */
	(void)close(sock);
	for (int i = 0; i < 200 && ping().active != 0; i++)
		(void)poll(NULL, 0, 10);
	assert_int_equal(ping().active, 0);
}

int main(int argc, char **argv)
{
#define LIVE(f) cmocka_unit_test_setup_teardown(f, up, down)
	const struct CMUnitTest tests[] = {
		LIVE(malformed_requests_are_refused_one_by_one),
		LIVE(descriptors_that_do_not_belong_are_refused),
		LIVE(half_frames_and_silence_hold_nobody_up),
		LIVE(a_client_that_talks_nonsense_loses_its_command),
		LIVE(ping_tells_how_long_nothing_happened),
		LIVE(zombies_and_orphans_are_reaped),
		LIVE(the_boxs_root_cannot_end_or_open_init),
		LIVE(the_memory_of_an_idle_init_is_small),
		LIVE(a_terminal_is_the_commands_own),
		LIVE(keys_sizes_and_ends_reach_the_right_side),
		LIVE(a_dialled_port_carries_both_directions_to_their_ends),
		LIVE(a_caller_that_leaves_frees_its_dialled_port),
		cmocka_unit_test(stopping_asks_first_and_ends_in_time),
		cmocka_unit_test(a_box_of_one_command_takes_more),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
