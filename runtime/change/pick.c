#include "runtime/change/pick.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fs.h"
#include "runtime/change/hash.h"
#include "runtime/change/risk.h"

const char *pick_name(enum pick_what w)
{
    static const char *const names[] = { "taken",     "held",     "special", "hidden",
                                         "read-only", "conflict", "skipped" };
    return names[w];
}

void picks_free_p(struct picks *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].why);
        node_free_p(&p->v[i].host);
        close_p(&p->v[i].content);
    }
    free(p->v);
    drift_free_p(&p->drift);
    base_free_p(&p->base);
    strv_free_p(&p->notes);
    *p = (struct picks){ .root = -1 };
}

void picks_set(struct picks *p, size_t i, enum pick_what what, const char *why)
{
    free(p->v[i].why);
    p->v[i].what = what;
    p->v[i].why = str_dup(why);
}

size_t picks_count(const struct picks *p, enum pick_what what)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->v[i].what == what;
    return n;
}

int picks_content(struct picks *p, size_t i, const char *text, size_t n, struct err **e)
{
    AUTOCLOSE int fd = memfd_create("petri-content", MFD_CLOEXEC);
    if (fd < 0 || fs_write_all(fd, text, n) < 0)
        return err_sys(e, "memory for the new '%s'", p->s->c.v[i].path);
    close_p(&p->v[i].content);
    p->v[i].content = TAKE_FD(fd);
    p->v[i].size = n;
    hash_text(text, n, p->v[i].digest);
    return 0;
}

/* --- one change ---------------------------------------------------------------------------------------- */

static bool allowed(const struct strv *allow, const char *path, const char *code)
{
    for (size_t i = 0; i < allow->n; i++) {
        size_t n = strlen(allow->v[i]);
        while (n > 1 && allow->v[i][n - 1] == '/')
            n--;
        if (strcmp(allow->v[i], code) == 0 ||
            (strncmp(path, allow->v[i], n) == 0 && (!path[n] || path[n] == '/')))
            return true;
    }
    return false;
}

static char *forbidden(const struct change *ch, const struct pick_rules *rules)
{
    for (size_t i = 0; i < ch->n_risks; i++) {
        const struct risk_rule *rule = ch->risks[i].rule;
        bool held = rule->class == RISK_REFUSE || (rule->class == RISK_READ && rules->unread);
        if (held && !allowed(rules->allow, ch->path, rule->code))
            return str_printf("%s: %s", rule->code, rule->reason);
    }
    return NULL;
}

static bool plain(mode_t m)
{
    return !m || S_ISREG(m) || S_ISLNK(m) || S_ISDIR(m);
}

/* It was written before the path was protected. What takes the place of a directory takes what is in it along. */
static bool protected(const struct record *r, const struct change *ch)
{
    for (size_t i = 0; i < r->readonly.n; i++)
        if (path_below(ch->path, r->readonly.v[i]) || path_below(r->readonly.v[i], ch->path))
            return true;
    return false;
}

/* True when the sandbox's file may go there as far as rules are concerned. */
static bool may_go(struct picks *p, size_t i, const struct pick_rules *rules)
{
    const struct change *ch = &p->s->c.v[i];
    AUTOFREE char *rule = forbidden(ch, rules);

    if (ch->flags & CHANGE_HIDDEN)
        picks_set(p, i, PICK_HIDDEN, "the path is hidden from sandboxes");
    else if (protected(p->r, ch))
        picks_set(p, i, PICK_READONLY, "the path is read-only for sandboxes (mounts.readonly)");
    else if (!plain(ch->new_mode))
        picks_set(p, i, PICK_SPECIAL, "a pipe, socket or device");
    else if (!plain(ch->old_mode))
        picks_set(p, i, PICK_HELD, "a pipe, socket or device of the project lies there");
    else if (ch->flags & CHANGE_UNREADABLE)
        picks_set(p, i, PICK_HELD, "it can't be read");
    else if (ch->view)
        picks_set(p, i, PICK_HELD, "it lies on another mount than the project");
    else if (rule)
        picks_set(p, i, PICK_HELD, rule);
    return p->v[i].what == PICK_TAKE;
}

/* Both changed it: their lines together, where that is possible. */
static int merge(struct picks *p, struct drift *d, size_t i, struct err **e)
{
    const struct change *ch = &p->s->c.v[i];
    AUTOFREE char *base = NULL, *host = NULL, *new = NULL, *link = NULL;
    AUTOSTR struct str out = STR_INIT;
    AUTOCLOSE int fd = -1;
    size_t base_n, host_n, new_n;
    bool clean = false;
    int rc;

    if (!S_ISREG(ch->new_mode) || p->v[i].host.kind != NODE_FILE ||
        drift_base(d, ch->path, &base, &base_n, NULL) < 0 ||
        drift_host(d, ch->path, &host, &host_n, NULL) < 0)
        return 0;
    if ((rc = source_content(p->s, i, &fd, &link, e)) < 0)
        return rc;
    if (drift_read_fd(fd, &new, &new_n, NULL) < 0)
        return 0;
    if ((rc = source_same(p->s, i, new, new_n, e)) < 0)
        return rc;
    if ((rc = base_merge(base, base_n, host, host_n, new, new_n, &out, &clean, e)) < 0 || !clean)
        return rc;
    if ((rc = picks_content(p, i, out.p ? out.p : "", out.len, e)) < 0)
        return rc;
    p->v[i].merged = true;
    picks_set(p, i, PICK_TAKE, NULL);
    return 0;
}

static int look_host(struct drift *d, const char *path, struct pick *k, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    const char *name;
    int dir, rc = dirs_parent(&d->dirs, path, &dir, &name, &why);

    if (rc == -ERR_NOT_FOUND)
        return 0; /* then nothing lies there */
    if (rc < 0) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    return node_look(dir, name, &k->host, &k->seen, e);
}

/* The change takes away what the project has in the place of a directory above the path, and that is what it had
 * from the beginning. What is above is judged first. */
static bool comes_anew(const struct picks *p, const char *path)
{
    AUTOFREE char *dir = str_dup(path);
    char *slash;

    while ((slash = strrchr(dir, '/'))) {
        *slash = '\0';
        const struct change *ch = changeset_find(&p->s->c, dir);
        if (ch && ch->old_mode && !ch->new_mode)
            return !p->v[ch - p->s->c.v].host.foreign;
    }
    return false;
}

static int judge(struct picks *p, struct drift *d, size_t i, const struct pick_rules *rules,
                 struct err **e)
{
    CLEANUP(err_free_p) struct err *barred = NULL;
    const struct change *ch = &p->s->c.v[i];
    enum on_conflict how = rules->on_conflict;
    struct pick *k = &p->v[i];
    const char *why;

    bool goes = may_go(p, i, rules);
    int rc = look_host(d, ch->path, k, &barred);
    if (!goes)
        return 0;
    if (rc == -ERR_DENIED) { /* nobody ever goes through a link */
        AUTOFREE char *text = err_text(barred);
        if (!comes_anew(p, ch->path))
            picks_set(p, i, how == CONFLICT_THEIRS ? PICK_SKIPPED : PICK_CONFLICT, text);
        return 0;
    }
    if (rc < 0) {
        *e = TAKE_PTR(barred);
        return err_wrap(e, "'%s'", ch->path);
    }
    if (k->host.kind == NODE_OTHER) {
        picks_set(p, i, PICK_HELD, "a pipe, socket or device of the project lies there");
        return 0;
    }
    if (!(why = drift_why(d, i, &k->seen)))
        return 0;
    k->host.foreign = true;
    if (how == CONFLICT_OURS)
        return 0;
    picks_set(p, i, how == CONFLICT_THEIRS ? PICK_SKIPPED : PICK_CONFLICT, why);
    return how == CONFLICT_MERGE ? merge(p, d, i, e) : 0;
}

int picks_make(const struct record *r, struct source *s, int root, const struct pick_rules *rules,
               struct picks *ret, struct err **e)
{
    CLEANUP(picks_free_p) struct picks p = { .r = r, .s = s, .root = root, .n = s->c.n };
    int rc;

    p.v = mem_zalloc((p.n + 1) * sizeof *p.v);
    for (size_t i = 0; i < p.n; i++)
        p.v[i].content = -1;
    if ((rc = base_open(r, &p.base, e)) < 0)
        return rc;
    drift_init(&p.drift, r, s, p.base, root);
    for (size_t i = 0; i < p.n; i++)
        if ((rc = judge(&p, &p.drift, i, rules, e)) < 0)
            return rc;
    picks_settle(&p);
    *ret = p;
    p = (struct picks){ .root = -1 };
    return 0;
}

/* --- what hangs together -------------------------------------------------------------------------------- */

static bool below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* A change whose path is a directory on the other side: then what is below it hangs on it. */
static bool covers(const struct picks *p, size_t i)
{
    const struct change *ch = &p->s->c.v[i];
    if (ch->new_mode && !S_ISDIR(ch->new_mode) && p->v[i].host.kind == NODE_DIR)
        return true;
    for (size_t k = 0; ch->old_mode && !ch->new_mode && k < p->s->n_made; k++)
        if (strcmp(p->s->made[k].path, ch->path) == 0)
            return true;
    return false;
}

static bool settle_one(struct picks *p, size_t i)
{
    const char *dir = p->s->c.v[i].path;
    bool changed = false;

    for (size_t k = 0; k < p->n; k++) {
        if (!below(p->s->c.v[k].path, dir))
            continue;
        if (p->v[i].what == PICK_TAKE && p->v[k].what != PICK_TAKE) {
            AUTOFREE char *why = str_printf("'%s' does not go", p->s->c.v[k].path);
            picks_set(p, i, p->v[k].what, why);
            changed = true;
        }
        if (p->v[i].what != PICK_TAKE && p->v[k].what == PICK_TAKE) {
            AUTOFREE char *why = str_printf("'%s' does not go", dir);
            picks_set(p, k, p->v[i].what, why);
            changed = true;
        }
    }
    return changed;
}

void picks_settle(struct picks *p)
{
    bool again = true;
    while (again) {
        again = false;
        for (size_t i = 0; i < p->n; i++)
            if (covers(p, i))
                again |= settle_one(p, i);
    }
}
