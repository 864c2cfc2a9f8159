/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <string.h>

#include "cli/verbs.h"

const struct option_row options[OPT_COUNT] = {
#define OPTION(id, word_, letter_, takes_, complete_, what_) \
	[OPT_##id] = { .word = word_, .letter = letter_, .takes = takes_, .complete = complete_, .what = what_ },
#include "cli/option.def"
#undef OPTION
};
_Static_assert(OPT_COUNT <= 128, "the options of a command are bits of an opt_set");

const struct command commands[CMD_COUNT] = {
#define COMMAND(id, word_, args_, complete_, least_, most_, tail_, options_, what_, run_) \
	[CMD_##id] = { .word = word_, .args = args_, .complete = complete_, .least = least_, .most = most_, .tail = tail_, \
		       .options = options_, .what = what_, .run = run_ },
#include "cli/command.def"
#undef COMMAND
};

const struct command *command_find(const char *first, const char *second)
{
	size_t n = strlen(first);

	for (unsigned i = 0; i < CMD_COUNT; i++) {
		const char *w = commands[i].word;

		if (strncmp(w, first, n) != 0)
			continue;
		if (w[n] == '\0' || (w[n] == ' ' && second && strcmp(w + n + 1, second) == 0))
			return &commands[i];
	}
	return NULL;
}

bool command_is_group(const char *word)
{
	size_t n = strlen(word);

	for (unsigned i = 0; i < CMD_COUNT; i++)
		if (strncmp(commands[i].word, word, n) == 0 && commands[i].word[n] == ' ')
			return true;
	return false;
}
