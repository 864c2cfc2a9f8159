/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/native/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define SPARES_MAX 64

static int spares[SPARES_MAX];
static unsigned nspares;

static int lo_up(void)
{
	OWN_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	r.ifr_flags = IFF_UP | IFF_RUNNING;
	return s >= 0 && ioctl(s, SIOCSIFFLAGS, &r) == 0 ? 0 : -errno;
}

int netns_enter(struct err *e)
{
	OWN_FD fd = FD_NONE;
	int r;

	while (nspares > 0) {
		fd = spares[--nspares];
		if (setns(fd, CLONE_NEWNET) == 0)
			return fd_take(&fd);
		fd_close(&fd);
	}
	if (unshare(CLONE_NEWNET) < 0)
		return err_set(e, -errno, "cannot make a network namespace");
	r = lo_up();
	if (r < 0)
		return err_set(e, r, "cannot bring up the loopback interface");
	/* A kernel without IPv4 sysctls has nothing to allow. */
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	(void)file_write(AT_FDCWD, "/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_set(e, -errno, "cannot open a network namespace") : fd_take(&fd);
}

/* Only lo, and all of its counters zero: proc_pid_net(5), dev. */
static bool as_new(const char *dev)
{
	const char *line = strchr(dev, '\n');

	line = line ? strchr(line + 1, '\n') : NULL;
	if (!line)
		return false;
	line++;
	line += strspn(line, " ");
	if (strncmp(line, "lo:", 3) != 0)
		return false;
	line += 3;
	line += strspn(line, " 0");
	return strcmp(line, "\n") == 0;
}

void netns_give_back(int fd)
{
	char dev[2048];

	if (nspares < SPARES_MAX && setns(fd, CLONE_NEWNET) == 0 &&
	    file_read_small(AT_FDCWD, "/proc/thread-self/net/dev", dev, sizeof(dev)) > 0 && as_new(dev)) {
		spares[nspares++] = fd;
		return;
	}
	(void)close(fd);
}
