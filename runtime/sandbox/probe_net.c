/* runtime/sandbox/probe_net.c - the network of a sandbox: what its gateway needs of the kernel and of the
 * host, tried with the very code that makes it.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/network/agent.h"
#include "runtime/sandbox/probe.h"

static const char resolver[] = "/etc/resolv.conf";

/* The innermost message: who called is of no interest here. */
static void keep_reason(const struct err *e, int *ret, char *text, size_t size)
{
    while (e && e->cause)
        e = e->cause;
    *ret = e && e->sys ? e->sys : e ? (int)EOPNOTSUPP : 0;
    if (!e)
        return;
    snprintf(text, size, "%s%s%s", e->msg, e->sys ? ": " : "", e->sys ? strerror(e->sys) : "");
    text[strcspn(text, ";")] = '\0'; /* the remedy is ours to give */
}

/* Namespaces, cable, sockets, rules as for a sandbox; they go with this process. */
static void try_policy(enum net_mode mode, int *ret, char *text, size_t size)
{
    const struct net_policy p = { .mode = mode };
    CLEANUP(err_free_p) struct err *e = NULL;
    struct agent a;

    (void)agent_setup(&(struct agent_req){ .policy = &p, .feed = -1 }, &a, &e);
    keep_reason(e, ret, text, size);
}

void probe_try_net(struct probe_tries *t, const char *unused, const char *unused2)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWUSER) < 0 || probe_map_self(uid, gid))
        return;
    try_policy(NET_LIMITED, &t->net, t->net_why, sizeof t->net_why);
    if (!t->net)
        try_policy(NET_FULL, &t->net_full, t->full_why, sizeof t->full_why);
}

/* As the gateway reads it: root's gives up everything first. */
void probe_try_resolver(struct probe_tries *t, const char *unused, const char *unused2)
{
    enum { NOBODY = 65534 };
    AUTOFREE char *text = NULL;
    CLEANUP(err_free_p) struct err *e = NULL;

    if (!geteuid() && probe_all_ids() &&
        (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
         setresuid(NOBODY, NOBODY, NOBODY) < 0))
        t->resolver = errno;
    else if (fs_read(AT_FDCWD, resolver, 64 << 10, &text, NULL, &e) < 0)
        t->resolver = e->sys ? e->sys : EIO;
    else /* no server: the file is as good as none */
        t->resolver = strstr(text, "nameserver") ? 0 : ENODATA;
}

static char *names_value(const struct probe_tries *t)
{
    if (t->resolver == ENODATA)
        return str_printf("%s names no server", resolver);
    return str_printf("%s can't be read: %s", resolver,
                      t->resolver > 0 ? strerror(t->resolver) : "not tried");
}

static void names_line(struct probe_report *r, const struct probe_tries *t)
{
    static const char id[] = "names", title[] = "names for sandboxes";
    char *fix = NULL;

    if (!t->resolver) {
        probe_add(r, id, title, false, PROBE_OK, str_printf("by %s", resolver), NULL, NULL);
        return;
    }
    if (t->resolver == EACCES)
        fix = str_printf("sudo chmod a+r %s", resolver);
    else
        fix = str_printf("echo 'nameserver ADDRESS' | sudo tee -a %s", resolver);
    probe_add(r, id, title, false, PROBE_LIMITED, names_value(t),
              str_dup("sandboxes find the names of /etc/hosts only, unless the host has a proxy"),
              fix);
}

static char *net_fix(const struct probe_host *h, const struct probe_tries *t)
{
    if (t->net == ENOSPC || strstr(t->net_why, "max_net_namespaces") ||
        strstr(t->net_why, "network namespaces"))
        return str_dup("sudo sysctl -w user.max_net_namespaces=15000");
    if (strstr(t->net_why, "veth") && t->net == EOPNOTSUPP)
        return str_dup("sudo modprobe veth");
    return probe_container_fix(h, t);
}

void probe_network(struct probe_report *r, const struct probe_host *h, const struct probe_tries *t)
{
    static const char id[] = "network", title[] = "network policies";

    if (t->net == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, false, NULL);
    else if (t->net)
        probe_add(r, id, title, false, PROBE_LIMITED, str_dup(t->net_why),
                  str_dup("sandboxes start with --network none only"), net_fix(h, t));
    else if (t->net_full)
        probe_add(r, id, title, false, PROBE_LIMITED,
                  str_printf("none limited allowlist; not full: %s", t->full_why),
                  str_dup("sandboxes with --network full do not start"),
                  str_dup("sudo modprobe nft_tproxy"));
    else
        probe_add(r, id, title, false, PROBE_OK, str_dup("none limited allowlist full"), NULL,
                  NULL);
    names_line(r, t);
}
