/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/conf.h"
#include "base/fd.h"

static char dir[] = "/tmp/cubby-conf-XXXXXX";
static struct conf c;

static int make_dir(void **state)
{
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return rmdir(dir);
}

static int parse(const char *text, struct err *e)
{
	return conf_parse("x.conf", text, strlen(text), &c, e);
}

static void good_values(void **state)
{
	struct err e = ERR_INIT;

	assert_int_equal(parse("", &e), 0);
	assert_string_equal(conf_text(&c, CONF_TEMPLATE), "host");
	assert_int_equal(conf_num(&c, CONF_PIDS), 2048);
	assert_int_equal(conf_num(&c, CONF_IDLE_EXIT), 600000);
	assert_int_equal(conf_num(&c, CONF_TTL), 0);
	assert_true(conf_auto(&c, CONF_MEMORY));
	assert_true(conf_memory(&c) > 0 && conf_memory(&c) <= UINT64_C(8) << 30);
	assert_in_range(conf_builders(&c), 1, 4);
	assert_true(conf_has(&c, CONF_GROUPS, "cubby"));
	assert_false(conf_has(&c, CONF_GROUPS, "cub"));

	assert_int_equal(parse("# a comment\n\n  memory=1G \r\ncpus = 1.5 # half\nidle_exit = off\ngroups = a, b\tc\ngrants=\n"
			       "memory_is_not_a_key#=", &e), -EINVAL);
	assert_int_equal(parse("# a comment\n\n  memory=1G \r\ncpus = 1.5 # half\nidle_exit = off\ngroups = a, b\tc\ngrants=\n"
			       "builders = 7\ncgroup_parent = /a/b\nttl = 1h30m", &e), 0);
	assert_int_equal(conf_num(&c, CONF_MEMORY), 1 << 30);
	assert_int_equal(conf_memory(&c), 1 << 30);
	assert_int_equal(conf_num(&c, CONF_CPUS), 1500);
	assert_int_equal(conf_num(&c, CONF_IDLE_EXIT), 0);
	assert_int_equal(conf_num(&c, CONF_TTL), 5400000);
	assert_int_equal(conf_builders(&c), 7);
	assert_string_equal(conf_text(&c, CONF_CGROUP_PARENT), "/a/b");
	assert_true(conf_has(&c, CONF_GROUPS, "b"));
	assert_false(conf_has(&c, CONF_GROUPS, "cubby"));

	char word[64];

	assert_true(conf_word(&c, CONF_GROUPS, 2, word, sizeof(word)));
	assert_string_equal(word, "c");
	assert_false(conf_word(&c, CONF_GROUPS, 3, word, sizeof(word)));
	assert_false(conf_word(&c, CONF_GRANTS, 0, word, sizeof(word)));
}

static void bad_values(void **state)
{
	static const struct {
		const char *text, *says;
	} t[] = {
		{ "memroy = 1G", "x.conf:1: there is no setting 'memroy'; did you mean 'memory'?" },
		{ "\n\nmemory 1G", "x.conf:3: a line is 'key = value'" },
		{ "memory = 1G\nmemory = 2G", "x.conf:2: 'memory' was set in line 1 already" },
		{ "memory = 1Q", "x.conf:1: '1Q' is no value for 'memory', which takes a size" },
		{ "memory = 1 G", "no value for 'memory'" },
		{ "memory = -1", "no value for 'memory'" },
		{ "memory = 4096", "x.conf:1: '4096' is out of range for 'memory'" },
		{ "memory =", "no value for 'memory'" },
		{ "memory =#1G", "'' is no value for 'memory'" },
		{ "pids = 4194305", "out of range" },
		{ "pids = auto", "no value for 'pids'" },
		{ "template = Host", "no value for 'template'" },
		{ "template = ../x", "no value for 'template'" },
		{ "user = -x", "no value for 'user'" },
		{ "cgroup_parent = a", "an absolute path, or auto" },
		{ "cgroup_parent = /a/../b", "an absolute path, or auto" },
		{ "cgroup_parent = /..", "an absolute path, or auto" },
		{ "ttl = 1m1h", "a duration" },
		{ "ttl = soon", "a duration" },
		{ "grants = a -b", "words, separated" },
		{ "id_base = 1", "out of range" },
		{ "=", "there is no setting ''" },
	};
	struct conf before;

	conf_init(&c);
	memcpy(&before, &c, sizeof(c));
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(parse(t[i].text, &e), -EINVAL);
		if (!strstr(e.text, t[i].says))
			fail_msg("'%s' should say '%s', says '%s'", t[i].text, t[i].says, e.text);
		assert_int_equal(e.why, WHY_BAD_REQUEST);
		assert_memory_equal(&c, &before, sizeof(c));
	}

	struct err e = ERR_INIT;

	assert_int_equal(conf_parse("x", "pids\0= 3", 8, &c, &e), -EINVAL);
	assert_non_null(strstr(e.text, "NUL"));
}

static void too_large_is_refused(void **state)
{
	static char big[CONF_FILE_MAX + 2];
	struct err e = ERR_INIT;

	memset(big, ' ', sizeof(big));
	assert_int_equal(conf_parse("x", big, CONF_FILE_MAX, &c, &e), 0);
	assert_int_equal(conf_parse("x", big, CONF_FILE_MAX + 1, &c, &e), -E2BIG);

	memcpy(big, "grants = ", 9);
	memset(big + 9, 'a', 1000);
	big[1009] = '\0';
	assert_int_equal(conf_parse("x", big, 1009, &c, &e), -E2BIG);
}

static void a_file(void **state)
{
	char path[256];
	struct err e = ERR_INIT;
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "%s/cubby.conf", dir);
	assert_int_equal(conf_load(path, &c, &e), 0);	/* missing: defaults */
	assert_int_equal(conf_num(&c, CONF_POOL_SIZE), 2);
	assert_int_equal(conf_load(NULL, &c, &e), 0);

	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, "pool_size = 5\n", 14), 0);
	assert_int_equal(conf_load(path, &c, &e), 0);
	assert_int_equal(conf_num(&c, CONF_POOL_SIZE), 5);

	assert_int_equal(fchmod(fd, 0620), 0);
	assert_int_equal(conf_load(path, &c, &e), -EPERM);
	assert_non_null(strstr(e.text, "chmod go-w"));
	assert_int_equal(fchmod(fd, 0600), 0);
	if (geteuid() == 0) {
		assert_int_equal(fchown(fd, 4321, 4321), 0);
		assert_int_equal(conf_load(path, &c, &e), -EPERM);
		assert_non_null(strstr(e.text, "4321"));
	}
	assert_int_equal(unlink(path), 0);

	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(conf_load(path, &c, &e), -EINVAL);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(conf_load(dir, &c, &e), -EINVAL);
}

struct seen {
	unsigned n;
	bool pids, ttl;
};

static void each(const struct conf_key *key, const struct conf_value *value, const char *source, void *arg)
{
	struct seen *s = arg;

	s->n++;
	assert_true(strlen(key->help) > 10);
	if (strcmp(key->key, "pids") == 0)
		s->pids = strcmp(source, "x.conf:2") == 0 && strcmp(value->text, "7") == 0;
	if (strcmp(key->key, "ttl") == 0)
		s->ttl = strcmp(source, "default") == 0 && strcmp(value->text, "off") == 0;
}

static void every_setting_has_a_source(void **state)
{
	struct seen s = { 0 };
	struct err e;

	assert_int_equal(parse("\npids=7", &e), 0);
	conf_each(&c, each, &s);
	assert_int_equal(s.n, CONF_COUNT);
	assert_true(s.pids && s.ttl);
}

static void ids(void **state)
{
	static const char text[] = "bad\nann:100000:1000\nann:200000:65536\nroot:1:2:3\nroot:300000:131072\n77:400000:65536\n";
	char path[256];
	struct err e = ERR_INIT;
	uint32_t base, count;
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "%s/subuid", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, sizeof(text) - 1), 0);

	assert_int_equal(parse("", &e), 0);
	assert_int_equal(conf_ids(&c, path, "root", 0, &base, &count, &e), 0);
	assert_int_equal(base, 300000);
	assert_int_equal(count, 131072);
	assert_int_equal(conf_ids(&c, path, "ann", 5, &base, &count, &e), 0);
	assert_int_equal(base, 200000);
	assert_int_equal(conf_ids(&c, path, NULL, 77, &base, &count, &e), 0);
	assert_int_equal(base, 400000);
	assert_int_equal(conf_ids(&c, path, "bob", 78, &base, &count, &e), -ENOENT);
	assert_non_null(strstr(e.text, "usermod"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(conf_ids(&c, path, "root", 0, &base, &count, &e), 0);
	assert_int_equal(base, 1000000000);

	assert_int_equal(parse("id_base = 500000\nid_count = 65536", &e), 0);
	assert_int_equal(conf_ids(&c, path, "bob", 78, &base, &count, &e), 0);
	assert_int_equal(base, 500000);
	assert_int_equal(count, 65536);
	assert_int_equal(parse("id_base = 4294836224\nid_count = 4294836224", &e), 0);
	assert_int_equal(conf_ids(&c, path, "root", 0, &base, &count, &e), -ERANGE);
}

static void the_place_of_the_file(void **state)
{
	char path[64];

	assert_int_equal(setenv("CUBBY_CONFIG", "/x/y", 1), 0);
	assert_int_equal(conf_path(path, sizeof(path)), 0);
	assert_string_equal(path, "/x/y");
	assert_int_equal(conf_path(path, 4), -ENAMETOOLONG);
	assert_int_equal(unsetenv("CUBBY_CONFIG"), 0);
	if (geteuid() == 0) {
		assert_int_equal(conf_path(path, sizeof(path)), 0);
		assert_string_equal(path, "/etc/cubby/cubby.conf");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_values),
		cmocka_unit_test(bad_values),
		cmocka_unit_test(too_large_is_refused),
		cmocka_unit_test_setup_teardown(a_file, make_dir, remove_dir),
		cmocka_unit_test(every_setting_has_a_source),
		cmocka_unit_test_setup_teardown(ids, make_dir, remove_dir),
		cmocka_unit_test(the_place_of_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
