/* SPDX-License-Identifier: Apache-2.0 */
/* Help, completion and the manual page, all from the tables. */
#include "cli/pages.h"

#include <errno.h>
#include <string.h>

#include "base/conf.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/verbs.h"

static void pad(struct buf *to, size_t have, size_t want)
{
	do
		(void)buf_putc(to, ' ');
	while (++have < want);
}

void page_short(struct buf *to)
{
	(void)buf_puts(to, "cubby gives a coding agent a small computer of its own: a box.\n\n");
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		(void)buf_printf(to, "  %s", commands[i].word);
		pad(to, strlen(commands[i].word), 18);
		(void)buf_printf(to, "%s\n", commands[i].what);
	}
	(void)buf_puts(to, "\n`cubby help COMMAND` tells more. First steps: cubby new x; cubby shell x; cubby rm x\n");
}

static void option_line(struct buf *to, unsigned i)
{
	const struct option_row *o = &options[i];
	size_t from = to->len;

	if (o->letter)
		(void)buf_printf(to, "  -%c, --%s", o->letter, o->word);
	else
		(void)buf_printf(to, "      --%s", o->word);
	if (o->takes)
		(void)buf_printf(to, " %s", o->takes);
	pad(to, to->len - from, 32);
	(void)buf_printf(to, "%s\n", o->what);
}

void page_command(struct buf *to, const struct command *cmd)
{
	(void)buf_printf(to, "cubby %s%s%s%s\n\n  %s\n\n", cmd->word, cmd->options ? " [OPTION...]" : "", cmd->args[0] ? " " : "",
			 cmd->args, cmd->what);
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (cmd->options & OPT_BIT << i)
			option_line(to, i);
	if (cmd->options)
		(void)buf_putc(to, '\n');
	(void)buf_puts(to, "With every command:\n");
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (OPTS_GLOBAL & OPT_BIT << i)
			option_line(to, i);
}

static void page_group(struct buf *to, const char *group)
{
	size_t n = strlen(group);

	for (unsigned i = 0; i < CMD_COUNT; i++)
		if (strncmp(commands[i].word, group, n) == 0 && commands[i].word[n] == ' ') {
			(void)buf_printf(to, "  cubby %s %s", commands[i].word, commands[i].args);
			pad(to, strlen(commands[i].word) + strlen(commands[i].args), 34);
			(void)buf_printf(to, "%s\n", commands[i].what);
		}
}

/*
 * roff(7), man macros. A line that begins with '.' or '\'' is a request and '-' may become a hyphen, so text is
 * written through here.
 */
static void roff(struct buf *to, const char *s)
{
	if (*s == '.' || *s == '\'')
		(void)buf_puts(to, "\\&");
	for (; *s; s++) {
		if (*s == '\\')
			(void)buf_puts(to, "\\e");
		else if (*s == '@')	/* never taken for a place to be filled in */
			(void)buf_puts(to, "\\(at");
		else if (*s == '-')
			(void)buf_puts(to, "\\-");
		else
			(void)buf_putc(to, *s);
	}
}

/* "--mount SRC[:DST][:ro|:cow]" */
static void roff_option(struct buf *to, const struct option_row *o)
{
	(void)buf_puts(to, ".TP\n");
	if (o->letter)
		(void)buf_printf(to, "\\fB\\-%c\\fR, ", o->letter);
	(void)buf_puts(to, "\\fB\\-\\-");
	roff(to, o->word);
	(void)buf_puts(to, "\\fR");
	if (o->takes) {
		(void)buf_puts(to, " \\fI");
		roff(to, o->takes);
		(void)buf_puts(to, "\\fR");
	}
	(void)buf_putc(to, '\n');
	roff(to, o->what);
	(void)buf_putc(to, '\n');
}

void roff_synopsis(struct buf *to)
{
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		(void)buf_puts(to, i ? ".br\n\\fBcubby " : "\\fBcubby ");
		roff(to, commands[i].word);
		(void)buf_puts(to, "\\fR");
		(void)buf_puts(to, commands[i].options ? " [\\fIOPTION\\fR...] " : " ");
		roff(to, commands[i].args);
		(void)buf_putc(to, '\n');
	}
}

void roff_commands(struct buf *to)
{
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		const char *lead = "Options:";

		(void)buf_puts(to, ".SS \"cubby ");
		roff(to, commands[i].word);
		(void)buf_puts(to, commands[i].args[0] ? " " : "");
		roff(to, commands[i].args);
		(void)buf_puts(to, "\"\n");
		roff(to, commands[i].what);
		(void)buf_puts(to, ".\n");
		if (commands[i].options)
			(void)buf_printf(to, "%s\n", lead);
		for (unsigned k = 0; k < OPT_COUNT; k++)
			if (commands[i].options & OPT_BIT << k) {
				(void)buf_puts(to, k ? " " : "");
				(void)buf_puts(to, "\\fB\\-\\-");
				roff(to, options[k].word);
				(void)buf_puts(to, "\\fR\n");
			}
	}
}

void roff_options(struct buf *to)
{
	for (unsigned i = 0; i < OPT_COUNT; i++)
		roff_option(to, &options[i]);
}

void roff_settings(struct buf *to)
{
	for (unsigned i = 0; i < CONF_COUNT; i++) {
		(void)buf_puts(to, ".TP\n\\fB");
		roff(to, conf_keys[i].key);
		(void)buf_puts(to, "\\fR = \\fI");
		roff(to, conf_keys[i].dflt);
		(void)buf_puts(to, "\\fR\n");
		roff(to, conf_keys[i].help);
		(void)buf_puts(to, ".\n");
	}
}

/* One marker stands alone in its line. */
static const struct {
	const char *mark;
	void (*put)(struct buf *to);
} marks[] = {
	{ "@SYNOPSIS@", roff_synopsis },
	{ "@COMMANDS@", roff_commands },
	{ "@OPTIONS@", roff_options },
	{ "@SETTINGS@", roff_settings },
};

void page_fill(struct buf *to, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n"), i;

		for (i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
			if (strlen(marks[i].mark) == n && strncmp(text, marks[i].mark, n) == 0)
				break;
		if (i < sizeof(marks) / sizeof(marks[0])) {
			marks[i].put(to);
		} else {
			const char *v = "@VERSION@", *at = memmem(text, n, v, strlen(v));

			if (at) {
				(void)buf_put(to, text, (size_t)(at - text));
				(void)buf_puts(to, CUBBY_VERSION);
				(void)buf_put(to, at + strlen(v), n - (size_t)(at - text) - strlen(v));
			} else {
				(void)buf_put(to, text, n);
			}
			(void)buf_putc(to, '\n');
		}
		text += n + (text[n] == '\n');
	}
}

int cmd_help(struct cli *c)
{
	char **names = c->args.names;
	const struct command *cmd;
	struct err e = ERR_INIT;

	if (args_has(&c->args, O(MAN))) {
		page_fill(&c->out, page_cubby_1);
		return EXIT_OK;
	}
	if (c->args.val[OPT_COMPLETION]) {
		if (complete_script(&c->out, c->args.val[OPT_COMPLETION]))
			return EXIT_OK;
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "there is no completion for '%s': bash, zsh or fish",
			      c->args.val[OPT_COMPLETION]);
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	if (c->args.nnames == 0) {
		page_short(&c->out);
		return EXIT_OK;
	}
	if (c->args.nnames == 1 && command_is_group(names[0])) {
		page_group(&c->out, names[0]);
		return EXIT_OK;
	}
	cmd = command_find(names[0], c->args.nnames > 1 ? names[1] : NULL);
	if (!cmd) {
		const char *words[CMD_COUNT], *near;

		for (unsigned i = 0; i < CMD_COUNT; i++)
			words[i] = commands[i].word;
		near = nearest_word(names[0], words, CMD_COUNT);
		(void)err_why(&e, WHY_BAD_REQUEST, -EINVAL, "there is no command '%.40s'%s%s%s", names[0],
			      near ? "; did you mean '" : "; see `cubby help`", near ? near : "", near ? "'?" : "");
		say_error(c, &e);
		return EXIT_ASKED_WRONG;
	}
	page_command(&c->out, cmd);
	return EXIT_OK;
}
