#include "base/mnt.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "base/fs.h"

int mnt_clone(int dirfd, const char *src, unsigned flags, int userns, int *ret_fd, struct err **e)
{
    unsigned rec = flags & MNT_TOP ? 0 : AT_RECURSIVE;
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_NODEV | (flags & MNT_SUID ? 0 : MOUNT_ATTR_NOSUID) |
                    (flags & MNT_RO ? MOUNT_ATTR_RDONLY : 0) | (userns >= 0 ? MOUNT_ATTR_IDMAP : 0),
        .propagation = MS_PRIVATE,
        .userns_fd = userns >= 0 ? (uint64_t)userns : 0,
    };
    AUTOCLOSE int fd = open_tree(
        dirfd, src, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | rec | (*src ? 0 : AT_EMPTY_PATH));
    if (fd < 0)
        return err_sys(e, "take '%s'", src);
    if (mount_setattr(fd, "", AT_EMPTY_PATH | rec, &attr, sizeof attr) < 0)
        return err_sys(e, "set the mount flags of '%s'", src);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int mnt_attach(int fd, int target, const char *name, struct err **e)
{
    if (move_mount(fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(e, "mount '%s'", name);
    return 0;
}

/* Opens the parent of `path` below root, made where missing; *ret_name is the last component. */
static int parent_of(int root, const char *path, const char **ret_name, struct err **e)
{
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 3);
    const char *p = path;

    while (dir >= 0) {
        char name[256];
        size_t n;
        while (*p == '/')
            p++;
        n = strcspn(p, "/");
        if (!p[n + strspn(p + n, "/")]) {
            *ret_name = p;
            return dir;
        }
        if (n >= sizeof name) {
            errno = ENAMETOOLONG;
            break;
        }
        memcpy(name, p, n);
        name[n] = '\0';
        if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST && errno != EROFS)
            break;
        int next = fs_open_beneath(dir, name, O_PATH | O_DIRECTORY, 0, 0);
        if (next < 0)
            break;
        close(dir);
        dir = next;
        p += n;
    }
    err_sys(e, "make '%s' in the sandbox", path);
    close_p(&dir);
    return -1;
}

static int make_last(int root, const char *path, bool dir, int *ret_fd, struct err **e)
{
    const char *last = NULL;
    AUTOCLOSE int parent = parent_of(root, path, &last, e);
    AUTOFREE char *name = NULL;
    int fd;

    if (parent < 0)
        return -ERR_FAILED;
    name = str_printf("%.*s", (int)strcspn(last, "/"), last);
    if (!*name) {
        *ret_fd = TAKE_FD(parent);
        return 0;
    }
    if (dir) {
        if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return err_sys(e, "make '%s' in the sandbox", path);
    } else {
        AUTOCLOSE int f =
            openat(parent, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (f < 0 && errno != EEXIST && errno != EROFS)
            return err_sys(e, "make '%s' in the sandbox", path);
    }
    fd = fs_open_beneath(parent, name, O_PATH | (dir ? O_DIRECTORY : 0), 0, 0);
    if (fd < 0)
        return err_sys(e, "'%s' is no plain %s in the sandbox", path, dir ? "directory" : "file");
    *ret_fd = fd;
    return 0;
}

int mnt_mkdirs(int root, const char *path, int *ret_fd, struct err **e)
{
    return make_last(root, path, true, ret_fd, e);
}

int mnt_mkfile(int root, const char *path, int *ret_fd, struct err **e)
{
    return make_last(root, path, false, ret_fd, e);
}

void mnt_act_as(uid_t uid, gid_t gid)
{
    setfsgid(gid);
    setfsuid(uid);
}
