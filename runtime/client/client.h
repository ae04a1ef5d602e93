/* runtime/client/client.h - what the files of this room share. The room is the library: it knows where
 * sandboxes are and how to talk to them, and nothing of plans, mounts or state records.
 *
 * Owns:  its handles and connections; writes nothing but into sandboxes.
 * Uses:  base/, the protocol of petri-init. Never stdout, signals or globals.
 * Crash: a connection that closes ends its command; a file that was not committed never was.
 */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/str.h"
#include "runtime/client/conn.h"
#include "runtime/client/petri.h"

struct petri_client {
    char *data, *run, *program;
};

struct petri_sandbox {
    const struct petri_client *client;
    char id[16];
    char *name; /* for messages: as the caller wrote it, or the ID */
    char *sub;  /* where in the project the caller is, relative; NULL: at its top or elsewhere */
    struct conn files; /* kept for the petri_fs_ calls */
    bool has_files;
};

/* Fill *e, which may be NULL; return -1. client_sys() takes errno and appends its text. */
int client_fail(struct petri_error *e, const char *code, const char *fmt, ...) PRINTF_LIKE(3, 4);
int client_sys(struct petri_error *e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Structs that carry their size: `own` is ours, of n bytes. What the caller's does not have is 0. */
void client_take(void *own, size_t n, const void *theirs);
void client_give(const void *own, size_t n, void *theirs);

/* find.c: which sandbox is meant; fills id, name and sub of *ret. */
int client_find(const struct petri_client *c, const char *name, const char *dir,
                struct petri_sandbox *ret, struct petri_error *e);

/* The name whose link leads to `id`, or NULL; looks at all of them. */
char *client_name_of(const struct petri_client *c, const char *id);

/* Connects to RUN/ID/`door` ("sock" or "ctl"). */
int client_connect(struct petri_sandbox *s, const char *door, struct conn *ret,
                   struct petri_error *e);
/* After a frame that is no answer, or none: which sentence that is. */
int client_lost(const struct petri_sandbox *s, const struct conn *c, struct petri_error *e);

/* user.c: NAME, UID or UID:GID by the sandbox's own /etc/passwd; adds HOME and its like to `env`. */
int client_user(struct petri_sandbox *s, const char *user, uint32_t *ret_uid, uint32_t *ret_gid,
                struct strv *env, struct petri_error *e);

uint64_t client_now_us(void);
