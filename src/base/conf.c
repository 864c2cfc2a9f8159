/* SPDX-License-Identifier: Apache-2.0 */
#include "base/conf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/parse.h"


const struct conf_key conf_keys[CONF_COUNT] = {
#define CONF(id, word, kind_, least_, most_, dflt_, help_) \
	[CONF_##id] = { .key = word, .kind = CONF_IS_##kind_, .least = least_, .most = most_, .dflt = dflt_, .help = help_ },
#include "base/conf.def"
#undef CONF
};

static bool may_be_auto(enum conf_kind kind)
{
	return kind == CONF_IS_SIZE_AUTO || kind == CONF_IS_COUNT_AUTO || kind == CONF_IS_PATH_AUTO;
}

static bool printable_word(const char *s, size_t n)
{
	if (n == 0 || n > 63 || s[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || s[i] == ',' || s[i] == ':')
			return false;
	return true;
}

#define SEPARATORS " \t,"

static bool list_ok(const char *s)
{
	for (s += strspn(s, SEPARATORS); *s; s += strspn(s, SEPARATORS)) {
		size_t n = strcspn(s, SEPARATORS);

		if (!printable_word(s, n))
			return false;
		s += n;
	}
	return true;
}

static bool path_ok(const char *s)
{
	size_t n = strlen(s);

	if (s[0] != '/' || strstr(s, "/../") || (n >= 3 && strcmp(s + n - 3, "/..") == 0))
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

static bool text_ok(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			return false;
	return true;
}

/* What to write instead, for messages. */
static const char *grammar(enum conf_kind kind)
{
	switch (kind) {
	case CONF_IS_NAME:
		return NAME_RULE;
	case CONF_IS_WORD:
		return "one word";
	case CONF_IS_LIST:
		return "words, separated by blanks or commas";
	case CONF_IS_SIZE:
		return "a size such as 512M or 2G";
	case CONF_IS_SIZE_AUTO:
		return "a size such as 512M or 2G, or auto";
	case CONF_IS_COUNT:
		return "a number";
	case CONF_IS_COUNT_AUTO:
		return "a number, or auto";
	case CONF_IS_CPUS:
		return "a number of processors such as 2 or 0.5";
	case CONF_IS_DURATION:
		return "a duration such as 90s, 10m or 1h30m, or off";
	case CONF_IS_PATH_AUTO:
		return "an absolute path, or auto";
	case CONF_IS_TEXT:
		return "printable characters";
	}
	return "something else";
}

/* Returns 0, -EINVAL or -ERANGE. `text` is terminated. */
static int judge(const struct conf_key *k, const char *text, struct conf_value *v)
{
	uint64_t num = 0;
	uint32_t milli = 0;
	int r = 0;

	v->is_auto = may_be_auto(k->kind) && strcmp(text, "auto") == 0;
	v->num = 0;
	if (v->is_auto)
		return 0;
	switch (k->kind) {
	case CONF_IS_NAME:
		return name_ok(text) ? 0 : -EINVAL;
	case CONF_IS_WORD:
		return printable_word(text, strlen(text)) ? 0 : -EINVAL;
	case CONF_IS_LIST:
		return list_ok(text) ? 0 : -EINVAL;
	case CONF_IS_PATH_AUTO:
		return path_ok(text) ? 0 : -EINVAL;
	case CONF_IS_TEXT:
		return text_ok(text) ? 0 : -EINVAL;
	case CONF_IS_SIZE:
	case CONF_IS_SIZE_AUTO:
		r = parse_size(text, &num);
		break;
	case CONF_IS_COUNT:
	case CONF_IS_COUNT_AUTO:
		r = parse_u64(text, UINT64_MAX, &num);
		break;
	case CONF_IS_CPUS:
		r = parse_cpus(text, &milli);
		num = milli;
		break;
	case CONF_IS_DURATION:
		r = strcmp(text, "off") == 0 ? 0 : parse_duration(text, &num);
		break;
	}
	if (r < 0)
		return r;
	if (num != 0 && k->most != 0 && (num < k->least || num > k->most))
		return -ERANGE;
	v->num = num;
	return 0;
}

void conf_init(struct conf *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < CONF_COUNT; i++) {
		struct conf_value *v = &ret->v[i];
		int r;

		memccpy(v->text, conf_keys[i].dflt, '\0', sizeof(v->text));
		r = judge(&conf_keys[i], v->text, v);
		assert(r == 0);
		(void)r;
	}
}

static int unknown_key(const char *path, unsigned line, const char *key, struct err *e)
{
	const char *words[CONF_COUNT], *near;

	for (unsigned i = 0; i < CONF_COUNT; i++)
		words[i] = conf_keys[i].key;
	near = nearest_word(key, words, CONF_COUNT);
	if (near)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: there is no setting '%s'; did you mean '%s'?", path, line,
			       key, near);
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: there is no setting '%s'; `cubby config` lists them", path, line,
		       key);
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cut blanks off both ends, in place. */
static char *trimmed(char *s)
{
	size_t n;

	while (blank(*s))
		s++;
	n = strlen(s);
	while (n > 0 && blank(s[n - 1]))
		s[--n] = '\0';
	return s;
}

static void cut_comment(char *s)
{
	for (char *p = s; *p; p++)
		if (*p == '#' && (p == s || blank(p[-1]))) {
			*p = '\0';
			return;
		}
}

static int take_line(const char *path, unsigned line, char *s, struct conf *c, struct err *e)
{
	char *eq, *key, *text;
	struct conf_value *v;
	unsigned i;
	int r;

	cut_comment(s);
	s = trimmed(s);
	if (*s == '\0')
		return 0;
	eq = strchr(s, '=');
	if (!eq)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: a line is 'key = value', this one has no '='", path, line);
	*eq = '\0';
	cut_comment(eq + 1);	/* no value begins with '#', with or without a blank before it */
	key = trimmed(s);
	text = trimmed(eq + 1);
	for (i = 0; i < CONF_COUNT; i++)
		if (strcmp(key, conf_keys[i].key) == 0)
			break;
	if (i == CONF_COUNT)
		return unknown_key(path, line, key, e);
	v = &c->v[i];
	if (v->line != 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: '%s' was set in line %u already", path, line, key, v->line);
	if (strlen(text) >= sizeof(v->text))
		return err_why(e, WHY_BAD_REQUEST, -E2BIG, "%s:%u: the value of '%s' is longer than %u bytes", path, line, key,
			       CONF_TEXT_MAX - 1);
	r = judge(&conf_keys[i], text, v);
	if (r == -ERANGE)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: '%s' is out of range for '%s' (%s)", path, line, text, key,
			       conf_keys[i].help);
	if (r < 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s:%u: '%s' is no value for '%s', which takes %s", path, line,
			       text, key, grammar(conf_keys[i].kind));
	memccpy(v->text, text, '\0', sizeof(v->text));
	v->line = line;
	return 0;
}

int conf_parse(const char *path, const char *text, size_t n, struct conf *ret, struct err *e)
{
	OWN_MEM struct conf *c = malloc(sizeof(*c));
	OWN_MEM char *copy = NULL;
	unsigned line = 0;

	if (n > CONF_FILE_MAX)
		return err_why(e, WHY_BAD_REQUEST, -E2BIG, "%s is larger than %u bytes", path, CONF_FILE_MAX);
	if (strlen(path) >= sizeof(c->path))
		return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "the path of the configuration is too long");
	copy = malloc(n + 1);
	if (!c || !copy)
		return err_set(e, -ENOMEM, "cannot read %s", path);
	if (n > 0)
		memcpy(copy, text, n);
	copy[n] = '\0';
	if (memchr(copy, '\0', n))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s holds a NUL byte: not a text file", path);
	conf_init(c);
	memccpy(c->path, path, '\0', sizeof(c->path));
	for (char *s = copy, *next; s; s = next) {
		int r;

		next = strchr(s, '\n');
		if (next)
			*next++ = '\0';
		r = take_line(path, ++line, s, c, e);
		if (r < 0)
			return r;
	}
	memcpy(ret, c, sizeof(*ret));
	return 0;
}

static int trusted(const char *path, int fd, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, -errno, "cannot look at %s", path);
	if (!S_ISREG(st.st_mode))
		return err_why(e, WHY_DENIED, -EINVAL, "%s is not a regular file", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return err_why(e, WHY_DENIED, -EPERM, "%s belongs to user %u, who must not configure this daemon: chown it", path,
			       (unsigned)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_why(e, WHY_DENIED, -EPERM, "%s can be written by others: chmod go-w '%s'", path, path);
	return 0;
}

int conf_load(const char *path, struct conf *ret, struct err *e)
{
	OWN_FD fd = FD_NONE;
	OWN_MEM char *text = NULL;
	ssize_t n;
	int r;

	if (!path) {
		conf_init(ret);
		return 0;
	}
	/* O_NONBLOCK: a fifo must not hold the start up before it is refused. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		conf_init(ret);
		return 0;
	}
	if (fd < 0)
		return err_set(e, -errno, "cannot open the configuration %s", path);
	r = trusted(path, fd, e);
	if (r < 0)
		return r;
	text = malloc(CONF_FILE_MAX + 1);
	if (!text)
		return err_set(e, -ENOMEM, "cannot read %s", path);
	n = fd_read_small(fd, text, CONF_FILE_MAX + 1);
	if (n == -E2BIG)
		return err_why(e, WHY_BAD_REQUEST, -E2BIG, "%s is larger than %u bytes", path, CONF_FILE_MAX);
	if (n < 0)
		return err_set(e, (int)n, "cannot read %s", path);
	return conf_parse(path, text, (size_t)n, ret, e);
}

int conf_path(char *ret, size_t n)
{
	const char *s = getenv("CUBBY_CONFIG");
	int k;

	if (s && *s) {
		k = snprintf(ret, n, "%s", s);
	} else if (geteuid() == 0) {
		k = snprintf(ret, n, "/etc/cubby/cubby.conf");
	} else if ((s = getenv("XDG_CONFIG_HOME")) && s[0] == '/') {
		k = snprintf(ret, n, "%s/cubby/cubby.conf", s);
	} else if ((s = getenv("HOME")) && s[0] == '/') {
		k = snprintf(ret, n, "%s/.config/cubby/cubby.conf", s);
	} else {
		return -ENOENT;
	}
	return k >= 0 && (size_t)k < n ? 0 : -ENAMETOOLONG;
}

const char *conf_text(const struct conf *c, enum conf_id id)
{
	return c->v[id].text;
}

uint64_t conf_num(const struct conf *c, enum conf_id id)
{
	enum conf_kind kind = conf_keys[id].kind;

	assert(kind != CONF_IS_NAME && kind != CONF_IS_WORD && kind != CONF_IS_LIST && kind != CONF_IS_PATH_AUTO);
	(void)kind;
	return c->v[id].num;
}

bool conf_auto(const struct conf *c, enum conf_id id)
{
	return c->v[id].is_auto;
}

/* The i-th word of a list, not terminated; NULL when there are not so many. */
static const char *list_at(const char *s, unsigned i, size_t *ret_n)
{
	for (s += strspn(s, SEPARATORS); *s; s += strspn(s, SEPARATORS)) {
		*ret_n = strcspn(s, SEPARATORS);
		if (i-- == 0)
			return s;
		s += *ret_n;
	}
	return NULL;
}

bool conf_word(const struct conf *c, enum conf_id id, unsigned i, char *ret, size_t n)
{
	size_t len;
	const char *s;

	assert(conf_keys[id].kind == CONF_IS_LIST);
	s = list_at(c->v[id].text, i, &len);
	if (!s || len >= n)
		return false;
	memcpy(ret, s, len);
	ret[len] = '\0';
	return true;
}

bool conf_has(const struct conf *c, enum conf_id id, const char *word)
{
	size_t n = strlen(word), len;
	const char *s;

	assert(conf_keys[id].kind == CONF_IS_LIST);
	for (unsigned i = 0; (s = list_at(c->v[id].text, i, &len)); i++)
		if (len == n && memcmp(s, word, n) == 0)
			return true;
	return false;
}

void conf_each(const struct conf *c, conf_fn *each, void *arg)
{
	char source[sizeof(c->path) + 16];

	for (unsigned i = 0; i < CONF_COUNT; i++) {
		if (c->v[i].line)
			(void)snprintf(source, sizeof(source), "%s:%u", c->path, c->v[i].line);
		else
			(void)snprintf(source, sizeof(source), "default");
		each(&conf_keys[i], &c->v[i], source, arg);
	}
}

uint64_t conf_memory(const struct conf *c)
{
	const uint64_t most = UINT64_C(8) << 30;
	long pages, page;
	uint64_t half;

	if (!conf_auto(c, CONF_MEMORY))
		return conf_num(c, CONF_MEMORY);
	pages = sysconf(_SC_PHYS_PAGES);
	page = sysconf(_SC_PAGESIZE);
	if (pages <= 0 || page <= 0)
		return most;
	half = (uint64_t)pages * (uint64_t)page / 2;
	return half < most ? half : most;
}

unsigned conf_builders(const struct conf *c)
{
	cpu_set_t set;
	int n;

	if (!conf_auto(c, CONF_BUILDERS))
		return conf_num(c, CONF_BUILDERS) ? (unsigned)conf_num(c, CONF_BUILDERS) : 1;
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	n = CPU_COUNT(&set);
	return n < 1 ? 1 : n > 4 ? 4 : (unsigned)n;
}

/* One line of subuid(5), NAME:FIRST:COUNT. Anything else is not for us. */
static bool subid_line(char *s, const char *user, uid_t uid, uint64_t *ret_base, uint64_t *ret_count)
{
	char *first = strchr(s, ':'), *count, number[16];

	if (!first)
		return false;
	*first++ = '\0';
	count = strchr(first, ':');
	if (!count)
		return false;
	*count++ = '\0';
	(void)snprintf(number, sizeof(number), "%u", (unsigned)uid);
	if ((!user || strcmp(s, user) != 0) && strcmp(s, number) != 0)
		return false;
	return parse_u64(first, UINT32_MAX, ret_base) == 0 && parse_u64(trimmed(count), UINT32_MAX, ret_count) == 0 &&
	       *ret_base >= 1 && *ret_count >= 65536 && *ret_base + *ret_count <= UINT32_MAX;
}

static bool subid_find(const char *path, const char *user, uid_t uid, uint64_t *ret_base, uint64_t *ret_count)
{
	OWN_MEM char *text = malloc(CONF_FILE_MAX);
	char *next;

	if (!text || file_read_small(AT_FDCWD, path, text, CONF_FILE_MAX) < 0)
		return false;
	for (char *s = text; s; s = next) {
		next = strchr(s, '\n');
		if (next)
			*next++ = '\0';
		if (subid_line(s, user, uid, ret_base, ret_count))
			return true;
	}
	return false;
}

int conf_ids(const struct conf *c, const char *subuid, const char *user, uid_t uid, uint32_t *ret_base, uint32_t *ret_count,
	     struct err *e)
{
	uint64_t base = 1000000000, count = 1000000000;
	bool found = subid_find(subuid ? subuid : "/etc/subuid", user, uid, &base, &count);

	if (!found && uid != 0 && (conf_auto(c, CONF_ID_BASE) || conf_auto(c, CONF_ID_COUNT)))
		return err_why(e, WHY_UNSUPPORTED, -ENOENT,
			       "%s has no line for user %s: as root, run usermod --add-subuids 200000-265535 --add-subgids "
			       "200000-265535 %s",
			       subuid ? subuid : "/etc/subuid", user ? user : "?", user ? user : "USER");
	if (!conf_auto(c, CONF_ID_BASE))
		base = conf_num(c, CONF_ID_BASE);
	if (!conf_auto(c, CONF_ID_COUNT))
		count = conf_num(c, CONF_ID_COUNT);
	/* (uid_t)-1 is nobody's id, and 0 is the host's. */
	if (base == 0 || count < 65536 || base + count > UINT32_MAX)
		return err_why(e, WHY_BAD_REQUEST, -ERANGE, "the range of ids for boxes, %llu and the %llu from there, does not fit: "
			       "set id_base and id_count", (unsigned long long)base, (unsigned long long)count);
	*ret_base = (uint32_t)base;
	*ret_count = (uint32_t)count;
	return 0;
}
