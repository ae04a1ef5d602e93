#include "runtime/gateway/fakeip.h"

#include <string.h>

#include "base/str.h"

enum {
    BUCKETS = FAKEIP_NAMES,
    ADDRS = (int)(FAKEIP_LAST - FAKEIP_FIRST) + 1,
};

/* Slots are named by their number, 0 is nobody: tables of zeroes, which cost no memory until used. */
struct slot {
    char *name;
    uint32_t addr; /* less FAKEIP_FIRST */
    uint32_t pins;
    uint32_t bucket, next; /* the chain of a bucket */
    uint32_t older, newer; /* by use; only while not pinned */
};

struct fakeip {
    uint64_t key[2];
    uint32_t n;              /* slots in use: 1 to n */
    uint32_t oldest, newest; /* of those not pinned */
    uint32_t cursor;         /* the address to try next */
    uint32_t *buckets;       /* [BUCKETS] */
    uint32_t *addrs;         /* [ADDRS] */
    struct slot *slots;      /* [FAKEIP_NAMES + 1] */
};

static uint64_t rotl(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

/* SipHash-1-3: without the key nobody finds names that share a bucket. */
static uint64_t sip_hash(const uint64_t key[2], const char *p, size_t n)
{
    uint64_t v[4] = { key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                      key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573 };
    uint64_t last = (uint64_t)n << 56;

    for (; n >= 8; p += 8, n -= 8) {
        uint64_t m;

        memcpy(&m, p, 8);
        v[3] ^= m;
        sip_round(v);
        v[0] ^= m;
    }
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)(uint8_t)p[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct fakeip *fakeip_new(const uint8_t key[16])
{
    struct fakeip *f = mem_zalloc(sizeof *f);

    memcpy(f->key, key, sizeof f->key);
    /* not where the gateway before began: an address that a client remembers must not mean another name */
    f->cursor = (uint32_t)(sip_hash(f->key, "", 0) % ADDRS);
    f->buckets = mem_zalloc(BUCKETS * sizeof *f->buckets);
    f->addrs = mem_zalloc(ADDRS * sizeof *f->addrs);
    f->slots = mem_zalloc((FAKEIP_NAMES + 1) * sizeof *f->slots);
    return f;
}

struct fakeip *fakeip_free(struct fakeip *f)
{
    if (!f)
        return NULL;
    for (uint32_t i = 1; i <= f->n; i++)
        free(f->slots[i].name);
    free(f->slots);
    free(f->addrs);
    free(f->buckets);
    free(f);
    return NULL;
}

static void use_remove(struct fakeip *f, uint32_t i)
{
    struct slot *s = &f->slots[i];

    *(s->older ? &f->slots[s->older].newer : &f->oldest) = s->newer;
    *(s->newer ? &f->slots[s->newer].older : &f->newest) = s->older;
    s->older = s->newer = 0;
}

static void use_append(struct fakeip *f, uint32_t i)
{
    struct slot *s = &f->slots[i];

    s->older = f->newest;
    s->newer = 0;
    *(f->newest ? &f->slots[f->newest].newer : &f->oldest) = i;
    f->newest = i;
}

static void touch(struct fakeip *f, uint32_t i)
{
    if (f->slots[i].pins)
        return;
    use_remove(f, i);
    use_append(f, i);
}

static void bucket_remove(struct fakeip *f, uint32_t i)
{
    uint32_t *at = &f->buckets[f->slots[i].bucket];

    while (*at != i)
        at = &f->slots[*at].next;
    *at = f->slots[i].next;
}

/* A slot for a new name: a fresh one, else the one used longest ago; 0 where all are pinned. */
static uint32_t slot_take(struct fakeip *f)
{
    uint32_t i;

    if (f->n < FAKEIP_NAMES)
        return ++f->n;
    i = f->oldest;
    if (i) {
        use_remove(f, i);
        bucket_remove(f, i);
        f->addrs[f->slots[i].addr] = 0;
        free_p(&f->slots[i].name);
    }
    return i;
}

/* Addresses go round: half of them are free at any time, so a round is short on the average. */
static uint32_t addr_take(struct fakeip *f)
{
    uint32_t a;

    do {
        a = f->cursor;
        f->cursor = (f->cursor + 1) % ADDRS;
    } while (f->addrs[a]);
    return a;
}

uint32_t fakeip_addr(struct fakeip *f, const char *name)
{
    size_t len = strlen(name);
    uint32_t bucket, i;
    struct slot *s;

    if (len < 1 || len > 253)
        return 0;
    bucket = (uint32_t)(sip_hash(f->key, name, len) % BUCKETS);
    for (i = f->buckets[bucket]; i; i = f->slots[i].next)
        if (strcmp(f->slots[i].name, name) == 0)
            break;
    if (i) {
        touch(f, i);
        return FAKEIP_FIRST + f->slots[i].addr;
    }
    i = slot_take(f);
    if (!i)
        return 0;
    s = &f->slots[i];
    *s = (struct slot){ .name = mem_dup(name, len + 1),
                        .addr = addr_take(f),
                        .bucket = bucket,
                        .next = f->buckets[bucket] };
    f->buckets[bucket] = i;
    f->addrs[s->addr] = i;
    use_append(f, i);
    return FAKEIP_FIRST + s->addr;
}

bool fakeip_range(uint32_t addr)
{
    return addr >= FAKEIP_FIRST && addr <= FAKEIP_LAST;
}

static uint32_t slot_of(const struct fakeip *f, uint32_t addr)
{
    return fakeip_range(addr) ? f->addrs[addr - FAKEIP_FIRST] : 0;
}

const char *fakeip_name(struct fakeip *f, uint32_t addr)
{
    uint32_t i = slot_of(f, addr);

    if (!i)
        return NULL;
    touch(f, i);
    return f->slots[i].name;
}

bool fakeip_pin(struct fakeip *f, uint32_t addr)
{
    uint32_t i = slot_of(f, addr);

    if (!i || f->slots[i].pins == UINT32_MAX)
        return false;
    if (f->slots[i].pins++ == 0)
        use_remove(f, i);
    return true;
}

void fakeip_unpin(struct fakeip *f, uint32_t addr)
{
    uint32_t i = slot_of(f, addr);

    if (i && f->slots[i].pins && --f->slots[i].pins == 0)
        use_append(f, i);
}

size_t fakeip_count(const struct fakeip *f)
{
    return f->n;
}
