/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receipts of drills: STATE/drill/UID-KEY.json, one for each user, engine, template and network policy. What a user's drill found is
 * that user's word, shown to nobody else.
 */
#include "box/daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECEIPT_MAX (4u << 20) /* a policy may be long */
/* Receipts of one user. The oldest goes for one more. */
#define RECEIPTS_MAX 32u

struct key {
	const char *engine, *template, *net;
	bool nesting;
};

static uint64_t fnv(uint64_t h, const char *s)
{
	do
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
	while (*s++);
	return h;
}

static void file_name(uid_t uid, const struct key *k, char ret[48])
{
	uint64_t h = fnv(fnv(fnv(UINT64_C(0xcbf29ce484222325), k->engine), k->template), k->net);

	(void)snprintf(ret, 48, "%u-%016llx.json", uid, (unsigned long long)fnv(h, k->nesting ? "nesting" : ""));
}

static int open_dir(struct daemon *d, bool make)
{
	char path[1100];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/drill", d->state_dir);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && make && mkdir(path, 0700) == 0)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Names of this user's receipts; the newest one's, and the oldest one's. Returns how many. */
static unsigned look_through(int dir, uid_t uid, char newest[64], char oldest[64])
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *all = copy < 0 ? NULL : fdopendir(copy);
	struct timespec last = { 0 }, first = { 0 };
	const struct dirent *ent;
	char prefix[16];
	unsigned n = 0;

	(void)snprintf(prefix, sizeof(prefix), "%u-", uid);
	while (all && (ent = readdir(all))) {
		struct stat st;

		if (strncmp(ent->d_name, prefix, strlen(prefix)) != 0 || strlen(ent->d_name) >= 64 ||
		    !strstr(ent->d_name, ".json") || fstatat(dir, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (n == 0 || st.st_mtim.tv_sec > last.tv_sec ||
		    (st.st_mtim.tv_sec == last.tv_sec && st.st_mtim.tv_nsec > last.tv_nsec)) {
			last = st.st_mtim;
			memccpy(newest, ent->d_name, '\0', 64);
		}
		if (n == 0 || st.st_mtim.tv_sec < first.tv_sec ||
		    (st.st_mtim.tv_sec == first.tv_sec && st.st_mtim.tv_nsec < first.tv_nsec)) {
			first = st.st_mtim;
			memccpy(oldest, ent->d_name, '\0', 64);
		}
		n++;
	}
	if (all)
		(void)closedir(all);
	else if (copy >= 0)
		(void)close(copy);
	return n;
}

static int write_receipt(struct daemon *d, uid_t uid, const struct json *result, struct err *e)
{
	OWN_BUF text = BUF_INIT(RECEIPT_MAX);
	OWN_FD dir = open_dir(d, true), fd = FD_NONE;
	struct key k = {
		.engine = json_str(result, "engine", ""),
		.template = json_str(result, "template", ""),
		.net = json_str(result, "net", ""),
		.nesting = json_bool(result, "nesting", false),
	};
	char name[48], part[64], newest[64], oldest[64];
	struct json_out o;
	struct stat st;
	int r;

	if (dir < 0)
		return err_set(e, dir, "cannot keep the result of the drill");
	json_out_init(&o, &text);
	json_put_value(&o, NULL, result);
	(void)buf_putc(&text, '\n');
	if (buf_error(&text))
		return err_why(e, WHY_BAD_REQUEST, -E2BIG, "the result of a drill is never that long");
	file_name(uid, &k, name);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && look_through(dir, uid, newest, oldest) >= RECEIPTS_MAX)
		(void)unlinkat(dir, oldest, 0);
	(void)snprintf(part, sizeof(part), "%s.new", name);
	(void)unlinkat(dir, part, 0);
	fd = openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : fd_write_all(fd, text.data, text.len);
	if (r == 0 && renameat(dir, part, dir, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir, part, 0);
		return err_set(e, r, "cannot keep the result of the drill");
	}
	return 0;
}

/* What `info` and `doctor` show of one. */
static void put_receipt(int dir, const char *name, const struct key *k, struct json_out *o, const char *member)
{
	static const char *const same[] = { "time",    "version", "kernel", "engine",     "template", "net",
					    "nesting", "proven",  "open",   "not_proven", "absent",   "missed" };
	OWN_FD fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	OWN_MEM char *text = malloc(RECEIPT_MAX);
	OWN_JSON doc = { 0 };
	ssize_t n = fd < 0 || !text ? -1 : fd_read_small(fd, text, RECEIPT_MAX);

	if (n <= 0 || json_parse(text, (size_t)n, &doc, NULL) < 0)
		return;
	if (k && (strcmp(json_str(doc.root, "engine", ""), k->engine) != 0 ||
		  strcmp(json_str(doc.root, "template", ""), k->template) != 0 ||
		  strcmp(json_str(doc.root, "net", ""), k->net) != 0))
		return;
	json_put_obj(o, member);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (json_get(doc.root, same[i]))
			json_put_value(o, same[i], json_get(doc.root, same[i]));
	json_end_obj(o);
}

void drill_put_of(struct daemon *d, const struct box *b, struct json_out *o)
{
	struct key k = { .engine = d->engine->name,
			 .template = b->spec.template,
			 .net = b->spec.net ? b->spec.net : "none",
			 .nesting = b->spec.nesting };
	OWN_FD dir = open_dir(d, false);
	char name[48];

	if (dir < 0)
		return;
	file_name(b->owner, &k, name);
	put_receipt(dir, name, &k, o, "drill");
}

void drill_put_last(struct daemon *d, uid_t uid, struct json_out *o)
{
	OWN_FD dir = open_dir(d, false);
	char newest[64], oldest[64];

	if (dir >= 0 && look_through(dir, uid, newest, oldest) > 0)
		put_receipt(dir, newest, NULL, o, "drill");
}

static bool count_ok(const struct json *result, const char *key)
{
	int64_t n = json_int(result, key, -1);

	return n >= 0 && n <= 10000;
}

void op_drill_done(struct req *q)
{
	const struct json *result = json_get(q->doc.root, "result");
	struct err e = ERR_INIT;
	int r;

	if (!result || !count_ok(result, "proven") || !count_ok(result, "open") || !count_ok(result, "not_proven") ||
	    json_int(result, "time", 0) <= 0) {
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "'result' has to be what a drill found");
		req_fail(q, &e);
		return;
	}
	r = write_receipt(q->d, q->uid, result, &e);
	if (r < 0)
		req_fail(q, &e);
	else
		req_done(q);
}
