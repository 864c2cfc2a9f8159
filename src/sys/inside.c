/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/inside.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

struct visit {
	int ns_fd;
	int (*work)(void *arg, struct err *e);
	void *arg;
	struct err *e;
	int r;
};

static void *visit_main(void *arg)
{
	struct visit *v = arg;

	if (v->ns_fd < 0 && unshare(CLONE_NEWNET) < 0)
		v->r = err_set(v->e, -errno, "cannot make a network namespace");
	else if (v->ns_fd >= 0 && setns(v->ns_fd, CLONE_NEWNET) < 0)
		v->r = err_set(v->e, -errno, "cannot enter a network namespace");
	else
		v->r = v->work(v->arg, v->e);
	return NULL;
}

int inside_net(int ns_fd, int (*work)(void *arg, struct err *e), void *arg, struct err *e)
{
	struct visit v = { .ns_fd = ns_fd, .work = work, .arg = arg, .e = e };
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, 256 << 10);
	/* Signals are for the caller. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, visit_main, &v);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	if (r != 0)
		return err_set(e, -r, "cannot start a thread");
	(void)pthread_join(thread, NULL);
	return v.r;
}
