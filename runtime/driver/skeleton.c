#include "runtime/driver/skeleton.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/driver/rootfs_priv.h"

enum { MANY = 32, KEEP_SECONDS = 24 * 60 * 60, KEEP_MANY = 60, SLOTS = 256, MAX_KEY = 1 << 20 };

/* All that it is made of. False: a mount's source is gone, which the launcher will say. */
static bool key_of(const struct plan *p, const struct ids *ids, struct str *s)
{
    AUTOFREE char *boot = NULL;
    struct stat st;

    if (fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, NULL) < 0)
        return false;
    str_addf(s, "2 %s %d %u:%u %u:%u\n", boot, ids->mode, ids->root_uid, ids->root_gid,
             ids->user_uid, ids->user_gid);
    idmap_format(&ids->outer_uids, s);
    idmap_format(&ids->outer_gids, s);
    for (const char *const *t = (const char *const[]){ p->home, p->project, p->workspace, NULL };
         *t; t++)
        str_addn(s, *t, strlen(*t) + 1);
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        str_addn(s, p->extra_lowers.v[i], strlen(p->extra_lowers.v[i]) + 1);
    for (size_t i = 0; i < p->mounts.n; i++) {
        const struct plan_mount *m = &p->mounts.v[i];
        bool link = m->kind == MOUNT_LINK || m->kind == MOUNT_HOME_LINK;
        if (m->kind == MOUNT_BIND && stat(m->src, &st) < 0)
            return false;
        str_addf(s, "%d %d %s", m->kind, m->kind == MOUNT_BIND && S_ISDIR(st.st_mode), m->dst);
        str_addc(s, '\0');
        if (link)
            str_addn(s, m->src, strlen(m->src) + 1);
    }
    return true;
}

/* To make one takes longer than it saves a single run. So the runs of a machine note which one each wanted, the last of
 * them in SLOTS places: whether this one was wanted before. */
static bool was_wanted(const char *dir, uint64_t key)
{
    AUTOFREE char *path = path_join(dir, "wanted");
    AUTOCLOSE int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    off_t slot = (off_t)(key % SLOTS * sizeof key);
    uint64_t last = 0;

    if (fd < 0 && fs_mkdirs(dir, 0700, NULL) == 0)
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && pread(fd, &last, sizeof last, slot) == sizeof last && last == key)
        return true;
    (void)!pwrite(fd, &key, sizeof key, slot);
    return false;
}

/* It has not been removed, and another made in its place, before it was locked. */
static bool is_still(int fd, const char *path)
{
    struct stat mine, there;

    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino;
}

/* Not there, being removed, or of another key: -1. */
static int take(const char *path, const struct str *key)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTOFREE char *its = NULL;
    size_t n = 0;

    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 || !is_still(fd, path) ||
        fs_read(fd, "key", MAX_KEY, &its, &n, NULL) < 0 || n != key->len ||
        memcmp(its, key->p, n) != 0)
        return -1;
    return TAKE_FD(fd);
}

struct making {
    const struct plan *plan;
    const struct ids *ids;
    int dir;
};

static int make_inside(void *arg, struct err **e)
{
    const struct making *m = arg;
    struct rootfs r = { .plan = m->plan, .ids = m->ids, .userns = -1, .project_userns = -1 };

    umask(022);
    if (fchown(m->dir, m->ids->root_uid, m->ids->root_gid) < 0 || fchmod(m->dir, 0755) < 0)
        return err_sys(e, "own a skeleton");
    return rootfs_places(&r, m->dir, e);
}

/* Its directory, with all but the places. */
static int make_empty(const char *new, const struct str *key, int *ret_root)
{
    AUTOCLOSE int fd = open(new, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), file = -1;

    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 || mkdirat(fd, "root", 0755) < 0 ||
        (file = openat(fd, "key", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0 ||
        fs_write_all(file, key->p, key->len) < 0 ||
        (*ret_root = openat(fd, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return -1;
    return TAKE_FD(fd);
}

static int make(const char *dir, const char *path, const struct str *key, const struct plan *p,
                const struct ids *ids)
{
    AUTOFREE char *new = path_join(dir, ".new-XXXXXX");
    AUTOSTR struct str now = STR_INIT;
    AUTOCLOSE int fd = -1, root = -1;

    if (fs_mkdirs(dir, 0700, NULL) < 0 || !mkdtemp(new))
        return -1;
    fd = make_empty(new, key, &root);
    /* a source that became a file meanwhile has the wrong place */
    if (fd >= 0 &&
        inside_run(ids, make_inside, &(struct making){ .plan = p, .ids = ids, .dir = root },
                   NULL) == 0 &&
        key_of(p, ids, &now) && now.len == key->len && memcmp(now.p, key->p, now.len) == 0 &&
        rename(new, path) == 0)
        return TAKE_FD(fd);
    (void)inside_remove(new, NULL);
    return take(path, key); /* another one was faster */
}

void skeleton_hold(const char *layers, const struct plan *p, const struct ids *ids,
                   struct skeleton *ret)
{
    AUTOFREE char *dir = path_join(layers, "skeletons"), *path = NULL;
    AUTOSTR struct str key = STR_INIT;
    uint64_t hash;

    if ((!p->top && p->root_writable) || p->image_layers.n || weakened() || !key_of(p, ids, &key))
        return;
    hash = str_hash(STR_HASH, key.p, key.len);
    path = str_printf("%s/%016llx", dir, (unsigned long long)hash);
    ret->hold = take(path, &key);
    if (ret->hold < 0 && (p->top || was_wanted(dir, hash))) {
        skeletons_sweep(layers, KEEP_SECONDS);
        ret->hold = make(dir, path, &key, p, ids);
    }
    if (ret->hold >= 0)
        ret->path = path_join(path, "root");
}

void skeleton_free_p(struct skeleton *s)
{
    free(s->path);
    close_p(&s->hold);
    s->path = NULL;
}

void skeletons_sweep(const char *layers, unsigned age)
{
    AUTOFREE char *dir = path_join(layers, "skeletons");
    DIR *d = opendir(dir);
    struct dirent *de;
    size_t n = 0;

    while (d && fs_next(d))
        n++;
    if (n > MANY && age > KEEP_MANY)
        age = KEEP_MANY;
    if (d)
        rewinddir(d);
    while (d && (de = fs_next(d))) {
        AUTOFREE char *path = path_join(dir, de->d_name);
        AUTOFREE char *gone = str_printf("%s/.gone-%s", dir, de->d_name);
        AUTOCLOSE int fd = -1;
        struct stat st;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_mtim.tv_sec + age <= time(NULL) &&
            flock(fd, LOCK_EX | LOCK_NB) == 0 && is_still(fd, path) && rename(path, gone) == 0)
            (void)inside_remove(gone, NULL);
    }
    if (d)
        closedir(d);
}
