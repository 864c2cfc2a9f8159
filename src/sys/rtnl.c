/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/rtnl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/net_namespace.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

void nl_reset(struct nl *b)
{
	b->len = b->at = 0;
	b->acks = 0;
	b->full = false;
}

/* Room for n bytes, zeroed up to the alignment of netlink. */
static unsigned char *room(struct nl *b, size_t n)
{
	size_t padded = NLMSG_ALIGN(n);
	unsigned char *p = b->data + b->len;

	if (b->full || padded < n || padded > sizeof(b->data) - b->len) {
		b->full = true;
		return NULL;
	}
	memset(p, 0, padded);
	b->len += padded;
	return p;
}

/* The length of the message grows with each piece, so that there is no end to forget. */
static void grown(struct nl *b)
{
	struct nlmsghdr h;

	if (b->full)
		return;
	memcpy(&h, b->data + b->at, sizeof(h));
	h.nlmsg_len = (uint32_t)(b->len - b->at);
	memcpy(b->data + b->at, &h, sizeof(h));
}

void nl_begin(struct nl *b, uint16_t type, uint16_t flags, const void *head, size_t n)
{
	struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = flags | NLM_F_REQUEST, .nlmsg_seq = ++b->seq };
	size_t at = b->len;
	unsigned char *p = room(b, sizeof(h));

	if (!p)
		return;
	b->at = at;
	memcpy(p, &h, sizeof(h));
	nl_put_raw(b, head, n);
	if (flags & NLM_F_ACK)
		b->acks++;
}

void nl_put_raw(struct nl *b, const void *data, size_t n)
{
	unsigned char *p = room(b, n);

	if (p && n)
		memcpy(p, data, n);
	grown(b);
}

void nl_put(struct nl *b, uint16_t attr, const void *data, size_t n)
{
	struct nlattr a = { .nla_type = attr, .nla_len = (uint16_t)(sizeof(a) + n) };
	unsigned char *p = n <= 0xf000 ? room(b, sizeof(a) + n) : NULL;

	if (!p) {
		b->full = true;
		return;
	}
	memcpy(p, &a, sizeof(a));
	if (n)
		memcpy(p + sizeof(a), data, n);
	grown(b);
}

void nl_put_str(struct nl *b, uint16_t attr, const char *s)
{
	nl_put(b, attr, s, strlen(s) + 1);
}

void nl_put_u8(struct nl *b, uint16_t attr, uint8_t v)
{
	nl_put(b, attr, &v, sizeof(v));
}

void nl_put_u32(struct nl *b, uint16_t attr, uint32_t v)
{
	nl_put(b, attr, &v, sizeof(v));
}

void nl_put_be32(struct nl *b, uint16_t attr, uint32_t v)
{
	v = htonl(v);
	nl_put(b, attr, &v, sizeof(v));
}

size_t nl_nest(struct nl *b, uint16_t attr)
{
	size_t at = b->len;

	nl_put(b, attr | NLA_F_NESTED, NULL, 0);
	return at;
}

void nl_unnest(struct nl *b, size_t nest)
{
	struct nlattr a;

	if (b->full)
		return;
	memcpy(&a, b->data + nest, sizeof(a));
	a.nla_len = (uint16_t)(b->len - nest);
	memcpy(b->data + nest, &a, sizeof(a));
}

int nl_open(int protocol)
{
	OWN_FD fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
	struct sockaddr_nl a = { .nl_family = AF_NETLINK };
	int on = 1;

	if (fd < 0)
		return -errno;
	/* The answer to a failed message repeats the message, which nobody reads. */
	(void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	return fd_take(&fd);
}

/* The answers of one datagram. A batch's first number is `first`; what is older belongs to somebody who gave up. */
static int answers(const unsigned char *data, size_t n, uint32_t first, unsigned *acks, int *ret)
{
	struct nlmsghdr h;
	int code;

	while (n >= sizeof(h)) {
		memcpy(&h, data, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > n)
			return -EBADMSG;
		if (h.nlmsg_type == NLMSG_ERROR && h.nlmsg_len >= sizeof(h) + sizeof(code) && h.nlmsg_seq - first < NL_BATCH_MAX) {
			memcpy(&code, data + sizeof(h), sizeof(code));
			if (*ret == 0)
				*ret = code;
			if (*acks > 0)
				(*acks)--;
		}
		if (NLMSG_ALIGN(h.nlmsg_len) >= n)
			return 0;
		data += NLMSG_ALIGN(h.nlmsg_len);
		n -= NLMSG_ALIGN(h.nlmsg_len);
	}
	return 0;
}

int nl_talk(int fd, struct nl *b)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	unsigned char in[NL_BATCH_MAX];
	unsigned acks = b->acks;
	struct nlmsghdr h;
	uint32_t first;
	size_t n = b->len;
	int r = 0;

	if (b->full || n < sizeof(h)) {
		r = b->full ? -ENOBUFS : 0;
		nl_reset(b);
		return r;
	}
	memcpy(&h, b->data, sizeof(h));
	first = h.nlmsg_seq;
	nl_reset(b);
	if (sendto(fd, b->data, n, 0, (struct sockaddr *)&kernel, sizeof(kernel)) != (ssize_t)n)
		return -errno;
	/* The kernel answers within the send: what isn't there never comes (a refusal of the whole batch owes one answer only). */
	while (acks > 0) {
		ssize_t k = recv(fd, in, sizeof(in), MSG_DONTWAIT | MSG_TRUNC);
		int bad;

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return r < 0 ? r : errno == EAGAIN ? -EPROTO : -errno;
		if ((size_t)k > sizeof(in))
			return -EBADMSG;
		bad = answers(in, (size_t)k, first, &acks, &r);
		if (bad < 0)
			return bad;
	}
	return r;
}

/* ---- interfaces ---- */

#define ASK (NLM_F_ACK)
#define MAKE (NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)

int rtnl_index(int fd, const char *name)
{
	struct ifreq r = { 0 };

	memccpy(r.ifr_name, name, '\0', sizeof(r.ifr_name) - 1);
	return ioctl(fd, SIOCGIFINDEX, &r) < 0 ? -errno : r.ifr_ifindex;
}

int rtnl_delete_link(int fd, int index)
{
	struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = index };
	struct nl b = { .len = 0 };

	nl_begin(&b, RTM_DELLINK, ASK, &head, sizeof(head));
	return nl_talk(fd, &b);
}

static uint32_t value32(const unsigned char *data, size_t n)
{
	uint32_t v = 0;

	memcpy(&v, data, n < sizeof(v) ? n : sizeof(v));
	return v;
}

/* One message that asks, and one that answers: calls `take` with each attribute behind the answer's head of `head` bytes. */
static int ask(int fd, struct nl *b, uint16_t answer, size_t head, void (*take)(unsigned attr, const unsigned char *data, size_t n, void *arg),
	       void *arg)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	unsigned char in[2 * NL_BATCH_MAX];
	struct nlmsghdr h;
	struct nlattr a;
	size_t n = b->len, at;
	uint32_t seq = b->seq;
	ssize_t k;
	int code;

	nl_reset(b);
	if (sendto(fd, b->data, n, 0, (struct sockaddr *)&kernel, sizeof(kernel)) != (ssize_t)n)
		return -errno;
	do {
		k = recv(fd, in, sizeof(in), MSG_DONTWAIT | MSG_TRUNC);
		if (k < 0 && errno != EINTR)
			return errno == EAGAIN ? -EPROTO : -errno;
		if (k > (ssize_t)sizeof(in) || (k >= 0 && k < (ssize_t)sizeof(h)))
			return -EBADMSG;
		memcpy(&h, in, sizeof(h));
	} while (k < 0 || h.nlmsg_seq != seq);
	if (h.nlmsg_len > (size_t)k || h.nlmsg_len < sizeof(h) + sizeof(code))
		return -EBADMSG;
	if (h.nlmsg_type == NLMSG_ERROR) {
		memcpy(&code, in + sizeof(h), sizeof(code));
		return code < 0 ? code : -EPROTO;
	}
	if (h.nlmsg_type != answer)
		return -EBADMSG;
	for (at = sizeof(h) + NLMSG_ALIGN(head); at + sizeof(a) <= h.nlmsg_len; at += NLA_ALIGN(a.nla_len)) {
		memcpy(&a, in + at, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > h.nlmsg_len - at)
			return -EBADMSG;
		take(a.nla_type & NLA_TYPE_MASK, in + at + sizeof(a), a.nla_len - sizeof(a), arg);
	}
	return 0;
}

static void take_link(unsigned attr, const unsigned char *data, size_t n, void *arg)
{
	struct rtnl_link *l = arg;

	if (attr == IFLA_IFNAME)
		memcpy(l->name, data, n < sizeof(l->name) ? n : sizeof(l->name) - 1);
	else if (attr == IFLA_OPERSTATE)
		l->up = n == 1 && *data == IF_OPER_UP;
	else if (attr == IFLA_LINK)
		l->peer = (int)value32(data, n);
	else if (attr == IFLA_LINK_NETNSID)
		l->peer_ns = (int)value32(data, n);
}

int rtnl_get_link(int fd, int index, struct rtnl_link *ret)
{
	const struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = index };
	struct rtnl_link l = { .peer_ns = -1 };
	struct nl b = { .len = 0 };
	int r;

	nl_begin(&b, RTM_GETLINK, 0, &head, sizeof(head));
	r = ask(fd, &b, RTM_NEWLINK, sizeof(head), take_link, &l);
	if (r == 0)
		*ret = l;
	return r;
}

static void take_number(unsigned attr, const unsigned char *data, size_t n, void *arg)
{
	if (attr == NETNSA_NSID)
		*(int *)arg = (int)value32(data, n);
}

int rtnl_ns_number(int fd, int ns_fd, int *ret)
{
	const struct rtgenmsg head = { .rtgen_family = AF_UNSPEC };
	struct nl b = { .len = 0 };
	int r, number = -1;

	nl_begin(&b, RTM_GETNSID, 0, &head, sizeof(head));
	nl_put_u32(&b, NETNSA_FD, (uint32_t)ns_fd);
	r = ask(fd, &b, RTM_NEWNSID, sizeof(head), take_number, &number);
	if (r == 0)
		*ret = number;
	return r;
}

static void put_end(struct nl *b, const char *name, const unsigned char *mac, unsigned mtu)
{
	nl_put_str(b, IFLA_IFNAME, name);
	nl_put(b, IFLA_ADDRESS, mac, 6);
	nl_put_u32(b, IFLA_MTU, mtu);
	/* Else the kernel makes one for each processor that the host could have. */
	nl_put_u32(b, IFLA_NUM_TX_QUEUES, 1);
	nl_put_u32(b, IFLA_NUM_RX_QUEUES, 1);
}

void rtnl_put_pair(struct nl *b, const char *name, const char *peer, int peer_ns, const unsigned char *mac, unsigned mtu)
{
	const struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP | IFF_NOARP, .ifi_change = IFF_UP | IFF_NOARP };
	/* The kernel makes it first, and can't bring it up before it has the other. */
	const struct ifinfomsg peer_head = { .ifi_family = AF_UNSPEC, .ifi_flags = IFF_NOARP, .ifi_change = IFF_NOARP };
	size_t info, data, end;

	nl_begin(b, RTM_NEWLINK, MAKE, &head, sizeof(head));
	put_end(b, name, mac, mtu);
	info = nl_nest(b, IFLA_LINKINFO);
	nl_put_str(b, IFLA_INFO_KIND, "veth");
	data = nl_nest(b, IFLA_INFO_DATA);
	end = nl_nest(b, VETH_INFO_PEER);
	nl_put_raw(b, &peer_head, sizeof(peer_head));
	put_end(b, peer, mac, mtu);
	if (peer_ns >= 0)
		nl_put_u32(b, IFLA_NET_NS_FD, (uint32_t)peer_ns);
	nl_unnest(b, end);
	nl_unnest(b, data);
	nl_unnest(b, info);
}

void rtnl_put_up(struct nl *b, int index)
{
	const struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };

	nl_begin(b, RTM_NEWLINK, ASK, &head, sizeof(head));
}

void rtnl_wait_ready(int fd, int index)
{
	const struct timespec pause = { .tv_nsec = 50000 };
	struct rtnl_link l = { .up = false };
	struct nl b = { .len = 0 };

	for (int i = 0; i < 10000; i++) {
		/* IFF_RUNNING would also say "nobody knows yet". */
		if (rtnl_get_link(fd, index, &l) < 0)
			return;
		if (l.up)
			break;
		(void)nanosleep(&pause, NULL);
	}
	/* The state is set a moment before the queue is, under the lock that this one takes. */
	rtnl_put_up(&b, index);
	(void)nl_talk(fd, &b);
}

static size_t addr_len(int family)
{
	return family == AF_INET ? 4 : 16;
}

void rtnl_put_addr(struct nl *b, int family, int index, const void *addr)
{
	size_t n = addr_len(family);
	struct ifaddrmsg head = {
		.ifa_family = (unsigned char)family, .ifa_prefixlen = (unsigned char)(8 * n), .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
		.ifa_scope = RT_SCOPE_UNIVERSE, .ifa_index = (unsigned)index,
	};

	nl_begin(b, RTM_NEWADDR, MAKE, &head, sizeof(head));
	nl_put(b, IFA_LOCAL, addr, n);
	nl_put(b, IFA_ADDRESS, addr, n);
}

void rtnl_put_route(struct nl *b, const struct rtnl_route *r)
{
	size_t n = addr_len(r->family);
	struct rtmsg head = {
		.rtm_family = (unsigned char)r->family, .rtm_dst_len = (unsigned char)(r->dst ? r->bits : 0), .rtm_table = r->table,
		.rtm_protocol = RTPROT_STATIC, .rtm_type = r->type,
		.rtm_scope = r->type == RTN_LOCAL ? RT_SCOPE_HOST : r->via || r->type != RTN_UNICAST || r->family == AF_INET6 ?
							RT_SCOPE_UNIVERSE : RT_SCOPE_LINK,
	};

	nl_begin(b, RTM_NEWROUTE, r->replace ? NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE : MAKE, &head, sizeof(head));
	if (r->dst)
		nl_put(b, RTA_DST, r->dst, n);
	if (r->via)
		nl_put(b, RTA_GATEWAY, r->via, n);
	if (r->src)
		nl_put(b, RTA_PREFSRC, r->src, n);
	if (r->index > 0)
		nl_put_u32(b, RTA_OIF, (uint32_t)r->index);
	if (r->metric)
		nl_put_u32(b, RTA_PRIORITY, r->metric);
}

void rtnl_put_rule(struct nl *b, int family, unsigned char table, unsigned priority, bool own)
{
	struct fib_rule_hdr head = { .family = (unsigned char)family, .table = table, .action = FR_ACT_TO_TBL };

	nl_begin(b, RTM_NEWRULE, MAKE, &head, sizeof(head));
	nl_put_u32(b, FRA_PRIORITY, priority);
	if (own)
		nl_put_str(b, FRA_IIFNAME, "lo");
}

void rtnl_put_no_rule(struct nl *b, int family, unsigned char table, unsigned priority)
{
	struct fib_rule_hdr head = { .family = (unsigned char)family, .table = table, .action = FR_ACT_TO_TBL };

	nl_begin(b, RTM_DELRULE, ASK, &head, sizeof(head));
	nl_put_u32(b, FRA_PRIORITY, priority);
}

void rtnl_put_neighbour(struct nl *b, int family, int index, const void *addr, const unsigned char *mac)
{
	struct ndmsg head = { .ndm_family = (unsigned char)family, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT };

	nl_begin(b, RTM_NEWNEIGH, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &head, sizeof(head));
	nl_put(b, NDA_DST, addr, addr_len(family));
	nl_put(b, NDA_LLADDR, mac, 6);
}
