#include "runtime/workspace/copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/workspace/layer_node.h"

struct copy {
    const struct strv *skip;
    uid_t uid;
    gid_t gid;
    struct str path; /* relative, of where we are */
};

static int copy_file(int sdir, int ddir, const char *name, const struct stat *st, struct copy *c,
                     struct err **e)
{
    AUTOCLOSE int in = openat(sdir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    AUTOCLOSE int out = -1;
    struct timespec times[2] = { st->st_atim, st->st_mtim };

    if (in < 0)
        return err_sys(e, "open '%s'", c->path.p);
    out = openat(ddir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(e, "create '%s'", c->path.p);
    if (node_copy_data(in, out, st->st_size) < 0)
        return errno == ESTALE
                   ? err_new(e, ERR_FAILED, "'%s' shrank while it was copied", c->path.p)
                   : err_sys(e, "copy '%s'", c->path.p);
    if (fchown(out, c->uid, c->gid) < 0 || fchmod(out, st->st_mode & 0777) < 0 ||
        futimens(out, times) < 0)
        return err_sys(e, "owner, mode and time of '%s'", c->path.p);
    return 0;
}

static int copy_dir(int sdir, int ddir, struct copy *c, struct err **e);

static int copy_entry(int sdir, int ddir, const char *name, struct copy *c, struct err **e)
{
    struct stat st;
    int rc;

    if (fstatat(sdir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "stat '%s'", c->path.p);
    if (S_ISREG(st.st_mode))
        return copy_file(sdir, ddir, name, &st, c, e);
    if (S_ISLNK(st.st_mode)) {
        AUTOFREE char *target = fs_readlink(sdir, name);
        if (!target || symlinkat(target, ddir, name) < 0 ||
            fchownat(ddir, name, c->uid, c->gid, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(e, "copy the link '%s'", c->path.p);
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return 0; /* sockets, FIFOs and devices are not part of a copy */
    AUTOCLOSE int s = openat(sdir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTOCLOSE int d = -1;
    struct timespec times[2] = { st.st_atim, st.st_mtim };
    if (s < 0 || mkdirat(ddir, name, 0700) < 0)
        return err_sys(e, "copy the directory '%s'", c->path.p);
    d = openat(ddir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (d < 0)
        return err_sys(e, "open '%s'", c->path.p);
    if ((rc = copy_dir(s, d, c, e)) < 0)
        return rc;
    if (fchown(d, c->uid, c->gid) < 0 || fchmod(d, st.st_mode & 0777) < 0 || futimens(d, times) < 0)
        return err_sys(e, "owner, mode and time of '%s'", c->path.p);
    return 0;
}

static int copy_dir(int sdir, int ddir, struct copy *c, struct err **e)
{
    DIR *d = fs_list(sdir);
    struct dirent *de;
    size_t len = c->path.len;
    int rc = 0;

    if (!d)
        return err_sys(e, "read directory '%s'", c->path.p ? c->path.p : ".");
    while (rc == 0 && (de = fs_next(d))) {
        str_addf(&c->path, "%s%s", len ? "/" : "", de->d_name);
        if (!c->skip || !strv_has(c->skip, c->path.p))
            rc = copy_entry(sdir, ddir, de->d_name, c, e);
        c->path.p[c->path.len = len] = '\0';
    }
    closedir(d);
    return rc;
}

int copy_tree(int src, int dst, const struct strv *skip, uid_t uid, gid_t gid, struct err **e)
{
    struct copy c = { .skip = skip, .uid = uid, .gid = gid };
    struct stat st;
    int rc = copy_dir(src, dst, &c, e);

    if (rc == 0 &&
        (fstat(src, &st) < 0 || fchown(dst, uid, gid) < 0 || fchmod(dst, st.st_mode & 0777) < 0))
        rc = err_sys(e, "owner and mode of the copy");
    str_reset(&c.path);
    return rc;
}
