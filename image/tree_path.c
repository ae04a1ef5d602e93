/* image/tree_path.c - names of a layer's entries: taken apart, judged, and led to a directory. */
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/str.h"
#include "image/tree_impl.h"

enum { MAX_DEPTH = 200 }; /* of directories; removing a tree keeps one descriptor open per level */

int tree_normal(const char *path, char **ret, struct err **e)
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

const char *tree_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool tree_is_whiteout_node(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* Which form counts depends on how the overlay is mounted (userxattr in a user namespace): so both,
 * as far as this process may. */
int tree_set_opaque(struct tree *t, int dirfd, const char *path, struct err **e)
{
    bool user = fsetxattr(dirfd, "user.overlay.opaque", "y", 1, 0) == 0;
    bool trusted = t->privileged && fsetxattr(dirfd, "trusted.overlay.opaque", "y", 1, 0) == 0;
    if (user || trusted)
        return 0;
    return err_sys(e, "mark '%s' as opaque (the store's file system needs extended attributes)",
                   path);
}

void tree_forget_parent(struct tree *t)
{
    free_p(&t->parent);
    close_p(&t->parent_fd);
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
        replaced = tree_is_whiteout_node(&st);
        if (!S_ISDIR(st.st_mode) && !replaced)
            return err_new(e, ERR_INVALID, "'%s' is a file and a directory", name);
        if (replaced && unlinkat(dirfd, name, 0) < 0)
            return err_sys(e, "replace '%s'", name);
    }
    bool made = mkdirat(dirfd, name, 0755) == 0;
    if (!made && errno != EEXIST)
        return err_sys(e, "make directory '%s'", name);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open directory '%s'", name);
    if (made && fchmod(fd, 0755) < 0) /* whatever the umask */
        return err_sys(e, "set the mode of '%s'", name);
    if (replaced && (rc = tree_set_opaque(t, fd, name, e)) < 0)
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
int tree_enter(struct tree *t, const char *path, int *ret_fd, struct err **e)
{
    size_t n = (size_t)(tree_base(path) - path);
    AUTOFREE char *parent = str_printf("%.*s", (int)(n ? n - 1 : 0), path);
    int fd, rc;

    if (!t->parent || strcmp(t->parent, parent)) {
        fd = fs_open_beneath(t->root, *parent ? parent : ".", O_RDONLY | O_DIRECTORY, 0,
                             RESOLVE_NO_XDEV);
        if (fd < 0 && (rc = make_parents(t, parent, &fd, e)) < 0)
            return err_wrap(e, "'%s' in the archive", path);
        tree_forget_parent(t);
        t->parent = TAKE_PTR(parent);
        t->parent_fd = fd;
    }
    *ret_fd = t->parent_fd;
    return 0;
}
