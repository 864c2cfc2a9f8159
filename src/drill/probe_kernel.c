/* SPDX-License-Identifier: Apache-2.0 */
/* Doors of the kernel: system calls that a box has no business with. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>

#include "drill/probe.h"

static int do_bpf(int argc, char **argv)
{
	union bpf_attr attr;

	(void)argc;
	(void)argv;
	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = 4;
	attr.value_size = 4;
	attr.max_entries = 1;
	return verdict(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)), "a BPF map");
}

static int do_io_uring(int argc, char **argv)
{
	uint32_t params[30] = { 0 };	/* struct io_uring_params: 120 bytes */

	(void)argc;
	(void)argv;
	return verdict(syscall(SYS_io_uring_setup, 1, params), "an io_uring");
}

static int do_userfaultfd(int argc, char **argv)
{
	long flags = argc > 0 && strcmp(argv[0], "user") == 0 ? 1 /* UFFD_USER_MODE_ONLY */ : 0;

	return verdict(syscall(SYS_userfaultfd, O_CLOEXEC | flags), "userfaultfd");
}

static int do_keyctl(int argc, char **argv)
{
	const char *what = argc > 0 ? argv[0] : "session";

	if (strcmp(what, "add") == 0)
		return verdict(syscall(SYS_add_key, "user", "cubby-probe", "x", 1, KEY_SPEC_PROCESS_KEYRING), "add_key");
	if (strcmp(what, "request") == 0)
		return verdict_after_check(syscall(SYS_request_key, "user", "cubby-probe", NULL, 0), "request_key");
	return verdict(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1), "keyctl");
}

/* Needs no hardware: a software counter of our own. */
static int do_perf(int argc, char **argv)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
					.config = PERF_COUNT_SW_TASK_CLOCK };

	(void)argc;
	(void)argv;
	return verdict(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "a perf event");
}

/* The permission is checked before the flags, and these flags are wrong. */
static int do_kexec(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_kexec_load, 0, 0x7fffffff, NULL, ~0ul), "kexec_load");
}

static int do_kexec_file(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, ~0ul), "kexec_file_load");
}

static int module_load(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_init_module, NULL, 0, NULL), "init_module");
}

static int module_unload(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_delete_module, "no such module", O_NONBLOCK), "delete_module");
}

/* Wrong magic: looked at after the capability. */
static int reboot_badarg(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_reboot, 0, 0, 0, NULL), "reboot");
}

static int do_swapon(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(swapon("/nonexistent", 0), "swapon");
}

static int settime_bad(int argc, char **argv)
{
	struct timex tx = { .modes = ADJ_TICK, .tick = 1 };	/* far below what the kernel takes */

	(void)argc;
	(void)argv;
	return verdict_after_check(adjtimex(&tx), "adjtimex");
}

static int do_syslog(int argc, char **argv)
{
	char buf[64];

	(void)argc;
	(void)argv;
	return verdict(klogctl(3, buf, sizeof(buf)), "the kernel log");
}

static long name_or_number(const char *text)
{
	static const struct {
		const char *name;
		long value;
	} names[] = {
		{ "unix", 1 }, { "inet", 2 }, { "ax25", 3 }, { "ipx", 4 }, { "appletalk", 5 }, { "x25", 9 }, { "inet6", 10 },
		{ "netlink", 16 }, { "packet", 17 }, { "rds", 21 }, { "llc", 26 }, { "can", 29 }, { "tipc", 30 },
		{ "bluetooth", 31 }, { "alg", 38 }, { "nfc", 39 }, { "vsock", 40 }, { "kcm", 41 }, { "qipcrtr", 42 },
		{ "smc", 43 }, { "xdp", 44 }, { "mctp", 45 }, { "stream", SOCK_STREAM }, { "dgram", SOCK_DGRAM },
		{ "raw", SOCK_RAW }, { "seqpacket", SOCK_SEQPACKET }, { "dccp", 6 },
		{ "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS }, { "pid", CLONE_NEWPID }, { "net", CLONE_NEWNET },
		{ "ipc", CLONE_NEWIPC }, { "uts", CLONE_NEWUTS }, { "cgroup", CLONE_NEWCGROUP }, { "time", 0x80 },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(names[i].name, text) == 0)
			return names[i].value;
	}
	return (long)number(text);
}

static int do_socket(int argc, char **argv)
{
	int proto = argc > 2 ? (int)number(argv[2]) : 0;

	return verdict(socket((int)name_or_number(argv[0]), (int)name_or_number(argv[1]) | SOCK_CLOEXEC, proto), argv[0]);
}

static int do_unshare(int argc, char **argv)
{
	(void)argc;
	return verdict(unshare((int)name_or_number(argv[0])), argv[0]);
}

static int child_of_clone(void *arg)
{
	(void)arg;
	return 0;
}

/* The same by clone() and by clone3(), which a filter can't look into. */
static int do_clone(int argc, char **argv)
{
	static char stack[65536] __attribute__((aligned(16)));
	int flags = (int)name_or_number(argv[0]);
	pid_t pid;

	(void)argc;
	pid = clone(child_of_clone, stack + sizeof(stack), flags | SIGCHLD, NULL);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return verdict(pid, argv[0]);
}

static int do_clone3(int argc, char **argv)
{
	struct {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} args = { .flags = (uint64_t)name_or_number(argv[0]), .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	(void)argc;
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return verdict(pid, argv[0]);
}

static int do_setns(int argc, char **argv)
{
	int fd = open(argv[0], O_RDONLY | O_CLOEXEC);

	(void)argc;
	if (fd < 0)
		return refused(errno, "%s", argv[0]);
	return verdict(setns(fd, 0), argv[0]);
}

static int do_ptrace(int argc, char **argv)
{
	pid_t pid = (pid_t)number(argv[0]);
	long r = ptrace(PTRACE_SEIZE, pid, NULL, NULL);

	(void)argc;
	return verdict(r, "ptrace");
}

static int vm_readv(int argc, char **argv)
{
	char buf[8];
	struct iovec here = { buf, sizeof(buf) }, there = { (void *)0x1000, sizeof(buf) };
	long r = process_vm_readv((pid_t)number(argv[0]), &here, 1, &there, 1, 0);

	(void)argc;
	return verdict_after_check(r, "process_vm_readv");
}

static int pidfd_getfd(int argc, char **argv)
{
	int fd = (int)syscall(SYS_pidfd_open, (pid_t)number(argv[0]), 0);

	(void)argc;
	if (fd < 0)
		return refused(errno, "pidfd_open");
	return verdict(syscall(SYS_pidfd_getfd, fd, (int)number(argv[1]), 0), "pidfd_getfd");
}

/* A pseudo-terminal of our own as the controlling one; then push a key into it. `high`: with bits that some filters miss. */
static int do_tiocsti(int argc, char **argv)
{
	unsigned long request = TIOCSTI;
	int master = -1, tty;
	char c = 'x';

	if (argc > 0 && strcmp(argv[0], "high") == 0)
		request |= 0xdead00000000ul;
	tty = argc > 1 ? open(argv[1], O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
	if (argc <= 1) {
		int number_of, unlock = 0;
		char path[32];

		master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &number_of) < 0)
			return refused(errno, "a pseudo-terminal");
		snprintf(path, sizeof(path), "/dev/pts/%d", number_of);
		/* A session leader can have a controlling terminal; a group leader first has to be somebody's child. */
		if (getpgrp() == getpid()) {
			pid_t pid = fork();
			int status;

			if (pid > 0) {
				waitpid(pid, &status, 0);
				return WIFEXITED(status) ? WEXITSTATUS(status) : USAGE;
			}
		}
		setsid();
		tty = open(path, O_RDWR | O_CLOEXEC);
		if (tty >= 0)
			ioctl(tty, TIOCSCTTY, 0);
	}
	if (tty < 0)
		return refused(errno, "the terminal");
	{
		int r = verdict(syscall(SYS_ioctl, tty, request, &c), "TIOCSTI");

		/* Only one process of the two may print; exit() of the child flushes its line. */
		exit(r);
	}
}

static int do_tioclinux(int argc, char **argv)
{
	char sub[8] = { 6 };	/* TIOCL_GETSHIFTSTATE: harmless */

	(void)argc;
	(void)argv;
	return verdict(syscall(SYS_ioctl, 0, 0x541cul, sub), "TIOCLINUX");
}

static int realtime(int argc, char **argv)
{
	struct sched_param p = { .sched_priority = 1 };

	(void)argc;
	(void)argv;
	return verdict(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &p), "SCHED_FIFO");
}

static int do_nice(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict(setpriority(PRIO_PROCESS, 0, -10), "nice -10");
}

static int do_mlock(int argc, char **argv)
{
	size_t n = (size_t)number(argc > 0 ? argv[0] : "64M");
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return refused(errno, "mmap");
	return verdict(mlock(p, n), "mlock");
}

static int raise_rlimit(int argc, char **argv)
{
	struct rlimit lim;

	(void)argc;
	(void)argv;
	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return refused(errno, "getrlimit");
	lim.rlim_max += 1;
	return verdict(setrlimit(RLIMIT_NOFILE, &lim), "a higher hard limit of open files");
}

/* The first message of any nftables program. */
static int do_nft(int argc, char **argv)
{
	struct {
		struct nlmsghdr h;
		struct nfgenmsg g;
	} msg = { .h = { .nlmsg_len = sizeof(msg), .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK, .nlmsg_seq = 1,
			 .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN } };
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
		char more[512];
	} answer;
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	ssize_t n;

	(void)argc;
	(void)argv;
	if (s < 0 || send(s, &msg, sizeof(msg), 0) < 0)
		return refused(errno, "netfilter's netlink");
	n = recv(s, &answer, sizeof(answer), 0);
	if (n < (ssize_t)sizeof(struct nlmsghdr))
		return refused(errno, "no answer");
	if (answer.h.nlmsg_type == NLMSG_ERROR && answer.e.error < 0)
		return refused(-answer.e.error, "nf_tables");
	return through("nf_tables answers");
}

static int cgroup_mount(int argc, char **argv)
{
	const char *at = argc > 1 ? argv[1] : "/tmp";

	if (strcmp(argv[0], "v2") == 0)
		return verdict(mount("none", at, "cgroup2", 0, NULL), "cgroup2");
	return verdict(mount("none", at, "cgroup", 0, argv[0]), argv[0]);
}

/* Its own value is written back, so that nothing changes when it is let through. */
static int sysctl_write(int argc, char **argv)
{
	char path[512], value[4096];
	int in, out;
	ssize_t n;

	(void)argc;
	snprintf(path, sizeof(path), "/proc/sys/%s", argv[0]);
	for (char *p = path + 10; *p; p++) {
		if (*p == '.')
			*p = '/';
	}
	out = open(path, O_WRONLY | O_CLOEXEC);
	if (out < 0)
		return refused(errno, "%s", argv[0]);
	in = open(path, O_RDONLY | O_CLOEXEC);
	n = in < 0 ? -1 : read(in, value, sizeof(value));
	if (n <= 0)
		return through("%s opens for writing", argv[0]);
	return verdict(write(out, value, (size_t)n), argv[0]);
}

static int oom_adjust(int argc, char **argv)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	const char *text = argc > 0 ? argv[0] : "-1000";

	return verdict(fd < 0 ? -1 : write(fd, text, strlen(text)), "oom_score_adj");
}

/* kill, SIGNAL 0 unless given. */
static int do_kill(int argc, char **argv)
{
	return verdict(kill((pid_t)number(argv[0]), argc > 1 ? (int)number(argv[1]) : 0), argv[0]);
}

static int do_setuid(int argc, char **argv)
{
	uid_t id = (uid_t)number(argv[0]);

	(void)argc;
	return verdict(setresuid(id, id, id), argv[0]);
}

static int do_setgroups(int argc, char **argv)
{
	gid_t ids[16];

	for (int i = 0; i < argc; i++)
		ids[i] = (gid_t)number(argv[i]);
	return verdict(setgroups((size_t)argc, ids), "setgroups");
}

static int core_limit(int argc, char **argv)
{
	struct rlimit lim = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };

	(void)argc;
	(void)argv;
	/* What is in force counts, not what the call answers. */
	(void)setrlimit(RLIMIT_CORE, &lim);
	if (getrlimit(RLIMIT_CORE, &lim) < 0)
		return refused(errno, "getrlimit");
	return lim.rlim_cur > 1 ? through("core files up to %llu bytes", (unsigned long long)lim.rlim_cur) :
				  refused(EPERM, "no core file: %llu", (unsigned long long)lim.rlim_cur);
}

static int sethostname_verb(int argc, char **argv)
{
	(void)argc;
	return verdict(sethostname(argv[0], strlen(argv[0])), "sethostname");
}

static int personality_verb(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict(syscall(SYS_personality, 0x0040000ul /* ADDR_NO_RANDOMIZE */), "personality");
}

static int do_iopl(int argc, char **argv)
{
	(void)argc;
	(void)argv;
#ifdef SYS_iopl
	return verdict(syscall(SYS_iopl, 3), "iopl");
#else
	return refused(ENOSYS, "iopl");
#endif
}

static int quota(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict_after_check(syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */ | 0x200, "/nonexistent", 0, NULL), "quotactl");
}

static int do_memfd_secret(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return verdict(syscall(447, 0), "memfd_secret");
}

/* Any system call by number, with up to six numbers. */
static int any_call(int argc, char **argv)
{
	long a[7] = { 0 };

	for (int i = 0; i < argc; i++)
		a[i] = (long)number(argv[i]);
	return verdict(syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]), argv[0]);
}

const struct verb verbs_kernel[] = {
	{ "bpf", "", 0, 0, do_bpf },
	{ "io_uring", "", 0, 0, do_io_uring },
	{ "userfaultfd", "[user]", 0, 1, do_userfaultfd },
	{ "keyctl", "[session|add|request]", 0, 1, do_keyctl },
	{ "perf", "", 0, 0, do_perf },
	{ "kexec", "", 0, 0, do_kexec },
	{ "kexec-file", "", 0, 0, do_kexec_file },
	{ "module-load", "", 0, 0, module_load },
	{ "module-unload", "", 0, 0, module_unload },
	{ "reboot-badarg", "", 0, 0, reboot_badarg },
	{ "swapon", "", 0, 0, do_swapon },
	{ "settime-bad", "", 0, 0, settime_bad },
	{ "syslog", "", 0, 0, do_syslog },
	{ "socket", "FAMILY TYPE [PROTOCOL]", 2, 3, do_socket },
	{ "unshare", "user|mnt|pid|net|ipc|uts|cgroup|time|NUMBER", 1, 1, do_unshare },
	{ "clone", "user|mnt|…", 1, 1, do_clone },
	{ "clone3", "user|mnt|…", 1, 1, do_clone3 },
	{ "setns", "PATH", 1, 1, do_setns },
	{ "ptrace", "PID", 1, 1, do_ptrace },
	{ "vm-readv", "PID", 1, 1, vm_readv },
	{ "pidfd-getfd", "PID FD", 2, 2, pidfd_getfd },
	{ "tiocsti", "[plain|high [TTY]]", 0, 2, do_tiocsti },
	{ "tioclinux", "", 0, 0, do_tioclinux },
	{ "realtime", "", 0, 0, realtime },
	{ "nice", "", 0, 0, do_nice },
	{ "mlock", "[BYTES]", 0, 1, do_mlock },
	{ "raise-rlimit", "", 0, 0, raise_rlimit },
	{ "nft", "", 0, 0, do_nft },
	{ "cgroup-mount", "CONTROLLER|v2 [DIR]", 1, 2, cgroup_mount },
	{ "sysctl-write", "KEY", 1, 1, sysctl_write },
	{ "oom-adjust", "[VALUE]", 0, 1, oom_adjust },
	{ "kill", "PID [SIGNAL]", 1, 2, do_kill },
	{ "setuid", "UID", 1, 1, do_setuid },
	{ "setgroups", "[GID]...", 0, 16, do_setgroups },
	{ "core-limit", "", 0, 0, core_limit },
	{ "sethostname", "NAME", 1, 1, sethostname_verb },
	{ "personality", "", 0, 0, personality_verb },
	{ "iopl", "", 0, 0, do_iopl },
	{ "quotactl", "", 0, 0, quota },
	{ "memfd-secret", "", 0, 0, do_memfd_secret },
	{ "syscall", "NUMBER [ARG]...", 1, 7, any_call },
	{ 0 },
};
