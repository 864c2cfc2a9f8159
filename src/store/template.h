/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_TEMPLATE_H
#define STORE_TEMPLATE_H

/*
 * Templates: immutable root file systems that boxes start from. The file system is the truth:
 *
 *	STATE/templates/NAME/meta.json	what it is; there only when the template is complete
 *	STATE/templates/NAME/root/	its own layer (canonical ids 0–65535)
 *	STATE/templates/NAME/mask/N/	"host": what hides the unreadable parts of the host's directories (overlay whiteouts)
 *	STATE/templates/NAME/log	the log of the build
 *	STATE/building/NAME.XXXXXXXX/	a build in progress: state.json, progress, log, root/; renamed when complete
 *	STATE/building/NAME.failed/	state.json and log of the last failed build of that name
 *	STATE/layers-oci/sha256-…/root/	a layer of images, below the own layers of the templates whose meta.json names it
 *
 * templates/, building/ and layers-oci/ are 0700: files in them may be set-user-id root, and are nobody's business on the host.
 *
 * A build runs in a child process that the daemon starts and watches, PID 1 of a pid namespace of its own: when it ends,
 * for whatever reason, everything it started has ended. It dies with the thread that started it. It holds a lock
 * (flock(2)) on its directory, so that "is it alive" has an answer that no reused process number can falsify. It can be
 * cancelled and removed in every state, and a dead one is swept at the next start.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

struct template_store;	/* opened state directory; one per daemon */

/*
 * How the canonical ids of a box (0–65535) are written on disk. "ROOTLESS": the daemon is root of a user namespace in
 * which it itself is 0 and its subordinate ids are 1–65535; box 0–999 are 1–1000 there, box 1000 is 0 (so that what
 * `agent` owns belongs to the user), all others keep their number. "ONE": there is one id only; it owns everything.
 */
enum { TEMPLATE_IDS_CANONICAL = 0, TEMPLATE_IDS_ROOTLESS = 1, TEMPLATE_IDS_ONE = 2 };
uint32_t template_disk_id(uint32_t ids, uint32_t canonical);

/* Makes templates/ and building/ where they are missing. ids: TEMPLATE_IDS_…. */
int template_store_open(const char *state_dir, uint32_t ids, struct template_store **ret, struct err *e);
void template_store_free(struct template_store *s);
/*
 * Removing a large tree takes seconds. With `discard` set, removing and cancelling move it to STATE/building/-gone.XXXXXXXX, which is
 * no template and no build any more, and hand on that directory and name: whoever gets it removes it in its own time. What an earlier
 * store put aside and nobody removed is handed on before this returns; without `discard` it is swept like a dead build.
 */
void template_store_discard(struct template_store *s, int (*discard)(const char *parent, const char *name, void *arg), void *arg);

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
 * What a box made of the template gets where nobody says otherwise: what the image that it is from says. All empty for other
 * templates. To be emptied with template_defaults_done().
 */
struct template_defaults {
	char user[64];		/* "" without */
	char *workdir;		/* or NULL */
	char **env;		/* "NAME=value", NULL-terminated, or NULL */
};
int template_defaults(struct template_store *s, const char *name, struct template_defaults *ret, struct err *e);
void template_defaults_done(struct template_defaults *d);

/*
 * Start a build: forks; the child builds and exits. source: "host", "debian[:SUITE]", "dir:PATH", "tar:FILE",
 * "oci:DIR[:NAME]". The last three are what the client `who` may read: from_fd is opened by the client itself (O_PATH or readable for a
 * directory, readable for an archive; borrowed), else FD_NONE; below a directory everything is read with the rights of
 * who->uid and who->gid alone, and a file that these may not read fails the build. NULL: the daemon's own rights.
 * Fills *ret, whose pidfd to poll is owned by the caller. -EEXIST for a name that exists or is being built.
 */
struct template_who {
	uid_t uid;
	gid_t gid;
};
struct template_build {
	char name[NAME_MAX_LEN + 1];
	char dir[256];		/* STATE/building/NAME.XXXXXXXX */
	pid_t pid;
	int pidfd;		/* owned; readable when the build has ended */
	uint64_t deadline_ms;	/* CLOCK_MONOTONIC; 0: none */
	bool replace;		/* made by template_host_rebuild() */
};
int template_build_start(struct template_store *s, const char *name, const char *source, int from_fd,
			 const struct template_who *who, uint64_t limit_ms, struct template_build *ret,
			 struct err *e);
/*
 * Build "host" anew although it exists. Until template_build_finish() boxes start from the old one; then the new one takes its
 * place in one step, and the old one stays on disk for the boxes that run on it (templates/host.XXXXXXXX, in no list).
 */
int template_host_rebuild(struct template_store *s, uint64_t limit_ms, struct template_build *ret, struct err *e);
/* Remove replaced "host" templates. Only when no box that was started from "host" is running. Returns how many. */
int template_host_prune(struct template_store *s, struct err *e);
/*
 * After the pidfd became readable (or at the deadline, which makes it a cancel with WHY_TIMEOUT): reap, publish or say
 * why not. Removes what a failed build left, but keeps its log. Closes the pidfd.
 */
int template_build_finish(struct template_store *s, struct template_build *b, struct err *e);
/* Ends everything the build started, and removes it; its log stays. Closes the pidfd. Accepts a build that has ended. */
int template_build_cancel(struct template_store *s, struct template_build *b, struct err *e);
/* What a build is at now, for progress ("unpacking packages, 120 of 201"); "" when unknown. */
void template_build_progress(struct template_store *s, const struct template_build *b, char *ret, size_t n);

/* Also what a failed build of that name left. -EBUSY stays with the caller, who knows which boxes use it. */
int template_remove(struct template_store *s, const char *name, struct err *e);
/* One JSON object each, appended to an open array: name, source, state (ready, building, failed), bytes, created, error. */
int template_list(struct template_store *s, struct json_out *out, struct err *e);
int template_info(struct template_store *s, const char *name, struct json_out *out, struct err *e);
/* The path of the log of a template or of its last failed build. */
int template_log_path(struct template_store *s, const char *name, char *ret, size_t n, struct err *e);
/* At start: remove builds whose process is gone, half-removed templates. Returns how many. */
int template_sweep(struct template_store *s, struct err *e);
/*
 * "host" only: is the prepared skeleton older than the host's /etc, packages or users it was made from? Costs a few
 * stat calls. What the host hides in /usr is masked as it was found at build time: a file that becomes unreadable for
 * others later, without a change of packages, stays visible to the root of a box until the template is made anew.
 */
bool template_host_stale(struct template_store *s);

#endif
