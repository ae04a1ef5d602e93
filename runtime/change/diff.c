#include "runtime/change/diff.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/fs.h"
#include "runtime/change/pager.h"
#include "runtime/change/render.h"
#include "runtime/change/repo_refs.h"
#include "runtime/change/rootfs.h"
#include "runtime/change/talk.h"

/* What was asked for, and on which sandboxes. */
struct job {
    struct words w;
    struct record old, new; /* old.id NULL: the host */
    char *old_snap, *new_snap;
    struct strv paths; /* relative to the project */
    bool tty;
    bool *ret_differs; /* shared with the child that looks */
};

static void job_free_p(struct job *j)
{
    words_free_p(&j->w);
    record_free_p(&j->old);
    record_free_p(&j->new);
    free(j->old_snap);
    free(j->new_snap);
    strv_free_p(&j->paths);
    if (j->ret_differs)
        munmap(j->ret_differs, sizeof *j->ret_differs);
}

/* --- which sandboxes ------------------------------------------------------------------------------- */

/* --from SNAP of the same sandbox, or another sandbox. */
static int load_from(const char *data, const char *from, struct job *j, struct err **e)
{
    for (size_t i = 0; i < j->new.n_snapshots; i++)
        if (str_eq(j->new.snapshots[i].id, from)) {
            j->old_snap = str_dup(from);
            return record_load(data, j->new.id, &j->old, e);
        }
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = record_load_at(data, from, &j->old, &j->old_snap, &why);
    if (rc < 0 && why->code == ERR_NOT_FOUND && !strchr(from, '@'))
        return err_new(e, ERR_NOT_FOUND,
                       "'%s' is neither a snapshot of '%s' nor a sandbox; see "
                       "petri snapshot ls and petri ls",
                       from, record_label(&j->new));
    if (rc < 0 && e)
        *e = TAKE_PTR(why);
    return rc;
}

static int load(const char *data, struct job *j, struct err **e)
{
    const struct strv *ops = &j->w.operands;
    const char *from = words_get(&j->w, "from");
    int rc;

    if (ops->n > 2)
        return err_new(e, ERR_USAGE, "'%s' is one word too many", ops->v[2]);
    if (ops->n == 2 && from)
        return err_new(e, ERR_USAGE, "--from and a second sandbox exclude each other");
    rc = record_load_at(data, ops->n ? ops->v[ops->n - 1] : NULL, &j->new, &j->new_snap, e);
    if (rc == 0 && ops->n == 2)
        rc = record_load_at(data, ops->v[0], &j->old, &j->old_snap, e);
    else if (rc == 0 && from)
        rc = load_from(data, from, j, e);
    if (rc == 0 && j->new.mode == RECORD_BIND)
        return err_new(e, ERR_INVALID,
                       "sandbox '%s' works on the project itself (mode bind); see "
                       "git diff",
                       record_label(&j->new));
    return rc;
}

/* "./a//b/" in the working directory -> relative to the project. */
static int add_path(struct job *j, const char *path, struct err **e)
{
    AUTOFREE char *cwd = getcwd(NULL, 0);
    AUTOFREE char *full = *path == '/' ? str_dup(path)
                          : cwd && path_below(cwd, j->new.project)
                              ? path_join(cwd, path)
                              : path_join(j->new.project, path);
    AUTOSTR struct str normal = STR_INIT;

    for (const char *p = full; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && !strncmp(p, "..", 2)) {
            char *slash = normal.len ? strrchr(normal.p, '/') : NULL;
            normal.len = slash ? (size_t)(slash - normal.p) : 0;
            if (normal.p)
                normal.p[normal.len] = '\0';
        } else if (n && !(n == 1 && *p == '.')) {
            str_addc(&normal, '/');
            str_addn(&normal, p, n);
        }
        p += n + (p[n] == '/');
    }
    const char *all = normal.len ? normal.p : "/";
    if (!path_below(all, j->new.project))
        return err_new(e, ERR_INVALID, "'%s' is not in the project '%s'", path, j->new.project);
    all += strlen(j->new.project);
    strv_add(&j->paths, all + (*all == '/'));
    return 0;
}

static int add_paths(struct job *j, struct err **e)
{
    int rc = 0;
    for (size_t i = 0; i < j->w.settings.n && rc == 0; i++)
        if (str_starts(j->w.settings.v[i], "path="))
            rc = add_path(j, j->w.settings.v[i] + strlen("path="), e);
    return rc;
}

/* --- what it says ---------------------------------------------------------------------------------- */

static char *label(const struct record *r, const char *snap)
{
    return str_printf("%s%s%s", record_label(r), snap ? "@" : "", snap ? snap : "");
}

static char *title(const struct job *j)
{
    AUTOFREE char *new = label(&j->new, j->new_snap);
    if (!j->old.id)
        return str_printf("%s against the project", new);
    AUTOFREE char *old = label(&j->old, j->old_snap);
    return str_printf("%s against %s", new, old);
}

static void json_head(struct jsonw *w, const struct job *j)
{
    jw_obj(w, NULL);
    jw_str(w, "sandbox", j->new.id);
    jw_str(w, "name", j->new.name);
    jw_str(w, "snapshot", j->new_snap);
    render_json_path(w, "project", j->new.project);
    if (j->old.id) {
        AUTOFREE char *old = label(&j->old, j->old_snap);
        jw_str(w, "from", old);
    }
}

static int find(const struct job *j, struct changeset *ret, struct err **e)
{
    struct changeset_opts o = { .renames = true, .paths = j->paths.n ? &j->paths : NULL };
    struct view_pair *pairs;
    size_t n;
    int rc = j->old.id ? pairs_between(&j->old, j->old_snap, &j->new, j->new_snap, &pairs, &n, e)
                       : pairs_host(&j->new, j->new_snap, &pairs, &n, e);

    return rc < 0 ? rc : changeset_pairs(&j->new, pairs, n, &o, ret, e);
}

static unsigned columns(void)
{
    struct winsize ws;
    const char *env = getenv("COLUMNS");
    uint64_t n;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 20)
        return ws.ws_col;
    return env && parse_uint(env, 1000, &n, NULL) == 0 && n > 20 ? (unsigned)n : 80;
}

static bool wants_colour(const struct job *j)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return j->tty && !(no && *no) && !str_eq(term, "dumb");
}

static int say(const struct job *j, const struct changeset *c, const struct strv *refs,
               struct err **e)
{
    AUTOFREE char *t = title(j);
    struct render r = {
        .out = stdout, .colour = wants_colour(j), .terminal = j->tty, .lead = "", .width = columns()
    };
    struct summary s = { t, refs };

    if (words_has(&j->w, "name-status")) {
        render_name_status(&r, c);
        return 0;
    }
    if (words_has(&j->w, "stat")) {
        render_summary(&r, c, &s);
        render_stat(&r, c);
        return 0;
    }
    if (words_has(&j->w, "patch"))
        return render_patch(&r, c, e);
    /* the lines before a patch must not look like a part of it */
    r.lead = j->tty ? "" : "# ";
    render_summary(&r, c, &s);
    r.lead = "";
    if (j->tty && c->n) {
        render_stat(&r, c);
        fputc('\n', stdout);
    }
    return render_patch(&r, c, e);
}

/* Who closed the pipe has read enough; anything else is an answer that got lost. */
static int finish(struct err **e)
{
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && errno && errno != EPIPE)
        return err_sys(e, "write the answer to stdout");
    return 0;
}

static int look(void *arg, struct err **e)
{
    struct job *j = arg;
    CLEANUP(changeset_free_p) struct changeset c = { 0 };
    AUTOSTRV struct strv refs = { 0 };
    int rc = find(j, &c, e);

    if (rc == 0 && !j->old.id)
        rc = repo_new_refs(&j->new, j->new_snap, &refs, e);
    if (rc < 0)
        return rc;
    *j->ret_differs = c.n > 0;
    if (j->w.json) {
        AUTOJSONW struct jsonw w = { .pretty = true };
        json_head(&w, j);
        if ((rc = render_json(&w, &c, words_has(&j->w, "patch"), e)) < 0)
            return rc;
        jw_strv(&w, "refs", &refs);
        jw_end_obj(&w);
        talk_json(&w);
    } else if ((rc = say(j, &c, &refs, e)) < 0) {
        return rc;
    }
    return finish(e);
}

static int look_at_rootfs(void *arg, struct err **e)
{
    struct job *j = arg;
    CLEANUP(rootfs_free_p) struct rootfs_changes c = { 0 };
    AUTOSTRV struct strv from = { 0 };
    struct render r = { .out = stdout, .lead = "" };
    int rc = j->old.id ? record_layers(&j->old, j->old_snap, &from, e) : 0;

    if (rc < 0 || (rc = rootfs_find(&j->new, j->new_snap, j->old.id ? &from : NULL, &c, e)) < 0)
        return rc;
    *j->ret_differs = c.n > 0;
    if (j->w.json) {
        AUTOJSONW struct jsonw w = { .pretty = true };
        json_head(&w, j);
        rootfs_json(&w, &c);
        jw_end_obj(&w);
        talk_json(&w);
    } else {
        rootfs_show(&r, &c, words_has(&j->w, "stat"));
    }
    return finish(e);
}

int diff_main(const char *data, int argc, char **argv)
{
    CLEANUP(job_free_p) struct job j = { .tty = isatty(STDOUT_FILENO) };
    struct pager pager = { 0 };
    struct err *e = NULL;
    int rc;

    words_split(argc, argv, &j.w);
    if (load(data, &j, &e) < 0 || add_paths(&j, &e) < 0)
        return talk_fail(e, j.w.json);
    j.ret_differs = mmap(NULL, sizeof *j.ret_differs, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (j.ret_differs == MAP_FAILED) {
        j.ret_differs = NULL;
        err_sys(&e, "memory to share");
        return talk_fail(e, j.w.json);
    }
    /* before the work: the pager runs as the user, not as root of some namespace */
    if (!j.w.json)
        pager_start(&pager);
    rc = record_run_inside(&j.new, words_has(&j.w, "rootfs") ? look_at_rootfs : look, &j, &e);
    pager_end(&pager);
    if (rc < 0)
        return talk_fail(e, j.w.json);
    return words_has(&j.w, "exit-code") && *j.ret_differs ? 1 : 0;
}
