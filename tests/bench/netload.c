/* netload - what the network bench sends and receives; HTTP, so that every policy lets it pass.
 *   netload serve ADDR PORT                 until it is killed; one process, all connections at once
 *   netload up|down ADDR PORT HOST BYTES    one stream; prints MB/s
 *   netload ping ADDR PORT HOST N           N times connect and a byte each way; prints the median, us
 *   netload crowd ADDR PORT HOST N BYTES    N connections at once; prints lost and Jain's index of their
 *                                           shares when half of it all is there
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 65536, BLOCK = 1 << 20, TURN = 1 << 18 };

static char block[BLOCK];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what)
{
    fprintf(stderr, "netload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void more_files(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

/* --- server ----------------------------------------------------------------------------------------- */

/* A connection reads a head, then `in` bytes, then sends `out` bytes; then the next head. */
struct peer {
    char head[512];
    size_t len;
    uint64_t in, out;
};
static struct peer *peers[MAX_FD];

/* A turn each: who has room for more does not get it before the others had theirs. */
static int reply(int fd, struct peer *p)
{
    ssize_t r = send(fd, block, p->out < TURN ? p->out : TURN, MSG_NOSIGNAL);
    if (r < 0)
        return errno == EAGAIN ? 0 : -1;
    p->out -= (size_t)r;
    return 0;
}

static int answer(int fd, struct peer *p, uint64_t body)
{
    char head[100];
    int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n",
                     (unsigned long long)body);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        return -1;
    p->out = body;
    return 0;
}

/* "POST /N" takes N bytes and answers one, "GET /N" answers N. */
static int take_head(int fd, struct peer *p)
{
    ssize_t r = recv(fd, p->head + p->len, sizeof p->head - 1 - p->len, 0);
    if (r <= 0)
        return r < 0 && errno == EAGAIN ? 0 : -1;
    p->len += (size_t)r;
    p->head[p->len] = 0;
    char *end = strstr(p->head, "\r\n\r\n"), *slash = strchr(p->head, '/');
    if (!end || !slash)
        return p->len < sizeof p->head - 1 ? 0 : -1;
    uint64_t n = strtoull(slash + 1, NULL, 10), have = p->len - (size_t)(end + 4 - p->head);
    p->len = 0;
    if (p->head[0] == 'G')
        return answer(fd, p, n);
    p->in = n - have;
    return p->in ? 0 : answer(fd, p, 1);
}

static int take(int fd, struct peer *p)
{
    static char sink[BLOCK];
    if (!p->in)
        return take_head(fd, p);
    ssize_t r = recv(fd, sink, sizeof sink, 0);
    if (r <= 0)
        return r < 0 && errno == EAGAIN ? 0 : -1;
    p->in -= (size_t)r;
    return p->in ? 0 : answer(fd, p, 1);
}

static void come_in(int s, int ep)
{
    int fd, one = 1;
    while ((fd = accept4(s, NULL, NULL, SOCK_NONBLOCK)) >= 0 && fd < MAX_FD) {
        struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        peers[fd] = calloc(1, sizeof *peers[fd]);
        epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    }
}

static void turn(int fd, int ep)
{
    struct peer *p = peers[fd];
    uint64_t before = p->out;
    int rc = before ? reply(fd, p) : take(fd, p);

    if (rc < 0) {
        close(fd);
        free(p);
    } else if (!before != !p->out) {
        struct epoll_event e = { .events = p->out ? EPOLLOUT : EPOLLIN, .data.fd = fd };
        epoll_ctl(ep, EPOLL_CTL_MOD, fd, &e);
    }
}

static int serve(const struct sockaddr_in *at)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), ep = epoll_create1(0), one = 1, n;
    struct epoll_event e = { .events = EPOLLIN, .data.fd = s }, got[256];

    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (const struct sockaddr *)at, sizeof *at) < 0 || listen(s, 4096) < 0)
        die("listen");
    epoll_ctl(ep, EPOLL_CTL_ADD, s, &e);
    puts("ready");
    fflush(stdout);
    while ((n = epoll_wait(ep, got, 256, -1)) >= 0 || errno == EINTR)
        for (int i = 0; i < n; i++)
            if (got[i].data.fd == s)
                come_in(s, ep);
            else
                turn(got[i].data.fd, ep);
    return 1;
}

/* --- clients ---------------------------------------------------------------------------------------- */

static int dial(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int ask(int fd, const char *verb, const char *host, uint64_t n)
{
    char head[400];
    int len =
        snprintf(head, sizeof head, "%s /%llu HTTP/1.1\r\nHost: %s\r\nContent-Length: %llu\r\n\r\n",
                 verb, (unsigned long long)n, host, *verb == 'P' ? (unsigned long long)n : 0ULL);
    return send(fd, head, (size_t)len, MSG_NOSIGNAL) == len ? 0 : -1;
}

static uint64_t drain(int fd, uint64_t most)
{
    uint64_t total = 0;
    while (total < most) {
        ssize_t r = recv(fd, block, BLOCK, 0);
        if (r <= 0)
            break;
        total += (size_t)r;
    }
    return total;
}

static int stream(const struct sockaddr_in *to, const char *host, uint64_t bytes, int up)
{
    int fd = dial(to);
    if (fd < 0)
        die("connect");
    double t = now();
    if (ask(fd, up ? "POST" : "GET", host, bytes) < 0)
        die("send");
    for (uint64_t left = bytes; up && left;) {
        ssize_t r = send(fd, block, left < BLOCK ? left : BLOCK, MSG_NOSIGNAL);
        if (r < 0)
            die("send");
        left -= (size_t)r;
    }
    if (up ? drain(fd, 10) < 10 : drain(fd, bytes) < bytes)
        die("the answer is cut off");
    printf("%.1f\n", bytes / (now() - t) / 1e6);
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int ping(const struct sockaddr_in *to, const char *host, int n)
{
    double *us = calloc((size_t)n, sizeof *us);
    for (int i = 0; i < n; i++) {
        double t = now();
        int fd = dial(to);
        if (fd < 0 || ask(fd, "GET", host, 1) < 0 || drain(fd, 10) < 10)
            die("ping");
        us[i] = (now() - t) * 1e6;
        close(fd);
    }
    qsort(us, (size_t)n, sizeof *us, by_size);
    printf("%.1f\n", us[n / 2]);
    return 0;
}

static double jain(const uint64_t *got, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)got[i];
        squares += (double)got[i] * (double)got[i];
    }
    return squares > 0 ? sum * sum / (n * squares) : 0;
}

static int crowd(const struct sockaddr_in *to, const char *host, int n, uint64_t bytes)
{
    int ep = epoll_create1(0), open = 0, whole = 0;
    uint64_t *got = calloc((size_t)n, sizeof *got), total = 0;
    double fair = -1;

    for (int i = 0; i < n; i++) {
        int fd = dial(to);
        struct epoll_event e = { .events = EPOLLIN, .data.u64 = (uint64_t)i << 32 | (uint32_t)fd };
        open += fd >= 0 && ask(fd, "GET", host, bytes) == 0 &&
                epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0;
    }
    double t = now();
    while (open > 0) {
        struct epoll_event e[64];
        int k = epoll_wait(ep, e, 64, 30000);
        for (int j = 0; j < k; j++) {
            int i = (int)(e[j].data.u64 >> 32), fd = (int)(uint32_t)e[j].data.u64;
            ssize_t r = recv(fd, block, 65536, 0);
            got[i] += r > 0 ? (size_t)r : 0;
            total += r > 0 ? (size_t)r : 0;
            if (r > 0 && got[i] <= bytes)
                continue;
            whole += r > 0;
            open--;
            close(fd);
        }
        if (fair < 0 && total >= bytes * (uint64_t)n / 2)
            fair = jain(got, n);
        if (k <= 0)
            break;
    }
    printf("%d %.4f %.1f\n", n - whole, fair, total / (now() - t) / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3])) };
    const char *verb = argv[1], *host = argc > 4 ? argv[4] : "", *n = argc > 5 ? argv[5] : "0";

    inet_pton(AF_INET, argv[2], &to.sin_addr);
    signal(SIGPIPE, SIG_IGN);
    more_files();
    if (strcmp(verb, "serve") == 0)
        return serve(&to);
    if (strcmp(verb, "ping") == 0)
        return ping(&to, host, atoi(n));
    if (strcmp(verb, "crowd") == 0)
        return crowd(&to, host, atoi(n), strtoull(argc > 6 ? argv[6] : "0", NULL, 10));
    return stream(&to, host, strtoull(n, NULL, 10), strcmp(verb, "up") == 0);
}
