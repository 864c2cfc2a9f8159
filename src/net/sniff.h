/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_SNIFF_H
#define NET_SNIFF_H

/*
 * Whom does a client say it talks to? Reads the first bytes of a connection: the server name of a TLS greeting
 * (RFC 8446 4.1.2, RFC 6066 3; also spread over several records and DTLS not), or the Host of an HTTP/1 request (RFC 9112),
 * the authority of HTTP/2 with prior knowledge is not read: its preface is SNIFF_OTHER with proto "h2".
 */

#include <stddef.h>
#include <stdint.h>

#include "net/policy.h"

#define SNIFF_MAX (20u << 10)	/* a greeting that needs more is SNIFF_BAD */

enum sniff {
	SNIFF_MORE,	/* more bytes are needed */
	SNIFF_TLS,	/* name is set, or "" when the greeting has none */
	SNIFF_HTTP,	/* name is set (without port), or "" (HTTP/1.0 without Host) */
	SNIFF_OTHER,	/* neither */
	SNIFF_BAD,	/* begins like one of them and breaks its rules, or tries to be two things (two names, two Hosts) */
};

/* name: lower-case, HOST_NAME_MAX_LEN + 1 bytes. An IP literal as Host is given as its canonical text. */
enum sniff sniff(const void *data, size_t n, char *ret_name);

#endif
