/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The layers of images, shared by the templates that have them. A template refers to a layer by naming it in its meta.json, and
 * what counts is the name in the text: a description that can't be parsed keeps its layers, too.
 */
#include "store/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "store/tree.h"

#define NAME_LEN 71	/* "sha256-" and the digits */

bool layer_name_ok(const char *name)
{
	return strncmp(name, "sha256-", 7) == 0 && strlen(name) == NAME_LEN && strspn(name + 7, "0123456789abcdef") == NAME_LEN - 7;
}

int layer_open(int layers_fd, const char *name, int *ret_root, uint64_t *ret_bytes, uint64_t *ret_files)
{
	char path[NAME_LEN + 16], text[128];
	OWN_FD dir = FD_NONE, root = FD_NONE;
	OWN_JSON doc = { 0 };
	ssize_t n;

	if (!layer_name_ok(name))
		return -EINVAL;
	dir = tree_open(layers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (dir < 0)
		return dir;
	root = tree_open(dir, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (root < 0)
		return root;
	(void)snprintf(path, sizeof(path), "size.json");
	n = file_read_small(dir, path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (json_parse(text, (size_t)n, &doc, NULL) < 0)
		return -EBADMSG;
	*ret_bytes = (uint64_t)json_int(doc.root, "bytes", 0);
	*ret_files = (uint64_t)json_int(doc.root, "files", 0);
	*ret_root = fd_take(&root);
	return 0;
}

int layers_hold(int layers_fd, int *ret, struct err *e)
{
	OWN_FD fd = openat(layers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(e, -errno, "cannot open the layers of images");
	while (flock(fd, LOCK_SH) < 0)
		if (errno != EINTR)
			return err_set(e, -errno, "cannot lock the layers of images");
	*ret = fd_take(&fd);
	return 0;
}

struct known {
	char (*names)[NAME_LEN + 1];
	bool *used;
	size_t n;
};

static DIR *list(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		fd_close(&fd);
	return d;
}

static int known_read(int layers_fd, struct known *k)
{
	DIR *d = list(layers_fd);
	struct dirent *de;
	size_t room = 0;

	if (!d)
		return -errno;
	while ((de = readdir(d)) != NULL) {
		if (!layer_name_ok(de->d_name))
			continue;
		if (k->n == room) {
			void *names;

			room = room ? room * 2 : 64;
			names = reallocarray(k->names, room, sizeof(*k->names));
			if (!names) {
				(void)closedir(d);
				return -ENOMEM;
			}
			k->names = names;
		}
		memcpy(k->names[k->n++], de->d_name, NAME_LEN + 1);
	}
	(void)closedir(d);
	k->used = calloc(k->n ? k->n : 1, sizeof(*k->used));
	return k->used ? 0 : -ENOMEM;
}

/* Marks what the descriptions in the directories of dir_fd name. One that is there and can't be read could name anything. */
static int known_mark(int dir_fd, struct known *k)
{
	DIR *d = list(dir_fd);
	struct dirent *de;
	int r = 0;

	if (!d)
		return -errno;
	while (r == 0 && (de = readdir(d)) != NULL) {
		OWN_BUF text = BUF_INIT(TEMPLATE_META_MAX);
		char path[NAME_MAX + 16];

		if (de->d_name[0] == '.')
			continue;
		(void)snprintf(path, sizeof(path), "%s/meta.json", de->d_name);
		r = place_read(dir_fd, path, &text);
		if (r == -ENOENT || r == -ENOTDIR) {
			r = 0;
			continue;
		}
		for (char *p = text.data; r == 0 && p && (p = strstr(p, "sha256-")) != NULL; p += 7)
			for (size_t i = 0; i < k->n; i++)
				k->used[i] = k->used[i] || strncmp(p, k->names[i], NAME_LEN) == 0;
	}
	(void)closedir(d);
	return r;
}

int layers_prune(struct template_store *s, struct err *e)
{
	OWN_FD lock = openat(s->layers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct known k = { 0 };
	int removed = 0, r;

	if (lock < 0)
		return err_set(e, -errno, "cannot open the layers of images");
	/* A build's end looks again. */
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return 0;
	r = known_read(s->layers_fd, &k);
	if (r == 0 && k.n > 0)
		r = known_mark(s->templates_fd, &k);
	if (r == 0 && k.n > 0)
		r = known_mark(s->building_fd, &k);
	if (r < 0)
		(void)err_set(e, r, "cannot see which layers of images are still used");
	for (size_t i = 0; r == 0 && i < k.n; i++)
		if (!k.used[i]) {
			r = store_discard(s, s->layers_fd, k.names[i], e);
			removed += r == 0;
		}
	free(k.names);
	free(k.used);
	return r < 0 ? r : removed;
}
