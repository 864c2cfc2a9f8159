/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TEST_BOX_LIVE_H
#define TESTS_UNIT_TEST_BOX_LIVE_H

/*
 * A box without an engine: cubby-init as PID 1 of fresh namespaces, on a small root of its own (tmpfs; the host's /usr
 * read-only, an /etc of a few lines, /proc, /dev with devpts). For tests of both ends of the box protocol.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "chan/box.h"
#include "chan/call.h"

struct live {
	pid_t pid;		/* of init, on the host */
	char dir[128];		/* the test's leak_dir(); holds init.sock */
	bool ids;		/* there is more than one id in the box */
};

/* Extra argument of init, or NULL. Skips the test when namespaces can't be had. */
void live_start(struct live *l, const char *arg);
/* Ends it by BOX_STOP (force: by SIGKILL) and removes the socket. Returns the wait status. */
int live_stop(struct live *l, bool force);
int live_connect(const struct live *l);

/* Run `sh -c script` and collect what it wrote, at most room - 1 bytes each; out, err may be NULL: /dev/null. */
struct live_run {
	struct box_exec x;	/* argv, in, out, err are set by live_run */
	const char *input;	/* NULL: /dev/null */
	char out[8192], err[8192];
	struct box_exit exit;
	struct err e;
	int r;			/* of call_run() */
};
void live_sh(const struct live *l, struct live_run *run, const char *script);
void live_argv(const struct live *l, struct live_run *run, char *const *argv);

#endif
