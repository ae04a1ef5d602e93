/* runtime/gateway/recent.h - has this been said within the last second? A small table that forgets: two keys
 * in one place push each other out, and then something is said once more. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECENT_SLOTS = 256, RECENT_MS = 1000 };

struct recent {
    struct {
        uint64_t key, until;
    } v[RECENT_SLOTS];
};

static inline uint64_t recent_hash(const void *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    return h;
}

/* Now it has been said. */
static inline bool recent_said(struct recent *r, uint64_t key, uint64_t now)
{
    size_t i = (size_t)(key ^ key >> 32) % RECENT_SLOTS;
    if (r->v[i].key == key && now < r->v[i].until)
        return true;
    r->v[i].key = key;
    r->v[i].until = now + RECENT_MS;
    return false;
}
