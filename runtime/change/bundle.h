/* runtime/change/bundle.h - commits made in a sandbox come home as objects, and refs under refs/petri/.
 *
 * The repository's own files are never copied: a `git gc` inside would take host commits away. What the
 * project's repository lacks is packed where the sandbox can be read, checked object by object and added
 * where the project can be written. HEAD, index, configuration and refs that exist are not touched; no
 * hook and no filter runs.
 */
#pragma once
#include "runtime/change/changeset.h"

/* In the process that reads the sandbox: *ret_pack is -1 where there is nothing. One line per ref,
 * "HEX heads/NAME". */
int bundle_make(const struct record *r, const struct changeset *c, int *ret_pack,
                struct str *ret_refs, struct err **e);
/* In the process that writes: adds the pack, sets refs/petri/SANDBOX/...; one line per ref in *ret_set. */
int bundle_take(const struct record *r, int pack, const char *refs, struct strv *ret_set,
                struct err **e);
