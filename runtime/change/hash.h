/* runtime/change/hash.h - sha256 of files and of what a change is made of. */
#pragma once
#include <stdint.h>

#include "base/err.h"

enum { HASH_HEX = 64 };
#define HASH_MAX_HOLES (8ULL << 30)

struct hash;
struct hash *hash_new(void);
void hash_add(struct hash *h, const void *p, size_t n);
/* Hex digits of what was added, NUL-terminated; the stream starts again. */
void hash_hex(struct hash *h, char ret[HASH_HEX + 1]);
struct hash *hash_free(struct hash *h);
static inline void hash_free_p(struct hash **h)
{
    *h = hash_free(*h);
}

void hash_text(const void *p, size_t n, char ret[HASH_HEX + 1]);
/* From the start of the file to where its end is now; ERR_LIMIT where there is next to nothing but holes. ret_head gets the first head_len bytes (zeroes beyond the end),
 * ret_size how much was read; each may be NULL. */
int hash_file(int fd, char ret[HASH_HEX + 1], char *ret_head, size_t head_len, uint64_t *ret_size,
              struct err **e);
