/* tests/unit/tree_dump.h - everything that can be seen of a tree, as text, so that two can be compared;
 * and a child that is root over its files, as root or as an ordinary user. */
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"

enum {
    DUMP_OVERLAY = 1, /* the attributes of overlays, too: for layers; not for what is mounted */
    DUMP_BLOCKS = 2,  /* how much is allocated: holes */
    DUMP_LINKS = 4,   /* number of names */
};

struct dump {
    struct str out, path;
    unsigned flags;
    struct strv inodes; /* "DEV-INO PATH" of files seen */
};

static inline int dump_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static inline void dump_xattrs(struct dump *d, int dir, const char *name)
{
    char path[320], names[4096], value[4096];
    AUTOSTRV struct strv l = { 0 };

    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    ssize_t n = llistxattr(path, names, sizeof names);
    for (char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
        if (strstr(p, ".overlay.") && !(d->flags & DUMP_OVERLAY))
            continue;
        ssize_t size = lgetxattr(path, p, value, sizeof value - 1);
        uint64_t sum = 0;
        for (ssize_t i = 0; i < size; i++)
            sum = sum * 31 + (unsigned char)value[i];
        strv_addf(&l, " %s=%zd:%llx", p, size, (unsigned long long)sum);
    }
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, dump_compare);
    for (size_t i = 0; i < l.n; i++)
        str_add(&d->out, l.v[i]);
}

/* Which earlier name is the same file? */
static inline void dump_same(struct dump *d, const struct stat *st)
{
    char key[48];
    size_t n = (size_t)snprintf(key, sizeof key, "%llx-%llx ", (unsigned long long)st->st_dev,
                                (unsigned long long)st->st_ino);
    for (size_t i = 0; i < d->inodes.n; i++) {
        if (strncmp(d->inodes.v[i], key, n) == 0) {
            str_addf(&d->out, " same:%s", d->inodes.v[i] + n);
            return;
        }
    }
    strv_addf(&d->inodes, "%s%s", key, d->path.p);
}

static inline void dump_content(struct dump *d, int dir, const char *name)
{
    AUTOCLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    unsigned char buf[65536];
    uint64_t sum = 14695981039346656037ULL;
    ssize_t n = -1;

    while (fd >= 0 && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            sum = (sum ^ buf[i]) * 1099511628211ULL;
    }
    str_addf(&d->out, n < 0 ? " unreadable" : " %llx", (unsigned long long)sum);
}

static inline void dump_dir(struct dump *d, int dir)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dp = copy < 0 ? NULL : fdopendir(copy);
    AUTOSTRV struct strv names = { 0 };
    size_t len = d->path.len;

    if (!dp)
        str_add(&d->out, "unreadable\n");
    for (struct dirent *de; dp && (de = readdir(dp));) {
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
            (len || strcmp(de->d_name, "work")))
            strv_add(&names, de->d_name);
    }
    if (dp)
        closedir(dp);
    if (names.n)
        qsort(names.v, names.n, sizeof *names.v, dump_compare);
    for (size_t i = 0; i < names.n; i++) {
        struct stat st = { 0 };
        const char *name = names.v[i];
        str_addf(&d->path, "/%s", name);
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            str_add(&d->out, "? ");
        str_addf(&d->out, "%s %o %u:%u %lld.%09ld", d->path.p, st.st_mode, st.st_uid, st.st_gid,
                 (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        if (d->flags & DUMP_LINKS && !S_ISDIR(st.st_mode))
            str_addf(&d->out, " n%d", (int)st.st_nlink);
        if (!S_ISDIR(st.st_mode))
            dump_same(d, &st);
        if (S_ISREG(st.st_mode)) {
            str_addf(&d->out, " %lld", (long long)st.st_size);
            dump_content(d, dir, name);
            if (d->flags & DUMP_BLOCKS)
                str_addf(&d->out, st.st_blocks * 512 < st.st_size / 2 ? " sparse" : " full");
        }
        if (S_ISLNK(st.st_mode)) {
            AUTOFREE char *target = fs_readlink(dir, name);
            str_addf(&d->out, " -> %s", target);
        }
        dump_xattrs(d, dir, name);
        str_addc(&d->out, '\n');
        if (S_ISDIR(st.st_mode)) {
            AUTOCLOSE int sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            dump_dir(d, sub);
        }
        d->path.p[d->path.len = len] = '\0';
    }
}

/* The caller frees it. work/ at the top is left out. */
static inline char *tree_dump(const char *path, unsigned flags)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dump d = { .flags = flags };

    str_add(&d.path, "");
    str_add(&d.out, "");
    dump_dir(&d, fd);
    str_reset(&d.path);
    strv_free_p(&d.inodes);
    return str_take(&d.out);
}

/* Prints the first line in which two dumps differ. */
static inline bool same_dump(const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n)) {
            fprintf(stderr, "  - %.*s\n  + %.*s\n", (int)n, a, (int)m, b);
            return false;
        }
        a += n + 1;
        b += m + 1;
    }
    if (*a || *b)
        fprintf(stderr, "  %c %.*s\n", *a ? '-' : '+', (int)strcspn(*a ? a : b, "\n"), *a ? a : b);
    return !*a && !*b;
}

/* In a child with a mount namespace of its own, root or root of a user namespace. 77: not possible. */
static inline int run_as_root(int (*f)(void *, struct err **))
{
    struct plan p = {
        .uid = getuid(), .gid = getgid(), .owner_uid = getuid(), .owner_gid = getgid()
    };
    CLEANUP(err_free_p) struct err *e = NULL;
    struct ids ids;

    if (getuid() == 0)
        ids = (struct ids){ .mode = IDS_ROOT };
    else if (ids_plan(&p, false, &ids, &e) < 0)
        return 77;
    if (inside_run(&ids, f, NULL, &e) == 0)
        return 0;
    AUTOFREE char *text = err_text(e);
    fprintf(stderr, "%s\n", text);
    return strstr(text, "user namespace") ? 77 : 1;
}
