/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_DAEMON_H
#define BOX_DAEMON_H

/*
 * Inside cubbyd. One thread, one loop. What the parts of this folder share:
 *
 *	server.c	connections: frames in, answers out, who may
 *	ops.c		the operations of doc/protocol.md
 *	life.c		bringing a box up and taking it down; its end; time to live and idleness
 *	pool.c		throw-away boxes kept ready
 *	recover.c	what an earlier daemon left
 *	build.c		template builds that somebody waits for
 *	net.h		the network of boxes, and what is around it
 *
 * Rules:
 * 1. A box with `busy` set has an operation under way. Every other request that would change it waits in
 *    `waiting` and is dispatched anew afterwards: it finds what the first one left.
 * 2. Every request is answered exactly once, by req_ok() or req_fail(), which free it. Its connection may be gone by then.
 * 3. A box that is not a throw-away has a row in the database before anything of it exists, and until nothing does.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "box/builder.h"
#include "box/spec.h"
#include "chan/msg.h"
#include "engine/engine.h"
#include "state/db.h"
#include "store/template.h"

#define BOXES_MAX 8192u
#define CONNS_MAX 8192u
#define WAITERS_MAX 256u

enum box_state { BOX_CREATING, BOX_RUNNING, BOX_PAUSED, BOX_STOPPED, BOX_REMOVING, BOX_BROKEN, BOX_STATES };
extern const char *const box_state_words[BOX_STATES];

struct daemon;
struct conn;

struct req {
	struct daemon *d;
	struct conn *conn;	/* NULL when it is gone */
	struct req *next;	/* in a box's or a build's queue */
	struct json_doc doc;
	int fds[FD_PASS_MAX];
	size_t nfds;
	uid_t uid;
	gid_t gid;
	bool waited;		/* has been in a queue: don't announce again */
};

struct conn {
	struct daemon *d;
	struct conn *next, **link;
	int fd;
	struct loop_io io;
	struct msg_in in;
	struct buf out;		/* what the socket would not take yet */
	uid_t uid;
	gid_t gid;
	bool stranger;		/* may not use the daemon; counted, and gone when `late` */
	struct loop_timer late;
	struct req *req;	/* the one that is being worked on */
	struct box *holds;	/* a throw-away box that goes when this connection goes */
	bool taking;		/* frames are being taken from `in` */
	bool more;		/* frames may be left in `in` for its next turn */
	struct loop_timer turn;
};

struct net;
struct port;

struct box {
	struct daemon *d;
	struct box *next, **link;
	char id[ID_LEN + 1];
	char name[NAME_MAX_LEN + 1];
	uid_t owner;
	gid_t owner_gid;
	enum box_state state;
	char why[256];
	bool unread;		/* its row couldn't be understood, and is left as it is */
	enum why end_why;	/* the cause behind `why`, while a failed creation is undone */
	struct spec spec;
	int64_t created, started, expires;
	bool throw_away, pooled;
	struct conn *holder;

	int slot;		/* of the id range; -1: none */
	struct box_run run;
	struct loop_io exit_io;

	const char *busy;	/* what is being done, for people */
	struct req *waiting, **waiting_tail;
	unsigned nwaiting;

	/* Of its network (net.h). */
	bool net_on;		/* it has an interface, and the gateway knows it */
	char net_problem[256];	/* why it has none although it should */
	struct port *ports;	/* exposed */
	char **never;		/* what a person refused for good, as items of a policy */
	unsigned nnever;

	/* Counters as last read, and when: an end is blamed on what happened since. */
	uint64_t oom_seen, pids_seen, seen_at;

	struct loop_timer ttl, idle, stop;
	int64_t ttl_for;	/* the `expires` that `ttl` was set for */
	struct loop_io ping_io;
	int ping_fd;
	void (*ping_answer)(struct box *b, bool busy, uint64_t idle_ms);
	int stop_fd;

	/* Set by the operation under way: called when the engine is done with the box. */
	void (*then)(struct box *b, int r, struct err *e, void *arg);
	void *then_arg;
};

struct build {
	struct daemon *d;
	struct build *next, **link;
	struct template_build b;
	struct loop_io io;
	struct loop_timer tick;
	struct req *waiting;	/* template-create that wait for it: answered with the template */
	struct req *parked;	/* requests that need the template: dispatched anew */
	char said[160];
};

struct daemon {
	struct loop *loop;
	struct db *db;
	struct conf conf;
	const struct engine *engine;
	struct builders *builders;
	struct template_store *templates;
	struct net *net;
	char state_dir[1024], run_dir[1024];
	bool rootless;
	unsigned ids;		/* of the namespace, when rootless */
	uint32_t id_base, id_slots;
	int run_boxes_fd;	/* RUN/boxes */
	int listen_fd;
	int spare_fd;		/* given up to answer the door when there is no other one */
	struct loop_io listen_io;
	int signal_fd;
	struct loop_io signal_io;

	struct box *boxes;
	unsigned nboxes;
	uint8_t *slots;		/* one byte for each id range */
	struct conn *conns;
	unsigned nconns, nstrangers;
	struct build *builds;

	struct loop_timer idle_exit, refill, orphans, trim, sweep;
	unsigned sweeps;	/* still to be done */
	char pool_template[2 * NAME_MAX_LEN], pool_tz[64];
	struct limits pool_limits;
	bool pool_net;			/* with an interface */
	uint64_t pool_used_at;
	unsigned pool_making;
	char user_template[2 * NAME_MAX_LEN];	/* which was looked at last: has it the default user, and what does it say itself? */
	bool user_known;
	struct template_defaults said;
	uint64_t host_looked_at;	/* when it was last compared with the host */
	bool host_replaced;		/* there may be an old one on disk */
	bool leaving;
};

/* ---- server.c */
int server_listen(struct daemon *d, struct err *e);
void server_close(struct daemon *d);
void req_ok(struct req *q, struct buf *answer, const int *fds, size_t nfds);	/* takes the text; fds stay the caller's */
void req_done(struct req *q);							/* {"ok":true} */
void req_fail(struct req *q, const struct err *e);
void req_progress(struct req *q, const char *text);
/* Begin an answer: {"ok":true, … to be closed by json_end_obj(). */
void answer_begin(struct json_out *o, struct buf *text);

/* ---- ops.c */
void dispatch(struct req *q);

/* ---- life.c */
struct box *box_add(struct daemon *d, const char *id, const char *name, uid_t owner, struct err *e);
void box_free(struct box *b);	/* out of the list; nothing of it may be left on the host */
/* By name, then by id. Somebody else's box does not exist, but for root with `all`. */
struct box *box_find(struct daemon *d, uid_t uid, bool all, const char *name);
int box_save(struct box *b, bool durable, struct err *e);	/* nothing for throw-aways */
void box_event(struct box *b, const char *event, const char *text);
void box_write(const struct box *b, struct json_out *o, const char *key, bool open);

/*
 * Up. fds: one for each view of the spec, or none: then their sources are opened as the owner. `then` is called once, perhaps before
 * this returns. After a failure nothing of the box runs, but its directory may exist.
 */
void box_up(struct box *b, enum builder_queue q, const int *fds, size_t nfds,
	    void (*then)(struct box *, int, struct err *, void *), void *arg);
/* Down: everything in it ends now, cgroups and run files go; with `remove` its directory too. */
void box_down(struct box *b, enum builder_queue q, bool remove,
	      void (*then)(struct box *, int, struct err *, void *), void *arg);
/* TERM, wait, then down. */
void box_stop(struct box *b, uint64_t grace_ms, void (*then)(struct box *, int, struct err *, void *), void *arg);
/* A throw-away box: down, removed and freed. */
void box_discard(struct box *b);
/* Take over a running box: watch for its end. */
int box_adopt(struct box *b, const struct box_run *run, struct err *e);
/* The operation under way is over: let the waiting ones go on. The box may be freed by that. */
void box_release(struct box *b);
/* A connected socket to cubby-init, or a negative errno. */
int box_connect(struct box *b, struct err *e);
void box_timers(struct box *b);	/* (re)arm time to live and idleness */
void box_look(struct box *b);	/* refresh the counters */
/* Ask cubby-init whether anything runs; busy(b, true) when it can't be known. */
void box_ping(struct box *b, void (*answer)(struct box *b, bool busy, uint64_t idle_ms));
const char *box_parent_dir(const struct box *b, char *buf, size_t n);	/* STATE/boxes or STATE/run */

/* ---- pool.c */
struct box *pool_take(struct daemon *d, const struct spec *s);
void pool_wanted(struct daemon *d, const struct spec *s);	/* somebody uses such ones: keep some ready */
void pool_drop(struct daemon *d, const char *template);		/* NULL: all */

/* ---- build.c */
/*
 * Start a build, or join the one under way. `park`: dispatch q anew when the template is there; else answer it.
 * source NULL: make "host" anew, because the host has changed. With `wait` the build is cancelled when the connection of q ends
 * before it; without, q is answered at once with what is known of the template ("building").
 */
void build_for(struct daemon *d, const char *name, const char *source, int from_fd, uint64_t limit_ms, struct req *q,
	       bool park, bool wait);
void host_prune(struct daemon *d);
/* Answer with what there is to know of a template. */
void answer_template(struct req *q, const char *name);
struct build *build_find(struct daemon *d, const char *name);
int build_cancel(struct build *b, struct err *e);

/* ---- drill.c */
void op_drill_done(struct req *q);
/* The last drill of the box's owner with its engine, template and policy, as member "drill"; nothing when there is none. */
void drill_put_of(struct daemon *d, const struct box *b, struct json_out *o);
void drill_put_last(struct daemon *d, uid_t uid, struct json_out *o);	/* the newest of this user's */

/* ---- recover.c */
int recover(struct daemon *d, struct err *e);

/* ---- daemon.c */
void daemon_touch(struct daemon *d);	/* something happened: look again whether there is anything left to do */
int64_t now_s(void);

#endif
