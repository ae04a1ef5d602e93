/* runtime/change/drift.h - has a file of the project changed since the sandbox was made?
 *
 * No, where its own ctime is not after the stamp and it still is the same file: no directory above it
 * has a ctime after the stamp, or overlay's handle of that directory is still the project's (root). Times
 * prove nothing on network file systems, when the clock went back, or while somebody has the file open for
 * writing. Then, and where times say yes, the content decides: what equals a proven base, or what petri
 * itself put there for this sandbox, has not changed.
 * Anything else is a conflict.
 */
#pragma once
#include "runtime/change/apply.h"
#include "runtime/change/base.h"
#include "runtime/change/known.h"
#include "runtime/change/node.h"
#include "runtime/change/source.h"

struct drift {
    const struct record *r;
    struct source *s;
    const struct base *base; /* may be NULL */
    int root;
    struct known *known; /* once it was needed */
    bool doubt;          /* times prove nothing here */
    struct dirs dirs;
    struct strv left; /* handles and digests of files that are not where they were, sorted */
    bool left_read;
    size_t n_compared; /* texts */
    char *last_dir;
    bool last_same;
};
void drift_init(struct drift *d, const struct record *r, struct source *s, const struct base *b,
                int root);
void drift_free_p(struct drift *d);
/* The directory is the one that the sandbox was made from. */
bool drift_same_dir(struct drift *d, const char *dir);
/* NULL: unchanged. Else what happened, for people. `st` is what lies there (st_ino 0: nothing). */
const char *drift_why(struct drift *d, size_t change, const struct stat *st);
/* Content of the project's file and of its base; ERR_NOT_FOUND where there is none. */
int drift_host(struct drift *d, const char *path, char **ret, size_t *ret_n, struct err **e);
int drift_base(struct drift *d, const char *path, char **ret, size_t *ret_n, struct err **e);
/* Reads all of a file that is not too large for a merge. */
int drift_read_fd(int fd, char **ret, size_t *ret_n, struct err **e);
