#include "image/host/etc_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

#define MAGIC  0x43544550u /* "PETC" */
#define SLACK  50000000    /* ns: coarser than any clock tick that stamps files */
#define MAX_MF (8u << 20)

struct header {
    uint32_t magic, format;
    uint64_t gen;
    int64_t read_from, read_to;
    uint32_t n, n_watch;       /* records; the watched ones come first */
    uint32_t key, boot;        /* offsets into the strings */
    uint32_t strings;          /* bytes of them, after the records; they end with NUL */
    uint8_t unsure_files, unsure_dirs;
    uint8_t pad[2];
};

struct record {
    uint64_t ino, size;
    int64_t ctime_ns;
    uint32_t path;
    uint32_t kind;
};

struct loaded {
    char *buf;
    const struct header *h;
    const struct record *r;
    const char *s;
};

static void loaded_free_p(struct loaded *l)
{
    free(l->buf);
}

/* Reads and checks the shape, the key and the boot; false: there is no manifest to trust. */
static bool load(int dir_fd, const char *key, const char *boot_id, struct loaded *ret)
{
    AUTOCLOSE int fd = openat(dir_fd, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_size < (off_t)sizeof(struct header) || st.st_size > MAX_MF)
        return false;
    size_t size = (size_t)st.st_size;
    ret->buf = malloc(size);
    if (!ret->buf || RETRY(read(fd, ret->buf, size)) != (ssize_t)size)
        return false;
    const struct header *h = ret->h = (const struct header *)ret->buf;
    if (h->magic != MAGIC || h->format != ETC_FORMAT || h->gen == 0 || h->n > ETC_MAX_ENTRIES * 2 ||
        h->n_watch > h->n || h->strings == 0 ||
        sizeof *h + h->n * sizeof(struct record) + h->strings != size || h->key >= h->strings ||
        h->boot >= h->strings || ret->buf[size - 1] != '\0')
        return false;
    ret->r = (const struct record *)(h + 1);
    ret->s = (const char *)(ret->r + h->n);
    for (uint32_t i = 0; i < h->n; i++)
        if (ret->r[i].path >= h->strings)
            return false;
    return strcmp(ret->s + h->key, key) == 0 && strcmp(ret->s + h->boot, boot_id) == 0;
}

uint64_t etc_manifest_check(int dir_fd, int etc_fd, const char *key, const char *boot_id)
{
    CLEANUP(loaded_free_p) struct loaded l = { 0 };

    if (!load(dir_fd, key, boot_id, &l) || l.h->unsure_files || l.h->unsure_dirs)
        return 0;
    for (uint32_t i = 0; i < l.h->n_watch; i++) {
        const struct record *r = &l.r[i];
        if (!etc_same(etc_fd, l.s + r->path, r->ino, r->size, r->ctime_ns, r->kind == ETC_DIR))
            return 0;
    }
    return l.h->gen;
}

uint64_t etc_manifest_equal(int dir_fd, const char *key, const char *boot_id,
                            const struct etc_list *list, struct etc_manifest *m)
{
    CLEANUP(loaded_free_p) struct loaded l = { 0 };
    uint32_t k = 0;

    if (!load(dir_fd, key, boot_id, &l) || l.h->unsure_files || l.h->n != list->n)
        return 0;
    for (int watched = 1; watched >= 0; watched--) {
        for (size_t i = 0; i < list->n; i++) {
            const struct etc_entry *n = &list->v[i];
            const struct record *r = &l.r[k];
            if (n->watch != watched)
                continue;
            if (r->kind != (uint32_t)n->kind || strcmp(l.s + r->path, n->path) != 0)
                return 0;
            if (n->kind != ETC_DIR &&
                (r->ino != n->ino || r->size != n->size || r->ctime_ns != n->ctime_ns))
                return 0;
            k++;
        }
    }
    m->read_from = l.h->read_from;
    m->read_to = l.h->read_to;
    return l.h->gen;
}

static bool within(int64_t t, int64_t from, int64_t to)
{
    return t >= from - SLACK && t <= to + SLACK;
}

int etc_manifest_write(int dir_fd, const struct etc_manifest *m, const struct etc_list *list,
                       struct err **e)
{
    AUTOSTR struct str out = STR_INIT, s = STR_INIT;
    struct header h = { .magic = MAGIC,
                        .format = ETC_FORMAT,
                        .gen = m->gen,
                        .read_from = m->read_from,
                        .read_to = m->read_to,
                        .n = (uint32_t)list->n };

    str_addn(&s, m->key, strlen(m->key) + 1);
    h.boot = (uint32_t)s.len;
    str_addn(&s, m->boot_id, strlen(m->boot_id) + 1);
    str_addn(&out, &h, sizeof h);
    for (int watched = 1; watched >= 0; watched--) {
        for (size_t i = 0; i < list->n; i++) {
            const struct etc_entry *n = &list->v[i];
            struct record r = { n->ino, n->size, n->ctime_ns, (uint32_t)s.len, (uint32_t)n->kind };
            if (n->watch != watched)
                continue;
            h.n_watch += n->watch;
            if (n->kind == ETC_DIR)
                h.unsure_dirs |= within(n->ctime_ns, m->scan_from, m->scan_to);
            else
                h.unsure_files |= within(n->ctime_ns, m->read_from, m->read_to);
            str_addn(&s, n->path, strlen(n->path) + 1);
            str_addn(&out, &r, sizeof r);
        }
    }
    h.strings = (uint32_t)s.len;
    memcpy(out.p, &h, sizeof h);
    str_addn(&out, s.p, s.len);

    /* No fsync: after a crash the boot id differs and the manifest is not read. */
    AUTOFREE char *tmp = str_printf("tmp-manifest-%d", (int)getpid());
    AUTOCLOSE int fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                              0600);
    if (fd < 0 || fs_write_all(fd, out.p, out.len) < 0 ||
        renameat(dir_fd, tmp, dir_fd, "manifest") < 0) {
        err_sys(e, "write the manifest of the copy of /etc");
        (void)unlinkat(dir_fd, tmp, 0);
        return -ERR_FAILED;
    }
    return 0;
}
