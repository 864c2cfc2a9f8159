/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and names: what is accepted is in its range and, written in the plainest way, accepted with the same value;
 * what is refused leaves the result untouched. Escaped text is harmless and escapes to the same once its backslashes are undone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define UNTOUCHED UINT64_C(0x5a5a5a5a5a5a5a5a)

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void numbers(const char *s)
{
	uint64_t v = UNTOUCHED, w;
	uint32_t milli = 0x5a5a5a5a, again;
	char plain[40];

	if (parse_u64(s, 1000000, &v) == 0) {
		(void)snprintf(plain, sizeof(plain), "%llu", (unsigned long long)v);
		must(v <= 1000000 && strcmp(plain, s) == 0);
	} else {
		must(v == UNTOUCHED);
	}
	v = UNTOUCHED;
	if (parse_size(s, &v) == 0) {
		(void)snprintf(plain, sizeof(plain), "%llu", (unsigned long long)v);
		must(v <= INT64_MAX && parse_size(plain, &w) == 0 && w == v);
	} else {
		must(v == UNTOUCHED);
	}
	v = UNTOUCHED;
	if (parse_duration(s, &v) == 0) {
		(void)snprintf(plain, sizeof(plain), "%llums", (unsigned long long)v);
		must(v <= UINT64_C(1000000000000000) && parse_duration(plain, &w) == 0 && w == v);
	} else {
		must(v == UNTOUCHED);
	}
	if (parse_cpus(s, &milli) == 0) {
		(void)snprintf(plain, sizeof(plain), "%u.%03u", milli / 1000, milli % 1000);
		must(milli <= 1000000 && parse_cpus(plain, &again) == 0 && again == milli);
	} else {
		must(milli == 0x5a5a5a5a);
	}
}

static void names(const char *s)
{
	static const char *const words[] = { "new", "run", "exec", "template" };

	if (name_ok(s))
		must(strlen(s) <= NAME_MAX_LEN && !strchr(s, '/') && !strchr(s, '.') && s[0] != '-');
	if (id_ok(s))
		must(strlen(s) == ID_LEN && name_ok(s));
	(void)nearest_word(s, words, 4);
}

static void escaped(const uint8_t *data, size_t n)
{
	OWN_BUF b = BUF_INIT(64u << 20);

	text_escape(&b, (const char *)data, n);
	must(!buf_error(&b));
	for (size_t i = 0; i < b.len;) {
		uint32_t cp;
		size_t k = utf8_one(b.data + i, b.len - i, &cp);

		must(k > 0 && cp >= 0x20 && !(cp >= 0x7f && cp < 0xa0) && !(cp >= 0x202a && cp <= 0x202e));
		i += k;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *s = malloc(n + 1);

	must(s != NULL);
	if (n > 0)
		memcpy(s, data, n);
	s[n] = '\0';
	numbers(s);
	names(s);
	escaped(data, n);
	free(s);
	return 0;
}
