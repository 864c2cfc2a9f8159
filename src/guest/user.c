/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/user.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/parse.h"

#define ID_MAX 4294967294u	/* 2^32 - 1 means "don't change" to setresuid(2) */

/* A piece of a line: not terminated. */
struct field {
	const char *s;
	size_t n;
};

static bool field_is(struct field f, const char *s)
{
	return f.n == strlen(s) && memcmp(f.s, s, f.n) == 0;
}

static bool field_copy(struct field f, char *to, size_t room)
{
	if (f.n >= room || memchr(f.s, '\0', f.n))
		return false;
	memcpy(to, f.s, f.n);
	to[f.n] = '\0';
	return true;
}

static bool field_id(struct field f, uint32_t *ret)
{
	char text[16];
	uint64_t v;

	if (!field_copy(f, text, sizeof(text)) || parse_u64(text, ID_MAX, &v) < 0)
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Cut the next piece off `from` at `sep`. false at the end. */
static bool cut(struct field *from, char sep, struct field *ret)
{
	const char *at;

	if (!from->s)
		return false;
	at = from->n ? memchr(from->s, sep, from->n) : NULL;
	ret->s = from->s;
	ret->n = at ? (size_t)(at - from->s) : from->n;
	if (at) {
		from->n -= ret->n + 1;
		from->s = at + 1;
	} else {
		from->s = NULL;
		from->n = 0;
	}
	return true;
}

static bool name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool name_char(char c)
{
	return name_start(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

static bool user_name_ok(const char *s)
{
	if (!name_start(s[0]) || strlen(s) >= sizeof(((struct user *)0)->name))
		return false;
	while (*s && name_char(*s))
		s++;
	return !*s;
}

/* name:password:uid:gid:gecos:home:shell, exactly seven fields. */
static bool passwd_line(struct field line, struct user *ret)
{
	struct field f[7];
	struct user u = { 0 };

	for (unsigned i = 0; i < 7; i++)
		if (!cut(&line, ':', &f[i]))
			return false;
	if (line.s || !field_copy(f[0], u.name, sizeof(u.name)) || !user_name_ok(u.name))
		return false;
	if (!field_id(f[2], &u.uid) || !field_id(f[3], &u.gid))
		return false;
	/* A home or shell that can't be used is no reason to run as somebody else. */
	if (!field_copy(f[5], u.home, sizeof(u.home)) || u.home[0] != '/')
		memcpy(u.home, "/", 2);
	if (!field_copy(f[6], u.shell, sizeof(u.shell)) || u.shell[0] != '/')
		memcpy(u.shell, "/bin/sh", 8);
	*ret = u;
	return true;
}

static bool passwd_find(struct field all, const char *name, uint32_t uid, struct user *ret)
{
	struct field line;

	while (cut(&all, '\n', &line)) {
		struct user u;

		if (passwd_line(line, &u) && (name ? strcmp(u.name, name) == 0 : u.uid == uid)) {
			*ret = u;
			return true;
		}
	}
	return false;
}

static bool has_member(struct field members, const char *name)
{
	struct field m;

	while (cut(&members, ',', &m))
		if (field_is(m, name))
			return true;
	return false;
}

/* name:password:gid:members */
static int groups_of(struct field all, struct user *u, struct err *e)
{
	struct field line;

	while (cut(&all, '\n', &line)) {
		struct field f[4];
		unsigned n = 0;
		uint32_t gid;

		while (n < 4 && cut(&line, ':', &f[n]))
			n++;
		if (n < 4 || line.s || !field_id(f[2], &gid) || !has_member(f[3], u->name))
			continue;
		if (u->ngroups == USER_GROUPS_MAX)
			return err_why(e, WHY_LIMIT, -E2BIG, "user '%s' of the box is in more than %d groups", u->name,
				       USER_GROUPS_MAX);
		u->groups[u->ngroups++] = gid;
	}
	return 0;
}

static void no_entry(uint32_t uid, struct user *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->uid = ret->gid = uid;
	if (uid == 0)
		memcpy(ret->name, "root", 5);
	else
		(void)snprintf(ret->name, sizeof(ret->name), "%u", uid);
	memcpy(ret->home, "/", 2);
	memcpy(ret->shell, "/bin/sh", 8);
}

static int by_number(const char *what, struct field passwd, struct field group, struct user *ret, struct err *e)
{
	const char *colon = strchr(what, ':');
	struct field u = { what, colon ? (size_t)(colon - what) : strlen(what) };
	struct user found;
	uint32_t uid, gid = 0;
	int r;

	if (!field_id(u, &uid) || (colon && !field_id((struct field){ colon + 1, strlen(colon + 1) }, &gid)))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL,
			       "'%s' is not a user: write a name, UID or UID:GID in plain decimal", what);
	if (!passwd_find(passwd, NULL, uid, &found))
		no_entry(uid, &found);
	else if (!colon) {
		r = groups_of(group, &found, e);
		if (r < 0)
			return r;
	}
	if (colon)
		found.gid = gid;
	*ret = found;
	return 0;
}

int user_find_in(const char *what, const char *passwd, size_t npasswd, const char *group, size_t ngroup,
		 struct user *ret, struct err *e)
{
	struct field pw = { passwd, npasswd }, gr = { group, ngroup };
	struct user found;
	int r;

	if (!what)
		what = passwd_find(pw, NULL, 1000, &found) ? "1000" : "0";
	if (what[0] >= '0' && what[0] <= '9')
		return by_number(what, pw, gr, ret, e);
	if (!user_name_ok(what))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL,
			       "'%s' is not a user: write a name, UID or UID:GID in plain decimal", what);
	if (!passwd_find(pw, what, 0, &found)) {
		if (strcmp(what, "root") != 0)
			return err_why(e, WHY_NOT_FOUND, -ENOENT, "the box has no user '%s' (see its /etc/passwd)", what);
		no_entry(0, &found);
	}
	r = groups_of(gr, &found, e);
	if (r < 0)
		return r;
	*ret = found;
	return 0;
}

/* O_NONBLOCK, so that a FIFO in the place of the file doesn't hold us. A missing file is an empty one. */
static int load(const char *path, char *small, size_t room, char **ret, size_t *ret_n, struct err *e)
{
	OWN_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	char *to = small;
	ssize_t k;

	*ret = NULL;
	*ret_n = 0;
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_set(e, -errno, "cannot read %s of the box", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_why(e, WHY_HOSTILE, -EINVAL, "%s of the box is not a regular file", path);
	if (st.st_size >= (off_t)room) {
		room = USER_FILE_MAX + 1;
		to = malloc(room);
		if (!to)
			return err_set(e, -ENOMEM, "cannot read %s of the box", path);
	}
	k = fd_read_small(fd, to, room);
	if (k < 0) {
		if (to != small)
			free(to);
		if (k == -E2BIG)
			return err_why(e, WHY_LIMIT, -E2BIG, "%s of the box has more than %u bytes", path, USER_FILE_MAX);
		return err_set(e, (int)k, "cannot read %s of the box", path);
	}
	*ret = to;
	*ret_n = (size_t)k;
	return 0;
}

/* Has the box's user namespace user 1000? "0 100000 65536" of user_namespaces(7); where that can't be read: yes. */
static bool has_default_id(void)
{
	char text[256], *at = text;
	ssize_t n = file_read_small(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text));
	unsigned long first, outside, len;

	if (n <= 0)
		return true;
	for (; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (sscanf(at, "%lu %lu %lu", &first, &outside, &len) == 3 && first <= 1000 && 1000 - first < len)
			return true;
	return false;
}

int user_find(const char *what, struct user *ret, struct err *e)
{
	static char small[2][4096];
	char *passwd, *group = NULL;
	size_t npasswd, ngroup = 0;
	int r;

	if (!what && !has_default_id())
		what = "0";
	r = load("/etc/passwd", small[0], sizeof(small[0]), &passwd, &npasswd, e);
	if (r == 0)
		r = load("/etc/group", small[1], sizeof(small[1]), &group, &ngroup, e);
	if (r == 0)
		r = user_find_in(what, passwd, npasswd, group, ngroup, ret, e);
	if (passwd && passwd != small[0])
		free(passwd);
	if (group && group != small[1])
		free(group);
	return r;
}
