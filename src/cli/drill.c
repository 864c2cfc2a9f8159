/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drill: what is claimed about a box, tried from inside of throw-away boxes that are made as it was. Nothing of the
 * host is changed: what has to be there to be looked for is made for it (drill/stage.c) and goes with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/weaken.h"
#include "chan/copy.h"
#include "cli/cli.h"
#include "cli/verbs.h"
#include "drill/claim.h"
#include "drill/run.h"

#define LINE_LEN 4096
#define LINE_MS  30000
/* The sibling that uses things up is a small one. */
#define SMALL_MEMORY (32u << 20)
#define SMALL_PIDS   64u
#define SMALL_CPU    100u

enum { EXIT_OPEN = 1, EXIT_UNPROVEN = 3 };

/* A throw-away box, and the connection that keeps it. */
struct sibling {
	struct cli hold;
	struct answer made;
	char id[64], user[64];
};

struct drill {
	struct cli *c;
	char probe[4200];
	struct answer model; /* `info` of the box that is drilled; empty: the defaults */
	struct answer hello;
	struct drill_facts facts;
	struct batch stage, keeper, listener;
	struct sibling box, peer;
	struct claim_results *results;
	enum drill_verdict *verdicts;
	char (*how)[240], (*against)[240];
	unsigned count[4];
	struct buf self; /* JSON of the self-test */
	unsigned missed; /* defences whose removal nothing noticed */
	int64_t begun;
	uint64_t begun_ms;
};

/* A signal ends the drill at the next step, so that everything is taken down in order. */
static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int stopped(struct err *e)
{
	return interrupted ? err_why(e, WHY_CANCELLED, -EINTR, "the drill was interrupted") : 0;
}

/* cubby-probe stands beside this program, or where the build put it. */
static int find_probe(char *ret, size_t n, struct err *e)
{
	char self[4096];
	ssize_t k = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	self[k > 0 ? k : 0] = '\0';
	slash = strrchr(self, '/');
	if (slash) {
		*slash = '\0';
		if (snprintf(ret, n, "%s/cubby-probe", self) < (int)n && access(ret, X_OK) == 0)
			return 0;
	}
	(void)snprintf(ret, n, "%s/cubby-probe", CUBBY_LIBEXEC);
	if (access(ret, X_OK) == 0)
		return 0;
	return err_why(e, WHY_NOT_FOUND, -ENOENT,
		       "the program cubby-probe is neither beside this one nor in %s: install cubby anew",
		       CUBBY_LIBEXEC);
}

/* ---- the host's side */

static void hex(const char *text, char *ret, size_t n)
{
	size_t at = 0;

	for (; *text && at + 2 < n; text++)
		at += (size_t)snprintf(ret + at, n - at, "%02x", (unsigned char)*text);
}

/* Names of the facts that the stage tells; a value is this host's. */
static const char *const told[] = {
	"lport",  "wport",    "luport", "wuport", "hostaddrs", "marker", "leasefile", "stage",
	"socket", "abstract", "key",    "pid",    "hostname",  "shadow", "home",      "sshdir",
};

static int set_stage(struct drill *d, struct err *e)
{
	uint64_t random[2];
	char text[40], key[16], stage[] = "stage", twice[100];
	char *argv[] = { d->probe, stage, text, key, NULL };
	char line[LINE_LEN];
	int r;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, -errno, "cannot get random numbers");
	(void)snprintf(text, sizeof(text), "%016llx%08llx", (unsigned long long)random[0],
		       (unsigned long long)(random[1] & 0xffffffff));
	(void)snprintf(key, sizeof(key), "%llu", (unsigned long long)(random[1] >> 33 | 1));
	r = batch_outside(&d->stage, argv, e);
	if (r < 0)
		return r;
	hex(text, twice, sizeof(twice));
	(void)drill_fact_set(&d->facts, "markerhex", "%s", twice);
	(void)drill_fact_set(&d->facts, "processhex", "%s", twice);
	(void)drill_fact_set(&d->facts, "ownkey", "%llu", (unsigned long long)(random[1] >> 34 | 1u << 30));
	(void)drill_fact_set(&d->facts, "ownabstract", "cubby-drill-own-%s", text);
	(void)drill_fact_set(&d->facts, "ownfile", "/.cubby-drill-%s", text);
	(void)drill_fact_set(&d->facts, "ownusr", "/usr/.cubby-drill-%s", text);
	(void)drill_fact_set(&d->facts, "daemon", "%s/cubbyd.sock",
			     json_str(d->hello.doc.root, "run_dir", "/run/cubby"));
	(void)drill_fact_set(&d->facts, "toomuch", "%u", SMALL_MEMORY * 2);
	(void)drill_fact_set(&d->facts, "toomany", "%u", SMALL_PIDS * 3);
	(void)drill_fact_set(&d->facts, "share", "%u", SMALL_CPU + SMALL_CPU / 2);
	while ((r = batch_line(&d->stage, line, sizeof(line), LINE_MS)) == 1) {
		char *value = strchr(line, ' ');

		if (!value)
			continue;
		*value++ = '\0';
		if (strcmp(line, "ready") == 0)
			return 0;
		for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
			if (strcmp(line, told[i]) == 0)
				(void)drill_fact_set(&d->facts, told[i], "%s", value);
	}
	return err_why(e, WHY_INTERNAL, -EIO, "what the drill needs on the host can't be made: %s", line);
}

/* ---- siblings */

/* An option stands for the member of the same name. */
static bool json_given(const struct args *a, const char *key, unsigned weaken)
{
	if (strcmp(key, "net") == 0 && (weaken & (WEAKEN_ADDRESSES | WEAKEN_NET)))
		return true;
	return (strcmp(key, "template") == 0 && a->val[OPT_TEMPLATE]) || (strcmp(key, "net") == 0 && a->val[OPT_NET]);
}

static void put_model(const struct drill *d, struct question *q, bool small, bool weaker, unsigned weaken)
{
	static const char *const same[] = { "template", "user", "net", "nesting", "tz" };
	const struct json *model = json_get(d->model.doc.root, "box"), *limits = json_get(model, "limits");

	const struct args *a = &d->c->args;

	json_put_bool(&q->json, "run", true);
	if (a->val[OPT_TEMPLATE])
		json_put_str(&q->json, "template", a->val[OPT_TEMPLATE]);
	/* A list would refuse what only the address was refused for; the host's own stack has no gateway. */
	if (weaken & (WEAKEN_ADDRESSES | WEAKEN_NET))
		json_put_str(&q->json, "net", weaken & WEAKEN_NET ? "none" : "internet");
	else if (a->val[OPT_NET])
		json_put_str(&q->json, "net", a->val[OPT_NET]);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (json_get(model, same[i]) && !json_given(a, same[i], weaken))
			json_put_value(&q->json, same[i], json_get(model, same[i]));
	if (weaker || json_bool(model, "allow_weaker", false) || args_has(&d->c->args, O(ALLOW_WEAKER)))
		json_put_bool(&q->json, "allow_weaker", true);
	json_put_int(&q->json, "ttl_ms", 300000);
	if (small) {
		json_put_obj(&q->json, "limits");
		json_put_int(&q->json, "memory", SMALL_MEMORY);
		json_put_int(&q->json, "swap", 0);
		json_put_int(&q->json, "pids", SMALL_PIDS);
		json_put_int(&q->json, "cpu_milli", SMALL_CPU);
		json_end_obj(&q->json);
	} else if (limits) {
		json_put_value(&q->json, "limits", limits);
	}
}

/* A connection to a throw-away box; the caller's to close. */
static int open_sibling(struct drill *d, const struct sibling *s, int *ret_fd, struct err *e)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	int r;

	question_begin(&q, "open");
	json_put_str(&q.json, "box", s->id);
	r = ask(d->c, &q, NULL, 0, &a, e);
	if (r < 0)
		return r;
	if (a.fds[0] < 0)
		return err_why(e, WHY_HOSTILE, -EBADMSG, "the daemon sent no connection to the box");
	*ret_fd = fd_take(&a.fds[0]);
	return 0;
}

static int make_sibling(struct drill *d, struct sibling *s, bool small, bool weaker, unsigned weaken, struct err *e)
{
	OWN_QUESTION q = { 0 };
	struct copy_opts opts = { .user = "root" };
	struct copy_result res;
	int r = stopped(e);

	if (r < 0)
		return r;
	s->hold = *d->c;
	s->hold.daemon = FD_NONE;
	s->made = (struct answer)ANSWER_INIT;
	question_begin(&q, "new");
	put_model(d, &q, small, weaker, weaken);
	if (weaken) {
		json_put_arr(&q.json, "weaken");
		for (unsigned i = 0; i < WEAKEN_COUNT; i++)
			if (weaken >> i & 1)
				json_put_str(&q.json, NULL, weaken_word(1u << i));
		json_end_arr(&q.json);
	}
	r = ask(&s->hold, &q, NULL, 0, &s->made, e);
	if (r < 0)
		return r;
	if (s->made.fds[0] < 0)
		return err_why(e, WHY_HOSTILE, -EBADMSG, "the daemon sent no connection to the box");
	(void)snprintf(s->id, sizeof(s->id), "%s", json_str(json_get(s->made.doc.root, "box"), "id", ""));
	(void)snprintf(s->user, sizeof(s->user), "%s", json_str(s->made.doc.root, "user", "root"));
	r = copy_in(s->made.fds[0], AT_FDCWD, d->probe, DRILL_PROBE_IN_BOX, &opts, &res, e);
	return r < 0 ? err_while(e, r, "while bringing the probes into the box") : 0;
}

static void drop_sibling(struct sibling *s)
{
	if (!s->id[0] && s->hold.daemon <= 0)
		return;
	answer_done(&s->made);
	fd_close(&s->hold.daemon);
	memset(s, 0, sizeof(*s));
	s->made = (struct answer)ANSWER_INIT;
}

/* ---- running claims */

/* The number of a line tells what it is: claim, line, and whether it is a control. */
static unsigned line_number(size_t claim, size_t i, bool control)
{
	return (unsigned)(claim * CLAIM_LINES_MAX + i) * 2 + control;
}

static bool wanted(const struct claim *c, const struct drill *d)
{
	bool nesting = json_bool(json_get(d->model.doc.root, "box"), "nesting", false);

	const char *net = json_str(json_get(d->box.made.doc.root, "box"), "net", "none");
	bool none = strcmp(net, "none") == 0;

	if (((c->flags & CLAIM_WITH_NESTING) && nesting) ||
	    ((c->flags & CLAIM_OPTIONAL) && !d->c->args.val[OPT_NET_TARGET]))
		return false;
	return !((c->flags & CLAIM_NET) && none) && !((c->flags & CLAIM_NO_NET) && !none) &&
	       !((c->flags & CLAIM_LAN) && strstr(net, "lan="));
}

static int send_lines(struct drill *d, struct batch *b, size_t claim, const char *lines, bool control)
{
	struct claim_results *res = &d->results[claim];
	char line[LINE_LEN], whole[LINE_LEN + 16];

	for (size_t i = 0; i < CLAIM_LINES_MAX; i++) {
		int r = drill_line(lines, i, &d->facts, line, sizeof(line));

		if (r == 0)
			break;
		*(control ? &res->ncontrol : &res->nattack) = i + 1;
		if (r < 0) {
			if (!control || strcmp(drill_claims[claim].control, "=") == 0)
				res->skipped[i] = true;
			continue;
		}
		(void)snprintf(whole, sizeof(whole), "%u\t%s", line_number(claim, i, control), line);
		r = batch_send(b, whole);
		if (r < 0)
			return r;
	}
	return 0;
}

static void note_answer(struct drill *d, enum drill_place at, const char *line)
{
	struct probe_result r;
	unsigned n;
	size_t claim, i;

	if (drill_answer(line, &n, &r) < 0)
		return;
	claim = n / 2 / CLAIM_LINES_MAX;
	i = n / 2 % CLAIM_LINES_MAX;
	if (claim >= drill_nclaims)
		return;
	if (n & 1)
		d->results[claim].control[i] = r;
	else
		d->results[claim].attack[at][i] = r;
}

/* All lines that belong to one place, attacks and controls. */
static int run_place(struct drill *d, enum drill_place at, struct batch *b, bool controls, unsigned weaken,
		     struct err *e)
{
	char line[LINE_LEN];
	int r = 0;

	for (size_t i = 0; i < drill_nclaims && r == 0; i++) {
		const struct claim *c = &drill_claims[i];

		if (!wanted(c, d) || (weaken && c->weaken != weaken))
			continue;
		if (c->at & (1u << at))
			r = send_lines(d, b, i, c->attack, false);
		if (controls && c->control_at == at && r == 0)
			r = send_lines(d, b, i, strcmp(c->control, "=") == 0 ? c->attack : c->control, true);
	}
	if (r < 0 && r != -EPIPE)
		return err_set(e, r, "cannot talk to the probes");
	fd_close(&b->in);
	while ((r = batch_line(b, line, sizeof(line), LINE_MS)) == 1)
		note_answer(d, at, line);
	return stopped(e);
}

static int run_in_box(struct drill *d, const struct sibling *s, enum drill_place at, const char *user, bool controls,
		      unsigned weaken, struct err *e)
{
	struct batch b = BATCH_INIT;
	OWN_FD sock = FD_NONE;
	int r = open_sibling(d, s, &sock, e);

	if (r == 0)
		r = batch_in_box(&b, sock, user, e);
	if (r == 0)
		r = run_place(d, at, &b, controls, weaken, e);
	batch_end(&b, 5000);
	return r;
}

static int run_outside(struct drill *d, enum drill_place at, struct err *e)
{
	struct batch b = BATCH_INIT;
	char isolated[] = "isolated", batch[] = "batch";
	char *plain[] = { d->probe, batch, NULL }, *apart[] = { d->probe, isolated, batch, NULL };
	int r = batch_outside(&b, at == AT_ISOLATED ? apart : plain, e);

	if (r == 0)
		r = run_place(d, at, &b, true, 0, e);
	batch_end(&b, 5000);
	return r;
}

/* What the box itself has, for claims about what others see of it. It stays until the keeper's input ends. */
static int keep_things(struct drill *d, struct err *e)
{
	static const char lines[] =
		"create $ownfile\nwrite-text $ownfile drill\ncreate $ownusr\nwrite-text $ownusr drill\n"
		"sysv-make $ownkey 120\nabstract-listen $ownabstract 120";
	static const bool stays[] = { false, false, false, false, true, true };
	OWN_FD sock = FD_NONE;
	char line[LINE_LEN], whole[LINE_LEN + 16];
	int r = open_sibling(d, &d->box, &sock, e);

	if (r == 0)
		r = batch_in_box(&d->keeper, sock, "root", e);
	for (size_t i = 0; r == 0 && drill_line(lines, i, &d->facts, line, sizeof(line)) == 1; i++) {
		(void)snprintf(whole, sizeof(whole), "%s%zu\t%s", stays[i] ? "&" : "", i, line);
		r = batch_send(&d->keeper, whole);
		if (r == 0 && batch_line(&d->keeper, line, sizeof(line), LINE_MS) != 1)
			r = -EIO;
		if (r < 0)
			(void)err_set(e, r, "cannot run probes in the box");
	}
	return r;
}

/* Somebody to be found, or not, in the other box. */
static int listen_in_peer(struct drill *d, struct err *e)
{
	static const char mark[] = "through: ";
	OWN_FD sock = FD_NONE;
	char line[LINE_LEN], *at;
	int r;

	if (strcmp(json_str(json_get(d->peer.made.doc.root, "box"), "net", "none"), "none") == 0)
		return 0;
	r = open_sibling(d, &d->peer, &sock, e);
	if (r == 0)
		r = batch_in_box(&d->listener, sock, "root", e);
	if (r == 0)
		r = batch_send(&d->listener, "&0\ttcp-listen\t7654\t120");
	if (r == 0 && batch_line(&d->listener, line, sizeof(line), LINE_MS) == 1)
		r = batch_send(&d->listener, "1\town-addresses");
	if (r < 0 || batch_line(&d->listener, line, sizeof(line), LINE_MS) != 1)
		return err_set(e, r < 0 ? r : -EIO, "cannot run probes in the second box");
	at = strstr(line, mark);
	if (!at)
		return 0;
	at += sizeof(mark) - 1;
	for (char *s = at; *s; s++)
		if (*s == ' ')
			*s = '\t';
		else if (!strchr("0123456789abcdef.:", *s))
			return err_why(e, WHY_HOSTILE, -EBADMSG, "the second box's address makes no sense");
	return drill_fact_set(&d->facts, "peeraddrs", "%s", at);
}

/* HOST:PORT, [ADDRESS]:PORT. */
static int net_target(struct drill *d, struct err *e)
{
	const char *text = d->c->args.val[OPT_NET_TARGET], *colon = text ? strrchr(text, ':') : NULL;
	bool brackets = text && text[0] == '[';
	uint64_t port;

	if (!text)
		return 0;
	if (!colon || colon == text || parse_u64(colon + 1, 65535, &port) < 0 || port == 0 ||
	    (brackets && colon[-1] != ']') || strpbrk(text, " \t\n"))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--net-target: '%.100s' is not HOST:PORT", text);
	(void)drill_fact_set(&d->facts, "targetport", "%u", (unsigned)port);
	return drill_fact_set(&d->facts, "targethost", "%.*s", (int)(colon - text) - 2 * brackets, text + brackets);
}

static int run_all(struct drill *d, struct err *e)
{
	bool root_only = strcmp(d->box.user, "root") == 0;
	int r;

	say_progress(d->c, "looking from the outside …");
	r = run_outside(d, AT_CALLER, e);
	if (r == 0)
		r = run_outside(d, AT_ISOLATED, e);
	say_progress(d->c, "looking from inside a box …");
	if (r == 0)
		r = run_in_box(d, &d->box, AT_BOX_ROOT, "root", true, 0, e);
	if (r == 0 && !root_only)
		r = run_in_box(d, &d->box, AT_BOX_USER, d->box.user, true, 0, e);
	say_progress(d->c, "using up what a small box has …");
	if (r == 0)
		r = run_in_box(d, &d->peer, AT_PEER, "root", true, 0, e);
	return r;
}

static void judge_all(struct drill *d)
{
	for (size_t i = 0; i < drill_nclaims; i++) {
		if (!wanted(&drill_claims[i], d))
			continue;
		d->verdicts[i] = drill_judge(&drill_claims[i], &d->results[i], d->how[i], sizeof(d->how[i]),
					     d->against[i], sizeof(d->against[i]));
		d->count[d->verdicts[i]]++;
	}
}

/* ---- the self-test */

static void self_row(struct drill *d, struct json_out *o, unsigned weaken, const char *state, const char *why)
{
	OWN_BUF words = BUF_INIT(400);

	json_put_obj(o, NULL);
	json_put_arr(o, "without");
	for (unsigned i = 0; i < WEAKEN_COUNT; i++)
		if (weaken >> i & 1) {
			json_put_str(o, NULL, weaken_word(1u << i));
			(void)buf_printf(&words, "%s%s", words.len ? " and " : "", weaken_what(1u << i));
		}
	json_end_arr(o);
	json_put_str(o, "what", words.data);
	json_put_str(o, "state", state);
	if (why)
		json_put_str(o, "why", why);
	json_put_arr(o, "claims");
	for (size_t i = 0; i < drill_nclaims; i++) {
		const struct claim *c = &drill_claims[i];

		if (c->weaken != weaken || !wanted(c, d) || d->verdicts[i] != DRILL_PROVEN)
			continue;
		json_put_obj(o, NULL);
		json_put_str(o, "id", c->id);
		json_put_bool(o, "red", drill_red(c, &d->results[i]));
		json_end_obj(o);
	}
	json_end_arr(o);
	json_end_obj(o);
}

/* One twin, made without these. Each claim that was proven and hangs on them has to fail now. */
static int twin(struct drill *d, unsigned weaken, struct json_out *o, struct err *e)
{
	bool small = weaken & (WEAKEN_MEMORY | WEAKEN_PIDS | WEAKEN_CPU);
	struct sibling s = { .hold.daemon = FD_NONE, .made = ANSWER_INIT };
	unsigned red = 0, green = 0, kernel = 0;
	char text[160] = "";
	int r;

	r = make_sibling(d, &s, small, false, weaken, e);
	if (r < 0) {
		drop_sibling(&s);
		if (r == -EINTR || e->why == WHY_DENIED)
			return r;
		self_row(d, o, weaken, "not-tried", e->text);
		return 0;
	}
	for (size_t i = 0; i < drill_nclaims; i++)
		if (drill_claims[i].weaken == weaken)
			memset(&d->results[i], 0, sizeof(d->results[i]));
	r = run_in_box(d, &s, AT_BOX_ROOT, "root", false, weaken, e);
	if (r == 0 && strcmp(s.user, "root") != 0)
		r = run_in_box(d, &s, AT_BOX_USER, s.user, false, weaken, e);
	if (r == 0)
		r = run_in_box(d, &s, AT_PEER, "root", false, weaken, e);
	drop_sibling(&s);
	if (r < 0)
		return r;
	for (size_t i = 0; i < drill_nclaims; i++) {
		const struct claim *c = &drill_claims[i];

		if (c->weaken != weaken || !wanted(c, d) || d->verdicts[i] != DRILL_PROVEN)
			continue;
		if (drill_red(c, &d->results[i])) {
			red++;
		} else if (drill_refused_to_all(c, &d->results[i])) {
			kernel++;
		} else {
			green++;
			(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
				       text[0] ? ", " : "not noticed by: ", c->id);
		}
	}
	if (green > 0) {
		d->missed++;
		self_row(d, o, weaken, "missed", text);
	} else {
		self_row(d, o, weaken, red ? "noticed" : "not-tried",
			 red      ? NULL
			 : kernel ? "this kernel refuses it to everybody without rights"
				  : "what hangs on it isn't proven here");
	}
	return 0;
}

static int self_test(struct drill *d, struct err *e)
{
	unsigned done[64];
	size_t ndone = 0;
	struct json_out o;
	int r = 0;

	json_out_init(&o, &d->self);
	json_put_arr(&o, NULL);
	for (size_t i = 0; i < drill_nclaims && r == 0; i++) {
		unsigned w = drill_claims[i].weaken;
		bool seen = !w || !wanted(&drill_claims[i], d);

		for (size_t k = 0; k < ndone; k++)
			seen |= done[k] == w;
		if (seen || ndone == sizeof(done) / sizeof(done[0]))
			continue;
		done[ndone++] = w;
		say_progress(d->c, "a box without a defence …");
		r = twin(d, w, &o, e);
	}
	json_end_arr(&o);
	return r;
}

/* ---- what is said */

static int outcome(const struct drill *d)
{
	if (d->count[DRILL_OPEN] > 0 || d->missed > 0)
		return EXIT_OPEN;
	return d->count[DRILL_UNPROVEN] > 0 ? EXIT_UNPROVEN : EXIT_OK;
}

/* The result, and what is kept of it. */
static void put_result(const struct drill *d, struct json_out *o)
{
	const struct json *box = json_get(d->box.made.doc.root, "box");
	struct utsname u = { .release = "" };

	(void)uname(&u);
	json_put_obj(o, NULL);
	json_put_int(o, "time", d->begun);
	json_put_int(o, "ms", (int64_t)(now_ms() - d->begun_ms));
	json_put_str(o, "version", CUBBY_VERSION);
	json_put_str(o, "kernel", u.release);
	json_put_str(o, "engine", json_str(box, "engine", "native"));
	json_put_str(o, "template", json_str(box, "template", ""));
	json_put_str(o, "net", json_str(box, "net", "none"));
	json_put_bool(o, "nesting", json_bool(box, "nesting", false));
	if (d->c->args.nnames > 0)
		json_put_str(o, "box", d->c->args.names[0]);
	json_put_int(o, "proven", d->count[DRILL_PROVEN]);
	json_put_int(o, "open", d->count[DRILL_OPEN]);
	json_put_int(o, "not_proven", d->count[DRILL_UNPROVEN]);
	json_put_int(o, "absent", d->count[DRILL_ABSENT]);
	json_put_arr(o, "rows");
	for (size_t i = 0; i < drill_nclaims; i++) {
		const struct claim *c = &drill_claims[i];

		if (!wanted(c, d))
			continue;
		json_put_obj(o, NULL);
		json_put_str(o, "id", c->id);
		json_put_str(o, "group", drill_group_title(c->group));
		json_put_str(o, "what", c->what);
		json_put_str(o, "verdict", drill_verdict_word(d->verdicts[i]));
		json_put_str(o, "how", d->how[i]);
		if (d->against[i][0])
			json_put_str(o, "control", d->against[i]);
		json_end_obj(o);
	}
	json_end_arr(o);
	if (d->self.len > 0) {
		json_put_raw(o, "self_test", d->self.data, d->self.len);
		json_put_int(o, "missed", d->missed);
	}
	json_put_int(o, "exit", outcome(d));
	json_end_obj(o);
}

static const char *short_of(const char *text)
{
	if (strncmp(text, "refused ", 8) == 0)
		return text + 8;
	return strncmp(text, "through: ", 9) == 0 ? text + 9 : text;
}

static void print_rows(const struct drill *d, struct buf *to)
{
	static const char *const marks[] = { "ok", "OPEN", "not proven", "absent" };

	for (unsigned g = 0; g < GROUP_COUNT; g++) {
		OWN_TABLE t = { 0 };
		bool any = false;

		table_init(&t, 5);
		for (size_t i = 0; i < drill_nclaims; i++) {
			const struct claim *c = &drill_claims[i];

			if (c->group != g || !wanted(c, d))
				continue;
			any = true;
			table_cell(&t, marks[d->verdicts[i]]);
			table_cell(&t, c->id);
			table_cell(&t, c->what);
			table_cell(&t, short_of(d->how[i]));
			table_cell(&t, d->against[i][0] ? short_of(d->against[i]) : NULL);
		}
		if (!any)
			continue;
		(void)buf_printf(to, "%s%s\n", to->len ? "\n" : "", drill_group_title(g));
		table_print(&t, to);
	}
}

static void print_self(const struct drill *d, struct buf *to)
{
	OWN_JSON doc = { 0 };

	if (d->self.len == 0 || json_parse(d->self.data, d->self.len, &doc, NULL) < 0)
		return;
	(void)buf_puts(to, "\nboxes made without a defence\n");
	for (const struct json *m = doc.root->child; m; m = m->next) {
		const struct json *claims = json_get(m, "claims");
		const char *why = json_str(m, "why", NULL);
		bool first = true;

		(void)buf_printf(to, "%-9s  without %s: ", json_str(m, "state", "?"), json_str(m, "what", "?"));
		for (const struct json *k = claims ? claims->child : NULL; k; k = k->next)
			if (json_bool(k, "red", false)) {
				(void)buf_printf(to, "%s%s", first ? "noticed by " : ", ", json_str(k, "id", "?"));
				first = false;
			}
		if (why) {
			(void)buf_puts(to, first ? "" : "; ");
			put_text(to, why);
		}
		(void)buf_putc(to, '\n');
	}
}

static void print_all(const struct drill *d, struct buf *to)
{
	const struct json *box = json_get(d->box.made.doc.root, "box");
	const char *text = json_str(box, "net", "none");
	char net[100];
	unsigned all = d->count[DRILL_PROVEN] + d->count[DRILL_OPEN] + d->count[DRILL_UNPROVEN];

	print_rows(d, to);
	print_self(d, to);
	(void)buf_printf(to, "\n%u of %u claims proven", d->count[DRILL_PROVEN], all);
	if (d->count[DRILL_OPEN])
		(void)buf_printf(to, ", %u OPEN", d->count[DRILL_OPEN]);
	if (d->count[DRILL_UNPROVEN])
		(void)buf_printf(to, ", %u not proven", d->count[DRILL_UNPROVEN]);
	if (d->count[DRILL_ABSENT])
		(void)buf_printf(to, "; %u about things that this host doesn't have", d->count[DRILL_ABSENT]);
	if (d->missed)
		(void)buf_printf(to, "; %u defences could be taken away unnoticed", d->missed);
	(void)buf_puts(to, ". Template ");
	put_text(to, json_str(box, "template", "?"));
	(void)buf_puts(to, ", network ");
	(void)snprintf(net, sizeof(net), "%.80s%s", text, strlen(text) > 80 ? "…" : "");
	put_text(to, net);
	(void)buf_printf(to, ", %.1f s.\n", (double)(now_ms() - d->begun_ms) / 1000);
}

void put_drill(struct buf *to, const struct json *drill)
{
	int64_t proven = json_int(drill, "proven", 0), open = json_int(drill, "open", 0);
	int64_t missed = json_int(drill, "missed", 0);

	put_ago(to, json_int(drill, "time", 0));
	(void)buf_printf(to, ", %lld of %lld claims proven", (long long)proven,
			 (long long)(proven + open + json_int(drill, "not_proven", 0)));
	if (open > 0)
		(void)buf_printf(to, ", %lld OPEN", (long long)open);
	if (missed > 0)
		(void)buf_printf(to, ", %lld defences missed by nobody", (long long)missed);
	if (strcmp(json_str(drill, "version", ""), CUBBY_VERSION) != 0)
		(void)buf_puts(to, ", by another version");
}

/* The daemon keeps it, for `info` and `doctor`. */
static void leave_receipt(struct drill *d)
{
	OWN_QUESTION q = { 0 };
	OWN_ANSWER a = ANSWER_INIT;
	OWN_BUF text = BUF_INIT(4u << 20);
	struct err e = ERR_INIT;
	struct json_out o;

	json_out_init(&o, &text);
	put_result(d, &o);
	question_begin(&q, "drill-done");
	json_put_raw(&q.json, "result", text.data, text.len);
	if (ask(d->c, &q, NULL, 0, &a, &e) < 0)
		say_note(d->c, "the result isn't kept: %s", e.text);
}

static int get_model(struct drill *d, struct err *e)
{
	OWN_QUESTION hello = { 0 }, q = { 0 };
	int r;

	question_begin(&hello, "hello");
	r = ask(d->c, &hello, NULL, 0, &d->hello, e);
	if (r < 0 || d->c->args.nnames == 0)
		return r;
	question_begin(&q, "info");
	put_box(d->c, &q, d->c->args.names[0]);
	return ask(d->c, &q, NULL, 0, &d->model, e);
}

static int run_drill(struct drill *d, struct err *e)
{
	int r = net_target(d, e);

	if (r == 0)
		r = find_probe(d->probe, sizeof(d->probe), e);

	if (r == 0)
		r = get_model(d, e);
	if (r == 0)
		r = set_stage(d, e);
	say_progress(d->c, "making throw-away boxes …");
	if (r == 0)
		r = make_sibling(d, &d->box, false, false, 0, e);
	if (r == 0) {
		r = make_sibling(d, &d->peer, true, false, 0, e);
		/* Limits that can't be had here: the rows will say so. */
		if (r < 0 && e->why == WHY_UNSUPPORTED) {
			drop_sibling(&d->peer);
			r = make_sibling(d, &d->peer, true, true, 0, e);
		}
	}
	if (r == 0)
		r = keep_things(d, e);
	if (r == 0)
		r = listen_in_peer(d, e);
	if (r == 0)
		r = run_all(d, e);
	if (r == 0)
		judge_all(d);
	batch_end(&d->keeper, 2000);
	batch_end(&d->listener, 2000);
	if (r == 0 && args_has(&d->c->args, O(SELF_TEST)))
		r = self_test(d, e);
	say_progress(d->c, NULL);
	return r;
}

int cmd_drill(struct cli *c)
{
	struct drill d = {
		.c = c,
		.model = ANSWER_INIT,
		.hello = ANSWER_INIT,
		.stage = BATCH_INIT,
		.keeper = BATCH_INIT,
		.listener = BATCH_INIT,
		.box = { .hold.daemon = FD_NONE, .made = ANSWER_INIT },
		.peer = { .hold.daemon = FD_NONE, .made = ANSWER_INIT },
		.self = BUF_INIT(1u << 20),
		.begun = now_seconds(),
		.begun_ms = now_ms(),
	};
	struct sigaction stop = { .sa_handler = on_signal };
	struct err e = ERR_INIT;
	int r = -ENOMEM, status;

	if (c->args.nnames > 0 && box_word(c->args.names[0], &e) < 0) {
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	(void)sigaction(SIGINT, &stop, NULL);
	(void)sigaction(SIGTERM, &stop, NULL);
	(void)sigaction(SIGHUP, &stop, NULL);
	d.results = calloc(drill_nclaims, sizeof(*d.results));
	d.verdicts = calloc(drill_nclaims, sizeof(*d.verdicts));
	d.how = calloc(drill_nclaims, sizeof(*d.how));
	d.against = calloc(drill_nclaims, sizeof(*d.against));
	if (d.results && d.verdicts && d.how && d.against)
		r = run_drill(&d, &e);
	else
		(void)err_set(&e, r, "cannot begin the drill");
	if (r == 0) {
		struct json_out o;

		leave_receipt(&d);
		json_out_init(&o, &c->out);
		if (c->json) {
			put_result(&d, &o);
			(void)buf_putc(&c->out, '\n');
		} else {
			print_all(&d, &c->out);
		}
		status = outcome(&d);
	} else {
		status = say_failed(c, &e);
		if (e.why == WHY_BAD_REQUEST && !d.stage.pid)
			status = EXIT_ASKED_WRONG;
	}
	batch_end(&d.keeper, 2000);
	batch_end(&d.listener, 2000);
	drop_sibling(&d.box);
	drop_sibling(&d.peer);
	batch_end(&d.stage, 5000);
	drill_facts_done(&d.facts);
	buf_done(&d.self);
	free(d.results);
	free(d.verdicts);
	free(d.how);
	free(d.against);
	answer_done(&d.model);
	answer_done(&d.hello);
	return status;
}
