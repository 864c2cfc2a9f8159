/* SPDX-License-Identifier: Apache-2.0 */
/* What a builder is told of a box's network and what it answers, over an engine that only pretends. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "box/builder.h"
#include "lib/leak.h"

#define ID "a2345678901234567890"

/* ---- the engine: says what it was told ---- */

static unsigned number = 99;

static void numbered(unsigned k)
{
	number = k;
}

static int pretend_start(const struct box_spec *s, struct box_run *ret, struct err *e)
{
	(void)e;
	*ret = (struct box_run){ .pid = getpid(), .pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC) };
	if (s->net) {
		ret->net_index = 1000 + number;
		ret->net_if = 17;
	}
	return 0;
}

static int pretend_plug(const char *id, struct box_run *run, bool on, struct err *e)
{
	if (strcmp(id, ID) != 0 || fcntl(run->pidfd, F_GETFD) < 0)
		return err_set(e, -EINVAL, "told of another box");
	if (run->pid == 6)
		return err_why(e, WHY_WRONG_STATE, -ESRCH, "the box does not run");
	/* The old numbers, so that the test sees that they came through. */
	run->net_index = on ? run->net_index + 1 : 0;
	run->net_if = on ? run->net_if + 1 : 0;
	return 0;
}

static int pretend_grade(const char *id, const struct box_run *run, grade_fn *row, void *arg, struct err *e)
{
	char what[64];
	const struct grade_row r = { .id = "network", .level = GRADE_ON, .what = what };

	(void)id;
	(void)e;
	(void)snprintf(what, sizeof(what), "%u %d", run->net_index, run->net_if);
	row(&r, arg);
	return 0;
}

static const struct engine pretends = { .name = "pretend", .start = pretend_start, .plug = pretend_plug, .grade = pretend_grade };
static const struct engine fixed = { .name = "fixed", .start = pretend_start };

/* ---- the daemon's side: jobs are sent, and then all answers looked at, in their order ---- */

struct answer {
	int r;
	int64_t index, net_if;
	char text[ERR_TEXT_MAX];
};

static struct {
	struct loop *loop;
	struct builders *builders;
	struct answer answers[8];
	unsigned sent, come;
} lab;

static void done(void *arg, int r, const struct json *answer, int *fd, const struct err *e)
{
	const struct json *rows = answer ? json_get(answer, "rows") : NULL;
	struct answer *a = &lab.answers[lab.come++];

	(void)arg;
	(void)fd;
	a->r = r;
	a->index = answer ? json_int(answer, "net_index", 0) : -1;
	a->net_if = answer ? json_int(answer, "net_if", 0) : -1;
	(void)snprintf(a->text, sizeof(a->text), "%s", e ? e->text : rows ? json_str(rows->child, "what", "") : "");
	if (lab.come == lab.sent)
		loop_quit(lab.loop);
}

static void begin(const struct engine *engine)
{
	struct err e = ERR_INIT;

	lab.sent = lab.come = 0;
	assert_int_equal(loop_new(&lab.loop), 0);
	/* One only, so that its number is known. */
	if (builders_new(lab.loop, engine, 1, 64, numbered, &lab.builders, &e) < 0)
		fail_msg("%s", e.text);
}

static void end(void)
{
	assert_int_equal(loop_run(lab.loop), 0);
	builders_free(lab.builders, 1000);
	loop_free(lab.loop);
	assert_int_equal(lab.come, lab.sent);
}

static void start(bool net)
{
	struct box_spec s = { .id = ID, .box_dir = (char *)leak_dir(), .run_dir = (char *)"/nowhere", .nparts = 1, .net = net };
	struct err e = ERR_INIT;

	s.parts[0] = (struct root_part){ .at = (char *)"/", .layers = { (char *)"/nowhere" }, .nlayers = 1 };
	lab.sent++;
	assert_int_equal(builders_start_box(lab.builders, BUILD_NOW, &s, NULL, 0, done, NULL, &e), 0);
}

static void plug(pid_t pid, bool on)
{
	OWN_FD fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const struct box_run run = { .pid = pid, .pidfd = fd, .net_index = 300, .net_if = 8 };
	struct err e = ERR_INIT;

	lab.sent++;
	assert_int_equal(builders_plug(lab.builders, BUILD_NOW, ID, &run, on, done, NULL, &e), 0);
}

static void a_started_box_tells_its_interface(void **state)
{
	(void)state;
	begin(&pretends);
	start(true);
	start(false);
	end();
	assert_int_equal(lab.answers[0].r, 0);
	assert_int_equal(lab.answers[0].index, 1000);
	assert_int_equal(lab.answers[0].net_if, 17);
	assert_int_equal(lab.answers[1].r, 0);
	assert_int_equal(lab.answers[1].index, 0);
	assert_int_equal(lab.answers[1].net_if, 0);
}

static void plugging_goes_both_ways(void **state)
{
	OWN_FD fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	const struct box_run run = { .pid = 5, .pidfd = fd, .net_index = 31, .net_if = 32 };
	struct err e = ERR_INIT;

	(void)state;
	begin(&pretends);
	plug(5, true);
	plug(5, false);
	plug(6, true);
	/* The grade is told which interface the daemon believes in. */
	lab.sent++;
	assert_int_equal(builders_grade(lab.builders, ID, &run, done, NULL, &e), 0);
	end();
	assert_int_equal(lab.answers[0].r, 0);
	assert_int_equal(lab.answers[0].index, 301);
	assert_int_equal(lab.answers[0].net_if, 9);
	assert_int_equal(lab.answers[1].r, 0);
	assert_int_equal(lab.answers[1].index, 0);
	assert_int_equal(lab.answers[2].r, -ESRCH);
	assert_string_equal(lab.answers[2].text, "the box does not run");
	assert_string_equal(lab.answers[3].text, "31 32");
}

static void an_engine_without_plugs_says_so(void **state)
{
	(void)state;
	begin(&fixed);
	plug(5, true);
	/* The builder goes on. */
	start(true);
	end();
	assert_int_equal(lab.answers[0].r, -EOPNOTSUPP);
	assert_non_null(strstr(lab.answers[0].text, "fixed"));
	assert_int_equal(lab.answers[1].index, 1000);
}

static int mark(void **state)
{
	(void)alarm(30);
	return leak_mark(state);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, mark, leak_check)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_started_box_tells_its_interface),
		CASE(plugging_goes_both_ways),
		CASE(an_engine_without_plugs_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
