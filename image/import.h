/* image/import.h - brings images into the store: root file systems, OCI layouts and archives,
 * docker archives.
 * Crash: see image/store.h; until the last step nothing of it can be seen.
 */
#pragma once
#include "base/err.h"
#include "image/change.h"
#include "image/store.h"
#include "image/stream.h"
#include "oci/manifest.h"

struct import_opts {
    const char *source; /* a file, a directory, "-" */
    const char *name;
    const char *message, *platform, *ref; /* may be NULL */
    struct change change;
    bool changed;
    struct caps caps;
};

struct import_result {
    char *ref, *digest;
    uint64_t size; /* of all blobs */
    uint64_t layers, files, skipped;
    char *arch;
};

int import_run(const char *data_dir, const struct import_opts *o, struct import_result *ret,
               struct err **e);
void import_result_free_p(struct import_result *r);

/* --- for the kinds of sources --- */
struct import {
    const struct import_opts *opts;
    struct store store;
    struct stage stage;
    struct caps left; /* what the layers still to come may take */
    char *os, *arch, *variant;
    unsigned n_tmp;
    struct import_result result;
};

/* A layer that is staged: its blob and its tree. */
struct staged {
    char *media_type, *digest, *diff_id;
    uint64_t size;
};

/* Takes one layer from fd; `want` (digest, size) and `diff_id` are what it must turn out to be,
 * where they are not NULL. */
int import_layer(struct import *im, int fd, const char *label, enum keep keep,
                 const struct desc *want, const char *diff_id, struct staged *ret, struct err **e);
void staged_free_p(struct staged *s);
/* Writes the manifest for a config and layers (bottom first), commits under the name asked for. */
int import_manifest(struct import *im, const char *config_digest, size_t config_size,
                    const struct staged *layers, size_t n, struct err **e);
int import_commit(struct import *im, const char *type, const char *digest, uint64_t size,
                  struct err **e);

/* A root file system that is staged as one layer becomes an image. */
int import_rootfs(struct import *im, const char *label, const struct staged *layer, struct err **e);
/* image/layout.c: an OCI image layout in a directory; the manifest is kept byte for byte. */
int import_layout(struct import *im, int dirfd, const char *label, struct err **e);
/* image/docker.c: what `docker save` writes, unpacked in a directory. */
int import_docker(struct import *im, int dirfd, const char *label, struct err **e);
bool import_is_layout(int dirfd);
bool import_is_docker(int dirfd);
/* A regular file below dirfd, read whole, at most MANIFEST_MAX. */
int import_read(int dirfd, const char *path, const char *label, char **ret, size_t *ret_n,
                struct err **e);
