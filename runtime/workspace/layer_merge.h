/* runtime/workspace/layer_merge.h - several frozen layers become one that shows the same.
 *
 * Owns:  nothing but the layer it makes.
 * Uses:  base/. Layers have the overlay file system's format: whiteouts are character devices 0:0,
 *        opaque directories have an attribute. Never follows a link; works in directories of any depth.
 * Crash: an unfinished layer, which nobody names.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { LAYER_MERGE_MOST = 128 }; /* layers at a time: two descriptors each */

/* `layers` are open directories, bottom first, that nobody writes to; `dst` is the new layer's. Each
 * entry (r, w0, ...) but work/ is merged. Files are not copied: a second name of theirs is made, where
 * dst is on the same file system. `userxattr`: the overlays of ordinary users keep their marks in user.*
 * Needs root over all of the files (inside_run). */
int layer_merge(const int *layers, size_t n, int dst, bool userxattr, struct err **e);
