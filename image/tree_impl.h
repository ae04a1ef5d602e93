/* image/tree_impl.h - what the two halves of image/tree.h share: names and ways (tree_path.c), and
 * the entries themselves (tree.c). */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "image/tree.h"

struct later {
    char *path;
    size_t seq;
    struct tree_meta meta;
};

struct tree {
    int root;
    bool privileged;
    char *parent; /* of the last entry, normal; "" is the root */
    int parent_fd;
    struct later *later;
    size_t n_later, later_bytes;
};

/* "usr/bin/sh" from "./usr//bin/sh"; "" is the root of the layer. */
int tree_normal(const char *path, char **ret, struct err **e);
const char *tree_base(const char *path); /* the last component of a normal path */
bool tree_is_whiteout_node(const struct stat *st);
/* Overlay's mark for "nothing below shows through". */
int tree_set_opaque(struct tree *t, int dirfd, const char *path, struct err **e);
/* The directory that holds `path` (normal, not the root), made where it is missing. */
int tree_enter(struct tree *t, const char *path, int *ret_fd, struct err **e);
void tree_forget_parent(struct tree *t);
