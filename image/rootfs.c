/* image/rootfs.c - config and manifest of an image that petri makes itself. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "image/import.h"
#include "oci/image_config.h"

static void now_text(char buf[32])
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    uint64_t secs;
    time_t t = fixed && parse_uint(fixed, INT32_MAX, &secs, NULL) == 0 ? (time_t)secs : time(NULL);
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int write_config(struct import *im, const struct staged *layer, char **ret_digest,
                        size_t *ret_size, struct err **e)
{
    CLEANUP(image_config_free_p) struct image_config check = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    char now[32];
    int rc;

    now_text(now);
    jw_obj(&w, NULL);
    jw_str(&w, "created", now);
    jw_str(&w, "architecture", im->arch);
    if (im->variant)
        jw_str(&w, "variant", im->variant);
    jw_str(&w, "os", im->os);
    jw_obj(&w, "config");
    change_write(&im->opts->change, &w);
    jw_end_obj(&w);
    jw_obj(&w, "rootfs");
    jw_str(&w, "type", "layers");
    jw_arr(&w, "diff_ids");
    jw_str(&w, NULL, layer->diff_id);
    jw_end_arr(&w);
    jw_end_obj(&w);
    jw_arr(&w, "history");
    jw_obj(&w, NULL);
    jw_str(&w, "created", now);
    jw_str(&w, "created_by", "petri image import");
    if (im->opts->message)
        jw_str(&w, "comment", im->opts->message);
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    if (w.out.len > MANIFEST_MAX)
        return err_new(e, ERR_LIMIT, "--change and --message are too long");
    /* what a run would refuse is refused now */
    if ((rc = image_config_parse(w.out.p, w.out.len, &check, e)) < 0)
        return err_wrap(e, "--change");
    *ret_size = w.out.len;
    return stage_blob(&im->stage, w.out.p, w.out.len, ret_digest, e);
}

static void write_desc(struct jsonw *w, const char *key, const char *type, const char *digest,
                       uint64_t size)
{
    jw_obj(w, key);
    jw_str(w, "mediaType", type);
    jw_str(w, "digest", digest);
    jw_u64(w, "size", size);
    jw_end_obj(w);
}

int import_manifest(struct import *im, const char *config_digest, size_t config_size,
                    const struct staged *layers, size_t n, struct err **e)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *digest = NULL;
    int rc;

    jw_obj(&w, NULL);
    jw_int(&w, "schemaVersion", 2);
    jw_str(&w, "mediaType", MT_MANIFEST);
    write_desc(&w, "config", MT_CONFIG, config_digest, config_size);
    jw_arr(&w, "layers");
    for (size_t i = 0; i < n; i++) {
        write_desc(&w, NULL, layers[i].media_type, layers[i].digest, layers[i].size);
        im->result.size += layers[i].size;
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    im->result.size += config_size;
    im->result.layers = n;
    if ((rc = stage_blob(&im->stage, w.out.p, w.out.len, &digest, e)) < 0)
        return rc;
    return import_commit(im, MT_MANIFEST, digest, w.out.len, e);
}

int import_commit(struct import *im, const char *type, const char *digest, uint64_t size,
                  struct err **e)
{
    im->result.size += size;
    im->result.digest = str_dup(digest);
    return stage_commit(&im->store, &im->stage, im->result.ref, type, digest, size, e);
}

int import_rootfs(struct import *im, const char *label, const struct staged *layer, struct err **e)
{
    AUTOFREE char *config = NULL;
    size_t n;
    int rc;

    if (!im->result.files)
        return err_new(e, ERR_INVALID, "'%s' holds no files", label);
    im->result.arch = str_dup(im->arch);
    if ((rc = write_config(im, layer, &config, &n, e)) < 0)
        return rc;
    return import_manifest(im, config, n, layer, 1, e);
}
