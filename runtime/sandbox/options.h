/* runtime/sandbox/options.h - what was asked for, in the user's own words, and the plan made of it. */
#pragma once
#include "oci/plan.h"
#include "oci/store_read.h"
#include "base/paths.h"

struct options {
    struct strv argv, env, env_files, volumes, labels, hide;
    const char *workdir, *user, *image, *network, *workspace, *mode, *name;
    const char *memory, *cpus, *pids, *disk, *timeout, *max_output;
    bool read_only, keep, tty;
};
void options_free_p(struct options *o);

/* What must stay open while the sandbox runs: locks on layers and on the copy of /etc. */
struct plan_holds {
    struct image_info image;
    int etc_fd;
};
void plan_holds_free_p(struct plan_holds *h);

/* Judges every value before anything is made; an error names the flag, the value and the remedy. */
int plan_make(const struct options *o, const struct paths *paths, struct plan **ret,
              struct plan_holds *ret_holds, struct err **e);
