#include "image/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/str.h"

enum {
    /* modes of directories are kept until the end: what a hostile layer may make of that */
    LATER_MAX_BYTES = 256 << 20,
    MAX_DEPTH = 200, /* of directories; removing a tree keeps one descriptor open per level */
};

struct later {
    char *path;
    size_t seq;
    struct tree_meta meta;
};

struct tree {
    int root;
    bool privileged;
    char *parent; /* of the last entry, normal; "" is the root */
    int parent_fd;
    struct later *later;
    size_t n_later, later_bytes;
};

struct tree *tree_new(int dirfd)
{
    struct tree *t = mem_zalloc(sizeof *t);
    t->root = dirfd;
    t->privileged = geteuid() == 0;
    t->parent_fd = -EBADF;
    return t;
}

static void forget_parent(struct tree *t)
{
    free_p(&t->parent);
    close_p(&t->parent_fd);
}

struct tree *tree_free(struct tree *t)
{
    if (!t)
        return NULL;
    forget_parent(t);
    for (size_t i = 0; i < t->n_later; i++)
        free(t->later[i].path);
    free(t->later);
    free(t);
    return NULL;
}

/* "usr/bin/sh" from "./usr//bin/sh"; "" is the root of the layer. */
static int normal(const char *path, char **ret, struct err **e)
{
    AUTOSTR struct str s = STR_INIT;
    unsigned depth = 0;

    if (!path || strlen(path) >= PATH_MAX)
        return err_new(e, ERR_INVALID, "a name in the archive is missing or longer than %d bytes",
                       PATH_MAX - 1);
    for (const char *p = path; *p;) {
        size_t n;
        p += strspn(p, "/");
        n = strcspn(p, "/");
        if (n == 2 && !memcmp(p, "..", 2))
            return err_new(e, ERR_DENIED, "'%s' in the archive climbs out with '..'", path);
        if (n > NAME_MAX)
            return err_new(e, ERR_INVALID, "a name in '%.60s...' is longer than %d bytes", path,
                           NAME_MAX);
        if (n && !(n == 1 && *p == '.')) {
            if (++depth > MAX_DEPTH)
                return err_new(e, ERR_LIMIT, "'%.60s...' is deeper than %d directories", path,
                               MAX_DEPTH);
            if (s.len)
                str_addc(&s, '/');
            str_addn(&s, p, n);
        }
        p += n;
    }
    *ret = str_take(&s);
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_whiteout_node(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* Overlay's mark for "nothing below shows through". Root writes both forms: which one counts
 * depends on whether the overlay is mounted in a user namespace. */
static int set_opaque(struct tree *t, int dirfd, const char *path, struct err **e)
{
    bool user = fsetxattr(dirfd, "user.overlay.opaque", "y", 1, 0) == 0;
    if (t->privileged ? fsetxattr(dirfd, "trusted.overlay.opaque", "y", 1, 0) == 0 : user)
        return 0;
    return err_sys(e, "mark '%s' as opaque (the store's file system needs extended attributes)",
                   path);
}

/* One directory on the way to an entry: there already, or made. A whiteout in its place means
 * that a lower layer's directory is replaced by this one. */
static int step(struct tree *t, int dirfd, const char *name, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = -1;
    struct stat st;
    bool replaced = false;
    int rc;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISLNK(st.st_mode))
            return err_new(e, ERR_DENIED, "the way leads through the symbolic link '%s'", name);
        replaced = is_whiteout_node(&st);
        if (!S_ISDIR(st.st_mode) && !replaced)
            return err_new(e, ERR_INVALID, "'%s' is a file and a directory", name);
        if (replaced && unlinkat(dirfd, name, 0) < 0)
            return err_sys(e, "replace '%s'", name);
    }
    if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
        return err_sys(e, "make directory '%s'", name);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open directory '%s'", name);
    if (replaced && (rc = set_opaque(t, fd, name, e)) < 0)
        return rc;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int make_parents(struct tree *t, const char *parent, int *ret_fd, struct err **e)
{
    AUTOFREE char *copy = str_dup(parent);
    AUTOCLOSE int fd = fcntl(t->root, F_DUPFD_CLOEXEC, 3);
    char *save = NULL;

    for (char *n = strtok_r(copy, "/", &save); n; n = strtok_r(NULL, "/", &save)) {
        int next = -EBADF, rc = step(t, fd, n, &next, e);
        if (rc < 0)
            return rc;
        close(fd);
        fd = next;
    }
    if (fd < 0)
        return err_sys(e, "open the layer's directory");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The directory that holds `path` (normal, not the root). Archives come sorted more or less, so
 * the last one is mostly right. */
static int enter(struct tree *t, const char *path, int *ret_fd, struct err **e)
{
    size_t n = (size_t)(base_name(path) - path);
    AUTOFREE char *parent = str_printf("%.*s", (int)(n ? n - 1 : 0), path);
    int fd, rc;

    if (!t->parent || strcmp(t->parent, parent)) {
        fd = fs_open_beneath(t->root, *parent ? parent : ".", O_RDONLY | O_DIRECTORY, 0,
                             RESOLVE_NO_XDEV);
        if (fd < 0 && (rc = make_parents(t, parent, &fd, e)) < 0)
            return err_wrap(e, "'%s' in the archive", path);
        forget_parent(t);
        t->parent = TAKE_PTR(parent);
        t->parent_fd = fd;
    }
    *ret_fd = t->parent_fd;
    return 0;
}

/* Normal path and its parent for something that can't be the root itself. */
static int place(struct tree *t, const char *raw, char **ret_path, int *ret_parent, struct err **e)
{
    AUTOFREE char *path = NULL;
    int rc = normal(raw, &path, e);

    if (rc < 0)
        return rc;
    if (!*path)
        return err_new(e, ERR_INVALID, "the root of the archive ('%s') is not a directory", raw);
    if ((rc = enter(t, path, ret_parent, e)) < 0)
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
    *ret_whiteout = is_whiteout_node(&st);
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
    int parent, rc = normal(raw, &path, e);

    if (rc < 0)
        return rc;
    if (!*path)
        return put_off(t, "", m, e);
    if ((rc = enter(t, path, &parent, e)) < 0)
        return rc;
    const char *name = base_name(path);
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
        if ((rc = set_opaque(t, fd, path, e)) < 0)
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
        fd = openat(parent, base_name(path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0600);
        if (fd >= 0 || errno != EEXIST)
            break;
        if ((rc = clear(t, parent, base_name(path), &whiteout, e)) < 0)
            return rc;
    }
    if (fd < 0)
        return err_sys(e, "create '%s'", path);
    *ret_fd = fd;
    return 0;
}

int tree_file_done(struct tree *t, int fd, uint64_t size, const struct tree_meta *m,
                   struct err **e)
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
    const char *name = base_name(path);
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
    int parent, rc = normal(target, &to, e);

    if (rc < 0 || (rc = place(t, raw, &path, &parent, e)) < 0)
        return rc;
    if (!strcmp(path, to))
        return 0;
    dir = base_name(to) > to ? str_printf("%.*s", (int)(base_name(to) - to - 1), to) : str_dup(".");
    fd = fs_open_beneath(t->root, dir, O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
    if (fd < 0 || fstatat(fd, base_name(to), &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_new(e, ERR_INVALID, "hard link '%s' leads to '%s', which is not in the layer",
                       path, to);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return err_new(e, ERR_DENIED, "hard link '%s' leads to '%s', which is not a file", path,
                       to);
    if ((rc = clear(t, parent, base_name(path), &whiteout, e)) < 0)
        return rc;
    if (linkat(fd, base_name(to), parent, base_name(path), 0) < 0)
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
    const char *name = base_name(path) + strlen(".wh.");
    if (!strcmp(name, ".wh..opq"))
        return set_opaque(t, parent, path, e);
    if (str_starts(name, ".wh."))
        return 0; /* aufs kept its own books under such names */
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return err_new(e, ERR_DENIED, "whiteout '%s' names no file", path);
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        /* the layer brings something of that name itself: only what lies below is to go */
        if (!S_ISDIR(st.st_mode))
            return 0;
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? err_sys(e, "open '%s'", path) : set_opaque(t, fd, path, e);
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
    AUTOCLOSE int fd = fs_open_beneath(t->root, *l->path ? l->path : ".", O_RDONLY | O_DIRECTORY,
                                       0, RESOLVE_NO_XDEV);
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

    forget_parent(t);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct stat st;
        if (fstatat(t->root, places[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
            !is_whiteout_node(&st))
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
