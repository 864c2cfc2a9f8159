/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UDP: a flow for each (box, its port, far address, far port), with one connected socket on the host's side, so that the kernel matches
 * answers and ICMP errors. Answers are packets that the gateway writes: they come from where the box sent to.
 */
#include "net/gateway.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif
#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif

enum { BATCH = 16, BATCHES = 8, MSG_BYTES = 65536, CTL_BYTES = 256, EVICT_AFTER_MS = 2000 };

struct batch {
	struct mmsghdr m[BATCH];
	struct iovec iov[BATCH][2];
	struct sockaddr_storage from[BATCH];
	struct sockaddr_ll to[BATCH];
	_Alignas(8) uint8_t ctl[BATCH][CTL_BYTES];
	uint8_t head[BATCH][PKT_HEAD_MAX];
	uint8_t data[BATCH][MSG_BYTES];
};

/* musl's wrappers of these two send one message at a time. The kernel reads msg_iovlen as a long: `m` was zeroed. */
static int recv_batch(int fd, struct mmsghdr *m, unsigned n)
{
	return (int)syscall(SYS_recvmmsg, fd, m, n, MSG_DONTWAIT, NULL);
}

static int send_batch(int fd, struct mmsghdr *m, unsigned n)
{
	return (int)syscall(SYS_sendmmsg, fd, m, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static struct batch *batch_of(struct gw *g)
{
	if (!g->batch)
		g->batch = calloc(1, sizeof(*g->batch));
	return g->batch;
}

/* ---- flows, also those of ping */

static struct link *bucket(struct gw *g, const struct gbox *b, enum proto proto, uint16_t sport, const struct ip *addr, uint16_t port)
{
	uint64_t more = (uint64_t)b->ifindex << 34 | (uint64_t)proto << 32 | (uint64_t)sport << 16 | port;

	return &g->flows[gw_hash(g, addr->b, sizeof(addr->b), more) % FLOW_BUCKETS];
}

struct flow *flow_find(struct gbox *b, enum proto proto, uint16_t sport, const struct ip *addr, uint16_t port)
{
	LINK_EACH(l, tmp, bucket(b->g, b, proto, sport, addr, port)) {
		struct flow *f = LINK_OF(l, struct flow, bucket);

		if (f->t.box == b && f->t.proto == proto && f->t.sport == sport && f->t.port == port && ip_same(&f->t.addr, addr))
			return f;
	}
	return NULL;
}

void flow_used(struct flow *f)
{
	f->used = clock_ms();
	link_del(&f->mine);
	link_add(&f->t.box->flows, &f->mine);
}

static bool full(struct gbox *b)
{
	return (b->flows_max && b->nflows >= b->flows_max) || !fds_left(b->g, 2 * b->nconns + b->nflows, 1);
}

struct flow *flow_new(const struct tale *t, int fd, void (*ready)(void *, uint32_t), const char **ret_why)
{
	struct gbox *b = t->box;
	struct gw *g = b->g;
	struct flow *f;

	*ret_why = "";
	/* Like every table of flows: the one that was used least recently makes room, if it rests. */
	if (full(b) && !link_none(&b->flows)) {
		struct flow *old = LINK_OF(b->flows.next, struct flow, mine);

		if (clock_ms() - old->used >= EVICT_AFTER_MS)
			flow_end(old, "idle", "");
	}
	f = full(b) ? NULL : calloc(1, sizeof(*f));
	if (!f) {
		*ret_why = "the box has as many flows as it may have";
		(void)close(fd);
		return NULL;
	}
	if (loop_add(g->loop, &f->io, fd, EPOLLIN, ready, f) < 0) {
		*ret_why = "the gateway is out of memory";
		(void)close(fd);
		free(f);
		return NULL;
	}
	f->fd = fd;
	f->t = *t;
	f->six = !ip_is4(&t->addr);
	link_add(bucket(g, b, t->proto, t->sport, &t->addr, t->port), &f->bucket);
	link_add(&b->flows, &f->mine);
	f->used = clock_ms();
	b->nflows++;
	g->nfds++;
	b->totals.allowed++;
	who_ask(&f->t);
	gw_tick(g);
	return f;
}

void flow_end(struct flow *f, const char *end, const char *why)
{
	struct gbox *b = f->t.box;

	log_end(&f->t, why, end);
	loop_del(b->g->loop, &f->io);
	fd_close(&f->fd);
	link_del(&f->mine);
	link_del(&f->bucket);
	b->nflows--;
	b->g->nfds--;
	tale_done(&f->t);
	free(f);
}

void flows_sweep(struct gw *g, uint64_t now)
{
	LINK_EACH(lb, tmpb, &g->boxes) {
		struct gbox *b = LINK_OF(lb, struct gbox, all);

		LINK_EACH(l, tmp, &b->flows) {
			struct flow *f = LINK_OF(l, struct flow, mine);
			uint64_t idle = now - f->used;

			/* In the order of their use: nobody behind this one has rested longer. */
			if (idle < UDP_MS)
				break;
			if (f->t.proto != PROTO_UDP || f->answers < 2 || idle >= UDP_LONG_MS)
				flow_end(f, "idle", "");
		}
	}
}

/* ---- from the far end to the box */

static void unreachable(struct flow *f, int code)
{
	uint8_t head[PKT_HEAD_MAX + 8] = { 0 }, out[PKT_ERROR_MAX];
	static const uint8_t none[8];
	struct gbox *b = f->t.box;
	struct ip from = f->t.addr;
	enum pkt_no no;
	size_t n;

	switch (code) {
	case ECONNREFUSED:
		no = PKT_NO_PORT;
		break;
	case EHOSTUNREACH:
		no = PKT_NO_HOST;
		break;
	case ENETUNREACH:
		no = PKT_NO_NET;
		break;
	case EACCES:
	case EPERM:
		no = PKT_NO_ADMIN;
		break;
	default:
		return;
	}
	if (no != PKT_NO_PORT && ip_parse(f->six ? NET_GATEWAY6 : NET_GATEWAY4, &from) < 0)
		return;
	/* The beginning of what the box sent: its headers are known. */
	n = pkt_udp(f->six ? &b->v6 : &b->v4, f->t.sport, &f->t.addr, f->t.port, none, 0, head);
	send_to_box(b, out, pkt_error(&from, no, head, n, out), NULL, 0);
}

static void flow_error(struct flow *f, int code)
{
	uint8_t ctl[512];
	struct msghdr m = { .msg_control = ctl, .msg_controllen = sizeof(ctl) };

	/* What is queued with it (IP_RECVERR, ip(7)) says the same. */
	for (unsigned i = 0; i < 64; i++) {
		m.msg_controllen = sizeof(ctl);
		if (recvmsg(f->fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			break;
	}
	unreachable(f, code);
}

static void flow_ready(void *arg, uint32_t ev)
{
	struct flow *f = arg;
	struct gbox *b = f->t.box;
	struct batch *x = batch_of(b->g);
	uint16_t family = f->six ? 0x86dd : 0x0800;
	unsigned errors = 0;

	(void)ev;
	if (!x)
		return;
	for (unsigned round = 0; round < BATCHES; round++) {
		int n, out = 0;

		for (unsigned i = 0; i < BATCH; i++) {
			x->iov[i][1] = (struct iovec){ x->data[i], MSG_BYTES };
			memset(&x->m[i], 0, sizeof(x->m[i]));
			x->m[i].msg_hdr.msg_iov = &x->iov[i][1];
			x->m[i].msg_hdr.msg_iovlen = 1;
		}
		n = recv_batch(f->fd, x->m, BATCH);
		if (n < 0) {
			if (errno == EAGAIN || errors++ == 4)
				break;
			flow_error(f, errno);
			continue;
		}
		for (int i = 0; i < n; i++) {
			size_t len = x->m[i].msg_len;
			size_t head = pkt_udp(&f->t.addr, f->t.port, f->six ? &b->v6 : &b->v4, f->t.sport, x->data[i], len, x->head[i]);

			if (head == 0 || (x->m[i].msg_hdr.msg_flags & MSG_TRUNC) || box_room(b, 1, len) < len)
				continue;
			f->t.down += len;
			box_moved(b, 1, len);
			x->to[out] = world_to(b->ifindex, family);
			x->iov[i][0] = (struct iovec){ x->head[i], head };
			x->iov[i][1].iov_len = len;
			x->m[out].msg_hdr = (struct msghdr){
				.msg_name = &x->to[out], .msg_namelen = sizeof(x->to[out]), .msg_iov = x->iov[i], .msg_iovlen = 2,
			};
			out++;
		}
		/* What its queue doesn't take is lost, as in any network. */
		if (out > 0)
			(void)send_batch(b->g->w.out, x->m, (unsigned)out);
		if (n > 0) {
			flow_used(f);
			if (f->answers < 2)
				f->answers++;
		}
		if (n < BATCH)
			break;
	}
}

/* ---- from the box to the far end */

static int open_far(const struct tale *t, bool to_host)
{
	struct sockaddr_storage ss;
	struct ip a = t->addr;
	socklen_t len;
	OWN_FD fd = FD_NONE;
	const int on = 1;

	if (to_host && ip_parse("127.0.0.1", &a) < 0)
		return -EINVAL;
	len = ip_sockaddr(&a, t->port, &ss);
	fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (ss.ss_family == AF_INET)
		(void)setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
	else
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
	if (connect(fd, (const struct sockaddr *)&ss, len) < 0)
		return -errno;
	return fd_take(&fd);
}

static struct flow *flow_begin(struct tale *t, int *ret_code, const char **ret_why, char *text, size_t room)
{
	struct gbox *b = t->box;
	char name[HOST_NAME_MAX_LEN + 1];
	struct decision d;
	struct flow *f;
	int fd;

	*ret_code = ECONNREFUSED;
	*ret_why = text;
	box_judge(b, &t->addr, t->port, &d, name);
	tale_text(&t->host, name);
	tale_text(&t->rule, d.rule);
	if (d.verdict == VERDICT_REFUSE) {
		(void)snprintf(text, room, "%s", d.why);
		return NULL;
	}
	if (d.verdict == VERDICT_ASK) {
		*ret_code = 0;
		*ret_why = NULL;
		ask_flow(t, name);
		return NULL;
	}
	if (d.by_name && t->port == 443) {
		*ret_why = "QUIC does not say readably whom it talks to, and the policy is one of names (clients fall back to TCP)";
		return NULL;
	}
	if (b->g->proxy.kind != PROXY_NONE && !d.lan && !d.to_host) {
		*ret_why = "this host goes out through a proxy, which does not take UDP";
		return NULL;
	}
	if (!box_token(b)) {
		*ret_code = 0;
		*ret_why = "more new connections in a second than the box may open";
		return NULL;
	}
	fd = open_far(t, d.to_host);
	if (fd < 0) {
		*ret_code = -fd;
		(void)snprintf(text, room, "%s", strerror(-fd));
		return NULL;
	}
	f = flow_new(t, fd, flow_ready, ret_why);
	if (f) {
		f->to_host = d.to_host;
		f->asked = strcmp(d.rule, "asked") == 0;
	}
	return f;
}

static void datagram(struct gbox *b, const struct ip *src, uint16_t sport, const struct ip *dst, uint16_t dport, const uint8_t *data,
		     size_t n)
{
	struct flow *f;

	if (group_addr(dst) || sport == 0 || dport == 0 || !ip_same(src, ip_is4(src) ? &b->v4 : &b->v6))
		return;
	if (dport == 53) {
		if (box_first(b))
			dns_udp(b, src, sport, dst, data, n);
		return;
	}
	f = flow_find(b, PROTO_UDP, sport, dst, dport);
	if (!f && !box_first(b))
		return;
	if (!f) {
		const char *why;
		char text[160];
		struct tale t;
		int code;

		tale_init(&t, b, PROTO_UDP, dst, dport, sport);
		f = flow_begin(&t, &code, &why, text, sizeof(text));
		if (!f) {
			struct flow no = { .t = t, .six = !ip_is4(dst) };

			if (code)
				unreachable(&no, code);
			if (why)
				log_refused(b->g, &t, why, code == ECONNREFUSED ? "refused" : code ? "unreachable" : "timeout");
			tale_done(&t);
			return;
		}
	}
	if (box_room(b, 0, n) < n)
		return;
	flow_used(f);
	/* An error that is waiting is told by this call, and the datagram isn't sent: once more. */
	for (unsigned i = 0; i < 2; i++) {
		if (send(f->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
			f->t.up += n;
			box_moved(b, 0, n);
			return;
		}
		if (errno == EAGAIN || errno == EMSGSIZE || errno == ENOBUFS)
			return;
		flow_error(f, errno);
	}
}

/* Where it came in and where it was going. */
static bool about(const struct msghdr *m, int *ret_if, struct ip *ret_dst, uint16_t *ret_port)
{
	bool have_if = false, have_dst = false;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)m, c)) {
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo i;

			memcpy(&i, CMSG_DATA(c), sizeof(i));
			*ret_if = i.ipi_ifindex;
			have_if = true;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo i;

			memcpy(&i, CMSG_DATA(c), sizeof(i));
			*ret_if = (int)i.ipi6_ifindex;
			have_if = true;
		} else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVORIGDSTADDR) ||
			   (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVORIGDSTADDR)) {
			struct sockaddr_storage ss = { 0 };
			size_t n = c->cmsg_len - CMSG_LEN(0);

			memcpy(&ss, CMSG_DATA(c), n < sizeof(ss) ? n : sizeof(ss));
			have_dst = ip_of_sockaddr((const struct sockaddr *)&ss, ret_dst, ret_port) == 0;
		}
	}
	return have_if && have_dst;
}

void udp_ready(struct gw *g, int fd)
{
	struct batch *x = batch_of(g);

	if (!x)
		return;
	gw_read_all(g);
	for (unsigned round = 0; round < BATCHES; round++) {
		int n;

		for (unsigned i = 0; i < BATCH; i++) {
			x->iov[i][0] = (struct iovec){ x->data[i], MSG_BYTES };
			memset(&x->m[i], 0, sizeof(x->m[i]));
			x->m[i].msg_hdr = (struct msghdr){
				.msg_name = &x->from[i], .msg_namelen = sizeof(x->from[i]), .msg_iov = x->iov[i], .msg_iovlen = 1,
				.msg_control = x->ctl[i], .msg_controllen = CTL_BYTES,
			};
		}
		n = recv_batch(fd, x->m, BATCH);
		for (int i = 0; i < n; i++) {
			const struct msghdr *m = &x->m[i].msg_hdr;
			struct ip src, dst;
			uint16_t sport, dport;
			struct gbox *b;
			int at = 0;

			if (!about(m, &at, &dst, &dport) || (m->msg_flags & MSG_TRUNC) ||
			    ip_of_sockaddr((const struct sockaddr *)&x->from[i], &src, &sport) < 0)
				continue;
			b = box_by_if(g, at);
			if (b)
				datagram(b, &src, sport, &dst, dport, x->data[i], x->m[i].msg_len);
		}
		if (n < BATCH)
			return;
	}
}
