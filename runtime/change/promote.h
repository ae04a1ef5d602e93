/* runtime/change/promote.h - petri promote: from a sandbox into its project, reviewed, all or nothing.
 *
 * Uses: source.h reads the sandbox, pick.h decides, apply.h writes, bundle.h brings commits home.
 * Crash: see apply.h; the next petri command finishes it.
 */
#pragma once
#include "runtime/change/pick.h"
#include "runtime/change/talk.h"

struct promotion {
    const char *data;
    struct words w;
    struct record r;
    struct strv paths; /* relative to the project */
    struct strv allow;
    struct source s;
    struct picks p;
    struct op o;
    struct journal j;
    int root;
    mode_t mask; /* the user's umask */
    bool tty;
    struct strv refs; /* set for commits that came home */
    char *branch_commit;
};

int promote_main(const char *data, int argc, char **argv);

/* promote_words.c: which sandbox, which paths. */
int promote_load(struct promotion *m, struct err **e);
/* promote_say.c: what people and programs read. */
void promote_list(const struct promotion *m, bool all);
void promote_summary(const struct promotion *m);
void promote_json(const struct promotion *m, const char *state, const char *message);
void promote_left_out(const struct promotion *m);
/* 'y', 'p' or 'n'; 'd' is answered inside. */
char promote_ask(const struct promotion *m);
/* A bar on stderr for more than 1000 files. */
void promote_progress(void *arg, size_t done, size_t all);
/* hunks.c: chooses files and hunks, remembers the answers. *ret_quit: the person wants to stop. */
int hunks_choose(struct promotion *m, bool *ret_quit, struct err **e);
/* branch_git.c: commits what was picked to a branch; *ret_commit is its id. */
int branch_commit(const struct record *r, struct picks *p, const char *name, char **ret_commit,
                  struct err **e);
