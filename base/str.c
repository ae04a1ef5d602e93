#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void *mem_zalloc(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p)
        abort();
    return p;
}

void *mem_dup(const void *p, size_t n)
{
    void *r = mem_zalloc(n);
    if (n)
        memcpy(r, p, n);
    return r;
}

char *str_dup(const char *s)
{
    return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *str_printf(const char *fmt, ...)
{
    char *p;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&p, fmt, ap) < 0)
        abort();
    va_end(ap);
    return p;
}

static void str_room(struct str *s, size_t more)
{
    size_t need = s->len + more + 1;
    if (need <= s->cap)
        return;
    s->cap = need > 2 * s->cap ? need + 64 : 2 * s->cap;
    s->p = realloc(s->p, s->cap);
    if (!s->p)
        abort();
}

void str_addn(struct str *s, const void *p, size_t n)
{
    str_room(s, n);
    if (n)
        memcpy(s->p + s->len, p, n);
    s->len += n;
    s->p[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    AUTOFREE char *p = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&p, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    str_addn(s, p, (size_t)n);
}

char *str_take(struct str *s)
{
    char *p = s->p ? s->p : mem_zalloc(1);
    *s = (struct str)STR_INIT;
    return p;
}

void str_reset(struct str *s)
{
    free(s->p);
    *s = (struct str)STR_INIT;
}

void strv_take(struct strv *l, char *s)
{
    /* grows at powers of two; the terminating NULL counts */
    if ((l->n & (l->n + 1)) == 0) {
        l->v = realloc(l->v, (2 * l->n + 2) * sizeof *l->v);
        if (!l->v)
            abort();
    }
    l->v[l->n++] = s;
    l->v[l->n] = NULL;
}

void strv_add(struct strv *l, const char *s)
{
    strv_take(l, str_dup(s));
}

void strv_addf(struct strv *l, const char *fmt, ...)
{
    char *p;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&p, fmt, ap) < 0)
        abort();
    va_end(ap);
    strv_take(l, p);
}

bool strv_has(const struct strv *l, const char *s)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i], s) == 0)
            return true;
    return false;
}

void strv_setenv(struct strv *l, const char *name, const char *value)
{
    size_t n = strlen(name);
    char *entry = str_printf("%s=%s", name, value);
    for (size_t i = 0; i < l->n; i++) {
        if (strncmp(l->v[i], name, n) == 0 && l->v[i][n] == '=') {
            free(l->v[i]);
            l->v[i] = entry;
            return;
        }
    }
    strv_take(l, entry);
}

const char *strv_getenv(const struct strv *l, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < l->n; i++)
        if (strncmp(l->v[i], name, n) == 0 && l->v[i][n] == '=')
            return l->v[i] + n + 1;
    return NULL;
}

void strv_free_p(struct strv *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (struct strv){ 0 };
}

uint64_t str_hash(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211ULL;
    return h;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

bool str_eq(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool path_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    if (n && dir[n - 1] == '/')
        n--;
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

char *path_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    while (n > 1 && a[n - 1] == '/')
        n--;
    while (*b == '/')
        b++;
    return str_printf("%.*s%s%s", (int)n, a, n == 1 && a[0] == '/' ? "" : "/", b);
}
