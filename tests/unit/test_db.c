/* SPDX-License-Identifier: Apache-2.0 */
/* state/db: what is recorded is there again, and a file that can't be trusted is refused and left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "state/db.h"

static char path[512];

static struct db *open_db(void)
{
	struct err e = ERR_INIT;
	struct db *db = NULL;

	(void)snprintf(path, sizeof(path), "%s/cubby.db", leak_dir());
	if (db_open(path, &db, &e) < 0)
		fail_msg("%s", e.text);
	return db;
}

struct seen {
	unsigned n;
	char last[64], state[32], why[64];
	int64_t expires;
};

static int see(const struct box_row *row, void *arg, struct err *e)
{
	struct seen *s = arg;

	(void)e;
	s->n++;
	(void)snprintf(s->last, sizeof(s->last), "%s", row->name);
	(void)snprintf(s->state, sizeof(s->state), "%s", row->state);
	(void)snprintf(s->why, sizeof(s->why), "%s", row->why ? row->why : "-");
	s->expires = row->expires;
	return 0;
}

static const struct box_row one = {
	.id = "abcdefghij0123456789", .name = "one", .owner = 1000, .state = "running", .spec = "{}", .created = 5, .expires = 99,
};

static void rows_survive_reopening(void **state)
{
	struct box_row row = one;
	struct seen s = { 0 };
	struct db *db;

	(void)state;
	for (int durable = 0; durable < 2; durable++) {
		db = open_db();
		row.state = durable ? "stopped" : "running";
		row.why = durable ? "because" : NULL;
		assert_int_equal(db_box_put(db, &row, durable, NULL), 0);
		db_close(db);
		db = open_db();
		memset(&s, 0, sizeof(s));
		assert_int_equal(db_boxes(db, see, &s, NULL), 0);
		db_close(db);
		assert_int_equal(s.n, 1);
		assert_string_equal(s.last, "one");
		assert_string_equal(s.state, durable ? "stopped" : "running");
		assert_string_equal(s.why, durable ? "because" : "-");
		assert_int_equal(s.expires, 99);
	}
	db = open_db();
	assert_int_equal(db_box_drop(db, one.id, true, NULL), 0);
	assert_int_equal(db_box_drop(db, one.id, true, NULL), 0);
	memset(&s, 0, sizeof(s));
	assert_int_equal(db_boxes(db, see, &s, NULL), 0);
	assert_int_equal(s.n, 0);
	db_close(db);
	assert_int_equal(leak_dir_clear(), 0);
}

static void a_name_is_one_owners_once(void **state)
{
	struct db *db = open_db();
	struct box_row row = one;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(db_box_put(db, &row, false, NULL), 0);
	row.id = "bbcdefghij0123456789";
	assert_int_equal(db_box_put(db, &row, false, &e), -EEXIST);
	assert_int_equal(e.why, WHY_EXISTS);
	row.owner = 1001;
	assert_int_equal(db_box_put(db, &row, false, NULL), 0);
	db_close(db);
	assert_int_equal(leak_dir_clear(), 0);
}

static int count(const char *id, const char *op, void *arg, struct err *e)
{
	unsigned *n = arg;

	(void)e;
	assert_string_equal(id, one.id);
	assert_string_equal(op, "stop");
	(*n)++;
	return 0;
}

static void the_journal_holds_what_is_open(void **state)
{
	struct db *db = open_db();
	unsigned n = 0;

	(void)state;
	assert_int_equal(db_journal_begin(db, one.id, "start", NULL), 0);
	assert_int_equal(db_journal_begin(db, one.id, "stop", NULL), 0);
	/* As a daemon that is killed would: no closing. The file is copied as it is. */
	db_close(db);
	db = open_db();
	assert_int_equal(db_journal_each(db, count, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(db_journal_end(db, one.id, NULL), 0);
	assert_int_equal(db_journal_each(db, count, &n, NULL), 0);
	assert_int_equal(n, 1);
	db_close(db);
	assert_int_equal(leak_dir_clear(), 0);
}

static void events_are_trimmed_and_filtered(void **state)
{
	struct db *db = open_db();
	OWN_BUF text = BUF_INIT(1u << 20);
	OWN_JSON doc = { 0 };
	struct json_out o;

	(void)state;
	db_events_keep(db, 100);
	for (int i = 0; i < 1000; i++)
		db_event(db, one.id, "one", i % 2 ? 7 : 8, "test", "a \"quoted\"\ttext");
	json_out_init(&o, &text);
	json_put_arr(&o, NULL);
	assert_int_equal(db_events(db, NULL, 7, 1000, 0, &o, NULL), 0);
	json_end_arr(&o);
	assert_int_equal(json_parse(text.data, text.len, &doc, NULL), 0);
	/* Trimmed every 256 events: at most the kept ones and those since. */
	assert_in_range(doc.root->count, 50, 50 + 128);
	assert_string_equal(json_str(doc.root->child, "text", ""), "a \"quoted\"\ttext");
	db_close(db);
	assert_int_equal(leak_dir_clear(), 0);
}

static off_t size_of(void)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void refused(const char *what)
{
	struct err e = ERR_INIT;
	struct db *db = NULL;
	off_t before = size_of();
	int r = db_open(path, &db, &e);

	if (r >= 0)
		fail_msg("a database %s was opened", what);
	assert_non_null(strstr(e.text, path));
	assert_int_equal(size_of(), before);
}

static void damage_is_refused_and_kept(void **state)
{
	struct box_row row = one;
	struct db *db = open_db();
	char junk[4096];
	int fd;

	(void)state;
	assert_int_equal(db_box_put(db, &row, true, NULL), 0);
	db_close(db);
	memset(junk, 'x', sizeof(junk));
	/* Cut in the middle of a page. */
	assert_int_equal(truncate(path, 5000), 0);
	refused("that was truncated");
	/* Not a database at all. */
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(fd_write_all(fd, junk, sizeof(junk)), 0);
	(void)close(fd);
	refused("of junk");
	assert_int_equal(leak_dir_clear(), 0);

	/* Of a newer version. */
	db = open_db();
	db_close(db);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "\0\0\0\143", 4, 60), 4); /* the user version, in the file's header */
	(void)close(fd);
	refused("of a newer version");
	assert_int_equal(leak_dir_clear(), 0);
}

static void a_strangers_file_is_refused(void **state)
{
	struct db *db;

	(void)state;
	if (geteuid() != 0)
		skip_because("not root: can't make a file of another user");
	db = open_db();
	db_close(db);
	assert_int_equal(chown(path, 12345, 12345), 0);
	refused("of another user");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("elsewhere", path), 0);
	{
		struct err e = ERR_INIT;

		assert_true(db_open(path, &db, &e) < 0);
	}
	assert_int_equal(leak_dir_clear(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rows_survive_reopening, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_name_is_one_owners_once, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(the_journal_holds_what_is_open, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(events_are_trimmed_and_filtered, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(damage_is_refused_and_kept, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_strangers_file_is_refused, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
