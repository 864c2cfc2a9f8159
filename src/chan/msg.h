/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_MSG_H
#define CHAN_MSG_H

/*
 * The daemon protocol, also spoken between cubbyd and its builders: over a SOCK_STREAM unix socket,
 *
 *	4 bytes little-endian: length of the text, 1 to MSG_MAX;  then the text, one JSON object.
 *
 * Descriptors travel as SCM_RIGHTS on the first byte of the frame they belong to (unix(7)).
 *
 * A request is {"v":1,"op":"…",…}. The answer is any number of {"progress":"…",…} and then exactly one
 * {"ok":true,…} or {"error":"…","why":"…"}; `why` is a word of base/err.h. Requests on one connection
 * are answered in order.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"

#define MSG_VERSION 1
#define MSG_MAX (8u << 20)
#define MSG_HEAD 4

/* Blocking ends (clients, builders). */
/* Send one frame; `text` is n bytes of JSON. -E2BIG, -EPIPE, … */
int msg_send(int sock, const char *text, size_t n, const int *fds, size_t nfds);
/*
 * Receive one frame into doc. Returns 1, 0 at a clean end before a frame, or a negative errno
 * (-EBADMSG: not a frame, not JSON, not an object). Received descriptors are the caller's; more than
 * `room` of them are closed and the frame refused.
 */
int msg_recv(int sock, struct json_doc *ret_doc, int *ret_fds, size_t room, size_t *ret_nfds, struct err *e);

/*
 * The non-blocking side (the daemon's event loop): bytes and descriptors as they come.
 * msg_in_take() returns 1 with a frame, 0 when more input is needed, or a negative errno.
 */
struct msg_in {
	struct buf bytes;
	int fds[FD_PASS_MAX];
	size_t nfds;
	bool ended;
};
void msg_in_init(struct msg_in *in, size_t max);
void msg_in_done(struct msg_in *in);	/* closes descriptors nobody took */
int msg_in_read(struct msg_in *in, int sock);	/* one recvmsg; 0, -EAGAIN, or an error; `ended` at the end */
int msg_in_take(struct msg_in *in, struct json_doc *ret_doc, int *ret_fds, size_t room, size_t *ret_nfds);

/* Fill `e` from an {"error":…,"why":…} answer and return its negative code; 0 for any other object. */
int msg_error(const struct json *answer, struct err *e);
/* Append the error answer for `e` to `to` (which is reset first). */
void msg_put_error(struct buf *to, const struct err *e);

#endif
