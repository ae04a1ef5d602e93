#include "runtime/gateway/packets.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "runtime/gateway/fakeip.h"
#include "runtime/gateway/recent.h"

enum { BATCH = 64 };

struct packets {
    struct recent said;
};

int packets_new(struct gw *gw, struct err **e)
{
    gw->packets = mem_zalloc(sizeof(*gw->packets));
    return 0;
}

void packets_free(struct gw *gw)
{
    free_p(&gw->packets);
}

/* A name is borrowed from fakeip. */
static struct net_verdict judge(struct gw *gw, const struct net_addr *a, const char *name,
                                uint16_t port, bool udp)
{
    if (udp && gw->policy.mode != NET_FULL && gw->policy.mode != NET_NONE)
        return (struct net_verdict){ .rule = net_mode_word(gw->policy.mode),
                                     .why = "UDP is not open" };
    if (name)
        return net_judge_name(&gw->policy, name, port);
    return net_judge_addr(&gw->policy, a, false, port, false);
}

void packets_take(struct gw *gw, const uint8_t *p, size_t n)
{
    size_t head = n >= 20 ? (size_t)(p[0] & 15) * 4 : 0;
    if (n < 20 || p[0] >> 4 != 4 || head < 20 || n < head + 4)
        return;
    bool udp = p[9] == IPPROTO_UDP;
    if ((!udp && p[9] != IPPROTO_TCP) || (((p[6] & 31) << 8) | p[7]))
        return; /* not the first piece: no ports in it */
    struct net_addr a = addr_make(AF_INET, p + 16);
    uint32_t host = (uint32_t)p[16] << 24 | (uint32_t)p[17] << 16 | (uint32_t)p[18] << 8 | p[19];
    uint16_t port = (uint16_t)(p[head + 2] << 8 | p[head + 3]);
    const char *name = fakeip_name(gw->names, host);
    struct net_verdict v = judge(gw, &a, name, port, udp);
    if (v.allow)
        return; /* the policy changed while it was under way */
    uint8_t key[7] = { p[9], p[16], p[17], p[18], p[19], (uint8_t)(port >> 8), (uint8_t)port };
    if (recent_said(&gw->packets->said, recent_hash(key, sizeof(key)), loop_now(gw->loop))) {
        gw->counts.denied++;
        return;
    }
    struct gw_line l = { .proto = udp ? "udp" : "tcp", .name = name, .port = port, .rule = v.rule };
    l.addr = name ? NULL : &a;
    l.why = v.why;
    l.hint = udp || (!name && fakeip_range(host)) ? GW_HINT_NONE
             : name                               ? GW_HINT_NAME
                                                  : GW_HINT_ADDR;
    gw_log(gw, &l);
}

void packets_read(struct gw *gw, int fd)
{
    uint8_t buf[256];
    for (int i = 0; i < BATCH; i++) {
        ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n < 0)
            return;
        packets_take(gw, buf, (size_t)n);
    }
}
