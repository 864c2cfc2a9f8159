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
		if ((cmd->options | OPTS_GLOBAL) & UINT64_C(1) << i) {
			(void)buf_printf(to, "%s--%s", any ? " " : "", options[i].word);
			any = true;
		}
}

/* case patterns of the options whose value is completed like this one's */
static void bash_values(struct buf *to, const char *kind, const char *action)
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

static void bash(struct buf *to)
{
	(void)buf_puts(to, "# bash completion of cubby; made by `cubby help --completion bash`\n"
			   "_cubby() {\n"
			   "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb='' opts='' args='' i w n=0\n"
			   "\tCOMPREPLY=()\n"
			   "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
			   "\t\tw=${COMP_WORDS[i]}\n"
			   "\t\tcase $w in\n"
			   "\t\t--) return ;;\n"
			   "\t\t");
	{
		bool any = false;

		for (unsigned i = 0; i < OPT_COUNT; i++)
			if (options[i].takes) {
				(void)buf_printf(to, "%s--%s", any ? "|" : "", options[i].word);
				if (options[i].letter && !strchr("n", options[i].letter))
					(void)buf_printf(to, "|-%c", options[i].letter);
				any = true;
			}
	}
	(void)buf_puts(to, ") ((i++)) ;;\n"
			   "\t\t-*) ;;\n"
			   "\t\t*) if [[ -z $verb ]]; then verb=$w; elif [[ $verb == template ]]; then verb=\"template $w\"; else ((n++)); fi ;;\n"
			   "\t\tesac\n"
			   "\tdone\n"
			   "\tcase $prev in\n");
	bash_values(to, "t", "COMPREPLY=($(compgen -W \"$(cubby template ls --names --no-start 2>/dev/null)\" -- \"$cur\"))");
	bash_values(to, "f", "COMPREPLY=($(compgen -f -- \"$cur\"))");
	bash_values(to, "d", "COMPREPLY=($(compgen -d -- \"$cur\"))");
	bash_values(to, "", "");
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (options[i].complete[0] == '=')
			(void)buf_printf(to, "\t--%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", options[i].word,
					 options[i].complete + 1);
	(void)buf_puts(to, "\tesac\n\tcase $verb in\n\t'') COMPREPLY=($(compgen -W '");
	put_verbs(to);
	(void)buf_puts(to, "' -- \"$cur\")); return ;;\n\ttemplate) COMPREPLY=($(compgen -W '");
	put_second_words(to, "template");
	(void)buf_puts(to, "' -- \"$cur\")); return ;;\n");
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		(void)buf_printf(to, "\t'%s') args='%s' opts='", commands[i].word, commands[i].complete);
		put_option_words(to, &commands[i]);
		(void)buf_puts(to, "' ;;\n");
	}
	(void)buf_puts(to, "\tesac\n"
			   "\tif [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\")); return; fi\n"
			   "\t((n < ${#args})) || n=$((${#args} - 1))\n"
			   "\t((n < 0)) && return\n"
			   "\tcase ${args:n:1} in\n"
			   "\tb) COMPREPLY=($(compgen -W \"$(cubby ls --names --no-start 2>/dev/null)\" -- \"$cur\")) ;;\n"
			   "\tt) COMPREPLY=($(compgen -W \"$(cubby template ls --names --no-start 2>/dev/null)\" -- \"$cur\")) ;;\n"
			   "\tf) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
			   "\tp) COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -S : -W \"$(cubby ls --names --no-start 2>/dev/null)\" -- "
			   "\"$cur\")); compopt -o nospace ;;\n"
			   "\tc) COMPREPLY=($(compgen -W '");
	put_verbs(to);
	(void)buf_puts(to, "' -- \"$cur\")) ;;\n\tesac\n}\ncomplete -F _cubby cubby\n");
}

/* zsh runs the bash function: one set of rules less to go stale. */
static void zsh(struct buf *to)
{
	(void)buf_puts(to, "#compdef cubby\n# zsh completion of cubby; made by `cubby help --completion zsh`\n"
			   "autoload -U +X bashcompinit && bashcompinit\n");
	bash(to);
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
			if (cmd->options & UINT64_C(1) << k) {
				fish_condition(to, cmd);
				fish_option(to, &options[k]);
			}
	}
	for (unsigned k = 0; k < OPT_COUNT; k++)
		if (OPTS_GLOBAL & UINT64_C(1) << k) {
			(void)buf_puts(to, "complete -c cubby");
			fish_option(to, &options[k]);
		}
}

bool complete_script(struct buf *to, const char *shell)
{
	if (strcmp(shell, "bash") == 0)
		bash(to);
	else if (strcmp(shell, "zsh") == 0)
		zsh(to);
	else if (strcmp(shell, "fish") == 0)
		fish(to);
	else
		return false;
	return true;
}
