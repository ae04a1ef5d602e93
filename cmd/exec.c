/* cmd/exec.c - petri exec and petri shell: a command in a sandbox that runs already. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/attach.h"
#include "cmd/config.h"
#include "runtime/client/env.h"

enum { MAX_OUTPUT = 10 << 20 };

#define COMMON_OPTS                                                                                \
    { "env", 'e', "NAME[=VALUE]", "set a variable, or pass the host's", NULL },                    \
        { "env-file", 0, "FILE", "read variables from a file, one NAME=VALUE a line", "file" },    \
        { "workdir", 'w', "DIR", "start there; relative to the project", "dir" },                  \
        { "user", 'u', "USER[:GROUP]", "run as this user inside", "user" },                        \
        { "raw-terminal", 0, NULL, "do not filter what the command sends to the terminal", NULL }, \
    {                                                                                              \
        "quiet", 'q', NULL, "no word from petri itself", NULL                                      \
    }

static const struct opt exec_opts[] = {
    COMMON_OPTS,
    { "interactive", 'i', NULL, "forward stdin (it always is)", NULL },
    { "tty", 't', NULL, "give the command a terminal (the default on a terminal)", NULL },
    { "no-tty", 'T', NULL, "give it none", NULL },
    { "detach", 'd', NULL, "leave it running; prints the number of the job", NULL },
    { "timeout", 0, "TIME", "kill it and all it started after this long", NULL },
    { "max-output", 0, "SIZE", "cut each output stream after this much (10M; 0: no limit)", NULL },
    { "json", 0, NULL, "print one object with result and output", NULL },
};
static const struct opt shell_opts[] = { COMMON_OPTS };

struct exec_flags {
    struct strv env, env_files, vars;
    const char *workdir, *user, *timeout, *max_output, *name;
    bool json, quiet, raw, tty, no_tty, detach;
    uint64_t timeout_ms, cap;
    const char *const *argv;
};

static void flags_free_p(struct exec_flags *f)
{
    strv_free_p(&f->env);
    strv_free_p(&f->env_files);
    strv_free_p(&f->vars);
}

static void take_opt(struct exec_flags *f, const char *name, const char *value)
{
    const struct {
        const char *name;
        struct strv *list;
        const char **word;
        bool *flag;
    } table[] = {
        { "env", &f->env, NULL, NULL },         { "env-file", &f->env_files, NULL, NULL },
        { "workdir", NULL, &f->workdir, NULL }, { "user", NULL, &f->user, NULL },
        { "timeout", NULL, &f->timeout, NULL }, { "max-output", NULL, &f->max_output, NULL },
        { "tty", NULL, NULL, &f->tty },         { "no-tty", NULL, NULL, &f->no_tty },
        { "detach", NULL, NULL, &f->detach },   { "raw-terminal", NULL, NULL, &f->raw },
        { "quiet", NULL, NULL, &f->quiet },     { "json", NULL, NULL, &f->json },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].list)
            strv_add(table[i].list, value);
        if (table[i].word)
            *table[i].word = value;
        if (table[i].flag)
            *table[i].flag = true;
    }
}

/* Values become numbers and variables; nothing is looked up yet. */
static int judge(struct exec_flags *f, struct err **e)
{
    int rc;

    f->cap = MAX_OUTPUT;
    if (f->timeout && (rc = parse_duration(f->timeout, &f->timeout_ms, e)) < 0)
        return err_wrap(e, "--timeout");
    if (f->max_output && (rc = parse_size(f->max_output, &f->cap, e)) < 0)
        return err_wrap(e, "--max-output");
    if (f->workdir && !*f->workdir)
        return err_new(e, ERR_INVALID, "-w '': a directory is needed");
    if (f->detach && f->max_output)
        return err_new(e, ERR_UNSUPPORTED,
                       "-d with --max-output: of a job's output 10M are kept (petri logs)");
    if (f->detach && f->user)
        return err_new(e, ERR_UNSUPPORTED, "-d with -u: a job runs as the sandbox's own user");
    f->tty = !f->json && !f->no_tty && !f->detach && (f->tty || (isatty(0) && isatty(1)));
    if (f->tty && !(isatty(0) && isatty(1)))
        return err_new(e, ERR_INVALID,
                       "-t: stdin and stdout must be a terminal; leave -t out to use pipes");
    for (const char *const *v = (const char *const[]){ "TERM", "COLORTERM", NULL }; *v; v++)
        if (f->tty && getenv(*v))
            strv_setenv(&f->vars, *v, getenv(*v));
    return env_take(&f->env_files, &f->env, &f->vars, e);
}

/* `[SANDBOX] -- CMD...`, or without `--`: a first word that names a sandbox is one. */
static int split(struct exec_flags *f, struct target *b, int argc, const char *const *argv,
                 struct petri_error *e)
{
    int i = optind;

    if (i > 1 && strcmp(argv[i - 1], "--") == 0) {
        f->argv = argv + i;
        return target_open(b, NULL, e);
    }
    if (i + 1 < argc && strcmp(argv[i + 1], "--") == 0) {
        f->name = argv[i];
        f->argv = argv + i + 2;
        return target_open(b, f->name, e);
    }
    f->argv = argv + i;
    if (i < argc && target_open(b, argv[i], e) == 0) {
        /* the beginning of an ID must not turn a command into a sandbox by chance */
        size_t n = strlen(argv[i]);
        if (n >= strlen(petri_id(b->s)) || strncmp(petri_id(b->s), argv[i], n) != 0) {
            f->name = argv[i];
            f->argv++;
            return 0;
        }
        petri_close(b->s);
        b->s = NULL;
    }
    return i < argc ? target_open(b, NULL, e) : 0;
}

static void set_output(struct stream_output *o, int fd, const struct exec_flags *f)
{
    struct stat st;
    bool file = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || isatty(fd));

    o->fd = f->json ? -1 : fd;
    o->terminal = !f->json && !f->raw && isatty(fd);
    /* whoever redirects to a file wants all of it; a pipe's reader may not be ready for gigabytes */
    o->cap = f->cap == 0 || (!f->max_output && !f->json && file) ? UINT64_MAX : f->cap;
}

/* Limits that were hit since then, and what the gateway refused; the keeper knows. NULL: it does not say. */
static struct json *ask_keeper(struct petri_sandbox *s, uint64_t since_ms)
{
    AUTOFREE char *ask =
        str_printf("{\"op\":\"net_denied\",\"since_ms\":%llu}", (unsigned long long)since_ms);
    AUTOFREE char *answer = NULL;
    struct json *j = NULL;

    if (petri_control(s, ask, 2000, &answer, NULL) < 0 ||
        json_parse(answer, strlen(answer), &j, NULL) < 0)
        return NULL;
    return j;
}

static void json_event(struct jsonw *w, const char *type)
{
    jw_obj(w, NULL);
    jw_str(w, "type", type);
    jw_end_obj(w);
}

static void json_happened(struct jsonw *w, struct petri_sandbox *s, uint64_t since_ms)
{
    AUTOJSON struct json *j = ask_keeper(s, since_ms);
    const struct json *limits = j ? json_arr(j, "limits") : NULL,
                      *denied = j ? json_arr(j, "denied") : NULL;

    for (size_t i = 0; limits && i < limits->n; i++)
        json_event(w, limits->items[i]->string);
    for (size_t i = 0; denied && i < denied->n; i++)
        jw_json(w, NULL, denied->items[i]);
}

/* Whoever was killed may want to know that it was a limit. */
static void say_limits(struct petri_sandbox *s, uint64_t since_ms)
{
    AUTOJSON struct json *j = ask_keeper(s, since_ms);
    const struct json *limits = j ? json_arr(j, "limits") : NULL;

    for (size_t i = 0; limits && i < limits->n; i++) {
        if (str_eq(limits->items[i]->string, "oom"))
            cmd_note("out of memory: the sandbox's limit was reached; petri restart --memory SIZE "
                     "gives it more");
        if (str_eq(limits->items[i]->string, "disk"))
            cmd_note("no space left: the sandbox's disk limit was reached, and what ran was ended; "
                     "remove files in it, or petri restart --disk SIZE gives it more");
    }
}

static void json_result(struct petri_sandbox *s, const struct attach *a, uint64_t since_ms)
{
    AUTOJSONW struct jsonw w = { 0 };
    bool cut[2] = { a->out.seen > a->out.cap, a->err.seen > a->err.cap };

    jw_obj(&w, NULL);
    jw_str(&w, "id", petri_id(s));
    if (strcmp(petri_name(s), petri_id(s)) != 0)
        jw_str(&w, "name", petri_name(s));
    jw_int(&w, "exit_code", a->end.exit_code >= 0 ? a->end.exit_code : a->end.status);
    if (a->end.signal)
        jw_int(&w, "signal", a->end.signal);
    else
        jw_null(&w, "signal");
    jw_bool(&w, "timed_out", a->end.timed_out);
    jw_arr(&w, "events");
    if (a->end.timed_out)
        json_event(&w, "timeout");
    if (cut[0] || cut[1])
        json_event(&w, "output_truncated");
    json_happened(&w, s, since_ms);
    jw_end_arr(&w);
    cmd_json_bytes(&w, "stdout", a->out.kept.p, a->out.kept.len);
    cmd_json_bytes(&w, "stderr", a->err.kept.p, a->err.kept.len);
    jw_obj(&w, "truncated");
    jw_bool(&w, "stdout", cut[0]);
    jw_bool(&w, "stderr", cut[1]);
    jw_end_obj(&w);
    jw_bool(&w, "held_open", a->held);
    jw_u64(&w, "wall_ms", a->wall_ms);
    jw_u64(&w, "cpu_ms", a->end.cpu_us / 1000);
    jw_u64(&w, "peak_memory_bytes", a->end.max_rss);
    jw_end_obj(&w);
    puts(w.out.p);
}

static int run_attached(struct exec_flags *f, struct petri_sandbox *s, struct petri_error *e)
{
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct attach a = { .tty = f->tty, .timeout_ms = f->timeout_ms };
    struct winsize ws = { 0 };
    uint64_t since = clock_ms(CLOCK_BOOTTIME);
    int status;

    set_output(&a.out, 1, f);
    set_output(&a.err, 2, f);
    if (f->tty)
        ioctl(0, TIOCGWINSZ, &ws);
    o.argv = f->argv;
    o.env = (const char *const *)f->vars.v;
    o.cwd = f->workdir;
    o.user = f->user;
    o.timeout_ms = f->timeout_ms;
    o.tty = f->tty;
    o.rows = ws.ws_row;
    o.cols = ws.ws_col;
    if (attach_run(&a, s, &o, e) < 0) {
        status = cmd_fail_petri(a.end.status, e, f->json);
    } else {
        status = a.end.status;
        if (f->json)
            json_result(s, &a, since);
        if (!f->json && !f->quiet && a.end.timed_out)
            cmd_note("timed out; the command and all it started were killed");
        else if (!f->json && !f->quiet && status == 128 + SIGKILL)
            say_limits(s, since);
        if (!f->json && !f->quiet && a.held)
            cmd_note("the command has ended; what it left in the background still holds its output "
                     "open and was not waited for");
        status = cmd_output_lost(a.out.lost ? a.out.lost : a.err.lost, status);
    }
    str_reset(&a.out.kept);
    str_reset(&a.err.kept);
    return status;
}

/* The keeper starts it and keeps its output. */
static int run_detached(const struct exec_flags *f, struct petri_sandbox *s, struct petri_error *e)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *answer = NULL;
    AUTOJSON struct json *j = NULL;

    jw_obj(&w, NULL);
    jw_str(&w, "op", "job");
    jw_arr(&w, "argv");
    for (const char *const *v = f->argv; *v; v++)
        jw_str(&w, NULL, *v);
    jw_end_arr(&w);
    jw_strv(&w, "env", &f->vars);
    if (f->workdir)
        jw_str(&w, "cwd", f->workdir);
    if (f->timeout_ms)
        jw_u64(&w, "timeout_ms", f->timeout_ms);
    jw_end_obj(&w);
    if (petri_control(s, w.out.p, 0, &answer, e) < 0)
        return cmd_fail_petri(125, e, f->json);
    if (f->json)
        puts(answer);
    else if (json_parse(answer, strlen(answer), &j, NULL) == 0 && json_str(j, "job"))
        puts(json_str(j, "job"));
    else
        return cmd_fail(125, "the sandbox's keeper gave no job back: %s", answer);
    return 0;
}

static int exec_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(flags_free_p) struct exec_flags f = { 0 };
    CLEANUP(target_free_p) struct target b = { 0 };
    struct petri_error e = PETRI_ERROR_INIT;
    const struct opt *o;
    const char *value = NULL;
    struct err *why = NULL;
    bool bad = false;

    if (!cmd_have_stdio())
        return 125;
    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        take_opt(&f, o->name, value);
    if (bad)
        return c->usage_exit;
    if (judge(&f, &why) < 0)
        return cmd_fail_err(125, why, f.json);
    b.quiet = f.quiet;
    if (split(&f, &b, argc, (const char *const *)argv, &e) < 0)
        return cmd_fail_petri(125, &e, f.json);
    if (!f.argv[0])
        return cmd_usage(c, "no command given; like: petri exec -- make test");
    if (!f.quiet && !f.json && !b.started)
        configured_say_enabled();
    return f.detach ? run_detached(&f, b.s, &e) : run_attached(&f, b.s, &e);
}

static int shell_run(const struct cmd *c, int argc, char **argv)
{
    /* not a login shell: /etc/profile would take tool chains off the PATH */
    static const char *const shell[] = {
        "sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i", NULL
    };
    CLEANUP(flags_free_p) struct exec_flags f = { 0 };
    CLEANUP(target_free_p) struct target b = { 0 };
    struct petri_error e = PETRI_ERROR_INIT;
    const struct opt *o;
    const char *value = NULL;
    struct err *why = NULL;
    bool bad = false;

    if (!cmd_have_stdio())
        return 125;
    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        take_opt(&f, o->name, value);
    if (bad)
        return c->usage_exit;
    if (optind + 1 < argc)
        return cmd_usage(c, "only a sandbox can be named; commands are for petri exec");
    if (!isatty(0) || !isatty(1))
        return cmd_fail(125, "a shell needs a terminal; without one: petri exec -- sh -c ...");
    f.tty = true;
    f.name = optind < argc ? argv[optind] : NULL;
    f.argv = shell;
    if (judge(&f, &why) < 0)
        return cmd_fail_err(125, why, false);
    b.quiet = f.quiet;
    if (target_open(&b, f.name, &e) < 0)
        return cmd_fail_petri(125, &e, false);
    if (!f.quiet && !b.started)
        configured_say_enabled();
    return run_attached(&f, b.s, &e);
}

const struct cmd cmd_exec_ = {
    .name = "exec",
    .summary = "run a command in a running sandbox",
    .usage = "[flags] [SANDBOX] [--] CMD...",
    .about =
        "Without SANDBOX the command runs in the project's own sandbox, which is made and started "
        "on first use. Words before -- name the sandbox. Without -- a first word that is a "
        "sandbox's name or ID is the sandbox, otherwise it is the command.\n"
        "What the command leaves running in the background goes on; it is not waited for. "
        "When petri exec is killed, or its time is over, the command and all it started are "
        "killed.\n"
        "Exit status: the command's own; 124 timed out, 125 petri failed, 126 not executable, "
        "127 not found, 128+n killed by signal n.",
    .examples = "petri exec -- make test\tin the project's own sandbox\n"
                "petri exec web -- cat /etc/os-release\tin the one named web\n"
                "petri exec --json --timeout 30s -- npm test\tresult and output as JSON\n"
                "petri exec -d -- ./server\tin the background: petri jobs shows it",
    .opts = exec_opts,
    .n_opts = ARRAY_LEN(exec_opts),
    .complete = "command",
    .usage_exit = 125,
    .run = exec_run,
};

const struct cmd cmd_shell = {
    .name = "shell",
    .aliases = "sh",
    .summary = "an interactive shell in a running sandbox",
    .usage = "[flags] [SANDBOX]",
    .about =
        "bash if the sandbox has it, else sh, on a terminal of its own: job control, resizing and "
        "full-screen programs work. Without SANDBOX it is the project's own, made and started on "
        "first use.",
    .examples = "petri shell\tin the project's own sandbox\n"
                "petri shell -u 0 web\tas user 0 in the one named web",
    .opts = shell_opts,
    .n_opts = ARRAY_LEN(shell_opts),
    .complete = "sandbox",
    .usage_exit = 125,
    .run = shell_run,
};
