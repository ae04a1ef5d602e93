#include "runtime/sandbox/layers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/store_lock.h"

bool layer_name_valid(const char *name)
{
    return strspn(name, "0123456789abcdef") == 16 && !name[16];
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool layers_has(const struct strv *named, const char *layer)
{
    return named->n && bsearch(&layer, named->v, named->n, sizeof *named->v, by_text);
}

static void add_all(struct strv *l, const struct json *list)
{
    for (size_t i = 0; list && i < list->n; i++) {
        if (list->items[i]->type == JSON_STRING)
            strv_add(l, list->items[i]->string);
    }
}

/* Strict on purpose: a record that is not understood may name anything. */
static int add_named(const struct paths *paths, const char *id, struct strv *l, struct err **e)
{
    AUTOFREE char *path = str_printf("%s/sandboxes/%s/state.json", paths->data, id), *text = NULL;
    AUTOJSON struct json *j = NULL;
    const struct json *snaps;
    uint64_t schema = 0;
    size_t n;
    int rc;

    if (!fs_exists(path))
        return 0;
    if ((rc = fs_read(AT_FDCWD, path, 16 << 20, &text, &n, e)) < 0)
        return fs_exists(path) ? rc : 0; /* removed just now */
    if ((rc = json_parse(text, n, &j, e)) < 0)
        return err_wrap(e, "the record of sandbox '%s'", id);
    if (!json_u64(j, "schema", &schema) || schema > STATE_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED, "the record of sandbox '%s' was made by a newer petri",
                       id);
    if (json_str(j, "top"))
        strv_add(l, json_str(j, "top"));
    add_all(l, json_arr(j, "chain"));
    snaps = json_arr(j, "snapshots");
    for (size_t i = 0; snaps && i < snaps->n; i++)
        add_all(l, json_arr(snaps->items[i], "chain"));
    return 0;
}

int layers_named(const struct paths *paths, struct strv *ret, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "sandboxes");
    AUTOSTRV struct strv l = { 0 };
    DIR *d = opendir(top);
    struct dirent *de;
    int rc = 0;

    if (!d && errno != ENOENT)
        return err_sys(e, "read '%s'", top);
    while (d && rc == 0 && (de = readdir(d))) {
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            rc = add_named(paths, de->d_name, &l, e);
    }
    if (d)
        closedir(d);
    if (rc < 0)
        return rc;
    if (l.n)
        qsort(l.v, l.n, sizeof *l.v, by_text);
    *ret = l;
    l = (struct strv){ 0 };
    return 0;
}

/* Under the lock they only get another name: whoever waits for it does not wait for a removal. */
static int set_aside(const struct paths *paths, const struct strv *named, struct strv *ret_gone,
                     struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "changes");
    DIR *d = opendir(top);
    struct dirent *de;
    int rc = 0;

    if (!d)
        return errno == ENOENT ? 0 : err_sys(e, "read '%s'", top);
    while (rc == 0 && (de = readdir(d))) {
        AUTOFREE char *gone = str_printf("%s/.gone-%s", top, de->d_name);
        if (str_starts(de->d_name, ".gone-"))
            strv_addf(ret_gone, "%s/%s", top, de->d_name);
        if (!layer_name_valid(de->d_name) || layers_has(named, de->d_name))
            continue;
        if (renameat(dirfd(d), de->d_name, AT_FDCWD, gone) < 0)
            rc = err_sys(e, "rename '%s/%s'", top, de->d_name);
        else
            strv_add(ret_gone, gone);
    }
    closedir(d);
    return rc;
}

/* Names and projects get their link after the sandbox has its directory, under the shared lock. */
static void remove_dead_links(const struct paths *paths, const char *sub)
{
    AUTOFREE char *top = path_join(paths->data, sub);
    DIR *d = opendir(top);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        AUTOFREE char *id = de->d_name[0] == '.' ? NULL : fs_readlink(dirfd(d), de->d_name);
        AUTOFREE char *dir = id && !strchr(id, '/') ? state_dir(paths, id) : NULL;
        if (dir && !fs_exists(dir))
            (void)unlinkat(dirfd(d), de->d_name, 0);
    }
    if (d)
        closedir(d);
}

/* -ERR_BUSY: others make layers. */
static int sweep(const struct paths *paths, unsigned patience_ms, struct err **e)
{
    AUTOSTRV struct strv named = { 0 }, gone = { 0 };
    AUTOCLOSE int lock = -1;
    int rc, n = 0;

    while ((rc = store_lock_exclusive(paths, &lock, e)) == -ERR_BUSY && patience_ms >= 5) {
        nanosleep(&(struct timespec){ .tv_nsec = 5 * 1000 * 1000 }, NULL);
        patience_ms -= 5;
    }
    if (rc < 0 || (rc = layers_named(paths, &named, e)) < 0 ||
        (rc = set_aside(paths, &named, &gone, e)) < 0)
        return rc;
    remove_dead_links(paths, "names");
    remove_dead_links(paths, "projects");
    close_p(&lock);
    for (size_t i = 0; i < gone.n; i++)
        n += inside_remove(gone.v[i], NULL) == 0; /* somebody else may be at it, too */
    return n;
}

int layers_remove_unreferenced(const struct paths *paths, struct err **e)
{
    int rc = sweep(paths, 50, e);
    return rc == -ERR_BUSY ? 0 : rc; /* the next one will */
}

void layers_remove_later(const struct paths *paths)
{
    pid_t pid = fork();

    if (pid == 0) {
        /* nothing of the caller's stays open or locked; nobody waits for the second child */
        (void)syscall(SYS_close_range, 0, ~0U, 0);
        if (setsid() < 0 || fork() != 0)
            _exit(0);
        (void)sweep(paths, 2000, NULL);
        _exit(0);
    }
    if (pid > 0)
        (void)RETRY(waitpid(pid, NULL, 0));
}
