/* SPDX-License-Identifier: Apache-2.0 */
#include "store/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/build.h"
#include "store/tree.h"

#define NAMES_MAX 1024		/* templates that a did-you-mean or a list looks at */

/* A directory of ours below the state directory. */
static int own_dir(int state_fd, const char *state_dir, const char *name, int *ret_fd, struct err *e)
{
	OWN_FD fd = FD_NONE;
	struct stat st;

	if (mkdirat(state_fd, name, 0700) < 0 && errno != EEXIST)
		return err_set(e, -errno, "cannot make %s/%s", state_dir, name);
	fd = tree_open_any(state_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return err_set(e, fd, "cannot open %s/%s", state_dir, name);
	if (fstat(fd, &st) < 0)
		return err_set(e, -errno, "cannot look at %s/%s", state_dir, name);
	if (st.st_uid != geteuid())
		return err_why(e, WHY_DENIED, -EPERM, "%s/%s belongs to uid %u and not to you (uid %u); choose another state directory "
			       "or give it back", state_dir, name, (unsigned)st.st_uid, (unsigned)geteuid());
	if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0)
		return err_set(e, -errno, "cannot close %s/%s to others", state_dir, name);
	*ret_fd = fd_take(&fd);
	return 0;
}

int template_store_open(const char *state_dir, uint32_t ids, struct template_store **ret, struct err *e)
{
	OWN_FD state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct template_store *s;
	int r;

	if (state_fd < 0)
		return err_set(e, -errno, "cannot open the state directory %s", state_dir);
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, -ENOMEM, "cannot open the templates");
	s->templates_fd = s->building_fd = s->layers_fd = FD_NONE;
	s->ids = ids;
	s->dir = realpath(state_dir, NULL);
	s->host_root = strdup("");
	if (!s->dir || !s->host_root)
		r = err_set(e, -errno, "cannot open the state directory %s", state_dir);
	else
		r = own_dir(state_fd, s->dir, "templates", &s->templates_fd, e);
	if (r == 0)
		r = own_dir(state_fd, s->dir, "building", &s->building_fd, e);
	if (r == 0)
		r = own_dir(state_fd, s->dir, "layers-oci", &s->layers_fd, e);
	if (r < 0) {
		template_store_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void template_store_free(struct template_store *s)
{
	if (!s)
		return;
	fd_close(&s->templates_fd);
	fd_close(&s->building_fd);
	fd_close(&s->layers_fd);
	free(s->dir);
	free(s->host_root);
	free(s);
}

/* What was put aside to be removed. No template can have the name; the dot makes it one of the entries that a sweep looks at. */
#define GONE "-gone."

static void hand_on(struct template_store *s, const char *gone)
{
	char parent[PATH_MAX];

	if (snprintf(parent, sizeof(parent), "%s/building", s->dir) < (int)sizeof(parent))
		(void)s->discard(parent, gone, s->discard_arg);
}

int store_discard(struct template_store *s, int dir_fd, const char *name, struct err *e)
{
	char gone[32];
	uint32_t rnd;

	if (!s->discard || getrandom(&rnd, sizeof(rnd), 0) != (ssize_t)sizeof(rnd))
		return tree_remove(dir_fd, name, e);
	(void)snprintf(gone, sizeof(gone), GONE "%08x", rnd);
	if (renameat2(dir_fd, name, s->building_fd, gone, RENAME_NOREPLACE) < 0)
		return errno == ENOENT ? 0 : tree_remove(dir_fd, name, e);
	hand_on(s, gone);
	return 0;
}

int template_store_host_root(struct template_store *s, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(s->host_root);
	s->host_root = copy;
	return 0;
}

/* STATE/templates/NAME/meta.json, parsed. -ENOENT: no complete template of this name. */
static int meta_read(const struct template_store *s, const char *name, struct json_doc *ret, struct err *e)
{
	OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
	char path[NAME_MAX_LEN + 16];
	int r;

	if (!name_ok(name))
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "%s/meta.json", name);
	r = place_read(s->templates_fd, path, &text);
	if (r < 0)
		return r;
	r = json_parse(text.data ? text.data : "", text.len, ret, e);
	if (r < 0)
		return err_while(e, r, "the description of the template '%s' is damaged (remove the template, and build it anew)", name);
	return 0;
}

bool template_exists(struct template_store *s, const char *name)
{
	OWN_JSON doc = { 0 };

	return meta_read(s, name, &doc, NULL) == 0;
}

struct names {
	char *list[NAMES_MAX];
	size_t n;
};

static void names_done(struct names *n)
{
	while (n->n > 0)
		free(n->list[--n->n]);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory of the store, sorted; those with a dot only when `dotted`. */
static void names_read(int dir_fd, bool dotted, struct names *ret)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	ret->n = 0;
	if (!d) {
		fd_close(&fd);
		return;
	}
	while (ret->n < NAMES_MAX && (de = readdir(d)) != NULL) {
		if (de->d_name[0] == '.' || (strchr(de->d_name, '.') != NULL) != dotted)
			continue;
		ret->list[ret->n] = strdup(de->d_name);
		ret->n += ret->list[ret->n] != NULL;
	}
	(void)closedir(d);
	qsort(ret->list, ret->n, sizeof(ret->list[0]), by_text);
}

/* "debian-trixie" for "debian:trixie": what a template built from a source may be called. */
static bool source_like(const char *word, char *ret_name, char *ret_source, size_t n)
{
	const char *suite;

	if (strcmp(word, "host") == 0 || strcmp(word, "debian") == 0) {
		(void)snprintf(ret_name, n, "%s", word);
		(void)snprintf(ret_source, n, "%s", word);
		return true;
	}
	if (strncmp(word, "debian:", 7) != 0 && strncmp(word, "debian-", 7) != 0)
		return false;
	suite = word + 7;
	if (!debian_suite_ok(suite) || strlen(suite) > 40)
		return false;
	(void)snprintf(ret_name, n, "debian-%s", suite);
	(void)snprintf(ret_source, n, "debian:%s", suite);
	return name_ok(ret_name);
}

static int no_such(const struct template_store *s, const char *name, struct err *e)
{
	char as[128], source[128];
	struct names have;
	const char *near;
	int r;

	if (source_like(name, as, source, sizeof(as))) {
		if (strcmp(as, source) == 0)
			return err_why(e, WHY_NO_SUCH_TEMPLATE, -ENOENT, "the template '%s' has not been built yet; build it with: "
				       "cubby template create %s", name, as);
		return err_why(e, WHY_NO_SUCH_TEMPLATE, -ENOENT, "the template '%s' has not been built yet; build it with: cubby "
			       "template create %s %s", name, as, source);
	}
	names_read(s->templates_fd, false, &have);
	for (unsigned i = 0; i < 2 && have.n < NAMES_MAX; i++) {
		have.list[have.n] = strdup(i ? "debian" : "host");
		have.n += have.list[have.n] != NULL;
	}
	near = nearest_word(name, (const char *const *)have.list, have.n);
	if (near)
		r = err_why(e, WHY_NO_SUCH_TEMPLATE, -ENOENT, "there is no template '%s'; did you mean '%s'?", name, near);
	else
		r = err_why(e, WHY_NO_SUCH_TEMPLATE, -ENOENT, "there is no template '%s'; cubby template ls shows those there are", name);
	names_done(&have);
	return r;
}

void template_parts_done(struct root_part *parts, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		free(parts[i].at);
		for (unsigned k = 0; k < parts[i].nlayers; k++)
			free(parts[i].layers[k]);
		memset(&parts[i], 0, sizeof(parts[i]));
	}
}

static int part_fill(const struct template_store *s, const char *name, const struct json *from, struct root_part *p)
{
	const char *at = json_str(from, "at", NULL);
	const struct json *layers = json_get(from, "layers");

	if (!at || at[0] != '/' || !layers || layers->type != JSON_ARRAY || !layers->count || layers->count > ENGINE_LAYERS_MAX)
		return -EBADMSG;
	p->at = strdup(at);
	p->idmap = json_bool(from, "idmap", true);
	if (!p->at)
		return -ENOMEM;
	for (const struct json *l = layers->child; l; l = l->next) {
		char *path = NULL;

		if (l->type != JSON_STRING || !*l->str)
			return -EBADMSG;
		if (l->str[0] == '/') {
			path = strdup(l->str);
		} else if (strncmp(l->str, "oci:", 4) == 0) {
			if (!layer_name_ok(l->str + 4))
				return -EBADMSG;
			if (asprintf(&path, "%s/layers-oci/%s/root", s->dir, l->str + 4) < 0)
				path = NULL;
		} else if (asprintf(&path, "%s/templates/%s/%s", s->dir, name, l->str) < 0) {
			path = NULL;
		}
		if (!path)
			return -ENOMEM;
		p->layers[p->nlayers++] = path;
	}
	return 0;
}

int template_parts(struct template_store *s, const char *name, struct root_part *ret_parts, unsigned *ret_n, struct err *e)
{
	OWN_JSON doc = { 0 };
	const struct json *parts;
	unsigned n = 0;
	int r = meta_read(s, name, &doc, e);

	if (r == -ENOENT)
		return no_such(s, name, e);
	if (r < 0)
		return e && e->code ? r : err_set(e, r, "cannot read the description of the template '%s'", name);
	parts = json_get(doc.root, "parts");
	if (!parts || parts->type != JSON_ARRAY || !parts->count || parts->count > ENGINE_PARTS_MAX)
		r = -EBADMSG;
	for (const struct json *p = r == 0 ? parts->child : NULL; p && r == 0; p = p->next) {
		memset(&ret_parts[n], 0, sizeof(ret_parts[n]));
		r = part_fill(s, name, p, &ret_parts[n++]);
	}
	if (r == 0 && strcmp(ret_parts[0].at, "/") != 0)
		r = -EBADMSG;
	if (r < 0) {
		template_parts_done(ret_parts, n);
		return err_set(e, r, "the description of the template '%s' is damaged (remove the template, and build it anew)", name);
	}
	*ret_n = n;
	return 0;
}

int template_defaults(struct template_store *s, const char *name, struct template_defaults *ret, struct err *e)
{
	struct template_defaults d = { 0 };
	OWN_JSON doc = { 0 };
	const struct json *image, *env;
	size_t n = 0;
	int r = meta_read(s, name, &doc, e);

	if (r == -ENOENT)
		return no_such(s, name, e);
	if (r < 0)
		return e && e->code ? r : err_set(e, r, "cannot read the description of the template '%s'", name);
	image = json_get(doc.root, "image");
	env = json_get(image, "env");
	(void)snprintf(d.user, sizeof(d.user), "%s", json_str(image, "user", ""));
	if (json_str(image, "workdir", NULL)) {
		d.workdir = strdup(json_str(image, "workdir", NULL));
		r = d.workdir ? 0 : -ENOMEM;
	}
	if (r == 0 && env && env->type == JSON_ARRAY && env->count > 0) {
		d.env = calloc(env->count + 1, sizeof(*d.env));
		r = d.env ? 0 : -ENOMEM;
	}
	for (const struct json *v = r == 0 && d.env ? env->child : NULL; v && r == 0; v = v->next) {
		if (v->type != JSON_STRING)
			continue;
		d.env[n] = strdup(v->str);
		r = d.env[n++] ? 0 : -ENOMEM;
	}
	if (r < 0) {
		template_defaults_done(&d);
		return err_set(e, r, "cannot hold what the template '%s' says", name);
	}
	*ret = d;
	return 0;
}

void template_defaults_done(struct template_defaults *d)
{
	for (char **p = d->env; p && *p; p++)
		free(*p);
	free(d->env);
	free(d->workdir);
	memset(d, 0, sizeof(*d));
}

bool template_host_stale(struct template_store *s)
{
	OWN_FD host_fd = open(*s->host_root ? s->host_root : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	OWN_JSON doc = { 0 };
	char now[24];

	if (meta_read(s, "host", &doc, NULL) < 0 || host_fd < 0)
		return false;
	(void)snprintf(now, sizeof(now), "%016" PRIx64, host_stamp(host_fd));
	return strcmp(json_str(doc.root, "stamp", ""), now) != 0;
}

/* Is the process that holds building/ENTRY alive? Its lock says so. */
static bool build_alive(const struct template_store *s, const char *entry)
{
	char path[NAME_MAX + 16];
	OWN_FD fd = FD_NONE;

	(void)snprintf(path, sizeof(path), "%s/lock", entry);
	fd = tree_open(s->building_fd, path, O_RDONLY | O_NOFOLLOW);
	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

static bool entry_is(const char *entry, const char *name, bool *failed)
{
	size_t n = strlen(name);

	if (strncmp(entry, name, n) != 0 || entry[n] != '.')
		return false;
	*failed = strcmp(entry + n + 1, "failed") == 0;
	return true;
}

int template_remove(struct template_store *s, const char *name, struct err *e)
{
	char meta[NAME_MAX_LEN + 16], failed[NAME_MAX_LEN + 16];
	struct names building;
	struct stat st;
	bool had = false;
	int r;

	if (!name_ok(name))
		return no_such(s, name, e);
	names_read(s->building_fd, true, &building);
	for (size_t i = 0; i < building.n; i++) {
		bool is_failed;

		if (entry_is(building.list[i], name, &is_failed) && !is_failed && build_alive(s, building.list[i])) {
			names_done(&building);
			return err_why(e, WHY_BUSY, -EBUSY, "the template '%s' is being built; cancel that first with: cubby template "
				       "cancel %s", name, name);
		}
	}
	names_done(&building);
	(void)snprintf(failed, sizeof(failed), "%s.failed", name);
	had = fstatat(s->building_fd, failed, &st, AT_SYMLINK_NOFOLLOW) == 0;
	r = had ? tree_remove(s->building_fd, failed, e) : 0;
	if (r < 0)
		return r;
	if (fstatat(s->templates_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return had ? 0 : no_such(s, name, e);
	/* First the description: from here on it is no template, whatever happens. */
	(void)snprintf(meta, sizeof(meta), "%s/meta.json", name);
	if (unlinkat(s->templates_fd, meta, 0) < 0 && errno != ENOENT)
		return err_set(e, -errno, "cannot remove the template '%s'", name);
	r = store_discard(s, s->templates_fd, name, e);
	if (r >= 0)
		r = layers_prune(s, e);
	return r < 0 ? err_while(e, r, "while removing the template '%s'", name) : 0;
}

/* The members that a list shows, from a meta.json or a state.json; `all`: those that a single template shows. */
static void put_one(struct json_out *out, const char *name, const struct json *from, const char *state, bool all)
{
	json_put_obj(out, NULL);
	json_put_str(out, "name", name);
	json_put_str(out, "source", json_str(from, "source", ""));
	json_put_str(out, "state", state);
	json_put_int(out, "bytes", json_int(from, "bytes", 0));
	json_put_int(out, "files", json_int(from, "files", 0));
	json_put_int(out, "created", json_int(from, "created", 0));
	if (json_str(from, "error", NULL))
		json_put_str(out, "error", json_str(from, "error", NULL));
	else
		json_put_null(out, "error");
	if (strcmp(state, "ready") == 0 && strcmp(json_str(from, "source", ""), "host") == 0)
		json_put_str(out, "stamp", json_str(from, "stamp", ""));
	if (all && json_get(from, "image"))
		json_put_value(out, "image", json_get(from, "image"));
	json_end_obj(out);
}

/* state.json of an entry of building/; `state` comes from the lock, not from the text. */
static bool put_building(const struct template_store *s, struct json_out *out, const char *entry)
{
	OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
	OWN_JSON doc = { 0 };
	char path[NAME_MAX + 16], name[NAME_MAX + 1];
	const char *dot = strchr(entry, '.');
	bool failed;

	(void)snprintf(name, sizeof(name), "%.*s", (int)(dot - entry), entry);
	failed = strcmp(dot, ".failed") == 0;
	if (!name_ok(name) || (!failed && !build_alive(s, entry)))
		return false;
	if (failed && template_exists((struct template_store *)s, name))
		return false;	/* built since, by somebody else's hand: the template counts */
	(void)snprintf(path, sizeof(path), "%s/state.json", entry);
	if (place_read(s->building_fd, path, &text) < 0 || json_parse(text.data ? text.data : "", text.len, &doc, NULL) < 0)
		return false;
	put_one(out, name, doc.root, failed ? "failed" : "building", false);
	return true;
}

int template_list(struct template_store *s, struct json_out *out, struct err *e)
{
	struct names have, building;

	names_read(s->templates_fd, false, &have);
	names_read(s->building_fd, true, &building);
	for (size_t i = 0; i < have.n; i++) {
		OWN_JSON doc = { 0 };

		if (meta_read(s, have.list[i], &doc, NULL) == 0)
			put_one(out, have.list[i], doc.root, "ready", false);
	}
	for (size_t i = 0; i < building.n; i++)
		(void)put_building(s, out, building.list[i]);
	names_done(&have);
	names_done(&building);
	return buf_error(out->to) ? err_set(e, buf_error(out->to), "cannot list the templates") : 0;
}

int template_info(struct template_store *s, const char *name, struct json_out *out, struct err *e)
{
	OWN_JSON doc = { 0 };
	struct names building;
	bool found = false;
	int r = meta_read(s, name, &doc, e);

	if (r == 0) {
		put_one(out, name, doc.root, "ready", true);
		return 0;
	}
	if (r != -ENOENT)
		return e && e->code ? r : err_set(e, r, "cannot read the description of the template '%s'", name);
	names_read(s->building_fd, true, &building);
	/* "failed" sorts after the hexadecimal digits of a build that runs. */
	for (size_t i = 0; i < building.n && !found; i++) {
		bool failed;

		found = entry_is(building.list[i], name, &failed) && put_building(s, out, building.list[i]);
	}
	names_done(&building);
	return found ? 0 : no_such(s, name, e);
}

int template_log_path(struct template_store *s, const char *name, char *ret, size_t n, struct err *e)
{
	struct names building;
	char path[NAME_MAX + 16];
	const char *where = NULL;
	struct stat st;
	int k = 0;

	if (!name_ok(name))
		return no_such(s, name, e);
	names_read(s->building_fd, true, &building);
	for (size_t i = 0; i < building.n && !where; i++) {
		bool failed;

		if (entry_is(building.list[i], name, &failed)) {
			(void)snprintf(path, sizeof(path), "%s/log", building.list[i]);
			if (fstatat(s->building_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
				where = "building";
		}
	}
	names_done(&building);
	if (!where) {
		(void)snprintf(path, sizeof(path), "%s/log", name);
		if (!template_exists(s, name) || fstatat(s->templates_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return no_such(s, name, e);
		where = "templates";
	}
	k = snprintf(ret, n, "%s/%s/%s", s->dir, where, path);
	return k < 0 || (size_t)k >= n ? err_set(e, -ENAMETOOLONG, "the path of the log of '%s' is too long", name) : 0;
}

void template_store_discard(struct template_store *s, int (*discard)(const char *parent, const char *name, void *arg), void *arg)
{
	struct names building;

	s->discard = discard;
	s->discard_arg = arg;
	names_read(s->building_fd, true, &building);
	for (size_t i = 0; discard && i < building.n; i++)
		if (strncmp(building.list[i], GONE, sizeof(GONE) - 1) == 0)
			hand_on(s, building.list[i]);
	names_done(&building);
}

int template_sweep(struct template_store *s, struct err *e)
{
	struct names have, building;
	int removed = 0, failed = 0;

	names_read(s->building_fd, true, &building);
	for (size_t i = 0; i < building.n; i++) {
		const char *dot = strchr(building.list[i], '.');
		int r;

		if (strcmp(dot, ".failed") == 0 || build_alive(s, building.list[i]))
			continue;
		if (s->discard && strncmp(building.list[i], GONE, sizeof(GONE) - 1) == 0)
			continue;
		r = store_discard(s, s->building_fd, building.list[i], failed ? NULL : e);
		removed += r == 0;
		failed = failed ? failed : r;
	}
	names_read(s->templates_fd, false, &have);
	for (size_t i = 0; i < have.n; i++) {
		char path[NAME_MAX + 16];
		struct stat st;
		int r;

		/* Only without a description: one that can't be read may be mended, or is removed by hand. */
		(void)snprintf(path, sizeof(path), "%s/meta.json", have.list[i]);
		if (fstatat(s->templates_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
			continue;
		r = store_discard(s, s->templates_fd, have.list[i], failed ? NULL : e);
		removed += r == 0;
		failed = failed ? failed : r;
	}
	names_done(&have);
	names_done(&building);
	(void)layers_prune(s, NULL);
	return failed ? failed : removed;
}

int template_host_prune(struct template_store *s, struct err *e)
{
	struct names old;
	int removed = 0, failed = 0;

	names_read(s->templates_fd, true, &old);
	for (size_t i = 0; i < old.n; i++) {
		int r;

		if (strncmp(old.list[i], "host.", 5) != 0)
			continue;
		r = store_discard(s, s->templates_fd, old.list[i], failed ? NULL : e);
		removed += r == 0;
		failed = failed ? failed : r;
	}
	names_done(&old);
	return failed ? failed : removed;
}
