/* Any bytes as a DNS query: no crash; what is a name is canonical, what is answered fits and repeats the question. */
#include <stdlib.h>
#include <string.h>

#include "runtime/gateway/dns.h"
#include "runtime/network/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_answer(const struct dns_query *q, const uint8_t *p, size_t n)
{
    struct dns_query again;

    must(n >= 12 + (size_t)q->question_len && n <= DNS_ANSWER_MAX);
    must((p[0] << 8 | p[1]) == q->id && (p[2] & 0x80) && p[5] == (q->question_len > 0));
    must(memcmp(p + 12, q->question, q->question_len) == 0);
    must(dns_parse(p, n, &again) == -1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t out[DNS_ANSWER_MAX];
    char name[NET_NAME_SIZE];
    struct dns_query q;
    uint32_t addr;
    int rc = dns_parse(data, size, &q);

    must(rc >= -1 && rc <= DNS_BADVERS);
    must((rc == DNS_NOERROR) == (q.name[0] != '\0'));
    if (rc < 0)
        return 0;
    check_answer(&q, out, dns_answer(&q, (enum dns_rcode)rc, out));
    must((out[3] & 15) == (rc & 15));
    if (rc != DNS_NOERROR)
        return 0;
    must(net_name(q.name, strlen(q.name), name) == 0 && strcmp(q.name, name) == 0);
    (void)dns_reverse(q.name, &addr);
    check_answer(&q, out, dns_answer_a(&q, 0xc6120100, 60, out));
    check_answer(&q, out, dns_answer_ptr(&q, q.name, 60, out));
    return 0;
}
