/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

static void one_character(void **state)
{
	static const struct {
		const char *s;
		size_t n, len;
		uint32_t cp;
	} t[] = {
		{ "a", 1, 1, 'a' }, { "", 0, 0, 0 }, { "\0", 1, 1, 0 }, { "\x7f", 1, 1, 0x7f }, { "\xc3\xa4", 2, 2, 0xe4 },
		{ "\xe2\x82\xac", 3, 3, 0x20ac }, { "\xf0\x9f\x98\x80", 4, 4, 0x1f600 }, { "\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff },
		{ "\xc3", 1, 0, 0 }, { "\xe2\x82", 2, 0, 0 },	/* cut short */
		{ "\x80", 1, 0, 0 }, { "\xff", 1, 0, 0 }, { "\xc3(", 2, 0, 0 },
		{ "\xc0\xaf", 2, 0, 0 }, { "\xe0\x80\xaf", 3, 0, 0 }, { "\xf0\x80\x80\xaf", 4, 0, 0 },	/* overlong '/' */
		{ "\xed\xa0\x80", 3, 0, 0 },	/* a surrogate */
		{ "\xf4\x90\x80\x80", 4, 0, 0 }, { "\xf5\x80\x80\x80", 4, 0, 0 },	/* above U+10FFFF */
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint32_t cp = 0xdead;

		assert_int_equal(utf8_one(t[i].s, t[i].n, &cp), t[i].len);
		assert_int_equal(cp, t[i].len ? t[i].cp : 0xdead);
	}
}

/* Every character survives the way out and in. */
static void there_and_back(void **state)
{
	for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
		char s[4];
		uint32_t back = 0xdead;
		size_t n;

		if (cp >= 0xd800 && cp <= 0xdfff)
			continue;
		n = utf8_put(s, cp);
		assert_int_equal(utf8_one(s, n, &back), n);
		assert_int_equal(back, cp);
	}
}

static void hostile_text(void **state)
{
	static const struct {
		const char *s;
		size_t n;
		const char *shown;
	} t[] = {
		{ "plain \xc3\xa4 \xf0\x9f\x98\x80", 13, "plain \xc3\xa4 \xf0\x9f\x98\x80" },
		{ "\033[2J", 4, "\\x1b[2J" },
		{ "a\\b", 3, "a\\\\b" },
		{ "\r\n\t\a", 4, "\\x0d\\n\\t\\x07" },
		{ "a\0b", 3, "a\\x00b" },
		{ "\x7f", 1, "\\x7f" },
		{ "\x9b" "2J", 3, "\\x9b" "2J" },			/* C1 as a bare byte */
		{ "\xc2\x9b" "2J", 4, "\\x9b" "2J" },			/* and as a character */
		{ "\xe2\x80\xae" "txt", 6, "\\u{202e}txt" },		/* right-to-left override */
		{ "\xe2\x81\xa6", 3, "\\u{2066}" },
		{ "\xef\xbb\xbf", 3, "\\u{feff}" },
		{ "\xff\xfe", 2, "\\xff\\xfe" },
		{ "\xed\xa0\x80", 3, "\\xed\\xa0\\x80" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF b = BUF_INIT(1000);

		text_escape(&b, t[i].s, t[i].n);
		assert_int_equal(buf_error(&b), 0);
		assert_string_equal(b.data, t[i].shown);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_character),
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(hostile_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
