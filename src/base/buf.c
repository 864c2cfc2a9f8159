/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_done(struct buf *b)
{
	size_t max = b->max;

	free(b->data);
	memset(b, 0, sizeof(*b));
	b->max = max;
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = 0;
	if (b->data)
		b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t want, room;
	char *p;

	if (b->failed)
		return b->failed;
	if (__builtin_add_overflow(b->len, more, &want) || want > b->max)
		return b->failed = -E2BIG;
	if (want <= b->room && b->data)
		return 0;
	room = b->room ? b->room : 120;
	while (room < want)
		room = room * 2;
	if (room > b->max)
		room = b->max;
	p = realloc(b->data, room + 1);
	if (!p)
		return b->failed = -ENOMEM;
	b->data = p;
	b->room = room;
	b->data[b->len] = '\0';
	return 0;
}

int buf_put(struct buf *b, const void *data, size_t n)
{
	int r = buf_reserve(b, n);

	if (r < 0)
		return r;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_put(b, s, strlen(s));
}

int buf_putc(struct buf *b, char c)
{
	return buf_put(b, &c, 1);
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	int n, r;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		return b->failed = -EINVAL;
	r = buf_reserve(b, (size_t)n);
	if (r < 0)
		return r;
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = buf_vprintf(b, fmt, ap);
	va_end(ap);
	return r;
}

void buf_drop(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
	} else {
		memmove(b->data, b->data + n, b->len - n);
		b->len -= n;
	}
	if (b->data)
		b->data[b->len] = '\0';
}

int buf_error(const struct buf *b)
{
	return b->failed;
}

void mem_own_done(void *pp)
{
	void *p;

	memcpy(&p, pp, sizeof(p));
	free(p);
}
