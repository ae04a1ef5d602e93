/* cmd/status.c - petri status, jobs, wait, kill: what a sandbox does. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/termfilter.h"
#include "cmd/cmd.h"
#include "cmd/life.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/net_rules.h"

static int find(struct life *f, const struct cmd *c, int argc, char **argv, int max_words,
                char **ret_id, struct err **e)
{
    if (life_parse(f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f->n_words > max_words)
        return cmd_usage(c, "'%s': too many words", f->words[max_words]);
    if (paths_find(&f->paths, e) < 0 ||
        sandbox_find(&f->paths, f->n_words == max_words ? f->words[0] : NULL, NULL, ret_id, e) < 0)
        return cmd_fail_err(1, TAKE_PTR(*e), f->json);
    return 0;
}

/* What petri-change counts; NULL where it can't. */
static struct json *count_changes(const struct paths *paths, const char *id)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOFREE char *helper = paths_helper("petri-change", &e);
    AUTOSTR struct str out = STR_INIT;
    struct json *j = NULL;
    char buf[4096];
    int p[2], status = 0;
    ssize_t n;
    pid_t pid;

    if (!helper || pipe2(p, O_CLOEXEC) < 0)
        return NULL;
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(p[1], 1);
        dup2(null, 2);
        execl(helper, "petri-change", "count", paths->data, id, "--json", (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    while (pid > 0 && (n = RETRY(read(p[0], buf, sizeof buf))) > 0 && out.len < 1 << 20)
        str_addn(&out, buf, (size_t)n);
    close(p[0]);
    if (pid > 0 && RETRY(waitpid(pid, &status, 0)) == pid && status == 0 && out.len)
        (void)json_parse(out.p, out.len, &j, NULL);
    return j;
}

static uint64_t number(const struct json *j, const char *key)
{
    uint64_t v = 0;
    json_u64(j, key, &v);
    return v;
}

static void json_status(const struct state *s, const struct json *live, const struct json *changes)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_str(&w, "id", s->id);
    jw_str(&w, "name", s->name);
    jw_str(&w, "state", live ? "running" : "stopped");
    jw_str(&w, "image", s->image);
    jw_str(&w, "runtime", "crun");
    jw_str(&w, "project", s->project);
    jw_str(&w, "workspace_mode", s->mode);
    if (!live) {
        CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
        jw_obj(&w, "network");
        if (net_of_record(s, &p, NULL) == 0)
            jw_str(&w, "policy", net_mode_word(p.mode));
        jw_end_obj(&w);
    }
    jw_u64(&w, "snapshots", s->n_snaps);
    for (size_t i = 0; live && i < live->n; i++)
        if (strcmp(live->keys[i], "state") != 0)
            jw_json(&w, live->keys[i], live->items[i]);
    if (changes)
        jw_json(&w, "changes", changes);
    else
        jw_null(&w, "changes");
    jw_end_obj(&w);
    puts(w.out.p);
}

static void print_network(const struct state *s, const struct json *net)
{
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
    const struct json *c = json_get(net, "counts");
    char in[24], out[24];

    if (!net && net_of_record(s, &p, NULL) == 0)
        printf("network %s\n", net_mode_word(p.mode));
    if (!net)
        return;
    format_size(number(c, "bytes_in"), in);
    format_size(number(c, "bytes_out"), out);
    printf("network %s: %llu allowed, %llu denied, %s in, %s out\n", json_str(net, "policy"),
           (unsigned long long)number(c, "allowed"), (unsigned long long)number(c, "denied"), in,
           out);
}

/* "M package.json", "! editor" behind it: letters as petri diff --name-status has them. */
static void print_first(const struct json *changes, uint64_t all)
{
    const struct json *first = json_arr(changes, "first");

    for (size_t i = 0; first && i < first->n; i++) {
        const char *path = json_str(first->items[i], "path"),
                   *kind = json_str(first->items[i], "kind");
        const char *flags = json_str(first->items[i], "flags");
        AUTOSTR struct str shown = STR_INIT;
        str_add_escaped(&shown, path ? path : "?", strlen(path ? path : "?"));
        printf("  %c %s%s%s\n",
               !kind || str_eq(kind, "mode") ? 'M'
               : str_eq(kind, "type")        ? 'T'
                                             : kind[0] - 'a' + 'A',
               shown.p, flags && *flags ? "   ! " : "", flags ? flags : "");
    }
    if (first && all > first->n)
        printf("  and %llu more: petri diff --stat\n", (unsigned long long)(all - first->n));
}

static void print_status(const struct state *s, const struct json *live, const struct json *changes)
{
    const struct json *limits = json_get(live, "limits"), *events = json_arr(live, "events");
    char mem[24], max[24], disk[24];

    printf("%s  %s", s->name ? s->name : s->id, live ? "running" : "stopped");
    if (live) {
        uint64_t up = number(live, "uptime_ms") / 1000;
        format_size(number(live, "memory"), mem);
        if (str_eq(json_str(limits, "memory_enforced"), "none"))
            snprintf(max, sizeof max, "any");
        else
            format_size(number(limits, "memory"), max);
        format_size(number(live, "disk"), disk);
        if (up < 120)
            printf(" %llus", (unsigned long long)up);
        else
            printf(" %llum", (unsigned long long)up / 60);
        printf("   cpu %s s   memory %s of %s   %llu pids   disk %s",
               json_get(live, "cpu_seconds")->string, mem, max,
               (unsigned long long)number(live, "pids"), disk);
    }
    printf("\nimage %s, runtime crun, %zu snapshots\n", s->image ? s->image : "-", s->n_snaps);
    print_network(s, json_get(live, "network"));
    for (size_t i = 0; events && i < events->n; i++)
        if (!str_eq(events->items[i]->string, "net_denied"))
            printf("limit hit: %s\n", events->items[i]->string);
    if (changes) {
        uint64_t a = number(changes, "added"), m = number(changes, "modified"),
                 d = number(changes, "deleted"), ig = number(changes, "ignored"),
                 host = number(changes, "host_changed");
        printf("changes: +%llu ~%llu -%llu", (unsigned long long)a, (unsigned long long)m,
               (unsigned long long)d);
        if (ig)
            printf(", %llu ignored files", (unsigned long long)ig);
        printf("\n");
        print_first(changes, a + m + d);
        if (host)
            printf(
                "the project changed since: %llu files; petri refresh lets the sandbox see them\n",
                (unsigned long long)host);
        if (a + m + d)
            printf("nothing of this is in your project yet:  petri diff | petri promote | petri "
                   "rollback | petri rm\n");
    }
}

static int status_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOSTATE struct state s = { 0 };
    AUTOJSON struct json *live = NULL, *changes = NULL;
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    int rc = find(&f, c, argc, argv, 1, &id, &e);

    if (rc)
        return rc;
    if (state_read(&f.paths, id, &s, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    (void)sandbox_ask(&f.paths, id, "{\"op\":\"status\"}", &live, NULL);
    changes = count_changes(&f.paths, id);
    if (f.json)
        json_status(&s, live, changes);
    else
        print_status(&s, live, changes);
    return 0;
}

/* --- jobs ---------------------------------------------------------------------------------------- */

static void print_job(const struct json *j)
{
    const struct json *argv = json_arr(j, "argv");
    AUTOSTR struct str words = STR_INIT;
    for (size_t i = 0; argv && i < argv->n; i++) {
        str_add(&words, i ? " " : "");
        str_add_escaped(&words, argv->items[i]->string, strlen(argv->items[i]->string));
    }
    const char *state = json_str(j, "state");
    const struct json *code = json_get(j, "exit_code");
    printf("%-4s  %-8s  %-4s  %s\n", json_str(j, "job"), state,
           code && code->type == JSON_NUMBER ? code->string : "-", words.p ? words.p : "");
}

static int jobs_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOJSON struct json *j = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *id = NULL;
    struct err *e = NULL;
    const struct json *list;
    int rc = find(&f, c, argc, argv, 1, &id, &e);

    if (rc)
        return rc;
    if (sandbox_ask(&f.paths, id, "{\"op\":\"jobs\"}", &j, &e) < 0)
        return cmd_fail_err(1, e, f.json);
    list = json_arr(j, "jobs");
    if (f.json) {
        jw_json(&w, NULL, list);
        puts(w.out.p);
        return 0;
    }
    printf("%-4s  %-8s  %-4s  %s\n", "JOB", "STATE", "EXIT", "COMMAND");
    for (size_t i = 0; list && i < list->n; i++)
        print_job(list->items[i]);
    return 0;
}

/* `[SANDBOX] JOB`, and a request about it. */
static int ask_job(const struct cmd *c, int argc, char **argv, const char *op, struct life *f,
                   struct json **ret, struct err **e)
{
    AUTOFREE char *id = NULL, *request = NULL;
    uint64_t job, sig = SIGTERM;

    if (life_parse(f, c, argc, argv) < 0)
        return c->usage_exit;
    if (f->n_words < 1 || f->n_words > 2)
        return cmd_usage(c, "which job? petri jobs lists them");
    if (parse_uint(f->words[f->n_words - 1], 1000000000, &job, e) < 0)
        return cmd_fail_err(2, TAKE_PTR(*e), f->json);
    if (f->signal && parse_uint(f->signal, 64, &sig, NULL) < 0) {
        const char *n = str_starts(f->signal, "SIG") ? f->signal + 3 : f->signal;
        for (sig = 1; sig < 32; sig++)
            if (str_eq(sigabbrev_np((int)sig), n))
                break;
        if (sig == 32)
            return cmd_usage(c, "-s '%s': a signal like TERM or 15", f->signal);
    }
    if (paths_find(&f->paths, e) < 0 ||
        sandbox_find(&f->paths, f->n_words == 2 ? f->words[0] : NULL, NULL, &id, e) < 0)
        return cmd_fail_err(1, TAKE_PTR(*e), f->json);
    request = str_printf("{\"op\":\"%s\",\"job\":%llu,\"signal\":%llu}", op,
                         (unsigned long long)job, (unsigned long long)sig);
    if (sandbox_ask(&f->paths, id, request, ret, e) < 0)
        return cmd_fail_err(1, TAKE_PTR(*e), f->json);
    return 0;
}

static int wait_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOJSON struct json *j = NULL;
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;
    int rc = ask_job(c, argc, argv, "wait", &f, &j, &e);

    if (rc)
        return rc;
    if (f.json) {
        jw_json(&w, NULL, j);
        puts(w.out.p);
    }
    return json_str(j, "job") ? (int)number(j, "exit_code") : 128 + SIGKILL;
}

static int kill_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(life_free_p) struct life f = { 0 };
    AUTOJSON struct json *j = NULL;
    struct err *e = NULL;
    int rc = ask_job(c, argc, argv, "kill", &f, &j, &e);
    if (rc == 0 && f.json)
        puts("{}");
    return rc;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print JSON", NULL                                                        \
    }

static const struct opt json_opts[] = { JSON_OPT };
static const struct opt kill_opts[] = {
    { "signal", 's', "SIGNAL", "which signal (TERM); KILL ends all that the job started", NULL },
    JSON_OPT,
};

#define COMMAND(var, word, text, use, of, table, fn)                                               \
    const struct cmd var = { .name = word,                                                         \
                             .summary = text,                                                      \
                             .usage = use,                                                         \
                             .opts = table,                                                        \
                             .n_opts = ARRAY_LEN(table),                                           \
                             .complete = of,                                                       \
                             .usage_exit = 2,                                                      \
                             .run = fn }
COMMAND(cmd_status, "status", "what a sandbox does, uses and has changed", "[SANDBOX]", "sandbox",
        json_opts, status_run);
COMMAND(cmd_jobs, "jobs", "commands started with petri exec -d", "[SANDBOX]", "sandbox", json_opts,
        jobs_run);
COMMAND(cmd_wait, "wait", "wait for a job; ends with its exit status", "[SANDBOX] JOB", "job",
        json_opts, wait_run);
COMMAND(cmd_kill, "kill", "send a job a signal", "[-s SIGNAL] [SANDBOX] JOB", "job", kill_opts,
        kill_run);
