/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

_Static_assert((int)NFT_A == NFT_REG_1 && (int)NFT_B == NFT_REG_2, "the kernel's numbers");

#define NF_TYPE(x) ((NFNL_SUBSYS_NFTABLES << 8) | (x))

static void begin(struct nft *t, uint16_t type, uint16_t flags)
{
	const struct nfgenmsg head = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };

	nl_begin(&t->nl, NF_TYPE(type), flags | NLM_F_ACK, &head, sizeof(head));
}

static void batch_mark(struct nft *t, uint16_t type)
{
	const struct nfgenmsg head = { .version = NFNETLINK_V0, .res_id = htons(NFNL_SUBSYS_NFTABLES) };

	nl_begin(&t->nl, type, 0, &head, sizeof(head));
}

static void end_rule(struct nft *t)
{
	if (t->exprs)
		nl_unnest(&t->nl, t->exprs);
	t->exprs = 0;
}

void nft_begin(struct nft *t, const char *table)
{
	nl_reset(&t->nl);
	t->table = table;
	t->chain = NULL;
	t->exprs = 0;
	batch_mark(t, NFNL_MSG_BATCH_BEGIN);
	/* Made, so that it can be deleted in any case; deleted with all that is in it; made. */
	begin(t, NFT_MSG_NEWTABLE, NLM_F_CREATE);
	nl_put_str(&t->nl, NFTA_TABLE_NAME, table);
	begin(t, NFT_MSG_DELTABLE, 0);
	nl_put_str(&t->nl, NFTA_TABLE_NAME, table);
	begin(t, NFT_MSG_NEWTABLE, NLM_F_CREATE);
	nl_put_str(&t->nl, NFTA_TABLE_NAME, table);
}

void nft_chain(struct nft *t, const char *name, unsigned hook, int priority, bool policy_accept)
{
	size_t nest;

	end_rule(t);
	t->chain = name;
	begin(t, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
	nl_put_str(&t->nl, NFTA_CHAIN_TABLE, t->table);
	nl_put_str(&t->nl, NFTA_CHAIN_NAME, name);
	nest = nl_nest(&t->nl, NFTA_CHAIN_HOOK);
	nl_put_be32(&t->nl, NFTA_HOOK_HOOKNUM, hook);
	nl_put_be32(&t->nl, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	nl_unnest(&t->nl, nest);
	nl_put_be32(&t->nl, NFTA_CHAIN_POLICY, policy_accept ? NF_ACCEPT : NF_DROP);
	nl_put_str(&t->nl, NFTA_CHAIN_TYPE, "filter");
}

void nft_rule(struct nft *t)
{
	end_rule(t);
	begin(t, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	nl_put_str(&t->nl, NFTA_RULE_TABLE, t->table);
	nl_put_str(&t->nl, NFTA_RULE_CHAIN, t->chain);
	t->exprs = nl_nest(&t->nl, NFTA_RULE_EXPRESSIONS);
}

struct expr {
	size_t element, data;
};

static struct expr expr(struct nft *t, const char *name)
{
	struct expr x = { .element = nl_nest(&t->nl, NFTA_LIST_ELEM) };

	nl_put_str(&t->nl, NFTA_EXPR_NAME, name);
	x.data = nl_nest(&t->nl, NFTA_EXPR_DATA);
	return x;
}

static void expr_end(struct nft *t, struct expr x)
{
	nl_unnest(&t->nl, x.data);
	nl_unnest(&t->nl, x.element);
}

static void put_value(struct nft *t, uint16_t attr, const void *data, size_t n)
{
	size_t nest = nl_nest(&t->nl, attr);

	nl_put(&t->nl, NFTA_DATA_VALUE, data, n);
	nl_unnest(&t->nl, nest);
}

void nft_meta(struct nft *t, uint32_t key, enum nft_reg to)
{
	struct expr x = expr(t, "meta");

	nl_put_be32(&t->nl, NFTA_META_KEY, key);
	nl_put_be32(&t->nl, NFTA_META_DREG, to);
	expr_end(t, x);
}

void nft_payload(struct nft *t, uint32_t base, uint32_t at, uint32_t n, enum nft_reg to)
{
	struct expr x = expr(t, "payload");

	nl_put_be32(&t->nl, NFTA_PAYLOAD_DREG, to);
	nl_put_be32(&t->nl, NFTA_PAYLOAD_BASE, base);
	nl_put_be32(&t->nl, NFTA_PAYLOAD_OFFSET, at);
	nl_put_be32(&t->nl, NFTA_PAYLOAD_LEN, n);
	expr_end(t, x);
}

void nft_mask(struct nft *t, enum nft_reg reg, const void *mask, size_t n)
{
	static const unsigned char none[16];
	struct expr x = expr(t, "bitwise");

	nl_put_be32(&t->nl, NFTA_BITWISE_SREG, reg);
	nl_put_be32(&t->nl, NFTA_BITWISE_DREG, reg);
	nl_put_be32(&t->nl, NFTA_BITWISE_LEN, (uint32_t)n);
	put_value(t, NFTA_BITWISE_MASK, mask, n);
	put_value(t, NFTA_BITWISE_XOR, none, n);
	expr_end(t, x);
}

void nft_cmp(struct nft *t, uint32_t op, enum nft_reg reg, const void *data, size_t n)
{
	struct expr x = expr(t, "cmp");

	nl_put_be32(&t->nl, NFTA_CMP_SREG, reg);
	nl_put_be32(&t->nl, NFTA_CMP_OP, op);
	put_value(t, NFTA_CMP_DATA, data, n);
	expr_end(t, x);
}

void nft_frag6(struct nft *t, enum nft_reg to)
{
	struct expr x = expr(t, "exthdr");

	nl_put_be32(&t->nl, NFTA_EXTHDR_DREG, to);
	nl_put_u8(&t->nl, NFTA_EXTHDR_TYPE, IPPROTO_FRAGMENT);
	nl_put_be32(&t->nl, NFTA_EXTHDR_OFFSET, 0);
	nl_put_be32(&t->nl, NFTA_EXTHDR_LEN, 1);
	nl_put_be32(&t->nl, NFTA_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT);
	expr_end(t, x);
}

void nft_way_back(struct nft *t, enum nft_reg to)
{
	struct expr x = expr(t, "fib");

	nl_put_be32(&t->nl, NFTA_FIB_DREG, to);
	nl_put_be32(&t->nl, NFTA_FIB_RESULT, NFT_FIB_RESULT_OIF);
	nl_put_be32(&t->nl, NFTA_FIB_FLAGS, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF);
	expr_end(t, x);
}

static void immediate(struct nft *t, enum nft_reg to, const void *data, size_t n)
{
	struct expr x = expr(t, "immediate");

	nl_put_be32(&t->nl, NFTA_IMMEDIATE_DREG, to);
	put_value(t, NFTA_IMMEDIATE_DATA, data, n);
	expr_end(t, x);
}

void nft_tproxy(struct nft *t, int family, const void *addr, uint16_t port)
{
	struct expr x;

	immediate(t, NFT_A, addr, family == AF_INET ? 4 : 16);
	immediate(t, NFT_B, &port, sizeof(port));
	x = expr(t, "tproxy");
	nl_put_be32(&t->nl, NFTA_TPROXY_FAMILY, family == AF_INET ? NFPROTO_IPV4 : NFPROTO_IPV6);
	nl_put_be32(&t->nl, NFTA_TPROXY_REG_ADDR, NFT_A);
	nl_put_be32(&t->nl, NFTA_TPROXY_REG_PORT, NFT_B);
	expr_end(t, x);
}

void nft_verdict(struct nft *t, bool accept)
{
	struct expr x = expr(t, "immediate");
	size_t data, verdict;

	nl_put_be32(&t->nl, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nl_nest(&t->nl, NFTA_IMMEDIATE_DATA);
	verdict = nl_nest(&t->nl, NFTA_DATA_VERDICT);
	nl_put_be32(&t->nl, NFTA_VERDICT_CODE, accept ? NF_ACCEPT : NF_DROP);
	nl_unnest(&t->nl, verdict);
	nl_unnest(&t->nl, data);
	expr_end(t, x);
}

int nft_commit(struct nft *t)
{
	OWN_FD fd = FD_NONE;

	end_rule(t);
	batch_mark(t, NFNL_MSG_BATCH_END);
	fd = nl_open(NETLINK_NETFILTER);
	if (fd < 0)
		return fd;
	return nl_talk(fd, &t->nl);
}
