/* Any bytes, cut anywhere: the same output however they are cut, never more than went in, valid
 * UTF-8, unchanged by a second filter, and nothing in it that a terminal would answer or store. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/termfilter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Filters in pieces whose lengths come from `cuts` (none: all at once). */
static size_t run(const char *in, size_t n, const uint8_t *cuts, size_t n_cuts, char *out)
{
    struct termfilter f;
    char end[TERMFILTER_END];
    size_t len = 0, done = 0;

    termfilter_init(&f);
    for (size_t k = 0; done < n; k++) {
        size_t piece = n_cuts ? cuts[k % n_cuts] % 9 + 1u : n;
        if (piece > n - done)
            piece = n - done;
        char *exact = malloc(piece + TERMFILTER_ROOM);
        size_t got = termfilter_run(&f, in + done, piece, exact);
        done += piece;
        if (got > piece + TERMFILTER_ROOM || len + got > done)
            abort();
        memcpy(out + len, exact, got);
        len += got;
        free(exact);
    }
    if (termfilter_end(&f, end) > TERMFILTER_END)
        abort();
    return len;
}

/* A second opinion, without the filter's own tables. */
static void judge(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == 0x7f || (c < 0x20 && c != 0x1b && (c < 7 || c > 15)))
            abort();
        if (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0)
            abort();
        if (c != 0x1b)
            continue;
        if (++i == n || strchr("PX^_kZcnoNO|}~%# *+", p[i]))
            abort();
        if (p[i] == ']') {
            if (n - i < 4 || p[i + 1] < '0' || p[i + 1] > '2' || p[i + 2] != ';')
                abort();
            for (i += 3; i < n && p[i] != '\a'; i++)
                if ((unsigned char)p[i] < 0x20)
                    abort();
            if (i == n)
                abort();
        } else if (p[i] == '[') {
            size_t first = i + 1;
            for (i++; i < n && p[i] < 0x40; i++)
                if (p[i] < 0x20 || strchr("\"#$%&'()*+,-./<=>", p[i]))
                    abort();
            if (i == n || strchr("cnxyiRtWvwz{|}~", p[i])) {
                if (i < n && p[i] == 't' && p[first] == '2' &&
                    (p[first + 1] == '2' || p[first + 1] == '3'))
                    continue;
                if (i < n && p[i] == 't' && p[first] == '0')
                    continue; /* 022: the same number */
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n_cuts = size ? data[0] % 8 + 1u : 0;
    if (size < n_cuts + 1)
        return 0;
    const char *in = (const char *)data + 1 + n_cuts;
    size_t n = size - 1 - n_cuts;
    char *whole = malloc(n + 1), *cut = malloc(n + 1), *again = malloc(n + 1);

    size_t len = run(in, n, NULL, 0, whole);
    if (run(in, n, data + 1, n_cuts, cut) != len || memcmp(whole, cut, len) != 0)
        abort();
    if (!utf8_valid(whole, len) || run(whole, len, NULL, 0, again) != len ||
        memcmp(whole, again, len) != 0)
        abort();
    judge(whole, len);
    free(whole);
    free(cut);
    free(again);
    return 0;
}
