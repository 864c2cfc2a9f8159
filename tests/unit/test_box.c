/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of the box protocol. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "chan/box.h"
#include "lib/leak.h"

static struct box_frame frame_of(const struct buf *b)
{
	struct box_frame f;

	assert_int_equal(box_peek(b->data, b->len, &f, NULL), b->len);
	return f;
}

static struct box_exec good_exec(void)
{
	static char *const argv[] = { (char *)"sh", (char *)"", (char *)"-c", NULL };
	static char *const env[] = { (char *)"A=1", (char *)"B=", NULL };

	return (struct box_exec){
		.argv = argv, .env = env, .user = "agent", .cwd = "/x", .in = BOX_STDIO_PIPE, .out = BOX_STDIO_NULL,
		.err = BOX_STDIO_SAME, .umask = 0777, .timeout_ms = BOX_TIMEOUT_MAX, .detach = true, .announce = true,
	};
}

static void a_command_comes_out_as_it_went_in(void **state)
{
	OWN_BUF b = BUF_INIT(1 << 20);
	struct box_exec x = good_exec(), y;
	struct box_frame f;
	void *mem;

	assert_int_equal(box_put_exec(&b, &x), 0);
	f = frame_of(&b);
	assert_int_equal(f.kind, BOX_EXEC);
	assert_int_equal(box_get_exec(&f, &y, &mem), 0);
	assert_string_equal(y.argv[0], "sh");
	assert_string_equal(y.argv[1], "");
	assert_string_equal(y.argv[2], "-c");
	assert_null(y.argv[3]);
	assert_string_equal(y.env[0], "A=1");
	assert_string_equal(y.env[1], "B=");
	assert_null(y.env[2]);
	assert_string_equal(y.user, "agent");
	assert_string_equal(y.cwd, "/x");
	assert_true(y.detach && y.announce);
	assert_int_equal(y.umask, 0777);
	assert_true(y.timeout_ms == BOX_TIMEOUT_MAX);
	assert_int_equal(box_exec_fds(&y), 1);
	free(mem);

	buf_reset(&b);
	x = (struct box_exec){ .argv = x.argv, .in = BOX_STDIO_TTY, .out = BOX_STDIO_TTY, .err = BOX_STDIO_TTY, .rows = 65535, .cols = 1 };
	assert_int_equal(box_put_exec(&b, &x), 0);
	f = frame_of(&b);
	assert_int_equal(box_get_exec(&f, &y, &mem), 0);
	assert_null(y.user);
	assert_null(y.cwd);
	assert_null(y.env[0]);
	assert_int_equal(y.rows, 65535);
	assert_false(y.detach || y.announce);
	free(mem);
}

static void a_command_that_cannot_be_is_not_written(void **state)
{
	OWN_BUF b = BUF_INIT(BOX_BODY_MAX + BOX_HEAD);
	static char *const none[] = { NULL };
	static char *const noeq[] = { (char *)"A", NULL }, *const noname[] = { (char *)"=A", NULL };
	char long_user[BOX_USER_MAX + 2], *long_env[BOX_ENV_MAX + 2];
	struct box_exec x;

#define REFUSED(change) \
	do { \
		x = good_exec(); \
		change; \
		assert_int_equal(box_put_exec(&b, &x), -EINVAL); \
		assert_int_equal(b.len, 0); \
	} while (0)
	REFUSED(x.argv = none);
	REFUSED(x.argv = NULL);
	REFUSED(x.env = noeq);
	REFUSED(x.env = noname);
	REFUSED(x.user = "");
	memset(long_user, 'a', sizeof(long_user) - 1);
	long_user[sizeof(long_user) - 1] = '\0';
	REFUSED(x.user = long_user);
	REFUSED(x.cwd = "");
	REFUSED(x.cwd = "relative");
	REFUSED(x.umask = 01000);
	REFUSED(x.timeout_ms = BOX_TIMEOUT_MAX + 1);
	REFUSED(x.in = BOX_STDIO_SAME);
	REFUSED(x.out = BOX_STDIO_SAME);
	REFUSED(x.in = BOX_STDIO_TTY);
	REFUSED(x.err = BOX_STDIO_TTY);
	REFUSED(x.rows = 1);
	REFUSED(x.in = (enum box_stdio)7);
	for (unsigned i = 0; i <= BOX_ENV_MAX; i++)
		long_env[i] = (char *)"A=1";
	long_env[BOX_ENV_MAX + 1] = NULL;
	REFUSED(x.env = long_env);
	long_env[BOX_ENV_MAX] = NULL;
	x = good_exec();
	x.env = long_env;
	assert_int_equal(box_put_exec(&b, &x), 0);
}

/* Each byte of a good frame in turn: what is still accepted means itself, and no length leads out of the body. */
static void every_changed_byte_is_another_value_or_refused(void **state)
{
	OWN_BUF b = BUF_INIT(1 << 16);
	struct box_exec x = good_exec(), y;
	unsigned accepted = 0;

	assert_int_equal(box_put_exec(&b, &x), 0);
	for (size_t at = 0; at < b.len; at++) {
		char old = b.data[at];

		for (unsigned v = 0; v < 256; v++) {
			OWN_BUF back = BUF_INIT(1 << 16);
			struct box_frame f;
			void *mem;
			ssize_t k;

			b.data[at] = (char)v;
			k = box_peek(b.data, b.len, &f, NULL);
			if (k <= 0 || f.kind != BOX_EXEC || box_get_exec(&f, &y, &mem) < 0)
				continue;
			accepted++;
			assert_int_equal(box_put_exec(&back, &y), 0);
			assert_int_equal(back.len, (size_t)k);
			assert_memory_equal(back.data, b.data, (size_t)k);
			free(mem);
		}
		b.data[at] = old;
	}
	assert_true(accepted > b.len);	/* itself each time, and more */
	/* Each length short of the whole: refused as a body, waited for as a stream. */
	for (size_t n = 0; n < b.len; n++) {
		struct box_frame f = { .kind = BOX_EXEC, .body = (const uint8_t *)b.data + BOX_HEAD, .len = n > BOX_HEAD ? n - BOX_HEAD : 0 };
		size_t need;
		void *mem;

		assert_int_equal(box_get_exec(&f, &y, &mem), -EBADMSG);
		assert_int_equal(box_peek(b.data, n, &f, &need), 0);
		assert_int_equal(need, n < BOX_HEAD ? BOX_HEAD : b.len);
	}
}

static void a_head_is_judged_before_its_body_comes(void **state)
{
	static const struct {
		uint32_t kind, len;
		ssize_t is;
	} t[] = {
		{ 0, 0, -EBADMSG }, { 7, 0, -EBADMSG }, { 31, 0, -EBADMSG }, { 35, 0, -EBADMSG }, { 63, 0, -EBADMSG },
		{ BOX_KIND_END, 0, -EBADMSG }, { 0x80000001u, 0, -EBADMSG }, { 0x100, 0, -EBADMSG },
		{ BOX_EXEC, BOX_BODY_MAX, 0 }, { BOX_EXEC, BOX_BODY_MAX + 1, -EBADMSG }, { BOX_EXEC, 0xffffffffu, -EBADMSG },
		{ BOX_PING, 0, 8 }, { BOX_PING, 1, -EBADMSG }, { BOX_HANGUP, 1, -EBADMSG }, { BOX_SIGNAL, 4, 0 },
		{ BOX_SIGNAL, 5, -EBADMSG }, { BOX_DATA, BOX_DATA_MAX, 0 }, { BOX_DATA, BOX_DATA_MAX + 1, -EBADMSG },
		{ BOX_STOP, 5, -EBADMSG }, { BOX_DIAL, 4, 0 }, { BOX_DIAL, 5, -EBADMSG }, { BOX_OK, 13, -EBADMSG }, { BOX_EXIT, 1000, -EBADMSG },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint8_t head[8];
		struct box_frame f;

		for (int k = 0; k < 4; k++) {
			head[k] = (uint8_t)(t[i].kind >> (8 * k));
			head[4 + k] = (uint8_t)(t[i].len >> (8 * k));
		}
		assert_int_equal(box_peek(head, 8, &f, NULL), t[i].is);
	}
}

static void an_end_has_one_meaning(void **state)
{
	static const struct {
		struct box_exit x;
		int r;
	} t[] = {
		{ { .kind = BOX_EXITED, .status = 255 }, 0 }, { { .kind = BOX_EXITED, .status = 256 }, -EINVAL },
		{ { .kind = BOX_EXITED, .text = "x" }, -EINVAL }, { { .kind = BOX_EXITED, .core = true }, -EINVAL },
		{ { .kind = BOX_SIGNALED, .status = 9, .core = true }, 0 }, { { .kind = BOX_SIGNALED, .status = 0 }, -EINVAL },
		{ { .kind = BOX_SIGNALED, .status = 65 }, -EINVAL }, { { .kind = BOX_TIMED_OUT, .text = BOX_TIMED_LEFT }, 0 },
		{ { .kind = BOX_TIMED_OUT, .status = 1 }, -EINVAL }, { { .kind = BOX_NOT_STARTED, .status = 2, .text = "why" }, 0 },
		{ { .kind = BOX_NOT_STARTED, .status = 0 }, -EINVAL }, { { .kind = BOX_NOT_STARTED, .status = 4096 }, -EINVAL },
		{ { .kind = (enum box_exit_kind)4 }, -EINVAL },
		{ { .kind = BOX_EXITED, .wall_us = UINT64_MAX, .cpu_us = 1, .max_rss_kib = 1ull << 40 }, 0 },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF b = BUF_INIT(4096);
		struct box_exit y;
		struct box_frame f;

		assert_int_equal(box_put_exit(&b, &t[i].x), t[i].r);
		if (t[i].r < 0) {
			assert_int_equal(b.len, 0);
			continue;
		}
		f = frame_of(&b);
		assert_int_equal(box_get_exit(&f, &y), 0);
		assert_int_equal(y.kind, t[i].x.kind);
		assert_int_equal(y.status, t[i].x.status);
		assert_true(y.wall_us == t[i].x.wall_us && y.max_rss_kib == t[i].x.max_rss_kib && y.core == t[i].x.core);
		assert_string_equal(y.text, t[i].x.text);
		b.data[BOX_HEAD + 2] = 1;	/* what is not used is zero */
		assert_int_equal(box_get_exit(&f, &y), -EBADMSG);
	}
}

static void names_in_a_copy_lead_nowhere(void **state)
{
	static const struct {
		struct box_entry x;
		int r;
	} t[] = {
		{ { .type = BOX_ENTRY_FILE, .name = "a", .target = "" }, 0 },
		{ { .type = BOX_ENTRY_FILE, .name = "...", .target = "" }, 0 },
		{ { .type = BOX_ENTRY_FILE, .name = "a\nb\xff", .target = "" }, 0 },
		{ { .type = BOX_ENTRY_FILE, .name = "", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_FILE, .name = ".", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_DIR, .name = "..", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_DIR, .name = "a/b", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_DIR, .name = "/", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_LINK, .name = "a", .target = "../../etc" }, 0 },
		{ { .type = BOX_ENTRY_LINK, .name = "a", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_FILE, .name = "a", .target = "x" }, -EINVAL },
		{ { .type = BOX_ENTRY_UP, .name = "", .target = "" }, 0 },
		{ { .type = BOX_ENTRY_UP, .name = "a", .target = "" }, -EINVAL },
		{ { .type = BOX_ENTRY_FILE, .name = "a", .target = "", .mode = 010000 }, -EINVAL },
		{ { .type = BOX_ENTRY_FILE, .name = "a", .target = "", .mtime_ns = 1000000000 }, -EINVAL },
		{ { .type = BOX_ENTRY_FILE, .name = "a", .target = "", .mtime_s = INT64_MIN, .mtime_ns = 999999999, .mode = 07777 }, 0 },
		{ { .type = BOX_ENTRY_TYPES, .name = "a", .target = "" }, -EINVAL },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF b = BUF_INIT(1 << 16);
		struct box_entry y;
		struct box_frame f;

		assert_int_equal(box_put_entry(&b, &t[i].x), t[i].r);
		if (t[i].r < 0)
			continue;
		f = frame_of(&b);
		assert_int_equal(box_get_entry(&f, &y), 0);
		assert_string_equal(y.name, t[i].x.name);
		assert_string_equal(y.target, t[i].x.target);
		assert_true(y.mtime_s == t[i].x.mtime_s && y.mode == t[i].x.mode);
	}
}

static void what_a_box_says_cannot_steer_a_terminal(void **state)
{
	OWN_BUF b = BUF_INIT(4096);
	struct err e = ERR_INIT;
	struct box_frame f;

	assert_int_equal(box_put_fail(&b, -ENOENT, "a\033[31mb\nc"), 0);
	f = frame_of(&b);
	assert_int_equal(box_get_fail(&f, &e), -ENOENT);
	assert_string_equal(e.text, "a?[31mb?c");
	assert_int_equal(e.why, WHY_NOT_FOUND);
	f.len = 3;
	assert_int_equal(box_get_fail(&f, &e), -EBADMSG);
	memset(b.data + BOX_HEAD, 0, 4);	/* errno 0 */
	f.len = 4;
	assert_int_equal(box_get_fail(&f, &e), -EBADMSG);
}

static void the_rest_has_bounds_too(void **state)
{
	OWN_BUF b = BUF_INIT(1 << 16);
	struct box_path p = { .path = "/a", .user = "agent", .flags = BOX_PATH_FLAGS, .max_bytes = UINT64_MAX }, p2;
	struct box_idle i = { 3, UINT64_MAX }, i2;
	struct box_frame f;
	uint64_t n;

	assert_int_equal(box_put_path(&b, BOX_GET, &p), 0);
	f = frame_of(&b);
	assert_int_equal(box_get_path(&f, &p2), 0);
	assert_string_equal(p2.path, "/a");
	assert_string_equal(p2.user, "agent");
	assert_true(p2.flags == BOX_PATH_FLAGS && p2.max_bytes == UINT64_MAX);
	buf_reset(&b);
	p.path = "a";
	assert_int_equal(box_put_path(&b, BOX_PUT, &p), -EINVAL);

	assert_int_equal(box_put_idle(&b, &i), 0);
	f = frame_of(&b);
	assert_int_equal(box_get_idle(&f, &i2), 0);
	assert_true(i2.active == 3 && i2.idle_ms == UINT64_MAX);
	buf_reset(&b);
	assert_int_equal(box_put_hole(&b, 0), -EINVAL);
	assert_int_equal(box_put_hole(&b, (uint64_t)INT64_MAX + 1), -EINVAL);
	assert_int_equal(box_put_hole(&b, INT64_MAX), 0);
	f = frame_of(&b);
	assert_int_equal(box_get_hole(&f, &n), 0);
	assert_true(n == INT64_MAX);
	buf_reset(&b);
	for (uint32_t v = 0; v < 70; v++) {
		uint32_t got;

		buf_reset(&b);
		assert_int_equal(box_put_u32(&b, BOX_SIGNAL, v), 0);
		f = frame_of(&b);
		assert_int_equal(box_get_u32(&f, &got), v >= 1 && v <= 64 ? 0 : -EBADMSG);
	}
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)
	const struct CMUnitTest tests[] = {
		CASE(a_command_comes_out_as_it_went_in),
		CASE(a_command_that_cannot_be_is_not_written),
		CASE(every_changed_byte_is_another_value_or_refused),
		CASE(a_head_is_judged_before_its_body_comes),
		CASE(an_end_has_one_meaning),
		CASE(names_in_a_copy_lead_nowhere),
		CASE(what_a_box_says_cannot_steer_a_terminal),
		CASE(the_rest_has_bounds_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
