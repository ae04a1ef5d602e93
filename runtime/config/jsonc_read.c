/* runtime/config/jsonc_read.c - the looking-up half of runtime/config/jsonc.h. */
#include <stdlib.h>
#include <string.h>

#include "runtime/config/jsonc.h"

void jsonc_free_p(struct jsonc *j)
{
    free(j->nodes);
    *j = (struct jsonc){ 0 };
}

uint32_t jsonc_first(const struct jsonc *j, uint32_t parent)
{
    enum json_type type = j->nodes[parent].type;
    bool any = j->nodes[parent].next > parent + 1;
    return any && (type == JSON_OBJECT || type == JSON_ARRAY) ? parent + 1 : 0;
}

uint32_t jsonc_after(const struct jsonc *j, uint32_t parent, uint32_t child)
{
    uint32_t next = j->nodes[child].next;
    return next < j->nodes[parent].next ? next : 0;
}

uint32_t jsonc_get(const struct jsonc *j, uint32_t object, const char *key)
{
    if (j->nodes[object].type != JSON_OBJECT)
        return 0;
    for (uint32_t i = jsonc_first(j, object); i; i = jsonc_after(j, object, i)) {
        AUTOFREE char *name = jsonc_text(j, i);
        if (strcmp(name, key) == 0)
            return i + 1;
    }
    return 0;
}

static void add_utf8(struct str *s, uint32_t c)
{
    if (c < 0x80) {
        str_addc(s, (char)c);
    } else if (c < 0x800) {
        str_addc(s, (char)(0xc0 | c >> 6));
        str_addc(s, (char)(0x80 | (c & 0x3f)));
    } else {
        if (c < 0x10000) {
            str_addc(s, (char)(0xe0 | c >> 12));
        } else {
            str_addc(s, (char)(0xf0 | c >> 18));
            str_addc(s, (char)(0x80 | (c >> 12 & 0x3f)));
        }
        str_addc(s, (char)(0x80 | (c >> 6 & 0x3f)));
        str_addc(s, (char)(0x80 | (c & 0x3f)));
    }
}

static uint32_t unit(const char *p)
{
    char four[5] = { p[0], p[1], p[2], p[3], '\0' };
    return (uint32_t)strtoul(four, NULL, 16);
}

/* The parser has looked at every escape: what is here is right. */
static char *decode(const char *p, const char *end)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    AUTOSTR struct str s = STR_INIT;

    while (p < end) {
        const char *slash = memchr(p, '\\', (size_t)(end - p));
        str_addn(&s, p, (size_t)((slash ? slash : end) - p));
        if (!slash)
            break;
        p = slash + 2;
        if (slash[1] != 'u') {
            str_addc(&s, to[strchr(from, slash[1]) - from]);
            continue;
        }
        uint32_t c = unit(p);
        p += 4;
        if (c >= 0xd800 && c <= 0xdbff) {
            c = 0x10000 + ((c - 0xd800) << 10) + (unit(p + 2) - 0xdc00);
            p += 6;
        }
        add_utf8(&s, c);
    }
    return str_take(&s);
}

char *jsonc_text(const struct jsonc *j, uint32_t node)
{
    const struct jsonc_node *n = &j->nodes[node];
    bool quoted = n->type == JSON_STRING;
    const char *p = j->text + n->start + quoted, *end = j->text + n->end - quoted;
    char *text;

    /* a key's `end` is its own, its `next` that of its value */
    if (n->escaped)
        return decode(p, end);
    text = mem_zalloc((size_t)(end - p) + 1);
    memcpy(text, p, (size_t)(end - p));
    return text;
}

void jsonc_place(const struct jsonc *j, uint32_t offset, unsigned *ret_line, unsigned *ret_column)
{
    const char *at = j->text + offset, *from = j->text, *nl;

    *ret_line = *ret_column = 1;
    while ((nl = memchr(from, '\n', (size_t)(at - from)))) {
        ++*ret_line;
        from = nl + 1;
    }
    for (; from < at; from++)
        *ret_column += ((unsigned char)*from & 0xc0) != 0x80;
}
