/* Any bytes as the requests of a connection: fed whole and in pieces they give the same heads at the same places
 * and the same end; every head is one that can be judged. The first byte chooses the size of the pieces. */
#include <stdlib.h>
#include <string.h>

#include "runtime/gateway/http.h"
#include "runtime/network/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    size_t heads, passed, at; /* `at`: sum over the heads of where they start */
    enum http_bad bad;
    bool idle;
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_head(const struct http_head *h, const char *p, size_t n)
{
    char name[NET_NAME_SIZE];

    must(n <= HTTP_HEAD_MAX && n > 4 && memcmp(p + n - 4, "\r\n\r\n", 4) == 0);
    must(!memmem(p, n - 1, "\r\n\r\n", 4) && !memchr(p, '\0', n));
    must(h->method[0] && strncmp(p, h->method, strlen(h->method)) == 0);
    must(!(h->name[0] && h->literal) && (h->name[0] || h->literal || h->old));
    if (h->name[0])
        must(net_name(h->name, strlen(h->name), name) == 0 && strcmp(h->name, name) == 0);
    if (h->literal)
        must(h->addr.family == AF_INET || h->addr.family == AF_INET6);
}

static void feed(const char *p, size_t n, size_t step, bool unseen, struct seen *ret)
{
    size_t have = 0, used;
    struct http h;

    http_init(&h);
    for (;;) {
        size_t held = have - ret->passed;
        char *copy = malloc(held + !held);
        enum http_verdict v;

        if (held)
            memcpy(copy, p + ret->passed, held);
        v = http_next(&h, copy, held, &used);
        must(used <= held && (used > 0) == (v == HTTP_HEAD || v == HTTP_BODY));
        must(v != HTTP_MORE || held < HTTP_HEAD_MAX);
        must(v != HTTP_BAD || h.bad != HTTP_FINE);
        if (v == HTTP_HEAD) {
            check_head(&h.head, copy, used);
            ret->heads++;
            ret->at += ret->passed;
        }
        free(copy);
        ret->passed += used;
        if (unseen && ret->passed == have && http_through(&h) && have < n) {
            used = n - have < http_through(&h) ? n - have : (size_t)http_through(&h);
            http_passed(&h, used);
            ret->passed = have += used;
        }
        if (v == HTTP_BAD || (v == HTTP_MORE && have == n))
            break;
        if (v == HTTP_MORE)
            have = n - have < step ? n : have + step;
    }
    ret->bad = h.bad;
    ret->idle = http_idle(&h);
}

static bool same(const struct seen *a, const struct seen *b)
{
    return a->heads == b->heads && a->passed == b->passed && a->at == b->at && a->bad == b->bad &&
           a->idle == b->idle;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = { 0 }, pieces = { 0 }, unseen = { 0 };
    const char *p = (const char *)data + 1;
    size_t n = size - 1, step;

    if (size < 1)
        return 0;
    step = 1 + data[0] % 64 + n / 500;
    feed(p, n, n, false, &whole);
    feed(p, n, step, false, &pieces);
    feed(p, n, step, true, &unseen);
    must(same(&whole, &pieces) && same(&whole, &unseen));
    (void)http_why(whole.bad);
    (void)http_switched(p, n);
    return 0;
}
