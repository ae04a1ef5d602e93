#include "runtime/change/bundle_refs.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"

/* What a sandbox writes there is anything: only so much of it is read. */
enum { MAX_REFS = 5000, MAX_DEPTH = 12, MAX_PACKED = 4 << 20, OID_HEX = 40 };

struct refs {
    const struct view *v;
    const char *git; /* ".git/" or "" */
    struct strv *ret;
    size_t seen;
};

static bool is_oid(const char *p)
{
    return strspn(p, "0123456789abcdef") >= OID_HEX;
}

static bool own(const char *name)
{
    return !str_starts(name, "remotes/") && !str_starts(name, "petri/");
}

static void add(struct refs *f, const char *name, const char *hex)
{
    if (!is_oid(hex) || !own(name))
        return;
    for (size_t i = 0; i < f->ret->n; i++)
        if (!strcmp(f->ret->v[i] + OID_HEX + 1, name))
            return;
    strv_addf(f->ret, "%.40s %s", hex, name);
}

static void loose(struct refs *f, const char *path, const char *name)
{
    AUTOFREE char *full = str_printf("%s%s", f->git, path);
    AUTOCLOSE int fd = -1;
    char text[OID_HEX + 8] = "";

    if (view_open(f->v, full, &fd, NULL, NULL) == 0 &&
        RETRY(read(fd, text, sizeof text - 1)) >= OID_HEX)
        add(f, name, text);
}

static int below(struct refs *f, const char *dir, unsigned depth, struct err **e)
{
    AUTOFREE char *full = str_printf("%s%s", f->git, dir);
    AUTOSTRV struct strv names = { 0 };
    int rc = view_list(f->v, full, &names, e);

    for (size_t i = 0; i < names.n && rc == 0 && f->seen++ < MAX_REFS; i++) {
        AUTOFREE char *path = str_printf("%s/%s", dir, names.v[i]);
        AUTOFREE char *at = str_printf("%s%s", f->git, path);
        struct entry en;
        if ((rc = view_lookup(f->v, at, &en, e)) < 0)
            return rc;
        /* what the project itself has needs no bringing home */
        if (en.kind == VIEW_FILE && !f->v->layers[en.layer].project)
            loose(f, path, path + strlen("refs/"));
        else if (en.kind == VIEW_DIR && depth < MAX_DEPTH)
            rc = below(f, path, depth + 1, e);
    }
    return rc;
}

static void packed(struct refs *f)
{
    AUTOFREE char *path = str_printf("%spacked-refs", f->git), *text = NULL;
    AUTOCLOSE int fd = -1;
    struct entry en;

    if (view_lookup(f->v, path, &en, NULL) < 0 || en.kind != VIEW_FILE ||
        f->v->layers[en.layer].project || view_open(f->v, path, &fd, NULL, NULL) < 0)
        return;
    text = mem_zalloc(MAX_PACKED + 1);
    ssize_t n = RETRY(read(fd, text, MAX_PACKED));
    text[n > 0 ? n : 0] = '\0';
    for (char *p = text, *end; *p; p = end) {
        end = p + strcspn(p, "\n");
        if (*end)
            *end++ = '\0';
        if (is_oid(p) && str_starts(p + OID_HEX, " refs/") && f->seen++ < MAX_REFS)
            add(f, p + OID_HEX + strlen(" refs/"), p);
    }
}

static int refs_of(const struct record *r, size_t index, const char *git, struct strv *ret,
                   struct err **e)
{
    CLEANUP(view_free_p) struct view v = { 0 };
    struct refs f = { .v = &v, .git = git, .ret = ret };
    int rc = view_sandbox(r, NULL, index, &v, e);

    if (rc < 0)
        return rc;
    loose(&f, "HEAD", "HEAD"); /* a detached one; else it is no id */
    if ((rc = below(&f, "refs", 0, e)) == 0)
        packed(&f);
    return rc;
}

/* The git directory of a worktree or submodule is a workspace of its own. */
static bool is_git_dir(const struct record *r, size_t i)
{
    return i > 0 && !path_below(r->workspaces.v[i], r->project);
}

int bundle_refs(const struct record *r, struct strv *ret, struct err **e)
{
    int rc = refs_of(r, 0, ".git/", ret, e);
    for (size_t i = 1; i < r->workspaces.n && rc == 0; i++)
        if (is_git_dir(r, i))
            rc = refs_of(r, i, "", ret, e);
    return rc;
}

/* --- objects -------------------------------------------------------------------------------------------- */

/* A pipe in place of a pack would keep libgit2 waiting for ever, a link lead it elsewhere. */
static bool plain_tree(int fd, unsigned depth)
{
    int dup = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup < 0 ? NULL : fdopendir(dup);
    struct dirent *de;
    bool ok = d != NULL;

    while (ok && (de = readdir(d))) {
        struct stat st;
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        ok = fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (ok && S_ISCHR(st.st_mode) && st.st_rdev == 0)
            continue; /* a whiteout */
        if (ok && S_ISDIR(st.st_mode) && depth < 3) {
            AUTOCLOSE int sub =
                openat(dirfd(d), de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            ok = sub >= 0 && plain_tree(sub, depth + 1);
        } else {
            ok = ok && S_ISREG(st.st_mode);
        }
    }
    if (d)
        closedir(d);
    return ok;
}

static int add_objects(const struct view_layer *l, const char *path, struct strv *ret,
                       struct bundle_fds *fds, struct err **e)
{
    if (l->project || l->fd < 0)
        return 0;
    int fd = fs_open_beneath(l->fd, path, O_RDONLY | O_DIRECTORY, 0, 0);
    if (fd < 0)
        return 0;
    fds->v = realloc(fds->v, (fds->n + 1) * sizeof *fds->v);
    if (!fds->v)
        abort();
    fds->v[fds->n++] = fd;
    if (!plain_tree(fd, 0))
        return err_new(e, ERR_DENIED, "the sandbox's repository holds objects that are no files");
    strv_addf(ret, "/proc/self/fd/%d", fd);
    return 0;
}

int bundle_objects(const struct record *r, struct strv *ret_dirs, struct bundle_fds *ret_fds,
                   struct err **e)
{
    int rc = 0;
    for (size_t i = 0; i < r->workspaces.n && rc == 0; i++) {
        CLEANUP(view_free_p) struct view v = { 0 };
        if (i && !is_git_dir(r, i))
            continue;
        if ((rc = view_sandbox(r, NULL, i, &v, e)) < 0)
            return rc;
        for (size_t k = 0; k < v.n && rc == 0; k++)
            rc = add_objects(&v.layers[k], i ? "objects" : ".git/objects", ret_dirs, ret_fds, e);
    }
    return rc;
}
