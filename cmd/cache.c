/* cmd/cache.c - petri cache: what sandboxes of one project share of pip, npm, cargo, go and the like. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/sandbox/caches.h"
#include "runtime/sandbox/project.h"
#include "runtime/sandbox/start.h"

static const uint64_t max_bytes = 10ULL << 30;

struct cache_words {
    struct paths paths;
    bool json, all;
    const char *max;
};

static void cache_words_free_p(struct cache_words *w)
{
    paths_free_p(&w->paths);
}

/* -1: the mistake was printed. Flags may stand before and after operands, which move to the front. */
static int parse(const struct cmd *c, int argc, char **argv, struct cache_words *w, int *ret_n)
{
    const struct opt *o;
    const char *value;
    bool bad = false;
    int n = 0;

    for (;;) {
        while ((o = cmd_next_opt(c, argc, argv, &value, &bad))) {
            w->json |= strcmp(o->name, "json") == 0;
            w->all |= strcmp(o->name, "all") == 0;
            if (strcmp(o->name, "max") == 0)
                w->max = value;
        }
        if (bad)
            return -1;
        if (optind >= argc)
            break;
        argv[1 + n++] = argv[optind++];
    }
    *ret_n = n;
    return 0;
}

static void print_saved(const char *id, const struct cache_saved *s)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_str(&w, "id", id);
    jw_bool(&w, "saved", s->counts.added || s->counts.removed);
    jw_u64(&w, "added", s->counts.added);
    jw_u64(&w, "added_bytes", s->counts.added_bytes);
    jw_u64(&w, "removed", s->counts.removed);
    jw_u64(&w, "left_out", s->counts.left_out);
    jw_end_obj(&w);
    puts(w.out.p);
}

static int cache_save(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(cache_words_free_p) struct cache_words w = { 0 };
    uint64_t most = max_bytes;
    struct cache_saved s;
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    char size[24];
    int n;

    if (parse(c, argc, argv, &w, &n) < 0)
        return c->usage_exit;
    if (n > 1)
        return cmd_usage(c, "one sandbox at a time");
    if (w.max && parse_size(w.max, &most, &e) < 0) {
        err_wrap(&e, "--max");
        return cmd_fail_err(c->usage_exit, e, w.json);
    }
    if (paths_find(&w.paths, &e) < 0 ||
        sandbox_find(&w.paths, n ? argv[1] : NULL, NULL, &id, &e) < 0 ||
        caches_save(&w.paths, id, most, &s, &e) < 0)
        return cmd_fail_err(1, e, w.json);
    format_size(s.counts.added_bytes, size);
    if (w.json)
        print_saved(id, &s);
    else if (s.counts.added || s.counts.removed)
        printf("saved %llu files (%s), removed %llu; the project's next sandboxes see it\n",
               (unsigned long long)s.counts.added, size, (unsigned long long)s.counts.removed);
    else
        puts(s.anything ? "nothing new in its caches" : "it has written to no caches");
    if (s.counts.left_out && !w.json)
        cmd_note("%llu entries were left out: no plain files, or nobody's cache",
                 (unsigned long long)s.counts.left_out);
    return 0;
}

/* What petri promote calls when it has applied a change: its own answer stands, whatever becomes of this. */
static int cache_promoted(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    struct cache_saved s;
    struct err *e = NULL;
    char size[24];

    if (argc != 2)
        return cmd_usage(c, "the id of a sandbox");
    if (paths_find(&paths, &e) < 0 || caches_save(&paths, argv[1], max_bytes, &s, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        cmd_note("its caches were not saved: %s; later: petri cache save", text);
        err_free(e);
        return 0;
    }
    format_size(s.counts.added_bytes, size);
    if (s.counts.added || s.counts.removed)
        cmd_note("caches: %llu files (%s) saved for the project's next sandboxes",
                 (unsigned long long)s.counts.added, size);
    return 0;
}

static int cache_ls(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(cache_words_free_p) struct cache_words w = { 0 };
    CLEANUP(cache_list_free_p) struct cache_list l = { 0 };
    AUTOJSONW struct jsonw j = { 0 };
    struct err *e = NULL;
    int n;

    if (parse(c, argc, argv, &w, &n) < 0)
        return c->usage_exit;
    if (n)
        return cmd_usage(c, "'%s' is one word too many", argv[1]);
    if (paths_find(&w.paths, &e) < 0 || caches_list(&w.paths, &l, &e) < 0)
        return cmd_fail_err(1, e, w.json);
    jw_arr(&j, NULL);
    for (size_t i = 0; i < l.n; i++) {
        const struct cache_info *x = &l.v[i];
        AUTOSTR struct str project = STR_INIT;
        char size[24];
        str_add_escaped(&project, x->project, strlen(x->project));
        format_size(x->counts.bytes, size);
        if (!w.json)
            printf("%s  %s  %s  user %llu  %llu files  %s\n", x->key, project.p, x->image,
                   (unsigned long long)x->uid, (unsigned long long)x->counts.files, size);
        jw_obj(&j, NULL);
        jw_str(&j, "key", x->key);
        jw_bytes(&j, "project", x->project, strlen(x->project));
        jw_str(&j, "image", x->image);
        jw_u64(&j, "uid", x->uid);
        jw_u64(&j, "generation", x->generation);
        jw_u64(&j, "files", x->counts.files);
        jw_u64(&j, "bytes", x->counts.bytes);
        jw_end_obj(&j);
    }
    jw_end_arr(&j);
    if (w.json)
        puts(j.out.p);
    return 0;
}

/* The keys of this project, of all, or those that were named. */
static int choose(const struct cache_words *w, int n, char **words, struct strv *ret,
                  struct err **e)
{
    CLEANUP(cache_list_free_p) struct cache_list l = { 0 };
    CLEANUP(project_free_p) struct project pr = { 0 };
    char cwd[4096];
    int rc;

    for (int i = 0; i < n; i++)
        strv_add(ret, words[i]);
    if (n)
        return 0;
    if ((rc = caches_list(&w->paths, &l, e)) < 0)
        return rc;
    if (!w->all && !getcwd(cwd, sizeof cwd))
        return err_sys(e, "the current directory");
    if (!w->all && (rc = project_find(cwd, NULL, &pr, e)) < 0)
        return rc;
    for (size_t i = 0; i < l.n; i++)
        if (w->all || (l.v[i].dev == pr.st.st_dev && l.v[i].ino == pr.st.st_ino &&
                       str_eq(l.v[i].project, pr.root)))
            strv_add(ret, l.v[i].key);
    return 0;
}

static int cache_rm(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(cache_words_free_p) struct cache_words w = { 0 };
    AUTOSTRV struct strv keys = { 0 };
    AUTOJSONW struct jsonw j = { 0 };
    struct err *e = NULL;
    int n;

    if (parse(c, argc, argv, &w, &n) < 0)
        return c->usage_exit;
    if (n && w.all)
        return cmd_usage(c, "--all takes no names");
    if (paths_find(&w.paths, &e) < 0 || choose(&w, n, argv + 1, &keys, &e) < 0)
        return cmd_fail_err(1, e, w.json);
    for (size_t i = 0; i < keys.n; i++)
        if (caches_remove(&w.paths, keys.v[i], &e) < 0)
            return cmd_fail_err(1, e, w.json);
    jw_obj(&j, NULL);
    jw_strv(&j, "removed", &keys);
    jw_end_obj(&j);
    if (w.json)
        puts(j.out.p);
    else
        printf("%zu removed\n", keys.n);
    return 0;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print JSON", NULL                                                        \
    }

static const struct opt save_opts[] = {
    { "max", 0, "SIZE", "at most so much in all (10G)", NULL },
    JSON_OPT,
};
static const struct opt ls_opts[] = { JSON_OPT };
static const struct opt rm_opts[] = {
    { "all", 'a', NULL, "of all projects", NULL },
    JSON_OPT,
};

static const struct cmd save_cmd = {
    .name = "save",
    .summary = "give what a sandbox wrote to caches to the project's next sandboxes",
    .usage = "[--max SIZE] [--json] [SANDBOX]",
    .about = "The sandbox (the project's own without a name) must be stopped, or nothing may run "
             "in it. Plain files, directories and links that stay inside go along. Sandboxes that "
             "run keep what they have until they are started again.\n\n"
             "Whatever a sandbox wrote there, the next ones may install and run: save what you "
             "would promote.",
    .opts = save_opts,
    .n_opts = ARRAY_LEN(save_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = cache_save,
};
static const struct cmd ls_cmd = {
    .name = "ls",
    .summary = "list the caches of all projects",
    .usage = "[--json]",
    .opts = ls_opts,
    .n_opts = ARRAY_LEN(ls_opts),
    .usage_exit = 2,
    .run = cache_ls,
};
static const struct cmd rm_cmd = {
    .name = "rm",
    .summary = "forget this project's caches",
    .usage = "[-a] [--json] [KEY...]",
    .opts = rm_opts,
    .n_opts = ARRAY_LEN(rm_opts),
    .usage_exit = 2,
    .run = cache_rm,
};
static const struct cmd promoted_cmd = {
    .name = "promoted",
    .summary = "save caches after a promotion",
    .usage = "ID",
    .hidden = true,
    .usage_exit = 2,
    .run = cache_promoted,
};
static const struct cmd *const cache_subs[] = { &save_cmd, &ls_cmd, &rm_cmd, &promoted_cmd, NULL };

extern const struct cmd cmd_cache;
const struct cmd cmd_cache = {
    .name = "cache",
    .summary = "caches of package managers that a project's sandboxes share",
    .usage = "COMMAND",
    .about = "pip, npm, cargo, go and others find what earlier sandboxes of the project fetched. "
             "Each sandbox writes to a layer of its own; only petri cache save, and petri promote "
             "when it applies a change, give that to the next ones. Switched off by "
             "mounts.persist_caches or --caches off.",
    .examples = "petri cache save\twhat the project's own sandbox fetched\n"
                "petri cache ls\twhat there is, and how large\n"
                "petri cache rm\tbegin anew",
    .subs = cache_subs,
    .usage_exit = 2,
    .run = cmd_run_sub,
};
