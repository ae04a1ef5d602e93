/* The values people write on the command line and in config files. */
#include "tests/unit/check.h"

#include <inttypes.h>
#include <stdint.h>

#include "base/str.h"

#define K (1ULL << 10)
#define M (1ULL << 20)
#define G (1ULL << 30)
#define T (1ULL << 40)
#define BAD (-ERR_INVALID)

struct row {
    const char *in;
    uint64_t want;
    int rc;
};

static const struct row sizes[] = {
    { "0", 0, 0 },
    { "1", 1, 0 },
    { "1048576", M, 0 },
    { "64k", 64 * K, 0 },
    { "64K", 64 * K, 0 },
    { "512M", 512 * M, 0 },
    { "512m", 512 * M, 0 },
    { "2G", 2 * G, 0 },
    { "2GB", 2 * G, 0 },
    { "2gb", 2 * G, 0 },
    { "2GiB", 2 * G, 0 },
    { "1.5G", 3 * G / 2, 0 },
    { "0.5k", 512, 0 },
    { "1.5", 1, 0 },
    { "1T", T, 0 },
    { "100b", 100, 0 },
    { "1.999999G", 1999 * G / 1000, 0 },
    { "", 0, BAD },
    { "-1", 0, BAD },
    { "abc", 0, BAD },
    { " 1", 0, BAD },
    { "1 ", 0, BAD },
    { "+1", 0, BAD },
    { "1.G", 0, BAD },
    { ".5G", 0, BAD },
    { "1..5G", 0, BAD },
    { "1.5.5G", 0, BAD },
    { "1GG", 0, BAD },
    { "1GBB", 0, BAD },
    { "1ib", 0, BAD },
    { "0x10", 0, BAD },
    { "1e3", 0, BAD },
    { "1,5G", 0, BAD },
    { "G", 0, BAD },
    { "inf", 0, BAD },
    { "1G\n", 0, BAD },
    { "-0", 0, BAD },
    { "99999999999999999999", 0, BAD },
    { "18446744073709551616", 0, BAD },
    { "9999999999T", 0, BAD },
    { "8388608T", 0, BAD }, /* 2^63 */
    { "1\xc2\xa0G", 0, BAD },
};

static const struct row cpus[] = {
    { "1", 1000, 0 },    { "2", 2000, 0 },    { "0.5", 500, 0 },
    { "1.25", 1250, 0 }, { "0.01", 10, 0 },   { "1024", 1024000, 0 },
    { "0", 0, BAD },     { "0.001", 0, BAD }, { "", 0, BAD },
    { "-1", 0, BAD },    { "two", 0, BAD },   { "1cpu", 0, BAD },
    { "1025", 0, BAD },  { "0,5", 0, BAD },   { "18446744073709551617", 0, BAD },
    { "nan", 0, BAD },
};

static const struct row durations[] = {
    { "30", 30000, 0 },
    { "30s", 30000, 0 },
    { "1.5s", 1500, 0 },
    { "200ms", 200, 0 },
    { "10m", 600000, 0 },
    { "1h", 3600000, 0 },
    { "2d", 172800000, 0 },
    { "0", 0, 0 },
    { "1.5h", 5400000, 0 },
    { "", 0, BAD },
    { "-1", 0, BAD },
    { "s", 0, BAD },
    { "1 s", 0, BAD },
    { "1h30m", 0, BAD },
    { "1S", 0, BAD },
    { "1w", 0, BAD },
    { "1mss", 0, BAD },
    { "99999999999999999d", 0, BAD },
    { "106751991168d", 0, BAD }, /* past int64 ms */
};

static const struct row uints[] = {
    /* with a maximum of 65535 */
    { "0", 0, 0 },     { "65535", 65535, 0 },
    { "007", 7, 0 },   { "65536", 0, BAD },
    { "", 0, BAD },    { "-1", 0, BAD },
    { "1.0", 0, BAD }, { "1k", 0, BAD },
    { " 1", 0, BAD },  { "99999999999999999999999", 0, BAD },
};

static int uint_16(const char *s, uint64_t *ret, struct err **e)
{
    return parse_uint(s, 65535, ret, e);
}

static void table(const char *what, const struct row *rows, size_t n,
                  int (*parse)(const char *, uint64_t *, struct err **))
{
    for (size_t i = 0; i < n; i++) {
        struct err *e = NULL;
        uint64_t got = 12345;
        int rc = parse(rows[i].in, &got, &e);
        CHECK(rc == rows[i].rc, "%s '%s': %d", what, rows[i].in, rc);
        if (rc == 0) {
            CHECK(got == rows[i].want, "%s '%s': %" PRIu64 ", want %" PRIu64, what, rows[i].in, got,
                  rows[i].want);
            CHECK(!e, "%s '%s': an error beside success", what, rows[i].in);
        } else {
            AUTOFREE char *text = err_text(e);
            CHECK(got == 12345, "%s '%s': output written on failure", what, rows[i].in);
            CHECK(strstr(text, rows[i].in), "%s '%s' is not named in: %s", what, rows[i].in, text);
        }
        err_free(e);
        CHECK(parse(rows[i].in, &got, NULL) == rows[i].rc, "%s '%s' without e", what, rows[i].in);
    }
}

/* What format_size prints, parse_size takes back, no more than a tenth of a unit off. */
static void format_round_trip(void)
{
    static const struct {
        uint64_t n;
        const char *want;
    } rows[] = { { 0, "0" },
                 { 1, "1" },
                 { 1023, "1023" },
                 { K, "1K" },
                 { 3 * K / 2, "1.5K" },
                 { 2 * G, "2G" },
                 { 512 * M, "512M" },
                 { 3 * G / 2, "1.5G" },
                 { T, "1T" } };
    char buf[24];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        format_size(rows[i].n, buf);
        CHECK_STR(buf, rows[i].want);
    }
    for (unsigned bit = 0; bit < 63; bit++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t n = (1ULL << bit) + (uint64_t)(int64_t)d, back = 0;
            if (d > 0 && bit == 0)
                continue;
            format_size(n, buf);
            if (parse_size(buf, &back, NULL) < 0) {
                CHECK(0, "%" PRIu64 " became '%s', not a size", n, buf);
                return;
            }
            CHECK(back <= n && n - back <= n / 8, "%" PRIu64 " became '%s' = %" PRIu64, n, buf,
                  back);
        }
    }
}

int main(void)
{
    table("size", sizes, ARRAY_LEN(sizes), parse_size);
    table("cpus", cpus, ARRAY_LEN(cpus), parse_cpus);
    table("duration", durations, ARRAY_LEN(durations), parse_duration);
    table("number", uints, ARRAY_LEN(uints), uint_16);
    format_round_trip();
    return check_done();
}
