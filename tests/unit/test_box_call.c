/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a live box: both ends of BOX_EXEC together. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "test_box_live.h"

static struct live box;

static int box_up(void **state)
{
	int r = leak_mark(state);

	live_start(&box, NULL);
	return r;
}

static int box_down(void **state)
{
	int status = live_stop(&box, false);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		print_error("init ended with %x\n", (unsigned)status);
		return -1;
	}
	return leak_check(state);
}

static void ok(const struct live_run *run)
{
	if (run->r < 0)
		fail_msg("%s", run->e.text);
}

static void ends_with_the_commands_status(void **state)
{
	static const struct {
		const char *script;
		enum box_exit_kind kind;
		uint32_t status;
	} t[] = {
		{ "exit 0", BOX_EXITED, 0 },	   { "exit 7", BOX_EXITED, 7 },	     { "exit 255", BOX_EXITED, 255 },
		{ "kill -9 $$", BOX_SIGNALED, 9 }, { "kill -15 $$", BOX_SIGNALED, 15 }, { "kill -1 $$", BOX_SIGNALED, 1 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct live_run run = { 0 };

		live_sh(&box, &run, t[i].script);
		ok(&run);
		assert_int_equal(run.exit.kind, t[i].kind);
		assert_int_equal(run.exit.status, t[i].status);
		assert_true(run.exit.wall_us > 0 && run.exit.wall_us < 5000000);
	}
}

static void order_and_input_are_kept(void **state)
{
	struct live_run run = { .input = "one\ntwo\n" };

	live_sh(&box, &run, "cat; echo three; echo four >&2");
	ok(&run);
	assert_string_equal(run.out, "one\ntwo\nthree\n");
	assert_string_equal(run.err, "four\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ends_with_the_commands_status, box_up, box_down),
		cmocka_unit_test_setup_teardown(order_and_input_are_kept, box_up, box_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
