/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

/* UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The length of the character at s (1–4), or 0 when the n bytes don't start with a valid one. ret_cp may be NULL. */
size_t utf8_one(const char *s, size_t n, uint32_t *ret_cp);
/* Write cp to `to` (room for 4), return the bytes. */
size_t utf8_put(char *to, uint32_t cp);

/*
 * Append text of unknown origin (file names, output of a box) so that it can't steer a terminal:
 * control characters (C0, DEL, C1), bidirectional overrides and invalid bytes are written as \xNN or \u{…},
 * a backslash as two.
 */
void text_escape(struct buf *to, const char *s, size_t n);

#endif
