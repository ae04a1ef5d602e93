/* image/host/tools.h - tool chains that live in the home directory, and the environment.
 * Owns:  nothing; describes mounts, makes none.
 * Uses:  base/, oci/plan.h, image/host/system.h. Reads names and links, and pyvenv.cfg.
 *
 * What comes in is decided by two tables (tools_roots.c: places, tools_env.c: variables). Nothing
 * of the home comes in but those places and single directories that PATH names.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "oci/plan.h"

struct host_tools_in {
    const struct strv *env; /* of whoever runs petri */
    const char *home;       /* theirs: where tool chains are looked for */
    const char *inner_home; /* HOME inside; often the same path */
    const char *project;    /* outside; NULL: none. It is seen inside at the same path */
};

/* Adds mounts (put them behind the system's) and the environment: PATH in the same order, what
 * host_env_pass lets through, and variables of tool chains that point into what is there. HOME,
 * USER and petri's own variables are the caller's. */
int host_tools(const struct host_tools_in *in, struct plan_mounts *ret_mounts, struct strv *ret_env,
               struct err **e);

/* The variables a sandbox inherits; a name that ends with '*' is a prefix. */
extern const char *const host_env_pass[];
