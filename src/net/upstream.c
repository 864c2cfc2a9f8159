/* SPDX-License-Identifier: Apache-2.0 */
#include "net/upstream.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "net/chance.h"

#define EDNS_SIZE     1232 /* the way of every path without fragments (DNS flag day 2020) */
#define TIMEOUT_S     5 /* resolv.conf(5): RES_TIMEOUT, RES_DFLRETRY and their limits */
#define TIMEOUT_S_MAX 30
#define ATTEMPTS      2
#define ATTEMPTS_MAX  5
#define STARVED_MS    100 /* no descriptor is free: wait for one, so often */
#define STARVED_MAX   50
#define TICK_LATE_MS  100
#define TICK_MS       20 /* while questions wait: who has been taking a place for too long? */
#define UDP_BATCH     16 /* datagrams of one socket before others have their turn */

struct server {
	struct sockaddr_storage ss;
	socklen_t len;
	char interface[IF_NAMESIZE]; /* "": any */
	char text[IP_TEXT_MAX + IF_NAMESIZE + 2];
};

struct conf {
	struct server server[UPSTREAM_SERVERS];
	unsigned count;
	unsigned attempts;
	uint32_t timeout_ms;
	bool rotate, use_vc, no_aaaa;
};

enum state { QUEUED, STARVED, UDP, TCP_CONNECT, TCP_WRITE, TCP_READ, ENDED };

struct upstream_ask {
	struct upstream *u;
	upstream_done done;
	void *arg;
	uint64_t at_ms; /* when the next step is due */
	struct upstream_ask *next, *prev; /* by at_ms */
	struct upstream_turn *turn; /* QUEUED: where, */
	struct upstream_ask *later, *sooner; /* and its neighbours there */

	struct dns_name name; /* lower-case */
	uint16_t type;
	enum state state;
	struct server server[UPSTREAM_SERVERS]; /* in the order in which they are asked */
	unsigned count, tries, try_max;
	bool plain; /* this server doesn't like EDNS */
	bool fresh; /* sent over UDP a moment ago */
	uint64_t sent_ms; /* when this try began */
	int fd;
	struct loop_io io;
	struct dns_name sent; /* in the case of this try */
	uint16_t id;
	unsigned strangers, starved;
	uint8_t *tcp; /* 2 bytes of length, then the message */
	size_t tcp_n, tcp_len;
	char why[176]; /* of the last failure */
};

struct upstream {
	struct loop *loop;
	struct conf conf;
	uint64_t suspect_ms[UPSTREAM_SERVERS]; /* until when; of conf.server */
	unsigned turn; /* rotate */
	struct upstream_ask *first, *last; /* those that were begun, by their deadline, soonest first */
	struct upstream_turn *turns; /* those with waiting questions, in a circle; whose turn it is */
	unsigned running, fresh;
	uint32_t takes_ms8; /* what an answer takes, smoothed, in eighths of a millisecond */
	struct loop_timer timer, tick;
	uint64_t tick_ms; /* when `tick` was set */
	uint8_t buf[65536];
};

/* ---- resolv.conf */

static bool blank(char c)
{
	return c == ' ' || c == '\t';
}

/* As glibc reads it: a number that is none is 0, a large one the limit. */
static unsigned option_number(const char *s, unsigned max)
{
	unsigned v = 0;

	while (*s >= '0' && *s <= '9' && v <= max)
		v = v * 10 + (unsigned)(*s++ - '0');
	return v > max ? max : v;
}

/* ADDRESS, ADDRESS%INTERFACE or [ADDRESS]:PORT. */
static int server_parse(const char *word, struct server *ret)
{
	char addr[IP_TEXT_MAX + IF_NAMESIZE + 2], *scope;
	struct server s = { 0 };
	unsigned port = 53;
	const char *end;
	struct ip ip;

	if (word[0] == '[') {
		end = strchr(++word, ']');
		if (!end || end[1] != ':' || !end[2])
			return -EINVAL;
		port = 0;
		for (const char *p = end + 2; *p; p++) {
			if (*p < '0' || *p > '9' || port > 65535)
				return -EINVAL;
			port = port * 10 + (unsigned)(*p - '0');
		}
		if (port == 0 || port > 65535)
			return -EINVAL;
	} else {
		end = word + strlen(word);
	}
	if ((size_t)(end - word) >= sizeof(addr))
		return -EINVAL;
	memcpy(addr, word, (size_t)(end - word));
	addr[end - word] = '\0';
	scope = strchr(addr, '%');
	if (scope)
		*scope++ = '\0';
	if (ip_parse(addr, &ip) < 0)
		return -EINVAL;
	s.len = ip_sockaddr(&ip, (uint16_t)port, &s.ss);
	/*
	 * The socket is bound to the interface by its name: if_nametoindex(3) needs a system call that the gateway
	 * has given up, and the index changes when the interface is made anew.
	 */
	if (scope && (!*scope || strlen(scope) >= sizeof(s.interface)))
		return -EINVAL;
	if (scope && s.ss.ss_family == AF_INET6 && scope[strspn(scope, "0123456789")] == '\0')
		((struct sockaddr_in6 *)&s.ss)->sin6_scope_id = option_number(scope, INT32_MAX);
	else if (scope)
		memcpy(s.interface, scope, strlen(scope));
	(void)snprintf(s.text, sizeof(s.text), "%s", addr);
	*ret = s;
	return 0;
}

static void option(struct conf *c, const char *word)
{
	unsigned v;

	if (strncmp(word, "timeout:", 8) == 0) {
		v = option_number(word + 8, TIMEOUT_S_MAX);
		c->timeout_ms = (v ? v : 1) * 1000;
	} else if (strncmp(word, "attempts:", 9) == 0) {
		v = option_number(word + 9, ATTEMPTS_MAX);
		c->attempts = v ? v : 1;
	} else if (strcmp(word, "rotate") == 0) {
		c->rotate = true;
	} else if (strcmp(word, "use-vc") == 0) {
		c->use_vc = true;
	} else if (strcmp(word, "no-aaaa") == 0) {
		c->no_aaaa = true;
	}
}

static void conf_line(struct conf *c, const char *line, size_t n)
{
	char word[128];
	bool options = false;

	for (size_t at = 0, words = 0; at < n; words++) {
		size_t len = 0;

		while (at < n && blank(line[at])) {
			/* The keyword begins in the first column. */
			if (words == 0)
				return;
			at++;
		}
		while (at + len < n && !blank(line[at + len]))
			len++;
		if (len == 0 || len >= sizeof(word))
			return;
		memcpy(word, line + at, len);
		word[len] = '\0';
		at += len;
		if (words == 0) {
			options = strcmp(word, "options") == 0;
			if (!options && strcmp(word, "nameserver") != 0)
				return;
		} else if (options) {
			option(c, word);
		} else {
			if (c->count < UPSTREAM_SERVERS && server_parse(word, &c->server[c->count]) == 0)
				c->count++;
			return;
		}
	}
}

void upstream_conf(struct upstream *u, const char *text)
{
	struct conf c = { .attempts = ATTEMPTS, .timeout_ms = TIMEOUT_S * 1000 };

	while (*text) {
		size_t n = strcspn(text, "\n");
		size_t used = n > 0 && text[n - 1] == '\r' ? n - 1 : n;

		conf_line(&c, text, used);
		text += n + (text[n] == '\n');
	}
	if (c.count == 0 && server_parse("127.0.0.1", &c.server[0]) == 0)
		c.count = 1;
	u->conf = c;
	memset(u->suspect_ms, 0, sizeof(u->suspect_ms));
}

bool upstream_no_aaaa(const struct upstream *u)
{
	return u->conf.no_aaaa;
}

static void suspect(struct upstream *u, const struct server *s, uint64_t until_ms)
{
	for (unsigned i = 0; i < u->conf.count; i++)
		if (u->conf.server[i].len == s->len && memcmp(&u->conf.server[i].ss, &s->ss, s->len) == 0)
			u->suspect_ms[i] = until_ms;
}

/* Those that answered last time come first. */
static void choose_servers(struct upstream_ask *a)
{
	struct upstream *u = a->u;
	unsigned first = u->conf.rotate ? u->turn++ % u->conf.count : 0;
	uint64_t now = clock_ms();

	for (int bad = 0; bad <= 1; bad++)
		for (unsigned i = 0; i < u->conf.count; i++) {
			unsigned k = (first + i) % u->conf.count;

			if ((u->suspect_ms[k] > now) == bad)
				a->server[a->count++] = u->conf.server[k];
		}
	a->try_max = a->count * u->conf.attempts;
}

/* ---- deadlines: one timer for all, since the loop's own list is searched as a whole */

static void timer_fired(void *arg);

static void timer_arm(struct upstream *u)
{
	uint64_t now = clock_ms();

	if (!u->first)
		loop_timer_stop(u->loop, &u->timer);
	else
		loop_timer_set(u->loop, &u->timer, u->first->at_ms > now ? u->first->at_ms - now : 0, timer_fired, u);
}

static void deadline_clear(struct upstream_ask *a)
{
	struct upstream *u = a->u;

	if (!a->prev && u->first != a)
		return;
	if (a->prev)
		a->prev->next = a->next;
	else
		u->first = a->next;
	if (a->next)
		a->next->prev = a->prev;
	else
		u->last = a->prev;
	a->next = a->prev = NULL;
}

/* Nearly always the last one: all wait equally long. */
static void deadline_set(struct upstream_ask *a, uint64_t in_ms)
{
	struct upstream *u = a->u;
	struct upstream_ask *before;

	deadline_clear(a);
	a->at_ms = clock_ms() + in_ms;
	for (before = u->last; before && before->at_ms > a->at_ms;)
		before = before->prev;
	a->prev = before;
	a->next = before ? before->next : u->first;
	if (a->next)
		a->next->prev = a;
	else
		u->last = a;
	if (before)
		before->next = a;
	else
		u->first = a;
	if (u->first == a)
		timer_arm(u);
}

/* ---- one try */

static void advance(struct upstream_ask *a);

static void not_fresh(struct upstream_ask *a)
{
	a->u->fresh -= a->fresh;
	a->fresh = false;
}

static void socket_end(struct upstream_ask *a)
{
	not_fresh(a);
	loop_del(a->u->loop, &a->io);
	fd_close(&a->fd);
	free(a->tcp);
	a->tcp = NULL;
}

static struct server *server_now(struct upstream_ask *a)
{
	return &a->server[a->tries % a->count];
}

/* This try came to nothing; the cause stays for the log. bad: the server gives no sign of life. */
static void try_failed(struct upstream_ask *a, const char *what, bool bad)
{
	struct server *s = server_now(a);

	(void)snprintf(a->why, sizeof(a->why), "%s: %s", s->text, what);
	socket_end(a);
	if (bad)
		suspect(a->u, s, clock_ms() + UPSTREAM_SUSPECT_MS);
	a->tries++;
	a->plain = false;
	advance(a);
}

/* ---- those that wait */

static void queue_put(struct upstream_ask *a, struct upstream_turn *t)
{
	struct upstream *u = a->u;

	a->turn = t;
	a->later = NULL;
	a->sooner = t->last;
	*(t->last ? &t->last->later : &t->first) = a;
	t->last = a;
	if (a->sooner)
		return;
	if (!u->turns) {
		u->turns = t->next = t->prev = t;
	} else {
		t->next = u->turns;
		t->prev = u->turns->prev;
		t->prev->next = t->next->prev = t;
	}
}

static void queue_take(struct upstream_ask *a)
{
	struct upstream_turn *t = a->turn;
	struct upstream *u = a->u;

	*(a->sooner ? &a->sooner->later : &t->first) = a->later;
	*(a->later ? &a->later->sooner : &t->last) = a->sooner;
	a->turn = NULL;
	a->later = a->sooner = NULL;
	if (t->first)
		return;
	if (u->turns == t)
		u->turns = t->next == t ? NULL : t->next;
	t->next->prev = t->prev;
	t->prev->next = t->next;
	t->next = t->prev = NULL;
}

void *upstream_turn_first(const struct upstream_turn *t)
{
	return t->first ? t->first->arg : NULL;
}

void upstream_move(struct upstream_ask *a, struct upstream_turn *to)
{
	if (a->state != QUEUED)
		return;
	queue_take(a);
	queue_put(a, to);
}

static void queue_next(struct upstream *u);

static void release(struct upstream_ask *a)
{
	if (a->state == QUEUED)
		queue_take(a);
	else
		a->u->running--;
	socket_end(a);
	deadline_clear(a);
}

static void finish(struct upstream_ask *a, int r, struct dns_answer *answer)
{
	struct upstream *u = a->u;

	release(a);
	a->done(a->arg, r, answer, r < 0 ? a->why : NULL);
	free(a);
	queue_next(u);
}

static void tcp_begin(struct upstream_ask *a);

static void answered(struct upstream_ask *a, const uint8_t *msg, size_t n, unsigned flags)
{
	struct dns_answer *answer = NULL;
	unsigned rcode = flags & DNS_RCODE;
	char what[64];
	int r;

	if (rcode == DNS_NOERROR || rcode == DNS_NXDOMAIN) {
		r = dns_answer_read(msg, n, &a->name, a->type, &answer);
		if (r == 0) {
			suspect(a->u, server_now(a), 0);
			finish(a, 0, answer);
			dns_answer_unref(answer);
			return;
		}
		try_failed(a,
			   r == -ELOOP    ? "its aliases lead nowhere"
			   : r == -ENOMEM ? "out of memory"
					  : "an answer that can't be read",
			   false);
		return;
	}
	/* Before EDNS (RFC 6891, section 7): once more without. */
	if ((rcode == DNS_FORMERR || rcode == DNS_NOTIMP) && !a->plain) {
		socket_end(a);
		a->plain = true;
		advance(a);
		return;
	}
	(void)snprintf(what, sizeof(what),
		       rcode == DNS_SERVFAIL  ? "the server failed (SERVFAIL)"
		       : rcode == DNS_REFUSED ? "the server refused (REFUSED)"
					      : "the server answered with error %u",
		       rcode);
	try_failed(a, what, false);
}

static int make_question(struct upstream_ask *a, uint8_t out[DNS_QUESTION_MAX], size_t *ret_n)
{
	uint8_t bits[DNS_NAME_MAX / 8 + 1];
	int r = chance(&a->id, sizeof(a->id));

	if (r == 0)
		r = chance(bits, sizeof(bits));
	if (r != 0)
		return r;
	/* Some more bits that a forged answer has to guess. The lengths between the letters are no letters. */
	a->sent = a->name;
	for (size_t i = 0; i < a->sent.n; i++)
		if (a->sent.b[i] >= 'a' && a->sent.b[i] <= 'z' && bits[i / 8] >> (i % 8) & 1)
			a->sent.b[i] &= 0xdf;
	*ret_n = dns_question_write(out, a->id, &a->sent, a->type, a->plain ? 0 : EDNS_SIZE);
	return 0;
}

static const char *errno_text(int r)
{
	switch (-r) {
	case ECONNREFUSED: return "nothing listens there";
	case ENETUNREACH:
	case EHOSTUNREACH: return "no way there";
	case ETIMEDOUT: return "no answer in time";
	default: return strerror(-r);
	}
}

/* Returns whether that was the end of this try. */
static bool udp_read(struct upstream_ask *a)
{
	struct upstream *u = a->u;

	for (unsigned i = 0; i < UDP_BATCH; i++) {
		ssize_t n = recv(a->fd, u->buf, sizeof(u->buf), 0);
		uint16_t flags = 0;
		int r;

		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				return false;
			try_failed(a, errno_text(-errno), true);
			return true;
		}
		r = dns_reply_match(u->buf, (size_t)n, a->id, &a->sent, a->type, &flags);
		/* A server that forgets the case, or a forger who doesn't know it: TCP tells them apart. */
		if (r == -EILSEQ || (r == 0 && flags & DNS_TC)) {
			socket_end(a);
			tcp_begin(a);
			return true;
		}
		/* FORMERR may come without the question. The id and the port have to do. */
		if (r == -EBADMSG && n == DNS_HEAD && !a->plain && u->buf[0] == a->id >> 8 &&
		    u->buf[1] == (a->id & 0xff) && u->buf[2] & 0x80 && (u->buf[3] & DNS_RCODE) == DNS_FORMERR) {
			answered(a, u->buf, (size_t)n, DNS_FORMERR);
			return true;
		}
		if (r == 0) {
			/* At most 30 s in eighths: fits. */
			u->takes_ms8 += (uint32_t)(clock_ms() - a->sent_ms) - u->takes_ms8 / 8;
			answered(a, u->buf, (size_t)n, flags);
			return true;
		}
		if (++a->strangers >= UPSTREAM_STRANGERS) {
			socket_end(a);
			tcp_begin(a);
			return true;
		}
	}
	return false;
}

static void udp_ready(void *arg, uint32_t events)
{
	(void)events;
	(void)udp_read(arg);
}

/* A connected, non-blocking socket. Negative errno. */
static int socket_begin(struct upstream_ask *a, int type)
{
	struct server *s = server_now(a);

	a->fd = socket(s->ss.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0)
		return -errno;
	/* socket(7): open to everybody since Linux 5.7. */
	if (s->interface[0] &&
	    setsockopt(a->fd, SOL_SOCKET, SO_BINDTODEVICE, s->interface, (socklen_t)strlen(s->interface)) < 0)
		return -errno;
	/* The kernel chooses the port by chance (net/ipv4/udp.c, udp_lib_get_port()). */
	if (connect(a->fd, (const struct sockaddr *)&s->ss, s->len) < 0 && errno != EINPROGRESS)
		return -errno;
	return 0;
}

static int udp_begin(struct upstream_ask *a)
{
	uint8_t question[DNS_QUESTION_MAX];
	size_t n;
	int r = make_question(a, question, &n);

	if (r == 0)
		r = socket_begin(a, SOCK_DGRAM);
	if (r == 0)
		r = loop_add(a->u->loop, &a->io, a->fd, EPOLLIN, udp_ready, a);
	if (r == 0 && send(a->fd, question, n, MSG_NOSIGNAL) < 0)
		r = -errno;
	if (r < 0)
		return r;
	a->state = UDP;
	a->sent_ms = clock_ms();
	a->fresh = true;
	a->u->fresh++;
	a->strangers = 0;
	deadline_set(a, a->u->conf.timeout_ms);
	return 0;
}

/* ---- TCP: one connection for one question */

static int tcp_read(struct upstream_ask *a)
{
	uint16_t flags = 0;
	int r;

	for (;;) {
		ssize_t n = recv(a->fd, a->tcp + a->tcp_n, a->tcp_len - a->tcp_n, 0);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		a->tcp_n += (size_t)n;
		if (a->tcp_n < a->tcp_len)
			continue;
		if (a->tcp_len > 2)
			break;
		a->tcp_len = 2 + ((size_t)a->tcp[0] << 8 | a->tcp[1]);
		if (a->tcp_len < 2 + DNS_HEAD)
			return -EBADMSG;
		if (a->tcp_len > 2 + DNS_QUESTION_MAX) {
			uint8_t *more = realloc(a->tcp, a->tcp_len);

			if (!more)
				return -ENOMEM;
			a->tcp = more;
		}
	}
	r = dns_reply_match(a->tcp + 2, a->tcp_len - 2, a->id, &a->sent, a->type, &flags);
	/* Nobody else speaks on this connection: the case may be lost here. */
	if ((r != 0 && r != -EILSEQ) || flags & DNS_TC)
		return -EBADMSG;
	answered(a, a->tcp + 2, a->tcp_len - 2, flags);
	return 1;
}

static int tcp_step(struct upstream_ask *a)
{
	if (a->state == TCP_CONNECT) {
		socklen_t len = sizeof(int);
		int failed = 0;

		if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0)
			return -errno;
		if (failed)
			return -failed;
		a->state = TCP_WRITE;
	}
	if (a->state == TCP_WRITE) {
		ssize_t n = send(a->fd, a->tcp + a->tcp_n, a->tcp_len - a->tcp_n, MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		a->tcp_n += (size_t)n;
		if (a->tcp_n < a->tcp_len)
			return 0;
		a->state = TCP_READ;
		a->tcp_n = 0;
		a->tcp_len = 2;
		return loop_change(a->u->loop, &a->io, EPOLLIN);
	}
	return tcp_read(a);
}

static void tcp_ready(void *arg, uint32_t events)
{
	struct upstream_ask *a = arg;
	int r = tcp_step(a);

	(void)events;
	/* What is broken is the answer, not the way. */
	if (r < 0)
		try_failed(a, r == -EBADMSG ? "an answer that can't be read" : errno_text(r), false);
}

static void tcp_begin(struct upstream_ask *a)
{
	size_t n = 0;
	int r;

	a->tcp = malloc(2 + DNS_QUESTION_MAX);
	r = a->tcp ? make_question(a, a->tcp + 2, &n) : -ENOMEM;
	if (r == 0) {
		a->tcp[0] = (uint8_t)(n >> 8);
		a->tcp[1] = (uint8_t)n;
		a->tcp_n = 0;
		a->tcp_len = 2 + n;
		r = socket_begin(a, SOCK_STREAM);
	}
	if (r == 0)
		r = loop_add(a->u->loop, &a->io, a->fd, EPOLLOUT, tcp_ready, a);
	if (r < 0) {
		try_failed(a, errno_text(r), false);
		return;
	}
	a->state = TCP_CONNECT;
	a->sent_ms = clock_ms();
	deadline_set(a, a->u->conf.timeout_ms);
}

/* ---- from try to try */

static void timer_fired(void *arg)
{
	struct upstream *u = arg;
	uint64_t now = clock_ms();

	/* What has ended has left the list before it was freed: the analyzer doesn't know that a->u is u. */
	while (u->first && u->first->at_ms <= now) { /* NOLINT(clang-analyzer-unix.Malloc) */
		struct upstream_ask *a = u->first;

		deadline_clear(a);
		if (a->state == ENDED)
			finish(a, -ETIMEDOUT, NULL);
		else if (a->state == STARVED)
			advance(a);
		/* When the process itself was late (stopped, starved), the answer may be there. */
		else if (a->state != UDP || !udp_read(a))
			try_failed(a, errno_text(-ETIMEDOUT), a->state == UDP);
	}
	timer_arm(u);
}

/* Begin the next try; when there is none, the end comes from the timer, so never from within upstream_begin(). */
static void advance(struct upstream_ask *a)
{
	for (; a->tries < a->try_max; a->tries++) {
		int r;

		if (a->u->conf.use_vc) {
			tcp_begin(a);
			return;
		}
		r = udp_begin(a);
		if (r == 0)
			return;
		socket_end(a);
		if ((r == -EMFILE || r == -ENFILE) && a->starved++ < STARVED_MAX) {
			a->state = STARVED;
			deadline_set(a, STARVED_MS);
			return;
		}
		(void)snprintf(a->why, sizeof(a->why), "%s: %s", server_now(a)->text, errno_text(r));
	}
	a->state = ENDED;
	deadline_set(a, 0);
}

static void start(struct upstream_ask *a)
{
	a->u->running++;
	a->state = ENDED;
	advance(a);
}

/* What was sent a while ago: the server has taken it; and when others wait, it has had its time. */
static void make_place(struct upstream *u, uint64_t now)
{
	uint64_t fresh_ms = u->takes_ms8 / 2 > UPSTREAM_FRESH_MS ? u->takes_ms8 / 2 : UPSTREAM_FRESH_MS;
	bool full = u->running >= UPSTREAM_RUNNING;
	struct upstream_ask *next;

	for (struct upstream_ask *a = u->first; a; a = next) {
		next = a->next;
		if (a->state == STARVED || a->state == ENDED)
			continue;
		if (now - a->sent_ms >= fresh_ms)
			not_fresh(a);
		if (!full || now - a->sent_ms < UPSTREAM_OLD * fresh_ms)
			continue;
		(void)snprintf(a->why, sizeof(a->why), "%s: no answer yet, and others wait", server_now(a)->text);
		socket_end(a);
		a->state = ENDED;
		deadline_set(a, 0);
	}
}

static void end_of_patience(struct upstream *u, uint64_t now)
{
	for (bool again = true; again;) {
		struct upstream_turn *t = u->turns;

		again = false;
		do {
			/* As above, for the list of its turn. */
			if (!t || t->first->at_ms > now) /* NOLINT(clang-analyzer-unix.Malloc) */
				continue;
			(void)snprintf(t->first->why, sizeof(t->first->why), "too many questions wait for an answer");
			finish(t->first, -ETIMEDOUT, NULL);
			/* The circle may be another one now. */
			again = true;
			break;
		} while (t && (t = t->next) != u->turns);
	}
}

static void ticked(void *arg)
{
	struct upstream *u = arg;
	uint64_t now = clock_ms();

	/* Was this process late itself, the answers may be there and unread. */
	if (now - u->tick_ms < TICK_LATE_MS)
		make_place(u, now);
	end_of_patience(u, now);
	queue_next(u);
}

static void queue_next(struct upstream *u)
{
	while (u->turns && u->running < UPSTREAM_RUNNING && u->fresh < UPSTREAM_FRESH) {
		struct upstream_turn *t = u->turns;
		struct upstream_ask *a = t->first;

		u->turns = t->next;
		queue_take(a);
		start(a);
	}
	if (!u->turns || u->tick.link)
		return;
	u->tick_ms = clock_ms();
	loop_timer_set(u->loop, &u->tick, TICK_MS, ticked, u);
}

int upstream_begin(struct upstream *u, struct upstream_turn *turn, const struct dns_name *name, uint16_t type,
		   upstream_done done, void *arg, struct upstream_ask **ret)
{
	struct upstream_ask *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->u = u;
	a->done = done;
	a->arg = arg;
	a->name = *name;
	dns_name_lower(&a->name);
	a->type = type;
	a->fd = FD_NONE;
	choose_servers(a);
	*ret = a;
	a->state = QUEUED;
	a->at_ms = clock_ms() + UPSTREAM_QUEUE_MS;
	queue_put(a, turn);
	queue_next(u);
	return 0;
}

void upstream_cancel(struct upstream_ask *a)
{
	struct upstream *u = a->u;

	release(a);
	free(a);
	queue_next(u);
}

int upstream_new(struct loop *loop, struct upstream **ret)
{
	struct upstream *u = calloc(1, sizeof(*u));

	if (!u)
		return -ENOMEM;
	u->loop = loop;
	upstream_conf(u, "");
	*ret = u;
	return 0;
}

void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	loop_timer_stop(u->loop, &u->timer);
	loop_timer_stop(u->loop, &u->tick);
	free(u);
}
