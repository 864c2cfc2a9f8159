/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "guest/serve.h"

/*
 * The name of a pooled box. The root file system is the template's, so every name in it may be a trap: files are
 * never opened for writing but made anew beside the old one and renamed over it, which replaces a link instead of
 * following it.
 */

#define HOSTS_MAX 65536

static int open_etc(void)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/etc", &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}

static int replace(int etc, const char *name, const char *data, size_t n, struct err *e)
{
	static const char temp[] = ".cubby-setup";
	OWN_FD fd = FD_NONE;
	int r;

	(void)unlinkat(etc, temp, 0);	/* of an earlier attempt */
	fd = openat(etc, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_set(e, -errno, "cannot write /etc/%s of the box", name);
	r = fd_write_all(fd, data, n);
	if (r == 0 && fchmod(fd, 0644) < 0)
		r = -errno;
	if (r == 0 && renameat(etc, temp, etc, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(etc, temp, 0);
		return err_set(e, r, "cannot write /etc/%s of the box", name);
	}
	return 0;
}

/* Is it "127.0.1.1 …", the line that names the host (hosts(5), Debian's habit)? */
static bool is_host_line(const char *line, size_t n)
{
	return n > 9 && memcmp(line, "127.0.1.1", 9) == 0 && (line[9] == ' ' || line[9] == '\t');
}

static int new_hosts(int etc, const char *name, struct buf *to)
{
	OWN_FD fd = openat(etc, "hosts", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	OWN_MEM char *old = malloc(HOSTS_MAX);
	struct stat st;
	ssize_t n = -EINVAL;

	if (!old)
		return -ENOMEM;
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = fd_read_small(fd, old, HOSTS_MAX);
	if (n < 0) {
		/* There is none, or none that can be kept. */
		(void)buf_puts(to, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
		n = 0;
	}
	for (char *p = old; n > 0;) {
		char *nl = memchr(p, '\n', (size_t)n);
		size_t len = nl ? (size_t)(nl - p) + 1 : (size_t)n;

		if (!is_host_line(p, len)) {
			(void)buf_put(to, p, len);
			if (!nl)
				(void)buf_putc(to, '\n');
		}
		p += len;
		n -= (ssize_t)len;
	}
	return buf_printf(to, "127.0.1.1 %s\n", name);
}

static int write_names(const char *name, struct err *e)
{
	OWN_BUF text = BUF_INIT(2 * HOSTS_MAX);
	OWN_FD etc = open_etc();
	int r;

	/* A root without /etc, or with a link in its place, has no files of ours to keep right. */
	if (etc < 0)
		return 0;
	(void)buf_printf(&text, "%s\n", name);
	r = buf_error(&text) ? err_set(e, text.failed, "cannot write /etc/hostname of the box") :
			       replace(etc, "hostname", text.data, text.len, e);
	if (r < 0)
		return r;
	buf_reset(&text);
	r = new_hosts(etc, name, &text);
	if (r < 0)
		return err_set(e, r, "cannot write /etc/hosts of the box");
	return replace(etc, "hosts", text.data, text.len, e);
}

enum serve_end setup_serve(int conn, const struct serve_in *in)
{
	struct err e = ERR_INIT;
	struct box_setup x;

	if (box_get_setup(&in->f, &x) < 0) {
		serve_fail(conn, -EBADMSG, "a malformed request");
		return SERVE_DONE;
	}
	if (sethostname(x.host_name, strlen(x.host_name)) < 0) {
		int r = -errno;

		(void)err_set(&e, r, "cannot set the box's host name");
		serve_fail(conn, r, e.text);
		return SERVE_DONE;
	}
	if (write_names(x.host_name, &e) < 0) {
		serve_fail(conn, e.code, e.text);
		return SERVE_DONE;
	}
	return SERVE_SETUP;
}
