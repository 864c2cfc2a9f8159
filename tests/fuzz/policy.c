/* SPDX-License-Identifier: Apache-2.0 */
/* A policy that was accepted has a canonical text, which is accepted, has itself as canonical text, and judges alike. */
#include <stdlib.h>
#include <string.h>

#include "net/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const addrs[] = { "8.8.8.8", "10.1.2.3", "2606::1", "198.18.0.1", "169.254.169.254", "127.0.0.1",
		"100.100.100.200", "64:ff9b::7f00:1", "0.0.0.0", "::", "::1", "fd00:ec2::254", "224.0.0.1" };
	static const char *const name = "www.example.org";
	struct policy *p = NULL, *q = NULL;
	struct presets *ps = NULL;
	char *text = malloc(n + 1);
	struct err e = ERR_INIT;

	must(text != NULL);
	memcpy(text, data, n);
	text[n] = '\0';
	if (presets_new(text, &ps, &e) == 0)
		presets_free(ps);
	else
		must(e.text[0]);
	if (policy_parse(text, NULL, &p, &e) < 0) {
		must(!p && e.text[0]);
		free(text);
		return 0;
	}
	must(policy_parse(policy_text(p), NULL, &q, &e) == 0);
	must(strcmp(policy_text(p), policy_text(q)) == 0);
	for (size_t i = 0; i < sizeof(addrs) / sizeof(addrs[0]); i++) {
		struct decision a, b;
		struct ip ip;

		must(ip_parse(addrs[i], &ip) == 0);
		policy_judge(p, NULL, &ip, 443, &name, 1, &a);
		policy_judge(q, NULL, &ip, 443, &name, 1, &b);
		must(a.verdict == b.verdict && strcmp(a.rule, b.rule) == 0);
		must(i < 4 || a.verdict == VERDICT_REFUSE);	/* what is never lifted */
		must(a.verdict != VERDICT_REFUSE || a.why[0]);
	}
	policy_unref(p);
	policy_unref(q);
	free(text);
	return 0;
}
