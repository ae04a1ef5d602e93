#include "runtime/gateway/udpwire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/macros.h"

ssize_t udpwire_recv(int fd, void *buf, size_t size, struct udpwire *ret)
{
    struct sockaddr_in from = { 0 }, to;
    char control[CMSG_SPACE(sizeof to) + 64];
    struct iovec iov = { buf, size };
    struct msghdr m = { .msg_name = &from,
                        .msg_namelen = sizeof from,
                        .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = sizeof control };
    ssize_t n = RETRY(recvmsg(fd, &m, MSG_DONTWAIT));
    if (n < 0)
        return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level != SOL_IP || c->cmsg_type != IP_ORIGDSTADDR ||
            c->cmsg_len < CMSG_LEN(sizeof to) || from.sin_family != AF_INET)
            continue;
        memcpy(&to, CMSG_DATA(c), sizeof to);
        *ret = (struct udpwire){ .src = ntohl(from.sin_addr.s_addr),
                                 .dst = ntohl(to.sin_addr.s_addr),
                                 .sport = ntohs(from.sin_port),
                                 .dport = ntohs(to.sin_port) };
        return n;
    }
    errno = EPROTO;
    return -1;
}

/* The kernel fills in length, id and checksum. */
static struct iphdr ip_head(uint32_t src, uint32_t dst, uint8_t protocol, size_t payload)
{
    return (struct iphdr){ .version = 4,
                           .ihl = 5,
                           .tot_len = htons(sizeof(struct iphdr) + payload),
                           .ttl = 64,
                           .protocol = protocol,
                           .saddr = htonl(src),
                           .daddr = htonl(dst) };
}

static bool send_raw(int raw, uint32_t to, struct iovec *iov, size_t n)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(to) };
    struct msghdr m = {
        .msg_name = &sa, .msg_namelen = sizeof sa, .msg_iov = iov, .msg_iovlen = n
    };
    return RETRY(sendmsg(raw, &m, MSG_DONTWAIT | MSG_NOSIGNAL)) >= 0;
}

bool udpwire_answer(int raw, const struct udpwire *w, const void *p, size_t n)
{
    struct {
        struct iphdr ip;
        struct udphdr udp;
    } head = { .ip = ip_head(w->dst, w->src, IPPROTO_UDP, sizeof head.udp + n) };
    if (n > UDPWIRE_MAX)
        return false;
    /* Without a checksum, as IPv4 allows: the wire is memory. */
    head.udp.source = htons(w->dport);
    head.udp.dest = htons(w->sport);
    head.udp.len = htons(sizeof head.udp + n);
    struct iovec iov[] = { { &head, sizeof head }, { (void *)p, n } };
    return send_raw(raw, w->src, iov, 2);
}

static uint16_t checksum(const void *p, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i + 1 < n; i += 2) {
        uint16_t word;
        memcpy(&word, (const char *)p + i, 2);
        sum += word;
    }
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

bool udpwire_refuse(int raw, const struct udpwire *w)
{
    struct {
        struct iphdr ip;
        struct icmphdr icmp;
        struct iphdr was; /* what it is about: as much of it as the receiver looks at */
        struct udphdr udp;
    } m = { .ip = ip_head(w->dst, w->src, IPPROTO_ICMP, sizeof m - sizeof m.ip),
            .icmp = { .type = ICMP_DEST_UNREACH, .code = ICMP_PORT_UNREACH },
            .was = ip_head(w->src, w->dst, IPPROTO_UDP, sizeof m.udp) };
    m.udp.source = htons(w->sport);
    m.udp.dest = htons(w->dport);
    m.udp.len = htons(sizeof m.udp);
    m.was.check = checksum(&m.was, sizeof m.was);
    m.icmp.checksum = checksum(&m.icmp, sizeof m - sizeof m.ip);
    struct iovec iov = { &m, sizeof m };
    return send_raw(raw, w->src, &iov, 1);
}
