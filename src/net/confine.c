/* SPDX-License-Identifier: Apache-2.0 */
#include "net/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

#ifdef CUBBY_THIN
#include "net/gateway_filter.h"
enum { WATCHED = 0 };
#else
enum { WATCHED = 1 };	/* a sanitized build: the leak checker reads /proc and traces its own process when it ends */
#endif

static void say(struct json_out *o, const char *id, bool on, const char *what)
{
	json_put_obj(o, NULL);
	json_put_str(o, "id", id);
	json_put_bool(o, "on", on);
	json_put_str(o, "what", what);
	json_end_obj(o);
}

/*
 * Stage 1: an empty, read-only root. Takes away every path; must not take away descriptors. Needs the right to mount, in the
 * namespace that the daemon lives in.
 */
static bool empty_root(void)
{
	static const char *const places[] = { "/tmp", "/run", "/proc" };

	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0)
		return false;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (mount("none", places[i], "tmpfs", MS_NODEV | MS_NOEXEC | MS_NOSUID | MS_RDONLY, "size=4k,nr_inodes=2,mode=0") < 0)
			continue;
		if (chdir(places[i]) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
			return false;
		return true;
	}
	return false;
}

/* Stage 2: no capability ever again, other ids, no groups. Without --uid the ids stay: a user's own daemon has no others to give. */
static int drop_ids(uid_t uid, gid_t gid, struct err *e)
{
	/* Up to the first one that the kernel doesn't have. Who lacks CAP_SETPCAP has no_new_privs instead. */
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	if (uid == (uid_t)-1)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return err_set(e, -errno, "cannot become user %u, group %u", (unsigned)uid, (unsigned)gid);
	return 0;
}

/* Stage 3: none now either, and none by executing something. */
static int drop_caps(struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, none) < 0)
		return err_set(e, -errno, "cannot give up the capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, -errno, "cannot give up new privileges");
	if (prctl(PR_SET_DUMPABLE, WATCHED, 0, 0, 0) < 0)
		return err_set(e, -errno, "cannot turn off core dumps");
	return 0;
}

/*
 * Stage 4: Landlock (landlock(7)) without a rule: no path can be opened, no TCP port bound, no abstract unix socket reached, no signal
 * sent. Version 6 of its interface has all of this.
 */
static int landlock(void)
{
	struct {
		uint64_t fs, net, scoped;
	} a = { 0 };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1u /* LANDLOCK_CREATE_RULESET_VERSION */);
	int fd, r = 0;

	if (abi <= 0)
		return 0;
	a.fs = (UINT64_C(1) << (abi >= 5 ? 16 : abi >= 3 ? 15 : abi == 2 ? 14 : 13)) - 1;
	if (abi >= 4)
		a.net = 1;	/* LANDLOCK_ACCESS_NET_BIND_TCP */
	if (abi >= 6)
		a.scoped = 3;	/* abstract unix sockets, signals */
	fd = (int)syscall(SYS_landlock_create_ruleset, &a, abi >= 6 ? 24 : abi >= 4 ? 16 : 8, 0);
	if (fd < 0)
		return 0;
	if (syscall(SYS_landlock_restrict_self, fd, 0) == 0)
		r = (int)abi;
	(void)close(fd);
	return r;
}

/* Stage 5: the allow-list of tools/seccomp-gen.c. What isn't on it ends the gateway. */
static int filter(struct err *e)
{
#ifdef CUBBY_THIN
	const struct sock_fprog f = {
		.len = sizeof(gateway_filter) / sizeof(gateway_filter[0]), .filter = (struct sock_filter *)gateway_filter,
	};

	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &f) < 0)
		return err_set(e, -errno, "cannot load the system call filter of the gateway");
#else
	(void)e;	/* sanitizers need other calls */
#endif
	return 0;
}

int confine(uid_t uid, gid_t gid, struct buf *grade, unsigned *ret_files, struct err *e)
{
	const struct rlimit none = { 0, 0 };
	struct rlimit files;
	struct json_out o;
	bool root, pings;
	int r, ll, ping;

	/* Every connection takes two. */
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_set(e, -errno, "cannot read the limit of open files");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0 && getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_set(e, -errno, "cannot read the limit of open files");
	*ret_files = files.rlim_cur > 1u << 22 ? 1u << 22 : (unsigned)files.rlim_cur;
	(void)setrlimit(RLIMIT_CORE, &none);
	root = !WATCHED && empty_root();
	r = drop_ids(uid, gid, e);
	if (r == 0)
		r = drop_caps(e);
	if (r < 0)
		return r;
	ll = WATCHED ? 0 : landlock();
	/* There was a thread, for entering the namespace; there is none from here on, and no process. */
	if (!WATCHED)
		(void)setrlimit(RLIMIT_NPROC, &none);
	ping = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
	pings = ping >= 0;
	fd_close(&ping);
	r = filter(e);
	if (r < 0)
		return r;
	json_out_init(&o, grade);
	json_put_arr(&o, NULL);
	say(&o, "gateway-id", uid != (uid_t)-1,
	    uid != (uid_t)-1 ? "The gateway: an id of its own" :
			       "The gateway: the id of the daemon's user, as that user's own daemon can't have another");
	say(&o, "gateway-root", root,
	    root ? "The gateway: an empty root" :
		   "The gateway: this host doesn't let it mount an empty root (user namespaces with mounts are needed)");
	say(&o, "gateway-landlock", ll > 0,
	    ll > 0 ? "The gateway: Landlock: no path, no signal" :
		     "The gateway: no Landlock (Linux 5.13 or later, with landlock among the kernel's lsm=)");
#ifdef CUBBY_THIN
	say(&o, "gateway-filter", true, "The gateway: only the system calls of its loop");
#else
	say(&o, "gateway-filter", false, "The gateway: no system call filter, because sanitizers are built in");
#endif
	say(&o, "gateway-ping", pings, pings ? "The gateway: pings of boxes go out" :
	    "The gateway: pings of boxes are refused: this host gives no ping sockets (net.ipv4.ping_group_range)");
	json_end_arr(&o);
	return buf_error(grade) ? err_set(e, buf_error(grade), "cannot describe the gateway's confinement") : 0;
}
