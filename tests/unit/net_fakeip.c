/* Addresses that stand for names: stable, bounded, the least used goes first, a pinned one never. */
#include "tests/unit/check.h"

#include "base/clock.h"
#include "base/str.h"
#include "runtime/gateway/fakeip.h"

static const uint8_t key[16] = "0123456789abcdef";

static const char *nth(unsigned i)
{
    static char name[64];

    snprintf(name, sizeof name, "host-%u.example.com", i);
    return name;
}

static void test_both_ways(void)
{
    struct fakeip *f = fakeip_new(key);
    char long_name[300];
    uint32_t a = fakeip_addr(f, "example.com"), b = fakeip_addr(f, "example.org");

    CHECK(fakeip_range(a) && b == a + 1, "%x, %x", a, b);
    CHECK(fakeip_addr(f, "example.com") == a, "the same name, another address");
    CHECK_STR(fakeip_name(f, a), "example.com");
    CHECK_STR(fakeip_name(f, b), "example.org");
    CHECK_STR(fakeip_name(f, b + 1), NULL);
    CHECK_STR(fakeip_name(f, FAKEIP_LAST), NULL);
    CHECK_STR(fakeip_name(f, FAKEIP_LAST + 1), NULL);
    CHECK_STR(fakeip_name(f, FAKEIP_FIRST - 1), NULL);
    CHECK_STR(fakeip_name(f, 0), NULL);
    CHECK_STR(fakeip_name(f, UINT32_MAX), NULL);
    CHECK(fakeip_range(FAKEIP_FIRST) && fakeip_range(FAKEIP_LAST), "ends");
    CHECK(!fakeip_range(FAKEIP_FIRST - 1) && !fakeip_range(FAKEIP_LAST + 1), "behind the ends");
    CHECK(!fakeip_pin(f, b + 1) && !fakeip_pin(f, 1), "pinned nobody");
    fakeip_unpin(f, a); /* never pinned: nothing happens */
    fakeip_unpin(f, 1);
    CHECK(fakeip_addr(f, "") == 0, "an empty name");
    memset(long_name, 'a', sizeof long_name);
    long_name[254] = '\0';
    CHECK(fakeip_addr(f, long_name) == 0, "a name of 254 bytes");
    long_name[253] = '\0';
    CHECK(fakeip_addr(f, long_name) == b + 1, "a name of 253 bytes");
    CHECK(fakeip_addr(f, "a") == b + 2, "a name of one byte");
    CHECK(fakeip_count(f) == 4, "%zu", fakeip_count(f));
    CHECK(!fakeip_free(f) && !fakeip_free(NULL), "freed");
}

/* More names than there is room for, again and again: the pinned and the used stay. */
static void test_flood(void)
{
    struct fakeip *f = fakeip_new(key);
    uint32_t pinned = fakeip_addr(f, "pinned.example"), used = fakeip_addr(f, "used.example");
    uint32_t lost = fakeip_addr(f, "lost.example"), a;
    uint64_t start = clock_ms(CLOCK_MONOTONIC);

    CHECK(fakeip_pin(f, pinned) && fakeip_pin(f, pinned), "pin");
    for (unsigned i = 0; i < 5 * FAKEIP_NAMES; i++) {
        a = fakeip_addr(f, nth(i));
        if (!fakeip_range(a) || !str_eq(fakeip_name(f, a), nth(i)))
            CHECK(false, "name %u: %x", i, a);
        if (i % 1000 == 0 && !fakeip_name(f, used))
            CHECK(false, "a used name went, at %u", i);
    }
    CHECK(fakeip_count(f) == FAKEIP_NAMES, "%zu", fakeip_count(f));
    CHECK_STR(fakeip_name(f, pinned), "pinned.example");
    CHECK(fakeip_addr(f, "pinned.example") == pinned, "moved");
    CHECK(fakeip_addr(f, "used.example") == used, "moved");
    CHECK(!str_eq(fakeip_name(f, lost), "lost.example"), "still there");
    CHECK(clock_ms(CLOCK_MONOTONIC) - start < 30000, "not in constant time");

    fakeip_unpin(f, pinned); /* one of two */
    for (unsigned i = 0; i < FAKEIP_NAMES; i++)
        fakeip_addr(f, nth(1000000 + i));
    CHECK_STR(fakeip_name(f, pinned), "pinned.example");
    fakeip_unpin(f, pinned);
    for (unsigned i = 0; i < FAKEIP_NAMES; i++)
        fakeip_addr(f, nth(2000000 + i));
    CHECK(!str_eq(fakeip_name(f, pinned), "pinned.example"), "an unpinned name never goes");
    fakeip_free(f);
}

/* An address that lost its name is nobody's for as long as the range allows. */
static void test_late_reuse(void)
{
    struct fakeip *f = fakeip_new(key);
    uint32_t first = fakeip_addr(f, "first.example");
    unsigned addrs = FAKEIP_LAST - FAKEIP_FIRST + 1, i;

    for (i = 0; i < FAKEIP_NAMES; i++)
        fakeip_addr(f, nth(i));
    CHECK_STR(fakeip_name(f, first), NULL);
    for (; i < addrs - 1; i++)
        fakeip_addr(f, nth(i));
    CHECK_STR(fakeip_name(f, first), NULL);
    CHECK(fakeip_addr(f, "next.example") == first, "the round is over");
    fakeip_free(f);
}

static void test_all_pinned(void)
{
    struct fakeip *f = fakeip_new(key);
    uint32_t a = 0;

    for (unsigned i = 0; i < FAKEIP_NAMES; i++) {
        a = fakeip_addr(f, nth(i));
        if (!fakeip_pin(f, a))
            CHECK(false, "pin %u", i);
    }
    CHECK(fakeip_addr(f, "another.example") == 0, "no room");
    CHECK(fakeip_addr(f, nth(FAKEIP_NAMES - 1)) == a, "those there are stay");
    fakeip_unpin(f, a);
    CHECK(fakeip_addr(f, "another.example") == a + 1, "room for one");
    CHECK_STR(fakeip_name(f, a), NULL);
    CHECK(fakeip_addr(f, "third.example") == a + 2, "in its place");
    fakeip_free(f);
}

int main(void)
{
    test_both_ways();
    test_flood();
    test_late_reuse();
    test_all_pinned();
    return check_done();
}
