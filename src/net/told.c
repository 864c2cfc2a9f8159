/* SPDX-License-Identifier: Apache-2.0 */
#include "net/told.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/chance.h"

#define BUCKETS 512u

struct pair {
	struct pair *bucket; /* next of the same bucket, told earlier */
	struct pair *newer, *older; /* all of the box */
	uint64_t until_ms;
	struct ip addr;
	char name[];
};

struct told {
	struct hash_key key;
	struct pair *newest, *oldest;
	size_t count;
	struct pair *buckets[BUCKETS];
};

static struct pair **bucket_of(struct told *t, const struct ip *addr)
{
	return &t->buckets[hash_bytes(&t->key, addr->b, sizeof(addr->b)) % BUCKETS];
}

static void unlink_pair(struct told *t, struct pair **link)
{
	struct pair *p = *link;

	*link = p->bucket;
	*(p->newer ? &p->newer->older : &t->newest) = p->older;
	*(p->older ? &p->older->newer : &t->oldest) = p->newer;
	t->count--;
}

static void link_pair(struct told *t, struct pair *p)
{
	struct pair **link = bucket_of(t, &p->addr);

	p->bucket = *link;
	*link = p;
	p->newer = NULL;
	p->older = t->newest;
	*(p->older ? &p->older->newer : &t->oldest) = p;
	t->newest = p;
	t->count++;
}

static void drop_oldest(struct told *t)
{
	struct pair *p = t->oldest, **link = bucket_of(t, &p->addr);

	while (*link != p)
		link = &(*link)->bucket;
	unlink_pair(t, link);
	free(p);
}

int told_add(struct told *t, const struct ip *addr, const char *name, uint64_t now_ms, uint64_t until_ms)
{
	struct pair **link = bucket_of(t, addr), **next, *p = NULL;
	size_t n = strlen(name) + 1;
	unsigned names = 0;

	for (; *link; link = next) {
		struct pair *q = *link;

		next = &q->bucket;
		if (!ip_same(&q->addr, addr))
			continue;
		if (strcmp(q->name, name) == 0) {
			unlink_pair(t, link);
			p = q;
			break;
		}
		/* A bucket is in the order of telling: the last ones are the oldest. */
		if (q->until_ms <= now_ms || ++names >= TOLD_PER_ADDR) {
			unlink_pair(t, link);
			free(q);
			next = link;
		}
	}
	if (!p) {
		p = malloc(sizeof(*p) + n);
		if (!p)
			return -ENOMEM;
		*p = (struct pair){ .addr = *addr };
		memcpy(p->name, name, n);
	}
	if (p->until_ms < until_ms)
		p->until_ms = until_ms;
	link_pair(t, p);
	if (t->count > TOLD_MAX)
		drop_oldest(t);
	return 0;
}

size_t told_names(const struct told *t, const struct ip *addr, uint64_t now_ms, const char **ret, size_t max)
{
	size_t n = 0;

	for (const struct pair *p = t->buckets[hash_bytes(&t->key, addr->b, sizeof(addr->b)) % BUCKETS]; p && n < max;
	     p = p->bucket)
		if (p->until_ms > now_ms && ip_same(&p->addr, addr))
			ret[n++] = p->name;
	return n;
}

int told_new(struct told **ret)
{
	struct told *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	r = chance(&t->key, sizeof(t->key));
	if (r < 0) {
		free(t);
		return r;
	}
	*ret = t;
	return 0;
}

void told_free(struct told *t)
{
	if (!t)
		return;
	while (t->oldest)
		drop_oldest(t);
	free(t);
}
