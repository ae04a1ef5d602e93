/* runtime/sandbox/caches_list.c - the bases there are, and their end. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/caches.h"

static void info_free(struct cache_info *i)
{
    free(i->key);
    free(i->project);
    free(i->image);
}

void cache_list_free_p(struct cache_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        info_free(&l->v[i]);
    free(l->v);
    *l = (struct cache_list){ 0 };
}

/* False: it is being made or removed, or nothing that petri has made. */
static bool read_about(const char *dir, struct cache_info *ret)
{
    AUTOFREE char *path = path_join(dir, "about.json"), *text = NULL;
    AUTOJSON struct json *j = NULL;
    size_t n;

    if (fs_read(AT_FDCWD, path, 1 << 20, &text, &n, NULL) < 0 ||
        json_parse(text, n, &j, NULL) < 0 || !json_str(j, "project"))
        return false;
    ret->project = str_dup(json_str(j, "project"));
    ret->image = str_dup(json_str(j, "image"));
    json_u64(j, "uid", &ret->uid);
    json_u64(j, "dev", &ret->dev);
    json_u64(j, "ino", &ret->ino);
    return true;
}

static void look(const char *dir, struct cache_info *ret)
{
    AUTOFREE char *link = path_join(dir, "current"), *name = fs_readlink(AT_FDCWD, link);
    AUTOFREE char *path = name ? path_join(dir, name) : NULL;
    AUTOCLOSE int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

    if (fd < 0 || sscanf(name, "gen-%llu", (unsigned long long *)&ret->generation) != 1)
        return;
    cache_count(fd, &ret->counts);
    /* the places themselves are none of its content */
    for (const struct cache_place *p = cache_places; p->name; p++)
        ret->counts.files -= ret->counts.files && faccessat(fd, p->name, F_OK, 0) == 0;
}

static bool is_base(const char *name)
{
    return name[0] != '.';
}

int caches_list(const struct paths *paths, struct cache_list *ret, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "caches");
    DIR *d = opendir(top);
    struct dirent *de;

    *ret = (struct cache_list){ 0 };
    if (!d)
        return errno == ENOENT ? 0 : err_sys(e, "read '%s'", top);
    while ((de = readdir(d))) {
        struct cache_info i = { 0 };
        AUTOFREE char *dir = path_join(top, de->d_name);
        if (!is_base(de->d_name) || !read_about(dir, &i))
            continue;
        look(dir, &i);
        i.key = str_dup(de->d_name);
        ret->v = realloc(ret->v, (ret->n + 1) * sizeof *ret->v);
        if (!ret->v)
            abort();
        ret->v[ret->n++] = i;
    }
    closedir(d);
    return 0;
}

/* Under its lock. */
static int forget(const char *top, const char *key, struct err **e)
{
    AUTOFREE char *dir = path_join(top, key), *gone = str_printf("%s/.gone-%s", top, key);
    static const char *const words[] = { "current", "merged" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        AUTOFREE char *path = path_join(dir, words[i]);
        if (unlink(path) < 0 && errno != ENOENT)
            return err_sys(e, "remove '%s'", path);
    }
    if (!caches_clean(dir))
        return 0; /* a sandbox runs: the next one to come begins anew, and the rest goes later */
    (void)inside_remove(gone, NULL);
    if (rename(dir, gone) < 0)
        return err_sys(e, "remove '%s'", dir);
    return inside_remove(gone, e);
}

int caches_remove(const struct paths *paths, const char *key, struct err **e)
{
    AUTOFREE char *top = path_join(paths->data, "caches"), *dir = path_join(top, key);
    AUTOCLOSE int lock = -1;
    int rc;

    if (strchr(key, '/') || !is_base(key) || !fs_is_dir(dir))
        return err_new(e, ERR_NOT_FOUND, "no caches '%s'; petri cache ls lists them", key);
    rc = caches_lock(dir, true, &lock, e);
    return rc < 0 ? rc : forget(top, key, e);
}

static bool project_gone(const char *dir)
{
    struct cache_info i = { 0 };
    struct stat st;
    bool gone = false;

    if (read_about(dir, &i))
        gone = stat(i.project, &st) < 0 ? errno == ENOENT || errno == ENOTDIR
                                        : st.st_dev != i.dev || st.st_ino != i.ino;
    info_free(&i);
    return gone;
}

void caches_sweep(const struct paths *paths, bool projects)
{
    AUTOFREE char *top = path_join(paths->data, "caches");
    DIR *d = opendir(top);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        AUTOFREE char *dir = path_join(top, de->d_name);
        AUTOCLOSE int lock = -1;
        if (str_starts(de->d_name, ".gone-"))
            (void)inside_remove(dir, NULL);
        if (!is_base(de->d_name) || !fs_is_dir(dir) || caches_lock(dir, false, &lock, NULL) < 0)
            continue;
        if (projects && project_gone(dir))
            (void)forget(top, de->d_name, NULL);
        else
            (void)caches_clean(dir);
    }
    if (d)
        closedir(d);
}
