/* runtime/change/count.c - `petri-change count`: a sandbox's changes in numbers, for petri status. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/base.h"
#include "runtime/change/diff.h"
#include "runtime/change/known.h"
#include "runtime/change/library.h"
#include "runtime/change/render.h"
#include "runtime/change/risk.h"
#include "runtime/change/talk.h"

/* A project of any size must not make `status` slow: beyond this the number is a lower bound. */
enum { MAX_ENTRIES = 200000, MAX_DEPTH = 100, MAX_FIRST = 8 };

struct drift {
    const struct record *r;
    struct ignore *ignore;
    struct known *known; /* once it was needed */
    bool asked;
    struct strv dirs; /* in which something came or went since */
    uint64_t seen, changed;
};

static bool after(struct timespec a, struct timespec b)
{
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec > b.tv_nsec);
}

static bool hidden(const struct record *r, const char *path)
{
    for (size_t i = 0; i < r->hide.n; i++)
        if (path_below(path, r->hide.v[i]))
            return true;
    return false;
}

static const struct node *put_there(struct drift *d, const char *path)
{
    if (!d->asked)
        (void)known_load(d->r, &d->known, NULL);
    d->asked = true;
    return known_find(d->known, path);
}

/* What petri itself put there for this sandbox, of files as far as times tell. */
static bool is_ours(struct drift *d, int dir, const char *name, const char *path,
                    const struct stat *st)
{
    const struct node *put = put_there(d, path);
    if (!put || !S_ISREG(st->st_mode))
        return put && node_matches(dir, name, put);
    return put->kind == NODE_FILE && put->size == (uint64_t)st->st_size &&
           put->mtime.tv_sec == st->st_mtim.tv_sec && put->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

/* Files of the host that are newer than the sandbox; an unreadable directory counts for nothing. */
static void drift_in(struct drift *d, int at, const char *name, const char *path, unsigned depth)
{
    int fd = fs_open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *de;
    struct stat st;

    if (!dir && fd >= 0)
        close(fd);
    if (dir && fstat(fd, &st) == 0 && after(st.st_ctim, d->r->stamp))
        strv_add(&d->dirs, path);
    while (dir && d->seen < MAX_ENTRIES && (de = readdir(dir))) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, "..") || !strcmp(de->d_name, ".git"))
            continue;
        AUTOFREE char *sub = str_printf("%s%s%s", path, *path ? "/" : "", de->d_name);
        d->seen++;
        if (fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || hidden(d->r, sub))
            continue;
        bool is_dir = S_ISDIR(st.st_mode);
        if (!is_dir && !after(st.st_ctim, d->r->stamp))
            continue;
        if (d->ignore && ignore_path(d->ignore, sub, is_dir))
            continue;
        if (!is_dir)
            d->changed += !is_ours(d, dirfd(dir), de->d_name, sub, &st);
        else if (depth < MAX_DEPTH)
            drift_in(d, dirfd(dir), de->d_name, sub, depth + 1);
    }
    if (dir)
        closedir(dir);
}

struct missing {
    struct drift *d;
    int root;
    size_t skip;     /* of a path: the directory */
    char *last;      /* what was looked for there */
    bool last_there; /* and whether it is */
};

static void miss(void *arg, const char *path)
{
    struct missing *m = arg;
    size_t n = m->skip + strcspn(path + m->skip, "/");
    struct stat st;

    if (!m->last || strlen(m->last) != n || strncmp(m->last, path, n) != 0) {
        free(m->last);
        m->last = str_printf("%.*s", (int)n, path);
        m->last_there = fstatat(m->root, m->last, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
    }
    if (m->last_there || hidden(m->d->r, path))
        return;
    const struct node *put = put_there(m->d, path);
    m->d->changed += !(put && put->kind == NODE_NONE);
}

/* What the index of the start has and those directories no more: of files that git does not know nobody can tell. */
static int count_missing(struct drift *d, int root, struct err **e)
{
    CLEANUP(base_free_p) struct base *base = NULL;
    int rc = d->dirs.n ? base_open(d->r, &base, e) : 0;

    for (size_t i = 0; i < d->dirs.n && base; i++) {
        const char *dir = d->dirs.v[i];
        struct missing m = { .d = d, .root = root, .skip = *dir ? strlen(dir) + 1 : 0 };
        base_each(base, dir, miss, &m);
        free(m.last);
    }
    return rc;
}

static int count_drift(const struct record *r, struct drift *ret, struct err **e)
{
    CLEANUP(ignore_free_p) struct ignore *ignore = NULL;
    AUTOCLOSE int root = -1;
    int rc;

    *ret = (struct drift){ .r = r };
    if (!r->stamp.tv_sec)
        return 0;
    if ((rc = record_open_project(r, &root, e)) < 0 ||
        (rc = ignore_open(r->project, &ignore, e)) < 0)
        return rc;
    ret->ignore = ignore;
    drift_in(ret, root, ".", "", 0);
    rc = count_missing(ret, root, e);
    ret->ignore = NULL;
    ret->known = known_free(ret->known);
    strv_free_p(&ret->dirs);
    return rc;
}

/* Each code once. */
static void flags(struct jsonw *w, const struct changeset *c)
{
    jw_arr(w, "flags");
    for (size_t i = 0; i < risk_n_rules; i++) {
        uint64_t n = 0;
        for (size_t k = 0; k < c->n; k++)
            for (size_t m = 0; m < c->v[k].n_risks; m++)
                n += c->v[k].risks[m].rule == &risk_rules[i];
        if (n)
            jw_str(w, NULL, risk_rules[i].code);
    }
    jw_end_arr(w);
}

/* The first few by name, for a reader's first look; petri diff has them all. */
static void paths(struct jsonw *w, const struct changeset *c)
{
    jw_arr(w, "first");
    for (size_t i = 0; i < c->n && i < MAX_FIRST; i++) {
        const struct change *ch = &c->v[i];
        AUTOSTR struct str flags = STR_INIT;
        jw_obj(w, NULL);
        render_json_path(w, "path", ch->path);
        jw_str(w, "kind", change_kind_name(ch->kind));
        for (size_t k = 0; k < ch->n_risks; k++)
            str_addf(&flags, "%s%s", flags.len ? " " : "", ch->risks[k].rule->code);
        jw_str(w, "flags", flags.len ? flags.p : "");
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static int look(void *arg, struct err **e)
{
    const struct record *r = arg;
    CLEANUP(changeset_free_p) struct changeset c = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    struct drift drift;
    struct totals t;
    int rc;

    if ((rc = changeset_host(r, NULL, NULL, &c, e)) < 0 || (rc = count_drift(r, &drift, e)) < 0)
        return rc;
    render_totals(&c, &t);
    jw_obj(&w, NULL);
    jw_u64(&w, "added", t.added);
    jw_u64(&w, "modified", t.modified);
    jw_u64(&w, "deleted", t.deleted);
    jw_u64(&w, "ignored", t.ignored);
    jw_u64(&w, "refused", t.refused);
    flags(&w, &c);
    paths(&w, &c);
    jw_str(&w, "change", c.id);
    jw_u64(&w, "host_changed", drift.changed);
    jw_bool(&w, "host_changed_at_least", drift.seen >= MAX_ENTRIES);
    jw_end_obj(&w);
    talk_json(&w);
    fflush(stdout);
    return 0;
}

int count_main(const char *data, int argc, char **argv)
{
    CLEANUP(record_free_p) struct record r = { 0 };
    const char *word = NULL;
    struct err *e = NULL;
    bool json = false;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else
            word = argv[i];
    }
    if (record_load(data, word, &r, &e) < 0 || record_run_inside(&r, look, &r, &e) < 0)
        return talk_fail(e, json);
    return 0;
}

int risks_main(const char *data, int argc, char **argv)
{
    CLEANUP(words_free_p) struct words w = { 0 };

    words_split(argc, argv, &w);
    if (w.json) {
        AUTOJSONW struct jsonw j = { .pretty = true };
        jw_arr(&j, NULL);
        for (size_t i = 0; i < risk_n_rules; i++) {
            jw_obj(&j, NULL);
            jw_str(&j, "code", risk_rules[i].code);
            jw_str(&j, "class", risk_class_name(risk_rules[i].class));
            jw_str(&j, "reason", risk_rules[i].reason);
            jw_str(&j, "patterns", risk_rules[i].patterns);
            jw_end_obj(&j);
        }
        jw_end_arr(&j);
        talk_json(&j);
        return 0;
    }
    for (size_t i = 0; i < risk_n_rules; i++)
        printf("%-6s %-16s %s%s%s\n", risk_class_name(risk_rules[i].class), risk_rules[i].code,
               risk_rules[i].reason, risk_rules[i].patterns ? ": " : "",
               risk_rules[i].patterns ? risk_rules[i].patterns : "");
    return 0;
}
