/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of net/ctl.h, collected and written together a tenth of a second later at most; and which process it was. */
#include "net/ctl.h"
#include "net/gateway.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	REFUSED_MS = 1000,
	REFUSED_MAX = 1024,	/* different refusals within that time; of the others only the number is told */
	REFUSED_OF_BOX_MAX = 128,
	REFUSED_BUCKETS = 256,
	OUT_MAX = 1 << 20,
	OUT_FLUSH = 32768,
	WHO_SECOND = 50,
	WHO_RING = 256,
};

struct refused {
	struct link bucket, order;
	struct tale t;
	char *why;
	const char *end;
	uint64_t until;
	unsigned count;
};

struct log {
	int fd;
	uint64_t size;
	bool told;
	struct buf out;
	struct link buckets[REFUSED_BUCKETS], order;
	unsigned nrefused;
	struct tale *asked[WHO_RING];
	uint64_t who_second;
	unsigned who_count;
};

static struct log *log_of(struct gw *g)
{
	struct log *l = g->log;

	if (l)
		return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->fd = FD_NONE;
	l->out.max = OUT_MAX;
	for (size_t i = 0; i < REFUSED_BUCKETS; i++)
		link_init(&l->buckets[i]);
	link_init(&l->order);
	g->log = l;
	return l;
}

/* ---- tales */

void tale_init(struct tale *t, struct gbox *b, enum proto proto, const struct ip *addr, uint16_t port, uint16_t sport)
{
	*t = (struct tale){ .box = b, .proto = proto, .addr = *addr, .port = port, .sport = sport, .began = clock_ms() };
}

void tale_text(char **at, const char *text)
{
	free(*at);
	/* Without memory the line lacks a word. */
	*at = text && *text ? strdup(text) : NULL;
}

void who_forget(struct tale *t)
{
	struct log *l = t->box ? t->box->g->log : NULL;

	if (t->who && l && l->asked[t->who % WHO_RING] == t)
		l->asked[t->who % WHO_RING] = NULL;
	t->who = 0;
}

void tale_done(struct tale *t)
{
	who_forget(t);
	free(t->host);
	free(t->rule);
	free(t->process);
	t->host = t->rule = t->process = NULL;
}

static const char *const proto_words[] = { "tcp", "udp", "icmp", "dns" };

void who_ask(struct tale *t)
{
	struct gw *g = t->box->g;
	struct log *l = log_of(g);
	OWN_BUF text = BUF_INIT(4096);
	char addr[IP_TEXT_MAX];
	struct json_out o;
	uint64_t now;

	if (!l || (t->proto != PROTO_TCP && t->proto != PROTO_UDP))
		return;
	now = clock_ms() / 1000;
	if (now != l->who_second) {
		l->who_second = now;
		l->who_count = 0;
	}
	if (l->who_count++ >= WHO_SECOND)
		return;
	if (++g->next_n == 0)
		g->next_n = 1;
	t->who = g->next_n;
	/* Who stood there was never answered. */
	if (l->asked[t->who % WHO_RING])
		l->asked[t->who % WHO_RING]->who = 0;
	l->asked[t->who % WHO_RING] = t;
	talk_begin(g, &o, &text, "who");
	json_put_int(&o, "n", t->who);
	json_put_str(&o, "id", t->box->id);
	json_put_str(&o, "proto", proto_words[t->proto]);
	json_put_str(&o, "addr", ip_text(&t->addr, addr));
	json_put_int(&o, "port", t->port);
	json_put_int(&o, "src_port", t->sport);
	talk_end(g, &o, &text);
}

void who_answer(struct gw *g, uint32_t n, const char *process)
{
	struct log *l = g->log;
	struct tale *t = l ? l->asked[n % WHO_RING] : NULL;

	if (!t || t->who != n)
		return;
	tale_text(&t->process, process);
	who_forget(t);
}

/* ---- lines */

/*
 * A line is put together by hand: it is made for each connection, and through printf(3) and a buffer it took a tenth of
 * what a whole connection takes.
 */
struct text {
	char at[8192];
	size_t n;
};

static void put_raw(struct text *t, const char *s)
{
	while (*s && t->n < sizeof(t->at))
		t->at[t->n++] = *s++;
}

static void put_num(struct text *t, uint64_t v)
{
	char digits[24];
	size_t n = sizeof(digits);

	digits[--n] = '\0';
	do
		digits[--n] = (char)('0' + v % 10);
	while (v /= 10);
	put_raw(t, digits + n);
}

/* What isn't plain is left to the writer of JSON: names of processes are a box's to choose. */
static void put_quoted(struct text *t, const char *s)
{
	OWN_BUF b = BUF_INIT(1024);
	struct json_out o;

	for (const char *p = s; *p; p++) {
		if ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f && *p != '"' && *p != '\\')
			continue;
		json_out_init(&o, &b);
		json_put_str(&o, NULL, s);
		put_raw(t, buf_error(&b) || !b.data ? "\"\"" : b.data);
		return;
	}
	put_raw(t, "\"");
	put_raw(t, s);
	put_raw(t, "\"");
}

static void put_member(struct text *t, const char *key, const char *val)
{
	put_raw(t, key);
	put_quoted(t, val ? val : "");
}

static void put_count(struct text *t, const char *key, uint64_t v)
{
	put_raw(t, key);
	put_num(t, v);
}

static void put_time(struct text *t)
{
	static time_t second = -1;
	static char date[32];
	struct timespec now;
	struct tm tm;
	char ms[8];
	long v;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (now.tv_sec != second) {
		second = now.tv_sec;
		if (!gmtime_r(&second, &tm) || strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S.", &tm) == 0)
			date[0] = '\0';
	}
	v = now.tv_nsec / 1000000;
	ms[0] = (char)('0' + v / 100);
	ms[1] = (char)('0' + v / 10 % 10);
	ms[2] = (char)('0' + v % 10);
	ms[3] = 'Z';
	ms[4] = '\0';
	put_raw(t, "{\"time\":\"");
	put_raw(t, date);
	put_raw(t, ms);
	put_raw(t, "\"");
}

static void line(struct gw *g, const struct tale *t, bool refused, const char *why, const char *end, uint64_t count)
{
	struct log *l = log_of(g);
	char addr[IP_TEXT_MAX];
	static const struct ip none;
	struct text x;

	if (!l || l->fd < 0)
		return;
	x.n = 0;
	put_time(&x);
	put_member(&x, ",\"box\":", t->box->id);
	put_member(&x, ",\"name\":", t->box->name);
	put_member(&x, ",\"process\":", t->process);
	put_member(&x, ",\"proto\":", proto_words[t->proto]);
	put_member(&x, ",\"host\":", t->host);
	put_member(&x, ",\"addr\":", ip_same(&t->addr, &none) ? "" : ip_text(&t->addr, addr));
	put_count(&x, ",\"port\":", t->port);
	put_member(&x, ",\"verdict\":", refused ? "refused" : "allowed");
	put_member(&x, ",\"rule\":", t->rule);
	put_member(&x, ",\"why\":", why);
	put_count(&x, ",\"up\":", t->up);
	put_count(&x, ",\"down\":", t->down);
	put_count(&x, ",\"ms\":", clock_ms() - t->began);
	put_member(&x, ",\"end\":", end);
	if (count > 1)
		put_count(&x, ",\"count\":", count);
	put_raw(&x, "}\n");
	/* Cut off, it would be no line; texts have their limits, so it never is. On a disk that takes nothing, lines are given up. */
	if (x.n == sizeof(x.at) || l->out.len + x.n > OUT_MAX || buf_put(&l->out, x.at, x.n) < 0)
		l->out.failed = 0;
	if (l->out.len >= OUT_FLUSH)
		log_flush(g);
	gw_tick(g);
}

void log_end(struct tale *t, const char *why, const char *end)
{
	line(t->box->g, t, false, why, end, 1);
}

void log_flush(struct gw *g)
{
	struct log *l = g->log;
	OWN_BUF text = BUF_INIT(256);
	struct json_out o;
	ssize_t n;

	if (!l || l->fd < 0 || !l->out.len)
		return;
	n = write(l->fd, l->out.data, l->out.len);
	if (n > 0) {
		l->size += (uint64_t)n;
		buf_drop(&l->out, (size_t)n);
	} else if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOSPC) {
		buf_reset(&l->out);
	}
	if (l->size < LOG_ROTATE_BYTES || l->told)
		return;
	l->told = true;
	talk_begin(g, &o, &text, "log-full");
	talk_end(g, &o, &text);
}

void log_file(struct gw *g, int fd)
{
	struct log *l = log_of(g);
	struct stat st;

	if (!l) {
		fd_close(&fd);
		return;
	}
	/* What was collected belongs to the file that was there. */
	log_flush(g);
	fd_close(&l->fd);
	l->fd = fd;
	l->size = fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
	l->told = false;
	if (fd < 0)
		buf_done(&l->out);
}

/* ---- refusals */

static struct link *refused_bucket(struct gw *g, const struct tale *t)
{
	uint64_t more = (uint64_t)(uintptr_t)t->box << 16 ^ t->port;

	return &g->log->buckets[gw_hash(g, t->addr.b, sizeof(t->addr.b), more) % REFUSED_BUCKETS];
}

static bool same(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static void refused_end(struct gw *g, struct refused *x)
{
	line(g, &x->t, true, x->why ? x->why : "", x->end, x->count);
	link_del(&x->bucket);
	link_del(&x->order);
	g->log->nrefused--;
	x->t.box->nrefused--;
	tale_done(&x->t);
	free(x->why);
	free(x);
}

void log_refused(struct gw *g, const struct tale *t, const char *why, const char *end)
{
	struct log *l = log_of(g);
	struct refused *x;

	t->box->totals.refused++;
	if (!l)
		return;
	LINK_EACH(k, tmp, refused_bucket(g, t)) {
		x = LINK_OF(k, struct refused, bucket);
		if (x->t.box == t->box && x->t.proto == t->proto && x->t.port == t->port && ip_same(&x->t.addr, &t->addr) &&
		    same(x->why, why) && same(x->t.host, t->host)) {
			x->count++;
			return;
		}
	}
	x = l->nrefused < REFUSED_MAX && t->box->nrefused < REFUSED_OF_BOX_MAX ? calloc(1, sizeof(*x)) : NULL;
	if (!x) {
		t->box->unlogged++;
		gw_tick(g);
		return;
	}
	x->t = *t;
	x->t.who = 0;
	x->t.host = t->host ? strdup(t->host) : NULL;
	x->t.rule = t->rule ? strdup(t->rule) : NULL;
	x->t.process = t->process ? strdup(t->process) : NULL;
	x->why = strdup(why);
	x->end = end;
	x->count = 1;
	x->until = clock_ms() + REFUSED_MS;
	link_add(refused_bucket(g, t), &x->bucket);
	link_add(&l->order, &x->order);
	l->nrefused++;
	t->box->nrefused++;
	who_ask(&x->t);
	gw_tick(g);
}

static void tell_unlogged(struct gw *g, struct gbox *b)
{
	static const struct ip none;
	struct tale t;

	if (!b->unlogged)
		return;
	tale_init(&t, b, PROTO_TCP, &none, 0, 0);
	line(g, &t, true, "others, too many to list", "refused", b->unlogged);
	b->unlogged = 0;
}

bool log_sweep(struct gw *g, uint64_t now, bool all)
{
	struct log *l = g->log;
	bool waits = false;

	if (!l)
		return false;
	LINK_EACH(k, tmp, &l->order) {
		struct refused *x = LINK_OF(k, struct refused, order);

		if (!all && x->until > now) {
			waits = true;
			break;
		}
		refused_end(g, x);
	}
	if (all || !waits) {
		LINK_EACH(k, tmp, &g->boxes)
			tell_unlogged(g, LINK_OF(k, struct gbox, all));
	} else {
		/* Once the oldest refusal of this second is written: about once a second. */
		LINK_EACH(k, tmp, &g->boxes)
			if (LINK_OF(k, struct gbox, all)->unlogged >= 1000000)
				tell_unlogged(g, LINK_OF(k, struct gbox, all));
	}
	log_flush(g);
	return waits || l->out.len > 0;
}

void log_forget(struct gw *g, struct gbox *b)
{
	if (!g->log)
		return;
	LINK_EACH(k, tmp, &g->log->order) {
		struct refused *x = LINK_OF(k, struct refused, order);

		if (x->t.box == b)
			refused_end(g, x);
	}
	tell_unlogged(g, b);
}
