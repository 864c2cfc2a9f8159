/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cubbyd: the one owner of state and the one privileged process. Started by the first command that needs it.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/fd.h"
#include "base/parse.h"
#include "box/run.h"
#include "engine/native/native.h"
#include "net/world.h"

#define PATH_LEN 1000

struct options {
	char state_dir[PATH_LEN], run_dir[PATH_LEN], config[4096];
	int ready_fd;
};

static int usage(FILE *to, int status)
{
	(void)fprintf(to, "Usage: cubbyd [--state-dir DIR] [--run-dir DIR] [--config FILE] [--ready-fd N]\n"
			  "The daemon behind cubby(1), which starts it when it needs it. See cubbyd(8).\n");
	return status;
}

static int complain(const struct err *e)
{
	(void)fprintf(stderr, "cubbyd: %s\n", e->text);
	return 1;
}

/* A program that was started with 0, 1 or 2 closed would take a file for its standard error. */
static int sane_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	} while (fd <= 2);
	(void)close(fd);
	for (fd = 0; fd <= 2; fd++)
		(void)fcntl(fd, F_SETFD, 0);
	return 0;
}

static int absolute(const char *name, const char *value, char *ret, struct err *e)
{
	if (value[0] != '/' || strlen(value) >= PATH_LEN - 100)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s has to be an absolute path of at most %d bytes, not '%.80s'",
			       name, PATH_LEN - 101, value);
	memccpy(ret, value, '\0', PATH_LEN);
	/* "/run/cubby/" and "/run/cubby" are one place, and have one lock. */
	for (size_t n = strlen(ret); n > 1 && ret[n - 1] == '/'; n--)
		ret[n - 1] = '\0';
	return 0;
}

static void sane_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Where things are when nobody says: see ARCHITECTURE.md, Directories. */
static int default_dirs(struct options *o, struct err *e)
{
	const char *state = getenv("CUBBY_STATE_DIR"), *run = getenv("CUBBY_RUN_DIR"), *base;
	char path[PATH_LEN];
	int r;

	if (!o->state_dir[0] && state && state[0]) {
		r = absolute("CUBBY_STATE_DIR", state, o->state_dir, e);
		if (r < 0)
			return r;
	}
	if (!o->run_dir[0] && run && run[0]) {
		r = absolute("CUBBY_RUN_DIR", run, o->run_dir, e);
		if (r < 0)
			return r;
	}
	if (!o->state_dir[0] && geteuid() == 0)
		(void)snprintf(o->state_dir, PATH_LEN, "/var/lib/cubby");
	if (!o->run_dir[0] && geteuid() == 0)
		(void)snprintf(o->run_dir, PATH_LEN, "/run/cubby");
	if (!o->state_dir[0]) {
		base = getenv("XDG_STATE_HOME");
		if (base && base[0] == '/')
			(void)snprintf(path, sizeof(path), "%.800s/cubby", base);
		else if ((base = getenv("HOME")) && base[0] == '/')
			(void)snprintf(path, sizeof(path), "%.800s/.local/state/cubby", base);
		else
			return err_why(e, WHY_BAD_REQUEST, -ENOENT, "neither CUBBY_STATE_DIR nor HOME says where to keep boxes: set one");
		r = absolute("HOME", path, o->state_dir, e);
		if (r < 0)
			return r;
	}
	if (!o->run_dir[0]) {
		base = getenv("XDG_RUNTIME_DIR");
		if (base && base[0] == '/')
			(void)snprintf(path, sizeof(path), "%.800s/cubby", base);
		else
			(void)snprintf(path, sizeof(path), "/tmp/cubby-%u", geteuid());
		r = absolute("XDG_RUNTIME_DIR", path, o->run_dir, e);
		if (r < 0)
			return r;
	}
	if (!o->config[0] && conf_path(o->config, sizeof(o->config)) < 0)
		o->config[0] = '\0';
	return 0;
}

static int parse(int argc, char **argv, struct options *o, struct err *e)
{
	static const struct option longs[] = {
		{ "state-dir", required_argument, NULL, 's' }, { "run-dir", required_argument, NULL, 'r' },
		{ "config", required_argument, NULL, 'c' },    { "ready-fd", required_argument, NULL, 'f' },
		{ "foreground", no_argument, NULL, 'F' },      { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },	       { NULL, 0, NULL, 0 },
	};
	uint64_t fd;
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "h", longs, NULL)) >= 0) {
		switch (c) {
		case 's':
			r = absolute("--state-dir", optarg, o->state_dir, e);
			break;
		case 'r':
			r = absolute("--run-dir", optarg, o->run_dir, e);
			break;
		case 'c':
			(void)snprintf(o->config, sizeof(o->config), "%s", optarg);
			break;
		case 'f':
			if (parse_u64(optarg, 1000, &fd) < 0 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
				return err_why(e, WHY_BAD_REQUEST, -EINVAL, "--ready-fd has to be an open descriptor, not '%s'", optarg);
			o->ready_fd = (int)fd;
			break;
		case 'F':	/* it never goes to the background by itself */
			break;
		case 'h':
			exit(usage(stdout, 0));
		case 'v':
			(void)printf("cubbyd %s\n", CUBBY_VERSION);
			exit(0);
		default:
			exit(usage(stderr, 2));
		}
	}
	if (r == 0 && optind < argc)
		exit(usage(stderr, 2));
	return r;
}

/* A program of ours stands beside this one, or where the build put it. */
static int find_program(const char *name, char *ret, size_t n, struct err *e)
{
	const char *dirs[] = { ret, getenv("CUBBY_LIBEXEC"), CUBBY_LIBEXEC_DIR };
	char self[4096], path[4200];
	ssize_t k = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (k > 0) {
		self[k] = '\0';
		*strrchr(self, '/') = '\0';
		dirs[0] = self;
	} else {
		dirs[0] = NULL;
	}
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		if (!dirs[i] || dirs[i][0] != '/')
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		if (access(path, R_OK) == 0 && strlen(path) < n) {
			memccpy(ret, path, '\0', n);
			return 0;
		}
	}
	return err_why(e, WHY_NOT_FOUND, -ENOENT, "%s is neither beside cubbyd nor in %s: install cubby anew", name,
		       CUBBY_LIBEXEC_DIR);
}

static void say_ready(void *arg)
{
	int *fd = arg;

	if (*fd >= 0)
		(void)fd_write_all(*fd, "R", 1);
	fd_close(fd);
	/* Who started us has got the answer, and what comes later must not hold their pipe. */
	if (!isatty(2)) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0)
			(void)dup2(null, 2);
		fd_close(&null);
	}
}

int main(int argc, char **argv)
{
	static struct conf conf;
	struct options o = { .ready_fd = FD_NONE };
	struct err e = ERR_INIT;
	char init[4200], gateway[4200], tag[16];
	struct net_setup net = { .ns = FD_NONE };
	struct err no_net = ERR_INIT;
	int locks[2], r;
	unsigned ids = 0;
	bool rootless;

	if (sane_stdio() < 0)
		return 125;
	/* Whoever starts us may ignore or block any; with SIGCHLD ignored, waiting for a child fails (wait(2)). */
	sane_signals();
	(void)umask(022);
	r = parse(argc, argv, &o, &e);
	if (r == 0)
		r = default_dirs(&o, &e);
	if (r < 0)
		return complain(&e) + 1;
	rootless = rootless_is();
	r = conf_load(o.config[0] ? o.config : NULL, &conf, &e);
	if (r == 0)
		r = daemon_dirs(o.state_dir, o.run_dir, &e);
	if (r == 0) {
		r = daemon_lock(o.state_dir, o.run_dir, locks, &e);
		if (r == 1)
			return 0;
	}
	if (r == 0)
		r = find_program("cubby-init", init, sizeof(init), &e);
	if (r == 0 && rootless) {
		r = rootless_again(o.run_dir, &ids, &e);
		r = r > 0 ? 0 : r < 0 ? r : rootless_enter(&ids, &e);
	}
	if (r == 0) {
		struct native_config nc = {
			.init_path = init, .state_dir = o.state_dir, .run_dir = o.run_dir, .tag = tag, .rootless = rootless,
		};

		/* Before the builders: what they make has its other end there. Without one boxes can be had, but no network. */
		net.ns = world_new(&no_net);
		if (net.ns < 0)
			net.why = no_net.text;
		else if (find_program("cubby-gateway", gateway, sizeof(gateway), &no_net) == 0)
			net.program = gateway;
		else
			net.why = no_net.text;
		if (net.ns < 0)
			net.ns = FD_NONE;
		nc.gateway_ns = net.ns;
		daemon_tag(o.state_dir, o.run_dir, tag, sizeof(tag));
		r = native_setup(&nc, &e);
	}
	if (r < 0)
		return complain(&e);
	/*
	 * Nobody reads the memory of a process that knows everybody's boxes. A user's own daemon hides nothing from that user,
	 * and could not write its boxes' id maps any more.
	 */
	if (!rootless)
		(void)prctl(PR_SET_DUMPABLE, 0);
	{
		struct daemon_options d = {
			.engine = &engine_native,
			.conf = &conf,
			.state_dir = o.state_dir,
			.run_dir = o.run_dir,
			.net = &net,
			.rootless = rootless,
			.ids = ids,
			.in_builder = native_in_builder,
			.ready = say_ready,
			.ready_arg = &o.ready_fd,
		};

		r = daemon_run(&d, &e);
	}
	native_done();
	return r < 0 ? complain(&e) : 0;
}
