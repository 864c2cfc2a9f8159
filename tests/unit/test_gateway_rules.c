/* SPDX-License-Identifier: Apache-2.0 */
/* cubby-gateway: names, questions to a person, limits, changes of a policy (test_gateway_net.h has the world). */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"
#include "lib/leak.h"
#include "test_gateway_net.h"

/* ---- a resolver of one answer */

static size_t put_name(uint8_t *p, const char *name)
{
	size_t n = 0;

	while (*name) {
		size_t k = strcspn(name, ".");

		p[n++] = (uint8_t)k;
		memcpy(p + n, name, k);
		n += k;
		name += k + (name[k] == '.');
	}
	p[n++] = 0;
	return n;
}

static size_t make_query(uint8_t *p, const char *name)
{
	static const uint8_t head[12] = { 0x12, 0x34, 1, 0, 0, 1 };
	static const uint8_t type[4] = { 0, 1, 0, 1 };
	size_t n = sizeof(head);

	memcpy(p, head, sizeof(head));
	n += put_name(p + n, name);
	memcpy(p + n, type, 4);
	return n + 4;
}

/* Answer the next query that comes to the upstream resolver with one A record; false when none comes. */
static bool serve(int upstream, const uint8_t a[4])
{
	uint8_t p[2048];
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	ssize_t n;
	size_t at = 12;

	if (!net_wait(upstream, POLLIN, 2000))
		return false;
	n = recvfrom(upstream, p, 512, 0, (struct sockaddr *)&from, &len);
	assert_true(n > 16);
	while (p[at])
		at += p[at] + 1u;
	at += 5;
	p[2] = 0x81;
	p[3] = 0x80;
	p[6] = 0;
	p[7] = 1;
	memset(p + 8, 0, 4);
	memcpy(p + at, (const uint8_t[]){ 0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4 }, 12);
	memcpy(p + at + 12, a, 4);
	return sendto(upstream, p, at + 16, 0, (struct sockaddr *)&from, len) > 0;
}

/* Look a name up in the box over UDP. The response code, or -1 for no answer. */
static int look_up(struct test_net *n, int upstream, const char *name, const uint8_t a[4])
{
	struct sockaddr_storage to;
	/* To any address at all: it is the gateway's resolver that answers. */
	socklen_t len = net_addr("203.0.113.77", 53, &to);
	OWN_FD fd = net_socket(n->box[0].ns, AF_INET, SOCK_DGRAM, 0);
	uint8_t p[2048];
	size_t k = make_query(p, name);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
	assert_int_equal(send(fd, p, k, 0), k);
	if (a)
		assert_true(serve(upstream, a));
	if (!net_wait(fd, POLLIN, 3000))
		return -1;
	assert_true(recv(fd, p, sizeof(p), 0) >= 12);
	assert_int_equal(p[0] << 8 | p[1], 0x1234);
	return p[3] & 15;
}

static const uint8_t ten[4] = { 203, 0, 113, 10 };

/* Connect, say something, and tell whether it came through; the connection must be cut otherwise. */
static bool says(struct test_net *n, int l, uint16_t port, const void *text, size_t len)
{
	OWN_FD c = FD_NONE, s = FD_NONE;
	char buf[4096];

	assert_int_equal(net_connect(n->box[0].ns, "203.0.113.10", port, 3000, &c), 0);
	s = net_accept(l);
	assert_true(s >= 0);
	/* The server may speak first. */
	assert_int_equal(send(s, "220\n", 4, 0), 4);
	assert_int_equal(net_read(c, buf, 4), 4);
	assert_int_equal(send(c, text, len, 0), len);
	if (net_read(s, buf, len) == (ssize_t)len)
		return true;
	assert_int_equal(net_read(c, buf, 1), -ECONNRESET);
	return false;
}

#define HTTP(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

static void clients_have_to_name_whom_they_may_reach(void **state)
{
	struct test_net n;
	OWN_FD up = FD_NONE, web = FD_NONE, other = FD_NONE, c = FD_NONE;

	(void)state;
	net_up(&n);
	up = net_udp(n.inet, "203.0.113.53", 53);
	web = net_listen(n.inet, "203.0.113.10", 80);
	other = net_listen(n.inet, "203.0.113.10", 2222);
	net_box(&n, 0, "www.example.com:80,api.example.com:80,git.example.com:2222", "");
	net_settled(&n);
	/* By the address alone nothing is allowed ... */
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 80, 3000, &c), -ECONNREFUSED);
	/* ... nor is a name looked up that isn't on the list (it does not exist, net/names.h); */
	assert_int_equal(look_up(&n, up, "evil.example.com", NULL), 3);
	assert_int_equal(look_up(&n, up, "www.example.com", ten), 0);
	assert_true(says(&n, web, 80, HTTP("www.example.com"), strlen(HTTP("www.example.com"))));
	/* another name at the same address, */
	assert_false(says(&n, web, 80, HTTP("evil.example.com"), strlen(HTTP("evil.example.com"))));
	/* a name on the list that this address was never given out for, */
	assert_false(says(&n, web, 80, HTTP("api.example.com"), strlen(HTTP("api.example.com"))));
	/* and no name at all. */
	assert_false(says(&n, web, 80, "\x01\x02\x03 hello, hello\r\n\r\n", 20));
	assert_true(net_logged(&n, "the HTTP request names evil.example.com", "\"end\":\"cut\""));
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 2222, 3000, &c), -ECONNREFUSED);
	assert_int_equal(look_up(&n, up, "git.example.com", ten), 0);
	assert_true(says(&n, other, 2222, "SSH-2.0-x\r\n", 11));
	net_down(&n);
}

static void a_name_that_leads_inside_stays_outside(void **state)
{
	static const uint8_t lan[4] = { 10, 77, 0, 2 };
	struct test_net n;
	OWN_FD up = FD_NONE, l = FD_NONE, c = FD_NONE;

	(void)state;
	net_up(&n);
	up = net_udp(n.inet, "203.0.113.53", 53);
	l = net_listen(n.inet, "10.77.0.2", 80);
	net_box(&n, 0, "www.example.com", "");
	net_settled(&n);
	(void)look_up(&n, up, "www.example.com", lan);
	assert_int_equal(net_connect(n.box[0].ns, "10.77.0.2", 80, 3000, &c), -ECONNREFUSED);
	assert_true(net_logged(&n, "\"proto\":\"dns\"", "10.77.0.2"));
	net_down(&n);
}

static void the_resolver_answers_over_tcp(void **state)
{
	struct test_net n;
	OWN_FD up = FD_NONE, c = FD_NONE;
	uint8_t q[512], a[512];
	size_t k;

	(void)state;
	net_up(&n);
	up = net_udp(n.inet, "203.0.113.53", 53);
	assert_int_equal(net_connect(n.box[0].ns, "192.0.2.200", 53, 3000, &c), 0);
	for (unsigned i = 0; i < 2; i++) {
		k = make_query(q + 2, i ? "b.example.com" : "a.example.com");
		q[0] = (uint8_t)(k >> 8);
		q[1] = (uint8_t)k;
		/* In pieces. */
		assert_int_equal(send(c, q, 1, 0), 1);
		(void)poll(NULL, 0, 10);
		assert_int_equal(send(c, q + 1, k + 1, 0), k + 1);
		assert_true(serve(up, ten));
		assert_int_equal(net_read(c, a, 2), 2);
		k = (size_t)a[0] << 8 | a[1];
		assert_true(k > 16 && k < sizeof(a));
		assert_int_equal(net_read(c, a, k), k);
		assert_int_equal(a[3] & 15, 0);
		assert_memory_equal(a + k - 4, ten, 4);
	}
	net_down(&n);
}

static void a_change_cuts_what_lost_permission(void **state)
{
	struct test_net n;
	OWN_FD l = FD_NONE, c = FD_NONE, s = FD_NONE, c2 = FD_NONE, s2 = FD_NONE, l2 = FD_NONE;
	char buf[4];

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	l2 = net_listen(n.inet, "203.0.113.11", 8080);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	s = net_accept(l);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.11", 8080, 3000, &c2), 0);
	s2 = net_accept(l2);
	net_box(&n, 0, "203.0.113.11", "");
	net_settled(&n);
	assert_int_equal(net_read(c, buf, 1), -ECONNRESET);
	assert_int_equal(net_read(s, buf, 1), -ECONNRESET);
	assert_int_equal(send(c2, "x", 1, 0), 1);
	assert_int_equal(net_read(s2, buf, 1), 1);
	assert_true(net_logged(&n, "the policy was changed", "\"end\":\"cut\""));
	/* And the box itself. */
	net_send(&n, "{\"op\":\"gone\",\"id\":\"aqwertyuiopasdfgh12z\"}", FD_NONE);
	net_settled(&n);
	assert_int_equal(net_read(c2, buf, 1), -ECONNRESET);
	fd_close(&c);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.11", 8080, 300, &c), -EINPROGRESS);
	net_down(&n);
}

static void a_person_is_asked_once(void **state)
{
	struct test_net n;
	struct json_doc doc = { 0 };
	OWN_FD l = FD_NONE, c = FD_NONE;
	const struct json *q;
	char text[128];
	int64_t ask;

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	net_box(&n, 0, "ask", "");
	net_settled(&n);
	/* Held: neither refused nor connected. */
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 200, &c), -EINPROGRESS);
	q = net_event(&n, "ask", &doc);
	assert_string_equal(json_str(q, "addr", ""), "203.0.113.10");
	assert_int_equal(json_int(q, "port", 0), 8080);
	ask = json_int(q, "ask", 0);
	json_doc_done(&doc);
	(void)snprintf(text, sizeof(text), "{\"op\":\"answer\",\"ask\":%d,\"allow\":true}", (int)ask);
	net_send(&n, text, FD_NONE);
	q = net_event(&n, "asked", &doc);
	assert_string_equal(json_str(q, "how", ""), "allowed");
	json_doc_done(&doc);
	/* The answer holds for the next one. */
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	fd_close(&c);
	/* Nobody answers: refused when the time is over (1.5 s here). */
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.11", 8080, 4000, &c), -ECONNREFUSED);
	q = net_event(&n, "asked", &doc);
	assert_string_equal(json_str(q, "how", ""), "late");
	json_doc_done(&doc);
	/* What is forbidden is never asked about. */
	assert_int_equal(net_connect(n.box[0].ns, "10.77.0.2", 8080, 300, &c), -ECONNREFUSED);
	net_down(&n);
}

static void limits_are_a_boxs_own(void **state)
{
	struct test_net n;
	OWN_FD l = FD_NONE;
	int c[6], k = FD_NONE;

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	net_box(&n, 0, "internet", ",\"conns\":5");
	net_settled(&n);
	for (int i = 0; i < 5; i++)
		assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c[i]), 0);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c[5]), -ECONNREFUSED);
	assert_int_equal(net_connect(n.box[1].ns, "203.0.113.10", 8080, 3000, &k), 0);
	fd_close(&k);
	assert_true(net_logged(&n, "as many connections as it may have", "\"box\":\"aqw"));
	fd_close(&c[0]);
	for (int i = 1; i < 5; i++)
		fd_close(&c[i]);
	/* So many a second: the next one has to wait. */
	net_box(&n, 0, "internet", ",\"rate\":2");
	net_settled(&n);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &k), 0);
		fd_close(&k);
	}
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 100, &k), -EINPROGRESS);
	net_down(&n);
}

static void half_open_ones_hurt_nobody_else(void **state)
{
	enum { MANY = 3000 };
	static int fds[MANY];
	struct test_net n;
	struct sockaddr_storage to;
	OWN_FD l = FD_NONE;
	int k = FD_NONE;
	socklen_t len;

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	net_box(&n, 0, "internet", ",\"conns\":1000");
	net_settled(&n);
	len = net_addr("203.0.113.66", 81, &to);
	for (unsigned i = 0; i < MANY; i++) {
		fds[i] = net_socket(n.box[0].ns, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		if (fds[i] >= 0)
			(void)connect(fds[i], (struct sockaddr *)&to, len);
	}
	for (unsigned i = 0; i < 20; i++) {
		uint64_t began = clock_ms();

		assert_int_equal(net_connect(n.box[1].ns, "203.0.113.10", 8080, 900, &k), 0);
		fd_close(&k);
		assert_true(clock_ms() - began < 900);
	}
	for (unsigned i = 0; i < MANY; i++)
		if (fds[i] >= 0)
			fd_close(&fds[i]);
	net_down(&n);
}

static void why_and_show_tell(void **state)
{
	struct test_net n;
	struct json_doc doc = { 0 };
	OWN_FD up = FD_NONE, l = FD_NONE, c = FD_NONE;
	const struct json *q, *m;
	char text[256];

	(void)state;
	net_up(&n);
	up = net_udp(n.inet, "203.0.113.53", 53);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	net_box(&n, 0, "www.example.com,203.0.113.10:8080", "");
	net_settled(&n);
	net_send(&n, "{\"op\":\"why\",\"n\":1,\"id\":\"aqwertyuiopasdfgh12z\",\"host\":\"www.example.com\",\"port\":443}", FD_NONE);
	assert_true(serve(up, ten));
	/* A and AAAA. */
	(void)serve(up, ten);
	q = net_event(&n, "why", &doc);
	assert_string_equal(json_str(q, "verdict", ""), "allowed");
	assert_string_equal(json_str(json_get(q, "addrs")->child, "addr", ""), "203.0.113.10");
	assert_string_equal(json_str(json_get(q, "addrs")->child, "verdict", ""), "allowed");
	json_doc_done(&doc);
	net_send(&n, "{\"op\":\"why\",\"n\":2,\"id\":\"aqwertyuiopasdfgh12z\",\"host\":\"evil.example.com\",\"port\":443}", FD_NONE);
	q = net_event(&n, "why", &doc);
	assert_string_equal(json_str(q, "verdict", ""), "refused");
	assert_true(*json_str(q, "why", ""));
	json_doc_done(&doc);

	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	q = net_event(&n, "who", &doc);
	assert_string_equal(json_str(q, "proto", ""), "tcp");
	(void)snprintf(text, sizeof(text), "{\"op\":\"who\",\"n\":%d,\"process\":\"cu\\\"rl\"}", (int)json_int(q, "n", 0));
	json_doc_done(&doc);
	net_send(&n, text, FD_NONE);
	net_send(&n, "{\"op\":\"show\",\"n\":3,\"id\":\"aqwertyuiopasdfgh12z\"}", FD_NONE);
	q = net_event(&n, "show", &doc);
	m = json_get(q, "conns")->child;
	assert_non_null(m);
	assert_string_equal(json_str(m, "process", ""), "cu\"rl");
	assert_int_equal(json_int(m, "port", 0), 8080);
	json_doc_done(&doc);
	/* A box chooses the names of its processes: they stay one word of one line. */
	fd_close(&c);
	OWN_FD s = net_accept(l);

	fd_close(&s);
	assert_true(net_logged(&n, "\"process\":\"cu\\\"rl\",\"proto\":\"tcp\"", "\"end\":\"closed\"}"));
	net_down(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)
		T(clients_have_to_name_whom_they_may_reach),
		T(a_name_that_leads_inside_stays_outside),
		T(the_resolver_answers_over_tcp),
		T(a_change_cuts_what_lost_permission),
		T(a_person_is_asked_once),
		T(limits_are_a_boxs_own),
		T(half_open_ones_hurt_nobody_else),
		T(why_and_show_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
