/* runtime/config/subst.c - {env:NAME} and {file:PATH} in strings. What is put in is not looked through
 * again, so nothing can include itself. */
#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/config/source.h"

enum { MAX_FILE = 64 << 10, MAX_FILES = 100 };

/* The next {env:...} or {file:...}; NULL: none. */
static const char *next_one(const char *p, bool *ret_file)
{
    const char *env = strstr(p, "{env:"), *file = strstr(p, "{file:");
    *ret_file = file && (!env || file < env);
    return *ret_file ? file : env;
}

bool subst_has(const char *text)
{
    bool file;
    return next_one(text, &file) != NULL;
}

/* Files beside the configuration's own, and for a user's file those of the home: the directory and the
 * path below it. False: elsewhere. */
static bool locate(const struct source *s, const char *path, char **ret_dir, const char **ret_rel)
{
    AUTOFREE char *dir = str_dup(s->path);
    const char *home = s->layer == LAYER_USER ? getenv("HOME") : NULL;

    *strrchr(dir, '/') = '\0';
    if (home && str_starts(path, "~/")) {
        free(dir);
        dir = str_dup(home);
        path += 2;
    } else if (path[0] == '/' && path_below(path, dir)) {
        path += strlen(dir);
    } else if (path[0] == '/' && home && path_below(path, home)) {
        free(dir);
        dir = str_dup(home);
        path += strlen(dir);
    } else if (path[0] == '/' || path[0] == '~') {
        return false;
    }
    path += strspn(path, "/");
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/')
        if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
            return false;
    *ret_dir = TAKE_PTR(dir);
    *ret_rel = path;
    return true;
}

static bool name_ok(const char *name)
{
    if (!*name || isdigit((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

static char *read_one(const struct source *s, const char *path, struct str *ret)
{
    AUTOFREE char *dir = NULL, *text = NULL;
    AUTOCLOSE int dirfd = -1, fd = -1;
    const char *rel;
    struct stat st;
    ssize_t n, got = 0;

    if (!locate(s, path, &dir, &rel))
        return str_printf("{file:%s}: only files beside this one can be put in", path);
    dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = fs_open_beneath(dirfd, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return str_printf("{file:%s}: %s", path, errno == ELOOP ? "is a link" : strerror(errno));
    if (!S_ISREG(st.st_mode))
        return str_printf("{file:%s}: not a plain file", path);
    text = mem_zalloc(MAX_FILE + 2);
    while (got <= MAX_FILE && (n = RETRY(read(fd, text + got, (size_t)(MAX_FILE + 1 - got)))) > 0)
        got += n;
    if (n < 0)
        return str_printf("{file:%s}: %s", path, strerror(errno));
    if (got > MAX_FILE)
        return str_printf("{file:%s}: larger than 64 KB", path);
    if (memchr(text, 0, (size_t)got) || !utf8_valid(text, (size_t)got))
        return str_printf("{file:%s}: not a text", path);
    if (subst_has(text))
        return str_printf("{file:%s}: it includes others, which is not followed", path);
    while (got && (text[got - 1] == '\n' || text[got - 1] == '\r'))
        text[--got] = '\0';
    str_add(ret, text);
    return NULL;
}

/* As it was when the file itself was read. */
static char *read_again(const struct source *s, const char *path, struct str *ret)
{
    AUTOSTR struct str now = STR_INIT;
    char *wrong;

    for (size_t i = 0; i < s->included.n; i++) {
        if (strcmp(s->included.v[i], path) != 0)
            continue;
        str_add(ret, s->contents.v[i]);
        if (*s->contents.v[i])
            return NULL;
        wrong = read_one(s, path, &now);
        return wrong || !now.len ? wrong : str_printf("{file:%s}: it changed meanwhile", path);
    }
    return read_one(s, path, ret);
}

bool subst_read(struct source *s, const char *text)
{
    bool file;

    for (const char *p, *end; (p = next_one(text, &file)) && (end = strchr(p, '}')); text = end) {
        AUTOSTR struct str content = STR_INIT;
        const char *from = p + strlen("{file:");
        AUTOFREE char *path = file ? str_printf("%.*s", (int)(end - from), from) : NULL;
        if (!file || strv_has(&s->included, path))
            continue;
        if (s->included.n == MAX_FILES)
            return false;
        free(read_one(s, path, &content)); /* what is wrong is told when it is used */
        strv_add(&s->included, path);
        strv_add(&s->contents, content.len ? content.p : "");
    }
    return true;
}

/* With `look` false only what can be said without reading anything. */
static char *expand(const char *text, const struct source *s, bool look, struct str *ret)
{
    bool file;

    for (const char *p; (p = next_one(text, &file)); text = p) {
        const char *from = p + (file ? strlen("{file:") : strlen("{env:")),
                   *end = strchr(from, '}');
        AUTOFREE char *what = end ? str_printf("%.*s", (int)(end - from), from) : NULL, *dir = NULL;
        const char *rel;
        char *wrong = NULL;

        str_addn(ret, text, (size_t)(p - text));
        if (!what)
            return str_printf("'%.40s' has no '}'", p);
        p = end + 1;
        if (!file && !name_ok(what))
            return str_printf("{env:%s}: not the name of a variable", what);
        if (file && !locate(s, what, &dir, &rel))
            return str_printf("{file:%s}: only files beside this one can be put in", what);
        if (!look)
            continue;
        if (file)
            wrong = read_again(s, what, ret);
        else if (!getenv(what))
            wrong = str_printf("{env:%s}: this variable is not set", what);
        else
            str_add(ret, getenv(what));
        if (wrong)
            return wrong;
    }
    str_add(ret, text);
    return NULL;
}

char *subst_check(const char *text, const struct source *s)
{
    AUTOSTR struct str ignored = STR_INIT;
    return expand(text, s, false, &ignored);
}

char *subst_words(const struct source *s, struct strv *words)
{
    for (size_t i = 0; i < words->n; i++) {
        AUTOSTR struct str out = STR_INIT;
        char *wrong = expand(words->v[i], s, true, &out);
        if (wrong)
            return wrong;
        free(words->v[i]);
        words->v[i] = str_take(&out);
    }
    return NULL;
}
