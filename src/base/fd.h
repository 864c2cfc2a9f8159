/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FD_H
#define BASE_FD_H

/*
 * File descriptors with one visible owner. Every descriptor is born close-on-exec.
 *
 *	OWN_FD fd = FD_NONE;		closed at the end of the scope
 *	*ret_fd = fd_take(&fd);		handed on to the caller
 */

#include <stddef.h>
#include <stdbool.h>
#include <sys/types.h>

#define FD_NONE (-1)
#define OWN_FD __attribute__((cleanup(fd_own_done))) int

void fd_close(int *fd);	 /* closes and sets FD_NONE; accepts FD_NONE; keeps errno */
int fd_take(int *fd);	 /* returns the descriptor and leaves FD_NONE */
void fd_own_done(int *fd);

/* All of it, or a negative errno; restarts after EINTR. A short read is -ENODATA. */
int fd_write_all(int fd, const void *data, size_t n);
int fd_read_exact(int fd, void *data, size_t n);

/* Read a whole small file (or pipe) into buf; -E2BIG when it holds more than n - 1 bytes. Terminates buf. Returns the bytes. */
ssize_t fd_read_small(int fd, char *buf, size_t n);
ssize_t file_read_small(int dir_fd, const char *path, char *buf, size_t n);
/* One open, one write, for kernel files. Negative errno. */
int file_write(int dir_fd, const char *path, const char *text);

int fd_set_nonblock(int fd, bool on);

/* A unix socket pair, both ends close-on-exec. type: SOCK_STREAM or SOCK_SEQPACKET. */
int fd_socketpair(int type, int ret_fds[2]);

/*
 * One sendmsg()/recvmsg() that carries descriptors. At most FD_PASS_MAX.
 * fd_recv() returns the bytes read (0 at the end); *ret_nfds is how many arrived; the caller owns them.
 * A message whose descriptors did not fit is -EBADMSG and everything that came is closed.
 */
#define FD_PASS_MAX 16
ssize_t fd_send(int sock, const void *data, size_t n, const int *fds, size_t nfds, int flags);
ssize_t fd_recv(int sock, void *data, size_t n, int *ret_fds, size_t *ret_nfds, int flags);

#endif
