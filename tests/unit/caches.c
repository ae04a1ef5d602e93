/* The table of caches, and what the name of a base is made of. */
#include "runtime/sandbox/caches.h"

#include <fcntl.h>

#include "base/fs.h"
#include "tests/unit/check.h"

static void table(void)
{
    AUTOFREE char *doc = NULL;

    CHECK(fs_read(AT_FDCWD, "docs/caches.md", 1 << 20, &doc, NULL, NULL) == 0, "docs/caches.md");
    for (const struct cache_place *p = cache_places; p->name; p++) {
        AUTOFREE char *row = str_printf("`%s`", p->home);
        CHECK(doc && strstr(doc, row), "docs/caches.md does not name %s", row);
        CHECK(p->name[0] != '.' && !strchr(p->name, '/') && !strchr(p->name, ' '), "%s", p->name);
        CHECK(p->home[0] != '/' && !strstr(p->home, ".."), "%s", p->home);
        for (const struct cache_place *q = cache_places; q->name; q++)
            CHECK(p == q || (strcmp(p->name, q->name) != 0 && !path_below(p->home, q->home)),
                  "%s and %s", p->name, q->name);
    }
}

static char *name_of(struct cache_key k)
{
    const struct paths paths = { .data = "/d" };
    return caches_dir(&paths, &k);
}

static void names(void)
{
    AUTOSTRV struct strv none = { 0 }, layers = { 0 };
    const struct cache_key key = { "/home/a/p", "host", 5, 6, 1000, &none };
    AUTOFREE char *first = name_of(key), *same = name_of(key);

    strv_add(&layers, "sha256-1");
    CHECK_STR(same, first);
    CHECK(strncmp(first, "/d/caches/5-6-", 14) == 0 && strlen(first) == 30, "%s", first);
    struct cache_key other[] = { key, key, key, key, key, key, key };
    other[0].project = "/home/a/q";
    other[1].image = "debian";
    other[2].dev = 6;
    other[3].ino = 5;
    other[4].uid = 0;
    other[5].image_layers = &layers;
    other[6].project = "/home/a/phost"; /* not the same text in other pieces */
    other[6].image = "";
    for (size_t i = 0; i < ARRAY_LEN(other); i++) {
        AUTOFREE char *name = name_of(other[i]);
        CHECK(strcmp(name, first) != 0, "%zu: %s", i, name);
    }
}

int main(void)
{
    table();
    names();
    return check_done();
}
