/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drill/probe.h"

static const struct verb *const tables[] = { verbs_fs, verbs_kernel, verbs_look, verbs_load, verbs_own, verbs_net };
#define NTABLES (sizeof(tables) / sizeof(tables[0]))

const char *errno_name(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
#define E(x) { x, #x }
		E(EPERM),           E(ENOENT),          E(ESRCH),        E(EINTR),         E(EIO),
		E(ENXIO),           E(E2BIG),           E(ENOEXEC),      E(EBADF),         E(ECHILD),
		E(EAGAIN),          E(ENOMEM),          E(EACCES),       E(EFAULT),        E(EBUSY),
		E(EEXIST),          E(EXDEV),           E(ENODEV),       E(ENOTDIR),       E(EISDIR),
		E(EINVAL),          E(ENFILE),          E(EMFILE),       E(ENOTTY),        E(ETXTBSY),
		E(EFBIG),           E(ENOSPC),          E(ESPIPE),       E(EROFS),         E(EMLINK),
		E(EPIPE),           E(ERANGE),          E(EDEADLK),      E(ENAMETOOLONG),  E(ENOSYS),
		E(ENOTEMPTY),       E(ELOOP),           E(ENODATA),      E(EOPNOTSUPP),    E(EAFNOSUPPORT),
		E(EPROTONOSUPPORT), E(ESOCKTNOSUPPORT), E(EADDRINUSE),   E(EADDRNOTAVAIL), E(ENETUNREACH),
		E(ECONNREFUSED),    E(ETIMEDOUT),       E(EHOSTUNREACH), E(EUSERS),        E(EDQUOT),
		E(ENOKEY),          E(EKEYREVOKED),     E(EOVERFLOW),    E(EBADMSG),
#undef E
	};
	static char other[16];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].code == code)
			return names[i].name;
	}
	snprintf(other, sizeof(other), "E%d", code);
	return other;
}

int through(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("through: ", stdout);
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	return THROUGH;
}

int refused(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("refused %s: ", errno_name(code));
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
	return REFUSED;
}

int verdict(long r, const char *what)
{
	return r < 0 ? refused(errno, "%s", what) : through("%s", what);
}

int verdict_after_check(long r, const char *what)
{
	if (r >= 0)
		return through("%s", what);
	switch (errno) {
	case EPERM:
	case EACCES:
	case ENOSYS:
	case EROFS: return refused(errno, "%s", what);
	default: return through("%s: only the arguments were wrong (%s)", what, errno_name(errno));
	}
}

long long number(const char *text)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 0);
	if (end != text && errno == 0 && *end && strchr("KMG", *end)) {
		v *= *end == 'K' ? 1ll << 10 : *end == 'M' ? 1ll << 20 : 1ll << 30;
		end++;
	}
	if (end == text || *end || errno) {
		fprintf(stderr, "probe: '%s' is not a number\n", text);
		exit(USAGE);
	}
	return v;
}

static int list_verbs(void)
{
	for (size_t t = 0; t < NTABLES; t++) {
		for (const struct verb *v = tables[t]; v->name; v++)
			printf("%s%s%s\n", v->name, *v->args ? " " : "", v->args);
	}
	return 0;
}

int probe_verb(int argc, char **argv)
{
	if (argc == 1 && strcmp(argv[0], "verbs") == 0)
		return list_verbs();
	for (size_t t = 0; argc >= 1 && t < NTABLES; t++) {
		for (const struct verb *v = tables[t]; v->name; v++) {
			if (strcmp(argv[0], v->name) != 0)
				continue;
			if (argc - 1 < v->min || argc - 1 > v->max) {
				fprintf(stderr, "usage: probe %s %s\n", v->name, v->args);
				return USAGE;
			}
			return v->run(argc - 1, argv + 1);
		}
	}
	fprintf(stderr, "usage: probe VERB [ARG]...; `probe verbs` lists them\n");
	return USAGE;
}
