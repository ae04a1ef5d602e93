/* runtime/change/apply.h - changes files of a project all together or not at all.
 *
 * Order: everything new is written under names of its own beside its place, everything old copied to the
 * journal, all of it synced, then the plan; then only renames. What is replaced keeps its inode under the
 * name the new file had, so that taking back needs no room and no luck.
 * Crash: before the plan is on disk nothing happened, afterwards recover.h finishes it.
 */
#pragma once
#include <signal.h>

#include "runtime/change/journal.h"

/* New content of a file, new.size bytes: a text that stays, else those from `from` on of a descriptor, which is
 * closed here. */
struct new_content {
    const char *text;
    int fd;
    uint64_t from;
};

struct apply {
    const struct journal *journal;
    int root;                             /* the project */
    const volatile sig_atomic_t *stopped; /* looked at until the first rename; may be NULL */
    int (*content)(void *arg, const struct item *it, struct new_content *ret, struct err **e);
    /* May be NULL; from several threads at once, each number once. */
    void (*progress)(void *arg, size_t done, size_t all);
    /* True for a directory that is the one it was when all began, whatever its times say; may be NULL. Asked
     * before anything changes; what its times are afterwards is noted for known.h. */
    bool (*same_dir)(void *arg, const char *dir);
    bool alone; /* few files, or content() is not for several threads at once */
    void *arg;
    int synced; /* apply_run()'s own: for syncfs, which tells of errors since it was opened */
};

/* Sorts the items into the order in which they must happen and finds their anchors. */
int apply_order(struct op *o, struct err **e);
/* The item of a path that goes (REMOVE, RMDIR) or that comes, of an ordered operation; NULL: none. */
struct item *apply_find(const struct op *o, const char *path, bool goes);
/* Does it. Items must be ordered, with old and new as `step` wants them and `seen` as it was looked at.
 * ERR_BUSY: somebody changed the project meanwhile; nothing was changed then, as with every failure. */
int apply_run(struct apply *a, struct op *o, struct err **e);

/* --- parts, shared with recovery --------------------------------------------------------------- */

/* The last directory is kept open: neighbours come one after the other. */
struct dirs {
    int root;
    char *path;
    int fd;
};
int dirs_get(struct dirs *d, const char *path, int *ret_fd, struct err **e);
int dirs_parent(struct dirs *d, const char *path, int *ret_fd, const char **ret_name,
                struct err **e);
void dirs_free_p(struct dirs *d);
#define DIRS_INIT(root_fd)                                                                         \
    {                                                                                              \
        .root = (root_fd), .fd = -1                                                                \
    }

/* Writes new files and copies old ones; stage_clean() takes away whatever of it is there. */
int stage_all(const struct apply *a, struct op *o, int entry, struct err **e);
/* Removes names of this operation from its anchors. Missing directories are fine. */
int stage_clean(int root, const struct op *o, const struct strv *anchors, struct err **e);
int stage_sync(const struct apply *a, struct op *o, struct err **e);

/* The renames. Where one fails, those before it are taken back. */
int commit_all(const struct apply *a, struct op *o, int entry, struct err **e);
/* rename(2) that never replaces. -1 with errno EEXIST where something is there. */
int commit_move(int from_dir, const char *from, int to_dir, const char *to);
/* Swaps two names; where the file system can't, the second name goes to `spare` first. */
int commit_swap(int temp_dir, const char *temp, const char *spare, int dir, const char *name);
bool commit_dir_empty(int dir, const char *name);
/* Directories that come or go and that their owner may not write to: nothing could move in them, nor they themselves.
 * Opens them before the renames; closes them afterwards, those that came as well as those that stayed. */
int commit_dir_modes(int root, const struct op *o, bool open, struct err **e);
