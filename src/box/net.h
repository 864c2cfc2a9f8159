/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_NET_H
#define BOX_NET_H

/*
 * The daemon's side of the network (net/ctl.h): it owns the gateway namespace, starts cubby-gateway when the first box needs it, watches
 * it and starts it again, tells it of the boxes, and answers what it asks.
 *
 *	net.c		policies of boxes; what the gateway is told of them
 *	gateway.c	the process and its socket
 *	netask.c	questions in both directions: why, show, who, ask
 *	netlog.c	the log of connections: rotation, and reading it for those it belongs to
 *	netops.c	the operations net-… of doc/protocol.md
 *	expose.c	ports of boxes on the host's loopback
 *	who.c		which process of a box holds a socket
 *
 * The gateway is not trusted: whatever it says is checked, and at most believed about connections.
 */

#include "box/daemon.h"
#include "box/run.h"
#include "net/policy.h"

#define NET_QUESTIONS_MAX 256u	/* held for people at once, of all boxes */
#define NET_NEVER_MAX 256u	/* answers "never" that one box has */

/* An exposed port that listens. */
struct port {
	struct port *next;
	uint16_t port, host_port;
	uint32_t key;		/* for the gateway */
	int fd;			/* the listening socket, or FD_NONE: see problem */
	char problem[200];
};

/* A name or address that the gateway holds until a person has answered. */
struct question {
	struct question *next;
	uint32_t ask;		/* the gateway's number */
	int64_t n;		/* ours: never used twice by one daemon */
	char id[ID_LEN + 1];	/* of the box */
	char name[HOST_NAME_MAX_LEN + 1], addr[IP_TEXT_MAX], proto[8];
	uint16_t port;
	int64_t at;
};

/* Somebody waits for the gateway to be ready. */
struct waiter {
	struct waiter *next;
	void (*fn)(void *arg, int r, const struct err *e);
	void *arg;
};

/* A question of ours to the gateway, about a box; the request is answered with what it says. */
struct asked {
	struct asked *next;
	uint32_t n;
	struct req *q;
	char id[ID_LEN + 1];
	bool show;
	uint64_t until;
};

struct out_msg {
	struct out_msg *next;
	char *text;
	size_t len, at;		/* with its head */
	int fd;
};

struct net {
	struct daemon *d;
	int ns;				/* the gateway namespace, borrowed; FD_NONE: `why` tells */
	char why[ERR_TEXT_MAX];
	const char *program;		/* cubby-gateway, or NULL */
	struct presets *presets;
	char *presets_text;		/* of the file, or NULL */
	char *policy;			/* of boxes that name none; NULL: no network */

	pid_t pid;			/* 0: it doesn't run */
	int pidfd, ctl, said;		/* said: its standard error */
	struct loop_io exit_io, ctl_io;
	struct msg_in in;
	struct out_msg *out, **out_tail;
	size_t out_bytes;
	bool ready;
	char *grade;			/* JSON array of its "ready" */
	uint64_t born;
	unsigned deaths;		/* in a row, each soon after its birth */
	char death[ERR_TEXT_MAX];
	struct loop_timer again, patience;
	struct waiter *waiters;

	struct asked *asked;
	struct loop_timer asked_late;
	struct question *questions;
	int64_t questions_n;
	uint32_t next_n, next_key;

	int log_fd;
	struct reading *readings;	/* that wait for what the gateway holds (netlog.c) */
	int watch;			/* inotify of resolv.conf */
	struct loop_io watch_io;
	struct loop_timer reread;
	char *config;			/* as last sent */
	char proxy_problem[320];	/* of a proxy that the environment names; "" */
};

/* Judges the configuration: -EINVAL for a policy or presets that don't parse. No process yet. */
int net_new(struct daemon *d, const struct net_setup *setup, struct err *e);	/* setup may be NULL */
void net_free(struct net *n);	/* ends the gateway; accepts NULL */

/* ---- net.c */
/*
 * The canonical policy of a box: `text`, or the configured one when NULL, with the items of `more` (or NULL) added. *ret: malloc'd, or NULL
 * for none. Also refused: a network where none can be had.
 */
int net_policy(struct daemon *d, const char *text, const char *more, char **ret, struct err *e);
void net_defaults(const struct conf *c, struct net_limits *l);
/* The box runs and has an interface: tell the gateway. Then expose its ports. Nothing for a box without network. */
void net_box_on(struct box *b);
void net_box_off(struct box *b, bool taken);	/* accepts one that isn't on. taken: the box runs on */
void net_box_changed(struct box *b);	/* policy, limits or name */
/* An interface for a running box, or none any more; `then` as in box_up(). The box is busy meanwhile. */
void net_plug(struct box *b, bool on, void (*then)(struct box *, int, struct err *, void *), void *arg);
/* After a daemon's death: the box of an earlier one runs, and needs a new interface. */
void net_recover(struct box *b);
/* Members of the box's JSON: address[], net_problem, expose_problem (the first port that isn't listened on). */
void net_write(const struct box *b, struct json_out *o);
/* Everything that a new gateway has to know. */
void net_tell_all(struct net *n);
bool net_any(const struct net *n);	/* is there a box that needs the gateway? */

/* ---- gateway.c */
/* Calls fn once: now when the gateway is ready or can't be had, else later. Starts it. */
void gateway_want(struct net *n, void (*fn)(void *arg, int r, const struct err *e), void *arg);
void gateway_start(struct net *n);	/* unless it runs */
/* Queue a message; nothing when no gateway runs. Empties `text`. fd is copied; FD_NONE: none. */
void gateway_send(struct net *n, struct buf *text, int fd);
bool gateway_reap(struct net *n, pid_t pid);	/* is it this child? */
void gateway_configure(struct net *n);	/* send the configuration if it differs from what was sent */

/* ---- netask.c */
void net_heard(struct net *n, const char *ev, const struct json *m);	/* all but ready, log-full, dial */
/* The request is answered when the gateway has answered, or not in time. `m` begins the message: op and what it needs. */
void net_ask_gateway(struct req *q, struct box *b, bool show, const char *host, uint16_t port);
void net_asked_gone(struct net *n);	/* the gateway died: nobody answers */
/* Has a person answered "never" to it, as long as the box runs? port 0: to every one. */
bool net_never(const struct box *b, const char *host, uint16_t port);
void op_net_ask(struct req *q);
void op_net_answer(struct req *q);

/* ---- netops.c */
void op_net_set(struct req *q);
void op_net_show(struct req *q);
void op_net_why(struct req *q);
void op_net_presets(struct req *q);
void net_doctor_rows(struct net *n, struct json_out *o);
/* What `net show` says of a box beside what the gateway knows. */
void net_put(const struct box *b, struct json_out *o);

/* ---- expose.c */
void op_expose(struct req *q);
void expose_on(struct box *b);		/* listen, and tell the gateway */
void expose_off(struct box *b);
void expose_tell(struct box *b);	/* a new gateway gets the listening sockets */
void expose_dial(struct net *n, const struct json *m);
void expose_write(const struct box *b, struct json_out *o, const char *key);

/* ---- netlog.c */
int netlog_open(struct net *n, struct err *e);
void netlog_rotate(struct net *n);	/* opens a new file and gives it to the gateway */
void netlog_owner(struct box *b);	/* whose lines its lines are */
void netlog_flushed(struct net *n);	/* the gateway has written what it held */
void op_net_log(struct req *q);

/* ---- who.c */
/*
 * "comm(PID in the box)" of the process that holds the socket with this local port, and this far end when it is known; "" when it isn't
 * found. The work is
 * bounded, not what a box has. proto: "tcp" or "udp". ret: printable text of at most n - 1 bytes.
 */
void who_holds(pid_t init, const char *proto, uint16_t src_port, char *ret, size_t n);

/* ---- ops.c, for operations that stand elsewhere */
void op_fail(struct req *q, enum why why, int code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
struct box *op_box(struct req *q, bool to_change);
void op_answer_box(struct req *q, const struct box *b);
bool op_whole(struct req *q, const struct box *b);

#endif
