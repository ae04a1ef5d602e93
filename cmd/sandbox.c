/* cmd/sandbox.c - petri ls and petri rm: sandboxes that were kept. */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/cmd.h"
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

static void print_json(const struct list *l)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_arr(&w, NULL);
    for (size_t i = 0; i < l->n; i++) {
        const struct state *s = &l->v[i];
        jw_obj(&w, NULL);
        jw_str(&w, "id", s->id);
        jw_str(&w, "name", s->name);
        jw_str(&w, "state", s->running ? "running" : "stopped");
        jw_str(&w, "image", s->image);
        jw_str(&w, "project", s->project);
        jw_str(&w, "created", s->created);
        jw_int(&w, "exit_status", s->exit_status);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    puts(w.out.p);
}

static void print_row(const struct state *s)
{
    AUTOSTR struct str project = STR_INIT;
    str_add_escaped(&project, s->project ? s->project : "-", strlen(s->project ? s->project : "-"));
    printf("%-12s  %-16s  %-8s  %-20s  %s\n", s->id, s->name ? s->name : "-",
           s->running ? "running" : "stopped", s->created ? s->created : "-", project.p);
}

static int ls_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(list_free_p) struct list l = { 0 };
    const struct opt *o;
    const char *value;
    struct err *e = NULL;
    bool bad = false, json = false, quiet = false;

    while ((o = cmd_next_opt(c, argc, argv, &value, &bad))) {
        json |= strcmp(o->name, "json") == 0;
        quiet |= strcmp(o->name, "quiet") == 0;
    }
    if (bad)
        return c->usage_exit;
    if (optind < argc)
        return cmd_usage(c, "'%s': ls takes no names", argv[optind]);
    if (paths_find(&paths, &e) < 0 || state_list(&paths, &l.v, &l.n, &e) < 0)
        return cmd_fail_err(1, e, json);
    if (json) {
        print_json(&l);
        return 0;
    }
    if (!quiet)
        printf("%-12s  %-16s  %-8s  %-20s  %s\n", "ID", "NAME", "STATE", "CREATED", "PROJECT");
    for (size_t i = 0; i < l.n; i++) {
        if (quiet)
            puts(l.v[i].id);
        else
            print_row(&l.v[i]);
    }
    return 0;
}

static int rm_one(const struct paths *paths, const struct list *l, const char *word, struct err **e)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct state *s = &l->v[i];
        if (strcmp(s->id, word) != 0 && !str_eq(s->name, word))
            continue;
        if (s->running)
            return err_new(e, ERR_BUSY, "'%s' is running; wait for its command to end", word);
        return state_remove(paths, s->id, e);
    }
    AUTOSTR struct str shown = STR_INIT;
    str_add_escaped(&shown, word, strlen(word) > 40 ? 40 : strlen(word));
    return err_new(e, ERR_NOT_FOUND, "no sandbox '%s'; petri ls lists them",
                   shown.p ? shown.p : "");
}

static int rm_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(list_free_p) struct list l = { 0 };
    const char *value;
    struct err *e = NULL;
    bool bad = false;
    int status = 0;

    while (cmd_next_opt(c, argc, argv, &value, &bad))
        ;
    if (bad)
        return c->usage_exit;
    if (optind == argc)
        return cmd_usage(c, "which sandbox? petri ls lists them");
    if (paths_find(&paths, &e) < 0 || state_list(&paths, &l.v, &l.n, &e) < 0)
        return cmd_fail_err(1, e, false);
    for (int i = optind; i < argc; i++) {
        if (rm_one(&paths, &l, argv[i], &e) < 0)
            status = cmd_fail_err(1, TAKE_PTR(e), false);
    }
    return status;
}

static const struct opt ls_opts[] = {
    { "quiet", 'q', NULL, "ids only", NULL },
    { "json", 0, NULL, "print an array of objects", NULL },
};

const struct cmd cmd_ls = {
    .name = "ls",
    .aliases = "ps",
    .summary = "list sandboxes that were kept",
    .usage = "[-q] [--json]",
    .opts = ls_opts,
    .n_opts = ARRAY_LEN(ls_opts),
    .usage_exit = 2,
    .run = ls_run,
};

const struct cmd cmd_rm = {
    .name = "rm",
    .summary = "remove sandboxes and what they wrote",
    .usage = "SANDBOX...",
    .usage_exit = 2,
    .run = rm_run,
};
