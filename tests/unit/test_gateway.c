/* SPDX-License-Identifier: Apache-2.0 */
/* cubby-gateway as boxes meet it: in a small world of network namespaces (test_gateway_net.h). */
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
#include "net/addr.h"
#include "test_gateway_net.h"

static void a_connection_goes_both_ways(void **state)
{
	static const struct {
		const char *ip;
		uint16_t port;
	} places[] = { { "203.0.113.10", 8080 }, { "2001:db8::10", 8081 } };
	struct test_net n;
	char buf[16];

	(void)state;
	net_up(&n);
	for (unsigned i = 0; i < 2; i++) {
		OWN_FD l = net_listen(n.inet, places[i].ip, places[i].port);
		OWN_FD c = FD_NONE, s = FD_NONE;

		assert_int_equal(net_connect(n.box[0].ns, places[i].ip, places[i].port, 3000, &c), 0);
		s = net_accept(l);
		assert_true(s >= 0);
		assert_int_equal(send(c, "hello", 5, 0), 5);
		assert_int_equal(net_read(s, buf, 5), 5);
		assert_memory_equal(buf, "hello", 5);
		/* Half closed: the other direction goes on. */
		assert_int_equal(shutdown(c, SHUT_WR), 0);
		assert_int_equal(net_read(s, buf, 1), 0);
		assert_int_equal(send(s, "world", 5, 0), 5);
		fd_close(&s);
		assert_int_equal(net_read(c, buf, 6), 5);
		assert_memory_equal(buf, "world", 5);
	}
	assert_true(net_logged(&n, "\"addr\":\"203.0.113.10\",\"port\":8080,\"verdict\":\"allowed\"", "\"up\":5,\"down\":5"));
	assert_true(net_logged(&n, "\"addr\":\"2001:db8::10\"", "\"end\":\"closed\""));
	net_down(&n);
}

static void failures_are_those_of_the_far_end(void **state)
{
	struct test_net n;
	OWN_FD c = FD_NONE;
	uint64_t began;

	(void)state;
	net_up(&n);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 9, 3000, &c), -ECONNREFUSED);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.99", 80, 3000, &c), -EHOSTUNREACH);
	began = clock_ms();
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.66", 80, 400, &c), -EINPROGRESS);
	assert_true(clock_ms() - began >= 399);
	assert_int_equal(net_connect(n.box[0].ns, "2001:db8::10", 9, 3000, &c), -ECONNREFUSED);
	assert_true(net_logged(&n, "\"port\":9,\"verdict\":\"allowed\"", "\"end\":\"refused\""));
	assert_true(net_logged(&n, "\"addr\":\"203.0.113.99\"", "\"end\":\"unreachable\""));
	net_down(&n);
}

static void what_is_not_allowed_is_refused_at_once(void **state)
{
	struct test_net n;
	OWN_FD far = FD_NONE, own = FD_NONE, lan = FD_NONE, c = FD_NONE;

	(void)state;
	net_up(&n);
	far = net_listen(n.inet, "203.0.113.10", 8080);
	own = net_listen(FD_NONE, "0.0.0.0", 8080);
	lan = net_listen(n.inet, "10.77.0.2", 8080);
	/* The host, by every address; the LAN; other boxes. */
	static const char *const no[] = { "192.0.2.2", "127.0.0.1", "10.77.0.2", "169.254.169.254", "198.18.0.1", "2001:db8:1::2", "fd63:7562:6279::1" };

	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		int r = net_connect(n.box[0].ns, no[i], 8080, 3000, &c);

		if (r != (strncmp(no[i], "127", 3) == 0 ? -ECONNREFUSED : -ECONNREFUSED))
			fail_msg("%s: %d", no[i], r);
	}
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	fd_close(&c);
	/* With exceptions. */
	net_box(&n, 0, "203.0.113.11,lan=10.77.0.2/32:8080,host-port=8080", "");
	net_settled(&n);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), -ECONNREFUSED);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.11", 8081, 3000, &c), -ECONNREFUSED);
	assert_int_equal(net_connect(n.box[0].ns, "10.77.0.2", 8080, 3000, &c), 0);
	fd_close(&c);
	assert_int_equal(net_connect(n.box[0].ns, NET_GATEWAY4, 8080, 3000, &c), 0);
	fd_close(&c);
	assert_true(net_logged(&n, "\"addr\":\"192.0.2.2\"", "\"verdict\":\"refused\""));
	net_down(&n);
}

static void resets_are_passed_on(void **state)
{
	const struct linger now = { 1, 0 };
	struct test_net n;
	OWN_FD l = FD_NONE;
	char buf[4];

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	for (unsigned i = 0; i < 2; i++) {
		OWN_FD c = FD_NONE, s = FD_NONE;
		int *gone = i ? &c : &s, *stays = i ? &s : &c;

		assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
		s = net_accept(l);
		assert_int_equal(setsockopt(*gone, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
		fd_close(gone);
		assert_int_equal(net_read(*stays, buf, 1), -ECONNRESET);
	}
	assert_true(net_logged(&n, "\"end\":\"reset\"", NULL));
	net_down(&n);
}

/* Every byte, in order, in both directions, with more under way than any buffer holds. */
static void much_arrives_whole(void **state)
{
	enum { ALL = 48 << 20 };
	static uint8_t out[1 << 16], in[1 << 16];
	struct test_net n;
	OWN_FD l = FD_NONE, c = FD_NONE, s = FD_NONE;

	(void)state;
	net_up(&n);
	l = net_listen(n.inet, "203.0.113.10", 8080);
	assert_int_equal(net_connect(n.box[0].ns, "203.0.113.10", 8080, 3000, &c), 0);
	s = net_accept(l);
	(void)fd_set_nonblock(c, true);
	(void)fd_set_nonblock(s, true);
	for (unsigned way = 0; way < 2; way++) {
		int from = way ? s : c, to = way ? c : s;
		uint64_t sent = 0, got = 0;
		bool slow = true;

		while (got < ALL) {
			struct pollfd p[2] = { { .fd = from, .events = sent < ALL ? POLLOUT : 0 }, { .fd = to, .events = POLLIN } };
			ssize_t k;

			/* First nothing is read, until everything between is full. */
			assert_true(poll(p, slow ? 1 : 2, slow ? 300 : 5000) >= 0);
			if (slow && !(p[0].revents & POLLOUT))
				slow = false;
			if (p[0].revents & POLLOUT) {
				size_t m = ALL - sent < sizeof(out) ? ALL - sent : sizeof(out);

				for (size_t i = 0; i < m; i++)
					out[i] = (uint8_t)((sent + i) * 2654435761u >> 13);
				k = send(from, out, m, MSG_DONTWAIT);
				if (k > 0)
					sent += (uint64_t)k;
			}
			if (slow)
				continue;
			k = recv(to, in, sizeof(in), MSG_DONTWAIT);
			if (k == 0)
				fail_msg("ended after %llu", (unsigned long long)got);
			for (ssize_t i = 0; i < k; i++)
				if (in[i] != (uint8_t)((got + (uint64_t)i) * 2654435761u >> 13))
					fail_msg("byte %llu differs", (unsigned long long)(got + (uint64_t)i));
			if (k > 0)
				got += (uint64_t)k;
		}
	}
	net_down(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)
		T(a_connection_goes_both_ways),
		T(failures_are_those_of_the_far_end),
		T(what_is_not_allowed_is_refused_at_once),
		T(resets_are_passed_on),
		T(much_arrives_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
