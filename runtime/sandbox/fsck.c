#include "runtime/sandbox/fsck.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/caches.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/store_lock.h"

struct fsck {
    const struct paths *paths;
    struct fsck_report *r;
};

void fsck_report_free_p(struct fsck_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->v[i].path);
        free(r->v[i].text);
    }
    free(r->v);
    *r = (struct fsck_report){ 0 };
}

static void PRINTF_LIKE(5, 6)
    found(struct fsck *f, const char *code, bool garbage, const char *path, const char *fmt, ...)
{
    struct fsck_report *r = f->r;
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->v = realloc(r->v, (r->n + 1) * sizeof *r->v);
    if (!r->v)
        abort();
    r->v[r->n++] = (struct fsck_problem){
        .code = code, .path = str_dup(path), .text = str_dup(text), .garbage = garbage
    };
}

/* Calls f for every name but . and .. of a directory that may be missing. */
static void each(struct fsck *f, const char *dir,
                 void (*g)(struct fsck *, const char *, const char *))
{
    DIR *d = opendir(dir);
    struct dirent *de;

    if (!d && errno != ENOENT)
        found(f, "unknown", false, dir, "can't be read: %s", strerror(errno));
    while (d && (de = readdir(d))) {
        AUTOFREE char *path = path_join(dir, de->d_name);
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            g(f, path, de->d_name);
    }
    if (d)
        closedir(d);
}

static bool is_id(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n && n <= 64 && !name[n];
}

/* The lock of a sandbox: is it held (somebody runs it or works on it)? -1: there is none. */
static int lock_held(const char *dir)
{
    AUTOFREE char *path = path_join(dir, "lock");
    AUTOCLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -1 : flock(fd, LOCK_SH | LOCK_NB) < 0;
}

static bool is_old(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && time(NULL) - st.st_mtime > 60;
}

/* ---- sandboxes ------------------------------------------------------------------------------- */

static void check_layers(struct fsck *f, const char *record, const char *where,
                         const struct strv *chain)
{
    for (size_t i = 0; i < chain->n; i++) {
        AUTOFREE char *path = str_printf("%s/changes/%s", f->paths->data, chain->v[i]);
        struct stat st;
        if (!layer_name_valid(chain->v[i]))
            found(f, "record", false, record, "%s: '%.40s' is no name of a layer", where,
                  chain->v[i]);
        else if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
            found(f, "layer", false, record, "%s: layer %s is missing", where, chain->v[i]);
    }
}

static void check_link(struct fsck *f, const char *record, const char *link, const char *id)
{
    AUTOFREE char *to = fs_readlink(AT_FDCWD, link);
    if (!str_eq(to, id) && fs_exists(record))
        found(f, "link", false, record, "'%s' does not lead to it", link);
}

static void check_record(struct fsck *f, const char *record, const char *id)
{
    AUTOSTATE struct state s = { 0 };
    CLEANUP(err_free_p) struct err *e = NULL;

    if (state_read(f->paths, id, &s, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        if (fs_exists(record))
            found(f, "record", false, record, "%s", text);
        return;
    }
    AUTOSTRV struct strv top = { 0 };
    if (s.top)
        strv_add(&top, s.top);
    else if (s.schema >= 2)
        found(f, "record", false, record, "names no layer to write to");
    check_layers(f, record, "top", &top);
    check_layers(f, record, "chain", &s.chain);
    for (size_t i = 0; i < s.n_snaps; i++) {
        check_layers(f, record, s.snaps[i].id, &s.snaps[i].chain);
        for (size_t k = 0; k < i; k++) {
            if (str_eq(s.snaps[i].id, s.snaps[k].id))
                found(f, "record", false, record, "two snapshots are called %s", s.snaps[i].id);
        }
    }
    if (s.name) {
        AUTOFREE char *link = str_printf("%s/names/%s", f->paths->data, s.name);
        check_link(f, record, link, id);
    }
    if (s.own) {
        AUTOFREE char *link =
            str_printf("%s/projects/%llx-%llx", f->paths->data, (unsigned long long)s.project_dev,
                       (unsigned long long)s.project_ino);
        check_link(f, record, link, id);
    }
}

static void check_temp(struct fsck *f, const char *path, const char *name)
{
    if (str_starts(name, ".tmp-") && is_old(path))
        found(f, "garbage", true, path, "a file that was not finished");
}

static void check_sandbox(struct fsck *f, const char *path, const char *name)
{
    AUTOFREE char *record = path_join(path, "state.json");
    struct stat st;
    int held = lock_held(path);

    if (lstat(path, &st) < 0)
        return; /* removed just now */
    if (str_starts(name, ".new-")) {
        if (held != 1 && is_old(path))
            found(f, "garbage", true, path, "a sandbox that was not finished");
        return;
    }
    if (!S_ISDIR(st.st_mode) || !is_id(name)) {
        found(f, "unknown", false, path, "is not a sandbox");
        return;
    }
    f->r->sandboxes++;
    if (!fs_exists(record)) {
        if (held != 1)
            found(f, "garbage", true, path, "a sandbox without a record, and nobody runs it");
        return;
    }
    if (held < 0)
        found(f, "lock", false, path, "has no lock");
    check_record(f, record, name);
    if (held != 1)
        each(f, path, check_temp);
}

/* ---- links, layers, sockets ------------------------------------------------------------------ */

static void check_pointer(struct fsck *f, const char *path, const char *name)
{
    AUTOFREE char *id = fs_readlink(AT_FDCWD, path);
    AUTOFREE char *dir = id && is_id(id) ? state_dir(f->paths, id) : NULL;

    if (!id && errno != ENOENT)
        found(f, "unknown", false, path, "is not a link");
    else if (id && (!dir || !fs_exists(dir)))
        found(f, "garbage", true, path, "leads to no sandbox");
}

static void check_run(struct fsck *f, const char *path, const char *name)
{
    AUTOFREE char *dir = state_dir(f->paths, name);
    if (strcmp(name, "mnt") != 0 && is_id(name) && lock_held(dir) != 1 && fs_exists(path))
        found(f, "garbage", true, path, "sockets of a sandbox that does not run");
}

static void check_changes(struct fsck *f, const struct strv *named, struct err **e)
{
    AUTOFREE char *top = path_join(f->paths->data, "changes");
    DIR *d = opendir(top);
    struct dirent *de;

    while (d && (de = fs_next(d))) {
        AUTOFREE char *path = path_join(top, de->d_name);
        f->r->layers += layer_name_valid(de->d_name);
        if (str_starts(de->d_name, ".gone-"))
            found(f, "garbage", true, path, "a layer that was being removed");
        else if (!layer_name_valid(de->d_name))
            found(f, "unknown", false, path, "is not a layer");
        else if (named && !layers_has(named, de->d_name))
            found(f, "garbage", true, path, "a layer that no record names");
    }
    if (d)
        closedir(d);
}

static void check_caches(struct fsck *f, const char *path, const char *name)
{
    AUTOFREE char *link = path_join(path, "current"), *about = path_join(path, "about.json");
    AUTOFREE char *to = fs_readlink(AT_FDCWD, link), *gen = to ? path_join(path, to) : NULL;
    AUTOSTRV struct strv unused = { 0 };
    struct stat st;

    if (str_starts(name, ".gone-")) {
        found(f, "garbage", true, path, "caches that were being removed");
        return;
    }
    if (lstat(path, &st) < 0 || lock_held(path) == 1)
        return; /* somebody is at it */
    if (!S_ISDIR(st.st_mode)) {
        found(f, "unknown", false, path, "is no base of caches");
        return;
    }
    if (!fs_exists(about)) {
        if (is_old(path))
            found(f, "garbage", true, path, "a base of caches that was not finished");
        return;
    }
    if (gen && !fs_is_dir(gen))
        found(f, "caches", true, link, "leads to '%s', which is not there", to);
    caches_unused(path, &unused);
    for (size_t i = 0; i < unused.n; i++)
        found(f, "garbage", true, unused.v[i], "a generation of caches that nobody needs");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whoever makes layers has the lock for a moment only. */
static int lock_store(const struct paths *paths, int *ret)
{
    for (int i = 0; i < 250; i++) {
        int rc = store_lock_exclusive(paths, ret, NULL);
        if (rc != -ERR_BUSY)
            return rc;
        nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
    }
    return -ERR_BUSY;
}

static void repair_all(struct fsck_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].garbage)
            r->v[i].removed = inside_remove(r->v[i].path, NULL) == 0;
    }
}

int fsck_store(const struct paths *paths, bool repair, struct fsck_report *ret, struct err **e)
{
    AUTOFREE char *sandboxes = path_join(paths->data, "sandboxes"),
                  *names = path_join(paths->data, "names"),
                  *projects = path_join(paths->data, "projects"),
                  *caches = path_join(paths->data, "caches");
    AUTOSTRV struct strv named = { 0 };
    AUTOCLOSE int lock = -1;
    struct fsck f = { .paths = paths, .r = ret };
    int rc;

    *ret = (struct fsck_report){ 0 };
    if (!fs_exists(paths->data))
        return 0;
    rc = lock_store(paths, &lock);
    if (rc < 0 && rc != -ERR_BUSY)
        return err_new(e, ERR_FAILED, "'%s/changes.lock' can't be locked", paths->data);
    ret->partial = rc < 0;
    each(&f, sandboxes, check_sandbox);
    each(&f, names, check_pointer);
    each(&f, projects, check_pointer);
    each(&f, paths->run, check_run);
    each(&f, caches, check_caches);
    /* with a record that can't be read nobody knows which layers it needs */
    if (!ret->partial && layers_named(paths, &named, NULL) == 0)
        check_changes(&f, &named, e);
    else
        check_changes(&f, NULL, e);
    if (repair)
        repair_all(ret);
    return 0;
}
