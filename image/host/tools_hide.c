#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/tools_priv.h"

#define MAX_MATCHES 64

/* Credentials by habit, below what comes in: `*` is one component. Whole name or nothing. */
static const char *const hidden[] = {
    ".asdf/installs/nodejs/*/etc/npmrc",
    ".dotnet/corefx", /* the user's X.509 store, private keys included */
    ".fnm/node-versions/*/installation/etc/npmrc",
    ".local/share/fnm/node-versions/*/installation/etc/npmrc",
    ".local/share/mise/installs/node/*/etc/npmrc",
    ".nodenv/versions/*/etc/npmrc",
    ".nvm/.npmrc",
    ".nvm/versions/node/*/etc/npmrc",
    ".pyenv/versions/*/pip.conf",
    ".sdkman/candidates/maven/*/conf/settings-security.xml",
    ".volta/tools/image/node/*/etc/npmrc",
    "anaconda3/.condarc",
    "anaconda3/pip.conf",
    "mambaforge/.condarc",
    "mambaforge/pip.conf",
    "miniconda3/.condarc",
    "miniconda3/pip.conf",
    "miniforge3/.condarc",
    "miniforge3/pip.conf",
};
/* The same in a directory that no table knows. */
static const char *const hidden_top[] = { ".condarc", "pip.conf", "etc/npmrc", ".pypirc" };

static const char *const private_names[] = {
    ".ssh",         ".gnupg",       ".aws",    ".azure",           ".kube",           ".docker",
    ".netrc",       ".npmrc",       ".pypirc", ".mozilla",         ".password-store", "keyrings",
    ".thunderbird", ".vault-token", ".pki",    ".git-credentials", ".terraform.d",    "gh",
    ".gcloud",      "gcloud",       ".claude", ".codex",           ".gemini",         ".petri",
};

bool tools_private_name(const char *rel)
{
    for (const char *c = rel; c && *c;) {
        size_t n = strcspn(c, "/");
        for (size_t i = 0; i < ARRAY_LEN(private_names); i++)
            if (strlen(private_names[i]) == n && strncmp(c, private_names[i], n) == 0)
                return true;
        if ((n == 2 && strncmp(c, "..", 2) == 0) || (n == 1 && *c == '.'))
            return true;
        c += n + (c[n] == '/');
    }
    return false;
}

/* Hides dir/name if it is there; fd is that directory, or -1. */
static void hide_path(struct tools *t, int fd, const char *dir, const char *name)
{
    struct stat st;
    if (fd >= 0 && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    AUTOFREE char *path = path_join(dir, name);
    if (fd < 0 && lstat(path, &st) < 0)
        return;
    if (!S_ISLNK(st.st_mode)) {
        plan_mounts_add(t->mounts, MOUNT_EMPTY, NULL, path, true);
        return;
    }
    /* what the link leads to, where that is inside too */
    AUTOFREE char *real = fs_realpath(path);
    AUTOFREE char *lex = real ? tools_lexical(t, real) : NULL;
    if (lex && tools_there(t, lex) && (!t->project || !path_below(lex, t->project)))
        plan_mounts_add(t->mounts, MOUNT_EMPTY, NULL, lex, true);
}

/* Every match of `pattern` below `base`; one level of directory reading per `*`. */
static void hide_matches(struct tools *t, const char *base, const char *pattern)
{
    const char *star = strstr(pattern, "*/");
    if (!star) {
        hide_path(t, -1, base, pattern);
        return;
    }
    AUTOFREE char *head = str_printf("%s/%.*s", base, (int)(star - pattern), pattern);
    DIR *d = opendir(head);
    struct dirent *de;
    for (int n = 0; d && n < MAX_MATCHES && (de = readdir(d)); n++) {
        if (de->d_name[0] == '.')
            continue;
        AUTOFREE char *next = path_join(head, de->d_name);
        hide_matches(t, next, star + 2);
    }
    if (d)
        closedir(d);
}

void tools_hide(struct tools *t, const char *rel, bool known)
{
    AUTOFREE char *base = path_join(t->home, rel);
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        if (path_below(hidden[i], rel))
            hide_matches(t, t->home, hidden[i]);
    if (known)
        return;
    AUTOCLOSE int fd = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < ARRAY_LEN(hidden_top); i++)
        hide_path(t, fd, base, hidden_top[i]);
}
