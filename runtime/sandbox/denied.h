/* runtime/sandbox/denied.h - what the gateway refused, each thing once, for results and events. */
#pragma once
#include "base/json.h"
#include "runtime/network/policy.h"

enum { DENIED_MAX = 64 };

struct denied {
    char *name, *addr, *proto, *rule, *why, *allow; /* any may be NULL */
    uint64_t port, times, last_ms;                  /* CLOCK_BOOTTIME */
};

struct denied_list {
    struct denied v[DENIED_MAX];
    size_t n;
};

/* Takes one line of the gateway's; the entry where it is the first of its kind, else NULL. */
const struct denied *denied_note(struct denied_list *l, const struct json *line);
/* Members of one, into an object. `box`: what `petri net allow` needs to mean this sandbox, or NULL. */
void denied_json(struct jsonw *w, const struct denied *d, const struct net_policy *p,
                 const char *box);
/* The flags that would have allowed it; NULL: nothing can. */
char *denied_flags(const struct denied *d, const struct net_policy *p);
void denied_free_p(struct denied_list *l);
