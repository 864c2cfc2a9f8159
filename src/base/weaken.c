/* SPDX-License-Identifier: Apache-2.0 */
#include "base/weaken.h"

#include <string.h>

static const struct {
	const char *word, *what;
} rows[WEAKEN_COUNT] = {
#define WEAKEN(id, word_, what_) { word_, what_ },
	WEAKEN_TABLE(WEAKEN)
#undef WEAKEN
};

unsigned weaken_bit(const char *word)
{
	for (unsigned i = 0; i < WEAKEN_COUNT; i++)
		if (strcmp(rows[i].word, word) == 0)
			return 1u << i;
	return 0;
}

static unsigned lowest(unsigned bits)
{
	unsigned i = 0;

	while (i < WEAKEN_COUNT - 1 && !(bits >> i & 1))
		i++;
	return i;
}

const char *weaken_word(unsigned bit)
{
	return rows[lowest(bit)].word;
}

const char *weaken_what(unsigned bit)
{
	return rows[lowest(bit)].what;
}
