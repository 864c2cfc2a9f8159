/* SPDX-License-Identifier: Apache-2.0 */
#include "store/view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

static void mark_name(unsigned k, char *ret, size_t n)
{
	(void)snprintf(ret, n, "view-%u", k);
}

/*
 * The time is the file's own birth: in a copy of the directory the two differ, and then the birth times of everything else
 * are worth nothing either.
 */
int view_began(int box_dir, unsigned k)
{
	char name[32], line[80];
	OWN_FD fd = FD_NONE;
	struct timespec now;
	struct statx st;
	int r;

	mark_name(k, name, sizeof(name));
	fd = openat(box_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) == 0 && (st.stx_mask & STATX_BTIME))
		now = (struct timespec){ .tv_sec = st.stx_btime.tv_sec, .tv_nsec = st.stx_btime.tv_nsec };
	(void)snprintf(line, sizeof(line), "made %lld %ld\n", (long long)now.tv_sec, now.tv_nsec);
	r = fd_write_all(fd, line, strlen(line));
	if (r < 0)
		(void)unlinkat(box_dir, name, 0);
	return r;
}

void view_forget(int box_dir, unsigned k)
{
	char name[32];

	mark_name(k, name, sizeof(name));
	(void)unlinkat(box_dir, name, 0);
}
