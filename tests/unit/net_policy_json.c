/* A policy as JSON: reads back as the same; what is not exactly one is refused. */
#include "tests/unit/check.h"

#include "runtime/network/policy.h"

static void test_json(void)
{
    static const char want[] =
        "{\"mode\":\"allowlist\",\"allow\":[\"*.example.com:8443\",\"10.1.2.0/24\","
        "\"[fd00:1::/32]:443\",\"192.0.2.1\"],\"deny\":[\"bad.example.com\"],\"ports\":[443,22],"
        "\"rate\":18446744073709551615,\"bytes\":1,\"publish\":[{\"host\":\"127.0.0.1\","
        "\"host_port\":8080,\"port\":80},{\"host\":\"::1\",\"host_port\":1,\"port\":65535}],"
        "\"stop\":true}";
    AUTOJSON struct json *j = NULL;
    CLEANUP(net_policy_free_p) struct net_policy p = { 0 }, copy = { 0 };

    CHECK(json_parse(want, strlen(want), &j, NULL) == 0, "parse");
    CHECK(net_policy_from_json(j, &p, NULL) == 0, "read");
    CHECK(p.mode == NET_ALLOWLIST && p.allow.n == 4 && p.deny.n == 1 && p.n_ports == 2 && p.stop &&
              p.rate == UINT64_MAX && p.bytes == 1 && p.n_publish == 2,
          "members");
    CHECK(net_policy_copy(&p, &copy) == 0, "copy");
    net_policy_free_p(&p);
    AUTOJSONW struct jsonw w = { 0 }, empty = { 0 };
    net_policy_json(&w, NULL, &copy);
    CHECK_STR(w.out.p, want);

    struct net_policy none = { .mode = NET_LIMITED };
    net_policy_json(&empty, NULL, &none);
    CHECK_STR(empty.out.p, "{\"mode\":\"limited\",\"allow\":[],\"deny\":[],\"ports\":[],\"rate\":0,"
                           "\"bytes\":0,\"publish\":[],\"stop\":false}");
}

static const struct {
    const char *in, *says; /* NULL: right */
} objects[] = {
    { "{\"mode\":\"none\"}", NULL },
    { "{\"mode\":\"full\",\"ports\":[1],\"stop\":false}", NULL },
    { "[]", "not an object" },
    { "null", "not an object" },
    { "\"full\"", "not an object" },
    { "{}", "'mode' is missing" },
    { "{\"mode\":3}", "'mode' is missing" },
    { "{\"mode\":\"open\"}", "network policy: --network 'open'" },
    { "{\"mode\":\"full\",\"allow\":\"a.example\"}", "'allow' is not a list" },
    { "{\"mode\":\"full\",\"deny\":{}}", "'deny' is not a list" },
    { "{\"mode\":\"full\",\"deny\":null}", "'deny' is not a list" },
    { "{\"mode\":\"full\",\"deny\":[1]}", "'deny' holds" },
    { "{\"mode\":\"full\",\"deny\":[\"a.example\",\"b c\"]}", "network policy: deny 'b c'" },
    { "{\"mode\":\"full\",\"allow\":[\"10.0.0.1/8\"]}", "10.0.0.0/8" },
    { "{\"mode\":\"full\",\"ports\":[0]}", "'ports' holds" },
    { "{\"mode\":\"full\",\"ports\":[65536]}", "'ports' holds" },
    { "{\"mode\":\"full\",\"ports\":[\"80\"]}", "'ports' holds" },
    { "{\"mode\":\"full\",\"ports\":[8e1]}", "'ports' holds" },
    { "{\"mode\":\"full\",\"ports\":80}", "'ports' is not a list" },
    { "{\"mode\":\"full\",\"rate\":-1}", "'rate' is not a whole number" },
    { "{\"mode\":\"full\",\"rate\":\"1\"}", "'rate' is not a whole number" },
    { "{\"mode\":\"full\",\"bytes\":1.5}", "'bytes' is not a whole number" },
    { "{\"mode\":\"full\",\"bytes\":18446744073709551616}", "'bytes' is not a whole number" },
    { "{\"mode\":\"full\",\"stop\":1}", "'stop' is neither" },
    { "{\"mode\":\"full\",\"publish\":[1]}", "'publish' needs" },
    { "{\"mode\":\"full\",\"publish\":[{\"host\":\"x\",\"host_port\":1,\"port\":1}]}",
      "'publish' needs" },
    { "{\"mode\":\"full\",\"publish\":[{\"host\":\"::1\",\"port\":1}]}", "'publish' needs" },
    { "{\"mode\":\"full\",\"publish\":[{\"host\":\"::1\",\"host_port\":0,\"port\":1}]}",
      "'publish' needs" },
    { "{\"mode\":\"full\",\"only\":[]}", "'only' is not known" },
};

static void test_objects(void)
{
    for (size_t i = 0; i < ARRAY_LEN(objects); i++) {
        AUTOJSON struct json *j = NULL;
        CLEANUP(net_policy_free_p) struct net_policy p = { 0 };
        CLEANUP(err_free_p) struct err *e = NULL;
        CHECK(json_parse(objects[i].in, strlen(objects[i].in), &j, NULL) == 0, "%s", objects[i].in);
        int rc = net_policy_from_json(j, &p, &e);
        AUTOFREE char *text = e ? err_text(e) : NULL;
        CHECK(rc == (objects[i].says ? -ERR_INVALID : 0), "%s", objects[i].in);
        CHECK(!objects[i].says || (text && strstr(text, objects[i].says)), "%s: %s", objects[i].in,
              text ? text : "");
    }
    CHECK(net_policy_from_json(NULL, &(struct net_policy){ 0 }, NULL) < 0, "NULL");
}

int main(void)
{
    test_json();
    test_objects();
    return check_done();
}
