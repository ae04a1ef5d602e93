#include "runtime/sandbox/state.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/driver/cgroup.h"
#include "runtime/driver/inside.h"

char *state_dir(const struct paths *paths, const char *id)
{
    return str_printf("%s/sandboxes/%s", paths->data, id);
}

static char *project_link(const struct paths *paths, uint64_t dev, uint64_t ino)
{
    return str_printf("%s/projects/%llx-%llx", paths->data, (unsigned long long)dev,
                      (unsigned long long)ino);
}

char *state_now(void)
{
    char when[32];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    return str_dup(when);
}

uint64_t state_journal_next(const struct paths *paths)
{
    AUTOFREE char *path = path_join(paths->data, "journal");
    DIR *d = opendir(path);
    uint64_t last = 0, open = UINT64_MAX;
    struct dirent *de;

    while (d && (de = fs_next(d))) {
        char *end;
        uint64_t n = strtoul(de->d_name, &end, 10);
        if (strcmp(end, ".open") == 0 && n < open)
            open = n;
        else if (!*end && n > last)
            last = n;
    }
    if (d)
        closedir(d);
    return last < open ? last + 1 : open;
}

/* 0, or -1 with errno: EWOULDBLOCK where somebody has it. */
static int take_lock(const char *dir, int flags, int *ret)
{
    AUTOFREE char *path = path_join(dir, "lock");
    AUTOCLOSE int fd = open(path, O_RDWR | flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    *ret = TAKE_FD(fd);
    return 0;
}

int state_create(const struct paths *paths, const char *id, int *ret_lock, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "sandboxes"), *dir = state_dir(paths, id);
    int rc;

    if ((rc = fs_mkdirs(top, 0700, e)) < 0)
        return rc;
    for (int i = 0; i < 8; i++) {
        /* locked before it has its name: a sweep never sees one that is not */
        AUTOFREE char *new = str_printf("%s/.new-%s-%d", top, id, i);
        if (mkdir(new, 0700) < 0)
            return err_sys(e, "make '%s'", new);
        if (take_lock(new, O_CREAT, ret_lock) == 0) {
            if (rename(new, dir) == 0)
                return 0;
            close_p(ret_lock);
        }
        if (errno != EWOULDBLOCK && errno != ENOENT)
            return err_sys(e, "make and lock '%s'", new);
        /* a sweep was quicker, and takes it away */
    }
    return err_new(e, ERR_BUSY, "others sweep the store all the time; try again");
}

/* True where the link names a sandbox that has a record, or is just being made or removed: one without a
 * record that nobody has locked is what a killed petri left. */
static bool link_alive(const struct paths *paths, const char *link)
{
    AUTOFREE char *id = fs_readlink(AT_FDCWD, link);
    AUTOFREE char *dir = id && !strchr(id, '/') ? state_dir(paths, id) : NULL;
    AUTOFREE char *record = dir ? path_join(dir, "state.json") : NULL;
    AUTOCLOSE int lock = -1;
    if (!dir || fs_exists(record))
        return dir;
    return take_lock(dir, 0, &lock) < 0 ? errno != ENOENT : fs_exists(record);
}

int state_name(const struct paths *paths, const char *id, const char *name, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "names"), *link = path_join(top, name);
    int rc = fs_mkdirs(top, 0700, e);

    if (rc < 0)
        return rc;
    for (int i = 0; i < 2; i++) {
        if (symlink(id, link) == 0)
            return 0;
        if (errno != EEXIST)
            return err_sys(e, "make '%s'", link);
        if (link_alive(paths, link))
            break;
        (void)unlink(link);
    }
    return err_new(e, ERR_EXISTS,
                   "the name '%s' is taken by another sandbox; petri ls shows it, petri rm %s "
                   "removes it",
                   name, name);
}

int state_own(const struct paths *paths, const struct state *s, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "projects");
    AUTOFREE char *link = project_link(paths, s->project_dev, s->project_ino);
    int rc = fs_mkdirs(top, 0700, e);

    if (rc < 0)
        return rc;
    for (int i = 0; i < 2; i++) {
        if (symlink(s->id, link) == 0)
            return 0;
        if (errno != EEXIST)
            return err_sys(e, "make '%s'", link);
        if (link_alive(paths, link))
            break;
        (void)unlink(link);
    }
    return err_new(e, ERR_BUSY, "the project has a sandbox of its own");
}

int state_lock(const struct paths *paths, const char *id, int *ret_lock, struct err **e)
{
    AUTOFREE char *dir = state_dir(paths, id);
    if (take_lock(dir, 0, ret_lock) == 0)
        return 0;
    if (errno == ENOENT)
        return err_new(e, ERR_NOT_FOUND, "no sandbox '%s'; petri ls lists them", id);
    if (errno == EWOULDBLOCK)
        return err_new(e, ERR_BUSY, "sandbox '%s' is running, or another petri works on it", id);
    return err_sys(e, "lock '%s'", dir);
}

static void remove_links(const struct paths *paths, const struct state *s)
{
    AUTOFREE char *own = project_link(paths, s->project_dev, s->project_ino);
    AUTOFREE char *name = s->name ? str_printf("%s/names/%s", paths->data, s->name) : str_dup("");
    const char *const links[] = { own, name };

    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        AUTOFREE char *id = *links[i] ? fs_readlink(AT_FDCWD, links[i]) : NULL;
        if (str_eq(id, s->id))
            (void)unlink(links[i]);
    }
}

/* Those of one that has no record, and so does not say what they are called. */
static void remove_lost_links(const struct paths *paths, const char *id)
{
    static const char *const tops[] = { "names", "projects" };

    for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
        AUTOFREE char *top = path_join(paths->data, tops[i]);
        DIR *d = opendir(top);
        struct dirent *de;
        while (d && (de = readdir(d))) {
            AUTOFREE char *text = fs_readlink(dirfd(d), de->d_name);
            if (str_eq(text, id))
                (void)unlinkat(dirfd(d), de->d_name, 0);
        }
        if (d)
            closedir(d);
    }
}

int state_remove(const struct paths *paths, const char *id, struct err **e)
{
    AUTOFREE char *dir = state_dir(paths, id), *record = path_join(dir, "state.json");
    AUTOSTATE struct state s = { 0 };

    bool known = state_read(paths, id, &s, NULL) == 0;

    /* the record first: without it a half-removed sandbox is garbage that the next sweep takes, and links
     * to it are free; one with a record and without its name would be neither whole nor gone */
    if (unlink(record) < 0 && errno != ENOENT)
        return err_sys(e, "remove '%s'", record);
    if (known)
        remove_links(paths, &s);
    else
        remove_lost_links(paths, id);
    return inside_remove(dir, e);
}

enum { LEFT_TRIES = 100, LEFT_MS = 2 };

void state_remove_left(const struct paths *paths, const char *id)
{
    AUTOCLOSE int lock = -1;

    for (int i = 0; i < LEFT_TRIES; i++) {
        int rc = state_lock(paths, id, &lock, NULL);
        if (rc == 0)
            (void)state_remove(paths, id, NULL);
        if (rc != -ERR_BUSY)
            return;
        (void)poll(NULL, 0, LEFT_MS);
    }
}

static DIR *open_top(const struct paths *paths)
{
    AUTOFREE char *top = path_join(paths->data, "sandboxes");
    return opendir(top);
}

/* A keeper that was killed could not take its sockets away, nor its cgroup. */
static void sweep_keepers(const struct paths *paths)
{
    /* what a runtime wrote whose scratch was unmounted with the directory below it */
    AUTOFREE char *lost = path_join(paths->run, "mnt/s");
    DIR *d = opendir(paths->run);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        AUTOFREE char *dir = state_dir(paths, de->d_name), *run = path_join(paths->run, de->d_name);
        AUTOSTATE struct state s = { 0 };
        AUTOCLOSE int lock = -1;
        bool gone;
        if (strlen(de->d_name) != 12 || strspn(de->d_name, "0123456789abcdef") != 12)
            continue;
        gone = take_lock(dir, 0, &lock) < 0;
        if (gone && errno != ENOENT)
            continue;
        if (!gone && state_read(paths, de->d_name, &s, NULL) == 0 && s.cgroup)
            (void)cgroup_reap(s.cgroup);
        (void)fs_remove_tree(AT_FDCWD, run, NULL);
    }
    if (d)
        closedir(d);
    if (fs_exists(lost))
        (void)fs_remove_tree(AT_FDCWD, lost, NULL);
}

bool state_sweep(const struct paths *paths)
{
    DIR *d = open_top(paths);
    struct dirent *de;
    bool any = false;

    while (d && (de = readdir(d))) {
        AUTOFREE char *dir = state_dir(paths, de->d_name), *record = path_join(dir, "state.json");
        AUTOCLOSE int lock = -1;
        bool new = str_starts(de->d_name, ".new-");
        if ((de->d_name[0] == '.' && !new) || fs_exists(record) ||
            (take_lock(dir, new ? 0 : O_CREAT, &lock) < 0 && (!new || errno != ENOENT)))
            continue;
        if (lock < 0) {
            (void)rmdir(
                dir); /* without a lock it is empty; whoever is about to lock it makes another one */
            continue;
        }
        remove_lost_links(paths, de->d_name);
        (void)inside_remove(dir, NULL);
        any = true;
    }
    if (d)
        closedir(d);
    sweep_keepers(paths);
    return any;
}

static int by_age(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    int c = strcmp(x->created ? x->created : "", y->created ? y->created : "");
    return c ? c : strcmp(x->id, y->id);
}

int state_list(const struct paths *paths, struct state **ret, size_t *ret_n, struct err **e)
{
    DIR *d = open_top(paths);
    struct dirent *de;
    struct state *v = NULL;
    size_t n = 0;

    while (d && (de = readdir(d))) {
        struct state s;
        if (de->d_name[0] == '.' || state_read(paths, de->d_name, &s, NULL) < 0)
            continue;
        v = realloc(v, (n + 1) * sizeof *v);
        if (!v)
            abort();
        v[n++] = s;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(v, n, sizeof *v, by_age);
    *ret = v;
    *ret_n = n;
    return 0;
}
