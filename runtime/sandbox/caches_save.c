/* runtime/sandbox/caches_save.c - the next generation: the current one and what a sandbox wrote over one of them. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/caches.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/store_lock.h"

enum { MAX_FILES = 1000000 };

static bool wanted(const char *path)
{
    size_t n = strcspn(path, "/");
    for (const struct cache_place *p = cache_places; p->name; p++)
        if (strlen(p->name) == n && strncmp(p->name, path, n) == 0)
            return true;
    return false;
}

/* What a layer has of caches; NULL: nothing. */
static char *cache_part(const struct paths *paths, const char *layer)
{
    char tag[16];
    plan_overlay_tag(PLAN_CACHES, tag);
    AUTOFREE char *path = str_printf("%s/changes/%s/%s", paths->data, layer, tag);
    DIR *d = opendir(path);
    const struct dirent *de;
    bool any = false;

    while (d && !any && (de = readdir(d)))
        any = strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
    if (d)
        closedir(d);
    return any || (!d && errno != ENOENT) ? TAKE_PTR(path) : NULL;
}

/* ---- which layers are in a base already --------------------------------------------------------- */

static void read_merged(const char *dir, struct strv *ret)
{
    AUTOFREE char *path = path_join(dir, "merged"), *text = NULL;
    char *save = NULL;

    if (fs_read(AT_FDCWD, path, 16 << 20, &text, NULL, NULL) < 0)
        return;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        if (layer_name_valid(l))
            strv_add(ret, l);
}

static int write_merged(const struct paths *paths, const char *dir, const struct strv *old,
                        const struct strv *chain, struct err **e)
{
    AUTOFREE char *path = path_join(dir, "merged");
    AUTOSTR struct str s = STR_INIT;

    for (size_t i = 0; i < old->n; i++) {
        AUTOFREE char *layer = str_printf("%s/changes/%s", paths->data, old->v[i]);
        if (!strv_has(chain, old->v[i]) && fs_exists(layer))
            str_addf(&s, "%s\n", old->v[i]);
    }
    for (size_t i = 0; i < chain->n; i++)
        str_addf(&s, "%s\n", chain->v[i]);
    return fs_write_atomic(AT_FDCWD, path, s.p ? s.p : "", s.len, 0600, e);
}

/* ---- merging ------------------------------------------------------------------------------------ */

struct merging {
    const char *base, *to; /* base may be NULL */
    const struct strv *layers;
    struct cache_rules rules;
    struct cache_counts *counts; /* in memory that the parent sees, too */
};

static int merge_inside(void *arg, struct err **e)
{
    const struct merging *m = arg;
    int to = open(m->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC), base = -1, rc;
    int *fds =
        mem_zalloc((m->layers->n + 1) * sizeof *fds); /* the process ends: nobody need close them */

    if (to < 0)
        return err_sys(e, "open '%s'", m->to);
    if (m->base && (base = open(m->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, "open '%s'", m->base);
    for (size_t i = 0; i < m->layers->n; i++) {
        fds[i] = open(m->layers->v[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fds[i] < 0)
            return err_sys(e, "open '%s'", m->layers->v[i]);
    }
    if ((rc = cache_merge(&m->rules, base, fds, m->layers->n, to, m->counts, e)) < 0)
        return rc;
    caches_note_full(to);
    if ((rc = caches_make_places(to, m->rules.uid, m->rules.gid, e)) < 0)
        return rc;
    /* on disk before it is current */
    return syncfs(to) < 0 ? err_sys(e, "sync '%s'", m->to) : 0;
}

/* On disk root's are the project owner's, whose id is changed to the user's by the mount; where there are no id maps
 * the user is the owner. */
static void owner_of(const struct state *s, const struct ids *ids, struct cache_rules *r)
{
    bool as_owner = ids->mode == IDS_ROOT && s->user_uid != s->owner_uid;

    r->uid = ids->mode == IDS_SINGLE ? (uid_t)-1
             : ids->mode == IDS_SUB  ? ids->user_uid
                                     : (uid_t)(as_owner ? s->owner_uid : s->user_uid);
    r->gid = ids->mode == IDS_SUB ? ids->user_gid : (gid_t)(as_owner ? s->owner_gid : s->user_gid);
}

static int merge(const struct state *s, const char *dir, struct merging *m, struct err **e)
{
    AUTOFREE char *link = path_join(dir, "current"), *current = fs_readlink(AT_FDCWD, link);
    AUTOFREE char *base = current ? path_join(dir, current) : NULL, *name = NULL, *to = NULL;
    struct ids ids;
    int rc;

    (void)caches_clean(dir); /* what a save that was killed left */
    if ((rc = layers_ids(s, &ids, e)) < 0 || (rc = caches_new(dir, &name, e)) < 0)
        return rc;
    owner_of(s, &ids, &m->rules);
    to = path_join(dir, name);
    m->base = base;
    m->to = to;
    rc = inside_run(&ids, merge_inside, m, e);
    if (rc == 0 && (m->counts->added || m->counts->removed || !current))
        rc = caches_commit(dir, name, e);
    (void)caches_clean(dir);
    return rc;
}

/* Layers that nobody writes to any more, bottom first. */
static int frozen(const struct paths *paths, const char *id, struct state *ret, struct strv *chain,
                  struct err **e)
{
    AUTOFREE char *top = NULL;
    uint64_t paused;
    int rc = state_read(paths, id, ret, e);

    if (rc < 0)
        return rc;
    top = ret->top ? cache_part(paths, ret->top) : NULL;
    if (top) {
        state_free_p(ret);
        return sandbox_freeze(paths, id, true, ret, chain, &paused, e);
    }
    for (size_t i = 0; i < ret->chain.n; i++)
        strv_add(chain, ret->chain.v[i]);
    return 0;
}

int caches_save(const struct paths *paths, const char *id, uint64_t max_bytes,
                struct cache_saved *ret, struct err **e)
{
    AUTOSTRV struct strv chain = { 0 }, merged = { 0 }, parts = { 0 };
    AUTOCLOSE int store = -1, lock = -1;
    AUTOSTATE struct state s = { 0 };
    AUTOFREE char *dir = NULL;
    int rc;

    *ret = (struct cache_saved){ 0 };
    if ((rc = store_lock_shared(paths, &store, e)) < 0 ||
        (rc = frozen(paths, id, &s, &chain, e)) < 0)
        return rc;
    struct cache_key k = caches_key_of(&s);
    dir = caches_dir(paths, &k);
    for (size_t i = 0; i < chain.n; i++) {
        AUTOFREE char *part = cache_part(paths, chain.v[i]);
        ret->anything |= part != NULL;
    }
    if (!ret->anything)
        return 0;
    if ((rc = caches_open(dir, &k, &lock, e)) < 0)
        return rc;
    read_merged(dir, &merged);
    for (size_t i = 0; i < chain.n; i++) {
        char *part = strv_has(&merged, chain.v[i]) ? NULL : cache_part(paths, chain.v[i]);
        if (part)
            strv_take(&parts, part);
    }
    if (!parts.n)
        return 0;
    struct merging m = { .layers = &parts,
                         .rules = { wanted, max_bytes, MAX_FILES, 0, 0 },
                         .counts = mmap(NULL, sizeof *m.counts, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0) };
    if (m.counts == MAP_FAILED)
        return err_sys(e, "memory");
    rc = merge(&s, dir, &m, e);
    ret->counts = *m.counts;
    (void)munmap(m.counts, sizeof *m.counts);
    return rc < 0 ? rc : write_merged(paths, dir, &merged, &chain, e);
}
