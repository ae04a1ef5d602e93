/* base/text.c - text for people: escaping what a sandbox wrote, and near misses of a word. */
#include <string.h>

#include "base/str.h"

size_t utf8_decode(const void *text, size_t n, uint32_t *ret)
{
    const unsigned char *p = text;
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t len = p[0] < 0x80             ? 1
                 : (p[0] & 0xe0) == 0xc0 ? 2
                 : (p[0] & 0xf0) == 0xe0 ? 3
                 : (p[0] & 0xf8) == 0xf0 ? 4
                                         : 0;
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
        size_t len = utf8_decode(p, n, &c);
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

void str_add_base64(struct str *s, const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v =
            (uint32_t)p[i] << 16 | (left > 1 ? p[i + 1] : 0u) << 8 | (left > 2 ? p[i + 2] : 0u);
        const char out[] = { digits[v >> 18], digits[v >> 12 & 63],
                             left > 1 ? digits[v >> 6 & 63] : '=',
                             left > 2 ? digits[v & 63] : '=' };
        str_addn(s, out, 4);
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
