/* tests/unit/config_check.h - files to load, and what came of them. */
#pragma once
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/config/config.h"

static inline void put_file(const char *path, const char *text)
{
    AUTOFREE char *dir = str_dup(path);
    *strrchr(dir, '/') = '\0';
    struct err *e = NULL;
    if (fs_mkdirs(dir, 0755, &e) < 0 ||
        fs_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, &e) < 0)
        CHECK(false, "%s", err_text(e));
}

static inline char *joined(const struct strv *l)
{
    AUTOSTR struct str s = STR_INIT;
    for (size_t i = 0; i < l->n; i++)
        str_addf(&s, "%s%s", i ? "," : "", l->v[i]);
    return str_take(&s);
}

/* JSON with single quotes, to be readable in C. */
static inline char *json_of(const char *text)
{
    char *s = str_dup(text);
    for (char *c = s; *c; c++)
        if (*c == '\'')
            *c = '"';
    return s;
}

static inline void place_file(const char *name, const char *text)
{
    AUTOFREE char *path = path_join(check_dir, name), *json = text ? json_of(text) : NULL;
    (void)unlink(path);
    if (json)
        put_file(path, json);
}

static inline void place_files(const char *system, const char *user, const char *project)
{
    place_file("etc/config.json", system);
    place_file("user/petri/config.json", user);
    place_file("proj/petri.json", project);
}

struct places {
    char *system, *user, *project, *data;
};

static inline struct config_from places_make(struct places *p)
{
    p->system = path_join(check_dir, "etc/config.json");
    p->user = path_join(check_dir, "user");
    p->project = path_join(check_dir, "proj");
    p->data = path_join(check_dir, "data");
    return (struct config_from){
        .system = p->system, .user = p->user, .project = p->project, .data = p->data
    };
}

static inline void places_free_p(struct places *p)
{
    free(p->system);
    free(p->user);
    free(p->project);
    free(p->data);
}

static inline void check_value(const char *what, const struct config *c, const char *key,
                               const char *want)
{
    AUTOSTRV struct strv words = { 0 };
    int i = key_find(key);
    CHECK(i >= 0, "%s: no key %s", what, key);
    if (i < 0)
        return;
    config_value(c, (size_t)i, &words);
    AUTOFREE char *got = joined(&words);
    CHECK(strcmp(got, want) == 0, "%s: %s is '%s', not '%s'", what, key, got, want);
}
