/* runtime/change/commit.c - the renames that put a staged operation in its place, and back. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "runtime/change/apply.h"
#include "runtime/change/crew.h"

static int rename_flags(int a, const char *x, int b, const char *y, unsigned flags)
{
    return (int)syscall(SYS_renameat2, a, x, b, y, flags);
}

int commit_move(int from_dir, const char *from, int to_dir, const char *to)
{
    struct stat st;
    if (rename_flags(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(from_dir, from, to_dir, to);
}

int commit_swap(int temp_dir, const char *temp, const char *spare, int dir, const char *name)
{
    if (rename_flags(temp_dir, temp, dir, name, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (commit_move(dir, name, temp_dir, spare) < 0)
        return -1;
    if (commit_move(temp_dir, temp, dir, name) < 0) {
        int sys = errno;
        (void)commit_move(temp_dir, spare, dir, name);
        errno = sys;
        return -1;
    }
    return renameat(temp_dir, spare, temp_dir, temp);
}

bool commit_dir_empty(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool empty = d && !fs_next(d);

    if (d)
        closedir(d);
    else
        close_p(&fd);
    return empty;
}

static int dir_mode(struct dirs *parents, const struct item *it, bool open, struct err **e)
{
    mode_t mode = it->step == STEP_MKDIR ? it->new.mode : it->old.mode, opened = mode | 0700;
    const char *name;
    struct stat st;
    int dir;

    /* one of another mode is not ours, or was not touched */
    if (mode == opened || dirs_parent(parents, it->path, &dir, &name, NULL) < 0 ||
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
        (st.st_mode & 07777) != (open ? mode : opened))
        return 0;
    return fchmodat(dir, name, open ? opened : mode, AT_SYMLINK_NOFOLLOW) < 0
               ? err_sys(e, "mode of '%s'", it->path)
               : 0;
}

int commit_dir_modes(int root, const struct op *o, bool open, struct err **e)
{
    /* what goes is ordered deepest first, what comes parents first: opened from above, closed from below */
    const enum step forward = open ? STEP_MKDIR : STEP_RMDIR;
    const enum step backward = open ? STEP_RMDIR : STEP_MKDIR;
    struct dirs parents = DIRS_INIT(root);
    int rc = 0;

    for (size_t i = 0; i < o->n && rc == 0; i++)
        if (o->v[i].step == forward)
            rc = dir_mode(&parents, &o->v[i], open, e);
    for (size_t i = o->n; i-- > 0 && rc == 0;)
        if (o->v[i].step == backward)
            rc = dir_mode(&parents, &o->v[i], open, e);
    dirs_free_p(&parents);
    return rc;
}

struct commit {
    const struct apply *a;
    struct op *o;
    struct dirs parents, anchors;
};

/* Both directories and both names of an item. */
struct place {
    int dir, anchor;
    const char *name;
    char temp[64], spare[64];
};

static int find_place(struct commit *c, size_t i, struct place *ret, struct err **e)
{
    const struct item *it = &c->o->v[i];
    int rc = dirs_parent(&c->parents, it->path, &ret->dir, &ret->name, e);
    if (rc == 0)
        rc = dirs_get(&c->anchors, it->anchor, &ret->anchor, e);
    item_temp(c->o, i, false, ret->temp);
    item_temp(c->o, i, true, ret->spare);
    return rc;
}

static int moved(const struct item *it, struct err **e)
{
    return err_new(e, ERR_BUSY,
                   "'%s' changed in the project just now; nothing was changed, try again",
                   it->path);
}

/* What was put aside must be what was looked at. */
static bool as_seen(int dir, const char *name, const struct item *it)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (it->old.kind == NODE_DIR)
        return st.st_ino == it->seen.st_ino && commit_dir_empty(dir, name);
    return node_same_stat(&st, &it->seen);
}

static int chmod_at(int dir, const char *name, const struct item *it, mode_t mode, struct err **e)
{
    AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s'", it->path);
    if (it->seen.st_ino && !node_same_stat(&st, &it->seen))
        return moved(it, e);
    return fchmod(fd, mode) < 0 ? err_sys(e, "mode of '%s'", it->path) : 0;
}

static int do_step(struct commit *c, size_t i, struct err **e)
{
    struct item *it = &c->o->v[i];
    struct place p;
    int rc = find_place(c, i, &p, e);

    if (rc < 0)
        return rc;
    switch (it->step) {
    case STEP_REMOVE:
    case STEP_RMDIR:
        if (commit_move(p.dir, p.name, p.anchor, p.temp) < 0)
            return errno == ENOENT ? moved(it, e) : err_sys(e, "remove '%s'", it->path);
        it->applied = true;
        return as_seen(p.anchor, p.temp, it) ? 0 : moved(it, e);
    case STEP_MKDIR:
    case STEP_CREATE:
        if (commit_move(p.anchor, p.temp, p.dir, p.name) < 0)
            return errno == EEXIST ? moved(it, e) : err_sys(e, "make '%s'", it->path);
        it->applied = true;
        return 0;
    case STEP_REPLACE:
        if (commit_swap(p.anchor, p.temp, p.spare, p.dir, p.name) < 0)
            return errno == ENOENT ? moved(it, e) : err_sys(e, "replace '%s'", it->path);
        it->applied = true;
        return as_seen(p.anchor, p.temp, it) ? 0 : moved(it, e);
    case STEP_CHMOD:
        rc = chmod_at(p.dir, p.name, it, it->new.mode, e);
        it->applied = rc == 0;
        return rc;
    }
    return err_new(e, ERR_INTERNAL, "a step of no known kind");
}

static int undo_step(struct commit *c, size_t i, struct err **e)
{
    struct item *it = &c->o->v[i];
    struct place p;
    int rc = find_place(c, i, &p, e);

    if (rc < 0)
        return rc;
    it->applied = false;
    switch (it->step) {
    case STEP_REMOVE:
    case STEP_RMDIR:
        rc = commit_move(p.anchor, p.temp, p.dir, p.name);
        break;
    case STEP_MKDIR:
    case STEP_CREATE:
        rc = commit_move(p.dir, p.name, p.anchor, p.temp);
        break;
    case STEP_REPLACE:
        rc = commit_swap(p.anchor, p.temp, p.spare, p.dir, p.name);
        break;
    case STEP_CHMOD:
        it->seen.st_ino = 0;
        return chmod_at(p.dir, p.name, it, it->old.mode, e);
    }
    return rc < 0 ? err_sys(e, "take back '%s'", it->path) : 0;
}

/* Directories that were made again get their old times once nothing more happens in them. */
static void set_dir_times(struct commit *c)
{
    for (size_t i = c->o->n; i-- > 0;) {
        struct item *it = &c->o->v[i];
        struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, it->new.mtime };
        const char *name;
        int dir;
        if (it->step == STEP_MKDIR && it->exact &&
            dirs_parent(&c->parents, it->path, &dir, &name, NULL) == 0)
            (void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
    }
}

static int sync_places(struct commit *c, struct err **e)
{
    const char *name;
    int dir, rc = 0;

    if (c->o->n > 64)
        return syncfs(c->a->synced) < 0 ? err_sys(e, "sync the project's file system") : 0;
    for (size_t i = 0; i < c->o->n && rc == 0; i++) {
        CLEANUP(err_free_p) struct err *why = NULL;
        /* a directory that went needs no sync, only its parent does */
        if (dirs_parent(&c->parents, c->o->v[i].path, &dir, &name, &why) == 0 && fsync(dir) < 0)
            rc = err_sys(e, "sync the directory of '%s'", c->o->v[i].path);
        if (rc == 0 && dirs_get(&c->anchors, c->o->v[i].anchor, &dir, NULL) == 0 && fsync(dir) < 0)
            rc = err_sys(e, "sync the directory '%s'", c->o->v[i].anchor);
    }
    return rc;
}

static int take_back(struct commit *c, int entry, struct err **why)
{
    AUTOSTRV struct strv anchors = { 0 };
    CLEANUP(err_free_p) struct err *second = NULL;
    int rc;

    /* where there is no room for it recovery goes forward, which is as good */
    (void)fs_write_atomic(entry, "abort", "", 0, 0600, NULL);
    rc = commit_dir_modes(c->a->root, c->o, true, &second);
    for (size_t i = c->o->n; i-- > 0 && rc == 0;)
        if (c->o->v[i].applied)
            rc = undo_step(c, i, &second);
    if (rc == 0)
        rc = commit_dir_modes(c->a->root, c->o, false, &second);
    for (size_t i = 0; i < c->o->n; i++)
        strv_add(&anchors, c->o->v[i].anchor);
    if (rc == 0)
        rc = stage_clean(c->a->root, c->o, &anchors, &second);
    if (rc == 0) {
        journal_drop(c->a->journal, c->o);
        return 0;
    }
    AUTOFREE char *text = err_text(second);
    return err_wrap(why,
                    "half done, and taking it back failed too (%s); the next petri command "
                    "tries again",
                    text);
}

/* Files that come need the directories made and what was in their place gone; among themselves they have
 * no order. */
static bool comes(const struct item *it)
{
    return it->step == STEP_CREATE || it->step == STEP_REPLACE || it->step == STEP_CHMOD;
}

static int come_part(const struct crew *w, struct err **e)
{
    const struct commit *all = w->arg;
    struct commit c = { .a = all->a,
                        .o = all->o,
                        .parents = DIRS_INIT(all->a->root),
                        .anchors = DIRS_INIT(all->a->root) };
    int rc = 0;

    for (size_t i = w->from; i < w->to && rc == 0 && !crew_over(w); i++)
        if (comes(&c.o->v[i]))
            rc = do_step(&c, i, e);
    dirs_free_p(&c.parents);
    dirs_free_p(&c.anchors);
    return rc;
}

int commit_all(const struct apply *a, struct op *o, int entry, struct err **e)
{
    struct commit c = {
        .a = a, .o = o, .parents = DIRS_INIT(a->root), .anchors = DIRS_INIT(a->root)
    };
    int rc = commit_dir_modes(a->root, o, true, e);

    for (size_t i = 0; i < o->n && rc == 0; i++)
        if (!comes(&o->v[i]))
            rc = do_step(&c, i, e);
    if (rc == 0)
        rc = crew_run(o->n, a->alone, come_part, &c, e);
    if (rc == 0) {
        set_dir_times(&c);
        rc = commit_dir_modes(a->root, o, false, e);
    }
    if (rc == 0)
        rc = sync_places(&c, e);
    if (rc < 0)
        (void)take_back(&c, entry, e);
    dirs_free_p(&c.parents);
    dirs_free_p(&c.anchors);
    return rc;
}
