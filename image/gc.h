/* image/gc.h - takes away what nothing leads to any more; all of it under the store's lock. */
#pragma once
#include "image/store.h"

#define GC_STAGE_PREFIX ".stage-"

/* Removes stages whose process is gone, and temporary files of index.json. */
void gc_sweep_stages(const struct store *s);
/* Removes blobs and layers that no image of the index uses; a layer in use by a sandbox stays and
 * is counted. An image that can't be read stops it: what it needs is not known then. */
int gc_unused(const struct store *s, struct removed *r, struct err **e);
