/* runtime/driver/rootfs.h - the sandbox's root, built in the launcher's mount namespace.
 *
 * One file system (the scratch, sized by the disk limit) holds a read-only skeleton, the writable places
 * (/tmp, /run, the home) and, in a one-shot run, the workspace's changes; the rest are read-only
 * binds.
 */
#pragma once
#include "runtime/driver/dirlayer.h"
#include "runtime/driver/ids.h"
#include "runtime/driver/scratch.h"
#include "runtime/workspace/workspace.h"

struct rootfs {
    const struct plan *plan;
    const struct ids *ids;
    const struct scratch *scratch; /* becomes the working directory */
    const char *init;              /* petri-init on the host */
    const struct dirlayer *dirs;   /* below overlays of user 0; may be NULL */
    const char *skeleton;          /* of a shared root; NULL: one is made in the scratch */
    int userns;                    /* the sandbox's; idmaps the system's files for root, else -1 */
    int project_userns;            /* idmaps the project's files for root, else -1 */
};

#define ROOTFS_INIT "/.petri-init"

/* The scratch directory alone; before the namespaces are needed. */
int rootfs_scratch(const struct rootfs *r, struct err **e);
int rootfs_build(const struct rootfs *r, struct err **e);
