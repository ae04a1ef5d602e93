/* runtime/workspace/workspace.h - the project as the sandbox sees it.
 *
 * Owns:  the directories l<i> (lower) m<i> (mask) u<i> (upper) k<i> (work) w<i> (merged) of the
 *        launcher's scratch file system, which is its working directory; a sandbox that stays has upper
 *        and work in its own layer instead (stack.h).
 * Uses:  base/. Runs in the launcher's mount namespace.
 */
#pragma once
#include "base/err.h"
#include "oci/plan.h"

struct workspace {
    const struct plan *plan;
    const char *src; /* host directory */
    unsigned index;  /* of its scratch directories, of its entry w<i> in layers */
    enum workspace_mode mode;
    const struct strv *hide, *protect; /* relative to src */
    dev_t dev;                         /* what src must still be, where ino is not 0 */
    ino_t ino;
    int userns; /* root: ids of the project's files, else -1 */
    bool rootless;
    bool suid; /* without nosuid: only a weakened test build */
    uid_t uid; /* who a copy belongs to, in the launcher's ids */
    gid_t gid;
};

/* Makes the view; a descriptor of the mounted directory results, to be cloned where it is wanted. */
int workspace_mount(const struct workspace *w, int *ret_fd, struct err **e);

struct changes {
    uint64_t added, modified, deleted;
};
/* Counts what upper directory `u` changed over `lower` (files and links; equal content is none). */
int workspace_changes(int upper, int lower, struct changes *ret, struct err **e);
/* The same for the project's own, in the scratch directory. */
int workspace_count(const struct plan *p, struct changes *ret, struct err **e);
