#include "image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "image/tree.h"

/* What the headers of one entry may take together (long names, extended attributes). */
enum { HEADER_MAX = 8 << 20 };

struct unpack {
    struct stream *stream;
    const char *label;
    const struct caps *caps;
    struct archive *archive;
    struct tree *tree;
    struct err *failed; /* from the stream, on its way through libarchive */
    bool in_header;
    uint64_t header_bytes;
    struct layer_stats stats;
};

static void unpack_free_p(struct unpack *u)
{
    archive_read_free(u->archive);
    tree_free(u->tree);
    err_free(u->failed);
}

static la_ssize_t on_read(struct archive *a, void *ctx, const void **buf)
{
    struct unpack *u = ctx;
    ssize_t n = stream_read(u->stream, buf, &u->failed);

    if (n > 0 && u->in_header && (u->header_bytes += (uint64_t)n) > HEADER_MAX) {
        err_new(&u->failed, ERR_LIMIT, "'%s' has a header of more than %d bytes", u->label,
                HEADER_MAX);
        n = -1;
    }
    if (n < 0)
        archive_set_error(a, EIO, "source failed");
    return n < 0 ? ARCHIVE_FATAL : n;
}

/* The stream's own error where there is one, else libarchive's words. */
static int read_failed(struct unpack *u, struct err **e)
{
    const char *why = archive_error_string(u->archive);

    if (u->failed) {
        int code = (int)u->failed->code;
        if (e) {
            err_free(*e);
            *e = TAKE_PTR(u->failed);
        }
        return -code;
    }
    if (!u->stats.entries && archive_format(u->archive) == 0)
        return err_new(e, ERR_INVALID, "'%s' is not a tar archive (plain, gz, zst, xz or bz2)",
                       u->label);
    return err_new(e, ERR_CORRUPT, "'%s' is not a sound tar archive: %s", u->label,
                   why ? why : "it can't be read");
}

static void meta_of(struct archive_entry *entry, struct tree_meta *ret)
{
    *ret = (struct tree_meta){
        .mode = archive_entry_perm(entry),
        .uid = archive_entry_uid(entry),
        .gid = archive_entry_gid(entry),
        .mtime = archive_entry_mtime(entry),
        .mtime_nsec = archive_entry_mtime_nsec(entry),
    };
}

static int write_data(struct unpack *u, int fd, uint64_t size, struct err **e)
{
    const void *buf;
    size_t n;
    la_int64_t offset;
    int rc;

    while ((rc = archive_read_data_block(u->archive, &buf, &n, &offset)) == ARCHIVE_OK) {
        if (offset < 0 || (uint64_t)offset > size || n > size - (uint64_t)offset)
            return err_new(e, ERR_CORRUPT, "'%s' holds a file larger than it says", u->label);
        for (const char *p = buf; n;) {
            ssize_t w = RETRY(pwrite(fd, p, n, offset));
            if (w < 0)
                return err_sys(e, "write");
            p += w;
            offset += w;
            n -= (size_t)w;
        }
    }
    return rc == ARCHIVE_EOF ? 0 : read_failed(u, e);
}

static int put_file(struct unpack *u, struct archive_entry *entry, const char *path,
                    const struct tree_meta *m, struct err **e)
{
    la_int64_t size = archive_entry_size(entry);
    AUTOCLOSE int fd = -1;
    char limit[24];
    int rc;

    if (size < 0)
        return err_new(e, ERR_CORRUPT, "file '%s' has a negative size", path);
    if ((uint64_t)size > u->caps->max_bytes - u->stats.bytes) {
        format_size(u->caps->max_bytes, limit);
        return err_new(e, ERR_LIMIT,
                       "'%s' holds more than %s of files; --max-size raises the limit", u->label,
                       limit);
    }
    u->stats.bytes += (uint64_t)size;
    if ((rc = tree_file(u->tree, path, &fd, e)) < 0 ||
        (rc = write_data(u, fd, (uint64_t)size, e)) < 0 ||
        (rc = tree_file_done(u->tree, fd, (uint64_t)size, m, e)) < 0)
        return err_wrap(e, "'%s'", path);
    return 0;
}

static int put_entry(struct unpack *u, struct archive_entry *entry, struct err **e)
{
    const char *path = archive_entry_pathname(entry);
    const char *link = archive_entry_hardlink(entry);
    struct tree_meta m;

    if (!path)
        return err_new(e, ERR_INVALID, "'%s' holds a name that can't be read", u->label);
    meta_of(entry, &m);
    if (tree_is_whiteout(path)) {
        u->stats.whiteouts++;
        return tree_whiteout(u->tree, path, e);
    }
    if (link)
        return tree_hardlink(u->tree, path, link, e);
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return put_file(u, entry, path, &m, e);
    case AE_IFDIR:
        return tree_dir(u->tree, path, &m, e);
    case AE_IFLNK:
        return tree_symlink(u->tree, path, archive_entry_symlink(entry), &m, e);
    default:
        u->stats.skipped++;
        return 0;
    }
}

/* libarchive warns where it changed a name to fit a character set: two names could become one. */
static bool name_garbled(struct archive *a)
{
    const char *why = archive_error_string(a);
    return why && (str_starts(why, "Pathname") || str_starts(why, "Linkname"));
}

static int next_entry(struct unpack *u, struct archive_entry **ret, struct err **e)
{
    u->in_header = true;
    u->header_bytes = 0;
    int rc = archive_read_next_header(u->archive, ret);
    u->in_header = false;

    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK && (rc != ARCHIVE_WARN || name_garbled(u->archive)))
        return read_failed(u, e);
    if (++u->stats.entries > u->caps->max_entries)
        return err_new(e, ERR_LIMIT,
                       "'%s' has more than %llu entries; --max-entries raises the limit", u->label,
                       (unsigned long long)u->caps->max_entries);
    return 1;
}

int layer_unpack(struct stream *s, const char *label, int dirfd, const struct caps *caps,
                 struct layer_stats *ret, struct err **e)
{
    CLEANUP(unpack_free_p) struct unpack u = { .stream = s, .label = label, .caps = caps };
    struct archive_entry *entry;
    int rc;

    u.tree = tree_new(dirfd);
    u.archive = archive_read_new();
    if (!u.archive)
        abort();
    archive_read_support_format_tar(u.archive);
    u.in_header = true;
    if (archive_read_open(u.archive, &u, NULL, on_read, NULL) != ARCHIVE_OK)
        return read_failed(&u, e);
    while ((rc = next_entry(&u, &entry, e)) > 0) {
        if ((rc = put_entry(&u, entry, e)) < 0)
            return rc;
        /* whatever an entry carries that was not asked for */
        if (archive_read_data_skip(u.archive) < ARCHIVE_WARN)
            return read_failed(&u, e);
    }
    if (rc < 0 || (rc = tree_finish(u.tree, e)) < 0)
        return rc;
    *ret = u.stats;
    return 0;
}
