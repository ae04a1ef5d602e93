/* image/layer.h - unpacks one layer (a tar stream) into a directory.
 * Uses: libarchive to read tar, image/tree.h to make files; nothing else touches names.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "image/stream.h"

struct layer_stats {
    uint64_t entries, bytes; /* bytes: the sizes of all files */
    uint64_t skipped;        /* devices, pipes, sockets */
    uint64_t whiteouts;
};

/* `dirfd` is empty and nobody else's; what is in it after an error is for the caller to remove. */
int layer_unpack(struct stream *s, const char *label, int dirfd, const struct caps *caps,
                 struct layer_stats *ret, struct err **e);
/* After the end of the archive tar pads to its record size; more than this is no padding. */
enum { LAYER_SLACK = 1 << 20 };
