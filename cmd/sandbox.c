/* cmd/sandbox.c - petri ls, inspect, rm, prune: the sandboxes there are. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/driver/skeleton.h"
#include "runtime/sandbox/caches.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/run.h"
#include "runtime/sandbox/state.h"

struct list {
    struct state *v;
    size_t n;
};

static void list_free_p(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        state_free_p(&l->v[i]);
    free(l->v);
}

static void json_of(struct jsonw *w, const struct state *s)
{
    jw_obj(w, NULL);
    jw_str(w, "id", s->id);
    jw_str(w, "name", s->name);
    jw_str(w, "state", s->running ? "running" : "stopped");
    jw_str(w, "image", s->image);
    jw_str(w, "project", s->project);
    jw_str(w, "created", s->created);
    jw_str(w, "parent", s->parent);
    jw_strv(w, "labels", &s->labels);
    jw_u64(w, "snapshots", s->n_snaps);
    jw_bool(w, "own", s->own);
    if (s->ran)
        jw_u64(w, "exit_status", s->exit_status);
    jw_end_obj(w);
}

/* "3m", "2h", "5d": how long ago. */
static void age_of(const char *created, char buf[16])
{
    struct tm tm = { 0 };
    time_t t = created && strptime(created, "%Y-%m-%dT%H:%M:%SZ", &tm) ? timegm(&tm) : 0;
    long s = (long)(time(NULL) - t) % 100000000;

    if (!t)
        snprintf(buf, 16, "-");
    else if (s < 120)
        snprintf(buf, 16, "%lds", s < 0 ? 0 : s);
    else if (s < 7200)
        snprintf(buf, 16, "%ldm", s / 60);
    else if (s < 172800)
        snprintf(buf, 16, "%ldh", s / 3600);
    else
        snprintf(buf, 16, "%ldd", s / 86400);
}

static void print_rows(const struct list *l, bool quiet)
{
    int wide = 4;

    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].name && (int)strlen(l->v[i].name) > wide)
            wide = (int)strlen(l->v[i].name);
    if (!quiet)
        printf("%-12s  %-*s  %-7s  %-5s  %-12s  %s\n", "ID", wide, "NAME", "STATE", "AGE", "IMAGE",
               "PROJECT");
    for (size_t i = 0; i < l->n; i++) {
        const struct state *s = &l->v[i];
        AUTOSTR struct str project = STR_INIT;
        char age[16];
        if (quiet) {
            puts(s->id);
            continue;
        }
        age_of(s->created, age);
        str_add_escaped(&project, s->project ? s->project : "-",
                        strlen(s->project ? s->project : "-"));
        printf("%-12s  %-*s  %-7s  %-5s  %-12s  %s\n", s->id, wide, s->name ? s->name : "-",
               s->running ? "running" : "stopped", age, s->image ? s->image : "-", project.p);
    }
}

static int ls_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    CLEANUP(list_free_p) struct list l = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words)
        return cmd_usage(c, "'%s': ls takes no names", f.words[0]);
    if (paths_find(&f.paths, &e) < 0 || state_list(&f.paths, &l.v, &l.n, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    if (!f.json) {
        print_rows(&l, f.quiet);
        return 0;
    }
    jw_arr(&w, NULL);
    for (size_t i = 0; i < l.n; i++)
        json_of(&w, &l.v[i]);
    jw_end_arr(&w);
    puts(w.out.p);
    return 0;
}

/* The record as it is, and what the keeper knows. */
static int inspect_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOJSON struct json *record = NULL, *live = NULL;
    AUTOFREE char *id = NULL, *text = NULL;
    AUTOJSONW struct jsonw w = { .pretty = true };
    struct err *e = NULL;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 1)
        return cmd_usage(c, "one sandbox at a time");
    if (paths_find(&f.paths, &e) < 0 ||
        sandbox_find(&f.paths, f.n_words ? f.words[0] : NULL, NULL, &id, &e) < 0 ||
        state_text(&f.paths, id, &text, &e) < 0 || json_parse(text, strlen(text), &record, &e) < 0)
        return cmd_fail_err(1, e, true);
    jw_obj(&w, NULL);
    for (size_t i = 0; i < record->n; i++)
        jw_json(&w, record->keys[i], record->items[i]);
    if (sandbox_ask(&f.paths, id, "{\"op\":\"status\"}", &live, NULL) == 0)
        jw_json(&w, "running", live);
    else
        jw_null(&w, "running");
    jw_end_obj(&w);
    puts(w.out.p);
    return 0;
}

/* Stops it first where that was asked for; its layers go with the next sweep, here at once. */
static int rm_one(const struct life *f, const char *word, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOSTATE struct state s = { 0 };
    AUTOFREE char *id = NULL;
    AUTOCLOSE int lock = -1;
    int rc = sandbox_find(&f->paths, word, NULL, &id, e);

    if (rc < 0)
        return rc;
    /* one that can't be read can be removed; one of a newer petri is not ours to touch */
    if (state_read(&f->paths, id, &s, &why) == -ERR_UNSUPPORTED) {
        *e = TAKE_PTR(why);
        return -ERR_UNSUPPORTED;
    }
    state_free_p(&s);
    if (f->force && (rc = sandbox_stop(&f->paths, id, NULL, e)) < 0)
        return rc;
    if (state_lock(&f->paths, id, &lock, NULL) < 0)
        return err_new(e, ERR_BUSY, "'%s' is running; petri stop %s, or petri rm -f %s", word, word,
                       word);
    (void)state_read(&f->paths, id, &s, NULL);
    if ((rc = state_remove(&f->paths, id, e)) < 0)
        return rc;
    if (s.id)
        events_add(&f->paths, "rm", &s, NULL);
    return 0;
}

static int rm_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    struct err *e = NULL;
    int status = 0;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (!f.n_words)
        return cmd_usage(c, "which sandbox? petri ls lists them");
    if (paths_find(&f.paths, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    for (int i = 0; i < f.n_words; i++) {
        if (rm_one(&f, f.words[i], &e) < 0)
            status = cmd_fail_err(1, TAKE_PTR(e), f.json);
        else if (f.json)
            printf("{\"removed\":\"%s\"}\n", f.words[i]);
    }
    sandbox_sweep_some(&f.paths);
    (void)layers_remove_unreferenced(&f.paths, NULL);
    caches_sweep(&f.paths, false);
    return status;
}

/* Every sandbox that is stopped; with --all those that run, too. */
static int prune_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    CLEANUP(list_free_p) struct list l = { 0 };
    AUTOFREE char *layers = NULL;
    struct err *e = NULL;
    size_t n = 0;
    int status = 0;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words)
        return cmd_usage(c, "prune takes no names; petri rm does");
    if (!f.force && !isatty(0))
        return cmd_usage(c, "it removes every stopped sandbox and what it wrote; say so with -f");
    if (paths_find(&f.paths, &e) < 0 || state_list(&f.paths, &l.v, &l.n, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    for (size_t i = 0; i < l.n; i++)
        n += !l.v[i].running;
    if (!f.force && n) {
        char answer[8] = "";
        fprintf(stderr, "remove %zu stopped sandboxes and what they wrote? [y/N] ", n);
        if (!fgets(answer, sizeof answer, stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
            return 1;
    }
    f.force = false;
    n = 0;
    for (size_t i = 0; i < l.n; i++) {
        if (l.v[i].running)
            continue;
        if (rm_one(&f, l.v[i].id, &e) < 0)
            status = cmd_fail_err(1, TAKE_PTR(e), f.json);
        else
            n++;
    }
    sandbox_sweep(&f.paths);
    (void)layers_remove_unreferenced(&f.paths, NULL);
    caches_sweep(&f.paths, true);
    layers = path_join(f.paths.data, "layers");
    skeletons_sweep(layers, 0);
    if (f.json)
        printf("{\"removed\":%zu}\n", n);
    else if (!f.quiet)
        printf("%zu removed\n", n);
    return status;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print JSON", NULL                                                        \
    }

static const struct opt ls_opts[] = {
    { "quiet", 'q', NULL, "ids only", NULL },
    JSON_OPT,
};
static const struct opt json_opts[] = { JSON_OPT };
static const struct opt rm_opts[] = {
    { "force", 'f', NULL, "stop it first", NULL },
    JSON_OPT,
};
static const struct opt prune_opts[] = {
    { "force", 'f', NULL, "do not ask", NULL },
    { "quiet", 'q', NULL, "no word from petri itself", NULL },
    JSON_OPT,
};

const struct cmd cmd_ls = {
    .name = "ls",
    .aliases = "ps",
    .summary = "list sandboxes",
    .usage = "[-q] [--json]",
    .opts = ls_opts,
    .n_opts = ARRAY_LEN(ls_opts),
    .usage_exit = 2,
    .run = ls_run,
};
const struct cmd cmd_inspect = {
    .name = "inspect",
    .summary = "all that is known of a sandbox, as JSON",
    .usage = "[SANDBOX]",
    .opts = json_opts,
    .n_opts = ARRAY_LEN(json_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = inspect_run,
};
const struct cmd cmd_rm = {
    .name = "rm",
    .summary = "remove sandboxes and what they wrote",
    .usage = "[-f] SANDBOX...",
    .opts = rm_opts,
    .n_opts = ARRAY_LEN(rm_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = rm_run,
};
const struct cmd cmd_prune = {
    .name = "prune",
    .summary = "remove every stopped sandbox, and what nobody needs any more",
    .usage = "[-f] [--json]",
    .opts = prune_opts,
    .n_opts = ARRAY_LEN(prune_opts),
    .usage_exit = 2,
    .run = prune_run,
};
