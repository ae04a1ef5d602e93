/* runtime/driver/crun.h - the only door to libcrun.
 *
 * libcrun changes its caller (signals, subreaper, limits, keyring), reaps every child and can exit:
 * call it from a process of its own that has nothing else to do, with no descriptor open that the
 * sandbox must not have.
 */
#pragma once
#include "base/err.h"

struct crun_req {
    const char *id;
    const char *state_root; /* a directory that goes away with the caller's mount namespace */
    const char *config;     /* config.json, as text */
    int keep_fds;           /* descriptors from 3 on that the container's first process keeps */
    int wait_fd;            /* its program starts when a byte can be read here; -1: at once */
};

/* Runs the container to its end; 0 once it ran, whatever its exit status. */
int crun_run(const struct crun_req *r, struct err **e);
