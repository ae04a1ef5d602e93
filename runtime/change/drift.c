#include "runtime/change/drift.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/fs.h"
#include "runtime/change/rename.h"

enum {
    MAX_COMPARED = 256 << 20,
    MAX_SIMILAR = 1 << 20,
    MAX_PAIRS = 10000,
    ENOUGH = 50 /* per cent */
};

static bool after(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* Somebody else's clock, or none at all. */
static bool foreign(int root)
{
    static const unsigned long types[] = { NFS_SUPER_MAGIC,  V9FS_MAGIC,     0x65735546 /* fuse */,
                                           SMB_SUPER_MAGIC,  0xff534d42,     0xfe534d42 /* cifs */,
                                           CODA_SUPER_MAGIC, AFS_SUPER_MAGIC };
    struct statfs fs;
    if (fstatfs(root, &fs) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if ((unsigned long)fs.f_type == types[i])
            return true;
    return false;
}

/* What time the project's file system has. */
static struct timespec now(int root)
{
    AUTOCLOSE int fd = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct timespec t = { 0 };
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0)
        return st.st_mtim;
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &t);
    return t;
}

void drift_init(struct drift *d, const struct record *r, struct source *s, const struct base *b,
                int root)
{
    struct timespec t = now(root);
    *d = (struct drift){ .r = r, .s = s, .base = b, .root = root, .dirs = DIRS_INIT(root) };
    d->doubt = !r->stamp.tv_sec || foreign(root) || after(&r->stamp, &t);
}

void drift_free_p(struct drift *d)
{
    free(d->last_dir);
    if (d->r)
        dirs_free_p(&d->dirs);
    known_free(d->known);
    strv_free_p(&d->left);
    *d = (struct drift){ 0 };
}

/* --- the same directories ------------------------------------------------------------------------------ */

/* A file's handle as a word; NULL: the file system has none. */
static char *handle_word(int type, const void *handle, size_t n)
{
    AUTOSTR struct str s = STR_INIT;
    str_addf(&s, "%d:", type);
    str_add_base64(&s, handle, n);
    return str_take(&s);
}

static char *handle_of(int fd)
{
    union {
        struct file_handle h;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } u = { .h.handle_bytes = MAX_HANDLE_SZ };
    int mount;

    if (name_to_handle_at(fd, "", &u.h, &mount, AT_EMPTY_PATH) < 0)
        return NULL;
    return handle_word(u.h.handle_type, u.h.f_handle, u.h.handle_bytes);
}

/* The one that overlay noted: version, magic, length, flags, type, uuid[16], then the handle. *ret_new: it noted
 * nothing, so the sandbox made it. */
static char *handle_noted(struct drift *d, const char *path, bool *ret_new)
{
    enum { HEAD = 21, MAGIC = 0xfb, TYPE = 4 };
    AUTOSTR struct str origin = STR_INIT;

    *ret_new = source_origin(d->s, path, &origin, NULL) < 0;
    if (*ret_new || origin.len <= HEAD)
        return NULL;
    const unsigned char *o = (const unsigned char *)origin.p;
    if (o[1] != MAGIC)
        return NULL;
    /* the length says where the handle ends; padding may follow */
    size_t len = o[2] > HEAD && o[2] <= origin.len ? o[2] - (size_t)HEAD : origin.len - HEAD;
    return handle_word(o[TYPE], o + HEAD, len);
}

static bool same_handle(struct drift *d, const char *dir, int fd)
{
    bool new;
    AUTOFREE char *noted = handle_noted(d, dir, &new), *now = noted ? handle_of(fd) : NULL;
    return now && strcmp(now, noted) == 0;
}

static const struct known *known(struct drift *d)
{
    if (!d->known && known_load(d->r, &d->known, NULL) < 0)
        return NULL;
    return d->known;
}

bool drift_same_dir(struct drift *d, const char *dir)
{
    AUTOCLOSE int fd = -1;
    struct stat st;
    if (node_open_dir(d->root, dir, &fd, NULL) < 0 || fstat(fd, &st) < 0)
        return false;
    return !after(&st.st_ctim, &d->r->stamp) || same_handle(d, dir, fd) ||
           known_dir(known(d), dir, &st);
}

/* Every directory above the path but the project itself, which is the one that was recorded. */
static bool same_dirs(struct drift *d, const char *path)
{
    const char *slash = strrchr(path, '/');
    AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - path) : 0, path);
    bool same = true;

    if (!slash)
        return true;
    if (d->last_dir && strcmp(d->last_dir, dir) == 0)
        return d->last_same;
    for (char *s = strchr(dir, '/'); same; s = strchr(s + 1, '/')) {
        if (s)
            *s = '\0';
        same = drift_same_dir(d, dir);
        if (!s)
            break;
        *s = '/';
    }
    free(d->last_dir);
    d->last_dir = str_printf("%.*s", (int)(slash - path), path);
    d->last_same = same;
    return same;
}

/* --- contents ------------------------------------------------------------------------------------------ */

int drift_read_fd(int fd, char **ret, size_t *ret_n, struct err **e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, "look at a file");
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_COMPARED)
        return err_new(e, ERR_LIMIT, "too large to be compared");
    size_t n = (size_t)st.st_size, done = 0;
    AUTOFREE char *p = mem_zalloc(n + 1);
    while (done < n) {
        ssize_t k = RETRY(pread(fd, p + done, n - done, (off_t)done));
        if (k <= 0)
            return err_new(e, ERR_BUSY, "a file changed while it was read");
        done += (size_t)k;
    }
    *ret = TAKE_PTR(p);
    *ret_n = n;
    return 0;
}

static int open_host(struct drift *d, const char *path, struct err **e)
{
    const char *name;
    int dir;
    if (dirs_parent(&d->dirs, path, &dir, &name, e) < 0)
        return -1;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        err_sys(e, "open '%s'", path);
    return fd;
}

int drift_host(struct drift *d, const char *path, char **ret, size_t *ret_n, struct err **e)
{
    AUTOCLOSE int fd = -1;
    const char *name;
    int dir, rc = dirs_parent(&d->dirs, path, &dir, &name, e);

    if (rc < 0)
        return rc;
    char *text = fs_readlink(dir, name);
    if (text) {
        *ret = text;
        *ret_n = strlen(text);
        return 0;
    }
    fd = open_host(d, path, e);
    return fd < 0 ? -ERR_FAILED : drift_read_fd(fd, ret, ret_n, e);
}

int drift_base(struct drift *d, const char *path, char **ret, size_t *ret_n, struct err **e)
{
    AUTOCLOSE int fd = -1;
    if (d->r->mode == RECORD_COPY) {
        int rc = source_base(d->s, path, &fd, e);
        return rc < 0 ? rc : drift_read_fd(fd, ret, ret_n, e);
    }
    return base_read(d->base, path, ret, ret_n, e);
}

static bool equals_base(struct drift *d, const char *path)
{
    AUTOFREE char *host = NULL, *base = NULL;
    size_t n, m;

    if (drift_host(d, path, &host, &n, NULL) < 0)
        return false;
    if (d->r->mode != RECORD_COPY)
        return base_equals(d->base, path, host, n);
    return drift_base(d, path, &base, &m, NULL) == 0 && n == m && memcmp(host, base, n) == 0;
}

/* What petri last put there for this sandbox is still what is there. */
static bool ours(struct drift *d, const char *path)
{
    CLEANUP(node_free_p) struct node now = { 0 };
    const struct node *put;

    if (!(put = known_find(known(d), path)) || node_look_at(d->root, path, &now, NULL, NULL) < 0 ||
        now.kind != put->kind)
        return false;
    if (now.kind == NODE_NONE || now.kind == NODE_DIR)
        return true;
    return now.size == put->size && node_digest_at(d->root, path, &now, NULL) == 0 &&
           strcmp(now.digest, put->digest) == 0;
}

/* A writer may go on through a mapping without the times telling. */
static bool open_for_writing(struct drift *d, const char *path)
{
    AUTOCLOSE int fd = open_host(d, path, NULL);
    if (fd < 0)
        return false;
    /* the lease goes with the descriptor */
    return fcntl(fd, F_SETLEASE, F_RDLCK) < 0 && errno == EAGAIN;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A file of the project that the sandbox has no more at its place. */
static bool has_left(const struct change *ch)
{
    return S_ISREG(ch->old_mode) && !ch->new_mode;
}

/* Handles and digests of all of them. */
static const struct strv *left_inside(struct drift *d)
{
    const struct changeset *c = &d->s->c;

    for (size_t i = 0; i < c->n && !d->left_read; i++) {
        const char *name;
        int dir;
        if (!has_left(&c->v[i]))
            continue;
        strv_add(&d->left, c->v[i].old_digest);
        if (dirs_parent(&d->dirs, c->v[i].path, &dir, &name, NULL) < 0)
            continue;
        AUTOCLOSE int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        char *word = fd < 0 ? NULL : handle_of(fd);
        if (word)
            strv_take(&d->left, word);
    }
    if (!d->left_read && d->left.n)
        qsort(d->left.v, d->left.n, sizeof *d->left.v, compare_words);
    d->left_read = true;
    return &d->left;
}

/* Nothing of the directory that the sandbox was made from was removed since, or the sandbox made it. */
static bool lost_nothing(struct drift *d, const char *dir)
{
    AUTOCLOSE int fd = -1;
    struct stat st;
    bool new = false;

    if (*dir)
        free(handle_noted(d, dir, &new));
    if (new || d->doubt || node_open_dir(d->root, dir, &fd, NULL) < 0 || fstat(fd, &st) < 0)
        return new;
    /* one that petri made in place of one that was there is as petri left it, too */
    const struct node *put = known_find(known(d), dir);
    return !after(&st.st_ctim, &d->r->stamp) ||
           (!(put && put->kind == NODE_DIR) && known_dir(known(d), dir, &st));
}

/* Its text is much like that of a file that is not at its place any more. */
static bool like_one_left(struct drift *d, size_t i)
{
    const struct changeset *c = &d->s->c;
    AUTOFREE char *text = NULL, *link = NULL;
    AUTOCLOSE int fd = -1;
    bool like = false;
    size_t n;

    if (!S_ISREG(c->v[i].new_mode) || c->v[i].new_size > MAX_SIMILAR ||
        source_content(d->s, i, &fd, &link, NULL) < 0 || drift_read_fd(fd, &text, &n, NULL) < 0)
        return false;
    struct similar *new = similar_new(text, n);
    for (size_t k = 0; new && !like &&k < c->n; k++) {
        uint64_t a = c->v[k].old_size, b = c->v[i].new_size;
        if (!has_left(&c->v[k]) || a > 2 * b || b > 2 * a || d->n_compared++ >= MAX_PAIRS)
            continue;
        AUTOFREE char *host = NULL;
        if (drift_host(d, c->v[k].path, &host, &n, NULL) < 0)
            continue;
        struct similar *old = similar_new(host, n);
        like = similar_compare(old, new) >= ENOUGH;
        similar_free(old);
    }
    similar_free(new);
    return like;
}

/* A file that was renamed inside has the origin of its old name. */
static bool was_there(struct drift *d, size_t i)
{
    const struct change *ch = &d->s->c.v[i];
    AUTOFREE char *noted = NULL;
    AUTOCLOSE int fd = -1;
    bool new;

    if (d->r->mode == RECORD_COPY)
        return source_base(d->s, ch->path, &fd, NULL) == 0;
    if (base_has(d->base, ch->path))
        return true;
    noted = handle_noted(d, ch->path, &new);
    if (new)
        return false;
    const char *word = noted ? noted : ch->new_digest;
    const struct strv *left = left_inside(d);
    if (left->n && bsearch(&word, left->v, left->n, sizeof *left->v, compare_words))
        return false;
    if (noted)
        return true;
    /* which file it was is not known: it can only have come by its name inside where none of that name went */
    const char *slash = strrchr(ch->path, '/');
    AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - ch->path) : 0, ch->path);
    return !lost_nothing(d, dir) && !like_one_left(d, i);
}

const char *drift_why(struct drift *d, size_t i, const struct stat *st)
{
    const struct change *ch = &d->s->c.v[i];
    const struct timespec *written = &ch->written;

    if (!st->st_ino)
        return was_there(d, i) && !ours(d, ch->path) ? "it was deleted in the project meanwhile"
                                                     : NULL;
    if (S_ISDIR(st->st_mode))
        return NULL; /* what is in it is looked at by itself */
    /* a file in the sandbox that is older than the sandbox: a clock that went back */
    bool doubt = d->doubt || (written->tv_sec && after(&d->r->stamp, written));
    bool newer = after(&st->st_ctim, &d->r->stamp);
    bool same = !doubt && !newer && same_dirs(d, ch->path);
    bool busy = same && S_ISREG(st->st_mode) && open_for_writing(d, ch->path);
    if ((same && !busy) || equals_base(d, ch->path) || ours(d, ch->path))
        return NULL;
    if (busy)
        return "somebody has it open for writing";
    if (newer)
        return "it was changed in the project meanwhile";
    return doubt ? "whether it changed in the project can't be told (times prove nothing here)"
                 : "a directory above it was changed in the project meanwhile";
}
