/* SPDX-License-Identifier: Apache-2.0 */
/* base/loop: callbacks may remove anything, timers fire in time and once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "lib/leak.h"

struct pairs {
	struct loop *loop;
	struct loop_io *io[2];
	int calls;
};

/* Whoever comes first takes the other one out, memory and all. */
static void remove_both(void *arg, uint32_t events)
{
	struct pairs *p = arg;

	(void)events;
	p->calls++;
	for (int i = 0; i < 2; i++) {
		loop_del(p->loop, p->io[i]);
		free(p->io[i]);
	}
	loop_quit(p->loop);
}

static void an_object_freed_by_its_neighbour_is_not_called(void **state)
{
	struct pairs p = { 0 };
	int a[2], b[2];

	(void)state;
	assert_int_equal(loop_new(&p.loop), 0);
	assert_int_equal(pipe(a), 0);
	assert_int_equal(pipe(b), 0);
	for (int i = 0; i < 2; i++) {
		p.io[i] = calloc(1, sizeof(struct loop_io));
		assert_int_equal(loop_add(p.loop, p.io[i], i ? b[0] : a[0], EPOLLIN, remove_both, &p), 0);
	}
	assert_int_equal(fd_write_all(a[1], "x", 1), 0);
	assert_int_equal(fd_write_all(b[1], "x", 1), 0);
	assert_int_equal(loop_run(p.loop), 0);
	assert_int_equal(p.calls, 1);
	loop_free(p.loop);
	for (int i = 0; i < 2; i++) {
		(void)close(a[i]);
		(void)close(b[i]);
	}
}

struct clocked {
	struct loop *loop;
	struct loop_timer t[3];
	char order[8];
	uint64_t began, fired;
};

static void note(struct clocked *c, char ch)
{
	size_t n = strlen(c->order);

	if (n < sizeof(c->order) - 1)
		c->order[n] = ch;
}

static void first(void *arg)
{
	struct clocked *c = arg;

	note(c, 'a');
	/* The second one was due too: it is called off. The third is put off. */
	loop_timer_stop(c->loop, &c->t[1]);
}

static void second(void *arg)
{
	note(arg, 'b');
}

static void third(void *arg)
{
	struct clocked *c = arg;

	note(c, 'c');
	c->fired = clock_ms();
	loop_quit(c->loop);
}

static void timers_fire_once_and_can_be_called_off(void **state)
{
	struct clocked c = { .began = clock_ms() };

	(void)state;
	assert_int_equal(loop_new(&c.loop), 0);
	loop_timer_set(c.loop, &c.t[1], 20, second, &c);
	loop_timer_set(c.loop, &c.t[2], 30, third, &c);
	loop_timer_set(c.loop, &c.t[0], 1, first, &c);
	loop_timer_set(c.loop, &c.t[2], 40, third, &c);
	assert_int_equal(loop_run(c.loop), 0);
	assert_string_equal(c.order, "ac");
	assert_true(c.fired >= c.began + 40);
	loop_free(c.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_object_freed_by_its_neighbour_is_not_called, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(timers_fire_once_and_can_be_called_off, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
