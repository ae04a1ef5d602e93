#include "runtime/config/jsonc.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <sys/auxv.h>

struct parser {
    struct jsonc *j;
    const char *p, *end;
    const char *wrong; /* the first mistake, at p */
};

static bool fail(struct parser *s, const char *at, const char *wrong)
{
    if (!s->wrong) {
        s->wrong = wrong;
        s->p = at;
    }
    return false;
}

static uint32_t add_node(struct parser *s, enum json_type type)
{
    struct jsonc *j = s->j;
    if (j->n == j->cap) {
        j->cap = j->cap + j->cap / 2 + 64;
        j->nodes = realloc(j->nodes, j->cap * sizeof *j->nodes);
        if (!j->nodes)
            abort();
    }
    j->nodes[j->n] =
        (struct jsonc_node){ .start = (uint32_t)(s->p - j->text), .type = (uint8_t)type };
    return j->n++;
}

static bool end_node(struct parser *s, uint32_t i)
{
    s->j->nodes[i].end = (uint32_t)(s->p - s->j->text);
    s->j->nodes[i].next = s->j->n;
    return true;
}

/* Most of it is indentation. */
static const char *blanks(const char *p, const char *end)
{
    const uint64_t eight = 0x2020202020202020;

    for (;;) {
        while (end - p >= 8 && memcmp(p, &eight, 8) == 0)
            p += 8;
        while (p < end && *p == ' ')
            p++;
        if (p == end || (*p != '\n' && *p != '\t' && *p != '\r'))
            return p;
        p++;
    }
}

static bool skip_more(struct parser *s)
{
    for (;;) {
        s->p = blanks(s->p, s->end);
        if (s->p == s->end || *s->p != '/')
            return true;
        if (s->end - s->p >= 2 && s->p[1] == '/') {
            const char *nl = memchr(s->p, '\n', (size_t)(s->end - s->p));
            s->p = nl ? nl : s->end;
        } else if (s->end - s->p >= 2 && s->p[1] == '*') {
            const char *close = memmem(s->p + 2, (size_t)(s->end - s->p) - 2, "*/", 2);
            if (!close)
                return fail(s, s->p, "a comment that never ends");
            s->p = close + 2;
        } else {
            return fail(s, s->p, "a '/' that begins no comment");
        }
    }
}

/* White space and comments. */
static inline bool skip(struct parser *s)
{
    return (s->p<s->end && * s->p> ' ' && *s->p != '/') || skip_more(s);
}

/* Four hex digits at p; -1: not that. */
static int hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *d = p[i] ? strchr(digits, p[i] | 0x20) : NULL;
        if (!d || (p[i] < '0' || (p[i] > '9' && p[i] < 'A')))
            return -1;
        v = v << 4 | (int)(d - digits);
    }
    return v;
}

static bool escape(struct parser *s)
{
    const char *at = s->p;
    char c = s->end - at > 1 ? at[1] : '\0';
    int v, low;

    s->p += 2;
    if (c && strchr("\"\\/bfnrt", c))
        return true;
    if (c != 'u' || (v = hex4(at + 2, s->end)) < 0)
        return fail(s, at, "no escape that JSON knows");
    s->p += 4;
    if (v == 0)
        return fail(s, at, "a NUL in a string");
    if (v < 0xd800 || v > 0xdfff)
        return true;
    low = s->end - s->p > 6 && s->p[0] == '\\' && s->p[1] == 'u' ? hex4(s->p + 2, s->end) : -1;
    if (v > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return fail(s, at, "half of a surrogate pair");
    s->p += 6;
    return true;
}

static bool string(struct parser *s)
{
    uint32_t i = add_node(s, JSON_STRING);
    const char *at = s->p++;

    for (;;) {
        const char *p = s->p;
        while (p < s->end && (unsigned char)*p >= 0x20 && *p != '"' && *p != '\\')
            p++;
        s->p = p;
        if (s->p == s->end || *s->p == '\n')
            return fail(s, at, "a string that never ends");
        if (*s->p == '"')
            break;
        if (*s->p != '\\')
            return fail(s, s->p, "a control character in a string");
        s->j->nodes[i].escaped = true;
        if (!escape(s))
            return false;
    }
    s->p++;
    return end_node(s, i);
}

static bool digits(struct parser *s)
{
    const char *at = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > at;
}

static bool number(struct parser *s)
{
    uint32_t i = add_node(s, JSON_NUMBER);
    const char *at = s->p;
    bool ok, huge = false;

    s->p += *s->p == '-';
    if (s->p < s->end && *s->p == '0') {
        s->p++;
        ok = true;
    } else {
        ok = digits(s);
    }
    if (ok && s->p < s->end && *s->p == '.') {
        s->p++;
        ok = digits(s);
    }
    if (ok && s->p < s->end && (*s->p | 0x20) == 'e') {
        huge = true;
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        ok = digits(s);
    }
    if (!ok || (s->p < s->end && (isalnum((unsigned char)*s->p) || *s->p == '.' || *s->p == '_' ||
                                  *s->p == '+' || *s->p == '-')))
        return fail(s, at, "not a number as JSON writes it");
    (void)end_node(s, i);
    if (!huge && s->p - at < 300)
        return true;
    AUTOFREE char *text = jsonc_text(s->j, i);
    return isfinite(strtod(text, NULL)) || fail(s, at, "a number beyond all bounds");
}

static bool word(struct parser *s)
{
    static const struct {
        const char *text;
        enum json_type type;
    } words[] = { { "true", JSON_BOOL }, { "false", JSON_BOOL }, { "null", JSON_NULL } };
    size_t left = (size_t)(s->end - s->p), n = 0;

    while (n < left && ((s->p[n] | 0x20) >= 'a' && (s->p[n] | 0x20) <= 'z'))
        n++;
    for (size_t k = 0; k < ARRAY_LEN(words); k++)
        if (n == strlen(words[k].text) && memcmp(s->p, words[k].text, n) == 0) {
            uint32_t i = add_node(s, words[k].type);
            s->p += n;
            return end_node(s, i);
        }
    return fail(s, s->p, n ? "a word that is not true, false or null" : "no value");
}

/* --- objects and arrays ------------------------------------------------------------------------- */

static bool same_name(const struct jsonc *j, uint32_t a, uint32_t b)
{
    AUTOFREE char *x = jsonc_text(j, a), *y = jsonc_text(j, b);
    return strcmp(x, y) == 0;
}

static uint32_t hash_name(const struct jsonc *j, uint32_t node, uint64_t h)
{
    AUTOFREE char *decoded = j->nodes[node].escaped ? jsonc_text(j, node) : NULL;
    const char *p = decoded ? decoded : j->text + j->nodes[node].start + 1;
    size_t len = decoded ? strlen(decoded) : j->nodes[node].end - j->nodes[node].start - 2;

    return (uint32_t)(str_hash(h, p, len) >> 32);
}

/* Two keys without escapes. */
static bool same_bytes(const struct jsonc *j, const struct jsonc_node *a,
                       const struct jsonc_node *b)
{
    return a->end - a->start == b->end - b->start &&
           memcmp(j->text + a->start, j->text + b->start, a->end - a->start) == 0;
}

/* The keys of most objects are few and plain: each with each. False: it has to be done properly. */
static bool few_differ(const struct jsonc *j, uint32_t object, size_t n)
{
    if (n > 12)
        return false;
    for (uint32_t i = object + 1; i < j->n; i = j->nodes[i].next) {
        if (j->nodes[i].escaped)
            return false;
        for (uint32_t k = object + 1; k < i; k = j->nodes[k].next)
            if (same_bytes(j, &j->nodes[k], &j->nodes[i]))
                return false;
    }
    return true;
}

/* A stranger's file may have very many keys: they go through a table, whose hash nobody can aim at. */
static bool names_differ(struct parser *s, uint32_t object, size_t n)
{
    const struct jsonc *j = s->j;
    struct slot {
        uint32_t hash, node;
    };
    uint64_t seed;
    size_t size = 4;

    if (few_differ(j, object, n))
        return true;
    memcpy(&seed, (const void *)getauxval(AT_RANDOM), sizeof seed);
    while (size < 2 * n)
        size *= 2;
    AUTOFREE struct slot *table = mem_zalloc(size * sizeof *table);
    for (uint32_t i = object + 1; i < j->n; i = j->nodes[i].next) {
        uint32_t h = hash_name(j, i, seed);
        size_t at = h & (size - 1);
        for (; table[at].node; at = (at + 1) & (size - 1))
            if (table[at].hash == h && same_name(j, table[at].node, i))
                return fail(s, j->text + j->nodes[i].start, "a key that stands here twice");
        table[at] = (struct slot){ h, i };
    }
    return true;
}

static bool value(struct parser *s, unsigned depth);

static bool member(struct parser *s, unsigned depth)
{
    uint32_t key = s->j->n;
    if (*s->p != '"')
        return fail(s, s->p, "a key in double quotes is wanted here");
    if (!string(s) || !skip(s))
        return false;
    if (s->p == s->end || *s->p != ':')
        return fail(s, s->p, "a ':' is wanted after a key");
    s->p++;
    if (!value(s, depth))
        return false;
    s->j->nodes[key].next = s->j->n;
    return true;
}

static bool container(struct parser *s, unsigned depth)
{
    bool object = *s->p == '{';
    char close = object ? '}' : ']';
    const char *open = s->p;
    uint32_t i = add_node(s, object ? JSON_OBJECT : JSON_ARRAY);
    size_t n = 0;

    if (depth >= JSONC_MAX_DEPTH)
        return fail(s, open, "nested too deeply");
    s->p++;
    for (;; n++) {
        if (!skip(s))
            return false;
        if (s->p == s->end)
            return fail(s, open, object ? "an object that never ends" : "an array that never ends");
        if (*s->p == close)
            break;
        if (!(object ? member(s, depth + 1) : value(s, depth + 1)) || !skip(s))
            return false;
        if (s->p < s->end && *s->p == ',')
            s->p++;
        else if (s->p < s->end && *s->p != close)
            return fail(s, s->p,
                        object ? "a ',' or '}' is wanted here" : "a ',' or ']' is wanted here");
    }
    s->p++;
    return (!object || names_differ(s, i, n)) && end_node(s, i);
}

static bool value(struct parser *s, unsigned depth)
{
    if (!skip(s))
        return false;
    if (s->p == s->end)
        return fail(s, s->p, "the end comes where a value is wanted");
    switch (*s->p) {
    case '{':
    case '[':
        return container(s, depth);
    case '"':
        return string(s);
    case '-':
    case '0' ... '9':
        return number(s);
    default:
        return word(s);
    }
}

static bool valid_text(struct parser *s)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    uint64_t eight;
    uint32_t c;
    size_t n;
    for (const char *p = s->p; p < s->end; p += n) {
        n = sizeof eight;
        /* eight at a time: no top bit, and none that a borrow gives one, as only a NUL does */
        if (s->end - p >= 8 && (memcpy(&eight, p, 8), !((eight | (eight - ones)) & tops)))
            continue;
        n = (signed char)*p > 0 ? 1 : utf8_decode(p, (size_t)(s->end - p), &c);
        if (!n || !*p)
            return fail(s, p, n ? "a NUL" : "bytes that are not UTF-8");
    }
    return true;
}

int jsonc_parse(const char *text, size_t len, struct jsonc *ret, struct err **e)
{
    CLEANUP(jsonc_free_p) struct jsonc j = { .text = text, .len = len };
    struct parser s = { .j = &j, .p = text, .end = text + len };
    unsigned line, column;

    if (len > JSONC_MAX_SIZE)
        return err_new(e, ERR_INVALID, "1:1: larger than 4 MB");
    if (valid_text(&s) && value(&s, 0) && skip(&s) && s.p < s.end)
        (void)fail(&s, s.p, "something after the end of the value");
    if (s.wrong) {
        jsonc_place(&j, (uint32_t)(s.p - text), &line, &column);
        return err_new(e, ERR_INVALID, "%u:%u: not JSON: %s", line, column, s.wrong);
    }
    *ret = j;
    j = (struct jsonc){ 0 };
    return 0;
}
