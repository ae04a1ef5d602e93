#include "runtime/gateway/namecache.h"

#include <string.h>

#include "base/str.h"

struct cached {
    uint64_t until;
    size_t n;
    struct net_addr *v;
    char name[];
};

static struct cached **set_of(struct namecache *c, const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return &c->v[(h ^ h >> 16) % NAMECACHE_SETS * NAMECACHE_WAYS];
}

static void drop(struct cached **at)
{
    if (*at)
        free((*at)->v);
    free(*at);
    *at = NULL;
}

void namecache_put(struct namecache *c, const char *name, const struct net_addr *v, size_t n,
                   uint64_t until)
{
    struct cached **set = set_of(c, name), **at = set;
    for (size_t i = 0; i < NAMECACHE_WAYS; i++) {
        if (set[i] && !strcmp(set[i]->name, name)) {
            at = &set[i];
            break;
        }
        if (!set[i] || (*at && set[i]->until < (*at)->until))
            at = &set[i];
    }
    drop(at);
    *at = mem_zalloc(sizeof **at + strlen(name) + 1);
    memcpy((*at)->name, name, strlen(name) + 1);
    (*at)->until = until;
    (*at)->n = n;
    (*at)->v = mem_dup(v, n * sizeof *v);
}

size_t namecache_get(struct namecache *c, const char *name, uint64_t now, struct net_addr *ret,
                     size_t max)
{
    struct cached **set = set_of(c, name);
    for (size_t i = 0; i < NAMECACHE_WAYS; i++) {
        if (!set[i] || strcmp(set[i]->name, name))
            continue;
        if (set[i]->until <= now) {
            drop(&set[i]);
            return 0;
        }
        size_t n = set[i]->n < max ? set[i]->n : max;
        memcpy(ret, set[i]->v, n * sizeof *ret);
        return n;
    }
    return 0;
}

void namecache_clear(struct namecache *c)
{
    for (size_t i = 0; i < NAMECACHE; i++)
        drop(&c->v[i]);
}
