/* SPDX-License-Identifier: Apache-2.0 */
/* The box protocol: a stream of frames. What is accepted is written again byte for byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chan/box.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What could be read must be writable. */
static bool written(int r)
{
	if (r < 0)
		abort();
	return true;
}

/* The frame as it would be written; false when its body isn't accepted. */
static bool again(const struct box_frame *f, struct buf *to)
{
	union {
		struct box_exec exec;
		struct box_exit exit;
		struct box_path path;
		struct box_entry entry;
		struct box_idle idle;
		uint16_t size[2];
		uint64_t hole;
		uint32_t v;
	} x;
	struct err e = ERR_INIT;
	void *mem = NULL;

	switch (f->kind) {
	case BOX_EXEC:
		if (box_get_exec(f, &x.exec, &mem) < 0)
			return false;
		if (box_put_exec(to, &x.exec) < 0 || box_exec_fds(&x.exec) > 3)
			abort();
		free(mem);
		return true;
	case BOX_STOP:
	case BOX_DIAL:
	case BOX_SIGNAL:
	case BOX_STARTED:
		return box_get_u32(f, &x.v) == 0 && written(box_put_u32(to, f->kind, x.v));
	case BOX_GET:
	case BOX_PUT:
		return box_get_path(f, &x.path) == 0 && written(box_put_path(to, f->kind, &x.path));
	case BOX_RESIZE:
		return box_get_resize(f, &x.size[0], &x.size[1]) == 0 && written(box_put_resize(to, x.size[0], x.size[1]));
	case BOX_EXIT:
		return box_get_exit(f, &x.exit) == 0 && written(box_put_exit(to, &x.exit));
	case BOX_OK:
		return box_get_idle(f, &x.idle) == 0 && written(box_put_idle(to, &x.idle));
	case BOX_ENTRY:
		return box_get_entry(f, &x.entry) == 0 && written(box_put_entry(to, &x.entry));
	case BOX_HOLE:
		return box_get_hole(f, &x.hole) == 0 && written(box_put_hole(to, x.hole));
	case BOX_FAIL:
		/* The text is made fit for people, so it isn't the same again. */
		if (box_get_fail(f, &e) >= 0)
			abort();
		if (memchr(e.text, '\n', sizeof(e.text)) || memchr(e.text, '\033', sizeof(e.text)))
			abort();
		return false;
	default:
		return false;
	}
}

static void one(const struct box_frame *f, const uint8_t *frame, size_t n)
{
	OWN_BUF b = BUF_INIT(BOX_HEAD + BOX_BODY_MAX);

	if (again(f, &b)) {
		if (b.len != n || memcmp(b.data, frame, n) != 0)
			abort();
	} else if (b.len != 0) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct box_frame f;
	size_t need;
	ssize_t k;

	while ((k = box_peek(data, n, &f, &need)) > 0) {
		if ((size_t)k != need || (size_t)k > n || f.body + f.len != data + k)
			abort();
		one(&f, data, (size_t)k);
		data += k;
		n -= (size_t)k;
	}
	if (k == 0 && need <= n)
		abort();
	return 0;
}
