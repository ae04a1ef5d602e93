/* runtime/driver/dirlayer.h - what lets user 0 install packages in an ordinary user's sandbox.
 *
 * Inside, files of the host's root are nobody's, and an overlay can't copy up what is nobody's.
 * So a layer comes between the sandbox's changes and the host's tree that holds its directories
 * only, owned by the sandbox's root: new files can be made everywhere, and all files are still
 * the host's own. Of the package databases the layer also holds the files, since dpkg and apt
 * change them.
 *
 * Owns: LAYERS/dirs-TREE-MODE-ID/ (lock, gen-KEY/tree); nobody else writes there.
 * Uses: base/, ids. Made at the first -u 0, in a user namespace with the launcher's map;
 *        seconds.
 * Crash: a layer appears by rename(2) after syncfs(2); what a killed builder left is swept by
 *        the next.
 *
 * With a range of ids (mode sub) the layer's files belong to ids of that range: whoever removes
 * it must do so in a user namespace with the same map.
 */
#pragma once
#include "oci/plan.h"
#include "runtime/driver/ids.h"

struct dirlayer_tree {
    char *dst;  /* the mount of the plan that it belongs to */
    char *path; /* the layer */
    bool whole; /* it replaces the host's tree; else it lies on top of it */
    int hold;   /* as long as it is open, in any process, nobody removes the layer */
};

struct dirlayer {
    struct dirlayer_tree *v;
    size_t n;
};

/* Layers for the writable system directories of a plan, made where they are missing or stale; none
 * for root's sandboxes and for users other than 0. on_build, if not NULL, is called once before that
 * takes its time. */
int dirlayer_open(const char *layers, const struct plan *p, const struct ids *ids,
                  void (*on_build)(void), struct dirlayer *ret, struct err **e);
/* NULL: the tree needs none. */
const struct dirlayer_tree *dirlayer_for(const struct dirlayer *d, const char *dst);
void dirlayer_free_p(struct dirlayer *d);
