/* tests/bench/cgmove.c - what putting a process into a cgroup of its own costs, without the rest.
 *
 * Makes one cgroup per v1 hierarchy that limits need (memory, cpu, pids), or one on v2, moves a
 * waiting child there, ends it and removes the cgroups. Prints make_ms, move_ms (another process
 * writes the child's pid to cgroup.procs), self_ms (the child writes 0 to `tasks`: one thread that
 * moves itself needs no lock, v1 only) and remove_ms.
 * Uses:  libc only. Needs to be root.
 * Crash: leaves empty cgroups named petri-bench-PID-N.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DIRS = 3 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void die(const char *what)
{
    fprintf(stderr, "cgmove: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void put(const char *dir, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die(path);
    close(fd);
}

static int make_dirs(char dirs[][128], int serial)
{
    static const char *const v1[MAX_DIRS] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu",
                                              "/sys/fs/cgroup/pids" };
    int n = 0;
    for (int i = 0; i < MAX_DIRS; i++)
        if (access(v1[i], F_OK) == 0)
            snprintf(dirs[n++], 128, "%s/petri-bench-%d-%d", v1[i], getpid(), serial);
    if (!n)
        snprintf(dirs[n++], 128, "/sys/fs/cgroup/petri-bench-%d-%d", getpid(), serial);
    for (int i = 0; i < n; i++)
        if (mkdir(dirs[i], 0755) < 0)
            die(dirs[i]);
    return n;
}

static void remove_dirs(char dirs[][128], int n)
{
    for (int i = 0; i < n; i++)
        for (int tries = 0; rmdir(dirs[i]) < 0 && errno == EBUSY && tries < 1000; tries++)
            usleep(500);
}

/* A child that waits for the end of its pipe; returns its pid. */
static pid_t waiting_child(int *ret_pipe)
{
    int p[2];
    if (pipe(p) < 0)
        die("pipe");
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        char c;
        close(p[1]);
        _exit(read(p[0], &c, 1) != 0);
    }
    close(p[0]);
    *ret_pipe = p[1];
    return pid;
}

static void by_parent(void)
{
    char dirs[MAX_DIRS][128], pid_text[16];
    int pipe_end;
    double t0 = now_ms();
    int n = make_dirs(dirs, 0);
    double t1 = now_ms();
    pid_t pid = waiting_child(&pipe_end);
    snprintf(pid_text, sizeof(pid_text), "%d", pid);
    double t2 = now_ms();
    for (int i = 0; i < n; i++)
        put(dirs[i], "cgroup.procs", pid_text);
    double t3 = now_ms();
    close(pipe_end);
    waitpid(pid, NULL, 0);
    double t4 = now_ms();
    remove_dirs(dirs, n);
    printf("make_ms=%.3f move_ms=%.3f remove_ms=%.3f", t1 - t0, t3 - t2, now_ms() - t4);
}

static void by_itself(void)
{
    char dirs[MAX_DIRS][128];
    if (access("/sys/fs/cgroup/pids/tasks", F_OK) != 0)
        return;
    int n = make_dirs(dirs, 1);
    int p[2];
    if (pipe(p) < 0)
        die("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        double t0 = now_ms();
        for (int i = 0; i < n; i++)
            put(dirs[i], "tasks", "0");
        double t = now_ms() - t0;
        _exit(write(p[1], &t, sizeof(t)) != sizeof(t));
    }
    double t = -1;
    if (read(p[0], &t, sizeof(t)) == sizeof(t))
        printf(" self_ms=%.3f", t);
    waitpid(pid, NULL, 0);
    remove_dirs(dirs, n);
}

int main(int argc, char **argv)
{
    /* One way per run: the lock stays cheap for a moment after someone paid for it. */
    if (argc > 1 && strcmp(argv[1], "self") == 0)
        by_itself();
    else
        by_parent();
    putchar('\n');
    return 0;
}
