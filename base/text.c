/* base/text.c - text for people: escaping what a sandbox wrote, and near misses of a word. */
#include <string.h>

#include "base/str.h"

/* Decodes one UTF-8 character; returns its length, 0 where the bytes are not valid. */
static size_t utf8_char(const unsigned char *p, size_t n, uint32_t *ret)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t len = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3
                 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
    uint32_t c;

    if (!len || len > n)
        return 0;
    c = len == 1 ? p[0] : p[0] & (0x7f >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *ret = c;
    return len;
}

/* Characters that change how a line is read without being seen. */
static bool invisible(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe007f);
}

void str_add_escaped(struct str *s, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    while (n) {
        uint32_t c = 0;
        size_t len = utf8_char(p, n, &c);
        if (!len) {
            str_addf(s, "\\x%02x", p[0]);
            len = 1;
        } else if (!invisible(c)) {
            str_addn(s, p, len);
        } else if (c < 0x100) {
            str_addf(s, "\\x%02x", c);
        } else {
            str_addf(s, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        }
        p += len;
        n -= len;
    }
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64], n = strlen(b);
    if (n >= ARRAY_LEN(row) || strlen(a) >= ARRAY_LEN(row))
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[n];
}

const char *nearest_word(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, candidates[i]);
        if (d <= least && (!best || d < least)) {
            best = candidates[i];
            least = d;
        }
    }
    return best;
}
