/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NATIVE_NATIVE_H
#define ENGINE_NATIVE_NATIVE_H

/*
 * The native engine: kernel namespaces, an overlay over idmapped layers, cgroups v2 and v1. engine_native
 * (engine/engine.h) works after native_setup(). Kernel 6.1 or newer.
 */

#include <stdbool.h>

#include "base/err.h"
#include "engine/engine.h"

struct native_config {
	const char *init_path;	/* cubby-init, a static program */
	const char *state_dir;	/* absolute: neither it nor what holds it may be mounted into a box */
	const char *run_dir;	/* absolute, exists: RUN. Sockets are RUN/boxes/ID/init.sock; RUN/cgroups is the engine's */
	const char *tag;	/* 1-32 of [a-z0-9-]: this installation's groups are named cubby-TAG */
	int gateway_ns;		/* of world_new() (net/world.h), borrowed for good; FD_NONE: no box can have a network */
	bool rootless;		/* inside the user namespace that rootless_enter() made */
};

/*
 * Once per process, before the first call of engine_native and before threads or builders exist: copies cubby-init
 * into a sealed memory file, finds the cgroup hierarchies and makes this installation's group in each. Builders
 * inherit all of it by fork(). The strings are copied. A host that lacks a layer is no failure here: probe() and
 * start() say so. WHY_UNSUPPORTED when no box can be had at all.
 */
int native_setup(const struct native_config *config, struct err *e);

/* Closes what native_setup() opened and removes this installation's groups if no box is left. */
void native_done(void);

/*
 * Called in a builder (a child of the daemon) before its first start(): from then on cubby-init becomes a child of
 * the caller's parent. k: which builder it is, 0–15; one that takes another's place is called the same. A caller that is
 * PID 1 of a pid namespace can't do that. The parent must reap children that it never
 * heard of: a start that fails late leaves it the zombie of its first process.
 */
void native_in_builder(unsigned k);

/*
 * Does the caller need rootless_enter()? Everybody but the host's root does; root of a user namespace (a container of a
 * system) is not the host's.
 */
bool rootless_is(void);

/*
 * Make the calling process root of a user and mount namespace of its own, where engine_native works without
 * being root. Single-threaded callers only. The caller's uid becomes 0, and 1, 2, … become the range that
 * /etc/subuid and /etc/subgid give it, through newuidmap(1) and newgidmap(1); without these there is one id only.
 * Who is root of a user namespace already keeps it. *ret_ids: ids that the namespace has, the caller's own included.
 * WHY_UNSUPPORTED names the setting that forbids
 * user namespaces and the command that mends it.
 */
int rootless_enter(unsigned *ret_ids, struct err *e);

/*
 * To be tried before rootless_enter(): enter the namespace that the boxes of an earlier daemon live below. From another
 * one of the same user nothing of them can be seen or ended (a process has power over namespaces below its own only,
 * user_namespaces(7)), and their ids would differ. 1: done, as after rootless_enter(). 0: there are none.
 */
int rootless_again(const char *run_dir, unsigned *ret_ids, struct err *e);

/*
 * For tests: let the n-th step of every following start() fail (counted from 1; 0: none), first those of the builder, then
 * those of the box's first process. A start that has fewer steps succeeds.
 */
void native_fail_at(unsigned n);

#endif
