/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parse.h"

extern char **environ;

static int put_size_option(const struct args *a, enum opt opt, const char *key, uint64_t least, struct json_out *o, struct err *e)
{
	const char *s = a->val[opt];
	uint64_t v;
	int r;

	if (!s)
		return 0;
	r = parse_size(s, &v);
	if (r < 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--%s: '%s' is not a size such as 512M or 2G", options[opt].word, s);
	/* A forgotten unit. */
	if (v != 0 && v < least)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--%s: %s bytes are too little; did you mean %sM?", options[opt].word, s, s);
	json_put_int(o, key, (int64_t)v);
	return 0;
}

int put_limits(const struct args *a, struct json_out *o, struct err *e)
{
	static const struct {
		enum opt opt;
		const char *key;
	} counts[] = {
		{ OPT_CONNECTIONS, "connections" }, { OPT_CONNECTION_RATE, "connection_rate" }, { OPT_FLOWS, "flows" },
	};
	uint64_t n;
	uint32_t milli;
	int r;

	if ((r = put_size_option(a, OPT_MEMORY, "memory", 1u << 20, o, e)) < 0 ||
	    (r = put_size_option(a, OPT_SWAP, "swap", 0, o, e)) < 0 ||
	    (r = put_size_option(a, OPT_IO_READ, "io_read", 0, o, e)) < 0 ||
	    (r = put_size_option(a, OPT_IO_WRITE, "io_write", 0, o, e)) < 0 ||
	    (r = put_size_option(a, OPT_BANDWIDTH, "bandwidth", 1024, o, e)) < 0)
		return r;
	if (a->val[OPT_PIDS]) {
		r = opt_count(a, OPT_PIDS, 0, 4194304, &n, e);
		if (r < 0)
			return r;
		json_put_int(o, "pids", (int64_t)n);
	}
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		if (!a->val[counts[i].opt])
			continue;
		r = opt_count(a, counts[i].opt, 0, 1000000, &n, e);
		if (r < 0)
			return r;
		json_put_int(o, counts[i].key, (int64_t)n);
	}
	if (a->val[OPT_CPU_WEIGHT]) {
		r = opt_count(a, OPT_CPU_WEIGHT, 1, 10000, &n, e);
		if (r < 0)
			return r;
		json_put_int(o, "cpu_weight", (int64_t)n);
	}
	if (a->val[OPT_CPUS]) {
		if (parse_cpus(a->val[OPT_CPUS], &milli) < 0)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--cpus: '%s' is not a number of processors such as 2 or 0.5",
				       a->val[OPT_CPUS]);
		json_put_int(o, "cpu_milli", milli);
	}
	return 0;
}

/*
 * Make `s` absolute and take ".", ".." and double slashes out, by its text: it becomes a place in the box, where the
 * host's links mean nothing. What is shown there was opened by the path as it was given.
 */
static int plain_path(const char *s, char *ret, size_t n, struct err *e)
{
	char cwd[4096], joined[8200];
	size_t len = 0;
	const char *p;

	cwd[0] = '\0';
	if (s[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return err_set(e, -errno, "'%s' is relative, and the current directory can't be told", s);
	if (snprintf(joined, sizeof(joined), "%s/%s", cwd, s) >= (int)sizeof(joined))
		return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "--mount: the path is too long");
	for (p = joined; *p;) {
		size_t k;

		p += strspn(p, "/");
		k = strcspn(p, "/");
		if (k == 2 && p[0] == '.' && p[1] == '.') {
			while (len > 0 && ret[--len] != '/')
				;
		} else if (k > 0 && !(k == 1 && p[0] == '.')) {
			if (len + k + 2 > n)
				return err_why(e, WHY_BAD_REQUEST, -ENAMETOOLONG, "--mount: the path is too long");
			ret[len++] = '/';
			memcpy(ret + len, p, k);
			len += k;
		}
		p += k;
	}
	if (len == 0)
		ret[len++] = '/';
	ret[len] = '\0';
	return 0;
}

/* SRC[:DST][:ro|:rw|:cow] */
static int put_mount(const char *given, struct json_out *o, int *ret_fd, struct err *e)
{
	char text[8192], at[4096];
	OWN_FD fd = FD_NONE;
	const char *dst = NULL;
	bool read_only = false, cow = false;
	struct stat st;
	size_t n = strlen(given);
	char *colon;
	int r;

	if (n == 0 || n >= sizeof(text))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--mount takes SRC[:DST][:ro|:cow]");
	memcpy(text, given, n + 1);
	if (n > 3 && (strcmp(text + n - 3, ":ro") == 0 || strcmp(text + n - 3, ":rw") == 0)) {
		read_only = text[n - 1] == 'o';
		text[n - 3] = '\0';
	} else if (n > 4 && strcmp(text + n - 4, ":cow") == 0) {
		cow = true;
		text[n - 4] = '\0';
	}
	/* A place in the box is absolute, so the last ":/" is the border; other colons belong to names. */
	for (colon = text + strlen(text); colon > text; colon--)
		if (colon[0] == ':' && colon[1] == '/') {
			*colon = '\0';
			dst = colon + 1;
			break;
		}
	colon = dst ? strrchr(dst, ':') : NULL;
	if (colon)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--mount: '%s' ends in '%s', which is neither a place nor ':ro' or ':cow'", given,
			       colon);
	fd = open(text, O_PATH | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && (colon = strrchr(text, ':')))
		return err_why(e, WHY_BAD_REQUEST, -ENOENT,
			       "--mount: there is no '%s'; the place in the box is an absolute path, as in '%.*s:/mnt'", text,
			       (int)(colon - text), text);
	if (fd < 0)
		return err_set(e, -errno, "--mount: cannot open '%s'", text);
	if (fstat(fd, &st) < 0)
		return err_set(e, -errno, "--mount: cannot look at '%s'", text);
	/* Devices and sockets would be ways to the host. */
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--mount: '%s' is neither a directory nor a regular file", text);
	if (cow && !S_ISDIR(st.st_mode))
		return err_why(e, WHY_BAD_REQUEST, -ENOTDIR, "--mount: '%s' is a file: only a directory can be copied on write (:cow)",
			       text);
	if (dst && (strstr(dst, "/../") || (strlen(dst) >= 3 && strcmp(dst + strlen(dst) - 3, "/..") == 0)))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--mount: '%s' leads through '..'", dst);
	r = plain_path(dst ? dst : text, at, sizeof(at), e);
	if (r < 0)
		return r;
	if (strcmp(at, "/") == 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL,
			       "--mount: '%s' would hide the whole box: name a place in it, as in '%s:/mnt'", given, text);
	json_put_obj(o, NULL);
	json_put_str(o, "at", at);
	if (read_only)
		json_put_bool(o, "ro", true);
	if (cow)
		json_put_bool(o, "cow", true);
	json_end_obj(o);
	*ret_fd = fd_take(&fd);
	return 0;
}

static int put_mounts(const struct args *a, struct json_out *o, int *ret_fds, size_t *ret_nfds, struct err *e)
{
	json_put_arr(o, "mounts");
	for (size_t i = 0; i < a->nlist; i++) {
		int r;

		if (a->list[i].opt != OPT_MOUNT)
			continue;
		if (*ret_nfds == FD_PASS_MAX)
			return err_why(e, WHY_LIMIT, -E2BIG, "too many --mount: at most %d travel at once", FD_PASS_MAX);
		r = put_mount(a->list[i].val, o, &ret_fds[*ret_nfds], e);
		if (r < 0)
			return r;
		(*ret_nfds)++;
	}
	json_end_arr(o);
	return 0;
}

/* A name of the zone database: "Europe/Berlin". */
static bool zone_ok(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n >= 64 || s[0] == '/' || strstr(s, "..") || strstr(s, "//"))
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/") == n;
}

/* What TZ says, else what /etc/localtime points to. A box without either keeps its template's zone. */
static void put_zone(struct json_out *o)
{
	static const char mark[] = "/zoneinfo/";
	const char *tz = getenv("TZ"), *at;
	char link[256];
	ssize_t n;

	if (tz && tz[0] == ':')
		tz++;
	if (tz && zone_ok(tz)) {
		json_put_str(o, "tz", tz);
		return;
	}
	n = readlink("/etc/localtime", link, sizeof(link) - 1);
	if (n <= 0)
		return;
	link[n] = '\0';
	at = strstr(link, mark);
	if (at && zone_ok(at + sizeof(mark) - 1))
		json_put_str(o, "tz", at + sizeof(mark) - 1);
}

static int put_time(const struct args *a, enum opt opt, const char *key, struct json_out *o, struct err *e)
{
	uint64_t ms;
	int r;

	if (!a->val[opt])
		return 0;
	r = opt_duration(a, opt, &ms, e);
	if (r < 0)
		return r;
	json_put_int(o, key, (int64_t)ms);
	return 0;
}

int put_spec(const struct args *a, struct json_out *o, int *ret_fds, size_t *ret_nfds, struct err *e)
{
	int r;

	r = put_policy(a, NULL, 0, o, e);
	if (r < 0)
		return r;
	if (a->val[OPT_TEMPLATE])
		json_put_str(o, "template", a->val[OPT_TEMPLATE]);
	if (args_has(a, OPTS_LIMITS_GIVEN)) {
		json_put_obj(o, "limits");
		r = put_limits(a, o, e);
		if (r < 0)
			return r;
		json_end_obj(o);
	}
	if (a->val[OPT_MOUNT]) {
		r = put_mounts(a, o, ret_fds, ret_nfds, e);
		if (r < 0)
			return r;
	}
	if (a->val[OPT_USER])
		json_put_str(o, "user", a->val[OPT_USER]);
	if (a->val[OPT_WORKDIR]) {
		if (a->val[OPT_WORKDIR][0] != '/')
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--workdir: '%s' is not an absolute path of the box",
				       a->val[OPT_WORKDIR]);
		json_put_str(o, "workdir", a->val[OPT_WORKDIR]);
	}
	if (args_has(a, O(NESTING)))
		json_put_bool(o, "nesting", true);
	if (args_has(a, O(ALLOW_WEAKER)))
		json_put_bool(o, "allow_weaker", true);
	if ((r = put_time(a, OPT_TTL, "ttl_ms", o, e)) < 0 || (r = put_time(a, OPT_IDLE, "idle_ms", o, e)) < 0)
		return r;
	put_zone(o);
	return 0;
}

#define ENV_FILE_MAX (256u << 10)
#define ENV_MAX 4096

static size_t name_length(const char *s)
{
	size_t n = strcspn(s, "=");

	if (n == 0 || (s[0] >= '0' && s[0] <= '9'))
		return 0;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f)
			return 0;
	return n;
}

/* The later one wins, so that nothing is passed twice. */
static int add(struct env *v, char *var, struct err *e)
{
	size_t n = name_length(var);

	for (size_t i = 0; i < v->n; i++)
		if (strncmp(v->vars[i], var, n + 1) == 0) {
			v->vars[i] = var;
			return 0;
		}
	if (v->n + 1 >= v->room) {
		size_t room = v->room ? v->room * 2 : 32;
		char **p = room <= ENV_MAX ? realloc(v->vars, room * sizeof(*p)) : NULL;

		if (!p)
			return room > ENV_MAX ? err_why(e, WHY_LIMIT, -E2BIG, "more than %d variables", ENV_MAX) :
						err_set(e, -ENOMEM, "cannot make the environment");
		v->vars = p;
		v->room = room;
	}
	v->vars[v->n++] = var;
	v->vars[v->n] = NULL;
	return 0;
}

/* NAME=VALUE, or NAME for the variable of this environment. */
static int add_given(struct env *v, char *given, const char *from, struct err *e)
{
	size_t n = name_length(given);

	if (n == 0)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: '%.60s' is not NAME=VALUE or NAME", from, given);
	if (given[n] == '=')
		return add(v, given, e);
	for (char **var = environ; var && *var; var++)
		if (strncmp(*var, given, n) == 0 && (*var)[n] == '=')
			return add(v, *var, e);
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: there is no variable '%.60s' here to pass on; give %.60s=VALUE", from, given,
		       given);
}

static int add_file(struct env *v, const char *path, struct err *e)
{
	char *text, *next;
	char from[200];
	ssize_t n;
	unsigned line = 0;

	if (v->nfiles == sizeof(v->file) / sizeof(v->file[0]))
		return err_why(e, WHY_LIMIT, -E2BIG, "more than %zu --env-file", v->nfiles);
	text = malloc(ENV_FILE_MAX);
	if (!text)
		return err_set(e, -ENOMEM, "cannot read %s", path);
	v->file[v->nfiles++] = text;
	n = file_read_small(AT_FDCWD, path, text, ENV_FILE_MAX);
	if (n == -E2BIG)
		return err_why(e, WHY_BAD_REQUEST, -E2BIG, "--env-file: %s is larger than %u bytes", path, ENV_FILE_MAX - 1);
	if (n < 0)
		return err_set(e, (int)n, "--env-file: cannot read %s", path);
	if (memchr(text, '\0', (size_t)n))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--env-file: %s is not a text file", path);
	for (char *s = text; s; s = next) {
		size_t k;
		int r;

		line++;
		next = strchr(s, '\n');
		if (next)
			*next++ = '\0';
		k = strlen(s);
		if (k > 0 && s[k - 1] == '\r')
			s[k - 1] = '\0';
		if (s[strspn(s, " \t")] == '\0' || s[0] == '#')
			continue;
		(void)snprintf(from, sizeof(from), "%.150s:%u", path, line);
		r = add_given(v, s, from, e);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool of_the_person(const char *var)
{
	static const char *const names[] = { "LANG=", "LANGUAGE=", "LC_", "TERM=", "COLORTERM=", "NO_COLOR=" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(var, names[i], strlen(names[i])) == 0)
			return strchr(var, '=') != NULL;
	return false;
}

int env_given(const struct args *a, struct env *ret, struct err *e)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < a->nlist; i++) {
		int r = 0;

		if (a->list[i].opt == OPT_ENV)
			r = add_given(ret, (char *)a->list[i].val, "--env", e);
		else if (a->list[i].opt == OPT_ENV_FILE)
			r = add_file(ret, a->list[i].val, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int env_make(char *const *box_env, const struct env *given, struct env *ret, struct err *e)
{
	int r;

	memset(ret, 0, sizeof(*ret));
	for (char **v = environ; v && *v; v++)
		if (of_the_person(*v) && (r = add(ret, *v, e)) < 0)
			return r;
	for (size_t i = 0; box_env && box_env[i]; i++)
		if (name_length(box_env[i]) > 0 && (r = add(ret, box_env[i], e)) < 0)
			return r;
	for (size_t i = 0; i < given->n; i++)
		if ((r = add(ret, given->vars[i], e)) < 0)
			return r;
	return 0;
}

void env_done(struct env *v)
{
	free(v->vars);
	for (size_t i = 0; i < v->nfiles; i++)
		free(v->file[i]);
	memset(v, 0, sizeof(*v));
}
