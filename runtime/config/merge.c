/* runtime/config/merge.c - which values count: order, trust, locks. */
#include <string.h>

#include "runtime/config/source.h"

/* A value on its way: from an assign, or from the profile that an assign names. */
struct value {
    int key;
    const struct strv *words;
    const char *from;
    enum config_layer layer;
};

static void forget(struct setting *t)
{
    strv_free_p(&t->words);
    strv_free_p(&t->from);
}

/* NAME=VALUE of a map takes the place of the same name. */
static void put_entry(struct setting *t, const char *word, const char *from, bool map)
{
    size_t n = strcspn(word, "=") + 1;
    for (size_t i = 0; i < t->words.n; i++) {
        if (!(map ? strncmp(t->words.v[i], word, n) == 0 : strcmp(t->words.v[i], word) == 0))
            continue;
        if (map) {
            free(t->words.v[i]);
            free(t->from.v[i]);
            t->words.v[i] = str_dup(word);
            t->from.v[i] = str_dup(from);
        }
        return;
    }
    strv_add(&t->words, word);
    strv_add(&t->from, from);
}

static void put(struct setting *into, const struct value *v)
{
    const struct config_key *k = &config_keys[v->key];
    struct setting *t = &into[v->key];
    bool map = k->type == KEY_MAP, grows = map || k->sense == SENSE_GROWS;

    if (!grows)
        forget(t);
    t->set = true;
    t->layer = v->layer;
    for (size_t i = 0; i < v->words->n; i++)
        put_entry(t, v->words->v[i], v->from, map);
    if (!t->from.n && !grows)
        strv_add(&t->from, v->from); /* an empty list comes from somewhere too */
}

/* Where a key is locked; NULL: it is not. "network" locks network.policy and all the others. */
static const char *lock_of(const struct config *c, int key)
{
    const struct setting *locked = &c->floor[key_find("locked")];
    const char *name = config_keys[key].name;
    for (size_t i = 0; i < locked->words.n; i++) {
        const char *w = locked->words.v[i];
        if (str_starts(w, "sandbox."))
            w += strlen("sandbox.");
        if (key_find(w) == key || (str_starts(name, w) && name[strlen(w)] == '.'))
            return locked->from.v[i];
    }
    return NULL;
}

const char *config_lock(const struct config *c, int key, const struct strv *words)
{
    const struct setting *f = &c->floor[key];
    const char *lock = lock_of(c, key);
    return lock && key_compare(&config_keys[key], words, f->set ? &f->words : NULL) > EQUAL ? lock
                                                                                            : NULL;
}

static void wait_for_trust(struct loader *l, const struct value *v, const struct source *s)
{
    struct config *c = l->c;
    AUTOSTR struct str said = STR_INIT;

    if (!strv_has(&c->waiting, config_keys[v->key].name))
        strv_add(&c->waiting, config_keys[v->key].name);
    for (size_t i = 0; i < v->words->n; i++)
        str_addf(&said, "%s%s", i ? ", " : "", v->words->v[i]);
    strv_addf(&c->waiting_at, "%s: %s = %s", v->from, config_keys[v->key].name,
              said.len ? said.p : "(nothing)");
    if (!strv_has(&c->untrusted, s->path)) {
        strv_add(&c->untrusted, s->path);
        strv_add(&c->untrusted_text, s->text);
    }
}

/* Does the value count? Trusted files are compared with nothing. */
static bool counts(struct loader *l, const struct value *v, const struct source *s, bool open)
{
    const struct config_key *k = &config_keys[v->key];
    struct config *c = l->c;
    const struct setting *f = &c->floor[v->key];
    const char *lock;

    if (v->layer < LAYER_PROJECT)
        return true;
    if (v->layer == LAYER_PROJECT &&
        (open || key_compare(k, v->words, f->set ? &f->words : NULL) == LOOSENS) &&
        !source_trusted(l, s)) {
        wait_for_trust(l, v, s);
        return false;
    }
    if (!(lock = config_lock(c, v->key, v->words)))
        return true;
    if (v->layer == LAYER_PROJECT)
        strv_addf(&c->locked, "%s (%s) is locked by %s", k->name, v->from, lock);
    else
        strv_addf(&c->mistakes, "%s: %s is locked by %s", v->from, k->name, lock);
    return false;
}

static void add_profile(struct loader *l, const char *name, const char *from,
                        enum config_layer layer, const struct source *s, struct setting *into)
{
    AUTOFREE char *origin = str_printf("profile %s, %s", name, from);
    for (const char *const *p = config_profile(name); p && *p; p++) {
        AUTOFREE char *key = str_printf("%.*s", (int)strcspn(*p, "="), *p);
        AUTOSTRV struct strv words = { 0 };
        struct value v = { key_find(key), &words, origin, layer };
        strv_add(&words, *p + strlen(key) + 1);
        if (counts(l, &v, s, false))
            put(into, &v);
    }
}

static void add_assign(struct loader *l, struct assign *a, struct setting *into)
{
    struct value v = { a->key, &a->words, a->from, a->src ? a->src->layer : LAYER_ENVIRONMENT };
    const struct config_key *k = &config_keys[a->key];

    if (a->open) {
        if (v.layer == LAYER_PROJECT && !source_trusted(l, a->src)) {
            (void)counts(l, &v, a->src, true);
            return;
        }
        AUTOFREE char *wrong = subst_words(a->src, &a->words);
        a->open = false;
        for (size_t i = 0; !wrong && i < a->words.n; i++)
            wrong = key_check(k, a->words.v[i]);
        if (wrong) {
            strv_addf(&l->c->mistakes, "%s: sandbox.%s: %s", a->from, k->name, wrong);
            return;
        }
    }
    if (counts(l, &v, a->src, false))
        put(into, &v);
}

/* All values of one file, the common ones or the agent's; a profile lies below the file's other values. */
static void add_source(struct loader *l, const struct source *s, bool agent, struct setting *into)
{
    int profile = key_find("profile");

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < l->n_assigns; i++) {
            struct assign *a = &l->assigns[i];
            if (a->src != s || a->agent != agent)
                continue;
            if (pass == 0 && a->key == profile && a->words.n && !a->open)
                add_profile(l, a->words.v[0], a->from, s ? s->layer : LAYER_ENVIRONMENT, s, into);
            if (pass == (a->key == profile ? 0 : 1))
                add_assign(l, a, into);
        }
}

static void add_files(struct loader *l, enum config_layer up_to, struct setting *into)
{
    for (int agent = 0; agent < 2; agent++)
        for (size_t i = 0; i < l->n_sources; i++)
            if (l->sources[i].layer <= up_to)
                add_source(l, &l->sources[i], agent, into);
}

void config_merge(struct loader *l)
{
    add_files(l, LAYER_USER, l->c->floor);
    if (l->c->mistakes.n)
        return;
    add_files(l, LAYER_PROJECT, l->c->set);
    add_source(l, NULL, false, l->c->set);
    if (l->from->profile)
        add_profile(l, l->from->profile, "--profile", LAYER_FLAG, NULL, l->c->set);
}
