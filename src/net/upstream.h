/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_UPSTREAM_H
#define NET_UPSTREAM_H

/*
 * Asking the host's own name servers. Each question goes out from a socket of its own (so from a port of chance, and errors
 * come back to it), with an id of chance and letters in a case of chance; only what repeats all of them is its answer.
 * An answer that is cut, or that doesn't repeat the case, is asked for again over TCP. A server that doesn't answer, refuses or
 * fails gives way to the next one, and is asked last for UPSTREAM_SUSPECT_MS.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "net/dns.h"

#define UPSTREAM_SERVERS  3 /* resolv.conf(5), MAXNS */
#define UPSTREAM_RUNNING  1024u /* sockets at once; what comes on top waits its turn ... */
#define UPSTREAM_QUEUE_MS 10000u /* ... no longer than this, ... */
#define UPSTREAM_OLD	  4u /* ... and takes the place of one that has waited for an answer so many times longer than fresh ones */
#define UPSTREAM_FRESH	  200u /* UDP questions without an answer: more don't fit into the socket of a common name server ... */
#define UPSTREAM_FRESH_MS 250u /* ... which after this time, or four times what its answers take, has read them */
#define UPSTREAM_SUSPECT_MS 30000u
#define UPSTREAM_STRANGERS  64u /* so many wrong answers to one socket are an attack: on with TCP */

struct upstream;
struct upstream_ask;

/*
 * Questions that wait are taken in turn, one from each asker, so that whoever asks for many waits for his own. Begins zeroed;
 * has to be there as long as a question waits in it: upstream_turn_first(), upstream_move().
 */
struct upstream_turn {
	struct upstream_ask *first, *last;
	struct upstream_turn *next, *prev;
};

int upstream_new(struct loop *loop, struct upstream **ret);
void upstream_free(struct upstream *u); /* no question may be under way */

/*
 * Read the text of resolv.conf(5): `nameserver` (also ADDRESS%INTERFACE and [ADDRESS]:PORT), and of `options` timeout:,
 * attempts:, rotate, use-vc and no-aaaa.
 * Without a server: 127.0.0.1. Questions under way go on with the servers that they began with.
 */
void upstream_conf(struct upstream *u, const char *resolv_conf);
bool upstream_no_aaaa(const struct upstream *u);

/*
 * Ask. done() is called once, from the loop, never from within: with r == 0 and an answer (borrowed), or with a negative errno and
 * the cause in words. After done() or upstream_cancel() the object is gone. A negative errno: nothing was begun.
 */
typedef void (*upstream_done)(void *arg, int r, struct dns_answer *answer, const char *why);
int upstream_begin(struct upstream *u, struct upstream_turn *turn, const struct dns_name *name, uint16_t type,
		   upstream_done done, void *arg, struct upstream_ask **ret);
void upstream_cancel(struct upstream_ask *a);
/* The argument of the first question that waits there, or NULL; and let one that waits wait for somebody else. */
void *upstream_turn_first(const struct upstream_turn *turn);
void upstream_move(struct upstream_ask *a, struct upstream_turn *to);

#endif
