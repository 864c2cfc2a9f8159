/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SYS_NFT_H
#define SYS_NFT_H

/*
 * Rules of nf_tables (nft(8)) as netlink messages: a table is described with these calls and replaces an earlier one of
 * the same name in one transaction. Only what one static table of family inet needs. Expressions work on registers;
 * NFT_A and NFT_B are two of them (16 bytes each). A comparison that doesn't hold ends its rule.
 * Source: linux/netfilter/nf_tables.h, and what `nft --debug=netlink` shows.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/rtnl.h"

enum nft_reg { NFT_A = 1, NFT_B = 2 };	/* NFT_REG_1, NFT_REG_2 */

struct nft {
	struct nl nl;
	const char *table;
	const char *chain;	/* of the rules that follow */
	size_t rule, exprs;	/* open nests; 0: none */
};

void nft_begin(struct nft *t, const char *table);
/* hook: NF_INET_PRE_ROUTING, …; the policy is what happens at the end. */
void nft_chain(struct nft *t, const char *name, unsigned hook, int priority, bool policy_accept);
void nft_rule(struct nft *t);		/* begins one; the calls below add to it */
void nft_meta(struct nft *t, uint32_t key, enum nft_reg to);				/* NFT_META_* */
void nft_payload(struct nft *t, uint32_t base, uint32_t at, uint32_t n, enum nft_reg to);	/* NFT_PAYLOAD_* */
void nft_mask(struct nft *t, enum nft_reg reg, const void *mask, size_t n);
void nft_cmp(struct nft *t, uint32_t op, enum nft_reg reg, const void *data, size_t n);	/* NFT_CMP_* */
void nft_frag6(struct nft *t, enum nft_reg to);		/* one byte: is there a fragment header? */
/* The interface on the way back to the packet's source, if it is the one it came from; else 0. Four bytes. */
void nft_way_back(struct nft *t, enum nft_reg to);
/* Give the packet to the transparent socket of addr:port (network order). family: AF_INET or AF_INET6. Ends the rule if there is none. */
void nft_tproxy(struct nft *t, int family, const void *addr, uint16_t port);
void nft_verdict(struct nft *t, bool accept);		/* or drop */
/* In the namespace of the calling thread. 0 or the kernel's refusal: -ENOENT or -EOPNOTSUPP when it lacks something. */
int nft_commit(struct nft *t);

#endif
