/* runtime/client/fs.c - files of a running sandbox without a process: one kept connection to petri-init,
 * which opens, renames and removes as a program inside would; bytes go through descriptors. */
#include <fcntl.h>
#include <sys/stat.h>

#include "runtime/client/fs.h"

enum { WAIT_MS = 60000, MAX_READ = 1 << 30, MAX_LISTING = 256 << 20 };

static int refused(const struct petri_sandbox *s, const char *path, int error,
                   struct petri_error *e)
{
    AUTOSTR struct str shown = STR_INIT;
    AUTOFREE char *name = client_name_of(s->client, s->id);

    errno = error > 0 && error < 4096 ? error : EIO;
    int sys = errno;
    str_add_escaped(&shown, path, strlen(path));
    client_fail(e,
                sys == ENOENT || sys == ENOTDIR                         ? "not_found"
                : sys == EEXIST || sys == ENOTEMPTY                     ? "exists"
                : sys == EACCES || sys == EPERM || sys == EROFS         ? "denied"
                : sys == ENOSPC || sys == EDQUOT || sys == EMFILE       ? "limit"
                : sys == EINVAL || sys == EISDIR || sys == ENAMETOOLONG ? "invalid"
                                                                        : "failed",
                "'%s' in sandbox '%s': %s", shown.p ? shown.p : "", name ? name : s->id,
                strerrordesc_np(sys));
    if (e && e->size > offsetof(struct petri_error, sys))
        e->sys = sys;
    return -1;
}

/* Relative ones count from where the caller is in the project. */
static void add_path(struct str *b, const struct petri_sandbox *s, const char *path)
{
    if (path[0] != '/' && s->sub)
        str_addf(b, "%s/", s->sub);
    str_addn(b, path, strlen(path) + 1);
}

static int send_ask(struct conn *c, const struct petri_sandbox *s, const struct fs_ask *a)
{
    AUTOSTR struct str b = STR_INIT;
    struct proto_fs head = {
        .op = a->op, .flags = a->flags, .mode = a->mode, .n_paths = !!a->path + !!a->path2
    };

    str_addn(&b, &head, sizeof head);
    if (a->path)
        add_path(&b, s, a->path);
    if (a->path2)
        add_path(&b, s, a->path2);
    return conn_send(c, PROTO_FS, b.p, b.len, NULL, 0);
}

/* One question and the frames that answer it. 1: answered; 0: refused, in *e; -1 with errno: over. */
static int answer(struct conn *c, const struct petri_sandbox *s, struct fs_ask *a,
                  struct petri_error *e)
{
    struct frame f;

    for (;;) {
        if (conn_wait(c, a->op == FS_RM ? -1 : WAIT_MS, &f) < 0)
            return -1;
        if (f.type == PROTO_FAILED && f.len == sizeof(struct proto_failed)) {
            struct proto_failed p;
            memcpy(&p, f.p, sizeof p);
            refused(s, a->path ? a->path : a->shown, p.error, e);
            return 0;
        }
        errno = EPROTO;
        if (f.type == PROTO_FS_ENTRY && a->op == FS_LS && f.len > sizeof(struct proto_stat) &&
            f.p[f.len - 1] == '\0' && a->ret_list->len + f.len < MAX_LISTING) {
            uint32_t n = (uint32_t)f.len;
            str_addn(a->ret_list, &n, sizeof n);
            str_addn(a->ret_list, f.p, f.len);
            continue;
        }
        if (f.type != PROTO_FS_OK || f.len < sizeof a->st)
            return -1;
        memcpy(&a->st, f.p, sizeof a->st);
        if (a->op == FS_STAT && a->st.has_target) {
            if (f.p[f.len - 1] != '\0' || f.len == sizeof a->st)
                return -1;
            a->target = str_dup(f.p + sizeof a->st);
        }
        return 1;
    }
}

/* The file that an answer brought: a regular one, or the connection is over. */
static int take_file(struct conn *c, struct fs_ask *a)
{
    struct stat st;

    a->fd = conn_take_fd(c);
    if (a->op != FS_READ && a->op != FS_WRITE) {
        if (a->fd < 0)
            return 0;
    } else if (a->fd >= 0 && fstat(a->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        return 0;
    }
    close_p(&a->fd);
    errno = EPROTO;
    return -1;
}

int fs_talk(struct conn *c, const struct petri_sandbox *s, struct fs_ask *a, struct petri_error *e)
{
    int rc;

    a->fd = -1;
    if (send_ask(c, s, a) < 0)
        return -1;
    rc = answer(c, s, a, e);
    if (rc > 0 && take_file(c, a) < 0)
        rc = -1;
    if (rc >= 0 && c->passed >= 0) {
        errno = EPROTO;
        rc = -1;
    }
    if (rc < 0)
        free_p(&a->target);
    return rc;
}

int fs_connect(struct petri_sandbox *s, struct conn *ret, struct petri_error *e)
{
    if (client_connect(s, "sock", ret, e) < 0)
        return -1;
    if (conn_block(ret, WAIT_MS) == 0)
        return 0;
    client_sys(e, "a connection to sandbox '%s'", s->name);
    conn_close(ret);
    return -1;
}

int fs_ask(struct petri_sandbox *s, struct fs_ask *a, struct petri_error *e)
{
    int rc;

    if ((a->path && !*a->path) || (a->path2 && !*a->path2))
        return client_fail(e, "invalid", "an empty path");
    for (int attempt = 0;; attempt++) {
        bool kept = s->has_files;
        if (!kept && fs_connect(s, &s->files, e) < 0)
            return -1;
        s->has_files = true;
        if ((rc = fs_talk(&s->files, s, a, e)) >= 0)
            return rc > 0 ? 0 : -1;
        /* a snapshot or restart replaced petri-init since: whoever is there now has not heard us */
        bool stale = kept && !attempt && (errno == ECONNRESET || errno == EPIPE);
        if (!stale)
            client_lost(s, &s->files, e);
        conn_close(&s->files);
        s->has_files = false;
        if (a->ret_list)
            str_reset(a->ret_list);
        if (!stale || a->op == FS_COMMIT)
            return stale ? client_fail(e, "stopped",
                                       "sandbox '%s' was replaced meanwhile; nothing was written",
                                       s->name)
                         : -1;
    }
}

void fs_give_stat(const struct proto_stat *p, struct petri_stat *ret)
{
    struct petri_stat st = {
        .size = sizeof st,
        .mode = p->mode,
        .nlink = p->nlink,
        .uid = p->uid,
        .gid = p->gid,
        .bytes = p->size,
        .ino = p->ino,
        .mtime_sec = p->mtime_sec,
        .mtime_nsec = p->mtime_nsec,
    };
    if (ret)
        client_give(&st, sizeof st, ret);
}

int petri_fs_open(struct petri_sandbox *s, const char *path, int *ret_fd, struct petri_stat *st,
                  struct petri_error *e)
{
    struct fs_ask a = { .op = FS_READ, .path = path };

    if (fs_ask(s, &a, e) < 0)
        return -1;
    fs_give_stat(&a.st, st);
    *ret_fd = a.fd;
    return 0;
}

int petri_fs_read(struct petri_sandbox *s, const char *path, size_t max, char **ret,
                  size_t *ret_len, struct petri_error *e)
{
    struct petri_stat st = PETRI_STAT_INIT;
    AUTOCLOSE int fd = -1;
    size_t n = 0, room;
    char *p;

    if (!max)
        max = MAX_READ;
    if (petri_fs_open(s, path, &fd, &st, e) < 0)
        return -1;
    /* its size is a hint: it may grow or shrink meanwhile */
    room = st.bytes < max ? (size_t)(st.bytes ? st.bytes : 4096) + 1 : max + 1;
    if (room > max + 1)
        room = max + 1;
    if (!(p = malloc(room + 1)))
        return client_fail(e, "limit", "'%s': no memory for it", path);
    for (;;) {
        if (n == room && room <= max) {
            room = room * 2 < max ? room * 2 : max + 1;
            char *more = realloc(p, room + 1);
            if (!more)
                abort();
            p = more;
        }
        ssize_t r = n < room ? RETRY(read(fd, p + n, room - n)) : 0;
        if (r < 0 || n + (size_t)r > max) {
            free(p);
            return r < 0 ? client_sys(e, "read '%s'", path)
                         : client_fail(e, "limit", "'%s' is longer than %zu bytes", path, max);
        }
        n += (size_t)r;
        /* less than was asked for is the end; but not in /proc, where files have no size */
        if (r == 0 || (n < room && st.bytes))
            break;
    }
    p[n] = '\0';
    *ret = p;
    *ret_len = n;
    return 0;
}

int petri_fs_stat(struct petri_sandbox *s, const char *path, unsigned flags, struct petri_stat *ret,
                  char **target, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_STAT, .path = path, .flags = flags };

    if (fs_ask(s, &a, e) < 0)
        return -1;
    fs_give_stat(&a.st, ret);
    if (target)
        *target = TAKE_PTR(a.target);
    free(a.target);
    return 0;
}

int petri_fs_mkdir(struct petri_sandbox *s, const char *path, unsigned mode, unsigned flags,
                   struct petri_error *e)
{
    struct fs_ask a = { .op = FS_MKDIR, .path = path, .mode = mode, .flags = flags };
    return fs_ask(s, &a, e);
}

int petri_fs_rm(struct petri_sandbox *s, const char *path, unsigned flags, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_RM, .path = path, .flags = flags };
    return fs_ask(s, &a, e);
}

int petri_fs_mv(struct petri_sandbox *s, const char *from, const char *to, struct petri_error *e)
{
    struct fs_ask a = { .op = FS_MV, .path = from, .path2 = to };
    return fs_ask(s, &a, e);
}
