/* runtime/change/promote_words.c - which sandbox is promoted and which of its files. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/promote.h"

/* "./a//b/" in the working directory -> relative to the project. */
static int relative(const struct promotion *m, const char *path, char **ret, struct err **e)
{
    AUTOFREE char *cwd = getcwd(NULL, 0);
    AUTOFREE char *full = *path == '/'                           ? str_dup(path)
                          : cwd && path_below(cwd, m->r.project) ? path_join(cwd, path)
                                                                 : path_join(m->r.project, path);
    AUTOSTR struct str out = STR_INIT;

    for (const char *p = full; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && !strncmp(p, "..", 2)) {
            char *slash = out.len ? strrchr(out.p, '/') : NULL;
            out.len = slash ? (size_t)(slash - out.p) : 0;
            if (out.p)
                out.p[out.len] = '\0';
        } else if (n && !(n == 1 && *p == '.')) {
            str_addc(&out, '/');
            str_addn(&out, p, n);
        }
        p += n + (p[n] == '/');
    }
    const char *all = out.len ? out.p : "/";
    if (!path_below(all, m->r.project))
        return err_new(e, ERR_INVALID, "'%.200s' is not in the project '%s'", path, m->r.project);
    all += strlen(m->r.project);
    *ret = str_dup(all + (*all == '/'));
    return 0;
}

/* The first word is the sandbox where there is one of that name; all others are paths. */
static int load_record(struct promotion *m, bool *ret_named, struct err **e)
{
    CLEANUP(err_free_p) struct err *why = NULL;
    const char *first = m->w.operands.n ? m->w.operands.v[0] : NULL;

    *ret_named = false;
    if (first && record_load(m->data, first, &m->r, &why) == 0) {
        /* the beginning of an id means a sandbox only where it can't be a file */
        if (!strcmp(first, m->r.id) || str_eq(first, m->r.name) || !fs_exists(first)) {
            *ret_named = true;
            return 0;
        }
        record_free_p(&m->r);
    }
    int rc = record_load(m->data, NULL, &m->r, e);
    if (rc < 0 && why) { /* no sandbox here either: then a sandbox was meant */
        *e = err_free(*e);
        *e = TAKE_PTR(why);
    }
    return rc;
}

static bool touches(const struct source *s, const char *path)
{
    for (size_t i = 0; i < s->c.n; i++) {
        size_t n = strlen(path);
        const char *p = s->c.v[i].path;
        if (!n || (strncmp(p, path, n) == 0 && (!p[n] || p[n] == '/')))
            return true;
    }
    return false;
}

/* A word that is neither a sandbox nor a file of the project is a slip. */
static int check_words(const struct promotion *m, bool named, struct err **e)
{
    const struct strv *words = &m->w.operands;
    size_t from = named ? 1 : 0;
    for (size_t i = from; i - from < m->paths.n; i++) { /* those after -- come last */
        const char *path = m->paths.v[i - from];
        CLEANUP(node_free_p) struct node n = { 0 };
        if (touches(&m->s, path))
            continue;
        if (*path && node_look_at(m->root, path, &n, NULL, e) < 0)
            return -ERR_FAILED;
        if (*path && n.kind == NODE_NONE)
            return err_new(e, ERR_NOT_FOUND,
                           i == 0 && words->n
                               ? "'%.200s' is neither a sandbox nor a path that changed (petri "
                                 "ls, petri diff)"
                               : "no path '%.200s' changed (petri diff)",
                           i < words->n ? words->v[i] : path);
    }
    return 0;
}

static int add_setting(struct promotion *m, const char *word, struct err **e)
{
    char *path = NULL;
    int rc = 0;

    if (str_starts(word, "path=") && (rc = relative(m, word + 5, &path, e)) == 0)
        strv_take(&m->paths, path);
    if (str_starts(word, "allow=")) {
        strv_add(&m->allow, word + 6);
        if (relative(m, word + 6, &path, NULL) == 0 && *path)
            strv_take(&m->allow, path);
        else
            free(path);
    }
    return rc;
}

int promote_load(struct promotion *m, struct err **e)
{
    const char *mask = words_get(&m->w, "umask");
    AUTOCLOSE int place = -1;
    bool named;
    int rc;

    m->mask = mask ? (mode_t)strtoul(mask, NULL, 8) & 0777 : 022;
    if ((rc = load_record(m, &named, e)) < 0)
        return rc;
    if (m->r.mode == RECORD_BIND)
        return err_new(e, ERR_INVALID,
                       "sandbox '%s' works on the project itself (mode bind): there is nothing to "
                       "promote",
                       record_label(&m->r));
    if ((rc = record_open_project(&m->r, &place, e)) < 0)
        return rc;
    m->root = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (m->root < 0)
        return err_sys(e, "open the project '%s'", m->r.project);
    for (size_t i = named ? 1 : 0; i < m->w.operands.n; i++) {
        char *path;
        if ((rc = relative(m, m->w.operands.v[i], &path, e)) < 0)
            return rc;
        strv_take(&m->paths, path);
    }
    for (size_t i = 0; i < m->w.settings.n; i++)
        if ((rc = add_setting(m, m->w.settings.v[i], e)) < 0)
            return rc;
    if ((rc = source_open(&m->r, m->paths.n ? &m->paths : NULL, &m->s, e)) < 0)
        return rc;
    return check_words(m, named, e);
}
