/* Mounts of the host below a tree that comes in by a recursive bind. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "image/host/system.h"

#define MAX_TABLE (16u << 20)

struct mnt {
    char *dev, *root, *point, *type; /* into the text */
};

/* What a tree of programs may be made of. Everything else stays out: procfs of a chroot in /opt
 * would show the host's processes, and a share or a tmpfs is somebody's data. */
static const char *const types[] = { "ext2", "ext3",    "ext4",     "xfs",   "btrfs",    "zfs",
                                     "f2fs", "overlay", "squashfs", "erofs", "bcachefs", "iso9660",
                                     "nfs",  "nfs4",    "9p",       "ceph",  "virtiofs" };
/* What never comes in by a detour: parts of the disk that are mounted a second time. */
static const char *const elsewhere[] = { "/home", "/root", "/srv",  "/var", "/run",
                                         "/etc",  "/tmp",  "/boot", "/dev" };

/* Octal escapes of blanks, in place. */
static void unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

/* "ID PARENT DEV ROOT POINT OPTIONS [optional...] - TYPE SOURCE SUPER" */
static bool parse(char *line, struct mnt *m)
{
    char *save = NULL, *f[5], *sep = strstr(line, " - ");
    if (!sep)
        return false;
    *sep = '\0';
    m->type = sep + 3;
    m->type[strcspn(m->type, " ")] = '\0';
    for (int i = 0; i < 5; i++)
        if (!(f[i] = strtok_r(i ? NULL : line, " ", &save)))
            return false;
    m->dev = f[2];
    m->root = f[3];
    m->point = f[4];
    unescape(m->root);
    unescape(m->point);
    return true;
}

static bool type_ok(const char *type)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/* Whether this mount shows something that also lies at a place that stays out. */
static bool from_elsewhere(const struct mnt *all, size_t n, const struct mnt *m)
{
    for (size_t i = 0; i < n; i++) {
        const struct mnt *o = &all[i];
        if (o == m || strcmp(o->dev, m->dev) != 0 || !path_below(m->root, o->root))
            continue;
        AUTOFREE char *place = path_join(o->point, m->root + (o->root[1] ? strlen(o->root) : 0));
        for (size_t k = 0; k < ARRAY_LEN(elsewhere); k++)
            if (path_below(place, elsewhere[k]))
                return true;
    }
    return false;
}

static void check_tree(const struct mnt *all, size_t n, const char *src, const char *dst,
                       struct plan_mounts *ret)
{
    size_t len = strlen(src);
    for (size_t i = 0; i < n; i++) {
        const struct mnt *m = &all[i];
        if (strncmp(m->point, src, len) != 0 || m->point[len] != '/')
            continue;
        if (type_ok(m->type) && !(host_system_path(dst) && from_elsewhere(all, n, m)))
            continue;
        AUTOFREE char *hide = path_join(dst, m->point + len + 1);
        plan_mounts_add(ret, MOUNT_EMPTY, NULL, hide, true);
    }
}

int host_hide_submounts_in(const char *table, struct plan_mounts *mounts, struct err **e)
{
    AUTOFREE char *text = NULL;
    AUTOFREE struct mnt *all = NULL;
    size_t n = 0, lines = 0;
    char *save = NULL;
    int rc = fs_read(AT_FDCWD, table, MAX_TABLE, &text, NULL, e);

    if (rc < 0)
        return err_wrap(e, "can't tell what is mounted below the system directories");
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    all = mem_zalloc((lines + 1) * sizeof *all);
    for (char *l = strtok_r(text, "\n", &save); l && n <= lines; l = strtok_r(NULL, "\n", &save))
        if (parse(l, &all[n]))
            n++;
    /* what this adds are no binds: their number and order stay */
    for (size_t i = 0, binds = mounts->n; i < binds; i++) {
        if (mounts->v[i].kind != MOUNT_BIND)
            continue;
        /* the list moves when it grows */
        AUTOFREE char *src = str_dup(mounts->v[i].src), *dst = str_dup(mounts->v[i].dst);
        check_tree(all, n, src, dst, mounts);
    }
    return 0;
}

int host_hide_submounts(struct plan_mounts *mounts, struct err **e)
{
    return host_hide_submounts_in("/proc/self/mountinfo", mounts, e);
}
