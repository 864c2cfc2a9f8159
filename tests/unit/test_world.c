/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway namespace and the interfaces of boxes, with the test in the place of the gateway and of the programs in two
 * boxes. All of it is in network namespaces that the test makes; nothing leaves them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/icmp6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "net/addr.h"
#include "net/world.h"
#include "sys/inside.h"

#define FIRST 300u
#define SECOND 301u
#define SOON 3000	/* ms: what must come */
#define LONG 60		/* ms: what must not come */
#define PING4 8 /* ICMP_ECHO, whose header defines a struct ip of its own */
#define PONG4 0

static struct {
	int ns;
	struct world w;
	int box, other;		/* namespaces */
	int box_if, other_if;	/* in the gateway namespace */
} lab;

static const struct {
	int family;
	const char *away, *also, *none;
} families[] = {
	{ AF_INET, "203.0.113.5", "198.51.100.7", "127.0.0.1" },
	{ AF_INET6, "2001:db8::5", "2001:db8:7::7", "::1" },
};

/* ---- a place to stand ---- */

static int open_ns(void *arg, struct err *e)
{
	struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
		return err_set(e, -errno, "lo");
	*(int *)arg = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *(int *)arg < 0 ? -errno : 0;
}

static int new_ns(void)
{
	struct err e = ERR_INIT;
	int fd = FD_NONE;

	if (inside_net(FD_NONE, open_ns, &fd, &e) < 0)
		fail_msg("%s", e.text);
	return fd;
}

static void plug(int ns, unsigned index, int *ret_if)
{
	struct err e = ERR_INIT;

	if (plug_make(lab.ns, ns, index, ret_if, &e) < 0)
		fail_msg("%s", e.text);
}

static int up(void **state)
{
	struct err e = ERR_INIT;
	int r = leak_mark(state);

	if (r != 0)
		return r;
	lab.ns = FD_NONE;
	if (geteuid() != 0)
		return 0;
	(void)alarm(60);
	lab.ns = world_new(&e);
	if (lab.ns < 0 || world_enter(lab.ns, &lab.w, &e) < 0) {
		(void)fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	lab.box = new_ns();
	lab.other = new_ns();
	plug(lab.box, FIRST, &lab.box_if);
	plug(lab.other, SECOND, &lab.other_if);
	return 0;
}

static int down(void **state)
{
	if (lab.ns >= 0) {
		world_done(&lab.w);
		plug_done();
		fd_close(&lab.box);
		fd_close(&lab.other);
		fd_close(&lab.ns);
	}
	return leak_check(state);
}

static void need_root(void)
{
	if (lab.ns < 0)
		skip_because("making network namespaces needs root");
}

struct wish {
	int family, type, protocol, fd;
};

static int make_socket(void *arg, struct err *e)
{
	struct wish *w = arg;

	w->fd = socket(w->family, w->type | SOCK_CLOEXEC, w->protocol);
	return w->fd < 0 ? err_set(e, -errno, "socket") : 0;
}

static int socket_in(int ns, int family, int type, int protocol)
{
	struct wish w = { .family = family, .type = type, .protocol = protocol };
	struct err e = ERR_INIT;

	if (inside_net(ns, make_socket, &w, &e) < 0)
		fail_msg("%s", e.text);
	return w.fd;
}

static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
	struct ip a;

	assert_int_equal(ip_parse(text, &a), 0);
	return ip_sockaddr(&a, port, ret);
}

static bool comes(int fd, short what, int ms)
{
	struct pollfd p = { .fd = fd, .events = what };

	return poll(&p, 1, ms) == 1;
}

/* ---- packets ---- */

static uint32_t sum(uint32_t s, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++)
		s += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	return s;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return htons((uint16_t)~s);
}

struct packet {
	_Alignas(8) unsigned char b[2048];
	size_t n, head;		/* head: of IP */
	int family;
};

static void head(struct packet *p, int family, const struct ip *from, const struct ip *to, uint8_t proto, size_t len)
{
	*p = (struct packet){ .family = family, .head = family == AF_INET ? 20 : 40 };
	p->n = p->head + len;
	if (family == AF_INET) {
		struct iphdr h = { .version = 4, .ihl = 5, .ttl = 64, .protocol = proto, .tot_len = htons((uint16_t)p->n) };

		h.saddr = htonl(ip_get4(from));
		h.daddr = htonl(ip_get4(to));
		h.check = fold(sum(0, &h, sizeof(h)));
		memcpy(p->b, &h, sizeof(h));
	} else {
		struct ip6_hdr h = { .ip6_ctlun.ip6_un1 = { .ip6_un1_flow = htonl(6u << 28), .ip6_un1_plen = htons((uint16_t)len),
							    .ip6_un1_nxt = proto, .ip6_un1_hlim = 64 } };

		memcpy(&h.ip6_src, from->b, 16);
		memcpy(&h.ip6_dst, to->b, 16);
		memcpy(p->b, &h, sizeof(h));
	}
}

/* The checksum of TCP, UDP or ICMPv6 over the pseudo header; at: its offset behind the IP header. */
static void finish(struct packet *p, uint8_t proto, size_t at)
{
	size_t len = p->n - p->head, addrs = p->family == AF_INET ? 8 : 32;
	uint32_t s = sum(0, p->b + (p->family == AF_INET ? 12 : 8), addrs) + proto + (uint32_t)len;
	uint16_t c;

	memset(p->b + p->head + at, 0, 2);
	c = fold(sum(s, p->b + p->head, len));
	memcpy(p->b + p->head + at, &c, 2);
}

static uint16_t ether(int family)
{
	return family == AF_INET ? ETH_P_IP : ETH_P_IPV6;
}

static void put(int fd, int index, const struct packet *p)
{
	struct sockaddr_ll a = world_to(index, ether(p->family));

	assert_int_equal(sendto(fd, p->b, p->n, 0, (struct sockaddr *)&a, sizeof(a)), p->n);
}

/* A packet socket on a box's eth0: sends what it likes, and with `hears` sees all that comes in. */
static int wire(int ns, int family, bool hears)
{
	int fd = socket_in(ns, AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, hears ? htons(ether(family)) : 0);

	return fd;
}

static int wire_if(int fd)
{
	struct ifreq r = { .ifr_name = WORLD_BOX_IF };

	assert_int_equal(ioctl(fd, SIOCGIFINDEX, &r), 0);
	return r.ifr_ifindex;
}

static void tcp(struct packet *p, int family, const struct ip *from, const struct ip *to, uint16_t sport, uint16_t dport, uint8_t flags,
		uint32_t seq, uint32_t ack)
{
	struct tcphdr h = { .th_sport = htons(sport), .th_dport = htons(dport), .th_seq = htonl(seq), .th_ack = htonl(ack), .th_off = 5,
			    .th_flags = flags, .th_win = htons(1000) };

	head(p, family, from, to, IPPROTO_TCP, sizeof(h));
	memcpy(p->b + p->head, &h, sizeof(h));
	finish(p, IPPROTO_TCP, 16);
}

static void udp(struct packet *p, int family, const struct ip *from, const struct ip *to, uint16_t sport, uint16_t dport, const char *text)
{
	struct udphdr h = { .uh_sport = htons(sport), .uh_dport = htons(dport), .uh_ulen = htons((uint16_t)(8 + strlen(text))) };

	head(p, family, from, to, IPPROTO_UDP, sizeof(h) + strlen(text));
	memcpy(p->b + p->head, &h, sizeof(h));
	memcpy(p->b + p->head + sizeof(h), text, strlen(text));
	finish(p, IPPROTO_UDP, 6);
}

static struct ip own_address(int family, unsigned index)
{
	return family == AF_INET ? net_box4(index) : net_box6(index);
}

static struct ip ip_of(const char *text)
{
	struct ip a;

	assert_int_equal(ip_parse(text, &a), 0);
	return a;
}

/* The next packet on a packet socket, or false. */
static bool get(int fd, int family, struct packet *p, int *ret_if, int ms)
{
	struct sockaddr_ll a;
	socklen_t len = sizeof(a);
	ssize_t n;

	if (!comes(fd, POLLIN, ms))
		return false;
	n = recvfrom(fd, p->b, sizeof(p->b), 0, (struct sockaddr *)&a, &len);
	assert_true(n > 0);
	p->n = (size_t)n;
	p->family = family;
	p->head = family == AF_INET ? (size_t)(p->b[0] & 15) * 4 : 40;
	*ret_if = a.sll_ifindex;
	return true;
}

/* ---- TCP ---- */

static void pump(int a, int b)
{
	enum { ALL = 300000 };
	char in[4096], out[4096];
	size_t sent = 0, got = 0;

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7);
	while (got < ALL) {
		size_t want = ALL - sent < sizeof(out) ? ALL - sent : sizeof(out);
		ssize_t n = want ? send(a, out, want, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

		if (n > 0)
			sent += (size_t)n;
		/* Whole blocks are sent, so that what is read is known. */
		assert_true(n < 0 || (size_t)n == want);
		if (!comes(b, POLLIN, SOON))
			fail_msg("nothing more after %zu bytes", got);
		n = recv(b, in, sizeof(in) - got % sizeof(in), MSG_DONTWAIT);
		assert_true(n > 0);
		assert_memory_equal(in, out + got % sizeof(out), (size_t)n);
		got += (size_t)n;
	}
}

static void one_connection(int family, const char *away)
{
	const bool four = family == AF_INET;
	OWN_FD client = socket_in(lab.box, family, SOCK_STREAM | SOCK_NONBLOCK, 0), server = FD_NONE;
	struct sockaddr_storage to, name;
	socklen_t n = address(away, 443, &to), len = sizeof(name);
	struct packet p;
	struct ip a, box = own_address(family, FIRST);
	uint16_t port, box_port;
	int index, err = 0;

	assert_int_equal(connect(client, (struct sockaddr *)&to, n), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_true(get(four ? lab.w.syn4 : lab.w.syn6, family, &p, &index, SOON));
	assert_int_equal(index, lab.box_if);
	assert_memory_equal(p.b + (four ? 12 : 8), four ? box.b + 12 : box.b, four ? 4 : 16);
	/* Nothing is answered before the verdict. */
	assert_false(comes(client, POLLOUT, LONG));

	finish(&p, IPPROTO_TCP, 16);
	put(lab.w.out, lab.w.go, &p);
	assert_true(comes(client, POLLOUT, SOON));
	len = sizeof(err);
	assert_int_equal(getsockopt(client, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	assert_int_equal(err, 0);
	assert_true(comes(four ? lab.w.tcp4 : lab.w.tcp6, POLLIN, SOON));
	len = sizeof(name);
	server = accept4(four ? lab.w.tcp4 : lab.w.tcp6, (struct sockaddr *)&name, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(server >= 0);
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&name, &a, &box_port), 0);
	assert_true(ip_same(&a, &box));
	len = sizeof(name);
	assert_int_equal(getsockname(server, (struct sockaddr *)&name, &len), 0);
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&name, &a, &port), 0);
	assert_int_equal(port, 443);
	box = ip_of(away);
	assert_true(ip_same(&a, &box));
	pump(client, server);
	pump(server, client);

	/* A half-closed connection goes on the other way. */
	assert_int_equal(shutdown(client, SHUT_WR), 0);
	assert_true(comes(server, POLLIN, SOON));
	assert_int_equal(recv(server, &err, sizeof(err), 0), 0);
	pump(server, client);
}

static void first_packets_wait_for_a_verdict(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++)
		one_connection(families[i].family, families[i].away);
}

static void a_refusal_is_a_reset(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		const bool four = families[i].family == AF_INET;
		OWN_FD client = socket_in(lab.box, families[i].family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		struct ip away = ip_of(families[i].away), box = own_address(families[i].family, FIRST);
		struct sockaddr_storage to;
		socklen_t n = address(families[i].away, 81, &to), len;
		struct packet p, rst;
		struct tcphdr h;
		int index, err = 0;

		assert_int_equal(connect(client, (struct sockaddr *)&to, n), -1);
		assert_true(get(four ? lab.w.syn4 : lab.w.syn6, families[i].family, &p, &index, SOON));
		memcpy(&h, p.b + p.head, sizeof(h));
		tcp(&rst, families[i].family, &away, &box, 81, ntohs(h.th_sport), TH_RST | TH_ACK, 0, ntohl(h.th_seq) + 1);
		put(lab.w.out, index, &rst);
		assert_true(comes(client, POLLOUT, SOON));
		len = sizeof(err);
		assert_int_equal(getsockopt(client, SOL_SOCKET, SO_ERROR, &err, &len), 0);
		assert_int_equal(err, ECONNREFUSED);
	}
}

static bool reset_comes(int fd, int family, const struct ip *to, int ms)
{
	struct packet p;
	int index;

	while (get(fd, family, &p, &index, ms)) {
		uint8_t proto = family == AF_INET ? p.b[9] : p.b[6];

		if (proto == IPPROTO_TCP && (p.b[p.head + 13] & TH_RST) &&
		    memcmp(p.b + (family == AF_INET ? 16 : 24), family == AF_INET ? to->b + 12 : to->b, family == AF_INET ? 4 : 16) == 0)
			return true;
	}
	return false;
}

static void strays_get_a_reset_and_liars_nothing(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family, at;
		OWN_FD in = wire(lab.box, f, true), other = wire(lab.other, f, true);
		struct ip away = ip_of(families[i].away), box = own_address(f, FIRST), second = own_address(f, SECOND), lo = ip_of(families[i].none);
		struct packet p;

		at = wire_if(in);
		tcp(&p, f, &box, &away, 1000, 443, TH_ACK, 7, 7);
		put(in, at, &p);
		assert_true(reset_comes(in, f, &box, SOON));
		tcp(&p, f, &second, &away, 1000, 443, TH_ACK, 7, 7);
		put(in, at, &p);
		assert_false(reset_comes(in, f, &second, LONG));
		assert_false(reset_comes(other, f, &second, LONG));
		tcp(&p, f, &lo, &away, 1000, 443, TH_ACK, 7, 7);
		put(in, at, &p);
		assert_false(reset_comes(in, f, &lo, LONG));
		/* To the listener itself, past the verdict: no such address there. */
		tcp(&p, f, &box, &lo, 1000, WORLD_PORT, TH_ACK, 7, 7);
		put(in, at, &p);
		assert_false(reset_comes(in, f, &box, LONG));
	}
}

/* ---- UDP ---- */

struct arrival {
	struct ip from, to;
	uint16_t from_port, to_port;
	int index;
	char text[64];
};

static bool arrives(int family, struct arrival *ret, int ms)
{
	int fd = family == AF_INET ? lab.w.udp4 : lab.w.udp6;
	_Alignas(8) char control[256];
	struct sockaddr_storage from;
	struct iovec v = { .iov_base = ret->text, .iov_len = sizeof(ret->text) - 1 };
	struct msghdr m = { .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	bool dst = false, info = false;
	ssize_t n;

	if (!comes(fd, POLLIN, ms))
		return false;
	n = recvmsg(fd, &m, 0);
	assert_true(n >= 0);
	ret->text[n] = '\0';
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&from, &ret->from, &ret->from_port), 0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		struct sockaddr_storage to;
		struct in6_pktinfo six;
		struct in_pktinfo four;

		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR)) {
			memcpy(&to, CMSG_DATA(c), family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
			assert_int_equal(ip_of_sockaddr((struct sockaddr *)&to, &ret->to, &ret->to_port), 0);
			dst = true;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&four, CMSG_DATA(c), sizeof(four));
			ret->index = four.ipi_ifindex;
			info = true;
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&six, CMSG_DATA(c), sizeof(six));
			ret->index = (int)six.ipi6_ifindex;
			info = true;
		}
	}
	assert_true(dst && info);
	return true;
}

static void udp_arrives_with_its_destination_and_is_answered(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family;
		OWN_FD client = socket_in(lab.box, f, SOCK_DGRAM | SOCK_NONBLOCK, 0);
		struct ip away = ip_of(families[i].also), box = own_address(f, FIRST), a;
		struct sockaddr_storage to, from;
		socklen_t n = address(families[i].also, 5353, &to), len = sizeof(from);
		struct arrival got;
		struct packet p;
		uint16_t port;
		char text[16] = "";

		assert_int_equal(sendto(client, "ask", 3, 0, (struct sockaddr *)&to, n), 3);
		assert_true(arrives(f, &got, SOON));
		assert_string_equal(got.text, "ask");
		assert_int_equal(got.index, lab.box_if);
		assert_int_equal(got.to_port, 5353);
		assert_true(ip_same(&got.to, &away));
		assert_true(ip_same(&got.from, &box));

		udp(&p, f, &away, &box, 5353, got.from_port, "answer");
		put(lab.w.out, lab.box_if, &p);
		assert_true(comes(client, POLLIN, SOON));
		assert_int_equal(recvfrom(client, text, sizeof(text), 0, (struct sockaddr *)&from, &len), 6);
		assert_memory_equal(text, "answer", 6);
		assert_int_equal(ip_of_sockaddr((struct sockaddr *)&from, &a, &port), 0);
		assert_true(ip_same(&a, &away));
		assert_int_equal(port, 5353);
	}
}

static void the_largest_datagram_is_one_packet(void **state)
{
	static char big[65507], in[65536];
	OWN_FD client = FD_NONE;
	struct sockaddr_storage to;
	socklen_t n;

	(void)state;
	need_root();
	client = socket_in(lab.box, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	n = address("203.0.113.5", 4000, &to);
	memset(big, 'x', sizeof(big));
	assert_int_equal(sendto(client, big, sizeof(big), 0, (struct sockaddr *)&to, n), sizeof(big));
	assert_true(comes(lab.w.udp4, POLLIN, SOON));
	assert_int_equal(recv(lab.w.udp4, in, sizeof(in), 0), sizeof(big));
}

/* Whatever was sent before, a good datagram is the first that arrives, and the last. */
static void only_a_good_one_arrives(int f)
{
	OWN_FD out = wire(lab.box, f, false);
	struct ip away = ip_of(f == AF_INET ? families[0].away : families[1].away), box = own_address(f, FIRST);
	struct arrival got;
	struct packet good;

	udp(&good, f, &box, &away, 1000, 53, "good");
	put(out, wire_if(out), &good);
	assert_true(arrives(f, &got, SOON));
	assert_string_equal(got.text, "good");
	assert_false(arrives(f, &got, 0));
}

static void does_not_arrive(const struct packet *bad)
{
	OWN_FD out = wire(lab.box, bad->family, false);

	put(out, wire_if(out), bad);
	only_a_good_one_arrives(bad->family);
}

static void false_sources_go_nowhere(void **state)
{
	static const char *const four[] = { "127.0.0.1", "0.0.0.0", "198.18.0.1", "203.0.113.5", "198.18.200.200", "224.0.0.1", "255.255.255.255" };
	static const char *const six[] = { "::1", "::", NET_GATEWAY6, "2001:db8::5", "fe80::1", "ff02::1" };
	struct packet p;

	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family;
		const char *const *list = f == AF_INET ? four : six;
		struct ip away = ip_of(families[i].also), from = own_address(f, SECOND);

		udp(&p, f, &from, &away, 1000, 53, "bad");
		does_not_arrive(&p);
		for (size_t k = 0; k < (f == AF_INET ? sizeof(four) : sizeof(six)) / sizeof(four[0]); k++) {
			from = ip_of(list[k]);
			udp(&p, f, &from, &away, 1000, 53, "bad");
			does_not_arrive(&p);
		}
	}
}

static void special_destinations_go_nowhere(void **state)
{
	static const char *const four[] = { "127.0.0.1", "127.1.2.3", "224.0.0.251", "255.255.255.255", "0.0.0.0" };
	static const char *const six[] = { "::1", "ff02::fb", "ff0e::1" };
	struct packet p;

	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family;
		struct ip box = own_address(f, FIRST);

		for (size_t k = 0; k < (f == AF_INET ? sizeof(four) : sizeof(six)) / sizeof(four[0]); k++) {
			struct ip to = ip_of(f == AF_INET ? four[k] : six[k]);

			udp(&p, f, &box, &to, 1000, WORLD_PORT, "bad");
			does_not_arrive(&p);
		}
	}
	/* Nobody is told of 0.0.0.0's meaning by a program either: there are no groups. */
	OWN_FD s = socket_in(lab.box, AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_storage to;
	socklen_t n = address("224.0.0.251", 5353, &to);

	assert_int_equal(sendto(s, "x", 1, 0, (struct sockaddr *)&to, n), -1);
	assert_true(errno == EHOSTUNREACH || errno == ENETUNREACH);
}

static void fragments_go_nowhere(void **state)
{
	struct ip away = ip_of("203.0.113.5"), box, away6 = ip_of("2001:db8::5");
	struct packet p, q;
	uint16_t off, zero = 0;

	(void)state;
	need_root();
	box = own_address(AF_INET, FIRST);
	/* Two halves of one datagram: the kernel would put them together. */
	udp(&p, AF_INET, &box, &away, 1000, 53, "0123456789abcdef");
	q = p;
	p.n = 20 + 16;
	off = htons((uint16_t)p.n);
	memcpy(p.b + 2, &off, 2);
	off = htons(0x2000);
	memcpy(p.b + 6, &off, 2);
	memcpy(p.b + 10, &zero, 2);
	off = fold(sum(0, p.b, 20));
	memcpy(p.b + 10, &off, 2);
	memmove(q.b + 20, q.b + 36, 8);
	q.n = 28;
	off = htons(28);
	memcpy(q.b + 2, &off, 2);
	off = htons(2);
	memcpy(q.b + 6, &off, 2);
	memcpy(q.b + 10, &zero, 2);
	off = fold(sum(0, q.b, 20));
	memcpy(q.b + 10, &off, 2);
	{
		OWN_FD out = wire(lab.box, AF_INET, false);

		put(out, wire_if(out), &p);
	}
	does_not_arrive(&q);
	/* A whole datagram with a fragment header. */
	box = own_address(AF_INET6, FIRST);
	udp(&p, AF_INET6, &box, &away6, 1000, 53, "bad");
	memmove(p.b + 48, p.b + 40, p.n - 40);
	memset(p.b + 40, 0, 8);
	p.b[40] = IPPROTO_UDP;
	p.b[47] = 1;
	p.b[6] = IPPROTO_FRAGMENT;
	p.n += 8;
	off = htons((uint16_t)(p.n - 40));
	memcpy(p.b + 4, &off, 2);
	does_not_arrive(&p);
}

static void boxes_do_not_reach_each_other(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family, index;
		OWN_FD hears = wire(lab.other, f, true), client = socket_in(lab.box, f, SOCK_DGRAM, 0), out = wire(lab.box, f, false);
		struct ip box = own_address(f, FIRST), second = own_address(f, SECOND);
		struct sockaddr_storage to;
		struct arrival got;
		struct packet p;
		socklen_t n = ip_sockaddr(&second, 9, &to);

		assert_int_equal(sendto(client, "hello", 5, 0, (struct sockaddr *)&to, n), 5);
		/* It ends at the gateway, which sees whom it was for. */
		assert_true(arrives(f, &got, SOON));
		assert_true(ip_same(&got.to, &second));
		tcp(&p, f, &box, &second, 1000, 22, TH_ACK, 1, 1);
		put(out, wire_if(out), &p);
		assert_false(get(hears, f, &p, &index, LONG));
		/* The listening was worth something. */
		udp(&p, f, &box, &second, 1, 2, "x");
		put(lab.w.out, lab.other_if, &p);
		assert_true(get(hears, f, &p, &index, SOON));
	}
}

static void odd_protocols_go_nowhere(void **state)
{
	static const uint8_t protos[] = { 2, 4, 41, 47, 50, 51, 103, 132, 255 };
	struct ip away, box;
	struct packet p, inner;
	uint16_t c;

	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family;

		away = ip_of(families[i].also);
		box = own_address(f, FIRST);
		for (size_t k = 0; k < sizeof(protos); k++) {
			/* Something that would be a datagram if anybody unpacked it. */
			udp(&inner, f, &box, &away, 1000, 53, "bad");
			head(&p, f, &box, &away, protos[k], inner.n);
			memcpy(p.b + p.head, inner.b, inner.n);
			does_not_arrive(&p);
		}
	}
	/* The way to take chosen by the sender: a loose source route by way of another box. */
	away = ip_of("203.0.113.5");
	box = own_address(AF_INET, FIRST);
	udp(&inner, AF_INET, &box, &away, 1000, 53, "bad");
	p = inner;
	memmove(p.b + 28, p.b + 20, p.n - 20);
	p.n += 8;
	p.b[0] = 0x47;
	away = own_address(AF_INET, SECOND);
	memcpy(p.b + 20, (const unsigned char[]){ 131, 7, 4, 0, 0, 0, 0, 0 }, 8);
	memcpy(p.b + 23, away.b + 12, 4);
	c = htons((uint16_t)p.n);
	memcpy(p.b + 2, &c, 2);
	memset(p.b + 10, 0, 2);
	c = fold(sum(0, p.b, 28));
	memcpy(p.b + 10, &c, 2);
	does_not_arrive(&p);
}

/* A box with power over its own interface (--nesting): frames of its own making. */
static void odd_frames_go_nowhere(void **state)
{
	static const unsigned char own[6] = { 2, 0x63, 0x75, 0x62, 0x62, 0x79 };
	static const struct {
		uint16_t type;
		unsigned char to[6];
		size_t tag;	/* bytes between the head and the packet */
	} frames[] = {
		{ ETH_P_ARP, { 255, 255, 255, 255, 255, 255 }, 0 },
		{ ETH_P_ARP, { 2, 0x63, 0x75, 0x62, 0x62, 0x79 }, 0 },
		{ 0x88cc, { 1, 0x80, 0xc2, 0, 0, 0x0e }, 0 },
		{ 0x88b5, { 2, 0x63, 0x75, 0x62, 0x62, 0x79 }, 0 },
		{ ETH_P_8021Q, { 2, 0x63, 0x75, 0x62, 0x62, 0x79 }, 4 },
		{ ETH_P_8021AD, { 2, 0x63, 0x75, 0x62, 0x62, 0x79 }, 4 },
		{ ETH_P_IP, { 2, 0, 0, 0, 0, 1 }, 0 },
	};
	OWN_FD raw = FD_NONE, hears = FD_NONE;
	struct ip away, box, second;
	struct sockaddr_ll a = { .sll_family = AF_PACKET };
	struct packet p, heard;
	int index;

	(void)state;
	need_root();
	away = ip_of("203.0.113.5");
	box = own_address(AF_INET, FIRST);
	second = own_address(AF_INET, SECOND);
	raw = socket_in(lab.box, AF_PACKET, SOCK_RAW, 0);
	hears = socket_in(lab.other, AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	a.sll_ifindex = wire_if(raw);
	for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
		uint16_t type = htons(frames[i].type), inner = htons(ETH_P_IP);
		unsigned char frame[256] = { 0 };
		size_t n = 14 + frames[i].tag;

		udp(&p, AF_INET, &box, &away, 1000, 53, "bad");
		memcpy(frame, frames[i].to, 6);
		memcpy(frame + 6, own, 6);
		memcpy(frame + 12, &type, 2);
		/* Network 5. A tag that says 0 is only a priority, and the packet one without a tag. */
		if (frames[i].tag) {
			frame[15] = 5;
			memcpy(frame + 16, &inner, 2);
		}
		memcpy(frame + n, p.b, p.n);
		assert_int_equal(sendto(raw, frame, n + p.n, 0, (struct sockaddr *)&a, sizeof(a)), n + p.n);
		only_a_good_one_arrives(AF_INET);
	}
	assert_false(get(hears, AF_INET, &heard, &index, LONG));
	udp(&p, AF_INET, &away, &second, 1, 2, "x");
	put(lab.w.out, lab.other_if, &p);
	assert_true(get(hears, AF_INET, &heard, &index, SOON));
}

/* ---- the rest ---- */

static void pings_are_seen_and_not_answered(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		int f = families[i].family, index;
		OWN_FD in = wire(lab.box, f, true);
		struct ip away = ip_of(families[i].away), box = own_address(f, FIRST);
		struct packet p, seen;

		head(&p, f, &box, &away, f == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6, 16);
		p.b[p.head] = f == AF_INET ? PING4 : ICMP6_ECHO_REQUEST;
		p.b[p.head + 5] = 9;
		if (f == AF_INET) {
			uint16_t c = fold(sum(0, p.b + p.head, 16));

			memcpy(p.b + p.head + 2, &c, 2);
		} else {
			finish(&p, IPPROTO_ICMPV6, 2);
		}
		put(in, wire_if(in), &p);
		assert_true(get(f == AF_INET ? lab.w.syn4 : lab.w.syn6, f, &seen, &index, SOON));
		assert_int_equal(index, lab.box_if);
		assert_int_equal(seen.n, p.n);
		assert_memory_equal(seen.b + seen.head, p.b + p.head, 16);
		assert_false(get(in, f, &seen, &index, LONG));
		/* Anything else of ICMP is for nobody: an answer to nothing. */
		p.b[p.head] = f == AF_INET ? PONG4 : ICMP6_ECHO_REPLY;
		put(in, wire_if(in), &p);
		assert_false(get(f == AF_INET ? lab.w.syn4 : lab.w.syn6, f, &seen, &index, LONG));
	}
}

static int list_addresses(void *arg, struct err *e)
{
	struct ifaddrs *all;
	char *out = arg;

	if (getifaddrs(&all) < 0)
		return err_set(e, -errno, "getifaddrs");
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[IP_TEXT_MAX];
		uint16_t port;
		struct ip a;

		if (i->ifa_addr && ip_of_sockaddr(i->ifa_addr, &a, &port) == 0) {
			(void)snprintf(out + strlen(out), 512 - strlen(out), "%s %s\n", i->ifa_name, ip_text(&a, text));
		}
	}
	freeifaddrs(all);
	return 0;
}

static void a_box_has_its_two_addresses_and_no_others(void **state)
{
	char text[512] = "", want[512], four[IP_TEXT_MAX], six[IP_TEXT_MAX];
	struct ip a, b;
	struct err e = ERR_INIT;

	(void)state;
	need_root();
	a = net_box4(FIRST);
	b = net_box6(FIRST);
	assert_int_equal(inside_net(lab.box, list_addresses, text, &e), 0);
	(void)snprintf(want, sizeof(want), "lo 127.0.0.1\neth0 %s\nlo ::1\neth0 %s\n", ip_text(&a, four), ip_text(&b, six));
	assert_string_equal(text, want);
	/* The gateway's side has none but its loopback's. */
	text[0] = '\0';
	assert_int_equal(inside_net(lab.ns, list_addresses, text, &e), 0);
	assert_string_equal(text, "lo 127.0.0.1\nlo ::1\n");
}

static int read_forwarding(void *arg, struct err *e)
{
	char text[8];

	(void)e;
	for (int i = 0; i < 2; i++) {
		const char *path = i ? "/proc/sys/net/ipv6/conf/all/forwarding" : "/proc/sys/net/ipv4/ip_forward";

		if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0 || text[0] != '0')
			*(int *)arg += 1;
	}
	return 0;
}

static void nothing_is_forwarded(void **state)
{
	struct err e = ERR_INIT;
	int bad = 0;

	(void)state;
	need_root();
	assert_int_equal(inside_net(lab.ns, read_forwarding, &bad, &e), 0);
	assert_int_equal(bad, 0);
}

static bool has_eth0(int ns)
{
	OWN_FD s = socket_in(ns, AF_INET, SOCK_DGRAM, 0);
	struct ifreq r = { .ifr_name = WORLD_BOX_IF };

	return ioctl(s, SIOCGIFINDEX, &r) == 0;
}

static bool within(bool (*is)(int), int arg, bool want)
{
	for (int i = 0; i < SOON; i += 10) {
		if (is(arg) == want)
			return true;
		(void)poll(NULL, 0, 10);
	}
	return false;
}

static void a_number_serves_one_box_at_a_time(void **state)
{
	OWN_FD third = FD_NONE;
	struct err e = ERR_INIT;
	int index = -7;

	(void)state;
	need_root();
	third = new_ns();
	assert_int_equal(plug_make(lab.ns, third, FIRST, &index, &e), -EEXIST);
	assert_int_equal(plug_make(lab.ns, lab.box, FIRST + 5, &index, &e), -ENOTUNIQ);
	assert_int_equal(plug_make(lab.ns, third, NET_INDEX_MIN - 1, &index, &e), -EDOM);
	assert_int_equal(plug_make(lab.ns, third, NET_INDEX_MAX + 1, &index, &e), -EDOM);
	assert_int_equal(index, -7);
	assert_false(has_eth0(third));
	assert_int_equal(plug_pull(lab.ns, FIRST, &e), 0);
	assert_int_equal(plug_pull(lab.ns, FIRST, &e), 0);
	assert_false(has_eth0(lab.box));
	plug(third, FIRST, &index);
	assert_true(has_eth0(third));
	assert_int_not_equal(index, lab.box_if);
	plug(lab.box, FIRST + 9, &lab.box_if);
	assert_true(has_eth0(lab.box));
}

static void a_box_loses_its_interface_with_the_gateway(void **state)
{
	OWN_FD ns = FD_NONE;
	struct err e = ERR_INIT;
	int index;

	(void)state;
	need_root();
	assert_true(has_eth0(lab.box));
	world_done(&lab.w);
	plug_done();
	fd_close(&lab.ns);
	assert_true(within(has_eth0, lab.box, false));
	/* And gets one from the next. */
	ns = world_new(&e);
	assert_true(ns >= 0);
	assert_int_equal(world_enter(ns, &lab.w, &e), 0);
	lab.ns = fd_take(&ns);
	plug(lab.box, FIRST, &index);
	lab.box_if = index;
	one_connection(AF_INET, "203.0.113.5");
}

static void the_next_gateway_takes_over(void **state)
{
	struct world next;
	struct err e = ERR_INIT;

	(void)state;
	need_root();
	one_connection(AF_INET, "203.0.113.5");
	world_done(&lab.w);
	if (world_enter(lab.ns, &next, &e) < 0)
		fail_msg("%s", e.text);
	lab.w = next;
	for (size_t i = 0; i < 2; i++)
		one_connection(families[i].family, families[i].away);
}

static void links_that_go_are_told(void **state)
{
	struct err e = ERR_INIT;
	char buf[4096];

	(void)state;
	need_root();
	/* What was told so far: nothing, or the pairs. */
	while (recv(lab.w.link, buf, sizeof(buf), 0) > 0)
		;
	assert_int_equal(plug_pull(lab.ns, SECOND, &e), 0);
	assert_true(comes(lab.w.link, POLLIN, SOON));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(first_packets_wait_for_a_verdict),
		CASE(a_refusal_is_a_reset),
		CASE(strays_get_a_reset_and_liars_nothing),
		CASE(udp_arrives_with_its_destination_and_is_answered),
		CASE(the_largest_datagram_is_one_packet),
		CASE(false_sources_go_nowhere),
		CASE(special_destinations_go_nowhere),
		CASE(fragments_go_nowhere),
		CASE(odd_protocols_go_nowhere),
		CASE(odd_frames_go_nowhere),
		CASE(boxes_do_not_reach_each_other),
		CASE(pings_are_seen_and_not_answered),
		CASE(a_box_has_its_two_addresses_and_no_others),
		CASE(nothing_is_forwarded),
		CASE(a_number_serves_one_box_at_a_time),
		CASE(a_box_loses_its_interface_with_the_gateway),
		CASE(the_next_gateway_takes_over),
		CASE(links_that_go_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
