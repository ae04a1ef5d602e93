/* runtime/client/find.c - which sandbox is meant by a name, an ID or a directory. It is on the way of
 * every exec: a name costs one system call, a project two per directory. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "runtime/client/client.h"

enum { ID_LEN = 12, NAME_LEN = 63, MIN_PREFIX = 4 };

static bool is_hex(const char *s)
{
    return *s && s[strspn(s, "0123456789abcdef")] == '\0';
}

static bool is_name(const char *s)
{
    size_t n = strnlen(s, NAME_LEN + 1);
    bool ok = n > 0 && n <= NAME_LEN && isascii(s[0]) && isalnum((unsigned char)s[0]);
    for (size_t i = 0; ok && i < n; i++)
        ok = isascii(s[i]) && (isalnum((unsigned char)s[i]) || strchr("-_.", s[i]));
    return ok;
}

static int bad_name(const char *s, struct petri_error *e)
{
    AUTOSTR struct str shown = STR_INIT;
    size_t n = strnlen(s, 41);

    str_add_escaped(&shown, s, n > 40 ? 40 : n);
    return client_fail(e, "invalid",
                       "sandbox '%s%s': a name has 1 to 63 letters, digits, '-', '_' or '.', "
                       "beginning with a letter or digit",
                       shown.p ? shown.p : "", n > 40 ? "..." : "");
}

/* DATA/`kind`/`name` is a link whose text is an ID. */
static bool read_id(const char *data, const char *kind, const char *name, char ret[16])
{
    char path[PATH_MAX], id[ID_LEN + 1];

    if (snprintf(path, sizeof path, "%s/%s/%s", data, kind, name) >= (int)sizeof path ||
        readlink(path, id, sizeof id) != ID_LEN)
        return false;
    id[ID_LEN] = '\0';
    memcpy(ret, id, sizeof id);
    return is_hex(id);
}

/* The names there are; NULL-terminated list as for argv. */
static void list_dir(const char *data, const char *kind, struct strv *ret)
{
    AUTOFREE char *path = path_join(data, kind);
    DIR *d = opendir(path);
    struct dirent *de;

    while (d && (de = readdir(d)))
        if (de->d_name[0] != '.')
            strv_add(ret, de->d_name);
    if (d)
        closedir(d);
}

static int unknown(const char *data, const char *name, struct petri_error *e)
{
    AUTOSTRV struct strv all = { 0 };
    const char *near;

    list_dir(data, "names", &all);
    near = nearest_word(name, (const char *const *)all.v, all.n);
    if (near)
        return client_fail(e, "not_found",
                           "no sandbox '%s' (did you mean '%s'?); petri ls lists them", name, near);
    return client_fail(e, "not_found", "no sandbox '%s'; petri ls lists them", name);
}

static int by_id(const char *data, const char *name, struct petri_sandbox *ret,
                 struct petri_error *e)
{
    size_t len = strlen(name), found = 0;

    if (!is_hex(name) || len < MIN_PREFIX || len > ID_LEN)
        return unknown(data, name, e);
    if (len == ID_LEN) {
        AUTOFREE char *path = str_printf("%s/sandboxes/%s", data, name);
        if (access(path, F_OK) < 0)
            return unknown(data, name, e);
        memcpy(ret->id, name, ID_LEN + 1);
        return 0;
    }
    AUTOSTRV struct strv all = { 0 };
    list_dir(data, "sandboxes", &all);
    for (size_t i = 0; i < all.n; i++)
        if (str_starts(all.v[i], name) && strlen(all.v[i]) == ID_LEN && is_hex(all.v[i])) {
            memcpy(ret->id, all.v[i], ID_LEN + 1);
            found++;
        }
    if (found > 1)
        return client_fail(e, "invalid",
                           "'%s' is the beginning of %zu sandboxes' IDs; write more "
                           "of it",
                           name, found);
    return found ? 0 : unknown(data, name, e);
}

static bool has_marker(const char *dir)
{
    static const char *const names[] = { ".git", "petri.json", "petri.jsonc", "wonopcode.json",
                                         "wonopcode.jsonc" };
    char path[PATH_MAX + 32];
    struct stat st;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (lstat(path, &st) == 0)
            return true;
    }
    return false;
}

/* The nearest directory, from `dir` upwards, that has a sandbox of its own; not beyond its project. */
static int by_project(const char *data, const char *dir, struct petri_sandbox *ret,
                      struct petri_error *e)
{
    char path[PATH_MAX], full[PATH_MAX];

    if (dir ? !realpath(dir, path) : !getcwd(path, sizeof path))
        return client_sys(e, "the directory '%s'", dir ? dir : ".");
    memcpy(full, path, strlen(path) + 1);
    for (;;) {
        char key[40];
        struct stat st;
        if (stat(path[0] ? path : "/", &st) == 0) {
            snprintf(key, sizeof key, "%llx-%llx", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
            if (read_id(data, "projects", key, ret->id)) {
                const char *rest = full + strlen(path);
                ret->sub = rest[0] == '/' && rest[1] ? str_dup(rest + 1) : NULL;
                return 0;
            }
        }
        char *slash = strrchr(path, '/');
        if (!slash || !path[1] || has_marker(path))
            break;
        *slash = '\0';
    }
    return client_fail(
        e, "not_found",
        "this project has no sandbox yet (looked from '%s' up); petri start makes one", full);
}

char *client_name_of(const struct petri_client *c, const char *id)
{
    AUTOSTRV struct strv all = { 0 };
    char found[16];

    list_dir(c->data, "names", &all);
    for (size_t i = 0; i < all.n; i++)
        if (read_id(c->data, "names", all.v[i], found) && strcmp(found, id) == 0)
            return str_dup(all.v[i]);
    return NULL;
}

int client_find(const struct petri_client *c, const char *name, const char *dir,
                struct petri_sandbox *ret, struct petri_error *e)
{
    int rc = 0;

    if (!name && !dir && (name = getenv("PETRI_SANDBOX")) && !*name)
        name = NULL;
    if (name && !is_name(name))
        return bad_name(name, e);
    if (!name)
        rc = by_project(c->data, dir, ret, e);
    else if (!read_id(c->data, "names", name, ret->id))
        rc = by_id(c->data, name, ret, e);
    if (rc == 0)
        ret->name = str_dup(name ? name : ret->id);
    return rc;
}
