#include "runtime/network/listen.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/network/tproxy.h"
#include "runtime/network/veth.h"

enum { BACKLOG = 4096, SEEN = 64, PACKET_BUFFER = 64 << 10, FLAGS = SOCK_NONBLOCK | SOCK_CLOEXEC };

static int set(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof value);
}

static int bind_any(int fd, uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    return bind(fd, (struct sockaddr *)&a, sizeof a);
}

int listen_open(enum feed_kind kind, uint16_t port)
{
    bool udp = kind == FEED_DNS_UDP || kind == FEED_TPROXY_UDP,
         all = kind == FEED_TPROXY_TCP || kind == FEED_TPROXY_UDP;
    AUTOCLOSE int fd = -1;

    if (kind == FEED_RAW) /* IPPROTO_RAW is for sending only, and means IP_HDRINCL */
        return socket(AF_INET, SOCK_RAW | FLAGS, IPPROTO_RAW);
    fd = socket(AF_INET, (udp ? SOCK_DGRAM : SOCK_STREAM) | FLAGS, 0);
    if (fd < 0 || (!udp && set(fd, SOL_SOCKET, SO_REUSEADDR, 1) < 0) ||
        (!udp && set(fd, IPPROTO_TCP, TCP_NODELAY, 1) < 0) || /* whom it accepts has it, too */
        (all && set(fd, SOL_IP, IP_TRANSPARENT, 1) < 0) ||
        (kind == FEED_DNS_UDP && set(fd, SOL_IP, IP_PKTINFO, 1) < 0) ||
        (kind == FEED_TPROXY_UDP && set(fd, SOL_IP, IP_RECVORIGDSTADDR, 1) < 0) ||
        bind_any(fd, all ? TPROXY_PORT : port) < 0 || (!udp && listen(fd, BACKLOG) < 0))
        return -1;
    return TAKE_FD(fd);
}

/* --- what nobody listens for ------------------------------------------------------------------ */

#define OP(c, v) ((struct sock_filter)BPF_STMT(c, v))
#define JUMP(c, v, t, f) ((struct sock_filter)BPF_JUMP(c, v, t, f))

/* The packet starts with its IP header. First TCP packets (SYN without ACK) and UDP, never a later
 * fragment; ports that have a listener are left out one by one. */
int listen_refused_filter(int fd, const struct feed_item *v, size_t n)
{
    struct sock_filter f[32 + 2 * FEED_MAX_FDS];
    struct sock_fprog prog = { .filter = f };
    size_t k = 0;

    f[k++] = OP(BPF_LD | BPF_H | BPF_ABS, 6); /* flags, fragment offset */
    f[k++] = JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 0, 1);
    f[k++] = OP(BPF_RET | BPF_K, 0);
    f[k++] = OP(BPF_LDX | BPF_B | BPF_MSH, 0); /* X: length of the IP header */
    f[k++] = OP(BPF_LD | BPF_B | BPF_ABS, 9);  /* protocol */
    f[k++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 6, 0);
    f[k++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 1, 0);
    f[k++] = OP(BPF_RET | BPF_K, 0);
    f[k++] = OP(BPF_LD | BPF_H | BPF_IND, 2); /* UDP: destination port */
    f[k++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, 53, 0, 1);
    f[k++] = OP(BPF_RET | BPF_K, 0);
    f[k++] = OP(BPF_RET | BPF_K, SEEN);
    f[k++] = OP(BPF_LD | BPF_B | BPF_IND, 13); /* TCP: flags */
    f[k++] = OP(BPF_ALU | BPF_AND | BPF_K, 0x12);
    f[k++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 1, 0);
    f[k++] = OP(BPF_RET | BPF_K, 0);
    f[k++] = OP(BPF_LD | BPF_H | BPF_IND, 2);
    for (size_t i = 0; i < n; i++) {
        if (v[i].kind != FEED_TCP && v[i].kind != FEED_DNS_TCP)
            continue;
        f[k++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, v[i].port, 0, 1);
        f[k++] = OP(BPF_RET | BPF_K, 0);
    }
    f[k++] = OP(BPF_RET | BPF_K, SEEN);
    prog.len = (unsigned short)k;
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog);
}

int listen_refused(const struct feed_item *v, size_t n)
{
    struct sockaddr_ll a = { .sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_IP),
                             .sll_ifindex = VETH_INDEX_GATEWAY };
    /* no protocol yet: it sees nothing before it has its filter */
    AUTOCLOSE int fd = socket(AF_PACKET, SOCK_DGRAM | FLAGS, 0);

    if (fd < 0 || listen_refused_filter(fd, v, n) < 0 ||
        set(fd, SOL_SOCKET, SO_RCVBUF, PACKET_BUFFER) < 0 ||
        set(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1) < 0 ||
        bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return -1;
    return TAKE_FD(fd);
}

/* --- into the sandbox -------------------------------------------------------------------------- */

static int dial(const struct sockaddr *to, socklen_t n, int wait_ms)
{
    AUTOCLOSE int fd = socket(to->sa_family, SOCK_STREAM | FLAGS, 0);
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int error = 0;
    socklen_t len = sizeof error;

    if (fd < 0 || set(fd, IPPROTO_TCP, TCP_NODELAY, 1) < 0)
        return -1;
    if (connect(fd, to, n) < 0) {
        if (errno != EINPROGRESS)
            return -1;
        if (poll(&p, 1, wait_ms) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
            error) {
            errno = error;
            return -1;
        }
    }
    return TAKE_FD(fd);
}

int listen_dial(uint16_t port, int wait_ms)
{
    struct sockaddr_in four = { .sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = htons(port),
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = dial((struct sockaddr *)&four, sizeof four, wait_ms), first = errno;

    if (fd < 0)
        fd = dial((struct sockaddr *)&six, sizeof six, wait_ms);
    if (fd < 0)
        errno = first;
    return fd;
}
