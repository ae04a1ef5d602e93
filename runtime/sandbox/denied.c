#include "runtime/sandbox/denied.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

static bool same(const struct denied *d, const struct json *line)
{
    uint64_t port = 0;
    const char *name = json_str(line, "name");
    json_u64(line, "port", &port);
    /* one name has many addresses, and is asked for before it is dialled */
    if (d->name || name)
        return str_eq(d->name, name) && (d->port == port || !d->port || !port);
    return d->port == port && str_eq(d->addr, json_str(line, "addr"));
}

static void denied_free(struct denied *d)
{
    char **const words[] = { &d->name, &d->addr, &d->proto, &d->rule, &d->why, &d->allow };
    for (size_t k = 0; k < ARRAY_LEN(words); k++)
        free_p(words[k]);
}

static struct denied *oldest(struct denied_list *l)
{
    struct denied *d = &l->v[0];
    for (size_t i = 1; i < l->n; i++)
        if (l->v[i].last_ms < d->last_ms)
            d = &l->v[i];
    return d;
}

const struct denied *denied_note(struct denied_list *l, const struct json *line)
{
    uint64_t now = clock_ms(CLOCK_BOOTTIME);
    struct denied *d;

    if (!str_eq(json_str(line, "verdict"), "deny"))
        return NULL;
    for (size_t i = 0; i < l->n; i++)
        if (same(&l->v[i], line)) {
            l->v[i].times++;
            l->v[i].last_ms = now;
            return NULL;
        }
    d = l->n < DENIED_MAX ? &l->v[l->n++] : oldest(l);
    denied_free(d);
    *d = (struct denied){
        .name = str_dup(json_str(line, "name")),
        .addr = str_dup(json_str(line, "addr")),
        .proto = str_dup(json_str(line, "proto")),
        .rule = str_dup(json_str(line, "rule")),
        .why = str_dup(json_str(line, "why")),
        .allow = str_dup(json_str(line, "allow")),
        .times = 1,
        .last_ms = now,
    };
    json_u64(line, "port", &d->port);
    return d;
}

/* A rule alone would mean the policy allowlist. */
char *denied_flags(const struct denied *d, const struct net_policy *p)
{
    if (!d->allow)
        return NULL;
    return p->mode == NET_ALLOWLIST
               ? str_printf("--allow-domain %s", d->allow)
               : str_printf("--network %s --allow-domain %s", net_mode_word(p->mode), d->allow);
}

void denied_json(struct jsonw *w, const struct denied *d, const struct net_policy *p,
                 const char *box)
{
    AUTOFREE char *flags = denied_flags(d, p);

    if (d->name)
        jw_str(w, "name", d->name);
    if (d->addr)
        jw_str(w, "addr", d->addr);
    if (d->port)
        jw_u64(w, "port", d->port);
    jw_str(w, "proto", d->proto);
    jw_str(w, "rule", d->rule);
    jw_str(w, "why", d->why);
    jw_u64(w, "times", d->times);
    if (d->allow && box)
        jw_strf(w, "allow", "petri net allow %s -s %s", d->allow, box);
    else if (d->allow)
        jw_strf(w, "allow", "petri net allow %s", d->allow);
    if (flags)
        jw_str(w, "flags", flags);
}

void denied_free_p(struct denied_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        denied_free(&l->v[i]);
    l->n = 0;
}
