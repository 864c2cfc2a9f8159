/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_POLICY_H
#define NET_POLICY_H

/*
 * What a box may reach. A policy is one line of text, items separated by commas or blanks:
 *
 *	none			nothing, no interface at all; stands alone
 *	internet		every public address
 *	ask			a name or address that no other item allows is held and a person is asked
 *	NAME[:PORT]		a host name (RFC 1123; IDN in its ASCII form; case doesn't matter; no final dot)
 *	*.NAME[:PORT]		every name below NAME, at any depth, not NAME itself
 *	CIDR[:PORT]		a public address or range; IPv6 with a port in brackets: [2001:db8::/32]:443
 *	@PRESET			a named list (presets.h)
 *	lan=CIDR[:PORT]		addresses that are otherwise forbidden; never those of ip_never() (loopback, multicast, metadata
 *				services, boxes, IPv4 hidden in IPv6), and never an address of the host
 *	host-port=PORT		a service on the host's loopback, reached in the box as host.cubby.internal:PORT
 *
 * PORT is a number, a range A-B, or a list in braces {80,443}; without one every port. TCP and UDP alike.
 * A policy that can't be parsed is refused whole; the error names the item, its place (counted in characters from 1) and
 * what would be right. At most POLICY_TEXT_MAX bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/addr.h"

#define POLICY_TEXT_MAX (2u << 20)
#define HOST_NAME_MAX_LEN 253

struct policy;	/* immutable; shared by counting */
struct presets;

int policy_parse(const char *text, const struct presets *presets, struct policy **ret, struct err *e);
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p);	/* accepts NULL */
/* Canonical text: items in the order given, presets as @NAME. What it returns parses to the same policy. */
const char *policy_text(const struct policy *p);

bool policy_is_none(const struct policy *p);
bool policy_is_internet(const struct policy *p);
bool policy_asks(const struct policy *p);
bool policy_has_names(const struct policy *p);	/* names are enforced: there is a list, and no "internet" */
bool policy_is_wider(const struct policy *p);	/* it has lan= or host-port=: the grade says so */

enum verdict { VERDICT_REFUSE, VERDICT_ALLOW, VERDICT_ASK };

/* The item that decided, for people, "" when none did: "*.npmjs.org (@npm)". Points into the policy. */
struct decision {
	enum verdict verdict;
	const char *rule;
	char why[160];		/* of a refusal: one clause, "the policy does not name it" */
	bool by_name;		/* allowed because of the name: what the client then says (TLS, HTTP) has to agree */
	bool to_host;		/* host-port: dial 127.0.0.1 (or ::1) */
	bool lan;		/* a lan= item allowed it */
};

/* May the box look this name up? Port 0: any. The resolver answers what may be connected to on at least one port. */
/*
 * The names that the box's resolver answers itself: host.cubby.internal is judged as the gateway's address, localhost is the box's
 * own and allowed, with a note in `why`. False, and *ret as it was, for every other name.
 */
bool policy_judge_special(const struct policy *p, const char *name, uint16_t port, struct decision *ret);
void policy_judge_name(const struct policy *p, const char *name, uint16_t port, struct decision *ret);

/*
 * May the box reach addr:port? names: what the resolver gave out for this address to this box and what is still valid,
 * newest first; may be none. `own` says whether an address is one of the host's; it overrides everything but host-port.
 * Checks, in this order: gateway address (host-port), own addresses, forbidden ranges (lan= may lift), CIDR items,
 * names, internet, ask.
 */
struct own_addrs {
	bool (*has)(const struct ip *a, void *arg);
	void *arg;
	const struct cidr *lab_public;	/* ranges treated as public though reserved (configuration net_lab_public) */
	size_t nlab_public;
};
void policy_judge(const struct policy *p, const struct own_addrs *own, const struct ip *addr, uint16_t port,
		  const char *const *names, size_t nnames, struct decision *ret);

/* A syntactically good host name: labels of 1–63 of [a-z0-9_-], at most 253 bytes; lower-cased into ret. -EINVAL. */
int host_name_parse(const char *s, size_t n, char ret[HOST_NAME_MAX_LEN + 1]);

/* ---- presets: named lists, kept in a file that people can read and extend */

/*
 * text: lines "NAME: item item …", continued by lines that begin with a blank; '#' begins a comment. Items are names,
 * *.names and CIDRs with ports, or @OTHER. NULL: only the built-in ones. Lists in `text` replace built-in ones of the same name.
 * The error says the line.
 */
int presets_new(const char *text, struct presets **ret, struct err *e);
void presets_free(struct presets *p);
/* In order of their names; returns NULL after the last. *ret_items: the list's text. */
const char *presets_each(const struct presets *p, size_t i, const char **ret_items);
extern const char presets_builtin[];	/* the text of presets.conf, as installed */

#endif
