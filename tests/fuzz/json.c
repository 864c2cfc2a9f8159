/* SPDX-License-Identifier: Apache-2.0 */
/* What is accepted, written again, is accepted and means the same. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool same(const struct json *a, const struct json *b)
{
	const struct json *x, *y;

	if (a->type != b->type || a->num != b->num || a->count != b->count)
		return false;
	if ((a->type == JSON_REAL && a->real != b->real) || (a->type == JSON_STRING && strcmp(a->str, b->str) != 0))
		return false;
	for (x = a->child, y = b->child; x && y; x = x->next, y = y->next)
		if ((x->key && strcmp(x->key, y->key) != 0) || !same(x, y))
			return false;
	return !x && !y;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	OWN_JSON first = { 0 }, second = { 0 };
	OWN_BUF text = BUF_INIT(64u << 20);
	struct err e = ERR_INIT;
	struct json_out o;

	if (json_parse((const char *)data, n, &first, &e) < 0) {
		/* A refusal says why and leaves nothing behind. */
		if (!e.text[0] || first.root || first.mem)
			abort();
		return 0;
	}
	json_out_init(&o, &text);
	json_put_value(&o, NULL, first.root);
	if (buf_error(&text) || json_parse(text.data, text.len, &second, &e) < 0 || !same(first.root, second.root))
		abort();
	return 0;
}
