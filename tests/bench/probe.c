/* tests/bench/probe.c - the command of every start-up sample: `true` that proves where it ran.
 *
 * Prints one line of key=value: what the kernel says about this process (seccomp, no_new_privs,
 * capabilities, ids, namespaces, descriptors). `probe hold TAG` then sleeps for 0.3 s, so
 * that its cgroups can be read from outside; TAG is only there to be found.
 * Uses:  libc only, linked statically; the same program in petri and in every peer.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
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
