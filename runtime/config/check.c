/* runtime/config/check.c - every value of a file is right or named, with its place. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/source.h"

enum { MAX_MISTAKES = 100, MAX_WORDS = 1000 };

struct walk {
    struct loader *l;
    const struct source *s;
    const char *agent; /* whose block this is; NULL: everybody's */
    bool counts;       /* not another agent's */
    uint64_t *seen;    /* keys of this block */
};

static char *place(const struct source *s, uint32_t node)
{
    unsigned line, column;
    jsonc_place(&s->doc, s->doc.nodes[node].start, &line, &column);
    return str_printf("%s:%u:%u", s->path, line, column);
}

static void PRINTF_LIKE(3, 4) wrong(const struct walk *w, uint32_t node, const char *fmt, ...)
{
    struct strv *list = &w->l->c->mistakes;
    AUTOFREE char *text = NULL, *at = NULL;
    va_list ap;

    if (list->n >= MAX_MISTAKES)
        return;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    at = place(w->s, node);
    strv_addf(list, "%s: %s", at, text);
}

/* "sandbox.resources" or "agent.code.sandbox.resources" */
static char *full_name(const struct walk *w, const char *parent, const char *name)
{
    return str_printf("%s%s%ssandbox%s%s%s%s", w->agent ? "agent." : "", w->agent ? w->agent : "",
                      w->agent ? "." : "", *parent ? "." : "", parent, *name ? "." : "", name);
}

struct assign *assign_add(struct loader *l, int key, const struct source *s)
{
    if ((l->n_assigns & (l->n_assigns + 1)) == 0) {
        l->assigns = realloc(l->assigns, (2 * l->n_assigns + 1) * sizeof *l->assigns);
        if (!l->assigns)
            abort();
    }
    l->assigns[l->n_assigns] = (struct assign){ .key = key, .src = s };
    return &l->assigns[l->n_assigns++];
}

/* The node of the i-th word: its own in a list, the value's otherwise. */
static uint32_t word_node(const struct walk *w, uint32_t node, size_t i)
{
    const struct jsonc *j = &w->s->doc;
    uint32_t at = jsonc_first(j, node);
    for (; at && i; i--)
        at = jsonc_after(j, node, at);
    return at ? at : node;
}

/* The name is put together only for a mistake: a large file has tens of thousands of values. */
static void wrong_value(const struct walk *w, uint32_t node, const char *path, const char *why)
{
    AUTOFREE char *full = full_name(w, "", path);
    wrong(w, node, "%s: %s", full, why);
}

/* A list as a whole; NULL: right. */
static char *words_check(const struct config_key *k, const struct strv *words)
{
    if (words->n > MAX_WORDS)
        return str_printf("%zu entries; at most %d", words->n, MAX_WORDS);
    if (k->type == KEY_PORTS && !words->n)
        return str_dup("an empty list reaches nothing; say network.policy \"none\"");
    return NULL;
}

static void take(const struct walk *w, int key, const char *path, uint32_t node)
{
    const struct config_key *k = &config_keys[key];
    AUTOSTRV struct strv words = { 0 };
    AUTOFREE char *bad = key_words(k, &w->s->doc, node, &words);
    bool open = false, ok;

    if (!bad)
        bad = words_check(k, &words);
    if (!bad && *w->seen & 1ULL << key)
        bad = str_printf("%s stands here twice, in two spellings", k->name);
    *w->seen |= 1ULL << key;
    if (!(ok = !bad))
        wrong_value(w, node, path, bad);
    if (k->type == KEY_KEYS && w->s->layer == LAYER_PROJECT) {
        wrong_value(w, node, path, "only the user's and the system's files can lock keys");
        return;
    }
    for (size_t i = 0; ok && i < words.n; i++) {
        bool has = subst_has(words.v[i]);
        AUTOFREE char *why = has ? subst_check(words.v[i], w->s) : key_check(k, words.v[i]);
        open |= has;
        if (has && !why && w->s->layer == LAYER_PROJECT &&
            !subst_read(&w->l->sources[w->s - w->l->sources], words.v[i]))
            why = str_dup("this file includes more than 100 others");
        if (why)
            wrong_value(w, word_node(w, node, i), path, why);
    }
    if (!ok || !w->counts)
        return;
    struct assign *a = assign_add(w->l, key, w->s);
    a->agent = w->agent != NULL;
    a->open = open;
    a->from = place(w->s, node);
    a->words = words;
    words = (struct strv){ 0 };
}

static void unknown(const struct walk *w, const char *parent, const char *name, uint32_t node)
{
    AUTOFREE char *full = full_name(w, parent, name), *above = full_name(w, parent, "");
    AUTOSTR struct str shown = STR_INIT;
    const char *near = key_nearest(parent, name);

    str_add_escaped(&shown, full, strnlen(full, 120));
    if (near)
        wrong(w, node, "unknown key '%s' (did you mean '%s.%s'?)", shown.p, above, near);
    else if (*parent == '\0' && key_find_flat(name) >= 0)
        wrong(w, node, "unknown key '%s' (did you mean 'sandbox.%s'?)", shown.p,
              config_keys[key_find_flat(name)].name);
    else
        wrong(w, node, "unknown key '%s'; petri config schema lists all", shown.p);
}

static void group(const struct walk *w, const char *parent, uint32_t node);

/* All that is said for everybody, or for one agent. */
static void block(struct walk *w, uint32_t node)
{
    uint64_t seen = 0;

    w->seen = &seen;
    group(w, "", node);
    w->seen = NULL;
}

static void group(const struct walk *w, const char *parent, uint32_t node)
{
    const struct jsonc *j = &w->s->doc;
    AUTOSTR struct str at = STR_INIT;
    size_t above;

    if (j->nodes[node].type != JSON_OBJECT) {
        AUTOFREE char *full = full_name(w, parent, "");
        wrong(w, node, "%s: an object is wanted", full);
        return;
    }
    str_add(&at, parent);
    if (*parent)
        str_addc(&at, '.');
    above = at.len;
    for (uint32_t i = jsonc_first(j, node); i; i = jsonc_after(j, node, i)) {
        AUTOFREE char *name = jsonc_text(j, i);
        bool plain = !strchr(name, '.') && *name;
        const char *path;
        int key;

        at.len = above;
        str_add(&at, name);
        path = at.p;
        key = plain ? key_find(path) : -1;

        if (plain && (key < 0 || j->nodes[i + 1].type == JSON_OBJECT) && key_is_group(path))
            group(w, path, i + 1);
        else if (key >= 0)
            take(w, key, path, i + 1);
        else if (plain && w->agent && !*parent && (key = key_find_flat(name)) >= 0)
            take(w, key, path, i + 1);
        else
            unknown(w, parent, name, i);
    }
}

static bool agent_name_ok(const char *name)
{
    size_t n = strlen(name);
    if (!n || n > 63 || !isalnum((unsigned char)*name))
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("-_.", *name))
            return false;
    return true;
}

static void agents(struct walk *w, uint32_t node)
{
    const struct jsonc *j = &w->s->doc;
    const char *wanted = w->l->from->agent;

    if (j->nodes[node].type != JSON_OBJECT) {
        wrong(w, node, "agent: an object of agents is wanted");
        return;
    }
    for (uint32_t i = jsonc_first(j, node); i; i = jsonc_after(j, node, i)) {
        AUTOFREE char *name = jsonc_text(j, i);
        if (!agent_name_ok(name)) {
            AUTOSTR struct str shown = STR_INIT;
            str_add_escaped(&shown, name, strnlen(name, 60));
            wrong(w, i,
                  "agent '%s': 1 to 63 letters, digits, '-', '_' or '.', beginning with a letter "
                  "or digit",
                  shown.p ? shown.p : "");
            continue;
        }
        if (j->nodes[i + 1].type != JSON_OBJECT) {
            wrong(w, i + 1, "agent.%s: an object is wanted", name);
            continue;
        }
        if (w->s->layer == LAYER_PROJECT && w->l->c->agents.n <= CONFIG_MAX_AGENTS &&
            !strv_has(&w->l->c->agents, name))
            strv_add(&w->l->c->agents, name);
        w->agent = name;
        w->counts = str_eq(name, wanted);
        w->l->agent_found |= w->counts;
        for (uint32_t k = jsonc_first(j, i + 1); k; k = jsonc_after(j, i + 1, k)) {
            AUTOFREE char *sub = jsonc_text(j, k);
            if (strcmp(sub, "sandbox") == 0)
                block(w, k + 1);
            else if (!w->s->foreign)
                wrong(w, k, "unknown key 'agent.%s.%s' (did you mean 'agent.%s.sandbox'?)", name,
                      sub, name);
        }
        w->agent = NULL;
    }
    w->counts = true;
}

void source_check(struct loader *l, const struct source *s)
{
    static const char *const tops[] = { "sandbox", "agent", "$schema" };
    struct walk w = { .l = l, .s = s, .counts = true };
    const struct jsonc *j = &s->doc;

    if (j->nodes[0].type != JSON_OBJECT) {
        wrong(&w, 0, "an object is wanted: {\"sandbox\": {...}}");
        return;
    }
    for (uint32_t i = jsonc_first(j, 0); i; i = jsonc_after(j, 0, i)) {
        AUTOFREE char *name = jsonc_text(j, i);
        if (strcmp(name, "sandbox") == 0) {
            block(&w, i + 1);
        } else if (strcmp(name, "agent") == 0) {
            agents(&w, i + 1);
        } else if (!s->foreign && strcmp(name, "$schema") != 0) {
            AUTOSTR struct str shown = STR_INIT;
            const char *near = nearest_word(name, tops, ARRAY_LEN(tops));
            int key = key_find(name);
            str_add_escaped(&shown, name, strnlen(name, 60));
            if (str_starts(name, "sandbox."))
                wrong(&w, i, "unknown key '%s' (did you mean {\"sandbox\": {...}}?)", shown.p);
            else if (key >= 0 || key_is_group(name))
                wrong(&w, i, "unknown key '%s' (did you mean 'sandbox.%s'?)", shown.p, name);
            else if (near)
                wrong(&w, i, "unknown key '%s' (did you mean '%s'?)", shown.p, near);
            else
                wrong(&w, i, "unknown key '%s': only sandbox, agent and $schema stand here",
                      shown.p ? shown.p : "");
        }
    }
}

void environment_check(struct loader *l)
{
    char *variables[64] = { 0 };

    for (char **v = l->from->environment; v && *v; v++) {
        AUTOFREE char *name = NULL, *bad = NULL;
        const char *value = strchr(*v, '=') ? strchr(*v, '=') + 1 : "";
        const struct config_key *k = NULL;
        const char *as;
        struct assign *a;

        if (!str_starts(*v, "PETRI_"))
            continue;
        name = str_printf("%.*s", (int)strcspn(*v, "="), *v);
        for (size_t i = 0; i < n_config_keys && !variables[i]; i++)
            variables[i] = key_variable(&config_keys[i]);
        as = strcmp(name, "PETRI_NETWORK_POLICY") == 0 ? "PETRI_NETWORK" : name;
        for (size_t i = 0; i < n_config_keys && !k; i++)
            if (strcmp(variables[i], as) == 0)
                k = &config_keys[i];
        if (!k) {
            const char *rest[64], *near;
            for (size_t i = 0; i < n_config_keys; i++)
                rest[i] = variables[i] + strlen("PETRI_");
            near = strlen(name) > 11 ? nearest_word(name + 6, rest, n_config_keys) : NULL;
            if (near)
                strv_addf(&l->c->mistakes,
                          "environment: unknown variable %s (did you mean PETRI_%s?)", name, near);
            continue;
        }
        if (k->type == KEY_KEYS) {
            strv_addf(&l->c->mistakes, "environment: %s: only files can lock keys", name);
            continue;
        }
        a = assign_add(l, (int)(k - config_keys), NULL);
        a->from = str_printf("environment %s", name);
        bad = key_words_of_text(k, value, &a->words);
        if (!bad)
            bad = words_check(k, &a->words);
        for (size_t i = 0; !bad && i < a->words.n; i++)
            bad = key_check(k, a->words.v[i]);
        if (bad)
            strv_addf(&l->c->mistakes, "environment: %s: %s", name, bad);
    }
    for (size_t i = 0; i < n_config_keys; i++)
        free(variables[i]);
}
