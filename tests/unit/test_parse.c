/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/parse.h"

#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)
#define EACH(t) (size_t i = 0; i < sizeof(t) / sizeof((t)[0]); i++)

static void numbers(void **state)
{
	static const struct {
		const char *s;
		uint64_t max;
		int r;
		uint64_t v;
	} t[] = {
		{ "0", 9, 0, 0 },	 { "9", 9, 0, 9 },	  { "10", 9, -ERANGE, 0 },
		{ "18446744073709551615", UINT64_MAX, 0, UINT64_MAX },
		{ "18446744073709551616", UINT64_MAX, -ERANGE, 0 },
		{ "99999999999999999999999", UINT64_MAX, -ERANGE, 0 },
		{ "", 9, -EINVAL, 0 },	 { "-1", 9, -EINVAL, 0 }, { "+1", 9, -EINVAL, 0 },
		{ " 1", 9, -EINVAL, 0 }, { "1 ", 9, -EINVAL, 0 }, { "01", 9, -EINVAL, 0 },
		{ "00", 9, -EINVAL, 0 }, { "0x1", 9, -EINVAL, 0 }, { "1\n", 9, -EINVAL, 0 },
		{ "1.0", 9, -EINVAL, 0 }, { "\xd9\xa1", 9, -EINVAL, 0 },
	};

	for EACH(t) {
		uint64_t v = UNTOUCHED;

		assert_int_equal(parse_u64(t[i].s, t[i].max, &v), t[i].r);
		assert_true(v == (t[i].r ? UNTOUCHED : t[i].v));
	}
}

static void modes(void **state)
{
	static const struct {
		const char *s;
		int r;
		unsigned v;
	} t[] = {
		{ "0", 0, 0 }, { "644", 0, 0644 }, { "0755", 0, 0755 }, { "7777", 0, 07777 }, { "", -EINVAL, 0 },
		{ "8", -EINVAL, 0 }, { "00755", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "75 ", -EINVAL, 0 },
	};

	for EACH(t) {
		unsigned v = 99;

		assert_int_equal(parse_mode(t[i].s, &v), t[i].r);
		assert_int_equal(v, t[i].r ? 99 : t[i].v);
	}
}

static void sizes(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint64_t v;
	} t[] = {
		{ "0", 0, 0 }, { "1", 0, 1 }, { "1B", 0, 1 }, { "1K", 0, 1024 }, { "1k", 0, 1024 }, { "1KB", 0, 1024 },
		{ "1KiB", 0, 1024 }, { "1kib", 0, 1024 }, { "512M", 0, 512ull << 20 }, { "2G", 0, 2ull << 30 }, { "3T", 0, 3ull << 40 },
		{ "8388607T", 0, 8388607ull << 40 },
		{ "8388608T", -ERANGE, 0 },	/* 2^63: no file offset any more */
		{ "9223372036854775807", 0, INT64_MAX }, { "9223372036854775808", -ERANGE, 0 },
		{ "16777216T", -ERANGE, 0 }, { "", -EINVAL, 0 }, { "K", -EINVAL, 0 }, { "1P", -EINVAL, 0 },
		{ "1 K", -EINVAL, 0 }, { "1KK", -EINVAL, 0 }, { "1KiBx", -EINVAL, 0 }, { "1.5G", -EINVAL, 0 }, { "-1K", -EINVAL, 0 },
		{ "1BB", -EINVAL, 0 }, { "1iB", -EINVAL, 0 },
	};

	for EACH(t) {
		uint64_t v = UNTOUCHED;
		int r = parse_size(t[i].s, &v);

		if (r != t[i].r)
			fail_msg("'%s': %d", t[i].s, r);
		assert_true(v == (t[i].r ? UNTOUCHED : t[i].v));
	}
}

static void durations(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint64_t v;
	} t[] = {
		{ "0", 0, 0 }, { "1", 0, 1000 }, { "90s", 0, 90000 }, { "250ms", 0, 250 }, { "10m", 0, 600000 }, { "2h", 0, 7200000 },
		{ "1d", 0, 86400000 }, { "1h30m", 0, 5400000 }, { "1d2h3m4s5ms", 0, 93784005 }, { "1000000000000s", 0, 1000000000000000 },
		{ "1000000000001s", -ERANGE, 0 }, { "99999999999999999999d", -ERANGE, 0 }, { "18446744073709551615d", -ERANGE, 0 },
		{ "", -EINVAL, 0 }, { "s", -EINVAL, 0 }, { "1x", -EINVAL, 0 }, { "1m1h", -EINVAL, 0 }, { "1h1h", -EINVAL, 0 },
		{ "1h30", -EINVAL, 0 }, { "-1s", -EINVAL, 0 }, { "1 s", -EINVAL, 0 }, { "1.5h", -EINVAL, 0 }, { "1s ", -EINVAL, 0 },
	};

	for EACH(t) {
		uint64_t v = UNTOUCHED;
		int r = parse_duration(t[i].s, &v);

		if (r != t[i].r)
			fail_msg("'%s': %d", t[i].s, r);
		assert_true(v == (t[i].r ? UNTOUCHED : t[i].v));
	}
}

static void cpus(void **state)
{
	static const struct {
		const char *s;
		int r;
		uint32_t v;
	} t[] = {
		{ "0", 0, 0 }, { "2", 0, 2000 }, { "0.5", 0, 500 }, { "1.25", 0, 1250 }, { "0.001", 0, 1 }, { "1000", 0, 1000000 },
		{ "1000.001", -ERANGE, 0 }, { "1001", -ERANGE, 0 }, { "99999999999999999999", -ERANGE, 0 }, { "", -EINVAL, 0 },
		{ "1.", -EINVAL, 0 }, { ".5", -EINVAL, 0 }, { "1.2345", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "1,5", -EINVAL, 0 },
		{ "1.5 ", -EINVAL, 0 }, { "1e3", -EINVAL, 0 },
	};

	for EACH(t) {
		uint32_t v = 77;
		int r = parse_cpus(t[i].s, &v);

		if (r != t[i].r)
			fail_msg("'%s': %d", t[i].s, r);
		assert_int_equal(v, t[i].r ? 77 : t[i].v);
	}
}

static void names(void **state)
{
	static const char *const good[] = {
		"a", "0", "a-b", "box1", "1box", "a--b", "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0",
	};
	static const char *const bad[] = {
		"", "-", "-a", "a-", "A", "a.b", "a/b", "..", ".", "a b", "a\n", "a\t", "a_b", "\xc3\xa4", "a\x1b[2J", "a:b", "a%",
		"abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01",
	};

	assert_int_equal(strlen(good[6]), NAME_MAX_LEN);
	for EACH(good)
		assert_true(name_ok(good[i]));
	for EACH(bad)
		assert_false(name_ok(bad[i]));
}

static void ids(void **state)
{
	char a[ID_LEN + 1], b[ID_LEN + 1];

	for (int i = 0; i < 200; i++) {
		id_make(a);
		assert_true(id_ok(a));
		assert_true(name_ok(a));
		id_make(b);
		assert_string_not_equal(a, b);
	}
	assert_false(id_ok("abcdefghijklmnopqrst"));	/* no digit */
	assert_true(id_ok("abcdefghijklmnopqrs0"));
	assert_false(id_ok("0bcdefghijklmnopqrs0"));	/* a digit first */
	assert_false(id_ok("abcdefghijklmnopqrs01"));
	assert_false(id_ok("abcdefghijklmnopqr0"));
	assert_false(id_ok("abcdefghijklmnopqrS0"));
	assert_false(id_ok(""));
}

static void near_words(void **state)
{
	static const char *const words[] = { "new", "run", "exec", "shell", "template", "start", "stop" };
	static const struct {
		const char *word, *near;
	} t[] = {
		{ "nwe", "new" }, { "exce", "exec" }, { "tempalte", "template" }, { "temp", "template" }, { "shel", "shell" },
		{ "stp", "stop" }, { "EXEC", "exec" }, { "ru", "run" }, { "xyzzy", NULL }, { "", NULL },
		{ "a-word-much-longer-than-anything-in-the-list", NULL },
	};

	for EACH(t) {
		const char *near = nearest_word(t[i].word, words, sizeof(words) / sizeof(words[0]));

		if (t[i].near ? !near || strcmp(near, t[i].near) != 0 : near != NULL)
			fail_msg("'%s' is near to '%s'", t[i].word, near ? near : "nothing");
	}
	assert_null(nearest_word("new", NULL, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers), cmocka_unit_test(modes), cmocka_unit_test(sizes), cmocka_unit_test(durations),
		cmocka_unit_test(cpus),	   cmocka_unit_test(names), cmocka_unit_test(ids),   cmocka_unit_test(near_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
