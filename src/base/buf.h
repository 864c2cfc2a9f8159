/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

/*
 * A growing byte buffer with a stated maximum. Running over the maximum, or out of memory, makes the
 * buffer `failed` (-E2BIG or -ENOMEM); later writes are ignored, so that a writer checks once at the end.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdarg.h>

struct buf {
	char *data;	/* always terminated when not NULL */
	size_t len;
	size_t room;	/* allocated, the terminator not counted */
	size_t max;
	int failed;	/* 0 or a negative errno, sticky */
};

#define OWN_BUF __attribute__((cleanup(buf_done))) struct buf
#define BUF_INIT(maximum) { .max = (maximum) }

void buf_done(struct buf *b);
void buf_reset(struct buf *b);	/* empty again, memory and maximum kept, `failed` cleared */
int buf_reserve(struct buf *b, size_t more);
int buf_put(struct buf *b, const void *data, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_vprintf(struct buf *b, const char *fmt, va_list ap);
void buf_drop(struct buf *b, size_t n);	/* take n bytes from the front */
int buf_error(const struct buf *b);	/* b->failed */

#define OWN_MEM __attribute__((cleanup(mem_own_done)))
void mem_own_done(void *pp);	/* for any pointer from malloc */

#endif
