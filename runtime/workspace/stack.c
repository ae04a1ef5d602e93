#include "runtime/workspace/stack.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/workspace/layer_node.h"

int stack_open(const struct plan *p, struct err **e)
{
    char name[24];
    int rc;

    if (symlink(p->top, "t") < 0)
        return err_sys(e, "name the layer '%s'", p->top);
    for (size_t i = 0; i < p->chain.n; i++) {
        snprintf(name, sizeof name, "c%zu", i);
        if (symlink(p->chain.v[i], name) < 0)
            return err_sys(e, "name the layer '%s'", p->chain.v[i]);
        if (access(name, F_OK) < 0)
            return err_new(e, ERR_CORRUPT, "the layer '%s' is gone; petri fsck says more",
                           p->chain.v[i]);
    }
    if ((rc = fs_remove_tree(AT_FDCWD, "t/work", e)) < 0)
        return rc;
    return mkdir("t/work", 0700) < 0 ? err_sys(e, "make a work directory in '%s'", p->top) : 0;
}

void stack_lowers(const struct plan *p, const char *entry, struct str *ret)
{
    for (size_t i = p->chain.n; i-- > 0;) {
        char name[64];
        snprintf(name, sizeof name, "c%zu/%s", i, entry);
        if (access(name, F_OK) == 0)
            str_addf(ret, "%s:", name);
    }
}

/* 1: the layer below has no such entry, either. */
static int like_below(const struct plan *p, const char *entry, const char *up, struct err **e)
{
    AUTOCLOSE int from = -1, to = open(up, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct nodes n;
    int rc;

    for (size_t i = p->chain.n; from < 0 && i-- > 0;) {
        char name[64];
        snprintf(name, sizeof name, "c%zu/%s", i, entry);
        from = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (from < 0 && errno != ENOENT)
            return err_sys(e, "open the layer of '%s'", entry);
    }
    if (from < 0)
        return 1;
    nodes_init(&n, to, false);
    rc = to < 0 ? err_sys(e, "open '%s'", up) : node_finish_dir(&n, from, to, NULL, entry, e);
    (void)nodes_end(&n, NULL);
    return rc;
}

int stack_upper(const struct plan *p, const char *entry, char up[64], char work[64], bool *ret_new,
                struct err **e)
{
    int rc = 0;

    snprintf(up, 64, "t/%s", entry);
    snprintf(work, 64, "t/work/%s", entry);
    *ret_new = mkdir(up, 0755) == 0;
    if ((!*ret_new && errno != EEXIST) || mkdir(work, 0700) < 0)
        return err_sys(e, "make a layer for '%s'", entry);
    if (*ret_new && (rc = like_below(p, entry, up, e)) < 0)
        return rc;
    *ret_new = *ret_new && rc == 1;
    return 0;
}
