#include "base/json.h"

#include <ctype.h>
#include <string.h>
#include <yajl/yajl_parse.h>

enum { MAX_DEPTH = 64 };

struct builder {
    struct json *root;
    struct json *stack[MAX_DEPTH];
    unsigned depth;
    char *key;
    const char *wrong;
};

static int add_value(struct builder *b, struct json *j)
{
    struct json *top = b->depth ? b->stack[b->depth - 1] : NULL;

    if (!top) {
        b->root = j;
    } else {
        if ((top->n & (top->n + 1)) == 0) {
            size_t cap = 2 * top->n + 1;
            top->items = realloc(top->items, cap * sizeof *top->items);
            if (top->type == JSON_OBJECT)
                top->keys = realloc(top->keys, cap * sizeof *top->keys);
            if (!top->items || (top->type == JSON_OBJECT && !top->keys))
                abort();
        }
        if (top->type == JSON_OBJECT)
            top->keys[top->n] = TAKE_PTR(b->key);
        top->items[top->n++] = j;
    }
    if (j->type == JSON_ARRAY || j->type == JSON_OBJECT) {
        if (b->depth == MAX_DEPTH) {
            b->wrong = "nested too deeply";
            return 0;
        }
        b->stack[b->depth++] = j;
    }
    return 1;
}

static struct json *new_value(enum json_type type, const void *p, size_t n)
{
    struct json *j = mem_zalloc(sizeof *j);
    j->type = type;
    if (p) {
        j->string = mem_zalloc(n + 1);
        memcpy(j->string, p, n);
    }
    return j;
}

static int on_null(void *ctx)
{
    return add_value(ctx, new_value(JSON_NULL, NULL, 0));
}

static int on_bool(void *ctx, int v)
{
    struct json *j = new_value(JSON_BOOL, NULL, 0);
    j->boolean = v;
    return add_value(ctx, j);
}

static int on_number(void *ctx, const char *p, size_t n)
{
    return add_value(ctx, new_value(JSON_NUMBER, p, n));
}

static int on_string(void *ctx, const unsigned char *p, size_t n)
{
    struct builder *b = ctx;
    if (memchr(p, 0, n) || !utf8_valid(p, n)) {
        b->wrong = "a string holds a NUL or is not UTF-8";
        return 0;
    }
    return add_value(b, new_value(JSON_STRING, p, n));
}

static int on_key(void *ctx, const unsigned char *p, size_t n)
{
    struct builder *b = ctx;
    free(b->key);
    b->key = mem_zalloc(n + 1);
    memcpy(b->key, p, n);
    if (memchr(p, 0, n) || !utf8_valid(p, n)) {
        b->wrong = "a key holds a NUL or is not UTF-8";
        return 0;
    }
    return 1;
}

static int on_map(void *ctx)
{
    return add_value(ctx, new_value(JSON_OBJECT, NULL, 0));
}

static int on_array(void *ctx)
{
    return add_value(ctx, new_value(JSON_ARRAY, NULL, 0));
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Looked for once per object, sorted: a stranger's file may have very many keys. */
static bool key_twice(const struct json *obj)
{
    AUTOFREE char **sorted = mem_dup(obj->keys, obj->n * sizeof *sorted);
    qsort(sorted, obj->n, sizeof *sorted, compare_keys);
    for (size_t i = 1; i < obj->n; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return true;
    return false;
}

static int on_end_map(void *ctx)
{
    struct builder *b = ctx;
    if (key_twice(b->stack[--b->depth])) {
        b->wrong = "a key stands twice";
        return 0;
    }
    return 1;
}

static int on_end_array(void *ctx)
{
    ((struct builder *)ctx)->depth--;
    return 1;
}

static const yajl_callbacks callbacks = {
    .yajl_null = on_null,
    .yajl_boolean = on_bool,
    .yajl_number = on_number,
    .yajl_string = on_string,
    .yajl_start_map = on_map,
    .yajl_map_key = on_key,
    .yajl_end_map = on_end_map,
    .yajl_start_array = on_array,
    .yajl_end_array = on_end_array,
};

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)p[i];
        if (!isxdigit(c))
            return 0;
        v = v << 4 | (unsigned)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

/* Half of an escaped surrogate pair without the other: yajl makes a question mark or worse of it. */
static bool lone_surrogate(const char *p, size_t len)
{
    const char *end = p + len;
    while ((p = memchr(p, '\\', (size_t)(end - p)))) {
        unsigned v = end - p >= 6 && p[1] == 'u' ? hex4(p + 2) : 0;
        unsigned low = end - p >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : 0;
        if (v >= 0xd800 && v < 0xdc00 && low >= 0xdc00 && low < 0xe000)
            p += 12;
        else if (v >= 0xd800 && v < 0xe000)
            return true;
        else
            p += end - p < 2 ? 1 : 2;
    }
    return false;
}

static bool only_space(const char *p, const char *end)
{
    while (p < end && strchr(" \t\r\n", *p) && *p)
        p++;
    return p == end;
}

int json_parse(const char *text, size_t len, struct json **ret, struct err **e)
{
    struct builder b = { 0 };
    yajl_handle h = yajl_alloc(&callbacks, NULL, &b);
    yajl_status st;
    size_t at;
    int rc = 0;

    if (lone_surrogate(text, len)) {
        yajl_free(h);
        return err_new(e, ERR_INVALID, "not JSON: half of a surrogate pair");
    }
    if (!h)
        abort();
    /* What follows the value is looked at here: yajl lets a string pass there that does not end. */
    yajl_config(h, yajl_allow_trailing_garbage, 1);
    st = yajl_parse(h, (const unsigned char *)text, len);
    at = yajl_get_bytes_consumed(h);
    if (st == yajl_status_ok)
        st = yajl_complete_parse(h);
    if (st == yajl_status_ok && (at > len || !only_space(text + at, text + len)))
        st = yajl_status_error;
    if (st != yajl_status_ok) {
        size_t line = 1;
        for (size_t i = 0; i < at && i < len; i++)
            line += text[i] == '\n';
        rc = err_new(e, ERR_INVALID, "not JSON: %s in line %zu", b.wrong ? b.wrong : "mistake",
                     line);
    }
    yajl_free(h);
    free(b.key);
    if (rc < 0) {
        json_free(b.root);
        return rc;
    }
    *ret = b.root;
    return 0;
}

struct json *json_free(struct json *j)
{
    if (!j)
        return NULL;
    for (size_t i = 0; i < j->n; i++) {
        if (j->keys)
            free(j->keys[i]);
        json_free(j->items[i]);
    }
    free(j->keys);
    free(j->items);
    free(j->string);
    free(j);
    return NULL;
}

const struct json *json_get(const struct json *obj, const char *key)
{
    if (!obj || obj->type != JSON_OBJECT)
        return NULL;
    for (size_t i = 0; i < obj->n; i++)
        if (strcmp(obj->keys[i], key) == 0)
            return obj->items[i];
    return NULL;
}

const char *json_str(const struct json *obj, const char *key)
{
    const struct json *v = json_get(obj, key);
    return v && v->type == JSON_STRING ? v->string : NULL;
}

const struct json *json_arr(const struct json *obj, const char *key)
{
    const struct json *v = json_get(obj, key);
    return v && v->type == JSON_ARRAY ? v : NULL;
}

bool json_u64(const struct json *obj, const char *key, uint64_t *ret)
{
    const struct json *v = json_get(obj, key);
    return v && v->type == JSON_NUMBER && parse_uint(v->string, UINT64_MAX, ret, NULL) == 0;
}

bool json_bool(const struct json *obj, const char *key)
{
    const struct json *v = json_get(obj, key);
    return v && v->type == JSON_BOOL && v->boolean;
}

void json_strings(const struct json *list, struct strv *ret)
{
    for (size_t i = 0; list && i < list->n; i++)
        if (list->items[i]->type == JSON_STRING)
            strv_add(ret, list->items[i]->string);
}
