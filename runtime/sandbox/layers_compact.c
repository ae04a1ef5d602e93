#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/snapshot.h"
#include "runtime/sandbox/store_lock.h"
#include "runtime/workspace/layer_merge.h"

struct merging {
    const struct paths *paths;
    const struct strv *chain;
    size_t n; /* of its lowest */
    const char *to;
    bool userxattr;
};

static int merge_inside(void *arg, struct err **e)
{
    const struct merging *m = arg;
    AUTOCLOSE int to = open(m->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fds[LAYER_MERGE_MOST]; /* the process ends: nobody need close them */

    if (to < 0)
        return err_sys(e, "open '%s'", m->to);
    for (size_t i = 0; i < m->n; i++) {
        AUTOFREE char *path = str_printf("%s/changes/%s", m->paths->data, m->chain->v[i]);
        fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fds[i] < 0)
            return err_sys(e, "open '%s'", path);
    }
    int rc = layer_merge(fds, m->n, to, m->userxattr, e);
    /* on disk before a record names it */
    return rc < 0 ? rc : syncfs(to) < 0 ? err_sys(e, "sync '%s'", m->to) : 0;
}

int layers_ids(const struct state *s, struct ids *ret, struct err **e)
{
    struct plan p = { .uid = (uint32_t)s->uid,
                      .gid = (uint32_t)s->gid,
                      .owner_uid = (uint32_t)s->owner_uid,
                      .owner_gid = (uint32_t)s->owner_gid };

    if (str_eq(s->ids, ids_mode_name(IDS_ROOT))) {
        *ret = (struct ids){ .mode = IDS_ROOT };
        return 0;
    }
    return ids_plan(&p, str_eq(s->ids, ids_mode_name(IDS_SUB)), ret, e);
}

static bool begins_with(const struct strv *chain, const struct strv *prefix)
{
    if (chain->n < prefix->n)
        return false;
    for (size_t i = 0; i < prefix->n; i++) {
        if (strcmp(chain->v[i], prefix->v[i]) != 0)
            return false;
    }
    return true;
}

/* All of the prefix but its first `keep` layers. */
static void replace_prefix(struct strv *chain, const struct strv *prefix, size_t keep,
                           const char *by)
{
    struct strv new = { 0 };

    if (!begins_with(chain, prefix))
        return;
    for (size_t i = 0; i < keep; i++)
        strv_add(&new, chain->v[i]);
    strv_add(&new, by);
    for (size_t i = prefix->n; i < chain->n; i++)
        strv_add(&new, chain->v[i]);
    strv_free_p(chain);
    *chain = new;
}

static struct strv *longest_chain(struct state *s)
{
    struct strv *l = &s->chain;
    for (size_t i = 0; i < s->n_snaps; i++) {
        if (s->snaps[i].chain.n > l->n)
            l = &s->snaps[i].chain;
    }
    return l;
}

/* One round: the lowest layers of `chain` become one. In memory only. */
static int merge_lowest(const struct paths *paths, struct state *s, const struct ids *ids,
                        const struct strv *chain, size_t longest, struct err **e)
{
    AUTOSTRV struct strv prefix = { 0 }, merged = { 0 };
    AUTOFREE char *to = NULL;
    /* the copy of the project is what changes are told from: it stays as it is */
    size_t keep = str_eq(s->mode, "copy");
    /* half of what is allowed stays, so that not every snapshot does this again */
    size_t n = chain->n - longest / 2;
    struct merging m = { .paths = paths, .chain = &merged, .userxattr = ids->mode != IDS_ROOT };
    int rc;

    n = n > LAYER_MERGE_MOST ? LAYER_MERGE_MOST : n;
    for (size_t i = 0; i < n; i++) {
        strv_add(&prefix, chain->v[i]);
        if (i >= keep)
            strv_add(&merged, chain->v[i]);
    }
    if ((rc = layer_new(paths, &to, e)) < 0)
        return rc;
    m.n = merged.n;
    m.to = to;
    if ((rc = inside_run(ids, merge_inside, &m, e)) < 0) {
        (void)inside_remove(to, NULL);
        return rc;
    }
    replace_prefix(&s->chain, &prefix, keep, strrchr(to, '/') + 1);
    for (size_t i = 0; i < s->n_snaps; i++)
        replace_prefix(&s->snaps[i].chain, &prefix, keep, strrchr(to, '/') + 1);
    return 0;
}

static int compact(const struct paths *paths, struct state *s, size_t longest, struct err **e)
{
    AUTOCLOSE int store = -1;
    struct ids ids;
    int rc;

    if ((rc = store_lock_shared(paths, &store, e)) < 0 || (rc = layers_ids(s, &ids, e)) < 0)
        return rc;
    /* each round makes the longest one shorter by at least half of `longest` */
    for (struct strv *l; rc == 0 && (l = longest_chain(s))->n > longest;)
        rc = merge_lowest(paths, s, &ids, l, longest, e);
    return rc < 0 ? rc : state_write(paths, s, e);
}

int layers_compact(const struct paths *paths, struct state *s, size_t longest, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOSTATE struct state old = { 0 };
    int rc;

    if (longest < 4 || longest_chain(s)->n <= longest)
        return 0;
    /* where it does not work out, memory must say what the record still says */
    if ((rc = state_read(paths, s->id, &old, e)) < 0)
        return rc;
    rc = compact(paths, s, longest, &why);
    if (rc == 0) {
        layers_remove_later(paths);
        return 0;
    }
    struct state failed = *s;
    *s = old;
    s->running = failed.running;
    old = failed;
    if (longest_chain(s)->n <= LAYERS_MOST)
        return 0; /* the kernel takes them as they are; another time */
    if (e)
        *e = TAKE_PTR(why);
    return err_wrap(e, "sandbox '%s' has too many layers, and they can't be made fewer", s->id);
}
