/* runtime/driver/rootfs_home.c - links in the home of the sandbox's user. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/driver/rootfs_priv.h"

/* A directory below `dir` that the user may write to, one component at a time. -1: something is in the way. */
static int users_dir(const struct rootfs *r, int dir, const char *path)
{
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);

    while (at >= 0 && *path) {
        size_t n = strcspn(path, "/");
        AUTOFREE char *name = str_printf("%.*s", (int)n, path);
        if (mkdirat(at, name, 0755) == 0 && r->ids->mode != IDS_ROOT)
            (void)!fchownat(at, name, r->ids->user_uid, r->ids->user_gid, AT_SYMLINK_NOFOLLOW);
        int next = fs_open_beneath(at, name, O_PATH | O_DIRECTORY, 0, 0);
        close(at);
        at = next;
        path += n + (path[n] == '/');
    }
    return at;
}

/* A skeleton may be made again, with new walls or after a sweep, and must show nothing of that: a rollback brings back
 * all times. */
static const struct timespec never[2] = { { 0 }, { 0 } };

/* `rel`, a directory below `top`, and those above it. */
static void forget_times(int top, const char *rel)
{
    AUTOFREE char *path = str_dup(rel);

    for (char *end = path + strlen(path); *path && end; end = strrchr(path, '/')) {
        *end = '\0';
        (void)!utimensat(top, path, never, AT_SYMLINK_NOFOLLOW);
    }
}

/* The links that are next to each other in the list and in one directory: how many. */
static size_t link_dir(const struct rootfs *r, int top, const struct plan_mount *m, size_t n)
{
    const char *rel = m->dst + strlen(r->plan->home) + 1, *slash = strrchr(rel, '/');
    AUTOFREE char *above = str_printf("%.*s", slash ? (int)(slash - rel) : 0, rel);
    size_t skip = (size_t)(rel - m->dst) + strlen(above) + (slash != NULL), i = 0;
    AUTOCLOSE int dir = users_dir(r, top, above);
    bool made = false;

    for (; i < n && strncmp(m[i].dst, m->dst, skip) == 0 && !strchr(m[i].dst + skip, '/'); i++) {
        if (dir < 0 || symlinkat(m[i].src, dir, m[i].dst + skip) < 0)
            continue;
        (void)!utimensat(dir, m[i].dst + skip, never, AT_SYMLINK_NOFOLLOW);
        made = true;
    }
    if (made)
        forget_times(top, above);
    return i;
}

void rootfs_home_links(const struct rootfs *r, int root, size_t first)
{
    const struct plan_mounts *all = &r->plan->mounts;
    const struct plan_mount *m = &all->v[first];
    AUTOCLOSE int top = fs_open_beneath(root, r->plan->home + 1, O_PATH | O_DIRECTORY, 0, 0);
    size_t n = 0;

    if (top < 0 || (first > 0 && m[-1].kind == MOUNT_HOME_LINK))
        return;
    while (first + n < all->n && m[n].kind == MOUNT_HOME_LINK)
        n++;
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(r->ids->user_uid, r->ids->user_gid);
    for (size_t done; n > 0; m += done, n -= done)
        done = link_dir(r, top, m, n);
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(0, 0);
}
