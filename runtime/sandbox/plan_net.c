/* runtime/sandbox/plan_net.c - the network policy of a plan, from the words of its flags. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/sandbox/net_rules.h"
#include "runtime/sandbox/plan_parts.h"

static int take_rules(const char *flag, const struct strv *words, struct net_rules *ret,
                      struct err **e)
{
    for (size_t i = 0; i < words->n; i++) {
        struct net_rule r = { 0 };
        int rc = net_rule_parse(flag, words->v[i], &r, e);
        if (rc < 0)
            return rc;
        (void)net_rules_add(ret, &r);
    }
    return 0;
}

static int take_ports(const struct options *o, struct net_policy *n, struct err **e)
{
    int rc = 0;

    n->ports = mem_zalloc((o->net_ports.n + 1) * sizeof *n->ports);
    for (size_t i = 0; i < o->net_ports.n && rc == 0; i++)
        rc = net_port_parse("--net-port", o->net_ports.v[i], &n->ports[n->n_ports++], e);
    n->publish = mem_zalloc((o->publish.n + 1) * sizeof *n->publish);
    for (size_t i = 0; i < o->publish.n && rc == 0; i++)
        rc = net_publish_parse(o->publish.v[i], &n->publish[n->n_publish++], e);
    return rc;
}

static int take_limits(const struct options *o, struct net_policy *n, struct err **e)
{
    int rc;

    if (o->net_rate && (rc = net_rate_parse("--net-rate", o->net_rate, &n->rate, e)) < 0)
        return rc;
    if (o->net_bytes && strcmp(o->net_bytes, "none") != 0) {
        if ((rc = parse_size(o->net_bytes, &n->bytes, e)) < 0)
            return err_wrap(e, "--net-bytes");
        if (!n->bytes) /* which would count as no limit */
            return err_new(e, ERR_INVALID,
                           "--net-bytes '%s': nothing would ever pass; write 'none' for no limit",
                           o->net_bytes);
    }
    if (!o->on_net_failure || strcmp(o->on_net_failure, "restart") == 0)
        return 0;
    n->stop = true;
    return strcmp(o->on_net_failure, "stop") == 0
               ? 0
               : err_new(e, ERR_INVALID, "--on-net-failure '%s': restart or stop",
                         o->on_net_failure);
}

int net_policy_make(const struct options *o, struct net_policy *ret, struct err **e)
{
    /* whoever names what may be reached means: nothing else */
    const char *word = o->network ? o->network : o->allow_domains.n ? "allowlist" : "limited";
    int rc;

    if ((rc = net_mode_parse(word, &ret->mode, e)) < 0 ||
        (rc = take_rules("--allow-domain", &o->allow_domains, &ret->allow, e)) < 0 ||
        (rc = take_rules("--deny-domain", &o->deny_domains, &ret->deny, e)) < 0 ||
        (rc = take_ports(o, ret, e)) < 0 || (rc = take_limits(o, ret, e)) < 0)
        return rc;
    if (ret->mode == NET_NONE && (ret->allow.n || ret->n_ports))
        return err_new(
            e, ERR_INVALID,
            "--network none reaches nothing: leave out --allow-domain and --net-port, or "
            "choose limited, allowlist or full");
    return net_policy_check(ret, e);
}

int plan_network(const struct options *o, struct plan *p, struct plan_holds *holds, struct err **e)
{
    holds->net = mem_zalloc(sizeof *holds->net);
    p->net = holds->net;
    return net_policy_make(o, holds->net, e);
}

/* What a resolver inside reads: its questions end at the gateway, whatever address they are sent to. */
int plan_resolver(const struct paths *paths, struct plan *p, struct err **e)
{
    static const char text[] = "nameserver 198.18.0.1\n";
    AUTOFREE char *path = path_join(paths->data, "resolv.conf");
    int rc;

    if (p->net->mode == NET_NONE)
        return 0;
    if (!fs_exists(path) &&
        (rc = fs_write_atomic(AT_FDCWD, path, text, sizeof text - 1, 0644, e)) < 0)
        return rc;
    plan_mounts_add(&p->mounts, MOUNT_BIND, path, "/etc/resolv.conf", true);
    return 0;
}
