/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const why_words[WHY_COUNT] = {
#define WHY(id, word) [WHY_##id] = word,
	WHY_TABLE(WHY)
#undef WHY
};

static enum why why_of_errno(int code)
{
	switch (-code) {
	case ENOSPC:
	case EDQUOT:
		return WHY_NO_SPACE;
	case EACCES:
	case EPERM:
	case EROFS:
		return WHY_DENIED;
	case ENOENT:
		return WHY_NOT_FOUND;
	case EEXIST:
		return WHY_EXISTS;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case EAGAIN:
		return WHY_LIMIT;
	case ETIMEDOUT:
		return WHY_TIMEOUT;
	case ENOSYS:
	case EOPNOTSUPP:
		return WHY_UNSUPPORTED;
	case EBADMSG:
	case EPROTO:
		return WHY_HOSTILE;
	default:
		return WHY_INTERNAL;
	}
}

/* A message is one line whatever went into it: names from a box must not draw on a terminal. */
static void one_line(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!e)
		return code;
	e->code = code;
	e->why = why_of_errno(code);
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->text))
		(void)snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", strerror(-code));
	one_line(e->text);
	return code;
}

int err_why(struct err *e, enum why why, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return code;
	e->code = code;
	e->why = why;
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	one_line(e->text);
	return code;
}

int err_while(struct err *e, int code, const char *fmt, ...)
{
	char old[ERR_TEXT_MAX];
	va_list ap;
	int n;

	if (!e)
		return code;
	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	n = vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->text))
		(void)snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", old);
	one_line(e->text);
	return code;
}

const char *why_word(enum why why)
{
	return (unsigned)why < WHY_COUNT ? why_words[why] : why_words[WHY_INTERNAL];
}

enum why why_parse(const char *word)
{
	for (unsigned i = 0; i < WHY_COUNT; i++)
		if (word && strcmp(word, why_words[i]) == 0)
			return (enum why)i;
	return WHY_INTERNAL;
}
