/* runtime/change/rename.h - pairs of deleted and added files that are one that moved. */
#pragma once
#include "runtime/change/changeset.h"

/* Equal content first, then similar text where there is not too much to compare. */
int rename_find(struct changeset *c, struct err **e);

/* A fingerprint of a text, by libgit2 (git_similar.c). NULL: too little to compare. */
struct similar;
struct similar *similar_new(const char *p, size_t n);
/* 0 (nothing in common) to 100. */
int similar_compare(const struct similar *a, const struct similar *b);
struct similar *similar_free(struct similar *s);
