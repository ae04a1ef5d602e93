#include "runtime/workspace/workspace.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/workspace/copy.h"
#include "runtime/workspace/stack.h"

static void name_of(char buf[16], char kind, unsigned index)
{
    snprintf(buf, 16, "%c%u", kind, index);
}

/* Owner and mode of a layer's directory as those of `like`; an owner that has no id here (another user's
 * project, a shared group) becomes the sandbox's user. */
static int own_like(const struct workspace *w, int dir, const char *path, const struct stat *like)
{
    if (fchownat(dir, path, like->st_uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 &&
        (errno != EINVAL || fchownat(dir, path, w->uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0))
        return -1;
    if (fchownat(dir, path, (uid_t)-1, like->st_gid, AT_SYMLINK_NOFOLLOW) < 0 &&
        (errno != EINVAL || fchownat(dir, path, (uid_t)-1, w->gid, AT_SYMLINK_NOFOLLOW) < 0))
        return -1;
    return fchmodat(dir, path, like->st_mode & 07777, 0);
}

static int make_dir(const char *name, int *ret_fd, struct err **e)
{
    if (mkdir(name, 0755) < 0)
        return err_sys(e, "make '%s'", name);
    *ret_fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open '%s'", name) : 0;
}

/* Makes the same directory in the mask as below it: owner and mode of a merged directory are those
 * of the topmost layer that has it. */
static int mirror_dir(const struct workspace *w, int lower, int mask, const char *path,
                      struct err **e)
{
    struct stat st;
    if (fstatat(lower, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return 1;
    if (mkdirat(mask, path, 0700) < 0)
        return errno == EEXIST ? 0 : err_sys(e, "hide below '%s'", path);
    if (own_like(w, mask, path, &st) < 0)
        return err_sys(e, "hide below '%s'", path);
    return 0;
}

/* A layer with a whiteout for every hidden name: the sandbox finds nothing there, and what it makes
 * there is its own. Where it may make nothing, an empty file takes the name. */
static int make_mask(const struct workspace *w, int lower, int mask, struct err **e)
{
    for (size_t i = 0; i < w->hide->n; i++) {
        AUTOFREE char *path = str_dup(w->hide->v[i]);
        int rc = 0;
        for (char *s = strchr(path, '/'); s && rc == 0; s = strchr(s + 1, '/')) {
            *s = '\0';
            rc = mirror_dir(w, lower, mask, path, e);
            *s = '/';
        }
        if (rc < 0)
            return rc;
        mode_t kind = strv_has(w->protect, path) ? S_IFREG | 0444 : S_IFCHR;
        if (rc == 0 && mknodat(mask, path, kind, 0) < 0 && errno != EEXIST)
            return err_sys(e, "hide '%s'", path);
    }
    return 0;
}

static int make_empty(const struct workspace *w, int dir, const char *path, struct err **e)
{
    if (mkdirat(dir, path, 0755) < 0)
        return errno == EEXIST ? 0 : err_sys(e, "protect '%s'", path);
    return fchownat(dir, path, w->uid, w->gid, AT_SYMLINK_NOFOLLOW) < 0
               ? err_sys(e, "protect '%s'", path)
               : 0;
}

/* A name that can't be written must be there to be mounted on. What is not in the project is an empty directory,
 * in a layer that is nobody's change. */
static int make_places(const struct workspace *w, int lower, int mask, struct err **e)
{
    for (size_t i = 0; i < w->protect->n; i++) {
        AUTOFREE char *path = str_dup(w->protect->v[i]);
        int rc = 0;
        if (faccessat(lower, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        for (char *s = strchr(path, '/'); s && rc >= 0; s = strchr(s + 1, '/')) {
            *s = '\0';
            if ((rc = mirror_dir(w, lower, mask, path, e)) == 1)
                rc = make_empty(w, mask, path, e);
            *s = '/';
        }
        if (rc < 0 || (rc = make_empty(w, mask, path, e)) < 0)
            return rc;
    }
    return 0;
}

/* The layer between project and sandbox, where there must be one; its name is added to `lowers`. */
static int add_mask(const struct workspace *w, int lower, bool hide, struct str *lowers,
                    struct err **e)
{
    AUTOCLOSE int mask = -1;
    struct stat st;
    char m[16];
    int rc;

    if (!w->protect->n && !(hide && w->hide->n))
        return 0;
    name_of(m, 'm', w->index);
    if ((rc = make_dir(m, &mask, e)) < 0)
        return rc;
    if (fstat(lower, &st) < 0 || own_like(w, AT_FDCWD, m, &st) < 0)
        return err_sys(e, "prepare the mask of '%s'", w->src);
    if ((hide && (rc = make_mask(w, lower, mask, e)) < 0) ||
        (rc = make_places(w, lower, mask, e)) < 0)
        return rc;
    str_addf(lowers, "%s:", m);
    return 0;
}

static int mount_overlay(const struct workspace *w, const char *lowers, const char *upper,
                         const char *work, const char *at, struct err **e)
{
    struct statvfs vfs;
    AUTOFREE char *opts =
        str_printf("lowerdir=%s,upperdir=%s,workdir=%s,volatile,index=off,metacopy=off%s", lowers,
                   upper, work, w->rootless ? ",userxattr" : ",redirect_dir=nofollow,xino=off");

    if (mount("overlay", at, "overlay", MS_NODEV | (w->suid ? 0 : MS_NOSUID), opts) < 0)
        return err_sys(e, "mount an overlay over '%s' (see petri doctor)", w->src);
    /* a work directory that can't be written gives a read-only overlay without a word */
    if (statvfs(at, &vfs) < 0 || vfs.f_flag & ST_RDONLY)
        return err_new(e, ERR_FAILED, "the overlay over '%s' came up read-only", w->src);
    return 0;
}

static int make_upper(const struct workspace *w, int lower, char up[64], char work[64],
                      struct err **e)
{
    struct stat st;
    bool new = true;
    char entry[16];
    int rc;

    name_of(entry, 'w', w->index);
    if (w->plan->top) {
        if ((rc = stack_upper(w->plan, entry, up, work, &new, e)) < 0)
            return rc;
    } else {
        name_of(up, 'u', w->index);
        name_of(work, 'k', w->index);
        if (mkdir(up, 0755) < 0 || mkdir(work, 0755) < 0)
            return err_sys(e, "make '%s'", up);
    }
    if (new && (fstat(lower, &st) < 0 || own_like(w, AT_FDCWD, up, &st) < 0))
        return err_sys(e, "prepare the upper layer of '%s'", w->src);
    return 0;
}

/* Between the plan and now somebody may have put something else at the project's path. */
static int same_project(const struct workspace *w, int fd, struct err **e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, "stat '%s'", w->src);
    if (w->ino && (st.st_ino != w->ino || st.st_dev != w->dev))
        return err_new(e, ERR_DENIED, "'%s' was replaced by something else during the start",
                       w->src);
    return 0;
}

static int overlay(const struct workspace *w, int *ret_fd, struct err **e)
{
    char l[16], at[16], up[64], work[64], entry[16];
    AUTOCLOSE int clone = -1, place = -1, lower = -1, merged = -1;
    AUTOSTR struct str lowers = STR_INIT;
    int rc;

    name_of(l, 'l', w->index);
    name_of(at, 'w', w->index);
    name_of(entry, 'w', w->index);
    stack_lowers(w->plan, entry, &lowers);
    /* an ordinary user's copy must be recursive (locked mounts); overlay looks at the top only */
    if ((rc = mnt_clone(AT_FDCWD, w->src, MNT_RO | (w->rootless ? 0 : MNT_TOP), w->userns, &clone,
                        e)) < 0 ||
        (rc = make_dir(l, &place, e)) < 0 || (rc = mnt_attach(clone, place, w->src, e)) < 0)
        return rc;
    lower = open(l, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lower < 0)
        return err_sys(e, "open '%s'", w->src);
    if ((rc = same_project(w, lower, e)) < 0)
        return rc;
    if ((rc = make_upper(w, lower, up, work, e)) < 0)
        return rc;
    if ((rc = add_mask(w, lower, true, &lowers, e)) < 0)
        return rc;
    str_add(&lowers, l);
    if ((rc = make_dir(at, &merged, e)) < 0 ||
        (rc = mount_overlay(w, lowers.p, up, work, at, e)) < 0)
        return rc;
    *ret_fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open the workspace") : 0;
}

static int copied(const struct workspace *w, int *ret_fd, struct err **e)
{
    char name[16];
    AUTOCLOSE int dst = -1, src = -1;
    int rc;

    name_of(name, 'u', w->index);
    if ((rc = make_dir(name, &dst, e)) < 0)
        return rc;
    close_p(&dst);
    src = open(w->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dst = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (src < 0 || dst < 0)
        return err_sys(e, "open '%s'", w->src);
    if ((rc = same_project(w, src, e)) < 0)
        return rc;
    if ((rc = copy_tree(src, dst, w->hide, w->uid, w->gid, e)) < 0)
        return err_wrap(e, "copy '%s'", w->src);
    if ((rc = make_places(w, dst, dst, e)) < 0)
        return rc;
    *ret_fd = TAKE_FD(dst);
    return 0;
}

/* The live directory itself; attached, because older kernels can't copy a mount that is not. */
static int bound(const struct workspace *w, int *ret_fd, struct err **e)
{
    char at[16];
    AUTOCLOSE int fd = -1, place = -1;
    int rc;

    name_of(at, 'w', w->index);
    if ((rc = mnt_clone(AT_FDCWD, w->src, 0, w->userns, &fd, e)) < 0 ||
        (rc = same_project(w, fd, e)) < 0 || (rc = make_dir(at, &place, e)) < 0 ||
        (rc = mnt_attach(fd, place, w->src, e)) < 0)
        return rc;
    *ret_fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open the workspace") : 0;
}

/* A sandbox that stays: the copy is made once, in its first layer, and the others lie over it. */
static int copied_once(const struct workspace *w, int *ret_fd, struct err **e)
{
    char at[16], up[64], work[64], base[32], making[40];
    AUTOCLOSE int src = -1, dst = -1, merged = -1;
    AUTOSTR struct str lowers = STR_INIT;
    int rc;

    snprintf(base, sizeof base, "c0/w%u", w->index);
    snprintf(making, sizeof making, "%s.new", base);
    if (access(base, F_OK) < 0) {
        if ((rc = fs_remove_tree(AT_FDCWD, making, e)) < 0)
            return rc;
        src = open(w->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (src < 0 || mkdir(making, 0755) < 0 ||
            (dst = open(making, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            return err_sys(e, "copy '%s'", w->src);
        if ((rc = same_project(w, src, e)) < 0 ||
            (rc = copy_tree(src, dst, w->hide, w->uid, w->gid, e)) < 0)
            return err_wrap(e, "copy '%s'", w->src);
        if (rename(making, base) < 0)
            return err_sys(e, "copy '%s'", w->src);
    }
    close_p(&dst);
    if ((dst = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, "open the copy of '%s'", w->src);
    name_of(at, 'w', w->index);
    stack_lowers(w->plan, base + 3, &lowers);
    if ((rc = add_mask(w, dst, false, &lowers, e)) < 0)
        return rc;
    lowers.p[lowers.len - 1] = '\0';
    if ((rc = make_upper(w, dst, up, work, e)) < 0 || (rc = make_dir(at, &merged, e)) < 0 ||
        (rc = mount_overlay(w, lowers.p, up, work, at, e)) < 0)
        return rc;
    *ret_fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open the workspace") : 0;
}

int workspace_mount(const struct workspace *w, int *ret_fd, struct err **e)
{
    if (w->mode == WORKSPACE_OVERLAY)
        return overlay(w, ret_fd, e);
    if (w->mode == WORKSPACE_COPY && w->plan->top)
        return copied_once(w, ret_fd, e);
    return w->mode == WORKSPACE_COPY ? copied(w, ret_fd, e) : bound(w, ret_fd, e);
}

int workspace_count(const struct plan *p, struct changes *ret, struct err **e)
{
    AUTOCLOSE int lower = open("l0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTOCLOSE int up = open(p->top ? "t/w0" : "u0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lower < 0 || up < 0)
        return err_sys(e, "open the layers of the workspace");
    return workspace_changes(up, lower, ret, e);
}
