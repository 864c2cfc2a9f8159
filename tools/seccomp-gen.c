/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the system call filters of a box and of the gateway at build time, as C arrays of classic BPF.
 *
 *	seccomp-gen ARCH >seal_filter.h			ARCH: x86_64 or aarch64
 *	seccomp-gen ARCH gateway >gateway_filter.h
 *
 * libseccomp knows the numbers of every architecture; the program is laid out here, because its own output has one
 * comparison for each call, and a filter is checked, translated and emulated once per call number when it is loaded.
 * The numbers fall into some sixty ranges with one verdict each; a binary tree over them is a quarter of the size.
 *
 * Everything known that isn't named below is allowed: a box is a computer, and what a call may do is bounded by the
 * user namespace and the capabilities. Named are calls that widen the attack surface of the kernel, or reach what no
 * namespace holds. A call newer than this table is answered with ENOSYS, so that programs take their older way.
 *
 * The gateway is the opposite: one program whose calls are known. What isn't named ends it.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/bpf_common.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { NESTING = 1, NO_SETID = 2, VARIANTS = 4 };
enum { NR_MAX = 512, PROG_MAX = 4096 };

/* How a call is judged. Everything from CHECK on looks at arguments. */
enum verdict {
	ALLOW,
	DENY,		/* EPERM */
	UNKNOWN,	/* ENOSYS */
	CHECK,
	C_SOCKET = CHECK, C_SOCKETPAIR, C_IOCTL, C_CLONE, C_UNSHARE, C_PERSONALITY,
	C_MODE1, C_MODE2, C_OPEN, C_OPENAT, C_SETRLIMIT, C_PRLIMIT, C_FCNTL,
	NO_XATTR,	/* EOPNOTSUPP */
	KILL,
	C_GW_SOCKET, C_GW_MEMORY,
};

struct rule {
	const char *name;
	enum verdict verdict;
	unsigned unless;	/* variants in which the rule does not hold */
	unsigned only;		/* variants in which alone it holds; 0: all */
	int nr;			/* for calls that libseccomp may be too old for; the same on all architectures */
};

static const struct rule rules[] = {
	/* Keyrings are not namespaced by user id alone, and their quota is the host's. */
	{ "add_key", DENY }, { "request_key", DENY }, { "keyctl", DENY },
	{ "bpf", DENY }, { "perf_event_open", DENY }, { "userfaultfd", DENY }, { "lookup_dcookie", DENY },
	{ "io_uring_setup", DENY }, { "io_uring_enter", DENY }, { "io_uring_register", DENY },
	{ "kexec_load", DENY }, { "kexec_file_load", DENY },
	{ "init_module", DENY }, { "finit_module", DENY }, { "delete_module", DENY }, { "create_module", DENY },
	{ "reboot", DENY }, { "swapon", DENY }, { "swapoff", DENY }, { "acct", DENY }, { "syslog", DENY },
	{ "settimeofday", DENY }, { "clock_settime", DENY }, { "clock_adjtime", DENY }, { "adjtimex", DENY },
	{ "iopl", DENY }, { "ioperm", DENY }, { "quotactl", DENY }, { "quotactl_fd", DENY },
	{ "nfsservctl", DENY }, { "_sysctl", DENY }, { "uselib", DENY }, { "sysfs", DENY }, { "ustat", DENY },
	{ "vhangup", DENY }, { "move_pages", DENY }, { "migrate_pages", DENY },
	/* Handles reach files that no path of the box leads to; fanotify sees other people's files. */
	{ "open_by_handle_at", DENY }, { "fanotify_init", DENY }, { "fanotify_mark", DENY },
	{ "pidfd_getfd", DENY }, { "kcmp", DENY },
	/* Mounts and namespaces: what nesting opens. clone3() isn't filtered: user.max_user_namespaces closes that way. */
	{ "mount", DENY, NESTING }, { "umount2", DENY, NESTING }, { "pivot_root", DENY, NESTING },
	{ "fsopen", DENY, NESTING }, { "fsconfig", DENY, NESTING }, { "fsmount", DENY, NESTING },
	{ "fspick", DENY, NESTING }, { "move_mount", DENY, NESTING }, { "open_tree", DENY, NESTING },
	{ "mount_setattr", DENY, NESTING }, { "setns", DENY, NESTING },
	{ "open_tree_attr", DENY, NESTING, 0, 467 },
	{ "statmount", DENY, NESTING, 0, 457 }, { "listmount", DENY, NESTING, 0, 458 },
	{ "clone", C_CLONE, NESTING }, { "unshare", C_UNSHARE, NESTING },
	{ "socket", C_SOCKET }, { "socketpair", C_SOCKETPAIR }, { "ioctl", C_IOCTL }, { "personality", C_PERSONALITY },
	/* A limit of core files other than the 1 that a box gets could start the host's crash handler: answered, and not done. */
	{ "setrlimit", C_SETRLIMIT }, { "prlimit64", C_PRLIMIT },
	/* Calls that the oldest libseccomp in use has no name for. */
	{ "set_mempolicy_home_node", ALLOW, 0, 0, 450 }, { "cachestat", ALLOW, 0, 0, 451 },
	{ "fchmodat2", ALLOW, 0, 0, 452 }, { "map_shadow_stack", ALLOW, 0, 0, 453 },
	{ "futex_wake", ALLOW, 0, 0, 454 }, { "futex_wait", ALLOW, 0, 0, 455 }, { "futex_requeue", ALLOW, 0, 0, 456 },
	{ "mseal", ALLOW, 0, 0, 462 }, { "setxattrat", ALLOW, 0, 0, 463 }, { "getxattrat", ALLOW, 0, 0, 464 },
	{ "listxattrat", ALLOW, 0, 0, 465 }, { "removexattrat", ALLOW, 0, 0, 466 },
	{ "file_getattr", ALLOW, 0, 0, 468 },
	/* Set-id bits. openat2() passes its mode in memory, where a filter can't look. */
	{ "chmod", C_MODE1, 0, NO_SETID }, { "fchmod", C_MODE1, 0, NO_SETID }, { "fchmodat", C_MODE2, 0, NO_SETID },
	{ "fchmodat2", C_MODE2, 0, NO_SETID, 452 }, { "mknod", C_MODE1, 0, NO_SETID }, { "mknodat", C_MODE2, 0, NO_SETID },
	{ "creat", C_MODE1, 0, NO_SETID }, { "open", C_OPEN, 0, NO_SETID }, { "openat", C_OPENAT, 0, NO_SETID },
	{ "openat2", UNKNOWN, 0, NO_SETID },
	/* File capabilities are as good as set-id bits, and which attribute is meant a filter can't see. */
	{ "setxattr", NO_XATTR, 0, NO_SETID }, { "lsetxattr", NO_XATTR, 0, NO_SETID }, { "fsetxattr", NO_XATTR, 0, NO_SETID },
	{ "setxattrat", NO_XATTR, 0, NO_SETID, 463 },
	/* A lease on a file of a mount makes programs of the host wait when they open it. */
	{ "fcntl", C_FCNTL },
};

/* cubby-gateway after confine(): sockets, pipes, its loop, memory. No files, no processes, nothing that executes. */
static const struct rule gateway_rules[] = {
	{ "socket", C_GW_SOCKET }, { "connect", ALLOW }, { "bind", ALLOW }, { "accept4", ALLOW }, { "shutdown", ALLOW },
	{ "getsockname", ALLOW }, { "getpeername", ALLOW }, { "setsockopt", ALLOW }, { "getsockopt", ALLOW },
	{ "recvfrom", ALLOW }, { "recvmsg", ALLOW }, { "recvmmsg", ALLOW },
	{ "sendto", ALLOW }, { "sendmsg", ALLOW }, { "sendmmsg", ALLOW },
	{ "read", ALLOW }, { "write", ALLOW }, { "readv", ALLOW }, { "writev", ALLOW }, { "close", ALLOW },
	{ "pipe2", ALLOW }, { "splice", ALLOW }, { "fcntl", ALLOW }, { "fstat", ALLOW }, { "newfstatat", ALLOW },
	{ "epoll_create1", ALLOW }, { "epoll_ctl", ALLOW }, { "epoll_wait", ALLOW }, { "epoll_pwait", ALLOW }, { "poll", ALLOW }, { "ppoll", ALLOW },
	{ "clock_gettime", ALLOW }, { "gettimeofday", ALLOW }, { "getrandom", ALLOW },
	{ "mmap", C_GW_MEMORY }, { "mprotect", C_GW_MEMORY }, { "munmap", ALLOW }, { "mremap", ALLOW }, { "madvise", ALLOW }, { "brk", ALLOW },
	{ "futex", ALLOW }, { "rt_sigprocmask", ALLOW }, { "rt_sigreturn", ALLOW }, { "restart_syscall", ALLOW },
	{ "exit", ALLOW }, { "exit_group", ALLOW },
};

struct prog {
	struct sock_filter at[PROG_MAX];
	unsigned n;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "seccomp-gen: %s\n", what);
	exit(1);
}

static void put(struct prog *p, struct sock_filter f)
{
	if (p->n == PROG_MAX)
		die("the filter is too long");
	p->at[p->n++] = f;
}

#define STMT(code, k) ((struct sock_filter)BPF_STMT((code), (k)))
#define JUMP(code, k, jt, jf) ((struct sock_filter)BPF_JUMP((code), (k), (jt), (jf)))
#define JEQ(k, jt, jf) JUMP(BPF_JMP | BPF_JEQ | BPF_K, (k), (jt), (jf))
#define JSET(k, jt, jf) JUMP(BPF_JMP | BPF_JSET | BPF_K, (k), (jt), (jf))

/* The low half of an argument: all calls judged here take an int, of which the kernel itself ignores the high half. */
static void load_arg(struct prog *p, unsigned n)
{
	put(p, STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * n));
}

static void ret_allow(struct prog *p)
{
	put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

static void ret_errno(struct prog *p, unsigned code)
{
	put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code));
}

/* Allow when the loaded word is one of these, else `code`. */
static void one_of(struct prog *p, const uint32_t *vals, unsigned n, unsigned code)
{
	for (unsigned i = 0; i < n; i++)
		put(p, JEQ(vals[i], (uint8_t)(n - i), 0));
	ret_errno(p, code);
	ret_allow(p);
}

/* Refuse when argument n has one of these bits. */
static void none_of(struct prog *p, unsigned n, uint32_t bits)
{
	load_arg(p, n);
	put(p, JSET(bits, 0, 1));
	ret_errno(p, EPERM);
	ret_allow(p);
}

static void verdict(struct prog *p, enum verdict v)
{
	static const uint32_t pair[] = { AF_UNIX, AF_INET, AF_INET6 };
	/* 0, UNAME26, ADDR_NO_RANDOMIZE (debuggers), PER_LINUX32 with and without, and the question. */
	static const uint32_t persona[] = { 0, 0x0020000, 0x0040000, 0x0008, 0x0020008, 0x0040008, 0xffffffff };
	const uint32_t ns = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
			    CLONE_NEWPID | CLONE_NEWNET;
	const uint32_t creates = 0100 | 020000000;	/* O_CREAT | __O_TMPFILE: then the mode counts */
	const uint32_t setid = S_ISUID | S_ISGID;

	switch (v) {
	case ALLOW:
		ret_allow(p);
		break;
	case DENY:
		ret_errno(p, EPERM);
		break;
	case UNKNOWN:
		ret_errno(p, ENOSYS);
		break;
	case C_SOCKET:
		/* Local, IP, and of netlink what the resolver and ip(8) need. Anything else makes the kernel load modules. */
		load_arg(p, 0);
		put(p, JEQ(AF_UNIX, 7, 0));
		put(p, JEQ(AF_INET, 6, 0));
		put(p, JEQ(AF_INET6, 5, 0));
		put(p, JEQ(AF_NETLINK, 0, 3));
		load_arg(p, 2);
		put(p, JEQ(0, 2, 0));	/* NETLINK_ROUTE */
		ret_errno(p, EPROTONOSUPPORT); /* EPERM would tell libaudit that there is auditing: sudo(8) gives up then */
		ret_errno(p, EAFNOSUPPORT);
		ret_allow(p);
		break;
	case C_SOCKETPAIR:
		load_arg(p, 0);
		one_of(p, pair, 3, EAFNOSUPPORT);
		break;
	case C_IOCTL:
		load_arg(p, 1);
		put(p, JEQ(0x5412, 3, 0));	/* TIOCSTI: typing into a terminal */
		put(p, JEQ(0x541c, 2, 0));	/* TIOCLINUX: the console's selection */
		put(p, JEQ(0x541d, 1, 0));	/* TIOCCONS: taking the console's output */
		ret_allow(p);
		ret_errno(p, EPERM);
		break;
	case C_CLONE:
		none_of(p, 0, ns);
		break;
	case C_UNSHARE:
		none_of(p, 0, ns | 0x80);	/* CLONE_NEWTIME; in clone() the bit belongs to the signal */
		break;
	case C_PERSONALITY:
		load_arg(p, 0);
		one_of(p, persona, 7, EPERM);
		break;
	case C_MODE1:
		none_of(p, 1, setid);
		break;
	case C_MODE2:
		none_of(p, 2, setid);
		break;
	case NO_XATTR:
		ret_errno(p, EOPNOTSUPP);
		break;
	case C_FCNTL:
		load_arg(p, 1);
		put(p, JEQ(1024, 2, 0));	/* F_SETLEASE */
		put(p, JEQ(1024 + 16, 1, 0));	/* F_SETDELEG */
		ret_allow(p);
		ret_errno(p, EINVAL);
		break;
	case C_SETRLIMIT:
		load_arg(p, 0);
		put(p, JEQ(RLIMIT_CORE, 0, 1));
		ret_errno(p, 0);
		ret_allow(p);
		break;
	case C_PRLIMIT:
		load_arg(p, 1);
		put(p, JEQ(RLIMIT_CORE, 0, 5));
		/* Only asking, with no new value: a pointer of which both halves are 0. */
		load_arg(p, 2);
		put(p, JEQ(0, 0, 2));
		put(p, STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * 2 + 4));
		put(p, JEQ(0, 1, 0));
		ret_errno(p, 0);
		ret_allow(p);
		break;
	case KILL:
		put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
		break;
	case C_GW_SOCKET:
		load_arg(p, 0);
		put(p, JEQ(AF_INET, 2, 0));
		put(p, JEQ(AF_INET6, 1, 0));
		put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
		ret_allow(p);
		break;
	case C_GW_MEMORY:
		load_arg(p, 2);
		put(p, JSET(4, 0, 1));		/* PROT_EXEC */
		put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
		ret_allow(p);
		break;
	case C_OPEN:
	case C_OPENAT: {
		unsigned flags = v == C_OPEN ? 1 : 2;

		load_arg(p, flags);
		put(p, JSET(creates, 0, 3));
		load_arg(p, flags + 1);
		put(p, JSET(setid, 0, 1));
		ret_errno(p, EPERM);
		ret_allow(p);
		break;
	}
	}
}

struct range {
	unsigned first;
	enum verdict verdict;
};

/* A binary tree over r[0..n-1]: the number is in the accumulator. */
static void tree(struct prog *p, const struct range *r, unsigned n)
{
	struct prog *left;
	unsigned mid = n / 2;

	if (n == 1) {
		verdict(p, r[0].verdict);
		return;
	}
	left = calloc(1, sizeof(*left));
	if (!left)
		die("out of memory");
	tree(left, r, mid);
	if (left->n <= 255) {
		put(p, JUMP(BPF_JMP | BPF_JGE | BPF_K, r[mid].first, (uint8_t)left->n, 0));
	} else {
		put(p, JUMP(BPF_JMP | BPF_JGE | BPF_K, r[mid].first, 0, 1));
		put(p, STMT(BPF_JMP | BPF_JA, left->n));
	}
	for (unsigned i = 0; i < left->n; i++)
		put(p, left->at[i]);
	free(left);
	tree(p, r + mid, n - mid);
}

/* The whole program: the verdict of every number, and of those above. */
static void lay_out(struct prog *p, uint32_t audit, const enum verdict of[NR_MAX], enum verdict above)
{
	struct range r[NR_MAX + 1];
	unsigned n = 0;

	for (unsigned i = 0; i < NR_MAX; i++)
		if (i == 0 || of[i] != of[i - 1] || of[i] >= CHECK)
			r[n++] = (struct range){ i, of[i] };
	/* Anything above, the x32 numbers (bit 30) among them. */
	if (r[n - 1].verdict != above)
		r[n++] = (struct range){ NR_MAX, above };

	/* A foreign architecture's calls have other numbers: such a program can't be judged, and is killed. */
	put(p, STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	put(p, JEQ(audit, 1, 0));
	put(p, STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	put(p, STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	tree(p, r, n);
}

static void gateway_filter(struct prog *p, uint32_t arch, uint32_t audit)
{
	enum verdict of[NR_MAX];

	for (unsigned i = 0; i < NR_MAX; i++)
		of[i] = KILL;
	for (size_t i = 0; i < sizeof(gateway_rules) / sizeof(gateway_rules[0]); i++) {
		int nr = seccomp_syscall_resolve_name_arch(arch, gateway_rules[i].name);

		if (nr == __NR_SCMP_ERROR || nr >= NR_MAX)
			die(gateway_rules[i].name);
		if (nr >= 0)
			of[nr] = gateway_rules[i].verdict;
	}
	lay_out(p, audit, of, KILL);
}

static void filter(struct prog *p, uint32_t arch, uint32_t audit, unsigned variant)
{
	enum verdict of[NR_MAX];

	for (unsigned i = 0; i < NR_MAX; i++) {
		char *name = seccomp_syscall_resolve_num_arch(arch, (int)i);

		of[i] = name ? ALLOW : UNKNOWN;
		free(name);
	}
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const struct rule *u = &rules[i];
		int nr = u->nr ? u->nr : seccomp_syscall_resolve_name_arch(arch, u->name);

		if (nr == __NR_SCMP_ERROR)
			die(u->name);
		if (nr < 0)	/* this architecture never had it */
			continue;
		if (nr >= NR_MAX)
			die(u->name);
		if ((u->unless & variant) || (u->only && !(u->only & variant)))
			continue;
		of[nr] = u->verdict;
	}
	/* Where nesting lifts a rule of a call without a name in the library, it is simply allowed. */
	if (variant & NESTING)
		of[467] = of[457] = of[458] = ALLOW;
	lay_out(p, audit, of, UNKNOWN);
}

static void print(const struct prog *p, const char *name)
{
	printf("static const struct sock_filter %s[] = {\n", name);
	for (unsigned i = 0; i < p->n; i++)
		printf("\t{ 0x%02x, %u, %u, 0x%08x },\n", p->at[i].code, p->at[i].jt, p->at[i].jf, p->at[i].k);
	printf("};\n");
}

int main(int argc, char **argv)
{
	static struct prog p;
	uint32_t arch, audit;

	const bool gateway = argc == 3 && strcmp(argv[2], "gateway") == 0;

	if (argc == 2 + gateway && strcmp(argv[1], "x86_64") == 0) {
		arch = SCMP_ARCH_X86_64;
		audit = AUDIT_ARCH_X86_64;
	} else if (argc == 2 + gateway && strcmp(argv[1], "aarch64") == 0) {
		arch = SCMP_ARCH_AARCH64;
		audit = AUDIT_ARCH_AARCH64;
	} else {
		die("usage: seccomp-gen x86_64|aarch64 [gateway]");
	}
	if (gateway) {
		printf("/* Made by tools/seccomp-gen for %s. */\n", argv[1]);
		gateway_filter(&p, arch, audit);
		print(&p, "gateway_filter");
		return fflush(stdout) || ferror(stdout);
	}
	printf("/* Made by tools/seccomp-gen for %s. Index: 1 nesting, 2 no_setid. */\n", argv[1]);
	for (unsigned v = 0; v < VARIANTS; v++) {
		char name[32];

		p.n = 0;
		filter(&p, arch, audit, v);
		(void)snprintf(name, sizeof(name), "seal_filter_%u", v);
		print(&p, name);
	}
	printf("static const struct sock_fprog seal_filters[] = {\n");
	for (unsigned v = 0; v < VARIANTS; v++)
		printf("\t{ sizeof(seal_filter_%u) / sizeof(struct sock_filter), (struct sock_filter *)seal_filter_%u },\n", v, v);
	printf("};\n");
	if (fflush(stdout) || ferror(stdout))
		die("cannot write");
	return 0;
}
