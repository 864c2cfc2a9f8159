/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_DNS_H
#define NET_DNS_H

/*
 * Messages of the Domain Name System (RFC 1035, EDNS0 RFC 6891, extended errors RFC 8914): reading what boxes and name
 * servers send, and writing answers and questions. Pure: no sockets, no clock, no policy. Everything that is read is
 * hostile. A message ends where its records end; compression pointers lead backwards only; each count is checked.
 *
 * There is no library here because the gateway is a thin, confined, static program, and because most of what a DNS
 * library does (searching, retrying, trusting) is what the gateway must decide itself.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

#define DNS_HEAD      12
#define DNS_NAME_MAX  255 /* of a name on the wire, RFC 1035 3.1 */
#define DNS_TEXT_MAX  254 /* of a name as text, with terminator, without final dot */
#define DNS_CHAIN_MAX 16 /* CNAMEs that are followed from one question */
#define DNS_KEEP_MAX  256 /* records of the wanted type that are kept of one answer; the rest is cut off */

enum {
	DNS_A = 1,
	DNS_NS = 2,
	DNS_CNAME = 5,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_MX = 15,
	DNS_TXT = 16,
	DNS_AAAA = 28,
	DNS_SRV = 33,
	DNS_OPT = 41,
	DNS_SVCB = 64,
	DNS_HTTPS = 65,
	DNS_ANY = 255,
	DNS_CAA = 257,
};
#define DNS_CLASS_IN 1

enum {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16,
};

#define DNS_QR     0x8000u
#define DNS_OPCODE 0x7800u
#define DNS_TC     0x0200u
#define DNS_RD     0x0100u
#define DNS_RA     0x0080u
#define DNS_RCODE  0x000fu

/* Extended errors, RFC 8914 section 4. 0 ("other") stands for none here. */
#define DNS_EDE_BLOCKED  15 /* by a policy of the server's owner */
#define DNS_EDE_NETWORK  23
#define DNS_EDE_TEXT_MAX 120

/* As on the wire, not compressed, with the root's empty label. n == 0: no name. */
struct dns_name {
	uint8_t n;
	uint8_t b[DNS_NAME_MAX];
};

/*
 * Read the name at *at of the message; *at is then what follows it. Pointers have to lead in front of the part of the
 * name that they end. -EBADMSG.
 */
int dns_name_read(const uint8_t *msg, size_t n, size_t *at, struct dns_name *ret);
bool dns_name_same(const struct dns_name *a, const struct dns_name *b); /* case doesn't matter, RFC 4343 */
void dns_name_lower(struct dns_name *name);
/*
 * As text, lower-case, when each label is made of letters, digits, '_' and '-'; else -EINVAL, for the root too.
 * Other bytes are legal in DNS, but not in the name of anything that one connects to.
 */
int dns_name_text(const struct dns_name *name, char ret[DNS_TEXT_MAX]);
int dns_name_of_text(const char *text, struct dns_name *ret); /* the same characters; -EINVAL */
/* The address that a whole reverse name stands for (in-addr.arpa, ip6.arpa). -EINVAL when it is none. */
int dns_name_reverse(const struct dns_name *name, struct ip *ret);

/* ---- what a client asks */

struct dns_query {
	uint16_t id, flags;
	uint16_t type, klass;
	uint16_t udp_size; /* of its EDNS, at least 512; 512 without */
	bool edns;
	struct dns_name name; /* the client's case; n == 0 when the question could not be read */
};

/*
 * 0: a standard query with one question. Above 0: the code to answer it with (FORMERR, NOTIMP, BADVERS).
 * -EBADMSG: too short, or not a query: not worth an answer. EDNS options (client subnet, cookies) are not kept.
 */
int dns_query_read(const void *msg, size_t n, struct dns_query *ret);

/*
 * A question for a name server: recursion wanted, EDNS0 with an UDP size of `edns` bytes and without options, or 0 for none.
 * Returns the length, at most DNS_QUESTION_MAX.
 */
#define DNS_QUESTION_MAX (DNS_HEAD + DNS_NAME_MAX + 4 + 11)
size_t dns_question_write(uint8_t ret[DNS_QUESTION_MAX], uint16_t id, const struct dns_name *name, uint16_t type,
			  uint16_t edns);

/* ---- what a name server answers */

/*
 * What counts of an answer: the CNAMEs that lead from the question to its end, then the records of the wanted type there,
 * in a form of its own without compression. Shared by counting; immutable.
 */
struct dns_answer {
	unsigned refs;
	uint16_t type; /* of the question */
	uint8_t rcode; /* DNS_NOERROR or DNS_NXDOMAIN */
	uint32_t ttl; /* seconds; of a negative answer by its SOA (RFC 2308); 0: not to be kept */
	unsigned count; /* records, CNAMEs included */
	size_t len; /* of `data` */
	size_t soa; /* where the SOA of a negative answer is in data (owner, then rdata); len when none */
	uint8_t data[]; /* count times: type and length (16 bits each), rdata; then perhaps owner and rdata of SOA */
};

/*
 * Does this message belong to the question? Compares id (of the head) and name, type and class of the one question.
 * exact: the case of the name too. 0; -EBADMSG: no well-formed answer; -ESTALE: another question's; -EILSEQ: the same but for
 * the case. *ret_flags on 0 and -EILSEQ.
 */
int dns_reply_match(const void *msg, size_t n, uint16_t id, const struct dns_name *name, uint16_t type,
		    uint16_t *ret_flags);
/*
 * Read an answer whose code is NOERROR or NXDOMAIN. Only what the question leads to is kept: records of other names,
 * wherever they stand, are nothing that this server was asked for. -EBADMSG, -ELOOP (the CNAMEs never end), -ENOMEM.
 */
int dns_answer_read(const void *msg, size_t n, const struct dns_name *name, uint16_t type, struct dns_answer **ret);
struct dns_answer *dns_answer_ref(struct dns_answer *a);
void dns_answer_unref(struct dns_answer *a); /* accepts NULL */
/* Record number i in turn: *at begins with 0. false after the last. rdata points into the answer. */
bool dns_answer_each(const struct dns_answer *a, size_t *at, uint16_t *ret_type, const uint8_t **ret_rdata,
		     size_t *ret_len);
struct ip dns_addr(uint16_t type, const uint8_t *rdata); /* of an A or AAAA record */
/* One that was not read: an A or AAAA record for each address of the type's family; or a PTR record. NULL: no memory. */
struct dns_answer *dns_answer_addrs(uint16_t type, const struct ip *addrs, size_t n, uint32_t ttl);
struct dns_answer *dns_answer_ptr(const struct dns_name *target, uint32_t ttl);

/* ---- answering a client */

struct dns_reply {
	uint16_t rcode;
	const struct dns_answer *answer; /* or NULL: no records */
	uint32_t ttl; /* for all records */
	/* Which address records go out; NULL: all. Asked once for each A and AAAA record. */
	bool (*keep)(void *arg, const struct ip *addr);
	void *arg;
	unsigned ede; /* 0: none. Only sent when the query had EDNS */
	const char *ede_text;
};

/*
 * Write the answer to a query: the question as it was asked, the records, OPT if the query had one. `room` at least 512.
 * Records that don't fit are left out, and TC says so. Returns the length.
 */
size_t dns_reply_write(uint8_t *buf, size_t room, const struct dns_query *q, const struct dns_reply *r);

#endif
