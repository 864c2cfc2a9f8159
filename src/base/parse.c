/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits at *s into *ret; moves *s behind them. */
static int digits(const char **s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!digit(**s))
		return -EINVAL;
	for (; digit(**s); (*s)++)
		if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(**s - '0'), &v))
			return -ERANGE;
	*ret = v;
	return 0;
}

int parse_u64(const char *s, uint64_t max, uint64_t *ret)
{
	uint64_t v;
	int r;

	if (s[0] == '0' && s[1] != '\0')
		return -EINVAL;
	r = digits(&s, &v);
	if (r < 0)
		return r;
	if (*s != '\0')
		return -EINVAL;
	if (v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

int parse_mode(const char *s, unsigned *ret)
{
	size_t n = strlen(s);
	unsigned v = 0;

	if (n < 1 || n > 4)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '7')
			return -EINVAL;
		v = v << 3 | (unsigned)(*s - '0');
	}
	*ret = v;
	return 0;
}

int parse_size(const char *s, uint64_t *ret)
{
	static const char units[] = "KMGT";
	uint64_t v;
	int r = digits(&s, &v);

	if (r < 0)
		return r;
	if (*s != '\0' && *s != 'B' && *s != 'b') {
		const char *u = strchr(units, *s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
		unsigned shift;

		if (!u)
			return -EINVAL;
		shift = 10u * (unsigned)(u - units + 1);
		if (v > UINT64_MAX >> shift)
			return -ERANGE;
		v <<= shift;
		s++;
		if (*s == 'i' && (s[1] == 'B' || s[1] == 'b'))
			s++;
	}
	if (*s == 'B' || *s == 'b')
		s++;
	if (*s != '\0')
		return -EINVAL;
	if (v > INT64_MAX)
		return -ERANGE;
	*ret = v;
	return 0;
}

static uint64_t duration_unit(const char **s)
{
	if ((*s)[0] == 'm' && (*s)[1] == 's')
		return *s += 2, 1;
	switch (**s) {
	case 's':
		return (*s)++, 1000;
	case 'm':
		return (*s)++, 60000;
	case 'h':
		return (*s)++, 3600000;
	case 'd':
		return (*s)++, 86400000;
	default:
		return 0;
	}
}

int parse_duration(const char *s, uint64_t *ret_ms)
{
	uint64_t sum = 0, v, last = UINT64_MAX;
	bool first = true;

	do {
		uint64_t unit;
		int r = digits(&s, &v);

		if (r < 0)
			return r;
		if (*s == '\0' && first) {
			unit = 1000;
		} else {
			unit = duration_unit(&s);
			/* "1m1h" is a slip of the hand, not an hour and a minute. */
			if (unit == 0 || unit >= last)
				return -EINVAL;
		}
		last = unit;
		first = false;
		if (__builtin_mul_overflow(v, unit, &v) || __builtin_add_overflow(sum, v, &sum))
			return -ERANGE;
	} while (*s != '\0');
	/* Enough for 30,000 years, and safe to add to a clock. */
	if (sum > UINT64_C(1000000000000000))
		return -ERANGE;
	*ret_ms = sum;
	return 0;
}

int parse_cpus(const char *s, uint32_t *ret_milli)
{
	uint64_t whole, milli = 0;
	int r = digits(&s, &whole);

	if (r < 0)
		return r;
	if (*s == '.') {
		unsigned scale = 100;

		s++;
		if (!digit(*s))
			return -EINVAL;
		for (; digit(*s); s++) {
			if (scale == 0)
				return -EINVAL;
			milli += (uint64_t)(*s - '0') * scale;
			scale /= 10;
		}
	}
	if (*s != '\0')
		return -EINVAL;
	if (whole > 1000 || whole * 1000 + milli > 1000000)
		return -ERANGE;
	*ret_milli = (uint32_t)(whole * 1000 + milli);
	return 0;
}

static bool letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || digit(c);
}

bool name_ok(const char *s)
{
	size_t n = strnlen(s, NAME_MAX_LEN + 1);

	if (n == 0 || n > NAME_MAX_LEN)
		return false;
	if (!letter_or_digit(s[0]) || !letter_or_digit(s[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!letter_or_digit(s[i]) && s[i] != '-')
			return false;
	return true;
}

bool id_ok(const char *s)
{
	bool any_digit = false;

	if (strnlen(s, ID_LEN + 1) != ID_LEN || digit(s[0]))
		return false;
	for (size_t i = 0; i < ID_LEN; i++) {
		if (!letter_or_digit(s[i]))
			return false;
		any_digit = any_digit || digit(s[i]);
	}
	return any_digit;
}

void id_make(char ret_id[ID_LEN + 1])
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t raw[64];
	size_t n = 0;

	do {
		size_t k = 0;

		n = 0;
		while (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
			;
		while (n < ID_LEN && k < sizeof(raw)) {
			uint8_t v = raw[k++];

			/* 252 = 7 * 36: below it every character is equally likely. */
			if (v >= 252 || (n == 0 && v % 36 >= 26))
				continue;
			ret_id[n++] = set[v % 36];
		}
		ret_id[n] = '\0';
	} while (n < ID_LEN || !id_ok(ret_id));
}

/* Letters to add, drop, change, or swap with the one beside: swapping is the commonest slip. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][32], la = strlen(a), lb = strlen(b);

	if (la >= 32 || lb >= 32)
		return 99;
	for (size_t j = 0; j <= lb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);

			if (up[j] + 1 < best)
				best = up[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
				best = up2[j - 2] + 1;
			row[j] = best;
		}
	}
	return rows[la % 3][lb];
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
	const char *best = NULL;
	size_t best_d = strlen(word) <= 3 ? 2 : 3, d;

	for (size_t i = 0; i < n; i++) {
		if (strlen(word) >= 3 && strncasecmp(words[i], word, strlen(word)) == 0)
			return words[i];
		d = distance(word, words[i]);
		if (d < best_d) {
			best_d = d;
			best = words[i];
		}
	}
	return best;
}
