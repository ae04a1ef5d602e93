/* runtime/driver/rootfs_protect.c - paths of the project that can't be written inside.
 * A mount can be moved by renaming a directory above it, so these directories become mounts too: a name that
 * something is mounted on can be neither renamed nor removed.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/driver/rootfs_priv.h"

struct guard {
    char *path; /* inside */
    bool ro;
};

struct guards {
    struct guard *v;
    size_t n;
};

static void guards_free_p(struct guards *g)
{
    for (size_t i = 0; i < g->n; i++)
        free(g->v[i].path);
    free(g->v);
}

static void add(struct guards *g, char *path, bool ro)
{
    g->v = realloc(g->v, (g->n + 1) * sizeof *g->v);
    if (!g->v)
        abort();
    g->v[g->n++] = (struct guard){ path, ro };
}

/* `rel` of what is seen at `place`, and what leads there; "" is all of it. */
static void guard(struct guards *g, const char *place, const char *rel)
{
    rel += strspn(rel, "/");
    for (const char *s = strchr(rel, '/'); s; s = strchr(s + 1, '/'))
        add(g, str_printf("%s/%.*s", place, (int)(s - rel), rel), false);
    add(g, *rel ? path_join(place, rel) : str_dup(place), true);
}

/* A volume may show the project, or a part of it, once more. */
static void guard_volume(struct guards *g, const struct plan *p, const struct plan_mount *m,
                         const char *protected)
{
    AUTOFREE char *twin = rootfs_twin(p, m->dst);
    const char *rel = path_below(protected, m->src) ? protected + strlen(m->src) : "";

    if (!path_below(protected, m->src) && !path_below(m->src, protected))
        return;
    guard(g, m->dst, rel);
    if (twin)
        guard(g, twin, rel);
}

/* What is above comes first; of the same path the read-only one. */
static int order(const void *a, const void *b)
{
    const struct guard *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    return c ? c : (int)y->ro - (int)x->ro;
}

static int mount_one(int root, const struct guard *g, struct err **e)
{
    AUTOCLOSE int at = fs_open_beneath(root, g->path + 1, O_PATH | O_NOFOLLOW, 0, 0), fd = -1;
    struct stat st;
    int rc;

    if (at >= 0 && fstat(at, &st) == 0 && S_ISLNK(st.st_mode)) {
        errno = ELOOP; /* the name must lead to what was meant */
        close_p(&at);
    }
    if (at < 0)
        return err_new(e, ERR_DENIED,
                       "'%s' is to be protected (mounts.readonly, --protect) and can't be: %s; the "
                       "sandbox may have removed or replaced it before, see petri diff",
                       g->path, strerror(errno));
    if ((rc = mnt_clone(at, "", g->ro ? MNT_RO : 0, -1, &fd, e)) < 0 ||
        (rc = mnt_attach(fd, at, g->path, e)) < 0)
        return err_wrap(e, "protect '%s'", g->path);
    return 0;
}

int rootfs_protect(const struct plan *p, int root, struct err **e)
{
    CLEANUP(guards_free_p) struct guards g = { 0 };
    int rc = 0;

    for (size_t i = 0; i < p->readonly.n; i++) {
        AUTOFREE char *path = path_join(p->project, p->readonly.v[i]);
        guard(&g, p->project, p->readonly.v[i]);
        guard(&g, p->workspace, p->readonly.v[i]);
        for (size_t k = 0; k < p->mounts.n; k++)
            if (p->mounts.v[k].user)
                guard_volume(&g, p, &p->mounts.v[k], path);
    }
    if (g.n)
        qsort(g.v, g.n, sizeof *g.v, order);
    for (size_t i = 0; i < g.n && rc == 0; i++)
        if (i == 0 || strcmp(g.v[i].path, g.v[i - 1].path) != 0)
            rc = mount_one(root, &g.v[i], e);
    return rc;
}
