/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_PROXYURL_H
#define NET_PROXYURL_H

/* What names the host's own proxy: read by the daemon, to refuse a bad one, and by the gateway, to use it. */

#include <stddef.h>
#include <stdint.h>

#include "net/addr.h"

enum proxy_kind { PROXY_NONE, PROXY_HTTP, PROXY_SOCKS5, PROXY_BAD /* everything that would go there is refused */ };
struct proxy {
	enum proxy_kind kind;
	struct ip addr;
	uint16_t port;
	char user[256], pass[256];	/* "" */
};
/*
 * "" or http://[USER:PASS@]ADDRESS:PORT, socks5://…, socks5h://…; the address as a literal, in brackets when IPv6; %XX in USER and PASS.
 * Without a port: 80 for http, else 1080. -EINVAL; ret is untouched then.
 */
int proxy_parse(const char *url, struct proxy *ret);
/* `url` as it may be shown: without the password, as in http://USER:…@HOST:PORT. Cut off at n - 1 bytes. */
void proxy_hide(const char *url, char *ret, size_t n);

#endif
