/* runtime/change/git_similar.c - how much two texts have in common, as git sees it. */
#include <git2.h>
#include <git2/sys/hashsig.h>

#include "base/str.h"
#include "runtime/change/rename.h"

struct similar {
    git_hashsig *sig;
};

struct similar *similar_new(const char *p, size_t n)
{
    git_hashsig *sig = NULL;
    struct similar *s;

    if (git_hashsig_create(&sig, p, n, GIT_HASHSIG_SMART_WHITESPACE) < 0)
        return NULL;
    s = mem_zalloc(sizeof *s);
    s->sig = sig;
    return s;
}

int similar_compare(const struct similar *a, const struct similar *b)
{
    int score = a && b ? git_hashsig_compare(a->sig, b->sig) : 0;
    return score < 0 ? 0 : score;
}

struct similar *similar_free(struct similar *s)
{
    if (s)
        git_hashsig_free(s->sig);
    free(s);
    return NULL;
}
