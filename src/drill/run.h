/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DRILL_RUN_H
#define DRILL_RUN_H

/* Running cubby-probe: outside, and in boxes over a connected box socket. Each runs below a child process with its input and output in pipes. */

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "drill/claim.h"

#define DRILL_PROBE_IN_BOX "/run/cubby-probe"

struct batch {
	pid_t pid;
	int in, out; /* owned; FD_NONE when closed */
	char *text; /* what was read and not taken yet; owned */
	size_t len;
};
#define BATCH_INIT                                      \
	{                                               \
		.pid = 0, .in = FD_NONE, .out = FD_NONE \
	}

/* argv[0] is the path of cubby-probe, the rest its words. */
int batch_outside(struct batch *b, char *const *argv, struct err *e);
/* `cubby-probe batch` in a box, as this user of it. The socket is borrowed by the child for as long as it lives. */
int batch_in_box(struct batch *b, int sock, const char *user, struct err *e);
/* One more line; with 0 or an errno. */
int batch_send(struct batch *b, const char *line);
/* The next line of output into ret, without its end. 1; 0 at the end; -ETIMEDOUT after ms. */
int batch_line(struct batch *b, char *ret, size_t room, int ms);
/* No more input: what runs until the end of input ends. Waits for the child, at most ms, then kills it. */
void batch_end(struct batch *b, int ms);

#endif
