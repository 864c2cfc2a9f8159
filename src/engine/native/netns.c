/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "net/addr.h"
#include "net/world.h"
#include "sys/inside.h"

/* In advance: so many of the kind that was wanted last, and of the other one. */
#define SPARES_MAX 8
#define SPARES_OTHER 2
#define RANGE ((NET_INDEX_MAX + 1 - NET_INDEX_MIN) / NETNS_RANGES)
/* A box that may (--nesting) could make its own eth0 again and again. */
#define CLEAR_TRIES 4

enum kind { PLAIN, PLUGGED };

static struct {
	struct netns each[SPARES_MAX];
	unsigned n;
} spares[2];
static enum kind wanted;

static struct {
	unsigned first;
	unsigned next;		/* counts from 0 within the range */
	bool begun;
} numbers = { .first = NET_INDEX_MIN };

void netns_range(unsigned k)
{
	numbers.first = NET_INDEX_MIN + (k % NETNS_RANGES) * RANGE;
	numbers.begun = false;
}

static unsigned next_number(void)
{
	/* Whoever had this range before, a builder that died or an earlier daemon, has used the first ones. */
	if (!numbers.begun) {
		if (getrandom(&numbers.next, sizeof(numbers.next), 0) != (ssize_t)sizeof(numbers.next))
			numbers.next = 0;
		numbers.next %= RANGE;
		numbers.begun = true;
	}
	numbers.next = (numbers.next + 1) % RANGE;
	return numbers.first + numbers.next;
}

static int plug(int gateway_ns, int ns, unsigned *ret_index, int *ret_if, struct err *e)
{
	for (unsigned i = 0; i < RANGE; i++) {
		struct err mine = ERR_INIT;
		unsigned index = next_number();
		int r = plug_make(gateway_ns, ns, index, ret_if, &mine);

		if (r == 0) {
			*ret_index = index;
			return 0;
		}
		if (r != -EEXIST)
			return err_why(e, mine.why, r, "%s", mine.text);
	}
	return err_why(e, WHY_LIMIT, -ENOSPC, "there are no more addresses for boxes: remove some");
}

/* In the calling thread's namespace: what programs expect without power over it. */
static void allow(unsigned ids)
{
	char range[32];

	/* A kernel without IPv4 sysctls has nothing to allow. */
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	(void)snprintf(range, sizeof(range), "0 %u", ids > INT_MAX ? INT_MAX : ids - 1);
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", range);
}

static int allow_there(void *arg, struct err *e)
{
	(void)e;
	allow(*(const unsigned *)arg);
	return 0;
}

int netns_plug(int gateway_ns, int ns, unsigned ids, unsigned *ret_index, int *ret_if, struct err *e)
{
	(void)inside_net(ns, allow_there, &ids, NULL);
	for (int i = 1;; i++) {
		struct err mine = ERR_INIT;
		int r = plug(gateway_ns, ns, ret_index, ret_if, &mine);

		if (r == -ENOTUNIQ && i < CLEAR_TRIES)
			r = plug_clear(ns, &mine);
		else if (r == 0)
			return 0;
		if (r < 0)
			return err_why(e, mine.why, r, "%s", mine.text);
	}
}

static int lo_up(void)
{
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return s >= 0 && ioctl(s, SIOCSIFFLAGS, &r) == 0 ? 0 : -errno;
}

static int make(int gateway_ns, struct netns *ret, struct err *e)
{
	struct netns n = { .index = 0 };
	OWN_FD fd = FD_NONE;
	int r;

	if (unshare(CLONE_NEWNET) < 0)
		return err_set(e, -errno, "cannot make a network namespace");
	r = lo_up();
	if (r < 0)
		return err_set(e, r, "cannot bring up the loopback interface");
	allow(UINT_MAX);
	/* What the host forwards is no business of a box. */
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward", "0");
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "cannot open a network namespace");
	if (gateway_ns >= 0) {
		r = plug(gateway_ns, FD_NONE, &n.index, &n.net_if, e);
		if (r < 0)
			return r;
	}
	n.fd = fd_take(&fd);
	*ret = n;
	return 0;
}

int netns_enter(int gateway_ns, struct netns *ret, struct err *e)
{
	enum kind k = gateway_ns >= 0 ? PLUGGED : PLAIN;

	wanted = k;
	while (spares[k].n > 0) {
		struct netns n = spares[k].each[--spares[k].n];

		if (setns(n.fd, CLONE_NEWNET) == 0) {
			*ret = n;
			return 0;
		}
		(void)close(n.fd);
	}
	return make(gateway_ns, ret, e);
}

static bool lacks(enum kind k)
{
	return spares[k].n < (k == wanted ? SPARES_MAX : SPARES_OTHER);
}

bool netns_prepare(int gateway_ns)
{
	enum kind k = gateway_ns < 0 ? PLAIN : lacks(wanted) ? wanted : !wanted;

	if (!lacks(k) || make(k == PLUGGED ? gateway_ns : FD_NONE, &spares[k].each[spares[k].n], NULL) < 0)
		return false;
	spares[k].n++;
	return lacks(PLAIN) || (gateway_ns >= 0 && lacks(PLUGGED));
}

int netns_home(struct err *e)
{
	char path[64];
	int fd;

	/* A builder stands in the namespace of the box that it made last; its parent never leaves home. */
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)getppid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
		int r = -errno;

		fd_close(&fd);
		return err_set(e, r, "cannot enter the host's network namespace");
	}
	return fd;
}
