/* image/sha.h - sha256 over a stream. The only door to libcrypto. */
#pragma once
#include <stddef.h>

struct sha;

struct sha *sha_new(void);
void sha_add(struct sha *s, const void *p, size_t n);
/* "sha256:HEX" of what was added; the caller frees it. Ends the stream. */
char *sha_digest(struct sha *s);
struct sha *sha_free(struct sha *s);
static inline void sha_free_p(struct sha **s)
{
    *s = sha_free(*s);
}
/* The digest of one piece of memory. */
char *sha_of(const void *p, size_t n);
