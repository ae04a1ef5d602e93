#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/driver/dirlayer_impl.h"

enum {
    MAX_DEPTH = 64,
    MAX_ENTRIES = 2000000,
    FORMAT = 1, /* raised when the same tree makes another layer */
};

struct make {
    const struct dirlayer_spec *s;
    dev_t dev;
    size_t n;
};

/* The user's own id is enough in single mode: it is the sandbox's root. */
static int give(const struct make *m, int fd, const struct stat *st, struct err **e)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
    const struct ids *ids = m->s->ids;

    /* groups are not kept, so setgid would give the wrong one */
    if ((ids->mode == IDS_SUB && fchown(fd, ids->root_uid, ids->root_gid) < 0) ||
        fchmod(fd, st->st_mode & 01777) < 0 || futimens(fd, times) < 0)
        return err_sys(e, "owner, mode and time in the directory layer");
    return 0;
}

static int make_file(const struct make *m, int src, int out, const char *name, struct err **e)
{
    AUTOCLOSE int in = -1, to = -1;
    struct stat st;
    int rc;

    if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, "stat '%s'", name);
    if (S_ISLNK(st.st_mode)) {
        AUTOFREE char *text = fs_readlink(src, name);
        if (!text || symlinkat(text, out, name) < 0 ||
            (m->s->ids->mode == IDS_SUB && fchownat(out, name, m->s->ids->root_uid,
                                                    m->s->ids->root_gid, AT_SYMLINK_NOFOLLOW) < 0))
            return err_sys(e, "copy the link '%s'", name);
        return 0;
    }
    if (!S_ISREG(st.st_mode))
        return 0;
    to = openat(out, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return err_sys(e, "create '%s'", name);
    if (m->s->own || st.st_mode & S_IROTH) {
        in = openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (in < 0)
            return err_sys(e, "open '%s'", name);
        if ((rc = fs_copy_fd(in, to, e)) < 0)
            return err_wrap(e, "copy '%s'", name);
    }
    return give(m, to, &st, e);
}

static int make_dir(struct make *m, int src, int out, unsigned depth, bool files, struct err **e);

/* A directory that not everybody may list is an empty one of the sandbox's own. */
static int make_closed(const struct make *m, int out, struct err **e)
{
    if (!m->s->files && fsetxattr(out, "user.overlay.opaque", "y", 1, 0) < 0)
        return err_sys(e, "mark a directory of the layer");
    return 0;
}

static int make_entry(struct make *m, int src, int out, const struct dirent *de, unsigned depth,
                      bool files, struct err **e)
{
    const char *name = de->d_name;
    AUTOCLOSE int in = -1, to = -1;
    struct stat st;
    int rc;

    if (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN)
        return files ? make_file(m, src, out, name, e) : 0;
    if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, "stat '%s'", name);
    if (!S_ISDIR(st.st_mode))
        return files ? make_file(m, src, out, name, e) : 0;
    if (st.st_dev == m->s->skip_dev && st.st_ino == m->s->skip_ino)
        return 0;
    if (mkdirat(out, name, 0700) < 0 ||
        (to = openat(out, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return err_sys(e, "make the directory '%s'", name);
    if (st.st_dev == m->dev && depth < MAX_DEPTH) {
        bool open = m->s->own || (st.st_mode & (S_IROTH | S_IXOTH)) == (S_IROTH | S_IXOTH);
        in = open ? openat(src, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (open && in < 0)
            return err_sys(e, "open the directory '%s'", name);
        if (depth == 1 && str_eq(name, m->s->except))
            files = false;
        rc = open ? make_dir(m, in, to, depth + 1, files, e) : make_closed(m, to, e);
        if (rc < 0)
            return rc;
    }
    return give(m, to, &st, e);
}

static int make_dir(struct make *m, int src, int out, unsigned depth, bool files, struct err **e)
{
    DIR *d = fs_list(src);
    struct dirent *de;
    int rc = 0;

    if (!d)
        return err_sys(e, "read a directory");
    while (rc == 0 && (de = fs_next(d))) {
        if (++m->n > MAX_ENTRIES)
            rc = err_new(e, ERR_LIMIT, "more than %d files", MAX_ENTRIES);
        else
            rc = make_entry(m, src, out, de, depth, files, e);
    }
    closedir(d);
    return rc;
}

int dirlayer_make(const struct dirlayer_spec *s, int out, struct err **e)
{
    AUTOCLOSE int src = open(s->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct make m = { .s = s };
    struct stat st;
    int rc;

    if (src < 0 || fstat(src, &st) < 0)
        return err_sys(e, "open '%s'", s->src);
    m.dev = st.st_dev;
    if ((rc = make_dir(&m, src, out, 1, s->files, e)) < 0 || (rc = give(&m, out, &st, e)) < 0)
        return err_wrap(e, "'%s'", s->src);
    return 0;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * 0x100000001b3;
    return h;
}

static uint64_t stamp_of(const char *name, const struct stat *st)
{
    const uint64_t v[] = { st->st_dev, st->st_ino, st->st_mode, (uint64_t)st->st_mtim.tv_sec,
                           (uint64_t)st->st_mtim.tv_nsec };
    return mix(mix(0xcbf29ce484222325, name, strlen(name)), v, sizeof v);
}

/* The entries of a directory in any order; below /usr/local and /opt people install by hand, so one
 * level more there. */
static uint64_t stamp_dir(const struct dirlayer_spec *s, int dir, unsigned depth)
{
    DIR *d = fs_list(dir);
    struct dirent *de;
    uint64_t sum = 0;

    while (d && (de = fs_next(d))) {
        struct stat st;
        if ((!s->files && de->d_type != DT_DIR && de->d_type != DT_UNKNOWN) ||
            fstatat(dir, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += stamp_of(de->d_name, &st);
        if (depth == 1 && S_ISDIR(st.st_mode) && !s->files &&
            (strcmp(de->d_name, "local") == 0 || strcmp(s->src, "/opt") == 0)) {
            AUTOCLOSE int sub =
                openat(dir, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            sum += sub < 0 ? 0 : stamp_dir(s, sub, 2);
        }
    }
    if (d)
        closedir(d);
    return sum;
}

int dirlayer_stamp(const struct dirlayer_spec *s, uint64_t *ret, struct err **e)
{
    AUTOCLOSE int src = open(s->src, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTOSTR struct str ids = STR_INIT;
    struct stat st;
    uint64_t sum;

    if (src < 0 || fstat(src, &st) < 0)
        return err_sys(e, "open '%s'", s->src);
    sum = stamp_of(s->src, &st) + stamp_dir(s, src, 1);
    if (!s->files && stat("/var/lib/dpkg/status", &st) == 0)
        sum += stamp_of("status", &st);
    str_addf(&ids, "%d %u %u\n", FORMAT, s->ids->root_uid, s->ids->root_gid);
    idmap_format(&s->ids->outer_uids, &ids);
    idmap_format(&s->ids->outer_gids, &ids);
    *ret = mix(sum, ids.p, ids.len);
    return 0;
}
