/* image/stream.h - bytes of a layer on their way in: hashed, kept as a blob, decompressed, hashed
 * again, and counted against the caps all the while.
 *
 * Compression is told by its magic, never by a name: none, gzip, zstd, xz, bzip2.
 * Owns: nothing on disk; `keep_fd` is the caller's.
 */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct caps {
    uint64_t max_bytes; /* of the unpacked layer: the tar itself, and the sizes of its files */
    uint64_t max_entries;
    bool ratio; /* refuse what unpacks to 100 times its size and more (beyond 256 MiB) */
    const volatile sig_atomic_t *stop; /* set by a signal; may be NULL */
};

enum compression { COMPRESS_NONE, COMPRESS_GZIP, COMPRESS_ZSTD, COMPRESS_XZ, COMPRESS_BZIP2 };
/* Which bytes go to keep_fd. KEEP_PORTABLE: as they came where every OCI tool reads them (plain and
 * gzip), else decompressed. */
enum keep { KEEP_NOTHING, KEEP_AS_IS, KEEP_PORTABLE };

struct stream;

struct stream_sum {
    enum compression compression;
    char *raw_digest, *plain_digest; /* as it came, and decompressed (the diff id) */
    uint64_t raw_bytes, plain_bytes;
    bool kept_plain; /* keep_fd got the decompressed bytes */
};

/* Borrows fd and keep_fd; `label` names the source in messages. */
int stream_open(int fd, const char *label, const struct caps *caps, enum keep keep, int keep_fd,
                struct stream **ret, struct err **e);
/* The next decompressed bytes; 0 at the end. The buffer is valid until the next call. */
ssize_t stream_read(struct stream *s, const void **ret, struct err **e);
/* Reads to the end, through at most `slack` bytes that nobody took, and sums up. */
int stream_finish(struct stream *s, uint64_t slack, struct stream_sum *ret, struct err **e);
void stream_sum_free_p(struct stream_sum *s);
struct stream *stream_free(struct stream *s);
static inline void stream_free_p(struct stream **s)
{
    *s = stream_free(*s);
}
