/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

/*
 * What isolates. Above this line nobody knows how a box is made: exec, shell, file copy and ports run
 * over the socket of cubby-init, whatever the engine.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/weaken.h"

#define ENGINE_PARTS_MAX 16	/* separately mounted parts of a root file system ("/", "/usr", …) */
#define ENGINE_LAYERS_MAX 64	/* layers below one part */
#define ENGINE_MOUNTS_MAX 8	/* project views of one box */
#define BOX_IDS 65536u		/* ids of one box */

/* 0 means "no limit of its own" everywhere but swap. */
struct limits {
	uint64_t memory;	/* bytes, kernel memory included */
	uint64_t swap;		/* bytes on top of memory; 0: none */
	uint64_t pids;
	uint32_t cpu_milli;	/* thousandths of one CPU */
	uint32_t cpu_weight;	/* 1–10000 as in cgroup v2; 0: 100 */
	uint64_t io_read, io_write; /* bytes per second, of the disk that holds the state directory */
};

struct root_part {
	char *at;		/* absolute mount point in the box; the first part is "/" */
	char *layers[ENGINE_LAYERS_MAX]; /* absolute host directories, topmost first */
	unsigned nlayers;
	bool idmap;		/* layers hold canonical ids 0–65535: shift them into the box's range */
};

struct box_mount {
	int fd;			/* O_PATH, opened by the caller itself: its rights, not ours; borrowed */
	char *at;		/* absolute place in the box */
	bool read_only;
	/*
	 * Copy on write: what the box changes is kept in box_dir/upper/view-K (work/view-K; K: index of the mount), and the
	 * directory of the host only read. box_dir/view-K says since when (store/view.h). Not with read_only.
	 */
	bool cow;
	char *layers[ENGINE_LAYERS_MAX]; /* with cow: earlier uppers between the upper and fd, absolute, topmost first */
	unsigned nlayers;
	uint32_t host_uid, host_gid;	/* the caller: owner on the host ... */
	uint32_t box_uid, box_gid;	/* ... of what this user of the box writes */
};

struct box_spec {
	char id[ID_LEN + 1];
	char host_name[NAME_MAX_LEN + 1];
	char *box_dir;		/* absolute; the engine keeps upper/N and work/N (N: index of the part) in it */
	char *run_dir;		/* absolute; holds the socket of cubby-init: init.sock */
	struct root_part parts[ENGINE_PARTS_MAX];
	unsigned nparts;
	uint32_t id_base;	/* first host id of the box's range */
	struct limits limits;
	struct box_mount mounts[ENGINE_MOUNTS_MAX];
	unsigned nmounts;
	bool net;		/* an interface that ends in the gateway namespace; else the box has its loopback only */
	bool nesting;		/* the box may make user namespaces of its own */
	bool throw_away;	/* contents need not survive a power cut (overlay "volatile") */
	unsigned weaken;	/* WEAKEN_… (base/weaken.h): made without these, for a drill; with throw_away only */
	bool allow_weaker;	/* start although a layer of defence is missing; the grade names it */
	char tz[64];		/* time zone name for /etc/localtime, or empty */
};

/* A box that runs. Enough of it is on disk and in the cgroup tree to be found again by id (engine_find). */
struct box_run {
	pid_t pid;		/* of cubby-init, in the host's pid namespace */
	int pidfd;		/* owned */
	unsigned net_index;	/* with spec.net: the box's number (net/addr.h) and its interface in the gateway namespace; else 0 */
	int net_if;
};

struct usage {
	uint64_t memory, memory_peak, swap, pids, cpu_us, io_read, io_write;
	uint64_t oom_kills;	/* processes of the box killed for its memory limit, so far */
	uint64_t pids_denied;	/* forks refused for its process limit, so far */
};

enum grade_level { GRADE_OFF, GRADE_WEAK, GRADE_ON };
/* One layer of defence. `id` is a stable word, `what` a sentence for people, `fix` the command that mends it or NULL. */
struct grade_row {
	const char *id;
	enum grade_level level;
	const char *what;
	const char *fix;
};
typedef void grade_fn(const struct grade_row *row, void *arg);

/* Engine abilities. */
enum { ENGINE_CAN_FREEZE = 1, ENGINE_CAN_LIMIT = 2, ENGINE_CAN_MEMORY_SNAPSHOT = 4 };

struct engine {
	const char *name;
	/* What this host can do, by trying it in a throw-away child. Reports every layer; <0 when no box can be had at all. */
	int (*probe)(grade_fn *row, void *arg, struct err *e);
	/*
	 * Make the box and return when cubby-init listens. On failure nothing is left behind.
	 * cubby-init becomes a child of the *parent* of the calling process (CLONE_PARENT) when the call is made in a builder.
	 */
	int (*start)(const struct box_spec *spec, struct box_run *ret_run, struct err *e);
	/*
	 * Find a running box of an earlier daemon by id: identity proven by cgroup and pidfd, never by a number alone. -ESRCH.
	 * Its net_index is 0: the interface that it had ended in an earlier daemon's gateway namespace, and plug() gives a new one.
	 */
	int (*find)(const char *id, struct box_run *ret_run, struct err *e);
	int (*set_limits)(const char *id, const struct limits *limits, struct err *e);
	int (*freeze)(const char *id, bool on, struct err *e);
	int (*usage)(const char *id, struct usage *ret, struct err *e);
	/* The layers really in force in a running box, probed by effect. */
	int (*grade)(const char *id, const struct box_run *run, grade_fn *row, void *arg, struct err *e);
	/* End everything in the box, now. Also from any half-made state; 0 when there was nothing. */
	int (*kill)(const char *id, struct err *e);
	/* After the end: cgroups, mounts, run files. Accepts that nothing is there. Does not touch box_dir. */
	int (*forget)(const char *id, struct err *e);
	/*
	 * Give a running box an interface, or take it. `run` gets the new numbers. The box's first process keeps what it has; its
	 * connections, if any, are gone. Called in a builder.
	 */
	int (*plug)(const char *id, struct box_run *run, bool on, struct err *e);
	/* In a builder with nothing to do: make a piece of the next box in advance. False when there is nothing more to make. Or NULL. */
	bool (*prepare)(void);
	/* Ids that this engine has anything of (cgroups), for reconciling. */
	int (*each)(void (*found)(const char *id, void *arg), void *arg, struct err *e);
};

extern const struct engine engine_native;

#endif
