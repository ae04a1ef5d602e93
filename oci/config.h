/* oci/config.h - a plan as an OCI runtime configuration (config.json). */
#pragma once
#include "oci/plan.h"

/* Lines of a user namespace's map: container id, id outside it, count. */
struct idmap_line {
    uint32_t inside, outside, count;
};
struct idmap {
    struct idmap_line v[5];
    size_t n;
};

/* What the launcher made before the runtime starts. */
struct bundle {
    const char *rootfs; /* directory with everything mounted in it */
    const char *init;   /* path of petri-init inside */
    const char *empty;  /* an empty directory */
    const char *userns,
        *netns; /* paths of namespaces to join; NULL only in a weakened test build */
    struct idmap uids, gids;
    bool root_id;     /* the sandbox's user is root outside: hide what only root may read, too */
    uint32_t init_id; /* petri-init's own user and group; 0: it is the sandbox's user */
    uint64_t nproc;   /* RLIMIT_NPROC where no cgroup counts processes, else 0 */
};

/* Protections that a test build can take down one by one; always 0 in a real one. */
enum {
    WEAK_SECCOMP = 1,
    WEAK_NNP = 2,
    WEAK_CAPS = 4,
    WEAK_MASKS = 8,
    WEAK_NET = 16,
    WEAK_ENV = 32,
    WEAK_HIDE = 64,
    WEAK_LIMITS = 128,
    WEAK_ETC = 256,
    WEAK_TIMEOUT = 512,
    WEAK_USERNS = 1024,
    WEAK_CGROUPFS = 2048,
    WEAK_NOSUID = 4096,
    WEAK_OUTPUT = 8192,
    WEAK_TMP = 16384,
};
unsigned weakened(void);

/* Stands in the configuration for the compiled seccomp filter, which the runtime gets by another way
 * (runtime/driver/wrap): a runtime that takes it for a filter fails. */
#define CONFIG_SECCOMP "petri"

/* An annotation: the namespaces are the container's own, and their limits are to be lowered (there, too). */
#define CONFIG_LIMITS "petri.limits"

/* The JSON text; the caller frees it. */
char *config_json(const struct plan *p, const struct bundle *b);
