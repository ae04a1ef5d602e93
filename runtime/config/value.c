/* runtime/config/value.c - values of keys: their types, what is right, which is the tighter one. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/keys.h"

/* Place of a word in "a|b|c"; -1: not there. */
static int word_index(const char *words, const char *w)
{
    size_t n = strlen(w);
    int i = 0;
    for (const char *p = words; p && *p; p += strcspn(p, "|"), p += *p == '|', i++)
        if (strcspn(p, "|") == n && strncmp(p, w, n) == 0)
            return i;
    return -1;
}

static void add_words(const char *words, struct str *ret)
{
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, "|");
        bool last = !p[n];
        str_addf(ret, "%s%.*s", p == words ? "" : last ? " or " : ", ", (int)n, p);
        p += n + !last;
    }
}

void key_wanted(const struct config_key *k, struct str *ret)
{
    static const char *const texts[] = {
        [KEY_BOOL] = "true or false",
        [KEY_INT] = "a whole number",
        [KEY_CPUS] = "a number of cpus like 2 or 0.5",
        [KEY_SIZE] = "a size like \"512M\" or \"2G\"",
        [KEY_TIME] = "seconds, or a time like \"30s\" or \"10m\"",
        [KEY_TEXT] = "a string",
        [KEY_PATH] = "an absolute path",
        [KEY_LIST] = "a list of strings",
        [KEY_INSIDE] = "a list of paths or patterns inside the project",
        [KEY_DOMAINS] = "a list like [\"example.org\", \"*.example.net\", \"host:22\"]",
        [KEY_PORTS] = "a list of port numbers",
        [KEY_PUBLISH] = "a list like [\"8080:80\"]",
        [KEY_MOUNTS] = "a list like [\"/srv/data:/data:ro\"]",
        [KEY_KEYS] = "a list of keys like [\"network.policy\"]",
        [KEY_MAP] = "an object of strings like {\"NAME\": \"value\"}",
    };
    if (k->type == KEY_WORD || k->type == KEY_RUNTIME) {
        add_words(k->words, ret);
        str_add(ret, k->type == KEY_RUNTIME ? ", or an absolute path" : "");
    } else {
        str_add(ret, texts[k->type]);
    }
    if (k->type == KEY_INT && k->max)
        str_addf(ret, " from %llu to %llu", (unsigned long long)k->min, (unsigned long long)k->max);
}

/* Sizes of a file are plainer than those of a flag: the same file must mean the same to every reader. */
static bool plain_size(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n && (!s[n] || (strchr("kKmMgGtT", s[n]) && !s[n + 1]));
}

/* A number that stands for the value, for comparing; false: not a right one. */
static bool measure(const struct config_key *k, const char *w, uint64_t *ret)
{
    switch (k->type) {
    case KEY_INT:
        return parse_uint(w, UINT64_MAX, ret, NULL) == 0;
    case KEY_CPUS:
        return parse_cpus(w, ret, NULL) == 0;
    case KEY_SIZE:
        return parse_size(w, ret, NULL) == 0;
    case KEY_TIME:
        return parse_duration(w, ret, NULL) == 0;
    default:
        return false;
    }
}

static bool inside_project(const char *p)
{
    if (!*p || *p == '/')
        return false;
    for (;; p += strcspn(p, "/"), p += *p == '/') {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        if (!p[n])
            return true;
    }
}

static bool port_number(const char *p, size_t n)
{
    char buf[8];
    uint64_t v;
    snprintf(buf, sizeof buf, "%.*s", (int)(n < 7 ? n : 7), p);
    return n < 7 && parse_uint(buf, 65535, &v, NULL) == 0 && v > 0;
}

static bool publish_entry(const char *w)
{
    const char *last = strrchr(w, ':'), *first;
    if (!last)
        return false;
    for (first = last; first > w && first[-1] != ':'; first--)
        ;
    return port_number(last + 1, strlen(last + 1)) && port_number(first, (size_t)(last - first));
}

static bool mount_entry(const char *w)
{
    const char *colon = strchr(w, ':'), *dst = colon ? colon + 1 : NULL;
    const char *rest = dst ? strchr(dst, ':') : NULL;
    return dst && (w[0] == '/' || str_starts(w, "~/")) && *dst == '/' &&
           (!rest || strcmp(rest, ":ro") == 0 || strcmp(rest, ":rw") == 0);
}

static bool map_entry(const char *w)
{
    size_t n = strcspn(w, "=");
    if (!n || !w[n] || isdigit((unsigned char)*w))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)w[i]) && w[i] != '_')
            return false;
    return true;
}

static bool right(const struct config_key *k, const char *w)
{
    uint64_t v = 0;
    switch (k->type) {
    case KEY_BOOL:
    case KEY_WORD:
        return word_index(k->words, w) >= 0;
    case KEY_RUNTIME:
        return word_index(k->words, w) >= 0 || (w[0] == '/' && w[1]);
    case KEY_INT:
    case KEY_SIZE:
        return (k->type == KEY_INT || plain_size(w)) && measure(k, w, &v) && v >= k->min &&
               (!k->max || v <= k->max);
    case KEY_CPUS:
    case KEY_TIME:
        return measure(k, w, &v);
    case KEY_PATH:
        return w[0] == '/' && w[1] && inside_project(w + 1);
    case KEY_INSIDE:
        return inside_project(w);
    case KEY_DOMAINS:
        return *w && strlen(w) < 300 &&
               strspn(w,
                      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*:/[]") ==
                   strlen(w);
    case KEY_PORTS:
        return port_number(w, strlen(w));
    case KEY_PUBLISH:
        return publish_entry(w);
    case KEY_MOUNTS:
        return mount_entry(w);
    case KEY_KEYS:
        return key_find(w) >= 0 || key_is_group(w);
    case KEY_MAP:
        return map_entry(w);
    case KEY_TEXT:
    case KEY_LIST:
        return *w != '\0';
    }
    return false;
}

char *key_check(const struct config_key *k, const char *word)
{
    AUTOSTR struct str s = STR_INIT;
    uint64_t v;

    if (right(k, word))
        return NULL;
    str_add(&s, "'");
    str_add_escaped(&s, word, strnlen(word, 60));
    str_add(&s, "'");
    if (k->type == KEY_SIZE && plain_size(word) && measure(k, word, &v)) {
        char least[24];
        format_size(k->min, least);
        str_addf(&s, " is too small: at least %s", least);
    } else {
        str_add(&s, key_is_list(k) ? " can't stand in " : " is not ");
        key_wanted(k, &s);
    }
    return str_take(&s);
}

/* --- where values come from --------------------------------------------------------------------- */

static char *wrong_type(const struct config_key *k, const struct jsonc *j, uint32_t node)
{
    static const char *const names[] = { "null",     "true or false", "a number",
                                         "a string", "a list",        "an object" };
    AUTOSTR struct str s = STR_INIT;
    str_addf(&s, "%s is not ", names[j->nodes[node].type]);
    key_wanted(k, &s);
    return str_take(&s);
}

char *key_words(const struct config_key *k, const struct jsonc *j, uint32_t node, struct strv *ret)
{
    enum json_type type = j->nodes[node].type, item = JSON_STRING;
    bool ok;

    if (k->type == KEY_MAP) {
        if (type != JSON_OBJECT)
            return wrong_type(k, j, node);
        for (uint32_t i = jsonc_first(j, node); i; i = jsonc_after(j, node, i)) {
            AUTOFREE char *name = jsonc_text(j, i), *value = jsonc_text(j, i + 1);
            if (j->nodes[i + 1].type != JSON_STRING || strchr(name, '='))
                return wrong_type(k, j, j->nodes[i + 1].type != JSON_STRING ? i + 1 : i);
            strv_addf(ret, "%s=%s", name, value);
        }
        return NULL;
    }
    if (key_is_list(k)) {
        if (type != JSON_ARRAY)
            return wrong_type(k, j, node);
        for (uint32_t i = jsonc_first(j, node); i; i = jsonc_after(j, node, i)) {
            item = j->nodes[i].type;
            if (item != JSON_STRING &&
                !(item == JSON_NUMBER && (k->type == KEY_PORTS || k->type == KEY_PUBLISH)))
                return wrong_type(k, j, i);
            strv_take(ret, jsonc_text(j, i));
        }
        return NULL;
    }
    ok = k->type == KEY_BOOL                          ? type == JSON_BOOL
         : k->type == KEY_INT || k->type == KEY_CPUS  ? type == JSON_NUMBER
         : k->type == KEY_TIME && type == JSON_NUMBER ? true
                                                      : type == JSON_STRING;
    /* {env:X} may stand for anything: its text is judged like a variable's */
    if (!ok && type == JSON_STRING) {
        AUTOFREE char *text = jsonc_text(j, node);
        ok = strstr(text, "{env:") || strstr(text, "{file:");
    }
    if (!ok)
        return wrong_type(k, j, node);
    strv_take(ret, jsonc_text(j, node));
    return NULL;
}

char *key_words_of_text(const struct config_key *k, const char *text, struct strv *ret)
{
    bool json = *text == '[' || *text == '{';

    if (!key_is_list(k)) {
        strv_add(ret, text);
        return NULL;
    }
    if (json) {
        CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
        CLEANUP(err_free_p) struct err *e = NULL;
        if (jsonc_parse(text, strlen(text), &j, &e) < 0)
            return err_text(e);
        return key_words(k, &j, 0, ret);
    }
    AUTOFREE char *copy = str_dup(text);
    for (char *save = NULL, *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
        strv_add(ret, w);
    return NULL;
}

void key_default(const struct config_key *k, struct strv *ret)
{
    if (*k->def)
        free(key_words_of_text(k, k->def, ret));
}

/* --- tighter or looser -------------------------------------------------------------------------- */

static bool same(const struct strv *a, const struct strv *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->v[i], b->v[i]) != 0)
            return false;
    return true;
}

static bool all_in(const struct strv *a, const struct strv *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (!strv_has(b, a->v[i]))
            return false;
    return true;
}

/* 0 and nothing are no limit at all. */
static uint64_t limit_of(const struct config_key *k, const struct strv *l)
{
    uint64_t v = 0;
    return l->n && measure(k, l->v[0], &v) && v ? v : UINT64_MAX;
}

static enum relation rank(uint64_t now, uint64_t was)
{
    return now < was ? TIGHTENS : now > was ? LOOSENS : EQUAL;
}

enum relation key_compare(const struct config_key *k, const struct strv *now,
                          const struct strv *was)
{
    AUTOSTRV struct strv base = { 0 };

    if (!was) {
        /* nobody has said that agents work without a sandbox, or with little of one: saying so loosens */
        if (strcmp(k->name, "enabled") == 0)
            strv_add(&base, "true");
        else if (strcmp(k->name, "profile") == 0)
            strv_add(&base, "user");
        else
            key_default(k, &base);
        was = &base;
    }
    switch (k->sense) {
    case SENSE_NEUTRAL:
        return same(now, was) ? EQUAL : NEUTRAL;
    case SENSE_LOOSENS:
        return same(now, was) ? EQUAL : LOOSENS;
    case SENSE_LESS:
        return rank(limit_of(k, now), limit_of(k, was));
    case SENSE_ORDER: {
        int a = now->n ? word_index(k->words, now->v[0]) : -1;
        int b = was->n ? word_index(k->words, was->v[0]) : -1;
        return a < 0 || b < 0 ? (a == b ? EQUAL : NEUTRAL) : rank((uint64_t)a, (uint64_t)b);
    }
    case SENSE_GROWS: /* what is merged is added, so nothing gets lost */
        return all_in(now, was) ? EQUAL : TIGHTENS;
    case SENSE_WIDENS:
        return !all_in(now, was) ? LOOSENS : all_in(was, now) ? EQUAL : TIGHTENS;
    }
    return LOOSENS;
}

void key_write(const struct config_key *k, const struct strv *words, struct jsonw *w,
               const char *as)
{
    const char *first = words->n ? words->v[0] : NULL;
    uint64_t v = 0;

    if (k->type == KEY_MAP) {
        jw_obj(w, as);
        for (size_t i = 0; i < words->n; i++) {
            AUTOFREE char *name = str_printf("%.*s", (int)strcspn(words->v[i], "="), words->v[i]);
            jw_str(w, name, words->v[i] + strlen(name) + 1);
        }
        jw_end_obj(w);
    } else if (k->type == KEY_PORTS) {
        jw_arr(w, as);
        for (size_t i = 0; i < words->n; i++)
            jw_int(w, NULL, atoi(words->v[i]));
        jw_end_arr(w);
    } else if (key_is_list(k)) {
        jw_strv(w, as, words);
    } else if (!first) {
        jw_null(w, as);
    } else if (k->type == KEY_BOOL) {
        jw_bool(w, as, strcmp(first, "true") == 0);
    } else if (k->type == KEY_INT && measure(k, first, &v)) {
        jw_u64(w, as, v);
    } else if (k->type == KEY_CPUS && isdigit((unsigned char)first[0]) &&
               !(first[0] == '0' && isdigit((unsigned char)first[1]))) {
        const struct json number = { .type = JSON_NUMBER, .string = (char *)first };
        jw_json(w, as, &number);
    } else {
        jw_str(w, as, first);
    }
}
