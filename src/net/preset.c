/* SPDX-License-Identifier: Apache-2.0 */
#include "net/policy.h"

/* presets.conf as one string (src/net/meson.build). */
const char presets_builtin[] =
#include "presets.inc"
	;
