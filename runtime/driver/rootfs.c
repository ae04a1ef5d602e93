#include "runtime/driver/rootfs_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/workspace/stack.h"

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
    if (mkdir("m", 0555) < 0)
        return err_sys(e, "make a directory to mask with");
    return r->plan->top ? stack_open(r->plan, e) : 0;
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

static int make_place(const struct rootfs *r, int root, bool dir, const char *dst, int *ret,
                      struct err **e)
{
    int (*make)(int, const char *, int *, struct err **) = dir ? mnt_mkdirs : mnt_mkfile;
    int rc;

    as_sandbox_root(r);
    rc = make(root, dst, ret, NULL);
    if (rc < 0) {
        as_user(r);
        rc = make(root, dst, ret, e);
    }
    as_self(r);
    return rc;
}

/* A mount point at `dst` of the kind that `fd` is. Most are there: of the image, or of a skeleton. */
static int place_for(const struct rootfs *r, int root, int fd, const char *dst, int *ret,
                     struct err **e)
{
    struct stat st;
    bool dir;

    if (fstat(fd, &st) < 0)
        return err_sys(e, "stat '%s'", dst);
    dir = S_ISDIR(st.st_mode);
    *ret = fs_open_beneath(root, dst + strspn(dst, "/"), O_PATH | (dir ? O_DIRECTORY : 0), 0, 0);
    return *ret >= 0 ? 0 : make_place(r, root, dir, dst, ret, e);
}

int rootfs_attach(const struct rootfs *r, int root, int fd, const char *dst, struct err **e)
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
    return rootfs_attach(r, root, fd, m->dst, e);
}

/* /tmp and its like are everybody's, other writable directories the user's. */
static int give_away(const struct rootfs *r, const char *path, const char *dst, struct err **e)
{
    if (chown(path, r->ids->user_uid, r->ids->user_gid) < 0 ||
        chmod(path, str_ends(dst, "/tmp") ? 01777 : 0755) < 0)
        return err_sys(e, "make '%s'", dst);
    return 0;
}

/* A writable directory of the root itself, where it is not there. */
static int make_writable(const struct rootfs *r, int root, const char *dst, struct err **e)
{
    AUTOCLOSE int fd = -1;
    char path[32];
    int rc;

    if (faccessat(root, dst + 1, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    rc = make_place(r, root, true, dst, &fd, e);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return rc < 0 ? rc : give_away(r, path, dst, e);
}

/* One of the root's own overlay, or from the scratch. */
static int add_writable(const struct rootfs *r, int root, const char *dst, size_t i, struct err **e)
{
    AUTOCLOSE int fd = -1;
    char name[32];
    int rc;

    if (r->plan->top)
        return make_writable(r, root, dst, e);
    snprintf(name, sizeof name, "d%zu", i);
    if (mkdir(name, 0755) < 0)
        return err_sys(e, "make '%s'", dst);
    if ((rc = give_away(r, name, dst, e)) < 0 ||
        (rc = mnt_clone(AT_FDCWD, name, 0, -1, &fd, e)) < 0)
        return rc;
    return rootfs_attach(r, root, fd, dst, e);
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
    return rc < 0 && !(r->plan->top && errno == EEXIST) ? err_sys(e, "link '%s'", m->dst) : 0;
}

static int add_mount(const struct rootfs *r, int root, size_t i, struct err **e)
{
    const struct plan_mount *m = &r->plan->mounts.v[i];
    AUTOCLOSE int fd = -1;
    int rc = 0;

    switch (m->kind) {
    case MOUNT_BIND:
        return m->overlay ? rootfs_add_overlay(r, root, m, e) : add_bind(r, root, m, e);
    case MOUNT_LINK:
        return add_link(r, root, m, e);
    case MOUNT_HOME_LINK:
        rootfs_home_links(r, root, i);
        break;
    case MOUNT_TMPFS:
        if (weakened() & WEAK_TMP && str_ends(m->dst, "/tmp")) {
            struct plan_mount host = { .kind = MOUNT_BIND, .src = m->dst, .dst = m->dst };
            return add_bind(r, root, &host, e);
        }
        return add_writable(r, root, m->dst, i, e);
    case MOUNT_EMPTY:
        return add_empty(r, root, m->dst, e);
    case MOUNT_DIR:
        return make_place(r, root, true, m->dst, &fd, e);
    }
    return rc;
}

/* The workspace's view at one place, hidden names covered where the view itself is the host's. */
static int show_at(const struct rootfs *r, int root, int view, const char *dst, struct err **e)
{
    AUTOCLOSE int fd = -1;
    unsigned flags = (r->plan->read_only ? MNT_RO : 0) | (weakened() & WEAK_NOSUID ? MNT_SUID : 0);
    int rc = mnt_clone(view, "", flags, -1, &fd, e);
    if (rc < 0 || (rc = rootfs_attach(r, root, fd, dst, e)) < 0)
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
    static const struct strv none = { 0 };
    const struct plan *p = r->plan;
    AUTOCLOSE int view = -1;
    struct workspace w = {
        .plan = p,
        .src = src,
        .index = index,
        .mode = p->mode,
        .hide = index == 0 ? &p->hide : &none,
        .protect = index == 0 ? &p->readonly : &none,
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
    AUTOFREE char *dst = str_printf("%s%s", p->workspace, src + strlen(p->project));
    return strcmp(dst, src) == 0 ? 0 : show_at(r, root, view, dst, e);
}

char *rootfs_twin(const struct plan *p, const char *dst)
{
    if (!p->project || strcmp(p->project, p->workspace) == 0)
        return NULL;
    if (path_below(dst, p->workspace))
        return str_printf("%s%s", p->project, dst + strlen(p->workspace));
    if (path_below(dst, p->project))
        return str_printf("%s%s", p->workspace, dst + strlen(p->project));
    return NULL;
}

/* -v: below the project it must show at both of the project's places. */
static int add_volume(const struct rootfs *r, int root, const struct plan_mount *m, struct err **e)
{
    AUTOFREE char *other = rootfs_twin(r->plan, m->dst);
    struct plan_mount twin = *m;
    int rc = add_bind(r, root, m, e);

    if (rc < 0 || !other)
        return rc;
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

static int make_points(const struct rootfs *r, int root, struct err **e)
{
    static const char *const points[] = { "/proc", "/sys", "/dev" };
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(points) && rc == 0; i++) {
        AUTOCLOSE int fd = -1;
        rc = make_place(r, root, true, points[i], &fd, e);
    }
    return rc;
}

/* A place for everything that will be mounted, so that none of it is a change of the sandbox's. What lies below
 * something else that is mounted first is made in vain, and that is all. */
static int make_places(const struct rootfs *r, int root, struct err **e)
{
    const struct plan *p = r->plan;
    int rc;

    for (size_t i = 0; i < p->mounts.n; i++) {
        const struct plan_mount *m = &p->mounts.v[i];
        AUTOCLOSE int src = -1, at = -1;
        if (m->kind == MOUNT_BIND) {
            src = open(m->src, O_PATH | O_CLOEXEC);
            if (src < 0)
                return err_sys(e, "open '%s'", m->src);
            rc = place_for(r, root, src, m->dst, &at, e);
        } else if (m->kind == MOUNT_TMPFS) {
            rc = make_writable(r, root, m->dst, e);
        } else {
            rc = m->kind == MOUNT_EMPTY ? 0 : add_mount(r, root, i, e);
        }
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; p->project && i < p->extra_lowers.n + 2; i++) {
        AUTOCLOSE int dir = open(".", O_PATH | O_CLOEXEC), at = -1;
        const char *dst = i == 0 ? p->project : i == 1 ? p->workspace : p->extra_lowers.v[i - 2];
        if ((rc = place_for(r, root, dir, dst, &at, e)) < 0)
            return rc;
    }
    return 0;
}

int rootfs_places(const struct rootfs *r, int skel, struct err **e)
{
    AUTOCLOSE int init = -1;
    int rc;

    if ((rc = make_points(r, skel, e)) < 0 || (rc = make_places(r, skel, e)) < 0)
        return rc;
    return make_place(r, skel, false, ROOTFS_INIT, &init, e);
}

static int own_skeleton(const struct rootfs *r, struct err **e)
{
    AUTOCLOSE int skel = -1;
    int rc;

    as_sandbox_root(r);
    rc = mkdir("skel", 0755);
    as_self(r);
    if (rc < 0 || (skel = open("skel", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, "make the root directory");
    return rootfs_places(r, skel, e);
}

/* The root of a sandbox that stays, on the machine's own system: an overlay over a skeleton of directories. */
static int staying_root(const struct rootfs *r, struct err **e)
{
    int rc = r->skeleton ? rootfs_lower(r, r->skeleton, -1, "skel", e) : own_skeleton(r, e);

    return rc < 0 ? rc : rootfs_overlay(r, "skel", "skel", "r", "root", e);
}

/* The root of a run, with nothing to write in it: the skeleton itself. */
static int shared_root(const struct rootfs *r, struct err **e)
{
    AUTOCLOSE int fd = -1, at = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = mnt_clone(AT_FDCWD, r->skeleton, MNT_RO | MNT_TOP, -1, &fd, e);

    return rc < 0 ? rc : mnt_attach(fd, at, "/", e);
}

static int make_root(const struct rootfs *r, struct err **e)
{
    int rc;

    as_sandbox_root(r);
    rc = mkdir("root", 0755);
    as_self(r);
    if (rc < 0)
        return err_sys(e, "make the root directory");
    if (r->plan->image_layers.n)
        return rootfs_image(r, e);
    if (r->plan->top)
        return staying_root(r, e);
    if (r->skeleton)
        return shared_root(r, e);
    /* a mount of its own: the runtime's child can't look up the path above it to find one */
    return mount("root", "root", NULL, MS_BIND, NULL) < 0 ? err_sys(e, "make the root a mount") : 0;
}

/* Of the skeleton, and nothing has been mounted over it. */
static bool is_there(const struct plan *p, size_t i)
{
    const struct plan_mount *m = p->mounts.v;
    bool link = m[i].kind == MOUNT_LINK || m[i].kind == MOUNT_DIR;

    if (p->top)
        return link || m[i].kind == MOUNT_TMPFS || m[i].kind == MOUNT_HOME_LINK;
    for (size_t k = 0; k < i && link; k++)
        link = m[k].kind != MOUNT_TMPFS || !path_below(m[i].dst, m[k].dst);
    return link;
}

int rootfs_build(const struct rootfs *r, struct err **e)
{
    struct plan_mount init = {
        .kind = MOUNT_BIND, .src = (char *)r->init, .dst = ROOTFS_INIT, .ro = true
    };
    const struct plan *p = r->plan;
    bool placed = r->skeleton || (p->top && !p->image_layers.n);
    AUTOCLOSE int root = -1;
    int rc = make_root(r, e);

    if (rc < 0)
        return rc;
    root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, "make the root directory");
    if (!placed && (rc = make_points(r, root, e)) < 0)
        return rc;
    for (size_t i = 0; i < p->mounts.n; i++)
        if (!p->mounts.v[i].user && !(placed && is_there(p, i)) &&
            (rc = add_mount(r, root, i, e)) < 0)
            return rc;
    if (p->project && (rc = add_workspace(r, root, p->project, 0, e)) < 0)
        return rc;
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        if ((rc = add_workspace(r, root, p->extra_lowers.v[i], (unsigned)i + 1, e)) < 0)
            return rc;
    for (size_t i = 0; i < p->mounts.n; i++)
        if (p->mounts.v[i].user && (rc = add_volume(r, root, &p->mounts.v[i], e)) < 0)
            return rc;
    if ((rc = rootfs_protect(p, root, e)) < 0 || (rc = add_bind(r, root, &init, e)) < 0)
        return rc;
    hide_hybrid();
    return 0;
}
