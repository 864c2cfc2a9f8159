/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#define TICK_MS 100

struct build *build_find(struct daemon *d, const char *name)
{
	for (struct build *b = d->builds; b; b = b->next)
		if (strcmp(b->b.name, name) == 0)
			return b;
	return NULL;
}

void answer_template(struct req *q, const char *name)
{
	struct buf text = BUF_INIT(MSG_MAX);
	struct err e = ERR_INIT;
	struct json_out o;

	answer_begin(&o, &text);
	(void)buf_puts(&text, ",\"template\":");
	o.comma = false;
	if (template_info(q->d->templates, name, &o, &e) < 0) {
		buf_done(&text);
		req_fail(q, &e);
		return;
	}
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

/* A replaced "host" stays for the boxes that run on it, and goes with the last one. */
void host_prune(struct daemon *d)
{
	if (!d->host_replaced)
		return;
	for (const struct box *b = d->boxes; b; b = b->next)
		if (strcmp(b->spec.template, "host") == 0 && (b->run.pid > 0 || b->busy))
			return;
	if (template_host_prune(d->templates, NULL) >= 0)
		d->host_replaced = false;
}

/* The build is over, one way or the other: everybody who waits hears of it. */
static void over(struct build *b, int r, const struct err *e)
{
	struct daemon *d = b->d;
	struct req *waiting = b->waiting, *parked = b->parked;
	char name[NAME_MAX_LEN + 1];

	memcpy(name, b->b.name, sizeof(name));
	loop_del(d->loop, &b->io);
	loop_timer_stop(d->loop, &b->tick);
	*b->link = b->next;
	if (b->next)
		b->next->link = b->link;
	free(b);
	d->user_template[0] = '\0';
	if (r == 0 && strcmp(name, "host") == 0) {
		pool_drop(d, name);
		d->host_looked_at = clock_ms();
		d->host_replaced = true;
		host_prune(d);
	}
	db_event(d->db, NULL, NULL, 0, r == 0 ? "template" : "template-failed", r == 0 ? name : e->text);
	while (waiting) {
		struct req *next = waiting->next;

		if (r == 0)
			answer_template(waiting, name);
		else
			req_fail(waiting, e);
		waiting = next;
	}
	while (parked) {
		struct req *next = parked->next;

		parked->next = NULL;
		if (r == 0)
			dispatch(parked);
		else
			req_fail(parked, e);
		parked = next;
	}
	daemon_touch(d);
}

static void ended(void *arg, uint32_t events)
{
	struct build *b = arg;
	struct err e = ERR_INIT;
	int r;

	(void)events;
	loop_del(b->d->loop, &b->io);
	r = template_build_finish(b->d->templates, &b->b, &e);
	over(b, r, &e);
}

static uint64_t monotonic_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Everybody who asked for it and waits is gone: pressed Ctrl-C, closed the terminal. */
static bool unwanted(const struct build *b)
{
	if (!b->waiting || b->parked)
		return false;
	for (const struct req *q = b->waiting; q; q = q->next)
		if (q->conn)
			return false;
	return true;
}

static void tick(void *arg)
{
	struct build *b = arg;
	char at[sizeof(b->said)] = "";

	if (unwanted(b)) {
		(void)build_cancel(b, NULL);
		return;
	}
	if (b->b.deadline_ms && monotonic_ms() >= b->b.deadline_ms) {
		ended(b, 0);
		return;
	}
	template_build_progress(b->d->templates, &b->b, at, sizeof(at));
	if (at[0] && strcmp(at, b->said) != 0) {
		memcpy(b->said, at, sizeof(b->said));
		for (struct req *q = b->waiting; q; q = q->next)
			req_progress(q, at);
		for (struct req *q = b->parked; q; q = q->next)
			req_progress(q, at);
	}
	loop_timer_set(b->d->loop, &b->tick, TICK_MS, tick, b);
}

static void join(struct req **list, struct req *q)
{
	while (*list)
		list = &(*list)->next;
	q->next = NULL;
	*list = q;
}

void build_for(struct daemon *d, const char *name, const char *source, int from_fd, uint64_t limit_ms, struct req *q,
	       bool park, bool wait)
{
	struct template_who who = { .uid = q->uid, .gid = q->gid };
	struct build *b = build_find(d, name);
	struct err e = ERR_INIT;
	int r;

	if (b && park) {
		join(&b->parked, q);
		return;
	}
	if (b) {
		(void)err_why(&e, WHY_BUSY, -EEXIST, "template '%s' is being built: 'cubby template cancel %s' ends that", name,
			      name);
		req_fail(q, &e);
		return;
	}
	b = calloc(1, sizeof(*b));
	if (!b) {
		(void)err_set(&e, -ENOMEM, "cannot build template '%s'", name);
		req_fail(q, &e);
		return;
	}
	b->d = d;
	r = source ? template_build_start(d->templates, name, source, from_fd, &who, limit_ms, &b->b, &e) :
		     template_host_rebuild(d->templates, limit_ms, &b->b, &e);
	if (r == 0) {
		r = loop_add(d->loop, &b->io, b->b.pidfd, EPOLLIN, ended, b);
		if (r < 0) {
			(void)template_build_cancel(d->templates, &b->b, NULL);
			(void)err_set(&e, r, "cannot watch the build of template '%s'", name);
		}
	}
	if (r < 0) {
		free(b);
		req_fail(q, &e);
		return;
	}
	b->next = d->builds;
	if (b->next)
		b->next->link = &b->next;
	b->link = &d->builds;
	d->builds = b;
	loop_timer_set(d->loop, &b->tick, TICK_MS, tick, b);
	if (park)
		join(&b->parked, q);
	else if (wait)
		join(&b->waiting, q);
	else
		answer_template(q, name);
}

int build_cancel(struct build *b, struct err *e)
{
	struct err said = ERR_INIT;
	int r;

	loop_del(b->d->loop, &b->io);
	r = template_build_cancel(b->d->templates, &b->b, e);
	(void)err_why(&said, WHY_CANCELLED, -ECANCELED, "the build of template '%s' was cancelled", b->b.name);
	over(b, -ECANCELED, &said);
	return r;
}
