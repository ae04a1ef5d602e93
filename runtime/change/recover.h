/* runtime/change/recover.h - finishes operations whose process died.
 *
 * An operation without a plan has changed nothing: its files are removed. One with a plan is finished,
 * or, where it was being taken back when it died, taken back. Each file only if it is exactly what the
 * journal says it was or is to be; any other is left alone, both versions are kept in the
 * operation's kept/, and that is said.
 */
#pragma once
#include "runtime/change/journal.h"

/* Operations of one project, whose lock the caller holds. `say` gets a line per operation. */
int recover_project(const struct journal *j, dev_t dev, ino_t ino, void (*say)(const char *text),
                    struct err **e);
/* All projects but those that somebody is at work on. */
int recover_all(const struct journal *j, void (*say)(const char *text), struct err **e);
