/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program cubby against a daemon that the test plays: what it asks, what it prints, how it exits. For the commands
 * that run something the test plays the box as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "chan/box.h"
#include "chan/call.h"
#include "chan/msg.h"
#include "lib/leak.h"

#define DEADLINE_MS 10000
#define WORDS_MAX 32

/* How the box of a command behaves. */
struct act {
	const char *out, *err;	/* what the command writes */
	struct box_exit exit;
	bool lost;		/* the box ends instead */
	bool fail;		/* BOX_FAIL instead: nothing ran */
};

struct step {
	const char *want;	/* the request, as JSON; NULL: no more steps */
	const char *answer;	/* several frames: separated by newlines. NULL: end the connection */
	const struct act *box;	/* a connection to the box goes along */
	bool again;		/* it may come several times, until the program ends the connection; the last step */
};

struct play {
	const char *line;
	struct step steps[6];
	const char *out;	/* all of standard output */
	const char *err;	/* is in standard error; "": that is empty; NULL: whatever */
	int status;
};

static char program[4096];
static bool own_way;	/* the program is not told where the daemon is */
static const char *dir;

static int find_program(void **state)
{
	char self[4000], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return -1;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return -1;
	*slash = '\0';
	(void)snprintf(program, sizeof(program), "%s/../../src/prog/cubby", self);
	return access(program, X_OK);
}

static int64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int listen_in(const char *where)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/cubbyd.sock", where);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static void remove_socket(void)
{
	char path[300];

	(void)snprintf(path, sizeof(path), "%s/cubbyd.sock", dir);
	assert_int_equal(unlink(path), 0);
}

/* The program with its output in files of memory. in: FD_NONE is /dev/null. before(): in the child, to spoil its environment. */
struct run {
	pid_t pid;
	int out, err;
};

static char *const clean_env[] = {
	(char *)"PATH=/usr/bin:/bin", (char *)"TZ=UTC", (char *)"HOME=/nonexistent", (char *)"TERM=xterm", (char *)"SECRET=1", NULL,
};

static void start(struct run *r, const char *line, int in, int out, int err, void (*before)(void), char *const *env)
{
	char text[1024], *argv[WORDS_MAX + 4];
	int n = 0;

	argv[n++] = program;
	if (!own_way) {
		argv[n++] = (char *)"--run-dir";
		argv[n++] = (char *)dir;
	}
	(void)snprintf(text, sizeof(text), "%s", line);
	for (char *p = text, *next; p; p = next) {
		next = strchr(p, ' ');
		if (next)
			*next++ = '\0';
		assert_true(n < WORDS_MAX);
		argv[n++] = p;
	}
	argv[n] = NULL;
	r->out = out >= 0 ? FD_NONE : memfd_create("out", MFD_CLOEXEC);
	r->err = err >= 0 ? FD_NONE : memfd_create("err", MFD_CLOEXEC);
	r->pid = fork();
	assert_true(r->pid >= 0);
	if (r->pid > 0)
		return;
	if (in < 0)
		in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (dup2(in, 0) < 0 || dup2(out >= 0 ? out : r->out, 1) < 0 || dup2(err >= 0 ? err : r->err, 2) < 0)
		_exit(99);
	if (before)
		before();
	(void)execve(program, argv, env ? env : clean_env);
	_exit(98);
}

static int wait_end(struct run *r)
{
	int64_t deadline = now_ms() + DEADLINE_MS;
	int status;

	for (;;) {
		struct timespec pause = { .tv_nsec = 1000000 };
		pid_t pid = waitpid(r->pid, &status, WNOHANG);

		if (pid == r->pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
		if (now_ms() > deadline) {
			(void)kill(r->pid, SIGKILL);
			(void)waitpid(r->pid, &status, 0);
			fail_msg("the program does not end");
		}
		(void)nanosleep(&pause, NULL);
	}
}

static void slurp(int *fd, char *ret, size_t room)
{
	ssize_t n;

	ret[0] = '\0';
	if (*fd < 0)
		return;
	assert_int_equal(lseek(*fd, 0, SEEK_SET), 0);
	n = fd_read_small(*fd, ret, room);
	assert_true(n >= 0);
	fd_close(fd);
}

static void write_json(const struct json *v, struct buf *to)
{
	struct json_out o;

	json_out_init(&o, to);
	json_put_value(&o, NULL, v);
	assert_int_equal(buf_error(to), 0);
}

/* What the last command in a box was, as text: "argv… | env… | user cwd io timeout". */
static char seen_exec[4096];

static void play_box(int sock, const struct act *act)
{
	char bytes[8192];
	struct box_frame f;
	struct box_exec x;
	OWN_MEM void *mem = NULL;
	OWN_BUF reply = BUF_INIT(8192), said = BUF_INIT(4096);
	int fds[FD_PASS_MAX];
	size_t nfds, have = 0, next = 0;
	ssize_t n = fd_recv(sock, bytes, sizeof(bytes), fds, &nfds, 0);

	assert_true(n > 0);
	have = (size_t)n;
	while (box_peek(bytes, have, &f, NULL) == 0) {
		n = fd_recv(sock, bytes + have, sizeof(bytes) - have, NULL, NULL, 0);
		assert_true(n > 0);
		have += (size_t)n;
	}
	assert_int_equal(f.kind, BOX_EXEC);
	assert_int_equal(box_get_exec(&f, &x, &mem), 0);
	for (size_t i = 0; x.argv[i]; i++)
		(void)buf_printf(&said, "%s ", x.argv[i]);
	for (size_t i = 0; x.env && x.env[i]; i++)
		(void)buf_printf(&said, "%s%s ", i ? "" : "| ", x.env[i]);
	(void)buf_printf(&said, "| %s %s %d%d%d %llu%s", x.user ? x.user : "-", x.cwd ? x.cwd : "-", x.in, x.out, x.err,
			 (unsigned long long)x.timeout_ms, x.detach ? " detach" : "");
	(void)snprintf(seen_exec, sizeof(seen_exec), "%s", said.data);
	assert_int_equal(nfds, box_exec_fds(&x));
	if (x.in == BOX_STDIO_PIPE)
		next++;
	if (x.out == BOX_STDIO_PIPE && act->out)
		assert_int_equal(fd_write_all(fds[next], act->out, strlen(act->out)), 0);
	if (x.out == BOX_STDIO_PIPE)
		next++;
	if (x.err == BOX_STDIO_PIPE && act->err)
		assert_int_equal(fd_write_all(fds[next], act->err, strlen(act->err)), 0);
	for (size_t i = 0; i < nfds; i++)
		fd_close(&fds[i]);
	if (act->lost)
		return;
	if (x.detach)
		assert_int_equal(box_put_u32(&reply, BOX_STARTED, 7), 0);
	else if (act->fail)
		assert_int_equal(box_put_fail(&reply, -ENOENT, "there is no user 'x\033'"), 0);
	else
		assert_int_equal(box_put_exit(&reply, &act->exit), 0);
	(void)fd_send(sock, reply.data, reply.len, NULL, 0, 0);
}

/* Answer one step. Returns false when it was to end the connection. */
static bool answer(int conn, const struct step *s)
{
	const char *p = s->answer;
	int pair[2] = { FD_NONE, FD_NONE };

	if (!p)
		return false;
	if (s->box)
		assert_int_equal(fd_socketpair(SOCK_STREAM, pair), 0);
	while (*p) {
		size_t n = strcspn(p, "\n");
		bool last = p[n] == '\0';

		assert_int_equal(msg_send(conn, p, n, &pair[0], last && s->box ? 1 : 0), 0);
		p += n + !last;
	}
	fd_close(&pair[0]);
	if (s->box)
		play_box(pair[1], s->box);
	fd_close(&pair[1]);
	return true;
}

/* Play the daemon until the steps are over; further requests are an error of the program. */
static void serve(int listener, const struct play *play)
{
	int64_t deadline = now_ms() + DEADLINE_MS;
	OWN_FD conn = FD_NONE;
	bool asked = false;
	size_t at = 0;

	while (at < 6 && play->steps[at].want) {
		struct pollfd p[2] = { { .fd = listener, .events = POLLIN }, { .fd = conn, .events = POLLIN } };
		OWN_JSON doc = { 0 };
		OWN_BUF text = BUF_INIT(1u << 20);
		struct err e = ERR_INIT;
		int fds[FD_PASS_MAX];
		size_t nfds;
		int r;

		if (now_ms() > deadline)
			fail_msg("'%s': the request %s never came", play->line, play->steps[at].want);
		if (poll(p, 2, 100) <= 0)
			continue;
		if (p[0].revents) {
			fd_close(&conn);
			conn = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			assert_true(conn >= 0);
			continue;
		}
		r = msg_recv(conn, &doc, fds, FD_PASS_MAX, &nfds, &e);
		if (r == 0) {
			fd_close(&conn);
			if (asked)
				return;
			continue;
		}
		assert_int_equal(r, 1);
		for (size_t i = 0; i < nfds; i++)
			fd_close(&fds[i]);
		write_json(doc.root, &text);
		if (strcmp(text.data, play->steps[at].want) != 0)
			fail_msg("'%s' asked %s, not %s", play->line, text.data, play->steps[at].want);
		if (!answer(conn, &play->steps[at]))
			fd_close(&conn);
		asked = play->steps[at].again;
		at += !asked;
	}
}

static void check_play(const struct play *p)
{
	static char out[65536], err[65536];
	OWN_FD listener = listen_in(dir);
	struct run r;
	int status;

	start(&r, p->line, FD_NONE, FD_NONE, FD_NONE, NULL, NULL);
	serve(listener, p);
	status = wait_end(&r);
	slurp(&r.out, out, sizeof(out));
	slurp(&r.err, err, sizeof(err));
	fd_close(&listener);
	remove_socket();
	if (status != p->status)
		fail_msg("'%s' exits with %d, not %d; it says: %s", p->line, status, p->status, err);
	if (p->out && strcmp(out, p->out) != 0)
		fail_msg("'%s' prints '%s', not '%s'", p->line, out, p->out);
	if (p->err && (p->err[0] ? !strstr(err, p->err) : err[0] != '\0'))
		fail_msg("'%s' should complain '%s', complains '%s'", p->line, p->err, err);
	if (memchr(out, '\033', strlen(out)) || memchr(err, '\033', strlen(err)))
		fail_msg("'%s' let an escape sequence through", p->line);
}

#define OPEN_X "{\"v\":1,\"op\":\"open\",\"box\":\"x\"}"
#define BOX_X "{\"name\":\"x\",\"state\":\"running\",\"template\":\"host\",\"created\":0}"
#define OK_BOX "{\"ok\":true,\"box\":" BOX_X "}"

static void each_command_asks_its_question(void **state)
{
	static const struct play plays[] = {
		{ "new x", { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"tz\":\"UTC\"}", OK_BOX, NULL } }, "x\n", "", 0 },
		{ "new --json x", { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"tz\":\"UTC\"}", OK_BOX, NULL } }, BOX_X "\n", "", 0 },
		{ "new --memory 64M --pids 9 --env A=1 --ttl 1m x",
		  { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"limits\":{\"memory\":67108864,\"pids\":9},\"ttl_ms\":60000,\"tz\":\"UTC\","
		      "\"env\":[\"A=1\"]}", OK_BOX, NULL } }, "x\n", "", 0 },
		{ "new x", { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"tz\":\"UTC\"}",
			       "{\"progress\":\"mounting\"}\n{\"error\":\"no room\",\"why\":\"no-space\",\"code\":28}", NULL } },
		  "", "cubby: no room\n", 1 },
		{ "new --json x", { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"tz\":\"UTC\"}",
				      "{\"error\":\"no room\",\"why\":\"no-space\",\"code\":28}", NULL } },
		  "{\"error\":\"no room\",\"why\":\"no-space\"}\n", "cubby: no room\n", 1 },
		{ "new x --allow-weaker", { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"allow_weaker\":true,\"tz\":\"UTC\"}",
				     "{\"ok\":true,\"box\":{\"name\":\"x\",\"weak\":[\"seccomp\"]}}", NULL } },
		  "x\n", "weaker than it should be: seccomp", 0 },
		{ "new X", { { NULL, NULL, NULL } }, "", "'X' is not a name of a box", 2 },
		{ "new ../x", { { NULL, NULL, NULL } }, "", "'../x' is not a name", 2 },
		{ "new x --net @npm --net example.org:443 --lan 10.0.0.0/8",
		  { { "{\"v\":1,\"op\":\"new\",\"name\":\"x\",\"net\":\"@npm,example.org:443\",\"net_more\":\"lan=10.0.0.0/8\",\"tz\":\"UTC\"}",
		      "{\"error\":\"item 2 is bad\",\"why\":\"bad-request\"}", NULL } }, "", "cubby: item 2 is bad\n", 1 },
		{ "new x --lan a,b", { { NULL, NULL, NULL } }, "", "--lan: 'a,b' is not an address or range", 2 },
		{ "new x --memory 1Q", { { NULL, NULL, NULL } }, "", "'1Q' is not a size", 2 },
		{ "new x --mount /nonexistent", { { NULL, NULL, NULL } }, "", "/nonexistent", 1 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[]}", NULL } }, "", "there is no box", 0 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } },
		  "NAME  STATE    TEMPLATE  MADE  NOTES\nx     running  host      -     -\n", "", 0 },
		{ "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, "x\n", "", 0 },
		{ "ls -q -a", { { "{\"v\":1,\"op\":\"ls\",\"all\":true}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, "x\n", "", 0 },
		{ "ls --json", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, "[" BOX_X "]\n", "", 0 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}",
			    "{\"ok\":true,\"boxes\":[{\"name\":\"\\u001b[2Jx\",\"state\":\"broken\",\"why\":\"\\u001b]0;y\\u0007\"}]}", NULL } },
		  "NAME      STATE   TEMPLATE  MADE  NOTES\n\\x1b[2Jx  broken  -         -     \\x1b]0;y\\x07\n", "", 0 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "{\"error\":\"\\u001b[2J\",\"why\":\"denied\",\"code\":1}", NULL } }, "",
		  "cubby: ?[2J\n", 1 },
		{ "info x", { { "{\"v\":1,\"op\":\"info\",\"box\":\"x\"}",
				"{\"ok\":true,\"box\":{\"name\":\"x\",\"limits\":{\"memory\":1073741824,\"pids\":0},\"usage\":{\"pids\":3},"
				"\"grade\":[{\"id\":\"userns\",\"level\":\"on\",\"what\":\"ids of its own\"},"
				"{\"id\":\"io\",\"level\":\"off\",\"what\":\"no io limit\",\"fix\":\"mount it\"}]}}", NULL } },
		  "name  x\n\nlimits:\n  memory  1 GiB\n  pids    no limit\n\nusage:\n  processes  3\n\nwhat isolates it:\n"
		  "  on    ids of its own\n  off   no io limit\n        mend it: mount it\n", "", 0 },
		{ "rename x y", { { "{\"v\":1,\"op\":\"rename\",\"box\":\"x\",\"name\":\"y\"}", OK_BOX, NULL } }, "y\n", "keeps its old host name", 0 },
		{ "rename -q x y", { { "{\"v\":1,\"op\":\"rename\",\"box\":\"x\",\"name\":\"y\"}", OK_BOX, NULL } }, "y\n", "", 0 },
		{ "rename x y", { { "{\"v\":1,\"op\":\"rename\",\"box\":\"x\",\"name\":\"y\"}",
				    "{\"ok\":true,\"box\":{\"name\":\"y\",\"state\":\"stopped\"}}", NULL } }, "y\n", "", 0 },
		{ "rename x Y", { { NULL, NULL, NULL } }, "", "'Y' is not a name", 2 },
		{ "start x", { { "{\"v\":1,\"op\":\"start\",\"box\":\"x\"}", OK_BOX, NULL } }, "x\n", "", 0 },
		{ "stop --grace 5s --force x",
		  { { "{\"v\":1,\"op\":\"stop\",\"box\":\"x\",\"grace_ms\":5000,\"force\":true}", OK_BOX, NULL } }, "x\n", "", 0 },
		{ "pause x y", { { "{\"v\":1,\"op\":\"pause\",\"box\":\"x\"}", OK_BOX, NULL },
				 { "{\"v\":1,\"op\":\"pause\",\"box\":\"y\"}", "{\"error\":\"it is stopped\",\"why\":\"wrong-state\"}", NULL } },
		  "x\n", "cubby: it is stopped\n", 1 },
		{ "resume x --json", { { "{\"v\":1,\"op\":\"resume\",\"box\":\"x\"}", OK_BOX, NULL } }, "[" BOX_X "]\n", "", 0 },
		{ "rm x", { { "{\"v\":1,\"op\":\"rm\",\"box\":\"x\"}", "{\"ok\":true}", NULL } }, "x\n", "", 0 },
		{ "rm x", { { "{\"v\":1,\"op\":\"rm\",\"box\":\"x\"}", "{\"error\":\"it runs\",\"why\":\"wrong-state\"}", NULL } }, "",
		  "say --force", 1 },
		{ "rm a b", { { NULL, NULL, NULL } }, "", "say --force", 1 },
		{ "rm --force a missing b",
		  { { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\",\"force\":true}", "{\"ok\":true}", NULL },
		    { "{\"v\":1,\"op\":\"rm\",\"box\":\"missing\",\"force\":true}",
		      "{\"error\":\"there is no box 'missing'\",\"why\":\"no-such-box\"}", NULL },
		    { "{\"v\":1,\"op\":\"rm\",\"box\":\"b\",\"force\":true}", "{\"ok\":true}", NULL } },
		  "a\nb\n", "cubby: there is no box 'missing'\n", 1 },
		{ "rm --force --json a missing",
		  { { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\",\"force\":true}", "{\"ok\":true}", NULL },
		    { "{\"v\":1,\"op\":\"rm\",\"box\":\"missing\",\"force\":true}", "{\"error\":\"none\",\"why\":\"no-such-box\"}", NULL } },
		  "[{\"name\":\"a\"},{\"name\":\"missing\",\"error\":\"none\",\"why\":\"no-such-box\"}]\n", "cubby: none\n", 1 },
		{ "rm --force a A", { { NULL, NULL, NULL } }, "", "'A' is not a name", 2 },
		{ "limits x", { { "{\"v\":1,\"op\":\"limits\",\"box\":\"x\"}",
				  "{\"ok\":true,\"limits\":{\"memory\":0,\"swap\":0,\"cpu_milli\":1500,\"io_read\":1048576}}", NULL } },
		  "memory   no limit\nswap     none\ncpus     1.5\nio-read  1 MiB in a second\n", "", 0 },
		{ "limits x --cpus 2 --json", { { "{\"v\":1,\"op\":\"limits\",\"box\":\"x\",\"limits\":{\"cpu_milli\":2000}}",
						  "{\"ok\":true,\"limits\":{\"cpu_milli\":2000}}", NULL } }, "{\"cpu_milli\":2000}\n", "", 0 },
		{ "ttl x 1h", { { "{\"v\":1,\"op\":\"set\",\"box\":\"x\",\"ttl_ms\":3600000}", OK_BOX, NULL } },
		  "removed: never\nstopped: never\n", "", 0 },
		{ "ttl x off --idle 10m -q", { { "{\"v\":1,\"op\":\"set\",\"box\":\"x\",\"ttl_ms\":0,\"idle_ms\":600000}", OK_BOX, NULL } },
		  "", "", 0 },
		{ "ttl x", { { "{\"v\":1,\"op\":\"info\",\"box\":\"x\"}", "{\"ok\":true,\"box\":{\"expires\":1,\"idle_ms\":60000}}", NULL } },
		  "removed: now\nstopped: when idle for 1 min\n", "", 0 },
		{ "ttl x soon", { { NULL, NULL, NULL } }, "", "'soon' is not a duration", 2 },
		{ "cp a b", { { NULL, NULL, NULL } }, "", "has to be a path in a box", 2 },
		{ "cp x:/a y:/b", { { NULL, NULL, NULL } }, "", "has to be a path here", 2 },
		{ "cp ./x:/a y", { { NULL, NULL, NULL } }, "", "has to be a path in a box", 2 },
		{ "cp X:/a y", { { NULL, NULL, NULL } }, "", "has to be a path in a box", 2 },
		{ "cp x:/a /nonexistent/b", { { NULL, NULL, NULL } }, "", "cannot open the directory '/nonexistent'", 1 },
		{ "cp x:/a /tmp", { { OPEN_X, "{\"error\":\"there is no box\",\"why\":\"no-such-box\"}", NULL } }, "",
		  "cubby: there is no box\n", 1 },
		{ "cp /etc/passwd x:/a", { { OPEN_X, "{\"ok\":true}", NULL } }, "", "sent no connection to box 'x'", 1 },
		{ "top", { { "{\"v\":1,\"op\":\"top\"}",
			     "{\"ok\":true,\"boxes\":[{\"id\":\"i\",\"name\":\"x\",\"state\":\"running\",\"usage\":{\"cpu_us\":1000000,"
			     "\"memory\":1048576,\"pids\":2}}]}", NULL },
			   { "{\"v\":1,\"op\":\"top\"}",
			     "{\"ok\":true,\"boxes\":[{\"id\":\"i\",\"name\":\"x\",\"state\":\"running\",\"usage\":{\"cpu_us\":1000000,"
			     "\"memory\":1048576,\"pids\":2}}]}", NULL } },
		  "NAME  STATE    CPU  TIME  MEMORY  OF  PIDS  READ  WRITTEN\nx     running  0%   1 s   1 MiB   -   2     -     -\n", "", 0 },
		{ "top --json", { { "{\"v\":1,\"op\":\"top\"}", "{\"ok\":true,\"boxes\":[]}", NULL } }, "[]\n", "", 0 },
		{ "logs -n 2 x", { { "{\"v\":1,\"op\":\"logs\",\"box\":\"x\",\"lines\":2}",
				     "{\"ok\":true,\"events\":[{\"time\":0,\"box\":\"x\",\"event\":\"made\",\"text\":\"a\\nb\"}]}", NULL } },
		  "1970-01-01 00:00:00  x  made  a\\nb\n", "", 0 },
		{ "logs --json", { { "{\"v\":1,\"op\":\"logs\",\"lines\":100}", "{\"ok\":true,\"events\":[{\"time\":0}]}", NULL } },
		  "[{\"time\":0}]\n", "", 0 },
		{ "net show", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[{\"name\":\"x\",\"state\":\"running\",\"net\":\"@npm\"}]}", NULL } },
		  "NAME  STATE    NET\nx     running  @npm\n", "", 0 },
		{ "net show --json x", { { "{\"v\":1,\"op\":\"net-show\",\"box\":\"x\"}", "{\"ok\":true,\"net\":{\"net\":\"none\"}}", NULL } },
		  "{\"net\":\"none\"}\n", "", 0 },
		{ "net show x", { { "{\"v\":1,\"op\":\"net-show\",\"box\":\"x\"}",
				    "{\"ok\":true,\"net\":{\"net\":\"internet\",\"limits\":{\"connections\":9},\"exposed\":[{\"port\":80,\"host_port\":8080}],"
				    "\"totals\":{\"up\":5},\"conns\":[{\"proto\":\"tcp\",\"name\":\"a\\u001bb\",\"addr\":\"1.2.3.4\",\"port\":443,\"up\":1,"
				    "\"down\":2048,\"ms\":1000,\"process\":\"curl(7)\"}]}}", NULL } },
		  "policy           internet\nconnections      9\nconnection-rate  no limit\nflows            no limit\nbandwidth        no limit\n"
		  "exposed          80 at 127.0.0.1:8080\nso far           up 5\n\nopen now:\n"
		  "WITH        PROTO  UP   DOWN   FOR  PROCESS\na\\x1bb:443  tcp    1 B  2 KiB  1 s  curl(7)\n", "", 0 },
		{ "net set x", { { NULL, NULL, NULL } }, "", "what shall 'x' reach?", 2 },
		{ "net set x @npm a.org --lan 10.0.0.1", { { "{\"v\":1,\"op\":\"net-set\",\"box\":\"x\",\"net\":\"@npm,a.org\",\"net_more\":\"lan=10.0.0.1\"}",
		    "{\"ok\":true,\"box\":{\"name\":\"x\",\"net\":\"@npm,a.org,lan=10.0.0.1\"}}", NULL } }, "@npm,a.org,lan=10.0.0.1\n", "", 0 },
		{ "net why x [2001:db8::1]:80", { { "{\"v\":1,\"op\":\"net-why\",\"box\":\"x\",\"host\":\"2001:db8::1\",\"port\":80}",
		    "{\"ok\":true,\"net\":{\"verdict\":\"refused\",\"rule\":\"\",\"why\":\"reserved\"}}", NULL } }, "refused: reserved\n", "", 0 },
		{ "net why x a.org", { { "{\"v\":1,\"op\":\"net-why\",\"box\":\"x\",\"host\":\"a.org\",\"port\":0}",
		    "{\"ok\":true,\"net\":{\"verdict\":\"allowed\",\"rule\":\"*.org\",\"why\":\"\",\"addrs\":[{\"addr\":\"10.0.0.1\",\"verdict\":\"refused\","
		    "\"why\":\"private\"}]}}", NULL } }, "allowed by *.org\n  10.0.0.1  refused: private\n", "", 0 },
		{ "net why x 999.1.1.1", { { NULL, NULL, NULL } }, "", "neither a host name nor an address", 2 },
		{ "net why x http://a.org/", { { NULL, NULL, NULL } }, "", "is not HOST[:PORT]", 2 },
		{ "net why x a.org.:443", { { "{\"v\":1,\"op\":\"net-why\",\"box\":\"x\",\"host\":\"a.org\",\"port\":443}",
		    "{\"ok\":true,\"net\":{\"verdict\":\"allowed\",\"rule\":\"internet\",\"why\":\"no\"}}", NULL } }, "allowed by internet, but no\n", "", 0 },
		{ "net set x --host-port 99999", { { NULL, NULL, NULL } }, "", "--host-port: '99999' is not a port", 2 },
		{ "net why x a.org:0", { { NULL, NULL, NULL } }, "", "'0' is not a port", 2 },
		{ "net why x a.org:70000", { { NULL, NULL, NULL } }, "", "'70000' is not a port", 2 },
		{ "net why x [::1]80", { { NULL, NULL, NULL } }, "", "is not [ADDRESS]:PORT", 2 },
		{ "net log -n 1 x", { { "{\"v\":1,\"op\":\"net-log\",\"box\":\"x\",\"lines\":1}",
		    "{\"ok\":true,\"lines\":[{\"time\":\"T\",\"name\":\"x\",\"process\":\"a\\u001b\",\"proto\":\"tcp\",\"host\":\"h\",\"addr\":\"1.2.3.4\","
		    "\"port\":80,\"verdict\":\"refused\",\"why\":\"no\",\"count\":3}]}", NULL } },
		  "T  x a\\x1b  refused  tcp h (1.2.3.4) port 80: no  3 times\n", "", 0 },
		{ "net learn x", { { "{\"v\":1,\"op\":\"net-log\",\"box\":\"x\",\"lines\":100000}",
		    "{\"ok\":true,\"lines\":[{\"host\":\"b.org\",\"port\":80,\"verdict\":\"allowed\"},{\"host\":\"b.org\",\"port\":80,\"verdict\":\"allowed\"},"
		    "{\"host\":\"\",\"addr\":\"2001:db8::1\",\"port\":443,\"verdict\":\"allowed\"},{\"host\":\"a;b\",\"port\":1,\"verdict\":\"allowed\"},"
		    "{\"host\":\"c.org\",\"port\":443,\"verdict\":\"refused\"}]}", NULL } },
		  "[2001:db8::1]:443\nb.org:80\n# refused so far: c.org:443\n", "to allow just these", 0 },
		{ "net presets npm", { { "{\"v\":1,\"op\":\"net-presets\"}", "{\"ok\":true,\"presets\":[{\"name\":\"npm\",\"items\":\"a b\"}]}", NULL } },
		  "a b\n", "", 0 },
		{ "net presets nom", { { "{\"v\":1,\"op\":\"net-presets\"}", "{\"ok\":true,\"presets\":[{\"name\":\"npm\",\"items\":\"a b\"}]}", NULL } },
		  "", "there is no list '@nom'", 1 },
		{ "net ask", { { NULL, NULL, NULL } }, "", "answered on a terminal", 2 },
		{ "expose x 80:8080", { { "{\"v\":1,\"op\":\"expose\",\"box\":\"x\",\"port\":80,\"host_port\":8080}",
		    "{\"ok\":true,\"exposed\":[{\"port\":80,\"host_port\":8080}]}", NULL } }, "80  127.0.0.1:8080\n", "", 0 },
		{ "expose x 80 --off", { { "{\"v\":1,\"op\":\"expose\",\"box\":\"x\",\"port\":80,\"off\":true}",
		    "{\"ok\":true,\"exposed\":[]}", NULL } }, "", "no port of 'x' is exposed", 0 },
		{ "expose x 0", { { NULL, NULL, NULL } }, "", "'0' is not PORT or PORT:HOSTPORT", 2 },
		{ "expose x --off", { { NULL, NULL, NULL } }, "", "--off needs the port", 2 },
		{ "template create debian", { { "{\"v\":1,\"op\":\"template-create\",\"name\":\"debian\",\"source\":\"debian\",\"wait\":true}",
				"{\"progress\":\"1 of 2\"}\n{\"progress\":\"2 of 2\"}\n{\"ok\":true,\"template\":{\"name\":\"debian\"}}", NULL } },
		  "debian\n", "", 0 },
		{ "template create t debian:trixie --time-limit 5m --no-wait --json",
		  { { "{\"v\":1,\"op\":\"template-create\",\"name\":\"t\",\"source\":\"debian:trixie\",\"limit_ms\":300000,\"wait\":false}",
		      "{\"ok\":true,\"template\":{\"name\":\"t\"}}", NULL } }, "{\"name\":\"t\"}\n", "", 0 },
		{ "template create t dir:/nonexistent", { { NULL, NULL, NULL } }, "", "cannot open '/nonexistent'", 1 },
		{ "template create t dir:/usr", { { "{\"v\":1,\"op\":\"template-create\",\"name\":\"t\",\"source\":\"dir:/usr\",\"wait\":true}",
						    "{\"ok\":true,\"template\":{}}", NULL } }, "t\n", "", 0 },
		{ "template ls", { { "{\"v\":1,\"op\":\"template-ls\"}",
				     "{\"ok\":true,\"templates\":[{\"name\":\"host\",\"state\":\"ready\",\"source\":\"host\",\"bytes\":2048}]}", NULL } },
		  "NAME  STATE  SOURCE  SIZE   MADE  ERROR\nhost  ready  host    2 KiB  -     -\n", "", 0 },
		{ "template ls --names", { { "{\"v\":1,\"op\":\"template-ls\"}", "{\"ok\":true,\"templates\":[{\"name\":\"host\"}]}", NULL } },
		  "host\n", "", 0 },
		{ "template info host", { { "{\"v\":1,\"op\":\"template-info\",\"name\":\"host\"}",
					    "{\"ok\":true,\"template\":{\"name\":\"host\",\"bytes\":1024}}", NULL } },
		  "name   host\nbytes  1 KiB\n", "", 0 },
		{ "template log d", { { "{\"v\":1,\"op\":\"template-log\",\"name\":\"d\"}", "{\"ok\":true,\"log\":\"a\\n\\u001b[2Jb\\n\"}", NULL } },
		  "a\n\\x1b[2Jb\n", "", 0 },
		{ "template cancel d", { { "{\"v\":1,\"op\":\"template-cancel\",\"name\":\"d\"}", "{\"ok\":true}", NULL } }, "d\n", "", 0 },
		{ "template rm d", { { NULL, NULL, NULL } }, "", "say --force", 1 },
		{ "template rm -f d", { { "{\"v\":1,\"op\":\"template-rm\",\"name\":\"d\"}", "{\"ok\":true}", NULL } }, "d\n", "", 0 },
		{ "doctor", { { "{\"v\":1,\"op\":\"doctor\"}",
				"{\"ok\":true,\"usable\":true,\"rows\":[{\"id\":\"a\",\"level\":\"weak\",\"what\":\"w\",\"fix\":\"f\"}]}", NULL } },
		  "  weak  w\n        mend it: f\nBoxes can be had here.\nLast drill: none; `cubby drill` tries what is claimed of boxes.\n", "", 0 },
		{ "doctor", { { "{\"v\":1,\"op\":\"doctor\"}",
				"{\"ok\":true,\"usable\":true,\"rows\":[],\"drill\":{\"time\":4000000000,\"version\":\"" CUBBY_VERSION
				"\",\"proven\":40,\"open\":1,\"not_proven\":2}}", NULL } },
		  "Boxes can be had here.\nLast drill: just now, 40 of 43 claims proven, 1 OPEN.\n", "", 0 },
		{ "doctor --json", { { "{\"v\":1,\"op\":\"doctor\"}", "{\"ok\":true,\"usable\":false,\"rows\":[]}", NULL } },
		  "{\"usable\":false,\"rows\":[]}\n", "", 1 },
		{ "config", { { "{\"v\":1,\"op\":\"config\"}",
				"{\"ok\":true,\"config\":{\"memory\":{\"value\":\"auto\",\"source\":\"default\"},\"pids\":{\"value\":3,\"source\":\"/c:1\"}}}",
				NULL } },
		  "SETTING  VALUE  FROM\nmemory   auto   default\npids     3      /c:1\n", "", 0 },
		{ "config --stop-daemon", { { "{\"v\":1,\"op\":\"shutdown\"}", "{\"ok\":true}", NULL } }, "", "", 0 },
		{ "config --stop-daemon --json", { { "{\"v\":1,\"op\":\"shutdown\"}", "{\"ok\":true}", NULL } }, "{\"stopped\":true}\n", "", 0 },
		{ "version", { { "{\"v\":1,\"op\":\"hello\"}", "{\"ok\":true,\"version\":\"9.9\"}", NULL } },
		  "cubby " CUBBY_VERSION "\ncubbyd 9.9 (running)\n", "", 0 },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(plays) / sizeof(plays[0]); i++)
		check_play(&plays[i]);
}

static void a_bad_daemon_is_an_error(void **state)
{
	static const struct play plays[] = {
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":1}", NULL } }, "", "neither yes nor no", 1 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "[]", NULL } }, "", "malformed", 1 },
		{ "ls", { { "{\"v\":1,\"op\":\"ls\"}", "{", NULL } }, "", "malformed", 1 },
		/* It dies: asked once more, answered then. */
		{ "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", NULL, NULL },
				  { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, "x\n", "", 0 },
		{ "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", NULL, NULL }, { "{\"v\":1,\"op\":\"ls\"}", NULL, NULL } }, "",
		  "the daemon went away", 1 },
		{ "exec x true", { { "{\"v\":1,\"op\":\"open\",\"box\":\"x\"}", "{\"ok\":true}", NULL } }, "", "no connection", 125 },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(plays) / sizeof(plays[0]); i++)
		check_play(&plays[i]);
}

#define OPENED "{\"ok\":true,\"user\":\"agent\",\"workdir\":\"/w\",\"env\":[\"B=box\"],\"mark\":5}"
#define WHY_X "{\"v\":1,\"op\":\"why\",\"box\":\"x\",\"mark\":5}"
#define NO_WHY "{\"ok\":true,\"end\":null}"

static void statuses_pass_through(void **state)
{
	static const struct act fine = { .out = "hello\n", .err = "hm\n" };
	static const struct act seven = { .exit = { .status = 7 } };
	static const struct act killed = { .exit = { .kind = BOX_SIGNALED, .status = SIGKILL } };
	static const struct act term = { .exit = { .kind = BOX_SIGNALED, .status = SIGTERM } };
	static const struct act slow = { .exit = { .kind = BOX_TIMED_OUT } };
	static const struct act missing = { .exit = { .kind = BOX_NOT_STARTED, .status = ENOENT, .text = "cannot run 'c': no such file" } };
	static const struct act plain = { .exit = { .kind = BOX_NOT_STARTED, .status = EACCES, } };
	static const struct act full = { .exit = { .kind = BOX_NOT_STARTED, .status = EAGAIN, .text = "no process" } };
	static const struct act lost = { .lost = true };
	static const struct act refused = { .fail = true };
	static const struct play plays[] = {
		{ "exec x true", { { OPEN_X, OPENED, &fine } }, "hello\n", "hm\n", 0 },
		{ "exec x false", { { OPEN_X, OPENED, &seven }, { WHY_X, NO_WHY, NULL } }, "", "", 7 },
		{ "exec x c", { { OPEN_X, OPENED, &killed }, { WHY_X, NO_WHY, NULL } }, "", "cubby: box 'x': 'c' killed (signal KILL)\n", 137 },
		{ "exec -q x c", { { OPEN_X, OPENED, &killed }, { WHY_X, NO_WHY, NULL } }, "", "", 137 },
		{ "exec x c", { { OPEN_X, OPENED, &term }, { WHY_X, NO_WHY, NULL } }, "", "", 143 },
		{ "exec x c", { { OPEN_X, OPENED, &killed },
				{ WHY_X, "{\"ok\":true,\"end\":\"oom\",\"text\":\"out of memory (limit 512 MiB)\"}", NULL } },
		  "", "cubby: box 'x': out of memory (limit 512 MiB)\n", 137 },
		{ "exec x c", { { OPEN_X, OPENED, &seven }, { WHY_X, "{\"ok\":true,\"end\":\"disk\",\"text\":\"the disk is full\"}", NULL } },
		  "", "cubby: box 'x': the disk is full\n", 7 },
		{ "exec --timeout 3s x c", { { OPEN_X, OPENED, &slow } }, "", "'c' was ended after 3s\n", 124 },
		{ "exec x c", { { OPEN_X, OPENED, &missing }, { WHY_X, NO_WHY, NULL } }, "", "cannot run 'c': no such file\n", 127 },
		{ "exec x c", { { OPEN_X, OPENED, &plain }, { WHY_X, NO_WHY, NULL } }, "", "cannot run 'c': Permission denied\n", 126 },
		{ "exec x c", { { OPEN_X, OPENED, &full }, { WHY_X, "{\"ok\":true,\"end\":\"pids\",\"text\":\"too many processes\"}", NULL } },
		  "", "too many processes\n", 125 },
		{ "exec x c", { { OPEN_X, OPENED, &lost }, { WHY_X, "{\"ok\":true,\"end\":\"removed\",\"text\":\"it was removed\"}", NULL } },
		  "", "cubby: box 'x': it was removed\n", 137 },
		{ "exec x c", { { OPEN_X, OPENED, &lost }, { WHY_X, NO_WHY, NULL, true } }, "", NULL, 125 },
		{ "exec x c", { { OPEN_X, OPENED, &refused } }, "", "there is no user", 125 },
		{ "exec x c", { { OPEN_X, "{\"error\":\"there is no box 'x'\",\"why\":\"no-such-box\"}", NULL } }, "",
		  "cubby: there is no box 'x'\n", 125 },
		{ "exec --json x c", { { OPEN_X, OPENED, &seven }, { WHY_X, NO_WHY, NULL } }, "",
		  "{\"exit\":7,\"signal\":null,\"end\":\"exited\",\"text\":null,\"status\":7,", 7 },
		{ "exec --json x c", { { OPEN_X, OPENED, &killed }, { WHY_X, "{\"ok\":true,\"end\":\"oom\",\"text\":\"t\"}", NULL } }, "",
		  "{\"exit\":null,\"signal\":9,\"end\":\"oom\",\"text\":\"t\",\"status\":137,", 137 },
		{ "exec -d x c", { { OPEN_X, OPENED, &fine } }, "", "cubby: box 'x': started as process 7\n", 0 },
		{ "exec -d -q x c", { { OPEN_X, OPENED, &fine } }, "", "", 0 },
		{ "exec -d --json x c", { { OPEN_X, OPENED, &fine } }, "",
		  "{\"exit\":null,\"signal\":null,\"end\":\"started\",\"text\":null,\"pid\":7,\"status\":0,", 0 },
		{ "exec -t -T x c", { { NULL, NULL, NULL } }, "", "contradict", 2 },
		{ "exec --timeout soon x c", { { NULL, NULL, NULL } }, "", "not a duration", 2 },
		{ "exec --workdir y x c", { { NULL, NULL, NULL } }, "", "not an absolute path", 2 },
		{ "exec --env NOPE x c", { { NULL, NULL, NULL } }, "", "there is no variable 'NOPE'", 2 },
		{ "run --env NOPE c", { { NULL, NULL, NULL } }, "", "there is no variable 'NOPE'", 2 },
		{ "run --name A c", { { NULL, NULL, NULL } }, "", "'A' is not a name", 2 },
		{ "run --memory x c", { { NULL, NULL, NULL } }, "", "'x' is not a size", 2 },
		{ "run --host-port 1,2 c", { { NULL, NULL, NULL } }, "", "--host-port: '1,2' is not a port", 2 },
		{ "run --mount /nonexistent c", { { NULL, NULL, NULL } }, "", "cannot open '/nonexistent'", 125 },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(plays) / sizeof(plays[0]); i++)
		check_play(&plays[i]);
}

static void what_the_box_is_asked(void **state)
{
	static const struct act fine = { 0 };
	static const struct {
		struct play play;
		const char *exec;
	} t[] = {
		{ { "exec x id -u", { { OPEN_X, OPENED, &fine } }, "", "", 0 }, "id -u | TERM=xterm B=box | agent /w 011 0" },
		{ { "exec -u root -w / -e A=1 -e B=2 -n --timeout 1m x id", { { OPEN_X, OPENED, &fine } }, "", "", 0 },
		  "id | TERM=xterm B=2 A=1 | root / 011 60000" },
		{ { "exec -d x id", { { OPEN_X, OPENED, &fine } }, "", "box 'x': started as process 7", 0 }, "id | TERM=xterm B=box | agent /w 000 0 detach" },
		{ { "shell x", { { OPEN_X, "{\"ok\":true}", &fine } }, "", "", 0 },
		  "/bin/sh -c [ -x \"$SHELL\" ] || SHELL=/bin/sh; exec \"$SHELL\" -l | TERM=xterm | - - 011 0" },
		{ { "run true", { { "{\"v\":1,\"op\":\"new\",\"run\":true,\"tz\":\"UTC\"}",
				    "{\"ok\":true,\"box\":{\"name\":\"r1\",\"user\":\"agent\"},\"mark\":0}", &fine } }, "", "", 0 },
		  "true | TERM=xterm | agent - 011 0" },
		{ { "run --name r --memory 1M -u 0 -w /t -e A=1 -- true",
		    { { "{\"v\":1,\"op\":\"new\",\"run\":true,\"name\":\"r\",\"limits\":{\"memory\":1048576},\"user\":\"0\",\"workdir\":\"/t\",\"tz\":\"UTC\"}",
			"{\"ok\":true,\"box\":{\"name\":\"r\"}}", &fine } }, "", "", 0 },
		  "true | TERM=xterm A=1 | 0 /t 011 0" },
		{ { "run --keep -e A=1 true",
		    { { "{\"v\":1,\"op\":\"new\",\"tz\":\"UTC\",\"env\":[\"A=1\"]}", "{\"ok\":true,\"box\":{\"name\":\"x\"}}", NULL },
		      { OPEN_X, OPENED, &fine } }, "", "the box is kept: x", 0 },
		  "true | TERM=xterm B=box A=1 | agent /w 011 0" },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		check_play(&t[i].play);
		if (strcmp(seen_exec, t[i].exec) != 0)
			fail_msg("'%s' runs '%s', not '%s'", t[i].play.line, seen_exec, t[i].exec);
	}
}

static void spoil_closed(void)
{
	(void)close(0);
	(void)close(1);
	(void)close(2);
}

static void spoil_few_fds(void)
{
	struct rlimit r = { .rlim_cur = 20, .rlim_max = 20 };

	(void)setrlimit(RLIMIT_NOFILE, &r);
}

static void spoil_cwd(void)
{
	char gone[] = "/tmp/cubby-gone-XXXXXX";

	if (!mkdtemp(gone) || chdir(gone) < 0 || rmdir(gone) < 0)
		_exit(97);
}

static void spoil_rest(void)
{
	(void)umask(0777);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_IGN);
}

/* CRSH-10 of the matrix of bad surroundings: the same question, the same answer. */
static void in_bad_surroundings(void **state)
{
	static void (*const spoils[])(void) = { NULL, spoil_closed, spoil_few_fds, spoil_cwd, spoil_rest };
	static char *const empty[] = { NULL };
	static const struct act fine = { .out = "hello\n" };
	static const struct play plays[] = {
		{ "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, "x\n", "", 0 },
		{ "exec x true", { { OPEN_X, OPENED, &fine } }, "hello\n", "", 0 },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++)
		for (size_t k = 0; k < 2; k++) {
			OWN_FD listener = listen_in(dir);
			char out[4096], err[4096];
			struct run r;
			int status;

			start(&r, plays[k].line, FD_NONE, FD_NONE, FD_NONE, spoils[i], empty);
			serve(listener, &plays[k]);
			status = wait_end(&r);
			slurp(&r.out, out, sizeof(out));
			slurp(&r.err, err, sizeof(err));
			fd_close(&listener);
			remove_socket();
			if (status != 0)
				fail_msg("spoiled %zu: exit %d, '%s'", i, status, err);
			assert_string_equal(out, spoils[i] == spoil_closed ? "" : plays[k].out);
			assert_string_equal(err, "");
		}
}

/* Output that can't be written is a failure, not a success. */
static void a_full_disk_is_told(void **state)
{
	static const struct play play = { "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } },
					  NULL, NULL, 1 };
	OWN_FD listener = FD_NONE, full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	char err[4096];
	struct run r;

	dir = leak_dir();
	listener = listen_in(dir);
	start(&r, play.line, FD_NONE, full, FD_NONE, NULL, NULL);
	serve(listener, &play);
	assert_int_equal(wait_end(&r), 1);
	slurp(&r.err, err, sizeof(err));
	assert_non_null(strstr(err, "cannot write the output: No space left on device"));
	remove_socket();
}

/* On a terminal: a question, and only "y" is yes. */
static void asks_on_a_terminal(void **state)
{
	static const struct {
		const char *typed;
		struct play play;
	} t[] = {
		{ "n\n", { "rm a b", { { NULL, NULL, NULL } }, NULL, NULL, 1 } },
		{ "\n", { "rm a b", { { NULL, NULL, NULL } }, NULL, NULL, 1 } },
		{ "\004", { "rm a b", { { NULL, NULL, NULL } }, NULL, NULL, 1 } },
		{ "y\n", { "rm a b", { { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\",\"force\":true}", "{\"ok\":true}", NULL },
				       { "{\"v\":1,\"op\":\"rm\",\"box\":\"b\",\"force\":true}", "{\"ok\":true}", NULL } }, NULL, NULL, 0 } },
		{ "y\n", { "rm a", { { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}", "{\"error\":\"it runs\",\"why\":\"wrong-state\"}", NULL },
				     { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\",\"force\":true}", "{\"ok\":true}", NULL } }, NULL, NULL, 0 } },
		{ "n\n", { "rm a", { { "{\"v\":1,\"op\":\"rm\",\"box\":\"a\"}", "{\"error\":\"it runs\",\"why\":\"wrong-state\"}", NULL } },
			   NULL, NULL, 1 } },
		{ "q", { "top", { { "{\"v\":1,\"op\":\"top\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, NULL, NULL, 0 } },
		{ "\003", { "top", { { "{\"v\":1,\"op\":\"top\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } }, NULL, NULL, 0 } },
	};

	dir = leak_dir();
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_FD listener = listen_in(dir), master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), slave = FD_NONE;
		char name[64], screen[8192];
		struct run r;
		ssize_t n;
		int status;

		assert_true(master >= 0);
		assert_int_equal(grantpt(master), 0);
		assert_int_equal(unlockpt(master), 0);
		assert_int_equal(ptsname_r(master, name, sizeof(name)), 0);
		slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
		assert_true(slave >= 0);
		start(&r, t[i].play.line, slave, slave, slave, NULL, NULL);
		/* `top` switches to raw mode first, which throws nothing away that comes later than its first screen. */
		if (strcmp(t[i].play.line, "top") == 0)
			serve(listener, &t[i].play);
		if (strcmp(t[i].play.line, "top") == 0) {
			n = read(master, screen, sizeof(screen) - 1);
			assert_true(n > 0);
		}
		assert_int_equal(fd_write_all(master, t[i].typed, strlen(t[i].typed)), 0);
		if (strcmp(t[i].play.line, "top") != 0)
			serve(listener, &t[i].play);
		status = wait_end(&r);
		if (status != t[i].play.status)
			fail_msg("'%s' with %zu: exit %d, not %d", t[i].play.line, i, status, t[i].play.status);
		fd_close(&slave);
		fd_close(&listener);
		remove_socket();
	}
}

/* Nobody listens: with --no-start that is said, whatever lies there. */
static void nobody_listens(void **state)
{
	static const struct play play = { "ls --no-start", { { NULL, NULL, NULL } }, "", "no daemon runs", 1 };
	char out[4096], err[4096];
	OWN_FD dead = FD_NONE;

	dir = leak_dir();
	for (int i = 0; i < 2; i++) {
		struct run r;

		/* Second time round: the file of a socket nobody listens on any more. */
		if (i == 1) {
			dead = listen_in(dir);
			fd_close(&dead);
		}
		start(&r, play.line, FD_NONE, FD_NONE, FD_NONE, NULL, NULL);
		assert_int_equal(wait_end(&r), play.status);
		slurp(&r.out, out, sizeof(out));
		slurp(&r.err, err, sizeof(err));
		assert_string_equal(out, "");
		assert_non_null(strstr(err, play.err));
	}
	remove_socket();
}

#define A_USER 4242

/* In the child: the system's run directory and the user's, made of directories of the test; then the user. */
static void be_a_user(void)
{
	char sys[300], user[300];

	(void)snprintf(sys, sizeof(sys), "%s/sys", dir);
	(void)snprintf(user, sizeof(user), "%s/user", dir);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("cubby-test", "/run", "tmpfs", 0, "mode=755") < 0 || mkdir("/run/cubby", 0755) < 0 || mkdir("/run/me", 0755) < 0 ||
	    mount(sys, "/run/cubby", NULL, MS_BIND, NULL) < 0 || mount(user, "/run/me", NULL, MS_BIND, NULL) < 0)
		_exit(97);
	if (setgroups(0, NULL) < 0 || setgid(A_USER) < 0 || setuid(A_USER) < 0)
		_exit(96);
}

/*
 * A user asks the system's daemon. Does that refuse the wish alone, that is the answer; does it refuse the user, the
 * user's own daemon is asked. A directory of somebody else is never entered.
 */
static void a_user_who_is_not_admitted(void **state)
{
#define DENIED "{\"error\":\"not for you\",\"why\":\"denied\",\"code\":13}"
	static char *const env[] = { (char *)"XDG_RUNTIME_DIR=/run/me", NULL };
	static const struct play wish = { "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", DENIED, NULL },
							  { "{\"v\":1,\"op\":\"hello\"}", "{\"ok\":true}", NULL } }, "", "not for you", 1 };
	static const struct play user = { "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", DENIED, NULL },
							  { "{\"v\":1,\"op\":\"hello\"}", DENIED, NULL } }, "x\n", "", 0 };
	static const struct play own = { "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } },
					 "x\n", "", 0 };
	char sys[256], me[256], mine[300], out[4096], err[4096], path[400];
	OWN_FD listener = FD_NONE, own_listener = FD_NONE;
	struct run r;

	if (geteuid() != 0)
		skip_because("only root can become an ordinary user");
	dir = leak_dir();
	(void)snprintf(sys, sizeof(sys), "%s/sys", dir);
	(void)snprintf(me, sizeof(me), "%s/user", dir);
	(void)snprintf(mine, sizeof(mine), "%s/cubby", me);
	assert_int_equal(mkdir(sys, 0755), 0);
	assert_int_equal(mkdir(me, 0755), 0);
	assert_int_equal(mkdir(mine, 0700), 0);
	assert_int_equal(chown(mine, A_USER, A_USER), 0);
	listener = listen_in(sys);
	own_listener = listen_in(mine);
	(void)snprintf(path, sizeof(path), "%s/cubbyd.sock", sys);
	assert_int_equal(chmod(path, 0666), 0);
	(void)snprintf(path, sizeof(path), "%s/cubbyd.sock", mine);
	assert_int_equal(chmod(path, 0666), 0);
	own_way = true;
	for (int i = 0; i < 3; i++) {
		int status;

		/* The third time the user's directory is open to others. */
		if (i == 2)
			assert_int_equal(chmod(mine, 0770), 0);
		start(&r, "ls --names", FD_NONE, FD_NONE, FD_NONE, be_a_user, env);
		serve(listener, i == 0 ? &wish : &user);
		if (i == 1)
			serve(own_listener, &own);
		status = wait_end(&r);
		slurp(&r.out, out, sizeof(out));
		slurp(&r.err, err, sizeof(err));
		if (i == 1)
			assert_string_equal(err, "");
		else
			assert_non_null(strstr(err, i == 0 ? "not for you" : "not a directory of yours"));
		assert_int_equal(status, i == 1 ? 0 : 1);
		assert_string_equal(out, i == 1 ? "x\n" : "");
	}
	own_way = false;
	fd_close(&listener);
	fd_close(&own_listener);
	assert_int_equal(leak_dir_clear(), 0);
}

static void put_script(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(close(fd), 0);
}

static void copy_program(const char *to)
{
	OWN_FD in = open(program, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	char chunk[65536];
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, chunk, sizeof(chunk))) > 0)
		assert_int_equal(fd_write_all(out, chunk, (size_t)n), 0);
	assert_int_equal(n, 0);
}

static void wait_file(const char *path, char *ret, size_t room)
{
	int64_t deadline = now_ms() + DEADLINE_MS;

	while (file_read_small(AT_FDCWD, path, ret, room) <= 0) {
		struct timespec pause = { .tv_nsec = 1000000 };

		assert_true(now_ms() < deadline);
		(void)nanosleep(&pause, NULL);
	}
}

/* The daemon is the program beside this one. It gets no secret and no descriptor, and what it complains about is told. */
static void starts_the_daemon(void **state)
{
	static const struct play play = { "ls --names", { { "{\"v\":1,\"op\":\"ls\"}", "{\"ok\":true,\"boxes\":[" BOX_X "]}", NULL } },
					  NULL, NULL, 0 };
	char real[4096], here[256], daemon[256], seen[256], text[8192], script[1024];
	OWN_FD listener = FD_NONE;
	struct run r;

	dir = leak_dir();
	(void)snprintf(here, sizeof(here), "%s/cubby", dir);
	(void)snprintf(daemon, sizeof(daemon), "%s/cubbyd", dir);
	(void)snprintf(seen, sizeof(seen), "%s/seen", dir);
	copy_program(here);
	memcpy(real, program, sizeof(real));
	(void)snprintf(program, sizeof(program), "%s", here);

	put_script(daemon, "#!/bin/sh\necho 'cubbyd: the state directory is full' >&2\nexit 1\n");
	start(&r, "ls", FD_NONE, FD_NONE, FD_NONE, NULL, NULL);
	assert_int_equal(wait_end(&r), 1);
	slurp(&r.out, text, sizeof(text));
	assert_string_equal(text, "");
	slurp(&r.err, text, sizeof(text));
	assert_string_equal(text, "cubby: the daemon does not start: the state directory is full\n");

	/* The loser of two that start at once leaves without a word; the winner listens a little later. */
	(void)snprintf(script, sizeof(script),
		       "#!/bin/sh\n{ echo \"args $*\"; echo \"cwd $PWD\"; env; ls -l /proc/$$/fd; } > %s.new\nmv %s.new %s\nexit 0\n", seen, seen,
		       seen);
	put_script(daemon, script);
	start(&r, "ls --names --state-dir /s --config /dev/null", FD_NONE, FD_NONE, FD_NONE, NULL, NULL);
	wait_file(seen, text, sizeof(text));
	listener = listen_in(dir);
	serve(listener, &play);
	assert_int_equal(wait_end(&r), 0);
	fd_close(&r.err);
	(void)snprintf(script, sizeof(script), "args --run-dir %s --state-dir /s --config /dev/null --ready-fd 3\ncwd /\n", dir);
	assert_memory_equal(text, script, strlen(script));
	assert_null(strstr(text, "SECRET"));
	assert_non_null(strstr(text, "HOME=/nonexistent"));
	assert_non_null(strstr(text, " 3 -> pipe:"));
	assert_null(strstr(text, "memfd:"));	/* the caller's output */
	slurp(&r.out, text, sizeof(text));
	assert_string_equal(text, "x\n");

	memcpy(program, real, sizeof(program));
	fd_close(&listener);
	assert_int_equal(leak_dir_clear(), 0);
}

#define LEAK_TEST(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEAK_TEST(each_command_asks_its_question),
		LEAK_TEST(a_bad_daemon_is_an_error),
		LEAK_TEST(statuses_pass_through),
		LEAK_TEST(what_the_box_is_asked),
		LEAK_TEST(in_bad_surroundings),
		LEAK_TEST(a_full_disk_is_told),
		LEAK_TEST(asks_on_a_terminal),
		LEAK_TEST(nobody_listens),
		LEAK_TEST(a_user_who_is_not_admitted),
		LEAK_TEST(starts_the_daemon),
	};

	return cmocka_run_group_tests(tests, find_program, NULL);
}
