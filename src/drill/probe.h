/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DRILL_PROBE_H
#define DRILL_PROBE_H

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
 * It is its own list of verbs: `probe verbs`. `probe batch` reads many of them from stdin; `probe isolated batch` does so in
 * namespaces of its own.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

struct verb {
	const char *name;
	const char *args; /* for people: "PATH [MODE]" */
	int min, max; /* number of arguments */
	int (*run)(int argc, char **argv); /* argv[0] is the first argument; returns the exit status */
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

extern const struct verb verbs_fs[], verbs_kernel[], verbs_look[], verbs_load[], verbs_own[],
	verbs_net[]; /* each ends with an empty name */

/* One verb; argv[0] is its name. Returns the exit status. */
int probe_verb(int argc, char **argv);

/*
 * Many verbs in one process tree: each line of stdin is a number, a tab and a verb with its arguments, separated by tabs.
 * Each runs in a child of its own with a time limit, one after the other; a line "N STATUS MS TEXT" answers it, STATUS being the exit status,
 * "kill" when
 * it was killed, or "late". TEXT is the last line that the verb wrote. A line that begins with '&' is started and left running until the end of the
 * batch; it is answered with its first line of output. stdin's end ends the batch.
 */
int probe_batch(void);
/* Enter namespaces of our own (users too, unless we are root), so that what comes then harms nobody. 0, or REFUSED having said why. */
int probe_isolate(void);
/* An address as text; false for one that means something on its link alone, or is of another family. */
struct sockaddr;
bool probe_address(const struct sockaddr *a, char *ret, size_t n);
/* The verb "stage" (stage.c). */
int probe_stage(int argc, char **argv);

#endif
