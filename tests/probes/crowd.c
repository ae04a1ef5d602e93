/* crowd ADDR PORT HOST N SIZE: N connections at once, an HTTP answer of SIZE bytes from each.
 * All have connected and asked before the first one reads; the shares are taken when half of it all is there.
 * Prints OK, LOST, LEAST and MOST.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static long *got;

static long extreme(int n, int sign)
{
    long best = got[0];
    for (int i = 1; i < n; i++)
        if ((got[i] - best) * sign > 0)
            best = got[i];
    return best;
}

static void more_files(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

/* One connection that has asked. */
static int begin(const struct sockaddr_in *to, const char *request)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t len = strlen(request);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof *to) == 0 &&
        send(fd, request, len, MSG_NOSIGNAL) == (ssize_t)len)
        return fd;
    printf("ERR %s\n", strerrorname_np(errno));
    return -1;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    int n = atoi(argv[4]), ep = epoll_create1(0), ok = 0, open = 0;
    long size = atol(argv[5]), total = 0, least = -1, most = -1;
    char request[300], buf[65536];
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };

    inet_pton(AF_INET, argv[1], &to.sin_addr);
    snprintf(request, sizeof request,
             "GET /bytes/%ld HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", size, argv[3]);
    got = calloc((size_t)n, sizeof *got);
    more_files();
    for (int i = 0; i < n; i++) {
        int fd = begin(&to, request);
        struct epoll_event e = { .events = EPOLLIN, .data.u64 = (uint64_t)i << 32 | (uint32_t)fd };
        open += fd >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) == 0;
    }
    while (open > 0) {
        struct epoll_event e[64];
        int k = epoll_wait(ep, e, 64, PATIENCE_MS);
        if (k <= 0)
            break;
        for (int j = 0; j < k; j++) {
            int i = (int)(e[j].data.u64 >> 32), fd = (int)(uint32_t)e[j].data.u64;
            ssize_t r = recv(fd, buf, sizeof buf, 0);
            if (r > 0) {
                got[i] += r;
                total += r;
                continue;
            }
            close(fd);
            open--;
            ok += r == 0 && got[i] > size;
        }
        if (least < 0 && total >= size * n / 2) {
            least = extreme(n, -1);
            most = extreme(n, 1);
        }
    }
    printf("OK %d LOST %d LEAST %ld MOST %ld\n", ok, n - ok, least, most);
    return ok != n;
}
