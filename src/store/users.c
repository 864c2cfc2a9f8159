/* SPDX-License-Identifier: Apache-2.0 */
#include "store/build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "store/tree.h"

#define ACCOUNTS_MAX (4u << 20)	/* bytes of /etc/passwd or /etc/group */
#define AGENT_ID 1000u
#define NOBODY_ID 65534u

/* Split one line of a colon table in place. Returns the number of fields. */
static unsigned fields_of(char *line, char **f, unsigned max)
{
	unsigned n = 0;

	while (line && n < max) {
		f[n++] = line;
		line = strchr(line, ':');
		if (line)
			*line++ = '\0';
	}
	return n;
}

/* A name that may be written into an account file again. */
static bool account_ok(const char *s)
{
	if (!*s || strlen(s) > 64)
		return false;
	for (; *s; s++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-$", *s))
			return false;
	return true;
}

static bool text_ok(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

static bool system_id(const char *s, uint64_t *id)
{
	return parse_u64(s, UINT32_MAX - 1, id) == 0 && (*id < AGENT_ID || *id == NOBODY_ID);
}

/* Calls row(fields) for each line of a colon table with at least `least` fields. The text is destroyed. */
static void each_row(char *text, unsigned least, void (*row)(char **f, void *arg), void *arg)
{
	char *f[8];

	while (text && *text) {
		char *nl = strchr(text, '\n'), *next = NULL;

		if (nl) {
			*nl = '\0';
			next = nl + 1;
		}
		if (*text != '#' && fields_of(text, f, 8) >= least)
			row(f, arg);
		text = next;
	}
}

struct accounts {
	struct buf passwd, shadow, group, gshadow;
	struct buf names;	/* kept accounts: "\nname\n…\n", to look members up */
	bool sudo;		/* there is a group that the sudo rule of the distribution knows */
	bool root;
};

static void passwd_row(char **f, void *arg)
{
	struct accounts *a = arg;
	uint64_t uid, gid;
	const char *home = f[5], *shell = f[6], *gecos = f[4];

	if (!account_ok(f[0]) || strcmp(f[0], "agent") == 0 || !system_id(f[2], &uid) || !system_id(f[3], &gid))
		return;
	if (!text_ok(gecos) || !text_ok(home) || !text_ok(shell))
		return;
	if (uid == 0) {
		/* One root, with a home of its own: a second name for it is a person's. */
		if (a->root || strcmp(f[0], "root") != 0)
			return;
		a->root = true;
		gecos = "root";
		home = "/root";
	}
	if (strncmp(home, "/home/", 6) == 0)
		home = "/nonexistent";
	(void)buf_printf(&a->passwd, "%s:x:%u:%u:%s:%s:%s\n", f[0], (unsigned)uid, (unsigned)gid, gecos, home, shell);
	(void)buf_printf(&a->shadow, "%s:*:19000:0:99999:7:::\n", f[0]);
	(void)buf_printf(&a->names, "%s\n", f[0]);
}

static void group_row(char **f, void *arg)
{
	struct accounts *a = arg;
	OWN_BUF members = BUF_INIT(65536);
	uint64_t gid;
	char *list = f[3], *m;
	bool sudo;

	if (!account_ok(f[0]) || strcmp(f[0], "agent") == 0 || !system_id(f[2], &gid))
		return;
	sudo = strcmp(f[0], "sudo") == 0 || strcmp(f[0], "wheel") == 0;
	a->sudo = a->sudo || sudo;
	/* Members: the accounts that are kept. People of the host are not. */
	while ((m = strsep(&list, ",")) != NULL) {
		char want[80];

		if (!account_ok(m))
			continue;
		(void)snprintf(want, sizeof(want), "\n%s\n", m);
		if (a->names.data && strstr(a->names.data, want))
			(void)buf_printf(&members, "%s%s", members.len ? "," : "", m);
	}
	if (sudo)
		(void)buf_printf(&members, "%sagent", members.len ? "," : "");
	(void)buf_printf(&a->group, "%s:x:%u:%s\n", f[0], (unsigned)gid, members.data ? members.data : "");
	(void)buf_printf(&a->gshadow, "%s:*::%s\n", f[0], members.data ? members.data : "");
}

struct find_group {
	const char *name;
	uint32_t id;
};

static void find_group_row(char **f, void *arg)
{
	struct find_group *g = arg;
	uint64_t gid;

	if (strcmp(f[0], g->name) == 0 && parse_u64(f[2], UINT32_MAX - 1, &gid) == 0)
		g->id = (uint32_t)gid;
}

uint32_t users_group_id(int root_fd, const char *name, uint32_t dflt)
{
	OWN_BUF t = BUF_INIT(ACCOUNTS_MAX);
	struct find_group g = { .name = name, .id = dflt };

	if (place_read(root_fd, "etc/group", &t) == 0)
		each_row(t.data, 3, find_group_row, &g);
	return g.id < BOX_IDS ? g.id : dflt;
}

struct homes {
	void (*home)(const char *path, void *arg);
	void *arg;
};

static void home_row(char **f, void *arg)
{
	struct homes *h = arg;
	uint64_t uid;

	if (parse_u64(f[2], UINT32_MAX, &uid) == 0 && uid >= AGENT_ID && uid != NOBODY_ID && f[5][0] == '/')
		h->home(f[5], h->arg);
}

int users_each_home(int root_fd, void (*home)(const char *path, void *arg), void *arg)
{
	OWN_BUF t = BUF_INIT(ACCOUNTS_MAX);
	struct homes h = { home, arg };
	int r = place_read(root_fd, "etc/passwd", &t);

	if (r == 0)
		each_row(t.data, 6, home_row, &h);
	return r;
}

static const char *best_shell(int root_fd, int usr_fd)
{
	static const char *const paths[] = { "usr/bin/bash", "bin/bash" };

	for (size_t i = 0; i < 2; i++) {
		if (faccessat(root_fd, paths[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
		    faccessat(usr_fd, paths[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return "/bin/bash";
	}
	return "/bin/sh";
}

struct skel {
	struct build *b;
	int to[16];
	unsigned n;
};

static int skel_entry(const struct tree_entry *t, void *arg)
{
	struct skel *s = arg;
	int to = t->depth ? s->to[t->depth - 1] : s->to[0];
	unsigned mode = t->st->stx_mode & 0777;
	char target[PATH_MAX];
	OWN_BUF text = BUF_INIT(1u << 20);
	ssize_t k;
	int r = 0;

	if (t->depth == 0)
		return t->mount ? 1 : 0;
	if (t->mount)
		return 1;
	if (S_ISDIR(t->st->stx_mode)) {
		if (t->depth >= 15)
			return 1;
		r = place_dir(s->b, to, t->name, mode, AGENT_ID, AGENT_ID);
		if (r < 0)
			return r;
		s->to[t->depth] = tree_open(to, t->name, O_RDONLY | O_DIRECTORY);
		return s->to[t->depth] < 0 ? s->to[t->depth] : 0;
	}
	if (S_ISLNK(t->st->stx_mode)) {
		k = readlinkat(t->dir_fd, t->name, target, sizeof(target) - 1);
		if (k < 0)
			return 0;
		target[k] = '\0';
		return place_link(s->b, to, t->name, target, AGENT_ID, AGENT_ID);
	}
	if (S_ISREG(t->st->stx_mode) && place_read(t->dir_fd, t->name, &text) == 0)
		r = place_file(s->b, to, t->name, mode, AGENT_ID, AGENT_ID, text.data ? text.data : "", text.len);
	return r;
}

static int skel_leave(unsigned depth, void *arg)
{
	struct skel *s = arg;

	if (depth > 0)
		fd_close(&s->to[depth]);
	return 0;
}

/* /home/agent from the root's own /etc/skel, which holds nothing but what was let in. */
static int make_home(struct build *b, struct err *e)
{
	struct skel s = { .b = b, .to = { FD_NONE } };
	struct tree_visit v = { .entry = skel_entry, .leave = skel_leave, .arg = &s };
	int r;

	for (unsigned i = 0; i < 16; i++)
		s.to[i] = FD_NONE;
	if (faccessat(b->root_fd, "home", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = place_dir(b, b->root_fd, "home", 0755, 0, 0);
		if (r < 0)
			return err_set(e, r, "cannot make /home of the template");
	}
	r = place_dir(b, b->root_fd, "home/agent", 0755, AGENT_ID, AGENT_ID);
	if (r < 0)
		return err_set(e, r, "cannot make /home/agent of the template");
	s.to[0] = tree_open(b->root_fd, "home/agent", O_RDONLY | O_DIRECTORY);
	if (s.to[0] < 0)
		return err_set(e, s.to[0], "cannot open /home/agent of the template");
	r = tree_walk(b->root_fd, "etc/skel", &v, NULL);
	for (unsigned i = 0; i < 16; i++)
		fd_close(&s.to[i]);
	if (r < 0 && r != -ENOENT && r != -EEXIST)
		return err_set(e, r, "cannot fill /home/agent of the template from /etc/skel");
	return 0;
}

static bool has_sudo(int root_fd)
{
	return faccessat(root_fd, "usr/bin/sudo", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	       faccessat(root_fd, "bin/sudo", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const char sudo_rule[] = "# The box is agent's own.\nagent ALL=(ALL:ALL) NOPASSWD: ALL\n";

static int put(struct build *b, const char *path, unsigned mode, uint32_t gid, const struct buf *text, struct err *e)
{
	int r = buf_error(text);

	if (r == 0)
		r = place_file(b, b->root_fd, path, mode, 0, gid, text->data ? text->data : "", text->len);
	return r < 0 ? err_set(e, r, "cannot write /%s of the template", path) : 0;
}

int users_from_host(struct build *b, int host_fd, struct err *e)
{
	OWN_BUF passwd = BUF_INIT(ACCOUNTS_MAX);
	OWN_BUF group = BUF_INIT(ACCOUNTS_MAX);
	struct accounts a = { BUF_INIT(ACCOUNTS_MAX), BUF_INIT(ACCOUNTS_MAX), BUF_INIT(ACCOUNTS_MAX),
			      BUF_INIT(ACCOUNTS_MAX), BUF_INIT(ACCOUNTS_MAX), false, false };
	uint32_t shadow_gid;
	int r;

	r = place_read(host_fd, "etc/passwd", &passwd);
	if (r < 0)
		return err_set(e, r, "cannot read the accounts of the host (/etc/passwd)");
	r = place_read(host_fd, "etc/group", &group);
	if (r < 0 && r != -ENOENT)
		return err_set(e, r, "cannot read the groups of the host (/etc/group)");
	shadow_gid = users_group_id(host_fd, "shadow", 0);

	(void)buf_puts(&a.names, "\n");
	each_row(passwd.data, 7, passwd_row, &a);
	if (!a.root) {
		(void)buf_puts(&a.passwd, "root:x:0:0:root:/root:/bin/sh\n");
		(void)buf_puts(&a.shadow, "root:*:19000:0:99999:7:::\n");
	}
	(void)buf_printf(&a.passwd, "agent:x:%u:%u:agent:/home/agent:%s\n", AGENT_ID, AGENT_ID, best_shell(host_fd, host_fd));
	(void)buf_puts(&a.shadow, "agent:!:19000:0:99999:7:::\n");
	each_row(group.data, 4, group_row, &a);
	(void)buf_printf(&a.group, "agent:x:%u:\n", AGENT_ID);
	(void)buf_puts(&a.gshadow, "agent:!::\n");

	r = put(b, "etc/passwd", 0644, 0, &a.passwd, e);
	if (r == 0)
		r = put(b, "etc/group", 0644, 0, &a.group, e);
	if (r == 0)
		r = put(b, "etc/shadow", 0640, shadow_gid, &a.shadow, e);
	if (r == 0)
		r = put(b, "etc/gshadow", 0640, shadow_gid, &a.gshadow, e);
	if (r == 0 && has_sudo(host_fd)) {
		static const char sudoers[] =
			"Defaults\tenv_reset\nDefaults\tsecure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
			"root\tALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n";

		r = place_file(b, b->root_fd, "etc/sudoers", 0440, 0, 0, sudoers, sizeof(sudoers) - 1);
		if (r == 0)
			r = place_dir(b, b->root_fd, "etc/sudoers.d", 0755, 0, 0);
		if (r == 0)
			r = place_file(b, b->root_fd, "etc/sudoers.d/agent", 0440, 0, 0, sudo_rule, sizeof(sudo_rule) - 1);
		if (r < 0)
			(void)err_set(e, r, "cannot write the sudo rule of the template");
	}
	if (r == 0)
		r = make_home(b, e);
	buf_done(&a.passwd);
	buf_done(&a.shadow);
	buf_done(&a.group);
	buf_done(&a.gshadow);
	buf_done(&a.names);
	return r;
}

struct taken {
	bool uid, gid, name;
};

static void taken_row(char **f, void *arg)
{
	struct taken *t = arg;
	uint64_t id;

	t->name = t->name || strcmp(f[0], "agent") == 0;
	t->uid = t->uid || (parse_u64(f[2], UINT32_MAX, &id) == 0 && id == AGENT_ID);
}

static void taken_group_row(char **f, void *arg)
{
	struct taken *t = arg;
	uint64_t id;

	t->gid = t->gid || strcmp(f[0], "agent") == 0 || (parse_u64(f[2], UINT32_MAX, &id) == 0 && id == AGENT_ID);
}

/* Append to a file of the template, which may come from an image: no link is followed. 0 also when it isn't there. */
static int append(struct build *b, const char *path, const char *line)
{
	OWN_FD fd = tree_open(b->root_fd, path, O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	char last = '\n';

	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1)
		return -EIO;
	if (last != '\n' && write(fd, "\n", 1) != 1)
		return -EIO;
	return fd_write_all(fd, line, strlen(line));
}

int users_add_agent(struct build *b, bool want_sudo, struct err *e)
{
	OWN_BUF passwd = BUF_INIT(ACCOUNTS_MAX);
	OWN_BUF group = BUF_INIT(ACCOUNTS_MAX);
	struct taken t = { 0 };
	char line[160];
	int r = place_read(b->root_fd, "etc/passwd", &passwd);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_set(e, r, "cannot read /etc/passwd of the template");
	each_row(passwd.data, 4, taken_row, &t);
	if (t.uid || t.name)
		return 0;
	if (place_read(b->root_fd, "etc/group", &group) == 0)
		each_row(group.data, 3, taken_group_row, &t);
	(void)snprintf(line, sizeof(line), "agent:x:%u:%u:agent:/home/agent:%s\n", AGENT_ID, AGENT_ID,
		       best_shell(b->root_fd, b->root_fd));
	r = append(b, "etc/passwd", line);
	if (r == 0)
		r = append(b, "etc/shadow", "agent:!:19000:0:99999:7:::\n");
	if (r == 0 && !t.gid) {
		(void)snprintf(line, sizeof(line), "agent:x:%u:\n", AGENT_ID);
		r = append(b, "etc/group", line);
		if (r == 0)
			r = append(b, "etc/gshadow", "agent:!::\n");
	}
	if (r < 0)
		return err_set(e, r, "cannot add the user 'agent' to the template");
	if (want_sudo && has_sudo(b->root_fd)) {
		r = place_dir(b, b->root_fd, "etc/sudoers.d", 0755, 0, 0);
		if (r == 0)
			r = place_file(b, b->root_fd, "etc/sudoers.d/agent", 0440, 0, 0, sudo_rule, sizeof(sudo_rule) - 1);
		if (r < 0 && r != -EEXIST)
			return err_set(e, r, "cannot write the sudo rule of the template");
	}
	return make_home(b, e);
}
