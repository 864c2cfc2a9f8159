/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_PATH_H
#define SYS_PATH_H

/*
 * Paths below a directory that somebody else fills. Nothing here follows a link or a magic link, or leaves the
 * directory by "..": openat2(2), no fallback, since a kernel without it is older than what is supported.
 */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Open dir_fd/path (flags as for open(2); O_CLOEXEC is added). A descriptor or a negative errno: -ELOOP for a link. */
int open_beneath(int dir_fd, const char *path, int flags);
/* The same, and not across a mount: -EXDEV. */
int open_beneath_same(int dir_fd, const char *path, int flags);

/*
 * The place for a mount: open dir_fd/path (relative, without "." and ".."), making what is missing: directories 0755, and
 * as the last part a directory or an empty file. Returns an O_PATH descriptor; -ELOOP when a part is a link, -ENOTDIR or
 * -EISDIR when it is something else. No allocation: for use between clone and exec, too.
 */
int mount_point(int dir_fd, const char *path, bool directory);

/* Is this an absolute path without empty, "." and ".." parts, at most PATH_MAX long? "/" is one. */
bool path_plain(const char *path);
/* Is `path` the same as `top` or below it? Both plain. */
bool path_within(const char *path, const char *top);

#endif
