#include "runtime/change/rename.h"

#include <string.h>

#include "runtime/change/content.h"

enum {
    ENOUGH = 50,       /* per cent */
    MAX_PAIRS = 10000, /* comparisons of similar texts */
    MAX_TEXT = 1 << 20,
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool movable(const struct change *ch, enum change_kind kind)
{
    mode_t m = kind == CHANGE_ADDED ? ch->new_mode : ch->old_mode;
    return ch->kind == kind && S_ISREG(m) &&
           !(ch->flags & (CHANGE_HIDDEN | CHANGE_IGNORED | CHANGE_UNREADABLE)) &&
           (kind == CHANGE_ADDED ? ch->new_size : ch->old_size) > 0;
}

/* `to` becomes the rename; what is left of `from` is an entry without a path that goes at the end. */
static void join(struct change *from, struct change *to)
{
    to->kind = CHANGE_RENAMED;
    to->old_path = TAKE_PTR(from->path);
    to->old_mode = from->old_mode;
    to->old_size = from->old_size;
    to->flags |= from->flags & CHANGE_BINARY;
    memcpy(to->old_digest, from->old_digest, sizeof to->old_digest);
    to->old_text = TAKE_PTR(from->old_text);
}

static int by_digest(const void *a, const void *b)
{
    const struct change *x = *(struct change *const *)a, *y = *(struct change *const *)b;
    int rc = strcmp(x->old_digest, y->old_digest);
    return rc ? rc : strcmp(x->path, y->path);
}

/* Among deleted files of the same content, one of the same name where there is one. */
static struct change *same_content(struct change **gone, size_t n, const struct change *to)
{
    struct change *best = NULL;
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (strcmp(gone[mid]->old_digest, to->new_digest) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = lo; i < n && i < lo + 1000; i++) {
        if (strcmp(gone[i]->old_digest, to->new_digest) != 0)
            break;
        if (!gone[i]->path || gone[i]->view != to->view)
            continue;
        if (!best || strcmp(base_name(gone[i]->path), base_name(to->path)) == 0)
            best = gone[i];
    }
    return best;
}

static void find_exact(struct changeset *c, struct change **gone, size_t n)
{
    for (size_t i = 0; i < c->n; i++) {
        struct change *to = &c->v[i], *from;
        if (!to->path || !movable(to, CHANGE_ADDED))
            continue;
        from = same_content(gone, n, to);
        if (from)
            join(from, to);
    }
}

/* --- similar text --------------------------------------------------------------------------------- */

static struct similar *fingerprint(const struct changeset *c, const struct change *ch,
                                   bool new_side)
{
    AUTOFREE char *text = NULL;
    size_t n;

    if ((ch->flags & CHANGE_BINARY) || (new_side ? ch->new_size : ch->old_size) > MAX_TEXT ||
        content_read(c, ch, new_side, MAX_TEXT, &text, &n, NULL) < 0)
        return NULL;
    return similar_new(text, n);
}

static void find_similar(struct changeset *c, struct change **gone, size_t n_gone,
                         struct change **made, size_t n_made)
{
    struct similar **old = mem_zalloc((n_gone + 1) * sizeof *old);

    for (size_t i = 0; i < n_gone; i++)
        old[i] = fingerprint(c, gone[i], false);
    for (size_t k = 0; k < n_made; k++) {
        struct similar *new = fingerprint(c, made[k], true);
        size_t best = n_gone;
        int score = ENOUGH - 1;
        for (size_t i = 0; new &&i < n_gone; i++) {
            if (!gone[i]->path || gone[i]->view != made[k]->view)
                continue;
            uint64_t a = gone[i]->old_size, b = made[k]->new_size;
            int s = a > 2 * b || b > 2 * a ? 0 : similar_compare(old[i], new);
            if (s > score) {
                score = s;
                best = i;
            }
        }
        if (best < n_gone)
            join(gone[best], made[k]);
        similar_free(new);
    }
    for (size_t i = 0; i < n_gone; i++)
        similar_free(old[i]);
    free(old);
}

static size_t collect(struct changeset *c, enum change_kind kind, struct change **ret)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].path && movable(&c->v[i], kind))
            ret[n++] = &c->v[i];
    return n;
}

int rename_find(struct changeset *c, struct err **e)
{
    AUTOFREE struct change **gone = mem_zalloc((c->n + 1) * sizeof *gone);
    AUTOFREE struct change **made = mem_zalloc((c->n + 1) * sizeof *made);
    size_t n_gone = collect(c, CHANGE_DELETED, gone), n_made, kept = 0;

    qsort(gone, n_gone, sizeof *gone, by_digest);
    find_exact(c, gone, n_gone);
    n_gone = collect(c, CHANGE_DELETED, gone);
    n_made = collect(c, CHANGE_ADDED, made);
    if (n_gone && n_made && n_made <= MAX_PAIRS / n_gone)
        find_similar(c, gone, n_gone, made, n_made);
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i].path)
            c->v[kept++] = c->v[i];
    c->n = kept;
    return 0;
}
