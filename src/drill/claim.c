/* SPDX-License-Identifier: Apache-2.0 */
#include "drill/claim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

const struct claim drill_claims[] = {
#define CLAIM(id_, group_, what_, at_, attack_, control_at_, control_, weaken_, flags_) \
	{ .id = id_,                                                                    \
	  .group = GROUP_##group_,                                                      \
	  .what = what_,                                                                \
	  .at = at_,                                                                    \
	  .attack = attack_,                                                            \
	  .control_at = control_at_,                                                    \
	  .control = control_,                                                          \
	  .weaken = weaken_,                                                            \
	  .flags = flags_ },
#include "drill/claims.def"
#undef CLAIM
};
const size_t drill_nclaims = sizeof(drill_claims) / sizeof(drill_claims[0]);

const char *drill_group_title(enum drill_group g)
{
	static const char *const titles[] = {
#define GROUP(id, title) [GROUP_##id] = title,
		DRILL_GROUPS(GROUP)
#undef GROUP
	};

	return titles[g];
}

const char *drill_verdict_word(enum drill_verdict v)
{
	static const char *const words[] = {
#define VERDICT(id, word) [DRILL_##id] = word,
		DRILL_VERDICTS(VERDICT)
#undef VERDICT
	};

	return words[v];
}

/* ---- facts and lines */

int drill_fact_set(struct drill_facts *f, const char *name, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A path that would end the line or the argument can't be told. */
	if (n < 0 || (size_t)n >= sizeof(text) || strchr(text, '\n') || f->n == sizeof(f->at) / sizeof(f->at[0]))
		return -E2BIG;
	f->at[f->n].value = strdup(text);
	if (!f->at[f->n].value)
		return -ENOMEM;
	f->at[f->n++].name = name;
	return 0;
}

void drill_facts_done(struct drill_facts *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->at[i].value);
	f->n = 0;
}

static const char *fact(const struct drill_facts *f, const char *name, size_t n)
{
	for (size_t i = 0; i < f->n; i++)
		if (strncmp(f->at[i].name, name, n) == 0 && f->at[i].name[n] == '\0')
			return f->at[i].value;
	return NULL;
}

int drill_line(const char *lines, size_t i, const struct drill_facts *f, char *to, size_t room)
{
	const char *s = lines;
	size_t n = 0;

	for (; i > 0 && s; i--) {
		s = strchr(s, '\n');
		s = s ? s + 1 : NULL;
	}
	if (!s || !*s)
		return 0;
	while (*s && *s != '\n') {
		const char *value = NULL;
		size_t len = 1;

		if (*s == '$') {
			size_t name = strspn(s + 1, "abcdefghijklmnopqrstuvwxyz0123456789");

			value = fact(f, s + 1, name);
			if (!value)
				return -ENOENT;
			len = strlen(value);
			s += name + 1;
		}
		if (n + len >= room)
			return -E2BIG;
		if (value)
			memcpy(to + n, value, len);
		else
			to[n] = *s == ' ' ? '\t' : *s;
		s += !value;
		n += len;
	}
	to[n] = '\0';
	return 1;
}

/* ---- results */

int drill_answer(const char *line, unsigned *ret_n, struct probe_result *ret)
{
	struct probe_result r = { .end = PROBE_BROKEN };
	char word[16], number[16], ms[24];
	uint64_t n, t;
	int at = 0;

	if (sscanf(line, "%15s %15s %23s %n", number, word, ms, &at) < 3 || parse_u64(number, 100000, &n) < 0 ||
	    parse_u64(ms, 10000000, &t) < 0)
		return -EBADMSG;
	if (strcmp(word, "0") == 0)
		r.end = PROBE_THROUGH;
	else if (strcmp(word, "1") == 0)
		r.end = PROBE_REFUSED;
	else if (strcmp(word, "kill") == 0)
		r.end = PROBE_KILLED;
	else if (strcmp(word, "late") == 0)
		r.end = PROBE_LATE;
	r.ms = (unsigned)t;
	(void)snprintf(r.text, sizeof(r.text), "%s", at > 0 ? line + at : "");
	/* A status alone could be anything's: a verb says its verdict. */
	if ((r.end == PROBE_REFUSED && strncmp(r.text, "refused ", 8) != 0) ||
	    (r.end == PROBE_THROUGH && strncmp(r.text, "through", 7) != 0))
		r.end = PROBE_BROKEN;
	*ret_n = (unsigned)n;
	*ret = r;
	return 0;
}

/* The kernel answers so to everybody: there is nothing to keep anybody from. */
static bool nothing_there(const struct probe_result *r)
{
	static const char *const words[] = { "ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT",
					     "ENODEV", "ENOENT",       "EOPNOTSUPP",      "EIO",
					     "ENXIO",  "ENOTTY",       "ENODATA" };
	const char *s = r->text + strlen("refused ");

	if (r->end != PROBE_REFUSED)
		return false;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strncmp(s, words[i], strlen(words[i])) == 0 && s[strlen(words[i])] == ':')
			return true;
	return false;
}

static bool held(const struct claim *c, const struct probe_result *r)
{
	return r->end == PROBE_REFUSED || (r->end == PROBE_KILLED && (c->flags & CLAIM_KILL));
}

static void say(char *to, size_t n, const struct probe_result *r, const char *dflt)
{
	if (r && r->end == PROBE_KILLED)
		(void)snprintf(to, n, "killed after %u ms", r->ms);
	else if (r && r->end == PROBE_LATE)
		(void)snprintf(to, n, "no answer in %u ms", r->ms);
	else
		(void)snprintf(to, n, "%s", r && r->text[0] ? r->text : dflt);
}

static bool own_control(const struct claim *c)
{
	return strcmp(c->control, "=") == 0;
}

static enum drill_verdict judge_positive(const struct claim *c, const struct claim_results *r, char *how, size_t nhow)
{
	const struct probe_result *through = NULL;

	for (unsigned at = 0; at < AT_COUNT; at++)
		for (size_t i = 0; (c->at & (1u << at)) && i < r->nattack; i++) {
			const struct probe_result *p = &r->attack[at][i];

			if (r->skipped[i] || p->end == PROBE_NONE)
				continue;
			through = p;
			if (p->end == PROBE_THROUGH)
				continue;
			say(how, nhow, p, "it did not run");
			return DRILL_UNPROVEN;
		}
	say(how, nhow, through, "it is not known what");
	return through ? DRILL_PROVEN : DRILL_ABSENT;
}

enum drill_verdict drill_judge(const struct claim *c, const struct claim_results *r, char *how, size_t nhow,
			       char *against, size_t nagainst)
{
	const struct probe_result *first = NULL, *odd = NULL, *control = NULL, *control_bad = NULL,
				  *control_none = NULL;
	size_t lines = 0;

	how[0] = against[0] = '\0';
	if (c->flags & CLAIM_POSITIVE)
		return judge_positive(c, r, how, nhow);
	for (unsigned at = 0; at < AT_COUNT; at++)
		for (size_t i = 0; (c->at & (1u << at)) && i < r->nattack; i++) {
			const struct probe_result *p = &r->attack[at][i];

			if (r->skipped[i] || p->end == PROBE_NONE)
				continue;
			lines++;
			if (p->end == PROBE_THROUGH) {
				say(how, nhow, p, "through");
				return DRILL_OPEN;
			}
			if (!held(c, p) && !odd)
				odd = p;
			if (!first && held(c, p) && !(own_control(c) && r->control[i].end != PROBE_THROUGH))
				first = p;
		}
	for (size_t i = 0; i < r->ncontrol; i++) {
		const struct probe_result *p = &r->control[i];

		if (p->end == PROBE_NONE || (own_control(c) && r->skipped[i]))
			continue;
		if (p->end == PROBE_THROUGH)
			control = control ? control : p;
		else if (nothing_there(p))
			control_none = control_none ? control_none : p;
		else
			control_bad = control_bad ? control_bad : p;
	}
	if (lines == 0) {
		(void)snprintf(how, nhow, "nothing of the kind is here");
		return DRILL_ABSENT;
	}
	if (odd) {
		say(how, nhow, odd, "the probe did not run");
		return DRILL_UNPROVEN;
	}
	/* A comparison of its own is one thing, and all of it has to work; of the attack's own lines those count that work. */
	if (control && (own_control(c) || (!control_bad && !control_none))) {
		say(how, nhow, first, "refused");
		say(against, nagainst, control, "through");
		return DRILL_PROVEN;
	}
	if (!control_bad && control_none) {
		say(how, nhow, control_none, "not there");
		return DRILL_ABSENT;
	}
	for (unsigned at = 0; at < AT_COUNT && !first; at++)
		if ((c->at & (1u << at)) && held(c, &r->attack[at][0]))
			first = &r->attack[at][0];
	say(how, nhow, first, "refused");
	if (control_bad && control_bad->end == PROBE_REFUSED)
		(void)snprintf(against, nagainst, "%.150s: refused outside as well", control_bad->text);
	else
		say(against, nagainst, control_bad, "it did not run");
	return DRILL_UNPROVEN;
}

bool drill_red(const struct claim *c, const struct claim_results *r)
{
	for (unsigned at = 0; at < AT_COUNT; at++)
		for (size_t i = 0; (c->at & (1u << at)) && i < r->nattack; i++)
			if (r->attack[at][i].end == PROBE_THROUGH)
				return true;
	return false;
}

bool drill_refused_to_all(const struct claim *c, const struct claim_results *r)
{
	bool any = false;

	for (unsigned at = 0; at < AT_COUNT; at++)
		for (size_t i = 0; (c->at & (1u << at)) && i < r->nattack; i++) {
			const struct probe_result *p = &r->attack[at][i];

			if (p->end == PROBE_NONE)
				continue;
			if (!nothing_there(p))
				return false;
			any = true;
		}
	return any;
}
