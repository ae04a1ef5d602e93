/* runtime/config/source.c - finding and reading the files. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/user.h"
#include "runtime/config/source.h"
#include "runtime/config/trust.h"

const char config_system_file[] = "/etc/petri/config.json";

char *config_user_dir(void)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    CLEANUP(user_free_p) struct user u = { 0 };

    if (xdg && xdg[0] == '/')
        return str_dup(xdg);
    if (home && home[0] == '/')
        return path_join(home, ".config");
    return user_by_uid(geteuid(), &u) && u.home ? path_join(u.home, ".config") : NULL;
}

static void mistake(struct loader *l, const char *path, const char *what)
{
    strv_addf(&l->c->mistakes, "%s: %s", path, what);
}

/* Whose files count: root's and one's own. A project's may be its owner's, they count only as far as they
 * tighten. */
static bool owner_ok(const struct stat *st, enum config_layer layer, int dirfd)
{
    struct stat dir;
    if (st->st_uid == 0 || st->st_uid == geteuid())
        return true;
    return layer == LAYER_PROJECT && dirfd >= 0 && fstat(dirfd, &dir) == 0 &&
           dir.st_uid == st->st_uid;
}

static char *judge(const struct stat *st, enum config_layer layer, int dirfd)
{
    if (S_ISDIR(st->st_mode))
        return str_dup("is a directory; a plain file is wanted");
    if (!S_ISREG(st->st_mode))
        return str_dup("is a pipe, socket or device; a plain file is wanted");
    if (st->st_size > JSONC_MAX_SIZE)
        return str_dup("is larger than 4 MB");
    if (!owner_ok(st, layer, dirfd))
        return str_printf("belongs to uid %u, neither to you nor to root; it does not count",
                          st->st_uid);
    if (layer != LAYER_PROJECT && st->st_mode & S_IWOTH)
        return str_dup("can be written by everybody; chmod o-w it");
    return NULL;
}

/* NULL: read, or not there (*ret_text is NULL then); else what is wrong. */
static char *read_file(int fd, enum config_layer layer, int dirfd, struct source *s)
{
    AUTOSTR struct str text = STR_INIT;
    struct stat st;
    char buf[16384], *wrong;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return str_printf("can't be read: %s", strerror(errno));
    if ((wrong = judge(&st, layer, dirfd)))
        return wrong;
    while ((n = RETRY(read(fd, buf, sizeof buf))) > 0 && text.len <= JSONC_MAX_SIZE)
        str_addn(&text, buf, (size_t)n);
    if (n < 0)
        return str_printf("can't be read: %s", strerror(errno));
    s->len = text.len;
    s->text = str_take(&text);
    return NULL;
}

/* `dirfd` < 0: `name` is the whole path, and may be a link (people keep such files elsewhere). */
static void add_file(struct loader *l, enum config_layer layer, int dirfd, const char *dir,
                     const char *name)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    AUTOCLOSE int fd = dirfd < 0 ? open(name, flags) : fs_open_beneath(dirfd, name, flags, 0, 0);
    struct source s = { .layer = layer, .trusted = layer == LAYER_PROJECT ? -1 : 1 };
    CLEANUP(err_free_p) struct err *e = NULL;
    const char *base = strrchr(name, '/');
    AUTOFREE char *wrong = NULL;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return;
    /* a directory that can't be entered: whoever wants to work in it says so */
    if (fd < 0 && errno == EACCES && dirfd >= 0 && faccessat(dirfd, ".", X_OK, AT_EACCESS) < 0)
        return;
    s.path = dirfd < 0 ? str_dup(name) : path_join(dir, name);
    s.foreign = str_starts(base ? base + 1 : name, "wonopcode") ||
                (layer == LAYER_USER && strstr(s.path, "/wonopcode/"));
    if (fd < 0)
        wrong = errno == ELOOP ? str_dup("is a link; a plain file is wanted")
                               : str_printf("can't be read: %s", strerror(errno));
    else
        wrong = read_file(fd, layer, dirfd, &s);
    if (!wrong && jsonc_parse(s.text, s.len, &s.doc, &e) < 0) {
        AUTOFREE char *why = err_text(e);
        strv_addf(&l->c->mistakes, "%s:%s", s.path, why);
    } else if (!wrong) {
        strv_add(&l->c->files, s.path);
        l->sources = realloc(l->sources, (l->n_sources + 1) * sizeof *l->sources);
        if (!l->sources)
            abort();
        l->sources[l->n_sources++] = s;
        return;
    }
    if (wrong)
        mistake(l, s.path, wrong);
    source_free(&s);
}

static void add_dir(struct loader *l, enum config_layer layer, const char *dir,
                    const char *const *names, size_t n)
{
    AUTOCLOSE int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        AUTOFREE char *path = layer == LAYER_PROJECT ? NULL : path_join(dir, names[i]);
        add_file(l, layer, path ? -1 : fd, dir, path ? path : names[i]);
    }
}

void sources_read(struct loader *l)
{
    static const char *const user[] = { "wonopcode.json", "wonopcode.jsonc", "config.json",
                                        "config.jsonc" };
    static const char *const project[] = { "wonopcode.json", "wonopcode.jsonc", "petri.json",
                                           "petri.jsonc" };
    const struct config_from *f = l->from;

    if (f->file) {
        bool projects = false;
        for (size_t i = 0; i < ARRAY_LEN(project); i++)
            projects |= str_ends(f->file, project[i]) && !strstr(f->file, "/wonopcode/");
        if (access(f->file, F_OK) < 0)
            mistake(l, f->file, strerror(errno));
        else
            add_file(l, projects ? LAYER_PROJECT : LAYER_USER, -1, NULL, f->file);
        return;
    }
    if (f->system)
        add_file(l, LAYER_SYSTEM, -1, NULL, f->system);
    if (f->user) {
        AUTOFREE char *theirs = path_join(f->user, "wonopcode");
        AUTOFREE char *ours = path_join(f->user, "petri/config.json");
        add_dir(l, LAYER_USER, theirs, user, ARRAY_LEN(user));
        add_file(l, LAYER_USER, -1, NULL, ours);
    }
    if (f->project)
        add_dir(l, LAYER_PROJECT, f->project, project, ARRAY_LEN(project));
}

void source_free(struct source *s)
{
    free(s->path);
    free(s->text);
    jsonc_free_p(&s->doc);
    strv_free_p(&s->included);
    strv_free_p(&s->contents);
}

char *source_whole(const struct source *s)
{
    AUTOSTR struct str all = STR_INIT;

    str_addn(&all, s->text, s->len);
    for (size_t i = 0; i < s->included.n; i++)
        str_addf(&all, "\n{file:%s} %zu\n%s", s->included.v[i], strlen(s->contents.v[i]),
                 s->contents.v[i]);
    return str_take(&all);
}

bool source_trusted(struct loader *l, const struct source *s)
{
    struct source *own = &l->sources[s - l->sources];
    if (own->trusted < 0) {
        AUTOFREE char *whole = source_whole(s);
        own->trusted = l->from->trust_all ||
                       (l->from->data && trust_has(l->from->data, s->path, whole, strlen(whole)));
    }
    return own->trusted;
}
