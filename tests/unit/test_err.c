/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

static void text_and_cause(void **state)
{
	struct err e = ERR_INIT;

	assert_int_equal(err_set(&e, -ENOENT, "cannot open '%s'", "x"), -ENOENT);
	assert_string_equal(e.text, "cannot open 'x': No such file or directory");
	assert_int_equal(e.why, WHY_NOT_FOUND);
	assert_int_equal(e.code, -ENOENT);
	assert_int_equal(err_while(&e, -ENOENT, "while restoring '%s'", "y"), -ENOENT);
	assert_string_equal(e.text, "while restoring 'y': cannot open 'x': No such file or directory");
	assert_int_equal(e.why, WHY_NOT_FOUND);

	assert_int_equal(err_why(&e, WHY_NO_SUCH_BOX, -ENOENT, "there is no box '%s'", "z"), -ENOENT);
	assert_string_equal(e.text, "there is no box 'z'");
	assert_int_equal(e.why, WHY_NO_SUCH_BOX);

	assert_int_equal(err_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(err_why(NULL, WHY_BUSY, -EBUSY, "x"), -EBUSY);
	assert_int_equal(err_while(NULL, -EIO, "x"), -EIO);
}

static void it_stays_one_line_and_in_its_bounds(void **state)
{
	char big[3 * ERR_TEXT_MAX];
	struct err e = ERR_INIT;

	(void)err_why(&e, WHY_INTERNAL, -EIO, "a\nb\033[2Jc\x7f");
	assert_string_equal(e.text, "a?b?[2Jc?");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
	(void)err_while(&e, -EIO, "%s", "front");
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
	assert_memory_equal(e.text, "front: xxx", 10);
	(void)err_while(&e, -EIO, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_MAX - 1);
}

static void words_go_there_and_back(void **state)
{
	for (unsigned i = 0; i < WHY_COUNT; i++) {
		assert_int_equal(why_parse(why_word((enum why)i)), i);
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(why_word((enum why)i), why_word((enum why)k));
	}
	assert_int_equal(why_parse("no such word"), WHY_INTERNAL);
	assert_int_equal(why_parse(NULL), WHY_INTERNAL);
	assert_string_equal(why_word((enum why)9999), "internal");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_and_cause),
		cmocka_unit_test(it_stays_one_line_and_in_its_bounds),
		cmocka_unit_test(words_go_there_and_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
