/* runtime/driver/rootfs_overlay.c - the parts of the root that are overlays. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/driver/rootfs_priv.h"
#include "runtime/workspace/stack.h"

enum { NOBODY = 65534 }; /* whose id is not in the map */

/* An overlay over finished lowers (scratch names, top first); `entry` names its changes in the scratch or, of
 * a sandbox that stays, in its layers. Its top has owner and mode of `like`, one of the lowers. */
int rootfs_overlay(const struct rootfs *r, const char *lowers, const char *like, const char *entry,
                   const char *at, struct err **e)
{
    bool root = r->ids->mode == IDS_ROOT, new = true;
    char up[64], work[64];
    AUTOSTR struct str all = STR_INIT;
    AUTOFREE char *opts = NULL;
    struct stat st;
    int rc;

    if (r->plan->top) {
        stack_lowers(r->plan, entry, &all);
        if ((rc = stack_upper(r->plan, entry, up, work, &new, e)) < 0)
            return rc;
    } else {
        snprintf(up, sizeof up, "u-%s", entry);
        snprintf(work, sizeof work, "k-%s", entry);
        if (mkdir(up, 0755) < 0 || mkdir(work, 0700) < 0)
            return err_sys(e, "prepare an overlay");
    }
    str_add(&all, lowers);
    /* layers that are stacked later must not point at each other */
    opts = str_printf("lowerdir=%s,upperdir=%s,workdir=%s,volatile%s%s", all.p, up, work,
                      root ? ",index=off,metacopy=off" : ",userxattr",
                      !root          ? ""
                      : r->plan->top ? ",redirect_dir=nofollow,xino=off"
                                     : ",redirect_dir=on");
    if (stat(like, &st) < 0)
        return err_sys(e, "prepare an overlay");
    /* the host's root has no id inside */
    if (st.st_uid == (root ? 0 : NOBODY))
        st.st_uid = r->ids->root_uid;
    if (st.st_gid == (root ? 0 : NOBODY))
        st.st_gid = r->ids->root_gid;
    if (new && (chown(up, st.st_uid, st.st_gid) < 0 || chmod(up, st.st_mode & 07777) < 0))
        return err_sys(e, "prepare an overlay");
    if (mount("overlay", at, "overlay", MS_NOSUID | MS_NODEV, opts) < 0)
        return err_sys(e, "mount an overlay (see petri doctor)");
    return 0;
}

int rootfs_lower(const struct rootfs *r, const char *src, int userns, const char *name,
                 struct err **e)
{
    AUTOCLOSE int fd = -1, at = -1;
    CLEANUP(err_free_p) struct err *why = NULL;
    unsigned flags = MNT_RO | (r->ids->mode == IDS_ROOT ? MNT_TOP : 0);
    int rc = mnt_clone(AT_FDCWD, src, flags, userns, &fd, &why);

    /* takes no id map (a container's own overlay): nobody's files, readable */
    if (rc < 0 && userns >= 0 && why->sys == EINVAL)
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

int rootfs_add_overlay(const struct rootfs *r, int root, const struct plan_mount *m, struct err **e)
{
    const struct dirlayer_tree *dirs = dirlayer_for(r->dirs, m->dst);
    int userns = m->owner ? r->project_userns : r->userns;
    char tag[16], low[32], top[32], at[32], both[72];
    AUTOCLOSE int fd = -1;
    int rc;

    plan_overlay_tag(m->dst, tag);
    snprintf(low, sizeof low, "l%s", tag);
    snprintf(top, sizeof top, "t%s", tag);
    snprintf(at, sizeof at, "w%s", tag);
    snprintf(both, sizeof both, "%s:%s", top, low);
    if (!(dirs && dirs->whole) && (rc = rootfs_lower(r, m->src, userns, low, e)) < 0)
        return rc;
    if (dirs && (rc = rootfs_lower(r, dirs->path, r->userns, top, e)) < 0)
        return rc;
    if (mkdir(at, 0755) < 0)
        return err_sys(e, "prepare '%s'", m->dst);
    if ((rc = rootfs_overlay(r,
                             !dirs         ? low
                             : dirs->whole ? top
                                           : both,
                             dirs ? top : low, tag, at, e)) < 0)
        return explain_overlay(r, m, e);
    if ((rc = mnt_clone(AT_FDCWD, at, m->ro ? MNT_RO : 0, -1, &fd, e)) < 0)
        return err_wrap(e, "'%s'", m->dst);
    return rootfs_attach(r, root, fd, m->dst, e);
}

int rootfs_image(const struct rootfs *r, struct err **e)
{
    AUTOSTR struct str lowers = STR_INIT;
    char name[24] = "";
    for (size_t i = 0; i < r->plan->image_layers.n; i++) {
        int rc;
        snprintf(name, sizeof name, "li%zu", i);
        if ((rc = rootfs_lower(r, r->plan->image_layers.v[i], r->userns, name, e)) < 0)
            return rc;
        str_addf(&lowers, "%s%s", i ? ":" : "", name);
    }
    return rootfs_overlay(r, lowers.p, name, "r", "root", e);
}
