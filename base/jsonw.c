/* base/jsonw.c - the writer half of base/json.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"

bool utf8_valid(const void *p, size_t n)
{
    const char *c = p;
    size_t len = 1;
    uint32_t ch;
    for (; n && (len = utf8_decode(c, n, &ch)); n -= len)
        c += len;
    return n == 0;
}

static void put_string(struct str *s, const char *p, size_t n)
{
    const char *end = p + n;
    str_addc(s, '"');
    while (p < end) {
        const char *from = p;
        while (p < end && *p >= ' ' && *p < 0x7f && *p != '"' && *p != '\\')
            p++;
        str_addn(s, from, (size_t)(p - from));
        if (p == end)
            break;
        uint32_t ch;
        size_t len = utf8_decode(p, (size_t)(end - p), &ch);
        const char *next = p + len;
        unsigned char c = (unsigned char)*p;
        if (!len) {
            str_add(s, "\xef\xbf\xbd");
            next = p + 1;
        } else if (c == '"' || c == '\\') {
            str_addc(s, '\\');
            str_addc(s, *p);
        } else if (c == '\n') {
            str_add(s, "\\n");
        } else if (c < 0x20 || c == 0x7f) {
            str_addf(s, "\\u%04x", c);
        } else {
            str_addn(s, p, (size_t)(next - p));
        }
        p = next;
    }
    str_addc(s, '"');
}

static void begin(struct jsonw *w, const char *key)
{
    if (w->has_items & 1ULL << w->depth)
        str_addc(&w->out, ',');
    w->has_items |= 1ULL << w->depth;
    if (w->pretty && w->depth) {
        str_addc(&w->out, '\n');
        for (unsigned i = 0; i < w->depth; i++)
            str_add(&w->out, "  ");
    }
    if (key) {
        put_string(&w->out, key, strlen(key));
        str_add(&w->out, w->pretty ? ": " : ":");
    }
}

static void open_level(struct jsonw *w, const char *key, char c)
{
    begin(w, key);
    str_addc(&w->out, c);
    w->depth++;
    w->has_items &= ~(1ULL << w->depth);
}

static void close_level(struct jsonw *w, char c)
{
    bool any = w->has_items & 1ULL << w->depth;
    w->depth--;
    if (w->pretty && any) {
        str_addc(&w->out, '\n');
        for (unsigned i = 0; i < w->depth; i++)
            str_add(&w->out, "  ");
    }
    str_addc(&w->out, c);
}

void jw_obj(struct jsonw *w, const char *key)
{
    open_level(w, key, '{');
}

void jw_end_obj(struct jsonw *w)
{
    close_level(w, '}');
}

void jw_arr(struct jsonw *w, const char *key)
{
    open_level(w, key, '[');
}

void jw_end_arr(struct jsonw *w)
{
    close_level(w, ']');
}

void jw_bytes(struct jsonw *w, const char *key, const void *p, size_t n)
{
    begin(w, key);
    put_string(&w->out, p, n);
}

void jw_str(struct jsonw *w, const char *key, const char *value)
{
    if (value)
        jw_bytes(w, key, value, strlen(value));
    else
        jw_null(w, key);
}

void jw_strf(struct jsonw *w, const char *key, const char *fmt, ...)
{
    AUTOFREE char *p = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&p, fmt, ap) < 0)
        abort();
    va_end(ap);
    jw_str(w, key, p);
}

void jw_int(struct jsonw *w, const char *key, int64_t v)
{
    begin(w, key);
    str_addf(&w->out, "%lld", (long long)v);
}

void jw_u64(struct jsonw *w, const char *key, uint64_t v)
{
    begin(w, key);
    str_addf(&w->out, "%llu", (unsigned long long)v);
}

void jw_double(struct jsonw *w, const char *key, double v)
{
    begin(w, key);
    str_addf(&w->out, "%.3f", v);
}

void jw_bool(struct jsonw *w, const char *key, bool v)
{
    begin(w, key);
    str_add(&w->out, v ? "true" : "false");
}

void jw_null(struct jsonw *w, const char *key)
{
    begin(w, key);
    str_add(&w->out, "null");
}

void jw_strv(struct jsonw *w, const char *key, const struct strv *l)
{
    jw_arr(w, key);
    for (size_t i = 0; i < l->n; i++)
        jw_str(w, NULL, l->v[i]);
    jw_end_arr(w);
}

void jw_json(struct jsonw *w, const char *key, const struct json *j)
{
    switch (j ? j->type : JSON_NULL) {
    case JSON_NULL:
        jw_null(w, key);
        break;
    case JSON_BOOL:
        jw_bool(w, key, j->boolean);
        break;
    case JSON_NUMBER:
        begin(w, key);
        str_add(&w->out, j->string);
        break;
    case JSON_STRING:
        jw_str(w, key, j->string);
        break;
    case JSON_ARRAY:
        jw_arr(w, key);
        for (size_t i = 0; i < j->n; i++)
            jw_json(w, NULL, j->items[i]);
        jw_end_arr(w);
        break;
    case JSON_OBJECT:
        jw_obj(w, key);
        for (size_t i = 0; i < j->n; i++)
            jw_json(w, j->keys[i], j->items[i]);
        jw_end_obj(w);
        break;
    }
}

void jw_time(struct jsonw *w, const char *key)
{
    struct timespec t;
    struct tm tm;
    char when[32];

    clock_gettime(CLOCK_REALTIME, &t);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
    jw_strf(w, key, "%s.%03ldZ", when, t.tv_nsec / 1000000);
}

void jw_members(struct jsonw *w)
{
    w->depth = 1;
}
