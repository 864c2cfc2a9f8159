/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mkman FILE: a page of man/ with its marks filled in, to standard output. mkman --completion SHELL: a completion script.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "cli/pages.h"

int main(int argc, char **argv)
{
	static char text[256 << 10];
	OWN_BUF out = BUF_INIT(4u << 20);

	if (argc == 3 && strcmp(argv[1], "--completion") == 0) {
		if (!complete_script(&out, argv[2]))
			return 2;
	} else if (argc != 2 || file_read_small(AT_FDCWD, argv[1], text, sizeof(text)) < 0) {
		fprintf(stderr, "mkman: cannot read the page\n");
		return 1;
	} else {
		page_fill(&out, text);
	}
	return buf_error(&out) || fd_write_all(1, out.data, out.len) < 0;
}
