#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

int fs_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err **e)
{
    AUTOCLOSE int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    AUTOSTR struct str s = STR_INIT;
    char buf[16384];
    ssize_t n;

    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    while ((n = RETRY(read(fd, buf, sizeof buf))) > 0) {
        if (s.len + (size_t)n > max)
            return err_new(e, ERR_INVALID, "'%s' is larger than %zu bytes", path, max);
        str_addn(&s, buf, (size_t)n);
    }
    if (n < 0)
        return err_sys(e, "read '%s'", path);
    if (ret_len)
        *ret_len = s.len;
    *ret = str_take(&s);
    return 0;
}

int fs_write_all(int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n) {
        ssize_t w = RETRY(write(fd, c, n));
        if (w < 0)
            return -1;
        c += w;
        n -= (size_t)w;
    }
    return 0;
}

int fs_pwrite_all(int fd, const void *p, size_t n, uint64_t at)
{
    const char *c = p;
    while (n) {
        ssize_t w = RETRY(pwrite(fd, c, n, (off_t)at));
        if (w < 0)
            return -1;
        c += w;
        at += (uint64_t)w;
        n -= (size_t)w;
    }
    return 0;
}

int fs_write_at(int dirfd, const char *path, const char *text, struct err **e)
{
    AUTOCLOSE int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    if (RETRY(write(fd, text, strlen(text))) < 0)
        return err_sys(e, "write '%s'", path);
    return 0;
}

int fs_write_atomic(int dirfd, const char *path, const void *p, size_t n, mode_t mode,
                    struct err **e)
{
    const char *base = strrchr(path, '/');
    int dirlen = base ? (int)(base - path) + 1 : 0;
    AUTOFREE char *dir = dirlen ? str_printf("%.*s", dirlen, path) : str_dup(".");
    AUTOFREE char *tmp =
        str_printf("%.*s.tmp-%d-%s", dirlen, path, (int)getpid(), base ? base + 1 : path);
    AUTOCLOSE int fd = -1, dfd = -1;

    (void)unlinkat(dirfd, tmp, 0);
    fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(e, "create '%s'", tmp);
    dfd = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dfd < 0 || fs_write_all(fd, p, n) < 0 || fsync(fd) < 0 ||
        renameat(dirfd, tmp, dirfd, path) < 0) {
        err_sys(e, "write '%s'", path);
        (void)unlinkat(dirfd, tmp, 0);
        return -ERR_FAILED;
    }
    if (fsync(dfd) < 0)
        return err_sys(e, "sync the directory of '%s'", path);
    return 0;
}

int fs_copy_fd(int in, int out, struct err **e)
{
    char buf[65536];
    ssize_t n;

    while ((n = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) > 0)
        ;
    if (n == 0)
        return 0;
    while ((n = RETRY(read(in, buf, sizeof buf))) > 0)
        if (fs_write_all(out, buf, (size_t)n) < 0)
            return err_sys(e, "write a copy");
    return n < 0 ? err_sys(e, "read for a copy") : 0;
}

void fs_log(const char *path, const void *p, size_t n, off_t max)
{
    AUTOCLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    AUTOFREE char *old = str_printf("%s.1", path);
    struct stat st;

    if (fd < 0)
        return;
    (void)!write(fd, p, n);
    if (fstat(fd, &st) == 0 && st.st_size > max)
        (void)rename(path, old);
}

int fs_mkdirs(const char *path, mode_t mode, struct err **e)
{
    AUTOFREE char *p = str_dup(path);
    if (mkdir(p, mode) == 0 || (errno == EEXIST && fs_is_dir(p)))
        return 0;
    for (char *s = strchr(p + 1, '/');; s = strchr(s + 1, '/')) {
        if (s)
            *s = '\0';
        if (mkdir(p, mode) < 0 && errno != EEXIST)
            return err_sys(e, "make directory '%s'", p);
        if (!s)
            break;
        *s = '/';
    }
    if (!fs_is_dir(path))
        return err_new(e, ERR_INVALID, "'%s' is not a directory", path);
    return 0;
}

int fs_private_dir(const char *path, struct err **e)
{
    AUTOCLOSE int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        AUTOFREE char *parent = str_dup(path);
        char *slash = strrchr(parent, '/');
        if (errno != ENOENT || !slash || slash == parent)
            return err_sys(e, "make directory '%s'", path);
        *slash = '\0';
        int rc = fs_mkdirs(parent, 0700, e);
        if (rc < 0)
            return rc;
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return err_sys(e, "make directory '%s'", path);
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s' (petri's own directory, it must not be a link)", path);
    if (st.st_uid != geteuid())
        return err_new(e, ERR_DENIED,
                       "'%s' belongs to uid %d, not to you; remove it or set PETRI_HOME", path,
                       (int)st.st_uid);
    if (st.st_mode & 077)
        return err_new(
            e, ERR_DENIED,
            "'%s' is open to others (mode %04o) and can't be petri's own; chmod 0700 it, "
            "or name another directory",
            path, st.st_mode & 07777);
    return 0;
}

/* Removing a tree. A sandbox may have nested directories deeper than there are descriptors: past
 * MAX_OPEN levels a directory is renamed up to the top of the tree and taken in another round. */
enum { MAX_OPEN = 64 };

struct removal {
    int top;
    uint64_t mount;
    unsigned moved;
    bool again;
};

/* The mount a name lies on; a bind mount has the device number of its source, but its own id. */
static uint64_t mount_id(int dirfd, const char *name, mode_t *ret_mode)
{
    struct statx sx;
    if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_MNT_ID | STATX_MODE, &sx) < 0)
        return 0;
    *ret_mode = sx.stx_mode;
    return sx.stx_mnt_id;
}

static int open_for_removal(int dirfd, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
        (st.st_mode & 0700) != 0700 && fchmodat(dirfd, name, 0700, 0) < 0)
        return -1;
    return openat(dirfd, name, flags);
}

static int remove_content(struct removal *r, int fd, unsigned depth, const char *name,
                          struct err **e);

static int remove_dir(struct removal *r, int dirfd, const char *name, unsigned depth,
                      struct err **e)
{
    AUTOCLOSE int fd = -1;
    int rc;

    /* an overlay's work/work has mode 000: rmdir needs no right to read it */
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
        return 0;
    fd = open_for_removal(dirfd, name);
    if (fd < 0)
        return err_sys(e, "open '%s'", name);
    if (depth >= MAX_OPEN) {
        char up[32];
        snprintf(up, sizeof up, ".deep-%d-%u", (int)getpid(), r->moved++);
        r->again = true;
        return renameat(dirfd, name, r->top, up) < 0 ? err_sys(e, "move '%s' up", name) : 0;
    }
    rc = remove_content(r, fd, depth + 1, name, e);
    if (rc == 0 && unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
        return err_sys(e, "remove '%s'", name);
    return rc;
}

static int remove_content(struct removal *r, int fd, unsigned depth, const char *name,
                          struct err **e)
{
    DIR *d = fs_list(fd);
    struct dirent *de;
    int rc = 0;

    if (!d)
        return err_sys(e, "read directory '%s'", name);
    while (rc == 0 && (de = fs_next(d))) {
        mode_t mode = 0;
        if (unlinkat(fd, de->d_name, 0) == 0 || errno == ENOENT)
            continue;
        int sys = errno;
        uint64_t mount = mount_id(fd, de->d_name, &mode);
        errno = sys;
        if (mount && mount != r->mount)
            rc = err_new(e, ERR_DENIED, "'%s/%s' is another mount; left alone", name, de->d_name);
        else if (!S_ISDIR(mode))
            rc = err_sys(e, "remove '%s/%s'", name, de->d_name);
        else
            rc = remove_dir(r, fd, de->d_name, depth, e);
    }
    closedir(d);
    return rc;
}

int fs_remove_tree(int dirfd, const char *path, struct err **e)
{
    AUTOCLOSE int fd = -1;
    struct removal r = { 0 };
    mode_t mode;
    int rc;

    if (unlinkat(dirfd, path, 0) == 0 || errno == ENOENT)
        return 0;
    fd = open_for_removal(dirfd, path);
    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    r.top = fd;
    r.mount = mount_id(fd, "", &mode);
    do {
        r.again = false;
        rc = remove_content(&r, fd, 1, path, e);
    } while (rc == 0 && r.again);
    if (rc == 0 && unlinkat(dirfd, path, AT_REMOVEDIR) < 0)
        rc = err_sys(e, "remove '%s'", path);
    return rc;
}

int fs_open_beneath(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | resolve,
    };
    /* EAGAIN: a rename happened meanwhile and the kernel could not be sure */
    for (int i = 0; i < 16; i++) {
        int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            return fd;
    }
    return -1;
}

bool fs_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool fs_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

char *fs_readlink(int dirfd, const char *path)
{
    char buf[PATH_MAX];
    ssize_t n = readlinkat(dirfd, path, buf, sizeof buf - 1);
    if (n < 0)
        return NULL;
    buf[n] = '\0';
    return str_dup(buf);
}

char *fs_realpath(const char *path)
{
    return realpath(path, NULL);
}

char *fs_realpath_part(const char *path)
{
    AUTOFREE char *head = str_dup(path);

    for (char *slash; (slash = strrchr(head, '/')) && slash != head; *slash = '\0') {
        AUTOFREE char *real = fs_realpath(head);
        if (real)
            return str_printf("%s%s", real, path + strlen(head));
    }
    return NULL;
}

DIR *fs_list(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d)
        close_p(&fd);
    return d;
}

struct dirent *fs_next(DIR *d)
{
    struct dirent *de;

    do
        de = readdir(d);
    while (de && (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0));
    return de;
}
