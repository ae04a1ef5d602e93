/* oci/manifest.h - OCI image indexes and manifests (and docker's schema 2), read strictly.
 * What comes out of here has valid digests and known media types; sizes are only claims.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define MT_INDEX "application/vnd.oci.image.index.v1+json"
#define MT_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define MT_CONFIG "application/vnd.oci.image.config.v1+json"
#define MT_LAYER "application/vnd.oci.image.layer.v1.tar"
#define MT_DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define MT_DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"
#define ANNOTATION_REF "org.opencontainers.image.ref.name"

enum {
    MANIFEST_MAX = 4 << 20, /* bytes of a manifest, an index or an image config */
    MANIFEST_LAYERS_MAX = 256,
};

struct desc {
    char *media_type, *digest;
    uint64_t size;
    char *ref;                 /* the ref.name annotation, or NULL */
    char *os, *arch, *variant; /* of its platform, or NULL */
};

struct index {
    struct json *json; /* everything, so that what others wrote survives a rewrite */
    struct desc *v;
    size_t n;
};

struct manifest {
    struct desc config;
    struct desc *layers; /* bottom first */
    size_t n_layers;
};

bool desc_is_manifest(const struct desc *d);
bool desc_is_index(const struct desc *d);
int index_parse(const char *text, size_t n, struct index *ret, struct err **e);
void index_free_p(struct index *i);
int manifest_parse(const char *text, size_t n, struct manifest *ret, struct err **e);
void manifest_free_p(struct manifest *m);
/* The manifest of an index for a platform; attestations ("unknown") never match. */
const struct desc *index_platform(const struct index *i, const char *os, const char *arch,
                                  const char *variant);
/* The machine's architecture in OCI's words: "amd64", "arm64". */
const char *oci_host_arch(void);
