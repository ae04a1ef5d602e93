#include "image/decode.h"

#include <archive.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/str.h"

enum {
    OUT_SIZE = 256 << 10,
    ZSTD_WINDOW_LOG = 27, /* 128 MiB: what zstd's own tools take without being asked */
};

struct decoder_ops {
    int (*open)(struct decoder *d, struct err **e);
    ssize_t (*read)(struct decoder *d, const void **ret, struct err **e);
    void (*close)(struct decoder *d);
};

struct decoder {
    const struct decoder_ops *ops;
    const char *label;
    decode_pull pull;
    void *ctx;
    struct err *failed; /* from pull, on its way through libarchive */
    const unsigned char *in;
    size_t in_len;
    bool fresh; /* between two members or frames: the input may end here */
    bool full;  /* the last call filled `out`: more may come without further input */
    z_stream z;
    ZSTD_DStream *zstd;
    struct archive *archive;
    unsigned char *out;
};

enum compression decode_sniff(const void *p, size_t n)
{
    static const struct {
        const char *magic;
        size_t n;
        enum compression c;
    } known[] = {
        { "\x1f\x8b\x08", 3, COMPRESS_GZIP },
        { "\x28\xb5\x2f\xfd", 4, COMPRESS_ZSTD },
        { "\xfd"
          "7zXZ\0",
          6, COMPRESS_XZ },
        { "BZh", 3, COMPRESS_BZIP2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (n >= known[i].n && !memcmp(p, known[i].magic, known[i].n))
            return known[i].c;
    return COMPRESS_NONE;
}

/* Makes sure that there is input; 0 at the end of it. */
static ssize_t refill(struct decoder *d, struct err **e)
{
    const void *p;
    ssize_t n;

    if (d->in_len)
        return (ssize_t)d->in_len;
    n = d->pull(d->ctx, &p, e);
    if (n > 0) {
        d->in = p;
        d->in_len = (size_t)n;
    }
    return n;
}

static int broken(struct decoder *d, const char *why, struct err **e)
{
    return err_new(e, ERR_CORRUPT, "'%s' is damaged: %s", d->label, why);
}

/* --- none ------------------------------------------------------------------------------------ */

static ssize_t none_read(struct decoder *d, const void **ret, struct err **e)
{
    ssize_t n = refill(d, e);
    *ret = d->in;
    d->in_len = 0;
    return n;
}

/* --- gzip ------------------------------------------------------------------------------------ */

static int gzip_open(struct decoder *d, struct err **e)
{
    if (inflateInit2(&d->z, 15 + 16) != Z_OK)
        abort();
    return 0;
}

static ssize_t gzip_read(struct decoder *d, const void **ret, struct err **e)
{
    d->z.next_out = d->out;
    d->z.avail_out = OUT_SIZE;
    while (d->z.avail_out == OUT_SIZE) {
        ssize_t n = refill(d, e);
        if (n < 0)
            return n;
        if (n == 0 && !d->full)
            return d->fresh ? 0 : broken(d, "the gzip data end too early", e);
        d->z.next_in = (unsigned char *)d->in;
        d->z.avail_in = (uInt)d->in_len;
        int rc = inflate(&d->z, Z_NO_FLUSH);
        d->in = d->z.next_in;
        d->in_len = d->z.avail_in;
        d->fresh = rc == Z_STREAM_END || (d->fresh && rc == Z_BUF_ERROR);
        d->full = !d->z.avail_out;
        if (rc == Z_STREAM_END)
            inflateReset(&d->z); /* members may follow one another */
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return broken(d, d->z.msg ? d->z.msg : "not gzip data", e);
    }
    *ret = d->out;
    return OUT_SIZE - (ssize_t)d->z.avail_out;
}

static void gzip_close(struct decoder *d)
{
    inflateEnd(&d->z);
}

/* --- zstd ------------------------------------------------------------------------------------ */

static int zstd_open(struct decoder *d, struct err **e)
{
    d->zstd = ZSTD_createDStream();
    if (!d->zstd)
        abort();
    ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG);
    return 0;
}

static ssize_t zstd_read(struct decoder *d, const void **ret, struct err **e)
{
    ZSTD_outBuffer out = { d->out, OUT_SIZE, 0 };

    while (!out.pos) {
        ssize_t n = refill(d, e);
        if (n < 0)
            return n;
        if (n == 0 && !d->full)
            return d->fresh ? 0 : broken(d, "the zstd data end too early", e);
        bool idle = d->fresh && n == 0;
        ZSTD_inBuffer in = { d->in, d->in_len, 0 };
        size_t rc = ZSTD_decompressStream(d->zstd, &out, &in);
        if (ZSTD_isError(rc))
            return broken(d, ZSTD_getErrorName(rc), e);
        d->in += in.pos;
        d->in_len -= in.pos;
        d->fresh = rc == 0 || idle;
        d->full = out.pos == out.size;
    }
    *ret = d->out;
    return (ssize_t)out.pos;
}

static void zstd_close(struct decoder *d)
{
    ZSTD_freeDStream(d->zstd);
}

/* --- xz and bzip2, by libarchive's filters ---------------------------------------------------- */

static la_ssize_t filter_pull(struct archive *a, void *ctx, const void **buf)
{
    struct decoder *d = ctx;
    ssize_t n = d->pull(d->ctx, buf, &d->failed);
    if (n < 0)
        archive_set_error(a, EIO, "source failed");
    return n < 0 ? ARCHIVE_FATAL : n;
}

static int filter_failed(struct decoder *d, struct err **e)
{
    const char *why = archive_error_string(d->archive);
    if (!d->failed)
        return broken(d, why ? why : "can't be decompressed", e);
    int code = (int)d->failed->code;
    if (e) {
        err_free(*e);
        *e = TAKE_PTR(d->failed);
    }
    return -code;
}

static int filter_open(struct decoder *d, struct err **e)
{
    struct archive_entry *entry;

    d->archive = archive_read_new();
    if (!d->archive)
        abort();
    archive_read_support_filter_xz(d->archive);
    archive_read_support_filter_bzip2(d->archive);
    archive_read_support_format_raw(d->archive);
    if (archive_read_open(d->archive, d, NULL, filter_pull, NULL) != ARCHIVE_OK ||
        archive_read_next_header(d->archive, &entry) != ARCHIVE_OK)
        return filter_failed(d, e);
    /* the filter and the source; more would be compression within compression */
    if (archive_filter_count(d->archive) != 2)
        return broken(d, "it is compressed more than once", e);
    return 0;
}

static ssize_t filter_read(struct decoder *d, const void **ret, struct err **e)
{
    la_int64_t offset;
    size_t n = 0;

    while (!n) {
        int rc = archive_read_data_block(d->archive, ret, &n, &offset);
        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc != ARCHIVE_OK)
            return filter_failed(d, e);
    }
    return (ssize_t)n;
}

static void filter_close(struct decoder *d)
{
    archive_read_free(d->archive);
}

static const struct decoder_ops decoders[] = {
    [COMPRESS_NONE] = { NULL, none_read, NULL },
    [COMPRESS_GZIP] = { gzip_open, gzip_read, gzip_close },
    [COMPRESS_ZSTD] = { zstd_open, zstd_read, zstd_close },
    [COMPRESS_XZ] = { filter_open, filter_read, filter_close },
    [COMPRESS_BZIP2] = { filter_open, filter_read, filter_close },
};

int decoder_open(enum compression c, const char *label, decode_pull pull, void *ctx,
                 struct decoder **ret, struct err **e)
{
    struct decoder *d = mem_zalloc(sizeof *d);
    int rc;

    d->ops = &decoders[c];
    d->label = label;
    d->pull = pull;
    d->ctx = ctx;
    d->out = mem_zalloc(OUT_SIZE);
    rc = d->ops->open ? d->ops->open(d, e) : 0;
    if (rc < 0)
        decoder_free(d);
    else
        *ret = d;
    return rc;
}

ssize_t decoder_read(struct decoder *d, const void **ret, struct err **e)
{
    return d->ops->read(d, ret, e);
}

struct decoder *decoder_free(struct decoder *d)
{
    if (!d)
        return NULL;
    if (d->ops->close)
        d->ops->close(d);
    err_free(d->failed);
    free(d->out);
    free(d);
    return NULL;
}
