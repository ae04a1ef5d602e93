#include "runtime/network/policy.h"

#include <string.h>

#include "base/str.h"

enum { PORT_DNS = 53 };

void net_rule_free_p(struct net_rule *r)
{
    free(r->text);
    free(r->name);
    *r = (struct net_rule){ 0 };
}

static void rules_free(struct net_rules *l)
{
    for (size_t i = 0; i < l->n; i++)
        net_rule_free_p(&l->v[i]);
    free(l->v);
    *l = (struct net_rules){ 0 };
}

void net_policy_free_p(struct net_policy *p)
{
    rules_free(&p->allow);
    rules_free(&p->deny);
    free(p->ports);
    free(p->publish);
    *p = (struct net_policy){ 0 };
}

bool net_rules_add(struct net_rules *l, struct net_rule *take)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->v[i].text, take->text) == 0) {
            net_rule_free_p(take);
            return false;
        }
    }
    l->v = reallocarray(l->v, l->n + 1, sizeof *l->v);
    if (!l->v)
        abort();
    l->v[l->n++] = *take;
    *take = (struct net_rule){ 0 };
    return true;
}

static void rules_copy(const struct net_rules *from, struct net_rules *to)
{
    *to = (struct net_rules){ mem_dup(from->v, from->n * sizeof *from->v), from->n };
    for (size_t i = 0; i < from->n; i++) {
        to->v[i].text = str_dup(from->v[i].text);
        to->v[i].name = str_dup(from->v[i].name);
    }
}

int net_policy_copy(const struct net_policy *p, struct net_policy *ret)
{
    *ret = *p;
    rules_copy(&p->allow, &ret->allow);
    rules_copy(&p->deny, &ret->deny);
    ret->ports = mem_dup(p->ports, p->n_ports * sizeof *p->ports);
    ret->publish = mem_dup(p->publish, p->n_publish * sizeof *p->publish);
    return 0;
}

/* --- ports ------------------------------------------------------------------------------------ */
static size_t own_ports(const struct net_policy *p, const uint16_t **ret)
{
    static const uint16_t usual[] = { 80, 443 };

    *ret = p->n_ports ? p->ports : usual;
    return p->n_ports ? p->n_ports : ARRAY_LEN(usual);
}

bool net_own_port(const struct net_policy *p, uint16_t port)
{
    const uint16_t *v;
    size_t n = own_ports(p, &v);

    for (size_t i = 0; i < n; i++)
        if (v[i] == port)
            return true;
    return false;
}

static int compare_ports(const void *a, const void *b)
{
    return *(const uint16_t *)a - *(const uint16_t *)b;
}

/* Every port once, sorted, however many. */
static size_t all_ports(const struct net_policy *p, uint16_t **ret)
{
    const uint16_t *own;
    size_t n = own_ports(p, &own), used = 0;
    uint16_t *v = mem_zalloc((n + p->allow.n) * sizeof *v);

    memcpy(v, own, n * sizeof *v);
    for (size_t i = 0; i < p->allow.n; i++)
        if (p->allow.v[i].port)
            v[n++] = p->allow.v[i].port;
    qsort(v, n, sizeof *v, compare_ports);
    for (size_t i = 0; i < n; i++)
        if (v[i] != PORT_DNS && (!used || v[used - 1] != v[i]))
            v[used++] = v[i];
    *ret = v;
    return used;
}

size_t net_ports(const struct net_policy *p, uint16_t **ret)
{
    size_t n;

    if (p->mode == NET_NONE) {
        *ret = NULL;
        return 0;
    }
    n = all_ports(p, ret);
    return n > NET_MAX_PORTS ? NET_MAX_PORTS : n;
}

bool net_listens(const struct net_policy *p, uint16_t port)
{
    AUTOFREE uint16_t *v = NULL;

    if (p->mode == NET_FULL)
        return true;
    size_t n = net_ports(p, &v);
    return n && bsearch(&port, v, n, sizeof *v, compare_ports);
}

/* --- the whole -------------------------------------------------------------------------------- */
static int check_ports(const struct net_policy *p, struct err **e)
{
    AUTOFREE uint16_t *v = NULL;

    if (p->mode != NET_LIMITED && p->mode != NET_ALLOWLIST)
        return 0;
    for (size_t i = 0; i < p->allow.n; i++)
        if (p->allow.v[i].port == PORT_DNS)
            return err_new(e, ERR_INVALID,
                           "'%s': port 53 always leads to the gateway's own resolver; other name "
                           "servers need --network full",
                           p->allow.v[i].text);
    for (size_t i = 0; i < p->n_ports; i++)
        if (p->ports[i] == PORT_DNS)
            return err_new(e, ERR_INVALID,
                           "port 53 always leads to the gateway's own resolver; other name servers "
                           "need --network full");
    if (all_ports(p, &v) > NET_MAX_PORTS)
        return err_new(
            e, ERR_LIMIT,
            "the network policy names more than %d ports; name fewer, or use --network full",
            NET_MAX_PORTS);
    return 0;
}

static int check_publish(const struct net_policy *p, struct err **e)
{
    char host[INET6_ADDRSTRLEN];

    for (size_t i = 0; i < p->n_publish; i++) {
        for (size_t k = 0; k < i; k++) {
            const struct net_publish *a = &p->publish[i], *b = &p->publish[k];
            if (a->host_port != b->host_port || !addr_eq(&a->host, &b->host))
                continue;
            addr_text(&a->host, host);
            return err_new(
                e, ERR_INVALID,
                "-p: port %u of %s is published twice; give each its own port of the host",
                a->host_port, host);
        }
    }
    return 0;
}

int net_policy_check(const struct net_policy *p, struct err **e)
{
    AUTOJSONW struct jsonw w = { 0 };
    int rc = check_ports(p, e);

    if (rc < 0 || (rc = check_publish(p, e)) < 0)
        return rc;
    net_policy_json(&w, NULL, p);
    if (w.out.len > NET_MAX_JSON)
        return err_new(
            e, ERR_LIMIT,
            "the network policy has too many rules (%zu allow, %zu deny); use *.NAME and "
            "ranges to say it in fewer",
            p->allow.n, p->deny.n);
    return 0;
}
