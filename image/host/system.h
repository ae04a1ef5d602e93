/* image/host/system.h - the machine's own system directories as the sandbox's root.
 * Owns:  nothing; describes mounts, makes none.
 * Uses:  base/, oci/plan.h. Looks at names, never at trees: a start must not cost a walk.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "oci/plan.h"

/* Adds /usr, /opt, the links or directories in front of them, the package databases (read-only),
 * the empty directories of a normal system, and what is writable: /tmp, /var/tmp, /run and `home`
 * (inside). Files and directories below that hold secrets by habit are hidden by name.
 * With root_construction also the directories that package scripts write to.
 * Order matters: later entries may lie below earlier ones. */
int host_system_mounts(const char *home, bool root_construction, struct plan_mounts *ret,
                       struct err **e);

/* Whether somebody listens on a socket in the directory, of the first 100,000 names: services with a network or mount
 * namespace of their own are in no table. */
bool host_socket_below(const char *path);
/* The dst of every bind in `mounts` that can't be a plain bind because a socket of the host lies
 * in it: such a tree must come in as an overlay lower, where the kernel refuses sockets. Call it
 * with system and tool-chain mounts together; where it can't be told, all of them. */
int host_socket_trees(const struct plan_mounts *mounts, struct strv *ret_overlay, struct err **e);

/* Hides mounts of the host below the binds in `mounts` that a recursive bind would bring along:
 * procfs, sysfs and the like of a chroot, shares, and parts of /home, /var, ... that are mounted a
 * second time. Call it last, with system and tool-chain mounts together. */
int host_hide_submounts(struct plan_mounts *mounts, struct err **e);

/* True for a path below the system directories that the sandbox sees. */
bool host_system_path(const char *path);

/* The same with the machine's root elsewhere, for tests. */
int host_system_mounts_at(const char *root, const char *home, bool root_construction,
                          struct plan_mounts *ret, struct err **e);
int host_hide_submounts_in(const char *table, struct plan_mounts *mounts, struct err **e);
int host_socket_trees_in(const char *table, const struct plan_mounts *mounts,
                         struct strv *ret_overlay, struct err **e);
