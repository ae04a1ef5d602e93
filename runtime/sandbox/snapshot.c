#include "runtime/sandbox/snapshot.h"

#include <dirent.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/sandbox/options.h"

void layers_of(const struct paths *paths, const struct strv *chain, struct strv *ret)
{
    for (size_t i = 0; i < chain->n; i++)
        strv_addf(ret, "%s/changes/%s", paths->data, chain->v[i]);
}

int layer_new(const struct paths *paths, char **ret, struct err **e)
{
    AUTOFREE char *path = plan_layer(paths, e);
    int rc = path ? fs_mkdirs(path, 0755, e) : -ERR_FAILED;
    if (rc == 0)
        *ret = TAKE_PTR(path);
    return rc;
}

static bool dir_empty(const char *path)
{
    DIR *d = opendir(path);
    bool empty = d && !fs_next(d); /* what can't be read may hold anything */

    if (d)
        closedir(d);
    return empty;
}

bool layer_empty(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *de;
    bool empty = true;
    while (d && empty && (de = readdir(d))) {
        AUTOFREE char *entry = path_join(path, de->d_name);
        if (de->d_name[0] != '.' && strcmp(de->d_name, "work") != 0)
            empty = dir_empty(entry);
    }
    if (d)
        closedir(d);
    return empty;
}

int state_freeze(const struct paths *paths, struct state *s, struct err **e)
{
    AUTOFREE char *top = str_printf("%s/changes/%s", paths->data, s->top), *new = NULL;
    int rc;

    if (layer_empty(top))
        return 0;
    if ((rc = layer_new(paths, &new, e)) < 0)
        return rc;
    strv_take(&s->chain, s->top);
    s->top = str_dup(strrchr(new, '/') + 1);
    return 0;
}

void snapshot_add(struct state *s, const struct strv *chain, const char *message)
{
    struct snapshot *v = realloc(s->snaps, (s->n_snaps + 1) * sizeof *v);
    if (!v)
        abort();
    s->snaps = v;
    v += s->n_snaps++;
    *v = (struct snapshot){ .id = str_printf("s%llu", (unsigned long long)++s->n_taken),
                            .created = state_now(),
                            .message = str_dup(message) };
    for (size_t i = 0; i < chain->n; i++)
        strv_add(&v->chain, chain->v[i]);
}

const struct snapshot *snapshot_find(const struct state *s, const char *id, struct err **e)
{
    AUTOSTR struct str shown = STR_INIT;
    for (size_t i = 0; i < s->n_snaps; i++)
        if (strcmp(s->snaps[i].id, id) == 0)
            return &s->snaps[i];
    str_add_escaped(&shown, id, strlen(id) > 40 ? 40 : strlen(id));
    err_new(e, ERR_NOT_FOUND,
            "no snapshot '%s' of sandbox '%s'; petri snapshot ls lists them (petri undo takes a "
            "promotion back)",
            shown.p ? shown.p : "", s->name ? s->name : s->id);
    return NULL;
}

int snapshot_remove(struct state *s, const char *id, struct err **e)
{
    const struct snapshot *x = snapshot_find(s, id, e);
    struct snapshot gone;
    size_t i;

    if (!x)
        return -ERR_NOT_FOUND;
    i = (size_t)(x - s->snaps);
    gone = s->snaps[i];
    memmove(&s->snaps[i], &s->snaps[i + 1], (--s->n_snaps - i) * sizeof gone);
    free(gone.id);
    free(gone.created);
    free(gone.message);
    strv_free_p(&gone.chain);
    return 0;
}

int snapshot_back(const struct paths *paths, struct state *s, const char *id, struct err **e)
{
    const struct snapshot *x = snapshot_find(s, id, e);
    AUTOFREE char *new = NULL, *message = str_printf("before rollback to %s", id);
    AUTOSTRV struct strv chain = { 0 };
    int rc;

    if (!x)
        return -ERR_NOT_FOUND;
    for (size_t i = 0; i < x->chain.n; i++)
        strv_add(&chain, x->chain.v[i]);
    if ((rc = state_freeze(paths, s, e)) < 0)
        return rc;
    snapshot_add(s, &s->chain, message);
    if ((rc = layer_new(paths, &new, e)) < 0)
        return rc;
    strv_free_p(&s->chain);
    s->chain = chain;
    chain = (struct strv){ 0 };
    free(s->top);
    s->top = str_dup(strrchr(new, '/') + 1);
    return 0;
}
