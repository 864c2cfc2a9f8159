/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STORE_OCI_LAYER_H
#define STORE_OCI_LAYER_H

#include "store/build.h"
#include "store/oci.h"

/* A layer and the tree it is applied to. Descriptors are borrowed. */
struct oci_apply {
	struct build *b;
	int root_fd;		/* the tree as it is seen: a directory, or the root of an overlay */
	int upper_fd;		/* of the overlay: its upper directory; else FD_NONE */
	int empty_fd;		/* an empty directory, the root of who needs no files */
	unsigned number, of;	/* "layer 2 of 7" */
	const struct oci_blob *blob;
	uint64_t bytes, files, left_out;	/* of the layers before, and with this one: what the limits count */
};

/*
 * Apply the layer in blob_fd (at its beginning, readable), whose digest is o->blob->digest and whose archive has the digest
 * `diff_id`. On failure the tree is half changed. WHY_BAD_REQUEST: damaged, or against the rules; WHY_LIMIT; WHY_NO_SPACE.
 */
int oci_layer_apply(struct oci_apply *o, int blob_fd, const struct oci_digest *diff_id, struct err *e);

#endif
