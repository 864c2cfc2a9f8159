/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The template "host": the machine's own tools and none of its secrets.
 *
 * "/" is a skeleton made here: empty usual directories, /etc by an allow-list, accounts written anew. The other parts are
 * directories of the host itself, seen through an overlay whose topmost layer is a mask: a whiteout (character device
 * 0:0) for everything that others may not read, since the root of a box owns what the host's root owns. What is mounted
 * on something below a part is hidden as well, and so is what the mount covers.
 */
#include "store/build.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/tree.h"

#define MASK_DEPTH 96		/* what lies deeper in a part is hidden */
#define MASK_MAX 200000u	/* hidden things of one part; more are an error */
#define MASK_MS 60000u
#define ETC_DEPTH 16
#define RULES_VERSION 2u	/* count on when what is let in or hidden changes: then every older template is stale */

/* Names below /etc that are let in: the path of a file, or of a directory with all of its readable content. */
static const char *const etc_rules[] = {
	"alternatives", "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls", "pki/ca-trust", "ca-certificates",
	"ca-certificates.conf", "ca-certificates.conf.d", "crypto-policies", "ld.so.*", "ld-musl-*", "default/locale",
	"default/keyboard", "default/useradd", "locale*", "localtime", "timezone", "nsswitch.conf", "host.conf", "protocols",
	"services", "rpc", "networks", "ethertypes", "mime.types", "magic*", "mailcap*", "terminfo", "skel", "profile", "profile.d",
	"bash.bashrc", "bashrc", "bash_completion*", "inputrc", "zsh", "fish", "csh*", "*-release", "debian_version", "issue*",
	"lsb-release", "python*", "perl", "java*", "maven", "gradle", "emacs", "vim", "nanorc", "lynx", "apt/apt.conf",
	"apt/apt.conf.d", "apt/sources.list", "apt/sources.list.d", "apt/preferences", "apt/preferences.d",
	"apt/trusted.gpg*", "apt/keyrings", "dpkg", "debconf.conf", "pam.conf", "pam.d", "login.defs", "security",
	"sudo.conf", "shells", "gai.conf", "fonts", "libnl*", "groff", "man_db.conf", "manpath.config", "papersize",
	"xdg", "xml", "sgml", "texmf", "ghc", "erlang", "php", "ruby*", "lua", "R", "julia", "OpenCL", "glvnd", "vulkan",
	"openmpi", "gtk-*", "gss/mech.d", "gprofng.rc", "gdb", "mke2fs.conf", "netconfig", "wgetrc", "screenrc", "tmux.conf",
	"npmrc", "pip.conf", "gitconfig", "fpc*", "gnucobol", "ImageMagick*", "adduser.conf", "deluser.conf", "bindresvport.blacklist",
	"sysctl.conf", "environment.d", "ucf.conf", "update-motd.d", "X11/app-defaults", "X11/fonts", "kernel-img.conf",
	"dnf", "yum.repos.d", "rpm", "pacman.d", "pacman.conf", "apk/repositories", "apk/keys", "apk/arch", "zypp/repos.d",
};

static const struct skeleton {
	const char *path;
	unsigned mode;
	const char *group;	/* NULL: root */
} skeleton[] = {
	{ "etc", 0755, NULL }, { "dev", 0755, NULL }, { "proc", 0555, NULL }, { "sys", 0555, NULL }, { "run", 0755, NULL },
	{ "run/lock", 01777, NULL }, { "tmp", 01777, NULL }, { "root", 0700, NULL }, { "home", 0755, NULL }, { "mnt", 0755, NULL },
	{ "media", 0755, NULL }, { "srv", 0755, NULL }, { "boot", 0755, NULL }, { "opt", 0755, NULL }, { "usr", 0755, NULL },
	{ "var", 0755, NULL }, { "var/tmp", 01777, NULL }, { "var/log", 0755, NULL }, { "var/log/apt", 0755, NULL },
	{ "var/cache", 0755, NULL }, { "var/cache/apt", 0755, NULL }, { "var/cache/apt/archives", 0755, NULL },
	{ "var/cache/apt/archives/partial", 0755, NULL }, { "var/cache/debconf", 0755, NULL }, { "var/cache/ldconfig", 0700, NULL },
	{ "var/cache/man", 0755, NULL }, { "var/lib", 0755, NULL }, { "var/lib/apt", 0755, NULL }, { "var/lib/apt/lists", 0755, NULL },
	{ "var/lib/apt/lists/partial", 0755, NULL }, { "var/lib/apt/periodic", 0755, NULL }, { "var/lib/dpkg", 0755, NULL },
	{ "var/lib/misc", 0755, NULL }, { "var/lib/pam", 0755, NULL }, { "var/lib/ucf", 0755, NULL }, { "var/lib/python", 0755, NULL },
	{ "var/mail", 02775, "mail" }, { "var/spool", 0755, NULL }, { "var/local", 02775, "staff" }, { "var/opt", 0755, NULL },
	{ "var/backups", 0755, NULL },
};

static int64_t stx_ns(struct statx_timestamp t)
{
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stamp_add(uint64_t *h, int dir_fd, const char *path)
{
	struct statx st;
	uint64_t v[6];

	if (statx(dir_fd, path, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &st) < 0)
		memset(&st, 0, sizeof(st));
	v[0] = (uint64_t)stx_ns(st.stx_mtime);
	v[1] = (uint64_t)stx_ns(st.stx_ctime);
	v[2] = S_ISDIR(st.stx_mode) ? 0 : st.stx_size;
	v[3] = st.stx_ino;
	v[4] = st.stx_mode;
	v[5] = (uint64_t)st.stx_uid << 32 | st.stx_gid;
	/* FNV-1a, by words: this tells "changed", it keeps nobody out. */
	for (size_t i = 0; i < 6; i++)
		*h = (*h ^ v[i]) * 0x100000001b3u + (*h >> 29);
}

/* The things in /etc that are copied, the databases of packages, and the directories that programs are put into. */
uint64_t host_stamp(int host_fd)
{
	static const char *const others[] = {
		"etc/passwd", "etc/group", "usr", "usr/bin", "usr/sbin", "usr/lib", "usr/local", "usr/local/bin", "usr/local/lib",
		"usr/local/etc", "opt", "var/lib/dpkg/status", "var/lib/rpm", "usr/lib/sysimage/rpm", "var/lib/pacman/local",
		"lib/apk/db/installed", "bin", "sbin", "lib", "lib32", "lib64",
	};
	uint64_t h = 0xcbf29ce484222325u + RULES_VERSION;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		stamp_add(&h, host_fd, others[i]);
	for (size_t i = 0; i < sizeof(etc_rules) / sizeof(etc_rules[0]); i++) {
		char path[128];

		if (strpbrk(etc_rules[i], "*?["))
			continue;
		(void)snprintf(path, sizeof(path), "etc/%s", etc_rules[i]);
		stamp_add(&h, host_fd, path);
	}
	return h ? h : 1;
}

/* Where a walk is: the names from its start. */
struct trail {
	char path[PATH_MAX];	/* relative to the start, "" for itself */
	size_t ends[MASK_DEPTH + 1];	/* ends[d]: length of the path at depth d */
};

/* False when it gets too long or too deep. */
static bool trail_set(struct trail *t, unsigned depth, const char *name)
{
	size_t at, n = strlen(name);

	if (depth == 0) {
		t->ends[0] = 0;
		t->path[0] = '\0';
		return true;
	}
	if (depth > MASK_DEPTH)
		return false;
	at = t->ends[depth - 1];
	if (at + n + 2 > sizeof(t->path))
		return false;
	if (at)
		t->path[at++] = '/';
	memcpy(t->path + at, name, n + 1);
	t->ends[depth] = at + n;
	return true;
}

/* /etc */

struct etc {
	struct build *b;
	struct trail trail;
	int to[ETC_DEPTH + 1];	/* the directory being made at each depth */
	bool whole[ETC_DEPTH + 1]; /* it is let in with all of its content */
	unsigned files, left_out;
	struct err *e;
};

enum let { LET_OUT, LET_PASS, LET_IN };

/* LET_PASS: a directory on the way to something that is let in. */
static enum let etc_let(const char *path)
{
	enum let best = LET_OUT;
	size_t n = strlen(path);

	for (size_t i = 0; i < sizeof(etc_rules) / sizeof(etc_rules[0]); i++) {
		if (fnmatch(etc_rules[i], path, FNM_PATHNAME) == 0)
			return LET_IN;
		if (strncmp(etc_rules[i], path, n) == 0 && etc_rules[i][n] == '/')
			best = LET_PASS;
	}
	return best;
}

static int etc_failed(struct etc *c, int r)
{
	return r < 0 ? err_set(c->e, r, "cannot make /etc/%s of the template", c->trail.path) : r;
}

/*
 * Names of hosts are asked of the box's own resolver. What else a host may have (mdns, resolve, a directory service) talks to a
 * daemon that a box doesn't have, or ends the search before it comes to dns (nsswitch.conf(5)).
 */
static int hosts_by_dns(struct buf *text)
{
	static const char own[] = "hosts:          files dns\n";
	OWN_BUF out = BUF_INIT(FILE_SMALL_MAX);

	for (const char *p = text->data ? text->data : ""; *p;) {
		const char *end = strchrnul(p, '\n');

		if (strncmp(p + strspn(p, " \t"), "hosts:", 6) == 0)
			(void)buf_puts(&out, own);
		else
			(void)buf_put(&out, p, (size_t)(end - p) + (*end ? 1 : 0));
		p = *end ? end + 1 : end;
	}
	if (buf_error(&out))
		return buf_error(&out);
	buf_reset(text);
	return out.len ? buf_put(text, out.data, out.len) : 0;
}

static int etc_file(struct etc *c, const struct tree_entry *t, int to, uint32_t uid, uint32_t gid)
{
	OWN_BUF text = BUF_INIT(FILE_SMALL_MAX);
	int r;

	if (!(t->st->stx_mode & S_IROTH) || secret_name(t->name)) {
		c->left_out++;
		return 0;
	}
	r = place_read(t->dir_fd, t->name, &text);
	if (r == 0)
		r = secret_filter(c->trail.path, &text);
	if (r == 0 && strcmp(c->trail.path, "nsswitch.conf") == 0)
		r = hosts_by_dns(&text);
	if (r < 0) {
		build_log(c->b, "left out: /etc/%s (%s)", c->trail.path, r == -EPERM ? "it holds a secret" : strerror(-r));
		c->left_out++;
		return 0;
	}
	c->files++;
	return etc_failed(c, place_file(c->b, to, t->name, t->st->stx_mode & 0755, uid, gid, text.data ? text.data : "", text.len));
}

static int etc_entry(const struct tree_entry *t, void *arg)
{
	struct etc *c = arg;
	uint32_t uid = t->st->stx_uid < 1000 ? t->st->stx_uid : 0, gid = t->st->stx_gid < 1000 ? t->st->stx_gid : 0;
	char target[PATH_MAX];
	enum let let;
	int to, r;
	ssize_t k;

	if (t->depth > ETC_DEPTH || !trail_set(&c->trail, t->depth, t->name))
		return 1;
	if (t->depth == 0)
		return 0;
	to = c->to[t->depth - 1];
	let = c->whole[t->depth - 1] ? LET_IN : etc_let(c->trail.path);
	if (let == LET_OUT || t->mount)
		return 1;
	if (S_ISDIR(t->st->stx_mode)) {
		if ((t->st->stx_mode & 05) != 05 || strcmp(t->name, "private") == 0 || t->depth == ETC_DEPTH) {
			c->left_out++;
			return 1;
		}
		r = place_dir(c->b, to, t->name, 0755, uid, gid);
		if (r < 0)
			return etc_failed(c, r);
		c->to[t->depth] = tree_open(to, t->name, O_RDONLY | O_DIRECTORY);
		c->whole[t->depth] = let == LET_IN;
		return c->to[t->depth] < 0 ? etc_failed(c, c->to[t->depth]) : 0;
	}
	if (let != LET_IN)
		return 0;
	if (S_ISREG(t->st->stx_mode))
		return etc_file(c, t, to, uid, gid);
	if (!S_ISLNK(t->st->stx_mode))
		return 0;
	/* The link, never what it leads to: that is either visible in the box anyway, or not for it. */
	k = readlinkat(t->dir_fd, t->name, target, sizeof(target) - 1);
	if (k < 0)
		return 0;
	target[k] = '\0';
	c->files++;
	return etc_failed(c, place_link(c->b, to, t->name, target, uid, gid));
}

static int etc_leave(unsigned depth, void *arg)
{
	struct etc *c = arg;

	if (depth > 0 && depth <= ETC_DEPTH)
		fd_close(&c->to[depth]);
	return 0;
}

static int etc_copy(struct build *b, struct err *e)
{
	struct etc c = { .b = b, .e = e };
	struct tree_visit v = { .entry = etc_entry, .leave = etc_leave, .arg = &c, .max_ms = MASK_MS };
	struct err mine = ERR_INIT;
	int r;

	for (unsigned i = 0; i <= ETC_DEPTH; i++)
		c.to[i] = FD_NONE;
	c.to[0] = tree_open(b->root_fd, "etc", O_RDONLY | O_DIRECTORY);
	if (c.to[0] < 0)
		return err_set(e, c.to[0], "cannot open /etc of the template");
	c.e = &mine;
	r = tree_walk(b->host_fd, "etc", &v, &mine);
	for (unsigned i = 0; i <= ETC_DEPTH; i++)
		fd_close(&c.to[i]);
	if (r < 0)
		return mine.code ? err_why(e, mine.why, r, "%s", mine.text) : err_set(e, r, "cannot copy /etc of the host");
	build_log(b, "/etc: %u files and links, %u left out because others may not read them or they hold secrets", c.files,
		  c.left_out);
	return 0;
}

/* What every root has and no host may give: names, hosts, identity. */
static int etc_own(struct build *b, struct err *e)
{
	static const struct { const char *path, *text; unsigned mode; } files[] = {
		{ "etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n", 0644 },
		{ "etc/resolv.conf", "", 0644 }, { "etc/machine-id", "", 0444 }, { "etc/fstab", "", 0644 },
		{ "etc/environment", "", 0644 }, { "etc/subuid", "", 0644 }, { "etc/subgid", "", 0644 }, { "etc/hostname", "box\n", 0644 },
	};
	int r;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		r = place_file(b, b->root_fd, files[i].path, files[i].mode, 0, 0, files[i].text, strlen(files[i].text));
		if (r < 0)
			return err_set(e, r, "cannot write /%s of the template", files[i].path);
	}
	r = place_link(b, b->root_fd, "etc/mtab", "../proc/self/mounts", 0, 0);
	return r < 0 ? err_set(e, r, "cannot write /etc/mtab of the template") : 0;
}

/* Parts of the host */

struct homes_list {
	char *paths[256];
	unsigned n;
};

static void home_note(const char *path, void *arg)
{
	struct homes_list *h = arg;

	if (h->n < 256) {
		h->paths[h->n] = strdup(path);
		h->n += h->paths[h->n] != NULL;
	}
}

struct mask {
	struct build *b;
	const char *at;		/* where the part is, "/usr" */
	struct trail trail;
	struct statx dirs[MASK_DEPTH + 1];	/* owner and mode of the directories on the way */
	unsigned made;		/* directories of the way that are in the mask already, the part's own included */
	int fd;			/* mask/N, FD_NONE before the first hidden thing */
	char name[16];		/* "mask/N" */
	const struct homes_list *homes;
	uint64_t seen;
	unsigned hidden;
	struct err *e;
};

static int mask_failed(struct mask *m, int r)
{
	return r < 0 ? err_set(m->e, r, "cannot hide %s/%s in the template", m->at, m->trail.path) : r;
}

/* A directory of the mask stands for the one below it in the overlay: it shows its own owner and mode. */
static int mask_dirs(struct mask *m, unsigned depth)
{
	int r;

	if (m->fd == FD_NONE) {
		r = place_dir(m->b, m->b->dir_fd, "mask", 0755, 0, 0);
		if (r == 0)
			r = place_dir(m->b, m->b->dir_fd, m->name, m->dirs[0].stx_mode & 07777, m->dirs[0].stx_uid, m->dirs[0].stx_gid);
		if (r < 0)
			return r;
		m->fd = tree_open(m->b->dir_fd, m->name, O_RDONLY | O_DIRECTORY);
		if (m->fd < 0)
			return m->fd;
		m->made = 1;
	}
	for (; m->made < depth; m->made++) {
		const struct statx *st = &m->dirs[m->made];
		char *end = m->trail.path + m->trail.ends[m->made], kept = *end;

		*end = '\0';
		r = place_dir(m->b, m->fd, m->trail.path, st->stx_mode & 07777, st->stx_uid, st->stx_gid);
		*end = kept;
		if (r < 0)
			return r;
	}
	return 0;
}

static int mask_hide(struct mask *m, const struct tree_entry *t, const char *why)
{
	OWN_FD parent = FD_NONE;
	int r;

	if (++m->hidden > MASK_MAX)
		return err_why(m->e, WHY_LIMIT, -E2BIG, "more than %u things in %s may not be read by others", MASK_MAX, m->at);
	build_log(m->b, "hidden: %s/%s (%s)", m->at, m->trail.path, why);
	r = mask_dirs(m, t->depth);
	if (r < 0)
		return mask_failed(m, r);
	if (t->depth > 1) {
		char *end = m->trail.path + m->trail.ends[t->depth - 1];

		*end = '\0';
		parent = tree_open(m->fd, m->trail.path, O_RDONLY | O_DIRECTORY);
		*end = '/';
		if (parent < 0)
			return mask_failed(m, parent);
	}
	if (mknodat(parent == FD_NONE ? m->fd : parent, t->name, S_IFCHR | 0600, makedev(0, 0)) < 0)
		return mask_failed(m, -errno);
	return 1;
}

static bool is_home(const struct mask *m)
{
	size_t n = strlen(m->at);

	for (unsigned i = 0; i < m->homes->n; i++)
		if (strncmp(m->homes->paths[i], m->at, n) == 0 && m->homes->paths[i][n] == '/' &&
		    strcmp(m->homes->paths[i] + n + 1, m->trail.path) == 0)
			return true;
	return false;
}

/* Settings of package managers that everybody may read and that hold a token all the same. */
static bool holds_token(const struct tree_entry *t)
{
	static const char *const names[] = { ".npmrc", "npmrc", "pip.conf", "gitconfig", ".gitconfig" };
	OWN_BUF text = BUF_INIT(256u * 1024);
	bool listed = false;
	size_t before;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		listed = listed || strcmp(t->name, names[i]) == 0;
	if (!listed)
		return false;
	if (place_read(t->dir_fd, t->name, &text) < 0)
		return true;
	before = text.len;
	/* A login inside an address counts: the file is the host's, so it can't be taken out here. */
	return secret_filter(t->name[0] == '.' ? t->name + 1 : t->name, &text) < 0 || text.len != before;
}

/* secret_name() is for /etc; in a tree of programs "*.key" and the like are test data by the thousand. */
static bool token_name(const char *name)
{
	static const char *const names[] = { ".netrc", ".pypirc", ".git-credentials", ".htpasswd", "id_rsa", "id_dsa",
					     "id_ecdsa", "id_ed25519" };

	if (name[0] != '.' && name[0] != 'i')
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int mask_entry(const struct tree_entry *t, void *arg)
{
	struct mask *m = arg;
	unsigned mode = t->st->stx_mode;

	m->seen++;
	if (m->seen % 8192 == 0)
		build_at(m->b, "looking through %s, %llu files", m->at, (unsigned long long)m->seen);
	if (!trail_set(&m->trail, t->depth, t->name))
		return err_why(m->e, WHY_LIMIT, -ENAMETOOLONG, "a path in %s is too long or too deep", m->at);
	if (m->made > t->depth)
		m->made = t->depth ? t->depth : m->made;
	if (t->depth == 0) {
		m->dirs[0] = *t->st;
		return 0;
	}
	if (t->mount)
		return mask_hide(m, t, "something is mounted on it");
	if (S_ISDIR(mode)) {
		if ((mode & 05) != 05)
			return mask_hide(m, t, "others may not read it");
		if (is_home(m))
			return mask_hide(m, t, "it is somebody's home");
		if (t->depth >= MASK_DEPTH)
			return mask_hide(m, t, "too deep");
		m->dirs[t->depth] = *t->st;
		return 0;
	}
	if (S_ISREG(mode)) {
		if (!(mode & S_IROTH))
			return mask_hide(m, t, "others may not read it");
		if (token_name(t->name) || holds_token(t))
			return mask_hide(m, t, "it is for tokens");
		return 0;
	}
	return S_ISLNK(mode) ? 0 : mask_hide(m, t, "neither a file nor a directory");
}

static int mask_closed(const struct tree_entry *t, int code, void *arg)
{
	int r = mask_hide(arg, t, "it can't be opened");

	return r < 0 ? r : 0;
}

static int part_add(struct build *b, unsigned index, const char *at, const struct homes_list *homes, struct err *e)
{
	struct mask *m = calloc(1, sizeof(*m));
	struct tree_visit v = { .entry = mask_entry, .closed = mask_closed, .arg = m, .max_ms = MASK_MS };
	struct json_out o;
	struct err mine = ERR_INIT;
	char host[PATH_MAX];
	struct stat st;
	int r;

	if (!m)
		return err_set(e, -ENOMEM, "cannot look through %s", at);
	*m = (struct mask){ .b = b, .at = at, .fd = FD_NONE, .homes = homes, .e = &mine };
	(void)snprintf(m->name, sizeof(m->name), "mask/%u", index);
	build_at(b, "looking through %s", at);
	r = tree_walk(b->host_fd, at + 1, &v, &mine);
	fd_close(&m->fd);
	if (r < 0) {
		r = mine.code ? err_why(e, mine.why, r, "%s", mine.text) : err_set(e, r, "cannot look through %s of the host", at);
	} else if (fstatat(b->host_fd, at + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & 05) == 05) {
		build_log(b, "%s: %llu things, %u hidden", at, (unsigned long long)m->seen, m->hidden);
		(void)snprintf(host, sizeof(host), "%s%s", b->host_root, at);
		(void)buf_putc(&b->parts, ',');
		json_out_init(&o, &b->parts);
		json_put_obj(&o, NULL);
		json_put_str(&o, "at", at);
		json_put_bool(&o, "idmap", true);
		json_put_arr(&o, "layers");
		if (m->hidden)
			json_put_str(&o, NULL, m->name);
		json_put_str(&o, NULL, host);
		json_end_arr(&o);
		json_end_obj(&o);
	} else {
		build_log(b, "%s is left out: others may not read it", at);
	}
	free(m);
	return r;
}

/* /bin, /lib and so on: links into /usr as the host has them, else parts of their own. */
static int roots_add(struct build *b, unsigned *index, const struct homes_list *homes, struct err *e)
{
	static const char *const roots[] = { "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32" };

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		const char *name = roots[i] + 1;
		char target[256];
		struct stat st;
		ssize_t k;
		int r = 0;

		if (fstatat(b->host_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode)) {
			r = place_dir(b, b->root_fd, name, 0755, 0, 0);
			if (r == 0) {
				r = part_add(b, (*index)++, roots[i], homes, e);
				if (r < 0)
					return r;
			}
		} else if (S_ISLNK(st.st_mode)) {
			k = readlinkat(b->host_fd, name, target, sizeof(target) - 1);
			target[k > 0 ? k : 0] = '\0';
			if (strncmp(target[0] == '/' ? target + 1 : target, "usr/", 4) == 0)
				r = place_link(b, b->root_fd, name, target, 0, 0);
		}
		if (r < 0)
			return err_set(e, r, "cannot make %s of the template", roots[i]);
	}
	return 0;
}

static int skeleton_make(struct build *b, struct err *e)
{
	struct stat st;
	int r;

	for (size_t i = 0; i < sizeof(skeleton) / sizeof(skeleton[0]); i++) {
		uint32_t gid = skeleton[i].group ? users_group_id(b->host_fd, skeleton[i].group, 0) : 0;

		r = place_dir(b, b->root_fd, skeleton[i].path, skeleton[i].mode, 0, gid);
		if (r < 0)
			return err_set(e, r, "cannot make /%s of the template", skeleton[i].path);
	}
	r = place_link(b, b->root_fd, "var/run", "/run", 0, 0);
	if (r == 0)
		r = place_link(b, b->root_fd, "var/lock", "/run/lock", 0, 0);
	if (r < 0)
		return err_set(e, r, "cannot make /var of the template");
	if (fstatat(b->host_fd, "var/lib/dpkg/status", &st, AT_SYMLINK_NOFOLLOW) < 0)
		(void)unlinkat(b->root_fd, "var/lib/dpkg", AT_REMOVEDIR);
	return 0;
}

int host_build(struct build *b, struct err *e)
{
	static const char *const own[] = { "/usr", "/opt", "/var/lib/dpkg" };
	struct homes_list homes = { .n = 0 };
	unsigned index = 1;
	struct stat st;
	int r;

	/* Taken first: what changes during the build makes the result old, not new. */
	b->stamp = host_stamp(b->host_fd);
	build_at(b, "making the skeleton");
	r = skeleton_make(b, e);
	if (r == 0)
		r = etc_copy(b, e);
	if (r == 0)
		r = etc_own(b, e);
	if (r == 0)
		r = users_from_host(b, b->host_fd, e);
	if (r == 0)
		(void)users_each_home(b->host_fd, home_note, &homes);
	for (size_t i = 0; r == 0 && i < sizeof(own) / sizeof(own[0]); i++)
		if (fstatat(b->host_fd, own[i] + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
			r = part_add(b, index++, own[i], &homes, e);
	if (r == 0)
		r = roots_add(b, &index, &homes, e);
	for (unsigned i = 0; i < homes.n; i++)
		free(homes.paths[i]);
	return r;
}
