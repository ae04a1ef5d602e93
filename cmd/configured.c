/* cmd/configured.c - from configuration to the options of a command. */
#include "cmd/config.h"

#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/network/policy.h"
#include "runtime/sandbox/project.h"

extern char **environ;

static void print_mistakes(const struct config *c, const struct configured *how)
{
    if (how->json) {
        AUTOJSONW struct jsonw w = { 0 };
        AUTOSTR struct str all = STR_INIT;
        for (size_t i = 0; i < c->mistakes.n; i++)
            str_addf(&all, "%s%s", i ? "; " : "", c->mistakes.v[i]);
        jw_obj(&w, NULL);
        jw_obj(&w, "error");
        jw_str(&w, "code", err_code_name(ERR_INVALID));
        jw_bytes(&w, "message", all.p, all.len);
        jw_strv(&w, "mistakes", &c->mistakes);
        jw_end_obj(&w);
        jw_end_obj(&w);
        puts(w.out.p);
    }
    for (size_t i = 0; i < c->mistakes.n; i++)
        cmd_fail(0, "%s", c->mistakes.v[i]);
}

static char *find_project(const char *workspace)
{
    char cwd[PATH_MAX];
    /* what is wrong with it is said where the sandbox is made */
    return getcwd(cwd, sizeof cwd) ? project_root(cwd, workspace) : NULL;
}

/* What the key table does not know about a value, so that the message names the file. */
static int judge(const char *option, const char *value, const char *from, struct err **e)
{
    struct net_rule rule = { 0 };
    struct net_publish publish = { 0 };
    int rc = 0;

    if (strcmp(option, "allow-domain") == 0 || strcmp(option, "deny-domain") == 0) {
        rc = net_rule_parse(from, value, &rule, e);
        net_rule_free_p(&rule);
    } else if (strcmp(option, "workspace-path") == 0) {
        AUTOFREE char *path = NULL;
        if ((rc = options_check_workspace_path(value, &path, e)) < 0)
            rc = err_wrap(e, "%s", from);
    } else if (strcmp(option, "publish") == 0 && (rc = net_publish_parse(value, &publish, e)) < 0) {
        rc = err_wrap(e, "%s", from);
    }
    return rc;
}

void configured_judge(struct config *c)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const struct setting *t = &c->set[i];
        for (size_t w = 0; config_keys[i].option && w < t->words.n; w++) {
            AUTOFREE char *from =
                str_printf("%s: sandbox.%s", t->from.v[w < t->from.n ? w : 0], config_keys[i].name);
            CLEANUP(err_free_p) struct err *e = NULL;
            if (judge(config_keys[i].option, t->words.v[w], from, &e) < 0)
                strv_take(&c->mistakes, err_text(e));
        }
    }
}

struct config *configured_load(const struct configured *how, const struct paths *paths, bool all,
                               char **ret_project)
{
    AUTOFREE char *user = config_user_dir(), *project = find_project(how->workspace);
    const char *named = how->agent ? how->agent : getenv("PETRI_AGENT");
    struct config_from from = {
        .system = config_system_file,
        .user = user,
        .project = project,
        .data = paths->data,
        .agent = named && *named ? named : NULL,
        .profile = how->profile,
        .environment = environ,
        .trust_all = all,
    };
    struct config *c = NULL;
    struct err *e = NULL;

    if (from.agent &&
        options_check_name(how->agent ? "--agent" : "PETRI_AGENT", from.agent, &e) < 0) {
        cmd_fail_err(how->status, e, how->json);
        return NULL;
    }
    if (config_load(&from, &c, &e) < 0) {
        cmd_fail_err(how->status, e, how->json);
        return NULL;
    }
    if (!c->mistakes.n)
        configured_judge(c);
    if (c->mistakes.n) {
        print_mistakes(c, how);
        return config_free(c);
    }
    if (c->agent_missing && !how->quiet && (!how->json || cmd_keeps_notes()))
        cmd_note("agent '%s' has no entry in the configuration: the common values are used",
                 from.agent);
    if (ret_project)
        *ret_project = TAKE_PTR(project);
    return c;
}

struct taker {
    const struct cmd *c;
    struct options *o;
};

static int take(void *ctx, const char *option, const char *value, const char *from, struct err **e)
{
    const struct taker *t = ctx;
    CLEANUP(options_free_p) struct options scratch = { 0 };

    for (size_t i = 0; i < t->c->n_opts; i++)
        if (strcmp(t->c->opts[i].name, option) == 0)
            return options_configure(t->o, option, value) ? 1 : -1;
    return options_set(&scratch, option, value) ? 0 : -1;
}

void configured_notes(const struct config *c)
{
    AUTOSTR struct str keys = STR_INIT, files = STR_INIT;

    for (size_t i = 0; i < c->waiting.n; i++)
        str_addf(&keys, "%s%s", i ? ", " : "", c->waiting.v[i]);
    for (size_t i = 0; i < c->untrusted.n; i++)
        str_addf(&files, "%s%s", i ? ", " : "", strrchr(c->untrusted.v[i], '/') + 1);
    if (c->waiting.n)
        cmd_note("%s: not trusted, so this waits: %s; look at it and say: petri config trust",
                 files.p, keys.p);
    for (size_t i = 0; i < c->locked.n; i++)
        cmd_note("left out: %s", c->locked.v[i]);
}

static void say_enabled(const struct config *c)
{
    size_t enabled = (size_t)key_find("enabled"), runtime = (size_t)key_find("runtime");
    const struct strv *words = &c->set[runtime].words;

    if (c->set[enabled].set && !config_true(c, "enabled"))
        cmd_note("enabled: false (%s) only concerns petri tool and agents; this runs in a sandbox",
                 config_origin(c, enabled));
    else if (words->n && strcmp(words->v[0], "none") == 0)
        cmd_note("runtime: none (%s) only concerns petri tool and agents; this runs in a sandbox",
                 config_origin(c, runtime));
}

/* The nearest directory upwards with a configuration: it costs an exec less than to look for the project. */
static char *nearest_configured(void)
{
    char dir[PATH_MAX];

    for (char *slash = getcwd(dir, sizeof dir); slash && dir[0]; *slash = '\0') {
        for (size_t i = 0; i < PROJECT_CONFIGS; i++) {
            AUTOFREE char *path = path_join(dir, project_configs[i]);
            if (fs_exists(path))
                return str_dup(dir);
        }
        slash = strrchr(dir, '/');
    }
    return NULL;
}

void configured_say_enabled(void)
{
    AUTOFREE char *user = config_user_dir(), *project = nearest_configured();
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(config_free_p) struct config *c = NULL;
    struct config_from from = {
        .system = config_system_file, .user = user, .project = project, .environment = environ
    };

    if (paths_find(&paths, NULL) < 0)
        return;
    from.data = paths.data;
    /* mistakes are those of the start to tell */
    if (config_load(&from, &c, NULL) == 0 && !c->mistakes.n)
        say_enabled(c);
}

static int check_recorded(const struct config *c, const struct configured *how, struct err **e)
{
    return how->recorded ? config_check_flags(c, how->recorded, how->sandbox, e) : 0;
}

int configured_check(const struct configured *how, const struct paths *paths,
                     const struct strv *flags)
{
    CLEANUP(config_free_p) struct config *conf = configured_load(how, paths, false, NULL);
    struct err *e = NULL;

    if (!conf)
        return how->status;
    if (config_check_flags(conf, flags, NULL, &e) < 0 || check_recorded(conf, how, &e) < 0)
        return cmd_fail_err(how->status, e, how->json);
    if (!how->quiet && !how->json)
        say_enabled(conf);
    return 0;
}

int configured_options(const struct cmd *c, const struct configured *how, const struct paths *paths,
                       struct options *o)
{
    CLEANUP(config_free_p) struct config *conf = configured_load(how, paths, false, NULL);
    struct taker t = { c, o };
    struct err *e = NULL;

    if (!conf)
        return how->status;
    if (check_recorded(conf, how, &e) < 0 || config_apply(conf, &o->given, take, &t, &e) < 0)
        return cmd_fail_err(how->status, e, how->json);
    if (!how->quiet && (!how->json || cmd_keeps_notes())) {
        configured_notes(conf);
        say_enabled(conf);
    }
    return 0;
}
