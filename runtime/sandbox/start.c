#include "runtime/sandbox/start.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/keep.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/project.h"
#include "runtime/sandbox/run.h"
#include "runtime/sandbox/snapshot.h"
#include "runtime/sandbox/store_lock.h"

void started_free_p(struct started *s)
{
    free(s->id);
    free(s->name);
    strv_free_p(&s->missing);
    *s = (struct started){ 0 };
}

static int own_of(const struct paths *paths, const char *workspace, char **ret_id, struct err **e)
{
    CLEANUP(project_free_p) struct project pr = { 0 };
    AUTOFREE char *link = NULL, *id = NULL, *dir = NULL;
    char cwd[PATH_MAX];
    int rc;

    if (!getcwd(cwd, sizeof cwd))
        return err_sys(e, "the current directory");
    if ((rc = project_find(cwd, workspace, &pr, e)) < 0)
        return rc;
    link = str_printf("%s/projects/%llx-%llx", paths->data, (unsigned long long)pr.st.st_dev,
                      (unsigned long long)pr.st.st_ino);
    id = fs_readlink(AT_FDCWD, link);
    dir = id && !strchr(id, '/') ? str_printf("%s/sandboxes/%s/state.json", paths->data, id) : NULL;
    if (!dir || !fs_exists(dir)) {
        AUTOSTR struct str shown = STR_INIT;
        str_add_escaped(&shown, pr.root, strlen(pr.root));
        return err_new(e, ERR_NOT_FOUND, "no sandbox for %s yet; petri start makes one", shown.p);
    }
    *ret_id = TAKE_PTR(id);
    return 0;
}

int sandbox_find(const struct paths *paths, const char *word, const char *workspace, char **ret_id,
                 struct err **e)
{
    AUTOFREE char *link = NULL, *id = NULL, *record = NULL;
    int rc;

    if (!word)
        return own_of(paths, workspace, ret_id, e);
    if ((rc = options_check_name("sandbox", word, e)) < 0)
        return rc;
    link = str_printf("%s/names/%s", paths->data, word);
    id = fs_readlink(AT_FDCWD, link);
    if (!id || strchr(id, '/')) {
        free(id);
        id = str_dup(word);
    }
    record = str_printf("%s/sandboxes/%s/state.json", paths->data, id);
    if (!fs_exists(record))
        return err_new(e, ERR_NOT_FOUND, "no sandbox '%s'; petri ls lists them", word);
    *ret_id = TAKE_PTR(id);
    return 0;
}

/* --- flags --------------------------------------------------------------------------------------- */

static bool has_flag(const struct strv *given, const char *name, size_t n)
{
    for (size_t i = 0; i < given->n; i++)
        if (strncmp(given->v[i], name, n) == 0 && given->v[i][n] == '=')
            return true;
    return false;
}

static bool not_compared(const char *flag)
{
    return str_starts(flag, "name=") || str_starts(flag, "workspace=");
}

/* Given flags that the record does not have, as text; NULL: none. */
static char *differences(const struct strv *given, const struct strv *have)
{
    AUTOSTR struct str s = STR_INIT;

    for (size_t i = 0; i < given->n; i++) {
        size_t n = strcspn(given->v[i], "=");
        const char *old = NULL;
        if (not_compared(given->v[i]) || strv_has(have, given->v[i]))
            continue;
        for (size_t k = 0; k < have->n && !old; k++)
            if (strncmp(have->v[k], given->v[i], n + 1) == 0)
                old = have->v[k] + n + 1;
        AUTOSTR struct str now = STR_INIT, was = STR_INIT;
        str_add_escaped(&now, given->v[i] + n + 1, strlen(given->v[i] + n + 1));
        str_add_escaped(&was, old ? old : "", strlen(old ? old : ""));
        str_addf(&s, "%s--%.*s %s (it has %s)", s.len ? ", " : "", (int)n, given->v[i],
                 now.p ? now.p : "",
                 !old    ? "none"
                 : was.p ? was.p
                         : "it");
    }
    return s.len ? str_take(&s) : NULL;
}

/* A stopped sandbox's flags with the given ones in their place. */
static void merge_flags(const struct strv *given, const struct strv *have, struct strv *ret)
{
    for (size_t i = 0; i < have->n; i++)
        if (!has_flag(given, have->v[i], strcspn(have->v[i], "=")))
            strv_add(ret, have->v[i]);
    for (size_t i = 0; i < given->n; i++)
        if (!not_compared(given->v[i]))
            strv_add(ret, given->v[i]);
}

/* --- start --------------------------------------------------------------------------------------- */

static int plan_for(const struct paths *paths, struct options *o, struct kept *k, struct err **e)
{
    o->live = true;
    return plan_make(o, paths, &k->plan, &k->holds, e);
}

static int start_existing(const struct paths *paths, const char *id, struct options *o,
                          struct started *ret, struct err **e)
{
    CLEANUP(options_free_p) struct options merged = { 0 };
    CLEANUP(kept_free_p) struct kept k = KEPT_INIT;
    AUTOSTRV struct strv flags = { 0 };
    AUTOFREE char *diff = NULL;
    int rc = state_read(paths, id, &k.state, e);

    if (rc < 0)
        return rc;
    ret->id = str_dup(id);
    ret->name = str_dup(k.state.name);
    if (k.state.schema < STATE_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED,
                       "sandbox '%s' was kept by an older petri and can't be started; petri rm %s",
                       id, id);
    if (k.state.running) {
        diff = differences(&o->given, &k.state.options);
        if (diff)
            return err_new(e, ERR_BUSY, "'%s' runs with other flags: %s; petri restart takes them",
                           k.state.name ? k.state.name : id, diff);
        ret->was_running = true;
        return 0;
    }
    if ((rc = state_lock(paths, id, &k.lock, e)) < 0)
        return rc;
    merge_flags(&o->given, &k.state.options, &flags);
    options_restore(&merged, &flags);
    merged.id = id;
    merged.name = k.state.name;
    merged.workspace = k.state.project;
    if ((rc = plan_for(paths, &merged, &k, e)) < 0)
        return rc;
    if (k.plan->project_dev != k.state.project_dev || k.plan->project_ino != k.state.project_ino)
        return err_new(e, ERR_DENIED,
                       "'%s' is not the directory that sandbox '%s' was made for; petri rm it, or "
                       "put the directory back",
                       k.state.project, k.state.name ? k.state.name : id);
    if ((rc = layers_compact(paths, &k.state, LAYERS_LONG, e)) < 0)
        return rc;
    strv_free_p(&k.state.options);
    k.state.options = flags;
    flags = (struct strv){ 0 };
    free(k.plan->top);
    k.plan->top = str_printf("%s/changes/%s", paths->data, k.state.top);
    layers_of(paths, &k.state.chain, &k.plan->chain);
    return kept_start(paths, &k, ret, e);
}

/* "shop-1", "shop-2": the first that is free. */
static int name_it(const struct paths *paths, struct kept *k, struct err **e)
{
    const char *base = strrchr(k->plan->project, '/') + 1;
    AUTOSTR struct str word = STR_INIT;
    int rc = -1;

    for (const char *c = base; *c && word.len < 40; c++)
        if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
            (word.len && strchr("-_.", *c)))
            str_addc(&word, *c);
    for (unsigned i = 1; i < 100000 && rc < 0; i++) {
        CLEANUP(err_free_p) struct err *why = NULL;
        free(k->plan->name);
        k->plan->name = str_printf("%s-%u", word.len ? word.p : "sandbox", i);
        rc = state_name(paths, k->plan->id, k->plan->name, &why);
        if (rc < 0 && why->code != ERR_EXISTS) {
            if (e)
                *e = TAKE_PTR(why);
            return rc;
        }
    }
    return rc;
}

static int start_new(const struct paths *paths, const char *word, struct options *o,
                     struct started *ret, struct err **e)
{
    CLEANUP(kept_free_p) struct kept k = KEPT_INIT;
    int rc;

    if (word)
        o->name = word;
    if ((rc = plan_for(paths, o, &k, e)) < 0 || (rc = store_lock_shared(paths, &k.store, e)) < 0 ||
        (rc = state_create(paths, k.plan->id, &k.lock, e)) < 0)
        return rc;
    k.made = true;
    rc = o->name ? state_name(paths, k.plan->id, o->name, e) : name_it(paths, &k, e);
    if (rc == 0) {
        strv_setenv(&k.plan->env, "SANDBOX_NAME", k.plan->name);
        merge_flags(&o->given, &(struct strv){ 0 }, &k.state.options);
        ret->id = str_dup(k.plan->id);
        ret->name = str_dup(k.plan->name);
        ret->made = true;
        rc = kept_make(paths, &k, e);
    }
    if (rc == 0)
        rc = kept_start(paths, &k, ret, e);
    if (rc < 0)
        (void)state_remove(paths, k.plan->id, NULL);
    return rc;
}

int sandbox_start(const struct paths *paths, const char *word, struct options *o,
                  struct started *ret, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOFREE char *id = NULL;
    int rc;

    if (!word)
        word = o->name;
    rc = sandbox_find(paths, word, o->workspace, &id, &why);
    if (rc == 0)
        return start_existing(paths, id, o, ret, e);
    if (rc != -ERR_NOT_FOUND) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    return start_new(paths, word, o, ret, e);
}
