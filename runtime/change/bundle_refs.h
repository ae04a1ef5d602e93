/* runtime/change/bundle_refs.h - refs and object directories of a sandbox's repository, read as files. */
#pragma once
#include "runtime/change/view.h"

/* "HEX heads/main", "HEX tags/v1", "HEX HEAD": what the sandbox's layers say, loose before packed. Refs that
 * follow others (remotes/, petri/) are not its own. */
int bundle_refs(const struct record *r, struct strv *ret, struct err **e);

struct bundle_fds {
    int *v;
    size_t n;
};
/* Paths under /proc/self/fd of the layers' object directories; they hold nothing but files and
 * directories when this looks. */
int bundle_objects(const struct record *r, struct strv *ret_dirs, struct bundle_fds *ret_fds,
                   struct err **e);
