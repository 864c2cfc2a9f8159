/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/*
 * Errors. A function returns 0 (or something non-negative) or a negative errno.
 * What a person should read goes into a struct err that the caller keeps on its
 * stack: it has a fixed size, so it can be filled when memory is gone.
 *
 * `why` is for code: it becomes the exit status, the "why" of --json and the HTTP status.
 * `text` is for people: what failed and on what, then the cause, then the next move.
 */

#include <stdarg.h>
#include <stddef.h>

#define ERR_TEXT_MAX 1024

/* WHY(id, word): the word is part of the stable --json output. */
#define WHY_TABLE(WHY)                        \
	WHY(INTERNAL, "internal")             \
	WHY(BAD_REQUEST, "bad-request")       \
	WHY_TABLE_NOUNS(WHY)                  \
	WHY(DENIED, "denied")                 \
	WHY(WRONG_STATE, "wrong-state")       \
	WHY(BUSY, "busy")                     \
	WHY(UNSUPPORTED, "unsupported")       \
	WHY(NO_SPACE, "no-space")             \
	WHY(LIMIT, "limit")                   \
	WHY(TIMEOUT, "timed-out")             \
	WHY(CANCELLED, "cancelled")           \
	WHY(HOSTILE, "hostile-answer")        \
	WHY(UNREACHABLE, "daemon-unreachable")
#define WHY_TABLE_NOUNS(WHY)                  \
	WHY(NO_SUCH_BOX, "no-such-box")       \
	WHY(NO_SUCH_TEMPLATE, "no-such-template") \
	WHY(NOT_FOUND, "not-found")           \
	WHY(EXISTS, "exists")

enum why {
#define WHY(id, word) WHY_##id,
	WHY_TABLE(WHY)
#undef WHY
	WHY_COUNT
};

struct err {
	int code;	/* negative errno, 0 when nothing happened */
	enum why why;
	char text[ERR_TEXT_MAX]; /* one line, no final newline, always terminated */
};

#define ERR_INIT { 0 }

/*
 * Fill `e` and return `code`, so that a failure is one statement. `e` may be NULL.
 * err_set() appends ": " and the meaning of the errno; err_why() is for causes that the
 * text names itself, and appends nothing. err_set() derives `why` from the errno.
 */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int err_why(struct err *e, enum why why, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Put a larger purpose in front of the text that is there: "while restoring 'x': …". Returns `code`. */
int err_while(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The stable word of a cause, and back. why_parse() gives WHY_INTERNAL for a word it does not know. */
const char *why_word(enum why why);
enum why why_parse(const char *word);

#endif
