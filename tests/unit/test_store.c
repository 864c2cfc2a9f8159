/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "lib/leak.h"
#include "store/build.h"
#include "store/template.h"
#include "store/tree.h"

/* Every build of these tests ends within this. */
#define PATIENCE_MS 20000

static int top_fd = FD_NONE;
static struct template_store *store;

static void path_in(const char *name, char *ret, size_t n)
{
	(void)snprintf(ret, n, "%s/%s", leak_dir(), name);
}

static int start(void **state)
{
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	int r = leak_mark(state);

	if (r)
		return r;
	assert_non_null(leak_dir());
	(void)umask(022);
	memset(&unpack_limits, 0, sizeof(unpack_limits));
	top_fd = open(leak_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(top_fd >= 0);
	assert_int_equal(mkdirat(top_fd, "state", 0700), 0);
	path_in("state", path, sizeof(path));
	r = template_store_open(path, TEMPLATE_IDS_CANONICAL, &store, &e);
	if (r < 0)
		fail_msg("%s", e.text);
	return 0;
}

static int end(void **state)
{
	template_store_free(store);
	store = NULL;
	fd_close(&top_fd);
	(void)leak_dir_clear();
	return leak_check(state);
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip_because("owners and masks of a template need root");
}

static void put(const char *path, unsigned mode, const char *text)
{
	OWN_FD fd = openat(top_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		fail_msg("cannot make %s: %s", path, strerror(errno));
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void dirs(const char *const *paths)
{
	for (; *paths; paths++)
		if (mkdirat(top_fd, *paths, 0755) < 0)
			fail_msg("cannot make %s: %s", *paths, strerror(errno));
}

static bool there(const char *path)
{
	struct stat st;

	return fstatat(top_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void read_text(const char *path, char *ret, size_t n)
{
	ssize_t k = file_read_small(top_fd, path, ret, n);

	if (k < 0)
		fail_msg("cannot read %s: %s", path, strerror((int)-k));
}

/* Wait for the end of a build and publish it. */
static int finish(struct template_build *b, struct err *e)
{
	struct pollfd p = { .fd = b->pidfd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	return template_build_finish(store, b, e);
}

static int build(const char *name, const char *source, int from_fd, const struct template_who *who, struct err *e)
{
	struct template_build b;
	int r = template_build_start(store, name, source, from_fd, who, PATIENCE_MS, &b, e);

	return r < 0 ? r : finish(&b, e);
}

/* Nothing is in building/ but what a failed build may leave. */
static void only_failed_left(const char *name)
{
	struct dirent *de;
	char path[PATH_MAX], failed[128];
	DIR *d;

	path_in("state/building", path, sizeof(path));
	(void)snprintf(failed, sizeof(failed), "%s.failed", name);
	d = opendir(path);
	assert_non_null(d);
	while ((de = readdir(d)) != NULL)
		if (de->d_name[0] != '.')
			assert_string_equal(de->d_name, failed);
	(void)closedir(d);
}

static unsigned listed(const char *name, const char *as)
{
	OWN_BUF b = BUF_INIT(1u << 20);
	OWN_JSON doc = { 0 };
	struct json_out o;
	unsigned n = 0;

	json_out_init(&o, &b);
	json_put_arr(&o, NULL);
	assert_int_equal(template_list(store, &o, NULL), 0);
	json_end_arr(&o);
	assert_int_equal(json_parse(b.data, b.len, &doc, NULL), 0);
	for (const struct json *j = doc.root->child; j; j = j->next)
		n += strcmp(json_str(j, "name", ""), name) == 0 && strcmp(json_str(j, "state", ""), as) == 0;
	return n;
}

/* The host */

#define SECRET "MARKER-of-a-secret"
#define TOOL "sign-of-a-tool"

static const char *const host_dirs[] = {
	"host", "host/etc", "host/etc/ssl", "host/etc/ssl/certs", "host/etc/ssl/private", "host/etc/apt", "host/etc/apt/auth.conf.d",
	"host/etc/apt/sources.list.d", "host/etc/profile.d", "host/etc/skel", "host/etc/alternatives", "host/etc/vpn", "host/etc/ssh",
	"host/etc/security", "host/etc/pam.d", "host/etc/sudoers.d", "host/etc/python3", "host/etc/python3/closed",
	"host/usr", "host/usr/bin", "host/usr/lib", "host/usr/lib/app", "host/usr/lib/app/deep", "host/usr/share",
	"host/usr/share/closed", "host/usr/local", "host/usr/local/etc", "host/usr/local/mounted", "host/usr/lib/ssl", "host/opt", "host/opt/app",
	"host/opt/person", "host/home", "host/home/person", "host/root", "host/srv", "host/mnt", "host/media", "host/run", "host/boot",
	"host/var", "host/var/lib", "host/var/lib/dpkg", "host/var/lib/other", "host/var/log", "host/var/spool", "host/var/tmp",
	"host/tmp", "host/bin", "host/lib", NULL,
};

static const struct { const char *path; unsigned mode; } secrets[] = {
	{ "host/etc/shadow", 0640 }, { "host/etc/gshadow", 0640 }, { "host/etc/sudoers", 0440 }, { "host/etc/sudoers.d/x", 0440 },
	{ "host/etc/ssl/private/key.pem", 0600 }, { "host/etc/ssl/private/open.pem", 0644 }, { "host/etc/ssl/certs/closed.pem", 0600 },
	{ "host/etc/ssl/certs/server.key", 0644 }, { "host/etc/apt/auth.conf", 0644 }, { "host/etc/apt/auth.conf.d/x.conf", 0644 },
	{ "host/etc/vpn/client.conf", 0644 }, { "host/etc/ssh/ssh_host_rsa_key", 0600 }, { "host/etc/ssh/sshd_config", 0644 },
	{ "host/etc/machine-id", 0444 }, { "host/etc/hostname", 0644 }, { "host/etc/resolv.conf", 0644 }, { "host/etc/environment", 0644 },
	{ "host/etc/.netrc", 0644 }, { "host/etc/security/opasswd", 0600 }, { "host/etc/python3/closed/x", 0644 },
	{ "host/etc/krb5.keytab", 0644 }, { "host/etc/my.cnf", 0644 }, { "host/etc/skel/.netrc", 0644 }, { "host/etc/fstab", 0644 },
	{ "host/usr/lib/app/secret", 0600 }, { "host/usr/lib/app/group", 0640 }, { "host/usr/lib/app/deep/secret", 0600 },
	{ "host/usr/share/closed/open", 0644 }, { "host/usr/local/etc/.netrc", 0644 }, { "host/usr/lib/app/id_rsa", 0644 },
	{ "host/opt/app/secret", 0600 }, { "host/opt/person/notes", 0644 }, { "host/home/person/notes", 0644 },
	{ "host/root/notes", 0644 }, { "host/srv/data", 0644 }, { "host/mnt/data", 0644 }, { "host/media/data", 0644 },
	{ "host/run/token", 0644 }, { "host/boot/config", 0644 }, { "host/var/lib/other/data", 0644 }, { "host/var/log/syslog", 0644 },
	{ "host/var/spool/mail", 0644 }, { "host/var/tmp/left", 0644 }, { "host/tmp/left", 0644 }, { "host/var/lib/dpkg/lock", 0640 },
	{ "host/lib/closed.so", 0600 },
};

static const struct { const char *path; unsigned mode; } tools[] = {
	{ "usr/bin/tool", 0755 }, { "usr/lib/app/data", 0644 }, { "usr/lib/app/deep/data", 0644 }, { "opt/app/run", 0755 },
	{ "var/lib/dpkg/status", 0644 }, { "bin/old", 0755 }, { "lib/old.so", 0644 }, { "etc/ssl/certs/ca.pem", 0644 },
	{ "etc/python3/settings", 0644 }, { "etc/nsswitch.conf", 0644 }, { "etc/pam.d/common-password", 0644 },
	{ "usr/local/etc/npmrc", 0644 }, { "etc/skel/.bashrc", 0644 },
};

static void make_host(void)
{
	char path[PATH_MAX];

	dirs(host_dirs);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
		put(secrets[i].path, secrets[i].mode, SECRET "\n");
	for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		(void)snprintf(path, sizeof(path), "host/%s", tools[i].path);
		put(path, tools[i].mode, TOOL "\n");
	}
	assert_int_equal(fchmodat(top_fd, "host/etc/python3/closed", 0750, 0), 0);
	assert_int_equal(fchmodat(top_fd, "host/usr/share/closed", 0700, 0), 0);
	assert_int_equal(fchmodat(top_fd, "host/etc/ssl/private", 0711, 0), 0);
	put("host/etc/passwd", 0644,
	    "root:" SECRET ":0:0:" SECRET ":/root:/bin/bash\n"
	    "toor:x:0:0::/home/toor:/bin/sh\n"
	    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
	    "web:x:33:33:web:/var/www:/usr/sbin/nologin\n"
	    "odd:x:200:200::/home/odd:/bin/sh\n"
	    "agent:x:300:300:an agent of another kind:/nowhere:/bin/sh\n"
	    "person:x:1000:1000:" SECRET ":/home/person:/bin/bash\n"
	    "second:x:1001:1001::/opt/person:/bin/bash\n"
	    "bad:x:-1:5::/:/bin/sh\nshort:x:5\n"
	    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
	put("host/etc/group", 0644,
	    "root:" SECRET ":0:\nsudo:x:27:person," SECRET "\nshadow:x:42:\nweb:x:33:person,daemon\nperson:x:1000:\nnogroup:x:65534:\n");
	put("host/usr/bin/sudo", 04755, TOOL "\n");
	put("host/usr/bin/bash", 0755, TOOL "\n");
	/* Secrets inside of files that are let in. */
	put("host/etc/apt/sources.list", 0644, "deb https://user:" SECRET "@mirror.example/debian bookworm main\n");
	put("host/etc/apt/sources.list.d/x.sources", 0644, "Types: deb\nURIs: http://me:" SECRET "@m.example/d\nSuites: x\n");
	put("host/etc/profile.d/a.sh", 0644, "if true; then\n\texport API_TOKEN=" SECRET "\nfi\nexport EDITOR=" TOOL "\n");
	put("host/etc/gitconfig", 0644, "[http]\n\textraheader = AUTHORIZATION: basic " SECRET "\n");
	put("host/etc/npmrc", 0644, "//registry.example/:_authToken=" SECRET "\n");
	put("host/etc/pip.conf", 0644, "[global]\nindex-url = https://u:" SECRET "@pypi.example/simple\n");
	put("host/usr/lib/app/.npmrc", 0644, "//registry.example/:_authToken=" SECRET "\n");
	put("host/etc/ssl/certs/both.pem", 0644, "-----BEGIN RSA PRIVATE KEY-----\n" SECRET "\n");
	/* Links: kept as links; what they lead to stays where it is. */
	assert_int_equal(symlinkat("/root/notes", top_fd, "host/etc/alternatives/out"), 0);
	assert_int_equal(symlinkat("../../vpn", top_fd, "host/etc/python3/dir"), 0);
	assert_int_equal(symlinkat("../ssh/sshd_config", top_fd, "host/etc/alternatives/in"), 0);
	assert_int_equal(symlinkat("/usr/share/zoneinfo/UTC", top_fd, "host/etc/localtime"), 0);
	assert_int_equal(symlinkat("usr/lib", top_fd, "host/lib64"), 0);
	assert_int_equal(symlinkat("home/person", top_fd, "host/sbin"), 0);
	assert_int_equal(mkfifoat(top_fd, "host/usr/lib/app/fifo", 0666), 0);
	path_in("host", path, sizeof(path));
	assert_int_equal(template_store_host_root(store, path), 0);
}

struct search {
	const char *word;
	unsigned found;
	char first[256];
};

static int search_entry(const struct tree_entry *t, void *arg)
{
	struct search *s = arg;
	char text[65536];

	if (S_ISREG(t->st->stx_mode) && file_read_small(t->dir_fd, t->name, text, sizeof(text)) > 0 && strstr(text, s->word)) {
		if (s->found++ == 0)
			(void)snprintf(s->first, sizeof(s->first), "%s", t->name);
	}
	return 0;
}

static unsigned count(int dir_fd, const char *name, const char *word, char *first)
{
	struct search s = { .word = word };
	struct tree_visit v = { .entry = search_entry, .arg = &s };
	struct err e = ERR_INIT;

	if (tree_walk(dir_fd, name, &v, &e) < 0)
		fail_msg("%s", e.text);
	if (first)
		(void)snprintf(first, 256, "%s", s.first);
	return s.found;
}

/* In a child: the root as a box would see it, put together at ./view. Exits 0 when it shows every tool and no secret. */
static int look(const struct root_part *parts, unsigned n)
{
	char at[PATH_MAX], options[PATH_MAX * 2], first[256];
	unsigned secret = 0, tool = 0;

	if (fchdir(top_fd) < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	if (mkdir("view", 0755) < 0)
		return 3;
	for (unsigned i = 0; i < n; i++) {
		(void)snprintf(at, sizeof(at), "view%s", i ? parts[i].at : "");
		if (parts[i].nlayers == 1) {
			if (mount(parts[i].layers[0], at, NULL, MS_BIND, NULL) < 0)
				return 4;
			continue;
		}
		if (parts[i].nlayers != 2)
			return 5;
		(void)snprintf(options, sizeof(options), "lowerdir=%s:%s", parts[i].layers[0], parts[i].layers[1]);
		if (mount("overlay", at, "overlay", MS_RDONLY, options) < 0)
			return errno == ENODEV ? 77 : 6;
	}
	/* A bind doesn't follow into the parts mounted in it on a walk that stays on one file system: look at each. */
	for (unsigned i = 0; i < n; i++) {
		(void)snprintf(at, sizeof(at), "view%s", i ? parts[i].at : "");
		secret += count(AT_FDCWD, at, "MARKER", first);
		tool += count(AT_FDCWD, at, TOOL, NULL);
	}
	if (secret) {
		print_message("# %u secrets are visible, one in a file called '%s'\n", secret, first);
		return 7;
	}
	for (size_t i = 0; i < sizeof(tools) / sizeof(tools[0]); i++) {
		struct stat st;

		(void)snprintf(at, sizeof(at), "view/%s", tools[i].path);
		if (lstat(at, &st) < 0 || (st.st_mode & 07777) != tools[i].mode) {
			print_message("# %s is missing or has another mode\n", tools[i].path);
			return 8;
		}
	}
	/* Its own mode shows through the mask, and so does the set-id bit of a tool. */
	{
		struct stat st;

		if (stat("view/usr/lib/app", &st) < 0 || (st.st_mode & 07777) != 0755)
			return 9;
		if (stat("view/usr/bin/sudo", &st) < 0 || (st.st_mode & 07777) != 04755)
			return 10;
	}
	return tool < sizeof(tools) / sizeof(tools[0]) ? 11 : 0;
}

static void host_shows_tools_and_no_secrets(void **state)
{
	struct root_part parts[ENGINE_PARTS_MAX];
	struct err e = ERR_INIT;
	unsigned n;
	int status;
	pid_t pid;

	need_root();
	make_host();
	/* The search finds what there is to find: one for each secret, and those in passwd, group and the mixed files. */
	assert_int_equal(count(top_fd, "host", "MARKER", NULL), sizeof(secrets) / sizeof(secrets[0]) + 2 + 8);
	if (build("host", "host", FD_NONE, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(template_parts(store, "host", parts, &n, &e), 0);
	assert_string_equal(parts[0].at, "/");
	pid = fork();
	if (pid == 0)
		_exit(look(parts, n));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	template_parts_done(parts, n);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because("no mount namespace or no overlay to look at the template");
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define ROOT "state/templates/host/root/"

static void assert_mode(const char *path, unsigned mode, uid_t uid, gid_t gid)
{
	struct stat st;

	if (fstatat(top_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_uid, uid);
	assert_int_equal(st.st_gid, gid);
}

static void host_accounts_are_the_systems(void **state)
{
	struct err e = ERR_INIT;
	char text[8192], link[64];
	ssize_t k;

	need_root();
	make_host();
	if (build("host", "host", FD_NONE, NULL, &e) < 0)
		fail_msg("%s", e.text);
	read_text(ROOT "etc/passwd", text, sizeof(text));
	assert_string_equal(text, "root:x:0:0:root:/root:/bin/bash\n"
				  "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
				  "web:x:33:33:web:/var/www:/usr/sbin/nologin\n"
				  "odd:x:200:200::/nonexistent:/bin/sh\n"
				  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
				  "agent:x:1000:1000:agent:/home/agent:/bin/bash\n");
	read_text(ROOT "etc/group", text, sizeof(text));
	assert_string_equal(text, "root:x:0:\nsudo:x:27:agent\nshadow:x:42:\nweb:x:33:daemon\nnogroup:x:65534:\nagent:x:1000:\n");
	read_text(ROOT "etc/shadow", text, sizeof(text));
	/* Locked: no field but "*" or "!" where a password would be. */
	for (char *line = text, *next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		assert_true(strstr(line, ":*:") || strstr(line, ":!:"));
	}
	assert_mode(ROOT "etc/shadow", 0640, 0, 42);
	assert_mode(ROOT "etc/sudoers", 0440, 0, 0);
	assert_mode(ROOT "etc/sudoers.d/agent", 0440, 0, 0);
	assert_mode(ROOT "root", 0700, 0, 0);
	assert_mode(ROOT "tmp", 01777, 0, 0);
	assert_mode(ROOT "home/agent", 0755, 1000, 1000);
	assert_mode(ROOT "home/agent/.bashrc", 0644, 1000, 1000);
	assert_mode("state/templates", 0700, 0, 0);
	assert_mode("state/building", 0700, 0, 0);
	/* What a filter has changed still works. */
	read_text(ROOT "etc/apt/sources.list", text, sizeof(text));
	assert_string_equal(text, "deb https://mirror.example/debian bookworm main\n");
	read_text(ROOT "etc/profile.d/a.sh", text, sizeof(text));
	assert_string_equal(text, "if true; then\n:\nfi\nexport EDITOR=" TOOL "\n");
	/* Links are links. */
	k = readlinkat(top_fd, ROOT "etc/alternatives/out", link, sizeof(link));
	assert_int_equal(k, strlen("/root/notes"));
	k = readlinkat(top_fd, ROOT "lib64", link, sizeof(link));
	assert_int_equal(k, strlen("usr/lib"));
	assert_false(there(ROOT "sbin"));
}

static void host_knows_when_it_is_stale(void **state)
{
	struct err e = ERR_INIT;

	need_root();
	assert_false(template_host_stale(store));
	make_host();
	if (build("host", "host", FD_NONE, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(template_host_stale(store));
	put("host/etc/unrelated", 0644, "x");
	assert_false(template_host_stale(store));
	put("host/usr/bin/newer", 0755, "x");
	assert_true(template_host_stale(store));
	assert_int_equal(template_remove(store, "host", &e), 0);
	if (build("host", "host", FD_NONE, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(template_host_stale(store));
	assert_int_equal(unlinkat(top_fd, "host/etc/passwd", 0), 0);
	assert_true(template_host_stale(store));
}

static void host_is_replaced_below_running_boxes(void **state)
{
	struct template_build b;
	struct err e = ERR_INIT;
	OWN_FD old = FD_NONE;
	char text[128];

	need_root();
	make_host();
	if (build("host", "host", FD_NONE, NULL, &e) < 0)
		fail_msg("%s", e.text);
	old = openat(top_fd, ROOT "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(unlinkat(top_fd, "host/etc/nsswitch.conf", 0), 0);
	put("host/etc/nsswitch.conf", 0644, "newer: files\n hosts: mdns4_minimal [NOTFOUND=return] resolve\nservices: db");
	assert_int_equal(build("host", "host", FD_NONE, NULL, &e), -EEXIST);
	assert_int_equal(template_host_rebuild(store, PATIENCE_MS, &b, &e), 0);
	assert_true(template_exists(store, "host"));
	assert_int_equal(finish(&b, &e), 0);
	read_text(ROOT "etc/nsswitch.conf", text, sizeof(text));
	/* Whatever the host asks for names of hosts, a box has its resolver. */
	assert_string_equal(text, "newer: files\nhosts:          files dns\nservices: db");
	/* A box that runs on the old one still finds what it had, also after a restart of the daemon. */
	assert_int_equal(template_sweep(store, &e), 0);
	assert_true(file_read_small(old, "nsswitch.conf", text, sizeof(text)) > 0);
	assert_string_equal(text, TOOL "\n");
	assert_int_equal(listed("host", "ready"), 1);
	only_failed_left("none");
	assert_int_equal(template_host_prune(store, &e), 1);
	assert_int_equal(file_read_small(old, "nsswitch.conf", text, sizeof(text)), -ENOENT);
	assert_true(template_exists(store, "host"));
}

/* Names and states */

static void unknown_names_get_help(void **state)
{
	static const struct { const char *name, *says; } cases[] = {
		{ "host", "cubby template create host" }, { "debian", "cubby template create debian" },
		{ "debian:trixie", "cubby template create debian-trixie debian:trixie" }, { "hots", "did you mean 'host'" },
		{ "mine-to", "did you mean 'mine-too'" }, { "../etc", "there is no template" }, { "", "there is no template" },
		{ "qqqqqqqqqq", "cubby template ls" },
	};
	struct root_part parts[ENGINE_PARTS_MAX];
	unsigned n = 7;

	dirs((const char *const[]){ "state/templates/mine-too", NULL });
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(template_parts(store, cases[i].name, parts, &n, &e), -ENOENT);
		assert_int_equal(e.why, WHY_NO_SUCH_TEMPLATE);
		if (!strstr(e.text, cases[i].says))
			fail_msg("'%s' does not say '%s'", e.text, cases[i].says);
		assert_false(template_exists(store, cases[i].name));
	}
	assert_int_equal(n, 7);
}

static void wrong_names_and_sources_are_refused(void **state)
{
	static const struct { const char *name, *source; } cases[] = {
		{ "Upper", "host" }, { "a/b", "host" }, { "..", "host" }, { "", "host" }, { "x", "hots" }, { "x", "debian:" }, { "x", "debian:../x" },
		{ "x", "debian:-o" }, { "x", "dir:/" }, { "x", "tar:/x" }, { "x", "" }, { "x", "dir:" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct template_build b;
		struct err e = ERR_INIT;

		assert_int_equal(template_build_start(store, cases[i].name, cases[i].source, FD_NONE, NULL, 0, &b, &e), -EINVAL);
		assert_int_equal(e.why, WHY_BAD_REQUEST);
	}
	only_failed_left("none");
}

static void a_damaged_description_is_an_error(void **state)
{
	static const char *const texts[] = {
		"", "{", "[]", "{\"parts\":[]}", "{\"parts\":[{\"at\":\"usr\",\"layers\":[\"root\"]}]}", "{\"parts\":[{\"at\":\"/\"}]}",
		"{\"parts\":[{\"at\":\"/usr\",\"layers\":[\"root\"]}]}", "{\"parts\":[{\"at\":\"/\",\"layers\":[1]}]}",
	};
	struct root_part parts[ENGINE_PARTS_MAX];
	unsigned n;

	dirs((const char *const[]){ "state/templates/x", NULL });
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct err e = ERR_INIT;

		put("state/templates/x/meta.json", 0600, texts[i]);
		assert_true(template_parts(store, "x", parts, &n, &e) < 0);
		assert_non_null(strstr(e.text, "'x'"));
		assert_int_equal(unlinkat(top_fd, "state/templates/x/meta.json", 0), 0);
	}
	put("state/templates/x/meta.json", 0600, "{\"parts\":[{\"at\":\"/\",\"layers\":[\"root\",\"/usr\"]}]}");
	assert_int_equal(template_parts(store, "x", parts, &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(parts[0].nlayers, 2);
	assert_non_null(strstr(parts[0].layers[0], "/state/templates/x/root"));
	assert_string_equal(parts[0].layers[1], "/usr");
	template_parts_done(parts, n);
}

static void ids_on_disk(void **state)
{
	assert_int_equal(template_disk_id(TEMPLATE_IDS_CANONICAL, 0), 0);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_CANONICAL, 65535), 65535);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_ROOTLESS, 0), 1);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_ROOTLESS, 999), 1000);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_ROOTLESS, 1000), 0);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_ROOTLESS, 1001), 1001);
	assert_int_equal(template_disk_id(TEMPLATE_IDS_ONE, 1000), 0);
}

static void secrets_are_taken_out_of_texts(void **state)
{
	static const struct { const char *path, *before, *after; } cases[] = {
		{ "apt/sources.list", "deb http://u:p@h/d s main\n", "deb http://h/d s main\n" },
		{ "apt/sources.list", "deb http://u:p@a@h/d s main\n", "deb http://h/d s main\n" },
		{ "apt/sources.list", "deb http://h/d@x s main\n", "deb http://h/d@x s main\n" },
		{ "apt/apt.conf.d/p", "Proxy \"http://u:p@h:1\";", "Proxy \"http://h:1\";" },
		{ "apt/x", "://", "://" }, { "apt/x", "://@", "://" }, { "apt/x", "", "" },
		{ "apt/x", "a://u@h b://v@i", "a://h b://i" },
		{ "profile.d/x.sh", "export A_TOKEN=1\nB=2\n", ":\nB=2\n" }, { "profile.d/x.sh", "my_secret=1", ":\n" },
		{ "profile.d/x.fish", "set -x API_KEY 1\n", ":\n" }, { "profile.d/x.sh", "echo token\n", "echo token\n" },
		{ "pam.d/common-password", "password requisite pam_unix.so\n", "password requisite pam_unix.so\n" },
		{ "login.defs", "PASS_MAX_DAYS 99\n", "PASS_MAX_DAYS 99\n" },
		{ "ssl/x.pem", "-----BEGIN PRIVATE KEY-----\n", NULL }, { "npmrc", "//r/:_authToken=x\n", NULL },
		{ "npmrc", "; _authToken is not set\nregistry=http://r/\n", "; _authToken is not set\nregistry=http://r/\n" },
		{ "ssl/x.pem", "-----BEGIN CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		OWN_BUF b = BUF_INIT(4096);
		int r;

		assert_int_equal(buf_puts(&b, cases[i].before), 0);
		r = secret_filter(cases[i].path, &b);
		if (!cases[i].after) {
			assert_int_equal(r, -EPERM);
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(b.len, strlen(cases[i].after));
		assert_string_equal(b.data ? b.data : "", cases[i].after);
	}
	assert_true(secret_name("id_ed25519"));
	assert_true(secret_name("auth.conf"));
	assert_false(secret_name("common-password"));
	assert_false(secret_name("ca-certificates.crt"));
}

/* Directories */

static const char *const tree_dirs[] = { "tree", "tree/etc", "tree/bin", "tree/sub", NULL };

static int tree_fd(void)
{
	int fd;

	dirs(tree_dirs);
	put("tree/etc/passwd", 0644, "root:x:0:0:root:/root:/bin/sh");
	put("tree/bin/sh", 0755, "shell");
	put("tree/sub/.wh.name", 0644, "a name like any other");
	put("outside", 0644, "outside");
	assert_int_equal(symlinkat("../../outside", top_fd, "tree/sub/out"), 0);
	assert_int_equal(linkat(top_fd, "tree/bin/sh", top_fd, "tree/bin/same", 0), 0);
	fd = openat(top_fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void a_directory_becomes_a_template(void **state)
{
	struct root_part parts[ENGINE_PARTS_MAX];
	OWN_FD from = FD_NONE;
	OWN_FD sock = FD_NONE;
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct err e = ERR_INIT;
	struct stat a, b;
	char text[256];
	unsigned n;

	need_root();
	from = tree_fd();
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(mkfifoat(top_fd, "tree/sub/fifo", 0600), 0);
	path_in("tree/sub/sock", sun.sun_path, sizeof(sun.sun_path));
	assert_int_equal(bind(sock, (struct sockaddr *)&sun, sizeof(sun)), 0);
	if (build("mine", "dir:/somewhere", from, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(template_exists(store, "mine"));
	assert_int_equal(template_parts(store, "mine", parts, &n, NULL), 0);
	assert_int_equal(n, 1);
	template_parts_done(parts, n);
	read_text("state/templates/mine/root/sub/.wh.name", text, sizeof(text));
	assert_string_equal(text, "a name like any other");
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/sub/out", &a, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(a.st_mode));
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/bin/sh", &a, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/bin/same", &b, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(a.st_mode & 07777, 0755);
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/sub/fifo", &a, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISFIFO(a.st_mode));
	assert_false(there("state/templates/mine/root/sub/sock"));
	/* What every box needs was added. */
	assert_true(there("state/templates/mine/root/proc"));
	read_text("state/templates/mine/root/etc/passwd", text, sizeof(text));
	assert_string_equal(text, "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n");
	assert_mode("state/templates/mine/root/home/agent", 0755, 1000, 1000);
	/* A second one of that name is refused, until it is removed. */
	assert_int_equal(build("mine", "dir:/somewhere", from, NULL, &e), -EEXIST);
	assert_int_equal(template_remove(store, "mine", &e), 0);
	assert_false(template_exists(store, "mine"));
	assert_false(there("state/templates/mine"));
	assert_int_equal(template_remove(store, "mine", &e), -ENOENT);
}

static void a_directory_is_read_as_its_client(void **state)
{
	const struct template_who nobody = { 65534, 65534 };
	OWN_FD from = FD_NONE;
	struct err e = ERR_INIT;

	need_root();
	from = tree_fd();
	assert_int_equal(fchmodat(top_fd, ".", 0755, 0), 0);
	/* Readable: works, and what is the client's own becomes root's. */
	assert_int_equal(fchownat(top_fd, "tree/bin/sh", 65534, 65534, 0), 0);
	if (build("open", "dir:/tree", from, &nobody, &e) < 0)
		fail_msg("%s", e.text);
	assert_mode("state/templates/open/root/bin/sh", 0755, 0, 0);
	/* One file that only root may read. */
	put("tree/sub/secret", 0600, "secret");
	memset(&e, 0, sizeof(e));
	assert_true(build("closed", "dir:/tree", from, &nobody, &e) < 0);
	assert_int_equal(e.why, WHY_DENIED);
	assert_non_null(strstr(e.text, "sub/secret"));
	assert_false(template_exists(store, "closed"));
	only_failed_left("closed");
	assert_int_equal(build("closed", "dir:/tree", from, NULL, &e), 0);
	assert_true(there("state/templates/closed/root/sub/secret"));
	/* And a directory. */
	assert_int_equal(unlinkat(top_fd, "tree/sub/secret", 0), 0);
	assert_int_equal(fchmodat(top_fd, "tree/sub", 0700, 0), 0);
	assert_true(build("closed2", "dir:/tree", from, &nobody, &e) < 0);
	assert_int_equal(e.why, WHY_DENIED);
}

static void a_root_whose_directories_are_links_is_refused(void **state)
{
	static const char *const names[] = { "proc", "sys", "dev", "etc", "tmp" };
	struct err e = ERR_INIT;

	need_root();
	dirs((const char *const[]){ "tree", "victim", NULL });
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[64];
		OWN_FD from = openat(top_fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);

		(void)snprintf(path, sizeof(path), "tree/%s", names[i]);
		assert_int_equal(symlinkat("../../../../victim", top_fd, path), 0);
		assert_true(build("x", "dir:/tree", from, NULL, &e) < 0);
		assert_non_null(strstr(e.text, names[i]));
		assert_int_equal(unlinkat(top_fd, path, 0), 0);
	}
	/* Nothing was written through any of them. */
	assert_int_equal(unlinkat(top_fd, "victim", AT_REMOVEDIR), 0);
}

static void ids_of_a_daemon_without_root(void **state)
{
	struct template_store *other;
	struct template_store *kept = store;
	OWN_FD from = FD_NONE;
	struct err e = ERR_INIT;
	char path[PATH_MAX];

	need_root();
	from = tree_fd();
	path_in("state", path, sizeof(path));
	assert_int_equal(template_store_open(path, TEMPLATE_IDS_ROOTLESS, &other, &e), 0);
	store = other;
	if (build("mine", "dir:/tree", from, NULL, &e) < 0)
		fail_msg("%s", e.text);
	store = kept;
	template_store_free(other);
	assert_mode("state/templates/mine/root/bin/sh", 0755, 1, 1);
	assert_mode("state/templates/mine/root/home/agent", 0755, 0, 0);
}

static int user_child(void)
{
	OWN_FD from = FD_NONE;
	struct err e = ERR_INIT;
	struct stat st;
	int r;

	if (fchdir(top_fd) < 0 || (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0)))
		return 77;
	if (mkdir("own", 0700) < 0)
		return 1;
	if (template_store_open("own", TEMPLATE_IDS_ONE, &store, &e) < 0)
		return 2;
	from = openat(top_fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = build("mine", "dir:/tree", from, NULL, &e);
	if (r < 0) {
		print_message("# %s\n", e.text);
		return 3;
	}
	if (fstatat(top_fd, "own/templates/mine/root/bin/sh", &st, 0) < 0 || st.st_uid != geteuid())
		return 4;
	/* What needs more than one id says so. */
	if (build("debian", "debian", FD_NONE, NULL, &e) >= 0 || e.why != WHY_UNSUPPORTED || !strstr(e.text, "/etc/subuid"))
		return 5;
	if (template_remove(store, "mine", &e) < 0 || template_exists(store, "mine"))
		return 6;
	template_store_free(store);
	return 0;
}

static void a_user_with_one_id_builds_too(void **state)
{
	int tree = tree_fd(), status;
	pid_t pid;

	fd_close(&tree);
	assert_int_equal(fchmod(top_fd, 0777), 0);
	pid = fork();
	if (pid == 0)
		_exit(user_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Archives */

struct item {
	const char *path;
	mode_t type;
	const char *text;	/* of a file; the target of a link */
	bool hard;
	unsigned perm;
};

static int tar_fd(const struct item *items, size_t n)
{
	struct archive *a = archive_write_new();
	int fd;

	(void)unlinkat(top_fd, "a.tar", 0);
	fd = openat(top_fd, "a.tar", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_non_null(a);
	assert_int_equal(archive_write_set_format_pax(a), ARCHIVE_OK);
	assert_int_equal(archive_write_add_filter_gzip(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *ae = archive_entry_new();
		const struct item *it = &items[i];

		archive_entry_set_pathname(ae, it->path);
		archive_entry_set_perm(ae, it->perm ? it->perm : 0755);
		archive_entry_set_filetype(ae, it->type);
		if (it->hard)
			archive_entry_set_hardlink(ae, it->text);
		else if (it->type == S_IFLNK)
			archive_entry_set_symlink(ae, it->text);
		else if (it->type == S_IFREG)
			archive_entry_set_size(ae, it->text ? (la_int64_t)strlen(it->text) : 0);
		assert_true(archive_write_header(a, ae) >= ARCHIVE_WARN);
		if (it->type == S_IFREG && !it->hard && it->text)
			assert_int_equal(archive_write_data(a, it->text, strlen(it->text)), (la_ssize_t)strlen(it->text));
		archive_entry_free(ae);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

#define N(a) (sizeof(a) / sizeof((a)[0]))

static void an_archive_becomes_a_template(void **state)
{
	static const struct item items[] = {
		{ "./", S_IFDIR, NULL, false, 0700 }, { "./bin/", S_IFDIR, NULL, false, 0555 }, { "./bin/sh", S_IFREG, "shell", false, 04755 },
		{ "bin/same", S_IFREG, "bin/sh", true, 0 }, { "lib", S_IFLNK, "/usr/lib", false, 0 }, { "deep/er/file", S_IFREG, "x", false, 0644 },
		{ ".wh..wh..opq", S_IFREG, "plain", false, 0644 }, { "deep/.wh.er", S_IFREG, "plain", false, 0644 },
		{ "dev/null", S_IFCHR, NULL, false, 0666 }, { "f\xc3\xbcr", S_IFREG, "utf8", false, 0644 }, { "pipe", S_IFIFO, NULL, false, 0600 },
		{ "twice", S_IFREG, "first", false, 0644 }, { "twice", S_IFREG, "second", false, 0644 },
		{ "a//b/./c", S_IFREG, "x", false, 0644 },
	};
	OWN_FD from = FD_NONE;
	struct err e = ERR_INIT;
	struct stat a, b;
	char text[64];

	need_root();
	from = tar_fd(items, N(items));
	if (build("mine", "tar:/a.tar", from, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_mode("state/templates/mine/root", 0755, 0, 0);
	assert_mode("state/templates/mine/root/bin", 0555, 0, 0);
	assert_mode("state/templates/mine/root/bin/sh", 04755, 0, 0);
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/bin/sh", &a, 0), 0);
	assert_int_equal(fstatat(top_fd, "state/templates/mine/root/bin/same", &b, 0), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_true(there("state/templates/mine/root/deep/er/file"));
	assert_true(there("state/templates/mine/root/.wh..wh..opq"));
	assert_true(there("state/templates/mine/root/deep/.wh.er"));
	assert_true(there("state/templates/mine/root/f\xc3\xbcr"));
	assert_true(there("state/templates/mine/root/a/b/c"));
	assert_false(there("state/templates/mine/root/dev/null"));
	read_text("state/templates/mine/root/twice", text, sizeof(text));
	assert_string_equal(text, "second");
}

static void hostile_archives_are_refused(void **state)
{
#define UP "../../../../victim"
	static const struct { struct item items[3]; size_t n; const char *says; } cases[] = {
		{ { { UP "/file", S_IFREG, "x", false, 0 } }, 1, "leads upwards" },
		{ { { "a/../../" UP "/file", S_IFREG, "x", false, 0 } }, 1, "leads upwards" },
		{ { { "/victim/file", S_IFREG, "x", false, 0 } }, 1, "absolute" },
		{ { { "l", S_IFLNK, UP, false, 0 }, { "l/file", S_IFREG, "x", false, 0 } }, 2, "through a link" },
		{ { { "l", S_IFLNK, UP "/marker", false, 0 }, { "l", S_IFREG, "x", false, 0 } }, 2, "twice" },
		{ { { "l", S_IFLNK, UP, false, 0 }, { "l", S_IFDIR, NULL, false, 0 }, { "l/file", S_IFREG, "x", false, 0 } }, 3, "twice" },
		{ { { "d", S_IFDIR, NULL, false, 0 }, { "d", S_IFLNK, UP, false, 0 } }, 2, "twice" },
		{ { { "h", S_IFREG, UP "/marker", true, 0 } }, 1, "leads upwards" },
		{ { { "h", S_IFREG, "/victim/marker", true, 0 } }, 1, "absolute" },
		{ { { "l", S_IFLNK, UP, false, 0 }, { "h", S_IFREG, "l/marker", true, 0 } }, 2, "through a link" },
		{ { { "h", S_IFREG, "nothing", true, 0 } }, 1, "isn't there" },
		{ { { "d", S_IFDIR, NULL, false, 0 }, { "h", S_IFREG, "d", true, 0 } }, 2, "isn't a file" },
		{ { { "f", S_IFREG, "x", false, 0 }, { "f/g", S_IFREG, "x", false, 0 } }, 2, "through a link or a file" },
		{ { { ".", S_IFLNK, UP, false, 0 } }, 1, "the root" },
		{ { { "proc", S_IFLNK, UP, false, 0 } }, 1, "/proc" },
	};
	struct stat before, after;

	need_root();
	dirs((const char *const[]){ "victim", NULL });
	put("victim/marker", 0644, "untouched");
	assert_int_equal(fstatat(top_fd, "victim/marker", &before, 0), 0);
	for (size_t i = 0; i < N(cases); i++) {
		OWN_FD from = tar_fd(cases[i].items, cases[i].n);
		struct err e = ERR_INIT;

		assert_true(build("bad", "tar:/a.tar", from, NULL, &e) < 0);
		if (!strstr(e.text, cases[i].says))
			fail_msg("case %zu: '%s' does not say '%s'", i, e.text, cases[i].says);
		assert_false(template_exists(store, "bad"));
		only_failed_left("bad");
		assert_false(there("victim/file"));
	}
	assert_int_equal(fstatat(top_fd, "victim/marker", &after, 0), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(after.st_nlink, 1);
	assert_int_equal(after.st_size, 9);
}

static void archives_have_limits(void **state)
{
	struct err e = ERR_INIT;
	OWN_MEM char *big = calloc(1, 3u << 20);
	char deep[600] = "";

	need_root();
	memset(big, 'z', (3u << 20) - 1);
	for (unsigned i = 0; i < 140; i++)
		strncat(deep, "d/", 3);
	{
		const struct item items[] = { { "big", S_IFREG, big, false, 0 } };
		OWN_FD from = tar_fd(items, 1);

		unpack_limits.bytes = 2u << 20;
		assert_true(build("x", "tar:/a.tar", from, NULL, &e) < 0);
		assert_int_equal(e.why, WHY_LIMIT);
		unpack_limits.bytes = 4u << 20;
		assert_int_equal(lseek(from, 0, SEEK_SET), 0);
		assert_int_equal(build("x", "tar:/a.tar", from, NULL, &e), 0);
	}
	{
		const struct item items[] = { { "a", S_IFREG, "x", false, 0 }, { "b", S_IFREG, "x", false, 0 }, { "c", S_IFREG, "x", false, 0 } };
		OWN_FD from = tar_fd(items, 3);

		unpack_limits.files = 2;
		assert_true(build("y", "tar:/a.tar", from, NULL, &e) < 0);
		assert_int_equal(e.why, WHY_LIMIT);
		unpack_limits.files = 0;
	}
	{
		const struct item items[] = { { deep, S_IFDIR, NULL, false, 0 } };
		OWN_FD from = tar_fd(items, 1);

		assert_true(build("z", "tar:/a.tar", from, NULL, &e) < 0);
		assert_non_null(strstr(e.text, "deeper"));
	}
}

static void what_is_no_archive_is_refused(void **state)
{
	struct err e = ERR_INIT;
	OWN_FD from = FD_NONE;
	static const struct item items[] = { { "a", S_IFREG, "some text that is longer than nothing", false, 0 } };

	need_root();
	put("text", 0644, "this is not an archive, however long one looks at it");
	from = openat(top_fd, "text", O_RDONLY | O_CLOEXEC);
	assert_true(build("x", "tar:/text", from, NULL, &e) < 0);
	assert_int_equal(e.why, WHY_BAD_REQUEST);
	fd_close(&from);
	from = openat(top_fd, ".", O_RDONLY | O_CLOEXEC);
	assert_true(build("x", "tar:/dir", from, NULL, &e) < 0);
	fd_close(&from);
	/* Cut off in the middle. */
	from = tar_fd(items, 1);
	assert_int_equal(ftruncate(from, lseek(from, 0, SEEK_END) / 2), 0);
	assert_int_equal(lseek(from, 0, SEEK_SET), 0);
	assert_true(build("x", "tar:/cut", from, NULL, &e) < 0);
	only_failed_left("x");
}

/* Builds that take their time: an archive that comes through a pipe, and doesn't come. */

static void a_build_can_be_cancelled(void **state)
{
	struct template_build b, other;
	struct err e = ERR_INIT;
	struct pollfd p;
	char log[PATH_MAX];
	int fds[2];

	need_root();
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(template_build_start(store, "slow", "tar:/pipe", fds[0], NULL, 0, &b, &e), 0);
	p = (struct pollfd){ .fd = b.pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 100), 0);	/* it runs */
	assert_int_equal(listed("slow", "building"), 1);
	assert_false(template_exists(store, "slow"));
	assert_int_equal(template_build_start(store, "slow", "host", FD_NONE, NULL, 0, &other, &e), -EEXIST);
	assert_int_equal(template_remove(store, "slow", &e), -EBUSY);
	assert_int_equal(template_sweep(store, &e), 0);
	assert_int_equal(template_build_cancel(store, &b, &e), 0);
	assert_int_equal(b.pidfd, FD_NONE);
	/* Everybody who read the pipe is gone: writing fails. */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)close(fds[0]);
	assert_int_equal(write(fds[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	(void)close(fds[1]);
	assert_int_equal(listed("slow", "building"), 0);
	assert_int_equal(listed("slow", "failed"), 1);
	only_failed_left("slow");
	/* The log is there until the next build, or until it is removed. */
	assert_int_equal(template_log_path(store, "slow", log, sizeof(log), &e), 0);
	assert_int_equal(access(log, R_OK), 0);
	assert_int_equal(template_remove(store, "slow", &e), 0);
	assert_int_equal(template_log_path(store, "slow", log, sizeof(log), &e), -ENOENT);
	only_failed_left("none");
}

static void a_build_has_a_time_limit(void **state)
{
	struct template_build b;
	struct err e = ERR_INIT;
	struct pollfd p;
	int fds[2];

	need_root();
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(template_build_start(store, "slow", "tar:/pipe", fds[0], NULL, 60, &b, &e), 0);
	assert_true(b.deadline_ms > 0);
	p = (struct pollfd){ .fd = b.pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 80), 0);
	assert_int_equal(template_build_finish(store, &b, &e), -ETIMEDOUT);
	assert_int_equal(e.why, WHY_TIMEOUT);
	(void)close(fds[0]);
	(void)close(fds[1]);
	only_failed_left("slow");
	assert_int_equal(listed("slow", "failed"), 1);
}

static void a_build_ends_with_its_daemon(void **state)
{
	struct err e = ERR_INIT;
	int fds[2], status;
	pid_t pid;

	need_root();
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct template_build b;

		if (template_build_start(store, "slow", "tar:/pipe", fds[0], NULL, 0, &b, &e) < 0)
			_exit(1);
		/* Let it get as far as reading. */
		(void)poll(NULL, 0, 100);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)close(fds[0]);
	/* The last reader is gone as soon as the build is: then, and only then, the pipe breaks. */
	{
		struct pollfd p = { .fd = fds[1] };

		(void)signal(SIGPIPE, SIG_IGN);
		assert_int_equal(poll(&p, 1, 5000), 1);
		assert_true(p.revents & POLLERR);
	}
	(void)close(fds[1]);
	for (unsigned i = 0; i < 100 && template_sweep(store, &e) == 0; i++)
		(void)poll(NULL, 0, 10);
	only_failed_left("none");
	assert_int_equal(listed("slow", "building"), 0);
}

static void a_failed_build_says_why_and_keeps_its_log(void **state)
{
	struct err e = ERR_INIT;
	OWN_BUF b = BUF_INIT(1u << 20);
	struct json_out o;
	char log[PATH_MAX], text[8192];
	static const struct item bad[] = { { "../x", S_IFREG, "x", false, 0 } };
	static const struct item good[] = { { "x", S_IFREG, "x", false, 0 } };
	OWN_FD from = FD_NONE;

	need_root();
	from = tar_fd(bad, 1);
	assert_true(build("x", "tar:/a.tar", from, NULL, &e) < 0);
	assert_int_equal(template_log_path(store, "x", log, sizeof(log), &e), 0);
	assert_true(file_read_small(AT_FDCWD, log, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "leads upwards"));
	json_out_init(&o, &b);
	assert_int_equal(template_info(store, "x", &o, &e), 0);
	assert_non_null(strstr(b.data, "\"failed\""));
	assert_non_null(strstr(b.data, "leads upwards"));
	/* The next build of that name starts afresh. */
	fd_close(&from);
	from = tar_fd(good, 1);
	assert_int_equal(build("x", "tar:/a.tar", from, NULL, &e), 0);
	only_failed_left("none");
	assert_int_equal(listed("x", "ready"), 1);
	assert_int_equal(listed("x", "failed"), 0);
}

static void a_sweep_removes_what_is_half_there(void **state)
{
	struct err e = ERR_INIT;

	dirs((const char *const[]){ "state/building/a.00000001", "state/building/a.00000001/root", "state/building/b.failed",
				    "state/templates/half", "state/templates/half/root", "state/templates/whole", NULL });
	put("state/building/a.00000001/lock", 0600, "");
	put("state/building/b.failed/log", 0600, "why");
	put("state/templates/whole/meta.json", 0600, "{}");
	assert_int_equal(template_sweep(store, &e), 2);
	assert_false(there("state/building/a.00000001"));
	assert_false(there("state/templates/half"));
	assert_true(there("state/building/b.failed/log"));
	assert_true(there("state/templates/whole/meta.json"));
	assert_int_equal(template_sweep(store, &e), 0);
}

static int full_disk_child(void)
{
	struct template_store *s;
	struct template_build b;
	struct pollfd p;
	struct err e = ERR_INIT;
	OWN_FD from = openat(top_fd, "tree", O_PATH | O_DIRECTORY | O_CLOEXEC);
	unsigned left = 0;
	DIR *d;

	if (fchdir(top_fd) < 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", "small", "tmpfs", 0, "size=256k") < 0)
		return 77;
	if (template_store_open("small", 0, &s, &e) < 0)
		return 1;
	if (template_build_start(s, "x", "dir:/tree", from, NULL, 0, &b, &e) < 0)
		return 2;
	p = (struct pollfd){ .fd = b.pidfd, .events = POLLIN };
	if (poll(&p, 1, PATIENCE_MS) != 1)
		return 3;
	if (template_build_finish(s, &b, &e) >= 0)
		return 4;
	if (e.why != WHY_NO_SPACE)
		return 5;
	if (template_exists(s, "x"))
		return 6;
	d = opendir("small/building/x.failed");
	if (!d)
		return 7;
	while (readdir(d))
		left++;
	(void)closedir(d);
	template_store_free(s);
	return left == 4 ? 0 : 8;	/* ., .., log, state.json */
}

static void a_full_disk_leaves_nothing_half_made(void **state)
{
	OWN_FD from = FD_NONE;
	OWN_MEM char *big = calloc(1, 1u << 20);
	int status;
	pid_t pid;

	need_root();
	from = tree_fd();
	memset(big, 'b', (1u << 20) - 1);
	put("tree/big", 0644, big);
	dirs((const char *const[]){ "small", NULL });
	pid = fork();
	if (pid == 0)
		_exit(full_disk_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		fd_close(&from);
		skip_because("no mount namespace for a small disk");
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_real_debian(void **state)
{
	struct root_part parts[ENGINE_PARTS_MAX];
	struct template_build b;
	struct err e = ERR_INIT;
	struct pollfd p;
	char text[65536], at[200] = "";
	unsigned n;
	int r;

	need_root();
	if (!getenv("CUBBY_TEST_DEBIAN"))
		skip_because("building a real Debian takes half a minute and the network; CUBBY_TEST_DEBIAN=1 asks for it");
	r = template_build_start(store, "debian", "debian", FD_NONE, NULL, 300000, &b, &e);
	if (r < 0)
		fail_msg("%s", e.text);
	p = (struct pollfd){ .fd = b.pidfd, .events = POLLIN };
	while (poll(&p, 1, 500) == 0 && !strstr(at, "packages"))
		template_build_progress(store, &b, at, sizeof(at));
	(void)poll(&p, 1, 300000);
	r = template_build_finish(store, &b, &e);
	if (r == -EHOSTUNREACH || r == -ENOENT)
		skip_because("%s", e.text);
	if (r < 0)
		fail_msg("%s", e.text);
	assert_non_null(strstr(at, "packages"));
	assert_int_equal(template_parts(store, "debian", parts, &n, &e), 0);
	template_parts_done(parts, n);
	read_text("state/templates/debian/root/etc/passwd", text, sizeof(text));
	assert_non_null(strstr(text, "agent:x:1000:1000:"));
	assert_mode("state/templates/debian/root/usr/bin/sudo", 04755, 0, 0);
	assert_mode("state/templates/debian/root/etc/sudoers.d/agent", 0440, 0, 0);
	assert_mode("state/templates/debian/root/home/agent", 0755, 1000, 1000);
	assert_false(there("state/templates/debian/root/dev/null"));
}

static int no_network_child(void)
{
	struct err e = ERR_INIT;
	int r;

	if (unshare(CLONE_NEWNET) < 0)
		return 77;
	r = build("x", "debian:bookworm", FD_NONE, NULL, &e);
	if (r == -ENOENT && strstr(e.text, "mmdebstrap is not installed"))
		return 77;
	print_message("# without a network: %s\n", e.text);
	return r == -EHOSTUNREACH && strstr(e.text, "mirror") && !template_exists(store, "x") ? 0 : 1;
}

static void an_unreachable_mirror_is_named(void **state)
{
	int status;
	pid_t pid;

	need_root();
	pid = fork();
	if (pid == 0)
		_exit(no_network_child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip_because("mmdebstrap is not installed, or no network namespace can be made");
	assert_int_equal(WEXITSTATUS(status), 0);
	only_failed_left("x");
}

static void an_unknown_suite_is_named(void **state)
{
	struct err e = ERR_INIT;
	int r;

	need_root();
	if (!getenv("CUBBY_TEST_DEBIAN"))
		skip_because("asking a mirror takes the network; CUBBY_TEST_DEBIAN=1 asks for it");
	r = build("x", "debian:bookwurm", FD_NONE, NULL, &e);
	if (r == -EHOSTUNREACH || e.why == WHY_UNSUPPORTED)
		skip_because("%s", e.text);
	assert_true(r < 0);
	assert_int_equal(e.why, WHY_NOT_FOUND);
	assert_non_null(strstr(e.text, "did you mean 'bookworm'"));
	only_failed_left("x");
}

static void a_state_directory_of_others_is_refused(void **state)
{
	struct template_store *s = NULL;
	struct err e = ERR_INIT;
	char path[PATH_MAX];

	need_root();
	dirs((const char *const[]){ "theirs", "theirs/templates", NULL });
	assert_int_equal(fchownat(top_fd, "theirs/templates", 65534, 65534, 0), 0);
	path_in("theirs", path, sizeof(path));
	assert_int_equal(template_store_open(path, 0, &s, &e), -EPERM);
	assert_int_equal(e.why, WHY_DENIED);
	assert_null(s);
	/* A link instead of a directory of ours. */
	assert_int_equal(unlinkat(top_fd, "theirs/templates", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("..", top_fd, "theirs/templates"), 0);
	assert_true(template_store_open(path, 0, &s, &e) < 0);
	assert_int_equal(unlinkat(top_fd, "theirs/templates", 0), 0);
	assert_int_equal(template_store_open(path, 0, &s, &e), 0);
	template_store_free(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, start, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(host_shows_tools_and_no_secrets),
		T(host_accounts_are_the_systems),
		T(host_knows_when_it_is_stale),
		T(host_is_replaced_below_running_boxes),
		T(secrets_are_taken_out_of_texts),
		T(unknown_names_get_help),
		T(wrong_names_and_sources_are_refused),
		T(a_damaged_description_is_an_error),
		T(ids_on_disk),
		T(a_directory_becomes_a_template),
		T(a_directory_is_read_as_its_client),
		T(a_root_whose_directories_are_links_is_refused),
		T(ids_of_a_daemon_without_root),
		T(a_user_with_one_id_builds_too),
		T(an_archive_becomes_a_template),
		T(hostile_archives_are_refused),
		T(archives_have_limits),
		T(what_is_no_archive_is_refused),
		T(a_build_can_be_cancelled),
		T(a_build_has_a_time_limit),
		T(a_build_ends_with_its_daemon),
		T(a_failed_build_says_why_and_keeps_its_log),
		T(a_sweep_removes_what_is_half_there),
		T(a_full_disk_leaves_nothing_half_made),
		T(a_state_directory_of_others_is_refused),
		T(an_unreachable_mirror_is_named),
		T(an_unknown_suite_is_named),
		T(a_real_debian),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
