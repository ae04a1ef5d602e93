/* Datagrams under the policy `full`: flows, refusals, names, in a world of the test's own. */
#include "runtime/gateway/udp.h"

#include <netinet/ip.h>

#include "runtime/gateway/fakeip.h"
#include "tests/unit/net_outside.h"

static int wire_addr(int nl, uint32_t addr)
{
    struct nl_batch b = { .len = 0 };
    const char *what;
    struct ifaddrmsg a = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = 1 };
    nl_msg(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK, &a, sizeof a, "address");
    nl_be32(&b, IFA_LOCAL, addr);
    return nl_send(nl, &b, &what);
}

/* As behind TPROXY: a namespace where the addresses in question are local. */
static bool wire_make(uint32_t fake, int *ret_client)
{
    AUTOCLOSE int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (unshare(CLONE_NEWNET) < 0)
        return false;
    AUTOCLOSE int nl = nl_open(NETLINK_ROUTE);
    int feed = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int raw = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_RAW);
    struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(7) };
    bool ok = veth_loopback(nl, NULL) == 0 && wire_addr(nl, 0xcb007102) == 0 &&
              wire_addr(nl, 0x0a090909) == 0 && wire_addr(nl, fake) == 0 &&
              bind(feed, (void *)&any, sizeof any) == 0 &&
              setsockopt(feed, SOL_IP, IP_RECVORIGDSTADDR, &(int){ 1 }, sizeof(int)) == 0;
    *ret_client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    any.sin_port = htons(5007);
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ok = ok && bind(*ret_client, (void *)&any, sizeof any) == 0 && setns(home, CLONE_NEWNET) == 0;
    udp_attach(&gw, feed, raw);
    return ok;
}

/* What the client gets: the errno, or 0 and the text. */
static int datagram(int client, uint32_t to, const char *text, char ret[32])
{
    struct sockaddr_in sa = { .sin_family = AF_INET,
                              .sin_port = htons(7),
                              .sin_addr.s_addr = htonl(to) };
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + 10000;
    ssize_t n = -1;
    if (connect(client, (void *)&sa, sizeof sa) < 0 || send(client, text, strlen(text), 0) < 0)
        return errno;
    while (clock_ms(CLOCK_MONOTONIC) < end) {
        tick(20);
        n = recv(client, ret, 31, 0);
        if (n >= 0 || errno != EAGAIN)
            break;
    }
    ret[n > 0 ? n : 0] = '\0';
    int error = n < 0 ? errno : 0;
    connect(client, &none, sizeof none);
    return error;
}

static void test_udp(void)
{
    uint8_t key[16] = { 1 };
    char text[32];
    int client = -1;
    gw.names = fakeip_new(key);
    uint32_t fake = fakeip_addr(gw.names, "ok.test");
    policy(NET_FULL, NULL, NULL);
    if (!wire_make(fake, &client)) {
        CHECK(false, "no wire: %s", strerror(errno));
        return;
    }
    uint64_t denied = gw.counts.denied;
    CHECK(datagram(client, 0xcb007102, "one", text) == 0, "%s", strerror(errno));
    CHECK_STR(text, "one");
    CHECK(datagram(client, fake, "two", text) == 0, "%s", strerror(errno));
    CHECK_STR(text, "two");
    CHECK(gw.counts.denied == denied, "denied");
    for (int i = 0; i < 3; i++)
        CHECK(datagram(client, 0x0a090909, "no", text) == ECONNREFUSED, "a private address");
    CHECK(gw.counts.denied == denied + 1, "%d lines for one flow",
          (int)(gw.counts.denied - denied));
    /* another policy */
    uint64_t allowed = gw.counts.allowed;
    policy(NET_FULL, NULL, "ok.test");
    udp_policy(&gw);
    CHECK(gw.counts.allowed == allowed + 1, "one flow ended, with a line");
    CHECK(datagram(client, fake, "no", text) == ECONNREFUSED, "a name that is denied");
    CHECK(datagram(client, 0xcb007102, "four", text) == 0, "%s", strerror(errno));
    CHECK_STR(text, "four");
    policy(NET_FULL, "10.9.9.9", NULL);
    udp_policy(&gw);
    CHECK(datagram(client, 0x0a090909, "five", text) == ECONNREFUSED, "nobody answers there");
    udp_free(&gw);
    close(client);
    gw.names = fakeip_free(gw.names);
}

int main(void)
{
    int rc = outside_begin();
    if (rc)
        return rc;
    test_udp();
    return outside_end();
}
