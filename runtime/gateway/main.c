/* runtime/gateway/main.c - petri-gateway: the one way out of a sandbox.
 *
 * Started by the keeper with /dev/null as 0, 1 and 2, and its end of the control socket as 3. It has nothing of its
 * own: what it may do, whom it serves and what it serves with come through that socket, and when that
 * ends it ends.
 */
#include <signal.h>
#include <string.h>
#include <sys/random.h>

#include "base/str.h"
#include "runtime/gateway/conn.h"
#include "runtime/gateway/control.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/hostaddr.h"
#include "runtime/gateway/limits.h"
#include "runtime/gateway/packets.h"
#include "runtime/gateway/proxy.h"
#include "runtime/gateway/publish.h"
#include "runtime/gateway/relay.h"
#include "runtime/gateway/resolve.h"
#include "runtime/gateway/serve_dns.h"
#include "runtime/gateway/udp.h"
#include "runtime/gateway/wall.h"
#include "runtime/gateway/walls.h"

enum { CONTROL_FD = 3 };

static const struct part {
    int (*make)(struct gw *, struct err **);
    void (*end)(struct gw *);
} parts[] = {
    { limits_new, limits_free },   { hostaddr_new, hostaddr_free },
    { proxy_new, proxy_free },     { resolve_new, resolve_free },
    { conns_new, conns_free },     { serve_dns_new, serve_dns_free },
    { packets_new, packets_free }, { udp_new, udp_free },
    { publish_new, publish_free }, { walls_new, walls_free },
};

/* Nothing more passes; whoever comes from now on is refused. */
static void on_spent(struct gw *gw)
{
    struct gw_line l = { .proto = "tcp", .rule = "bytes", .why = "byte limit reached" };
    gw_log(gw, &l);
    conns_drop(gw);
    publish_drop(gw);
}

static int make(struct gw *gw, struct err **e)
{
    uint8_t key[16];
    if (getrandom(key, sizeof(key), 0) != sizeof(key))
        return err_sys(e, "read random bytes");
    gw->names = fakeip_new(key);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].make(gw, e) < 0)
            return -ERR_FAILED;
    limits_on_spent(gw, on_spent);
    return wall_harden(e);
}

int main(void)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    struct gw gw = { 0 };

    signal(SIGPIPE, SIG_IGN);
    wall_open_files();
    if (loop_new(&gw.loop, &e) < 0 || control_new(&gw, CONTROL_FD, &e) < 0)
        return 1;
    if (make(&gw, &e) < 0 || loop_run(gw.loop, false, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        gw_fail(&gw, "%s", text);
    }
    for (size_t i = ARRAY_LEN(parts); i > 0; i--)
        parts[i - 1].end(&gw);
    relay_pool_free();
    gw.names = fakeip_free(gw.names);
    net_policy_free_p(&gw.policy);
    control_free(&gw);
    gw.loop = loop_free(gw.loop);
    return 0;
}
