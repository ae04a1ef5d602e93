/* base/mnt.h - the mount calls a launcher needs, by descriptor, never by a path that the
 * sandbox could have made. All of them work in the caller's own mount namespace. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
    MNT_RO = 1,
    MNT_TOP = 2,  /* not what is mounted below it */
    MNT_SUID = 4, /* without nosuid */
};

/* A detached copy of the mount at `src` (a directory or file), nosuid and nodev, and with the ids of
 * `userns` (-1: as they are). */
int mnt_clone(int dirfd, const char *src, unsigned flags, int userns, int *ret_fd, struct err **e);
/* Puts a detached mount onto the place `target` (an O_PATH descriptor). */
int mnt_attach(int fd, int target, const char *name, struct err **e);

/* Makes the directory `path` below root, one component at a time, never through a link, each new one
 * 0755; an O_PATH descriptor of it results. */
int mnt_mkdirs(int root, const char *path, int *ret_fd, struct err **e);
/* The same for an empty file as a place for a bind. */
int mnt_mkfile(int root, const char *path, int *ret_fd, struct err **e);
/* Files made from here on belong to uid:gid; root launcher only, else nothing happens. */
void mnt_act_as(uid_t uid, gid_t gid);
