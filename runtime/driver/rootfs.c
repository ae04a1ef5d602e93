#include "runtime/driver/rootfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"

enum { NOBODY = 65534 }; /* whose id is not in the map */

int rootfs_scratch(const struct rootfs *r, struct err **e)
{
    int rc;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(e, "make the mounts private");
    if ((rc = scratch_mount(r->scratch, r->ids, e)) < 0)
        return rc;
    if (chdir(r->scratch->at) < 0)
        return err_sys(e, "enter '%s'", r->scratch->at);
    if (mkdir("s", 0700) < 0)
        return err_sys(e, "make the runtime's directory");
    return 0;
}

static void as_sandbox_root(const struct rootfs *r)
{
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(r->ids->root_uid, r->ids->root_gid);
}

/* Below what belongs to the sandbox's user (the home, the workspace) only that user can make things. */
static void as_user(const struct rootfs *r)
{
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(r->ids->user_uid, r->ids->user_gid);
}

static void as_self(const struct rootfs *r)
{
    if (r->ids->mode == IDS_ROOT)
        mnt_act_as(0, 0);
}

/* A mount point at `dst` of the kind that `fd` is. */
static int make_place(int root, int fd, const char *dst, int *ret, struct err **e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, "stat '%s'", dst);
    return S_ISDIR(st.st_mode) ? mnt_mkdirs(root, dst, ret, e) : mnt_mkfile(root, dst, ret, e);
}

static int place_for(const struct rootfs *r, int root, int fd, const char *dst, int *ret,
                     struct err **e)
{
    int rc;
    as_sandbox_root(r);
    rc = make_place(root, fd, dst, ret, NULL);
    if (rc < 0) {
        as_user(r);
        rc = make_place(root, fd, dst, ret, e);
    }
    as_self(r);
    return rc;
}

static int attach_clone(const struct rootfs *r, int root, int fd, const char *dst, struct err **e)
{
    AUTOCLOSE int place = -1;
    int rc = place_for(r, root, fd, dst, &place, e);
    return rc < 0 ? rc : mnt_attach(fd, place, dst, e);
}

static int add_bind(const struct rootfs *r, int root, const struct plan_mount *m, struct err **e)
{
    AUTOCLOSE int fd = -1;
    CLEANUP(err_free_p) struct err *why = NULL;
    int userns = m->plain_ids ? -1 : m->user ? r->project_userns : r->userns;
    unsigned flags = m->ro ? MNT_RO : 0;
    int rc = mnt_clone(AT_FDCWD, m->src, flags, userns, &fd, &why);

    /* a file system below it that takes no id map: without what is mounted there */
    if (rc < 0 && userns >= 0 && why->sys == EINVAL)
        rc = mnt_clone(AT_FDCWD, m->src, flags | MNT_TOP, userns, &fd, &why);
    /* none at all (a container's own overlay): the system's files are then nobody's, still readable */
    if (rc < 0 && userns >= 0 && why->sys == EINVAL && m->ro)
        rc = mnt_clone(AT_FDCWD, m->src, flags, -1, &fd, &why);
    if (rc < 0) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    return attach_clone(r, root, fd, m->dst, e);
}

/* An overlay over finished lowers (scratch names, top first), its changes in the scratch. Its top has
 * owner and mode of `like`, one of the lowers. */
static int scratch_overlay(const struct rootfs *r, const char *lowers, const char *like,
                           const char *tag, const char *at, struct err **e)
{
    bool root = r->ids->mode == IDS_ROOT;
    char up[40], work[40];
    AUTOFREE char *opts = NULL;
    struct stat st;

    snprintf(up, sizeof up, "u%s", tag);
    snprintf(work, sizeof work, "k%s", tag);
    opts = str_printf("lowerdir=%s,upperdir=%s,workdir=%s,volatile%s", lowers, up, work,
                      root ? ",redirect_dir=on,index=off,metacopy=off" : ",userxattr");
    if (mkdir(up, 0755) < 0 || mkdir(work, 0700) < 0 || stat(like, &st) < 0)
        return err_sys(e, "prepare an overlay");
    /* the host's root has no id inside */
    if (st.st_uid == (root ? 0 : NOBODY))
        st.st_uid = r->ids->root_uid;
    if (st.st_gid == (root ? 0 : NOBODY))
        st.st_gid = r->ids->root_gid;
    if (chown(up, st.st_uid, st.st_gid) < 0 || chmod(up, st.st_mode & 07777) < 0)
        return err_sys(e, "prepare an overlay");
    if (mount("overlay", at, "overlay", MS_NOSUID | MS_NODEV, opts) < 0)
        return err_sys(e, "mount an overlay (see petri doctor)");
    return 0;
}

/* Puts an attached copy of `src` at the scratch name `name`, for use as a lower. */
static int scratch_lower(const struct rootfs *r, const char *src, const char *name, struct err **e)
{
    AUTOCLOSE int fd = -1, at = -1;
    CLEANUP(err_free_p) struct err *why = NULL;
    unsigned flags = MNT_RO | (r->ids->mode == IDS_ROOT ? MNT_TOP : 0);
    int rc = mnt_clone(AT_FDCWD, src, flags, r->userns, &fd, &why);

    /* takes no id map (a container's own overlay): nobody's files, readable */
    if (rc < 0 && r->userns >= 0 && why->sys == EINVAL)
        rc = mnt_clone(AT_FDCWD, src, flags, -1, &fd, NULL);
    if (rc < 0) {
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    if (mkdir(name, 0755) < 0 || (at = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, "prepare '%s'", src);
    return mnt_attach(fd, at, src, e);
}

/* An ordinary user can't leave out what is mounted below a tree, and the kernel makes no overlay with it. */
static int explain_overlay(const struct rootfs *r, const struct plan_mount *m, struct err **e)
{
    AUTOFREE char *table = NULL, *below = str_printf(" %s/", m->src);

    if (r->ids->mode == IDS_ROOT ||
        fs_read(AT_FDCWD, "/proc/self/mountinfo", 16 << 20, &table, NULL, NULL) < 0 ||
        !strstr(table, below))
        return err_wrap(e, "'%s'", m->dst);
    if (e)
        *e = err_free(*e);
    return err_new(e, ERR_UNSUPPORTED,
                   "'%s': another file system is mounted below it, so an ordinary user can't "
                   "have a writable copy; use another --image or user, or run petri as root",
                   m->dst);
}

static int add_overlay(const struct rootfs *r, int root, const struct plan_mount *m, size_t i,
                       struct err **e)
{
    const struct dirlayer_tree *dirs = dirlayer_for(r->dirs, m->dst);
    char tag[24], low[32], top[32], at[32], both[72];
    AUTOCLOSE int fd = -1;
    int rc;

    snprintf(tag, sizeof tag, "x%zu", i);
    snprintf(low, sizeof low, "l%s", tag);
    snprintf(top, sizeof top, "t%s", tag);
    snprintf(at, sizeof at, "w%s", tag);
    snprintf(both, sizeof both, "%s:%s", top, low);
    if (!(dirs && dirs->whole) && (rc = scratch_lower(r, m->src, low, e)) < 0)
        return rc;
    if (dirs && (rc = scratch_lower(r, dirs->path, top, e)) < 0)
        return rc;
    if (mkdir(at, 0755) < 0)
        return err_sys(e, "prepare '%s'", m->dst);
    if ((rc = scratch_overlay(r,
                              !dirs         ? low
                              : dirs->whole ? top
                                            : both,
                              dirs ? top : low, tag, at, e)) < 0)
        return explain_overlay(r, m, e);
    if ((rc = mnt_clone(AT_FDCWD, at, m->ro ? MNT_RO : 0, -1, &fd, e)) < 0)
        return err_wrap(e, "'%s'", m->dst);
    return attach_clone(r, root, fd, m->dst, e);
}

/* The root of an image: its layers, and an upper of the sandbox's own. */
static int image_root(const struct rootfs *r, struct err **e)
{
    AUTOSTR struct str lowers = STR_INIT;
    char name[24] = "";
    for (size_t i = 0; i < r->plan->image_layers.n; i++) {
        int rc;
        snprintf(name, sizeof name, "li%zu", i);
        if ((rc = scratch_lower(r, r->plan->image_layers.v[i], name, e)) < 0)
            return rc;
        str_addf(&lowers, "%s%s", i ? ":" : "", name);
    }
    return scratch_overlay(r, lowers.p, name, "root", "root", e);
}

/* A writable directory from the scratch. /tmp and its like are everybody's, the others the user's. */
static int add_writable(const struct rootfs *r, int root, const char *dst, size_t i, struct err **e)
{
    bool tmp = str_ends(dst, "/tmp");
    AUTOCLOSE int fd = -1;
    char name[24];
    int rc;

    snprintf(name, sizeof name, "d%zu", i);
    if (mkdir(name, 0755) < 0 || chown(name, r->ids->user_uid, r->ids->user_gid) < 0 ||
        chmod(name, tmp ? 01777 : 0755) < 0)
        return err_sys(e, "make '%s'", dst);
    rc = mnt_clone(AT_FDCWD, name, 0, -1, &fd, e);
    return rc < 0 ? rc : attach_clone(r, root, fd, dst, e);
}

/* Hides a path behind something empty that nobody may read. Missing paths need no hiding. */
static int add_empty(const struct rootfs *r, int root, const char *dst, struct err **e)
{
    AUTOCLOSE int at = fs_open_beneath(root, dst + strspn(dst, "/"), O_PATH | O_NOFOLLOW, 0, 0);
    AUTOCLOSE int fd = -1;
    struct stat st;
    int rc;

    if (at < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0
                                                                     : err_sys(e, "hide '%s'", dst);
    if (fstat(at, &st) < 0)
        return err_sys(e, "hide '%s'", dst);
    if (S_ISDIR(st.st_mode) ? mkdir("e", 0) : mknod("f", S_IFREG, 0))
        if (errno != EEXIST)
            return err_sys(e, "hide '%s'", dst);
    rc = mnt_clone(AT_FDCWD, S_ISDIR(st.st_mode) ? "e" : "f", MNT_RO, -1, &fd, e);
    return rc < 0 ? rc : mnt_attach(fd, at, dst, e);
}

static int add_link(const struct rootfs *r, int root, const struct plan_mount *m, struct err **e)
{
    const char *name = m->dst + strspn(m->dst, "/");
    int rc;
    as_sandbox_root(r);
    rc = symlinkat(m->src, root, name);
    if (rc < 0 && errno == EACCES) {
        as_user(r);
        rc = symlinkat(m->src, root, name);
    }
    as_self(r);
    return rc < 0 ? err_sys(e, "link '%s'", m->dst) : 0;
}

static int add_mount(const struct rootfs *r, int root, size_t i, struct err **e)
{
    const struct plan_mount *m = &r->plan->mounts.v[i];
    AUTOCLOSE int fd = -1;
    int rc = 0;

    switch (m->kind) {
    case MOUNT_BIND:
        return m->overlay ? add_overlay(r, root, m, i, e) : add_bind(r, root, m, e);
    case MOUNT_LINK:
        return add_link(r, root, m, e);
    case MOUNT_TMPFS:
        if (weakened() & WEAK_TMP && str_ends(m->dst, "/tmp")) {
            struct plan_mount host = { .kind = MOUNT_BIND, .src = m->dst, .dst = m->dst };
            return add_bind(r, root, &host, e);
        }
        return add_writable(r, root, m->dst, i, e);
    case MOUNT_EMPTY:
        return add_empty(r, root, m->dst, e);
    case MOUNT_DIR:
        as_sandbox_root(r);
        rc = mnt_mkdirs(root, m->dst, &fd, e);
        as_self(r);
        break;
    }
    return rc;
}

/* The workspace's view at one place, hidden names covered where the view itself is the host's. */
static int show_at(const struct rootfs *r, int root, int view, const char *dst, struct err **e)
{
    AUTOCLOSE int fd = -1;
    unsigned flags = (r->plan->read_only ? MNT_RO : 0) | (weakened() & WEAK_NOSUID ? MNT_SUID : 0);
    int rc = mnt_clone(view, "", flags, -1, &fd, e);
    if (rc < 0 || (rc = attach_clone(r, root, fd, dst, e)) < 0)
        return rc;
    for (size_t i = 0; r->plan->mode == WORKSPACE_BIND && i < r->plan->hide.n; i++) {
        AUTOFREE char *p = path_join(dst, r->plan->hide.v[i]);
        if ((rc = add_empty(r, root, p, e)) < 0)
            return rc;
    }
    return 0;
}

static int add_workspace(const struct rootfs *r, int root, const char *src, unsigned index,
                         struct err **e)
{
    const struct plan *p = r->plan;
    AUTOCLOSE int view = -1;
    struct workspace w = {
        .src = src,
        .index = index,
        .mode = p->mode,
        .hide = index == 0 ? &p->hide : NULL,
        .dev = index == 0 ? p->project_dev : 0,
        .ino = index == 0 ? p->project_ino : 0,
        .userns = r->project_userns,
        .rootless = r->ids->mode != IDS_ROOT,
        .suid = weakened() & WEAK_NOSUID,
        .uid = r->ids->user_uid,
        .gid = r->ids->user_gid,
    };
    int rc = workspace_mount(&w, &view, e);

    if (rc < 0)
        return rc;
    if ((rc = show_at(r, root, view, src, e)) < 0)
        return rc;
    if (!path_below(src, p->project))
        return 0;
    AUTOFREE char *dst = str_printf("/workspace%s", src + strlen(p->project));
    return strcmp(dst, src) == 0 ? 0 : show_at(r, root, view, dst, e);
}

/* -v: below the project it must show at both of the project's places. */
static int add_volume(const struct rootfs *r, int root, const struct plan_mount *m, struct err **e)
{
    const char *project = r->plan->project;
    struct plan_mount twin = *m;
    AUTOFREE char *other = NULL;
    int rc = add_bind(r, root, m, e);

    if (rc < 0 || !project)
        return rc;
    if (path_below(m->dst, "/workspace"))
        other = str_printf("%s%s", project, m->dst + strlen("/workspace"));
    else if (path_below(m->dst, project))
        other = str_printf("/workspace%s", m->dst + strlen(project));
    if (!other || strcmp(other, m->dst) == 0)
        return 0;
    twin.dst = other;
    return add_bind(r, root, &twin, e);
}

/* The runtime looks at /sys/fs/cgroup and gives up where v1 and v2 are mixed; cover its v2 part (to unmount it
 * would wait for every other cpu). */
static void hide_hybrid(void)
{
    if (access("/sys/fs/cgroup/unified/cgroup.controllers", F_OK) == 0)
        mount("petri", "/sys/fs/cgroup/unified", "tmpfs", MS_RDONLY, "size=4k");
}

int rootfs_build(const struct rootfs *r, struct err **e)
{
    static const char *const points[] = { "/proc", "/sys", "/dev" };
    struct plan_mount init = {
        .kind = MOUNT_BIND, .src = (char *)r->init, .dst = ROOTFS_INIT, .ro = true
    };
    AUTOCLOSE int root = -1;
    int rc;

    as_sandbox_root(r);
    rc = mkdir("root", 0755);
    as_self(r);
    if (rc < 0)
        return err_sys(e, "make the root directory");
    /* a mount of its own: the runtime's child can't look up the path above it to find one */
    rc = r->plan->image_layers.n ? image_root(r, e) : mount("root", "root", NULL, MS_BIND, NULL);
    if (rc < 0)
        return e && *e ? rc : err_sys(e, "make the root a mount");
    root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, "make the root directory");
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        AUTOCLOSE int fd = -1;
        as_sandbox_root(r);
        rc = mnt_mkdirs(root, points[i], &fd, e);
        as_self(r);
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < r->plan->mounts.n; i++)
        if (!r->plan->mounts.v[i].user && (rc = add_mount(r, root, i, e)) < 0)
            return rc;
    if (r->plan->project && (rc = add_workspace(r, root, r->plan->project, 0, e)) < 0)
        return rc;
    for (size_t i = 0; i < r->plan->extra_lowers.n; i++)
        if ((rc = add_workspace(r, root, r->plan->extra_lowers.v[i], (unsigned)i + 1, e)) < 0)
            return rc;
    for (size_t i = 0; i < r->plan->mounts.n; i++)
        if (r->plan->mounts.v[i].user && (rc = add_volume(r, root, &r->plan->mounts.v[i], e)) < 0)
            return rc;
    if ((rc = add_bind(r, root, &init, e)) < 0)
        return rc;
    hide_hybrid();
    return 0;
}
