#include "runtime/workspace/layer_copy.h"

#include "runtime/workspace/layer_merge_priv.h"

int layer_copy(int src, int dst, struct err **e)
{
    return layer_join(&src, 1, dst, false, NULL, e);
}
