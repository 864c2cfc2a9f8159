/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordinary build's end of a fuzz target: runs the files of the given directories through it, and of each some simple
 * mutations (cut short, one byte changed, doubled), the same ones every time. Prints TAP for tests/run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define INPUT_MAX (1 << 20)
#define MUTATIONS 400

static uint64_t rng = 88172645463325252ull;

static uint32_t draw(uint32_t below)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng % below);
}

/* The input in a buffer of exactly its size, so that the sanitizer sees one byte too far. */
static void run_one(const uint8_t *data, size_t n)
{
	uint8_t *copy = calloc(1, n ? n : 1);

	if (!copy)
		abort();
	memcpy(copy, data, n);
	(void)LLVMFuzzerTestOneInput(copy, n);
	free(copy);
}

static void run_mutations(uint8_t *data, size_t n)
{
	static const uint8_t bytes[] = { 0, 1, 0x7f, 0x80, 0xff, '/', '.', '"', '\\', '\n', '{', '}', '-', '9', 0xc0, 0xed };

	for (unsigned i = 0; i < MUTATIONS && n > 0; i++) {
		size_t at = draw((uint32_t)n);
		uint8_t old = data[at];

		data[at] = i % 2 ? bytes[draw(sizeof(bytes))] : (uint8_t)(old ^ (1u << draw(8)));
		run_one(data, i % 3 ? n : at);
		data[at] = old;
	}
	if (n <= INPUT_MAX / 2) {
		memmove(data + n, data, n);
		run_one(data, 2 * n);
	}
}

int main(int argc, char **argv)
{
	static uint8_t data[INPUT_MAX];
	unsigned files = 0;

	run_one(data, 0);
	for (int i = 1; i < argc; i++) {
		DIR *d = opendir(argv[i]);
		const struct dirent *ent;

		if (!d) {
			printf("not ok - the corpus %s can be read: %s\n", argv[i], strerror(errno));
			return 1;
		}
		while ((ent = readdir(d))) {
			int fd = openat(dirfd(d), ent->d_name, O_RDONLY | O_CLOEXEC);
			ssize_t n = fd < 0 ? -1 : read(fd, data, sizeof(data));

			if (fd >= 0)
				close(fd);
			if (n < 0)
				continue; /* "." and ".." */
			run_one(data, (size_t)n);
			run_mutations(data, (size_t)n);
			files++;
		}
		closedir(d);
	}
	if (files == 0) {
		printf("not ok - the corpus has files\n");
		return 1;
	}
	printf("ok - %u files and their mutations\n", files);
	return 0;
}
