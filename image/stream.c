#include "image/stream.h"

#include <poll.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "image/decode.h"
#include "image/sha.h"

enum { IN_SIZE = 256 << 10, MAX_RATIO = 100 };
static const uint64_t ratio_from = 256ULL << 20;

struct stream {
    int fd;
    char *label;
    const struct caps *caps;
    enum keep keep;
    int keep_fd;
    enum compression compression;
    struct decoder *decoder;
    struct sha *raw_sha, *plain_sha; /* plain_sha is NULL where nothing is compressed */
    uint64_t raw_bytes, plain_bytes;
    size_t sniffed; /* bytes at the start of `in` that were read before the decoder was known */
    unsigned char *in;
};

static int keep_bytes(struct stream *s, const void *p, size_t n, struct err **e)
{
    if (fs_write_all(s->keep_fd, p, n) < 0)
        return err_sys(e, "write a layer of '%s' to the store", s->label);
    return 0;
}

static bool keeps_plain(const struct stream *s)
{
    return s->keep == KEEP_PORTABLE && s->compression != COMPRESS_NONE &&
           s->compression != COMPRESS_GZIP;
}

static ssize_t read_source(struct stream *s, void *p, size_t n, struct err **e)
{
    struct pollfd fd = { .fd = s->fd, .events = POLLIN };
    ssize_t got = -1;
    int ready;

    /* a signal between the look at the flag and the wait is noticed at the next round */
    do {
        ready = poll(&fd, 1, 200);
        if (s->caps->stop && *s->caps->stop)
            return err_new(e, ERR_FAILED, "interrupted; nothing was changed");
        if (ready > 0)
            got = read(s->fd, p, n);
    } while (ready == 0 || (got < 0 && errno == EINTR));
    return got < 0 ? err_sys(e, "read '%s'", s->label) : got;
}

/* The source's next bytes, hashed and kept: what the decoder pulls. */
static ssize_t pull_raw(void *ctx, const void **ret, struct err **e)
{
    struct stream *s = ctx;
    ssize_t n = (ssize_t)s->sniffed;

    s->sniffed = 0;
    if (!n)
        n = read_source(s, s->in, IN_SIZE, e);
    if (n <= 0)
        return n;
    s->raw_bytes += (uint64_t)n;
    sha_add(s->raw_sha, s->in, (size_t)n);
    if (s->keep != KEEP_NOTHING && !keeps_plain(s)) {
        int rc = keep_bytes(s, s->in, (size_t)n, e);
        if (rc < 0)
            return rc;
    }
    *ret = s->in;
    return n;
}

static int check_caps(const struct stream *s, struct err **e)
{
    char size[24];

    if (s->plain_bytes > s->caps->max_bytes) {
        format_size(s->caps->max_bytes, size);
        return err_new(e, ERR_LIMIT, "'%s' unpacks to more than %s; --max-size raises the limit",
                       s->label, size);
    }
    if (s->caps->ratio && s->plain_bytes > ratio_from && s->plain_bytes / MAX_RATIO > s->raw_bytes)
        return err_new(e, ERR_LIMIT,
                       "'%s' unpacks to more than %d times its size; if that is meant, say how "
                       "large it may get with --max-size",
                       s->label, MAX_RATIO);
    return 0;
}

int stream_open(int fd, const char *label, const struct caps *caps, enum keep keep, int keep_fd,
                struct stream **ret, struct err **e)
{
    CLEANUP(stream_free_p) struct stream *s = mem_zalloc(sizeof *s);
    ssize_t n;
    int rc;

    s->fd = fd;
    s->label = str_dup(label);
    s->caps = caps;
    s->keep = keep;
    s->keep_fd = keep_fd;
    s->in = mem_zalloc(IN_SIZE);
    s->raw_sha = sha_new();
    while (s->sniffed < 8) {
        if ((n = read_source(s, s->in + s->sniffed, IN_SIZE - s->sniffed, e)) < 0)
            return (int)n;
        if (n == 0)
            break;
        s->sniffed += (size_t)n;
    }
    if (!s->sniffed)
        return err_new(e, ERR_INVALID, "'%s' is empty; a tar of a root file system is wanted",
                       label);
    s->compression = decode_sniff(s->in, s->sniffed);
    if (s->compression != COMPRESS_NONE)
        s->plain_sha = sha_new();
    if ((rc = decoder_open(s->compression, s->label, pull_raw, s, &s->decoder, e)) < 0)
        return rc;
    *ret = TAKE_PTR(s);
    return 0;
}

ssize_t stream_read(struct stream *s, const void **ret, struct err **e)
{
    ssize_t n = decoder_read(s->decoder, ret, e);
    int rc;

    if (n <= 0)
        return n;
    s->plain_bytes += (uint64_t)n;
    if ((rc = check_caps(s, e)) < 0)
        return rc;
    if (s->plain_sha)
        sha_add(s->plain_sha, *ret, (size_t)n);
    if (keeps_plain(s) && (rc = keep_bytes(s, *ret, (size_t)n, e)) < 0)
        return rc;
    return n;
}

int stream_finish(struct stream *s, uint64_t slack, struct stream_sum *ret, struct err **e)
{
    uint64_t taken = s->plain_bytes;
    const void *p;
    ssize_t n;

    while ((n = stream_read(s, &p, e)) > 0)
        if (s->plain_bytes - taken > slack)
            return err_new(e, ERR_INVALID, "'%s' goes on after the end of the archive", s->label);
    if (n < 0)
        return (int)n;
    ret->compression = s->compression;
    ret->raw_digest = sha_digest(s->raw_sha);
    ret->plain_digest = s->plain_sha ? sha_digest(s->plain_sha) : str_dup(ret->raw_digest);
    ret->raw_bytes = s->raw_bytes;
    ret->plain_bytes = s->plain_bytes;
    ret->kept_plain = keeps_plain(s) || s->compression == COMPRESS_NONE;
    return 0;
}

void stream_sum_free_p(struct stream_sum *s)
{
    free(s->raw_digest);
    free(s->plain_digest);
    *s = (struct stream_sum){ 0 };
}

struct stream *stream_free(struct stream *s)
{
    if (!s)
        return NULL;
    decoder_free(s->decoder);
    sha_free(s->raw_sha);
    sha_free(s->plain_sha);
    free(s->label);
    free(s->in);
    free(s);
    return NULL;
}
