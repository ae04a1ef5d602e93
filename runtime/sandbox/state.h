/* runtime/sandbox/state.h - the directory of a sandbox in the store, and its record.
 *
 * Owns:  DATA/sandboxes/ID: lock, state.json, log, files/ (a run whose scratch is a directory);
 *        DATA/names/NAME and DATA/projects/DEV-INO: links whose text is an ID.
 * Alive: whoever runs the sandbox, or changes its record, holds the lock; nothing else says so.
 * Crash: the record is replaced as a whole, and one record names all of a sandbox's layers: it has either the old
 *        or the new ones. A directory without a record whose lock is free is garbage, and so is a link
 *        that leads nowhere: swept.
 */
#pragma once
#include "base/err.h"
#include "base/paths.h"
#include "oci/plan.h"
#include "runtime/driver/ids.h"

enum { STATE_SCHEMA = 2 };

struct snapshot {
    char *id, *created, *message;
    struct strv chain; /* layers, bottom first */
};

struct state {
    uint64_t schema;
    char *id, *name, *created, *project, *image, *mode, *ids, *parent, *top;
    char *cgroup; /* cgroup_record() of the last start */
    uint64_t project_dev, project_ino, owner_uid, owner_gid;
    uint64_t uid, gid;           /* inside */
    uint64_t user_uid, user_gid; /* the same user on disk */
    struct strv options;         /* flags as they were given: "memory=1G" */
    struct strv configured;      /* those of them that came from configuration */
    struct strv labels, hide, readonly, workspaces;
    struct strv image_layers; /* of its image when it was made, top first */
    struct strv chain;        /* frozen layers, bottom first; `top` takes the writes */
    struct snapshot *snaps;
    size_t n_snaps;
    uint64_t n_taken;               /* snapshots ever: the next one's number is one higher */
    bool own;                       /* the project's own sandbox: meant where none is named */
    uint64_t stamp_sec, stamp_nsec; /* the project's clock when the sandbox was made */
    /* a fork: all operations of the journal below this number were done before it; 0: not known */
    uint64_t journal_next;
    bool ran; /* a kept run: */
    uint64_t exit_status;
    bool running; /* not in the record: the lock is held */
};
void state_free_p(struct state *s);
#define AUTOSTATE CLEANUP(state_free_p)

/* What a plan says, in a record's words; ids as planned. */
void state_from_plan(struct state *s, const struct plan *p, const struct ids *ids);
/* The number below which every operation of the journal is done: of the first that is not, or of the next one. */
uint64_t state_journal_next(const struct paths *paths);
/* What may not be seen and what may not be written, as this start has it. */
void state_take_paths(struct state *s, const struct plan *p);
/* Seconds of the epoch as "2026-01-31T12:00:00Z"; now. */
char *state_now(void);

/* DATA/sandboxes/ID; the caller frees it. */
char *state_dir(const struct paths *paths, const char *id);
/* Makes the directory and takes the lock; then a name for it, ERR_EXISTS where it is taken. */
int state_create(const struct paths *paths, const char *id, int *ret_lock, struct err **e);
int state_name(const struct paths *paths, const char *id, const char *name, struct err **e);
/* The project's own sandbox, from now on; ERR_BUSY where it has one. */
int state_own(const struct paths *paths, const struct state *s, struct err **e);
/* The lock of an existing one: ERR_BUSY where it runs or somebody works on it. */
int state_lock(const struct paths *paths, const char *id, int *ret_lock, struct err **e);
/* Under the lock. */
int state_write(const struct paths *paths, const struct state *s, struct err **e);
int state_read(const struct paths *paths, const char *id, struct state *ret, struct err **e);
/* The record as it is written. */
int state_text(const struct paths *paths, const char *id, char **ret, struct err **e);
/* Record, links, directory; layers stay until the next sweep. The caller holds the lock. */
int state_remove(const struct paths *paths, const char *id, struct err **e);
/* The same of one whose keeper failed to start it, and may not have gone yet; not where somebody else has taken it. */
void state_remove_left(const struct paths *paths, const char *id);
/* Removes what runs and keepers that were killed left; true: a sandbox that may have layers was among it. */
bool state_sweep(const struct paths *paths);
/* Every sandbox with a record, by time of creation; the caller frees the array and its members. */
int state_list(const struct paths *paths, struct state **ret, size_t *ret_n, struct err **e);
