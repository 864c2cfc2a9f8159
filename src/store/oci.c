/* SPDX-License-Identifier: Apache-2.0 */
#include "store/oci.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "sys/path.h"

#define SHOWN_NAMES 12	/* in an error that says what there is */

#define REF_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@/+-"

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool oci_digest_parse(const char *text, struct oci_digest *ret)
{
	struct oci_digest d;

	if (!text || strncmp(text, "sha256:", 7) != 0 || strlen(text) != OCI_DIGEST_TEXT - 1)
		return false;
	for (size_t i = 0; i < sizeof(d.bytes); i++) {
		int high = digit(text[7 + 2 * i]), low = digit(text[8 + 2 * i]);

		if (high < 0 || low < 0)
			return false;
		d.bytes[i] = (uint8_t)(high << 4 | low);
	}
	*ret = d;
	return true;
}

void oci_digest_text(const struct oci_digest *d, char ret[OCI_DIGEST_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	memcpy(ret, "sha256:", 7);
	for (size_t i = 0; i < sizeof(d->bytes); i++) {
		ret[7 + 2 * i] = digits[d->bytes[i] >> 4];
		ret[8 + 2 * i] = digits[d->bytes[i] & 15];
	}
	ret[OCI_DIGEST_TEXT - 1] = '\0';
}

bool oci_digest_same(const struct oci_digest *a, const struct oci_digest *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

void oci_digest_of(const void *data, size_t n, struct oci_digest *ret)
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, n, data);
	sha256_digest(&ctx, sizeof(ret->bytes), ret->bytes);
}

const char *oci_arch(void)
{
#if defined(__x86_64__)
	return "amd64";
#elif defined(__aarch64__)
	return "arm64";
#else
#error "images need the name of this architecture"
#endif
}

size_t oci_path_split(const char *text, const char **ret_ref)
{
	const char *colon = strchr(text, ':');

	*ret_ref = colon ? colon + 1 : NULL;
	return colon ? (size_t)(colon - text) : strlen(text);
}

bool oci_ref_ok(const char *ref)
{
	size_t n = strspn(ref, REF_CHARS);

	return n > 0 && n <= OCI_REF_MAX && !ref[n];
}

bool oci_docker_ok(const char *source)
{
	const char *name = source + 9;

	return strncmp(source, "docker://", 9) == 0 && oci_ref_ok(name) && strspn(name, "._:@/+-") == 0;
}

static int bad(struct err *e, const char *what)
{
	return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "the image is damaged or no image: %s", what);
}

static int parse(const char *text, size_t n, const char *what, struct json_doc *doc, struct err *e)
{
	struct err said = ERR_INIT;
	int r;

	if (n > OCI_JSON_MAX)
		return err_why(e, WHY_LIMIT, -E2BIG, "the image is refused: its %s is larger than %u MiB", what, OCI_JSON_MAX >> 20);
	r = json_parse(text, n, doc, &said);
	if (r == -ENOMEM)
		return err_set(e, r, "cannot read the %s of the image", what);
	if (r < 0)
		return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "the image is damaged: its %s can't be read: %.300s", what, said.text);
	return doc->root->type == JSON_OBJECT ? 0 : bad(e, "a document of it is no JSON object");
}

enum kind { OTHER, MANIFEST, INDEX };

static enum kind kind_of(const char *type)
{
	if (strcmp(type, "application/vnd.oci.image.manifest.v1+json") == 0 ||
	    strcmp(type, "application/vnd.docker.distribution.manifest.v2+json") == 0)
		return MANIFEST;
	if (strcmp(type, "application/vnd.oci.image.index.v1+json") == 0 ||
	    strcmp(type, "application/vnd.docker.distribution.manifest.list.v2+json") == 0)
		return INDEX;
	return OTHER;
}

static int blob_parse(const struct json *d, uint64_t max, struct oci_blob *ret, struct err *e)
{
	int64_t size = json_int(d, "size", -1);

	if (!oci_digest_parse(json_str(d, "digest", NULL), &ret->digest))
		return bad(e, "it names a part without a sha256 digest");
	if (size < 0)
		return bad(e, "it names a part without a size");
	if ((uint64_t)size > max)
		return err_why(e, WHY_LIMIT, -E2BIG, "the image is refused: it names a part of more than %llu MiB",
			       (unsigned long long)(max >> 20));
	ret->size = (uint64_t)size;
	return 0;
}

static const char *name_of(const struct json *d)
{
	return json_str(json_get(d, "annotations"), "org.opencontainers.image.ref.name", NULL);
}

/* 2: made for this machine; 1: it doesn't say; 0: for another one. */
static int suits(const struct json *d, const char *arch)
{
	const struct json *p = json_get(d, "platform");

	if (!p)
		return 1;
	return strcmp(json_str(p, "os", ""), "linux") == 0 && strcmp(json_str(p, "architecture", ""), arch) == 0 ? 2 : 0;
}

static void list_add(struct buf *list, unsigned *n, const char *text)
{
	if ((*n)++ >= SHOWN_NAMES)
		return;
	if (list->len)
		(void)buf_puts(list, ", ");
	text_escape(list, text, strnlen(text, OCI_REF_MAX));
}

static const char *list_text(const struct buf *list)
{
	return list->len && !buf_error(list) ? list->data : "none";
}

static int none_suits(const struct json *manifests, const char *ref, const char *arch, struct err *e)
{
	OWN_BUF list = BUF_INIT(8192);
	unsigned n = 0;

	for (const struct json *d = manifests->child; d; d = d->next) {
		const struct json *p = json_get(d, "platform");
		OWN_BUF one = BUF_INIT(1024);

		if (!p || strcmp(json_str(p, "os", "unknown"), "unknown") == 0)
			continue;
		(void)buf_printf(&one, "%.40s/%.40s", json_str(p, "os", ""), json_str(p, "architecture", ""));
		list_add(&list, &n, one.data ? one.data : "");
	}
	return err_why(e, WHY_UNSUPPORTED, -ENOEXEC, "the image%s%s has nothing for this machine (linux/%s); there is: %.400s",
		       ref ? " " : "", ref ? ref : "", arch, list_text(&list));
}

static int none_named(const struct json *manifests, const char *ref, struct err *e)
{
	OWN_BUF list = BUF_INIT(8192);
	unsigned n = 0;

	for (const struct json *d = manifests->child; d; d = d->next)
		if (name_of(d))
			list_add(&list, &n, name_of(d));
	return err_why(e, WHY_NOT_FOUND, -ENOENT, "there is no image '%s' in it; named are: %.400s", ref, list_text(&list));
}

static int several(const struct json *manifests, struct err *e)
{
	OWN_BUF list = BUF_INIT(8192);
	unsigned n = 0;

	for (const struct json *d = manifests->child; d; d = d->next)
		if (kind_of(json_str(d, "mediaType", "")) != OTHER)
			list_add(&list, &n, name_of(d) ? name_of(d) : json_str(d, "digest", "?"));
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "there are several images in it; add ':' and one of these to its path: %.600s",
		       list_text(&list));
}

int oci_index_choose(const char *text, size_t n, bool top, const char *ref, const char *arch, struct oci_blob *ret, struct err *e)
{
	OWN_JSON doc = { 0 };
	const struct json *manifests, *best = NULL;
	bool named = false, ambiguous = false;
	struct oci_blob blob = { 0 };
	int best_suits = 0, r = parse(text, n, top ? "index.json" : "index", &doc, e);

	if (r < 0)
		return r;
	manifests = json_get(doc.root, "manifests");
	/* A document that is both could mean one thing to one reader and another to the next. */
	if (!manifests || manifests->type != JSON_ARRAY || json_get(doc.root, "layers") || json_get(doc.root, "config"))
		return bad(e, "its index lists no manifests");
	for (const struct json *d = manifests->child; d; d = d->next) {
		const char *digest = json_str(d, "digest", "");
		int fits;

		if (kind_of(json_str(d, "mediaType", "")) == OTHER)
			continue;
		if (ref && strcmp(name_of(d) ? name_of(d) : "", ref) != 0 && strcmp(digest, ref) != 0)
			continue;
		named = true;
		fits = suits(d, arch);
		if (fits > best_suits) {
			best = d;
			best_suits = fits;
			ambiguous = false;
		} else if (fits > 0 && fits == best_suits && strcmp(digest, json_str(best, "digest", "")) != 0) {
			/* For one machine, further down, the first one counts. */
			ambiguous = top;
		}
	}
	if (ref && !named)
		return none_named(manifests, ref, e);
	if (!best)
		return none_suits(manifests, ref, arch, e);
	if (ambiguous)
		return several(manifests, e);
	r = blob_parse(best, OCI_JSON_MAX, &blob, e);
	if (r < 0)
		return r;
	blob.index = kind_of(json_str(best, "mediaType", "")) == INDEX;
	*ret = blob;
	return 0;
}

int oci_manifest_parse(const char *text, size_t n, struct oci_manifest *ret, struct err *e)
{
	OWN_JSON doc = { 0 };
	const struct json *layers, *config;
	int r = parse(text, n, "manifest", &doc, e);

	ret->nlayers = 0;
	if (r < 0)
		return r;
	layers = json_get(doc.root, "layers");
	config = json_get(doc.root, "config");
	if (json_int(doc.root, "schemaVersion", 0) != 2 || !layers || layers->type != JSON_ARRAY || !config || config->type != JSON_OBJECT ||
	    json_get(doc.root, "manifests") || json_get(doc.root, "fsLayers"))
		return bad(e, "its manifest has no configuration and layers of version 2");
	if (kind_of(json_str(doc.root, "mediaType", "application/vnd.oci.image.manifest.v1+json")) != MANIFEST)
		return bad(e, "its manifest says that it is something else");
	if (strcmp(json_str(config, "mediaType", ""), "application/vnd.oci.image.config.v1+json") != 0 &&
	    strcmp(json_str(config, "mediaType", ""), "application/vnd.docker.container.image.v1+json") != 0)
		return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "it is an artifact of another kind and no image of a root file system");
	r = blob_parse(config, OCI_JSON_MAX, &ret->config, e);
	if (r < 0)
		return r;
	if (layers->count == 0)
		return err_why(e, WHY_BAD_REQUEST, -ENODATA, "the image is empty: it has no layers");
	if (layers->count > OCI_LAYERS_MAX)
		return err_why(e, WHY_LIMIT, -E2BIG, "the image is refused: it has more than %d layers", OCI_LAYERS_MAX);
	for (const struct json *l = layers->child; l; l = l->next) {
		const char *type = json_str(l, "mediaType", "");

		if (strstr(type, "encrypted"))
			return err_why(e, WHY_UNSUPPORTED, -ENOTSUP, "the image has encrypted layers; decrypt it first (skopeo copy "
				       "--decryption-key)");
		if (!strstr(type, ".tar"))
			return err_why(e, WHY_UNSUPPORTED, -ENOTSUP, "the image has a layer of a kind that is no tar archive: %.80s", type);
		r = blob_parse(l, OCI_BLOB_MAX, &ret->layers[ret->nlayers], e);
		if (r < 0)
			return r;
		ret->nlayers++;
	}
	return 0;
}

struct leaving {
	void (*left_out)(const char *what, const char *why, void *arg);
	void *arg;
};

static void leave(const struct leaving *l, const char *what, const char *why)
{
	if (l->left_out)
		l->left_out(what, why, l->arg);
}

static bool env_name_ok(const char *text)
{
	const char *equals = strchr(text, '=');

	return equals && equals > text && !(*text >= '0' && *text <= '9') &&
	       (size_t)(equals - text) == strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
}

/* A list of strings, NULL-terminated. `ok` NULL: any. */
static int list_parse(const struct json *v, const char *what, size_t max, size_t max_bytes, bool (*ok)(const char *),
		      const struct leaving *l, char ***ret)
{
	size_t bytes = 0, n = 0;
	char **list;

	if (!v || v->type != JSON_ARRAY || v->count == 0)
		return 0;
	list = calloc((v->count < max ? v->count : max) + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	*ret = list;
	for (const struct json *s = v->child; s; s = s->next) {
		if (s->type != JSON_STRING || (ok && !ok(s->str))) {
			leave(l, what, "it is no text of the right form");
			continue;
		}
		bytes += strlen(s->str) + 1;
		if (n >= max || bytes > max_bytes) {
			leave(l, what, "there is too much of it");
			break;
		}
		list[n] = strdup(s->str);
		if (!list[n++])
			return -ENOMEM;
	}
	return 0;
}

/* As the box takes it: a name or number, a group after a ':'. */
static bool user_ok(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"), m;

	if (n == 0 || n > 32 || *s == '-')
		return false;
	if (!s[n])
		return true;
	m = strspn(s + n + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
	return s[n] == ':' && m > 0 && m <= 28 && s[n + 1] != '-' && !s[n + 1 + m];
}

static int text_parse(const struct json *c, const char *key, bool (*ok)(const char *), const struct leaving *l, char **ret)
{
	const char *s = json_str(c, key, "");

	if (!*s)
		return 0;
	if (!ok(s)) {
		leave(l, key, "it is not of a form that a box takes");
		return 0;
	}
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int rootfs_parse(const struct json *rootfs, struct oci_config *ret, struct err *e)
{
	const struct json *ids = json_get(rootfs, "diff_ids");

	if (strcmp(json_str(rootfs, "type", ""), "layers") != 0 || !ids || ids->type != JSON_ARRAY)
		return bad(e, "its configuration names no layers");
	if (ids->count > OCI_LAYERS_MAX)
		return err_why(e, WHY_LIMIT, -E2BIG, "the image is refused: it has more than %d layers", OCI_LAYERS_MAX);
	for (const struct json *d = ids->child; d; d = d->next)
		if (d->type != JSON_STRING || !oci_digest_parse(d->str, &ret->diff_ids[ret->nlayers++]))
			return bad(e, "its configuration names a layer without a sha256 digest");
	return 0;
}

int oci_config_parse(const char *text, size_t n, const char *arch, struct oci_config *ret,
		     void (*left_out)(const char *what, const char *why, void *arg), void *arg, struct err *e)
{
	const struct leaving l = { left_out, arg };
	OWN_JSON doc = { 0 };
	const struct json *c;
	const char *os, *of;
	int r = parse(text, n, "configuration", &doc, e);

	memset(ret, 0, sizeof(*ret));
	if (r < 0)
		return r;
	os = json_str(doc.root, "os", "");
	of = json_str(doc.root, "architecture", "");
	if (strcmp(os, "linux") != 0 || strcmp(of, arch) != 0)
		return err_why(e, WHY_UNSUPPORTED, -ENOEXEC, "the image is for %.40s/%.40s, and this machine is linux/%s", *os ? os : "?",
			       *of ? of : "?", arch);
	r = rootfs_parse(json_get(doc.root, "rootfs"), ret, e);
	if (r < 0)
		return r;
	c = json_get(doc.root, "config");
	r = text_parse(c, "User", user_ok, &l, &ret->user);
	if (r == 0)
		r = text_parse(c, "WorkingDir", path_plain, &l, &ret->workdir);
	if (r == 0)
		r = list_parse(json_get(c, "Env"), "Env", OCI_ENV_MAX, OCI_ENV_BYTES, env_name_ok, &l, &ret->env);
	if (r == 0)
		r = list_parse(json_get(c, "Entrypoint"), "Entrypoint", OCI_ENV_MAX, OCI_ARGS_BYTES, NULL, &l, &ret->entrypoint);
	if (r == 0)
		r = list_parse(json_get(c, "Cmd"), "Cmd", OCI_ENV_MAX, OCI_ARGS_BYTES, NULL, &l, &ret->cmd);
	if (r < 0) {
		oci_config_done(ret);
		return err_set(e, r, "cannot hold the image's configuration");
	}
	return 0;
}

static void list_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

void oci_config_done(struct oci_config *c)
{
	free(c->user);
	free(c->workdir);
	list_free(c->env);
	list_free(c->entrypoint);
	list_free(c->cmd);
	memset(c, 0, sizeof(*c));
}
