/* SPDX-License-Identifier: Apache-2.0 */
#include "net/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/inside.h"
#include "sys/nft.h"
#include "sys/rtnl.h"

/* Socket options of the kernel that not every libc names. */
#ifndef IP_TRANSPARENT
#define IP_TRANSPARENT 19
#endif
#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif
#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif
#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif

#define QUEUE_BYTES (4 << 20)	/* of a socket that all boxes share */
#define BACKLOG 65535

/* ---- settings ---- */

struct setting {
	const char *path, *value;
	bool wish;	/* not every kernel has it, nor shows it in a user's own namespace: nothing but speed hangs on it */
};

/* The namespace of the calling thread; a new one has the host's settings or the kernel's, as the host likes. */
static int set(const char *path, const char *value, struct err *e)
{
	char now[32], full[96];
	size_t n = strlen(value);
	int r;

	(void)snprintf(full, sizeof(full), "/proc/sys/net/%s", path);
	/* Where /proc/sys is read-only, a value that is right already will do. */
	if (file_read_small(AT_FDCWD, full, now, sizeof(now)) >= (ssize_t)n && memcmp(now, value, n) == 0 &&
	    (now[n] == '\n' || now[n] == '\0'))
		return 0;
	r = file_write(AT_FDCWD, full, value);
	return r < 0 ? err_set(e, r, "cannot set '%s' of the gateway namespace", full) : 0;
}

static int set_all(const struct setting *s, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		struct err mine = ERR_INIT;
		int r = set(s[i].path, s[i].value, &mine);

		if (r < 0 && !(r == -ENOENT && s[i].wish))
			return err_why(e, mine.why, r, "%s", mine.text);
	}
	return 0;
}

static bool have6(void)
{
	return access("/proc/sys/net/ipv6/conf/all/forwarding", F_OK) == 0;
}

static int settings(struct err *e)
{
	static const struct setting v4[] = {
		{ "ipv4/ip_forward", "0" },
		{ "ipv4/conf/all/accept_local", "0" },
		{ "ipv4/conf/default/accept_local", "0" },
		{ "ipv4/conf/all/route_localnet", "0" },
		{ "ipv4/conf/default/route_localnet", "0" },
		/* The larger of all and the interface's own counts: 1 for boxes, 0 for go1. */
		{ "ipv4/conf/all/rp_filter", "0" },
		{ "ipv4/conf/default/rp_filter", "1" },
		{ "ipv4/conf/all/accept_source_route", "0" },
		{ "ipv4/conf/default/accept_source_route", "0" },
		{ "ipv4/conf/all/accept_redirects", "0" },
		{ "ipv4/conf/default/accept_redirects", "0" },
		{ "ipv4/conf/all/send_redirects", "0" },
		{ "ipv4/conf/default/send_redirects", "0" },
		/* A box must not fill the host's log. */
		{ "ipv4/conf/all/log_martians", "0" },
		{ "ipv4/conf/default/log_martians", "0" },
		{ "ipv4/icmp_echo_ignore_all", "1" },
		/* Only connections that were judged reach the listener, as many as the gateway lets through. */
		{ "ipv4/tcp_syncookies", "0", true },
		{ "ipv4/tcp_max_syn_backlog", "65535", true },
		{ "core/somaxconn", "65535", true },
		/* Data in a first packet would be lost to the gateway's reading of what the client says. */
		{ "ipv4/tcp_fastopen", "0" },
	};
	static const struct setting v6[] = {
		{ "ipv6/conf/all/forwarding", "0" },
		{ "ipv6/conf/default/forwarding", "0" },
		{ "ipv6/conf/all/disable_ipv6", "0" },
		{ "ipv6/conf/default/disable_ipv6", "0" },
		{ "ipv6/conf/default/addr_gen_mode", "1" },
		{ "ipv6/conf/default/accept_ra", "0" },
		{ "ipv6/conf/default/autoconf", "0" },
		{ "ipv6/conf/default/accept_dad", "0" },
		{ "ipv6/conf/default/router_solicitations", "0" },
		{ "ipv6/conf/all/accept_redirects", "0" },
		{ "ipv6/conf/default/accept_redirects", "0" },
		{ "ipv6/conf/all/accept_source_route", "-1" },
		{ "ipv6/conf/default/accept_source_route", "-1" },
		{ "ipv6/icmp/echo_ignore_all", "1" },
	};
	int r = set_all(v4, sizeof(v4) / sizeof(v4[0]), e);

	return r == 0 && have6() ? set_all(v6, sizeof(v6) / sizeof(v6[0]), e) : r;
}

/* ---- routes ---- */

static int lo_up(int nl)
{
	struct ifreq r = { .ifr_name = "lo" };

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return ioctl(nl, SIOCSIFFLAGS, &r) < 0 ? -errno : 0;
}

/*
 * Whatever comes in is for us: in the table of local addresses, where the kernel looks for what it may answer as (__ip_dev_find()).
 * What goes out looks for a box before that.
 */
static int routes(int nl, int family, struct err *e)
{
	const struct rtnl_route all = { .family = family, .type = RTN_LOCAL, .table = RT_TABLE_LOCAL, .index = 1 };
	struct nl b = { .len = 0 };
	int r;

	rtnl_put_rule(&b, family, WORLD_TABLE, 100, true);
	rtnl_put_rule(&b, family, RT_TABLE_LOCAL, 200, false);
	rtnl_put_no_rule(&b, family, RT_TABLE_LOCAL, 0);
	rtnl_put_route(&b, &all);
	r = nl_talk(nl, &b);
	return r < 0 ? err_set(e, r, "cannot set up the routes of the gateway namespace") : 0;
}

static int build(void *arg, struct err *e)
{
	OWN_FD nl = FD_NONE;
	int *ret = arg, r;

	/* Before there is any interface. */
	r = settings(e);
	if (r < 0)
		return r;
	nl = nl_open(NETLINK_ROUTE);
	if (nl < 0)
		return err_set(e, nl, "cannot open a netlink socket");
	r = lo_up(nl);
	if (r < 0)
		return err_set(e, r, "cannot bring up the loopback interface");
	r = routes(nl, AF_INET, e);
	if (r == 0 && have6())
		r = routes(nl, AF_INET6, e);
	if (r < 0)
		return r;
	*ret = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? err_set(e, -errno, "cannot open the gateway namespace") : 0;
}

int world_new(struct err *e)
{
	int fd = FD_NONE, r = inside_net(FD_NONE, build, &fd, e);

	return r < 0 ? err_while(e, r, "making the gateway namespace") : fd;
}

/* ---- rules ---- */

static void is_u8(struct nft *t, uint32_t key, uint8_t v)
{
	nft_meta(t, key, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &v, 1);
}

/* `name` is a whole name, or with `whole` false the beginning of one. */
static void from(struct nft *t, const char *name, bool whole)
{
	char text[IFNAMSIZ] = { 0 };

	(void)memccpy(text, name, '\0', sizeof(text) - 1);
	nft_meta(t, NFT_META_IIFNAME, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, text, whole ? sizeof(text) : strlen(name));
}

static void early_rules(struct nft *t, bool six)
{
	static const unsigned char frag[2] = { 0x3f, 0xff }, zero[2];
	static const unsigned char yes = 1;

	/* Fragments are put together at -400: before they take memory that all boxes share. */
	nft_chain(t, "early", NF_INET_PRE_ROUTING, -450, true);
	nft_rule(t);
	is_u8(t, NFT_META_NFPROTO, NFPROTO_IPV4);
	nft_payload(t, NFT_PAYLOAD_NETWORK_HEADER, 6, 2, NFT_A);
	nft_mask(t, NFT_A, frag, sizeof(frag));
	nft_cmp(t, NFT_CMP_NEQ, NFT_A, zero, sizeof(zero));
	nft_verdict(t, false);
	if (!six)
		return;
	nft_rule(t);
	is_u8(t, NFT_META_NFPROTO, NFPROTO_IPV6);
	nft_frag6(t, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &yes, 1);
	nft_verdict(t, false);
}

static void source_rule(struct nft *t)
{
	static const uint32_t nowhere;

	nft_rule(t);
	from(t, "b", false);
	nft_way_back(t, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &nowhere, sizeof(nowhere));
	nft_verdict(t, false);
}

static void group_rules(struct nft *t, bool six)
{
	static const unsigned char top4 = 0xf0, group4 = 0xe0, group6 = 0xff, all[4] = { 255, 255, 255, 255 };

	nft_rule(t);
	is_u8(t, NFT_META_NFPROTO, NFPROTO_IPV4);
	nft_payload(t, NFT_PAYLOAD_NETWORK_HEADER, 16, 1, NFT_A);
	nft_mask(t, NFT_A, &top4, 1);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &group4, 1);
	nft_verdict(t, false);
	nft_rule(t);
	is_u8(t, NFT_META_NFPROTO, NFPROTO_IPV4);
	nft_payload(t, NFT_PAYLOAD_NETWORK_HEADER, 16, 4, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, all, sizeof(all));
	nft_verdict(t, false);
	if (!six)
		return;
	nft_rule(t);
	is_u8(t, NFT_META_NFPROTO, NFPROTO_IPV6);
	nft_payload(t, NFT_PAYLOAD_NETWORK_HEADER, 24, 1, NFT_A);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &group6, 1);
	nft_verdict(t, false);
}

static void tproxy_rule(struct nft *t, const char *name, bool whole, uint8_t proto, int family)
{
	static const struct in6_addr here6 = IN6ADDR_LOOPBACK_INIT;
	const struct in_addr here4 = { htonl(INADDR_LOOPBACK) };

	nft_rule(t);
	from(t, name, whole);
	is_u8(t, NFT_META_L4PROTO, proto);
	is_u8(t, NFT_META_NFPROTO, family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6);
	nft_tproxy(t, family, family == AF_INET ? (const void *)&here4 : (const void *)&here6, htons(WORLD_PORT));
	nft_verdict(t, true);
}

static void tcp_rules(struct nft *t)
{
	static const unsigned char flags = 0x12, syn = 0x02;

	nft_rule(t);
	from(t, "b", false);
	is_u8(t, NFT_META_L4PROTO, IPPROTO_TCP);
	nft_payload(t, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1, NFT_A);
	nft_mask(t, NFT_A, &flags, 1);
	nft_cmp(t, NFT_CMP_EQ, NFT_A, &syn, 1);
	nft_verdict(t, false);
	nft_rule(t);
	from(t, "b", false);
	is_u8(t, NFT_META_L4PROTO, IPPROTO_TCP);
	nft_verdict(t, true);
}

static int rules(bool six, struct err *e)
{
	struct nft t = { .table = NULL };
	int r;

	nft_begin(&t, "cubby");
	early_rules(&t, six);
	nft_chain(&t, "prerouting", NF_INET_PRE_ROUTING, -150, false);
	nft_rule(&t);
	from(&t, "lo", true);
	nft_verdict(&t, true);
	source_rule(&t);
	group_rules(&t, six);
	tproxy_rule(&t, "go1", true, IPPROTO_TCP, AF_INET);
	if (six)
		tproxy_rule(&t, "go1", true, IPPROTO_TCP, AF_INET6);
	tcp_rules(&t);
	tproxy_rule(&t, "b", false, IPPROTO_UDP, AF_INET);
	if (six)
		tproxy_rule(&t, "b", false, IPPROTO_UDP, AF_INET6);
	nft_chain(&t, "forward", NF_INET_FORWARD, 0, false);
	r = nft_commit(&t);
	if (r == -ENOENT || r == -EOPNOTSUPP || r == -EPROTONOSUPPORT || r == -EAFNOSUPPORT)
		return err_why(e, WHY_UNSUPPORTED, r,
			       "this kernel lacks a piece of nf_tables that boxes with a network need: install one with CONFIG_NF_TABLES_INET, "
			       "CONFIG_NFT_TPROXY and CONFIG_NFT_FIB_INET (Debian's have them)");
	return r < 0 ? err_set(e, r, "cannot load the rules of the gateway namespace") : 0;
}

/* ---- what the gateway holds ---- */

static int loop_pair(int nl, int *ret_go0, int *ret_go1, struct err *e)
{
	struct nl b = { .len = 0 };
	int r;

	rtnl_put_pair(&b, "go0", "go1", FD_NONE, WORLD_MAC, WORLD_MTU);
	r = nl_talk(nl, &b);
	/* An earlier gateway's will do. */
	if (r < 0 && r != -EEXIST)
		return err_set(e, r, "cannot make a pair of virtual interfaces");
	*ret_go0 = rtnl_index(nl, "go0");
	*ret_go1 = rtnl_index(nl, "go1");
	if (*ret_go0 < 0 || *ret_go1 < 0)
		return err_set(e, *ret_go0 < 0 ? *ret_go0 : *ret_go1, "cannot find the loop pair");
	rtnl_put_up(&b, *ret_go1);
	r = nl_talk(nl, &b);
	if (r < 0)
		return err_set(e, r, "cannot bring up the loop pair");
	rtnl_wait_ready(nl, *ret_go0);
	/* The sources of what comes back here are boxes, and the way to them isn't through go1. */
	return set("ipv4/conf/go1/rp_filter", "0", e);
}

static int option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

static void wide_queue(int fd)
{
	/* Beyond the host's limit with root of the host only. */
	if (option(fd, SOL_SOCKET, SO_RCVBUFFORCE, QUEUE_BYTES) < 0)
		(void)option(fd, SOL_SOCKET, SO_RCVBUF, QUEUE_BYTES);
}

static int transparent(int family, int type)
{
	const struct sockaddr_in a4 = { .sin_family = AF_INET, .sin_port = htons(WORLD_PORT), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct sockaddr_in6 a6 = { .sin6_family = AF_INET6, .sin6_port = htons(WORLD_PORT), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	OWN_FD fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const bool four = family == AF_INET;
	int level = four ? IPPROTO_IP : IPPROTO_IPV6, r;

	if (fd < 0)
		return -errno;
	r = option(fd, level, four ? IP_TRANSPARENT : IPV6_TRANSPARENT, 1);
	if (r == 0)
		r = option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (r == 0 && !four)
		r = option(fd, level, IPV6_V6ONLY, 1);
	if (r == 0 && type == SOCK_DGRAM) {
		r = option(fd, level, four ? IP_RECVORIGDSTADDR : IPV6_RECVORIGDSTADDR, 1);
		if (r == 0)
			r = option(fd, level, four ? IP_PKTINFO : IPV6_RECVPKTINFO, 1);
		wide_queue(fd);
	}
	if (r == 0 && bind(fd, four ? (const struct sockaddr *)&a4 : (const struct sockaddr *)&a6, four ? sizeof(a4) : sizeof(a6)) < 0)
		r = -errno;
	if (r == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
		r = -errno;
	return r < 0 ? r : fd_take(&fd);
}

#define TAKE 0xffffffffu
#define LD_BYTE(at) BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (at))
#define IF_EQ(v, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (v), (yes), (no))
#define IF_SET(v, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (v), (yes), (no))
#define LD_ABOUT(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + (what)))
#define END(v) BPF_STMT(BPF_RET | BPF_K, (v))

/*
 * First packets and echo requests. Jumps count the instructions they pass over. lo and the loop pair are not boxes'; what is not for this
 * hardware address the stack would not take either.
 */
static int syn_filter(int fd, int family, int go0, int go1)
{
	const struct sock_filter four[] = {
		LD_ABOUT(SKF_AD_PKTTYPE),			/* 0 */
		IF_EQ(PACKET_HOST, 0, 16),
		LD_ABOUT(SKF_AD_IFINDEX),
		IF_EQ(1, 14, 0),
		IF_EQ((uint32_t)go0, 13, 0),
		IF_EQ((uint32_t)go1, 12, 0),			/* 5 */
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
		IF_SET(0x3fff, 10, 0),				/* a fragment */
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
		LD_BYTE(9),
		IF_EQ(IPPROTO_TCP, 0, 3),			/* 10 */
		BPF_STMT(BPF_LD | BPF_B | BPF_IND, 13),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x12),
		IF_EQ(0x02, 3, 4),
		IF_EQ(IPPROTO_ICMP, 0, 3),
		BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),		/* 15 */
		IF_EQ(8, 0, 1),
		END(TAKE),
		END(0),
	};
	const struct sock_filter six[] = {
		LD_ABOUT(SKF_AD_PKTTYPE),			/* 0 */
		IF_EQ(PACKET_HOST, 0, 13),
		LD_ABOUT(SKF_AD_IFINDEX),
		IF_EQ(1, 11, 0),
		IF_EQ((uint32_t)go0, 10, 0),
		IF_EQ((uint32_t)go1, 9, 0),			/* 5 */
		LD_BYTE(6),
		IF_EQ(IPPROTO_TCP, 0, 3),
		LD_BYTE(40 + 13),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x12),
		IF_EQ(0x02, 3, 4),				/* 10 */
		IF_EQ(IPPROTO_ICMPV6, 0, 3),
		LD_BYTE(40),
		IF_EQ(128, 0, 1),
		END(TAKE),
		END(0),						/* 15 */
	};
	struct sock_fprog prog = {
		.len = family == AF_INET ? sizeof(four) / sizeof(four[0]) : sizeof(six) / sizeof(six[0]),
		.filter = (struct sock_filter *)(family == AF_INET ? four : six),
	};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0 ? -errno : 0;
}

static int packet(int family, int go0, int go1)
{
	/* Protocol 0: it receives nothing until it is bound to one, with the filter on it. */
	OWN_FD fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_ll a = { .sll_family = AF_PACKET };
	int r;

	if (fd < 0)
		return -errno;
	if (family == AF_UNSPEC)
		return fd_take(&fd);
	a.sll_protocol = htons(family == AF_INET ? ETH_P_IP : ETH_P_IPV6);
	r = syn_filter(fd, family, go0, go1);
	if (r == 0)
		r = option(fd, SOL_PACKET, PACKET_AUXDATA, 1);
	wide_queue(fd);
	if (r == 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		r = -errno;
	return r < 0 ? r : fd_take(&fd);
}

static int link_news(void)
{
	OWN_FD fd = nl_open(NETLINK_ROUTE);
	int r;

	if (fd < 0)
		return fd;
	r = option(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, RTNLGRP_LINK);
	wide_queue(fd);
	if (r == 0)
		r = fd_set_nonblock(fd, true);
	return r < 0 ? r : fd_take(&fd);
}

static int enter(void *arg, struct err *e)
{
	struct world *w = arg;
	OWN_FD nl = nl_open(NETLINK_ROUTE);
	bool six = have6();
	int go1 = 0, r;

	if (nl < 0)
		return err_set(e, nl, "cannot open a netlink socket");
	/* The pair is made under the new rules. */
	r = rules(six, e);
	if (r == 0)
		r = loop_pair(nl, &w->go, &go1, e);
	if (r < 0)
		return r;
	const struct {
		int *fd;
		int value;
		const char *what;
	} sockets[] = {
		{ &w->tcp4, transparent(AF_INET, SOCK_STREAM), "the TCP listener" },
		{ &w->udp4, transparent(AF_INET, SOCK_DGRAM), "the UDP socket" },
		{ &w->syn4, packet(AF_INET, w->go, go1), "a packet socket" },
		{ &w->out, packet(AF_UNSPEC, 0, 0), "a packet socket" },
		{ &w->link, link_news(), "a netlink socket" },
		{ &w->tcp6, six ? transparent(AF_INET6, SOCK_STREAM) : 0, "the TCP listener for IPv6" },
		{ &w->udp6, six ? transparent(AF_INET6, SOCK_DGRAM) : 0, "the UDP socket for IPv6" },
		{ &w->syn6, six ? packet(AF_INET6, w->go, go1) : 0, "a packet socket for IPv6" },
	};
	for (size_t i = 0; i < (six ? 8 : 5); i++) {
		if (sockets[i].value >= 0)
			*sockets[i].fd = sockets[i].value;
		else if (r == 0)
			r = err_set(e, sockets[i].value, "cannot make %s of the gateway", sockets[i].what);
	}
	return r;
}

int world_enter(int ns_fd, struct world *ret, struct err *e)
{
	struct world w = {
		.tcp4 = FD_NONE, .tcp6 = FD_NONE, .udp4 = FD_NONE, .udp6 = FD_NONE, .syn4 = FD_NONE, .syn6 = FD_NONE, .out = FD_NONE,
		.link = FD_NONE,
	};
	int r = inside_net(ns_fd, enter, &w, e);

	if (r < 0) {
		world_done(&w);
		return err_while(e, r, "setting up the gateway namespace");
	}
	*ret = w;
	return 0;
}

void world_done(struct world *w)
{
	int *const fds[] = { &w->tcp4, &w->tcp6, &w->udp4, &w->udp6, &w->syn4, &w->syn6, &w->out, &w->link };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		fd_close(fds[i]);
}

struct sockaddr_ll world_to(int index, uint16_t protocol)
{
	struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = index, .sll_halen = 6 };

	memcpy(a.sll_addr, WORLD_MAC, 6);
	return a;
}
