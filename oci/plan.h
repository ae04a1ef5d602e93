/* oci/plan.h - the validated, immutable description of one sandbox.
 *
 * cmd/ and config fill it, plan_check() judges it, everything below the life cycle only reads it.
 * All paths are absolute and normal (no "..", no double slash).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

/* One thing to put into the root file system, in order. */
enum plan_mount_kind {
    MOUNT_BIND,      /* src (directory or file) at dst; recursive */
    MOUNT_LINK,      /* a symlink at dst with the text src */
    MOUNT_HOME_LINK, /* the same somewhere below the user's home, where nothing is in its way */
    MOUNT_DIR,       /* an empty, root-owned 0755 directory at dst */
    MOUNT_TMPFS,     /* an empty directory at dst that the sandbox's user may write */
    MOUNT_EMPTY,     /* hide the file or directory dst behind an empty, unreadable one */
};

struct plan_mount {
    enum plan_mount_kind kind;
    char *src, *dst;
    bool ro;
    bool user;      /* asked for with -v: its files belong to the sandbox's user */
    bool plain_ids; /* root: files keep the host's ids, so that nobody inside owns them */
    bool
        overlay; /* not the tree itself but an overlay over it: writable, and sockets are refused */
    bool owner;  /* of an overlay: its files are the project owner's, as the project's own are */
};

struct plan_mounts {
    struct plan_mount *v;
    size_t n;
};

void plan_mounts_add(struct plan_mounts *l, enum plan_mount_kind kind, const char *src,
                     const char *dst, bool ro);
void plan_mounts_free_p(struct plan_mounts *l);
/* "x-01234567": what an overlay at `dst` is called in layers. The same at every start, whatever else is mounted. */
void plan_overlay_tag(const char *dst, char ret[16]);

enum workspace_mode { WORKSPACE_OVERLAY, WORKSPACE_COPY, WORKSPACE_BIND };

/* A limit, and whether the user asked for it (then it must hold) or it is a default. */
struct limit {
    uint64_t value;
    bool asked;
};

/* What all running sandboxes of a user may have together; 0: no limit. */
struct plan_totals {
    uint64_t sandboxes, memory, disk;
};

/* Where caches of package managers are, of a sandbox that has them. */
#define PLAN_CACHES "/var/cache/petri"

struct net_policy;
struct plan {
    char *id;   /* 12 hex digits */
    char *name; /* may be NULL */
    struct strv labels;

    char *image;               /* "host" or an image's name */
    struct strv image_layers;  /* unpacked layers of an image, top first; empty for host */
    struct plan_mounts mounts; /* what makes the root: system directories, /etc, tool chains, -v */
    bool root_writable;        /* / itself: images, and user 0 */

    uid_t uid; /* inside */
    gid_t gid;
    char *user, *home;
    uid_t owner_uid; /* outside: who owns what the workspace brings back */
    gid_t owner_gid;

    struct strv argv, env;
    char *cwd; /* inside */

    char *project; /* outside; NULL: none */
    dev_t project_dev;
    ino_t project_ino;
    enum workspace_mode mode;
    bool read_only;
    char *workspace;      /* inside: where the project is seen, beside its own path */
    struct strv hide;     /* relative to the project */
    struct strv readonly; /* relative to the project: can't be written inside */
    struct strv
        extra_lowers;    /* absolute: git directories of a worktree, sub-mounts: own overlays */
    struct strv missing; /* mounts below the project that stay out: the kernel's own, devices */

    struct limit memory, cpus_milli, pids, disk, inodes, nofile;
    struct net_policy *net; /* the plan's maker keeps it */

    uint64_t timeout_ms; /* 0: none */
    uint64_t max_output; /* bytes per stream */

    struct plan_totals totals;
    uint64_t startup_ms; /* how long a start may take; 0: as long as petri thinks fit */

    bool tty, keep;
    bool live; /* petri-init serves clients; there is no command */

    /* A sandbox that stays: directories of what it wrote, frozen ones (bottom first) and the one that
     * takes its writes. NULL: everything goes to the scratch. */
    struct strv chain;
    char *top;
};

struct plan *plan_new(void);
struct plan *plan_free(struct plan *p);
static inline void plan_free_p(struct plan **p)
{
    *p = plan_free(*p);
}
