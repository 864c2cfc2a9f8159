/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAN_TERM_H
#define CHAN_TERM_H

/*
 * The caller's terminal in raw mode, one at a time in a process. It is restored by term_restore(), by exit(3), and when
 * the process dies of a fault.
 */

#include <stdbool.h>
#include <stdint.h>

/* -ENOTTY when fd is no terminal. */
int term_raw(int fd);
void term_restore(void);	/* does nothing when there is nothing to restore */
/* false, and both untouched, when fd is no terminal. */
bool term_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols);

#endif
