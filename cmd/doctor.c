/* cmd/doctor.c - `petri doctor`: the table of runtime/sandbox/probe.h for people and for programs. */
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"
#include "runtime/sandbox/probe.h"

enum { WIDTH = 96 };

static const struct opt doctor_opts[] = {
    { "json", 0, NULL, "one JSON object: ok, kernel, checks", NULL },
};

/* Words from column `at` on, wrapped and safe for a terminal. */
static void wrapped(const char *text, int at)
{
    AUTOSTR struct str safe = STR_INIT;
    int col = at;

    str_add_escaped(&safe, text, strlen(text));
    for (const char *p = safe.p ? safe.p : ""; *p;) {
        int n = (int)strcspn(p, " ");
        if (col > at && col + 1 + n > WIDTH) {
            printf("\n%*s", at, "");
            col = at;
        } else if (col > at) {
            putchar(' ');
            col++;
        }
        printf("%.*s", n, p);
        col += n;
        p += n;
        p += strspn(p, " ");
    }
    putchar('\n');
}

static void print_line(const struct probe_result *p, int title, bool colour)
{
    static const char *const colours[] = { "\033[32m", "\033[33m", "\033[31m" };
    int at = 9 + title + 2;

    printf("%s%-7s%s  %-*s  ", colour ? colours[p->status] : "", probe_status_name(p->status),
           colour ? "\033[0m" : "", title, p->title);
    wrapped(p->value, at);
    if (p->status == PROBE_OK)
        return;
    if (p->means) {
        printf("%*s", at, "");
        wrapped(p->means, at);
    }
    /* Never wrapped: it is there to be copied. */
    if (p->fix) {
        AUTOSTR struct str safe = STR_INIT;
        str_add_escaped(&safe, p->fix, strlen(p->fix));
        printf("%*sfix: %s\n", at, "", safe.p);
    }
}

/* What could not be tried is left out: first things first. */
static void print_people(const struct probe_report *r)
{
    bool colour = cmd_colour(stdout);
    int title = 0, missing = 0, limited = 0, untried = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct probe_result *p = &r->v[i];
        int n = (int)strlen(p->title);
        title = n > title ? n : title;
        untried += p->untried;
        missing += !p->untried && p->required && p->status == PROBE_MISSING;
        limited += !p->untried && p->status == PROBE_LIMITED;
    }
    for (size_t i = 0; i < r->n; i++)
        if (!r->v[i].untried)
            print_line(&r->v[i], title, colour);
    putchar('\n');
    if (r->ok && limited)
        printf("Sandboxes work here; %d thing%s limited.\n", limited,
               limited == 1 ? " is" : "s are");
    else if (r->ok)
        printf("Sandboxes work here.\n");
    else
        printf("No sandbox can start here: %d needed thing%s missing", missing,
               missing == 1 ? " is" : "s are");
    if (!r->ok && untried)
        printf(", %d more could not be tried", untried);
    if (!r->ok)
        printf(".\n");
}

static void field(struct jsonw *w, const char *key, const char *text)
{
    if (text)
        jw_bytes(w, key, text, strlen(text));
    else
        jw_null(w, key);
}

static void print_json(const struct probe_report *r)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_bool(&w, "ok", r->ok);
    jw_str(&w, "petri", PETRI_VERSION);
    jw_str(&w, "kernel", r->kernel);
    jw_int(&w, "uid", (int64_t)geteuid());
    jw_arr(&w, "checks");
    for (size_t i = 0; i < r->n; i++) {
        const struct probe_result *p = &r->v[i];
        jw_obj(&w, NULL);
        jw_str(&w, "id", p->id);
        jw_str(&w, "title", p->title);
        jw_str(&w, "status", probe_status_name(p->status));
        jw_bool(&w, "required", p->required);
        jw_bool(&w, "tried", !p->untried);
        field(&w, "value", p->value);
        field(&w, "means", p->means);
        field(&w, "fix", p->fix);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    printf("%s\n", w.out.p);
}

static int doctor_run(const struct cmd *c, int argc, char **argv)
{
    AUTOREPORT struct probe_report r = { 0 };
    const char *value;
    bool bad, json = false;

    while (cmd_next_opt(c, argc, argv, &value, &bad))
        json = true;
    if (bad)
        return c->usage_exit;
    if (optind < argc)
        return cmd_usage(c, "'%s' is one word too many", argv[optind]);
    probe_all(NULL, NULL, &r);
    if (json)
        print_json(&r);
    else
        print_people(&r);
    return r.ok ? 0 : 1;
}

const struct cmd cmd_doctor = {
    .name = "doctor",
    .summary = "say what works on this machine, and what to do about the rest",
    .usage = "[--json]",
    .about =
        "Tries for real, in child processes that leave nothing behind, what a sandbox needs: "
        "namespaces, overlays in the store and over the current directory, limits, filters. Each "
        "line is ok, limited or missing, says what follows from it, and names the command that "
        "changes it.\n\n"
        "Run it as the user, and in the directory, that petri run is used in. The exit status is 0 "
        "when a sandbox can start, and 1 when something that every sandbox needs is missing.",
    .examples =
        "petri doctor\twhat is ok, limited or missing here\n"
        "petri doctor --json | jq '.checks[] | select(.status != \"ok\")'\tonly what is not",
    .opts = doctor_opts,
    .n_opts = ARRAY_LEN(doctor_opts),
    .usage_exit = 2,
    .run = doctor_run,
};
