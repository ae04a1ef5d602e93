/* runtime/workspace/stack.h - the layers of a sandbox that stays, under short names in the scratch.
 *
 * Each layer is a directory with one entry per overlay: r (the root), w0, w1 ... (workspaces), x-TAG (a system
 * directory of user 0's). Frozen ones become lowers, the top's entry the upper; work directories lie in
 * the top's `work` and are made anew at every start: with the mount option volatile the kernel refuses one
 * that was used before.
 * Owns:  the links t, c0, c1 ... of the scratch, which is the working directory.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "oci/plan.h"

/* The names, and a fresh work directory. */
int stack_open(const struct plan *p, struct err **e);
/* Adds "c2/ENTRY:c0/ENTRY:" to an overlay's lowers, topmost first: the layers that have the entry. */
void stack_lowers(const struct plan *p, const char *entry, struct str *ret);
/* Names of the entry's upper and work directories, both made where they are missing. A new upper is like the
 * entry of the layer below it: an overlay's own top shows the upper's owner, mode and time. *ret_new: there was
 * neither, and these are the caller's business. */
int stack_upper(const struct plan *p, const char *entry, char up[64], char work[64], bool *ret_new,
                struct err **e);
