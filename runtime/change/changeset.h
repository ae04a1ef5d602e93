/* runtime/change/changeset.h - what differs between two views: the change that is reviewed and promoted.
 *
 * Only names that layers mention which the views don't share are looked at, so the cost is that of what a
 * sandbox wrote and not that of the project. Content that is equal is no change, whatever its times. The
 * repository's own files (any component ".git") are never in it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "runtime/change/view.h"

enum change_kind {
    CHANGE_ADDED,
    CHANGE_MODIFIED, /* content, perhaps the executable bit too */
    CHANGE_DELETED,
    CHANGE_RENAMED, /* old_path -> path, perhaps with other content or mode */
    CHANGE_MODE,    /* the executable bit only */
    CHANGE_TYPE,    /* file <-> link <-> something else */
};

enum {
    CHANGE_BINARY = 1,
    CHANGE_IGNORED = 2,    /* by the host's ignore rules and not tracked */
    CHANGE_HIDDEN = 4,     /* at a path that the sandbox was not to see */
    CHANGE_UNREADABLE = 8, /* one side can't be read: its digest is "" */
    CHANGE_EMPTY_DIR = 16, /* an empty directory, added or deleted */
};

/* Contents that are read once and stay in memory: what is looked at, judged and written is then the same. */
enum { KEEP_FILE = 64 << 10, KEEP_ALL = 64 << 20 };

struct risk_rule;
struct risk_hit {
    const struct risk_rule *rule;
    char *detail; /* may be NULL; not escaped */
};

struct change {
    char *path;     /* relative to the project */
    char *old_path; /* CHANGE_RENAMED only */
    enum change_kind kind;
    unsigned flags;
    size_t view;               /* which pair of views it comes from */
    mode_t old_mode, new_mode; /* st_mode; 0: not there */
    uint64_t old_size, new_size;
    char old_digest[65], new_digest[65]; /* sha256 of content or link text, hex; "" not there */
    char *old_text, *new_text; /* content of small files as it was digested; NULL: not kept */
    struct timespec written;   /* when the sandbox wrote its side; {0,0} unknown */
    uint64_t lines_added, lines_deleted; /* text only, once diff_count() was there */
    struct risk_hit *risks;              /* worst first */
    size_t n_risks;
};

/* A pair of views of one workspace (the project, or a mount below it). */
struct view_pair {
    struct view old, new;
};
void view_pair_free_p(struct view_pair *p);

struct ignored_dir {
    char *path; /* first component of the ignored path, "" for files at the top */
    uint64_t files;
};

struct changeset {
    struct view_pair *pairs; /* stay open: contents are read through them */
    size_t n_pairs;
    struct change *v; /* sorted by path (bytes) */
    size_t n;
    struct ignored_dir *ignored; /* counted, not in v */
    size_t n_ignored;
    struct strv repos; /* paths of .git that the sandbox changed; not in v */
    char id[65];       /* of v before renames were found */
    size_t kept;       /* bytes of contents that are in memory */
};

struct changeset_opts {
    /* Decides about ignored files; NULL: none is. `dir`: the path is a directory. */
    bool (*ignored)(void *arg, const char *path, bool dir);
    void *ignored_arg;
    bool keep_ignored;        /* put ignored files into v, with CHANGE_IGNORED */
    const struct strv *paths; /* only these and what is below them (project-relative); NULL: all */
    bool renames;             /* pair deleted and added files; the id does not depend on it */
};

/* Takes the pairs over (also where it fails). */
int changeset_make(struct view_pair *pairs, size_t n_pairs, const struct changeset_opts *o,
                   struct changeset *ret, struct err **e);
void changeset_free_p(struct changeset *c);

/* The usual case: the sandbox against the host, every workspace of the record that is no git directory, the
 * host's ignore rules, risks marked (risk.h) and lines counted. `snap` may be NULL. `o` may be NULL: its
 * ignored/ignored_arg are not used. */
int changeset_host(const struct record *r, const char *snap, const struct changeset_opts *o,
                   struct changeset *ret, struct err **e);

/* The pairs of views for it, and for two sandboxes (or snapshots) of one project. */
int pairs_host(const struct record *r, const char *snap, struct view_pair **ret, size_t *ret_n,
               struct err **e);
int pairs_between(const struct record *a, const char *a_snap, const struct record *b,
                  const char *b_snap, struct view_pair **ret, size_t *ret_n, struct err **e);
/* changeset_make with the ignore rules of r's project and risks marked. Takes the pairs over. */
int changeset_pairs(const struct record *r, struct view_pair *pairs, size_t n,
                    const struct changeset_opts *o, struct changeset *ret, struct err **e);

/* The change of a path, or NULL. */
const struct change *changeset_find(const struct changeset *c, const char *path);
/* Content of the old or new side: an open regular file, or the text of a link in *ret_link (either may come
 * out, the other is -1 / NULL). ERR_NOT_FOUND where that side has nothing. */
int change_open(const struct changeset *c, const struct change *ch, bool new_side, int *ret_fd,
                char **ret_link, struct err **e);
/* The path inside its workspace, for the view functions. */
const char *change_rel(const struct changeset *c, const struct change *ch, const char *path);
const char *change_kind_name(enum change_kind k); /* "added" ... */
char change_letter(enum change_kind k);           /* A M D R M T */
