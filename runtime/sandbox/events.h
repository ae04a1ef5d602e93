/* runtime/sandbox/events.h - what happened to a sandbox, by its record. */
#pragma once
#include "base/events.h"
#include "runtime/sandbox/state.h"

static inline void events_add(const struct paths *paths, const char *type, const struct state *s,
                              const struct jsonw *more)
{
    events_write(paths->data, type, &(struct event_of){ s->id, s->name, s->project }, more);
}
