/* runtime/change/undo.h - petri undo, redo and history: the journal read backwards.
 *
 * Undoing is an operation like any other, journaled and recovered; redo undoes the undo. A file that is
 * not what the operation made of it stays as it is.
 */
#pragma once
#include "runtime/change/journal.h"

/* Where a promotion stands after all undos and redos: `last` is what reverses it next. */
struct standing {
    unsigned promotion, last;
};
struct standings {
    struct standing *done, *undone; /* newest last */
    size_t n_done, n_undone;
};
void standings_make(const struct op *v, size_t n, struct standings *ret);
void standings_free_p(struct standings *s);

/* Commands of petri-change (talk.h has their words). */
int undo_main(const char *data, int argc, char **argv);
int redo_main(const char *data, int argc, char **argv);
int history_main(const char *data, int argc, char **argv);
int recover_main(const char *data, int argc, char **argv);

/* The operation to reverse (its head; the caller frees it), which promotion that is, and its project's root. */
int undo_choose(const struct journal *j, const char *word, bool redo, struct op *ret_last,
                unsigned *ret_promotion, int *ret_root, struct err **e);
/* The project that the working directory is in: the nearest parent that an operation worked on. */
int undo_here(const struct op *v, size_t n, dev_t *ret_dev, ino_t *ret_ino, struct err **e);
