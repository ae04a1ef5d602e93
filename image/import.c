#include "image/import.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/layer.h"
#include "image/pack.h"
#include "oci/digest.h"
#include "oci/ref.h"
#include "oci/store_read.h"

static void import_free_p(struct import *im)
{
    stage_close_p(&im->stage);
    store_close_p(&im->store);
    free(im->os);
    free(im->arch);
    free(im->variant);
    import_result_free_p(&im->result);
}

void import_result_free_p(struct import_result *r)
{
    free(r->ref);
    free(r->digest);
    free(r->arch);
    *r = (struct import_result){ 0 };
}

void staged_free_p(struct staged *s)
{
    free(s->media_type);
    free(s->digest);
    free(s->diff_id);
    *s = (struct staged){ 0 };
}

/* --- one layer ------------------------------------------------------------------------------- */

/* stage/layers/.new-N with `lock` and fs/; the tree is filled through ret_fs. */
static int new_tree(struct import *im, unsigned n, int *ret_fs, struct err **e)
{
    AUTOFREE char *dir = str_printf("layers/.new-%u", n), *fs = path_join(dir, "fs"),
                  *lock = path_join(dir, "lock");
    AUTOCLOSE int fd = -1, lock_fd = -1;
    int stage = im->stage.fd;

    if (mkdirat(stage, dir, 0700) < 0 || mkdirat(stage, fs, 0755) < 0 ||
        (lock_fd = openat(stage, lock, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0 ||
        (fd = openat(stage, fs, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fchmod(fd, 0755) < 0)
        return err_sys(e, "make a layer's directory in the store");
    *ret_fs = TAKE_FD(fd);
    return 0;
}

static int check_sum(const struct stream_sum *sum, const char *label, const struct desc *want,
                     const char *diff_id, struct err **e)
{
    if (want && want->size != sum->raw_bytes)
        return err_new(e, ERR_CORRUPT, "'%s' has %llu bytes, its manifest says %llu", label,
                       (unsigned long long)sum->raw_bytes, (unsigned long long)want->size);
    if (want && strcmp(want->digest, sum->raw_digest))
        return err_new(e, ERR_CORRUPT, "'%s' has the digest %s, its manifest says %s", label,
                       sum->raw_digest, want->digest);
    if (diff_id && strcmp(diff_id, sum->plain_digest))
        return err_new(e, ERR_CORRUPT, "'%s' unpacks to %s, its config says %s", label,
                       sum->plain_digest, diff_id);
    return 0;
}

/* Gives blob and tree their names. The same layer twice in one image is one layer. */
static int name_layer(struct import *im, unsigned n, const char *blob, const struct stream_sum *sum,
                      struct err **e)
{
    AUTOFREE char *layer = store_layer_name(sum->plain_digest);
    AUTOFREE char *to_layer = path_join("layers", layer), *from = str_printf("layers/.new-%u", n),
                  *to_blob = path_join(
                      "blobs", digest_hex(sum->kept_plain ? sum->plain_digest : sum->raw_digest));
    int stage = im->stage.fd;

    if (renameat(stage, blob, stage, to_blob) < 0)
        return err_sys(e, "name a blob");
    if (renameat(stage, from, stage, to_layer) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return err_sys(e, "name a layer");
    return fs_remove_tree(stage, from, e);
}

static void count(struct import *im, const struct layer_stats *stats, const struct stream_sum *sum)
{
    uint64_t bytes = stats->bytes > sum->plain_bytes ? stats->bytes : sum->plain_bytes;

    im->left.max_bytes -= bytes < im->left.max_bytes ? bytes : im->left.max_bytes;
    im->left.max_entries -= stats->entries;
    im->result.files += stats->entries - stats->skipped - stats->whiteouts;
    im->result.skipped += stats->skipped;
}

/* Unpacks and hashes into stage/layers/.new-N and `blob`. */
static int take_stream(struct import *im, int fd, const char *label, enum keep keep, unsigned n,
                       const char *blob, int *ret_fs, struct layer_stats *stats,
                       struct stream_sum *ret, struct err **e)
{
    CLEANUP(stream_free_p) struct stream *s = NULL;
    AUTOCLOSE int blob_fd = -1, fs = -1;
    int rc;

    if (keep != KEEP_NOTHING &&
        (blob_fd = openat(im->stage.fd, blob, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0)
        return err_sys(e, "make a blob in the store");
    if ((rc = new_tree(im, n, &fs, e)) < 0 ||
        (rc = stream_open(fd, label, &im->left, keep, blob_fd, &s, e)) < 0 ||
        (rc = layer_unpack(s, label, fs, &im->left, stats, e)) < 0 ||
        (rc = stream_finish(s, LAYER_SLACK, ret, e)) < 0)
        return rc;
    *ret_fs = TAKE_FD(fs);
    return 0;
}

static void describe(const struct stream_sum *sum, struct staged *ret)
{
    bool plain = sum->kept_plain;

    ret->media_type = str_dup(plain                               ? MT_LAYER
                              : sum->compression == COMPRESS_GZIP ? MT_LAYER "+gzip"
                                                                  : MT_LAYER "+zstd");
    ret->digest = str_dup(plain ? sum->plain_digest : sum->raw_digest);
    ret->diff_id = str_dup(sum->plain_digest);
    ret->size = plain ? sum->plain_bytes : sum->raw_bytes;
}

int import_layer(struct import *im, int fd, const char *label, enum keep keep,
                 const struct desc *want, const char *diff_id, struct staged *ret, struct err **e)
{
    CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
    unsigned n = im->n_tmp++;
    AUTOFREE char *blob = str_printf("blobs/.new-%u", n);
    struct layer_stats stats;
    AUTOCLOSE int fs = -1;
    int rc;

    if ((rc = take_stream(im, fd, label, keep, n, blob, &fs, &stats, &sum, e)) < 0 ||
        (rc = check_sum(&sum, label, want, diff_id, e)) < 0 ||
        (rc = name_layer(im, n, blob, &sum, e)) < 0)
        return rc;
    count(im, &stats, &sum);
    describe(&sum, ret);
    return 0;
}

/* --- sources --------------------------------------------------------------------------------- */

/* A tar of files is a layer as it is. One of an image is unpacked all the same, and then read from
 * where it lies: so a pipe will do. */
static int import_tar(struct import *im, int fd, const char *label, struct err **e)
{
    CLEANUP(stream_sum_free_p) struct stream_sum sum = { 0 };
    CLEANUP(staged_free_p) struct staged layer = { 0 };
    unsigned n = im->n_tmp++;
    AUTOFREE char *blob = str_printf("blobs/.new-%u", n);
    struct layer_stats stats;
    AUTOCLOSE int fs = -1;
    int rc;

    if ((rc = take_stream(im, fd, label, KEEP_PORTABLE, n, blob, &fs, &stats, &sum, e)) < 0)
        return rc;
    if (import_is_layout(fs))
        return import_layout(im, fs, label, e);
    if (import_is_docker(fs))
        return import_docker(im, fs, label, e);
    if (im->opts->ref)
        return err_new(e, ERR_USAGE, "--ref chooses an image of an archive; '%s' is a file system",
                       label);
    if ((rc = name_layer(im, n, blob, &sum, e)) < 0)
        return rc;
    count(im, &stats, &sum);
    describe(&sum, &layer);
    return import_rootfs(im, label, &layer, e);
}

static int import_dir(struct import *im, int dirfd, const char *label, struct err **e)
{
    CLEANUP(staged_free_p) struct staged layer = { 0 };
    AUTOCLOSE int tar = openat(im->stage.fd, "pack", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    uint64_t skipped = 0;
    struct stat st;
    int rc;

    if (import_is_layout(dirfd))
        return import_layout(im, dirfd, label, e);
    if (im->opts->ref)
        return err_new(e, ERR_USAGE, "--ref chooses an image of a layout; '%s' is a file system",
                       label);
    if (tar < 0 || stat(im->store.data, &st) < 0)
        return err_sys(e, "make a file in the store");
    if ((rc = pack_tree(dirfd, label, tar, &im->left, st.st_dev, st.st_ino, &skipped, e)) < 0)
        return rc;
    if (lseek(tar, 0, SEEK_SET) < 0)
        return err_sys(e, "read the packed tree");
    if ((rc = import_layer(im, tar, label, KEEP_AS_IS, NULL, NULL, &layer, e)) < 0)
        return rc;
    im->result.skipped += skipped;
    return import_rootfs(im, label, &layer, e);
}

/* "linux/arm64/v8"; what is not given is the machine's own. */
static int set_platform(struct import *im, const char *text, struct err **e)
{
    AUTOFREE char *copy = str_dup(text ? text : "linux");
    char *save = NULL, *os = strtok_r(copy, "/", &save), *arch = strtok_r(NULL, "/", &save),
         *variant = strtok_r(NULL, "/", &save);

    if (!os || strcmp(os, "linux") || strtok_r(NULL, "/", &save) || strlen(copy) > 60 ||
        (arch && strspn(arch, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(arch)) ||
        (variant && strspn(variant, "abcdefghijklmnopqrstuvwxyz0123456789.") != strlen(variant)))
        return err_new(e, ERR_USAGE, "platform '%s' is not linux/ARCH[/VARIANT]", text);
    im->os = str_dup("linux");
    im->arch = str_dup(arch ? arch : oci_host_arch());
    im->variant = str_dup(variant);
    return 0;
}

static int open_source(const char *source, struct stat *ret_st, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = strcmp(source, "-") ? open(source, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);

    if (fd < 0 || fstat(fd, ret_st) < 0)
        return err_sys(e, "open '%s'", source);
    if (isatty(fd))
        return err_new(e, ERR_USAGE, "'%s' is a terminal; give a tar file, or pipe one in", source);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int parse_name(struct import *im, const char *name, struct err **e)
{
    CLEANUP(ref_free_p) struct ref r = { 0 };
    int rc = ref_parse(name, &r, e);

    if (rc < 0)
        return rc;
    if (!strcmp(r.name, "host"))
        return err_new(e, ERR_INVALID,
                       "the image 'host' is built in (this machine); choose another name");
    im->result.ref = ref_text(&r);
    return 0;
}

int import_run(const char *data_dir, const struct import_opts *o, struct import_result *ret,
               struct err **e)
{
    CLEANUP(import_free_p)
    struct import im = {
        .opts = o,
        .left = o->caps,
        .store = { .layers_fd = -1, .blobs_fd = -1 },
        .stage = { .layers_fd = -1, .fd = -1 },
    };
    const char *label = strcmp(o->source, "-") ? o->source : "standard input";
    AUTOCLOSE int fd = -1;
    struct stat st;
    int rc;

    if ((rc = parse_name(&im, o->name, e)) < 0 || (rc = set_platform(&im, o->platform, e)) < 0 ||
        (rc = open_source(o->source, &st, &fd, e)) < 0 ||
        (rc = store_open(data_dir, &im.store, e)) < 0 ||
        (rc = stage_open(&im.store, &im.stage, e)) < 0)
        return rc;
    rc = S_ISDIR(st.st_mode) ? import_dir(&im, fd, label, e) : import_tar(&im, fd, label, e);
    if (rc < 0)
        return rc;
    *ret = im.result;
    im.result = (struct import_result){ 0 };
    return 0;
}
