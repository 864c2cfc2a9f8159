/* SPDX-License-Identifier: Apache-2.0 */
/* seal_box() in a child: what it refuses is tried without it first, in the same child. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "guest/seal.h"
#include "lib/leak.h"

static char dir[] = "/tmp/cubby-seal.XXXXXX";

/* A system call with the errno it shall give before and after. 0: it shall succeed. */
struct attempt {
	const char *what;
	long nr, a, b, c, d;
	int before, after;
};

/* Runs in the child: prints the first thing that is not as claimed, ends with 0 when all is. */
static int attempt_all(const struct attempt *t, size_t n, bool sealed)
{
	for (size_t i = 0; i < n; i++) {
		long r = syscall(t[i].nr, t[i].a, t[i].b, t[i].c, t[i].d, 0, 0);
		int got = r < 0 ? errno : 0, want = sealed ? t[i].after : t[i].before;

		if (r > 2 && (t[i].nr == SYS_socket || t[i].nr == SYS_open || t[i].nr == SYS_openat || t[i].nr == SYS_creat))
			(void)close((int)r);
		if (got != want) {
			print_message("%s, %s: errno %d, wanted %d\n", t[i].what, sealed ? "sealed" : "before", got, want);
			return 1;
		}
	}
	return 0;
}

static void in_child(const struct attempt *t, size_t n, bool nesting, bool no_setid, int (*more)(void))
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		struct err e = ERR_INIT;

		if (chdir(dir) < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) < 0)
			_exit(77);
		if (attempt_all(t, n, false))
			_exit(1);
		if (seal_box(nesting, no_setid, 0, &e) < 0) {
			print_message("%s\n", e.text);
			_exit(2);
		}
		if (attempt_all(t, n, true))
			_exit(3);
		_exit(more ? more() : 0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
		skip_because("no user namespace can be made here");
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
}

#define P(x) ((long)(uintptr_t)(x))

/* High bits that the kernel ignores must not hide a request from the filter. */
#define HIGH (1L << 32)

static const struct attempt plain[] = {
	{ "a keyring", SYS_keyctl, 0, -3, 0, 0, 0, EPERM },
	{ "a local socket", SYS_socket, AF_UNIX, SOCK_STREAM, 0, 0, 0, 0 },
	{ "an IP socket", SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0 },
	{ "a route socket", SYS_socket, AF_NETLINK, SOCK_RAW, 0, 0, 0, 0 },
	{ "a netfilter socket", SYS_socket, AF_NETLINK, SOCK_RAW, 12, 0, 0, EPROTONOSUPPORT },
	{ "a packet socket", SYS_socket, AF_PACKET, SOCK_RAW, 0, 0, 0, EAFNOSUPPORT },
	{ "the same with high bits", SYS_socket, AF_PACKET | HIGH, SOCK_RAW, 0, 0, 0, EAFNOSUPPORT },
	{ "a namespace by clone's flags", SYS_unshare, CLONE_NEWNS, 0, 0, 0, 0, EPERM },
	{ "sharing nothing", SYS_unshare, 0, 0, 0, 0, 0, 0 },
	{ "the question for the personality", SYS_personality, 0xffffffff, 0, 0, 0, 0, 0 },
	{ "an odd personality", SYS_personality, 0x0100000, 0, 0, 0, 0, EPERM },
	{ "the plain personality", SYS_personality, 0, 0, 0, 0, 0, 0 },
	{ "TIOCSTI, no terminal", SYS_ioctl, 0, 0x5412, 0, 0, ENOTTY, EPERM },
	{ "TIOCSTI with high bits", SYS_ioctl, 0, 0x5412 | HIGH, 0, 0, ENOTTY, EPERM },
	{ "TIOCLINUX", SYS_ioctl, 0, 0x541c, 0, 0, ENOTTY, EPERM },
	{ "another ioctl", SYS_ioctl, 0, 0x5413, 0, 0, ENOTTY, ENOTTY },
	{ "a mount call", SYS_umount2, P("/nowhere"), 0, 0, 0, ENOENT, EPERM },
	{ "an unknown call", 511, 0, 0, 0, 0, ENOSYS, ENOSYS },
	{ "set-id bits", SYS_fchmodat, AT_FDCWD, P("."), 06755, 0, 0, 0 },
	{ "a bpf program", SYS_bpf, 99, 0, 0, 0, EINVAL, EPERM },
	{ "userfaultfd", SYS_userfaultfd, -1, 0, 0, 0, EINVAL, EPERM },
	{ "io_uring", 425, 0, 0, 0, 0, EFAULT, EPERM },
	{ "another's descriptor", 438, -1, 0, 0, 0, EBADF, EPERM },
};

static const struct attempt no_setid[] = {
	{ "a plain mode", SYS_fchmodat, AT_FDCWD, P("."), 0755, 0, 0, 0 },
	{ "set-id bits", SYS_fchmodat, AT_FDCWD, P("."), 06755, 0, 0, EPERM },
	{ "set-group-id", SYS_fchmodat, AT_FDCWD, P("."), 02755, 0, 0, EPERM },
	{ "the newer call", 452, AT_FDCWD, P("."), 04755, 0, 0, EPERM },
	{ "a new file", SYS_openat, AT_FDCWD, P("plain"), O_CREAT | O_WRONLY, 0644, 0, 0 },
	{ "a new set-id file", SYS_openat, AT_FDCWD, P("setid"), O_CREAT | O_WRONLY, 04755, 0, EPERM },
	{ "a nameless set-id file", SYS_openat, AT_FDCWD, P("."), O_TMPFILE | O_WRONLY, 04755, 0, EPERM },
	{ "no new file, whatever the mode", SYS_openat, AT_FDCWD, P("plain"), O_RDONLY, 04755, 0, 0 },
	{ "a set-id fifo", SYS_mknodat, AT_FDCWD, P("plain"), S_IFIFO | 04644, 0, EEXIST, EPERM },
	{ "openat2", SYS_openat2, AT_FDCWD, P("plain"), 0, 0, EINVAL, ENOSYS },
};

static const struct attempt nesting[] = {
	{ "a mount call", SYS_umount2, P("/nowhere"), 0, 0, 0, ENOENT, ENOENT },
	{ "a namespace", SYS_unshare, CLONE_NEWNS, 0, 0, 0, 0, 0 },
	{ "a keyring", SYS_keyctl, 0, -3, 0, 0, 0, EPERM },
};

/* The sets after it, and that PID 1 may still name the box until the end. */
static int caps_as_told(void)
{
	struct err e = ERR_INIT;
	char name[65] = "x";
	int bounding = 0;

	for (int c = 0; c <= CAP_LAST_CAP; c++)
		bounding += prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1;
	if (bounding != 14 || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0 || prctl(PR_CAPBSET_READ, CAP_KILL, 0, 0, 0) != 1)
		return 10;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0 || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
		return 11;
	for (int c = 0; c <= CAP_LAST_CAP; c++)
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, c, 0, 0) == 1)
			return 12;
	/* Another filter needs CAP_SYS_ADMIN without no_new_privs: a probe for the capability that changes nothing. */
	if (prctl(PR_SET_SECCOMP, 2, NULL, 0, 0) == 0 || errno != EFAULT)
		return 13;
	if (seal_final(&e) < 0)
		return 14;
	if (sethostname(name, 1) == 0 || errno != EPERM)
		return 15;
	return 0;
}

static int ptrace_works(void)
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		(void)ptrace(PTRACE_TRACEME, 0, 0, 0);
		(void)raise(SIGSTOP);
		_exit(5);
	}
	if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st) || ptrace(PTRACE_CONT, pid, 0, 0) < 0)
		return 20;
	return waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 5 ? 0 : 21;
}

static void refuses_what_widens_the_surface(void **state)
{
	in_child(plain, sizeof(plain) / sizeof(plain[0]), false, false, ptrace_works);
}

static void refuses_setid_bits_beside_host_files(void **state)
{
	in_child(no_setid, sizeof(no_setid) / sizeof(no_setid[0]), false, true, NULL);
}

static void nesting_opens_namespaces_only(void **state)
{
	in_child(nesting, sizeof(nesting) / sizeof(nesting[0]), true, false, NULL);
}

static void leaves_a_containers_capabilities(void **state)
{
	in_child(NULL, 0, false, false, caps_as_told);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	OWN_FD d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)unlinkat(d, "plain", 0);
	(void)unlinkat(d, "setid", 0);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_widens_the_surface),
		cmocka_unit_test(refuses_setid_bits_beside_host_files),
		cmocka_unit_test(nesting_opens_namespaces_only),
		cmocka_unit_test(leaves_a_containers_capabilities),
	};
	int nul = open("/dev/null", O_RDWR);

	/* Standard input is no terminal, whoever runs this. */
	if (nul < 0 || dup2(nul, 0) < 0)
		return 1;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
