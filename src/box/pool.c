/* SPDX-License-Identifier: Apache-2.0 */
#include "box/daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box/net.h"

/*
 * The pool: throw-away boxes of the template that was asked for last, made before they are needed, of
 * which each serves one command. They have the default limits and no mounts. Nobody's until they are taken.
 */

/* A pool that nobody used for so long goes. */
#define POOL_IDLE_MS 300000

static bool ready(const struct box *b)
{
	return b->pooled && !b->busy && b->state == BOX_RUNNING;
}

static bool same_limits(const struct limits *a, const struct limits *b)
{
	return a->memory == b->memory && a->swap == b->swap && a->pids == b->pids && a->cpu_milli == b->cpu_milli &&
	       a->cpu_weight == b->cpu_weight && a->io_read == b->io_read && a->io_write == b->io_write;
}

struct box *pool_take(struct daemon *d, const struct spec *s)
{
	if (s->nviews > 0 || s->nesting || s->allow_weaker)
		return NULL;
	for (struct box *b = d->boxes; b; b = b->next) {
		if (!ready(b) || strcmp(b->spec.template, s->template) != 0 || !b->spec.net != !s->net)
			continue;
		/* Whoever takes one with an interface may use it at once. */
		if (s->net && !d->net->ready)
			continue;
		if (s->tz[0] && strcmp(b->spec.tz, s->tz) != 0)
			continue;
		if (!same_limits(&b->spec.limits, &s->limits) && d->engine->set_limits(b->id, &s->limits, NULL) < 0)
			continue;
		return b;
	}
	return NULL;
}

static void pooled_up(struct box *b, int r, struct err *e, void *arg)
{
	struct daemon *d = b->d;

	(void)arg;
	(void)e;
	d->pool_making--;
	b->busy = NULL;
	/* A pool that can't be filled is no failure of anybody's command: that one will say why. */
	if (r < 0 || d->leaving || strcmp(b->spec.template, d->pool_template) != 0 || !b->spec.net == d->pool_net)
		box_discard(b);
}

static void make_one(struct daemon *d)
{
	char id[ID_LEN + 1], name[32];
	struct box *b;

	id_make(id);
	(void)snprintf(name, sizeof(name), "run-%.6s", id);
	b = box_add(d, id, name, 0, NULL);
	if (!b)
		return;
	b->throw_away = b->pooled = true;
	b->busy = "being made ready";
	memccpy(b->spec.template, d->pool_template, '\0', sizeof(b->spec.template));
	memccpy(b->spec.user, "root", '\0', sizeof(b->spec.user));
	memccpy(b->spec.tz, d->pool_tz, '\0', sizeof(b->spec.tz));
	b->spec.limits = d->pool_limits;
	/* What it may reach is said when it is taken. */
	b->spec.net = d->pool_net ? strdup("internet") : NULL;
	d->pool_making++;
	box_up(b, BUILD_LATER, NULL, 0, pooled_up, NULL);
}

static void refill(void *arg)
{
	struct daemon *d = arg;
	uint64_t want = conf_num(&d->conf, CONF_POOL_SIZE), have = d->pool_making;

	if (clock_ms() - d->pool_used_at > POOL_IDLE_MS) {
		pool_drop(d, NULL);
		return;
	}
	for (const struct box *b = d->boxes; b; b = b->next)
		have += ready(b);
	for (; have < want && template_exists(d->templates, d->pool_template); have++)
		make_one(d);
	loop_timer_set(d->loop, &d->refill, POOL_IDLE_MS / 2, refill, d);
}

void pool_wanted(struct daemon *d, const struct spec *s)
{
	if (conf_num(&d->conf, CONF_POOL_SIZE) == 0 || s->nviews > 0 || s->nesting || s->allow_weaker)
		return;
	if (strcmp(d->pool_template, s->template) != 0 || strcmp(d->pool_tz, s->tz) != 0 || d->pool_net != (s->net != NULL)) {
		pool_drop(d, NULL);
		memccpy(d->pool_template, s->template, '\0', sizeof(d->pool_template));
		memccpy(d->pool_tz, s->tz, '\0', sizeof(d->pool_tz));
		d->pool_net = s->net != NULL;
	}
	/* What the last one asked for fits the next one best; other limits are set when it is taken. */
	d->pool_limits = s->limits;
	d->pool_used_at = clock_ms();
	/* After the answer to the one who waits now. */
	loop_timer_set(d->loop, &d->refill, 0, refill, d);
}

void pool_drop(struct daemon *d, const char *template)
{
	struct box *next;

	if (!template || strcmp(template, d->pool_template) == 0) {
		d->pool_template[0] = '\0';
		loop_timer_stop(d->loop, &d->refill);
	}
	for (struct box *b = d->boxes; b; b = next) {
		next = b->next;
		if (ready(b) && (!template || strcmp(b->spec.template, template) == 0))
			box_discard(b);
	}
}
