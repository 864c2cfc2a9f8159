/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

static void it_grows_and_ends_with_nul(void **state)
{
	OWN_BUF b = BUF_INIT(100000);

	for (int i = 0; i < 10000; i++) {
		assert_int_equal(buf_putc(&b, 'x'), 0);
		assert_int_equal(b.data[b.len], '\0');
	}
	assert_int_equal(b.len, 10000);
	assert_int_equal(buf_puts(&b, "abc"), 0);
	assert_int_equal(buf_printf(&b, "%d-%s", 7, "y"), 0);
	assert_string_equal(b.data + 10000, "abc7-y");
	buf_drop(&b, 10003);
	assert_string_equal(b.data, "7-y");
	buf_drop(&b, 99);
	assert_int_equal(b.len, 0);
	assert_string_equal(b.data, "");
	assert_int_equal(buf_put(&b, NULL, 0), 0);
}

static void the_maximum_holds(void **state)
{
	OWN_BUF b = BUF_INIT(10);

	assert_int_equal(buf_puts(&b, "0123456789"), 0);	/* exactly full is fine */
	assert_int_equal(buf_putc(&b, 'x'), -E2BIG);
	assert_int_equal(buf_error(&b), -E2BIG);
	/* Sticky: nothing more gets in, also what would fit. */
	buf_drop(&b, 5);
	assert_int_equal(buf_putc(&b, 'x'), -E2BIG);
	assert_string_equal(b.data, "56789");
	buf_reset(&b);
	assert_int_equal(buf_printf(&b, "%s", "0123456789"), 0);
	assert_int_equal(buf_printf(&b, "%s", "x"), -E2BIG);
	assert_string_equal(b.data, "0123456789");
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -E2BIG);
}

static void an_empty_one_can_be_done(void **state)
{
	struct buf b = BUF_INIT(10);

	buf_done(&b);
	buf_done(&b);
	buf_reset(&b);
	buf_drop(&b, 5);
	assert_int_equal(b.max, 10);
	assert_int_equal(buf_puts(&b, "x"), 0);
	buf_done(&b);
	assert_null(b.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_grows_and_ends_with_nul),
		cmocka_unit_test(the_maximum_holds),
		cmocka_unit_test(an_empty_one_can_be_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
