/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NATIVE_IMPL_H
#define ENGINE_NATIVE_IMPL_H

/* What the files of the native engine share. */

#include <stdbool.h>
#include <sys/types.h>

#include "engine/native/native.h"
#include "sys/cgroup.h"

#define HOLDERS_MAX 32

/* A directory by its identity. */
struct place {
	dev_t dev;
	ino_t ino;
};

struct native {
	bool ready;
	bool rootless;
	bool builder;		/* boxes become children of the parent */
	int gateway_ns;		/* borrowed; FD_NONE: boxes have no network here */
	bool time_ns;		/* this kernel has time namespaces */
	unsigned ids;		/* rootless: ids of our own namespace, 1 or more */
	int init_fd;		/* cubby-init, sealed */
	char *state_dir, *run_dir;
	struct place own[2];	/* state_dir, run_dir */
	struct place home_net;	/* the network namespace of the host; builders leave it */
	struct place holders[HOLDERS_MAX]; /* the directories that hold these */
	unsigned nholders;
	struct cgroups cg;
	unsigned fail_at;
};
extern struct native native;

/* Why engine_native can't be used yet, or 0. */
int native_ready(struct err *e);
void native_limits(const struct limits *l, struct cg_limits *ret);

/* Said to whoever wants a network where there is none. */
#define NO_NETWORK "boxes can't have a network here: `cubby doctor` says why; --net none makes one without"
/* The network namespace of a box that runs, proven to be its own: a descriptor, -ESRCH when the box is gone. */
int native_net_of(const struct box_run *run);

/* Marks of a box, kept on its cgroup, so that the engine of a later daemon knows them. */
enum { MARK_NESTING = 1, MARK_NO_SETID = 2, MARK_TIME_NS = 4, MARK_WEAKER = 8, MARK_WEAKENED = 16 };
void native_mark(const char *id, unsigned marks);
unsigned native_marks(const char *id);

/*
 * What start() noted in the run directory: the first process of box `id`, proven by its start time and pid namespace. For
 * daemons without root, and hosts without any cgroup. -ESRCH. ret->pidfd is the caller's.
 */
int native_note_read(const char *run_dir, const char *id, struct box_run *ret);
/* On a host without any cgroup: does a box of this id run? */
bool native_noted(const char *id);

/* ---- start.c, child.c ---- */

/*
 * What the child knows when it is born. It may share the builder's memory until it runs cubby-init (start.c, "birth"), so
 * this and the spec stay as they are until then, and the child writes to its own stack only.
 */
struct child_plan {
	const struct box_spec *spec;
	int leave[2];		/* the builder's descriptors, to be closed at once */
	bool says_hello;	/* a byte on `sock` first: the builder waits for it */
	int sock;		/* to the builder: 'm' when the ids are there; then the descriptors */
	int report;		/* a pipe: struct child_report, or cubby-init's one byte */
	int listener;
	int init_fd;
	int sys;		/* /sys, made for the box's network namespace, in which the child is born; FD_NONE: it makes both */
	int stage;		/* the tmpfs with /dev and /run, made by the builder; FD_NONE: the child makes what it can */
	bool no_setid;
	unsigned fail_at;	/* for tests; 0: none */
};

/* The second message of the builder, in this order on the socket: the parts, the mounts, the groups. */
struct child_orders {
	unsigned parts, mounts, groups;
	unsigned char is_dir[ENGINE_MOUNTS_MAX];	/* the mount's source is a directory */
};

struct child_report {
	int code;		/* negative errno */
	char doing[120];
};

_Noreturn void child_main(const struct child_plan *p);

/* ---- identity.c ---- */

/*
 * Give a box its own host name, machine-id, hosts, resolv.conf and time zone: written into the upper directory of the part
 * that holds /etc, before it is mounted. fresh: the upper directory was made by this start. No file when the layers have
 * no directory /etc. root_uid: the id on disk of the box's root.
 */
int identity_write(const struct box_spec *s, int box_dir, bool fresh, uid_t root_uid, struct err *e);
/* The index of the part that holds /etc, and the path of /etc in it ("" when the part is /etc itself). */
unsigned identity_part(const struct box_spec *s, const char **ret_path);

/* ---- mounts.c ---- */

/*
 * The caller's directories and files: judged, copied, shifted. Fills ret_fds; is_dir says what each is. box_dir: the box's
 * directory as it is on disk; box: the same with the ids of the box's user namespace `userns` (rootless: as it is, FD_NONE).
 */
int mounts_make(const struct box_spec *s, int box_dir, int box, int userns, int *ret_fds, unsigned char *ret_is_dir,
		struct err *e);
/* Of a start that failed: the upper directories of mounts_make() go when they are empty. */
void mounts_undo(const struct box_spec *s, int box_dir);

/* ---- grade.c ---- */

int native_probe(grade_fn *row, void *arg, struct err *e);
int native_grade(const char *id, const struct box_run *run, grade_fn *row, void *arg, struct err *e);
/* A layer that this spec asks for and this host can't give: WHY_UNSUPPORTED with the remedy. */
int native_missing(const struct box_spec *s, struct err *e);
/* Why clone3() with namespaces failed with `code`, in words, with the remedy. */
int native_userns_err(int code, struct err *e);

/* How many ids the user namespace we live in has, from 0 without a gap; at least 1. map: /proc/self/uid_map or gid_map. */
unsigned native_own_ids(const char *map);

int native_start(const struct box_spec *spec, struct box_run *ret_run, struct err *e);

#endif
