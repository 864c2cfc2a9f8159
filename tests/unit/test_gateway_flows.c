/* SPDX-License-Identifier: Apache-2.0 */
/* cubby-gateway: UDP, ping, ports of a box, the host's proxy, and what the gateway gave up (test_gateway_net.h has the world). */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"
#include "chan/box.h"
#include "lib/leak.h"
#include "net/addr.h"
#include "net/packet.h"
#include "test_gateway_net.h"

static int udp_to(struct test_net *n, unsigned box, const char *ip, uint16_t port)
{
	struct sockaddr_storage to;
	socklen_t len = net_addr(ip, port, &to);
	int fd = net_socket(n->box[box].ns, to.ss_family, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
	return fd;
}

/* What the socket says when something comes: the bytes, or a negative errno. */
static ssize_t hear(int fd, void *buf, size_t n)
{
	ssize_t k;

	if (!net_wait(fd, POLLIN, 2000))
		return -ETIMEDOUT;
	k = recv(fd, buf, n, MSG_DONTWAIT);
	return k < 0 ? -errno : k;
}

static void datagrams_go_both_ways(void **state)
{
	static const char *const places[] = { "203.0.113.10", "2001:db8::10" };
	static char big[60000], in[65536];
	struct test_net n;

	(void)state;
	net_up(&n);
	for (unsigned i = 0; i < 2; i++) {
		OWN_FD srv = net_udp(n.inet, places[i], 5000), c = udp_to(&n, 0, places[i], 5000);
		struct sockaddr_storage from;
		socklen_t len = sizeof(from);

		for (unsigned k = 0; k < 3; k++) {
			size_t size = k == 2 ? sizeof(big) : 5 + k;

			memset(big, (int)('a' + k), sizeof(big));
			assert_int_equal(send(c, big, size, 0), size);
			assert_true(net_wait(srv, POLLIN, 2000));
			len = sizeof(from);
			assert_int_equal(recvfrom(srv, in, sizeof(in), 0, (struct sockaddr *)&from, &len), size);
			assert_memory_equal(in, big, size);
			assert_int_equal(sendto(srv, in, size, 0, (struct sockaddr *)&from, len), size);
			/* The socket is connected: it hears only who it spoke to. */
			assert_int_equal(hear(c, in, sizeof(in)), size);
			assert_memory_equal(in, big, size);
		}
	}
	net_down(&n);
}

static void datagrams_fail_as_outside(void **state)
{
	struct test_net n;
	char buf[64];

	(void)state;
	net_up(&n);
	net_box(&n, 0, "203.0.113.0/24", "");
	net_settled(&n);
	/* Nobody listens there; it is not allowed; the host; the LAN. */
	static const char *const no[] = { "203.0.113.10", "2001:db8::10", "192.0.2.2", "10.77.0.2" };

	for (unsigned i = 0; i < 4; i++) {
		OWN_FD c = udp_to(&n, 0, no[i], 5001);

		assert_int_equal(send(c, "x", 1, 0), 1);
		assert_int_equal(hear(c, buf, sizeof(buf)), -ECONNREFUSED);
	}
	assert_true(net_logged(&n, "\"proto\":\"udp\",\"host\":\"\",\"addr\":\"192.0.2.2\"", "\"verdict\":\"refused\""));
	/* To all and to groups: nothing, and no answer. */
	OWN_FD c = net_socket(n.box[0].ns, AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_storage to;
	socklen_t len = net_addr("224.0.0.251", 5353, &to);

	(void)sendto(c, "x", 1, 0, (struct sockaddr *)&to, len);
	assert_false(net_wait(c, POLLIN, 100));
	net_down(&n);
}

static void ping_answers(void **state)
{
	struct test_net n;
	static const char *const to[] = { "203.0.113.10", NET_GATEWAY4 };

	(void)state;
	net_up(&n);
	for (unsigned i = 0; i < 3; i++) {
		struct sockaddr_storage ss;
		socklen_t len = net_addr(i == 2 ? "10.77.0.2" : to[i], 0, &ss);
		OWN_FD fd = net_socket(n.box[0].ns, AF_INET, SOCK_RAW, IPPROTO_ICMP);
		uint8_t echo[64] = { 8, 0, 0, 0, 0xab, 0xcd, 0, 7 }, in[256];
		uint16_t sum;
		ssize_t k;

		assert_true(fd >= 0);
		memset(echo + 8, 'p', sizeof(echo) - 8);
		sum = pkt_sum_end(pkt_sum(0, echo, sizeof(echo)));
		memcpy(echo + 2, &sum, 2);
		assert_int_equal(sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&ss, len), sizeof(echo));
		k = hear(fd, in, sizeof(in));
		assert_true(k >= 28);
		if (i == 2) {	/* not allowed: unreachable, by a filter */
			assert_int_equal(in[20], 3);
			assert_int_equal(in[21], 13);
			continue;
		}
		assert_int_equal(k, 20 + sizeof(echo));
		assert_int_equal(in[20], 0);
		assert_memory_equal(in + 24, echo + 4, sizeof(echo) - 4);	/* id, number, data */
		assert_int_equal(pkt_sum_end(pkt_sum(0, in + 20, sizeof(echo))), 0);
	}
	net_down(&n);
}

/* As cubby-init answers: BOX_DIAL comes in, BOX_OK goes out, then bytes. */
static void a_port_of_the_box_is_reached_through_its_init(void **state)
{
	static const uint8_t ok[BOX_HEAD] = { BOX_OK }, no[BOX_HEAD + 4] = { BOX_FAIL, 0, 0, 0, 4 };
	struct test_net n;
	struct json_doc doc = { 0 };
	OWN_FD l = FD_NONE, c = FD_NONE;
	const struct json *q;
	uint8_t buf[16];
	char text[128];

	(void)state;
	net_up(&n);
	l = net_listen(FD_NONE, "127.0.0.1", 9001);
	net_send(&n, "{\"op\":\"expose\",\"key\":5,\"id\":\"aqwertyuiopasdfgh12z\",\"port\":3000}", l);
	net_settled(&n);
	for (unsigned i = 0; i < 2; i++) {
		OWN_FD init = FD_NONE, mine = FD_NONE;
		int pair[2];

		assert_int_equal(net_connect(FD_NONE, "127.0.0.1", 9001, 3000, &c), 0);
		q = net_event(&n, "dial", &doc);
		assert_int_equal(json_int(q, "key", 0), 5);
		assert_int_equal(fd_socketpair(SOCK_STREAM, pair), 0);
		init = pair[0];
		mine = pair[1];
		(void)snprintf(text, sizeof(text), "{\"op\":\"dialed\",\"n\":%d}", (int)json_int(q, "n", 0));
		json_doc_done(&doc);
		net_send(&n, text, mine);
		fd_close(&mine);
		assert_int_equal(net_read(init, buf, 12), 12);
		assert_int_equal(buf[8] | buf[9] << 8, 3000);
		if (i == 1) {	/* it says no */
			assert_int_equal(send(init, no, sizeof(no), 0), sizeof(no));
			assert_int_equal(net_read(c, buf, 1), -ECONNRESET);
			fd_close(&c);
			break;
		}
		assert_int_equal(send(init, ok, sizeof(ok), 0), sizeof(ok));
		assert_int_equal(send(c, "ask", 3, 0), 3);
		assert_int_equal(net_read(init, buf, 3), 3);
		assert_int_equal(send(init, "answer", 6, 0), 6);
		fd_close(&init);
		assert_int_equal(net_read(c, buf, 7), 6);
		fd_close(&c);
	}
	net_send(&n, "{\"op\":\"unexpose\",\"key\":5}", FD_NONE);
	net_settled(&n);
	net_down(&n);
}

static void the_hosts_proxy_is_used(void **state)
{
	struct test_net n;
	OWN_FD l = FD_NONE;
	char buf[512];

	(void)state;
	net_up(&n);
	l = net_listen(FD_NONE, "127.0.0.1", 3128);
	for (unsigned i = 0; i < 3; i++) {
		OWN_FD c = net_socket(n.box[0].ns, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), p = FD_NONE;
		struct sockaddr_storage to;
		socklen_t len = net_addr("203.0.113.10", 443, &to), clen = sizeof(int);
		int code = 0;

		net_config(&n, i == 2 ? "socks5://127.0.0.1:3128" : "http://me:s%40y@127.0.0.1:3128");
		net_settled(&n);
		assert_int_equal(connect(c, (struct sockaddr *)&to, len), -1);
		p = net_accept(l);
		assert_true(p >= 0);
		if (i == 2) {
			assert_int_equal(net_read(p, buf, 3), 3);
			assert_int_equal(send(p, "\5\0", 2, 0), 2);
			assert_int_equal(net_read(p, buf, 10), 10);
			assert_memory_equal(buf, "\5\1\0\1\xcb\0\x71\x0a\1\xbb", 10);
			assert_int_equal(send(p, "\5\0\0\1\0\0\0\0\0\0first", 15, 0), 15);
		} else {
			static const char want[] = "CONNECT 203.0.113.10:443 HTTP/1.1\r\nHost: 203.0.113.10:443\r\n"
						   "Proxy-Authorization: Basic bWU6c0B5\r\n\r\n";

			assert_int_equal(net_read(p, buf, sizeof(want) - 1), sizeof(want) - 1);
			assert_memory_equal(buf, want, sizeof(want) - 1);
			/* The box still waits. */
			assert_false(net_wait(c, POLLOUT, 50));
			(void)!send(p, i ? "HTTP/1.1 403 No\r\n\r\n" : "HTTP/1.1 200 OK\r\nX: y\r\n\r\nfirst", i ? 19 : 31, 0);
		}
		assert_true(net_wait(c, POLLOUT, 2000));
		assert_int_equal(getsockopt(c, SOL_SOCKET, SO_ERROR, &code, &clen), 0);
		assert_int_equal(code, i == 1 ? ECONNREFUSED : 0);
		if (i != 1) {
			assert_int_equal(net_read(c, buf, 5), 5);
			assert_memory_equal(buf, "first", 5);
		}
	}
	net_down(&n);
}

static void nothing_is_left_to_the_gateway(void **state)
{
	struct test_net n;
	char path[64], text[4096];

	(void)state;
	net_up(&n);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)n.pid);
	assert_true(file_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "Uid:\t64123\t64123\t64123\t64123"));
	assert_non_null(strstr(text, "Gid:\t64123\t64123\t64123\t64123"));
	assert_non_null(strstr(text, "Groups:\t \n"));
	assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
	assert_non_null(strstr(text, "CapPrm:\t0000000000000000"));
	assert_non_null(strstr(text, "CapBnd:\t0000000000000000"));
	assert_non_null(strstr(text, "NoNewPrivs:\t1"));
#ifndef __SANITIZE_ADDRESS__
	assert_non_null(strstr(text, "Seccomp:\t2"));
	(void)snprintf(path, sizeof(path), "/proc/%d/root/etc", (int)n.pid);
	assert_int_equal(access(path, F_OK), -1);
#endif
	net_down(&n);
}

/* Fail closed: no gateway, no network; not an open one. */
static void a_killed_gateway_ends_everything(void **state)
{
	struct test_net n;
	OWN_FD l = FD_NONE, c = FD_NONE, s = FD_NONE, d = FD_NONE;
	char buf[4];

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	s = net_accept(l);
	assert_int_equal(kill(n.pid, SIGKILL), 0);
	assert_int_equal(waitpid(n.pid, NULL, 0), n.pid);
	n.pid = 0;
	assert_true(net_read(c, buf, 1) <= 0);
	assert_true(net_read(s, buf, 1) <= 0);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 300, &d), -EINPROGRESS);
	net_down(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)
		T(datagrams_go_both_ways),
		T(datagrams_fail_as_outside),
		T(ping_answers),
		T(a_port_of_the_box_is_reached_through_its_init),
		T(the_hosts_proxy_is_used),
		T(nothing_is_left_to_the_gateway),
		T(a_killed_gateway_ends_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
