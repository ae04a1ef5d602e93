/* Any bytes as a name, a rule, a published port, a rate, a policy in JSON: no crash, what is taken reads back as
 * itself, and no rule but a range within what is not public opens any of that. */
#include <stdlib.h>
#include <string.h>

#include "runtime/network/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_line(struct err *e)
{
    AUTOFREE char *text = NULL;

    must(e != NULL);
    text = err_text(e);
    for (const char *p = text; *p; p++)
        must((unsigned char)*p >= ' ' && *p != 0x7f);
    err_free(e);
}

static void check_name(const char *p, size_t n)
{
    char name[NET_NAME_SIZE], again[NET_NAME_SIZE];
    struct net_policy full = { .mode = NET_FULL };
    struct net_addr a;

    if (net_name(p, n, name) < 0)
        return;
    must(strlen(name) <= 253 && strlen(name) + 1 >= n);
    must(name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")] == '\0');
    must(net_name(name, strlen(name), again) == 0 && strcmp(name, again) == 0);
    must(addr_parse(name, &a) < 0);
    must(net_judge_name(&full, name, 80).allow);
}

/* Private, loopback, metadata and the host itself, under one allow rule. */
static void check_closed(const struct net_policy *p, const struct net_rule *r)
{
    static const char *const inside[] = { "10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.1.1",
                                          "::1",      "fd00::1",   "64:ff9b::a00:1" };
    bool meant = !r->name && range_class(&r->range) != ADDR_PUBLIC;
    struct net_addr a;

    for (size_t i = 0; i < ARRAY_LEN(inside); i++) {
        must(addr_parse(inside[i], &a) == 0);
        must(!net_judge_addr(p, &a, false, 80, true).allow ||
             (meant && range_holds(&r->range, &a)));
    }
    must(addr_parse("198.51.100.1", &a) == 0);
    must(!net_judge_addr(p, &a, true, 80, true).allow ||
         (!r->name && r->range.bits == 32 && addr_eq(&r->range.addr, &a)));
}

static void check_rule(const char *text)
{
    CLEANUP(net_rule_free_p) struct net_rule r = { 0 }, again = { 0 };
    struct err *e = NULL;
    uint16_t port;

    if (net_rule_parse("--allow-domain", text, &r, &e) < 0) {
        check_line(e);
        return;
    }
    must(net_rule_parse("--allow-domain", r.text, &again, NULL) == 0);
    must(strcmp(r.text, again.text) == 0 && r.port == again.port && r.below == again.below);
    must(str_eq(r.name, again.name));
    must(r.name || (addr_eq(&r.range.addr, &again.range.addr) && r.range.bits == again.range.bits));
    port = r.port ? r.port : 80;

    struct net_policy p = { .mode = NET_ALLOWLIST, .allow = { &r, 1 } };
    check_closed(&p, &r);
    if (r.name) {
        AUTOFREE char *name = str_printf("%s%s", r.below ? "a." : "", r.name);
        must(net_judge_name(&p, name, port).allow == (strlen(name) <= 253));
        must(!net_judge_name(&p, "other.example", port).allow || strcmp(r.name, "example") == 0 ||
             strcmp(r.name, "other.example") == 0);
    } else {
        enum net_class c = addr_class(&r.range.addr);
        bool exact = r.range.bits == addr_bits(&r.range.addr);
        bool meant = c == ADDR_METADATA ? exact : c == ADDR_PUBLIC || range_class(&r.range);
        must(net_judge_addr(&p, &r.range.addr, false, port, false).allow ==
             (meant && !addr_unspecified(&r.range.addr)));
    }
    p = (struct net_policy){ .mode = NET_FULL, .deny = { &r, 1 } };
    must(r.name ? net_needs_names(&p)
                : !net_judge_addr(&p, &r.range.addr, false, port, true).allow);
}

static void check_words(const char *text)
{
    struct net_publish pub;
    struct err *e = NULL;
    enum net_mode mode;
    uint64_t rate;
    uint16_t port;

    if (net_publish_parse(text, &pub, &e) == 0)
        must(pub.port && pub.host_port &&
             (pub.host.family == AF_INET || pub.host.family == AF_INET6));
    else
        check_line(e);
    e = NULL;
    if (net_rate_parse("--rate", text, &rate, &e) < 0)
        check_line(e);
    e = NULL;
    if (net_port_parse("--port", text, &port, &e) == 0)
        must(port != 0);
    else
        check_line(e);
    e = NULL;
    if (net_mode_parse(text, &mode, &e) == 0)
        must(strcmp(net_mode_word(mode), text) == 0);
    else
        check_line(e);
}

static void check_json(const char *text, size_t n)
{
    AUTOJSON struct json *j = NULL, *j2 = NULL;
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 }, again = { 0 }, copy = { 0 };
    AUTOJSONW struct jsonw w = { 0 }, w2 = { 0 };
    AUTOFREE uint16_t *ports = NULL;
    struct err *e = NULL;

    if (json_parse(text, n, &j, NULL) < 0)
        return;
    if (net_policy_from_json(j, &p, &e) < 0) {
        check_line(e);
        return;
    }
    must(net_policy_copy(&p, &copy) == 0);
    net_policy_json(&w, NULL, &copy);
    must(json_parse(w.out.p, w.out.len, &j2, NULL) == 0);
    must(net_policy_from_json(j2, &again, NULL) == 0);
    net_policy_json(&w2, NULL, &again);
    must(strcmp(w.out.p, w2.out.p) == 0);
    must(net_ports(&p, &ports) <= NET_MAX_PORTS);
    if (net_policy_check(&p, &e) < 0)
        check_line(e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTOFREE char *text = mem_zalloc(size + 1);

    memcpy(text, data, size);
    check_name(text, size);
    check_rule(text);
    check_words(text);
    check_json(text, size);
    return 0;
}
