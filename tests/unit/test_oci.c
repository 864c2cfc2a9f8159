/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "store/build.h"
#include "store/oci.h"
#include "store/template.h"
#include "store/tree.h"
#include "sys/mnt.h"

/* Every build of these tests ends within this. */
#define PATIENCE_MS 60000
#define N(a) (sizeof(a) / sizeof((a)[0]))

static int top_fd = FD_NONE;
static struct template_store *store;

static int start(void **state)
{
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	int r = leak_mark(state);

	if (r)
		return r;
	assert_non_null(leak_dir());
	(void)umask(022);
	memset(&unpack_limits, 0, sizeof(unpack_limits));
	top_fd = open(leak_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(top_fd >= 0);
	assert_int_equal(mkdirat(top_fd, "state", 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/state", leak_dir());
	r = template_store_open(path, TEMPLATE_IDS_CANONICAL, &store, &e);
	if (r < 0)
		fail_msg("%s", e.text);
	return 0;
}

static int end(void **state)
{
	template_store_free(store);
	store = NULL;
	fd_close(&top_fd);
	(void)leak_dir_clear();
	return leak_check(state);
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip_because("putting layers together needs root");
}

/* ---------------------------------------------------------------- images */

/* An entry of a layer. */
struct ent {
	const char *path;
	mode_t type;
	const char *text;	/* of a file; the target of a link */
	bool hard;
	unsigned perm, uid;
	const char *attr, *value;	/* one extended attribute */
	size_t value_len;
	const char *tag;
};

#define FILE_(p, t) { .path = p, .type = S_IFREG, .text = t, .perm = 0644 }
#define DIR_(p) { .path = p, .type = S_IFDIR }
#define LINK_(p, t) { .path = p, .type = S_IFLNK, .text = t }
#define HARD_(p, t) { .path = p, .type = S_IFREG, .text = t, .hard = true }

static const struct ent base[] = {
	DIR_("etc/"), FILE_("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), FILE_("etc/group", "root:x:0:\n"),
	DIR_("bin/"), FILE_("bin/sh", "#!"), DIR_("d/"), FILE_("d/x", "lower x"), FILE_("d/y", "lower y"), DIR_("d/sub/"),
	FILE_("d/sub/deep", "lower deep"), FILE_("a", "lower a"), LINK_("link", "d"),
};

enum zip { PLAIN, GZIP, ZSTD };

/* An image under construction: img/. */
struct img {
	char layers[32768], diffs[32768];
	unsigned n;
};

static void put_at(const char *path, const void *data, size_t n)
{
	OWN_FD fd = openat(top_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		fail_msg("cannot make %s: %s", path, strerror(errno));
	assert_int_equal(fd_write_all(fd, data, n), 0);
}

static void blob_put(const void *data, size_t n, char ret[OCI_DIGEST_TEXT])
{
	struct oci_digest d;
	char path[128];

	oci_digest_of(data, n, &d);
	oci_digest_text(&d, ret);
	(void)snprintf(path, sizeof(path), "img/blobs/sha256/%s", ret + 7);
	put_at(path, data, n);
}

static void img_begin(struct img *m)
{
	memset(m, 0, sizeof(*m));
	(void)tree_remove(top_fd, "img", NULL);
	assert_int_equal(mkdirat(top_fd, "img", 0755), 0);
	assert_int_equal(mkdirat(top_fd, "img/blobs", 0755), 0);
	assert_int_equal(mkdirat(top_fd, "img/blobs/sha256", 0755), 0);
	put_at("img/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}", 30);
}

/* Larger than any layer of these tests. */
static char tar_bytes[8 << 20], zip_bytes[8 << 20];

static size_t tar_make(const struct ent *ents, size_t n)
{
	struct archive *a = archive_write_new();
	size_t used = 0;

	assert_int_equal(archive_write_set_format_pax(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, tar_bytes, sizeof(tar_bytes), &used), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *ae = archive_entry_new();
		const struct ent *it = &ents[i];

		archive_entry_set_pathname(ae, it->path);
		archive_entry_set_perm(ae, it->perm ? it->perm : 0755);
		archive_entry_set_filetype(ae, it->type);
		archive_entry_set_uid(ae, it->uid);
		archive_entry_set_gid(ae, it->uid);
		archive_entry_set_mtime(ae, 1000000000 + (time_t)i, 0);
		if (it->type == S_IFCHR)
			archive_entry_set_rdev(ae, 0x103);
		if (it->attr)
			archive_entry_xattr_add_entry(ae, it->attr, it->value, it->value_len);
		if (it->hard)
			archive_entry_set_hardlink(ae, it->text);
		else if (it->type == S_IFLNK)
			archive_entry_set_symlink(ae, it->text);
		else if (it->type == S_IFREG)
			archive_entry_set_size(ae, it->text ? (la_int64_t)strlen(it->text) : 0);
		assert_true(archive_write_header(a, ae) >= ARCHIVE_WARN);
		if (it->type == S_IFREG && !it->hard && it->text)
			assert_int_equal(archive_write_data(a, it->text, strlen(it->text)), (la_ssize_t)strlen(it->text));
		archive_entry_free(ae);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	return used;
}

static size_t zip(const void *data, size_t n, enum zip how)
{
	struct archive *a = archive_write_new();
	struct archive_entry *ae = archive_entry_new();
	size_t used = 0;

	assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
	assert_int_equal(how == ZSTD ? archive_write_add_filter_zstd(a) : archive_write_add_filter_gzip(a), ARCHIVE_OK);
	(void)archive_write_set_bytes_per_block(a, 0);
	assert_int_equal(archive_write_open_memory(a, zip_bytes, sizeof(zip_bytes), &used), ARCHIVE_OK);
	archive_entry_set_filetype(ae, S_IFREG);
	assert_int_equal(archive_write_header(a, ae), ARCHIVE_OK);
	assert_int_equal(archive_write_data(a, data, n), (la_ssize_t)n);
	archive_entry_free(ae);
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	return used;
}

/* A layer by the bytes of its blob and the digest of its archive. */
static void img_blob(struct img *m, const void *blob, size_t n, const char *diff)
{
	static const char *const comma[] = { "", "," };
	char text[OCI_DIGEST_TEXT], one[512];

	blob_put(blob, n, text);
	(void)snprintf(one, sizeof(one), "%s{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"%s\",\"size\":%zu}",
		       comma[m->n > 0], text, n);
	assert_true(strlen(m->layers) + strlen(one) < sizeof(m->layers));
	memcpy(m->layers + strlen(m->layers), one, strlen(one) + 1);
	(void)snprintf(one, sizeof(one), "%s\"%s\"", comma[m->n > 0], diff);
	memcpy(m->diffs + strlen(m->diffs), one, strlen(one) + 1);
	m->n++;
}

static void img_layer(struct img *m, const struct ent *ents, size_t n, enum zip how)
{
	size_t size = tar_make(ents, n);
	struct oci_digest d;
	char diff[OCI_DIGEST_TEXT];

	oci_digest_of(tar_bytes, size, &d);
	oci_digest_text(&d, diff);
	if (how == PLAIN)
		img_blob(m, tar_bytes, size, diff);
	else
		img_blob(m, zip_bytes, zip(tar_bytes, size, how), diff);
}

/* The manifest's digest and size as members of a descriptor; `config`: the member of that name. */
static void img_manifest(struct img *m, const char *config, const char *platform, char *ret, size_t room)
{
	static char text[131072];
	char digest[OCI_DIGEST_TEXT];
	int n = snprintf(text, sizeof(text), "{%s,\"config\":%s,\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[%s]}}", platform, config, m->diffs);

	blob_put(text, (size_t)n, digest);
	n = snprintf(text, sizeof(text), "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"application/vnd.oci.image.config.v1+json\","
		     "\"digest\":\"%s\",\"size\":%d},\"layers\":[%s]}", digest, n, m->layers);
	blob_put(text, (size_t)n, digest);
	(void)snprintf(ret, room, "\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"%s\",\"size\":%d", digest, n);
}

#define LINUX(arch) "\"os\":\"linux\",\"architecture\":\"" arch "\""

static const char *here(void)
{
	return strcmp(oci_arch(), "amd64") == 0 ? LINUX("amd64") : LINUX("arm64");
}

static void index_put(const char *manifests)
{
	char text[8192];
	int n = snprintf(text, sizeof(text), "{\"schemaVersion\":2,\"manifests\":[%s]}", manifests);

	put_at("img/index.json", text, (size_t)n);
}

static void img_end(struct img *m, const char *config)
{
	char one[512], all[600];

	img_manifest(m, config ? config : "{}", here(), one, sizeof(one));
	(void)snprintf(all, sizeof(all), "{%s}", one);
	index_put(all);
}

static int build(const char *name, const char *source, struct err *e)
{
	OWN_FD from = openat(top_fd, "img", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct template_build b;
	int r = template_build_start(store, name, source, from, NULL, PATIENCE_MS, &b, e);
	struct pollfd p = { .events = POLLIN };

	if (r < 0)
		return r;
	p.fd = b.pidfd;
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	return template_build_finish(store, &b, e);
}

static void built(const char *name)
{
	struct err e = ERR_INIT;

	if (build(name, "oci:img", &e) < 0)
		fail_msg("%s", e.text);
}

static unsigned count(const char *dir, const char *prefix)
{
	int fd = openat(top_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		n += de->d_name[0] != '.' && strncmp(de->d_name, prefix, strlen(prefix)) == 0;
	(void)closedir(d);
	return n;
}

/* The template failed, says why, and nothing else is left of it. */
static void refused(const char *source, const char *words)
{
	struct err e = ERR_INIT;
	int r = build("bad", source, &e);

	if (r >= 0)
		fail_msg("built, but should be refused: %s", words);
	if (!strstr(e.text, words))
		fail_msg("'%s' does not say '%s'", e.text, words);
	assert_false(template_exists(store, "bad"));
	assert_int_equal(count("state/layers-oci", ""), 0);
	assert_int_equal(count("state/templates", ""), 0);
	assert_int_equal(count("state/building", "bad.failed"), count("state/building", ""));
	if (count("state/building", ""))
		assert_int_equal(count("state/building/bad.failed", ""), 2);	/* state.json, log */
}

/* The template as a box sees it. */
static int view(const char *name)
{
	struct root_part parts[ENGINE_PARTS_MAX] = { 0 };
	int lower[ENGINE_LAYERS_MAX];
	struct overlay o = { .lower = lower };
	struct err e = ERR_INIT;
	unsigned n = 0;
	int fd;

	assert_int_equal(template_parts(store, name, parts, &n, &e), 0);
	assert_int_equal(n, 1);
	(void)tree_remove(top_fd, "u", NULL);
	(void)tree_remove(top_fd, "w", NULL);
	assert_int_equal(mkdirat(top_fd, "u", 0755), 0);
	assert_int_equal(mkdirat(top_fd, "w", 0755), 0);
	o.upper = openat(top_fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	o.work = openat(top_fd, "w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (; o.nlower < parts[0].nlayers; o.nlower++) {
		lower[o.nlower] = open(parts[0].layers[o.nlower], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(lower[o.nlower] >= 0);
	}
	fd = overlay_make(&o, &e);
	if (fd < 0)
		fail_msg("%s", e.text);
	while (o.nlower > 0)
		(void)close(lower[--o.nlower]);
	(void)close(o.upper);
	(void)close(o.work);
	template_parts_done(parts, n);
	return fd;
}

static void assert_text(int root, const char *path, const char *want)
{
	char text[256] = "";
	ssize_t n = file_read_small(root, path, text, sizeof(text));

	if (n < 0)
		fail_msg("cannot read %s: %s", path, strerror((int)-n));
	assert_string_equal(text, want);
}

static void assert_gone(int root, const char *path)
{
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		fail_msg("%s is there", path);
	assert_int_equal(errno, ENOENT);
}

static struct stat look(int root, const char *path)
{
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("%s: %s", path, strerror(errno));
	return st;
}

static unsigned listed(int root, const char *dir)
{
	int fd = openat(root, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		n += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
	(void)closedir(d);
	return n;
}

/* ---------------------------------------------------------------- what an image means */

static void an_image_becomes_a_template(void **state)
{
	static const struct ent upper[] = { FILE_("d/new", "upper new"), { .path = "mine", .type = S_IFREG, .text = "m", .perm = 04711, .uid = 33 } };
	struct stat st;
	struct img m;

	(void)state;
	need_root();
	for (enum zip how = PLAIN; how <= ZSTD; how++) {
		OWN_FD root = FD_NONE;

		img_begin(&m);
		img_layer(&m, base, N(base), how);
		img_layer(&m, upper, N(upper), how);
		img_end(&m, "{\"WorkingDir\":\"/srv/app\"}");
		built("img");
		root = view("img");
		assert_text(root, "d/x", "lower x");
		assert_text(root, "d/new", "upper new");
		assert_text(root, "a", "lower a");
		st = look(root, "mine");
		assert_int_equal(st.st_mode & 07777, 04711);
		assert_int_equal(st.st_uid, 33);
		assert_int_equal(st.st_mtime, 1000000001);
		/* A directory that nobody changed since has the time of its entry. */
		assert_int_equal(look(root, "d/sub").st_mtime, 1000000008);
		assert_int_equal(look(root, "srv/app").st_mode & 07777, 0755);
		assert_true(S_ISDIR(look(root, "proc").st_mode));
		assert_true(S_ISLNK(look(root, "link").st_mode));
		fd_close(&root);
		assert_int_equal(count("state/layers-oci", "sha256-"), 2);
		assert_int_equal(count("state/building", ""), 0);
		assert_int_equal(template_remove(store, "img", NULL), 0);
		assert_int_equal(count("state/layers-oci", ""), 0);
	}
}

static void whiteouts_remove_what_is_below_and_nothing_else(void **state)
{
	static const struct ent upper[] = {
		/* Before and after what this layer itself puts there. */
		FILE_(".wh.a", NULL), FILE_("d/.wh..wh..opq", NULL), DIR_("d/"), FILE_("d/mine", "mine"), DIR_("d/sub/"), FILE_("d/sub/new", "new"),
		FILE_("etc/kept", "kept"), FILE_("etc/.wh.group", NULL), FILE_(".wh.never", NULL), FILE_("none/.wh.x", NULL),
		FILE_(".wh..wh.plnk", NULL), DIR_("bin/"), FILE_("bin", "a file"), FILE_("bin/.wh.sh", NULL),
	};
	/* Not through a link, nor in what is no directory. */
	static const struct ent through[] = { FILE_("link/.wh.x", NULL), FILE_("link/.wh..wh..opq", NULL), FILE_("a/.wh.x", NULL) };
	static const struct ent late[] = {
		FILE_("d/mine2", "mine2"), DIR_("d/sub/"), FILE_("d/sub/new2", "new2"), FILE_("d/.wh..wh..opq", NULL),
		DIR_("bin/"), FILE_("bin/tool", "tool"), FILE_(".wh.bin", NULL), FILE_("link", "a file now"), DIR_("etc/"), FILE_(".wh.link", NULL),
	};
	OWN_FD root = FD_NONE;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, upper, N(upper), GZIP);
	img_end(&m, NULL);
	built("early");
	root = view("early");
	assert_gone(root, "a");
	assert_gone(root, "d/x");
	assert_gone(root, "d/sub/deep");
	assert_gone(root, "etc/group");
	assert_gone(root, "never");
	assert_gone(root, "none");
	assert_int_equal(listed(root, "d"), 2);
	assert_int_equal(listed(root, "d/sub"), 1);
	assert_text(root, "d/mine", "mine");
	assert_text(root, "d/sub/new", "new");
	assert_text(root, "etc/kept", "kept");
	assert_text(root, "bin", "a file");
	fd_close(&root);

	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, through, N(through), GZIP);
	img_end(&m, NULL);
	built("through");
	root = view("through");
	assert_text(root, "d/x", "lower x");
	assert_text(root, "a", "lower a");
	fd_close(&root);

	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, late, N(late), GZIP);
	img_end(&m, NULL);
	built("late");
	root = view("late");
	assert_int_equal(listed(root, "d"), 2);
	assert_text(root, "d/mine2", "mine2");
	assert_int_equal(listed(root, "d/sub"), 1);
	assert_text(root, "d/sub/new2", "new2");
	assert_int_equal(listed(root, "bin"), 1);
	assert_text(root, "bin/tool", "tool");
	assert_text(root, "link", "a file now");
	fd_close(&root);
}

/* Whatever is there gives way to what a later entry or layer says. */
static void a_thing_may_become_another(void **state)
{
	static const struct ent upper[] = {
		FILE_("d", "a file"), DIR_("a/"), FILE_("a/in", "in"), DIR_("link/"), FILE_("link/in", "in"),
		FILE_("twice", "one"), FILE_("twice", "two"), DIR_("t/"), FILE_("t/x", "x"), FILE_("t", "file"), DIR_("t/"),
		FILE_("e", "e"), HARD_("e", "bin/sh"),
	};
	OWN_FD root = FD_NONE;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, upper, N(upper), ZSTD);
	img_end(&m, NULL);
	built("img");
	root = view("img");
	assert_text(root, "d", "a file");
	assert_text(root, "a/in", "in");
	assert_true(S_ISDIR(look(root, "link").st_mode));
	assert_int_equal(listed(root, "link"), 1);
	assert_text(root, "twice", "two");
	assert_int_equal(listed(root, "t"), 0);
	assert_text(root, "e", "#!");
}

static void hard_links_hold_across_layers(void **state)
{
	static const struct ent upper[] = { HARD_("again", "d/x"), HARD_("d/again2", "/d/x"), HARD_("l2", "link"), HARD_("d/x", "d/x") };
	OWN_FD root = FD_NONE;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, upper, N(upper), GZIP);
	img_end(&m, NULL);
	built("img");
	root = view("img");
	assert_text(root, "again", "lower x");
	assert_int_equal(look(root, "again").st_ino, look(root, "d/x").st_ino);
	assert_int_equal(look(root, "d/again2").st_ino, look(root, "d/x").st_ino);
	assert_int_equal(look(root, "d/x").st_nlink, 3);
	assert_true(S_ISLNK(look(root, "l2").st_mode));
}

static void layers_are_shared_until_nobody_has_them(void **state)
{
	static const struct ent one[] = { FILE_("one", "1") }, two[] = { FILE_("two", "2") };
	struct err e = ERR_INIT;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, one, N(one), GZIP);
	img_end(&m, NULL);
	built("first");
	img_begin(&m);
	img_layer(&m, base, N(base), ZSTD);	/* packed otherwise, the same content */
	img_layer(&m, two, N(two), GZIP);
	img_end(&m, NULL);
	built("second");
	assert_int_equal(count("state/layers-oci", ""), 3);
	assert_int_equal(template_remove(store, "first", &e), 0);
	assert_int_equal(count("state/layers-oci", ""), 2);
	{
		OWN_FD root = view("second");

		assert_text(root, "two", "2");
		assert_text(root, "d/x", "lower x");
		assert_gone(root, "one");
	}
	assert_int_equal(template_remove(store, "second", &e), 0);
	assert_int_equal(count("state/layers-oci", ""), 0);
}

/* A half-made or forgotten layer goes at the next start; one that a template has stays, even when its description is damaged. */
static void a_sweep_removes_layers_of_nobody(void **state)
{
	static const char text[] = "{\"parts\":[\"sha256-0000000000000000000000000000000000000000000000000000000000000001\"";

	(void)state;
	assert_int_equal(mkdirat(top_fd, "state/layers-oci/sha256-0000000000000000000000000000000000000000000000000000000000000000", 0700), 0);
	assert_int_equal(mkdirat(top_fd, "state/layers-oci/sha256-0000000000000000000000000000000000000000000000000000000000000001", 0700), 0);
	assert_int_equal(mkdirat(top_fd, "state/templates/t", 0700), 0);
	put_at("state/templates/t/meta.json", text, sizeof(text) - 1);
	assert_true(template_sweep(store, NULL) >= 0);
	assert_int_equal(count("state/layers-oci", ""), 1);
	{
		OWN_FD held = FD_NONE;

		assert_int_equal(unlinkat(top_fd, "state/templates/t/meta.json", 0), 0);
		/* As long as a build is at work, nothing that it may use goes. */
		assert_int_equal(layers_hold(store->layers_fd, &held, NULL), 0);
		assert_int_equal(layers_prune(store, NULL), 0);
		assert_int_equal(count("state/layers-oci", ""), 1);
	}
	assert_int_equal(layers_prune(store, NULL), 1);
	assert_int_equal(count("state/layers-oci", ""), 0);
}

static void many_layers_become_twelve(void **state)
{
	OWN_FD root = FD_NONE;
	char path[8], text[8];
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	for (unsigned i = 1; i < 30; i++) {
		/* Each removes what the one before made, and what is below of "d" goes with the third. */
		struct ent ents[] = { FILE_(path, text), FILE_(NULL, NULL), FILE_("d/.wh..wh..opq", NULL) };
		char gone[16];

		(void)snprintf(path, sizeof(path), "f%u", i);
		(void)snprintf(text, sizeof(text), "%u", i);
		(void)snprintf(gone, sizeof(gone), ".wh.f%u", i - 1);
		ents[1].path = gone;
		img_layer(&m, ents, i == 3 ? 3 : 2, GZIP);
	}
	img_end(&m, NULL);
	built("many");
	assert_int_equal(count("state/layers-oci", ""), 12);
	root = view("many");
	assert_text(root, "f29", "29");
	assert_gone(root, "f28");
	assert_gone(root, "f1");
	assert_int_equal(listed(root, "d"), 0);
	assert_text(root, "a", "lower a");
}

static void attributes_are_kept_by_a_list(void **state)
{
	static const char v2[20] = { 1, 0, 0, 2, 0, 32 }, v3[24] = { 1, 0, 0, 3, 0, 32, [20] = 5 };
	static const struct ent ents[] = {
		{ .path = "own", .type = S_IFREG, .text = "x", .attr = "user.note", .value = "hello", .value_len = 5 },
		{ .path = "cap2", .type = S_IFREG, .text = "x", .attr = "security.capability", .value = v2, .value_len = 20 },
		{ .path = "cap3", .type = S_IFREG, .text = "x", .attr = "security.capability", .value = v3, .value_len = 24 },
		{ .path = "capbad", .type = S_IFREG, .text = "x", .attr = "security.capability", .value = "short", .value_len = 5 },
		{ .path = "capdir", .type = S_IFDIR, .attr = "security.capability", .value = v2, .value_len = 20 },
		{ .path = "o1", .type = S_IFDIR, .attr = "trusted.overlay.opaque", .value = "y", .value_len = 1 },
		{ .path = "o2", .type = S_IFREG, .text = "x", .attr = "user.overlay.redirect", .value = "/etc", .value_len = 4 },
		{ .path = "o3", .type = S_IFREG, .text = "x", .attr = "security.selinux", .value = "x", .value_len = 1 },
	};
	OWN_FD root = FD_NONE;
	char value[64];
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, ents, N(ents), GZIP);
	img_end(&m, NULL);
	built("img");
	root = view("img");
	for (size_t i = 0; i < N(ents); i++) {
		OWN_FD fd = openat(root, ents[i].path, O_RDONLY | O_CLOEXEC);
		ssize_t n;

		assert_true(fd >= 0);
		n = fgetxattr(fd, ents[i].attr, value, sizeof(value));
		if (i == 0) {
			assert_int_equal(n, 5);
		} else if (i <= 2) {
			/* Without the root of another machine. */
			assert_int_equal(n, 20);
			assert_memory_equal(value, v2, 20);
		} else {
			assert_int_equal(n, -1);
		}
	}
}

/* ---------------------------------------------------------------- which image */

static void the_right_image_is_chosen(void **state)
{
	static const struct ent one[] = { FILE_("one", "1") }, two[] = { FILE_("two", "2") };
	char first[512], second[512], text[4096], digest[OCI_DIGEST_TEXT];
	const char *other = strcmp(oci_arch(), "amd64") == 0 ? LINUX("arm64") : LINUX("amd64");
	struct err e = ERR_INIT;
	struct img m, k;
	int n;

	(void)state;
	need_root();
	img_begin(&m);
	k = m;
	img_layer(&m, one, N(one), GZIP);
	img_layer(&k, two, N(two), GZIP);
	img_manifest(&m, "{}", here(), first, sizeof(first));
	img_manifest(&k, "{}", other, second, sizeof(second));
	(void)snprintf(text, sizeof(text), "{%s,\"annotations\":{\"org.opencontainers.image.ref.name\":\"v1\"}},"
		       "{%s,\"annotations\":{\"org.opencontainers.image.ref.name\":\"example.org/x:2\"}}", first, second);
	index_put(text);
	refused("oci:img", "several images");
	refused("oci:img", "example.org/x:2");
	refused("oci:img:v3", "there is no image 'v3' in it; named are: v1, example.org/x:2");
	refused("oci:img:example.org/x:2", "and this machine is linux/");
	assert_int_equal(build("t", "oci:img:v1", &e), 0);
	assert_int_equal(template_remove(store, "t", NULL), 0);

	/* An index with one for each machine, and something that is no image; below another index. */
	n = snprintf(text, sizeof(text), "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"application/x\"},{%s,\"platform\":{%s}},{%s,\"platform\":{%s}},"
		     "{%s,\"platform\":{\"os\":\"unknown\",\"architecture\":\"unknown\"}}]}", second, other, first, here(), second);
	blob_put(text, (size_t)n, digest);
	n = snprintf(text, sizeof(text), "{\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"digest\":\"%s\",\"size\":%d}", digest, n);
	index_put(text);
	assert_int_equal(build("t", "oci:img", &e), 0);
	{
		OWN_FD root = view("t");

		assert_text(root, "one", "1");
	}
	assert_int_equal(template_remove(store, "t", NULL), 0);
	/* Only for another one. */
	(void)snprintf(text, sizeof(text), "{%s,\"platform\":{%s}}", second, other);
	index_put(text);
	refused("oci:img", "has nothing for this machine");
	/* By its digest. */
	index_put("");
	refused("oci:img", "nothing for this machine");
}

static void an_index_does_not_lead_on_for_ever(void **state)
{
	char text[1024], digest[OCI_DIGEST_TEXT], first[512];
	static const struct ent one[] = { FILE_("one", "1") };
	struct img m;
	int n;

	(void)state;
	img_begin(&m);
	img_layer(&m, one, N(one), GZIP);
	img_manifest(&m, "{}", here(), first, sizeof(first));
	n = snprintf(text, sizeof(text), "{\"schemaVersion\":2,\"manifests\":[{%s}]}", first);
	for (unsigned i = 0; i < 6; i++) {
		blob_put(text, (size_t)n, digest);
		n = snprintf(text, sizeof(text), "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
			     "\"digest\":\"%s\",\"size\":%d}]}", digest, n);
	}
	put_at("img/index.json", text, (size_t)n);
	refused("oci:img", "lead from one to the next");
}

static void a_configuration_gives_no_rights(void **state)
{
	static const struct ent one[] = { FILE_("one", "1") };
	OWN_BUF text = BUF_INIT(1 << 20);
	struct json_out o;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, one, N(one), GZIP);
	img_end(&m, "{\"User\":\"../root\",\"WorkingDir\":\"/a/../../etc\",\"Env\":[\"GOOD=1\",\"=x\",\"NO\",\"A B=1\",7,\"1X=2\",\"P=/x:/y\"],"
		    "\"Entrypoint\":[\"/bin/x\",\"--y\"],\"Cmd\":[\"z\"],\"Volumes\":{\"/etc/shadow\":{}},\"Privileged\":true,"
		    "\"Binds\":[\"/:/host\"]}");
	built("img");
	json_out_init(&o, &text);
	assert_int_equal(template_info(store, "img", &o, NULL), 0);
	assert_non_null(strstr(text.data, "\"env\":[\"GOOD=1\",\"P=/x:/y\"]"));
	assert_non_null(strstr(text.data, "\"entrypoint\":[\"/bin/x\",\"--y\"],\"cmd\":[\"z\"]"));
	assert_null(strstr(text.data, "\"user\""));
	assert_null(strstr(text.data, "workdir"));
	assert_null(strstr(text.data, "shadow"));
	assert_null(strstr(text.data, "/host"));
}

/* ---------------------------------------------------------------- what is refused */

static void hostile_layers_are_refused(void **state)
{
	static const struct {
		struct ent ents[3];
		const char *words;
	} cases[] = {
		{ { FILE_("../out", "x") }, "leads upwards" },
		{ { FILE_("a/../../out", "x") }, "leads upwards" },
		{ { LINK_("l", "/tmp"), FILE_("l/out", "x") }, "goes through a link" },
		{ { FILE_("link/out", "x") }, "goes through a link" },	/* a link of the layer below */
		{ { LINK_("l", "../../.."), DIR_("l/out/") }, "goes through a link" },
		{ { FILE_("a/x", "x") }, "goes through a link or a file" },
		{ { HARD_("h", "../../etc/passwd") }, "leads upwards" },
		{ { HARD_("h", "nothing") }, "isn't there" },
		{ { HARD_("h", "link/x") }, "goes through a link" },
		{ { HARD_("h", "d") }, "isn't a file" },
		{ { HARD_("h", ".") }, "hard link to the root" },
		{ { FILE_(".wh...", NULL) }, "removes what has no name" },
		{ { FILE_("d/.wh..", NULL) }, "removes what has no name" },
		{ { FILE_("d/.wh.", NULL) }, "removes what has no name" },
		{ { LINK_("./", "/etc") }, "wants to be the root" },
		{ { LINK_("etc", "/etc") }, "/etc of this root file system is not a directory" },
		{ { LINK_("proc", "/d") }, "/proc of this root file system is not a directory" },
		{ { LINK_("dev", "/d") }, "/dev of this root file system is not a directory" },
		{ { FILE_("run", "x") }, "/run of this root file system is not a directory" },
	};
	struct img m;

	(void)state;
	need_root();
	for (size_t i = 0; i < N(cases); i++) {
		size_t n = 0;

		while (n < N(cases[i].ents) && cases[i].ents[n].path)
			n++;
		img_begin(&m);
		img_layer(&m, base, N(base), GZIP);
		img_layer(&m, cases[i].ents, n, GZIP);
		img_end(&m, NULL);
		refused("oci:img", cases[i].words);
		/* And the same in one directory with the layer below. */
		img_begin(&m);
		img_layer(&m, base, N(base), GZIP);
		img_layer(&m, cases[i].ents, n, GZIP);
		for (unsigned k = 0; k < 12; k++)
			img_layer(&m, base, 1, GZIP);
		img_end(&m, NULL);
		if (i < 15)
			refused("oci:img", cases[i].words);
	}
}

static void absolute_names_and_devices_do_no_harm(void **state)
{
	static const struct ent ents[] = { FILE_("/abs", "x"), FILE_("//d//abs2", "x"), { .path = "dev/null", .type = S_IFCHR },
					   { .path = "disk", .type = S_IFBLK }, { .path = "pipe", .type = S_IFIFO } };
	OWN_FD root = FD_NONE;
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	img_layer(&m, ents, N(ents), GZIP);
	img_end(&m, NULL);
	built("img");
	root = view("img");
	assert_text(root, "abs", "x");
	assert_text(root, "d/abs2", "x");
	assert_gone(root, "dev/null");
	assert_gone(root, "disk");
	assert_true(S_ISFIFO(look(root, "pipe").st_mode));
}

static void what_is_not_what_its_digest_says_is_refused(void **state)
{
	static const char zeros[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
	char path[256], digest[OCI_DIGEST_TEXT];
	struct img m;
	size_t n;

	(void)state;
	need_root();
	/* A layer that is another one: it would be taken for the layer of other templates, too. */
	for (enum zip how = PLAIN; how <= ZSTD; how++) {
		img_begin(&m);
		n = tar_make(base, N(base));
		if (how == PLAIN)
			img_blob(&m, tar_bytes, n, zeros);
		else
			img_blob(&m, zip_bytes, zip(tar_bytes, n, how), zeros);
		img_end(&m, NULL);
		refused("oci:img", "the digest of its content is");
	}
	/* Bytes of a blob changed, at the same size; and behind the compressed data, where nobody looks. */
	for (unsigned where = 0; where < 3; where++) {
		char blob[64 << 10];

		img_begin(&m);
		n = tar_make(base, N(base));
		n = zip(tar_bytes, n, GZIP);
		memcpy(blob, zip_bytes, n);
		memset(blob + n, 'x', 100);
		{
			struct oci_digest d;
			size_t tar = tar_make(base, N(base));

			oci_digest_of(tar_bytes, tar, &d);
			oci_digest_text(&d, digest);
		}
		img_blob(&m, blob, n + 100, digest);
		img_end(&m, NULL);
		{
			struct oci_digest d;

			oci_digest_of(blob, n + 100, &d);
			oci_digest_text(&d, digest);
		}
		(void)snprintf(path, sizeof(path), "img/blobs/sha256/%s", digest + 7);
		blob[where == 0 ? 3 : where == 1 ? n / 2 : n + 50] ^= 1;
		put_at(path, blob, n + 100);
		refused("oci:img", where == 2 ? "the digest of its blob is" : "layer 1 of the image");
		put_at(path, blob, n / 2);
		refused("oci:img", "cut off or damaged");
		assert_int_equal(unlinkat(top_fd, path, 0), 0);
		refused("oci:img", "is not a whole OCI image");
		assert_int_equal(symlinkat("/etc/passwd", top_fd, path), 0);
		refused("oci:img", "is a link");
		assert_int_equal(unlinkat(top_fd, path, 0), 0);
		assert_int_equal(mkfifoat(top_fd, path, 0600), 0);
		refused("oci:img", "is no file");
	}
	/* A blob that ends early and says so, and one that is compressed twice. */
	img_begin(&m);
	n = tar_make(base, N(base));
	n = zip(tar_bytes, n, GZIP);
	img_blob(&m, zip_bytes, n / 2, zeros);
	img_end(&m, NULL);
	refused("oci:img", "is damaged");
	img_begin(&m);
	n = tar_make(base, N(base));
	n = zip(tar_bytes, n, GZIP);
	memcpy(tar_bytes, zip_bytes, n);
	n = zip(tar_bytes, n, GZIP);
	img_blob(&m, zip_bytes, n, zeros);
	img_end(&m, NULL);
	refused("oci:img", "compressed twice");
	/* No archive at all. */
	img_begin(&m);
	memset(tar_bytes, 'x', 4096);
	{
		struct oci_digest d;

		oci_digest_of(tar_bytes, 4096, &d);
		oci_digest_text(&d, digest);
	}
	img_blob(&m, tar_bytes, 4096, digest);
	img_end(&m, NULL);
	refused("oci:img", "layer 1 of the image");
}

static void documents_that_are_wrong_are_refused(void **state)
{
	static const char *const indexes[][2] = {
		{ "", "index.json" }, { "[]", "no JSON object" }, { "{}", "lists no manifests" }, { "{\"manifests\":{}}", "lists no manifests" },
		{ "{\"manifests\":[],\"layers\":[]}", "lists no manifests" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\"}]}", "without a sha256 digest" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:../../../../etc/passwd\",\"size\":1}]}",
		  "without a sha256 digest" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha512:00\",\"size\":1}]}",
		  "without a sha256 digest" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":"
		  "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\",\"size\":99999999999}]}", "a part of more than" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"digest\":"
		  "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\",\"size\":-1}]}", "without a size" },
	};
	struct img m;

	(void)state;
	need_root();
	img_begin(&m);
	refused("oci:img", "it has no index.json");
	for (size_t i = 0; i < N(indexes); i++) {
		put_at("img/index.json", indexes[i][0], strlen(indexes[i][0]));
		refused("oci:img", indexes[i][1]);
	}
	/* Larger than any document. */
	memset(tar_bytes, ' ', OCI_JSON_MAX + 1);
	put_at("img/index.json", tar_bytes, OCI_JSON_MAX + 1);
	refused("oci:img", "is larger than");
	/* As many layers in the manifest as in the configuration. */
	img_begin(&m);
	img_layer(&m, base, N(base), GZIP);
	m.diffs[0] = '\0';
	img_end(&m, NULL);
	refused("oci:img", "its manifest has 1 layers");
	img_begin(&m);
	img_end(&m, NULL);
	refused("oci:img", "it has no layers");
}

static void images_have_limits(void **state)
{
	static char big[300 << 10];
	const struct ent ents[] = { FILE_("one", big), FILE_("two", big) }, one[] = { FILE_("three", big) };
	static const struct ent deep[] = { FILE_("1/2/3/4/5/6/7/8/9/10/x", "x") }, links[] = { HARD_("h1", "one") };
	struct img m;

	(void)state;
	need_root();
	memset(big, 'x', sizeof(big) - 1);
	/* Of all layers together. */
	unpack_limits.bytes = 800 << 10;
	img_begin(&m);
	img_layer(&m, ents, N(ents), GZIP);
	img_layer(&m, one, N(one), GZIP);
	img_end(&m, NULL);
	refused("oci:img", "holds more than");
	/* A link to a file of a layer below is a copy of it. */
	img_begin(&m);
	img_layer(&m, ents, N(ents), GZIP);
	img_layer(&m, links, N(links), GZIP);
	img_end(&m, NULL);
	refused("oci:img", "holds more than");
	unpack_limits.bytes = 1 << 20;
	built("img");
	assert_int_equal(template_remove(store, "img", NULL), 0);
	unpack_limits = (struct unpack_limits){ .files = 3 };
	img_begin(&m);
	img_layer(&m, ents, N(ents), GZIP);
	img_layer(&m, base, 2, GZIP);
	img_end(&m, NULL);
	refused("oci:img", "more than 3 files");
	unpack_limits = (struct unpack_limits){ .depth = 8 };
	img_begin(&m);
	img_layer(&m, deep, N(deep), GZIP);
	img_end(&m, NULL);
	refused("oci:img", "lies deeper");
	/* What a small blob can become ends before it is written anywhere: nothing but zeros, and no archive in them. */
	unpack_limits = (struct unpack_limits){ .bytes = 1 << 20 };
	img_begin(&m);
	memset(tar_bytes, 0, sizeof(tar_bytes));
	img_blob(&m, zip_bytes, zip(tar_bytes, sizeof(tar_bytes), GZIP),
		 "sha256:0000000000000000000000000000000000000000000000000000000000000000");
	img_end(&m, NULL);
	refused("oci:img", "larger than");
	/* Attributes count as content. */
	{
		struct ent attrs[] = { { .path = "x", .type = S_IFREG, .text = "x", .attr = "user.a", .value = big, .value_len = sizeof(big) } };

		unpack_limits = (struct unpack_limits){ .bytes = 200 << 10 };
		img_begin(&m);
		img_layer(&m, attrs, 1, GZIP);
		img_end(&m, NULL);
		refused("oci:img", "holds more than");
	}
}

static void names_of_images_are_judged(void **state)
{
	static const char *const wrong[] = { "oci:", "oci::", "oci::x", "oci:img:", "oci:img:a b", "oci:img:x\ny", "oci:img:$(x)" };
	static const char *const right[] = { "docker://a", "docker://example.org:5000/a/b:c@sha256:0" };
	static const char *const odd[] = { "docker://", "docker://-x", "docker:///etc", "docker://a b", "docker://a;b", "docker:a" };
	struct err e = ERR_INIT;
	const char *ref;

	(void)state;
	img_begin(&(struct img){ 0 });
	for (size_t i = 0; i < N(wrong); i++) {
		assert_int_equal(build("bad", wrong[i], &e), -EINVAL);
		assert_int_equal(e.why, WHY_BAD_REQUEST);
	}
	for (size_t i = 0; i < N(right); i++)
		assert_true(oci_docker_ok(right[i]));
	for (size_t i = 0; i < N(odd); i++)
		assert_false(oci_docker_ok(odd[i]));
	assert_int_equal(oci_path_split("/a/b:c:d", &ref), 4);
	assert_string_equal(ref, "c:d");
	assert_int_equal(oci_path_split("/a/b", &ref), 4);
	assert_null(ref);
}

#define T(f) cmocka_unit_test_setup_teardown(f, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_image_becomes_a_template),
		T(whiteouts_remove_what_is_below_and_nothing_else),
		T(a_thing_may_become_another),
		T(hard_links_hold_across_layers),
		T(layers_are_shared_until_nobody_has_them),
		T(a_sweep_removes_layers_of_nobody),
		T(many_layers_become_twelve),
		T(attributes_are_kept_by_a_list),
		T(the_right_image_is_chosen),
		T(an_index_does_not_lead_on_for_ever),
		T(a_configuration_gives_no_rights),
		T(hostile_layers_are_refused),
		T(absolute_names_and_devices_do_no_harm),
		T(what_is_not_what_its_digest_says_is_refused),
		T(documents_that_are_wrong_are_refused),
		T(images_have_limits),
		T(names_of_images_are_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
