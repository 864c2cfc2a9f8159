/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_CHANCE_H
#define NET_CHANCE_H

/* What an attacker must not foresee: ids, letters' cases, and which keys share a bucket of a hash table. */

#include <stddef.h>
#include <stdint.h>

/* From getrandom(2), through a small store: a question needs a few bytes. 0 or a negative errno. */
int chance(void *ret, size_t n);

/* SipHash-2-4 (Aumasson, Bernstein 2012) under a key of chance: whoever chooses the keys of a table can't choose their place. */
struct hash_key {
	uint64_t k[2];
};
uint64_t hash_bytes(const struct hash_key *key, const void *data, size_t n);

#endif
