#include "runtime/network/nl.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "base/macros.h"

int nl_open(int protocol)
{
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    int one = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

    if (fd < 0)
        return -1;
    /* short verdicts: without the message they are about */
    (void)setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        close_p(&fd);
    return fd;
}

/* Room for n bytes, zeroed; what we write is of known size, so no room is a bug. */
static char *take(struct nl_batch *b, size_t n)
{
    size_t padded = NLMSG_ALIGN(n);
    char *at = b->p + b->len;

    if (padded > sizeof b->p - b->len)
        abort();
    memset(at, 0, padded);
    b->len += padded;
    ((struct nlmsghdr *)(void *)(b->p + b->msg))->nlmsg_len = (uint32_t)(b->len - b->msg);
    return at;
}

void nl_msg(struct nl_batch *b, unsigned type, unsigned flags, const void *head, size_t n,
            const char *what)
{
    struct nlmsghdr *h;

    if (b->n == NL_MAX_MSGS)
        abort();
    b->msg = b->len;
    h = (struct nlmsghdr *)(void *)take(b, sizeof *h);
    h->nlmsg_type = (uint16_t)type;
    h->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    h->nlmsg_seq = (uint32_t)b->n;
    b->what[b->n++] = what;
    memcpy(take(b, n), head, n);
}

void nl_attr(struct nl_batch *b, unsigned type, const void *p, size_t n)
{
    char *at = take(b, NLA_HDRLEN + n);
    struct nlattr a = { .nla_type = (uint16_t)type, .nla_len = (uint16_t)(NLA_HDRLEN + n) };

    memcpy(at, &a, sizeof a);
    if (n)
        memcpy(at + NLA_HDRLEN, p, n);
}

void nl_u8(struct nl_batch *b, unsigned type, uint8_t v)
{
    nl_attr(b, type, &v, sizeof v);
}

void nl_u32(struct nl_batch *b, unsigned type, uint32_t v)
{
    nl_attr(b, type, &v, sizeof v);
}

void nl_be32(struct nl_batch *b, unsigned type, uint32_t v)
{
    nl_u32(b, type, htonl(v));
}

void nl_str(struct nl_batch *b, unsigned type, const char *s)
{
    nl_attr(b, type, s, strlen(s) + 1);
}

size_t nl_nest(struct nl_batch *b, unsigned type, const void *head, size_t n)
{
    size_t nest = b->len;

    nl_attr(b, type | NLA_F_NESTED, head, n);
    return nest;
}

void nl_end(struct nl_batch *b, size_t nest)
{
    ((struct nlattr *)(void *)(b->p + nest))->nla_len = (uint16_t)(b->len - nest);
}

static uint32_t last_ack(const struct nl_batch *b)
{
    uint32_t last = 0;

    for (size_t at = 0; at < b->len;) {
        const struct nlmsghdr *h = (const void *)(b->p + at);
        if (h->nlmsg_flags & NLM_F_ACK)
            last = h->nlmsg_seq;
        at += NLMSG_ALIGN(h->nlmsg_len);
    }
    return last;
}

int nl_send(int fd, struct nl_batch *b, const char **ret_what)
{
    uint32_t last = last_ack(b);
    union {
        char p[2048];
        struct nlmsghdr align;
    } u;

    *ret_what = "talk to the kernel by netlink";
    if (RETRY(send(fd, b->p, b->len, 0)) != (ssize_t)b->len)
        return -1;
    for (size_t i = 0; i <= NL_MAX_MSGS; i++) {
        ssize_t n = RETRY(recv(fd, u.p, sizeof u.p, MSG_DONTWAIT));
        if (n < 0)
            return -1;
        for (struct nlmsghdr *h = &u.align; NLMSG_OK(h, (size_t)n); h = NLMSG_NEXT(h, n)) {
            const struct nlmsgerr *r = NLMSG_DATA(h);
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof r->error))
                continue;
            if (r->error && h->nlmsg_seq < b->n && !b->what[h->nlmsg_seq])
                continue;
            if (r->error) {
                if (h->nlmsg_seq < b->n)
                    *ret_what = b->what[h->nlmsg_seq];
                errno = -r->error;
                return -1;
            }
            if (h->nlmsg_seq == last)
                return 0;
        }
    }
    errno = EPROTO;
    return -1;
}
