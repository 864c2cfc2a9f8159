/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NET_CTL_H
#define NET_CTL_H

/*
 * What cubbyd and cubby-gateway say to each other, as frames of chan/msg.h over the socket pair that the gateway inherits. Neither side answers
 * in lock-step: every frame stands alone. The gateway reads everything that is there before it judges a new connection or query: so what
 * the daemon sent before it answered a client holds for what this client starts.
 *
 * The gateway is not trusted: the daemon checks every field. The daemon is trusted.
 *
 * daemon -> gateway
 *	{"op":"config","resolv":TEXT,"ipv6":BOOL,"lab_public":[CIDR…],"proxy":URL|"","presets":TEXT,"ask_ms":N}
 *	    first, and whenever resolv.conf or the configuration changed.
 *	{"op":"log"} + 1 descriptor		append log lines to this file from now on
 *	{"op":"box","id":ID,"name":NAME,"if":N,"v4":A,"v6":A,"policy":TEXT,
 *	 "conns":N,"rate":N,"flows":N,"bandwidth":N,"weaken":["addresses"]?}
 *	    a new box, or new values of one: connections that lost their permission are cut at once. conns: TCP connections at once; rate: new connections
 *	    and flows per second; flows: UDP flows and pings at once; bandwidth: bytes per second, each way; 0: no limit.
 *	    weaken: made for a drill without a defence (base/weaken.h); "addresses": forbidden ranges and the host's own addresses are dialled
 *	    like any other.
 *	{"op":"gone","id":ID,"taken":BOOL}	all its connections are cut; taken: the box runs on, without a network
 *	{"op":"flush"}				write the lines that are held, and say "flushed"
 *	{"op":"answer","ask":N,"allow":BOOL}
 *	{"op":"who","n":N,"process":TEXT}	answer to "who"; "" when not found
 *	{"op":"why","n":N,"id":ID,"host":TEXT,"port":N}
 *	{"op":"show","n":N,"id":ID}
 *	{"op":"expose","key":N,"id":ID,"port":N} + 1 descriptor	a listening socket of the host's loopback; port: in the box
 *	{"op":"unexpose","key":N}
 *	{"op":"dialed","n":N} + 1 descriptor	a socket connected to cubby-init, for "dial"; without one: "error":TEXT
 * gateway -> daemon
 *	{"ev":"ready","grade":[{"id":..,"on":BOOL,"what":TEXT}…]}	once, when it serves
 *	{"ev":"who","n":N,"id":ID,"proto":"tcp|udp","addr":A,"port":N,"src_port":N}	which process is it? (at most 50 a second)
 *	{"ev":"ask","ask":N,"id":ID,"name":TEXT,"addr":A|"","port":N,"proto":..}		held; the daemon answers within ask_ms or it is refused
 *	{"ev":"asked","ask":N,"how":"allowed|refused|late|gone"}
 *	{"ev":"why","n":N,"verdict":"allowed|refused|asked","rule":TEXT,"why":TEXT,"addrs":[{"addr":A,"verdict":..,"why":..}…]}
 *	{"ev":"show","n":N,"conns":[{"proto","src_port","addr","port","name","rule","up","down","ms","process"}…],"totals":{…}}
 *	{"ev":"dial","n":N,"id":ID,"key":N}	somebody connected to an exposed port
 *	{"ev":"flushed"}			the file holds every line up to "flush"
 *	{"ev":"log-full"}			the log file has reached LOG_ROTATE_BYTES
 *
 * A log line is one JSON object and a newline, written with one write(2):
 *	{"time":"2026-01-31T12:00:00.123Z","box":ID,"name":NAME,"process":TEXT,"proto":"tcp|udp|icmp|dns",
 *	 "host":NAME|"","addr":A|"","port":N,
 *	 "verdict":"allowed|refused","rule":TEXT,"why":TEXT,"up":BYTES,"down":BYTES,"ms":N,"end":"closed|reset|cut|refused|unreachable|timeout|idle"}
 * one for each connection or flow, when it ends or is refused; refusals of one kind (same box, address, port,
 *	 why) within 1 s are one line with "count":N. DNS queries
 * are logged only when refused, cleaned or failed. "name" is the box's.
 */

#define LOG_ROTATE_BYTES (16u << 20)

/* Descriptors that cubby-gateway is started with; argv carries nothing but numbers. */
#define GATEWAY_CTL_FD 3	/* the socket pair */
#define GATEWAY_NS_FD 4		/* the gateway namespace */
/* cubby-gateway [--uid N --gid N]: without, it keeps its ids (a user's own daemon) and drops only capabilities. */

#endif
