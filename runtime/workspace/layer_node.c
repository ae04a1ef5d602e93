#include "runtime/workspace/layer_node.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/fs.h"

enum { XATTR_MAX = 1 << 16 }; /* the kernel's own limit for a list and for a value */

void nodes_init(struct nodes *n, int top, bool same_file)
{
    *n = (struct nodes){ .top = top, .links = -EBADF, .same_file = same_file };
    n->names = mem_zalloc(XATTR_MAX);
    n->value = mem_zalloc(XATTR_MAX);
}

int nodes_end(struct nodes *n, struct err **e)
{
    bool used = n->links >= 0;

    close_p(&n->links);
    free_p(&n->names);
    free_p(&n->value);
    return used ? fs_remove_tree(n->top, ".links", e) : 0;
}

bool node_is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* By path through /proc: the only way that works for links and nodes, too. */
static int copy_xattrs(struct nodes *n, const char *from, const char *to, const char *skip)
{
    ssize_t len = llistxattr(from, n->names, XATTR_MAX);

    if (len < 0)
        return errno == EOPNOTSUPP ? 0 : -1;
    for (const char *p = n->names; p < n->names + len; p += strlen(p) + 1) {
        ssize_t size = skip && strcmp(p, skip) == 0 ? -2 : lgetxattr(from, p, n->value, XATTR_MAX);
        if (size == -2 || (size < 0 && errno == ENODATA))
            continue;
        if (size >= 0 && lsetxattr(to, p, n->value, (size_t)size, 0) == 0)
            continue;
        /* labels of the machine's own policy: the new file has got one */
        if (str_starts(p, "security.") && (errno == EPERM || errno == EOPNOTSUPP))
            continue;
        return -1;
    }
    return 0;
}

/* Owner first: a new one takes bits of the mode and capabilities away. */
static int copy_meta(struct nodes *n, int sdir, int ddir, const char *name, const struct stat *st)
{
    const struct timespec times[2] = { st->st_atim, st->st_mtim };
    char from[320], to[320];

    snprintf(from, sizeof from, "/proc/self/fd/%d/%s", sdir, name);
    snprintf(to, sizeof to, "/proc/self/fd/%d/%s", ddir, name);
    if (fchownat(ddir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        copy_xattrs(n, from, to, NULL) < 0)
        return -1;
    if (!S_ISLNK(st->st_mode) && fchmodat(ddir, name, st->st_mode & 07777, 0) < 0)
        return -1;
    return utimensat(ddir, name, times, AT_SYMLINK_NOFOLLOW);
}

int node_finish_dir(struct nodes *n, int s, int d, const char *skip, const char *path,
                    struct err **e)
{
    char from[64], to[64];
    struct stat st;

    snprintf(from, sizeof from, "/proc/self/fd/%d/.", s);
    snprintf(to, sizeof to, "/proc/self/fd/%d/.", d);
    if (fstat(s, &st) < 0)
        return err_sys(e, "look at '%s'", path);
    const struct timespec times[2] = { st.st_atim, st.st_mtim };
    if (fchown(d, st.st_uid, st.st_gid) < 0 || copy_xattrs(n, from, to, skip) < 0 ||
        fchmod(d, st.st_mode & 07777) < 0 || futimens(d, times) < 0)
        return err_sys(e, "owner, mode and attributes of '%s'", path);
    return 0;
}

/* ---- content --------------------------------------------------------------------------------- */

/* One stretch of data; the kernel copies where it can, across file systems we do. */
static int copy_range(int in, int out, off_t from, off_t to)
{
    char buf[65536];
    ssize_t n = 1;

    while (from < to && n > 0) {
        loff_t a = from, b = from;
        n = copy_file_range(in, &a, out, &b, (size_t)(to - from), 0);
        if (n < 0 &&
            (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
            size_t want = (size_t)(to - from) < sizeof buf ? (size_t)(to - from) : sizeof buf;
            n = RETRY(pread(in, buf, want, from));
            if (n > 0 && pwrite(out, buf, (size_t)n, from) != n)
                n = -1;
        }
        if (n > 0)
            from += n;
    }
    if (n == 0 && from < to)
        errno = ESTALE; /* it shrank: somebody writes to what must not change */
    return from < to ? -1 : 0;
}

int node_copy_data(int in, int out, off_t size)
{
    off_t data = 0, hole;

    if (ioctl(out, FICLONE, in) == 0)
        return 0;
    if (ftruncate(out, size) < 0)
        return -1;
    while (data < size && (data = lseek(in, data, SEEK_DATA)) >= 0) {
        hole = lseek(in, data, SEEK_HOLE);
        if (hole < 0 || copy_range(in, out, data, hole) < 0)
            return -1;
        data = hole;
    }
    return data < 0 && errno != ENXIO ? -1 : 0; /* ENXIO: a hole up to the end */
}

static int make_file(int sdir, int ddir, const char *name, const struct stat *st)
{
    AUTOCLOSE int in = openat(sdir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    AUTOCLOSE int out = -1;

    if (in < 0)
        return -1;
    out = openat(ddir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return out < 0 ? -1 : node_copy_data(in, out, st->st_size);
}

static int make_node(int sdir, int ddir, const char *name, const struct stat *st)
{
    if (S_ISREG(st->st_mode))
        return make_file(sdir, ddir, name, st);
    if (S_ISLNK(st->st_mode)) {
        AUTOFREE char *target = fs_readlink(sdir, name);
        return !target ? -1 : symlinkat(target, ddir, name);
    }
    if (!node_is_whiteout(st) && !S_ISFIFO(st->st_mode) && !S_ISSOCK(st->st_mode)) {
        errno = EPERM; /* no sandbox can make a device */
        return -1;
    }
    return mknodat(ddir, name, (st->st_mode & S_IFMT) | 0600, 0);
}

/* ---- several names, one file ----------------------------------------------------------------- */

static int open_links(struct nodes *n)
{
    if (n->links >= 0)
        return 0;
    if (mkdirat(n->top, ".links", 0700) < 0)
        return -1;
    n->links = openat(n->top, ".links", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return n->links < 0 ? -1 : 0;
}

/* The names lie on disk, not in memory: a layer may hold a million. A file with as many names as the
 * file system allows starts again (whiteouts are such files). */
static int put_linked(struct nodes *n, int sdir, int ddir, const char *name, const struct stat *st)
{
    char key[48];

    snprintf(key, sizeof key, "%llx-%llx", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino);
    if (open_links(n) < 0)
        return -1;
    if (linkat(n->links, key, ddir, name, 0) == 0)
        return 0;
    if (errno == EMLINK && unlinkat(n->links, key, 0) < 0)
        return -1;
    if (errno != ENOENT && errno != EMLINK)
        return -1;
    if (make_node(sdir, ddir, name, st) < 0 || copy_meta(n, sdir, ddir, name, st) < 0)
        return -1;
    return linkat(ddir, name, n->links, key, 0);
}

int node_put(struct nodes *n, int sdir, int ddir, const char *name, const struct stat *st,
             const char *path, struct err **e)
{
    int rc;

    if (n->same_file) {
        if (linkat(sdir, name, ddir, name, 0) == 0)
            return 0;
        if (errno != EXDEV && errno != EMLINK && errno != EPERM)
            return err_sys(e, "link '%s'", path);
    }
    if (st->st_nlink > 1)
        rc = put_linked(n, sdir, ddir, name, st);
    else
        rc = make_node(sdir, ddir, name, st) < 0 ? -1 : copy_meta(n, sdir, ddir, name, st);
    return rc < 0 ? err_sys(e, "copy '%s'", path) : 0;
}
