/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_INIT_H
#define GUEST_INIT_H

/*
 * PID 1 of a box. It accepts connections, makes a process for each, and reaps. It parses nothing that comes over a
 * connection, allocates nothing after its start, and waits for nobody.
 *
 * It is started inside all namespaces of the box, root pivoted, everything mounted.
 */

#include <stdbool.h>

#define INIT_HANDLERS_MAX 4096	/* connections served at once; one more is told BOX_FAIL EAGAIN */

struct init_opts {
	int listen_fd;	/* listening SOCK_STREAM unix socket, made outside */
	int ready_fd;	/* gets 'R' when the box can be used, or else the text of an error; closed then */
	bool nesting;	/* the box may make user namespaces of its own */
	bool no_userns;	/* see first that none can be made; with `nesting` unset */
	bool no_setid;	/* set-id bits can't be set in the box; see seal_box() */
	unsigned weaken; /* WEAKEN_FILTER, WEAKEN_CAPS: what is not given up (base/weaken.h) */
	bool once;	/* most likely one command is all that comes */
};

/* Serves until BOX_STOP. Returns the exit status: 0 after BOX_STOP, 1 when it could not start. */
int init_main(const struct init_opts *opts);

#endif
