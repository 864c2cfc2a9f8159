/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_SPAWN_H
#define GUEST_SPAWN_H

/* Start one command of a box. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "guest/user.h"

struct spawn {
	char *const *argv;
	char *const *env;	/* complete; its PATH is searched */
	const struct user *user;
	const char *cwd;	/* absolute; entered with the user's rights, not through a magic link of /proc */
	bool cwd_home;		/* cwd is the home directory: "/" when it can't be entered */
	int stdio[3];		/* above 2; FD_NONE: the box's /dev/null */
	bool tty;		/* stdio[0] becomes the controlling terminal */
	uint32_t umask;
};

/*
 * Returns the pid, of a process that has exec'd, leads a session of its own, has no signal blocked or ignored, and
 * no descriptor above 2. All signals must be blocked by the caller, who has one thread.
 *
 * Otherwise -errno. *ret_not_run tells that it was the command that could not be run (as opposed to a user,
 * a directory or a descriptor that could not be had); e has the text for both.
 */
pid_t spawn(const struct spawn *s, bool *ret_not_run, struct err *e);

/* Open a directory of the box for somebody outside: not through a link of /proc. A descriptor or a negative errno. No allocation. */
int open_dir(const char *path, int flags);

#endif
