/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_USERNS_H
#define SYS_USERNS_H

/* User namespaces and the processes that are born with them (user_namespaces(7), clone(2)). */

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* struct clone_args of the kernel, which <sched.h> hides; 88 bytes: with the cgroup. */
struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
/* Like fork(), with these flags. 0 in the child; negative errno. */
pid_t clone3(struct clone3_args *a);

/* Write the maps of a child: lines "inside outside count". Negative errno. */
int userns_map(pid_t pid, const char *uid_map, const char *gid_map);

/*
 * A user namespace with these maps and no process in it, for an idmapped mount: there "inside" is the id on disk and
 * "outside" the one that is seen. The descriptor is the caller's.
 */
int userns_for_mount(const char *uid_map, const char *gid_map, int *ret_fd, struct err *e);

#endif
