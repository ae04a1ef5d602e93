/* runtime/network/nl.h - netlink messages, many at once: rtnetlink and nfnetlink without a library.
 *
 * libmnl would do, but Debian has it as a shared library only and petri is static. What is here is a
 * writer of messages and attributes into one buffer, sent by one sendmsg(2), and a reader of the
 * kernel's verdicts. The kernel works a batch off before sendmsg returns, so nothing ever waits.
 * Uses:  base/ only.
 */
#pragma once
#include <linux/netlink.h>
#include <stddef.h>
#include <stdint.h>

enum { NL_SPACE = 4096, NL_MAX_MSGS = 16 };

struct nl_batch {
    size_t len, msg;               /* used; where the message in work starts */
    size_t n;                      /* messages so far; a message's sequence number is n - 1 */
    const char *what[NL_MAX_MSGS]; /* by sequence number: for the error */
    union {
        char p[NL_SPACE];
        struct nlmsghdr align;
    };
};

int nl_open(int protocol); /* fd or -1 with errno */

/* A new message; its fixed head follows the netlink header. `what` finishes the sentence "can't ...";
 * NULL: it may fail. One message at least has NLM_F_ACK; nl_send() waits for the last such one. */
void nl_msg(struct nl_batch *b, unsigned type, unsigned flags, const void *head, size_t n,
            const char *what);
void nl_attr(struct nl_batch *b, unsigned type, const void *p, size_t n);
void nl_u8(struct nl_batch *b, unsigned type, uint8_t v);
void nl_u32(struct nl_batch *b, unsigned type, uint32_t v);
void nl_be32(struct nl_batch *b, unsigned type, uint32_t v); /* big-endian: nfnetlink */
void nl_str(struct nl_batch *b, unsigned type, const char *s);
/* Attributes until nl_end() go inside; `head` bytes (may be 0) come first. */
size_t nl_nest(struct nl_batch *b, unsigned type, const void *head, size_t n);
void nl_end(struct nl_batch *b, size_t nest);

/* 0, or -1 with errno; *ret_what is then what the first message that failed was about. */
int nl_send(int fd, struct nl_batch *b, const char **ret_what);
