/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

/* Text made from the tables. */

#include <stdbool.h>

#include "base/buf.h"
#include "cli/command.h"

void page_short(struct buf *to);	/* what `cubby` alone says */
void page_command(struct buf *to, const struct command *cmd);

/* Parts of a manual page, roff(7) with the man macros. */
void roff_synopsis(struct buf *to);
void roff_commands(struct buf *to);
void roff_options(struct buf *to);
void roff_settings(struct buf *to);
/* A page of man/ with its marks (a line @SYNOPSIS@, @COMMANDS@, @OPTIONS@ or @SETTINGS@; @VERSION@ anywhere) filled in. */
void page_fill(struct buf *to, const char *text);
/* The text of man/cubby.1.in, made by the build. */
extern const char page_cubby_1[];

/* The completion of "bash", "zsh" or "fish"; false for another shell. Boxes and templates are asked of a running daemon. */
bool complete_script(struct buf *to, const char *shell);

#endif
