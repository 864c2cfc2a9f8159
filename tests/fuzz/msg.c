/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon protocol: what the non-blocking side (struct msg_in) makes of a stream must not depend on how it arrives, and
 * the blocking side says the same. The first byte is the size of the pieces.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chan/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define TAKEN_MAX 64

struct taken {
	unsigned n;
	int end;		/* 0: more is needed; else the error */
	size_t counts[TAKEN_MAX];	/* members of each object */
};

static void take_all(struct msg_in *in, struct taken *t)
{
	while (t->end == 0 && t->n < TAKEN_MAX) {
		OWN_JSON doc = { 0 };
		int fds[FD_PASS_MAX], r;
		size_t nfds = 7;

		r = msg_in_take(in, &doc, fds, FD_PASS_MAX, &nfds);
		if (r == 0)
			return;
		if (r < 0) {
			/* A refusal leaves nothing behind. */
			if (doc.root || doc.mem)
				abort();
			t->end = r;
			return;
		}
		if (nfds != 0 || !doc.root || doc.root->type != JSON_OBJECT)
			abort();
		t->counts[t->n++] = doc.root->count;
	}
}

static void in_pieces(const uint8_t *data, size_t n, size_t piece, struct taken *ret)
{
	struct msg_in in;
	int pair[2];

	memset(ret, 0, sizeof(*ret));
	if (fd_socketpair(SOCK_STREAM, pair) < 0)
		return;
	msg_in_init(&in, 4096);
	for (size_t at = 0; at < n && ret->end == 0; at += piece) {
		size_t k = n - at < piece ? n - at : piece;

		if (fd_write_all(pair[0], data + at, k) < 0)
			abort();
		for (int r = 0; r == 0;) {
			r = msg_in_read(&in, pair[1]);
			if (r < 0 && r != -EAGAIN && r != -EMSGSIZE)
				abort();
			take_all(&in, ret);
			if (ret->end != 0)
				break;
		}
	}
	msg_in_done(&in);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
}

/* The blocking side takes longer frames, so only what fits the other is compared. */
static void blocking(const uint8_t *data, size_t n, const struct taken *want)
{
	int pair[2];
	unsigned got = 0;
	struct err e = ERR_INIT;

	if (fd_socketpair(SOCK_STREAM, pair) < 0)
		return;
	if (n > 0 && fd_write_all(pair[0], data, n) < 0)
		abort();
	fd_close(&pair[0]);
	while (got < TAKEN_MAX) {
		OWN_JSON doc = { 0 };
		int fds[2], r;
		size_t nfds;

		r = msg_recv(pair[1], &doc, fds, 2, &nfds, &e);
		if (r <= 0) {
			if (r < 0 && !e.text[0])
				abort();
			break;
		}
		if (got < want->n && doc.root->count != want->counts[got])
			abort();
		got++;
	}
	if (got < want->n)
		abort();
	fd_close(&pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct taken whole, parts;
	size_t piece;

	if (n < 1 || n > 60000)
		return 0;
	piece = 1 + data[0];
	data++;
	n--;
	in_pieces(data, n, n ? n : 1, &whole);
	in_pieces(data, n, piece, &parts);
	if (whole.n != parts.n || whole.end != parts.end || memcmp(whole.counts, parts.counts, sizeof(whole.counts)) != 0)
		abort();
	blocking(data, n, &whole);
	return 0;
}
