/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: what is read, what is refused and where, and who may reach what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lib/leak.h"
#include "net/policy.h"

static struct policy *policy_with(const char *text, const struct presets *ps)
{
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	if (policy_parse(text, ps, &p, &e) < 0)
		fail_msg("'%s': %s", text, e.text);
	return p;
}

static bool is_own(const struct ip *a, void *arg)
{
	struct ip own;

	(void)arg;
	return ip_parse("8.8.4.4", &own) == 0 && ip_same(a, &own);
}

static const struct own_addrs own = { .has = is_own };

/* name: one that stands for the address, or NULL. */
static struct decision judge(const struct policy *p, const char *addr, uint16_t port, const char *name)
{
	struct decision d;
	struct ip a;

	assert_int_equal(ip_parse(addr, &a), 0);
	policy_judge(p, &own, &a, port, &name, name ? 1 : 0, &d);
	return d;
}

static void bad_ones(void **state)
{
	static const struct {
		const char *text, *says;	/* the place, and what is wrong */
	} rows[] = {
		{ "", "empty" }, { " , ", "empty" }, { "none,github.com", "character 6" }, { "github.com none", "character 12" },
		{ "github.com, bad_*.org", "character 13" }, { "*", "'*'" }, { "*.*.org", "'*'" }, { "a.*.org", "'*'" },
		{ "github", "without a dot" }, { "github.com.", "host name" }, { "-a.org", "host name" }, { "a-.org", "host name" },
		{ "a..org", "host name" }, { "ok.org:0", "port" }, { "ok.org:65536", "port" }, { "ok.org:80-", "port" },
		{ "ok.org:90-80", "port" }, { "ok.org:{80", "port" }, { "ok.org:{}", "port" }, { "ok.org:", "port" },
		{ "ok.org:+80", "port" }, { "ok.org:080", "port" }, { "1.2.3", "whole address" }, { "1.2.3.400", "whole address" },
		{ "9.9.9.9/33", "not an address" }, { "9.9.9.9/24", "bits set" }, { "10.0.0.0/8", "lan=10.0.0.0/8" },
		{ "192.168.1.1:80", "lan=192.168.1.1" }, { "fd00::/8", "private" }, { "127.0.0.1", "loopback" },
		{ "lan=127.0.0.1", "host-port" }, { "lan=169.254.169.254", "metadata" }, { "lan=224.0.0.0/4", "multicast" },
		{ "lan=0.0.0.0/8", "no policy" }, { "lan=::", "no policy" }, { "lan=64:ff9b::/96", "no policy" },
		{ "lan=100.100.100.200", "metadata" }, { "lan=fd63:7562:6279::/64", "boxes" }, { "lan=198.18.0.0/15", "boxes" },
		{ "168.63.129.16", "metadata" },
		{ "lan=8.8.8.8", "public" }, { "lan=0.0.0.0/0", "not a local" }, { "lan=", "lan=192" }, { "lan=printer", "lan=192" },
		{ "host-port=", "host-port=5432" }, { "host-port=x", "host-port=5432" }, { "@nosuch", "cubby net presets" },
		{ "caf\xc3\xa9.fr", "character 4" }, { "ok.org\x01", "character 7" }, { "[2606::1:443", "']'" },
		{ "[2606::1]443", "']'" }, { "internet,,none", "character 11" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy *p = (void *)&own;
		struct err e = ERR_INIT;

		if (policy_parse(rows[i].text, NULL, &p, &e) == 0)
			fail_msg("'%s' was taken", rows[i].text);
		assert_ptr_equal(p, &own);
		assert_int_equal(e.why, WHY_BAD_REQUEST);
		if (!strstr(e.text, rows[i].says))
			fail_msg("'%s' should say '%s', says: %s", rows[i].text, rows[i].says, e.text);
	}
}

static void canonical_text(void **state)
{
	static const char *const rows[][2] = {
		{ "none", "none" }, { " internet ", "internet" }, { "github.com , *.npmjs.org:443", "github.com,*.npmjs.org:443" },
		{ "[2606::/32]:{80,443}\t9.9.9.9", "[2606::/32]:{80,443},9.9.9.9" },
		{ "internet lan=10.1.0.0/16:80-90 host-port=5432", "internet,lan=10.1.0.0/16:80-90,host-port=5432" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct policy *p = policy_with(rows[i][0], NULL), *q;

		assert_string_equal(policy_text(p), rows[i][1]);
		q = policy_with(policy_text(p), NULL);
		assert_string_equal(policy_text(q), rows[i][1]);
		policy_unref(p);
		policy_unref(q);
	}
}

static void the_internet(void **state)
{
	static const char *const no[] = {
		"10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.0.1", "8.8.4.4", "198.18.0.1", "198.18.1.2", "203.0.113.1",
		"::1", "fd00::1", "fe80::1", "64:ff9b::808:808", "ff02::1", "255.255.255.255", "0.0.0.0", "168.63.129.16",
	};
	struct policy *p = policy_with("internet", NULL);

	(void)state;
	assert_int_equal(judge(p, "8.8.8.8", 443, NULL).verdict, VERDICT_ALLOW);
	assert_int_equal(judge(p, "2606::1", 22, NULL).verdict, VERDICT_ALLOW);
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		struct decision d = judge(p, no[i], 443, "public.example.org");

		if (d.verdict != VERDICT_REFUSE || !d.why[0])
			fail_msg("%s is reached, or nobody says why not", no[i]);
	}
	policy_unref(p);
}

static void nothing(void **state)
{
	struct policy *p = policy_with("none", NULL);
	struct decision d;

	(void)state;
	assert_int_equal(judge(p, "8.8.8.8", 443, "a.org").verdict, VERDICT_REFUSE);
	policy_judge_name(p, "a.org", 0, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	policy_unref(p);
}

static void lists(void **state)
{
	struct policy *p = policy_with("github.com:443,*.npmjs.org,9.9.9.0/24:{53,853},[2606:4700::/32]:80-90", NULL);
	static const struct {
		const char *addr;
		uint16_t port;
		const char *name;
		enum verdict verdict;
	} rows[] = {
		{ "140.82.1.1", 443, "github.com", VERDICT_ALLOW }, { "140.82.1.1", 22, "github.com", VERDICT_REFUSE },
		{ "140.82.1.1", 443, "GitHub.com", VERDICT_REFUSE },	/* names of the resolver are in lower case */
		{ "140.82.1.1", 443, "xgithub.com", VERDICT_REFUSE }, { "140.82.1.1", 443, "a.github.com", VERDICT_REFUSE },
		{ "140.82.1.1", 443, "github.com.evil.org", VERDICT_REFUSE }, { "140.82.1.1", 443, NULL, VERDICT_REFUSE },
		{ "104.16.1.1", 80, "registry.npmjs.org", VERDICT_ALLOW }, { "104.16.1.1", 80, "a.b.npmjs.org", VERDICT_ALLOW },
		{ "104.16.1.1", 80, "npmjs.org", VERDICT_REFUSE }, { "104.16.1.1", 80, "xnpmjs.org", VERDICT_REFUSE },
		{ "9.9.9.9", 53, NULL, VERDICT_ALLOW }, { "9.9.9.9", 853, NULL, VERDICT_ALLOW },
		{ "9.9.9.9", 443, NULL, VERDICT_REFUSE }, { "9.9.8.255", 53, NULL, VERDICT_REFUSE },
		{ "2606:4700::1", 80, NULL, VERDICT_ALLOW }, { "2606:4700::1", 90, NULL, VERDICT_ALLOW },
		{ "2606:4700::1", 91, NULL, VERDICT_REFUSE }, { "2606:4701::1", 80, NULL, VERDICT_REFUSE },
		{ "10.0.0.1", 443, "github.com", VERDICT_REFUSE },	/* rebinding */
		{ "8.8.4.4", 443, "github.com", VERDICT_REFUSE },	/* the host's own */
	};
	struct decision d;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		d = judge(p, rows[i].addr, rows[i].port, rows[i].name);
		if (d.verdict != rows[i].verdict)
			fail_msg("row %zu: %s:%u as %s gives %d (%s%s)", i, rows[i].addr, rows[i].port,
				 rows[i].name ? rows[i].name : "-", d.verdict, d.rule, d.why);
	}
	d = judge(p, "104.16.1.1", 80, "registry.npmjs.org");
	assert_string_equal(d.rule, "*.npmjs.org");
	assert_true(d.by_name);
	assert_false(judge(p, "9.9.9.9", 53, NULL).by_name);
	policy_judge_name(p, "GITHUB.com", 443, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	policy_judge_name(p, "github.com", 0, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	policy_judge_name(p, "github.com", 22, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	assert_non_null(strstr(d.why, "other ports"));
	policy_judge_name(p, "evil.org", 0, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	assert_true(policy_has_names(p));
	policy_unref(p);
}

static void lan_and_host(void **state)
{
	struct policy *p = policy_with("github.com lan=192.168.1.0/24:80 lan=169.254.0.0/16 host-port=5432", NULL);
	struct decision d;

	(void)state;
	d = judge(p, "192.168.1.7", 80, NULL);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(d.lan);
	assert_int_equal(judge(p, "192.168.1.7", 81, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "192.168.2.7", 80, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "169.254.1.1", 80, NULL).verdict, VERDICT_ALLOW);
	assert_int_equal(judge(p, "169.254.169.254", 80, NULL).verdict, VERDICT_REFUSE);
	d = judge(p, NET_GATEWAY4, 5432, NULL);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(d.to_host);
	assert_true(judge(p, NET_GATEWAY6, 5432, NULL).to_host);
	assert_int_equal(judge(p, NET_GATEWAY4, 5433, NULL).verdict, VERDICT_REFUSE);
	assert_true(policy_is_wider(p));
	policy_unref(p);
	/* A range that is wide enough to hold what no policy lifts. */
	p = policy_with("lan=100.64.0.0/10 lan=8000::/1 lan=fc00::/7", NULL);
	assert_int_equal(judge(p, "100.100.100.199", 80, NULL).verdict, VERDICT_ALLOW);
	assert_int_equal(judge(p, "100.100.100.200", 80, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "fd00:ec2::255", 80, NULL).verdict, VERDICT_ALLOW);
	assert_int_equal(judge(p, "fd00:ec2::254", 80, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "fd63:7562:6279::100", 80, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "ff02::1", 80, NULL).verdict, VERDICT_REFUSE);
	policy_unref(p);
	p = policy_with("internet", NULL);
	assert_int_equal(judge(p, NET_GATEWAY4, 5432, NULL).verdict, VERDICT_REFUSE);
	assert_int_equal(judge(p, "192.168.1.7", 80, NULL).verdict, VERDICT_REFUSE);
	assert_false(policy_is_wider(p));
	policy_unref(p);
}

static void asking(void **state)
{
	struct policy *p = policy_with("ask,github.com", NULL);
	struct decision d;

	(void)state;
	assert_int_equal(judge(p, "140.82.1.1", 443, "github.com").verdict, VERDICT_ALLOW);
	assert_int_equal(judge(p, "140.82.1.1", 443, "other.org").verdict, VERDICT_ASK);
	assert_int_equal(judge(p, "10.0.0.1", 443, "other.org").verdict, VERDICT_REFUSE);
	policy_judge_name(p, "other.org", 0, &d);
	assert_int_equal(d.verdict, VERDICT_ASK);
	assert_true(policy_asks(p));
	policy_unref(p);
}

static void lab_ranges(void **state)
{
	struct policy *p = policy_with("internet", NULL);
	struct own_addrs lab = own;
	struct decision d;
	struct cidr c;
	struct ip a;

	(void)state;
	assert_int_equal(cidr_parse("203.0.113.0/24", &c), 0);
	assert_int_equal(ip_parse("203.0.113.9", &a), 0);
	policy_judge(p, &lab, &a, 80, NULL, 0, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	lab.lab_public = &c;
	lab.nlab_public = 1;
	policy_judge(p, &lab, &a, 80, NULL, 0, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_int_equal(cidr_parse("169.254.0.0/16", &c), 0);
	assert_int_equal(ip_parse("169.254.1.1", &a), 0);
	policy_judge(p, &lab, &a, 80, NULL, 0, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_int_equal(ip_parse("169.254.169.254", &a), 0);
	policy_judge(p, &lab, &a, 80, NULL, 0, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	policy_unref(p);
}

static void presets(void **state)
{
	struct presets *ps = NULL;
	struct err e = ERR_INIT;
	struct policy *p;
	struct decision d;
	const char *items, *name;
	size_t n = 0;

	(void)state;
	assert_int_equal(presets_new(NULL, &ps, &e), 0);
	for (; (name = presets_each(ps, n, &items)); n++)
		assert_true(items[0] != '\0');
	assert_true(n >= 10);
	p = policy_with("@npm,@debian", ps);
	assert_string_equal(policy_text(p), "@npm,@debian");
	policy_judge_name(p, "registry.npmjs.org", 443, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_string_equal(d.rule, "registry.npmjs.org (@npm)");
	policy_judge_name(p, "pypi.org", 443, &d);
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	policy_unref(p);
	presets_free(ps);

	assert_int_equal(presets_new("# ours\nours: a.example.org,\n  @npm  # and\n\n\tb.example.org:8080\nnpm: c.example.org\n", &ps, &e), 0);
	p = policy_with("@ours", ps);
	policy_judge_name(p, "b.example.org", 8080, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	policy_judge_name(p, "c.example.org", 1, &d);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	policy_judge_name(p, "registry.npmjs.org", 443, &d);	/* npm was replaced */
	assert_int_equal(d.verdict, VERDICT_REFUSE);
	policy_unref(p);
	presets_free(ps);

	static const char *const wrong[][2] = {
		{ "a: @b\nb: @a\n", "contains itself" }, { "  x.org\n", "line 1" }, { "ok: a.org\nbad name: x\n", "line 2" },
		{ "x: nodot\n", "@x" }, { "x: internet\n", "part of a preset" }, { "x: lan=10.0.0.0/8\n", "part of a preset" },
		{ "nocolon\n", "NAME:" }, { "x: host-port=1\n", "part of a preset" },
		{ "a: @b @b @b @b @b @b @b @b @b @b\nb: @c @c @c @c @c @c @c @c @c @c\nc: @d @d @d @d @d @d @d @d @d @d\n"
		  "d: @e @e @e @e @e @e @e @e @e @e\ne: @f @f @f @f @f @f @f @f @f @f\nf:\n", "more than 10000 times" },
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ps = NULL;
		if (presets_new(wrong[i][0], &ps, &e) == 0)
			fail_msg("taken: %s", wrong[i][0]);
		assert_null(ps);
		if (!strstr(e.text, wrong[i][1]))
			fail_msg("should say '%s': %s", wrong[i][1], e.text);
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Nanoseconds of one decision on a list of n names: the best of some rounds, half of them of names that are there. */
static double decision_ns(int n)
{
	struct buf text = BUF_INIT(POLICY_TEXT_MAX);
	char names[64][64];
	struct policy *p;
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < n; i++)
		assert_int_equal(buf_printf(&text, "h%d.example.org,*.w%d.example.org ", i, i), 0);
	p = policy_with(text.data, NULL);
	buf_done(&text);
	for (int i = 0; i < 64; i++)
		(void)snprintf(names[i], sizeof(names[i]), i % 2 ? "a.w%d.example.org" : "a.x%d.example.org", i * 7919 % n);
	for (int round = 0; round < 20; round++) {
		uint64_t from = now_ns();

		for (int i = 0; i < 6400; i++) {
			struct decision d;

			policy_judge_name(p, names[i % 64], 443, &d);
			if (d.verdict != (i % 2 ? VERDICT_ALLOW : VERDICT_REFUSE))
				fail_msg("%s", names[i % 64]);
		}
		from = now_ns() - from;
		best = from < best ? from : best;
	}
	policy_unref(p);
	return (double)best / 6400;
}

/* A walk along the list would take a thousand times as long; some cache misses may. */
static void long_lists_take_no_longer(void **state)
{
	double few = decision_ns(10), many = decision_ns(10000);

	(void)state;
	print_message("a decision: %.0f ns with 10 names, %.0f ns with 10000\n", few, many);
	assert_true(many < 20 * few);
}

static void long_lists(void **state)
{
	struct buf text = BUF_INIT(POLICY_TEXT_MAX);
	struct policy *p;
	struct decision d;
	char name[64];

	(void)state;
	for (int i = 0; i < 10000; i++)
		assert_int_equal(buf_printf(&text, "h%d.example.org,*.w%d.example.org,11.%d.%d.0/24 ", i, i, i / 256, i % 256), 0);
	p = policy_with(text.data, NULL);
	buf_done(&text);
	for (int i = 0; i < 10000; i += 97) {
		(void)snprintf(name, sizeof(name), "h%d.example.org", i);
		policy_judge_name(p, name, 443, &d);
		assert_int_equal(d.verdict, VERDICT_ALLOW);
		(void)snprintf(name, sizeof(name), "a.w%d.example.org", i);
		policy_judge_name(p, name, 443, &d);
		assert_int_equal(d.verdict, VERDICT_ALLOW);
		(void)snprintf(name, sizeof(name), "11.%d.%d.255", i / 256, i % 256);
		assert_int_equal(judge(p, name, 1, NULL).verdict, VERDICT_ALLOW);
		(void)snprintf(name, sizeof(name), "x%d.example.org", i);
		policy_judge_name(p, name, 443, &d);
		assert_int_equal(d.verdict, VERDICT_REFUSE);
	}
	assert_int_equal(judge(p, "11.200.0.1", 1, NULL).verdict, VERDICT_REFUSE);
	policy_unref(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bad_ones, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(canonical_text, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(the_internet, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(nothing, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(lists, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(lan_and_host, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(asking, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(lab_ranges, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(presets, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(long_lists, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(long_lists_take_no_longer, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
