/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROBE_H
#define PROBE_H

/*
 * probe VERB [ARG]...: look around from inside a box, or try something, and report.
 *
 *	exit 0	got through (or, for a verb that only looks: the report is on stdout)
 *	exit 1	refused; "refused ERRNO-NAME: what" is on stdout
 *	exit 2	wrong usage
 *
 * Asks, and does no harm: kernel files are opened for writing and not written, privileged calls get arguments that the
 * kernel rejects after its permission check. So a verb "gets through" when the kernel's answer is anything but a refusal.
 * Where a verb does change something (mounts, nodes, keys), run it in throw-away namespaces.
 * It is its own list of verbs: `probe verbs`.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct verb {
	const char *name;
	const char *args;	/* for people: "PATH [MODE]" */
	int min, max;		/* number of arguments */
	int (*run)(int argc, char **argv);	/* argv[0] is the first argument; returns the exit status */
};

enum { THROUGH = 0, REFUSED = 1, USAGE = 2 };

/* Print "through: …", return THROUGH. */
int through(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Print "refused ENAME: …" for this errno, return REFUSED. */
int refused(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* r < 0: refused with errno; else through. */
int verdict(long r, const char *what);
/* As verdict(), but errors that come after the permission check (anything but EPERM, EACCES, ENOSYS, EROFS) are through. */
int verdict_after_check(long r, const char *what);
/* A decimal, hexadecimal or octal number, whole; ends the program with USAGE otherwise. With a suffix K, M or G: bytes. */
long long number(const char *text);
const char *errno_name(int code);

extern const struct verb verbs_fs[], verbs_kernel[], verbs_look[], verbs_load[]; /* each ends with an empty name */

#endif
