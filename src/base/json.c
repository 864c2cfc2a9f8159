/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/*
 * Memory: one chain of blocks per document. Nodes and strings are cut from it and go in one call.
 */
struct block {
	struct block *prev;
	size_t used, room;
	_Alignas(16) char data[];
};

struct parser {
	const char *at, *end, *start;
	struct block *mem;
	const char *what;	/* the complaint */
	bool no_memory;
};

static void *cut(struct parser *p, size_t n)
{
	struct block *b = p->mem;

	n = (n + 15) & ~(size_t)15;
	if (!b || b->room - b->used < n) {
		size_t room = n > 4000 ? n : 4000;

		b = malloc(sizeof(*b) + room);
		if (!b) {
			p->no_memory = true;
			return NULL;
		}
		b->prev = p->mem;
		b->used = 0;
		b->room = room;
		p->mem = b;
	}
	b->used += n;
	return b->data + b->used - n;
}

static void blocks_free(struct block *b)
{
	while (b) {
		struct block *prev = b->prev;

		free(b);
		b = prev;
	}
}

static bool complain(struct parser *p, const char *what)
{
	if (!p->what)
		p->what = what;
	return false;
}

static void blanks(struct parser *p)
{
	while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
		p->at++;
}

static int hex4(struct parser *p)
{
	int v = 0;

	if (p->end - p->at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = *p->at++;

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= c - '0';
		else if (c >= 'a' && c <= 'f')
			v |= c - 'a' + 10;
		else if (c >= 'A' && c <= 'F')
			v |= c - 'A' + 10;
		else
			return -1;
	}
	return v;
}

/* After the backslash and the 'u'. Returns the bytes written to `to`, or 0 after a complaint. */
static size_t unescape_u(struct parser *p, char *to)
{
	int hi = hex4(p), lo;
	uint32_t cp;

	if (hi < 0)
		return complain(p, "a \\u escape needs four hex digits"), 0;
	if (hi == 0)
		return complain(p, "a string holds a NUL"), 0;
	cp = (uint32_t)hi;
	if (hi >= 0xDC00 && hi <= 0xDFFF)
		return complain(p, "a lone surrogate"), 0;
	if (hi >= 0xD800 && hi <= 0xDBFF) {
		if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
			return complain(p, "a lone surrogate"), 0;
		p->at += 2;
		lo = hex4(p);
		if (lo < 0xDC00 || lo > 0xDFFF)
			return complain(p, "a lone surrogate"), 0;
		cp = 0x10000 + (((uint32_t)hi - 0xD800) << 10) + ((uint32_t)lo - 0xDC00);
	}
	return utf8_put(to, cp);
}

static bool parse_string(struct parser *p, const char **ret)
{
	const char *q;
	char *to, *w;

	if (p->at >= p->end || *p->at != '"')
		return complain(p, "a string is expected");
	p->at++;
	/* An escape never makes a string longer, so the distance to the closing quote is enough. */
	for (q = p->at; q < p->end && *q != '"'; q++)
		if (*q == '\\')
			q++;
	if (q >= p->end)
		return complain(p, "a string does not end");
	to = w = cut(p, (size_t)(q - p->at) + 1);
	if (!to)
		return false;
	while (*p->at != '"') {
		unsigned char c = (unsigned char)*p->at;
		size_t k;

		if (c < 0x20)
			return complain(p, "a control character in a string");
		if (c != '\\') {
			k = utf8_one(p->at, (size_t)(q - p->at), NULL);
			if (k == 0)
				return complain(p, "a string is not valid UTF-8");
			memcpy(w, p->at, k);
			w += k;
			p->at += k;
			continue;
		}
		p->at++;
		c = (unsigned char)*p->at++;
		switch (c) {
		case '"':
		case '\\':
		case '/':
			*w++ = (char)c;
			break;
		case 'b':
			*w++ = '\b';
			break;
		case 'f':
			*w++ = '\f';
			break;
		case 'n':
			*w++ = '\n';
			break;
		case 'r':
			*w++ = '\r';
			break;
		case 't':
			*w++ = '\t';
			break;
		case 'u':
			k = unescape_u(p, w);
			if (k == 0)
				return false;
			w += k;
			break;
		default:
			return complain(p, "an unknown escape");
		}
	}
	p->at++;
	*w = '\0';
	*ret = to;
	return true;
}

static bool parse_number(struct parser *p, struct json *v)
{
	const char *from = p->at;
	bool real = false;
	char tmp[64];
	size_t n;

	if (p->at < p->end && *p->at == '-')
		p->at++;
	if (p->at >= p->end || *p->at < '0' || *p->at > '9')
		return complain(p, "a value is expected");
	if (*p->at == '0')
		p->at++;
	else
		while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
			p->at++;
	if (p->at < p->end && *p->at == '.') {
		real = true;
		p->at++;
		if (p->at >= p->end || *p->at < '0' || *p->at > '9')
			return complain(p, "digits are expected after the point");
		while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
			p->at++;
	}
	if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
		real = true;
		p->at++;
		if (p->at < p->end && (*p->at == '+' || *p->at == '-'))
			p->at++;
		if (p->at >= p->end || *p->at < '0' || *p->at > '9')
			return complain(p, "digits are expected in the exponent");
		while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
			p->at++;
	}
	n = (size_t)(p->at - from);
	if (n >= sizeof(tmp))
		return complain(p, "a number is too long");
	memcpy(tmp, from, n);
	tmp[n] = '\0';
	errno = 0;
	if (!real) {
		v->num = strtoll(tmp, NULL, 10);
		v->type = JSON_INT;
		v->real = (double)v->num;
		if (errno == 0)
			return true;
	}
	v->type = JSON_REAL;
	v->real = strtod(tmp, NULL);
	v->num = 0;
	if (!isfinite(v->real))
		return complain(p, "a number is out of range");
	return true;
}

static bool literal(struct parser *p, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
		return complain(p, "a value is expected");
	p->at += n;
	return true;
}

static bool parse_value(struct parser *p, struct json *v, int depth);

static bool member_is_new(const struct json *obj, const char *key)
{
	for (const struct json *m = obj->child; m; m = m->next)
		if (m->key && strcmp(m->key, key) == 0)
			return false;
	return true;
}

/* Arrays and objects differ in the closing bracket and in the keys. */
static bool parse_members(struct parser *p, struct json *v, bool object, int depth)
{
	char close = object ? '}' : ']';
	struct json **link = &v->child;

	if (depth >= JSON_DEPTH_MAX)
		return complain(p, "nested too deep");
	v->type = object ? JSON_OBJECT : JSON_ARRAY;
	p->at++;
	blanks(p);
	if (p->at < p->end && *p->at == close) {
		p->at++;
		return true;
	}
	for (;;) {
		struct json *m = cut(p, sizeof(*m));

		if (!m)
			return false;
		memset(m, 0, sizeof(*m));
		blanks(p);
		if (object) {
			if (!parse_string(p, &m->key))
				return false;
			if (!member_is_new(v, m->key))
				return complain(p, "a key stands twice");
			blanks(p);
			if (p->at >= p->end || *p->at != ':')
				return complain(p, "a ':' is expected");
			p->at++;
			blanks(p);
		}
		if (!parse_value(p, m, depth + 1))
			return false;
		*link = m;
		link = &m->next;
		v->count++;
		blanks(p);
		if (p->at < p->end && *p->at == ',') {
			p->at++;
			continue;
		}
		if (p->at < p->end && *p->at == close) {
			p->at++;
			return true;
		}
		return complain(p, object ? "a ',' or '}' is expected" : "a ',' or ']' is expected");
	}
}

static bool parse_value(struct parser *p, struct json *v, int depth)
{
	if (p->at >= p->end)
		return complain(p, "a value is expected");
	switch (*p->at) {
	case '{':
		return parse_members(p, v, true, depth);
	case '[':
		return parse_members(p, v, false, depth);
	case '"':
		v->type = JSON_STRING;
		return parse_string(p, &v->str);
	case 't':
		v->type = JSON_BOOL;
		v->num = 1;
		return literal(p, "true");
	case 'f':
		v->type = JSON_BOOL;
		return literal(p, "false");
	case 'n':
		v->type = JSON_NULL;
		return literal(p, "null");
	default:
		return parse_number(p, v);
	}
}

int json_parse(const char *text, size_t n, struct json_doc *ret_doc, struct err *e)
{
	struct parser p = { .at = text, .start = text, .end = text + n };
	struct json *root = cut(&p, sizeof(*root));

	if (root) {
		memset(root, 0, sizeof(*root));
		blanks(&p);
		if (parse_value(&p, root, 0)) {
			blanks(&p);
			if (p.at == p.end) {
				ret_doc->root = root;
				ret_doc->mem = p.mem;
				return 0;
			}
			(void)complain(&p, "there is more after the value");
		}
	}
	blocks_free(p.mem);
	if (p.no_memory)
		return err_set(e, -ENOMEM, "cannot hold the JSON text");
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "not JSON at byte %zu: %s", (size_t)(p.at - p.start),
		       p.what ? p.what : "malformed");
}

void json_doc_done(struct json_doc *doc)
{
	blocks_free(doc->mem);
	doc->mem = NULL;
	doc->root = NULL;
}

const struct json *json_get(const struct json *obj, const char *key)
{
	if (!obj || obj->type != JSON_OBJECT)
		return NULL;
	for (const struct json *m = obj->child; m; m = m->next)
		if (strcmp(m->key, key) == 0)
			return m;
	return NULL;
}

const char *json_str(const struct json *obj, const char *key, const char *dflt)
{
	const struct json *v = json_get(obj, key);

	return v && v->type == JSON_STRING ? v->str : dflt;
}

int64_t json_int(const struct json *obj, const char *key, int64_t dflt)
{
	const struct json *v = json_get(obj, key);

	return v && v->type == JSON_INT ? v->num : dflt;
}

bool json_bool(const struct json *obj, const char *key, bool dflt)
{
	const struct json *v = json_get(obj, key);

	return v && v->type == JSON_BOOL ? v->num != 0 : dflt;
}

void json_out_init(struct json_out *o, struct buf *to)
{
	o->to = to;
	o->comma = false;
}

static void put_quoted(struct buf *b, const char *s)
{
	size_t n = strlen(s);

	(void)buf_putc(b, '"');
	while (n > 0) {
		unsigned char c = (unsigned char)*s;
		size_t k;

		if (c == '"' || c == '\\') {
			(void)buf_printf(b, "\\%c", c);
			k = 1;
		} else if (c < 0x20 || c == 0x7f) {
			(void)buf_printf(b, "\\u%04x", c);
			k = 1;
		} else {
			k = utf8_one(s, n, NULL);
			if (k == 0) {
				(void)buf_puts(b, "\xEF\xBF\xBD");
				k = 1;
			} else {
				(void)buf_put(b, s, k);
			}
		}
		s += k;
		n -= k;
	}
	(void)buf_putc(b, '"');
}

static void lead(struct json_out *o, const char *key)
{
	if (o->comma)
		(void)buf_putc(o->to, ',');
	o->comma = true;
	if (key) {
		put_quoted(o->to, key);
		(void)buf_putc(o->to, ':');
	}
}

void json_put_obj(struct json_out *o, const char *key)
{
	lead(o, key);
	(void)buf_putc(o->to, '{');
	o->comma = false;
}

void json_end_obj(struct json_out *o)
{
	(void)buf_putc(o->to, '}');
	o->comma = true;
}

void json_put_arr(struct json_out *o, const char *key)
{
	lead(o, key);
	(void)buf_putc(o->to, '[');
	o->comma = false;
}

void json_end_arr(struct json_out *o)
{
	(void)buf_putc(o->to, ']');
	o->comma = true;
}

void json_put_str(struct json_out *o, const char *key, const char *val)
{
	lead(o, key);
	if (val)
		put_quoted(o->to, val);
	else
		(void)buf_puts(o->to, "null");
}

void json_put_int(struct json_out *o, const char *key, int64_t val)
{
	lead(o, key);
	(void)buf_printf(o->to, "%lld", (long long)val);
}

void json_put_real(struct json_out *o, const char *key, double val)
{
	lead(o, key);
	if (isfinite(val))
		(void)buf_printf(o->to, "%.6g", val);
	else
		(void)buf_puts(o->to, "null");
}

void json_put_bool(struct json_out *o, const char *key, bool val)
{
	lead(o, key);
	(void)buf_puts(o->to, val ? "true" : "false");
}

void json_put_null(struct json_out *o, const char *key)
{
	lead(o, key);
	(void)buf_puts(o->to, "null");
}

void json_put_raw(struct json_out *o, const char *key, const char *json, size_t n)
{
	lead(o, key);
	(void)buf_put(o->to, json, n);
}

void json_put_value(struct json_out *o, const char *key, const struct json *val)
{
	char number[32];

	switch (val->type) {
	case JSON_NULL:
		json_put_null(o, key);
		break;
	case JSON_BOOL:
		json_put_bool(o, key, val->num != 0);
		break;
	case JSON_INT:
		json_put_int(o, key, val->num);
		break;
	case JSON_REAL:
		lead(o, key);
		(void)snprintf(number, sizeof(number), "%.17g", val->real);
		/* "100" would be read as an integer again, which 1e2 is not. */
		(void)buf_printf(o->to, "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
		break;
	case JSON_STRING:
		json_put_str(o, key, val->str);
		break;
	case JSON_ARRAY:
		json_put_arr(o, key);
		for (const struct json *m = val->child; m; m = m->next)
			json_put_value(o, NULL, m);
		json_end_arr(o);
		break;
	case JSON_OBJECT:
		json_put_obj(o, key);
		for (const struct json *m = val->child; m; m = m->next)
			json_put_value(o, m->key, m);
		json_end_obj(o);
		break;
	}
}
