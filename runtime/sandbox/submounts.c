/* runtime/sandbox/submounts.c - what is mounted below a directory: project_submounts() of project.h. */
#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/sandbox/project.h"

/* \040 and its like in mountinfo. */
static void unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
            *out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

static bool holds_files(const char *type)
{
    static const char *const types[] = { "ext2",     "ext3",  "ext4",     "xfs",     "btrfs",
                                         "f2fs",     "zfs",   "tmpfs",    "overlay", "vfat",
                                         "exfat",    "ntfs",  "ntfs3",    "nfs",     "nfs4",
                                         "cifs",     "9p",    "virtiofs", "ceph",    "iso9660",
                                         "squashfs", "erofs", "bcachefs" };
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return str_starts(type, "fuse");
}

/* An overlay does not see what is mounted below its lower: each gets one of its own. */
int project_submounts(const char *dir, struct strv *ret_files, struct strv *ret_rest,
                      struct err **e)
{
    AUTOFREE char *text = NULL;
    int rc = fs_read(AT_FDCWD, "/proc/self/mountinfo", 16 << 20, &text, NULL, e);
    if (rc < 0)
        return rc;
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *f = l, *type = strstr(l, " - ");
        for (int i = 0; f && i < 4; i++)
            f = (f = strchr(f, ' ')) ? f + 1 : NULL;
        if (!f || !type)
            continue;
        type += 3;
        type[strcspn(type, " ")] = '\0';
        f[strcspn(f, " ")] = '\0';
        unescape(f);
        if (strcmp(f, dir) == 0 || !path_below(f, dir))
            continue;
        struct strv *list = holds_files(type) && fs_is_dir(f) ? ret_files : ret_rest;
        if (!strv_has(list, f))
            strv_add(list, f);
    }
    return 0;
}
