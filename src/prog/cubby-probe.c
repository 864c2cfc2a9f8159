/* SPDX-License-Identifier: Apache-2.0 */
/* What `cubby drill` runs in boxes, and for comparison outside of them: see drill/probe.h. */
#include <string.h>

#include "drill/probe.h"

int main(int argc, char **argv)
{
	argc--;
	argv++;
	if (argc >= 1 && strcmp(argv[0], "isolated") == 0) {
		int r = probe_isolate();

		if (r != 0)
			return r;
		argc--;
		argv++;
	}
	if (argc == 1 && strcmp(argv[0], "batch") == 0)
		return probe_batch();
	return probe_verb(argc, argv);
}
