#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/system.h"
#include "image/host/tools_priv.h"

#define MAX_LINKS 200
#define LOCAL_BIN ".local/bin"
#define SIDE_OF_LOCAL "/run/host/local-bin" /* where ~/.local/bin itself is, read-only */

/* Places in a home that hold tool chains, and what of them comes in. Longer ones first where one
 * lies below another. */
static const struct {
    const char *rel;
    const char *binds[6]; /* none: the place itself */
} roots[] = {
    { ".pyenv", { 0 } },
    { ".cargo/bin", { ".cargo/bin", ".rustup" } }, /* never .cargo: tokens, registry */
    { ".rustup", { 0 } },
    { ".nvm", { 0 } },
    { ".fnm", { 0 } },
    { ".local/share/fnm", { 0 } },
    { ".volta", { 0 } },
    { ".sdkman", { 0 } },
    { ".rbenv", { 0 } },
    { ".goenv", { 0 } },
    { ".nodenv", { 0 } },
    { ".juliaup", { 0 } },
    { ".julia/juliaup", { 0 } },
    { ".ghcup", { 0 } },
    { ".dotnet", { 0 } },
    { ".local/share/uv", { ".local/share/uv/python", ".local/share/uv/tools" } },
    { ".local/share/pipx", { 0 } },
    { ".local/pipx", { 0 } },
    { ".local/share/pypoetry", { 0 } },
    { ".local/share/pnpm", { 0 } },
    { ".local/share/mise",
      { ".local/share/mise/installs", ".local/share/mise/shims", ".local/share/mise/plugins" } },
    { ".asdf", { ".asdf", ".tool-versions" } },
    { ".deno/bin", { 0 } },
    { ".bun/bin", { ".bun/bin", ".bun/install/global" } },
    { "miniconda3", { 0 } },
    { "anaconda3", { 0 } },
    { "miniforge3", { 0 } },
    { "mambaforge", { 0 } },
};

bool tools_there(const struct tools *t, const char *path)
{
    if (host_system_path(path) || (t->project && path_below(path, t->project)))
        return true;
    for (size_t i = 0; i < t->trees.n; i++)
        if (path_below(path, t->trees.v[i]))
            return true;
    return false;
}

static const char *below(const char *path, const char *dir)
{
    size_t n = dir ? strlen(dir) : 0;
    return n && path_below(path, dir) && path[n] == '/' ? path + n + 1 : NULL;
}

/* `path` relative to the home, whichever way it is written; NULL: elsewhere or the home itself. */
static const char *in_home(const struct tools *t, const char *path)
{
    const char *rel = below(path, t->home);
    return rel ? rel : below(path, t->real_home);
}

char *tools_lexical(const struct tools *t, const char *path)
{
    const char *rel = in_home(t, path);
    return rel ? path_join(t->home, rel) : str_dup(path);
}

/* Binds home/rel at its own path. A link is followed inside the home only. */
static bool bind_rel(struct tools *t, const char *rel, bool known)
{
    AUTOFREE char *dst = path_join(t->home, rel);
    if (tools_there(t, dst))
        return true;
    AUTOFREE char *real = fs_realpath(dst);
    const char *real_rel = real ? below(real, t->real_home) : NULL;
    struct stat st;

    if (!real_rel || tools_private_name(real_rel) || tools_private_name(rel) ||
        stat(real, &st) < 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) ||
        (t->real_project && path_below(t->real_project, real)))
        return false;
    plan_mounts_add(t->mounts, MOUNT_BIND, real, dst, true);
    strv_add(&t->trees, dst);
    if (strcmp(real, dst) != 0 && !tools_there(t, real)) {
        plan_mounts_add(t->mounts, MOUNT_BIND, real, real, true);
        strv_add(&t->trees, real);
    }
    tools_hide(t, rel, known);
    return true;
}

/* ~/go is GOPATH, of which programs and the module cache come in but no sources; or it is where
 * someone unpacked the tool chain itself. */
static bool bring_go(struct tools *t)
{
    AUTOFREE char *version = path_join(t->home, "go/VERSION");
    if (fs_exists(version))
        return bind_rel(t, "go", true);
    bool bin = bind_rel(t, "go/bin", true);
    return bind_rel(t, "go/pkg/mod", true) || bin;
}

bool tools_bring_known(struct tools *t, const char *path)
{
    const char *rel = in_home(t, path);

    if (!rel)
        return false;
    if (path_below(rel, "go"))
        return bring_go(t);
    if (path_below(rel, LOCAL_BIN))
        return tools_bring_local_bin(t);
    for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
        bool any = false;
        if (!path_below(rel, roots[i].rel))
            continue;
        if (!roots[i].binds[0])
            return bind_rel(t, roots[i].rel, true);
        for (size_t k = 0; k < ARRAY_LEN(roots[i].binds) && roots[i].binds[k]; k++)
            any |= bind_rel(t, roots[i].binds[k], true);
        return any;
    }
    return false;
}

bool tools_bring_dir(struct tools *t, const char *path)
{
    static const char *const never[] = { ".local",    ".local/share", ".local/lib", ".config",
                                         ".cache",    ".cargo",       "Desktop",    "Documents",
                                         "Downloads", "snap",         "go",         ".bun" };
    static const char *const inside[] = {
        ".ssh",   ".aws",   ".gnupg", ".kube",   ".docker",
        ".netrc", ".npmrc", ".env",   ".config", ".git-credentials"
    };
    const char *rel = in_home(t, path);
    struct stat st;

    if (!rel || tools_private_name(rel) || stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if (strcmp(rel, never[i]) == 0)
            return false;
    for (size_t i = 0; i < ARRAY_LEN(inside); i++) {
        AUTOFREE char *p = path_join(path, inside[i]);
        if (fs_exists(p))
            return false;
    }
    return bind_rel(t, rel, false);
}

/* Where a link leads, one step, as an absolute path without following further; NULL: not usable. */
static char *link_step(int dirfd, const char *dir, const char *name)
{
    char text[PATH_MAX];
    ssize_t n = readlinkat(dirfd, name, text, sizeof text - 1);

    if (n <= 0)
        return NULL;
    text[n] = '\0';
    if (!strchr(text, '/'))
        return NULL; /* stays in the directory */
    if (text[0] == '/' && !strstr(text, "/../") && !strstr(text, "//"))
        return str_dup(text);
    /* the parent is resolved, the last component is kept: it may be a venv's own link */
    char *slash = strrchr(text, '/');
    AUTOFREE char *parent = slash == text ? str_dup("/")
                            : text[0] == '/'
                                ? str_printf("%.*s", (int)(slash - text), text)
                                : str_printf("%s/%.*s", dir, (int)(slash - text), text);
    AUTOFREE char *real = fs_realpath(parent);
    return real ? path_join(real, slash + 1) : NULL;
}

void tools_follow_links(struct tools *t, const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *de;

    for (int n = 0; d && n < MAX_LINKS && (de = readdir(d)); n++) {
        if (de->d_type != DT_LNK)
            continue;
        AUTOFREE char *to = link_step(dirfd(d), dir, de->d_name);
        if (to && !tools_there(t, to))
            (void)tools_bring_known(t, to);
    }
    if (d)
        closedir(d);
}

void tools_bring_venv_base(struct tools *t, const char *venv)
{
    AUTOFREE char *cfg = path_join(venv, "pyvenv.cfg"), *text = NULL;
    char *save = NULL;

    if (!fs_exists(cfg) || fs_read(AT_FDCWD, cfg, 16384, &text, NULL, NULL) < 0)
        return;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *eq = strchr(l, '=');
        if (!eq || strncmp(l, "home", 4) != 0 || (l[4] != ' ' && l[4] != '='))
            continue;
        eq++;
        eq += strspn(eq, " \t");
        eq[strcspn(eq, "\r")] = '\0';
        /* a project may say anything here: known tool chains only */
        if (!tools_there(t, eq))
            (void)tools_bring_known(t, eq);
        return;
    }
}

/* One entry of ~/.local/bin; true when it is a file that needs the directory itself. */
static bool local_entry(struct tools *t, DIR *d, const char *dir, const struct dirent *de)
{
    AUTOFREE char *dst = path_join(dir, de->d_name), *side = NULL;

    if (de->d_type == DT_REG) {
        side = path_join(SIDE_OF_LOCAL, de->d_name);
        plan_mounts_add(t->mounts, MOUNT_LINK, side, dst, true);
        return true;
    }
    if (de->d_type != DT_LNK)
        return false;
    AUTOFREE char *to = link_step(dirfd(d), dir, de->d_name);
    if (!to) {
        AUTOFREE char *text = fs_readlink(dirfd(d), de->d_name);
        if (text && !strchr(text, '/'))
            plan_mounts_add(t->mounts, MOUNT_LINK, text, dst, true);
        return false;
    }
    if (!tools_there(t, to) && (!tools_bring_known(t, to) || !tools_there(t, to)))
        return false;
    char *bin = strrchr(to, '/');
    *bin = '\0';
    char *venv = strrchr(to, '/');
    if (venv && venv > to && strcmp(venv, "/bin") == 0) {
        *venv = '\0';
        tools_bring_venv_base(t, to);
        *venv = '/';
    }
    *bin = '/';
    plan_mounts_add(t->mounts, MOUNT_LINK, to, dst, true);
    return false;
}

bool tools_bring_local_bin(struct tools *t)
{
    AUTOFREE char *dir = path_join(t->home, LOCAL_BIN), *real = NULL;
    bool files = false;
    int n = 0;

    if (tools_there(t, dir))
        return true;
    real = fs_realpath(dir);
    DIR *d = real && below(real, t->real_home) ? opendir(real) : NULL;
    struct dirent *de;
    if (!d)
        return false;
    while ((de = readdir(d)))
        n++;
    /* somebody else's home inside: nothing is written there, so the directory can come as it is */
    if (n > MAX_LINKS || !str_eq(t->home, t->in->inner_home) || strcmp(real, dir) != 0) {
        closedir(d);
        tools_follow_links(t, real);
        return bind_rel(t, LOCAL_BIN, true);
    }
    strv_add(&t->trees, dir);
    plan_mounts_add(t->mounts, MOUNT_TMPFS, NULL, dir, false);
    rewinddir(d);
    while ((de = readdir(d)))
        files |= de->d_name[0] != '.' && local_entry(t, d, dir, de);
    closedir(d);
    if (files)
        plan_mounts_add(t->mounts, MOUNT_BIND, real, SIDE_OF_LOCAL, true);
    return true;
}
