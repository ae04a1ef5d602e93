/* runtime/driver/rootfs_priv.h - what rootfs.c and rootfs_overlay.c share. */
#pragma once
#include "runtime/driver/rootfs.h"

/* Puts a detached mount at `dst` below root, whose place is made. */
int rootfs_attach(const struct rootfs *r, int root, int fd, const char *dst, struct err **e);
/* A link below the home, and the directories above it. A convenience: where an image has something else there,
 * it stays as it is. */
void rootfs_home_link(const struct rootfs *r, int root, const struct plan_mount *m);
/* A system directory as an overlay, writable or free of sockets. */
int rootfs_add_overlay(const struct rootfs *r, int root, const struct plan_mount *m,
                       struct err **e);
/* The root of an image: its layers, and an upper of the sandbox's own. */
int rootfs_image(const struct rootfs *r, struct err **e);
/* The other place of the project's where `dst` shows; NULL: none. The caller frees it. */
char *rootfs_twin(const struct plan *p, const char *dst);
/* Makes what plan.readonly names read-only, at every place where it is seen. The last thing to be mounted. */
int rootfs_protect(const struct plan *p, int root, struct err **e);
int rootfs_overlay(const struct rootfs *r, const char *lowers, const char *like, const char *entry,
                   const char *at, struct err **e);
