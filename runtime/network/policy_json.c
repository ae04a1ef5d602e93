/* runtime/network/policy_json.c - a policy as JSON, both ways. */
#include <string.h>

#include "base/str.h"
#include "runtime/network/policy.h"

static void rules_json(struct jsonw *w, const char *key, const struct net_rules *l)
{
    jw_arr(w, key);
    for (size_t i = 0; i < l->n; i++)
        jw_str(w, NULL, l->v[i].text);
    jw_end_arr(w);
}

void net_policy_json(struct jsonw *w, const char *key, const struct net_policy *p)
{
    char host[INET6_ADDRSTRLEN];

    jw_obj(w, key);
    jw_str(w, "mode", net_mode_word(p->mode));
    rules_json(w, "allow", &p->allow);
    rules_json(w, "deny", &p->deny);
    jw_arr(w, "ports");
    for (size_t i = 0; i < p->n_ports; i++)
        jw_u64(w, NULL, p->ports[i]);
    jw_end_arr(w);
    jw_u64(w, "rate", p->rate);
    jw_u64(w, "bytes", p->bytes);
    jw_arr(w, "publish");
    for (size_t i = 0; i < p->n_publish; i++) {
        addr_text(&p->publish[i].host, host);
        jw_obj(w, NULL);
        jw_str(w, "host", host);
        jw_u64(w, "host_port", p->publish[i].host_port);
        jw_u64(w, "port", p->publish[i].port);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_bool(w, "stop", p->stop);
    jw_end_obj(w);
}

/* --- reading ---------------------------------------------------------------------------------- */
static int wrong(struct err **e, const char *member, const char *what)
{
    return err_new(e, ERR_INVALID, "network policy: '%s' %s", member, what);
}

static int read_list(const struct json *j, const char *key, const struct json **ret, struct err **e)
{
    static const struct json none = { .type = JSON_ARRAY };

    *ret = json_get(j, key);
    if (!*ret)
        *ret = &none;
    return (*ret)->type == JSON_ARRAY ? 0 : wrong(e, key, "is not a list");
}

static int read_rules(const struct json *j, const char *key, struct net_rules *ret, struct err **e)
{
    const struct json *l;
    int rc = read_list(j, key, &l, e);

    if (rc < 0)
        return rc;
    ret->v = mem_zalloc(l->n * sizeof *ret->v);
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i]->type != JSON_STRING)
            return wrong(e, key, "holds something other than text");
        rc = net_rule_parse(key, l->items[i]->string, &ret->v[ret->n], e);
        if (rc < 0)
            return err_wrap(e, "network policy");
        ret->n++;
    }
    return 0;
}

static bool port_value(const struct json *v, uint16_t *ret)
{
    uint64_t n;

    if (!v || v->type != JSON_NUMBER || parse_uint(v->string, 65535, &n, NULL) < 0 || !n)
        return false;
    *ret = (uint16_t)n;
    return true;
}

static int read_ports(const struct json *j, struct net_policy *p, struct err **e)
{
    const struct json *l;
    int rc = read_list(j, "ports", &l, e);

    if (rc < 0)
        return rc;
    p->ports = mem_zalloc(l->n * sizeof *p->ports);
    for (; p->n_ports < l->n; p->n_ports++)
        if (!port_value(l->items[p->n_ports], &p->ports[p->n_ports]))
            return wrong(e, "ports", "holds something other than numbers from 1 to 65535");
    return 0;
}

static int read_publish(const struct json *j, struct net_policy *p, struct err **e)
{
    const struct json *l;
    int rc = read_list(j, "publish", &l, e);

    if (rc < 0)
        return rc;
    p->publish = mem_zalloc(l->n * sizeof *p->publish);
    for (; p->n_publish < l->n; p->n_publish++) {
        const struct json *item = l->items[p->n_publish];
        struct net_publish *to = &p->publish[p->n_publish];
        const char *host = json_str(item, "host");
        if (!host || addr_parse(host, &to->host) < 0 ||
            !port_value(json_get(item, "host_port"), &to->host_port) ||
            !port_value(json_get(item, "port"), &to->port))
            return wrong(e, "publish", "needs an IP address as host, a host_port and a port");
    }
    return 0;
}

static int read_number(const struct json *j, const char *key, uint64_t *ret, struct err **e)
{
    if (json_get(j, key) && !json_u64(j, key, ret))
        return wrong(e, key, "is not a whole number");
    return 0;
}

/* A member that this program does not know may be a restriction: better no network than too much. */
static int known_members(const struct json *j, struct err **e)
{
    static const char *const known[] = { "mode", "allow", "deny",    "ports",
                                         "rate", "bytes", "publish", "stop" };

    for (size_t i = 0; i < j->n; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(known) && strcmp(known[k], j->keys[i]) != 0)
            k++;
        if (k == ARRAY_LEN(known)) {
            AUTOSTR struct str s = STR_INIT;
            size_t n = strlen(j->keys[i]);
            str_add_escaped(&s, j->keys[i], n > 40 ? 40 : n);
            return wrong(e, s.p ? s.p : "", "is not known to this version");
        }
    }
    return 0;
}

int net_policy_from_json(const struct json *j, struct net_policy *ret, struct err **e)
{
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
    const struct json *stop = json_get(j, "stop");
    const char *mode = json_str(j, "mode");
    int rc;

    if (!j || j->type != JSON_OBJECT)
        return err_new(e, ERR_INVALID, "network policy: not an object");
    if (!mode)
        return wrong(e, "mode", "is missing");
    if ((rc = known_members(j, e)) < 0)
        return rc;
    if (net_mode_parse(mode, &p.mode, e) < 0)
        return err_wrap(e, "network policy");
    if (stop && stop->type != JSON_BOOL)
        return wrong(e, "stop", "is neither true nor false");
    p.stop = stop && stop->boolean;
    if ((rc = read_rules(j, "allow", &p.allow, e)) < 0 ||
        (rc = read_rules(j, "deny", &p.deny, e)) < 0 || (rc = read_ports(j, &p, e)) < 0 ||
        (rc = read_number(j, "rate", &p.rate, e)) < 0 ||
        (rc = read_number(j, "bytes", &p.bytes, e)) < 0 || (rc = read_publish(j, &p, e)) < 0)
        return rc;
    *ret = p;
    p = (struct net_policy){ 0 };
    return 0;
}
