/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net/names without memory: a box asks with the first, second, third … allocation failing, until nothing fails any more. Each query
 * is answered once (or dropped, as one that was lost on the way), nothing stays behind, and the next one gets its answer.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "dns_msg.h"
#include "lib/leak.h"
#include "net/dns.h"
#include "net/names.h"

/* The linker leads every call of these here (ld(1), --wrap). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t a, size_t b);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t a, size_t b);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool counting;
static unsigned calls, fail_at;
static long live;

static bool refuse(void)
{
	return counting && ++calls == fail_at;
}

void *__wrap_malloc(size_t n)
{
	void *p = refuse() ? NULL : __real_malloc(n);

	live += p != NULL;
	return p;
}

void *__wrap_calloc(size_t a, size_t b)
{
	void *p = refuse() ? NULL : __real_calloc(a, b);

	live += p != NULL;
	return p;
}

void *__wrap_realloc(void *p, size_t n)
{
	void *q = refuse() ? NULL : __real_realloc(p, n);

	live += !p && q;
	return q;
}

char *__wrap_strdup(const char *s)
{
	char *p = refuse() ? NULL : __real_strdup(s);

	live += p != NULL;
	return p;
}

void __wrap_free(void *p)
{
	live -= p != NULL;
	__real_free(p);
}

static struct loop *loop;
static struct policy *policy;
static unsigned answers, looked;
static int code;

/* One that answers everything with an alias and two addresses. */
static void serve(void *arg, uint32_t events)
{
	int fd = *(int *)arg;
	static struct msg in, out;
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	ssize_t n = recvfrom(fd, in.b, sizeof(in.b), MSG_DONTWAIT, (struct sockaddr *)&from, &len);
	size_t end = 12;

	(void)events;
	if (n < 17)
		return;
	while (in.b[end])
		end += 1u + in.b[end];
	end += 5;
	put_head(&out, at16(in.b), 0x8180, 1, 3, 0, 0);
	put(&out, in.b + 12, end - 12);
	put(&out, "\xc0\x0c", 2);
	put_rr(&out, 5, 300, "\1c\7example\0", 11);
	put_a(&out, "c.example", 300, 0x14000001);
	put_a(&out, "c.example", 300, 0x14000002);
	(void)!sendto(fd, out.b, out.n, 0, (struct sockaddr *)&from, len);
}

static const struct policy *policy_of(void *box)
{
	(void)box;
	return policy;
}

static void event(void *box, enum names_event ev, const char *name, const struct ip *addr, const char *why)
{
	(void)box;
	(void)ev;
	(void)addr;
	assert_non_null(name);
	assert_non_null(why);
}

static void answered(void *arg, const void *msg, size_t n)
{
	(void)arg;
	answers++;
	code = n >= 12 ? ((const uint8_t *)msg)[3] & 15 : -1;
	loop_quit(loop);
}

static void looked_up(void *arg, const struct ip *addrs, size_t n)
{
	(void)arg;
	(void)addrs;
	(void)n;
	looked++;
	loop_quit(loop);
}

static void enough(void *arg)
{
	(void)arg;
	fail_msg("no answer came");
}

static void until(const unsigned *what, unsigned value)
{
	struct loop_timer t = { 0 };

	loop_timer_set(loop, &t, 10000, enough, NULL);
	while (*what < value)
		assert_int_equal(loop_run(loop), 0);
	loop_timer_stop(loop, &t);
}

static void question(struct names_box *b, const char *name)
{
	static struct msg m;

	put_head(&m, 7, 0x0100, 1, 0, 0, 0);
	put_question(&m, name, 1);
	names_query(b, m.b, m.n, NAMES_UDP_MAX, answered, NULL);
}

/* Returns whether an allocation failed. */
static bool once(unsigned port)
{
	struct own_addrs own = { 0 };
	struct names_calls calls_of = { .policy = policy_of, .own = &own, .event = event };
	struct names *names = NULL;
	struct names_box *b = NULL;
	struct err e = ERR_INIT;
	char conf[100];
	bool failed;

	(void)snprintf(conf, sizeof(conf), "nameserver [127.0.0.1]:%u\noptions timeout:1 attempts:1\n", port);
	answers = looked = 0;
	calls = 0;
	counting = true;
	if (names_new(loop, &calls_of, &names, &e) < 0) {
		counting = false;
		assert_int_equal(e.code, -ENOMEM);
		assert_null(names);
		return true;
	}
	names_upstreams(names, conf, true);
	b = names_box_new(names, NULL);
	if (b) {
		question(b, "a.example");
		until(&answers, 1);
		question(b, NET_HOST_NAME);
		until(&answers, 2);
		names_lookup(b, "b.example", looked_up, NULL);
		until(&looked, 1);
	}
	failed = calls >= fail_at;
	counting = false;
	if (b) {
		/* Not in the way of the next one. */
		question(b, "d.example");
		until(&answers, 3);
		assert_int_equal(code, DNS_NOERROR);
		assert_int_equal(answers, 3);
		assert_int_equal(looked, 1);
	} else {
		assert_true(failed);
	}
	names_free(names);
	return failed;
}

static void each_allocation_may_fail(void **state)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	struct loop_io io = { 0 };
	struct err e = ERR_INIT;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	long before;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &len), 0);
	assert_int_equal(policy_parse("internet", NULL, &policy, &e), 0);
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(loop_add(loop, &io, fd, EPOLLIN, serve, &fd), 0);
	before = live;
	for (fail_at = 1; once(ntohs(sin.sin_port)); fail_at++) {
		assert_int_equal(live, before);
		assert_true(fail_at < 200);
	}
	assert_int_equal(live, before);
	print_message("# %u allocations\n", fail_at - 1);
	assert_true(fail_at > 15);
	loop_del(loop, &io);
	loop_free(loop);
	policy_unref(policy);
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_allocation_may_fail, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
