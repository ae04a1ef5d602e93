/* runtime/client/fs.h - one question about files and its answer; shared by fs.c, fs_write.c, fs_dir.c. */
#pragma once
#include "runtime/client/client.h"

struct fs_ask {
    uint32_t op, flags, mode; /* enum proto_fs_op */
    const char *path, *path2;
    const char *shown; /* FS_COMMIT: what it is about */
    /* answer: */
    struct proto_stat st;
    char *target;         /* FS_STAT: a link's text; the caller's */
    int fd;               /* FS_READ, FS_WRITE: a regular file; the caller's */
    struct str *ret_list; /* FS_LS: for each a uint32_t length, struct proto_stat, name, target */
};

/* On the sandbox's kept connection, opened where there is none and once more where it was stale. */
int fs_ask(struct petri_sandbox *s, struct fs_ask *a, struct petri_error *e);
int fs_connect(struct petri_sandbox *s, struct conn *ret, struct petri_error *e);
/* On another one. 1: answered; 0: refused, in *e; -1 with errno: the connection is over. */
int fs_talk(struct conn *c, const struct petri_sandbox *s, struct fs_ask *a, struct petri_error *e);
void fs_give_stat(const struct proto_stat *p, struct petri_stat *ret);
