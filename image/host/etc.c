#include "image/host/etc.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "image/host/etc_priv.h"

#define LOCK_WAIT_MS 20000
#define KEEP_SECONDS 86400 /* a replaced generation, for those who don't hold it */
#define MANY 8             /* replaced generations; beyond, an hour is enough */
#define KEEP_MANY 3600

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Everything that decides what the copy looks like, apart from /etc itself. */
static char *cache_key(const char *root, const struct host_user *u)
{
    uint64_t rules = 0;
    for (size_t i = 0; i < etc_n_rules; i++)
        rules = etc_hash(rules, etc_rules[i].path) + etc_rules[i].flags;
    return str_printf("%d %s %016llx\n%s\n%s\n%u %u\n%s\n%s\n%d", ETC_FORMAT, PETRI_VERSION,
                      (unsigned long long)rules, root, u->name ? u->name : "", u->uid, u->gid,
                      u->home ? u->home : "", u->shell ? u->shell : "", u->root_construction);
}

/* Numbers of the generations in the cache directory, ascending, the oldest 256 if there are more;
 * returns how many. */
static size_t generations(int dir_fd, uint64_t v[256], uint64_t *ret_newest, struct strv *ret_stale)
{
    DIR *d = fs_list(dir_fd);
    struct dirent *de;
    size_t n = 0;

    *ret_newest = 0;
    if (!d)
        return 0;
    while ((de = readdir(d))) {
        unsigned long long g;
        char end;
        if (str_starts(de->d_name, "tmp-"))
            strv_add(ret_stale, de->d_name);
        if (sscanf(de->d_name, "gen-%llu%c", &g, &end) != 1 || !g)
            continue;
        if (g > *ret_newest)
            *ret_newest = g;
        if (n == 256 && v[n - 1] < g)
            continue;
        size_t k = n < 256 ? n++ : n - 1;
        for (; k > 0 && v[k - 1] > g; k--)
            v[k] = v[k - 1];
        v[k] = g;
    }
    closedir(d);
    return n;
}

void etc_sweep(int dir_fd, uint64_t current, time_t now)
{
    AUTOSTRV struct strv stale = { 0 };
    uint64_t gens[256], newest;
    size_t n = generations(dir_fd, gens, &newest, &stale);

    for (size_t i = 0; i < stale.n; i++)
        (void)fs_remove_tree(dir_fd, stale.v[i], NULL);
    for (size_t i = 0; i + 1 < n; i++) {
        char name[40], next[40];
        struct stat st;
        snprintf(name, sizeof name, "gen-%llu", (unsigned long long)gens[i]);
        snprintf(next, sizeof next, "gen-%llu", (unsigned long long)gens[i + 1]);
        /* the next one appeared when this one was replaced */
        if (gens[i] >= current || fstatat(dir_fd, next, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            st.st_ctim.tv_sec > now - (n - i > MANY ? KEEP_MANY : KEEP_SECONDS))
            break;
        AUTOCLOSE int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            (void)fs_remove_tree(dir_fd, name, NULL);
    }
}

static int build(int dir_fd, int etc_fd, const struct host_user *u, struct etc_manifest *m,
                 struct err **e)
{
    CLEANUP(etc_list_free_p) struct etc_list l = { 0 };
    AUTOSTRV struct strv stale = { 0 };
    uint64_t gens[256], newest;
    char tmp[40], name[40];
    int rc;

    m->scan_from = now_ns();
    if ((rc = etc_scan(etc_fd, u->root_construction, &l, e)) < 0)
        return rc;
    m->scan_to = now_ns();
    m->gen = etc_manifest_equal(dir_fd, m->key, m->boot_id, &l, m);
    snprintf(name, sizeof name, "gen-%llu", (unsigned long long)m->gen);
    struct stat st;
    if (m->gen && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return etc_manifest_write(dir_fd, m, &l, e);

    (void)generations(dir_fd, gens, &newest, &stale);
    m->gen = newest + 1;
    m->read_from = m->scan_from;
    snprintf(tmp, sizeof tmp, "tmp-%llu", (unsigned long long)m->gen);
    snprintf(name, sizeof name, "gen-%llu", (unsigned long long)m->gen);
    if ((rc = fs_remove_tree(dir_fd, tmp, e)) < 0)
        return rc;
    if (mkdirat(dir_fd, tmp, 0755) < 0)
        return err_sys(e, "make '%s' for a copy of /etc", tmp);
    AUTOCLOSE int out = openat(dir_fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (out < 0 || fchmod(out, 0755) < 0)
        rc = err_sys(e, "open '%s' for a copy of /etc", tmp);
    else
        rc = etc_make(etc_fd, out, &l, u, e);
    if (rc >= 0 && renameat(dir_fd, tmp, dir_fd, name) < 0)
        rc = err_sys(e, "rename '%s' for a copy of /etc", tmp);
    if (rc < 0) {
        (void)fs_remove_tree(dir_fd, tmp, NULL);
        return rc;
    }
    m->scan_to = m->read_to = now_ns();
    if ((rc = etc_manifest_write(dir_fd, m, &l, e)) < 0)
        return rc;
    etc_sweep(dir_fd, m->gen, time(NULL));
    return 0;
}

/* flock with an end: a stopped builder must not stop everybody for good. */
static int lock_wait(int fd, const char *dir, struct err **e)
{
    for (int i = 0; i < LOCK_WAIT_MS / 5; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, "lock '%s/lock'", dir);
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    return err_new(e, ERR_BUSY,
                   "another petri has been copying /etc for %d s; end it (it holds '%s/lock')",
                   LOCK_WAIT_MS / 1000, dir);
}

/* The generation that the manifest names, if the copy is there too. */
static uint64_t usable(int dir_fd, int etc_fd, const struct etc_manifest *m)
{
    char name[40];
    uint64_t gen = etc_manifest_check(dir_fd, etc_fd, m->key, m->boot_id);

    snprintf(name, sizeof name, "gen-%llu", (unsigned long long)gen);
    return gen && faccessat(dir_fd, name, F_OK, 0) == 0 ? gen : 0;
}

int host_etc_at(const char *root, const char *layers_dir, const struct host_user *u, char **ret_dir,
                struct err **e)
{
    AUTOFREE char *key = cache_key(root, u), *boot = NULL;
    AUTOFREE char *dir =
        str_printf("%s/etc-%016llx", layers_dir, (unsigned long long)etc_hash(0, key));
    AUTOFREE char *etc = str_printf("%s/etc", root);
    AUTOCLOSE int etc_fd = open(etc, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTOCLOSE int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct etc_manifest m = { .key = key };
    int rc;

    if (etc_fd < 0)
        return err_sys(e, "open '%s'", etc);
    if ((rc = fs_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, e)) < 0)
        return rc;
    m.boot_id = boot;
    if (dir_fd < 0) {
        if (errno != ENOENT)
            return err_sys(e, "open '%s'", dir);
        if ((rc = fs_mkdirs(dir, 0755, e)) < 0)
            return rc;
        dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir_fd < 0)
            return err_sys(e, "open '%s'", dir);
    }
    m.gen = usable(dir_fd, etc_fd, &m);
    if (!m.gen) {
        AUTOCLOSE int lock =
            openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (lock < 0)
            return err_sys(e, "create '%s/lock'", dir);
        if ((rc = lock_wait(lock, dir, e)) < 0)
            return rc;
        m.gen = usable(dir_fd, etc_fd, &m);
        if (!m.gen && (rc = build(dir_fd, etc_fd, u, &m, e)) < 0)
            return rc;
    }
    *ret_dir = str_printf("%s/gen-%llu", dir, (unsigned long long)m.gen);
    return 0;
}

int host_etc(const char *layers_dir, const struct host_user *u, char **ret_dir, struct err **e)
{
    return host_etc_at("", layers_dir, u, ret_dir, e);
}

int host_etc_hold(const char *dir, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return err_sys(e, "open '%s'", dir);
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "lock '%s'", dir);
    if (st.st_nlink == 0)
        return err_new(e, ERR_BUSY, "'%s' was just removed; try again", dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
