/* SPDX-License-Identifier: Apache-2.0 */

/*
 * debian[:SUITE]: a small Debian made by mmdebstrap(1) from the mirror, keys and proxy that the host's own apt uses. It runs
 * in the build's pid and mount namespaces, so that nothing of it outlives the build: no process, no mount. Without root it
 * runs in a user namespace below the daemon's, which maps its ids to what they have to be on disk.
 */
#include "store/build.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "store/tree.h"

#define DEFAULT_MIRROR "http://deb.debian.org/debian"
#define DEFAULT_SECURITY "http://deb.debian.org/debian-security"
#define SOURCES_MAX (1u << 20)
#define PACKAGES "sudo,ca-certificates,netbase,procps,less"

/* Released suites have updates and security archives. */
static const char *const released[] = { "bullseye", "bookworm", "trixie", "oldoldstable", "oldstable", "stable" };
static const char *const suites[] = { "bullseye", "bookworm", "trixie", "forky", "sid", "oldoldstable", "oldstable", "stable",
				      "testing", "unstable" };

bool debian_suite_ok(const char *s)
{
	size_t n = strlen(s);

	if (n < 1 || n > 40 || s[0] < 'a' || s[0] > 'z')
		return false;
	return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

struct mirrors {
	char code[48];		/* the host's suite, "" when it is no Debian */
	char uri[512], key[256];
	char security[512], security_key[256];
	bool updates;
};

static void word_copy(char *to, size_t room, const char *from, size_t n)
{
	if (n < room)
		(void)snprintf(to, room, "%.*s", (int)n, from);
}

static void os_release(int host_fd, struct mirrors *m)
{
	static const char *const paths[] = { "etc/os-release", "usr/lib/os-release" };

	for (size_t i = 0; i < 2 && !m->code[0]; i++) {
		OWN_BUF t = BUF_INIT(65536);
		char id[48] = "", code[48] = "";
		char *line, *rest;

		if (place_read(host_fd, paths[i], &t) < 0)
			continue;
		rest = t.data;
		while ((line = strsep(&rest, "\n")) != NULL) {
			char *value = strchr(line, '=');
			size_t n;

			if (!value)
				continue;
			value += strspn(value, "=\"'");
			n = strcspn(value, "\"'");
			if (strncmp(line, "ID=", 3) == 0)
				word_copy(id, sizeof(id), value, n);
			if (strncmp(line, "VERSION_CODENAME=", 17) == 0)
				word_copy(code, sizeof(code), value, n);
		}
		if (strcmp(id, "debian") == 0 && debian_suite_ok(code))
			word_copy(m->code, sizeof(m->code), code, strlen(code));
	}
}

/* One source of the host: does it serve the host's own suite? */
static void source_seen(struct mirrors *m, const char *uri, const char *suite_list, const char *components, const char *key)
{
	char list[512], *rest = list, *suite;
	size_t n = strlen(m->code);

	if (!n || (strncmp(uri, "http://", 7) != 0 && strncmp(uri, "https://", 8) != 0) || !strstr(components, "main"))
		return;
	(void)snprintf(list, sizeof(list), "%s", suite_list);
	while ((suite = strsep(&rest, " \t")) != NULL) {
		const char *tail = suite + n;

		if (strncmp(suite, m->code, n) != 0)
			continue;
		if (*tail == '\0' && !m->uri[0]) {
			word_copy(m->uri, sizeof(m->uri), uri, strlen(uri));
			word_copy(m->key, sizeof(m->key), key, strlen(key));
		} else if (strcmp(tail, "-updates") == 0) {
			m->updates = true;
		} else if ((strcmp(tail, "-security") == 0 || strcmp(tail, "/updates") == 0) && !m->security[0]) {
			word_copy(m->security, sizeof(m->security), uri, strlen(uri));
			word_copy(m->security_key, sizeof(m->security_key), key, strlen(key));
		}
	}
}

/* "deb [signed-by=…] URI SUITE COMPONENT…" */
static void one_line(struct mirrors *m, char *line)
{
	char key[256] = "", *uri, *suite;

	if (strncmp(line, "deb", 3) != 0 || (line[3] != ' ' && line[3] != '\t'))
		return;
	line += 3;
	line += strspn(line, " \t");
	if (*line == '[') {
		char *end = strchr(line, ']'), *by = strstr(line, "signed-by=");

		if (!end)
			return;
		if (by && by < end)
			word_copy(key, sizeof(key), by + 10, strcspn(by + 10, " \t]"));
		line = end + 1;
		line += strspn(line, " \t");
	}
	uri = strsep(&line, " \t");
	if (!line)
		return;
	line += strspn(line, " \t");
	suite = strsep(&line, " \t");
	if (uri && suite && line)
		source_seen(m, uri, suite, line, key[0] == '/' ? key : "");
}

/* A file of the deb822 form: stanzas of "Field: value". */
static void stanzas(struct mirrors *m, char *text)
{
	char *uris = NULL, *suite_list = NULL, *components = NULL, *key = NULL, *types = NULL, *enabled = NULL;

	for (char *line = strsep(&text, "\n"); ; line = strsep(&text, "\n")) {
		static const char *const names[] = { "uris:", "suites:", "components:", "signed-by:", "types:", "enabled:" };
		char **const to[] = { &uris, &suite_list, &components, &key, &types, &enabled };

		if (!line || !line[strspn(line, " \t\r")]) {
			if (uris && suite_list && components && (!types || strstr(types, "deb")) &&
			    !(enabled && strncasecmp(enabled, "no", 2) == 0)) {
				uris[strcspn(uris, " \t\r")] = '\0';
				source_seen(m, uris, suite_list, components, key && key[0] == '/' ? key : "");
			}
			uris = suite_list = components = key = types = enabled = NULL;
			if (!line)
				return;
			continue;
		}
		for (size_t i = 0; i < 6; i++) {
			size_t n = strlen(names[i]);

			if (strncasecmp(line, names[i], n) == 0)
				*to[i] = line + n + strspn(line + n, " \t");
		}
	}
}

static void sources_file(struct mirrors *m, int dir_fd, const char *name)
{
	OWN_BUF t = BUF_INIT(SOURCES_MAX);
	size_t n = strlen(name);
	char *rest, *line;

	if (place_read(dir_fd, name, &t) < 0 || !t.data)
		return;
	if (n > 8 && strcmp(name + n - 8, ".sources") == 0) {
		stanzas(m, t.data);
		return;
	}
	rest = t.data;
	while ((line = strsep(&rest, "\n")) != NULL)
		one_line(m, line);
}

static void host_mirrors(int host_fd, struct mirrors *m)
{
	OWN_FD list = FD_NONE;
	struct dirent **found = NULL;
	int n;

	memset(m, 0, sizeof(*m));
	os_release(host_fd, m);
	sources_file(m, host_fd, "etc/apt/sources.list");
	list = tree_open_any(host_fd, "etc/apt/sources.list.d", O_RDONLY | O_DIRECTORY);
	n = list < 0 ? -1 : scandirat(list, ".", &found, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (found[i]->d_name[0] != '.')
			sources_file(m, list, found[i]->d_name);
		free(found[i]);
	}
	free(found);
}

static void source_line(struct buf *to, const char *uri, const char *suite, const char *tail, const char *key)
{
	(void)buf_puts(to, "deb ");
	if (*key && access(key, R_OK) == 0)
		(void)buf_printf(to, "[signed-by=%s] ", key);
	(void)buf_printf(to, "%s %s%s main\n", uri, suite, tail);
}

/* build directory/sources: may hold a login of the mirror, so it isn't an argument, and goes with the build. */
static int sources_write(struct build *b, const struct mirrors *m, const char *suite)
{
	OWN_BUF t = BUF_INIT(65536);
	const char *uri = m->uri[0] ? m->uri : DEFAULT_MIRROR;
	bool stable = false;

	for (size_t i = 0; i < sizeof(released) / sizeof(released[0]); i++)
		stable = stable || strcmp(released[i], suite) == 0;
	source_line(&t, uri, suite, "", m->key);
	if (stable && (m->updates || !m->uri[0]))
		source_line(&t, uri, suite, "-updates", m->key);
	if (stable && (m->security[0] || !m->uri[0]))
		source_line(&t, m->security[0] ? m->security : DEFAULT_SECURITY, suite, "-security", m->security_key);
	if (buf_error(&t))
		return buf_error(&t);
	return place_file(&(struct build){ .ids = b->ids }, b->dir_fd, "sources", 0600, 0, 0, t.data, t.len);
}

/* What mmdebstrap said, as far as it tells why it failed. */
struct said {
	bool no_release, no_network, no_space, no_key;
	char last_error[300], network[200];
	unsigned unpacked, set_up;
};

static void heard(struct build *b, struct said *s, const char *line)
{
	static const char *const network[] = { "Could not resolve", "Temporary failure resolving", "Unable to connect", "Could not connect",
					       "Connection timed out", "Connection refused", "Network is unreachable",
					       "Cannot initiate the connection", "connection timed out" };

	if (!*line)
		return;
	build_log(b, "%s", line);
	if (strncmp(line, "I: ", 3) == 0)
		build_at(b, "%s", line + 3);
	if (strncmp(line, "Unpacking ", 10) == 0)
		build_at(b, "unpacking packages, %u so far", ++s->unpacked);
	if (strncmp(line, "Setting up ", 11) == 0)
		build_at(b, "setting up packages, %u so far", ++s->set_up);
	if (strstr(line, "does not have a Release file") || strstr(line, "404  Not Found"))
		s->no_release = true;
	for (size_t i = 0; i < sizeof(network) / sizeof(network[0]); i++)
		if (strstr(line, network[i])) {
			s->no_network = true;
			(void)snprintf(s->network, sizeof(s->network), "%s", line + strspn(line, " WE:"));
		}
	if (strstr(line, "No space left on device") || strstr(line, "don't have enough free space"))
		s->no_space = true;
	if (strstr(line, "NO_PUBKEY") || strstr(line, "is not signed"))
		s->no_key = true;
	if (strncmp(line, "E: ", 3) == 0 || strncmp(line, "Err:", 4) == 0)
		(void)snprintf(s->last_error, sizeof(s->last_error), "%s", line + 3);
}

static void hear(struct build *b, struct said *s, int fd)
{
	char line[2048];
	size_t have = 0;

	for (;;) {
		ssize_t k = read(fd, line + have, sizeof(line) - 1 - have);
		char *from = line, *nl;

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			break;
		have += (size_t)k;
		line[have] = '\0';
		/* Its progress bars end in a carriage return. */
		while ((nl = strpbrk(from, "\r\n")) != NULL) {
			*nl = '\0';
			heard(b, s, from);
			from = nl + 1;
		}
		have -= (size_t)(from - line);
		memmove(line, from, have + 1);
		if (have == sizeof(line) - 1) {
			heard(b, s, line);
			have = 0;
		}
	}
	line[have] = '\0';
	heard(b, s, line);
}

/* The proxy of the host's apt. mmdebstrap reads none of the host's settings; the environment it does read. */
static void proxy_export(const char *setting, const char *variable)
{
	char text[1024];
	int fds[2], status;
	ssize_t n;
	pid_t pid;

	if (getenv(variable) || pipe2(fds, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0) {
		(void)dup2(fds[1], 1);
		(void)execlp("apt-config", "apt-config", "shell", "P", setting, (char *)NULL);
		_exit(127);
	}
	(void)close(fds[1]);
	n = pid < 0 ? -1 : fd_read_small(fds[0], text, sizeof(text));
	(void)close(fds[0]);
	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	/* P='http://proxy:3128/' */
	if (n > 4 && strncmp(text, "P='", 3) == 0) {
		text[strcspn(text + 3, "'") + 3] = '\0';
		if (strncmp(text + 3, "http", 4) == 0)
			(void)setenv(variable, text + 3, 1);
	}
}

static void environment(void)
{
	static const char *const kept[] = { "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY" };
	char *values[5];

	for (size_t i = 0; i < 5; i++)
		values[i] = getenv(kept[i]) ? strdup(getenv(kept[i])) : NULL;
	(void)clearenv();
	for (size_t i = 0; i < 5; i++) {
		if (values[i])
			(void)setenv(kept[i], values[i], 1);
		free(values[i]);
	}
	(void)setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	(void)setenv("HOME", "/nonexistent", 1);
	(void)setenv("LC_ALL", "C.UTF-8", 1);
	(void)setenv("DEBIAN_FRONTEND", "noninteractive", 1);
	proxy_export("Acquire::http::Proxy", "http_proxy");
	proxy_export("Acquire::https::Proxy", "https_proxy");
}

static _Noreturn void run_mmdebstrap(const char *suite, const char *target, const char *sources, int go_fd, int out_fd)
{
	char go;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Without root: the ids of the new namespace have to be there first. */
	if (go_fd >= 0 && (read(go_fd, &go, 1) != 1 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
		_exit(126);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		_exit(125);
	(void)umask(022);
	if (dup2(out_fd, 1) < 0 || dup2(out_fd, 2) < 0)
		_exit(126);
	(void)execlp("mmdebstrap", "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--include=" PACKAGES,
		     suite, target, sources, (char *)NULL);
	_exit(errno == ENOENT ? 127 : 126);
}

static int map_write(pid_t pid, const char *file)
{
	/* The inverse of template_disk_id(): what is 0 in here is 1 on disk, and so on. */
	static const char map[] = "0 1 1000\n1000 0 1\n1001 1001 64535\n";
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return file_write(AT_FDCWD, path, map);
}

static int start(struct build *b, const char *suite, const char *target, const char *sources, int out_fd, pid_t *ret, struct err *e)
{
	struct clone_args args = { .flags = CLONE_NEWPID | CLONE_NEWNS, .exit_signal = SIGCHLD };
	int go[2] = { FD_NONE, FD_NONE }, r = 0;
	pid_t pid;

	if (b->ids == TEMPLATE_IDS_ROOTLESS) {
		args.flags |= CLONE_NEWUSER;
		/* The /proc of our own pid namespace: in the host's one, the child has another number. */
		if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
			return err_set(e, -errno, "cannot mount /proc for the build; this host hides parts of it, so run the daemon as root");
		if (pipe2(go, O_CLOEXEC) < 0)
			return err_set(e, -errno, "cannot start mmdebstrap");
	}
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		run_mmdebstrap(suite, target, sources, go[0], out_fd);
	if (pid < 0)
		r = err_set(e, -errno, "cannot start mmdebstrap");
	if (pid > 0 && b->ids == TEMPLATE_IDS_ROOTLESS) {
		r = map_write(pid, "uid_map");
		if (r == 0)
			r = map_write(pid, "gid_map");
		if (r == 0)
			r = fd_write_all(go[1], "g", 1);
		if (r < 0)
			(void)err_set(e, r, "cannot map the ids of the new Debian; a range of 65536 in /etc/subuid and /etc/subgid is needed");
	}
	fd_close(&go[0]);
	fd_close(&go[1]);
	if (r < 0 && pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	*ret = pid;
	return r;
}

static int why_failed(const struct said *s, const char *suite, int status, struct err *e)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_why(e, WHY_UNSUPPORTED, -ENOENT, "mmdebstrap is not installed; install it with: apt-get install mmdebstrap");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 125)
		return err_why(e, WHY_UNSUPPORTED, -EPERM, "this host doesn't allow the mounts that building a Debian needs; run the daemon as "
			       "root");
	if (s->no_space)
		return err_why(e, WHY_NO_SPACE, -ENOSPC, "the disk of the state directory is full: remove something, or choose another state "
			       "directory");
	if (s->no_network)
		return err_why(e, WHY_UNSUPPORTED, -EHOSTUNREACH, "the Debian mirror can't be reached (%.200s); look at /etc/apt/sources.list "
			       "and at the network of this host", s->network);
	if (s->no_release) {
		const char *near = nearest_word(suite, suites, sizeof(suites) / sizeof(suites[0]));

		return err_why(e, WHY_NOT_FOUND, -ENOENT, "the mirror has no suite '%s'%s%s%s", suite,
			       near && strcmp(near, suite) != 0 ? "; did you mean '" : "", near && strcmp(near, suite) != 0 ? near : "",
			       near && strcmp(near, suite) != 0 ? "'?" : "");
	}
	if (s->no_key)
		return err_why(e, WHY_UNSUPPORTED, -EKEYREJECTED, "the mirror's signature of '%s' can't be checked with the keys of this host; "
			       "install a newer debian-archive-keyring", suite);
	if (WIFSIGNALED(status))
		return err_why(e, WHY_INTERNAL, -EIO, "mmdebstrap was killed by signal %d; the host may be short of memory",
			       WTERMSIG(status));
	return err_why(e, WHY_INTERNAL, -EIO, "mmdebstrap failed: %.300s (the log has more)",
		       s->last_error[0] ? s->last_error : "it didn't say why");
}

/* The mirror stays, a login for it doesn't. 0 also when the file isn't there. */
static int logins_drop(struct build *b, int dir_fd, const char *path)
{
	OWN_BUF t = BUF_INIT(SOURCES_MAX);
	int r = place_read(dir_fd, path, &t);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = secret_filter("apt/sources.list", &t);
	if (r == 0 && unlinkat(dir_fd, path, 0) < 0)
		r = -errno;
	return r < 0 ? r : place_file(b, dir_fd, path, 0644, 0, 0, t.data ? t.data : "", t.len);
}

/* What the host has put in, and what every box gets of its own. */
static int finish(struct build *b, struct err *e)
{
	static const struct { const char *path, *text; unsigned mode; } own[] = {
		{ "etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n", 0644 },
		{ "etc/resolv.conf", "", 0644 }, { "etc/hostname", "box\n", 0644 }, { "etc/machine-id", "", 0444 },
	};
	OWN_FD etc = tree_open(b->root_fd, "etc", O_RDONLY | O_DIRECTORY);
	OWN_FD list = FD_NONE;
	struct dirent **found = NULL;
	int r = etc < 0 ? etc : 0, n;

	for (size_t i = 0; r == 0 && i < sizeof(own) / sizeof(own[0]); i++) {
		(void)unlinkat(etc, own[i].path + 4, 0);
		r = place_file(b, etc, own[i].path + 4, own[i].mode, 0, 0, own[i].text, strlen(own[i].text));
	}
	if (r == 0)
		r = logins_drop(b, etc, "apt/sources.list");
	if (r == 0)
		list = tree_open(etc, "apt/sources.list.d", O_RDONLY | O_DIRECTORY);
	n = list < 0 ? -1 : scandirat(list, ".", &found, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (r == 0 && found[i]->d_name[0] != '.')
			r = logins_drop(b, list, found[i]->d_name);
		free(found[i]);
	}
	free(found);
	/* The engine brings a /dev of its own; device nodes of the host's kernel have no business on disk. */
	if (r == 0)
		r = tree_remove(b->root_fd, "dev", NULL);
	if (r < 0)
		return err_set(e, r, "cannot finish the new Debian");
	return root_finish(b, true, e);
}

int debian_build(struct build *b, const char *suite, struct err *e)
{
	struct mirrors m;
	struct said said = { 0 };
	char target[PATH_MAX + 8], sources[PATH_MAX + 10], self_dir[64], dir[PATH_MAX];
	int out[2], status = 0, r;
	ssize_t k;
	pid_t pid = -1;

	if (b->ids == TEMPLATE_IDS_ONE)
		return err_why(e, WHY_UNSUPPORTED, -EPERM, "a Debian needs the ids of its users, and you have one id only; add a range of 65536 "
			       "to /etc/subuid and /etc/subgid, or run the daemon as root");
	if (!b->contained)
		return err_why(e, WHY_UNSUPPORTED, -EPERM, "building a Debian needs a pid namespace of its own, which this host doesn't allow; "
			       "run the daemon as root");
	environment();
	host_mirrors(b->host_fd, &m);
	if (!*suite)
		suite = m.code[0] ? m.code : "stable";
	r = sources_write(b, &m, suite);
	if (r < 0)
		return err_set(e, r, "cannot write the list of sources for mmdebstrap");
	/* By path: mmdebstrap closes what it inherits. */
	(void)snprintf(self_dir, sizeof(self_dir), "/proc/self/fd/%d", b->dir_fd);
	k = readlink(self_dir, dir, sizeof(dir) - 10);
	if (k < 0)
		return err_set(e, -errno, "cannot find the directory of the build");
	dir[k] = '\0';
	if (pipe2(out, O_CLOEXEC) < 0)
		return err_set(e, -errno, "cannot start mmdebstrap");
	build_log(b, "making Debian '%s' with mmdebstrap", suite);
	build_at(b, "starting mmdebstrap");
	(void)snprintf(target, sizeof(target), "%s/root", dir);
	(void)snprintf(sources, sizeof(sources), "%s/sources", dir);
	r = start(b, suite, target, sources, out[1], &pid, e);
	(void)close(out[1]);
	if (r == 0)
		hear(b, &said, out[0]);
	(void)close(out[0]);
	if (r == 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	(void)unlinkat(b->dir_fd, "sources", 0);
	if (r < 0)
		return r;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return why_failed(&said, suite, status, e);
	return finish(b, e);
}
