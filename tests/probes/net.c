/* net: a client that knows no proxy variable, no resolver library and no TLS library.
 *   net get ADDR PORT HOST...      requests on one kept connection, one for each HOST
 *   net dns SERVER NAME TYPE [tcp] one question: RCODE ADDR...
 *   net udp ADDR PORT TEXT         one datagram and its answer
 *   net hello ADDR PORT NAME|- [ech|split|records]  a TLS hello: what comes back
 *   net serve ADDR PORT TEXT       answers every connection with TEXT until it is killed
 * ADDR may be a name: the first nameserver of /etc/resolv.conf is asked for it.
 * What could not be had: ERR and the error's name. Every answer ends with the milliseconds it took.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, UDP_MS = 3000 };

static double t0;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int say(const char *what)
{
    printf("%s ms=%.0f\n", what, now() - t0);
    fflush(stdout);
    return 0;
}

static int err(void)
{
    char text[64];
    snprintf(text, sizeof text, "ERR %s", strerrorname_np(errno));
    say(text);
    return 1;
}

static socklen_t address(const char *addr, const char *port, struct sockaddr_storage *ret)
{
    struct sockaddr_in *in = (struct sockaddr_in *)ret;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

    memset(ret, 0, sizeof *ret);
    if (inet_pton(AF_INET, addr, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)atoi(port));
        return sizeof *in;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons((uint16_t)atoi(port));
    inet_pton(AF_INET6, addr, &in6->sin6_addr);
    return sizeof *in6;
}

static int dial(const char *addr, const char *port, int type)
{
    struct sockaddr_storage to;
    socklen_t len = address(addr, port, &to);
    int fd = socket(to.ss_family, type | SOCK_CLOEXEC, 0);

    t0 = now();
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, len) < 0) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

/* What comes within the time: bytes, 0 at the end, -1. */
static ssize_t get(int fd, char *buf, size_t size, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int n = poll(&p, 1, ms);
    if (n == 0)
        errno = ETIMEDOUT;
    return n <= 0 ? -1 : recv(fd, buf, size, 0);
}

/* One answer with a Content-Length; what stands in its body. */
static int answer(int fd)
{
    char buf[65536];
    size_t len = 0;

    for (;;) {
        ssize_t n = get(fd, buf + len, sizeof buf - 1 - len, PATIENCE_MS);
        if (n < 0)
            return err();
        if (n == 0) {
            say("CLOSED");
            return 1;
        }
        len += (size_t)n;
        buf[len] = 0;
        char *body = strstr(buf, "\r\n\r\n"), *size = strcasestr(buf, "content-length:");
        if (!body)
            continue;
        *strchr(buf, '\r') = 0;
        if (size && len >= (size_t)(body + 4 - buf) + strtoul(size + 15, NULL, 10)) {
            body[4 + strcspn(body + 4, "\n")] = 0;
            printf("%s ", buf + 9);
            say(body + 4);
            return 0;
        }
    }
}

static int requests(int fd, char **hosts)
{
    char ask[600];
    int failed = 0;

    for (; *hosts && !failed; hosts++) {
        t0 = now();
        int n = snprintf(ask, sizeof ask, "GET /%s HTTP/1.1\r\nHost: %s\r\n\r\n", *hosts, *hosts);
        if (send(fd, ask, (size_t)n, MSG_NOSIGNAL) != n)
            return err();
        failed = answer(fd);
    }
    return failed;
}

/* --- names ---------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    int type;
} TYPES[] = { { "A", 1 },     { "NS", 2 },     { "CNAME", 5 }, { "SOA", 6 },  { "PTR", 12 },
              { "MX", 15 },   { "TXT", 16 },   { "AAAA", 28 }, { "SRV", 33 }, { "NULL", 10 },
              { "SVCB", 64 }, { "HTTPS", 65 }, { "ANY", 255 } };

static size_t question(unsigned char *q, const char *name, const char *type)
{
    size_t n = 12;
    int number = atoi(type);

    memcpy(q, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    while (*name) {
        size_t l = strcspn(name, ".");
        q[n++] = (unsigned char)l;
        memcpy(q + n, name, l);
        n += l;
        name += l + (name[l] == '.');
    }
    q[n++] = 0;
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].word, type) == 0)
            number = TYPES[i].type;
    q[n++] = (unsigned char)(number >> 8);
    q[n++] = (unsigned char)number;
    q[n++] = 0;
    q[n++] = 1;
    return n;
}

/* The rcode and the addresses of an answer, as text. */
static int shown(const unsigned char *a, ssize_t len, char *ret, size_t size)
{
    static const char *const rcodes[] = { "NOERROR",  "FORMERR", "SERVFAIL",
                                          "NXDOMAIN", "NOTIMP",  "REFUSED" };
    ssize_t at = 12;
    int n = len < 12 ? 0 : a[6] << 8 | a[7];

    if (len < 12 || a[0] != 0x12 || a[1] != 0x34)
        return snprintf(ret, size, "GARBAGE");
    int used = (a[3] & 15) < 6 ? snprintf(ret, size, "%s", rcodes[a[3] & 15])
                               : snprintf(ret, size, "RCODE%d", a[3] & 15);
    if (a[2] & 2)
        used += snprintf(ret + used, size - (size_t)used, " TRUNCATED");
    while (at < len && a[at])
        at += a[at] + 1;
    for (at += 5; n > 0 && at + 12 <= len; n--) {
        while (at < len && a[at] && a[at] < 192)
            at += a[at] + 1;
        at += a[at] ? 2 : 1;
        char text[INET6_ADDRSTRLEN] = "?";
        int type = a[at] << 8 | a[at + 1], dlen = a[at + 8] << 8 | a[at + 9];
        if ((type == 1 && dlen == 4) || (type == 28 && dlen == 16))
            inet_ntop(type == 1 ? AF_INET : AF_INET6, a + at + 10, text, sizeof text);
        used += snprintf(ret + used, size - (size_t)used, " %s", text);
        at += 10 + dlen;
    }
    return used;
}

static int ask(const char *server, const char *name, const char *type, int tcp, char *ret,
               size_t size)
{
    unsigned char q[600], a[4096], *start = q + 2;
    size_t n = question(start, name, type), have = 0;
    int fd = dial(server, "53", tcp ? SOCK_STREAM : SOCK_DGRAM);

    if (fd < 0)
        return -1;
    if (tcp) {
        start = q;
        q[0] = (unsigned char)(n >> 8);
        q[1] = (unsigned char)n;
        n += 2;
    }
    if (send(fd, start, n, MSG_NOSIGNAL) != (ssize_t)n)
        return -1;
    for (;;) {
        ssize_t l = get(fd, (char *)a + have, sizeof a - have, UDP_MS);
        if (l < 0)
            return -1;
        have += (size_t)l;
        if (l == 0 || !tcp || (have >= 2 && have >= 2u + (a[0] << 8 | a[1])))
            break;
    }
    close(fd);
    if (tcp && have < 2)
        return snprintf(ret, size, "CLOSED");
    shown(tcp ? a + 2 : a, (ssize_t)have - (tcp ? 2 : 0), ret, size);
    return 0;
}

static int do_dns(char **argv)
{
    char text[1000];
    if (ask(argv[0], argv[1], argv[2], argv[3] != NULL, text, sizeof text) < 0)
        return err();
    return say(text);
}

/* An address as it is, of a name the first one that the sandbox's resolver tells; NULL: said why not. */
static const char *where(const char *addr)
{
    static char text[1000];
    char line[256], server[64] = "", *found;
    unsigned char any[16];
    FILE *f;

    if (inet_pton(AF_INET, addr, any) == 1 || inet_pton(AF_INET6, addr, any) == 1)
        return addr;
    f = fopen("/etc/resolv.conf", "r");
    while (f && fgets(line, sizeof line, f) && !*server)
        sscanf(line, "nameserver %63s", server);
    if (ask(server, addr, "A", 0, text, sizeof text) < 0)
        return err(), NULL;
    found = strchr(text, ' ');
    if (!found)
        return say(text), NULL;
    found[1 + strcspn(found + 1, " ")] = 0;
    return found + 1;
}

static int do_get(char **argv)
{
    const char *addr = where(argv[0]);
    int fd = addr ? dial(addr, argv[1], SOCK_STREAM) : -1;
    return !addr ? 1 : fd < 0 ? err() : requests(fd, argv + 2);
}

static int do_udp(char **argv)
{
    char buf[2000];
    const char *addr = where(argv[0]);
    int fd = addr ? dial(addr, argv[1], SOCK_DGRAM) : -1;

    if (!addr)
        return 1;
    if (fd < 0 || send(fd, argv[2], strlen(argv[2]), 0) < 0)
        return err();
    ssize_t n = get(fd, buf, sizeof buf - 1, UDP_MS);
    if (n < 0)
        return err();
    buf[n] = 0;
    return say(buf);
}

/* --- TLS ------------------------------------------------------------------------------------ */

static size_t put16(unsigned char *p, size_t v)
{
    p[0] = (unsigned char)(v >> 8);
    p[1] = (unsigned char)v;
    return 2;
}

static size_t extension(unsigned char *p, unsigned type, const void *data, size_t len)
{
    put16(p, type);
    put16(p + 2, len);
    memcpy(p + 4, data, len);
    return len + 4;
}

/* A TLS 1.2 hello, which every server answers; with an extension that stands for a hidden name on demand. */
static size_t hello(unsigned char *b, const char *name, int ech)
{
    unsigned char sni[300], *p = b + 5 + 4;
    size_t len = strlen(name), n;

    p += put16(p, 0x0303);
    memset(p, 7, 32);
    p += 32;
    *p++ = 0;
    p += put16(p, 4);
    p += put16(p, 0xc02b); /* ECDHE-ECDSA-AES128-GCM-SHA256, for the servers' key */
    p += put16(p, 0xc02f);
    *p++ = 1;
    *p++ = 0;
    unsigned char *ext = p;
    p += 2;
    p += extension(p, 10, "\0\4\0\x17\0\x1d", 6);
    p += extension(p, 11, "\1\0", 2);
    p += extension(p, 13, "\0\6\4\3\4\1\x8\4", 8);
    if (strcmp(name, "-") != 0) {
        n = put16(sni, len + 3);
        sni[n++] = 0;
        n += put16(sni + n, len);
        memcpy(sni + n, name, len);
        p += extension(p, 0, sni, n + len);
    }
    if (ech)
        p += extension(p, 0xfe0d, "\0\0\1\0\1\7\0\4abcd\0\4wxyz", 18);
    put16(ext, (size_t)(p - ext) - 2);
    n = (size_t)(p - b) - 9;
    b[0] = 0x16;
    put16(b + 1, 0x0301);
    put16(b + 3, n + 4);
    b[5] = 1;
    b[6] = 0;
    put16(b + 7, n);
    return n + 9;
}

/* The same hello in two records, cut within the name. */
static size_t in_records(unsigned char *b, size_t n)
{
    size_t first = n - 20 - 5;

    memmove(b + 5 + first + 5, b + 5 + first, 20);
    memcpy(b + 5 + first, b, 3);
    put16(b + 5 + first + 3, 20);
    put16(b + 3, first);
    return n + 5;
}

static int do_hello(char **argv)
{
    unsigned char b[1000];
    const char *how = argv[3] ? argv[3] : "";
    size_t n = hello(b, argv[2], strcmp(how, "ech") == 0), cut = strcmp(how, "split") ? n : 1;
    const char *addr = where(argv[0]);
    int fd = addr ? dial(addr, argv[1], SOCK_STREAM) : -1, one = 1;

    if (fd < 0)
        return addr ? err() : 1;
    if (strcmp(how, "records") == 0)
        cut = n = in_records(b, n);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (size_t at = 0; at < n; at += cut)
        if (send(fd, b + at, n - at < cut ? n - at : cut, MSG_NOSIGNAL) < 0)
            return err();
    ssize_t got = get(fd, (char *)b, sizeof b, PATIENCE_MS);
    if (got < 0)
        return err();
    return say(got == 0       ? "CLOSED"
               : b[0] == 0x16 ? "SERVERHELLO"
               : b[0] == 0x15 ? "ALERT"
                              : "OTHER");
}

static int do_serve(char **argv)
{
    struct sockaddr_storage at;
    socklen_t len = address(argv[0], argv[1], &at);
    int fd = socket(at.ss_family, SOCK_STREAM, 0), one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    t0 = now();
    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 128) < 0)
        return err();
    say("LISTENING");
    for (;;) {
        char buf[4096];
        int c = accept(fd, NULL, NULL);
        if (c < 0)
            return err();
        if (get(c, buf, sizeof buf, PATIENCE_MS) > 0)
            dprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s\n", strlen(argv[2]) + 1,
                    argv[2]);
        close(c);
    }
}

static const struct {
    const char *word;
    int args;
    int (*run)(char **argv);
} VERBS[] = { { "get", 3, do_get },
              { "dns", 3, do_dns },
              { "udp", 3, do_udp },
              { "hello", 3, do_hello },
              { "serve", 3, do_serve } };

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; argc > 1 && i < sizeof VERBS / sizeof *VERBS; i++)
        if (strcmp(VERBS[i].word, argv[1]) == 0 && argc - 2 >= VERBS[i].args)
            return VERBS[i].run(argv + 2);
    fputs("usage: see the head of net.c\n", stderr);
    return 2;
}
