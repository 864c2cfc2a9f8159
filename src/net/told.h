/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_TOLD_H
#define NET_TOLD_H

/*
 * What one box has been told: which names stand for an address there. Bounded; what was told longest ago is forgotten first.
 * Takes no memory before the first name.
 */

#include "net/dns.h"

#define TOLD_MAX      4096u /* pairs of a name and an address */
#define TOLD_PER_ADDR 16u /* names of one address */

struct told;

int told_new(struct told **ret);
void told_free(struct told *t); /* accepts NULL */
/* 0 or -ENOMEM. Known already: it is the newest again, and the longer time counts. */
int told_add(struct told *t, const struct ip *addr, const char *name, uint64_t now_ms, uint64_t until_ms);
/* Newest first, at most `max`. The strings live until the next told_add(). */
size_t told_names(const struct told *t, const struct ip *addr, uint64_t now_ms, const char **ret, size_t max);

#endif
