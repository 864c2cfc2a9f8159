/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_MNT_H
#define SYS_MNT_H

/* Detached mounts: made here, attached by somebody else (mount_setattr(2), and Documentation/filesystems/overlayfs.rst). */

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * A copy of the mount at dir_fd/path (path "": dir_fd itself), without the mounts below it. attrs: MOUNT_ATTR_*;
 * userns_fd: FD_NONE, or shift ids by that user namespace. Returns a descriptor or a negative errno. -EINVAL also when
 * the descriptor comes from another mount namespace.
 */
int mnt_copy(int dir_fd, const char *path, unsigned long long attrs, int userns_fd);

struct overlay {
	const int *lower;	/* descriptors, topmost first */
	unsigned nlower;
	int upper, work;	/* of one mount */
	/*
	 * The id under which overlayfs makes its temporary files: it must be one that the idmapped upper has, or the mount
	 * turns read-only and copying up fails with EOVERFLOW. 0 without idmapping.
	 */
	uid_t as;
	bool throw_away;	/* "volatile": nothing is synced, and after a crash it can't be mounted again */
	bool in_userns;		/* made inside a user namespace: attributes in user.*, no redirects */
	bool whole;		/* no redirects and no files without data in the upper directory: it can be taken by itself */
	/*
	 * The lowest layer is a live directory of somebody: inode numbers are its own also where the upper is on another file
	 * system (programs keep lists of them), a file is copied up whole, so that it lives on when the one below is replaced, and
	 * what the upper was made above once isn't held against it. The mount is also nosuid.
	 */
	bool live;
};
/* Returns the detached mount (nodev), or a negative errno. */
int overlay_make(const struct overlay *o, struct err *e);

#endif
