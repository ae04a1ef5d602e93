/* cmd/snapshot.c - petri snapshot and rollback: a way back for a sandbox's files. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/layers.h"

static int find_one(struct life *f, const char *word, char **ret_id, struct err **e)
{
    int rc = paths_find(&f->paths, e);
    return rc < 0 ? rc : sandbox_find(&f->paths, word, NULL, ret_id, e);
}

static int snapshot_take(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL, *snap = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;
    uint64_t paused = 0, from = life_now_us();

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 1)
        return cmd_usage(c, "one sandbox at a time");
    if (find_one(&f, f.n_words ? f.words[0] : NULL, &id, &e) < 0 ||
        sandbox_snapshot(&f.paths, id, f.message, &snap, &paused, &e) < 0)
        return life_fail(e, f.json);
    if (!f.json) {
        puts(snap);
        if (paused && !f.quiet)
            cmd_note("the sandbox was at work: it stood still for %llu ms",
                     (unsigned long long)paused);
        return 0;
    }
    jw_obj(&w, NULL);
    jw_str(&w, "id", id);
    jw_str(&w, "snapshot", snap);
    jw_double(&w, "ms", (double)(life_now_us() - from) / 1000);
    jw_u64(&w, "paused_ms", paused);
    jw_end_obj(&w);
    puts(w.out.p);
    return 0;
}

static int snapshot_ls(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOSTATE struct state s = { 0 };
    AUTOFREE char *id = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 1)
        return cmd_usage(c, "one sandbox at a time");
    if (find_one(&f, f.n_words ? f.words[0] : NULL, &id, &e) < 0 ||
        state_read(&f.paths, id, &s, &e) < 0)
        return life_fail(e, f.json);
    jw_arr(&w, NULL);
    for (size_t i = 0; i < s.n_snaps; i++) {
        const char *text = s.snaps[i].message ? s.snaps[i].message : "";
        AUTOSTR struct str shown = STR_INIT;
        str_add_escaped(&shown, text, strlen(text));
        if (!f.json)
            printf("%-5s  %s  %s\n", s.snaps[i].id, s.snaps[i].created, shown.p ? shown.p : "");
        jw_obj(&w, NULL);
        jw_str(&w, "id", s.snaps[i].id);
        jw_str(&w, "created", s.snaps[i].created);
        jw_str(&w, "message", s.snaps[i].message);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    if (f.json)
        puts(w.out.p);
    return 0;
}

/* `[SANDBOX] SNAP`: the last word is the snapshot. */
static int last_word(struct life *f, const struct cmd *c, char **ret_id, const char **ret_snap,
                     struct err **e)
{
    if (f->n_words < 1 || f->n_words > 2)
        return cmd_usage(c, "which snapshot? petri snapshot ls lists them");
    *ret_snap = f->words[f->n_words - 1];
    return find_one(f, f->n_words == 2 ? f->words[0] : NULL, ret_id, e);
}

static int snapshot_rm(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL;
    const char *snap = NULL;
    struct err *e = NULL;
    int rc;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    rc = last_word(&f, c, &id, &snap, &e);
    if (rc > 0)
        return rc;
    if (rc < 0 || sandbox_snapshot_rm(&f.paths, id, snap, &e) < 0)
        return life_fail(e, f.json);
    (void)layers_remove_unreferenced(&f.paths, NULL);
    if (f.json)
        puts("{}");
    return 0;
}

static int rollback_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE char *id = NULL, *saved = NULL;
    const char *snap = NULL;
    struct err *e = NULL;
    int rc;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    rc = last_word(&f, c, &id, &snap, &e);
    if (rc > 0)
        return rc;
    if (rc < 0 || sandbox_rollback(&f.paths, id, snap, &saved, &e) < 0)
        return life_fail(e, f.json);
    (void)layers_remove_unreferenced(&f.paths, NULL);
    if (f.json)
        printf("{\"id\":\"%s\",\"snapshot\":\"%s\",\"saved\":\"%s\"}\n", id, snap, saved);
    else if (!f.quiet)
        printf("back at %s; what was there is %s: petri rollback %s\n", snap, saved, saved);
    return 0;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print one object", NULL                                                  \
    }
#define QUIET_OPT                                                                                  \
    {                                                                                              \
        "quiet", 'q', NULL, "no word from petri itself", NULL                                      \
    }

static const struct opt plain_opts[] = { QUIET_OPT, JSON_OPT };
static const struct opt snapshot_opts[] = {
    { "message", 'm', "TEXT", "what it is for", NULL },
    QUIET_OPT,
    JSON_OPT,
};

static const struct cmd snapshot_ls_cmd = {
    .name = "ls",
    .summary = "list a sandbox's snapshots",
    .usage = "[SANDBOX]",
    .opts = plain_opts,
    .n_opts = ARRAY_LEN(plain_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = snapshot_ls,
};
static const struct cmd snapshot_rm_cmd = {
    .name = "rm",
    .summary = "forget a snapshot",
    .usage = "[SANDBOX] SNAPSHOT",
    .opts = plain_opts,
    .n_opts = ARRAY_LEN(plain_opts),
    .complete = "snapshot",
    .usage_exit = 2,
    .run = snapshot_rm,
};
static const struct cmd *const snapshot_subs[] = { &snapshot_ls_cmd, &snapshot_rm_cmd, NULL };

/* `petri snapshot` itself takes one. */
static int snapshot_run(const struct cmd *c, int argc, char **argv)
{
    return argc > 1 && cmd_find_in(snapshot_subs, argv[1]) ? cmd_run_sub(c, argc, argv)
                                                           : snapshot_take(c, argc, argv);
}

const struct cmd cmd_snapshot = {
    .name = "snapshot",
    .aliases = "snap",
    .summary = "keep a sandbox's files as they are now",
    .usage = "[-m TEXT] [SANDBOX]",
    .about = "Root and workspace together. petri rollback goes back to it, petri fork and petri "
             "diff --from "
             "start from it.",
    .opts = snapshot_opts,
    .n_opts = ARRAY_LEN(snapshot_opts),
    .complete = "sandbox",
    .subs = snapshot_subs,
    .usage_exit = 2,
    .run = snapshot_run,
};
const struct cmd cmd_rollback = {
    .name = "rollback",
    .summary = "put a sandbox's files back to a snapshot",
    .usage = "[SANDBOX] SNAPSHOT",
    .about = "What runs inside is ended. What was there becomes a snapshot itself, so that a "
             "rollback can be "
             "taken back. To take back a promotion into the project: petri undo.",
    .opts = plain_opts,
    .n_opts = ARRAY_LEN(plain_opts),
    .complete = "snapshot",
    .usage_exit = 2,
    .run = rollback_run,
};
