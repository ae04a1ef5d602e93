/* runtime/sandbox/caches.h - caches of package managers that sandboxes of one project share.
 *
 * A *base* belongs to one project, image and user inside. Its generations are never written to once they are
 * current: each sandbox has an overlay of its own over the one that was current when it started, so that none sees
 * what another one writes. caches_save() makes the next generation, when a person says so.
 *
 * Owns:  DATA/caches/KEY: lock, about.json, gen-N/, `current` (a link to one of them), merged (layers whose caches
 *        are in it already); DATA/caches/.gone-*, bases on their way out.
 * Locks: KEY/lock, exclusively, by whoever makes or removes generations; gen-N itself, shared, by every sandbox
 *        that uses it. A generation that is locked is never removed.
 * Crash: `current` is replaced by rename, after everything below its new target is on disk. A generation that is not
 *        current and that nobody holds is garbage.
 */
#pragma once
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/state.h"
#include "runtime/workspace/cache_merge.h"

/* Where a tool looks, below the home, and the name of that directory in a base. */
struct cache_place {
    const char *name, *home;
};
extern const struct cache_place cache_places[]; /* ends with a name of NULL */

/* Whose caches: what the name of a base is made of. */
struct cache_key {
    const char *project, *image;
    uint64_t dev, ino, uid;
    const struct strv *image_layers;
};
struct cache_key caches_key(const struct plan *p);
struct cache_key caches_key_of(const struct state *s);
char *caches_dir(const struct paths *paths, const struct cache_key *k);

/* The current generation, held: its path, and the descriptor that holds it. Where there is none *ret_path is NULL, or
 * with `make` an empty one is made, for the plan's ids. */
int caches_hold(const struct paths *paths, const struct plan *p, bool make, char **ret_path,
                int *ret_fd, struct err **e);

struct cache_saved {
    struct cache_counts counts;
    bool anything; /* the sandbox has written to caches */
};
/* Takes what the sandbox (stopped, or running with nothing in it) wrote to its caches into a new generation. */
int caches_save(const struct paths *paths, const char *id, uint64_t max_bytes,
                struct cache_saved *ret, struct err **e);

struct cache_info {
    char *key, *project, *image;
    uint64_t uid, dev, ino, generation;
    struct cache_counts counts; /* files and bytes */
};
struct cache_list {
    struct cache_info *v;
    size_t n;
};
int caches_list(const struct paths *paths, struct cache_list *ret, struct err **e);
void cache_list_free_p(struct cache_list *l);
/* Forgets a base; a sandbox that runs keeps the generation it has. */
int caches_remove(const struct paths *paths, const char *key, struct err **e);
/* Generations that nobody needs; with `projects` also bases whose project is not there any more. Never waits. */
void caches_sweep(const struct paths *paths, bool projects);

/* The parts of a base, for caches_*.c. */
int caches_lock(const char *dir, bool wait, int *ret, struct err **e);
/* The same for a base that may not be there yet. */
int caches_open(const char *dir, const struct cache_key *k, int *ret_lock, struct err **e);
/* A new and empty generation, its number and path; under the lock. */
int caches_new(const char *dir, char **ret_name, struct err **e);
int caches_commit(const char *dir, const char *name, struct err **e);
/* The directories of cache_places in a generation, where they are missing. For inside_run(). */
int caches_make_places(int gen, uid_t uid, gid_t gid, struct err **e);
/* Which of the places have content: noted in the generation, since a run that ends has no time to look. False: it
 * can't be told. */
void caches_note_full(int gen);
bool caches_full(int gen, struct strv *ret);
/* Generations but the current one, where nobody holds them; false: some are held. */
bool caches_clean(const char *dir);
/* Which these are. */
void caches_unused(const char *dir, struct strv *ret);
