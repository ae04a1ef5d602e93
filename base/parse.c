/* base/parse.c - the values people write: sizes, cpus, durations, numbers. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* Reads "12" or "1.5" into thousandths; at most three decimals count. Returns the rest or NULL. */
static const char *parse_milli(const char *s, uint64_t *ret)
{
    uint64_t whole = 0, milli = 0;
    if (!isdigit((unsigned char)*s))
        return NULL;
    for (; isdigit((unsigned char)*s); s++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
            return NULL;
    if (*s == '.') {
        if (!isdigit((unsigned char)*++s))
            return NULL;
        for (uint64_t f = 100; isdigit((unsigned char)*s); s++, f /= 10)
            milli += f * (uint64_t)(*s - '0');
    }
    if (__builtin_mul_overflow(whole, 1000, &whole) || __builtin_add_overflow(whole, milli, &whole))
        return NULL;
    *ret = whole;
    return s;
}

int parse_size(const char *s, uint64_t *ret, struct err **e)
{
    static const char units[] = "kmgtpe";
    uint64_t n;
    unsigned __int128 v;
    const char *p = parse_milli(s, &n);

    if (!p)
        return err_new(e, ERR_INVALID, "'%s' is not a size; write it like 512M, 2G or 1.5G", s);
    v = n;
    if (*p) {
        const char *u = strchr(units, tolower((unsigned char)*p));
        if (u) {
            v <<= 10 * (u - units + 1);
            p++;
        }
        if (u && (*p == 'i' || *p == 'I'))
            p++;
        if (*p == 'b' || *p == 'B')
            p++;
    }
    v /= 1000;
    if (*p || v > INT64_MAX)
        return err_new(e, ERR_INVALID, "'%s' is not a size; write it like 512M, 2G or 1.5G", s);
    *ret = (uint64_t)v;
    return 0;
}

int parse_cpus(const char *s, uint64_t *ret_milli, struct err **e)
{
    uint64_t n;
    const char *p = parse_milli(s, &n);
    if (!p || *p || n < 10 || n > 1024 * 1000)
        return err_new(e, ERR_INVALID, "'%s' is not a number of cpus; write it like 2 or 0.5", s);
    *ret_milli = n;
    return 0;
}

int parse_duration(const char *s, uint64_t *ret_ms, struct err **e)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = { { "", 1000 },       { "ms", 1 },          { "s", 1000 },
                  { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 86400 * 1000 } };
    uint64_t n;
    const char *p = parse_milli(s, &n);

    for (size_t i = 0; p && i < ARRAY_LEN(units); i++) {
        unsigned __int128 v = (unsigned __int128)n * units[i].ms / 1000;
        if (strcmp(p, units[i].unit) == 0 && v <= INT64_MAX) {
            *ret_ms = (uint64_t)v;
            return 0;
        }
    }
    return err_new(e, ERR_INVALID, "'%s' is not a time; write it like 30s, 10m or 1.5h", s);
}

int parse_uint(const char *s, uint64_t max, uint64_t *ret, struct err **e)
{
    uint64_t n = 0;
    const char *p = s;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            break;
    if (p == s || *p || n > max)
        return err_new(e, ERR_INVALID, "'%s' is not a number from 0 to %llu", s,
                       (unsigned long long)max);
    *ret = n;
    return 0;
}

void format_size(uint64_t n, char buf[24])
{
    static const char units[] = "\0KMGTPE";
    int u = 0;
    uint64_t v = n, rest = 0;
    while (v >= 1024 && u < 6) {
        rest = v & 1023;
        v >>= 10;
        u++;
    }
    if (rest * 10 / 1024 && v < 100)
        snprintf(buf, 24, "%llu.%llu%c", (unsigned long long)v,
                 (unsigned long long)(rest * 10 / 1024), units[u]);
    else
        snprintf(buf, 24, "%llu%.1s", (unsigned long long)v, &units[u]);
}
