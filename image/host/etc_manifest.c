#include "image/host/etc_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

#define MAGIC 0x43544550u /* "PETC" */
#define SLACK 50000000    /* ns: coarser than any clock tick that stamps files */
#define MAX_MF (8u << 20)

struct header {
    uint32_t magic, format;
    uint64_t gen;
    int64_t read_from, read_to;
    uint32_t n, n_watch; /* records; the watched ones come first */
    uint32_t strings[2]; /* bytes of strings behind the watched records, behind the others */
    uint8_t unsure_files, unsure_dirs;
    uint8_t pad[6];
};

struct record {
    uint64_t ino, size;
    int64_t ctime_ns;
    uint32_t path; /* into the strings of its part */
    uint32_t kind;
};

/* The file is: header, watched records, their strings (key and boot id first), the other records,
 * their strings. A start reads the first part only. */
struct part {
    const struct record *r;
    size_t n, strings;
    const char *s;
};

struct loaded {
    char *buf; /* NULL: the caller's */
    struct header h;
    struct part part[2];
};

static void loaded_free_p(struct loaded *l)
{
    free(l->buf);
}

static bool set_part(struct part *p, const char *at, size_t n, size_t strings)
{
    p->r = (const struct record *)at;
    p->n = n;
    p->strings = strings;
    p->s = at + n * sizeof(struct record);
    if (strings == 0 || p->s[strings - 1] != '\0')
        return n == 0 && strings == 0;
    for (size_t i = 0; i < n; i++)
        if (p->r[i].path >= strings)
            return false;
    return true;
}

/* Reads and checks the shape, the key and the boot; false: there is no manifest to trust. The
 * buffer is used where all that is wanted fits. */
static bool load(int dir_fd, const char *key, const char *boot_id, bool all, char *buf, size_t cap,
                 struct loaded *ret)
{
    AUTOCLOSE int fd = openat(dir_fd, "manifest", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : RETRY(pread(fd, buf, cap, 0));
    struct header *h = &ret->h;

    if (got < (ssize_t)sizeof *h)
        return false;
    memcpy(h, buf, sizeof *h);
    if (h->magic != MAGIC || h->format != ETC_FORMAT || h->gen == 0 || h->n > 2 * ETC_MAX_ENTRIES ||
        h->n_watch > h->n || h->strings[0] > MAX_MF || h->strings[1] > MAX_MF)
        return false;
    size_t first = sizeof *h + h->n_watch * sizeof(struct record) + h->strings[0];
    size_t second = (h->n - h->n_watch) * sizeof(struct record) + h->strings[1];
    size_t pad = -first & 7, want = all ? first + pad + second : first;
    if (want > (size_t)got) {
        buf = ret->buf = malloc(want);
        if (!buf || RETRY(pread(fd, buf, want, 0)) != (ssize_t)want)
            return false;
    }
    if (!set_part(&ret->part[0], buf + sizeof *h, h->n_watch, h->strings[0]) ||
        (all && !set_part(&ret->part[1], buf + first + pad, h->n - h->n_watch, h->strings[1])))
        return false;
    const char *s = ret->part[0].s;
    size_t k = strlen(s) + 1;
    return strcmp(s, key) == 0 && k < h->strings[0] && strcmp(s + k, boot_id) == 0;
}

uint64_t etc_manifest_check(int dir_fd, int etc_fd, const char *key, const char *boot_id)
{
    _Alignas(8) char buf[16384];
    CLEANUP(loaded_free_p) struct loaded l = { 0 };

    if (!load(dir_fd, key, boot_id, false, buf, sizeof buf, &l) || l.h.unsure_files ||
        l.h.unsure_dirs)
        return 0;
    const struct part *p = &l.part[0];
    for (size_t i = 0; i < p->n; i++) {
        const struct record *r = &p->r[i];
        if (!etc_same(etc_fd, p->s + r->path, r->ino, r->size, r->ctime_ns, r->kind == ETC_DIR))
            return 0;
    }
    return l.h.gen;
}

uint64_t etc_manifest_equal(int dir_fd, const char *key, const char *boot_id,
                            const struct etc_list *list, struct etc_manifest *m)
{
    _Alignas(8) char buf[4096];
    CLEANUP(loaded_free_p) struct loaded l = { 0 };
    size_t k[2] = { 0 };

    if (!load(dir_fd, key, boot_id, true, buf, sizeof buf, &l) || l.h.unsure_files ||
        l.h.n != list->n)
        return 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct etc_entry *n = &list->v[i];
        const struct part *p = &l.part[!n->watch];
        const struct record *r = &p->r[k[!n->watch]];
        if (k[!n->watch]++ >= p->n || r->kind != (uint32_t)n->kind ||
            strcmp(p->s + r->path, n->path) != 0)
            return 0;
        if (n->kind != ETC_DIR && n->kind != ETC_STAMP &&
            (r->ino != n->ino || r->size != n->size || r->ctime_ns != n->ctime_ns))
            return 0;
    }
    m->read_from = l.h.read_from;
    m->read_to = l.h.read_to;
    return l.h.gen;
}

static bool within(int64_t t, int64_t from, int64_t to)
{
    return t >= from - SLACK && t <= to + SLACK;
}

int etc_manifest_write(int dir_fd, const struct etc_manifest *m, const struct etc_list *list,
                       struct err **e)
{
    AUTOSTR struct str out = STR_INIT;
    struct header h = { .magic = MAGIC,
                        .format = ETC_FORMAT,
                        .gen = m->gen,
                        .read_from = m->read_from,
                        .read_to = m->read_to,
                        .n = (uint32_t)list->n };

    str_addn(&out, &h, sizeof h);
    for (int part = 0; part < 2; part++) {
        AUTOSTR struct str s = STR_INIT;
        if (part == 0) {
            str_addn(&s, m->key, strlen(m->key) + 1);
            str_addn(&s, m->boot_id, strlen(m->boot_id) + 1);
        }
        for (size_t i = 0; i < list->n; i++) {
            const struct etc_entry *n = &list->v[i];
            struct record r = { n->ino, n->size, n->ctime_ns, (uint32_t)s.len, (uint32_t)n->kind };
            if (n->watch != !part)
                continue;
            h.n_watch += n->watch;
            if (n->kind == ETC_DIR || n->kind == ETC_STAMP)
                h.unsure_dirs |= within(n->ctime_ns, m->scan_from, m->scan_to);
            else
                h.unsure_files |= within(n->ctime_ns, m->read_from, m->read_to);
            str_addn(&s, n->path, strlen(n->path) + 1);
            str_addn(&out, &r, sizeof r);
        }
        h.strings[part] = (uint32_t)s.len;
        str_addn(&out, s.p ? s.p : "", s.len);
        while (part == 0 && out.len & 7)
            str_addc(&out, '\0');
    }
    memcpy(out.p, &h, sizeof h);

    /* No fsync: after a crash the boot id differs and the manifest is not read. */
    AUTOFREE char *tmp = str_printf("tmp-manifest-%d", (int)getpid());
    AUTOCLOSE int fd =
        openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fs_write_all(fd, out.p, out.len) < 0 ||
        renameat(dir_fd, tmp, dir_fd, "manifest") < 0) {
        err_sys(e, "write the manifest of the copy of /etc");
        (void)unlinkat(dir_fd, tmp, 0);
        return -ERR_FAILED;
    }
    return 0;
}
