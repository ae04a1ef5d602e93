/* runtime/sandbox/flags.h - flags that were given, flags that a sandbox's record has, flags that configuration adds.
 *
 * A flag that a person gave at any start stays and beats configuration; what configuration said is forgotten
 * with the next start, which asks it anew.
 */
#pragma once
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/state.h"

/* Those of the record that a person gave, but for what is given anew now. */
void flags_own(const struct options *o, const struct state *s, struct strv *ret);
/* Those that a fork has of its source's: ports of the host and what a stop brings into the project are one sandbox's. */
void flags_inherit(const struct strv *from, struct strv *ret);
/* The flags of a start: the record's own, what is configured now, what is given now. */
void flags_merge(const struct options *o, const struct state *s, struct strv *ret);
/* What would be other than it runs with, as text; NULL: nothing. */
char *flags_differ(const struct options *o, const struct state *s);
/* Into the record; takes the merged ones. */
void flags_record(struct state *s, struct strv *merged, const struct options *o);
