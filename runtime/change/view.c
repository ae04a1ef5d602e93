#include "runtime/change/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

void view_free_p(struct view *v)
{
    for (size_t i = 0; i < v->n; i++) {
        close_p(&v->layers[i].fd);
        free(v->layers[i].id);
    }
    free(v->layers);
    free(v->prefix);
    strv_free_p(&v->hide);
    *v = (struct view){ 0 };
}

bool view_hidden(const struct view *v, const char *path)
{
    for (size_t i = 0; i < v->hide.n; i++)
        if (path_below(path, v->hide.v[i]))
            return true;
    return false;
}

bool view_gone(const struct err *e)
{
    return e &&
           (e->code == ERR_NOT_FOUND || e->sys == ENOENT || e->sys == ENOTDIR || e->sys == ELOOP);
}

static void add_layer(struct view *v, struct view_layer l)
{
    v->layers = realloc(v->layers, (v->n + 1) * sizeof *v->layers);
    if (!v->layers)
        abort();
    v->layers[v->n++] = l;
}

/* What of the hide list concerns the workspace at `prefix`. */
static void take_hide(const struct record *r, struct view *v)
{
    size_t n = strlen(v->prefix);
    for (size_t i = 0; i < r->hide.n; i++)
        if (strncmp(r->hide.v[i], v->prefix, n) == 0 && r->hide.v[i][n])
            strv_add(&v->hide, r->hide.v[i] + n);
}

static void start(const struct record *r, size_t index, struct view *v)
{
    const char *dir = index < r->workspaces.n ? r->workspaces.v[index] : r->project;

    v->trusted = r->ids == RECORD_IDS_ROOT;
    if (index > 0 && path_below(dir, r->project) && strcmp(dir, r->project) != 0)
        v->prefix = str_printf("%s/", dir + strlen(r->project) + (r->project[1] ? 1 : 0));
    else
        v->prefix = str_dup("");
    if (index == 0 || *v->prefix)
        take_hide(r, v);
}

static int add_host(const struct record *r, size_t index, struct view *v, struct err **e)
{
    int fd, rc;

    if (index == 0) {
        if ((rc = record_open_project(r, &fd, e)) < 0)
            return rc;
    } else {
        fd = open(r->workspaces.v[index], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return err_sys(e, "open '%s'", r->workspaces.v[index]);
    }
    add_layer(v, (struct view_layer){ str_dup(""), fd, true, true });
    return 0;
}

static int layer_gone(const struct record *r, const char *id, struct err **e)
{
    return err_new(
        e, ERR_BUSY,
        "can't open the layer %s of sandbox '%s': it went just now; try again, and if it "
        "stays gone see petri fsck",
        id, record_label(r));
}

int view_check(const struct record *r, const struct view *v, struct err **e)
{
    for (size_t i = 0; i < v->n; i++) {
        AUTOFREE char *layer = str_printf("%s/changes/%s", r->data, v->layers[i].id);
        if (*v->layers[i].id && !fs_exists(layer))
            return layer_gone(r, v->layers[i].id, e);
    }
    return 0;
}

static int add_stored(const struct record *r, const char *snap, const char *sub, struct view *v,
                      struct err **e)
{
    AUTOSTRV struct strv ids = { 0 };
    int rc = record_layers(r, snap, &ids, e);

    for (size_t i = 0; rc == 0 && i < ids.n; i++) {
        AUTOFREE char *layer = str_printf("%s/changes/%s", r->data, ids.v[i]);
        AUTOCLOSE int fd = open(layer, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            return layer_gone(r, ids.v[i], e);
        if (fd < 0)
            return err_sys(e, "open the layer '%s' of sandbox '%s'", layer, record_label(r));
        int at = openat(fd, sub, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (at < 0 && errno != ENOENT)
            return err_sys(e, "open '%s/%s'", layer, sub);
        add_layer(v, (struct view_layer){ str_dup(ids.v[i]), at, false, false });
    }
    return rc;
}

int view_host(const struct record *r, size_t index, struct view *ret, struct err **e)
{
    CLEANUP(view_free_p) struct view v = { 0 };
    int rc;

    start(r, index, &v);
    if ((rc = add_host(r, index, &v, e)) < 0)
        return rc;
    *ret = v;
    v = (struct view){ 0 };
    return 0;
}

int view_sandbox(const struct record *r, const char *snap, size_t index, struct view *ret,
                 struct err **e)
{
    CLEANUP(view_free_p) struct view v = { 0 };
    char sub[32];
    int rc;

    start(r, index, &v);
    snprintf(sub, sizeof sub, "w%zu", index);
    if (r->mode != RECORD_BIND && (rc = add_stored(r, snap, sub, &v, e)) < 0)
        return rc;
    if (r->mode == RECORD_COPY && v.n)
        v.layers[v.n - 1].base = true;
    else if ((rc = add_host(r, index, &v, e)) < 0)
        return rc;
    *ret = v;
    v = (struct view){ 0 };
    return 0;
}

int view_layers(const struct record *r, const char *snap, const char *sub, struct view *ret,
                struct err **e)
{
    CLEANUP(view_free_p)
    struct view v = { .prefix = str_dup(""), .trusted = r->ids == RECORD_IDS_ROOT };
    int rc = add_stored(r, snap, sub, &v, e);

    if (rc < 0)
        return rc;
    *ret = v;
    v = (struct view){ 0 };
    return 0;
}

/* --- by path -------------------------------------------------------------------------------------- */

/* The directory that `path` is in and its last name; ret_name is NULL for the root. Returns 1 where a parent
 * is no directory. */
static int parent_of(const struct view *v, const char *path, struct vdir *ret,
                     const char **ret_name, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir at = { .cut = -1 };
    int rc = vdir_root(v, &at, e);

    *ret_name = *path ? path : NULL;
    for (const char *slash; rc == 0 && (slash = strchr(path, '/')); path = slash + 1) {
        AUTOFREE char *name = str_printf("%.*s", (int)(slash - path), path);
        CLEANUP(vdir_free_p) struct vdir sub = { .cut = -1 };
        struct entry en;
        if ((rc = vdir_lookup(v, &at, name, &en, e)) < 0)
            return rc;
        if (en.kind != VIEW_DIR)
            return 1;
        if ((rc = vdir_open(v, &at, name, &sub, e)) < 0)
            return rc;
        vdir_free_p(&at);
        at = sub;
        sub = (struct vdir){ .cut = -1 };
        *ret_name = slash + 1;
    }
    if (rc < 0)
        return rc;
    *ret = at;
    at = (struct vdir){ 0 };
    return 0;
}

int view_lookup(const struct view *v, const char *path, struct entry *ret, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir d = { .cut = -1 };
    const char *name;
    int rc = parent_of(v, path, &d, &name, e);

    if (rc < 0)
        return rc;
    *ret = (struct entry){ .kind = VIEW_ABSENT, .layer = -1 };
    if (rc > 0)
        return 0;
    if (name)
        return vdir_lookup(v, &d, name, ret, e);
    ret->kind = d.n ? VIEW_DIR : VIEW_ABSENT;
    if (d.n && fstat(d.parts[0].fd, &ret->st) < 0)
        return err_sys(e, "look at the top of a layer");
    if (d.n)
        ret->layer = d.parts[0].layer;
    return 0;
}

int view_open(const struct view *v, const char *path, int *ret_fd, struct stat *ret_st,
              struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir d = { .cut = -1 };
    const char *name;
    int rc = parent_of(v, path, &d, &name, e);

    if (rc < 0)
        return rc;
    if (rc > 0 || !name)
        return err_new(e, ERR_NOT_FOUND, "'%s' is no regular file", path);
    return vdir_open_file(v, &d, name, NULL, ret_fd, ret_st, e);
}

int view_readlink(const struct view *v, const char *path, char **ret, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir d = { .cut = -1 };
    const char *name;
    int rc = parent_of(v, path, &d, &name, e);

    if (rc < 0)
        return rc;
    if (rc > 0 || !name)
        return err_new(e, ERR_NOT_FOUND, "'%s' is no link", path);
    return vdir_readlink(v, &d, name, ret, e);
}

int view_list(const struct view *v, const char *path, struct strv *ret, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir d = { .cut = -1 }, sub = { .cut = -1 };
    struct entry en = { .kind = VIEW_ABSENT };
    const char *name;
    int rc = parent_of(v, path, &d, &name, e);

    if (rc < 0 || (name && rc == 0 && (rc = vdir_lookup(v, &d, name, &en, e)) < 0))
        return rc;
    if (rc == 0 && !name)
        return vdir_list(v, &d, 0, ret, e);
    if (rc > 0 || en.kind != VIEW_DIR)
        return 0;
    rc = vdir_open(v, &d, name, &sub, e);
    return rc < 0 ? rc : vdir_list(v, &sub, 0, ret, e);
}
