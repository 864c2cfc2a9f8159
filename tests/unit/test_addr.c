/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: one way to write each, and the ranges no box reaches. */
#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lib/leak.h"
#include "net/addr.h"

static struct ip ip(const char *s)
{
	struct ip a;

	if (ip_parse(s, &a) < 0)
		fail_msg("'%s' should be an address", s);
	return a;
}

static void text_and_back(void **state)
{
	static const char *const good[][2] = {
		{ "1.2.3.4", "1.2.3.4" }, { "0.0.0.0", "0.0.0.0" }, { "255.255.255.255", "255.255.255.255" },
		{ "::ffff:1.2.3.4", "1.2.3.4" }, { "::FFFF:0102:0304", "1.2.3.4" }, { "2001:DB8:0::1", "2001:db8::1" },
		{ "::1", "::1" }, { "::", "::" },
	};
	static const char *const wrong[] = {
		"", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.04", "1.2.3.256", "0x1.2.3.4", "1.2.3.4 ", " 1.2.3.4", "16909060",
		"::1%lo", "[::1]", "1::2::3", "12345::", "1.2.3.-4", "::ffff:1.2.3",
	};
	char buf[IP_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ip a = ip(good[i][0]);

		assert_string_equal(ip_text(&a, buf), good[i][1]);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct ip a;

		if (ip_parse(wrong[i], &a) == 0)
			fail_msg("'%s' was taken for an address", wrong[i]);
	}
}

static void ranges_of_addresses(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *again;
	} rows[] = {
		{ "10.0.0.0/8", 0, "10.0.0.0/8" }, { "1.2.3.4", 0, "1.2.3.4" }, { "1.2.3.4/32", 0, "1.2.3.4" },
		{ "0.0.0.0/0", 0, "0.0.0.0/0" }, { "::/0", 0, "::/0" }, { "2001:db8::/32", 0, "2001:db8::/32" },
		{ "::ffff:10.0.0.0/104", 0, "10.0.0.0/8" }, { "10.0.0.1/8", -EDOM, NULL }, { "2001:db8::1/32", -EDOM, NULL },
		{ "10.0.0.0/33", -EINVAL, NULL }, { "::/129", -EINVAL, NULL }, { "10.0.0.0/", -EINVAL, NULL },
		{ "10.0.0.0/08", -EINVAL, NULL }, { "10.0.0.0/-1", -EINVAL, NULL }, { "10.0.0.0/8/8", -EINVAL, NULL },
		{ "10.0.0.0/99999999999999999999", -EINVAL, NULL }, { "/8", -EINVAL, NULL },
	};
	char buf[IP_TEXT_MAX + 4];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cidr c;
		int r = cidr_parse(rows[i].text, &c);

		if (r != rows[i].code)
			fail_msg("%s gives %d", rows[i].text, r);
		if (r == 0)
			assert_string_equal(cidr_text(&c, buf), rows[i].again);
	}
}

static void what_is_inside(void **state)
{
	struct cidr c;
	struct ip in = ip("172.31.255.255"), out = ip("172.32.0.0"), six = ip("2001:db8::1");

	(void)state;
	assert_int_equal(cidr_parse("172.16.0.0/12", &c), 0);
	assert_true(cidr_has(&c, &in));
	assert_false(cidr_has(&c, &out));
	assert_false(cidr_has(&c, &six));
	assert_int_equal(cidr_parse("0.0.0.0/0", &c), 0);
	assert_true(cidr_has(&c, &out));
	assert_false(cidr_has(&c, &six));
	assert_int_equal(cidr_parse("::/0", &c), 0);
	assert_true(cidr_has(&c, &six));
}

/* First and last address of each range, and the neighbours outside that are public. */
static void ranges_no_box_reaches(void **state)
{
	static const struct {
		const char *first, *last, *before, *behind;
	} rows[] = {
		{ "0.0.0.0", "0.255.255.255", NULL, "1.0.0.0" },
		{ "10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0" },
		{ "100.64.0.0", "100.127.255.255", "100.63.255.255", "100.128.0.0" },
		{ "127.0.0.0", "127.255.255.255", "126.255.255.255", "128.0.0.0" },
		{ "168.63.129.16", "168.63.129.16", "168.63.129.15", "168.63.129.17" },
		{ "169.254.0.0", "169.254.255.255", "169.253.255.255", "169.255.0.0" },
		{ "172.16.0.0", "172.31.255.255", "172.15.255.255", "172.32.0.0" },
		{ "192.0.0.0", "192.0.0.255", "191.255.255.255", "192.0.1.0" },
		{ "192.31.196.0", "192.31.196.255", "192.31.195.255", "192.31.197.0" },
		{ "192.52.193.0", "192.52.193.255", "192.52.192.255", "192.52.194.0" },
		{ "192.175.48.0", "192.175.48.255", "192.175.47.255", "192.175.49.0" },
		{ "2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "2620:4f:7fff::", "2620:4f:8001::" },
		{ "192.0.2.0", "192.0.2.255", "192.0.1.255", "192.0.3.0" },
		{ "192.88.99.0", "192.88.99.255", "192.88.98.255", "192.88.100.0" },
		{ "192.168.0.0", "192.168.255.255", "192.167.255.255", "192.169.0.0" },
		{ "198.18.0.0", "198.19.255.255", "198.17.255.255", "198.20.0.0" },
		{ "198.51.100.0", "198.51.100.255", "198.51.99.255", "198.51.101.0" },
		{ "203.0.113.0", "203.0.113.255", "203.0.112.255", "203.0.114.0" },
		{ "224.0.0.0", "255.255.255.255", "223.255.255.255", NULL },
		{ "::", "::1", NULL, NULL },
		{ "::ffff:10.0.0.1", "::ffff:10.255.0.1", "::ffff:9.0.0.1", "::ffff:11.0.0.1" },
		{ "::10.0.0.1", "::8.8.8.8", NULL, NULL },
		{ "64:ff9b::", "64:ff9b::ffff:ffff", NULL, NULL },
		{ "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", NULL, NULL },
		{ "100::", "100::ffff:ffff:ffff:ffff", NULL, NULL },
		{ "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", NULL, "2001:200::" },
		{ "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff::", "2001:db9::" },
		{ "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:ffff::", "2003::" },
		{ "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff::", "3fff:1000::" },
		{ "4000::", "fbff::", "3fff:ffff::", NULL },
		{ "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NULL, NULL },
		{ "fe80::", "febf:ffff::", NULL, NULL },
		{ "fec0::", "feff:ffff::", NULL, NULL },
		{ "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", NULL, NULL },
		{ "2606::5efe:10.0.0.1", "2606::200:5efe:127.0.0.1", "2606::5efe:8.8.8.8", "2606::1" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *const in[] = { rows[i].first, rows[i].last }, *const out[] = { rows[i].before, rows[i].behind };

		for (int k = 0; k < 2; k++) {
			struct ip a = ip(in[k]);

			if (!ip_forbidden(&a))
				fail_msg("%s can be reached", in[k]);
			if (!out[k])
				continue;
			a = ip(out[k]);
			if (ip_forbidden(&a))
				fail_msg("%s can't be reached: %s", out[k], ip_forbidden(&a));
		}
	}
}

/* What lan= can't lift either, and the neighbour that it can. */
static void addresses_without_exception(void **state)
{
	static const char *const rows[][2] = {
		{ "127.0.0.1", "10.0.0.1" }, { "0.0.0.0", "192.168.0.1" }, { "0.1.2.3", "172.16.0.1" }, { "::1", "fd00::1" }, { "::", "fe80::1" },
		{ "100.100.100.200", "100.100.100.199" }, { "169.254.169.254", "169.254.169.253" }, { "169.254.170.2", "169.254.170.3" },
		{ "169.254.170.23", "169.254.170.22" }, { "192.0.0.192", "192.0.0.191" }, { "fd00:ec2::254", "fd00:ec2::255" },
		{ "fd00:ec2::23", "fd00:ec2::24" }, { "fd20:ce::254", "fd20:ce::253" }, { "fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fd" },
		{ "168.63.129.16", NULL }, { "224.0.0.1", "240.0.0.1" }, { "255.255.255.255", "255.255.255.254" }, { "ff02::1", "fec0::1" },
		{ "198.18.0.1", "192.0.2.1" }, { "198.19.255.255", "198.51.100.1" }, { "fd63:7562:6279::1", "fd63:7562:6278::1" },
		{ "::ffff:127.0.0.1", "::ffff:10.0.0.1" }, { "::10.0.0.1", NULL }, { "64:ff9b::10.0.0.1", NULL }, { "64:ff9b:1::1", NULL },
		{ "2002:a9fe:a9fe::1", NULL }, { "2001::1", NULL }, { "::ffff:0:10.0.0.1", NULL }, { "192.88.99.1", NULL },
		{ "fe80::5efe:127.0.0.1", "fe80::5efe:10.0.0.1" }, { "fd00::200:5efe:169.254.169.254", "fd00::200:5efe:8.8.8.8" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ip a = ip(rows[i][0]);

		if (!ip_never(&a) || !ip_forbidden(&a))
			fail_msg("%s has exceptions", rows[i][0]);
		if (!rows[i][1])
			continue;
		a = ip(rows[i][1]);
		if (ip_never(&a) || !ip_forbidden(&a))
			fail_msg("%s has no exception, or needs none", rows[i][1]);
	}
	static const char *const public[] = { "8.8.8.8", "168.63.129.17", "2606::1" };
	for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++) {
		struct ip a = ip(public[i]);

		assert_false(ip_never(&a));
	}
}

static void addresses_of_boxes(void **state)
{
	char buf[IP_TEXT_MAX];
	struct ip a = net_box4(NET_INDEX_MIN);

	(void)state;
	assert_string_equal(ip_text(&a, buf), "198.18.1.0");
	assert_non_null(ip_forbidden(&a));
	a = net_box4(NET_INDEX_MAX);
	assert_string_equal(ip_text(&a, buf), "198.19.255.255");
	a = net_box6(NET_INDEX_MAX);
	assert_string_equal(ip_text(&a, buf), "fd63:7562:6279::1:ffff");
	assert_non_null(ip_forbidden(&a));
}

static void socket_addresses(void **state)
{
	struct sockaddr_storage ss;
	struct ip a = ip("1.2.3.4"), b;
	uint16_t port;

	(void)state;
	assert_int_equal(ip_sockaddr(&a, 80, &ss), sizeof(struct sockaddr_in));
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&ss, &b, &port), 0);
	assert_true(ip_same(&a, &b));
	assert_int_equal(port, 80);
	a = ip("2606::1");
	assert_int_equal(ip_sockaddr(&a, 443, &ss), sizeof(struct sockaddr_in6));
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&ss, &b, &port), 0);
	assert_true(ip_same(&a, &b));
	assert_int_equal(port, 443);
	/* The same host by its mapped address is the same host. */
	a = ip("::ffff:127.0.0.1");
	assert_true(ip_is4(&a));
	ss.ss_family = AF_UNIX;
	assert_int_equal(ip_of_sockaddr((struct sockaddr *)&ss, &b, &port), -EAFNOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(text_and_back, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(ranges_of_addresses, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(what_is_inside, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(ranges_no_box_reaches, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(addresses_without_exception, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(addresses_of_boxes, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(socket_addresses, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
