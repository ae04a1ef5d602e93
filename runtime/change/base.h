/* runtime/change/base.h - what a file was when the sandbox was made, where that can be proven.
 *
 * The proof is the index of the project's git repository, copied at start to
 * DATA/sandboxes/ID/base.index: a file whose content has the id that the index has is what it was.
 * Contents are compared as they are: no filter runs, so a file that git converts has no base.
 */
#pragma once
#include "runtime/change/record.h"

struct base;
/* *ret is NULL where there is no repository or no index was kept. */
int base_open(const struct record *r, struct base **ret, struct err **e);
struct base *base_free(struct base *b);
static inline void base_free_p(struct base **b)
{
    *b = base_free(*b);
}
/* True when the index has the path; all these take NULL for the base. */
bool base_has(const struct base *b, const char *path);
/* Every path below the directory that the index has and a checkout has, too; "" is the project. */
void base_each(const struct base *b, const char *dir, void (*f)(void *arg, const char *path),
               void *arg);
/* True when the content is what the index says. */
bool base_equals(const struct base *b, const char *path, const void *p, size_t n);
/* The content itself; the caller frees it. */
int base_read(const struct base *b, const char *path, char **ret, size_t *ret_n, struct err **e);

/* Three-way merge of text. *ret_clean false: both changed the same lines. */
int base_merge(const char *old, size_t old_n, const char *ours, size_t ours_n, const char *theirs,
               size_t theirs_n, struct str *ret, bool *ret_clean, struct err **e);
