#include "runtime/change/rootfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/fs.h"
#include "oci/plan.h"

enum { MAX_DEPTH = 200 };

struct look {
    struct rootfs_changes *c;
    const struct record *r;
    const struct view *view;
    const char *at; /* where the sandbox sees it: "/" or "/usr/" */
    int own;        /* layers above this index are looked at */
};

void rootfs_free_p(struct rootfs_changes *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->v[i].path);
    free(c->v);
    *c = (struct rootfs_changes){ 0 };
}

static void add(struct rootfs_changes *c, struct rootfs_change ch)
{
    if ((c->n & (c->n - 1)) == 0 && !(c->v = realloc(c->v, (c->n ? c->n * 2 : 1) * sizeof *c->v)))
        abort();
    c->v[c->n++] = ch;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct rootfs_change *)a)->path, ((const struct rootfs_change *)b)->path);
}

/* Of an image's own files only the layers of the store know; of the machine's the machine does. */
static bool was_there(const struct look *l, const char *path)
{
    return str_eq(l->r->image, "host") && fs_exists(path);
}

/* petri's own links into caches, which an image's root has in the sandbox's layer. */
static bool to_caches(const struct look *l, const struct vdir *d, const char *name)
{
    AUTOFREE char *text = NULL;
    return vdir_readlink(l->view, d, name, &text, NULL) == 0 && str_starts(text, PLAN_CACHES "/");
}

static int look_in(const struct look *l, const struct vdir *d, unsigned depth, struct err **e);

static int look_at(const struct look *l, const struct vdir *d, const char *name, unsigned depth,
                   struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir sub = { .cut = -1 };
    AUTOFREE char *path = str_printf("%s%s%s%s", l->at, d->path, *d->path ? "/" : "", name);
    struct entry en;
    int rc = vdir_lookup(l->view, d, name, &en, e);

    if (rc < 0)
        return rc;
    if (en.kind == VIEW_ABSENT) {
        if (was_there(l, path) || !str_eq(l->r->image, "host"))
            add(l->c, (struct rootfs_change){ TAKE_PTR(path), CHANGE_DELETED, 0, 0 });
        return 0;
    }
    if (en.kind == VIEW_DIR) {
        if (depth >= MAX_DEPTH)
            return err_new(e, ERR_LIMIT, "directories are nested deeper than %d in the sandbox",
                           MAX_DEPTH);
        rc = vdir_open(l->view, d, name, &sub, e);
        return rc < 0 ? rc : look_in(l, &sub, depth + 1, e);
    }
    if (S_ISLNK(en.st.st_mode) && to_caches(l, d, name))
        return 0;
    enum change_kind kind = was_there(l, path) ? CHANGE_MODIFIED : CHANGE_ADDED;
    add(l->c,
        (struct rootfs_change){ TAKE_PTR(path), kind, en.st.st_mode, (uint64_t)en.st.st_size });
    return 0;
}

static int look_in(const struct look *l, const struct vdir *d, unsigned depth, struct err **e)
{
    AUTOSTRV struct strv names = { 0 };
    int rc = vdir_list(l->view, d, l->own, &names, e);

    for (size_t i = 0; i < names.n && rc == 0; i++)
        rc = look_at(l, d, names.v[i], depth, e);
    return rc;
}

/* --- which directories ---------------------------------------------------------------------------- */

/* Where the overlay with this tag is: among the machine's own directories. */
static char *place_of(const char *tag)
{
    static const char *const tops[] = { "/", "/var", "/var/lib", "/usr", "/usr/lib" };

    for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
        DIR *dir = opendir(tops[i]);
        struct dirent *de;
        char *found = NULL, own[16];
        while (dir && !found && (de = readdir(dir))) {
            AUTOFREE char *place = path_join(tops[i], de->d_name);
            plan_overlay_tag(place, own);
            if (de->d_name[0] != '.' && strcmp(own, tag) == 0)
                found = str_printf("%s/", place);
        }
        if (dir)
            closedir(dir);
        if (found)
            return found;
    }
    return str_printf("(%s)/", tag);
}

/* The x-TAG directories of all layers, but for caches: they are nothing that anybody reviews. */
static void find_tags(const struct record *r, const struct strv *layers, struct strv *ret)
{
    char caches[16];

    plan_overlay_tag(PLAN_CACHES, caches);
    for (size_t i = 0; i < layers->n; i++) {
        AUTOFREE char *path = str_printf("%s/changes/%s", r->data, layers->v[i]);
        DIR *dir = opendir(path);
        struct dirent *de;
        while (dir && (de = readdir(dir)))
            if (str_starts(de->d_name, "x-") && strcmp(de->d_name, caches) != 0 &&
                !strv_has(ret, de->d_name))
                strv_add(ret, de->d_name);
        if (dir)
            closedir(dir);
    }
}

static int look_below(const struct record *r, const char *snap, const char *sub, const char *at,
                      int own, struct rootfs_changes *c, struct err **e)
{
    CLEANUP(view_free_p) struct view v = { 0 };
    CLEANUP(vdir_free_p) struct vdir top = { .cut = -1 };
    struct look l = { c, r, &v, at, own };
    int rc;

    if ((rc = view_layers(r, snap, sub, &v, e)) < 0 || (rc = vdir_root(&v, &top, e)) < 0)
        return rc;
    return look_in(&l, &top, 0, e);
}

int rootfs_find(const struct record *r, const char *snap, const struct strv *from,
                struct rootfs_changes *ret, struct err **e)
{
    CLEANUP(rootfs_free_p) struct rootfs_changes c = { 0 };
    AUTOSTRV struct strv layers = { 0 }, tags = { 0 };
    size_t own, shared = 0;
    int rc = record_layers(r, snap, &layers, e);

    if (rc < 0)
        return rc;
    while (from && shared < from->n && shared < layers.n &&
           strcmp(from->v[from->n - 1 - shared], layers.v[layers.n - 1 - shared]) == 0)
        shared++;
    own = layers.n - shared;
    find_tags(r, &layers, &tags);
    if (own > 0)
        rc = look_below(r, snap, "r", "/", (int)own, &c, e);
    for (size_t i = 0; i < tags.n && rc == 0 && own > 0; i++) {
        AUTOFREE char *at = place_of(tags.v[i]);
        rc = look_below(r, snap, tags.v[i], at, (int)own, &c, e);
    }
    if (rc < 0)
        return rc;
    if (c.n)
        qsort(c.v, c.n, sizeof *c.v, by_path);
    *ret = c;
    c = (struct rootfs_changes){ 0 };
    return 0;
}

void rootfs_show(const struct render *r, const struct rootfs_changes *c, bool stat)
{
    for (size_t i = 0; i < c->n && !ferror(r->out); i++) {
        const struct rootfs_change *ch = &c->v[i];
        AUTOSTR struct str name = STR_INIT;
        char size[24] = "-";

        quote_name(&name, "", ch->path);
        if (S_ISREG(ch->mode))
            format_size(ch->size, size);
        if (stat)
            fprintf(r->out, "%c %8s  %s\n", change_letter(ch->kind), size, name.p);
        else
            fprintf(r->out, "%c\t%s\n", change_letter(ch->kind), name.p);
    }
    if (stat)
        fprintf(r->out, "%zu path%s outside of the workspace\n", c->n, c->n == 1 ? "" : "s");
}

void rootfs_json(struct jsonw *w, const struct rootfs_changes *c)
{
    jw_arr(w, "rootfs");
    for (size_t i = 0; i < c->n; i++) {
        jw_obj(w, NULL);
        render_json_path(w, "path", c->v[i].path);
        jw_str(w, "kind", change_kind_name(c->v[i].kind));
        if (c->v[i].mode) {
            jw_strf(w, "mode", "%06o", (unsigned)c->v[i].mode);
            jw_u64(w, "size", c->v[i].size);
        }
        jw_end_obj(w);
    }
    jw_end_arr(w);
}
