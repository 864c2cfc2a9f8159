/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out: each case is done again and again, with its first, second, third … allocation failing, until it
 * succeeds. Each time the failure is -ENOMEM with a cause in words, and everything that was allocated is given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "box/spec.h"
#include "chan/box.h"
#include "chan/msg.h"
#include "lib/leak.h"

/* The linker leads every call of these here (ld(1), --wrap). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t a, size_t b);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t a, size_t b);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool counting;
static unsigned calls, fail_at;
static long live;

static bool refuse(void)
{
	if (!counting || ++calls != fail_at)
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t n)
{
	void *p = refuse() ? NULL : __real_malloc(n);

	live += counting && p;
	return p;
}

void *__wrap_calloc(size_t a, size_t b)
{
	void *p = refuse() ? NULL : __real_calloc(a, b);

	live += counting && p;
	return p;
}

void *__wrap_realloc(void *p, size_t n)
{
	void *q = refuse() ? NULL : __real_realloc(p, n);

	live += counting && !p && q;
	return q;
}

char *__wrap_strdup(const char *s)
{
	char *p = refuse() ? NULL : __real_strdup(s);

	live += counting && p;
	return p;
}

void __wrap_free(void *p)
{
	live -= counting && p;
	__real_free(p);
}

/* Returns how many allocations it takes. */
static unsigned fail_each(const char *what, int (*run)(struct err *e))
{
	for (unsigned n = 1; n < 10000; n++) {
		struct err e = ERR_INIT;
		int r;

		calls = 0;
		live = 0;
		fail_at = n;
		counting = true;
		r = run(&e);
		counting = false;
		if (live != 0)
			fail_msg("%s, allocation %u of it failing: %ld are not given back", what, n, live);
		if (calls < n) {
			assert_int_equal(r, 0);
			return n - 1;
		}
		if (r != -ENOMEM)
			fail_msg("%s, allocation %u of it failing: %d instead of -ENOMEM (%s)", what, n, r, e.text);
		if (!e.text[0])
			fail_msg("%s, allocation %u of it failing: no word of it", what, n);
	}
	fail_msg("%s: no end of it", what);
	return 0;
}

static const char spec_text[] =
	"{\"template\":\"host\",\"user\":\"agent\",\"workdir\":\"/home/agent\",\"env\":[\"A=b\",\"C=d\",\"E=f\"],"
	"\"mounts\":[{\"at\":\"/a\",\"source\":\"/src/a\",\"ro\":true},{\"at\":\"/b\",\"source\":\"/src/b\",\"uid\":5}],"
	"\"limits\":{\"memory\":1073741824,\"pids\":100},\"ttl_ms\":1000,\"tz\":\"Europe/Berlin\"}";

static int parse_json(struct err *e)
{
	OWN_JSON doc = { 0 };

	return json_parse(spec_text, sizeof(spec_text) - 1, &doc, e);
}

static int parse_spec(struct err *e)
{
	OWN_JSON doc = { 0 };
	struct spec s = { 0 };
	int r = json_parse(spec_text, sizeof(spec_text) - 1, &doc, e);

	if (r == 0)
		r = spec_parse(doc.root, &s, e);
	spec_done(&s);
	return r;
}

static int copy_spec(struct err *e)
{
	OWN_JSON doc = { 0 };
	struct spec s = { 0 }, t = { 0 };
	int r = json_parse(spec_text, sizeof(spec_text) - 1, &doc, e);

	if (r == 0)
		r = spec_parse(doc.root, &s, e);
	if (r == 0)
		r = spec_copy(&s, &t, e);
	spec_done(&s);
	spec_done(&t);
	return r;
}

/* A frame too long for the stack, both ways. */
static int pass_message(struct err *e)
{
	static char text[6000];
	OWN_JSON doc = { 0 };
	int pair[2], r;

	(void)memset(text, 'x', sizeof(text));
	(void)memcpy(text, "{\"a\":\"", 6);
	(void)memcpy(text + sizeof(text) - 2, "\"}", 2);
	r = fd_socketpair(SOCK_STREAM, pair);
	if (r < 0)
		return err_set(e, r, "socketpair");
	r = msg_send(pair[0], text, sizeof(text), NULL, 0);
	if (r < 0)
		(void)err_set(e, r, "cannot send");
	fd_close(&pair[0]);
	if (r == 0)
		r = msg_recv(pair[1], &doc, NULL, 0, NULL, e);
	fd_close(&pair[1]);
	return r == 1 ? 0 : r;
}

static int take_message(struct err *e)
{
	static const char frame[] = "\x14\0\0\0{\"v\":1,\"op\":\"hello\"}";
	OWN_JSON doc = { 0 };
	struct msg_in in;
	int pair[2], fds[FD_PASS_MAX], r;
	size_t nfds;

	r = fd_socketpair(SOCK_STREAM, pair);
	if (r < 0)
		return err_set(e, r, "socketpair");
	msg_in_init(&in, 4096);
	r = fd_write_all(pair[0], frame, sizeof(frame) - 1);
	if (r == 0)
		r = msg_in_read(&in, pair[1]);
	if (r == 0)
		r = msg_in_take(&in, &doc, fds, FD_PASS_MAX, &nfds);
	msg_in_done(&in);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	return r == 1 ? 0 : err_set(e, r, "cannot take the message");
}

/* A command of the box protocol, written and read again. */
static int pass_exec(struct err *e)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"true", NULL }, *env[] = { (char *)"A=b", NULL };
	struct box_exec x = { .argv = argv, .env = env, .cwd = "/", .umask = 022 }, back;
	OWN_BUF text = BUF_INIT(65536);
	OWN_MEM void *mem = NULL;
	struct box_frame f;
	int r = box_put_exec(&text, &x);

	if (r == 0 && box_peek(text.data, text.len, &f, NULL) <= 0)
		r = -EBADMSG;
	if (r == 0)
		r = box_get_exec(&f, &back, &mem);
	return r < 0 ? err_set(e, r, "cannot pass the command") : 0;
}

static int write_json(struct err *e)
{
	OWN_BUF text = BUF_INIT(1u << 20);
	struct json_out o;

	json_out_init(&o, &text);
	json_put_arr(&o, NULL);
	for (int i = 0; i < 1000; i++)
		json_put_str(&o, NULL, "some text");
	json_end_arr(&o);
	return buf_error(&text) ? err_set(e, buf_error(&text), "cannot write") : 0;
}

#define CASE(name, run, least)                              \
	static void name(void **state)                      \
	{                                                   \
		(void)state;                                \
		assert_true(fail_each(#run, run) >= (least)); \
	}
CASE(json_is_read, parse_json, 1)
CASE(json_is_written, write_json, 2)
CASE(a_description_is_read, parse_spec, 8)
CASE(a_description_is_copied, copy_spec, 16)
CASE(a_message_is_passed, pass_message, 3)
CASE(a_message_is_taken, take_message, 2)
CASE(a_command_is_passed, pass_exec, 2)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(json_is_read, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(json_is_written, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_description_is_read, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_description_is_copied, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_message_is_passed, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_message_is_taken, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(a_command_is_passed, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
