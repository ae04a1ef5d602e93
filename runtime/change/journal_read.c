/* runtime/change/journal_read.c - the reading half of journal.h. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/change/journal.h"

enum { MAX_HEAD = 1 << 20, MAX_PLAN = 1 << 30, KEEP_LAST = 50, KEEP_DAYS = 30 };

static int read_json(int dir, const char *name, size_t max, struct json **ret, struct err **e)
{
    AUTOFREE char *text = NULL;
    uint64_t schema;
    size_t len;
    int rc;

    if ((rc = fs_read(dir, name, max, &text, &len, e)) < 0)
        return rc;
    if ((rc = json_parse(text, len, ret, e)) < 0)
        return err_wrap(e, "journal: %s", name);
    if (json_u64(*ret, "schema", &schema) && schema > JOURNAL_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED,
                       "the journal was written by a newer petri; use that one to go on");
    return 0;
}

static int read_head(int dir, struct op *o, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    uint64_t dev, ino, of = 0, files = 0;
    int rc = read_json(dir, "op.json", MAX_HEAD, &j, e);

    if (rc < 0)
        return rc;
    (void)json_u64(j, "of", &of);
    (void)json_u64(j, "files", &files);
    o->kind = str_dup(json_str(j, "kind"));
    o->sandbox = str_dup(json_str(j, "sandbox"));
    o->name = str_dup(json_str(j, "name"));
    o->project = node_read_path(j, "project");
    o->change = str_dup(json_str(j, "change"));
    o->created = str_dup(json_str(j, "created"));
    o->token = str_dup(json_str(j, "token"));
    o->of = (unsigned)of;
    o->files = files;
    if (!o->kind || !o->project || !o->token || strlen(o->token) != 16 || strchr(o->token, '/') ||
        !json_u64(j, "project_dev", &dev) || !json_u64(j, "project_ino", &ino))
        return err_new(e, ERR_CORRUPT, "journal: op.json of operation %u", o->number);
    o->dev = (dev_t)dev;
    o->ino = (ino_t)ino;
    return 0;
}

int journal_dir(const struct journal *j, const struct op *o, int *ret_fd, struct err **e)
{
    AUTOFREE char *name = str_printf("%u%s", o->number, o->open ? ".open" : "");
    int fd = openat(j->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open '%s/%s'", j->path, name);
    *ret_fd = fd;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const struct op *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

int journal_list(const struct journal *j, dev_t dev, ino_t ino, struct op **ret, size_t *ret_n,
                 struct err **e)
{
    int dup = openat(j->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup < 0 ? NULL : fdopendir(dup);
    struct dirent *de;
    struct op *v = NULL;
    size_t n = 0;

    if (!d) {
        close_p(&dup);
        return err_sys(e, "read '%s'", j->path);
    }
    while ((de = readdir(d))) {
        CLEANUP(op_free_p) struct op o = { 0 };
        AUTOCLOSE int dir = -1;
        char *end;
        o.number = (unsigned)strtoul(de->d_name, &end, 10);
        o.open = strcmp(end, ".open") == 0;
        if (end == de->d_name || (*end && !o.open))
            continue;
        /* one that has no head yet has done nothing */
        if (journal_dir(j, &o, &dir, NULL) < 0 || read_head(dir, &o, NULL) < 0)
            continue;
        o.aborted = faccessat(dir, "abort", F_OK, 0) == 0;
        if (ino && (o.dev != dev || o.ino != ino))
            continue;
        v = realloc(v, (n + 1) * sizeof *v);
        if (!v)
            abort();
        v[n++] = o;
        o = (struct op){ 0 };
    }
    closedir(d);
    if (n)
        qsort(v, n, sizeof *v, by_number);
    *ret = v;
    *ret_n = n;
    return 0;
}

static bool path_ok(const char *p)
{
    if (!p || *p == '/')
        return false;
    for (;;) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        if (!p[n])
            return true;
        p += n + 1;
    }
}

static int read_item(const struct json *j, struct op *o, struct err **e)
{
    AUTOFREE char *path = node_read_path(j, "path"), *anchor = node_read_path(j, "anchor");
    const char *step = json_str(j, "step");
    int s = STEP_CHMOD, rc;

    while (s >= 0 && !(step && strcmp(step, step_name((enum step)s)) == 0))
        s--;
    if (s < 0 || !path_ok(path) || !anchor || (*anchor && !path_ok(anchor)))
        return err_new(e, ERR_CORRUPT, "journal: plan.json of operation %u", o->number);
    struct item *it = op_add(o, path, (enum step)s);
    it->anchor = TAKE_PTR(anchor);
    it->exact = json_bool(j, "exact");
    it->left = json_bool(j, "left");
    if ((rc = node_read(json_get(j, "old"), &it->old, e)) < 0 ||
        (rc = node_read(json_get(j, "new"), &it->new, e)) < 0)
        return err_wrap(e, "journal: plan.json of operation %u", o->number);
    return 0;
}

int journal_items(int dir, struct op *o, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    int rc;

    if (faccessat(dir, "plan.json", F_OK, 0) < 0 && errno == ENOENT)
        return err_new(e, ERR_NOT_FOUND, "operation %u has no plan", o->number);
    if ((rc = read_json(dir, "plan.json", MAX_PLAN, &j, e)) < 0)
        return rc;
    const struct json *items = json_arr(j, "items");
    o->files = 0; /* counted again */
    if (!items)
        return err_new(e, ERR_CORRUPT, "journal: plan.json of operation %u", o->number);
    for (size_t i = 0; i < items->n; i++)
        if ((rc = read_item(items->items[i], o, e)) < 0)
            return rc;
    return 0;
}

int journal_anchors(int dir, struct strv *ret, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    int rc = read_json(dir, "stage.json", MAX_PLAN, &j, e);
    if (rc < 0)
        return rc;
    const struct json *list = json_arr(j, "anchors");
    for (size_t i = 0; list && i < list->n; i++) {
        char *p = node_read_path(list->items[i], "dir");
        if (p && (!*p || path_ok(p)))
            strv_take(ret, p);
        else
            free(p);
    }
    return 0;
}

void journal_age(const struct journal *j)
{
    struct op *v = NULL;
    size_t n = 0;
    char limit[32];
    time_t t = time(NULL) - (time_t)KEEP_DAYS * 86400;
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(limit, sizeof limit, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (journal_list(j, 0, 0, &v, &n, NULL) < 0)
        return;
    for (size_t i = 0; i + KEEP_LAST < n; i++)
        if (!v[i].open && v[i].created && strcmp(v[i].created, limit) < 0)
            journal_drop(j, &v[i]);
    ops_free(v, n);
}
