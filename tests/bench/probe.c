/* tests/bench/probe.c - the command of every start-up sample: `true` that proves where it ran.
 *
 * Prints one line of key=value: what the kernel says about this process (seccomp, no_new_privs,
 * capabilities, ids, namespaces, descriptors). `probe hold TAG` then sleeps for 0.3 s, so
 * that its cgroups can be read from outside; TAG is only there to be found.
 * Other jobs, for execs: `echo ARG STATUS` says what it got (draw.h), `put FILE TEXT` writes a file,
 * `check FILE TEXT` is 0 where the file holds just that, `fill DIR MB` writes that much,
 * `pause` sleeps until it is killed.
 * Uses:  libc only, linked statically; the same program in petri and in every peer.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "draw.h"

static size_t slurp(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);
    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static void print_status(const char *status, const char *field, const char *key)
{
    const char *p = strstr(status, field);
    if (!p)
        return;
    p += strlen(field);
    p += strspn(p, " \t");
    printf("%s=%.*s ", key, (int)strcspn(p, " \t\n"), p);
}

static int echo(const char *arg, const char *status)
{
    static unsigned char in[1 << 16];
    char line[256];
    size_t n = 0;
    ssize_t got;

    while (n < sizeof in && (got = read(0, in + n, sizeof in - n)) > 0)
        n += (size_t)got;
    const char *env = getenv("PROBE");
    draw_text(line, sizeof line, arg, env ? env : "", in, n);
    return write(1, line, strlen(line)) == (ssize_t)strlen(line) ? atoi(status) : 111;
}

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1;
}

static int check(const char *path, const char *text)
{
    char have[4096];
    slurp(path, have, sizeof have);
    if (strcmp(have, text) == 0)
        return 0;
    printf("'%s' holds '%s', not '%s'\n", path, have, text);
    return 1;
}

/* Files of 16 MB, of bytes that differ. */
static int fill(const char *dir, int mb)
{
    static char block[1 << 20];
    char path[256];
    int fd = -1;

    for (int i = 0; i < mb; i++) {
        for (size_t k = 0; k < sizeof block; k += 8)
            *(uint64_t *)(void *)(block + k) = (uint64_t)i << 32 ^ k * 0x9e3779b97f4a7c15ULL;
        if (i % 16 == 0) {
            snprintf(path, sizeof path, "%s/fill%04d", dir, i / 16);
            close(fd);
            fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        }
        if (fd < 0 || write(fd, block, sizeof block) != (ssize_t)sizeof block)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "echo") == 0)
        return echo(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "put") == 0)
        return put(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "check") == 0)
        return check(argv[2], argv[3]);
    if (argc == 4 && strcmp(argv[1], "fill") == 0)
        return fill(argv[2], atoi(argv[3]));
    while (argc == 2 && strcmp(argv[1], "pause") == 0)
        pause();

    static const char *const ns[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    char buf[4096], path[64], link[64];
    struct rlimit rl;

    slurp("/proc/self/status", buf, sizeof(buf));
    print_status(buf, "\nSeccomp:", "seccomp");
    print_status(buf, "\nNoNewPrivs:", "nnp");
    print_status(buf, "\nCapEff:", "capeff");
    print_status(buf, "\nCapBnd:", "capbnd");
    print_status(buf, "\nUid:", "uid");
    for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", ns[i]);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        printf("%s=%s ", ns[i], link + strcspn(link, "["));
    }
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
        printf("nofile=%llu", (unsigned long long)rl.rlim_max);
    putchar('\n');
    fflush(stdout);

    if (argc > 1 && strcmp(argv[1], "hold") == 0)
        usleep(300000);
    return 0;
}
