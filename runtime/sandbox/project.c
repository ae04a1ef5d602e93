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

struct homes {
    struct strv dirs, own; /* `own`: those of `dirs` that are the invoker's */
};

static void homes_free_p(struct homes *h)
{
    strv_free_p(&h->dirs);
    strv_free_p(&h->own);
}

static void add_home(struct homes *h, const char *dir, bool own)
{
    AUTOFREE char *real = own ? fs_realpath(dir) : NULL;
    const char *home = real ? real : dir;

    if (home[0] != '/' || !home[1] || strv_has(&h->dirs, home))
        return;
    strv_add(&h->dirs, home);
    if (own)
        strv_add(&h->own, home);
}

/* Homes of people: the invoker's and every account from uid 1000 on, and root's. */
static void find_homes(struct homes *ret)
{
    const char *h = getenv("HOME");
    AUTOFREE char *text = NULL;
    FILE *f = user_table("/etc/passwd", &text);
    struct passwd *pw;
    uid_t uid = getuid();

    if (h)
        add_home(ret, h, true);
    while (f && (pw = fgetpwent(f)))
        if (pw->pw_uid == 0 || pw->pw_uid == uid || (pw->pw_uid >= 1000 && pw->pw_uid != 65534))
            add_home(ret, pw->pw_dir, pw->pw_uid == uid);
    if (f)
        fclose(f);
}

/* Where credentials may lie that are in, around or at `path`. Links in the invoker's own home are followed; those in
 * another's are not, since they could lead anywhere, to hide what they like. */
static void find_secrets(const struct homes *homes, const char *path, struct strv *ret)
{
    for (size_t h = 0; h < homes->dirs.n; h++) {
        const char *home = homes->dirs.v[h];
        bool own = strv_has(&homes->own, home);
        bool meet = path_below(home, path) || path_below(path, home);
        AUTOCLOSE int dir = own ? open(home, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        for (size_t i = 0; (own || meet) && i < ARRAY_LEN(credentials); i++) {
            AUTOFREE char *c = path_join(home, credentials[i]), *real = NULL;
            AUTOCLOSE int fd =
                own ? fs_open_beneath(dir, credentials[i], O_PATH | O_CLOEXEC, 0, 0) : -1;
            /* a link is rare, and realpath() five system calls */
            if (own && fd < 0 && errno == ELOOP && (real = fs_realpath_part(c)))
                strv_add(ret, real);
            if (meet)
                strv_add(ret, c);
        }
    }
}

static bool is_or_holds_home(const char *dir, const struct homes *homes)
{
    if (strcmp(dir, "/") == 0)
        return true;
    for (size_t i = 0; i < homes->dirs.n; i++)
        if (path_below(homes->dirs.v[i], dir))
            return true;
    return false;
}

const char *const project_configs[PROJECT_CONFIGS] = { "petri.json", "petri.jsonc",
                                                       "wonopcode.json", "wonopcode.jsonc" };

static bool has_marker(const char *dir)
{
    AUTOFREE char *git = path_join(dir, ".git");

    if (fs_exists(git))
        return true;
    for (size_t i = 0; i < PROJECT_CONFIGS; i++) {
        AUTOFREE char *p = path_join(dir, project_configs[i]);
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
    CLEANUP(homes_free_p) struct homes homes = { 0 };
    AUTOSTRV struct strv secrets = { 0 };

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
    find_homes(&homes);
    find_secrets(&homes, path, &secrets);
    for (size_t i = 0; i < secrets.n; i++)
        if (is_or_holds(path, secrets.v[i])) {
            *ret_why = "it is, or holds, a place for credentials (.ssh, .aws, .docker, ...)";
            return true;
        }
    return false;
}

static void hide(struct project *p, const char *secret)
{
    if (!path_below(secret, p->root))
        return;
    secret += strlen(p->root);
    secret += strspn(secret, "/");
    if (!strv_has(&p->hide, secret))
        strv_add(&p->hide, secret);
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

static int choose(const char *cwd, const char *named, const struct homes *homes, char **ret,
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

/* Agents keep projects below their own directory, where their credentials are: ~/.codex/worktrees. */
static bool is_worktree(const char *root, const char *secret)
{
    return str_starts(root + strlen(secret), "/worktrees/");
}

static int root_of(const char *cwd, const char *named, char **ret, struct strv *ret_secrets,
                   struct err **e)
{
    CLEANUP(homes_free_p) struct homes homes = { 0 };
    AUTOFREE char *root = NULL;
    int rc;

    find_homes(&homes);
    if ((rc = choose(cwd, named, &homes, &root, e)) < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(system_dirs); i++)
        if (path_below(root, system_dirs[i]))
            return err_new(e, ERR_DENIED,
                           "workspace '%s' lies in a directory of the system's own; copy it "
                           "elsewhere first",
                           root);
    find_secrets(&homes, root, ret_secrets);
    for (size_t i = 0; i < ARRAY_LEN(system_credentials); i++)
        strv_add(ret_secrets, system_credentials[i]);
    for (size_t i = 0; i < ret_secrets->n; i++)
        if (path_below(root, ret_secrets->v[i]) && !is_worktree(root, ret_secrets->v[i]))
            return err_new(e, ERR_DENIED,
                           "workspace '%s' is, or lies in, a place for credentials (%s), which no "
                           "sandbox is shown; copy what you work on elsewhere",
                           root, ret_secrets->v[i]);
    *ret = TAKE_PTR(root);
    return 0;
}

char *project_root(const char *cwd, const char *named)
{
    AUTOSTRV struct strv secrets = { 0 };
    char *root = NULL;

    return root_of(cwd, named, &root, &secrets, NULL) == 0 ? root : NULL;
}

int project_find(const char *cwd, const char *named, struct project *ret, struct err **e)
{
    CLEANUP(project_free_p) struct project p = { 0 };
    AUTOSTRV struct strv secrets = { 0 };
    int rc = root_of(cwd, named, &p.root, &secrets, e);

    if (rc < 0)
        return rc;
    if (stat(p.root, &p.st) < 0)
        return err_sys(e, "workspace '%s'", p.root);
    for (size_t i = 0; i < secrets.n; i++)
        hide(&p, secrets.v[i]);
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
