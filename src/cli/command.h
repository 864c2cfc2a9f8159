/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

/* The tables of commands and options, and the words of the command line they make sense of. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum opt {
#define OPTION(id, ...) OPT_##id,
#include "cli/option.def"
#undef OPTION
	OPT_COUNT
};

enum cmd {
#define COMMAND(id, ...) CMD_##id,
#include "cli/command.def"
#undef COMMAND
	CMD_COUNT
};

/* A set of options: more than a machine word has room for. */
typedef unsigned __int128 opt_set;
#define OPT_BIT ((opt_set)1)
#define O(id) (OPT_BIT << OPT_##id)
#define MANY 4096 /* names in one command */
/* Accepted before the command's word as well as after it. */
#define OPTS_GLOBAL (O(HELP) | O(STATE_DIR) | O(RUN_DIR) | O(CONFIG) | O(NO_START))

struct option_row {
	const char *word;
	char letter;
	const char *takes;	/* NULL: a flag */
	const char *complete;
	const char *what;
};

struct cli;

struct command {
	const char *word;	/* one or two words */
	const char *args;
	const char *complete;
	unsigned least, most;	/* names */
	bool tail;
	opt_set options;	/* O() of each, the global ones not counted */
	const char *what;
	int (*run)(struct cli *c); /* returns the exit status */
};

extern const struct option_row options[OPT_COUNT];
extern const struct command commands[CMD_COUNT];

/* Exit statuses. The last four are of exec, run and shell. */
enum { EXIT_OK, EXIT_FAILED, EXIT_ASKED_WRONG, EXIT_TIMED_OUT = 124, EXIT_NO_BOX = 125, EXIT_NOT_RUNNABLE = 126, EXIT_NOT_THERE = 127 };

/* One option as it was given. */
struct given {
	enum opt opt;
	const char *val;	/* NULL for a flag */
};

/* A parsed command line. Strings are borrowed from argv. */
struct args {
	const struct command *cmd;	/* NULL: none was named */
	opt_set set;			/* O() of what was given */
	const char *val[OPT_COUNT];	/* the last value given */
	struct given *list;		/* every option with a value, in order */
	size_t nlist;
	char **names;			/* what is neither option nor tail */
	size_t nnames;
	char **tail;			/* the command for the box, NULL-terminated; NULL when there is none */
};

/*
 * Parse the words after the program's name; argv is NULL-terminated and its order is changed. Global options may stand
 * before the command; "--" ends the options; a lone "-" is a name. -EINVAL with what is wrong and what to do about
 * it (exit status 2); `ret` holds the command then as far as it was understood. With --help nothing else is checked.
 */
int args_parse(char **argv, struct args *ret, struct err *e);
void args_done(struct args *a);

static inline bool args_has(const struct args *a, opt_set mask)
{
	return (a->set & mask) != 0;
}

/* The command of one or two words, or NULL. */
const struct command *command_find(const char *first, const char *second);
/* Does any command of two words begin with this one ("template")? */
bool command_is_group(const char *word);

#endif
