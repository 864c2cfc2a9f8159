/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_BUILD_H
#define STORE_BUILD_H

/*
 * Inside the store: what its files share. A "build" is the view of the process that builds one template; it is
 * root (or root of the daemon's user namespace), its umask is 0, and its root/ is seen by nobody else yet.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/template.h"

#define TEMPLATE_META_MAX (1024u * 1024)
#define FILE_SMALL_MAX (16u << 20)	/* a file that is read into memory is no longer than this */

struct template_store {
	char *dir;		/* STATE, absolute */
	char *host_root;	/* where the host's file system is: "/" but in tests */
	int templates_fd, building_fd, layers_fd;
	uint32_t ids;
	int (*discard)(const char *parent, const char *name, void *arg); /* NULL: remove at once */
	void *discard_arg;
};

struct build {
	uint32_t ids;
	int dir_fd;		/* building/NAME.XXXXXXXX */
	int root_fd;		/* its root/ */
	int log_fd;
	int progress_fd;
	int from_fd;		/* FD_NONE without */
	int host_fd;		/* the host's root directory */
	const char *host_root;	/* its path, "" for "/" */
	const char *source;
	bool contained;		/* in a pid and mount namespace of its own */
	const struct template_who *who; /* NULL: ourselves */
	int layers_fd;		/* layers-oci/ */
	struct buf parts;	/* more parts than "/": JSON objects, each preceded by a comma */
	struct buf layers;	/* layers below root/, topmost first: JSON strings, each preceded by a comma */
	struct buf image;	/* what the image says about itself: a JSON object, or empty */
	struct image *oci;	/* of an image, while it is built: image.c */
	uint64_t more_bytes, more_files;	/* in those layers */
	uint64_t stamp;		/* fingerprint of the host; 0: none */
	uint64_t started_ms;
};

/* One line of the log. Control characters are escaped. */
void build_log(struct build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What the build is at, for template_build_progress(). */
void build_at(struct build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Builders of root/. */
int host_build(struct build *b, struct err *e);			/* host.c */
int debian_build(struct build *b, const char *suite, struct err *e); /* debian.c; suite "": the host's, else stable */
int copy_build(struct build *b, struct err *e);			/* copy.c: a directory, from from_fd */
int unpack_build(struct build *b, struct err *e);		/* unpack.c: an archive, from from_fd */
int image_build(struct build *b, struct err *e);			/* image.c: an OCI image; then image_publish() */

/* Its layers to layers-oci/, when everything is on disk; removes what only the build needed. Nothing to do for other builds. */
int image_publish(struct build *b, struct err *e);

/* Of a root that came from elsewhere: the directories that every box needs, as real ones, and the user `agent`. copy.c */
int root_finish(struct build *b, bool want_sudo, struct err *e);

/* Remove dir_fd/name, which is of this store and may be large: at once, or as template_store_discard() says. template.c */
int store_discard(struct template_store *s, int dir_fd, const char *name, struct err *e);

/*
 * layers-oci/ (layers.c). A layer is named "sha256-" and 64 digits. Is this such a name? The place of the layer's tree; its size.
 */
bool layer_name_ok(const char *name);
int layer_open(int layers_fd, const char *name, int *ret_root, uint64_t *ret_bytes, uint64_t *ret_files);
/* Keep layers from being removed while the descriptor is open: for a build. */
int layers_hold(int layers_fd, int *ret, struct err *e);
/* Remove the layers that no template and no finished build names; nothing while a build holds them. Returns how many. */
int layers_prune(struct template_store *s, struct err *e);

/* The mark of what the "host" template is made from; never 0. */
uint64_t host_stamp(int host_fd);

/* A suite name as mmdebstrap and apt take it. */
bool debian_suite_ok(const char *s);

/*
 * Making things below a directory that we own (place.c). ids are canonical. Everything is exclusive: what is there is an error
 * but for place_dir(), which accepts a directory and gives it the owner and mode. `dir_fd` may be followed by a path
 * ("etc/apt") whose parents are real directories, never links.
 */
int place_dir(const struct build *b, int dir_fd, const char *path, unsigned mode, uint32_t uid, uint32_t gid);
int place_file(const struct build *b, int dir_fd, const char *path, unsigned mode, uint32_t uid, uint32_t gid,
	       const void *data, size_t n);
int place_link(const struct build *b, int dir_fd, const char *path, const char *target, uint32_t uid, uint32_t gid);
int place_owner(const struct build *b, int dir_fd, const char *name, uint32_t uid, uint32_t gid);
/* A whole regular file below dir_fd into buf, no link followed. -E2BIG over the buffer's maximum; -EINVAL: not a file. */
int place_read(int dir_fd, const char *path, struct buf *to);
/* -ENOSPC when the disk is nearly full: what is copied for somebody stops before it fills the disk for everybody. */
int place_space(int dir_fd, struct err *e);
/* All the bytes of from to to, holes kept. Returns the bytes or a negative errno. */
int64_t place_copy(int from, int to);

/*
 * Accounts (users.c). From the host's files: system accounts and groups (ids below 1000, and nobody), no password, no
 * person; `agent` 1000:1000 with its home from /etc/skel of root_fd, locked shadow entries, sudo rule where root has sudo.
 */
int users_from_host(struct build *b, int host_fd, struct err *e);
/* Into a root that has accounts of its own: adds `agent` unless somebody is 1000 already; 0 too when it has no /etc/passwd. */
int users_add_agent(struct build *b, bool want_sudo, struct err *e);
/* The id of a group in /etc/group below root_fd, or dflt. */
uint32_t users_group_id(int root_fd, const char *name, uint32_t dflt);
/* Calls home(path) for the home directories of people (ids from 1000, but nobody) in /etc/passwd below root_fd. */
int users_each_home(int root_fd, void (*home)(const char *path, void *arg), void *arg);

/* True when the file shows a secret that has no business in a box (secrets.c). */
bool secret_name(const char *name);
/*
 * Look through the text of the file `path` (relative, for its kind). -EPERM: leave the file out. 0: *text may have been
 * changed: "user:password@" taken out of addresses, lines that set a secret replaced by ":" in shell files.
 */
int secret_filter(const char *path, struct buf *text);

/* For tests: another root instead of "/". */
int template_store_host_root(struct template_store *s, const char *path);

/* Limits of what is unpacked or copied. 0: the default. For tests. */
struct unpack_limits {
	uint64_t bytes, files;
	unsigned depth;
};
extern struct unpack_limits unpack_limits;

#endif
