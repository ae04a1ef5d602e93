#include "oci/plan.h"

#include <stdio.h>
#include <stdlib.h>

void plan_mounts_add(struct plan_mounts *l, enum plan_mount_kind kind, const char *src,
                     const char *dst, bool ro)
{
    if ((l->n & (l->n - 1)) == 0) {
        l->v = realloc(l->v, (l->n ? 2 * l->n : 1) * sizeof *l->v);
        if (!l->v)
            abort();
    }
    l->v[l->n++] =
        (struct plan_mount){ .kind = kind, .src = str_dup(src), .dst = str_dup(dst), .ro = ro };
}

void plan_mounts_free_p(struct plan_mounts *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].src);
        free(l->v[i].dst);
    }
    free(l->v);
    *l = (struct plan_mounts){ 0 };
}

void plan_overlay_tag(const char *dst, char ret[16])
{
    uint32_t hash = 2166136261;
    for (const char *c = dst; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619;
    snprintf(ret, 16, "x-%08x", hash);
}

struct plan *plan_new(void)
{
    struct plan *p = mem_zalloc(sizeof *p);
    p->memory.value = 2ULL << 30;
    p->cpus_milli.value = 2000;
    p->pids.value = 256;
    p->disk.value = 10ULL << 30;
    p->inodes.value = 1000000;
    p->nofile.value = 65536;
    p->max_output = 10ULL << 20;
    return p;
}

struct plan *plan_free(struct plan *p)
{
    if (!p)
        return NULL;
    free(p->id);
    free(p->name);
    strv_free_p(&p->labels);
    free(p->image);
    strv_free_p(&p->image_layers);
    plan_mounts_free_p(&p->mounts);
    free(p->user);
    free(p->home);
    strv_free_p(&p->argv);
    strv_free_p(&p->env);
    free(p->cwd);
    free(p->project);
    free(p->workspace);
    strv_free_p(&p->hide);
    strv_free_p(&p->readonly);
    strv_free_p(&p->extra_lowers);
    strv_free_p(&p->missing);
    strv_free_p(&p->chain);
    free(p->top);
    free(p);
    return NULL;
}
