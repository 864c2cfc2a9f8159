/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_GATEWAY_NET_H
#define TEST_GATEWAY_NET_H

/*
 * A small world for tests of cubby-gateway, in network namespaces of the test's own: the "host" (the test itself), an "internet" behind
 * one link, the gateway namespace, and boxes. All sockets are made in their namespace and used from the test's only thread. The program under
 * test is the built cubby-gateway.
 *
 *	host	192.0.2.2, 2001:db8:1::2		the resolver of its resolv.conf is 203.0.113.53
 *	inet	203.0.113.10 and .11, .53, 2001:db8::10, 10.77.0.2
 *		203.0.113.66 is silent, 203.0.113.99 unreachable
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/json.h"

struct test_box {
	char id[32];
	unsigned index;
	int ns, at;
};

struct test_net {
	int host_before, inet, gateway, ctl, log;
	pid_t pid;
	struct test_box box[2];
};

/* Skips the test where namespaces can't be had. */
void net_up(struct test_net *n);
void net_down(struct test_net *n);
void net_config(struct test_net *n, const char *proxy);
/* A new policy and limits for box i; `more`: members of JSON, beginning with a comma, or "". */
void net_box(struct test_net *n, unsigned i, const char *policy, const char *more);
void net_send(struct test_net *n, const char *json, int fd);
/* The next event of this name, others are left out; the caller frees doc. Fails after 5 s. */
const struct json *net_event(struct test_net *n, const char *ev, struct json_doc *doc);
/* Wait until all that was sent has been read: by a question that is answered. */
void net_settled(struct test_net *n);
/* Does a line of the log hold all of these words within 3 s? NULL ends. */
bool net_logged(struct test_net *n, const char *a, const char *b);

/* Sockets in a namespace (-1: the host). */
int net_socket(int ns, int family, int type, int proto);
int net_listen(int ns, const char *ip, uint16_t port);
int net_udp(int ns, const char *ip, uint16_t port);	/* bound */
socklen_t net_addr(const char *ip, uint16_t port, struct sockaddr_storage *ret);
/* connect(2) within ms: 0, the negative errno, or -EINPROGRESS. *ret_fd is the socket then (non-blocking off), else closed. */
int net_connect(int ns, const char *ip, uint16_t port, int ms, int *ret_fd);
int net_accept(int fd);		/* within 3 s, or -1 */
bool net_wait(int fd, short events, int ms);
/* Read until n bytes, the end, or an error; the bytes, or a negative errno when nothing came. Within 5 s. */
ssize_t net_read(int fd, void *buf, size_t n);

#endif
