#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/system.h"

#define MAX_TABLE (16u << 20)

static bool is_socket(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void mark(const struct plan_mounts *m, const char *path, struct strv *ret)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].kind == MOUNT_BIND && path_below(path, m->v[i].src) &&
            !strv_has(ret, m->v[i].dst))
            strv_add(ret, m->v[i].dst);
}

/* A server that went to its own directory first: the name is tried in each tree and in the
 * directories right below, where services of /opt live. */
static void mark_relative(const struct plan_mounts *m, const char *name, struct strv *ret)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *src = m->v[i].src;
        if (m->v[i].kind != MOUNT_BIND || strv_has(ret, m->v[i].dst))
            continue;
        AUTOFREE char *direct = path_join(src, name);
        bool found = is_socket(direct);
        DIR *d = found ? NULL : opendir(src);
        struct dirent *de;
        for (int n = 0; d && !found && n < 256 && (de = readdir(d)); n++) {
            if (de->d_type != DT_DIR || de->d_name[0] == '.')
                continue;
            AUTOFREE char *below = str_printf("%s/%s/%s", src, de->d_name, name);
            found = is_socket(below);
        }
        if (d)
            closedir(d);
        if (found)
            strv_add(ret, m->v[i].dst);
    }
}

static void one_socket(const struct plan_mounts *m, const char *path, struct strv *ret)
{
    if (path[0] == '@')
        return;
    if (path[0] != '/') {
        mark_relative(m, path, ret);
        return;
    }
    /* nearly all of them; these directories are nobody's to turn into links */
    if (str_starts(path, "/run/") || str_starts(path, "/var/run/"))
        return;
    mark(m, path, ret);
    AUTOFREE char *real = fs_realpath(path);
    if (real && strcmp(real, path) != 0)
        mark(m, real, ret);
}

int host_socket_trees_in(const char *table, const struct plan_mounts *mounts,
                         struct strv *ret_overlay, struct err **e)
{
    AUTOFREE char *text = NULL;
    char *save = NULL;

    if (fs_read(AT_FDCWD, table, MAX_TABLE, &text, NULL, NULL) < 0) {
        for (size_t i = 0; i < mounts->n; i++)
            if (mounts->v[i].kind == MOUNT_BIND)
                strv_add(ret_overlay, mounts->v[i].dst);
        return 0;
    }
    /* "Num RefCount Protocol Flags Type St Inode Path"; a socket without a name has no path */
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *p = l;
        for (int f = 0; f < 7 && *p; f++) {
            p += strspn(p, " ");
            p += strcspn(p, " ");
        }
        if (*p == ' ' && p[1] && strncmp(l, "Num", 3) != 0)
            one_socket(mounts, p + 1, ret_overlay);
    }
    return 0;
}

int host_socket_trees(const struct plan_mounts *mounts, struct strv *ret_overlay, struct err **e)
{
    return host_socket_trees_in("/proc/net/unix", mounts, ret_overlay, e);
}
