/* runtime/client/env.h - variables that were asked for on a command line. */
#pragma once
#include "base/str.h"

/* Those of the files (one NAME=VALUE or NAME a line, # begins a comment), then the words, set in `ret` as
 * NAME=VALUE; a bare NAME takes the host's value, if it has one. */
int env_take(const struct strv *files, const struct strv *words, struct strv *ret, struct err **e);
