#include "runtime/sandbox/flags.h"

#include <string.h>

/* The first of a list with this name (n bytes of it): its value; NULL: none. */
static const char *value_of(const struct strv *l, const char *flag, size_t n)
{
    for (size_t i = 0; i < l->n; i++)
        if (strncmp(l->v[i], flag, n) == 0 && l->v[i][n] == '=')
            return l->v[i] + n + 1;
    return NULL;
}

/* They say which sandbox is meant, not what it is like. */
static bool not_compared(const char *flag)
{
    return str_starts(flag, "name=") || str_starts(flag, "workspace=");
}

/* They only concern the start itself: one that runs can't have others. */
static bool of_the_start(const char *flag)
{
    return str_starts(flag, "total-") || str_starts(flag, "startup-timeout=");
}

static void given_now(const struct options *o, struct strv *ret)
{
    for (size_t i = 0; i < o->given.n; i++)
        if (!strv_has(&o->configured, o->given.v[i]))
            strv_add(ret, o->given.v[i]);
}

void flags_own(const struct options *o, const struct state *s, struct strv *ret)
{
    AUTOSTRV struct strv given = { 0 };

    given_now(o, &given);
    for (size_t i = 0; i < s->options.n; i++)
        if (!strv_has(&s->configured, s->options.v[i]) &&
            !value_of(&given, s->options.v[i], strcspn(s->options.v[i], "=")))
            strv_add(ret, s->options.v[i]);
}

void flags_inherit(const struct strv *from, struct strv *ret)
{
    for (size_t i = 0; i < from->n; i++)
        if (!str_starts(from->v[i], "publish=") && !str_starts(from->v[i], "promote-on-stop="))
            strv_add(ret, from->v[i]);
}

void flags_merge(const struct options *o, const struct state *s, struct strv *ret)
{
    AUTOSTRV struct strv given = { 0 }, own = { 0 };

    given_now(o, &given);
    flags_own(o, s, &own);
    for (size_t i = 0; i < own.n; i++)
        strv_add(ret, own.v[i]);
    for (size_t i = 0; i < o->configured.n; i++) {
        const char *c = o->configured.v[i];
        bool beaten = !options_is_list(c) &&
                      (value_of(&own, c, strcspn(c, "=")) || value_of(&given, c, strcspn(c, "=")));
        if (!beaten && !strv_has(ret, c))
            strv_add(ret, c);
    }
    for (size_t i = 0; i < given.n; i++)
        if (!not_compared(given.v[i]) && !strv_has(ret, given.v[i]))
            strv_add(ret, given.v[i]);
}

static void add_shown(struct str *out, const char *text)
{
    AUTOSTR struct str s = STR_INIT;
    str_add_escaped(&s, text, strlen(text));
    str_add(out, s.p ? s.p : "");
}

char *flags_differ(const struct options *o, const struct state *s)
{
    AUTOSTRV struct strv next = { 0 };
    AUTOSTR struct str out = STR_INIT;

    flags_merge(o, s, &next);
    for (size_t i = 0; i < next.n; i++) {
        size_t n = strcspn(next.v[i], "=");
        const char *old = value_of(&s->options, next.v[i], n);
        if (strv_has(&s->options, next.v[i]) || of_the_start(next.v[i]))
            continue;
        str_addf(&out, "%s--%.*s ", out.len ? ", " : "", (int)n, next.v[i]);
        add_shown(&out, next.v[i] + n + 1);
        if (!old) {
            str_add(&out, " (it was started without)");
            continue;
        }
        str_add(&out, " (it has ");
        add_shown(&out, *old ? old : "it");
        str_add(&out, ")");
    }
    for (size_t i = 0; i < s->configured.n; i++) {
        const char *was = s->configured.v[i];
        size_t n = strcspn(was, "=");
        if (value_of(&next, was, n) || of_the_start(was))
            continue;
        str_addf(&out, "%s--%.*s is not configured any more (it has ", out.len ? ", " : "", (int)n,
                 was);
        add_shown(&out, was[n + 1] ? was + n + 1 : "it");
        str_add(&out, ")");
    }
    return out.len ? str_take(&out) : NULL;
}

void flags_record(struct state *s, struct strv *merged, const struct options *o)
{
    strv_free_p(&s->options);
    strv_free_p(&s->configured);
    s->options = *merged;
    *merged = (struct strv){ 0 };
    for (size_t i = 0; i < o->configured.n; i++)
        if (strv_has(&s->options, o->configured.v[i]))
            strv_add(&s->configured, o->configured.v[i]);
}
