#include "runtime/sandbox/project.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/user.h"

/* Directories and files in a home that hold credentials. */
static const char *const credentials[] = {
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".azure",
    ".config/gh",
    ".config/gcloud",
    ".config/hub",
    ".config/git/credentials",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".password-store",
    ".local/share/keyrings",
    ".config/containers/auth.json",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".claude",
    ".codex",
    ".gemini",
    ".config/op",
    ".local/share/petri",
    ".config/petri",
    ".bash_history",
    ".zsh_history",
    ".pgpass",
    ".my.cnf",
    ".m2/settings.xml",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".terraformrc",
    ".pulumi/credentials.json",
    ".config/rclone",
    ".config/doctl",
    ".config/sops",
    ".config/github-copilot",
    ".config/pypoetry/auth.toml",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/wonopcode",
    ".local/share/opencode/auth.json",
    ".local/share/fish/fish_history",
    ".cache/huggingface/token",
    ".huggingface",
    ".copilot",
    ".kaggle",
    ".oci",
    ".fly",
    ".s3cfg",
    ".boto",
    ".subversion/auth",
    ".thunderbird",
    ".pki",
    ".Xauthority",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".rediscli_history",
    ".sqlite_history",
};

/* The machine's own. Only root's sandboxes could read them, and root may well be in /etc. */
static const char *const system_credentials[] = {
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/wireguard",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/NetworkManager/system-connections",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/kubelet",
};

static const char *const system_dirs[] = { "/proc", "/sys", "/dev", "/run", "/var/run", "/boot" };

/* Homes of people: the invoker's and every account from uid 1000 on, and root's. */
static void home_dirs(struct strv *ret)
{
    const char *h = getenv("HOME");
    AUTOFREE char *text = NULL;
    FILE *f = user_table("/etc/passwd", &text);
    struct passwd *pw;

    if (h && h[0] == '/' && h[1])
        strv_add(ret, h);
    while (f && (pw = fgetpwent(f)))
        if ((pw->pw_uid == 0 || (pw->pw_uid >= 1000 && pw->pw_uid != 65534)) &&
            pw->pw_dir[0] == '/' && pw->pw_dir[1] && !strv_has(ret, pw->pw_dir))
            strv_add(ret, pw->pw_dir);
    if (f)
        fclose(f);
}

static bool is_or_holds_home(const char *dir, const struct strv *homes)
{
    if (strcmp(dir, "/") == 0)
        return true;
    for (size_t i = 0; i < homes->n; i++)
        if (path_below(homes->v[i], dir))
            return true;
    return false;
}

static bool has_marker(const char *dir)
{
    static const char *const names[] = { ".git", "petri.json", "petri.jsonc", "wonopcode.json",
                                         "wonopcode.jsonc" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTOFREE char *p = path_join(dir, names[i]);
        if (fs_exists(p))
            return true;
    }
    return false;
}

static bool is_or_holds(const char *path, const char *secret)
{
    return path_below(path, secret) || (path_below(secret, path) && fs_exists(secret));
}

bool project_forbidden(const char *path, const char *store, const char **ret_why)
{
    CLEANUP(strv_free_p) struct strv homes = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(system_dirs); i++)
        if (path_below(path, system_dirs[i]) || path_below(system_dirs[i], path)) {
            *ret_why =
                "it is, or holds, a directory of the system's own (/proc, /sys, /dev, /run, /boot)";
            return true;
        }
    if (store && (path_below(path, store) || path_below(store, path))) {
        *ret_why = "it is, or holds, petri's own store";
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(system_credentials); i++)
        if (is_or_holds(path, system_credentials[i])) {
            *ret_why = "it is, or holds, a place for credentials (/etc/shadow, /etc/ssh, ...)";
            return true;
        }
    home_dirs(&homes);
    for (size_t h = 0; h < homes.n; h++)
        for (size_t i = 0; i < ARRAY_LEN(credentials); i++) {
            AUTOFREE char *c = path_join(homes.v[h], credentials[i]);
            if (is_or_holds(path, c)) {
                *ret_why = "it is, or holds, a place for credentials (.ssh, .aws, .docker, ...)";
                return true;
            }
        }
    return false;
}

static void hide_credentials(struct project *p, const struct strv *homes)
{
    for (size_t i = 0; i < ARRAY_LEN(system_credentials); i++)
        if (path_below(system_credentials[i], p->root)) {
            const char *rel = system_credentials[i] + strlen(p->root);
            strv_add(&p->hide, rel + strspn(rel, "/"));
        }
    for (size_t h = 0; h < homes->n; h++) {
        if (!path_below(homes->v[h], p->root))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(credentials); i++) {
            AUTOFREE char *c = path_join(homes->v[h], credentials[i]);
            const char *rel = c + strlen(p->root);
            strv_add(&p->hide, rel + strspn(rel, "/"));
        }
    }
}

/* The first line of a small file, without its end of line; NULL where there is none. */
static char *first_line(const char *dir, const char *name)
{
    AUTOFREE char *path = path_join(dir, name);
    char *text = NULL;
    if (fs_read(AT_FDCWD, path, 65536, &text, NULL, NULL) < 0)
        return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    return text;
}

static char *resolve(const char *dir, const char *path)
{
    AUTOFREE char *joined = path[0] == '/' ? str_dup(path) : path_join(dir, path);
    return fs_realpath(joined);
}

static bool looks_like_git(const char *dir)
{
    AUTOFREE char *head = path_join(dir, "HEAD"), *objects = path_join(dir, "objects"),
                  *refs = path_join(dir, "refs");
    return fs_exists(head) && fs_is_dir(objects) && fs_is_dir(refs);
}

/* A .git file may name any directory; it counts only where that directory names this project back,
 * as git itself keeps it: gitdir of a worktree, core.worktree of a submodule. */
static bool points_back(const char *gitdir, const char *root)
{
    AUTOFREE char *back = first_line(gitdir, "gitdir"), *config_path = path_join(gitdir, "config");
    AUTOFREE char *config = NULL;

    if (back) {
        AUTOFREE char *dot_git = resolve(gitdir, back), *own = path_join(root, ".git");
        return dot_git && strcmp(dot_git, own) == 0;
    }
    if (fs_read(AT_FDCWD, config_path, 1 << 20, &config, NULL, NULL) < 0)
        return false;
    char *w = strstr(config, "worktree = ");
    if (!w)
        return false;
    w += strlen("worktree = ");
    w[strcspn(w, "\r\n")] = '\0';
    AUTOFREE char *tree = resolve(gitdir, w);
    return tree && strcmp(tree, root) == 0;
}

/* Worktrees and submodules keep their repository elsewhere. */
static void find_gitdir(struct project *p)
{
    AUTOFREE char *line = first_line(p->root, ".git");
    AUTOFREE char *gitdir = NULL, *rel = NULL, *common = NULL;

    if (!line || !str_starts(line, "gitdir: "))
        return;
    gitdir = resolve(p->root, line + strlen("gitdir: "));
    if (!gitdir || path_below(gitdir, p->root) || !points_back(gitdir, p->root))
        return;
    rel = first_line(gitdir, "commondir");
    common = rel ? resolve(gitdir, rel) : str_dup(gitdir);
    if (common && looks_like_git(common) && !path_below(common, p->root) &&
        !path_below(p->root, common))
        strv_add(&p->extra, common);
}

/* \040 and its like in mountinfo. */
static void unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
            *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

static bool holds_files(const char *type)
{
    static const char *const types[] = { "ext2",     "ext3",  "ext4",     "xfs",     "btrfs",
                                         "f2fs",     "zfs",   "tmpfs",    "overlay", "vfat",
                                         "exfat",    "ntfs",  "ntfs3",    "nfs",     "nfs4",
                                         "cifs",     "9p",    "virtiofs", "ceph",    "iso9660",
                                         "squashfs", "erofs", "bcachefs" };
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return str_starts(type, "fuse");
}

/* An overlay does not see what is mounted below its lower: each gets one of its own. */
int project_submounts(const char *dir, struct strv *ret_files, struct strv *ret_rest,
                      struct err **e)
{
    AUTOFREE char *text = NULL;
    int rc = fs_read(AT_FDCWD, "/proc/self/mountinfo", 16 << 20, &text, NULL, e);
    if (rc < 0)
        return rc;
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *f = l, *type = strstr(l, " - ");
        for (int i = 0; f && i < 4; i++)
            f = (f = strchr(f, ' ')) ? f + 1 : NULL;
        if (!f || !type)
            continue;
        type += 3;
        type[strcspn(type, " ")] = '\0';
        f[strcspn(f, " ")] = '\0';
        unescape(f);
        if (strcmp(f, dir) == 0 || !path_below(f, dir))
            continue;
        struct strv *list = holds_files(type) && fs_is_dir(f) ? ret_files : ret_rest;
        if (!strv_has(list, f))
            strv_add(list, f);
    }
    return 0;
}

static int choose(const char *cwd, const char *named, const struct strv *homes, char **ret,
                  struct err **e)
{
    AUTOFREE char *dir = NULL;

    if (named) {
        if (!(dir = fs_realpath(named)))
            return err_sys(e, "workspace '%s'", named);
        if (!fs_is_dir(dir))
            return err_new(e, ERR_INVALID, "workspace '%s' is not a directory", named);
        if (strcmp(dir, "/") == 0)
            return err_new(e, ERR_DENIED,
                           "workspace '/': the whole machine can't be a project; name a "
                           "directory with --workspace");
        *ret = TAKE_PTR(dir);
        return 0;
    }
    dir = str_dup(cwd);
    while (!is_or_holds_home(dir, homes) && !has_marker(dir)) {
        char *slash = strrchr(dir, '/');
        if (slash == dir)
            slash++;
        *slash = '\0';
    }
    if (is_or_holds_home(dir, homes)) {
        if (strcmp(cwd, "/") == 0)
            return err_new(e, ERR_DENIED,
                           "'/' is the whole machine and can't be a project; go into a project, or "
                           "name one with --workspace");
        if (is_or_holds_home(cwd, homes))
            return err_new(e, ERR_DENIED,
                           "'%s' is a home directory or holds one, and is not taken as a "
                           "project by itself; go into a project or name it: --workspace %s",
                           cwd, cwd);
        free(dir);
        dir = str_dup(cwd);
    }
    *ret = TAKE_PTR(dir);
    return 0;
}

static int root_of(const char *cwd, const char *named, const struct strv *homes, char **ret,
                   struct err **e)
{
    AUTOFREE char *root = NULL;
    int rc = choose(cwd, named, homes, &root, e);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(system_dirs); i++)
        if (path_below(root, system_dirs[i]))
            return err_new(e, ERR_DENIED,
                           "workspace '%s' lies in a directory of the system's own; copy it "
                           "elsewhere first",
                           root);
    *ret = TAKE_PTR(root);
    return 0;
}

char *project_root(const char *cwd, const char *named)
{
    AUTOSTRV struct strv homes = { 0 };
    char *root = NULL;

    home_dirs(&homes);
    return root_of(cwd, named, &homes, &root, NULL) == 0 ? root : NULL;
}

int project_find(const char *cwd, const char *named, struct project *ret, struct err **e)
{
    CLEANUP(strv_free_p) struct strv homes = { 0 };
    CLEANUP(project_free_p) struct project p = { 0 };
    int rc;

    home_dirs(&homes);
    if ((rc = root_of(cwd, named, &homes, &p.root, e)) < 0)
        return rc;
    if (stat(p.root, &p.st) < 0)
        return err_sys(e, "workspace '%s'", p.root);
    hide_credentials(&p, &homes);
    find_gitdir(&p);
    if ((rc = project_submounts(p.root, &p.extra, &p.missing, e)) < 0)
        return rc;
    *ret = p;
    p = (struct project){ 0 };
    return 0;
}

void project_free_p(struct project *p)
{
    free(p->root);
    strv_free_p(&p->hide);
    strv_free_p(&p->extra);
    strv_free_p(&p->missing);
    *p = (struct project){ 0 };
}
