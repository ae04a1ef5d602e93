#include "runtime/network/tproxy.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <netinet/in.h>
#include <string.h>

#include "runtime/network/nl.h"

enum { PRIORITY_MANGLE = -150, DNS = 53, SYN = 0x02, SYN_ACK = 0x12, TCP_FLAGS = 13, DST_PORT = 2 };

static void add_msg(struct nl_batch *b, unsigned type, unsigned flags, const char *what)
{
    struct nfgenmsg g = { .nfgen_family = NFPROTO_IPV4, .version = NFNETLINK_V0 };

    nl_msg(b, NFNL_SUBSYS_NFTABLES << 8 | type, flags, &g, sizeof g, what);
}

static void add_frame(struct nl_batch *b, unsigned type)
{
    struct nfgenmsg g = { .nfgen_family = AF_UNSPEC,
                          .version = NFNETLINK_V0,
                          .res_id = htons(NFNL_SUBSYS_NFTABLES) };

    nl_msg(b, type, 0, &g, sizeof g, "use nftables");
}

/* An expression: its name, and attributes until nl_end() twice. */
struct expr {
    size_t elem, data;
};

static struct expr expr_begin(struct nl_batch *b, const char *name)
{
    struct expr x = { .elem = nl_nest(b, NFTA_LIST_ELEM, NULL, 0) };

    nl_str(b, NFTA_EXPR_NAME, name);
    x.data = nl_nest(b, NFTA_EXPR_DATA, NULL, 0);
    return x;
}

static void expr_end(struct nl_batch *b, struct expr x)
{
    nl_end(b, x.data);
    nl_end(b, x.elem);
}

static void add_value(struct nl_batch *b, unsigned type, const void *p, size_t n)
{
    size_t nest = nl_nest(b, type, NULL, 0);

    nl_attr(b, NFTA_DATA_VALUE, p, n);
    nl_end(b, nest);
}

static void add_load_protocol(struct nl_batch *b)
{
    struct expr x = expr_begin(b, "meta");

    nl_be32(b, NFTA_META_KEY, NFT_META_L4PROTO);
    nl_be32(b, NFTA_META_DREG, NFT_REG_1);
    expr_end(b, x);
}

static void add_load_header(struct nl_batch *b, uint32_t offset, uint32_t len)
{
    struct expr x = expr_begin(b, "payload");

    nl_be32(b, NFTA_PAYLOAD_DREG, NFT_REG_1);
    nl_be32(b, NFTA_PAYLOAD_BASE, NFT_PAYLOAD_TRANSPORT_HEADER);
    nl_be32(b, NFTA_PAYLOAD_OFFSET, offset);
    nl_be32(b, NFTA_PAYLOAD_LEN, len);
    expr_end(b, x);
}

static void add_mask(struct nl_batch *b, uint8_t mask)
{
    struct expr x = expr_begin(b, "bitwise");
    uint8_t none = 0;

    nl_be32(b, NFTA_BITWISE_SREG, NFT_REG_1);
    nl_be32(b, NFTA_BITWISE_DREG, NFT_REG_1);
    nl_be32(b, NFTA_BITWISE_LEN, sizeof mask);
    add_value(b, NFTA_BITWISE_MASK, &mask, sizeof mask);
    add_value(b, NFTA_BITWISE_XOR, &none, sizeof none);
    expr_end(b, x);
}

static void add_compare(struct nl_batch *b, enum nft_cmp_ops op, const void *p, size_t n)
{
    struct expr x = expr_begin(b, "cmp");

    nl_be32(b, NFTA_CMP_SREG, NFT_REG_1);
    nl_be32(b, NFTA_CMP_OP, op);
    add_value(b, NFTA_CMP_DATA, p, n);
    expr_end(b, x);
}

static void add_tproxy(struct nl_batch *b)
{
    uint16_t port = htons(TPROXY_PORT);
    struct expr x = expr_begin(b, "immediate");

    nl_be32(b, NFTA_IMMEDIATE_DREG, NFT_REG_1);
    add_value(b, NFTA_IMMEDIATE_DATA, &port, sizeof port);
    expr_end(b, x);
    x = expr_begin(b, "tproxy");
    nl_be32(b, NFTA_TPROXY_FAMILY, NFPROTO_IPV4);
    nl_be32(b, NFTA_TPROXY_REG_PORT, NFT_REG_1);
    expr_end(b, x);
}

static void add_chain(struct nl_batch *b)
{
    size_t hook;

    add_msg(b, NFT_MSG_NEWTABLE, NLM_F_CREATE, "make an nftables table");
    nl_str(b, NFTA_TABLE_NAME, "petri");
    add_msg(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, "make an nftables chain");
    nl_str(b, NFTA_CHAIN_TABLE, "petri");
    nl_str(b, NFTA_CHAIN_NAME, "in");
    hook = nl_nest(b, NFTA_CHAIN_HOOK, NULL, 0);
    nl_be32(b, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    nl_be32(b, NFTA_HOOK_PRIORITY, (uint32_t)PRIORITY_MANGLE);
    nl_end(b, hook);
    nl_str(b, NFTA_CHAIN_TYPE, "filter");
}

/* Of TCP only the first packet of a connection: for the others the kernel finds the socket anyway. */
static void add_rule(struct nl_batch *b, uint8_t protocol, unsigned flags)
{
    uint16_t dns = htons(DNS);
    uint8_t syn = SYN;
    size_t list;

    add_msg(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | flags, "make a tproxy rule");
    nl_str(b, NFTA_RULE_TABLE, "petri");
    nl_str(b, NFTA_RULE_CHAIN, "in");
    list = nl_nest(b, NFTA_RULE_EXPRESSIONS, NULL, 0);
    add_load_protocol(b);
    add_compare(b, NFT_CMP_EQ, &protocol, sizeof protocol);
    if (protocol == IPPROTO_TCP) {
        add_load_header(b, TCP_FLAGS, 1);
        add_mask(b, SYN_ACK);
        add_compare(b, NFT_CMP_EQ, &syn, sizeof syn);
    }
    add_load_header(b, DST_PORT, sizeof dns);
    add_compare(b, NFT_CMP_NEQ, &dns, sizeof dns);
    add_tproxy(b);
    nl_end(b, list);
}

int tproxy_rules(struct err **e)
{
    struct nl_batch b = { .len = 0 };
    AUTOCLOSE int nl = nl_open(NETLINK_NETFILTER);
    const char *what = "use nftables";

    if (nl >= 0) {
        add_frame(&b, NFNL_MSG_BATCH_BEGIN);
        add_chain(&b);
        add_rule(&b, IPPROTO_TCP, 0);
        add_rule(&b, IPPROTO_UDP, NLM_F_ACK);
        add_frame(&b, NFNL_MSG_BATCH_END);
        if (nl_send(nl, &b, &what) == 0)
            return 0;
    }
    return err_new(e, ERR_UNSUPPORTED,
                   "the kernel can't %s (%s); load the modules nf_tables and nft_tproxy, or use "
                   "--network limited",
                   what, strerror(errno));
}
