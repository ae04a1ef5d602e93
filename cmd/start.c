/* cmd/start.c - petri start, stop, restart, refresh, fork: the life of a sandbox that stays. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/box_opts.h"
#include "cmd/cmd.h"
#include "cmd/config.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/flags.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/probe.h"

/* What a process that goes on as a keeper must not inherit. */
static bool settle_process(void)
{
    if (!cmd_have_stdio())
        return false;
    /* a pipe that the caller happens to have must not stay open for days */
    (void)close_range(3, ~0U, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    umask(022);
    return true;
}

int life_fail(struct err *e, bool json)
{
    char *remedy =
        e && (e->code == ERR_FAILED || e->code == ERR_UNSUPPORTED) ? probe_userns_remedy() : NULL;
    if (remedy) {
        err_new(&e, ERR_UNSUPPORTED, "%s", remedy);
        free(remedy);
    }
    return cmd_fail_err(1, e, json);
}

static void on_prepare(void)
{
    cmd_say("preparing the system's directory layer for user 0, once; this takes some seconds");
}

/* The configuration of the project that the sandbox is or will be of. A fork takes what its source has, as far
 * as locks let it. */
static int configure(const struct cmd *c, struct life *f, const char *id, bool fork)
{
    AUTOSTATE struct state s = { 0 };
    AUTOSTRV struct strv own = { 0 }, inherited = { 0 };
    struct configured how = { .agent = f->agent,
                              .profile = f->profile,
                              .workspace = f->o.workspace,
                              .json = f->json,
                              .quiet = f->quiet,
                              .status = 125 };

    if (id && state_read(&f->paths, id, &s, NULL) == 0) {
        flags_own(&f->o, &s, &own);
        flags_inherit(&own, &inherited);
        how.recorded = fork ? &inherited : &own;
        how.sandbox = s.name ? s.name : id;
        if (!how.workspace)
            how.workspace = s.project;
    }
    return fork ? configured_check(&how, &f->paths, &f->o.given)
                : configured_options(c, &how, &f->paths, &f->o);
}

static int start_or_restart(const struct cmd *c, int argc, char **argv, bool restart)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    CLEANUP(started_free_p) struct started s = { .on_prepare = on_prepare };
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    uint64_t from = life_now_us();
    const char *word;
    int rc;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 1)
        return cmd_usage(c, "one sandbox at a time");
    if (!settle_process() || paths_find(&f.paths, &e) < 0)
        return life_fail(e, f.json);
    if (f.json)
        cmd_keep_notes(&f.notes);
    if (f.quiet)
        s.on_prepare = NULL;
    word = f.n_words ? f.words[0] : f.o.name;
    rc = restart ? sandbox_find(&f.paths, word, f.o.workspace, &id, &e)
                 : sandbox_find_exact(&f.paths, word, f.o.workspace, &id, NULL);
    if (rc < 0 && restart)
        return life_fail(e, f.json);
    if ((rc = configure(c, &f, id, false)))
        return rc;
    if (restart) {
        if (sandbox_check(&f.paths, id, &f.o, &e) < 0 || sandbox_stop(&f.paths, id, NULL, &e) < 0)
            return life_fail(e, f.json);
    }
    if (sandbox_start(&f.paths, f.n_words ? f.words[0] : NULL, &f.o, &s, &e) < 0)
        return life_fail(e, f.json);
    life_print_started(&f, &s, life_now_us() - from, restart ? "running again" : "running");
    return 0;
}

static int start_run(const struct cmd *c, int argc, char **argv)
{
    return start_or_restart(c, argc, argv, false);
}

static int restart_run(const struct cmd *c, int argc, char **argv)
{
    return start_or_restart(c, argc, argv, true);
}

/* Runs `act` on every sandbox that is named, or on the project's own. */
static int each(const struct cmd *c, int argc, char **argv,
                int (*act)(struct life *f, const char *id, const char *word, struct err **e))
{
    CLEANUP(life_free_p) struct life f = { 0 };
    struct err *e = NULL;
    int status = 0;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (!settle_process() || paths_find(&f.paths, &e) < 0)
        return life_fail(e, f.json);
    for (int i = 0; i < (f.n_words ? f.n_words : 1); i++) {
        AUTOFREE char *id = NULL;
        const char *word = f.n_words ? f.words[i] : NULL;
        int rc = sandbox_find(&f.paths, word, NULL, &id, &e);
        if (rc == 0 && (rc = act(&f, id, word, &e)) > 0)
            status = 1; /* it said why */
        if (rc < 0)
            status = life_fail(TAKE_PTR(e), f.json);
    }
    return status;
}

/* What promotion.auto brought into the project, and what it left in the sandbox. */
static void print_promotion(const struct json *p)
{
    const struct json *stays = json_arr(p, "stays");
    uint64_t files = 0, journal = 0, stay = 0;

    json_u64(p, "files", &files);
    json_u64(p, "journal", &journal);
    json_u64(p, "stay", &stay);
    if (files)
        printf("promoted %llu file%s, journal %llu.   take it back: petri undo\n",
               (unsigned long long)files, files == 1 ? "" : "s", (unsigned long long)journal);
    for (size_t i = 0; stays && i < stays->n; i++) {
        AUTOFREE char *text = str_printf("%s (%s)", json_str(stays->items[i], "path"),
                                         json_str(stays->items[i], "reason"));
        AUTOSTR struct str line = STR_INIT;
        str_add_escaped(&line, text, strlen(text));
        printf("stays in the sandbox: %s\n", line.p);
    }
    if (stays && stay > stays->n)
        printf("stays in the sandbox: %llu more (petri diff)\n",
               (unsigned long long)(stay - stays->n));
}

static int stop_one(struct life *f, const char *id, const char *word, struct err **e)
{
    AUTOSTATE struct state s = { 0 };
    AUTOJSON struct json *j = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    int rc = sandbox_stop(&f->paths, id, &j, e);
    const struct json *promotion = json_get(j, "promotion");

    if (rc < 0)
        return rc;
    (void)state_read(&f->paths, id, &s, NULL);
    const char *name = s.name ? s.name : id;
    if (rc == 1)
        return err_new(e, ERR_STOPPED,
                       "sandbox '%s' was stopped already; petri start %s, or petri rm %s", name,
                       name, name);
    if (f->json) {
        jw_obj(&w, NULL);
        jw_str(&w, "id", id);
        jw_str(&w, "state", "stopped");
        jw_bool(&w, "was_running", true);
        if (promotion)
            jw_json(&w, "promotion", promotion);
        jw_end_obj(&w);
        puts(w.out.p);
    } else if (!f->quiet) {
        printf("%s stopped\n", name);
        if (promotion)
            print_promotion(promotion);
    }
    if (!json_str(promotion, "error"))
        return 0;
    if (!f->json)
        cmd_note("%s keeps its changes, nothing was promoted: %s", name,
                 json_str(promotion, "error"));
    return 1;
}

static int stop_run(const struct cmd *c, int argc, char **argv)
{
    return each(c, argc, argv, stop_one);
}

static int refresh_one(struct life *f, const char *id, const char *word, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    int rc = sandbox_ask(&f->paths, id, "{\"op\":\"refresh\"}", &j, e);
    if (rc == 0 && f->json)
        printf("{\"id\":\"%s\",\"state\":\"running\"}\n", id);
    return rc;
}

static int refresh_run(const struct cmd *c, int argc, char **argv)
{
    return each(c, argc, argv, refresh_one);
}

static void print_fork(const struct life *f, const struct started *s, size_t n, uint64_t us,
                       uint64_t paused)
{
    AUTOJSONW struct jsonw w = { 0 };

    if (f->json) {
        jw_obj(&w, NULL);
        jw_arr(&w, "forks");
        for (size_t i = 0; i < n; i++) {
            jw_obj(&w, NULL);
            jw_str(&w, "id", s[i].id);
            jw_str(&w, "name", s[i].name);
            jw_end_obj(&w);
        }
        jw_end_arr(&w);
        jw_double(&w, "ms", (double)us / 1000);
        jw_u64(&w, "paused_ms", paused);
        jw_end_obj(&w);
        puts(w.out.p);
        return;
    }
    for (size_t i = 0; i < n; i++)
        puts(s[i].name);
    if (paused && !f->quiet)
        cmd_note("the source was at work: it stood still for %llu ms", (unsigned long long)paused);
}

static int fork_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOFREE struct started *s = NULL;
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    uint64_t n = 1, paused = 0, from = life_now_us();
    int rc;

    if (life_parse(&f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f.n_words > 1)
        return cmd_usage(c, "one source at a time");
    if (f.count && (parse_uint(f.count, 10000, &n, &e) < 0 || n == 0)) {
        err_free(e);
        return cmd_usage(c, "-n '%s': a number from 1 to 10000", f.count);
    }
    if (f.count && f.o.name)
        return cmd_usage(c, "--name is for one fork, -n for several");
    if (f.o.name && options_check_name("--name", f.o.name, &e) < 0)
        return cmd_fail_err(2, e, f.json);
    s = mem_zalloc(n * sizeof *s);
    if (!settle_process() || paths_find(&f.paths, &e) < 0 ||
        sandbox_find(&f.paths, f.n_words ? f.words[0] : NULL, NULL, &id, &e) < 0)
        return life_fail(e, f.json);
    if ((rc = configure(c, &f, id, true)))
        return rc;
    rc = sandbox_fork(&f.paths, id, &f.o, n, s, &paused, &e);
    if (rc == 0)
        print_fork(&f, s, n, life_now_us() - from, paused);
    for (size_t i = 0; i < n; i++)
        started_free_p(&s[i]);
    return rc < 0 ? life_fail(e, f.json) : 0;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print one object", NULL                                                  \
    }
#define QUIET_OPT                                                                                  \
    {                                                                                              \
        "quiet", 'q', NULL, "no word from petri itself", NULL                                      \
    }

static const struct opt start_opts[] = {
    BOX_OPTS,
    { "disk", 0, "SIZE", "limit for all files written (10G)", NULL },
    { "idle-timeout", 0, "TIME", "stop it when nothing ran for so long", NULL },
    { "lifetime", 0, "TIME", "stop it after so long", NULL },
    { "no-keep-alive", 0, NULL, "stop it as soon as nothing runs in it", NULL },
    { "aside", 0, NULL, "never the project's own, even as its first", NULL },
    { "promote-on-stop", 0, NULL, "petri stop brings its harmless changes into the project", NULL },
    QUIET_OPT,
    JSON_OPT,
};
static const struct opt plain_opts[] = { QUIET_OPT, JSON_OPT };
static const struct opt fork_opts[] = {
    { "name", 0, "NAME", "a name for the fork", NULL },
    { "count", 'n', "COUNT", "so many forks", NULL },
    TOTAL_OPTS,
    QUIET_OPT,
    JSON_OPT,
};

const struct cmd cmd_start = {
    .name = "start",
    .aliases = "up",
    .summary = "start the project's sandbox; made on first use",
    .usage = "[flags] [SANDBOX]",
    .about = "Without a name this is the project's own sandbox, found again from any directory of "
             "the project. "
             "One that runs already is left as it is; flags that differ from its own are an error "
             "that names them, "
             "and petri restart takes them.",
    .examples = "petri start\tthe project's own\n"
                "petri start -m 4G --idle-timeout 1h big\tone called big, with limits",
    .opts = start_opts,
    .n_opts = ARRAY_LEN(start_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = start_run,
};
const struct cmd cmd_restart = {
    .name = "restart",
    .summary = "stop and start again; flags given replace its own",
    .usage = "[flags] [SANDBOX]",
    .opts = start_opts,
    .n_opts = ARRAY_LEN(start_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = restart_run,
};
const struct cmd cmd_stop = {
    .name = "stop",
    .summary = "end all that runs in a sandbox; its files stay",
    .usage = "[SANDBOX...]",
    .opts = plain_opts,
    .n_opts = ARRAY_LEN(plain_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = stop_run,
};
const struct cmd cmd_refresh = {
    .name = "refresh",
    .summary = "show a sandbox what changed in the project since",
    .usage = "[SANDBOX...]",
    .about = "The project's directory is mounted anew. Nothing may run inside.",
    .opts = plain_opts,
    .n_opts = ARRAY_LEN(plain_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = refresh_run,
};
const struct cmd cmd_fork = {
    .name = "fork",
    .summary = "new sandboxes that start from what one holds now",
    .usage = "[--name NAME | -n COUNT] [SANDBOX]",
    .about = "Nothing is copied where the source is idle. Where commands run in it, it stands "
             "still while what it "
             "changed is copied. Each fork goes its own way from then on.",
    .opts = fork_opts,
    .n_opts = ARRAY_LEN(fork_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = fork_run,
};
