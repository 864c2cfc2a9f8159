/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_LIB_LEAK_H
#define TESTS_LIB_LEAK_H

/*
 * What a test must not leave behind. For cmocka:
 *
 *	cmocka_unit_test_setup_teardown(no_way_out, leak_mark, leak_check)
 *
 * leak_mark() remembers the open descriptors, the children, the mounts and the cgroups called cubby* that there are;
 * leak_check() fails the test, and says what, when there are more afterwards, or when something is left in the
 * directory of leak_dir(). Children that have ended but were not waited for count too. Both leave *state alone.
 * Mounts and cgroups of somebody else that come or go meanwhile are not the test's: only mounts below the test's
 * directory or with "cubby" in their line, and only cgroups with this process's id in their name or path, count.
 */

int leak_mark(void **state);
int leak_check(void **state);

/*
 * An empty directory of this test alone (mode 0700), made at the first call after leak_mark(); below /dev/shm where
 * that can be written, else TMPDIR or /tmp. The string stays valid until leak_check(), which removes the directory and
 * fails the test when it isn't empty. NULL when it can't be made.
 */
const char *leak_dir(void);
/* Remove everything below the directory of leak_dir(), for tests that make many files. 0 or a negative errno. */
int leak_dir_clear(void);

/*
 * End a test that can't run here: prints "# skip: REASON" and skips, or fails when CUBBY_MUST_RUN=1 is in the
 * environment. The reason names what is missing ("no user namespaces: kernel.unprivileged_userns_clone is 0").
 */
_Noreturn void skip_because(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
