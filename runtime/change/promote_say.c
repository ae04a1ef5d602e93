/* runtime/change/promote_say.c - what petri promote prints and asks. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/change/promote.h"
#include "runtime/change/render.h"

void promote_list(const struct promotion *m, bool all)
{
    for (size_t i = 0; i < m->p.n; i++)
        if (all || m->p.v[i].what == PICK_TAKE)
            talk_line("%-8s  %c  %s", m->p.v[i].merged ? "merged" : pick_name(m->p.v[i].what),
                      change_letter(m->s.c.v[i].kind), m->s.c.v[i].path);
}

void promote_left_out(const struct promotion *m)
{
    size_t shown = 0, held = picks_count(&m->p, PICK_HELD);

    for (size_t i = 0; i < m->p.n; i++) {
        enum pick_what what = m->p.v[i].what;
        if (what == PICK_TAKE || (what == PICK_SKIPPED && !m->p.v[i].why))
            continue;
        if (shown++ < 50)
            talk_notef("%s: '%s' (%s)", what == PICK_HELD ? "held back" : "left out",
                       m->s.c.v[i].path, m->p.v[i].why);
    }
    if (shown > 50)
        talk_notef("... and %zu more (--json lists them all)", shown - 50);
    if (held)
        talk_note("what is held back goes with --allow PATH, once you have read it");
    for (size_t i = 0; i < m->p.notes.n; i++)
        talk_note(m->p.notes.v[i]);
}

static void json_pick(struct jsonw *w, const struct promotion *m, size_t i)
{
    const struct change *ch = &m->s.c.v[i];
    const struct pick *k = &m->p.v[i];

    jw_obj(w, NULL);
    render_json_path(w, "path", ch->path);
    jw_str(w, "kind", change_kind_name(ch->kind));
    jw_str(w, "result", pick_name(k->what));
    if (k->merged)
        jw_bool(w, "merged", true);
    if (k->why)
        jw_str(w, "reason", k->why);
    jw_end_obj(w);
}

static void json_list(struct jsonw *w, const struct promotion *m, const char *key, unsigned which)
{
    jw_arr(w, key);
    for (size_t i = 0; i < m->p.n; i++)
        if (which & 1u << m->p.v[i].what)
            json_pick(w, m, i);
    jw_end_arr(w);
}

void promote_json(const struct promotion *m, const char *state, const char *message)
{
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_obj(&w, NULL);
    if (message) {
        jw_obj(&w, "error");
        jw_str(&w, "code", state);
        jw_str(&w, "message", message);
        jw_end_obj(&w);
    }
    jw_str(&w, "state", state);
    jw_str(&w, "sandbox", m->r.id);
    jw_str(&w, "name", m->r.name);
    render_json_path(&w, "project", m->r.project);
    jw_str(&w, "change", m->s.c.id);
    if (m->o.number)
        jw_u64(&w, "journal", m->o.number);
    if (m->branch_commit)
        jw_str(&w, "commit", m->branch_commit);
    json_list(&w, m, "files", 1u << PICK_TAKE);
    json_list(&w, m, "held",
              1u << PICK_HELD | 1u << PICK_SPECIAL | 1u << PICK_HIDDEN | 1u << PICK_READONLY);
    json_list(&w, m, "conflicts", 1u << PICK_CONFLICT);
    json_list(&w, m, "skipped", 1u << PICK_SKIPPED);
    jw_strv(&w, "refs", &m->refs);
    jw_strv(&w, "notes", &m->p.notes);
    jw_end_obj(&w);
    talk_json(&w);
}

void promote_summary(const struct promotion *m)
{
    AUTOFREE char *title = str_printf("%s against the project", record_label(&m->r));
    struct render r = { .out = stderr, .lead = "", .terminal = true, .width = 80 };
    struct summary s = { .title = title };

    render_summary(&r, &m->s.c, &s);
    promote_left_out(m);
}

/* --- asking --------------------------------------------------------------------------------------------------- */

static void show_diff(const struct promotion *m)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        AUTOSTRV struct strv argv = { 0 };
        strv_add(&argv, "petri-change");
        strv_add(&argv, "diff");
        strv_add(&argv, m->data);
        for (size_t i = 0; i < m->paths.n; i++)
            strv_addf(&argv, "path=%s/%s", m->r.project, m->paths.v[i]);
        strv_add(&argv, "--");
        strv_add(&argv, m->r.id);
        execv("/proc/self/exe", argv.v);
        _exit(127);
    }
    if (pid > 0)
        (void)RETRY(waitpid(pid, &status, 0));
}

char promote_ask(const struct promotion *m)
{
    for (int tries = 0; tries < 100; tries++) {
        AUTOSTR struct str where = STR_INIT;
        char line[64];
        str_add_escaped(&where, m->r.project, strlen(m->r.project));
        fprintf(stderr, "apply to %s? [y]es [p]atch by patch [d]iff [N]o  ", where.p);
        fflush(stderr);
        if (!fgets(line, sizeof line, stdin))
            return 'n';
        char c = line[0] >= 'A' && line[0] <= 'Z' ? (char)(line[0] + 32) : line[0];
        if (c == 'd')
            show_diff(m);
        else
            return c == 'y' || c == 'p' ? c : 'n';
    }
    return 'n';
}

void promote_progress(void *arg, size_t done, size_t all)
{
    enum { MANY = 1000, EVERY = 100, WIDE = 30 };
    const struct promotion *m = arg;
    int full = (int)(done * WIDE / (all ? all : 1));

    if (all <= MANY || (done % EVERY && done != all) || m->w.json || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r[%.*s%*s] %zu/%zu", full, "##############################", WIDE - full, "",
            done, all);
    if (done == all)
        fprintf(stderr, "\r%*s\r", WIDE + 30, "");
    fflush(stderr);
}
