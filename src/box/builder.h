/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_BUILDER_H
#define BOX_BUILDER_H

/*
 * Builders: a few small processes, forked from the daemon before it grows, that do what takes long or may
 * hang: making boxes and taking them down. The daemon's own loop never waits for a mount or a dying process,
 * and clone(2) copies a small address space. A builder that dies or hangs is replaced and its job fails.
 *
 * They speak the daemon protocol (chan/msg.h) over a socket pair, one job at a time.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "engine/engine.h"

struct builders;

/*
 * keep_below: descriptors with lower numbers belong to the engine and are kept by builders; all others
 * are closed in them. in_builder is called first in each with its number, 0–15, or NULL.
 */
int builders_new(struct loop *loop, const struct engine *engine, unsigned count, int keep_below,
		 void (*in_builder)(unsigned k), struct builders **ret, struct err *e);
/* Ends them; jobs that wait are dropped, their `done` is not called. Waits for a running job, at most `ms`. */
void builders_free(struct builders *b, unsigned ms);

/*
 * What comes back from a job. r < 0: `e` says why and `answer` is NULL. `fd` is a descriptor that
 * the job returned, or FD_NONE; the callee may take it, else it is closed.
 */
typedef void builder_done(void *arg, int r, const struct json *answer, int *fd, const struct err *e);

enum builder_queue { BUILD_NOW, BUILD_LATER };

/*
 * Jobs. A box that was started is in the answer: `pid`, and with spec.net `net_index` and `net_if`; `fd` is its pidfd. The
 * descriptors are copied; the caller keeps its own. `spec` isn't kept. mounts[i].fd may be FD_NONE: then
 * sources[i] is opened by the builder with the rights of `owner`.
 */
int builders_start_box(struct builders *b, enum builder_queue q, const struct box_spec *spec, char *const *sources,
		       uid_t owner, builder_done *done, void *arg, struct err *e);
/*
 * Kill and forget the box; then remove parent_dir/id when parent_dir isn't NULL. Succeeds when there was nothing.
 */
int builders_end_box(struct builders *b, enum builder_queue q, const char *id, const char *parent_dir,
		     builder_done *done, void *arg, struct err *e);
/* Remove parent_dir/name and what is below it, when nothing else is to be done. Succeeds when it isn't there. */
int builders_remove(struct builders *b, const char *parent_dir, const char *name, builder_done *done, void *arg,
		    struct err *e);
/* Give the box that runs an interface, or take it (engine.h): the answer holds `net_index` and `net_if`. The pidfd of `run` is copied. */
int builders_plug(struct builders *b, enum builder_queue q, const char *id, const struct box_run *run, bool on,
		  builder_done *done, void *arg, struct err *e);
/* The answer holds `rows`, as in op "doctor" and "info". run NULL: of the host. */
int builders_grade(struct builders *b, const char *id, const struct box_run *run, builder_done *done, void *arg,
		   struct err *e);

/* Is this pid one of the builders? Reaps it and starts a new one. */
bool builders_reap(struct builders *b, pid_t pid);

#endif
