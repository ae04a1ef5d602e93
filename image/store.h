/* image/store.h - the image store, write side. oci/store_read.h says what lies where.
 *
 * An import works in a stage, a directory of its own; commit moves blobs and layers into place and
 * then replaces index.json, all under the store's lock. Removal goes the other way round.
 * Owns:  DATA/images, DATA/layers; nobody else writes there.
 * Crash: what was staged is invisible and swept by the next command that writes (a living stage
 *        holds its own lock); blobs and layers without a name are swept with the next removal.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct store {
    char *data;
    int layers_fd, blobs_fd;
};

struct stage {
    int layers_fd; /* of the store */
    char *name;    /* below layers/ */
    int fd;        /* holds blobs/ and layers/, named as in the store */
};

int store_open(const char *data_dir, struct store *ret, struct err **e);
void store_close_p(struct store *s);

/* Makes an empty stage; sweeps what dead ones left. */
int stage_open(const struct store *s, struct stage *ret, struct err **e);
/* Removes it with everything still in it. */
void stage_close_p(struct stage *g);
/* Puts a small blob in; ret_digest may be NULL. */
int stage_blob(const struct stage *g, const void *p, size_t n, char **ret_digest, struct err **e);
/* Makes everything staged durable and visible under the name `ref` ("name:tag"), which it takes
 * from whoever had it. */
int stage_commit(const struct store *s, const struct stage *g, const char *ref,
                 const char *manifest_type, const char *manifest_digest, uint64_t manifest_size,
                 struct err **e);

struct removed {
    struct strv names;            /* references that went */
    uint64_t blobs, layers, busy; /* busy: layers that a running sandbox holds */
};

/* Takes away names (or IDs with all their names), then what no name leads to any more. None is
 * taken away when one of them is unknown. */
int store_remove(const struct store *s, char **names, size_t n, struct removed *ret,
                 struct err **e);
void removed_free_p(struct removed *r);
