/* tests/unit/net_outside.h - a small world for the gateway's own code: this process becomes a "host" in
 * namespaces of its own, with one cable to an outside where every IPv4 address answers. A child there
 * serves DNS (the names of a table), echoes datagrams, and has TCP on port 80 and an HTTP proxy on 3128.
 */
#pragma once
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/gateway/gw.h"
#include "runtime/gateway/hostaddr.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/proxy.h"
#include "runtime/gateway/resolve.h"
#include "runtime/network/nl.h"
#include "runtime/network/veth.h"
#include "tests/unit/check.h"

#define OUTSIDE_DNS "203.0.113.53"
#define OUTSIDE_SIX "2001:db8::2"

/* Up to two addresses each; of a type that is not there: no data. ttl of all: 30 s. */
static const struct outside_name {
    const char *name, *a[2], *aaaa;
} outside_names[] = {
    { "ok.test", { "203.0.113.2" }, NULL },
    { "six.test", { NULL }, OUTSIDE_SIX },
    { "priv.test", { "10.9.9.9" }, NULL },
    { "both.test", { "10.9.9.9", "203.0.113.7" }, NULL },
    { "self.test", { "198.18.0.2" }, NULL }, /* the host itself */
    { "mine.test",
      { "203.0.113.200" },
      NULL }, /* also the host's, though it looks like another's */
    { "mapped.test", { NULL }, "::ffff:127.0.0.1" },
    { "deaf.test", { "203.0.113.99", "203.0.113.2" }, NULL }, /* the first never answers */
    { "way.test", { "203.0.113.128" }, NULL },                /* the proxy */
};

/* Shared with the child. */
static struct outside {
    int asked;      /* questions so far */
    char host[256]; /* what the proxy was asked last */
} * outside;
static pid_t outside_pid;

static inline int outside_answer(uint8_t *p, int n)
{
    char name[256] = "";
    int at = 12;
    size_t len = 0;
    while (at < n && p[at] && at + 1 + p[at] < n && len + p[at] + 2 < sizeof name) {
        len += snprintf(name + len, sizeof name - len, "%s%.*s", len ? "." : "", p[at], p + at + 1);
        at += 1 + p[at];
    }
    if (n < 17 || at + 5 > n || !strcmp(name, "slow.test"))
        return 0;
    int type = p[at + 1] << 8 | p[at + 2], answers = 0, known = 0;
    n = at + 5;
    p[2] |= 0x80;
    p[3] = 0x80;
    memset(p + 6, 0, 6);
    for (size_t i = 0; i < ARRAY_LEN(outside_names); i++) {
        const struct outside_name *w = &outside_names[i];
        if (strcmp(w->name, name))
            continue;
        known = 1;
        for (int k = 0; k < 2; k++) {
            const char *text = type == ns_t_a ? w->a[k] : type == ns_t_aaaa && !k ? w->aaaa : NULL;
            int size = type == ns_t_a ? 4 : 16;
            if (!text)
                continue;
            memcpy(p + n, (uint8_t[]){ 0xc0, 12, 0, type, 0, 1, 0, 0, 0, 30, 0, size }, 12);
            inet_pton(type == ns_t_a ? AF_INET : AF_INET6, text, p + n + 12);
            n += 12 + size;
            answers++;
        }
    }
    if (type == ns_t_txt) {
        memcpy(p + n, (uint8_t[]){ 0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 30, 0, 3, 2, 'h', 'i' }, 15);
        n += 15;
        answers = known = 1;
    }
    p[7] = answers;
    p[3] |= known ? 0 : ns_r_nxdomain;
    return n;
}

static inline int outside_socket(int type, const char *addr, int port)
{
    struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET6, addr, &sa.sin6_addr);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (fd < 0 || bind(fd, (void *)&sa, sizeof sa) < 0 ||
        (type == SOCK_STREAM && listen(fd, 64) < 0)) {
        perror("outside");
        _exit(1);
    }
    return fd;
}

/* The answer of the proxy comes in pieces, the last one with the first bytes of the stream. */
static inline void outside_proxy(int fd)
{
    char head[4096] = "";
    size_t n = 0;
    while (n + 1 < sizeof head && !strstr(head, "\r\n\r\n")) {
        ssize_t r = recv(fd, head + n, sizeof head - 1 - n, 0);
        if (r <= 0)
            return;
        n += r;
    }
    snprintf(outside->host, sizeof outside->host, "%.*s", (int)sizeof outside->host - 1, head);
    const char *parts[] = { "HTTP/1.1 200 O", "K\r\nX: y\r", "\n\r\nproxied", NULL };
    if (strstr(head, "no.test"))
        memcpy(parts, (const char *[]){ "HTTP/1.1 403 No\r\n\r\n", NULL }, 2 * sizeof *parts);
    for (int i = 0; parts[i]; i++) {
        usleep(2000);
        send(fd, parts[i], strlen(parts[i]), MSG_NOSIGNAL);
    }
}

static inline void outside_serve(int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* One address each: an answer must come from where the question went. */
    struct pollfd p[] = { { outside_socket(SOCK_DGRAM, "::ffff:" OUTSIDE_DNS, 53), POLLIN, 0 },
                          { outside_socket(SOCK_DGRAM, "::ffff:203.0.113.2", 7), POLLIN, 0 },
                          { outside_socket(SOCK_STREAM, "::", 80), POLLIN, 0 },
                          { outside_socket(SOCK_STREAM, "::", 3128), POLLIN, 0 } };
    if (write(ready, "r", 1) != 1)
        _exit(1);
    while (poll(p, ARRAY_LEN(p), -1) > 0) {
        uint8_t buf[4096];
        struct sockaddr_storage sa;
        socklen_t len = sizeof sa;
        for (int i = 0; i < 2; i++) {
            if (!p[i].revents)
                continue;
            int n = recvfrom(p[i].fd, buf, 2048, 0, (void *)&sa, &len);
            outside->asked += !i;
            if (!i)
                n = outside_answer(buf, n);
            if (n > 0)
                sendto(p[i].fd, buf, n, 0, (void *)&sa, len);
        }
        for (int i = 2; i < 4; i++) {
            int fd = p[i].revents ? accept(p[i].fd, NULL, NULL) : -1;
            if (fd < 0)
                continue;
            if (i == 3)
                outside_proxy(fd);
            else
                send(fd, "straight", 8, MSG_NOSIGNAL);
            close(fd);
        }
    }
    _exit(1);
}

static inline int own_file(const char *path, const char *text)
{
    char own[] = "/tmp/petri-unit-XXXXXX";
    int fd = mkstemp(own), rc = -1;
    if (fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0 && fchmod(fd, 0644) == 0)
        rc = mount(own, path, NULL, MS_BIND, NULL);
    if (fd >= 0)
        close(fd);
    unlink(own);
    return rc;
}

/* What veth_make() leaves out: IPv6, an address nobody answers, another address of the host's. */
static inline int outside_extra(int nl, int index, const char *six, bool host)
{
    struct nl_batch b = { .len = 0 };
    const char *what;
    uint8_t addr[16];
    struct ifaddrmsg a = {
        .ifa_family = AF_INET6, .ifa_prefixlen = 64, .ifa_flags = IFA_F_NODAD, .ifa_index = index
    };
    nl_msg(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK, &a, sizeof a, "address");
    inet_pton(AF_INET6, six, addr);
    nl_attr(&b, IFA_LOCAL, addr, 16);
    nl_attr(&b, IFA_ADDRESS, addr, 16);
    if (host) {
        struct ndmsg n = { .ndm_family = AF_INET,
                           .ndm_ifindex = index,
                           .ndm_state = NUD_PERMANENT };
        struct rtmsg r = { .rtm_family = AF_INET,
                           .rtm_dst_len = 32,
                           .rtm_table = RT_TABLE_MAIN,
                           .rtm_protocol = RTPROT_STATIC,
                           .rtm_scope = RT_SCOPE_LINK,
                           .rtm_type = RTN_UNICAST };
        nl_msg(&b, RTM_NEWNEIGH, NLM_F_CREATE, &n, sizeof n, "neighbour");
        nl_be32(&b, NDA_DST, 0xcb007163); /* 203.0.113.99 */
        nl_attr(&b, NDA_LLADDR, (uint8_t[]){ 2, 0, 0, 0, 0, 99 }, 6);
        nl_msg(&b, RTM_NEWROUTE, NLM_F_CREATE, &r, sizeof r, "route");
        nl_be32(&b, RTA_DST, 0xcb007163);
        nl_u32(&b, RTA_OIF, index);
        a = (struct ifaddrmsg){ .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = index };
        nl_msg(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK, &a, sizeof a, "address");
        nl_be32(&b, IFA_LOCAL, 0xcb0071c8); /* 203.0.113.200 */
    }
    return nl_send(nl, &b, &what);
}

static inline int own_user(void)
{
    char uid[32], gid[32];
    snprintf(uid, sizeof uid, "0 %d 1", getuid());
    snprintf(gid, sizeof gid, "0 %d 1", getgid());
    if (!getuid())
        return 0;
    return unshare(CLONE_NEWUSER) < 0 ||
                   fs_write_at(AT_FDCWD, "/proc/self/setgroups", "deny", NULL) < 0 ||
                   fs_write_at(AT_FDCWD, "/proc/self/uid_map", uid, NULL) < 0 ||
                   fs_write_at(AT_FDCWD, "/proc/self/gid_map", gid, NULL) < 0
               ? -1
               : 0;
}

/* -1: this machine has no namespaces for us. */
static inline int outside_make(void)
{
    int ready[2];
    outside =
        mmap(NULL, sizeof *outside, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (own_user() < 0 || unshare(CLONE_NEWNS | CLONE_NEWNET) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || pipe2(ready, O_CLOEXEC) < 0)
        return -1;
    AUTOCLOSE int nl_out = nl_open(NETLINK_ROUTE);
    AUTOCLOSE int ns_out = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (unshare(CLONE_NEWNET) < 0)
        return -1;
    AUTOCLOSE int nl_host = nl_open(NETLINK_ROUTE);
    AUTOCLOSE int ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    struct err *e = NULL;
    if (veth_make(nl_host, nl_out, ns, &e) < 0 || veth_wait(nl_out, &e) < 0 ||
        outside_extra(nl_out, VETH_INDEX_GATEWAY, OUTSIDE_SIX, false) < 0 ||
        outside_extra(nl_host, VETH_INDEX_SANDBOX, "2001:db8::1", true) < 0 ||
        own_file("/etc/resolv.conf", "nameserver " OUTSIDE_DNS "\n") < 0 ||
        own_file("/etc/hosts", "127.0.0.1 localhost\n203.0.113.5 hosts.test\n") < 0) {
        fprintf(stderr, "outside: %s: %s\n", e ? e->msg : "", strerror(errno));
        return -1;
    }
    outside_pid = fork();
    if (!outside_pid) {
        if (setns(ns_out, CLONE_NEWNET) == 0)
            outside_serve(ready[1]);
        _exit(1);
    }
    char c;
    close(ready[1]);
    ssize_t n = read(ready[0], &c, 1);
    close(ready[0]);
    return n == 1 ? 0 : -1;
}

/* --- a gateway without walls ----------------------------------------------------------------- */

static struct gw gw;

static inline void until(const bool *done)
{
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + 20000;
    while (!*done && clock_ms(CLOCK_MONOTONIC) < end)
        if (loop_run(gw.loop, true, NULL) < 0)
            break;
    CHECK(*done, "nothing happened for too long");
}

static inline void on_tick(struct timer *t)
{
}

/* One round of the loop, of at most `ms`. */
static inline void tick(unsigned ms)
{
    struct timer t = { .on = on_tick };
    loop_arm(gw.loop, &t, ms);
    loop_run(gw.loop, true, NULL);
    loop_disarm(gw.loop, &t);
}

static inline void policy(enum net_mode mode, const char *allow, const char *deny)
{
    net_policy_free_p(&gw.policy);
    gw.policy = (struct net_policy){ .mode = mode };
    const char *text[] = { allow, deny };
    struct net_rules *lists[] = { &gw.policy.allow, &gw.policy.deny };
    for (int i = 0; i < 2; i++) {
        struct net_rule r;
        if (text[i] && !net_rule_parse("--allow-domain", text[i], &r, NULL))
            net_rules_add(lists[i], &r);
    }
}

static inline void proxy_env(const char *all, const char *no)
{
    const char *vars[] = { "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY" };
    for (size_t i = 0; i < ARRAY_LEN(vars); i++)
        unsetenv(vars[i]);
    setenv("all_proxy", all ? all : "", 1);
    setenv("no_proxy", no ? no : "", 1);
    proxy_free(&gw);
    CHECK(proxy_new(&gw, NULL) == 0, "proxy");
}

/* 0, or what main() returns. */
static inline int outside_begin(void)
{
    struct err *e = NULL;
    signal(SIGPIPE, SIG_IGN);
    alarm(110);
    if (outside_make() < 0) {
        fprintf(stderr, "no namespaces here: skipped\n");
        return 77;
    }
    proxy_env(NULL, NULL);
    if (loop_new(&gw.loop, &e) < 0 || limits_new(&gw, &e) < 0 || resolve_new(&gw, &e) < 0 ||
        hostaddr_new(&gw, &e) < 0) {
        fprintf(stderr, "%s\n", e->msg);
        return 1;
    }
    return 0;
}

static inline int outside_end(void)
{
    resolve_free(&gw);
    proxy_free(&gw);
    hostaddr_free(&gw);
    limits_free(&gw);
    net_policy_free_p(&gw.policy);
    loop_free(gw.loop);
    kill(outside_pid, SIGKILL);
    waitpid(outside_pid, NULL, 0);
    return check_done();
}
