#include "runtime/change/changeset.h"

#include <string.h>

#include "runtime/change/hash.h"
#include "runtime/change/rename.h"
#include "runtime/change/walk.h"

static const struct {
    const char *name;
    char letter;
} kinds[] = {
    [CHANGE_ADDED] = { "added", 'A' },     [CHANGE_MODIFIED] = { "modified", 'M' },
    [CHANGE_DELETED] = { "deleted", 'D' }, [CHANGE_RENAMED] = { "renamed", 'R' },
    [CHANGE_MODE] = { "mode", 'M' },       [CHANGE_TYPE] = { "type", 'T' },
};

const char *change_kind_name(enum change_kind k)
{
    return kinds[k].name;
}

char change_letter(enum change_kind k)
{
    return kinds[k].letter;
}

void view_pair_free_p(struct view_pair *p)
{
    view_free_p(&p->old);
    view_free_p(&p->new);
}

static void change_free(struct change *ch)
{
    free(ch->path);
    free(ch->old_path);
    free(ch->old_text);
    free(ch->new_text);
    for (size_t i = 0; i < ch->n_risks; i++)
        free(ch->risks[i].detail);
    free(ch->risks);
}

void changeset_free_p(struct changeset *c)
{
    for (size_t i = 0; i < c->n_pairs; i++)
        view_pair_free_p(&c->pairs[i]);
    free(c->pairs);
    for (size_t i = 0; i < c->n; i++)
        change_free(&c->v[i]);
    free(c->v);
    for (size_t i = 0; i < c->n_ignored; i++)
        free(c->ignored[i].path);
    free(c->ignored);
    strv_free_p(&c->repos);
    *c = (struct changeset){ 0 };
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct change *)a)->path, ((const struct change *)b)->path);
}

static int ignored_by_path(const void *a, const void *b)
{
    return strcmp(((const struct ignored_dir *)a)->path, ((const struct ignored_dir *)b)->path);
}

/* What git would write: owners, times and other bits of the mode are no part of a change. */
static unsigned git_mode(mode_t m)
{
    return !m           ? 0
           : S_ISREG(m) ? (m & S_IXUSR ? 0100755 : 0100644)
           : S_ISLNK(m) ? 0120000
           : S_ISDIR(m) ? 0040000
                        : (unsigned)(m & S_IFMT);
}

static void make_id(struct changeset *c)
{
    CLEANUP(hash_free_p) struct hash *h = hash_new();

    hash_add(h, "petri change 1", sizeof "petri change 1");
    for (size_t i = 0; i < c->n; i++) {
        const struct change *ch = &c->v[i];
        AUTOFREE char *rest =
            str_printf("%s %o %o %s %s", change_kind_name(ch->kind), git_mode(ch->old_mode),
                       git_mode(ch->new_mode), ch->old_digest, ch->new_digest);
        hash_add(h, ch->path, strlen(ch->path) + 1);
        hash_add(h, rest, strlen(rest) + 1);
    }
    hash_hex(h, c->id);
}

int changeset_make(struct view_pair *pairs, size_t n_pairs, const struct changeset_opts *o,
                   struct changeset *ret, struct err **e)
{
    CLEANUP(changeset_free_p) struct changeset c = { .pairs = pairs, .n_pairs = n_pairs };
    int rc = 0;

    for (size_t i = 0; i < n_pairs && rc == 0; i++)
        rc = walk_pair(&c, i, o, e);
    if (rc < 0)
        return rc;
    if (c.n)
        qsort(c.v, c.n, sizeof *c.v, by_path);
    if (c.n_ignored)
        qsort(c.ignored, c.n_ignored, sizeof *c.ignored, ignored_by_path);
    make_id(&c);
    if (o->renames && (rc = rename_find(&c, e)) < 0)
        return rc;
    *ret = c;
    c = (struct changeset){ 0 };
    return 0;
}

const struct change *changeset_find(const struct changeset *c, const char *path)
{
    struct change key = { .path = (char *)(uintptr_t)path };
    return c->n ? bsearch(&key, c->v, c->n, sizeof *c->v, by_path) : NULL;
}

const char *change_rel(const struct changeset *c, const struct change *ch, const char *path)
{
    return path + strlen(c->pairs[ch->view].new.prefix);
}

int change_open(const struct changeset *c, const struct change *ch, bool new_side, int *ret_fd,
                char **ret_link, struct err **e)
{
    const struct view_pair *p = &c->pairs[ch->view];
    const struct view *v = new_side ? &p->new : &p->old;
    const char *path = change_rel(c, ch, !new_side && ch->old_path ? ch->old_path : ch->path);
    mode_t mode = new_side ? ch->new_mode : ch->old_mode;

    *ret_fd = -1;
    *ret_link = NULL;
    if (S_ISLNK(mode))
        return view_readlink(v, path, ret_link, e);
    return view_open(v, path, ret_fd, NULL, e);
}
