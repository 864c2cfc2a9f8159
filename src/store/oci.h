/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_OCI_H
#define STORE_OCI_H

/*
 * The documents of an OCI image (github.com/opencontainers/image-spec: index.json, image index, image manifest, image
 * configuration; Docker's of schema 2 are the same but for their names). They are a stranger's: what is used is judged here, what
 * isn't known is passed over, and nothing is believed that contradicts a digest.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define OCI_JSON_MAX (4u << 20)		/* bytes of one document: what registries take, too */
#define OCI_LAYERS_MAX 256		/* layers of an image; builders stop at 127 */
#define OCI_BLOB_MAX (64ull << 30)	/* bytes of one layer as it is stored */
#define OCI_INDEX_DEPTH 4		/* an index in an index … */
#define OCI_REF_MAX 255
#define OCI_ENV_MAX 256			/* variables, and … */
#define OCI_ENV_BYTES 65536u		/* … their bytes */
#define OCI_ARGS_BYTES 16384u		/* bytes of an entry point or a command that are kept */

/* A SHA-256 digest, the one algorithm that is in use. */
#define OCI_DIGEST_TEXT 72		/* "sha256:", 64 digits, the end */
struct oci_digest {
	uint8_t bytes[32];
};
/* "sha256:" and 64 lower-case digits, nothing else. */
bool oci_digest_parse(const char *text, struct oci_digest *ret);
void oci_digest_text(const struct oci_digest *d, char ret[OCI_DIGEST_TEXT]);
bool oci_digest_same(const struct oci_digest *a, const struct oci_digest *b);
void oci_digest_of(const void *data, size_t n, struct oci_digest *ret);

/* What a descriptor leads to. */
struct oci_blob {
	struct oci_digest digest;
	uint64_t size;
	bool index;		/* another index, not a manifest */
};

/* Of this machine, as Go names it: "amd64", "arm64". */
const char *oci_arch(void);

/* "PATH[:REF]" after "oci:" or "oci-archive:": the first ':' ends the path. Returns its length; *ret_ref is NULL without one. */
size_t oci_path_split(const char *text, const char **ret_ref);
/* REF: letters, digits and "._:@/+-", at most OCI_REF_MAX. */
bool oci_ref_ok(const char *ref);
/* The name of an image in a registry, "docker://" before it: as oci_ref_ok(), begins with a letter or digit. */
bool oci_docker_ok(const char *source);

/*
 * Choose in an index (`top`: it is index.json, where a name counts) for linux/ARCH. ref NULL: there must be one to choose.
 * -ENOENT names what there is; WHY_UNSUPPORTED: for other machines only.
 */
int oci_index_choose(const char *text, size_t n, bool top, const char *ref, const char *arch, struct oci_blob *ret, struct err *e);

struct oci_manifest {
	struct oci_blob config, layers[OCI_LAYERS_MAX];
	unsigned nlayers;
};
int oci_manifest_parse(const char *text, size_t n, struct oci_manifest *ret, struct err *e);

/*
 * What is used of a configuration. Nothing in it is a right: names that no box could have are left out, each with a call of
 * `left_out` (or NULL). Strings are malloc'd.
 */
struct oci_config {
	struct oci_digest diff_ids[OCI_LAYERS_MAX];	/* of the layers, unpacked */
	unsigned nlayers;
	char *user;		/* or NULL; a name, UID, UID:GID, NAME:GROUP */
	char *workdir;		/* or NULL; absolute and plain */
	char **env;		/* "NAME=value", NULL-terminated, or NULL */
	char **entrypoint, **cmd;	/* NULL-terminated, or NULL */
};
int oci_config_parse(const char *text, size_t n, const char *arch, struct oci_config *ret,
		     void (*left_out)(const char *what, const char *why, void *arg), void *arg, struct err *e);
void oci_config_done(struct oci_config *c);

#endif
