/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "net/confine.h"
#include "net/ctl.h"
#include "net/gateway.h"

/* cubby-gateway [--uid N --gid N], with the descriptors of net/ctl.h; started by cubbyd, by nobody else. */

static int fail(const char *text)
{
	static const char pre[] = "cubby-gateway: ";

	(void)fd_write_all(2, pre, sizeof(pre) - 1);
	(void)fd_write_all(2, text, strlen(text));
	(void)fd_write_all(2, "\n", 1);
	return 1;
}

/* 0–2 are /dev/null or the daemon's log; nothing else may have been left open. */
static bool inherited(void)
{
	struct stat st;
	int type;
	socklen_t len = sizeof(type);

	return getsockopt(GATEWAY_CTL_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM && fstat(GATEWAY_NS_FD, &st) == 0;
}

int main(int argc, char **argv)
{
	uint64_t uid = UINT64_MAX, gid = UINT64_MAX;
	struct err e = ERR_INIT;
	OWN_BUF grade = BUF_INIT(4096);
	struct own *own = NULL;
	struct world w;
	unsigned files = 0;
	int r;

	for (int i = 1; i + 1 < argc; i += 2) {
		uint64_t *to = strcmp(argv[i], "--uid") == 0 ? &uid : strcmp(argv[i], "--gid") == 0 ? &gid : NULL;

		if (!to || parse_u64(argv[i + 1], UINT32_MAX - 1, to) < 0)
			return fail("started by cubbyd, as cubby-gateway [--uid N --gid N]");
	}
	if (argc % 2 == 0 || (uid == UINT64_MAX) != (gid == UINT64_MAX) || !inherited())
		return fail("started by cubbyd, as cubby-gateway [--uid N --gid N]");
	if (syscall(SYS_close_range, GATEWAY_NS_FD + 1, ~0u, 0) < 0 && errno != ENOSYS)
		return fail("cannot close what was inherited");
	/* splice(2) into a connection whose other end has gone raises it, whatever the socket's flags are. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return fail("cannot ignore SIGPIPE");
	/* Stage 1, with the daemon's rights: the sockets of both worlds. */
	r = world_enter(GATEWAY_NS_FD, &w, &e);
	(void)close(GATEWAY_NS_FD);
	if (r == 0)
		r = own_new(&own, &e);
	/* Stage 2: none of them is left. */
	if (r == 0)
		r = confine(uid == UINT64_MAX ? (uid_t)-1 : (uid_t)uid, gid == UINT64_MAX ? (gid_t)-1 : (gid_t)gid, &grade, &files, &e);
	/* Stage 3: boxes. */
	if (r == 0)
		r = gateway_serve(&w, GATEWAY_CTL_FD, own, files, grade.data, &e);
	return r < 0 ? fail(e.text) : 0;
}
