/* runtime/gateway/dns.h - one DNS question in, one answer out.
 *
 * Reads a packet that a sandbox sent to a name server (UDP, or the body of a TCP message without its
 * two bytes of length) and writes the packet that goes back. Strict: one question, no compression,
 * no records but EDNS; whatever else is there gets the error code that says so.
 * An answer never has more than 512 bytes, so none is ever cut short. Errors and empty answers carry
 * no SOA record: nobody caches them, and a name that is allowed later works at once.
 * Owns:  nothing; no allocation, no descriptor.
 * Uses:  runtime/network/policy.h for the canonical name.
 * Crash: nothing to leave behind.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DNS_ANSWER_MAX = 512, DNS_QUESTION_MAX = 255 + 4 };

enum dns_rcode {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BADVERS = 16, /* an EDNS version that is not 0 */
};
enum dns_type { DNS_A = 1, DNS_PTR = 12, DNS_AAAA = 28, DNS_SVCB = 64, DNS_HTTPS = 65 };

struct dns_query {
    uint16_t id, type;
    uint8_t opcode;
    bool recurse, check_off, edns;
    char name[256]; /* canonical; empty where dns_parse() did not return DNS_NOERROR */
    uint8_t question[DNS_QUESTION_MAX]; /* as asked, upper and lower case too */
    uint16_t question_len;              /* 0: there was none that could be read */
};

/* DNS_NOERROR: `ret` has a name and a type, and the caller answers. Another code (> 0): answer with
 * dns_answer() and that code. -1: this was no query (a response, or too short to have an id): say
 * nothing. A name that no host can have ("127.1", "a b.example", a dot inside of a label) is DNS_NXDOMAIN. */
int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret);

/* Each writes a packet to `out` and returns its length. */
/* No records. DNS_NOERROR: the name is there, a record of that type is not (AAAA, HTTPS, SVCB ...). */
size_t dns_answer(const struct dns_query *q, enum dns_rcode rcode, uint8_t out[DNS_ANSWER_MAX]);
/* One address, in the host's byte order. */
size_t dns_answer_a(const struct dns_query *q, uint32_t addr, uint32_t ttl,
                    uint8_t out[DNS_ANSWER_MAX]);
/* The name of an address; `name` is canonical. */
size_t dns_answer_ptr(const struct dns_query *q, const char *name, uint32_t ttl,
                      uint8_t out[DNS_ANSWER_MAX]);

/* "7.1.18.198.in-addr.arpa" (canonical): 198.18.1.7 in the host's byte order. False: another name. */
bool dns_reverse(const char *name, uint32_t *ret_addr);
