/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

/* Where the parser is. Names are moved to the front of argv as they come: there is always room. */
struct walk {
	char **argv;
	size_t at;
	char **names;		/* NULL before the command's own words are over */
	bool ended;		/* "--" was seen */
	struct args *a;
	size_t words;
};

static const char *who(const struct args *a)
{
	return a->cmd ? a->cmd->word : NULL;
}

/* "cubby new" or "cubby", for messages. */
static const char *title(const struct args *a, char buf[64])
{
	(void)snprintf(buf, 64, "cubby%s%s", a->cmd ? " " : "", a->cmd ? who(a) : "");
	return buf;
}

static opt_set allowed(const struct args *a)
{
	return OPTS_GLOBAL | (a->cmd ? a->cmd->options : 0);
}

static int unknown_option(const struct args *a, const char *s, size_t n, struct err *e)
{
	const char *words[OPT_COUNT], *near;
	char word[40], t[64];
	size_t k = 0;

	for (unsigned i = 0; i < OPT_COUNT; i++)
		if (allowed(a) & OPT_BIT << i)
			words[k++] = options[i].word;
	(void)snprintf(word, sizeof(word), "%.*s", (int)(n < sizeof(word) ? n : sizeof(word) - 1), s);
	near = n < sizeof(word) ? nearest_word(word, words, k) : NULL;
	if (near)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s has no option '--%s'; did you mean '--%s'?", title(a, t), word,
			       near);
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s has no option '--%s'; see `cubby help%s%s`", title(a, t), word,
		       a->cmd ? " " : "", a->cmd ? who(a) : "");
}

static int note(struct walk *w, enum opt opt, const char *val, struct err *e)
{
	struct args *a = w->a;

	a->set |= OPT_BIT << opt;
	if (!val)
		return 0;
	a->val[opt] = val;
	if (!a->list) {
		/* One for each word that is left is enough for all of them. */
		size_t room = w->words - w->at + 1;

		a->list = calloc(room, sizeof(*a->list));
		if (!a->list)
			return err_set(e, -ENOMEM, "cannot read the options");
	}
	a->list[a->nlist++] = (struct given){ .opt = opt, .val = val };
	return 0;
}

static int value_missing(const struct args *a, enum opt opt, struct err *e)
{
	char t[64];

	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: '--%s' takes a value: --%s %s", title(a, t), options[opt].word,
		       options[opt].word, options[opt].takes);
}

static int long_option(struct walk *w, const char *s, struct err *e)
{
	const char *eq = strchr(s, '=');
	size_t n = eq ? (size_t)(eq - s) : strlen(s);
	char t[64];
	unsigned i;

	for (i = 0; i < OPT_COUNT; i++)
		if ((allowed(w->a) & OPT_BIT << i) && strncmp(options[i].word, s, n) == 0 && options[i].word[n] == '\0')
			break;
	if (i == OPT_COUNT)
		return unknown_option(w->a, s, n, e);
	if (!options[i].takes) {
		if (eq)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s: '--%s' takes no value", title(w->a, t), options[i].word);
		return note(w, i, NULL, e);
	}
	if (eq)
		return note(w, i, eq + 1, e);
	if (!w->argv[w->at])
		return value_missing(w->a, i, e);
	w->at++;
	return note(w, i, w->argv[w->at - 1], e);
}

static int short_options(struct walk *w, const char *s, struct err *e)
{
	char t[64];
	int r;

	for (; *s; s++) {
		const char *val = NULL;
		unsigned i;

		for (i = 0; i < OPT_COUNT; i++)
			if ((allowed(w->a) & OPT_BIT << i) && options[i].letter == *s)
				break;
		if (i == OPT_COUNT)
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "%s has no option '-%c'; see `cubby help%s%s`", title(w->a, t), *s,
				       w->a->cmd ? " " : "", w->a->cmd ? who(w->a) : "");
		if (!options[i].takes) {
			r = note(w, i, NULL, e);
			if (r < 0)
				return r;
			continue;
		}
		if (s[1]) {
			val = s + 1;
		} else {
			if (!w->argv[w->at])
				return value_missing(w->a, i, e);
			val = w->argv[w->at++];
		}
		return note(w, i, val, e);
	}
	return 0;
}

static int unknown_command(const char *word, const char *group, struct err *e)
{
	char second[40];
	const char *words[CMD_COUNT], *near;
	size_t n = 0, g = group ? strlen(group) : 0;

	for (unsigned i = 0; i < CMD_COUNT; i++) {
		const char *w = commands[i].word;

		if (!group)
			words[n++] = w;
		else if (strncmp(w, group, g) == 0 && w[g] == ' ')
			words[n++] = w + g + 1;
	}
	(void)snprintf(second, sizeof(second), "%.39s", word);
	near = nearest_word(second, words, n);
	/* "template create" is near to "template" only as a whole. */
	if (near && !group && strchr(near, ' '))
		near = NULL;
	return err_why(e, WHY_BAD_REQUEST, -EINVAL, "there is no command '%s%s%s'%s%s%s%s%s", group ? group : "", group ? " " : "",
		       second, near ? "; did you mean '" : "; see `cubby help`", near && group ? group : "",
		       near && group ? " " : "", near ? near : "", near ? "'?" : "");
}

/* The first word that is no option names the command; for a group the second one as well. */
static int take_command(struct walk *w, char *word, struct err *e)
{
	struct args *a = w->a;
	char *second = NULL;

	if (command_is_group(word)) {
		second = w->argv[w->at];
		if (second && strcmp(second, "--help") != 0 && strcmp(second, "-h") != 0)
			w->at++;
		else if (second)
			return a->set |= O(HELP), 0;
		else
			return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'cubby %s' needs another word; see `cubby help %s`", word, word);
	}
	a->cmd = command_find(word, second);
	if (a->cmd)
		return 0;
	return second ? unknown_command(second, word, e) : unknown_command(word, NULL, e);
}

static int take_word(struct walk *w, struct err *e)
{
	struct args *a = w->a;
	char *s = w->argv[w->at++];

	if (!w->ended && s[0] == '-' && s[1] != '\0') {
		if (s[1] != '-')
			return short_options(w, s + 1, e);
		if (s[2] != '\0')
			return long_option(w, s + 2, e);
		w->ended = true;
		/* For a command line of the box "--" is the border once its names are there. */
		if (a->cmd && a->cmd->tail && a->nnames == a->cmd->most && w->argv[w->at])
			a->tail = &w->argv[w->at];
		return 0;
	}
	if (!a->cmd)
		return take_command(w, s, e);
	if (a->cmd->tail && a->nnames == a->cmd->most) {
		a->tail = &w->argv[w->at - 1];
		/* `exec -- BOX -- CMD`: the second border. */
		if (w->ended && a->nnames > 0 && strcmp(s, "--") == 0)
			a->tail = w->argv[w->at] ? &w->argv[w->at] : NULL;
		return 0;
	}
	a->names[a->nnames++] = s;
	return 0;
}

static int count_names(const struct args *a, struct err *e)
{
	const struct command *cmd = a->cmd;

	if (a->nnames < cmd->least || (cmd->tail && !a->tail))
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "something is missing: cubby %s %s", cmd->word, cmd->args);
	if (a->nnames > cmd->most)
		return err_why(e, WHY_BAD_REQUEST, -EINVAL, "'%s' is one too many: cubby %s%s%s", a->names[cmd->most], cmd->word,
			       cmd->args[0] ? " " : "", cmd->args);
	return 0;
}

int args_parse(char **argv, struct args *ret, struct err *e)
{
	struct walk w = { .argv = argv, .a = ret };
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->names = argv;
	while (argv[w.words])
		w.words++;
	while (argv[w.at] && !ret->tail) {
		r = take_word(&w, e);
		if (r < 0)
			return r;
		if (args_has(ret, O(HELP)) && ret->cmd)
			return 0;
	}
	if (!ret->cmd || args_has(ret, O(HELP)))
		return 0;
	return count_names(ret, e);
}

void args_done(struct args *a)
{
	free(a->list);
	a->list = NULL;
	a->nlist = 0;
}
