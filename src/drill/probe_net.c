/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network. What comes back is told apart: a reset, a report that there is no way (ICMP), and silence; with the time it took.
 * Nothing is sent to a place that isn't named on the command line.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/rtnetlink.h>

#include "drill/probe.h"

#define CONNECT_MS 1500
#define ANSWER_MS  300
#define ADDRS_MAX  32

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static socklen_t address(const char *text, int port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		return sizeof(*v4);
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		return sizeof(*v6);
	}
	fprintf(stderr, "probe: '%s' is not an address\n", text);
	exit(USAGE);
}

/* What a refusal looked like from inside. */
static const char *manner(int code)
{
	switch (code) {
	case ECONNREFUSED: return "a reset";
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EACCES:
	case EPERM: return "no way there";
	case ETIMEDOUT: return "silence";
	default: return "no connection";
	}
}

struct
try {
	const char *to;
	int fd, code; /* code: 0 connected, -1 under way */
	uint64_t begun, ended;
};

/* All at once, so that silence takes no longer for many than for one. */
static void connect_all(struct try *t, int n, int port, int ms)
{
	uint64_t end = now_us() + (uint64_t)ms * 1000;
	int left = n;

	for (int i = 0; i < n; i++) {
		struct sockaddr_storage a;
		socklen_t len = address(t[i].to, port, &a);

		t[i].begun = now_us();
		t[i].code = -1;
		t[i].fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (t[i].fd >= 0 && (connect(t[i].fd, (struct sockaddr *)&a, len) == 0 || errno == EINPROGRESS))
			continue;
		t[i].code = errno;
		t[i].ended = now_us();
	}
	while (left > 0 && now_us() < end) {
		struct pollfd p[ADDRS_MAX];

		left = 0;
		for (int i = 0; i < n; i++) {
			p[i] = (struct pollfd){ .fd = t[i].code == -1 ? t[i].fd : -1, .events = POLLOUT };
			left += t[i].code == -1;
		}
		if (left == 0 || poll(p, (nfds_t)n, (int)((end - now_us()) / 1000) + 1) <= 0)
			break;
		for (int i = 0; i < n; i++) {
			socklen_t len = sizeof(t[i].code);

			if (!p[i].revents)
				continue;
			getsockopt(t[i].fd, SOL_SOCKET, SO_ERROR, &t[i].code, &len);
			t[i].ended = now_us();
		}
	}
	for (int i = 0; i < n; i++) {
		if (t[i].code == -1) {
			t[i].code = ETIMEDOUT;
			t[i].ended = now_us();
		}
		if (t[i].fd >= 0)
			close(t[i].fd);
	}
}

/* A connection to any of them; refused tells of the one that took longest. */
static int connect_any(int argc, char **argv)
{
	struct try t[ADDRS_MAX];
	int port = (int)number(argv[0]), n = argc - 1 > ADDRS_MAX ? ADDRS_MAX : argc - 1, worst = 0;

	for (int i = 0; i < n; i++)
		t[i].to = argv[i + 1];
	connect_all(t, n, port, CONNECT_MS);
	for (int i = 0; i < n; i++) {
		if (t[i].code == 0)
			return through("%s port %d", t[i].to, port);
		if (t[i].ended - t[i].begun > t[worst].ended - t[worst].begun)
			worst = i;
	}
	return refused(t[worst].code, "%s of %d, %s: %s after %llu ms", n > 1 ? "none" : "not one", n, t[worst].to,
		       manner(t[worst].code), (unsigned long long)(t[worst].ended - t[worst].begun) / 1000);
}

/* By name, as a program would: looked up here, then connected to. */
static int reach(int argc, char **argv)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	static char text[8][INET6_ADDRSTRLEN];
	struct addrinfo *all = NULL;
	struct try t[8];
	int n = 0, r, port = (int)number(argv[1]);

	(void)argc;
	r = getaddrinfo(argv[0], NULL, &hints, &all);
	if (r != 0)
		return refused(ENOENT, "%s: %s", argv[0], gai_strerror(r));
	for (struct addrinfo *a = all; a && n < 8; a = a->ai_next) {
		if (getnameinfo(a->ai_addr, a->ai_addrlen, text[n], sizeof(text[n]), NULL, 0, NI_NUMERICHOST) != 0)
			continue;
		t[n].to = text[n];
		n++;
	}
	freeaddrinfo(all);
	connect_all(t, n, port, 8000);
	for (int i = 0; i < n; i++)
		if (t[i].code == 0)
			return through("%s port %d in %llu ms", t[i].to, port,
				       (unsigned long long)(t[i].ended - t[i].begun) / 1000);
	return refused(n ? t[0].code : ENOENT, "%s port %d: %s", argv[0], port, n ? manner(t[0].code) : "no address");
}

/* A datagram to each; through when one comes back. */
static int udp_any(int argc, char **argv)
{
	struct pollfd p[ADDRS_MAX];
	int port = (int)number(argv[0]), n = argc - 1 > ADDRS_MAX ? ADDRS_MAX : argc - 1, code = ETIMEDOUT;
	uint64_t begun = now_us(), end = begun + ANSWER_MS * 1000ull;

	for (int i = 0; i < n; i++) {
		struct sockaddr_storage a;
		socklen_t len = address(argv[i + 1], port, &a);

		p[i] = (struct pollfd){ .fd = socket(a.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
					.events = POLLIN };
		if (p[i].fd < 0 || connect(p[i].fd, (struct sockaddr *)&a, len) < 0 ||
		    send(p[i].fd, "drill", 5, 0) < 0) {
			code = errno;
			p[i].fd = -1;
		}
	}
	while (now_us() < end && poll(p, (nfds_t)n, (int)((end - now_us()) / 1000) + 1) > 0) {
		for (int i = 0; i < n; i++) {
			char buf[64];

			if (p[i].fd < 0 || !p[i].revents)
				continue;
			if (recv(p[i].fd, buf, sizeof(buf), 0) > 0)
				return through("%s port %d", argv[i + 1], port);
			code = errno == EAGAIN ? code : errno;
			p[i].fd = -1;
		}
	}
	return refused(code, "no answer from any of %d: %s after %llu ms", n, manner(code),
		       (unsigned long long)(now_us() - begun) / 1000);
}

/* A port of its own that takes connections, for others to find. */
static int tcp_listen(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)number(argv[0])) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = a.sin6_port };
	int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), zero = 0, r;

	if (s >= 0) {
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
		r = bind(s, (struct sockaddr *)&a, sizeof(a));
	} else {
		s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		r = bind(s, (struct sockaddr *)&v4, sizeof(v4));
	}
	r = verdict(r < 0 ? r : listen(s, 64), "listening");
	fflush(stdout);
	if (r == THROUGH && argc > 1)
		sleep((unsigned)number(argv[1]));
	return r;
}

bool probe_address(const struct sockaddr *a, char *ret, size_t n)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (a->sa_family == AF_INET) {
		memcpy(&v4, a, sizeof(v4));
		return inet_ntop(AF_INET, &v4.sin_addr, ret, (socklen_t)n);
	}
	if (a->sa_family != AF_INET6)
		return false;
	memcpy(&v6, a, sizeof(v6));
	return !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) && inet_ntop(AF_INET6, &v6.sin6_addr, ret, (socklen_t)n);
}

/* The addresses that aren't loopback and not of the link alone: "through: A B …". */
static int own_addresses(int argc, char **argv)
{
	struct ifaddrs *all = NULL;
	char list[1024] = "";

	(void)argc;
	(void)argv;
	if (getifaddrs(&all) < 0)
		return refused(errno, "getifaddrs");
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		char text[INET6_ADDRSTRLEN] = "";
		size_t n = strlen(list);

		if (i->ifa_addr && !(i->ifa_flags & IFF_LOOPBACK) && probe_address(i->ifa_addr, text, sizeof(text)))
			snprintf(list + n, sizeof(list) - n, "%s%s", n ? " " : "", text);
	}
	freeifaddrs(all);
	return list[0] ? through("%s", list) : refused(ENODEV, "no address but loopback");
}

/* Through when there is an interface beside loopback. */
static int interfaces(int argc, char **argv)
{
	struct if_nameindex *all = if_nameindex();
	char name[IF_NAMESIZE] = "";

	(void)argc;
	(void)argv;
	for (struct if_nameindex *i = all; i && i->if_index; i++)
		if (strcmp(i->if_name, "lo") != 0)
			memccpy(name, i->if_name, '\0', sizeof(name));
	if (all)
		if_freenameindex(all);
	return name[0] ? through("%s", name) : refused(ENODEV, "only loopback");
}

/* ---- names: a question that only the gateway's resolver knows the answer to */

static const uint8_t question[] = {
	0x4d, 0x52, 0x01, 0x00, 0, 1,   0,   0,   0,   0,   0,   0,   4,   'h', 'o', 's', 't', 5, 'c',
	'u',  'b',  'b',  'y',  8, 'i', 'n', 't', 'e', 'r', 'n', 'a', 'l', 0,   0,   1,   0,   1,
};
static const uint8_t gateway4[] = { 198, 18, 0, 1 };

/* 1: the gateway's answer; 0: an answer, and not the gateway's; a negative errno. */
static int ask_at(const char *to)
{
	struct sockaddr_storage a;
	socklen_t len = address(to, 53, &a);
	int s = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct pollfd p = { .fd = s, .events = POLLIN };
	uint8_t buf[1500];
	ssize_t n;
	int r = 0;

	if (s < 0 || connect(s, (struct sockaddr *)&a, len) < 0 || send(s, question, sizeof(question), 0) < 0)
		r = -errno;
	else if (poll(&p, 1, 2000) <= 0)
		r = -ETIMEDOUT;
	if (r == 0) {
		n = recv(s, buf, sizeof(buf), 0);
		if (n < 0)
			r = -errno;
		else if (n > 12 && buf[0] == question[0] && buf[1] == question[1])
			r = memmem(buf + 12, (size_t)n - 12, gateway4, sizeof(gateway4)) != NULL;
	}
	if (s >= 0)
		close(s);
	return r;
}

static int dns_elsewhere(int argc, char **argv)
{
	int code = 0;

	for (int i = 0; i < argc; i++) {
		int r = ask_at(argv[i]);

		if (r == 0)
			return through("%s answers, and it isn't the gateway", argv[i]);
		code = r < 0 && !code ? -r : code;
	}
	return code ? refused(code, "%s", manner(code)) : refused(EACCES, "the gateway answers for all %d", argc);
}

static int dns_gateway(int argc, char **argv)
{
	int r = ask_at(argv[0]);

	(void)argc;
	return r == 1 ? through("%s answers as the gateway does", argv[0])
		      : refused(r < 0 ? -r : ENOENT, "%s", argv[0]);
}

/* ---- the stack itself */

static int netlink(void *msg, size_t n)
{
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} answer;
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t got;

	if (s < 0 || send(s, msg, n, 0) < 0) {
		int e = errno;

		if (s >= 0)
			close(s);
		return e;
	}
	got = recv(s, &answer, sizeof(answer), 0);
	close(s);
	if (got < (ssize_t)(sizeof(answer.h) + sizeof(answer.e)) || answer.h.nlmsg_type != NLMSG_ERROR)
		return EBADMSG;
	return -answer.e.error;
}

/* An address more, on the loopback interface: any one asks for the same right. */
static int take_address(int argc, char **argv)
{
	struct {
		struct nlmsghdr h;
		struct ifaddrmsg a;
		struct rtattr attr;
		uint32_t addr;
	} msg = {
		.h = { .nlmsg_len = sizeof(msg),
		       .nlmsg_type = RTM_NEWADDR,
		       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE,
		       .nlmsg_seq = 1 },
		.a = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = if_nametoindex("lo") },
		.attr = { .rta_len = RTA_LENGTH(4), .rta_type = IFA_LOCAL },
	};
	int e;

	(void)argc;
	if (inet_pton(AF_INET, argv[0], &msg.addr) != 1)
		return USAGE;
	e = netlink(&msg, sizeof(msg));
	return e ? refused(e, "another address") : through("the address %s", argv[0]);
}

/* Through when an interface can be made to listen to everything, or its flags be changed at all. */
static int set_flags(int argc, char **argv)
{
	struct ifreq r = { .ifr_flags = 0 };
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)argc;
	(void)argv;
	memcpy(r.ifr_name, "lo", 3);
	if (s < 0 || ioctl(s, SIOCGIFFLAGS, &r) < 0)
		return refused(errno, "an interface");
	return verdict(ioctl(s, SIOCSIFFLAGS, &r), "the flags of an interface");
}

const struct verb verbs_net[] = {
	{ "connect-any", "PORT ADDR...", 2, ADDRS_MAX + 1, connect_any },
	{ "reach", "HOST PORT", 2, 2, reach },
	{ "udp-any", "PORT ADDR...", 2, ADDRS_MAX + 1, udp_any },
	{ "tcp-listen", "PORT [SECONDS]", 1, 2, tcp_listen },
	{ "own-addresses", "", 0, 0, own_addresses },
	{ "interfaces", "", 0, 0, interfaces },
	{ "dns-elsewhere", "ADDR...", 1, ADDRS_MAX, dns_elsewhere },
	{ "dns-gateway", "ADDR", 1, 1, dns_gateway },
	{ "take-address", "ADDR", 1, 1, take_address },
	{ "set-flags", "", 0, 0, set_flags },
	{ 0 },
};
