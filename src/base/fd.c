/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = FD_NONE;
	errno = saved;
}

int fd_take(int *fd)
{
	int r = *fd;

	*fd = FD_NONE;
	return r;
}

void fd_own_done(int *fd)
{
	fd_close(fd);
}

int fd_write_all(int fd, const void *data, size_t n)
{
	const char *p = data;

	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int fd_read_exact(int fd, void *data, size_t n)
{
	char *p = data;

	while (n > 0) {
		ssize_t k = read(fd, p, n);

		if (k < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (k == 0)
			return -ENODATA;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

ssize_t fd_read_small(int fd, char *buf, size_t n)
{
	size_t have = 0;

	for (;;) {
		ssize_t k;

		if (have == n)
			return -E2BIG;
		k = read(fd, buf + have, n - have);
		if (k < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (k == 0)
			break;
		have += (size_t)k;
	}
	buf[have] = '\0';
	return (ssize_t)have;
}

ssize_t file_read_small(int dir_fd, const char *path, char *buf, size_t n)
{
	OWN_FD fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return -errno;
	return fd_read_small(fd, buf, n);
}

int file_write(int dir_fd, const char *path, const char *text)
{
	OWN_FD fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	size_t n = strlen(text);
	ssize_t k;

	if (fd < 0)
		return -errno;
	k = write(fd, text, n);
	if (k < 0)
		return -errno;
	return (size_t)k == n ? 0 : -EIO;
}

int fd_set_nonblock(int fd, bool on)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0)
		return -errno;
	fl = on ? fl | O_NONBLOCK : fl & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, fl) < 0 ? -errno : 0;
}

int fd_socketpair(int type, int ret_fds[2])
{
	return socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ret_fds) < 0 ? -errno : 0;
}

union pass {
	struct cmsghdr head;
	char space[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
};

ssize_t fd_send(int sock, const void *data, size_t n, const int *fds, size_t nfds, int flags)
{
	struct iovec io = { .iov_base = (void *)data, .iov_len = n };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
	union pass u;
	ssize_t k;

	if (nfds > FD_PASS_MAX)
		return -EINVAL;
	if (nfds > 0) {
		struct cmsghdr *h;

		memset(&u, 0, sizeof(u));
		m.msg_control = u.space;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(h), fds, sizeof(int) * nfds);
	}
	do
		k = sendmsg(sock, &m, flags | MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

ssize_t fd_recv(int sock, void *data, size_t n, int *ret_fds, size_t *ret_nfds, int flags)
{
	struct iovec io = { .iov_base = data, .iov_len = n };
	union pass u;
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = u.space, .msg_controllen = sizeof(u.space),
	};
	size_t got = 0;
	ssize_t k;

	if (ret_nfds)
		*ret_nfds = 0;
	memset(&u, 0, sizeof(u));
	do
		k = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (k < 0)
		return -errno;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		size_t cnt;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		cnt = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < cnt; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
			if (ret_fds && got < FD_PASS_MAX)
				ret_fds[got++] = fd;
			else
				(void)close(fd);
		}
	}
	if (m.msg_flags & MSG_CTRUNC) {
		for (size_t i = 0; i < got; i++)
			fd_close(&ret_fds[i]);
		return -EBADMSG;
	}
	if (ret_nfds)
		*ret_nfds = got;
	return k;
}
