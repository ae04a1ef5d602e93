#include "runtime/change/promote.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/events.h"
#include "base/fs.h"
#include "runtime/change/apply.h"
#include "runtime/change/bundle.h"
#include "runtime/change/crew.h"
#include "runtime/change/library.h"
#include "runtime/change/recover.h"

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

static void promotion_free_p(struct promotion *m)
{
    words_free_p(&m->w);
    picks_free_p(&m->p);
    source_close_p(&m->s);
    op_free_p(&m->o);
    record_free_p(&m->r);
    strv_free_p(&m->paths);
    strv_free_p(&m->allow);
    strv_free_p(&m->refs);
    journal_close_p(&m->j);
    close_p(&m->root);
    free(m->branch_commit);
}

/* --- parts ------------------------------------------------------------------------------------------------- */

static int on_conflict(const struct promotion *m, enum on_conflict *ret, struct err **e)
{
    static const char *const names[] = { "fail", "theirs", "ours", "merge" };
    const char *word = words_get(&m->w, "on-conflict");

    *ret = CONFLICT_FAIL;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!word || !strcmp(word, names[i])) {
            *ret = (enum on_conflict)i;
            return 0;
        }
    return err_new(e, ERR_USAGE, "--on-conflict takes fail, theirs, ours or merge, not '%.40s'",
                   word);
}

/* What was reviewed, or nothing. */
static int check_review(const struct promotion *m, struct err **e)
{
    const char *id = words_get(&m->w, "review");

    if (!id)
        return 0;
    if (strlen(id) < 8 || strlen(id) > 64 || strspn(id, "0123456789abcdef") != strlen(id))
        return err_new(e, ERR_USAGE, "--review takes the id that petri diff prints, not '%.70s'",
                       id);
    if (strncmp(id, m->s.c.id, strlen(id)) != 0)
        return err_new(e, ERR_BUSY,
                       "the change is %.12s now, not %s; nothing was applied: review it again with "
                       "petri diff",
                       m->s.c.id, id);
    return 0;
}

static int all_or_nothing(const struct promotion *m, struct err **e)
{
    if (!words_get(&m->w, "review"))
        return 0;
    for (size_t i = 0; i < m->p.n; i++)
        if (m->p.v[i].what != PICK_TAKE)
            return err_new(e, ERR_DENIED,
                           "'%s' can't go (%s), and --review wants all of the change or nothing%s",
                           m->s.c.v[i].path, m->p.v[i].why,
                           m->p.v[i].what == PICK_HELD ? "; --allow takes it along" : "");
    return 0;
}

static int content(void *arg, const struct item *it, struct new_content *ret, struct err **e)
{
    struct promotion *m = arg;
    AUTOFREE char *link = NULL;
    int rc = 0;

    if (m->p.v[it->tag].content >= 0) {
        ret->fd = fcntl(m->p.v[it->tag].content, F_DUPFD_CLOEXEC, 3);
        return ret->fd < 0 ? err_sys(e, "open the new '%s'", it->path) : 0;
    }
    if ((ret->text = m->s.c.v[it->tag].new_text))
        return 0;
    rc = source_content(&m->s, it->tag, &ret->fd, &link, e);
    if (rc == 0 && ret->fd < 0)
        rc = err_new(e, ERR_BUSY, "the sandbox changed '%s' just now; try again", it->path);
    return rc;
}

/* Files that come from the child, in the order in which apply_run() wants them; returns how many. */
static size_t tell_order(struct promotion *m)
{
    size_t *order = mem_zalloc((m->o.n + 1) * sizeof *order), n = 0;
    for (size_t i = 0; i < m->o.n; i++) {
        const struct item *it = &m->o.v[i];
        if (it->new.kind == NODE_FILE && it->step != STEP_CHMOD && m->p.v[it->tag].content < 0 &&
            !m->s.c.v[it->tag].new_text)
            order[n++] = it->tag;
    }
    source_ahead(&m->s, order, n);
    return n;
}

static bool same_dir(void *arg, const char *dir)
{
    struct promotion *m = arg;
    return drift_same_dir(&m->p.drift, dir);
}

static int apply_it(struct promotion *m, struct err **e)
{
    struct apply a = { .journal = &m->j,
                       .root = m->root,
                       .stopped = &stopped,
                       .content = content,
                       .progress = promote_progress,
                       .same_dir = same_dir,
                       .arg = m };
    AUTOCLOSE int lock = -1;
    struct sigaction sa = { .sa_handler = on_signal };
    int rc;

    if ((rc = journal_lock(&m->j, m->r.project_dev, m->r.project_ino, &lock, e)) < 0 ||
        (rc = recover_project(&m->j, m->r.project_dev, m->r.project_ino, talk_note, e)) < 0)
        return rc;
    m->o = (struct op){ .kind = str_dup("promote"),
                        .sandbox = str_dup(m->r.id),
                        .name = str_dup(m->r.name),
                        .project = str_dup(m->r.project),
                        .dev = m->r.project_dev,
                        .ino = m->r.project_ino,
                        .change = str_dup(m->s.c.id) };
    if ((rc = picks_build(&m->p, &m->o, m->mask, e)) < 0)
        return rc;
    if (m->o.n == 0)
        return 0;
    a.alone = tell_order(m) > 0 || m->o.n < CREW_FROM;
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    rc = apply_run(&a, &m->o, e);
    if (rc == 0)
        journal_age(&m->j);
    return rc;
}

/* Commits that were made inside, as objects and refs of their own. */
static void bring_commits(struct promotion *m)
{
    AUTOSTR struct str refs = STR_INIT;
    AUTOCLOSE int pack = -1;
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = source_commits(&m->s, &pack, &refs, &why);

    if (rc == 0 && pack >= 0)
        rc = bundle_take(&m->r, pack, refs.p ? refs.p : "", &m->refs, &why);
    if (rc < 0) { /* the files are one thing, a repository that can't be read another */
        AUTOFREE char *text = err_text(why);
        strv_take(&m->p.notes,
                  str_printf("commits of the sandbox were not brought home: %s", text));
    }
}

/* --- the command --------------------------------------------------------------------------------------------- */

static int say_nothing(const struct promotion *m)
{
    size_t out = m->p.n - picks_count(&m->p, PICK_SKIPPED);

    if (m->p.n + m->refs.n + m->p.notes.n == 0) { /* not even something that was not wanted */
        AUTOFREE char *text =
            str_printf("nothing to promote: %s holds what the project holds (petri diff, petri ls)",
                       record_label(&m->r));
        if (m->w.json)
            promote_json(m, "nothing", text);
        talk_note(text);
        return 1;
    }
    if (m->w.json)
        promote_json(m, out ? "held" : "nothing", NULL);
    promote_left_out(m);
    if (m->refs.n == 0 && !m->w.json)
        talk_line(out ? "nothing applied" : "nothing to promote");
    for (size_t i = 0; i < m->refs.n && !m->w.json; i++)
        talk_line("commits: %s", m->refs.v[i]);
    return out ? 1 : 0;
}

static int say_conflicts(const struct promotion *m)
{
    AUTOFREE char *text = str_printf(
        "%zu conflict%s; nothing was changed (--on-conflict theirs|ours|merge decides)",
        picks_count(&m->p, PICK_CONFLICT), picks_count(&m->p, PICK_CONFLICT) == 1 ? "" : "s");
    if (m->w.json)
        promote_json(m, "conflict", text);
    for (size_t i = 0; i < m->p.n; i++)
        if (m->p.v[i].what == PICK_CONFLICT)
            talk_notef("conflict: '%s': %s", m->s.c.v[i].path, m->p.v[i].why);
    talk_note(text);
    return 1;
}

static int say_done(const struct promotion *m)
{
    if (m->w.json) {
        promote_json(m, "applied", NULL);
    } else if (m->branch_commit) {
        talk_line("committed %zu file%s to branch %s (%.12s)", picks_count(&m->p, PICK_TAKE),
                  picks_count(&m->p, PICK_TAKE) == 1 ? "" : "s", words_get(&m->w, "branch"),
                  m->branch_commit);
    } else {
        size_t n = picks_count(&m->p, PICK_TAKE);
        talk_line("applied %zu file%s, journal %u.   take it back: petri undo", n,
                  n == 1 ? "" : "s", m->o.number);
    }
    for (size_t i = 0; i < m->refs.n && !m->w.json; i++)
        talk_line("commits: %s", m->refs.v[i]);
    promote_left_out(m);
    return 0;
}

/* Caches are no part of the change: what becomes of them changes neither the answer nor the status. */
static void save_caches(const struct promotion *m)
{
    extern char **environ;
    const char *petri = words_get(&m->w, "petri");
    char *argv[] = { "petri", "cache", "promoted", m->r.id, NULL };
    pid_t pid;

    if (petri && fflush(stdout) == 0 && posix_spawn(&pid, petri, NULL, NULL, argv, environ) == 0)
        (void)RETRY(waitpid(pid, NULL, 0));
}

/* What happens by itself at a stop is told by the keeper. */
static void add_event(const struct promotion *m)
{
    AUTOJSONW struct jsonw more = { 0 };

    if (words_has(&m->w, "auto"))
        return;
    jw_members(&more);
    if (m->branch_commit)
        jw_str(&more, "branch", words_get(&m->w, "branch"));
    else
        jw_u64(&more, "journal", m->o.number);
    jw_u64(&more, "files", picks_count(&m->p, PICK_TAKE));
    events_write(m->data, "promote", &(struct event_of){ m->r.id, m->r.name, m->r.project }, &more);
}

/* 1: go on. 0: the person said no. Below: failure. */
static int confirm(struct promotion *m, struct err **e)
{
    bool quit = false;
    int rc;

    if (words_has(&m->w, "patch")) {
        if (!m->tty && !words_has(&m->w, "stdin"))
            return err_new(e, ERR_USAGE, "-p asks on a terminal, and this is none");
        if ((rc = hunks_choose(m, &quit, e)) < 0)
            return rc;
        return !quit;
    }
    if (words_has(&m->w, "yes"))
        return 1;
    if (!m->tty)
        return err_new(e, ERR_USAGE,
                       "nobody can be asked here; petri promote -y applies without asking "
                       "(petri diff shows what)");
    promote_summary(m);
    char c = promote_ask(m);
    if (c == 'p') {
        if ((rc = hunks_choose(m, &quit, e)) < 0)
            return rc;
        return !quit;
    }
    return c == 'y';
}

/* What can't be applied is refused where nothing is to be, too. */
static int try_build(struct promotion *m, struct err **e)
{
    CLEANUP(op_free_p) struct op o = { 0 };
    return picks_build(&m->p, &o, m->mask, e);
}

static int to_branch(struct promotion *m, const char *branch, struct err **e)
{
    int rc = try_build(m, e);

    strv_free_p(&m->p.notes); /* they are about the working tree */
    return rc < 0 ? rc : branch_commit(&m->r, &m->p, branch, &m->branch_commit, e);
}

static int decide(struct promotion *m, int *ret_status, struct err **e)
{
    const char *branch = words_get(&m->w, "branch");
    int rc;

    if (picks_count(&m->p, PICK_CONFLICT)) {
        *ret_status = say_conflicts(m);
        return 0;
    }
    if ((rc = all_or_nothing(m, e)) < 0)
        return rc;
    if (words_has(&m->w, "dry-run")) {
        if ((rc = try_build(m, e)) < 0)
            return rc;
        if (m->w.json)
            promote_json(m, "dry-run", NULL);
        else
            promote_list(m, true);
        promote_left_out(m);
        return 0;
    }
    if (picks_count(&m->p, PICK_TAKE)) {
        if ((rc = confirm(m, e)) < 0)
            return rc;
        if (rc == 0) {
            talk_note("nothing was changed");
            *ret_status = 1;
            return 0;
        }
        picks_settle(&m->p);
    }
    if (picks_count(&m->p, PICK_TAKE)) {
        rc = branch ? to_branch(m, branch, e) : apply_it(m, e);
        if (rc < 0)
            return rc;
    }
    bring_commits(m);
    bool done = m->o.number || m->branch_commit;
    *ret_status = done ? say_done(m) : say_nothing(m);
    if (done) {
        add_event(m);
        save_caches(m);
    }
    return 0;
}

int promote_main(const char *data, int argc, char **argv)
{
    CLEANUP(promotion_free_p)
    struct promotion m = {
        .data = data, .root = -1, .j = { .fd = -1 }, .s = { .sock = -1 }, .p = { .root = -1 }
    };
    struct pick_rules rules = { .allow = &m.allow };
    struct err *e = NULL;
    int status = 0;

    words_split(argc, argv, &m.w);
    if (words_has(&m.w,
                  "auto")) { /* the end of a sandbox, promotion.auto: only what harms nobody */
        strv_add(&m.w.settings, "on-conflict=theirs");
        rules.unread = true;
    }
    m.tty = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    signal(SIGIO, SIG_IGN); /* leases, drift.c */
    if (library_start(&e) < 0 || on_conflict(&m, &rules.on_conflict, &e) < 0 ||
        journal_open(data, &m.j, &e) < 0 || recover_all(&m.j, talk_note, &e) < 0 ||
        promote_load(&m, &e) < 0 || check_review(&m, &e) < 0 ||
        picks_make(&m.r, &m.s, m.root, &rules, &m.p, &e) < 0 || decide(&m, &status, &e) < 0)
        return talk_fail(e, m.w.json);
    return status;
}
