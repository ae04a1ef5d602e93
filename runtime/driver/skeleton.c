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

enum { MANY = 32, KEEP_SECONDS = 24 * 60 * 60, KEEP_MANY = 60, SLOTS = 256 };

/* All that it is made of; 0: a mount's source is gone, which the launcher will say. */
static uint64_t key_of(const struct plan *p, const struct ids *ids)
{
    AUTOSTR struct str s = STR_INIT;
    AUTOFREE char *boot = NULL;
    struct stat st;

    if (fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, NULL) < 0)
        return 0;
    str_addf(&s, "1 %s %d %u:%u %u:%u", boot, ids->mode, ids->root_uid, ids->root_gid,
             ids->user_uid, ids->user_gid);
    str_addc(&s, '\0');
    for (const char *const *t = (const char *const[]){ p->home, p->project, p->workspace, NULL };
         *t; t++)
        str_addn(&s, *t, strlen(*t) + 1);
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        str_addn(&s, p->extra_lowers.v[i], strlen(p->extra_lowers.v[i]) + 1);
    for (size_t i = 0; i < p->mounts.n; i++) {
        const struct plan_mount *m = &p->mounts.v[i];
        bool link = m->kind == MOUNT_LINK || m->kind == MOUNT_HOME_LINK;
        if (m->kind == MOUNT_BIND && stat(m->src, &st) < 0)
            return 0;
        str_addf(&s, "%d %d %s", m->kind, m->kind == MOUNT_BIND && S_ISDIR(st.st_mode), m->dst);
        str_addc(&s, '\0');
        if (link)
            str_addn(&s, m->src, strlen(m->src) + 1);
    }
    return str_hash(STR_HASH, s.p, s.len);
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

/* Not there, being removed, or removed before it was locked: -1. */
static int take(const char *path)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat mine, there;

    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &mine) < 0 ||
        lstat(path, &there) < 0 || mine.st_ino != there.st_ino)
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

static int make(const char *dir, const char *path, const struct plan *p, const struct ids *ids)
{
    AUTOFREE char *new = path_join(dir, ".new-XXXXXX");
    struct making m = { .plan = p, .ids = ids };
    AUTOCLOSE int fd = -1;

    if (fs_mkdirs(dir, 0700, NULL) < 0 || !mkdtemp(new))
        return -1;
    m.dir = fd = take(new);
    if (fd >= 0 && inside_run(ids, make_inside, &m, NULL) == 0 && rename(new, path) == 0)
        return TAKE_FD(fd);
    (void)inside_remove(new, NULL);
    return take(path); /* another one was faster */
}

void skeleton_hold(const char *layers, const struct plan *p, const struct ids *ids,
                   struct skeleton *ret)
{
    AUTOFREE char *dir = path_join(layers, "skeletons"), *path = NULL;
    uint64_t key;

    if ((!p->top && p->root_writable) || p->image_layers.n || weakened() || !(key = key_of(p, ids)))
        return;
    path = str_printf("%s/%016llx", dir, (unsigned long long)key);
    ret->hold = take(path);
    if (ret->hold < 0 && (p->top || was_wanted(dir, key))) {
        skeletons_sweep(layers, KEEP_SECONDS);
        ret->hold = make(dir, path, p, ids);
    }
    if (ret->hold >= 0)
        ret->path = TAKE_PTR(path);
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

    while (d && (de = readdir(d)))
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
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
            st.st_mtim.tv_sec + age <= time(NULL) && rename(path, gone) == 0)
            (void)inside_remove(gone, NULL);
    }
    if (d)
        closedir(d);
}
