/* The sandbox's network from both ends: a real agent in namespaces of its own, this program as the gateway
 * that asks it, and as the sandbox, by sockets that were made inside. As root and as an ordinary user. */
#include "runtime/network/agent.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "tests/unit/check.h"

enum { TCP = 16, UDP = 4, WAIT_MS = 20000, AT_ONCE_MS = 900 };

/* One sandbox: its agent, what the agent handed out, and fresh sockets that are inside. */
struct world {
    pid_t pid;
    int feed;
    int tcp[TCP], udp[UDP], six;
    size_t n_tcp, n_udp;
    struct feed_hello hello;
    int fd[FEED_MAX_FDS];
    size_t n_fd;
    uint32_t tag;
};

static void write_file(const char *path, const char *text)
{
    struct err *e = NULL;
    if (fs_write_at(AT_FDCWD, path, text, &e) < 0) {
        fprintf(stderr, "%s: %s\n", path, e->msg);
        _exit(2);
    }
}

static int become_root(void)
{
    char map[64];
    unsigned uid = getuid(), gid = getgid();

    if (unshare(CLONE_NEWUSER) < 0)
        return -1;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    write_file("/proc/self/gid_map", map);
    return 0;
}

static bool possible(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNET) < 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* The other process: set up, hand over sockets that are inside, serve. */
static _Noreturn void holder(const struct net_policy *policy, int feed, int other)
{
    struct agent_req req = { .policy = policy, .feed = feed };
    int fds[TCP + UDP + 1], n = 0;
    struct agent a;
    struct err *e = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(other);
    if (become_root() < 0 || agent_setup(&req, &a, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        fprintf(stderr, "agent_setup: %s\n", text);
        _exit(2);
    }
    for (; n < TCP; n++)
        fds[n] = socket(AF_INET, SOCK_STREAM, 0);
    for (; n < TCP + UDP; n++)
        fds[n] = socket(AF_INET, SOCK_DGRAM, 0);
    fds[n++] = socket(AF_INET6, SOCK_STREAM, 0);
    if (feed_send(feed, "x", 1, fds, (size_t)n, 0) < 0)
        _exit(2);
    agent_serve(&a);
}

static struct world start(const struct net_policy *policy)
{
    struct world w = { .feed = -1 };
    int pair[2], fds[TCP + UDP + 1];
    size_t n = 0;
    char c;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || (w.pid = fork()) < 0)
        exit(1);
    if (w.pid == 0)
        holder(policy, pair[1], pair[0]);
    close(pair[1]);
    w.feed = pair[0];
    if (feed_recv(w.feed, &c, 1, fds, ARRAY_LEN(fds), &n, 0) != 1 || n != ARRAY_LEN(fds)) {
        fprintf(stderr, "the agent did not come up\n");
        exit(1);
    }
    memcpy(w.tcp, fds, sizeof w.tcp);
    memcpy(w.udp, fds + TCP, sizeof w.udp);
    w.six = fds[TCP + UDP];
    return w;
}

static int tcp_socket(struct world *w)
{
    if (w->n_tcp == TCP)
        abort();
    return w->tcp[w->n_tcp++];
}

static int udp_socket(struct world *w)
{
    if (w->n_udp == UDP)
        abort();
    return w->udp[w->n_udp++];
}

static void drop_hello(struct world *w)
{
    for (size_t i = 0; i < w->n_fd; i++)
        close(w->fd[i]);
    w->n_fd = 0;
}

static void stop(struct world *w)
{
    int status = 0;

    drop_hello(w);
    close(w->feed);
    for (size_t i = 0; i < TCP; i++)
        close(w->tcp[i]);
    for (size_t i = 0; i < UDP; i++)
        close(w->udp[i]);
    close(w->six);
    CHECK(waitpid(w->pid, &status, 0) == w->pid && status == 0, "agent's end: %x", status);
}

static bool readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, WAIT_MS) == 1;
}

static bool get_hello(struct world *w)
{
    union feed_packet p;
    ssize_t n;

    CHECK(feed_ask(w->feed, FEED_HELLO, ++w->tag, 0) == 0, "%m");
    CHECK(readable(w->feed), "no hello");
    n = feed_recv(w->feed, &p, sizeof p, w->fd, FEED_MAX_FDS, &w->n_fd, 0);
    CHECK(n > 0 && feed_is_hello(&p, (size_t)n, w->n_fd), "%zd bytes, %zu sockets", n, w->n_fd);
    if (n <= 0 || !feed_is_hello(&p, (size_t)n, w->n_fd))
        return false;
    CHECK(p.hello.tag == w->tag, "tag %u", p.hello.tag);
    memcpy(&w->hello, &p.hello, sizeof w->hello);
    for (size_t i = 0; i < w->n_fd; i++)
        CHECK((fcntl(w->fd[i], F_GETFL) & O_NONBLOCK) && fcntl(w->fd[i], F_GETFD) == FD_CLOEXEC,
              "socket %zu", i);
    return true;
}

/* The socket of a kind (and port, if not 0) from the hello. */
static int item(const struct world *w, enum feed_kind kind, uint16_t port)
{
    for (size_t i = 0; i < w->n_fd; i++)
        if (w->hello.v[i].kind == kind && (!port || w->hello.v[i].port == port))
            return w->fd[i];
    CHECK(false, "no socket of kind %d, port %u", kind, port);
    return -1;
}

/* An answer to LISTEN or DIAL: a socket, or -1 and the error. */
static int ask(struct world *w, enum feed_op op, uint16_t port, int *ret_error)
{
    union feed_packet p;
    int fd = -1;
    size_t n_fds = 0;
    ssize_t n;

    CHECK(feed_ask(w->feed, op, ++w->tag, port) == 0 && readable(w->feed), "%m");
    n = feed_recv(w->feed, &p, sizeof p, &fd, 1, &n_fds, 0);
    CHECK(n > 0 && feed_is_answer(&p, (size_t)n, n_fds) && p.answer.tag == w->tag &&
              p.answer.op == op,
          "%zd bytes", n);
    *ret_error = n > 0 ? p.answer.error : -1;
    return n_fds ? fd : -1;
}

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
    check_arrives(w, fd, "203.0.113.6", 8443);
    check_refused(w, "203.0.113.7", 8444);
    check_seen(packet, IPPROTO_TCP, "203.0.113.7", 8444); /* and not 8443 before it */
    CHECK(ask(w, FEED_LISTEN, 8443, &error) < 0 && error == EADDRINUSE, "twice: %d", error);
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

/* Stdio, the feed, two namespaces, the socket that sees refused packets: nothing else. */
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
    check_small(&w, 7);
    check_arrives(&w, item(&w, FEED_TCP, 443), "203.0.113.5", 443);
    check_arrives(&w, item(&w, FEED_TCP, 80), "10.1.2.3", 80);
    check_refused(&w, "203.0.113.5", 444);
    check_seen(item(&w, FEED_PACKET, 0), IPPROTO_TCP, "203.0.113.5", 444);
    check_dns(&w);
    check_udp_refused(&w);
    inet_pton(AF_INET6, "2001:db8::5", &six.sin6_addr);
    CHECK(connect(w.six, (struct sockaddr *)&six, sizeof six) < 0 &&
              (errno == ENETUNREACH || errno == EBADF),
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
    return check_done();
}
