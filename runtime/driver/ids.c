#include "runtime/driver/ids.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/user.h"

enum { RANGE = 65536, ROOT_FIRST = 524288, ROOT_LAST = 0x70000000 };

const char *ids_mode_name(enum ids_mode m)
{
    return m == IDS_ROOT ? "root" : m == IDS_SUB ? "sub" : "single";
}

bool ids_is_root(const struct ids *ids)
{
    return ids->mode != IDS_ROOT && ids->outer_uids.n && ids->outer_uids.v[0].outside == 0;
}

const char *ids_note(const struct ids *ids)
{
    if (ids->direct)
        return "the project's file system takes no id maps: inside runs the id of its owner, not "
               "one of its own";
    if (ids_is_root(ids))
        return "root has not its rights here (a container): inside runs root's own id, without any "
               "of them";
    return NULL;
}

static void line(struct idmap *m, uint32_t inside, uint32_t outside, uint32_t count)
{
    if (count)
        m->v[m->n++] = (struct idmap_line){ inside, outside, count };
}

/* Every id `in` shifted by `base`, but `a` and `b` swapped; b >= RANGE takes the last place. */
static void swap_map(struct idmap *m, uint32_t base, uint32_t a, uint32_t b)
{
    uint32_t lo = a < b ? a : b, hi = a < b ? b : a;
    if (hi >= RANGE) {
        /* an id beyond the range: `hi` appears as `lo`, and nothing else has that place */
        line(m, 0, base, lo);
        line(m, hi, base + lo, 1);
        line(m, lo + 1, base + lo + 1, RANGE - lo - 1);
        return;
    }
    line(m, 0, base, lo);
    line(m, lo, base + hi, 1);
    if (lo == hi) {
        line(m, lo + 1, base + lo + 1, RANGE - lo - 1);
        return;
    }
    line(m, lo + 1, base + lo + 1, hi - lo - 1);
    line(m, hi, base + lo, 1);
    line(m, hi + 1, base + hi + 1, RANGE - hi - 1);
}

/* Every id shifted by `base`, but `inside` is `outside` itself. */
static void direct_map(struct idmap *m, uint32_t base, uint32_t inside, uint32_t outside)
{
    line(m, 0, base, inside);
    line(m, inside, outside, 1);
    line(m, inside + 1, base + inside + 1, RANGE - inside - 1);
}

/* File systems whose mounts can be idmapped; on others (overlay, nfs, 9p, fuse, ...) the kernel says no. */
static bool takes_idmap(const char *path)
{
    static const uint32_t types[] = { 0xef53 /* ext4 */,
                                      0x58465342 /* xfs */,
                                      0x9123683e /* btrfs */,
                                      0x01021994 /* tmpfs */,
                                      0xf2f52010 /* f2fs */,
                                      0xe0f5e1e2 /* erofs */,
                                      0x4d44 /* vfat */,
                                      0x2011bab0 /* exfat */,
                                      0x73717368 /* squashfs */,
                                      0x00c36400 /* ceph */,
                                      0xca451a4e /* bcachefs */ };
    struct statfs s;
    if (statfs(path, &s) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if ((uint32_t)s.f_type == types[i])
            return true;
    return false;
}

/* Root of the whole machine with its rights, and not of a container or a namespace with few ids. */
static bool real_root(void)
{
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[2] = { 0 };
    AUTOFREE char *map = NULL;
    unsigned inside, outside, count;
    if (geteuid() != 0 || syscall(SYS_capget, &h, caps) < 0 ||
        !(caps[0].effective & 1u << CAP_SYS_ADMIN))
        return false;
    return fs_read(AT_FDCWD, "/proc/self/uid_map", 65536, &map, NULL, NULL) < 0 ||
           (sscanf(map, "%u %u %u", &inside, &outside, &count) == 3 && count >= ROOT_FIRST + RANGE);
}

/* Calls for each "name:first:count" line of a subid file. */
static int subid_lines(const char *file, bool (*f)(const char *, uint64_t, uint64_t, void *),
                       void *arg)
{
    AUTOFREE char *text = NULL;
    if (fs_read(AT_FDCWD, file, 1 << 20, &text, NULL, NULL) < 0)
        return -1;
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *a = strchr(l, ':'), *b = a ? strchr(a + 1, ':') : NULL;
        uint64_t first, count;
        if (!b)
            continue;
        *a = *b = '\0';
        if (parse_uint(a + 1, UINT32_MAX, &first, NULL) < 0 ||
            parse_uint(b + 1, UINT32_MAX, &count, NULL) < 0)
            continue;
        if (f(l, first, count, arg))
            return 1;
    }
    return 0;
}

static bool overlaps(const char *name, uint64_t first, uint64_t count, void *arg)
{
    uint64_t base = *(uint64_t *)arg;
    return first < base + RANGE && base < first + count;
}

/* The first range that nobody was given: what a sandbox of root owns must be no other user's. */
static int root_range(uint32_t *ret, struct err **e)
{
    for (uint64_t base = ROOT_FIRST; base < ROOT_LAST; base += RANGE) {
        if (subid_lines("/etc/subuid", overlaps, &base) != 1 &&
            subid_lines("/etc/subgid", overlaps, &base) != 1) {
            *ret = (uint32_t)base;
            return 0;
        }
    }
    return err_new(e, ERR_LIMIT, "/etc/subuid leaves no free range of %d ids for sandboxes", RANGE);
}

struct own_range {
    const char *name, *uid;
    uint64_t first;
};

static bool own(const char *name, uint64_t first, uint64_t count, void *arg)
{
    struct own_range *r = arg;
    if ((!r->name || strcmp(name, r->name) != 0) && strcmp(name, r->uid) != 0)
        return false;
    r->first = first;
    return count >= RANGE;
}

static int sub_range(const char *file, uint64_t *ret, struct err **e)
{
    CLEANUP(user_free_p) struct user me = { 0 };
    char uid[16];
    struct own_range r = { .uid = uid };
    user_by_uid(getuid(), &me);
    r.name = me.name;
    snprintf(uid, sizeof uid, "%u", getuid());
    if (subid_lines(file, own, &r) != 1)
        return err_new(
            e, ERR_UNSUPPORTED,
            "this needs more than one user id, and %s gives you no range of %d; "
            "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s",
            file, RANGE, r.name ? r.name : uid);
    *ret = r.first;
    return 0;
}

static int plan_root(const struct plan *p, struct ids *ids, struct err **e)
{
    uint32_t base = 0;
    int rc = root_range(&base, e);
    if (rc < 0)
        return rc;
    if (weakened() & WEAK_USERNS)
        base = 0;
    if (p->project && p->mode != WORKSPACE_COPY && !takes_idmap(p->project)) {
        /* the machine's own root is never an id of a sandbox */
        if (p->owner_uid == 0)
            return err_new(e, ERR_UNSUPPORTED,
                           "'%s' belongs to root and lies on a file system without id maps; use "
                           "--workspace-mode copy, or a copy on ext4, xfs or btrfs",
                           p->project);
        ids->direct = true;
        direct_map(&ids->uids, base, p->uid, p->owner_uid);
        direct_map(&ids->gids, base, p->gid, p->owner_gid ? p->owner_gid : base + p->gid);
        ids->root_uid = ids->root_gid = base;
        ids->user_uid = p->owner_uid;
        ids->user_gid = p->owner_gid ? p->owner_gid : base + p->gid;
        return 0;
    }
    line(&ids->uids, 0, base, RANGE);
    line(&ids->gids, 0, base, RANGE);
    ids->swap = p->uid != p->owner_uid || p->gid != p->owner_gid;
    swap_map(&ids->project_uids, base, p->uid, p->owner_uid);
    swap_map(&ids->project_gids, base, p->gid, p->owner_gid);
    ids->root_uid = ids->root_gid = base;
    ids->user_uid = base + p->uid;
    ids->user_gid = base + p->gid;
    return 0;
}

int ids_plan(const struct plan *p, bool many, struct ids *ret, struct err **e)
{
    struct ids ids = { 0 };
    uint64_t u, g;
    int rc;

    if (real_root()) {
        if (p->uid >= RANGE || p->gid >= RANGE)
            return err_new(e, ERR_INVALID, "user %u:%u: ids inside must be below %d", p->uid,
                           p->gid, RANGE);
        ids.mode = IDS_ROOT;
        rc = plan_root(p, &ids, e);
        if (rc < 0)
            return rc;
        *ret = ids;
        return 0;
    }
    /* user 0 alone can do without a range: it is then the invoker's own id */
    if (many && p->uid == 0 && p->gid == 0 && sub_range("/etc/subuid", &u, NULL) < 0)
        many = false;
    ids.mode = many ? IDS_SUB : IDS_SINGLE;
    line(&ids.outer_uids, 0, getuid(), 1);
    line(&ids.outer_gids, 0, getgid(), 1);
    if (!many) {
        line(&ids.uids, p->uid, 0, 1);
        line(&ids.gids, p->gid, 0, 1);
    } else {
        uid_t self_uid = p->owner_uid;
        gid_t self_gid = p->owner_gid;
        if ((rc = sub_range("/etc/subuid", &u, e)) < 0 ||
            (rc = sub_range("/etc/subgid", &g, e)) < 0)
            return rc;
        line(&ids.outer_uids, 1, (uint32_t)u, RANGE);
        line(&ids.outer_gids, 1, (uint32_t)g, RANGE);
        if (self_uid >= RANGE || self_uid == 0)
            self_uid = 1000;
        if (self_gid >= RANGE || self_gid == 0)
            self_gid = 1000;
        /* the user's own files keep the user's number; the rest comes from the range */
        line(&ids.uids, 0, 1, self_uid);
        line(&ids.uids, self_uid, 0, 1);
        line(&ids.uids, self_uid + 1, self_uid + 1, RANGE - self_uid - 1);
        line(&ids.gids, 0, 1, self_gid);
        line(&ids.gids, self_gid, 0, 1);
        line(&ids.gids, self_gid + 1, self_gid + 1, RANGE - self_gid - 1);
        ids.root_uid = ids.root_gid = 1;
        ids.user_uid = p->uid == self_uid ? 0 : p->uid < self_uid ? p->uid + 1 : p->uid;
        ids.user_gid = p->gid == self_gid ? 0 : p->gid < self_gid ? p->gid + 1 : p->gid;
    }
    *ret = ids;
    return 0;
}

void idmap_format(const struct idmap *m, struct str *out)
{
    for (size_t i = 0; i < m->n; i++)
        str_addf(out, "%u %u %u\n", m->v[i].inside, m->v[i].outside, m->v[i].count);
}

static int write_map(pid_t pid, const char *file, const struct idmap *m, struct err **e)
{
    AUTOSTR struct str s = STR_INIT;
    AUTOFREE char *path = str_printf("/proc/%d/%s", (int)pid, file);
    idmap_format(m, &s);
    return fs_write_at(AT_FDCWD, path, s.p, e);
}

int ids_write(const struct idmap *uids, const struct idmap *gids, pid_t pid, bool deny_setgroups,
              struct err **e)
{
    AUTOFREE char *path = str_printf("/proc/%d/setgroups", (int)pid);
    int rc;
    if (deny_setgroups && (rc = fs_write_at(AT_FDCWD, path, "deny", e)) < 0)
        return rc;
    if ((rc = write_map(pid, "gid_map", gids, e)) < 0)
        return rc;
    return write_map(pid, "uid_map", uids, e);
}

static int run_helper(const char *program, pid_t pid, const struct idmap *m, struct err **e)
{
    extern char **environ;
    AUTOSTRV struct strv argv = { 0 };
    pid_t child;
    int rc, status;

    strv_add(&argv, program);
    strv_addf(&argv, "%d", (int)pid);
    for (size_t i = 0; i < m->n; i++) {
        strv_addf(&argv, "%u", m->v[i].inside);
        strv_addf(&argv, "%u", m->v[i].outside);
        strv_addf(&argv, "%u", m->v[i].count);
    }
    rc = posix_spawnp(&child, program, NULL, NULL, argv.v, environ);
    if (rc != 0)
        return err_new(e, ERR_UNSUPPORTED, "%s is not there (Debian: apt-get install uidmap)",
                       program);
    if (RETRY(waitpid(child, &status, 0)) < 0 || status != 0)
        return err_new(e, ERR_UNSUPPORTED, "%s refused the range of /etc/subuid and /etc/subgid",
                       program);
    return 0;
}

int ids_write_outer(const struct ids *ids, pid_t pid, struct err **e)
{
    int rc;
    if (ids->mode == IDS_SINGLE)
        return ids_write(&ids->outer_uids, &ids->outer_gids, pid, true, e);
    rc = run_helper("newgidmap", pid, &ids->outer_gids, e);
    return rc < 0 ? rc : run_helper("newuidmap", pid, &ids->outer_uids, e);
}

static bool has_id(const struct idmap *m, uint32_t id)
{
    for (size_t i = 0; i < m->n; i++)
        if (id >= m->v[i].inside && id - m->v[i].inside < m->v[i].count)
            return true;
    return false;
}

uint32_t ids_init(const struct ids *ids, const struct plan *p)
{
    enum { ID = 65530 };
    if (!p->live || ids->mode == IDS_SINGLE || p->uid == ID || p->gid == ID ||
        !has_id(&ids->uids, ID) || !has_id(&ids->gids, ID) ||
        weakened() & (WEAK_USERNS | WEAK_CAPS))
        return 0;
    return ID;
}
