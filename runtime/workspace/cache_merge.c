#include "runtime/workspace/cache_merge.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/workspace/layer_node.h"

enum { MAX_DEPTH = 100 }; /* a level takes three descriptors */

struct merge {
    const struct cache_rules *r;
    struct cache_counts *c;
    struct str path;  /* of the directory that is being looked at */
    const int *above; /* the layers over the one that is being looked at */
    size_t n_above;
};

static int open_dir(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void count_below(int dir, struct cache_counts *c, int depth)
{
    DIR *d = fs_list(dir);
    struct dirent *de;

    while (d && (de = fs_next(d))) {
        struct stat st;
        if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        c->files++;
        c->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
        if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH) {
            AUTOCLOSE int sub = open_dir(dirfd(d), de->d_name);
            if (sub >= 0)
                count_below(sub, c, depth + 1);
        }
    }
    if (d)
        closedir(d);
}

void cache_count(int dir, struct cache_counts *ret)
{
    *ret = (struct cache_counts){ 0 };
    count_below(dir, ret, 0);
}

/* Up only at its beginning, where the way is the tree's own; later a name may be another link. */
bool cache_link_stays(const char *dir, const char *text)
{
    size_t depth = *dir ? 1 : 0;
    bool down = false;

    for (; *dir; dir++)
        depth += *dir == '/';
    if (*text == '/' || !*text)
        return false;
    for (size_t n; *text; text += n + strspn(text + n, "/")) {
        n = strcspn(text, "/");
        if (n == 2 && text[0] == '.' && text[1] == '.') {
            if (down || depth-- == 0)
                return false;
        } else if (n != 1 || text[0] != '.') {
            down = true;
        }
    }
    return true;
}

/* ---- making entries ---------------------------------------------------------------------------- */

static int take_room(struct merge *m, uint64_t bytes, struct err **e)
{
    char most[24];

    if (m->c->files < m->r->max_files && bytes <= m->r->max_bytes &&
        m->c->bytes <= m->r->max_bytes - bytes) {
        m->c->files++;
        m->c->bytes += bytes;
        return 0;
    }
    format_size(m->r->max_bytes, most);
    return err_new(e, ERR_LIMIT,
                   "the project's caches would be more than %s or %llu files; petri cache rm "
                   "begins anew, petri cache save --max SIZE allows more",
                   most, (unsigned long long)m->r->max_files);
}

static int give(const struct merge *m, int fd, mode_t mode, const struct stat *st, struct err **e)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };

    if ((m->r->uid != (uid_t)-1 && fchown(fd, m->r->uid, m->r->gid) < 0) || fchmod(fd, mode) < 0 ||
        futimens(fd, times) < 0)
        return err_sys(e, "owner, mode and time of '%s'", m->path.p);
    return 0;
}

/* Takes what is at a name out of the result; 1: there was something. */
static int drop(struct merge *m, int dst, const char *name, struct err **e)
{
    struct cache_counts gone = { 0 };
    struct stat st;

    if (fstatat(dst, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(e, "look at '%s'", m->path.p);
    if (S_ISDIR(st.st_mode)) {
        AUTOCLOSE int sub = open_dir(dst, name);
        if (sub >= 0)
            count_below(sub, &gone, 0);
    }
    gone.files++;
    gone.bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    m->c->files -= gone.files < m->c->files ? gone.files : m->c->files;
    m->c->bytes -= gone.bytes < m->c->bytes ? gone.bytes : m->c->bytes;
    int rc = fs_remove_tree(dst, name, e);
    return rc < 0 ? rc : 1;
}

static int put_dir(struct merge *m, int dst, const char *name, int *ret, struct err **e)
{
    struct stat st;
    int rc;

    if (fstatat(dst, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
        (rc = drop(m, dst, name, e)) < 0)
        return rc;
    if (mkdirat(dst, name, 0700) == 0) {
        if ((rc = take_room(m, 0, e)) < 0)
            return rc;
    } else if (errno != EEXIST) {
        return err_sys(e, "make '%s'", m->path.p);
    }
    *ret = open_dir(dst, name);
    return *ret < 0 ? err_sys(e, "open '%s'", m->path.p) : 0;
}

static int put_link(struct merge *m, int dst, const char *name, const char *text, struct err **e)
{
    int rc = take_room(m, 0, e);

    if (rc < 0)
        return rc;
    if (symlinkat(text, dst, name) < 0 ||
        (m->r->uid != (uid_t)-1 &&
         fchownat(dst, name, m->r->uid, m->r->gid, AT_SYMLINK_NOFOLLOW) < 0))
        return err_sys(e, "make the link '%s'", m->path.p);
    return 0;
}

static int put_file(struct merge *m, int src, int dst, const char *name, const struct stat *st,
                    struct err **e)
{
    AUTOCLOSE int in = openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
    int rc;

    if (in < 0)
        return err_sys(e, "open '%s'", m->path.p);
    if ((rc = take_room(m, (uint64_t)st->st_size, e)) < 0)
        return rc;
    out = openat(dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0 || node_copy_data(in, out, st->st_size) < 0)
        return err_sys(e, "copy '%s'", m->path.p);
    return give(m, out, st->st_mode & 0111 ? 0755 : 0644, st, e);
}

/* ---- the old base ------------------------------------------------------------------------------ */

static int same_dir(struct merge *m, int src, int dst, int depth, struct err **e);

static int same_entry(struct merge *m, int src, int dst, const char *name, int depth,
                      struct err **e)
{
    AUTOCLOSE int from = -1, to = -1;
    struct stat st;
    int rc;

    if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "look at '%s'", m->path.p);
    if (S_ISDIR(st.st_mode)) {
        if (depth >= MAX_DEPTH)
            return 0;
        if ((from = open_dir(src, name)) < 0)
            return err_sys(e, "open '%s'", m->path.p);
        if ((rc = put_dir(m, dst, name, &to, e)) < 0 ||
            (rc = same_dir(m, from, to, depth + 1, e)) < 0)
            return rc;
        return give(m, to, 0755, &st, e);
    }
    if (S_ISREG(st.st_mode) && linkat(src, name, dst, name, 0) == 0)
        return take_room(m, (uint64_t)st.st_size, e);
    if (S_ISREG(st.st_mode)) /* no links here, or too many of this one */
        return put_file(m, src, dst, name, &st, e);
    AUTOFREE char *text = fs_readlink(src, name);
    return text ? put_link(m, dst, name, text, e) : 0;
}

static int each(struct merge *m, int src, int dst, int depth,
                int (*f)(struct merge *, int, int, const char *, int, struct err **),
                struct err **e)
{
    DIR *d = fs_list(src);
    struct dirent *de;
    size_t len = m->path.len;
    int rc = 0;

    if (!d)
        return err_sys(e, "read '%s'", m->path.p);
    while (rc == 0 && (errno = 0, de = fs_next(d))) {
        str_addf(&m->path, "%s%s", len ? "/" : "", de->d_name);
        rc = f(m, src, dst, de->d_name, depth, e);
        m->path.p[m->path.len = len] = '\0';
    }
    if (rc == 0 && errno)
        rc = err_sys(e, "read '%s'", m->path.p);
    closedir(d);
    return rc;
}

static int same_dir(struct merge *m, int src, int dst, int depth, struct err **e)
{
    return each(m, src, dst, depth, same_entry, e);
}

/* ---- what the sandbox wrote -------------------------------------------------------------------- */

static bool is_opaque(int dir)
{
    static const char *const marks[] = { "trusted.overlay.opaque", "user.overlay.opaque" };
    char value[8];

    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (fgetxattr(dir, marks[i], value, sizeof value) == 1 && value[0] == 'y')
            return true;
    return false;
}

static int new_dir(struct merge *m, int src, int dst, const char *name, int depth,
                   const struct stat *st, struct err **e);

/* What an earlier merge brought: times go along, to the nanosecond. */
static bool same_already(int dst, const char *name, const struct stat *st, const char *text)
{
    AUTOFREE char *there = text ? fs_readlink(dst, name) : NULL;
    struct stat old;

    if (text)
        return str_eq(there, text);
    return fstatat(dst, name, &old, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(old.st_mode) &&
           old.st_size == st->st_size && old.st_mtim.tv_sec == st->st_mtim.tv_sec &&
           old.st_mtim.tv_nsec == st->st_mtim.tv_nsec &&
           !(old.st_mode & 0111) == !(st->st_mode & 0111);
}

/* Whether a layer above has something else there: it must not count. No part of the path is a link in any of them,
 * or what is below it would have been left out with it. */
static bool is_hidden(const struct merge *m, const struct stat *st)
{
    for (size_t i = 0; i < m->n_above; i++) {
        struct stat over;
        if (fstatat(m->above[i], m->path.p, &over, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!S_ISDIR(over.st_mode) || !S_ISDIR(st->st_mode))
            return true;
        AUTOCLOSE int fd = open_dir(m->above[i], m->path.p);
        if (fd >= 0 && is_opaque(fd))
            return true;
    }
    return false;
}

static int new_entry(struct merge *m, int src, int dst, const char *name, int depth, struct err **e)
{
    const char *slash = strrchr(m->path.p, '/');
    AUTOFREE char *text = NULL;
    struct stat st;
    int rc;

    if (fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, "look at '%s'", m->path.p);
    if (is_hidden(m, &st))
        return 0;
    if (node_is_whiteout(&st)) {
        rc = drop(m, dst, name, e);
        m->c->removed += rc == 1;
        return rc < 0 ? rc : 0;
    }
    if (!m->r->wanted(m->path.p)) {
        m->c->left_out++;
        return 0;
    }
    if (S_ISDIR(st.st_mode))
        return new_dir(m, src, dst, name, depth, &st, e);
    if (S_ISLNK(st.st_mode)) {
        AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - m->path.p) : 0, m->path.p);
        text = fs_readlink(src, name);
        if (!text || !cache_link_stays(dir, text))
            free_p(&text);
    }
    if (!text && !S_ISREG(st.st_mode)) {
        m->c->left_out++;
        return 0;
    }
    if (same_already(dst, name, &st, text))
        return 0;
    if ((rc = drop(m, dst, name, e)) < 0)
        return rc;
    m->c->added++;
    m->c->added_bytes += text ? 0 : (uint64_t)st.st_size;
    return text ? put_link(m, dst, name, text, e) : put_file(m, src, dst, name, &st, e);
}

static int new_dir(struct merge *m, int src, int dst, const char *name, int depth,
                   const struct stat *st, struct err **e)
{
    AUTOCLOSE int from = open_dir(src, name), to = -1;
    int rc;

    if (from < 0)
        return err_sys(e, "open '%s'", m->path.p);
    if (depth >= MAX_DEPTH) {
        m->c->left_out++;
        return 0;
    }
    if (is_opaque(from) && (rc = drop(m, dst, name, e)) < 0)
        return rc;
    if ((rc = put_dir(m, dst, name, &to, e)) < 0 ||
        (rc = each(m, from, to, depth + 1, new_entry, e)) < 0)
        return rc;
    return give(m, to, 0755, st, e);
}

int cache_merge(const struct cache_rules *r, int base, const int *layers, size_t n, int dst,
                struct cache_counts *ret, struct err **e)
{
    struct merge m = { .r = r, .c = ret };
    struct stat st;
    int rc;

    *ret = (struct cache_counts){ 0 };
    str_add(&m.path, "");
    rc = base < 0 ? 0 : same_dir(&m, base, dst, 0, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        m.above = layers + i + 1;
        m.n_above = n - i - 1;
        rc = each(&m, layers[i], dst, 0, new_entry, e);
    }
    if (rc == 0 && fstat(dst, &st) == 0)
        rc = give(&m, dst, 0755, &st, e);
    str_reset(&m.path);
    return rc;
}
