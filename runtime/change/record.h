/* runtime/change/record.h - what diff and promote need to know about a sandbox.
 *
 * Owns:  nothing; DATA/sandboxes/ID/state.json belongs to runtime/sandbox and is only read here.
 *        Members that are not known are skipped, a schema that is newer is refused.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/str.h"

enum { RECORD_SCHEMA = 2 };

enum record_mode { RECORD_OVERLAY, RECORD_COPY, RECORD_BIND };
enum record_ids { RECORD_IDS_ROOT, RECORD_IDS_SINGLE, RECORD_IDS_SUB };

struct snapshot {
    char *id, *created, *message;
    struct strv chain; /* bottom first */
};

struct record {
    char *data; /* the store it was read from */
    char *id, *name, *image;
    char *project; /* absolute */
    dev_t project_dev;
    ino_t project_ino;
    uid_t owner_uid, user_uid; /* user_uid: what the sandbox's user is on disk */
    gid_t owner_gid, user_gid;
    enum record_mode mode;
    enum record_ids ids;
    struct strv hide;       /* relative to the project */
    struct strv readonly;   /* relative to the project */
    struct strv workspaces; /* absolute; [0] is the project, [i] lies in w<i> of each layer */
    struct strv chain;      /* frozen layers, bottom first */
    char *top;              /* the writable one */
    struct snapshot *snapshots;
    size_t n_snapshots;
    struct timespec stamp; /* the project's clock at creation, {0,0}: not recorded */
};

/* `word`: a name, an id or its beginning, or NULL for the sandbox of the project that the working directory
 * is in (runtime/client/find.c). */
int record_load(const char *data, const char *word, struct record *ret, struct err **e);
void record_free_p(struct record *r);
/* The text of a state.json. */
int record_parse(const char *data, const char *id, const char *text, size_t n, struct record *ret,
                 struct err **e);
/* "NAME" or "NAME@SNAP" ("@SNAP" means the project's own sandbox); *ret_snap is NULL without one. */
int record_load_at(const char *data, const char *word, struct record *ret, char **ret_snap,
                   struct err **e);
/* The layers of the sandbox as it is now (snap NULL) or as a snapshot kept it, top first. */
int record_layers(const struct record *r, const char *snap, struct strv *ret, struct err **e);
/* What to call it in a message: its name, else its id. */
const char *record_label(const struct record *r);
/* The project's root directory, only while it still is the one that `start` saw: an O_PATH descriptor
 * that openat2 takes. ERR_NOT_FOUND: gone; ERR_DENIED: another directory lies there now. */
int record_open_project(const struct record *r, int *ret_fd, struct err **e);

/* Runs f where every file of the sandbox's layers can be read: as root here and now, for an ordinary user
 * in a child that is root of a user namespace with the sandbox's ids (what f changes in memory is lost
 * then; share it by mmap(MAP_SHARED) or a pipe). */
int record_run_inside(const struct record *r, int (*f)(void *arg, struct err **e), void *arg,
                      struct err **e);
