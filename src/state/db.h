/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STATE_DB_H
#define STATE_DB_H

/*
 * What the daemon remembers, in sqlite (WAL). One process has it open: cubbyd.
 *
 * Every change of a box that takes several steps is announced here first (`journal`), so that a daemon that
 * is killed at any point leaves a note of what to undo or finish. A call with `durable` set survives a power
 * cut when it returns; the others survive the death of the process.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/json.h"

struct db;

/*
 * Open or create STATE/cubby.db. Refused, with what to do, when it is damaged, made by a newer version, or owned by
 * somebody else; never repaired by deleting.
 */
int db_open(const char *path, struct db **ret, struct err *e);
void db_close(struct db *db);

/* Give back memory that isn't needed now. */
void db_trim(struct db *db);

struct box_row {
	const char *id, *name;
	uid_t owner;
	const char *state;	/* creating, running, paused, stopped, removing, broken */
	const char *why;	/* or NULL */
	const char *spec;	/* JSON of box/spec.h */
	int64_t created, started, expires;	/* seconds since 1970; 0: not */
};

int db_box_put(struct db *db, const struct box_row *row, bool durable, struct err *e);	/* insert or replace by id */
int db_box_drop(struct db *db, const char *id, bool durable, struct err *e);	/* and its journal */
int db_boxes(struct db *db, int (*each)(const struct box_row *row, void *arg, struct err *e), void *arg, struct err *e);

/* One open operation per box: begun before its first step, ended after its last. */
int db_journal_begin(struct db *db, const char *id, const char *op, struct err *e);
int db_journal_end(struct db *db, const char *id, struct err *e);
int db_journal_each(struct db *db, int (*each)(const char *id, const char *op, void *arg, struct err *e), void *arg,
		    struct err *e);

/* The log that people read. At most `keep` are kept. Failing to log is not a reason to fail: no result. */
void db_event(struct db *db, const char *id, const char *name, uid_t owner, const char *event, const char *text);
void db_events_keep(struct db *db, int64_t keep);
/* The newest `lines` of box `id` (NULL: all of `owner`; owner -1: of everybody), oldest first, into an open array. */
int db_events(struct db *db, const char *id, int64_t owner, int64_t lines, int64_t after, struct json_out *out,
	      struct err *e);

#endif
