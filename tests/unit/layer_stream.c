/* Bytes on their way in: what is kept, what is hashed, where it stops. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/fs.h"
#include "base/str.h"
#include "image/sha.h"
#include "image/stream.h"

enum { PLAIN = 3 << 20 };
static unsigned char plain[PLAIN];

static const struct caps wide = { .max_bytes = 1ULL << 40, .max_entries = 1000, .ratio = true };

static int file_of(const void *p, size_t n)
{
    int fd = open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fs_write_all(fd, p, n) == 0 && lseek(fd, 0, SEEK_SET) == 0, "file");
    return fd;
}

static void gzip(const void *p, size_t n, struct str *out)
{
    z_stream z = { 0 };
    size_t cap = compressBound(n) + 64;
    AUTOFREE unsigned char *buf = mem_zalloc(cap);

    deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (unsigned char *)p;
    z.avail_in = (uInt)n;
    z.next_out = buf;
    z.avail_out = (uInt)cap;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
    str_addn(out, buf, cap - z.avail_out);
    deflateEnd(&z);
}

static void zstd(const void *p, size_t n, struct str *out)
{
    size_t cap = ZSTD_compressBound(n);
    AUTOFREE unsigned char *buf = mem_zalloc(cap);
    str_addn(out, buf, ZSTD_compress(buf, cap, p, n, 1));
}

static int drain(int fd, const struct caps *caps, enum keep keep, int keep_fd,
                 struct stream_sum *sum, struct err **e)
{
    CLEANUP(stream_free_p) struct stream *s = NULL;
    int rc = stream_open(fd, "x", caps, keep, keep_fd, &s, e);
    return rc < 0 ? rc : stream_finish(s, UINT64_MAX, sum, e);
}

static uint64_t size_of(int fd)
{
    struct stat st;
    CHECK(fstat(fd, &st) == 0, "fstat");
    return (uint64_t)st.st_size;
}

static void kinds(void)
{
    AUTOSTR struct str gz = STR_INIT, gz2 = STR_INIT, zs = STR_INIT, zs2 = STR_INIT, raw = STR_INIT;
    AUTOFREE char *want = sha_of(plain, PLAIN);

    gzip(plain, PLAIN, &gz);
    gzip(plain, 12345, &gz2);
    gzip(plain + 12345, PLAIN - 12345, &gz2);
    zstd(plain, PLAIN, &zs);
    zstd(plain, 12345, &zs2);
    zstd(plain + 12345, PLAIN - 12345, &zs2);
    str_addn(&raw, plain, PLAIN);
    const struct {
        const struct str *in;
        enum compression c;
        bool kept_plain;
    } all[] = {
        { &raw, COMPRESS_NONE, true },  { &gz, COMPRESS_GZIP, false },
        { &gz2, COMPRESS_GZIP, false }, { &zs, COMPRESS_ZSTD, true },
        { &zs2, COMPRESS_ZSTD, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
        AUTOFREE char *raw_want = sha_of(all[i].in->p, all[i].in->len);
        AUTOCLOSE int fd = file_of(all[i].in->p, all[i].in->len), keep = file_of("", 0);
        CHECK(drain(fd, &wide, KEEP_PORTABLE, keep, &sum, NULL) == 0, "kind %zu", i);
        CHECK(sum.compression == all[i].c && sum.kept_plain == all[i].kept_plain, "kind %zu", i);
        CHECK_STR(sum.plain_digest, want);
        CHECK_STR(sum.raw_digest, raw_want);
        CHECK(sum.plain_bytes == PLAIN && sum.raw_bytes == all[i].in->len, "kind %zu", i);
        CHECK(size_of(keep) == (all[i].kept_plain ? PLAIN : all[i].in->len), "kind %zu", i);
    }
    /* every cut is noticed */
    for (size_t cut = 1; cut < gz.len; cut += cut < 64 ? 1 : gz.len / 40) {
        CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
        AUTOCLOSE int fd = file_of(gz.p, gz.len - cut);
        CHECK(drain(fd, &wide, KEEP_NOTHING, -1, &sum, NULL) == -ERR_CORRUPT || gz.len - cut < 3,
              "gzip cut by %zu", cut);
    }
    for (size_t cut = 1; cut < zs.len - 4; cut += cut < 64 ? 1 : zs.len / 40) {
        CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
        AUTOCLOSE int fd = file_of(zs.p, zs.len - cut);
        CHECK(drain(fd, &wide, KEEP_NOTHING, -1, &sum, NULL) == -ERR_CORRUPT, "zstd cut by %zu",
              cut);
    }
}

static void limits(void)
{
    struct caps caps = { .max_bytes = PLAIN, .max_entries = 1 };
    AUTOSTR struct str gz = STR_INIT, bomb = STR_INIT, one = STR_INIT;
    static unsigned char zeros[8 << 20];

    gzip(plain, PLAIN, &gz);
    for (int i = 0; i < 2; i++, caps.max_bytes--) {
        CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
        AUTOCLOSE int fd = file_of(gz.p, gz.len);
        CHECK(drain(fd, &caps, KEEP_NOTHING, -1, &sum, NULL) == (i ? -ERR_LIMIT : 0), "cap %d", i);
    }
    gzip(zeros, sizeof zeros, &one);
    for (int i = 0; i < 40; i++)
        str_addn(&bomb, one.p, one.len);
    for (int ratio = 0; ratio < 2; ratio++) {
        CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
        AUTOCLOSE int fd = file_of(bomb.p, bomb.len);
        struct caps c = { .max_bytes = 1ULL << 40, .ratio = ratio };
        CHECK(drain(fd, &c, KEEP_NOTHING, -1, &sum, NULL) == (ratio ? -ERR_LIMIT : 0), "ratio %d",
              ratio);
    }
}

static void stopping(void)
{
    volatile sig_atomic_t stop = 1;
    struct caps caps = { .max_bytes = 1 << 30, .stop = &stop };
    CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOCLOSE int fd = file_of(plain, 1000);

    CHECK(drain(fd, &caps, KEEP_NOTHING, -1, &sum, &e) == -ERR_FAILED, "stopped");
    CHECK(e && strstr(e->msg, "interrupted"), "says so");
}

int main(void)
{
    unsigned seed = 1;
    for (size_t i = 0; i < PLAIN; i++)
        plain[i] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 20) & 0x3f;
    check_scratch();
    kinds();
    limits();
    stopping();
    check_scratch_end();
    return check_done();
}
