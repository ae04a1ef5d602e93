#include "runtime/change/node.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/hash.h"

void node_free_p(struct node *n)
{
    free(n->link);
    free(n->xattrs);
    *n = (struct node){ 0 };
}

void node_copy(const struct node *from, struct node *to)
{
    *to = *from;
    to->link = str_dup(from->link);
    to->xattrs = str_dup(from->xattrs);
}

const char *node_kind_name(enum node_kind k)
{
    static const char *const names[] = { "none", "file", "link", "dir", "other" };
    return names[k];
}

enum node_kind node_kind_of(mode_t m)
{
    return S_ISREG(m) ? NODE_FILE : S_ISLNK(m) ? NODE_LINK : S_ISDIR(m) ? NODE_DIR : NODE_OTHER;
}

int node_open_dir(int root, const char *dir, int *ret_fd, struct err **e)
{
    int fd = fs_open_beneath(root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
    if (fd >= 0) {
        *ret_fd = fd;
        return 0;
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return err_new(e, ERR_NOT_FOUND, "there is no directory '%s'", dir);
    if (errno == ELOOP)
        return err_new(e, ERR_DENIED, "a link is in the way to '%s'", dir);
    if (errno == EXDEV)
        return err_new(e, ERR_DENIED, "'%s' is on another mount", dir);
    return err_sys(e, "open the directory '%s'", dir);
}

int node_parent(int root, const char *path, int *ret_fd, const char **ret_name, struct err **e)
{
    const char *slash = strrchr(path, '/');
    AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - path) : 0, path);

    *ret_name = slash ? slash + 1 : path;
    return node_open_dir(root, dir, ret_fd, e);
}

int node_look(int dir, const char *name, struct node *ret, struct stat *ret_st, struct err **e)
{
    struct node n = { 0 };
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return err_sys(e, "look at '%s'", name);
        *ret = n;
        if (ret_st)
            *ret_st = (struct stat){ 0 };
        return 0;
    }
    n.kind = node_kind_of(st.st_mode);
    n.mode = st.st_mode & 07777;
    n.uid = st.st_uid;
    n.gid = st.st_gid;
    n.size = n.kind == NODE_DIR ? 0 : (uint64_t)st.st_size;
    n.mtime = st.st_mtim;
    if (n.kind == NODE_LINK) {
        n.link = fs_readlink(dir, name);
        if (!n.link)
            return err_sys(e, "read the link '%s'", name);
        n.size = strlen(n.link);
        hash_text(n.link, n.size, n.digest);
    }
    *ret = n;
    if (ret_st)
        *ret_st = st;
    return 0;
}

int node_look_at(int root, const char *path, struct node *ret, struct stat *ret_st, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOCLOSE int dir = -1;
    const char *name;

    int rc = node_parent(root, path, &dir, &name, &why);
    if (rc == -ERR_NOT_FOUND || rc == -ERR_DENIED) {
        *ret = (struct node){ 0 };
        if (ret_st)
            *ret_st = (struct stat){ 0 };
        return 0;
    }
    if (rc < 0) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    return node_look(dir, name, ret, ret_st, e);
}

bool node_same_stat(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mode == b->st_mode && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void add_zeros(struct hash *h, uint64_t n)
{
    static const char zeros[65536];
    while (n) {
        size_t k = n < sizeof zeros ? (size_t)n : sizeof zeros;
        hash_add(h, zeros, k);
        n -= k;
    }
}

/* Where the data at or after `pos` starts and ends; both at most `end`. */
static bool next_data(int fd, uint64_t pos, uint64_t end, uint64_t *ret_start, uint64_t *ret_stop)
{
    off_t data = lseek(fd, (off_t)pos, SEEK_DATA), hole;
    if (data < 0 && errno != ENXIO)
        return false; /* a file system without holes */
    *ret_start = *ret_stop = end;
    if (data < 0 || (uint64_t)data >= end)
        return true;
    *ret_start = (uint64_t)data;
    hole = lseek(fd, data, SEEK_HOLE);
    if (hole >= 0 && (uint64_t)hole < end)
        *ret_stop = (uint64_t)hole;
    return true;
}

int node_hash_fd(int in, uint64_t from, uint64_t size, int out, uint64_t to, char ret[65],
                 struct err **e)
{
    enum { ROOM = 1 << 17 };
    CLEANUP(hash_free_p) struct hash *h = hash_new();
    AUTOFREE char *buf = mem_zalloc(size < ROOM ? size + 1 : ROOM);
    uint64_t pos = from, end = from + size, stop = from;
    struct stat st;

    if (fstat(in, &st) < 0)
        return err_sys(e, "look at a file");
    bool holes = (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size;
    while (pos < end) {
        if (pos >= stop) {
            uint64_t start = pos;
            if (!holes || !next_data(in, pos, end, &start, &stop))
                stop = end;
            add_zeros(h, start - pos);
            pos = start;
            continue;
        }
        size_t want = stop - pos < ROOM ? (size_t)(stop - pos) : ROOM;
        ssize_t n = RETRY(pread(in, buf, want, (off_t)pos));
        if (n < 0)
            return err_sys(e, "read a file");
        if (n == 0)
            return err_new(e, ERR_BUSY, "a file shrank while it was read");
        hash_add(h, buf, (size_t)n);
        if (out >= 0 && fs_pwrite_all(out, buf, (size_t)n, to + (pos - from)) < 0)
            return err_sys(e, "write a copy");
        pos += (uint64_t)n;
    }
    hash_hex(h, ret);
    return 0;
}

int node_digest(int dir, const char *name, struct node *n, struct err **e)
{
    if (n->kind != NODE_FILE)
        return 0;
    AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat a, b;

    if (fd < 0 || fstat(fd, &a) < 0)
        return err_sys(e, "open '%s'", name);
    if (!S_ISREG(a.st_mode) || (uint64_t)a.st_size != n->size)
        return err_new(e, ERR_BUSY, "'%s' changed while it was read", name);
    int rc = node_hash_fd(fd, 0, n->size, -1, 0, n->digest, e);
    if (rc < 0)
        return err_wrap(e, "'%s'", name);
    if (fstat(fd, &b) < 0 || !node_same_stat(&a, &b))
        return err_new(e, ERR_BUSY, "'%s' changed while it was read", name);
    return 0;
}

int node_digest_at(int root, const char *path, struct node *n, struct err **e)
{
    AUTOCLOSE int dir = -1;
    const char *name;
    int rc = node_parent(root, path, &dir, &name, e);
    return rc < 0 ? rc : node_digest(dir, name, n, e);
}

bool node_matches(int dir, const char *name, const struct node *n)
{
    CLEANUP(node_free_p) struct node now = { 0 };
    if (node_look(dir, name, &now, NULL, NULL) < 0 || now.kind != n->kind)
        return false;
    if (now.kind == NODE_NONE || now.kind == NODE_DIR)
        return true;
    if (now.size != n->size || (now.kind == NODE_FILE && (now.mode & 0777) != (n->mode & 0777)))
        return false;
    return node_digest(dir, name, &now, NULL) == 0 && strcmp(now.digest, n->digest) == 0;
}
