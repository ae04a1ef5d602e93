/* runtime/sandbox/plan_paths.c - which paths of the project are hidden or can't be written, and where it is seen. */
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/sandbox/plan_parts.h"
#include "runtime/sandbox/project.h"

/* "./a//b/" as "a/b"; NULL where nothing is left or a ".." leads elsewhere. */
static char *tidy_relative(const char *h)
{
    AUTOSTR struct str s = STR_INIT;
    AUTOFREE char *copy = str_dup(h);
    char *save = NULL;
    for (char *w = strtok_r(copy, "/", &save); w; w = strtok_r(NULL, "/", &save)) {
        if (strcmp(w, "..") == 0)
            return NULL;
        if (strcmp(w, ".") != 0)
            str_addf(&s, "%s%s", s.len ? "/" : "", w);
    }
    return s.len ? str_take(&s) : NULL;
}

/* What a pattern matches in the project, whose own path may hold stars and brackets too. */
static void add_matches(const struct plan *p, const char *pattern, struct strv *ret)
{
    AUTOSTR struct str s = STR_INIT;
    glob_t g = { 0 };

    for (const char *c = p->project; *c; c++)
        str_addf(&s, strchr("*?[]\\", *c) ? "\\%c" : "%c", *c);
    str_addf(&s, "/%s", pattern);
    if (glob(s.p, GLOB_NOSORT | GLOB_PERIOD, NULL, &g) == 0)
        for (size_t k = 0; k < g.gl_pathc; k++) {
            const char *rel = g.gl_pathv[k] + strlen(p->project) + 1;
            if (!str_ends(g.gl_pathv[k], "/.") && !str_ends(g.gl_pathv[k], "/.."))
                strv_add(ret, rel);
        }
    globfree(&g);
}

/* A path or pattern of `flag` as the relative paths it names; names that do not exist yet count too. */
static int add_paths(const struct plan *p, const char *flag, const char *word, struct strv *ret,
                     struct err **e)
{
    bool outside = word[0] == '/' && !path_below(word, p->project);
    AUTOFREE char *rel =
        outside ? NULL : tidy_relative(word[0] == '/' ? word + strlen(p->project) : word);

    if (!rel)
        return err_new(e, ERR_INVALID,
                       "%s '%s': a path or pattern inside the project, like .env or '*.pem'", flag,
                       word);
    if (strpbrk(rel, "*?["))
        add_matches(p, rel, ret);
    else
        strv_add(ret, rel);
    return 0;
}

/* What lies at a path to be protected must be what stays there: a link can be turned elsewhere by whoever may
 * write its directory. */
static int judge_protected(const struct plan *p, int project, const char *rel, struct err **e)
{
    AUTOCLOSE int fd = fs_open_beneath(project, rel, O_PATH | O_NOFOLLOW, 0, 0);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return p->mode == WORKSPACE_BIND
                   ? err_new(e, ERR_NOT_FOUND,
                             "--protect '%s': it is not there, and in the live directory (mode "
                             "bind) nobody can be kept from making it; make it, or leave it out",
                             rel)
                   : 0;
    if (fd < 0 && errno == ENOTDIR)
        return err_new(e, ERR_INVALID, "--protect '%s': a part of it is no directory", rel);
    if ((fd < 0 && errno == ELOOP) || (fd >= 0 && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)))
        return err_new(e, ERR_INVALID,
                       "--protect '%s': a symbolic link can't be protected; name what it leads to",
                       rel);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "--protect '%s'", rel);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_new(e, ERR_INVALID, "--protect '%s': no file and no directory", rel);
    return 0;
}

/* Where a name above it is hidden, nothing of it can be there: then the hidden name is what nobody may make. */
static const char *seen_part(const struct plan *p, const char *rel)
{
    for (size_t i = 0; i < p->hide.n; i++)
        if (path_below(rel, p->hide.v[i]))
            rel = p->hide.v[i];
    return rel;
}

/* In the live directory, what configures the sandbox is not its own to change. */
static void protect_configuration(struct plan *p)
{
    for (size_t i = 0; i < PROJECT_CONFIGS; i++) {
        const char *name = project_configs[i];
        AUTOFREE char *path = path_join(p->project, name);
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && strcmp(seen_part(p, name), name) == 0 &&
            !strv_has(&p->readonly, name))
            strv_add(&p->readonly, name);
    }
}

static int take_protect(const struct options *o, struct plan *p, struct err **e)
{
    AUTOSTRV struct strv found = { 0 };
    AUTOCLOSE int project = -1;
    int rc;

    if (p->mode == WORKSPACE_BIND)
        protect_configuration(p);
    if (!o->protect.n)
        return 0;
    project = open(p->project, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (project < 0)
        return err_sys(e, "open '%s'", p->project);
    for (size_t i = 0; i < o->protect.n; i++)
        if ((rc = add_paths(p, "--protect", o->protect.v[i], &found, e)) < 0)
            return rc;
    for (size_t i = 0; i < found.n; i++) {
        const char *rel = seen_part(p, found.v[i]);
        bool hidden = strv_has(&p->hide, rel) && p->mode != WORKSPACE_BIND;
        if (!hidden && (rc = judge_protected(p, project, rel, e)) < 0)
            return rc;
        if (!strv_has(&p->readonly, rel))
            strv_add(&p->readonly, rel);
    }
    return 0;
}

/* Either would hide the other, or a part of it. */
static bool meet(const char *a, const char *b)
{
    return path_below(a, b) || path_below(b, a);
}

int options_check_workspace_path(const char *w, char **ret, struct err **e)
{
    static const char *const taken[] = {
        "/proc", "/sys",   "/dev",   "/usr",    "/etc",  "/run",      "/bin",        "/sbin",
        "/lib",  "/lib32", "/lib64", "/libx32", "/boot", PLAN_CACHES, "/.petri-init"
    };
    AUTOFREE char *rel = tidy_relative(w), *path = NULL;

    if (w[0] != '/' || (!rel && strstr(w, "..")))
        return err_new(e, ERR_INVALID, "--workspace-path '%s': an absolute path without '..'", w);
    if (!rel)
        return err_new(e, ERR_DENIED, "--workspace-path '%s': that is the whole sandbox", w);
    path = str_printf("/%s", rel);
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (meet(path, taken[i]))
            return err_new(e, ERR_DENIED,
                           "--workspace-path '%s': %s is the system's; take another place, like "
                           "/workspace or /srv/project",
                           w, taken[i]);
    *ret = TAKE_PTR(path);
    return 0;
}

static int take_workspace(const struct options *o, struct plan *p, struct err **e)
{
    const char *w = o->workspace_path ? o->workspace_path : "/workspace";
    int rc = options_check_workspace_path(w, &p->workspace, e);

    if (rc < 0)
        return rc;
    if (strcmp(p->workspace, p->project) != 0 && meet(p->workspace, p->project))
        return err_new(e, ERR_DENIED,
                       "--workspace-path '%s': it would hide the project's own path, or a part of "
                       "it, '%s'",
                       w, p->project);
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        if (meet(p->workspace, p->extra_lowers.v[i]) &&
            !path_below(p->extra_lowers.v[i], p->project))
            return err_new(e, ERR_DENIED, "--workspace-path '%s': '%s' belongs to the project", w,
                           p->extra_lowers.v[i]);
    return 0;
}

int plan_judge_workspace(const struct plan *p, struct err **e)
{
    for (size_t i = 0; i < p->mounts.n; i++) {
        const struct plan_mount *m = &p->mounts.v[i];
        /* a directory in /tmp or in the home is as good a place as any, and so is one that is empty */
        bool roomy = m->kind == MOUNT_TMPFS && strcmp(m->dst, p->workspace) != 0;
        if (m->kind == MOUNT_DIR)
            continue;
        if (path_below(m->dst, p->workspace) || (!roomy && path_below(p->workspace, m->dst)))
            return err_new(e, ERR_DENIED,
                           "--workspace-path '%s': %s is the system's; take another place, like "
                           "/workspace or /srv/project",
                           p->workspace, m->dst);
    }
    return 0;
}

int plan_project_paths(const struct options *o, struct plan *p, struct err **e)
{
    int rc;

    for (size_t i = 0; i < o->hide.n; i++)
        if ((rc = add_paths(p, "--hide", o->hide.v[i], &p->hide, e)) < 0)
            return rc;
    if ((rc = take_protect(o, p, e)) < 0)
        return rc;
    return take_workspace(o, p, e);
}
