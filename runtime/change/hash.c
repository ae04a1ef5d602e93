#include "runtime/change/hash.h"

#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"

struct hash {
    EVP_MD_CTX *ctx;
};

/* Nothing here fails but for want of memory or a broken library: then going on would be worse. */
static void must(int ok)
{
    if (!ok)
        abort();
}

struct hash *hash_new(void)
{
    struct hash *h = mem_zalloc(sizeof *h);
    h->ctx = EVP_MD_CTX_new();
    must(h->ctx != NULL);
    must(EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL));
    return h;
}

void hash_add(struct hash *h, const void *p, size_t n)
{
    must(EVP_DigestUpdate(h->ctx, p, n));
}

void hash_hex(struct hash *h, char ret[HASH_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char md[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    must(EVP_DigestFinal_ex(h->ctx, md, &len));
    for (unsigned i = 0; i < HASH_HEX / 2; i++) {
        ret[2 * i] = digits[md[i] >> 4];
        ret[2 * i + 1] = digits[md[i] & 15];
    }
    ret[HASH_HEX] = '\0';
    must(EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL));
}

struct hash *hash_free(struct hash *h)
{
    if (h)
        EVP_MD_CTX_free(h->ctx);
    free(h);
    return NULL;
}

void hash_text(const void *p, size_t n, char ret[HASH_HEX + 1])
{
    CLEANUP(hash_free_p) struct hash *h = hash_new();
    hash_add(h, p, n);
    hash_hex(h, ret);
}

int hash_file(int fd, char ret[HASH_HEX + 1], char *ret_head, size_t head_len, uint64_t *ret_size,
              struct err **e)
{
    CLEANUP(hash_free_p) struct hash *h = hash_new();
    char buf[1 << 16];
    uint64_t off = 0, size, data;
    struct stat st;
    ssize_t n = 0;

    if (fstat(fd, &st) < 0)
        return err_sys(e, "look at a file");
    size = (uint64_t)st.st_size;
    data = (uint64_t)st.st_blocks * 512;
    /* holes cost their maker nothing, and whoever hashes them hours */
    if (size > data && size - data > HASH_MAX_HOLES)
        return err_new(e, ERR_LIMIT, "a file with more than %llu GiB of holes",
                       (unsigned long long)HASH_MAX_HOLES >> 30);
    if (ret_head)
        memset(ret_head, 0, head_len);
    /* no further than it reaches now: one that grows as fast as it is read has no end */
    while (off < size &&
           (n = RETRY(pread(fd, buf, size - off < sizeof buf ? (size_t)(size - off) : sizeof buf,
                            (off_t)off))) > 0) {
        hash_add(h, buf, (size_t)n);
        if (ret_head && off < head_len) {
            size_t left = head_len - (size_t)off;
            memcpy(ret_head + off, buf, (size_t)n < left ? (size_t)n : left);
        }
        off += (uint64_t)n;
    }
    if (n < 0)
        return err_sys(e, "read a file");
    hash_hex(h, ret);
    if (ret_size)
        *ret_size = off;
    return 0;
}
