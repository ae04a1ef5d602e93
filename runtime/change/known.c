#include "runtime/change/known.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"

enum { MAX_PARENTS = 100 };

struct entry {
    char *path;
    unsigned number;
    struct node node;
};

struct known {
    struct entry *v; /* sorted by path, newest first */
    size_t n;
    struct json **dirs; /* of each operation, oldest first */
    size_t n_dirs;
};

struct known *known_free(struct known *k)
{
    for (size_t i = 0; k && i < k->n; i++) {
        free(k->v[i].path);
        node_free_p(&k->v[i].node);
    }
    for (size_t i = 0; k && i < k->n_dirs; i++)
        json_free(k->dirs[i]);
    if (k) {
        free(k->v);
        free(k->dirs);
    }
    free(k);
    return NULL;
}

/* One whose promotions count: all of the sandbox itself, those before the fork of who it was forked from. */
struct forebear {
    char *id, *forked; /* NULL: never */
    uint64_t next;     /* the journal's next number at the fork; 0: the record does not say */
};

struct line {
    struct forebear v[MAX_PARENTS];
    size_t n;
};

static void line_free_p(struct line *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].id);
        free(l->v[i].forked);
    }
}

static void ancestors(const struct record *r, struct line *l)
{
    l->v[l->n++].id = str_dup(r->id);
    while (l->n < MAX_PARENTS) {
        struct forebear *next = &l->v[l->n];
        AUTOFREE char *path = str_printf("%s/sandboxes/%s/state.json", r->data, next[-1].id);
        AUTOFREE char *text = NULL;
        AUTOJSON struct json *j = NULL;
        size_t n;
        if (fs_read(AT_FDCWD, path, 16 << 20, &text, &n, NULL) < 0 ||
            json_parse(text, n, &j, NULL) < 0 || !json_str(j, "parent") || !json_str(j, "created"))
            return;
        next->id = str_dup(json_str(j, "parent"));
        next->forked = str_dup(json_str(j, "created"));
        (void)json_u64(j, "journal_next", &next->next);
        l->n++;
    }
}

/* The time alone leaves the second of the fork in doubt, and is wrong after the clock was set back; the number alone,
 * where the journal was begun anew. */
static bool counts(const struct line *l, const struct op *o)
{
    if (o->open || o->aborted || !o->sandbox || !o->created)
        return false;
    for (size_t i = 0; i < l->n; i++) {
        const struct forebear *f = &l->v[i];
        if (strcmp(f->id, o->sandbox) != 0)
            continue;
        int c = f->forked ? strcmp(o->created, f->forked) : -1;
        return f->next ? c <= 0 && o->number < f->next : c < 0;
    }
    return false;
}

static void take_items(struct known *k, struct op *o)
{
    k->v = realloc(k->v, (k->n + o->n + 1) * sizeof *k->v);
    if (!k->v)
        abort();
    for (size_t i = 0; i < o->n; i++) {
        struct item *it = &o->v[i];
        if (it->left)
            continue;
        k->v[k->n++] = (struct entry){ str_dup(it->path), o->number, it->new };
        it->new = (struct node){ 0 };
    }
}

/* --- directories ----------------------------------------------------------------------------------------- */

static struct json *read_dirs(int entry)
{
    AUTOFREE char *text = NULL;
    struct json *j = NULL;
    size_t n;
    if (fs_read(entry, "dirs.json", 256 << 20, &text, &n, NULL) < 0 ||
        json_parse(text, n, &j, NULL) < 0)
        return NULL;
    return j;
}

/* 1 it is as noted, 0 it is not, -1 nothing is noted. */
static int noted(const struct json *j, const char *path, const struct stat *st)
{
    const struct json *list = json_arr(j, "dirs");
    for (size_t i = 0; list && i < list->n; i++) {
        AUTOFREE char *p = node_read_path(list->items[i], "path");
        uint64_t ino, sec, nsec;
        if (!str_eq(p, path))
            continue;
        return json_u64(list->items[i], "ino", &ino) && json_u64(list->items[i], "ctime", &sec) &&
               json_u64(list->items[i], "ctime_nsec", &nsec) && ino == st->st_ino &&
               (time_t)sec == st->st_ctim.tv_sec && (long)nsec == st->st_ctim.tv_nsec;
    }
    return -1;
}

bool known_dir(const struct known *k, const char *path, const struct stat *st)
{
    for (size_t i = k ? k->n_dirs : 0; i-- > 0;) {
        int is = noted(k->dirs[i], path, st);
        if (is >= 0)
            return is;
    }
    return false;
}

bool known_dir_of(int entry, const char *path, const struct stat *st)
{
    AUTOJSON struct json *j = read_dirs(entry);
    return j && noted(j, path, st) == 1;
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->path, y->path);
    if (c || x->number != y->number)
        return c ? c : x->number > y->number ? -1 : 1;
    /* where one thing went and another came to its place, the latter is what is there */
    return (x->node.kind == NODE_NONE) - (y->node.kind == NODE_NONE);
}

int known_load(const struct record *r, struct known **ret, struct err **e)
{
    CLEANUP(journal_close_p) struct journal j = { .fd = -1 };
    CLEANUP(line_free_p) struct line l = { 0 };
    struct known *k = mem_zalloc(sizeof *k);
    struct op *v = NULL;
    size_t n = 0;
    int rc = journal_open(r->data, &j, e);

    if (rc == 0)
        rc = journal_list(&j, r->project_dev, r->project_ino, &v, &n, e);
    ancestors(r, &l);
    for (size_t i = 0; i < n && rc == 0; i++) {
        AUTOCLOSE int dir = -1;
        if (!counts(&l, &v[i]))
            continue;
        rc = journal_dir(&j, &v[i], &dir, e);
        if (rc == 0)
            rc = journal_items(dir, &v[i], e);
        if (rc < 0)
            break;
        take_items(k, &v[i]);
        k->dirs = realloc(k->dirs, (k->n_dirs + 1) * sizeof *k->dirs);
        if (!k->dirs)
            abort();
        if ((k->dirs[k->n_dirs] = read_dirs(dir)))
            k->n_dirs++;
    }
    ops_free(v, n);
    if (rc < 0) {
        known_free(k);
        return rc;
    }
    if (k->n)
        qsort(k->v, k->n, sizeof *k->v, compare);
    *ret = k;
    return 0;
}

const struct node *known_find(const struct known *k, const char *path)
{
    size_t lo = 0, hi = k ? k->n : 0;
    while (lo < hi) { /* the first of its path: the newest */
        size_t mid = (lo + hi) / 2;
        if (strcmp(k->v[mid].path, path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (!k || lo >= k->n || strcmp(k->v[lo].path, path) != 0 || k->v[lo].node.foreign)
        return NULL;
    return &k->v[lo].node;
}
