/* runtime/network/policy_name.c - what is a name: the one place where its bytes are looked at. */
#include <ctype.h>
#include <string.h>

#include "runtime/network/policy.h"

/* Resolvers, browsers and inet_aton() take a name whose last label is a number for an IPv4 address. */
static bool is_number(const char *label, size_t n)
{
    bool hex = n >= 2 && label[0] == '0' && label[1] == 'x';

    for (size_t i = hex ? 2 : 0; i < n; i++)
        if (!(hex ? isxdigit((unsigned char)label[i]) : isdigit((unsigned char)label[i])))
            return false;
    return true;
}

int net_name(const char *p, size_t len, char ret[NET_NAME_SIZE])
{
    char out[NET_NAME_SIZE];
    size_t label = 0; /* where the current one starts */

    if (len && p[len - 1] == '.')
        len--;
    if (!len || len > 253)
        return -1;
    for (size_t i = 0; i < len; i++) {
        char c = p[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c | 0x20);
        if (c == '.') {
            if (i == label)
                return -1;
            label = i + 1;
        } else if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
                     (c == '-' && i != label)) ||
                   i - label >= 63) {
            return -1;
        }
        out[i] = c;
    }
    if (label == len || is_number(out + label, len - label))
        return -1;
    out[len] = '\0';
    memcpy(ret, out, len + 1);
    return 0;
}
