#include "image/sha.h"

#include <openssl/evp.h>

#include "base/str.h"

struct sha {
    EVP_MD_CTX *ctx;
};

/* Nothing here fails but for want of memory or a broken library: then going on would be worse. */
static void must(int ok)
{
    if (!ok)
        abort();
}

struct sha *sha_new(void)
{
    struct sha *s = mem_zalloc(sizeof *s);
    s->ctx = EVP_MD_CTX_new();
    must(s->ctx != NULL);
    must(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL));
    return s;
}

void sha_add(struct sha *s, const void *p, size_t n)
{
    must(EVP_DigestUpdate(s->ctx, p, n));
}

char *sha_digest(struct sha *s)
{
    struct str out = STR_INIT;
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    must(EVP_DigestFinal_ex(s->ctx, md, &len));
    str_add(&out, "sha256:");
    for (unsigned i = 0; i < len; i++)
        str_addf(&out, "%02x", md[i]);
    return str_take(&out);
}

struct sha *sha_free(struct sha *s)
{
    if (s)
        EVP_MD_CTX_free(s->ctx);
    free(s);
    return NULL;
}

char *sha_of(const void *p, size_t n)
{
    CLEANUP(sha_free_p) struct sha *s = sha_new();
    sha_add(s, p, n);
    return sha_digest(s);
}
