/* base/events.h - what happened, one JSON object a line: DATA/events.jsonl.
 *
 * Crash: a line is one append; the file starts anew (the old one as .1) when it has become long.
 */
#pragma once
#include "base/json.h"

/* The sandbox that it happened to; `name` may be NULL. */
struct event_of {
    const char *id, *name, *project;
};

/* `more` (may be NULL) holds finished members: a writer that stands inside an object. Errors are not worth a
 * word: nothing depends on this file. */
void events_write(const char *data, const char *type, const struct event_of *of,
                  const struct jsonw *more);
