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

/* After the last value: is there a comma already? Comments may hold commas that are none. */
static bool comma_after(const struct jsonc *j, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (j->text[i] == '/' && j->text[i + 1] == '/')
            i += strcspn(j->text + i, "\n") - 1;
        else if (j->text[i] == '/')
            i = (size_t)(strstr(j->text + i + 2, "*/") + 1 - j->text);
        else if (j->text[i] == ',')
            return true;
    }
    return false;
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

    if (own_line) { /* comments behind the last value stay with it */
        str_addn(x->out, j->text, end);
        str_add(x->out, comma ? "" : ",");
        str_addn(x->out, j->text + end, line - end);
        str_addf(x->out, "%s\"%s\": %s%s\n", inner, name, value, last && comma ? "," : "");
        str_addn(x->out, j->text + line, j->len - line);
    } else if (!last) {
        AUTOFREE char *member = str_printf("\n%s\"%s\": %s\n%s", inner, name, value, outer);
        splice(x, end, brace, member);
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
            splice(&x, j.nodes[found].start, j.nodes[found].end, value);
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
