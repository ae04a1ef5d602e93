/* runtime/sandbox/start.h - sandboxes that stay: making, starting, forking them.
 *
 * Each gets a keeper, a child of the caller that goes on when the caller ends. Both sides of the fork know the same
 * plan; the child says through a pipe when the sandbox answers, or why it does not.
 */
#pragma once
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/state.h"

struct started {
    char *id, *name;
    bool made;        /* new */
    bool was_running; /* nothing was done */
    const char *ids_note;
    void (*on_prepare)(
        void);           /* set by the caller: before something that takes seconds; may be NULL */
    struct strv missing; /* mounts of the project that it does not have */
};
void started_free_p(struct started *s);

/* The sandbox a word means (a name, an ID or the beginning of one), or the project's own (NULL): its id; ERR_NOT_FOUND
 * where there is none. */
int sandbox_find(const struct paths *paths, const char *word, const char *workspace, char **ret_id,
                 struct err **e);
/* By its whole name or ID: for who makes what is not there. */
int sandbox_find_exact(const struct paths *paths, const char *word, const char *workspace,
                       char **ret_id, struct err **e);
/* Whether a restart with these flags could work, as far as that can be known before. */
int sandbox_check(const struct paths *paths, const char *id, const struct options *o,
                  struct err **e);
/* Starts it, makes it first where it does not exist: `word` is then its name. Flags that differ from those of a
 * running one are an error that names them. Restart: with flags replaced. */
int sandbox_start(const struct paths *paths, const char *word, struct options *o,
                  struct started *ret, struct err **e);
