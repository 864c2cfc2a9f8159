/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

/*
 * Text from outside into numbers. The whole string or nothing: no blanks, no sign, no silent wrap, no
 * trailing junk. Failures are -EINVAL (not such a thing) or -ERANGE, and leave the result untouched.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only, no leading zero but "0" itself. */
int parse_u64(const char *s, uint64_t max, uint64_t *ret);
/* Octal, one to four digits: a file mode. */
int parse_mode(const char *s, unsigned *ret);
/* A size in bytes: digits with an optional K, M, G or T (powers of 1024; "KiB", "KB" and lower case too). "0" is allowed. */
int parse_size(const char *s, uint64_t *ret);
/* A duration in milliseconds: digits with ms, s, m, h or d; plain digits are seconds; "1h30m" adds up. */
int parse_duration(const char *s, uint64_t *ret_ms);
/* A number of CPUs in thousandths: "2", "0.5", "1.25". At most 1,000,000 (1000 CPUs). */
int parse_cpus(const char *s, uint32_t *ret_milli);

/*
 * A name is a path component, a host name and a table key at once (RFC 1123 label): 1–63 lower-case
 * letters, digits and '-', beginning and ending with a letter or digit.
 */
bool name_ok(const char *s);
#define NAME_MAX_LEN 63
#define NAME_RULE "1-63 lower-case letters, digits and '-', beginning and ending with a letter or digit"

/* An id is 20 lower-case letters and digits, the first one a letter, at least one a digit. */
#define ID_LEN 20
bool id_ok(const char *s);
/* A fresh random id (getrandom(2)), terminated. */
void id_make(char ret_id[ID_LEN + 1]);

/* The nearest of `words` to `word` for a did-you-mean, or NULL when none is near. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

#endif
