/* SPDX-License-Identifier: Apache-2.0 */
#include "chan/term.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t raw_fd = -1;

static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };
static struct sigaction old_faults[FAULTS];

/* tcsetattr(3) may be called from a signal handler (signal-safety(7)). */
static void put_back(void)
{
	int fd = raw_fd;

	raw_fd = -1;
	if (fd >= 0)
		(void)tcsetattr(fd, TCSAFLUSH, &saved);
}

static void on_fault(int sig)
{
	put_back();
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

static void at_exit(void)
{
	put_back();
}

int term_raw(int fd)
{
	static bool registered;
	struct sigaction sa = { .sa_handler = on_fault, .sa_flags = SA_RESETHAND | SA_NODEFER };
	struct termios t;

	if (tcgetattr(fd, &saved) < 0)
		return -errno;
	if (!registered && atexit(at_exit) == 0)
		registered = true;
	t = saved;
	cfmakeraw(&t);
	for (int i = 0; i < FAULTS; i++)
		(void)sigaction(faults[i], &sa, &old_faults[i]);
	raw_fd = fd;
	if (tcsetattr(fd, TCSADRAIN, &t) < 0) {
		int r = -errno;

		term_restore();
		return r;
	}
	return 0;
}

void term_restore(void)
{
	if (raw_fd < 0)
		return;
	put_back();
	for (int i = 0; i < FAULTS; i++)
		(void)sigaction(faults[i], &old_faults[i], NULL);
}

bool term_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct winsize ws;

	if (fd < 0 || ioctl(fd, TIOCGWINSZ, &ws) < 0)
		return false;
	*ret_rows = ws.ws_row;
	*ret_cols = ws.ws_col;
	return true;
}
