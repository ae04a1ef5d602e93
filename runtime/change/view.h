/* runtime/change/view.h - one workspace as a stack of layers, read by the rules of overlayfs.
 *
 * Owns:  the descriptors of its layers. Never writes.
 * Uses:  base/. Every look-up goes down one component at a time with openat(O_NOFOLLOW): no link is
 *        followed, no ".." taken, nothing outside a layer reached, whatever a sandbox does meanwhile.
 *
 * A whiteout (char device 0:0) or a non-directory ends what layers below add to a name; a directory
 * with the xattr trusted.overlay.opaque (root's sandboxes) or user.overlay.opaque (others') "y" ends it
 * below itself.
 */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"
#include "runtime/change/record.h"

enum view_kind { VIEW_ABSENT, VIEW_FILE, VIEW_DIR, VIEW_LINK, VIEW_OTHER };

struct view_layer {
    char *id; /* LID; "" for the project itself */
    int fd;   /* directory (O_PATH); -1: nothing of this workspace in that layer */
    bool
        project; /* the host's directory: names of `hide` are not in it, mounts below it are not entered */
    bool base; /* stands for the project as it was (the project, or the copy of mode `copy`) */
};

struct view {
    struct view_layer *layers; /* top first */
    size_t n;
    struct strv hide; /* relative to the workspace */
    bool trusted;     /* opaque directories are marked by trusted.*, not user.* */
    char *prefix;     /* of the workspace below the project: "" or "sub/mount/" */
};

struct entry {
    enum view_kind kind;
    struct stat st; /* where it is not absent */
    int layer;      /* index of the topmost layer that has it; -1 absent */
};

/* The host: workspace `index` of the record as it is now, without what is hidden. */
int view_host(const struct record *r, size_t index, struct view *ret, struct err **e);
/* The sandbox: now (snap NULL) or at a snapshot. */
int view_sandbox(const struct record *r, const char *snap, size_t index, struct view *ret,
                 struct err **e);
/* The directories `sub` ("r", "x-usr") of the layers alone, with nothing below them. */
int view_layers(const struct record *r, const char *snap, const char *sub, struct view *ret,
                struct err **e);
/* Once all was read: ERR_BUSY where a layer was taken away meanwhile. It gets another name before anything in it
 * is removed, so what was read before is whole otherwise. */
int view_check(const struct record *r, const struct view *v, struct err **e);
void view_free_p(struct view *v);

/* Paths are relative to the workspace, normal, without a leading slash; "" is its root. A path through a
 * link or a file is absent. */
int view_lookup(const struct view *v, const char *path, struct entry *ret, struct err **e);
/* A regular file for reading (O_NONBLOCK); ERR_NOT_FOUND where it is anything else. */
int view_open(const struct view *v, const char *path, int *ret_fd, struct stat *ret_st,
              struct err **e);
/* The text of a symbolic link; ERR_NOT_FOUND where it is anything else. */
int view_readlink(const struct view *v, const char *path, char **ret, struct err **e);
/* The names in a directory, sorted; nothing where it is none. */
int view_list(const struct view *v, const char *path, struct strv *ret, struct err **e);
/* True for a hidden path and everything below it. */
bool view_hidden(const struct view *v, const char *path);

/* A sandbox at work removes what was just found: an error that says no more than that. */
bool view_gone(const struct err *e);

/* --- step by step, for who walks a whole tree ------------------------------------------------------ */

/* A directory of a view: the descriptors of the layers that add to it, top first. */
struct vdir {
    struct vpart {
        int fd;
        int layer;
    } * parts;
    size_t n;
    int cut;    /* the layer whose whiteout, file or opaque directory ends it here; -1: none */
    char *path; /* relative to the workspace */
};
int vdir_root(const struct view *v, struct vdir *ret, struct err **e);
int vdir_lookup(const struct view *v, const struct vdir *d, const char *name, struct entry *ret,
                struct err **e);
/* A regular file, as view_open. `en`: what vdir_lookup() said of it, or NULL. */
int vdir_open_file(const struct view *v, const struct vdir *d, const char *name,
                   const struct entry *en, int *ret_fd, struct stat *ret_st, struct err **e);
int vdir_readlink(const struct view *v, const struct vdir *d, const char *name, char **ret,
                  struct err **e);
/* ERR_NOT_FOUND where `name` is no directory. */
int vdir_open(const struct view *v, const struct vdir *d, const char *name, struct vdir *ret,
              struct err **e);
/* Names in it, sorted, each once: of all layers, or (below > 0) as the layers above index `below`
 * mention them, whiteouts included. */
int vdir_list(const struct view *v, const struct vdir *d, int below, struct strv *ret,
              struct err **e);
void vdir_free_p(struct vdir *d);
