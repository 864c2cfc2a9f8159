/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CONF_H
#define BASE_CONF_H

/*
 * cubby.conf(5): lines of `key = value`. '#' begins a comment at the start of a line or a value and after a blank. A key stands at
 * most once. The file is read whole or refused whole: a setting that was misread is worse than none.
 * The settings are the rows of base/conf.def.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define CONF_FILE_MAX 65536u	/* bytes of the whole file */
#define CONF_TEXT_MAX 512u	/* bytes of one value */

enum conf_id {
#define CONF(id, key, kind, least, most, dflt, help) CONF_##id,
#include "base/conf.def"
#undef CONF
	CONF_COUNT
};

/* The grammar of a value; base/parse.h has the details. */
enum conf_kind {
	CONF_IS_NAME,	/* name_ok() */
	CONF_IS_WORD,	/* 1–63 printable characters, no blanks, not beginning with '-' */
	CONF_IS_LIST,	/* words, separated by blanks or commas; may be empty */
	CONF_IS_SIZE,	/* parse_size() */
	CONF_IS_SIZE_AUTO,
	CONF_IS_COUNT,	/* parse_u64() */
	CONF_IS_COUNT_AUTO,
	CONF_IS_CPUS,	/* parse_cpus() */
	CONF_IS_DURATION,	/* parse_duration(), or "off" which is 0 */
	CONF_IS_PATH_AUTO,	/* an absolute path without "..", or "auto" */
	CONF_IS_TEXT,		/* printable ASCII; who uses it knows its grammar */
};

/* One row of the table. */
struct conf_key {
	const char *key;
	enum conf_kind kind;
	uint64_t least, most;
	const char *dflt;
	const char *help;
};
extern const struct conf_key conf_keys[CONF_COUNT];

struct conf_value {
	char text[CONF_TEXT_MAX];	/* as written, blanks at both ends removed */
	uint64_t num;			/* bytes, milliseconds, thousandths of a CPU, or the count */
	bool is_auto;			/* `num` is 0 then: ask one of the functions at the end */
	unsigned line;			/* in the file; 0: the default */
};

struct conf {
	char path[4096];	/* the file that was read, or "" */
	struct conf_value v[CONF_COUNT];
};

/* Every setting at its default. */
void conf_init(struct conf *ret);

/*
 * Defaults, then the file. A missing file is no error (path NULL: no file is looked for). The file must be a regular one, of root or
 * of the caller, that nobody else can write: it steers a daemon that may be root. -EINVAL with the line in the
 * text; `ret` is untouched on failure.
 */
int conf_load(const char *path, struct conf *ret, struct err *e);

/* The same for text at hand. `path` is for messages. */
int conf_parse(const char *path, const char *text, size_t n, struct conf *ret, struct err *e);

/*
 * Where the file is when nobody says: CUBBY_CONFIG, else for root /etc/cubby/cubby.conf, for a user
 * $XDG_CONFIG_HOME/cubby/cubby.conf or $HOME/.config/cubby/cubby.conf. Returns 0, or -ENOENT when a user has neither.
 */
int conf_path(char *ret, size_t n);

/* Getters. The kind is asserted: asking for a number where there is a word is a bug of ours. */
const char *conf_text(const struct conf *c, enum conf_id id);
uint64_t conf_num(const struct conf *c, enum conf_id id);	/* 0 for "auto" */
bool conf_auto(const struct conf *c, enum conf_id id);
/* Is `word` one of a list? */
bool conf_has(const struct conf *c, enum conf_id id, const char *word);
/* The i-th word of a list into ret (room for n). False when there are not so many. */
bool conf_word(const struct conf *c, enum conf_id id, unsigned i, char *ret, size_t n);

/* Every setting in the table's order. source: "default" or "FILE:LINE"; valid during the call. */
typedef void conf_fn(const struct conf_key *key, const struct conf_value *value, const char *source, void *arg);
void conf_each(const struct conf *c, conf_fn *each, void *arg);

/* What "auto" stands for here. */
uint64_t conf_memory(const struct conf *c);	/* bytes; 0: no limit */
unsigned conf_builders(const struct conf *c);	/* 1–64 */
/*
 * The range of ids for boxes. subuid: the file to look into (NULL: /etc/subuid), for the line of `user` (or of the number
 * uid; see subuid(5)). The first line that holds BOX_IDS ids or more counts. Root without such a line gets
 * 1000000000 and as many ids; anybody else gets -ENOENT with the remedy. Settings in the file win over the line.
 */
int conf_ids(const struct conf *c, const char *subuid, const char *user, uid_t uid, uint32_t *ret_base, uint32_t *ret_count,
	     struct err *e);

#endif
