/* runtime/init/tree.c - which processes there are, and the end of those that must go.
 *
 * A subreaper (and PID 1) gets the children of whatever dies below it: killing its children until it
 * has none left kills the tree. Going down the tree at once is for speed, against what forks meanwhile.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "runtime/init/init.h"

enum { DEPTH = 24 }; /* what is deeper comes back with the death of what is above it */

uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int list_open(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int children_open(void)
{
    return list_open(getpid());
}

/* Pids as text, each with a space behind it. */
static int kill_list(int list, bool (*spare)(const void *, pid_t), const void *arg, int depth)
{
    char buf[4096];
    size_t have = 0;
    off_t at = 0;
    int found = 0;

    for (;;) {
        ssize_t n = pread(list, buf + have, sizeof buf - 1 - have, at);
        char *p = buf, *space;
        if (n < 0)
            return -1;
        if (n == 0)
            return found;
        at += n;
        have += (size_t)n;
        buf[have] = '\0';
        for (; (space = strchr(p, ' ')); p = space + 1) {
            pid_t pid = (pid_t)strtol(p, NULL, 10);
            AUTOCLOSE int below = -1;
            if (pid <= 1 || (spare && spare(arg, pid)))
                continue;
            found++;
            kill(pid, SIGKILL);
            if (depth > 0 && (below = list_open(pid)) >= 0)
                kill_list(below, NULL, NULL, depth - 1);
        }
        have -= (size_t)(p - buf);
        memmove(buf, p, have);
    }
}

/* One process of /proc: false where it is gone. */
static bool look(const char *name, pid_t *ret_parent, char *ret_state)
{
    char path[64], buf[512], *p;
    ssize_t n;
    int parent;
    AUTOCLOSE int fd = -1;

    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (n = read(fd, buf, sizeof buf - 1)) <= 0)
        return false;
    buf[n] = '\0';
    p = strrchr(buf, ')');
    if (!p || sscanf(p + 1, " %c %d", ret_state, &parent) != 2)
        return false;
    *ret_parent = parent;
    return true;
}

int kill_children(int list, bool (*spare)(const void *, pid_t), const void *arg)
{
    struct dirent *d;
    int found = 0;
    DIR *dir;

    if (list >= 0)
        return kill_list(list, spare, arg, DEPTH);
    dir = opendir("/proc"); /* a kernel without lists of children */
    if (!dir)
        return -1;
    while ((d = readdir(dir))) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10), parent;
        char state;
        if (!isdigit((unsigned char)d->d_name[0]) || pid <= 1 ||
            !look(d->d_name, &parent, &state) || parent != getpid() || (spare && spare(arg, pid)))
            continue;
        found++;
        kill(pid, SIGKILL);
    }
    closedir(dir);
    return found;
}

int count_others(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *d;
    int n = 0;

    if (!dir)
        return -1;
    while ((d = readdir(dir))) {
        pid_t parent;
        char state;
        if (isdigit((unsigned char)d->d_name[0]) && strtol(d->d_name, NULL, 10) != getpid() &&
            look(d->d_name, &parent, &state) && state != 'Z' && state != 'X')
            n++;
    }
    closedir(dir);
    return n;
}
