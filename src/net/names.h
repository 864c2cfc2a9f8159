/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_NAMES_H
#define NET_NAMES_H

/*
 * The resolver of all boxes: the only one they have. Queries come from a box over UDP or TCP (port 53 to any address lands
 * here), are judged by the box's policy, asked of the host's own resolvers (resolv.conf) with an id and a port of
 * chance, and the answers are checked, cleaned and remembered, so that a connection can be matched to the names it may stand for.
 *
 * What boxes get to know: answers of type A, AAAA, CNAME, MX, TXT, SRV, CAA, PTR (addresses that the box may reach), NS, SOA. Other
 * types, HTTPS and SVCB among them, are answered with "no records": whoever asks goes on with A and AAAA, and says in the clear
 * whom it connects to. ANY, AXFR, IXFR and the like: REFUSED. Names of hosts (search domains of resolv.conf) are not appended for
 * the box: it gets the host's search list only by the configuration. A or AAAA records that lead into forbidden ranges or to
 * the host's addresses are removed (and the event says so), unless a lan= item of the policy allows the address; a name of
 * which nothing is left has no records, with the extended error "Blocked" (RFC 8914) for those who speak EDNS.
 *
 * A name that the policy refuses doesn't exist: NXDOMAIN with "Blocked", so that programs say "no such host" at once
 * (after REFUSED they ask again, and report a broken name server). What counts is the name that was asked: it may lead
 * over CNAMEs anywhere, and the address is judged whatever the way.
 *
 * Answered here: localhost and names below it (the box's own loopback), NET_HOST_NAME, the box's own name and address. Asked of nobody:
 * names without a dot, .local, .internal, home.arpa, .lan and their kind, unless the policy has lan= (A and AAAA only); .onion,
 * .invalid, .alt never; reverse names of addresses that the box may not reach.
 *
 * DNSSEC is left to the host's resolver: no signatures are asked for, AD is not passed on. The cache is one for all boxes: a box can find out by
 * time or TTL that somebody asked for a name lately, not who.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "net/policy.h"

struct names;
struct names_box; /* what one box has been told; lives as long as the box in the gateway */

#define NAMES_MSG_MAX   65535u
#define NAMES_UDP_MAX   4096u /* longest answer over UDP, if the client's EDNS says that it takes so much; else 512 */
#define NAMES_PER_ADDR  16u /* names remembered for one address of one box */
#define NAMES_UNDER_WAY 64u /* queries of one box that wait; the rest gets SERVFAIL */
#define NAMES_RATE      50u /* new questions (not in the cache) a second that one box may bring to the name servers ... */
#define NAMES_BURST     300u /* ... after so many at once; the rest gets SERVFAIL, and an event says so */

enum names_event {
	NAMES_REFUSED, /* by the policy */
	NAMES_FORBIDDEN, /* the name leads to a forbidden address: removed from the answer */
	NAMES_FAILED, /* no upstream answered */
};

struct names_calls {
	/* The policy of a box, and who the host is. */
	const struct policy *(*policy)(void *box);
	const struct own_addrs *own;
	/* One line for the log. addr may be NULL. Must not call in here. */
	void (*event)(void *box, enum names_event ev, const char *name, const struct ip *addr, const char *why);
	/*
	 * policy says VERDICT_ASK: hold the query. names_asked() goes on with it. Returns false when it can't be asked (it is
	 * refused then). Called once for a name of a box, however many queries wait for it. The token is a number: one that is
	 * too old, whose queries are gone, does no harm.
	 */
	bool (*ask)(void *box, const char *name, void *token);
	/* The box's own name and addresses; false: not known. ret_v6 is left alone when it has none. May be NULL. */
	bool (*who)(void *box, const char **ret_name, struct ip *ret_v4, struct ip *ret_v6);
};

/*
 * The object makes its own UDP and TCP sockets to the upstreams, non-blocking, in `loop`: one for each question under way, at most
 * UPSTREAM_RUNNING (upstream.h) and as many as there are descriptors; the others wait. names_free() frees the boxes too.
 */
int names_new(struct loop *loop, const struct names_calls *calls, struct names **ret, struct err *e);
void names_free(struct names *n);
/*
 * Parse the text of resolv.conf(5); replaces the upstreams and forgets what the former ones said. Unknown lines are ignored as glibc does.
 * At most 3 servers; `nameserver` also takes ADDRESS%INTERFACE and [ADDRESS]:PORT; options timeout:, attempts:, rotate, use-vc
 * and no-aaaa are followed.
 * have6: the host has a way out over IPv6; else AAAA queries are answered with no records.
 */
void names_upstreams(struct names *n, const char *resolv_conf, bool have6);

struct names_box *names_box_new(struct names *n, void *box); /* NULL: no memory */
void names_box_free(struct names_box *b); /* forgets held and running queries too */
/* The policy changed: what was given out under the old one stays known, judged by the new one at connect. */

/*
 * A query of n bytes. answer() is called once, perhaps before this returns, with a message of at most `room` bytes
 * (UDP: truncated with TC when it doesn't fit; room is then NAMES_UDP_MAX and the query's EDNS size decides) or with n = 0
 * when the query was not worth an answer (not a query, too short: dropped). The message lives until answer() calls in here or returns.
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
/*
 * For `net why`: resolve for the box's policy without telling the box. done: called once, perhaps before this returns; none when the policy
 * refuses the name, and also those addresses that the box wouldn't get to see: judge them. A name that a person
 * would be asked about is resolved without asking. names_forget() and names_box_free() end it; done() isn't called then.
 */
void names_lookup(struct names_box *b, const char *name, void (*done)(void *arg, const struct ip *addrs, size_t n),
		  void *arg);

#endif
