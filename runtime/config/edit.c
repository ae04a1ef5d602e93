/* runtime/config/edit.c - setting one key in a file's text. Everything else stays as it was written. */
#include <string.h>

#include "runtime/config/config.h"

struct edit {
    const struct jsonc *j;
    struct str *out;
};

/* Keeps the text but for [from, to), which becomes `with`. */
static void splice(const struct edit *x, size_t from, size_t to, const char *with)
{
    str_addn(x->out, x->j->text, from);
    str_add(x->out, with);
    str_addn(x->out, x->j->text + to, x->j->len - to);
}

static size_t line_start(const char *text, size_t at)
{
    while (at && text[at - 1] != '\n')
        at--;
    return at;
}

/* The white space that a line begins with. */
static char *indent_of(const char *text, size_t at)
{
    size_t from = line_start(text, at);
    return str_printf("%.*s", (int)strspn(text + from, " \t"), text + from);
}

static bool only_space(const char *text, size_t from, size_t to)
{
    return strspn(text + from, " \t\r") >= to - from;
}

/* Where the comment that begins at `at` ends, one of a line before its end of line; `at` where none begins. */
static size_t comment_end(const struct jsonc *j, size_t at)
{
    const char *p = j->text + at, *end;
    size_t left = j->len - at;

    if (*p != '/')
        return at;
    if (p[1] == '/')
        return (end = memchr(p, '\n', left)) ? (size_t)(end - j->text) : j->len;
    end = memmem(p + 2, left - 2, "*/", 2);
    return (size_t)(end + 2 - j->text);
}

/* After the last value: is there a comma already? Comments may hold commas that are none. */
static bool comma_after(const struct jsonc *j, size_t from, size_t to)
{
    while (from < to) {
        size_t end = comment_end(j, from);
        if (j->text[from] == ',')
            return true;
        from = end > from ? end : from + 1;
    }
    return false;
}

/* The end of line that the file has. */
static const char *newline(const struct jsonc *j)
{
    const char *nl = memchr(j->text, '\n', j->len);
    return nl && nl > j->text && nl[-1] == '\r' ? "\r\n" : "\n";
}

/* Another value. Comments in the old one stay: inside the new one where it is a list, else before it. */
static void replace(const struct edit *x, uint32_t node, const char *value)
{
    const struct jsonc_node *n = &x->j->nodes[node];
    const char *text = x->j->text;
    AUTOFREE char *outer = indent_of(text, n->start);
    AUTOSTR struct str with = STR_INIT;
    size_t head = value[0] == '[' || value[0] == '{';

    str_addn(&with, value, head);
    for (size_t i = n->start, end; i < n->end; i = end) {
        if ((end = comment_end(x->j, i)) > i) {
            str_add(&with, with.len == 1 ? " " : "");
            str_addn(&with, text + i, end - i);
            if (text[i + 1] == '/')
                str_addf(&with, "\n%s  ", outer);
            else
                str_addc(&with, ' ');
            continue;
        }
        if (text[end++] == '"') {
            while (text[end] != '"')
                end += text[end] == '\\' ? 2 : 1;
            end++;
        }
    }
    str_add(&with, value + head);
    splice(x, n->start, n->end, with.p);
}

/* A new member at the end of an object. */
static void insert(const struct edit *x, uint32_t object, const char *name, const char *value)
{
    const struct jsonc *j = x->j;
    uint32_t last = 0;
    size_t brace = j->nodes[object].end - 1, line = line_start(j->text, brace);
    bool own_line = line > j->nodes[object].start && only_space(j->text, line, brace);

    for (uint32_t i = jsonc_first(j, object); i; i = jsonc_after(j, object, i))
        last = i;
    size_t end = last ? j->nodes[last + 1].end : j->nodes[object].start + 1;
    bool comma = !last || comma_after(j, end, brace);
    AUTOFREE char *outer = indent_of(j->text, brace);
    size_t key_line = last ? line_start(j->text, j->nodes[last].start) : 0;
    bool aligned = last && only_space(j->text, key_line, j->nodes[last].start);
    AUTOFREE char *inner =
        aligned ? indent_of(j->text, j->nodes[last].start) : str_printf("%s  ", outer);
    const char *nl = newline(j);

    if (own_line) { /* comments behind the last value stay with it */
        str_addn(x->out, j->text, end);
        str_add(x->out, comma ? "" : ",");
        str_addn(x->out, j->text + end, line - end);
        str_addf(x->out, "%s\"%s\": %s%s%s", inner, name, value, last && comma ? "," : "", nl);
        str_addn(x->out, j->text + line, j->len - line);
    } else if (!last) { /* comments may be all that it holds */
        AUTOFREE char *member = str_printf("%s%s\"%s\": %s%s%s", nl, inner, name, value, nl, outer);
        size_t at = brace;
        while (at > end && strchr(" \t\r", j->text[at - 1]))
            at--;
        splice(x, at, brace, member);
    } else {
        AUTOFREE char *member = str_printf("%s \"%s\": %s", comma ? "" : ",", name, value);
        size_t at = comma ? brace : end;
        splice(x, at, at, member);
    }
}

const char *config_other_spelling(const char *name)
{
    return strcmp(name, "network.allow") == 0  ? "allowedDomains"
           : strcmp(name, "network.deny") == 0 ? "deniedDomains"
                                               : NULL;
}

int config_edit(const char *text, size_t len, size_t key, const char *value, struct str *ret,
                struct err **e)
{
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
    AUTOFREE char *path = str_printf("sandbox.%s", config_keys[key].name);
    AUTOSTR struct str nested = STR_INIT;
    struct edit x = { &j, ret };
    uint32_t at = 0, found;
    char *word = path, *dot;
    int rc = jsonc_parse(text, len, &j, e), braces = 0;

    if (rc < 0)
        return rc;
    if (j.nodes[0].type != JSON_OBJECT)
        return err_new(e, ERR_INVALID, "1:1: an object is wanted");
    for (;; word = dot + 1) {
        if ((dot = strchr(word, '.')))
            *dot = '\0';
        found = jsonc_get(&j, at, word);
        if (!found && !dot && config_other_spelling(config_keys[key].name))
            found = jsonc_get(&j, at, config_other_spelling(config_keys[key].name));
        if (found && !dot) {
            replace(&x, found, value);
            return 0;
        }
        if (!found || j.nodes[found].type != JSON_OBJECT)
            break;
        at = found;
    }
    if (found) { /* "network": "limited" is the policy alone */
        AUTOFREE char *old = str_printf("%.*s", (int)(j.nodes[found].end - j.nodes[found].start),
                                        j.text + j.nodes[found].start);
        if (j.nodes[found].type != JSON_STRING || strcmp(word, "network") != 0)
            return err_new(e, ERR_INVALID, "'%s' is no object in this file", word);
        AUTOFREE char *object =
            strcmp(dot + 1, "policy") == 0
                ? str_dup(value)
                : str_printf("{ \"policy\": %s, \"%s\": %s }", old, dot + 1, value);
        splice(&x, j.nodes[found].start, j.nodes[found].end, object);
        return 0;
    }
    for (char *more = dot; more;
         braces++) { /* what is between this object and the key is new too */
        char *next = strchr(more + 1, '.');
        str_addf(&nested, "{ \"%.*s\": ", (int)(next ? next - more - 1 : (long)strlen(more + 1)),
                 more + 1);
        more = next;
    }
    str_add(&nested, value);
    for (; braces; braces--)
        str_add(&nested, " }");
    insert(&x, at, word, nested.p);
    return 0;
}
