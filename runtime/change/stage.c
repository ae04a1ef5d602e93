/* runtime/change/stage.c - new files beside their places, old ones in the journal. See apply.h. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fs.h"
#include "runtime/change/apply.h"
#include "runtime/change/crew.h"
#include "runtime/change/hash.h"

enum { FEW = 64, ALIGN = 4096, ALIGN_FROM = 65536, AHEAD = 1 << 20 };

struct stage {
    const struct apply *a;
    struct op *o;
    int blob;         /* journal: old */
    struct str ahead; /* what is to be written there, at.. */
    uint64_t at;
    bool no_clone; /* the file system has no reflinks */
    struct dirs parents, anchors;
};

static int moved(const struct item *it, struct err **e)
{
    return err_new(e, ERR_BUSY, "'%s' changed in the project just now; look at it and try again",
                   it->path);
}

/* Where in the journal each old content goes; returns where they end. */
static uint64_t place_old(struct op *o)
{
    uint64_t end = 0;
    for (size_t i = 0; i < o->n; i++) {
        struct node *old = &o->v[i].old;
        if (old->kind != NODE_FILE || o->v[i].step == STEP_CHMOD)
            continue;
        if (old->size >= ALIGN_FROM)
            end = (end + ALIGN - 1) / ALIGN * ALIGN;
        old->at = end;
        end += old->size;
    }
    return end;
}

static int flush(struct stage *s, struct err **e)
{
    if (fs_pwrite_all(s->blob, s->ahead.p, s->ahead.len, s->at) < 0)
        return err_sys(e, "write the journal");
    s->ahead.len = 0;
    return 0;
}

/* A small file in one read; many of them in one write. */
static int keep_small(struct stage *s, struct item *it, int fd, struct err **e)
{
    char buf[ALIGN_FROM];
    ssize_t n = RETRY(pread(fd, buf, it->old.size, 0));
    int rc;

    if (n != (ssize_t)it->old.size)
        return n < 0 ? err_sys(e, "read '%s'", it->path) : moved(it, e);
    if ((s->at + s->ahead.len != it->old.at || s->ahead.len >= AHEAD) && (rc = flush(s, e)) < 0)
        return rc;
    if (!s->ahead.len)
        s->at = it->old.at;
    hash_text(buf, (size_t)n, it->old.digest);
    str_addn(&s->ahead, buf, (size_t)n);
    return 0;
}

/* The old content goes to the journal; what is copied is exactly what was looked at. */
static int keep_file(struct stage *s, struct item *it, int dir, const char *name, struct err **e)
{
    AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s'", it->path);
    if (!node_same_stat(&st, &it->seen))
        return moved(it, e);
    bool small = it->old.size < ALIGN_FROM && st.st_blocks * 512 >= st.st_size;
    bool copy = it->step != STEP_CHMOD;
    int rc = small && copy ? keep_small(s, it, fd, e)
                           : node_hash_fd(fd, 0, it->old.size, copy ? s->blob : -1, it->old.at,
                                          it->old.digest, e);
    if (rc < 0)
        return err_wrap(e, "keep '%s' in the journal", it->path);
    if (fstat(fd, &st) < 0 || !node_same_stat(&st, &it->seen))
        return moved(it, e);
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

/* True where one of us makes it, and nobody has to be given it. */
static bool made_ours(const struct node *n)
{
    return (n->uid == NODE_ANY || n->uid == geteuid()) &&
           (n->gid == (gid_t)NODE_ANY || n->gid == getegid());
}

/* `st`: what it is now, and afterwards. */
static int own(int fd, const struct item *it, struct stat *st, struct err **e)
{
    uid_t uid = it->new.uid == NODE_ANY ? st->st_uid : it->new.uid;
    gid_t gid = it->new.gid == (gid_t)NODE_ANY ? st->st_gid : it->new.gid;
    /* a directory is closed when all is in it: commit_dir_modes() */
    mode_t mode = it->new.kind == NODE_DIR ? it->new.mode | 0700 : it->new.mode;

    if ((st->st_uid != uid || st->st_gid != gid) && fchown(fd, uid, gid) < 0)
        return err_sys(e,
                       "'%s' belongs to %u:%u, and you can't make another file that does (chown or "
                       "chgrp it to yourself, or promote only other paths)",
                       it->path, uid, gid);
    if (it->new.xattrs)
        node_set_xattrs(fd, it->new.xattrs);
    /* an inherited ACL takes bits away, an owner who is given it too */
    bool same =
        (st->st_mode & 07777) == mode && st->st_uid == uid && st->st_gid == gid && !it->new.xattrs;
    if (!same && fchmod(fd, mode) < 0)
        return err_sys(e, "mode of '%s'", it->path);
    st->st_uid = uid;
    st->st_gid = gid;
    return 0;
}

static int copy_in(struct stage *s, struct item *it, int in, uint64_t from, int out,
                   char digest[65], struct err **e)
{
    if (from == 0 && !s->no_clone && ioctl(out, FICLONE, in) == 0)
        return node_hash_fd(out, 0, it->new.size, -1, 0, digest, e);
    s->no_clone = true;
    return node_hash_fd(in, from, it->new.size, out, 0, digest, e);
}

static int fill(struct stage *s, struct item *it, int out, struct stat *ret_st, struct err **e)
{
    struct new_content c = { .fd = -1 };
    char digest[65];
    int rc = s->a->content(s->a->arg, it, &c, e);

    if (rc < 0)
        return rc;
    AUTOCLOSE int in = c.fd;
    if (c.text) {
        hash_text(c.text, it->new.size, digest);
        rc = fs_pwrite_all(out, c.text, it->new.size, 0) < 0 ? err_sys(e, "write a copy") : 0;
    } else {
        rc = copy_in(s, it, in, c.from, out, digest, e);
    }
    if (rc < 0)
        return err_wrap(e, "write the new '%s'", it->path);
    if (it->exact && strcmp(digest, it->new.digest) != 0)
        return err_new(e, ERR_CORRUPT, "what the journal kept of '%s' is damaged", it->path);
    if (*it->new.digest && strcmp(digest, it->new.digest) != 0)
        return err_new(e, ERR_BUSY, "the content of '%s' is not what was reviewed; try again",
                       it->path);
    memcpy(it->new.digest, digest, sizeof digest);
    /* one that ends in a hole, or was cloned from a longer one */
    if (fstat(out, ret_st) < 0 ||
        ((uint64_t)ret_st->st_size != it->new.size &&
         (ftruncate(out, (off_t)it->new.size) < 0 || fstat(out, ret_st) < 0)))
        return err_sys(e, "size of '%s'", it->path);
    return 0;
}

static int stage_file(struct stage *s, struct item *it, int dir, const char *temp, struct err **e)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, it->new.mtime };
    mode_t mode = made_ours(&it->new) ? it->new.mode & 0777 : 0600;
    AUTOCLOSE int out = openat(dir, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    struct stat st;
    int rc;

    if (out < 0)
        return err_sys(e, "write into '%s' of the project", *it->anchor ? it->anchor : ".");
    if ((rc = fill(s, it, out, &st, e)) < 0)
        return rc;
    if (!it->exact && it->old.kind == NODE_FILE) /* what the host's file had stays */
        it->new.xattrs = str_dup(it->old.xattrs);
    if ((rc = own(out, it, &st, e)) < 0)
        return rc;
    if (it->exact && (futimens(out, times) < 0 || fstat(out, &st) < 0))
        return err_sys(e, "time of '%s'", it->path);
    if (s->o->n <= FEW && fsync(out) < 0)
        return err_sys(e, "sync the new '%s'", it->path);
    it->new.mtime = st.st_mtim;
    it->new.uid = st.st_uid;
    it->new.gid = st.st_gid;
    return 0;
}

static int stage_new(struct stage *s, struct item *it, size_t i, struct err **e)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, it->new.mtime };
    struct stat st;
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
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open the new '%s'", it->path);
    return own(fd, it, &st, e);
}

struct staging {
    const struct apply *a;
    struct op *o;
    int blob;
    size_t done;
};

static int stage_part(const struct crew *c, struct err **e)
{
    struct staging *all = c->arg;
    const struct apply *a = all->a;
    struct op *o = all->o;
    struct stage s = { .a = a,
                       .o = o,
                       .blob = all->blob,
                       .parents = DIRS_INIT(a->root),
                       .anchors = DIRS_INIT(a->root) };
    int rc = 0;

    for (size_t i = c->from; i < c->to && rc == 0 && !crew_over(c); i++) {
        if (a->stopped && *a->stopped)
            rc = err_new(e, ERR_FAILED, "stopped; nothing was changed");
        if (rc == 0)
            rc = keep_old(&s, &o->v[i], e);
        if (rc == 0)
            rc = stage_new(&s, &o->v[i], i, e);
        size_t done = __atomic_add_fetch(&all->done, 1, __ATOMIC_RELAXED);
        if (a->progress)
            a->progress(a->arg, done, o->n);
    }
    if (rc == 0)
        rc = flush(&s, e);
    dirs_free_p(&s.parents);
    dirs_free_p(&s.anchors);
    str_reset(&s.ahead);
    return rc;
}

int stage_all(const struct apply *a, struct op *o, int entry, struct err **e)
{
    AUTOCLOSE int blob = openat(entry, "old", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct staging all = { .a = a, .o = o, .blob = blob };
    uint64_t end = place_old(o);

    if (blob < 0)
        return err_sys(e, "write the journal");
    mode_t mask = umask(0); /* modes are as they were decided */
    int rc = crew_run(o->n, a->alone, stage_part, &all, e);
    umask(mask);
    if (rc == 0 && (ftruncate(blob, (off_t)end) < 0 || fsync(blob) < 0))
        rc = err_sys(e, "write the journal");
    return rc;
}

int stage_sync(const struct apply *a, struct op *o, struct err **e)
{
    struct dirs d = DIRS_INIT(a->root);
    int fd, rc = 0;

    if (o->n > FEW)
        return syncfs(a->synced) < 0 ? err_sys(e, "sync the project's file system") : 0;
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

struct cleaning {
    int root;
    const struct strv *anchors;
    char *prefix;
};

static int clean_part(const struct crew *c, struct err **e)
{
    const struct cleaning *all = c->arg;
    int rc = 0;

    for (size_t i = c->from; i < c->to && rc == 0; i++) {
        AUTOCLOSE int fd = -1;
        if (node_open_dir(all->root, all->anchors->v[i], &fd, NULL) == 0)
            rc = clean_dir(fd, all->prefix, e);
    }
    return rc;
}

int stage_clean(int root, const struct op *o, const struct strv *anchors, struct err **e)
{
    AUTOFREE char *prefix = str_printf(".petri-%.16s-", o->token);
    struct cleaning all = { root, anchors, prefix };

    return crew_run(anchors->n, o->n < CREW_FROM, clean_part, &all, e);
}
