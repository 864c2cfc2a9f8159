/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's own proxy: HTTP CONNECT (RFC 9110, 9.3.6) or SOCKS 5 (RFC 1928, 1929). It is given the address that was judged, never a name,
 * so that what it connects to is what was allowed. Its answer is passed on: a no is a refusal, and connect() in the box waits for it.
 */
#include "net/gateway.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_MAX = 8192, OUT_MAX = 1024 };

struct proxy_talk {
	enum { HTTP_HEAD, SOCKS_METHOD, SOCKS_AUTH, SOCKS_REPLY } at;
};

static void base64(struct buf *to, const char *s, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		unsigned v = (unsigned)(uint8_t)s[i] << 16 | (i + 1 < n ? (unsigned)(uint8_t)s[i + 1] << 8 : 0) |
			     (i + 2 < n ? (unsigned)(uint8_t)s[i + 2] : 0);

		(void)buf_putc(to, digits[v >> 18]);
		(void)buf_putc(to, digits[v >> 12 & 63]);
		(void)buf_putc(to, i + 1 < n ? digits[v >> 6 & 63] : '=');
		(void)buf_putc(to, i + 2 < n ? digits[v & 63] : '=');
	}
}

/* A fresh connection takes a few hundred bytes at once; one that doesn't is not worth waiting for. */
static bool say(struct conn *c, const void *data, size_t n)
{
	if (send(c->fd[1], data, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
		return true;
	conn_fail(c, -EHOSTUNREACH);
	return false;
}

void proxy_begin(struct conn *c)
{
	const struct proxy *p = &c->t.box->g->proxy;
	OWN_BUF out = BUF_INIT(OUT_MAX * 4);
	char ip[IP_TEXT_MAX];
	const char *l = ip_is4(&c->t.addr) ? "" : "[", *r = *l ? "]" : "";

	c->proxy = calloc(1, sizeof(*c->proxy));
	if (!c->proxy) {
		conn_fail(c, -ENOMEM);
		return;
	}
	c->state = CONN_PROXY;
	if (p->kind == PROXY_SOCKS5) {
		const uint8_t hello[] = { 5, p->user[0] ? 2 : 1, 0, 2 };

		c->proxy->at = SOCKS_METHOD;
		(void)say(c, hello, p->user[0] ? 4 : 3);
		return;
	}
	c->proxy->at = HTTP_HEAD;
	(void)ip_text(&c->t.addr, ip);
	(void)buf_printf(&out, "CONNECT %s%s%s:%u HTTP/1.1\r\nHost: %s%s%s:%u\r\n", l, ip, r, c->t.port, l, ip, r, c->t.port);
	if (p->user[0]) {
		char both[sizeof(p->user) + sizeof(p->pass)];
		int n = snprintf(both, sizeof(both), "%s:%s", p->user, p->pass);

		(void)buf_puts(&out, "Proxy-Authorization: Basic ");
		base64(&out, both, (size_t)n);
		(void)buf_puts(&out, "\r\n");
	}
	(void)buf_puts(&out, "\r\n");
	if (buf_error(&out))
		conn_fail(c, -ENOMEM);
	else
		(void)say(c, out.data, out.len);
}

void proxy_done(struct conn *c)
{
	free(c->proxy);
	c->proxy = NULL;
}

static void tunnel(struct conn *c)
{
	proxy_done(c);
	conn_go_on(c);
}

/* n bytes exactly: 1 they are in buf, 0 not yet, -1 c is ended. They are taken when `take`. */
static int need(struct conn *c, uint8_t *buf, size_t n, bool take)
{
	ssize_t k = recv(c->fd[1], buf, n, MSG_PEEK | MSG_DONTWAIT);

	if (k == (ssize_t)n) {
		if (take)
			(void)!recv(c->fd[1], buf, n, MSG_DONTWAIT);
		return 1;
	}
	if (k > 0 && !c->ended[1])
		return 0;
	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	conn_fail(c, -EHOSTUNREACH);
	return -1;
}

static void http_head(struct conn *c)
{
	uint8_t *buf = c->t.box->g->buf;
	ssize_t n = recv(c->fd[1], buf, HEAD_MAX, MSG_PEEK | MSG_DONTWAIT);
	const char *end;
	int status;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	end = n > 0 ? memmem(buf, (size_t)n, "\r\n\r\n", 4) : NULL;
	if (!end) {
		if (n <= 0 || n == HEAD_MAX || c->ended[1])
			conn_fail(c, -EHOSTUNREACH);
		return;
	}
	if (memcmp(buf, "HTTP/1.", 7) != 0 || buf[8] != ' ' || n < 12) {
		conn_fail(c, -EHOSTUNREACH);
		return;
	}
	status = buf[9] >= '1' && buf[9] <= '5' ? (buf[9] - '0') * 100 + (buf[10] - '0') * 10 + (buf[11] - '0') : 0;
	/* What stands behind the head is the far end's already. */
	(void)!recv(c->fd[1], buf, (size_t)(end + 4 - (const char *)buf), MSG_DONTWAIT);
	if (status >= 200 && status < 300)
		tunnel(c);
	else if (status == 504)
		conn_fail(c, -ETIMEDOUT);
	else if (status == 502 || status == 503 || status == 0)
		conn_fail(c, -EHOSTUNREACH);
	else
		conn_fail(c, -ECONNREFUSED);
}

static bool socks_connect(struct conn *c)
{
	uint8_t q[32] = { 5, 1, 0 };
	const bool four = ip_is4(&c->t.addr);
	size_t n = 4;

	q[3] = four ? 1 : 4;
	memcpy(q + n, four ? c->t.addr.b + 12 : c->t.addr.b, four ? 4 : 16);
	n += four ? 4 : 16;
	q[n++] = (uint8_t)(c->t.port >> 8);
	q[n++] = (uint8_t)c->t.port;
	c->proxy->at = SOCKS_REPLY;
	return say(c, q, n);
}

static bool socks_auth(struct conn *c)
{
	const struct proxy *p = &c->t.box->g->proxy;
	uint8_t q[3 + 255 + 255];
	size_t nu = strlen(p->user), np = strlen(p->pass), n = 0;

	q[n++] = 1;
	q[n++] = (uint8_t)nu;
	memcpy(q + n, p->user, nu);
	n += nu;
	q[n++] = (uint8_t)np;
	memcpy(q + n, p->pass, np);
	n += np;
	c->proxy->at = SOCKS_AUTH;
	return say(c, q, n);
}

static int socks_code(uint8_t rep)
{
	switch (rep) {
	case 2:
	case 5:
		return -ECONNREFUSED;
	case 3:
		return -ENETUNREACH;
	case 6:
		return -ETIMEDOUT;
	default:
		return -EHOSTUNREACH;
	}
}

void proxy_ready(struct conn *c)
{
	uint8_t b[4 + 1 + 255 + 2];

	for (;;) {
		switch (c->proxy->at) {
		case HTTP_HEAD:
			http_head(c);
			return;
		case SOCKS_METHOD:
			if (need(c, b, 2, true) <= 0)
				return;
			if (b[0] != 5 || (b[1] != 0 && !(b[1] == 2 && c->t.box->g->proxy.user[0]))) {
				conn_fail(c, -ECONNREFUSED);
				return;
			}
			if (!(b[1] == 2 ? socks_auth(c) : socks_connect(c)))
				return;
			break;
		case SOCKS_AUTH:
			if (need(c, b, 2, true) <= 0)
				return;
			if (b[1] != 0) {
				conn_fail(c, -ECONNREFUSED);
				return;
			}
			if (!socks_connect(c))
				return;
			break;
		case SOCKS_REPLY: {
			size_t n;

			if (need(c, b, 5, false) <= 0)
				return;
			n = 4 + 2 + (b[3] == 1 ? 4u : b[3] == 4 ? 16u : 1u + b[4]);
			if (b[0] != 5 || b[1] != 0) {
				conn_fail(c, b[0] != 5 ? -EHOSTUNREACH : socks_code(b[1]));
				return;
			}
			if (need(c, b, n, true) <= 0)
				return;
			tunnel(c);
			return;
		}
		default:
			return;
		}
	}
}
