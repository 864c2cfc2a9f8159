/* SPDX-License-Identifier: Apache-2.0 */
#include "net/chance.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int chance(void *ret, size_t n)
{
	static uint8_t store[256]; /* getrandom(2): so much comes at once and isn't interrupted */
	static size_t left;
	uint8_t *out = ret;

	while (n > 0) {
		size_t part;

		if (left == 0) {
			if (getrandom(store, sizeof(store), 0) != (ssize_t)sizeof(store))
				return errno ? -errno : -EIO;
			left = sizeof(store);
		}
		part = n < left ? n : left;
		left -= part;
		memcpy(out, store + left, part);
		memset(store + left, 0, part);
		out += part;
		n -= part;
	}
	return 0;
}

static uint64_t rotl(uint64_t x, unsigned by)
{
	return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

uint64_t hash_bytes(const struct hash_key *key, const void *data, size_t n)
{
	uint64_t v[4] = { key->k[0] ^ 0x736f6d6570736575u, key->k[1] ^ 0x646f72616e646f6du,
			  key->k[0] ^ 0x6c7967656e657261u, key->k[1] ^ 0x7465646279746573u };
	const uint8_t *p = data;

	for (size_t at = 0; at <= n; at += 8) {
		uint64_t m = 0;

		for (size_t i = 0; i < 8 && at + i < n; i++)
			m |= (uint64_t)p[at + i] << (8 * i);
		if (at + 8 > n)
			m |= (uint64_t)(n & 0xff) << 56;
		v[3] ^= m;
		sip_round(v);
		sip_round(v);
		v[0] ^= m;
	}
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
