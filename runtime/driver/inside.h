/* runtime/driver/inside.h - work on files of a sandbox whose ids are an ordinary user's range.
 *
 * Files that a sandbox made may belong to ids of /etc/subuid, which only root of a namespace
 * with the same map can own, change and remove.
 * Crash: the child dies with its parent.
 */
#pragma once
#include "runtime/driver/ids.h"

/* Runs f in a child that is root of a user namespace with the launcher's map (as root: in a
 * plain child), and waits for it: it may read and change what the sandbox made, whatever owner and
 * mode that has. What f changes in memory is lost. */
int inside_run(const struct ids *ids, int (*f)(void *arg, struct err **e), void *arg,
               struct err **e);
/* fs_remove_tree for a directory that a sandbox wrote to, whoever owns what is in it. */
int inside_remove(const char *path, struct err **e);
