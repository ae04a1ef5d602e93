/* runtime/change/library.h - libgit2, started for files that are not to be trusted.
 *
 * What a repository's own configuration names (hooks, filters, textconv, fsmonitor, pager) is never run:
 * libgit2 runs none of it, and nothing here asks it to.
 */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "runtime/change/record.h"

int library_start(struct err **e); /* more than once is fine */
/* Between the two what is written to a repository is synced and belongs to the project's owner. */
int library_write(const struct record *r, struct err **e);
void library_written(const struct record *r);

/* The value of a key in the user's and the system's git configuration, never a repository's; NULL: none. */
char *library_user_config(const char *key);

/* Which files the host's repository ignores: its .gitignore files and info/exclude, and the user's own rules.
 * A file that the index holds is never ignored. */
struct ignore;
/* *ret is NULL where the project is no git repository. */
int ignore_open(const char *project, struct ignore **ret, struct err **e);
bool ignore_path(void *ignore, const char *path, bool dir); /* fits changeset_opts.ignored */
struct ignore *ignore_free(struct ignore *g);
static inline void ignore_free_p(struct ignore **g)
{
    *g = ignore_free(*g);
}

/* True where the repository of `project` has the object (40 hex digits). */
struct repo;
int repo_open(const char *project, struct repo **ret,
              struct err **e); /* *ret NULL: no repository */
bool repo_has(struct repo *r, const char *hex);
struct repo *repo_free(struct repo *r);
static inline void repo_free_p(struct repo **r)
{
    *r = repo_free(*r);
}
