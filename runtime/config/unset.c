/* runtime/config/unset.c - taking one key out of a file's text. Comments stay where they are, the last member's comma
 * goes with it, and a line that held nothing else goes as a whole.
 */
#include <string.h>

#include "runtime/config/config.h"

/* The comma between two places, past comments; `to` where there is none. */
static size_t comma_between(const char *text, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (text[i] == '/' && text[i + 1] == '/')
            i += strcspn(text + i, "\n") - 1;
        else if (text[i] == '/')
            i = (size_t)(strstr(text + i + 2, "*/") + 1 - text);
        else if (text[i] == ',')
            return i;
    }
    return to;
}

/* Which bytes go: at most the member itself and a comma. */
struct cut {
    size_t from, to, comma;
};

static size_t blanks_before(const char *text, size_t at)
{
    size_t n = 0;
    while (n < at && (text[at - n - 1] == ' ' || text[at - n - 1] == '\t'))
        n++;
    return n;
}

/* The member's line as a whole where nothing else is on it, else the blanks that held it apart. */
static void widen(const struct jsonc *j, struct cut *c)
{
    size_t before = blanks_before(j->text, c->from);
    size_t end = c->comma == c->to ? c->to + 1 : c->to;
    size_t after = strspn(j->text + end, " \t\r");
    bool starts = c->from == before || j->text[c->from - before - 1] == '\n';

    if (starts && j->text[end + after] == '\n') {
        c->from -= before;
        c->to = end + after + 1;
    } else if (c->comma == c->to) {
        c->to = end + strspn(j->text + end, " \t");
    } else if (!starts) {
        c->from -= before;
    }
}

static void cut_member(const struct jsonc *j, uint32_t object, uint32_t key, struct str *ret)
{
    const struct jsonc_node *n = j->nodes;
    uint32_t last = 0, prev = 0, i, next = jsonc_after(j, object, key);
    size_t end = next ? n[next].start : n[object].end - 1;
    struct cut c = { n[key].start, n[key + 1].end, j->len };
    size_t comma = comma_between(j->text, c.to, end);

    for (i = jsonc_first(j, object); i; i = jsonc_after(j, object, i)) {
        prev = i == key ? last : prev;
        last = i;
    }
    if (comma < end)
        c.comma = comma;
    else if (prev) /* nothing follows: then nothing may end in a comma before it */
        c.comma = comma_between(j->text, n[prev + 1].end, c.from);
    widen(j, &c);
    for (size_t k = 0; k < j->len; k++)
        if ((k < c.from || k >= c.to) && k != c.comma)
            str_addc(ret, j->text[k]);
}

/* The key's node of `name` in `object`; 0: none. */
static uint32_t member(const struct jsonc *j, uint32_t object, const char *name)
{
    uint32_t value = jsonc_get(j, object, name);
    return value ? value - 1 : 0;
}

static bool bare(const struct jsonc *j, uint32_t object)
{
    const struct jsonc_node *n = &j->nodes[object];
    return strspn(j->text + n->start + 1, " \t\r\n") >= n->end - n->start - 2;
}

/* Where the key is: its object and its node. False: not in this file. */
static bool find(const struct jsonc *j, const char *name, uint32_t *ret_object, uint32_t *ret_key)
{
    AUTOFREE char *path = str_printf("sandbox.%s", name);
    const char *other = config_other_spelling(name);
    uint32_t at = 0, key = 0;

    for (char *word = path, *dot; word; word = dot) {
        dot = strchr(word, '.');
        if (dot)
            *dot++ = '\0';
        key = member(j, at, word);
        if (!key && !dot && other)
            key = member(j, at, other);
        *ret_object = at;
        *ret_key = key;
        if (!key)
            return false;
        at = key + 1;
        /* "network": "limited" is the policy alone */
        if (dot && strcmp(name, "network.policy") == 0 && j->nodes[at].type == JSON_STRING)
            return true;
    }
    return true;
}

/* Takes one member out; a group that it leaves bare goes next. */
static int unset_once(const char *text, size_t len, const char *name, struct str *ret,
                      bool *ret_found, struct err **e)
{
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
    uint32_t object = 0, key = 0;
    int rc = jsonc_parse(text, len, &j, e);

    *ret_found = rc == 0 && find(&j, name, &object, &key);
    if (*ret_found)
        cut_member(&j, object, key, ret);
    return rc;
}

/* A group without a member or a comment in it, like "resources": {}, says nothing. */
static int drop_bare(struct str *text, const char *name, struct err **e)
{
    AUTOFREE char *group = str_dup(name);

    for (char *dot; (dot = strrchr(group, '.'));) {
        CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
        AUTOSTR struct str out = STR_INIT;
        uint32_t object = 0, key = 0;
        int rc;

        *dot = '\0';
        if ((rc = jsonc_parse(text->p, text->len, &j, e)) < 0)
            return rc;
        if (!find(&j, group, &object, &key) || j.nodes[key + 1].type != JSON_OBJECT ||
            jsonc_first(&j, key + 1) || !bare(&j, key + 1))
            break;
        cut_member(&j, object, key, &out);
        str_reset(text);
        *text = out;
        out = (struct str)STR_INIT;
    }
    return 0;
}

int config_unset(const char *text, size_t len, size_t key, struct str *ret, bool *ret_found,
                 struct err **e)
{
    const char *name = config_keys[key].name;
    bool more = true;
    int rc;

    *ret_found = false;
    str_addn(ret, text, len);
    while (more) { /* both spellings of a list may be there */
        AUTOSTR struct str out = STR_INIT;
        if ((rc = unset_once(ret->p ? ret->p : "", ret->len, name, &out, &more, e)) < 0)
            return rc;
        if (!more)
            break;
        *ret_found = true;
        str_reset(ret);
        *ret = out;
        out = (struct str)STR_INIT;
    }
    return *ret_found ? drop_bare(ret, name, e) : 0;
}
