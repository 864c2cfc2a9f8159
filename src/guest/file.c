/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "chan/copy.h"
#include "guest/serve.h"
#include "guest/spawn.h"
#include "guest/user.h"

/* Copying out of and into the box: done with the rights of the user who was named, in a process that is only this. */

static int become(const char *what, struct err *e)
{
	static struct user u;
	int r = user_find(what, &u, e);

	if (r < 0)
		return r;
	/* As for a command (guest/spawn.c): where groups can't be set there is one user only. */
	if (syscall(SYS_setgroups, (size_t)u.ngroups, u.groups) < 0 && (errno != EPERM || u.uid || u.gid))
		return err_set(e, -errno, "cannot become user %u of the box", u.uid);
	if (syscall(SYS_setresgid, u.gid, u.gid, u.gid) < 0 || syscall(SYS_setresuid, u.uid, u.uid, u.uid) < 0)
		return err_set(e, -errno, "cannot become user %u of the box", u.uid);
	return 0;
}

static void said(int conn, const struct err *e)
{
	serve_fail(conn, e->code ? e->code : -EIO, e->text);
}

static void get(struct guest *g, int conn, const struct box_path *p)
{
	struct copy_opts o = { .follow = p->flags & BOX_PATH_FOLLOW, .max_bytes = p->max_bytes };
	struct copy_result res = { 0 };
	struct copy_stream s;
	struct err e = ERR_INIT;
	char base[BOX_NAME_MAX + 1];
	int r;

	if (!copy_last_name(p->path, base))
		memcpy(base, "content", 8);
	r = copy_stream_init(&s, conn, &o, &res);
	if (r < 0)
		(void)err_set(&e, r, "cannot copy");
	else
		r = copy_send(&s, AT_FDCWD, p->path, base, false, &e);
	if (r == 0)
		r = box_put(&s.out, BOX_OK, NULL, 0);
	serve_idle(g);
	/* What was read before the failure comes first: the receiver is in the middle of it. */
	if (s.in)
		(void)copy_flush(&s);
	if (r < 0)
		said(conn, &e);
	copy_stream_done(&s);
}

/*
 * An existing directory takes the thing in; else its parent must exist. *ret_name: NULL (content), "" (the first
 * entry's own name), or the new name.
 */
static int destination(const struct box_path *p, char *own, int *ret_dir, const char **ret_name, struct err *e)
{
	char parent[BOX_PATH_MAX + 1];
	size_t n = strlen(p->path);
	int fd = open_dir(p->path, O_RDONLY);

	if (fd >= 0) {
		*ret_dir = fd;
		*ret_name = p->flags & BOX_PATH_CONTENTS ? NULL : "";
		return 0;
	}
	if ((fd != -ENOENT && fd != -ENOTDIR) || !copy_last_name(p->path, own))
		return err_set(e, fd, "cannot enter '%.500s'", p->path);
	memcpy(parent, p->path, n + 1);
	while (n > 1 && parent[n - 1] == '/')
		n--;
	while (n > 1 && parent[n - 1] != '/')
		n--;
	parent[n] = '\0';
	fd = open_dir(parent, O_RDONLY);
	if (fd < 0)
		return err_set(e, fd, "cannot enter '%.500s'", parent);
	*ret_dir = fd;
	*ret_name = own;
	return 0;
}

static bool ok(int conn)
{
	OWN_BUF b = BUF_INIT(64);

	return box_put(&b, BOX_OK, NULL, 0) == 0 && serve_send(conn, &b, NULL, 0);
}

static int receive(struct copy_stream *s, int dir, const char *name, struct err *e)
{
	char own[BOX_NAME_MAX + 1];
	struct box_frame f;
	struct box_entry x;
	int r = copy_next(s, &f);

	if (r <= 0 || f.kind != BOX_ENTRY || box_get_entry(&f, &x) < 0 || x.type == BOX_ENTRY_UP)
		return err_why(e, WHY_HOSTILE, -EBADMSG, "a malformed request");
	if (name && !name[0]) {
		memcpy(own, x.name, strlen(x.name) + 1);
		name = own;
	}
	r = copy_receive(s, &x, dir, name, e);
	if (r == 0 && (copy_next(s, &f) != 1 || f.kind != BOX_OK))
		r = err_why(e, WHY_HOSTILE, -EBADMSG, "a malformed request");
	return r;
}

static void put(struct guest *g, int conn, const struct box_path *p)
{
	struct copy_opts o = { .max_bytes = p->max_bytes };
	struct copy_result res = { 0 };
	struct copy_stream s = { 0 };
	struct err e = ERR_INIT;
	char own[BOX_NAME_MAX + 1];
	OWN_FD dir = FD_NONE;
	const char *name = NULL;
	int r;

	r = destination(p, own, &dir, &name, &e);
	if (r == 0) {
		r = copy_stream_init(&s, conn, &o, &res);
		if (r < 0)
			(void)err_set(&e, r, "cannot copy");
	}
	if (r == 0 && ok(conn))
		r = receive(&s, dir, name, &e);
	serve_idle(g);
	if (r < 0)
		said(conn, &e);
	else
		(void)ok(conn);
	copy_stream_done(&s);
}

enum serve_end file_serve(struct guest *g, int conn, const struct serve_in *in)
{
	struct err e = ERR_INIT;
	struct box_path p;

	if (box_get_path(&in->f, &p) < 0) {
		serve_fail(conn, -EBADMSG, "a malformed request");
		return SERVE_DONE;
	}
	if (become(p.user, &e) < 0)
		said(conn, &e);
	else if (in->f.kind == BOX_GET)
		get(g, conn, &p);
	else
		put(g, conn, &p);
	return SERVE_DONE;
}
