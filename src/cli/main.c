/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/pages.h"

#define OUT_MAX (64u << 20)

/*
 * A caller may have closed 0, 1 or 2; the next open() would get that number, and an error message would be written
 * into somebody's file. One poll(2) tells about all three.
 */
static int standard_fds(void)
{
	struct pollfd p[3] = { { .fd = 0 }, { .fd = 1 }, { .fd = 2 } };
	int r;

	do
		r = poll(p, 3, 0);
	while (r < 0 && errno == EINTR);
	for (int i = 0; i < 3; i++) {
		if (r >= 0 && !(p[i].revents & POLLNVAL))
			continue;
		if (r < 0 && fcntl(i, F_GETFD) >= 0)
			continue;
		/* The lowest free number is i: those below are open by now. */
		if (open("/dev/null", O_RDWR | O_NOCTTY) != i)
			return -errno;
	}
	return 0;
}

/* The statuses of commands that pass another's on are out of its way. */
static bool passes_status(const struct args *a)
{
	return a->cmd && (a->cmd == &commands[CMD_RUN] || a->cmd == &commands[CMD_EXEC] || a->cmd == &commands[CMD_SHELL]);
}

int cli_main(char **argv)
{
	static char version[] = "version";
	struct cli c = { .daemon = FD_NONE, .out = BUF_INIT(OUT_MAX) };
	struct err e = ERR_INIT;
	int status, written;

	if (standard_fds() < 0)
		return EXIT_FAILED;
	if (!argv[0])
		return EXIT_ASKED_WRONG;
	/* What people type first. */
	if (argv[1] && strcmp(argv[1], "--version") == 0)
		argv[1] = version;
	if (args_parse(argv + 1, &c.args, &e) < 0) {
		c.json = args_has(&c.args, O(JSON));
		say_error(&c, &e);
		status = EXIT_ASKED_WRONG;
	} else {
		c.json = args_has(&c.args, O(JSON)) && !passes_status(&c.args);
		c.quiet = args_has(&c.args, O(QUIET));
		status = EXIT_OK;
		if (!c.args.cmd)
			page_short(&c.out);
		else if (args_has(&c.args, O(HELP)))
			page_command(&c.out, c.args.cmd);
		else
			status = c.args.cmd->run(&c);
	}
	if (c.out.len > 0 || buf_error(&c.out)) {
		written = say_out(&c);
		if (status == EXIT_OK)
			status = written;
	}
	fd_close(&c.daemon);
	buf_done(&c.out);
	args_done(&c.args);
	return status;
}
