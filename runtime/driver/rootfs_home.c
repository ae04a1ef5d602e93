/* runtime/driver/rootfs_home.c - links in the home of the sandbox's user. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/driver/rootfs_priv.h"

/* A directory below `dir` that the user may write to, one component at a time. -1: something is in the way. */
static int users_dir(const struct rootfs *r, int dir, const char *path, size_t len)
{
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 3);

    while (at >= 0 && len > 0) {
        size_t n = strcspn(path, "/");
        AUTOFREE char *name = str_printf("%.*s", (int)n, path);
        if (mkdirat(at, name, 0755) == 0 && r->ids->mode != IDS_ROOT)
            (void)!fchownat(at, name, r->ids->user_uid, r->ids->user_gid, AT_SYMLINK_NOFOLLOW);
        int next = fs_open_beneath(at, name, O_PATH | O_DIRECTORY, 0, 0);
        close(at);
        at = next;
        n += path[n] == '/';
        path += n;
        len -= n < len ? n : len;
    }
    return at;
}

/* The skeleton of a sandbox that stays is made again with its walls, and must show nothing of that: a rollback
 * brings back all times. */
static void forget_time(int top, const char *rel)
{
    AUTOFREE char *path = str_dup(rel);

    for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
        *end = '\0';
        (void)!utimensat(top, path, (const struct timespec[2]){ { 0 }, { 0 } },
                         AT_SYMLINK_NOFOLLOW);
    }
}

void rootfs_home_link(const struct rootfs *r, int root, const struct plan_mount *m)
{
    const char *home = r->plan->home, *rel = m->dst + strlen(home) + 1, *name = strrchr(rel, '/');
    AUTOCLOSE int top = fs_open_beneath(root, home + 1, O_PATH | O_DIRECTORY, 0, 0), dir = -1;

    if (top < 0)
        return;
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(r->ids->user_uid, r->ids->user_gid);
    dir = users_dir(r, top, rel, name ? (size_t)(name - rel) : 0);
    if (dir >= 0 && symlinkat(m->src, dir, name ? name + 1 : rel) == 0 && r->plan->top)
        forget_time(top, rel);
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(0, 0);
}
