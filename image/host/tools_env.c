#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/system.h"
#include "image/host/tools_priv.h"

/* Whole names only: LC_ANYTHING is what ssh hands on, and people send tokens that way. */
const char *const host_env_pass[] = {
    "TERM",        "LANG",     "LANGUAGE",          "LC_ALL",         "LC_ADDRESS",
    "LC_COLLATE",  "LC_CTYPE", "LC_IDENTIFICATION", "LC_MEASUREMENT", "LC_MESSAGES",
    "LC_MONETARY", "LC_NAME",  "LC_NUMERIC",        "LC_PAPER",       "LC_TELEPHONE",
    "LC_TIME",     "TZ",       "COLORTERM",         "NO_COLOR",       "CI",
    NULL
};

enum {
    NAMED_ALWAYS = 1, /* also where nothing of it is on PATH */
};

/* Variables that name a place. They are passed when the place is inside; with a sign (a name that
 * only such a place has) it is brought in from the home; with a default they are set where that is
 * inside, since the tools don't find it from another HOME. */
static const struct {
    const char *name, *sign, *dflt;
    unsigned flags;
} vars[] = {
    { "VIRTUAL_ENV", "pyvenv.cfg", NULL, NAMED_ALWAYS },
    { "CONDA_PREFIX", "conda-meta", NULL, 0 },
    { "PYENV_ROOT", "versions", ".pyenv", 0 },
    { "RUSTUP_HOME", "toolchains", ".rustup", NAMED_ALWAYS },
    { "CARGO_HOME", NULL, NULL, 0 },
    { "NVM_DIR", "nvm.sh", ".nvm", 0 },
    { "FNM_DIR", "node-versions", NULL, 0 },
    { "VOLTA_HOME", "tools", ".volta", 0 },
    { "SDKMAN_DIR", "candidates", ".sdkman", 0 },
    { "JAVA_HOME", "release", NULL, NAMED_ALWAYS },
    { "GOROOT", "VERSION", NULL, NAMED_ALWAYS },
    { "GOPATH", NULL, NULL, 0 },
    { "GOENV_ROOT", "versions", ".goenv", 0 },
    { "RBENV_ROOT", "versions", ".rbenv", 0 },
    { "NODENV_ROOT", "versions", ".nodenv", 0 },
    { "PIPX_HOME", "venvs", NULL, 0 },
    { "ASDF_DIR", NULL, NULL, 0 },
    { "ASDF_DATA_DIR", "installs", ".asdf", 0 },
    { "MISE_DATA_DIR", "installs", NULL, 0 },
    { "PNPM_HOME", NULL, NULL, 0 },
    { "CUDA_HOME", NULL, NULL, 0 },
    { "MAVEN_HOME", NULL, NULL, 0 },
    { "GRADLE_HOME", NULL, NULL, 0 },
};

/* Variables that name whom to trust. Passed when they name what is public on every machine and there inside
 * at the same path; a company's own authority is then known inside as well. */
static const char *const trust_vars[] = {
    "SSL_CERT_FILE",      "SSL_CERT_DIR",   "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",       "AWS_CA_BUNDLE",
};
static const char *const trust_places[] = { "/etc/ssl/certs", "/etc/ca-certificates",
                                            "/etc/pki/tls/certs", "/usr/share/ca-certificates" };

static bool plain(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return false;
    return true;
}

/* A variable's value as a place: absolute, of one directory that exists. */
static char *place(const struct tools *t, const char *name)
{
    const char *v = strv_getenv(t->in->env, name);
    if (!v || v[0] != '/' || !v[1] || !plain(v) || strstr(v, "/../") || str_ends(v, "/.."))
        return NULL;
    char *p = str_dup(v);
    for (size_t n = strlen(p); n > 1 && p[n - 1] == '/'; n--)
        p[n - 1] = '\0';
    return p;
}

static bool on_path(const struct tools *t, const char *dir)
{
    AUTOFREE char *path = str_dup(strv_getenv(t->in->env, "PATH"));
    char *save = NULL;
    for (char *p = path ? strtok_r(path, ":", &save) : NULL; p; p = strtok_r(NULL, ":", &save))
        if (path_below(p, dir))
            return true;
    return false;
}

void tools_bring_named(struct tools *t)
{
    for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
        AUTOFREE char *p = vars[i].sign ? place(t, vars[i].name) : NULL;
        if (!p)
            continue;
        AUTOFREE char *sign = path_join(p, vars[i].sign);
        if (!fs_exists(sign))
            continue;
        if (strcmp(vars[i].name, "VIRTUAL_ENV") == 0)
            tools_bring_venv_base(t, p);
        if (tools_there(t, p) || (!(vars[i].flags & NAMED_ALWAYS) && !on_path(t, p)))
            continue;
        if (!tools_bring_known(t, p) || !tools_there(t, p))
            (void)tools_bring_dir(t, p);
    }
}

/* Lets a variable through when the place is inside, both as written and as resolved. */
static bool pass_place(struct tools *t, const char *name)
{
    AUTOFREE char *p = place(t, name);
    AUTOFREE char *real = p && tools_there(t, p) ? fs_realpath(p) : NULL;
    if (!real)
        return false;
    AUTOFREE char *lex = tools_lexical(t, real);
    if (!tools_there(t, lex) && !tools_there(t, real) &&
        !(t->real_project && path_below(real, t->real_project)))
        return false;
    strv_setenv(t->env, name, p);
    return true;
}

static void pass_trust(struct tools *t)
{
    for (size_t i = 0; i < ARRAY_LEN(trust_vars); i++) {
        AUTOFREE char *p = place(t, trust_vars[i]);
        bool is_public = false;
        for (size_t k = 0; p && k < ARRAY_LEN(trust_places); k++)
            is_public |= path_below(p, trust_places[k]);
        if (is_public && fs_exists(p))
            strv_setenv(t->env, trust_vars[i], p);
    }
}

void tools_env(struct tools *t)
{
    pass_trust(t);
    for (size_t i = 0; i < t->in->env->n; i++) {
        const char *v = t->in->env->v[i], *eq = strchr(v, '=');
        for (size_t k = 0; eq && host_env_pass[k]; k++) {
            size_t n = strlen(host_env_pass[k]);
            if ((size_t)(eq - v) == n && strncmp(v, host_env_pass[k], n) == 0) {
                if (plain(v) && strlen(v) < 1024)
                    strv_add(t->env, v);
                break;
            }
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
        if (pass_place(t, vars[i].name) || !vars[i].dflt || !t->home)
            continue;
        AUTOFREE char *p = path_join(t->home, vars[i].dflt);
        if (strv_has(&t->trees, p))
            strv_setenv(t->env, vars[i].name, p);
    }
    /* ~/go is writable inside but for what came in: the default, said aloud */
    AUTOFREE char *gopath = t->home ? path_join(t->home, "go") : NULL;
    if (gopath && str_eq(strv_getenv(t->in->env, "GOPATH"), gopath) &&
        str_eq(t->home, t->in->inner_home))
        strv_setenv(t->env, "GOPATH", gopath);
}
