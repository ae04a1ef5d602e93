/* runtime/driver/scratch.h - where a sandbox's own files live, with a limit on their size.
 *
 * tmpfs  the default of a run: fast, exact, gone with the mount namespace; its pages are memory.
 * loop   root, where more is asked for than memory can hold: an ext4 in a sparse file that has no
 *        name any more, gone with the mount namespace too.
 * dir    a directory of the store, for ordinary users where neither of the others can be: nothing in
 *        the kernel limits it, the keeper watches its size.
 * A sandbox that stays writes to its own layer in the store, watched too; its scratch is a small tmpfs.
 * Crash: only a `dir` stays; its lock is free then, and the next command removes it.
 */
#pragma once
#include "base/err.h"
#include "runtime/driver/ids.h"

enum scratch_kind { SCRATCH_TMPFS, SCRATCH_LOOP, SCRATCH_DIR };

struct scratch {
    enum scratch_kind kind;
    char *at;            /* where it is mounted, in the launcher's mount namespace */
    char *dir;           /* loop: where the file is made; dir: the directory itself */
    const char *watched; /* what nothing but the keeper limits; NULL: the kernel does */
    uint64_t size, inodes;
};

const char *scratch_word(const struct scratch *s); /* "tmpfs", "loop", "watched" */
/* Chooses for a plan; `store` is petri's data directory. Makes nothing. */
int scratch_choose(const struct plan *p, const char *store, const char *at, struct scratch *ret,
                   struct err **e);
void scratch_free_p(struct scratch *s);
/* In the launcher: mounts it, owned by the sandbox's root. */
int scratch_mount(const struct scratch *s, const struct ids *ids, struct err **e);
/* Whether what is watched takes more than it may, or leaves too little of the disk. */
bool scratch_over(const struct scratch *s);
/* Bytes that a directory takes on disk, and how many files are in it; UINT64_MAX: too deep to count. */
uint64_t scratch_used(const char *dir, uint64_t *ret_files);
