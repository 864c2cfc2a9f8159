/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_CACHE_H
#define NET_CACHE_H

/*
 * Answers that name servers gave, for all boxes, by name and type, for as long as their TTL says. Bounded in number and bytes;
 * what was asked for longest ago goes first. They are kept as they came: what a box may see of one is judged each time.
 */

#include "net/dns.h"

#define CACHE_ENTRIES      16384u
#define CACHE_BYTES        (8u << 20)
#define CACHE_TTL_MAX      86400u /* s */
#define CACHE_TTL_NONE_MAX 3600u /* of negative answers; RFC 2308, section 5 recommends one to three hours */

struct cache;

int cache_new(struct cache **ret);
void cache_free(struct cache *c); /* accepts NULL */
void cache_clear(struct cache *c);

/* name: lower-case. The answer is counted once more for the cache; one with a TTL of 0 is not kept. */
void cache_put(struct cache *c, const struct dns_name *name, uint16_t type, struct dns_answer *answer, uint64_t now_ms);
/* Borrowed until the next call; NULL: not there. *ret_ttl: seconds that are left, at least 1. */
struct dns_answer *cache_get(struct cache *c, const struct dns_name *name, uint16_t type, uint64_t now_ms,
			     uint32_t *ret_ttl);
size_t cache_bytes(const struct cache *c, size_t *ret_entries);

#endif
