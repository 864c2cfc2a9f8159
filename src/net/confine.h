/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_CONFINE_H
#define NET_CONFINE_H

/*
 * What cubby-gateway gives up, for good, after its sockets are made and before the first byte of a box is read: file system, ids,
 * capabilities, core dumps, new privileges, all system calls but those of its loop.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * uid, gid: (uid_t)-1: kept. grade gets a JSON array of {"id","on","what"}: what could be had and what not. Ids, capabilities,
 * no_new_privs and the filter must work; *ret_files: how many descriptors it may have; the empty root and Landlock are what the kernel offers.
 */
int confine(uid_t uid, gid_t gid, struct buf *grade, unsigned *ret_files, struct err *e);

#endif
