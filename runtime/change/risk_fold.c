#include <ctype.h>
#include <string.h>

#include "runtime/change/risk_impl.h"

/* Characters that file systems leave out when they compare names. */
static bool skipped(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        { 0xad, 0xad },     { 0x34f, 0x34f },   { 0x61c, 0x61c },     { 0x115f, 0x1160 },
        { 0x17b4, 0x17b5 }, { 0x180b, 0x180f }, { 0x200b, 0x200f },   { 0x202a, 0x202e },
        { 0x2060, 0x206f }, { 0x3164, 0x3164 }, { 0xfe00, 0xfe0f },   { 0xfeff, 0xfeff },
        { 0xffa0, 0xffa0 }, { 0xfff0, 0xfff8 }, { 0xe0000, 0xe0fff },
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (c >= ranges[i].from && c <= ranges[i].to)
            return true;
    return false;
}

/* Characters outside of ASCII whose lower case or compatible form lies in it. */
static int plain(uint32_t c)
{
    if (c == 0x212a)
        return 'k'; /* Kelvin */
    if (c == 0x17f)
        return 's'; /* long s */
    if (c == 0x130 || c == 0x131)
        return 'i'; /* Turkish i */
    if (c >= 0xff01 && c <= 0xff5e)
        return tolower((int)(c - 0xff01 + '!')); /* full width */
    return -1;
}

static void fold_name(const char *p, size_t n, struct strv *ret)
{
    AUTOSTR struct str out = STR_INIT;

    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t k = utf8_decode(p + i, n - i, &c);
        if (k == 0) {
            str_addc(&out, p[i++]);
            continue;
        }
        if (c < 0x80)
            str_addc(&out, (char)tolower((int)c));
        else if (plain(c) >= 0)
            str_addc(&out, (char)plain(c));
        else if (!skipped(c))
            str_addn(&out, p + i, k);
        i += k;
    }
    /* NTFS: "name:stream", trailing dots and spaces; never down to nothing */
    char *colon = out.len ? memchr(out.p + 1, ':', out.len - 1) : NULL;
    if (colon)
        out.len = (size_t)(colon - out.p);
    while (out.len > 1 && (out.p[out.len - 1] == ' ' || out.p[out.len - 1] == '.'))
        out.len--;
    if (out.len) {
        out.p[out.len] = '\0';
        strv_add(ret, out.p);
    }
}

void risk_fold(const char *path, struct strv *ret)
{
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/\\");
        if (n)
            fold_name(p, n, ret);
        p += n + (p[n] != '\0');
    }
}
