/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DRILL_CLAIM_H
#define DRILL_CLAIM_H

/*
 * What is claimed about a box, as probes. One claim is proven when everything that tries to break it is refused where it
 * must be, and the same thing, or its nearest kin, gets through in the same run where it may: a probe that never gets through
 * proves nothing.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/weaken.h"

/* GROUP(id, title) */
#define DRILL_GROUPS(GROUP)                        \
	GROUP(FILES, "files")                      \
	GROUP(PROCESSES, "processes and identity") \
	GROUP(KERNEL, "the kernel's doors")        \
	GROUP(RESOURCES, "resources")              \
	GROUP(NETWORK, "network")
enum drill_group {
#define GROUP(id, title) GROUP_##id,
	DRILL_GROUPS(GROUP)
#undef GROUP
		GROUP_COUNT
};
const char *drill_group_title(enum drill_group g);

/* Where a probe runs. In a box: of its root, of its ordinary user, or as root of its sibling. Outside: as the caller, plainly or in namespaces. */
enum drill_place {
	AT_BOX_ROOT,
	AT_BOX_USER,
	AT_PEER,
	AT_CALLER,
	AT_ISOLATED,
	AT_KEEPER, /* as root of the box, for things that stay until the end */
	AT_COUNT
};
#define P(place) (1u << AT_##place)

/* A claim's flags. */
enum {
	CLAIM_KILL = 1, /* being killed is being refused */
	CLAIM_NET = 2, /* only where the policy gives the box a network */
	CLAIM_WITH_NESTING = 4, /* not claimed of a box that was made with --nesting */
	CLAIM_NO_NET = 8, /* only where it gives it none */
	CLAIM_LAN = 16, /* not where the policy has exceptions for private addresses (lan=) */
	CLAIM_POSITIVE = 32, /* turned around: the lines have to get through */
	CLAIM_OPTIONAL = 64, /* nothing is said of it when its facts aren't known */
};

struct claim {
	const char *id; /* stable; SECURITY.md names it */
	enum drill_group group;
	const char *what;
	unsigned at; /* P() of the places where the attack has to fail */
	/*
	 * Lines of verbs (probe.h), words separated by one blank. $NAME is a fact (facts below); a line with one that isn't known here is left out.
	 */
	const char *attack;
	enum drill_place control_at;
	const char *control; /* each has to get through; "=": the attack's own lines, each a control of itself */
	unsigned weaken; /* without all of these some line of the attack must get through; 0: can't be shown safely */
	unsigned flags;
};
extern const struct claim drill_claims[];
extern const size_t drill_nclaims;

/* What is told to the probes, by name. A missing one is no error. */
struct drill_fact {
	const char *name; /* without '$' */
	char *value; /* owned; blanks inside are kept, tabs separate arguments */
};
struct drill_facts {
	struct drill_fact at[64];
	size_t n;
};
int drill_fact_set(struct drill_facts *f, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void drill_facts_done(struct drill_facts *f);

/* The i-th line of `lines` with the facts put in and tabs between words, into to. 1; 0 after the last; -ENOENT: a fact is missing; -E2BIG. */
int drill_line(const char *lines, size_t i, const struct drill_facts *f, char *to, size_t room);

/* ---- results */

enum probe_end { PROBE_NONE, PROBE_THROUGH, PROBE_REFUSED, PROBE_KILLED, PROBE_LATE, PROBE_BROKEN };
struct probe_result {
	enum probe_end end;
	unsigned ms;
	char text[200]; /* as the probe said it; of unknown origin */
};

/* LINES_MAX lines of one claim. */
#define CLAIM_LINES_MAX 24
struct claim_results {
	struct probe_result attack[AT_COUNT][CLAIM_LINES_MAX];
	struct probe_result control[CLAIM_LINES_MAX];
	bool skipped[CLAIM_LINES_MAX]; /* lines of the attack with a fact that isn't known */
	size_t nattack, ncontrol;
};

/* VERDICT(id, word): the word is part of the stable output. */
#define DRILL_VERDICTS(VERDICT)         \
	VERDICT(PROVEN, "proven")       \
	VERDICT(OPEN, "open")           \
	VERDICT(UNPROVEN, "not-proven") \
	VERDICT(ABSENT, "absent")
enum drill_verdict {
#define VERDICT(id, word) DRILL_##id,
	DRILL_VERDICTS(VERDICT)
#undef VERDICT
};
const char *drill_verdict_word(enum drill_verdict v);

/*
 * PROVEN: all refused, and the comparison got through. OPEN: something got through. UNPROVEN: neither. ABSENT: there is nothing to defend on
 * this host (the kernel answers everybody so). how, against: what was refused and how; what got through where it may.
 */
enum drill_verdict drill_judge(const struct claim *c, const struct claim_results *r, char *how, size_t nhow,
			       char *against, size_t nagainst);
/* Did any line of the attack get through? For twins without a defence. */
bool drill_red(const struct claim *c, const struct claim_results *r);

/* Was every line refused as the kernel refuses it to anybody (no such call, no such device)? */
bool drill_refused_to_all(const struct claim *c, const struct claim_results *r);

/* Parse one answer of a batch: "N STATUS MS TEXT". -EBADMSG. */
int drill_answer(const char *line, unsigned *ret_n, struct probe_result *ret);

#endif
