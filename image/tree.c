/* image/tree.c - the entries of a layer: files, directories, links, whiteouts. */
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fs.h"
#include "base/str.h"
#include "image/tree_impl.h"

/* Modes of directories are kept until the end: what a hostile layer may make of that. */
enum { LATER_MAX_BYTES = 256 << 20 };

struct tree *tree_new(int dirfd)
{
    struct tree *t = mem_zalloc(sizeof *t);
    t->root = dirfd;
    t->privileged = geteuid() == 0;
    t->parent_fd = -EBADF;
    return t;
}

struct tree *tree_free(struct tree *t)
{
    if (!t)
        return NULL;
    tree_forget_parent(t);
    for (size_t i = 0; i < t->n_later; i++)
        free(t->later[i].path);
    free(t->later);
    free(t);
    return NULL;
}

/* Normal path and its parent for something that can't be the root itself. */
static int place(struct tree *t, const char *raw, char **ret_path, int *ret_parent, struct err **e)
{
    AUTOFREE char *path = NULL;
    int rc = tree_normal(raw, &path, e);

    if (rc < 0)
        return rc;
    if (!*path)
        return err_new(e, ERR_INVALID, "the root of the archive ('%s') is not a directory", raw);
    if ((rc = tree_enter(t, path, ret_parent, e)) < 0)
        return rc;
    *ret_path = TAKE_PTR(path);
    return 0;
}

/* Takes away what stands at a name; true in ret_whiteout when that was a whiteout. */
static int clear(struct tree *t, int dirfd, const char *name, bool *ret_whiteout, struct err **e)
{
    struct stat st;

    *ret_whiteout = false;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, "look at '%s'", name);
    *ret_whiteout = tree_is_whiteout_node(&st);
    return fs_remove_tree(dirfd, name, e);
}

static int own(struct tree *t, int fd, const char *name, int flags, const struct tree_meta *m,
               struct err **e)
{
    if (!t->privileged)
        return 0;
    if (m->uid < 0 || m->uid > INT32_MAX || m->gid < 0 || m->gid > INT32_MAX)
        return err_new(e, ERR_INVALID, "owner %lld:%lld in the archive is not valid",
                       (long long)m->uid, (long long)m->gid);
    if (fchownat(fd, name, (uid_t)m->uid, (gid_t)m->gid, flags) < 0)
        return err_sys(e, "set an owner");
    return 0;
}

static void times_of(const struct tree_meta *m, struct timespec ret[2])
{
    ret[0] = ret[1] = (struct timespec){ .tv_sec = m->mtime, .tv_nsec = m->mtime_nsec };
}

static int put_off(struct tree *t, const char *path, const struct tree_meta *m, struct err **e)
{
    t->later_bytes += strlen(path) + sizeof *t->later;
    if (t->later_bytes > LATER_MAX_BYTES)
        return err_new(e, ERR_LIMIT, "the archive has too many directories");
    if ((t->n_later & (t->n_later + 1)) == 0) {
        t->later = realloc(t->later, (2 * t->n_later + 1) * sizeof *t->later);
        if (!t->later)
            abort();
    }
    t->later[t->n_later] = (struct later){ str_dup(path), t->n_later, *m };
    t->n_later++;
    return 0;
}

int tree_dir(struct tree *t, const char *raw, const struct tree_meta *m, struct err **e)
{
    AUTOFREE char *path = NULL;
    AUTOCLOSE int fd = -1;
    struct stat st;
    bool whiteout = false;
    int parent, rc = tree_normal(raw, &path, e);

    if (rc < 0)
        return rc;
    if (!*path)
        return put_off(t, "", m, e);
    if ((rc = tree_enter(t, path, &parent, e)) < 0)
        return rc;
    const char *name = tree_base(path);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
        if ((rc = clear(t, parent, name, &whiteout, e)) < 0)
            return rc;
        if (mkdirat(parent, name, 0700) < 0)
            return err_sys(e, "make directory '%s'", path);
    }
    if (whiteout) {
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return err_sys(e, "open '%s'", path);
        if ((rc = tree_set_opaque(t, fd, path, e)) < 0)
            return rc;
    }
    return put_off(t, path, m, e);
}

int tree_file(struct tree *t, const char *raw, int *ret_fd, struct err **e)
{
    AUTOFREE char *path = NULL;
    bool whiteout;
    int parent, fd, rc = place(t, raw, &path, &parent, e);

    if (rc < 0)
        return rc;
    for (int again = 0; again < 2; again++) {
        fd = openat(parent, tree_base(path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0600);
        if (fd >= 0 || errno != EEXIST)
            break;
        if ((rc = clear(t, parent, tree_base(path), &whiteout, e)) < 0)
            return rc;
    }
    if (fd < 0)
        return err_sys(e, "create '%s'", path);
    *ret_fd = fd;
    return 0;
}

int tree_file_done(struct tree *t, int fd, uint64_t size, const struct tree_meta *m, struct err **e)
{
    struct timespec ts[2];
    int rc;

    times_of(m, ts);
    if (ftruncate(fd, (off_t)size) < 0)
        return err_sys(e, "set a size of %llu bytes", (unsigned long long)size);
    if ((rc = own(t, fd, "", AT_EMPTY_PATH, m, e)) < 0)
        return rc;
    if (fchmod(fd, m->mode & 0777) < 0 || futimens(fd, ts) < 0)
        return err_sys(e, "set mode and time");
    return 0;
}

int tree_symlink(struct tree *t, const char *raw, const char *target, const struct tree_meta *m,
                 struct err **e)
{
    AUTOFREE char *path = NULL;
    struct timespec ts[2];
    bool whiteout;
    int parent, rc = place(t, raw, &path, &parent, e);

    if (rc < 0)
        return rc;
    const char *name = tree_base(path);
    if (!target || !*target || strlen(target) >= PATH_MAX)
        return err_new(e, ERR_INVALID, "symbolic link '%s' has no valid target", path);
    if ((rc = clear(t, parent, name, &whiteout, e)) < 0)
        return rc;
    if (symlinkat(target, parent, name) < 0)
        return err_sys(e, "make symbolic link '%s'", path);
    if ((rc = own(t, parent, name, AT_SYMLINK_NOFOLLOW, m, e)) < 0)
        return rc;
    times_of(m, ts);
    if (utimensat(parent, name, ts, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "set the time of '%s'", path);
    return 0;
}

int tree_hardlink(struct tree *t, const char *raw, const char *target, struct err **e)
{
    AUTOFREE char *path = NULL, *to = NULL, *dir = NULL;
    AUTOCLOSE int fd = -1;
    struct stat st;
    bool whiteout;
    int parent, rc = tree_normal(target, &to, e);

    if (rc < 0 || (rc = place(t, raw, &path, &parent, e)) < 0)
        return rc;
    if (!strcmp(path, to))
        return 0;
    dir = tree_base(to) > to ? str_printf("%.*s", (int)(tree_base(to) - to - 1), to) : str_dup(".");
    fd = fs_open_beneath(t->root, dir, O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
    if (fd < 0 || fstatat(fd, tree_base(to), &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_new(e, ERR_INVALID, "hard link '%s' leads to '%s', which is not in the layer",
                       path, to);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return err_new(e, ERR_DENIED, "hard link '%s' leads to '%s', which is not a file", path,
                       to);
    if ((rc = clear(t, parent, tree_base(path), &whiteout, e)) < 0)
        return rc;
    if (linkat(fd, tree_base(to), parent, tree_base(path), 0) < 0)
        return err_sys(e, "make hard link '%s' to '%s'", path, to);
    return 0;
}

bool tree_is_whiteout(const char *path)
{
    size_t n = strlen(path);
    while (n && path[n - 1] == '/')
        n--;
    while (n && path[n - 1] != '/')
        n--;
    return str_starts(path + n, ".wh.");
}

int tree_whiteout(struct tree *t, const char *raw, struct err **e)
{
    AUTOFREE char *path = NULL;
    AUTOCLOSE int fd = -1;
    struct stat st;
    int parent, rc = place(t, raw, &path, &parent, e);

    if (rc < 0)
        return rc;
    const char *name = tree_base(path) + strlen(".wh.");
    if (!strcmp(name, ".wh..opq"))
        return tree_set_opaque(t, parent, path, e);
    if (str_starts(name, ".wh."))
        return 0; /* aufs kept its own books under such names */
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return err_new(e, ERR_DENIED, "whiteout '%s' names no file", path);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        /* the layer brings something of that name itself: only what lies below is to go */
        if (!S_ISDIR(st.st_mode))
            return 0;
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? err_sys(e, "open '%s'", path) : tree_set_opaque(t, fd, path, e);
    }
    if (mknodat(parent, name, S_IFCHR, makedev(0, 0)) < 0)
        return err_sys(e, "make the whiteout '%s'", path);
    return 0;
}

static int by_path_deepest_first(const void *a, const void *b)
{
    const struct later *x = a, *y = b;
    int c = strcmp(y->path, x->path);
    return c ? c : x->seq < y->seq ? -1 : 1;
}

static int set_dir(struct tree *t, const struct later *l, struct err **e)
{
    AUTOCLOSE int fd = fs_open_beneath(t->root, *l->path ? l->path : ".", O_RDONLY | O_DIRECTORY, 0,
                                       RESOLVE_NO_XDEV);
    struct timespec ts[2];
    int rc;

    if (fd < 0)
        return 0; /* a later entry replaced it */
    times_of(&l->meta, ts);
    if ((rc = own(t, fd, "", AT_EMPTY_PATH, &l->meta, e)) < 0)
        return rc;
    if (fchmod(fd, l->meta.mode & 03777) < 0 || futimens(fd, ts) < 0)
        return err_sys(e, "set mode and time of '%s'", l->path);
    return 0;
}

int tree_finish(struct tree *t, struct err **e)
{
    static const char *const places[] = { "dev", "proc", "sys", "run", "tmp", "etc", "workspace" };

    tree_forget_parent(t);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct stat st;
        if (fstatat(t->root, places[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
            !tree_is_whiteout_node(&st))
            return err_new(e, ERR_DENIED,
                           "/%s in the archive is a %s; it must be a directory or not be there",
                           places[i], S_ISLNK(st.st_mode) ? "symbolic link" : "file");
    }
    if (t->n_later)
        qsort(t->later, t->n_later, sizeof *t->later, by_path_deepest_first);
    for (size_t i = 0; i < t->n_later; i++) {
        const struct later *l = &t->later[i];
        int rc;
        if (i + 1 < t->n_later && !strcmp(l->path, l[1].path))
            continue;
        if ((rc = set_dir(t, l, e)) < 0)
            return rc;
    }
    return 0;
}
