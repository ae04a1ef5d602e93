/* runtime/config/load.c - reading, checking and merging, in this order. */
#include <string.h>

#include "runtime/config/source.h"

static struct setting *settings_free(struct setting *s)
{
    for (size_t i = 0; s && i < n_config_keys; i++) {
        strv_free_p(&s[i].words);
        strv_free_p(&s[i].from);
    }
    free(s);
    return NULL;
}

struct config *config_free(struct config *c)
{
    if (!c)
        return NULL;
    settings_free(c->set);
    settings_free(c->floor);
    strv_free_p(&c->mistakes);
    strv_free_p(&c->files);
    strv_free_p(&c->waiting);
    strv_free_p(&c->waiting_at);
    strv_free_p(&c->untrusted);
    strv_free_p(&c->untrusted_text);
    strv_free_p(&c->agents);
    strv_free_p(&c->locked);
    free(c);
    return NULL;
}

static void loader_free_p(struct loader *l)
{
    for (size_t i = 0; i < l->n_sources; i++)
        source_free(&l->sources[i]);
    for (size_t i = 0; i < l->n_assigns; i++) {
        strv_free_p(&l->assigns[i].words);
        free(l->assigns[i].from);
    }
    free(l->sources);
    free(l->assigns);
    free(l->who);
}

int config_load(const struct config_from *from, struct config **ret, struct err **e)
{
    CLEANUP(config_free_p) struct config *c = mem_zalloc(sizeof *c);
    CLEANUP(loader_free_p) struct loader l = { .from = from, .c = c };

    if (from->profile && !config_profile(from->profile))
        return err_new(e, ERR_INVALID, "--profile '%s': untrusted, user or trusted", from->profile);
    c->set = mem_zalloc(n_config_keys * sizeof *c->set);
    c->floor = mem_zalloc(n_config_keys * sizeof *c->floor);
    l.who = mem_zalloc(n_config_keys * sizeof *l.who);
    sources_read(&l);
    for (size_t i = 0; i < l.n_sources; i++)
        source_check(&l, &l.sources[i]);
    environment_check(&l);
    if (!c->mistakes.n)
        config_merge(&l);
    c->agent_missing = from->agent && !l.agent_found;
    *ret = TAKE_PTR(c);
    return 0;
}

void config_value(const struct config *c, size_t key, struct strv *ret)
{
    const struct setting *s = &c->set[key];
    if (!s->set)
        key_default(&config_keys[key], ret);
    for (size_t i = 0; s->set && i < s->words.n; i++)
        strv_add(ret, s->words.v[i]);
}

bool config_true(const struct config *c, const char *key)
{
    AUTOSTRV struct strv v = { 0 };
    config_value(c, (size_t)key_find(key), &v);
    return v.n && strcmp(v.v[0], "true") == 0;
}

const char *config_origin(const struct config *c, size_t key)
{
    const struct setting *s = &c->set[key];
    return s->set && s->from.n ? s->from.v[0] : "default";
}
