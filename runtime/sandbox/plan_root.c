/* runtime/sandbox/plan_root.c - what makes the sandbox's root: its user, the system, volumes. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/user.h"
#include "image/host/etc.h"
#include "image/host/system.h"
#include "image/host/tools.h"
#include "oci/config.h"
#include "runtime/sandbox/plan_parts.h"
#include "runtime/sandbox/project.h"

/* Who the sandbox's user is: -u, else the invoker (root: the project's owner, or 1000). */
/* An account of an image: its own /etc/passwd, from the topmost layer that has one, no link followed. */
static bool image_account(const struct plan *p, const char *name, struct user *ret)
{
    for (size_t i = 0; i < p->image_layers.n; i++) {
        AUTOCLOSE int dir = open(p->image_layers.v[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        AUTOCLOSE int fd =
            dir < 0 ? -1 : fs_open_beneath(dir, "etc/passwd", O_RDONLY | O_NONBLOCK, 0, 0);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        AUTOFREE char *path = str_printf("/proc/self/fd/%d", fd);
        return user_by_name(path, name, ret);
    }
    return false;
}

int plan_user(const struct options *o, bool host, const char *image_user, struct plan *p,
              struct err **e)
{
    CLEANUP(user_free_p) struct user u = { 0 };
    const char *want = o->user ? o->user : (image_user && *image_user ? image_user : NULL);
    AUTOFREE char *name = NULL;
    uint64_t uid, gid = 0;
    char *colon;

    if (!want) {
        p->uid = host && p->owner_uid ? p->owner_uid : 1000;
        p->gid = host && p->owner_uid ? p->owner_gid : 1000;
        if (p->uid >= 65536 && geteuid() == 0)
            p->uid = p->gid = 1000;
        if (host && p->uid == p->owner_uid && user_by_uid(p->uid, &u)) {
            p->user = TAKE_PTR(u.name);
            p->home = TAKE_PTR(u.home);
        }
    } else {
        name = str_dup(want);
        colon = strchr(name, ':');
        if (colon)
            *colon++ = '\0';
        if (parse_uint(name, 4294967294, &uid, NULL) == 0) {
            p->uid = (uid_t)uid;
            p->gid = (gid_t)uid;
            if (host && user_by_uid(p->uid, &u))
                p->gid = u.gid;
            if (p->uid == p->owner_uid)
                p->gid = p->owner_gid;
        } else if (strcmp(name, "root") == 0) {
            p->uid = p->gid = 0;
        } else if (host ? user_by_name("/etc/passwd", name, &u) : image_account(p, name, &u)) {
            p->uid = u.uid;
            p->gid = u.gid;
        } else {
            return err_new(e, ERR_NOT_FOUND,
                           "user '%s' is not known here; use a number (-u 1000) or root", want);
        }
        if (colon && parse_uint(colon, 4294967294, &gid, NULL) < 0)
            return err_new(e, ERR_INVALID, "user '%s': the group must be a number", want);
        if (colon)
            p->gid = (gid_t)gid;
        p->user = u.name ? TAKE_PTR(u.name) : NULL;
        p->home = p->uid == 0 ? str_dup("/root") : u.home ? TAKE_PTR(u.home) : NULL;
    }
    if (!p->user)
        p->user = str_dup(p->uid == 0 ? "root" : host ? "user" : "sandbox");
    if (!p->home || p->home[0] != '/' || !p->home[1] || host_system_path(p->home)) {
        free(p->home);
        p->home = str_printf("/home/%s", p->user);
    }
    return 0;
}

/* -v SRC:DST[:ro] */
int plan_volume(const char *v, const struct paths *paths, struct plan_mounts *ret, struct err **e)
{
    AUTOFREE char *spec = str_dup(v), *src = NULL;
    char *dst = strchr(spec, ':'), *opt = dst ? strchr(dst + 1, ':') : NULL;
    const char *why = NULL;
    static const char *const taken[] = { "/proc", "/sys", "/dev", "/.petri-init" };

    if (opt)
        *opt++ = '\0';
    if (dst)
        *dst++ = '\0';
    if (!dst || dst[0] != '/' || !dst[1] || strstr(dst, "/../") || str_ends(dst, "/..") ||
        (opt && strcmp(opt, "ro") != 0 && strcmp(opt, "rw") != 0))
        return err_new(e, ERR_INVALID,
                       "-v '%s': write it as SRC:DST or SRC:DST:ro, with DST absolute", v);
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (path_below(dst, taken[i]))
            return err_new(e, ERR_DENIED, "-v '%s': %s is the sandbox's own", v, taken[i]);
    src = fs_realpath(spec);
    if (!src && errno == ENOENT)
        return err_new(e, ERR_INVALID, "-v '%s': '%s' is no path on this machine%s", v, spec,
                       strchr(spec, '/') ? "; make it first"
                                         : " (there are no named volumes); make it first");
    if (!src)
        return err_sys(e, "-v '%s': '%s'", v, spec);
    struct stat st;
    if (stat(src, &st) < 0 || !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
        return err_new(e, ERR_DENIED, "-v '%s': '%s' is no directory or plain file", v, src);
    if (strcmp(src, "/") == 0 || project_forbidden(src, paths->data, &why) ||
        project_forbidden(src, paths->run, &why))
        return err_new(e, ERR_DENIED, "-v '%s': '%s' can't be handed in: %s", v, src,
                       why ? why : "it is the whole machine");
    AUTOSTRV struct strv files = { 0 }, rest = { 0 };
    int rc = project_submounts(src, &files, &rest, e);
    if (rc < 0)
        return rc;
    if (rest.n)
        return err_new(e, ERR_DENIED,
                       "-v '%s': '%s' in it is no ordinary file system and can't be handed in", v,
                       rest.v[0]);
    plan_mounts_add(ret, MOUNT_BIND, src, dst, opt && strcmp(opt, "ro") == 0);
    return 0;
}

/* A new name below a read-only system directory needs a place to be mounted on: an overlay has it. */
void plan_make_room(struct plan *p, const char *dst)
{
    for (size_t i = 0; i < p->mounts.n; i++) {
        struct plan_mount *m = &p->mounts.v[i];
        if (m->kind != MOUNT_BIND || !path_below(dst, m->dst) || strcmp(dst, m->dst) == 0)
            continue;
        AUTOFREE char *there = str_printf("%s%s", m->src, dst + strlen(m->dst));
        if (!fs_exists(there)) {
            m->overlay = true;
            m->ro = false;
        }
    }
}

/* Trees that hold a socket of the host's: system directories come in as overlays, others not at all. */
int plan_judge_sockets(struct plan *p, struct err **e)
{
    AUTOSTRV struct strv trees = { 0 };
    int rc = host_socket_trees(&p->mounts, &trees, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < p->mounts.n; i++) {
        struct plan_mount *m = &p->mounts.v[i];
        if (m->kind != MOUNT_BIND ||
            !(strv_has(&trees, m->dst) || (m->user && host_socket_below(m->src))))
            continue;
        if (m->user)
            return err_new(e, ERR_DENIED,
                           "-v '%s:%s': a socket of a running service lies in it; a sandbox "
                           "must not reach it",
                           m->src, m->dst);
        m->overlay = true;
    }
    if (p->project && p->mode == WORKSPACE_BIND) {
        struct plan_mounts one = { 0 };
        AUTOSTRV struct strv hit = { 0 };
        plan_mounts_add(&one, MOUNT_BIND, p->project, p->project, false);
        rc = host_socket_trees(&one, &hit, e);
        plan_mounts_free_p(&one);
        if (rc < 0)
            return rc;
        if (hit.n || host_socket_below(p->project))
            return err_new(e, ERR_DENIED,
                           "--workspace-mode bind: a socket of a running service lies in '%s'; "
                           "use overlay or copy",
                           p->project);
    }
    return 0;
}

int plan_host_image(const struct paths *paths, struct plan *p, struct plan_holds *holds,
                    struct err **e)
{
    extern char **environ;
    AUTOFREE char *layers = path_join(paths->data, "layers"), *etc = NULL;
    const char *home = getenv("HOME");
    CLEANUP(user_free_p) struct user me = { 0 };
    struct host_user u = { .name = p->user,
                           .uid = p->uid,
                           .gid = p->gid,
                           .home = p->home,
                           .shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh",
                           .root_construction = p->uid == 0 };
    AUTOSTRV struct strv env = { 0 };
    size_t first;
    int rc;

    if ((rc = fs_mkdirs(layers, 0700, e)) < 0 || (rc = host_etc(layers, &u, &etc, e)) < 0 ||
        (rc = host_etc_hold(etc, &holds->etc_fd, e)) < 0)
        return rc;
    if ((rc = host_system_mounts(p->home, p->uid == 0, &p->mounts, e)) < 0)
        return rc;
    plan_mounts_add(&p->mounts, MOUNT_BIND, weakened() & WEAK_ETC ? "/etc" : etc, "/etc", true);
    if (p->uid == 0) {
        /* user 0 may install: overlays over the system, so that writes go to the sandbox */
        p->root_writable = true;
        for (size_t i = 0; i < p->mounts.n; i++)
            if (p->mounts.v[i].kind == MOUNT_BIND && strcmp(p->mounts.v[i].dst, "/opt") == 0) {
                /* third parties' directory: files that only root may read stay closed to user 0 */
                p->mounts.v[i].plain_ids = true;
            } else if (p->mounts.v[i].kind == MOUNT_BIND && fs_is_dir(p->mounts.v[i].src)) {
                p->mounts.v[i].overlay = true;
                p->mounts.v[i].ro = false;
            }
    }
    for (char **v = environ; *v; v++)
        strv_add(&env, *v);
    if ((!home || home[0] != '/') && user_by_uid(geteuid(), &me))
        home = me.home;
    first = p->mounts.n;
    struct host_tools_in in = {
        .env = &env, .home = home, .inner_home = p->home, .project = p->project
    };
    if ((rc = host_tools(&in, &p->mounts, &p->env, e)) < 0)
        return rc;
    for (size_t i = first; i < p->mounts.n; i++)
        p->mounts.v[i].ro = p->mounts.v[i].kind == MOUNT_BIND;
    if ((rc = host_hide_submounts(&p->mounts, e)) < 0)
        return rc;
    for (size_t i = 0; weakened() & WEAK_ENV && i < env.n; i++)
        strv_add(&p->env, env.v[i]);
    return 0;
}

int plan_store_image(const char *name, const struct paths *paths, struct plan *p,
                     struct plan_holds *holds, struct err **e)
{
    static const char *const places[] = { "/tmp", "/run", "/var/tmp" };
    int rc = store_resolve(paths->data, name, &holds->image, e);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < holds->image.layer_dirs.n; i++)
        strv_add(&p->image_layers, holds->image.layer_dirs.v[i]);
    p->root_writable = true;
    for (size_t i = 0; i < holds->image.env.n; i++)
        strv_add(&p->env, holds->image.env.v[i]);
    if (!strv_getenv(&p->env, "PATH"))
        strv_setenv(&p->env, "PATH",
                    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        plan_mounts_add(&p->mounts, MOUNT_TMPFS, NULL, places[i], false);
    return 0;
}
