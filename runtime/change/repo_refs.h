/* runtime/change/repo_refs.h - commits that were made in a sandbox's copy of the repository. */
#pragma once
#include "runtime/change/changeset.h"

/* Names of refs ("main", "tags/v1", "HEAD") in the sandbox whose commits the host's repository does not have.
 * Nothing where the sandbox did not touch the repository or the project has none. */
int repo_new_refs(const struct record *r, const char *snap, struct strv *ret, struct err **e);
