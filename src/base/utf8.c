/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

size_t utf8_one(const char *s, size_t n, uint32_t *ret_cp)
{
	const unsigned char *u = (const unsigned char *)s;
	uint32_t cp;
	size_t k;

	if (n == 0)
		return 0;
	if (u[0] < 0x80) {
		cp = u[0];
		k = 1;
	} else if (u[0] >= 0xC2 && u[0] <= 0xDF) {
		cp = u[0] & 0x1Fu;
		k = 2;
	} else if (u[0] >= 0xE0 && u[0] <= 0xEF) {
		cp = u[0] & 0x0Fu;
		k = 3;
	} else if (u[0] >= 0xF0 && u[0] <= 0xF4) {
		cp = u[0] & 0x07u;
		k = 4;
	} else {
		return 0;
	}
	if (n < k)
		return 0;
	for (size_t i = 1; i < k; i++) {
		if ((u[i] & 0xC0u) != 0x80)
			return 0;
		cp = cp << 6 | (u[i] & 0x3Fu);
	}
	if ((k == 3 && (cp < 0x800 || (cp >= 0xD800 && cp <= 0xDFFF))) ||
	    (k == 4 && (cp < 0x10000 || cp > 0x10FFFF)))
		return 0;
	if (ret_cp)
		*ret_cp = cp;
	return k;
}

size_t utf8_put(char *to, uint32_t cp)
{
	if (cp < 0x80) {
		to[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		to[0] = (char)(0xC0 | cp >> 6);
		to[1] = (char)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		to[0] = (char)(0xE0 | cp >> 12);
		to[1] = (char)(0x80 | (cp >> 6 & 0x3F));
		to[2] = (char)(0x80 | (cp & 0x3F));
		return 3;
	}
	to[0] = (char)(0xF0 | cp >> 18);
	to[1] = (char)(0x80 | (cp >> 12 & 0x3F));
	to[2] = (char)(0x80 | (cp >> 6 & 0x3F));
	to[3] = (char)(0x80 | (cp & 0x3F));
	return 4;
}

/* Characters that reorder or hide the text around them (Unicode bidirectional controls, line separators). */
static int steers(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xA0) || cp == 0x061C || cp == 0x200E || cp == 0x200F ||
	       (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xFEFF;
}

void text_escape(struct buf *to, const char *s, size_t n)
{
	while (n > 0) {
		uint32_t cp = 0;
		size_t k = utf8_one(s, n, &cp);

		if (k == 0) {
			(void)buf_printf(to, "\\x%02x", (unsigned char)*s);
			k = 1;
		} else if (cp == '\\') {
			(void)buf_puts(to, "\\\\");
		} else if (cp == '\n') {
			(void)buf_puts(to, "\\n");
		} else if (cp == '\t') {
			(void)buf_puts(to, "\\t");
		} else if (steers(cp) && cp < 0x100) {
			(void)buf_printf(to, "\\x%02x", cp);
		} else if (steers(cp)) {
			(void)buf_printf(to, "\\u{%x}", cp);
		} else {
			(void)buf_put(to, s, k);
		}
		s += k;
		n -= k;
	}
}
