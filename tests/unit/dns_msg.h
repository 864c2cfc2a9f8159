/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_DNS_MSG_H
#define TESTS_UNIT_DNS_MSG_H

/* Messages of the Domain Name System, written byte by byte and without any of the code that they are for. */

#include <stdint.h>
#include <string.h>

struct msg {
	uint8_t b[65536];
	size_t n;
};

static inline void put(struct msg *m, const void *data, size_t n)
{
	if (m->n + n <= sizeof(m->b)) {
		memcpy(m->b + m->n, data, n);
		m->n += n;
	}
}

static inline void put8(struct msg *m, unsigned v)
{
	put(m, &(uint8_t){ (uint8_t)v }, 1);
}

static inline void put16(struct msg *m, unsigned v)
{
	put8(m, v >> 8);
	put8(m, v & 0xff);
}

static inline void put32(struct msg *m, uint32_t v)
{
	put16(m, v >> 16);
	put16(m, v & 0xffff);
}

static inline unsigned at16(const uint8_t *p)
{
	return (unsigned)p[0] << 8 | p[1];
}

static inline void set16(struct msg *m, size_t at, unsigned v)
{
	m->b[at] = (uint8_t)(v >> 8);
	m->b[at + 1] = (uint8_t)v;
}

/* "a.b.c", "" for the root. */
static inline void put_name(struct msg *m, const char *s)
{
	while (*s) {
		size_t n = strcspn(s, ".");

		put8(m, (unsigned)n);
		put(m, s, n);
		s += n + (s[n] == '.');
	}
	put8(m, 0);
}

static inline void put_head(struct msg *m, unsigned id, unsigned flags, unsigned qd, unsigned an, unsigned ns,
			    unsigned ar)
{
	m->n = 0;
	put16(m, id);
	put16(m, flags);
	put16(m, qd);
	put16(m, an);
	put16(m, ns);
	put16(m, ar);
}

static inline void put_question(struct msg *m, const char *name, unsigned type)
{
	put_name(m, name);
	put16(m, type);
	put16(m, 1);
}

/* After the owner. */
static inline void put_rr(struct msg *m, unsigned type, uint32_t ttl, const void *rdata, size_t n)
{
	put16(m, type);
	put16(m, 1);
	put32(m, ttl);
	put16(m, (unsigned)n);
	put(m, rdata, n);
}

static inline void put_a(struct msg *m, const char *owner, uint32_t ttl, uint32_t addr)
{
	uint8_t b[4] = { (uint8_t)(addr >> 24), (uint8_t)(addr >> 16), (uint8_t)(addr >> 8), (uint8_t)addr };

	put_name(m, owner);
	put_rr(m, 1, ttl, b, 4);
}

static inline void put_cname(struct msg *m, const char *owner, uint32_t ttl, const char *target)
{
	size_t at;

	put_name(m, owner);
	put_rr(m, 5, ttl, "", 0);
	at = m->n;
	put_name(m, target);
	set16(m, at - 2, (unsigned)(m->n - at));
}

static inline void put_soa(struct msg *m, const char *owner, uint32_t ttl, uint32_t minimum)
{
	size_t at;

	put_name(m, owner);
	put_rr(m, 6, ttl, "", 0);
	at = m->n;
	put_name(m, "ns.example.org");
	put_name(m, "hostmaster.example.org");
	for (int i = 0; i < 4; i++)
		put32(m, 7200);
	put32(m, minimum);
	set16(m, at - 2, (unsigned)(m->n - at));
}

static inline void put_opt(struct msg *m, unsigned size, uint32_t ttl, const void *options, size_t n)
{
	put_name(m, "");
	put16(m, 41);
	put16(m, size);
	put32(m, ttl);
	put16(m, (unsigned)n);
	put(m, options, n);
}

#endif
