/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/msg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
	p[3] = (uint8_t)(v >> 24);
}

static uint32_t get32(const void *data)
{
	const uint8_t *p = data;

	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int send_all(int sock, const char *data, size_t n, const int *fds, size_t nfds)
{
	while (n > 0) {
		ssize_t k = fd_send(sock, data, n, fds, nfds, 0);

		if (k < 0)
			return (int)k;
		nfds = 0;
		data += k;
		n -= (size_t)k;
	}
	return 0;
}

int msg_send(int sock, const char *text, size_t n, const int *fds, size_t nfds)
{
	uint8_t small[1024 + MSG_HEAD];
	uint8_t *frame = small;
	OWN_MEM void *big = NULL;

	if (n == 0 || n > MSG_MAX)
		return -E2BIG;
	if (n + MSG_HEAD > sizeof(small)) {
		big = malloc(n + MSG_HEAD);
		if (!big)
			return -ENOMEM;
		frame = big;
	}
	put32(frame, (uint32_t)n);
	memcpy(frame + MSG_HEAD, text, n);
	return send_all(sock, (const char *)frame, n + MSG_HEAD, fds, nfds);
}

static int judge(const char *text, size_t n, struct json_doc *ret_doc, struct err *e)
{
	int r = json_parse(text, n, ret_doc, e);

	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return err_while(e, -EBADMSG, "a malformed message");
	if (ret_doc->root->type != JSON_OBJECT) {
		json_doc_done(ret_doc);
		return err_why(e, WHY_HOSTILE, -EBADMSG, "a malformed message: not an object");
	}
	return 0;
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

int msg_recv(int sock, struct json_doc *ret_doc, int *ret_fds, size_t room, size_t *ret_nfds, struct err *e)
{
	int fds[FD_PASS_MAX];
	size_t nfds = 0, len = 0;
	char small[2048];
	OWN_MEM char *big = NULL;
	char *text = small;
	uint8_t head[MSG_HEAD];
	ssize_t k;
	int r;

	if (ret_nfds)
		*ret_nfds = 0;
	/* Descriptors come with the first byte, so only the first read can carry any. */
	k = fd_recv(sock, head, sizeof(head), fds, &nfds, 0);
	if (k <= 0)
		return k == 0 ? 0 : err_set(e, (int)k, "cannot receive");
	r = (size_t)k < sizeof(head) ? fd_read_exact(sock, head + k, sizeof(head) - (size_t)k) : 0;
	if (r == 0) {
		len = get32(head);
		if (len == 0 || len > MSG_MAX)
			r = -EBADMSG;
		else if (len >= sizeof(small)) {
			big = malloc(len);
			text = big;
			r = big ? 0 : -ENOMEM;
		}
	}
	if (r == 0)
		r = fd_read_exact(sock, text, len);
	if (r == 0 && nfds > room)
		r = -EBADMSG;
	if (r < 0) {
		close_all(fds, nfds);
		return err_set(e, r == -ENODATA ? -EBADMSG : r, "cannot receive a whole message");
	}
	r = judge(text, len, ret_doc, e);
	if (r < 0) {
		close_all(fds, nfds);
		return r;
	}
	if (nfds > 0)
		memcpy(ret_fds, fds, nfds * sizeof(int));
	if (ret_nfds)
		*ret_nfds = nfds;
	return 1;
}

void msg_in_init(struct msg_in *in, size_t max)
{
	memset(in, 0, sizeof(*in));
	in->bytes.max = max + MSG_HEAD;
}

void msg_in_done(struct msg_in *in)
{
	close_all(in->fds, in->nfds);
	in->nfds = 0;
	buf_done(&in->bytes);
}

int msg_in_read(struct msg_in *in, int sock)
{
	int fds[FD_PASS_MAX];
	size_t nfds = 0, room;
	ssize_t k;
	int r;

	room = in->bytes.max - in->bytes.len;
	if (room == 0)
		return -EMSGSIZE;
	if (room > 4096)
		room = 4096;
	r = buf_reserve(&in->bytes, room);
	if (r < 0)
		return r;
	k = fd_recv(sock, in->bytes.data + in->bytes.len, room, fds, &nfds, MSG_DONTWAIT);
	if (k < 0)
		return (int)k;
	if (k == 0) {
		in->ended = true;
		return 0;
	}
	in->bytes.len += (size_t)k;
	in->bytes.data[in->bytes.len] = '\0';
	if (in->nfds + nfds > FD_PASS_MAX) {
		close_all(fds, nfds);
		return -EBADMSG;
	}
	for (size_t i = 0; i < nfds; i++)
		in->fds[in->nfds++] = fds[i];
	return 0;
}

int msg_in_take(struct msg_in *in, struct json_doc *ret_doc, int *ret_fds, size_t room, size_t *ret_nfds)
{
	uint32_t len;
	int r;

	*ret_nfds = 0;
	if (in->bytes.len < MSG_HEAD)
		return 0;
	len = get32(in->bytes.data);
	/* Judged before waiting for a body that may never come. */
	if (len == 0 || len > in->bytes.max - MSG_HEAD)
		return -EBADMSG;
	if (in->bytes.len - MSG_HEAD < len)
		return 0;
	r = judge(in->bytes.data + MSG_HEAD, len, ret_doc, NULL);
	buf_drop(&in->bytes, MSG_HEAD + (size_t)len);
	if (r < 0)
		return r;
	if (in->nfds > room) {
		json_doc_done(ret_doc);
		return -EBADMSG;
	}
	memcpy(ret_fds, in->fds, in->nfds * sizeof(int));
	*ret_nfds = in->nfds;
	in->nfds = 0;
	return 1;
}

int msg_error(const struct json *answer, struct err *e)
{
	const char *text = json_str(answer, "error", NULL);
	int64_t code;

	if (!text)
		return 0;
	code = json_int(answer, "code", EIO);
	if (code <= 0 || code > 4095)
		code = EIO;
	return err_why(e, why_parse(json_str(answer, "why", NULL)), -(int)code, "%s", text);
}

void msg_put_error(struct buf *to, const struct err *e)
{
	struct json_out o;

	buf_reset(to);
	json_out_init(&o, to);
	json_put_obj(&o, NULL);
	json_put_str(&o, "error", e->text[0] ? e->text : "failed");
	json_put_str(&o, "why", why_word(e->why));
	json_put_int(&o, "code", e->code ? -(int64_t)e->code : EIO);
	json_end_obj(&o);
}
