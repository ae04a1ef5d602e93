/* cmd/fsck.c - petri fsck: is the store of sandboxes whole? */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/paths.h"
#include "cmd/cmd.h"
#include "runtime/sandbox/fsck.h"

static void print_json(const struct fsck_report *r, bool ok)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_bool(&w, "ok", ok);
    jw_bool(&w, "partial", r->partial);
    jw_u64(&w, "sandboxes", r->sandboxes);
    jw_u64(&w, "layers", r->layers);
    jw_arr(&w, "problems");
    for (size_t i = 0; i < r->n; i++) {
        const struct fsck_problem *p = &r->v[i];
        jw_obj(&w, NULL);
        jw_str(&w, "code", p->code);
        jw_bytes(&w, "path", p->path, strlen(p->path));
        jw_bytes(&w, "message", p->text, strlen(p->text));
        jw_bool(&w, "garbage", p->garbage);
        jw_bool(&w, "removed", p->removed);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    puts(w.out.p);
}

static void print_people(const struct fsck_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct fsck_problem *p = &r->v[i];
        AUTOSTR struct str s = STR_INIT;
        str_add_escaped(&s, p->path, strlen(p->path));
        str_add(&s, ": ");
        str_add_escaped(&s, p->text, strlen(p->text));
        printf("%s%s\n", s.p, p->removed ? " (removed)" : p->garbage ? " (garbage)" : "");
    }
}

static int fsck_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fsck_report_free_p) struct fsck_report r = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    const struct opt *o;
    const char *value;
    struct err *e = NULL;
    bool bad = false, json = false, repair = false;
    size_t left = 0;

    while ((o = cmd_next_opt(c, argc, argv, &value, &bad))) {
        json |= strcmp(o->name, "json") == 0;
        repair |= strcmp(o->name, "repair") == 0;
    }
    if (bad)
        return c->usage_exit;
    if (optind < argc)
        return cmd_usage(c, "'%s' is one word too many", argv[optind]);
    if (paths_find(&paths, &e) < 0 || fsck_store(&paths, repair, &r, &e) < 0)
        return cmd_fail_err(1, e, json);
    for (size_t i = 0; i < r.n; i++)
        left += !r.v[i].removed;
    if (json)
        print_json(&r, left == 0);
    else
        print_people(&r);
    if (r.partial)
        cmd_note(
            "other petri commands were busy with layers all the time; whether there is garbage "
            "was not looked at");
    return left ? 1 : 0;
}

static const struct opt fsck_opts[] = {
    { .name = "repair", .help = "remove what is garbage; nothing else is touched" },
    { .name = "json", .help = "the report as JSON" },
};

const struct cmd cmd_fsck = {
    .name = "fsck",
    .summary = "check the store of sandboxes",
    .usage = "[--repair] [--json]",
    .about = "Looks at every record, the layers it names, names and projects, locks and sockets. "
             "Prints a "
             "line for each problem; the exit status is 1 when there is one.\n\n"
             "Garbage is what a killed petri left: layers that no record names, unfinished "
             "sandboxes and "
             "files, links that lead nowhere, sockets of sandboxes that don't run. Other commands "
             "remove "
             "it by and by, --repair at once. What belongs to a sandbox is never removed.",
    .examples = "petri fsck\tprints nothing when all is well\n"
                "petri fsck --repair\tremove what nobody needs",
    .opts = fsck_opts,
    .n_opts = ARRAY_LEN(fsck_opts),
    .usage_exit = 2,
    .run = fsck_run,
};
