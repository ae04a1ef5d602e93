#include "image/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/str.h"

enum { MAX_DEPTH = 200, MAX_CAP_XATTR = 64, BUF_SIZE = 256 << 10 };

/* The first name of a file with several. */
struct seen {
    ino_t ino;
    char *path;
};

struct pack {
    const char *label;
    const struct caps *caps;
    struct archive *archive;
    int out_fd;
    dev_t dev, store_dev;
    ino_t store_ino;
    uint64_t entries, bytes, skipped;
    struct seen *seen; /* open addressing, a power of two */
    size_t n_seen, cap_seen;
    char *buf;
};

static void pack_free_p(struct pack *p)
{
    archive_write_free(p->archive);
    for (size_t i = 0; i < p->cap_seen; i++)
        free(p->seen[i].path);
    free(p->seen);
    free(p->buf);
}

static struct seen *seen_slot(struct seen *v, size_t cap, ino_t ino)
{
    size_t i = (size_t)(ino * 0x9e3779b97f4a7c15ULL) & (cap - 1);
    while (v[i].path && v[i].ino != ino)
        i = (i + 1) & (cap - 1);
    return &v[i];
}

/* The path under which this inode was packed already, or NULL; then it is remembered. */
static const char *seen_before(struct pack *p, ino_t ino, const char *path)
{
    struct seen *s;

    if (2 * (p->n_seen + 1) > p->cap_seen) {
        size_t cap = p->cap_seen ? 2 * p->cap_seen : 256;
        struct seen *v = mem_zalloc(cap * sizeof *v);
        for (size_t i = 0; i < p->cap_seen; i++)
            if (p->seen[i].path)
                *seen_slot(v, cap, p->seen[i].ino) = p->seen[i];
        free(p->seen);
        p->seen = v;
        p->cap_seen = cap;
    }
    s = seen_slot(p->seen, p->cap_seen, ino);
    if (s->path)
        return s->path;
    *s = (struct seen){ ino, str_dup(path) };
    p->n_seen++;
    return NULL;
}

static la_ssize_t on_write(struct archive *a, void *ctx, const void *buf, size_t n)
{
    struct pack *p = ctx;
    if (fs_write_all(p->out_fd, buf, n) == 0)
        return (la_ssize_t)n;
    archive_set_error(a, errno, "%s", strerror(errno));
    return -1;
}

static int write_failed(struct pack *p, const char *path, struct err **e)
{
    const char *why = archive_error_string(p->archive);
    return err_new(e, ERR_FAILED, "pack '%s/%s': %s", p->label, path,
                   why ? why : "can't be written");
}

/* File capabilities belong to the image, though no sandbox of petri's honours them. */
static void add_capability(struct archive_entry *entry, int fd)
{
    char value[MAX_CAP_XATTR];
    ssize_t n = fgetxattr(fd, "security.capability", value, sizeof value);
    if (n > 0)
        archive_entry_xattr_add_entry(entry, "security.capability", value, (size_t)n);
}

static int put_header(struct pack *p, struct archive_entry *entry, const char *path,
                      const struct stat *st, struct err **e)
{
    bool mine = geteuid() != 0;

    archive_entry_copy_pathname(entry, *path ? path : "./");
    archive_entry_set_mode(entry, st->st_mode);
    archive_entry_set_uid(entry, mine && st->st_uid == geteuid() ? 0 : st->st_uid);
    archive_entry_set_gid(entry, mine && st->st_gid == getegid() ? 0 : st->st_gid);
    archive_entry_set_mtime(entry, st->st_mtim.tv_sec, 0);
    if (++p->entries > p->caps->max_entries)
        return err_new(e, ERR_LIMIT,
                       "'%s' has more than %llu entries; --max-entries raises the limit", p->label,
                       (unsigned long long)p->caps->max_entries);
    if (archive_write_header(p->archive, entry) != ARCHIVE_OK)
        return write_failed(p, path, e);
    return 0;
}

static int put_content(struct pack *p, int fd, const char *path, uint64_t size, struct err **e)
{
    while (size) {
        ssize_t n = RETRY(read(fd, p->buf, size < BUF_SIZE ? size : BUF_SIZE));
        if (p->caps->stop && *p->caps->stop)
            return err_new(e, ERR_FAILED, "interrupted; nothing was changed");
        if (n <= 0)
            return n < 0 ? err_sys(e, "read '%s/%s'", p->label, path)
                         : err_new(e, ERR_FAILED, "'%s/%s' changed while it was read; try again",
                                   p->label, path);
        if (archive_write_data(p->archive, p->buf, (size_t)n) != n)
            return write_failed(p, path, e);
        size -= (uint64_t)n;
    }
    return 0;
}

static int put_file(struct pack *p, struct archive_entry *entry, int dirfd, const char *name,
                    const char *path, struct err **e)
{
    /* O_NONBLOCK: it may have become a pipe meanwhile */
    AUTOCLOSE int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *first;
    struct stat st;
    char limit[24];
    int rc;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "read '%s/%s'", p->label, path);
    if (!S_ISREG(st.st_mode))
        return err_new(e, ERR_FAILED, "'%s/%s' changed while it was read; try again", p->label,
                       path);
    if (st.st_nlink > 1 && (first = seen_before(p, st.st_ino, path))) {
        archive_entry_copy_hardlink(entry, first);
        return put_header(p, entry, path, &st, e);
    }
    if ((uint64_t)st.st_size > p->caps->max_bytes - p->bytes) {
        format_size(p->caps->max_bytes, limit);
        return err_new(e, ERR_LIMIT,
                       "'%s' holds more than %s of files; --max-size raises the limit", p->label,
                       limit);
    }
    p->bytes += (uint64_t)st.st_size;
    archive_entry_set_size(entry, st.st_size);
    add_capability(entry, fd);
    if ((rc = put_header(p, entry, path, &st, e)) < 0)
        return rc;
    return put_content(p, fd, path, (uint64_t)st.st_size, e);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *de)
{
    return strcmp(de->d_name, ".") && strcmp(de->d_name, "..");
}

static int put_dir(struct pack *p, int fd, const char *path, int depth, struct err **e);

static int put_any(struct pack *p, int dirfd, const char *name, const char *path, int depth,
                   struct err **e)
{
    struct archive_entry *entry = archive_entry_new();
    AUTOFREE char *target = NULL;
    AUTOCLOSE int sub = -1;
    struct stat st;
    int rc = 0;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        rc = err_sys(e, "look at '%s/%s'", p->label, path);
    } else if (str_starts(name, ".wh.")) {
        rc =
            err_new(e, ERR_INVALID, "'%s/%s': names that start with .wh. mean deletions in a layer",
                    p->label, path);
    } else if (S_ISREG(st.st_mode)) {
        rc = put_file(p, entry, dirfd, name, path, e);
    } else if (S_ISLNK(st.st_mode)) {
        target = fs_readlink(dirfd, name);
        archive_entry_copy_symlink(entry, target ? target : "");
        rc = target ? put_header(p, entry, path, &st, e) : err_sys(e, "read link '%s'", path);
    } else if (!S_ISDIR(st.st_mode)) {
        p->skipped++;
    } else if (st.st_dev != p->store_dev || st.st_ino != p->store_ino) {
        sub = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub < 0)
            rc = err_sys(e, "read '%s/%s'", p->label, path);
        else if ((rc = put_header(p, entry, path, &st, e)) == 0 && st.st_dev == p->dev)
            rc = put_dir(p, sub, path, depth + 1, e);
    }
    archive_entry_free(entry);
    return rc;
}

static int put_dir(struct pack *p, int fd, const char *path, int depth, struct err **e)
{
    struct dirent **list;
    int rc = 0, n;

    if (depth > MAX_DEPTH)
        return err_new(e, ERR_LIMIT, "'%s/%.60s...' is deeper than %d directories", p->label, path,
                       MAX_DEPTH);
    n = scandirat(fd, ".", &list, not_dots, by_name);
    if (n < 0)
        return err_sys(e, "read '%s/%s'", p->label, path);
    for (int i = 0; i < n; i++) {
        AUTOFREE char *below = *path ? path_join(path, list[i]->d_name) : str_dup(list[i]->d_name);
        if (rc == 0)
            rc = put_any(p, fd, list[i]->d_name, below, depth, e);
        free(list[i]);
    }
    free(list);
    return rc;
}

int pack_tree(int dirfd, const char *label, int out_fd, const struct caps *caps, dev_t store_dev,
              ino_t store_ino, uint64_t *ret_skipped, struct err **e)
{
    CLEANUP(pack_free_p)
    struct pack p = { .label = label,
                      .caps = caps,
                      .out_fd = out_fd,
                      .store_dev = store_dev,
                      .store_ino = store_ino };
    struct archive_entry *root = archive_entry_new();
    struct stat st;
    int rc;

    p.buf = mem_zalloc(BUF_SIZE);
    p.archive = archive_write_new();
    if (!p.archive || !root)
        abort();
    archive_write_set_format_pax_restricted(p.archive);
    archive_write_set_bytes_per_block(p.archive, BUF_SIZE);
    archive_write_set_bytes_in_last_block(p.archive, 512);
    if (archive_write_open(p.archive, &p, NULL, on_write, NULL) != ARCHIVE_OK)
        rc = write_failed(&p, "", e);
    else if (fstat(dirfd, &st) < 0)
        rc = err_sys(e, "look at '%s'", label);
    else
        rc = put_header(&p, root, "", &st, e);
    archive_entry_free(root);
    p.dev = rc == 0 ? st.st_dev : 0;
    if (rc < 0 || (rc = put_dir(&p, dirfd, "", 0, e)) < 0)
        return rc;
    if (archive_write_close(p.archive) != ARCHIVE_OK)
        return write_failed(&p, "", e);
    *ret_skipped = p.skipped;
    return 0;
}
