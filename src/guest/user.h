/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_USER_H
#define GUEST_USER_H

/*
 * Who a command runs as, from the box's own /etc/passwd and /etc/group (passwd(5), group(5)). Both files are hostile:
 * they are read at most up to USER_FILE_MAX, must be regular files, and a line that isn't well formed is no entry.
 */

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define USER_FILE_MAX (1u << 20)
#define USER_GROUPS_MAX 64	/* supplementary groups of one user; more are an error */

struct user {
	uint32_t uid, gid;
	uint32_t groups[USER_GROUPS_MAX];
	unsigned ngroups;
	char name[64];	/* the number as text when the user has no entry */
	char home[256];	/* absolute */
	char shell[256];
};

/*
 * what: a name, "UID" or "UID:GID", whole-string decimal; or NULL: user 1000 where it has an entry and the box such
 * an id, else root.
 *
 * What begins with a digit is a number and is never looked up as a name. A number without entry has the group of the
 * same number, never group 0 by default. "root" and 0 need no entry. -EINVAL: no such notation; -ENOENT: no such
 * user; -E2BIG and others: the files can't be used.
 */
int user_find(const char *what, struct user *ret, struct err *e);

/* The same on given texts, which need not be terminated; either may be NULL. For user_find() and its tests. */
int user_find_in(const char *what, const char *passwd, size_t npasswd, const char *group, size_t ngroup,
		 struct user *ret, struct err *e);

#endif
