/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion. The scripts hold the tables and ask cubby for what changes: names of boxes and templates, with --no-start, because
 * a tabulator key must not start a daemon.
 */
#include <string.h>

#include "cli/command.h"
#include "cli/pages.h"

#define GROUP_MAX 24

/* The first word of a command, into room for GROUP_MAX. */
static void first_word(const char *word, char ret[GROUP_MAX])
{
	size_t n = strcspn(word, " ");

	if (n >= GROUP_MAX)
		n = GROUP_MAX - 1;
	memcpy(ret, word, n);
	ret[n] = '\0';
}

static bool first_of_its_word(unsigned i)
{
	char a[GROUP_MAX], b[GROUP_MAX];

	first_word(commands[i].word, a);
	for (unsigned k = 0; k < i; k++) {
		first_word(commands[k].word, b);
		if (strcmp(a, b) == 0)
			return false;
	}
	return true;
}

static void put_verbs(struct buf *to)
{
	char w[GROUP_MAX];

	for (unsigned i = 0; i < CMD_COUNT; i++)
		if (first_of_its_word(i)) {
			first_word(commands[i].word, w);
			(void)buf_printf(to, "%s%s", i ? " " : "", w);
		}
}

static void put_second_words(struct buf *to, const char *group)
{
	size_t n = strlen(group);
	bool any = false;

	for (unsigned i = 0; i < CMD_COUNT; i++)
		if (strncmp(commands[i].word, group, n) == 0 && commands[i].word[n] == ' ') {
			(void)buf_printf(to, "%s%s", any ? " " : "", commands[i].word + n + 1);
			any = true;
		}
}

static void put_option_words(struct buf *to, const struct command *cmd)
{
	bool any = false;

	for (unsigned i = 0; i < OPT_COUNT; i++)
		if ((cmd->options | OPTS_GLOBAL) & OPT_BIT << i) {
			(void)buf_printf(to, "%s--%s", any ? " " : "", options[i].word);
			any = true;
		}
}

/*
 * bash and zsh: one function that finds the command among the words, then what is wanted at the place of the cursor. The
 * shells differ in how words are counted and in how an answer is given.
 */
struct dialect {
	const char *begin;	/* up to the loop over the words */
	const char *list;	/* offer a list; %s is the list */
	const char *boxes, *templates, *files, *dirs, *places;
	const char *options;	/* how a list of options is kept: before and after it */
	const char *options_end;
	const char *offer_options;
	const char *letter;	/* of `args`, for place n */
	const char *end;
};

#define BOXES "cubby ls --names --no-start 2>/dev/null"
#define TEMPLATES "cubby template ls --names --no-start 2>/dev/null"
#define BASH_WORDS(w) "COMPREPLY=($(compgen -W \"" w "\" -- \"$cur\"))"

static const struct dialect dialect_bash = {
	.begin = "# bash completion of cubby; made by `cubby help --completion bash`\n"
		 "_cubby() {\n"
		 "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' opts='' args='' i w n=0\n"
		 "\tCOMPREPLY=()\n"
		 "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		 "\t\tw=${COMP_WORDS[i]}\n",
	.list = BASH_WORDS("%s"),
	.boxes = BASH_WORDS("$(" BOXES ")"),
	.templates = BASH_WORDS("$(" TEMPLATES ")"),
	.files = "COMPREPLY=($(compgen -f -- \"$cur\"))",
	.dirs = "COMPREPLY=($(compgen -d -- \"$cur\"))",
	.places = "COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -S : -W \"$(" BOXES ")\" -- \"$cur\")); compopt -o nospace",
	.options = "opts='",
	.options_end = "'",
	.offer_options = BASH_WORDS("$opts"),
	.letter = "${args:n:1}",
	.end = "complete -F _cubby cubby\n",
};

static const struct dialect dialect_zsh = {
	.begin = "#compdef cubby\n# zsh completion of cubby; made by `cubby help --completion zsh`\n"
		 "_cubby() {\n"
		 "\tlocal cur=${words[CURRENT]} prev=${words[CURRENT-1]} verb='' args='' i w n=0\n"
		 "\tlocal -a opts\n"
		 "\tfor ((i = 2; i < CURRENT; i++)); do\n"
		 "\t\tw=${words[i]}\n",
	.list = "compadd -- %s",
	.boxes = "compadd -- ${(f)\"$(" BOXES ")\"}",
	.templates = "compadd -- ${(f)\"$(" TEMPLATES ")\"}",
	.files = "_files",
	.dirs = "_files -/",
	.places = "_files; compadd -S : -- ${(f)\"$(" BOXES ")\"}",
	.options = "opts=(",
	.options_end = ")",
	.offer_options = "compadd -- $opts",
	.letter = "${args[n+1]}",
	.end = "_cubby \"$@\"\n",
};

/* A case arm for the options whose values are completed like this. */
static void values_arm(struct buf *to, const char *kind, const char *action)
{
	bool any = false;

	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (options[i].takes && strcmp(options[i].complete, kind) == 0) {
			(void)buf_printf(to, "%s--%s", any ? "|" : "\t", options[i].word);
			any = true;
		}
	if (any)
		(void)buf_printf(to, ") %s; return ;;\n", action);
}

static void offer(struct buf *to, const struct dialect *d, const char *list)
{
	(void)buf_printf(to, d->list, list);
}

static void verbs_and_values(struct buf *to, const struct dialect *d, const char *verbs)
{
	OWN_BUF second = BUF_INIT(4096);

	(void)buf_puts(to, "\tcase $prev in\n");
	values_arm(to, "t", d->templates);
	values_arm(to, "f", d->files);
	values_arm(to, "d", d->dirs);
	values_arm(to, "", ":");
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (options[i].complete[0] == '=') {
			(void)buf_printf(to, "\t--%s) ", options[i].word);
			offer(to, d, options[i].complete + 1);
			(void)buf_puts(to, "; return ;;\n");
		}
	put_second_words(&second, "template");
	(void)buf_puts(to, "\tesac\n\tcase $verb in\n\t'') ");
	offer(to, d, verbs);
	(void)buf_puts(to, "; return ;;\n\ttemplate) ");
	offer(to, d, second.data ? second.data : "");
	(void)buf_puts(to, "; return ;;\n");
}

static void bash_or_zsh(struct buf *to, const struct dialect *d)
{
	OWN_BUF verbs = BUF_INIT(4096);
	bool any = false;

	put_verbs(&verbs);
	(void)buf_puts(to, d->begin);
	(void)buf_puts(to, "\t\tcase $w in\n\t\t--) return ;;\n\t\t");
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (options[i].takes) {
			(void)buf_printf(to, "%s--%s", any ? "|" : "", options[i].word);
			/* -n is a flag in some commands and takes a value in others. */
			if (options[i].letter && options[i].letter != 'n')
				(void)buf_printf(to, "|-%c", options[i].letter);
			any = true;
		}
	(void)buf_puts(to, ") ((i++)) ;;\n"
			   "\t\t-*) ;;\n"
			   "\t\t*) if [[ -z $verb ]]; then verb=$w; elif [[ $verb == template ]]; then verb=\"template $w\"; "
			   "else ((n++)); fi ;;\n"
			   "\t\tesac\n"
			   "\tdone\n");
	verbs_and_values(to, d, verbs.data ? verbs.data : "");
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		(void)buf_printf(to, "\t'%s') args='%s' %s", commands[i].word, commands[i].complete, d->options);
		put_option_words(to, &commands[i]);
		(void)buf_printf(to, "%s ;;\n", d->options_end);
	}
	(void)buf_printf(to,
			 "\tesac\n"
			 "\tif [[ $cur == -* ]]; then %s; return; fi\n"
			 "\t((n < ${#args})) || n=$((${#args} - 1))\n"
			 "\t((n < 0)) && return\n"
			 "\tcase %s in\n"
			 "\tb) %s ;;\n\tt) %s ;;\n\tf) %s ;;\n\tp) %s ;;\n\tc) ",
			 d->offer_options, d->letter, d->boxes, d->templates, d->files, d->places);
	offer(to, d, verbs.data ? verbs.data : "");
	(void)buf_printf(to, " ;;\n\tesac\n}\n%s", d->end);
}

static void fish_quote(struct buf *to, const char *s)
{
	(void)buf_putc(to, '\'');
	for (; *s; s++) {
		if (*s == '\'' || *s == '\\')
			(void)buf_putc(to, '\\');
		(void)buf_putc(to, *s);
	}
	(void)buf_putc(to, '\'');
}

static void fish_condition(struct buf *to, const struct command *cmd)
{
	char w[GROUP_MAX];
	const char *second = strchr(cmd->word, ' ');

	first_word(cmd->word, w);
	(void)buf_printf(to, "complete -c cubby -n '__fish_seen_subcommand_from %s", w);
	if (second)
		(void)buf_printf(to, "; and __fish_seen_subcommand_from %s", second + 1);
	(void)buf_putc(to, '\'');
}

static void fish_value(struct buf *to, const char *kind)
{
	if (kind[0] == '=') {
		(void)buf_puts(to, " -x -a ");
		fish_quote(to, kind + 1);
	} else if (kind[0] == 't') {
		(void)buf_puts(to, " -x -a '(cubby template ls --names --no-start 2>/dev/null)'");
	} else if (kind[0] == 'f' || kind[0] == 'd') {
		(void)buf_puts(to, " -r -F");
	} else {
		(void)buf_puts(to, " -x");
	}
}

static void fish_option(struct buf *to, const struct option_row *o)
{
	(void)buf_printf(to, " -l %s", o->word);
	if (o->letter)
		(void)buf_printf(to, " -s %c", o->letter);
	if (o->takes)
		fish_value(to, o->complete);
	(void)buf_puts(to, " -d ");
	fish_quote(to, o->what);
	(void)buf_putc(to, '\n');
}

static void fish(struct buf *to)
{
	(void)buf_puts(to, "# fish completion of cubby; made by `cubby help --completion fish`\ncomplete -c cubby -f\n");
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		const struct command *cmd = &commands[i];
		const char *second = strchr(cmd->word, ' ');
		char w[GROUP_MAX];

		first_word(cmd->word, w);
		if (first_of_its_word(i)) {
			(void)buf_printf(to, "complete -c cubby -n __fish_use_subcommand -a %s -d ", w);
			fish_quote(to, second ? "templates: what boxes start from" : cmd->what);
			(void)buf_putc(to, '\n');
		}
		if (second) {
			(void)buf_printf(to, "complete -c cubby -n '__fish_seen_subcommand_from %s' -a %s -d ", w, second + 1);
			fish_quote(to, cmd->what);
			(void)buf_putc(to, '\n');
		}
		if (strpbrk(cmd->complete, "bp")) {
			fish_condition(to, cmd);
			(void)buf_puts(to, " -a '(cubby ls --names --no-start 2>/dev/null)'\n");
		}
		if (strchr(cmd->complete, 't')) {
			fish_condition(to, cmd);
			(void)buf_puts(to, " -a '(cubby template ls --names --no-start 2>/dev/null)'\n");
		}
		if (strpbrk(cmd->complete, "fp")) {
			fish_condition(to, cmd);
			(void)buf_puts(to, " -F\n");
		}
		for (unsigned k = 0; k < OPT_COUNT; k++)
			if (cmd->options & OPT_BIT << k) {
				fish_condition(to, cmd);
				fish_option(to, &options[k]);
			}
	}
	for (unsigned k = 0; k < OPT_COUNT; k++)
		if (OPTS_GLOBAL & OPT_BIT << k) {
			(void)buf_puts(to, "complete -c cubby");
			fish_option(to, &options[k]);
		}
}

bool complete_script(struct buf *to, const char *shell)
{
	if (strcmp(shell, "bash") == 0)
		bash_or_zsh(to, &dialect_bash);
	else if (strcmp(shell, "zsh") == 0)
		bash_or_zsh(to, &dialect_zsh);
	else if (strcmp(shell, "fish") == 0)
		fish(to);
	else
		return false;
	return true;
}
