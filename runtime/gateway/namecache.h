/* runtime/gateway/namecache.h - addresses of names for a short while. A set of ways like a processor's
 * cache: never more than NAMECACHE entries, no list to search.
 * Owns:  its entries. Addresses only: what the policy says of them is asked every time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "runtime/network/addr.h"

enum { NAMECACHE_WAYS = 4, NAMECACHE_SETS = 128, NAMECACHE = NAMECACHE_WAYS * NAMECACHE_SETS };

struct namecache {
    struct cached *v[NAMECACHE];
};

/* Replaces what was known of the name; gives up what ends soonest where there is no room. */
void namecache_put(struct namecache *c, const char *name, const struct net_addr *v, size_t n,
                   uint64_t until);
/* How many of its addresses were put into `ret`; 0: not known, or too old at `now`. */
size_t namecache_get(struct namecache *c, const char *name, uint64_t now, struct net_addr *ret,
                     size_t max);
void namecache_clear(struct namecache *c);
