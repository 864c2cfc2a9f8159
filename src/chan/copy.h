/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_COPY_H
#define CHAN_COPY_H

/*
 * Copying files between a box and the caller's file system, as cp -r does: contents, permission bits, modification
 * times; symbolic links as links; holes stay holes. Owners don't travel: what is made belongs to whoever makes it (here
 * the caller, in the box the given user). Set-id bits are dropped. Devices, FIFOs and sockets are skipped, with a note.
 *
 * Whoever sends is hostile to whoever receives. Each name is one component, opened below a directory descriptor; no
 * link is followed below the place that was named; a way back up (..) is believed only when it leads to the same
 * directory as before; a file appears, or replaces another, only when it is complete (rename(2)).
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "chan/box.h"

#define COPY_DEPTH_MAX 100000u	/* directories inside each other */
#define COPY_NAMES_MAX (256u << 20) /* bytes of names of directories under way; a sender with more fails */

struct copy_opts {
	const char *user;	/* of the box: whose rights, whose files; NULL: the box's default (struct box_exec) */
	bool follow;		/* copy_out: when box_path itself is a link, copy what it leads to */
	uint64_t max_bytes;	/* of content; 0: no limit. More is -EFBIG */
	/*
	 * Something wasn't copied: its path, which begins with the copied thing's name unless its content was meant (made by the box,
	 * see text_escape()), and why. May be NULL.
	 */
	void (*note)(const char *path, const char *why, void *arg);
	void *arg;
};

struct copy_result {
	uint64_t files, dirs, links;	/* made */
	uint64_t bytes;			/* of content */
	uint64_t skipped;		/* devices, FIFOs, sockets ... */
	uint64_t unreadable;		/* ... and what could not be read: the copy is not complete */
};

/*
 * Out of the box: box_path becomes dir_fd/name. Is that an existing directory, box_path is put into it under its own
 * last name (of ".", "..", "/": its content is). name is one component, or "." for dir_fd itself; a link there is
 * refused (-ELOOP), since a box may have planted it. INT, TERM, HUP and QUIT end the copy in an orderly way: -EINTR
 * with WHY_CANCELLED.
 *
 * *ret is filled in any case and tells how far it came. A failure names the file; what was complete before stays.
 */
int copy_out(int sock, const char *box_path, int dir_fd, const char *name, const struct copy_opts *o,
	     struct copy_result *ret, struct err *e);
/*
 * Into the box: `from` (a path of the caller's own, below dir_fd when relative) becomes box_path, or is put into it when
 * that is a directory in the box. A `from` that ends in "/." means the content of the directory.
 */
int copy_in(int sock, int dir_fd, const char *from, const char *box_path, const struct copy_opts *o,
	    struct copy_result *ret, struct err *e);

/* What both ends are made of; cubby-init's handler uses it too. */
struct copy_stream {
	int sock;
	int sig_fd;		/* readable: give up; or FD_NONE */
	struct buf out;		/* frames not sent yet */
	uint8_t *in;		/* frames received */
	size_t room, have, used;
	bool peer_lost;		/* sending failed: the peer's BOX_FAIL may be there to read */
	const struct copy_opts *o;
	struct copy_result *res;
};
int copy_stream_init(struct copy_stream *s, int sock, const struct copy_opts *o, struct copy_result *res);
void copy_stream_done(struct copy_stream *s);
/* Next frame: 1, 0 at the end, or a negative errno (-EINTR: sig_fd). It stays valid until the next call. */
int copy_next(struct copy_stream *s, struct box_frame *ret);
int copy_flush(struct copy_stream *s);

/*
 * Send path (below dir_fd when relative) as entries, `as` being the first one's name. magic: links of /proc may be
 * followed on the way (the caller's own path); never below.
 */
int copy_send(struct copy_stream *s, int dir_fd, const char *path, const char *as, bool magic, struct err *e);
/*
 * Receive one entry, whose frame is `first`, with all below it, to dir_fd/name. name NULL: it must be a directory, and
 * its content goes to dir_fd.
 */
int copy_receive(struct copy_stream *s, const struct box_entry *first, int dir_fd, const char *name, struct err *e);
/* The last component of a path without trailing slashes, into ret (BOX_NAME_MAX + 1); false for "", ".", ".." and "/". */
bool copy_last_name(const char *path, char *ret);

#endif
