#include "runtime/change/recover.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/apply.h"

struct recovery {
    const struct journal *j;
    struct op *o;
    int entry, root;
    bool back;
    size_t done;
    struct strv left;
    struct dirs parents, anchors;
};

/* What of an item is where. */
struct where {
    int dir, anchor; /* -1: the directory is not there */
    const char *name;
    char temp[64], spare[64];
    bool place_old, place_new, place_none;
    bool temp_old, temp_new, temp_none;
    bool spare_old;
};

static bool is(int dir, const char *name, const struct node *n)
{
    return dir < 0 ? n->kind == NODE_NONE : node_matches(dir, name, n);
}

static void look(struct recovery *r, size_t i, struct where *w)
{
    static const struct node none = { .kind = NODE_NONE };
    struct item *it = &r->o->v[i];

    *w = (struct where){ 0 };
    if (dirs_parent(&r->parents, it->path, &w->dir, &w->name, NULL) < 0)
        w->dir = -1;
    if (dirs_get(&r->anchors, it->anchor, &w->anchor, NULL) < 0)
        w->anchor = -1;
    item_temp(r->o, i, false, w->temp);
    item_temp(r->o, i, true, w->spare);
    w->place_none = is(w->dir, w->name, &none);
    w->place_old = is(w->dir, w->name, &it->old);
    w->place_new = is(w->dir, w->name, &it->new);
    w->temp_none = is(w->anchor, w->temp, &none);
    w->temp_old = is(w->anchor, w->temp, &it->old);
    w->temp_new = is(w->anchor, w->temp, &it->new);
    w->spare_old = it->step == STEP_REPLACE && is(w->anchor, w->spare, &it->old);
}

/* A type that changed is two items: one went, the other came to its place. Then what is there may be the
 * other's doing. */
static bool others_doing(struct recovery *r, size_t i, const struct where *w)
{
    const struct item *it = &r->o->v[i], *other;
    if (r->back)
        return it->old.kind == NODE_NONE && (other = apply_find(r->o, it->path, true)) &&
               is(w->dir, w->name, &other->old);
    return it->new.kind == NODE_NONE && (other = apply_find(r->o, it->path, false)) &&
           is(w->dir, w->name, &other->new);
}

static int set_mode(const struct where *w, mode_t mode)
{
    AUTOCLOSE int fd = openat(w->dir, w->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -1 : fchmod(fd, mode);
}

/* 1 it is (or was already) as it should be, 0 it must be left alone, -1 errno. */
static int forward(struct recovery *r, size_t i)
{
    struct item *it = &r->o->v[i];
    struct where w;

    look(r, i, &w);
    if (it->step == STEP_CHMOD)
        return w.place_new ? 1 : !w.place_old ? 0 : set_mode(&w, it->new.mode) < 0 ? -1 : 1;
    if (it->step == STEP_RMDIR && w.place_old && !commit_dir_empty(w.dir, w.name))
        return 0;
    if (w.place_new || others_doing(r, i, &w))
        return 1;
    if (it->new.kind == NODE_NONE)
        return w.place_old ? (commit_move(w.dir, w.name, w.anchor, w.temp) < 0 ? -1 : 1) : 0;
    if (!w.temp_new || w.dir < 0)
        return 0;
    if (w.place_none && (it->old.kind == NODE_NONE || w.spare_old))
        return commit_move(w.anchor, w.temp, w.dir, w.name) < 0 ? -1 : 1;
    if (!w.place_old || w.place_none)
        return 0;
    return commit_swap(w.anchor, w.temp, w.spare, w.dir, w.name) < 0 ? -1 : 1;
}

static int backward(struct recovery *r, size_t i)
{
    struct item *it = &r->o->v[i];
    struct where w;

    look(r, i, &w);
    if (it->step == STEP_CHMOD)
        return w.place_old ? 1 : !w.place_new ? 0 : set_mode(&w, it->old.mode) < 0 ? -1 : 1;
    if (it->step == STEP_MKDIR && w.place_new && !commit_dir_empty(w.dir, w.name))
        return 0;
    if (w.place_old || others_doing(r, i, &w))
        return 1;
    if (it->old.kind == NODE_NONE)
        return w.place_new ? (commit_move(w.dir, w.name, w.anchor, w.temp) < 0 ? -1 : 1) : 0;
    if (w.place_none && w.dir >= 0 && (w.temp_old || w.spare_old))
        return commit_move(w.anchor, w.temp_old ? w.temp : w.spare, w.dir, w.name) < 0 ? -1 : 1;
    if (!w.place_new || w.place_none || !w.temp_old)
        return 0;
    return commit_swap(w.anchor, w.temp, w.spare, w.dir, w.name) < 0 ? -1 : 1;
}

/* --- what is left alone ---------------------------------------------------------------------------- */

static int keep_part(int kept, const char *name, int in, uint64_t from, uint64_t size,
                     struct err **e)
{
    char digest[65];
    AUTOCLOSE int out = openat(kept, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(e, "keep '%s'", name);
    int rc = node_hash_fd(in, from, size, out, 0, digest, e);
    if (rc == 0 && (ftruncate(out, (off_t)size) < 0 || fsync(out) < 0))
        rc = err_sys(e, "keep '%s'", name);
    return rc;
}

static int keep_both(struct recovery *r, size_t i, struct err **e)
{
    struct item *it = &r->o->v[i];
    AUTOFREE char *old_name = str_printf("%zu.old", i), *new_name = str_printf("%zu.new", i);
    AUTOCLOSE int kept = -1, blob = -1, in = -1;
    char temp[64];
    int anchor, rc = 0;

    it->left = true;
    strv_add(&r->left, it->path);
    if (mkdirat(r->entry, "kept", 0700) < 0 && errno != EEXIST)
        return err_sys(e, "make a directory in the journal");
    kept = openat(r->entry, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    blob = openat(r->entry, "old", O_RDONLY | O_CLOEXEC);
    if (kept < 0 || blob < 0)
        return err_sys(e, "open the journal");
    if (it->old.kind == NODE_FILE && it->step != STEP_CHMOD)
        rc = keep_part(kept, old_name, blob, it->old.at, it->old.size, e);
    if (rc < 0 || it->new.kind != NODE_FILE || it->step == STEP_CHMOD)
        return rc;
    item_temp(r->o, i, false, temp);
    if (dirs_get(&r->anchors, it->anchor, &anchor, NULL) < 0 ||
        !node_matches(anchor, temp, &it->new))
        return 0;
    in = openat(anchor, temp, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return in < 0 ? err_sys(e, "open '%s'", temp)
                  : keep_part(kept, new_name, in, 0, it->new.size, e);
}

/* --- one operation --------------------------------------------------------------------------------- */

static int steps(struct recovery *r, struct err **e)
{
    int rc = commit_dir_modes(r->root, r->o, true, e);

    for (size_t k = 0; k < r->o->n && rc == 0; k++) {
        size_t i = r->back ? r->o->n - 1 - k : k;
        int did = r->back ? backward(r, i) : forward(r, i);
        if (did < 0)
            return err_sys(e, "'%s'", r->o->v[i].path);
        if (did == 0)
            rc = keep_both(r, i, e);
        r->done += (size_t)did;
    }
    return rc < 0 ? rc : commit_dir_modes(r->root, r->o, false, e);
}

static void tell(const struct recovery *r, void (*say)(const char *))
{
    AUTOSTR struct str s = STR_INIT;

    str_addf(&s, "%s %u on '%s' was interrupted: ", r->o->kind, r->o->number, r->o->project);
    str_addf(&s, r->back ? "taken back, %zu files" : "finished, %zu files", r->done);
    if (r->left.n) {
        str_addf(&s, "; changed meanwhile and left alone:");
        for (size_t i = 0; i < r->left.n && i < 10; i++)
            str_addf(&s, " '%s'", r->left.v[i]);
        if (r->left.n > 10)
            str_addf(&s, " and %zu more", r->left.n - 10);
        str_addf(&s, " (both versions are in %s/%u/kept)", r->j->path, r->o->number);
    }
    say(s.p);
}

static int with_plan(struct recovery *r, struct strv *anchors, void (*say)(const char *),
                     struct err **e)
{
    int rc = 0;

    r->back = faccessat(r->entry, "abort", F_OK, 0) == 0;
    if (faccessat(r->entry, "done", F_OK, 0) < 0) {
        if ((rc = steps(r, e)) < 0)
            return rc;
        AUTOCLOSE int root = openat(r->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0 || syncfs(root) < 0)
            return err_sys(e, "sync the project's file system");
        if (r->left.n)
            rc = journal_ready(r->entry, r->o, e);
        if (rc == 0 && (!r->back || r->left.n))
            rc = journal_mark_done(r->entry, e);
        if (rc == 0)
            tell(r, say);
    }
    if (rc == 0)
        rc = stage_clean(r->root, r->o, anchors, e);
    if (rc < 0)
        return rc;
    if (r->back && !r->left.n) {
        journal_drop(r->j, r->o);
        return 0;
    }
    return journal_finish(r->j, r->o, r->entry, e);
}

static int recover_one(const struct journal *j, struct op *o, int root, void (*say)(const char *),
                       struct err **e)
{
    AUTOSTRV struct strv anchors = { 0 };
    AUTOCLOSE int entry = -1;
    int rc;

    if ((rc = journal_dir(j, o, &entry, e)) < 0)
        return rc;
    /* it is written before the head; without it the operation is over but for its name */
    if (faccessat(entry, "stage.json", F_OK, 0) == 0 &&
        (rc = journal_anchors(entry, &anchors, e)) < 0)
        return rc;
    if ((rc = journal_items(entry, o, NULL)) == -ERR_NOT_FOUND) {
        if ((rc = stage_clean(root, o, &anchors, e)) == 0)
            journal_drop(j, o);
        return rc;
    }
    if (rc < 0)
        return err_new(e, ERR_CORRUPT, "operation %u in '%s' can't be read; nothing was done",
                       o->number, j->path);
    struct recovery r = { .j = j,
                          .o = o,
                          .entry = entry,
                          .root = root,
                          .parents = DIRS_INIT(root),
                          .anchors = DIRS_INIT(root) };
    rc = with_plan(&r, &anchors, say, e);
    dirs_free_p(&r.parents);
    dirs_free_p(&r.anchors);
    strv_free_p(&r.left);
    return rc;
}

/* The project's root, while it is the one of then. */
static int open_root(const struct op *o)
{
    AUTOCLOSE int fd = open(o->project, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != o->dev || st.st_ino != o->ino)
        return -1;
    return TAKE_FD(fd);
}

int recover_project(const struct journal *j, dev_t dev, ino_t ino, void (*say)(const char *text),
                    struct err **e)
{
    struct op *v = NULL;
    size_t n = 0;
    int rc = journal_list(j, dev, ino, &v, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        if (!v[i].open)
            continue;
        AUTOCLOSE int root = open_root(&v[i]);
        if (root >= 0) /* else it is elsewhere: its turn comes when it is back */
            rc = recover_one(j, &v[i], root, say, e);
        if (rc < 0)
            err_wrap(e, "recover the interrupted %s %u on '%s'", v[i].kind, v[i].number,
                     v[i].project);
    }
    ops_free(v, n);
    return rc;
}

int recover_all(const struct journal *j, void (*say)(const char *text), struct err **e)
{
    struct op *v = NULL;
    size_t n = 0;
    int rc;

    journal_sweep(j);
    rc = journal_list(j, 0, 0, &v, &n, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        AUTOCLOSE int lock = -1;
        if (v[i].open && journal_try_lock(j, v[i].dev, v[i].ino, &lock) == 0)
            rc = recover_project(j, v[i].dev, v[i].ino, say, e);
    }
    ops_free(v, n);
    return rc;
}
