#include "runtime/change/walk.h"

#include <string.h>

#include "runtime/change/hash.h"
#include "runtime/change/text.h"

/* Deeper than any project; each level holds a descriptor per layer. */
enum { MAX_DEPTH = 500, HEAD = 8000 };

struct walk {
    struct changeset *c;
    const struct changeset_opts *o;
    const struct view *old, *new;
    size_t index;
    int old_own, new_own; /* layers above these indexes are not shared by the two views */
};

/* A place in the tree: either side may not be there. */
struct place {
    const struct vdir *old, *new;
    bool all; /* look at every name, not only at those that layers mention */
    bool ignored;
    unsigned depth;
};

/* --- what the views share ------------------------------------------------------------------------- */

static bool same_layer(const struct view_layer *a, const struct view_layer *b)
{
    /* a copy stands for the project it was made from */
    if (a->base && b->base && (a->project || b->project))
        return true;
    return a->project == b->project && strcmp(a->id, b->id) == 0;
}

static void find_shared(struct walk *w)
{
    size_t a = w->old->n, b = w->new->n;
    while (a > 0 && b > 0 && same_layer(&w->old->layers[a - 1], &w->new->layers[b - 1])) {
        a--;
        b--;
    }
    w->old_own = (int)a;
    w->new_own = (int)b;
}

/* --- which paths ---------------------------------------------------------------------------------- */

static char *full_path(const struct walk *w, const struct place *at, const char *name)
{
    const struct vdir *d = at->old ? at->old : at->new;
    return str_printf("%s%s%s%s", w->old->prefix, d->path, *d->path ? "/" : "", name);
}

/* 0: outside of what was asked for, 1: on the way to it, 2: in it. */
static int wanted(const struct walk *w, const char *path)
{
    int best = w->o->paths ? 0 : 2;
    for (size_t i = 0; w->o->paths && i < w->o->paths->n && best < 2; i++) {
        const char *p = w->o->paths->v[i];
        if (!*p || path_below(path, p))
            best = 2;
        else if (path_below(p, path))
            best = 1;
    }
    return best;
}

/* An ignored path counts like any other where it was named itself. */
static bool named_ignored(const struct walk *w, const char *path)
{
    for (size_t i = 0; w->o->paths && i < w->o->paths->n; i++) {
        const char *p = w->o->paths->v[i];
        if (*p && path_below(path, p) && w->o->ignored &&
            (w->o->ignored(w->o->ignored_arg, p, false) ||
             w->o->ignored(w->o->ignored_arg, p, true)))
            return true;
    }
    return false;
}

static void count_ignored(struct changeset *c, const char *path)
{
    const char *slash = strchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    for (size_t i = c->n_ignored; i > 0; i--) {
        struct ignored_dir *d = &c->ignored[i - 1];
        if (strlen(d->path) == n && memcmp(d->path, path, n) == 0) {
            d->files++;
            return;
        }
    }
    c->ignored = realloc(c->ignored, (c->n_ignored + 1) * sizeof *c->ignored);
    if (!c->ignored)
        abort();
    c->ignored[c->n_ignored++] = (struct ignored_dir){ str_printf("%.*s", (int)n, path), 1 };
}

/* --- one file -------------------------------------------------------------------------------------- */

struct side {
    mode_t mode;
    uint64_t size;
    char digest[HASH_HEX + 1];
    bool binary, unreadable;
    char *text; /* may be NULL */
};

static void side_free_p(struct side *s)
{
    free(s->text);
}

static int read_link(const struct view *v, const struct vdir *d, const char *name, struct side *ret,
                     struct err **e)
{
    AUTOFREE char *text = NULL;
    int rc = vdir_readlink(v, d, name, &text, e);

    if (rc < 0)
        return rc;
    ret->size = strlen(text);
    hash_text(text, strlen(text), ret->digest);
    return 0;
}

/* A small file in one read. */
static int read_small(int fd, size_t size, struct side *ret, struct err **e)
{
    AUTOFREE char *text = mem_zalloc(size + 1);
    size_t n = 0;
    ssize_t k = 1;

    while (n < size && (k = RETRY(read(fd, text + n, size - n))) > 0)
        n += (size_t)k;
    if (k < 0)
        return err_sys(e, "read a file");
    hash_text(text, n, ret->digest);
    ret->size = n;
    ret->binary = text_is_binary(text, n < HEAD ? n : HEAD);
    ret->text = TAKE_PTR(text);
    return 0;
}

static int read_file(const struct walk *w, const struct view *v, const struct vdir *d,
                     const char *name, const struct entry *en, struct side *ret, struct err **e)
{
    AUTOCLOSE int fd = -1;
    char head[HEAD];
    struct stat st;
    int rc = vdir_open_file(v, d, name, en, &fd, &st, e);

    if (rc < 0)
        return rc;
    /* a file with holes keeps them, and that takes a descriptor */
    if (st.st_size <= KEEP_FILE && w->c->kept + (size_t)st.st_size <= KEEP_ALL &&
        st.st_blocks * 512 >= st.st_size)
        return read_small(fd, (size_t)st.st_size, ret, e);
    if ((rc = hash_file(fd, ret->digest, head, sizeof head, &ret->size, e)) < 0)
        return rc;
    ret->binary = text_is_binary(head, ret->size < HEAD ? (size_t)ret->size : HEAD);
    return 0;
}

static void read_side(const struct walk *w, const struct view *v, const struct vdir *d,
                      const char *name, const struct entry *en, struct side *ret)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = 0;

    *ret = (struct side){ .mode = en->kind ? en->st.st_mode : 0 };
    if (en->kind == VIEW_LINK)
        rc = read_link(v, d, name, ret, &why);
    else if (en->kind == VIEW_FILE)
        rc = read_file(w, v, d, name, en, ret, &why);
    if (rc == 0)
        return;
    *ret = (struct side){ 0 };
    if (!view_gone(why))
        *ret = (struct side){ .mode = en->st.st_mode,
                              .size = (uint64_t)en->st.st_size,
                              .unreadable = true };
}

static bool executable(mode_t m)
{
    return S_ISREG(m) && (m & S_IXUSR);
}

/* False: nothing changed. */
static bool kind_of(const struct side *a, const struct side *b, enum change_kind *ret)
{
    bool same = strcmp(a->digest, b->digest) == 0 && !a->unreadable && !b->unreadable;

    if (!a->mode && !b->mode)
        return false;
    if (!a->mode || !b->mode)
        *ret = a->mode ? CHANGE_DELETED : CHANGE_ADDED;
    else if ((a->mode & S_IFMT) != (b->mode & S_IFMT))
        *ret = CHANGE_TYPE;
    else if (!S_ISREG(a->mode) && !S_ISLNK(a->mode) && !S_ISDIR(a->mode))
        return false;
    else if (!same)
        *ret = CHANGE_MODIFIED;
    else if (executable(a->mode) != executable(b->mode))
        *ret = CHANGE_MODE;
    else
        return false;
    return true;
}

static void add_change(struct changeset *c, struct change ch)
{
    if ((c->n & (c->n - 1)) == 0) {
        c->v = realloc(c->v, (c->n ? c->n * 2 : 1) * sizeof *c->v);
        if (!c->v)
            abort();
    }
    c->v[c->n++] = ch;
}

/* Whether two ignored files differ at all matters only for a count: sizes and kinds are enough to see most,
 * contents decide about the rest. */
static void leaf_ignored(struct walk *w, const struct place *at, const char *name, const char *path,
                         const struct entry *oe, const struct entry *ne)
{
    CLEANUP(side_free_p) struct side a = { 0 }, b = { 0 };
    enum change_kind kind;

    if (oe->kind && oe->kind == ne->kind && oe->st.st_size == ne->st.st_size) {
        read_side(w, w->old, at->old, name, oe, &a);
        read_side(w, w->new, at->new, name, ne, &b);
        if (!kind_of(&a, &b, &kind))
            return;
    }
    count_ignored(w->c, path);
}

static void leaf(struct walk *w, const struct place *at, const char *name, const char *path,
                 const struct entry *oe, const struct entry *ne)
{
    struct change ch = { .view = w->index };
    CLEANUP(side_free_p) struct side a = { 0 }, b = { 0 };

    if (wanted(w, path) < 2)
        return;
    if (at->ignored && !w->o->keep_ignored && !named_ignored(w, path)) {
        leaf_ignored(w, at, name, path, oe, ne);
        return;
    }
    read_side(w, w->old, at->old, name, oe, &a);
    read_side(w, w->new, at->new, name, ne, &b);
    if (!kind_of(&a, &b, &ch.kind))
        return;
    w->c->kept += (a.text ? a.size : 0) + (b.text ? b.size : 0);
    ch.old_text = TAKE_PTR(a.text);
    ch.new_text = TAKE_PTR(b.text);
    ch.written = ne->kind == VIEW_ABSENT ? (struct timespec){ 0 } : ne->st.st_ctim;
    ch.path = str_dup(path);
    ch.old_mode = a.mode;
    ch.new_mode = b.mode;
    ch.old_size = a.size;
    ch.new_size = b.size;
    memcpy(ch.old_digest, a.digest, sizeof a.digest);
    memcpy(ch.new_digest, b.digest, sizeof b.digest);
    ch.flags = (a.binary || b.binary ? CHANGE_BINARY : 0) | (at->ignored ? CHANGE_IGNORED : 0) |
               (a.unreadable || b.unreadable ? CHANGE_UNREADABLE : 0) |
               (S_ISDIR(a.mode) || S_ISDIR(b.mode) ? CHANGE_EMPTY_DIR : 0);
    if (view_hidden(w->new, path + strlen(w->new->prefix)))
        ch.flags |= CHANGE_HIDDEN;
    add_change(w->c, ch);
}

/* --- directories ------------------------------------------------------------------------------------ */

static int walk_dir(struct walk *w, const struct place *at, size_t *ret_names, struct err **e);

/* *ret stays NULL where it is no directory, or no longer. */
static int open_side(const struct view *v, const struct vdir *at, const char *name,
                     const struct entry *en, struct vdir *buf, const struct vdir **ret,
                     struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = en->kind == VIEW_DIR ? vdir_open(v, at, name, buf, &why) : 0;

    if (rc == 0 && en->kind == VIEW_DIR)
        *ret = buf;
    if (rc == 0 || view_gone(why))
        return 0;
    if (e)
        *e = TAKE_PTR(why);
    return rc;
}

/* One or both sides are a directory. *ret_done: nothing is left to say about the name itself. */
static int enter(struct walk *w, const struct place *at, const char *name, const char *path,
                 const struct entry *oe, const struct entry *ne, bool *ret_done, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir od = { .cut = -1 }, nd = { .cut = -1 };
    struct place sub = { .depth = at->depth + 1, .all = at->all, .ignored = at->ignored };
    struct place here = *at;
    size_t names = 0;
    int rc;

    if ((rc = open_side(w->old, at->old, name, oe, &od, &sub.old, e)) < 0 ||
        (rc = open_side(w->new, at->new, name, ne, &nd, &sub.new, e)) < 0)
        return rc;
    sub.all |= !sub.old || !sub.new || (od.cut >= 0 && od.cut < w->old_own) ||
               (nd.cut >= 0 && nd.cut < w->new_own);
    if (!sub.ignored && w->o->ignored)
        sub.ignored = w->o->ignored(w->o->ignored_arg, path, true);
    if ((rc = walk_dir(w, &sub, &names, e)) < 0)
        return rc;
    /* git does not know directories: only one that came or went empty is a change of its own */
    *ret_done = !sub.old == !sub.new || names == 0;
    if (!*ret_done || !sub.old == !sub.new)
        return 0;
    here.ignored = sub.ignored;
    leaf(w, &here, name, path, oe, ne);
    return 0;
}

static int compare(struct walk *w, const struct place *at, const char *name, struct err **e)
{
    AUTOFREE char *path = full_path(w, at, name);
    const struct entry none = { .kind = VIEW_ABSENT, .layer = -1 };
    struct entry oe = none, ne = none;
    struct place here = *at;
    bool done = false;
    int rc;

    if (wanted(w, path) == 0)
        return 0;
    if (strcmp(name, ".git") == 0) {
        strv_add(&w->c->repos, path);
        return 0;
    }
    if ((at->old && (rc = vdir_lookup(w->old, at->old, name, &oe, e)) < 0) ||
        (at->new && (rc = vdir_lookup(w->new, at->new, name, &ne, e)) < 0))
        return rc;
    if (oe.kind == VIEW_DIR || ne.kind == VIEW_DIR) {
        if ((rc = enter(w, at, name, path, &oe, &ne, &done, e)) < 0 || done)
            return rc;
        /* what took the directory's place, or had it before */
        oe = oe.kind == VIEW_DIR ? none : oe;
        ne = ne.kind == VIEW_DIR ? none : ne;
    }
    if (oe.kind == VIEW_ABSENT && ne.kind == VIEW_ABSENT)
        return 0;
    if (!here.ignored && w->o->ignored)
        here.ignored = w->o->ignored(w->o->ignored_arg, path, false);
    leaf(w, &here, name, path, &oe, &ne);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int walk_dir(struct walk *w, const struct place *at, size_t *ret_names, struct err **e)
{
    AUTOSTRV struct strv names = { 0 };
    int rc = 0;

    if (at->depth > MAX_DEPTH)
        return err_new(e, ERR_LIMIT,
                       "directories are nested deeper than %d in the sandbox: '%.60s...'",
                       MAX_DEPTH, (at->new ? at->new : at->old)->path);
    if (at->old && (at->all || w->old_own > 0))
        rc = vdir_list(w->old, at->old, at->all ? 0 : w->old_own, &names, e);
    if (rc == 0 && at->new && (at->all || w->new_own > 0))
        rc = vdir_list(w->new, at->new, at->all ? 0 : w->new_own, &names, e);
    if (names.n)
        qsort(names.v, names.n, sizeof *names.v, by_name);
    for (size_t i = 0; i < names.n && rc == 0; i++)
        if (i == 0 || strcmp(names.v[i], names.v[i - 1]) != 0)
            rc = compare(w, at, names.v[i], e);
    *ret_names = names.n;
    return rc;
}

int walk_pair(struct changeset *c, size_t index, const struct changeset_opts *o, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir od = { .cut = -1 }, nd = { .cut = -1 };
    struct walk w = { .c = c, .o = o, .index = index };
    struct place top = { .old = &od, .new = &nd };
    size_t names;
    int rc;

    w.old = &c->pairs[index].old;
    w.new = &c->pairs[index].new;
    find_shared(&w);
    if ((rc = vdir_root(w.old, &od, e)) < 0 || (rc = vdir_root(w.new, &nd, e)) < 0)
        return rc;
    top.all = (od.cut >= 0 && od.cut < w.old_own) || (nd.cut >= 0 && nd.cut < w.new_own);
    return walk_dir(&w, &top, &names, e);
}
