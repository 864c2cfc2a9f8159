/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first bytes of a connection: a name that comes out is a good one; what a part decided, the whole decides alike (but for
 * what became too long).
 */
#include <stdlib.h>
#include <string.h>

#include "net/sniff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char name[HOST_NAME_MAX_LEN + 1], part[HOST_NAME_MAX_LEN + 1], low[HOST_NAME_MAX_LEN + 1];
	enum sniff whole = sniff(data, n, name), r;
	struct ip ip;

	if (name[0] && ip_parse(name, &ip) < 0 && (host_name_parse(name, strlen(name), low) < 0 || strcmp(low, name) != 0))
		abort();
	if (name[0] && whole != SNIFF_TLS && whole != SNIFF_HTTP)
		abort();
	for (size_t k = 0; k < n; k += 1 + n / 16) {
		r = sniff(data, k, part);
		if (r != SNIFF_MORE && (r != whole || strcmp(part, name) != 0))
			abort();
	}
	return 0;
}
