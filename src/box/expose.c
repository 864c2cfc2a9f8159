/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 512
/* Where a free port is looked for when the one that was meant is taken. */
#define TRIES 64

static int listen_at(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, r;

	if (fd < 0)
		return -errno;
	/* Connections of an earlier listener that linger are no obstacle (socket(7)); a listener is. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	r = -errno;
	(void)close(fd);
	return r;
}

/* One that is free now, above the one that isn't. 0: none near. */
static unsigned free_port(uint16_t taken)
{
	for (unsigned i = 1; i <= TRIES; i++) {
		unsigned port = taken < 1024 ? 8000 + taken + (i - 1) : taken + i;
		int fd = port < 65536 ? listen_at((uint16_t)port) : FD_NONE;

		if (fd < 0)
			continue;
		fd_close(&fd);
		return port;
	}
	return 0;
}

static void tell(struct box *b, const struct port *p)
{
	struct buf text = BUF_INIT(512);
	struct json_out o;

	if (p->fd < 0)
		return;
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "expose");
	json_put_int(&o, "key", p->key);
	json_put_str(&o, "id", b->id);
	json_put_int(&o, "port", p->port);
	json_end_obj(&o);
	gateway_send(b->d->net, &text, p->fd);
}

static void port_free(struct box *b, struct port *p)
{
	struct buf text = BUF_INIT(128);
	struct json_out o;

	if (p->fd >= 0) {
		json_out_init(&o, &text);
		json_put_obj(&o, NULL);
		json_put_str(&o, "op", "unexpose");
		json_put_int(&o, "key", p->key);
		json_end_obj(&o);
		gateway_send(b->d->net, &text, FD_NONE);
	}
	fd_close(&p->fd);
	free(p);
}

static struct port *port_new(struct box *b, struct exposed x, int fd)
{
	struct port *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->port = x.port;
	p->host_port = x.host_port;
	p->key = ++b->d->net->next_key;
	p->fd = fd;
	p->next = b->ports;
	b->ports = p;
	return p;
}

void expose_on(struct box *b)
{
	for (unsigned i = 0; i < b->spec.nexposed; i++) {
		int fd = listen_at(b->spec.exposed[i].host_port);
		struct port *p = port_new(b, b->spec.exposed[i], fd < 0 ? FD_NONE : fd);

		if (!p) {
			if (fd >= 0)
				(void)close(fd);
			continue;
		}
		if (fd < 0) {
			(void)snprintf(p->problem, sizeof(p->problem), "not listening: %s", fd == -EADDRINUSE ?
				       "something else on the host has the port now" : strerror(-fd));
			box_event(b, "network", p->problem);
		}
		tell(b, p);
	}
}

void expose_off(struct box *b)
{
	while (b->ports) {
		struct port *p = b->ports;

		b->ports = p->next;
		port_free(b, p);
	}
}

void expose_tell(struct box *b)
{
	for (const struct port *p = b->ports; p; p = p->next)
		tell(b, p);
}

void expose_write(const struct box *b, struct json_out *o, const char *key)
{
	json_put_arr(o, key);
	for (unsigned i = 0; i < b->spec.nexposed; i++) {
		const struct port *p = b->ports;

		while (p && p->port != b->spec.exposed[i].port)
			p = p->next;
		json_put_obj(o, NULL);
		json_put_int(o, "port", b->spec.exposed[i].port);
		json_put_int(o, "host_port", b->spec.exposed[i].host_port);
		json_put_bool(o, "listening", p && p->fd >= 0);
		if (p && p->problem[0])
			json_put_str(o, "problem", p->problem);
		json_end_obj(o);
	}
	json_end_arr(o);
}

/* ---------------------------------------------------------------- somebody connects */

/* A socket to cubby-init without ever waiting: a box can keep its queue full. */
static int connect_now(const struct box *b)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s/init.sock", b->d->run_boxes_fd, b->id);
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	r = -errno;
	(void)close(fd);
	return r;
}

void expose_dial(struct net *n, const struct json *m)
{
	const char *id = json_str(m, "id", "");
	int64_t key = json_int(m, "key", -1);
	struct buf text = BUF_INIT(512);
	const struct port *p = NULL;
	struct json_out o;
	int fd = -ENOENT;

	for (const struct box *b = n->d->boxes; b; b = b->next) {
		if (strcmp(b->id, id) != 0)
			continue;
		/* Only through a port that is exposed: the gateway has no other way into a box. */
		for (p = b->ports; p && p->key != key; p = p->next)
			;
		if (p)
			fd = connect_now(b);
		break;
	}
	json_out_init(&o, &text);
	json_put_obj(&o, NULL);
	json_put_str(&o, "op", "dialed");
	json_put_int(&o, "n", json_int(m, "n", 0));
	if (fd < 0)
		json_put_str(&o, "error", p ? strerror(-fd) : "there is no such port");
	json_end_obj(&o);
	gateway_send(n, &text, fd < 0 ? FD_NONE : fd);
	if (fd >= 0)
		(void)close(fd);
}

/* ---------------------------------------------------------------- the operation */

static void answer(struct req *q, const struct box *b)
{
	struct buf text = BUF_INIT(65536);
	struct json_out o;

	answer_begin(&o, &text);
	expose_write(b, &o, "exposed");
	json_end_obj(&o);
	req_ok(q, &text, NULL, 0);
}

static int at_of(const struct box *b, uint16_t port)
{
	for (unsigned i = 0; i < b->spec.nexposed; i++)
		if (b->spec.exposed[i].port == port)
			return (int)i;
	return -1;
}

static void remove_port(struct box *b, unsigned at)
{
	uint16_t port = b->spec.exposed[at].port;

	memmove(&b->spec.exposed[at], &b->spec.exposed[at + 1], (b->spec.nexposed - at - 1) * sizeof(b->spec.exposed[0]));
	b->spec.nexposed--;
	for (struct port **p = &b->ports; *p; p = &(*p)->next)
		if ((*p)->port == port) {
			struct port *gone = *p;

			*p = gone->next;
			port_free(b, gone);
			return;
		}
}

static int add_port(struct req *q, struct box *b, struct exposed x, bool given, struct err *e)
{
	struct port *p;
	unsigned other;
	int fd;

	if (x.host_port < 1024 && q->uid != 0)
		return err_why(e, WHY_DENIED, -EACCES, "port %u of the host is for root: take one from 1024 on, as in 'cubby expose %s "
			       "%u:%u'", x.host_port, b->name, x.port, 8000 + x.host_port % 1000);
	if (!b->spec.net)
		return err_why(e, WHY_WRONG_STATE, -ENETDOWN, "box '%s' has no network, and so no ports to show: 'cubby net set %s internet' "
			       "gives it one", b->name, b->name);
	if (b->spec.nexposed == SPEC_EXPOSE_MAX)
		return err_why(e, WHY_LIMIT, -ENOSPC, "box '%s' shows %u ports already", b->name, SPEC_EXPOSE_MAX);
	fd = listen_at(x.host_port);
	if (fd == -EADDRINUSE) {
		other = free_port(x.host_port);
		if (other == 0)
			return err_why(e, WHY_EXISTS, -EADDRINUSE, "port %u of the host is taken, and so are those near it", x.host_port);
		return err_why(e, WHY_EXISTS, -EADDRINUSE, "port %u of the host is taken%s: %u is free, 'cubby expose %s %u:%u'",
			       x.host_port, given ? "" : " (the box's port stays the same)", other, b->name, x.port, other);
	}
	if (fd < 0)
		return err_set(e, fd, "cannot listen at port %u of the host's loopback", x.host_port);
	b->spec.exposed[b->spec.nexposed++] = x;
	if (!b->net_on) {
		/* It will listen when the box runs. */
		(void)close(fd);
		return 0;
	}
	p = port_new(b, x, fd);
	if (!p) {
		(void)close(fd);
		b->spec.nexposed--;
		return err_set(e, -ENOMEM, "cannot hold another port");
	}
	tell(b, p);
	return 0;
}

void op_expose(struct req *q)
{
	int64_t port = json_int(q->doc.root, "port", 0), host = json_int(q->doc.root, "host_port", 0);
	bool given = json_get(q->doc.root, "host_port"), off = json_bool(q->doc.root, "off", false);
	bool change = json_get(q->doc.root, "port");
	struct box *b = op_box(q, change);
	struct err e = ERR_INIT;
	struct exposed x;
	int at, r = 0;

	if (!b)
		return;
	if (!change) {
		answer(q, b);
		return;
	}
	if (!op_whole(q, b))
		return;
	if (port < 1 || port > 65535 || host < 0 || host > 65535) {
		op_fail(q, WHY_BAD_REQUEST, -EINVAL, "a port is a number from 1 to 65535");
		return;
	}
	x = (struct exposed){ (uint16_t)port, given ? (uint16_t)host : (uint16_t)port };
	at = at_of(b, x.port);
	if (off && at < 0) {
		op_fail(q, WHY_NOT_FOUND, -ENOENT, "port %u of box '%s' isn't exposed", x.port, b->name);
		return;
	}
	if (off && given && b->spec.exposed[at].host_port != x.host_port) {
		op_fail(q, WHY_NOT_FOUND, -ENOENT, "port %u of box '%s' is at port %u of the host, not at %u: 'cubby expose %s %u --off' "
			"ends that", x.port, b->name, b->spec.exposed[at].host_port, x.host_port, b->name, x.port);
		return;
	}
	if (off)
		remove_port(b, (unsigned)at);
	else if (at >= 0 && (!given || b->spec.exposed[at].host_port == x.host_port))
		;	/* it is already */
	else if (at >= 0)
		r = err_why(&e, WHY_EXISTS, -EEXIST, "port %u of box '%s' is at port %u of the host already: 'cubby expose %s %u --off' ends "
			    "that", x.port, b->name, b->spec.exposed[at].host_port, b->name, x.port);
	else
		r = add_port(q, b, x, given, &e);
	if (r == 0)
		r = box_save(b, true, &e);
	if (r < 0) {
		req_fail(q, &e);
		return;
	}
	answer(q, b);
}
