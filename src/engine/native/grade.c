/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in force in a live box, read from the kernel about the box's PID 1: never from what was asked for. The box can't
 * change any of these places.
 */
#include "engine/native/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "net/world.h"

#define FIX_USERNS "sysctl -w user.max_user_namespaces=15000"
#define FIX_CGROUP "mount -t cgroup2 none /sys/fs/cgroup"
#define FIX_DELEGATE "systemctl set-property user@$(id -u).service Delegate=yes"
#define FIX_KERNEL "install a kernel with CONFIG_TIME_NS (Debian 12's has it)"

/* ---- causes ---- */

static bool sysctl_is(const char *path, const char *value)
{
	char text[32];
	ssize_t n = file_read_small(AT_FDCWD, path, text, sizeof(text));

	return n > 0 && strncmp(text, value, strlen(value)) == 0 && (text[strlen(value)] == '\n' || text[strlen(value)] == '\0');
}

int native_userns_err(int code, struct err *e)
{
	static const struct {
		const char *path, *bad, *name, *fix;
	} knobs[] = {
		{ "/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces", "sysctl -w user.max_user_namespaces=15000" },
		{ "/proc/sys/user/max_mnt_namespaces", "0", "user.max_mnt_namespaces", "sysctl -w user.max_mnt_namespaces=15000" },
		{ "/proc/sys/user/max_pid_namespaces", "0", "user.max_pid_namespaces", "sysctl -w user.max_pid_namespaces=15000" },
		{ "/proc/sys/user/max_net_namespaces", "0", "user.max_net_namespaces", "sysctl -w user.max_net_namespaces=15000" },
		{ "/proc/sys/user/max_ipc_namespaces", "0", "user.max_ipc_namespaces", "sysctl -w user.max_ipc_namespaces=15000" },
		{ "/proc/sys/user/max_uts_namespaces", "0", "user.max_uts_namespaces", "sysctl -w user.max_uts_namespaces=15000" },
		{ "/proc/sys/user/max_cgroup_namespaces", "0", "user.max_cgroup_namespaces",
		  "sysctl -w user.max_cgroup_namespaces=15000" },
		{ "/proc/sys/user/max_time_namespaces", "0", "user.max_time_namespaces", "sysctl -w user.max_time_namespaces=15000" },
		{ "/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone",
		  "sysctl -w kernel.unprivileged_userns_clone=1" },
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns",
		  "cubby's AppArmor profile (`./setup install` loads it), or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`" },
	};

	if (code == -ENOSPC || code == -EUSERS || code == -EPERM || code == -EACCES)
		for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
			/* The last two are about ordinary users only. */
			if (i >= 8 && !(native.rootless || geteuid() != 0))
				continue;
			if (sysctl_is(knobs[i].path, knobs[i].bad))
				return err_why(e, WHY_UNSUPPORTED, code,
					       "this host forbids the namespaces that a box is made of (%s is %s): %s%s%s", knobs[i].name,
					       knobs[i].bad, i == 9 ? "use " : "run `", knobs[i].fix, i == 9 ? "" : "`");
		}
	if (code == -EINVAL)
		return err_why(e, WHY_UNSUPPORTED, code,
			       "this kernel lacks namespaces that a box is made of: it takes Linux 6.1 with CONFIG_USER_NS, CONFIG_PID_NS and "
			       "CONFIG_NET_NS");
	if (code == -ENOSPC || code == -EUSERS)
		return err_why(e, WHY_LIMIT, code,
			       "this host has no room for more namespaces: raise user.max_user_namespaces and its neighbours in "
			       "/proc/sys/user, or remove boxes");
	return err_set(e, code, "cannot make the namespaces of a box");
}

int native_missing(const struct box_spec *s, struct err *e)
{
	const struct limits *l = &s->limits;
	const struct {
		enum cg_ctl ctl;
		bool asked;
		const char *name;
	} need[] = {
		{ CG_MEMORY, l->memory != 0, "memory" }, { CG_PIDS, l->pids != 0, "process" },
		{ CG_CPU, l->cpu_milli || (l->cpu_weight && l->cpu_weight != 100), "cpu" },
		{ CG_IO, l->io_read || l->io_write, "io" },
	};

	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++)
		if (need[i].asked && !cgroups_have(&native.cg, need[i].ctl))
			return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP,
				       "the %s limit can't be enforced here: no cgroup controller for it (%s); --allow-weaker starts the box without",
				       need[i].name, native.rootless ? "`" FIX_DELEGATE "`" : "`" FIX_CGROUP "`");
	if (!native.time_ns)
		return err_why(e, WHY_UNSUPPORTED, -EOPNOTSUPP,
			       "this kernel has no time namespaces: " FIX_KERNEL "; --allow-weaker starts the box without");
	return 0;
}

/* ---- grade ---- */

struct facts {
	char status[8192];
	char *mounts;
	unsigned marks;
	pid_t pid;
	const char *id;
	grade_fn *row;
	void *arg;
};

static void tell(const struct facts *f, const char *id, enum grade_level level, const char *what, const char *fix)
{
	const struct grade_row row = { .id = id, .level = level, .what = what, .fix = level == GRADE_ON ? NULL : fix };

	f->row(&row, f->arg);
}

static uint64_t status_num(const struct facts *f, const char *key, int base, uint64_t dflt)
{
	char line[32];
	const char *p;

	(void)snprintf(line, sizeof(line), "\n%s:", key);
	p = strstr(f->status, line);
	return p ? strtoull(p + strlen(line), NULL, base) : dflt;
}

static bool ns_differs(const struct facts *f, const char *name)
{
	char path[64];
	struct stat own, box;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)f->pid, name);
	if (stat(path, &box) < 0)
		return false;
	/* A builder stands in the network namespace of the box it made last. */
	if (strcmp(name, "net") == 0)
		return native.home_net.ino != box.st_ino || native.home_net.dev != box.st_dev;
	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	return stat(path, &own) == 0 && (own.st_ino != box.st_ino || own.st_dev != box.st_dev);
}

static void grade_namespaces(const struct facts *f)
{
	static const struct {
		const char *ns, *id, *on, *off;
	} rows[] = {
		{ "user", "user-namespace", "Root of the box is nobody on the host.", "The box shares the host's users." },
		{ "mnt", "mount-namespace", "The box has its own mounts.", "The box shares the host's mounts." },
		{ "pid", "pid-namespace", "The box sees its own processes only.", "The box shares the host's processes." },
		{ "net", "net-namespace", "The box has its own network stack.", "The box shares the host's network." },
		{ "ipc", "ipc-namespace", "The box has its own IPC objects.", "The box shares the host's IPC objects." },
		{ "uts", "uts-namespace", "The box has its own host name.", "The box shares the host's name." },
		{ "cgroup", "cgroup-namespace", "The box sees its own cgroup as the root.", "The box sees the host's cgroups." },
		{ "time", "time-namespace", "The box has its own monotonic clocks.", "The box shares the host's monotonic clocks." },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool on = ns_differs(f, rows[i].ns);

		tell(f, rows[i].id, on ? GRADE_ON : GRADE_OFF, on ? rows[i].on : rows[i].off,
		     strcmp(rows[i].ns, "time") == 0 ? FIX_KERNEL : FIX_USERNS);
	}
}

/*
 * "Inter-|   Receive …" and one more line of heads, then "  name: numbers". Counts what isn't the loopback, nor one of the tunnels
 * that some kernels put into every namespace, which are down and need power over it that root of a box has with --nesting only.
 */
static unsigned count_interfaces(const char *text, bool *ret_eth0)
{
	static const char *const tunnels[] = { "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6tnl0", "ip6gre0" };
	unsigned n = 0;

	*ret_eth0 = false;
	for (const char *p = text; *p;) {
		const char *end = strchrnul(p, '\n'), *name = p + strspn(p, " "), *colon = memchr(name, ':', (size_t)(end - name));
		size_t len = colon ? (size_t)(colon - name) : 0;
		bool known = len == 2 && memcmp(name, "lo", 2) == 0;

		for (size_t i = 0; i < sizeof(tunnels) / sizeof(tunnels[0]); i++)
			known |= len == strlen(tunnels[i]) && memcmp(name, tunnels[i], len) == 0;
		if (len == strlen(WORLD_BOX_IF) && memcmp(name, WORLD_BOX_IF, len) == 0)
			*ret_eth0 = true;
		else if (colon && !known)
			n++;
		p = *end ? end + 1 : end;
	}
	return n;
}

/* What the interface of a box should lead to: the gateway namespace, which forwards nothing, and nothing else. */
static bool ends_in_gateway(const struct box_run *run)
{
	int fd = native_net_of(run), r = -1;

	if (fd >= 0 && native.gateway_ns >= 0)
		r = plug_leads(native.gateway_ns, fd, NULL);
	fd_close(&fd);
	return r == 1;
}

static void grade_network(const struct facts *f, const struct box_run *run)
{
	OWN_MEM char *text = malloc(65536);
	char path[64];
	bool eth0 = false;
	unsigned others;

	(void)snprintf(path, sizeof(path), "/proc/%d/net/dev", (int)f->pid);
	if (!text || file_read_small(AT_FDCWD, path, text, 65536) < 0) {
		tell(f, "network", GRADE_OFF, "The box's interfaces can't be read.", "cubby stop, cubby start");
		return;
	}
	others = count_interfaces(text, &eth0);
	if (eth0 && !ends_in_gateway(run))
		tell(f, "network", GRADE_OFF, "The box's interface does not end in the gateway.", "start the box again");
	else if (others && (f->marks & MARK_NESTING))
		tell(f, "network", GRADE_WEAK, "The box made interfaces of its own (--nesting); the only way out is the gateway's.",
		     "make the box again without --nesting");
	else if (others)
		tell(f, "network", GRADE_OFF, "The box has an interface that cubby did not make.", "start the box again");
	else
		tell(f, "network", GRADE_ON,
		     eth0 ? "No packet of the box leaves: its only interface ends in the gateway, which forwards nothing." :
			    "The box has no interface: no packet of it leaves.", NULL);
}

/* Is host root, or in a rootless daemon the user, an id of the box? */
static void grade_ids(const struct facts *f)
{
	char path[64], text[1024];
	unsigned long long in, out, n, ids = 0;
	bool root = false;

	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)f->pid);
	if (file_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		text[0] = '\0';
	for (const char *p = text; *p;) {
		const char *end = strchrnul(p, '\n');

		if (sscanf(p, "%llu %llu %llu", &in, &out, &n) == 3) {
			ids += n;
			root |= out == 0;
		}
		p = *end ? end + 1 : end;
	}
	if (native.rootless)
		tell(f, "separate-ids", GRADE_WEAK,
		     ids > 1 ? "All boxes of this user share one range of ids, and their user 1000 is the user itself." :
			       "The box has one id only, and it is the user's own.",
		     ids > 1 ? "use the system's daemon, which runs as root" : "apt-get install uidmap, and give the user a range in /etc/subuid and /etc/subgid");
	else
		tell(f, "separate-ids", ids == BOX_IDS && !root ? GRADE_ON : GRADE_OFF,
		     ids == BOX_IDS && !root ? "The box has a range of ids of its own, without the host's root." :
					       "The box shares ids with the host.",
		     "start the box again");
	tell(f, "idmapped-mounts", native.rootless ? GRADE_WEAK : GRADE_ON,
	     native.rootless ? "Files of the box have shifted owners on disk." :
			       "Files keep plain owners on disk and are shifted when mounted.",
	     "use the system's daemon, which runs as root");
}

static void grade_kernel(const struct facts *f)
{
	const uint64_t allowed =
		(UINT64_C(1) << CAP_CHOWN) | (UINT64_C(1) << CAP_DAC_OVERRIDE) | (UINT64_C(1) << CAP_FSETID) | (UINT64_C(1) << CAP_FOWNER) |
		(UINT64_C(1) << CAP_MKNOD) | (UINT64_C(1) << CAP_NET_RAW) | (UINT64_C(1) << CAP_SETGID) | (UINT64_C(1) << CAP_SETUID) |
		(UINT64_C(1) << CAP_SETFCAP) | (UINT64_C(1) << CAP_SETPCAP) | (UINT64_C(1) << CAP_NET_BIND_SERVICE) |
		(UINT64_C(1) << CAP_SYS_CHROOT) | (UINT64_C(1) << CAP_KILL) | (UINT64_C(1) << CAP_AUDIT_WRITE);
	bool filter = status_num(f, "Seccomp", 10, 0) == 2;
	bool caps = !(status_num(f, "CapBnd", 16, ~UINT64_C(0)) & ~allowed) && status_num(f, "CapInh", 16, 1) == 0 &&
		    status_num(f, "CapAmb", 16, 1) == 0;
	bool nested = f->marks & MARK_NESTING;

	tell(f, "seccomp", filter ? GRADE_ON : GRADE_OFF,
	     filter ? "A filter keeps the box from rare and dangerous system calls." : "The box may use every system call.",
	     "install a kernel with CONFIG_SECCOMP_FILTER");
	tell(f, "capabilities", caps ? GRADE_ON : GRADE_OFF,
	     caps ? "Root of the box has a container's capabilities only." : "Root of the box can have more capabilities than a container's.",
	     "start the box again");
	if (f->marks & MARK_WEAKENED)
		tell(f, "weakened", GRADE_OFF, "The box was made without a defence, for a drill; it lasts a minute at most.", NULL);
	tell(f, "no-nested-userns", nested ? GRADE_WEAK : GRADE_ON,
	     nested ? "The box may make namespaces of its own (--nesting), which opens more of the kernel to it." :
		      "The box can't make user namespaces: tried when it started.",
	     "make the box again without --nesting");
}

static bool mounted(const struct facts *f, const char *at, bool *ret_ro)
{
	/* "36 35 98:0 /root /at ro,nosuid …": the last one at a place is the one that is seen. */
	bool found = false;

	for (const char *p = f->mounts ? f->mounts : ""; *p;) {
		const char *end = strchrnul(p, '\n');
		char point[512], opts[128];

		if (sscanf(p, "%*s %*s %*s %*s %511s %127s", point, opts) == 2 && strcmp(point, at) == 0) {
			found = true;
			*ret_ro = strncmp(opts, "ro", 2) == 0 && (opts[2] == ',' || opts[2] == '\0');
		}
		p = *end ? end + 1 : end;
	}
	return found;
}

static void grade_mounts(const struct facts *f)
{
	bool ro = false, proc, sys;

	proc = mounted(f, "/proc", &ro) && mounted(f, "/proc/sys", &ro) && ro &&
	       (access("/proc/kcore", F_OK) < 0 || mounted(f, "/proc/kcore", &ro)) &&
	       (access("/proc/sysrq-trigger", F_OK) < 0 || mounted(f, "/proc/sysrq-trigger", &ro)) &&
	       (access("/proc/keys", F_OK) < 0 || mounted(f, "/proc/keys", &ro));
	tell(f, "masked-proc", proc ? GRADE_ON : GRADE_OFF,
	     proc ? "Files of /proc that show or steer the host are covered." : "The box sees more of /proc than it should.",
	     "start the box again");
	sys = mounted(f, "/sys", &ro) && ro;
	tell(f, "read-only-sys", sys ? GRADE_ON : GRADE_OFF, sys ? "/sys is read-only." : "/sys can be written.", "start the box again");
	sys = f->mounts && !strstr(f->mounts, " shared:") && !strstr(f->mounts, " master:");
	tell(f, "private-mounts", sys ? GRADE_ON : GRADE_OFF,
	     sys ? "No mount passes between the host and the box." : "Mounts can pass between the host and the box.", "start the box again");
}

static void grade_limit(const struct facts *f, enum cg_ctl ctl, const char *id, const char *v2_file, const char *v1_file,
			const char *what_on, const char *what_none, const char *what_off)
{
	const char *fix = native.rootless ? FIX_DELEGATE : FIX_CGROUP;
	uint64_t n = 0;

	if (!cgroups_have(&native.cg, ctl) || !cgroup_holds(&native.cg, f->id, f->pid))
		tell(f, id, GRADE_OFF, what_off, fix);
	else if (cgroup_read_num(&native.cg, f->id, ctl, v2_file, v1_file, &n) < 0 || n >= UINT64_C(1) << 60)
		tell(f, id, GRADE_WEAK, what_none, "cubby limits");
	else
		tell(f, id, GRADE_ON, what_on, NULL);
}

static void grade_limits(const struct facts *f)
{
	uint64_t swap;

	grade_limit(f, CG_MEMORY, "memory-limit", "memory.max", "memory.limit_in_bytes", "Memory is limited.", "No memory limit was asked for.",
		    "Memory can't be limited here: there is no cgroup controller for it.");
	if (cgroups_have(&native.cg, CG_MEMORY) &&
	    cgroup_read_num(&native.cg, f->id, CG_MEMORY, "memory.swap.max", "memory.memsw.limit_in_bytes", &swap) < 0) {
		bool none = true;
		char text[4096];

		/* One line is the head of the table. */
		if (file_read_small(AT_FDCWD, "/proc/swaps", text, sizeof(text)) > 0) {
			const char *nl = strchr(text, '\n');

			none = !nl || !nl[1];
		}
		tell(f, "swap-limit", none ? GRADE_ON : GRADE_WEAK,
		     none ? "This host has no swap." : "This kernel doesn't count swap: the box avoids it, but isn't held to it.",
		     "boot with swapaccount=1");
	} else {
		grade_limit(f, CG_MEMORY, "swap-limit", "memory.swap.max", "memory.memsw.limit_in_bytes", "Swap is limited.",
			    "No memory limit was asked for, so swap has none.",
			    "Swap can't be limited here: there is no cgroup controller for it.");
	}
	grade_limit(f, CG_PIDS, "pids-limit", "pids.max", "pids.max", "The number of processes is limited.",
		    "No process limit was asked for.",
		    "The number of processes can't be limited here: there is no cgroup controller for it.");
	grade_limit(f, CG_CPU, "cpu-limit", "cpu.max", "cpu.cfs_quota_us", "CPU time is limited.", "No CPU limit was asked for.",
		    "CPU time can't be limited here: there is no cgroup controller for it.");
	grade_limit(f, CG_IO, "io-limit", "io.max", "blkio.throttle.read_bps_device", "Disk speed is limited.",
		    "No disk speed limit was asked for.",
		    "Disk speed can't be limited here: there is no cgroup controller for it.");
}

int native_grade(const char *id, const struct box_run *run, grade_fn *row, void *arg, struct err *e)
{
	struct facts f = { .pid = run->pid, .id = id, .row = row, .arg = arg };
	struct pollfd alive = { .fd = run->pidfd, .events = POLLIN };
	OWN_MEM char *mounts = malloc(65536);
	char path[64];
	ssize_t n;
	int r = native_ready(e);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)run->pid);
	n = file_read_small(AT_FDCWD, path, f.status, sizeof(f.status));
	f.mounts = mounts;
	if (n >= 0 && f.mounts) {
		(void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)run->pid);
		if (file_read_small(AT_FDCWD, path, f.mounts, 65536) < 0)
			f.mounts[0] = '\0';
	}
	f.marks = native_marks(id);
	/* All of it is about the box's PID 1 only if that still lives. */
	if (n < 0 || poll(&alive, 1, 0) != 0)
		return err_why(e, WHY_WRONG_STATE, -ESRCH, "the box does not run");
	grade_namespaces(&f);
	grade_network(&f, run);
	grade_ids(&f);
	grade_kernel(&f);
	grade_mounts(&f);
	grade_limits(&f);
	return 0;
}

/* ---- probe ---- */

/* Ids for a box that has no files and lives for milliseconds: above what anybody hands out. */
#define PROBE_IDS 0x7ff00000u

/* The real thing, with an empty disk: what it turns out to have is what a box gets here. */
int native_probe(grade_fn *row, void *arg, struct err *e)
{
	struct box_spec s = {
		.host_name = "probe", .nparts = 1, .id_base = PROBE_IDS, .throw_away = true, .allow_weaker = true,
		.limits = { .memory = 256 << 20, .pids = 64, .cpu_milli = 1000 },
		.net = native.gateway_ns >= 0,
	};
	char dir[PATH_MAX], box[PATH_MAX], layer[PATH_MAX], run_dir[PATH_MAX], name[PATH_MAX];
	static const char *const left[] = { "box/work/0/work/incompat/volatile/dirty", "box/work/0/work/incompat/volatile",
		"box/work/0/work/incompat", "box/work/0/work",
					    "box/work/0/index", "box/work/0", "box/work", "box/upper/0/proc", "box/upper/0/sys",
					    "box/upper/0/dev", "box/upper/0/run", "box/upper/0", "box/upper", "box", "layer" };
	struct box_run run = { .pidfd = FD_NONE };
	bool builder = native.builder;
	int r = native_ready(e);

	if (r < 0)
		return r;
	id_make(s.id);
	if ((size_t)snprintf(dir, sizeof(dir), "%s/probe.XXXXXX", native.state_dir) >= sizeof(dir) - 16 ||
	    (size_t)snprintf(run_dir, sizeof(run_dir), "%s/boxes/%s", native.run_dir, s.id) >= sizeof(run_dir))
		return err_set(e, -ENAMETOOLONG, "'%s'", native.state_dir);
	if (!mkdtemp(dir))
		return err_set(e, -errno, "cannot make a directory in '%s' for a trial", native.state_dir);
	/* Bounded above. */
	(void)snprintf(box, sizeof(box), "%.4000s/box", dir);
	(void)snprintf(layer, sizeof(layer), "%.4000s/layer", dir);
	if (mkdir(box, 0700) < 0 || mkdir(layer, 0755) < 0)
		r = err_set(e, -errno, "cannot make a directory in '%s'", dir);
	s.box_dir = box;
	s.run_dir = run_dir;
	s.parts[0] = (struct root_part){ .at = (char *)"/", .layers = { layer }, .nlayers = 1, .idmap = true };
	if (!cgroups_have(&native.cg, CG_MEMORY))
		s.limits.memory = 0;
	if (!cgroups_have(&native.cg, CG_PIDS))
		s.limits.pids = 0;
	if (!cgroups_have(&native.cg, CG_CPU))
		s.limits.cpu_milli = 0;
	native.builder = false;
	if (r == 0)
		r = engine_native.start(&s, &run, e);
	native.builder = builder;
	if (r == 0) {
		struct pollfd p = { .fd = run.pidfd, .events = POLLIN };
		int k;

		r = native_grade(s.id, &run, row, arg, e);
		k = engine_native.kill(s.id, r == 0 ? e : NULL);
		(void)poll(&p, 1, 10000);
		while (waitpid(run.pid, NULL, 0) < 0 && errno == EINTR)
			;
		if (k == 0)
			k = engine_native.forget(s.id, r == 0 ? e : NULL);
		r = r < 0 ? r : k;
		fd_close(&run.pidfd);
	}
	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		(void)snprintf(name, sizeof(name), "%.4000s/%s", dir, left[i]);
		(void)(strstr(name, "dirty") ? unlink(name) : rmdir(name));
	}
	(void)rmdir(dir);
	return r;
}
