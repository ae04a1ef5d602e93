/* runtime/driver/rootfs_priv.h - what rootfs.c and rootfs_overlay.c share. */
#pragma once
#include "runtime/driver/rootfs.h"

/* Puts a detached mount at `dst` below root, whose place is made. */
int rootfs_attach(const struct rootfs *r, int root, int fd, const char *dst, struct err **e);
/* The links below the home from plan.mounts[first] on, if it is the first of them, and the directories above each. A
 * convenience: where an image has something else there, it stays as it is. */
void rootfs_home_links(const struct rootfs *r, int root, size_t first);
/* A system directory as an overlay, writable or free of sockets. */
int rootfs_add_overlay(const struct rootfs *r, int root, const struct plan_mount *m,
                       struct err **e);
/* The root of an image: its layers, and an upper of the sandbox's own. */
int rootfs_image(const struct rootfs *r, struct err **e);
/* The other place of the project's where `dst` shows; NULL: none. The caller frees it. */
char *rootfs_twin(const struct plan *p, const char *dst);
/* Makes what plan.readonly names read-only, at every place where it is seen. The last thing to be mounted. */
int rootfs_protect(const struct plan *p, int root, struct err **e);
/* Puts an attached copy of `src` at the scratch name `name`, for use as a lower. */
int rootfs_lower(const struct rootfs *r, const char *src, int userns, const char *name,
                 struct err **e);
/* A place for everything that will be mounted, below an empty directory of the sandbox's root. */
int rootfs_places(const struct rootfs *r, int skel, struct err **e);
int rootfs_overlay(const struct rootfs *r, const char *lowers, const char *like, const char *entry,
                   const char *at, struct err **e);
