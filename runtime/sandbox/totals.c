#include "runtime/sandbox/totals.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"

enum { LOCK_TRIES = 1000, LOCK_MS = 10, MAKE_TRIES = 8 };

static char *place(const struct paths *paths, const char *name)
{
    return str_printf("%s/running/%s", paths->data, name);
}

/* With an end: somebody who was stopped while counting must not stop everybody. */
static int lock_all(const struct paths *paths, int *ret, struct err **e)
{
    AUTOFREE char *path = place(paths, ".lock");
    AUTOCLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            *ret = TAKE_FD(fd);
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, "lock '%s'", path);
        (void)poll(NULL, 0, LOCK_MS);
    }
    return err_new(e, ERR_BUSY, "another petri has been counting sandboxes for %d s; try again",
                   LOCK_TRIES * LOCK_MS / 1000);
}

/* What one running sandbox has; false: it does not run. */
static bool look_at(int dir, const char *name, struct plan_totals *ret)
{
    AUTOCLOSE int fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unsigned long long memory = 0, disk = 0;
    char text[64];
    ssize_t n;

    if (fd < 0)
        return false;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        (void)unlinkat(dir, name, 0);
        return false;
    }
    n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    if (name[0] == '.' || sscanf(text, "%llu %llu", &memory, &disk) != 2)
        return false; /* on its way in: it is not counted before it has its name */
    ret->memory = memory;
    ret->disk = disk;
    return true;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t n)
{
    return n && a > UINT64_MAX / n ? UINT64_MAX : a * n;
}

/* Everything that runs. Under the lock. */
static int count(const struct paths *paths, struct plan_totals *ret, struct err **e)
{
    AUTOFREE char *top = place(paths, "");
    DIR *d = opendir(top);
    struct dirent *de;

    *ret = (struct plan_totals){ 0 };
    if (!d)
        return err_sys(e, "read '%s'", top);
    while ((de = readdir(d))) {
        struct plan_totals one;
        if ((de->d_name[0] == '.' && !str_starts(de->d_name, ".new-")) ||
            !look_at(dirfd(d), de->d_name, &one))
            continue;
        ret->sandboxes++;
        ret->memory = add(ret->memory, one.memory);
        ret->disk = add(ret->disk, one.disk);
    }
    closedir(d);
    return 0;
}

static int judge_size(const char *what, uint64_t limit, uint64_t now, uint64_t more, struct err **e)
{
    char all[24], has[24], wants[24];

    if (!limit || (more <= limit && now <= limit - more))
        return 0;
    format_size(limit, all);
    format_size(now, has);
    format_size(more, wants);
    return err_new(e, ERR_LIMIT,
                   "limits.total.%s (--total-%s) is %s: running sandboxes have %s, this would take "
                   "%s more; petri stop one (petri ls), or give it less",
                   what, what, all, has, wants);
}

static int judge(const struct plan *p, const struct plan_totals *now, uint64_t disk, uint64_t n,
                 struct err **e)
{
    const struct plan_totals *t = &p->totals;
    int rc;

    if (t->sandboxes && now->sandboxes + n > t->sandboxes)
        return err_new(
            e, ERR_LIMIT,
            "limits.total.sandboxes (--total-sandboxes) is %llu: %llu run, this would be "
            "%llu more; petri stop one (petri ls)",
            (unsigned long long)t->sandboxes, (unsigned long long)now->sandboxes,
            (unsigned long long)n);
    rc = judge_size("memory", t->memory, now->memory, times(p->memory.value, n), e);
    return rc < 0 ? rc : judge_size("disk", t->disk, now->disk, times(disk, n), e);
}

static bool limited(const struct plan *p)
{
    return p->totals.sandboxes || p->totals.memory || p->totals.disk;
}

/* Locked before it has its name: who counts never sees one that is not. */
static int make(const struct paths *paths, const struct plan *p, uint64_t disk, int *ret_fd,
                struct err **e)
{
    AUTOFREE char *to = place(paths, p->id);
    AUTOFREE char *text =
        str_printf("%llu %llu\n", (unsigned long long)p->memory.value, (unsigned long long)disk);

    for (int i = 0; i < MAKE_TRIES; i++) {
        AUTOFREE char *new = str_printf("%s/running/.new-%s-%d", paths->data, p->id, i);
        AUTOCLOSE int fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno == EEXIST) {
            (void)unlink(new); /* of a start that was killed: nobody else has this id now */
            continue;
        }
        if (fd < 0)
            return err_sys(e, "make '%s'", new);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (fs_write_all(fd, text, strlen(text)) < 0)
                return err_sys(e, "write '%s'", new);
            if (rename(new, to) == 0) {
                *ret_fd = TAKE_FD(fd);
                return 0;
            }
        }
        if (errno != EWOULDBLOCK && errno != ENOENT)
            return err_sys(e, "make '%s'", to);
        /* who counts was quicker and took it for garbage */
    }
    return err_new(e, ERR_BUSY, "others count sandboxes all the time; try again");
}

static int open_all(const struct paths *paths, bool lock, int *ret_lock, struct err **e)
{
    AUTOFREE char *top = place(paths, "");
    int rc = fs_mkdirs(top, 0700, e);
    return rc < 0 || !lock ? rc : lock_all(paths, ret_lock, e);
}

void totals_sweep(const struct paths *paths)
{
    struct plan_totals now;
    (void)count(paths, &now, NULL);
}

int totals_enter(const struct paths *paths, const struct plan *p, uint64_t disk, int *ret_fd,
                 struct err **e)
{
    AUTOCLOSE int lock = -1;
    struct plan_totals now;
    int rc = open_all(paths, limited(p), &lock, e);

    if (rc == 0 && limited(p) && (rc = count(paths, &now, e)) == 0)
        rc = judge(p, &now, disk, 1, e);
    return rc < 0 ? rc : make(paths, p, disk, ret_fd, e);
}

int totals_check(const struct paths *paths, const struct plan *p, uint64_t disk, size_t n,
                 struct err **e)
{
    AUTOCLOSE int lock = -1;
    struct plan_totals now;
    int rc;

    if (!limited(p))
        return 0;
    if ((rc = open_all(paths, true, &lock, e)) < 0 || (rc = count(paths, &now, e)) < 0)
        return rc;
    return judge(p, &now, disk, n, e);
}

void totals_leave(const struct paths *paths, const struct plan *p, int *fd)
{
    AUTOFREE char *path = *fd > 0 ? place(paths, p->id) : NULL;
    if (path)
        (void)unlink(path);
    close_p(fd);
}
