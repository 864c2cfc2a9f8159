/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GUEST_KIN_H
#define GUEST_KIN_H

/*
 * Everything that descends from the calling process. The caller is a child subreaper (prctl(2),
 * PR_SET_CHILD_SUBREAPER), so a process that left its session, group and parent is still in the tree below it.
 */

#include <stdint.h>

/*
 * Send a signal to every descendant that can be seen in one pass over /proc. Returns how many got it, or a negative
 * errno. A process made during the pass may be missed: repeat until none is left.
 */
int kin_signal(int sig);

/* KILL in passes until the caller has no child left, which it reaps, or max_ms are over. 0, or -ETIMEDOUT. */
int kin_kill(uint64_t max_ms);

#endif
