/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "net/addr.h"
#include "net/world.h"
#include "sys/inside.h"
#include "sys/rtnl.h"

/* A socket in the gateway namespace: every box of a builder needs one. */
static struct {
	int nl;
	dev_t dev;
	ino_t ino;
} gate = { .nl = FD_NONE };

void plug_done(void)
{
	fd_close(&gate.nl);
}

static int open_rtnl(void *arg, struct err *e)
{
	int *ret = arg, fd = nl_open(NETLINK_ROUTE);

	if (fd < 0)
		return err_set(e, fd, "cannot open a netlink socket");
	*ret = fd;
	return 0;
}

static int gate_open(int gateway_ns, struct err *e)
{
	struct stat st;
	int fd = FD_NONE, r;

	if (fstat(gateway_ns, &st) < 0)
		return err_set(e, -errno, "there is no gateway namespace");
	if (gate.nl >= 0 && gate.dev == st.st_dev && gate.ino == st.st_ino)
		return 0;
	r = inside_net(gateway_ns, open_rtnl, &fd, e);
	if (r < 0)
		return r;
	plug_done();
	gate.nl = fd;
	gate.dev = st.st_dev;
	gate.ino = st.st_ino;
	return 0;
}

struct job {
	unsigned index;
	char name[RTNL_NAME_MAX];	/* in the gateway namespace */
	int box_ns;
	int far, near;			/* interface indexes: in the gateway namespace, in the box */
	bool six;
	unsigned char box4[4], box6[16], gate4[4], gate6[16];
};

static void addresses(struct job *j)
{
	const struct ip a = net_box4(j->index), b = net_box6(j->index);
	const uint32_t four = htonl(ip_get4(&a));

	memcpy(j->box4, &four, sizeof(four));
	memcpy(j->box6, b.b, sizeof(b.b));
	(void)inet_pton(AF_INET, NET_GATEWAY4, j->gate4);
	(void)inet_pton(AF_INET6, NET_GATEWAY6, j->gate6);
}

/*
 * An interface of the box answers nobody and asks nobody about addresses, and has those that it is given. No more than
 * noise comes from one of these that can't be set: nobody out there would answer.
 */
static void quiet(void)
{
	static const char *const off[] = { "accept_ra", "autoconf", "router_solicitations", "accept_dad", "forwarding", "disable_ipv6" };
	char path[96];

	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/default/%s", off[i]);
		(void)file_write(AT_FDCWD, path, "0");
	}
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1");
}

static int pair(struct job *j, int box, struct err *e)
{
	struct nl b = { .len = 0 };
	int r;

	rtnl_put_pair(&b, j->name, WORLD_BOX_IF, j->box_ns, WORLD_MAC, WORLD_MTU);
	r = nl_talk(gate.nl, &b);
	if (r == -EEXIST && rtnl_index(box, WORLD_BOX_IF) > 0)
		return err_why(e, WHY_WRONG_STATE, -ENOTUNIQ, "the box has an interface '%s' already", WORLD_BOX_IF);
	if (r == -EEXIST)
		return err_why(e, WHY_BUSY, r, "the number %u of a box is in use", j->index);
	if (r == -EOPNOTSUPP)
		return err_why(e, WHY_UNSUPPORTED, r, "this kernel has no virtual interfaces: install one with CONFIG_VETH (Debian's have it)");
	if (r < 0)
		return err_set(e, r, "cannot make a pair of virtual interfaces");
	j->far = rtnl_index(gate.nl, j->name);
	j->near = rtnl_index(box, WORLD_BOX_IF);
	return j->far < 0 || j->near < 0 ? err_set(e, -ENODEV, "the pair of virtual interfaces is gone") : 0;
}

static int far_end(const struct job *j)
{
	struct rtnl_route four = { .family = AF_INET, .type = RTN_UNICAST, .table = WORLD_TABLE, .dst = j->box4, .bits = 32, .index = j->far };
	struct rtnl_route six = { .family = AF_INET6, .type = RTN_UNICAST, .table = WORLD_TABLE, .dst = j->box6, .bits = 128, .index = j->far };
	struct nl b = { .len = 0 };

	rtnl_put_route(&b, &four);
	rtnl_put_neighbour(&b, AF_INET, j->far, j->box4, WORLD_MAC);
	if (j->six) {
		rtnl_put_route(&b, &six);
		rtnl_put_neighbour(&b, AF_INET6, j->far, j->box6, WORLD_MAC);
	}
	return nl_talk(gate.nl, &b);
}

/* There are no groups to send to; saying so at once also keeps them out of the table of neighbours, which all share. */
static int near_end(const struct job *j, int box)
{
	static const unsigned char groups4[4] = { 224 };
	const struct rtnl_route four[] = {
		{ .family = AF_INET, .type = RTN_UNICAST, .table = RT_TABLE_MAIN, .dst = j->gate4, .bits = 32, .index = j->near },
		{ .family = AF_INET, .type = RTN_UNICAST, .table = RT_TABLE_MAIN, .via = j->gate4, .index = j->near },
		{ .family = AF_INET, .type = RTN_UNREACHABLE, .table = RT_TABLE_MAIN, .dst = groups4, .bits = 4,
		  .replace = true },	/* it outlives an interface */
	};
	const struct rtnl_route six[] = {
		/* The kernel adds it as well, but from a work queue (addrconf_dad_work()), and what comes before that is lost. */
		{ .family = AF_INET6, .type = RTN_LOCAL, .table = RT_TABLE_LOCAL, .dst = j->box6, .bits = 128, .index = j->near },
		{ .family = AF_INET6, .type = RTN_UNICAST, .table = RT_TABLE_MAIN, .dst = j->gate6, .bits = 128, .index = j->near },
		{ .family = AF_INET6, .type = RTN_UNICAST, .table = RT_TABLE_MAIN, .via = j->gate6, .index = j->near },
	};
	struct nl b = { .len = 0 };

	rtnl_put_up(&b, j->near);
	rtnl_put_addr(&b, AF_INET, j->near, j->box4);
	for (size_t i = 0; i < sizeof(four) / sizeof(four[0]); i++)
		rtnl_put_route(&b, &four[i]);
	rtnl_put_neighbour(&b, AF_INET, j->near, j->gate4, WORLD_MAC);
	if (j->six) {
		rtnl_put_addr(&b, AF_INET6, j->near, j->box6);
		for (size_t i = 0; i < sizeof(six) / sizeof(six[0]); i++)
			rtnl_put_route(&b, &six[i]);
		rtnl_put_neighbour(&b, AF_INET6, j->near, j->gate6, WORLD_MAC);
	}
	return nl_talk(box, &b);
}

/* In the box's network namespace. */
static int make(void *arg, struct err *e)
{
	struct job *j = arg;
	OWN_FD box = nl_open(NETLINK_ROUTE);
	int r;

	if (box < 0)
		return err_set(e, box, "cannot open a netlink socket");
	j->six = access("/proc/sys/net/ipv6/conf/all/forwarding", F_OK) == 0;
	if (j->six)
		quiet();
	r = pair(j, box, e);
	if (r < 0)
		return r;
	r = far_end(j);
	if (r == 0)
		r = near_end(j, box);
	if (r == 0) {
		rtnl_wait_ready(gate.nl, j->far);
		return 0;
	}
	(void)rtnl_delete_link(gate.nl, j->far);
	return err_set(e, r, "cannot set up the box's interface");
}

int plug_make(int gateway_ns, int box_ns, unsigned index, int *ret_if, struct err *e)
{
	struct job j = { .index = index, .box_ns = box_ns };
	OWN_FD here = FD_NONE;
	int r;

	if (index < NET_INDEX_MIN || index > NET_INDEX_MAX)
		return err_why(e, WHY_INTERNAL, -EDOM, "%u is no number of a box", index);
	r = gate_open(gateway_ns, e);
	if (r < 0)
		return r;
	(void)snprintf(j.name, sizeof(j.name), "b%u", index);
	addresses(&j);
	if (box_ns < 0) {
		here = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		if (here < 0)
			return err_set(e, -errno, "cannot open the box's network namespace");
		j.box_ns = here;
		r = make(&j, e);
	} else {
		r = inside_net(box_ns, make, &j, e);
	}
	if (r < 0)
		return r;
	*ret_if = j.far;
	return 0;
}

static int clear(void *arg, struct err *e)
{
	OWN_FD box = nl_open(NETLINK_ROUTE);
	int r;

	(void)arg;
	if (box < 0)
		return err_set(e, box, "cannot open a netlink socket");
	r = rtnl_index(box, WORLD_BOX_IF);
	if (r > 0)
		r = rtnl_delete_link(box, r);
	return r == -ENODEV || r >= 0 ? 0 : err_set(e, r, "cannot remove the box's interface");
}

int plug_clear(int box_ns, struct err *e)
{
	return inside_net(box_ns, clear, NULL, e);
}

static int near_peer(void *arg, struct err *e)
{
	OWN_FD box = nl_open(NETLINK_ROUTE);
	struct rtnl_link l;
	int *peer = arg, index, r;

	if (box < 0)
		return err_set(e, box, "cannot open a netlink socket");
	index = rtnl_index(box, WORLD_BOX_IF);
	r = index < 0 ? index : rtnl_get_link(box, index, &l);
	if (r < 0)
		return err_set(e, r, "cannot look at the box's interface");
	*peer = l.peer;
	return index;
}

static int forwards(void *arg, struct err *e)
{
	static const char *const paths[] = { "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding" };
	char text[8];

	(void)arg;
	(void)e;
	for (size_t i = 0; i < 2; i++) {
		ssize_t n = file_read_small(AT_FDCWD, paths[i], text, sizeof(text));

		if (n == -ENOENT && i == 1)
			continue;
		if (n < 1 || text[0] != '0')
			return 1;
	}
	return 0;
}

int plug_leads(int gateway_ns, int box_ns, struct err *e)
{
	struct rtnl_link far;
	int peer = 0, number = -1, near, r;

	near = inside_net(box_ns, near_peer, &peer, e);
	if (near < 0)
		return near;
	r = gate_open(gateway_ns, e);
	if (r < 0)
		return r;
	/* The gateway's end has the last word: its peer is that interface of that namespace. */
	if (peer <= 0 || rtnl_get_link(gate.nl, peer, &far) < 0 || rtnl_ns_number(gate.nl, box_ns, &number) < 0)
		return 0;
	if (far.name[0] != 'b' || far.peer != near || number < 0 || far.peer_ns != number)
		return 0;
	r = inside_net(gateway_ns, forwards, NULL, e);
	return r < 0 ? r : !r;
}

int plug_pull(int gateway_ns, unsigned index, struct err *e)
{
	char name[RTNL_NAME_MAX];
	int r = gate_open(gateway_ns, e);

	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "b%u", index);
	r = rtnl_index(gate.nl, name);
	if (r > 0)
		r = rtnl_delete_link(gate.nl, r);
	return r == -ENODEV || r >= 0 ? 0 : err_set(e, r, "cannot remove the interface of a box");
}
