#include "image/host/tools.h"

#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/system.h"
#include "image/host/tools_priv.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define MAX_PATH 256 /* entries */

static void tools_free_p(struct tools *t)
{
    free(t->home);
    free(t->real_home);
    free(t->project);
    free(t->real_project);
    strv_free_p(&t->trees);
}

/* Without slashes at the end and doubled ones. */
static char *normal(const char *p)
{
    AUTOSTR struct str s = STR_INIT;
    for (; *p; p++)
        if (*p != '/' || !s.len || s.p[s.len - 1] != '/')
            str_addc(&s, *p);
    if (s.len > 1 && s.p[s.len - 1] == '/')
        s.p[--s.len] = '\0';
    return str_take(&s);
}

/* A home that can't be told from the system (/, /usr/...) or that is no directory is none. */
static void set_home(struct tools *t, const char *home)
{
    AUTOFREE char *h = home && home[0] == '/' ? normal(home) : NULL;
    AUTOFREE char *real = h && h[1] && !host_system_path(h) ? fs_realpath(h) : NULL;
    static const char *const not_homes[] = { "/home", "/var", "/run", "/tmp", "/etc",        "/dev",
                                             "/proc", "/sys", "/srv", "/mnt", "/nonexistent" };
    if (!real || !real[1] || host_system_path(real))
        return;
    for (size_t i = 0; i < ARRAY_LEN(not_homes); i++)
        if (strcmp(real, not_homes[i]) == 0)
            return;
    t->home = TAKE_PTR(h);
    t->real_home = TAKE_PTR(real);
}

/* A PATH entry as it will be inside; NULL: it is not there. */
static char *path_entry(struct tools *t, const char *entry)
{
    if (entry[0] != '/')
        return NULL; /* depends on the directory one is in */
    AUTOFREE char *p = normal(entry), *real = NULL;
    struct stat st;
    bool odd = strstr(p, "/./") || strstr(p, "/..");

    if (stat(p, &st) < 0 || !S_ISDIR(st.st_mode))
        return NULL;
    /* Nearly all of them. Where a link leads out of the system, it leads nowhere inside. */
    bool ours = t->project && path_below(p, t->project);
    if (!odd && !ours && (host_system_path(p) || (tools_bring_known(t, p) && tools_there(t, p))))
        return TAKE_PTR(p);
    real = fs_realpath(p);
    if (!real)
        return NULL;
    if (odd) {
        free(p);
        p = str_dup(real);
    }
    if (t->real_project && path_below(real, t->real_project)) {
        char *slash = strrchr(p, '/');
        if (slash > p && strcmp(slash, "/bin") == 0) {
            AUTOFREE char *venv = str_printf("%.*s", (int)(slash - p), p);
            tools_bring_venv_base(t, venv);
        }
        return path_below(p, t->project) ? TAKE_PTR(p) : NULL;
    }
    if (host_system_path(real))
        return host_system_path(p) ? TAKE_PTR(p) : TAKE_PTR(real);

    AUTOFREE char *lex = tools_lexical(t, real);
    if (!tools_there(t, p) && !tools_there(t, lex) && !tools_bring_known(t, p) &&
        !tools_bring_known(t, real)) {
        if (!tools_bring_dir(t, lex))
            return NULL;
        tools_follow_links(t, real);
    }
    if (tools_there(t, p) && !(t->project && path_below(p, t->project)))
        return TAKE_PTR(p);
    return tools_there(t, lex) ? TAKE_PTR(lex) : NULL;
}

static void make_path(struct tools *t)
{
    const char *given = strv_getenv(t->in->env, "PATH");
    AUTOFREE char *list = str_dup(given && given[0] ? given : DEFAULT_PATH);
    AUTOSTRV struct strv seen = { 0 };
    AUTOSTR struct str out = STR_INIT;
    char *save = NULL;
    int n = 0;

    for (char *p = strtok_r(list, ":", &save); p && n < MAX_PATH;
         p = strtok_r(NULL, ":", &save), n++) {
        AUTOFREE char *in = path_entry(t, p);
        if (in && !strchr(in, ':') && !strv_has(&seen, in))
            strv_add(&seen, in);
    }
    if (!seen.n) {
        strv_add(&seen, "/usr/bin");
        strv_add(&seen, "/bin");
    }
    /* where `pip install --user` puts programs; last, so that it changes nothing of what is found */
    if (t->in->inner_home && t->in->inner_home[0] == '/') {
        AUTOFREE char *user_bin = path_join(t->in->inner_home, ".local/bin");
        if (!strv_has(&seen, user_bin) && !strchr(user_bin, ':'))
            strv_add(&seen, user_bin);
    }
    for (size_t i = 0; i < seen.n; i++)
        str_addf(&out, "%s%s", i ? ":" : "", seen.v[i]);
    strv_setenv(t->env, "PATH", out.p);
}

int host_tools(const struct host_tools_in *in, struct plan_mounts *ret_mounts, struct strv *ret_env,
               struct err **e)
{
    static const char *const venvs[] = { ".venv", "venv" };
    CLEANUP(tools_free_p) struct tools t = { .in = in, .mounts = ret_mounts, .env = ret_env };

    set_home(&t, in->home);
    if (in->project && in->project[0] == '/') {
        t.project = normal(in->project);
        t.real_project = fs_realpath(t.project);
    }
    tools_bring_named(&t);
    make_path(&t);
    /* `.venv/bin/pytest` works without activation too */
    for (size_t i = 0; t.real_project && i < ARRAY_LEN(venvs); i++) {
        AUTOFREE char *venv = path_join(t.project, venvs[i]);
        tools_bring_venv_base(&t, venv);
    }
    tools_env(&t);
    return 0;
}
