/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_TEMPLATE_H
#define STORE_TEMPLATE_H

/*
 * Templates: immutable root file systems that boxes start from. The file system is the truth:
 *
 *	STATE/templates/NAME/meta.json	what it is; there only when the template is complete
 *	STATE/templates/NAME/root/	its own layer (canonical ids 0–65535)
 *	STATE/templates/NAME/log	the log of the build
 *	STATE/building/NAME.XXXXXX/	a build in progress: state.json, log, root/; renamed when complete
 *
 * A build runs in a child process that the daemon starts and watches; it can be cancelled and removed in
 * every state, and a dead one is swept at the next start.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

struct template_store;	/* opened state directory; one per daemon */

int template_store_open(const char *state_dir, uint32_t id_shift, struct template_store **ret, struct err *e);
void template_store_free(struct template_store *s);

/*
 * The parts of a complete template for a box. Strings are malloc'd into ret_parts and freed by
 * template_parts_done(). -ENOENT with WHY_NO_SUCH_TEMPLATE when there is none, with a did-you-mean and, for a
 * template that could be built ("host", "debian", "debian:SUITE"), the command that builds it.
 */
int template_parts(struct template_store *s, const char *name, struct root_part *ret_parts, unsigned *ret_n,
		   struct err *e);
void template_parts_done(struct root_part *parts, unsigned n);
bool template_exists(struct template_store *s, const char *name);

/*
 * Start a build: forks; the child builds and exits. source: "host", "debian[:SUITE]", "dir:PATH", "tar:FILE"
 * (the last two as made by the caller: from_fd is opened by the caller, else FD_NONE). Returns a pidfd to poll, owned
 * by the caller. -EEXIST for a name that exists or is being built.
 */
struct template_build {
	char name[NAME_MAX_LEN + 1];
	char dir[256];		/* STATE/building/NAME.XXXXXX */
	pid_t pid;
	int pidfd;		/* owned; readable when the build has ended */
	uint64_t deadline_ms;	/* CLOCK_MONOTONIC; 0: none */
};
int template_build_start(struct template_store *s, const char *name, const char *source, int from_fd,
			 uint64_t limit_ms, struct template_build *ret, struct err *e);
/* After the pidfd became readable: reap, publish or say why not. Removes what a failed build left, but keeps its log. */
int template_build_finish(struct template_store *s, struct template_build *b, struct err *e);
/* Ends everything the build started, and removes it. */
int template_build_cancel(struct template_store *s, struct template_build *b, struct err *e);
/* What a build is at now, for progress ("unpacking packages, 120 of 201"); "" when unknown. */
void template_build_progress(struct template_store *s, const struct template_build *b, char *ret, size_t n);

/* -EBUSY stays with the caller, who knows which boxes use it. */
int template_remove(struct template_store *s, const char *name, struct err *e);
/* One JSON object each, appended to an open array: name, source, state (ready, building, failed), bytes, created, error. */
int template_list(struct template_store *s, struct json_out *out, struct err *e);
int template_info(struct template_store *s, const char *name, struct json_out *out, struct err *e);
/* The path of the log of a template or of its last failed build. */
int template_log_path(struct template_store *s, const char *name, char *ret, size_t n, struct err *e);
/* At start: remove builds whose process is gone, half-removed templates. Returns how many. */
int template_sweep(struct template_store *s, struct err *e);
/* "host" only: is the prepared skeleton older than the host's /etc, packages or users it was made from? */
bool template_host_stale(struct template_store *s);

#endif
