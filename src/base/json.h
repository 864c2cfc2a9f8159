/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

/*
 * JSON (RFC 8259) for the thin programs, which start in microseconds and can't carry a library, and for
 * the daemon, so that both ends read the same dialect.
 *
 * Reading is strict: one value, nothing after it, valid UTF-8, no control characters or NUL in strings
 * (\u0000 is refused, so that a string here is a C string), lone surrogates refused, duplicate keys
 * refused, at most JSON_DEPTH_MAX levels.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define JSON_DEPTH_MAX 64

enum json_type { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_type type;
	const char *key;	/* in an object; else NULL */
	const char *str;	/* JSON_STRING: terminated */
	int64_t num;		/* JSON_INT, JSON_BOOL */
	double real;		/* JSON_REAL, and JSON_INT as well */
	struct json *child;	/* first member of an array or object */
	struct json *next;	/* next member */
	size_t count;		/* members */
};

/* One parsed document. Everything inside lives until json_doc_done(). */
struct json_doc {
	struct json *root;
	void *mem;	/* the allocation that holds all of it */
};

/* -EINVAL with the byte offset in the text for anything not strictly JSON; -ENOMEM. */
int json_parse(const char *text, size_t n, struct json_doc *ret_doc, struct err *e);
void json_doc_done(struct json_doc *doc);
#define OWN_JSON __attribute__((cleanup(json_doc_done))) struct json_doc

/* Looking things up. All accept NULL, and return the default when the member is missing or of another type. */
const struct json *json_get(const struct json *obj, const char *key);
const char *json_str(const struct json *obj, const char *key, const char *dflt);
int64_t json_int(const struct json *obj, const char *key, int64_t dflt);
bool json_bool(const struct json *obj, const char *key, bool dflt);

/*
 * Writing. Each call takes the key when inside an object, or NULL inside an array or at the top.
 * Commas are taken care of. Bytes of a string that aren't valid UTF-8 are written as U+FFFD: a box
 * can name its files as it likes.
 */
struct json_out {
	struct buf *to;
	bool comma;
};

void json_out_init(struct json_out *o, struct buf *to);
void json_put_obj(struct json_out *o, const char *key);
void json_end_obj(struct json_out *o);
void json_put_arr(struct json_out *o, const char *key);
void json_end_arr(struct json_out *o);
void json_put_str(struct json_out *o, const char *key, const char *val);	/* NULL is written as null */
void json_put_int(struct json_out *o, const char *key, int64_t val);
void json_put_real(struct json_out *o, const char *key, double val);	/* 6 digits; not finite: null */
void json_put_bool(struct json_out *o, const char *key, bool val);
void json_put_null(struct json_out *o, const char *key);
void json_put_raw(struct json_out *o, const char *key, const char *json, size_t n); /* already JSON */
void json_put_value(struct json_out *o, const char *key, const struct json *val);   /* a parsed value again */

#endif
