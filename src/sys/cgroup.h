/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_CGROUP_H
#define SYS_CGROUP_H

/*
 * Control groups of boxes: one group for each box, named by its id, below a group of the installation, named
 * cubby-TAG, in each hierarchy that is needed: v2 where there is one, even without controllers (it gives freezing,
 * killing, and a birth inside the group), and v1 for the controllers that v2 does not have (cgroups(7)).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"

enum cg_ctl { CG_MEMORY, CG_PIDS, CG_CPU, CG_IO, CG_FREEZER, CG_COUNT };

/* The limits of one group; 0: none of its own, but for swap. The fields are those of struct limits (engine/engine.h). */
struct cg_limits {
	uint64_t memory, swap, pids;
	uint32_t cpu_milli, cpu_weight;
	uint64_t io_read, io_write;
	dev_t io_dev;	/* the disk that io_* are about */
};

struct cg_usage {
	uint64_t memory, memory_peak, swap, pids, cpu_us, io_read, io_write, oom_kills, pids_denied;
};

struct cgroups {
	int v2;			/* directory of cubby-TAG in the v2 hierarchy, or FD_NONE */
	unsigned v2_ctl;	/* 1 << enum cg_ctl: controllers that v2 gives to groups below it */
	int v1[CG_COUNT];	/* the same directory in v1 hierarchies, or FD_NONE */
	char name[64];		/* cubby-TAG */
	char where[CG_COUNT + 1][512];	/* absolute path of each directory; the last one is v2's; "" when absent */
};

/*
 * Find the hierarchies from /proc/self/mountinfo and /proc/self/cgroup and make the group of the installation: in v1
 * below the caller's own group, in v2 below the root of what is mounted (as root) or below the caller's own group if that
 * is delegated to it (rootless). The places are written to record_dir/cgroups, and taken from there by the next
 * process of the same installation, which may live in another group. A host without any cgroup is no failure.
 */
int cgroups_open(struct cgroups *cg, const char *tag, int record_dir, bool rootless, struct err *e);
/* Closes everything; removes the installation's groups that are empty. Accepts a closed one. */
void cgroups_close(struct cgroups *cg, bool remove);

/* Whether this controller's limits can be had. */
bool cgroups_have(const struct cgroups *cg, enum cg_ctl ctl);

/*
 * Make the box's group in v2 and open it for CLONE_INTO_CGROUP. *ret_fd is FD_NONE where there is no v2. A group that is
 * there is -EEXIST: the id is in use.
 */
int cgroup_make_v2(const struct cgroups *cg, const char *id, int *ret_fd, struct err *e);

/*
 * Make the box's groups in v1, and set all limits in v1 and v2. As few groups as the limits need: memory and pids always,
 * cpu and io when limited. ret_tasks takes open "tasks" files (at most CG_COUNT, owned by the caller): a thread that
 * writes "0" there joins; it is the only way that doesn't wait for the kernel's fork lock, which takes milliseconds
 * after a pause (cgroup_procs_write_start() in the kernel).
 */
int cgroup_make_v1(const struct cgroups *cg, const char *id, const struct cg_limits *l, int ret_tasks[CG_COUNT],
		   unsigned *ret_n, struct err *e);

/* Change the limits of a live box; makes missing v1 groups and moves its processes there. */
int cgroup_set_limits(const struct cgroups *cg, const char *id, const struct cg_limits *l, struct err *e);
/* Returns when everything is frozen or thawed, within 2 s, else -ETIMEDOUT. */
int cgroup_freeze(const struct cgroups *cg, const char *id, bool on, struct err *e);
/* -ESRCH when the box has no group. What a host can't count stays 0. */
int cgroup_usage(const struct cgroups *cg, const char *id, struct cg_usage *ret, struct err *e);
/* Kill everything in the box's groups and wait until nothing runs, at most 10 s. 0 when there is no such group. */
int cgroup_kill(const struct cgroups *cg, const char *id, struct err *e);
/* Remove the groups of a box; waits for the kernel to let go of them, at most 2 s. 0 when there are none. */
int cgroup_remove(const struct cgroups *cg, const char *id, struct err *e);
/* Does anything of the box exist? */
bool cgroup_exists(const struct cgroups *cg, const char *id);
/* Every id that has a group in any hierarchy, each once. */
int cgroup_each(const struct cgroups *cg, void (*found)(const char *id, void *arg), void *arg, struct err *e);
/* The process ids in the box's group as seen from here, at most n. The number found, or a negative errno. */
int cgroup_pids(const struct cgroups *cg, const char *id, pid_t *ret, size_t n);
/* Is pid in the box's group in every hierarchy that has one for the box? By /proc/PID/cgroup. */
bool cgroup_holds(const struct cgroups *cg, const char *id, pid_t pid);
/* Read a file of the box's group that carries ctl ("memory.max"), for looking at what is in force. Negative errno. */
int cgroup_read_num(const struct cgroups *cg, const char *id, enum cg_ctl ctl, const char *v2_file,
		    const char *v1_file, uint64_t *ret);

#endif
