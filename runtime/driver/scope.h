/* runtime/driver/scope.h - asks the user's systemd manager for a transient, delegated scope.
 *
 * Speaks the little D-Bus that takes: one method call, one answer, no library. The manager's own socket
 * is tried first (no bus daemon has to be woken), then the user's bus.
 * Owns:  one socket per request. The scope belongs to the manager, which removes it when it is empty.
 */
#pragma once
#include "base/err.h"

struct scope;

/* Sends StartTransientUnit(unit) for the calling process and returns at once. */
int scope_request(const char *unit, struct scope **ret, struct err **e);
/* Waits, at most 5 s, until the calling process is in the scope. */
int scope_wait(struct scope *s, struct err **e);
struct scope *scope_free(struct scope *s);
static inline void scope_free_p(struct scope **s)
{
    *s = scope_free(*s);
}
