/* runtime/change/journal.c - entries: making, finishing, dropping, locking. journal_read.c reads them. */
#include "runtime/change/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>

#include "base/fs.h"

const char *step_name(enum step s)
{
    static const char *const names[] = { "remove", "rmdir", "mkdir", "create", "replace", "chmod" };
    return names[s];
}

void item_free(struct item *it)
{
    free(it->path);
    free(it->anchor);
    node_free_p(&it->old);
    node_free_p(&it->new);
}

void op_free_p(struct op *o)
{
    for (size_t i = 0; i < o->n; i++)
        item_free(&o->v[i]);
    free(o->v);
    free(o->kind);
    free(o->sandbox);
    free(o->name);
    free(o->project);
    free(o->change);
    free(o->created);
    free(o->token);
    *o = (struct op){ 0 };
}

void ops_free(struct op *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        op_free_p(&v[i]);
    free(v);
}

struct item *op_add(struct op *o, const char *path, enum step step)
{
    if ((o->n & (o->n + 1)) == 0) {
        o->v = realloc(o->v, (2 * o->n + 1) * sizeof *o->v);
        if (!o->v)
            abort();
    }
    struct item *it = &o->v[o->n++];
    *it = (struct item){ .path = str_dup(path), .step = step };
    o->files += step != STEP_MKDIR && step != STEP_RMDIR;
    return it;
}

void item_temp(const struct op *o, size_t i, bool second, char buf[64])
{
    snprintf(buf, 64, ".petri-%.16s-%zu%s", o->token, i, second ? "o" : "");
}

int journal_open(const char *data, struct journal *ret, struct err **e)
{
    AUTOFREE char *path = path_join(data, "journal");
    int rc = fs_private_dir(path, e);
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    *ret = (struct journal){ .fd = fd, .path = TAKE_PTR(path) };
    return 0;
}

void journal_close_p(struct journal *j)
{
    if (j->path)
        close_p(&j->fd);
    free(j->path);
    *j = (struct journal){ .fd = -1 };
}

static int lock_file(const struct journal *j, dev_t dev, ino_t ino, int how, int *ret_fd,
                     struct err **e)
{
    AUTOFREE char *name =
        str_printf("lock.%llx-%llx", (unsigned long long)dev, (unsigned long long)ino);
    AUTOCLOSE int fd = openat(j->fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(e, "open the lock '%s/%s'", j->path, name);
    if (RETRY(flock(fd, how)) < 0)
        return errno == EWOULDBLOCK ? -ERR_BUSY : err_sys(e, "lock '%s/%s'", j->path, name);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int journal_lock(const struct journal *j, dev_t dev, ino_t ino, int *ret_fd, struct err **e)
{
    return lock_file(j, dev, ino, LOCK_EX, ret_fd, e);
}

int journal_try_lock(const struct journal *j, dev_t dev, ino_t ino, int *ret_fd)
{
    return lock_file(j, dev, ino, LOCK_EX | LOCK_NB, ret_fd, NULL);
}

/* The next number: one above all that are there. */
static int take_number(const struct journal *j, const char *made, struct op *o, struct err **e)
{
    int dup = openat(j->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup < 0 ? NULL : fdopendir(dup);
    struct dirent *de;
    unsigned long top = 0;

    if (!d) {
        close_p(&dup);
        return err_sys(e, "read '%s'", j->path);
    }
    while ((de = readdir(d))) {
        char *end;
        unsigned long n = strtoul(de->d_name, &end, 10);
        if (end > de->d_name && (!*end || !strcmp(end, ".open")) && n > top)
            top = n;
    }
    closedir(d);
    for (unsigned i = 1; i <= 1000; i++) {
        AUTOFREE char *name = str_printf("%lu.open", top + i);
        if (renameat(j->fd, made, j->fd, name) == 0) {
            o->number = (unsigned)top + i;
            o->open = true;
            return 0;
        }
        if (errno != EEXIST && errno != ENOTEMPTY)
            return err_sys(e, "make '%s/%s'", j->path, name);
    }
    return err_new(e, ERR_FAILED, "no free number in '%s'", j->path);
}

static void write_op(const struct op *o, struct jsonw *w)
{
    jw_obj(w, NULL);
    jw_int(w, "schema", JOURNAL_SCHEMA);
    jw_str(w, "kind", o->kind);
    if (o->of)
        jw_u64(w, "of", o->of);
    jw_str(w, "sandbox", o->sandbox);
    jw_str(w, "name", o->name);
    node_write_path(w, "project", o->project);
    jw_u64(w, "project_dev", o->dev);
    jw_u64(w, "project_ino", o->ino);
    jw_str(w, "change", o->change);
    jw_str(w, "created", o->created);
    jw_str(w, "token", o->token);
    jw_u64(w, "files", o->files);
    jw_end_obj(w);
}

static void write_stage(const struct op *o, struct jsonw *w)
{
    AUTOSTRV struct strv seen = { 0 };
    jw_obj(w, NULL);
    jw_arr(w, "anchors");
    for (size_t i = 0; i < o->n; i++) {
        /* sorted by path, so most that are equal stand together */
        if (seen.n && strcmp(seen.v[seen.n - 1], o->v[i].anchor) == 0)
            continue;
        strv_add(&seen, o->v[i].anchor);
        jw_obj(w, NULL);
        node_write_path(w, "dir", o->v[i].anchor);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_end_obj(w);
}

static void new_token(struct op *o)
{
    unsigned char raw[8];
    struct str s = STR_INIT;
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        abort();
    for (size_t i = 0; i < sizeof raw; i++)
        str_addf(&s, "%02x", raw[i]);
    free(o->token);
    o->token = str_take(&s);
}

static int put(int dir, const char *name, const struct jsonw *w, struct err **e)
{
    return fs_write_atomic(dir, name, w->out.p, w->out.len, 0600, e);
}

int journal_begin(const struct journal *j, struct op *o, int *ret_dir, struct err **e)
{
    AUTOFREE char *made = str_printf(".new-%d", (int)getpid());
    AUTOJSONW struct jsonw head = { 0 }, stage = { 0 };
    AUTOCLOSE int dir = -1;
    char now[32];
    time_t t = time(NULL);
    struct tm tm;
    int rc;

    gmtime_r(&t, &tm);
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &tm);
    free(o->created);
    o->created = str_dup(now);
    new_token(o);
    write_op(o, &head);
    write_stage(o, &stage);
    /* it has its name once it has its head: what is under a number is never without */
    (void)fs_remove_tree(j->fd, made, NULL);
    if (mkdirat(j->fd, made, 0700) < 0 ||
        (dir = openat(j->fd, made, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, "make a directory in '%s'", j->path);
    rc = put(dir, "stage.json", &stage, e);
    if (rc == 0)
        rc = put(dir, "op.json", &head, e);
    if (rc == 0)
        rc = take_number(j, made, o, e);
    if (rc < 0)
        (void)fs_remove_tree(j->fd, made, NULL);
    else if (fsync(j->fd) < 0)
        rc = err_sys(e, "sync '%s'", j->path);
    if (rc < 0) {
        if (o->open)
            journal_drop(j, o);
        return rc;
    }
    *ret_dir = TAKE_FD(dir);
    return 0;
}

void journal_sweep(const struct journal *j)
{
    int dup = openat(j->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup < 0 ? NULL : fdopendir(dup);
    struct dirent *de;

    while (d && (de = readdir(d)))
        if (str_starts(de->d_name, ".new-")) {
            pid_t pid = (pid_t)strtol(de->d_name + 5, NULL, 10);
            if (pid > 1 && kill(pid, 0) < 0 && errno == ESRCH)
                (void)fs_remove_tree(j->fd, de->d_name, NULL);
        }
    if (d)
        closedir(d);
}

int journal_ready(int dir, const struct op *o, struct err **e)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_int(&w, "schema", JOURNAL_SCHEMA);
    jw_arr(&w, "items");
    for (size_t i = 0; i < o->n; i++) {
        const struct item *it = &o->v[i];
        jw_obj(&w, NULL);
        node_write_path(&w, "path", it->path);
        jw_str(&w, "step", step_name(it->step));
        node_write_path(&w, "anchor", it->anchor);
        jw_bool(&w, "exact", it->exact);
        if (it->left)
            jw_bool(&w, "left", true);
        node_write(&w, "old", &it->old);
        node_write(&w, "new", &it->new);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    return put(dir, "plan.json", &w, e);
}

int journal_mark_done(int dir, struct err **e)
{
    return fs_write_atomic(dir, "done", "", 0, 0600, e);
}

int journal_finish(const struct journal *j, const struct op *o, int dir, struct err **e)
{
    AUTOFREE char *from = str_printf("%u.open", o->number), *to = str_printf("%u", o->number);

    (void)unlinkat(dir, "stage.json", 0);
    if (renameat(j->fd, from, j->fd, to) < 0)
        return err_sys(e, "rename '%s/%s'", j->path, from);
    return fsync(j->fd) < 0 ? err_sys(e, "sync '%s'", j->path) : 0;
}

void journal_drop(const struct journal *j, const struct op *o)
{
    AUTOFREE char *name = str_printf("%u%s", o->number, o->open ? ".open" : "");
    /* the plan goes first: what is half removed must not be recovered */
    AUTOCLOSE int dir = openat(j->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        (void)unlinkat(dir, "plan.json", 0);
    (void)fs_remove_tree(j->fd, name, NULL);
}
