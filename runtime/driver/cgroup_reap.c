#include "runtime/driver/cgroup_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/fs.h"

/* ---- names: who made a leaf, and does it live? ------------------------------------------- */

/* 0 for a process that is gone, or dead and only waiting for its parent to look. */
uint64_t cgroup_start_time(pid_t pid)
{
    char path[32], buf[1024], *p;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (cgroup_get(AT_FDCWD, path, buf, sizeof buf) < 0 || !(p = strrchr(buf, ')')) ||
        strchr("ZX", p[1] ? p[2] : 'X'))
        return 0;
    for (int field = 2; field < 22 && p; field++) /* the name may hold spaces: count after it */
        p = strchr(p + 1, ' ');
    return p ? strtoull(p, NULL, 10) : 0;
}

static uint64_t pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) < 0 ? 0 : st.st_ino;
}

char *cgroup_leaf_name(const char *id)
{
    return str_printf(CGROUP_PREFIX "%s.%d.%llu.%llu", id, (int)getpid(),
                      (unsigned long long)cgroup_start_time(getpid()),
                      (unsigned long long)pid_namespace());
}

/* True for a leaf of petri's whose maker is known to be gone. In another pid namespace nothing is known. */
static bool leaf_abandoned(const char *name)
{
    unsigned long long start, ns;
    int pid, end = 0;
    const char *dot = strchr(name, '.');

    if (!str_starts(name, CGROUP_PREFIX) || !dot ||
        sscanf(dot, ".%d.%llu.%llu%n", &pid, &start, &ns, &end) != 3 || dot[end] || pid <= 0)
        return false;
    return ns == pid_namespace() && cgroup_start_time(pid) != start;
}

/* ---- kill and remove ------------------------------------------------------------------------- */

static bool pid_listed(const char *list, int pid)
{
    for (char *end; *list; list = end + (*end == '\n')) {
        if (strtol(list, &end, 10) == pid)
            return true;
        if (end == list)
            break;
    }
    return false;
}

bool cgroup_has_pid(int dir, int pid)
{
    AUTOFREE char *list = NULL;
    return fs_read(dir, "cgroup.procs", 1 << 20, &list, NULL, NULL) == 0 && pid_listed(list, pid);
}

/* One round over cgroup.procs; the number of processes seen, or -errno. A number read from the list may
 * belong to somebody else by now: a process is only killed through a pidfd that was opened before a
 * second reading still had it. */
static int kill_round(int dir)
{
    AUTOFREE char *list = NULL;
    int seen = 0;

    if (fs_read(dir, "cgroup.procs", 1 << 20, &list, NULL, NULL) < 0)
        return -errno;
    for (char *p = list, *end; *p; p = end + (*end == '\n')) {
        int pid = (int)strtol(p, &end, 10);
        if (end == p)
            break;
        AUTOCLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (fd >= 0 && cgroup_has_pid(dir, pid))
            (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
        seen++;
    }
    return seen;
}

int cgroup_kill_leaf(int dir)
{
    if (cgroup_put(dir, "cgroup.kill", "1") == 0) /* v2, all at once */
        return 0;
    for (int i = 0; i < 1000; i++) {
        int n = kill_round(dir);
        if (n <= 0)
            return n;
        if (i == 0) /* only now, so that nothing runs once more */
            cgroup_thaw_leaf(dir);
        cgroup_pause_us(2000);
    }
    return -EBUSY;
}

/* A dying process holds its group for a moment after its parent saw the end. */
int cgroup_remove_leaf(int parent, const char *name)
{
    for (unsigned i = 0; i < 250; i++) {
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            break;
        cgroup_pause_us(i < 8 ? 1000 : 8000);
    }
    return -errno;
}

/* ---- what others left ------------------------------------------------------------------------ */

static int reap_leaf(int parent, const char *name)
{
    AUTOCLOSE int fd = -1;
    struct stat st;

    if (!leaf_abandoned(name) || (fd = cgroup_open_dir(parent, name)) < 0)
        return 0;
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid())
        return 0;
    if (cgroup_kill_leaf(fd) < 0)
        return 0;
    return cgroup_remove_leaf(parent, name) == 0;
}

int cgroup_reap(const char *record)
{
    AUTOFREE char *copy = str_dup(record);
    int count = 0;

    for (char *save, *line = strtok_r(copy, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *slash = strrchr(line, '/');
        if (!str_starts(line, CGROUP_ROOT "/") || strstr(line, "/../") || !slash)
            continue;
        *slash = '\0';
        AUTOCLOSE int parent = open(line, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0)
            count += reap_leaf(parent, slash + 1);
        if (parent >= 0 && str_ends(line, "/petri"))
            (void)rmdir(line);
    }
    return count;
}

void cgroup_record(const struct cgroup *c, struct str *ret)
{
    for (int i = 0; i < CTL_N; i++) {
        if (c->parents[i])
            str_addf(ret, "%s/%s\n", c->parents[i], c->name);
    }
}

static int sweep_place(int fd, int *count)
{
    struct dirent *d;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);

    if (!dir)
        return -errno;
    while ((d = readdir(dir))) {
        if (d->d_type == DT_DIR)
            *count += reap_leaf(fd, d->d_name);
    }
    closedir(dir);
    return 0;
}

int cgroup_sweep(struct err **e)
{
    AUTOSELF struct cgroup_self self = { 0 };
    int count = 0;

    if (cgroup_self_read(&self) < 0)
        return 0; /* nothing can have been made */
    if (self.v2_mount)
        cgroup_v2_places(&self, sweep_place, &count);
    else
        cgroup_v1_places(&self, sweep_place, &count);
    return count;
}
