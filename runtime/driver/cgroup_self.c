#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/fs.h"

const char *const cgroup_ctl_names[CTL_N] = { "freezer", "memory", "cpu", "pids", "cpuacct" };

static bool is_fs(const char *path, long magic)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && (long)fs.f_type == magic;
}

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = (p = strchr(p, ',')) ? p + 1 : NULL) {
        if (!strncmp(p, word, n) && (p[n] == ',' || !p[n]))
            return true;
    }
    return false;
}

/* "4:cpu,cpuacct:/a/b", or "0::/a/b" for v2. A path that begins with /.. lies outside of what is seen. */
static void self_line(struct cgroup_self *s, char *line)
{
    char *list = strchr(line, ':');
    char *path = list ? strchr(list + 1, ':') : NULL;

    if (!path || str_starts(path + 1, "/.."))
        return;
    *list++ = '\0';
    *path++ = '\0';
    if (!*list)
        s->v2 = path;
    for (int i = 0; i < CTL_N && *list; i++) {
        if (list_has(list, cgroup_ctl_names[i])) {
            s->v1[i] = path;
            s->v1_id[i] = (unsigned)strtoul(line, NULL, 10);
        }
    }
}

int cgroup_self_read(struct cgroup_self *ret)
{
    char *save;

    if (fs_read(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &ret->text, NULL, NULL) < 0)
        return -1;
    for (char *l = strtok_r(ret->text, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        self_line(ret, l);
    if (is_fs(CGROUP_ROOT, CGROUP2_SUPER_MAGIC))
        ret->v2_mount = CGROUP_ROOT;
    else if (!ret->v1[CTL_MEMORY] && !ret->v1[CTL_CPU] && !ret->v1[CTL_PIDS] &&
             is_fs(CGROUP_ROOT "/unified", CGROUP2_SUPER_MAGIC))
        ret->v2_mount = CGROUP_ROOT "/unified";
    else if (!is_fs(CGROUP_ROOT, TMPFS_MAGIC))
        return -1;
    return 0;
}

void cgroup_self_free_p(struct cgroup_self *s)
{
    free_p(&s->text);
}
