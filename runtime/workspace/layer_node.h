/* runtime/workspace/layer_node.h - one entry of a layer made again elsewhere: content, holes, owner,
 * mode, times, attributes, and which names are the same file.
 *
 * Owns:  the directory `.links` of the layer that is being made: a name of each file that has several.
 * Crash: it stays there; a layer that was not finished is nobody's, and goes as a whole.
 */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

struct nodes {
    int top;     /* the layer that is being made */
    int links;   /* its `.links`, -1: not needed yet */
    char *names; /* buffers for attributes */
    char *value;
    bool same_file; /* a second name of the same file instead of a copy, where that goes */
};

void nodes_init(struct nodes *n, int top, bool same_file);
/* Removes .links; call it in any case. */
int nodes_end(struct nodes *n, struct err **e);

bool node_is_whiteout(const struct stat *st);
/* The content of a file of `size` bytes, shared where the file system can; holes stay holes. 0, or -1 with errno:
 * ESTALE where the file got shorter meanwhile. */
int node_copy_data(int in, int out, off_t size);
/* Makes sdir/name, which is no directory, in ddir; `path` is for messages. */
int node_put(struct nodes *n, int sdir, int ddir, const char *name, const struct stat *st,
             const char *path, struct err **e);
/* Gives the directory `d` what `s` has, but for the attribute `skip`. Its content must be complete: the
 * time is part of it. */
int node_finish_dir(struct nodes *n, int s, int d, const char *skip, const char *path,
                    struct err **e);
