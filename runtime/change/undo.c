#include "runtime/change/undo.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/events.h"
#include "base/fs.h"
#include "runtime/change/apply.h"
#include "runtime/change/crew.h"
#include "runtime/change/known.h"
#include "runtime/change/recover.h"
#include "runtime/change/talk.h"

struct undo {
    struct journal j;
    int root, blob;
    int entry;     /* of what is reversed, while it is */
    struct op was; /* what is reversed */
    struct op o;   /* the reversal */
    struct strv refused;
    struct strv kept_dirs;
};

static void undo_free_p(struct undo *u)
{
    journal_close_p(&u->j);
    close_p(&u->root);
    close_p(&u->blob);
    op_free_p(&u->was);
    op_free_p(&u->o);
    strv_free_p(&u->refused);
    strv_free_p(&u->kept_dirs);
}

static enum step reversed(enum step s)
{
    static const enum step to[] = {
        [STEP_REMOVE] = STEP_CREATE, [STEP_RMDIR] = STEP_MKDIR,     [STEP_MKDIR] = STEP_RMDIR,
        [STEP_CREATE] = STEP_REMOVE, [STEP_REPLACE] = STEP_REPLACE, [STEP_CHMOD] = STEP_CHMOD,
    };
    return to[s];
}

static bool equal(const struct node *a, const struct node *b)
{
    if (a->kind != b->kind || a->kind == NODE_NONE || a->kind == NODE_DIR)
        return a->kind == b->kind;
    return a->size == b->size && !strcmp(a->digest, b->digest) &&
           (a->kind == NODE_LINK || (a->mode & 0777) == (b->mode & 0777));
}

/* What must lie there now. A type that changed stands twice in an operation: something went, and
 * something else came to the same place. */
static const struct node *expected(const struct op *o, const struct item *it)
{
    const struct item *came = it->new.kind == NODE_NONE ? apply_find(o, it->path, false) : NULL;
    return came ? &came->new : &it->new;
}

static int judge(struct undo *u, const struct item *it, struct err **e)
{
    CLEANUP(node_free_p) struct node now = { 0 };
    const struct node *want = expected(&u->was, it);
    struct stat st = { 0 };
    int rc = node_look_at(u->root, it->path, &now, &st, e);

    if (rc == 0 && now.kind != NODE_NONE)
        rc = node_digest_at(u->root, it->path, &now, e);
    if (rc < 0)
        return rc;
    if (!equal(&now, want)) {
        if (!equal(&now, &it->old) && !strv_has(&u->refused, it->path))
            strv_add(&u->refused, it->path); /* else somebody has undone it already */
        return 0;
    }
    struct item *back = op_add(&u->o, it->path, reversed(it->step));
    node_copy(&it->new, &back->old);
    node_copy(&it->old, &back->new);
    if (it->new.kind != NODE_NONE) { /* as it is now, times included: what redo brings back */
        back->old.mode = now.mode;
        back->old.mtime = now.mtime;
        back->seen = st;
    }
    back->exact = true;
    return 0;
}

/* --- directories that can't go, files that have nowhere to come to ------------------------------------ */

static void drop_item(struct op *o, size_t i)
{
    o->files -= o->v[i].step != STEP_MKDIR && o->v[i].step != STEP_RMDIR;
    item_free(&o->v[i]);
    memmove(&o->v[i], &o->v[i + 1], (o->n - i - 1) * sizeof *o->v);
    o->n--;
}

/* Everything in it goes as well. */
static bool empties(struct undo *u, const char *path)
{
    AUTOCLOSE int fd = -1;
    struct dirent *de;
    bool all = true;

    if (node_open_dir(u->root, path, &fd, NULL) < 0)
        return false;
    DIR *d = fdopendir(fd);
    if (!d)
        return false;
    fd = -EBADF;
    while (all && (de = fs_next(d))) {
        AUTOFREE char *child = path_join(path, de->d_name);
        all = apply_find(&u->o, child, true) != NULL;
    }
    closedir(d);
    return all;
}

static bool possible(struct undo *u, const struct item *it)
{
    AUTOFREE char *parent = str_dup(it->path);
    AUTOCLOSE int dir = -1;
    char *slash = strrchr(parent, '/');

    if (it->step == STEP_RMDIR) {
        if (empties(u, it->path))
            return true;
        strv_add(&u->kept_dirs, it->path);
        return false;
    }
    if (it->step != STEP_CREATE && it->step != STEP_MKDIR)
        return true;
    *(slash ? slash : parent) = '\0';
    if (!*parent || apply_find(&u->o, parent, false) ||
        node_open_dir(u->root, parent, &dir, NULL) == 0)
        return true;
    strv_add(&u->refused, it->path);
    return false;
}

static int drop_impossible(struct undo *u, struct err **e)
{
    size_t before;
    int rc;
    do {
        before = u->o.n;
        if ((rc = apply_order(&u->o, e)) < 0)
            return rc;
        for (size_t i = 0; i < u->o.n; i++)
            if (!possible(u, &u->o.v[i]))
                drop_item(&u->o, i--);
    } while (u->o.n < before);
    return 0;
}

static int from_journal(void *arg, const struct item *it, struct new_content *ret, struct err **e)
{
    struct undo *u = arg;
    ret->fd = fcntl(u->blob, F_DUPFD_CLOEXEC, 3);
    ret->from = it->new.at;
    return ret->fd < 0 ? err_sys(e, "open the journal") : 0;
}

/* What the operation left behind is what it was. */
static bool same_dir(void *arg, const char *path)
{
    struct undo *u = arg;
    AUTOCLOSE int fd = -1;
    struct stat st;
    return node_open_dir(u->root, path, &fd, NULL) == 0 && fstat(fd, &st) == 0 &&
           known_dir_of(u->entry, path, &st);
}

static int reverse(struct undo *u, struct err **e)
{
    struct apply a = {
        .journal = &u->j, .root = u->root, .content = from_journal, .same_dir = same_dir, .arg = u
    };
    AUTOCLOSE int dir = -1;
    int rc;

    rc = journal_dir(&u->j, &u->was, &dir, e);
    u->entry = dir;
    if (rc < 0 || (rc = journal_items(dir, &u->was, e)) < 0)
        return rc;
    u->blob = openat(dir, "old", O_RDONLY | O_CLOEXEC);
    if (u->blob < 0)
        return err_sys(e, "open what operation %u replaced", u->was.number);
    for (size_t i = 0; i < u->was.n; i++)
        if (!u->was.v[i].left && (rc = judge(u, &u->was.v[i], e)) < 0)
            return rc;
    if ((rc = drop_impossible(u, e)) < 0)
        return rc;
    a.alone = u->o.n < CREW_FROM;
    /* one that somebody has undone by hand is undone, too; one of which nothing could be is not */
    return u->o.n == 0 && u->refused.n ? 0 : apply_run(&a, &u->o, e);
}

static int prepare(struct undo *u, const struct words *w, bool redo, struct err **e)
{
    const char *word = w->operands.n ? w->operands.v[0] : NULL;
    CLEANUP(op_free_p) struct op last = { 0 };
    unsigned promotion;
    int rc = undo_choose(&u->j, word, redo, &last, &promotion, &u->root, e);

    if (rc < 0)
        return rc;
    u->o = (struct op){ .kind = str_dup(redo ? "redo" : "undo"),
                        .of = promotion,
                        .sandbox = str_dup(last.sandbox),
                        .name = str_dup(last.name),
                        .project = str_dup(last.project),
                        .dev = last.dev,
                        .ino = last.ino,
                        .change = str_dup(last.change) };
    u->was = last;
    last = (struct op){ 0 };
    return 0;
}

static void answer(const struct undo *u, bool redo, bool json)
{
    const char *back = redo ? "petri undo" : "petri redo";

    if (json) {
        AUTOJSONW struct jsonw w = { .pretty = true };
        jw_obj(&w, NULL);
        jw_u64(&w, redo ? "redone" : "undone", u->o.of);
        if (u->o.n)
            jw_u64(&w, "journal", u->o.number);
        jw_str(&w, "project", u->o.project);
        jw_arr(&w, "files");
        for (size_t i = 0; i < u->o.n; i++) {
            jw_obj(&w, NULL);
            node_write_path(&w, "path", u->o.v[i].path);
            jw_str(&w, "step", step_name(u->o.v[i].step));
            jw_end_obj(&w);
        }
        jw_end_arr(&w);
        jw_strv(&w, "refused", &u->refused);
        jw_strv(&w, "directories_kept", &u->kept_dirs);
        jw_end_obj(&w);
        talk_json(&w);
    } else if (u->o.n || !u->refused.n) {
        talk_line("%s: %zu file%s as %s journal %u.   again: %s", redo ? "redone" : "undone",
                  u->o.files, u->o.files == 1 ? "" : "s", redo ? "after" : "before", u->o.of, back);
    }
    for (size_t i = 0; i < u->refused.n; i++)
        talk_notef("'%s' was changed since and stays as it is", u->refused.v[i]);
    for (size_t i = 0; i < u->kept_dirs.n; i++)
        talk_notef("directory '%s' stays: it is not empty", u->kept_dirs.v[i]);
}

static void add_event(const struct undo *u, const char *data)
{
    AUTOJSONW struct jsonw more = { 0 };

    jw_members(&more);
    jw_u64(&more, "of", u->o.of);
    jw_u64(&more, "journal", u->o.number);
    jw_u64(&more, "files", u->o.files);
    events_write(data, u->o.kind, &(struct event_of){ u->o.sandbox, u->o.name, u->o.project },
                 &more);
}

static int run(const char *data, int argc, char **argv, bool redo)
{
    CLEANUP(undo_free_p) struct undo u = { .j = { .fd = -1 }, .root = -1, .blob = -1 };
    CLEANUP(words_free_p) struct words w = { 0 };
    AUTOCLOSE int lock = -1;
    struct err *e = NULL;

    words_split(argc, argv, &w);
    if (journal_open(data, &u.j, &e) < 0 || recover_all(&u.j, talk_note, &e) < 0 ||
        prepare(&u, &w, redo, &e) < 0)
        return talk_fail(e, w.json);
    dev_t dev = u.o.dev;
    ino_t ino = u.o.ino;
    if (journal_lock(&u.j, dev, ino, &lock, &e) < 0 ||
        recover_project(&u.j, dev, ino, talk_note, &e) < 0)
        return talk_fail(e, w.json);
    /* somebody may have been at it while we waited for the lock */
    op_free_p(&u.o);
    op_free_p(&u.was);
    close_p(&u.root);
    if (prepare(&u, &w, redo, &e) < 0 || reverse(&u, &e) < 0)
        return talk_fail(e, w.json);
    if (u.o.n)
        add_event(&u, data);
    answer(&u, redo, w.json);
    return u.refused.n ? 1 : 0;
}

int undo_main(const char *data, int argc, char **argv)
{
    return run(data, argc, argv, false);
}

int redo_main(const char *data, int argc, char **argv)
{
    return run(data, argc, argv, true);
}
