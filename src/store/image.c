/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An OCI image as a template: oci:DIR[:REF], a directory of the client (image layout: oci-layout, index.json, blobs/).
 *
 *	1. index.json, the index, the manifest and the configuration are read; each is what the digest before it says
 *	2. from the lowest layer up: a layer that is in layers-oci/ already is used, the others are unpacked (oci_layer.c), each
 *	   into a directory of the build, seen through an overlay with those below
 *	3. root/, the template's own topmost layer, gets what every box needs
 *	4. when all is on disk, the new layers go to layers-oci/, and then the template to templates/
 *
 * Of an image with more layers than LAYERS_SHOWN the lowest ones are unpacked into one directory: a box has 64 layers at most, and
 * its own snapshots come on top.
 */
#include "store/build.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "store/oci.h"
#include "store/oci_layer.h"
#include "store/tree.h"
#include "sys/mnt.h"

#define LAYERS_SHOWN 12		/* directories of one image */
#define KEY_VERSION "cubby layer 1"	/* counts on when what is written for the same image changes */
#define WORK "oci"		/* of the build: what it needs and the template doesn't */

struct shown_layer {
	unsigned first, n;	/* layers of the image */
	char name[80];		/* in layers-oci/ */
	bool made;		/* by this build; else it was there */
	int root_fd;
};

struct image {
	struct oci_manifest manifest;
	struct oci_config config;
	struct oci_digest digest;	/* of the manifest */
	int layout_fd;			/* borrowed */
	int work_fd, empty_fd, hold_fd;
	struct shown_layer groups[LAYERS_SHOWN];
	unsigned ngroups;
};

static void image_free(struct image *m)
{
	if (!m)
		return;
	for (unsigned i = 0; i < m->ngroups; i++)
		fd_close(&m->groups[i].root_fd);
	fd_close(&m->work_fd);
	fd_close(&m->empty_fd);
	fd_close(&m->hold_fd);
	oci_config_done(&m->config);
	free(m);
}

/* ---------------------------------------------------------------- reading the layout */

/* A file of the layout, opened with the rights of whoever named it. */
static int layout_open(struct build *b, const struct image *m, const char *path, uint64_t max, uint64_t *ret_size, int *ret, struct err *e)
{
	OWN_FD fd = FD_NONE;
	struct stat st;

	if (b->who) {
		(void)setfsgid(b->who->gid);
		(void)setfsuid(b->who->uid);
	}
	fd = tree_open(m->layout_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (b->who) {
		(void)setfsuid(geteuid());
		(void)setfsgid(getegid());
	}
	if (fd == -ENOENT)
		return err_why(e, WHY_BAD_REQUEST, fd, "%s is not a whole OCI image: it has no %s", b->source, path);
	if (fd == -ELOOP)
		return err_why(e, WHY_BAD_REQUEST, fd, "%s of %s is a link; copy the image with its files (cp -rL)", path, b->source);
	if (fd == -EACCES || fd == -EPERM)
		return err_why(e, WHY_DENIED, fd, "you may not read %s of %s", path, b->source);
	if (fd < 0)
		return err_set(e, fd, "cannot open %s of %s", path, b->source);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s of %s is no file", path, b->source);
	if ((uint64_t)st.st_size > max)
		return err_why(e, WHY_LIMIT, -E2BIG, "%s of %s is larger than %llu bytes", path, b->source, (unsigned long long)max);
	*ret_size = (uint64_t)st.st_size;
	*ret = fd_take(&fd);
	return 0;
}

static int blob_open(struct build *b, const struct image *m, const struct oci_blob *blob, int *ret, struct err *e)
{
	char path[32 + OCI_DIGEST_TEXT], text[OCI_DIGEST_TEXT];
	OWN_FD fd = FD_NONE;
	uint64_t size;
	int r;

	oci_digest_text(&blob->digest, text);
	(void)snprintf(path, sizeof(path), "blobs/sha256/%s", text + 7);
	r = layout_open(b, m, path, UINT64_MAX, &size, &fd, e);
	if (r < 0)
		return r;
	if (size != blob->size)
		return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "%s of %s has %llu bytes, and the image says %llu: it is cut off or damaged; "
			       "fetch the image anew", path, b->source, (unsigned long long)size, (unsigned long long)blob->size);
	*ret = fd_take(&fd);
	return 0;
}

static int read_whole(int fd, struct buf *to)
{
	for (;;) {
		ssize_t k;

		if (buf_reserve(to, 65536) < 0)
			return buf_error(to);
		k = read(fd, to->data + to->len, 65536);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return 0;
		to->len += (size_t)k;
		to->data[to->len] = '\0';
	}
}

/* A document, which is what its digest says. */
static int document_read(struct build *b, const struct image *m, const struct oci_blob *blob, struct buf *to, struct err *e)
{
	char text[OCI_DIGEST_TEXT];
	struct oci_digest have;
	OWN_FD fd = FD_NONE;
	int r = blob_open(b, m, blob, &fd, e);

	if (r < 0)
		return r;
	r = read_whole(fd, to);
	if (r < 0)
		return err_set(e, r, "cannot read a document of %s", b->source);
	oci_digest_of(to->data ? to->data : "", to->len, &have);
	if (oci_digest_same(&have, &blob->digest))
		return 0;
	oci_digest_text(&blob->digest, text);
	return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "%s is refused: its part %s is something else; fetch the image anew", b->source, text);
}

static void config_left_out(const char *what, const char *why, void *arg)
{
	build_log(arg, "left out of the image's configuration: %s (%s)", what, why);
}

/* From index.json to the configuration. */
static int image_read(struct build *b, struct image *m, const char *ref, struct err *e)
{
	OWN_BUF index = BUF_INIT(OCI_JSON_MAX + 65536), config = BUF_INIT(OCI_JSON_MAX + 65536);
	struct oci_blob at;
	OWN_FD fd = FD_NONE;
	char text[OCI_DIGEST_TEXT];
	uint64_t size;
	int r = layout_open(b, m, "index.json", OCI_JSON_MAX, &size, &fd, e);

	if (r < 0)
		return r;
	r = read_whole(fd, &index);
	if (r < 0)
		return err_set(e, r, "cannot read index.json of %s", b->source);
	r = oci_index_choose(index.data ? index.data : "", index.len, true, ref, oci_arch(), &at, e);
	for (unsigned depth = 0; r == 0; depth++) {
		buf_reset(&index);
		r = document_read(b, m, &at, &index, e);
		if (r < 0 || !at.index)
			break;
		if (depth >= OCI_INDEX_DEPTH)
			return err_why(e, WHY_LIMIT, -ELOOP, "the image is refused: its indexes lead from one to the next more than %d times",
				       OCI_INDEX_DEPTH);
		r = oci_index_choose(index.data ? index.data : "", index.len, false, NULL, oci_arch(), &at, e);
	}
	if (r < 0)
		return r;
	m->digest = at.digest;
	r = oci_manifest_parse(index.data ? index.data : "", index.len, &m->manifest, e);
	if (r == 0)
		r = document_read(b, m, &m->manifest.config, &config, e);
	if (r == 0)
		r = oci_config_parse(config.data ? config.data : "", config.len, oci_arch(), &m->config, config_left_out, b, e);
	if (r < 0)
		return r;
	if (m->config.nlayers != m->manifest.nlayers)
		return err_why(e, WHY_BAD_REQUEST, -EBADMSG, "the image is damaged: its manifest has %u layers, and its configuration %u",
			       m->manifest.nlayers, m->config.nlayers);
	oci_digest_text(&m->digest, text);
	build_log(b, "the image %s for linux/%s has %u layers", text, oci_arch(), m->manifest.nlayers);
	return 0;
}

/* ---------------------------------------------------------------- layers */

/*
 * The name of a directory of layers: a digest of all layers up to there, since what a layer means depends on those below, of how
 * they are put together, and of how owners are written on this disk.
 */
static void groups_plan(const struct build *b, struct image *m)
{
	unsigned n = m->manifest.nlayers, at = 0;
	struct sha256_ctx chain;
	uint32_t ids = b->ids;

	sha256_init(&chain);
	sha256_update(&chain, sizeof(KEY_VERSION), (const uint8_t *)KEY_VERSION);
	sha256_update(&chain, sizeof(ids), (const uint8_t *)&ids);
	while (at < n) {
		struct shown_layer *g = &m->groups[m->ngroups++];
		struct oci_digest key;
		char text[OCI_DIGEST_TEXT];
		struct sha256_ctx end;

		*g = (struct shown_layer){ .first = at, .n = at == 0 && n > LAYERS_SHOWN ? n - LAYERS_SHOWN + 1 : 1, .root_fd = FD_NONE };
		for (unsigned i = 0; i < g->n; i++)
			sha256_update(&chain, sizeof(m->config.diff_ids[0].bytes), m->config.diff_ids[at + i].bytes);
		sha256_update(&chain, 1, (const uint8_t *)"|");
		end = chain;
		sha256_digest(&end, sizeof(key.bytes), key.bytes);
		oci_digest_text(&key, text);
		(void)snprintf(g->name, sizeof(g->name), "sha256-%s", text + 7);
		at += g->n;
	}
}

/* The view through the layers below `n`, and `upper` of them all. */
static int view_open(const struct build *b, const struct image *m, unsigned n, int upper, int work, int *ret, struct err *e)
{
	int lower[LAYERS_SHOWN], r;
	struct overlay o = { .lower = lower, .upper = upper, .work = work, .in_userns = b->ids != TEMPLATE_IDS_CANONICAL, .whole = true };

	while (o.nlower < n) {
		lower[o.nlower] = m->groups[n - 1 - o.nlower].root_fd;
		o.nlower++;
	}
	r = overlay_make(&o, e);
	if (r < 0)
		return err_while(e, r, "while putting the layers of the image together");
	*ret = r;
	return 0;
}

/* A directory of the build's own; the root of a layer belongs to the box's root. */
static int dir_new(const struct build *b, int at, const char *name, int *ret)
{
	const struct build own = { .ids = TEMPLATE_IDS_ONE };
	bool root = strcmp(name, "root") == 0;
	int r = place_dir(root ? b : &own, at, name, root ? 0755 : 0700, 0, 0);

	if (r < 0)
		return r;
	r = tree_open(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (r < 0)
		return r;
	*ret = r;
	return 0;
}

static int size_write(struct build *b, struct image *m, unsigned k, struct err *e)
{
	OWN_BUF text = BUF_INIT(256);
	struct tree_size size = { 0 };
	struct json_out o;
	char name[16], path[32];
	int r;

	(void)snprintf(name, sizeof(name), "%u", k);
	(void)snprintf(path, sizeof(path), "%s/root", name);
	r = tree_measure(m->work_fd, path, 0, &size, e);
	if (r < 0)
		return r;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_int(&o, "bytes", (int64_t)size.bytes);
	json_put_int(&o, "files", (int64_t)size.files);
	json_end_obj(&o);
	(void)snprintf(path, sizeof(path), "%s/size.json", name);
	r = buf_error(&text);
	if (r == 0)
		r = place_file(&(struct build){ .ids = TEMPLATE_IDS_ONE }, m->work_fd, path, 0600, 0, 0, text.data, text.len);
	b->more_bytes += size.bytes;
	b->more_files += size.files;
	return r < 0 ? err_set(e, r, "cannot write down the size of a layer") : 0;
}

static int group_unpack(struct build *b, struct image *m, unsigned k, struct oci_apply *o, struct err *e)
{
	struct shown_layer *g = &m->groups[k];
	OWN_FD dir = FD_NONE, work = FD_NONE, view = FD_NONE;
	char name[16];
	int r;

	(void)snprintf(name, sizeof(name), "%u", k);
	r = dir_new(b, m->work_fd, name, &dir);
	if (r == 0)
		r = dir_new(b, dir, "root", &g->root_fd);
	if (r == 0 && k > 0)
		r = dir_new(b, dir, "work", &work);
	if (r < 0)
		return err_set(e, r, "cannot make a directory for a layer");
	if (k > 0) {
		r = view_open(b, m, k, g->root_fd, work, &view, e);
		if (r < 0)
			return r;
	}
	o->root_fd = k > 0 ? view : g->root_fd;
	o->upper_fd = k > 0 ? g->root_fd : FD_NONE;
	for (unsigned i = g->first; i < g->first + g->n; i++) {
		OWN_FD blob = FD_NONE;

		o->number = i + 1;
		o->blob = &m->manifest.layers[i];
		r = blob_open(b, m, o->blob, &blob, e);
		if (r == 0)
			r = oci_layer_apply(o, blob, &m->config.diff_ids[i], e);
		if (r < 0)
			return r;
	}
	g->made = true;
	fd_close(&view);
	fd_close(&work);
	r = tree_remove(dir, "work", e);
	return r < 0 ? r : size_write(b, m, k, e);
}

static int layers_make(struct build *b, struct image *m, struct err *e)
{
	struct oci_apply o = { .b = b, .of = m->manifest.nlayers, .empty_fd = m->empty_fd };
	unsigned there = 0;
	int r;

	r = layers_hold(b->layers_fd, &m->hold_fd, e);
	for (unsigned k = 0; r == 0 && k < m->ngroups; k++) {
		struct shown_layer *g = &m->groups[k];
		uint64_t bytes, files;

		r = layer_open(b->layers_fd, g->name, &g->root_fd, &bytes, &files);
		if (r == 0) {
			b->more_bytes += bytes;
			b->more_files += files;
			there += g->n;
		} else if (r == -ENOENT) {
			r = group_unpack(b, m, k, &o, e);
		} else {
			r = err_set(e, r, "the layer layers-oci/%s of the state directory is damaged; remove the templates that have it", g->name);
		}
	}
	if (r < 0)
		return r;
	for (unsigned k = m->ngroups; k-- > 0;)
		(void)buf_printf(&b->layers, ",\"oci:%s\"", m->groups[k].name);
	build_log(b, "unpacked %llu files, %llu bytes; %llu left out; %u of %u layers were there already", (unsigned long long)o.files,
		  (unsigned long long)o.bytes, (unsigned long long)o.left_out, there, m->manifest.nlayers);
	return 0;
}

/* ---------------------------------------------------------------- the template */

static void put_list(struct json_out *o, const char *key, char *const *list)
{
	if (!list)
		return;
	json_put_arr(o, key);
	for (; *list; list++)
		json_put_str(o, NULL, *list);
	json_end_arr(o);
}

static int describe(struct build *b, const struct image *m, struct err *e)
{
	char text[OCI_DIGEST_TEXT];
	struct json_out o;

	oci_digest_text(&m->digest, text);
	json_out_init(&o, &b->image);
	json_put_obj(&o, NULL);
	json_put_str(&o, "digest", text);
	json_put_int(&o, "layers", m->manifest.nlayers);
	if (m->config.user)
		json_put_str(&o, "user", m->config.user);
	if (m->config.workdir)
		json_put_str(&o, "workdir", m->config.workdir);
	put_list(&o, "env", m->config.env);
	put_list(&o, "entrypoint", m->config.entrypoint);
	put_list(&o, "cmd", m->config.cmd);
	json_end_obj(&o);
	return buf_error(&b->image) ? err_set(e, buf_error(&b->image), "cannot describe the image") : 0;
}

/* Builders of images make the working directory when a container starts; here it is part of the template. */
static void workdir_make(struct build *b, struct image *m)
{
	char path[PATH_MAX];
	OWN_FD fd = FD_NONE;

	if (!m->config.workdir || strcmp(m->config.workdir, "/") == 0)
		return;
	(void)snprintf(path, sizeof(path), "%s", m->config.workdir + 1);
	fd = tree_open(b->root_fd, path, O_PATH);
	if (fd != -ENOENT)
		return;		/* it is there, or is reached through a link of the image, which is the box's matter */
	for (char *p = path; ; p++) {
		char was = *p;

		if (was && was != '/')
			continue;
		*p = '\0';
		fd_close(&fd);
		fd = tree_open(b->root_fd, path, O_PATH);
		if (fd == -ENOENT && place_dir(b, b->root_fd, path, 0755, 0, 0) < 0)
			break;
		*p = was;
		if (!was)
			return;
	}
	build_log(b, "the working directory %s of the image can't be made", m->config.workdir);
}

/* May uid 1000 go there? Through a link: the box will see. */
static bool enterable(struct build *b, const char *dir)
{
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s", dir + 1);
	for (char *p = path; *path; p++) {
		char was = *p;
		struct stat st;
		OWN_FD fd = FD_NONE;

		if (was && was != '/')
			continue;
		*p = '\0';
		fd = tree_open(b->root_fd, path, O_PATH | O_DIRECTORY);
		if (fd < 0)
			return fd == -ELOOP;
		if (fstat(fd, &st) < 0 || !((st.st_mode & 0001) || (st.st_uid == template_disk_id(b->ids, 1000) && (st.st_mode & 0100))))
			return false;
		*p = was;
		if (!was)
			break;
	}
	return true;
}

static bool has_user(struct build *b, const char *name)
{
	OWN_BUF text = BUF_INIT(4u << 20);
	size_t n = strlen(name);

	if (place_read(b->root_fd, "etc/passwd", &text) < 0)
		return false;
	for (const char *line = text.data; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, n) == 0 && line[n] == ':')
			return true;
	}
	return false;
}

/* The image's user in the form that boxes take: a name, UID or UID:GID. What it doesn't have is left out. */
static void user_settle(struct build *b, struct image *m)
{
	char *user = m->config.user, *group = user ? strchr(user, ':') : NULL;
	uint64_t uid, gid = BOX_IDS;

	if (!user)
		return;
	if (group)
		*group++ = '\0';
	if (*user < '0' || *user > '9') {
		if (has_user(b, user) || strcmp(user, "root") == 0)
			return;		/* with the groups that it has */
	} else if (parse_u64(user, BOX_IDS - 1, &uid) == 0) {
		if (group && parse_u64(group, BOX_IDS - 1, &gid) < 0)
			gid = users_group_id(b->root_fd, group, BOX_IDS);
		m->config.user = NULL;
		if (asprintf(&m->config.user, gid < BOX_IDS ? "%u:%u" : "%u", (unsigned)uid, (unsigned)gid) < 0)
			m->config.user = NULL;
		free(user);
		return;
	}
	build_log(b, "left out of the image's configuration: User (its /etc/passwd has no '%s')", user);
	free(user);
	m->config.user = NULL;
}

static void settle(struct build *b, struct image *m)
{
	user_settle(b, m);
	workdir_make(b, m);
	if (m->config.workdir && !m->config.user && !enterable(b, m->config.workdir)) {
		build_log(b, "left out of the image's configuration: WorkingDir (only root may go to %s)", m->config.workdir);
		free(m->config.workdir);
		m->config.workdir = NULL;
	}
}

static int finish(struct build *b, struct image *m, struct err *e)
{
	OWN_FD upper = fd_take(&b->root_fd), work = FD_NONE, view = FD_NONE;
	int r = dir_new(b, m->work_fd, "work", &work);

	if (r < 0)
		return err_set(e, r, "cannot make a directory for the build");
	r = view_open(b, m, m->ngroups, upper, work, &view, e);
	if (r < 0)
		return r;
	b->root_fd = view;
	r = root_finish(b, false, e);
	if (r == 0)
		settle(b, m);
	b->root_fd = fd_take(&upper);
	return r;
}

/*
 * The build has mounts of its own, and an overlay takes only directories that are reached through them: so the same directory once
 * more, by its name.
 */
static int reopen(int *fd)
{
	char link[32], path[PATH_MAX];
	struct stat was, is;
	OWN_FD again = FD_NONE;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", *fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ENOENT;
	path[n] = '\0';
	again = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (again < 0 || fstat(*fd, &was) < 0 || fstat(again, &is) < 0)
		return -errno;
	if (was.st_dev != is.st_dev || was.st_ino != is.st_ino)
		return -ESTALE;
	return dup3(again, *fd, O_CLOEXEC) < 0 ? -errno : 0;
}

int image_build(struct build *b, struct err *e)
{
	const char *ref;
	char path[PATH_MAX];
	struct image *m = calloc(1, sizeof(*m));
	size_t n;
	int r;

	if (!m)
		return err_set(e, -ENOMEM, "cannot read %s", b->source);
	m->work_fd = m->empty_fd = m->hold_fd = FD_NONE;
	b->oci = m;
	n = oci_path_split(strchr(b->source, ':') + 1, &ref);
	if (n >= sizeof(path) || (ref && !oci_ref_ok(ref)))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%.300s' is no name of an image", ref ? ref : "");
	r = reopen(&b->dir_fd);
	if (r == 0)
		r = reopen(&b->root_fd);
	if (r == 0)
		r = reopen(&b->layers_fd);
	if (r == 0)
		r = dir_new(b, b->dir_fd, WORK, &m->work_fd);
	if (r == 0)
		r = dir_new(b, m->work_fd, "empty", &m->empty_fd);
	if (r < 0)
		return err_set(e, r, "cannot make a directory for the build");
	if (b->who && setgroups(0, NULL) < 0 && b->ids == TEMPLATE_IDS_CANONICAL)
		return err_set(e, -errno, "cannot give up the groups of the daemon to read %s as you", b->source);
	build_at(b, "reading the image");
	m->layout_fd = b->from_fd;
	r = image_read(b, m, ref, e);
	if (r < 0)
		return r;
	groups_plan(b, m);
	r = layers_make(b, m, e);
	if (r == 0)
		r = finish(b, m, e);
	return r < 0 ? r : describe(b, m, e);
}

int image_publish(struct build *b, struct err *e)
{
	struct image *m = b->oci;
	char from[32];
	int r = 0;

	for (unsigned k = 0; m && r == 0 && k < m->ngroups; k++) {
		if (!m->groups[k].made)
			continue;
		(void)snprintf(from, sizeof(from), "%u", k);
		/* The same layer, made by another build meanwhile, is as good. */
		if (renameat2(m->work_fd, from, b->layers_fd, m->groups[k].name, RENAME_NOREPLACE) < 0 && errno != EEXIST)
			r = err_set(e, -errno, "cannot keep a layer of the image");
	}
	if (m && r == 0 && fsync(b->layers_fd) < 0)
		r = err_set(e, -errno, "cannot write the layers of the image to disk");
	if (m && r == 0)
		r = tree_remove(b->dir_fd, WORK, e);
	image_free(m);
	b->oci = NULL;
	return r;
}
