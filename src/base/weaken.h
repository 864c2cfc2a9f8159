/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_WEAKEN_H
#define BASE_WEAKEN_H

/*
 * Defences that a throw-away box can be made without, so that `cubby drill --self-test` sees whether its probes notice. Only the
 * daemon's owner can ask for one; it lives for WEAKEN_SECONDS at most, is marked in its grade, and holds nothing but the drill's own
 * probes.
 *
 * WEAKEN(id, word, what): the word stands in requests and results, `what` completes "without …".
 */
#define WEAKEN_TABLE(WEAKEN)                                                                  \
	WEAKEN(FILTER, "filter", "the system call filter")                                    \
	WEAKEN(CAPS, "capabilities", "the reduced set of capabilities")                       \
	WEAKEN(NESTED, "no-nesting", "the ban on user namespaces of its own")                 \
	WEAKEN(IDS, "ids", "ids that are nobody's on the host")                               \
	WEAKEN(PROC, "masks", "the covers over /proc and /sys")                               \
	WEAKEN(SEEN, "processes", "a /proc of its own")                                       \
	WEAKEN(DEV, "devices", "the small /dev")                                              \
	WEAKEN(ROOT, "root", "leaving the host's files behind")                               \
	WEAKEN(PEERS, "propagation", "mounts that are its own")                               \
	WEAKEN(NET, "net", "a network stack of its own")                                      \
	WEAKEN(ADDRESSES, "addresses", "the refusal of the host's and of private addresses")          \
	WEAKEN(IPC, "ipc", "IPC objects of its own")                                          \
	WEAKEN(UTS, "host-name", "a host name of its own")                                    \
	WEAKEN(CGROUP, "cgroups", "its own view of the control groups")                       \
	WEAKEN(MEMORY, "memory", "the memory limit")                                          \
	WEAKEN(PIDS, "pids", "the process limit")                                             \
	WEAKEN(CPU, "cpu", "the processor limit")

enum {
#define WEAKEN(id, word, what) WEAKEN_BIT_##id,
	WEAKEN_TABLE(WEAKEN)
#undef WEAKEN
	WEAKEN_COUNT
};

enum {
#define WEAKEN(id, word, what) WEAKEN_##id = 1 << WEAKEN_BIT_##id,
	WEAKEN_TABLE(WEAKEN)
#undef WEAKEN
	WEAKEN_ALL = (1 << WEAKEN_COUNT) - 1
};

#define WEAKEN_SECONDS 60

/* The bit of a word, or 0. */
unsigned weaken_bit(const char *word);
const char *weaken_word(unsigned bit);	/* of the lowest bit */
const char *weaken_what(unsigned bit);

#endif
