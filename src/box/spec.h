/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BOX_SPEC_H
#define BOX_SPEC_H

/*
 * What somebody asked for when a box was made: parsed from the request, kept as JSON in the database, read
 * again from there. Both ways go through spec_parse(), so an edited database can't ask for more than a request.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "engine/engine.h"

#define SPEC_ENV_MAX 512
#define SPEC_PATH_MAX 4096
#define SPEC_TEXT_MAX (4u << 20)

struct view {
	char *at, *source;	/* in the box; on the host */
	bool read_only, cow;	/* not both */
	bool ids_given;
	uint32_t uid, gid;	/* of the box: whose writes belong to the caller */
};

/* Of its network; the gateway keeps them. 0: no limit. */
struct net_limits {
	uint32_t connections;	/* TCP connections at once */
	uint32_t rate;		/* new connections and flows in a second */
	uint32_t flows;		/* UDP flows and pings at once */
	uint64_t bandwidth;	/* bytes a second, each way */
};

/* A port of the box that the host's loopback shows. */
struct exposed {
	uint16_t port, host_port;
};
#define SPEC_EXPOSE_MAX 64

struct spec {
	char template[2 * NAME_MAX_LEN];	/* of a template's name: may hold one ':' */
	char user[64];
	char tz[64];
	char *workdir;			/* or NULL */
	char **env;			/* NULL-terminated, "NAME=value"; or NULL */
	struct view views[ENGINE_MOUNTS_MAX];
	unsigned nviews;
	struct limits limits;
	/*
	 * What it may reach, as net/policy.h has it, or NULL: no network. Only its size and characters are judged here; the text of
	 * a request is replaced by the canonical one of the policy (box/net.h).
	 */
	char *net;
	struct net_limits net_limits;
	struct exposed exposed[SPEC_EXPOSE_MAX];
	unsigned nexposed;
	bool nesting, allow_weaker;
	unsigned weaken;		/* WEAKEN_…; never read from or written to the database */
	uint64_t ttl_ms, idle_ms;	/* 0: none */
};

/*
 * Fields that the object doesn't have keep what `s` holds (the defaults). On failure `s` may be half filled, and
 * has to be emptied with spec_done() all the same.
 */
int spec_parse(const struct json *obj, struct spec *s, struct err *e);
/* "weaken" of a request, apart from the rest: nothing that is kept may hold it. */
int weaken_parse(const struct json *obj, unsigned *ret, struct err *e);
int limits_parse(const struct json *obj, struct limits *l, struct net_limits *nl, struct err *e);
void limits_write(const struct limits *l, const struct net_limits *nl, struct json_out *o, const char *key);
/* The members of an object that is already open. */
void spec_write(const struct spec *s, struct json_out *o);
/* Variables of the template below those of the request: a name that is there stays. -E2BIG over SPEC_ENV_MAX. */
int spec_env_below(struct spec *s, char *const *env, struct err *e);
int spec_copy(const struct spec *from, struct spec *to, struct err *e);
void spec_done(struct spec *s);

#endif
