/* runtime/workspace/layer_merge_priv.h - what copying one layer and merging several have in common. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* `marks`: what the names of overlay attributes begin with; NULL for a single layer, which stays as it is. */
int layer_join(const int *layers, size_t n, int dst, bool same_file, const char *marks,
               struct err **e);
