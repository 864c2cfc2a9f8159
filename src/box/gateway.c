/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/ctl.h"
#include "net/proxyurl.h"

/* Whoever waits for a gateway that isn't ready after so long is told so. */
#define READY_MS 10000
/* One that lived so long was a good one: the next is started at once. */
#define GOOD_MS 10000
#define AGAIN_MS 100
#define AGAIN_MAX_MS 10000
/* What it may leave unread, before it counts as one that hangs. */
#define UNREAD_MAX (64u << 20)
#define RESOLV_MAX 65536u
#define REREAD_MS 100
#define FRAMES_MAX 256	/* of one turn of the loop */
#define LEAVE_MS 2000

static void gateway_died(void *arg, uint32_t events);

/* ---------------------------------------------------------------- out */

static void out_drop(struct net *n)
{
	while (n->out) {
		struct out_msg *m = n->out;

		n->out = m->next;
		fd_close(&m->fd);
		free(m->text);
		free(m);
	}
	n->out_tail = &n->out;
	n->out_bytes = 0;
}

static void out_flush(struct net *n)
{
	while (n->out) {
		struct out_msg *m = n->out;
		ssize_t k = fd_send(n->ctl, m->text + m->at, m->len - m->at, &m->fd, m->fd >= 0 ? 1 : 0, MSG_DONTWAIT);

		if (k < 0)
			break;	/* full, or gone: its end is seen elsewhere */
		m->at += (size_t)k;
		fd_close(&m->fd);
		if (m->at < m->len)
			continue;
		n->out = m->next;
		if (!n->out)
			n->out_tail = &n->out;
		n->out_bytes -= m->len;
		free(m->text);
		free(m);
	}
	(void)loop_change(n->d->loop, &n->ctl_io, EPOLLIN | (n->out ? EPOLLOUT : 0));
}

void gateway_send(struct net *n, struct buf *text, int fd)
{
	struct out_msg *m = NULL;
	size_t len = text->len;

	if (n->pid > 0 && !buf_error(text) && len > 0)
		m = calloc(1, sizeof(*m));
	if (m)
		m->text = malloc(len + MSG_HEAD);
	if (!m || !m->text) {
		free(m);
		buf_done(text);
		return;
	}
	for (int i = 0; i < MSG_HEAD; i++)
		m->text[i] = (char)(uint8_t)(len >> (8 * i));
	memcpy(m->text + MSG_HEAD, text->data, len);
	buf_done(text);
	m->len = len + MSG_HEAD;
	m->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : FD_NONE;
	*n->out_tail = m;
	n->out_tail = &m->next;
	n->out_bytes += m->len;
	if (n->out_bytes > UNREAD_MAX) {
		/* It doesn't read any more: its end is noticed, and the next one told everything. */
		(void)kill(n->pid, SIGKILL);
		return;
	}
	out_flush(n);
}

/* ---------------------------------------------------------------- the configuration */

/* *ret_from: the variable that names it, or NULL. */
static const char *proxy(const struct conf *c, const char **ret_from)
{
	static const char *const names[] = {
		"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy",
	};
	const char *text = conf_text(c, CONF_PROXY);

	*ret_from = NULL;
	if (strcmp(text, "none") == 0 || !*text)
		return "";
	if (strcmp(text, "env") != 0)
		return text;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *v = getenv(names[i]);

		if (v && *v) {
			*ret_from = names[i];
			return v;
		}
	}
	return "";
}

static void put_lab(struct json_out *o, const char *list)
{
	char text[CONF_TEXT_MAX], *rest = text, *word;

	(void)snprintf(text, sizeof(text), "%s", list);
	json_put_arr(o, "lab_public");
	while ((word = strsep(&rest, ", \t")))
		if (*word)
			json_put_str(o, NULL, word);
	json_end_arr(o);
}

void gateway_configure(struct net *n)
{
	const struct conf *c = &n->d->conf;
	struct buf text = BUF_INIT(MSG_MAX);
	OWN_MEM char *resolv = malloc(RESOLV_MAX);
	const char *from, *url;
	char shown[256];
	struct proxy p;
	struct json_out o;

	if (!resolv || n->pid <= 0)
		return;
	url = proxy(c, &from);
	if (from && proxy_parse(url, &p) < 0 && !n->proxy_problem[0]) {
		proxy_hide(url, shown, sizeof(shown));
		(void)snprintf(n->proxy_problem, sizeof(n->proxy_problem), "%s is '%.100s', and no connection of a box goes out: a proxy "
			       "is http://ADDRESS:PORT, by its address (proxy in cubby.conf)", from, shown);
		db_event(n->d->db, NULL, NULL, 0, "network", n->proxy_problem);
	}
	if (file_read_small(AT_FDCWD, "/etc/resolv.conf", resolv, RESOLV_MAX) < 0)
		resolv[0] = '\0';
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "config");
	json_put_str(&o, "resolv", resolv);
	put_lab(&o, conf_text(c, CONF_NET_LAB_PUBLIC));
	json_put_str(&o, "proxy", url);
	json_put_str(&o, "presets", n->presets_text ? n->presets_text : "");
	json_put_int(&o, "ask_ms", (int64_t)conf_num(c, CONF_ASK_SECONDS) * 1000);
	json_end_obj(&o);
	if (buf_error(&text) || (n->config && strcmp(n->config, text.data) == 0)) {
		buf_done(&text);
		return;
	}
	free(n->config);
	n->config = strdup(text.data);
	gateway_send(n, &text, FD_NONE);
}

static void reread(void *arg)
{
	gateway_configure(arg);
}

/*
 * resolv.conf is replaced, rewritten or a link to what another program replaces (resolv.conf(5), systemd-resolved(8)): what holds the
 * name, what holds the file, and the file itself are watched.
 */
static void watch_again(struct net *n)
{
	const uint32_t dir = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE | IN_ONLYDIR;
	char real[4096];

	(void)inotify_add_watch(n->watch, "/etc", dir);
	(void)inotify_add_watch(n->watch, "/etc/resolv.conf", IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF);
	if (realpath("/etc/resolv.conf", real)) {
		*strrchr(real, '/') = '\0';
		if (real[0] && strcmp(real, "/etc") != 0)
			(void)inotify_add_watch(n->watch, real, dir);
	}
}

static void resolv_changed(void *arg, uint32_t events)
{
	struct net *n = arg;
	char bytes[4096];
	bool ours = false;
	ssize_t k;

	(void)events;
	while ((k = read(n->watch, bytes, sizeof(bytes))) > 0)
		for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= k;) {
			struct inotify_event ev;

			memcpy(&ev, bytes + at, sizeof(ev));
			ours = ours || ev.len == 0 || strstr(bytes + at + sizeof(ev), "resolv.conf");
			at += (ssize_t)sizeof(ev) + (ssize_t)ev.len;
		}
	if (!ours)
		return;
	watch_again(n);
	loop_timer_set(n->d->loop, &n->reread, REREAD_MS, reread, n);
}

static void watch_begin(struct net *n)
{
	n->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	/* Without a watch the configuration is what it was at the start of the gateway. */
	if (n->watch < 0 || loop_add(n->d->loop, &n->watch_io, n->watch, EPOLLIN, resolv_changed, n) < 0)
		return;
	watch_again(n);
}

/* ---------------------------------------------------------------- its life */

static void tell_waiters(struct net *n, int r, const struct err *e)
{
	struct waiter *w = n->waiters;

	n->waiters = NULL;
	while (w) {
		struct waiter *next = w->next;

		w->fn(w->arg, r, e);
		free(w);
		w = next;
	}
}

static void not_in_time(void *arg)
{
	struct net *n = arg;
	struct err e = ERR_INIT;

	(void)err_why(&e, WHY_TIMEOUT, -ETIMEDOUT, "the gateway of the boxes' network did not get ready in %d s%s%s", READY_MS / 1000,
		      n->death[0] ? ": " : "", n->death);
	tell_waiters(n, -ETIMEDOUT, &e);
}

void gateway_want(struct net *n, void (*fn)(void *arg, int r, const struct err *e), void *arg)
{
	struct err e = ERR_INIT;
	struct waiter *w;

	if (n->ns < 0) {
		fn(arg, err_why(&e, WHY_UNSUPPORTED, -EOPNOTSUPP, "no box can have a network here: %s", n->why), &e);
		return;
	}
	if (n->ready) {
		fn(arg, 0, NULL);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		fn(arg, err_set(&e, -ENOMEM, "cannot wait for the gateway"), &e);
		return;
	}
	*w = (struct waiter){ .next = n->waiters, .fn = fn, .arg = arg };
	n->waiters = w;
	loop_timer_set(n->d->loop, &n->patience, READY_MS, not_in_time, n);
	gateway_start(n);
}

static void heard_ready(struct net *n, const struct json *m)
{
	const struct json *grade = json_get(m, "grade");
	OWN_BUF text = BUF_INIT(65536);
	struct json_out o;

	json_out_init(&o, &text);
	if (grade && grade->type == JSON_ARRAY)
		json_put_value(&o, NULL, grade);
	free(n->grade);
	n->grade = !buf_error(&text) && text.len > 0 ? strdup(text.data) : NULL;
	n->ready = true;
	n->death[0] = '\0';
	loop_timer_stop(n->d->loop, &n->patience);
	tell_waiters(n, 0, NULL);
}

static void heard(struct net *n, const struct json *m)
{
	const char *ev = json_str(m, "ev", "");

	if (strcmp(ev, "ready") == 0)
		heard_ready(n, m);
	else if (strcmp(ev, "log-full") == 0)
		netlog_rotate(n);
	else if (strcmp(ev, "dial") == 0)
		expose_dial(n, m);
	else
		net_heard(n, ev, m);
}

static void ctl_ready(void *arg, uint32_t events)
{
	struct net *n = arg;
	pid_t pid = n->pid;

	if (events & EPOLLOUT)
		out_flush(n);
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	if (msg_in_read(&n->in, n->ctl) < 0 || n->in.ended) {
		/* Without its socket it is of no use; what comes next is its end. */
		loop_del(n->d->loop, &n->ctl_io);
		(void)kill(n->pid, SIGKILL);
		return;
	}
	for (int i = 0; i < FRAMES_MAX && n->pid == pid && pid > 0; i++) {
		OWN_JSON doc = { 0 };
		int fds[FD_PASS_MAX], r;
		size_t nfds = 0;

		r = msg_in_take(&n->in, &doc, fds, FD_PASS_MAX, &nfds);
		for (size_t k = 0; k < nfds; k++)
			fd_close(&fds[k]);	/* it has nothing to give */
		if (r == 0)
			return;
		if (r < 0) {
			(void)snprintf(n->death, sizeof(n->death), "it spoke out of turn");
			loop_del(n->d->loop, &n->ctl_io);
			(void)kill(n->pid, SIGKILL);
			return;
		}
		heard(n, doc.root);
	}
}

/* An id that nobody has: right behind the ranges of the boxes. 0: a user's own daemon, whose gateway keeps its ids. */
static uint32_t own_id(const struct daemon *d)
{
	return d->rootless ? 0 : d->id_base + d->id_slots * BOX_IDS;
}

static int spawn(struct net *n, struct err *e)
{
	char uid[16], gid[16];
	char *argv[] = { (char *)"cubby-gateway", (char *)"--uid", uid, (char *)"--gid", gid, NULL };
	char *env[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	OWN_FD theirs = FD_NONE, ns = FD_NONE, err_end = FD_NONE;
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t none, all;
	int pair[2], said[2], r;
	uint32_t id = own_id(n->d);
	pid_t pid;

	(void)snprintf(uid, sizeof(uid), "%u", id);
	(void)snprintf(gid, sizeof(gid), "%u", id);
	if (id == 0)
		argv[1] = NULL;
	r = fd_socketpair(SOCK_STREAM, pair);
	if (r < 0)
		return err_set(e, r, "cannot make the gateway's socket");
	n->ctl = pair[0];
	(void)fd_set_nonblock(n->ctl, true);
	/* Above what they become: dup2(2) of a descriptor to itself would leave it close-on-exec. */
	theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, 10);
	(void)close(pair[1]);
	ns = fcntl(n->ns, F_DUPFD_CLOEXEC, 10);
	if (pipe2(said, O_CLOEXEC | O_NONBLOCK) == 0) {
		n->said = said[0];
		err_end = fcntl(said[1], F_DUPFD_CLOEXEC, 10);
		(void)close(said[1]);
	}
	if (theirs < 0 || ns < 0 || err_end < 0)
		return err_set(e, -errno, "cannot hand descriptors to the gateway");
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawnattr_init(&at);
	(void)posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawnattr_setsigmask(&at, &none);
	(void)posix_spawnattr_setsigdefault(&at, &all);
	r = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDWR, 0);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, 0, 1);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, err_end, 2);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, theirs, GATEWAY_CTL_FD);
	r = r ? r : posix_spawn_file_actions_adddup2(&fa, ns, GATEWAY_NS_FD);
	r = r ? r : posix_spawn(&pid, n->program, &fa, &at, argv, env);
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)posix_spawnattr_destroy(&at);
	if (r != 0)
		return err_set(e, -r, "cannot start '%s'", n->program);
	n->pid = pid;
	n->born = clock_ms();
	n->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	r = n->pidfd < 0 ? -errno : loop_add(n->d->loop, &n->exit_io, n->pidfd, EPOLLIN, gateway_died, n);
	if (r == 0)
		r = loop_add(n->d->loop, &n->ctl_io, n->ctl, EPOLLIN, ctl_ready, n);
	if (r < 0) {
		(void)kill(pid, SIGKILL);
		return err_set(e, r, "cannot watch the gateway");
	}
	return 0;
}

/* Its process is gone, or was never there: nothing of it is left here. */
static void forget(struct net *n)
{
	int status = 0;

	if (n->pid > 0 && waitpid(n->pid, &status, 0) == n->pid && WIFSIGNALED(status) && !n->death[0])
		(void)snprintf(n->death, sizeof(n->death), "it was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	n->pid = 0;
	n->ready = false;
	loop_del(n->d->loop, &n->exit_io);
	loop_del(n->d->loop, &n->ctl_io);
	loop_del(n->d->loop, &n->watch_io);
	loop_timer_stop(n->d->loop, &n->reread);
	fd_close(&n->pidfd);
	fd_close(&n->ctl);
	fd_close(&n->said);
	fd_close(&n->watch);
	msg_in_done(&n->in);
	out_drop(n);
	free(n->config);
	n->config = NULL;
}

static void start_again(void *arg)
{
	struct net *n = arg;

	if (n->pid == 0 && (n->waiters || net_any(n)))
		gateway_start(n);
}

/* What it said last explains its end best. */
static void last_words(struct net *n)
{
	char text[512];
	ssize_t k = n->said >= 0 ? read(n->said, text, sizeof(text) - 1) : 0;

	if (k <= 0)
		return;
	text[k] = '\0';
	for (ssize_t i = 0; i < k; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			text[i] = ' ';
	for (; k > 0 && text[k - 1] == ' '; k--)
		text[k - 1] = '\0';
	(void)snprintf(n->death, sizeof(n->death), "%s", text);
}

static void ended(struct net *n)
{
	bool good = clock_ms() - n->born > GOOD_MS, was_ready = n->ready;
	struct err e = ERR_INIT;
	uint64_t in;

	last_words(n);
	forget(n);
	if (!n->death[0])
		(void)snprintf(n->death, sizeof(n->death), "it ended without a word");
	net_asked_gone(n);
	n->deaths = good ? 0 : n->deaths + 1;
	in = n->deaths < 2 ? 0 : AGAIN_MS << (n->deaths < 9 ? n->deaths - 2 : 7);
	if (in > AGAIN_MAX_MS)
		in = AGAIN_MAX_MS;
	if (!n->d->leaving)
		db_event(n->d->db, NULL, NULL, 0, "gateway", n->death);
	/* One that never got ready won't the next time either: nobody is kept waiting for that. */
	if (n->waiters && !was_ready && n->deaths >= 2) {
		(void)err_why(&e, WHY_INTERNAL, -EIO, "the gateway of the boxes' network doesn't start: %s", n->death);
		loop_timer_stop(n->d->loop, &n->patience);
		tell_waiters(n, -EIO, &e);
	}
	loop_timer_set(n->d->loop, &n->again, in, start_again, n);
}

static void gateway_died(void *arg, uint32_t events)
{
	(void)events;
	ended(arg);
}

bool gateway_reap(struct net *n, pid_t pid)
{
	return n && n->pid == pid;	/* its watcher is next in the loop */
}

void gateway_start(struct net *n)
{
	struct err e = ERR_INIT;

	if (n->pid > 0 || n->ns < 0 || n->d->leaving || n->again.link)
		return;
	msg_in_init(&n->in, 1u << 20);
	if (spawn(n, &e) < 0) {
		(void)snprintf(n->death, sizeof(n->death), "%s", e.text);
		n->born = clock_ms();
		ended(n);
		return;
	}
	watch_begin(n);
	gateway_configure(n);
	if (n->log_fd < 0 && netlog_open(n, &e) < 0)
		db_event(n->d->db, NULL, NULL, 0, "net-log", e.text);
	if (n->log_fd >= 0) {
		struct buf text = BUF_INIT(64);

		(void)buf_puts(&text, "{\"op\":\"log\"}");
		gateway_send(n, &text, n->log_fd);
	}
	net_tell_all(n);
}

void net_free(struct net *n)
{
	if (!n)
		return;
	if (n->pid > 0) {
		siginfo_t si = { 0 };

		/* It leaves when its socket is closed; what it has to write down gets a moment. */
		loop_del(n->d->loop, &n->ctl_io);
		fd_close(&n->ctl);
		for (int i = 0; i < LEAVE_MS / 10 && si.si_pid == 0; i++) {
			if (waitid(P_PID, (id_t)n->pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0)
				break;
			if (si.si_pid == 0)
				(void)usleep(10000);
		}
		(void)kill(n->pid, SIGKILL);
		forget(n);
	}
	while (n->waiters) {
		struct waiter *w = n->waiters;

		n->waiters = w->next;
		free(w);
	}
	loop_timer_stop(n->d->loop, &n->again);
	loop_timer_stop(n->d->loop, &n->patience);
	loop_timer_stop(n->d->loop, &n->asked_late);
	while (n->questions) {
		struct question *q = n->questions;

		n->questions = q->next;
		free(q);
	}
	net_asked_gone(n);
	presets_free(n->presets);
	fd_close(&n->log_fd);
	free(n->presets_text);
	free(n->policy);
	free(n->grade);
	free(n->config);
	n->d->net = NULL;
	free(n);
}
