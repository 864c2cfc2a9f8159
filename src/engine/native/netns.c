/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define SPARES_MAX 8

static int spares[SPARES_MAX];
static unsigned nspares;

static int lo_up(void)
{
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return s >= 0 && ioctl(s, SIOCSIFFLAGS, &r) == 0 ? 0 : -errno;
}

static int make(struct err *e)
{
	int fd, r;

	if (unshare(CLONE_NEWNET) < 0)
		return err_set(e, -errno, "cannot make a network namespace");
	r = lo_up();
	if (r < 0)
		return err_set(e, r, "cannot bring up the loopback interface");
	/* A kernel without IPv4 sysctls has nothing to allow. */
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_set(e, -errno, "cannot open a network namespace") : fd;
}

int netns_enter(struct err *e)
{
	while (nspares > 0) {
		int fd = spares[--nspares];

		if (setns(fd, CLONE_NEWNET) == 0)
			return fd;
		(void)close(fd);
	}
	return make(e);
}

bool netns_prepare(void)
{
	int fd = nspares < SPARES_MAX ? make(NULL) : -1;

	if (fd < 0)
		return false;
	spares[nspares++] = fd;
	return nspares < SPARES_MAX;
}
