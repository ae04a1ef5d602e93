/* runtime/change/host.c - the usual change: what a sandbox has that its project has not. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/changeset.h"
#include "runtime/change/library.h"
#include "runtime/change/risk.h"

/* A workspace is compared where it is the project or a mount below it; a git directory elsewhere is the
 * repository's own. */
static bool is_compared(const struct record *r, size_t index)
{
    return index == 0 || path_below(r->workspaces.v[index], r->project);
}

static struct view_pair *add_pair(struct view_pair **pairs, size_t *n)
{
    *pairs = realloc(*pairs, (*n + 1) * sizeof **pairs);
    if (!*pairs)
        abort();
    memset(&(*pairs)[*n], 0, sizeof **pairs);
    return &(*pairs)[(*n)++];
}

static void free_pairs(struct view_pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        view_pair_free_p(&pairs[i]);
    free(pairs);
}

int pairs_host(const struct record *r, const char *snap, struct view_pair **ret, size_t *ret_n,
               struct err **e)
{
    struct view_pair *pairs = NULL;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < r->workspaces.n && rc == 0; i++) {
        if (!is_compared(r, i))
            continue;
        struct view_pair *p = add_pair(&pairs, &n);
        rc = view_host(r, i, &p->old, e);
        if (rc == 0)
            rc = view_sandbox(r, snap, i, &p->new, e);
    }
    if (rc < 0) {
        free_pairs(pairs, n);
        return rc;
    }
    *ret = pairs;
    *ret_n = n;
    return 0;
}

int pairs_between(const struct record *a, const char *a_snap, const struct record *b,
                  const char *b_snap, struct view_pair **ret, size_t *ret_n, struct err **e)
{
    struct view_pair *pairs = NULL;
    size_t n = 0;
    int rc = 0;

    if (strcmp(a->project, b->project) != 0)
        return err_new(
            e, ERR_INVALID,
            "'%s' and '%s' are sandboxes of different projects; only those of one can be "
            "compared",
            record_label(a), record_label(b));
    for (size_t i = 0; i < a->workspaces.n && i < b->workspaces.n && rc == 0; i++) {
        if (!is_compared(a, i) || strcmp(a->workspaces.v[i], b->workspaces.v[i]) != 0)
            continue;
        struct view_pair *p = add_pair(&pairs, &n);
        rc = view_sandbox(a, a_snap, i, &p->old, e);
        if (rc == 0)
            rc = view_sandbox(b, b_snap, i, &p->new, e);
    }
    if (rc < 0) {
        free_pairs(pairs, n);
        return rc;
    }
    *ret = pairs;
    *ret_n = n;
    return 0;
}

int changeset_pairs(const struct record *r, struct view_pair *pairs, size_t n,
                    const struct changeset_opts *o, struct changeset *ret, struct err **e)
{
    CLEANUP(changeset_free_p) struct changeset c = { 0 };
    CLEANUP(ignore_free_p) struct ignore *ignore = NULL;
    struct changeset_opts all = o ? *o : (struct changeset_opts){ 0 };
    int rc;

    if ((rc = library_start(e)) < 0 || (rc = ignore_open(r->project, &ignore, e)) < 0) {
        free_pairs(pairs, n);
        return rc;
    }
    all.ignored = ignore ? ignore_path : NULL;
    all.ignored_arg = ignore;
    if ((rc = changeset_make(pairs, n, &all, &c, e)) < 0 || (rc = risk_mark(&c, e)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        if ((rc = view_check(r, &c.pairs[i].old, e)) < 0 ||
            (rc = view_check(r, &c.pairs[i].new, e)) < 0)
            return rc;
    *ret = c;
    c = (struct changeset){ 0 };
    return 0;
}

int changeset_host(const struct record *r, const char *snap, const struct changeset_opts *o,
                   struct changeset *ret, struct err **e)
{
    struct view_pair *pairs;
    size_t n;
    int rc = pairs_host(r, snap, &pairs, &n, e);
    return rc < 0 ? rc : changeset_pairs(r, pairs, n, o, ret, e);
}
