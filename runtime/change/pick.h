/* runtime/change/pick.h - which changes of a sandbox go into the project, and why the others do not. */
#pragma once
#include "runtime/change/drift.h"
#include "runtime/change/journal.h"

enum pick_what {
    PICK_TAKE,
    PICK_HELD,     /* a rule forbids it without --allow */
    PICK_SPECIAL,  /* a pipe, socket or device: never */
    PICK_HIDDEN,   /* at a path that the sandbox was not to see: never */
    PICK_READONLY, /* at or around a path that can't be written inside: never */
    PICK_CONFLICT, /* the project's file changed meanwhile */
    PICK_SKIPPED,  /* it was not wanted: -p, --on-conflict theirs */
};
const char *pick_name(enum pick_what w);

struct pick {
    enum pick_what what;
    char *why;
    struct node host; /* what lies there, and how it was looked at */
    struct stat seen;
    int content; /* other content than the sandbox's: merged, or single hunks; -1 */
    uint64_t size;
    char digest[65];
    bool merged;
};

enum on_conflict { CONFLICT_FAIL, CONFLICT_THEIRS, CONFLICT_OURS, CONFLICT_MERGE };

struct pick_rules {
    const struct strv *allow; /* paths and codes of risks that may go nevertheless */
    enum on_conflict on_conflict;
    bool unread; /* nobody looks at it: what must be read stays too */
};

struct picks {
    const struct record *r;
    struct source *s;
    int root;
    struct base *base; /* may be NULL */
    struct drift drift;
    struct pick *v; /* one per change */
    size_t n;
    mode_t mask;       /* what new files must not have: the user's umask */
    struct strv notes; /* for people: links, directories that stay */
};

/* Judges every change. `allow`: paths or codes of risks. */
int picks_make(const struct record *r, struct source *s, int root, const struct pick_rules *rules,
               struct picks *ret, struct err **e);
void picks_free_p(struct picks *p);
/* What hangs together goes together or not at all: a directory's files and what takes its place. */
void picks_settle(struct picks *p);
void picks_set(struct picks *p, size_t i, enum pick_what what, const char *why);
/* Gives a change other content. */
int picks_content(struct picks *p, size_t i, const char *text, size_t n, struct err **e);
size_t picks_count(const struct picks *p, enum pick_what what);

/* The operation (build.c). */
int picks_build(struct picks *p, struct op *o, mode_t mask, struct err **e);
