/* SPDX-License-Identifier: Apache-2.0 */
#include "store/build.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

/* Names that mean keys and tokens wherever they are. Whatever else a file is for, these stay on the host. */
static const char *const secret_names[] = {
	"auth.conf*", ".netrc", "netrc", "_netrc", ".pypirc", ".git-credentials", ".htpasswd", "*.keytab", "*.key", "*.p12",
	"*.pfx", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "ssh_host_*", "*credentials", "*.token", "shadow*",
	"gshadow*", "opasswd",
};

bool secret_name(const char *name)
{
	for (size_t i = 0; i < sizeof(secret_names) / sizeof(secret_names[0]); i++)
		if (fnmatch(secret_names[i], name, 0) == 0)
			return true;
	return false;
}

static bool has(const struct buf *t, const char *word)
{
	return t->len && memmem(t->data, t->len, word, strlen(word));
}

/* "scheme://user:password@host" becomes "scheme://host", in place. */
static void drop_logins(struct buf *t)
{
	size_t from = 0;

	while (from < t->len) {
		char *colon = memmem(t->data + from, t->len - from, "://", 3);
		char *end = t->data + t->len, *p, *at = NULL;

		if (!colon)
			return;
		/* The last '@' before the host ends: a password may hold one. */
		for (p = colon + 3; p < end && !isspace((unsigned char)*p) && !strchr("/\"'<>;|", *p); p++)
			if (*p == '@')
				at = p;
		if (at) {
			memmove(colon + 3, at + 1, (size_t)(end - at - 1));
			t->len -= (size_t)(at + 1 - (colon + 3));
			t->data[t->len] = '\0';
		}
		from = (size_t)(colon + 3 - t->data);
	}
}

static bool line_has(const char *line, size_t n, const char *word)
{
	size_t w = strlen(word);

	for (size_t i = 0; i + w <= n; i++)
		if (strncasecmp(line + i, word, w) == 0)
			return true;
	return false;
}

/* Does this line of a shell file give a value to something that is called like a secret? */
static bool sets_secret(const char *line, size_t n)
{
	static const char *const words[] = { "token", "secret", "passwd", "password", "passphrase", "api_key", "apikey",
					     "access_key", "private_key", "credential", "auth_key" };
	size_t i = 0;

	while (i < n && isspace((unsigned char)line[i]))
		i++;
	if (i < n && line[i] == '#')
		return line_has(line, n, "key=") || line_has(line, n, "token=") || line_has(line, n, "secret=") ||
		       line_has(line, n, "password=");
	if (!memchr(line, '=', n) && !line_has(line, n, "set"))
		return false;
	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (line_has(line, n, words[i]))
			return true;
	return false;
}

static int drop_lines(struct buf *t)
{
	OWN_BUF out = BUF_INIT(FILE_SMALL_MAX);
	size_t at = 0;

	while (at < t->len) {
		const char *nl = memchr(t->data + at, '\n', t->len - at);
		size_t n = nl ? (size_t)(nl - (t->data + at)) + 1 : t->len - at;

		/* ":" and not nothing: an "if" whose only line goes must stay whole. */
		if (sets_secret(t->data + at, n))
			(void)buf_puts(&out, ":\n");
		else
			(void)buf_put(&out, t->data + at, n);
		at += n;
	}
	if (buf_error(&out))
		return buf_error(&out);
	buf_reset(t);
	return buf_put(t, out.data, out.len);
}

static bool is_one_of(const char *path, const char *const *patterns, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fnmatch(patterns[i], path, 0) == 0)
			return true;
	return false;
}

int secret_filter(const char *path, struct buf *text)
{
	static const char *const shell[] = { "profile", "profile.d/*", "bash*", "zsh/*", "fish/*", "default/*", "skel/*", "environment*",
					     "security/*", "csh*", "R/*" };
	static const char *const tools[] = { "*npmrc", "pip.conf", "gitconfig", "wgetrc", "curlrc", "maven/*", "gradle/*", "dnf/*", "yum.repos.d/*",
					     "zypp/*", "pacman*" };
	static const char *const signs[] = { "_auth", "_password", "password", "token", "extraheader", "secret" };

	if (has(text, "PRIVATE KEY-----") || has(text, "PRIVATE KEY BLOCK-----"))
		return -EPERM;
	if (!text->len || memchr(text->data, '\0', text->len))
		return 0;
	drop_logins(text);
	if (is_one_of(path, tools, sizeof(tools) / sizeof(tools[0])))
		for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
			const char *at = text->data;

			/* A comment that explains a password is none. */
			while (at && *at) {
				const char *nl = strchrnul(at, '\n');

				if (*at != '#' && *at != ';' && !(*at == '<' && at[1] == '!') &&
				    line_has(at, (size_t)(nl - at), signs[i]))
					return -EPERM;
				at = *nl ? nl + 1 : NULL;
			}
		}
	if (is_one_of(path, shell, sizeof(shell) / sizeof(shell[0])))
		return drop_lines(text);
	return 0;
}
