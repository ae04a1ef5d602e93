/* runtime/workspace/changes.c - what an upper layer changed, counted in files and links. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/workspace/workspace.h"

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static bool is_opaque(int dir)
{
    char v = 0;
    return (fgetxattr(dir, "trusted.overlay.opaque", &v, 1) == 1 ||
            fgetxattr(dir, "user.overlay.opaque", &v, 1) == 1) &&
           v == 'y';
}

/* Counts files and links at or below `name`. */
static uint64_t count_files(int dir, const char *name)
{
    AUTOCLOSE int fd = -1;
    struct stat st;
    struct dirent *de;
    uint64_t n = 0;
    DIR *d;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return 1;
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return 0;
    fd = -EBADF;
    while ((de = fs_next(d)))
        n += count_files(dirfd(d), de->d_name);
    closedir(d);
    return n;
}

static bool same_content(int a_dir, int b_dir, const char *name, const struct stat *a,
                         const struct stat *b)
{
    if ((a->st_mode & (S_IFMT | 0111)) != (b->st_mode & (S_IFMT | 0111)) ||
        a->st_size != b->st_size)
        return false;
    if (S_ISLNK(a->st_mode)) {
        AUTOFREE char *x = fs_readlink(a_dir, name), *y = fs_readlink(b_dir, name);
        return str_eq(x, y);
    }
    AUTOCLOSE int x = openat(a_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    AUTOCLOSE int y = openat(b_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char p[32768], q[32768];
    ssize_t n = -1, m;
    if (x < 0 || y < 0)
        return false;
    while ((n = RETRY(read(x, p, sizeof p))) > 0) {
        for (ssize_t k = 0; k < n; k += m)
            if ((m = RETRY(read(y, q + k, (size_t)(n - k)))) <= 0)
                return false;
        if (memcmp(p, q, (size_t)n) != 0)
            return false;
    }
    return n == 0;
}

static int compare_dir(int up, int low, struct changes *c, struct err **e);

static int compare_entry(int up, int low, const char *name, struct changes *c, struct err **e)
{
    struct stat us, ls;
    bool below = low >= 0 && fstatat(low, name, &ls, AT_SYMLINK_NOFOLLOW) == 0;

    if (fstatat(up, name, &us, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "look at the changed file '%s'", name);
    if (is_whiteout(&us)) {
        c->deleted += below ? count_files(low, name) : 0;
        return 0;
    }
    if (!S_ISDIR(us.st_mode)) {
        if (!below) {
            c->added++;
        } else if (S_ISDIR(ls.st_mode)) {
            c->deleted += count_files(low, name);
            c->added++;
        } else if (!same_content(up, low, name, &us, &ls)) {
            c->modified++;
        }
        return 0;
    }
    AUTOCLOSE int u = openat(up, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTOCLOSE int l = -1;
    if (u < 0)
        return err_sys(e, "open the changed directory '%s'", name);
    if (below && !S_ISDIR(ls.st_mode))
        c->deleted++;
    else if (below)
        l = openat(low, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return compare_dir(u, l, c, e);
}

static int compare_dir(int up, int low, struct changes *c, struct err **e)
{
    DIR *d = fs_list(up);
    struct dirent *de;
    int rc = 0;

    if (!d)
        return err_sys(e, "read a changed directory");
    while (rc == 0 && (de = fs_next(d)))
        rc = compare_entry(up, low, de->d_name, c, e);
    closedir(d);
    if (rc < 0 || low < 0 || !is_opaque(up))
        return rc;
    /* an opaque directory: what only the lower has is gone */
    d = fs_list(low);
    while (d && (de = fs_next(d))) {
        struct stat st;
        if (fstatat(up, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            c->deleted += count_files(low, de->d_name);
    }
    if (d)
        closedir(d);
    return 0;
}

int workspace_changes(int upper, int lower, struct changes *ret, struct err **e)
{
    struct changes c = { 0 };
    int rc = compare_dir(upper, lower, &c, e);
    if (rc == 0)
        *ret = c;
    return rc;
}
