/* runtime/change/walk.h - finds what differs between two views of one workspace. */
#pragma once
#include "runtime/change/changeset.h"

/* Adds to `c` (v, ignored, repos) what pair `index` of it differs in; v is not sorted afterwards. */
int walk_pair(struct changeset *c, size_t index, const struct changeset_opts *o, struct err **e);
