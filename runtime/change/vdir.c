/* runtime/change/vdir.c - one directory of a view: which layers add to it, and what is in it. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/change/view.h"

void vdir_free_p(struct vdir *d)
{
    for (size_t i = 0; i < d->n; i++)
        close(d->parts[i].fd);
    free(d->parts);
    free(d->path);
    *d = (struct vdir){ .cut = -1 };
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static enum view_kind kind_of(const struct stat *st)
{
    return S_ISREG(st->st_mode)   ? VIEW_FILE
           : S_ISDIR(st->st_mode) ? VIEW_DIR
           : S_ISLNK(st->st_mode) ? VIEW_LINK
                                  : VIEW_OTHER;
}

static bool name_valid(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static char *child_path(const struct vdir *d, const char *name)
{
    return *d->path ? str_printf("%s/%s", d->path, name) : str_dup(name);
}

/* A sandbox can set the other name space's attribute itself; only the one its overlay obeys counts. */
static bool is_opaque(const struct view *v, int fd)
{
    char c = 0;
    return fgetxattr(fd, v->trusted ? "trusted.overlay.opaque" : "user.overlay.opaque", &c, 1) ==
               1 &&
           c == 'y';
}

/* Layers that may be listed and asked for attributes are opened for reading; of the project search
 * permission is enough. */
static int open_dir(const struct view_layer *l, int dirfd, const char *name)
{
    int flags = (l->project ? O_PATH : O_RDONLY) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    return fs_open_beneath(dirfd, name, flags, 0, RESOLVE_NO_XDEV);
}

static void add_part(struct vdir *d, int fd, int layer)
{
    d->parts = realloc(d->parts, (d->n + 1) * sizeof *d->parts);
    if (!d->parts)
        abort();
    d->parts[d->n++] = (struct vpart){ .fd = fd, .layer = layer };
}

int vdir_root(const struct view *v, struct vdir *ret, struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir d = { .cut = -1, .path = str_dup("") };

    for (size_t i = 0; i < v->n && d.cut < 0; i++) {
        const struct view_layer *l = &v->layers[i];
        if (l->fd < 0)
            continue;
        int fd = open_dir(l, l->fd, ".");
        if (fd < 0)
            return err_sys(e, "open layer '%s'", *l->id ? l->id : "of the project");
        add_part(&d, fd, (int)i);
        if (!l->project && is_opaque(v, fd))
            d.cut = (int)i;
    }
    *ret = d;
    d = (struct vdir){ 0 };
    return 0;
}

static bool in_layer(const struct view *v, const struct vdir *d, size_t part, const char *name,
                     struct stat *ret)
{
    const struct vpart *p = &d->parts[part];

    if (v->layers[p->layer].project && v->hide.n) {
        AUTOFREE char *path = child_path(d, name);
        if (view_hidden(v, path))
            return false;
    }
    return fstatat(p->fd, name, ret, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0;
}

int vdir_lookup(const struct view *v, const struct vdir *d, const char *name, struct entry *ret,
                struct err **e)
{
    struct stat st;

    if (!name_valid(name))
        return err_new(e, ERR_INVALID, "'%s' is no name of a file", name);
    *ret = (struct entry){ .kind = VIEW_ABSENT, .layer = -1 };
    for (size_t i = 0; i < d->n; i++) {
        errno = 0;
        if (in_layer(v, d, i, name, &st)) {
            if (!is_whiteout(&st))
                *ret = (struct entry){ kind_of(&st), st, d->parts[i].layer };
            return 0;
        }
        /* a directory of the host that the user may not enter, or a name that is too long for it, is
         * one the sandbox saw nothing of either */
        if (errno && errno != ENOENT && !v->layers[d->parts[i].layer].project)
            return err_sys(e, "look at '%s/%s' in layer %s", d->path, name,
                           v->layers[d->parts[i].layer].id);
    }
    return 0;
}

int vdir_open(const struct view *v, const struct vdir *d, const char *name, struct vdir *ret,
              struct err **e)
{
    CLEANUP(vdir_free_p) struct vdir sub = { .cut = -1 };
    bool found = false;
    struct stat st;

    if (!name_valid(name))
        return err_new(e, ERR_INVALID, "'%s' is no name of a file", name);
    sub.path = child_path(d, name);
    for (size_t i = 0; i < d->n && sub.cut < 0; i++) {
        int layer = d->parts[i].layer;
        const struct view_layer *l = &v->layers[layer];
        if (!in_layer(v, d, i, name, &st))
            continue;
        if (!S_ISDIR(st.st_mode)) {
            sub.cut = layer;
            break;
        }
        found = true;
        int fd = open_dir(l, d->parts[i].fd, name);
        if (fd < 0 && l->project && (errno == EXDEV || errno == EACCES || errno == EPERM))
            continue;
        /* a sandbox at work: it was there a moment ago */
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
            continue;
        if (fd < 0)
            return err_sys(e, "open the directory '%s' in layer %s", sub.path, l->id);
        add_part(&sub, fd, layer);
        if (!l->project && is_opaque(v, fd))
            sub.cut = layer;
    }
    if (!found)
        return err_new(e, ERR_NOT_FOUND, "'%s' is no directory", sub.path);
    *ret = sub;
    sub = (struct vdir){ 0 };
    return 0;
}

/* The part that holds what is seen under `name`. */
static int holder(const struct view *v, const struct vdir *d, const char *name, enum view_kind kind,
                  const struct entry *known, struct err **e)
{
    struct entry en;
    int rc = known ? 0 : vdir_lookup(v, d, name, &en, e);

    if (rc < 0)
        return rc;
    if (known)
        en = *known;
    for (size_t i = 0; en.kind == kind && i < d->n; i++)
        if (d->parts[i].layer == en.layer)
            return d->parts[i].fd;
    return err_new(e, ERR_NOT_FOUND, "'%s%s%s' is no %s", d->path, *d->path ? "/" : "", name,
                   kind == VIEW_LINK ? "link" : "regular file");
}

int vdir_open_file(const struct view *v, const struct vdir *d, const char *name,
                   const struct entry *en, int *ret_fd, struct stat *ret_st, struct err **e)
{
    int at = holder(v, d, name, VIEW_FILE, en, e);
    if (at < 0)
        return at;
    AUTOCLOSE int fd = fs_open_beneath(
        at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0, RESOLVE_NO_XDEV);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s%s%s'", d->path, *d->path ? "/" : "", name);
    if (!S_ISREG(st.st_mode))
        return err_new(e, ERR_NOT_FOUND, "'%s%s%s' is no regular file", d->path,
                       *d->path ? "/" : "", name);
    if (ret_st)
        *ret_st = st;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int vdir_readlink(const struct view *v, const struct vdir *d, const char *name, char **ret,
                  struct err **e)
{
    int at = holder(v, d, name, VIEW_LINK, NULL, e);
    if (at < 0)
        return at;
    char *text = fs_readlink(at, name);
    if (!text)
        return err_sys(e, "read the link '%s%s%s'", d->path, *d->path ? "/" : "", name);
    *ret = text;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_part(const struct view *v, const struct vdir *d, size_t part, bool mentioned,
                     struct strv *ret, struct err **e)
{
    const struct view_layer *l = &v->layers[d->parts[part].layer];
    DIR *dir = fs_list(d->parts[part].fd);
    struct dirent *de;
    struct entry en;
    int rc = 0;

    if (!dir && l->project && errno == EACCES)
        return 0;
    if (!dir)
        return err_sys(e, "read the directory '%s' in layer %s", d->path, l->id);
    while (rc == 0 && (errno = 0, de = readdir(dir))) {
        if (!name_valid(de->d_name))
            continue;
        /* whoever asks for all names wants those that are there */
        if (!mentioned &&
            ((rc = vdir_lookup(v, d, de->d_name, &en, e)) < 0 || en.kind == VIEW_ABSENT))
            continue;
        strv_add(ret, de->d_name);
    }
    closedir(dir);
    return rc;
}

int vdir_list(const struct view *v, const struct vdir *d, int below, struct strv *ret,
              struct err **e)
{
    AUTOSTRV struct strv all = { 0 };
    int rc = 0;

    for (size_t i = 0; i < d->n && rc == 0; i++)
        if (below <= 0 || d->parts[i].layer < below)
            rc = list_part(v, d, i, below > 0, &all, e);
    if (rc < 0)
        return rc;
    if (all.n)
        qsort(all.v, all.n, sizeof *all.v, by_name);
    for (size_t i = 0; i < all.n; i++)
        if (i == 0 || strcmp(all.v[i], all.v[i - 1]) != 0)
            strv_add(ret, all.v[i]);
    return 0;
}
