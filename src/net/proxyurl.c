/* SPDX-License-Identifier: Apache-2.0 */
#include "net/proxyurl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int unescape(const char *s, size_t n, char *ret, size_t room)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		char c = s[i];

		if (c == '%') {
			if (i + 2 >= n || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0)
				return -EINVAL;
			c = (char)(hex(s[i + 1]) << 4 | hex(s[i + 2]));
			i += 2;
		}
		if (c == '\0' || c == '\r' || c == '\n' || k + 1 >= room)
			return -EINVAL;
		ret[k++] = c;
	}
	ret[k] = '\0';
	return 0;
}

int proxy_parse(const char *url, struct proxy *ret)
{
	static const struct {
		const char *word;
		enum proxy_kind kind;
	} kinds[] = { { "http://", PROXY_HTTP }, { "socks5://", PROXY_SOCKS5 }, { "socks5h://", PROXY_SOCKS5 } };
	struct proxy p = { .kind = PROXY_NONE };
	char host[IP_TEXT_MAX], port[8];
	const char *at, *colon, *end;
	uint64_t v;

	if (!*url) {
		*ret = p;
		return 0;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strncmp(url, kinds[i].word, strlen(kinds[i].word)) != 0)
			continue;
		p.kind = kinds[i].kind;
		url += strlen(kinds[i].word);
		break;
	}
	if (p.kind == PROXY_NONE)
		return -EINVAL;
	end = url + strcspn(url, "/");
	if (*end && end[1])
		return -EINVAL;
	at = memchr(url, '@', (size_t)(end - url));
	if (at) {
		colon = memchr(url, ':', (size_t)(at - url));
		if (unescape(url, (size_t)((colon ? colon : at) - url), p.user, sizeof(p.user)) < 0 || !p.user[0] ||
		    (colon && unescape(colon + 1, (size_t)(at - colon - 1), p.pass, sizeof(p.pass)) < 0))
			return -EINVAL;
		if (p.kind == PROXY_HTTP && strchr(p.user, ':'))
			return -EINVAL;
		url = at + 1;
	}
	if (*url == '[') {
		const char *close = memchr(url, ']', (size_t)(end - url));

		if (!close || (close + 1 != end && close[1] != ':') || (size_t)(close - url) > sizeof(host))
			return -EINVAL;
		(void)snprintf(host, sizeof(host), "%.*s", (int)(close - url - 1), url + 1);
		colon = close + 1;
	} else {
		colon = memchr(url, ':', (size_t)(end - url));
		if (!colon)
			colon = end;
		if ((size_t)(colon - url) >= sizeof(host))
			return -EINVAL;
		(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - url), url);
	}
	if (colon == end)
		(void)snprintf(port, sizeof(port), "%s", p.kind == PROXY_HTTP ? "80" : "1080");
	else if ((size_t)(end - colon) > sizeof(port))
		return -EINVAL;
	else
		(void)snprintf(port, sizeof(port), "%.*s", (int)(end - colon - 1), colon + 1);
	if (ip_parse(host, &p.addr) < 0 || parse_u64(port, 65535, &v) < 0 || v == 0)
		return -EINVAL;
	p.port = (uint16_t)v;
	*ret = p;
	return 0;
}

void proxy_hide(const char *url, char *ret, size_t n)
{
	const char *host = strstr(url, "://"), *at = NULL, *colon;

	host = host ? host + 3 : url;
	/* The last '@': what is in doubt is taken for the password. */
	at = strrchr(host, '@');
	colon = at ? memchr(host, ':', (size_t)(at - host)) : NULL;
	if (colon)
		(void)snprintf(ret, n, "%.*s:…%s", (int)(colon - url), url, at);
	else
		(void)snprintf(ret, n, "%s", url);
}
