/* runtime/config/merge.c - which values count: order, trust, locks. */
#include <string.h>

#include "runtime/config/source.h"

/* A value on its way: from an assign, or from the profile that an assign names. */
struct value {
    int key;
    const struct strv *words;
    const char *from;
    enum config_layer layer;
    const struct source *src; /* NULL: the environment or a flag */
    const char *agent;        /* whose it is; NULL: everybody's */
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

static void put(struct loader *l, struct setting *into, const struct value *v)
{
    const struct config_key *k = &config_keys[v->key];
    struct setting *t = &into[v->key];
    bool map = k->type == KEY_MAP, grows = map || k->sense == SENSE_GROWS;

    if (!grows)
        forget(t);
    t->set = true;
    t->layer = v->layer;
    if (into == l->c->set)
        l->who[v->key] = v->src;
    for (size_t i = 0; i < v->words->n; i++)
        put_entry(t, v->words->v[i], v->from, map);
    if (!t->from.n && !grows)
        strv_add(&t->from, v->from); /* an empty list comes from somewhere too */
}

/* A locked profile locks what it consists of. */
static bool in_profile(const struct config *c, const char *name)
{
    const struct setting *f = &c->floor[key_find("profile")];
    const char *const *p = f->words.n ? config_profile(f->words.v[0]) : NULL;
    size_t n = strlen(name);

    for (; p && *p; p++)
        if (strncmp(*p, name, n) == 0 && (*p)[n] == '=')
            return true;
    return false;
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
        if (key_find(w) == key || (str_starts(name, w) && name[strlen(w)] == '.') ||
            (strcmp(w, "profile") == 0 && in_profile(c, name)))
            return locked->from.v[i];
    }
    return NULL;
}

/* How a value differs from what the files say that need no trust. */
static enum relation compare(const struct config *c, int key, const struct strv *words)
{
    const struct config_key *k = &config_keys[key];
    const struct setting *f = &c->floor[key];
    AUTOSTRV struct strv least = { 0 };

    if (!f->set && str_eq(k->option, "disk")) {
        /* what a run has without it; a sandbox that stays has more */
        AUTOSTRV struct strv memory = { 0 };
        uint64_t size = 0;
        int m = key_by_option("memory");
        key_default(&config_keys[m], &memory);
        (void)parse_size(c->floor[m].words.n ? c->floor[m].words.v[0] : memory.v[0], &size, NULL);
        strv_addf(&least, "%llu", (unsigned long long)size / 2);
        return key_compare(k, words, &least);
    }
    return key_compare(k, words, f->set ? &f->words : NULL);
}

const char *config_lock(const struct config *c, int key, const struct strv *words)
{
    const char *lock = lock_of(c, key);
    return lock && compare(c, key, words) > EQUAL ? lock : NULL;
}

static void wait_for_trust(struct loader *l, const struct value *v, const struct source *s)
{
    struct config *c = l->c;
    AUTOSTR struct str said = STR_INIT;

    if (!strv_has(&c->waiting, config_keys[v->key].name))
        strv_add(&c->waiting, config_keys[v->key].name);
    for (size_t i = 0; i < v->words->n; i++)
        str_addf(&said, "%s%s", i ? ", " : "", v->words->v[i]);
    strv_addf(&c->waiting_at, "%s: %s%s%s%s = %s", v->from, v->agent ? "agent." : "",
              v->agent ? v->agent : "", v->agent ? ".sandbox." : "", config_keys[v->key].name,
              said.len ? said.p : "(nothing)");
    if (!strv_has(&c->untrusted, s->path)) {
        strv_add(&c->untrusted, s->path);
        strv_take(&c->untrusted_text, source_whole(s));
    }
}

/* Does it loosen what is trusted, or what another file of the project says? That one may be trusted, and in mode bind
 * a sandbox can make a second one beside it. */
static bool loosens(const struct loader *l, const struct value *v)
{
    const struct source *other = l->who[v->key];
    const struct strv *words = &l->c->set[v->key].words;

    return compare(l->c, v->key, v->words) == LOOSENS ||
           (other && other != v->src && other->layer == LAYER_PROJECT &&
            key_compare(&config_keys[v->key], v->words, words) == LOOSENS);
}

/* Does the value count? Trusted files are compared with nothing. */
static bool counts(struct loader *l, const struct value *v, bool open)
{
    const struct config_key *k = &config_keys[v->key];
    struct config *c = l->c;
    const char *lock;

    if (v->layer < LAYER_PROJECT)
        return true;
    if (v->layer == LAYER_PROJECT && (open || loosens(l, v)) && !source_trusted(l, v->src)) {
        wait_for_trust(l, v, v->src);
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

static void add_profile(struct loader *l, const struct value *profile, struct setting *into)
{
    const char *name = profile->words->n ? profile->words->v[0] : "";
    AUTOFREE char *origin = str_printf("profile %s, %s", name, profile->from);

    for (const char *const *p = config_profile(name); p && *p; p++) {
        AUTOFREE char *key = str_printf("%.*s", (int)strcspn(*p, "="), *p);
        AUTOSTRV struct strv words = { 0 };
        struct value v = *profile;
        v.key = key_find(key);
        v.words = &words;
        v.from = origin;
        strv_add(&words, *p + strlen(key) + 1);
        if (counts(l, &v, false))
            put(l, into, &v);
    }
}

/* Puts in what {env:} and {file:} stand for; false: it waits for trust, or is wrong. */
static bool fill(struct loader *l, struct assign *a, const struct value *v)
{
    const struct config_key *k = &config_keys[a->key];

    if (!a->open)
        return true;
    if (v->layer == LAYER_PROJECT && !source_trusted(l, a->src)) {
        (void)counts(l, v, true);
        return false;
    }
    AUTOFREE char *wrong = subst_words(a->src, &a->words);
    a->open = false;
    for (size_t i = 0; !wrong && i < a->words.n; i++)
        wrong = key_check(k, a->words.v[i]);
    if (wrong)
        strv_addf(&l->c->mistakes, "%s: sandbox.%s: %s", a->from, k->name, wrong);
    return !wrong;
}

static void add_assign(struct loader *l, struct assign *a, bool profile, struct setting *into)
{
    struct value v = {
        .key = a->key,
        .words = &a->words,
        .from = a->from,
        .layer = a->src ? a->src->layer : LAYER_ENVIRONMENT,
        .src = a->src,
        .agent = a->agent ? l->from->agent : NULL,
    };

    if (!fill(l, a, &v) || !counts(l, &v, false))
        return;
    if (profile)
        add_profile(l, &v, into);
    put(l, into, &v);
}

/* All values of one file, the common ones or the agent's; a profile lies below the file's other values. */
static void add_source(struct loader *l, const struct source *s, bool agent, struct setting *into)
{
    int profile = key_find("profile");

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < l->n_assigns; i++) {
            struct assign *a = &l->assigns[i];
            if (a->src == s && a->agent == agent && pass == (a->key != profile))
                add_assign(l, a, pass == 0, into);
        }
}

/* Who names what may be reached and no policy means an allowlist. */
static void imply_allowlist(struct loader *l, struct setting *into, const struct setting *below)
{
    int policy = key_find("network");
    const struct setting *allow = &into[key_find("network.allow")], *old = &below[policy];
    AUTOSTRV struct strv words = { 0 };

    if (into[policy].set || !(allow->words.n || old->set))
        return;
    strv_add(&words, "allowlist");
    put(l, into,
        &(struct value){ .key = policy,
                         .words = &words,
                         .from = allow->words.n ? allow->from.v[0] : old->from.v[0],
                         .layer = allow->words.n ? allow->layer : old->layer });
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
    struct config *c = l->c;
    AUTOSTRV struct strv name = { 0 };

    add_files(l, LAYER_USER, c->floor);
    imply_allowlist(l, c->floor, c->floor);
    if (c->mistakes.n)
        return;
    add_files(l, LAYER_PROJECT, c->set);
    add_source(l, NULL, false, c->set);
    if (l->from->profile) {
        struct value v = {
            .key = key_find("profile"), .words = &name, .from = "--profile", .layer = LAYER_FLAG
        };
        strv_add(&name, l->from->profile);
        if (counts(l, &v, false))
            add_profile(l, &v, c->set);
    }
    imply_allowlist(l, c->set, c->floor);
}
