/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_UNPACK_H
#define STORE_UNPACK_H

/*
 * Inside the store: what unpacking an archive (unpack.c) and the layers of an image (oci_layer.c) have in common. All of it runs
 * in a child process that unpack_confine() has taken everything from, and judges each name nevertheless.
 */

#include <archive.h>
#include <archive_entry.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/build.h"

#define UNPACK_BYTES_MAX (64ull << 30)
#define UNPACK_FILES_MAX 4000000ull
#define UNPACK_DEPTH_MAX 128u

/* Capabilities over files, and nothing else. */
#define UNPACK_CAPS (1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER | 1ull << CAP_FSETID)

struct unpack {
	struct build *b;
	int root_fd;		/* the tree that is written */
	const char *what;	/* for errors: "the archive" */
	const char *doing;	/* for the progress: "unpacking" */
	uint64_t max_bytes, max_files;
	unsigned max_depth;
	uint64_t bytes, files, left_out, since_check;
	bool noted_attrs;
	struct err *e;
};

/* The limits are unpack_limits, or the ones above. Everything is borrowed. */
void unpack_begin(struct unpack *u, struct build *b, int root_fd, const char *what, const char *doing, struct err *e);
/* For good: the root becomes root_fd; no network, no exec, no process, no memory above a limit, these capabilities. */
int unpack_confine(struct unpack *u, uint64_t caps);

/* -EBADMSG with "the archive is refused: 'NAME' WHY". */
int unpack_refuse(struct unpack *u, const char *name, const char *why);
/* A line of the log: left out, and why. Only the first ones are written. */
void unpack_note(struct unpack *u, const char *name, const char *why);
/*
 * "./a//b/" becomes "a/b". 0: the root itself; 1: a path; negative: a name that leads elsewhere, is too long or too deep. The
 * names of an archive are relative by nature; a leading "/" is a wish to be somewhere else.
 */
int unpack_path(struct unpack *u, const char *raw, char *ret, size_t n);
/* That many bytes more: over the limit, or is the disk full? */
int unpack_space(struct unpack *u, uint64_t more);
/* The content of the entry into fd, holes kept. */
int unpack_data(struct unpack *u, struct archive *a, struct archive_entry *ae, int fd, const char *path);
/* An id that a box has: what is beyond becomes "nobody". */
uint32_t unpack_id(int64_t id);

#endif
