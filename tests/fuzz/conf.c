/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is accepted, written again setting by setting, is accepted and gives the same values; a refusal names its line. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void put(const struct conf_key *key, const struct conf_value *value, const char *source, void *arg)
{
	(void)buf_printf(arg, "%s = %s\n", key->key, value->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static struct conf a, b;
	OWN_BUF text = BUF_INIT(1u << 20);
	struct err e = ERR_INIT;

	memset(&a, 0x5a, sizeof(a));
	if (conf_parse("f", (const char *)data, n, &a, &e) < 0) {
		if (e.text[0] != 'f' || e.code >= 0 || a.v[0].num != UINT64_C(0x5a5a5a5a5a5a5a5a))
			abort();
		return 0;
	}
	conf_each(&a, put, &text);
	if (buf_error(&text) || conf_parse("f", text.data, text.len, &b, &e) < 0)
		abort();
	for (unsigned i = 0; i < CONF_COUNT; i++)
		if (strcmp(a.v[i].text, b.v[i].text) != 0 || a.v[i].num != b.v[i].num || a.v[i].is_auto != b.v[i].is_auto)
			abort();
	return 0;
}
