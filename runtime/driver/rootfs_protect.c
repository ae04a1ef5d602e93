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

/* `rel` of what is seen at `place`, if it is to be read-only, and what leads there; "" is all of it. */
static void guard(struct guards *g, const char *place, const char *rel, bool ro)
{
    rel += strspn(rel, "/");
    for (const char *s = strchr(rel, '/'); s; s = strchr(s + 1, '/'))
        add(g, str_printf("%s/%.*s", place, (int)(s - rel), rel), false);
    if (ro)
        add(g, *rel ? path_join(place, rel) : str_dup(place), true);
}

/* A volume may show the project, or a part of it, once more. */
static void guard_volume(struct guards *g, const struct plan *p, const struct plan_mount *m,
                         const char *path, bool ro)
{
    AUTOFREE char *twin = rootfs_twin(p, m->dst);
    const char *rel = path_below(path, m->src) ? path + strlen(m->src) : "";

    if (!path_below(path, m->src) && !path_below(m->src, path))
        return;
    guard(g, m->dst, rel, ro);
    if (twin)
        guard(g, twin, rel, ro);
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
    if (at < 0 && !g->ro)
        return 0; /* what it leads to is not there either, or tells */
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

static void guard_all(struct guards *g, const struct plan *p, const char *rel, bool ro)
{
    AUTOFREE char *path = path_join(p->project, rel);

    guard(g, p->project, rel, ro);
    guard(g, p->workspace, rel, ro);
    for (size_t i = 0; i < p->mounts.n; i++)
        if (p->mounts.v[i].user)
            guard_volume(g, p, &p->mounts.v[i], path, ro);
}

int rootfs_protect(const struct plan *p, int root, struct err **e)
{
    CLEANUP(guards_free_p) struct guards g = { 0 };
    int rc = 0;

    for (size_t i = 0; i < p->readonly.n; i++)
        guard_all(&g, p, p->readonly.v[i], true);
    /* in the live directory a hidden name would be seen at the next start under another one */
    for (size_t i = 0; i < p->hide.n && p->mode == WORKSPACE_BIND; i++)
        guard_all(&g, p, p->hide.v[i], false);
    if (g.n)
        qsort(g.v, g.n, sizeof *g.v, order);
    for (size_t i = 0; i < g.n && rc == 0; i++)
        if (i == 0 || strcmp(g.v[i].path, g.v[i - 1].path) != 0)
            rc = mount_one(root, &g.v[i], e);
    return rc;
}
