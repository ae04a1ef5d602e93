/* runtime/change/build.c - from changes that were picked to the steps of an operation. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/apply.h"
#include "runtime/change/pick.h"

/* Root's new files belong to the project's owner, others' to themselves. */
static void owner(const struct picks *p, struct node *n)
{
    n->uid = geteuid() == 0 ? p->r->owner_uid : NODE_ANY;
    n->gid = geteuid() == 0 ? p->r->owner_gid : (gid_t)NODE_ANY;
}

/* The host's mode, with or without x as the sandbox has it; never setuid and the like. */
static mode_t kept_mode(mode_t host, mode_t new)
{
    host &= 0777;
    return new &S_IXUSR ? host | (host & 0444) >> 2 : host & ~(mode_t)0111;
}

static void new_node(const struct picks *p, size_t i, struct node *n)
{
    const struct change *ch = &p->s->c.v[i];
    const struct pick *k = &p->v[i];

    n->kind = node_kind_of(ch->new_mode);
    owner(p, n);
    n->mode = ch->new_mode & 0777 & ~p->mask;
    n->size = k->content >= 0 ? k->size : ch->new_size;
    memcpy(n->digest, k->content >= 0 ? k->digest : ch->new_digest, sizeof n->digest);
    n->foreign = k->merged;
    if (k->host.kind == NODE_FILE && n->kind == NODE_FILE) {
        n->mode = kept_mode(k->host.mode, ch->new_mode);
        n->uid = k->host.uid;
        n->gid = k->host.gid;
    }
}

static int link_text(struct picks *p, size_t i, struct node *n, struct err **e)
{
    AUTOCLOSE int fd = -1;
    if (n->kind != NODE_LINK)
        return 0;
    int rc = source_content(p->s, i, &fd, &n->link, e);
    if (rc == 0 && !n->link)
        rc =
            err_new(e, ERR_BUSY, "the sandbox changed '%s' just now; try again", p->s->c.v[i].path);
    return rc;
}

static struct item *add(struct picks *p, struct op *o, size_t i, enum step step)
{
    struct item *it = op_add(o, p->s->c.v[i].path, step);
    it->tag = i;
    if (step != STEP_CREATE && step != STEP_MKDIR) {
        node_copy(&p->v[i].host, &it->old);
        it->seen = p->v[i].seen;
    } else {
        it->old.foreign = p->v[i].host.foreign; /* somebody removed what was there */
    }
    return it;
}

static int add_change(struct picks *p, struct op *o, size_t i, struct err **e)
{
    const struct change *ch = &p->s->c.v[i];
    const struct pick *k = &p->v[i];
    enum node_kind host = k->host.kind;
    struct item *it;

    if (!ch->new_mode || S_ISDIR(ch->new_mode)) {
        if (host == NODE_FILE || host == NODE_LINK)
            add(p, o, i, STEP_REMOVE);
        return 0; /* directories come and go by the lists of the source */
    }
    bool mode_only = ch->kind == CHANGE_MODE && host == NODE_FILE && k->seen.st_nlink == 1;
    it = add(p, o, i,
             mode_only                                ? STEP_CHMOD
             : host == NODE_FILE || host == NODE_LINK ? STEP_REPLACE
                                                      : STEP_CREATE);
    new_node(p, i, &it->new);
    if (host == NODE_FILE && k->seen.st_nlink > 1) {
        AUTOFREE char *note =
            str_printf("'%s' has %lu links: it is replaced, its other names keep what they have",
                       ch->path, (unsigned long)k->seen.st_nlink);
        strv_add(&p->notes, note);
    }
    return link_text(p, i, &it->new, e);
}

/* --- directories ------------------------------------------------------------------------------------------ */

static bool comes_below(const struct op *o, const char *dir)
{
    size_t n = strlen(dir);
    for (size_t i = 0; i < o->n; i++)
        if (o->v[i].new.kind != NODE_NONE && strncmp(o->v[i].path, dir, n) == 0 &&
            o->v[i].path[n] == '/')
            return true;
    return false;
}

static const struct change *picked(const struct picks *p, const char *path)
{
    const struct change *ch = changeset_find(&p->s->c, path);
    return ch && p->v[ch - p->s->c.v].what == PICK_TAKE ? ch : NULL;
}

static int make_dirs(struct picks *p, struct op *o, struct err **e)
{
    for (size_t i = p->s->n_made; i-- > 0;) { /* deepest first: each stands for those above it */
        const char *path = p->s->made[i].path;
        CLEANUP(node_free_p) struct node host = { 0 };
        const struct change *ch = picked(p, path);
        int rc;
        if (!comes_below(o, path) && !(ch && S_ISDIR(ch->new_mode)))
            continue;
        if ((rc = node_look_at(p->root, path, &host, NULL, e)) < 0)
            return rc;
        if (host.kind == NODE_DIR)
            continue;
        struct item *it = op_add(o, path, STEP_MKDIR);
        it->new.kind = NODE_DIR;
        it->new.mode = p->s->made[i].mode & 0777 & ~p->mask;
        owner(p, &it->new);
    }
    return 0;
}

/* Everything in it goes as well. */
static bool empties(const struct picks *p, const struct op *o, const struct strv *dirs,
                    const char *path)
{
    AUTOCLOSE int fd = -1;
    struct dirent *de;
    bool all = true;

    if (node_open_dir(p->root, path, &fd, NULL) < 0)
        return false;
    DIR *d = fdopendir(fd);
    if (!d)
        return false;
    fd = -EBADF;
    while (all && (de = fs_next(d))) {
        AUTOFREE char *child = path_join(path, de->d_name);
        all = apply_find(o, child, true) || strv_has(dirs, child);
    }
    closedir(d);
    return all;
}

static bool gone_taken(const struct picks *p, const char *dir)
{
    size_t n = strlen(dir);
    for (size_t i = 0; i < p->n; i++) {
        const char *path = p->s->c.v[i].path;
        if (p->v[i].what == PICK_TAKE && strncmp(path, dir, n) == 0 && (path[n] == '/' || !path[n]))
            return true;
    }
    return false;
}

static int remove_dirs(struct picks *p, struct op *o, struct err **e)
{
    AUTOSTRV struct strv dirs = { 0 };
    struct op found = { 0 };
    int rc = apply_order(o, e);

    for (size_t i = p->s->gone.n; i-- > 0 && rc == 0;) { /* parents come first in it */
        const char *path = p->s->gone.v[i];
        CLEANUP(node_free_p) struct node host = { 0 };
        struct stat st;
        if ((rc = node_look_at(p->root, path, &host, &st, e)) < 0)
            break;
        if (host.kind != NODE_DIR || !gone_taken(p, path))
            continue;
        if (empties(p, o, &dirs, path)) {
            struct item *it = op_add(&found, path, STEP_RMDIR);
            node_copy(&host, &it->old);
            it->seen = st;
            strv_add(&dirs, path);
        } else if (apply_find(o, path, false)) {
            rc = err_new(e, ERR_BUSY,
                         "'%s' can't take the place of the directory: files in it are no part of "
                         "the change; move them away first",
                         path);
        } else {
            AUTOFREE char *note = str_printf("directory '%s' stays: it is not empty", path);
            strv_add(&p->notes, note);
        }
    }
    for (size_t i = 0; i < found.n && rc == 0; i++) {
        struct item *it = op_add(o, found.v[i].path, STEP_RMDIR);
        node_copy(&found.v[i].old, &it->old);
        it->seen = found.v[i].seen;
    }
    op_free_p(&found);
    return rc;
}

int picks_build(struct picks *p, struct op *o, mode_t mask, struct err **e)
{
    int rc;

    p->mask = mask;
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].what == PICK_TAKE && (rc = add_change(p, o, i, e)) < 0)
            return rc;
    if ((rc = make_dirs(p, o, e)) < 0 || (rc = remove_dirs(p, o, e)) < 0)
        return rc;
    return apply_order(o, e);
}
