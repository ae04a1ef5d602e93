#include "runtime/gateway/dns.h"

#include <string.h>

#include "runtime/network/policy.h"

enum {
    HEADER = 12,
    TYPE_OPT = 41,
    CLASS_IN = 1,
    NAME_MAX_WIRE = 255,
    UDP_SIZE = 1232, /* what we say we take; questions never come near */
};

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

/* Length of a name on the wire, 0 where it does not end within n bytes or is too long. A pointer ends
 * a name where `pointers` are allowed; nobody follows it. */
static size_t name_length(const uint8_t *p, size_t n, bool pointers)
{
    for (size_t at = 0; at < n && at < NAME_MAX_WIRE; at += p[at] + 1u) {
        if (p[at] == 0)
            return at + 1;
        if (pointers && p[at] >= 0xc0)
            return at + 2 <= n ? at + 2 : 0;
        if (p[at] > 63)
            return 0;
    }
    return 0;
}

/* The name of a question as text; false: nobody's name. A dot within a label must not become one between two. */
static bool name_text(const uint8_t *p, char ret[256])
{
    char text[NAME_MAX_WIRE];
    size_t len = 0;

    for (; *p; p += *p + 1) {
        if (memchr(p + 1, '.', *p))
            return false;
        if (len)
            text[len++] = '.';
        memcpy(text + len, p + 1, *p);
        len += *p;
    }
    return net_name(text, len, ret) == 0;
}

/* The records behind the question: EDNS once, others are passed over. */
static int read_additional(const uint8_t *p, size_t n, unsigned count, struct dns_query *q)
{
    int rc = DNS_NOERROR;

    for (; count; count--) {
        size_t name = name_length(p, n, true), len;

        if (!name || n - name < 10)
            return DNS_FORMERR;
        len = name + 10 + get16(p + name + 8);
        if (len > n)
            return DNS_FORMERR;
        if (get16(p + name) == TYPE_OPT) {
            if (name != 1 || q->edns)
                return DNS_FORMERR;
            q->edns = true;
            if (p[name + 5] != 0)
                rc = DNS_BADVERS;
        }
        p += len;
        n -= len;
    }
    return n ? DNS_FORMERR : rc;
}

int dns_parse(const uint8_t *p, size_t n, struct dns_query *ret)
{
    size_t name;
    int rc;

    *ret = (struct dns_query){ 0 };
    if (n < HEADER || (p[2] & 0x80))
        return -1;
    ret->id = get16(p);
    ret->opcode = p[2] >> 3 & 15;
    ret->recurse = p[2] & 1;
    ret->check_off = p[3] & 0x10;
    if (ret->opcode != 0)
        return DNS_NOTIMP;
    if ((p[2] & 0x02) || get16(p + 4) != 1 || get16(p + 6) || get16(p + 8))
        return DNS_FORMERR;
    name = name_length(p + HEADER, n - HEADER, false);
    if (!name || n - HEADER - name < 4)
        return DNS_FORMERR;
    ret->question_len = (uint16_t)(name + 4);
    memcpy(ret->question, p + HEADER, ret->question_len);
    ret->type = get16(ret->question + name);
    rc = read_additional(p + HEADER + ret->question_len, n - HEADER - ret->question_len,
                         get16(p + 10), ret);
    if (rc)
        return rc;
    if (get16(ret->question + name + 2) != CLASS_IN || name == 1)
        return DNS_REFUSED; /* another class, or the root: nothing here to tell about them */
    if (!name_text(ret->question, ret->name)) {
        ret->name[0] = '\0';
        return DNS_NXDOMAIN;
    }
    return DNS_NOERROR;
}

/* A packet that grows; `full` once something did not fit. */
struct packet {
    uint8_t *p;
    size_t n;
    bool full;
};

static void put(struct packet *w, const void *p, size_t n)
{
    if (w->full || n > DNS_ANSWER_MAX - w->n) {
        w->full = true;
        return;
    }
    memcpy(w->p + w->n, p, n);
    w->n += n;
}

static void put16(struct packet *w, unsigned v)
{
    put(w, (uint8_t[]){ (uint8_t)(v >> 8), (uint8_t)v }, 2);
}

static void put32(struct packet *w, uint32_t v)
{
    put16(w, v >> 16);
    put16(w, v & 0xffff);
}

static void put_head(struct packet *w, const struct dns_query *q, unsigned rcode, unsigned answers)
{
    put16(w, q->id);
    put16(w, 0x8080u | (unsigned)q->opcode << 11 | (unsigned)q->recurse << 8 |
                 (unsigned)q->check_off << 4 | (rcode & 15));
    put16(w, q->question_len != 0);
    put16(w, answers);
    put16(w, 0);
    put16(w, q->edns);
    put(w, q->question, q->question_len);
}

/* The owner of a record is the name asked for, as a pointer to it. */
static void put_record(struct packet *w, unsigned type, uint32_t ttl, unsigned len)
{
    put16(w, 0xc000 | HEADER);
    put16(w, type);
    put16(w, CLASS_IN);
    put32(w, ttl);
    put16(w, len);
}

static size_t finish(struct packet *w, const struct dns_query *q, unsigned rcode)
{
    if (q->edns) {
        put(w, "", 1);
        put16(w, TYPE_OPT);
        put16(w, UDP_SIZE);
        put32(w, (rcode >> 4) << 24);
        put16(w, 0);
    }
    return w->full ? dns_answer(q, DNS_SERVFAIL, w->p) : w->n;
}

size_t dns_answer(const struct dns_query *q, enum dns_rcode rcode, uint8_t out[DNS_ANSWER_MAX])
{
    struct packet w = { .p = out };

    put_head(&w, q, rcode, 0);
    return finish(&w, q, rcode); /* always fits: a question is at most half of it */
}

size_t dns_answer_a(const struct dns_query *q, uint32_t addr, uint32_t ttl,
                    uint8_t out[DNS_ANSWER_MAX])
{
    struct packet w = { .p = out };

    put_head(&w, q, DNS_NOERROR, 1);
    put_record(&w, DNS_A, ttl, 4);
    put32(&w, addr);
    return finish(&w, q, DNS_NOERROR);
}

size_t dns_answer_ptr(const struct dns_query *q, const char *name, uint32_t ttl,
                      uint8_t out[DNS_ANSWER_MAX])
{
    struct packet w = { .p = out };

    put_head(&w, q, DNS_NOERROR, 1);
    put_record(&w, DNS_PTR, ttl, (unsigned)strlen(name) + 2);
    for (;;) {
        size_t len = strcspn(name, ".");

        if (len == 0 || len > 63)
            return dns_answer(q, DNS_SERVFAIL, out);
        put(&w, (uint8_t[]){ (uint8_t)len }, 1);
        put(&w, name, len);
        if (!name[len])
            break;
        name += len + 1;
    }
    put(&w, "", 1);
    return finish(&w, q, DNS_NOERROR);
}

bool dns_reverse(const char *name, uint32_t *ret_addr)
{
    uint32_t addr = 0;

    for (int i = 0; i < 4; i++) {
        size_t len = strspn(name, "0123456789");
        unsigned v = 0;

        if (len < 1 || len > 3 || name[len] != '.' || (name[0] == '0' && len > 1))
            return false;
        for (size_t k = 0; k < len; k++)
            v = v * 10 + (unsigned)(name[k] - '0');
        if (v > 255)
            return false;
        addr |= v << (8 * i);
        name += len + 1;
    }
    if (strcmp(name, "in-addr.arpa") != 0)
        return false;
    *ret_addr = addr;
    return true;
}
