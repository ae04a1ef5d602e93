/* runtime/sandbox/plan_caches.c - the caches of a sandbox: one overlay, and links in the home that lead into it. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "runtime/sandbox/caches.h"
#include "runtime/sandbox/plan_parts.h"

/* Whether something else is at `link`, above it or below it: a tool chain of the home, a volume, the project. */
static bool is_taken(const struct plan *p, const struct plan_mounts *volumes, const char *link)
{
    const struct plan_mounts *const lists[] = { &p->mounts, volumes };

    if (path_below(p->project, link) || path_below(link, p->project))
        return true;
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        if (path_below(p->extra_lowers.v[i], link) || path_below(link, p->extra_lowers.v[i]))
            return true;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++)
        for (size_t i = 0; i < lists[l]->n; i++) {
            const struct plan_mount *m = &lists[l]->v[i];
            if (path_below(m->dst, link) || (m->kind == MOUNT_BIND && path_below(link, m->dst)))
                return true;
        }
    return false;
}

int plan_caches(const struct options *o, const struct paths *paths,
                const struct plan_mounts *volumes, struct plan *p, struct plan_holds *holds,
                struct err **e)
{
    bool stays = o->live || o->keep;
    AUTOFREE char *gen = NULL;
    AUTOSTRV struct strv full = { 0 };
    bool some;
    size_t n = 0;
    int rc;

    if (o->caches && strcmp(o->caches, "off") == 0)
        return 0;
    /* what a run that ends writes to caches goes with it: without a base there is nothing to do */
    if ((rc = caches_hold(paths, p, stays, &gen, &holds->caches_fd, e)) < 0 || !gen)
        return rc;
    some = !stays && caches_full(holds->caches_fd, &full);
    for (const struct cache_place *c = cache_places; c->name; c++) {
        AUTOFREE char *link = path_join(p->home, c->home);
        if ((some && !strv_has(&full, c->name)) ||
            faccessat(holds->caches_fd, c->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
            is_taken(p, volumes, link))
            continue;
        AUTOFREE char *to = path_join(PLAN_CACHES, c->name);
        plan_mounts_add(&p->mounts, MOUNT_HOME_LINK, to, link, false);
        n++;
    }
    if (!n)
        return 0;
    plan_mounts_add(&p->mounts, MOUNT_BIND, gen, PLAN_CACHES, false);
    p->mounts.v[p->mounts.n - 1].overlay = true;
    p->mounts.v[p->mounts.n - 1].owner = true;
    return 0;
}
