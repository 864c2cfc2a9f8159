/* SPDX-License-Identifier: Apache-2.0 */
#include "box/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MEMORY_MIN (4u << 20)
#define LIMIT_PIDS_MIN 8
#define SPEC_NET_MAX (2u << 20)
#define LIMIT_BANDWIDTH_MIN 1024

static int bad(struct err *e, const char *field, const char *want)
{
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' has to be %s", field, want);
}

static int get_u64(const struct json *obj, const char *key, uint64_t max, uint64_t *ret, struct err *e)
{
	const struct json *v = json_get(obj, key);

	if (!v)
		return 0;
	if (v->type != JSON_INT || v->num < 0 || (uint64_t)v->num > max)
		return bad(e, key, "a number that is not negative and not too large");
	*ret = (uint64_t)v->num;
	return 0;
}

static int get_u32(const struct json *obj, const char *key, uint32_t max, uint32_t *ret, struct err *e)
{
	uint64_t v = *ret;
	int r = get_u64(obj, key, max, &v, e);

	*ret = (uint32_t)v;
	return r;
}

static int get_bool(const struct json *obj, const char *key, bool *ret, struct err *e)
{
	const struct json *v = json_get(obj, key);

	if (!v)
		return 0;
	if (v->type != JSON_BOOL)
		return bad(e, key, "true or false");
	*ret = v->num != 0;
	return 0;
}

/* A string of at most n - 1 bytes into a fixed field. */
static int get_text(const struct json *obj, const char *key, char *ret, size_t n, struct err *e)
{
	const struct json *v = json_get(obj, key);

	if (!v)
		return 0;
	if (v->type != JSON_STRING || strlen(v->str) >= n)
		return bad(e, key, "a text, and not a long one");
	memccpy(ret, v->str, '\0', n);
	return 0;
}

static int get_path(const struct json *obj, const char *key, char **ret, struct err *e)
{
	const struct json *v = json_get(obj, key);
	char *copy;

	if (!v)
		return 0;
	if (v->type != JSON_STRING || v->str[0] != '/' || strlen(v->str) >= SPEC_PATH_MAX)
		return bad(e, key, "an absolute path of at most 4095 bytes");
	copy = strdup(v->str);
	if (!copy)
		return err_set(e, -ENOMEM, "cannot hold the request");
	free(*ret);
	*ret = copy;
	return 0;
}

int limits_parse(const struct json *obj, struct limits *l, struct net_limits *nl, struct err *e)
{
	int r;

	if (!obj)
		return 0;
	if (obj->type != JSON_OBJECT)
		return bad(e, "limits", "an object");
	for (const struct json *m = obj->child; m; m = m->next) {
		static const char *const known[] = { "memory",	   "swap",    "pids",	 "cpu_milli",
						     "cpu_weight", "io_read", "io_write", "connections",
						     "connection_rate", "flows", "bandwidth" };
		bool ok = false;

		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			ok = ok || strcmp(m->key, known[i]) == 0;
		if (!ok)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "there is no limit '%s'", m->key);
	}
	(void)((r = get_u64(obj, "memory", INT64_MAX, &l->memory, e)) < 0 ||
	       (r = get_u64(obj, "swap", INT64_MAX, &l->swap, e)) < 0 ||
	       (r = get_u64(obj, "pids", 4000000, &l->pids, e)) < 0 ||
	       (r = get_u32(obj, "cpu_milli", 1000000, &l->cpu_milli, e)) < 0 ||
	       (r = get_u32(obj, "cpu_weight", 10000, &l->cpu_weight, e)) < 0 ||
	       (r = get_u64(obj, "io_read", INT64_MAX, &l->io_read, e)) < 0 ||
	       (r = get_u64(obj, "io_write", INT64_MAX, &l->io_write, e)) < 0 ||
	       (r = get_u32(obj, "connections", 1000000, &nl->connections, e)) < 0 ||
	       (r = get_u32(obj, "connection_rate", 1000000, &nl->rate, e)) < 0 ||
	       (r = get_u32(obj, "flows", 1000000, &nl->flows, e)) < 0 ||
	       (r = get_u64(obj, "bandwidth", INT64_MAX, &nl->bandwidth, e)) < 0);
	if (r < 0)
		return r;
	if (nl->bandwidth > 0 && nl->bandwidth < LIMIT_BANDWIDTH_MIN)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "a bandwidth below 1 KiB in a second carries nothing");
	if (l->memory > 0 && l->memory < LIMIT_MEMORY_MIN)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "a memory limit below 4 MiB leaves no room for a command");
	if (l->pids > 0 && l->pids < LIMIT_PIDS_MIN)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "a process limit below 8 leaves no room for a command");
	if (l->cpu_milli > 0 && l->cpu_milli < 10)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "a limit below 0.01 CPUs is more than the kernel can keep");
	return 0;
}

void limits_write(const struct limits *l, const struct net_limits *nl, struct json_out *o, const char *key)
{
	json_put_obj(o, key);
	json_put_int(o, "memory", (int64_t)l->memory);
	json_put_int(o, "swap", (int64_t)l->swap);
	json_put_int(o, "pids", (int64_t)l->pids);
	json_put_int(o, "cpu_milli", l->cpu_milli);
	json_put_int(o, "cpu_weight", l->cpu_weight);
	json_put_int(o, "io_read", (int64_t)l->io_read);
	json_put_int(o, "io_write", (int64_t)l->io_write);
	json_put_int(o, "connections", nl->connections);
	json_put_int(o, "connection_rate", nl->rate);
	json_put_int(o, "flows", nl->flows);
	json_put_int(o, "bandwidth", (int64_t)nl->bandwidth);
	json_end_obj(o);
}

static bool env_name_ok(const char *s)
{
	const char *eq = strchr(s, '=');

	if (!eq || eq == s)
		return false;
	for (const char *p = s; p < eq; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' ||
		      (p > s && *p >= '0' && *p <= '9')))
			return false;
	return true;
}

static void env_free(char **env)
{
	for (char **p = env; p && *p; p++)
		free(*p);
	free(env);
}

static int parse_env(const struct json *arr, struct spec *s, struct err *e)
{
	char **env;
	size_t n = 0;

	if (!arr)
		return 0;
	if (arr->type != JSON_ARRAY || arr->count > SPEC_ENV_MAX)
		return bad(e, "env", "a list of at most 512 texts");
	env = calloc(arr->count + 1, sizeof(*env));
	if (!env)
		return err_set(e, -ENOMEM, "cannot hold the request");
	for (const struct json *m = arr->child; m; m = m->next) {
		if (m->type != JSON_STRING || !env_name_ok(m->str)) {
			env_free(env);
			return err_why(e, WHY_BAD_REQUEST, -EINVAL,
				       "'%.100s' is not NAME=value with a name of letters, digits and '_'",
				       m->type == JSON_STRING ? m->str : "env");
		}
		env[n] = strdup(m->str);
		if (!env[n++]) {
			env_free(env);
			return err_set(e, -ENOMEM, "cannot hold the request");
		}
	}
	env_free(s->env);
	s->env = env;
	return 0;
}

static bool env_has(char *const *env, const char *name, size_t n)
{
	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return true;
	return false;
}

int spec_env_below(struct spec *s, char *const *env, struct err *e)
{
	size_t n = 0, have = 0, at = 0;
	char **all;

	while (env && env[n])
		n++;
	while (s->env && s->env[have])
		have++;
	if (n == 0)
		return 0;
	all = calloc(n + have + 1, sizeof(*all));
	if (!all)
		return err_set(e, -ENOMEM, "cannot hold the request");
	for (size_t i = 0; i < n; i++) {
		if (!env_name_ok(env[i]) || env_has(s->env, env[i], strcspn(env[i], "=")))
			continue;
		all[at] = strdup(env[i]);
		if (!all[at++]) {
			env_free(all);
			return err_set(e, -ENOMEM, "cannot hold the request");
		}
	}
	if (at + have > SPEC_ENV_MAX) {
		env_free(all);
		return err_why(e, WHY_LIMIT, -E2BIG, "the box would have more than %d variables, those of its template included", SPEC_ENV_MAX);
	}
	if (have)
		memcpy(all + at, s->env, have * sizeof(*all));
	free(s->env);
	s->env = all;
	return 0;
}

static int parse_view(const struct json *m, struct view *v, struct err *e)
{
	uint64_t id;
	int r;

	if (m->type != JSON_OBJECT)
		return bad(e, "mounts", "a list of objects");
	r = get_path(m, "at", &v->at, e);
	if (r == 0)
		r = get_path(m, "source", &v->source, e);
	if (r == 0)
		r = get_bool(m, "ro", &v->read_only, e);
	if (r == 0)
		r = get_bool(m, "cow", &v->cow, e);
	if (r < 0)
		return r;
	if (v->read_only && v->cow)
		return bad(e, "mounts", "a list of mounts, each 'ro' or 'cow' or neither");
	if (!v->at)
		return bad(e, "mounts", "a list of objects, each with 'at'");
	id = v->uid;
	r = get_u64(m, "uid", BOX_IDS - 1, &id, e);
	v->uid = (uint32_t)id;
	v->ids_given = json_get(m, "uid") != NULL;
	id = v->ids_given && !json_get(m, "gid") ? v->uid : v->gid;
	if (r == 0)
		r = get_u64(m, "gid", BOX_IDS - 1, &id, e);
	v->gid = (uint32_t)id;
	return r;
}

static int parse_views(const struct json *arr, struct spec *s, struct err *e)
{
	int r = 0;

	if (!arr)
		return 0;
	if (arr->type != JSON_ARRAY || arr->count > ENGINE_MOUNTS_MAX)
		return bad(e, "mounts", "a list of at most 8 mounts");
	for (const struct json *m = arr->child; m && r == 0; m = m->next)
		r = parse_view(m, &s->views[s->nviews++], e);
	return r;
}

int weaken_parse(const struct json *obj, unsigned *ret, struct err *e)
{
	const struct json *arr = json_get(obj, "weaken");

	*ret = 0;
	if (!arr)
		return 0;
	if (arr->type != JSON_ARRAY)
		return bad(e, "weaken", "a list of words");
	for (const struct json *m = arr->child; m; m = m->next) {
		unsigned bit = m->type == JSON_STRING ? weaken_bit(m->str) : 0;

		if (!bit)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.60s' is no defence that a box can be made without",
				       m->type == JSON_STRING ? m->str : "weaken");
		*ret |= bit;
	}
	return 0;
}

static int parse_net(const struct json *v, struct spec *s, struct err *e)
{
	char *copy = NULL;

	if (!v)
		return 0;
	if (v->type != JSON_STRING || strlen(v->str) > SPEC_NET_MAX)
		return bad(e, "net", "a policy of at most 2 MiB");
	if (strcmp(v->str, "none") != 0) {
		copy = strdup(v->str);
		if (!copy)
			return err_set(e, -ENOMEM, "cannot hold the request");
	}
	free(s->net);
	s->net = copy;
	return 0;
}

static int parse_exposed(const struct json *arr, struct spec *s, struct err *e)
{
	if (!arr)
		return 0;
	if (arr->type != JSON_ARRAY || arr->count > SPEC_EXPOSE_MAX)
		return bad(e, "exposed", "a list of at most 64 ports");
	for (const struct json *m = arr->child; m; m = m->next) {
		uint64_t port = 0, host = 0;
		int r = get_u64(m, "port", 65535, &port, e);

		if (r == 0)
			r = get_u64(m, "host_port", 65535, &host, e);
		if (r < 0)
			return r;
		if (port == 0 || host == 0)
			return bad(e, "exposed", "a list of objects, each with 'port' and 'host_port'");
		s->exposed[s->nexposed++] = (struct exposed){ (uint16_t)port, (uint16_t)host };
	}
	return 0;
}

int spec_parse(const struct json *obj, struct spec *s, struct err *e)
{
	int r;

	(void)((r = get_text(obj, "template", s->template, sizeof(s->template), e)) < 0 ||
	       (r = get_text(obj, "user", s->user, sizeof(s->user), e)) < 0 ||
	       (r = get_text(obj, "tz", s->tz, sizeof(s->tz), e)) < 0 ||
	       (r = get_path(obj, "workdir", &s->workdir, e)) < 0 ||
	       (r = parse_env(json_get(obj, "env"), s, e)) < 0 ||
	       (r = parse_views(json_get(obj, "mounts"), s, e)) < 0 ||
	       (r = limits_parse(json_get(obj, "limits"), &s->limits, &s->net_limits, e)) < 0 ||
	       (r = parse_net(json_get(obj, "net"), s, e)) < 0 ||
	       (r = parse_exposed(json_get(obj, "exposed"), s, e)) < 0 ||
	       (r = get_bool(obj, "nesting", &s->nesting, e)) < 0 ||
	       (r = get_bool(obj, "allow_weaker", &s->allow_weaker, e)) < 0 ||
	       (r = get_u64(obj, "ttl_ms", UINT64_C(1000000000000000), &s->ttl_ms, e)) < 0 ||
	       (r = get_u64(obj, "idle_ms", UINT64_C(1000000000000000), &s->idle_ms, e)) < 0);
	if (r < 0)
		return r;
	/* A zone is a name below /usr/share/zoneinfo, nothing that climbs. */
	if (s->tz[0] == '/' || strstr(s->tz, "..") || strspn(s->tz, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
							    "0123456789_+-/") != strlen(s->tz))
		return bad(e, "tz", "a time zone name as in 'Europe/Berlin'");
	return 0;
}

void spec_write(const struct spec *s, struct json_out *o)
{
	json_put_str(o, "template", s->template);
	json_put_str(o, "user", s->user);
	if (s->tz[0])
		json_put_str(o, "tz", s->tz);
	if (s->workdir)
		json_put_str(o, "workdir", s->workdir);
	if (s->env) {
		json_put_arr(o, "env");
		for (char **p = s->env; *p; p++)
			json_put_str(o, NULL, *p);
		json_end_arr(o);
	}
	json_put_arr(o, "mounts");
	for (unsigned i = 0; i < s->nviews; i++) {
		const struct view *v = &s->views[i];

		json_put_obj(o, NULL);
		json_put_str(o, "at", v->at);
		if (v->source)
			json_put_str(o, "source", v->source);
		json_put_bool(o, "ro", v->read_only);
		if (v->cow)
			json_put_bool(o, "cow", true);
		if (v->ids_given) {
			json_put_int(o, "uid", v->uid);
			json_put_int(o, "gid", v->gid);
		}
		json_end_obj(o);
	}
	json_end_arr(o);
	limits_write(&s->limits, &s->net_limits, o, "limits");
	json_put_str(o, "net", s->net ? s->net : "none");
	if (s->nexposed > 0) {
		json_put_arr(o, "exposed");
		for (unsigned i = 0; i < s->nexposed; i++) {
			json_put_obj(o, NULL);
			json_put_int(o, "port", s->exposed[i].port);
			json_put_int(o, "host_port", s->exposed[i].host_port);
			json_end_obj(o);
		}
		json_end_arr(o);
	}
	json_put_bool(o, "nesting", s->nesting);
	json_put_bool(o, "allow_weaker", s->allow_weaker);
	if (s->ttl_ms)
		json_put_int(o, "ttl_ms", (int64_t)s->ttl_ms);
	if (s->idle_ms)
		json_put_int(o, "idle_ms", (int64_t)s->idle_ms);
}

int spec_copy(const struct spec *from, struct spec *to, struct err *e)
{
	OWN_BUF text = BUF_INIT(SPEC_TEXT_MAX);
	OWN_JSON doc = { 0 };
	struct json_out o;
	int r;

	memset(to, 0, sizeof(*to));
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	spec_write(from, &o);
	json_end_obj(&o);
	if (buf_error(&text))
		return err_set(e, buf_error(&text), "cannot hold the request");
	r = json_parse(text.data, text.len, &doc, e);
	return r < 0 ? r : spec_parse(doc.root, to, e);
}

void spec_done(struct spec *s)
{
	for (unsigned i = 0; i < s->nviews; i++) {
		free(s->views[i].at);
		free(s->views[i].source);
	}
	env_free(s->env);
	free(s->workdir);
	free(s->net);
	memset(s, 0, sizeof(*s));
}
