/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_NAMES_H
#define NET_NAMES_H

/*
 * The resolver of all boxes: the only one they have. Queries come from a box over UDP or TCP (port 53 to any address lands
 * here), are judged by the box's policy, asked of the host's own resolvers (resolv.conf) with an id and a port of
 * chance, and the answers are checked, cleaned and remembered, so that a connection can be matched to the names it may stand for.
 *
 * What boxes get to know: answers of type A, AAAA, CNAME, MX, TXT, SRV, HTTPS/SVCB (hints and ech removed), CAA, PTR (public addresses
 * only), NS, SOA. ANY, AXFR, IXFR and the like: REFUSED. Names of hosts (search domains of resolv.conf) are not appended for
 * the box: it gets the host's search list only by the configuration. A or AAAA records that lead into forbidden ranges or to
 * the host's addresses are removed (and the event says so), unless a lan= item of the policy allows the address.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "net/policy.h"

struct names;
struct names_box;	/* what one box has been told; lives as long as the box in the gateway */

#define NAMES_MSG_MAX 65535u
#define NAMES_UDP_MAX 4096u	/* longest answer over UDP, if the client's EDNS says that it takes so much; else 512 */
#define NAMES_PER_ADDR 16u	/* names remembered for one address of one box */

enum names_event {
	NAMES_REFUSED,		/* by the policy */
	NAMES_FORBIDDEN,	/* the name leads to a forbidden address: removed from the answer */
	NAMES_FAILED,		/* no upstream answered */
};

struct names_calls {
	/* The policy of a box, and who the host is. */
	const struct policy *(*policy)(void *box);
	const struct own_addrs *own;
	/* One line for the log. addr may be NULL. */
	void (*event)(void *box, enum names_event ev, const char *name, const struct ip *addr, const char *why);
	/*
	 * policy says VERDICT_ASK: hold the query. names_asked() goes on with it. Returns false when it can't be asked (it is
	 * refused then).
	 */
	bool (*ask)(void *box, const char *name, void *token);
};

/*
 * upstreams: at most 3 addresses with ports, as in resolv.conf(5) (`nameserver`, options timeout: and attempts: are followed).
 * have6: the host has a way out over IPv6; else AAAA queries are answered with no records.
 * The object makes its own UDP and TCP sockets to the upstreams, non-blocking, in `loop`.
 */
int names_new(struct loop *loop, const struct names_calls *calls, struct names **ret, struct err *e);
void names_free(struct names *n);
/* Parse the text of resolv.conf(5); replaces the upstreams. Unknown lines are ignored as glibc does. */
void names_upstreams(struct names *n, const char *resolv_conf, bool have6);

struct names_box *names_box_new(struct names *n, void *box);
void names_box_free(struct names_box *b);	/* forgets held and running queries too */
/* The policy changed: what was given out under the old one stays known, judged by the new one at connect. */

/*
 * A query of n bytes. answer() is called once, perhaps before this returns, with a message of at most `room` bytes
 * (UDP: truncated with TC when it doesn't fit; room is then NAMES_UDP_MAX and the query's EDNS size decides) or with n = 0
 * when the query was not worth an answer (not a query, too short: dropped). At most 64 queries of one box are under way, the rest gets SERVFAIL.
 */
void names_query(struct names_box *b, const void *query, size_t n, size_t room,
		 void (*answer)(void *arg, const void *msg, size_t n), void *arg);
/* Nobody waits any more for the answers that would go to `arg`. */
void names_forget(struct names_box *b, void *arg);
void names_asked(struct names *n, void *token, bool allow);

/*
 * Which names stand for this address in this box: what the resolver gave out, CNAMEs on the way included (the name that was asked
 * first), still valid (TTL, at least 60 s, at most 1 day; a connection may come later than the TTL: kept 10 minutes longer), newest first.
 * Returns how many of `max` were filled; the strings live until the next call into names.
 */
size_t names_of(const struct names_box *b, const struct ip *addr, const char **ret, size_t max);
/* For `net why`: resolve for the box's policy without telling the box. Same calls. done: addrs may be none. */
void names_lookup(struct names_box *b, const char *name, void (*done)(void *arg, const struct ip *addrs, size_t n), void *arg);

#endif
