/* SPDX-License-Identifier: Apache-2.0 */
#include "net/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/chance.h"

struct entry {
	struct entry *bucket; /* next of the same bucket */
	struct entry *newer, *older; /* by use */
	struct dns_answer *answer;
	uint64_t until_ms;
	uint16_t type;
	uint8_t n;
	uint8_t name[];
};

struct cache {
	struct hash_key key;
	struct entry *newest, *oldest;
	size_t count, bytes;
	struct entry *buckets[CACHE_ENTRIES];
};

static size_t entry_bytes(const struct entry *e)
{
	/* Of the allocations' own book-keeping too. */
	return sizeof(*e) + e->n + sizeof(*e->answer) + e->answer->len + 32;
}

static struct entry **bucket_of(struct cache *c, const struct dns_name *name, uint16_t type)
{
	uint64_t h = hash_bytes(&c->key, name->b, name->n) + type * UINT64_C(0x9e3779b97f4a7c15);

	return &c->buckets[(h >> 32) % CACHE_ENTRIES];
}

static struct entry **find(struct cache *c, const struct dns_name *name, uint16_t type)
{
	struct entry **link = bucket_of(c, name, type);

	while (*link &&
	       ((*link)->type != type || (*link)->n != name->n || memcmp((*link)->name, name->b, name->n) != 0))
		link = &(*link)->bucket;
	return link;
}

static void unlink_use(struct cache *c, struct entry *e)
{
	*(e->newer ? &e->newer->older : &c->newest) = e->older;
	*(e->older ? &e->older->newer : &c->oldest) = e->newer;
}

static void link_use(struct cache *c, struct entry *e)
{
	e->newer = NULL;
	e->older = c->newest;
	*(e->older ? &e->older->newer : &c->oldest) = e;
	c->newest = e;
}

static void drop(struct cache *c, struct entry **link)
{
	struct entry *e = *link;

	*link = e->bucket;
	unlink_use(c, e);
	c->count--;
	c->bytes -= entry_bytes(e);
	dns_answer_unref(e->answer);
	free(e);
}

static void drop_oldest(struct cache *c)
{
	struct dns_name name = { .n = c->oldest->n };

	memcpy(name.b, c->oldest->name, name.n);
	drop(c, find(c, &name, c->oldest->type));
}

void cache_put(struct cache *c, const struct dns_name *name, uint16_t type, struct dns_answer *answer, uint64_t now_ms)
{
	struct entry **link = find(c, name, type), *e;
	uint32_t ttl = answer->ttl, max = answer->soa < answer->len ? CACHE_TTL_NONE_MAX : CACHE_TTL_MAX;

	if (*link)
		drop(c, link);
	if (ttl == 0)
		return;
	e = malloc(sizeof(*e) + name->n);
	if (!e)
		return;
	*e = (struct entry){ .type = type,
			     .n = name->n,
			     .until_ms = now_ms + (ttl < max ? ttl : max) * UINT64_C(1000) };
	memcpy(e->name, name->b, name->n);
	e->answer = dns_answer_ref(answer);
	link = bucket_of(c, name, type);
	e->bucket = *link;
	*link = e;
	link_use(c, e);
	c->count++;
	c->bytes += entry_bytes(e);
	while (c->count > CACHE_ENTRIES || c->bytes > CACHE_BYTES)
		drop_oldest(c);
}

struct dns_answer *cache_get(struct cache *c, const struct dns_name *name, uint16_t type, uint64_t now_ms,
			     uint32_t *ret_ttl)
{
	struct entry **link = find(c, name, type), *e = *link;

	if (!e)
		return NULL;
	if (e->until_ms <= now_ms) {
		drop(c, link);
		return NULL;
	}
	unlink_use(c, e);
	link_use(c, e);
	*ret_ttl = (uint32_t)((e->until_ms - now_ms + 999) / 1000);
	return e->answer;
}

size_t cache_bytes(const struct cache *c, size_t *ret_entries)
{
	*ret_entries = c->count;
	return c->bytes;
}

void cache_clear(struct cache *c)
{
	while (c->oldest)
		drop_oldest(c);
}

int cache_new(struct cache **ret)
{
	struct cache *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	r = chance(&c->key, sizeof(c->key));
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void cache_free(struct cache *c)
{
	if (!c)
		return;
	cache_clear(c);
	free(c);
}
