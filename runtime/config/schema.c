/* runtime/config/schema.c - the key table as a JSON schema, for editors and for the documentation's test. */
#include <string.h>

#include "runtime/config/config.h"

static const char *const type_names[] = {
    [KEY_BOOL] = "boolean", [KEY_INT] = "number",   [KEY_CPUS] = "number",  [KEY_SIZE] = "size",
    [KEY_TIME] = "time",    [KEY_WORD] = "word",    [KEY_RUNTIME] = "word", [KEY_TEXT] = "string",
    [KEY_PATH] = "path",    [KEY_LIST] = "list",    [KEY_INSIDE] = "list",  [KEY_DOMAINS] = "list",
    [KEY_PORTS] = "list",   [KEY_PUBLISH] = "list", [KEY_MOUNTS] = "list",  [KEY_KEYS] = "list",
    [KEY_MAP] = "map",
};
static const char *const sense_names[] = {
    [SENSE_NEUTRAL] = "neutral", [SENSE_LOOSENS] = "loosens", [SENSE_LESS] = "less is tighter",
    [SENSE_ORDER] = "in order",  [SENSE_GROWS] = "grows",     [SENSE_WIDENS] = "widens",
};

static void write_enum(struct jsonw *w, const char *words)
{
    AUTOFREE char *copy = str_dup(words);
    char *save = NULL;
    jw_arr(w, "enum");
    for (char *p = strtok_r(copy, "|", &save); p; p = strtok_r(NULL, "|", &save))
        jw_str(w, NULL, p);
    jw_end_arr(w);
}

static void write_type(const struct config_key *k, struct jsonw *w)
{
    switch (k->type) {
    case KEY_BOOL:
        jw_str(w, "type", "boolean");
        break;
    case KEY_INT:
        jw_str(w, "type", "integer");
        jw_u64(w, "minimum", k->min);
        jw_u64(w, "maximum", k->max);
        break;
    case KEY_CPUS:
        jw_str(w, "type", "number");
        break;
    case KEY_SIZE:
        jw_str(w, "type", "string");
        jw_str(w, "pattern", "^([0-9]+[kKmMgGtT]?|.*\\{(env|file):.*\\}.*)$");
        break;
    case KEY_TIME:
        jw_arr(w, "type");
        jw_str(w, NULL, "string");
        jw_str(w, NULL, "number");
        jw_end_arr(w);
        break;
    case KEY_WORD:
        write_enum(w, k->words);
        break;
    case KEY_RUNTIME:
    case KEY_TEXT:
    case KEY_PATH:
        jw_str(w, "type", "string");
        break;
    case KEY_MAP:
        jw_str(w, "type", "object");
        jw_obj(w, "additionalProperties");
        jw_str(w, "type", "string");
        jw_end_obj(w);
        break;
    default:
        jw_str(w, "type", "array");
        jw_obj(w, "items");
        jw_str(w, "type", k->type == KEY_PORTS ? "integer" : "string");
        jw_end_obj(w);
    }
}

static void write_key(const struct config_key *k, const char *name, struct jsonw *w)
{
    AUTOSTRV struct strv def = { 0 };
    AUTOFREE char *variable = key_variable(k);

    key_default(k, &def);
    jw_obj(w, name);
    write_type(k, w);
    jw_str(w, "description", k->help);
    key_write(k, &def, w, "default");
    jw_obj(w, "x-petri");
    jw_str(w, "key", k->name);
    jw_str(w, "type", type_names[k->type]);
    if (k->words && k->type != KEY_BOOL)
        jw_str(w, "words", k->words);
    jw_str(w, "trust", sense_names[k->sense]);
    jw_str(w, "option", k->option);
    if (k->when)
        jw_str(w, "when", k->when);
    jw_str(w, "variable", k->type == KEY_KEYS ? NULL : variable);
    jw_end_obj(w);
    jw_end_obj(w);
}

/* Writes all that lies below `parent` ("" at the top, "resources"), from key `i` on; returns the next key. */
static size_t write_group(const char *parent, size_t i, struct jsonw *w)
{
    size_t n = strlen(parent);

    jw_str(w, "type", "object");
    jw_bool(w, "additionalProperties", false);
    jw_obj(w, "properties");
    while (i < n_config_keys) {
        const char *name = config_keys[i].name, *rest = n ? name + n + 1 : name;
        const char *dot;
        if (n && (strncmp(name, parent, n) != 0 || name[n] != '.'))
            break;
        dot = strchr(rest, '.');
        if (!dot) {
            write_key(&config_keys[i++], rest, w);
            continue;
        }
        AUTOFREE char *group = str_printf("%.*s", (int)(dot - name), name);
        AUTOFREE char *word = str_printf("%.*s", (int)(dot - rest), rest);
        bool network = strcmp(group, "network") == 0;
        jw_obj(w, word);
        if (network) { /* a policy alone may stand for the object */
            jw_arr(w, "anyOf");
            jw_obj(w, NULL);
            write_enum(w, config_keys[key_find("network")].words);
            jw_end_obj(w);
            jw_obj(w, NULL);
        }
        i = write_group(group, i, w);
        if (network) {
            jw_end_obj(w);
            jw_end_arr(w);
        }
        jw_end_obj(w);
    }
    jw_end_obj(w);
    return i;
}

char *config_schema(void)
{
    struct jsonw w = { .pretty = true };

    jw_obj(&w, NULL);
    jw_str(&w, "$schema", "https://json-schema.org/draft/2020-12/schema");
    jw_str(&w, "title", "petri.json");
    jw_str(&w, "type", "object");
    jw_bool(&w, "additionalProperties", false);
    jw_obj(&w, "properties");
    jw_obj(&w, "$schema");
    jw_str(&w, "type", "string");
    jw_end_obj(&w);
    jw_obj(&w, "sandbox");
    (void)write_group("", 0, &w);
    jw_end_obj(&w);
    jw_obj(&w, "agent");
    jw_str(&w, "description", "values for one agent, over the common ones");
    jw_str(&w, "type", "object");
    jw_obj(&w, "additionalProperties");
    jw_str(&w, "type", "object");
    jw_obj(&w, "properties");
    jw_obj(&w, "sandbox");
    jw_str(&w, "$ref", "#/properties/sandbox");
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    return str_take(&w.out);
}
