#include "runtime/workspace/layer_merge.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/workspace/layer_merge_priv.h"
#include "runtime/workspace/layer_node.h"

/* A directory of the result: in which layers it is, topmost first, down to the one that hides the rest. */
struct part {
    char *name;
    unsigned short *from;
    size_t n;
    bool opaque; /* hides what is below the merged layers */
};

struct level {
    struct part self;
    struct part *subs;
    size_t n, next;
    size_t path_len; /* of the directory above */
};

struct join {
    const int *layers;
    int dst;
    const char *marks;
    char opaque_name[40];
    struct nodes nodes;
    struct str path;
    struct level *stack;
    size_t depth;
};

/* One name in one of the directories that are being joined. */
struct name {
    char *text;
    size_t at; /* which of the part's layers */
};

static void part_free(struct part *p)
{
    free(p->name);
    free(p->from);
}

static void level_free(struct level *l)
{
    for (size_t i = l->next; i < l->n; i++)
        part_free(&l->subs[i]);
    free(l->subs);
    part_free(&l->self);
}

static void *grow(void *p, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return p;
    p = realloc(p, (n ? 2 * n : 1) * size);
    if (!p)
        abort();
    return p;
}

/* ---- look-up --------------------------------------------------------------------------------- */

/* The directory at `path` below `top`, whatever its depth: a path longer than the kernel takes is
 * walked in pieces. */
static int open_at(int top, const char *path)
{
    AUTOCLOSE int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char piece[2048];

    while (fd >= 0 && *path) {
        size_t n = strlen(path);
        if (n >= sizeof piece) {
            for (n = sizeof piece - 1; n > 0 && path[n] != '/'; n--)
                ;
        }
        memcpy(piece, path, n);
        piece[n] = '\0';
        int next = fs_open_beneath(fd, piece, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
        close_p(&fd);
        fd = next;
        path += n + (path[n] == '/');
    }
    return TAKE_FD(fd);
}

static bool has_mark(int dir, const char *name, const char *mark, char value[8])
{
    char path[320];
    ssize_t n;
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name);
    n = lgetxattr(path, mark, value, 7);
    value[n < 0 ? 0 : n] = '\0';
    return n >= 0 || errno == ERANGE;
}

static bool is_opaque(const struct join *j, int dir, const char *name)
{
    char value[8];
    return j->marks && has_mark(dir, name, j->opaque_name, value) && strcmp(value, "y") == 0;
}

/* Petri's overlays are mounted without these; what has them shows the content of another name. */
static int refuse_redirect(const struct join *j, int dir, const char *name, struct err **e)
{
    static const char *const words[] = { "redirect", "metacopy" };
    char mark[40], value[8];

    for (size_t i = 0; j->marks && i < ARRAY_LEN(words); i++) {
        snprintf(mark, sizeof mark, "%s%s", j->marks, words[i]);
        if (has_mark(dir, name, mark, value))
            return err_new(e, ERR_UNSUPPORTED, "'%s' has the attribute %s: these layers stay apart",
                           j->path.p, mark);
    }
    return 0;
}

/* ---- one directory --------------------------------------------------------------------------- */

static int name_compare(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    int c = strcmp(x->text, y->text);
    return c ? c : x->at < y->at ? -1 : 1;
}

/* Goes down from the topmost layer to where something hides what is below. */
static int add_sub(struct join *j, struct level *l, const struct name *v, size_t n, const int *fds,
                   int dfd, struct err **e)
{
    struct part p = { .name = str_dup(v->text) };
    struct stat st;
    int rc = 0;

    p.from = mem_zalloc(n * sizeof *p.from);
    for (size_t i = 0; i < n && !p.opaque && rc == 0; i++) {
        int fd = fds[v[i].at];
        if (fstatat(fd, v[i].text, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = err_sys(e, "look at '%s'", j->path.p);
        else if (!S_ISDIR(st.st_mode))
            p.opaque = true;
        else {
            p.from[p.n++] = l->self.from[v[i].at];
            p.opaque = is_opaque(j, fd, v[i].text);
            rc = refuse_redirect(j, fd, v[i].text, e);
        }
    }
    if (rc == 0 && mkdirat(dfd, p.name, 0700) < 0 && (errno != EEXIST || j->depth > 1))
        rc = err_sys(e, "make '%s'", j->path.p);
    l->subs = grow(l->subs, l->n, sizeof *l->subs);
    l->subs[l->n++] = p;
    return rc;
}

/* `v` holds the same name n times, topmost first: that one is what is seen. */
static int join_name(struct join *j, struct level *l, const struct name *v, size_t n,
                     const int *fds, int dfd, struct err **e)
{
    size_t len = j->path.len;
    struct stat st;
    int rc = 0, sdir = fds[v->at];
    bool top = j->depth == 1;

    /* beside r, w0 ... lies only what is nobody's content */
    if (top && (v->text[0] == '.' || strcmp(v->text, "work") == 0))
        return 0;
    str_addf(&j->path, "%s%s", len ? "/" : "", v->text);
    if (fstatat(sdir, v->text, &st, AT_SYMLINK_NOFOLLOW) < 0)
        rc = err_sys(e, "look at '%s'", j->path.p);
    else if (S_ISDIR(st.st_mode))
        rc = add_sub(j, l, v, n, fds, dfd, e);
    else if (top || (j->marks && l->self.opaque && node_is_whiteout(&st)))
        rc = 0; /* nothing below it that it could hide */
    else if ((rc = refuse_redirect(j, sdir, v->text, e)) == 0)
        rc = node_put(&j->nodes, sdir, dfd, v->text, &st, j->path.p, e);
    j->path.p[j->path.len = len] = '\0';
    return rc;
}

/* Every name of one directory; where there is only one, each is dealt with at once and forgotten. */
static int read_names(struct join *j, struct level *l, size_t at, const int *fds, int dfd,
                      struct name **v, size_t *n, struct err **e)
{
    DIR *d = fs_list(fds[at]);
    struct dirent *de;
    int rc = 0;

    if (!d)
        return err_sys(e, "read directory '%s'", j->path.p);
    while (rc == 0 && (errno = 0, de = fs_next(d))) {
        struct name one = { .text = de->d_name, .at = at };
        if (l->self.n == 1) {
            rc = join_name(j, l, &one, 1, fds, dfd, e);
            continue;
        }
        *v = grow(*v, *n, sizeof **v);
        (*v)[(*n)++] = (struct name){ .text = str_dup(de->d_name), .at = at };
    }
    if (rc == 0 && errno)
        rc = err_sys(e, "read directory '%s'", j->path.p);
    closedir(d);
    return rc;
}

static int join_dir(struct join *j, struct level *l, struct err **e)
{
    AUTOCLOSE int dfd = open_at(j->dst, j->path.p);
    int fds[LAYER_MERGE_MOST], rc = 0;
    struct name *v = NULL;
    size_t n = 0, open = 0;

    if (dfd < 0)
        return err_sys(e, "open '%s'", j->path.p);
    for (; open < l->self.n && rc == 0; open++) {
        fds[open] = open_at(j->layers[l->self.from[open]], j->path.p);
        if (fds[open] < 0)
            rc = err_sys(e, "open '%s'", j->path.p);
    }
    for (size_t i = 0; i < l->self.n && rc == 0; i++)
        rc = read_names(j, l, i, fds, dfd, &v, &n, e);
    if (n)
        qsort(v, n, sizeof *v, name_compare);
    for (size_t i = 0, k; i < n && rc == 0; i = k) {
        for (k = i + 1; k < n && strcmp(v[k].text, v[i].text) == 0; k++)
            ;
        rc = join_name(j, l, &v[i], k - i, fds, dfd, e);
    }
    for (size_t i = 0; i < n; i++)
        free(v[i].text);
    free(v);
    for (size_t i = 0; i < open; i++)
        close_p(&fds[i]);
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int finish_dir(struct join *j, const struct part *p, struct err **e)
{
    AUTOCLOSE int s = open_at(j->layers[p->from[0]], j->path.p);
    AUTOCLOSE int d = open_at(j->dst, j->path.p);

    if (s < 0 || d < 0)
        return err_sys(e, "open '%s'", j->path.p);
    if (j->marks && p->opaque && fsetxattr(d, j->opaque_name, "y", 1, 0) < 0)
        return err_sys(e, "attribute of '%s'", j->path.p);
    return node_finish_dir(&j->nodes, s, d, j->marks ? j->opaque_name : NULL, j->path.p, e);
}

/* Enters a directory: makes what is in it, and remembers its directories for later. */
static int enter(struct join *j, struct part p, struct err **e)
{
    struct level l = { .self = p, .path_len = j->path.len };
    int rc;

    if (p.name)
        str_addf(&j->path, "%s%s", j->path.len ? "/" : "", p.name);
    j->stack = grow(j->stack, j->depth, sizeof *j->stack);
    j->depth++;
    rc = join_dir(j, &l, e);
    j->stack[j->depth - 1] = l;
    return rc;
}

static int leave(struct join *j, struct err **e)
{
    struct level *l = &j->stack[j->depth - 1];
    int rc = j->depth > 1 ? finish_dir(j, &l->self, e) : 0;

    j->path.p[j->path.len = l->path_len] = '\0';
    level_free(l);
    j->depth--;
    return rc;
}

int layer_join(const int *layers, size_t n, int dst, bool same_file, const char *marks,
               struct err **e)
{
    struct join j = { .layers = layers, .dst = dst, .marks = marks };
    struct part top = { .n = n, .from = mem_zalloc(n * sizeof *top.from) };
    int rc, end;

    for (size_t i = 0; i < n; i++)
        top.from[i] = (unsigned short)(n - 1 - i);
    snprintf(j.opaque_name, sizeof j.opaque_name, "%sopaque", marks ? marks : "");
    nodes_init(&j.nodes, dst, same_file);
    str_add(&j.path, "");
    rc = enter(&j, top, e);
    while (rc == 0 && j.depth) {
        struct level *l = &j.stack[j.depth - 1];
        rc = l->next < l->n ? enter(&j, l->subs[l->next++], e) : leave(&j, e);
    }
    while (j.depth)
        level_free(&j.stack[--j.depth]);
    free(j.stack);
    str_reset(&j.path);
    end = nodes_end(&j.nodes, rc == 0 ? e : NULL);
    return rc < 0 ? rc : end;
}

int layer_merge(const int *layers, size_t n, int dst, bool userxattr, struct err **e)
{
    if (n == 0 || n > LAYER_MERGE_MOST)
        return err_new(e, ERR_INTERNAL, "%zu layers to be merged at once", n);
    return layer_join(layers, n, dst, true, userxattr ? "user.overlay." : "trusted.overlay.", e);
}
