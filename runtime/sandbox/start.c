#include "runtime/sandbox/start.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/client/client.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/flags.h"
#include "runtime/sandbox/keep.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/project.h"
#include "runtime/sandbox/run.h"
#include "runtime/sandbox/snapshot.h"
#include "runtime/sandbox/store_lock.h"

/* How long somebody else's work on a sandbox is waited for. */
enum { BUSY_TRIES = 500, BUSY_MS = 20 };

void started_free_p(struct started *s)
{
    free(s->id);
    free(s->name);
    strv_free_p(&s->missing);
    *s = (struct started){ 0 };
}

/* "bob, try-2": those that were made for the project, but are not its own. */
static void others_of(const struct paths *paths, const char *root, struct str *out)
{
    struct state *v = NULL;
    size_t n = 0;

    (void)state_list(paths, &v, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (str_eq(v[i].project, root))
            str_addf(out, "%s%s", out->len ? ", " : "", v[i].name ? v[i].name : v[i].id);
        state_free_p(&v[i]);
    }
    free(v);
}

static bool has_record(const struct paths *paths, const char *id)
{
    AUTOFREE char *record = str_printf("%s/sandboxes/%s/state.json", paths->data, id);
    return fs_exists(record);
}

static int own_of(const struct paths *paths, const char *workspace, char **ret_id, struct err **e)
{
    CLEANUP(project_free_p) struct project pr = { 0 };
    AUTOFREE char *link = NULL, *id = NULL;
    char cwd[PATH_MAX];
    int rc;

    if (!getcwd(cwd, sizeof cwd))
        return err_sys(e, "the current directory");
    if ((rc = project_find(cwd, workspace, &pr, e)) < 0)
        return rc;
    link = str_printf("%s/projects/%llx-%llx", paths->data, (unsigned long long)pr.st.st_dev,
                      (unsigned long long)pr.st.st_ino);
    id = fs_readlink(AT_FDCWD, link);
    if (!id || strchr(id, '/') || !has_record(paths, id)) {
        AUTOSTR struct str shown = STR_INIT, others = STR_INIT;
        str_add_escaped(&shown, pr.root, strlen(pr.root));
        others_of(paths, pr.root, &others);
        if (others.len)
            return err_new(e, ERR_NOT_FOUND,
                           "%s has no sandbox of its own, but others: name one of %s, or petri "
                           "start makes it",
                           shown.p, others.p);
        return err_new(e, ERR_NOT_FOUND, "no sandbox for %s yet; petri start makes one", shown.p);
    }
    *ret_id = TAKE_PTR(id);
    return 0;
}

int sandbox_find_exact(const struct paths *paths, const char *word, const char *workspace,
                       char **ret_id, struct err **e)
{
    AUTOFREE char *link = NULL, *id = NULL;
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
    if (!has_record(paths, id))
        return err_new(e, ERR_NOT_FOUND, "no sandbox '%s'; petri ls lists them", word);
    *ret_id = TAKE_PTR(id);
    return 0;
}

int sandbox_find(const struct paths *paths, const char *word, const char *workspace, char **ret_id,
                 struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    const struct petri_client client = { .data = paths->data };
    struct petri_sandbox found = { 0 };
    struct petri_error said = PETRI_ERROR_INIT;
    int rc = sandbox_find_exact(paths, word, workspace, ret_id, &why);

    if (!word || rc != -ERR_NOT_FOUND) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    rc = client_find(&client, word, NULL, &found, &said);
    free(found.name);
    free(found.sub);
    if (rc < 0)
        return err_new(e, str_eq(said.code, "invalid") ? ERR_INVALID : ERR_NOT_FOUND, "%s",
                       said.message);
    *ret_id = str_dup(found.id);
    return 0;
}

/* --- start --------------------------------------------------------------------------------------- */

static int plan_for(const struct paths *paths, struct options *o, struct kept *k, struct err **e)
{
    o->live = true;
    return plan_make(o, paths, &k->plan, &k->holds, e);
}

/* The plan of one that exists, with the given flags in the place of its own. */
static int plan_existing(const struct paths *paths, const struct options *o, struct kept *k,
                         struct strv *ret_flags, struct err **e)
{
    CLEANUP(options_free_p) struct options merged = { 0 };
    uint64_t idle, life;
    int rc;

    flags_merge(o, &k->state, ret_flags);
    options_restore(&merged, ret_flags);
    merged.id = k->state.id;
    merged.name = k->state.name;
    merged.workspace = k->state.project;
    if ((rc = kept_same_project(&k->state, e)) < 0 ||
        (rc = kept_times(ret_flags, &idle, &life, e)) < 0 ||
        (rc = plan_for(paths, &merged, k, e)) < 0)
        return rc;
    return kept_same_base(&k->state, k->plan, e);
}

/* 0: it is stopped and ours, locked; 1: it runs. Whoever else is at it is waited for. */
static int lock_or_running(const struct paths *paths, const char *id, struct kept *k,
                           struct err **e)
{
    for (int i = 0; i < BUSY_TRIES; i++) {
        CLEANUP(err_free_p) struct err *why = NULL;
        AUTOJSON struct json *j = NULL;
        int rc = state_lock(paths, id, &k->lock, &why);
        if (rc == 0)
            return state_read(paths, id, &k->state, e);
        if (rc != -ERR_BUSY) {
            if (e)
                *e = TAKE_PTR(why);
            return rc;
        }
        err_free_p(&why);
        /* a keeper that is about to serve answers when it does */
        if (sandbox_ask(paths, id, "{\"op\":\"ping\"}", &j, &why) == 0 ||
            why->code == ERR_UNSUPPORTED) {
            rc = state_read(paths, id, &k->state, e);
            return rc < 0 ? rc : 1;
        }
        (void)poll(NULL, 0, BUSY_MS);
    }
    return err_new(e, ERR_BUSY, "another petri works on sandbox '%s'; try again", id);
}

static int start_existing(const struct paths *paths, const char *id, struct options *o,
                          struct started *ret, struct err **e)
{
    CLEANUP(kept_free_p) struct kept k = KEPT_INIT;
    AUTOSTRV struct strv flags = { 0 };
    AUTOFREE char *diff = NULL;
    int rc = lock_or_running(paths, id, &k, e);

    if (rc < 0)
        return rc;
    ret->id = str_dup(id);
    ret->name = str_dup(k.state.name);
    if (k.state.schema < STATE_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED,
                       "sandbox '%s' was kept by an older petri and can't be started; petri rm %s",
                       id, id);
    if (rc == 1) {
        diff = flags_differ(o, &k.state);
        if (diff)
            return err_new(e, ERR_BUSY, "'%s' runs with other flags: %s; petri restart takes them",
                           k.state.name ? k.state.name : id, diff);
        ret->was_running = true;
        return 0;
    }
    if ((rc = plan_existing(paths, o, &k, &flags, e)) < 0 ||
        (rc = layers_compact(paths, &k.state, LAYERS_LONG, e)) < 0)
        return rc;
    flags_record(&k.state, &flags, o);
    state_take_paths(&k.state, k.plan);
    free(k.plan->top);
    k.plan->top = str_printf("%s/changes/%s", paths->data, k.state.top);
    layers_of(paths, &k.state.chain, &k.plan->chain);
    return kept_start(paths, &k, ret, e);
}

int sandbox_check(const struct paths *paths, const char *id, const struct options *o,
                  struct err **e)
{
    CLEANUP(kept_free_p) struct kept k = KEPT_INIT;
    AUTOSTRV struct strv flags = { 0 };
    int rc = state_read(paths, id, &k.state, e);

    if (rc == 0)
        rc = plan_existing(paths, o, &k, &flags, e);
    return rc < 0 ? rc : kept_limits(k.plan, e);
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
    k.aside = o->aside;
    rc = o->name ? state_name(paths, k.plan->id, o->name, e) : name_it(paths, &k, e);
    if (rc == 0) {
        strv_setenv(&k.plan->env, "SANDBOX_NAME", k.plan->name);
        AUTOSTRV struct strv flags = { 0 };
        flags_merge(o, &k.state, &flags);
        flags_record(&k.state, &flags, o);
        ret->id = str_dup(k.plan->id);
        ret->name = str_dup(k.plan->name);
        ret->made = true;
        rc = kept_make(paths, &k, e);
    }
    if (rc == 0 && !o->name && !k.aside && !k.state.own)
        rc = err_new(e, ERR_BUSY, "another petri is making this project's sandbox; try again");
    if (rc == 0)
        rc = kept_start(paths, &k, ret, e);
    if (rc < 0 && k.lock >= 0)
        (void)state_remove(paths, k.plan->id, NULL);
    else if (rc < 0)
        state_remove_left(paths, k.plan->id);
    return rc;
}

int sandbox_start(const struct paths *paths, const char *word, struct options *o,
                  struct started *ret, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = 0;

    if (!word)
        word = o->name;
    for (int i = 0; i < BUSY_TRIES; i++) {
        AUTOFREE char *id = NULL;
        err_free_p(&why);
        rc = sandbox_find_exact(paths, word, o->workspace, &id, &why);
        if (rc == 0) {
            rc = start_existing(paths, id, o, ret, &why);
            if (rc != -ERR_NOT_FOUND || has_record(paths, id))
                break;
            /* its first start failed this very moment, and took it away */
            started_free_p(ret);
        } else if (rc != -ERR_NOT_FOUND) {
            break;
        }
        err_free_p(&why);
        rc = start_new(paths, word, o, ret, &why);
        if (rc == 0)
            return 0;
        /* somebody else makes the same one this very moment: it will have a record */
        if (rc != (word ? -ERR_EXISTS : -ERR_BUSY))
            break;
        started_free_p(ret);
        (void)poll(NULL, 0, BUSY_MS);
    }
    if (e)
        *e = TAKE_PTR(why);
    return rc;
}
