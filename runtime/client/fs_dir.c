/* runtime/client/fs_dir.c - what is in a directory. */
#include "runtime/client/fs.h"

struct entry {
    const char *name, *target;
    struct proto_stat st;
};

struct petri_dir {
    struct str list;
    struct entry *v;
    size_t n, at;
};

/* A name is one component; a sandbox that says otherwise wants its caller to write elsewhere. */
static bool good_name(const char *s)
{
    return *s && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* One record: struct proto_stat, name, target where it has one. */
static bool parse(const char *p, size_t n, struct entry *ret)
{
    const char *end = p + n;

    memcpy(&ret->st, p, sizeof ret->st);
    ret->name = p + sizeof ret->st;
    ret->target = NULL;
    p = ret->name + strlen(ret->name) + 1;
    if (ret->st.has_target && p < end) {
        ret->target = p;
        p += strlen(p) + 1;
    }
    return p == end && good_name(ret->name) && !ret->target == !ret->st.has_target;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int index_entries(struct petri_dir *d)
{
    size_t room = 0;
    for (size_t at = 0; at < d->list.len;) {
        uint32_t n;
        memcpy(&n, d->list.p + at, sizeof n);
        at += sizeof n;
        if (d->n == room) {
            room = room ? room * 2 : 64;
            d->v = realloc(d->v, room * sizeof *d->v);
            if (!d->v)
                abort();
        }
        if (!parse(d->list.p + at, n, &d->v[d->n]))
            return -1;
        d->n++;
        at += n;
    }
    if (d->n)
        qsort(d->v, d->n, sizeof *d->v, by_name);
    return 0;
}

int petri_fs_ls(struct petri_sandbox *s, const char *path, struct petri_dir **ret,
                struct petri_error *e)
{
    struct petri_dir *d = mem_zalloc(sizeof *d);
    struct fs_ask a = { .op = FS_LS, .path = path, .ret_list = &d->list };
    int rc = fs_ask(s, &a, e);

    if (rc == 0 && index_entries(d) < 0)
        rc =
            client_fail(e, "failed", "'%s': sandbox '%s' lists names that can't be", path, s->name);
    if (rc < 0) {
        petri_dir_free(d);
        return -1;
    }
    *ret = d;
    return 0;
}

const char *petri_dir_next(struct petri_dir *d, struct petri_stat *st, const char **target)
{
    if (d->at == d->n)
        return NULL;
    const struct entry *en = &d->v[d->at++];
    fs_give_stat(&en->st, st);
    if (target)
        *target = en->target;
    return en->name;
}

void petri_dir_free(struct petri_dir *d)
{
    if (!d)
        return;
    str_reset(&d->list);
    free(d->v);
    free(d);
}
