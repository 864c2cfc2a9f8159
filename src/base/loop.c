/* SPDX-License-Identifier: Apache-2.0 */
#include "base/loop.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BATCH 64

struct loop {
	int ep;
	bool quit;
	struct loop_timer *timers;	/* few: one per box with a deadline, one per waiting call */
	struct epoll_event batch[BATCH];
	int batch_n, batch_at;
};

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->ep = epoll_create1(EPOLL_CLOEXEC);
	if (l->ep < 0) {
		r = -errno;
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	(void)close(l->ep);
	free(l);
}

int loop_add(struct loop *l, struct loop_io *io, int fd, uint32_t events, void (*ready)(void *, uint32_t), void *arg)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*io = (struct loop_io){ .fd = fd, .events = events, .ready = ready, .arg = arg, .on = true };
	return 0;
}

int loop_change(struct loop *l, struct loop_io *io, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (!io->on || io->events == events)
		return 0;
	if (epoll_ctl(l->ep, EPOLL_CTL_MOD, io->fd, &ev) < 0)
		return -errno;
	io->events = events;
	return 0;
}

void loop_del(struct loop *l, struct loop_io *io)
{
	if (!io->on)
		return;
	(void)epoll_ctl(l->ep, EPOLL_CTL_DEL, io->fd, NULL);
	io->on = false;
	/* It may have an event in the batch that is being worked through. */
	for (int i = l->batch_at; i < l->batch_n; i++)
		if (l->batch[i].data.ptr == io)
			l->batch[i].data.ptr = NULL;
}

uint64_t clock_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t in_ms, void (*fired)(void *), void *arg)
{
	loop_timer_stop(l, t);
	t->at_ms = clock_ms() + in_ms;
	t->fired = fired;
	t->arg = arg;
	t->next = l->timers;
	if (t->next)
		t->next->link = &t->next;
	t->link = &l->timers;
	l->timers = t;
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	(void)l;
	if (!t->link)
		return;
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	t->next = NULL;
	t->link = NULL;
}

/* Milliseconds until the next timer, -1 for none. */
static int wait_ms(const struct loop *l)
{
	uint64_t best = UINT64_MAX, now;

	for (const struct loop_timer *t = l->timers; t; t = t->next)
		if (t->at_ms < best)
			best = t->at_ms;
	if (best == UINT64_MAX)
		return -1;
	now = clock_ms();
	if (best <= now)
		return 0;
	return best - now > 60000 ? 60000 : (int)(best - now);
}

static void fire_timers(struct loop *l)
{
	uint64_t now;
	bool again;

	if (!l->timers)
		return;
	now = clock_ms();
	do {
		again = false;
		for (struct loop_timer *t = l->timers; t; t = t->next) {
			if (t->at_ms > now)
				continue;
			/* The callback may change the list: begin anew. */
			loop_timer_stop(l, t);
			t->fired(t->arg);
			again = true;
			break;
		}
	} while (again && !l->quit);
}

int loop_run(struct loop *l)
{
	while (!l->quit) {
		int n = epoll_wait(l->ep, l->batch, BATCH, wait_ms(l));

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		l->batch_n = n;
		for (l->batch_at = 0; l->batch_at < n && !l->quit; l->batch_at++) {
			struct loop_io *io = l->batch[l->batch_at].data.ptr;

			if (io && io->on)
				io->ready(io->arg, l->batch[l->batch_at].events);
		}
		l->batch_n = 0;
		fire_timers(l);
	}
	l->quit = false;
	return 0;
}

void loop_quit(struct loop *l)
{
	l->quit = true;
}
