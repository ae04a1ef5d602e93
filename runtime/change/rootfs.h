/* runtime/change/rootfs.h - what a sandbox wrote outside of its workspace: paths only. */
#pragma once
#include "base/json.h"
#include "runtime/change/record.h"
#include "runtime/change/render.h"

struct rootfs_change {
    char *path; /* absolute, as the sandbox sees it */
    enum change_kind kind;
    mode_t mode;
    uint64_t size;
};

struct rootfs_changes {
    struct rootfs_change *v; /* sorted by path */
    size_t n;
};

/* `from` (may be NULL): layers that both have are left out. */
int rootfs_find(const struct record *r, const char *snap, const struct strv *from,
                struct rootfs_changes *ret, struct err **e);
void rootfs_free_p(struct rootfs_changes *c);
/* `stat`: with sizes, and how many there are. */
void rootfs_show(const struct render *r, const struct rootfs_changes *c, bool stat);
void rootfs_json(struct jsonw *w, const struct rootfs_changes *c);
