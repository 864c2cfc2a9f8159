/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

/* Parse and write again; compare with `want`. */
static void round_trip(const char *text, const char *want)
{
	OWN_JSON doc = { 0 };
	OWN_BUF b = BUF_INIT(1u << 20);
	struct err e = ERR_INIT;
	struct json_out o;

	if (json_parse(text, strlen(text), &doc, &e) != 0)
		fail_msg("%s: %s", text, e.text);
	json_out_init(&o, &b);
	json_put_value(&o, NULL, doc.root);
	assert_int_equal(buf_error(&b), 0);
	assert_string_equal(b.data, want);
}

static void accepted(void **state)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "null", "null" }, { " true ", "true" }, { "false", "false" }, { "0", "0" }, { "-0", "0" }, { "-12", "-12" },
		{ "9223372036854775807", "9223372036854775807" }, { "-9223372036854775808", "-9223372036854775808" },
		{ "9223372036854775808", "9.2233720368547758e+18" }, { "1.5", "1.5" }, { "1e2", "100.0" }, { "-0.0", "-0.0" }, { "1E-2", "0.01" },
		{ "\"\"", "\"\"" }, { "\"a\\u0041\\/\"", "\"aA/\"" }, { "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"" },
		{ "\"\xc3\xa4\"", "\"\xc3\xa4\"" }, { "\"\\u001b\"", "\"\\u001b\"" }, { "\"\\\"\\\\\"", "\"\\\"\\\\\"" },
		{ "[]", "[]" }, { "[ 1 , [ ] , { } ]", "[1,[],{}]" }, { "{}", "{}" },
		{ "{\"a\":1,\"b\":[true,null],\"\":\"\"}", "{\"a\":1,\"b\":[true,null],\"\":\"\"}" },
		{ "\t\r\n[\n1\n]\n", "[1]" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		round_trip(t[i].in, t[i].out);
}

static void refused(void **state)
{
	static const char *const t[] = {
		"", " ", "nul", "nullx", "True", "1 2", "[1", "[1,]", "[,1]", "[1 2]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}",
		"{\"a\":1 \"b\":2}", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1",
		"NaN", "Infinity", "1e999", "\"", "\"a", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\u0000\"", "\"\\ud800\"",
		"\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\ud800x\"", "\"\n\"", "\"\t\"", "\"\xff\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"", "'a'",
		"[1]x", "// c\n1", "\xef\xbb\xbf" "1",
		"11111111111111111111111111111111111111111111111111111111111111111111",	/* longer than any number of ours */
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct json_doc doc = { 0 };
		struct err e = ERR_INIT;

		if (json_parse(t[i], strlen(t[i]), &doc, &e) != -EINVAL)
			fail_msg("'%s' was accepted", t[i]);
		assert_true(e.text[0] != '\0');
		assert_null(doc.root);
		assert_null(doc.mem);
	}
	/* A NUL is no blank, and the length counts, not the terminator. */
	struct json_doc doc = { 0 };

	assert_int_equal(json_parse("1\0", 2, &doc, NULL), -EINVAL);
	assert_int_equal(json_parse("\"a\0b\"", 5, &doc, NULL), -EINVAL);
	assert_int_equal(json_parse("12", 1, &doc, NULL), 0);
	assert_int_equal(doc.root->num, 1);
	json_doc_done(&doc);
	json_doc_done(&doc);
}

static void depth_has_an_end(void **state)
{
	char text[2 * JSON_DEPTH_MAX + 3];
	struct json_doc doc = { 0 };

	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	assert_int_equal(json_parse(text, 2 * JSON_DEPTH_MAX, &doc, NULL), 0);
	json_doc_done(&doc);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	assert_int_equal(json_parse(text, 2 * JSON_DEPTH_MAX + 2, &doc, NULL), -EINVAL);
}

static void members_are_found(void **state)
{
	static const char text[] = "{\"s\":\"x\",\"i\":-5,\"b\":true,\"r\":1.5,\"n\":null,\"o\":{\"s\":\"y\"},\"a\":[1,2]}";
	OWN_JSON doc = { 0 };
	const struct json *r;

	assert_int_equal(json_parse(text, sizeof(text) - 1, &doc, NULL), 0);
	r = doc.root;
	assert_int_equal(r->count, 7);
	assert_string_equal(json_str(r, "s", "d"), "x");
	assert_string_equal(json_str(r, "i", "d"), "d");
	assert_string_equal(json_str(r, "none", "d"), "d");
	assert_int_equal(json_int(r, "i", 9), -5);
	assert_int_equal(json_int(r, "r", 9), 9);
	assert_int_equal(json_int(r, "b", 9), 9);
	assert_true(json_bool(r, "b", false));
	assert_true(json_bool(r, "i", true));	/* not a bool: the default */
	assert_string_equal(json_str(json_get(r, "o"), "s", "d"), "y");
	assert_int_equal(json_get(r, "a")->count, 2);
	assert_int_equal(json_get(r, "a")->child->next->num, 2);
	assert_null(json_get(r, "none"));
	assert_null(json_get(NULL, "s"));
	assert_string_equal(json_str(NULL, "s", "d"), "d");
	assert_null(json_get(json_get(r, "a"), "s"));
}

static void written(void **state)
{
	OWN_BUF b = BUF_INIT(1000);
	struct json_out o;

	json_out_init(&o, &b);
	json_put_obj(&o, NULL);
	json_put_str(&o, "s", "a\"\\\n\x01\xff\xc3\xa4\x7f");
	json_put_str(&o, "n", NULL);
	json_put_int(&o, "i", INT64_MIN);
	json_put_real(&o, "r", 0.5);
	json_put_real(&o, "inf", INFINITY);
	json_put_bool(&o, "b", false);
	json_put_null(&o, "z");
	json_put_arr(&o, "a\n");
	json_put_int(&o, NULL, 1);
	json_put_obj(&o, NULL);
	json_end_obj(&o);
	json_put_raw(&o, NULL, "[2]", 3);
	json_end_arr(&o);
	json_end_obj(&o);
	assert_int_equal(buf_error(&b), 0);

	/* What it means counts, not how an escape is spelled. */
	OWN_JSON doc = { 0 };
	const struct json *a;

	assert_int_equal(json_parse(b.data, b.len, &doc, NULL), 0);
	assert_string_equal(json_str(doc.root, "s", ""), "a\"\\\n\x01\xef\xbf\xbd\xc3\xa4\x7f");
	assert_int_equal(json_get(doc.root, "n")->type, JSON_NULL);
	assert_true(json_int(doc.root, "i", 0) == INT64_MIN);
	assert_true(json_get(doc.root, "r")->real == 0.5);
	assert_int_equal(json_get(doc.root, "inf")->type, JSON_NULL);
	assert_false(json_bool(doc.root, "b", true));
	a = json_get(doc.root, "a\n");
	assert_non_null(a);
	assert_int_equal(a->count, 3);
	assert_int_equal(a->child->next->next->child->num, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted),	     cmocka_unit_test(refused), cmocka_unit_test(depth_has_an_end),
		cmocka_unit_test(members_are_found), cmocka_unit_test(written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
