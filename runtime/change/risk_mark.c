/* runtime/change/risk_mark.c - rules that content, kind and company decide. */
#include <string.h>

#include "runtime/change/content.h"
#include "runtime/change/crew.h"
#include "runtime/change/risk_impl.h"

enum { LARGE = 1 << 20, MANY = 50, SOME = 10 };

static void hit(struct change *ch, const char *code, char *detail)
{
    const struct risk_rule *rule = risk_find(code);
    if (!rule)
        abort();
    ch->risks = realloc(ch->risks, (ch->n_risks + 1) * sizeof *ch->risks);
    if (!ch->risks)
        abort();
    ch->risks[ch->n_risks++] = (struct risk_hit){ rule, detail };
}

static int by_rule(const void *a, const void *b)
{
    const struct risk_hit *x = a, *y = b;
    return x->rule < y->rule ? -1 : x->rule > y->rule;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* --- links ------------------------------------------------------------------------------------------ */

/* Links may go up only as far as the project's top, and only at their start: behind a name ".." goes where
 * that name leads, which may be a link as well. */
static bool leads_out(const char *path, const char *target)
{
    int depth = 0;
    bool named = false;

    if (*target == '/')
        return true;
    for (const char *p = path; (p = strchr(p, '/')); p++)
        depth++;
    for (const char *p = target; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.') {
            if (named || --depth < 0)
                return true;
        } else if (n > 1 || (n == 1 && *p != '.')) {
            named = true;
        }
        p += n + (p[n] == '/');
    }
    return false;
}

static int mark_link(const struct changeset *c, struct change *ch, struct err **e)
{
    AUTOSTRV struct strv parts = { 0 };
    AUTOFREE char *text = NULL;
    size_t n;
    int rc = content_read(c, ch, true, 65536, &text, &n, e);

    if (rc < 0)
        return rc;
    if (leads_out(ch->path, text))
        hit(ch, "symlink-out", str_dup(text));
    risk_fold(text, &parts);
    if (risk_path_fits(risk_find("git-dir"), &parts, true))
        hit(ch, "git-dir", str_dup(text));
    return 0;
}

/* --- a repository without a work tree ------------------------------------------------------------------ */

/* Something of that name is listed, or below it. */
static bool listed(const struct changeset *c, const char *path)
{
    size_t n = strlen(path), from = 0, to = c->n;

    while (from < to) { /* the first that is not before it */
        size_t mid = from + (to - from) / 2;
        if (strcmp(c->v[mid].path, path) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    for (; from < c->n && strncmp(c->v[from].path, path, n) == 0; from++) {
        char end = c->v[from].path[n];
        if (c->v[from].new_mode && (!end || end == '/'))
            return true;
        if (end > '/')
            break;
    }
    return false;
}

/* What is listed counts although it may be away just now: the sandbox is at work. */
static bool is_bare(const struct changeset *c, const struct change *ch, const char *dir)
{
    static const char *const names[] = { "HEAD", "objects", "refs" };
    const struct view *v = &c->pairs[ch->view].new;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTOFREE char *path = str_printf("%s%s%s", dir, *dir ? "/" : "", names[i]);
        AUTOFREE char *full = str_printf("%s%s", v->prefix, path);
        struct entry en = { 0 };
        if (listed(c, full))
            continue;
        if (view_lookup(v, path, &en, NULL) < 0 || en.kind == VIEW_ABSENT ||
            (i > 0 && en.kind != VIEW_DIR && en.kind != VIEW_LINK))
            return false;
    }
    return true;
}

/* A change of any file that such a repository consists of. */
static void mark_bare(const struct changeset *c, struct change *ch)
{
    static const char *const names[] = { "HEAD",  "objects", "refs",        "config",
                                         "hooks", "info",    "packed-refs", "commondir" };
    const char *rel = change_rel(c, ch, ch->path);

    for (const char *p = rel; *p;) {
        size_t n = strcspn(p, "/");
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            if (strlen(names[i]) != n || strncmp(p, names[i], n) != 0)
                continue;
            AUTOFREE char *dir = str_printf("%.*s", (int)(p > rel ? p - rel - 1 : 0), rel);
            if (is_bare(c, ch, dir)) {
                hit(ch, "bare-repository", NULL);
                return;
            }
        }
        p += n + (p[n] == '/');
    }
}

/* --- lock files ------------------------------------------------------------------------------------- */

static void mark_lockfile(const struct changeset *c, struct change *ch)
{
    static const struct {
        const char *lock, *manifest;
    } pairs[] = {
        { "package-lock.json", "package.json" }, { "npm-shrinkwrap.json", "package.json" },
        { "yarn.lock", "package.json" },         { "pnpm-lock.yaml", "package.json" },
        { "bun.lock", "package.json" },          { "bun.lockb", "package.json" },
        { "Cargo.lock", "Cargo.toml" },          { "go.sum", "go.mod" },
        { "poetry.lock", "pyproject.toml" },     { "uv.lock", "pyproject.toml" },
        { "pdm.lock", "pyproject.toml" },        { "Pipfile.lock", "Pipfile" },
        { "Gemfile.lock", "Gemfile" },           { "composer.lock", "composer.json" },
        { "flake.lock", "flake.nix" },           { "mix.lock", "mix.exs" },
    };
    const char *name = base_name(ch->path);

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (strcmp(name, pairs[i].lock) != 0)
            continue;
        AUTOFREE char *manifest =
            str_printf("%.*s%s", (int)(name - ch->path), ch->path, pairs[i].manifest);
        if (!changeset_find(c, manifest))
            hit(ch, "lockfile", str_printf("%s is unchanged", pairs[i].manifest));
    }
}

/* --- the rest ---------------------------------------------------------------------------------------- */

static bool is_test(const char *path)
{
    static const char *const rule =
        "test tests spec specs __tests__ test_* *_test.* *.test.* *.spec.* *tests.*";
    const struct risk_rule r = { "", RISK_READ, rule, "" };
    AUTOSTRV struct strv parts = { 0 };

    risk_fold(path, &parts);
    return risk_path_fits(&r, &parts, false);
}

static void mark_kind(struct change *ch)
{
    mode_t m = ch->new_mode;
    AUTOSTR struct str shown = STR_INIT;

    if (ch->flags & CHANGE_HIDDEN)
        hit(ch, "hidden", NULL);
    if (m && !S_ISREG(m) && !S_ISDIR(m) && !S_ISLNK(m))
        hit(ch, "special-file", NULL);
    if (S_ISREG(m) && (m & (S_ISUID | S_ISGID)))
        hit(ch, "setuid", NULL);
    if (S_ISREG(m) && (m & S_IXUSR) && !(S_ISREG(ch->old_mode) && (ch->old_mode & S_IXUSR)))
        hit(ch, "executable", NULL);
    if (ch->flags & CHANGE_UNREADABLE)
        hit(ch, "unreadable", NULL);
    if ((ch->flags & CHANGE_BINARY) && m && strcmp(ch->old_digest, ch->new_digest) != 0)
        hit(ch, "binary", NULL);
    if (S_ISREG(m) && ch->new_size > LARGE) {
        char size[24];
        format_size(ch->new_size, size);
        hit(ch, "large", str_dup(size));
    }
    str_add_escaped(&shown, ch->path, strlen(ch->path));
    if (strcmp(shown.p, ch->path) != 0)
        hit(ch, "odd-name", NULL);
}

static int mark_content(const struct changeset *c, struct change *ch, struct err **e)
{
    struct content_found f;
    int rc = content_count(c, ch, &f, e);

    if (rc < 0)
        return rc;
    if (f.secret)
        hit(ch, "secret", str_dup(f.secret));
    if (f.invisible)
        hit(ch, "invisible", str_printf("U+%04X", f.invisible));
    if (f.shebang && !(ch->new_mode & S_IXUSR))
        hit(ch, "shebang", NULL);
    if (ch->lines_deleted > MANY ||
        (ch->lines_deleted >= SOME && ch->lines_deleted * 5 > f.old_lines))
        hit(ch, "many-deletions",
            str_printf("%llu of %llu lines", (unsigned long long)ch->lines_deleted,
                       (unsigned long long)f.old_lines));
    if (f.skipped_test && is_test(ch->path))
        hit(ch, "test-removed", str_dup("told not to run"));
    else if ((ch->kind == CHANGE_DELETED || f.tests < 0) && S_ISREG(ch->old_mode) &&
             is_test(ch->path))
        hit(ch, "test-removed", NULL);
    return 0;
}

static int mark(const struct changeset *c, struct change *ch, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    AUTOSTRV struct strv parts = { 0 };
    int rc = 0;

    risk_fold(ch->path, &parts);
    for (size_t i = 0; i < risk_n_rules; i++)
        if (risk_path_fits(&risk_rules[i], &parts, S_ISLNK(ch->new_mode)))
            hit(ch, risk_rules[i].code, NULL);
    mark_kind(ch);
    if (ch->new_mode)
        mark_bare(c, ch);
    if (S_ISLNK(ch->new_mode))
        rc = mark_link(c, ch, &why);
    mark_lockfile(c, ch);
    if (rc == 0)
        rc = mark_content(c, ch, &why);
    if (rc < 0 && !view_gone(why)) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    /* it may be back in a moment, and nobody knows where a link led that was not seen */
    if (rc < 0)
        hit(ch, S_ISLNK(ch->new_mode) ? "symlink-out" : "unreadable",
            str_dup("gone while it was read"));
    if (ch->n_risks)
        qsort(ch->risks, ch->n_risks, sizeof *ch->risks, by_rule);
    return 0;
}

static int mark_part(const struct crew *w, struct err **e)
{
    struct changeset *c = w->arg;
    int rc = 0;
    for (size_t i = w->from; i < w->to && rc == 0 && !crew_over(w); i++)
        rc = mark(c, &c->v[i], e);
    return rc;
}

int risk_mark(struct changeset *c, struct err **e)
{
    return crew_run(c->n, c->n < CREW_FROM, mark_part, c, e);
}
