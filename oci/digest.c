#include "oci/digest.h"

#include <string.h>

#include "base/str.h"

static const char prefix[] = "sha256:";

bool digest_valid(const char *digest)
{
    return digest && str_starts(digest, prefix) &&
           strlen(digest) == sizeof prefix - 1 + DIGEST_HEX &&
           strspn(digest_hex(digest), "0123456789abcdef") == DIGEST_HEX;
}

const char *digest_hex(const char *digest)
{
    return digest + sizeof prefix - 1;
}
