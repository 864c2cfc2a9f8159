/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* What a client may have in flight: a request with its environment; and what it may leave unread. */
#define REQUEST_MAX (4u << 20)
#define UNREAD_MAX (32u << 20)
/* Connections that only root gets. */
#define CONNS_ROOT 64u
/* Who may not use the daemon is told so, and gets no more than that takes: so many at once, so much memory, so long. */
#define STRANGERS_MAX 32u
#define STRANGER_BYTES 4096u
#define STRANGER_MS 5000
/* With so much of it unread, no further request is worked on. */
#define BACKLOG_MAX (1u << 20)
/* Of requests that come before the answer to the one before them. */
#define AHEAD_MAX 65536u
/* So many requests of one connection, then the others get their turn. */
#define TURN_MAX 64

static void conn_ready(void *arg, uint32_t events);

static void conn_close(struct conn *c)
{
	struct daemon *d = c->d;
	struct box *held = c->holds;

	loop_del(d->loop, &c->io);
	loop_timer_stop(d->loop, &c->turn);
	loop_timer_stop(d->loop, &c->late);
	d->nstrangers -= c->stranger;
	fd_close(&c->fd);
	if (c->req)
		c->req->conn = NULL;
	msg_in_done(&c->in);
	buf_done(&c->out);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	d->nconns--;
	free(c);
	if (held) {
		held->holder = NULL;
		box_discard(held);
	}
	daemon_touch(d);
}

/*
 * What to wait for. A client that has a request under way, or doesn't read its answers, is not read from beyond a
 * little: what it sends on stays in its socket. Its end is seen in any case.
 */
static void conn_watch(struct conn *c)
{
	bool enough = (c->req || c->more || c->out.len > 0) && c->in.bytes.len > AHEAD_MAX;
	uint32_t want = (enough ? 0 : EPOLLIN) | EPOLLRDHUP | (c->out.len > 0 ? EPOLLOUT : 0);

	if (want != c->io.events)
		(void)loop_change(c->d->loop, &c->io, want);
}

static void conn_send(struct conn *c, const char *text, size_t n, const int *fds, size_t nfds)
{
	uint8_t head[MSG_HEAD] = { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24) };
	ssize_t k = 0;

	/* Descriptors can't wait behind what it doesn't read. */
	if (c->out.len > 0 && nfds > 0) {
		(void)shutdown(c->fd, SHUT_RDWR);
		return;
	}
	if (c->out.len == 0) {
		char small[2048];

		if (n + MSG_HEAD <= sizeof(small)) {
			memcpy(small, head, MSG_HEAD);
			memcpy(small + MSG_HEAD, text, n);
			k = fd_send(c->fd, small, n + MSG_HEAD, fds, nfds, MSG_DONTWAIT);
		} else {
			k = fd_send(c->fd, head, MSG_HEAD, fds, nfds, MSG_DONTWAIT);
		}
		if (k < 0 && (k != -EAGAIN || nfds > 0)) {
			/* The peer is gone, or doesn't read: it will be seen as a hang-up. */
			(void)shutdown(c->fd, SHUT_RDWR);
			return;
		}
		if (k < 0)
			k = 0;
	}
	if ((size_t)k == n + MSG_HEAD)
		return;
	if ((size_t)k < MSG_HEAD)
		(void)buf_put(&c->out, head + k, MSG_HEAD - (size_t)k);
	k = (size_t)k < MSG_HEAD ? 0 : k - MSG_HEAD;
	(void)buf_put(&c->out, text + k, n - (size_t)k);
	if (buf_error(&c->out)) {
		(void)shutdown(c->fd, SHUT_RDWR);
		return;
	}
	k = fd_send(c->fd, c->out.data, c->out.len, NULL, 0, MSG_DONTWAIT);
	if (k > 0)
		buf_drop(&c->out, (size_t)k);
	conn_watch(c);
}

static void req_free(struct req *q)
{
	if (q->conn && q->conn->req == q)
		q->conn->req = NULL;
	for (size_t i = 0; i < q->nfds; i++)
		fd_close(&q->fds[i]);
	json_doc_done(&q->doc);
	free(q);
}

static void conn_next(struct conn *c);
static void conn_turn(void *arg);

void req_ok(struct req *q, struct buf *answer, const int *fds, size_t nfds)
{
	struct conn *c = q->conn;

	if (buf_error(answer)) {
		struct err e = ERR_INIT;

		(void)err_set(&e, buf_error(answer), "the answer is too large");
		buf_done(answer);
		req_fail(q, &e);
		return;
	}
	if (c)
		conn_send(c, answer->data, answer->len, fds, nfds);
	buf_done(answer);
	req_free(q);
	if (c)
		conn_next(c);
}

void req_done(struct req *q)
{
	struct buf b = BUF_INIT(64);

	(void)buf_puts(&b, "{\"ok\":true}");
	req_ok(q, &b, NULL, 0);
}

void req_fail(struct req *q, const struct err *e)
{
	struct conn *c = q->conn;
	OWN_BUF b = BUF_INIT(ERR_TEXT_MAX * 8);

	msg_put_error(&b, e);
	if (c)
		conn_send(c, b.data, b.len, NULL, 0);
	req_free(q);
	if (c)
		conn_next(c);
}

void req_progress(struct req *q, const char *text)
{
	OWN_BUF b = BUF_INIT(4096);
	struct json_out o;

	if (!q->conn)
		return;
	json_out_init(&o, &b);
	json_put_obj(&o, NULL);
	json_put_str(&o, "progress", text);
	json_end_obj(&o);
	if (!buf_error(&b))
		conn_send(q->conn, b.data, b.len, NULL, 0);
}

void answer_begin(struct json_out *o, struct buf *text)
{
	json_out_init(o, text);
	json_put_obj(o, NULL);
	json_put_bool(o, "ok", true);
}

/*
 * May this user use the daemon? Root's admits root, members of the configured groups and the configured users,
 * as the user database says now: a user who was taken from the group is out, whatever groups their processes still have.
 */
static int admit(struct conn *c, struct err *e)
{
	struct daemon *d = c->d;
	struct passwd *pw;
	gid_t groups[256];
	int n = 256;

	if (c->uid == 0 || c->uid == geteuid())
		return 0;
	if (d->rootless)
		return err_why(e, WHY_DENIED, -EACCES, "this daemon serves the user who started it alone");
	pw = getpwuid(c->uid);
	if (pw && conf_has(&d->conf, CONF_GRANTS, pw->pw_name))
		return 0;
	if (pw && getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) >= 0) {
		for (int i = 0; i < n; i++) {
			struct group *gr = getgrgid(groups[i]);

			if (gr && conf_has(&d->conf, CONF_GROUPS, gr->gr_name))
				return 0;
		}
	}
	return err_why(e, WHY_DENIED, -EACCES,
		       "user %u may not use the system's cubby: ask root for 'adduser %s cubby', or use your own "
		       "(unset CUBBY_RUN_DIR)", c->uid, pw ? pw->pw_name : "USER");
}

/* Take one frame that is complete and work on it. False when there is none. */
static bool take_one(struct conn *c)
{
	struct err e = ERR_INIT;
	struct req *q = calloc(1, sizeof(*q));
	int r;

	if (!q) {
		(void)shutdown(c->fd, SHUT_RDWR);
		return false;
	}
	r = msg_in_take(&c->in, &q->doc, q->fds, FD_PASS_MAX, &q->nfds);
	if (r <= 0) {
		free(q);
		if (r < 0) {
			OWN_BUF b = BUF_INIT(1024);

			(void)err_why(&e, WHY_BAD_REQUEST, -EBADMSG, "not a message of cubby's protocol");
			msg_put_error(&b, &e);
			conn_send(c, b.data, b.len, NULL, 0);
			(void)shutdown(c->fd, SHUT_RDWR);
		}
		return false;
	}
	q->d = c->d;
	q->conn = c;
	q->uid = c->uid;
	q->gid = c->gid;
	c->req = q;
	r = admit(c, &e);
	if (r < 0)
		req_fail(q, &e);
	else if (json_int(q->doc.root, "v", 0) != MSG_VERSION) {
		(void)err_why(&e, WHY_UNSUPPORTED, -EPROTO,
			      "this cubbyd (%s) speaks version %d of the protocol: end it with 'cubby config --stop-daemon' or "
			      "install the same version of both", CUBBY_VERSION, MSG_VERSION);
		req_fail(q, &e);
	} else {
		dispatch(q);
	}
	return true;
}

/* One request of a connection at a time. Answers call this again, so it must not call itself deeper and deeper. */
static void conn_next(struct conn *c)
{
	if (c->taking)
		return;
	c->taking = true;
	c->more = false;
	/* One that doesn't read its answers gets no more of them until it does. */
	for (int n = 0; !c->more && !c->req && c->out.len < BACKLOG_MAX && take_one(c);)
		c->more = ++n == TURN_MAX;
	c->taking = false;
	if (c->more && !c->req)
		loop_timer_set(c->d->loop, &c->turn, 0, conn_turn, c);
	conn_watch(c);
}

static void conn_turn(void *arg)
{
	conn_next(arg);
}

static void conn_ready(void *arg, uint32_t events)
{
	struct conn *c = arg;

	if (events & EPOLLOUT) {
		ssize_t k = fd_send(c->fd, c->out.data, c->out.len, NULL, 0, MSG_DONTWAIT);

		if (k > 0)
			buf_drop(&c->out, (size_t)k);
		if (c->out.len == 0)
			conn_next(c);
		conn_watch(c);
	}
	/* Gone for good, whatever it sent before: nobody is there to hear an answer. */
	if ((events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)) && !(c->io.events & EPOLLIN)) {
		conn_close(c);
		return;
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP | EPOLLERR)) {
		int r = msg_in_read(&c->in, c->fd);

		if ((r < 0 && r != -EAGAIN) || c->in.ended) {
			conn_close(c);
			return;
		}
		conn_next(c);
	}
}

/*
 * No descriptor is left for whoever is at the door. Kept waiting they would wake the loop for ever: with the one that was
 * saved for this, they are let in and shown out, and see a connection that ended.
 */
static void turn_away(struct daemon *d)
{
	fd_close(&d->spare_fd);
	for (int i = 0; i < 16; i++) {
		int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			break;
		(void)close(fd);
	}
	d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* One user can't take all the connections there are, nor all of them together those of root. */
static bool room_for(const struct daemon *d, uid_t uid)
{
	unsigned n = 0;

	if (uid == 0 || uid == geteuid())
		return d->nconns < CONNS_MAX;
	if (d->nconns >= CONNS_MAX - CONNS_ROOT)
		return false;
	if (d->nconns < CONNS_MAX / 4)
		return true;
	for (const struct conn *c = d->conns; c; c = c->next)
		n += c->uid == uid;
	return n < CONNS_MAX / 4;
}

static void stranger_late(void *arg)
{
	conn_close(arg);
}

static void accepting(void *arg, uint32_t events)
{
	struct daemon *d = arg;

	(void)events;
	/* A few at a time, so that a crowd at the door doesn't starve the ones inside. */
	for (int i = 0; i < 16; i++) {
		int fd = accept4(d->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		struct ucred cr;
		socklen_t n = sizeof(cr);
		struct conn *c;

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				turn_away(d);
			return;
		}
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cr, &n) < 0 || !room_for(d, cr.uid)) {
			(void)close(fd);
			continue;
		}
		c = calloc(1, sizeof(*c));
		if (!c || loop_add(d->loop, &c->io, fd, EPOLLIN, conn_ready, c) < 0) {
			free(c);
			(void)close(fd);
			continue;
		}
		c->d = d;
		c->fd = fd;
		c->uid = cr.uid;
		c->gid = cr.gid;
		c->out.max = UNREAD_MAX;
		c->stranger = admit(c, NULL) < 0;
		msg_in_init(&c->in, c->stranger ? STRANGER_BYTES : REQUEST_MAX);
		if (c->stranger && ++d->nstrangers > STRANGERS_MAX) {
			/* More of them than can be told: these see an end. */
			d->nstrangers--;
			loop_del(d->loop, &c->io);
			msg_in_done(&c->in);
			(void)close(fd);
			free(c);
			continue;
		}
		if (c->stranger)
			loop_timer_set(d->loop, &c->late, STRANGER_MS, stranger_late, c);
		c->next = d->conns;
		if (c->next)
			c->next->link = &c->next;
		c->link = &d->conns;
		d->conns = c;
		d->nconns++;
		loop_timer_stop(d->loop, &d->idle_exit);
		/* Its first request is most likely here already. */
		conn_ready(c, EPOLLIN);
	}
}

int server_listen(struct daemon *d, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char path[1100], tmp[64];
	OWN_FD dir = open(d->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd, r;

	(void)snprintf(path, sizeof(path), "%s/cubbyd.sock", d->run_dir);
	if (dir < 0)
		return err_set(e, -errno, "cannot open '%s'", d->run_dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, -errno, "cannot make the daemon's socket");
	/*
	 * We hold the lock, so an old socket file is a dead one. The new one is made beside it and renamed over it: there
	 * is no moment without a socket, and none with one that nobody listens to.
	 */
	(void)snprintf(tmp, sizeof(tmp), "cubbyd.sock.new");
	(void)unlinkat(dir, tmp, 0);
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", dir, tmp);
	/* Who may is decided for each request, by who they are; the system's socket has to be reachable for that. */
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
	    fchmodat(dir, tmp, d->rootless ? 0600 : 0666, 0) < 0 || listen(fd, 512) < 0 ||
	    renameat(dir, tmp, dir, "cubbyd.sock") < 0) {
		r = err_set(e, -errno, "cannot listen at '%s'", path);
		(void)close(fd);
		return r;
	}
	r = loop_add(d->loop, &d->listen_io, fd, EPOLLIN, accepting, d);
	if (r < 0) {
		(void)close(fd);
		return err_set(e, r, "cannot listen at '%s'", path);
	}
	d->listen_fd = fd;
	d->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

void server_close(struct daemon *d)
{
	while (d->conns)
		conn_close(d->conns);
	loop_del(d->loop, &d->listen_io);
	fd_close(&d->listen_fd);
	fd_close(&d->spare_fd);
}
