/* runtime/change/stage.c - new files beside their places, old ones in the journal. See apply.h. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fs.h"
#include "runtime/change/apply.h"

enum { FEW = 64, ALIGN = 4096, ALIGN_FROM = 65536 };

struct stage {
    const struct apply *a;
    struct op *o;
    int blob; /* journal: old */
    uint64_t end;
    bool no_clone; /* the file system has no reflinks */
    struct dirs parents, anchors;
};

static int moved(const struct item *it, struct err **e)
{
    return err_new(e, ERR_BUSY, "'%s' changed in the project just now; look at it and try again",
                   it->path);
}

/* The old content goes to the journal; what is copied is exactly what was looked at. */
static int keep_file(struct stage *s, struct item *it, int dir, const char *name, struct err **e)
{
    AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool copy = it->step != STEP_CHMOD;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s'", it->path);
    if (!node_same_stat(&st, &it->seen))
        return moved(it, e);
    if (it->old.size >= ALIGN_FROM)
        s->end = (s->end + ALIGN - 1) / ALIGN * ALIGN;
    it->old.at = s->end;
    int rc = node_hash_fd(fd, 0, it->old.size, copy ? s->blob : -1, s->end, it->old.digest, e);
    if (rc < 0)
        return err_wrap(e, "keep '%s' in the journal", it->path);
    if (fstat(fd, &st) < 0 || !node_same_stat(&st, &it->seen))
        return moved(it, e);
    if (copy)
        s->end += it->old.size;
    free(it->old.xattrs);
    it->old.xattrs = node_xattrs(fd);
    return 0;
}

static int keep_old(struct stage *s, struct item *it, struct err **e)
{
    const char *name;
    struct stat st;
    int dir, rc;

    if (it->old.kind == NODE_NONE) {
        /* a parent that only comes with this operation, even in place of a link, is as good as absence:
         * nothing is ever made through one */
        CLEANUP(err_free_p) struct err *why = NULL;
        rc = dirs_parent(&s->parents, it->path, &dir, &name, &why);
        if (rc == -ERR_NOT_FOUND || rc == -ERR_DENIED)
            return 0;
        if (rc < 0) {
            *e = TAKE_PTR(why);
            return rc;
        }
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            /* or it goes first, and something else comes */
            return apply_find(s->o, it->path, true) ? 0 : moved(it, e);
        }
        return 0;
    }
    if ((rc = dirs_parent(&s->parents, it->path, &dir, &name, e)) < 0)
        return rc;
    if (it->old.kind == NODE_FILE)
        return keep_file(s, it, dir, name, e);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != it->seen.st_ino ||
        (it->old.kind == NODE_LINK && !node_matches(dir, name, &it->old)))
        return moved(it, e);
    if (it->old.kind == NODE_DIR) {
        AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        free(it->old.xattrs);
        it->old.xattrs = fd < 0 ? NULL : node_xattrs(fd);
    }
    return 0;
}

static int own(int fd, const struct item *it, struct err **e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, "look at the new '%s'", it->path);
    bool other = (it->new.uid != NODE_ANY &&st.st_uid != it->new.uid) ||
                 (it->new.gid != NODE_ANY &&st.st_gid != it->new.gid);
    if (other && fchown(fd, it->new.uid, it->new.gid) < 0)
        return err_sys(e,
                       "'%s' belongs to %u:%u, and you can't make another file that does (chown or "
                       "chgrp it to yourself, or promote only other paths)",
                       it->path, it->new.uid, it->new.gid);
    if (it->new.xattrs)
        node_set_xattrs(fd, it->new.xattrs);
    if (fchmod(fd, it->new.mode) < 0)
        return err_sys(e, "mode of '%s'", it->path);
    return 0;
}

static int fill(struct stage *s, struct item *it, int in, uint64_t from, int out, struct err **e)
{
    char digest[65];
    int rc;

    if (from == 0 && !s->no_clone && ioctl(out, FICLONE, in) == 0) {
        if (ftruncate(out, (off_t)it->new.size) < 0)
            return err_sys(e, "size of '%s'", it->path);
        rc = node_hash_fd(out, 0, it->new.size, -1, 0, digest, e);
    } else {
        s->no_clone = true;
        rc = node_hash_fd(in, from, it->new.size, out, 0, digest, e);
        if (rc == 0 && ftruncate(out, (off_t)it->new.size) < 0)
            rc = err_sys(e, "size of '%s'", it->path);
    }
    if (rc < 0)
        return err_wrap(e, "write the new '%s'", it->path);
    if (it->exact && strcmp(digest, it->new.digest) != 0)
        return err_new(e, ERR_CORRUPT, "what the journal kept of '%s' is damaged", it->path);
    if (*it->new.digest && strcmp(digest, it->new.digest) != 0)
        return err_new(e, ERR_BUSY, "the content of '%s' is not what was reviewed; try again",
                       it->path);
    memcpy(it->new.digest, digest, sizeof digest);
    return 0;
}

static int stage_file(struct stage *s, struct item *it, int dir, const char *temp, struct err **e)
{
    AUTOCLOSE int in = -1, out = -1;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, it->new.mtime };
    uint64_t from = 0;
    struct stat st;
    int rc;

    if ((rc = s->a->content(s->a->arg, it, &in, &from, e)) < 0)
        return rc;
    out = openat(dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(e, "write into '%s' of the project", *it->anchor ? it->anchor : ".");
    if ((rc = fill(s, it, in, from, out, e)) < 0)
        return rc;
    if (!it->exact && it->old.kind == NODE_FILE) /* what the host's file had stays */
        it->new.xattrs = str_dup(it->old.xattrs);
    if ((rc = own(out, it, e)) < 0)
        return rc;
    if (it->exact && futimens(out, times) < 0)
        return err_sys(e, "time of '%s'", it->path);
    if (s->o->n <= FEW && fsync(out) < 0)
        return err_sys(e, "sync the new '%s'", it->path);
    if (fstat(out, &st) < 0)
        return err_sys(e, "look at the new '%s'", it->path);
    it->new.mtime = st.st_mtim;
    it->new.uid = st.st_uid;
    it->new.gid = st.st_gid;
    return 0;
}

static int stage_new(struct stage *s, struct item *it, size_t i, struct err **e)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, it->new.mtime };
    char temp[64];
    int dir, rc;

    if (it->new.kind == NODE_NONE || it->step == STEP_CHMOD)
        return 0;
    if ((rc = dirs_get(&s->anchors, it->anchor, &dir, e)) < 0)
        return rc;
    item_temp(s->o, i, false, temp);
    if (it->new.kind == NODE_FILE)
        return stage_file(s, it, dir, temp, e);
    if (it->new.kind == NODE_LINK) {
        if (symlinkat(it->new.link, dir, temp) < 0)
            return err_sys(e, "write into '%s' of the project", *it->anchor ? it->anchor : ".");
        if (geteuid() == 0 &&
            fchownat(dir, temp, it->new.uid, it->new.gid, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(e, "owner of '%s'", it->path);
        if (it->exact && utimensat(dir, temp, times, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(e, "time of '%s'", it->path);
        return 0;
    }
    if (mkdirat(dir, temp, 0700) < 0)
        return err_sys(e, "write into '%s' of the project", *it->anchor ? it->anchor : ".");
    AUTOCLOSE int fd = openat(dir, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, "open the new '%s'", it->path) : own(fd, it, e);
}

int stage_all(const struct apply *a, struct op *o, int entry, struct err **e)
{
    struct stage s = {
        .a = a, .o = o, .blob = -1, .parents = DIRS_INIT(a->root), .anchors = DIRS_INIT(a->root)
    };
    AUTOCLOSE int blob = openat(entry, "old", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = 0;

    if (blob < 0)
        return err_sys(e, "write the journal");
    s.blob = blob;
    for (size_t i = 0; i < o->n && rc == 0; i++) {
        if (a->stopped && *a->stopped)
            rc = err_new(e, ERR_FAILED, "stopped; nothing was changed");
        if (rc == 0)
            rc = keep_old(&s, &o->v[i], e);
        if (rc == 0)
            rc = stage_new(&s, &o->v[i], i, e);
        if (a->progress)
            a->progress(a->arg, i + 1, o->n);
    }
    if (rc == 0 && (ftruncate(blob, (off_t)s.end) < 0 || fsync(blob) < 0))
        rc = err_sys(e, "write the journal");
    dirs_free_p(&s.parents);
    dirs_free_p(&s.anchors);
    return rc;
}

int stage_sync(const struct apply *a, struct op *o, struct err **e)
{
    struct dirs d = DIRS_INIT(a->root);
    int fd, rc = 0;

    if (o->n > FEW) {
        AUTOCLOSE int root = openat(a->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return root < 0 || syncfs(root) < 0 ? err_sys(e, "sync the project's file system") : 0;
    }
    for (size_t i = 0; i < o->n && rc == 0; i++) {
        if (i && strcmp(o->v[i].anchor, o->v[i - 1].anchor) == 0)
            continue;
        rc = dirs_get(&d, o->v[i].anchor, &fd, e);
        if (rc == 0 && fsync(fd) < 0)
            rc = err_sys(e, "sync the directory '%s'", o->v[i].anchor);
    }
    dirs_free_p(&d);
    return rc;
}

static int clean_dir(int fd, const char *prefix, struct err **e)
{
    int dup = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
    DIR *d = dup < 0 ? NULL : fdopendir(dup);
    struct dirent *de;

    if (!d) {
        close_p(&dup);
        return err_sys(e, "read a directory of the project");
    }
    while (rc == 0 && (de = readdir(d)))
        if (str_starts(de->d_name, prefix) && unlinkat(fd, de->d_name, 0) < 0 && errno != ENOENT &&
            unlinkat(fd, de->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            rc = err_sys(e, "remove '%s'", de->d_name);
    closedir(d);
    return rc;
}

int stage_clean(int root, const struct op *o, const struct strv *anchors, struct err **e)
{
    AUTOFREE char *prefix = str_printf(".petri-%.16s-", o->token);
    int rc = 0;

    for (size_t i = 0; i < anchors->n && rc == 0; i++) {
        AUTOCLOSE int fd = -1;
        if (node_open_dir(root, anchors->v[i], &fd, NULL) == 0)
            rc = clean_dir(fd, prefix, e);
    }
    return rc;
}
