/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_RUN_H
#define BOX_RUN_H

/* cubbyd from the outside: what its main() calls, in this order. */

#include <stdbool.h>
#include <stddef.h>

#include "base/conf.h"
#include "base/err.h"
#include "engine/engine.h"

/* Make and check the directories: STATE (0700), RUN (0755) and what is in them. */
int daemon_dirs(const char *state_dir, const char *run_dir, struct err *e);
/* A short word that is this pair of directories' own, for the names of cgroups. n: 9 or more. */
void daemon_tag(const char *state_dir, const char *run_dir, char *ret, size_t n);
/*
 * Take the locks. 0: ret_fds are the caller's, held as long as they are open. 1: another daemon listens already.
 * Waits up to 20 s for the builders of a daemon that was killed.
 */
int daemon_lock(const char *state_dir, const char *run_dir, int ret_fds[2], struct err *e);

/* What the network of the boxes is made of. */
struct net_setup {
	int ns;			/* the gateway namespace, of world_new() (net/world.h); borrowed. FD_NONE: no box can have a network ... */
	const char *why;	/* ... and why */
	const char *program;	/* absolute path of cubby-gateway, or NULL: it isn't installed */
};

struct daemon_options {
	const struct engine *engine;	/* set up; all its descriptors open */
	const struct conf *conf;
	const char *state_dir, *run_dir; /* absolute */
	const struct net_setup *net;	/* or NULL: no box has a network */
	bool rootless;
	unsigned ids;			/* of the user namespace, when rootless */
	void (*in_builder)(unsigned k);	/* called once in each builder, with its number; or NULL */
	void (*ready)(void *arg);	/* called when clients can connect; or NULL */
	void *ready_arg;
};

/* Serve until told to end, or until there was nothing to look after for as long as the configuration says. */
int daemon_run(const struct daemon_options *o, struct err *e);

#endif
