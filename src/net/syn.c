/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First packets. nft has dropped the SYN and a packet socket has a copy of it: the box's connect() waits. It is judged here, the far end is
 * dialled, and when that has answered the very SYN is put back through go0, where TPROXY leads it to the listener. So connect() succeeds when
 * the far end took the connection, and fails as it fails outside. What the box's kernel sends again meanwhile meets the
 * connection that waits.
 */
#include "net/gateway.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYN_BATCH = 256, ACCEPT_BATCH = 128 };

bool group_addr(const struct ip *a)
{
	if (ip_is4(a)) {
		uint32_t v = ip_get4(a);

		return v >> 28 == 14 || v == 0xffffffff || v >> 24 == 0;
	}
	static const struct ip nobody;

	return a->b[0] == 0xff || ip_same(a, &nobody);
}

static struct link *bucket(struct gw *g, const struct pkt_syn *s)
{
	uint8_t key[32];

	memcpy(key, s->src.b, 16);
	memcpy(key + 16, s->dst.b, 16);
	return &g->first[gw_hash(g, key, sizeof(key), (uint64_t)s->sport << 16 | s->dport) % FIRST_BUCKETS];
}

static struct conn *find(struct gw *g, const struct pkt_syn *s)
{
	LINK_EACH(l, tmp, bucket(g, s)) {
		struct conn *c = LINK_OF(l, struct conn, bucket);
		const struct pkt_syn *o = &c->syn->s;

		if (o->sport == s->sport && o->dport == s->dport && ip_same(&o->src, &s->src) && ip_same(&o->dst, &s->dst))
			return c;
	}
	return NULL;
}

static void put_back(struct conn *c)
{
	struct gw *g = c->t.box->g;
	const struct sockaddr_ll *to = c->syn->s.ip_len == 20 ? &g->to_go4 : &g->to_go6;

	(void)sendto(g->w.out, c->syn->pkt, c->syn->len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof(*to));
}

static void send_reset(struct gbox *b, const uint8_t *syn, const struct pkt_syn *s)
{
	uint8_t out[PKT_SYN_MAX];

	send_to_box(b, out, pkt_reset(syn, s, out), NULL, 0);
}

static void send_unreachable(struct conn *c)
{
	uint8_t out[PKT_ERROR_MAX];
	struct ip from;

	if (ip_parse(c->syn->s.ip_len == 20 ? NET_GATEWAY4 : NET_GATEWAY6, &from) < 0)
		return;
	send_to_box(c->t.box, out, pkt_error(&from, (enum pkt_no)c->no, c->syn->pkt, c->syn->len, out), NULL, 0);
}

void conn_go_on(struct conn *c)
{
	struct gbox *b = c->t.box;

	if (c->state != CONN_PUT) {
		if (b->nput >= PUT_MAX) {
			c->state = CONN_READY;
			c->until = clock_ms() + PUT_MS;
			return;
		}
		c->state = CONN_PUT;
		c->until = clock_ms() + PUT_MS;
		b->nput++;
	}
	put_back(c);
}

void conn_refuse(struct conn *c, const char *why)
{
	send_reset(c->t.box, c->syn->pkt, &c->syn->s);
	log_refused(c->t.box->g, &c->t, why, "refused");
	conn_end(c, NULL, "");
}

void conn_fail(struct conn *c, int code)
{
	const char *end = "unreachable", *why = "";

	switch (-code) {
	case EHOSTUNREACH:
	case EHOSTDOWN:
		c->no = PKT_NO_HOST;
		break;
	case ENETUNREACH:
	case ENETDOWN:
	case EAFNOSUPPORT:
		c->no = PKT_NO_NET;
		break;
	case EACCES:
	case EPERM:
		c->no = PKT_NO_ADMIN;
		why = "a rule of the host's firewall";
		break;
	case ETIMEDOUT:
		log_end(&c->t, "", "timeout");
		conn_end(c, NULL, "");
		return;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
	case EADDRNOTAVAIL:
		why = "the host is out of descriptors, memory or ports";
		__attribute__((fallthrough));
	default:
		send_reset(c->t.box, c->syn->pkt, &c->syn->s);
		log_end(&c->t, why, "refused");
		conn_end(c, NULL, "");
		return;
	}
	log_end(&c->t, why, end);
	/*
	 * A connect() that is still on its way through the box's kernel only takes note of an ICMP error (tcp_v4_err() of a socket
	 * that is in use), and would wait for a second: so it is told once more.
	 */
	c->state = CONN_FAILED;
	c->until = clock_ms() + ICMP_AGAIN_MS;
	loop_del(c->t.box->g->loop, &c->io[1]);
	fd_close(&c->fd[1]);
	send_unreachable(c);
}

void syn_expired(struct conn *c)
{
	if (c->kind == CONN_IN) {
		conn_end(c, "timeout", "");
		return;
	}
	switch (c->state) {
	case CONN_DIAL:
	case CONN_PROXY:
		conn_fail(c, -ETIMEDOUT);
		break;
	case CONN_FAILED:
		send_unreachable(c);
		conn_end(c, NULL, "");
		break;
	case CONN_READY:
	case CONN_PUT:
		conn_end(c, "timeout", "the box did not go on");
		break;
	default:
		c->until = 0;
		break;
	}
}

static void again(struct conn *c, const uint8_t *pkt, const struct pkt_syn *s)
{
	/* With the same ports it may be another connection: the newest SYN counts. */
	c->syn->s = *s;
	c->syn->len = (uint16_t)pkt_clean_syn(pkt, s, c->syn->pkt);
	if (c->state == CONN_PUT || c->state == CONN_READY)
		conn_go_on(c);
	else if (c->state == CONN_FAILED)
		send_unreachable(c);
}

static void refuse(struct gbox *b, const uint8_t *pkt, const struct pkt_syn *s, const struct tale *t, const char *why)
{
	send_reset(b, pkt, s);
	log_refused(b->g, t, why, "refused");
}

static void allowed(struct conn *c, const struct decision *d)
{
	c->to_host = d->to_host;
	c->direct = d->lan || d->to_host;
	c->say = d->by_name;
	who_ask(&c->t);
	dial(c);
}

static void first_packet(struct gbox *b, const uint8_t *pkt, const struct pkt_syn *s)
{
	struct gw *g = b->g;
	char name[HOST_NAME_MAX_LEN + 1];
	struct decision d = { .verdict = VERDICT_ALLOW, .rule = "" };
	struct conn *c;
	struct tale t;

	if (!ip_same(&s->src, s->ip_len == 20 ? &b->v4 : &b->v6) || group_addr(&s->dst))
		return;
	c = find(g, s);
	if (c) {
		again(c, pkt, s);
		return;
	}
	tale_init(&t, b, PROTO_TCP, &s->dst, s->dport, s->sport);
	name[0] = '\0';
	if (s->dport != 53)
		box_judge(b, &s->dst, s->dport, &d, name);
	tale_text(&t.host, name);
	tale_text(&t.rule, d.rule);
	if (d.verdict == VERDICT_REFUSE) {
		refuse(b, pkt, s, &t, d.why);
	} else if (b->conns_max && b->nconns >= b->conns_max) {
		refuse(b, pkt, s, &t, "the box has as many connections as it may have");
	} else if (s->dport == 53 && b->ndns >= DNS_CONNS_MAX) {
		refuse(b, pkt, s, &t, "the box has as many connections to the resolver as it may have");
	} else if (!fds_left(g, 2 * b->nconns + b->nflows, 2)) {
		refuse(b, pkt, s, &t, "the gateway is out of descriptors");
	} else if (!box_token(b)) {
		/* Silence: it comes again in a second, and in two. */
		log_refused(g, &t, "more new connections in a second than the box may open", "timeout");
	} else {
		c = conn_new(b, s->dport == 53 ? CONN_DNS : CONN_OUT);
		if (c)
			c->syn = malloc(sizeof(*c->syn));
		if (!c || !c->syn) {
			refuse(b, pkt, s, &t, "the gateway is out of memory");
			if (c)
				conn_end(c, NULL, "");
			tale_done(&t);
			return;
		}
		c->t = t;
		c->syn->s = *s;
		c->syn->len = (uint16_t)pkt_clean_syn(pkt, s, c->syn->pkt);
		link_add(bucket(g, s), &c->bucket);
		link_add(&g->waiting, &c->waits);
		gw_tick(g);
		if (c->kind == CONN_DNS) {
			conn_go_on(c);
		} else if (d.verdict == VERDICT_ASK) {
			c->state = CONN_ASK;
			if (!ask_conn(c, name))
				conn_refuse(c, "nobody can be asked now");
		} else {
			c->asked = strcmp(d.rule, "asked") == 0;
			allowed(c, &d);
		}
		return;
	}
	tale_done(&t);
}

void syn_answered(struct conn *c, bool allow)
{
	struct decision d;
	char name[HOST_NAME_MAX_LEN + 1];

	if (!allow) {
		conn_refuse(c, "a person refused it");
		return;
	}
	/* The answer is remembered as a grant, but the address may have become forbidden while it was held. */
	box_judge(c->t.box, &c->t.addr, c->t.port, &d, name);
	if (d.verdict != VERDICT_ALLOW) {
		conn_refuse(c, d.why);
		return;
	}
	c->asked = true;
	tale_text(&c->t.rule, d.rule);
	allowed(c, &d);
}

void syn_ready(struct gw *g, int fd)
{
	gw_read_all(g);
	for (unsigned i = 0; i < SYN_BATCH; i++) {
		struct sockaddr_ll from;
		socklen_t len = sizeof(from);
		struct pkt_echo echo;
		struct pkt_syn syn;
		struct gbox *b;
		ssize_t n = recvfrom(fd, g->buf, sizeof(g->buf), MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &len);

		if (n < 0) {
			if (errno == EAGAIN)
				return;
			continue;
		}
		b = box_by_if(g, from.sll_ifindex);
		if (!b || (size_t)n > sizeof(g->buf) || from.sll_pkttype != PACKET_HOST || !box_first(b))
			continue;
		if (pkt_read_syn(g->buf, (size_t)n, &syn) == 0)
			first_packet(b, g->buf, &syn);
		else if (pkt_read_echo(g->buf, (size_t)n, &echo) == 0)
			ping_in(b, &echo, g->buf, (size_t)n);
	}
}

static void accepted(struct gw *g, int fd, const struct sockaddr_storage *peer)
{
	struct sockaddr_storage local;
	socklen_t len = sizeof(local);
	struct pkt_syn s = { .ip_len = 0 };
	struct conn *c;

	if (getsockname(fd, (struct sockaddr *)&local, &len) < 0 ||
	    ip_of_sockaddr((const struct sockaddr *)peer, &s.src, &s.sport) < 0 ||
	    ip_of_sockaddr((const struct sockaddr *)&local, &s.dst, &s.dport) < 0) {
		reset_fd(&fd);
		return;
	}
	c = find(g, &s);
	/* One that was given up meanwhile. */
	if (!c || c->state != CONN_PUT) {
		reset_fd(&fd);
		return;
	}
	c->t.box->nput--;
	c->state = CONN_OPEN;
	c->until = 0;
	link_del(&c->waits);
	link_del(&c->bucket);
	free(c->syn);
	c->syn = NULL;
	if (conn_take(c, 0, fd) < 0) {
		conn_end(c, "reset", "the gateway is out of memory");
		return;
	}
	if (c->kind == CONN_DNS)
		dns_tcp_open(c);
	else
		conn_open(c);
}

void accept_ready(struct gw *g, int fd)
{
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int s = accept4(fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (s < 0) {
			if (errno == EAGAIN)
				return;
			/* Out of descriptors: the reserve is there so that it doesn't come to that. The others come at the next turn. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				return;
			continue;
		}
		accepted(g, s, &peer);
	}
}
