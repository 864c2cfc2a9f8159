/* SPDX-License-Identifier: Apache-2.0 */
#include "state/db.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SCHEMA 1

enum stmt {
	S_BOX_PUT,
	S_BOX_DROP,
	S_BOXES,
	S_J_BEGIN,
	S_J_END,
	S_J_EACH,
	S_EVENT,
	S_EVENTS,
	S_TRIM,
	S_COUNT
};

static const char *const sql[S_COUNT] = {
	[S_BOX_PUT] = "INSERT INTO boxes(id,name,owner,state,why,spec,created,started,expires)"
		      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9) ON CONFLICT(id) DO UPDATE SET name=?2,owner=?3,"
		      "state=?4,why=?5,spec=?6,created=?7,started=?8,expires=?9",
	[S_BOX_DROP] = "DELETE FROM boxes WHERE id=?1",
	[S_BOXES] = "SELECT id,name,owner,state,why,spec,created,started,expires FROM boxes ORDER BY created,name",
	[S_J_BEGIN] = "INSERT OR REPLACE INTO journal(id,op,at) VALUES(?1,?2,?3)",
	[S_J_END] = "DELETE FROM journal WHERE id=?1",
	[S_J_EACH] = "SELECT id,op FROM journal ORDER BY at",
	[S_EVENT] = "INSERT INTO events(at,id,name,owner,event,text) VALUES(?1,?2,?3,?4,?5,?6)",
	[S_EVENTS] = "SELECT n,at,name,id,event,text FROM (SELECT * FROM events WHERE (?1 IS NULL OR id=?1) AND"
		     " (?2<0 OR owner=?2) AND n>?4 ORDER BY n DESC LIMIT ?3) ORDER BY n",
	[S_TRIM] = "DELETE FROM events WHERE n <= (SELECT max(n) FROM events) - ?1",
};

struct db {
	sqlite3 *h;
	sqlite3_stmt *st[S_COUNT];
	char path[4096];
	bool durable;
	int64_t keep;
	unsigned since_trim;
};

static int fail(struct db *db, struct err *e, const char *doing)
{
	int rc = sqlite3_extended_errcode(db->h), sys = sqlite3_system_errno(db->h);

	switch (rc & 0xff) {
	case SQLITE_FULL:
		return err_why(e, WHY_NO_SPACE, -ENOSPC, "%s: the disk of '%s' is full: free some space", doing, db->path);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return err_why(e, WHY_INTERNAL, -EUCLEAN,
			       "%s: '%s' is damaged (%s): restore it from a backup, or move it away to begin with an "
			       "empty list (boxes stay on disk in 'boxes/')",
			       doing, db->path, sqlite3_errmsg(db->h));
	case SQLITE_NOMEM:
		return err_set(e, -ENOMEM, "%s", doing);
	case SQLITE_CONSTRAINT:
		return err_why(e, WHY_EXISTS, -EEXIST, "%s: it is there already", doing);
	case SQLITE_READONLY:
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
		return err_why(e, WHY_DENIED, -EACCES, "%s: cannot write '%s': check the owner and the mount of the "
			       "state directory", doing, db->path);
	default:
		return err_why(e, WHY_INTERNAL, sys > 0 ? -sys : -EIO, "%s: '%s': %s", doing, db->path,
			       sqlite3_errmsg(db->h));
	}
}

static int run_sql(struct db *db, const char *text, const char *doing, struct err *e)
{
	return sqlite3_exec(db->h, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(db, e, doing);
}

static int check_owner(const char *path, struct err *e)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_set(e, -errno, "cannot look at '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_why(e, WHY_DENIED, -EINVAL, "'%s' is not a regular file: move it away", path);
	if (st.st_uid != geteuid())
		return err_why(e, WHY_DENIED, -EPERM,
			       "'%s' belongs to user %u, not to %u: use another state directory (CUBBY_STATE_DIR)",
			       path, st.st_uid, geteuid());
	return 0;
}

static int user_version(struct db *db, int *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db->h, "PRAGMA user_version", -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int(st, 0);
	(void)sqlite3_finalize(st);
	return rc == SQLITE_ROW ? 0 : fail(db, e, "cannot read the state database");
}

static const char schema[] =
	"BEGIN;"
	"CREATE TABLE boxes(id TEXT PRIMARY KEY, name TEXT NOT NULL, owner INTEGER NOT NULL, state TEXT NOT NULL,"
	" why TEXT, spec TEXT NOT NULL, created INTEGER NOT NULL, started INTEGER NOT NULL, expires INTEGER NOT NULL,"
	" UNIQUE(owner,name)) WITHOUT ROWID;"
	"CREATE TABLE journal(id TEXT PRIMARY KEY, op TEXT NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE events(n INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, id TEXT, name TEXT,"
	" owner INTEGER, event TEXT NOT NULL, text TEXT);"
	"CREATE INDEX events_by_box ON events(id);"
	"PRAGMA user_version=1;"
	"COMMIT;";

int db_open(const char *path, struct db **ret, struct err *e)
{
	struct db *db;
	int r = check_owner(path, e), version = 0;
	mode_t mask;

	if (r < 0)
		return r;
	db = calloc(1, sizeof(*db));
	if (!db)
		return err_set(e, -ENOMEM, "cannot open the state database");
	db->keep = 10000;
	(void)snprintf(db->path, sizeof(db->path), "%s", path);
	mask = umask(0077);
	r = sqlite3_open_v2(path, &db->h, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	r = r == SQLITE_OK ? 0 : fail(db, e, "cannot open the state database");
	(void)sqlite3_busy_timeout(db->h, 2000);
	if (r == 0)
		r = run_sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA locking_mode=EXCLUSIVE;"
			    " PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA cache_size=-128;",
			    "cannot open the state database", e);
	if (r == 0)
		r = user_version(db, &version, e);
	if (r == 0 && version > SCHEMA)
		r = err_why(e, WHY_UNSUPPORTED, -EPROTO,
			    "'%s' was written by a newer cubby (schema %d, this one knows %d): upgrade cubby, or use "
			    "another state directory", path, version, SCHEMA);
	if (r == 0 && version == 0)
		r = run_sql(db, schema, "cannot make the state database", e);
	if (r == 0) {
		/* A truncated file may open well and fail later: look now, while nothing was promised. */
		sqlite3_stmt *st = NULL;
		const char *verdict = NULL;

		if (sqlite3_prepare_v2(db->h, "PRAGMA quick_check(1)", -1, &st, NULL) == SQLITE_OK &&
		    sqlite3_step(st) == SQLITE_ROW)
			verdict = (const char *)sqlite3_column_text(st, 0);
		if (!verdict)
			r = fail(db, e, "cannot check the state database");
		else if (strcmp(verdict, "ok") != 0)
			r = err_why(e, WHY_INTERNAL, -EUCLEAN,
				    "'%s' is damaged (%s): restore it from a backup, or move it away to begin with an "
				    "empty list (boxes stay on disk in 'boxes/')", path, verdict);
		(void)sqlite3_finalize(st);
	}
	for (int i = 0; r == 0 && i < S_COUNT; i++)
		if (sqlite3_prepare_v3(db->h, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &db->st[i], NULL) != SQLITE_OK)
			r = fail(db, e, "cannot use the state database");
	(void)umask(mask);
	if (r < 0) {
		db_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

void db_close(struct db *db)
{
	if (!db)
		return;
	for (int i = 0; i < S_COUNT; i++)
		(void)sqlite3_finalize(db->st[i]);
	(void)sqlite3_close(db->h);
	free(db);
}

static int durably(struct db *db, bool on, struct err *e)
{
	if (db->durable == on)
		return 0;
	db->durable = on;
	return run_sql(db, on ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", "cannot use the state database", e);
}

static void text(sqlite3_stmt *st, int at, const char *s)
{
	if (s)
		(void)sqlite3_bind_text(st, at, s, -1, SQLITE_STATIC);
	else
		(void)sqlite3_bind_null(st, at);
}

static int done(struct db *db, sqlite3_stmt *st, const char *doing, struct err *e)
{
	int rc = sqlite3_step(st), r = 0;

	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		r = fail(db, e, doing);
	(void)sqlite3_reset(st);
	(void)sqlite3_clear_bindings(st);
	return r;
}

int db_box_put(struct db *db, const struct box_row *row, bool durable, struct err *e)
{
	sqlite3_stmt *st = db->st[S_BOX_PUT];
	int r = durably(db, durable, e);

	if (r < 0)
		return r;
	text(st, 1, row->id);
	text(st, 2, row->name);
	(void)sqlite3_bind_int64(st, 3, row->owner);
	text(st, 4, row->state);
	text(st, 5, row->why);
	text(st, 6, row->spec);
	(void)sqlite3_bind_int64(st, 7, row->created);
	(void)sqlite3_bind_int64(st, 8, row->started);
	(void)sqlite3_bind_int64(st, 9, row->expires);
	return done(db, st, "cannot record the box", e);
}

int db_box_drop(struct db *db, const char *id, bool durable, struct err *e)
{
	int r = durably(db, durable, e);

	if (r == 0)
		r = run_sql(db, "BEGIN", "cannot record the removal", e);
	if (r < 0)
		return r;
	text(db->st[S_BOX_DROP], 1, id);
	r = done(db, db->st[S_BOX_DROP], "cannot record the removal", e);
	if (r == 0)
		r = db_journal_end(db, id, e);
	if (r == 0)
		return run_sql(db, "COMMIT", "cannot record the removal", e);
	(void)run_sql(db, "ROLLBACK", "", NULL);
	return r;
}

int db_boxes(struct db *db, int (*each)(const struct box_row *row, void *arg, struct err *e), void *arg, struct err *e)
{
	sqlite3_stmt *st = db->st[S_BOXES];
	int rc, r = 0;

	while (r == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		struct box_row row = {
			.id = (const char *)sqlite3_column_text(st, 0),
			.name = (const char *)sqlite3_column_text(st, 1),
			.owner = (uid_t)sqlite3_column_int64(st, 2),
			.state = (const char *)sqlite3_column_text(st, 3),
			.why = (const char *)sqlite3_column_text(st, 4),
			.spec = (const char *)sqlite3_column_text(st, 5),
			.created = sqlite3_column_int64(st, 6),
			.started = sqlite3_column_int64(st, 7),
			.expires = sqlite3_column_int64(st, 8),
		};

		r = each(&row, arg, e);
	}
	if (r == 0 && rc != SQLITE_DONE)
		r = fail(db, e, "cannot read the boxes");
	(void)sqlite3_reset(st);
	return r;
}

int db_journal_begin(struct db *db, const char *id, const char *op, struct err *e)
{
	sqlite3_stmt *st = db->st[S_J_BEGIN];
	int r = durably(db, false, e);

	if (r < 0)
		return r;
	text(st, 1, id);
	text(st, 2, op);
	(void)sqlite3_bind_int64(st, 3, time(NULL));
	return done(db, st, "cannot write the journal", e);
}

int db_journal_end(struct db *db, const char *id, struct err *e)
{
	text(db->st[S_J_END], 1, id);
	return done(db, db->st[S_J_END], "cannot write the journal", e);
}

int db_journal_each(struct db *db, int (*each)(const char *id, const char *op, void *arg, struct err *e), void *arg,
		    struct err *e)
{
	sqlite3_stmt *st = db->st[S_J_EACH];
	int rc, r = 0;

	while (r == 0 && (rc = sqlite3_step(st)) == SQLITE_ROW)
		r = each((const char *)sqlite3_column_text(st, 0), (const char *)sqlite3_column_text(st, 1), arg, e);
	if (r == 0 && rc != SQLITE_DONE)
		r = fail(db, e, "cannot read the journal");
	(void)sqlite3_reset(st);
	return r;
}

void db_trim(struct db *db)
{
	(void)sqlite3_db_release_memory(db->h);
}

void db_events_keep(struct db *db, int64_t keep)
{
	db->keep = keep;
}

void db_event(struct db *db, const char *id, const char *name, uid_t owner, const char *event, const char *what)
{
	sqlite3_stmt *st = db->st[S_EVENT];
	struct timespec now;

	if (durably(db, false, NULL) < 0)
		return;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)sqlite3_bind_double(st, 1, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
	text(st, 2, id);
	text(st, 3, name);
	(void)sqlite3_bind_int64(st, 4, owner);
	text(st, 5, event);
	text(st, 6, what);
	(void)done(db, st, "", NULL);
	if (++db->since_trim >= 256) {
		db->since_trim = 0;
		(void)sqlite3_bind_int64(db->st[S_TRIM], 1, db->keep);
		(void)done(db, db->st[S_TRIM], "", NULL);
	}
}

int db_events(struct db *db, const char *id, int64_t owner, int64_t lines, int64_t after, struct json_out *out,
	      struct err *e)
{
	sqlite3_stmt *st = db->st[S_EVENTS];
	int rc;

	text(st, 1, id);
	(void)sqlite3_bind_int64(st, 2, owner);
	(void)sqlite3_bind_int64(st, 3, lines);
	(void)sqlite3_bind_int64(st, 4, after);
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		json_put_obj(out, NULL);
		json_put_int(out, "n", sqlite3_column_int64(st, 0));
		json_put_raw(out, "time", (const char *)sqlite3_column_text(st, 1), (size_t)sqlite3_column_bytes(st, 1));
		json_put_str(out, "box", (const char *)sqlite3_column_text(st, 2));
		json_put_str(out, "id", (const char *)sqlite3_column_text(st, 3));
		json_put_str(out, "event", (const char *)sqlite3_column_text(st, 4));
		json_put_str(out, "text", (const char *)sqlite3_column_text(st, 5));
		json_end_obj(out);
	}
	(void)sqlite3_reset(st);
	(void)sqlite3_clear_bindings(st);
	return rc == SQLITE_DONE ? 0 : fail(db, e, "cannot read the log");
}
