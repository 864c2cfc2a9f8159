/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's own addresses: whatever it takes for itself, by the routes of its tables (rtnetlink(7): RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST),
 * which hold every address of every interface, broadcast addresses, and ranges that were routed to the host itself. Most of them stand in the
 * table "local", those of an interface in a VRF in the VRF's own (the kernel's Documentation/networking/vrf.rst). They are read anew whenever
 * the kernel tells of a change.
 */
#include "net/gateway.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

enum { OWN_MAX = 65536, DUMP_BYTES = 65536 };

/*
 * A shorter prefix in another table than "local" is nobody's address: a transparent proxy has such a route ("local default", taken by marked
 * packets only; the kernel's Documentation/networking/tproxy.rst), and with it the whole internet would be the host.
 */
enum { OTHER_BITS_MIN = 8 };

struct own {
	int news, ask;
	struct loop_io io;
	struct gw *g;
	struct cidr *at;
	size_t n, room;
	uint32_t seq;
	bool have6, known;
	_Alignas(8) uint8_t buf[DUMP_BYTES];
};

static int route_socket(unsigned groups)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK, .nl_groups = groups };
	OWN_FD fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	const struct timeval soon = { .tv_sec = 2 };
	const int on = 1;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) < 0)
		return -errno;
	return fd_take(&fd);
}

static int keep(struct own *o, const struct rtmsg *m, size_t len)
{
	struct cidr c = { .bits = m->rtm_dst_len };
	const struct rtattr *a = RTM_RTA(m);
	struct cidr *more;

	if (m->rtm_type != RTN_LOCAL && m->rtm_type != RTN_BROADCAST && m->rtm_type != RTN_ANYCAST)
		return 0;
	if (m->rtm_table != RT_TABLE_LOCAL && m->rtm_dst_len < OTHER_BITS_MIN)
		return 0;
	for (; RTA_OK(a, len); a = RTA_NEXT(a, len)) {
		if (a->rta_type != RTA_DST)
			continue;
		if (m->rtm_family == AF_INET && RTA_PAYLOAD(a) == 4) {
			struct in_addr v;

			memcpy(&v, RTA_DATA(a), 4);
			c.ip = ip_of_in(&v);
			c.bits = (uint8_t)(96 + m->rtm_dst_len);
		} else if (m->rtm_family == AF_INET6 && RTA_PAYLOAD(a) == 16) {
			memcpy(c.ip.b, RTA_DATA(a), 16);
		} else {
			continue;
		}
		if (o->n == OWN_MAX)
			return -E2BIG;
		if (o->n == o->room) {
			size_t room = o->room ? o->room * 2 : 64;

			more = realloc(o->at, room * sizeof(*more));
			if (!more)
				return -ENOMEM;
			o->at = more;
			o->room = room;
		}
		o->at[o->n++] = c;
		return 0;
	}
	return 0;
}

/* One request of a routing message and its answers. each: may be NULL. *ret_type: of the last route that was told. */
static int ask(struct own *o, struct rtmsg *m, uint16_t flags, const struct ip *dst, bool keeps, int *ret_type)
{
	struct {
		struct nlmsghdr h;
		struct rtmsg m;
		struct rtattr a;
		uint8_t dst[16];
	} q = { .h = { .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags), .nlmsg_seq = ++o->seq }, .m = *m };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

	q.h.nlmsg_len = NLMSG_LENGTH(sizeof(q.m));
	if (dst) {
		q.a.rta_type = RTA_DST;
		q.a.rta_len = RTA_LENGTH(16);
		memcpy(q.dst, dst->b, 16);
		q.h.nlmsg_len = sizeof(q);
	}
	if (sendto(o->ask, &q, q.h.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	for (;;) {
		ssize_t n = recv(o->ask, o->buf, sizeof(o->buf), 0);
		const struct nlmsghdr *h = (const void *)o->buf;

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		for (size_t left = (size_t)n; left >= sizeof(*h) && h->nlmsg_len >= sizeof(*h) && h->nlmsg_len <= left;) {
			size_t step = NLMSG_ALIGN(h->nlmsg_len);
			int r = 0;

			if (h->nlmsg_seq == o->seq) {
				if (h->nlmsg_type == NLMSG_DONE)
					return 0;
				if (h->nlmsg_type == NLMSG_ERROR)
					return h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct nlmsgerr)) ?
						       ((const struct nlmsgerr *)NLMSG_DATA(h))->error : -EPROTO;
				if (h->nlmsg_type == RTM_NEWROUTE && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct rtmsg))) {
					const struct rtmsg *t = NLMSG_DATA(h);

					*ret_type = t->rtm_type;
					if (keeps)
						r = keep(o, t, h->nlmsg_len - NLMSG_LENGTH(sizeof(*t)));
					if (r < 0)
						return r;
					if (!(flags & NLM_F_DUMP))
						return 0;
				}
				if (h->nlmsg_flags & NLM_F_DUMP_INTR)
					return -EINTR;
			}
			if (step >= left)
				break;
			left -= step;
			h = (const void *)((const char *)h + step);
		}
	}
}

/* The routes of one type, of all tables: the kernel picks them, for a table of the whole internet is long. */
static int dump(struct own *o, uint8_t family, uint8_t route)
{
	struct rtmsg m = { .rtm_family = family, .rtm_table = RT_TABLE_UNSPEC, .rtm_type = route };
	int type = 0;

	return ask(o, &m, NLM_F_DUMP, NULL, true, &type);
}

static int dump_all(struct own *o)
{
	static const uint8_t routes[] = { RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST };

	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		int r = dump(o, AF_INET, routes[i]);

		if (r < 0 && r != -ENOENT)
			return r;
		r = dump(o, AF_INET6, routes[i]);
		/* A kernel without IPv6, or no table at all because nothing is in one. */
		if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP && r != -EAFNOSUPPORT)
			return r;
	}
	return 0;
}

/* On failure the old list stays, and what is new is added to it as far as it was told. */
static int refresh(struct own *o)
{
	struct cidr *old = o->at;
	size_t old_n = o->n, old_room = o->room;
	bool had6 = o->have6;
	int r = 0, type = 0;

	for (unsigned tries = 0; tries < 5; tries++) {
		o->at = NULL;
		o->n = o->room = 0;
		r = dump_all(o);
		if (r == 0)
			break;
		free(o->at);
		if (r != -EINTR)
			break;
	}
	if (r < 0) {
		o->at = old;
		o->n = old_n;
		o->room = old_room;
		o->known = false;
	} else {
		free(old);
		o->known = true;
	}
	/* Is there a way to a public address? Nothing is sent. */
	struct rtmsg way = { .rtm_family = AF_INET6, .rtm_dst_len = 128 };
	struct ip far;

	o->have6 = ip_parse("2001:4860:4860::8888", &far) == 0 && ask(o, &way, 0, &far, false, &type) == 0 && type == RTN_UNICAST;
	if (o->g && had6 != o->have6 && o->g->names)
		gw_apply_resolv(o->g);
	return r;
}

int own_new(struct own **ret, struct err *e)
{
	struct own *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return err_set(e, -ENOMEM, "cannot follow the host's addresses");
	o->ask = route_socket(0);
	o->news = route_socket(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);
	r = o->ask < 0 ? o->ask : o->news < 0 ? o->news : fd_set_nonblock(o->news, true);
	if (r == 0)
		r = refresh(o);
	if (r < 0) {
		own_free(o);
		return err_set(e, r, "cannot read the host's addresses");
	}
	*ret = o;
	return 0;
}

static void news_ready(void *arg, uint32_t ev)
{
	(void)ev;
	own_drain(arg);
}

int own_watch(struct own *o, struct gw *g)
{
	o->g = g;
	return loop_add(g->loop, &o->io, o->news, EPOLLIN, news_ready, o);
}

void own_free(struct own *o)
{
	if (!o)
		return;
	if (o->g)
		loop_del(o->g->loop, &o->io);
	fd_close(&o->ask);
	fd_close(&o->news);
	free(o->at);
	free(o);
}

void own_drain(struct own *o)
{
	bool any = !o->known;

	/* What is told doesn't matter: it is read anew. Also after ENOBUFS, when some was lost. */
	while (recv(o->news, o->buf, sizeof(o->buf), MSG_DONTWAIT) >= 0 || errno == ENOBUFS || errno == EINTR)
		any = true;
	if (any)
		(void)refresh(o);
}

bool own_has(const struct ip *a, void *own)
{
	const struct own *o = own;

	/* When the kernel doesn't answer, everything might be the host's. */
	if (!o->known)
		return true;
	for (size_t i = 0; i < o->n; i++)
		if (cidr_has(&o->at[i], a))
			return true;
	return false;
}

bool own_have6(const struct own *o)
{
	return o->have6;
}
