/* The sandbox's network from both ends: this program is the gateway that asks the agent, and the sandbox. As
 * root and as an ordinary user. */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

#include "base/clock.h"
#include "runtime/network/listen.h"
#include "tests/unit/net_world.h"

enum { AT_ONCE_MS = 900 };

static struct sockaddr_in at(const char *addr, uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, addr, &a.sin_addr);
    return a;
}

static bool same(const struct sockaddr_in *a, const char *addr, uint16_t port)
{
    struct sockaddr_in b = at(addr, port);
    return a->sin_addr.s_addr == b.sin_addr.s_addr && a->sin_port == b.sin_port;
}

/* errno of a connect from the sandbox, 0 when it is through. */
static int connect_to(int fd, const char *addr, uint16_t port)
{
    struct sockaddr_in a = at(addr, port);
    return RETRY(connect(fd, (struct sockaddr *)&a, sizeof a)) < 0 ? errno : 0;
}

static void check_refused(struct world *w, const char *addr, uint16_t port)
{
    uint64_t from = clock_ms(CLOCK_MONOTONIC);
    int error = connect_to(tcp_socket(w), addr, port);

    CHECK(error == ECONNREFUSED, "%s:%u: %s", addr, port, strerror(error));
    CHECK(clock_ms(CLOCK_MONOTONIC) - from < AT_ONCE_MS, "a refusal that took its time");
}

/* A connection from the sandbox arrives at the listener, under the address it was meant for. */
static void check_arrives(struct world *w, int listener, const char *addr, uint16_t port)
{
    struct sockaddr_in me = { 0 }, peer = { 0 };
    socklen_t n = sizeof me, m = sizeof peer;
    int in = tcp_socket(w), error = connect_to(in, addr, port);
    char buf[8] = "";

    CHECK(error == 0, "%s:%u: %s", addr, port, strerror(error));
    CHECK(readable(listener), "nothing to accept for %s:%u", addr, port);
    AUTOCLOSE int out = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(out >= 0, "accept: %m");
    CHECK(getsockname(out, (struct sockaddr *)&me, &n) == 0 && same(&me, addr, port),
          "arrived as %s:%u", inet_ntoa(me.sin_addr), ntohs(me.sin_port));
    CHECK(getpeername(out, (struct sockaddr *)&peer, &m) == 0 &&
              peer.sin_addr.s_addr == htonl(0xc6120002),
          "came from %s", inet_ntoa(peer.sin_addr));
    CHECK(send(in, "up", 2, MSG_NOSIGNAL) == 2 && readable(out) && recv(out, buf, 8, 0) == 2, "up");
    CHECK(send(out, "down", 4, MSG_NOSIGNAL) == 4 && readable(in) && recv(in, buf, 8, 0) == 4,
          "down");
    char name[16] = "";
    n = sizeof name;
    CHECK(getsockopt(in, SOL_TCP, TCP_CONGESTION, name, &n) == 0, "%m");
    CHECK_STR(name, "reno");
    n = sizeof name;
    CHECK(getsockopt(out, SOL_TCP, TCP_CONGESTION, name, &n) == 0, "%m");
    CHECK_STR(name, "reno");
}

/* The next packet that was refused. */
static void check_seen(int fd, int protocol, const char *addr, uint16_t port)
{
    unsigned char p[256] = { 0 };
    uint32_t want = at(addr, 0).sin_addr.s_addr;
    uint16_t got;

    CHECK(readable(fd), "no refused packet seen");
    ssize_t n = recv(fd, p, sizeof p, 0);
    CHECK(n >= 24 && n <= 64 && p[0] >> 4 == 4 && p[9] == protocol, "%zd bytes, protocol %d", n,
          p[9]);
    memcpy(&got, p + (p[0] & 15) * 4 + 2, 2);
    CHECK(memcmp(p + 16, &want, 4) == 0 && ntohs(got) == port, "to port %u, want %u", ntohs(got),
          port);
}

/* A question to any resolver arrives, and the answer comes from the one that was asked. */
static void check_dns(struct world *w)
{
    struct sockaddr_in to = at("192.0.2.53", 53), from = { 0 };
    union {
        char buf[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr align;
    } u;
    char text[16];
    struct iovec iov = { .iov_base = text, .iov_len = sizeof text };
    struct msghdr m = { .msg_name = &from,
                        .msg_namelen = sizeof from,
                        .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = u.buf,
                        .msg_controllen = sizeof u.buf };
    int in = udp_socket(w), dns = item(w, FEED_DNS_UDP, 53);
    struct in_pktinfo info = { 0 };

    CHECK(sendto(in, "ask", 3, 0, (struct sockaddr *)&to, sizeof to) == 3, "%m");
    CHECK(readable(dns) && recvmsg(dns, &m, 0) == 3, "no question");
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == IP_PKTINFO, "no IP_PKTINFO");
    if (!c)
        return;
    memcpy(&info, CMSG_DATA(c), sizeof info);
    CHECK(info.ipi_addr.s_addr == to.sin_addr.s_addr, "for %s", inet_ntoa(info.ipi_addr));
    info = (struct in_pktinfo){ .ipi_spec_dst = info.ipi_addr };
    memcpy(CMSG_DATA(c), &info, sizeof info);
    iov.iov_len = 3;
    CHECK(sendmsg(dns, &m, 0) == 3, "answer: %m");
    socklen_t n = sizeof from;
    CHECK(readable(in) && recvfrom(in, text, sizeof text, 0, (struct sockaddr *)&from, &n) == 3 &&
              same(&from, "192.0.2.53", 53),
          "answer from %s:%u", inet_ntoa(from.sin_addr), ntohs(from.sin_port));
    check_arrives(w, item(w, FEED_DNS_TCP, 53), "192.0.2.53", 53);
}

static void check_udp_refused(struct world *w)
{
    int fd = udp_socket(w);
    char c;

    CHECK(connect_to(fd, "203.0.113.5", 9999) == 0 && send(fd, "x", 1, 0) == 1, "%m");
    CHECK(readable(fd) && recv(fd, &c, 1, 0) < 0 && errno == ECONNREFUSED, "%m");
    check_seen(item(w, FEED_PACKET, 0), IPPROTO_UDP, "203.0.113.5", 9999);
}

static void check_dial(struct world *w)
{
    struct sockaddr_in four = at("127.0.0.1", 8080);
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = htons(8081),
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int server = tcp_socket(w), error, fd = ask(w, FEED_DIAL, 8080, &error);
    char c;

    CHECK(fd < 0 && error == ECONNREFUSED, "nobody listens: %s", strerror(error));
    CHECK(bind(server, (struct sockaddr *)&four, sizeof four) == 0 && listen(server, 4) == 0, "%m");
    fd = ask(w, FEED_DIAL, 8080, &error);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK), "%s", strerror(error));
    CHECK(readable(server), "nothing to accept");
    AUTOCLOSE int inside = accept(server, NULL, NULL);
    CHECK(inside >= 0 && send(inside, "x", 1, 0) == 1 && readable(fd) && recv(fd, &c, 1, 0) == 1,
          "%m");
    close(fd);
    if (bind(w->six, (struct sockaddr *)&six, sizeof six) < 0)
        return; /* a kernel without IPv6 */
    CHECK(listen(w->six, 4) == 0, "%m");
    fd = ask(w, FEED_DIAL, 8081, &error);
    CHECK(fd >= 0 && readable(w->six), "server on ::1: %s", strerror(error));
    close(fd);
}

static void check_listen(struct world *w)
{
    int error, packet = item(w, FEED_PACKET, 0);

    check_refused(w, "203.0.113.5", 8443);
    check_seen(packet, IPPROTO_TCP, "203.0.113.5", 8443);
    int fd = ask(w, FEED_LISTEN, 8443, &error);
    CHECK(fd >= 0, "%s", strerror(error));
    const struct feed_item more = { .kind = FEED_TCP, .port = 8443 };
    CHECK(listen_refused_filter(packet, &more, 1) == 0, "as the gateway does: %m");
    check_arrives(w, fd, "203.0.113.6", 8443);
    check_refused(w, "203.0.113.7", 8444);
    check_seen(packet, IPPROTO_TCP, "203.0.113.7", 8444); /* and not 8443 before it */
    CHECK(ask(w, FEED_LISTEN, 8443, &error) < 0 && error == EADDRINUSE, "twice: %d", error);
    close(fd);
    fd = ask(w, FEED_LISTEN, 8443, &error);
    CHECK(fd >= 0, "closed and opened again: %s", strerror(error));
    close(fd);
}

/* A gateway that died: refused at once; the next one gets listeners again, the added one too. */
static void check_next_gateway(struct world *w)
{
    drop_hello(w);
    check_refused(w, "203.0.113.5", 443);
    if (!get_hello(w))
        return;
    check_arrives(w, item(w, FEED_TCP, 443), "203.0.113.5", 443);
    check_arrives(w, item(w, FEED_TCP, 8443), "203.0.113.5", 8443);
    check_refused(w, "203.0.113.8", 81);
    check_seen(item(w, FEED_PACKET, 0), IPPROTO_TCP, "203.0.113.8", 81);
}

/* Stdio, the feed, two namespaces: nothing else. */
static void check_small(struct world *w, int want)
{
    char path[64];
    int n = -2; /* "." and ".." */
    int error;

    CHECK(ask(w, FEED_DIAL, 1, &error) < 0, "nobody listens there"); /* it is done with the hello */
    snprintf(path, sizeof path, "/proc/%d/fd", (int)w->pid);
    DIR *d = opendir(path);
    if (!d) { /* not even this program's user may look */
        CHECK(geteuid() != 0 && errno == EACCES, "%s: %m", path);
        return;
    }
    CHECK(geteuid() == 0, "%s can be read", path);
    while (readdir(d))
        n++;
    CHECK(n == want, "%d descriptors, want %d", n, want);
    closedir(d);
}

static void test_limited(void)
{
    uint16_t ports[] = { 80, 443 };
    struct net_policy policy = { .mode = NET_LIMITED, .ports = ports, .n_ports = 2 };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(443) };
    struct world w = start(&policy);

    if (!get_hello(&w))
        return;
    CHECK(w.n_fd == 5, "%zu sockets", w.n_fd);
    check_small(&w, 6);
    check_arrives(&w, item(&w, FEED_TCP, 443), "203.0.113.5", 443);
    check_arrives(&w, item(&w, FEED_TCP, 80), "10.1.2.3", 80);
    check_refused(&w, "203.0.113.5", 444);
    check_seen(item(&w, FEED_PACKET, 0), IPPROTO_TCP, "203.0.113.5", 444);
    check_dns(&w);
    check_udp_refused(&w);
    inet_pton(AF_INET6, "2001:db8::5", &six.sin6_addr);
    CHECK(connect(w.six, (struct sockaddr *)&six, sizeof six) < 0 &&
              (errno == ENETUNREACH || errno == EAFNOSUPPORT),
          "IPv6: %m");
    check_dial(&w);
    check_listen(&w);
    check_next_gateway(&w);
    stop(&w);
}

/* What was in time before the gateway asked waits for it. */
static void test_early(void)
{
    struct net_policy policy = { .mode = NET_ALLOWLIST };
    struct world w = start(&policy);
    int error = connect_to(tcp_socket(&w), "203.0.113.5", 443);

    CHECK(error == 0, "%s", strerror(error));
    CHECK(ask(&w, FEED_LISTEN, 8443, &error) < 0 && error == EINVAL, "too early: %d", error);
    if (get_hello(&w))
        CHECK(readable(item(&w, FEED_TCP, 443)), "nothing to accept");
    stop(&w);
}

static void put_checksum(struct iphdr *ip)
{
    uint16_t word[sizeof *ip / 2];
    uint32_t sum = 0;

    memcpy(word, ip, sizeof *ip);
    for (size_t i = 0; i < ARRAY_LEN(word); i++)
        sum += word[i];
    sum = (sum & 0xffff) + (sum >> 16);
    ip->check = (uint16_t) ~(sum + (sum >> 16));
}

/* Sends an answer from `from` to the sandbox's `to`, as the gateway does. */
static void raw_answer(int raw, const struct sockaddr_in *from, const struct sockaddr_in *to)
{
    struct {
        struct iphdr ip;
        struct udphdr udp;
        char data[6];
    } p = { .ip = { .version = 4,
                    .ihl = 5,
                    .ttl = 64,
                    .protocol = IPPROTO_UDP,
                    .tot_len = htons(34),
                    .saddr = from->sin_addr.s_addr,
                    .daddr = to->sin_addr.s_addr },
            .udp = { .source = from->sin_port, .dest = to->sin_port, .len = htons(14) },
            .data = "answer" };

    put_checksum(&p.ip);
    CHECK(sendto(raw, &p, 34, 0, (struct sockaddr *)to, sizeof *to) == 34, "raw: %m");
}

static void check_full_udp(struct world *w)
{
    struct sockaddr_in from = { 0 }, orig = { 0 };
    union {
        char buf[CMSG_SPACE(sizeof orig)];
        struct cmsghdr align;
    } u;
    char text[16];
    struct iovec iov = { .iov_base = text, .iov_len = sizeof text };
    struct msghdr m = { .msg_name = &from,
                        .msg_namelen = sizeof from,
                        .msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = u.buf,
                        .msg_controllen = sizeof u.buf };
    int in = udp_socket(w), all = item(w, FEED_TPROXY_UDP, 0);

    CHECK(connect_to(in, "203.0.113.9", 4567) == 0 && send(in, "ask", 3, 0) == 3, "%m");
    CHECK(readable(all) && recvmsg(all, &m, 0) == 3, "no datagram: %m");
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == IP_ORIGDSTADDR, "no IP_ORIGDSTADDR");
    if (!c)
        return;
    memcpy(&orig, CMSG_DATA(c), sizeof orig);
    CHECK(same(&orig, "203.0.113.9", 4567), "meant for %s:%u", inet_ntoa(orig.sin_addr),
          ntohs(orig.sin_port));
    raw_answer(item(w, FEED_RAW, 0), &orig, &from);
    /* connected: only an answer from exactly there arrives */
    CHECK(readable(in) && recv(in, text, sizeof text, 0) == 6, "no answer");
}

static void test_full(void)
{
    struct net_policy policy = { .mode = NET_FULL };
    struct world w = start(&policy);
    int error;

    if (!get_hello(&w))
        return;
    check_small(&w, 6);
    check_arrives(&w, item(&w, FEED_TPROXY_TCP, 0), "203.0.113.5", 443);
    check_arrives(&w, item(&w, FEED_TPROXY_TCP, 0), "203.0.113.5", 22);
    check_arrives(&w, item(&w, FEED_TPROXY_TCP, 0), "10.9.8.7", 65535);
    check_dns(&w);
    check_full_udp(&w);
    check_dial(&w);
    CHECK(ask(&w, FEED_LISTEN, 8443, &error) < 0 && error == EOPNOTSUPP, "%d", error);
    drop_hello(&w);
    check_refused(&w, "203.0.113.5", 443);
    if (get_hello(&w))
        check_arrives(&w, item(&w, FEED_TPROXY_TCP, 0), "203.0.113.5", 25);
    stop(&w);
}

/* No network but published ports: nothing to listen on, but a way in. */
static void test_none(void)
{
    struct net_policy policy = { .mode = NET_NONE };
    struct world w = start(&policy);
    int error = connect_to(tcp_socket(&w), "203.0.113.5", 443);

    CHECK(error == ENETUNREACH, "%s", strerror(error));
    CHECK(get_hello(&w) && w.n_fd == 0, "%zu sockets", w.n_fd);
    check_small(&w, 5);
    check_dial(&w);
    CHECK(ask(&w, FEED_LISTEN, 443, &error) < 0 && error == EOPNOTSUPP, "%d", error);
    stop(&w);
}

/* Only one namespace may be made: an error that says so, and no descriptor is left. */
static void test_no_room(void)
{
    struct net_policy policy = { .mode = NET_LIMITED };
    struct agent_req req = { .policy = &policy, .feed = -1 };
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        struct agent a;
        struct err *e = NULL;
        int before = dup(0), rc;

        if (become_root() < 0)
            _exit(2);
        write_file("/proc/sys/user/max_net_namespaces", "1");
        rc = agent_setup(&req, &a, &e);
        AUTOFREE char *text = err_text(e);
        CHECK(rc == -ERR_LIMIT && strstr(text, "user.max_net_namespaces"), "%d: %s", rc, text);
        close(before);
        CHECK(dup(0) == before, "a descriptor is left");
        _exit(check_failed);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "%x", status);
}

int main(void)
{
    if (!possible()) {
        puts("no user namespaces here");
        return 77;
    }
    test_limited();
    test_early();
    test_full();
    test_none();
    test_no_room();
    return check_done();
}
