/* image/pack.h - a directory as a layer: a tar whose bytes depend on the tree alone.
 *
 * Names are sorted, owners are numbers, times are whole. Links are never followed and other file
 * systems mounted below are left out. Devices, pipes and sockets are counted, not packed. An
 * ordinary user's own files are recorded as root's: that is who owns a root file system.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "image/stream.h"

/* Writes the tree at dirfd to out_fd. `store_ino`/`store_dev`: a directory to leave out, so that a
 * store below the tree is not packed into itself. */
int pack_tree(int dirfd, const char *label, int out_fd, const struct caps *caps, dev_t store_dev,
              ino_t store_ino, uint64_t *ret_skipped, struct err **e);
