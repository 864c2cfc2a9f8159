/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of connections: whole, in pieces, spread over records, and misleading. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lib/leak.h"
#include "net/sniff.h"

static void put16(struct buf *b, size_t v)
{
	const char d[] = { (char)(v >> 8), (char)v };

	assert_int_equal(buf_put(b, d, 2), 0);
}

static void put_ext(struct buf *b, unsigned type, const void *data, size_t n)
{
	put16(b, type);
	put16(b, n);
	assert_int_equal(buf_put(b, data, n), 0);
}

/* One server_name extension with the names given. */
static void put_names(struct buf *b, const char *const *names, size_t n)
{
	struct buf list = BUF_INIT(4096), ext = BUF_INIT(4096);

	for (size_t i = 0; i < n; i++) {
		assert_int_equal(buf_putc(&list, 0), 0);
		put16(&list, strlen(names[i]));
		assert_int_equal(buf_puts(&list, names[i]), 0);
	}
	put16(&ext, list.len);
	assert_int_equal(buf_put(&ext, list.data, list.len), 0);
	put_ext(b, 0, ext.data, ext.len);
	buf_done(&list);
	buf_done(&ext);
}

/* A greeting with these extensions, as records of at most `record` bytes. */
static void put_hello(struct buf *to, const struct buf *exts, size_t record)
{
	struct buf body = BUF_INIT(65536), msg = BUF_INIT(65536);

	put16(&body, 0x0303);
	for (int i = 0; i < 32; i++)
		assert_int_equal(buf_putc(&body, (char)(i * 7)), 0);
	assert_int_equal(buf_put(&body, "\x20", 1), 0);
	for (int i = 0; i < 32; i++)
		assert_int_equal(buf_putc(&body, (char)i), 0);
	put16(&body, 4);
	assert_int_equal(buf_put(&body, "\x0a\x0a\x13\x01\x01\x00", 6), 0);	/* a suite of GREASE (RFC 8701), a real one; compression */
	if (exts) {
		put16(&body, exts->len);
		assert_int_equal(buf_put(&body, exts->data ? exts->data : "", exts->len), 0);
	}
	assert_int_equal(buf_put(&msg, "\x01\x00", 2), 0);
	put16(&msg, body.len);
	assert_int_equal(buf_put(&msg, body.data, body.len), 0);
	for (size_t at = 0; at < msg.len; at += record) {
		size_t n = msg.len - at < record ? msg.len - at : record;

		assert_int_equal(buf_put(to, "\x16\x03\x01", 3), 0);
		put16(to, n);
		assert_int_equal(buf_put(to, msg.data + at, n), 0);
	}
	buf_done(&body);
	buf_done(&msg);
}

static void hello_named(struct buf *to, const char *name, size_t record)
{
	struct buf exts = BUF_INIT(65536);

	put_ext(&exts, 0x2a2a, "", 0);
	if (name)
		put_names(&exts, &name, 1);
	put_ext(&exts, 16, "\0\3\2h2", 5);
	put_hello(to, &exts, record);
	buf_done(&exts);
}

/* Every prefix wants more; the whole gives the name; what follows doesn't matter. */
static void whole_and_in_pieces(void **state)
{
	static const size_t records[] = { 1, 2, 7, 100, 16384 };

	(void)state;
	for (size_t k = 0; k < sizeof(records) / sizeof(records[0]); k++) {
		struct buf b = BUF_INIT(65536);
		char name[HOST_NAME_MAX_LEN + 1];

		hello_named(&b, "WWW.Example.org", records[k]);
		for (size_t n = 0; n < b.len; n++)
			assert_int_equal(sniff(b.data, n, name), SNIFF_MORE);
		assert_int_equal(sniff(b.data, b.len, name), SNIFF_TLS);
		assert_string_equal(name, "www.example.org");
		assert_int_equal(buf_puts(&b, "trailing"), 0);
		assert_int_equal(sniff(b.data, b.len, name), SNIFF_TLS);
		assert_string_equal(name, "www.example.org");
		buf_done(&b);
	}
}

/* Servers look at the first half of a record's version only (RFC 8446, 5.1: it "MUST be ignored"). */
static void versions_of_records(void **state)
{
	(void)state;
	for (int v = 0; v < 256; v += 51) {
		struct buf b = BUF_INIT(65536);
		char name[HOST_NAME_MAX_LEN + 1];

		hello_named(&b, "a.example.org", 16384);
		b.data[2] = (char)v;
		assert_int_equal(sniff(b.data, b.len, name), SNIFF_TLS);
		assert_string_equal(name, "a.example.org");
		buf_done(&b);
	}
}

/* git waits for its answer after this, and there is no end of line in it. */
static void git_asks_without_a_line(void **state)
{
	static const char ask[] = "0033git-upload-pack /project.git\0host=a.example.org\0";
	char name[HOST_NAME_MAX_LEN + 1];

	(void)state;
	assert_int_equal(sniff(ask, sizeof(ask) - 1, name), SNIFF_OTHER);
	assert_int_equal(sniff(ask, 20, name), SNIFF_MORE);
}

/* ---- what real clients say; each piece of it wants more, the whole names whom it was told to */

static int listen_here(uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static bool is_program(const char *word)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/usr/bin/%s", word);
	return access(path, X_OK) == 0;
}

/* "@" in an argument stands for the port. False: the program isn't there. */
static bool client_says(const char *const *argv, enum sniff what, const char *host)
{
	static char got[65536];
	char args[12][128], name[HOST_NAME_MAX_LEN + 1], *av[13] = { NULL };
	struct pollfd p = { .events = POLLIN };
	enum sniff r = SNIFF_MORE;
	size_t n = 0;
	uint16_t port;
	int fd, conn, status;
	pid_t pid;

	if (!is_program(argv[0]))
		return false;
	fd = listen_here(&port);
	for (int i = 0; argv[i]; i++) {
		const char *at = strchr(argv[i], '@');

		if (at)
			(void)snprintf(args[i], sizeof(args[i]), "%.*s%u%s", (int)(at - argv[i]), argv[i], port, at + 1);
		else
			(void)snprintf(args[i], sizeof(args[i]), "%s", argv[i]);
		av[i] = args[i];
	}
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		(void)dup2(null, 0);
		(void)dup2(null, 1);
		(void)dup2(null, 2);
		execvp(av[0], av);
		_exit(127);
	}
	assert_true(pid > 0);
	p.fd = fd;
	conn = poll(&p, 1, 10000) == 1 ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
	p.fd = conn;
	while (conn >= 0 && r == SNIFF_MORE && poll(&p, 1, 10000) == 1) {
		ssize_t k = read(conn, got + n, sizeof(got) - n);

		if (k <= 0)
			break;
		n += (size_t)k;
		r = sniff(got, n, name);
	}
	if (conn >= 0)
		(void)close(conn);
	(void)close(fd);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (r != what || strcmp(name, host) != 0)
		fail_msg("%s %s: %d '%s' after %zu bytes", argv[0], argv[1], r, r == SNIFF_MORE ? "" : name, n);
	for (size_t k = 0; k < n; k++) {
		r = sniff(got, k, name);
		if (r != SNIFF_MORE && (r != what || strcmp(name, host) != 0))
			fail_msg("%s %s: %zu bytes of %zu give %d", argv[0], argv[1], k, n, r);
	}
	return true;
}

static void real_clients(void **state)
{
	static const struct {
		const char *argv[12];
		enum sniff what;
		const char *host;
	} rows[] = {
		{ { "openssl", "s_client", "-connect", "127.0.0.1:@", "-servername", "One.example.org" }, SNIFF_TLS, "one.example.org" },
		{ { "openssl", "s_client", "-connect", "127.0.0.1:@", "-noservername" }, SNIFF_TLS, "" },
		{ { "openssl", "s_client", "-connect", "127.0.0.1:@", "-servername", "two.example.org", "-tls1_2" }, SNIFF_TLS, "two.example.org" },
		{ { "openssl", "s_client", "-connect", "127.0.0.1:@", "-servername", "three.example.org", "-alpn", "h2,http/1.1", "-max_send_frag", "512" },
		  SNIFF_TLS, "three.example.org" },
		{ { "curl", "-sk", "--resolve", "four.example.org:@:127.0.0.1", "https://four.example.org:@/" }, SNIFF_TLS, "four.example.org" },
		{ { "curl", "-s", "--resolve", "five.example.org:@:127.0.0.1", "http://five.example.org:@/x?y" }, SNIFF_HTTP, "five.example.org" },
		{ { "curl", "-s", "-0", "--resolve", "six.example.org:@:127.0.0.1", "http://six.example.org:@/" }, SNIFF_HTTP, "six.example.org" },
		{ { "curl", "-s", "-x", "http://127.0.0.1:@", "http://seven.example.org/" }, SNIFF_HTTP, "seven.example.org" },
		{ { "curl", "-s", "-x", "http://127.0.0.1:@", "https://eight.example.org/" }, SNIFF_HTTP, "eight.example.org" },
		{ { "curl", "-s", "--http2-prior-knowledge", "http://127.0.0.1:@/" }, SNIFF_OTHER, "" },
		{ { "curl", "-s", "--http2", "--resolve", "nine.example.org:@:127.0.0.1", "http://nine.example.org:@/" }, SNIFF_HTTP, "nine.example.org" },
		{ { "git", "ls-remote", "git://127.0.0.1:@/x.git" }, SNIFF_OTHER, "" },
	};
	size_t ran = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ran += client_says(rows[i].argv, rows[i].what, rows[i].host);
	if (ran == 0)
		skip_because("neither openssl, curl nor git is installed");
}

static void no_name(void **state)
{
	struct buf b = BUF_INIT(65536), none = BUF_INIT(65536);
	char name[HOST_NAME_MAX_LEN + 1] = "x";

	(void)state;
	hello_named(&b, NULL, 16384);
	assert_int_equal(sniff(b.data, b.len, name), SNIFF_TLS);
	assert_string_equal(name, "");
	put_hello(&none, NULL, 16384);
	assert_int_equal(sniff(none.data, none.len, name), SNIFF_TLS);
	assert_string_equal(name, "");
	buf_done(&b);
	buf_done(&none);
}

static void bad_greetings(void **state)
{
	static const char *const two[] = { "a.example.org", "b.example.org" };
	static const char *const wrong[] = { "a..b", "", "a b.org", "evil.org\n" };
	char name[HOST_NAME_MAX_LEN + 1];

	(void)state;
	for (int way = 0; way < 2; way++) {
		struct buf exts = BUF_INIT(65536), b = BUF_INIT(65536);

		if (way == 0) {
			put_names(&exts, two, 2);
		} else {
			put_names(&exts, two, 1);
			put_names(&exts, two + 1, 1);
		}
		put_hello(&b, &exts, 16384);
		assert_int_equal(sniff(b.data, b.len, name), SNIFF_BAD);
		assert_string_equal(name, "");
		buf_done(&exts);
		buf_done(&b);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct buf b = BUF_INIT(65536);

		hello_named(&b, wrong[i], 16384);
		assert_int_equal(sniff(b.data, b.len, name), SNIFF_BAD);
		buf_done(&b);
	}
	/* Not a greeting but another handshake message; a record that isn't one behind the first; lengths that don't agree. */
	assert_int_equal(sniff("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9, name), SNIFF_BAD);
	assert_int_equal(sniff("\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01\x00", 12, name), SNIFF_BAD);
	assert_int_equal(sniff("\x16\x03\x01\x00\x00", 5, name), SNIFF_BAD);
	for (size_t at = 5; at < 9; at++) {
		struct buf b = BUF_INIT(65536);

		hello_named(&b, "a.example.org", 16384);
		b.data[at] ^= 0x40;
		assert_int_not_equal(sniff(b.data, b.len, name), SNIFF_TLS);
		buf_done(&b);
	}
}

static void too_long(void **state)
{
	struct buf exts = BUF_INIT(65536), b = BUF_INIT(65536);
	char name[HOST_NAME_MAX_LEN + 1], *pad = calloc(1, 30000);
	const char *host = "a.example.org";

	(void)state;
	assert_non_null(pad);
	put_ext(&exts, 21, pad, 30000);
	put_names(&exts, &host, 1);
	put_hello(&b, &exts, 16384);
	assert_int_equal(sniff(b.data, 10000, name), SNIFF_MORE);
	assert_int_equal(sniff(b.data, b.len, name), SNIFF_BAD);
	memset(pad, 'a', 30000);
	memcpy(pad, "GET /", 5);
	assert_int_equal(sniff(pad, 10000, name), SNIFF_MORE);
	assert_int_equal(sniff(pad, SNIFF_MAX, name), SNIFF_BAD);
	free(pad);
	buf_done(&exts);
	buf_done(&b);
}

static void http_heads(void **state)
{
	static const struct {
		const char *text;
		enum sniff what;
		const char *name;
	} rows[] = {
		{ "GET / HTTP/1.1\r\nHost: Example.org\r\n\r\n", SNIFF_HTTP, "example.org" },
		{ "GET / HTTP/1.1\nHost:example.org:8080\n\n", SNIFF_HTTP, "example.org" },
		{ "GET / HTTP/1.1\r\nAccept: x\r\nhOsT: \t example.org. \r\nA: b\r\n\r\nbody", SNIFF_HTTP, "example.org" },
		{ "GET / HTTP/1.0\r\n\r\n", SNIFF_HTTP, "" },
		{ "GET / HTTP/1.1\r\nHost:\r\n\r\n", SNIFF_HTTP, "" },
		{ "OPTIONS * HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HTTP, "a.org" },
		{ "GET http://a.org/x HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HTTP, "a.org" },
		{ "GET http://a.org:80/x HTTP/1.0\r\n\r\n", SNIFF_HTTP, "a.org" },
		{ "GET http://a.org/x HTTP/1.1\r\nHost: b.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET http://b.org@a.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n", SNIFF_HTTP, "a.org" },
		{ "CONNECT a.org:443 HTTP/1.1\r\nHost: b.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org\r\n b.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost : a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org, b.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org/b\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nX: a\rHost: b.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: 9.9.9.9\r\n\r\n", SNIFF_HTTP, "9.9.9.9" },
		{ "GET / HTTP/1.1\r\nHost: [2606:0::1]:80\r\n\r\n", SNIFF_HTTP, "2606::1" },
		{ "GET /a b HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET a HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nno colon\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org\r\n", SNIFF_MORE, "" },
		{ "GET", SNIFF_MORE, "" }, { "GET ", SNIFF_MORE, "" }, { "GET /lo", SNIFF_MORE, "" }, { "", SNIFF_MORE, "" },
		{ "SSH-2.0-OpenSSH_9.2\r\n", SNIFF_OTHER, "" }, { "HELO me.example\r\n", SNIFF_OTHER, "" },
		{ "USER me\r\n", SNIFF_OTHER, "" }, { "\x01\x02", SNIFF_OTHER, "" }, { "\x16\x05\x01\x00\x05", SNIFF_OTHER, "" },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SNIFF_OTHER, "" }, { "PRI * HTTP/2.0\r\n", SNIFF_MORE, "" },
		{ "GET / HTTP/2.0\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		/* What some server reads as a request must not be something else here. */
		{ "\r\n\nGET / HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HTTP, "a.org" }, { "\r\n\r\n", SNIFF_MORE, "" },
		{ "\r\nHELO me\r\n", SNIFF_OTHER, "" }, { "GET / HTTP/1.1 \r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.01\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" }, { "GET / http/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET\t/ HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" }, { "GET /  HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\rHost: a.org\r\n\r\n", SNIFF_BAD, "" }, { "GET / HTTP/1.1\r\r\nHost: a.org\r\n\r\n", SNIFF_BAD, "" },
		{ "get / HTTP/1.1\r\nHost: a.org\r\n\r\n", SNIFF_HTTP, "a.org" },
		{ "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", SNIFF_BAD, "" }, { "GET / HTTP/1.1\r\nHost: [2606::1]:8x\r\n\r\n", SNIFF_BAD, "" },
		{ "GET / HTTP/1.1\r\nHost: a.org:8x\r\n\r\n", SNIFF_BAD, "" }, { "OPTIONS rtsp://a.org/ RTSP/1.0\r\n", SNIFF_OTHER, "" },
		{ "\x16", SNIFF_MORE, "" }, { "\x15\x03\x01", SNIFF_BAD, "" }, { "\x14\x03\x01", SNIFF_BAD, "" }, { "\x15\x04", SNIFF_OTHER, "" },
		/* A greeting of SSLv2's shape (RFC 5246, E.2) can't carry a name. */
		{ "\x80\x2e\x01\x03\x01", SNIFF_OTHER, "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[HOST_NAME_MAX_LEN + 1];
		enum sniff got = sniff(rows[i].text, strlen(rows[i].text), name);

		if (got != rows[i].what || strcmp(name, rows[i].name) != 0)
			fail_msg("'%s' gives %d '%s'", rows[i].text, got, name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whole_and_in_pieces, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(versions_of_records, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(git_asks_without_a_line, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(real_clients, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(no_name, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(bad_greetings, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(too_long, leak_mark, leak_check),
		cmocka_unit_test_setup_teardown(http_heads, leak_mark, leak_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
