#include "runtime/change/repo_refs.h"

#include <string.h>

#include "runtime/change/library.h"

/* What a sandbox writes there is anything: only so much of it is read. */
enum { MAX_REFS = 5000, MAX_DEPTH = 12, MAX_PACKED = 4 << 20, OID_HEX = 40 };

struct look {
    const struct view *view;
    struct repo *host;
    struct strv *ret;
    size_t seen;
};

static bool is_oid(const char *p)
{
    return strspn(p, "0123456789abcdef") == OID_HEX;
}

static void consider(struct look *l, const char *name, const char *text)
{
    char hex[OID_HEX + 1] = "";

    if (!is_oid(text))
        return;
    memcpy(hex, text, OID_HEX);
    if (!repo_has(l->host, hex) && !strv_has(l->ret, name))
        strv_add(l->ret, name);
}

/* "refs/heads/main" -> "main", "refs/tags/v1" -> "tags/v1" */
static const char *short_name(const char *ref)
{
    const char *heads = "refs/heads/", *refs = "refs/";
    return str_starts(ref, heads)  ? ref + strlen(heads)
           : str_starts(ref, refs) ? ref + strlen(refs)
                                   : ref;
}

static void look_at(struct look *l, const char *git, const char *ref)
{
    AUTOFREE char *path = str_printf("%s%s", git, ref);
    AUTOCLOSE int fd = -1;
    char text[OID_HEX + 8] = "";

    if (view_open(l->view, path, &fd, NULL, NULL) == 0 &&
        RETRY(read(fd, text, sizeof text - 1)) >= OID_HEX)
        consider(l, short_name(ref), text);
}

static int look_below(struct look *l, const char *git, const char *dir, unsigned depth,
                      struct err **e)
{
    AUTOFREE char *path = str_printf("%s%s", git, dir);
    AUTOSTRV struct strv names = { 0 };
    int rc = view_list(l->view, path, &names, e);

    for (size_t i = 0; i < names.n && rc == 0 && l->seen < MAX_REFS; i++) {
        AUTOFREE char *ref = str_printf("%s/%s", dir, names.v[i]);
        AUTOFREE char *full = str_printf("%s%s", git, ref);
        struct entry en;
        l->seen++;
        if ((rc = view_lookup(l->view, full, &en, e)) < 0)
            return rc;
        if (en.kind == VIEW_FILE && en.layer >= 0 && !l->view->layers[en.layer].project)
            look_at(l, git, ref);
        else if (en.kind == VIEW_DIR && depth < MAX_DEPTH)
            rc = look_below(l, git, ref, depth + 1, e);
    }
    return rc;
}

/* Lines "OID NAME". */
static void look_at_packed(struct look *l, const char *git)
{
    AUTOFREE char *path = str_printf("%spacked-refs", git), *text = NULL;
    AUTOCLOSE int fd = -1;
    struct entry en;
    ssize_t n;

    if (view_lookup(l->view, path, &en, NULL) < 0 || en.kind != VIEW_FILE ||
        l->view->layers[en.layer].project || view_open(l->view, path, &fd, NULL, NULL) < 0)
        return;
    text = mem_zalloc(MAX_PACKED + 1);
    n = RETRY(read(fd, text, MAX_PACKED));
    text[n > 0 ? n : 0] = '\0';
    for (char *p = text, *end; *p; p = end) {
        end = p + strcspn(p, "\n");
        end += *end ? (*end = '\0', 1) : 0;
        if (is_oid(p) && p[OID_HEX] == ' ' && l->seen++ < MAX_REFS)
            consider(l, short_name(p + OID_HEX + 1), p);
    }
}

/* The repository at `git` ("" or ".git/") of workspace `index`. */
static int look_in(const struct record *r, const char *snap, size_t index, const char *git,
                   struct repo *host, struct strv *ret, struct err **e)
{
    CLEANUP(view_free_p) struct view v = { 0 };
    struct look l = { .view = &v, .host = host, .ret = ret };
    struct entry en;
    int rc = view_sandbox(r, snap, index, &v, e);

    if (rc < 0)
        return rc;
    AUTOFREE char *objects = str_printf("%sobjects", git);
    if ((rc = view_lookup(&v, objects, &en, e)) < 0 || en.kind != VIEW_DIR)
        return rc;
    look_at(&l, git, "HEAD");
    look_at_packed(&l, git);
    return look_below(&l, git, "refs", 0, e);
}

int repo_new_refs(const struct record *r, const char *snap, struct strv *ret, struct err **e)
{
    CLEANUP(repo_free_p) struct repo *host = NULL;
    int rc = library_start(e);

    if (rc < 0 || (rc = repo_open(r->project, &host, e)) < 0 || !host)
        return rc;
    rc = look_in(r, snap, 0, ".git/", host, ret, e);
    /* the git directory of a worktree or submodule is a workspace of its own */
    for (size_t i = 1; i < r->workspaces.n && rc == 0; i++)
        if (!path_below(r->workspaces.v[i], r->project))
            rc = look_in(r, snap, i, "", host, ret, e);
    return rc;
}
