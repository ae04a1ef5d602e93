/* runtime/sandbox/options.h - what was asked for, in the user's own words, and the plan made of it. */
#pragma once
#include "base/paths.h"
#include "oci/plan.h"
#include "oci/store_read.h"
#include "runtime/network/policy.h"

struct options {
    struct strv argv, env, env_files, volumes, labels, hide, protect;
    const char *workdir, *user, *image, *network, *workspace, *workspace_path, *mode, *name;
    const char *memory, *cpus, *pids, *disk, *timeout, *max_output;
    struct strv allow_domains, deny_domains, net_ports, publish;
    const char *net_rate, *net_bytes, *on_net_failure;
    const char *idle_timeout, *lifetime; /* of a sandbox that stays */
    const char *caches;                  /* "on", "off" */
    const char *total_sandboxes, *total_memory, *total_disk, *startup_timeout;
    bool read_only, keep, tty, no_keep_alive, promote_on_stop;
    bool aside;        /* a new one is not the project's own, even where it has none */
    bool live;         /* a sandbox without a command of its own, that stays; argv may be empty */
    const char *id;    /* NULL: a new one */
    struct strv given; /* what options_set() was given: "memory=1G" */
    struct strv configured; /* those of them that no person gave with this command */
};
void options_free_p(struct options *o);
/* Takes one flag by its long name (value: NULL for a switch, or for "on"); false: not an option of a sandbox.
 * Values are copied. */
bool options_set(struct options *o, const char *name, const char *value);
/* The same for what a configuration says. */
bool options_configure(struct options *o, const char *name, const char *value);
/* Whether several of a flag ("hide=x") add up. */
bool options_is_list(const char *flag);
/* The same for words that a record has kept. */
void options_restore(struct options *o, const struct strv *given);
/* 1 to 63 letters, digits, '-', '_' or '.', beginning with a letter or digit. */
int options_check_name(const char *flag, const char *name, struct err **e);

/* Where a project can be seen as far as that does not depend on it: the path in its shortest form. */
int options_check_workspace_path(const char *path, char **ret, struct err **e);

/* What must stay open while the sandbox runs: locks on layers, on the copy of /etc and on
 * a generation of caches. */
struct plan_holds {
    struct image_info image;
    int etc_fd;
    int caches_fd;
    struct net_policy *net;
};
void plan_holds_free_p(struct plan_holds *h);

/* Judges every value before anything is made; an error names the flag, the value and the remedy. */
int plan_make(const struct options *o, const struct paths *paths, struct plan **ret,
              struct plan_holds *ret_holds, struct err **e);
/* The path of a layer that does not exist yet; NULL: an error. */
char *plan_layer(const struct paths *paths, struct err **e);
