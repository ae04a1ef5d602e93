/* base/json.h - JSON: a tree for reading, a writer for producing. The only door to yajl.
 *
 * Reading is strict: UTF-8 only, depth at most 64, no duplicate keys, nothing after the value.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_type type;
    bool boolean;
    char *string; /* the text of a string; a number as it was written */
    size_t n;     /* elements or members */
    char **keys;  /* of an object */
    struct json **items;
};

int json_parse(const char *text, size_t len, struct json **ret, struct err **e);
struct json *json_free(struct json *j);
static inline void json_free_p(struct json **j)
{
    *j = json_free(*j);
}
#define AUTOJSON CLEANUP(json_free_p)

/* Look-ups take NULL and return NULL (0, false) where the thing is missing or of another type. */
const struct json *json_get(const struct json *obj, const char *key);
const char *json_str(const struct json *obj, const char *key);
const struct json *json_arr(const struct json *obj, const char *key);
bool json_u64(const struct json *obj, const char *key, uint64_t *ret);
bool json_bool(const struct json *obj, const char *key);
/* Adds the strings of an array; NULL has none. */
void json_strings(const struct json *list, struct strv *ret);

/* Writer: puts commas and escapes by itself. A key of NULL means "an element of an array". */
struct jsonw {
    struct str out;
    uint64_t has_items; /* a bit per level */
    unsigned depth;
    bool pretty;
};
void jw_obj(struct jsonw *w, const char *key);
void jw_members(struct jsonw *w); /* of an object that somebody else begins and ends */
void jw_end_obj(struct jsonw *w);
void jw_arr(struct jsonw *w, const char *key);
void jw_end_arr(struct jsonw *w);
void jw_str(struct jsonw *w, const char *key, const char *value); /* NULL becomes null */
/* Bytes that need not be UTF-8: what is not valid becomes U+FFFD. */
void jw_bytes(struct jsonw *w, const char *key, const void *p, size_t n);
void jw_strf(struct jsonw *w, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
void jw_int(struct jsonw *w, const char *key, int64_t v);
void jw_u64(struct jsonw *w, const char *key, uint64_t v);
void jw_double(struct jsonw *w, const char *key, double v);
void jw_bool(struct jsonw *w, const char *key, bool v);
void jw_null(struct jsonw *w, const char *key);
/* This moment, in UTC with milliseconds. */
void jw_time(struct jsonw *w, const char *key);
void jw_strv(struct jsonw *w, const char *key, const struct strv *l);
/* A tree that was read; NULL becomes null. */
void jw_json(struct jsonw *w, const char *key, const struct json *j);
static inline void jsonw_free_p(struct jsonw *w)
{
    str_reset(&w->out);
}
#define AUTOJSONW CLEANUP(jsonw_free_p)
/* True when all of it is valid UTF-8 (NUL is allowed). */
bool utf8_valid(const void *p, size_t n);
