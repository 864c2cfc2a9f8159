/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sniff.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "net/addr.h"

#define METHOD_MAX 128	/* a word that is longer is nobody's method */

/* ---------------------------------------------------------------- TLS (RFC 8446, RFC 6066) */

/* The handshake bytes of the records so far, as one run: a greeting may be spread over records of any length. */
struct run {
	const uint8_t *data;	/* the records */
	size_t n;
	size_t at, left;	/* where the current record's bytes go on, and how many it still has */
	bool more, broken;
};

static unsigned next(struct run *r)
{
	while (r->left == 0) {
		size_t len;

		if (r->n - r->at < 5) {
			r->more = true;
			return 0;
		}
		len = (size_t)r->data[r->at + 3] << 8 | r->data[r->at + 4];
		if (r->data[r->at] != 22 || r->data[r->at + 1] != 3 || len == 0 || len > (1u << 14)) {
			r->broken = true;
			return 0;
		}
		r->at += 5;
		r->left = len;
	}
	if (r->at == r->n) {
		r->more = true;
		return 0;
	}
	r->left--;
	return r->data[r->at++];
}

static size_t number(struct run *r, unsigned bytes)
{
	size_t v = 0;

	while (bytes-- > 0 && !r->more && !r->broken)
		v = v << 8 | next(r);
	return v;
}

static void skip(struct run *r, size_t n)
{
	while (n-- > 0 && !r->more && !r->broken)
		(void)next(r);
}

/* Takes n from what is left of the structure around; false when the structure is shorter. */
static bool take(struct run *r, size_t *left, size_t n)
{
	if (n > *left) {
		r->broken = true;
		return false;
	}
	*left -= n;
	return !r->more && !r->broken;
}

/* server_name: a list of (type, name); one name of type host_name at most. */
static void read_names(struct run *r, size_t ext, char *ret_name)
{
	char name[HOST_NAME_MAX_LEN + 1];
	size_t list;

	if (!take(r, &ext, 2))
		return;
	list = number(r, 2);
	if (r->more || list != ext || list == 0) {
		r->broken = r->broken || !r->more;
		return;
	}
	while (list > 0) {
		size_t type, n;

		if (!take(r, &list, 3))
			return;
		type = number(r, 1);
		n = number(r, 2);
		if (r->more || !take(r, &list, n))
			return;
		if (type != 0 || n == 0 || n > HOST_NAME_MAX_LEN || ret_name[0]) {
			r->broken = true;
			return;
		}
		for (size_t i = 0; i < n; i++)
			name[i] = (char)next(r);
		if (r->more || r->broken)
			return;
		if (host_name_parse(name, n, ret_name) < 0) {
			ret_name[0] = '\0';
			r->broken = true;
			return;
		}
	}
}

static void read_extensions(struct run *r, size_t left, char *ret_name)
{
	bool named = false;

	while (left > 0) {
		size_t type, n;

		if (!take(r, &left, 4))
			return;
		type = number(r, 2);
		n = number(r, 2);
		if (r->more || !take(r, &left, n))
			return;
		if (type == 0) {
			if (named) {
				r->broken = true;
				return;
			}
			named = true;
			read_names(r, n, ret_name);
		} else {
			skip(r, n);
		}
		if (r->more || r->broken)
			return;
	}
}

static enum sniff tls(const uint8_t *data, size_t n, char *ret_name)
{
	struct run r = { .data = data, .n = n };
	size_t left, len;

	if (number(&r, 1) != 1 && !r.more)	/* client_hello */
		r.broken = true;
	left = number(&r, 3);
	/* version, random */
	if (!r.more && take(&r, &left, 35)) {
		skip(&r, 34);
		len = number(&r, 1);	/* session id */
		if (!r.more && len > 32)
			r.broken = true;
		if (take(&r, &left, len))
			skip(&r, len);
	}
	for (unsigned bytes = 2; bytes > 0; bytes--) {	/* cipher suites, compression methods */
		if (r.more || r.broken || !take(&r, &left, bytes))
			break;
		len = number(&r, bytes);
		if (r.more || !take(&r, &left, len))
			break;
		if (len == 0 || (bytes == 2 && len % 2))
			r.broken = true;
		skip(&r, len);
	}
	/* A greeting without extensions has no name. */
	if (!r.more && !r.broken && left > 0 && take(&r, &left, 2)) {
		len = number(&r, 2);
		if (!r.more && len != left)
			r.broken = true;
		if (!r.more && !r.broken)
			read_extensions(&r, left, ret_name);
	}
	if (r.broken)
		return SNIFF_BAD;
	return r.more ? SNIFF_MORE : SNIFF_TLS;
}

/* ---------------------------------------------------------------- HTTP/1 (RFC 9112) */

static bool is_tchar(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* "host", "host:port", "1.2.3.4", "[v6]:port" into a name. False: neither. */
static bool authority(const char *s, size_t n, char *ret)
{
	char word[HOST_NAME_MAX_LEN + 16];
	struct ip a;
	size_t end = n;
	char *colon;

	if (n == 0 || n >= sizeof(word))
		return false;
	memcpy(word, s, n);
	word[n] = '\0';
	if (strlen(word) != n)
		return false;
	if (word[0] == '[') {
		char text[IP_TEXT_MAX], *close = strchr(word, ']');

		if (!close || (close[1] && close[1] != ':'))
			return false;
		for (const char *p = close + 1; *p; p++)
			if ((p > close + 1 && (*p < '0' || *p > '9')) || p - close > 6)
				return false;
		*close = '\0';
		if (!strchr(word + 1, ':') || ip_parse(word + 1, &a) < 0)
			return false;
		memcpy(ret, ip_text(&a, text), sizeof(text));
		return true;
	}
	colon = strchr(word, ':');
	if (colon) {
		for (const char *p = colon + 1; *p; p++)
			if (*p < '0' || *p > '9' || p - colon > 5)
				return false;
		*colon = '\0';
		end = (size_t)(colon - word);
	}
	/* One final dot is a way to write the same name. */
	if (end > 1 && word[end - 1] == '.')
		word[--end] = '\0';
	return host_name_parse(word, end, ret) == 0;
}

struct line {
	const char *s;
	size_t n;	/* without its end */
};

/* 1: a line; 0: more is needed. Lines end with LF; a CR before it belongs to the end, as servers read it. */
static int line_next(const char **p, const char *end, struct line *ret)
{
	const char *lf = memchr(*p, '\n', (size_t)(end - *p));

	if (!lf)
		return 0;
	ret->s = *p;
	ret->n = (size_t)(lf - *p);
	if (ret->n > 0 && ret->s[ret->n - 1] == '\r')
		ret->n--;
	*p = lf + 1;
	return 1;
}

/* The request line; the authority in it, if it has one, goes into ret_name. 1: good, 0: not HTTP/1, -1: bad. */
static int request_line(const struct line *l, char *ret_name)
{
	const char *sp = memchr(l->s, ' ', l->n), *end = l->s + l->n, *target, *last, *slash;
	size_t n;

	if (!sp)
		return -1;
	target = sp + 1;
	last = memchr(target, ' ', (size_t)(end - target));
	if (!last || last == target || end - last != 9 || memcmp(last, " HTTP/1.", 8) != 0 || (end[-1] != '0' && end[-1] != '1'))
		return -1;
	n = (size_t)(last - target);
	for (size_t i = 0; i < n; i++)
		if ((uint8_t)target[i] <= 0x20 || (uint8_t)target[i] == 0x7f)
			return -1;
	if (sp - l->s == 7 && memcmp(l->s, "CONNECT", 7) == 0)
		return authority(target, n, ret_name) ? 1 : -1;
	if (target[0] == '/' || (n == 1 && target[0] == '*'))
		return 1;
	if (n > 7 && strncasecmp(target, "http://", 7) == 0)
		target += 7;
	else if (n > 8 && strncasecmp(target, "https://", 8) == 0)
		target += 8;
	else
		return -1;
	slash = target;
	while (slash < last && !strchr("/?#", *slash))
		slash++;
	/* A user in front of the host has no place here (RFC 9110, 4.2.4), and is a way to mislead. */
	return authority(target, (size_t)(slash - target), ret_name) ? 1 : -1;
}

static enum sniff http(const char *data, size_t n, char *ret_name)
{
	const char *p = data, *end = data + n;
	char line_name[HOST_NAME_MAX_LEN + 1] = "";
	struct line l;
	bool host = false;

	if (!line_next(&p, end, &l))
		return SNIFF_MORE;
	if (request_line(&l, line_name) < 0)
		return SNIFF_BAD;
	for (;;) {
		const char *colon;
		size_t name_len;

		if (!line_next(&p, end, &l))
			return SNIFF_MORE;
		if (l.n == 0)
			break;
		if (memchr(l.s, '\r', l.n) || memchr(l.s, '\0', l.n))
			return SNIFF_BAD;
		/* A line that goes on (obs-fold) or a name followed by blanks is read differently by different servers. */
		colon = memchr(l.s, ':', l.n);
		name_len = colon ? (size_t)(colon - l.s) : 0;
		if (name_len == 0)
			return SNIFF_BAD;
		for (size_t i = 0; i < name_len; i++)
			if (!is_tchar((uint8_t)l.s[i]))
				return SNIFF_BAD;
		if (name_len != 4 || strncasecmp(l.s, "host", 4) != 0)
			continue;
		if (host)
			return SNIFF_BAD;
		host = true;
		const char *v = colon + 1, *v_end = l.s + l.n;
		while (v < v_end && (*v == ' ' || *v == '\t'))
			v++;
		while (v_end > v && (v_end[-1] == ' ' || v_end[-1] == '\t'))
			v_end--;
		if (v < v_end && !authority(v, (size_t)(v_end - v), ret_name))
			return SNIFF_BAD;
	}
	if (line_name[0]) {
		if (host && strcmp(line_name, ret_name) != 0)
			return SNIFF_BAD;
		memcpy(ret_name, line_name, sizeof(line_name));
	}
	return SNIFF_HTTP;
}

/* Does the line speak of HTTP, in whatever case and place? Servers read request lines more generously than they should. */
static bool speaks_http(const char *s, size_t n)
{
	for (size_t i = 0; i + 5 <= n; i++)
		if (strncasecmp(s + i, "HTTP/", 5) == 0)
			return true;
	return false;
}

/*
 * SNIFF_MORE, SNIFF_OTHER, or SNIFF_HTTP: it has to be read as HTTP. What some server takes for HTTP must not be "other" here, so
 * this looks for less than the rules ask for; http() is strict.
 */
static enum sniff looks_like_http(const char *d, size_t n)
{
	size_t method = 0;
	const char *lf;

	while (method < n && method < METHOD_MAX && is_tchar((uint8_t)d[method]))
		method++;
	if (method == n && method < METHOD_MAX)
		return SNIFF_MORE;
	/* A method is followed by a blank and a target; a line that isn't that is another protocol ("SSH-2.0-…"). */
	if (method == 0 || method == METHOD_MAX || (d[method] != ' ' && d[method] != '\t'))
		return SNIFF_OTHER;
	lf = memchr(d, '\n', n);
	/* No server reads on behind a NUL; git does: "git-upload-pack /x\0host=…", and then waits for an answer. */
	if (memchr(d, '\0', lf ? (size_t)(lf - d) : n))
		return SNIFF_OTHER;
	if (!lf)
		return SNIFF_MORE;
	/* "HELO me", "USER x": no HTTP version. */
	return speaks_http(d, (size_t)(lf - d)) ? SNIFF_HTTP : SNIFF_OTHER;
}

static enum sniff look(const uint8_t *d, size_t n, char *ret_name)
{
	static const char h2[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	size_t blank = 0, same = n < sizeof(h2) - 1 ? n : sizeof(h2) - 1;
	enum sniff r;

	if (n == 0)
		return SNIFF_MORE;
	/*
	 * Records: change of cipher, alert, handshake, data. Anything may begin with such a byte; a record goes on with its
	 * version, of which servers look at the first half only.
	 */
	if (d[0] >= 20 && d[0] <= 23) {
		if (n < 2)
			return SNIFF_MORE;
		if (d[1] != 3)
			return SNIFF_OTHER;
		/* No client begins with another record than a greeting, but there are servers that read over it. */
		return d[0] == 22 ? tls(d, n, ret_name) : SNIFF_BAD;
	}
	if (memcmp(d, h2, same) == 0 && same >= 4)
		return same < sizeof(h2) - 1 ? SNIFF_MORE : SNIFF_OTHER;
	/* Servers read over empty lines in front of a request (RFC 9112, 2.2). */
	while (blank < n && (d[blank] == '\r' || d[blank] == '\n'))
		blank++;
	if (blank == n)
		return SNIFF_MORE;
	r = looks_like_http((const char *)d + blank, n - blank);
	return r == SNIFF_HTTP ? http((const char *)d + blank, n - blank, ret_name) : r;
}

enum sniff sniff(const void *data, size_t n, char *ret_name)
{
	char name[HOST_NAME_MAX_LEN + 1] = "";
	enum sniff r = look(data, n < SNIFF_MAX ? n : SNIFF_MAX, name);

	ret_name[0] = '\0';
	if (r == SNIFF_MORE && n >= SNIFF_MAX)
		return SNIFF_BAD;
	if (r == SNIFF_TLS || r == SNIFF_HTTP)
		memcpy(ret_name, name, sizeof(name));
	return r;
}
