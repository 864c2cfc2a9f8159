/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/parse.h"
#include "base/weaken.h"
#include "guest/init.h"

/* cubby-init --listen=FD --ready=FD [--nesting | --no-userns] [--no-setid] [--once] [--weaken=BITS]; started by the engine, by nobody else. */

static int usage(void)
{
	static const char text[] = "cubby-init is the first process of a box and is started by cubbyd\n";

	(void)fd_write_all(2, text, sizeof(text) - 1);
	return 2;
}

static int number(const char *s)
{
	uint64_t v;

	return parse_u64(s, INT_MAX, &v) < 0 || v < 3 ? FD_NONE : (int)v;
}

int main(int argc, char **argv)
{
	uint64_t weaken;
	struct init_opts o = { .listen_fd = FD_NONE, .ready_fd = FD_NONE };

	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (strncmp(a, "--listen=", 9) == 0)
			o.listen_fd = number(a + 9);
		else if (strncmp(a, "--ready=", 8) == 0)
			o.ready_fd = number(a + 8);
		else if (strcmp(a, "--nesting") == 0)
			o.nesting = true;
		else if (strcmp(a, "--no-userns") == 0)
			o.no_userns = true;
		else if (strcmp(a, "--no-setid") == 0)
			o.no_setid = true;
		else if (strcmp(a, "--once") == 0)
			o.once = true;
		else if (strncmp(a, "--weaken=", 9) == 0 && parse_u64(a + 9, WEAKEN_ALL, &weaken) == 0)
			o.weaken = (unsigned)weaken;
		else
			return usage();
	}
	if (o.listen_fd < 0 || o.ready_fd < 0 || o.listen_fd == o.ready_fd)
		return usage();
	return init_main(&o);
}
