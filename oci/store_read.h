/* oci/store_read.h - the image store, read side: names to unpacked layers and configs.
 * Light on purpose (no libarchive, no TLS library): `petri run --image` goes through here.
 *
 * DATA/images           an OCI image layout; index.json is replaced by rename: readers need no lock
 * DATA/layers/sha256-X/ one unpacked layer: fs/ is its tree, `lock` is held shared (flock) by
 *                       whoever uses it; who removes it holds it exclusively
 * Uses: base/. Crash: nothing is written here.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "oci/image_config.h"
#include "oci/manifest.h"

struct image_info {
    char *name;             /* as stored: "debian:12"; the first one where an ID was asked for */
    char *digest;           /* of the manifest */
    struct strv layer_dirs; /* absolute, top first */
    struct strv env;
    char *workdir, *user; /* never NULL; user "" where the image names none */
    struct strv entrypoint, cmd;
    char *arch; /* "amd64", ...; may be NULL */
    int *locks; /* one per layer, close-on-exec: keep the struct while the layers are used */
    size_t n_locks;
};

/* Finds an image by NAME[:TAG] or ID and takes its layers' locks. */
int store_resolve(const char *data_dir, const char *name, struct image_info *ret, struct err **e);
void image_info_free_p(struct image_info *i);

/* --- parts, for image/ --- */
/* An empty index where there is no store yet. */
int store_index(const char *data_dir, struct index *ret, struct err **e);
/* By NAME[:TAG], or by ID: at least 6 hex digits of the manifest's digest that match one only. */
int store_find(const struct index *i, const char *name, const struct desc **ret, struct err **e);
/* Reads a small blob (manifest, config) and checks its size. */
int store_blob(const char *data_dir, const struct desc *d, char **ret, size_t *ret_len,
               struct err **e);
int store_image(const char *data_dir, const struct desc *d, struct manifest *ret_m,
                struct image_config *ret_c, struct err **e);
/* "sha256-HEX" of a diff id. */
char *store_layer_name(const char *diff_id);
/* "debian" of "debian:latest": how people write it. */
char *store_short_name(const char *ref);
