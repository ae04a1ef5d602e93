/* cmd/run.c - petri run: one command in an isolated copy of the project. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "cmd/attach.h"
#include "cmd/box_opts.h"
#include "cmd/cmd.h"
#include "cmd/config.h"
#include "oci/config.h"
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/probe.h"
#include "runtime/sandbox/run.h"

static const struct opt run_opts[] = {
    BOX_OPTS,
    { "disk", 0, "SIZE", "limit for all files written (half of --memory)", NULL },
    { "timeout", 0, "TIME", "kill everything after this long", NULL },
    { "max-output", 0, "SIZE", "cut each output stream after this much (10M; 0: no limit)", NULL },
    { "interactive", 'i', NULL, "forward stdin (it always is)", NULL },
    { "tty", 't', NULL, "give the command a terminal (the default on a terminal)", NULL },
    { "no-tty", 'T', NULL, "give it none", NULL },
    { "keep", 0, NULL, "keep the sandbox and what it wrote, stopped", NULL },
    { "detach", 'd', NULL, "refused: petri start, then petri exec -d", NULL },
    { "rm", 0, NULL, "throw the sandbox away afterwards (the default)", NULL },
    { "raw-terminal", 0, NULL, "do not filter what the command sends to the terminal", NULL },
    { "quiet", 'q', NULL, "no word from petri itself", NULL },
    { "json", 0, NULL, "print one object with result, output and changes", NULL },
};

struct run_flags {
    struct options o;
    const char *agent, *profile;
    bool json, quiet, raw, tty, no_tty, detach;
};

static void take_opt(struct run_flags *f, const char *name, const char *value)
{
    const struct {
        const char *name;
        bool *flag;
    } table[] = {
        { "tty", &f->tty },          { "no-tty", &f->no_tty }, { "detach", &f->detach },
        { "raw-terminal", &f->raw }, { "quiet", &f->quiet },   { "json", &f->json },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, name) == 0)
            *table[i].flag = true;
    if (strcmp(name, "agent") == 0)
        f->agent = value;
    if (strcmp(name, "profile") == 0)
        f->profile = value;
    (void)options_set(&f->o, name, value);
}

static void json_result(struct jsonw *w, const struct plan *p, const struct run_req *r,
                        const struct run_result *x)
{
    static const char *const events[] = { "oom", "pids", "disk", "timeout", "output_truncated" };

    jw_obj(w, NULL);
    jw_str(w, "id", p->id);
    if (p->name)
        jw_str(w, "name", p->name);
    jw_str(w, "image", p->image);
    jw_str(w, "network", net_mode_word(p->net->mode));
    if (x->exit_code >= 0)
        jw_int(w, "exit_code", x->exit_code);
    else
        jw_int(w, "exit_code", x->status);
    if (x->signal)
        jw_int(w, "signal", x->signal);
    else
        jw_null(w, "signal");
    jw_bool(w, "timed_out", x->timed_out);
    jw_arr(w, "events");
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (x->events & 1u << i) {
            jw_obj(w, NULL);
            jw_str(w, "type", events[i]);
            jw_end_obj(w);
        }
    for (size_t i = 0; i < x->denied.n; i++) {
        jw_obj(w, NULL);
        jw_str(w, "type", "net_denied");
        denied_json(w, &x->denied.v[i], p->net, NULL);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    cmd_json_bytes(w, "stdout", r->out.kept.p, r->out.kept.len);
    cmd_json_bytes(w, "stderr", r->err.kept.p, r->err.kept.len);
    jw_obj(w, "truncated");
    jw_bool(w, "stdout", r->out.seen > r->out.cap);
    jw_bool(w, "stderr", r->err.seen > r->err.cap);
    jw_end_obj(w);
    jw_u64(w, "wall_ms", x->wall_ms);
    jw_u64(w, "cpu_ms", x->cpu_ms);
    jw_u64(w, "peak_memory_bytes", x->peak_memory);
    if (x->has_changes) {
        jw_obj(w, "changes");
        jw_u64(w, "added", x->changes.added);
        jw_u64(w, "modified", x->changes.modified);
        jw_u64(w, "deleted", x->changes.deleted);
        jw_end_obj(w);
    } else {
        jw_null(w, "changes");
    }
    jw_obj(w, "limits");
    for (size_t i = 0; i < x->n_limits; i++) {
        const struct limit_report *l = &x->limits[i];
        jw_obj(w, l->name);
        if (strcmp(l->name, "cpus") == 0)
            jw_double(w, "value", (double)l->value / 1000);
        else
            jw_u64(w, "value", l->value);
        jw_str(w, "enforced", l->how);
        jw_end_obj(w);
    }
    jw_end_obj(w);
}

static void set_output(struct stream_output *o, int fd, bool json, bool raw, const struct plan *p,
                       bool asked)
{
    struct stat st;
    bool file = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || isatty(fd));

    o->fd = json ? -1 : fd;
    o->terminal = !json && !raw && isatty(fd);
    /* whoever redirects to a file wants all of it; a pipe's reader may not be ready for gigabytes */
    o->cap = p->max_output == 0 || weakened() & WEAK_OUTPUT || (!asked && !json && file)
                 ? UINT64_MAX
                 : p->max_output;
}

static void opening_line(const struct plan *p)
{
    AUTOSTR struct str dir = STR_INIT;
    str_add_escaped(&dir, p->project, strlen(p->project));
    cmd_note("copy of %s on %s, network %s, changes %s", dir.p,
             strcmp(p->image, "host") == 0 ? "this machine's own packages (image host)" : p->image,
             net_mode_word(p->net->mode),
             p->mode == WORKSPACE_BIND ? "go to the project itself"
             : p->keep                 ? "kept apart"
                                       : "thrown away");
}

static void on_prepare(void)
{
    cmd_say("preparing the system's directory layer for user 0, once; this takes some seconds");
}

static void on_start(const struct run_req *r)
{
    const struct plan *p = r->plan;
    opening_line(p);
    if (r->ids_note)
        cmd_note("%s", r->ids_note);
    for (size_t i = 0; i < p->missing.n; i++) {
        AUTOSTR struct str path = STR_INIT;
        str_add_escaped(&path, p->missing.v[i], strlen(p->missing.v[i]));
        cmd_note("not in the copy: %s (a mount that is no ordinary file system)", path.p);
    }
}

static const char *suggestion(const struct plan *p)
{
    /* `petri run alpine sh`: docker's habit, the first word an image */
    return p->argv.n > 1 && !strchr(p->argv.v[0], '/') && p->argv.v[1][0] != '-' ? p->argv.v[0]
                                                                                 : NULL;
}

/* A start that failed: where the machine lacks something, that is the message, with its remedy. */
static void explain(struct err **e)
{
    static const char *const needs[] = { "proc", "overlay", "idmap", "store" };
    char *remedy =
        (*e)->code == ERR_FAILED || (*e)->code == ERR_UNSUPPORTED ? probe_userns_remedy() : NULL;

    if (remedy) {
        err_new(e, ERR_UNSUPPORTED, "%s", remedy);
        free(remedy);
        return;
    }
    for (size_t i = 0; (*e)->code == ERR_FAILED && i < ARRAY_LEN(needs); i++)
        if (probe_refuse(needs[i], e) < 0)
            return;
}

static int fail(struct run_flags *f, const struct plan *p, int status, struct err *e)
{
    if (status == 125 && p && e)
        explain(&e);
    if (status == 127 && p && suggestion(p)) {
        struct err *hint = NULL;
        err_new(&hint, ERR_NOT_FOUND, "'%s': not a command here. Did you mean --image %s?",
                p->argv.v[0], p->argv.v[0]);
        err_free(e);
        e = hint;
    }
    return cmd_fail_err(status, e, f->json);
}

static void say_denied(const struct denied *d, const struct net_policy *p)
{
    AUTOFREE char *flags = denied_flags(d, p);
    AUTOSTR struct str to = STR_INIT;
    const char *what = d->name ? d->name : d->addr ? d->addr : "?";

    str_add_escaped(&to, what, strlen(what));
    if (d->port)
        str_addf(&to, ":%llu", (unsigned long long)d->port);
    cmd_note("denied %s: %s%s%s", to.p, d->why ? d->why : "by its policy",
             flags ? "; to allow it: " : "", flags ? flags : "");
}

static int run_plan(struct run_flags *f, const struct plan *p, const struct paths *paths)
{
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;
    struct run_result x;
    struct run_req r = {
        .plan = p, .paths = paths, .options = &f->o.given, .in = 0, .count_changes = f->json
    };
    int rc;

    set_output(&r.out, 1, f->json, f->raw, p, f->o.max_output != NULL);
    set_output(&r.err, 2, f->json, f->raw, p, f->o.max_output != NULL);
    if (!f->quiet && !f->json) {
        r.on_start = on_start;
        r.on_prepare = on_prepare;
    }
    rc = sandbox_run(&r, &x, &e);
    if (rc < 0 || e) {
        str_reset(&r.out.kept);
        str_reset(&r.err.kept);
        return fail(f, p, x.status, e);
    }
    AUTOFREE char *loose = sandbox_unenforced(&x);
    if (f->json) {
        json_result(&w, p, &r, &x);
        jw_end_obj(&w);
        puts(w.out.p);
    } else if (!f->quiet) {
        if (loose)
            cmd_note("not enforced for this user on this machine: %s (petri doctor says why)",
                     loose);
        if (x.timed_out)
            cmd_note("timed out; everything inside was killed");
        if (x.events & EVENT_OOM)
            cmd_note("out of memory: the limit was reached (--memory)");
        if (x.events & EVENT_DISK)
            cmd_note("no space left: the disk limit was reached (--disk)");
        for (size_t i = 0; i < x.denied.n; i++)
            say_denied(&x.denied.v[i], p->net);
        if (p->keep)
            cmd_note("kept as %s; remove it: petri rm %s", p->name ? p->name : p->id,
                     p->name ? p->name : p->id);
    }
    str_reset(&r.out.kept);
    str_reset(&r.err.kept);
    denied_free_p(&x.denied);
    return cmd_output_lost(r.out.lost ? r.out.lost : r.err.lost, x.status);
}

static int configure(const struct cmd *c, struct run_flags *f, const struct paths *paths)
{
    struct configured how = { .agent = f->agent,
                              .profile = f->profile,
                              .workspace = f->o.workspace,
                              .json = f->json,
                              .quiet = f->quiet,
                              .status = 125 };
    return configured_options(c, &how, paths, &f->o);
}

static int run_run(const struct cmd *c, int argc, char **argv)
{
    struct run_flags f = { 0 };
    CLEANUP(plan_free_p) struct plan *p = NULL;
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(plan_holds_free_p) struct plan_holds holds = { .etc_fd = -1, .caches_fd = -1 };
    const struct opt *o;
    const char *value = NULL;
    struct err *e = NULL;
    bool bad = false;
    int rc;

    if (!cmd_have_stdio())
        return 125;
    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        take_opt(&f, o->name, value);
    if (bad)
        return c->usage_exit;
    if (f.detach)
        return cmd_usage(c,
                         "-d: a run ends with its command; in a sandbox that stays: petri start, "
                         "petri exec -d -- CMD");
    for (int i = optind; i < argc; i++)
        strv_add(&f.o.argv, argv[i]);
    f.o.tty = !f.json && !f.no_tty && (f.tty || (isatty(0) && isatty(1)));
    if (f.tty && !(isatty(0) && isatty(1)))
        rc = cmd_fail(125, "-t: stdin and stdout must be a terminal; leave -t out to use pipes");
    else if (!f.o.argv.n && !f.o.image)
        rc = cmd_usage(c, "no command given; like: petri run -- make test");
    else if (paths_find(&paths, &e) < 0)
        rc = cmd_fail_err(125, e, f.json);
    else if ((rc = configure(c, &f, &paths)) == 0) {
        signal(SIGPIPE, SIG_IGN);
        signal(SIGCHLD,
               SIG_DFL); /* a caller that ignores it would have our children reap themselves */
        umask(022);      /* what is made for the sandbox must be readable in it */
        rc = plan_make(&f.o, &paths, &p, &holds, &e) < 0 ? fail(&f, NULL, 125, e)
                                                         : run_plan(&f, p, &paths);
    }
    options_free_p(&f.o);
    return rc;
}

const struct cmd cmd_run = {
    .name = "run",
    .summary = "run one command in a throw-away copy of the project",
    .usage = "[flags] [--] CMD...",
    .about =
        "The command sees the project at its own path and at /workspace, this machine's "
        "programs, and "
        "nothing else of the machine: no home, no credentials; of the network ports 80 and 443 of "
        "public hosts (--network). What it writes is "
        "thrown "
        "away; the project is not touched.\n"
        "Exit status: the command's own; 124 timed out, 125 petri failed, 126 not executable, "
        "127 not "
        "found, 128+n killed by signal n.",
    .examples = "petri run -- make test\trun the tests in a copy\n"
                "petri run --json -- npm test\tresult, output and changes as JSON\n"
                "petri run -m 512M --timeout 30s -- ./fuzz\twith limits\n"
                "petri run --hide .env -- env\twithout a secret file",
    .opts = run_opts,
    .n_opts = ARRAY_LEN(run_opts),
    .complete = "command",
    .usage_exit = 125,
    .run = run_run,
};
