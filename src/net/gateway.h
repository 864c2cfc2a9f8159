/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_GATEWAY_H
#define NET_GATEWAY_H

/*
 * cubby-gateway: one thread, one loop, everything non-blocking. This header is the gateway's own: its parts (talk, tcp, dial, udp, ping,
 * log, …) share what is here, and nobody else includes it but its main().
 *
 *	confine.c	gives up every right, once, before the first byte of a box is read
 *	gateway.c	the tables, the loop, the coarse clock
 *	talk.c		the words of net/ctl.h
 *	syn.c		first packets: judged, answered, put back
 *	dial.c		the connection on the host's side, through a proxy where there is one
 *	tcp.c		the bytes
 *	say.c		what a client says first (names), and DNS over TCP
 *	udp.c, ping.c	flows
 *	expose.c	listeners of the host that lead into a box
 *	log.c		the lines, and which process it was
 *	own.c		the host's own addresses
 *	packet.c	reads and writes packets; no system calls
 *
 * Invariants:
 *	1. Whose a packet, datagram or connection is, is told by the interface it came in on, and its source has to be that box's address.
 *	2. Nothing is dialled before policy_judge() allowed it in the same turn, with everything read that the daemon had sent.
 *	3. What a box can have is counted: connections, flows, descriptors. A box gets no more of a shared table than what is left
 *	   free of it, so that a greedy one can't take the last (fds_left()).
 *	4. An object is freed by its x_end() only; who calls something that may end it doesn't touch it afterwards.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/parse.h"
#include "chan/msg.h"
#include "net/addr.h"
#include "net/names.h"
#include "net/packet.h"
#include "net/proxyurl.h"
#include "net/policy.h"
#include "net/world.h"

/* ---- lists that run through their members; a zeroed link is in no list */

struct link {
	struct link *next, *prev;
};
static inline void link_init(struct link *head)
{
	head->next = head->prev = head;
}
static inline bool link_in(const struct link *l)
{
	return l->next != NULL;
}
static inline void link_add(struct link *head, struct link *l)	/* as the last */
{
	l->prev = head->prev;
	l->next = head;
	head->prev->next = l;
	head->prev = l;
}
static inline void link_del(struct link *l)	/* also of one that is in no list */
{
	if (!l->next)
		return;
	l->prev->next = l->next;
	l->next->prev = l->prev;
	l->next = l->prev = NULL;
}
static inline bool link_none(const struct link *head)
{
	return head->next == head;
}
#define LINK_OF(l, type, member) ((type *)(void *)((char *)(l) - offsetof(type, member)))
#define LINK_EACH(l, tmp, head) for (struct link *l = (head)->next, *tmp = l->next; l != (head); l = tmp, tmp = l->next)

/* ---- limits */

enum {
	ASK_HELD_MAX = 64,	/* connections that wait for one answer */
	ASKS_MAX = 256,		/* questions of all boxes */
	ASKS_BOX_MAX = 16,	/* of one: nobody's questions keep the others' from being asked */
	DNS_CONNS_MAX = 32,	/* connections of one box to the resolver */
	DNS_IN_MAX = 4096,	/* bytes of a question over TCP; a name has 255 */
	GRANTS_MAX = 64,	/* answers remembered for one box */
	PUT_MAX = 256,		/* put back and not yet accepted, of one box */
	DIAL_MS = 130000,	/* a little longer than Linux tries itself (tcp_syn_retries = 6) */
	PUT_MS = 20000,		/* the box's own kernel answers at once, unless the box is gone */
	YOUNG_MS = 30000,	/* most connections are over by then, and were spared what only long ones need */
	ICMP_AGAIN_MS = 100,
	SAY_MS = 10000,		/* from a client's first byte to its name */
	UDP_MS = 30000, UDP_LONG_MS = 180000,
	DNS_IDLE_MS = 10000,
	FIRSTS = 5000,		/* first packets and first datagrams that are looked at in a tenth of a second, of one box */
	GRANT_MS = 300000, DENIED_MS = 10000,
	FDS_RESERVE = 128,	/* descriptors that no box gets: pipes, names, listeners */
	SHARED_BUF = 65536 + 64,
};

struct gw;
struct conn;
struct flow;

/* ---- a box */

struct gbox {
	struct link all, at_if;		/* gw.boxes; a bucket of gw.by_if */
	struct gw *g;
	char id[ID_LEN + 1], name[NAME_MAX_LEN + 1];
	int ifindex;
	struct ip v4, v6;
	bool has6;
	struct policy *policy;
	bool any_address;		/* made for a drill: no address is out of bounds, the host's own neither */
	struct names_box *names;
	/* Limits, 0: none. */
	uint64_t conns_max, rate, flows_max, bandwidth;
	unsigned nconns, nput, nflows, ndns;	/* ndns: of the connections, those to the resolver */
	uint64_t tokens_milli, tokens_at;	/* new connections and flows, in thousandths */
	int64_t room[2];			/* bytes that may be moved now, each way */
	uint64_t room_at;
	struct link conns, flows;	/* struct conn.mine, struct flow.mine: the one used last is the last */
	struct link dnsqs;		/* struct dnsq.mine */
	struct grant {
		char name[HOST_NAME_MAX_LEN + 1];	/* or the text of an address */
		uint16_t port;		/* 0: every */
		bool allow, late;	/* late: nobody answered */
		uint64_t until;
	} *grants;			/* GRANTS_MAX, NULL until the first */
	unsigned ngrants;
	struct {
		uint64_t allowed, refused, up, down;
	} totals;
	unsigned nrefused;		/* kinds of refusals that wait for the log */
	uint64_t firsts_at;		/* first packets: how many more are looked at in this tenth of a second */
	unsigned firsts;
	uint64_t unlogged;		/* refusals that were too many for the log, since the last sweep */
};

/* ---- what the log will say about one connection, flow, or refusal */

enum proto { PROTO_TCP, PROTO_UDP, PROTO_ICMP, PROTO_DNS };

struct tale {
	struct gbox *box;
	enum proto proto;
	struct ip addr;
	uint16_t port, sport;
	uint64_t began;			/* clock_ms() */
	uint64_t up, down;
	char *host, *rule, *process;	/* owned; NULL: not known */
	uint32_t who;			/* number of the running question, 0: none */
};
void tale_init(struct tale *t, struct gbox *b, enum proto proto, const struct ip *addr, uint16_t port, uint16_t sport);
void tale_done(struct tale *t);
void tale_text(char **at, const char *text);	/* replaces one of the texts */
/* The line of something that was allowed and ends. why: "" or the reason of a cut. */
void log_end(struct tale *t, const char *why, const char *end);
/*
 * Something was refused. Refusals of one kind within a second are one line. `end`: "refused", "unreachable", "timeout".
 * The tale is copied.
 */
void log_refused(struct gw *g, const struct tale *t, const char *why, const char *end);
void log_flush(struct gw *g);
void log_file(struct gw *g, int fd);		/* takes fd */
bool log_sweep(struct gw *g, uint64_t now, bool all);	/* true: something waits */
void log_forget(struct gw *g, struct gbox *b);	/* the box is gone: its waiting lines are written now */
/* Ask which process it is. It may never be answered. */
void who_ask(struct tale *t);
void who_answer(struct gw *g, uint32_t n, const char *process);
void who_forget(struct tale *t);

/* ---- TCP */

enum conn_kind { CONN_OUT, CONN_DNS, CONN_IN };
enum conn_state {
	CONN_ASK,	/* a person is asked */
	CONN_DIAL,	/* connect() is under way */
	CONN_PROXY,	/* connected to the proxy, which dials */
	CONN_READY,	/* answered; too many others are half open, the next SYN puts it back */
	CONN_PUT,	/* put back; accept() will give the socket */
	CONN_FAILED,	/* told by ICMP, which is told once more */
	CONN_OPEN,
};

struct pipe {
	struct pipe *next;
	int r, w;
	size_t room;
};

struct way {			/* one direction: 0 from the box (side 0) to the far end (side 1), 1 back */
	struct pipe *pipe;	/* while bytes are in it */
	uint32_t piped;
	bool bulk;		/* much at once: splice, else copy */
	bool eof, shut;
};

struct conn {
	struct link mine;	/* of the box */
	struct link waits;	/* gw.waiting, until CONN_OPEN; gw.saying, while a name is awaited; gw.young */
	struct link run;	/* gw.run: has more to do */
	struct link held;	/* ask.held */
	struct link bucket;	/* of gw.first, until CONN_OPEN */
	struct tale t;
	uint64_t until;		/* of the state; 0: for ever */
	uint8_t kind, state;
	bool say;		/* what the client says first has to agree; nothing of way 0 is moved until then */
	bool named;		/* it did agree */
	bool asked;		/* a person allowed this name or address */
	bool to_host, host6;	/* host-port; ::1 is being tried */
	bool direct;		/* not through the proxy: lan, host-port */
	uint8_t no;		/* CONN_FAILED: enum pkt_no */
	struct syn *syn;	/* until CONN_OPEN */
	struct proxy_talk *proxy;
	struct dns_tcp *dns;	/* CONN_DNS */
	struct expose_dial *in;	/* CONN_IN */
	int fd[2];
	struct loop_io io[2];
	bool readable[2], writable[2];	/* as far as the last event told; cleared by EAGAIN */
	bool ended[2];			/* a FIN or an error is there or on its way: read until it comes */
	struct way way[2];
};

struct syn {
	struct pkt_syn s;
	uint16_t len;
	uint8_t pkt[PKT_SYN_MAX];	/* clean */
};

/* syn.c */
void syn_ready(struct gw *g, int fd);
void conn_go_on(struct conn *c);	/* the far end answered: put the SYN back */
void conn_fail(struct conn *c, int code);	/* the far end can't be had: a negative errno. Ends c */
bool group_addr(const struct ip *a);	/* multicast, broadcast, nobody */
void conn_refuse(struct conn *c, const char *why);	/* reset, a line; ends c */
void syn_expired(struct conn *c);	/* `until` is over */
void accept_ready(struct gw *g, int fd);
void syn_answered(struct conn *c, bool allow);	/* the answer to CONN_ASK */
/* dial.c */
void dial(struct conn *c);
void dial_ready(struct conn *c);
void dial_keep(struct conn *c);		/* the kernel asks from time to time whether the far end is still there */

/* tcp.c */
struct conn *conn_new(struct gbox *b, enum conn_kind kind);	/* NULL: no memory */
/* Take fd as the socket of that side, and watch it. -errno; fd is closed then. */
int conn_take(struct conn *c, unsigned side, int fd);
/* Both sockets are there. Relays from now on; may end c. */
void conn_open(struct conn *c);
/* Ends it in any state. end: as in the log; why: of a cut. "reset" and "cut" are resets on both sides. */
void conn_end(struct conn *c, const char *end, const char *why);
void conn_pump(struct conn *c);		/* move what can be moved; may end c */
void conn_run_later(struct conn *c);
void conn_young(struct conn *c);	/* from here on nothing but the bytes */
void pipes_done(struct gw *g);
void reset_fd(int *fd);			/* close with a reset */
/* say.c */
void say_begin(struct conn *c);
void dns_tcp_step(struct conn *c);	/* may end c */
void say_look(struct conn *c);		/* something came from a client whose name is awaited; may end c */
void dns_tcp_open(struct conn *c);
void dns_tcp_done(struct conn *c);
/* A query for the resolver over UDP. */
void dns_udp(struct gbox *b, const struct ip *src, uint16_t sport, const struct ip *dst, const void *msg, size_t n);
void dns_forget(struct gbox *b);

/* ---- UDP and ping */

struct flow {
	struct link mine;		/* gbox.flows */
	struct link bucket;		/* gw.flows */
	struct tale t;			/* addr, port: the far end; sport: the box's, or the id of a ping */
	int fd;
	struct loop_io io;
	uint64_t used;
	uint8_t answers;		/* up to 2 */
	bool six;
	bool to_host, asked;
};
void udp_ready(struct gw *g, int fd);
void ping_in(struct gbox *b, const struct pkt_echo *e, const uint8_t *pkt, size_t n);
struct flow *flow_find(struct gbox *b, enum proto proto, uint16_t sport, const struct ip *addr, uint16_t port);
/* NULL: a limit or no descriptor, *ret_why says. fd: owned from here on, also on failure. */
struct flow *flow_new(const struct tale *t, int fd, void (*ready)(void *, uint32_t), const char **ret_why);
void flow_used(struct flow *f);
void flow_end(struct flow *f, const char *end, const char *why);
void flows_sweep(struct gw *g, uint64_t now);

/* ---- expose.c */

void expose_add(struct gw *g, uint32_t key, struct gbox *b, uint16_t port, int fd);	/* takes fd */
void expose_del(struct gw *g, uint32_t key);
void expose_forget(struct gw *g, struct gbox *b);
void expose_dialed(struct gw *g, uint32_t n, int fd, const char *error);	/* takes fd */
void expose_step(struct conn *c);	/* events of a CONN_IN that isn't CONN_OPEN */
void expose_dial_free(struct conn *c);
void expose_done(struct gw *g);

/* ---- own.c: the host's addresses, broadcast and anycast ones too, live */

struct own;
int own_new(struct own **ret, struct err *e);	/* opens its sockets: before confine() */
int own_watch(struct own *o, struct gw *g);
void own_free(struct own *o);
void own_drain(struct own *o);		/* take in what the kernel has told */
bool own_has(const struct ip *a, void *own);
bool own_have6(const struct own *o);	/* there is a default route for IPv6 */

/* ---- questions to a person */

struct ask {
	struct link all;
	struct gbox *box;
	uint32_t n;
	uint64_t until;
	char name[HOST_NAME_MAX_LEN + 1];	/* or "" */
	struct ip addr;
	uint16_t port;
	struct link held;			/* struct conn.held */
	unsigned nheld;
	void *tokens[ASK_HELD_MAX];		/* of names.h */
	unsigned ntokens;
};

/* ---- the proxy of the host */

/* Begin the talk with the proxy that c->fd[1] is connected to; then conn_go_on() or conn_fail(). */
void proxy_begin(struct conn *c);
void proxy_ready(struct conn *c);	/* events of CONN_PROXY */
void proxy_done(struct conn *c);

/* ---- all of it */

enum { IF_BUCKETS = 1024, FLOW_BUCKETS = 4096, FIRST_BUCKETS = 4096 };

struct gw {
	struct loop *loop;
	struct world w;
	int ctl;
	struct loop_io ctl_io, tcp_io[2], udp_io[2], syn_io[2], link_io;
	struct msg_in in;
	struct buf out;			/* to the daemon, as frames */
	bool quit, draining;
	/* configuration */
	struct presets *presets;
	char *presets_text;
	struct cidr *lab;
	size_t nlab;
	int ipv6;			/* -1: by the routes */
	char *resolv;
	struct proxy proxy;
	uint64_t ask_ms;
	struct names *names;
	struct names_calls calls;
	struct own *own;
	struct own_addrs own_addrs;
	/* tables */
	uint64_t seed;
	struct link boxes, by_if[IF_BUCKETS];
	struct link first[FIRST_BUCKETS];	/* connections that aren't open, by addresses and ports */
	struct link flows[FLOW_BUCKETS];
	struct link waiting, saying, run, young, asks, exposes, dials, slow;
	unsigned nasks;
	uint32_t next_n;
	uint64_t ping_refused;		/* until then ping sockets are known not to be had */
	unsigned nfds, fds_max;		/* of boxes */
	struct pipe *pipes;		/* free ones */
	unsigned npipes;		/* in the list */
	unsigned pipes_out;		/* in use */
	struct loop_timer tick, run_timer;
	struct log *log;
	struct sockaddr_ll to_go4, to_go6;
	struct batch *batch;		/* of udp.c */
	uint8_t buf[SHARED_BUF];	/* for one callback; nobody keeps anything in it */
};

/* Run until the control socket closes. w, ctl and own are taken. files: how many descriptors there may be; grade: JSON array. */
int gateway_serve(struct world *w, int ctl, struct own *own, unsigned files, const char *grade, struct err *e);

/* gateway.c */
struct gbox *box_by_if(struct gw *g, int ifindex);
struct gbox *box_by_id(struct gw *g, const char *id);
void gw_read_all(struct gw *g);		/* what the daemon and the kernel have told, before anything is judged */
void gw_tick(struct gw *g);		/* there is something that a sweep has to look at */
void gw_apply_resolv(struct gw *g);
/* Is there a descriptor for this box? (invariant 3) */
bool fds_left(const struct gw *g, unsigned used_by_box, unsigned want);
bool box_first(struct gbox *b);		/* look at this first packet? A flood is dropped unseen, cheaply */
bool box_token(struct gbox *b);		/* one more connection or flow now? */
/* How many of `want` bytes may be moved that way now; 0: later, c is run again then. */
size_t box_room(struct gbox *b, unsigned way, size_t want);
void box_moved(struct gbox *b, unsigned way, size_t n);
/* May the box reach it? With the names that the resolver gave out and grants; ret_name: the name that counts ("" if none). */
void box_judge(struct gbox *b, const struct ip *addr, uint16_t port, struct decision *ret, char ret_name[HOST_NAME_MAX_LEN + 1]);
bool grant_find(struct gbox *b, const char *what, uint16_t port, bool *ret_allow);
#define GRANT_WHY_MAX 80
/* Why a grant refuses, and for how long: into `ret`, which is returned. */
const char *grant_why(struct gbox *b, const char *what, uint16_t port, char ret[GRANT_WHY_MAX]);
void box_rejudge(struct gbox *b);
void send_to_box(struct gbox *b, const void *head, size_t nhead, const void *data, size_t n);
uint64_t gw_hash(const struct gw *g, const void *a, size_t n, uint64_t more);

/* talk.c */
void talk_ready(void *arg, uint32_t events);
void talk_drain(struct gw *g);
void talk_flush(struct gw *g);
/* An event: members are put between these two; o is the caller's. */
void talk_begin(struct gw *g, struct json_out *o, struct buf *text, const char *ev);
void talk_end(struct gw *g, struct json_out *o, struct buf *text);
/* Hold c for a person's answer; false: it can't be asked. */
bool ask_conn(struct conn *c, const char *name);
/* The same for a datagram, which isn't held: the next one meets the answer. */
void ask_flow(const struct tale *t, const char *name);
bool ask_name(void *box, const char *name, void *token);
void ask_sweep(struct gw *g, uint64_t now);
void ask_forget_conn(struct conn *c);
void ask_forget_box(struct gbox *b);
void box_free(struct gbox *b, const char *why);	/* why: for the log, of connections that are cut */

#endif
