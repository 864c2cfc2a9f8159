/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

/*
 * An event loop over epoll(7): descriptors, timers and things to do later, in one thread.
 * Objects are embedded in their owners, and may be removed, also freed, from inside any callback.
 */

#include <stdbool.h>
#include <stdint.h>

struct loop;

struct loop_io {
	int fd;		/* borrowed */
	uint32_t events;
	void (*ready)(void *arg, uint32_t events);
	void *arg;
	bool on;
};

struct loop_timer {
	uint64_t at_ms;	/* CLOCK_BOOTTIME: goes on while the machine sleeps, never jumps with the wall clock */
	void (*fired)(void *arg);
	void *arg;
	struct loop_timer *next, **link;	/* link != NULL: armed */
};

int loop_new(struct loop **ret);
void loop_free(struct loop *l);

int loop_add(struct loop *l, struct loop_io *io, int fd, uint32_t events, void (*ready)(void *, uint32_t), void *arg);
int loop_change(struct loop *l, struct loop_io *io, uint32_t events);
void loop_del(struct loop *l, struct loop_io *io);

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t in_ms, void (*fired)(void *), void *arg);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

uint64_t clock_ms(void);	/* CLOCK_BOOTTIME */

/* Runs until loop_quit(), and can be run again after that. Returns 0 or a negative errno of epoll_wait(2). */
int loop_run(struct loop *l);
void loop_quit(struct loop *l);

#endif
