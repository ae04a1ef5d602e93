/* image/decode.h - decompression, one table entry per format; image/stream.c is its only user. */
#pragma once
#include <sys/types.h>

#include "base/err.h"
#include "image/stream.h"

/* Gives the next compressed bytes; 0 at the end, negative with *e set. */
typedef ssize_t (*decode_pull)(void *ctx, const void **ret, struct err **e);

struct decoder;

int decoder_open(enum compression c, const char *label, decode_pull pull, void *ctx,
                 struct decoder **ret, struct err **e);
ssize_t decoder_read(struct decoder *d, const void **ret, struct err **e);
struct decoder *decoder_free(struct decoder *d);
enum compression decode_sniff(const void *p, size_t n);
