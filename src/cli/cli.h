/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

/* One run of the command line: what was asked, the way to the daemon, and what is said to the person. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/command.h"

struct cli {
	struct args args;
	bool json, quiet;
	int daemon;		/* the connection, or FD_NONE; kept from one question to the next */
	bool own;		/* the system's daemon does not admit this user: use the user's own */
	bool asked_dirs;	/* the daemon's directories were compared with those asked for */
	bool progress_shown;	/* a line on stderr waits to be wiped */
	struct buf out;		/* standard output, written once at the end */
};

/* The whole program. argv is NULL-terminated, the program's name first. Returns the exit status. */
int cli_main(char **argv);

/*
 * A question to the daemon.
 *
 *	struct question q;
 *	question_begin(&q, "stop");
 *	json_put_str(&q.json, "box", name);
 *	r = ask(c, &q, NULL, 0, &a, e);
 */
struct question {
	struct buf text;
	struct json_out json;
};
void question_begin(struct question *q, const char *op);
void question_done(struct question *q);
#define OWN_QUESTION __attribute__((cleanup(question_done))) struct question

/* The member "box", and with --all that it may be anybody's. */
void put_box(struct cli *c, struct question *q, const char *box);

struct answer {
	struct json_doc doc;
	int fds[2];		/* owned; FD_NONE when not there */
};
#define ANSWER_INIT { .fds = { FD_NONE, FD_NONE } }
#define OWN_ANSWER __attribute__((cleanup(answer_done))) struct answer
void answer_done(struct answer *a);

/*
 * Send the question and wait for its answer, showing progress on a terminal. Finds the daemon and starts it when
 * needed. Descriptors are borrowed. A daemon that went away before it said anything is asked once more: what it
 * had begun is undone when the next one starts. `ret` is untouched on failure.
 */
int ask(struct cli *c, struct question *q, const int *fds, size_t nfds, struct answer *ret, struct err *e);

/* Connect c->daemon if it isn't (reach.c). */
int reach(struct cli *c, struct err *e);

/* What the person sees (say.c). All of it goes through text_escape() where it comes from elsewhere. */
void say_error(struct cli *c, const struct err *e);	/* "cubby: …"; with --json also {"error","why"} on stdout */
void say_note(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* stderr, unless -q */
void say_progress(struct cli *c, const char *text);	/* stderr, on a terminal only; NULL wipes it */
int say_failed(struct cli *c, const struct err *e);	/* say_error(), and the exit status that goes with it */
/*
 * Ask on the terminal; true for yes. Without a terminal, false with an error said that names --force.
 * `what` completes "remove …".
 */
bool say_sure(struct cli *c, const char *what);
/* Write c->out. Returns EXIT_OK, or EXIT_FAILED when it can't be written. */
int say_out(struct cli *c);
/* Write one value of an answer as the JSON output, with a final newline. A missing one is null. */
void say_json(struct cli *c, const struct json *value);

/* Words for people, appended to `to`. */
void put_text(struct buf *to, const char *s);		/* escaped; "-" for NULL or "" */
void put_size(struct buf *to, uint64_t bytes);		/* 512 MiB, 1.5 GiB */
void put_duration(struct buf *to, uint64_t ms);		/* 250 ms, 3 s, 1 h 30 min */
void put_ago(struct buf *to, int64_t then);		/* "5 min ago"; "-" for 0 (show.c) */
void put_cpus(struct buf *to, uint64_t milli);		/* 0.5 */

/* A table: cells are copied, the first row is the head. */
struct table {
	struct buf cells;	/* NUL-terminated one after the other */
	unsigned columns;
	unsigned n;
};
#define OWN_TABLE __attribute__((cleanup(table_done))) struct table
void table_init(struct table *t, unsigned columns);
void table_done(struct table *t);
void table_cell(struct table *t, const char *s);	/* escaped; NULL or "": "-" */
void table_ready(struct table *t, const struct buf *made);	/* already escaped */
void table_print(struct table *t, struct buf *to);
/* Two columns: each limit that the object holds. */
void put_limits_table(struct table *t, const struct json *limits);
/* Rows of a grade or of the doctor: level, what, how to mend it. Coloured on a terminal. */
void put_grade(struct buf *to, const struct json *rows);

/* "last drill: 3 d ago, 41 of 41 claims proven", of the member "drill" of an answer (drill.c). */
void put_drill(struct buf *to, const struct json *drill);

/* The system's clock, seconds since 1970. */
int64_t now_seconds(void);

/* Judge a name or id before it travels. -EINVAL with NAME_RULE. */
int box_word(const char *s, struct err *e);

/* Option values, in the daemon's units. -EINVAL names the option, the value and what it takes. */
int opt_duration(const struct args *a, enum opt opt, uint64_t *ret_ms, struct err *e);	/* "off" is 0 */
int duration_word(const char *what, const char *s, uint64_t *ret_ms, struct err *e);
int opt_count(const struct args *a, enum opt opt, uint64_t least, uint64_t most, uint64_t *ret, struct err *e);
/* Write the limits that were given as members of an open object. */
int put_limits(const struct args *a, struct json_out *o, struct err *e);
#define OPTS_LIMITS_GIVEN (O(MEMORY) | O(SWAP) | O(PIDS) | O(CPUS) | O(CPU_WEIGHT) | O(IO_READ) | O(IO_WRITE) | \
			   O(CONNECTIONS) | O(CONNECTION_RATE) | O(FLOWS) | O(BANDWIDTH))

/*
 * What a box may reach: the policy's words joined as "net", what --lan and --host-port add to it as "net_more". None given: nothing
 * is written (net.c).
 */
int put_policy(const struct args *a, char *const *words, size_t n, struct json_out *o, struct err *e);

/* With --allow-weaker: say what the new box lacks (make.c). */
void note_weak(struct cli *c, const struct json *box);

/*
 * The specification of a box that `new` and `run` send (spec.c): limits, mounts, template, times, zone.
 * ret_fds has room for FD_PASS_MAX; the caller closes what is there also after a failure.
 */
int put_spec(const struct args *a, struct json_out *o, int *ret_fds, size_t *ret_nfds, struct err *e);

/*
 * The environment of a call, "NAME=value" each, NULL-terminated, no name twice: locale and terminal of the caller, over
 * them what the box was made with, over that what --env-file and --env say, in their order. Nothing else of the
 * caller's environment enters a box. env_done() also after a failure.
 */
struct env {
	char **vars;
	size_t n, room;
	char *file[8];		/* texts of --env-file */
	size_t nfiles;
};
int env_given(const struct args *a, struct env *ret, struct err *e);	/* the options alone */
/* `ret` borrows the strings of `given` and of the box. */
int env_make(char *const *box_env, const struct env *given, struct env *ret, struct err *e);
void env_done(struct env *v);

#endif
