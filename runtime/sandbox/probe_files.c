/* runtime/sandbox/probe_files.c - overlays: at all, in the store, over the project; idmapped mounts. */
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

/* The type of the file system a path lies on, as mountinfo names it: "ext4", "nfs4", "fuse.sshfs". */
static char *fs_type(const char *path)
{
    AUTOFREE char *text = NULL;
    char *save = NULL;
    struct statx sx;

    if (statx(AT_FDCWD, path, 0, STATX_MNT_ID, &sx) < 0 || !(sx.stx_mask & STATX_MNT_ID) ||
        fs_read(AT_FDCWD, "/proc/self/mountinfo", 4 << 20, &text, NULL, NULL) < 0)
        return str_dup("an unknown file system");
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *dash = strstr(l, " - ");
        if (dash && strtoull(l, NULL, 10) == sx.stx_mnt_id)
            return str_printf("%.*s", (int)strcspn(dash + 3, " "), dash + 3);
    }
    return str_dup("an unknown file system");
}

/* Case-insensitive directories are refused as layers by most kernels. */
static bool casefold(const char *path)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int flags = 0;
    return fd >= 0 && !ioctl(fd, FS_IOC_GETFLAGS, &flags) && (flags & FS_CASEFOLD_FL);
}

static char *place(const char *path, const char *existing)
{
    AUTOFREE char *type = fs_type(existing);
    return str_printf("%s on %s%s", path, type, casefold(existing) ? ", case-insensitive" : "");
}

static void overlay_line(struct probe_report *r, const struct probe_host *h,
                         const struct probe_tries *t)
{
    static const char id[] = "overlay", title[] = "overlayfs";

    if (!t->overlay)
        probe_add(r, id, title, true, PROBE_OK, str_dup("works"), NULL, NULL);
    else if (t->overlay == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, true, NULL);
    else if (t->overlay == ENODEV)
        probe_add(r, id, title, true, PROBE_MISSING, str_dup("is not in this kernel"),
                  str_dup("only petri run --workspace-mode copy or bind"),
                  str_dup("sudo modprobe overlay"));
    else if (t->tmpfs_xattr == EOPNOTSUPP && !t->store_upper)
        probe_add(r, id, title, true, PROBE_LIMITED, str_dup("not on tmpfs (no user xattrs)"),
                  str_dup("changes of a run go to the store's disk instead of memory"),
                  str_dup("boot a kernel of 6.6 or later"));
    else if (t->tmpfs_xattr == EOPNOTSUPP && t->store_upper > 0 && t->store_upper != EPERM)
        probe_add(r, id, title, true, PROBE_MISSING,
                  str_dup("neither on tmpfs (no user xattrs) nor in the store"),
                  str_dup("a run has nowhere to keep its changes"),
                  str_printf("export PETRI_HOME=/var/tmp/petri-%u, on a local disk", h->uid));
    else
        probe_add(r, id, title, true, PROBE_MISSING, str_dup(strerror(t->overlay)),
                  str_dup("only petri run --workspace-mode copy or bind"),
                  probe_container_fix(h, t));
}

static void store_line(struct probe_report *r, const struct probe_host *h,
                       const struct probe_tries *t, const char *store, const char *existing)
{
    static const char id[] = "store", title[] = "store";

    if (*store != '/') {
        probe_add(r, id, title, true, PROBE_MISSING,
                  str_printf("PETRI_HOME is '%s', it must be an absolute path", store),
                  str_dup("petri has nowhere to keep its things"),
                  str_printf("export PETRI_HOME=/var/tmp/petri-%u", h->uid));
    } else if (!t->store_upper) {
        probe_add(r, id, title, false, PROBE_OK, place(store, existing), NULL, NULL);
    } else if (access(existing, W_OK) < 0) {
        probe_add(r, id, title, true, PROBE_MISSING,
                  str_printf("%s can't be made: '%s' is %s", store, existing,
                             errno == EROFS ? "read-only" : "not writable for you"),
                  str_dup("petri has nowhere to keep its things"),
                  str_printf("export PETRI_HOME=/var/tmp/petri-%u", h->uid));
    } else if (t->store_upper == PROBE_NOT_TRIED) {
        probe_add_untried(r, id, title, false, place(store, existing));
    } else {
        probe_add(
            r, id, title, false, PROBE_LIMITED, place(store, existing),
            str_dup("can't hold a sandbox's changes; runs keep them in memory, kept sandboxes "
                    "need another place"),
            h->container ? str_printf("%s run --tmpfs %s:mode=1777 ...",
                                      str_eq(h->container, "podman") ? "podman" : "docker", store)
                         : str_printf("export PETRI_HOME=/var/tmp/petri-%u", h->uid));
    }
}

static void project_line(struct probe_report *r, const struct probe_tries *t, const char *project)
{
    static const char id[] = "project", title[] = "this directory";

    if (!t->project_lower)
        probe_add(r, id, title, false, PROBE_OK, place(project, project), NULL, NULL);
    else if (t->project_lower == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, false, place(project, project));
    else
        probe_add(r, id, title, false, PROBE_LIMITED, place(project, project),
                  str_printf("can't be seen through an overlay (%s)", strerror(t->project_lower)),
                  str_dup("petri run --workspace-mode copy -- CMD"));
}

/* Root's sandboxes run under ids of their own, and the files must follow. */
static void idmap_line(struct probe_report *r, const struct probe_host *h,
                       const struct probe_tries *t, const char *project)
{
    static const char id[] = "idmap", title[] = "idmapped mounts";
    bool usr = t->idmap_usr, bad = usr || t->idmap_project;
    AUTOFREE char *type = fs_type(usr ? "/usr" : project);

    if (!bad)
        probe_add(r, id, title, false, PROBE_OK, str_dup("work"), NULL, NULL);
    else if (t->idmap_usr == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, false, NULL);
    else
        probe_add(r, id, title, false, PROBE_LIMITED,
                  str_printf("not of '%s' (%s): %s", usr ? "/usr" : project, type,
                             strerror(usr ? t->idmap_usr : t->idmap_project)),
                  str_dup(usr ? "the system's files belong to nobody inside"
                              : "inside runs the id of the project's owner, not one of its own"),
                  usr ? NULL : str_dup("move the project to ext4, xfs or btrfs"));
}

void probe_files(struct probe_report *r, const struct probe_host *h, const struct probe_tries *t,
                 const char *store, const char *existing, const char *project)
{
    overlay_line(r, h, t);
    store_line(r, h, t, store, existing);
    project_line(r, t, project);
    if (!h->uid)
        idmap_line(r, h, t, project);
}
