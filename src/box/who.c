/* SPDX-License-Identifier: Apache-2.0 */
#include "box/net.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * proc(5): /proc/PID/net/tcp of the box's first process lists the sockets of its network namespace with their inodes; a link in
 * /proc/PID/fd says "socket:[INODE]". All processes of a pid namespace descend from its first one. A box can make all three large:
 * what isn't found within the bounds is not found.
 */
#define LINES_MAX 2000u
#define PROCESSES_MAX 256u
#define FDS_MAX 4000u
/* The same process most likely has the next socket too. */
#define SAME_FDS 512u

static struct {
	pid_t init, pid;
} last;

/* The inode of the socket with this local port, or 0. */
static unsigned long long inode_in(pid_t init, const char *table, uint16_t port)
{
	char path[64], line[512];
	unsigned long long found = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/proc/%d/net/%s", init, table);
	f = fopen(path, "re");
	if (!f)
		return 0;
	for (unsigned i = 0; i < LINES_MAX && !found && fgets(line, sizeof(line), f); i++) {
		unsigned local;
		unsigned long long inode;

		/* sl, local, remote, state, queues, timer, retransmits, uid, timeout, inode */
		if (sscanf(line, " %*u: %*[0-9A-F]:%x %*[0-9A-F]:%*x %*x %*x:%*x %*x:%*x %*x %*u %*u %llu", &local, &inode) == 2 &&
		    local == port && inode > 0)
			found = inode;
	}
	(void)fclose(f);
	return found;
}

static bool holds(pid_t pid, const char *socket, unsigned *budget, unsigned most)
{
	char path[64];
	struct dirent *de;
	bool found = false;
	DIR *dp;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dp = opendir(path);
	if (!dp)
		return false;
	for (unsigned i = 0; i < most && *budget > 0 && !found && (de = readdir(dp)); i++) {
		char link[64];
		ssize_t n;

		if (de->d_name[0] == '.')
			continue;
		(*budget)--;
		n = readlinkat(dirfd(dp), de->d_name, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		found = strcmp(link, socket) == 0;
	}
	(void)closedir(dp);
	return found;
}

/* Its name as it calls itself, which is anything, and its number in the box. */
static void describe(pid_t pid, char *ret, size_t n)
{
	char path[64], text[4096], comm[32] = "";
	const char *ids;
	ssize_t k;
	long in_box = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	k = file_read_small(AT_FDCWD, path, comm, sizeof(comm));
	if (k <= 0)
		return;
	comm[strcspn(comm, "\n")] = '\0';
	for (char *p = comm; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || *p == '(' || *p == ')')
			*p = '?';
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	k = file_read_small(AT_FDCWD, path, text, sizeof(text));
	ids = k > 0 ? strstr(text, "\nNSpid:") : NULL;
	if (ids) {
		char *end = strchr(ids + 1, '\n'), *tab;

		if (end)
			*end = '\0';
		tab = strrchr(ids, '\t');
		in_box = tab ? strtol(tab, NULL, 10) : 0;
	}
	(void)snprintf(ret, n, "%s(%ld)", comm, in_box);
}

void who_holds(pid_t init, const char *proto, uint16_t src_port, char *ret, size_t n)
{
	const bool udp = strcmp(proto, "udp") == 0;
	pid_t found = 0, queue[PROCESSES_MAX];
	unsigned head = 0, tail = 0, budget = FDS_MAX;
	unsigned long long inode;
	char socket[64];

	ret[0] = '\0';
	inode = inode_in(init, udp ? "udp" : "tcp", src_port);
	if (!inode)
		inode = inode_in(init, udp ? "udp6" : "tcp6", src_port);
	if (!inode)
		return;
	(void)snprintf(socket, sizeof(socket), "socket:[%llu]", inode);
	if (last.init == init && holds(last.pid, socket, &budget, SAME_FDS))
		found = last.pid;
	queue[tail++] = init;
	while (!found && head < tail && budget > 0) {
		pid_t pid = queue[head++];
		char path[96], text[4096], *p = text;
		ssize_t k;

		if (pid != init && holds(pid, socket, &budget, FDS_MAX)) {
			found = pid;
			break;
		}
		/* Children of its first thread; those of others are rare, and then not found. */
		(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
		k = file_read_small(AT_FDCWD, path, text, sizeof(text));
		if (k <= 0)
			continue;
		while (*p && tail < PROCESSES_MAX) {
			long child = strtol(p, &p, 10);

			if (child <= 1)
				break;
			queue[tail++] = (pid_t)child;
			while (*p == ' ' || *p == '\n')
				p++;
		}
	}
	if (!found)
		return;
	last.init = init;
	last.pid = found;
	describe(found, ret, n);
}
