/* runtime/change/apply.c - the order of things, and the order of phases. */
#include "runtime/change/apply.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"

int dirs_get(struct dirs *d, const char *path, int *ret_fd, struct err **e)
{
    if (d->fd < 0 || strcmp(d->path, path) != 0) {
        int fd, rc = node_open_dir(d->root, path, &fd, e);
        if (rc < 0)
            return rc;
        dirs_free_p(d);
        d->fd = fd;
        d->path = str_dup(path);
    }
    *ret_fd = d->fd;
    return 0;
}

int dirs_parent(struct dirs *d, const char *path, int *ret_fd, const char **ret_name,
                struct err **e)
{
    const char *slash = strrchr(path, '/');
    AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - path) : 0, path);
    *ret_name = slash ? slash + 1 : path;
    return dirs_get(d, dir, ret_fd, e);
}

void dirs_free_p(struct dirs *d)
{
    close_p(&d->fd);
    free(d->path);
    d->path = NULL;
}

/* --- order ------------------------------------------------------------------------------------- */

static bool goes(const struct item *it)
{
    return it->step == STEP_REMOVE || it->step == STEP_RMDIR;
}

/* What goes, deepest first; then what comes, parents first. */
static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (goes(x) != goes(y))
        return goes(x) ? -1 : 1;
    int c = strcmp(x->path, y->path);
    return goes(x) ? -c : c;
}

struct item *apply_find(const struct op *o, const char *path, bool gone)
{
    struct item key = { .path = (char *)(uintptr_t)path, .step = gone ? STEP_REMOVE : STEP_CREATE };
    return o->n ? bsearch(&key, o->v, o->n, sizeof *o->v, compare) : NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Directories that come or go: nothing can be put aside in them. */
static bool passing(const struct strv *l, const char *dir)
{
    return l->n && bsearch(&dir, l->v, l->n, sizeof *l->v, compare_names);
}

static char *anchor_of(const struct strv *dirs, const char *path)
{
    char *dir = str_dup(path);
    do {
        char *slash = strrchr(dir, '/');
        *(slash ? slash : dir) = '\0';
    } while (*dir && passing(dirs, dir));
    return dir;
}

int apply_order(struct op *o, struct err **e)
{
    AUTOSTRV struct strv dirs = { 0 };

    if (o->n)
        qsort(o->v, o->n, sizeof *o->v, compare);
    for (size_t i = 0; i < o->n; i++) {
        if (i && strcmp(o->v[i].path, o->v[i - 1].path) == 0 &&
            goes(&o->v[i]) == goes(&o->v[i - 1]))
            return err_new(e, ERR_INTERNAL, "'%s' stands twice in one operation", o->v[i].path);
        if (o->v[i].step == STEP_MKDIR || o->v[i].step == STEP_RMDIR)
            strv_add(&dirs, o->v[i].path);
    }
    if (dirs.n)
        qsort(dirs.v, dirs.n, sizeof *dirs.v, compare_names);
    for (size_t i = 0; i < o->n; i++) {
        free(o->v[i].anchor);
        o->v[i].anchor = anchor_of(&dirs, o->v[i].path);
    }
    return 0;
}

/* --- phases -------------------------------------------------------------------------------------- */

static void all_anchors(const struct op *o, struct strv *ret)
{
    for (size_t i = 0; i < o->n; i++)
        if (!ret->n || strcmp(ret->v[ret->n - 1], o->v[i].anchor) != 0)
            strv_add(ret, o->v[i].anchor);
}

/* --- directories ------------------------------------------------------------------------------------- */

static bool is_made(const struct op *o, const char *dir)
{
    const struct item *it = apply_find(o, dir, false);
    return it && it->step == STEP_MKDIR;
}

/* Those whose times this operation moves, and which are beyond doubt. */
static void touched_dirs(const struct apply *a, const struct op *o, struct strv *ret)
{
    AUTOSTRV struct strv all = { 0 };

    for (size_t i = 0; i < o->n && a->same_dir; i++) {
        AUTOFREE char *dir = str_dup(o->v[i].path);
        char *slash = strrchr(dir, '/');
        *(slash ? slash : dir) = '\0';
        strv_add(&all, dir);
        strv_add(&all, o->v[i].anchor);
        if (o->v[i].step == STEP_MKDIR)
            strv_add(&all, o->v[i].path);
    }
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, compare_names);
    for (size_t i = 0; i < all.n; i++)
        if ((i == 0 || strcmp(all.v[i], all.v[i - 1]) != 0) &&
            (is_made(o, all.v[i]) || a->same_dir(a->arg, all.v[i])))
            strv_add(ret, all.v[i]);
}

/* Without this a later promotion has more doubts than it needs, and that is all. */
static void note_dirs(const struct apply *a, const struct strv *dirs, int entry)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_arr(&w, "dirs");
    for (size_t i = 0; i < dirs->n; i++) {
        AUTOCLOSE int fd = -1;
        struct stat st;
        if (node_open_dir(a->root, dirs->v[i], &fd, NULL) < 0 || fstat(fd, &st) < 0)
            continue;
        jw_obj(&w, NULL);
        node_write_path(&w, "path", dirs->v[i]);
        jw_u64(&w, "ino", st.st_ino);
        jw_int(&w, "ctime", st.st_ctim.tv_sec);
        jw_int(&w, "ctime_nsec", st.st_ctim.tv_nsec);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    (void)fs_write_atomic(entry, "dirs.json", w.out.p, w.out.len, 0600, NULL);
}

int apply_run(struct apply *a, struct op *o, struct err **e)
{
    AUTOSTRV struct strv anchors = { 0 }, dirs = { 0 };
    AUTOCLOSE int entry = -1;
    AUTOCLOSE int top = openat(a->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (top < 0)
        return err_sys(e, "open the project");
    a->synced = top;
    all_anchors(o, &anchors);
    touched_dirs(a, o, &dirs);
    if ((rc = journal_begin(a->journal, o, &entry, e)) < 0)
        return rc;
    rc = stage_all(a, o, entry, e);
    if (rc == 0)
        rc = stage_sync(a, o, e);
    if (rc == 0)
        rc = journal_ready(entry, o, e);
    if (rc < 0) {
        /* what can't be cleaned away now is by the next command */
        if (stage_clean(a->root, o, &anchors, NULL) == 0)
            journal_drop(a->journal, o);
        return rc;
    }
    if ((rc = commit_all(a, o, entry, e)) < 0)
        return rc;
    if ((rc = journal_mark_done(entry, e)) < 0)
        return err_wrap(e, "everything is in place, but operation %u", o->number);
    if ((rc = stage_clean(a->root, o, &anchors, e)) < 0)
        return err_wrap(e, "everything is in place, but clean-up");
    if (dirs.n)
        note_dirs(a, &dirs, entry);
    rc = journal_finish(a->journal, o, entry, e);
    return rc < 0 ? err_wrap(e, "everything is in place, but operation %u", o->number) : 0;
}
