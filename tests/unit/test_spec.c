/* SPDX-License-Identifier: Apache-2.0 */
/* box/spec: what a request may ask for, and that it comes back from the database as it went in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "box/spec.h"
#include "lib/leak.h"

static int parse(const char *text, struct spec *s, struct err *e)
{
	OWN_JSON doc = { 0 };
	int r;

	assert_int_equal(json_parse(text, strlen(text), &doc, e), 0);
	r = spec_parse(doc.root, s, e);
	return r;
}

static void what_it_takes_comes_back(void **state)
{
	static const char text[] =
		"{\"template\":\"debian:bookworm\",\"user\":\"root\",\"tz\":\"Europe/Berlin\",\"workdir\":\"/w\","
		"\"env\":[\"A=1\",\"B_2=x=y\\n\\\"\",\"C=\"],\"mounts\":[{\"at\":\"/p q\",\"source\":\"/s\",\"ro\":true},"
		"{\"at\":\"/r\",\"uid\":7,\"gid\":8}],\"limits\":{\"memory\":536870912,\"swap\":1,\"pids\":64,\"cpu_milli\":500,"
		"\"cpu_weight\":50,\"io_read\":9,\"io_write\":10,\"connections\":3,\"connection_rate\":4,\"flows\":5,"
		"\"bandwidth\":6000},\"net\":\"internet,lan=10.0.0.0/8\",\"exposed\":[{\"port\":80,\"host_port\":8080}],\"nesting\":true,\"allow_weaker\":true,"
		"\"ttl_ms\":5,"
		"\"idle_ms\":6}";
	struct spec s = { 0 }, again = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(text, &s, &e), 0);
	assert_int_equal(spec_copy(&s, &again, &e), 0);
	assert_string_equal(again.template, "debian:bookworm");
	assert_string_equal(again.user, "root");
	assert_string_equal(again.tz, "Europe/Berlin");
	assert_string_equal(again.workdir, "/w");
	assert_string_equal(again.env[1], "B_2=x=y\n\"");
	assert_string_equal(again.env[2], "C=");
	assert_null(again.env[3]);
	assert_int_equal(again.nviews, 2);
	assert_string_equal(again.views[0].at, "/p q");
	assert_true(again.views[0].read_only);
	assert_false(again.views[0].ids_given);
	assert_true(again.views[1].ids_given);
	assert_int_equal(again.views[1].gid, 8);
	assert_memory_equal(&again.limits, &s.limits, sizeof(s.limits));
	assert_int_equal(again.limits.memory, 536870912);
	assert_string_equal(again.net, "internet,lan=10.0.0.0/8");
	assert_int_equal(again.net_limits.connections, 3);
	assert_int_equal(again.net_limits.rate, 4);
	assert_int_equal(again.net_limits.flows, 5);
	assert_int_equal(again.net_limits.bandwidth, 6000);
	assert_int_equal(again.nexposed, 1);
	assert_int_equal(again.exposed[0].port, 80);
	assert_int_equal(again.exposed[0].host_port, 8080);
	assert_true(again.nesting && again.allow_weaker);
	assert_int_equal(again.ttl_ms, 5);
	assert_int_equal(again.idle_ms, 6);
	spec_done(&s);
	spec_done(&again);
}

static void what_it_does_not_take(void **state)
{
	static const char *const bad[] = {
		"{\"template\":5}",
		"{\"net\":5}",
		"{\"exposed\":{}}",
		"{\"exposed\":[5]}",
		"{\"exposed\":[{\"port\":80}]}",
		"{\"exposed\":[{\"port\":80,\"host_port\":65536}]}",
		"{\"exposed\":[{\"port\":-1,\"host_port\":80}]}",
		"{\"limits\":{\"connections\":-1}}",
		"{\"limits\":{\"bandwidth\":10}}",
		"{\"tz\":\"../../etc/passwd\"}",
		"{\"tz\":\"/etc/passwd\"}",
		"{\"tz\":\"a\\nb\"}",
		"{\"workdir\":\"relative\"}",
		"{\"env\":\"A=1\"}",
		"{\"env\":[\"A\"]}",
		"{\"env\":[\"=x\"]}",
		"{\"env\":[\"A B=x\"]}",
		"{\"env\":[\"9A=x\"]}",
		"{\"env\":[5]}",
		"{\"mounts\":{}}",
		"{\"mounts\":[5]}",
		"{\"mounts\":[{}]}",
		"{\"mounts\":[{\"at\":\"rel\"}]}",
		"{\"mounts\":[{\"at\":\"/a\",\"uid\":65536}]}",
		"{\"mounts\":[{\"at\":\"/a\",\"uid\":-1}]}",
		"{\"mounts\":[{\"at\":\"/a\",\"ro\":1}]}",
		"{\"mounts\":[{\"at\":\"/a\"},{\"at\":\"/b\"},{\"at\":\"/c\"},{\"at\":\"/d\"},{\"at\":\"/e\"},{\"at\":\"/f\"},"
		"{\"at\":\"/g\"},{\"at\":\"/h\"},{\"at\":\"/i\"}]}",
		"{\"limits\":5}",
		"{\"limits\":{\"memory\":-1}}",
		"{\"limits\":{\"memory\":1000}}",
		"{\"limits\":{\"memory\":\"1G\"}}",
		"{\"limits\":{\"pids\":1}}",
		"{\"limits\":{\"cpu_milli\":1}}",
		"{\"limits\":{\"cpu_weight\":10001}}",
		"{\"limits\":{\"fast\":1}}",
		"{\"nesting\":\"yes\"}",
		"{\"ttl_ms\":-5}",
		"{\"idle_ms\":1e3}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct spec s = { 0 };
		struct err e = ERR_INIT;

		if (parse(bad[i], &s, &e) >= 0)
			fail_msg("taken: %s", bad[i]);
		assert_true(e.text[0] != '\0');
		assert_true(e.why == WHY_BAD_REQUEST || e.why == WHY_UNSUPPORTED);
		spec_done(&s);
	}
}

static void what_is_not_said_keeps_its_value(void **state)
{
	struct spec s = { .limits = { .memory = 5u << 20, .pids = 77 } };
	struct err e = ERR_INIT;

	(void)state;
	memccpy(s.user, "agent", '\0', sizeof(s.user));
	assert_int_equal(parse("{\"limits\":{\"pids\":88}}", &s, &e), 0);
	assert_string_equal(s.user, "agent");
	assert_int_equal(s.limits.memory, 5u << 20);
	assert_int_equal(s.limits.pids, 88);
	assert_null(s.net);
	assert_int_equal(parse("{\"net\":\"internet\"}", &s, &e), 0);
	assert_int_equal(parse("{\"user\":\"root\"}", &s, &e), 0);
	assert_string_equal(s.net, "internet");
	assert_int_equal(parse("{\"net\":\"none\"}", &s, &e), 0);
	assert_null(s.net);
	spec_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_it_takes_comes_back, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(what_it_does_not_take, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(what_is_not_said_keeps_its_value, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
