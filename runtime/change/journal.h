/* runtime/change/journal.h - operations on projects, and what they replaced.
 *
 * Owns:  DATA/journal: one directory per operation, numbered upwards; `lock.DEV-INO` per project. In it
 *          op.json    what it is: kind, sandbox, project, change, time
 *          stage.json directories in which files of this operation may lie under names of its own
 *          plan.json  every file with what was and what is to be; there = everything is on disk
 *          old        contents that were replaced, one behind the other
 *          done       every file is in its place
 *          dirs.json  directories it worked in, as it left them (known.h)
 *          kept/      versions of files that recovery left alone
 *        While it works the directory is called N.open.
 * Crash: N.open without plan.json: nothing in the project changed. With it: recover.h.
 */
#pragma once
#include <sys/types.h>

#include "base/str.h"
#include "runtime/change/node.h"

enum { JOURNAL_SCHEMA = 1 };

enum step {
    STEP_REMOVE,  /* a file or link goes */
    STEP_RMDIR,   /* an empty directory goes */
    STEP_MKDIR,   /* a directory comes */
    STEP_CREATE,  /* a file or link comes */
    STEP_REPLACE, /* a file or link by another */
    STEP_CHMOD,   /* only the mode */
};
const char *step_name(enum step s);

struct item {
    char *path;
    enum step step;
    struct node old, new;
    char *anchor; /* the directory whose name `temp` has it while it is on its way */
    bool exact;   /* owner, mode, time and attributes as in `new`, too: undo */
    bool left;    /* recovery left it alone */
    /* of this process only */
    struct stat seen; /* what was looked at when this was decided; st_ino 0: nothing was there */
    size_t tag;       /* the caller's */
    bool applied;
};

struct op {
    unsigned number;
    char *kind;    /* promote, undo, redo */
    unsigned of;   /* undo and redo: which promotion */
    char *sandbox; /* id */
    char *name;    /* what people call it */
    char *project; /* absolute path */
    dev_t dev;     /* of the project's root */
    ino_t ino;
    char *change;   /* id of the change, may be NULL */
    char *created;  /* 2026-01-31T12:00:00Z */
    char *token;    /* in the names of files on their way: .petri-TOKEN-INDEX */
    size_t files;   /* how many, without directories; also where items were not read */
    bool open;      /* N.open */
    bool aborted;   /* it was taken back but for files that somebody changed meanwhile */
    struct item *v; /* in the order in which they are done */
    size_t n;
};
void op_free_p(struct op *o);
struct item *op_add(struct op *o, const char *path, enum step step);
void item_free(struct item *it);
/* The name an item has in its anchor while it is on its way; `second` for what it replaces. */
void item_temp(const struct op *o, size_t i, bool second, char buf[64]);

struct journal {
    int fd;
    char *path;
};
int journal_open(const char *data, struct journal *ret, struct err **e);
void journal_close_p(struct journal *j);
/* One operation per project at a time: waits for the other. The lock goes with the descriptor. */
int journal_lock(const struct journal *j, dev_t dev, ino_t ino, int *ret_fd, struct err **e);
/* The same without waiting: -ERR_BUSY. */
int journal_try_lock(const struct journal *j, dev_t dev, ino_t ino, int *ret_fd);

/* Makes N.open with op.json and stage.json, on disk; fills in number, created and token. */
int journal_begin(const struct journal *j, struct op *o, int *ret_dir, struct err **e);
/* From here on recovery finishes what was begun. */
int journal_ready(int dir, const struct op *o, struct err **e);
int journal_mark_done(int dir, struct err **e);
/* N.open becomes N. */
int journal_finish(const struct journal *j, const struct op *o, int dir, struct err **e);
/* Removes N.open: nothing happened. */
void journal_drop(const struct journal *j, const struct op *o);

/* Every operation that can be read, oldest first, without items; of one project where ino is not 0. */
int journal_list(const struct journal *j, dev_t dev, ino_t ino, struct op **ret, size_t *ret_n,
                 struct err **e);
void ops_free(struct op *v, size_t n);
/* The directory of an operation. */
int journal_dir(const struct journal *j, const struct op *o, int *ret_fd, struct err **e);
/* Reads the items; ERR_NOT_FOUND where there is no plan yet. */
int journal_items(int dir, struct op *o, struct err **e);
/* Directories of stage.json. */
int journal_anchors(int dir, struct strv *ret, struct err **e);
/* Removes beginnings whose process is gone. */
void journal_sweep(const struct journal *j);
/* Forgets operations that are older than 30 days, but never the last 50. */
void journal_age(const struct journal *j);
