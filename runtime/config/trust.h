/* runtime/config/trust.h - which files of projects a person has trusted.
 *
 * Trust is in a file's path and its content: DATA/trust/ holds a copy of each, and a file that differs from
 * its copy by a byte is not trusted. A copy and no digest, so that nothing is left to a hash.
 * Owns:  DATA/trust/.
 * Uses:  base/.
 * Crash: a copy appears by rename.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

bool trust_has(const char *data, const char *path, const char *text, size_t len);
int trust_add(const char *data, const char *path, const char *text, size_t len, struct err **e);
/* Nothing there is fine; *ret_had says whether. */
int trust_remove(const char *data, const char *path, bool *ret_had, struct err **e);
