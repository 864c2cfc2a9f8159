/* SPDX-License-Identifier: Apache-2.0 */
/* The table of claims, the lines made from it, and the judgement of what probes answer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "drill/claim.h"
#include "lib/leak.h"

static void every_claim_can_be_judged(void **state)
{
	struct claim_results *r = calloc(1, sizeof(*r));
	char how[240], against[240], line[4096];
	struct drill_facts none = { .n = 0 };

	(void)state;
	for (size_t i = 0; i < drill_nclaims; i++) {
		const struct claim *c = &drill_claims[i];
		size_t lines = 0;

		assert_true(c->at != 0 && c->at < 1u << AT_COUNT);
		assert_true(c->weaken <= WEAKEN_ALL);
		while (drill_line(c->attack, lines, &none, line, sizeof(line)) != 0)
			lines++;
		assert_in_range(lines, 1, CLAIM_LINES_MAX);
		if (strcmp(c->control, "=") != 0 && !(c->flags & CLAIM_POSITIVE))
			assert_int_not_equal(drill_line(c->control, 0, &none, line, sizeof(line)), 0);
		for (size_t k = i + 1; k < drill_nclaims; k++)
			assert_string_not_equal(c->id, drill_claims[k].id);
		/* Nothing ran: nothing is proven. */
		memset(r, 0, sizeof(*r));
		r->nattack = r->ncontrol = 1;
		assert_int_not_equal(drill_judge(c, r, how, sizeof(how), against, sizeof(against)), DRILL_PROVEN);
	}
	free(r);
}

/* A defence that nothing hangs on alone would go unmissed. */
static void every_defence_has_a_claim(void **state)
{
	(void)state;
	for (unsigned b = 0; b < WEAKEN_COUNT; b++) {
		unsigned n = 0;

		for (size_t i = 0; i < drill_nclaims; i++)
			n += drill_claims[i].weaken == 1u << b;
		if (n == 0)
			print_error("nothing hangs on '%s'\n", weaken_word(1u << b));
		assert_true(n > 0);
		assert_int_equal(weaken_bit(weaken_word(1u << b)), 1u << b);
	}
	assert_int_equal(weaken_bit("walls"), 0);
	assert_int_equal(weaken_bit(""), 0);
}

static void lines_are_made_of_facts(void **state)
{
	struct drill_facts f = { .n = 0 };
	char line[64];

	(void)state;
	assert_int_equal(drill_fact_set(&f, "file", "/a b"), 0);
	assert_int_equal(drill_fact_set(&f, "bad", "a\nb"), -E2BIG);
	assert_int_equal(drill_line("verb $file x\nother", 0, &f, line, sizeof(line)), 1);
	assert_string_equal(line, "verb\t/a b\tx");
	assert_int_equal(drill_line("verb $file x\nother", 1, &f, line, sizeof(line)), 1);
	assert_string_equal(line, "other");
	assert_int_equal(drill_line("verb $file x\nother", 2, &f, line, sizeof(line)), 0);
	assert_int_equal(drill_line("verb $bad", 0, &f, line, sizeof(line)), -ENOENT);
	assert_int_equal(drill_line("verb $filex", 0, &f, line, sizeof(line)), -ENOENT);
	assert_int_equal(drill_line("verb $file", 0, &f, line, 8), -E2BIG);
	drill_facts_done(&f);
}

static void answers_are_parsed_whole(void **state)
{
	static const char *const bad[] = { "", "1", "1 0", "x 0 1 through: a", "-1 0 1 through: a", "1 0 x through: a", "999999999 0 1 through: a" };
	struct probe_result r = { 0 };
	unsigned n = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(drill_answer(bad[i], &n, &r), -EBADMSG);
	assert_int_equal(n, 7);
	assert_int_equal(drill_answer("12 1 3 refused EPERM: x", &n, &r), 0);
	assert_int_equal(n, 12);
	assert_int_equal(r.end, PROBE_REFUSED);
	assert_int_equal(r.ms, 3);
	assert_string_equal(r.text, "refused EPERM: x");
	assert_int_equal(drill_answer("1 0 0 through: y", &n, &r), 0);
	assert_int_equal(r.end, PROBE_THROUGH);
	assert_int_equal(drill_answer("1 kill 9 ", &n, &r), 0);
	assert_int_equal(r.end, PROBE_KILLED);
	assert_int_equal(drill_answer("1 late 12000 ", &n, &r), 0);
	assert_int_equal(r.end, PROBE_LATE);
	/* Something else that ended with the status of a refusal has refused nothing. */
	assert_int_equal(drill_answer("1 1 0 usage: probe", &n, &r), 0);
	assert_int_equal(r.end, PROBE_BROKEN);
	assert_int_equal(drill_answer("1 127 0 ", &n, &r), 0);
	assert_int_equal(r.end, PROBE_BROKEN);
}

static enum drill_verdict judged(const struct claim *c, const char *attack, const char *user, const char *control)
{
	struct claim_results *r = calloc(1, sizeof(*r));
	char how[240], against[240];
	enum drill_verdict v;
	unsigned n;

	r->nattack = r->ncontrol = 1;
	if (attack)
		assert_int_equal(drill_answer(attack, &n, &r->attack[AT_BOX_ROOT][0]), 0);
	if (user)
		assert_int_equal(drill_answer(user, &n, &r->attack[AT_BOX_USER][0]), 0);
	if (control)
		assert_int_equal(drill_answer(control, &n, &r->control[0]), 0);
	v = drill_judge(c, r, how, sizeof(how), against, sizeof(against));
	free(r);
	return v;
}

#define NO "0 1 0 refused EPERM: x"
#define YES "0 0 0 through: x"

static void only_what_gets_through_elsewhere_is_proven(void **state)
{
	const struct claim c = { .id = "x", .at = P(BOX_ROOT) | P(BOX_USER), .attack = "bpf", .control_at = AT_CALLER, .control = "=" };
	const struct claim other = { .id = "x", .at = P(BOX_ROOT), .attack = "bpf", .control_at = AT_CALLER, .control = "perf" };
	const struct claim load = { .id = "x", .at = P(BOX_ROOT), .attack = "alloc 1", .control_at = AT_CALLER, .control = "alloc 0",
				    .flags = CLAIM_KILL };

	(void)state;
	assert_int_equal(judged(&c, NO, NO, YES), DRILL_PROVEN);
	assert_int_equal(judged(&c, NO, NULL, YES), DRILL_PROVEN);
	assert_int_equal(judged(&c, YES, NO, YES), DRILL_OPEN);
	assert_int_equal(judged(&c, NO, YES, YES), DRILL_OPEN);
	assert_int_equal(judged(&c, NO, YES, NO), DRILL_OPEN);
	assert_int_equal(judged(&c, NO, NO, NO), DRILL_UNPROVEN);
	assert_int_equal(judged(&c, NO, NO, NULL), DRILL_UNPROVEN);
	assert_int_equal(judged(&c, "0 1 0 usage", NO, YES), DRILL_UNPROVEN);
	assert_int_equal(judged(&c, NO, "0 late 12000 ", YES), DRILL_UNPROVEN);
	assert_int_equal(judged(&c, "0 kill 1 ", NO, YES), DRILL_UNPROVEN);
	assert_int_equal(judged(&c, NO, NO, "0 1 0 refused ENOSYS: x"), DRILL_ABSENT);
	assert_int_equal(judged(&c, NULL, NULL, YES), DRILL_ABSENT);
	assert_int_equal(judged(&other, NO, NULL, YES), DRILL_PROVEN);
	assert_int_equal(judged(&other, NO, NULL, NO), DRILL_UNPROVEN);
	assert_int_equal(judged(&load, "0 kill 1 ", NULL, YES), DRILL_PROVEN);
	assert_int_equal(judged(&load, "0 kill 1 ", NULL, "0 kill 1 "), DRILL_UNPROVEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_claim_can_be_judged, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(every_defence_has_a_claim, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(lines_are_made_of_facts, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(answers_are_parsed_whole, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(only_what_gets_through_elsewhere_is_proven, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
