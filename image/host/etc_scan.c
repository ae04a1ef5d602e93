#include "image/host/etc_priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

struct scan {
    struct etc_list *l;
    struct strv top; /* the names in /etc, sorted */
    bool cold;       /* of the rule at hand */
};

void etc_list_free_p(struct etc_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].path);
        free(l->v[i].text);
    }
    free(l->v);
    *l = (struct etc_list){ 0 };
}

static int64_t stamp(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static bool has(const struct etc_list *l, const char *path)
{
    for (size_t i = l->n; i-- > 0;)
        if (strcmp(l->v[i].path, path) == 0)
            return true;
    return false;
}

static void add(struct etc_list *l, enum etc_kind kind, const char *path, const struct stat *st,
                char *text, bool watch)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->v = realloc(l->v, l->cap * sizeof *l->v);
        if (!l->v)
            abort();
    }
    l->v[l->n++] = (struct etc_entry){
        .path = str_dup(path),
        .text = text,
        .kind = kind,
        .watch = watch,
        .exec = st->st_mode & 0100,
        .ino = st->st_ino,
        .size = (uint64_t)st->st_size,
        .ctime_ns = stamp(&st->st_ctim),
        .mtime = st->st_mtim,
    };
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, sorted; takes the descriptor. What can't be read has none. */
static void names(int fd, struct strv *ret)
{
    DIR *d = fdopendir(fd);
    struct dirent *de;

    if (!d) {
        close(fd);
        return;
    }
    while (ret->n < ETC_MAX_ENTRIES && (de = readdir(d)))
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            strv_add(ret, de->d_name);
    closedir(d);
    if (ret->n)
        qsort(ret->v, ret->n, sizeof *ret->v, by_name);
}

/* One thing below /etc: `name` in the directory fd, `path` from /etc. */
static void visit(struct scan *s, int fd, const char *name, const char *path, int depth)
{
    struct etc_list *l = s->l;
    struct stat st;

    if (l->n >= ETC_MAX_ENTRIES || depth > ETC_MAX_DEPTH || strlen(path) >= PATH_MAX / 2 ||
        etc_name_odd(name) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISLNK(st.st_mode)) {
        char *text = fs_readlink(fd, name);
        if (text && etc_link_allowed(path, text))
            add(l, ETC_LINK, path, &st, text, false);
        else
            free(text);
        return;
    }
    if (etc_name_denied(name))
        return;
    if (S_ISREG(st.st_mode)) {
        uint64_t size = (uint64_t)st.st_size;
        if (!(st.st_mode & S_IROTH) || size > ETC_MAX_FILE || l->total + size > ETC_MAX_TOTAL)
            return;
        l->total += size;
        add(l, ETC_FILE, path, &st, NULL, !s->cold);
        return;
    }
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 0005) != 0005)
        return;

    AUTOSTRV struct strv in = { 0 };
    int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTOCLOSE int at = sub < 0 ? -1 : fcntl(sub, F_DUPFD_CLOEXEC, 0);
    if (sub < 0)
        return;
    add(l, ETC_DIR, path, &st, NULL, !s->cold || depth == 0);
    names(sub, &in);
    for (size_t i = 0; at >= 0 && i < in.n; i++) {
        AUTOFREE char *p = str_printf("%s/%s", path, in.v[i]);
        visit(s, at, in.v[i], p, depth + 1);
    }
}

/* Opens the directories in front of a rule's last component, each of them listed and watched:
 * what is created there later must be noticed. */
static int open_parents(struct scan *s, int etc_fd, const char *dirs, size_t len)
{
    AUTOCLOSE int fd = fcntl(etc_fd, F_DUPFD_CLOEXEC, 0);
    AUTOFREE char *copy = str_printf("%.*s", (int)len, dirs);
    char *save = NULL;

    for (char *c = strtok_r(copy, "/", &save); c && fd >= 0; c = strtok_r(NULL, "/", &save)) {
        struct stat st;
        size_t upto = (size_t)(c - copy) + strlen(c);
        AUTOFREE char *path = str_printf("%.*s", (int)upto, dirs);
        int sub = openat(fd, c, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(fd);
        fd = sub;
        if (fd < 0 || fstat(fd, &st) < 0 || !(st.st_mode & S_IXOTH))
            return -1;
        if (!has(s->l, path))
            add(s->l, ETC_DIR, path, &st, NULL, true);
    }
    return TAKE_FD(fd);
}

static void scan_rule(struct scan *s, int etc_fd, const struct etc_rule *r)
{
    const char *slash = strrchr(r->path, '/');

    s->cold = r->flags & RULE_COLD;
    if (slash) {
        AUTOCLOSE int fd = open_parents(s, etc_fd, r->path, (size_t)(slash - r->path));
        if (fd >= 0 && !has(s->l, r->path))
            visit(s, fd, slash + 1, r->path, 0);
        return;
    }
    for (size_t i = 0; i < s->top.n; i++)
        if (fnmatch(r->path, s->top.v[i], FNM_PERIOD) == 0 && !has(s->l, s->top.v[i]))
            visit(s, etc_fd, s->top.v[i], s->top.v[i], 0);
}

int etc_scan(int etc_fd, bool root_construction, struct etc_list *ret, struct err **e)
{
    static const char *const sources[] = { "passwd", "group", "gitconfig" };
    static const char *const databases[] = { "../var/lib/dpkg/status",
                                             "../var/lib/rpm/rpmdb.sqlite",
                                             "../usr/lib/sysimage/rpm/rpmdb.sqlite" };
    struct scan s = { .l = ret };
    struct stat st;
    int fd = openat(etc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        int rc = err_sys(e, "read directory '/etc'");
        close_p(&fd);
        return rc;
    }
    add(ret, ETC_DIR, ".", &st, NULL, true);
    if ((st.st_mode & 0005) != 0005) {
        close(fd);
        return 0;
    }
    names(fd, &s.top);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        if (fstatat(etc_fd, sources[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            (st.st_mode & S_IROTH))
            add(ret, ETC_SOURCE, sources[i], &st, NULL, true);
    for (size_t i = 0; i < ARRAY_LEN(databases); i++)
        if (fstatat(etc_fd, databases[i], &st, 0) == 0)
            add(ret, ETC_STAMP, databases[i], &st, NULL, true);
    for (size_t i = 0; i < etc_n_rules; i++)
        if (root_construction || !(etc_rules[i].flags & RULE_ROOT))
            scan_rule(&s, etc_fd, &etc_rules[i]);
    strv_free_p(&s.top);
    return 0;
}

bool etc_same(int etc_fd, const char *path, uint64_t ino, uint64_t size, int64_t ctime_ns, bool dir)
{
    struct stat st;
    return fstatat(etc_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == ino &&
           stamp(&st.st_ctim) == ctime_ns && (dir || (uint64_t)st.st_size == size);
}
