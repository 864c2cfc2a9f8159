/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"
#include "box/net.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * What an earlier daemon left: boxes that run on, operations that were cut, throw-away boxes whose client is gone or
 * still at it. Every decision follows from the database and from what really runs.
 */

/* How often a throw-away box of an earlier daemon is asked whether its command is over. */
#define ORPHAN_MS 2000

struct note {
	struct note *next;
	char id[ID_LEN + 1];
	char op[16];
};

struct recovery {
	struct daemon *d;
	struct note *journal;
};

static int read_row(const struct box_row *row, void *arg, struct err *e)
{
	struct recovery *rec = arg;
	struct daemon *d = rec->d;
	OWN_JSON doc = { 0 };
	struct box *b;
	int r;

	if (!id_ok(row->id) || !name_ok(row->name))
		return err_why(e, WHY_INTERNAL, -EUCLEAN, "the state database holds a box with an impossible name or id");
	b = box_add(d, row->id, row->name, row->owner, e);
	if (!b)
		return e->code ? e->code : -ENOMEM;
	b->created = row->created;
	b->started = row->started;
	b->expires = row->expires;
	if (row->why)
		(void)snprintf(b->why, sizeof(b->why), "%.250s", row->why);
	b->state = BOX_BROKEN;
	for (int i = 0; i < BOX_STATES; i++)
		if (strcmp(row->state, box_state_words[i]) == 0)
			b->state = (enum box_state)i;
	/* What it asked for is judged again: an edited row can't be weaker than a request could. */
	r = json_parse(row->spec, strlen(row->spec), &doc, e);
	if (r == 0)
		r = spec_parse(doc.root, &b->spec, e);
	if (r < 0) {
		b->state = BOX_BROKEN;
		b->unread = true;
		(void)snprintf(b->why, sizeof(b->why), "its description can't be read: %.200s", e->text);
		memset(e, 0, sizeof(*e));
		return 0;
	}
	b->owner_gid = (gid_t)json_int(doc.root, "owner_gid", (int64_t)row->owner);
	return 0;
}

static int read_note(const char *id, const char *op, void *arg, struct err *e)
{
	struct recovery *rec = arg;
	struct note *n = calloc(1, sizeof(*n));

	if (!n)
		return err_set(e, -ENOMEM, "cannot read the journal");
	memccpy(n->id, id, '\0', ID_LEN);
	memccpy(n->op, op, '\0', sizeof(n->op) - 1);
	n->next = rec->journal;
	rec->journal = n;
	return 0;
}

static const char *noted(const struct recovery *rec, const char *id)
{
	for (const struct note *n = rec->journal; n; n = n->next)
		if (strcmp(n->id, id) == 0)
			return n->op;
	return NULL;
}

/*
 * Ranges of ids that boxes of an earlier daemon still use: read from their maps, for a slot that is given twice would let
 * two boxes be each other's owner.
 */
static void claim_slot(struct box *b, pid_t pid)
{
	struct daemon *d = b->d;
	char path[64], text[256];
	unsigned long inside, outside, count;

	if (d->rootless || pid <= 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%lu %lu %lu", &inside, &outside, &count) != 3)
		return;
	if (outside < d->id_base || (outside - d->id_base) % BOX_IDS != 0 || (outside - d->id_base) / BOX_IDS >= d->id_slots)
		return;
	b->slot = (int)((outside - d->id_base) / BOX_IDS);
	d->slots[b->slot] = 1;
}

static void dropped(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	if (r == 0)
		r = db_box_drop(b->d->db, b->id, true, e);
	if (r < 0) {
		b->state = BOX_BROKEN;
		(void)snprintf(b->why, sizeof(b->why), "%.250s", e->text);
		(void)box_save(b, false, NULL);
		box_release(b);
		return;
	}
	box_free(b);
}

static void cleared(struct box *b, int r, struct err *e, void *arg)
{
	(void)arg;
	b->state = r < 0 || b->unread ? BOX_BROKEN : BOX_STOPPED;
	if (r < 0)
		(void)snprintf(b->why, sizeof(b->why), "%.250s", e->text);
	(void)box_save(b, false, NULL);
	(void)db_journal_end(b->d->db, b->id, NULL);
	box_release(b);
}

static void settle_one(struct recovery *rec, struct box *b)
{
	const char *op = noted(rec, b->id);
	struct box_run run = { .pidfd = FD_NONE };
	bool removing = b->state == BOX_REMOVING || (op && strcmp(op, "rm") == 0);
	bool unborn = b->state == BOX_CREATING || (op && strcmp(op, "new") == 0);
	int r;

	if (removing || unborn) {
		if (b->d->engine->find(b->id, &run, NULL) == 0)
			claim_slot(b, run.pid);
		fd_close(&run.pidfd);
		/* A creation that was cut was never answered: nobody has the box. A removal was promised. */
		b->busy = removing ? "being removed" : "being cleared away";
		db_event(b->d->db, b->id, b->name, b->owner, "recovered",
			 removing ? "a removal was finished" : "a creation that was cut was undone");
		b->state = BOX_REMOVING;
		box_down(b, BUILD_LATER, true, dropped, NULL);
		return;
	}
	r = b->d->engine->find(b->id, &run, NULL);
	if (r == 0)
		claim_slot(b, run.pid);
	if (r == 0 && !op && (b->state == BOX_RUNNING || b->state == BOX_PAUSED) && box_adopt(b, &run, NULL) == 0) {
		box_timers(b);
		net_recover(b);
		return;
	}
	fd_close(&run.pidfd);
	if (b->state == BOX_RUNNING || b->state == BOX_PAUSED || op || r == 0) {
		if (!b->unread)
			(void)snprintf(b->why, sizeof(b->why), op ? "its %s was cut when the daemon ended" :
				       "it ended while no daemon ran", op);
		box_event(b, "recovered", b->why);
		b->busy = "being cleared away";
		b->state = b->unread ? BOX_BROKEN : BOX_STOPPED;
		box_down(b, BUILD_LATER, false, cleared, NULL);
		return;
	}
	box_timers(b);
}

/* ---------------------------------------------------------------- throw-aways */

static void orphan_answer(struct box *b, bool busy, uint64_t idle_ms)
{
	(void)idle_ms;
	if (!busy && !b->holder)
		box_discard(b);
}

static void look_at_orphans(void *arg)
{
	struct daemon *d = arg;
	bool any = false;
	struct box *next;

	for (struct box *b = d->boxes; b; b = next) {
		next = b->next;
		if (!b->throw_away || b->pooled || b->holder || b->busy)
			continue;
		any = true;
		box_ping(b, orphan_answer);
	}
	if (any)
		loop_timer_set(d->loop, &d->orphans, ORPHAN_MS, look_at_orphans, d);
}

static struct box *by_id(struct daemon *d, const char *id)
{
	for (struct box *b = d->boxes; b; b = b->next)
		if (strcmp(b->id, id) == 0)
			return b;
	return NULL;
}

/* Something of a box that the database doesn't know: a throw-away one. */
static void stray(const char *id, void *arg)
{
	struct daemon *d = arg;
	struct box_run run = { .pidfd = FD_NONE };
	struct box *b;
	char name[32];

	if (!id_ok(id) || by_id(d, id))
		return;
	(void)snprintf(name, sizeof(name), "run-%.6s", id);
	b = box_add(d, id, name, 0, NULL);
	if (!b)
		return;
	b->throw_away = true;
	if (d->engine->find(id, &run, NULL) == 0 && box_adopt(b, &run, NULL) == 0) {
		claim_slot(b, run.pid);
		b->state = BOX_RUNNING;
		return;
	}
	fd_close(&run.pidfd);
	box_discard(b);
}

static void each_id_in(const char *dir, void (*found)(const char *id, void *arg), void *arg)
{
	DIR *dp = opendir(dir);
	struct dirent *de;

	if (!dp)
		return;
	while ((de = readdir(dp)))
		if (de->d_name[0] != '.')
			found(de->d_name, arg);
	(void)closedir(dp);
}

static void unknown_dir(const char *id, void *arg)
{
	struct daemon *d = arg;
	char text[1200];

	if (by_id(d, id))
		return;
	/* Never removed unasked: it may be all that is left of a lost database. */
	(void)snprintf(text, sizeof(text), "'%s/boxes/%.64s' belongs to no box that is known; look into it, then remove it",
		       d->state_dir, id);
	db_event(d->db, NULL, NULL, 0, "leftover", text);
}

int recover(struct daemon *d, struct err *e)
{
	struct recovery rec = { .d = d };
	char dir[1100];
	struct box *next;
	int r;

	r = db_boxes(d->db, read_row, &rec, e);
	if (r == 0)
		r = db_journal_each(d->db, read_note, &rec, e);
	if (r < 0)
		return r;
	for (struct box *b = d->boxes; b; b = next) {
		next = b->next;
		settle_one(&rec, b);
	}
	while (rec.journal) {
		struct note *n = rec.journal;

		rec.journal = n->next;
		free(n);
	}
	r = d->engine->each(stray, d, e);
	if (r < 0)
		return r;
	(void)snprintf(dir, sizeof(dir), "%s/run", d->state_dir);
	each_id_in(dir, stray, d);
	(void)snprintf(dir, sizeof(dir), "%s/boxes", d->run_dir);
	each_id_in(dir, stray, d);
	(void)snprintf(dir, sizeof(dir), "%s/boxes", d->state_dir);
	each_id_in(dir, unknown_dir, d);
	look_at_orphans(d);
	d->host_replaced = true;
	host_prune(d);
	return 0;
}
