/* runtime/sandbox/events.h - what happened, one JSON object a line: DATA/events.jsonl.
 *
 * Crash: a line is one append; the file starts anew (the old one as .1) when it has become long.
 */
#pragma once
#include "base/json.h"
#include "runtime/sandbox/state.h"

/* `more` (may be NULL) holds finished members: a writer that stands inside an object. Errors are not worth a
 * word: nothing depends on this file. */
void events_add(const struct paths *paths, const char *type, const struct state *s,
                const struct jsonw *more);
