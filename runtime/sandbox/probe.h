/* runtime/sandbox/probe.h - what this machine can do for a sandbox, tried rather than guessed.
 * Owns:  nothing that lasts; a probe directory beside the store lives for some milliseconds.
 * Uses:  base/. Never prints: `petri doctor` shows the table, `petri run` takes its refusals from it.
 * Crash: children die with their parent; a SIGKILL at the wrong moment leaves an empty
 *        `.petri-probe-*` directory beside the store.
 *
 * probe_try.c and probe_ids.c do in forked children what a sandbox would do, probe_host.c reads what
 * is around; the others turn that into lines: probe_userns.c, probe_files.c, probe_net.c (tries, too),
 * probe_limits.c (cgroups, room) and probe_extra.c (useful, not needed). probe.c makes the table.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"
#include "base/user.h"

enum probe_status { PROBE_OK, PROBE_LIMITED, PROBE_MISSING };

struct probe_result {
    const char *id;    /* stable, for programs: "userns" */
    const char *title; /* "user namespaces" */
    enum probe_status status;
    bool required; /* without it `petri run` can't work */
    bool untried;  /* not found out: something before it is missing */
    char *value;   /* what was found: "work", "blocked by AppArmor" */
    char *means;   /* what follows from it; NULL: nothing to say */
    char *fix;     /* the command that changes it; NULL: none, or none needed */
};

struct probe_report {
    struct probe_result *v;
    size_t n;
    bool ok; /* nothing required is missing */
    char *kernel;
};

const char *probe_status_name(enum probe_status s); /* "ok", "limited", "missing" */

/* Runs every probe. `store` is petri's data directory (it need not exist), `project` a directory
 * that would become a workspace; NULL: the usual store, the working directory. */
void probe_all(const char *store, const char *project, struct probe_report *ret);
void probe_report_free_p(struct probe_report *r);
#define AUTOREPORT CLEANUP(probe_report_free_p)
const struct probe_result *probe_find(const struct probe_report *r, const char *id);

/* For the moment after something failed. Probes, and where the feature `id` ("userns", "proc",
 * "overlay", "cgroup", ...) is indeed missing or limited replaces *e by one line that says what is
 * wrong, that nothing was run, and the command that fixes it; returns -ERR_UNSUPPORTED.
 * Returns 0 and leaves *e alone where the probe finds nothing wrong. */
int probe_refuse(const char *id, struct err **e);
/* The same text for what every sandbox starts with (user and other namespaces, /proc, seccomp),
 * quicker; NULL: it works. The caller frees it. */
char *probe_userns_remedy(void);

/* --- between the probe files ----------------------------------------------------------------- */

enum { PROBE_NOT_TRIED = -1 };

/* Each is 0 (works), an errno, or PROBE_NOT_TRIED because an earlier step failed. */
struct probe_tries {
    int userns, maps, namespaces, calls, tmpfs, proc;
    const char *ns_name, *call_name; /* the one that failed */
    int overlay, tmpfs_xattr;        /* on tmpfs */
    int store_upper, project_lower;  /* changes in the store; the project below */
    int layers_plus, layers_fd;      /* lowerdir+; layers as file descriptors */
    int seccomp;
    int net, net_full; /* a gateway's namespaces; with a rule for all ports */
    int resolver;      /* ENODATA: it names no server */
    char net_why[200], full_why[200];
    int idmap_project, idmap_usr; /* root: idmapped mounts of these file systems */
    int died;                     /* signal that ended the child, 0 */
    bool as_root;                 /* overlays were tried with root's rights */
};
/* `probe_dir` is a fresh directory on the store's file system (or NULL). */
void probe_try(const char *probe_dir, const char *project, struct probe_tries *ret);
/* Waits for a child, at most some seconds, then kills it; returns its wait status. */
int probe_reap(pid_t pid);
int probe_write(const char *path, const char *text); /* 0 or an errno */
int probe_map_self(uid_t uid, gid_t gid);            /* in a new user namespace; 0 or an errno */
void probe_try_idmap(struct probe_tries *t, const char *unused, const char *project);
void probe_try_net(struct probe_tries *t, const char *unused, const char *unused2);
void probe_try_resolver(struct probe_tries *t, const char *unused, const char *unused2);
/* Runs newuidmap and newgidmap on a fresh user namespace; 0 or an errno-like reason. */
int probe_try_subids(const char *newuidmap, const char *newgidmap, uint64_t uid_start,
                     uint64_t gid_start);

/* What is around us. */
struct probe_host {
    uid_t uid;
    struct user me;        /* name and home may be NULL */
    const char *container; /* "docker", "podman", "lxc", "kubernetes", "container"; NULL: none */
    const char *container_sign; /* what says so */
    char *apparmor;             /* label of this process, NULL: no AppArmor or unconfined */
    char *release;              /* kernel */
    unsigned major, minor;
    int seccomp_mode; /* of this process: 2: a filter is on */
    bool no_new_privs, chrooted;
    bool proc_masked; /* something is mounted below /proc */
    bool systemd;
};
bool probe_all_ids(void); /* every id is mapped: uid 0 is the machine's own root */
void probe_host_read(struct probe_host *ret);
void probe_host_free_p(struct probe_host *h);
/* A sysctl as a number, -1: not there. */
int64_t probe_sysctl(const char *path);
char *probe_find_program(const char *name); /* on PATH, or in the usual sbin directories; NULL */

/* Adds one line to the table; takes ownership of value, means and fix. */
void probe_add(struct probe_report *r, const char *id, const char *title, bool required,
               enum probe_status status, char *value, char *means, char *fix);
/* One that could not be tried because user namespaces are missing. */
void probe_add_untried(struct probe_report *r, const char *id, const char *title, bool required,
                       char *value);
void probe_namespaces(struct probe_report *r, const struct probe_host *h,
                      const struct probe_tries *t); /* and /proc, seccomp */
/* `existing` is the nearest directory above the store that is there. */
void probe_files(struct probe_report *r, const struct probe_host *h, const struct probe_tries *t,
                 const char *store, const char *existing, const char *project);
void probe_network(struct probe_report *r, const struct probe_host *h, const struct probe_tries *t);
void probe_subids(struct probe_report *r, const struct probe_host *h);
void probe_cgroups(struct probe_report *r, const struct probe_host *h);
void probe_linger(struct probe_report *r, const struct probe_host *h);
void probe_room(struct probe_report *r, const char *store);            /* disk and memory */
void probe_extras(struct probe_report *r, const struct probe_host *h); /* landlock, KVM, runtimes */
/* "docker run --security-opt ...": the options this container lacks; NULL: none, or not in one. */
char *probe_container_fix(const struct probe_host *h, const struct probe_tries *t);
