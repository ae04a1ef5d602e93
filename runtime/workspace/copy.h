/* runtime/workspace/copy.h - a detached copy of a directory: reflinks where the file system has
 * them, holes stay holes, times and modes kept; regular files, directories and links only. */
#pragma once
#include "base/err.h"
#include "base/str.h"

/* `skip` holds paths relative to src that stay out; may be NULL. */
int copy_tree(int src, int dst, const struct strv *skip, uid_t uid, gid_t gid, struct err **e);
