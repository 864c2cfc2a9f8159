/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients say: whom a TLS greeting or an HTTP head names, where the policy is one of names, and questions to the resolver.
 *
 * A name is believed when the resolver gave out this very address for it to this very box, and the policy allows it. Until it is
 * read nothing of the client goes on; the other direction flows, as servers of mail or ssh speak first. It is read by peeking: the
 * bytes stay in the socket.
 */
#include "net/gateway.h"
#include "net/sniff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DNS_WAIT_MS = 60000, DNS_RUNNING_MAX = 16, DNS_OUT_MAX = 256 << 10 };

void say_begin(struct conn *c)
{
	/* Without a deadline before its first byte: others wait for the server. */
	c->until = 0;
	link_add(&c->t.box->g->saying, &c->waits);
}

static void agreed(struct conn *c)
{
	c->say = false;
	c->named = true;
	link_del(&c->waits);
	conn_young(c);
	conn_pump(c);
}

static bool stands_for(const struct conn *c, const char *name)
{
	const char *names[NAMES_PER_ADDR];
	size_t n = names_of(c->t.box->names, &c->t.addr, names, NAMES_PER_ADDR);

	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

static bool may_name(const struct conn *c, const char *name)
{
	struct decision d;
	bool allow;

	policy_judge_name(c->t.box->policy, name, c->t.port, &d);
	if (d.verdict == VERDICT_ALLOW)
		return true;
	return d.verdict == VERDICT_ASK && grant_find(c->t.box, name, c->t.port, &allow) && allow;
}

static void judge_name(struct conn *c, const char *name, const char *where)
{
	char why[HOST_NAME_MAX_LEN + 128];

	if (!*name) {
		(void)snprintf(why, sizeof(why), "%s names nobody, and the policy is one of names", where);
	} else if (!may_name(c, name)) {
		(void)snprintf(why, sizeof(why), "%s names %s, which the policy does not allow", where, name);
	} else if (!stands_for(c, name)) {
		(void)snprintf(why, sizeof(why), "%s names %s, which this address was not given out for", where, name);
	} else {
		tale_text(&c->t.host, name);
		agreed(c);
		return;
	}
	if (*name)
		tale_text(&c->t.host, name);
	conn_end(c, "cut", why);
}

void say_look(struct conn *c)
{
	struct gw *g = c->t.box->g;
	char name[HOST_NAME_MAX_LEN + 1] = "";
	ssize_t n = recv(c->fd[0], g->buf, SNIFF_MAX, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			conn_end(c, "reset", "");
		return;
	}
	if (n == 0) {	/* it ended without a word */
		agreed(c);
		return;
	}
	if (!c->until) {
		c->until = clock_ms() + SAY_MS;
		gw_tick(g);
	}
	switch (sniff(g->buf, (size_t)n, name)) {
	case SNIFF_MORE:
		if ((size_t)n >= SNIFF_MAX)
			conn_end(c, "cut", "what the client says first is longer than any greeting");
		else if (c->ended[0])
			conn_end(c, "cut", "the client ended before it said whom it talks to");
		break;
	case SNIFF_TLS:
		judge_name(c, name, "the TLS greeting");
		break;
	case SNIFF_HTTP:
		judge_name(c, name, "the HTTP request");
		break;
	case SNIFF_OTHER:
		if (c->t.port == 80 || c->t.port == 443)
			conn_end(c, "cut", "neither TLS nor HTTP, so it can't be told whom the client talks to");
		else
			agreed(c);
		break;
	default:
		conn_end(c, "cut", "what the client says first breaks the rules of TLS or HTTP");
		break;
	}
}

/* ---- the resolver over UDP */

struct dnsq {
	struct link mine;	/* gbox.dnsqs, or dns_tcp.running */
	struct gbox *box;
	/* UDP */
	struct ip src, dst;
	uint16_t sport;
	/* TCP */
	struct conn *c;
};

static void udp_answer(void *arg, const void *msg, size_t n)
{
	struct dnsq *q = arg;
	uint8_t head[PKT_HEAD_MAX];
	size_t nhead;

	if (n) {
		nhead = pkt_udp(&q->dst, 53, &q->src, q->sport, msg, n, head);
		if (nhead)
			send_to_box(q->box, head, nhead, msg, n);
	}
	link_del(&q->mine);
	free(q);
}

void dns_udp(struct gbox *b, const struct ip *src, uint16_t sport, const struct ip *dst, const void *msg, size_t n)
{
	struct dnsq *q = calloc(1, sizeof(*q));

	if (!q)
		return;
	q->box = b;
	q->src = *src;
	q->dst = *dst;
	q->sport = sport;
	link_add(&b->dnsqs, &q->mine);
	names_query(b->names, msg, n, NAMES_UDP_MAX, udp_answer, q);
}

void dns_forget(struct gbox *b)
{
	LINK_EACH(l, tmp, &b->dnsqs) {
		link_del(l);
		free(LINK_OF(l, struct dnsq, mine));
	}
}

/* ---- and over TCP: frames of 2 bytes of length (RFC 1035, 4.2.2; RFC 7766) */

struct dns_tcp {
	struct link running;
	unsigned nrunning;
	uint8_t *in;
	size_t have, room;
	uint64_t got;	/* bytes of this connection so far */
	struct buf out;
	bool busy;	/* dns_tcp_step() is on the stack */
};

static void tcp_answer(void *arg, const void *msg, size_t n)
{
	struct dnsq *q = arg;
	struct conn *c = q->c;
	struct dns_tcp *d = c->dns;

	link_del(&q->mine);
	free(q);
	d->nrunning--;
	if (n && n <= NAMES_MSG_MAX) {
		const uint8_t head[2] = { (uint8_t)(n >> 8), (uint8_t)n };

		(void)buf_put(&d->out, head, 2);
		(void)buf_put(&d->out, msg, n);
	}
	if (!d->busy)
		dns_tcp_step(c);
}

void dns_tcp_open(struct conn *c)
{
	struct dns_tcp *d = calloc(1, sizeof(*d));

	if (!d) {
		conn_end(c, "reset", "");
		return;
	}
	d->out.max = DNS_OUT_MAX;
	link_init(&d->running);
	c->dns = d;
	c->until = clock_ms() + DNS_IDLE_MS;
	link_add(&c->t.box->g->saying, &c->waits);
	gw_tick(c->t.box->g);
}

void dns_tcp_done(struct conn *c)
{
	struct dns_tcp *d = c->dns;

	LINK_EACH(l, tmp, &d->running) {
		struct dnsq *q = LINK_OF(l, struct dnsq, mine);

		names_forget(c->t.box->names, q);
		link_del(l);
		free(q);
	}
	buf_done(&d->out);
	free(d->in);
	free(d);
	c->dns = NULL;
}

/* Whole frames go to the resolver. */
static int take_frames(struct conn *c)
{
	struct dns_tcp *d = c->dns;
	size_t at = 0;

	while (d->have - at >= 2 && d->nrunning < DNS_RUNNING_MAX && d->out.len < DNS_OUT_MAX / 4) {
		size_t n = (size_t)d->in[at] << 8 | d->in[at + 1];
		struct dnsq *q;

		if (n == 0 || n > DNS_IN_MAX)
			return -EBADMSG;
		if (d->have - at - 2 < n)
			break;
		q = calloc(1, sizeof(*q));
		if (!q)
			return -ENOMEM;
		q->box = c->t.box;
		q->c = c;
		link_add(&d->running, &q->mine);
		d->nrunning++;
		names_query(c->t.box->names, d->in + at + 2, n, NAMES_MSG_MAX, tcp_answer, q);
		at += 2 + n;
		/* A question's time counts from the end of the one before, not from its last byte. */
		c->until = clock_ms() + DNS_IDLE_MS;
	}
	if (at) {
		memmove(d->in, d->in + at, d->have - at);
		d->have -= at;
	}
	return 0;
}

static int read_some(struct conn *c)
{
	struct dns_tcp *d = c->dns;
	struct way *x = &c->way[0];

	while (c->readable[0] && !x->eof) {
		ssize_t n;

		if (d->have == d->room) {
			size_t room = d->room ? d->room * 2 : 1024;
			uint8_t *more;

			if (room > 2 * DNS_IN_MAX)
				room = 2 * DNS_IN_MAX;
			if (room == d->room)
				return 0;
			more = realloc(d->in, room);
			if (!more)
				return -ENOMEM;
			d->in = more;
			d->room = room;
		}
		n = recv(c->fd[0], d->in + d->have, d->room - d->have, MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN) {
			c->readable[0] = false;
		} else if (n < 0 && errno != EINTR) {
			return -errno;
		} else if (n == 0) {
			x->eof = true;
		} else if (n > 0) {
			d->have += (size_t)n;
			d->got += (uint64_t)n;
		}
	}
	return 0;
}

static int write_some(struct conn *c)
{
	struct dns_tcp *d = c->dns;

	while (d->out.len && c->writable[0]) {
		ssize_t n = send(c->fd[0], d->out.data, d->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n >= 0) {
			buf_drop(&d->out, (size_t)n);
			c->until = clock_ms() + DNS_IDLE_MS;
		} else if (errno == EAGAIN) {
			c->writable[0] = false;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

void dns_tcp_step(struct conn *c)
{
	struct dns_tcp *d = c->dns;
	size_t before;
	uint64_t got;
	int r;

	d->busy = true;
	/* As long as anything comes or goes: what was read whole and answered at once left no trace in `have`. */
	do {
		before = d->have;
		got = d->got;
		r = read_some(c);
		if (r == 0)
			r = take_frames(c);
		if (r == 0)
			r = write_some(c);
	} while (r == 0 && (d->have != before || d->got != got));
	d->busy = false;
	if (r == 0)
		r = buf_error(&d->out);
	if (r < 0)
		conn_end(c, "reset", "");
	else if (d->nrunning)
		c->until = clock_ms() + DNS_WAIT_MS;
	else if (c->way[0].eof && !d->nrunning && !d->out.len)
		conn_end(c, "closed", "");
}
