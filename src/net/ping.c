/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ping. Echo requests of a box go out through ping sockets (icmp(7): net.ipv4.ping_group_range has to hold the gateway's group), which
 * take no other ICMP; the answers are written here, with the box's own id. A tunnel through echo messages gets as far as the policy lets
 * any connection get, and no further.
 */
#include "net/gateway.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { AGAIN_MS = 60000, ROUNDS = 16 };

static void ping_unreachable(struct gbox *b, enum pkt_no no, const void *pkt, size_t n, bool six)
{
	uint8_t out[PKT_ERROR_MAX];
	struct ip from;

	if (ip_parse(six ? NET_GATEWAY6 : NET_GATEWAY4, &from) == 0)
		send_to_box(b, out, pkt_error(&from, no, pkt, n, out), NULL, 0);
}

static void pong(void *arg, uint32_t ev)
{
	struct flow *f = arg;
	struct gbox *b = f->t.box;
	uint8_t head[PKT_HEAD_MAX], ctl[512], *buf = b->g->buf;

	(void)ev;
	for (unsigned i = 0; i < ROUNDS; i++) {
		ssize_t n = recv(f->fd, buf, sizeof(b->g->buf), MSG_DONTWAIT);
		size_t len;

		if (n < 0) {
			struct iovec iov = { buf, sizeof(b->g->buf) };
			struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
			int code = errno;
			ssize_t k;

			if (code == EAGAIN)
				return;
			/* What it was about is in the queue of errors: the request that the kernel sent, with the kernel's id. */
			k = recvmsg(f->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT);
			if (k >= 8 && (code == EHOSTUNREACH || code == ENETUNREACH || code == EACCES)) {
				uint8_t about[PKT_HEAD_MAX + 8], echo[8] = { 0 };

				memcpy(echo, buf, 8);
				len = pkt_echo_reply(f->six ? &b->v6 : &b->v4, &f->t.addr, f->t.sport, echo, 8, about);
				if (!len)
					continue;
				echo[0] = f->six ? 128 : 8;
				memcpy(about + len, echo, 8);
				ping_unreachable(b, code == EHOSTUNREACH ? PKT_NO_HOST : code == ENETUNREACH ? PKT_NO_NET : PKT_NO_ADMIN, about,
						 len + 8, f->six);
			}
			continue;
		}
		len = pkt_echo_reply(&f->t.addr, f->six ? &b->v6 : &b->v4, f->t.sport, buf, (size_t)n, head);
		if (!len || box_room(b, 1, (size_t)n) < (size_t)n)
			continue;
		f->t.down += (size_t)n;
		box_moved(b, 1, (size_t)n);
		flow_used(f);
		send_to_box(b, head, len, buf, (size_t)n);
	}
}

static int open_ping(const struct ip *a)
{
	struct sockaddr_storage ss;
	socklen_t len = ip_sockaddr(a, 0, &ss);
	const bool four = ip_is4(a);
	OWN_FD fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, four ? IPPROTO_ICMP : IPPROTO_ICMPV6);
	const int on = 1;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, four ? IPPROTO_IP : IPPROTO_IPV6, four ? IP_RECVERR : IPV6_RECVERR, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&ss, len) < 0)
		return -errno;
	return fd_take(&fd);
}

static struct flow *ping_begin(struct gbox *b, const struct pkt_echo *e, const uint8_t *pkt, size_t n)
{
	struct gw *g = b->g;
	char name[HOST_NAME_MAX_LEN + 1];
	const bool six = !ip_is4(&e->dst);
	const char *why = "", *end = "refused";
	enum pkt_no no = PKT_NO_ADMIN;
	struct flow *f = NULL;
	struct decision d;
	struct tale t;
	int fd;

	tale_init(&t, b, PROTO_ICMP, &e->dst, 0, e->id);
	box_judge(b, &e->dst, 0, &d, name);
	tale_text(&t.host, name);
	tale_text(&t.rule, d.rule);
	if (d.verdict != VERDICT_ALLOW || d.to_host) {
		why = d.verdict == VERDICT_ASK ? "the policy asks, and for a ping nobody is asked" : d.why;
	} else if (g->proxy.kind != PROXY_NONE && !d.lan) {
		why = "this host goes out through a proxy, which does not take pings";
	} else if (g->ping_refused > clock_ms()) {
		why = "this host gives no ping sockets (net.ipv4.ping_group_range)";
	} else if (!box_token(b)) {
		why = "more new connections in a second than the box may open";
	} else {
		fd = open_ping(&e->dst);
		if (fd >= 0) {
			f = flow_new(&t, fd, pong, &why);
		} else if (fd == -EACCES || fd == -EPERM || fd == -EPROTONOSUPPORT) {
			g->ping_refused = clock_ms() + AGAIN_MS;
			why = "this host gives no ping sockets (net.ipv4.ping_group_range)";
		} else {
			why = strerror(-fd);
			end = "unreachable";
			no = fd == -EHOSTUNREACH ? PKT_NO_HOST : PKT_NO_NET;
		}
	}
	if (f)
		return f;
	ping_unreachable(b, no, pkt, n, six);
	log_refused(g, &t, why, end);
	tale_done(&t);
	return NULL;
}

/* The gateway's own address, and a box's pings to it: answered here. */
static bool is_gateway(const struct ip *a)
{
	struct ip g;

	return ip_parse(ip_is4(a) ? NET_GATEWAY4 : NET_GATEWAY6, &g) == 0 && ip_same(a, &g);
}

void ping_in(struct gbox *b, const struct pkt_echo *e, const uint8_t *pkt, size_t n)
{
	struct flow *f;

	if (group_addr(&e->dst) || !ip_same(&e->src, ip_is4(&e->src) ? &b->v4 : &b->v6))
		return;
	if (is_gateway(&e->dst)) {
		uint8_t head[PKT_HEAD_MAX], *body = b->g->buf + (e->body - pkt);
		size_t len = pkt_echo_reply(&e->dst, &e->src, e->id, body, e->len, head);

		if (len)
			send_to_box(b, head, len, body, e->len);
		return;
	}
	f = flow_find(b, PROTO_ICMP, e->id, &e->dst, 0);
	if (!f)
		f = ping_begin(b, e, pkt, n);
	if (!f || box_room(b, 0, e->len) < e->len)
		return;
	flow_used(f);
	if (send(f->fd, e->body, e->len, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
		f->t.up += e->len;
		box_moved(b, 0, e->len);
	}
}
